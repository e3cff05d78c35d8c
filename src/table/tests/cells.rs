//! Rules 6, C and J: no cell is lost, none is anybody's twice, and none that is free looks like a lease.

use super::super::bucket::{DONE, FROZEN, NORMAL};
use super::super::cell::{DEAD, KILLED_EXPIRED};
use super::super::grant::Walk;
use super::super::local::KEPT;
use super::*;
use crate::sync::Ordering;

/// Has the round done so often that a cell lost in each would be missed, and says how many cells were in use
/// before and after.
fn cells_of_rounds(bench: &mut Bench, mut round: impl FnMut(&mut Bench)) -> (usize, usize) {
    let mut some = |bench: &mut Bench| {
        for _ in 0..100 {
            // Else the table would grow with them, and each key have a bucket of its own.
            bench.table.handed.store(0, Ordering::Relaxed);
            round(bench);
        }
        bench.table.cells()
    };
    (some(bench), some(bench))
}

fn assert_none_lost(round: impl FnMut(&mut Bench)) {
    let mut bench = Bench::new(1);
    let (before, after) = cells_of_rounds(&mut bench, round);
    assert_eq!(after, before, "cells are lost");
    assert_eq!(bench.leases(), 0);
}

/// Two dead cells behind a live one.
fn one_on_two_dead(bench: &mut Bench) -> Granted {
    let (one, two) = (bench.grant(1, 10), bench.grant(2, 10));
    let top = bench.grant(3, 10);
    assert_eq!(bench.release(1, one), Ok(()));
    assert_eq!(bench.release(2, two), Ok(()));
    top
}

#[test]
fn whoever_unlinks_the_first_cell_frees_the_dead_ones_behind_it() {
    assert_none_lost(|bench| {
        let top = one_on_two_dead(bench);
        assert_eq!(bench.release(3, top), Ok(()));
    });
    assert_none_lost(|bench| {
        let top = one_on_two_dead(bench);
        let name = bench.name(3, top.token);
        let released = bench.table.release_by_key(&mut bench.local, &name);
        assert_eq!(released, Ok(()));
    });
    assert_none_lost(|bench| {
        let top = one_on_two_dead(bench);
        bench.local.now += 10;
        let looked = bench.table.look(&mut bench.local, top.handle.cell());
        assert_eq!(looked, Look::Nothing);
    });
}

/// Somebody has killed it, and is slow to unlink it.
#[test]
fn whoever_is_granted_a_token_frees_the_dead_cells_before_the_first_live_one() {
    assert_none_lost(|bench| {
        let below = bench.grant(1, 10);
        let first = bench.grant(2, 10);
        let cell = bench.table.cell(first.handle.cell());
        cell.set_state(cell.state::<Narrow>().with_tag(DEAD));
        bench.local.counters.add_end();
        let next = bench.grant(2, 10);
        let cell = bench.table.cell(next.handle.cell());
        cell.set_state(cell.state::<Narrow>().with_tag(DEAD));
        bench.local.counters.add_end();
        let name = bench.name(2, 0);
        let ask = Ask {
            key: name.key,
            hash: name.hash,
            owner: 1,
            deadline: bench.local.now + 10,
            at_least: 0,
            admitted: true,
        };
        let issued = bench.table.issue(&mut bench.local, &ask, false);
        assert!(issued.is_ok_and(|token| token > next.token));
        assert_eq!(bench.release(1, below), Ok(()));
    });
}

#[test]
fn whoever_takes_a_mark_away_frees_the_dead_cells_behind_it() {
    assert_none_lost(|bench| {
        let (below, held) = (bench.grant(2, 10), bench.grant(1, 10));
        let name = bench.name(1, 0);
        let marked = bench.table.put_mark(&mut bench.local, name.key, name.hash);
        assert_eq!(marked, Marked::Yes);
        assert_eq!(bench.release(1, held), Ok(()));
        assert_eq!(bench.release(2, below), Ok(()));
        bench.table.take_mark(&mut bench.local, name.key, name.hash);
        bench.local.notes.clear();
    });
}

#[test]
fn a_timer_that_is_stopped_is_no_timer_and_gives_its_cell_back() {
    assert_none_lost(|bench| {
        let due = Due::Session(1);
        let timer = bench.table.timer(&mut bench.local, due, 10);
        let (at, _) = timer.expect("a cell");
        bench.table.stop_timer(&mut bench.local, at);
        bench.local.now = 20;
        let looked = bench.table.look(&mut bench.local, at);
        assert_eq!(looked, Look::Nothing);
        assert!(bench.local.due.is_empty());
        bench.local.now = 0;
    });
}

