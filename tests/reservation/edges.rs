//! Odd backends, odd moments, odd numbers.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tenure::reservation::{Authority, Block, Memory, Reservation, ReservationError};
use tenure::{BuildError, FencingToken, LockManager, ManualClock};

use crate::common::Task;
use crate::ledger::{Ledger, TERM, TTL};

const SECOND: Duration = Duration::from_secs(1);

/// Says what it is told to.
#[derive(Clone, Default)]
struct Scripted(Arc<Mutex<Script>>);

#[derive(Default)]
struct Script {
    mark: u64,
    term: Option<Duration>,
    /// The next answer to who wants a block.
    refuses: Option<ReservationError>,
    resigned: bool,
}

impl Scripted {
    fn with_term(term: Duration) -> Self {
        let scripted = Self::default();
        scripted.0.lock().unwrap().term = Some(term);
        scripted
    }
}

impl Reservation for Scripted {
    fn keep_alive(&mut self) -> Result<Option<Duration>, ReservationError> {
        Ok(self.0.lock().unwrap().term)
    }

    fn reserve(&mut self, tokens: NonZeroU64) -> Result<Block, ReservationError> {
        let mut script = self.0.lock().unwrap();
        if let Some(error) = script.refuses.take() {
            return Err(error);
        }
        let block = Block::after(script.mark, tokens)?;
        script.mark = block.last().get();
        Ok(block)
    }

    fn resign(&mut self) {
        self.0.lock().unwrap().resigned = true;
    }
}

#[test]
fn a_manager_without_a_reservation_has_none_whoever_else_asks() {
    let locks = LockManager::new();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(locks.standing(), None);
                }
            });
        }
        for _ in 0..20_000 {
            locks.resign();
            assert!(locks.wait_for_authority(Duration::ZERO));
            assert!(locks.try_acquire("a", 1, SECOND).is_ok());
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_ttl_is_a_ttl_while_the_manager_closes_and_opens() {
    let tokens = Memory::new();
    let mut other = tokens.clone();
    let builder = LockManager::builder().reservation(tokens).driver(false);
    let locks = builder.block_size(NonZeroU64::new(64).unwrap()).build();
    let locks = locks.unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..3_u64)
            .map(|thread| {
                let (locks, stop) = (&locks, &stop);
                scope.spawn(move || {
                    let mut key = thread << 40;
                    let mut longest = Duration::ZERO;
                    while !stop.load(Ordering::Relaxed) {
                        key += 1;
                        if let Ok(lease) = locks.try_acquire(key, thread, SECOND) {
                            longest = longest.max(lease.remaining());
                        }
                    }
                    longest
                })
            })
            .collect();
        let begin = Instant::now();
        let enough = || locks.standing().unwrap().terms > 10;
        while begin.elapsed() < SECOND || (!enough() && begin.elapsed() < 60 * SECOND) {
            // Its next block does not follow on the last one.
            other.reserve(NonZeroU64::MIN).unwrap();
            locks.tend_reservation(Duration::ZERO);
        }
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            let longest = thread.join().unwrap();
            assert!(longest < 2 * SECOND, "{longest:?}");
        }
    });
    assert!(locks.standing().unwrap().terms > 10);
}

#[test]
fn an_authority_that_turns_out_to_last_for_ever_does() {
    let backend = Scripted::with_term(9 * SECOND);
    let clock = ManualClock::new();
    let builder = LockManager::builder().clock(clock.clone());
    let locks = builder.reservation(backend.clone()).build().unwrap();
    clock.advance(4 * SECOND);
    backend.0.lock().unwrap().term = None;
    assert_eq!(locks.tend_reservation(Duration::ZERO), None);
    clock.advance(3_600 * SECOND);
    assert!(locks.try_acquire("a", 1, 60 * SECOND).is_ok());
    assert_eq!(locks.standing().unwrap().authority, Authority::Unlimited);
}

