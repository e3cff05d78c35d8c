//! Managers, guards and futures that go at the wrong moment and in the wrong place: while others are at work
//! with them, while a table grows and leases expire, as a thread ends, as a stack unwinds, in a waker.

use super::*;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;

use tenure::{MultiLease, Session};

/// All that can outlive a manager, or its use by others.
#[expect(dead_code, reason = "they are kept to be dropped")]
enum Kept {
    Lease(Lease<'static>),
    Acquire(Acquire<'static>),
    Session(Session<'static>),
    All(MultiLease<'static>),
    Lost(tenure::Lost),
    Events(tenure::Events),
    Locks(LockManager),
}

/// One of each, on keys of its own and on one that all want.
fn one_of_each(locks: &LockManager, owner: u64) -> Vec<Kept> {
    let wanted = locks.acquire("wanted", owner, HOUR).into_owned();
    let mut wanted = wanted.lock_delay(MS);
    let _ = poll(&mut wanted);
    let mut kept = vec![
        Kept::Acquire(wanted),
        Kept::Events(locks.events(1)),
        Kept::Locks(locks.clone()),
    ];
    if let Ok(lease) = locks.try_acquire(owner, owner, HOUR) {
        kept.push(Kept::Lost(lease.lost()));
        kept.push(Kept::Lease(lease.into_owned()));
    }
    if let Ok(session) = locks.session(owner, HOUR) {
        let mut waits = session.acquire("wanted").into_owned();
        let _ = poll(&mut waits);
        kept.push(Kept::Session(session.into_owned()));
        kept.push(Kept::Acquire(waits));
    }
    let shared = locks.acquire("shared", owner, HOUR).shared().try_now();
    kept.extend(shared.map(|lease| Kept::Lease(lease.into_owned())));
    let all = locks.acquire_all([owner + 1_000, owner + 2_000], owner, HOUR);
    let all = all.into_owned().wait_timeout(Duration::ZERO);
    kept.extend(all.map(Kept::All));
    kept
}

/// Drops them in an order of its own.
fn drop_in_some_order(mut kept: Vec<Kept>, random: &mut u64) {
    while !kept.is_empty() {
        let at = next(random) as usize % kept.len();
        drop(kept.swap_remove(at));
    }
}

/// Real time: several threads are at work with handles, guards and futures of one manager, its table grows and
/// shrinks, leases expire, the driver turns the wheel, and all of them let go whenever they like. Whoever is
/// last ends it, and nobody is left waiting.
#[test]
fn a_manager_goes_in_the_midst_of_everything() {
    in_time(|| {
        for round in 0..scaled(2_000).max(20) {
            let locks = LockManager::new();
            let wakes = Arc::new(Wakes::default());
            let waker = Waker::from(Arc::clone(&wakes));
            locks.try_acquire("never", 0, HOUR).expect("free").detach();
            let waits = waiting(locks.acquire("never", 1, HOUR).into_owned(), &waker);
            let threads: Vec<_> = (1..=3)
                .map(|owner| {
                    let locks = locks.clone();
                    thread::spawn(move || {
                        let mut random = round * 7 + owner;
                        // Grows, and expires while it does.
                        for key in 0..next(&mut random) % 3_000 {
                            let ttl = MS * (1 + key as u32 % 3);
                            let _ = locks
                                .try_acquire((owner << 32) + key, owner, ttl)
                                .map(Lease::detach);
                        }
                        let kept = one_of_each(&locks, owner);
                        if owner == 2 {
                            drop(locks);
                        }
                        drop_in_some_order(kept, &mut random);
                    })
                })
                .collect();
            (0..round % 200 * 20).for_each(|_| std::hint::spin_loop());
            drop(locks);
            for thread in threads {
                thread.join().expect("no panic");
            }
            assert_eq!(wakes.count(), 1, "who waited is told");
            let mut waits = waits;
            assert!(matches!(
                poll(&mut waits),
                Poll::Ready(Err(AcquireError::Closed))
            ));
        }
    });
}

/// What one thread has made another drops; in a thread's last moments, whichever of its locals go first; and
/// when the manager has gone before. Nothing is held afterwards.
#[test]
fn anything_may_be_dropped_by_any_thread_at_any_time() {
    thread_local! {
        static KEPT: RefCell<Vec<Kept>> = const { RefCell::new(vec![]) };
    }
    in_time(|| {
        for round in 0..40 {
            let (locks, clock) = manual();
            let held = locks.try_acquire("wanted", 0, HOUR).expect("free");
            let mut kept = one_of_each(&locks, 1);
            kept.extend(one_of_each(&locks, 2));
            let early = round % 2 == 0;
            let thread = thread::spawn(move || {
                if early {
                    KEPT.with(|kept| kept.borrow_mut().clear());
                }
                let Some(Kept::Locks(theirs)) = kept.iter().find(|it| matches!(it, Kept::Locks(_)))
                else {
                    panic!("it is among them");
                };
                let theirs = theirs.clone();
                kept.extend(one_of_each(&theirs, 3));
                KEPT.with(|it| it.borrow_mut().append(&mut kept));
            });
            if round % 4 < 2 {
                drop(held);
            } else {
                held.detach();
                locks.revoke("wanted").expect("it is held");
            }
            thread.join().expect("no destructor panicked");
            eventually("the thread's locals", || {
                locks.waiting() == 0 && locks.is_empty()
            });
            // A lock-delay of those that were granted the key and did not know may be left.
            clock.advance(SECOND);
            locks.advance();
            assert_idle(&locks, ["wanted", "shared"]);
            // After their manager.
            let kept = one_of_each(&locks, 1);
            let (handles, rest): (Vec<_>, Vec<_>) = kept
                .into_iter()
                .partition(|it| matches!(it, Kept::Locks(_)));
            drop((locks, handles));
            drop(rest);
        }
    });
}

/// As the stack unwinds, all is given back, and nothing panics in its turn, which would abort.
#[test]
fn all_is_given_back_as_a_stack_unwinds() {
    let (locks, clock) = manual();
    for _ in 0..20 {
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let _held = locks.try_acquire("wanted", 0, HOUR).expect("free");
            let _kept = one_of_each(&locks, 1);
            let mut shared = locks
                .acquire("upgraded", 1, HOUR)
                .shared()
                .try_now()
                .expect("free");
            let _other = locks
                .acquire("upgraded", 2, HOUR)
                .shared()
                .try_now()
                .expect("free");
            let mut upgrade = Box::pin(shared.upgrade(HOUR));
            let context = &mut Context::from_waker(Waker::noop());
            assert!(upgrade.as_mut().poll(context).is_pending());
            let _bomb = waiting(
                locks.acquire("wanted", 5, HOUR),
                &does(|| panic!("on purpose")),
            );
            panic!("on purpose");
        }));
        assert!(unwound.is_err());
        clock.advance(SECOND);
        locks.advance();
        assert_idle(&locks, ["wanted", "shared", "upgraded"]);
    }
}

/// A waker that owns guards, futures and the last handle: they go as it is woken, or as it is dropped unwoken,
/// within an operation of their own manager.
#[test]
fn a_waker_may_own_all_there_is() {
    in_time(|| {
        for (driver, woken) in [(false, true), (false, false), (true, true), (true, false)] {
            let builder = LockManager::builder().driver(driver);
            let locks = builder.build().expect("in order");
            let gone = Arc::new(AtomicBool::new(false));
            let held = locks.try_acquire("a", 1, HOUR).expect("free").into_owned();
            let waits = locks.acquire("a", 2, HOUR).into_owned();
            let kept = std::sync::Mutex::new(Some((one_of_each(&locks, 7), locks)));
            let waker = {
                let gone = Arc::clone(&gone);
                does(move || {
                    drop(kept.lock().expect("no panic").take());
                    gone.store(true, Ordering::SeqCst);
                })
            };
            let waits = waiting(waits, &waker);
            drop(waker);
            if woken {
                drop(held);
                assert!(gone.load(Ordering::SeqCst));
            }
            drop(waits);
        }
    });
}
