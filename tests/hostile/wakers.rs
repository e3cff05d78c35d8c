//! Wakers are the user's code (I10): waking one, and dropping one, may panic, block, come back into the
//! manager, and end it.

use super::*;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use tenure::{Events, OwnerId};

/// A waker that does something when it is dropped as well, be it woken or not.
struct OnDrop<F: Fn() + Send + Sync + 'static>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for OnDrop<F> {
    fn wake(self: Arc<Self>) {}
}

impl<F: Fn() + Send + Sync + 'static> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

fn on_drop(f: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(OnDrop(f)))
}

/// Everything that a waker might think of, on keys of its own; leaves nothing behind.
fn use_everything(locks: &LockManager) {
    static OWNER: AtomicUsize = AtomicUsize::new(1_000);
    let owner = OwnerId(OWNER.fetch_add(1, Ordering::Relaxed) as u64);
    let key = format!("a key of the waker's own, {}", owner.0);
    let key = key.as_str();
    let lease = locks.try_acquire(key, owner, HOUR).expect("it is ours");
    assert!(lease.renew(HOUR).is_ok() && lease.is_live());
    assert!(locks.try_acquire(key, 1, HOUR).is_err());
    let mut next = waiting(locks.acquire(key, owner.0 + 1_000_000, HOUR), Waker::noop());
    assert!(locks.holder(key).is_some() && locks.holders(key).len() == 1);
    let mut lost = lease.lost();
    assert!(lost.now().is_none());
    lease.release().expect("it is live");
    assert!(lost.wait_timeout(Duration::ZERO).is_some());
    let Poll::Ready(Ok(mut lease)) = poll(&mut next) else {
        panic!("it was the next");
    };
    lease.downgrade().expect("it is live");
    lease.upgrade(HOUR).wait().expect("nobody else shares it");
    let token = lease.detach();
    assert!(locks.validate(key, token).is_ok() && locks.renew(key, token, HOUR).is_ok());
    assert!(locks.revoke(key).is_ok());
    let session = locks.session(owner, HOUR).expect("there is room");
    let in_session = session.try_acquire(key).expect("free");
    assert!(!in_session.detach().to_string().is_empty());
    session.close().expect("it is live");
    let all = locks.acquire_all([key], owner, HOUR).wait().expect("free");
    all.release().expect("it is live");
    let many = locks.try_acquire_many([key], owner, HOUR);
    assert_eq!(Lease::release_many(many.into_iter().flatten()), [Ok(())]);
    assert!(locks.iter().count() <= 1_000 && locks.snapshot().len() <= 1_000);
    assert!(!locks.checkpoint().to_bytes().is_empty());
    let _ = (
        locks.stats(),
        locks.len(),
        locks.waiting(),
        locks.deadlocks(),
    );
    let _ = (locks.now(), locks.next_wakeup(), locks.advance());
    let mut events = locks.events(1);
    let _ = events.try_next();
}

/// Wakes of acquisitions, of signals and of streams, and the drops of their wakers, use everything there is.
#[test]
fn a_waker_may_use_everything_when_woken_and_when_dropped() {
    in_time(|| {
        for detection in [0, 10] {
            let clock = ManualClock::new();
            let locks = on(&clock).deadlock_detection(detection).introspection(true);
            let locks = locks.build().expect("in order");
            let used = Arc::new(AtomicUsize::new(0));
            let user = || {
                let (locks, used) = (locks.clone(), Arc::clone(&used));
                move || {
                    use_everything(&locks);
                    used.fetch_add(1, Ordering::SeqCst);
                }
            };
            let mut rounds = 0;
            for on_wake in [true, false] {
                let waker = |at: u64| match on_wake {
                    true => does(user()),
                    false if at.is_multiple_of(2) => on_drop(user()),
                    // Woken and dropped.
                    false => {
                        let inner = on_drop(user());
                        does(move || inner.wake_by_ref())
                    }
                };
                for end in 0..6 {
                    let held = locks.try_acquire("a", 1, SECOND).expect("free");
                    let session = locks.session(3, SECOND).expect("there is room");
                    let mut first = Some(waiting(locks.acquire("a", 2, HOUR), &waker(0)));
                    let second = waiting(session.acquire("a"), &waker(1));
                    // A second time, which drops the first waker.
                    let mut second = waiting(second, &waker(2));
                    let (mut lost, mut over) = (Box::pin(held.lost()), Box::pin(session.lost()));
                    let mut events = locks.events(1);
                    for at in 0..2 {
                        let waker = waker(at);
                        let context = &mut Context::from_waker(&waker);
                        assert!(lost.as_mut().poll(context).is_pending());
                        assert!(over.as_mut().poll(context).is_pending());
                        // What its old waker has done may be told.
                        let _ = Box::pin(events.next()).as_mut().poll(context);
                    }
                    rounds += 1;
                    match end {
                        0 => held.release().expect("it is live"),
                        1 => drop(locks.revoke("a").expect("it is held")),
                        2 => {
                            clock.advance(2 * SECOND);
                            locks.advance();
                        }
                        3 => session.close().expect("it is live"),
                        4 => first = None,
                        _ => drop(events),
                    }
                    let _ = first.as_mut().map(poll);
                    let _ = poll(&mut second);
                }
            }
            assert!(
                used.load(Ordering::SeqCst) >= rounds,
                "{used:?} in {rounds}"
            );
            assert_idle(&locks, ["a"]);
        }
    });
}

