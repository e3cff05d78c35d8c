//! What is done once in a round, by each contender with tables of its own.

use tenure_benches::measure::Kind;

use crate::bench::{Bench, Trial};
use crate::contenders::{LeaseTable, Visit, each};
use crate::options::Options;

/// Names of metrics, and what was measured.
pub(crate) type Metrics = Vec<(&'static str, f64)>;

/// Something large to do to a lease table.
pub(crate) trait Large {
    /// Whether that contender can do it.
    fn suits<T: LeaseTable>(&self) -> bool;

    /// Does it to a table that `new` makes; says what was measured.
    fn run<T: LeaseTable>(&self, new: &impl Fn() -> T, round: u64) -> Metrics;
}

/// A trial of each contender that is wanted.
pub(crate) fn trials<'t>(options: &'t Options, large: &'t impl Large) -> Vec<Trial<'t>> {
    let mut collector = Collector {
        options,
        large,
        trials: vec![],
    };
    each(&mut collector);
    collector.trials
}

/// How many rounds: as many as for small things would take all day.
pub(crate) fn rounds(bench: &Bench, most: u64) -> u64 {
    let most = if bench.options.test { 1 } else { most };
    bench.options.rounds().min(most)
}

struct Collector<'t, L> {
    options: &'t Options,
    large: &'t L,
    trials: Vec<Trial<'t>>,
}

impl<L: Large> Visit for Collector<'_, L> {
    fn table<T: LeaseTable>(
        &mut self,
        name: &'static str,
        kind: Kind,
        new: impl Fn() -> T + 'static,
    ) {
        if self.options.wants(name) && self.large.suits::<T>() {
            let large = self.large;
            self.trials.push(Trial {
                name,
                kind,
                run: Box::new(move |round| large.run(&new, round)),
            });
        }
    }
}
