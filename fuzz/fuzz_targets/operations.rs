//! Any sequence of operations on a manager, side by side with the sequential oracle of the tests.
//!
//! `cargo +nightly fuzz run operations -- -max_total_time=60`

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/oracle/mod.rs"]
mod oracle;

fuzz_target!(|input: (oracle::operation::Setting, Vec<oracle::operation::Operation>)| {
    let (setting, operations) = input;
    oracle::world::run(setting, operations);
});