/// The drop of a waker that was replaced panics: into the poll that has replaced it, whose acquisition waits
/// on with the new one.
#[test]
fn a_waker_that_panics_as_it_is_replaced_harms_nobody_else() {
    let (locks, _clock) = manual();
    let held = locks.try_acquire("a", 1, HOUR).expect("free");
    let bomb = on_drop(|| panic!("on purpose"));
    let mut acquire = waiting(locks.acquire("a", 2, HOUR), &bomb);
    // What is left is the acquisition's.
    drop(bomb);
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    let polled = catch_unwind(AssertUnwindSafe(|| poll_with(&mut acquire, &waker)));
    assert!(polled.is_err(), "its own waker's panic");
    let mut other = waiting(locks.acquire("a", 3, HOUR), Waker::noop());
    held.release().expect("it is live");
    assert_eq!(wakes.count(), 1);
    let Poll::Ready(Ok(lease)) = poll(&mut acquire) else {
        panic!("it is its turn");
    };
    drop(lease);
    assert!(matches!(poll(&mut other), Poll::Ready(Ok(_))));
    assert_idle(&locks, ["a"]);
}

/// The last reference to a stream goes with the operation that has written to it, and a waker with that,
/// whose drop panics: no business of who has made the grant.
#[test]
fn a_streams_waker_that_panics_is_not_the_fault_of_a_grant() {
    let (locks, _clock) = manual();
    let other: Arc<Mutex<Option<Events>>> = Arc::new(Mutex::new(Some(locks.events(10))));
    let mut first = locks.events(10);
    let dropped = Arc::new(AtomicBool::new(false));
    let waker = {
        let (other, dropped) = (Arc::clone(&other), Arc::clone(&dropped));
        does(move || {
            let Some(mut events) = other.lock().expect("no panic").take() else {
                return;
            };
            while events.try_next().is_some() {}
            let dropped = Arc::clone(&dropped);
            let bomb = on_drop(move || {
                dropped.store(true, Ordering::SeqCst);
                panic!("on purpose");
            });
            let mut next = Box::pin(events.next());
            assert!(
                next.as_mut()
                    .poll(&mut Context::from_waker(&bomb))
                    .is_pending()
            );
        })
    };
    let mut next = Box::pin(first.next());
    assert!(
        next.as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    let granted = catch_unwind(AssertUnwindSafe(|| {
        locks.try_acquire("a", 1, HOUR).map(Lease::detach)
    }));
    assert!(
        dropped.load(Ordering::SeqCst),
        "what this is about has happened"
    );
    let token = granted.expect("the waker's panic").expect("free");
    locks.release("a", token).expect("it is live");
    drop(next);
    drop(first);
    assert_idle(&locks, ["a"]);
}

/// A task that runs in its waker, on whoever ends the lease before it, and ends its own at once.
fn inline_chain(locks: &LockManager, length: u64) -> (Lease<'static>, Arc<AtomicUsize>) {
    type Slot = Mutex<Option<Acquire<'static>>>;
    let held = locks.try_acquire("a", 0, HOUR).expect("free").into_owned();
    let done = Arc::new(AtomicUsize::new(0));
    for owner in 1..=length {
        let slot: Arc<Slot> = Arc::default();
        let waker = {
            let (slot, done) = (Arc::clone(&slot), Arc::clone(&done));
            does(move || {
                let task = slot.lock().expect("no panic").take();
                let answer = poll(&mut task.expect("woken once"));
                assert!(matches!(answer, Poll::Ready(Ok(_))));
                done.fetch_add(1, Ordering::SeqCst);
            })
        };
        let acquire = waiting(locks.acquire("a", owner, HOUR).into_owned(), &waker);
        *slot.lock().expect("no panic") = Some(acquire);
    }
    (held, done)
}

/// Wherever the first lease ends, in a thread's last moments too, a chain of any length takes no stack.
#[test]
fn a_chain_of_tasks_that_run_in_their_wakers_takes_no_stack_at_a_threads_end() {
    thread_local! {
        static LAST: RefCell<Option<Lease<'static>>> = const { RefCell::new(None) };
    }
    let length = scaled(1_000_000).max(10_000);
    for early in [false, true] {
        let (locks, _clock) = manual();
        let (held, done) = inline_chain(&locks, length);
        let theirs = locks.clone();
        let thread = thread::Builder::new().stack_size(512 * 1024);
        let thread = thread.spawn(move || {
            if early {
                // Then its destructor runs after those of what the manager keeps in the thread.
                LAST.with(|last| *last.borrow_mut() = None);
            }
            let first = theirs.try_acquire("b", 1, HOUR).expect("free");
            let second = waiting(theirs.acquire("b", 2, HOUR), &does(|| ()));
            drop(first);
            drop(second);
            LAST.with(|last| *last.borrow_mut() = Some(held));
        });
        thread.expect("a thread").join().expect("no panic");
        eventually("the chain", || done.load(Ordering::SeqCst) as u64 == length);
        assert_idle(&locks, ["a", "b"]);
    }
}

/// A waker ends a lease, for which a thread waits, and then waits for what that thread does: the thread must
/// have been woken by then.
#[test]
fn a_waker_may_wait_for_another_that_it_has_woken() {
    in_time(|| {
        let locks = LockManager::new();
        let lease = |key| locks.try_acquire(key, 1, HOUR).expect("free").into_owned();
        let (outer, inner, theirs) = (lease("outer"), lease("inner"), lease("theirs"));
        let done = Arc::new(AtomicBool::new(false));
        let waker = {
            let (locks, done) = (locks.clone(), Arc::clone(&done));
            let inner = Mutex::new(Some(inner));
            does(move || {
                drop(inner.lock().expect("no panic").take());
                let lease = locks.acquire("theirs", 2, HOUR).wait().expect("granted");
                drop(lease);
                done.store(true, Ordering::SeqCst);
            })
        };
        let other = {
            let locks = locks.clone();
            thread::spawn(move || {
                let inner = locks.acquire("inner", 3, HOUR).wait().expect("granted");
                drop((theirs, inner));
            })
        };
        eventually("the other thread", || locks.waiting() == 1);
        let task = waiting(locks.acquire("outer", 4, HOUR), &waker);
        drop(outer);
        assert!(done.load(Ordering::SeqCst));
        other.join().expect("no panic");
        drop(task);
        assert_idle(&locks, ["outer", "inner", "theirs"]);
    });
}

/// Real time: a waker that the driver has called does not return. Everybody else goes on, and who turns the
/// wheel in the driver's place has all that is due.
#[test]
fn a_waker_that_blocks_the_driver_blocks_nobody_else() {
    in_time(|| {
        let locks = LockManager::new();
        let (entered, leave) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicBool::new(false)),
        );
        let waker = {
            let (entered, leave) = (Arc::clone(&entered), Arc::clone(&leave));
            does(move || {
                entered.store(true, Ordering::SeqCst);
                eventually("its end", || leave.load(Ordering::SeqCst));
            })
        };
        locks.try_acquire("a", 1, 50 * MS).expect("free").detach();
        let task = waiting(locks.acquire("a", 2, HOUR), &waker);
        eventually("the driver", || entered.load(Ordering::SeqCst));
        use_everything(&locks);
        // What expires now is seen to by whoever turns the wheel.
        locks.try_acquire("b", 1, MS).expect("free").detach();
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let other = waiting(locks.acquire("b", 2, HOUR), &waker);
        eventually("the expiry", || {
            locks.advance();
            wakes.count() == 1
        });
        leave.store(true, Ordering::SeqCst);
        drop((task, other));
        assert_idle(&locks, ["a", "b"]);
    });
}

