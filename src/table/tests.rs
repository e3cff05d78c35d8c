//! The table with narrow words, where every wrap is near; one thread, the clock set by hand.

mod allowance;
mod cells;
mod locals;
mod resizes;
mod short_paths;
mod walks;
mod words;

use super::*;
use crate::key::HashSeed;

type Small = Table<Narrow>;

struct Bench {
    table: Small,
    local: Local,
}

impl Bench {
    fn new(buckets: usize) -> Self {
        let table = Table::new(buckets, BucketHasher::new(&HashSeed::new(1))).expect("memory");
        let local = table.local(Arc::new(Counters::default()));
        Self { table, local }
    }

    fn name(&self, key: u128, token: u64) -> Name {
        let key = crate::Key::from_raw(key);
        Name {
            key,
            hash: self.table.hash(key),
            token,
        }
    }

    fn grant_at_least(&mut self, key: u128, ttl: u64, at_least: u64) -> Result<Granted, Refused> {
        let name = self.name(key, 0);
        let ask = Ask {
            key: name.key,
            hash: name.hash,
            owner: 1,
            deadline: self.local.now + ttl,
            at_least,
            admitted: false,
        };
        self.table.grant(&mut self.local, &ask)
    }

    fn grant(&mut self, key: u128, ttl: u64) -> Granted {
        self.grant_at_least(key, ttl, 0).expect("free")
    }

    fn release(&mut self, key: u128, granted: Granted) -> Result<(), Ended> {
        let name = self.name(key, granted.token);
        self.table.release(&mut self.local, granted.handle, &name)
    }

    fn renew(&mut self, key: u128, granted: &mut Granted, ttl: u64) -> Result<u64, Unrenewed> {
        let name = self.name(key, granted.token);
        let deadline = self.local.now + ttl;
        let (deadline, handle) =
            self.table
                .renew(&mut self.local, granted.handle, &name, deadline)?;
        granted.handle = handle;
        Ok(deadline)
    }

    fn leases(&self) -> i64 {
        self.local.counters.leases()
    }

    fn finish_resize(&mut self) {
        while self.table.wants_resize() {
            self.table.keep_sized(&mut self.local);
        }
    }
}

#[test]
fn tokens_rise_across_many_version_wraps() {
    let mut bench = Bench::new(4);
    let mut last = [0; 3];
    for round in 0..20_000 {
        let key = round % 3;
        let granted = bench.grant(key as u128, 10);
        assert!(
            granted.token > last[key],
            "I2: {} after {}",
            granted.token,
            last[key]
        );
        last[key] = granted.token;
        assert_eq!(bench.release(key as u128, granted), Ok(()));
    }
    assert!(last[0] > 20_000 / 3);
    assert!(
        bench.table.newest().base > 0,
        "no version ever came near its end"
    );
}

#[test]
fn leases_and_their_handles_outlive_a_version_wrap() {
    let mut bench = Bench::new(1);
    let mut held = bench.grant(1, 400);
    for _ in 0..1_000 {
        let other = bench.grant(2, 10);
        assert!(matches!(
            bench.grant_at_least(1, 10, 0),
            Err(Refused::Held { .. })
        ));
        bench.release(2, other).expect("held");
    }
    assert_eq!(bench.renew(1, &mut held, 450), Ok(450));
    assert_eq!(bench.release(1, held), Ok(()));
    assert_eq!(bench.leases(), 0);
}

#[test]
fn an_old_handle_is_refused_after_the_life_has_wrapped() {
    let mut bench = Bench::new(1);
    let old = bench.grant(1, 10);
    bench.release(1, old).expect("held");
    // A life later than any number of bits can tell apart: the same cell, the same life.
    let mut same = 0;
    for _ in 0..(1 << Narrow::LIFE_BITS) + 2 {
        let granted = bench.grant(1, 10);
        if granted.handle == old.handle {
            same += 1;
            assert_eq!(bench.release(1, old), Err(Ended::Expired), "I6");
            let name = bench.name(1, old.token);
            assert!(
                bench
                    .table
                    .renew(&mut bench.local, old.handle, &name, 20)
                    .is_err()
            );
        }
        assert_eq!(bench.release(1, granted), Ok(()));
    }
    assert!(same > 0, "the life never wrapped");
}

