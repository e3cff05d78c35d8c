//! Renewals of one lease by its holder, and what the clocks and a compare-and-swap cost.

use crate::bench::Bench;
use crate::contenders::{Condition, field};
use crate::floors;
use crate::tasks::Task;

pub(crate) const NAME: &str = "renew";

pub(crate) fn run(bench: &mut Bench) {
    let cases = [
        ("renew/guard", "renew a lease for the same TTL", Task::Renew),
        (
            "renew/guard, later",
            "renew a lease to a later deadline",
            Task::RenewLater,
        ),
    ];
    for (name, operation, task) in cases {
        if !bench.wants(name) {
            continue;
        }
        let entrants = field(&bench.options, &Condition::default());
        let mut lanes: Vec<_> = entrants
            .iter()
            .filter_map(|entrant| entrant.lane(&task))
            .collect();
        lanes.push(floors::one_cas());
        lanes.extend(floors::readings());
        bench.slices(NAME, name.into(), operation, 1, &lanes);
    }
}
