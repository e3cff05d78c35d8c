//! Rules 2 to 6: how a lease ends, and who reports it.

use super::super::cell::{KILLED_EXPIRED, KILLED_REVOKED};
use super::*;

/// Renew against theft: the renewer, whose clock still says that the lease is live, and a thief, whose
/// clock says that it is over. If the renewal succeeds, nobody else has the key (I4, I5).
///
/// Fails if the thief unlinks without killing the state first, or if a renewal stores the state
/// instead of changing exactly the one that it read.
#[test]
fn a_renewal_and_a_theft_never_both_succeed() {
    model(5, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 9), Hand::new(&table, path, 10));
        let held = a.lease(1, 10);
        let other = spawn(b, |b| b.grant(1, 20));
        let renewed = a.renew(&held, 30);
        let (stolen, mut b) = other.join().unwrap();
        assert_ne!(renewed.is_ok(), stolen.is_ok(), "{renewed:?} {stolen:?}");
        let stolen = u64::from(stolen.is_ok());
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(1, stolen, 0));
    });
}

/// Two renewals on clocks a tick apart: once one has been told that the lease is over, no other
/// succeeds (I5).
///
/// Fails if "expired" is said without killing the lease.
#[test]
fn no_renewal_succeeds_after_another_found_the_lease_over() {
    model(5, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 9), Hand::new(&table, path, 10));
        let held = a.lease(1, 10);
        let other = spawn(b, move |b| b.renew(&held, 20).map(|(deadline, _)| deadline));
        let early = a.renew(&held, 30).map(|(deadline, _)| deadline);
        let (late, mut b) = other.join().unwrap();
        assert_eq!(late.is_ok(), early.is_ok(), "{early:?} {late:?}");
        let over = u64::from(late.is_err());
        let left = 1 - i64::from(late.is_err());
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(left, over, 0));
    });
}

/// Release against expiry by the wheel: exactly one reports the end.
///
/// Fails if a killed cell that stands first in its bucket is reported and not unlinked, or unlinked and
/// not reported, or if a release unlinks by a store.
#[test]
fn of_a_release_and_an_expiry_exactly_one_reports() {
    model(6, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 9), Hand::new(&table, path, 10));
        let held = a.lease(1, 10);
        let other = spawn(b, move |b| {
            let looked = b.look(&held);
            // Unlinked by the releaser, and not `DEAD` yet: the wheel comes back.
            assert!(matches!(looked, Look::Nothing | Look::At(11)), "{looked:?}");
        });
        let released = a.release(&held);
        let ((), mut b) = other.join().unwrap();
        assert!(a.validate(&held).is_err());
        let Totals {
            leases, expired, ..
        } = settle(&mut [&mut a, &mut b]);
        assert_eq!(leases, 0);
        // The release may be the one that counts even if the wheel has killed the state.
        assert!(expired <= 1);
        assert!(released.is_ok() || expired == 1);
    });
}

/// The same, with a live lease behind the one that ends.
///
/// Fails if a release unlinks more than its own cell and the dead ones behind it: in the full rules, or
/// in `release_fast` without the look at `next`.
#[test]
fn the_lease_behind_a_release_and_an_expiry_stays() {
    model(4, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 9), Hand::new(&table, path, 10));
        let behind = a.lease(2, 20);
        let held = a.lease(1, 10);
        let other = spawn(b, move |b| b.look(&held));
        let _ = a.release(&held);
        let (_, mut b) = other.join().unwrap();
        assert_eq!(b.validate(&behind), Ok(20));
        assert_eq!(settle(&mut [&mut a, &mut b]).leases, 1);
    });
}

/// Release against a revocation: who was told that the lease is gone does not hear that he has given it
/// back (I4).
///
/// Fails if `release_fast` does not look at the state.
#[test]
fn no_release_succeeds_after_the_lease_was_seen_to_be_gone() {
    model(4, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 1), Hand::new(&table, path, 1));
        let held = a.lease(1, 10);
        let other = spawn(b, move |b| {
            let gone = b.validate(&held).is_err();
            (gone, b.release(&held))
        });
        let revoked = a.revoke(1).is_ok();
        let ((gone, released), mut b) = other.join().unwrap();
        assert!(!gone || released == Err(Ended::Expired), "{released:?}");
        assert!(released.is_ok() || revoked);
        let totals = settle(&mut [&mut a, &mut b]);
        assert_eq!(totals.leases, 0);
        assert!(totals.revoked <= 1);
    });
}

/// Release of a first cell against a push on top of it: the released one is gone, the pushed one
/// stays (I6).
///
/// Fails if a release unlinks by a store, or frees a cell that it has only killed.
#[test]
fn a_release_races_a_push_on_top() {
    model(6, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 1), Hand::new(&table, path, 1));
        let held = a.lease(1, 10);
        let other = spawn(b, |b| b.lease(2, 10));
        assert_eq!(a.release(&held), Ok(()));
        let (pushed, mut b) = other.join().unwrap();
        assert_eq!(a.validate(&pushed), Ok(10));
        assert_eq!(a.validate(&held), Err(Ended::Expired));
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(1, 0, 0));
    });
}

/// Two releases of one grant, the guard's and one by an operator who knows its token: the lease ends,
/// and is reported once.
///
/// Fails if a release unlinks by a store, or if a killer unlinks without reporting.
#[test]
fn two_releases_end_a_lease_once() {
    model(6, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 1), Hand::new(&table, path, 1));
        let held = a.lease(1, 10);
        let other = spawn(b, move |b| {
            let name = b.name(&held);
            b.table.release_by_key(&mut b.local, &name)
        });
        let first = a.release(&held);
        let (second, mut b) = other.join().unwrap();
        // Both may be told so: rule 2 unlinks a first cell even if it was killed meanwhile.
        assert!(first.is_ok() || second.is_ok());
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(0, 0, 0));
    });
}