#[test]
fn a_lease_renewed_through_many_eras_keeps_its_deadline_and_token() {
    let mut bench = Bench::new(4);
    let mut held = bench.grant(1, Narrow::MAX_TTL);
    for step in 0..200 {
        bench.local.now += 100 + step % 7;
        let expect = bench.local.now + Narrow::MAX_TTL;
        assert_eq!(bench.renew(1, &mut held, Narrow::MAX_TTL), Ok(expect), "I5");
        let name = bench.name(1, held.token);
        let found = bench.table.validate(&mut bench.local, &name).expect("live");
        assert_eq!(found.contents.deadline, expect);
    }
    assert!(bench.local.now > 20 << Narrow::ERA_SHIFT);
    assert_eq!(bench.leases(), 1);
    bench.local.now += Narrow::MAX_TTL;
    assert!(bench.renew(1, &mut held, 10).is_err(), "I4");
    assert_eq!(bench.leases(), 0);
}

#[test]
fn a_jump_of_tokens_is_granted_exactly_and_raises_every_later_one() {
    let mut bench = Bench::new(4);
    let mut floor = 1;
    for jump in [1, 5, 239, 240, 241, 256, 1 << 20, 1 << 40, (1 << 62) + 3] {
        floor += jump;
        let granted = bench.grant_at_least(1, 10, floor).expect("free");
        assert_eq!(granted.token, floor);
        bench.release(1, granted).expect("held");
        let next = bench.grant(1, 10);
        assert!(next.token > floor);
        floor = next.token;
        bench.release(1, next).expect("held");
    }
}

#[test]
fn the_last_token_is_granted_once_and_then_none() {
    let mut bench = Bench::new(2);
    let last = bench.grant_at_least(1, 10, MAX_TOKEN).expect("free");
    assert_eq!(last.token, MAX_TOKEN);
    bench.release(1, last).expect("held");
    let refused = bench.grant_at_least(1, 10, 0).err();
    assert_eq!(
        refused,
        Some(Refused::NoToken {
            wanted: MAX_TOKEN + 1
        })
    );
    assert_eq!(bench.leases(), 0);
    let again = bench.grant_at_least(1, 10, MAX_TOKEN).err();
    assert!(matches!(again, Some(Refused::NoToken { .. })));
}

#[test]
fn dead_cells_behind_a_live_one_do_not_pile_up() {
    let mut bench = Bench::new(1);
    let mut held = bench.grant(1, 100);
    for round in 0..2_000u128 {
        // Always one lease on top when the other is released.
        let next = bench.grant(2 + round % 2, 100);
        let key = if round == 0 { 1 } else { 2 + (round + 1) % 2 };
        assert_eq!(bench.release(key, held), Ok(()));
        held = next;
    }
    assert!(
        bench.table.slab.used() < 200,
        "{} cells for two leases",
        bench.table.slab.used()
    );
    assert_eq!(bench.leases(), 1);
}

#[test]
fn growing_and_shrinking_lose_no_lease_and_no_token() {
    let mut bench = Bench::new(2);
    let mut highest = vec![0; 3_000];
    for round in 0..3 {
        let mut held = Vec::new();
        for key in 0..3_000u128 {
            let granted = bench.grant(key, 500);
            assert!(granted.token > highest[key as usize], "I2 in round {round}");
            highest[key as usize] = granted.token;
            held.push(granted);
        }
        assert!(bench.table.size().0 >= 3_000, "{:?}", bench.table.size());
        for key in 0..3_000u128 {
            let name = bench.name(key, held[key as usize].token);
            assert!(
                bench.table.validate(&mut bench.local, &name).is_ok(),
                "I1: {key} is lost"
            );
            assert!(matches!(
                bench.grant_at_least(key, 1, 0),
                Err(Refused::Held { .. })
            ));
        }
        for (key, granted) in held.into_iter().enumerate() {
            assert_eq!(bench.release(key as u128, granted), Ok(()));
        }
        bench.finish_resize();
        assert_eq!(bench.leases(), 0);
        assert!(bench.table.size().0 <= 2_048, "{:?}", bench.table.size());
    }
    assert!(
        bench.table.slab.used() < 8_000,
        "I9: {} cells",
        bench.table.slab.used()
    );
}

#[test]
fn a_walk_over_all_leases_sees_each_once_while_the_table_changes_size() {
    let mut bench = Bench::new(2);
    for key in 0..500 {
        bench.grant(key, 500);
    }
    let bits = bench.table.size().0.ilog2();
    let mut seen = Vec::new();
    let mut found = Vec::new();
    for class in 0..1 << bits {
        bench
            .table
            .collect(&mut bench.local, class, bits, &mut found);
        seen.extend(
            found
                .iter()
                .map(|lease| lease.key.as_raw())
                .filter(|&key| key < 500),
        );
        // Grow, and start to move, in the middle of it.
        if class == 1 << (bits - 1) {
            for key in 500..1_500 {
                bench.grant(key, 500);
            }
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..500).collect::<Vec<u128>>());
}

