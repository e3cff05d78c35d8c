//! The hot path and nothing else, for a profiler or an instruction counter.
//!
//! ```text
//! cargo build --release --example hot_path
//! valgrind --tool=callgrind --toggle-collect='*measured*' target/release/examples/hot_path 100000
//! ```
//!
//! The first argument is the number of iterations (default 1,000,000), the second what to repeat:
//! `pair` (acquire and release, the default), `renew` or `refused`; the third the number of keys
//! that take turns (default 1). Instructions for each are the count divided by the iterations.

use std::env;
use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use tenure::{LockManager, OwnerId};

const TTL: Duration = Duration::from_secs(60);
const ME: OwnerId = OwnerId(1);

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let iterations: u64 = args.next().map_or(Ok(1_000_000), |arg| arg.parse())?;
    let what = args.next().unwrap_or_else(|| "pair".into());
    let keys: u64 = args.next().map_or(Ok(1), |arg| arg.parse())?;
    let locks = LockManager::new();
    // Once before, so that what only happens at first is not counted: the thread's registration,
    // the first cells, the wheel.
    for key in 1..=keys {
        locks.try_acquire(key, ME, TTL)?.release()?;
    }
    let start = Instant::now();
    measured(&what, &locks, iterations, keys)?;
    let nanos = start.elapsed().as_nanos();
    println!("{iterations} x {what} on {keys} keys: {nanos} ns");
    Ok(())
}

#[inline(never)]
fn measured(
    what: &str,
    locks: &LockManager,
    iterations: u64,
    keys: u64,
) -> Result<(), Box<dyn Error>> {
    let ttl = black_box(TTL);
    let mut key = 0;
    match what {
        "pair" => {
            for _ in 0..iterations {
                key = if key == keys { 1 } else { key + 1 };
                locks.try_acquire(key, ME, ttl)?.release()?;
            }
        }
        "renew" => {
            let lease = locks.try_acquire(0_u64, ME, ttl)?;
            for later in 0..iterations {
                // A later deadline each time, so that there is one to write.
                black_box(lease.renew(ttl + Duration::from_millis(2 * later))?);
            }
        }
        "refused" => {
            let _held = locks.try_acquire(0_u64, ME, ttl)?;
            for _ in 0..iterations {
                assert!(black_box(locks.try_acquire(0_u64, ME, ttl)).is_err());
            }
        }
        other => return Err(format!("{other} is none of pair, renew, refused").into()),
    }
    Ok(())
}
