//! Options and modes where they meet, on the manual clock.

use std::time::Duration;

use crate::task::Task;
use tenure::{AcquireError, EventKind, LockManager, Loss, ManualClock, Mode, Timestamp};

fn manual() -> (LockManager, ManualClock) {
    manual_with(LockManager::builder())
}

fn manual_with(builder: tenure::Builder) -> (LockManager, ManualClock) {
    let clock = ManualClock::new();
    let builder = builder.clock(clock.clone()).driver(false);
    (builder.build().expect("in order"), clock)
}

fn ms(ticks: u64) -> Duration {
    Duration::from_millis(ticks)
}

fn pass(manager: &LockManager, clock: &ManualClock, ticks: u64) {
    for _ in 0..ticks {
        clock.advance(ms(1));
        manager.advance();
    }
}

/// All `Lost` of a session share one signal with room for one waker.
#[test]
fn two_who_watch_one_session_are_both_woken() {
    let (manager, clock) = manual();
    let session = manager.session(1, ms(10)).expect("opens");
    let mut first = Task::pending(session.lost());
    let mut second = Task::pending(session.lost());
    pass(&manager, &clock, 11);
    assert_eq!(second.poll(), Some(Loss::SessionOver));
    assert_eq!(first.poll(), Some(Loss::SessionOver));
    assert_eq!((first.wakes(), second.wakes()), (1, 1), "wake-ups");
}

#[test]
fn two_who_watch_one_multi_lease_are_both_woken() {
    let (manager, clock) = manual();
    let all = manager
        .acquire_all(["a", "b"], 1, ms(10))
        .wait()
        .expect("free");
    let first = Task::pending(all.lost());
    let second = Task::pending(all.lost());
    pass(&manager, &clock, 11);
    assert_eq!((first.wakes(), second.wakes()), (1, 1), "wake-ups");
}

/// `close` is a clean end; whoever sweeps the key before the closer has got to it takes it for an unclean
/// one. Here the closer does so itself, when it refuses the session's waiter.
#[test]
fn a_closed_session_leaves_no_quarantine() {
    let (manager, _) = manual();
    let session = manager
        .session(1, ms(1000))
        .expect("opens")
        .lock_delay(ms(500));
    let _held = session.try_acquire("k").expect("free");
    let mut waiting = Task::pending(session.acquire("k"));
    session.close().expect("live");
    assert_eq!(
        waiting.poll().expect("told").map(drop),
        Err(AcquireError::SessionOver)
    );
    let next = manager.try_acquire("k", 2, ms(10)).map(drop);
    assert_eq!(manager.stats().expired, 0, "nothing has expired");
    assert_eq!(next, Ok(()), "after a clean close");
}

#[test]
fn a_clean_close_is_told_as_a_release() {
    let (manager, _) = manual();
    let mut events = manager.events(100);
    let all = manager.acquire_all(["a"], 1, ms(10)).wait().expect("free");
    all.release().expect("live");
    let kinds: Vec<_> = std::iter::from_fn(|| events.try_next())
        .map(|event| event.expect("room").kind)
        .collect();
    assert_eq!(
        kinds,
        [
            EventKind::Granted,
            EventKind::Released,
            EventKind::Reclaimed
        ]
    );
}

#[test]
fn the_end_of_a_sessions_lease_tells_the_deadline_as_things_were() {
    let (manager, clock) = manual();
    let mut events = manager.events(100);
    let session = manager.session(1, ms(10)).expect("opens");
    let lease = session.try_acquire("a").expect("free");
    let deadline = lease.deadline();
    assert!(deadline > Timestamp::ZERO);
    pass(&manager, &clock, 12);
    for event in std::iter::from_fn(|| events.try_next()) {
        let event = event.expect("room");
        assert_eq!(event.deadline, deadline, "{:?}", event.kind);
    }
}

/// A reader crashes; its lock-delay keeps the key for what it has under way. Another reader gets the key
/// exclusively, with a new token, meanwhile.
#[test]
fn nobody_is_upgraded_during_a_lock_delay() {
    let (manager, clock) = manual();
    let crashed = manager
        .acquire("k", 1, ms(10))
        .shared()
        .lock_delay(ms(500))
        .try_now()
        .expect("free");
    let mut other = manager
        .acquire("k", 2, ms(10_000))
        .shared()
        .try_now()
        .expect("shared");
    pass(&manager, &clock, 11);
    assert!(!crashed.is_live());
    assert!(
        manager.acquire("k", 3, ms(10)).shared().try_now().is_err(),
        "the quarantine is in force"
    );
    let upgraded = other.upgrade(ms(10_000)).wait_timeout(Duration::ZERO);
    assert!(upgraded.is_err(), "granted exclusively in the quarantine");
}

