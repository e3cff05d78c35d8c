//! Where a manager's time comes from.

mod coarse;
mod manual;
mod system;
mod word;

pub use coarse::CoarseClock;
pub use manual::ManualClock;
pub use system::SystemClock;

use std::fmt;
use std::time::Duration;

use crate::Timestamp;

/// A source of time for a manager.
///
/// # Rules for implementations
///
/// 1. **Monotonic across threads.** If one reading happens before another, by either method and in
///    any two threads, the second is not less. A manager clamps what it can see go backwards, but
///    two threads of a clock that breaks this may disagree on whether a lease is over.
/// 2. **Never ahead.** A reading is never later than true time, and [`now`](Self::now) is behind
///    it by at most [`resolution`](Self::resolution), as far as the operating system lets the
///    clock run at all.
/// 3. **No waiting.** Both methods are called on the hot path and must not block or panic.
///
/// The date plays no part: a clock counts from an origin of its own.
///
/// It is read inside of operations, under the lock of a queue too: it must not use the manager, and
/// should not block or panic.
///
/// ```
/// use std::time::Instant;
/// use tenure::{Clock, Timestamp};
///
/// /// Time since the program's own epoch.
/// #[derive(Debug)]
/// struct SinceBoot(Instant);
///
/// impl Clock for SinceBoot {
///     fn now(&self) -> Timestamp {
///         Timestamp::ZERO.saturating_add(self.0.elapsed())
///     }
///     fn is_real_time(&self) -> bool {
///         true
///     }
/// }
///
/// let clock = SinceBoot(Instant::now());
/// assert!(clock.now() <= clock.precise_now());
/// ```
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time, cheaply: behind by up to [`resolution`](Self::resolution).
    ///
    /// ```
    /// use tenure::{Clock, CoarseClock};
    ///
    /// let clock = CoarseClock::shared();
    /// assert!(clock.now() <= clock.now());
    /// ```
    fn now(&self) -> Timestamp;

    /// The time, as exactly as it can be had; the same as [`now`](Self::now) unless overridden.
    ///
    /// ```
    /// use tenure::{Clock, CoarseClock};
    ///
    /// let clock = CoarseClock::shared();
    /// assert!(clock.now() <= clock.precise_now());
    /// ```
    fn precise_now(&self) -> Timestamp {
        self.now()
    }

    /// The most that [`now`](Self::now) may be behind; zero unless overridden.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::{Clock, ManualClock};
    ///
    /// assert_eq!(ManualClock::new().resolution(), Duration::ZERO);
    /// ```
    fn resolution(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether the clock advances by itself at the rate of real time, so that a thread can sleep
    /// until one of its timestamps.
    ///
    /// ```
    /// use tenure::{Clock, ManualClock, SystemClock};
    ///
    /// assert!(SystemClock::new().is_real_time());
    /// assert!(!ManualClock::new().is_real_time());
    /// ```
    fn is_real_time(&self) -> bool;

    /// The coarse clock that this is, if it is one: a manager then reads it without a virtual call.
    #[doc(hidden)]
    fn as_coarse(&self) -> Option<&CoarseClock> {
        None
    }
}
