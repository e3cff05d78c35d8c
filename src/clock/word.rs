//! The one word of a coarse clock: a time, and whether to trust it.
//!
//! ```text
//!   63                                   2   1        0
//!   [ nanoseconds since the origin         | ASLEEP | UNUSED ]     62 bits are 146 years
//! ```
//!
//! | ASLEEP | UNUSED | the ticker … | a reader … |
//! |---|---|---|---|
//! | 0 | 0 | ticks, and somebody read since the last tick | takes the time |
//! | 0 | 1 | ticks, and nobody read since the last tick | clears UNUSED and takes the time |
//! | 1 | 1 | sleeps with no timeout | reads the real clock and publishes it; clears UNUSED and wakes the ticker if there are many like it |
//! | 1 | 0 | was asked to wake, and has not yet ticked | reads the real clock and publishes it |
//!
//! Who writes what:
//!
//! - Only the ticker sets and clears ASLEEP. It clears it in the same step that brings a fresh
//!   time, so a word without ASLEEP never holds a time from before a sleep, however long the
//!   ticker takes to wake up or a reader to wake it.
//! - The ticker sets UNUSED at each tick; any reader clears it, so a reader writes the shared line
//!   at most once a tick. `(0, 1) -> (1, 1)` is a CAS by the ticker, so a use that comes before it
//!   keeps the ticker awake. One that comes after it sees ASLEEP.
//! - Anyone raises the time; nobody lowers it. Every write is a CAS on the whole word.
//!
//! # Why relaxed accesses are enough
//!
//! Every time that is handed out was in the word when it was read or written there, also on the
//! real-clock path, which publishes before it returns. So all readings are values of *one* atomic
//! variable that only rises. For one variable, coherence holds in every ordering: of two accesses
//! of which one happens before the other, the second sees the same value or a later one. Hence
//! readings are monotonic across threads. No other memory is published through the word.
//!
//! Waking: the reader clears UNUSED, then unparks; the ticker parks, then looks at UNUSED again.
//! If the reader's unpark comes first, it leaves a token and `park` returns at once. If `park`
//! comes first, the unpark ends it. An unpark synchronizes with the return of the park that it
//! ends, so the ticker then sees UNUSED cleared. No wake-up is lost; and if one were, readers
//! would still read the true time, only more slowly.

use crate::sync::{AtomicU64, Ordering};

const UNUSED: u64 = 0b01;
const ASLEEP: u64 = 0b10;
const FLAGS: u64 = UNUSED | ASLEEP;
const SHIFT: u32 = 2;

#[derive(Debug)]
pub(super) struct TickWord(AtomicU64);

impl TickWord {
    /// Asleep, at the origin.
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(FLAGS))
    }

    /// The time, if the ticker is awake and known to be wanted: the hot path of every reading.
    #[inline]
    pub(super) fn trusted(&self) -> Option<u64> {
        let word = self.0.load(Ordering::Relaxed);
        if word & FLAGS == 0 {
            Some(word >> SHIFT)
        } else {
            None
        }
    }

    /// The time if the ticker is awake, after telling it that it is wanted.
    pub(super) fn mark_used(&self) -> Option<u64> {
        let mark = |word: u64| (word & ASLEEP == 0).then_some(word & !UNUSED);
        self.update(mark).map(|before| before >> SHIFT)
    }

    /// Raises the time to `real` and leaves the flags: (the time then, the time before).
    pub(super) fn publish(&self, real: u64) -> (u64, u64) {
        let raise = |word: u64| (word >> SHIFT < real).then_some(pack(real, word & FLAGS));
        if let Some(before) = self.update(raise) {
            (clamp(real), before >> SHIFT)
        } else {
            let later = self.0.load(Ordering::Relaxed) >> SHIFT;
            (later, later)
        }
    }

    /// Asks a sleeping ticker to wake; true for the one caller that must unpark it.
    pub(super) fn ask_to_wake(&self) -> bool {
        // If the ticker has woken meanwhile, this says "used", which is true as well.
        self.0.fetch_and(!UNUSED, Ordering::Relaxed) & FLAGS == FLAGS
    }

    /// Ticker: whether a reader asked.
    pub(super) fn is_asked_to_wake(&self) -> bool {
        self.0.load(Ordering::Relaxed) & FLAGS == ASLEEP
    }

    /// Ticker: brings the time, awake from now on; true if nobody read since the last tick.
    pub(super) fn tick(&self, real: u64) -> bool {
        let tick = |word: u64| Some(pack(real.max(word >> SHIFT), UNUSED));
        self.update(tick).is_some_and(|before| before & UNUSED != 0)
    }

    /// Ticker: falls asleep, unless somebody read since the last tick.
    pub(super) fn fall_asleep(&self) -> bool {
        let sleep = |word: u64| (word & FLAGS == UNUSED).then_some(word | ASLEEP);
        self.update(sleep).is_some()
    }

    #[cfg(all(test, not(any(tenure_loom, tenure_shuttle))))]
    pub(super) fn is_asleep(&self) -> bool {
        self.0.load(Ordering::Relaxed) & ASLEEP != 0
    }

    /// The word before the change, or `None` if `change` wanted none.
    fn update(&self, change: impl FnMut(u64) -> Option<u64>) -> Option<u64> {
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, change)
            .ok()
    }
}