/// Acquisitions are dropped in one thread while their session ends in another: the last reference to one of
/// them, and so its waker, may go with either. What that waker does, and that it panics, is no business of
/// who closes the session, nor of the leases that the session has.
#[test]
fn a_session_that_ends_while_its_acquisitions_are_dropped_frees_all_its_keys() {
    in_time(|| {
        let (locks, _clock) = manual();
        let held = locks.try_acquire("a", 1, HOUR).expect("free");
        let bomb = {
            let locks = locks.clone();
            move || {
                use_everything(&locks);
                assert!(thread::panicking(), "on purpose");
            }
        };
        std::panic::set_hook(quiet(std::panic::take_hook()));
        for _ in 0..scaled(20_000) {
            let session = locks.session(2, HOUR).expect("there is room");
            let lease = session.try_acquire("b").expect("free");
            let waits: Vec<_> = (0..4)
                .map(|_| waiting(session.acquire("a"), &on_drop(bomb.clone())))
                .collect();
            thread::scope(|scope| {
                scope.spawn(|| {
                    for acquire in waits {
                        let _ = catch_unwind(AssertUnwindSafe(|| drop(acquire)));
                    }
                });
                let closed = catch_unwind(AssertUnwindSafe(|| session.close()));
                closed.expect("a waker's panic").expect("it is live");
            });
            assert!(!lease.is_live());
            drop(lease);
            assert!(locks.try_acquire("b", 1, HOUR).is_ok());
        }
        drop(held);
        assert_idle(&locks, ["a", "b"]);
    });
}

type Hook = Box<dyn Fn(&std::panic::PanicHookInfo<'_>) + Send + Sync>;

/// Says nothing of panics that are on purpose, of which there are many.
fn quiet(loud: Hook) -> Hook {
    Box::new(move |info| {
        if info.payload().downcast_ref() != Some(&"on purpose") {
            loud(info);
        }
    })
}
