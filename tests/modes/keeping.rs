//! Renewal by the manager, signals of loss, lock-delay and minimum hold.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use tenure::{AcquireError, LockManager, Loss};

use crate::{Task, assert_idle, manual, ms, pass};

/// Case 4: the holder learns of its loss within a tick.
#[test]
fn case_4_a_lost_lease_says_so_within_a_tick() {
    let (manager, clock) = manual();
    let lease = manager.try_acquire("k", 1, ms(10)).expect("free");
    let mut lost = Task::pending(lease.lost());
    pass(&manager, &clock, 9);
    assert!(lost.poll().is_none());
    pass(&manager, &clock, 1);
    assert_eq!((lost.wakes(), lost.poll()), (1, Some(Loss::Expired)));
    assert_eq!(lease.lost().now(), Some(Loss::Expired), "asked afterwards");

    let lease = manager.try_acquire("k", 1, ms(10)).expect("free");
    let mut lost = Task::pending(lease.lost());
    let mut second = Task::pending(lease.lost());
    manager.revoke("k").expect("held");
    assert_eq!(
        (lost.poll(), second.poll()),
        (Some(Loss::Revoked), Some(Loss::Revoked))
    );

    let lease = manager.try_acquire("k", 1, ms(10)).expect("free");
    let mut lost = Task::pending(lease.lost());
    manager.release("k", lease.token()).expect("live");
    assert_eq!(lost.poll(), Some(Loss::Released));
    drop(lease);

    let lease = manager
        .acquire("k", 1, ms(10))
        .shared()
        .try_now()
        .expect("free");
    let mut lost = Task::pending(lease.lost());
    pass(&manager, &clock, 10);
    assert_eq!(lost.poll(), Some(Loss::Expired));
    drop(lease);
    assert_idle(&manager);
}

#[test]
fn a_renewed_lease_that_is_watched_is_not_lost() {
    let (manager, clock) = manual();
    let lease = manager.try_acquire("k", 1, ms(10)).expect("free");
    let mut lost = Task::pending(lease.lost());
    for _ in 0..10 {
        pass(&manager, &clock, 9);
        lease.renew(ms(10)).expect("live");
        assert!(lost.poll().is_none());
    }
    lease.release().expect("live");
    assert_eq!(lost.poll(), Some(Loss::Released));
    assert_idle(&manager);
}

#[test]
fn observers_that_are_gone_leave_nothing_behind() {
    let (manager, _) = manual();
    let lease = manager.try_acquire("k", 1, ms(10)).expect("free");
    for _ in 0..10_000 {
        assert_eq!(lease.lost().now(), None);
    }
    lease.release().expect("live");
    assert_idle(&manager);
}

/// A waker that panics.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("an observer's waker panics");
    }
}

#[test]
fn an_observer_that_panics_delays_nothing() {
    let (manager, clock) = manual();
    let lease = manager.try_acquire("k", 1, ms(10)).expect("free");
    let mut panics = lease.lost();
    let waker = Waker::from(Arc::new(Panics));
    let pinned = std::pin::Pin::new(&mut panics);
    assert!(std::future::Future::poll(pinned, &mut Context::from_waker(&waker)).is_pending());
    let mut lost = Task::pending(lease.lost());
    let mut next = Task::pending(manager.acquire("k", 2, ms(10)));
    let passed = catch_unwind(AssertUnwindSafe(|| pass(&manager, &clock, 10)));
    assert!(passed.is_ok(), "the panic came through");
    assert_eq!(lost.poll(), Some(Loss::Expired));
    assert!(next.poll().expect("granted").is_ok());
}

#[test]
fn closing_the_manager_tells_all_who_watch() {
    let (manager, _) = manual();
    let lease = manager
        .try_acquire("k", 1, ms(10))
        .expect("free")
        .into_owned();
    let shared = manager
        .acquire("s", 1, ms(10))
        .shared()
        .try_now()
        .expect("free")
        .into_owned();
    let (lost, also) = (lease.lost(), shared.lost());
    drop(manager);
    assert_eq!((lost.wait(), also.wait()), (Loss::Closed, Loss::Closed));
}

/// Case 6: lost and retaken, it is kept again.
#[test]
fn case_6_a_kept_lease_is_kept_again_after_a_retake() {
    let (manager, clock) = manual();
    let kept = || {
        manager
            .acquire("k", 1, ms(9))
            .auto_renew(Duration::from_secs(3600))
    };
    let first = kept().try_now().expect("free");
    pass(&manager, &clock, 50);
    assert!(first.is_live());
    manager.revoke("k").expect("held");
    assert!(!first.is_live());
    let second = kept().try_now().expect("free");
    drop(first);
    pass(&manager, &clock, 45);
    assert!(second.is_live(), "for 5 TTLs");
    second.release().expect("live");
    pass(&manager, &clock, 20);
    assert!(manager.holder("k").is_none());
    assert_idle(&manager);
}

#[test]
fn a_keeper_stops_at_its_cap_and_says_so() {
    let (manager, clock) = manual();
    let lease = manager
        .acquire("k", 1, ms(10))
        .auto_renew(ms(35))
        .try_now()
        .expect("free");
    let mut lost = Task::pending(lease.lost());
    pass(&manager, &clock, 35);
    assert!(lease.is_live());
    pass(&manager, &clock, 1);
    assert!(!lease.is_live());
    assert_eq!(lost.poll(), Some(Loss::MaxHold));
    assert!(manager.try_acquire("k", 2, ms(10)).is_ok());
}

