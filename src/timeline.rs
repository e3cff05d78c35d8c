//! From the clock's nanoseconds to the table's ticks: the only place that converts.
//!
//! Tick `t` begins at `t * tick` nanoseconds. A lease with deadline `d` is live in every tick below
//! `d`. A deadline is rounded up to a tick, and lengthened by the clock's resolution, since a reading
//! may lag by that much: so a lease lasts for its TTL at the least (I3).

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, CoarseClock};
use crate::sync::{AtomicU64, Ordering};
use crate::table::Wanted;
use crate::time::Timestamp;

/// The last tick that a deadline may have, from the start: the wheel's words hold 42 bits. That is 139
/// years of a tick of 1 ms, and 13.9 years of the shortest, 100 microseconds.
pub(crate) const LAST_TICK: u64 = (1 << 42) - (1 << 22);
const _: () = assert!(LAST_TICK <= crate::wheel::LAST_NOW);

/// More seconds than any manager's greatest TTL has, few enough for nanoseconds in 64 bits.
const MAX_SECS: u64 = 1 << 33;

#[derive(Debug)]
enum Source {
    /// Monotonic as it is.
    Coarse(CoarseClock),
    Other(Arc<dyn Clock>),
}

/// A TTL outside the manager's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadTtl {
    TooShort {
        min: Duration,
    },
    TooLong {
        max: Duration,
    },
    /// It is a good one, but the manager has no authority to grant anything.
    NoAuthority,
}

/// What a renewal wants, at the reading of the clock that it counts from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renewal<'a> {
    time: &'a Timeline,
    now: u64,
    /// The deadline is the tick of this.
    end: u64,
}

impl Wanted for Renewal<'_> {
    #[inline]
    fn is_met_by(&self, deadline: u64) -> bool {
        // The deadline wanted is after now, so one that is not before it is after now too. And
        // `end / tick <= deadline` without a division:
        self.end.saturating_sub(self.time.nanos_of(deadline)) < self.time.tick
    }

    #[inline]
    fn later_than(&self, deadline: u64) -> Option<u64> {
        let wanted = self.time.tick_of(self.end);
        (self.time.is_before(self.now, deadline) && deadline < wanted).then_some(wanted)
    }

    #[inline]
    fn ticks(&self) -> (u64, u64) {
        (self.time.tick_of(self.now), self.time.tick_of(self.end))
    }
}

/// A clock cut into ticks.
#[derive(Debug)]
pub(crate) struct Timeline {
    /// The coarse clock, or one that never ticks if the clock is another: a reading is first tried
    /// here, without a look at which it is.
    ticking: CoarseClock,
    source: Source,
    tick: u64,
    /// `floor((2^64 - 1) / tick)`.
    reciprocal: u64,
    /// What is added to a TTL: the clock's resolution, and a tick less one for the rounding up.
    slack: u64,
    /// The highest reading of a clock that might go backwards.
    highest: AtomicU64,
    /// The tick of the first reading: no other is from before.
    start: u64,
    min_ttl: Duration,
    max_ttl: Duration,
    /// No deadline may be computed from more nanoseconds than this.
    last_end: u64,
    /// The same as things are: when the authority ends, less its margin, if that is earlier. From then on
    /// nothing is granted or renewed, and no lease lasts beyond it.
    limit: AtomicU64,
    /// The limits in nanoseconds.
    min_nanos: u64,
    max_nanos: u64,
}

