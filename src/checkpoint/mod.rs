//! Checkpoints: all that a manager knows of its leases, as a value that outlives it.
//!
//! A checkpoint is taken while traffic goes on (`engine/restore.rs`), and checked in one place, here,
//! whatever it comes from.

#[cfg(feature = "serde")]
mod bytes;
mod content;
mod error;

use std::fmt;
use std::time::Duration;

pub(crate) use self::content::{Content, FORMAT, Kept, Log, Renewal, Saved, Terms};
pub use self::error::RestoreError;
use crate::builder::Builder;
use crate::key::{HashSeed, Key};
use crate::manager::{Holder, LockManager};
use crate::owner::OwnerId;
use crate::table::Origin;
use crate::time::Timestamp;
use crate::token::FencingToken;

/// The live leases of a manager with their tokens and the time that they had left, the keys that are kept
/// free, and a floor under all tokens to come: made by [`LockManager::checkpoint`], or by a
/// [`Replica`](crate::replica::Replica), which adds its log index.
///
/// [`Builder::restore`] makes a manager of it that goes on where the other one was. With the feature
/// `serde` it is written and read in any format; `to_bytes` and `from_bytes` are a compact one with a
/// checksum. Whatever it is read from is checked: a checkpoint that exists can be restored, if the
/// options of the manager allow.
///
/// It contains the manager's [`HashSeed`], since long keys are hashed under that: keep it as the secret
/// that it is.
///
/// ```
/// use std::time::Duration;
/// use tenure::{LockManager, ManualClock};
///
/// let locks = LockManager::builder().clock(ManualClock::new()).build()?;
/// let token = locks.try_acquire("a", 1, Duration::from_secs(10))?.detach();
/// let checkpoint = locks.checkpoint();
/// assert_eq!((checkpoint.len(), checkpoint.floor()), (1, Some(token)));
///
/// let restored = LockManager::builder().clock(ManualClock::new()).restore(&checkpoint)?;
/// restored.renew("a", token, Duration::from_secs(20))?;
/// restored.release("a", token)?;
/// assert!(restored.try_acquire("a", 2, Duration::from_secs(10))?.token() > token);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Checkpoint {
    content: Content,
}

impl Checkpoint {
    /// Of a manager's or a replica's own, which is a good one; but its floor may be too high to be restored, if
    /// the manager itself was made of one whose floor was nearly so.
    pub(crate) fn new(content: Content) -> Self {
        debug_assert!(
            matches!(content.check(), Ok(()) | Err(RestoreError::Floor { .. })),
            "{:?}",
            content.check()
        );
        Self { content }
    }

    pub(crate) fn content(&self) -> &Content {
        &self.content
    }

