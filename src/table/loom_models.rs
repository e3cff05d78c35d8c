//! Loom models of the rules: small enough to be run through every interleaving that three
//! preemptions allow, with the reorderings of weak memory.
//!
//! Run with `RUSTFLAGS="--cfg tenure_loom" cargo test --release --lib loom_models`. Each model's doc
//! names a broken step with which it was seen to fail.

use loom::thread;

use super::cell::{KILLED_EXPIRED, KILLED_REVOKED};
use super::*;
use crate::key::{HashSeed, Key};
use crate::sync::Ordering;

type Small = Table<Wide>;

/// A table of one bucket: all keys share it.
fn table() -> Arc<Small> {
    sized(1)
}

fn sized(buckets: usize) -> Arc<Small> {
    let hasher = BucketHasher::new(&HashSeed::new(7));
    Arc::new(Table::new(buckets, hasher).expect("memory"))
}

/// A thread's part, with the clock at `now`.
fn local(table: &Small, now: u64) -> Local {
    let mut local = table.local(Arc::new(Counters::default()));
    local.now = now;
    // Cells in hand, so that refills don't multiply the interleavings.
    let cell = table.refill(&mut local).expect("a cell");
    table.give_cell(&mut local, cell);
    local
}

fn key(raw: u128) -> Key {
    Key::from_raw(raw)
}

fn ask(table: &Small, raw: u128, deadline: u64) -> Ask {
    let key = key(raw);
    Ask {
        key,
        hash: table.hash(key),
        owner: 1,
        deadline,
        at_least: 0,
    }
}

fn name(table: &Small, raw: u128, token: u64) -> Name {
    let key = key(raw);
    Name {
        key,
        hash: table.hash(key),
        token,
    }
}

fn leases(locals: &[&Local]) -> i64 {
    locals
        .iter()
        .map(|local| local.counters.leases.load(Ordering::Relaxed))
        .sum()
}

fn expired(locals: &[&Local]) -> u64 {
    locals
        .iter()
        .map(|local| local.counters.expired.load(Ordering::Relaxed))
        .sum()
}

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(4);
    builder.max_branches = 20_000;
    builder.check(body);
}

/// No free cell may be linked, and none may be free twice.
fn assert_cells_are_disjoint(table: &Small, locals: &mut [&mut Local]) {
    let mut seen = std::collections::HashSet::new();
    for local in locals {
        while let Some(cell) = local.free.pop() {
            assert!(seen.insert(cell), "cell {cell} is free twice");
            assert_eq!(table.cell(cell).state::<Wide>().tag(), cell::DEAD);
        }
    }
    let newest = table.newest();
    for index in 0..newest.len() {
        let mut at = newest.at(index).load::<Wide>().cell();
        while at != 0 {
            assert!(seen.insert(at), "cell {at} is free or linked twice");
            at = table.cell(at).next();
        }
    }
}

/// Grant against grant of one key: one is granted, the other is told by whom (I1).
///
/// Fails if the publishing CAS is a store, or if `Held` is said without the state's acquire load.
#[test]
fn of_two_grants_of_one_key_one_is_refused() {
    model(|| {
        let table = table();
        let (mut a, mut b) = (local(&table, 1), local(&table, 1));
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            let granted = other.grant(&mut b, &ask(&other, 1, 10));
            (granted, b)
        });
        let first = table.grant(&mut a, &ask(&table, 1, 10));
        let (second, mut b) = thread.join().unwrap();
        match (first, second) {
            (
                Ok(won),
                Err(Refused::Held {
                    owner,
                    token,
                    deadline,
                }),
            )
            | (
                Err(Refused::Held {
                    owner,
                    token,
                    deadline,
                }),
                Ok(won),
            ) => {
                assert_eq!((owner, token, deadline), (1, won.token, 10));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(leases(&[&a, &b]), 1);
        assert_cells_are_disjoint(&table, &mut [&mut a, &mut b]);
    });
}

