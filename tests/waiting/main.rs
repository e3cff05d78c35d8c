//! Waiting for a lease (I7): order, hand-over, cancellation; on the manual clock unless said otherwise.

mod cancelling;
mod limits;
mod storm;
mod wakers;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use tenure::{Acquire, AcquireError, Builder, FencingToken, Lease, LockManager, ManualClock};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

fn on(clock: &ManualClock) -> Builder {
    LockManager::builder().clock(clock.clone()).driver(false)
}

fn manual() -> (LockManager, ManualClock) {
    let clock = ManualClock::new();
    let manager = on(&clock).build().expect("these options are in order");
    (manager, clock)
}

/// Counts how often it is woken.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wakes {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A pinned acquisition with its own waker, polled by hand.
struct Task<'m> {
    acquire: Pin<Box<Acquire<'m>>>,
    wakes: Arc<Wakes>,
}

type Answer<'m> = Poll<Result<Lease<'m>, AcquireError>>;

impl<'m> Task<'m> {
    fn new(acquire: Acquire<'m>) -> Self {
        Self {
            acquire: Box::pin(acquire),
            wakes: Arc::default(),
        }
    }

    fn poll(&mut self) -> Answer<'m> {
        let waker = Waker::from(Arc::clone(&self.wakes));
        self.acquire.as_mut().poll(&mut Context::from_waker(&waker))
    }

    fn is_granted(&mut self) -> Option<Lease<'m>> {
        match self.poll() {
            Poll::Ready(result) => Some(result.expect("granted")),
            Poll::Pending => None,
        }
    }
}

/// As many tasks that wait for `key`, in the order of their owners from 10.
fn queue<'m>(locks: &'m LockManager, key: &str, count: u64) -> Vec<Task<'m>> {
    (10..10 + count)
        .map(|owner| {
            let mut task = Task::new(locks.acquire(key, owner, HOUR));
            assert!(task.poll().is_pending());
            task
        })
        .collect()
}

#[test]
fn a_free_key_is_granted_at_once() {
    let (locks, _clock) = manual();
    let lease = Task::new(locks.acquire("a", 1, SECOND)).is_granted();
    let lease = lease.expect("it is free");
    assert!(lease.is_live());
    assert_eq!(lease.remaining(), SECOND);
    lease.release().expect("it is live");
    assert!(locks.is_empty());
    assert_eq!(locks.waiting(), 0);
}

#[test]
fn waiters_are_granted_in_the_order_of_arrival_with_one_wake_each() {
    let (locks, _clock) = manual();
    let mut held = locks.try_acquire("a", 1, HOUR).expect("it is free");
    let mut tasks = queue(&locks, "a", 20);
    let mut before = held.token();
    for next in 0..tasks.len() {
        assert_eq!(locks.waiting(), tasks.len() - next);
        held.release().expect("it is live");
        let woken: Vec<_> = tasks.iter().map(|task| task.wakes.count()).collect();
        let expected: Vec<_> = (0..tasks.len()).map(|at| usize::from(at <= next)).collect();
        assert_eq!(woken, expected, "I7: one release, one wake");
        held = tasks[next].is_granted().expect("it is its turn");
        assert_eq!(held.owner().0, 10 + next as u64);
        assert!(held.token() > before, "I2");
        before = held.token();
        let later = tasks.iter_mut().skip(next + 1);
        assert!(later.map(Task::poll).all(|answer| answer.is_pending()));
    }
    held.release().expect("it is live");
    assert_eq!((locks.waiting(), locks.len()), (0, 0));
    // Nothing is left of the queue: the short way is open again.
    locks
        .try_acquire("a", 1, HOUR)
        .expect("it is free")
        .release()
        .expect("it is live");
}

