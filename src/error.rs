//! Small errors, one per operation: each answers "why not" and says what to do next.

use std::fmt;
use std::time::Duration;

use crate::reservation::ReservationError;
use crate::{FencingToken, Key, OwnerId};

/// Why a grant was refused by [`try_acquire`](crate::LockManager::try_acquire).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcquireError {
    /// A live lease holds the key.
    ///
    /// If `owner` is the caller itself, an earlier request was granted and its answer was lost:
    /// the caller already holds the lease that `token` names.
    Held {
        /// Who holds it.
        owner: OwnerId,
        /// The fencing token of the lease in the way.
        token: FencingToken,
        /// How long that lease lasts if nobody renews or releases it.
        remaining: Duration,
    },
    /// The TTL is zero or below the manager's minimum.
    TtlTooShort {
        /// The TTL that was asked for.
        ttl: Duration,
        /// The least that this manager accepts.
        min: Duration,
    },
    /// The TTL is above the manager's maximum.
    TtlTooLong {
        /// The TTL that was asked for.
        ttl: Duration,
        /// The most that this manager accepts.
        max: Duration,
    },
    /// As many leases are out as the manager may hold, or memory for another could not be had; or a lease has
    /// been entered 2^32 - 1 times and left not once. Nothing was evicted.
    CapacityExceeded {
        /// The number of leases that the manager may have out at once, or of entries of one.
        capacity: usize,
    },
    /// The token would be too high: `at_least` may be up to 2^63 - 2^56, and tokens end at
    /// [`FencingToken::MAX`].
    TokensExhausted {
        /// The least token that would have had to be granted, saturated.
        wanted: u64,
    },
    /// The manager has no authority over its shard for now, and grants nothing: its
    /// [`Reservation`](crate::reservation::Reservation) belongs to somebody else, or its backend can't be
    /// reached. It campaigns.
    AuthorityLost,
    /// The token would be above the block that is reserved. Either the next one is on its way, or more was asked
    /// for by `at_least` than is reserved.
    TokensNotReserved {
        /// The least token that would have had to be granted.
        wanted: u64,
        /// The last one that is reserved.
        last: u64,
    },
    /// As many acquisitions wait as may: for this key, or in all. Try again later, or not at all.
    QueueFull {
        /// The limit that was met.
        limit: usize,
    },
    /// Nobody holds the key, and nobody is granted it for now: its last lease ended uncleanly and had a
    /// lock-delay, or was released before its minimum hold was over.
    Delayed {
        /// How long that lasts.
        remaining: Duration,
    },
    /// Waiting would never end: whoever holds the key waits, directly or through others, for what this
    /// owner holds. The acquisition has left the queue.
    Deadlock {
        /// Who waits for whom.
        cycle: Box<Cycle>,
    },
    /// The session of the acquisition is over: open another one.
    SessionOver,
    /// The shared lease that was to be upgraded is over, or is none: acquire anew.
    Lapsed {
        /// Its token.
        token: FencingToken,
    },
    /// A semaphore has from 1 to 2^30 - 1 permits.
    Permits {
        /// The number asked for.
        of: u32,
    },
    /// The time that [`Acquire::wait_timeout`](crate::Acquire::wait_timeout) or
    /// [`Acquire::wait_until`](crate::Acquire::wait_until) was given has passed. The place in the
    /// queue is given up.
    TimedOut,
    /// Every handle of the manager was dropped; nobody will grant anything any more.
    Closed,
}

/// Who waits for whom, in a circle: each owner waits for a key that the next one holds, or waits for
/// ahead of it, and the last one for what the first has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cycle {
    /// The owners with the keys that they wait for; the first is the one who was told.
    pub waits: Vec<(OwnerId, Key)>,
}

/// Why a session could not be kept alive or closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionError {
    /// The session is over: its deadline passed, and so did its leases. It stays over.
    Over,
    /// The manager has no authority over its shard for now, and prolongs nothing. The session lasts until its
    /// deadline.
    AuthorityLost,
    /// Every handle of the manager was dropped.
    Closed,
}

