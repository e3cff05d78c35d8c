//! The façade: the public verbs.

mod looking;
mod many;
mod standing;
mod stats;
mod waiting;

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

pub use self::stats::Stats;
use crate::builder::Builder;
use crate::driver::Driver;
use crate::engine::{Acquired, Begun, Denied, Engine, Request, Seen};
use crate::error::{AcquireError, ReleaseError, RenewError, RevokeError, ValidateError};
use crate::key::{Key, ToKey};
use crate::lease::{Lease, bad_ttl, release_error, renew_error};
use crate::owner::OwnerId;
use crate::process::Process;
use crate::reservation::{self, KeeperThread};
use crate::sync::Arc;
use crate::table::{Ended, Name, Wanted};
use crate::time::Timestamp;
use crate::token::FencingToken;
use crate::wish::{Mode, Wish};

/// An embedded lock manager: grants leases on keys, each with a fencing token that only rises.
///
/// Cheap to clone (two reference counts), and all clones are the same manager. When the last one is
/// dropped, the driver thread ends and leases still out say `Closed`.
///
/// # Cost
///
/// [`try_acquire`](Self::try_acquire) and a release are one compare-and-swap each on one shared
/// word, whatever the number of keys; a renewal is one. These and all operations by token are
/// lock-free. What is not: a thread's first operation on a manager and its exit, which register its
/// counters under a mutex; [`len`](Self::len) and [`stats`](Self::stats), which read them under it;
/// [`advance`](Self::advance), which only one thread does at a time (the others don't wait); and
/// whatever concerns a key that has a record: others wait for it, or somebody holds it in another way
/// than by a plain exclusive lease. That takes a lock, one of 64, and about a microsecond.
///
/// Memory follows the number of leases out at once: a cell of 64 bytes each and 27 to 48 bytes of
/// buckets, and some 900 bytes for a record with a lease in it. Keys that nobody holds cost nothing.
/// Cells are reused, and not given back to the operating system.
///
/// # After a `fork`
///
/// The parent's manager goes on. The child has a copy that it should not use: none of the manager's threads is
/// there, the default clock may stand still, what another thread was at in that moment stands still with its
/// locks, and both copies would grant the same tokens, which no resource can tell apart. It may be dropped, which
/// ends nothing, waits for nothing and gives up no authority; guards and futures are better forgotten, as in a
/// child that calls `exec` or exits. If the parent is killed, the lock of a [`File`](crate::reservation::File)
/// lasts until the child has gone as well. A manager that is made in the child is as good as any.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tenure::{AcquireError, LockManager};
///
/// let locks = LockManager::new();
/// let lease = locks.try_acquire("orders/42", 1, Duration::from_secs(10))?;
/// match locks.try_acquire("orders/42", 2, Duration::from_secs(10)) {
///     Err(AcquireError::Held { owner, token, remaining }) => {
///         assert_eq!((owner, token), (lease.owner(), lease.token()));
///         assert!(remaining > Duration::from_secs(9));
///     }
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), AcquireError>(())
/// ```
#[derive(Clone)]
pub struct LockManager {
    engine: Arc<Engine>,
    life: Arc<Life>,
}

/// What ends with the last handle.
#[derive(Debug)]
struct Life {
    engine: Arc<Engine>,
    process: Process,
    // Each ends, and is waited for, when it is dropped.
    driver: OnceLock<Driver>,
    keeper: OnceLock<KeeperThread>,
}

impl Drop for Life {
    fn drop(&mut self) {
        if !self.process.is_this() {
            // Its threads are in the parent, and maybe one that has stopped here with a lock in hand. The
            // backend of a reservation is the parent's, and must not hear that it is dropped.
            std::mem::forget(Arc::clone(&self.engine));
            return;
        }
        self.engine.close_down();
        if self.keeper.get().is_none() {
            reservation::end(&self.engine);
        }
    }
}