#[test]
fn whoever_is_refused_gives_its_cell_back() {
    assert_none_lost(|bench| {
        let held = bench.grant(1, 10);
        let refused = bench.grant_at_least(1, 10, 0).err();
        assert!(matches!(refused, Some(Refused::Held { .. })));
        let refused = bench.grant_at_least(2, 10, MAX_TOKEN + 1).err();
        assert!(matches!(refused, Some(Refused::NoToken { .. })));
        let name = bench.name(2, 0);
        let marked = bench.table.put_mark(&mut bench.local, name.key, name.hash);
        assert_eq!(marked, Marked::Free);
        assert_eq!(bench.release(1, held), Ok(()));
    });
}

/// Rule C: the wheel may look at it.
#[test]
fn a_cell_that_was_filled_in_for_nothing_is_free_and_dead() {
    let mut bench = Bench::new(1);
    bench.grant(1, 10);
    let contents = Contents {
        key: crate::Key::from_raw(7),
        token: 9,
        owner: 1,
        deadline: 5,
    };
    let next = bench.local.free.peek().expect("a cell");
    bench.table.cell(next).prepare::<Narrow>(&contents, 0);
    bench.table.unfill_next(&bench.local);
    assert_eq!(bench.table.cell(next).state::<Narrow>().tag(), DEAD);
    let taken = bench.local.free.pop().expect("a cell");
    bench.table.cell(taken).prepare::<Narrow>(&contents, 0);
    bench.table.unprepare(&mut bench.local, taken);
    assert_eq!(bench.local.free.peek(), Some(taken), "it is given back");
    let looked = bench.table.look(&mut bench.local, taken);
    assert_eq!(looked, Look::Nothing);
}

#[test]
fn what_one_thread_gives_back_another_takes() {
    const LEASES: u128 = 1_000;
    let mut bench = Bench::new(8_192);
    let mut cells = 0;
    for round in 0..10 {
        let held: Vec<_> = (0..LEASES).map(|key| bench.grant(key, 10)).collect();
        for (key, granted) in held.into_iter().enumerate() {
            assert_eq!(bench.release(key as u128, granted), Ok(()));
        }
        assert!(std::mem::take(&mut bench.local.spilled));
        if round == 0 {
            cells = bench.table.cells();
        }
        // Another thread, which keeps as many as any.
        while bench.table.spill(&mut bench.local) {}
        assert_eq!(bench.local.free.peek(), None);
        assert_eq!(bench.table.handed.load(Ordering::Relaxed), 0);
        bench.local = bench.table.local(Arc::clone(&bench.local.counters));
    }
    assert_eq!(bench.table.cells(), cells);
    assert!(cells < LEASES as usize + KEPT);
}

/// A head that came back would let a thread pop a batch that is another one by now.
#[test]
fn no_head_of_the_store_of_free_cells_comes_back() {
    let mut bench = Bench::new(1);
    let head = |bench: &Bench| bench.table.free.load(Ordering::Relaxed);
    let mut heads = vec![head(&bench)];
    let first = bench.table.refill(&mut bench.local).expect("a fresh cell");
    bench.table.give_cell(&mut bench.local, first);
    for _ in 0..100 {
        assert!(bench.table.spill(&mut bench.local));
        assert!(!bench.table.spill(&mut bench.local), "all are in one batch");
        heads.push(head(&bench));
        let popped = bench.table.refill(&mut bench.local).expect("a batch");
        bench.table.give_cell(&mut bench.local, popped);
        assert_eq!(head(&bench) as u32, 0, "there was one batch");
        heads.push(head(&bench));
    }
    assert!(heads.windows(2).all(|pair| pair[0] >> 32 < pair[1] >> 32));
}

