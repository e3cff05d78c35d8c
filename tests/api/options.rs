//! The options of a manager: their defaults and their limits.

use std::time::Duration;

use tenure::{AcquireError, BuildError, Builder, LockManager, ManualClock, SystemClock, Timestamp};

use super::{SECOND, advises, manual, on};

#[test]
fn a_builder_refuses_each_option_out_of_its_range() {
    let clock = ManualClock::new();
    let fails = |builder: Builder| builder.build().map(drop).expect_err("out of range");
    for tick in [
        Duration::ZERO,
        Duration::from_nanos(99_999),
        SECOND * 3_601,
        Duration::MAX,
    ] {
        let error = fails(on(&clock).tick(tick));
        assert_eq!(error, BuildError::Tick { tick });
        advises(&error, &["100 µs"]);
    }
    for tick in [Duration::from_micros(100), SECOND * 3_600] {
        assert!(on(&clock).tick(tick).build().is_ok());
    }
    let ranges = [
        (Duration::ZERO, SECOND),
        (SECOND * 2, SECOND),
        (Duration::MAX, SECOND),
    ];
    for (min, max) in ranges {
        let error = fails(on(&clock).min_ttl(min).max_ttl(max));
        assert_eq!(error, BuildError::TtlRange { min, max });
        advises(&error, &["min_ttl"]);
    }
    let error = fails(on(&clock).max_ttl(Duration::MAX));
    let BuildError::MaxTtl {
        max: Duration::MAX,
        limit,
    } = error
    else {
        panic!("{error:?}");
    };
    assert!(
        limit >= SECOND * 86_400 * 365,
        "a year fits at the default tick, not {limit:?}"
    );
    advises(&error, &[&format!("{limit:?}")]);
    assert!(
        on(&clock).max_ttl(limit).build().is_ok(),
        "the limit that it names is allowed"
    );
    for keys in [0, usize::MAX] {
        let error = fails(on(&clock).max_keys(keys));
        let BuildError::MaxKeys { max_keys, limit } = error else {
            panic!("{error:?}")
        };
        assert_eq!(max_keys, keys);
        assert!(limit >= 10_000_000);
        advises(&error, &[&limit.to_string()]);
        assert!(
            on(&clock).max_keys(limit).build().is_ok(),
            "the limit that it names is allowed"
        );
    }
    let error = fails(on(&clock).driver(true));
    assert_eq!(error, BuildError::DriverNeedsRealTime);
    advises(&error, &["driver(false)"]);
    advises(&BuildError::OutOfMemory, &["initial_capacity"]);
    advises(
        &BuildError::Spawn {
            reason: "no threads".to_owned(),
        },
        &["no threads"],
    );
}

/// I11: an absurd option is an error, never a panic and never an abort.
#[test]
fn a_builder_survives_absurd_options() {
    let clock = ManualClock::new();
    for capacity in [usize::MAX, usize::MAX / 2, usize::MAX / 64 + 1] {
        let built = on(&clock).initial_capacity(capacity).build();
        advises(
            &built
                .map(drop)
                .expect_err("no machine has that much memory"),
            &[],
        );
    }
    let nul = LockManager::builder()
        .clock(SystemClock::new())
        .thread_name("a\0b")
        .build();
    let error = nul.map(drop).expect_err("no thread can be called that");
    assert!(matches!(error, BuildError::Spawn { .. }), "{error:?}");
    let long = LockManager::builder()
        .thread_name("n".repeat(1_000))
        .build();
    assert!(long.is_ok(), "{long:?}");
}