/// The most that the word can hold: after 146 years the time stands still rather than wraps.
const fn clamp(nanos: u64) -> u64 {
    if nanos > u64::MAX >> SHIFT {
        u64::MAX >> SHIFT
    } else {
        nanos
    }
}

const fn pack(nanos: u64, flags: u64) -> u64 {
    clamp(nanos) << SHIFT | flags
}

/// One body, with loom and without: `hour` passes only while the ticker sleeps, and a reader that
/// knows of it must not be told a time from before it.
#[cfg(all(test, not(tenure_shuttle)))]
mod model {
    use super::*;

    /// What a reading may be behind while the ticker is awake: 1 for the time between its look at
    /// the real clock and its tick, and 1 for the next such time, before the next tick.
    const LAG: u64 = 2;

    /// A reading as [`CoarseClock::now`](super::super::CoarseClock) takes it, with the true time
    /// in an atomic; (reading, whether the ticker must be unparked).
    pub(super) fn read(word: &TickWord, truth: &AtomicU64) -> (u64, bool) {
        if let Some(nanos) = word.trusted().or_else(|| word.mark_used()) {
            (nanos, false)
        } else {
            let (nanos, _) = word.publish(truth.load(Ordering::Acquire));
            (nanos, word.ask_to_wake())
        }
    }

    /// A reading, checked against the true time and against all readings that came before it.
    pub(super) fn read_checked(word: &TickWord, truth: &AtomicU64, seen: &AtomicU64) -> bool {
        let seen_before = seen.load(Ordering::Acquire);
        let before = truth.load(Ordering::Acquire);
        let (now, unpark) = read(word, truth);
        assert!(now + LAG >= before, "read {now} at {before}");
        assert!(now >= seen_before, "read {now} after {seen_before}");
        seen.fetch_max(now, Ordering::AcqRel);
        unpark
    }

    /// Lets `by` pass. Sleep comes before, so who sees the new time sees ASLEEP or what follows it.
    pub(super) fn pass(truth: &AtomicU64, by: u64) {
        truth.fetch_add(by, Ordering::AcqRel);
    }
}

#[cfg(all(test, tenure_loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::model::{pass, read, read_checked};
    use super::*;

    /// Every interleaving with at most three preemptions, or more; the faults named below need no more.
    fn explore(body: impl Fn() + Copy + Sync + Send + 'static) {
        crate::sync::exploring::explore(3, "", body);
    }

    /// A reader against a ticker that falls asleep, sleeps for an hour and wakes when asked.
    ///
    /// Fails if a reader takes a time marked ASLEEP, if the reader that asks also clears ASLEEP, if
    /// the real-clock path doesn't publish, or if a tick may lower the time.
    #[test]
    fn no_reading_is_from_before_a_sleep_and_none_falls() {
        const HOUR: u64 = 1_000;
        explore(|| {
            let shared = Arc::new((TickWord::new(), AtomicU64::new(1), AtomicU64::new(0)));
            shared.0.tick(1);
            let reader = {
                let shared = shared.clone();
                thread::spawn(move || {
                    let (word, truth, seen) = &*shared;
                    read_checked(word, truth, seen);
                    read_checked(word, truth, seen);
                })
            };
            let (word, truth, seen) = &*shared;
            if word.fall_asleep() {
                pass(truth, HOUR);
                if word.is_asked_to_wake() {
                    // The ticker reads the real clock, is paused, and ticks with what it read.
                    let real = truth.load(Ordering::Acquire);
                    pass(truth, 1);
                    word.tick(real);
                }
            } else {
                pass(truth, 1);
                word.tick(truth.load(Ordering::Acquire));
            }
            read_checked(word, truth, seen);
            reader.join().unwrap();
        });
    }

    /// Fails if the reader unparks before it clears UNUSED.
    #[test]
    fn a_wake_up_is_never_lost() {
        explore(|| {
            let shared = Arc::new((TickWord::new(), AtomicU64::new(1)));
            let sleeper = {
                let shared = shared.clone();
                thread::spawn(move || {
                    while !shared.0.is_asked_to_wake() {
                        thread::park();
                    }
                    shared.0.tick(2);
                })
            };
            let asked = [(); 2].map(|()| {
                let (shared, ticker) = (shared.clone(), sleeper.thread().clone());
                thread::spawn(move || {
                    let (_, unpark) = read(&shared.0, &shared.1);
                    if unpark {
                        ticker.unpark();
                    }
                    unpark
                })
            });
            let asked = asked.map(|reader| reader.join().unwrap());
            sleeper.join().unwrap();
            assert!(asked[0] != asked[1], "exactly one reader unparks");
        });
    }
}

