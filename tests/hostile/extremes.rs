//! Arguments at the ends of their ranges (I11): no panic, an error that names what is wrong, and the right
//! answer where there is one. All in a table: each verb with each value of each of its arguments.

use super::*;
use std::num::NonZeroU64;

use tenure::recipes::{Election, ShardPool};
use tenure::replica::{Command, Replica};
use tenure::reservation::{self, Block};
use tenure::{
    BuildError, Checkpoint, Clock, CoarseClock, Fence, FencingToken, HashSeed, Key, Mode, OwnerId,
    ReleaseError, RenewError, Timestamp, ToKey, ValidateError,
};

const NANO: Duration = Duration::from_nanos(1);
/// What the longest TTL is by default.
const YEAR: Duration = Duration::from_secs(366 * 24 * 3600);

fn durations() -> [Duration; 13] {
    let longest = Duration::from_nanos(u64::MAX);
    [
        Duration::ZERO,
        NANO,
        Duration::from_nanos(999_999),
        MS,
        HOUR,
        Duration::new(366 * 24 * 3600 - 1, 999_999_999),
        YEAR,
        YEAR + NANO,
        Duration::from_secs(1 << 33),
        longest,
        longest + NANO,
        Duration::from_secs(u64::MAX),
        Duration::MAX,
    ]
}

fn tokens() -> Vec<FencingToken> {
    let max = FencingToken::MAX.get();
    let values = [
        1,
        2,
        1 << 36,
        1 << 56,
        max - (1 << 56),
        max - (1 << 56) + 1,
        max - 1,
        max,
    ];
    values
        .map(|value| FencingToken::new(value).expect("in range"))
        .to_vec()
}

fn numbers() -> [u64; 7] {
    [
        0,
        1,
        u64::from(u32::MAX),
        1 << 63,
        (1 << 63) - 1,
        u64::MAX - 1,
        u64::MAX,
    ]
}

/// Whether a TTL is one that a manager grants by default.
fn is_good(ttl: Duration) -> bool {
    (NANO..=YEAR).contains(&ttl)
}

/// The error that a TTL out of range is told.
fn names(error: &AcquireError, wrong: Duration) -> bool {
    match error {
        AcquireError::TtlTooShort { ttl, min } => *ttl == wrong && wrong < *min,
        AcquireError::TtlTooLong { ttl, max } => *ttl == wrong && wrong > *max,
        _ => false,
    }
}

#[test]
fn every_ttl_is_granted_or_named_by_every_verb() {
    let (locks, _clock) = manual();
    for ttl in durations() {
        let check = |granted: Result<Lease<'_>, AcquireError>| match granted {
            Ok(lease) => {
                assert!(is_good(ttl), "{ttl:?}");
                assert!(lease.is_live() && lease.remaining() >= ttl, "{ttl:?}");
                assert!(lease.deadline() >= locks.now().saturating_add(ttl));
            }
            Err(error) => assert!(!is_good(ttl) && names(&error, ttl), "{ttl:?}: {error}"),
        };
        check(locks.try_acquire("a", 1, ttl));
        check(locks.try_acquire_at_least("a", 1, ttl, FencingToken::MIN));
        check(locks.acquire("a", 1, ttl).try_now());
        check(locks.acquire("a", 1, ttl).wait());
        check(locks.acquire("a", 1, ttl).shared().into_owned().wait());
        check(
            locks
                .acquire("a", 1, ttl)
                .permit(1)
                .wait_until(Instant::now()),
        );
        check(locks.acquire("a", 1, ttl).reentrant().wait_timeout(ttl));
        check(locks.try_acquire_many(["a"], 1, ttl).remove(0));
        match locks.acquire_all(["a", "b"], 1, ttl).wait() {
            Ok(all) => assert!(is_good(ttl) && all.renew(YEAR).is_ok()),
            Err(error) => assert!(names(&error, ttl)),
        }
        match locks.session(1, ttl) {
            Ok(session) => assert!(is_good(ttl) && session.keep_alive().is_ok()),
            Err(error) => assert!(names(&error, ttl)),
        }
        let election = Election::new(&locks, "e");
        assert_eq!(election.campaign(1, ttl).try_now().is_ok(), is_good(ttl));
        let pool = ShardPool::new(&locks, "p", 2).lock_delay(ttl);
        assert_eq!(pool.join(1, ttl).is_ok(), is_good(ttl));
        // Renewals, of a lease that is left as it was if they are refused.
        let mut lease = locks
            .acquire("r", 1, HOUR)
            .shared()
            .try_now()
            .expect("free");
        let before = lease.deadline();
        let bad = |renewed: &Result<Timestamp, RenewError>| match renewed {
            Ok(deadline) => *deadline < before,
            Err(
                RenewError::TtlTooShort { ttl: it, .. } | RenewError::TtlTooLong { ttl: it, .. },
            ) => *it != ttl,
            Err(_) => true,
        };
        for renewed in [lease.renew(ttl), locks.renew("r", lease.token(), ttl)] {
            assert_eq!(renewed.is_ok(), is_good(ttl));
            assert!(!bad(&renewed), "{ttl:?}: {renewed:?}");
        }
        assert!(lease.deadline() >= before);
        match lease.upgrade(ttl).wait_timeout(Duration::MAX) {
            Ok(()) => assert!(is_good(ttl) && lease.mode() == Mode::Exclusive),
            Err(error) => assert!(names(&error, ttl)),
        }
        assert!(lease.is_live());
        // Terms of any length, and patience.
        for refused in [
            locks.acquire("r", 2, ttl).wait_timeout(Duration::ZERO),
            locks.acquire("r", 2, ttl).wait_until(Instant::now()),
        ] {
            let error = refused.expect_err("it is held");
            assert!(
                error == AcquireError::TimedOut || names(&error, ttl),
                "{error}"
            );
        }
        assert!(lease.lost().wait_timeout(Duration::ZERO).is_none());
        drop(lease);
        let key = format!("{ttl:?}");
        let lease = locks.acquire(key.as_str(), 1, HOUR);
        let lease = lease
            .min_hold(ttl)
            .lock_delay(ttl)
            .auto_renew(ttl)
            .try_now();
        assert!(lease.expect("free").is_live());
        let _ = (locks.revoke(key), locks.advance(), locks.snapshot());
    }
}