/// Rule 12.
#[test]
fn a_bucket_is_crowded_by_more_dead_cells_than_live_ones_and_four() {
    for (live, marks) in [(1, 0), (2, 0), (2, 1), (3, 1)] {
        // Not so many that the table would grow.
        for dead in 0..11 {
            let mut bench = Bench::new(1);
            let over: Vec<_> = (0..dead).map(|key| bench.grant(key, 10)).collect();
            for key in 100..100 + live {
                bench.grant(key, 10);
            }
            for key in 100..100 + marks {
                let name = bench.name(key, 0);
                let marked = bench.table.put_mark(&mut bench.local, name.key, name.hash);
                assert_eq!(marked, Marked::Yes);
            }
            for (key, granted) in over.into_iter().enumerate() {
                assert_eq!(bench.release(key as u128, granted), Ok(()));
            }
            let name = bench.name(1_000, 0);
            let ask = Ask {
                key: name.key,
                hash: name.hash,
                owner: 1,
                deadline: 10,
                at_least: 0,
                admitted: false,
            };
            let word = bench.local.array.bucket(name.hash).load::<Narrow>();
            match bench.table.walk_for_grant(&bench.local, word, &ask) {
                Walk::Free { crowded, .. } => {
                    assert_eq!(crowded, dead > live + marks + 4, "{dead} on {live}");
                }
                _ => panic!("nobody holds the key"),
            }
            // No grant comes by where there are marks only: whoever puts one sees to it.
            let name = bench.name(100 + marks, 0);
            let marked = bench.table.put_mark(&mut bench.local, name.key, name.hash);
            assert_eq!(marked, Marked::Yes);
            let after = bench.local.array.bucket(name.hash).load::<Narrow>();
            let crowded = dead > live + marks + 1 + 4;
            let raised = after.version() - word.version();
            assert_eq!(raised, 1 + u64::from(crowded), "{dead} on {live}");
        }
    }
}

/// Rule 8: by whatever it ends.
#[test]
fn the_end_of_a_lease_on_top_of_its_mark_is_noted() {
    let admitted = |bench: &mut Bench| {
        let first = bench.grant(1, 10);
        let name = bench.name(1, 0);
        let marked = bench.table.put_mark(&mut bench.local, name.key, name.hash);
        assert_eq!(marked, Marked::Yes);
        assert_eq!(bench.release(1, first), Ok(()));
        let ask = Ask {
            key: name.key,
            hash: name.hash,
            owner: 1,
            deadline: bench.local.now + 10,
            at_least: 0,
            admitted: true,
        };
        let granted = bench.table.grant(&mut bench.local, &ask).expect("admitted");
        bench.local.notes.clear();
        granted
    };
    let ends = |end: fn(&mut Bench, Granted), loss: Loss| {
        let mut bench = Bench::new(1);
        let granted = admitted(&mut bench);
        end(&mut bench, granted);
        let notes = std::mem::take(&mut bench.local.notes);
        let ends: Vec<_> = notes.iter().map(|note| (note.token, note.loss)).collect();
        assert_eq!(ends, [(granted.token, loss)]);
    };
    let by_handle = |bench: &mut Bench, granted| assert_eq!(bench.release(1, granted), Ok(()));
    let by_force = |bench: &mut Bench, _| {
        let name = bench.name(1, 0);
        let revoked = bench.table.revoke(&mut bench.local, name.key, name.hash);
        assert!(revoked.is_ok());
    };
    let by_time = |bench: &mut Bench, granted: Granted| {
        bench.local.now += 10;
        let looked = bench.table.look(&mut bench.local, granted.handle.cell());
        assert_eq!(looked, Look::Nothing);
    };
    ends(by_handle, Loss::Released);
    ends(by_force, Loss::Revoked);
    ends(by_time, Loss::Expired);
}

/// The engine ends it under the lock of its record, so that those who watch are told in order.
#[test]
fn the_wheel_leaves_the_leases_of_an_observed_manager_to_their_records() {
    let mut bench = Bench::new(1);
    bench.local.observed = true;
    let granted = bench.grant(1, 10);
    let name = bench.name(1, granted.token);
    bench.local.now = 10;
    let looked = bench.table.look(&mut bench.local, granted.handle.cell());
    assert_eq!(looked, Look::At(11), "it may be renewed until then");
    let due = Due::Record {
        key: name.key,
        hash: name.hash,
    };
    assert_eq!(bench.local.due, [due]);
    assert_eq!(bench.leases(), 1);
}

