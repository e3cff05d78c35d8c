//! What is seen in the very tick in which something ends, before the wheel has come to it.

use std::time::Duration;

use tenure::{AcquireError, EventKind, LockManager, Loss, ManualClock};

use crate::{Task, assert_idle, manual, ms, pass};

/// One nanosecond less.
fn just_under(duration: Duration) -> Duration {
    duration.saturating_sub(Duration::from_nanos(1))
}

#[test]
fn a_lease_at_its_deadline_is_on_no_list() {
    let (manager, clock) = manual();
    let _plain = manager.try_acquire("plain", 1, ms(10)).expect("free");
    let shared = |owner| manager.acquire("shared", owner, ms(10)).shared();
    let _shared = shared(1).try_now().expect("free");
    let _waited_for = manager.try_acquire("waited for", 1, ms(10)).expect("free");
    let _waits = Task::pending(manager.acquire("waited for", 2, ms(10)));
    let holders = || -> usize { manager.snapshot().iter().map(|key| key.holders.len()).sum() };
    clock.advance(just_under(ms(10)));
    assert_eq!((manager.iter().count(), holders()), (3, 3));
    clock.advance(Duration::from_nanos(1));
    assert_eq!((manager.iter().count(), holders()), (0, 0));
}

#[test]
fn a_snapshot_says_for_how_long_a_key_is_kept_free() {
    let (manager, clock) = manual();
    let lease = manager
        .acquire("k", 1, ms(50))
        .min_hold(ms(10))
        .try_now()
        .expect("free");
    lease.release().expect("live");
    let delayed = || manager.snapshot().first().and_then(|key| key.delayed);
    let told = delayed().expect("kept free");
    assert!(told >= ms(10) && told <= ms(12), "{told:?}");
    clock.advance(just_under(told));
    assert_eq!(delayed(), Some(Duration::from_nanos(1)));
    clock.advance(Duration::from_nanos(1));
    assert_eq!(delayed(), None);
}

/// A lease that is revoked in the midst of a tick is followed by the whole of its lock-delay.
#[test]
fn a_lock_delay_after_a_revocation_is_no_shorter_than_it_says() {
    let (manager, clock) = manual();
    let _lease = manager
        .acquire("k", 1, ms(50))
        .lock_delay(ms(5))
        .try_now()
        .expect("free");
    clock.advance(Duration::from_micros(500));
    manager.revoke("k").expect("held");
    clock.advance(just_under(ms(5)));
    let early = manager.try_acquire("k", 2, ms(10)).map(drop);
    assert!(
        matches!(early, Err(AcquireError::Delayed { .. })),
        "{early:?}"
    );
    pass(&manager, &clock, 2);
    assert!(manager.try_acquire("k", 2, ms(10)).is_ok());
}

/// From its deadline to the moment when it was acted on, whatever kind of lease it was.
#[test]
fn how_late_an_end_was_is_counted_from_the_deadline() {
    for in_session in [false, true] {
        let (manager, clock) = manual();
        clock.advance(ms(100));
        let session = manager.session(1, ms(10)).expect("in range");
        let _lease = if in_session {
            session.acquire("k").lock_delay(ms(1)).try_now()
        } else {
            manager.acquire("k", 1, ms(10)).shared().try_now()
        };
        clock.advance(ms(25));
        manager.advance();
        let stats = manager.stats();
        assert_eq!((stats.expired, stats.max_expiry_lag), (1, ms(15)));
        assert_eq!(session.close(), Err(tenure::SessionError::Over));
    }
}

/// A lease that is shorter than three ticks is kept for three, and not for longer.
#[test]
fn a_short_lease_that_is_kept_is_renewed_for_a_few_ticks_each_time() {
    let (manager, clock) = manual();
    clock.advance(ms(1000));
    let _lease = manager
        .acquire("k", 1, ms(1))
        .auto_renew(ms(500))
        .try_now()
        .expect("free");
    for _ in 0..50 {
        pass(&manager, &clock, 1);
        let left = manager.holder("k").expect("kept").remaining;
        assert!(left <= ms(3), "{left:?} left");
    }
}

