//! Why an operation was refused, and that nothing else happened.

use std::error::Error;
use std::time::Duration;

use tenure::{
    AcquireError, BuildError, FencingToken, Lease, ManualClock, Missed, OwnerId, ReleaseError,
    RenewError, RestoreError, RevokeError, SessionError, ValidateError,
};

use super::{SECOND, advises, manual, on, token};

#[test]
fn an_acquire_says_why_not_and_what_to_do_next() {
    let clock = ManualClock::new();
    let built = on(&clock)
        .min_ttl(SECOND)
        .max_ttl(SECOND * 60)
        .max_keys(2)
        .build();
    let manager = built.expect("these options are in order");

    let (short, long) = (SECOND / 2, SECOND * 61);
    let error = manager
        .try_acquire("a", 1, short)
        .expect_err("below the minimum");
    assert_eq!(
        error,
        AcquireError::TtlTooShort {
            ttl: short,
            min: SECOND
        }
    );
    advises(&error, &["500ms", "1s"]);
    let error = manager
        .try_acquire("a", 1, Duration::ZERO)
        .expect_err("zero");
    assert_eq!(
        error,
        AcquireError::TtlTooShort {
            ttl: Duration::ZERO,
            min: SECOND
        }
    );
    let error = manager
        .try_acquire("a", 1, long)
        .expect_err("above the maximum");
    assert_eq!(
        error,
        AcquireError::TtlTooLong {
            ttl: long,
            max: SECOND * 60
        }
    );
    advises(&error, &["61s", "60s"]);

    let first = manager
        .try_acquire("a", 41, SECOND * 5)
        .expect("the key is free");
    clock.advance(SECOND * 2);
    let error = manager
        .try_acquire("a", 42, SECOND * 5)
        .expect_err("the key is held");
    let (owner, token, remaining) = (OwnerId(41), first.token(), SECOND * 3);
    assert_eq!(
        error,
        AcquireError::Held {
            owner,
            token,
            remaining
        }
    );
    advises(&error, &["41", &token.to_string(), "3s"]);

    let _second = manager
        .try_acquire("b", 1, SECOND * 5)
        .expect("the key is free");
    let error = manager
        .try_acquire("c", 1, SECOND * 5)
        .expect_err("the table is full");
    assert_eq!(error, AcquireError::CapacityExceeded { capacity: 2 });
    advises(&error, &["2", "max_keys"]);
}

#[test]
fn zero_is_too_short_by_default() {
    let (manager, _clock) = manual();
    let ttl = Duration::ZERO;
    let answer = manager.try_acquire("a", 1, ttl).map(drop);
    assert!(matches!(
        answer,
        Err(AcquireError::TtlTooShort {
            ttl: Duration::ZERO,
            ..
        })
    ));
    let lease = manager
        .try_acquire("a", 1, SECOND)
        .expect("the key is free");
    let answer = lease.renew(ttl);
    assert!(matches!(
        answer,
        Err(RenewError::TtlTooShort {
            ttl: Duration::ZERO,
            ..
        })
    ));
    assert_eq!(lease.remaining(), SECOND);
}