/// Why a renewal was refused. The lease, if there is one, is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RenewError {
    /// The lease is over: its deadline passed, or it was released or revoked.
    Expired {
        /// The token that was presented.
        token: FencingToken,
    },
    /// This manager never granted that token for that key; it may belong to another key.
    NeverGranted {
        /// The token that was presented.
        token: FencingToken,
    },
    /// The TTL is zero or below the manager's minimum.
    TtlTooShort {
        /// The TTL that was asked for.
        ttl: Duration,
        /// The least that this manager accepts.
        min: Duration,
    },
    /// The TTL is above the manager's maximum.
    TtlTooLong {
        /// The TTL that was asked for.
        ttl: Duration,
        /// The most that this manager accepts.
        max: Duration,
    },
    /// The lease lasts as long as its session: keep that alive.
    InSession {
        /// The token that was presented.
        token: FencingToken,
    },
    /// The manager has no authority over its shard for now, and renews nothing. The lease lasts until its
    /// deadline.
    AuthorityLost,
    /// Every handle of the manager was dropped; nobody arbitrates this lease any more.
    Closed,
    /// Memory that the renewal needed could not be had.
    OutOfMemory,
}

/// Why a release had nothing to release. No other lease was touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lease was over before: its deadline passed, or it was released or revoked.
    Expired {
        /// The token that was presented.
        token: FencingToken,
    },
    /// This manager never granted that token for that key; it may belong to another key.
    NeverGranted {
        /// The token that was presented.
        token: FencingToken,
    },
    /// Every handle of the manager was dropped; nobody arbitrates this lease any more.
    Closed,
}

/// Why a token does not name a live lease of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ValidateError {
    /// The lease is over: its deadline passed, or it was released or revoked.
    Expired {
        /// The token that was presented.
        token: FencingToken,
    },
    /// This manager never granted that token for that key; it may belong to another key.
    NeverGranted {
        /// The token that was presented.
        token: FencingToken,
    },
}

/// Why a revocation found nothing to revoke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RevokeError {
    /// No live lease holds the key.
    NotHeld,
}

/// Why [`build`](crate::Builder::build) refused its options.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// The tick is below 100 microseconds or above an hour.
    Tick {
        /// The tick that was asked for.
        tick: Duration,
    },
    /// The clock's readings may lag by more than an hour.
    Resolution {
        /// The clock's resolution.
        resolution: Duration,
    },
    /// The least TTL is zero or above the greatest one.
    TtlRange {
        /// The least TTL asked for.
        min: Duration,
        /// The greatest TTL asked for.
        max: Duration,
    },
    /// The greatest TTL is above what this tick length can represent.
    MaxTtl {
        /// The greatest TTL asked for.
        max: Duration,
        /// The greatest TTL that fits this tick.
        limit: Duration,
    },
    /// More keys than the table can index, or none.
    MaxKeys {
        /// The number asked for.
        max_keys: usize,
        /// The greatest number that the table can index.
        limit: usize,
    },
    /// A driver thread was asked for with a clock that does not run in real time.
    DriverNeedsRealTime,
    /// The driver thread could not be started.
    Spawn {
        /// What the operating system said.
        reason: String,
    },
    /// Memory for the initial table could not be had.
    OutOfMemory,
    /// The first block of tokens could not be reserved.
    Reservation {
        /// What the backend said.
        error: ReservationError,
    },
}

impl fmt::Display for AcquireError {
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
            Self::TtlTooShort { ttl, min } => too_short(f, *ttl, *min),
            Self::TtlTooLong { ttl, max } => too_long(f, *ttl, *max),
            Self::CapacityExceeded { capacity } => write!(
                f,
                "all of the {capacity} leases that may be out are out: release some, or raise `max_keys`"
            ),
            Self::TokensExhausted { wanted } => write!(
                f,
                "no token of at least {wanted} can be granted, the last is {}: ask for a lower one, \
                 or use another key",
                FencingToken::MAX
            ),
            Self::AuthorityLost => authority_lost(f),
            Self::TokensNotReserved { wanted, last } => write!(
                f,
                "token {wanted} is not reserved, the last that is is {last}: try again in a moment, have larger \
                 blocks, or ask for a lower one"
            ),
            Self::QueueFull { limit } => write!(
                f,
                "{limit} acquisitions wait already: try again later, or raise `max_waiters` or \
                 `max_waiters_per_key`"
            ),
            Self::Delayed { remaining } => write!(
                f,
                "nobody holds the key, but nobody is granted it for another {remaining:?}: try again then, \
                 or wait"
            ),
            Self::Deadlock { cycle } => write!(f, "{cycle}: release what you hold, and start again"),
            Self::SessionOver => {
                f.write_str("the session is over, and its leases with it: open another one")
            }
            Self::Lapsed { token } => write!(
                f,
                "the shared lease of token {token} is over, so it can't be upgraded: acquire anew"
            ),
            Self::Permits { of } => write!(
                f,
                "a semaphore of {of} permits is out of range: choose from 1 to {}",
                crate::wish::MAX_PERMITS
            ),
            Self::TimedOut => f.write_str(
                "the key was not free in time, and the place in the queue is given up: wait longer, \
                 or do without",
            ),
            Self::Closed => closed(f),
        }
    }
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("deadlock: ")?;
        for (owner, key) in &self.waits {
            write!(f, "owner {owner} waits for {key} held by ")?;
        }
        match self.waits.first() {
            Some((owner, _)) => write!(f, "owner {owner}"),
            None => f.write_str("nobody"),
        }
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Over => {
                f.write_str("the session is over, and its leases with it: open another one")
            }
            Self::AuthorityLost => authority_lost(f),
            Self::Closed => closed(f),
        }
    }
}

