//! Faults that people reported in systems like this one, each written as a test from the fault. The
//! number in a test's name is the number of the case; the fault stands in its documentation. (Cases 4 to 6, 13
//! and 22 are in `tests/modes`, 7, 11 and 12 in `tests/waiting`.)

mod calls;
mod durations;
mod endings;
mod memory;
#[path = "../common/task.rs"]
mod task;
mod waiting;
mod wheel;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tenure::{LockManager, ManualClock};

/// A manager with the default tick of 1 ms, TTLs of at least that, no driver, and the clock in the
/// test's hand.
fn manual() -> (LockManager, ManualClock) {
    let clock = ManualClock::new();
    let manager = LockManager::builder()
        .clock(clock.clone())
        .driver(false)
        .min_ttl(ms(1))
        .build()
        .expect("these options are in order");
    (manager, clock)
}

/// So many milliseconds, which are so many ticks.
fn ms(ticks: u64) -> Duration {
    Duration::from_millis(ticks)
}

/// One nanosecond less.
fn just_under(duration: Duration) -> Duration {
    duration.saturating_sub(Duration::from_nanos(1))
}

/// Lets threads start a step together, closer than a blocking barrier can. A thread that waits for a
/// minute panics, so that the failure of another one is no hang.
#[derive(Debug)]
struct Gate {
    threads: usize,
    arrived: AtomicUsize,
}

impl Gate {
    fn new(threads: usize) -> Self {
        Self {
            threads,
            arrived: AtomicUsize::new(0),
        }
    }

    fn pass(&self) {
        let place = self.arrived.fetch_add(1, Ordering::AcqRel);
        let full = (place / self.threads + 1) * self.threads;
        let started = Instant::now();
        while self.arrived.load(Ordering::Acquire) < full {
            assert!(
                started.elapsed() < Duration::from_secs(60),
                "another thread failed"
            );
            std::thread::yield_now();
        }
    }
}
