//! Case 16: holding something that the manager gave out deadlocks later calls.

use std::sync::mpsc;
use std::time::Duration;

use tenure::{FencingToken, HashSeed, Key, Lease, LockManager, ToKey};

use super::{manual, ms};

/// Runs `body` on a thread of its own, so that a deadlock is a failure instead of a hang.
fn within_a_minute(body: impl FnOnce() + Send + 'static) {
    let (done, finished) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        body();
        let _ = done.send(());
    });
    match finished.recv_timeout(Duration::from_secs(60)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("a call did not return: deadlock"),
        // Done, or the body panicked: the join tells which.
        _ => thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

/// Every call there is, on `key`, which may be held or free, and afterwards is as it was.
fn every_call(manager: &LockManager, key: u64) {
    let held = manager.holder(key);
    let lease = manager.try_acquire(key, 9, ms(50));
    assert_eq!(lease.is_err(), held.is_some());
    let token = match &lease {
        Ok(lease) => lease.token(),
        Err(_) => held.expect("it was refused for that").token,
    };
    assert!(
        manager
            .try_acquire_at_least(key, 9, ms(50), FencingToken::MIN)
            .is_err()
    );
    assert!(manager.renew(key, token, ms(50)).is_ok());
    assert!(manager.validate(key, token).is_ok());
    assert!(manager.iter().next().is_some());
    assert!(!manager.is_empty());
    assert!(manager.stats().leases >= 1);
    assert!(manager.next_wakeup().is_some());
    assert_eq!(manager.advance(), 0);
    assert!(manager.tick() > Duration::ZERO);
    assert!(manager.now().as_nanos() < u64::MAX);
    assert_eq!(manager.key(key), manager.clone().key(key));
    assert!(format!("{manager:?}").contains("LockManager"));
    if let Ok(lease) = lease {
        assert!(lease.renew(ms(60)).is_ok());
        let owned = lease.into_owned();
        assert!(owned.is_live());
        assert_eq!(owned.release(), Ok(()));
        let detached = manager.try_acquire(key, 9, ms(50)).map(Lease::detach);
        assert!(detached.is_ok_and(|token| manager.release(key, token).is_ok()));
        let _ = manager.try_acquire(key, 9, ms(50)).map(Lease::detach);
        assert!(manager.revoke(key).is_ok());
    }
}

/// With a guard in hand, every call works on its key and on others, so many of them that the table
/// grows and shrinks under it.
#[test]
fn case_16_every_call_works_while_leases_are_held() {
    within_a_minute(|| {
        let (manager, _clock) = manual();
        let lease = manager
            .try_acquire(0_u64, 1, ms(1_000))
            .expect("the key is free");
        for key in 0..64 {
            every_call(&manager, key);
        }
        let many: Vec<_> = (1..4_000_u64)
            .map(|key| manager.try_acquire(key, 1, ms(1_000)))
            .collect();
        assert!(many.iter().all(Result::is_ok));
        for key in (0..8_000).step_by(500) {
            every_call(&manager, key);
        }
        drop(many);
        every_call(&manager, 0);
        assert_eq!(lease.release(), Ok(()));
        assert_eq!(manager.len(), 0);
    });
}

/// In the middle of a walk every call works, and the walk goes on: what was live throughout is seen
/// exactly once, although the table doubles several times on the way.
#[test]
fn case_16_every_call_works_in_the_middle_of_a_walk() {
    within_a_minute(|| {
        let (manager, _clock) = manual();
        for key in 0..300_u64 {
            let _ = manager.try_acquire(key, 1, ms(1_000)).map(Lease::detach);
        }
        let mut seen = Vec::new();
        for holder in manager.iter() {
            // The walk comes upon some of the new ones as well.
            if holder.owner.0 != 1 {
                continue;
            }
            every_call(&manager, 1_000_000);
            if seen.len() % 50 == 0 {
                every_call(&manager, 7);
                for key in 0..2_000 {
                    let new = 10_000 + seen.len() as u64 * 2_000 + key;
                    let _ = manager.try_acquire(new, 2, ms(1_000)).map(Lease::detach);
                }
            }
            seen.push(holder.key);
        }
        seen.sort_unstable();
        let mut expected: Vec<_> = (0..300_u64).map(|key| manager.key(key)).collect();
        expected.sort_unstable();
        assert_eq!(seen, expected);
    });
}

/// A walk can end what it finds.
#[test]
fn case_16_a_walk_can_release_what_it_finds() {
    within_a_minute(|| {
        let (manager, _clock) = manual();
        for key in 0..5_000_u64 {
            let _ = manager.try_acquire(key, 1, ms(1_000)).map(Lease::detach);
        }
        let mut ended = 0;
        for (index, holder) in manager.iter().enumerate() {
            let done = if index % 2 == 0 {
                manager.release(holder.key, holder.token).is_ok()
            } else {
                manager.revoke(holder.key).is_ok()
            };
            assert!(done, "{holder:?} was live");
            ended += 1;
        }
        assert_eq!((ended, manager.len()), (5_000, 0));
    });
}

/// A key whose conversion, which is the user's code, calls the manager (I10).
struct Meddling<'m>(&'m LockManager);

impl ToKey for Meddling<'_> {
    fn to_key(&self, _seed: &HashSeed) -> Key {
        every_call(self.0, 5);
        every_call(self.0, 6);
        self.0.key(5_u64)
    }
}

/// No call runs the user's conversion of a key under a lock, or half-way through a step (I10).
#[test]
fn case_16_a_key_may_call_the_manager_while_it_is_converted() {
    within_a_minute(|| {
        let (manager, _clock) = manual();
        let lease = manager
            .try_acquire(Meddling(&manager), 1, ms(100))
            .expect("the key is free");
        let token = lease.detach();
        assert!(manager.holder(Meddling(&manager)).is_some());
        assert!(manager.validate(Meddling(&manager), token).is_ok());
        assert!(manager.renew(Meddling(&manager), token, ms(100)).is_ok());
        assert!(manager.try_acquire(Meddling(&manager), 2, ms(100)).is_err());
        assert_eq!(manager.release(Meddling(&manager), token), Ok(()));
        assert!(manager.revoke(Meddling(&manager)).is_err());
        assert_eq!(manager.len(), 0);
    });
}
