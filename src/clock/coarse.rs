//! A clock that one thread reads for all.
//!
//! The ticker thread reads the real clock once a tick and publishes it in one word; a reading is
//! then one load. What the word says and who may write it is in `word.rs`; this file has the
//! thread and decides when it sleeps.
//!
//! The ticker stops when the clock has not been read for [`IDLE_TICKS`] ticks, and parks with no
//! timeout: an idle process has no wake-ups. Readers then read the real clock themselves, and wake
//! the ticker only when [`WAKING_READS`] of them follow each other closely: a lease now and then is
//! cheaper without it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use crossbeam_utils::CachePadded;

use super::word::TickWord;
use super::{Clock, SystemClock};
use crate::Timestamp;
use crate::process::Process;

/// Ticks without a reading after which the ticker goes to sleep.
const IDLE_TICKS: u32 = 16;

/// Readings of the real clock, none a resolution after the one before, that wake the ticker.
const WAKING_READS: u32 = 32;

const SHARED_RESOLUTION: Duration = Duration::from_millis(1);
const FINEST: Duration = Duration::from_micros(100);
const COARSEST: Duration = Duration::from_secs(1);

/// A clock that a background thread, `tenure-clock`, reads for everyone: one load a reading.
///
/// A reading costs about 1 ns, where [`SystemClock`] costs 20 to 50. In exchange, it is behind by
/// up to [`resolution`](Clock::resolution). [`precise_now`](Clock::precise_now) reads the real
/// clock, and the readings of everyone go on from there. Clones share the thread; it sleeps while
/// nobody reads the clock, and ends after the last clone is dropped.
///
/// # What being behind does to leases
///
/// *On the clock, nothing.* All readings in all threads, coarse and precise, are one sequence that
/// never falls. When any thread finds a deadline passed, every later reading of the holder's finds
/// it passed, too. So no lease ever has two holders, and what a holder is told of its remaining
/// time is what everyone else goes by.
///
/// *In real time*, a lease of length `ttl` that was granted when the clock was `g` behind, and
/// whose end was noticed when it was `e` behind, lasts for `ttl - g + e`. Both are at most the
/// resolution while the ticker gets the processor in time, and a manager adds the resolution to its
/// deadlines, so that no lease is shorter than was promised.
///
/// If the ticker does *not* get the processor (an overloaded machine, a throttled container, a
/// process or machine that was stopped and goes on), the clock falls further behind and then
/// makes up for it in one step. `e` lengthens leases, which harms nobody. `g` shortens those that
/// were granted meanwhile, in real time though not on the clock. The holder sees that as soon as
/// it asks the manager; a holder that counts the time from the grant on a watch of its own, such as
/// a remote client, doesn't. Where that matters and fencing tokens are not checked, use
/// [`SystemClock`].
///
/// The thread doesn't survive a `fork`: in a child that goes on without `exec`, make no use of
/// clocks from before, which may stand still, but of those that it makes or asks for itself.
///
/// ```
/// use tenure::{Clock, CoarseClock, SystemClock};
///
/// let clock = CoarseClock::shared();
/// // However long nobody read it, it is never stale:
/// let before = SystemClock::new().now();
/// assert!(clock.now() >= before.saturating_sub(clock.resolution()));
/// ```
#[derive(Clone)]
pub struct CoarseClock {
    shared: Arc<Shared>,
    ticker: Arc<Ticker>,
}

/// What readers and the ticker's thread share. The thread holds this and not the [`Ticker`], whose
/// last reference is the last clone of the clock.
struct Shared {
    /// On a cache line of its own: everyone reads it and it changes once a tick.
    word: CachePadded<TickWord>,
    real: SystemClock,
    resolution: Duration,
    /// Readings in a row that found the ticker asleep. A guess: a lost count wakes it later.
    sleeping_reads: AtomicU32,
    stop: AtomicBool,
}

/// Ends the thread when the last clone of the clock goes.
struct Ticker {
    shared: Arc<Shared>,
    /// `None` if it could not be started; then the word says ASLEEP for ever.
    thread: Option<Thread>,
}

impl CoarseClock {
    /// The clock of this process, with a resolution of one millisecond.
    ///
    /// Its thread is started by the first call, and sleeps for as long as nobody reads the clock. A child that
    /// was forked has one of its own.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::{Clock, CoarseClock};
    ///
    /// assert_eq!(CoarseClock::shared().resolution(), Duration::from_millis(1));
    /// ```
    #[must_use]
    pub fn shared() -> Self {
        /// Replaced after a fork. (No lock, that a thread could hold as the process forks.)
        static SHARED: ArcSwapOption<(Process, CoarseClock)> = ArcSwapOption::const_empty();
        let this = Process::this();
        loop {
            let shared = SHARED.load();
            if let Some(shared) = &*shared
                && shared.0 == this
            {
                return shared.1.clone();
            }
            let new = Arc::new((this, Self::with_resolution(SHARED_RESOLUTION)));
            SHARED.compare_and_swap(&shared, Some(new));
        }
    }