    /// The number of leases in it.
    ///
    /// ```
    /// assert_eq!(tenure::LockManager::new().checkpoint().len(), 0);
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.content.leases.len()
    }

    /// Whether there is no lease in it.
    ///
    /// ```
    /// assert!(tenure::LockManager::new().checkpoint().is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.content.leases.is_empty()
    }

    /// The leases, sorted by key, and those of one key by token. Their deadlines are on the clock of the
    /// manager that they were taken of; what remained of them is from the moment [`now`](Self::now) on.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::LockManager;
    ///
    /// let locks = LockManager::new();
    /// let lease = locks.try_acquire("a", 7, Duration::from_secs(10))?;
    /// let checkpoint = locks.checkpoint();
    /// let saved = checkpoint.leases().next().expect("one lease");
    /// assert_eq!((saved.owner, saved.token), (lease.owner(), lease.token()));
    /// # Ok::<(), tenure::AcquireError>(())
    /// ```
    pub fn leases(&self) -> impl Iterator<Item = Holder> + '_ {
        self.content.leases.iter().map(|saved| Holder {
            key: saved.key,
            owner: OwnerId(saved.owner),
            mode: saved.mode,
            token: FencingToken::granted(saved.token),
            deadline: Timestamp::from_nanos(self.content.now.saturating_add(saved.remaining)),
            remaining: Duration::from_nanos(saved.remaining),
        })
    }

    /// The keys that nobody is granted, since they are kept free, and for how long; sorted.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::LockManager;
    ///
    /// let locks = LockManager::new();
    /// let ttl = Duration::from_secs(10);
    /// let lease = locks.acquire("a", 1, ttl).min_hold(ttl).try_now()?;
    /// lease.release()?;
    /// let checkpoint = locks.checkpoint();
    /// let (key, remaining) = checkpoint.delayed().next().expect("one key");
    /// assert_eq!(key, locks.key("a"));
    /// assert!(remaining > Duration::from_secs(9));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn delayed(&self) -> impl Iterator<Item = (Key, Duration)> + '_ {
        let kept = self.content.kept.iter();
        kept.map(|kept| (kept.key, Duration::from_nanos(kept.remaining)))
    }

    /// All tokens of a restored manager are above this one; `None` if none had been granted.
    ///
    /// No token that was granted before the checkpoint was asked for is above it, nor one of a lease in it.
    ///
    /// ```
    /// assert_eq!(tenure::LockManager::new().checkpoint().floor(), None);
    /// ```
    #[must_use]
    pub fn floor(&self) -> Option<FencingToken> {
        FencingToken::new(self.content.floor).ok()
    }

    /// Raises the floor to that token, if it is lower: for whoever knows of tokens that were granted after
    /// the checkpoint had been taken, as the resource does that has seen them.
    ///
    /// # Errors
    ///
    /// [`RestoreError::Floor`] if hardly any tokens are left above it: it is 2^63 - 2^56 or more.
    /// [`RestoreError::Replica`] if the checkpoint is of a replica, whose tokens are its log's.
    ///
    /// ```
    /// use tenure::{FencingToken, LockManager};
    ///
    /// let mut checkpoint = LockManager::new().checkpoint();
    /// let seen = FencingToken::new(1000)?;
    /// checkpoint.raise_floor(seen)?;
    /// assert_eq!(checkpoint.floor(), Some(seen));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn raise_floor(&mut self, token: FencingToken) -> Result<(), RestoreError> {
        let floor = token.get();
        if floor > content::MAX_RAISED {
            return Err(RestoreError::Floor { floor });
        }
        if self.content.log.is_some() {
            let reason = "its floor is its log index, which must not be raised";
            return Err(RestoreError::Replica { reason });
        }
        self.content.floor = self.content.floor.max(floor);
        Ok(())
    }

    /// What the manager's clock said when the checkpoint was begun: leases had so much remaining then.
    ///
    /// ```
    /// let locks = tenure::LockManager::new();
    /// let before = locks.now();
    /// assert!(locks.checkpoint().now() >= before);
    /// ```
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.content.now)
    }

    /// The length of the manager's tick.
    ///
    /// ```
    /// let locks = tenure::LockManager::new();
    /// assert_eq!(locks.checkpoint().tick(), locks.tick());
    /// ```
    #[must_use]
    pub fn tick(&self) -> Duration {
        Duration::from_nanos(self.content.tick)
    }

    /// The seed under which long keys are hashed.
    ///
    /// ```
    /// use tenure::{HashSeed, LockManager};
    ///
    /// let seed = HashSeed::new(5);
    /// let locks = LockManager::builder().hash_seed(seed).build()?;
    /// assert_eq!(locks.checkpoint().hash_seed(), seed);
    /// # Ok::<(), tenure::BuildError>(())
    /// ```
    #[must_use]
    pub fn hash_seed(&self) -> HashSeed {
        self.content.seed
    }

    /// Of a replica, the index of the last command that was applied.
    ///
    /// ```
    /// assert_eq!(tenure::LockManager::new().checkpoint().last_applied(), None);
    /// ```
    #[must_use]
    pub fn last_applied(&self) -> Option<u64> {
        self.content.log.map(|log| log.last_applied)
    }
}

/// Without the leases, of which there may be millions.
impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint")
            .field("leases", &self.len())
            .field("floor", &self.floor())
            .field("now", &self.now())
            .field("tick", &self.tick())
            .field("last_applied", &self.last_applied())
            .finish_non_exhaustive()
    }
}

