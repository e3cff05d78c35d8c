//! Shared leases, permits, upgrades, downgrades, and entering again.

use tenure::{AcquireError, Mode, ReleaseError, RenewError};

use crate::{Task, assert_idle, manual, ms, pass};

#[test]
fn shared_leases_have_tokens_and_deadlines_of_their_own() {
    let (manager, clock) = manual();
    let a = manager
        .acquire("k", 1, ms(10))
        .shared()
        .try_now()
        .expect("free");
    let b = manager
        .acquire("k", 2, ms(20))
        .shared()
        .try_now()
        .expect("shared");
    assert!(b.token() > a.token(), "I2");
    assert_eq!((a.mode(), b.mode()), (Mode::Shared, Mode::Shared));
    assert_eq!(manager.len(), 2);
    assert_eq!(manager.iter().count(), 2);
    let holders: Vec<_> = manager.holders("k").iter().map(|it| it.token).collect();
    assert_eq!(holders, [a.token(), b.token()]);
    let mut lost = Task::pending(manager.lost("k", a.token()));
    let refused = manager.try_acquire("k", 3, ms(5)).map(drop);
    assert!(
        matches!(refused, Err(AcquireError::Held { token, .. }) if token == b.token()),
        "{refused:?}"
    );
    pass(&manager, &clock, 10);
    assert!(!a.is_live(), "a crashed reader expires alone");
    assert_eq!(lost.poll(), Some(tenure::Loss::Expired));
    assert!(b.is_live());
    assert_eq!(
        a.renew(ms(5)),
        Err(RenewError::Expired { token: a.token() })
    );
    assert_eq!(manager.len(), 1);
    b.renew(ms(30)).expect("live");
    pass(&manager, &clock, 29);
    assert!(b.is_live());
    let token = a.token();
    assert_eq!(a.release(), Err(ReleaseError::Expired { token }));
    b.release().expect("live");
    let c = manager.try_acquire("k", 3, ms(5)).expect("free");
    assert!(c.token() > token, "I2");
    drop(c);
    assert_idle(&manager);
}

#[test]
fn a_plain_lease_keeps_sharers_out_and_they_it() {
    let (manager, _) = manual();
    let plain = manager.try_acquire("k", 1, ms(10)).expect("free");
    let refused = manager.acquire("k", 2, ms(10)).shared().try_now().map(drop);
    assert!(matches!(refused, Err(AcquireError::Held { token, .. }) if token == plain.token()));
    let mut waiting = Task::pending(manager.acquire("k", 2, ms(10)).shared());
    plain.release().expect("live");
    let shared = waiting.poll().expect("granted").expect("granted");
    assert_eq!(shared.mode(), Mode::Shared);
    assert_eq!(waiting.wakes(), 1);
    assert!(manager.try_acquire("k", 3, ms(10)).is_err());
    drop(shared);
    assert_idle(&manager);
}

/// Writers aren't starved by a stream of readers, and readers that wait behind one come in together.
#[test]
fn nobody_overtakes_a_waiting_writer() {
    let (manager, _) = manual();
    let reader = manager
        .acquire("k", 1, ms(50))
        .shared()
        .try_now()
        .expect("free");
    let mut writer = Task::pending(manager.acquire("k", 2, ms(50)));
    assert!(manager.acquire("k", 3, ms(50)).shared().try_now().is_err());
    let mut later: Vec<_> = (0..3)
        .map(|owner| Task::pending(manager.acquire("k", 10 + owner, ms(50)).shared()))
        .collect();
    reader.release().expect("live");
    let writing = writer.poll().expect("granted").expect("granted");
    assert!(later.iter_mut().all(|task| task.poll().is_none()));
    writing.release().expect("live");
    let readers: Vec<_> = later
        .iter_mut()
        .map(|task| task.poll().expect("granted").expect("granted"))
        .collect();
    assert!(later.iter().all(|task| task.wakes() == 1), "one wake each");
    assert_eq!(manager.len(), 3);
    drop(readers);
    assert_idle(&manager);
}

#[test]
fn a_writer_that_gives_up_lets_the_readers_behind_it_in() {
    let (manager, _) = manual();
    let _reader = manager
        .acquire("k", 1, ms(50))
        .shared()
        .try_now()
        .expect("free");
    let writer = Task::pending(manager.acquire("k", 2, ms(50)));
    let mut behind = Task::pending(manager.acquire("k", 3, ms(50)).shared());
    drop(writer);
    assert!(behind.poll().expect("granted").is_ok());
}