    /// A clock with a thread of its own that is behind by at most `resolution`.
    ///
    /// The resolution is brought into the range from 100 microseconds to one second. If the system
    /// refuses the thread, the clock reads the real clock every time: slower, and exact.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::{Clock, CoarseClock};
    ///
    /// let clock = CoarseClock::with_resolution(Duration::from_millis(10));
    /// assert_eq!(clock.resolution(), Duration::from_millis(10));
    /// ```
    #[must_use]
    pub fn with_resolution(resolution: Duration) -> Self {
        Self::start(resolution, |shared| {
            let ticker = move || run(&shared);
            let spawned = thread::Builder::new()
                .name("tenure-clock".into())
                .spawn(ticker);
            // Detached: a `join` in the last clone's drop would make that drop wait.
            spawned.ok().map(|handle| handle.thread().clone())
        })
    }

    /// A clock that nobody ticks: only [`ticked`](Self::ticked) may be asked.
    pub(crate) fn stopped() -> Self {
        Self::start(COARSEST, |_| None)
    }

    /// The reading in nanoseconds while the ticker is at work.
    #[inline(always)]
    pub(crate) fn ticked(&self) -> Option<u64> {
        self.shared.word.trusted()
    }

    fn start(resolution: Duration, spawn: impl FnOnce(Arc<Shared>) -> Option<Thread>) -> Self {
        let shared = Arc::new(Shared {
            word: CachePadded::new(TickWord::new()),
            real: SystemClock::new(),
            resolution: resolution.clamp(FINEST, COARSEST),
            sleeping_reads: AtomicU32::new(0),
            stop: AtomicBool::new(false),
        });
        let thread = spawn(Arc::clone(&shared));
        let ticker = Arc::new(Ticker {
            shared: Arc::clone(&shared),
            thread,
        });
        Self { shared, ticker }
    }

    /// Once a tick, and while the ticker sleeps.
    #[cold]
    fn now_slow(&self) -> Timestamp {
        if let Some(nanos) = self.shared.word.mark_used() {
            return Timestamp::from_nanos(nanos);
        }
        let (now, before) = self.shared.publish();
        let reads = &self.shared.sleeping_reads;
        if now.saturating_duration_since(before) >= self.shared.resolution {
            reads.store(1, Ordering::Relaxed);
        } else if reads.fetch_add(1, Ordering::Relaxed) + 1 >= WAKING_READS {
            self.wake();
        }
        now
    }

    fn wake(&self) {
        if let Some(thread) = &self.ticker.thread
            && self.shared.word.ask_to_wake()
        {
            thread.unpark();
        }
    }
}

impl Shared {
    fn real_nanos(&self) -> u64 {
        self.real.now().as_nanos()
    }

    /// Reads the real clock for everyone: (the time, the time that was published before).
    fn publish(&self) -> (Timestamp, Timestamp) {
        let (now, before) = self.word.publish(self.real_nanos());
        (Timestamp::from_nanos(now), Timestamp::from_nanos(before))
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = &self.thread {
            thread.unpark();
        }
    }
}

/// The ticker's thread. Parks may end for no reason; both loops look again.
fn run(shared: &Shared) {
    // A quarter less than promised, so that the timer's slack and a slow wake-up fit in.
    let period = shared.resolution * 3 / 4;
    loop {
        while !shared.word.is_asked_to_wake() {
            if shared.is_stopped() {
                return;
            }
            thread::park();
        }
        shared.sleeping_reads.store(0, Ordering::Relaxed);
        shared.word.tick(shared.real_nanos());
        let mut idle = 0;
        loop {
            thread::park_timeout(period);
            if shared.is_stopped() {
                return;
            }
            let unused = shared.word.tick(shared.real_nanos());
            idle = if unused { idle + 1 } else { 0 };
            if idle >= IDLE_TICKS && shared.word.fall_asleep() {
                break;
            }
        }
    }
}

impl Clock for CoarseClock {
    #[inline]
    fn now(&self) -> Timestamp {
        match self.shared.word.trusted() {
            Some(nanos) => Timestamp::from_nanos(nanos),
            None => self.now_slow(),
        }
    }

    fn precise_now(&self) -> Timestamp {
        self.shared.publish().0
    }

    fn resolution(&self) -> Duration {
        self.shared.resolution
    }

    fn is_real_time(&self) -> bool {
        true
    }

    fn as_coarse(&self) -> Option<&CoarseClock> {
        Some(self)
    }
}