/// I9: a full table evicts nobody, and takes a new lease as soon as one has ended in whatever way.
#[test]
fn a_full_table_leaves_held_leases_alone_and_recovers() {
    let clock = ManualClock::new();
    let manager = on(&clock)
        .max_keys(100)
        .build()
        .expect("these options are in order");
    let leases: Vec<_> = (0..100_u64)
        .map(|key| manager.try_acquire(key, key, SECOND).unwrap())
        .collect();
    let full = AcquireError::CapacityExceeded { capacity: 100 };
    for key in 100..1_000_u64 {
        assert_eq!(
            manager.try_acquire(key, 1, SECOND).map(drop),
            Err(full.clone())
        );
        assert_eq!(manager.holder(key), None);
    }
    assert!(leases.iter().all(Lease::is_live));
    assert_eq!((manager.len(), manager.iter().count()), (100, 100));
    // A held key says so, full or not, and its lease can be renewed.
    assert!(matches!(
        manager.try_acquire(7_u64, 1, SECOND),
        Err(AcquireError::Held { .. })
    ));
    assert!(leases[7].renew(SECOND * 2).is_ok());

    let mut leases = leases.into_iter();
    assert_eq!(leases.next().map(Lease::release), Some(Ok(())));
    let taken = manager.try_acquire(500_u64, 1, SECOND).map(Lease::detach);
    assert!(taken.is_ok(), "after a release: {taken:?}");
    assert_eq!(manager.try_acquire(501_u64, 1, SECOND).map(drop), Err(full));
    drop(leases.next());
    assert!(
        manager
            .try_acquire(501_u64, 1, SECOND)
            .map(Lease::detach)
            .is_ok(),
        "after a drop"
    );
    assert!(manager.revoke(2_u64).is_ok());
    assert!(
        manager
            .try_acquire(502_u64, 1, SECOND)
            .map(Lease::detach)
            .is_ok(),
        "after a revoke"
    );
    clock.advance(SECOND);
    assert!(
        manager
            .try_acquire(503_u64, 1, SECOND)
            .map(Lease::detach)
            .is_ok(),
        "after expiries"
    );
    assert!(manager.len() <= 100);
    manager.advance();
    assert_eq!(manager.len(), 2, "the renewed one and the last one");
}

#[test]
fn a_renewal_says_why_not_and_what_to_do_next() {
    let (manager, clock) = manual();
    let lease = manager
        .try_acquire("a", 1, SECOND)
        .expect("the key is free");
    let mine = lease.token();
    let never = FencingToken::MAX;
    let error = manager
        .renew("a", never, SECOND)
        .expect_err("nobody has that token");
    assert_eq!(error, RenewError::NeverGranted { token: never });
    advises(&error, &[&never.to_string()]);
    let error = lease.renew(Duration::MAX).expect_err("above the maximum");
    assert!(matches!(
        error,
        RenewError::TtlTooLong {
            ttl: Duration::MAX,
            ..
        }
    ));
    advises(&error, &[]);
    let error = lease.renew(Duration::ZERO).expect_err("below the minimum");
    advises(&error, &["0ns"]);
    assert_eq!(lease.remaining(), SECOND, "the lease is as it was");

    clock.advance(SECOND);
    let error = lease.renew(SECOND).expect_err("the lease is over");
    assert_eq!(error, RenewError::Expired { token: mine });
    advises(&error, &[&mine.to_string()]);
    advises(&RenewError::OutOfMemory, &[]);
}

/// I6: a token opens nothing but the lease that it was granted for.
#[test]
fn a_token_of_another_key_is_refused_and_both_leases_stay() {
    let (manager, _clock) = manual();
    let (a, b) = (
        manager.try_acquire("a", 1, SECOND),
        manager.try_acquire("b", 2, SECOND),
    );
    let (a, b) = (a.expect("the key is free"), b.expect("the key is free"));
    // So that the two tokens differ, whatever the manager starts with.
    let at_least = token(b.token().get() + 10);
    drop(a);
    let a = manager
        .try_acquire_at_least("a", 1, SECOND, at_least)
        .expect("the key is free");
    for (key, other) in [("a", b.token()), ("b", a.token()), ("free", a.token())] {
        assert!(matches!(
            manager.renew(key, other, SECOND * 9),
            Err(RenewError::Expired { token } | RenewError::NeverGranted { token }) if token == other
        ));
        assert!(matches!(
            manager.release(key, other),
            Err(ReleaseError::Expired { token } | ReleaseError::NeverGranted { token })
                if token == other
        ));
        assert!(matches!(
            manager.validate(key, other),
            Err(ValidateError::Expired { token } | ValidateError::NeverGranted { token })
                if token == other
        ));
    }
    assert!(a.is_live() && b.is_live());
    assert_eq!((a.remaining(), b.remaining()), (SECOND, SECOND));
    assert_eq!(manager.len(), 2);
}

