//! Where latencies are recorded, by kind of operation, and read each second.

use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use serde::Serialize;

/// The longest that is told apart.
const LONGEST: u64 = 600_000_000_000;
/// One in a hundred, in 50 KiB.
const DIGITS: u8 = 2;

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::stress) enum Kind {
    /// `try_acquire` of a key that is free, with two readings of a clock in the figure; so the next two.
    TryAcquire,
    /// Renewal of a plain lease.
    Renew,
    /// Release of a plain lease, by guard or by token.
    Release,
    /// From asking for an exclusive lease to having it, whoever holds the key meanwhile; so the others.
    Exclusive,
    /// For a shared lease.
    Shared,
    /// For a permit.
    Semaphore,
    /// For a lease in a session.
    Sessions,
    /// For several keys at once.
    Multi,
    /// For a lease in any mode where all modes meet.
    Mingled,
}

/// All of them, in order.
pub(super) const KINDS: [(Kind, &str); 9] = [
    (Kind::TryAcquire, "try_acquire"),
    (Kind::Renew, "renew"),
    (Kind::Release, "release"),
    (Kind::Exclusive, "exclusive"),
    (Kind::Shared, "shared"),
    (Kind::Semaphore, "semaphore"),
    (Kind::Sessions, "sessions"),
    (Kind::Multi, "multi"),
    (Kind::Mingled, "mingled"),
];

/// Something for each kind.
pub(super) type Each<T> = [T; KINDS.len()];

/// The latencies since they were last read.
#[derive(Debug)]
pub(in crate::stress) struct Pulse {
    recent: Each<Mutex<Histogram<u64>>>,
}

/// What is told of a histogram, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Quantiles {
    pub(super) count: u64,
    pub(super) p50_ns: u64,
    pub(super) p99_ns: u64,
    pub(super) p999_ns: u64,
    pub(super) max_ns: u64,
}

/// An empty histogram, all of whose memory is resident: what grows later is not this.
pub(super) fn histogram() -> Histogram<u64> {
    let mut histogram = Histogram::new_with_bounds(1, LONGEST, DIGITS)
        .expect("the bounds are constants that the histogram accepts");
    let mut value = 1;
    while value < LONGEST {
        histogram.saturating_record(value);
        // Eight in each power of two: a page holds more than that.
        value += (value / 8).max(1);
    }
    histogram.reset();
    histogram
}

impl Pulse {
    pub(super) fn new() -> Self {
        Self {
            recent: std::array::from_fn(|_| Mutex::new(histogram())),
        }
    }

    pub(in crate::stress) fn record(&self, kind: Kind, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let mut recent = self.recent[kind as usize].lock();
        recent.saturating_record(nanos.max(1));
    }

    /// Exchanges what was recorded of a kind for an empty histogram.
    pub(super) fn take(&self, kind: usize, empty: &mut Histogram<u64>) {
        std::mem::swap(&mut *self.recent[kind].lock(), empty);
    }
}

impl Quantiles {
    /// `None` of an empty histogram.
    pub(super) fn of(histogram: &Histogram<u64>) -> Option<Self> {
        (!histogram.is_empty()).then(|| Self {
            count: histogram.len(),
            p50_ns: histogram.value_at_quantile(0.5),
            p99_ns: histogram.value_at_quantile(0.99),
            p999_ns: histogram.value_at_quantile(0.999),
            max_ns: histogram.max(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kinds_are_listed_in_their_order() {
        for (at, (kind, name)) in KINDS.into_iter().enumerate() {
            assert_eq!(kind as usize, at, "{name}");
        }
    }

    #[test]
    fn what_was_recorded_is_taken_once() {
        let pulse = Pulse::new();
        for micros in 1..=1000 {
            pulse.record(Kind::Renew, Duration::from_micros(micros));
        }
        let (mut taken, renew) = (histogram(), Kind::Renew as usize);
        assert!(Quantiles::of(&taken).is_none());
        pulse.take(renew, &mut taken);
        let told = Quantiles::of(&taken).expect("it was recorded");
        assert_eq!(told.count, 1000);
        assert!((495_000..=510_000).contains(&told.p50_ns), "{told:?}");
        assert!((985_000..=1_010_000).contains(&told.p99_ns), "{told:?}");
        taken.reset();
        pulse.take(renew, &mut taken);
        assert!(taken.is_empty());
    }
}
