//! What is seen each second: memory, throughput, latencies.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Serialize, Serializer};
use tenure::LockManager;

use super::pulse::{Each, KINDS, Pulse, Quantiles, histogram};
use crate::stress::memory::Memory;
use crate::stress::run::rate;

const EVERY: Duration = Duration::from_secs(1);

/// One second.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Sample {
    /// Since the start.
    pub(super) second: f64,
    pub(super) resident_bytes: Option<u64>,
    /// Allocated and not freed, in the whole program.
    pub(super) heap_bytes: u64,
    /// As the manager tells it.
    pub(super) manager_bytes: u64,
    pub(super) leases: u64,
    pub(super) buckets: u64,
    pub(super) waiting: u64,
    pub(super) grants_per_s: u64,
    pub(super) expiries_per_s: u64,
    #[serde(serialize_with = "by_name")]
    pub(super) latency: Each<Option<Quantiles>>,
}

/// All samples so far.
#[derive(Debug)]
pub(in crate::stress) struct Samples {
    pulse: Arc<Pulse>,
    pub(super) taken: Vec<Sample>,
    /// The latencies of the whole run.
    pub(super) totals: Each<Histogram<u64>>,
    empty: Histogram<u64>,
    begin: Instant,
    last: Instant,
    granted: u64,
    expired: u64,
}

impl Samples {
    /// With room for so many, all of it resident: what grows later is not this.
    pub(super) fn new(seconds: u64) -> Self {
        let none = Sample {
            second: -1.0,
            resident_bytes: None,
            heap_bytes: 0,
            manager_bytes: 0,
            leases: 0,
            buckets: 0,
            waiting: 0,
            grants_per_s: 0,
            expiries_per_s: 0,
            latency: [Some(Quantiles::default()); _],
        };
        let mut taken = vec![none; usize::try_from(seconds).unwrap_or(0) + 1];
        taken.clear();
        let now = Instant::now();
        Self {
            pulse: Arc::new(Pulse::new()),
            taken,
            totals: std::array::from_fn(|_| histogram()),
            empty: histogram(),
            begin: now,
            last: now,
            granted: 0,
            expired: 0,
        }
    }

    pub(in crate::stress) fn pulse(&self) -> Arc<Pulse> {
        Arc::clone(&self.pulse)
    }

    /// Takes a sample if a second has passed since the last one.
    pub(in crate::stress) fn take_if_due(&mut self, manager: &LockManager) {
        let now = Instant::now();
        let since = now - self.last;
        if since < EVERY || self.taken.len() == self.taken.capacity() {
            return;
        }
        self.last = now;
        let stats = manager.stats();
        let (granted, expired) = (stats.granted - self.granted, stats.expired - self.expired);
        (self.granted, self.expired) = (stats.granted, stats.expired);
        let latency = std::array::from_fn(|kind| {
            self.empty.reset();
            self.pulse.take(kind, &mut self.empty);
            let recent = &self.empty;
            self.totals[kind]
                .add(recent)
                .expect("all have the same bounds");
            Quantiles::of(recent)
        });
        self.taken.push(Sample {
            second: (now - self.begin).as_secs_f64(),
            resident_bytes: Memory::read().map(|memory| memory.resident),
            heap_bytes: Memory::allocated(),
            manager_bytes: stats.memory_bytes as u64,
            leases: stats.leases as u64,
            buckets: stats.buckets as u64,
            waiting: manager.waiting() as u64,
            grants_per_s: rate(granted, since),
            expiries_per_s: rate(expired, since),
            latency,
        });
    }
}

/// As an object with a field for each kind.
pub(super) fn by_name<T: Serialize, S: Serializer>(
    each: &Each<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(KINDS.iter().map(|kind| kind.1).zip(each))
}