#[test]
fn a_second_release_says_that_the_lease_is_over() {
    let (manager, _clock) = manual();
    let mine = manager
        .try_acquire("a", 1, SECOND)
        .expect("the key is free")
        .detach();
    assert_eq!(manager.release("a", mine), Ok(()));
    let error = manager.release("a", mine).expect_err("it is released");
    assert_eq!(error, ReleaseError::Expired { token: mine });
    advises(&error, &[&mine.to_string()]);
    let error = manager
        .release("a", FencingToken::MAX)
        .expect_err("nobody has that token");
    assert_eq!(
        error,
        ReleaseError::NeverGranted {
            token: FencingToken::MAX
        }
    );
    advises(&error, &[]);
    let error = manager.validate("a", mine).expect_err("it is released");
    assert_eq!(error, ValidateError::Expired { token: mine });
    advises(&error, &[&mine.to_string()]);
    let error = manager
        .validate("a", FencingToken::MAX)
        .expect_err("nobody has that token");
    assert_eq!(
        error,
        ValidateError::NeverGranted {
            token: FencingToken::MAX
        }
    );
    advises(&error, &[]);

    let guard = manager
        .try_acquire("a", 1, SECOND)
        .expect("the key is free");
    let second = guard.token();
    assert_eq!(manager.release("a", second), Ok(()));
    assert_eq!(
        guard.release(),
        Err(ReleaseError::Expired { token: second })
    );
}

#[test]
fn a_revocation_ends_one_lease_and_then_finds_nothing() {
    let (manager, clock) = manual();
    let lease = manager
        .try_acquire("a", 8, SECOND)
        .expect("the key is free");
    let holder = manager.holder("a").expect("the key is held");
    assert_eq!(manager.revoke("a"), Ok(holder));
    assert_eq!(
        (lease.is_live(), lease.remaining()),
        (false, Duration::ZERO)
    );
    assert_eq!(
        lease.renew(SECOND),
        Err(RenewError::Expired {
            token: lease.token()
        })
    );
    let error = manager.revoke("a").expect_err("nobody holds it");
    assert_eq!(error, RevokeError::NotHeld);
    advises(&error, &[]);
    let next = manager
        .try_acquire("a", 9, SECOND)
        .expect("the key is free");
    clock.advance(SECOND);
    assert_eq!(
        manager.revoke("a"),
        Err(RevokeError::NotHeld),
        "it is over, if not swept"
    );
    assert!(!next.is_live());
    assert_eq!(manager.stats().revoked, 1);
}

/// Nobody arbitrates a lease whose manager is gone, and its guard says so.
#[test]
fn a_guard_that_outlives_its_manager_says_closed() {
    let (manager, _clock) = manual();
    let other_handle = manager.clone();
    let lease = manager
        .try_acquire("a", 1, SECOND)
        .expect("the key is free")
        .into_owned();
    let dropped = manager
        .try_acquire("b", 1, SECOND)
        .expect("the key is free")
        .into_owned();
    drop(manager);
    assert!(lease.is_live(), "another handle is left");
    assert!(lease.renew(SECOND).is_ok());
    drop(other_handle);
    let error = lease.renew(SECOND).expect_err("the manager is gone");
    assert_eq!(error, RenewError::Closed);
    advises(&error, &[]);
    assert_eq!(
        (lease.is_live(), lease.remaining()),
        (false, Duration::ZERO)
    );
    let error = lease.release().expect_err("the manager is gone");
    assert_eq!(error, ReleaseError::Closed);
    advises(&error, &[]);
    drop(dropped);
}

