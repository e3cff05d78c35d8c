//! A waiter that leaves at any moment leaves nothing behind, and loses no grant (I7).

use super::*;

/// Case 8: at every point of its life.
#[test]
fn a_waiter_that_leaves_is_passed_over() {
    let (locks, _clock) = manual();
    for leaves in 0..4 {
        let held = locks.try_acquire("a", 1, HOUR).expect("it is free");
        let mut tasks = queue(&locks, "a", 4);
        drop(tasks.remove(leaves));
        assert_eq!(locks.waiting(), 3);
        drop(held);
        for task in &mut tasks {
            drop(task.is_granted().expect("it is its turn"));
        }
        assert_eq!((locks.waiting(), locks.len()), (0, 0));
    }
}

#[test]
fn a_grant_that_comes_as_its_waiter_leaves_passes_on() {
    let (locks, _clock) = manual();
    let held = locks.try_acquire("a", 1, HOUR).expect("it is free");
    let mut tasks = queue(&locks, "a", 3);
    held.release().expect("it is live");
    // Granted, and not polled since.
    drop(tasks.remove(0));
    assert_eq!(tasks[0].wakes.count(), 1);
    drop(tasks.remove(0));
    assert_eq!(tasks[0].wakes.count(), 1);
    let lease = tasks[0].is_granted().expect("both before it have left");
    assert_eq!(locks.len(), 1, "no ghost holds the key");
    lease.release().expect("it is live");
    assert_eq!((locks.waiting(), locks.len()), (0, 0));
}

#[test]
fn a_queue_that_everybody_has_left_is_in_nobodys_way() {
    let (locks, _clock) = manual();
    let held = locks.try_acquire("a", 1, HOUR).expect("it is free");
    drop(queue(&locks, "a", 5));
    assert_eq!(locks.waiting(), 0);
    held.release().expect("it is live");
    let lease = locks.try_acquire("a", 9, HOUR).expect("nobody waits");
    lease.release().expect("it is live");
    assert!(locks.is_empty());
}

#[test]
fn what_was_never_polled_has_no_place() {
    let (locks, _clock) = manual();
    let held = locks.try_acquire("a", 1, HOUR).expect("it is free");
    let mut first = Task::new(locks.acquire("a", 2, HOUR));
    let mut second = Task::new(locks.acquire("a", 3, HOUR));
    assert!(second.poll().is_pending());
    assert!(first.poll().is_pending());
    drop(held);
    drop(second.is_granted().expect("it came first"));
    drop(first.is_granted().expect("it is its turn"));
    drop(Task::new(locks.acquire("a", 4, HOUR)));
    assert!(locks.is_empty());
}

/// Queues come and go: the memory that they take does not grow (case 14).
#[test]
fn empty_queues_leave_nothing() {
    let (locks, _clock) = manual();
    let round = |from: u64| {
        for key in from..from + 1_000 {
            let key = format!("{key}");
            let held = locks
                .try_acquire(key.as_str(), 1, HOUR)
                .expect("it is free");
            let mut tasks = queue(&locks, &key, 2);
            drop(held);
            for task in &mut tasks {
                drop(task.is_granted().expect("it is its turn"));
            }
        }
        locks.advance();
        locks.stats().memory_bytes
    };
    let before = round(0);
    let after = (1..20).map(|at| round(at * 1_000)).max().expect("twenty");
    assert!(
        after <= before + 16 * 1024,
        "I9: {before} bytes, then {after}"
    );
}

/// Waits that are given up by turns, while the leases stay: what one leaves in a bucket lies under the
/// mark of the other, and no grant comes by to clear it away (I9).
#[test]
fn waits_that_are_given_up_leave_nothing() {
    let (locks, _clock) = manual();
    let keys = 0..200_u64;
    let held: Vec<_> = keys
        .clone()
        .map(|key| locks.try_acquire(key, 1, HOUR).expect("it is free"))
        .collect();
    let wait = |key: u64| {
        let mut task = Task::new(locks.acquire(key, 2, HOUR));
        assert!(task.poll().is_pending());
        task
    };
    let mut tasks: Vec<_> = keys.clone().map(wait).collect();
    let before = locks.stats().memory_bytes;
    for _ in 0..if cfg!(debug_assertions) { 100 } else { 1_000 } {
        for key in keys.clone() {
            // Given up first, and begun anew.
            tasks[key as usize] = Task::new(locks.acquire(key, 3, HOUR));
            tasks[key as usize] = wait(key);
        }
    }
    let after = locks.stats().memory_bytes;
    assert!(after <= 2 * before, "I9: {before} bytes, then {after}");
    drop(tasks);
    drop(held);
}
