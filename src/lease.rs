//! The guard of a lease.

use std::time::Duration;
use std::{fmt, mem};

use crate::engine::{Acquired, Engine, granted_token};
use crate::error::{ReleaseError, RenewError};
use crate::key::Key;
use crate::owner::OwnerId;
use crate::sync::{Arc, AtomicU64, Ordering};
use crate::table::{Ended, Handle, Name, Unrenewed, Wanted};
use crate::time::Timestamp;
use crate::timeline::BadTtl;
use crate::token::FencingToken;

/// A lease that was granted, as a guard: dropping it releases the lease.
///
/// The guard is a claim, not a proof: once its deadline has passed the lease is over and another
/// holder may be at work, whatever this thread was doing meanwhile. So pass
/// [`token`](Self::token) along with every write, to a resource that rejects old ones
/// ([`Fenced`](crate::Fenced)).
///
/// A guard borrows its [`LockManager`](crate::LockManager), which keeps a grant free of reference
/// counting; [`into_owned`](Self::into_owned) makes one that can go anywhere.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tenure::LockManager;
///
/// let locks = LockManager::new();
/// let lease = locks.try_acquire("shard/7", 1, Duration::from_secs(10))?;
/// lease.renew(Duration::from_secs(20))?;
/// assert!(lease.is_live());
/// lease.release()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping a lease releases it; `detach` gives up the guard and keeps the lease"]
pub struct Lease<'m> {
    engine: Hold<'m>,
    name: Name,
    owner: OwnerId,
    /// Where the lease was last seen: a resize moves it.
    handle: AtomicU64,
    /// The last deadline that this guard knows of, in ticks.
    deadline: AtomicU64,
    /// Whether dropping releases.
    armed: bool,
}

/// How a guard reaches its engine.
enum Hold<'m> {
    Borrowed(&'m Engine),
    Owned(Arc<Engine>),
}

impl Hold<'_> {
    #[inline]
    fn engine(&self) -> &Engine {
        match self {
            Self::Borrowed(engine) => engine,
            Self::Owned(engine) => engine,
        }
    }

    /// Only an owned guard can outlive its manager.
    #[inline]
    fn is_closed(&self) -> bool {
        match self {
            Self::Borrowed(_) => false,
            Self::Owned(engine) => engine.is_closed(),
        }
    }
}

impl<'m> Lease<'m> {
    #[inline(always)]
    pub(crate) fn new(engine: &'m Engine, key: Key, owner: OwnerId, acquired: &Acquired) -> Self {
        Self {
            engine: Hold::Borrowed(engine),
            name: Name {
                key,
                hash: acquired.hash,
                token: acquired.token,
            },
            owner,
            handle: AtomicU64::new(acquired.handle.0),
            deadline: AtomicU64::new(acquired.deadline),
            armed: true,
        }
    }

    /// The key, as the manager stores it.
    #[must_use]
    pub fn key(&self) -> Key {
        self.name.key
    }

    /// Whom the lease was granted to.
    #[must_use]
    pub fn owner(&self) -> OwnerId {
        self.owner
    }

    /// The fencing token of this grant: greater than that of every earlier grant of the key.
    #[must_use]
    #[inline]
    pub fn token(&self) -> FencingToken {
        granted_token(self.name.token)
    }

    /// When the lease ends if it is not renewed, or ended, on the manager's clock.
    ///
    /// Costs two or three loads, unless a resize has moved the lease.
    #[must_use]
    pub fn deadline(&self) -> Timestamp {
        let engine = self.engine.engine();
        let known = self.deadline.load(Ordering::Relaxed);
        // Somebody may have renewed by token.
        let current = self.current_deadline().unwrap_or(known);
        engine.time.start_of(current)
    }