#[test]
fn a_semaphore_has_as_many_permits_as_it_says() {
    let (manager, clock) = manual();
    let permit = |owner| manager.acquire("k", owner, ms(20)).permit(3);
    let mut held: Vec<_> = (0..3)
        .map(|owner| permit(owner).try_now().expect("a permit is left"))
        .collect();
    assert!(
        held.windows(2)
            .all(|pair| pair[0].token() < pair[1].token())
    );
    assert!(matches!(
        permit(4).try_now(),
        Err(AcquireError::Held { .. })
    ));
    assert!(manager.acquire("k", 4, ms(20)).shared().try_now().is_err());
    let mut first = Task::pending(permit(5));
    let mut second = Task::pending(permit(6));
    held.pop();
    let fifth = first.poll().expect("granted").expect("granted");
    assert!(second.poll().is_none());
    // The others crash.
    held.drain(..).for_each(std::mem::forget);
    pass(&manager, &clock, 20);
    let sixth = second.poll().expect("granted").expect("granted");
    assert!(fifth.token() < sixth.token());
    assert_eq!(
        permit(7).permit(0).try_now().map(drop),
        Err(AcquireError::Permits { of: 0 })
    );
    drop((fifth, sixth));
    assert_idle(&manager);
}

#[test]
fn a_lease_that_is_entered_again_is_free_after_its_last_release() {
    for counted_from_the_start in [false, true] {
        let (manager, clock) = manual();
        let again = |ttl| manager.acquire("k", 1, ms(ttl)).reentrant();
        let outer = if counted_from_the_start {
            again(20).try_now()
        } else {
            manager.try_acquire("k", 1, ms(20))
        };
        let outer = outer.expect("free");
        let inner = again(5).try_now().expect("its own");
        assert_eq!(inner.token(), outer.token(), "same token");
        assert_eq!(inner.deadline(), outer.deadline(), "never moved back");
        assert!(matches!(
            manager.acquire("k", 2, ms(5)).reentrant().try_now(),
            Err(AcquireError::Held { .. })
        ));
        assert!(manager.try_acquire("k", 1, ms(5)).is_err(), "not asked for");
        let mut waiting = Task::pending(manager.acquire("k", 2, ms(20)));
        let third = again(30).try_now().expect("its own, before all who wait");
        assert!(outer.deadline() == third.deadline());
        outer.release().expect("live");
        assert!(waiting.poll().is_none());
        drop(inner);
        pass(&manager, &clock, 29);
        assert!(third.is_live(), "as long as the last entry asked for");
        assert!(waiting.poll().is_none());
        let token = third.token();
        third.release().expect("live");
        let next = waiting.poll().expect("granted").expect("granted");
        assert!(next.token() > token);
        drop(next);
        assert_idle(&manager);
    }
}

#[test]
fn an_exclusive_lease_covers_a_shared_entry_and_a_shared_one_no_exclusive() {
    let (manager, _) = manual();
    let writer = manager.try_acquire("k", 1, ms(20)).expect("free");
    let reader = manager
        .acquire("k", 1, ms(20))
        .shared()
        .reentrant()
        .try_now();
    assert_eq!(reader.expect("covered").token(), writer.token());
    drop(writer);
    let reader = manager
        .acquire("k", 1, ms(20))
        .shared()
        .try_now()
        .expect("free");
    assert!(
        manager
            .acquire("k", 1, ms(20))
            .reentrant()
            .try_now()
            .is_err()
    );
    drop(reader);
    assert_idle(&manager);
}

/// Case 22: a sole holder is not in its own way.
#[test]
fn case_22_a_sole_shared_holder_upgrades() {
    let (manager, _) = manual();
    let mut lease = manager
        .acquire("k", 1, ms(20))
        .shared()
        .try_now()
        .expect("free");
    let shared = lease.token();
    let mut waiting = Task::pending(manager.acquire("k", 2, ms(20)));
    lease.upgrade(ms(30)).wait().expect("nobody else shares");
    assert_eq!(lease.mode(), Mode::Exclusive);
    assert!(lease.token() > shared, "a grant has a token of its own");
    assert_eq!(lease.remaining(), ms(30));
    assert!(waiting.poll().is_none(), "it comes before all who wait");
    assert!(manager.validate("k", shared).is_err());
    lease.release().expect("live");
    assert!(waiting.poll().expect("granted").is_ok());
    drop(waiting);
    assert_idle(&manager);
}