/// Grant against grant of two keys in one bucket: both are granted and both are found (I1, I2).
///
/// Fails if a grant links to the chain that it saw at an earlier try.
#[test]
fn two_keys_of_one_bucket_are_both_granted() {
    model(|| {
        let table = table();
        let (mut a, mut b) = (local(&table, 1), local(&table, 1));
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            let granted = other.grant(&mut b, &ask(&other, 2, 10)).expect("free");
            (granted, b)
        });
        let first = table.grant(&mut a, &ask(&table, 1, 10)).expect("free");
        let (second, mut b) = thread.join().unwrap();
        assert_ne!(first.token, second.token);
        assert!(
            table
                .validate(&mut a, &name(&table, 1, first.token))
                .is_ok()
        );
        assert!(
            table
                .validate(&mut a, &name(&table, 2, second.token))
                .is_ok()
        );
        assert_cells_are_disjoint(&table, &mut [&mut a, &mut b]);
    });
}

/// Renew against theft: the renewer, whose clock still says that the lease is live, and a thief, whose
/// clock says that it is over. If the renewal succeeds, nobody else has the key (I4, I5).
///
/// Fails if the thief unlinks without killing the state first.
#[test]
fn a_renewal_and_a_theft_never_both_succeed() {
    model(|| {
        let table = table();
        let (mut a, mut b) = (local(&table, 9), local(&table, 10));
        let held = table.grant(&mut a, &ask(&table, 1, 10)).expect("free");
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            let granted = other.grant(&mut b, &ask(&other, 1, 20));
            (granted, b)
        });
        let renewed = table.renew(&mut a, held.handle, &name(&table, 1, held.token), 30);
        let (stolen, mut b) = thread.join().unwrap();
        assert_ne!(renewed.is_ok(), stolen.is_ok(), "{renewed:?} {stolen:?}");
        assert_eq!(leases(&[&a, &b]), 1);
        assert_eq!(expired(&[&a, &b]), u64::from(stolen.is_ok()));
        assert_cells_are_disjoint(&table, &mut [&mut a, &mut b]);
    });
}

/// Release against expiry by the wheel: exactly one reports the end.
///
/// Fails if the killer's CAS and the loads after it, or the releaser's two loads, lose their order
/// (drop a fence of `state_in_order` or `change`), or if the finisher does not look at the state
/// again after loading the bucket.
#[test]
fn of_a_release_and_an_expiry_exactly_one_reports() {
    model(|| {
        let table = table();
        let (mut a, mut b) = (local(&table, 9), local(&table, 10));
        let held = table.grant(&mut a, &ask(&table, 1, 10)).expect("free");
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            let looked = other.look(&mut b, held.handle.cell());
            // Unlinked by the releaser, and not `DEAD` yet: the wheel comes back.
            assert!(matches!(looked, Look::Nothing | Look::At(11)), "{looked:?}");
            b
        });
        let released = table.release(&mut a, held.handle, &name(&table, 1, held.token));
        let mut b = thread.join().unwrap();
        assert_eq!(leases(&[&a, &b]), 0);
        // The release may be the one that counts even if the wheel has killed the state.
        assert!(expired(&[&a, &b]) <= 1);
        assert!(released.is_ok() || expired(&[&a, &b]) == 1);
        assert!(table.find(&mut a, key(1), table.hash(key(1))).is_err());
        assert_cells_are_disjoint(&table, &mut [&mut a, &mut b]);
    });
}

/// Release of a first cell against a push on top of it: the released one is gone, the pushed one
/// stays (I6).
///
/// Fails if a release CASes only the cell and not the version, or frees a cell that it did not
/// unlink.
#[test]
fn a_release_races_a_push_on_top() {
    model(|| {
        let table = table();
        let (mut a, mut b) = (local(&table, 1), local(&table, 1));
        let held = table.grant(&mut a, &ask(&table, 1, 10)).expect("free");
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            let granted = other.grant(&mut b, &ask(&other, 2, 10)).expect("free");
            (granted, b)
        });
        let released = table.release(&mut a, held.handle, &name(&table, 1, held.token));
        let (pushed, mut b) = thread.join().unwrap();
        assert_eq!(released, Ok(()));
        assert_eq!(leases(&[&a, &b]), 1);
        assert!(
            table
                .validate(&mut a, &name(&table, 2, pushed.token))
                .is_ok()
        );
        assert_eq!(
            table.validate(&mut a, &name(&table, 1, held.token)).err(),
            Some(Ended::Expired)
        );
        assert_cells_are_disjoint(&table, &mut [&mut a, &mut b]);
    });
}

