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
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use crate::token::FencingToken;

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

/// Of a row that a statement did not change, by its fence if there is such a row: an error if that is above
/// the token, or whether there is one.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn judge<E>(fence: Option<i64>, token: FencingToken) -> Result<bool, ResourceError<E>> {
    match fence.map(FencingToken::try_from) {
        Some(Ok(highest)) if highest > token => Err(ResourceError::Stale(StaleToken {
            presented: token,
            highest,
        })),
        fence => Ok(fence.is_some()),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::token::FencingToken;

    fn token(value: u64) -> FencingToken {
        FencingToken::new(value).unwrap()
    }

    #[test]
    fn a_failure_has_its_cause_for_a_source_and_a_stale_token_has_none() {
        let stale = StaleToken {
            presented: token(33),
            highest: token(34),
        };
        let error: ResourceError<io::Error> = stale.into();
        assert!(error.source().is_none());
        let failed = ResourceError::Failed(io::Error::other("the disk is full"));
        let source = failed.source().expect("what failed");
        assert_eq!(source.to_string(), "the disk is full");
    }

    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    #[test]
    fn only_a_higher_fence_makes_a_token_stale() {
        let judged = |fence| judge::<io::Error>(fence, token(34)).map_err(|error| error.stale());
        assert_eq!(judged(None), Ok(false), "there is no row");
        // It was written since by who holds a lower token or the same, or foreign hands put no token there.
        for fence in [33, 34, 0, -1] {
            assert_eq!(judged(Some(fence)), Ok(true), "{fence}");
        }
        let stale = StaleToken {
            presented: token(34),
            highest: token(35),
        };
        assert_eq!(judged(Some(35)), Err(Some(stale)));
    }
}