/// A live lease, as seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The key, as the manager stores it.
    pub key: Key,
    /// Whom the lease was granted to.
    pub owner: OwnerId,
    /// Who else may hold the key at the same time.
    pub mode: Mode,
    /// The fencing token of the grant.
    pub token: FencingToken,
    /// When the lease ends if it is not renewed, on the manager's clock.
    pub deadline: Timestamp,
    /// How long that is from the manager's now.
    pub remaining: Duration,
}

impl LockManager {
    /// A manager with the default options; see [`Builder`].
    ///
    /// If the driver thread can't be started, the manager has none: leases still end at their
    /// deadlines, as seen by every operation, but their memory comes back only as others take their
    /// keys or somebody calls [`advance`](Self::advance). [`Builder::build`] reports it instead.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build_or_without_driver()
    }

    /// A manager with other options.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn assemble(engine: Arc<Engine>) -> Self {
        let life = Arc::new(Life {
            engine: Arc::clone(&engine),
            process: Process::this(),
            driver: OnceLock::new(),
            keeper: OnceLock::new(),
        });
        Self { engine, life }
    }

    /// Hands over threads that are to end with the last handle.
    pub(crate) fn driven_by(&self, driver: Option<Driver>, keeper: Option<KeeperThread>) {
        // Each is there once.
        let _ = driver.map(|driver| self.life.driver.set(driver));
        let _ = keeper.map(|keeper| self.life.keeper.set(keeper));
    }

    /// Grants `owner` a lease of `ttl` on `key`, if nobody holds one.
    ///
    /// Never waits. The deadline counts from now and is rounded up to a tick.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Held`] says who holds the key, with which token, and for how long: a caller
    /// whose own request was answered into the void recognises itself. The others are about the TTL,
    /// the capacity, and the range and [reservation](crate::reservation) of tokens. Nothing changes in any of
    /// these cases.
    ///
    /// Under an authority with a term the lease is no longer than that, whatever the TTL:
    /// [`Lease::deadline`] tells. [`AcquireError::AuthorityLost`] says that there is none for now.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::LockManager;
    ///
    /// let locks = LockManager::new();
    /// let first = locks.try_acquire(42u64, 1, Duration::from_secs(10))?.token();
    /// // The guard above was dropped at once, which released the lease.
    /// let second = locks.try_acquire(42u64, 1, Duration::from_secs(10))?.token();
    /// assert!(second > first);
    /// # Ok::<(), tenure::AcquireError>(())
    /// ```
    #[inline(always)]
    pub fn try_acquire(
        &self,
        key: impl ToKey,
        owner: impl Into<OwnerId>,
        ttl: Duration,
    ) -> Result<Lease<'_>, AcquireError> {
        self.acquire_now(&key, owner.into(), ttl, 0)
    }

    /// The same, with a token that is at least `at_least`.
    ///
    /// This is what fencing that reaches past the process rests on: a replicated state machine
    /// passes its log index, a restarted node the start of its reserved block, a quorum of managers
    /// the highest token that any of them has seen.
    ///
    /// A token more than 2^36 above those in use makes the manager copy its table, and raises the
    /// tokens of all keys: rare jumps cost nothing, a jump with each call would.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire), and [`AcquireError::TokensExhausted`] if `at_least` is
    /// above 2^63 - 2^56: since a jump raises the tokens of all keys, the last of them are kept for
    /// what is granted afterwards.
    #[inline(always)]
    pub fn try_acquire_at_least(
        &self,
        key: impl ToKey,
        owner: impl Into<OwnerId>,
        ttl: Duration,
        at_least: FencingToken,
    ) -> Result<Lease<'_>, AcquireError> {
        self.acquire_now(&key, owner.into(), ttl, at_least.get())
    }

    #[inline(always)]
    fn acquire_now(
        &self,
        named: &impl ToKey,
        owner: OwnerId,
        ttl: Duration,
        at_least: u64,
    ) -> Result<Lease<'_>, AcquireError> {
        let key = named.to_key(&self.engine.seed);
        let request = Request {
            key,
            owner: owner.0,
            ttl,
            at_least,
        };
        let acquired = match self.engine.grant(request) {
            Ok(acquired) => acquired,
            Err(begun) if begun.is_checked() => match self.engine.refuse(begun, key) {
                Ok(denied) => return Err(denied.into()),
                // A copy: the original stays in registers.
                Err(begun) => self.engine.grant_more(begun, &{ request })?,
            },
            Err(begun) => self.acquire_otherwise(begun, &{ request }, named)?,
        };
        Ok(Lease::new(&self.engine, key, owner, &acquired))
    }

    /// What takes no short path, maybe since the manager keeps names.
    #[cold]
    #[inline(never)]
    fn acquire_otherwise(
        &self,
        begun: Begun,
        request: &Request,
        named: &impl ToKey,
    ) -> Result<Acquired, Denied> {
        if !self.engine.keeps_names() {
            return self.engine.grant_more(begun, request);
        }
        let mut wish = Wish::plain(*request);
        wish.name = named.name();
        self.engine.grant_named(begun, &wish)
    }

    /// Renews by token: makes the lease last for `ttl` from now, and returns its deadline.
    ///
    /// For servers whose holders are remote. Like [`Lease::renew`], except that it first looks the
    /// key up.
    ///
    /// # Errors
    ///
    /// [`RenewError::Expired`] if that grant is over, [`RenewError::NeverGranted`] if there was none
    /// such, [`RenewError::AuthorityLost`] if the manager may renew nothing for now, and those about the TTL.
    /// No other lease is touched (I6).
    pub fn renew(
        &self,
        key: impl ToKey,
        token: FencingToken,
        ttl: Duration,
    ) -> Result<Timestamp, RenewError> {
        let engine = &*self.engine;
        let now = engine.time.now();
        let wanted = match engine.time.renewal(now, ttl) {
            Ok(wanted) => wanted,
            Err(bad) => return Err(bad_ttl(ttl, bad)),
        };
        let name = engine.name(key.to_key(&engine.seed), token.get());
        match engine.renew_short(&name, &wanted) {
            Some(deadline) => Ok(engine.time.start_of(deadline)),
            None => self.renew_otherwise(&name, wanted.ticks().1, now),
        }
    }

    /// What is not a simple renewal.
    #[cold]
    #[inline(never)]
    fn renew_otherwise(
        &self,
        name: &Name,
        deadline: u64,
        now: u64,
    ) -> Result<Timestamp, RenewError> {
        match self.engine.renew_by_key(name, deadline, now) {
            Ok((deadline, _)) => Ok(self.engine.time.start_of(deadline)),
            Err(unrenewed) => Err(renew_error(unrenewed, FencingToken::granted(name.token))),
        }
    }

    /// Releases by token.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::Expired`] if that grant was over before, [`ReleaseError::NeverGranted`] if
    /// there was none such. No other lease is touched (I6): the successor of an expired holder keeps
    /// its own. (If the guard's own release or a revocation runs at the same moment, both may
    /// succeed; the lease ends once.)
    pub fn release(&self, key: impl ToKey, token: FencingToken) -> Result<(), ReleaseError> {
        let engine = &*self.engine;
        let name = engine.name(key.to_key(&engine.seed), token.get());
        let now = engine.time.now();
        if engine.release_short(&name, now) {
            return Ok(());
        }
        let released = engine.release_by_key(&name, now);
        released.map_err(|ended| release_error(ended, token))
    }

    /// Whether `token` names the live lease of `key`; if so, that lease.
    ///
    /// The answer is of the moment it was found. To protect a resource, let the resource check the
    /// token ([`Fenced`](crate::Fenced)).
    ///
    /// # Errors
    ///
    /// [`ValidateError::Expired`] if that grant is over, [`ValidateError::NeverGranted`] if there
    /// was none such.
    pub fn validate(&self, key: impl ToKey, token: FencingToken) -> Result<Holder, ValidateError> {
        let engine = &*self.engine;
        let now = engine.time.now();
        let name = engine.name(key.to_key(&engine.seed), token.get());
        if let Some(found) = engine.live_short(name.key, name.hash, now)
            && found.token == name.token
        {
            return Ok(self.holder_of(&Seen::plain(found), now));
        }
        match engine.validate(&name, now) {
            Ok(seen) => Ok(self.holder_of(&seen, now)),
            Err(Ended::Expired | Ended::Recorded) => Err(ValidateError::Expired { token }),
            Err(Ended::NeverGranted) => Err(ValidateError::NeverGranted { token }),
        }
    }

    /// Ends the live lease of `key`, whoever holds it, and says whose it was. Of a key with several, all
    /// of them, and says whose the first was.
    ///
    /// Its holder learns of it at its next renewal or release, and a fenced resource rejects its
    /// writes once the next holder has written. (A release at the very same moment may say `Ok` as
    /// well; the lease ends once, and is counted once.)
    ///
    /// # Errors
    ///
    /// [`RevokeError::NotHeld`] if nobody holds the key.
    pub fn revoke(&self, key: impl ToKey) -> Result<Holder, RevokeError> {
        let now = self.engine.time.now();
        let revoked = self.engine.revoke(key.to_key(&self.engine.seed), now);
        match revoked.first() {
            Some(seen) => Ok(self.holder_of(seen, now)),
            None => Err(RevokeError::NotHeld),
        }
    }

    /// Leases out, those included whose deadline has passed and which nobody has come upon yet.
    ///
    /// Exact when no other thread is at work. Takes time in the number of threads.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.engine.totals().leases).unwrap_or(0)
    }

    /// Whether no lease is out; see [`len`](Self::len).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends the leases whose deadline has passed, does a share of a resize under way, and says how
    /// many leases it ended.
    ///
    /// The driver thread calls this; without one, call it from your own loop at each
    /// [`next_wakeup`](Self::next_wakeup), or as often as you like. Leases end at their deadlines for
    /// every other operation whether it is called or not; this gives their memory back and counts
    /// them. If another thread is in it, this one returns at once.
    #[expect(clippy::must_use_candidate, reason = "it is called for its effect")]
    pub fn advance(&self) -> usize {
        usize::try_from(self.engine.advance()).unwrap_or(usize::MAX)
    }

    /// When [`advance`](Self::advance) next has something to do; `None` if it has nothing to do.
    ///
    /// Sometimes early, since the wheel has to move a lease that ends much later, and looks at one that was
    /// released when its deadline would have come; never late. While another thread turns the wheel (by `advance`,
    /// or since it found `max_keys` leases out), it is now. A grant or renewal made after this call, or not yet
    /// done, may need an earlier one. Looks at up to 320 cache lines for each core, and for 16 at the most.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        self.engine
            .next_wakeup()
            .map(|tick| self.engine.time.start_of(tick))
    }

    /// The manager's clock, read as its operations read it.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.engine.time.now())
    }

    /// The length of a tick: what deadlines are rounded up to.
    #[must_use]
    pub fn tick(&self) -> Duration {
        self.engine.time.tick()
    }

    /// A key as this manager stores it: what [`Holder::key`] and [`Lease::key`] say.
    #[must_use]
    pub fn key(&self, key: impl ToKey) -> Key {
        key.to_key(&self.engine.seed)
    }

    fn holder_of(&self, seen: &Seen, now: u64) -> Holder {
        let lease = &seen.contents;
        Holder {
            mode: seen.mode,
            key: lease.key,
            owner: OwnerId(lease.owner),
            token: FencingToken::granted(lease.token),
            deadline: self.engine.time.start_of(lease.deadline),
            remaining: self.engine.time.until(lease.deadline, now),
        }
    }

    fn live(&self, seen: &Seen, now: u64) -> Option<Holder> {
        let live = seen.contents.deadline > self.engine.time.tick_of(now);
        live.then(|| self.holder_of(seen, now))
    }
}

impl Default for LockManager {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for LockManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockManager")
            .field("stats", &self.stats())
            .field("driver", &self.life.driver.get().is_some())
            .finish_non_exhaustive()
    }
}
