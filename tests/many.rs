//! Batches: what single calls would have said, on the manual clock.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use tenure::{
    AcquireError, Builder, FencingToken, HashSeed, Key, Lease, LockManager, ManualClock, OwnerId,
    ReleaseError, Timestamp, ToKey,
};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

fn on(clock: &ManualClock) -> Builder {
    // Equal seeds, so that two managers say the same.
    let built = LockManager::builder().clock(clock.clone()).driver(false);
    built.hash_seed(HashSeed::new(7))
}

fn manual() -> (LockManager, ManualClock) {
    let clock = ManualClock::new();
    let manager = on(&clock).build().expect("these options are in order");
    (manager, clock)
}

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) % bound
    }
}

struct Wakes(AtomicU64);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// All that a caller can see of an answer.
type Seen = Result<(Key, OwnerId, FencingToken, Timestamp), AcquireError>;

fn seen(answer: &Result<Lease<'_>, AcquireError>) -> Seen {
    let lease = answer.as_ref().map_err(Clone::clone)?;
    Ok((lease.key(), lease.owner(), lease.token(), lease.deadline()))
}

/// Random steps on one manager by batches and on another by single calls: all answers are the same.
fn batches_say_what_single_calls_say(limit: Option<usize>, seed: u64) {
    const KEYS: u64 = 60;
    let clock = ManualClock::new();
    let [batched, single] = [(); 2].map(|()| {
        let mut builder = on(&clock).max_ttl(HOUR).min_ttl(Duration::from_millis(2));
        if seed.is_multiple_of(2) {
            // So large a table that batches load what they need beforehand.
            builder = builder.initial_capacity(20_000);
        }
        if let Some(limit) = limit {
            builder = builder.max_keys(limit);
        }
        builder.build().expect("these options are in order")
    });
    let counts = [(); 2].map(|()| Arc::new(Wakes(AtomicU64::new(0))));
    let mut waiting = [vec![], vec![]];
    let mut out: [Vec<Vec<Lease<'_>>>; 2] = [vec![], vec![]];
    let mut random = Random(seed);
    let (mut granted, mut refused, mut expired) = (0, 0, 0);
    for _ in 0..1_500 {
        match random.below(10) {
            0..4 => {
                let count = [0, 1, 3, 16, 32, 33, 80][random.below(7) as usize];
                let keys: Vec<u64> = (0..count).map(|_| random.below(KEYS)).collect();
                let owner = random.below(5);
                let ttl = match random.below(12) {
                    0 => Duration::ZERO,
                    1 => HOUR * 2,
                    short => Duration::from_millis(short),
                };
                let many = batched.try_acquire_many(&keys, owner, ttl);
                let one = |key| single.try_acquire(key, owner, ttl);
                let ones: Vec<_> = keys.iter().map(one).collect();
                let [many_seen, ones_seen] =
                    [&many, &ones].map(|all| all.iter().map(seen).collect::<Vec<Seen>>());
                assert_eq!(many_seen, ones_seen, "{keys:?}");
                granted += many.iter().flatten().count();
                refused += many.iter().filter(|answer| answer.is_err()).count();
                for (out, answers) in out.iter_mut().zip([many, ones]) {
                    out.push(answers.into_iter().flatten().collect());
                }
            }
            4..7 if !out[0].is_empty() => {
                let at = random.below(out[0].len() as u64) as usize;
                let [many, ones] = &mut out;
                let many = Lease::release_many(many.swap_remove(at));
                let ones: Vec<_> = ones
                    .swap_remove(at)
                    .into_iter()
                    .map(Lease::release)
                    .collect();
                assert_eq!(many, ones);
                expired += many.iter().filter(|ended| ended.is_err()).count();
            }
            7 => {
                let (key, owner) = (random.below(KEYS), random.below(5));
                let locks = [&batched, &single];
                for ((locks, waiting), count) in locks.iter().zip(&mut waiting).zip(&counts) {
                    let mut acquire = Box::pin(locks.acquire(key, owner, HOUR));
                    let waker = Waker::from(Arc::clone(count));
                    // Granted at once or waiting: both stay.
                    let ready = acquire.as_mut().poll(&mut Context::from_waker(&waker));
                    waiting.push((acquire, ready));
                }
            }
            8 if !waiting[0].is_empty() => {
                let at = random.below(waiting[0].len() as u64) as usize;
                for waiting in &mut waiting {
                    drop(waiting.swap_remove(at));
                }
            }
            _ => clock.advance(Duration::from_millis(random.below(4))),
        }
        assert_eq!(batched.len(), single.len());
        assert_eq!(batched.waiting(), single.waiting());
        let [batched, single] = counts
            .each_ref()
            .map(|counts| counts.0.load(Ordering::SeqCst));
        assert_eq!(batched, single);
    }
    assert!(granted > 100 && refused > 100 && expired > 10);
    assert!(counts[0].0.load(Ordering::SeqCst) > 10);
}

#[test]
fn random_batches_say_what_single_calls_say() {
    for seed in 1..=4 {
        batches_say_what_single_calls_say(None, seed);
    }
}

#[test]
fn random_batches_within_a_limit_say_what_single_calls_say() {
    for seed in 1..=4 {
        batches_say_what_single_calls_say(Some(20), seed);
    }
}

#[test]
fn an_empty_batch_has_no_answers() {
    let (locks, _clock) = manual();
    assert!(locks.try_acquire_many([0_u64; 0], 1, SECOND).is_empty());
    assert!(
        locks
            .try_acquire_many([0_u64; 0], 1, Duration::ZERO)
            .is_empty()
    );
    assert!(Lease::release_many([]).is_empty());
    assert!(locks.is_empty());
}

#[test]
fn the_second_of_a_duplicate_is_told_who_holds_it() {
    let (locks, _clock) = manual();
    let answers = locks.try_acquire_many(["a", "b", "a"], 5, SECOND);
    let token = answers[0].as_ref().expect("it is free").token();
    assert!(answers[1].is_ok());
    let held = AcquireError::Held {
        owner: OwnerId(5),
        token,
        remaining: SECOND,
    };
    assert_eq!(seen(&answers[2]), Err(held));
    drop(answers);
    assert!(locks.is_empty());
}

#[test]
fn a_key_that_others_wait_for_goes_to_the_first_of_them() {
    let (locks, clock) = manual();
    let held = locks.try_acquire("b", 1, SECOND).expect("it is free");
    let counts = Arc::new(Wakes(AtomicU64::new(0)));
    let waker = Waker::from(Arc::clone(&counts));
    let mut context = Context::from_waker(&waker);
    let mut waiting = pin!(locks.acquire("b", 2, HOUR));
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    clock.advance(SECOND);
    // Over, but nobody has noticed yet: the batch does.
    let answers = locks.try_acquire_many(["a", "b", "c"], 3, SECOND);
    assert!(answers[0].is_ok() && answers[2].is_ok());
    assert!(matches!(answers[1], Err(AcquireError::Held { owner, .. }) if owner == OwnerId(2)));
    assert_eq!(counts.0.load(Ordering::SeqCst), 1);
    assert!(matches!(
        waiting.as_mut().poll(&mut context),
        Poll::Ready(Ok(_))
    ));
    assert!(held.release().is_err());
}

#[test]
fn a_full_manager_grants_what_there_is_room_for() {
    let clock = ManualClock::new();
    let built = on(&clock).max_keys(40).build();
    let locks = built.expect("these options are in order");
    let answers = locks.try_acquire_many(0..100, 1, SECOND);
    assert!(answers[..40].iter().all(Result::is_ok));
    let full = Err(AcquireError::CapacityExceeded { capacity: 40 });
    assert!(answers[40..].iter().all(|answer| seen(answer) == full));
    clock.advance(SECOND);
    // All of those are over, which makes room.
    let again = locks.try_acquire_many(100..140, 1, SECOND);
    assert!(again.iter().all(Result::is_ok));
    assert_eq!(locks.len(), 40);
}

#[test]
fn leases_that_are_over_are_told_so_one_by_one() {
    let (locks, clock) = manual();
    let mut leases = vec![];
    for (round, ttl) in [1, 2, 3].into_iter().enumerate() {
        let keys = (0..50).map(|key| key * 3 + round);
        leases.extend(
            locks
                .try_acquire_many(keys, 1, SECOND * ttl)
                .into_iter()
                .flatten(),
        );
    }
    leases.sort_by_key(Lease::key);
    let expected: Vec<_> = leases
        .iter()
        .map(|lease| {
            let (token, over) = (
                lease.token(),
                lease.deadline() <= Timestamp::from_nanos(2_000_000_000),
            );
            if over {
                Err(ReleaseError::Expired { token })
            } else {
                Ok(())
            }
        })
        .collect();
    clock.advance(SECOND * 2);
    assert_eq!(Lease::release_many(leases), expected);
    assert_eq!(expected.iter().filter(|ended| ended.is_ok()).count(), 50);
    assert!(locks.is_empty());
}

#[test]
fn guards_of_several_managers_end_where_they_belong() {
    let [(a, _), (b, _), (gone, _)] = [(); 3].map(|()| manual());
    let leases = |locks: &LockManager| -> Vec<Lease<'static>> {
        let answers = locks.try_acquire_many(0..40, 1, SECOND).into_iter();
        answers
            .map(|answer| answer.expect("it is free").into_owned())
            .collect()
    };
    let [of_a, of_b, of_gone] = [&a, &b, &gone].map(leases);
    drop(gone);
    let mixed = of_gone.into_iter().zip(of_a).zip(of_b);
    let ended = Lease::release_many(mixed.flat_map(|((gone, a), b)| [gone, a, b]));
    for three in ended.chunks(3) {
        assert_eq!(three, [Err(ReleaseError::Closed), Ok(()), Ok(())]);
    }
    assert!(a.is_empty() && b.is_empty());
}

