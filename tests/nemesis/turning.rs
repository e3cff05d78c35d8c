//! What another thread finds while one is in the midst of turning the wheel or of moving leases.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use fail::FailScenario;
use tenure::reservation::Memory;
use tenure::{LockManager, ManualClock, Timestamp};

use crate::MS;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_nanos(millis * 1_000_000)
}

/// Runs `f` in another thread whenever somebody comes by that point, at the `nth` time and not after that; says
/// what it returned.
fn at_point<R: Send + 'static>(
    point: &str,
    nth: usize,
    f: impl Fn() -> R + Clone + Send + Sync + 'static,
) -> Arc<Mutex<Option<R>>> {
    let seen = Arc::new(Mutex::new(None));
    let (told, passed) = (Arc::clone(&seen), Mutex::new(0));
    let call = move || {
        let now = {
            let mut passed = passed.lock().unwrap();
            *passed += 1;
            *passed
        };
        if now == nth {
            let found = thread::spawn(f.clone()).join().unwrap();
            *told.lock().unwrap() = Some(found);
        }
    };
    fail::cfg_callback(point, call).unwrap();
    seen
}

/// What it has in hand is in no slot, and the one who asks is not told when it has been put back.
#[test]
fn who_turns_the_wheel_by_hand_is_not_told_too_late_while_another_is_at_it() {
    let scenario = FailScenario::setup();
    let clock = ManualClock::new();
    let builder = LockManager::builder().clock(clock.clone()).driver(false);
    let locks = builder.max_keys(1).build().unwrap();
    let lease = locks.try_acquire("a", 1, 100 * MS).unwrap();
    clock.set(at(50));
    lease.renew(100 * MS).unwrap();
    lease.detach();
    assert_eq!(locks.next_wakeup(), Some(at(100)));
    clock.set(at(100));
    let theirs = locks.clone();
    let told = at_point("wheel/looked", 1, move || {
        assert_eq!(theirs.advance(), 0, "another is at it");
        theirs.next_wakeup()
    });
    // A table that is full has its wheel turned by whoever wants room.
    assert!(locks.try_acquire("b", 2, 100 * MS).is_err());
    assert_eq!(told.lock().unwrap().unwrap(), Some(at(100)), "now");
    scenario.teardown();
    assert_eq!(locks.next_wakeup(), Some(at(150)));
}

/// A lease that was moved is ended at its deadline although who moves it has many more to move.
#[test]
fn leases_end_in_time_while_the_table_is_being_shut() {
    const LEASES: u64 = 20_000;
    let scenario = FailScenario::setup();
    let clock = ManualClock::new();
    let builder = LockManager::builder().clock(clock.clone()).driver(false);
    let locks = builder.reservation(Memory::new()).build().unwrap();
    for key in 0..LEASES {
        // Cells that were a short lease's before would be looked at in time anyway.
        let ttl = if key % 10 == 0 { 100 } else { 1_000_000 };
        locks.try_acquire(key, 1, ttl * MS).unwrap().detach();
    }
    let (theirs, time) = (locks.clone(), clock.clone());
    let ended = at_point("resize/published", 30_000, move || {
        time.set(at(200));
        for _ in 0..100 {
            theirs.advance();
        }
        theirs.stats().expired
    });
    locks.resign();
    let ended = ended.lock().unwrap().expect("so many buckets are moved");
    scenario.teardown();
    // But for those of one step, which are in the hands of who moves them.
    assert!(ended > LEASES / 10 * 8 / 10, "{ended}");
    clock.advance(Duration::from_secs(1));
    locks.advance();
    assert_eq!(locks.stats().expired, LEASES / 10);
}

#[test]
fn a_panic_as_what_has_moved_is_registered_costs_the_others_nothing() {
    let scenario = FailScenario::setup();
    let clock = ManualClock::new();
    let builder = LockManager::builder().clock(clock.clone()).driver(false);
    let locks = builder.reservation(Memory::new()).build().unwrap();
    for key in 0..200_u64 {
        locks.try_acquire(key, 1, 100 * MS).unwrap().detach();
    }
    fail::cfg("wheel/registering", "1*panic(on purpose)").unwrap();
    let theirs = locks.clone();
    let died = thread::spawn(move || theirs.resign()).join();
    scenario.teardown();
    assert!(died.is_err());
    clock.set(at(1_000));
    for _ in 0..1_000 {
        locks.advance();
    }
    assert_eq!(locks.len(), 0);
}
