//! What a thread has of the managers that it uses: one part of each, whatever calls what, and as long as both
//! are there.

use std::cell::Cell;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Clock, ManualClock};
use crate::{LockManager, Timestamp};

const TTL: Duration = Duration::from_secs(10);

fn manager(clock: impl Clock) -> LockManager {
    let builder = LockManager::builder().clock(clock).driver(false);
    builder.build().unwrap()
}

/// How many parts of it threads have.
fn parts(locks: &LockManager) -> usize {
    locks.engine().registry.lock().threads.len()
}

/// Each operation that a plain lease knows.
fn use_it(locks: &LockManager, key: u64) {
    let lease = locks.try_acquire(key, 1, TTL).unwrap();
    lease.renew(TTL).unwrap();
    assert!(locks.try_acquire(key, 2, TTL).is_err());
    assert!(locks.validate(key, lease.token()).is_ok());
    lease.release().unwrap();
    assert!(locks.holder(key).is_none());
    assert_eq!(locks.advance(), 0);
}

#[test]
fn a_thread_has_one_part_of_each_manager_as_long_as_it_lives() {
    let all: Vec<LockManager> = (0..4).map(|_| manager(ManualClock::new())).collect();
    for round in 0..3 {
        for locks in &all {
            use_it(locks, round);
        }
        assert!(all.iter().all(|locks| parts(locks) == 1));
    }
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            for locks in &all {
                use_it(locks, 7);
            }
            all.iter().map(parts).collect::<Vec<_>>()
        });
        // Joined, its variables are gone as well.
        assert_eq!(other.join().unwrap(), [2; 4]);
    });
    assert!(all.iter().all(|locks| parts(locks) == 1));
    // The part of this one, and no other.
    for (at, locks) in all.iter().enumerate() {
        locks.trim();
        let left: Vec<usize> = all.iter().map(parts).collect();
        assert!(left[..=at].iter().all(|&parts| parts == 0), "{left:?}");
        assert!(left[at + 1..].iter().all(|&parts| parts == 1), "{left:?}");
    }
}

/// A clock that uses managers whenever it is read, in the midst of an operation of its own.
#[derive(Clone, Debug, Default)]
struct Meddling {
    others: Arc<Mutex<Vec<LockManager>>>,
}

thread_local! {
    static WITHIN: Cell<bool> = const { Cell::new(false) };
}

impl Clock for Meddling {
    fn now(&self) -> Timestamp {
        if !WITHIN.replace(true) {
            let others = self.others.lock().clone();
            for other in &others {
                use_it(other, 1_000);
            }
            WITHIN.set(false);
        }
        Timestamp::from_nanos(1_000_000_000)
    }

    fn is_real_time(&self) -> bool {
        false
    }
}

#[test]
fn what_a_clock_does_with_managers_leaves_one_part_of_each() {
    let clock = Meddling::default();
    let locks = manager(clock.clone());
    let others: Vec<LockManager> = (0..3).map(|_| manager(ManualClock::new())).collect();
    // The very manager that reads it, and then others.
    for meddled in [vec![locks.clone()], others.clone()] {
        *clock.others.lock() = meddled;
        for round in 0..5 {
            use_it(&locks, 10 + round);
            let shared = locks.acquire(round, 1, TTL).shared().try_now().unwrap();
            drop(shared);
            assert_eq!(parts(&locks), 1);
        }
    }
    clock.others.lock().clear();
    assert!(others.iter().all(|other| parts(other) == 1));
    assert!(locks.is_empty() && others.iter().all(LockManager::is_empty));
}

/// The buckets of a manager that is gone go as well, as soon as the thread meets another one.
#[test]
fn a_thread_keeps_no_buckets_of_a_manager_that_is_gone() {
    let [gone, stays] = [(); 2].map(|()| manager(ManualClock::new()));
    use_it(&stays, 1);
    use_it(&gone, 1);
    let kept = gone.engine().table.watch_newest();
    // Closed by another thread, which has no part to give back.
    thread::scope(|scope| {
        scope.spawn(move || drop(gone)).join().unwrap();
    });
    assert!(
        kept(),
        "this thread may be at work with it, for all that others know"
    );
    use_it(&stays, 1);
    use_it(&manager(ManualClock::new()), 1);
    assert!(!kept());
    assert_eq!(parts(&stays), 1);
}

/// While somebody observes, and not for longer: the short paths are those of managers that nobody looks at.
#[test]
fn short_paths_are_left_for_as_long_as_somebody_observes() {
    let locks = manager(ManualClock::new());
    let is_short = || {
        let engine = locks.engine();
        let short_id = engine.short_id.load(crate::sync::Ordering::SeqCst);
        (!engine.is_observed(), short_id == engine.id)
    };
    assert_eq!(is_short(), (true, true));
    let (one, other) = (locks.events(10), locks.events(10));
    drop(one);
    use_it(&locks, 1);
    assert_eq!(is_short(), (false, false));
    drop(other);
    use_it(&locks, 1);
    assert_eq!(is_short(), (true, true));
    for _ in 0..1_000 {
        drop(locks.events(10));
    }
    let streams = locks.engine().observers.streams();
    assert!(streams < 10, "{streams} that nobody reads are kept");
}
