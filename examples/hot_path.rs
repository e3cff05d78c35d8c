//! The hot operations and nothing else, for a profiler or an instruction counter.
//!
//! ```text
//! cargo run --release --example hot_path                    the names of the operations
//! cargo run --release --example hot_path -- pair 1000000    one of them, so many times
//! bash .ci/instructions check                               all, in instructions, beside their budget
//! ```
//!
//! To be counted is what happens within [`measured`], and not what leads up to it:
//!
//! ```text
//! valgrind --fair-sched=yes --tool=callgrind --toggle-collect='*hot_path::measured*' \
//!     target/release/examples/hot_path pair 100000
//! ```

use std::env;
use std::error::Error;
use std::hint::black_box;
use std::ops::RangeInclusive;
use std::thread;
use std::time::{Duration, Instant};

use tenure::{HashSeed, Lease, LockManager, ManualClock, OwnerId};

const TTL: Duration = Duration::from_secs(60);
const ME: OwnerId = OwnerId(1);

/// By how much a deadline is later than another for sure: more than a tick.
const LATER: Duration = Duration::from_millis(2);

/// Keys in a batch.
const BATCH: u64 = 16;

/// Keys that take turns, and leases that end together.
const MANY: u64 = 1_000;

/// The same in each run, so that the same keys share a bucket.
const SEED: HashSeed = HashSeed::new(1);

type Done = Result<(), Box<dyn Error>>;
type Operation = fn(u64) -> Done;

/// What can be repeated, by the names in `benches/instructions.txt`.
const OPERATIONS: [(&str, Operation); 13] = [
    ("pair", pair),
    ("pair_1k_keys", pair_1k_keys),
    ("pair_beside", pair_beside),
    ("pair_shared", pair_shared),
    ("batch_16", batch_16),
    ("refused", refused),
    ("renew", renew),
    ("renew_late_enough", renew_late_enough),
    ("renew_by_token", renew_by_token),
    ("validate", validate),
    ("keep_alive", keep_alive),
    ("expiry", expiry),
    ("expiry_by_driver", expiry_by_driver),
];

fn main() -> Done {
    let mut args = env::args().skip(1);
    let Some(name) = args.next() else {
        for (name, _) in OPERATIONS {
            println!("{name}");
        }
        return Ok(());
    };
    let times: u64 = args.next().map_or(Ok(1_000_000), |arg| arg.parse())?;
    let named = OPERATIONS.iter().find(|(known, _)| *known == name);
    let (_, operation) = named.ok_or_else(|| format!("{name} is none of the operations"))?;
    let start = Instant::now();
    operation(times)?;
    let nanos = start.elapsed().as_nanos();
    println!("{times} x {name}: {nanos} ns with what leads up to it");
    Ok(())
}

/// What is counted, in this thread. Counters look for the name.
///
/// Closures are to `move` what they use: a caller has it in registers, and a reference to a variable of
/// another function is none.
#[inline(never)]
fn measured<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// A manager with the default clock and driver, past all that only happens at first.
fn manager() -> Result<LockManager, Box<dyn Error>> {
    let locks = LockManager::builder().hash_seed(SEED).build()?;
    // The clock's thread sleeps until there are enough readings; as long as it does, no two are the same.
    while locks.now() != locks.now() {
        thread::yield_now();
    }
    // The thread's registration, the first cells, the wheel.
    for key in 1..=MANY {
        locks.try_acquire(key, ME, TTL)?.release()?;
    }
    Ok(locks)
}

/// Acquires and releases so many times, one key after the other.
fn pairs(locks: &LockManager, keys: RangeInclusive<u64>, times: u64) -> Done {
    let (ttl, first, last) = black_box((TTL, *keys.start(), *keys.end()));
    measured(move || {
        let mut key = last;
        for _ in 0..times {
            key = if key == last { first } else { key + 1 };
            locks.try_acquire(key, ME, ttl)?.release()?;
        }
        Ok(())
    })
}

fn pair(times: u64) -> Done {
    pairs(&manager()?, 1..=1, times)
}

fn pair_1k_keys(times: u64) -> Done {
    pairs(&manager()?, 1..=MANY, times)
}

/// Of a key in whose bucket another one is held.
fn pair_beside(times: u64) -> Done {
    let locks = &manager()?;
    pairs(locks, 1..=1, MANY)?;
    let held = locks.try_acquire(1_u64, ME, TTL)?;
    // A bucket counts the tokens of its keys: those of such a key go on from there.
    let goes_on = |key: &u64| {
        let lease = locks.try_acquire(*key, ME, TTL);
        lease.is_ok_and(|lease| lease.token() > held.token())
    };
    let beside = (2..1_000_000)
        .find(goes_on)
        .ok_or("no key shares a bucket")?;
    pairs(locks, beside..=beside, times)
}

