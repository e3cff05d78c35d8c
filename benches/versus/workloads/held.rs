//! Operations while a million other leases are out, and what those take.

use super::weighing::weigh;
use crate::bench::Bench;
use crate::contenders::{Condition, field};
use crate::floors;
use crate::keys::Spread;
use crate::tasks::{Task, Universe};
use crate::weights::Load;

pub(crate) const NAME: &str = "held";

pub(crate) fn run(bench: &mut Bench) {
    let held = bench.options.size(1_000_000);
    let of = |first| Universe {
        first,
        keys: held,
        spread: Spread::Uniform,
        parts: 1,
    };
    let (out, others) = (of(1), of(held + 1));
    let cases = [
        (
            "held/1M/pair",
            "acquire and release another key",
            Task::Pair(others),
        ),
        (
            "held/1M/refused",
            "ask for a key that is held",
            Task::Refused(out),
        ),
        (
            "held/1M/renew by key",
            "renew one of the leases by key and token",
            Task::RenewByKey(out),
        ),
    ];
    let memory = "held/1M/memory";
    if bench.wants(memory) {
        let load = Load::Held { leases: held };
        weigh(bench, NAME, memory, "a lease that is out", load, |weight| {
            let bytes = weight.end;
            let each = |metric, bytes: u64| (metric, bytes as f64 / held as f64);
            let resident = bytes
                .resident
                .map(|bytes| each("resident_bytes_per_lease", bytes));
            let allocated = each("allocated_bytes_per_lease", bytes.allocated);
            resident.into_iter().chain([allocated]).collect()
        });
    }
    if !cases.iter().any(|(name, ..)| bench.wants(name)) {
        return;
    }
    let condition = Condition {
        seen: held + 1..2 * held + 1,
        held: 1..held + 1,
    };
    let entrants = field(&bench.options, &condition);
    for (name, operation, task) in cases {
        if bench.wants(name) {
            let mut lanes: Vec<_> = entrants
                .iter()
                .filter_map(|entrant| entrant.lane(&task))
                .collect();
            lanes.extend(floors::random(held));
            bench.slices(NAME, name.into(), operation, 1, &lanes);
        }
    }
}
