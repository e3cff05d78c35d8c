//! Points on a clock's time line.

use std::fmt;
use std::time::Duration;

/// A point in time: nanoseconds since the origin of the clock that read it.
///
/// Only timestamps of one clock can be compared; the system and the coarse clocks of a process
/// share their origin, so theirs can be compared too. 64 bits hold 584 years. It has no relation
/// to the date, and means nothing in another process: send durations, not timestamps.
///
/// Every operation is a few instructions; none panics.
///
/// ```
/// use std::time::Duration;
/// use tenure::Timestamp;
///
/// let start = Timestamp::from_nanos(1_500_000_000);
/// let deadline = start.saturating_add(Duration::from_secs(30));
/// assert_eq!(deadline.saturating_duration_since(start), Duration::from_secs(30));
/// assert_eq!(deadline.to_string(), "31.500000000s");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(transparent)
)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The clock's origin.
    ///
    /// ```
    /// use tenure::Timestamp;
    ///
    /// assert_eq!(Timestamp::ZERO, Timestamp::from_nanos(0));
    /// ```
    pub const ZERO: Self = Self(0);

    /// The last point that can be represented, 584 years after the origin.
    ///
    /// ```
    /// use tenure::Timestamp;
    ///
    /// assert_eq!(Timestamp::MAX.as_nanos(), u64::MAX);
    /// ```
    pub const MAX: Self = Self(u64::MAX);

    /// The point that many nanoseconds after the origin.
    ///
    /// ```
    /// assert_eq!(tenure::Timestamp::from_nanos(5).as_nanos(), 5);
    /// ```
    #[inline]
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    ///
    /// ```
    /// assert_eq!(tenure::Timestamp::MAX.as_nanos(), u64::MAX);
    /// ```
    #[inline]
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this point; zero if `earlier` is the later one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::Timestamp;
    ///
    /// let (a, b) = (Timestamp::from_nanos(10), Timestamp::from_nanos(25));
    /// assert_eq!(b.saturating_duration_since(a), Duration::from_nanos(15));
    /// assert_eq!(a.saturating_duration_since(b), Duration::ZERO);
    /// ```
    #[inline]
    #[must_use]
    pub const fn saturating_duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The time from `earlier` to this point, or `None` if `earlier` is the later one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::Timestamp;
    ///
    /// let (a, b) = (Timestamp::from_nanos(10), Timestamp::from_nanos(25));
    /// assert_eq!(b.checked_duration_since(a), Some(Duration::from_nanos(15)));
    /// assert_eq!(a.checked_duration_since(b), None);
    /// ```
    #[inline]
    #[must_use]
    pub const fn checked_duration_since(self, earlier: Self) -> Option<Duration> {
        match self.0.checked_sub(earlier.0) {
            Some(nanos) => Some(Duration::from_nanos(nanos)),
            None => None,
        }
    }

    /// The point `by` later, or `None` if it is past [`MAX`](Self::MAX).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::Timestamp;
    ///
    /// let start = Timestamp::from_nanos(1);
    /// assert_eq!(start.checked_add(Duration::from_nanos(2)), Some(Timestamp::from_nanos(3)));
    /// assert_eq!(start.checked_add(Duration::MAX), None);
    /// ```
    #[inline]
    #[must_use]
    pub const fn checked_add(self, by: Duration) -> Option<Self> {
        match checked_nanos(by) {
            Some(nanos) => match self.0.checked_add(nanos) {
                Some(nanos) => Some(Self(nanos)),
                None => None,
            },
            None => None,
        }
    }

    /// The point `by` earlier, or `None` if it is before the origin.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::Timestamp;
    ///
    /// let start = Timestamp::from_nanos(3);
    /// assert_eq!(start.checked_sub(Duration::from_nanos(2)), Some(Timestamp::from_nanos(1)));
    /// assert_eq!(start.checked_sub(Duration::from_nanos(4)), None);
    /// ```
    #[inline]
    #[must_use]
    pub const fn checked_sub(self, by: Duration) -> Option<Self> {
        match checked_nanos(by) {
            Some(nanos) => match self.0.checked_sub(nanos) {
                Some(nanos) => Some(Self(nanos)),
                None => None,
            },
            None => None,
        }
    }

    /// The point `by` later, at most [`MAX`](Self::MAX).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::Timestamp;
    ///
    /// assert_eq!(Timestamp::from_nanos(1).saturating_add(Duration::MAX), Timestamp::MAX);
    /// ```
    #[inline]
    #[must_use]
    pub const fn saturating_add(self, by: Duration) -> Self {
        match self.checked_add(by) {
            Some(sum) => sum,
            None => Self::MAX,
        }
    }

    /// The point `by` earlier, at least the origin.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::Timestamp;
    ///
    /// assert_eq!(Timestamp::from_nanos(1).saturating_sub(Duration::MAX), Timestamp::ZERO);
    /// ```
    #[inline]
    #[must_use]
    pub const fn saturating_sub(self, by: Duration) -> Self {
        match self.checked_sub(by) {
            Some(difference) => difference,
            None => Self::ZERO,
        }
    }
}

