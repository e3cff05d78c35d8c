//! Checkpoints: what a manager was, a later one is.

#![cfg(feature = "serde")]

mod bytes;
mod live;
mod property;

use std::time::Duration;

use tenure::{
    AcquireError, Checkpoint, FencingToken, HashSeed, LockManager, ManualClock, Mode, OwnerId,
    ReleaseError, RenewError, RestoreError, Timestamp, ValidateError,
};

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn manual() -> (LockManager, ManualClock) {
    let clock = ManualClock::new();
    clock.set(Timestamp::from_nanos(5_000_000_000));
    let locks = LockManager::builder().clock(clock.clone()).build().unwrap();
    (locks, clock)
}

/// Through both forms, which say the same.
pub(crate) fn stored(checkpoint: &Checkpoint) -> Checkpoint {
    let bytes = Checkpoint::from_bytes(&checkpoint.to_bytes()).unwrap();
    let text = serde_json::to_string(checkpoint).unwrap();
    let text: Checkpoint = serde_json::from_str(&text).unwrap();
    assert_eq!((&bytes, &text), (checkpoint, checkpoint));
    bytes
}

/// A manager with a clock of its own that begins elsewhere.
pub(crate) fn restored(checkpoint: &Checkpoint) -> (LockManager, ManualClock) {
    restored_at(checkpoint, Timestamp::from_nanos(77_000_000))
}

pub(crate) fn restored_at(checkpoint: &Checkpoint, now: Timestamp) -> (LockManager, ManualClock) {
    let clock = ManualClock::new();
    clock.set(now);
    let builder = LockManager::builder().clock(clock.clone());
    (builder.restore(&stored(checkpoint)).unwrap(), clock)
}

#[test]
fn a_plain_lease_goes_on_with_owner_token_and_time() {
    let (locks, clock) = manual();
    let token = locks.try_acquire("a", 7, ms(100)).unwrap().detach();
    clock.advance(ms(30));
    let (after, clock) = restored(&locks.checkpoint());
    let holder = after.validate("a", token).unwrap();
    assert_eq!((holder.owner, holder.mode), (OwnerId(7), Mode::Exclusive));
    assert_eq!(holder.remaining, ms(70), "from the restoration on (I3)");
    let held = after.try_acquire("a", 8, ms(10)).unwrap_err();
    assert!(matches!(held, AcquireError::Held { token: it, .. } if it == token));
    // By token, as ever: renewed, not early, over at its deadline, and not again (I4).
    after.renew("a", token, ms(80)).unwrap();
    clock.advance(ms(79));
    assert!(after.validate("a", token).is_ok());
    clock.advance(ms(1));
    assert_eq!(
        after.renew("a", token, ms(9)),
        Err(RenewError::Expired { token })
    );
    assert_eq!(
        after.validate("a", token),
        Err(ValidateError::Expired { token })
    );
    let next = after.try_acquire("a", 8, ms(10)).unwrap();
    assert!(next.token() > token, "I2");
}

#[test]
fn a_restored_lease_is_released_once() {
    let (locks, _) = manual();
    let token = locks.try_acquire("a", 7, ms(100)).unwrap().detach();
    let (after, _) = restored(&locks.checkpoint());
    assert_eq!((after.len(), after.release("a", token)), (1, Ok(())));
    assert_eq!(
        after.release("a", token),
        Err(ReleaseError::Expired { token })
    );
    assert!(after.is_empty());
    let next = after.try_acquire("a", 7, ms(10)).unwrap();
    assert_eq!(
        after.release("a", token),
        Err(ReleaseError::Expired { token }),
        "I6"
    );
    assert!(next.is_live());
}

