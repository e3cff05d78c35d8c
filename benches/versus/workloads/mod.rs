//! What is measured.

mod batches;
mod held;
mod pair;
mod renew;

use crate::bench::Bench;

/// The workloads, in their order: a name, what it is about, and what runs those of its rows that are wanted.
pub(crate) const WORKLOADS: &[(&str, &str, fn(&mut Bench))] = &[
    (pair::NAME, "acquire and release, few leases out", pair::run),
    (renew::NAME, "renew one lease", renew::run),
    (held::NAME, "a million leases out", held::run),
    (batches::NAME, "16 keys at once", batches::run),
];
