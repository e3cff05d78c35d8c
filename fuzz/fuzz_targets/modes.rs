//! Any sequence of operations on leases of all modes, in sessions and out of them, with acquisitions and
//! upgrades that wait, side by side with the specification of the tests.
//!
//! `cargo +nightly fuzz run modes -- -max_total_time=60`

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/modes/operation.rs"]
mod operation;
#[path = "../../tests/modes/spec.rs"]
mod spec;
#[path = "../../tests/common/task.rs"]
mod task;
#[path = "../../tests/modes/world.rs"]
mod world;

fuzz_target!(|input: (operation::Setting, Vec<operation::Operation>)| {
    let (setting, operations) = input;
    world::run(setting, operations);
});