impl Timeline {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        tick: u64,
        min_ttl: Duration,
        max_ttl: Duration,
    ) -> Self {
        let resolution = u64::try_from(clock.resolution().as_nanos()).unwrap_or(u64::MAX);
        let (ticking, source) = match clock.as_coarse() {
            Some(coarse) => (coarse.clone(), Source::Coarse(coarse.clone())),
            None => (CoarseClock::stopped(), Source::Other(clock)),
        };
        let mut line = Self {
            ticking,
            source,
            tick,
            reciprocal: u64::MAX / tick,
            slack: resolution.saturating_add(tick - 1),
            highest: AtomicU64::new(0),
            start: 0,
            min_ttl,
            max_ttl,
            last_end: 0,
            limit: AtomicU64::new(0),
            min_nanos: min_ttl.as_nanos() as u64,
            max_nanos: max_ttl.as_nanos() as u64,
        };
        line.start = line.tick_of(line.now());
        // To the end of that tick.
        let last = line.start.saturating_add(LAST_TICK);
        line.last_end = last.saturating_mul(tick).saturating_add(tick - 1);
        line.limit = AtomicU64::new(line.last_end);
        line
    }

    /// Grants and renewals go on until then at the latest, and leases last no longer; 0 for "no more".
    ///
    /// What is under way in other threads may still be granted by an earlier limit, and ends by that.
    pub(crate) fn set_limit(&self, nanos: u64) {
        self.limit
            .store(nanos.min(self.last_end), Ordering::Release);
    }

    /// How long the authority lasts from `now`; `None` for as long as the manager can count.
    pub(crate) fn authority(&self, now: u64) -> Option<Duration> {
        let limit = self.limit.load(Ordering::Acquire);
        (limit < self.last_end).then(|| Duration::from_nanos(limit.saturating_sub(now)))
    }

    /// The last tick that a lease may last to as things are.
    pub(crate) fn limit_tick(&self) -> u64 {
        self.tick_of(self.limit.load(Ordering::Acquire))
    }

    /// The tick at which the clock was read first.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// The clock's reading in nanoseconds, never less than an earlier one.
    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        match self.ticking.ticked() {
            Some(nanos) => nanos,
            None => self.now_otherwise(),
        }
    }

    #[cold]
    #[inline(never)]
    fn now_otherwise(&self) -> u64 {
        match &self.source {
            Source::Coarse(clock) => clock.now().as_nanos(),
            Source::Other(clock) => self.clamp(clock.now().as_nanos()),
        }
    }

    /// The same, as fresh as the clock can be read.
    pub(crate) fn precise_now(&self) -> u64 {
        match &self.source {
            Source::Coarse(clock) => clock.precise_now().as_nanos(),
            Source::Other(clock) => self.clamp(clock.precise_now().as_nanos()),
        }
    }

    fn clamp(&self, now: u64) -> u64 {
        let highest = self.highest.load(Ordering::Acquire);
        if now <= highest {
            return highest;
        }
        self.highest.fetch_max(now, Ordering::AcqRel).max(now)
    }

    /// The tick of a reading.
    #[inline]
    pub(crate) fn tick_of(&self, nanos: u64) -> u64 {
        // The product falls short of nanos / tick by less than one, so the quotient by at most one.
        let quotient = ((u128::from(nanos) * u128::from(self.reciprocal)) >> 64) as u64;
        quotient + u64::from(nanos - quotient * self.tick >= self.tick)
    }

    /// When a tick begins.
    #[inline]
    pub(crate) fn start_of(&self, tick: u64) -> Timestamp {
        Timestamp::from_nanos(self.nanos_of(tick))
    }

    /// Whether a reading is from before a tick.
    #[inline]
    pub(crate) fn is_before(&self, nanos: u64, tick: u64) -> bool {
        nanos < self.nanos_of(tick)
    }

    /// When a tick begins: no deadline's is beyond 64 bits, since it was rounded down to.
    #[inline]
    fn nanos_of(&self, tick: u64) -> u64 {
        tick.wrapping_mul(self.tick)
    }

    /// What a deadline lies after the reading that it counts from, in nanoseconds and not rounded
    /// down to a tick yet.
    #[inline]
    fn length(&self, ttl: Duration) -> Result<u64, BadTtl> {
        if ttl.as_secs() > MAX_SECS {
            return Err(self.bad_ttl(ttl));
        }
        let nanos = ttl.as_secs() * 1_000_000_000 + u64::from(ttl.subsec_nanos());
        if nanos.wrapping_sub(self.min_nanos) > self.max_nanos - self.min_nanos {
            return Err(self.bad_ttl(ttl));
        }
        Ok(nanos.saturating_add(self.slack))
    }

    /// The tick at which a lease of `ttl`, granted at the reading `now`, is over.
    #[inline(always)]
    pub(crate) fn deadline(&self, now: u64, ttl: Duration) -> Result<u64, BadTtl> {
        match now.checked_add(self.length(ttl)?) {
            Some(end) if end <= self.limit.load(Ordering::Acquire) => Ok(self.tick_of(end)),
            end => self.limited(now, end).map(|end| self.tick_of(end)),
        }
    }

    /// The tick at which a lease is over that has so many nanoseconds left at the reading `now`; `None` if
    /// that is past the end of time. Rounded up as for a grant, whatever the limits of TTLs.
    pub(crate) fn resumed(&self, now: u64, left: u64) -> Option<u64> {
        let end = now.checked_add(left)?.checked_add(self.slack)?;
        (end <= self.last_end).then(|| self.tick_of(end))
    }

    /// The same, with the division left for later.
    #[inline]
    pub(crate) fn renewal(&self, now: u64, ttl: Duration) -> Result<Renewal<'_>, BadTtl> {
        let end = match now.checked_add(self.length(ttl)?) {
            Some(end) if end <= self.limit.load(Ordering::Acquire) => end,
            end => self.limited(now, end)?,
        };
        Ok(Renewal {
            time: self,
            now,
            end,
        })
    }

    /// What is left of a length of time that ends after the limit.
    #[cold]
    fn limited(&self, now: u64, end: Option<u64>) -> Result<u64, BadTtl> {
        let Some(end) = end.filter(|&end| end <= self.last_end) else {
            return Err(self.out_of_time(now));
        };
        let limit = self.limit.load(Ordering::Acquire);
        // A lease that would be over as soon as it is granted is none.
        if self.tick_of(limit) <= self.tick_of(now) {
            return Err(BadTtl::NoAuthority);
        }
        // It may have been raised since the caller has looked.
        Ok(limit.min(end))
    }

    #[cold]
    fn bad_ttl(&self, ttl: Duration) -> BadTtl {
        if ttl < self.min_ttl {
            BadTtl::TooShort { min: self.min_ttl }
        } else {
            BadTtl::TooLong { max: self.max_ttl }
        }
    }

    #[cold]
    fn out_of_time(&self, now: u64) -> BadTtl {
        let left = self.last_end.saturating_sub(now).saturating_sub(self.slack);
        BadTtl::TooLong {
            max: Duration::from_nanos(left),
        }
    }

    /// How long it is from `now` to the start of `tick`.
    pub(crate) fn until(&self, tick: u64, now: u64) -> Duration {
        Duration::from_nanos(self.nanos_until(tick, now))
    }

    /// The same in nanoseconds.
    #[inline]
    pub(crate) fn nanos_until(&self, tick: u64, now: u64) -> u64 {
        self.nanos_of(tick).saturating_sub(now)
    }

    /// The last tick that a deadline may have.
    pub(crate) fn last_tick(&self) -> u64 {
        self.tick_of(self.last_end)
    }

    /// The first tick that is at least so long after the start of that one.
    pub(crate) fn after(&self, tick: u64, length: Duration) -> u64 {
        let nanos = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        let ticks = nanos.div_ceil(self.tick);
        tick.saturating_add(ticks).min(self.last_tick())
    }

    /// A tick that is one of so many parts of that length after `now`, and at least one tick.
    pub(crate) fn part(&self, now: u64, length: Duration, parts: u32) -> u64 {
        let nanos = u64::try_from((length / parts).as_nanos()).unwrap_or(u64::MAX);
        now.saturating_add((nanos / self.tick).max(1))
            .min(self.last_tick())
    }

    pub(crate) fn tick(&self) -> Duration {
        Duration::from_nanos(self.tick)
    }

    /// How far a reading may lag.
    pub(crate) fn resolution(&self) -> Duration {
        Duration::from_nanos(self.slack - (self.tick - 1))
    }
}