/// Nobody barges past a waiting head, from whatever side (I7).
#[test]
fn nobody_is_granted_a_key_that_others_wait_for() {
    let (locks, clock) = manual();
    let held = locks.try_acquire("a", 1, SECOND).expect("it is free");
    let mut tasks = queue(&locks, "a", 2);
    let refused = |by: u64| matches!(locks.try_acquire("a", 9, SECOND), Err(AcquireError::Held { owner, .. }) if owner.0 == by);
    assert!(refused(1));
    drop(held);
    assert!(refused(10), "the head has it, though it has not looked yet");
    let first = tasks[0].is_granted().expect("it is its turn");
    // Its lease expires, and nobody turns the wheel: whoever comes helps the queue on.
    clock.advance(2 * HOUR);
    assert!(refused(11), "I7, I8");
    assert!(first.release().is_err());
    assert!(tasks[1].is_granted().is_some());
}

#[test]
fn the_lease_of_a_holder_who_dies_passes_on_within_a_tick() {
    let (locks, clock) = manual();
    let token = locks
        .try_acquire("a", 1, SECOND)
        .expect("it is free")
        .detach();
    let mut tasks = queue(&locks, "a", 3);
    clock.advance(Duration::from_nanos(999_999_999));
    locks.advance();
    assert!(tasks[0].poll().is_pending(), "I3");
    clock.advance(Duration::from_millis(1));
    locks.advance();
    let woken: Vec<_> = tasks.iter().map(|task| task.wakes.count()).collect();
    assert_eq!(woken, [1, 0, 0], "exactly one");
    let lease = tasks[0].is_granted().expect("I8");
    assert!(lease.token() > token);
    let remaining = lease.remaining();
    let counted = HOUR..=HOUR + locks.tick();
    assert!(
        counted.contains(&remaining),
        "the TTL counts from the grant: {remaining:?}"
    );
}

#[test]
fn a_revocation_and_a_release_by_token_pass_the_lease_on() {
    let (locks, _clock) = manual();
    let token = locks
        .try_acquire("a", 1, HOUR)
        .expect("it is free")
        .detach();
    let mut tasks = queue(&locks, "a", 2);
    locks.release("a", token).expect("it is live");
    let lease = tasks[0].is_granted().expect("it is its turn");
    locks.revoke("a").expect("it is live");
    assert!(!lease.is_live());
    assert!(tasks[1].is_granted().is_some());
}

/// Other keys' leases come and go in the same buckets, and the table grows and shrinks under a queue.
#[test]
fn a_queue_outlives_growing_and_shrinking() {
    let (locks, _clock) = manual();
    let held = locks.try_acquire("a", 1, HOUR).expect("it is free");
    let mut tasks = queue(&locks, "a", 3);
    let others = |count: u64| -> Vec<_> {
        let keys = 0..count;
        keys.map(|key| locks.try_acquire(key, 5, HOUR).expect("it is free"))
            .collect()
    };
    let many = others(20_000);
    held.release().expect("it is live");
    drop(many);
    let first = tasks[0].is_granted().expect("it is its turn");
    let many = others(20_000);
    assert!(matches!(
        locks.try_acquire("a", 9, HOUR),
        Err(AcquireError::Held { .. })
    ));
    drop(many);
    for _ in 0..1_000 {
        locks.advance();
    }
    first.release().expect("it is live");
    let second = tasks[1].is_granted().expect("it is its turn");
    second.release().expect("it is live");
    drop(tasks[2].is_granted().expect("it is its turn"));
    assert_eq!((locks.waiting(), locks.len()), (0, 0));
}

#[test]
fn case_11_every_waiter_resolves_when_the_number_of_leases_is_limited() {
    let clock = ManualClock::new();
    let locks = on(&clock)
        .max_keys(2)
        .build()
        .expect("these options are in order");
    let held = locks.try_acquire("a", 1, HOUR).expect("it is free");
    let _other = locks.try_acquire("b", 1, HOUR).expect("there is room");
    let mut tasks = queue(&locks, "a", 3);
    let full = Task::new(locks.acquire("c", 1, HOUR)).poll();
    assert!(matches!(
        full,
        Poll::Ready(Err(AcquireError::CapacityExceeded { capacity: 2 }))
    ));
    let mut lease = held;
    for task in &mut tasks {
        lease.release().expect("it is live");
        lease = task.is_granted().expect("its predecessor made room");
    }
    drop(lease);
    assert_eq!((locks.waiting(), locks.len()), (0, 1));
}

