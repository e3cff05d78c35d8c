//! A manager and the one that was restored from it, side by side: whatever is done to both has the same
//! answer, but for the tokens of new leases, which rise (I2).

use std::collections::HashMap;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tenure::{AcquireError, FencingToken, LockManager, ManualClock, RenewError, Timestamp};

use crate::{manual, restored_at};

#[derive(Clone, Debug)]
enum Step {
    Acquire {
        key: u8,
        owner: u8,
        ttl: u32,
        mode: u8,
        reentrant: bool,
        lock_delay: Option<u32>,
        min_hold: Option<u32>,
        auto_renew: Option<u32>,
    },
    Renew(u8, u32),
    Release(u8),
    Revoke(u8),
    Downgrade(u8, u32),
    Pass(u32),
    /// The manager that has been restored last is thrown away for a new one, after some bursts.
    Restart,
}

/// The manager that goes on, one that is made anew, and their tokens of the same leases.
struct Pair {
    lives: (LockManager, ManualClock),
    anew: (LockManager, ManualClock),
    leases: Vec<(u8, FencingToken, FencingToken)>,
    highest: HashMap<u8, FencingToken>,
}

fn nanos(nanos: u32) -> Duration {
    Duration::from_nanos(u64::from(nanos))
}

impl Pair {
    fn new() -> Self {
        Self {
            lives: manual(),
            anew: manual(),
            leases: vec![],
            highest: HashMap::new(),
        }
    }

    fn pick(&self, at: u8) -> Option<(u8, FencingToken, FencingToken)> {
        let at = usize::from(at) % self.leases.len().clamp(1, 10);
        self.leases.iter().rev().nth(at).copied()
    }

    fn acquire(&mut self, step: &Step) {
        let Step::Acquire {
            key,
            owner,
            ttl,
            mode,
            reentrant,
            lock_delay,
            min_hold,
            auto_renew,
        } = *step
        else {
            panic!("{step:?}");
        };
        let ask = |locks: &LockManager| {
            let mut asks = locks.acquire(key, u64::from(owner), nanos(ttl));
            asks = match mode {
                0..3 => asks,
                3 | 4 => asks.shared(),
                _ => asks.permit(2),
            };
            if reentrant {
                asks = asks.reentrant();
            }
            if let Some(length) = lock_delay {
                asks = asks.lock_delay(nanos(length));
            }
            if let Some(length) = min_hold {
                asks = asks.min_hold(nanos(length));
            }
            if let Some(length) = auto_renew {
                asks = asks.auto_renew(nanos(length));
            }
            let lease = asks.try_now()?;
            Ok((lease.deadline(), lease.detach()))
        };
        match (ask(&self.lives.0), ask(&self.anew.0)) {
            (Ok((deadline, lives)), Ok((same, anew))) => {
                assert_eq!(deadline, same);
                let entered = self.leases.iter().any(|it| it.0 == key && it.1 == lives);
                if entered {
                    assert!(
                        self.leases.contains(&(key, lives, anew)),
                        "{lives} is not {anew}"
                    );
                } else {
                    let before = self.highest.insert(key, anew);
                    assert!(before.is_none_or(|before| anew > before), "I2");
                    self.leases.push((key, lives, anew));
                }
            }
            (
                Err(AcquireError::Held {
                    token: lives,
                    owner,
                    remaining,
                }),
                Err(same),
            ) => {
                let AcquireError::Held {
                    token: anew,
                    owner: other,
                    remaining: left,
                } = same
                else {
                    panic!("held, and {same:?}");
                };
                assert_eq!((owner, remaining), (other, left));
                assert!(
                    self.leases.contains(&(key, lives, anew)),
                    "{lives} is not {anew}"
                );
            }
            (Err::<(Timestamp, FencingToken), _>(lives), Err(anew)) => assert_eq!(lives, anew),
            (lives, anew) => panic!("{lives:?}, but {anew:?}"),
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Acquire { .. } => self.acquire(step),
            Step::Renew(at, ttl) => {
                if let Some((key, lives, anew)) = self.pick(at) {
                    let lives = self.lives.0.renew(key, lives, nanos(ttl));
                    let anew = self.anew.0.renew(key, anew, nanos(ttl));
                    match (lives, anew) {
                        (Ok(lives), Ok(anew)) => assert_eq!(lives, anew),
                        // The token of a lease that was over may be above those of its bucket.
                        (
                            Err(RenewError::TtlTooShort { .. }),
                            Err(RenewError::TtlTooShort { .. }),
                        ) => {}
                        (lives, anew) => assert_eq!((lives.is_ok(), anew.is_ok()), (false, false)),
                    }
                }
            }
            Step::Release(at) => {
                if let Some((key, lives, anew)) = self.pick(at) {
                    let lives = self.lives.0.release(key, lives).is_ok();
                    assert_eq!(self.anew.0.release(key, anew).is_ok(), lives);
                }
            }
            Step::Revoke(key) => {
                let lives = self.lives.0.revoke(key).is_ok();
                assert_eq!(self.anew.0.revoke(key).is_ok(), lives);
            }
            Step::Downgrade(key, ttl) => {
                // Of a new lease, which becomes one of the record's.
                let share = |locks: &LockManager| {
                    let mut lease = locks.try_acquire(key, 8, nanos(ttl)).ok()?;
                    lease.downgrade().expect("it is live");
                    Some(lease.detach())
                };
                match (share(&self.lives.0), share(&self.anew.0)) {
                    (Some(lives), Some(anew)) => {
                        self.highest.insert(key, anew);
                        self.leases.push((key, lives, anew));
                    }
                    (None, None) => {}
                    (lives, anew) => panic!("{lives:?}, but {anew:?}"),
                }
            }
            Step::Pass(time) => {
                for (locks, clock) in [&self.lives, &self.anew] {
                    clock.advance(nanos(time));
                    locks.advance();
                }
            }
            Step::Restart => self.restart(),
        }
        self.compare();
    }