#[cfg(all(test, not(tenure_shuttle)))]
mod tests {
    use super::*;
    use crate::ManualClock;

    fn timeline(tick: u64) -> (ManualClock, Timeline) {
        timeline_from(0, tick)
    }

    fn timeline_from(start: u64, tick: u64) -> (ManualClock, Timeline) {
        let clock = ManualClock::new();
        clock.set(Timestamp::from_nanos(start));
        let max = Duration::from_secs(1 << 30);
        let line = Timeline::new(Arc::new(clock.clone()), tick, Duration::from_nanos(1), max);
        (clock, line)
    }

    #[test]
    fn a_tick_is_the_quotient_for_every_divisor_and_reading() {
        for tick in [1, 2, 3, 7, 999_999, 1_000_000, 1_000_003, u64::MAX / 2] {
            let (_, line) = timeline(tick);
            let near = |at: u64| at.saturating_sub(2)..=at.saturating_add(2);
            let readings = [0, tick, u64::MAX / tick * tick, u64::MAX - 2, 1 << 40].map(near);
            for nanos in readings.into_iter().flatten() {
                assert_eq!(line.tick_of(nanos), nanos / tick, "{nanos} / {tick}");
            }
        }
    }

    #[test]
    fn a_deadline_rounds_up_and_never_down() {
        let (_, line) = timeline(1_000_000);
        let ms = |ms| Duration::from_millis(ms);
        assert_eq!(line.deadline(0, ms(1)), Ok(1));
        assert_eq!(line.deadline(1, ms(1)), Ok(2));
        assert_eq!(line.deadline(999_999, Duration::from_nanos(1)), Ok(1));
        assert_eq!(line.deadline(1_000_000, Duration::from_nanos(1)), Ok(2));
    }