#[test]
fn who_waits_for_leases_of_an_earlier_term_does_not_spin() {
    let backend = Scripted::with_term(9 * SECOND);
    let builder = LockManager::builder().clock(ManualClock::new());
    let builder = builder.block_size(NonZeroU64::new(4).unwrap());
    let locks = builder.reservation(backend.clone()).build().unwrap();
    let held = locks.try_acquire("held", 1, 8 * SECOND).unwrap();
    // The block runs out, and another one is refused with the authority.
    for _ in 0..3 {
        let _ = locks.try_acquire("a", 1, SECOND);
    }
    backend.0.lock().unwrap().refuses = Some(ReservationError::Lost);
    for _ in 0..6 {
        let next = locks.tend_reservation(Duration::ZERO);
        assert!(
            next.is_some_and(|next| next >= Duration::from_millis(5)),
            "{next:?}"
        );
        assert!(locks.try_acquire("a", 1, SECOND).is_err());
    }
    held.release().unwrap();
    locks.tend_reservation(Duration::ZERO);
    assert!(locks.try_acquire("a", 1, SECOND).is_ok());
}

#[test]
fn what_was_recorded_is_restored_whatever_the_blocks_are() {
    let before = LockManager::builder().clock(ManualClock::new()).build();
    let before = before.unwrap();
    let tokens: Vec<_> = (0..200_u64)
        .map(|key| {
            let lease = before.acquire(key, 1, 6 * SECOND).shared().try_now();
            lease.unwrap().detach()
        })
        .collect();
    for block in [1, 7] {
        let ledger = Ledger::new();
        ledger.shard().mark = 1_000;
        let after = ledger.builder(None, block).restore(&before.checkpoint());
        let after = after.unwrap();
        for (key, token) in (0_u64..).zip(&tokens) {
            assert_eq!(after.holder(key).map(|it| it.token), Some(*token));
            after.release(key, *token).unwrap();
        }
        assert!(after.is_empty());
    }
}

#[test]
fn extreme_terms_and_margins_are_errors_or_as_good_as_for_ever() {
    for margin in [Duration::MAX, Duration::MAX / 3 * 2] {
        let builder = LockManager::builder().clock(ManualClock::new());
        let builder = builder.authority_margin(margin);
        let refused = builder.reservation(Scripted::with_term(TERM)).build();
        let BuildError::Reservation { error } = refused.unwrap_err() else {
            panic!("another error");
        };
        assert!(matches!(error, ReservationError::TermTooShort { .. }));
    }
    for term in [Duration::MAX, Duration::from_nanos(u64::MAX)] {
        let builder = LockManager::builder().clock(ManualClock::new());
        let locks = builder.reservation(Scripted::with_term(term)).build();
        let locks = locks.unwrap();
        assert!(locks.try_acquire("a", 1, SECOND).is_ok());
    }
}

#[test]
fn what_was_restored_keeps_its_terms_while_the_authority_is_kept_alive() {
    let before = LockManager::builder().clock(ManualClock::new()).build();
    let before = before.unwrap();
    let (ttl, hour) = (6 * SECOND, 3_600 * SECOND);
    let kept = before.acquire("kept", 1, ttl).auto_renew(hour).try_now();
    kept.unwrap().detach();
    // Longer than the first term, and not renewed before the end of that if there were no limit.
    let long = before.acquire("long", 1, 60 * SECOND).auto_renew(hour);
    long.try_now().unwrap().detach();
    let least = before.acquire("least", 1, ttl).min_hold(60 * SECOND);
    least.try_now().unwrap().detach();
    let ledger = Ledger::new();
    ledger.shard().mark = 1_000;
    let builder = ledger.builder(Some(TERM), 1_000);
    let after = builder.restore(&before.checkpoint()).unwrap();
    ledger.pass(15 * SECOND, &[&after]);
    assert!(after.holder("kept").is_some() && after.holder("long").is_some());
    assert!(after.try_acquire("least", 2, SECOND).is_err());
    ledger.pass(50 * SECOND, &[&after]);
    assert!(after.try_acquire("least", 2, SECOND).is_ok());
}

#[test]
fn a_restored_floor_above_the_mark_is_reached_at_once() {
    let before = LockManager::builder().clock(ManualClock::new()).build();
    let mut checkpoint = before.unwrap().checkpoint();
    let floor = FencingToken::new(1_000_000).unwrap();
    checkpoint.raise_floor(floor).unwrap();
    let ledger = Ledger::new();
    let after = ledger.builder(None, 1_000).restore(&checkpoint).unwrap();
    for _ in 0..500 {
        let token = after.try_acquire("a", 1, SECOND).unwrap().token();
        assert!(token > floor && token.get() <= ledger.shard().mark);
    }
}

