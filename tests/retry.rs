//! Trying again: the sleeps are injected and move the manual clock, nothing here waits.
#![cfg(feature = "retry")]

use std::cell::RefCell;
use std::future::{Future, ready};
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure::{AcquireError, Lease, LockManager, ManualClock, OwnerId, Retry};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

fn manual() -> (LockManager, ManualClock) {
    let clock = ManualClock::new();
    let built = LockManager::builder()
        .clock(clock.clone())
        .driver(false)
        .build();
    (built.expect("these options are in order"), clock)
}

/// Remembers the sleeps, and moves the clock by them.
#[derive(Clone, Default)]
struct Sleeps {
    slept: Rc<RefCell<Vec<Duration>>>,
    clock: Option<ManualClock>,
}

impl Sleeps {
    fn on(clock: &ManualClock) -> Self {
        Self {
            slept: Rc::default(),
            clock: Some(clock.clone()),
        }
    }

    fn sleep(&self) -> impl Fn(Duration) + 'static {
        let this = self.clone();
        move |delay| {
            this.slept.borrow_mut().push(delay);
            if let Some(clock) = &this.clock {
                clock.advance(delay);
            }
        }
    }

    fn take(&self) -> Vec<Duration> {
        self.slept.take()
    }
}

fn is_held_by(error: &AcquireError, by: u64) -> bool {
    matches!(error, AcquireError::Held { owner, .. } if *owner == OwnerId(by))
}

/// From the grant on, not from the first attempt; rounded up to a tick.
fn lasts_for_its_ttl(lease: &Lease<'_>) {
    let remaining = lease.remaining();
    assert!((SECOND..SECOND + MS).contains(&remaining), "{remaining:?}");
}

#[test]
fn a_free_key_is_granted_without_a_sleep() {
    let (locks, _clock) = manual();
    let sleeps = Sleeps::default();
    let lease = Retry::new().acquire_with(&locks, "a", 1, SECOND, sleeps.sleep());
    assert!(lease.expect("it is free").is_live());
    assert!(sleeps.take().is_empty());
    // Nor by the one that would really sleep.
    let lease = Retry::default().acquire(&locks, "a", 1, SECOND);
    assert_eq!(lease.expect("it is free").owner(), OwnerId(1));
}

#[test]
fn sleeps_are_spread_over_the_whole_of_a_range_that_doubles_up_to_the_cap() {
    const ROUNDS: usize = 400;
    let (locks, _clock) = manual();
    let _held = locks.try_acquire("a", 1, HOUR).expect("it is free");
    let retry = Retry::new().base(MS * 10).cap(MS * 100).max_times(7);
    let ranges = [10, 20, 40, 80, 100, 100, 100].map(|ms| MS * ms);
    let sleeps = Sleeps::default();
    let rounds: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let refused = retry.acquire_with(&locks, "a", 2, SECOND, sleeps.sleep());
            assert!(is_held_by(&refused.expect_err("it is held"), 1));
            sleeps.take()
        })
        .collect();
    for (retry, range) in ranges.into_iter().enumerate() {
        let mut slept: Vec<_> = rounds.iter().map(|round| round[retry]).collect();
        slept.sort();
        // The series is reckoned in single precision.
        let longest = slept[ROUNDS - 1];
        assert!(
            longest <= range + range / 1_000_000,
            "{longest:?} of {range:?}"
        );
        // Bounds of seven standard deviations.
        let below = |share| slept.partition_point(|sleep| *sleep < range.mul_f64(share));
        for (share, least, most) in [(0.25, 40, 170), (0.5, 130, 270), (0.75, 230, 360)] {
            assert!(
                (least..=most).contains(&below(share)),
                "{share} of {range:?}"
            );
        }
        slept.dedup();
        assert!(slept.len() > ROUNDS - 10, "they differ");
    }
    assert!(rounds.iter().all(|round| round.len() == ranges.len()));
}

#[test]
fn a_base_above_the_cap_is_the_cap_and_extremes_do_no_harm() {
    let (locks, _clock) = manual();
    let _held = locks.try_acquire("a", 1, HOUR).expect("it is free");
    let sleeps = Sleeps::default();
    let run = |retry: Retry| {
        let refused = retry.acquire_with(&locks, "a", 2, SECOND, sleeps.sleep());
        assert!(is_held_by(&refused.expect_err("it is held"), 1));
        sleeps.take()
    };
    let slept = run(Retry::new().base(HOUR).cap(MS).max_times(50));
    assert!(slept.len() == 50 && slept.iter().all(|sleep| *sleep <= MS));
    let slept = run(Retry::new().base(Duration::ZERO).max_times(50));
    assert_eq!(slept, [Duration::ZERO; 50]);
    let slept = run(Retry::new()
        .base(Duration::MAX)
        .cap(Duration::MAX)
        .max_times(200));
    assert_eq!(slept.len(), 200);
    assert!(run(Retry::new().max_times(0)).is_empty());
    assert!(run(Retry::new().max_elapsed(Duration::ZERO)).is_empty());
}

