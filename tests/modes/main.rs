//! Leases that are more than plain exclusive ones, on the manual clock.

mod deadlocks;
mod keeping;
mod model;
mod multi;
mod observing;
mod sessions;
mod sharing;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tenure::{LockManager, ManualClock};

/// A manager with the default tick of 1 ms, no driver, and the clock in the test's hand.
fn manual() -> (LockManager, ManualClock) {
    let clock = ManualClock::new();
    let manager = LockManager::builder()
        .clock(clock.clone())
        .driver(false)
        .build()
        .expect("these options are in order");
    (manager, clock)
}

/// So many milliseconds, which are so many ticks.
fn ms(ticks: u64) -> Duration {
    Duration::from_millis(ticks)
}

/// Moves the clock on, a tick at a time, with the wheel.
fn pass(manager: &LockManager, clock: &ManualClock, ticks: u64) {
    for _ in 0..ticks {
        clock.advance(ms(1));
        manager.advance();
    }
}

/// Counts how often it is woken.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A future in the test's hand.
struct Task<F: Future> {
    future: Pin<Box<F>>,
    wakes: Arc<Wakes>,
}

impl<F: Future> Task<F> {
    fn new(future: F) -> Self {
        Self {
            future: Box::pin(future),
            wakes: Arc::default(),
        }
    }

    /// The same, polled once, when it must not be ready.
    fn pending(future: F) -> Self {
        let mut task = Self::new(future);
        assert!(task.poll().is_none(), "ready at once");
        task
    }

    fn poll(&mut self) -> Option<F::Output> {
        let waker = Waker::from(Arc::clone(&self.wakes));
        match self.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    fn wakes(&self) -> usize {
        self.wakes.0.load(Ordering::SeqCst)
    }
}

/// Nothing is left of anything that a test did.
fn assert_idle(manager: &LockManager) {
    assert_eq!(manager.len(), 0, "leases are left");
    assert_eq!(manager.iter().count(), 0, "leases are seen");
    assert_eq!(manager.waiting(), 0, "somebody waits");
}
