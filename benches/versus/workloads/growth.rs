//! Keys that were never seen before, from an empty table on: all its growth is in it.
//!
//! Beside the mean there is what the slowest grants take. A look at the clock takes as long as a grant, so
//! it is taken between 64 grants: a stall is seen whole, if it is longer than those. Whoever grows in the
//! background has a processor for it here; `processor_ns` is the time of all threads.

use std::time::Instant;

use tenure_benches::measure::processor::all_busy;
use tenure_benches::measure::waited;

use super::large::{Large, Metrics, rounds, trials};
use crate::bench::Bench;
use crate::contenders::{LeaseTable, granted};
use crate::rows::NS;

pub(crate) const NAME: &str = "growth";

pub(crate) fn run(bench: &mut Bench) {
    let name = "growth/1M";
    if !bench.wants(name) {
        return;
    }
    let growth = Growth {
        keys: bench.options.size(1_000_000),
    };
    let rounds = rounds(bench, 3);
    let options = bench.options.clone();
    bench.trials(
        NAME,
        name.into(),
        "grant a key never seen before, of a table that was empty",
        rounds,
        trials(&options, &growth),
    );
}

struct Growth {
    keys: u64,
}

/// Grants between two looks at the clock.
const CHUNK: u64 = 64;

impl Large for Growth {
    fn suits<T: LeaseTable>(&self) -> bool {
        T::MOST_HELD >= self.keys
    }

    fn run<T: LeaseTable>(&self, new: &impl Fn() -> T, round: u64) -> Metrics {
        let table = new();
        let chunks = self.keys / CHUNK;
        let first = round * self.keys + 1;
        let mut micros = Vec::with_capacity(chunks as usize);
        let (waited_before, busy_before) = (waited(), all_busy());
        let start = Instant::now();
        let mut before = start;
        for chunk in 0..chunks {
            let first = first + chunk * CHUNK;
            for key in first..first + CHUNK {
                table.keep(granted(&table, key));
            }
            let now = Instant::now();
            micros.push((now - before).as_nanos() as f64 / 1e3);
            before = now;
        }
        let waited = waited().saturating_sub(waited_before);
        let ran = (before - start).saturating_sub(waited);
        let busy = all_busy().saturating_sub(busy_before);
        let grants = (chunks * CHUNK) as f64;
        micros.sort_by(f64::total_cmp);
        let exceeded_by = |one_in: usize| micros[micros.len() - 1 - micros.len() / one_in];
        vec![
            (NS, ran.as_nanos() as f64 / grants),
            ("processor_ns", busy.as_nanos() as f64 / grants),
            ("64_grants_p50_us", exceeded_by(2)),
            ("64_grants_p99.9_us", exceeded_by(1_000)),
            ("64_grants_p99.99_us", exceeded_by(10_000)),
            ("64_grants_max_us", micros[micros.len() - 1]),
        ]
    }
}