impl fmt::Debug for CoarseClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoarseClock")
            .field("resolution", &self.shared.resolution)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(tenure_loom, tenure_shuttle))))]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    /// Real time: long enough for any scheduler, reached only by a test that fails.
    const PATIENCE: Duration = Duration::from_secs(30);
    const MILLISECOND: Duration = Duration::from_millis(1);

    fn clock() -> CoarseClock {
        CoarseClock::with_resolution(MILLISECOND)
    }

    /// Real time: runs `step` until `done`.
    fn until(what: &str, done: impl Fn() -> bool, mut step: impl FnMut()) {
        let real = SystemClock::new();
        let start = real.now();
        while !done() {
            let waited = real.now().saturating_duration_since(start);
            assert!(waited < PATIENCE, "waited in vain for {what}");
            step();
        }
    }

    fn awaken(clock: &CoarseClock) {
        until(
            "the ticker",
            || !clock.shared.word.is_asleep(),
            || _ = clock.now(),
        );
    }

    fn let_sleep(clock: &CoarseClock) {
        let nap = || thread::sleep(MILLISECOND);
        until("it to fall asleep", || clock.shared.word.is_asleep(), nap);
    }

    #[test]
    fn a_reading_after_an_idle_spell_is_true() {
        // Real time. An acquire with a stale reading would be born expired.
        let (clock, real) = (clock(), SystemClock::new());
        for _ in 0..3 {
            awaken(&clock);
            let_sleep(&clock);
            thread::sleep(5 * MILLISECOND);
            let before = real.now();
            assert!(clock.now() >= before);
            assert!(clock.now() <= real.now());
        }
    }

    #[test]
    fn a_few_readings_do_not_wake_the_ticker_and_are_true() {
        // Real time.
        let (clock, real) = (clock(), SystemClock::new());
        for _ in 0..10 {
            for _ in 0..WAKING_READS / 4 {
                let before = real.now();
                assert!(clock.now() >= before);
            }
            thread::sleep(2 * MILLISECOND);
        }
        assert!(clock.shared.word.is_asleep());
        assert!(!clock.shared.word.is_asked_to_wake());
    }

    #[test]
    fn precise_readings_are_true_awake_or_asleep_and_bind_the_others() {
        // Real time.
        let (clock, real) = (clock(), SystemClock::new());
        for awake in [false, true] {
            if awake {
                awaken(&clock);
            }
            for _ in 0..1_000 {
                let before = real.now();
                let precise = clock.precise_now();
                assert!(precise >= before && precise <= real.now());
                assert!(clock.now() >= precise);
            }
        }
    }

    #[test]
    fn the_clock_runs_while_it_is_read() {
        // Real time: the ticker brings new readings although no reader looks at the real clock.
        let clock = clock();
        awaken(&clock);
        let start = clock.now();
        let goal = start.saturating_add(20 * MILLISECOND);
        until(
            "20 ms to pass",
            || clock.shared.word.trusted() >= Some(goal.as_nanos()),
            || {
                let _ = clock.now();
            },
        );
    }

    #[test]
    fn readings_never_fall_across_threads_sleeps_and_precise_readings() {
        // Real time: threads pause for longer than the ticker stays awake.
        let clock = CoarseClock::with_resolution(FINEST);
        let latest = AtomicU64::new(0);
        thread::scope(|scope| {
            for lane in 0..4_u32 {
                let (clock, latest) = (clock.clone(), &latest);
                scope.spawn(move || {
                    for round in 0..60 {
                        for step in 0..500 {
                            let before = latest.load(Ordering::Acquire);
                            let now = if step % 16 == lane {
                                clock.precise_now()
                            } else {
                                clock.now()
                            };
                            assert!(now.as_nanos() >= before, "{now} after {before}");
                            latest.fetch_max(now.as_nanos(), Ordering::AcqRel);
                        }
                        thread::sleep(FINEST * (round % 4 * 8));
                    }
                });
            }
        });
        assert!(latest.into_inner() <= SystemClock::new().now().as_nanos());
    }

    #[test]
    fn without_a_thread_every_reading_is_the_real_time() {
        let (clock, real) = (
            CoarseClock::start(MILLISECOND, |_| None),
            SystemClock::new(),
        );
        for _ in 0..10 * WAKING_READS {
            let before = real.now();
            let now = clock.now();
            assert!(now >= before && now <= real.now());
        }
        assert!(clock.shared.word.is_asleep());
    }

    #[test]
    fn the_thread_ends_with_the_last_clone_awake_or_asleep() {
        // Real time.
        for awake in [false, true] {
            let clock = clock();
            let clone = clock.clone();
            if awake {
                awaken(&clock);
            }
            let shared = Arc::downgrade(&clock.shared);
            drop(clock);
            assert!(!clone.shared.is_stopped());
            drop(clone);
            // Only the thread can hold it now.
            until(
                "the thread's end",
                || shared.strong_count() == 0,
                thread::yield_now,
            );
        }
    }

    #[test]
    fn resolutions_out_of_range_are_brought_into_it() {
        for (asked, got) in [
            (Duration::ZERO, FINEST),
            (Duration::from_micros(250), Duration::from_micros(250)),
            (Duration::MAX, COARSEST),
        ] {
            let clock = CoarseClock::with_resolution(asked);
            assert_eq!(clock.resolution(), got);
            let printed = format!("{clock:?}");
            assert!(
                printed.contains("CoarseClock") && printed.contains(&format!("{got:?}")),
                "{printed}"
            );
        }
        assert_eq!(CoarseClock::shared().resolution(), SHARED_RESOLUTION);
        assert!(Arc::ptr_eq(
            &CoarseClock::shared().shared,
            &CoarseClock::shared().shared
        ));
    }
}
