//! Any sequence of registrations and turns of the timing wheel, against a sorted list.
//!
//! `cargo +nightly fuzz run wheel -- -max_total_time=60`

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| tenure::fuzzing::wheel(data));
