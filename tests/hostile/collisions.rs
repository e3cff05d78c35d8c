//! Keys that were chosen by somebody who knows the seed, so that all of them fall into one bucket, of a table
//! of any size: the manager is slow then, and right. Under a seed that he doesn't know, they are keys like any.

use super::*;
use std::hash::Hasher;

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;
use siphasher::sip128::{Hasher128, SipHasher13};
use tenure::{HashSeed, Key, ToKey};

/// Where the manager's table puts keys, for who knows its seed: what `src/key/seed.rs` does, done again.
struct Placing {
    own: u64,
    shared: SharedSeed,
}

impl Placing {
    fn of(seed: HashSeed) -> Self {
        let (low, high) = (seed.get() as u64, (seed.get() >> 64) as u64);
        let mut hasher = SipHasher13::new_with_keys(low, high);
        hasher.write(b"tenure: buckets");
        let own = hasher.finish128();
        Self {
            own: own.h1,
            shared: SharedSeed::from_u64(own.h2),
        }
    }

    fn hash(&self, key: Key) -> u64 {
        let mut hasher = FoldHasher::with_seed(self.own, &self.shared);
        hasher.write_u128(key.as_raw());
        hasher.finish()
    }

    /// Keys that all have the same hash: their upper half is what the hash multiplies by, and 0 after the
    /// exclusive or with it. The library shows its secret to who prints it.
    fn colliding(&self, count: u64) -> Vec<Key> {
        let printed = format!("{:?}", self.shared);
        let digits = printed.split(|c: char| !c.is_ascii_digit());
        let mut numbers = digits.filter_map(|it| it.parse::<u64>().ok());
        let factor = numbers.next().expect("it prints its numbers");
        let raw = |low| u128::from(factor) << 64 | u128::from(low);
        (0..count).map(|low| Key::from_raw(raw(low))).collect()
    }

    /// The most keys that are in one bucket of a table of so many.
    fn longest_chain(&self, keys: &[Key], buckets: usize) -> usize {
        let mut chains = vec![0; buckets];
        for &key in keys {
            chains[self.hash(key) as usize & (buckets - 1)] += 1;
        }
        chains.into_iter().max().unwrap_or(0)
    }
}

fn seeded(seed: HashSeed) -> (LockManager, ManualClock) {
    let clock = ManualClock::new();
    let locks = on(&clock).hash_seed(seed).build();
    (locks.expect("in order"), clock)
}

/// Finishes a resize under way.
fn settle(locks: &LockManager) {
    while locks.stats().resizing {
        locks.advance();
    }
}

/// Grants, refusals, renewals, looks, ends and expiries of all of them.
fn check_all(locks: &LockManager, clock: &ManualClock, keys: &[Key]) {
    let start = Instant::now();
    let mut tokens = Vec::with_capacity(keys.len());
    for &key in keys {
        let lease = locks.try_acquire(key, 1, SECOND).expect("free");
        tokens.push(lease.detach());
    }
    let granted = start.elapsed();
    settle(locks);
    assert_eq!(locks.len(), keys.len());
    assert_eq!(locks.iter().count(), keys.len());
    let some = || (0..keys.len()).step_by(keys.len().div_ceil(500));
    for at in some() {
        let (key, token) = (keys[at], tokens[at]);
        assert!(locks.try_acquire(key, 2, SECOND).is_err());
        assert!(locks.validate(key, token).is_ok() && locks.renew(key, token, SECOND).is_ok());
        let other = tokens[(at + 1) % keys.len()];
        assert!(keys.len() == 1 || locks.release(key, other).is_err(), "I6");
        let mut next = waiting(locks.acquire(key, 3, SECOND), Waker::noop());
        locks.release(key, token).expect("it is live");
        let Poll::Ready(Ok(lease)) = poll(&mut next) else {
            panic!("it is the next");
        };
        assert!(lease.token() > token, "I2");
        tokens[at] = lease.detach();
    }
    // Half are released, and half expire.
    for at in (0..keys.len()).step_by(2) {
        locks.release(keys[at], tokens[at]).expect("it is live");
    }
    clock.advance(2 * SECOND);
    while !locks.is_empty() {
        locks.advance();
    }
    for at in some() {
        let lease = locks.try_acquire(keys[at], 4, SECOND).expect("free");
        assert!(lease.token() > tokens[at], "I2");
    }
    let all = start.elapsed();
    println!(
        "{} keys: granted in {granted:?}, all in {all:?}",
        keys.len()
    );
}

