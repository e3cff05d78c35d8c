//! Real threads on the public API, with manual clocks: nothing here waits for time to pass.

mod storm;

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;

use tenure::{FencingToken, Lease, LockManager, ManualClock, ReleaseError, RenewError};

const THREADS: u64 = 4;
const HOUR: Duration = Duration::from_secs(3_600);

fn manual() -> (LockManager, ManualClock) {
    let clock = ManualClock::new();
    let built = LockManager::builder()
        .clock(clock.clone())
        .driver(false)
        .build();
    (built.expect("these options are in order"), clock)
}

fn scaled(optimised: u64) -> u64 {
    if cfg!(debug_assertions) {
        optimised / 10
    } else {
        optimised
    }
}

/// Runs `body(0)` to `body(THREADS - 1)` at once.
fn on_all_threads(body: impl Fn(u64) + Sync) {
    let start = Barrier::new(usize::try_from(THREADS).expect("there are few"));
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (start, body) = (&start, &body);
            scope.spawn(move || {
                start.wait();
                body(number);
            });
        }
    });
}

/// I1, I2: a plain read and write under a lease loses no update, and tokens rise in the order of the
/// grants. Few keys, so that the threads meet.
#[test]
fn a_lease_excludes_and_its_tokens_rise() {
    const KEYS: usize = 3;
    let (manager, _clock) = manual();
    // (increments, last token): written in two steps, so that a second holder would be noticed.
    let counters: [(AtomicU64, AtomicU64); KEYS] = Default::default();
    let granted = AtomicU64::new(0);
    on_all_threads(|number| {
        let mut mine = 0;
        for turn in 0..scaled(200_000) {
            let key = (turn.wrapping_mul(number + 7) % KEYS as u64) as usize;
            let Ok(lease) = manager.try_acquire(key, number, HOUR) else {
                continue;
            };
            let (count, last) = &counters[key];
            let before = count.load(Ordering::Relaxed);
            let token = lease.token().get();
            assert!(token > last.load(Ordering::Relaxed), "I2");
            if turn % 64 == 0 {
                thread::yield_now();
            }
            last.store(token, Ordering::Relaxed);
            count.store(before + 1, Ordering::Relaxed);
            mine += 1;
            if turn % 3 == 0 {
                drop(lease);
            } else if turn % 3 == 1 {
                assert_eq!(lease.release(), Ok(()), "I3");
            } else {
                let token = lease.detach();
                assert_eq!(manager.release(key, token), Ok(()), "I3");
            }
        }
        granted.fetch_add(mine, Ordering::Relaxed);
    });
    let counted: u64 = counters
        .iter()
        .map(|(count, _)| count.load(Ordering::Relaxed))
        .sum();
    assert!(counted > 0);
    assert_eq!(counted, granted.into_inner(), "I1: an update was lost");
    assert_eq!(manager.len(), 0);
}

/// I2, I3, I9: the table grows and shrinks under fire, again and again, while some leases are held
/// throughout, renewed and looked up. Each round moves every block of keys to another thread.
#[test]
fn growth_and_shrinking_under_fire_lose_nothing() {
    const ROUNDS: u64 = 4;
    const KEPT: u64 = 64;
    let block = scaled(200_000) / THREADS;
    let (manager, _clock) = manual();
    let kept: Vec<_> = (0..KEPT)
        .map(|key| {
            manager
                .try_acquire(u64::MAX - key, key, HOUR)
                .expect("the key is free")
        })
        .collect();
    let last: Vec<Mutex<Vec<u64>>> = (0..THREADS)
        .map(|_| Mutex::new(vec![0; block as usize]))
        .collect();
    let (running, peak) = (AtomicBool::new(true), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while running.load(Ordering::Acquire) {
                for lease in &kept {
                    assert!(lease.renew(HOUR).is_ok(), "I3: {lease:?}");
                    let holder = manager.holder(lease.key());
                    assert_eq!(holder.map(|h| h.token), Some(lease.token()), "I3");
                    assert!(manager.validate(lease.key(), lease.token()).is_ok(), "I3");
                    assert!(manager.try_acquire(lease.key(), 99, HOUR).is_err(), "I1");
                }
                let seen: Vec<_> = manager.iter().filter(|h| h.owner.0 < KEPT).collect();
                let keys: HashSet<_> = seen.iter().map(|h| h.key).collect();
                assert_eq!((seen.len(), keys.len()), (KEPT as usize, KEPT as usize));
                manager.advance();
            }
        });
        let done = StopOnDrop(&running);
        on_all_threads(|number| {
            for round in 0..ROUNDS {
                let mine = (number + round) % THREADS;
                let mut last = last[mine as usize].lock().unwrap();
                let mut leases = Vec::new();
                for (key, last) in (mine * block..).zip(last.iter_mut()) {
                    let lease = manager.try_acquire(key, 100 + number, HOUR);
                    let lease = lease.expect("the key is free");
                    let token = lease.token().get();
                    assert!(token > *last, "I2: {token} after {last}");
                    *last = token;
                    leases.push(lease);
                }
                peak.fetch_max(manager.stats().buckets as u64, Ordering::Relaxed);
                assert!(leases.iter().all(Lease::is_live), "I3");
                for (index, lease) in leases.into_iter().enumerate() {
                    if index % 2 == 0 {
                        assert_eq!(lease.release(), Ok(()), "I3");
                    }
                }
            }
        });
        drop(done);
    });
    assert_eq!(manager.len(), KEPT as usize);
    assert_eq!(manager.stats().expired + manager.stats().revoked, 0, "I3");
    for lease in kept {
        assert_eq!(lease.release(), Ok(()));
    }
    assert_eq!((manager.len(), manager.iter().count()), (0, 0));
    // The table has shrunk once its few operations have helped it to.
    for key in 0..10_000_u64 {
        drop(manager.try_acquire(key, 1, HOUR));
        if key % 100 == 0 {
            manager.advance();
        }
    }
    let (buckets, peak) = (manager.stats().buckets as u64, peak.into_inner());
    assert!(
        buckets <= peak / 8,
        "I9: {buckets} buckets for no lease, {peak} at the peak"
    );
}