#[test]
fn what_is_over_stays_over_and_what_was_released_is_free() {
    let (locks, clock) = manual();
    let expired = locks.try_acquire("a", 1, ms(10)).unwrap().detach();
    let released = locks.try_acquire("b", 1, ms(50)).unwrap();
    let released = (released.token(), released.release().unwrap()).0;
    let shared = locks.acquire("c", 1, ms(10)).shared().try_now().unwrap();
    clock.advance(ms(10));
    // Nobody has swept them.
    let checkpoint = locks.checkpoint();
    assert!(checkpoint.is_empty());
    let (after, _) = restored(&checkpoint);
    for (key, token) in [("a", expired), ("b", released), ("c", shared.token())] {
        assert_eq!(
            after.validate(key, token),
            Err(ValidateError::Expired { token }),
            "I4"
        );
        assert!(
            after.try_acquire(key, 2, ms(5)).unwrap().token() > token,
            "I2"
        );
    }
}

#[test]
fn shared_leases_and_permits_go_on_together() {
    let (locks, _) = manual();
    let share = |owner, ttl| {
        locks
            .acquire("s", owner, ttl)
            .shared()
            .try_now()
            .unwrap()
            .detach()
    };
    let shared: Vec<_> = (1..=20).map(|owner| share(owner, ms(10 * owner))).collect();
    let permit = |owner| {
        locks
            .acquire("p", owner, ms(50))
            .permit(3)
            .try_now()
            .unwrap()
            .detach()
    };
    let permits = [permit(1), permit(2)];
    let (after, clock) = restored(&locks.checkpoint());
    let tokens = |key| {
        after
            .holders(key)
            .iter()
            .map(|it| it.token)
            .collect::<Vec<_>>()
    };
    assert_eq!(tokens("s"), shared);
    assert_eq!(tokens("p"), permits);
    assert!(after.try_acquire("s", 9, ms(5)).is_err(), "I1");
    let another = after.acquire("s", 30, ms(5)).shared().try_now().unwrap();
    assert!(another.token() > shared[19]);
    let third = after.acquire("p", 3, ms(5)).permit(3).try_now().unwrap();
    assert!(after.acquire("p", 4, ms(5)).permit(3).try_now().is_err());
    drop((another, third));
    // Each at its own deadline, and no record stays behind.
    for owner in 1..=20 {
        clock.advance(ms(10));
        after.advance();
        assert_eq!(tokens("s").len(), 20 - owner);
    }
    assert!(after.is_empty() && after.next_wakeup().is_none_or(|_| after.advance() == 0));
    assert!(after.try_acquire("s", 9, ms(5)).is_ok() && after.try_acquire("p", 9, ms(5)).is_ok());
}

#[test]
fn a_lease_that_was_entered_twice_is_left_twice() {
    let (locks, _) = manual();
    let enter = || {
        locks
            .acquire("a", 1, ms(50))
            .reentrant()
            .try_now()
            .unwrap()
            .detach()
    };
    let token = (enter(), enter()).1;
    let (after, _) = restored(&locks.checkpoint());
    assert_eq!(
        after
            .acquire("a", 1, ms(50))
            .reentrant()
            .try_now()
            .unwrap()
            .detach(),
        token
    );
    for _ in 0..3 {
        assert!(after.try_acquire("a", 2, ms(5)).is_err());
        after.release("a", token).unwrap();
    }
    assert!(after.try_acquire("a", 2, ms(5)).is_ok());
}

#[test]
fn terms_hold_after_a_restart() {
    let (locks, clock) = manual();
    let delayed = locks.acquire("delay", 1, ms(10)).lock_delay(ms(20));
    delayed.try_now().unwrap().detach();
    let held = locks.acquire("hold", 1, ms(50)).min_hold(ms(30));
    let held = held.try_now().unwrap().detach();
    let kept = locks.acquire("keep", 1, ms(9)).auto_renew(ms(60));
    let kept = kept.try_now().unwrap().detach();
    clock.advance(ms(1));
    let (after, clock) = restored(&locks.checkpoint());
    let delay = |key| match after.try_acquire(key, 2, ms(5)) {
        Err(AcquireError::Delayed { remaining }) => Some(remaining),
        _ => None,
    };
    after.release("hold", held).unwrap();
    // 30 ms and a tick from the grant on, which was a millisecond before.
    assert_eq!(delay("hold"), Some(ms(30)));
    for _ in 0..9 {
        clock.advance(ms(1));
        after.advance();
    }
    assert_eq!(delay("delay"), Some(ms(20)), "it has expired now");
    for _ in 0..49 {
        clock.advance(ms(1));
        after.advance();
        assert!(after.validate("keep", kept).is_ok(), "at {}", after.now());
    }
    assert_eq!((delay("delay"), delay("hold")), (None, None));
    clock.advance(ms(2));
    after.advance();
    assert!(
        after.validate("keep", kept).is_err(),
        "60 ms after the grant, and a tick"
    );
}