#[test]
fn the_defaults_are_what_the_documentation_says() {
    let (manager, clock) = manual();
    assert_eq!(manager.tick(), Duration::from_millis(1));
    let year = SECOND * 86_400 * 366;
    assert!(manager.try_acquire("a", 1, year).is_ok());
    let above = manager
        .try_acquire("a", 1, year + Duration::from_nanos(1))
        .map(drop);
    assert!(matches!(above, Err(AcquireError::TtlTooLong { max, .. }) if max == year));
    clock.advance(SECOND);
    assert_eq!(manager.now(), Timestamp::from_nanos(1_000_000_000));
    assert_eq!((manager.len(), manager.is_empty()), (0, true));
    let stats = manager.stats();
    assert_eq!((stats.leases, stats.expired, stats.revoked), (0, 0, 0));
    assert!(LockManager::new().is_empty());
    assert!(LockManager::default().try_acquire("a", 1, SECOND).is_ok());
}

#[test]
fn a_table_has_room_for_its_initial_capacity_and_never_less() {
    const LEASES: u64 = 10_000;
    let clock = ManualClock::new();
    let built = on(&clock).initial_capacity(LEASES as usize).build();
    let manager = built.expect("these options are in order");
    let buckets = manager.stats().buckets;
    let is_as_it_was = || {
        let stats = manager.stats();
        assert_eq!((stats.buckets, stats.resizing), (buckets, false));
    };
    for key in 0..LEASES {
        manager
            .try_acquire(key, 1, SECOND)
            .expect("the key is free")
            .detach();
    }
    is_as_it_was();
    clock.advance(SECOND);
    manager.advance();
    assert!(manager.is_empty());
    is_as_it_was();
    assert!(
        manual().0.stats().buckets < buckets,
        "by default it is small"
    );
}

/// A clock whose readings may lag.
#[derive(Clone, Debug)]
struct Lagging(ManualClock, Duration);

impl tenure::Clock for Lagging {
    fn now(&self) -> tenure::Timestamp {
        self.0.now()
    }

    fn resolution(&self) -> Duration {
        self.1
    }

    fn is_real_time(&self) -> bool {
        false
    }
}

/// I11: too coarse a clock is refused, and overflows nothing.
#[test]
fn a_clock_that_lags_too_far_is_refused() {
    let lagging = |by| {
        LockManager::builder()
            .clock(Lagging(ManualClock::new(), by))
            .build()
    };
    let error = lagging(Duration::MAX).map(drop).expect_err("too coarse");
    assert!(matches!(error, BuildError::Resolution { .. }), "{error:?}");
    assert!(lagging(Duration::from_secs(3600)).is_ok());
}

/// A renewal to the very end of what an era can hold ends, with `Ok`.
#[test]
fn the_longest_renewal_at_the_end_of_an_era_is_granted() {
    let clock = ManualClock::new();
    let tick = Duration::from_micros(100);
    let built = LockManager::builder()
        .clock(Lagging(clock.clone(), Duration::from_millis(1)))
        .tick(tick)
        .build();
    let manager = built.expect("in order");
    let era = tick.as_nanos() as u64 * (1 << 35);
    let Err(tenure::AcquireError::TtlTooLong { max, .. }) =
        manager.try_acquire("longest", 1, Duration::MAX)
    else {
        panic!("an endless lease was granted")
    };
    let lease = manager
        .try_acquire("k", 1, Duration::from_nanos(era - 2_000_000))
        .expect("free");
    clock.advance(Duration::from_nanos(era - 2_500_000));
    for _ in 0..5 {
        assert!(lease.renew(max).is_ok());
        clock.advance(max.saturating_sub(Duration::from_millis(3)));
    }
    assert!(lease.is_live(), "I5");
}

/// The end of what a clock can say is an error, not a panic.
#[test]
fn a_manager_made_at_the_end_of_time_grants_nothing() {
    let clock = ManualClock::new();
    clock.set(tenure::Timestamp::MAX);
    let built = LockManager::builder().clock(clock).build();
    let manager = built.expect("in order");
    let refused = manager.try_acquire("k", 1, Duration::from_secs(1));
    assert!(matches!(
        refused.map(drop),
        Err(tenure::AcquireError::TtlTooLong { .. })
    ));
    manager.advance();
    assert_eq!(manager.next_wakeup(), None);
}
