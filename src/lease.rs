//! The guard of a lease.

mod many;

use std::fmt;
use std::mem::ManuallyDrop;
use std::time::Duration;

use crate::acquire::Upgrade;
use crate::engine::{Acquired, Engine};
use crate::error::{ReleaseError, RenewError};
use crate::hold::Hold;
use crate::key::Key;
use crate::lost::Lost;
use crate::owner::OwnerId;
use crate::sync::Ordering;
use crate::sync::facade::AtomicU64;
use crate::table::{Ended, Handle, Name, Unrenewed, Wanted};
use crate::time::Timestamp;
use crate::timeline::{BadTtl, Renewal};
use crate::token::FencingToken;
use crate::wish::Mode;

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
    hold: Hold<'m>,
    key: Key,
    /// 0 once the guard has been given up.
    token: u64,
    owner: OwnerId,
    // The lease as it was last seen. All three only follow what has happened to it, so whichever of
    // two renewals' values are left here, they hold: a deadline too early, or a state that is not the
    // lease's any more and only costs a second look.
    place: AtomicU64,
    state: AtomicU64,
    /// In ticks.
    deadline: AtomicU64,
}

impl<'m> Lease<'m> {
    #[inline(always)]
    pub(crate) fn new(engine: &'m Engine, key: Key, owner: OwnerId, acquired: &Acquired) -> Self {
        Self::with_hold(Hold::Borrowed(engine), key, owner, acquired)
    }

    #[inline(always)]
    pub(crate) fn with_hold(hold: Hold<'m>, key: Key, owner: OwnerId, acquired: &Acquired) -> Self {
        Self {
            hold,
            key,
            token: acquired.token,
            owner,
            place: AtomicU64::new(acquired.handle.place),
            state: AtomicU64::new(acquired.handle.state),
            deadline: AtomicU64::new(acquired.deadline),
        }
    }

    /// The key, as the manager stores it.
    #[must_use]
    pub fn key(&self) -> Key {
        self.key
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
        FencingToken::granted(self.token)
    }

    /// When the lease ends if it is not renewed, or ended, on the manager's clock.
    ///
    /// Costs a few loads, unless a resize has moved the lease; a lock if it is not a plain one.
    #[must_use]
    pub fn deadline(&self) -> Timestamp {
        // Somebody may have renewed by token.
        let current = self
            .current_deadline()
            .unwrap_or_else(|| self.deadline.load(Ordering::Relaxed));
        self.hold.engine().time.start_of(current)
    }