#[test]
fn keys_that_are_kept_free_stay_so() {
    let (locks, clock) = manual();
    // Revoked, expired and swept, expired and not swept, and beside one who shares still.
    let acquire = |key: &'static str, ttl| locks.acquire(key, 1, ttl).lock_delay(ms(40));
    acquire("revoked", ms(10)).try_now().unwrap().detach();
    locks.revoke("revoked").unwrap();
    acquire("swept", ms(5)).try_now().unwrap().detach();
    clock.advance(ms(5));
    locks.advance();
    acquire("unswept", ms(5))
        .shared()
        .try_now()
        .unwrap()
        .detach();
    acquire("shared", ms(5))
        .shared()
        .try_now()
        .unwrap()
        .detach();
    let stays = locks.acquire("shared", 2, ms(60)).shared();
    let stays = stays.try_now().unwrap().detach();
    clock.advance(ms(5));
    let checkpoint = locks.checkpoint();
    assert_eq!(checkpoint.delayed().count(), 4);
    let before = ["revoked", "swept", "unswept", "shared"].map(|key| {
        let delay = locks.acquire(key, 3, ms(5)).shared().try_now().unwrap_err();
        (key, delay)
    });
    let (after, clock) = restored(&checkpoint);
    assert_eq!(after.len(), 1);
    for (key, delay) in before {
        let again = after.acquire(key, 3, ms(5)).shared().try_now().unwrap_err();
        assert_eq!(again, delay, "{key}");
    }
    clock.advance(ms(40));
    after.advance();
    assert_eq!(after.holders("shared").len(), 1);
    assert!(after.acquire("shared", 3, ms(5)).shared().try_now().is_ok());
    after.release("shared", stays).unwrap();
    for key in ["revoked", "swept", "unswept", "shared"] {
        assert!(after.try_acquire(key, 3, ms(5)).is_ok(), "{key}");
    }
}

#[test]
fn a_sessions_leases_are_on_their_own() {
    let (locks, clock) = manual();
    let session = locks.session(5, ms(30)).unwrap();
    let plain = session.try_acquire("a").unwrap().detach();
    let shared = session.acquire("b").shared().try_now().unwrap().detach();
    let closed = locks.session(6, ms(30)).unwrap();
    closed.try_acquire("c").unwrap().detach();
    closed.close().unwrap();
    clock.advance(ms(10));
    let (after, clock) = restored(&locks.checkpoint());
    assert_eq!(after.len(), 2);
    for (key, token) in [("a", plain), ("b", shared)] {
        assert_eq!(after.holder(key).unwrap().remaining, ms(20));
        after.renew(key, token, ms(50)).unwrap();
    }
    clock.advance(ms(49));
    assert!(after.validate("a", plain).is_ok());
    after.release("b", shared).unwrap();
    clock.advance(ms(1));
    assert!(after.validate("a", plain).is_err());
}

#[test]
fn who_waits_is_not_part_of_it() {
    let (locks, _) = manual();
    let token = locks.try_acquire("a", 1, ms(50)).unwrap().detach();
    let mut waits = Box::pin(locks.acquire("a", 2, ms(50)));
    let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
    assert!(waits.as_mut().poll(context).is_pending());
    let (after, _) = restored(&locks.checkpoint());
    after.release("a", token).unwrap();
    assert!(
        after.try_acquire("a", 3, ms(5)).is_ok(),
        "nobody comes before"
    );
}

