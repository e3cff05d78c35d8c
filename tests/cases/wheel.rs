//! Case 19: delays of one revolution of a wheel or more drift, or fire early.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure::{Clock, Key, Lease, LockManager, ManualClock, Timestamp};

use super::{just_under, manual, ms};

/// TTLs at every power of two of ticks, and at multiples of it, one tick less and one more: whatever
/// the spans of the wheel are, they are among them.
fn around_every_span() -> Vec<u64> {
    let mut ticks: Vec<u64> = (0..=31)
        .flat_map(|power| [1, 2, 3, 5, 7].map(|times| times << power))
        .flat_map(|span: u64| [span - 1, span, span + 1])
        .filter(|ticks| (1..=365 * 86_400_000).contains(ticks))
        .collect();
    ticks.sort_unstable();
    ticks.dedup();
    ticks
}

/// A small generator with a fixed seed, so that a failure repeats.
struct Jumps(u64);

impl Jumps {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

fn take_all(manager: &LockManager) -> BTreeMap<Key, Timestamp> {
    around_every_span()
        .into_iter()
        .map(|ticks| {
            let lease = manager
                .try_acquire(ticks, ticks, ms(ticks))
                .expect("the key is free");
            let (key, deadline) = (lease.key(), lease.deadline());
            lease.detach();
            (key, deadline)
        })
        .collect()
}

/// What is live by the deadlines is exactly what the manager has left after a sweep.
fn check(manager: &LockManager, deadlines: &BTreeMap<Key, Timestamp>) {
    let now = manager.now();
    let expected = deadlines.values().filter(|&&deadline| deadline > now);
    assert_eq!(manager.len(), expected.count(), "I3, I8: at {now:?}");
}

/// One by one, to just before each deadline and then to it.
#[test]
fn case_19_each_ttl_around_a_revolution_ends_at_its_deadline_and_not_before() {
    for start in [0, 1, 999_999, 63_000_000, 4_095_500_000, 1 << 50] {
        let (manager, clock) = manual();
        clock.set(Timestamp::from_nanos(start));
        manager.advance();
        let deadlines = take_all(&manager);
        let mut order: Vec<_> = deadlines.values().copied().collect();
        order.sort_unstable();
        for (gone, deadline) in order.iter().enumerate() {
            clock.set(Timestamp::from_nanos(deadline.as_nanos() - 1));
            manager.advance();
            assert_eq!(
                manager.len(),
                order.len() - gone,
                "I3: over before {deadline:?}"
            );
            clock.set(*deadline);
            manager.advance();
            assert_eq!(
                manager.len(),
                order.len() - gone - 1,
                "I8: not over at {deadline:?}"
            );
        }
    }
}

/// With clock jumps of every size, from a part of a tick to many revolutions.
#[test]
fn case_19_random_clock_jumps_end_nothing_early_and_nothing_late() {
    for seed in 1..=if cfg!(debug_assertions) { 12 } else { 100 } {
        let (manager, clock) = manual();
        let mut jumps = Jumps(seed);
        clock.advance(Duration::from_nanos(jumps.next(1 << 31) << jumps.next(20)));
        let deadlines = take_all(&manager);
        while !manager.is_empty() {
            let jump = (1 + jumps.next(1 << 10)) << jumps.next(46);
            clock.advance(Duration::from_nanos(jump));
            manager.advance();
            check(&manager, &deadlines);
        }
        assert_eq!(manager.stats().expired, deadlines.len() as u64);
    }
}

/// Renewed again and again, a lease goes round the wheel many times and ends once, on time.
#[test]
fn case_19_a_lease_renewed_through_many_revolutions_ends_at_its_last_deadline() {
    for (ttl, step) in [
        (10, 9),
        (64, 63),
        (65, 64),
        (300, 7),
        (4_096, 4_095),
        (70_000, 65_536),
    ] {
        let (manager, clock) = manual();
        let lease = manager
            .try_acquire("renewed", 1, ms(ttl))
            .expect("the key is free");
        for _ in 0..1_000 {
            clock.advance(ms(step));
            manager.advance();
            assert!(
                lease.renew(ms(ttl)).is_ok(),
                "I3, I5: with a TTL of {ttl} ticks"
            );
        }
        clock.advance(just_under(ms(ttl)));
        manager.advance();
        assert!(lease.is_live(), "I3");
        clock.advance(Duration::from_nanos(1));
        assert_eq!(manager.advance(), 1, "I8: with a TTL of {ttl} ticks");
        assert!(!lease.is_live());
    }
}

/// An embedder that sleeps until `next_wakeup` says so ends every lease within a tick (I8), and is not
/// woken for nothing: for each lease at its deadline, twice before to move it to a finer level of the
/// wheel, and the same again for each million ticks, when what lies beyond all levels is looked at.
#[test]
fn case_19_driven_by_its_wake_ups_alone_the_wheel_is_on_time() {
    const LONGEST: u64 = 1 << 23;
    let (manager, clock) = manual();
    let mut deadlines = take_all(&manager);
    let taken = deadlines.len() as u64;
    let end = Timestamp::from_nanos(LONGEST * 1_000_000);
    deadlines.retain(|&key, &mut deadline| deadline <= end || manager.revoke(key).is_err());
    let on_the_way = |deadline: &Timestamp| (deadline.as_nanos() / 1_000_000) >> 20;
    let allowed = 3 * (taken + deadlines.values().map(on_the_way).sum::<u64>());
    let mut calls = 0;
    while let Some(wakeup) = manager.next_wakeup() {
        let due = deadlines
            .values()
            .filter(|&&deadline| deadline > manager.now());
        if let Some(due) = due.min() {
            assert!(
                wakeup.as_nanos() <= due.as_nanos() + 1_000_000,
                "I8: {wakeup:?}, {due:?}"
            );
        }
        clock.set(wakeup);
        manager.advance();
        check(&manager, &deadlines);
        calls += 1;
        assert!(calls <= allowed, "its driver gets no sleep: {calls} calls");
    }
    assert!(manager.is_empty());
    let calls = calls_for_one(&manager, &clock);
    assert!(
        (1..=3).contains(&calls),
        "{calls} calls for a lease of three ticks"
    );
}

/// How often an embedder is woken for one lease of three ticks.
fn calls_for_one(manager: &LockManager, clock: &ManualClock) -> usize {
    let _ = manager.try_acquire("one", 1, ms(3)).map(Lease::detach);
    let mut calls = 0;
    while let Some(wakeup) = manager.next_wakeup() {
        clock.set(wakeup);
        manager.advance();
        calls += 1;
    }
    calls
}

/// A clock on which a millisecond passes with each exact reading.
#[derive(Debug, Default)]
struct Hasty(AtomicU64);

impl Clock for Hasty {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.0.load(Ordering::SeqCst) * 1_000_000)
    }

    fn precise_now(&self) -> Timestamp {
        self.0.fetch_add(1, Ordering::SeqCst);
        self.now()
    }

    fn is_real_time(&self) -> bool {
        false
    }
}

/// What a turn of the wheel does last is later than what it does first.
#[test]
fn the_lag_of_a_long_turn_is_counted_to_its_end() {
    let manager = LockManager::builder()
        .clock(Hasty::default())
        .build()
        .expect("the defaults are good");
    let take = |keys: std::ops::Range<u64>, ttl| {
        for key in keys {
            manager.try_acquire(key, 1, ttl).expect("free").detach();
        }
    };
    take(0..1, ms(1));
    assert_eq!(manager.advance(), 1);
    assert_eq!(manager.stats().max_expiry_lag, ms(0));
    take(0..2_000, ms(1));
    assert_eq!(manager.advance(), 2_000);
    // Each was looked at once at the least.
    let lag = manager.stats().max_expiry_lag;
    assert!((ms(5)..ms(100)).contains(&lag), "{lag:?}");
}
