//! Taking turns on one key: how long it takes from a release until the next holder runs.
//!
//! See [`tenure_benches::turns`]. Threads release as soon as another wants the lock.

use std::time::Duration;

use tenure_benches::measure::Kind;
use tenure_benches::turns::{self, Lane};

use crate::bench::{Bench, Trial};

pub(crate) const NAME: &str = "handoff";

pub(crate) fn run(bench: &mut Bench) {
    for (name, threads) in [("handoff/threads/2", 2), ("handoff/threads/4", 4)] {
        if bench.wants(name) {
            let case = turns::threads::Case {
                threads,
                hold: Duration::ZERO,
            };
            take_turns(bench, name, turns::threads::lanes(case));
        }
    }
    for (name, tasks) in [("handoff/tasks/2", 2), ("handoff/tasks/16", 16)] {
        if bench.wants(name) {
            let runtime = turns::tasks::runtime(2);
            take_turns(bench, name, turns::tasks::lanes(&runtime, tasks));
        }
    }
}

fn take_turns(bench: &mut Bench, name: &'static str, lanes: Vec<Lane<'_>>) {
    let wants = |lane: &Lane<'_>| kind(lane) == Kind::Tenure || bench.options.wants(lane.name);
    let lanes: Vec<_> = lanes.into_iter().filter(wants).collect();
    // Latencies need a sample: no more rounds than have that.
    let rounds = bench.options.rounds().min(15);
    let slice = if bench.options.test {
        Duration::from_millis(2)
    } else {
        Duration::from_secs_f64(bench.options.seconds / (rounds * lanes.len() as u64) as f64)
    };
    let trials = lanes.into_iter().map(|lane| Trial {
        name: lane.name,
        kind: kind(&lane),
        run: Box::new(move |_| {
            let outcome = (lane.run)(slice);
            let metrics = [
                ("p50_us", outcome.median / 1e3),
                ("p99_us", outcome.late / 1e3),
                ("handoffs_per_s", outcome.handoffs),
            ];
            // There are no latencies if nobody got a turn after another.
            let found = metrics.into_iter().filter(|(_, value)| value.is_finite());
            found.collect()
        }),
    });
    let trials = trials.collect();
    let operation = "release a key that another waits for, until that one runs";
    bench.trials(NAME, name.into(), operation, rounds, trials);
}

fn kind(lane: &Lane<'_>) -> Kind {
    if lane.name.starts_with(crate::contenders::TENURE) {
        Kind::Tenure
    } else {
        Kind::Product
    }
}