#[cfg(all(test, not(any(tenure_loom, tenure_shuttle))))]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::model::{pass, read_checked};
    use super::*;

    const THEN: u64 = 1_000;

    /// A word in each of the four states at time `THEN`.
    fn word(flags: u64) -> TickWord {
        TickWord(AtomicU64::new(pack(THEN, flags)))
    }

    fn state(word: &TickWord) -> (u64, u64) {
        let word = word.0.load(Ordering::Relaxed);
        (word >> SHIFT, word & FLAGS)
    }

    #[test]
    fn every_step_does_what_the_table_says() {
        for flags in 0..=FLAGS {
            let asleep = flags & ASLEEP != 0;

            assert_eq!(word(flags).trusted(), (flags == 0).then_some(THEN));

            let used = word(flags);
            assert_eq!(used.mark_used(), (!asleep).then_some(THEN));
            assert_eq!(state(&used), (THEN, if asleep { flags } else { 0 }));

            let published = word(flags);
            assert_eq!(published.publish(THEN + 5), (THEN + 5, THEN));
            assert_eq!(published.publish(THEN + 1), (THEN + 5, THEN + 5));
            assert_eq!(state(&published), (THEN + 5, flags));

            let asked = word(flags);
            assert_eq!(asked.ask_to_wake(), flags == FLAGS);
            assert_eq!(state(&asked), (THEN, flags & !UNUSED));
            assert_eq!(asked.is_asked_to_wake(), asleep);
            assert!(!asked.ask_to_wake(), "one caller unparks");

            for real in [THEN - 1, THEN, THEN + 1] {
                let ticked = word(flags);
                assert_eq!(ticked.tick(real), flags & UNUSED != 0);
                assert_eq!(state(&ticked), (real.max(THEN), UNUSED));
            }

            let sleeping = word(flags);
            assert_eq!(sleeping.fall_asleep(), flags == UNUSED);
            let expected = if flags == UNUSED { FLAGS } else { flags };
            assert_eq!(state(&sleeping), (THEN, expected));
        }
    }

    #[test]
    fn after_146_years_time_stands_still_and_the_flags_stay_whole() {
        let word = TickWord::new();
        word.tick((u64::MAX >> SHIFT) + 1);
        assert_eq!(state(&word), (u64::MAX >> SHIFT, UNUSED));
        word.tick(u64::MAX);
        assert_eq!(state(&word), (u64::MAX >> SHIFT, UNUSED));
        assert_eq!(word.publish(u64::MAX).0, u64::MAX >> SHIFT);
        assert_eq!(state(&word), (u64::MAX >> SHIFT, UNUSED));
    }

    #[test]
    fn no_reading_is_from_before_a_sleep_and_none_falls_under_threads() {
        // The loom model's body, many times over and with real threads: the ticker falls asleep
        // whenever it can, and time passes in long jumps only then.
        const NAPS: u32 = 30_000;
        const HOUR: u64 = 1_000_000;
        let (word, truth, seen) = (TickWord::new(), AtomicU64::new(1), AtomicU64::new(0));
        let (done, start) = (AtomicBool::new(false), Barrier::new(3));
        word.tick(1);
        thread::scope(|scope| {
            let ticker = scope.spawn(|| {
                start.wait();
                let mut naps = 0;
                while naps < NAPS {
                    if word.fall_asleep() {
                        naps += 1;
                        pass(&truth, HOUR);
                        while !word.is_asked_to_wake() {
                            thread::park();
                        }
                    }
                    let real = truth.load(Ordering::Acquire);
                    pass(&truth, 1);
                    word.tick(real);
                }
                done.store(true, Ordering::Release);
            });
            for _ in 0..2 {
                let ticker = ticker.thread().clone();
                let (word, truth, seen, done, start) = (&word, &truth, &seen, &done, &start);
                scope.spawn(move || {
                    start.wait();
                    while !done.load(Ordering::Acquire) {
                        if read_checked(word, truth, seen) {
                            ticker.unpark();
                        }
                    }
                });
            }
        });
        assert!(seen.into_inner() > HOUR);
    }
}
