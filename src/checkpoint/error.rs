//! Why there is no manager or replica from what was given.

use std::fmt;
use std::time::Duration;

use crate::error::BuildError;
use crate::key::Key;
use crate::token::FencingToken;

/// Why a checkpoint can't be read or restored. Nothing was made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RestoreError {
    /// The bytes don't begin as those of a checkpoint do.
    NotACheckpoint,
    /// The checkpoint is of a format that this version of the crate doesn't know.
    Format {
        /// The number of that format.
        found: u32,
        /// The number of the one that is known.
        known: u32,
    },
    /// The bytes are not those that were written: some are missing, or have changed.
    Damaged,
    /// The bytes are undamaged and yet no checkpoint.
    Malformed {
        /// What was found.
        reason: String,
    },
    /// The tick is none that a manager can have.
    Tick {
        /// The tick that was found.
        tick: Duration,
    },
    /// The floor of the tokens is so high that hardly any are left above it.
    Floor {
        /// The floor that was found.
        floor: u64,
    },
    /// A lease has a token that is none, or is above the floor.
    Token {
        /// The key of that lease.
        key: Key,
        /// Its token.
        token: u64,
        /// The floor.
        floor: u64,
    },
    /// The keys, or the tokens of one key, don't rise.
    Order {
        /// The key that is out of order, or there twice.
        key: Key,
    },
    /// Leases of one key exclude each other, or are more than its permits.
    Modes {
        /// The key.
        key: Key,
    },
    /// A lease has no time left, or more than any lease can have; or it was entered by nobody.
    Lease {
        /// The key of that lease.
        key: Key,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The builder was given another seed than that of the checkpoint, under which its long keys were
    /// hashed.
    HashSeed,
    /// More leases and keys that are kept free than the manager may have.
    MaxKeys {
        /// How many there are in the checkpoint.
        leases: usize,
        /// How many there may be.
        limit: usize,
    },
    /// A lease would last longer than the manager can count: by its own time and the grace.
    TooLong {
        /// The key of that lease.
        key: Key,
        /// The grace that was given.
        grace: Duration,
    },
    /// The checkpoint was taken of a manager, and not of a replica.
    NotOfAReplica,
    /// The checkpoint is of a replica, and its log index, floor or number of leases are none of a replica's.
    Replica {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// No memory, or no tokens, for the leases.
    NoRoom {
        /// The key of the first that could not be restored.
        key: Key,
    },
    /// The manager could not be built.
    Build(BuildError),
}

impl From<BuildError> for RestoreError {
    fn from(error: BuildError) -> Self {
        Self::Build(error)
    }
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotACheckpoint => f.write_str(
                "this is no checkpoint in binary form: check which file or field it was read from",
            ),
            Self::Format { found, known } => write!(
                f,
                "a checkpoint of format {found}, and only {known} is known: restore it with the version \
                 of this crate that wrote it, or a later one"
            ),
            Self::Damaged => f.write_str(
                "the checkpoint is torn or has been changed: restore an earlier one, and raise its floor \
                 above every token granted since",
            ),
            Self::Malformed { reason } => write!(
                f,
                "the bytes are undamaged, but no checkpoint ({reason}): check what wrote them"
            ),
            Self::Tick { tick } => write!(
                f,
                "the checkpoint has a tick of {tick:?}, which no manager can have: check what wrote it"
            ),
            Self::Floor { floor } => write!(
                f,
                "the floor {floor} leaves too few tokens above it, the last is {}: check what wrote it",
                FencingToken::MAX
            ),
            Self::Token { key, token, floor } => write!(
                f,
                "a lease on {key} has token {token}, and tokens are from 1 to the floor {floor}: check \
                 what wrote it"
            ),
            Self::Order { key } => write!(
                f,
                "key {key} is out of order, or there twice: keys and their tokens must rise"
            ),
            Self::Modes { key } => write!(
                f,
                "the leases on {key} exclude each other: check what wrote the checkpoint"
            ),
            Self::Lease { key, reason } => write!(
                f,
                "a lease on {key} {reason}: check what wrote the checkpoint"
            ),
            Self::HashSeed => f.write_str(
                "the checkpoint was taken under another hash seed: leave `hash_seed` out, and the \
                 manager takes that of the checkpoint",
            ),
            Self::MaxKeys { leases, limit } => write!(
                f,
                "{leases} leases are in the checkpoint, and {limit} may be out: raise `max_keys`"
            ),
            Self::TooLong { key, grace } => write!(
                f,
                "the lease on {key} would last longer than the manager can count, with a grace of \
                 {grace:?}: give less, or lengthen the tick"
            ),
            Self::NotOfAReplica => f.write_str(
                "the checkpoint was taken of a manager and has no log index: restore it with \
                 `Builder::restore`",
            ),
            Self::Replica { reason } => write!(
                f,
                "the checkpoint is none of a replica's ({reason}): check what wrote it"
            ),
            Self::NoRoom { key } => write!(
                f,
                "no memory for the leases from {key} on: free some, and restore again"
            ),
            Self::Build(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RestoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Build(error) => Some(error),
            _ => None,
        }
    }
}
