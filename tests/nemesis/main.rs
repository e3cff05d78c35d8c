//! A manager under a nemesis: whatever can be paused is, at failpoints inside of the operations too; clocks
//! jump, strobe and stop; waits are cancelled; and threads die of panics. Real time, but for what `turning.rs` stops
//! at one point.
//!
//! It needs the feature `failpoints`. In the bounded version every test takes seconds; `TENURE_NEMESIS_SECONDS`
//! is for how long each of the tests in `set.rs` goes on with each of its two resources (1 if it is not set), and
//! those in `panics.rs` grow with it.

#[cfg(not(feature = "failpoints"))]
#[test]
fn left_to_the_feature_failpoints_are_the_tests_with_a_nemesis() {
    println!("cargo test --release --features failpoints --test nemesis -- --nocapture");
}

#[cfg(feature = "failpoints")]
mod clock;
#[cfg(feature = "failpoints")]
mod panics;
#[cfg(feature = "failpoints")]
mod set;
#[cfg(feature = "failpoints")]
mod turning;
#[cfg(feature = "failpoints")]
mod witness;

#[cfg(feature = "failpoints")]
use std::time::{Duration, Instant};

#[cfg(feature = "failpoints")]
const MS: Duration = Duration::from_millis(1);

/// How long it has to go on.
#[cfg(feature = "failpoints")]
fn seconds() -> u64 {
    let asked = std::env::var("TENURE_NEMESIS_SECONDS");
    asked.map_or(1, |asked| asked.parse().expect("a number of seconds"))
}

/// How often what takes half a second in the bounded version is done.
#[cfg(feature = "failpoints")]
fn times() -> usize {
    usize::try_from(seconds() / 5).unwrap().max(1)
}

/// Waits until it is done; false if it is not in time.
#[cfg(feature = "failpoints")]
fn until(patience: Duration, mut done: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + patience;
    while !done() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(MS / 2);
    }
    true
}
