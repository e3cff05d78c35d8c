//! The hostile embedder: queues of a million, keys that were chosen to collide, wakers and other code of
//! the user's that panics, blocks and comes back in, guards that are dropped where nobody expects it,
//! processes that fork, and arguments at the ends of their ranges.
//!
//! Nothing here may hang, be lost, be told a wrong answer, or panic but where the user's own code does. Full
//! sizes in release; a hundredth of them in debug. `TENURE_HOSTILE_SCALE=100` has any build do it at full size,
//! and other numbers at as many hundredths.
//!
//! ```console
//! $ cargo test --test hostile                            # a few seconds
//! $ cargo test --release --test hostile -- --nocapture   # a minute or two, with what it has measured
//! $ bash .ci/leaks                                       # nothing of it leaks
//! ```

#![allow(
    clippy::similar_names,
    reason = "a waker counts its wakes, a lease has a least token"
)]

mod collisions;
mod extremes;
#[cfg(unix)]
mod fork;
mod leaving;
mod queue;
mod strangers;
mod wakers;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use tenure::{Acquire, AcquireError, Builder, Lease, LockManager, ManualClock};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
/// Real time: long enough for any scheduler, reached only by a test that fails.
const PATIENCE: Duration = Duration::from_secs(60);

fn on(clock: &ManualClock) -> Builder {
    LockManager::builder().clock(clock.clone()).driver(false)
}

fn manual() -> (LockManager, ManualClock) {
    let clock = ManualClock::new();
    let manager = on(&clock).build().expect("these options are in order");
    (manager, clock)
}

/// So much of the full size as this build is to do.
fn scaled(full: u64) -> u64 {
    let default = if cfg!(debug_assertions) { 1 } else { 100 };
    let scale = std::env::var("TENURE_HOSTILE_SCALE").ok();
    let hundredths = scale.map_or(default, |it| it.parse().expect("a number of hundredths"));
    (full * hundredths / 100).max(1)
}

/// xorshift64.
fn next(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random
}

/// Runs `body` on a thread of its own, so that a deadlock is a failure instead of a hang.
fn in_time(body: impl FnOnce() + Send + 'static) {
    let (done, finished) = mpsc::channel();
    let thread = thread::spawn(move || {
        body();
        let _ = done.send(());
    });
    match finished.recv_timeout(PATIENCE) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("a call did not return"),
        // Done, or the body panicked: the join tells which.
        _ => thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

/// Waits for what other threads are to do.
fn eventually(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        thread::sleep(MS);
    }
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

/// What a waker does; it may hold things that are dropped with it.
struct Does<F: Fn() + Send + Sync + 'static>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for Does<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn does(f: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(Does(f)))
}

type Answer<'m> = Poll<Result<Lease<'m>, AcquireError>>;

fn poll_with<'m>(acquire: &mut Acquire<'m>, waker: &Waker) -> Answer<'m> {
    Pin::new(acquire).poll(&mut Context::from_waker(waker))
}

fn poll<'m>(acquire: &mut Acquire<'m>) -> Answer<'m> {
    poll_with(acquire, Waker::noop())
}

/// An acquisition that waits, with that waker.
fn waiting<'m>(mut acquire: Acquire<'m>, waker: &Waker) -> Acquire<'m> {
    assert!(poll_with(&mut acquire, waker).is_pending(), "ready at once");
    acquire
}

/// Nobody holds or waits, and every key can be had.
fn assert_idle(locks: &LockManager, keys: impl IntoIterator<Item = &'static str>) {
    assert_eq!((locks.len(), locks.waiting()), (0, 0));
    for key in keys {
        let lease = locks.try_acquire(key, 99, HOUR);
        lease.expect("it is free").release().expect("it is live");
    }
    assert_eq!((locks.len(), locks.waiting()), (0, 0));
}