/// Of a lease that is not a plain one: by way of the key's record.
fn pair_shared(times: u64) -> Done {
    let locks = &manager()?;
    let ttl = black_box(TTL);
    measured(move || {
        for _ in 0..times {
            locks
                .acquire(1_u64, ME, ttl)
                .shared()
                .try_now()?
                .release()?;
        }
        Ok(())
    })
}

/// All keys of a batch acquired and released, as one operation.
fn batch_16(times: u64) -> Done {
    let locks = &manager()?;
    let (ttl, keys) = black_box((TTL, BATCH));
    measured(move || {
        let (mut granted, mut ended) = (vec![], vec![]);
        for _ in 0..times {
            locks.try_acquire_many_into(0..keys, ME, ttl, &mut granted);
            Lease::release_many_into(granted.drain(..).flatten(), &mut ended);
            assert_eq!(ended.drain(..).flatten().count() as u64, keys);
        }
    });
    Ok(())
}

fn refused(times: u64) -> Done {
    let locks = &manager()?;
    let _held = locks.try_acquire(1_u64, ME, TTL)?;
    let ttl = black_box(TTL);
    measured(move || {
        for _ in 0..times {
            assert!(black_box(locks.try_acquire(1_u64, ME, ttl)).is_err());
        }
    });
    Ok(())
}

/// Through the guard, to a later deadline each time.
fn renew(times: u64) -> Done {
    let locks = manager()?;
    let lease = &locks.try_acquire(1_u64, ME, TTL)?;
    let first = black_box(TTL);
    measured(move || {
        let mut ttl = first;
        for _ in 0..times {
            ttl += LATER;
            black_box(lease.renew(ttl)?);
        }
        Ok(())
    })
}

/// Through the guard, to the deadline that it has: but for the first time in each tick.
fn renew_late_enough(times: u64) -> Done {
    let locks = manager()?;
    let lease = &locks.try_acquire(1_u64, ME, TTL)?;
    let ttl = black_box(TTL);
    measured(move || {
        for _ in 0..times {
            black_box(lease.renew(ttl)?);
        }
        Ok(())
    })
}

/// By key and token, to a later deadline each time.
fn renew_by_token(times: u64) -> Done {
    let locks = &manager()?;
    let token = locks.try_acquire(1_u64, ME, TTL)?.detach();
    let first = black_box(TTL);
    measured(move || {
        let mut ttl = first;
        for _ in 0..times {
            ttl += LATER;
            black_box(locks.renew(1_u64, token, ttl)?);
        }
        Ok(())
    })
}

fn validate(times: u64) -> Done {
    let locks = &manager()?;
    let token = locks.try_acquire(1_u64, ME, TTL)?.detach();
    measured(move || {
        for _ in 0..times {
            black_box(locks.validate(1_u64, token)?);
        }
        Ok(())
    })
}

/// Of a session.
fn keep_alive(times: u64) -> Done {
    let locks = manager()?;
    let session = &locks.session(ME, TTL)?;
    measured(move || {
        for _ in 0..times {
            black_box(session.keep_alive()?);
        }
        Ok(())
    })
}

/// Of a lease that is left to its deadline: its share of a turn of the wheel that ends [`MANY`].
fn expiry(times: u64) -> Done {
    expiries(times, |locks, clock| {
        clock.advance(2 * TTL);
        measured(move || locks.advance());
    })
}

/// The same with all that moves a lease down the wheel before: a turn whenever there is something to do.
fn expiry_by_driver(times: u64) -> Done {
    expiries(times, |locks, clock| {
        while let Some(due) = locks.next_wakeup() {
            clock.set(due);
            measured(move || locks.advance());
        }
    })
}

/// Grants as many leases, [`MANY`] at a time, and ends each lot by `turn`.
fn expiries(times: u64, turn: impl Fn(&LockManager, &ManualClock)) -> Done {
    let clock = ManualClock::new();
    let builder = LockManager::builder().hash_seed(SEED).clock(clock.clone());
    // Without a driver, as its clock is no real one; and it doesn't grow on the way.
    let locks = builder.initial_capacity(usize::try_from(MANY)?).build()?;
    for _ in 0..times / MANY {
        for key in 0..MANY {
            locks.try_acquire(key, ME, TTL)?.detach();
        }
        turn(&locks, &clock);
        assert!(locks.is_empty());
    }
    Ok(())
}
