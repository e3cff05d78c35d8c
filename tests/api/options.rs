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
        Duration::from_nanos(999),
        SECOND * 3_601,
        Duration::MAX,
    ] {
        let error = fails(on(&clock).tick(tick));
        assert_eq!(error, BuildError::Tick { tick });
        advises(&error, &[]);
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
