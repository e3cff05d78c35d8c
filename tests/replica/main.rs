//! Replicas: the same log gives the same answers, tokens and checkpoints, whatever a replica has been
//! through.

#![cfg(feature = "serde")]

mod edges;
mod oracle;

use std::collections::HashMap;
use std::time::Duration;

use oracle::{MAX_TTL, Oracle, TICK};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::Config;
use tenure::replica::{Command, Outcome, Replica, ReplicaOptions};
use tenure::{Checkpoint, FencingToken, HashSeed, Key, Mode, OwnerId, Timestamp};

const SEED: HashSeed = HashSeed::new(0x5eed);

/// What happens to all replicas, or to one.
#[derive(Clone, Debug)]
enum Step {
    /// A command, so many nanoseconds after the last, or before it.
    Command(Asked, i32),
    /// So many leases on keys of their own, and then their ends: tables grow and shrink, and the tokens
    /// that they would count by themselves run ahead of the log.
    Burst(u16),
    /// Replica 1 is lost and made anew from the bytes of its last checkpoint.
    Crash,
    /// Replica 2 is thrown away for a snapshot of another.
    Install(u8),
    /// Replica 3 is looked at, which changes nothing.
    Look(u8),
    /// The entries of the log that are no commands.
    Skip(u8),
}

/// A command whose token, if it needs one, is chosen among those granted so far.
#[derive(Clone, Debug)]
enum Asked {
    Acquire {
        key: u8,
        owner: u8,
        ttl: Duration,
        mode: Mode,
        reentrant: bool,
        lock_delay: Duration,
        min_hold: Duration,
    },
    Renew(u8, Duration),
    Release(u8),
    Revoke(u8),
    Upgrade(u8, Duration),
    Downgrade(u8),
    Advance,
}

/// Replicas with different pasts.
struct Cluster {
    oracle: Oracle,
    /// 0 lives through all of it. 1 crashes. 2 gets snapshots. 3 works on a new thread each time.
    replicas: Vec<Replica>,
    index: u64,
    /// Keys and tokens that were granted.
    granted: Vec<(Key, FencingToken)>,
    highest: HashMap<Key, FencingToken>,
    time: u64,
}

impl Cluster {
    fn new(max_leases: usize) -> Self {
        let options = ReplicaOptions::new().max_leases(max_leases);
        let replica = |_| Replica::with_options(SEED, options).unwrap();
        Self {
            oracle: Oracle::new(max_leases),
            replicas: (0..4).map(replica).collect(),
            index: 0,
            granted: vec![],
            highest: HashMap::new(),
            time: 0,
        }
    }

    fn apply(&mut self, command: &Command) -> Outcome {
        self.index += 1;
        let (now, index) = (Timestamp::from_nanos(self.time), self.index);
        let expected = self.oracle.apply(command, self.time, index);
        for (number, replica) in self.replicas.iter_mut().enumerate() {
            let outcome = if number == 3 {
                std::thread::scope(|scope| {
                    let applied = scope.spawn(|| replica.apply(command, now, index));
                    applied.join().expect("no panic")
                })
            } else {
                replica.apply(command, now, index)
            };
            assert_eq!(
                outcome.as_ref(),
                Ok(&expected),
                "replica {number} at {index}: {command:?}"
            );
        }
        if let Outcome::Granted { token, .. } = expected {
            assert_eq!(token.get(), index, "the token is the log index");
            let (Command::Acquire { key, .. } | Command::Upgrade { key, .. }) = *command else {
                panic!("{command:?} grants nothing");
            };
            // I2.
            let before = self.highest.insert(key, token);
            assert!(before.is_none_or(|before| token > before));
            self.granted.push((key, token));
        }
        expected
    }