#[test]
fn a_large_batch_grows_the_table_and_shrinks_it_again() {
    const COUNT: usize = 40_000;
    let (locks, _clock) = manual();
    let (mut answers, mut ended) = (vec![], vec![]);
    for _ in 0..2 {
        locks.try_acquire_many_into(0..COUNT, 1, HOUR, &mut answers);
        assert_eq!(answers.iter().flatten().count(), COUNT);
        assert_eq!(locks.len(), COUNT);
        let keys = answers.iter().flatten().map(Lease::key);
        assert!(
            keys.eq((0..COUNT).map(|key| locks.key(key))),
            "in their order"
        );
        Lease::release_many_into(answers.drain(..).flatten(), &mut ended);
        assert!(locks.is_empty());
    }
    assert_eq!(ended, vec![Ok(()); 2 * COUNT]);
}

#[test]
fn a_panic_of_the_iterator_loses_no_lease() {
    let (locks, _clock) = manual();
    let mut answers = vec![];
    let keys = || (0..100).inspect(|key| assert!(*key < 70, "as it should"));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        locks.try_acquire_many_into(keys(), 1, HOUR, &mut answers);
    }));
    assert!(panicked.is_err());
    assert_eq!((answers.len(), locks.len()), (64, 64));
    let all = catch_unwind(AssertUnwindSafe(|| locks.try_acquire_many(keys(), 1, HOUR)));
    assert!(all.is_err());
    assert_eq!(locks.len(), 64);
    let leases = answers.drain(..).flatten().enumerate();
    let leases = leases.inspect(|(at, _)| assert!(*at < 40, "as it should"));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        Lease::release_many(leases.map(|(_, lease)| lease))
    }));
    assert!(panicked.is_err());
    assert!(locks.is_empty());
}

