//! Waiting under a limit on the number of leases: a lease that passes on keeps its place.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicI64};

fn limited(max: usize) -> (LockManager, ManualClock) {
    let clock = ManualClock::new();
    let locks = on(&clock).max_keys(max).build();
    (locks.expect("these options are in order"), clock)
}

#[test]
fn leases_that_are_over_make_room_for_those_who_would_wait() {
    for key in ["a", "b"] {
        let (locks, clock) = limited(1);
        let over = locks.try_acquire("a", 1, SECOND).expect("there is room");
        over.detach();
        clock.advance(2 * SECOND);
        let lease = locks.acquire(key, 2, HOUR).wait_timeout(Duration::ZERO);
        assert!(lease.is_ok(), "{lease:?}");
    }
}

/// Others take every place that is free, or hold one for a moment while they are refused.
#[test]
fn a_lease_passes_on_whoever_else_wants_its_place() {
    for (max, theirs) in [(1, "b"), (2, "c")] {
        let locks = LockManager::builder().max_keys(max).build();
        let locks = locks.expect("these options are in order");
        let _held = (max == 2).then(|| locks.try_acquire("c", 1, HOUR).expect("there is room"));
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    drop(locks.try_acquire(theirs, 1, HOUR));
                }
            });
            for _ in 0..if cfg!(debug_assertions) {
                2_000
            } else {
                20_000
            } {
                let Ok(held) = locks.try_acquire("a", 1, HOUR) else {
                    continue;
                };
                let mut tasks = queue(&locks, "a", 5);
                held.release().expect("it is live");
                for task in &mut tasks {
                    drop(task.is_granted().expect("its place was kept"));
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn there_are_never_more_leases_than_may_be() {
    const MAX: i64 = 2;
    let locks = LockManager::builder().max_keys(2).build();
    let locks = locks.expect("these options are in order");
    let (out, worst, granted) = (AtomicI64::new(0), AtomicI64::new(0), AtomicUsize::new(0));
    let start = Instant::now();
    thread::scope(|scope| {
        for thread in 1..=6_u64 {
            let (locks, out, worst, granted) = (&locks, &out, &worst, &granted);
            scope.spawn(move || {
                let mut key = thread;
                while start.elapsed() < SECOND {
                    key = key
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(thread);
                    let lease = if thread.is_multiple_of(2) {
                        let patience = Duration::from_millis(20);
                        locks
                            .acquire(key >> 33 & 1, thread, HOUR)
                            .wait_timeout(patience)
                    } else {
                        locks.try_acquire(key >> 33 & 3, thread, HOUR)
                    };
                    let Ok(lease) = lease else { continue };
                    granted.fetch_add(1, Ordering::Relaxed);
                    worst.fetch_max(out.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    out.fetch_sub(1, Ordering::SeqCst);
                    drop(lease);
                }
            });
        }
    });
    assert!(granted.load(Ordering::Relaxed) > 1_000);
    assert!(worst.load(Ordering::SeqCst) <= MAX, "{worst:?} at once");
    assert_eq!((locks.len(), locks.waiting()), (0, 0));
}
