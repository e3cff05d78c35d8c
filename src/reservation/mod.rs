//! Where a manager's tokens come from: tokens that outlive the process, and shards that change hands.
//!
//! A manager counts its tokens in memory, so a new process would begin at 1 again, and two nodes would both
//! hand out "the next one". A [`Reservation`] prevents both: it hands the manager a *block* of tokens, above
//! every block that was ever handed out for that shard. Grants inside the block cost nothing extra, and the
//! next owner's block is above, so any resource that has seen one of its tokens rejects the previous owner's.
//!
//! Some backends also have *authority* over the shard that lasts for a term and has to be kept alive, like an
//! etcd lease. Then no lease of the manager's lasts longer than the authority did when it was granted or
//! renewed, and the manager stops granting a safety margin before the authority could have lapsed: from then
//! on it says `AuthorityLost`, and campaigns anew.
//!
//! A thread of the manager's calls the backend; no operation on a lease ever waits for it.

#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "etcd")]
mod etcd;
mod file;
mod keeper;
mod memory;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(any(feature = "etcd", feature = "postgres"))]
mod remote;

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

#[cfg(feature = "etcd")]
pub use self::etcd::{Etcd, EtcdOptions};
pub use self::file::{File, FileOptions};
pub(crate) use self::keeper::{Keeper, KeeperThread, end};
pub use self::memory::Memory;
#[cfg(feature = "postgres")]
pub use self::postgres::{Postgres, PostgresOptions};
#[cfg(any(feature = "etcd", feature = "postgres"))]
pub use self::remote::ConnectError;
use crate::engine::AuthorityState;
use crate::token::FencingToken;

/// A source of token blocks for one shard, and of the authority over it.
///
/// The manager calls it from one thread: [`campaign`](Self::campaign), then
/// [`keep_alive`](Self::keep_alive) and [`reserve`](Self::reserve) in turns until one says
/// [`Lost`](ReservationError::Lost) or the term is over, then `campaign` again; at the end
/// [`resign`](Self::resign). All may block, for seconds at the most.
///
/// # What a backend promises
///
/// - Two blocks never overlap, whoever they are handed to, and a block that is handed out is above all
///   before it: through crashes, kills and lost answers. What it has promised is durable before it says so.
/// - Who has been told that its authority lasts for a term is the only one to be handed blocks meanwhile.
/// - It never begins anew: content that it doesn't understand is an error, not a reason to start at 1.
pub trait Reservation: Send + 'static {
    /// Asks for the authority over the shard, and waits for it for `patience` at the most.
    ///
    /// How long it lasts, [`keep_alive`](Self::keep_alive) says. Backends without such a thing have always
    /// won.
    ///
    /// # Errors
    ///
    /// [`Held`](ReservationError::Held) if somebody else has it, and all that can go wrong in a backend.
    fn campaign(&mut self, patience: Duration) -> Result<(), ReservationError> {
        let _ = patience;
        Ok(())
    }

    /// Extends the authority. Says for how long it lasts, counted from when this call *began*; `None` for
    /// ever, and then this is not called again.
    ///
    /// # Errors
    ///
    /// [`Lost`](ReservationError::Lost) if it is gone. After any other error the authority lasts as it did.
    fn keep_alive(&mut self) -> Result<Option<Duration>, ReservationError> {
        Ok(None)
    }

    /// Hands out the next block, of so many tokens.
    ///
    /// # Errors
    ///
    /// [`Lost`](ReservationError::Lost) if the authority is gone. After any error, tokens may be lost, but
    /// none is handed out twice.
    fn reserve(&mut self, tokens: NonZeroU64) -> Result<Block, ReservationError>;

    /// Gives the authority up, so that a successor need not wait for its end. Nothing is granted any more.
    fn resign(&mut self) {}
}

/// Tokens that one manager may grant, and nobody else ever: from the first to the last.
///
/// ```
/// use std::num::NonZeroU64;
/// use tenure::reservation::Block;
///
/// let block = Block::after(100, NonZeroU64::new(50).unwrap())?;
/// assert_eq!((block.first().get(), block.last().get()), (101, 150));
/// # Ok::<(), tenure::reservation::ReservationError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    first: FencingToken,
    last: FencingToken,
}