/// Ends a loop of another thread also when this one fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A holder that panics gives its lease back; one that crashes without a word keeps it until its
/// deadline, and not longer (I3, I4).
#[test]
fn panics_release_and_crashes_expire() {
    const KEYS: u64 = 300;
    let (manager, clock) = manual();
    on_all_threads(|number| {
        for key in (number..KEYS).step_by(THREADS as usize) {
            // Told apart by their payload from a failed assertion.
            let unwound = catch_unwind(AssertUnwindSafe(|| {
                let _lease = manager
                    .try_acquire(key, number, HOUR)
                    .expect("the key is free");
                std::panic::resume_unwind(Box::new(key));
            }));
            let payload = unwound.expect_err("it panics").downcast::<u64>();
            assert_eq!(payload.ok(), Some(Box::new(key)));
            std::mem::forget(
                manager
                    .try_acquire(key, number, HOUR)
                    .expect("it was given back"),
            );
        }
    });
    assert_eq!(manager.len(), KEYS as usize);
    clock.advance(HOUR.saturating_sub(Duration::from_nanos(1)));
    manager.advance();
    let held = |key| manager.try_acquire(key, 9_u64, HOUR).is_err();
    assert!((0..KEYS).all(held), "I3");
    clock.advance(Duration::from_nanos(1));
    on_all_threads(|number| {
        for key in (number..KEYS).step_by(THREADS as usize) {
            assert!(manager.try_acquire(key, number, HOUR).is_ok(), "I4");
        }
    });
    manager.advance();
    assert_eq!((manager.len(), manager.stats().expired), (0, KEYS));
}

/// A lease can be made on one thread, used on a second and released on a third.
#[test]
fn an_owned_lease_travels_between_threads() {
    let (manager, clock) = manual();
    let leases: Vec<Lease<'static>> = thread::scope(|scope| {
        let made = scope.spawn(|| {
            (0..2_000_u64)
                .map(|key| {
                    manager
                        .try_acquire(key, 1, HOUR)
                        .expect("the key is free")
                        .into_owned()
                })
                .collect()
        });
        made.join().expect("all were free")
    });
    clock.advance(HOUR / 2);
    let renewed = thread::spawn(move || {
        assert!(leases.iter().all(|lease| lease.renew(HOUR).is_ok()));
        leases
    });
    let leases = renewed.join().expect("all were live");
    clock.advance(HOUR / 2);
    manager.advance();
    assert_eq!(manager.len(), 2_000, "I3, I5");
    let released = thread::spawn(move || leases.into_iter().map(Lease::release).all(|r| r.is_ok()));
    assert!(released.join().is_ok_and(|all| all));
    assert_eq!(manager.len(), 0);
}

/// A renewal by token looks the lease up; meanwhile its cell may go to a lease of another era, a year
/// and more later (I6).
#[test]
fn a_renewal_by_token_may_meet_a_cell_that_has_gone_on_to_another_era() {
    let (manager, clock) = manual();
    let day = 24 * HOUR;
    clock.advance(300 * day);
    let token = AtomicU64::new(1);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let renewer = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let token = FencingToken::new(token.load(Ordering::Relaxed)).expect("in range");
                let renewed = manager.renew(1, token, HOUR);
                assert!(!matches!(renewed, Err(RenewError::OutOfMemory)));
            }
        });
        for _ in 0..if cfg!(debug_assertions) {
            300_000
        } else {
            3_000_000
        } {
            let near = manager.try_acquire(1, 1, HOUR).expect("it is free");
            token.store(near.token().get(), Ordering::Relaxed);
            near.release().expect("it is live");
            let far = manager.try_acquire(2, 1, 200 * day).expect("it is free");
            far.release().expect("it is live");
        }
        done.store(true, Ordering::Relaxed);
        renewer.join().expect("no renewal panics");
    });
}

