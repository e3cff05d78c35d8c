//! What is counted and timed besides the leases, where it costs no short path anything.
//!
//! Recorders and subscribers are code of the user's: what they are to hear is kept in the thread's part,
//! and told with no lock held, where the wakers are woken.

#[cfg(feature = "metrics")]
use std::time::Duration;

use crate::engine::unfailing;
use crate::error::Cycle;
use crate::events::Event;
use crate::key::Key;
use crate::sync::{AtomicU64, Ordering};
use crate::table::Local;

/// Something for recorders and subscribers.
#[derive(Clone, Debug)]
#[cfg_attr(
    not(all(feature = "metrics", feature = "tracing")),
    allow(dead_code, reason = "each feature hears of some of it")
)]
pub(crate) enum Report {
    /// An acquisition that had waited for so many nanoseconds has been answered.
    Waited(u64),
    /// An acquisition has left its queue with nothing.
    GaveUp,
    /// A lease has ended that was held for so many nanoseconds.
    Held(u64),
    Deadlock(Box<Cycle>),
    /// The manager stops renewing a lease.
    KeeperGaveUp(Key, u64),
    Event(Event),
}

/// Whether anybody hears of it.
const HEARD: bool = cfg!(any(feature = "metrics", feature = "tracing"));

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
    pub(crate) fn waited(&self, local: &mut Local, nanos: u64) {
        self.waited.fetch_add(1, Ordering::Relaxed);
        #[cfg(feature = "histograms")]
        self.waits.record(nanos);
        later(local, || Report::Waited(nanos));
    }

    pub(crate) fn gave_up(&self, local: &mut Local) {
        self.gave_up.fetch_add(1, Ordering::Relaxed);
        later(local, || Report::GaveUp);
    }

    /// The caller holds no lock, or keeps the report for later.
    pub(crate) fn deadlock(&self, cycle: &Cycle) -> Report {
        self.deadlocks.fetch_add(1, Ordering::Relaxed);
        Report::Deadlock(Box::new(cycle.clone()))
    }

    pub(crate) fn keeper_gave_up(&self, local: &mut Local, key: Key, token: u64) {
        later(local, || Report::KeeperGaveUp(key, token));
        let _ = self;
    }

    pub(crate) fn held(&self, local: &mut Local, nanos: u64) {
        #[cfg(feature = "histograms")]
        self.held.record(nanos);
        later(local, || Report::Held(nanos));
        let _ = self;
    }

    pub(crate) fn event(&self, local: &mut Local, event: &Event) {
        later(local, || Report::Event(event.clone()));
        let _ = self;
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

fn later(local: &mut Local, report: impl FnOnce() -> Report) {
    if HEARD {
        local.reports.push(report());
    }
}

/// Tells recorders and subscribers, also if one of them panics. The caller holds no lock.
pub(crate) fn tell(reports: Vec<Report>) {
    for report in reports {
        unfailing(|| report.tell());
    }
}

impl Report {
    fn tell(&self) {
        #[cfg(feature = "metrics")]
        self.record();
        #[cfg(feature = "tracing")]
        self.trace();
        let _ = self;
    }

    #[cfg(feature = "metrics")]
    fn record(&self) {
        use metrics::{counter, histogram};
        match self {
            Self::Waited(nanos) => {
                histogram!("tenure_wait_seconds").record(Duration::from_nanos(*nanos));
            }
            Self::GaveUp => counter!("tenure_waits_given_up").increment(1),
            Self::Held(nanos) => {
                histogram!("tenure_hold_seconds").record(Duration::from_nanos(*nanos));
            }
            Self::Deadlock(_) => counter!("tenure_deadlocks").increment(1),
            Self::KeeperGaveUp(..) => counter!("tenure_keepers_given_up").increment(1),
            Self::Event(event) => {
                counter!("tenure_events", "kind" => event.kind.name()).increment(1);
            }
        }
    }

    #[cfg(feature = "tracing")]
    fn trace(&self) {
        match self {
            Self::Waited(_) | Self::GaveUp | Self::Held(_) => {}
            Self::Deadlock(cycle) => tracing::warn!(target: "tenure", %cycle, "deadlock"),
            Self::KeeperGaveUp(key, token) => tracing::warn!(
                target: "tenure",
                %key,
                token,
                "not renewed any more: held for as long as it may"
            ),
            Self::Event(event) => tracing::debug!(
                target: "tenure",
                kind = event.kind.name(),
                key = %event.key,
                name = event.name.as_deref(),
                owner = event.owner.0,
                token = event.token.get(),
                mode = %event.mode,
            ),
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