#[test]
fn grace_is_added_to_every_lease_and_to_nothing_else() {
    let (locks, _) = manual();
    locks.try_acquire("a", 1, ms(50)).unwrap().detach();
    locks
        .acquire("b", 1, ms(50))
        .shared()
        .try_now()
        .unwrap()
        .detach();
    let kept = locks.acquire("c", 1, ms(50)).min_hold(ms(10)).try_now();
    kept.unwrap().release().unwrap();
    let checkpoint = locks.checkpoint();
    let builder = || LockManager::builder().clock(ManualClock::new());
    let after = builder().restore_with_grace(&checkpoint, ms(25)).unwrap();
    for key in ["a", "b"] {
        assert_eq!(after.holder(key).unwrap().remaining, ms(75));
    }
    let delayed = after.try_acquire("c", 2, ms(5)).unwrap_err();
    assert!(matches!(delayed, AcquireError::Delayed { remaining } if remaining == ms(11)));
    let endless = builder().restore_with_grace(&checkpoint, Duration::MAX);
    assert!(matches!(endless, Err(RestoreError::TooLong { .. })));
}

/// What lasts for ever does so under a clock, a tick and a grace for which that is less.
#[test]
fn terms_without_an_end_are_restored_as_such() {
    let (locks, _) = manual();
    let renewed = locks.acquire("a", 1, ms(50)).auto_renew(Duration::MAX);
    renewed.try_now().unwrap().detach();
    let held = locks.acquire("b", 1, ms(50)).min_hold(Duration::MAX);
    held.try_now().unwrap().detach();
    let checkpoint = locks.checkpoint();
    for (tick, grace) in [(ms(1), ms(25)), (ms(1) / 2, Duration::ZERO)] {
        let clock = ManualClock::new();
        clock.advance(ms(1_000));
        let builder = LockManager::builder().clock(clock.clone()).tick(tick);
        let after = builder.restore_with_grace(&checkpoint, grace).unwrap();
        for _ in 0..100 {
            clock.advance(ms(10));
            after.advance();
        }
        assert!(after.holder("a").is_some(), "it is renewed");
        assert_eq!(after.holder("b"), None);
        let kept = after.try_acquire("b", 2, ms(5)).unwrap_err();
        assert!(matches!(kept, AcquireError::Delayed { .. }), "{kept:?}");
    }
}

/// Its deadline and its renewal are rounded up, to the same tick if that is long.
#[test]
fn what_the_manager_renews_is_renewed_after_a_restart_under_any_tick() {
    let lives_on = |checkpoint: &Checkpoint, tick: Duration, since: Duration| {
        let clock = ManualClock::new();
        clock.advance(since);
        let builder = LockManager::builder().clock(clock.clone()).tick(tick);
        let after = builder.driver(false).restore(checkpoint).unwrap();
        for _ in 0..20 {
            let next = after.next_wakeup().expect("it is to be renewed");
            clock.set(next);
            after.advance();
            assert!(after.holder("a").is_some(), "{tick:?}, at {next}");
        }
    };
    for (ttl, ticks) in [(500, [1, 100, 400, 1_000]), (9, [1, 3, 10, 1_000])] {
        let (locks, clock) = manual();
        let kept = locks.acquire("a", 1, ms(ttl)).auto_renew(ms(3_600_000));
        kept.try_now().unwrap().detach();
        // The wheel is not turned, so that the renewal is late.
        for _ in 0..3 {
            for tick in ticks {
                let checkpoint = locks.checkpoint();
                lives_on(&checkpoint, ms(tick), Duration::ZERO);
                lives_on(&checkpoint, ms(tick), Duration::from_micros(70_300));
            }
            clock.advance(ms(ttl) * 45 / 100);
        }
    }
}

#[test]
fn another_tick_rounds_up_and_never_down() {
    let (locks, clock) = manual();
    locks.try_acquire("a", 1, ms(50)).unwrap().detach();
    locks
        .acquire("b", 1, ms(50))
        .shared()
        .try_now()
        .unwrap()
        .detach();
    clock.advance(Duration::from_nanos(300_001));
    let left = Duration::from_nanos(50_000_000 - 300_001);
    for tick in [Duration::from_micros(100), ms(7), ms(1000)] {
        let (clock, builder) = (ManualClock::new(), LockManager::builder().tick(tick));
        clock.set(Timestamp::from_nanos(123_456_789));
        let after = builder.clock(clock).restore(&locks.checkpoint()).unwrap();
        for key in ["a", "b"] {
            let remaining = after.holder(key).unwrap().remaining;
            assert!(
                (left..left + tick).contains(&remaining),
                "{remaining:?} (I3)"
            );
        }
    }
}