/// A turn of the wheel that comes too late: the lease has expired like any other (I4).
#[test]
fn a_keeper_that_is_held_up_revives_nothing() {
    let (manager, clock) = manual();
    let lease = manager
        .acquire("k", 1, ms(10))
        .auto_renew(ms(1000))
        .try_now()
        .expect("free");
    clock.advance(ms(10));
    manager.advance();
    assert!(!lease.is_live());
    assert_eq!(manager.stats().expired, 1);
    assert_idle(&manager);
}

/// Case 5: no renewal outlives the lease. (Whether a lease is kept in time is for the manual clock to tell:
/// here any thread may be held up.)
#[test]
fn case_5_a_storm_of_kept_leases_leaves_nothing() {
    let manager = LockManager::new();
    std::thread::scope(|scope| {
        for owner in 0..4_u64 {
            let manager = &manager;
            scope.spawn(move || {
                for round in 0..3_000 {
                    let acquire = manager.acquire(round % 7, owner, ms(3)).auto_renew(ms(500));
                    if let Ok(lease) = acquire.try_now() {
                        if round % 50 == 0 {
                            std::thread::sleep(ms(5));
                        }
                        let _ = lease.release();
                    }
                }
            });
        }
    });
    assert_idle(&manager);
    for key in 0..7_u64 {
        assert!(manager.try_acquire(key, 9, ms(10)).is_ok());
    }
    std::thread::sleep(ms(20));
    assert_idle(&manager);
}

#[test]
fn a_lock_delay_follows_an_unclean_end_only() {
    let (manager, clock) = manual();
    let delayed = || manager.acquire("k", 1, ms(10)).lock_delay(ms(20));
    delayed().try_now().expect("free").release().expect("live");
    let lease = delayed().try_now().expect("no delay after a clean release");
    pass(&manager, &clock, 10);
    assert!(!lease.is_live());
    let refused = manager.try_acquire("k", 2, ms(10)).map(drop);
    assert!(
        matches!(refused, Err(AcquireError::Delayed { .. })),
        "{refused:?}"
    );
    let mut next = Task::pending(manager.acquire("k", 2, ms(10)));
    pass(&manager, &clock, 19);
    assert!(next.poll().is_none());
    assert!(manager.holder("k").is_none());
    pass(&manager, &clock, 2);
    assert!(next.poll().expect("granted").is_ok());
    drop(next);

    let _lease = delayed().try_now().expect("free");
    manager.revoke("k").expect("held");
    assert!(matches!(
        manager.try_acquire("k", 2, ms(10)),
        Err(AcquireError::Delayed { .. })
    ));
    pass(&manager, &clock, 21);
    assert!(manager.try_acquire("k", 2, ms(10)).is_ok());
    assert_idle(&manager);
}

#[test]
fn a_minimum_hold_outlasts_an_early_release() {
    let (manager, clock) = manual();
    let job = || manager.acquire("job", 1, ms(100)).min_hold(ms(30));
    job().try_now().expect("free").release().expect("live");
    assert!(
        matches!(job().try_now(), Err(AcquireError::Delayed { remaining }) if remaining <= ms(31))
    );
    pass(&manager, &clock, 29);
    assert!(job().try_now().is_err());
    pass(&manager, &clock, 2);
    let lease = job().try_now().expect("over");
    pass(&manager, &clock, 40);
    lease.release().expect("live");
    assert!(job().try_now().is_ok(), "held for long enough");
}

#[test]
fn a_lease_that_is_entered_to_be_kept_is_kept_from_then_on() {
    let (manager, clock) = manual();
    let plain = manager.try_acquire("k", 1, ms(2)).expect("free");
    pass(&manager, &clock, 1);
    let enters = manager.acquire("k", 1, ms(1)).reentrant();
    let kept = enters.auto_renew(ms(20)).try_now().expect("entered");
    let mut lost = Task::pending(plain.lost());
    for passed in 0..20 {
        assert!(plain.is_live() && kept.is_live(), "{passed} ticks later");
        pass(&manager, &clock, 1);
    }
    pass(&manager, &clock, 1);
    assert_eq!(lost.poll(), Some(Loss::MaxHold));
    drop((plain, kept));
    assert_idle(&manager);
}

/// In a session, only the end at the limit counts: that of the last entry that has one.
#[test]
fn in_a_session_the_limit_of_an_entry_is_that_of_the_lease() {
    let (manager, clock) = manual();
    let session = manager.session(1, ms(50)).expect("in range");
    let first = session.acquire("k").auto_renew(ms(60));
    let first = first.try_now().expect("free");
    pass(&manager, &clock, 40);
    session.keep_alive().expect("live");
    let again = session.acquire("k").reentrant().auto_renew(ms(60));
    let again = again.try_now().expect("entered");
    let mut lost = Task::pending(first.lost());
    for _ in 0..60 {
        session.keep_alive().expect("live");
        assert!(first.is_live() && again.is_live());
        pass(&manager, &clock, 1);
    }
    pass(&manager, &clock, 1);
    assert_eq!(lost.poll(), Some(Loss::MaxHold));
    drop((first, again));
    session.close().expect("live");
    assert_idle(&manager);
}