#[test]
fn a_kept_lease_ends_at_its_cap_though_its_holder_renews_it() {
    let (manager, clock) = manual();
    let lease = manager
        .acquire("k", 1, ms(10))
        .auto_renew(ms(35))
        .try_now()
        .expect("free");
    let mut lost = Task::pending(lease.lost());
    let _ = lease.renew(ms(1000));
    pass(&manager, &clock, 40);
    assert!(!lease.is_live(), "held for longer than it may");
    assert_eq!(lost.poll(), Some(Loss::MaxHold));
}

#[test]
fn a_kept_lease_ends_at_its_cap_though_it_was_upgraded() {
    let (manager, clock) = manual();
    let mut lease = manager
        .acquire("k", 1, ms(10))
        .shared()
        .auto_renew(ms(35))
        .try_now()
        .expect("free");
    lease.upgrade(ms(1000)).wait().expect("alone");
    pass(&manager, &clock, 40);
    assert!(!lease.is_live(), "held for longer than it may");
}

/// A keeper whose lease was renewed past its cap never stops, and tells of renewals that are none.
#[test]
fn a_keeper_tells_of_no_renewal_that_changes_nothing() {
    let (manager, clock) = manual();
    let mut events = manager.events(10_000);
    let lease = manager
        .acquire("k", 1, ms(10))
        .auto_renew(ms(35))
        .try_now()
        .expect("free");
    let _ = lease.renew(ms(1000));
    pass(&manager, &clock, 900);
    let renewed = std::iter::from_fn(|| events.try_next())
        .filter(|event| {
            event
                .as_ref()
                .is_ok_and(|event| event.kind == EventKind::Renewed)
        })
        .count();
    assert!(
        renewed < 20,
        "{renewed} renewals, of which one moved the deadline"
    );
}

#[test]
fn a_kept_lease_of_a_session_ends_at_its_cap() {
    let (manager, clock) = manual();
    let session = manager.session(1, ms(1000)).expect("opens");
    let lease = session
        .acquire("k")
        .auto_renew(ms(20))
        .try_now()
        .expect("free");
    pass(&manager, &clock, 50);
    assert!(!lease.is_live(), "held for longer than it may");
}

#[test]
fn a_kept_lease_of_one_tick_is_kept() {
    let (manager, clock) = manual();
    let lease = manager
        .acquire("k", 1, ms(1))
        .auto_renew(ms(1000))
        .try_now()
        .expect("free");
    pass(&manager, &clock, 10);
    assert!(lease.is_live(), "neither refused nor kept");
}

/// "While some are missing, those already granted are held without a deadline."
#[test]
fn acquire_all_waits_for_longer_than_the_longest_ttl() {
    let (manager, clock) = manual_with(LockManager::builder().max_ttl(ms(10)));
    let held = manager.try_acquire("b", 9, ms(10)).expect("free");
    let mut all = Task::pending(manager.acquire_all(["a", "b"], 1, ms(10)));
    for _ in 0..4 {
        pass(&manager, &clock, 5);
        held.renew(ms(10)).expect("live");
    }
    assert!(all.poll().is_none(), "given up while it waits");
    drop(held);
    assert_eq!(all.poll().expect("granted").map(drop), Ok(()));
}

#[test]
fn acquire_all_works_as_long_as_acquire_does() {
    let clock = ManualClock::new();
    let day = Duration::from_secs(24 * 3600);
    clock.set(Timestamp::from_nanos(u64::MAX - day.as_nanos() as u64));
    let builder = LockManager::builder().clock(clock.clone()).driver(false);
    let manager = builder.build().expect("in order");
    assert!(manager.try_acquire("a", 1, ms(10)).is_ok());
    let all = manager.acquire_all(["a"], 1, ms(10)).wait().map(drop);
    assert_eq!(all, Ok(()));
}

#[test]
fn keys_that_are_acquired_together_keep_their_names() {
    let (manager, _) = manual_with(LockManager::builder().introspection(true));
    let _all = manager
        .acquire_all(["a key with a long name"], 1, ms(10))
        .wait()
        .expect("free");
    let keys = manager.snapshot();
    assert_eq!(keys[0].name.as_deref(), Some("a key with a long name"));
}

