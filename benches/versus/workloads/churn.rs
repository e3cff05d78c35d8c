//! Keys that never come again, at a constant number of leases out: a table of names of requests, say.
//!
//! Whoever keeps an entry for each key takes more and more memory and grows all the time. Memory is measured
//! for as long as `--seconds` says, for each contender, or for the 36 million keys that an hour brings at
//! 10,000 a second, or until it has grown by 2 GiB: `keys` says how far that was.

use std::time::{Duration, Instant};

use tenure_benches::measure::waited;

use super::large::{Large, Metrics, rounds, trials};
use super::weighing::weigh;
use crate::bench::Bench;
use crate::churn::Churn;
use crate::contenders::LeaseTable;
use crate::rows::NS;
use crate::weights::{Load, Weight};

pub(crate) const NAME: &str = "churn";

/// As many as an hour brings.
const KEYS: u64 = 36_000_000;

pub(crate) fn run(bench: &mut Bench) {
    let options = bench.options.clone();
    let leases = options.size(100_000);
    let operation = "acquire a key never seen before, and release the oldest lease";
    let name = "churn/100k";
    if bench.wants(name) {
        let rounds = rounds(bench, 3);
        let seconds = if options.test { 0.01 } else { options.seconds };
        let churning = Churning {
            leases,
            length: Duration::from_secs_f64(seconds / rounds as f64),
        };
        let trials = trials(&options, &churning);
        bench.trials(NAME, name.into(), operation, rounds, trials);
    }
    let name = "churn/100k/memory";
    if bench.wants(name) {
        let load = Load::Churn {
            leases,
            keys: options.size(KEYS),
            seconds: options.seconds,
        };
        weigh(bench, NAME, name, operation, load, |weight| {
            metrics(weight, leases)
        });
    }
}

struct Churning {
    leases: u64,
    length: Duration,
}

impl Large for Churning {
    fn suits<T: LeaseTable>(&self) -> bool {
        T::MOST_HELD >= self.leases
    }

    fn run<T: LeaseTable>(&self, new: &impl Fn() -> T, _round: u64) -> Metrics {
        /// Between two looks at the clock.
        const CHUNK: u64 = 1024;
        let table = new();
        let mut churn = Churn::new(&table, self.leases);
        churn.fill();
        let waited_before = waited();
        let (start, mut keys) = (Instant::now(), 0);
        let elapsed = loop {
            for _ in 0..CHUNK {
                churn.next();
            }
            keys += CHUNK;
            let elapsed = start.elapsed();
            if elapsed >= self.length {
                break elapsed;
            }
        };
        let ran = elapsed.saturating_sub(waited().saturating_sub(waited_before));
        vec![(NS, ran.as_nanos() as f64 / keys as f64)]
    }
}

fn metrics(weight: &Weight, leases: u64) -> Metrics {
    let each = |bytes: u64| bytes as f64 / leases as f64;
    let growth = |start: u64, end: u64| 100.0 * (end as f64 / start as f64 - 1.0);
    let (start, end) = (weight.start, weight.end);
    let mut metrics = vec![
        ("keys", weight.keys as f64),
        ("allocated_bytes_per_lease", each(start.allocated)),
        ("allocated_bytes_per_lease_in_the_end", each(end.allocated)),
        (
            "allocated_growth_percent",
            growth(start.allocated, end.allocated),
        ),
    ];
    if let (Some(start), Some(end)) = (start.resident, end.resident) {
        metrics.extend([
            ("resident_bytes_per_lease", each(start)),
            ("resident_bytes_per_lease_in_the_end", each(end)),
            ("resident_growth_percent", growth(start, end)),
        ]);
    }
    metrics
}