/// I2, I11: a jump to the last tokens is refused, since it would leave none for anybody; the greatest
/// jump that is allowed leaves every other key, and this one, with tokens to go on.
#[test]
fn no_jump_uses_the_tokens_up() {
    let (manager, _clock) = manual();
    let greatest = token(FencingToken::MAX.get() - (1 << 56));
    for beyond in [token(greatest.get() + 1), FencingToken::MAX] {
        let answer = manager.try_acquire_at_least("a", 1, SECOND, beyond);
        let error = answer.expect_err("too few are left above it");
        let wanted = beyond.get();
        assert_eq!(error, AcquireError::TokensExhausted { wanted });
        advises(&error, &[&wanted.to_string()]);
    }
    assert_eq!((manager.holder("a"), manager.len()), (None, 0));
    let lease = manager
        .try_acquire_at_least("a", 1, SECOND, greatest)
        .expect("it is allowed");
    assert!(lease.token() >= greatest);
    assert!(matches!(
        manager.try_acquire_at_least("a", 2, SECOND, greatest),
        Err(AcquireError::Held { .. })
    ));
    let mut last = lease.token();
    assert_eq!(lease.release(), Ok(()));
    for _ in 0..1_000 {
        let next = manager
            .try_acquire_at_least("a", 1, SECOND, greatest)
            .expect("some are left");
        assert!(next.token() > last, "I2: {} after {last}", next.token());
        last = next.token();
    }
    // Growth and shrinking carry the counters along.
    let many: Vec<_> = (0..20_000_u64)
        .map(|key| manager.try_acquire(key, 1, SECOND))
        .collect();
    assert!(many.iter().all(Result::is_ok));
    drop(many);
    manager.advance();
    let again = manager.try_acquire("a", 1, SECOND).expect("some are left");
    assert!(again.token() > last, "I2: {} after {last}", again.token());
}

/// The limit on `at_least` is the same on every path, whatever else is in the table.
#[test]
fn at_least_above_the_limit_is_refused_with_and_without_a_limit_on_leases() {
    let limit = FencingToken::MAX.get() - (1 << 56);
    let clock = ManualClock::new();
    for manager in [on(&clock).build(), on(&clock).max_keys(100).build()] {
        let manager = manager.expect("these options are in order");
        for round in 0..3 {
            let lease = manager.try_acquire_at_least("a", 1, SECOND, token(limit));
            let next = lease.expect("it is the last").token().get() + 1;
            assert!(next > limit);
            let refused = manager
                .try_acquire_at_least("a", 1, SECOND, token(next))
                .err();
            assert_eq!(
                refused,
                Some(AcquireError::TokensExhausted { wanted: next }),
                "{round}"
            );
        }
    }
}

#[test]
fn at_least_raises_and_never_lowers() {
    let (manager, _clock) = manual();
    let mut last = 0;
    for least in [
        1_000,
        5,
        1 << 20,
        1,
        1 << 35,
        1 << 36,
        1 << 40,
        1 << 50,
        1 << 62,
        7,
    ] {
        let lease = manager.try_acquire_at_least("a", 1, SECOND, token(least));
        let granted = lease.expect("the key is free").token().get();
        assert!(granted >= least, "{granted} is below {least}");
        assert!(granted > last, "I2: {granted} after {last}");
        last = granted;
        let next = manager
            .try_acquire("a", 1, SECOND)
            .expect("the key is free")
            .token()
            .get();
        assert!(next > last, "I2: {next} after {last}");
        last = next;
    }
}

#[test]
fn a_session_and_a_subscription_say_what_is_wrong_and_what_to_do_next() {
    for error in [
        SessionError::Over,
        SessionError::AuthorityLost,
        SessionError::Closed,
    ] {
        advises(&error, &[]);
    }
    assert!(SessionError::Over.to_string().contains("open another"));
    advises(&Missed { count: 25 }, &["25 events"]);
}

#[test]
fn what_a_restoration_failed_of_is_its_source() {
    let cause = BuildError::OutOfMemory;
    let error = RestoreError::Build(cause.clone());
    let source = error.source().expect("the builder's error");
    assert_eq!(source.downcast_ref(), Some(&cause));
    assert_eq!(error.to_string(), cause.to_string());
    assert!(RestoreError::HashSeed.source().is_none());
}