/// Recycling against a sleeper with an old handle: the cell is released and granted again to the same
/// key while another thread renews by the old handle and token (I6).
///
/// Fails if the handle's life and token are not compared, or the renewal's CAS is not on the exact
/// state.
#[test]
fn an_old_handle_does_not_touch_the_next_life() {
    model(|| {
        let table = table();
        let (mut a, mut b) = (local(&table, 1), local(&table, 1));
        let held = table.grant(&mut a, &ask(&table, 1, 10)).expect("free");
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            let renewed = other.renew(&mut b, held.handle, &name(&other, 1, held.token), 30);
            (renewed, b)
        });
        table
            .release(&mut a, held.handle, &name(&table, 1, held.token))
            .expect("held");
        let again = table.grant(&mut a, &ask(&table, 1, 20)).expect("free");
        assert_eq!(
            again.handle.cell(),
            held.handle.cell(),
            "the cell is used again at once"
        );
        let (_, mut b) = thread.join().unwrap();
        let found = table
            .validate(&mut a, &name(&table, 1, again.token))
            .expect("held");
        assert_eq!(
            found.contents.deadline, 20,
            "the renewal reached the next lease"
        );
        assert_cells_are_disjoint(&table, &mut [&mut a, &mut b]);
    });
}

/// Recycling against a stale walk: a thread looks for a key at the end of a chain whose first cell is
/// released and granted to another key meanwhile; it must find what stands there throughout.
///
/// Fails if a walk that ends without a find does not look at its bucket again.
#[test]
fn a_stale_walk_still_finds_what_stands() {
    model(|| {
        let table = table();
        let (mut a, mut b) = (local(&table, 1), local(&table, 1));
        let stays = table.grant(&mut a, &ask(&table, 1, 10)).expect("free");
        let goes = table.grant(&mut a, &ask(&table, 2, 10)).expect("free");
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            let found = other.validate(&mut b, &name(&other, 1, stays.token));
            let refused = other.grant(&mut b, &ask(&other, 1, 20));
            (
                found.map(|found| found.contents.deadline),
                refused.is_err(),
                b,
            )
        });
        table
            .release(&mut a, goes.handle, &name(&table, 2, goes.token))
            .expect("held");
        table.grant(&mut a, &ask(&table, 3, 10)).expect("free");
        let (found, refused, mut b) = thread.join().unwrap();
        assert_eq!(found, Ok(10));
        assert!(refused);
        assert_cells_are_disjoint(&table, &mut [&mut a, &mut b]);
    });
}

/// Starts the move of a table of one bucket to one of `buckets`, without moving anything.
fn start_resize(table: &Small, buckets: usize) {
    assert!(table.resize(&table.newest(), buckets));
}

/// Freeze, copy and publish by two helpers against a renewal by the old handle: the lease is found
/// once, with the renewed deadline (I5).
///
/// Fails if states are not frozen before they are copied, or if the loser of a publication frees the
/// old chain.
#[test]
fn a_renewal_survives_a_move_by_two_helpers() {
    model(|| {
        let table = table();
        let (mut a, mut b) = (local(&table, 1), local(&table, 1));
        let held = table.grant(&mut a, &ask(&table, 1, 10)).expect("free");
        start_resize(&table, 2);
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            other.help_resize(&mut b, 2);
            b
        });
        let named = name(&table, 1, held.token);
        let (deadline, handle) = table.renew(&mut a, held.handle, &named, 30).expect("held");
        table.help_resize(&mut a, 2);
        let mut b = thread.join().unwrap();
        assert_eq!(deadline, 30);
        let found = table.validate(&mut a, &named).expect("held");
        assert_eq!(found.contents.deadline, 30);
        assert!(!table.size().1, "the move is over");
        assert_eq!(table.release(&mut a, handle, &named), Ok(()));
        assert_eq!(leases(&[&a, &b]), 0);
        assert_cells_are_disjoint(&table, &mut [&mut a, &mut b]);
    });
}