    fn restart(&mut self) {
        // Tokens and table of the one run ahead of the other's.
        let ttl = Duration::from_secs(1);
        for key in 1000_u32..1400 {
            self.anew
                .0
                .try_acquire(key, 1, ttl)
                .unwrap()
                .release()
                .unwrap();
        }
        let mut before = self.anew.0.checkpoint();
        let floor = before.floor().expect("some were granted");
        assert!(self.highest.values().all(|&token| token <= floor), "I2");
        self.anew = restored_at(&before, self.lives.0.now());
        let after = self.anew.0.checkpoint();
        before
            .raise_floor(after.floor().expect("not lower"))
            .unwrap();
        assert!(
            before.floor() == after.floor() && after.floor() >= Some(floor),
            "I2"
        );
        assert_eq!(after, before, "at the same time it is the same");
    }

    fn compare(&self) {
        for key in 0..4_u8 {
            let lives = self.lives.0.holders(key);
            let anew = self.anew.0.holders(key);
            assert_eq!(lives.len(), anew.len(), "{lives:?} {anew:?}");
            for (lives, anew) in lives.iter().zip(&anew) {
                assert!(self.leases.contains(&(key, lives.token, anew.token)));
                assert_eq!((lives.owner, lives.mode), (anew.owner, anew.mode));
                assert_eq!(
                    (lives.deadline, lives.remaining),
                    (anew.deadline, anew.remaining)
                );
            }
        }
        assert_eq!(self.lives.0.len(), self.anew.0.len());
    }
}

fn length() -> impl Strategy<Value = u32> {
    prop_oneof![
        1_u32..20_000_000,
        (1_u32..20).prop_map(|ticks| ticks * 1_000_000)
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let often = || prop::option::weighted(0.25, length());
    let acquire = (
        0_u8..4,
        0_u8..3,
        length(),
        0_u8..6,
        any::<bool>(),
        often(),
        often(),
        often(),
    );
    prop_oneof![
        10 => acquire.prop_map(
            |(key, owner, ttl, mode, reentrant, lock_delay, min_hold, auto_renew)| Step::Acquire {
                key, owner, ttl, mode, reentrant, lock_delay, min_hold, auto_renew,
            }
        ),
        3 => (any::<u8>(), length()).prop_map(|(at, ttl)| Step::Renew(at, ttl)),
        3 => any::<u8>().prop_map(Step::Release),
        1 => (0_u8..4).prop_map(Step::Revoke),
        1 => (0_u8..4, length()).prop_map(|(key, ttl)| Step::Downgrade(key, ttl)),
        5 => (0_u32..6_000_000).prop_map(Step::Pass),
        3 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(if cfg!(debug_assertions) { 60 } else { 2000 })
    })]

    #[test]
    fn a_restored_manager_answers_as_the_one_that_lives_on(steps in vec(step(), 1..80)) {
        let mut pair = Pair::new();
        for step in &steps {
            pair.step(step);
        }
    }
}
