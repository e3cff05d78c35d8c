//! Has the contenders weighed.

use std::process::Command;

use tenure_benches::measure::Kind;

use super::large::Metrics;
use crate::bench::{Bench, Trial};
use crate::contenders::{LeaseTable, Visit, each};
use crate::weights::{Load, Order, Weight};

/// Weighs each contender that is wanted under that load, and adds a row.
pub(crate) fn weigh(
    bench: &mut Bench,
    workload: &'static str,
    name: &str,
    operation: &'static str,
    load: Load,
    metrics: impl Fn(&Weight) -> Metrics,
) {
    let mut names = Names {
        load,
        names: vec![],
    };
    each(&mut names);
    names.names.retain(|(name, _)| bench.options.wants(name));
    let metrics = &metrics;
    let trials = names.names.into_iter().map(|(name, kind)| Trial {
        name,
        kind,
        run: Box::new(move |_| match weight(name, load) {
            Ok(weight) => metrics(&weight),
            Err(problem) => {
                eprintln!("{name} could not be weighed: {problem}");
                vec![]
            }
        }),
    });
    let trials = trials.collect();
    bench.trials(workload, name.into(), operation, 1, trials);
}

/// Those who can bear the load.
struct Names {
    load: Load,
    names: Vec<(&'static str, Kind)>,
}

impl Visit for Names {
    fn table<T: LeaseTable>(
        &mut self,
        name: &'static str,
        kind: Kind,
        _: impl Fn() -> T + 'static,
    ) {
        let (Load::Held { leases } | Load::Churn { leases, .. }) = self.load;
        if T::MOST_HELD >= leases {
            self.names.push((name, kind));
        }
    }
}

/// In a process of its own.
fn weight(contender: &str, load: Load) -> Result<Weight, String> {
    let order = Order {
        contender: contender.to_owned(),
        load,
    };
    let order = serde_json::to_string(&order).map_err(|error| error.to_string())?;
    let output = Command::new(env!("CARGO_BIN_EXE_weigh"))
        .arg(order)
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
}