/// Rule 9.
#[test]
fn a_lease_in_a_frozen_bucket_ends_where_it_moves_to() {
    let mut bench = Bench::new(1);
    let (other, held) = (bench.grant(1, 10), bench.grant(2, 10));
    let old = bench.table.newest();
    assert!(bench.table.resize(&old, 1));
    // Whoever moves the bucket is about to freeze its leases.
    let bucket = old.at(0);
    let frozen = bucket.load::<Narrow>().with_flag(FROZEN);
    assert!(bucket.change(frozen.with_flag(NORMAL), frozen));
    assert_eq!(bench.release(2, held), Ok(()));
    assert_eq!(bucket.load::<Narrow>(), frozen.with_flag(DONE));
    assert_eq!(bench.release(1, other), Ok(()));
    assert_eq!(bench.leases(), 0);
}

/// Rules 6 and 10: it is reported once, however the two come to pass.
#[test]
fn a_kill_leaves_the_cell_to_whoever_frees_the_chain_of_a_bucket_that_is_done() {
    let mut bench = Bench::new(1);
    let held = bench.grant(1, 10);
    let old = bench.table.newest();
    assert!(bench.table.resize(&old, 1));
    let word = old.at(0).load::<Narrow>();
    assert!(old.at(0).change(word, word.with_flag(DONE)));
    let (at, hash) = (held.handle.cell(), bench.name(1, 0).hash);
    let state = bench.table.cell(at).state::<Narrow>();
    let local = &mut bench.local;
    assert!(bench.table.kill(local, hash, at, state, KILLED_EXPIRED));
    assert!(bench.table.cell(at).state::<Narrow>().is_killed());
    assert_eq!(bench.leases(), 1, "its end is not reported yet");
}

#[test]
fn as_many_cells_as_may_be_out_are_and_no_more() {
    let mut bench = Bench::new(1);
    let most = Narrow::MAX_LEASES;
    while bench.table.cell_for_grant(&mut bench.local).is_some() {}
    assert_eq!(bench.table.handed.load(Ordering::Relaxed), most);
    // The other half is for copies.
    assert!(bench.table.refill(&mut bench.local).is_some());
}

#[test]
fn a_lease_that_is_over_is_ended_and_not_marked() {
    let mut bench = Bench::new(1);
    bench.grant(1, 10);
    bench.local.now = 10;
    let name = bench.name(1, 0);
    let marked = bench.table.put_mark(&mut bench.local, name.key, name.hash);
    assert_eq!((marked, bench.leases()), (Marked::Free, 0));
}

#[test]
fn marks_that_are_taken_away_under_others_do_not_pile_up() {
    let mut bench = Bench::new(1);
    let held = [bench.grant(0, 10), bench.grant(1, 10)];
    let (before, after) = cells_of_rounds(&mut bench, |bench| {
        for key in [0, 1, 0, 1] {
            let (name, other) = (bench.name(key, 0), bench.name(1 - key, 0));
            let marked = bench.table.put_mark(&mut bench.local, name.key, name.hash);
            assert_eq!(marked, Marked::Yes);
            bench
                .table
                .take_mark(&mut bench.local, other.key, other.hash);
        }
        let name = bench.name(1, 0);
        assert!(
            bench
                .table
                .find(&mut bench.local, name.key, name.hash)
                .is_ok()
        );
        bench.table.take_mark(&mut bench.local, name.key, name.hash);
    });
    assert_eq!(after, before);
    for (key, granted) in (0..).zip(held) {
        assert_eq!(bench.release(key, granted), Ok(()));
        assert!(bench.local.notes.is_empty(), "no mark is left");
    }
}

#[test]
fn every_cell_is_handed_out_once_and_has_a_cache_line_of_its_own() {
    let slab = Slab::<Narrow>::new().expect("memory");
    let mut cells: Vec<_> = (0..)
        .map(|_| slab.take_fresh(1_000))
        .take_while(|fresh| !fresh.is_empty())
        .flatten()
        .collect();
    assert_eq!(slab.used(), Narrow::CELLS);
    cells.sort_unstable();
    assert!(cells.iter().copied().eq(1..Narrow::CELLS), "0 is the null");
    let mut lines: Vec<_> = cells
        .iter()
        .map(|&cell| slab.cell(cell).wheel().as_ptr().addr())
        .map(|word| (word / 64, word % 64))
        .collect();
    assert!(
        lines.iter().all(|line| line.1 == lines[0].1),
        "cut at a line"
    );
    let chunks = lines.windows(2).filter(|pair| pair[0].0 + 1 != pair[1].0);
    assert!(
        chunks.count() <= 6,
        "each is twice as large as the one before"
    );
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), cells.len());
}