/// The same against a release by the old handle.
///
/// Fails if a release takes a frozen state for an ended lease, or if a `DONE` bucket is taken for an
/// empty one.
#[test]
fn a_release_survives_a_move_by_two_helpers() {
    model(|| {
        let table = table();
        let (mut a, mut b) = (local(&table, 1), local(&table, 1));
        let held = table.grant(&mut a, &ask(&table, 1, 10)).expect("free");
        start_resize(&table, 2);
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            other.help_resize(&mut b, 2);
            b
        });
        let named = name(&table, 1, held.token);
        assert_eq!(table.release(&mut a, held.handle, &named), Ok(()));
        table.help_resize(&mut a, 2);
        let mut b = thread.join().unwrap();
        assert!(table.find(&mut b, key(1), named.hash).is_err());
        assert_eq!(leases(&[&a, &b]), 0);
        assert_cells_are_disjoint(&table, &mut [&mut a, &mut b]);
    });
}

/// The same, shrinking, against a grant of the held key and of another one (I1, I2).
///
/// Fails if the child's version comes from one parent only, or if only one parent is frozen.
#[test]
fn a_grant_survives_a_shrinking_move() {
    model(|| {
        let table = sized(2);
        let (mut a, mut b) = (local(&table, 1), local(&table, 1));
        let held = table.grant(&mut a, &ask(&table, 1, 10)).expect("free");
        start_resize(&table, 1);
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            other.help_resize(&mut b, 1);
            b
        });
        let refused = table.grant(&mut a, &ask(&table, 1, 20));
        assert!(matches!(refused, Err(Refused::Held { token, .. }) if token == held.token));
        let another = table.grant(&mut a, &ask(&table, 2, 20)).expect("free");
        let mut b = thread.join().unwrap();
        table.help_resize(&mut a, 1);
        assert!(table.validate(&mut b, &name(&table, 1, held.token)).is_ok());
        assert!(
            table
                .validate(&mut b, &name(&table, 2, another.token))
                .is_ok()
        );
        table
            .release_by_key(&mut b, &name(&table, 1, held.token))
            .expect("held");
        let next = table.grant(&mut b, &ask(&table, 1, 20)).expect("free");
        assert!(next.token > held.token);
        assert_cells_are_disjoint(&table, &mut [&mut a, &mut b]);
    });
}

/// Rebuild in place against a revocation: exactly one end, and nothing is brought back (I4).
///
/// Fails if a killed cell is copied as a live one.
#[test]
fn a_revocation_survives_a_rebuild() {
    model(|| {
        let table = table();
        let (mut a, mut b) = (local(&table, 1), local(&table, 1));
        table.grant(&mut a, &ask(&table, 1, 10)).expect("free");
        table.grant(&mut a, &ask(&table, 2, 10)).expect("free");
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            assert!(other.shed_dead(&mut b, other.hash(key(1))));
            b
        });
        assert!(table.revoke(&mut a, key(1), table.hash(key(1))).is_ok());
        let mut b = thread.join().unwrap();
        assert!(table.find(&mut a, key(1), table.hash(key(1))).is_err());
        assert!(table.find(&mut b, key(2), table.hash(key(2))).is_ok());
        assert_eq!(leases(&[&a, &b]), 1);
        assert_cells_are_disjoint(&table, &mut [&mut a, &mut b]);
    });
}

/// Two killers of a deeper cell, and a grant that skips it: one report.
///
/// Fails if a skipper frees a killed cell without burying it, or a finisher reports without its CAS.
#[test]
fn a_skipped_kill_is_reported_once() {
    model(|| {
        let table = table();
        let (mut a, mut b) = (local(&table, 10), local(&table, 10));
        table.grant(&mut a, &ask(&table, 1, 11)).expect("free");
        let top = table.grant(&mut a, &ask(&table, 2, 20)).expect("free");
        let hash = table.hash(key(1));
        let found = table.find(&mut a, key(1), hash).expect("held");
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            other.kill(&mut b, hash, found.cell, found.state, KILLED_EXPIRED);
            b
        });
        let revoked = table.kill(&mut a, hash, found.cell, found.state, KILLED_REVOKED);
        table
            .release(&mut a, top.handle, &name(&table, 2, top.token))
            .expect("held");
        let mut b = thread.join().unwrap();
        assert_eq!(leases(&[&a, &b]), 0);
        assert_eq!(expired(&[&a, &b]), u64::from(!revoked));
        assert_cells_are_disjoint(&table, &mut [&mut a, &mut b]);
    });
}