#[test]
fn keys_that_all_collide_are_leased_like_any() {
    let seed = HashSeed::new(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
    let placing = Placing::of(seed);
    // Each grant walks over all before it: five times as many take twenty-five times as long.
    let keys = placing.colliding(scaled(20_000).max(1_000));
    let hash = placing.hash(keys[0]);
    assert!(keys.iter().all(|&key| placing.hash(key) == hash));
    let (locks, clock) = seeded(seed);
    check_all(&locks, &clock, &keys);
    assert_eq!(
        placing.longest_chain(&keys, locks.stats().buckets),
        keys.len()
    );
}

/// The same keys, and others that come to mind, under a random seed: no chain is longer than chance has it. That
/// the chains are the table's is seen by its walk, which goes bucket by bucket.
#[test]
fn no_keys_collide_under_a_random_seed() {
    let known = Placing::of(HashSeed::new(1));
    let count = scaled(100_000).max(20_000);
    for round in 0..4 {
        let seed = HashSeed::random();
        let placing = Placing::of(seed);
        let name = |at: u64| match round {
            1 => at.to_key(&seed),
            2 => (u128::from(at) << 64).to_key(&seed),
            _ => format!("a long name, the same but for its end: {at}").to_key(&seed),
        };
        let keys: Vec<Key> = match round {
            0 => known.colliding(count),
            _ => (0..count).map(name).collect(),
        };
        let (locks, _clock) = seeded(seed);
        for &key in &keys {
            locks.try_acquire(key, 1, HOUR).expect("free").detach();
        }
        settle(&locks);
        let buckets = locks.stats().buckets;
        let walk = locks
            .iter()
            .map(|it| placing.hash(it.key) as usize & (buckets - 1));
        assert!(walk.is_sorted(), "where the table has them");
        let longest = placing.longest_chain(&keys, buckets);
        println!("{count} keys in {buckets} buckets: {longest} at the most in one");
        // Of a hundred thousand in a quarter of a million buckets, ten are in one with a chance of 1e-5.
        assert!(
            longest <= 12,
            "{longest} of {count} keys in one of {buckets} buckets"
        );
    }
}

/// Names of more than 15 bytes that collide in the first table, found by trying: a table that grows tells
/// them apart.
#[test]
fn names_that_collide_in_a_small_table_part_as_it_grows() {
    let seed = HashSeed::new(7);
    let placing = Placing::of(seed);
    let (locks, clock) = seeded(seed);
    let buckets = locks.stats().buckets;
    let names = (0..).map(|at: u64| format!("a name that was tried, {at}").to_key(&seed));
    let collide = |key: &Key| placing.hash(*key) as usize & (buckets - 1) == 0;
    let keys: Vec<Key> = names.filter(collide).take(600).collect();
    assert_eq!(placing.longest_chain(&keys, buckets), keys.len());
    check_all(&locks, &clock, &keys);
    let held: Vec<_> = keys
        .iter()
        .map(|&key| locks.try_acquire(key, 1, HOUR).expect("free"))
        .collect();
    settle(&locks);
    let grown = locks.stats().buckets;
    let longest = placing.longest_chain(&keys, grown);
    assert!(
        grown > buckets && longest < keys.len(),
        "{longest} of {grown}"
    );
    drop(held);
}