#[test]
fn long_names_are_found_again_under_the_seed_of_the_checkpoint() {
    let name = "a name of more than fifteen bytes";
    let locks = LockManager::new();
    let token = locks.try_acquire(name, 1, ms(60_000)).unwrap().detach();
    let checkpoint = locks.checkpoint();
    let after = LockManager::builder().restore(&checkpoint).unwrap();
    assert_eq!(after.holder(name).map(|it| it.token), Some(token));
    let same = LockManager::builder().hash_seed(checkpoint.hash_seed());
    assert!(same.restore(&checkpoint).is_ok());
    let other = LockManager::builder().hash_seed(HashSeed::new(1));
    assert_eq!(
        other.restore(&checkpoint).unwrap_err(),
        RestoreError::HashSeed
    );
    assert!(!format!("{checkpoint:?}").contains(&checkpoint.hash_seed().get().to_string()));
}

#[test]
fn a_checkpoint_says_what_is_in_it_and_prints_no_leases() {
    let (locks, _) = manual();
    locks.try_acquire("a", 123_456, ms(50)).unwrap().detach();
    let token = locks.try_acquire("b", 123_456, ms(50)).unwrap().detach();
    let checkpoint = locks.checkpoint();
    assert_eq!((checkpoint.len(), checkpoint.is_empty()), (2, false));
    assert!(checkpoint.floor() >= Some(token));
    assert_eq!(checkpoint.last_applied(), None, "it is no replica's");
    let printed = format!("{checkpoint:?}");
    let floor = format!("floor: {:?}", checkpoint.floor());
    for part in ["Checkpoint", "leases: 2", "tick: 1ms", &floor] {
        assert!(printed.contains(part), "{printed} does not say {part}");
    }
    assert!(!printed.contains("123456"), "{printed}");
}

#[test]
fn plain_leases_take_no_more_room_than_before() {
    let (locks, _) = manual();
    for key in 0..1_000 {
        locks.try_acquire(key, 1, ms(50)).unwrap().detach();
    }
    let (after, _) = restored(&locks.checkpoint());
    let (before, after) = (locks.stats(), after.stats());
    assert_eq!((after.leases, after.granted), (1_000, 1_000));
    assert!(after.cells <= before.cells, "{after:?} after {before:?}");
}

#[test]
fn more_leases_than_may_be_out_are_refused() {
    let (locks, _) = manual();
    for key in 0..3 {
        locks.try_acquire(key, 1, ms(50)).unwrap().detach();
    }
    let kept = locks.acquire(3, 1, ms(50)).min_hold(ms(10)).try_now();
    kept.unwrap().release().unwrap();
    let checkpoint = locks.checkpoint();
    let builder = |keys| {
        LockManager::builder()
            .clock(ManualClock::new())
            .max_keys(keys)
    };
    let refused = builder(3).restore(&checkpoint).unwrap_err();
    assert_eq!(
        refused,
        RestoreError::MaxKeys {
            leases: 4,
            limit: 3
        }
    );
    let after = builder(4).restore(&checkpoint).unwrap();
    let full = after.try_acquire(4, 1, ms(5)).unwrap_err();
    assert!(matches!(full, AcquireError::CapacityExceeded { .. }));
    after.revoke(0).unwrap();
    assert!(after.try_acquire(4, 1, ms(5)).is_ok());
}

#[test]
fn what_the_builder_refuses_is_refused() {
    let checkpoint = LockManager::new().checkpoint();
    let refused = LockManager::builder()
        .tick(Duration::ZERO)
        .restore(&checkpoint);
    assert!(matches!(refused, Err(RestoreError::Build(_))));
}