#[test]
fn terms_of_any_length_end_or_never_do() {
    for length in durations() {
        let (locks, clock) = manual();
        let end_of = |key: &str| locks.acquire(key, 2, HOUR).try_now().map(Lease::detach);
        let held = locks.acquire("t", 1, HOUR).min_hold(length).try_now();
        drop(held.expect("free"));
        let held = locks.acquire("u", 1, HOUR).lock_delay(length).try_now();
        held.expect("free").detach();
        locks.revoke("u").expect("it is held");
        let kept = locks.acquire("v", 1, HOUR).auto_renew(length).try_now();
        kept.expect("free").detach();
        for key in ["t", "u"] {
            let after = end_of(key);
            assert_eq!(after.is_ok(), length.is_zero(), "{key} {length:?}");
            if let Err(error) = after {
                let delayed = matches!(error, AcquireError::Delayed { remaining } if remaining >= length.min(YEAR));
                assert!(delayed, "{error:?}");
            }
        }
        // The end of the manager's time, and of the clock's.
        for _ in 0..2 {
            clock.advance(length.saturating_add(2 * MS));
            locks.advance();
        }
        assert!(locks.holder("v").is_none() || length > Duration::from_secs(1 << 31));
        clock.set(Timestamp::MAX);
        locks.advance();
        assert!(locks.is_empty() && locks.next_wakeup().is_none_or(|at| at <= Timestamp::MAX));
        let refused = locks.try_acquire("w", 1, MS).map(Lease::detach);
        assert!(matches!(refused, Err(AcquireError::TtlTooLong { .. })));
    }
}

