//! Leader election: one key, whose holder leads.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::derived;
use super::observer::Observer;
use crate::{
    Acquire, AcquireError, FencingToken, Holder, Key, Lease, LockManager, Lost, OwnerId,
    ReleaseError, RenewError, Timestamp, ToKey,
};

/// An election: of all that campaign, one at a time leads, in the order in which they came.
///
/// The leader holds a lease on the election's key. It leads until it resigns, until its lease expires for
/// want of a [`keep_alive`](Leadership::keep_alive), or until it is [deposed](Self::depose); then the
/// next in the queue leads, with a greater token. Elections of one name on one manager are the same
/// election, and clones are too.
///
/// # Cost
///
/// A campaign is one acquisition, and one look for observers. Each observer that waits holds one lease,
/// and looks the leader up at each change, whenever the leader's lease would have ended, and once a
/// second.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tenure::LockManager;
/// use tenure::recipes::Election;
///
/// let locks = LockManager::new();
/// let election = Election::new(&locks, "indexer");
/// let ttl = Duration::from_secs(10);
///
/// let first = election.campaign(1, ttl).wait()?;
/// assert_eq!(election.leader().map(|leader| leader.token), Some(first.token()));
/// assert!(election.campaign(2, ttl).try_now().is_err());
///
/// first.keep_alive()?;
/// let term = first.token();
/// first.resign()?;
/// let second = election.campaign(2, ttl).wait()?;
/// assert!(second.token() > term);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Election {
    pub(super) locks: LockManager,
    key: Key,
    /// What observers hold their watches on.
    pub(super) watched: Key,
}

/// Who leads, as seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// Who campaigned.
    pub owner: OwnerId,
    /// The fencing token of the term: greater than those of all terms before.
    pub token: FencingToken,
    /// When the term ends if the leader does not keep it alive, on the manager's clock.
    pub deadline: Timestamp,
    /// How long that was from the moment when the leader was looked up.
    pub remaining: Duration,
}

impl From<Holder> for Leader {
    fn from(holder: Holder) -> Self {
        Self {
            owner: holder.owner,
            token: holder.token,
            deadline: holder.deadline,
            remaining: holder.remaining,
        }
    }
}

impl Election {
    /// The election of that name. The leader's lease is on the key of this very name, so
    /// [`LockManager::holder`] and [`LockManager::validate`] know it too.
    #[must_use]
    pub fn new(locks: &LockManager, name: impl ToKey) -> Self {
        let key = locks.key(name);
        Self {
            watched: derived(locks, "election/watched", key, 0),
            locks: locks.clone(),
            key,
        }
    }

    /// The key that the leader holds.
    #[must_use]
    pub fn key(&self) -> Key {
        self.key
    }

    /// Stands for election as `owner`: to be awaited, or blocked on with [`Campaign::wait`]. It is won when
    /// all who came before have led or given up, and the leader's lease then lasts for `ttl`.
    pub fn campaign(&self, owner: impl Into<OwnerId>, ttl: Duration) -> Campaign {
        Campaign {
            acquire: self.locks.acquire(self.key, owner, ttl).into_owned(),
            ttl,
            announcer: Announcer(self.clone()),
        }
    }

    /// Who leads at the moment, if anybody does. Costs as much as [`LockManager::holder`].
    #[must_use]
    pub fn leader(&self) -> Option<Leader> {
        self.locks.holder(self.key).map(Leader::from)
    }

    /// Follows who leads, from now on.
    #[must_use]
    pub fn observe(&self) -> Observer {
        Observer::new(self)
    }

    /// Ends the term of whoever leads, and says who that was; `None` if nobody did. It is an unclean end:
    /// a lock-delay that the leader asked for begins.
    ///
    /// [`LockManager::revoke`] does the same, except that observers learn of it up to a second later.
    pub fn depose(&self) -> Option<Leader> {
        let revoked = self.locks.revoke(self.key).ok();
        self.announce();
        revoked.map(Leader::from)
    }

    /// Has all observers look again. Comes after the change.
    fn announce(&self) {
        // If nobody watches, nobody has to be told.
        let _ = self.locks.revoke(self.watched);
    }
}

/// Tells all observers when it is dropped. A field after what changes the leadership by its own drop.
struct Announcer(Election);

impl Drop for Announcer {
    fn drop(&mut self) {
        self.0.announce();
    }
}

/// A candidacy, made by [`Election::campaign`]: a future of the leadership.
///
/// Needs no particular runtime. Its place in the queue is taken at the first poll, or by one of the
/// blocking methods.
///
/// # Errors
///
/// Those of [`LockManager::acquire`].
///
/// # Cancel safety
///
/// May be dropped at any time: the place in the queue is given up, and if the election was won meanwhile,
/// the next in the queue leads.
#[must_use = "a campaign does nothing until it is awaited or waited for"]
pub struct Campaign {
    acquire: Acquire<'static>,
    ttl: Duration,
    /// It may win without knowing, and be seen to lead; or pass that on as it is dropped.
    announcer: Announcer,
}

