//! Who holds what and who waits for it: for people, and for tools that look on.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::key::Key;
use crate::owner::OwnerId;
use crate::token::FencingToken;
use crate::wish::Mode;

/// One key as [`LockManager::snapshot`](crate::LockManager::snapshot) found it: of one moment.
///
/// Prints as lines such as PostgreSQL's `pg_locks` has, holders first, then who waits, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeySnapshot {
    /// The key.
    pub key: Key,
    /// Its name, if names are kept and it has one.
    pub name: Option<Arc<str>>,
    /// Who holds it, in the order of their tokens.
    pub holders: Vec<HolderSnapshot>,
    /// Who waits for it, in order.
    pub waiters: Vec<WaiterSnapshot>,
    /// For how long nobody is granted it, if it is quarantined.
    pub delayed: Option<Duration>,
}

impl KeySnapshot {
    /// Whether nobody holds it or waits for it, and it is not kept free.
    pub(crate) fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.waiters.is_empty() && self.delayed.is_none()
    }
}

/// A live lease.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HolderSnapshot {
    /// Whom it was granted to.
    pub owner: OwnerId,
    /// Its fencing token.
    pub token: FencingToken,
    /// Its mode.
    pub mode: Mode,
    /// How often it was entered and not left.
    pub entries: u32,
    /// How long ago it was granted. Of a lease that is or was a plain one, only known under
    /// [`introspection`](crate::Builder::introspection).
    pub age: Option<Duration>,
    /// How long it lasts if it is not renewed.
    pub remaining: Duration,
    /// Whether it lasts as long as a session.
    pub in_session: bool,
}

/// An acquisition that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaiterSnapshot {
    /// Who waits.
    pub owner: OwnerId,
    /// The mode that it asks for.
    pub mode: Mode,
    /// For how long.
    pub age: Duration,
    /// Whether it shares the key already, and waits to be alone.
    pub upgrades: bool,
}

impl fmt::Display for KeySnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |f: &mut fmt::Formatter<'_>| match &self.name {
            Some(name) => write!(f, "{name}"),
            None => write!(f, "{}", self.key),
        };
        for holder in &self.holders {
            name(f)?;
            write!(f, " held {} by {}", holder.mode, holder.owner)?;
            write!(
                f,
                " token {} for another {:?}",
                holder.token, holder.remaining
            )?;
            match holder.age {
                Some(age) => writeln!(f, ", since {age:?}")?,
                None => writeln!(f)?,
            }
        }
        for waiter in &self.waiters {
            name(f)?;
            let (mode, owner, age) = (waiter.mode, waiter.owner, waiter.age);
            writeln!(f, " wanted {mode} by {owner}, since {age:?}")?;
        }
        if let Some(delayed) = self.delayed {
            name(f)?;
            writeln!(f, " kept free for another {delayed:?}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusively"),
            Self::Shared => f.write_str("shared"),
            Self::Permit { of } => write!(f, "as one of {of}"),
        }
    }
}
