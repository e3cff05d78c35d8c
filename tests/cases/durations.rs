//! Cases 17, 20 and 21: durations and clocks at their limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure::{AcquireError, Clock, LockManager, ManualClock, RenewError, Timestamp, ValidateError};

use super::{just_under, manual, ms};

const DAY: Duration = Duration::from_secs(86_400);
const NANOSECOND: Duration = Duration::from_nanos(1);
const HOUR: u64 = 3_600_000_000_000;

/// Case 17: a huge TTL overflows and fires at once. Zero, one nanosecond and the endless TTL are
/// refused by name, and leave no trace.
#[test]
fn case_17_ttls_beyond_the_limits_are_refused_by_name() {
    let (manager, _clock) = manual();
    for ttl in [Duration::ZERO, NANOSECOND, just_under(ms(1))] {
        let answer = manager.try_acquire("k", 1, ttl).map(drop);
        assert_eq!(answer, Err(AcquireError::TtlTooShort { ttl, min: ms(1) }));
    }
    let max = DAY * 366;
    let endless = [
        Duration::MAX,
        Duration::from_secs(u64::MAX),
        Duration::from_nanos(u64::MAX),
    ];
    for ttl in endless
        .into_iter()
        .chain([max + NANOSECOND, Duration::from_millis(u64::MAX)])
    {
        let answer = manager.try_acquire("k", 1, ttl).map(drop);
        assert_eq!(answer, Err(AcquireError::TtlTooLong { ttl, max }));
    }
    assert_eq!((manager.holder("k"), manager.len()), (None, 0));
}

/// Case 17: what is accepted ends exactly at its deadline, whatever its size: TTLs around 2^31, 2^32
/// and 2^33 ticks, a year, the longest one, and a nanosecond, at several tick lengths.
#[test]
fn case_17_an_accepted_ttl_is_exact() {
    for tick in [
        Duration::from_micros(100),
        ms(1),
        ms(10),
        Duration::from_secs(3_600),
    ] {
        let ticks = [
            1,
            2,
            (1 << 31) - 1,
            1 << 31,
            (1 << 32) - 1,
            1 << 32,
            (1 << 32) + 1,
            1 << 33,
        ];
        let ttls = ticks.into_iter().filter_map(|ticks: u64| {
            let nanos = ticks.checked_mul(u64::try_from(tick.as_nanos()).ok()?)?;
            Some(Duration::from_nanos(nanos))
        });
        for ttl in ttls.chain([NANOSECOND, just_under(tick), DAY, DAY * 365, DAY * 366]) {
            for start in [0, 1, 5_000_000_000] {
                exact(tick, ttl, start);
            }
        }
    }
}

fn exact(tick: Duration, ttl: Duration, start: u64) {
    let clock = ManualClock::new();
    let built = LockManager::builder()
        .clock(clock.clone())
        .driver(false)
        .tick(tick)
        .min_ttl(NANOSECOND)
        .build();
    let manager = built.expect("these options are in order");
    clock.set(Timestamp::from_nanos(start));
    let lease = match manager.try_acquire("k", 1, ttl) {
        Ok(lease) => lease,
        Err(AcquireError::TtlTooLong { max, .. }) => {
            assert!(
                ttl > max,
                "{ttl:?} was refused, below the maximum of {max:?}"
            );
            assert!(
                max >= DAY * 365 || tick < ms(1),
                "a year fits at the default tick"
            );
            return;
        }
        Err(error) => panic!("{ttl:?} at a tick of {tick:?}: {error}"),
    };
    let exact = u128::from(start) + ttl.as_nanos();
    let deadline = u128::from(lease.deadline().as_nanos());
    assert!(deadline >= exact, "I3: {ttl:?} was rounded down");
    assert!(
        deadline < exact + tick.as_nanos(),
        "{ttl:?} became a tick longer"
    );
    let end = lease.deadline().as_nanos();
    for before in [start, start + (end - start) / 2, end - 1] {
        clock.set(Timestamp::from_nanos(before));
        assert_eq!(
            manager.advance(),
            0,
            "I3: {ttl:?} ended early, at {before} of {end}"
        );
        assert!(lease.is_live());
        assert_eq!(lease.remaining(), Duration::from_nanos(end - before));
    }
    clock.set(Timestamp::from_nanos(end));
    assert!(!lease.is_live());
    manager.advance();
    let stats = manager.stats();
    assert_eq!(
        (stats.leases, stats.expired),
        (0, 1),
        "I8: {ttl:?} at a tick of {tick:?}"
    );
}