impl fmt::Display for RenewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired { token } => expired(f, *token),
            Self::NeverGranted { token } => never_granted(f, *token),
            Self::TtlTooShort { ttl, min } => too_short(f, *ttl, *min),
            Self::TtlTooLong { ttl, max } => too_long(f, *ttl, *max),
            Self::InSession { token } => write!(
                f,
                "the lease of token {token} lasts as long as its session: keep that alive instead"
            ),
            Self::AuthorityLost => authority_lost(f),
            Self::Closed => closed(f),
            Self::OutOfMemory => f.write_str(
                "no memory to renew the lease, which stays as it was: free some and renew again",
            ),
        }
    }
}

impl fmt::Display for ReleaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired { token } => expired(f, *token),
            Self::NeverGranted { token } => never_granted(f, *token),
            Self::Closed => closed(f),
        }
    }
}

impl fmt::Display for ValidateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired { token } => expired(f, *token),
            Self::NeverGranted { token } => never_granted(f, *token),
        }
    }
}

impl fmt::Display for RevokeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHeld => {
                f.write_str("nobody holds the key, so there is nothing to revoke: acquire it")
            }
        }
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tick { tick } => {
                write!(
                    f,
                    "a tick of {tick:?} is out of range: choose from 100 µs to 1 h"
                )
            }
            Self::Resolution { resolution } => write!(
                f,
                "a clock whose readings lag by {resolution:?} is too coarse: use one of an hour at most"
            ),
            Self::TtlRange { min, max } => write!(
                f,
                "TTLs from {min:?} to {max:?} are no range: `min_ttl` must be above zero and not above \
                 `max_ttl`"
            ),
            Self::MaxTtl { max, limit } => write!(
                f,
                "a `max_ttl` of {max:?} does not fit this tick, the limit is {limit:?}: lower it, or \
                 lengthen the tick"
            ),
            Self::MaxKeys { max_keys, limit } => {
                write!(
                    f,
                    "{max_keys} leases are out of range: choose from 1 to {limit}"
                )
            }
            Self::DriverNeedsRealTime => f.write_str(
                "a driver thread sleeps in real time, which this clock does not follow: use \
                 `driver(false)` and call `advance`",
            ),
            Self::Spawn { reason } => write!(
                f,
                "the driver thread can't be started ({reason}): free some threads, or use \
                 `driver(false)` and call `advance`"
            ),
            Self::OutOfMemory => {
                f.write_str("no memory for the first table: lower `initial_capacity`, or free some")
            }
            Self::Reservation { error } => write!(f, "no tokens to grant: {error}"),
        }
    }
}

fn too_short(f: &mut fmt::Formatter<'_>, ttl: Duration, min: Duration) -> fmt::Result {
    write!(f, "a TTL of {ttl:?} is too short: ask for at least {min:?}")
}

fn too_long(f: &mut fmt::Formatter<'_>, ttl: Duration, max: Duration) -> fmt::Result {
    write!(
        f,
        "a TTL of {ttl:?} is too long: ask for at most {max:?}, and renew"
    )
}

fn expired(f: &mut fmt::Formatter<'_>, token: FencingToken) -> fmt::Result {
    write!(
        f,
        "the lease of token {token} is over: stop writing under it, and acquire anew"
    )
}

fn never_granted(f: &mut fmt::Formatter<'_>, token: FencingToken) -> fmt::Result {
    write!(
        f,
        "token {token} was never granted for this key: check which key it belongs to"
    )
}

fn authority_lost(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(
        "the manager has no authority over its shard for now: try again after \
         `wait_for_authority`, or ask the node that has it",
    )
}

fn closed(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("the manager of this lease is gone: keep a handle of it while leases are out")
}

impl std::error::Error for AcquireError {}
impl std::error::Error for SessionError {}
impl std::error::Error for RenewError {}
impl std::error::Error for ReleaseError {}
impl std::error::Error for ValidateError {}
impl std::error::Error for RevokeError {}
impl std::error::Error for BuildError {}
