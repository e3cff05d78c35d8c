//! Whether expiries were acted on in time, judged second by second.
//!
//! They can't be more punctual than threads are that sleep as the manager's driver does, and than the driver gets a
//! processor. The most that these were late in the whole run would excuse everything on a machine that stood still
//! once; so what the manager says is compared with what was seen at about that time. (It says the most so far: what
//! is less late than something before it is not judged.)

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::args::TICK;
use super::holding::Stage;

/// The latest that an expiry may be acted on, over what the system's own timers are late in the whole run.
const EXPIRY_LAG: Duration = TICK.saturating_mul(5);
/// The same, over what they are late at about that time: a worker that has a key's lock and loses its processor to
/// others keeps the driver waiting, and none of these timers then.
const EXPIRY_LAG_THEN: Duration = TICK.saturating_mul(20);
/// How long a period is.
const PERIOD: Duration = Duration::from_secs(1);

/// What threads have seen of the machine's timers, and the manager of its expiries.
#[derive(Debug)]
pub(super) struct Lateness {
    /// The most that a timer was late in this period, in nanoseconds.
    timers: AtomicU64,
    judge: Mutex<Judge>,
}

#[derive(Debug)]
struct Judge {
    /// When this period began.
    since: Instant,
    /// When the periods before it ended, and the most that a timer was late in each.
    periods: Vec<(Instant, Duration)>,
    /// The most that an expiry was late so far.
    most: Duration,
    /// The same, if that has risen in the period before this one.
    risen: Option<Duration>,
    late: Option<Late>,
}

/// An expiry that was acted on too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Late {
    pub(super) expiry: Duration,
    /// The most that a timer was late at about that time.
    pub(super) timers: Duration,
}

impl Lateness {
    pub(super) fn new() -> Self {
        Self {
            timers: AtomicU64::new(0),
            judge: Mutex::new(Judge {
                since: Instant::now(),
                periods: vec![],
                most: Duration::ZERO,
                risen: None,
                late: None,
            }),
        }
    }

    /// A timer was so late, or the driver waited for so long.
    fn timer(&self, late: Duration) {
        let nanos = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
        self.timers.fetch_max(nanos, Relaxed);
    }

    /// Sleeps as the manager's driver does at its shortest, and notes how late that was.
    pub(super) fn sample(&self, stage: &Stage) {
        let asleep = Instant::now();
        thread::sleep(TICK);
        let lag = asleep.elapsed().saturating_sub(TICK);
        self.timer(lag.max(stage.driver.since()));
        self.beat(|| stage.manager.stats().max_expiry_lag);
    }

    /// To be called often, after [`timer`](Self::timer), with a way to ask for the most that an expiry was late so far.
    fn beat(&self, max_expiry_lag: impl FnOnce() -> Duration) {
        let mut judge = self.judge.lock();
        let now = Instant::now();
        if now.duration_since(judge.since) >= PERIOD {
            judge.end_period(now, self.timers.swap(0, Relaxed), max_expiry_lag());
        }
    }

    /// At the end: the most that a timer was late in the run, and an expiry that was too late if there is one.
    pub(super) fn end(&self, max_expiry_lag: Duration) -> (Duration, Option<Late>) {
        let mut judge = self.judge.lock();
        let now = Instant::now();
        judge.end_period(now, self.timers.swap(0, Relaxed), max_expiry_lag);
        judge.end_period(now, 0, max_expiry_lag);
        judge.end()
    }
}

impl Judge {
    fn end_period(&mut self, now: Instant, timers: u64, most: Duration) {
        let began = std::mem::replace(&mut self.since, now);
        self.periods.push((now, Duration::from_nanos(timers)));
        // Not before: another thread may have been late in the same moment, and said so just now.
        if let Some(expiry) = self.risen.take() {
            // It should have been acted on so long before the end of the last period, or a period more.
            let from = began.checked_sub(expiry + PERIOD);
            let then = |&&(end, _): &&(Instant, Duration)| from.is_none_or(|from| end >= from);
            let timers = self.periods.iter().rev().take_while(then);
            let timers = timers.map(|period| period.1).max().unwrap_or_default();
            if expiry > EXPIRY_LAG_THEN + 2 * timers {
                self.late.get_or_insert(Late { expiry, timers });
            }
        }
        if most > self.most {
            self.most = most;
            self.risen = Some(most);
        }
    }

    fn end(&mut self) -> (Duration, Option<Late>) {
        let timers = self.periods.iter().map(|period| period.1);
        let timers = timers.max().unwrap_or_default();
        let expiry = self.most;
        if expiry > EXPIRY_LAG + 2 * timers {
            self.late.get_or_insert(Late { expiry, timers });
        }
        (timers, self.late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Periods of a second, in each of which timers were as late, and expiries by its end, as it says in milliseconds.
    fn judged(periods: &[(u64, u64)]) -> Option<Late> {
        let mut judge = Lateness::new().judge.into_inner();
        let begin = judge.since;
        let (mut most, mut number) = (Duration::ZERO, 0);
        for &(timers, expiries) in periods.iter().chain([&(0, 0); 2]) {
            number += 1;
            most = most.max(Duration::from_millis(expiries));
            judge.end_period(begin + PERIOD * number, timers * 1_000_000, most);
        }
        judge.end().1
    }

    #[test]
    fn expiry_may_be_as_late_as_the_timers_of_the_system_make_it() {
        assert_eq!(judged(&[]), None);
        assert_eq!(judged(&[(0, 5)]), None);
        assert!(judged(&[(0, 6)]).is_some());
        assert_eq!(judged(&[(1, 7)]), None);
        assert!(judged(&[(1, 8)]).is_some());
        assert_eq!(judged(&[(1, 7), (0, 7), (0, 7)]), None);
        assert!(judged(&[(1, 7), (0, 8), (0, 0)]).is_some());
    }

    #[test]
    fn a_timer_excuses_what_was_late_at_about_that_time_and_nothing_else() {
        let ms = Duration::from_millis;
        // The other thread is told of it in the next period.
        assert_eq!(judged(&[(0, 100), (100, 0)]), None);
        assert_eq!(judged(&[(100, 0), (0, 100)]), None);
        let late = Late {
            expiry: ms(100),
            timers: ms(1),
        };
        let far = [(1, 0), (1, 100), (1, 0), (1, 0), (100, 0)];
        assert_eq!(judged(&far), Some(late));
        let far = [(100, 0), (1, 0), (1, 0), (1, 0), (1, 100), (1, 0)];
        assert_eq!(judged(&far), Some(late));
        // Seconds late, after the machine stood still for so long.
        let long = [(3000, 0), (1, 0), (1, 0), (1, 3000), (1, 0)];
        assert_eq!(judged(&long), None);
    }
}