impl LockManager {
    /// All live leases, the keys that are kept free, and a floor under the tokens to come, as a value that a
    /// later manager can be made of.
    ///
    /// It is taken while traffic goes on, and stops nobody: it takes the locks of records one at a time.
    /// Each key is as it was at one moment of the call, and different keys at different ones; a lease that
    /// is held throughout is in it, whatever becomes of it meanwhile: shared, upgraded, renewed, moved as
    /// the table grows. What happens to a key after its moment is not: a renewal, a new lease, or the end of one.
    /// So end the traffic first if the next manager is to go on at exactly this point; and if the process may
    /// die later than its last checkpoint, have a [`Reservation`](crate::reservation::Reservation), or
    /// [raise the floor](Checkpoint::raise_floor) to what the resources have seen.
    ///
    /// Not part of it: who waits (they were calls of the process that is gone), subscribers, statistics,
    /// names. A lease in a session is a lease of its own from then on, which lasts as long as the session
    /// would have without another keep-alive, since its handle is gone.
    ///
    /// Takes time and memory in the number of leases and buckets: some 0.9 s for a million leases, and
    /// 65 µs for none.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::LockManager;
    ///
    /// let locks = LockManager::new();
    /// let _held = locks.try_acquire("a", 1, Duration::from_secs(10))?;
    /// assert_eq!(locks.checkpoint().len(), 1);
    /// # Ok::<(), tenure::AcquireError>(())
    /// ```
    #[must_use]
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint::new(self.engine().save())
    }
}

impl Builder {
    /// Makes a manager that goes on where the one of the checkpoint was.
    ///
    /// Its leases have the same keys, owners, tokens, modes and terms, and can be renewed, released and
    /// validated by token. The time that they had left runs from now on, and is rounded up to a tick (I3).
    /// Leases that were over when it was taken stay over (I4); one that was released, revoked or has expired since
    /// is live again, for as long as it had left. One that the manager renews (`auto_renew`) is renewed on, up to
    /// its maximum, though nobody may have a guard of it any more: revoke it if its holder is gone. All new tokens
    /// are above the floor, and so above every one that was granted before the checkpoint (I2). Leases that are
    /// restored count as granted.
    ///
    /// The manager has the hash seed of the checkpoint, and all else from this builder: the tick and the
    /// clock may be others. Its limits on TTLs are for what is asked from now on.
    ///
    /// With a [reservation](Self::reservation), new tokens are of its blocks as well, and no lease lasts longer than
    /// the authority. If somebody else has that, nothing is restored: they grant its keys.
    ///
    /// # Errors
    ///
    /// [`RestoreError::HashSeed`] if another one was given, [`RestoreError::MaxKeys`] if there are more
    /// leases than `max_keys`, [`RestoreError::TooLong`] if one ends after what the manager can count, and
    /// what [`build`](Self::build) says.
    ///
    /// Takes some 1.5 s for a million leases.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::LockManager;
    ///
    /// let locks = LockManager::new();
    /// let token = locks.try_acquire("a", 1, Duration::from_secs(10))?.detach();
    /// let restored = LockManager::builder().restore(&locks.checkpoint())?;
    /// assert_eq!(restored.holder("a").map(|holder| holder.token), Some(token));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn restore(self, checkpoint: &Checkpoint) -> Result<LockManager, RestoreError> {
        self.restore_with_grace(checkpoint, Duration::ZERO)
    }

    /// The same, with so much more time for each lease, and for what the manager may renew it up to: for
    /// holders who have to find the new manager first.
    ///
    /// # Errors
    ///
    /// As [`restore`](Self::restore).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::LockManager;
    ///
    /// let ttl = Duration::from_secs(10);
    /// let locks = LockManager::new();
    /// locks.try_acquire("a", 1, ttl)?.detach();
    /// let checkpoint = locks.checkpoint();
    /// let restored = LockManager::builder().restore_with_grace(&checkpoint, 2 * ttl)?;
    /// assert!(restored.holder("a").is_some_and(|holder| holder.remaining > 2 * ttl));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn restore_with_grace(
        self,
        checkpoint: &Checkpoint,
        grace: Duration,
    ) -> Result<LockManager, RestoreError> {
        let origin = Origin {
            floor: checkpoint.content.floor,
            exact: false,
        };
        self.restore_from(checkpoint, grace, origin)
    }

    pub(crate) fn restore_from(
        self,
        checkpoint: &Checkpoint,
        grace: Duration,
        origin: Origin,
    ) -> Result<LockManager, RestoreError> {
        let content = checkpoint.content();
        let floor = content.floor;
        if floor > content::MAX_FLOOR {
            return Err(RestoreError::Floor { floor });
        }
        if self.given_seed().is_some_and(|given| given != content.seed) {
            return Err(RestoreError::HashSeed);
        }
        let builder = self.hash_seed(content.seed).origin(origin);
        builder.build_with(|engine| engine.restore(content, grace))
    }
}
