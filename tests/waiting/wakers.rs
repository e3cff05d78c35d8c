//! Wakers are the user's code, and may do anything (I10).

use super::*;
use std::cell::RefCell;
use std::panic;
use std::sync::{Barrier, Mutex};

/// What a panic carries may panic in its turn.
#[test]
fn a_waker_that_panics_twice_keeps_nobody_from_being_woken() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    #[derive(Default)]
    struct Rude(Wakes);
    impl Wake for Rude {
        fn wake(self: Arc<Self>) {
            self.0.0.fetch_add(1, Ordering::SeqCst);
            panic::panic_any(Bomb);
        }
    }
    let (locks, clock) = manual();
    let wakers: Vec<Arc<Rude>> = (0..4).map(|_| Arc::default()).collect();
    let tasks: Vec<_> = (0..4_u64)
        .zip(&wakers)
        .map(|(key, rude)| {
            locks
                .try_acquire(key, 1, SECOND)
                .expect("it is free")
                .detach();
            let mut acquire = Box::pin(locks.acquire(key, 2, HOUR));
            let waker = Waker::from(Arc::clone(rude));
            let answer = acquire.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(answer.is_pending());
            acquire
        })
        .collect();
    clock.advance(2 * SECOND);
    assert_eq!(locks.advance(), 4);
    assert!(wakers.iter().all(|rude| rude.0.count() == 1));
    drop(tasks);
    assert!(locks.is_empty());
}

/// Polls its task on the spot; the task gives the lease back at once, which wakes the next.
struct Inline {
    task: Mutex<Option<Pin<Box<Acquire<'static>>>>>,
    done: Arc<AtomicUsize>,
}

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        let mut task = self
            .task
            .lock()
            .expect("no panic")
            .take()
            .expect("woken once");
        let answer = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(answer, Poll::Ready(Ok(_))));
        self.done.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_queue_of_tasks_that_run_in_their_wakers_takes_no_stack() {
    const COUNT: usize = 5_000;
    let (locks, _clock) = manual();
    let held = locks.try_acquire("a", 1, HOUR).expect("it is free");
    let done = Arc::new(AtomicUsize::new(0));
    for owner in 0..COUNT as u64 {
        let inline = Arc::new(Inline {
            task: Mutex::new(None),
            done: Arc::clone(&done),
        });
        let mut acquire = Box::pin(locks.acquire("a", owner, HOUR).into_owned());
        let waker = Waker::from(Arc::clone(&inline));
        assert!(
            acquire
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        *inline.task.lock().expect("no panic") = Some(acquire);
    }
    drop(held);
    assert_eq!(done.load(Ordering::SeqCst), COUNT);
    assert_eq!((locks.len(), locks.waiting()), (0, 0));
}

/// Real time: the driver calls a waker that owns the last handle of the driver's manager.
#[test]
fn the_driver_may_be_the_one_that_ends_its_manager() {
    struct LastHandle(Mutex<Option<LockManager>>, Arc<Wakes>);
    impl Wake for LastHandle {
        fn wake(self: Arc<Self>) {
            let last = self.0.lock().expect("no panic").take();
            drop(last);
            Arc::clone(&self.1).wake();
        }
    }
    let locks = LockManager::new();
    let soon = Duration::from_millis(50);
    locks
        .try_acquire("a", 1, soon)
        .expect("it is free")
        .detach();
    let mut acquire = pin!(locks.acquire("a", 2, HOUR).into_owned());
    let ended = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::new(LastHandle(
        Mutex::new(Some(locks)),
        Arc::clone(&ended),
    )));
    let answer = acquire.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(answer.is_pending());
    let start = Instant::now();
    while ended.count() == 0 {
        assert!(start.elapsed() < 10 * SECOND, "the driver waits for itself");
        thread::yield_now();
    }
}

/// Acquisitions that wait, or were granted and not looked at, end with their thread's locals.
#[test]
fn acquisitions_may_end_while_their_thread_does() {
    type Kept = RefCell<Vec<Pin<Box<Acquire<'static>>>>>;
    thread_local! {
        static KEPT: Kept = const { RefCell::new(vec![]) };
    }
    let (locks, _clock) = manual();
    for early in [false, true] {
        let held = locks.try_acquire("a", 1, HOUR).expect("it is free");
        let (waiting, released) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                if early {
                    KEPT.with(|kept| kept.borrow_mut().clear());
                }
                for owner in [2, 3] {
                    let mut acquire = Box::pin(locks.acquire("a", owner, HOUR).into_owned());
                    let mut context = Context::from_waker(Waker::noop());
                    assert!(acquire.as_mut().poll(&mut context).is_pending());
                    KEPT.with(|kept| kept.borrow_mut().push(acquire));
                }
                waiting.wait();
                released.wait();
            });
            waiting.wait();
            let mut last = Task::new(locks.acquire("a", 4, HOUR));
            assert!(last.poll().is_pending());
            held.release().expect("it is live");
            released.wait();
            let start = Instant::now();
            while last.wakes.count() == 0 {
                assert!(start.elapsed() < 10 * SECOND, "the grant was lost");
                thread::yield_now();
            }
            drop(last.is_granted().expect("both before it have left"));
        });
        assert_eq!((locks.len(), locks.waiting()), (0, 0));
    }
}

/// Of many leases that end together, the first is handed on before the last has ended.
#[test]
fn nobody_waits_for_the_ends_of_all_other_leases() {
    const KEYS: u64 = 2_000;
    struct First {
        locks: LockManager,
        ended: Mutex<Option<u64>>,
    }
    impl Wake for First {
        fn wake(self: Arc<Self>) {
            // In the midst of an advance, and so with another of the thread's parts.
            drop(
                self.locks
                    .try_acquire("another", 9, SECOND)
                    .expect("it is free"),
            );
            let mut ended = self.ended.lock().expect("no panic");
            ended.get_or_insert_with(|| self.locks.stats().waited);
        }
    }
    let (locks, clock) = manual();
    let first = Arc::new(First {
        locks: locks.clone(),
        ended: Mutex::default(),
    });
    let waker = Waker::from(Arc::clone(&first));
    let mut context = Context::from_waker(&waker);
    let mut waiting: Vec<_> = (0..KEYS)
        .map(|key| {
            let held = locks.try_acquire(key, 1, SECOND);
            held.expect("it is free").detach();
            let mut acquire = Box::pin(locks.acquire(key, 2, HOUR));
            assert!(acquire.as_mut().poll(&mut context).is_pending());
            acquire
        })
        .collect();
    clock.advance(2 * SECOND);
    assert_eq!(locks.advance() as u64, KEYS);
    let ended = first.ended.lock().expect("no panic").expect("a wake-up");
    assert!(ended < KEYS / 4, "{ended} others came first");
    for acquire in &mut waiting {
        assert!(acquire.as_mut().poll(&mut context).is_ready());
    }
}