    /// How long the lease still lasts; zero once it is over, released and revoked included.
    ///
    /// What is left when the caller looks at it is less: see the crate's guarantees.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        if self.hold.is_closed() {
            return Duration::ZERO;
        }
        let time = &self.hold.engine().time;
        let now = time.now();
        self.live_until(now)
            .map_or(Duration::ZERO, |deadline| time.until(deadline, now))
    }

    /// Whether the lease is in force: not past its deadline, not released, not revoked.
    #[must_use]
    pub fn is_live(&self) -> bool {
        let live = || self.live_until(self.hold.engine().time.now());
        !self.hold.is_closed() && live().is_some()
    }

    /// The deadline of the lease, if that is after `now` and the lease in force.
    fn live_until(&self, now: u64) -> Option<u64> {
        let engine = self.hold.engine();
        let deadline = self.current_deadline()?;
        if engine.time.is_before(now, deadline) {
            return Some(deadline);
        }
        // Who is told that it is over must not see it renewed afterwards: ends it (I4). Or somebody has
        // renewed it just now.
        let found = engine.validate(&self.name(), now).ok()?;
        Some(found.contents.deadline)
    }

    /// The deadline of the lease if it still stands somewhere, over or not.
    fn current_deadline(&self) -> Option<u64> {
        let engine = self.hold.engine();
        let name = self.name();
        let seen = engine
            .deadline_by_handle(self.handle(), &name)
            .or_else(|| {
                let seen = engine.find(&name, engine.time.now())?;
                Some((seen.contents.deadline, seen.handle))
            })?;
        Some(self.note(seen))
    }

    #[inline]
    fn handle(&self) -> Handle {
        Handle {
            place: self.place.load(Ordering::Acquire),
            state: self.state.load(Ordering::Relaxed),
        }
    }

    /// Remembers how the lease was seen last.
    #[inline]
    fn note(&self, (deadline, handle): (u64, Handle)) -> u64 {
        // Release and acquire: the memory of the cell may be new to who looks there next.
        self.place.store(handle.place, Ordering::Release);
        self.state.store(handle.state, Ordering::Relaxed);
        self.deadline.store(deadline, Ordering::Relaxed);
        deadline
    }

    fn name(&self) -> Name {
        self.hold.engine().name(self.key, self.token)
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
    /// [`RenewError::TtlTooLong`] with the lease as it was, [`RenewError::AuthorityLost`] if the manager may
    /// renew nothing for now, [`RenewError::Closed`] if every handle of the manager is gone.
    #[inline(always)]
    pub fn renew(&self, ttl: Duration) -> Result<Timestamp, RenewError> {
        let engine = self.hold.engine();
        if self.hold.is_closed() {
            return Err(RenewError::Closed);
        }
        let now = engine.time.now();
        let wanted = match engine.time.renewal(now, ttl) {
            Ok(wanted) => wanted,
            Err(bad) => return Err(bad_ttl(ttl, bad)),
        };
        // As it is for all renewals of one TTL within one tick but the first.
        let known = self.deadline.load(Ordering::Relaxed);
        if wanted.is_met_by(known) && engine.is_as_seen(self.handle(), self.key, self.token) {
            return Ok(engine.time.start_of(known));
        }
        self.renew_later(&wanted, now)
    }

    /// A renewal to a later deadline than is known.
    #[inline(always)]
    fn renew_later(&self, wanted: &Renewal<'_>, now: u64) -> Result<Timestamp, RenewError> {
        let engine = self.hold.engine();
        if engine.is_observed() {
            return self.renew_by_key(wanted, now);
        }
        let renewed = engine.renew_as_seen(self.handle(), self.key, self.token, wanted);
        if let Some((deadline, handle)) = renewed {
            // In the same place.
            self.state.store(handle.state, Ordering::Relaxed);
            self.deadline.store(deadline, Ordering::Relaxed);
            return Ok(engine.time.start_of(deadline));
        }
        self.renew_more(wanted, now)
    }

    /// What is not a simple renewal.
    #[cold]
    #[inline(never)]
    fn renew_more(&self, wanted: &Renewal<'_>, now: u64) -> Result<Timestamp, RenewError> {
        let engine = self.hold.engine();
        let name = self.name();
        let renewed = match engine.renew_fast(self.handle(), &name, wanted) {
            Some(renewed) => Ok(renewed),
            None => engine.renew_by_key(&name, wanted.ticks().1, now),
        };
        match renewed {
            Ok(renewed) => Ok(engine.time.start_of(self.note(renewed))),
            Err(unrenewed) => Err(renew_error(unrenewed, self.token())),
        }
    }

    /// A renewal that others are told of.
    #[cold]
    fn renew_by_key(&self, wanted: &Renewal<'_>, now: u64) -> Result<Timestamp, RenewError> {
        let engine = self.hold.engine();
        let renewed = engine.renew_by_key(&self.name(), wanted.ticks().1, now);
        match renewed {
            Ok(renewed) => Ok(engine.time.start_of(self.note(renewed))),
            Err(unrenewed) => Err(renew_error(unrenewed, self.token())),
        }
    }

    /// Gives the lease back, so that the next holder need not wait for its deadline.
    ///
    /// One compare-and-swap; lock-free. Of a lease that was entered more than once, the last release ends it;
    /// one that is not a plain lease takes a lock. Dropping the guard does the same and says nothing.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::Expired`] if the lease was over before: whatever was done under it since its
    /// deadline was done without it. [`ReleaseError::Closed`] if every handle of the manager is gone.
    #[inline(always)]
    pub fn release(self) -> Result<(), ReleaseError> {
        let mut this = ManuallyDrop::new(self);
        let token = this.token;
        let released = if this.hold.is_closed() {
            Err(ReleaseError::Closed)
        } else {
            this.end()
                .map_err(|ended| release_error(ended, FencingToken::granted(token)))
        };
        Self::discard(this);
        released
    }

    /// Ends the lease; the manager is there.
    #[inline(always)]
    fn end(&mut self) -> Result<(), Ended> {
        let handle = Handle {
            place: *self.place.get_mut(),
            state: *self.state.get_mut(),
        };
        let deadline = *self.deadline.get_mut();
        let engine = self.hold.engine();
        engine.release(handle, deadline, self.key, self.token)
    }

    /// Drops what a guard holds but the lease.
    #[inline(always)]
    fn discard(mut this: ManuallyDrop<Self>) {
        // Nothing in a borrowing guard needs dropping.
        if let Hold::Owned(_) = this.hold {
            this.token = 0;
            drop(ManuallyDrop::into_inner(this));
        }
    }

    /// Who else may hold the key at the same time, or could when the lease ended.
    ///
    /// Costs a few loads for a plain lease, unless a resize has moved it, and a lock for another.
    #[must_use]
    pub fn mode(&self) -> Mode {
        let engine = self.hold.engine();
        let name = self.name();
        if engine.deadline_by_handle(self.handle(), &name).is_some() {
            return Mode::Exclusive;
        }
        // Another guard of the same lease may have downgraded it.
        if let Some(seen) = engine.find(&name, engine.time.now()) {
            self.note((seen.contents.deadline, seen.handle));
        }
        let code = self.handle().recorded_code();
        code.map_or(Mode::Exclusive, Mode::from_code)
    }

    /// Resolves when the lease is over, and says how it ended: to be awaited, or blocked on.
    ///
    /// Within a tick of its deadline, if the wheel is turned by then; at once when it is revoked, or
    /// released by its token. A lease that was over already counts as
    /// [`Expired`](crate::Loss::Expired) if the deadline that this guard saw last has passed, and as
    /// [`Revoked`](crate::Loss::Revoked) otherwise.
    ///
    /// Whoever awaits it runs on its own: however slow it is, or if it panics, nothing waits for it. The
    /// first call for a lease takes a lock, and so do the lease's end and renewals by token after that.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::{LockManager, Loss};
    ///
    /// let locks = LockManager::new();
    /// let lease = locks.try_acquire("a", 1, Duration::from_millis(20))?;
    /// assert_eq!(lease.lost().wait(), Loss::Expired);
    /// assert!(!lease.is_live());
    /// # Ok::<(), tenure::AcquireError>(())
    /// ```
    pub fn lost(&self) -> Lost {
        let deadline = self.deadline.load(Ordering::Relaxed);
        Lost::new(self.hold.engine().signal(&self.name(), deadline))
    }

    /// Makes an exclusive lease a shared one, with the same token and deadline: others who share may come
    /// in, and nobody has held the key in between. A lease of another mode stays as it is.
    ///
    /// # Errors
    ///
    /// As [`renew`](Self::renew) but for those about the TTL.
    pub fn downgrade(&mut self) -> Result<(), RenewError> {
        if self.hold.is_closed() {
            return Err(RenewError::Closed);
        }
        let shared = self.hold.engine().downgrade(&self.name());
        match shared {
            Ok(handle) => {
                let deadline = *self.deadline.get_mut();
                self.note((deadline, handle));
                Ok(())
            }
            Err(unchanged) => Err(renew_error(unchanged, self.token())),
        }
    }

    /// Makes a shared lease an exclusive one, once nobody else shares it: to be awaited, or blocked on
    /// with [`Upgrade::wait`]. It comes before all who wait for the key. The lease gets a new token, and
    /// lasts for `ttl` from then on, or until its old deadline if that is later. (In a session, as long as
    /// that.)
    ///
    /// Meanwhile the shared lease goes on, up to its deadline. Other entries of the same lease, if it is a
    /// reentrant one, end with the upgrade.
    ///
    /// # Errors
    ///
    /// Of two who share a key and would upgrade, the second is told
    /// [`Deadlock`](crate::AcquireError::Deadlock) at once: it must release for the first to go on.
    /// [`Lapsed`](crate::AcquireError::Lapsed) if the shared lease is over. The lease is as it was after
    /// any error. One that is exclusive already stays as it is.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::{LockManager, Mode};
    ///
    /// let locks = LockManager::new();
    /// let ttl = Duration::from_secs(10);
    /// let mut lease = locks.acquire("a", 1, ttl).shared().try_now()?;
    /// let shared = lease.token();
    /// lease.upgrade(ttl).wait()?;
    /// assert_eq!(lease.mode(), Mode::Exclusive);
    /// assert!(lease.token() > shared);
    /// lease.downgrade()?;
    /// assert_eq!(lease.mode(), Mode::Shared);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn upgrade(&mut self, ttl: Duration) -> Upgrade<'_, 'm> {
        Upgrade::new(self, ttl)
    }

    /// How it reaches its engine.
    pub(crate) fn hold(&self) -> &Hold<'m> {
        &self.hold
    }

    /// The lease has become another one.
    pub(crate) fn become_upgraded(&mut self, acquired: &Acquired) {
        self.token = acquired.token;
        self.note((acquired.deadline, acquired.handle));
    }

    /// Gives up the guard and keeps the lease, until its deadline or a
    /// [`release`](crate::LockManager::release) by the token that this returns.
    pub fn detach(self) -> FencingToken {
        let token = self.token();
        Self::discard(ManuallyDrop::new(self));
        token
    }

    /// The same guard without the borrow: it can be stored, returned, sent to another thread.
    ///
    /// It doesn't keep the manager running: when the last [`LockManager`](crate::LockManager) handle
    /// is dropped, this guard's lease is over, and its operations say `Closed`. Costs one reference
    /// count.
    pub fn into_owned(mut self) -> Lease<'static> {
        let owned = Lease {
            hold: self.hold.to_owned_hold(),
            key: self.key,
            token: self.token,
            owner: self.owner,
            place: AtomicU64::new(*self.place.get_mut()),
            state: AtomicU64::new(*self.state.get_mut()),
            deadline: AtomicU64::new(*self.deadline.get_mut()),
        };
        Self::discard(ManuallyDrop::new(self));
        owned
    }
}

impl Drop for Lease<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.token != 0 && !self.hold.is_closed() {
            // Over or not, it is over now.
            let _ = self.end();
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
        BadTtl::NoAuthority => RenewError::AuthorityLost,
    }
}

#[cold]
pub(crate) fn renew_error(unrenewed: Unrenewed, token: FencingToken) -> RenewError {
    match unrenewed {
        Unrenewed::Ended(Ended::Expired | Ended::Recorded) => RenewError::Expired { token },
        Unrenewed::Ended(Ended::NeverGranted) => RenewError::NeverGranted { token },
        Unrenewed::InSession => RenewError::InSession { token },
        Unrenewed::NoMemory => RenewError::OutOfMemory,
    }
}

#[cold]
pub(crate) fn release_error(ended: Ended, token: FencingToken) -> ReleaseError {
    match ended {
        // Of a recorded one, the engine has asked the record.
        Ended::Expired | Ended::Recorded => ReleaseError::Expired { token },
        Ended::NeverGranted => ReleaseError::NeverGranted { token },
    }
}
