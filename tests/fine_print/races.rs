//! Races that were lost once.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use crate::task::Task;
use tenure::{AcquireError, LockManager, ManualClock, Mode};

fn ms(ticks: u64) -> Duration {
    Duration::from_millis(ticks)
}

fn next(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random
}

fn spin(turns: u64) {
    for _ in 0..turns {
        std::hint::spin_loop();
    }
}

fn manual() -> (LockManager, ManualClock) {
    let clock = ManualClock::new();
    let builder = LockManager::builder().clock(clock.clone()).driver(false);
    (builder.build().expect("in order"), clock)
}

/// A plain lease that stands before its mark (it was granted to a waiter, and another waits) is released
/// through its guard while its owner enters it again. The release unlinks it after `take_out` has killed
/// it: both succeed, and the record holds a lease that was given back.
#[test]
fn a_release_that_races_with_an_entry_frees_the_key() {
    let (manager, _clock) = manual();
    let ttl = Duration::from_secs(3600);
    let start = Barrier::new(2);
    let end = Barrier::new(2);
    let over = AtomicBool::new(false);
    let rounds = 300_000;
    let mut stuck = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = 0x1234_5678_9abc_def1;
            loop {
                start.wait();
                if over.load(Ordering::SeqCst) {
                    return;
                }
                spin(next(&mut random) % 60);
                let entered = manager.acquire("k", 1, ttl).reentrant().try_now();
                drop(entered);
                end.wait();
            }
        });
        let mut random = 0x9876_5432_1fed_cba9;
        let began = Instant::now();
        for _ in 0..rounds {
            let held = manager.try_acquire("k", 9, ttl).expect("free");
            let mut first = Task::pending(manager.acquire("k", 1, ttl));
            let mut second = Task::pending(manager.acquire("k", 2, ttl));
            drop(held);
            let lease = first.poll().expect("granted").expect("granted");
            start.wait();
            spin(next(&mut random) % 60);
            lease.release().expect("live");
            end.wait();
            if second.poll().is_none() {
                stuck += 1;
                drop(second);
                manager.revoke("k").expect("held by nobody's lease");
            }
            if began.elapsed() > Duration::from_secs(4) {
                break;
            }
        }
        over.store(true, Ordering::SeqCst);
        start.wait();
    });
    assert_eq!(
        stuck, 0,
        "rounds after which the key was held by nobody's lease"
    );
}

