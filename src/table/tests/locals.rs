//! What a thread keeps, and what it can tell by key.

use std::task::Waker;
use std::time::Duration;

use super::super::local::{BATCH, FreeCells, KEPT};
use super::*;
use crate::sync::Ordering;

fn local() -> Local {
    Bench::new(1).local
}

fn drained(cells: &mut FreeCells) -> Vec<u32> {
    std::iter::from_fn(|| cells.pop()).collect()
}

#[test]
fn the_youngest_free_cell_is_taken_first_and_the_oldest_go_back() {
    let mut cells = local().free;
    assert_eq!((cells.peek(), cells.pop()), (None, None));
    let all: Vec<_> = (1..=KEPT as u32).collect();
    assert!(all.iter().all(|&cell| cells.push(cell)));
    assert!(cells.is_full() && !cells.push(1_000));
    assert_eq!((cells.peek(), cells.pop()), (Some(64), Some(64)));
    assert!(!cells.is_full());
    let mut oldest = [0; BATCH];
    assert_eq!(cells.take_oldest(&mut oldest), BATCH);
    assert_eq!(oldest[..], all[..BATCH]);
    let rest: Vec<_> = (BATCH as u32 + 1..KEPT as u32).rev().collect();
    assert_eq!(drained(&mut cells), rest);
    assert!(cells.push(5) && cells.push(6));
    assert_eq!(cells.take_oldest(&mut oldest), 2);
    assert_eq!(oldest[..2], [5, 6]);
    assert_eq!(cells.take_oldest(&mut oldest), 0);
}

#[test]
fn a_thread_counts_what_it_has_granted_and_ended() {
    let counters = Counters::default();
    let read = |count: &crate::sync::AtomicU64| count.load(Ordering::Relaxed);
    counters.add_end();
    assert_eq!(counters.leases(), -1, "another thread's");
    (0..5).for_each(|_| counters.add_grant());
    assert_eq!((counters.leases(), read(&counters.granted)), (4, 5));
    counters.add_end();
    counters.take_back_end();
    assert_eq!((counters.leases(), read(&counters.ended)), (4, 1));
    for lag in [3, 9, 4] {
        counters.add_expired(lag);
    }
    assert_eq!((read(&counters.expired), read(&counters.lag)), (3, 9));
    counters.add_revoked();
    counters.add_revoked();
    assert_eq!(read(&counters.revoked), 2);
}

#[test]
fn a_deadline_is_remembered_for_one_tick_and_one_ttl() {
    let ttl = Duration::new(3, 5);
    let last = LastStamp::new(70, ttl, Stamp::default());
    assert!(last.is_of(70, ttl));
    assert!(!last.is_of(71, ttl) && !last.is_of(70, Duration::new(4, 5)));
    assert!(!last.is_of(70, Duration::new(3, 6)));
    assert!(!LastStamp::default().is_of(0, Duration::ZERO));
}

#[test]
fn whatever_an_operation_leaves_to_do_is_a_chore() {
    let chores: [fn(&mut Local); 6] = [
        |local| local.spilled = true,
        |local| local.resized = true,
        |local| local.wants_block = true,
        |local| {
            local.moved.push(Moved {
                cell: 1,
                deadline: 1,
            });
        },
        |local| {
            let contents = Contents {
                key: crate::Key::from_raw(1),
                token: 1,
                owner: 1,
                deadline: 1,
            };
            local.notes.push(Note::new(&contents, 1, Loss::Expired));
        },
        |local| local.add_due(Due::Session(1)),
    ];
    assert!(!local().has_chores());
    for one in chores {
        let mut local = local();
        one(&mut local);
        assert!(local.has_chores() && !local.has_news());
        for other in chores {
            let mut local = self::local();
            one(&mut local);
            other(&mut local);
            assert!(local.has_chores(), "two of them");
        }
    }
    let mut local = local();
    local.wakes.push(Waker::noop().clone());
    assert!(local.has_news() && !local.has_chores());
}

/// The wheel looks at everything twice.
#[test]
fn what_is_due_is_remembered_once() {
    let mut local = local();
    for id in [1, 1, 2, 2] {
        local.add_due(Due::Session(id));
    }
    assert_eq!(local.due, [Due::Session(1), Due::Session(2)]);
}

#[test]
fn a_token_up_to_the_last_of_its_bucket_is_over_and_a_later_one_was_never_granted() {
    let mut bench = Bench::new(1);
    let (first, last) = (bench.grant(1, 10), bench.grant(2, 10));
    let told = |bench: &mut Bench, key, token| {
        let name = bench.name(key, token);
        bench.table.validate(&mut bench.local, &name).err()
    };
    assert_eq!(told(&mut bench, 1, first.token), None);
    // Of the key that is held, of one that was, and of one that was not.
    assert_eq!(bench.release(2, last), Ok(()));
    for key in [1, 2, 3] {
        assert_eq!(told(&mut bench, key, last.token), Some(Ended::Expired));
        let beyond = told(&mut bench, key, last.token + 1);
        assert_eq!(beyond, Some(Ended::NeverGranted));
    }
    let name = bench.name(1, first.token);
    let marked = bench.table.put_mark(&mut bench.local, name.key, name.hash);
    assert_eq!(marked, Marked::Yes);
    assert_eq!(bench.release(1, first), Ok(()));
    assert_eq!(told(&mut bench, 1, first.token), Some(Ended::Recorded));
    for key in [2, 3] {
        let other = told(&mut bench, key, first.token);
        assert_eq!(other, Some(Ended::Expired), "it has no record");
    }
}

/// Whether a class is a part of a bucket, a bucket or several.
#[test]
fn each_class_of_hashes_has_its_leases_and_its_last_token() {
    let mut bench = Bench::new(256);
    let held: Vec<_> = (0..16)
        .map(|key| (bench.name(key, 0).hash, bench.grant(key, 10).token))
        .collect();
    let (table, local) = (&bench.table, &mut bench.local);
    for buckets in [256, 16, 1] {
        if buckets < 256 {
            assert!(table.resize(&table.newest(), buckets));
            while table.help_resize(local, 256) {}
        }
        for bits in [0, 1, 4, 6, 8, 10] {
            let (mut seen, mut leases) = (0, vec![]);
            for class in 0..1 << bits {
                let is_its = |hash: u64| hash & ((1 << bits) - 1) == class as u64;
                let its: Vec<_> = held.iter().filter(|lease| is_its(lease.0)).collect();
                table.collect(local, class, bits, &mut leases);
                assert_eq!(leases.len(), its.len(), "class {class} of {bits} bits");
                assert!(leases.iter().all(|lease| is_its(table.hash(lease.key))));
                seen += leases.len();
                let last = its.iter().map(|lease| lease.1).max().unwrap_or(0);
                let newest = table.newest_token(local, class, bits);
                // Others of the same buckets count, and each move adds a little.
                let is_exact = buckets == 256 && bits <= 8;
                assert!(newest >= last && (newest == last || !is_exact));
            }
            assert_eq!(seen, held.len());
        }
    }
}
