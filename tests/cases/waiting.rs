//! Waiting: grants that come twice, or to nobody.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use tenure::LockManager;

use crate::task::Task;
use crate::{manual, ms};

/// After an expiry, two waiters acquired together.
#[test]
fn case_1_an_expiry_grants_the_key_to_one_waiter_only() {
    let (manager, clock) = manual();
    for steps in 1..4 {
        let dead = manager.try_acquire("k", 0, ms(10)).expect("free").detach();
        let mut tasks: Vec<_> = (1..=20)
            .map(|owner| Task::pending(manager.acquire("k", owner, ms(10))))
            .collect();
        for _ in 0..steps {
            // Whoever comes upon the expiry first: the wheel, or a passer-by.
            clock.advance(ms(10) / steps + ms(1));
            if steps % 2 == 0 {
                manager.advance();
            } else {
                assert!(
                    manager.try_acquire("k", 99, ms(10)).is_err(),
                    "nobody barges in"
                );
            }
        }
        let granted: Vec<_> = tasks.iter_mut().filter_map(Task::poll).collect();
        assert_eq!(granted.len(), 1);
        let lease = granted.into_iter().next().expect("one").expect("granted");
        assert_eq!(lease.owner().0, 1, "the first");
        assert!(lease.token() > dead);
        assert!(tasks.iter().skip(1).all(|task| task.wakes() == 0));
    }
}

/// The same with threads that wait for the driver to act on the expiry.
#[test]
fn case_1_threads_that_wait_for_an_expiry_come_in_one_by_one() {
    let manager = LockManager::new();
    let inside = AtomicUsize::new(0);
    let _dead = manager.try_acquire("k", 0, ms(5)).expect("free").detach();
    thread::scope(|scope| {
        for owner in 1..=8 {
            let (manager, inside) = (&manager, &inside);
            scope.spawn(move || {
                let lease = manager
                    .acquire("k", owner, ms(60_000))
                    .wait()
                    .expect("granted");
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "I1");
                thread::yield_now();
                inside.fetch_sub(1, Ordering::SeqCst);
                lease.release().expect("live");
            });
        }
    });
    assert_eq!((manager.len(), manager.waiting()), (0, 0));
}

/// An interrupted acquisition left an orphan that "owned" the lock later: whatever the moment, and
/// whatever it asks for, dropping it leaves nothing.
#[test]
fn case_8_a_cancelled_acquisition_leaves_no_ghost() {
    for what in 0..6 {
        for moment in 0..5 {
            let (manager, _) = manual();
            let session = manager.session(1, ms(100)).expect("in range");
            let acquire = || {
                let plain = manager.acquire("k", 1, ms(100));
                match what {
                    0 => plain,
                    1 => plain.shared(),
                    2 => plain.permit(1),
                    3 => plain.reentrant(),
                    4 => plain.lock_delay(ms(50)),
                    _ => session.acquire("k"),
                }
            };
            let held = manager.try_acquire("k", 9, ms(100)).expect("free");
            let mut task = Task::new(acquire());
            let before = Task::pending(manager.acquire("k", 2, ms(100)));
            let mut behind = Task::pending(manager.acquire("k", 3, ms(100)));
            if moment > 0 {
                assert!(task.poll().is_none());
            }
            drop(before);
            match moment {
                0 | 1 => {}
                2 => manager.release("k", held.token()).expect("live"),
                3 => _ = manager.revoke("k").expect("held"),
                _ => {
                    manager.release("k", held.token()).expect("live");
                    drop(behind.poll());
                }
            }
            drop(task);
            drop(held);
            let next = behind.poll();
            let next = next.unwrap_or_else(|| manager.try_acquire("k", 3, ms(1)));
            assert!(next.is_ok(), "what {what}, moment {moment}: {next:?}");
            drop((next, behind));
            assert_eq!((manager.len(), manager.waiting()), (0, 0));
            assert!(manager.snapshot().is_empty());
        }
    }
}

/// A dropped future left a flag that said that a writer waits, and readers blocked for ever.
#[test]
fn case_9_writers_that_give_up_leave_no_readers_blocked() {
    let manager = LockManager::new();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for owner in 0..2 {
            let (manager, done) = (&manager, &done);
            scope.spawn(move || {
                let mut round = 0_u32;
                while !done.load(Ordering::SeqCst) {
                    round += 1;
                    let writer = manager.acquire("k", owner, ms(60_000));
                    if round.is_multiple_of(3) {
                        drop(Task::new(writer));
                    } else {
                        let mut task = Task::new(writer);
                        drop(task.poll());
                        drop(task);
                    }
                }
            });
        }
        for owner in 2..4 {
            let (manager, done) = (&manager, &done);
            scope.spawn(move || {
                for _ in 0..3_000 {
                    let reader = manager.acquire("k", owner, ms(60_000)).shared();
                    let read = reader.wait_timeout(ms(60_000));
                    drop(read.expect("not blocked for ever"));
                }
                done.store(true, Ordering::SeqCst);
            });
        }
    });
    assert_eq!((manager.len(), manager.waiting()), (0, 0));
    assert!(manager.acquire("k", 9, ms(10)).shared().try_now().is_ok());
}

/// Whether others wait was read as false while somebody did: a release and an enqueueing that meet never
/// leave a waiter behind. (The interleavings are explored in the models; this is the real thing.)
#[test]
fn case_10_a_release_that_meets_an_enqueueing_leaves_nobody_behind() {
    let manager = LockManager::new();
    for round in 0..3_000_u64 {
        let held = manager.try_acquire(round % 3, 1, ms(60_000)).expect("free");
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let acquire = manager.acquire(round % 3, 2, ms(60_000));
                acquire.wait_timeout(ms(60_000)).map(drop)
            });
            held.release().expect("live");
            waiter.join().expect("no panic").expect("not left behind");
        });
    }
    assert_eq!((manager.len(), manager.waiting()), (0, 0));
}