    fn compare(&self) {
        let bytes = self.replicas[0].checkpoint().to_bytes();
        for (number, replica) in self.replicas.iter().enumerate() {
            assert_eq!(replica.last_applied(), self.index);
            assert_eq!(replica.now().as_nanos(), self.oracle.now());
            assert_eq!(replica.len(), self.oracle.len());
            assert!(
                replica.checkpoint().to_bytes() == bytes,
                "replica {number} at {}: {:#?} and not {:#?}",
                self.index,
                replica.checkpoint().leases().collect::<Vec<_>>(),
                self.replicas[0].checkpoint().leases().collect::<Vec<_>>()
            );
        }
        self.oracle.assert_exclusion();
    }

    fn pick(&self, at: u8) -> (Key, FencingToken) {
        // The latest come first; and one that nobody was granted.
        let at = usize::from(at) % (self.granted.len() + 1).min(12);
        let picked = self.granted.iter().rev().nth(at).copied();
        picked.unwrap_or((key(u64::from(at as u8 % 5)), FencingToken::MIN))
    }

    fn resolve(&self, asked: &Asked) -> Command {
        match *asked {
            Asked::Acquire {
                key: number,
                owner,
                ttl,
                mode,
                reentrant,
                lock_delay,
                min_hold,
            } => Command::Acquire {
                key: key(u64::from(number)),
                owner: OwnerId(u64::from(owner)),
                ttl,
                mode,
                reentrant,
                lock_delay,
                min_hold,
            },
            Asked::Renew(at, ttl) => {
                let (key, token) = self.pick(at);
                Command::renew(key, token, ttl)
            }
            Asked::Release(at) => {
                let (key, token) = self.pick(at);
                Command::release(key, token)
            }
            Asked::Revoke(number) => Command::Revoke {
                key: key(u64::from(number)),
            },
            Asked::Upgrade(at, ttl) => {
                let (key, token) = self.pick(at);
                Command::Upgrade { key, token, ttl }
            }
            Asked::Downgrade(at) => {
                let (key, token) = self.pick(at);
                Command::Downgrade { key, token }
            }
            Asked::Advance => Command::Advance,
        }
    }

    fn burst(&mut self, leases: u16) {
        let kept = self.granted.len();
        let ttl = Duration::from_nanos(7 * TICK);
        for number in 0..leases {
            let key = Key::from_raw(1 << 40 | u128::from(number));
            self.apply(&Command::acquire(key, OwnerId(9), ttl));
        }
        self.compare();
        // Some are released, the others expire.
        for (key, token) in self.granted.split_off(kept).into_iter().step_by(2) {
            self.apply(&Command::release(key, token));
        }
        self.time += 7 * TICK;
        self.apply(&Command::Advance);
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Command(ref asked, after) => {
                self.time = self.time.saturating_add_signed(i64::from(after));
                let command = self.resolve(asked);
                self.apply(&command);
            }
            Step::Burst(leases) => self.burst(leases),
            Step::Crash => {
                let bytes = self.replicas[1].checkpoint().to_bytes();
                let checkpoint = Checkpoint::from_bytes(&bytes).unwrap();
                self.replicas[1] = Replica::from_checkpoint(&checkpoint).unwrap();
            }
            Step::Install(from) => {
                let from = [0, 1, 3][usize::from(from) % 3];
                let json = serde_json::to_string(&self.replicas[from].checkpoint()).unwrap();
                let checkpoint = serde_json::from_str(&json).unwrap();
                self.replicas[2] = Replica::from_checkpoint(&checkpoint).unwrap();
            }
            Step::Look(number) => {
                let key = key(u64::from(number));
                let held = self.replicas[3].holders(key);
                let held: Vec<_> = held.iter().map(|it| (it.owner, it.token.get())).collect();
                assert_eq!(held, self.oracle.held(key));
                assert_eq!(self.replicas[3].holder(key).is_some(), !held.is_empty());
            }
            Step::Skip(entries) => self.index += u64::from(entries),
        }
        if self.replicas[0].last_applied() == self.index {
            self.compare();
        }
    }
}

fn key(number: u64) -> Key {
    Key::from_raw(u128::from(number))
}

