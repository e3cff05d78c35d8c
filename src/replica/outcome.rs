//! What becomes of a command.

use std::fmt;
use std::time::Duration;

use crate::owner::OwnerId;
use crate::time::Timestamp;
use crate::token::FencingToken;
use crate::wish::{MAX_PERMITS, Mode};

/// What a command has come to: the same on every replica.
///
/// With the feature `serde` it can be sent to the client.
///
/// ```
/// use tenure::replica::{Command, Outcome, Replica};
/// use tenure::{FencingToken, HashSeed, Timestamp};
///
/// let mut replica = Replica::new(HashSeed::new(7))?;
/// let release = Command::release(replica.key("a"), FencingToken::MIN);
/// assert_eq!(replica.apply(&release, Timestamp::ZERO, 1)?, Outcome::NotHeld);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Outcome {
    /// The lease is granted; or a shared one has become exclusive.
    Granted {
        /// Its token: the log index.
        token: FencingToken,
        /// When it ends if it is not renewed.
        deadline: Timestamp,
    },
    /// The owner's own lease was entered once more, and has to be released once more.
    Entered {
        /// The token of that lease.
        token: FencingToken,
        /// When it ends if it is not renewed.
        deadline: Timestamp,
    },
    /// The lease lasts until then at the least.
    Renewed {
        /// When it ends if it is not renewed again.
        deadline: Timestamp,
    },
    /// The lease is over, or was left once of the times that it had been entered.
    Released,
    /// These leases were ended.
    Revoked {
        /// Whose they were, in the order of their tokens.
        leases: Vec<(OwnerId, FencingToken)>,
    },
    /// The lease is a shared one.
    Downgraded,
    /// The time has moved on, unless it was later already.
    Advanced,
    /// No live lease is the one that the command names: that is over, or never was.
    NotHeld,
    /// The command did nothing.
    Refused(Refusal),
}

/// Why a command did nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Refusal {
    /// A live lease is in the way; of several, this one lasts longest. If its owner is who asks for an exclusive
    /// lease, and has asked for nothing else, an earlier request was granted and its answer lost.
    Held {
        /// Who holds it.
        owner: OwnerId,
        /// Its token.
        token: FencingToken,
        /// How long it lasts from the time of the command, if nobody renews or releases it.
        remaining: Duration,
    },
    /// The key is kept free after its last lease.
    Delayed {
        /// How long that lasts from the time of the command.
        remaining: Duration,
    },
    /// As many leases are out as may be.
    CapacityExceeded {
        /// How many may be out.
        capacity: u64,
    },
    /// The lease has been entered as often as can be counted, and not left.
    TooManyEntries {
        /// How often that is.
        most: u32,
    },
    /// The TTL is zero.
    TtlTooShort {
        /// The TTL that was asked for.
        ttl: Duration,
        /// The least one.
        min: Duration,
    },
    /// The TTL is longer than any may be.
    TtlTooLong {
        /// The TTL that was asked for.
        ttl: Duration,
        /// The longest one.
        max: Duration,
    },
    /// The lock-delay or the minimum hold is longer than any may be.
    TermTooLong {
        /// The length that was asked for.
        length: Duration,
        /// The longest one.
        max: Duration,
    },
    /// The number of permits is 0, or greater than any may be.
    Permits {
        /// The number that was asked for.
        of: u32,
    },
    /// The lease is of a mode that can't be upgraded or downgraded.
    Mode {
        /// Its mode.
        mode: Mode,
    },
    /// The lease would end after the last time that a replica can count: see [`Replica::end`](super::Replica::end).
    EndOfTime {
        /// That time.
        end: Timestamp,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held {
                owner,
                token,
                remaining,
            } => write!(
                f,
                "held by owner {owner} with token {token} for another {remaining:?}: try again then, \
                 or use that token if the owner is you"
            ),
            Self::Delayed { remaining } => write!(
                f,
                "nobody is granted the key for another {remaining:?}: try again then"
            ),
            Self::CapacityExceeded { capacity } => write!(
                f,
                "all of the {capacity} leases that may be out are out, or their keys are still kept free: \
                 release some, wait, or make the replicas with more"
            ),
            Self::TooManyEntries { most } => write!(
                f,
                "the lease has been entered {most} times, and no more can be counted: release it as \
                 often as it was entered"
            ),
            Self::TtlTooShort { ttl, min } => {
                write!(f, "a TTL of {ttl:?} is too short: ask for at least {min:?}")
            }
            Self::TtlTooLong { ttl, max } => write!(
                f,
                "a TTL of {ttl:?} is too long: ask for at most {max:?}, and renew"
            ),
            Self::TermTooLong { length, max } => write!(
                f,
                "a lock-delay or minimum hold of {length:?} is too long: ask for at most {max:?}"
            ),
            Self::Permits { of } => write!(
                f,
                "a semaphore of {of} permits is out of range: choose from 1 to {MAX_PERMITS}"
            ),
            Self::Mode { mode } => write!(
                f,
                "a lease of mode {mode:?} can't be changed like that: upgrade shared ones, downgrade \
                 exclusive ones"
            ),
            Self::EndOfTime { end } => write!(
                f,
                "a lease can't last beyond {end} on the replicas' clock, which never goes back: make new \
                 replicas, whose times count from a later origin or whose tick is longer"
            ),
        }
    }
}

impl std::error::Error for Refusal {}

/// Why a command was not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplicaError {
    /// A command of that index, or a later one, was applied before.
    Applied {
        /// The index that was given.
        log_index: u64,
        /// The index of the last command that was applied.
        last_applied: u64,
    },
    /// The index can't be a fencing token of a replica: it is 0, or 2^63 - 2^56 or more.
    LogIndex {
        /// The index that was given.
        log_index: u64,
    },
    /// This replica has no memory for the command.
    OutOfMemory,
}

impl fmt::Display for ReplicaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Applied {
                log_index,
                last_applied,
            } => write!(
                f,
                "the command of index {log_index} was applied before, the last is {last_applied}: go \
                 on with the next"
            ),
            Self::LogIndex { log_index } => write!(
                f,
                "index {log_index} can't be a fencing token of a replica: let the log begin at 1, and end \
                 before 2^63 - 2^56"
            ),
            Self::OutOfMemory => f.write_str(
                "no memory for the command, which was not applied: free some and apply it again, or \
                 stop this replica",
            ),
        }
    }
}

impl std::error::Error for ReplicaError {}
