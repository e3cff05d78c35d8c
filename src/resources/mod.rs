//! Resources that check: what PostgreSQL, SQLite, Redis, files and object stores do with tokens.
//!
//! A lease can't stop a holder that was paused past its end; only the resource can, by comparing fencing
//! tokens. [`Fenced`](crate::Fenced) does it in memory. Here is the same for what outlives a process: the
//! exact statements, as constants to be pasted and adapted, and for each resource a `read` and a `write` that
//! execute them.
//!
//! | module | one step, because | feature of its functions |
//! |---|---|---|
//! | [`postgres`] | it is one statement, or a trigger | `postgres` |
//! | [`sqlite`] | it is one statement, or a trigger | `sqlite` |
//! | [`redis`] | it is one script | `redis` |
//! | [`file`](mod@file) | the file is locked meanwhile | none |
//! | [`object`] | the store puts only over the version that was read | `object-store` |
//!
//! # The rules, the same everywhere
//!
//! **The token lies with the data** and is compared in the step that writes. If it were read first and
//! compared by the client, a pause would fit in between; if it lay elsewhere, a crash would.
//!
//! **Equal is accepted, lower is refused, higher is accepted and remembered.** One holder may write many times.
//!
//! **A read that a write will follow from presents the token too**, and raises the mark that it leaves. Else
//! this loses a write, though each write checks:
//!
//! ```text
//!   A, token 33              B, token 34              resource: balance 100, highest 33
//!   reads 100
//!   ... paused past its lease
//!                            granted 34, reads 100    a plain read: highest is still 33
//!   ... wakes up
//!   writes 110, token 33                              accepted: nobody has shown it a higher one
//!                            writes 125, token 34     accepted: A's 10 are lost
//! ```
//!
//! Reading for other ends, such as showing the value, needs no token.
//!
//! **What was never written has a mark as well.** If a read finds nothing, it leaves an empty row, field or
//! file with its token, for the same reason.
//!
//! **Deleting forgets the mark**, and then the oldest holder is let in again. Empty the value instead, and
//! clear such remains away when nobody can be paused any more who held a lease then; days, not seconds.
//!
//! **The mark is as durable as the resource.** A failover to a replica that lags behind forgets it, like the
//! data.

use std::error::Error;
use std::fmt;

use crate::fence::StaleToken;

pub mod file;
pub mod object;
pub mod postgres;
pub mod redis;
pub mod sqlite;

/// Why a resource did not do as asked.
///
/// ```
/// use tenure::resources::ResourceError;
/// use tenure::{Fenced, FencingToken};
///
/// let fenced = Fenced::with_highest(100, Some(FencingToken::new(34)?));
/// let refused = fenced.write(FencingToken::new(33)?, |_| ()).unwrap_err();
/// let error: ResourceError<std::io::Error> = refused.into();
/// assert_eq!(error.stale().unwrap().highest.get(), 34);
/// # Ok::<(), tenure::TokenError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResourceError<E> {
    /// The resource has seen a higher token: the lease is over, and nothing was read or written.
    Stale(StaleToken),
    /// Anything else. Of a write that was answered so, it is not known whether it was done; doing it again
    /// with the same token is safe if it sets the value, and does not add to it.
    Failed(E),
}

impl<E> ResourceError<E> {
    /// The two tokens, if that is why.
    pub const fn stale(&self) -> Option<StaleToken> {
        match self {
            Self::Stale(stale) => Some(*stale),
            Self::Failed(_) => None,
        }
    }

    /// The same with another error in it.
    fn map_failure<F>(self, map: impl FnOnce(E) -> F) -> ResourceError<F> {
        match self {
            Self::Stale(stale) => ResourceError::Stale(stale),
            Self::Failed(error) => ResourceError::Failed(map(error)),
        }
    }
}

impl<E> From<StaleToken> for ResourceError<E> {
    fn from(stale: StaleToken) -> Self {
        Self::Stale(stale)
    }
}

impl<E: fmt::Display> fmt::Display for ResourceError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale(stale) => stale.fmt(f),
            Self::Failed(error) => write!(
                f,
                "the resource failed: {error}; what was to be written may or may not be"
            ),
        }
    }
}

impl<E: Error + 'static> Error for ResourceError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Stale(_) => None,
            Self::Failed(error) => Some(error),
        }
    }
}
