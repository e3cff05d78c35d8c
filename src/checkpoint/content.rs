//! What is in a checkpoint, and what has to hold of it.
//!
//! Times are in nanoseconds from the checkpoint's `now`. Everything is sorted, so that equal states are
//! equal bytes.

use std::time::Duration;

use super::RestoreError;
use crate::builder::{LONGEST_TTL, MAX_TICK, MIN_TICK};
use crate::key::{HashSeed, Key};
use crate::token::FencingToken;
use crate::wish::{MAX_PERMITS, Mode};

/// The number of this format.
pub(crate) const FORMAT: u32 = 1;

/// The highest floor of one that can be restored: 2^55 tokens are left above it.
pub(crate) const MAX_FLOOR: u64 = FencingToken::MAX.get() - (1 << 55);

/// The highest that a floor can be raised to: as many tokens are left below that one, for the manager that is
/// restored to grant before its own checkpoints can't be.
pub(crate) const MAX_RAISED: u64 = MAX_FLOOR - (1 << 55);

#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Content {
    pub(crate) format: u32,
    pub(crate) seed: HashSeed,
    pub(crate) tick: u64,
    /// The reading of the clock.
    pub(crate) now: u64,
    pub(crate) floor: u64,
    /// Of a replica.
    pub(crate) log: Option<Log>,
    /// Sorted by key and token.
    pub(crate) leases: Vec<Saved>,
    /// Keys that nobody is granted for a while; sorted.
    pub(crate) kept: Vec<Kept>,
}

/// What a replica adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Log {
    pub(crate) last_applied: u64,
    /// What the replicas have agreed on.
    pub(crate) max_leases: u32,
}

/// A lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Saved {
    pub(crate) key: Key,
    pub(crate) owner: u64,
    pub(crate) token: u64,
    pub(crate) mode: Mode,
    /// How often it was entered and not yet left.
    pub(crate) entries: u32,
    pub(crate) remaining: u64,
    pub(crate) terms: Option<Terms>,
}

/// What else a lease is subject to; not all zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Terms {
    /// After an unclean end, nobody is granted the key for so long.
    pub(crate) lock_delay: u64,
    /// Nobody else is granted the key for so long from `now` on.
    pub(crate) min_hold: u64,
    /// It ends then at the latest.
    pub(crate) max_hold: Option<u64>,
    /// The manager renews it.
    pub(crate) renewal: Option<Renewal>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Renewal {
    pub(crate) ttl: u64,
    /// When the next one is due.
    pub(crate) due: u64,
}

/// A key that is kept free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Kept {
    pub(crate) key: Key,
    pub(crate) remaining: u64,
}

impl Saved {
    /// Whether the table can hold it.
    pub(crate) fn is_plain(&self) -> bool {
        self.mode == Mode::Exclusive && self.entries == 1 && self.terms.is_none()
    }

    /// The order in which leases stand.
    pub(crate) fn place(&self) -> (Key, u64) {
        (self.key, self.token)
    }
}

impl Content {
    /// The leases, a key at a time.
    pub(crate) fn by_key(&self) -> impl Iterator<Item = &[Saved]> {
        self.leases.chunk_by(|one, other| one.key == other.key)
    }

    /// Whether it is a state that a manager can be in; so all else may rely on it.
    pub(crate) fn check(&self) -> Result<(), RestoreError> {
        if self.format != FORMAT {
            return Err(RestoreError::Format {
                found: self.format,
                known: FORMAT,
            });
        }
        let tick = Duration::from_nanos(self.tick);
        if !(MIN_TICK..=MAX_TICK).contains(&tick) {
            return Err(RestoreError::Tick { tick });
        }
        if self.floor > MAX_FLOOR {
            return Err(RestoreError::Floor { floor: self.floor });
        }
        for (lease, next) in self
            .leases
            .iter()
            .zip(&self.leases[1.min(self.leases.len())..])
        {
            if lease.place() >= next.place() {
                return Err(RestoreError::Order { key: next.key });
            }
        }
        for (kept, next) in self.kept.iter().zip(&self.kept[1.min(self.kept.len())..]) {
            if kept.key >= next.key {
                return Err(RestoreError::Order { key: next.key });
            }
        }
        for lease in &self.leases {
            self.check_lease(lease)?;
        }
        for &Kept { key, remaining } in &self.kept {
            check_length(key, remaining)?;
        }
        self.by_key().try_for_each(check_modes)?;
        self.log.map_or(Ok(()), |log| self.check_log(log))
    }

    fn check_lease(&self, lease: &Saved) -> Result<(), RestoreError> {
        let key = lease.key;
        let bad = |reason| Err(RestoreError::Lease { key, reason });
        if !(1..=self.floor).contains(&lease.token) {
            return Err(RestoreError::Token {
                key,
                token: lease.token,
                floor: self.floor,
            });
        }
        check_length(key, lease.remaining)?;
        if lease.entries == 0 {
            return bad("was entered by nobody");
        }
        let Some(terms) = &lease.terms else {
            return Ok(());
        };
        if *terms == Terms::default() {
            return bad("has terms that say nothing");
        }
        if terms.max_hold.is_some_and(|most| most < lease.remaining) {
            return bad("lasts longer than it may");
        }
        if let Some(renewal) = &terms.renewal {
            check_length(key, renewal.ttl)?;
            if terms.max_hold.is_none() {
                return bad("is renewed without end");
            }
        }
        Ok(())
    }

    /// What holds of replicas besides.
    fn check_log(&self, log: Log) -> Result<(), RestoreError> {
        let bad = |reason| Err(RestoreError::Replica { reason });
        if log.last_applied != self.floor {
            return bad("its floor is not its log index");
        }
        if self.leases.len() + self.kept.len() > log.max_leases as usize {
            return bad("it has more leases than it may");
        }
        let renewed = |lease: &&Saved| lease.terms.is_some_and(|terms| terms.max_hold.is_some());
        if self.leases.iter().any(|lease| renewed(&lease)) {
            return bad("it renews leases by itself");
        }
        Ok(())
    }
}

fn check_length(key: Key, nanos: u64) -> Result<(), RestoreError> {
    let reason = if nanos == 0 {
        "has no time left"
    } else if Duration::from_nanos(nanos) > LONGEST_TTL {
        "has more time left than any can have"
    } else {
        return Ok(());
    };
    Err(RestoreError::Lease { key, reason })
}

/// Whether leases can be of one key at the same time.
fn check_modes(leases: &[Saved]) -> Result<(), RestoreError> {
    let mut permits = 0;
    let (mut exclusive, mut shared) = (0_usize, 0_usize);
    for lease in leases {
        match lease.mode {
            Mode::Exclusive => exclusive += 1,
            Mode::Shared => shared += 1,
            // What counts is what the last of them was told, and that is not known.
            Mode::Permit { of } if (1..=MAX_PERMITS).contains(&of) => permits = permits.max(of),
            Mode::Permit { .. } => return Err(RestoreError::Modes { key: lease.key }),
        }
    }
    let all = leases.len();
    let good = exclusive == 1 && all == 1
        || shared == all
        || exclusive + shared == 0 && all <= permits as usize;
    match leases.first() {
        Some(first) if !good => Err(RestoreError::Modes { key: first.key }),
        _ => Ok(()),
    }
}