#[test]
fn the_lease_is_acquired_once_the_holder_has_gone() {
    let (locks, clock) = manual();
    let before = locks.try_acquire("a", 1, SECOND).expect("it is free");
    let sleeps = Sleeps::on(&clock);
    let retry = Retry::new().max_times(usize::MAX);
    let lease = retry.acquire_with(&locks, "a", 2, SECOND, sleeps.sleep());
    let lease = lease.expect("the first is over some time");
    assert!(lease.token() > before.token(), "I2");
    lasts_for_its_ttl(&lease);
    let slept = sleeps.take();
    let (last, earlier) = slept.split_last().expect("it was held");
    let earlier: Duration = earlier.iter().sum();
    assert!(earlier < SECOND && earlier + *last >= SECOND);
}

#[test]
fn the_last_sleep_ends_with_the_time_that_was_given() {
    let (locks, clock) = manual();
    let _held = locks.try_acquire("a", 1, HOUR).expect("it is free");
    for _ in 0..50 {
        let sleeps = Sleeps::on(&clock);
        let retry = Retry::new().max_times(usize::MAX).max_elapsed(SECOND);
        let refused = retry.acquire_with(&locks, "a", 2, SECOND, sleeps.sleep());
        assert!(is_held_by(&refused.expect_err("it is held"), 1));
        assert_eq!(sleeps.take().iter().sum::<Duration>(), SECOND);
    }
    // What is refused at last is of the last attempt.
    let Err(AcquireError::Held { remaining, .. }) = locks.try_acquire("a", 2, SECOND) else {
        panic!("it is held");
    };
    assert_eq!(remaining + SECOND * 50, HOUR);
}

#[test]
fn other_errors_are_returned_at_once() {
    let clock = ManualClock::new();
    let builder = LockManager::builder().clock(clock).driver(false);
    let locks = builder.max_keys(1).build().expect("these are in order");
    let sleeps = Sleeps::default();
    let retry = |key, ttl| {
        let refused = Retry::new().acquire_with(&locks, key, 2, ttl, sleeps.sleep());
        assert!(sleeps.take().is_empty());
        refused.expect_err("it can't be granted")
    };
    let error = retry("b", Duration::ZERO);
    assert!(matches!(error, AcquireError::TtlTooShort { .. }));
    let _held = locks.try_acquire("a", 1, HOUR).expect("it is free");
    let error = retry("b", SECOND);
    assert_eq!(error, AcquireError::CapacityExceeded { capacity: 1 });
}

#[test]
fn a_key_that_others_wait_for_is_theirs_first() {
    let (locks, clock) = manual();
    let held = locks.try_acquire("a", 1, MS).expect("it is free");
    let mut context = Context::from_waker(Waker::noop());
    let mut waiting = pin!(locks.acquire("a", 2, SECOND));
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    clock.advance(MS);
    // Over, and nobody has noticed: the first attempt hands the key over, and is told who has it.
    let sleeps = Sleeps::on(&clock);
    let owners = Rc::new(RefCell::new(vec![]));
    let retry = Retry::new().max_times(usize::MAX);
    let sleep = {
        let (locks, owners, sleep) = (locks.clone(), Rc::clone(&owners), sleeps.sleep());
        move |delay| {
            let holder = locks.holder("a").map(|holder| holder.owner);
            owners.borrow_mut().extend(holder);
            sleep(delay);
        }
    };
    let lease = retry.acquire_with(&locks, "a", 3, SECOND, sleep);
    assert_eq!(lease.expect("the second is over").owner(), OwnerId(3));
    let owners = owners.take();
    assert!(!owners.is_empty() && owners.iter().all(|owner| *owner == OwnerId(2)));
    assert!(matches!(waiting.poll(&mut context), Poll::Ready(Ok(_))));
    assert!(held.release().is_err());
}

#[test]
fn a_task_sleeps_by_what_it_is_given() {
    let (locks, clock) = manual();
    let _held = locks.try_acquire("a", 1, SECOND).expect("it is free");
    let sleeps = Arc::new(Mutex::new(vec![]));
    let sleep = {
        let (clock, sleeps) = (clock.clone(), Arc::clone(&sleeps));
        move |delay| {
            clock.advance(delay);
            sleeps.lock().expect("no panic").push(delay);
            ready(())
        }
    };
    let retry = Retry::new().max_times(usize::MAX);
    let acquiring = on_any_thread(retry.acquire_async(&locks, "a", 2, SECOND, sleep));
    let mut context = Context::from_waker(Waker::noop());
    let Poll::Ready(lease) = pin!(acquiring).poll(&mut context) else {
        panic!("its sleeps are over at once");
    };
    lasts_for_its_ttl(&lease.expect("the first is over"));
    let slept: Duration = sleeps.lock().expect("no panic").iter().sum();
    assert!(slept >= SECOND);
}

#[test]
fn a_task_that_is_dropped_in_its_sleep_leaves_nothing() {
    let (locks, _clock) = manual();
    let held = locks.try_acquire("a", 1, SECOND).expect("it is free");
    let sleep = |_| std::future::pending();
    let mut acquiring = Box::pin(Retry::new().acquire_async(&locks, "a", 2, SECOND, sleep));
    let mut context = Context::from_waker(Waker::noop());
    assert!(acquiring.as_mut().poll(&mut context).is_pending());
    drop(acquiring);
    assert_eq!((locks.waiting(), locks.len()), (0, 1));
    held.release().expect("it is live");
    assert!(locks.is_empty());
}

fn on_any_thread<F: Future + Send>(future: F) -> F {
    future
}