/// Two killers of a deeper cell, and a release that skips it: one report.
///
/// Fails if a skipper frees a killed cell without burying it, or if a finisher reports without its
/// CAS.
#[test]
fn a_skipped_kill_is_reported_once() {
    model(5, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 10), Hand::new(&table, path, 10));
        let deep = a.lease(1, 11);
        let top = a.lease(2, 20);
        let hash = a.name(&deep).hash;
        let found = table.find(&mut a.local, Key::from_raw(1), hash).unwrap();
        let other = spawn(b, move |b| {
            let Hand { table, local, .. } = b;
            table.kill(local, hash, found.cell, found.state, KILLED_EXPIRED)
        });
        let revoked = table.kill(&mut a.local, hash, found.cell, found.state, KILLED_REVOKED);
        a.release(&top).expect("held");
        let (expired, mut b) = other.join().unwrap();
        assert_ne!(expired, revoked);
        let ended = totals(0, u64::from(expired), u64::from(revoked));
        assert_eq!(settle(&mut [&mut a, &mut b]), ended);
    });
}

/// Expiry of a deeper cell against a grant that skips it: one report.
///
/// Fails if a skipper frees a killed cell without burying it.
#[test]
fn an_expiry_races_a_grant_that_skips_the_cell() {
    model(5, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 10), Hand::new(&table, path, 9));
        let deep = a.lease(1, 10);
        let top = a.lease(2, 20);
        a.release(&top).expect("held");
        let other = spawn(b, |b| b.lease(3, 20));
        assert_eq!(a.look(&deep), Look::Nothing);
        let (pushed, mut b) = other.join().unwrap();
        assert_eq!(b.release(&pushed), Ok(()));
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(0, 1, 0));
    });
}

/// Release of a cell that has just come first, because this thread or another released the one on top,
/// against its expiry as a deeper one: one report.
///
/// Fails if a release loads the state before the bucket, without the fence of `state_in_order`, or
/// without the fences between a killer's CAS on the state and its loads of the bucket. (For loom a fence
/// is no step of its own, so what it explores depends on who starts whom: with the releaser in the
/// first thread, the missing fences go unnoticed.)
#[test]
fn an_expiry_of_a_deep_cell_races_the_release_that_finds_it_first() {
    model(3, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 9), Hand::new(&table, path, 10));
        let mut c = Hand::new(&table, path, 9);
        let deep = a.lease(1, 10);
        let top = c.lease(2, 20);
        let wheel = spawn(b, move |b| b.look(&deep));
        let holder = spawn(a, move |a| a.release(&deep));
        assert_eq!(c.release(&top), Ok(()));
        let (_, mut b) = wheel.join().unwrap();
        let (released, mut a) = holder.join().unwrap();
        let ended = settle(&mut [&mut a, &mut b, &mut c]);
        assert_eq!(ended.leases, 0);
        assert!(released.is_ok() || ended.expired == 1);
    });
}

/// The same, by one thread that releases both.
///
/// Fails without the fences between a killer's CAS on the state and its loads of the bucket: that of
/// `Cell::change` and that of `load_in_order` stand in for each other.
#[test]
fn an_expiry_of_a_deep_cell_races_the_releases_of_both() {
    model(4, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 9), Hand::new(&table, path, 10));
        let deep = a.lease(1, 10);
        let top = a.lease(2, 20);
        let wheel = spawn(b, move |b| b.look(&deep));
        assert_eq!(a.release(&top), Ok(()));
        let released = a.release(&deep);
        let (_, mut b) = wheel.join().unwrap();
        let ended = settle(&mut [&mut a, &mut b]);
        assert_eq!(ended.leases, 0);
        assert!(released.is_ok() || ended.expired == 1);
    });
}

/// Release of a first cell while the one behind it is revoked and its key granted again.
///
/// Fails if a release by the word of the grant unlinks what is behind its cell.
#[test]
fn a_release_races_the_end_of_the_lease_behind_it() {
    model(4, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 1), Hand::new(&table, path, 1));
        let behind = a.lease(1, 10);
        let held = a.lease(2, 10);
        let other = spawn(b, |b| (b.revoke(1).is_ok(), b.lease(1, 20)));
        assert_eq!(a.release(&held), Ok(()));
        let ((revoked, again), mut b) = other.join().unwrap();
        assert!(revoked && again.token > behind.token);
        assert_eq!(a.validate(&again), Ok(20));
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(1, 0, 1));
    });
}

/// Both leases of a bucket are released and granted again.
///
/// Fails if a release by the word of the grant unlinks what is behind its cell.
#[test]
fn two_releases_in_one_bucket_and_two_grants() {
    model(3, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 1), Hand::new(&table, path, 1));
        let behind = a.lease(1, 10);
        let held = a.lease(2, 10);
        let other = spawn(b, move |b| {
            assert_eq!(b.release(&behind), Ok(()));
            b.lease(1, 20)
        });
        assert_eq!(a.release(&held), Ok(()));
        let again = a.lease(2, 30);
        let (low, mut b) = other.join().unwrap();
        assert_eq!(a.validate(&low), Ok(20));
        assert_eq!(b.validate(&again), Ok(30));
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(2, 0, 0));
    });
}
