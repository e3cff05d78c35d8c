//! What is measured.

mod batches;
mod churn;
mod growth;
mod handoff;
mod held;
mod large;
mod pair;
mod renew;
mod storm;
mod timers;
mod weighing;

use crate::bench::Bench;

/// A name, what it is about, and what runs those of its rows that are wanted.
type Workload = (&'static str, &'static str, fn(&mut Bench));

/// The workloads, in their order.
pub(crate) const WORKLOADS: &[Workload] = &[
    (pair::NAME, "acquire and release, few leases out", pair::run),
    (renew::NAME, "renew one lease", renew::run),
    (held::NAME, "a million leases out", held::run),
    (batches::NAME, "16 keys at once", batches::run),
    (
        growth::NAME,
        "keys never seen before, into an empty table",
        growth::run,
    ),
    (
        churn::NAME,
        "keys that never come again, and what they leave",
        churn::run,
    ),
    (storm::NAME, "a million leases due at once", storm::run),
    (timers::NAME, "timers alone, a million pending", timers::run),
    (handoff::NAME, "one key that several wait for", handoff::run),
];
