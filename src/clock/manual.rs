//! A clock that is moved by hand.

use std::time::Duration;

use super::Clock;
use crate::Timestamp;
use crate::sync::facade::AtomicU64;
use crate::sync::{Arc, Ordering};

/// A clock that stands still until it is moved: for tests and for replicated state machines.
///
/// Clones share the time. A manager on a manual clock is deterministic: the same operations at
/// the same times give the same outcome. Reading it is one load, moving it one atomic operation.
///
/// ```
/// use std::time::Duration;
/// use tenure::{Clock, ManualClock, Timestamp};
///
/// let clock = ManualClock::new();
/// let same = clock.clone();
/// clock.advance(Duration::from_secs(1));
/// assert_eq!(same.now(), Timestamp::from_nanos(1_000_000_000));
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    nanos: Arc<AtomicU64>,
}

impl ManualClock {
    /// A clock at [`Timestamp::ZERO`].
    ///
    /// ```
    /// use tenure::{Clock, ManualClock, Timestamp};
    ///
    /// assert_eq!(ManualClock::new().now(), Timestamp::ZERO);
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the clock to that time, backwards too.
    ///
    /// Setting it back breaks the rules of [`Clock`] on purpose, so that a test can show what a
    /// manager makes of a clock that does: it stays at the latest time that it has seen.
    ///
    /// ```
    /// use tenure::{Clock, ManualClock, Timestamp};
    ///
    /// let clock = ManualClock::new();
    /// clock.set(Timestamp::from_nanos(5));
    /// assert_eq!(clock.now(), Timestamp::from_nanos(5));
    /// ```
    pub fn set(&self, to: Timestamp) {
        self.nanos.store(to.as_nanos(), Ordering::Release);
    }

    /// Moves the clock forward by that much, at most to [`Timestamp::MAX`].
    ///
    /// Calls of several threads add up; none is lost.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::{Clock, ManualClock, Timestamp};
    ///
    /// let clock = ManualClock::new();
    /// clock.advance(Duration::MAX);
    /// assert_eq!(clock.now(), Timestamp::MAX);
    /// ```
    pub fn advance(&self, by: Duration) {
        let later = |nanos| Some(Timestamp::from_nanos(nanos).saturating_add(by).as_nanos());
        // The closure never returns `None`, so this can't fail.
        let _ = self
            .nanos
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, later);
    }
}

impl Clock for ManualClock {
    /// What was done before the clock was moved is seen by whoever reads the new time.
    #[inline]
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.nanos.load(Ordering::Acquire))
    }

    fn is_real_time(&self) -> bool {
        false
    }
}

#[cfg(all(test, not(tenure_shuttle)))]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn advances_of_several_threads_add_up() {
        let clock = ManualClock::new();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1_000).for_each(|_| clock.advance(Duration::from_nanos(3))));
            }
        });
        assert_eq!(clock.now(), Timestamp::from_nanos(12_000));
    }

    #[test]
    fn it_stands_still_and_can_be_set_back() {
        let clock = ManualClock::new();
        clock.set(Timestamp::from_nanos(9));
        assert_eq!(clock.now(), clock.precise_now());
        clock.set(Timestamp::from_nanos(4));
        assert_eq!(clock.clone().now(), Timestamp::from_nanos(4));
        assert!(!clock.is_real_time());
    }

    #[test]
    fn the_end_of_time_is_not_passed() {
        let clock = ManualClock::new();
        clock.set(Timestamp::from_nanos(u64::MAX - 1));
        clock.advance(Duration::from_nanos(5));
        assert_eq!(clock.now(), Timestamp::MAX);
    }
}