/// Threads come and go; what one has freed the next one uses, so that memory stays (I9).
#[test]
fn threads_that_end_give_their_cells_back() {
    let (manager, _clock) = manual();
    let generation = |first: u64| {
        thread::scope(|scope| {
            for number in 0..THREADS {
                let manager = &manager;
                scope.spawn(move || {
                    let keys = (first + number) * 1_000..(first + number) * 1_000 + 200;
                    let leases: Vec<_> = keys
                        .map(|key| manager.try_acquire(key, number, HOUR).expect("it is free"))
                        .collect();
                    assert!(leases.iter().all(Lease::is_live));
                });
            }
        });
    };
    for round in 0..if cfg!(debug_assertions) { 200 } else { 2_000 } {
        generation(round * THREADS);
    }
    // A generation may start before the last one has given everything back, whose threads are joined
    // before their thread-locals go. One cell that each thread kept would be several times as much.
    let most = 2 * THREADS * (200 + 64) * 128;
    let memory = manager.stats().memory_bytes as u64;
    assert!(memory <= most, "I9: {memory} bytes, not {most} at most");
    assert_eq!(manager.len(), 0);
}

/// A thread may use a manager in the destructor of its own thread-local values, when the manager's
/// are gone already.
#[test]
fn a_lease_may_end_while_its_thread_does() {
    thread_local! {
        static LAST: Mutex<Vec<Lease<'static>>> = const { Mutex::new(Vec::new()) };
    }
    let (manager, _clock) = manual();
    for round in 0..50_u64 {
        let theirs = manager.clone();
        let ended = thread::spawn(move || {
            // In both orders: the first use of the manager before and after that of the value.
            if round % 2 == 0 {
                drop(theirs.try_acquire("first", 1, HOUR));
            }
            LAST.with(|last| {
                for key in 0..20_u64 {
                    let lease = theirs
                        .try_acquire(key, 1, HOUR)
                        .expect("the last thread is over");
                    last.lock().unwrap().push(lease.into_owned());
                }
            });
        });
        ended.join().expect("no destructor panicked");
        assert_eq!(manager.len(), 0, "each lease was released by its drop");
    }
}

/// Handles can be dropped while other threads are at work with leases of their own. They are told, and
/// once told nothing else (I4).
#[test]
fn leases_in_use_are_told_when_their_manager_goes() {
    for round in 0..scaled(1_000) {
        let (manager, _clock) = manual();
        let leases: Vec<Lease<'static>> = (0..THREADS)
            .map(|key| {
                manager
                    .try_acquire(key, key, HOUR)
                    .expect("the key is free")
                    .into_owned()
            })
            .collect();
        let threads: Vec<_> = leases
            .into_iter()
            .map(|lease| {
                thread::spawn(move || {
                    while lease.renew(HOUR).is_ok() {
                        thread::yield_now();
                    }
                    assert_eq!(lease.renew(HOUR), Err(RenewError::Closed));
                    assert!(!lease.is_live());
                    assert_eq!(lease.release(), Err(ReleaseError::Closed));
                })
            })
            .collect();
        (0..round % 100).for_each(|_| std::hint::spin_loop());
        drop(manager);
        assert!(
            threads
                .into_iter()
                .map(thread::JoinHandle::join)
                .all(|ended| ended.is_ok())
        );
    }
}

/// Many managers are used by turns from one thread: each finds its own state again.
#[test]
fn managers_side_by_side_do_not_mix() {
    let managers: Vec<_> = (0..40).map(|_| manual()).collect();
    let mut tokens: Vec<Vec<FencingToken>> = vec![Vec::new(); managers.len()];
    for round in 0..50_u64 {
        for (index, (manager, clock)) in managers.iter().enumerate() {
            let lease = manager.try_acquire("same", index as u64, HOUR * 2);
            let lease = lease.expect("no other manager holds it");
            tokens[index].push(lease.detach());
            assert_eq!(manager.len(), 1);
            let holder = manager.holder("same").expect("it is held");
            assert_eq!(holder.owner.0, index as u64);
            clock.advance(HOUR * 2);
            assert_eq!(manager.stats().expired, round);
            assert_eq!((manager.advance(), manager.len()), (1, 0));
        }
    }
    assert!(
        tokens
            .iter()
            .all(|tokens| tokens.is_sorted_by(|a, b| a < b)),
        "I2"
    );
}