    /// How long the lease still lasts; zero once it is over, released and revoked included.
    ///
    /// What is left when the caller looks at it is less: see the crate's guarantees.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let engine = self.engine.engine();
        if self.engine.is_closed() {
            return Duration::ZERO;
        }
        let now = engine.time.now();
        if self.is_live_at(now) {
            engine
                .time
                .until(self.deadline.load(Ordering::Relaxed), now)
        } else {
            Duration::ZERO
        }
    }

    /// Whether the lease is in force: not past its deadline, not released, not revoked.
    #[must_use]
    pub fn is_live(&self) -> bool {
        !self.engine.is_closed() && self.is_live_at(self.engine.engine().time.now())
    }

    fn is_live_at(&self, now: u64) -> bool {
        let engine = self.engine.engine();
        let Some(deadline) = self.current_deadline() else {
            return false;
        };
        if deadline > engine.time.tick_of(now) {
            self.deadline.store(deadline, Ordering::Relaxed);
            return true;
        }
        // Who is told that it is over must not see it renewed afterwards: ends it (I4).
        engine.validate(&self.name, now).is_ok()
    }

    /// The deadline of the lease if it still stands somewhere, over or not.
    fn current_deadline(&self) -> Option<u64> {
        let engine = self.engine.engine();
        engine
            .deadline_by_handle(self.handle(), &self.name)
            .or_else(|| {
                let found = engine.find(self.name.key, engine.time.now()).ok()?;
                (found.contents.token == self.name.token).then(|| {
                    self.handle.store(found.handle().0, Ordering::Relaxed);
                    found.contents.deadline
                })
            })
    }

    #[inline]
    fn handle(&self) -> Handle {
        Handle(self.handle.load(Ordering::Relaxed))
    }

    /// Makes the lease last for `ttl` from now, and returns its deadline. Never shortens it: if the
    /// deadline is later than that already, it stays.
    ///
    /// Once this has returned `Ok`, nobody else is granted the key before that deadline (I5), unless
    /// the lease is released or revoked. One compare-and-swap at most, and none if the deadline is late
    /// enough already; lock-free.
    ///
    /// # Errors
    ///
    /// [`RenewError::Expired`] if the lease is over, [`RenewError::TtlTooShort`] and
    /// [`RenewError::TtlTooLong`] with the lease as it was, [`RenewError::Closed`] if every handle
    /// of the manager is gone.
    #[inline]
    pub fn renew(&self, ttl: Duration) -> Result<Timestamp, RenewError> {
        let engine = self.engine.engine();
        if self.engine.is_closed() {
            return Err(RenewError::Closed);
        }
        let now = engine.time.now();
        let wanted = match engine.time.renewal(now, ttl) {
            Ok(wanted) => wanted,
            Err(bad) => return Err(bad_ttl(ttl, bad)),
        };
        match engine.renew_fast(self.handle(), &self.name, &wanted) {
            Some(deadline) => {
                self.deadline.store(deadline, Ordering::Relaxed);
                Ok(engine.time.start_of(deadline))
            }
            None => self.renew_slow(wanted.ticks().1, now),
        }
    }

    #[cold]
    fn renew_slow(&self, deadline: u64, now: u64) -> Result<Timestamp, RenewError> {
        let engine = self.engine.engine();
        match engine.renew_by_key(&self.name, deadline, now) {
            Ok((deadline, handle)) => {
                self.handle.store(handle.0, Ordering::Relaxed);
                self.deadline.store(deadline, Ordering::Relaxed);
                Ok(engine.time.start_of(deadline))
            }
            Err(unrenewed) => Err(renew_error(unrenewed, self.token())),
        }
    }

    /// Gives the lease back, so that the next holder need not wait for its deadline.
    ///
    /// One compare-and-swap; lock-free. Dropping the guard does the same and says nothing.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::Expired`] if the lease was over before: whatever was done under it since its
    /// deadline was done without it. [`ReleaseError::Closed`] if every handle of the manager is gone.
    #[inline(always)]
    pub fn release(self) -> Result<(), ReleaseError> {
        let token = self.name.token;
        let released = match &self.engine {
            Hold::Owned(engine) if engine.is_closed() => {
                let mut this = self;
                this.armed = false;
                return Err(ReleaseError::Closed);
            }
            Hold::Owned(engine) => {
                let released = engine.release(self.handle(), &self.name);
                let mut this = self;
                this.armed = false;
                released
            }
            Hold::Borrowed(engine) => {
                let released = engine.release(self.handle(), &self.name);
                // Nothing in a borrowing guard needs dropping.
                mem::forget(self);
                released
            }
        };
        released.map_err(|ended| release_error(ended, granted_token(token)))
    }

    /// Gives up the guard and keeps the lease, until its deadline or a
    /// [`release`](crate::LockManager::release) by the token that this returns.
    pub fn detach(mut self) -> FencingToken {
        self.armed = false;
        self.token()
    }

    /// The same guard without the borrow: it can be stored, returned, sent to another thread.
    ///
    /// It doesn't keep the manager running: when the last [`LockManager`](crate::LockManager) handle
    /// is dropped, this guard's lease is over, and its operations say `Closed`. Costs one reference
    /// count.
    pub fn into_owned(mut self) -> Lease<'static> {
        self.armed = false;
        let engine = match &self.engine {
            Hold::Borrowed(engine) => engine.share(),
            Hold::Owned(engine) => Arc::clone(engine),
        };
        Lease {
            engine: Hold::Owned(engine),
            name: self.name,
            owner: self.owner,
            handle: AtomicU64::new(self.handle.load(Ordering::Relaxed)),
            deadline: AtomicU64::new(self.deadline.load(Ordering::Relaxed)),
            armed: true,
        }
    }
}

impl Drop for Lease<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.armed && !self.engine.is_closed() {
            let engine = self.engine.engine();
            // Over or not, it is over now.
            let _ = engine.release(self.handle(), &self.name);
        }
    }
}

impl fmt::Debug for Lease<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("key", &self.key())
            .field("owner", &self.owner)
            .field("token", &self.token())
            .field("deadline", &self.deadline())
            .finish_non_exhaustive()
    }
}

#[cold]
pub(crate) fn bad_ttl(ttl: Duration, bad: BadTtl) -> RenewError {
    match bad {
        BadTtl::TooShort { min } => RenewError::TtlTooShort { ttl, min },
        BadTtl::TooLong { max } => RenewError::TtlTooLong { ttl, max },
    }
}

#[cold]
pub(crate) fn renew_error(unrenewed: Unrenewed, token: FencingToken) -> RenewError {
    match unrenewed {
        Unrenewed::Ended(Ended::Expired) => RenewError::Expired { token },
        Unrenewed::Ended(Ended::NeverGranted) => RenewError::NeverGranted { token },
        Unrenewed::NoMemory => RenewError::OutOfMemory,
    }
}

#[cold]
pub(crate) fn release_error(ended: Ended, token: FencingToken) -> ReleaseError {
    match ended {
        Ended::Expired => ReleaseError::Expired { token },
        Ended::NeverGranted => ReleaseError::NeverGranted { token },
    }
}
