//! Checkpoints of a manager at work: real threads, real time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tenure::{Checkpoint, Lease, LockManager};

use crate::{ms, restored, stored};

const LONG: Duration = Duration::from_secs(600);

/// Keys whose holder says, by an odd number, that it holds them.
const FLAPPING: u64 = 2;
const CHURNED: u64 = 64;

/// What the threads tell the one who looks.
struct Told {
    over: AtomicBool,
    /// Checkpoints that were begun, and that were done.
    begun: AtomicU64,
    done: AtomicU64,
    /// Of each flapping key: odd while it is held.
    epochs: [AtomicU64; FLAPPING as usize],
    /// Of each churned key: the highest token that was granted.
    highest: [AtomicU64; CHURNED as usize],
}

impl Told {
    fn tell_grant(&self, key: u64, lease: &Lease<'_>) {
        self.highest[key as usize].fetch_max(lease.token().get(), Ordering::SeqCst);
    }

    /// Waits for another checkpoint; false if there is none any more.
    fn wait(&self, count: &AtomicU64, seen: u64) -> bool {
        while count.load(Ordering::SeqCst) <= seen {
            if self.is_over() {
                return false;
            }
            std::thread::sleep(Duration::from_micros(20));
        }
        true
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// Holds a key throughout an epoch, from before a checkpoint until after it, while the lease moves about: a
/// plain one at first, then shared, and then exclusive and shared in turns.
fn flap(locks: &LockManager, told: &Told, number: u64) {
    let (key, mut round) = (1000 + number, 0_u64);
    let epoch = &told.epochs[number as usize];
    while !told.is_over() {
        let seen = told.begun.load(Ordering::SeqCst);
        let mut lease = locks.try_acquire(key, number, LONG).expect("its own key");
        epoch.fetch_add(1, Ordering::SeqCst);
        if told.wait(&told.begun, seen) {
            // At some point on the way.
            for _ in 0..(round * 37) % 2000 {
                std::hint::spin_loop();
            }
            lease.downgrade().expect("it is live");
        }
        for _ in 0..100 {
            let upgrade = lease.upgrade(LONG);
            upgrade.wait_timeout(Duration::ZERO).expect("alone");
            lease.downgrade().expect("it is live");
        }
        told.wait(&told.done, seen);
        epoch.fetch_add(1, Ordering::SeqCst);
        lease.release().expect("it is live");
        round += 1;
    }
}

/// Takes and gives back keys of a few, in all modes.
fn churn(locks: &LockManager, told: &Told, owner: u64) {
    let mut state = owner;
    while !told.is_over() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(owner);
        let key = (state >> 33) % CHURNED;
        let asks = locks.acquire(key, owner, ms(500));
        let lease = match state >> 40 & 3 {
            0 => locks.try_acquire(key, owner, ms(500)).ok(),
            1 => asks.shared().try_now().ok(),
            2 => asks.permit(2).try_now().ok(),
            _ => asks.lock_delay(ms(1)).try_now().ok(),
        };
        if let Some(lease) = lease {
            told.tell_grant(key, &lease);
            if (state >> 42).is_multiple_of(8) {
                let _ = locks.revoke(key);
            }
        }
    }
}

/// Makes the table grow and shrink all the time.
fn resize(locks: &LockManager, told: &Told) {
    while !told.is_over() {
        let lease = |key: u64| locks.try_acquire(key, 9, LONG).expect("its own key");
        let leases: Vec<_> = (10_000..11_500).map(lease).collect();
        drop(leases);
        locks.advance();
        std::thread::sleep(ms(1));
    }
}

fn look(locks: &LockManager, told: &Told, before: &mut HashMap<u64, u64>) -> (usize, Checkpoint) {
    let odd = |epoch: &AtomicU64| epoch.load(Ordering::SeqCst);
    let epochs: Vec<_> = told.epochs.iter().map(odd).collect();
    for (key, highest) in told.highest.iter().enumerate() {
        before.insert(key as u64, highest.load(Ordering::SeqCst));
    }
    told.begun.fetch_add(1, Ordering::SeqCst);
    let checkpoint = locks.checkpoint();
    // Those who flap hold on until it is told.
    let held: Vec<_> = told.epochs.iter().map(odd).collect();
    told.done.fetch_add(1, Ordering::SeqCst);
    let floor = checkpoint.floor().map_or(0, tenure::FencingToken::get);
    let beyond = before.iter().find(|&(_, &token)| token > floor);
    assert_eq!(beyond, None, "granted before, and above the floor {floor}");
    let mut held_throughout = 0;
    for (number, (epoch, now)) in epochs.iter().zip(held).enumerate() {
        if epoch % 2 == 1 && *epoch == now {
            held_throughout += 1;
            let key = locks.key(1000 + number as u64);
            let found = checkpoint.leases().filter(|lease| lease.key == key);
            assert_eq!(found.count(), 1, "{key} was held all the time");
        }
    }
    // What is read is checked: order, modes (I1), tokens.
    (held_throughout, stored(&checkpoint))
}

#[test]
fn a_manager_at_work_is_stored_whole() {
    let locks = LockManager::new();
    let told = Told {
        over: AtomicBool::new(false),
        begun: AtomicU64::new(0),
        done: AtomicU64::new(0),
        epochs: Default::default(),
        highest: std::array::from_fn(|_| AtomicU64::new(0)),
    };
    // Held all the time, in every way.
    let plain = locks.try_acquire("plain", 1, LONG).unwrap();
    let shared = locks.acquire("shared", 1, LONG).shared().try_now().unwrap();
    let session = locks.session(1, LONG).unwrap();
    let in_session = session.try_acquire("session").unwrap();
    let throughout = [
        ("plain", plain.token()),
        ("shared", shared.token()),
        ("session", in_session.token()),
    ];
    let checkpoints = if cfg!(debug_assertions) { 100 } else { 1000 };
    let (mut held, mut taken) = (0, 0);
    std::thread::scope(|scope| {
        for number in 0..FLAPPING {
            let (locks, told) = (&locks, &told);
            scope.spawn(move || flap(locks, told, number));
        }
        for owner in 1..2 {
            let (locks, told) = (&locks, &told);
            scope.spawn(move || churn(locks, told, owner));
        }
        scope.spawn(|| resize(&locks, &told));
        let mut before = HashMap::new();
        while taken < checkpoints {
            let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                look(&locks, &told, &mut before)
            }));
            let Ok((throughout_now, checkpoint)) = looked else {
                told.over.store(true, Ordering::Relaxed);
                panic!("see above");
            };
            (held, taken) = (held + throughout_now, taken + 1);
            for (key, token) in throughout {
                let found = checkpoint
                    .leases()
                    .find(|lease| lease.key == locks.key(key));
                assert_eq!(found.map(|lease| lease.token), Some(token), "{key}");
            }
            if taken % 16 == 0 {
                let (after, _) = restored(&checkpoint);
                for (&key, &highest) in &before {
                    let next = after.acquire(key, 77, ms(1)).try_now();
                    assert!(
                        next.is_ok_and(|it| it.token().get() > highest)
                            || highest == 0
                            || after.holder(key).is_some()
                            || checkpoint.delayed().any(|it| it.0 == locks.key(key)),
                        "I2"
                    );
                }
            }
        }
        told.over.store(true, Ordering::Relaxed);
    });
    assert!(
        held >= checkpoints,
        "{held} of {FLAPPING} keys in {checkpoints} checkpoints"
    );
}

/// A lease whose deadline is so near that only its renewals keep it is held throughout all the same.
#[test]
fn a_lease_that_is_kept_by_renewals_is_in_every_checkpoint() {
    let clock = tenure::ManualClock::new();
    let builder = LockManager::builder().clock(clock.clone()).driver(false);
    let locks = builder.initial_capacity(2_000).build().unwrap();
    let over = AtomicBool::new(false);
    let lease = locks.try_acquire("a", 1, ms(2)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Time flies: a checkpoint takes many ticks.
            while !over.load(Ordering::Relaxed) {
                lease.renew(ms(2)).expect("in time");
                clock.advance(ms(1));
            }
        });
        for _ in 0..50 {
            let checkpoint = locks.checkpoint();
            if checkpoint.len() != 1 {
                over.store(true, Ordering::Relaxed);
            }
            assert_eq!(checkpoint.len(), 1);
            assert!(checkpoint.leases().all(|lease| !lease.remaining.is_zero()));
        }
        over.store(true, Ordering::Relaxed);
    });
}