#[test]
fn every_token_is_known_or_told_from_one_that_was_never_granted() {
    let (locks, _clock) = manual();
    for token in tokens() {
        let lease = locks.try_acquire("a", 1, HOUR).expect("free");
        if token != lease.token() {
            let over = [
                locks.release("a", token) == Err(ReleaseError::Expired { token }),
                locks.renew("a", token, HOUR) == Err(RenewError::Expired { token }),
                locks.validate("a", token) == Err(ValidateError::Expired { token }),
            ];
            let never = [
                locks.release("a", token) == Err(ReleaseError::NeverGranted { token }),
                locks.renew("a", token, HOUR) == Err(RenewError::NeverGranted { token }),
                locks.validate("a", token) == Err(ValidateError::NeverGranted { token }),
            ];
            let granted = token < lease.token();
            assert_eq!((over, never), ([granted; 3], [!granted; 3]), "{token}");
            assert!(locks.lost("a", token).now().is_some());
        }
        assert!(lease.is_live(), "I6");
        drop(lease);
        let least = FencingToken::MAX.get() - (1 << 56);
        let fresh = LockManager::builder().clock(ManualClock::new()).build();
        let fresh = fresh.expect("in order");
        let now = fresh
            .try_acquire_at_least("b", 1, HOUR, token)
            .map(Lease::detach);
        let later = fresh.acquire("c", 1, HOUR).at_least(token).try_now();
        match now {
            Ok(granted) => {
                assert!(granted >= token && token.get() <= least);
                assert!(later.is_ok_and(|lease| lease.token() >= token));
            }
            Err(error) => {
                assert!(token.get() > least, "{token}: {error}");
                let wanted = token.get();
                assert_eq!(error, AcquireError::TokensExhausted { wanted });
                assert_eq!(later.map(Lease::detach), Err(error));
            }
        }
        assert!(fresh.try_acquire("d", 1, HOUR).is_ok(), "the others go on");
        let fence = Fence::with_highest(Some(token));
        assert_eq!(fence.check(FencingToken::MAX), Ok(()));
        assert!(fence.check(FencingToken::MIN).is_err());
        assert_eq!(token.next().is_none(), token == FencingToken::MAX);
        assert!(token.as_i64() > 0);
        let mut checkpoint = fresh.checkpoint();
        let raised = checkpoint.raise_floor(token);
        if raised.is_ok() {
            let bytes = checkpoint.to_bytes();
            let restored = Checkpoint::from_bytes(&bytes).expect("as it was");
            let again = LockManager::builder()
                .clock(ManualClock::new())
                .restore(&restored);
            if let Ok(again) = again {
                let next = again.try_acquire("e", 1, HOUR).map(Lease::detach);
                assert!(next.is_ok_and(|next| next > token) || token.get() > least);
            }
        }
    }
    assert!(
        FencingToken::new(0).is_err() && FencingToken::new(FencingToken::MAX.get() + 1).is_err()
    );
    assert!(FencingToken::new(u64::MAX).is_err());
}

#[test]
fn every_owner_key_and_count_is_as_good_as_any() {
    let (locks, _clock) = manual();
    for number in numbers() {
        for raw in [
            u128::from(number),
            !u128::from(number),
            u128::from(number) << 64,
        ] {
            let key = Key::from_raw(raw);
            assert_eq!(key.as_raw(), raw);
            let lease = locks.try_acquire(key, number, HOUR).expect("free");
            assert_eq!((lease.key(), lease.owner()), (key, OwnerId(number)));
            let refused = locks.try_acquire(key, number, HOUR).map(Lease::detach);
            assert!(matches!(refused, Err(AcquireError::Held { owner, .. }) if owner.0 == number));
            assert!(!format!("{key} {key:?} {lease:?}").is_empty());
            let again = locks.acquire(key, number, HOUR).reentrant().try_now();
            assert_eq!(again.expect("it is the owner").token(), lease.token());
            drop(lease);
        }
        let signed = number.cast_signed();
        assert_eq!(
            locks.key(signed),
            i128::from(signed).to_key(&HashSeed::new(number.into()))
        );
        let count = number as usize;
        let built = LockManager::builder().max_keys(count).build();
        match (number, built) {
            (1, Ok(one)) => {
                let _held = one.try_acquire("a", 1, HOUR).expect("free");
                let full = one.try_acquire("b", 1, HOUR).map(Lease::detach);
                assert_eq!(full, Err(AcquireError::CapacityExceeded { capacity: 1 }));
            }
            (_, built) => assert!(
                matches!(built, Err(BuildError::MaxKeys { max_keys, .. }) if max_keys == count)
            ),
        }
        let built = LockManager::builder().initial_capacity(count).build();
        assert_eq!(built.is_ok(), number <= 1, "{number}");
        let builder = on(&ManualClock::new())
            .max_waiters(count)
            .max_waiters_per_key(count);
        let few = builder.deadlock_detection(count).build().expect("in order");
        let _held = few.try_acquire("a", 1, HOUR).expect("free");
        let mut next = few.acquire("a", 2, HOUR);
        let full = matches!(
            poll(&mut next),
            Poll::Ready(Err(AcquireError::QueueFull { limit: 0 }))
        );
        assert_eq!(full, number == 0);
        let mut events = few.events(count);
        drop(few.try_acquire("b", 1, HOUR));
        assert!(events.try_next().is_some());
        let permits = number as u32;
        let permit = locks.acquire("p", 1, HOUR).permit(permits).try_now();
        let good = (1..=tenure_max_permits()).contains(&permits);
        match permit {
            Ok(lease) => assert!(good && lease.mode() == Mode::Permit { of: permits }),
            Err(error) => assert_eq!(
                (good, error),
                (false, AcquireError::Permits { of: permits })
            ),
        }
        let tokens = NonZeroU64::new(number);
        if let Some(tokens) = tokens {
            for mark in numbers() {
                let block = Block::after(mark, tokens);
                let fits = mark
                    .checked_add(number)
                    .is_some_and(|last| last <= FencingToken::MAX.get());
                assert_eq!(block.is_ok(), fits, "{mark} {number}");
            }
            let memory = reservation::Memory::new();
            let builder = on(&ManualClock::new())
                .block_size(tokens)
                .reservation(memory);
            match builder.build() {
                // The first block may be too small for a grant; the next ones follow on it.
                Ok(locks) => assert!((0..10).any(|_| {
                    let granted = locks.try_acquire("a", 1, HOUR).is_ok();
                    locks.tend_reservation(Duration::ZERO);
                    granted
                })),
                Err(error) => assert!(number > FencingToken::MAX.get(), "{number}: {error}"),
            }
        }
    }
}

