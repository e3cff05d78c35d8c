//! Circles of owners that wait for each other.

use std::thread;

use tenure::{AcquireError, LockManager, ManualClock, OwnerId};

use crate::{Task, ms};

fn detecting(depth: usize) -> LockManager {
    LockManager::builder()
        .clock(ManualClock::new())
        .driver(false)
        .deadlock_detection(depth)
        .build()
        .expect("these options are in order")
}

#[test]
fn whoever_closes_a_circle_is_told_of_it() {
    let manager = detecting(8);
    let hold = |key: u64| manager.try_acquire(key, key, ms(100)).expect("free");
    let _held: Vec<_> = (1..=3).map(hold).collect();
    let wait = |owner: u64, key: u64| manager.acquire(key, owner, ms(100));
    let mut first = Task::pending(wait(1, 2));
    let mut second = Task::pending(wait(2, 3));
    let Some(Err(AcquireError::Deadlock { cycle })) = Task::new(wait(3, 1)).poll() else {
        panic!("nobody noticed");
    };
    let key = |key: u64| manager.key(key);
    let circle = vec![
        (OwnerId(3), key(1)),
        (OwnerId(1), key(2)),
        (OwnerId(2), key(3)),
    ];
    assert_eq!(cycle.waits, circle);
    assert_eq!(
        cycle.to_string(),
        "deadlock: owner 3 waits for 1 held by owner 1 waits for 2 held by owner 2 waits for 3 held by \
         owner 3"
    );
    assert_eq!(manager.deadlocks(), [*cycle]);
    assert_eq!(manager.waiting(), 2, "the others wait on");
    manager.revoke(3_u64).expect("held");
    assert!(second.poll().expect("granted").is_ok());
    assert!(first.poll().is_none());
}

#[test]
fn an_owner_in_its_own_way_is_told_too() {
    let manager = detecting(1);
    let _held = manager.try_acquire("a", 1, ms(100)).expect("free");
    let told = Task::new(manager.acquire("a", 1, ms(100))).poll();
    assert!(matches!(told, Some(Err(AcquireError::Deadlock { cycle })) if cycle.waits.len() == 1));
}

#[test]
fn waiting_in_line_or_beyond_the_bound_is_no_deadlock() {
    let manager = detecting(2);
    let _held: Vec<_> = (1..=3_u64)
        .map(|key| manager.try_acquire(key, key, ms(100)).expect("free"))
        .collect();
    let _a = Task::pending(manager.acquire(2_u64, 1, ms(100)));
    let _b = Task::pending(manager.acquire(2_u64, 4, ms(100)));
    let _c = Task::pending(manager.acquire(3_u64, 2, ms(100)));
    // Three owners in a circle are more than two.
    let _d = Task::pending(manager.acquire(1_u64, 3, ms(100)));
    assert!(manager.deadlocks().is_empty());
}

/// A reader that would share again behind a writer who waits for it.
#[test]
fn a_circle_through_the_queue_is_seen() {
    let manager = detecting(8);
    let share = |owner| manager.acquire("a", owner, ms(100)).shared();
    let _reader = share(1).try_now().expect("free");
    let other = share(3).try_now().expect("shared");
    let _writer = Task::pending(manager.acquire("a", 2, ms(100)));
    let told = Task::new(share(1)).poll();
    assert!(
        matches!(told, Some(Err(AcquireError::Deadlock { .. }))),
        "{told:?}"
    );
    let again = share(1).reentrant().try_now().expect("its own lease");
    drop((again, other));
}

/// Who has been granted the key, and has not been polled since, waits for nothing any more.
#[test]
fn who_has_been_granted_the_key_waits_no_more() {
    let manager = detecting(8);
    let before = manager.try_acquire("a", 9, ms(100)).expect("free");
    let mut granted = Task::pending(manager.acquire("a", 2, ms(100)));
    before.release().expect("live");
    assert_eq!(granted.wakes(), 1);
    // And has lost it again, without a look at it.
    manager.revoke("a").expect("held");
    let _first = manager.try_acquire("a", 1, ms(100)).expect("free");
    let second = manager.try_acquire("b", 2, ms(100)).expect("free");
    let mut waits = Task::pending(manager.acquire("b", 1, ms(100)));
    assert!(manager.deadlocks().is_empty());
    second.release().expect("live");
    assert!(waits.poll().expect("granted").is_ok());
    assert!(granted.poll().expect("granted").is_ok());
}

#[test]
fn an_upgrade_in_a_circle_with_another_key_is_told() {
    let manager = detecting(8);
    let mut a = manager
        .acquire("a", 1, ms(100))
        .shared()
        .try_now()
        .expect("free");
    let _b = manager
        .acquire("a", 2, ms(100))
        .shared()
        .try_now()
        .expect("shared");
    let _held = manager.try_acquire("b", 1, ms(100)).expect("free");
    let _waits = Task::pending(manager.acquire("b", 2, ms(100)));
    let told = a.upgrade(ms(100)).wait();
    assert!(
        matches!(told, Err(AcquireError::Deadlock { .. })),
        "{told:?}"
    );
    assert!(a.is_live() && manager.waiting() == 1);
}

