//! The two clocks that a hand-rolled table reads.

use std::time::{Duration, Instant};

use tenure::{Clock, CoarseClock};

/// A source of time, read without a virtual call.
pub(crate) trait Time: Send + Sync + 'static {
    /// A reading.
    type Point: Copy + Ord + Send + Sync + 'static;

    /// Starts reading.
    fn new() -> Self;

    /// The time now.
    fn now(&self) -> Self::Point;

    /// The time now in nanoseconds from some start on, for tables that keep it in an atomic word.
    fn nanos(&self) -> u64;

    /// A point that is never in the future.
    fn past(&self) -> Self::Point;

    /// `ttl` after `now`.
    fn after(now: Self::Point, ttl: Duration) -> Self::Point;

    /// How long it is from `from` to `to`.
    fn between(from: Self::Point, to: Self::Point) -> Duration;
}

/// The coarse clock that `tenure` reads too: the same ticker, the same reading.
#[derive(Debug)]
pub(crate) struct Coarse(CoarseClock);

impl Time for Coarse {
    /// Nanoseconds.
    type Point = u64;

    fn new() -> Self {
        Self(CoarseClock::shared())
    }

    #[inline(always)]
    fn now(&self) -> u64 {
        self.0.now().as_nanos()
    }

    #[inline(always)]
    fn nanos(&self) -> u64 {
        self.now()
    }

    #[inline(always)]
    fn past(&self) -> u64 {
        0
    }

    #[inline(always)]
    fn after(now: u64, ttl: Duration) -> u64 {
        now + ttl.as_nanos() as u64
    }

    #[inline(always)]
    fn between(from: u64, to: u64) -> Duration {
        Duration::from_nanos(to - from)
    }
}

/// [`Instant::now`], as hand-rolled tables usually have it.
#[derive(Debug)]
pub(crate) struct Precise(Instant);

impl Time for Precise {
    type Point = Instant;

    fn new() -> Self {
        Self(Instant::now())
    }

    #[inline(always)]
    fn now(&self) -> Instant {
        Instant::now()
    }

    #[inline(always)]
    fn nanos(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }

    #[inline(always)]
    fn past(&self) -> Instant {
        self.0
    }

    #[inline(always)]
    fn after(now: Instant, ttl: Duration) -> Instant {
        now + ttl
    }

    #[inline(always)]
    fn between(from: Instant, to: Instant) -> Duration {
        to - from
    }
}
