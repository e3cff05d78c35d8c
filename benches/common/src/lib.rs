//! What the benchmarks share: how contenders take turns, and what is made of their samples.

// Counts become ratios here; none of them comes near 2^52.
#![allow(clippy::cast_precision_loss, clippy::cast_sign_loss)]
// It is published nowhere.
#![allow(
    missing_docs,
    missing_debug_implementations,
    clippy::must_use_candidate
)]
// A harness whose contender is not there has nothing to measure.
#![allow(clippy::missing_panics_doc)]

pub mod measure;
pub mod turns;