#[test]
fn a_keeper_tells_of_renewals_that_move_the_deadline_only() {
    let (manager, clock) = manual();
    let mut events = manager.events(1000);
    let lease = manager
        .acquire("k", 1, ms(9))
        .auto_renew(ms(10_000))
        .try_now()
        .expect("free");
    lease.renew(ms(1000)).expect("live");
    pass(&manager, &clock, 900);
    let told: Vec<_> = std::iter::from_fn(|| events.try_next())
        .map(|event| event.expect("room").kind)
        .collect();
    assert_eq!(told, [EventKind::Granted, EventKind::Renewed]);
    assert!(lease.is_live());
}

/// The lease goes on, with another token; who watches it hears of its end.
#[test]
fn an_upgrade_is_no_loss() {
    let (manager, _) = manual();
    let mut lease = manager
        .acquire("k", 1, ms(10))
        .shared()
        .try_now()
        .expect("free");
    let mut lost = Task::pending(lease.lost());
    lease.upgrade(ms(10)).wait().expect("alone");
    assert!(lost.poll().is_none());
    lease.release().expect("live");
    assert_eq!(lost.poll(), Some(Loss::Released));
}

/// Some of those who watch have gone, and the list of them has been tidied meanwhile.
#[test]
fn all_who_still_watch_a_lease_are_told() {
    let (manager, _) = manual();
    let plain = manager.try_acquire("plain", 1, ms(10)).expect("free");
    let shared = manager.acquire("shared", 1, ms(10)).shared();
    let shared = shared.try_now().expect("free");
    for lease in [plain, shared] {
        let mut stay: Vec<_> = (0..20)
            .map(|_| {
                drop(lease.lost());
                Task::pending(lease.lost())
            })
            .collect();
        lease.release().expect("live");
        for lost in &mut stay {
            assert_eq!((lost.poll(), lost.wakes()), (Some(Loss::Released), 1));
        }
    }
    assert_idle(&manager);
}

/// Of its own, or of somebody else's: an acquisition that may enter a lease enters none that it may not.
#[test]
fn a_reentrant_acquisition_is_refused_by_a_lease_that_it_cannot_enter() {
    let (manager, _) = manual();
    let _other = manager.try_acquire("other's", 2, ms(10)).expect("free");
    let session = manager.session(1, ms(10)).expect("in range");
    let _in_session = session.try_acquire("in a session").expect("free");
    for (key, holder) in [("other's", 2), ("in a session", 1)] {
        let refused = manager.acquire(key, 1, ms(10)).reentrant().try_now();
        let Err(AcquireError::Held { owner, .. }) = refused.map(drop) else {
            panic!("{key} was entered");
        };
        assert_eq!(owner.0, holder);
    }
}

/// A key that is held or kept free by its record is told of as ever, also if no other lease may be granted.
#[test]
fn a_full_manager_says_who_holds_a_key_or_for_how_long_it_is_kept_free() {
    let manager = LockManager::builder()
        .clock(ManualClock::new())
        .driver(false)
        .max_keys(1)
        .build()
        .expect("these options are in order");
    let shared = manager.acquire("k", 1, ms(10)).shared().min_hold(ms(5));
    let shared = shared.try_now().expect("free");
    let asked = |key| manager.try_acquire(key, 2, ms(10)).map(drop);
    let held = asked("k");
    assert!(
        matches!(held, Err(AcquireError::Held { owner, .. }) if owner.0 == 1),
        "{held:?}"
    );
    let full = Err(AcquireError::CapacityExceeded { capacity: 1 });
    assert_eq!(asked("other"), full);
    shared.release().expect("live");
    let delayed = asked("k");
    assert!(
        matches!(delayed, Err(AcquireError::Delayed { .. })),
        "{delayed:?}"
    );
    assert_eq!(asked("other"), full, "what is kept free takes a place");
}