/// `downgrade` finds that the lease is over, and ends it: nobody is told.
#[test]
fn an_expiry_that_a_downgrade_comes_upon_is_told() {
    let (manager, clock) = manual();
    let mut events = manager.events(100);
    let mut lease = manager.try_acquire("k", 1, ms(10)).expect("free");
    clock.advance(ms(10));
    lease.downgrade().expect_err("it is over");
    pass(&manager, &clock, 20);
    let kinds: Vec<_> = std::iter::from_fn(|| events.try_next())
        .map(|event| event.expect("room").kind)
        .collect();
    assert_eq!(
        kinds,
        [EventKind::Granted, EventKind::Expired, EventKind::Reclaimed]
    );
}

/// I7: a cancelled waiter leaves nothing behind; a grant that reaches it as it cancels passes on.
#[test]
fn a_waiter_that_cancels_as_it_is_granted_leaves_no_minimum_hold() {
    let (manager, _) = manual();
    let held = manager.try_acquire("k", 1, ms(1000)).expect("free");
    let cancels = Task::pending(manager.acquire("k", 2, ms(10)).min_hold(ms(5000)));
    let mut next = Task::pending(manager.acquire("k", 3, ms(10)));
    drop(held);
    drop(cancels);
    assert!(
        next.poll().is_some(),
        "kept back for a lease that nobody had"
    );
}

/// A reentrant acquisition "comes before all who wait" if its owner holds the key: not if it waits already.
#[test]
fn a_reentrant_acquisition_that_waits_enters_when_its_owner_is_granted() {
    let (manager, _) = manual();
    let held = manager.try_acquire("k", 1, ms(1000)).expect("free");
    let mut first = Task::pending(manager.acquire("k", 2, ms(1000)).reentrant());
    let mut second = Task::pending(manager.acquire("k", 2, ms(1000)).reentrant());
    drop(held);
    let _outer = first.poll().expect("granted").expect("granted");
    let now = manager.acquire("k", 2, ms(1000)).reentrant().try_now();
    assert!(now.is_ok(), "one that comes now enters at once");
    assert!(
        second.poll().is_some(),
        "one that has waited for longer does not"
    );
}

#[test]
fn a_guard_says_its_mode_after_another_guard_has_downgraded_the_lease() {
    let (manager, _) = manual();
    let again = || manager.acquire("k", 1, ms(1000)).reentrant().try_now();
    let mut outer = again().expect("free");
    let inner = again().expect("its own");
    outer.downgrade().expect("live");
    let _other = manager
        .acquire("k", 2, ms(1000))
        .shared()
        .try_now()
        .expect("shared now");
    assert_eq!(inner.mode(), Mode::Shared, "somebody else is in");
}

#[test]
fn a_lease_that_another_guard_has_downgraded_can_be_upgraded() {
    let (manager, _) = manual();
    let again = || manager.acquire("k", 1, ms(1000)).reentrant().try_now();
    let mut outer = again().expect("free");
    let mut inner = again().expect("its own");
    outer.downgrade().expect("live");
    assert_eq!(inner.upgrade(ms(10)).wait_timeout(Duration::ZERO), Ok(()));
}

#[test]
fn an_entry_that_an_upgrade_ends_is_told_so() {
    let (manager, _) = manual();
    let again = || {
        let acquire = manager.acquire("k", 1, ms(1000)).shared();
        acquire.reentrant().try_now()
    };
    let mut outer = again().expect("free");
    let inner = again().expect("its own");
    let lost = inner.lost();
    outer.upgrade(ms(1000)).wait().expect("alone");
    assert!(!inner.is_live());
    assert!(lost.now().is_some(), "over, and not said");
}

#[test]
fn a_lease_keeps_its_age_when_it_is_downgraded() {
    let (manager, clock) = manual_with(LockManager::builder().introspection(true));
    let mut lease = manager.try_acquire("k", 1, ms(1000)).expect("free");
    pass(&manager, &clock, 100);
    assert_eq!(manager.snapshot()[0].holders[0].age, Some(ms(100)));
    lease.downgrade().expect("live");
    assert_eq!(manager.snapshot()[0].holders[0].age, Some(ms(100)));
}

/// Sessions are no way around each other: a lease is entered from where it was acquired.
#[test]
fn a_lease_is_entered_in_its_own_session_only() {
    let (manager, _) = manual();
    let plain = manager.try_acquire("k", 1, ms(10)).expect("free");
    let session = manager.session(1, ms(1000)).expect("opens");
    assert!(session.acquire("k").reentrant().try_now().is_err());
    drop(plain);
    let outer = session.try_acquire("k").expect("free");
    let plain = manager.acquire("k", 1, ms(1000)).reentrant();
    assert!(plain.try_now().is_err());
    let inner = session.acquire("k").reentrant().try_now().expect("its own");
    assert_eq!(inner.token(), outer.token());
    drop(inner);
    assert!(outer.is_live());
}

