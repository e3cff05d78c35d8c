//! What is counted and timed besides the leases, where it costs no short path anything.

#[cfg(feature = "metrics")]
use std::time::Duration;

use crate::events::Event;
use crate::sync::{AtomicU64, Ordering};

/// The engine's own.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    waited: AtomicU64,
    gave_up: AtomicU64,
    deadlocks: AtomicU64,
    #[cfg(feature = "histograms")]
    held: Times,
    #[cfg(feature = "histograms")]
    waits: Times,
}

impl Metrics {
    /// An acquisition that had waited has been answered.
    pub(crate) fn waited(&self, nanos: u64) {
        self.waited.fetch_add(1, Ordering::Relaxed);
        #[cfg(feature = "histograms")]
        self.waits.record(nanos);
        #[cfg(feature = "metrics")]
        metrics::histogram!("tenure_wait_seconds").record(Duration::from_nanos(nanos));
        let _ = nanos;
    }

    /// An acquisition has left its queue with nothing.
    pub(crate) fn gave_up(&self) {
        self.gave_up.fetch_add(1, Ordering::Relaxed);
        #[cfg(feature = "metrics")]
        metrics::counter!("tenure_waits_given_up").increment(1);
    }

    /// A deadlock was found.
    pub(crate) fn deadlock(&self, cycle: &crate::Cycle) {
        self.deadlocks.fetch_add(1, Ordering::Relaxed);
        #[cfg(feature = "metrics")]
        metrics::counter!("tenure_deadlocks").increment(1);
        #[cfg(feature = "tracing")]
        tracing::warn!(target: "tenure", %cycle, "deadlock");
        let _ = cycle;
    }

    /// The manager stops renewing a lease.
    pub(crate) fn keeper_gave_up(&self, key: crate::Key, token: u64) {
        #[cfg(feature = "metrics")]
        metrics::counter!("tenure_keepers_given_up").increment(1);
        #[cfg(feature = "tracing")]
        tracing::warn!(target: "tenure", %key, token, "not renewed any more: held for as long as it may");
        let _ = (self, key, token);
    }

    /// A lease whose length is known has ended.
    pub(crate) fn held(&self, nanos: u64) {
        #[cfg(feature = "histograms")]
        self.held.record(nanos);
        #[cfg(feature = "metrics")]
        metrics::histogram!("tenure_hold_seconds").record(Duration::from_nanos(nanos));
        let _ = (self, nanos);
    }

    /// Something has happened that is told.
    pub(crate) fn event(&self, event: &Event) {
        #[cfg(feature = "metrics")]
        metrics::counter!("tenure_events", "kind" => event.kind.name()).increment(1);
        #[cfg(feature = "tracing")]
        tracing::debug!(
            target: "tenure",
            kind = event.kind.name(),
            key = %event.key,
            name = event.name.as_deref(),
            owner = event.owner.0,
            token = event.token.get(),
            mode = %event.mode,
        );
        let _ = (self, event);
    }

    pub(crate) fn totals(&self) -> (u64, u64, u64) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (
            load(&self.waited),
            load(&self.gave_up),
            load(&self.deadlocks),
        )
    }

    #[cfg(feature = "histograms")]
    pub(crate) fn histograms(&self) -> Histograms {
        Histograms {
            held: self.held.get(),
            waited: self.waits.get(),
        }
    }
}

/// How long leases were held and acquisitions waited, in nanoseconds: see
/// [`LockManager::histograms`](crate::LockManager::histograms).
#[cfg(feature = "histograms")]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Histograms {
    /// From the grant of a lease to its end; only under
    /// [`introspection`](crate::Builder::introspection).
    pub held: hdrhistogram::Histogram<u64>,
    /// From joining a queue to the answer.
    pub waited: hdrhistogram::Histogram<u64>,
}

/// Lengths of time, to two digits.
#[cfg(feature = "histograms")]
#[derive(Debug)]
struct Times(crate::sync::Mutex<hdrhistogram::Histogram<u64>>);

#[cfg(feature = "histograms")]
impl Default for Times {
    fn default() -> Self {
        let times = hdrhistogram::Histogram::new(2).expect("two digits are in range");
        Self(crate::sync::Mutex::new(times))
    }
}

#[cfg(feature = "histograms")]
impl Times {
    fn record(&self, nanos: u64) {
        // It grows with what it is given; without memory for that, this one is not counted.
        let _ = self.0.lock().record(nanos);
    }

    fn get(&self) -> hdrhistogram::Histogram<u64> {
        self.0.lock().clone()
    }
}