    #[test]
    fn the_shortest_and_the_longest_ttl_are_good_ones() {
        let (_, line) = timeline(1_000_000);
        let (min, max) = (Duration::from_nanos(1), Duration::from_secs(1 << 30));
        assert_eq!(line.deadline(0, min), Ok(1));
        assert_eq!(line.deadline(0, max), Ok(1_000 << 30));
        assert_eq!(
            line.deadline(0, Duration::ZERO),
            Err(BadTtl::TooShort { min })
        );
        assert_eq!(line.deadline(0, max + min), Err(BadTtl::TooLong { max }));
        assert_eq!(
            line.deadline(0, Duration::MAX),
            Err(BadTtl::TooLong { max })
        );
    }

    #[test]
    fn a_renewal_lengthens_a_live_lease_that_ends_before_and_no_other() {
        for tick in [1, 3, 1_000_000] {
            let (_, line) = timeline(tick);
            let renewal = line.renewal(5 * tick, Duration::from_nanos(10 * tick));
            let renewal = renewal.expect("a good TTL");
            assert_eq!(renewal.ticks(), (5, 15));
            for deadline in 0..30 {
                let case = format!("a deadline of {deadline}, ticks of {tick} ns");
                assert_eq!(renewal.is_met_by(deadline), deadline >= 15, "{case}");
                let wanted = (6..15).contains(&deadline).then_some(15);
                assert_eq!(renewal.later_than(deadline), wanted, "{case}");
            }
        }
    }

    #[test]
    fn a_part_of_a_time_is_a_tick_after_now_at_least() {
        let (_, line) = timeline(1_000_000);
        let ms = Duration::from_millis;
        assert_eq!(line.part(10, ms(30), 3), 20);
        assert_eq!(line.part(10, ms(1), 3), 11);
        assert_eq!(line.part(10, Duration::MAX, 1), line.last_tick());
    }

    /// A clock whose readings may lag by 3 ms.
    #[derive(Debug)]
    struct Lagging;

    impl Clock for Lagging {
        fn now(&self) -> Timestamp {
            Timestamp::ZERO
        }

        fn resolution(&self) -> Duration {
            Duration::from_millis(3)
        }

        fn is_real_time(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_lease_is_longer_by_what_a_reading_may_lag() {
        let ms = Duration::from_millis;
        let line = Timeline::new(Arc::new(Lagging), 1_000_000, ms(1), ms(1_000));
        assert_eq!(line.resolution(), ms(3));
        assert_eq!(line.deadline(0, ms(10)), Ok(13));
        let (_, exact) = timeline(1_000_000);
        assert_eq!(exact.resolution(), Duration::ZERO);
        assert_eq!(exact.deadline(0, ms(10)), Ok(10));
    }

    #[test]
    fn readings_that_go_backwards_are_clamped() {
        let (clock, line) = timeline(1_000);
        clock.set(Timestamp::from_nanos(5_000));
        assert_eq!(line.now(), 5_000);
        clock.set(Timestamp::from_nanos(3_000));
        assert_eq!(line.now(), 5_000);
        assert_eq!(line.precise_now(), 5_000);
    }

    #[test]
    fn a_deadline_past_the_end_of_time_is_refused() {
        // The end is as far from the manager's birth, whatever the clock said then.
        for (start, tick) in [(0, 1), (u64::MAX / 2, 1), (77, 1_000), (1 << 62, 100_000)] {
            let (_, line) = timeline_from(start, tick);
            assert_eq!(line.start(), start / tick);
            let end = start / tick + LAST_TICK;
            let ttl = Duration::from_nanos(10 * tick);
            assert_eq!(line.deadline((end - 10) * tick, ttl), Ok(end));
            let refused = line.deadline((end - 10) * tick, ttl + Duration::from_nanos(1));
            assert!(matches!(refused, Err(BadTtl::TooLong { max }) if max == ttl));
            assert!(line.renewal((end - 10) * tick + 1, ttl).is_err());
        }
        let (_, line) = timeline_from(u64::MAX - 5, 1);
        assert_eq!(
            line.deadline(u64::MAX - 5, Duration::from_nanos(4)),
            Ok(u64::MAX - 1)
        );
        assert!(line.deadline(u64::MAX - 1, Duration::from_secs(1)).is_err());
    }
}