fn length() -> impl Strategy<Value = Duration> {
    prop_oneof![
        8 => (1_u64..20 * TICK).prop_map(Duration::from_nanos),
        4 => (1_u64..12).prop_map(|ticks| Duration::from_nanos(ticks * TICK)),
        1 => Just(Duration::from_nanos(1)),
        1 => Just(MAX_TTL),
        1 => Just(Duration::from_secs(60)),
    ]
}

fn ttl() -> impl Strategy<Value = Duration> {
    prop_oneof![
        20 => length(),
        1 => Just(Duration::ZERO),
        1 => Just(MAX_TTL + Duration::from_nanos(1)),
        1 => Just(Duration::MAX),
    ]
}

fn term() -> impl Strategy<Value = Duration> {
    prop_oneof![6 => Just(Duration::ZERO), 3 => length(), 1 => Just(Duration::MAX)]
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        4 => Just(Mode::Exclusive),
        3 => Just(Mode::Shared),
        2 => (0_u32..4).prop_map(|of| Mode::Permit { of }),
        1 => Just(Mode::Permit { of: u32::MAX }),
    ]
}

fn asked() -> impl Strategy<Value = Asked> {
    let acquire = (
        0_u8..5,
        0_u8..3,
        ttl(),
        mode(),
        any::<bool>(),
        term(),
        term(),
    )
        .prop_map(
            |(key, owner, ttl, mode, reentrant, lock_delay, min_hold)| Asked::Acquire {
                key,
                owner,
                ttl,
                mode,
                reentrant,
                lock_delay,
                min_hold,
            },
        );
    let plain = (0_u8..5, 0_u8..3, ttl()).prop_map(|(key, owner, ttl)| Asked::Acquire {
        key,
        owner,
        ttl,
        mode: Mode::Exclusive,
        reentrant: false,
        lock_delay: Duration::ZERO,
        min_hold: Duration::ZERO,
    });
    prop_oneof![
        8 => acquire,
        4 => plain,
        3 => (any::<u8>(), ttl()).prop_map(|(at, ttl)| Asked::Renew(at, ttl)),
        4 => any::<u8>().prop_map(Asked::Release),
        1 => (0_u8..5).prop_map(Asked::Revoke),
        2 => (any::<u8>(), ttl()).prop_map(|(at, ttl)| Asked::Upgrade(at, ttl)),
        2 => any::<u8>().prop_map(Asked::Downgrade),
        1 => Just(Asked::Advance),
    ]
}

fn step(burst: u16) -> impl Strategy<Value = Step> {
    let after = prop_oneof![
        3 => Just(0),
        6 => 0_i32..5 * TICK as i32,
        2 => (0_i32..6).prop_map(|ticks| ticks * TICK as i32),
        2 => -8 * TICK as i32..0,
    ];
    prop_oneof![
        60 => (asked(), after).prop_map(|(asked, after)| Step::Command(asked, after)),
        1 => (1..burst).prop_map(Step::Burst),
        4 => Just(Step::Crash),
        4 => any::<u8>().prop_map(Step::Install),
        4 => (0_u8..5).prop_map(Step::Look),
        1 => any::<u8>().prop_map(Step::Skip),
    ]
}

fn steps() -> impl Strategy<Value = (usize, Vec<Step>)> {
    // A table of 1024 buckets grows at 342 leases.
    prop_oneof![
        (Just(1 << 20), vec(step(900), 1..80)),
        (2_usize..8, vec(step(12), 1..80)),
    ]
}

proptest! {
    #![proptest_config(Config {
        failure_persistence: None,
        ..Config::with_cases(if cfg!(debug_assertions) { 30 } else { 1500 })
    })]

    #[test]
    fn one_log_gives_one_history_whatever_a_replica_has_been_through(
        (max_leases, steps) in steps(),
    ) {
        let mut cluster = Cluster::new(max_leases);
        for step in &steps {
            cluster.step(step);
        }
    }
}
