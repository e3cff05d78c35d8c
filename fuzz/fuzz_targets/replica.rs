//! Any log: what is read as a command or an outcome is written as it was; and replicas with different pasts
//! that apply the same commands at the same times give the same outcomes and checkpoints, which are those of
//! the oracle of the tests as long as the times are any that it knows of.
//!
//! `cargo +nightly fuzz run replica -- -max_total_time=60`

#![no_main]

use std::fmt::Debug;
use std::time::Duration;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tenure::replica::{Command, Outcome, Replica, ReplicaError, ReplicaOptions};
use tenure::{Checkpoint, FencingToken, HashSeed, Key, Mode, OwnerId, Timestamp};

use self::oracle::Oracle;

#[path = "../../tests/replica/oracle.rs"]
mod oracle;

const SEED: HashSeed = HashSeed::new(0x5eed);

#[derive(Arbitrary, Debug)]
enum Input {
    /// Bytes that are read as commands, and times and indices between them.
    Read(u8, Vec<u8>),
    Made(u8, Vec<Step>),
    /// Bytes that are read as outcomes.
    Outcomes(Vec<u8>),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Step {
    /// So long after the last, or before it.
    Command(Asked, i32),
    /// Far from the last.
    Leap(Asked, u64),
    /// Entries of the log that are no commands.
    Skip(u8),
    /// The second one is made anew from the bytes of a checkpoint.
    Restore,
    /// The second one is looked at, which changes nothing.
    Look(u8),
    /// One that was applied before.
    Again(u8),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Asked {
    Acquire {
        key: u8,
        owner: u8,
        ttl: Length,
        mode: Way,
        reentrant: bool,
        lock_delay: Option<Length>,
        min_hold: Option<Length>,
    },
    Renew(u8, Length),
    Release(u8),
    Revoke(u8),
    Upgrade(u8, Length),
    Downgrade(u8),
    Advance,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Length {
    Ticks(u8),
    Nanos(u32),
    Any(u64, u32),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Way {
    Exclusive,
    Shared,
    Permit(u8),
    Permits(u32),
}

impl Length {
    fn get(self) -> Duration {
        match self {
            Self::Ticks(ticks) => Duration::from_millis(u64::from(ticks) % 20),
            Self::Nanos(nanos) => Duration::from_nanos(u64::from(nanos) >> 6),
            Self::Any(seconds, nanos) => Duration::new(seconds, nanos % 1_000_000_000),
        }
    }
}

/// Replicas with different pasts.
struct Pair {
    /// Until the times are out of its range.
    oracle: Option<Oracle>,
    lives: Replica,
    anew: Replica,
    index: u64,
    time: u64,
    granted: Vec<(Key, FencingToken)>,
}

/// Beyond, leases may end after the last time that a replica counts.
const KNOWN: u64 = 1 << 60;

impl Pair {
    fn new(most: u8) -> Self {
        let most = usize::from(most) % 12 + 1;
        let options = ReplicaOptions::new().max_leases(most);
        let replica = || Replica::with_options(SEED, options).expect("in range");
        Self {
            oracle: Some(Oracle::new(most)),
            lives: replica(),
            anew: replica(),
            index: 0,
            time: 0,
            granted: vec![],
        }
    }

    fn apply(&mut self, command: &Command) {
        written_as_read(command);
        self.index += 1;
        let now = Timestamp::from_nanos(self.time);
        let told = self.lives.apply(command, now, self.index);
        assert_eq!(told, self.anew.apply(command, now, self.index), "{command:?}");
        let told = told.expect("there is memory, and the index is the next");
        written_as_read(&told);
        if self.time > KNOWN {
            self.oracle = None;
        }
        if let Some(oracle) = &mut self.oracle {
            assert_eq!(told, oracle.apply(command, self.time, self.index), "{command:?}");
            oracle.assert_exclusion();
            assert_eq!(oracle.len(), self.lives.len());
            assert_eq!(oracle.now(), self.lives.now().as_nanos());
            for number in 0..4 {
                let key = Key::from_raw(number);
                let real = self.lives.holders(key).into_iter();
                let real: Vec<_> = real.map(|it| (it.owner, it.token.get())).collect();
                assert_eq!(real, oracle.held(key));
            }
        }
        if let Outcome::Granted { token, .. } = told {
            assert_eq!(token.get(), self.index, "the token is the log index");
            if let Command::Acquire { key, .. } | Command::Upgrade { key, .. } = *command {
                self.granted.push((key, token));
            }
        }
        assert_eq!(self.lives.now(), self.anew.now());
        assert_eq!(self.lives.last_applied(), self.anew.last_applied());
        assert_eq!(self.lives.checkpoint(), self.anew.checkpoint());
    }

    fn pick(&self, at: u8) -> (Key, FencingToken) {
        // The latest come first; and one that nobody was granted.
        let nth = usize::from(at) % (self.granted.len() + 1).min(12);
        let picked = self.granted.iter().rev().nth(nth).copied();
        picked.unwrap_or((Key::from_raw(u128::from(at % 4)), FencingToken::MIN))
    }

    fn command(&self, asked: Asked) -> Command {
        let few = |number: u8| Key::from_raw(u128::from(number % 4));
        match asked {
            Asked::Acquire {
                key,
                owner,
                ttl,
                mode,
                reentrant,
                lock_delay,
                min_hold,
            } => Command::Acquire {
                key: few(key),
                owner: OwnerId(u64::from(owner % 3)),
                ttl: ttl.get(),
                mode: match mode {
                    Way::Exclusive => Mode::Exclusive,
                    Way::Shared => Mode::Shared,
                    Way::Permit(of) => Mode::Permit {
                        of: u32::from(of % 4),
                    },
                    Way::Permits(of) => Mode::Permit { of },
                },
                reentrant,
                lock_delay: lock_delay.map_or(Duration::ZERO, Length::get),
                min_hold: min_hold.map_or(Duration::ZERO, Length::get),
            },
            Asked::Renew(at, ttl) => {
                let (key, token) = self.pick(at);
                Command::renew(key, token, ttl.get())
            }
            Asked::Release(at) => {
                let (key, token) = self.pick(at);
                Command::release(key, token)
            }
            Asked::Revoke(number) => Command::Revoke { key: few(number) },
            Asked::Upgrade(at, ttl) => {
                let (key, token) = self.pick(at);
                let ttl = ttl.get();
                Command::Upgrade { key, token, ttl }
            }
            Asked::Downgrade(at) => {
                let (key, token) = self.pick(at);
                Command::Downgrade { key, token }
            }
            Asked::Advance => Command::Advance,
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Command(asked, after) => {
                // Up to 34 ms, either way; seldom back.
                let after = i64::from(after >> 6).max(-1_000_000);
                self.time = self.time.saturating_add_signed(after);
                self.apply(&self.command(asked));
            }
            Step::Leap(asked, to) => {
                // By any power of two.
                self.time = self.time.saturating_add(to >> (to % 64));
                self.apply(&self.command(asked));
            }
            Step::Skip(entries) => self.index += u64::from(entries),
            Step::Restore => {
                let bytes = self.lives.checkpoint().to_bytes();
                let read = Checkpoint::from_bytes(&bytes).expect("it was written so");
                self.anew = Replica::from_checkpoint(&read).expect("it is of a replica");
                assert_eq!(self.anew.checkpoint().to_bytes(), bytes);
            }
            Step::Look(number) => {
                let key = Key::from_raw(u128::from(number % 4));
                let _ = (self.anew.holder(key), self.anew.len());
            }
            Step::Again(back) => {
                let index = self.lives.last_applied().saturating_sub(u64::from(back));
                let before = self.lives.checkpoint();
                let told = self.lives.apply(&Command::Advance, Timestamp::MAX, index);
                let refused = ReplicaError::Applied {
                    log_index: index,
                    last_applied: before.last_applied().unwrap_or(0),
                };
                let zero = ReplicaError::LogIndex { log_index: 0 };
                assert_eq!(told, Err(if index == 0 { zero } else { refused }));
                assert_eq!(self.lives.checkpoint(), before, "nothing was done");
            }
        }
    }
}

/// A value that there is, in both forms.
fn written_as_read<T: Serialize + DeserializeOwned + Debug + PartialEq>(value: &T) {
    let bytes = postcard::to_allocvec(value).expect("a vector has room");
    assert_eq!(postcard::from_bytes::<T>(&bytes).as_ref(), Ok(value));
    let text = serde_json::to_string(value).expect("it can be written");
    assert_eq!(&serde_json::from_str::<T>(&text).expect(&text), value);
}

fuzz_target!(|input: Input| match input {
    Input::Made(most, steps) => {
        let mut pair = Pair::new(most);
        for step in steps {
            pair.step(step);
        }
    }
    Input::Read(most, bytes) => {
        if let Ok(command) = serde_json::from_slice::<Command>(&bytes) {
            written_as_read(&command);
        }
        let mut pair = Pair::new(most);
        let mut rest = &bytes[..];
        // An entry takes a byte at the least.
        while let Ok((entry, more)) = postcard::take_from_bytes::<(Command, u32)>(rest) {
            let (command, after) = entry;
            pair.time = pair.time.saturating_add(u64::from(after));
            pair.apply(&command);
            if pair.index % 8 == 0 {
                pair.step(Step::Restore);
            }
            rest = more;
        }
    }
    Input::Outcomes(bytes) => {
        if let Ok(outcome) = serde_json::from_slice::<Outcome>(&bytes) {
            written_as_read(&outcome);
        }
        let mut rest = &bytes[..];
        while let Ok((outcome, more)) = postcard::take_from_bytes::<Outcome>(rest) {
            written_as_read(&outcome);
            if let Outcome::Refused(refusal) = &outcome {
                assert!(!refusal.to_string().is_empty());
            }
            rest = more;
        }
    }
});