impl Block {
    /// The block of so many tokens that follow on `mark`, the highest token that was ever handed out; 0 if
    /// none was. The last of them is the new mark.
    ///
    /// # Errors
    ///
    /// [`Exhausted`](ReservationError::Exhausted) if there are not as many tokens left.
    pub fn after(mark: u64, tokens: NonZeroU64) -> Result<Self, ReservationError> {
        let first = mark.checked_add(1).map(FencingToken::new);
        let last = mark.checked_add(tokens.get()).map(FencingToken::new);
        match (first, last) {
            (Some(Ok(first)), Some(Ok(last))) => Ok(Self { first, last }),
            _ => Err(ReservationError::Exhausted { mark }),
        }
    }

    /// The lowest of them.
    #[must_use]
    pub const fn first(self) -> FencingToken {
        self.first
    }

    /// The highest of them.
    #[must_use]
    pub const fn last(self) -> FencingToken {
        self.last
    }
}

/// How a manager stands with its reservation; see [`LockManager::standing`](crate::LockManager::standing).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Standing {
    /// Whether it may grant leases.
    pub authority: Authority,
    /// The block that it grants from, the last one it was handed.
    pub block: Option<Block>,
    /// The number of blocks that it was handed since the start.
    pub blocks: u64,
    /// How often it began to grant: won the authority, or was handed tokens after somebody else was.
    pub terms: u64,
    /// What the backend said at the last call, if it failed.
    pub error: Option<ReservationError>,
}

/// Whether a manager may grant leases, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Authority {
    /// For ever, as far as the backend goes.
    Unlimited,
    /// For so long, if it isn't kept alive; the margin is taken off. No lease lasts longer.
    For(Duration),
    /// It may not: it campaigns.
    Without,
    /// It may not, and won't any more: [`LockManager::resign`](crate::LockManager::resign) was called.
    Resigned,
}

impl Standing {
    pub(crate) fn new(state: &AuthorityState, remaining: Option<Duration>) -> Self {
        let authority = match remaining {
            _ if state.resigns => Authority::Resigned,
            _ if !state.is_open => Authority::Without,
            None => Authority::Unlimited,
            Some(Duration::ZERO) => Authority::Without,
            Some(remaining) => Authority::For(remaining),
        };
        Self {
            authority,
            block: state.block,
            blocks: state.blocks,
            terms: state.terms,
            error: state.error.clone(),
        }
    }
}

/// Why a backend did not do as asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReservationError {
    /// Somebody else has the shard: another process, or another node.
    Held {
        /// Who, as far as the backend knows.
        holder: String,
    },
    /// The authority that there was is gone; campaign for it.
    Lost,
    /// The backend did not answer, or not in time, or not as it should. It may at the next try.
    Unavailable {
        /// What happened.
        reason: String,
    },
    /// What is stored is torn, or was not written by this crate. Nothing was changed: tokens must not begin
    /// anew.
    Corrupt {
        /// What was found, where, and what to do.
        reason: String,
    },
    /// What was reserved could not be stored: the disk is full, the directory can't be written to, and so on.
    Storage {
        /// What the operating system said, and of what.
        reason: String,
    },
    /// The backend's term leaves no time to grant leases in.
    TermTooShort {
        /// The term.
        term: Duration,
        /// What the manager takes off it, its clock's resolution included.
        margin: Duration,
    },
    /// There are not as many tokens above the mark.
    Exhausted {
        /// The highest token that was handed out.
        mark: u64,
    },
}

impl fmt::Display for ReservationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held { holder } => write!(
                f,
                "the shard belongs to {holder}: wait until it gives it up, or stop it first"
            ),
            Self::Lost => {
                f.write_str("the authority over the shard is gone: campaign for it again")
            }
            Self::Unavailable { reason } => {
                write!(
                    f,
                    "the backend is not available: {reason}; it is tried again"
                )
            }
            Self::Corrupt { reason } => write!(
                f,
                "what is stored is no reservation, and was left as it is: {reason}"
            ),
            Self::Storage { reason } => write!(
                f,
                "the reservation could not be stored: {reason}; make room, or let it be written"
            ),
            Self::TermTooShort { term, margin } => write!(
                f,
                "an authority that lasts for {term:?} is too short for a margin of {margin:?}, which may be \
                 less than half of it: lengthen the term, or lower `authority_margin`"
            ),
            Self::Exhausted { mark } => write!(
                f,
                "not as many tokens are left above {mark}: ask for a smaller block, and check that the \
                 mark is what it should be"
            ),
        }
    }
}

impl std::error::Error for ReservationError {}