/// Code of the user's in the middle of a batch.
struct Meddling<'m>(&'m LockManager, u64);

impl ToKey for Meddling<'_> {
    fn to_key(&self, seed: &HashSeed) -> Key {
        let other = self
            .0
            .try_acquire(self.1 + 1_000, 9, HOUR)
            .expect("it is free");
        other.release().expect("it is live");
        self.1.to_key(seed)
    }
}

#[test]
fn keys_and_iterators_may_use_the_manager() {
    let (locks, _clock) = manual();
    let keys = (0..100).map(|key| {
        drop(locks.try_acquire_many([key + 2_000, key + 3_000], 9, HOUR));
        Meddling(&locks, key)
    });
    let answers = locks.try_acquire_many(keys, 1, HOUR);
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(locks.len(), 100);
}

/// I1, I2: as in `threads`, by batches of keys that overlap.
#[test]
fn batches_of_several_threads_exclude_each_other_and_tokens_rise() {
    const KEYS: u64 = 12;
    const THREADS: u64 = 4;
    let (locks, _clock) = manual();
    let state: [(AtomicU64, AtomicU64); KEYS as usize] = Default::default();
    let (granted, start) = (AtomicU64::new(0), Barrier::new(THREADS as usize));
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (locks, state, granted, start) = (&locks, &state, &granted, &start);
            scope.spawn(move || {
                start.wait();
                let mut random = Random(number + 1);
                for turn in 0..5_000 {
                    let keys: [u64; 5] = std::array::from_fn(|_| random.below(KEYS));
                    let answers = locks.try_acquire_many(keys, number, HOUR);
                    let leases: Vec<_> = answers.into_iter().flatten().collect();
                    for lease in &leases {
                        let key = lease.key().as_raw() as usize;
                        let (count, last) = &state[key];
                        let before = count.load(Ordering::Relaxed);
                        let token = lease.token().get();
                        assert!(token > last.load(Ordering::Relaxed), "I2");
                        last.store(token, Ordering::Relaxed);
                        if turn % 64 == 0 {
                            thread::yield_now();
                        }
                        count.store(before + 1, Ordering::Relaxed);
                    }
                    granted.fetch_add(leases.len() as u64, Ordering::Relaxed);
                    assert!(Lease::release_many(leases).iter().all(Result::is_ok), "I3");
                }
            });
        }
    });
    let counted: u64 = state
        .iter()
        .map(|(count, _)| count.load(Ordering::Relaxed))
        .sum();
    assert_eq!(counted, granted.into_inner(), "I1: an update was lost");
    assert!(locks.is_empty());
}