/// Two threads that take two keys in opposite orders, for ever: with detection, each round ends.
#[test]
fn threads_that_cross_always_go_on() {
    let manager = LockManager::builder()
        .deadlock_detection(4)
        .build()
        .expect("these options are in order");
    let told: usize = thread::scope(|scope| {
        let threads = [["a", "b"], ["b", "a"]].map(|keys| {
            let manager = &manager;
            scope.spawn(move || {
                let owner = u64::from(keys[0] == "a");
                let mut told = 0;
                for _ in 0..500 {
                    let first = manager
                        .acquire(keys[0], owner, ms(60_000))
                        .wait()
                        .expect("granted");
                    thread::yield_now();
                    match manager.acquire(keys[1], owner, ms(60_000)).wait() {
                        Ok(second) => drop(second),
                        Err(AcquireError::Deadlock { .. }) => told += 1,
                        Err(error) => panic!("{error}"),
                    }
                    drop(first);
                }
                told
            })
        });
        threads
            .map(|thread| thread.join().expect("no panic"))
            .iter()
            .sum()
    });
    assert_eq!(manager.stats().deadlocks, told as u64, "found, and told");
    assert_eq!(manager.deadlocks().len(), told.min(16));
    assert_eq!((manager.len(), manager.waiting()), (0, 0));
}

/// An owner is let go of by none of its waits while it has others.
#[test]
fn each_wait_of_an_owner_counts() {
    let manager = detecting(8);
    let _held: Vec<_> = (1..=3_u64)
        .map(|key| manager.try_acquire(key, key, ms(100)).expect("free"))
        .collect();
    let _first = Task::pending(manager.acquire(2_u64, 1, ms(100)));
    let _second = Task::pending(manager.acquire(3_u64, 1, ms(100)));
    for (owner, key) in [(2, 1_u64), (3, 1)] {
        let told = Task::new(manager.acquire(key, owner, ms(100))).poll();
        assert!(
            matches!(told, Some(Err(AcquireError::Deadlock { .. }))),
            "{owner}: {told:?}"
        );
    }
}

/// The search comes to the queue twice: to the place of one waiter, and then to one further behind, who waits
/// for somebody in between.
#[test]
fn a_circle_through_a_place_further_behind_in_a_queue_is_seen() {
    let manager = detecting(8);
    let share = |owner| manager.acquire("shared", owner, ms(100)).shared();
    let _shared = [
        share(1).try_now().expect("free"),
        share(2).try_now().expect("shared"),
    ];
    let _held = manager.try_acquire("queue", 9, ms(100)).expect("free");
    let _queue: Vec<_> = [1, 3, 2]
        .map(|owner| Task::pending(manager.acquire("queue", owner, ms(100))))
        .into();
    let Some(Err(AcquireError::Deadlock { cycle })) =
        Task::new(manager.acquire("shared", 3, ms(100))).poll()
    else {
        panic!("nobody noticed");
    };
    let circle = [
        (OwnerId(3), manager.key("shared")),
        (OwnerId(2), manager.key("queue")),
    ];
    assert_eq!(cycle.waits, circle);
}

#[test]
fn who_would_upgrade_is_not_in_its_own_way() {
    let manager = detecting(8);
    let share = |owner| manager.acquire("a", owner, ms(100)).shared();
    let mut mine = share(1).try_now().expect("free");
    let other = share(2).try_now().expect("shared");
    let mut upgrade = Task::pending(mine.upgrade(ms(100)));
    other.release().expect("live");
    assert_eq!(upgrade.poll(), Some(Ok(())));
    assert!(manager.deadlocks().is_empty());
}

/// Whether the wheel has come to it or not: nobody waits for a lease that is over.
#[test]
fn a_circle_through_a_lease_that_is_over_is_none() {
    for shared in [false, true] {
        let clock = ManualClock::new();
        let manager = LockManager::builder()
            .clock(clock.clone())
            .driver(false)
            .deadlock_detection(8)
            .build()
            .expect("these options are in order");
        let wish = manager.acquire("over", 1, ms(10));
        let wish = if shared { wish.shared() } else { wish };
        let _over = wish.try_now().expect("free");
        let _live = manager.try_acquire("live", 2, ms(100)).expect("free");
        let mut granted = Task::pending(manager.acquire("over", 2, ms(100)));
        clock.advance(ms(10));
        let _waits = Task::pending(manager.acquire("live", 1, ms(100)));
        assert!(manager.deadlocks().is_empty());
        manager.advance();
        assert!(granted.poll().expect("granted").is_ok());
    }
}

/// One that would share waits for who holds the key alone, in the table or with terms of its own.
#[test]
fn who_would_share_waits_for_who_is_alone_with_the_key() {
    let manager = detecting(8);
    let _alone = manager
        .acquire("a", 1, ms(100))
        .lock_delay(ms(5))
        .try_now()
        .expect("free");
    let _held = manager.try_acquire("b", 2, ms(100)).expect("free");
    let _waits = Task::pending(manager.acquire("a", 2, ms(100)).shared());
    let told = Task::new(manager.acquire("b", 1, ms(100))).poll();
    assert!(
        matches!(told, Some(Err(AcquireError::Deadlock { .. }))),
        "{told:?}"
    );
}