/// Case 17: the same with renewals, which are refused without touching the lease.
#[test]
fn case_17_a_renewal_beyond_the_limits_leaves_the_lease_alone() {
    let (manager, clock) = manual();
    let lease = manager
        .try_acquire("k", 1, ms(10))
        .expect("the key is free");
    let before = manager.holder("k");
    for ttl in [
        Duration::MAX,
        Duration::from_nanos(u64::MAX),
        DAY * 366 + NANOSECOND,
    ] {
        let too_long = RenewError::TtlTooLong {
            ttl,
            max: DAY * 366,
        };
        assert_eq!(lease.renew(ttl), Err(too_long));
        assert_eq!(manager.renew("k", lease.token(), ttl), Err(too_long));
    }
    assert_eq!(manager.holder("k"), before);
    assert!(lease.renew(DAY * 366).is_ok());
    clock.advance(just_under(DAY * 366));
    manager.advance();
    assert!(lease.is_live(), "I3: the longest renewal ended early");
    clock.advance(NANOSECOND);
    assert_eq!(manager.advance(), 1);
}

/// Case 17: a clock that is centuries on, up to its very end. Either a typed error or a lease that is
/// live at least as long as the clock can tell.
#[test]
fn case_17_a_clock_near_its_end_makes_no_lease_end_early() {
    for now in [
        1 << 62,
        (1 << 63) - 1,
        1 << 63,
        u64::MAX - 5_000_000,
        u64::MAX - 1,
        u64::MAX,
    ] {
        let (manager, clock) = manual();
        let old = manager
            .try_acquire("old", 1, ms(10))
            .expect("the key is free");
        clock.set(Timestamp::from_nanos(now));
        assert!(!old.is_live());
        manager.advance();
        assert!(manager.is_empty(), "I8: centuries late");
        for ttl in [ms(1), ms(50), DAY * 366] {
            let Ok(lease) = manager.try_acquire("k", 1, ttl) else {
                continue;
            };
            assert!(lease.is_live(), "I3: born expired at {now} for {ttl:?}");
            assert_eq!(manager.advance(), 0, "I3");
            let deadline = lease.deadline();
            assert!(lease.renew(ttl).is_ok_and(|renewed| renewed >= deadline));
            assert_eq!(lease.release(), Ok(()));
        }
    }
}

/// A clock that can be set to anything, as a wall clock can.
#[derive(Clone, Debug, Default)]
struct WallClock(Arc<AtomicU64>);

impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.0.load(Ordering::SeqCst))
    }

    fn is_real_time(&self) -> bool {
        false
    }
}

fn on_wall_clock(start: u64) -> (LockManager, WallClock) {
    let clock = WallClock::default();
    clock.0.store(start, Ordering::SeqCst);
    let built = LockManager::builder()
        .clock(clock.clone())
        .driver(false)
        .build();
    (built.expect("these options are in order"), clock)
}

