//! The operating system's monotonic clock.

use std::sync::OnceLock;
use std::time::Instant;

use super::Clock;
use crate::Timestamp;

/// The operating system's monotonic clock, read at every call.
///
/// Exact, and some 20 to 50 ns a reading ([`Instant::now`]): more than the rest of an acquire.
/// It does not follow changes of the date. Whether it counts the time that the machine is suspended
/// depends on the system; Linux does not count it.
///
/// All system clocks of a process share one origin (the first use of any clock of this crate), so
/// their timestamps can be compared with each other's and with a [`CoarseClock`]'s.
///
/// [`CoarseClock`]: crate::CoarseClock
///
/// ```
/// use tenure::{Clock, SystemClock};
///
/// let clock = SystemClock::new();
/// let before = clock.now();
/// assert!(clock.now() >= before);
/// ```
#[derive(Clone, Debug)]
pub struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    /// The process's system clock; costs no more than a reading.
    ///
    /// ```
    /// use tenure::{Clock, SystemClock};
    ///
    /// let (a, b) = (SystemClock::new(), SystemClock::new());
    /// assert!(a.now() <= b.now());
    /// ```
    #[must_use]
    pub fn new() -> Self {
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        Self {
            origin: *ORIGIN.get_or_init(Instant::now),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Timestamp {
        // `elapsed` is zero, not a panic, if the platform's clock should step back.
        Timestamp::ZERO.saturating_add(self.origin.elapsed())
    }

    fn is_real_time(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn readings_of_several_threads_and_clocks_never_fall() {
        let latest = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let clock = SystemClock::new();
                    for _ in 0..20_000 {
                        let before = latest.load(Ordering::Acquire);
                        let now = clock.now().as_nanos();
                        assert!(now >= before, "{now} after {before}");
                        latest.fetch_max(now, Ordering::AcqRel);
                    }
                });
            }
        });
        assert!(latest.into_inner() > 0);
    }
}