/// The whole duration in nanoseconds, if 64 bits hold it.
const fn checked_nanos(duration: Duration) -> Option<u64> {
    match duration.as_secs().checked_mul(1_000_000_000) {
        Some(nanos) => nanos.checked_add(duration.subsec_nanos() as u64),
        None => None,
    }
}

/// Seconds since the clock's origin with nine decimals, as in `31.500000000s`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, nanos) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        write!(f, "{seconds}.{nanos:09}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    #[test]
    fn a_huge_duration_saturates_and_never_wraps() {
        // Case 17: a wrapped deadline would lie in the past and fire at once.
        let longest = Duration::from_nanos(u64::MAX);
        for start in [0, 1, u64::MAX / 2, u64::MAX] {
            for by in [
                Duration::MAX,
                longest + Duration::from_nanos(1),
                Duration::from_secs(u64::MAX),
            ] {
                assert_eq!(at(start).checked_add(by), None);
                assert_eq!(at(start).saturating_add(by), Timestamp::MAX);
                assert_eq!(at(start).checked_sub(by), None);
                assert_eq!(at(start).saturating_sub(by), Timestamp::ZERO);
            }
        }
        assert_eq!(at(0).checked_add(longest), Some(Timestamp::MAX));
        assert_eq!(at(1).checked_add(longest), None);
        assert_eq!(Timestamp::MAX.checked_sub(longest), Some(Timestamp::ZERO));
        assert_eq!(at(u64::MAX - 1).checked_sub(longest), None);
    }

    #[test]
    fn adding_and_measuring_agree_to_the_nanosecond() {
        for by in [
            0,
            1,
            999_999_999,
            1_000_000_000,
            1_000_000_001,
            u64::MAX - 7,
        ] {
            let by = Duration::from_nanos(by);
            let later = at(7).checked_add(by).unwrap();
            assert_eq!(later.saturating_duration_since(at(7)), by);
            assert_eq!(later.checked_duration_since(at(7)), Some(by));
            assert_eq!(later.checked_sub(by), Some(at(7)));
        }
    }

    #[test]
    fn the_distance_to_a_later_point_is_zero_or_none() {
        assert_eq!(at(1).saturating_duration_since(at(2)), Duration::ZERO);
        assert_eq!(at(1).checked_duration_since(at(2)), None);
        assert_eq!(at(2).checked_duration_since(at(2)), Some(Duration::ZERO));
    }

    #[test]
    fn it_prints_as_seconds_with_nine_decimals() {
        assert_eq!(at(0).to_string(), "0.000000000s");
        assert_eq!(at(1).to_string(), "0.000000001s");
        assert_eq!(at(12_003_000_000).to_string(), "12.003000000s");
        assert_eq!(Timestamp::MAX.to_string(), "18446744073.709551615s");
    }

    #[test]
    fn deadlines_can_be_computed_in_a_constant() {
        const DEADLINE: Timestamp = Timestamp::ZERO.saturating_add(Duration::from_millis(5));
        assert_eq!(DEADLINE.as_nanos(), 5_000_000);
    }
}