/// Case 22: of two upgraders, exactly one is told `Deadlock`.
#[test]
fn case_22_the_second_of_two_upgraders_is_told() {
    let (manager, _) = manual();
    let share = |owner| {
        manager
            .acquire("k", owner, ms(50))
            .shared()
            .try_now()
            .expect("shared")
    };
    let (mut a, mut b) = (share(1), share(2));
    {
        let mut first = Task::pending(a.upgrade(ms(50)));
        let second = b.upgrade(ms(50)).wait();
        let Err(AcquireError::Deadlock { cycle }) = second else {
            panic!("{second:?}");
        };
        assert_eq!(cycle.waits.len(), 2);
        assert!(
            manager.acquire("k", 3, ms(50)).shared().try_now().is_err(),
            "upgrade first"
        );
        assert!(b.is_live(), "as it was");
        b.release().expect("live");
        first.poll().expect("granted").expect("granted");
        assert_eq!(first.wakes(), 1);
    }
    assert_eq!(a.mode(), Mode::Exclusive);
    drop(a);
    assert_idle(&manager);
}

/// Who has nothing to release is in nobody's way: there is no deadlock to tell it of.
#[test]
fn an_upgrade_of_a_lease_that_is_over_is_no_deadlock() {
    let (manager, clock) = manual();
    let share = |owner, ttl| manager.acquire("k", owner, ms(ttl)).shared().try_now();
    let mut gone = share(1, 10).expect("shared");
    let mut first = share(2, 50).expect("shared");
    let _other = share(3, 50).expect("shared");
    let token = gone.token();
    pass(&manager, &clock, 10);
    let _waits = Task::pending(first.upgrade(ms(50)));
    let lapsed = Err(AcquireError::Lapsed { token });
    assert_eq!(gone.upgrade(ms(50)).wait(), lapsed);
    assert_eq!(manager.stats().deadlocks, 0);
}

#[test]
fn an_upgrade_may_be_dropped_at_any_time() {
    let (manager, _) = manual();
    let share = |owner| {
        manager
            .acquire("k", owner, ms(50))
            .shared()
            .try_now()
            .expect("shared")
    };
    let (mut a, b) = (share(1), share(2));
    drop(Task::pending(a.upgrade(ms(50))));
    assert_eq!((a.mode(), manager.waiting()), (Mode::Shared, 0));
    {
        let upgrade = Task::pending(a.upgrade(ms(50)));
        b.release().expect("live");
        drop(upgrade);
    }
    assert_eq!(a.mode(), Mode::Exclusive, "granted as it was dropped");
    assert!(a.is_live());
    a.release().expect("live");
    assert_idle(&manager);
}

#[test]
fn an_upgrade_of_a_lease_that_expires_is_told_so() {
    let (manager, clock) = manual();
    let share = |owner, ttl| manager.acquire("k", owner, ms(ttl)).shared().try_now();
    let mut a = share(1, 10).expect("shared");
    let _b = share(2, 50).expect("shared");
    let token = a.token();
    let mut upgrade = Task::pending(a.upgrade(ms(50)));
    pass(&manager, &clock, 10);
    assert_eq!(upgrade.poll(), Some(Err(AcquireError::Lapsed { token })));
    assert!(share(3, 10).is_ok(), "nobody upgrades any more");
}

/// No gap: nobody is granted the key exclusively in between, and it is the same lease.
#[test]
fn a_downgraded_lease_lets_sharers_in_and_nobody_else() {
    for plain in [true, false] {
        let (manager, _) = manual();
        let acquire = manager.acquire("k", 1, ms(50));
        let mut lease = if plain {
            acquire.try_now().expect("free")
        } else {
            acquire.lock_delay(ms(5)).try_now().expect("free")
        };
        let (token, deadline) = (lease.token(), lease.deadline());
        let mut reader = Task::pending(manager.acquire("k", 2, ms(50)).shared());
        let mut writer = Task::pending(manager.acquire("k", 3, ms(50)));
        lease.downgrade().expect("live");
        assert_eq!(
            (lease.token(), lease.deadline(), lease.mode()),
            (token, deadline, Mode::Shared)
        );
        let reading = reader.poll().expect("granted").expect("granted");
        assert!(reading.token() > token);
        assert!(writer.poll().is_none());
        drop((lease, reading));
        assert!(writer.poll().expect("granted").is_ok());
        drop(writer);
        assert_idle(&manager);
    }
}