/// The most permits, found by asking.
fn tenure_max_permits() -> u32 {
    let (locks, _clock) = manual();
    let good = |of: u32| locks.acquire("a", 1, HOUR).permit(of).try_now().is_ok();
    let (mut yes, mut no) = (1, u32::MAX);
    assert!(good(yes) && !good(no));
    while no - yes > 1 {
        let middle = yes + (no - yes) / 2;
        if good(middle) {
            yes = middle;
        } else {
            no = middle;
        }
    }
    yes
}

#[test]
fn every_option_of_time_is_taken_or_named() {
    for length in durations() {
        let clock = ManualClock::new();
        let short = on(&clock).min_ttl(length).build();
        assert_eq!(short.is_ok(), is_good(length), "{length:?}: {short:?}");
        let long = on(&clock).max_ttl(length).build();
        assert!(long.is_err() || long.is_ok_and(|it| it.try_acquire("a", 1, length).is_ok()));
        let ticks = on(&clock).tick(length).build();
        let good = (Duration::from_micros(100)..=HOUR).contains(&length);
        assert_eq!(ticks.is_ok(), good, "{length:?}: {ticks:?}");
        let margin = on(&clock).authority_margin(length);
        let margin = margin.reservation(reservation::Memory::new()).build();
        assert!(margin.expect("it has no term").wait_for_authority(length));
        let coarse = CoarseClock::with_resolution(length);
        assert!(coarse.now() <= coarse.precise_now() && coarse.resolution() <= SECOND);
        clock.advance(length);
        let at = clock.now();
        assert!(at.saturating_add(length) >= at && at.saturating_sub(length) <= at);
        assert!(at.checked_add(length).is_none_or(|it| it >= at));
        assert!(at.checked_sub(length).is_none_or(|it| it <= at));
        let locks = on(&clock).build().expect("in order");
        assert_eq!(locks.tend_reservation(length), None);
        let mut events = locks.events(0);
        assert!(events.wait_timeout(Duration::ZERO).is_none());
        let checkpoint = locks.checkpoint();
        let graced = LockManager::builder().clock(ManualClock::new());
        let graced = graced.restore_with_grace(&checkpoint, length);
        assert!(graced.is_ok(), "nothing is to be given grace");
    }
}

/// A log whose indices, times and terms are at the ends of their ranges: what a replica answers, and that two
/// agree.
#[test]
fn a_replica_takes_any_log() {
    let seed = HashSeed::new(3);
    let times = [
        Timestamp::ZERO,
        Timestamp::from_nanos(1),
        Timestamp::from_nanos(1 << 62),
        Timestamp::MAX,
    ];
    for first in tokens() {
        let mut replicas = [(); 2].map(|()| Replica::new(seed).expect("in order"));
        let mut index = first.get();
        for (at, ttl) in times
            .into_iter()
            .flat_map(|at| durations().map(|ttl| (at, ttl)))
        {
            let key = "a".to_key(&seed);
            for command in [
                Command::acquire(key, OwnerId(u64::MAX), ttl)
                    .lock_delay(ttl)
                    .min_hold(ttl),
                Command::renew(key, first, ttl),
                Command::release(key, FencingToken::MAX),
                Command::acquire(key, OwnerId(0), ttl).permit(u32::MAX),
            ] {
                let answers = replicas
                    .each_mut()
                    .map(|it| format!("{:?}", it.apply(&command, at, index)));
                assert_eq!(answers[0], answers[1], "{index} {at} {command:?}");
                index = index.saturating_add(1);
            }
        }
        let bytes = replicas.each_ref().map(|it| it.checkpoint().to_bytes());
        assert_eq!(bytes[0], bytes[1]);
    }
}
