//! Threads that wait, hold, let expire, give up: real threads, and real time for the deadlines.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64};

const KEYS: usize = 4;
const THREADS: u64 = 6;

#[derive(Default)]
struct Key {
    /// The token of who is inside, 0 for nobody.
    inside: AtomicU64,
    highest: AtomicU64,
    entered: AtomicU64,
}

fn enter(key: &Key, token: u64) {
    let other = key.inside.swap(token, Ordering::SeqCst);
    assert_eq!(other, 0, "I1");
    let before = key.highest.swap(token, Ordering::SeqCst);
    assert!(before < token, "I2: {token} after {before}");
    key.entered.fetch_add(1, Ordering::Relaxed);
}

fn leave(key: &Key, token: u64) {
    assert_eq!(key.inside.swap(0, Ordering::SeqCst), token, "I1");
}

fn next(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random
}

/// Every acquisition ends, with a lease or in time; no key is ever held twice, and nothing is left.
#[test]
fn waiters_and_passers_by_never_share_a_key_and_all_get_through() {
    let locks = LockManager::new();
    let keys: [Key; KEYS] = Default::default();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 1..=THREADS {
            let (locks, keys, stop) = (&locks, &keys, &stop);
            scope.spawn(move || {
                let mut random = thread;
                while !stop.load(Ordering::Relaxed) {
                    let at = next(&mut random) as usize % KEYS;
                    let key = &keys[at];
                    let lease = match next(&mut random) % 8 {
                        0 => locks.try_acquire(at, thread, HOUR).ok(),
                        1 => {
                            let patience = Duration::from_micros(next(&mut random) % 300);
                            locks.acquire(at, thread, HOUR).wait_timeout(patience).ok()
                        }
                        2 => {
                            // Given up after one look.
                            let mut task = Task::new(locks.acquire(at, thread, HOUR));
                            if let Poll::Ready(lease) = task.poll() {
                                drop(lease);
                            }
                            None
                        }
                        _ => Some(locks.acquire(at, thread, HOUR).wait().expect("granted")),
                    };
                    let Some(lease) = lease else { continue };
                    let token = lease.token().get();
                    enter(key, token);
                    for _ in 0..next(&mut random) % 64 {
                        std::hint::spin_loop();
                    }
                    leave(key, token);
                    if next(&mut random).is_multiple_of(2) {
                        lease.release().expect("I3");
                    }
                }
            });
        }
        let patience = if cfg!(debug_assertions) {
            SECOND
        } else {
            3 * SECOND
        };
        thread::sleep(patience);
        stop.store(true, Ordering::Relaxed);
    });
    assert!(
        keys.iter()
            .all(|key| key.entered.load(Ordering::Relaxed) > 100)
    );
    assert_eq!((locks.waiting(), locks.len()), (0, 0), "nothing is left");
}

/// Holders that vanish: their leases pass on by expiry alone.
#[test]
fn the_queue_moves_on_over_holders_that_vanish() {
    const EACH: usize = 20;
    let locks = LockManager::new();
    let tokens: Vec<FencingToken> = thread::scope(|scope| {
        let workers: Vec<_> = (1..=THREADS)
            .map(|thread| {
                let locks = &locks;
                scope.spawn(move || {
                    let vanish = |_| {
                        let ttl = Duration::from_millis(2);
                        let lease = locks.acquire("a", thread, ttl).wait().expect("granted");
                        lease.detach()
                    };
                    let tokens: Vec<_> = (0..EACH).map(vanish).collect();
                    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "I2");
                    tokens
                })
            })
            .collect();
        let tokens = workers.into_iter().map(thread::ScopedJoinHandle::join);
        tokens
            .flat_map(|tokens| tokens.expect("no panic"))
            .collect()
    });
    let different: std::collections::HashSet<_> = tokens.iter().collect();
    assert_eq!(different.len(), THREADS as usize * EACH, "I1, I2");
    assert_eq!(locks.waiting(), 0);
}

/// Those who are known to wait before others come are granted before them.
#[test]
fn arrival_is_the_order_also_among_threads() {
    let locks = LockManager::new();
    for _ in 0..20 {
        let held = locks.try_acquire("a", 1, HOUR).expect("it is free");
        let granted = AtomicU64::new(0);
        thread::scope(|scope| {
            for number in 0..8 {
                let (locks, granted) = (&locks, &granted);
                scope.spawn(move || {
                    let lease = locks.acquire("a", number, HOUR).wait().expect("granted");
                    let turn = granted.fetch_add(1, Ordering::SeqCst);
                    assert_eq!(turn, number, "I7");
                    drop(lease);
                });
                while locks.waiting() <= number as usize {
                    thread::yield_now();
                }
            }
            held.release().expect("it is live");
        });
    }
}
