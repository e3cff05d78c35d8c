//! Operations while a million other leases are out, and what those take.

use crate::bench::Bench;
use crate::contenders::{Condition, Entrant, field};
use crate::floors;
use crate::keys::Spread;
use crate::rows::{NS, Series};
use crate::tasks::{Task, Universe};

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
    if !cases.iter().any(|(name, ..)| bench.wants(name)) && !bench.wants(memory) {
        return;
    }
    let condition = Condition {
        seen: held + 1..2 * held + 1,
        held: 1..held + 1,
    };
    let entrants = field(&bench.options, &condition);
    if bench.wants(memory) {
        bench.push(
            NAME,
            memory.into(),
            "a lease that is out",
            &setups(&entrants, held),
        );
    }
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

/// What it took to get the leases out.
fn setups(entrants: &[Entrant], held: u64) -> Vec<Series> {
    let series = |entrant: &Entrant, metric, value| Series {
        contender: entrant.name,
        kind: entrant.kind,
        metric,
        values: vec![value],
    };
    let of = |entrant: &Entrant| {
        let bytes = entrant.resident.map(|bytes| bytes as f64 / held as f64);
        let memory = bytes.map(|bytes| series(entrant, "resident_bytes_per_lease", bytes));
        let grants = series(entrant, NS, entrant.grant_nanos);
        memory.into_iter().chain([grants]).collect::<Vec<_>>()
    };
    entrants.iter().flat_map(of).collect()
}
