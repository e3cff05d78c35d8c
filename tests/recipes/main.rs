//! The recipes: elections and shard ownership, on the manual clock.

mod election;
mod shards;
mod shards_model;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tenure::{Builder, LockManager, ManualClock, recipes};

fn options(clock: &ManualClock) -> Builder {
    LockManager::builder().clock(clock.clone()).driver(false)
}

/// A manager with the default tick of 1 ms, no driver, and the clock in the test's hand.
fn manual() -> (LockManager, ManualClock) {
    let clock = ManualClock::new();
    let locks = options(&clock).build();
    (locks.expect("these options are in order"), clock)
}

/// So many milliseconds, which are so many ticks.
fn ms(ticks: u64) -> Duration {
    Duration::from_millis(ticks)
}

/// Moves the clock on, a tick at a time, with the wheel.
fn pass(locks: &LockManager, clock: &ManualClock, ticks: u64) {
    for _ in 0..ticks {
        clock.advance(ms(1));
        locks.advance();
    }
}

/// They own what they need, so tasks and threads can pass them on.
#[test]
fn the_values_of_recipes_can_be_sent() {
    fn sent<T: Send + 'static>() {}
    fn shared<T: Send + Sync + 'static>() {}
    shared::<recipes::Election>();
    shared::<recipes::Leadership>();
    shared::<recipes::ShardPool>();
    shared::<recipes::Member>();
    sent::<recipes::Campaign>();
    sent::<recipes::Observer>();
    sent::<recipes::Changed<'static>>();
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
    /// Polled once, when it must not be ready.
    fn pending(future: F) -> Self {
        let mut task = Self {
            future: Box::pin(future),
            wakes: Arc::default(),
        };
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