#[test]
fn several_keys_that_are_waited_for_hold_nothing_past_the_authority() {
    let ledger = Ledger::new();
    let locks = ledger.manager(Some(TERM), 1_000);
    let mut keys = [locks.key("a"), locks.key("b")];
    keys.sort_unstable();
    let last = locks.try_acquire(keys[1], 1, 5 * SECOND).unwrap();
    let mut all = Task::pending(locks.acquire_all(["a", "b"], 2, SECOND));
    let first = locks.holder(keys[0]).expect("held for all of them").token;
    // A checkpoint doesn't know of it: who waits goes with the process.
    assert!(
        locks
            .checkpoint()
            .leases()
            .all(|lease| lease.key != keys[0])
    );
    ledger.clock.advance(TERM);
    ledger.pass(SECOND, &[&locks]);
    assert!(locks.validate(keys[0], first).is_err());
    let between = locks.try_acquire(keys[0], 3, SECOND).unwrap();
    assert!(between.token() > first);
    drop((between, last));
    let all = loop {
        if let Some(all) = all.poll() {
            break all.unwrap();
        }
        ledger.pass(SECOND, &[&locks]);
    };
    assert!(all.token(keys[0]).unwrap() > first);
}

#[test]
fn who_resigns_does_not_wait_for_several_keys_that_nobody_polls() {
    let ledger = Ledger::new();
    let locks = ledger.manager(None, 1_000);
    let mut keys = [locks.key("a"), locks.key("b")];
    keys.sort_unstable();
    let last = locks.try_acquire(keys[1], 1, 5 * SECOND).unwrap();
    let all = Task::pending(locks.acquire_all(["a", "b"], 2, SECOND));
    locks.resign();
    drop(last);
    assert_eq!(locks.tend_reservation(Duration::ZERO), None);
    assert_eq!(locks.standing().unwrap().authority, Authority::Resigned);
    drop(all);
}

#[test]
fn a_lease_that_becomes_shared_while_its_manager_resigns_keeps_the_authority() {
    let runs = if cfg!(debug_assertions) { 300 } else { 2_000 };
    for _ in 0..runs {
        let backend = Scripted::default();
        let builder = LockManager::builder().driver(false);
        let locks = builder.reservation(backend.clone()).build().unwrap();
        let mut lease = locks.try_acquire(1_u64, 1, 100 * SECOND).unwrap();
        locks.resign();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                lease.downgrade().unwrap();
                done.store(true, Ordering::SeqCst);
            });
            while !done.load(Ordering::SeqCst) {
                locks.tend_reservation(Duration::ZERO);
            }
        });
        assert!(!backend.0.lock().unwrap().resigned, "a lease is out");
        assert!(locks.holder(1_u64).is_some());
    }
}

/// Says what it is told to of its terms; the first is long.
struct Terms(Vec<Result<Duration, ReservationError>>);

impl Reservation for Terms {
    fn keep_alive(&mut self) -> Result<Option<Duration>, ReservationError> {
        let next = self.0.pop().unwrap_or(Ok(Duration::from_secs(1)));
        next.map(Some)
    }

    fn reserve(&mut self, tokens: NonZeroU64) -> Result<Block, ReservationError> {
        static MARK: AtomicU64 = AtomicU64::new(0);
        Block::after(MARK.fetch_add(tokens.get(), Ordering::SeqCst), tokens)
    }
}

/// A clock may stand still while the authority is lost and won again, for a shorter term.
#[test]
fn no_lease_lasts_longer_than_an_authority_that_is_shorter_than_the_last_one() {
    let clock = ManualClock::new();
    let told = vec![Err(ReservationError::Lost), Ok(TERM)];
    let builder = LockManager::builder().clock(clock.clone());
    let builder = builder
        .reservation(Terms(told))
        .authority_margin(Duration::from_millis(100));
    let locks = builder.build().unwrap();
    clock.advance(TERM / 2);
    for key in 0..100_u64 {
        let lease = locks.try_acquire(key, 1, TTL).unwrap();
        assert!(lease.remaining() > TERM / 3);
    }
    for _ in 0..3 {
        locks.tend_reservation(Duration::ZERO);
    }
    for key in 0..100_u64 {
        let lease = locks.try_acquire(key, 1, TTL).unwrap();
        assert!(lease.remaining() < Duration::from_secs(1), "{lease:?}");
    }
}
