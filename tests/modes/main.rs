//! Leases that are more than plain exclusive ones, on the manual clock.

mod boundaries;
mod deadlocks;
mod keeping;
mod model;
mod multi;
mod observing;
mod operation;
mod sessions;
mod sharing;
mod spec;
mod world;

#[path = "../common/task.rs"]
mod task;

use std::time::Duration;

use task::Task;
use tenure::{LockManager, ManualClock};

/// A manager with the default tick of 1 ms, no driver, and the clock in the test's hand.
fn manual() -> (LockManager, ManualClock) {
    let clock = ManualClock::new();
    let manager = LockManager::builder()
        .clock(clock.clone())
        .driver(false)
        .build()
        .expect("these options are in order");
    (manager, clock)
}

/// So many milliseconds, which are so many ticks.
fn ms(ticks: u64) -> Duration {
    Duration::from_millis(ticks)
}

/// Moves the clock on, a tick at a time, with the wheel.
fn pass(manager: &LockManager, clock: &ManualClock, ticks: u64) {
    for _ in 0..ticks {
        clock.advance(ms(1));
        manager.advance();
    }
}

/// Nothing is left of anything that a test did.
fn assert_idle(manager: &LockManager) {
    assert_eq!(manager.len(), 0, "leases are left");
    assert_eq!(manager.iter().count(), 0, "leases are seen");
    assert_eq!(manager.waiting(), 0, "somebody waits");
}