/// Of a limited manager: a lease ends, and before its thread has the record's lock somebody else serves
/// the queue. The place is not given back yet, and can't be before that lock is.
#[test]
fn a_waiter_of_a_full_manager_takes_over_its_keys_own_place() {
    let clock = ManualClock::new();
    let manager = LockManager::builder()
        .clock(clock.clone())
        .driver(false)
        .max_keys(1)
        .build()
        .expect("in order");
    let ttl = Duration::from_secs(3600);
    let over = AtomicBool::new(false);
    let refused = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                // Finds the mark, and serves the queue.
                if let Ok(lease) = manager.try_acquire("k", 7, ttl) {
                    drop(lease);
                }
            }
        });
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(2) {
            let Ok(held) = manager.acquire("k", 1, ttl).wait_timeout(ms(100)) else {
                continue;
            };
            let mut waiting = Task::pending(manager.acquire("k", 2, ttl));
            drop(held);
            match waiting.poll() {
                Some(Ok(lease)) => drop(lease),
                Some(Err(AcquireError::CapacityExceeded { .. })) => {
                    refused.fetch_add(1, Ordering::Relaxed);
                }
                other => {
                    over.store(true, Ordering::Relaxed);
                    panic!("{other:?}");
                }
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(
        refused.into_inner(),
        0,
        "waiters refused for want of a place"
    );
}

/// Uses the manager when it is dropped, as a waker may (I10).
struct Drops(Arc<LockManager>);

impl Wake for Drops {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Drops {
    fn drop(&mut self) {
        let mut waits = std::pin::pin!(self.0.acquire("c", 4, ms(1000)));
        let waker = Waker::noop();
        let polled = waits.as_mut().poll(&mut Context::from_waker(waker));
        assert!(polled.is_pending());
    }
}

/// The detector looks at a waiter that is dropped meanwhile: the last reference to it, and its waker, go
/// under the detector's lock.
#[test]
fn a_waker_is_not_dropped_under_the_detectors_lock() {
    let manager = Arc::new(
        LockManager::builder()
            .clock(ManualClock::new())
            .driver(false)
            .deadlock_detection(10)
            .build()
            .expect("in order"),
    );
    let progress = Arc::new(AtomicUsize::new(0));
    let over = Arc::new(AtomicBool::new(false));
    let ttl = Duration::from_secs(3600);
    for (key, owner) in [("a", 1), ("b", 2), ("c", 5)] {
        manager.try_acquire(key, owner, ttl).expect("free").detach();
    }
    {
        let (manager, over) = (Arc::clone(&manager), Arc::clone(&over));
        thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let mut waits = Box::pin(manager.acquire("a", 2, ttl));
                let waker = Waker::from(Arc::new(Drops(Arc::clone(&manager))));
                let polled = waits.as_mut().poll(&mut Context::from_waker(&waker));
                assert!(polled.is_pending());
                drop(waker);
                drop(waits);
            }
        });
    }
    {
        let (manager, over) = (Arc::clone(&manager), Arc::clone(&over));
        let progress = Arc::clone(&progress);
        thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let mut waits = std::pin::pin!(manager.acquire("b", 3, ttl));
                let polled = waits.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                assert!(polled.is_pending());
                progress.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    for _ in 0..3 {
        let before = progress.load(Ordering::Relaxed);
        thread::sleep(Duration::from_secs(1));
        let after = progress.load(Ordering::Relaxed);
        assert!(after > before, "stands still after {after} rounds");
    }
    over.store(true, Ordering::Relaxed);
}

/// "Each key is of one moment."
#[test]
fn a_snapshot_never_shows_a_shared_and_an_exclusive_holder() {
    let (manager, _clock) = manual();
    let ttl = Duration::from_secs(3600);
    let over = AtomicBool::new(false);
    let mut mixed = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                drop(manager.acquire("k", 1, ttl).shared().try_now());
                drop(manager.try_acquire("k", 2, ttl));
            }
        });
        for _ in 0..3_000 {
            for key in manager.snapshot() {
                let exclusive = key.holders.iter().any(|held| held.mode == Mode::Exclusive);
                mixed += usize::from(exclusive && key.holders.len() > 1);
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(mixed, 0, "snapshots with a shared and an exclusive holder");
}

/// Another thread that asks for the key while its session is being closed makes the close an unclean one.
#[test]
fn closing_a_session_under_fire_leaves_no_quarantine() {
    let (manager, _clock) = manual();
    let ttl = Duration::from_secs(3600);
    let over = AtomicBool::new(false);
    let mut delayed = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for key in 0..64_u64 {
                    if let Ok(lease) = manager.try_acquire(key, 7, ttl) {
                        drop(lease);
                    }
                }
            }
        });
        for round in 0..200_u64 {
            let session = manager.session(1, ttl).expect("opens").lock_delay(ms(1000));
            for key in 0..64 {
                if let Ok(lease) = session.try_acquire(key + 1000 * round) {
                    lease.detach();
                }
                if let Ok(lease) = session.try_acquire(key) {
                    lease.detach();
                }
            }
            session.close().expect("live");
            for key in 0..64_u64 {
                let asked = manager.try_acquire(key, 8, ttl).map(drop);
                delayed += usize::from(matches!(asked, Err(AcquireError::Delayed { .. })));
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(delayed, 0, "keys quarantined after a clean close");
}