/// The terms of an acquisition that enters a lease hold for the lease.
#[test]
fn an_entry_with_a_lock_delay_is_followed_by_one() {
    let (manager, _) = manual();
    let _outer = manager.try_acquire("k", 1, ms(1000)).expect("free");
    let _inner = manager
        .acquire("k", 1, ms(1000))
        .reentrant()
        .lock_delay(ms(500))
        .try_now()
        .expect("its own");
    manager.revoke("k").expect("held");
    let refused = manager.try_acquire("k", 2, ms(10)).map(drop);
    assert!(
        matches!(refused, Err(AcquireError::Delayed { .. })),
        "{refused:?}"
    );
}

/// The event of an upgrade is documented as `Renewed`, and is `Granted` with another token.
#[test]
fn an_upgrade_tells_what_becomes_of_the_old_token() {
    let (manager, _) = manual();
    let mut events = manager.events(100);
    let mut lease = manager
        .acquire("k", 1, ms(1000))
        .shared()
        .try_now()
        .expect("free");
    lease.upgrade(ms(1000)).wait().expect("alone");
    lease.release().expect("live");
    let mut open = std::collections::BTreeSet::new();
    for event in std::iter::from_fn(|| events.try_next()) {
        let event = event.expect("room");
        match event.kind {
            EventKind::Granted => _ = open.insert(event.token),
            EventKind::Released | EventKind::Expired | EventKind::Revoked => {
                open.remove(&event.token);
            }
            _ => {}
        }
    }
    assert!(open.is_empty(), "granted and never ended: {open:?}");
}

/// "All or nothing": the first key was revoked, and has another holder, before the last was granted.
#[test]
fn acquire_all_says_nothing_of_a_key_that_it_has_lost() {
    let (manager, _) = manual();
    let keys = {
        let mut keys = [manager.key("a"), manager.key("b")];
        keys.sort_unstable();
        keys
    };
    let held = manager.try_acquire(keys[1], 9, ms(1000)).expect("free");
    let mut all = Task::pending(manager.acquire_all(keys, 1, ms(1000)));
    manager.revoke(keys[0]).expect("held");
    let other = manager.try_acquire(keys[0], 2, ms(1000)).expect("free");
    drop(held);
    // It gives back what it has, and asks for all anew.
    assert!(all.poll().is_none());
    assert!(other.is_live());
    let token = other.token();
    other.release().expect("live");
    let all = all.poll().expect("granted").expect("granted");
    assert!(all.is_live() && all.token(keys[0]) > Some(token));
}

/// A lease that is exclusive already is said to be over.
#[test]
fn an_upgrade_of_an_exclusive_lease_does_not_say_that_it_is_over() {
    let (manager, _) = manual();
    let mut lease = manager.try_acquire("k", 1, ms(1000)).expect("free");
    let upgraded = lease.upgrade(ms(1000)).wait();
    assert!(lease.is_live());
    if let Err(error) = upgraded {
        assert!(!error.to_string().contains("is over"), "{error}");
    }
}

/// Whoever asks for the signal of a lease that has just ended drops the watches of those who asked before.
#[test]
fn a_late_watcher_takes_nothing_from_an_early_one() {
    let (manager, clock) = manual();
    let lease = manager.try_acquire("k", 1, ms(10)).expect("free");
    let mut early = Task::pending(lease.lost());
    clock.advance(ms(10));
    // Before the wheel is turned.
    assert_eq!(lease.lost().now(), Some(Loss::Expired));
    pass(&manager, &clock, 50);
    assert_eq!((early.wakes(), early.poll()), (1, Some(Loss::Expired)));
}

/// I11: however long a chain of owners is, it takes no stack.
#[test]
fn a_long_chain_of_owners_overflows_no_stack() {
    const LENGTH: u64 = 60_000;
    let (manager, _) = manual_with(LockManager::builder().deadlock_detection(usize::MAX));
    for key in 0..LENGTH {
        manager
            .try_acquire(key, key, ms(3_600_000))
            .expect("free")
            .detach();
    }
    let mut waiting: Vec<_> = (0..LENGTH - 1)
        .map(|owner| Task::pending(manager.acquire(owner + 1, owner, ms(3_600_000))))
        .collect();
    let mut closes = Task::new(manager.acquire(0_u64, LENGTH - 1, ms(3_600_000)));
    let told = closes.poll().expect("a circle").map(drop);
    assert!(matches!(told, Err(AcquireError::Deadlock { .. })));
    waiting.clear();
}