impl Campaign {
    /// If the term ends uncleanly, nobody leads for so long after it; see [`Acquire::lock_delay`].
    pub fn lock_delay(self, delay: Duration) -> Self {
        let acquire = self.acquire.lock_delay(delay);
        Self { acquire, ..self }
    }

    /// Has the manager keep the leadership alive, until it is resigned or has lasted for `max_term`; see
    /// [`Acquire::auto_renew`]. The manager can't know whether the leader is still at work: a leader that
    /// hangs leads on until then.
    pub fn auto_renew(self, max_term: Duration) -> Self {
        let acquire = self.acquire.auto_renew(max_term);
        Self { acquire, ..self }
    }

    /// Blocks until the election is won.
    ///
    /// # Errors
    ///
    /// See [`Campaign`].
    pub fn wait(self) -> Result<Leadership, AcquireError> {
        let lease = self.acquire.wait();
        Leadership::new(lease, &self.announcer.0, self.ttl)
    }

    /// Blocks for so long at most, in real time. If the election is not won by then, the place in the queue
    /// is given up.
    ///
    /// # Errors
    ///
    /// Also [`AcquireError::TimedOut`].
    pub fn wait_timeout(self, timeout: Duration) -> Result<Leadership, AcquireError> {
        let lease = self.acquire.wait_timeout(timeout);
        Leadership::new(lease, &self.announcer.0, self.ttl)
    }

    /// Wins the election at once, or says why not. Never waits.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Held`] says who leads and for how long; [`AcquireError::Delayed`] that nobody may
    /// lead yet. The others are as for [`Campaign`].
    pub fn try_now(self) -> Result<Leadership, AcquireError> {
        let lease = self.acquire.try_now();
        Leadership::new(lease, &self.announcer.0, self.ttl)
    }
}

impl Future for Campaign {
    type Output = Result<Leadership, AcquireError>;

    /// # Panics
    ///
    /// None; polled again after its end, it stays pending.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match Pin::new(&mut self.acquire).poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(lease) => {
                let election = &self.announcer.0;
                // It may be dropped much later.
                election.announce();
                Poll::Ready(Leadership::new(lease, election, self.ttl))
            }
        }
    }
}

impl fmt::Debug for Campaign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Campaign")
            .field("acquire", &self.acquire)
            .finish_non_exhaustive()
    }
}

/// The leadership, as a guard: dropping it resigns.
///
/// The guard is a claim, not a proof: a leader that was paused for longer than its TTL has a successor, and
/// both may be at work. So pass [`token`](Self::token) along with every write, to a resource that rejects
/// old ones ([`Fenced`](crate::Fenced)).
#[must_use = "dropping the leadership resigns"]
pub struct Leadership {
    lease: Lease<'static>,
    ttl: Duration,
    announcer: Announcer,
}

impl Leadership {
    fn new(
        lease: Result<Lease<'static>, AcquireError>,
        election: &Election,
        ttl: Duration,
    ) -> Result<Self, AcquireError> {
        Ok(Self {
            lease: lease?,
            ttl,
            announcer: Announcer(election.clone()),
        })
    }

    /// Who leads.
    #[must_use]
    pub fn owner(&self) -> OwnerId {
        self.lease.owner()
    }

    /// The fencing token of this term: greater than those of all terms before.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.lease.token()
    }

    /// When the term ends if it is not kept alive, or ended, on the manager's clock.
    #[must_use]
    pub fn deadline(&self) -> Timestamp {
        self.lease.deadline()
    }

    /// How long the term still lasts; zero once it is over.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.lease.remaining()
    }

    /// Whether the term is in force. The answer is of the moment it was found: see [`Leadership`].
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.lease.is_live()
    }

    /// Makes the term last for the campaign's TTL from now, and returns its deadline. Never shortens it.
    /// Call it at least three times in a TTL. Costs as much as [`Lease::renew`].
    ///
    /// # Errors
    ///
    /// [`RenewError::Expired`] if the term is over: stop leading, and campaign again.
    pub fn keep_alive(&self) -> Result<Timestamp, RenewError> {
        self.renew(self.ttl)
    }

    /// The same with another TTL.
    ///
    /// # Errors
    ///
    /// As [`Lease::renew`].
    pub fn renew(&self, ttl: Duration) -> Result<Timestamp, RenewError> {
        self.lease.renew(ttl)
    }

    /// Resolves when the term is over, and says how it ended: to be awaited, or blocked on; see
    /// [`Lease::lost`].
    pub fn lost(&self) -> Lost {
        self.lease.lost()
    }

    /// Hands the leadership to the next in the queue, if there is one. Dropping the guard does the same and
    /// says nothing.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::Expired`] if the term was over before: whatever was done under it since its deadline
    /// was done without it.
    pub fn resign(self) -> Result<(), ReleaseError> {
        let released = self.lease.release();
        drop(self.announcer);
        released
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership")
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}
