//! What a manager says of its memory: cells and buckets.

use std::sync::Arc;
use std::time::Duration;

use tenure::{Clock, LockManager, ManualClock, Timestamp};

use crate::task::Task;

const MS: Duration = Duration::from_millis(1);

fn manual() -> (LockManager, ManualClock) {
    let clock = ManualClock::new();
    let builder = LockManager::builder().clock(clock.clone()).driver(false);
    (builder.build().expect("in order"), clock)
}

#[test]
fn memory_is_that_of_the_cells_and_buckets_that_are_there() {
    let (manager, _) = manual();
    let before = manager.stats();
    let leases: Vec<_> = (0..3_000_u64)
        .map(|key| manager.try_acquire(key, 1, 10 * MS).expect("free"))
        .collect();
    let stats = manager.stats();
    assert!(stats.cells >= 3_000 && stats.cells < 3_500, "{stats:?}");
    assert!(before.cells < 500, "{before:?}");
    let least = |stats: &tenure::Stats| 64 * stats.cells + 4 * stats.buckets;
    assert!(stats.memory_bytes > least(&stats), "{stats:?}");
    assert!(stats.memory_bytes > before.memory_bytes, "{stats:?}");
    drop(leases);
}

#[test]
fn advance_says_how_many_leases_it_has_ended() {
    let (manager, clock) = manual();
    for leases in [3, 0, 2, 5] {
        for key in 0..leases as u64 {
            manager.try_acquire(key, 1, 10 * MS).expect("free").detach();
        }
        clock.advance(10 * MS);
        assert_eq!(manager.advance(), leases);
        assert_eq!(manager.advance(), 0);
    }
}

/// One key after the other, so that what one has left behind is seen to be used again by the next.
fn cells_of_many(each: impl Fn(&LockManager, &ManualClock, u64)) -> usize {
    let (manager, clock) = manual();
    for key in 0..2_000 {
        each(&manager, &clock, key);
    }
    assert!(manager.is_empty());
    manager.stats().cells
}

#[test]
fn a_shared_lease_leaves_no_cell_behind() {
    let cells = cells_of_many(|manager, _, key| {
        let lease = manager.acquire(key, 1, 10 * MS).shared().try_now();
        lease.expect("free").release().expect("live");
    });
    assert!(cells < 500, "{cells} cells");
}

#[test]
fn who_asks_after_a_lease_that_is_over_leaves_no_cell_behind() {
    let cells = cells_of_many(|manager, _, key| {
        let over = manager.try_acquire(key, 1, 10 * MS).expect("free").token();
        let next = manager.try_acquire(key, 2, 10 * MS).expect("free");
        assert!(manager.lost(key, over).now().is_some());
        next.release().expect("live");
    });
    assert!(cells < 500, "{cells} cells");
}

/// Neither its own plain lease nor somebody else's becomes more than that by a call that changes nothing.
#[test]
fn who_is_refused_takes_no_cell() {
    let (manager, _) = manual();
    let leases: Vec<_> = (0..1_000_u64)
        .map(|key| {
            let mut over = manager.try_acquire(key, 3, 10 * MS).expect("free");
            manager.release(key, over.token()).expect("live");
            let lease = manager.try_acquire(key, 1, 10 * MS).expect("free");
            let again = manager.acquire(key, 1, 10 * MS);
            assert!(again.try_now().is_err(), "it is not reentrant");
            let other = manager.acquire(key, 2, 10 * MS);
            assert!(other.reentrant().try_now().is_err(), "somebody else's");
            assert!(over.downgrade().is_err());
            lease
        })
        .collect();
    let stats = manager.stats();
    assert!(stats.cells < 1_500, "{stats:?}");
    drop(leases);
}

/// They have one mark each, and the session one timer for them all.
#[test]
fn a_lease_of_a_session_takes_one_cell() {
    let (manager, _) = manual();
    let session = manager.session(1, 10 * MS).expect("in range");
    for key in 0..2_000_u64 {
        session.try_acquire(key).expect("free").detach();
    }
    let stats = manager.stats();
    assert!(stats.cells < 2_500, "{stats:?}");
}

/// A clock that can be seen to be gone.
#[derive(Clone, Debug)]
struct Counted(
    ManualClock,
    #[expect(dead_code, reason = "it is counted")] Arc<()>,
);

impl Clock for Counted {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn is_real_time(&self) -> bool {
        false
    }
}

/// Whatever guards have been made of others: when all are gone, so is the manager with its clock.
#[test]
fn guards_that_are_gone_keep_nothing_of_their_manager() {
    let count = Arc::new(());
    let manager = LockManager::builder()
        .clock(Counted(ManualClock::new(), Arc::clone(&count)))
        .driver(false)
        .build()
        .expect("in order");
    let owned = |key: u64| {
        let lease = manager.try_acquire(key, 1, 10 * MS).expect("free");
        lease.into_owned()
    };
    owned(1).detach();
    owned(2).release().expect("live");
    let again = owned(3).into_owned();
    let session = manager.session(1, 10 * MS).expect("in range").into_owned();
    let waits = Task::pending(manager.acquire(1_u64, 2, 10 * MS).into_owned());
    drop(manager);
    assert!(Arc::strong_count(&count) > 1, "guards are there");
    drop((again, session, waits));
    assert_eq!(Arc::strong_count(&count), 1);
}

/// I9: a key that is kept free takes the place of the lease that was there, also for those who come to be granted in the
/// same turn.
#[test]
fn a_quarantine_takes_its_place_before_a_waiter_does() {
    for round in 0..50_u64 {
        let clock = ManualClock::new();
        let builder = LockManager::builder().clock(clock.clone()).driver(false);
        let manager = builder.max_keys(2).build().expect("in order");
        let session = manager.session(1, 10 * MS).expect("in range");
        let kept = session
            .acquire(round)
            .lock_delay(Duration::from_secs(1))
            .try_now();
        let passes_on = session.try_acquire(1_000 + round).expect("free");
        let _waiters = [2, 3].map(|owner| {
            Task::pending(
                manager
                    .acquire(1_000 + round, owner, Duration::from_secs(1))
                    .shared(),
            )
        });
        clock.advance(10 * MS);
        manager.advance();
        let delayed = manager
            .snapshot()
            .iter()
            .filter(|key| key.delayed.is_some())
            .count();
        assert_eq!((manager.len(), delayed), (1, 1));
        drop((kept, passes_on));
    }
}