#[test]
fn a_revocation_ends_all_who_share() {
    let (manager, _) = manual();
    let share = |owner| {
        manager
            .acquire("k", owner, ms(50))
            .shared()
            .try_now()
            .expect("shared")
    };
    let (a, b) = (share(1), share(2));
    let mut writer = Task::pending(manager.acquire("k", 3, ms(50)));
    let revoked = manager.revoke("k").expect("held");
    assert_eq!(revoked.token, a.token());
    assert!(!a.is_live() && !b.is_live());
    assert_eq!(manager.stats().revoked, 2);
    assert!(writer.poll().expect("granted").is_ok());
}

/// It is a grant like any other: what the owner has waiting for the key enters it.
#[test]
fn an_upgrade_lets_in_the_owners_acquisitions_that_would_enter() {
    let (manager, _) = manual();
    for alone in [true, false] {
        let shared = || manager.acquire("k", 1, ms(50)).shared().try_now();
        let mut lease = shared().expect("free");
        let other = manager.acquire("k", 2, ms(50)).shared();
        let other = other.try_now().expect("shared");
        // A shared lease does not cover it, and an exclusive one does.
        let mut inner = Task::pending(manager.acquire("k", 1, ms(50)).reentrant());
        let mut stranger = Task::pending(manager.acquire("k", 3, ms(50)));
        let before = lease.token();
        if alone {
            other.release().expect("live");
            lease.upgrade(ms(50)).wait().expect("nobody else shares");
        } else {
            let mut upgrade = Task::pending(lease.upgrade(ms(50)));
            other.release().expect("live");
            assert_eq!(upgrade.poll(), Some(Ok(())));
        }
        assert!(lease.token() > before);
        let inner = inner.poll().expect("told").expect("entered");
        assert_eq!(inner.token(), lease.token());
        lease.release().expect("entered twice");
        assert!(stranger.poll().is_none(), "left once");
        inner.release().expect("live");
        drop(stranger.poll().expect("told").expect("granted"));
    }
    crate::assert_idle(&manager);
}

/// So does what the owner waits for behind its own turn in the queue, however plain the lease is that it is granted.
#[test]
fn a_grant_lets_in_the_owners_acquisitions_that_would_enter() {
    let (manager, _) = manual();
    for shared in [false, true] {
        let ask = |owner| {
            let acquire = manager.acquire("k", owner, ms(50));
            if shared { acquire.shared() } else { acquire }
        };
        let held = manager.try_acquire("k", 2, ms(50)).expect("free");
        let mut outer = Task::pending(ask(1));
        let mut stranger = Task::pending(manager.acquire("k", 3, ms(50)));
        let mut inner = Task::pending(ask(1).reentrant());
        held.release().expect("live");
        let outer = outer.poll().expect("told").expect("granted");
        let inner = inner.poll().expect("told").expect("entered");
        assert_eq!(inner.token(), outer.token());
        outer.release().expect("entered twice");
        assert!(stranger.poll().is_none(), "left once");
        inner.release().expect("live");
        drop(stranger.poll().expect("told").expect("granted"));
    }
    crate::assert_idle(&manager);
}

#[test]
fn a_lease_that_is_over_is_no_party_to_a_deadlock() {
    let (manager, clock) = manual();
    let share = |owner, ttl| manager.acquire("k", owner, ms(ttl)).shared().try_now();
    let mut over = share(1, 10).expect("free");
    pass(&manager, &clock, 10);
    let mut first = share(2, 50).expect("free");
    let _second = share(3, 50).expect("shared");
    let upgrade = Task::pending(first.upgrade(ms(50)));
    let token = over.token();
    assert_eq!(
        over.upgrade(ms(50)).wait(),
        Err(AcquireError::Lapsed { token })
    );
    drop(upgrade);
}