#[test]
fn a_full_queue_says_so_and_loses_nobody() {
    let clock = ManualClock::new();
    let builder = on(&clock).max_waiters_per_key(2).max_waiters(3);
    let locks = builder.build().expect("these options are in order");
    let held = ["a", "b"].map(|key| locks.try_acquire(key, 1, HOUR).expect("it is free"));
    let mut a = queue(&locks, "a", 2);
    let refusal = |key: &str| match Task::new(locks.acquire(key, 7, HOUR)).poll() {
        Poll::Ready(Err(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(refusal("a"), AcquireError::QueueFull { limit: 2 });
    let mut b = queue(&locks, "b", 1);
    assert_eq!(refusal("b"), AcquireError::QueueFull { limit: 3 });
    drop(held);
    assert!(
        a[0].is_granted()
            .is_some_and(|lease| lease.release().is_ok())
    );
    assert!(
        a[1].is_granted()
            .is_some_and(|lease| lease.release().is_ok())
    );
    assert!(
        b[0].is_granted()
            .is_some_and(|lease| lease.release().is_ok())
    );
    assert_eq!((locks.waiting(), locks.len()), (0, 0));
}

#[test]
fn bad_requests_are_refused_at_once() {
    let (locks, _clock) = manual();
    let _held = locks.try_acquire("a", 1, HOUR).expect("it is free");
    let answer = |ttl| Task::new(locks.acquire("a", 1, ttl)).poll();
    assert!(matches!(
        answer(Duration::ZERO),
        Poll::Ready(Err(AcquireError::TtlTooShort { .. }))
    ));
    assert!(matches!(
        answer(Duration::MAX),
        Poll::Ready(Err(AcquireError::TtlTooLong { .. }))
    ));
    assert_eq!(locks.waiting(), 0);
}

#[test]
fn those_who_wait_hear_that_the_manager_is_gone() {
    let (locks, _clock) = manual();
    let lease = locks
        .try_acquire("a", 1, HOUR)
        .expect("it is free")
        .into_owned();
    let mut task = Task::new(locks.acquire("a", 2, HOUR).into_owned());
    let mut late = Task::new(locks.acquire("b", 2, HOUR).into_owned());
    assert!(task.poll().is_pending());
    drop(locks);
    assert_eq!(task.wakes.count(), 1);
    assert!(matches!(
        task.poll(),
        Poll::Ready(Err(AcquireError::Closed))
    ));
    assert!(matches!(
        late.poll(),
        Poll::Ready(Err(AcquireError::Closed))
    ));
    drop(lease);
}

/// An error says more than its name (I11).
#[test]
fn the_errors_of_waiting_say_what_to_do_next() {
    let full = AcquireError::QueueFull { limit: 7 }.to_string();
    assert!(full.contains('7') && full.contains("max_waiters"), "{full}");
    let late = AcquireError::TimedOut.to_string();
    assert!(late.contains("wait longer"), "{late}");
    let closed = AcquireError::Closed.to_string();
    assert!(closed.contains("keep a handle"), "{closed}");
}

#[test]
fn an_acquisition_can_go_to_any_task() {
    fn anywhere<T: Send + Sync + Unpin>(_: &T) {}
    let (locks, _clock) = manual();
    let acquire = locks.acquire("a", 1, SECOND);
    anywhere(&acquire);
    let shown = format!("{acquire:?}");
    assert!(
        shown.contains("waiting: false") && shown.contains("\"a\""),
        "{shown}"
    );
    let mut owned = Task::new(acquire.into_owned());
    let lease: Lease<'static> = owned.is_granted().expect("it is free");
    lease.release().expect("it is live");
    assert!(owned.poll().is_pending(), "nothing comes after the end");
}

/// Case 7: waiters were purged after some minutes.
#[test]
fn case_7_a_waiter_waits_for_a_day() {
    let (locks, clock) = manual();
    let held = locks.try_acquire("a", 1, 48 * HOUR).expect("it is free");
    let mut tasks = queue(&locks, "a", 3);
    for _ in 0..24 {
        clock.advance(HOUR);
        locks.advance();
    }
    held.release().expect("it is live");
    for task in &mut tasks {
        let lease = task.is_granted().expect("it is its turn, in order");
        lease.release().expect("it is live");
    }
}

/// Case 12: one wake for each release.
#[test]
fn case_12_a_thousand_waiters_are_woken_a_thousand_times() {
    let (locks, _clock) = manual();
    let held = locks.try_acquire("a", 1, HOUR).expect("it is free");
    let mut tasks = queue(&locks, "a", 1_000);
    drop(held);
    for task in &mut tasks {
        drop(task.is_granted().expect("it is its turn"));
    }
    let wakes: usize = tasks.iter().map(|task| task.wakes.count()).sum();
    assert_eq!(wakes, 1_000);
}

/// Wakers are the user's code: one that panics keeps nothing from happening, one that uses the manager
/// finds it at its service (I10).
#[test]
fn a_waker_may_panic_or_use_the_manager() {
    struct Rude(LockManager, FencingToken);
    impl Wake for Rude {
        fn wake(self: Arc<Self>) {
            let lease = self.0.try_acquire("other", 3, HOUR).expect("it is free");
            assert!(matches!(
                self.0.try_acquire("a", 3, HOUR),
                Err(AcquireError::Held { .. })
            ));
            assert!(self.0.validate("a", self.1).is_err());
            lease.release().expect("it is live");
            panic!("on purpose");
        }
    }
    let (locks, _clock) = manual();
    let held = locks.try_acquire("a", 1, HOUR).expect("it is free");
    let waker = Waker::from(Arc::new(Rude(locks.clone(), held.token())));
    let mut acquire = pin!(locks.acquire("a", 2, HOUR));
    assert!(
        acquire
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    held.release()
        .expect("a panic elsewhere is no reason to fail");
    let granted = acquire.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(matches!(granted, Poll::Ready(Ok(_))));
    for key in 0..100 {
        drop(locks.try_acquire(key, 1, HOUR).expect("it is free"));
    }
}

/// Real time.
#[test]
fn a_blocked_thread_gets_the_lease_or_gives_up_in_time() {
    let locks = LockManager::new();
    let held = locks.try_acquire("a", 1, HOUR).expect("it is free");
    let start = Instant::now();
    let late = locks
        .acquire("a", 2, HOUR)
        .wait_timeout(Duration::from_millis(30));
    assert_eq!(late.err(), Some(AcquireError::TimedOut));
    assert!(start.elapsed() >= Duration::from_millis(30));
    let late = locks.acquire("a", 2, HOUR).wait_until(Instant::now());
    assert_eq!(late.err(), Some(AcquireError::TimedOut));
    assert_eq!(locks.waiting(), 0);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            locks
                .acquire("a", 2, HOUR)
                .wait()
                .map(|lease| lease.owner())
        });
        while locks.waiting() == 0 {
            thread::yield_now();
        }
        held.release().expect("it is live");
        let owner = waiting.join().expect("no panic").expect("granted");
        assert_eq!(owner.0, 2);
    });
}

/// Real time: the driver hands over.
#[test]
fn the_driver_passes_an_expired_lease_on() {
    let locks = LockManager::new();
    let ttl = Duration::from_millis(40);
    let before = locks.try_acquire("a", 1, ttl).expect("it is free");
    let deadline = before.deadline();
    let _token = before.detach();
    let lease = locks.acquire("a", 2, HOUR).wait().expect("granted");
    // On the manager's clock, which may have lagged at the grant on a busy machine.
    assert!(locks.now() >= deadline, "I3");
    assert!(lease.is_live());
}