#[test]
fn a_raised_floor_is_below_all_tokens_to_come() {
    let (locks, _) = manual();
    let token = locks.try_acquire("a", 1, ms(50)).unwrap().detach();
    let mut checkpoint = locks.checkpoint();
    let seen = FencingToken::new(1 << 40).unwrap();
    checkpoint.raise_floor(seen).unwrap();
    checkpoint.raise_floor(FencingToken::MIN).unwrap();
    assert_eq!(checkpoint.floor(), Some(seen));
    let (after, _) = restored(&checkpoint);
    assert!(after.validate("a", token).is_ok());
    assert!(after.try_acquire("b", 1, ms(50)).unwrap().token() > seen);
    let refused = checkpoint.raise_floor(FencingToken::MAX);
    assert!(matches!(refused, Err(RestoreError::Floor { .. })));
}

#[test]
fn tokens_at_the_end_of_their_range_are_restored_and_go_on() {
    let (locks, _) = manual();
    let most = FencingToken::new((1 << 63) - 1 - (1 << 56)).unwrap();
    let lease = locks.try_acquire_at_least("a", 1, ms(50), most).unwrap();
    let token = lease.detach();
    let (after, _) = restored(&locks.checkpoint());
    assert!(after.validate("a", token).is_ok());
    // Through resizes too.
    for key in 0..2000 {
        let next = after.try_acquire(key, 1, ms(50)).unwrap().detach();
        assert!(next > token);
    }
}

#[test]
fn a_million_tokens_later_a_restored_lease_is_still_itself() {
    let (locks, _) = manual();
    let token = locks.try_acquire("a", 1, ms(50)).unwrap().detach();
    let mut checkpoint = locks.checkpoint();
    for _ in 0..5 {
        let (after, _) = restored(&checkpoint);
        // Its bucket, and all others, are used, moved and moved back.
        let mut leases = vec![];
        for key in 0..3000 {
            leases.push(after.try_acquire(key, 2, ms(50)).unwrap());
        }
        assert!(leases.iter().all(|lease| lease.token() > token));
        drop(leases);
        while after.advance() > 0 {}
        assert_eq!(after.holder("a").map(|it| it.token), Some(token));
        checkpoint = after.checkpoint();
        assert_eq!(checkpoint.len(), 1);
    }
    let (after, _) = restored(&checkpoint);
    after.release("a", token).unwrap();
}

/// In the very tick in which a key is free again, and beside terms that a lease has not.
#[test]
fn no_key_is_kept_free_that_was_not_before() {
    let (locks, clock) = manual();
    let least = locks.acquire("was free", 1, ms(50)).min_hold(ms(10));
    least.try_now().unwrap().release().unwrap();
    let Err(AcquireError::Delayed { remaining }) = locks.try_acquire("was free", 2, ms(5)) else {
        panic!("it is kept free");
    };
    let delayed = locks.acquire("delayed", 1, ms(50)).lock_delay(ms(10));
    let delayed = delayed.try_now().unwrap().detach();
    clock.advance(remaining);
    let checkpoint = locks.checkpoint();
    assert_eq!(checkpoint.delayed().count(), 0);
    // In the midst of a tick, so that whatever is rounded shows.
    let (after, _) = restored_at(&checkpoint, Timestamp::from_nanos(77_500_000));
    assert!(after.try_acquire("was free", 2, ms(5)).is_ok());
    after.release("delayed", delayed).unwrap();
    assert!(after.try_acquire("delayed", 2, ms(5)).is_ok());
}

/// A plain lease is one again, and takes no more room than it did.
#[test]
fn what_is_restored_takes_no_more_room_than_it_did() {
    let (locks, _) = manual();
    for key in 0..2_000_u64 {
        locks.try_acquire(key, 1, ms(100)).unwrap().detach();
    }
    let (after, _) = restored(&locks.checkpoint());
    let (before, after) = (locks.stats(), after.stats());
    assert_eq!(after.leases, 2_000);
    assert!(after.cells <= before.cells + 64, "{after:?} for {before:?}");
}