#[test]
fn the_wheels_look_ends_what_is_over_and_spares_the_rest() {
    let mut bench = Bench::new(1);
    let first = bench.grant(1, 10);
    let second = bench.grant(2, 20);
    assert_eq!(
        bench.table.look(&mut bench.local, first.handle.cell()),
        Look::At(10)
    );
    bench.local.now = 10;
    assert_eq!(
        bench.table.look(&mut bench.local, first.handle.cell()),
        Look::Nothing
    );
    assert_eq!(
        bench.table.look(&mut bench.local, second.handle.cell()),
        Look::At(20)
    );
    assert_eq!(bench.leases(), 1);
    // A cell that is filled in and not published is not ended, however old.
    let private = bench.local.free.pop().expect("a cell");
    let contents = Contents {
        key: crate::Key::from_raw(3),
        token: 1,
        owner: 1,
        deadline: 5,
    };
    bench.table.cell(private).prepare::<Narrow>(&contents, 0);
    assert_eq!(bench.table.look(&mut bench.local, private), Look::At(11));
    assert_eq!(bench.leases(), 1);
}

#[test]
fn a_table_without_cells_still_says_who_holds_the_key() {
    let mut bench = Bench::new(64);
    let mut keys = 0;
    let full = loop {
        match bench.grant_at_least(keys, 500, 0) {
            Ok(_) => keys += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!(full, Refused::NoCell);
    let most = Narrow::MAX_LEASES;
    let fitted = keys as usize;
    assert!(
        fitted <= most && fitted > most - 100,
        "{fitted} leases fitted"
    );
    assert!(matches!(
        bench.grant_at_least(0, 1, 0),
        Err(Refused::Held { .. })
    ));
}

/// A release sees that others wait, wherever in the chain behind it their mark stands (I7).
#[test]
fn a_release_notices_a_mark_however_deep_it_stands() {
    for between in 0..6 {
        let mut bench = Bench::new(1);
        let before = bench.grant(1, 10);
        let name = bench.name(1, 0);
        let marked = bench.table.put_mark(&mut bench.local, name.key, name.hash);
        assert_eq!(marked, Marked::Yes);
        for key in 0..between {
            bench.grant(2 + key, 10);
        }
        assert_eq!(bench.release(1, before), Ok(()));
        assert!(!std::mem::take(&mut bench.local.notes).is_empty());
        assert_eq!(bench.grant_at_least(1, 10, 0).err(), Some(Refused::Marked));
        let head = Ask {
            key: name.key,
            hash: name.hash,
            owner: 1,
            deadline: 10,
            at_least: 0,
            admitted: true,
        };
        let head = bench
            .table
            .grant(&mut bench.local, &head)
            .expect("kept for it");
        let local = &mut bench.local;
        assert!(!bench.table.release_fast(local, head.handle, head.token));
        assert!(!bench.table.release_beside(local, head.handle, head.token));
        assert_eq!(bench.release(1, head), Ok(()));
        assert!(!bench.local.notes.is_empty(), "{between} leases between");
    }
}

/// The word of a grant means something in its own array only; the long way finds the lease in any.
#[test]
fn a_release_by_the_word_of_the_grant_fails_in_every_other_array() {
    for buckets in [1, 2, 4] {
        let mut bench = Bench::new(2);
        let mut late = bench.table.local(Arc::new(Counters::default()));
        let (old, held) = (bench.grant(1, 10), bench.grant(2, 10));
        assert!(bench.table.resize(&bench.table.newest(), buckets));
        bench.table.help_resize(&mut bench.local, 64);
        bench.local.array = bench.table.newest();
        let new = bench.grant(3, 10);
        let fast = |local: &mut Local, granted: &Granted| {
            bench
                .table
                .release_fast(local, granted.handle, granted.token)
        };
        assert!(!fast(&mut bench.local, &old), "moved on, to {buckets}");
        assert!(!fast(&mut late, &old), "its bucket is done");
        assert!(!fast(&mut late, &new), "granted after that array");
        assert!(fast(&mut bench.local, &new) || bench.release(3, new).is_ok());
        for (key, granted) in [(1, old), (2, held)] {
            assert_eq!(bench.release(key, granted), Ok(()), "to {buckets}");
        }
    }
}

/// Shrinking brings together leases of different keys with the same token; then a copy may stand in
/// the cell that an old handle of the other key points to.
#[test]
fn a_late_release_spares_another_keys_lease_with_the_same_token() {
    let mut bench = Bench::new(2);
    let in_bucket = |bench: &Bench, bucket| {
        let is_there = |&key: &u128| bench.name(key, 0).hash & 1 == bucket;
        (0..1_000).find(is_there).expect("keys of both buckets")
    };
    let (a, b) = (in_bucket(&bench, 0), in_bucket(&bench, 1));
    let (late, other) = (bench.grant(a, 10), bench.grant(b, 400));
    assert_eq!(late.token, other.token);
    assert!(bench.table.resize(&bench.table.newest(), 1));
    bench.table.help_resize(&mut bench.local, 64);
    bench.local.now = 20;
    let (late_name, other_name) = (bench.name(a, late.token), bench.name(b, other.token));
    let expired = bench.table.release_by_key(&mut bench.local, &late_name);
    assert_eq!(expired, Err(Ended::Expired));
    // Other keys take the younger free cells, and the bucket is copied once more.
    while bench.local.free.peek() != Some(late.handle.cell()) {
        bench.local.free.pop().expect("the old cell is free");
    }
    bench.local.array = bench.table.newest();
    assert!(bench.table.shed_dead(&mut bench.local, other_name.hash));
    let found = bench
        .table
        .validate(&mut bench.local, &other_name)
        .expect("live");
    assert_eq!(found.cell, late.handle.cell(), "the cell is used again");
    let released = bench
        .table
        .release_fast(&mut bench.local, late.handle, late.token);
    assert!(!released, "I6");
    assert!(
        bench.table.validate(&mut bench.local, &other_name).is_ok(),
        "I3"
    );
}

#[test]
fn who_was_told_that_a_lease_is_over_never_sees_it_renewed() {
    let mut bench = Bench::new(2);
    let mut held = bench.grant(1, 10);
    let name = bench.name(1, held.token);
    // A renewal has read the clock at 5, and its thread sleeps until 20 has been seen.
    bench.local.now = 20;
    let told = bench.table.validate(&mut bench.local, &name).err();
    assert_eq!(told, Some(Ended::Expired));
    bench.local.now = 5;
    assert!(bench.renew(1, &mut held, 100).is_err(), "I4");
}

#[test]
fn a_full_table_can_still_be_moved() {
    let mut bench = Bench::new(2);
    let full = (0..1 << 17).find(|&key| bench.grant_at_least(key, 400, 0).is_err());
    let full = full.expect("the table is full at some point");
    bench.finish_resize();
    // A jump of tokens copies every lease.
    let name = bench.name(1, 0);
    let found = bench
        .table
        .find(&mut bench.local, name.key, name.hash)
        .expect("held");
    let held = bench.name(1, found.contents.token);
    assert_eq!(bench.table.release_by_key(&mut bench.local, &held), Ok(()));
    let far = bench.table.newest().base + 100_000;
    assert_eq!(bench.grant_at_least(1, 400, far).expect("free").token, far);
    bench.finish_resize();
    assert_eq!(bench.leases(), i64::try_from(full).expect("small"));
}

/// A bucket that grows is frozen as a whole, and moved one child at a time.
#[test]
fn a_lease_whose_child_bucket_has_not_moved_yet_is_still_watched() {
    let mut bench = Bench::new(1);
    let child = |bench: &Bench, key| bench.name(key, 0).hash & 1;
    let key_of = |bench: &Bench, wanted| (0..1_000).find(|&key| child(bench, key) == wanted);
    let moved = key_of(&bench, 0).expect("keys of both children");
    let left = key_of(&bench, 1).expect("keys of both children");
    let granted = bench.grant(left, 10);
    assert!(bench.table.resize(&bench.table.newest(), 2));
    bench.local.array = bench.table.newest();
    bench.grant(moved, 100);
    bench.local.now = 10;
    let looked = bench.table.look(&mut bench.local, granted.handle.cell());
    assert_eq!(looked, Look::Nothing);
    let copies = std::mem::take(&mut bench.local.moved);
    assert_eq!(copies.len(), 1, "the copy has to be watched");
    assert_eq!(
        bench.table.look(&mut bench.local, copies[0].cell),
        Look::Nothing
    );
    assert_eq!(bench.leases(), 1, "I8");
}
