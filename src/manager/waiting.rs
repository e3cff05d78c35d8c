//! The verbs of those who wait, and of those who want more than a plain lease.

use std::time::Duration;

use super::LockManager;
use crate::acquire::Acquire;
use crate::engine::Request;
use crate::error::{AcquireError, Cycle};
use crate::hold::Hold;
use crate::key::ToKey;
use crate::multi::AcquireAll;
use crate::owner::OwnerId;
use crate::session::Session;
use crate::wish::Wish;

impl LockManager {
    /// Acquires the lease as soon as it is this caller's turn: to be awaited, or blocked on with
    /// [`Acquire::wait`].
    ///
    /// Acquisitions of one key are granted in the order of their arrival, which is their first poll or
    /// the call of `wait`. While somebody waits, nobody else is granted the key, `try_acquire` included.
    /// The lease of a holder who dies passes on within a tick of its deadline, if the wheel is turned by
    /// then ([`advance`](Self::advance)).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future at any moment gives up its place, and a lease that was granted meanwhile is
    /// given to the next.
    ///
    /// # Errors
    ///
    /// The future's are those of [`try_acquire`](Self::try_acquire) except `Held`, and `QueueFull`,
    /// `TimedOut` and `Closed`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::thread;
    /// use std::time::Duration;
    /// use tenure::LockManager;
    ///
    /// let locks = LockManager::new();
    /// let ttl = Duration::from_secs(10);
    /// let held = locks.try_acquire("a", 1, ttl)?;
    /// thread::scope(|scope| {
    ///     let waiting = scope.spawn(|| {
    ///         let lease = locks.acquire("a", 2, ttl).wait()?;
    ///         Ok::<_, tenure::AcquireError>(lease.token())
    ///     });
    ///     let token = held.token();
    ///     held.release().expect("not expired");
    ///     assert!(waiting.join().expect("no panic").expect("granted") > token);
    /// });
    /// # Ok::<(), tenure::AcquireError>(())
    /// ```
    pub fn acquire(
        &self,
        key: impl ToKey,
        owner: impl Into<OwnerId>,
        ttl: Duration,
    ) -> Acquire<'_> {
        let request = Request {
            key: key.to_key(&self.engine.seed),
            owner: owner.into().0,
            ttl,
            at_least: 0,
        };
        let mut wish = Wish::plain(request);
        if self.engine.keeps_names() {
            wish.name = key.name();
        }
        Acquire::new(Hold::Borrowed(&self.engine), wish)
    }

    /// Acquires several keys, all or nothing: one guard, one deadline, which counts from the last grant, and
    /// a token for each key. To be awaited, or blocked on with [`AcquireAll::wait_timeout`].
    ///
    /// The keys are acquired in one order, whoever asks and in whichever order they are given, so those who
    /// ask in this way never wait for each other in a circle. While some are missing, those already
    /// granted are held without a deadline, until the future is dropped: bound the wait. (Others are told of
    /// them as if the last came at that moment.) If one of them is revoked meanwhile, all are given back and
    /// asked for anew.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire). Nothing is held after an error.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::LockManager;
    ///
    /// let locks = LockManager::new();
    /// let (ttl, patience) = (Duration::from_secs(10), Duration::from_secs(1));
    /// let both = locks.acquire_all(["from", "to"], 1, ttl).wait_timeout(patience)?;
    /// assert_eq!(both.tokens().len(), 2);
    /// both.release()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn acquire_all<K: ToKey>(
        &self,
        keys: impl IntoIterator<Item = K>,
        owner: impl Into<OwnerId>,
        ttl: Duration,
    ) -> AcquireAll<'_> {
        let seed = &self.engine.seed;
        let named = self.engine.keeps_names();
        let keys = keys.into_iter().map(|key| {
            let name = if named { key.name() } else { None };
            (key.to_key(seed), name)
        });
        let keys = keys.collect();
        AcquireAll::new(Hold::Borrowed(&self.engine), keys, owner.into(), ttl)
    }

    /// Opens a session: one TTL over any number of leases.
    ///
    /// # Errors
    ///
    /// Those about the TTL.
    pub fn session(
        &self,
        owner: impl Into<OwnerId>,
        ttl: Duration,
    ) -> Result<Session<'_>, AcquireError> {
        self.engine.session(owner.into(), ttl)
    }

    /// The last 16 deadlocks that were found, the oldest first; see
    /// [`deadlock_detection`](crate::Builder::deadlock_detection). (Two who would upgrade the same key are
    /// told without it.)
    #[must_use]
    pub fn deadlocks(&self) -> Vec<Cycle> {
        self.engine.deadlocks()
    }

    /// How many acquisitions wait at the moment.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.engine.waiting()
    }
}
