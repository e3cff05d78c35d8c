//! Several managers of one shard, in random order, with crashes and failures: never two live leases of one key,
//! and every token of a key above all before it, whoever granted it (I1, I2).

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use tenure::reservation::ReservationError;
use tenure::{Clock, FencingToken, LockManager, Mode, Timestamp};

use crate::ledger::{Ledger, TERM};

const MANAGERS: usize = 3;
const KEYS: u64 = 3;

#[derive(Clone, Copy, Debug)]
enum Step {
    Grant {
        who: usize,
        key: u64,
        seconds: u64,
        shared: bool,
    },
    Renew {
        who: usize,
        key: u64,
        seconds: u64,
    },
    Release {
        who: usize,
        key: u64,
    },
    Tend {
        who: usize,
    },
    Pass {
        millis: u64,
    },
    Fail {
        fails: bool,
    },
    Resign {
        who: usize,
    },
    /// The process is gone, and another one begins.
    Crash {
        who: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let who = 0..MANAGERS;
    let key = 0..KEYS;
    let seconds = 1..30_u64;
    prop_oneof![
        24 => (who.clone(), key.clone(), seconds.clone(), any::<bool>())
            .prop_map(|(who, key, seconds, shared)| Step::Grant { who, key, seconds, shared }),
        8 => (who.clone(), key.clone(), seconds)
            .prop_map(|(who, key, seconds)| Step::Renew { who, key, seconds }),
        4 => (who.clone(), key).prop_map(|(who, key)| Step::Release { who, key }),
        60 => who.clone().prop_map(|who| Step::Tend { who }),
        24 => prop_oneof![20 => 1..1_000_u64, 1 => 1_000..12_000_u64].prop_map(|millis| Step::Pass { millis }),
        4 => prop::bool::weighted(0.2).prop_map(|fails| Step::Fail { fails }),
        1 => who.clone().prop_map(|who| Step::Resign { who }),
        3 => who.prop_map(|who| Step::Crash { who }),
    ]
}

/// A lease as its holder knows it, who may be anywhere.
#[derive(Clone, Copy, Debug)]
struct Lease {
    who: usize,
    /// Which of the managers that were in that place.
    life: u64,
    token: FencingToken,
    deadline: Timestamp,
    shared: bool,
}

struct World {
    ledger: Ledger,
    managers: Vec<LockManager>,
    lives: [u64; MANAGERS],
    leases: HashMap<u64, Vec<Lease>>,
    highest: HashMap<u64, FencingToken>,
    grants: u64,
    /// Grants of a key that another manager granted last.
    changes: u64,
    last: HashMap<u64, (usize, u64)>,
}

impl World {
    fn new(term: Duration) -> Self {
        let ledger = Ledger::new();
        let managers = (0..MANAGERS)
            .map(|_| ledger.manager(Some(term), 7))
            .collect();
        Self {
            ledger,
            managers,
            lives: [0; MANAGERS],
            leases: HashMap::new(),
            highest: HashMap::new(),
            grants: 0,
            changes: 0,
            last: HashMap::new(),
        }
    }

    fn held(&self, who: usize, key: u64) -> Option<Lease> {
        let leases = self.leases.get(&key)?;
        let mine = |lease: &&Lease| lease.who == who && lease.life == self.lives[who];
        leases.iter().rfind(mine).copied()
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Grant {
                who,
                key,
                seconds,
                shared,
            } => {
                let ttl = Duration::from_secs(seconds);
                let locks = &self.managers[who];
                let granted = if shared {
                    locks.acquire(key, 1, ttl).shared().try_now()
                } else {
                    locks.try_acquire(key, 1, ttl)
                };
                let Ok((shared, deadline, token)) = granted.map(|lease| {
                    let shared = lease.mode() == Mode::Shared;
                    (shared, lease.deadline(), lease.detach())
                }) else {
                    return;
                };
                self.note(
                    key,
                    Lease {
                        who,
                        life: self.lives[who],
                        token,
                        deadline,
                        shared,
                    },
                );
            }
            Step::Renew { who, key, seconds } => {
                let Some(lease) = self.held(who, key) else {
                    return;
                };
                let ttl = Duration::from_secs(seconds);
                if let Ok(deadline) = self.managers[who].renew(key, lease.token, ttl) {
                    let leases = self.leases.get_mut(&key).unwrap();
                    let renewed = leases
                        .iter_mut()
                        .find(|it| it.token == lease.token)
                        .unwrap();
                    renewed.deadline = renewed.deadline.max(deadline);
                }
            }
            Step::Release { who, key } => {
                let Some(lease) = self.held(who, key) else {
                    return;
                };
                let _ = self.managers[who].release(key, lease.token);
                self.leases
                    .get_mut(&key)
                    .unwrap()
                    .retain(|it| it.token != lease.token);
            }
            Step::Tend { who } => {
                self.managers[who].tend_reservation(Duration::ZERO);
                self.managers[who].advance();
            }
            Step::Pass { millis } => self.ledger.clock.advance(Duration::from_millis(millis)),
            Step::Fail { fails } => {
                let reason = "it is down".to_owned();
                let error = ReservationError::Unavailable { reason };
                self.ledger.shard().fails = fails.then_some(error);
            }
            Step::Resign { who } => self.managers[who].resign(),
            Step::Crash { who } => {
                if self.ledger.shard().fails.is_none() {
                    // A crash gives nothing back: its client is not asked to.
                    let term = Some(TERM);
                    let next = self.ledger.manager(term, 7);
                    let gone = std::mem::replace(&mut self.managers[who], next);
                    std::mem::forget(gone);
                    self.lives[who] += 1;
                }
            }
        }
    }

    fn note(&mut self, key: u64, lease: Lease) {
        let now = self.ledger.clock.now();
        let shard = self.ledger.shard();
        assert!(lease.token.get() <= shard.mark, "{lease:?}: not reserved");
        let (_, until) = shard.holder.expect("granted without an authority");
        assert!(
            lease.deadline <= until,
            "{lease:?} outlives the authority, {until}"
        );
        drop(shard);
        let highest = self.highest.insert(key, lease.token);
        assert!(highest < Some(lease.token), "{lease:?} after {highest:?}");
        let leases = self.leases.entry(key).or_default();
        leases.retain(|other| other.deadline > now);
        for other in &*leases {
            assert!(
                lease.shared && other.shared,
                "{lease:?} beside {other:?}, at {now}"
            );
            assert_eq!((lease.who, lease.life), (other.who, other.life));
        }
        leases.push(lease);
        self.grants += 1;
        let owner = (lease.who, lease.life);
        let last = self.last.insert(key, owner);
        self.changes += u64::from(last.is_some_and(|last| last != owner));
    }
}

#[test]
fn a_shard_that_changes_hands_never_has_two_holders_and_its_tokens_rise() {
    let cases = if cfg!(debug_assertions) { 400 } else { 3_000 };
    let config = ProptestConfig {
        cases,
        ..ProptestConfig::default()
    };
    let (mut grants, mut changes) = (0, 0);
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let steps = prop::collection::vec(step(), 1..700);
    let counts = std::cell::RefCell::new((&mut grants, &mut changes));
    let result = runner.run(&steps, |steps| {
        let mut world = World::new(TERM);
        for step in steps {
            world.step(step);
        }
        let mut counts = counts.borrow_mut();
        *counts.0 += world.grants;
        *counts.1 += world.changes;
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
    // It did what it is for.
    assert!(
        grants > 5 * u64::from(cases) && changes > u64::from(cases) / 2,
        "{grants}, {changes}"
    );
}