/// Case 20: a wall-clock jump makes locks immortal. Even on a clock that is set back by an hour the
/// manager's time stands still instead: the lease is neither over early nor any longer.
#[test]
fn case_20_a_clock_that_is_set_back_lengthens_no_lease() {
    let (manager, clock) = on_wall_clock(2 * HOUR);
    let lease = manager
        .try_acquire("k", 1, ms(10_000))
        .expect("the key is free");
    let (now, deadline) = (manager.now(), lease.deadline());
    manager.advance();
    clock.0.store(HOUR, Ordering::SeqCst);
    manager.advance();
    assert_eq!(manager.now(), now, "the manager's time went back");
    assert!(lease.is_live(), "I3");
    assert_eq!(
        (lease.deadline(), lease.remaining()),
        (deadline, ms(10_000))
    );
    // A grant while the clock is behind is no longer and no shorter either.
    let other = manager
        .try_acquire("other", 1, ms(10_000))
        .expect("the key is free");
    assert_eq!(other.deadline(), deadline);

    clock.0.store(deadline.as_nanos() - 1, Ordering::SeqCst);
    manager.advance();
    assert!(lease.is_live() && other.is_live(), "I3");
    clock.0.store(deadline.as_nanos(), Ordering::SeqCst);
    assert!(!lease.is_live() && !other.is_live());
    manager.advance();
    assert_eq!((manager.stats().leases, manager.stats().expired), (0, 2));
}

/// Case 20: and what is over stays over when the clock is set back to before its deadline (I4).
#[test]
fn case_20_a_clock_that_is_set_back_resurrects_no_lease() {
    for swept in [false, true] {
        let (manager, clock) = on_wall_clock(2 * HOUR);
        let lease = manager
            .try_acquire("k", 1, ms(10_000))
            .expect("the key is free");
        let token = lease.token();
        clock.0.store(3 * HOUR, Ordering::SeqCst);
        if swept {
            assert_eq!(manager.advance(), 1);
        }
        assert!(!lease.is_live(), "the clock that counts says so");
        assert_eq!(
            manager.validate("k", token),
            Err(ValidateError::Expired { token })
        );
        clock.0.store(2 * HOUR, Ordering::SeqCst);
        assert!(!lease.is_live(), "I4: live again after {swept}");
        assert_eq!(
            manager.validate("k", token),
            Err(ValidateError::Expired { token })
        );
        assert_eq!(lease.renew(ms(10)), Err(RenewError::Expired { token }));
        assert_eq!(manager.holder("k"), None);
        let next = manager
            .try_acquire("k", 2, ms(10))
            .expect("the key is free");
        assert!(next.token() > token, "I2");
        assert!(next.is_live());
    }
}

/// Case 21: a non-positive extension deletes the lock and reports success. Zero, and what negative
/// numbers become on their way into a `Duration`, are refused, and the lease is as it was.
#[test]
fn case_21_a_non_positive_renewal_is_refused_and_the_lease_untouched() {
    let (manager, clock) = manual();
    let lease = manager
        .try_acquire("k", 1, ms(10))
        .expect("the key is free");
    clock.advance(ms(4));
    let before = manager.holder("k").expect("the lease is live");

    let underflow = ms(5).saturating_sub(ms(10));
    for ttl in [Duration::ZERO, underflow, NANOSECOND] {
        let refused = RenewError::TtlTooShort { ttl, min: ms(1) };
        assert_eq!(lease.renew(ttl), Err(refused));
        assert_eq!(manager.renew("k", lease.token(), ttl), Err(refused));
    }
    for minus_one in [-1_i64, i64::MIN] {
        let ttl = Duration::from_millis(minus_one.cast_unsigned());
        let refused = RenewError::TtlTooLong {
            ttl,
            max: DAY * 366,
        };
        assert_eq!(lease.renew(ttl), Err(refused));
        assert_eq!(manager.renew("k", lease.token(), ttl), Err(refused));
    }
    assert_eq!(manager.holder("k"), Some(before));
    assert_eq!((lease.deadline(), lease.is_live()), (before.deadline, true));
    assert_eq!(manager.len(), 1);
}

/// Case 21: a renewal can't shorten either. A shorter TTL than what is left changes nothing (I5).
#[test]
fn case_21_a_shorter_renewal_keeps_the_longer_deadline() {
    let (manager, clock) = manual();
    let lease = manager
        .try_acquire("k", 1, ms(100))
        .expect("the key is free");
    let deadline = lease.deadline();
    assert_eq!(lease.renew(ms(1)), Ok(deadline));
    assert_eq!(manager.renew("k", lease.token(), ms(1)), Ok(deadline));
    clock.advance(ms(99));
    manager.advance();
    assert!(lease.is_live(), "I3, I5");
}
