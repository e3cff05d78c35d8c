//! What a resize must not leave behind. Real time: the driver thread is at work.

use std::thread::sleep;
use std::time::{Duration, Instant};

use tenure::{Lease, LockManager};

const HOUR: Duration = Duration::from_secs(3600);

/// Waits for what the driver is to do; a failure after ten seconds.
fn eventually(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_growth_that_has_started_is_finished_without_further_calls() {
    let locks = LockManager::new();
    let grows = (0..100_000_u64).any(|key| {
        let _ = locks.try_acquire(key, 1, HOUR).map(Lease::detach);
        key > 20_000 && locks.stats().resizing
    });
    // If the driver was faster than the check, there is nothing to wait for.
    let _ = grows;
    eventually("the growth stands still", || !locks.stats().resizing);
    assert!(locks.stats().buckets > locks.len());
}

#[test]
fn a_table_shrinks_without_further_calls_when_its_leases_are_gone() {
    let locks = LockManager::new();
    let held: Vec<_> = (0..50_000_u64)
        .map(|key| locks.try_acquire(key, 1, HOUR).expect("free"))
        .collect();
    let grown = locks.stats().buckets;
    drop(held);
    eventually("the table stays large", || {
        let stats = locks.stats();
        !stats.resizing && stats.buckets * 8 < grown
    });
}

#[test]
fn a_thread_that_ends_lets_the_table_shrink() {
    let locks = LockManager::new();
    let small = locks.stats().buckets;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let held: Vec<_> = (0..2_000_u64)
                .map(|key| locks.try_acquire(key, 1, HOUR).expect("free"))
                .collect();
            assert!(locks.stats().buckets > small);
            drop(held);
        });
    });
    eventually("the table stays large", || locks.stats().buckets == small);
}
