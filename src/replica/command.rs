//! What a replica is told to do.

use std::time::Duration;

use crate::key::Key;
use crate::owner::OwnerId;
use crate::token::FencingToken;
use crate::wish::Mode;

/// One entry of the log, without its index and its time.
///
/// With the feature `serde` it can be stored and sent.
///
/// ```
/// use std::time::Duration;
/// use tenure::replica::Command;
/// use tenure::{Key, Mode, OwnerId};
///
/// let command = Command::acquire(Key::from_raw(7), OwnerId(1), Duration::from_secs(10)).shared();
/// assert!(matches!(command, Command::Acquire { mode: Mode::Shared, .. }));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Command {
    /// Grant a lease, or refuse it at once: nobody waits. Shorter by [`Command::acquire`].
    Acquire {
        /// What is leased; of a name, by [`Replica::key`](super::Replica::key).
        key: Key,
        /// Who asks.
        owner: OwnerId,
        /// How long the lease lasts from the time of the command.
        ttl: Duration,
        /// Who else may hold the key at the same time.
        mode: Mode,
        /// Enter the owner's own lease once more, if there is one.
        reentrant: bool,
        /// After an unclean end, keep the key free for so long; zero for no time.
        lock_delay: Duration,
        /// Grant the key to nobody else for so long, even if the lease is released before; zero for no
        /// time.
        min_hold: Duration,
    },
    /// Make the lease of that token last for `ttl` from the time of the command, if it ends before.
    Renew {
        /// What is leased.
        key: Key,
        /// The token of the grant.
        token: FencingToken,
        /// How long it is to last.
        ttl: Duration,
    },
    /// End the lease of that token; of one that was entered several times, leave it once.
    Release {
        /// What is leased.
        key: Key,
        /// The token of the grant.
        token: FencingToken,
    },
    /// End all leases of the key, whoever holds them.
    Revoke {
        /// What is leased.
        key: Key,
    },
    /// Make a shared lease an exclusive one, with a new token, if nobody else shares the key.
    Upgrade {
        /// What is leased.
        key: Key,
        /// The token of the shared lease.
        token: FencingToken,
        /// How long the exclusive one is to last from the time of the command; no less than the shared one
        /// would have.
        ttl: Duration,
    },
    /// Make an exclusive lease a shared one, with the same token and deadline.
    Downgrade {
        /// What is leased.
        key: Key,
        /// The token of the grant.
        token: FencingToken,
    },
    /// Nothing but the time: what is over by then is cleared away.
    Advance,
}

impl Command {
    /// An exclusive lease with no terms; to be changed by the methods below.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::replica::Command;
    /// use tenure::{Key, OwnerId};
    ///
    /// let command = Command::acquire(Key::from_raw(7), OwnerId(1), Duration::from_secs(10));
    /// ```
    #[must_use]
    pub const fn acquire(key: Key, owner: OwnerId, ttl: Duration) -> Self {
        Self::Acquire {
            key,
            owner,
            ttl,
            mode: Mode::Exclusive,
            reentrant: false,
            lock_delay: Duration::ZERO,
            min_hold: Duration::ZERO,
        }
    }

    /// [`Command::Renew`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::replica::Command;
    /// use tenure::{FencingToken, Key};
    ///
    /// let command = Command::renew(Key::from_raw(7), FencingToken::MIN, Duration::from_secs(10));
    /// ```
    #[must_use]
    pub const fn renew(key: Key, token: FencingToken, ttl: Duration) -> Self {
        Self::Renew { key, token, ttl }
    }

    /// [`Command::Release`].
    ///
    /// ```
    /// use tenure::replica::Command;
    /// use tenure::{FencingToken, Key};
    ///
    /// let command = Command::release(Key::from_raw(7), FencingToken::MIN);
    /// ```
    #[must_use]
    pub const fn release(key: Key, token: FencingToken) -> Self {
        Self::Release { key, token }
    }

    /// Of an acquisition: shares the key with others who do. Other commands stay as they are, here and in
    /// the methods below.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::replica::Command;
    /// use tenure::{Key, OwnerId};
    ///
    /// let ttl = Duration::from_secs(10);
    /// let command = Command::acquire(Key::from_raw(7), OwnerId(1), ttl).shared();
    /// ```
    #[must_use]
    pub const fn shared(self) -> Self {
        self.with_mode(Mode::Shared)
    }

    /// Takes one of so many permits of the key.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::replica::Command;
    /// use tenure::{Key, OwnerId};
    ///
    /// let ttl = Duration::from_secs(10);
    /// let command = Command::acquire(Key::from_raw(7), OwnerId(1), ttl).permit(3);
    /// ```
    #[must_use]
    pub const fn permit(self, of: u32) -> Self {
        self.with_mode(Mode::Permit { of })
    }

    const fn with_mode(mut self, to: Mode) -> Self {
        if let Self::Acquire { mode, .. } = &mut self {
            *mode = to;
        }
        self
    }

    /// Enters a lease that the owner holds already.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::replica::Command;
    /// use tenure::{Key, OwnerId};
    ///
    /// let ttl = Duration::from_secs(10);
    /// let command = Command::acquire(Key::from_raw(7), OwnerId(1), ttl).reentrant();
    /// ```
    #[must_use]
    pub const fn reentrant(mut self) -> Self {
        if let Self::Acquire { reentrant, .. } = &mut self {
            *reentrant = true;
        }
        self
    }

    /// Keeps the key free for so long, up to 366 days (fewer with ticks of less than 0.92 ms), after the lease has
    /// expired or was revoked.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::replica::Command;
    /// use tenure::{Key, OwnerId};
    ///
    /// let ttl = Duration::from_secs(10);
    /// let command = Command::acquire(Key::from_raw(7), OwnerId(1), ttl).lock_delay(ttl);
    /// ```
    #[must_use]
    pub const fn lock_delay(mut self, length: Duration) -> Self {
        if let Self::Acquire { lock_delay, .. } = &mut self {
            *lock_delay = length;
        }
        self
    }

    /// Keeps the key from others for so long, up to 366 days (fewer with ticks of less than 0.92 ms), even if the lease
    /// is released before.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::replica::Command;
    /// use tenure::{Key, OwnerId};
    ///
    /// let ttl = Duration::from_secs(10);
    /// let command = Command::acquire(Key::from_raw(7), OwnerId(1), ttl).min_hold(ttl);
    /// ```
    #[must_use]
    pub const fn min_hold(mut self, length: Duration) -> Self {
        if let Self::Acquire { min_hold, .. } = &mut self {
            *min_hold = length;
        }
        self
    }
}
