//! The thread that turns the wheel, seen through a clock that it reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tenure::{Clock, LockManager, Loss, Timestamp};

const NAME: &str = "a-driver";

/// Real time, with a count of how often a driver has read it, and with panics if they are asked for.
#[derive(Clone, Debug)]
struct Watched {
    start: Instant,
    readings: Arc<AtomicUsize>,
    panics: Arc<AtomicBool>,
}

impl Watched {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            readings: Arc::default(),
            panics: Arc::default(),
        }
    }

    fn manager(&self) -> LockManager {
        let builder = LockManager::builder().clock(self.clone());
        builder.thread_name(NAME).build().expect("in order")
    }
}

impl Clock for Watched {
    fn now(&self) -> Timestamp {
        if thread::current().name() == Some(NAME) {
            self.readings.fetch_add(1, Ordering::Relaxed);
            assert!(!self.panics.load(Ordering::Relaxed), "the clock is broken");
        }
        Timestamp::ZERO.saturating_add(self.start.elapsed())
    }

    fn is_real_time(&self) -> bool {
        true
    }
}

const HOUR: Duration = Duration::from_secs(3600);

/// It sleeps for as long as there is nothing to do, on a machine that is as busy as may be.
#[test]
fn a_driver_with_nothing_to_do_reads_no_clock() {
    let clock = Watched::new();
    let manager = clock.manager();
    let _lease = manager.try_acquire("a", 1, HOUR).expect("free");
    thread::sleep(Duration::from_millis(200));
    let readings = clock.readings.load(Ordering::Relaxed);
    assert!(readings < 50, "{readings} readings");
}

/// It has ended when the last handle is gone, and nothing of it is left to find later.
#[test]
fn a_driver_is_gone_with_its_manager() {
    for _ in 0..100 {
        let clock = Watched::new();
        let manager = clock.manager();
        drop(manager.try_acquire("a", 1, HOUR).expect("free"));
        drop(manager);
        assert_eq!(Arc::strong_count(&clock.readings), 1);
    }
}

/// A clock that panics does so for a while, and then leases end as ever.
#[test]
fn a_driver_outlives_the_panics_of_its_clock() {
    let clock = Watched::new();
    let manager = clock.manager();
    let lease = manager.try_acquire("a", 1, Duration::from_millis(20));
    let lease = lease.expect("free");
    let lost = lease.lost();
    let before = clock.readings.load(Ordering::Relaxed);
    clock.panics.store(true, Ordering::Relaxed);
    while clock.readings.load(Ordering::Relaxed) < before + 2 {
        thread::sleep(Duration::from_millis(1));
    }
    clock.panics.store(false, Ordering::Relaxed);
    assert_eq!(lost.wait(), Loss::Expired);
}
