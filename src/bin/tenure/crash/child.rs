//! What the process does that is going to be killed: it grants, and says every token.
//!
//! A line is written, by one system call, while the lease is held. So a pipe has the grants of one key in the order
//! of their tokens, and a token that it doesn't have was seen by nobody.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tenure::{AcquireError, Lease, LockManager};

/// No lease lasts until then: it is released as soon as its token was said, and a crowd soon after.
const TTL: Duration = Duration::from_secs(10);

/// One thread holds a crowd for so many of its grants, and none for as many.
const CROWDED: u32 = 16;

/// Grants from so many threads, on so many keys, until the standard input ends. Meanwhile one of them takes a crowd of
/// leases, of keys that nobody else asks for, and gives it back, again and again.
///
/// # Errors
///
/// Standard output is closed, or a grant was refused for a reason that there should not be.
pub(crate) fn grant(locks: &LockManager, keys: u64, threads: u64, crowd: u64) -> io::Result<()> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|thread| {
                let over = &over;
                scope.spawn(move || {
                    let crowd = if thread == 0 {
                        keys..keys + crowd
                    } else {
                        0..0
                    };
                    let outcome = grant_some(locks, keys, thread, crowd, over);
                    over.store(true, Ordering::Relaxed);
                    outcome
                })
            })
            .collect();
        let input = scope.spawn(|| io::stdin().read_to_end(&mut Vec::new()));
        while !input.is_finished() && !over.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        over.store(true, Ordering::Relaxed);
        threads
            .into_iter()
            .try_for_each(|thread| match thread.join() {
                Ok(outcome) => outcome,
                Err(_) => Err(io::Error::other("a thread panicked")),
            })
    })
}

fn grant_some(
    locks: &LockManager,
    keys: u64,
    thread: u64,
    crowd: Range<u64>,
    over: &AtomicBool,
) -> io::Result<()> {
    let mut line = String::new();
    let mut key = thread;
    let mut crowding = Vec::new();
    let mut turns = 0;
    while !over.load(Ordering::Relaxed) {
        turns += 1;
        let size = |leases| say(&format!("crowd {leases} {}\n", locks.stats().buckets));
        if turns == CROWDED && !crowd.is_empty() {
            size(0)?;
            take(locks, thread + 1, crowd.clone(), &mut crowding)?;
        } else if turns == 2 * CROWDED && !crowd.is_empty() {
            size(crowding.len())?;
            crowding.clear();
            turns = 0;
        }
        key = (key + thread + 1) % keys;
        let lease = match locks.try_acquire(key, thread + 1, TTL) {
            Ok(lease) => lease,
            Err(AcquireError::Held { .. }) => continue,
            Err(AcquireError::TokensNotReserved { .. }) => {
                thread::sleep(Duration::from_micros(20));
                continue;
            }
            Err(AcquireError::AuthorityLost) => {
                // It campaigns; whether in vain, the parent will see.
                let _ = locks.wait_for_authority(Duration::from_millis(20));
                continue;
            }
            Err(error) => return Err(io::Error::other(error)),
        };
        line.clear();
        let _ = writeln!(line, "grant {key} {}", lease.token());
        say(&line)?;
        // Its authority may be over by now.
        let _ = lease.release();
    }
    Ok(())
}

/// Takes as many of the keys as there are tokens for in good time.
fn take<'m>(
    locks: &'m LockManager,
    owner: u64,
    keys: Range<u64>,
    taken: &mut Vec<Lease<'m>>,
) -> io::Result<()> {
    let mut patience = 100;
    for key in keys {
        loop {
            match locks.try_acquire(key, owner, TTL) {
                Ok(lease) => taken.push(lease),
                Err(AcquireError::TokensNotReserved { .. }) if patience > 0 => {
                    patience -= 1;
                    thread::sleep(Duration::from_micros(20));
                    continue;
                }
                Err(AcquireError::TokensNotReserved { .. } | AcquireError::AuthorityLost) => {}
                Err(error) => return Err(io::Error::other(error)),
            }
            break;
        }
    }
    Ok(())
}

/// Waits for the authority, and says which block the manager begins with.
///
/// # Errors
///
/// Standard output is closed.
pub(crate) fn begin(locks: &LockManager) -> io::Result<()> {
    // Without it, there is no block: the parent loses patience.
    while locks.wait_for_authority(Duration::from_secs(60)) {
        // None at all if its tokens come from nowhere.
        let Some(standing) = locks.standing() else {
            break;
        };
        if let Some(block) = standing.block {
            return say(&format!("block {} {}\n", block.first(), block.last()));
        }
        // It has just lost it again.
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.flush()
}
