//! Following who leads: how changes become known.
//!
//! The manager tells a holder of its own end, and nobody else. So whoever observes an election holds a
//! lease too, a *watch*: a shared lease on a companion key, which is revoked by whoever changes the
//! leadership. It is a watch of `ZooKeeper`'s kind, for one change, and placed before the leader is looked
//! up:
//!
//! ```text
//!   observer                          candidate
//!   place a watch  (1)                is granted the key  (a)
//!   look up the leader  (2)           revoke the watches  (b)
//!   sleep until the watch is over
//! ```
//!
//! If (1) comes before (b), the watch is revoked and the observer looks again. If it comes after, then (2)
//! comes after (a), and sees the leader. Either way the newest leader is seen.
//!
//! A leader that dies revokes nothing. So a watch ends with the lease of the leader that was seen, and no
//! later than [`RECHECK`] after it was placed: that is also what bounds the delay when a lease on the key
//! is granted, released or revoked past the election.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::election::{Election, Leader};
use crate::{AcquireError, FencingToken, Lease, Lost, OwnerId};

/// How long an observer relies on being told, on the manager's clock.
const RECHECK: Duration = Duration::from_secs(1);

/// What tells an observer to look again.
#[derive(Debug)]
struct Watch {
    over: Lost,
    /// Nobody holds a watch for an observer that is gone.
    _lease: Lease<'static>,
}

impl Watch {
    /// A watch that ends with the leader's lease, or in a second.
    fn place(election: &Election, leader: Option<Leader>) -> Result<Self, AcquireError> {
        let place = |ttl| {
            let watch = election
                .locks
                .acquire(election.watched, OwnerId::default(), ttl);
            watch.shared().try_now()
        };
        let ttl = leader.map_or(RECHECK, |leader| leader.remaining.min(RECHECK));
        let lease = match place(ttl) {
            Err(AcquireError::TtlTooShort { min, .. }) => place(min)?,
            Err(AcquireError::TtlTooLong { max, .. }) => place(max)?,
            placed => placed?,
        };
        Ok(Self {
            over: lease.lost(),
            _lease: lease.into_owned(),
        })
    }
}

/// Who leads, or that nobody does.
#[derive(Clone, Copy, Debug)]
struct Standing(Option<Leader>);

impl Standing {
    fn term(self) -> Option<FencingToken> {
        self.0.map(|leader| leader.token)
    }
}

/// Follows who leads, made by [`Election::observe`].
///
/// Tells the newest leader, and not each one: whoever led for a moment between two looks may be left out.
/// What it tells has a token that only rises, and after the last change it tells who leads since. How soon:
/// at once if the change was made by a campaign, a resignation or [`Election::depose`]; within a tick of the
/// leader's deadline, if the wheel is turned by then; and within a second if a lease on the key was
/// granted, released or revoked past the election.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tenure::LockManager;
/// use tenure::recipes::Election;
///
/// let election = Election::new(&LockManager::new(), "indexer");
/// let mut observer = election.observe();
/// assert_eq!(observer.wait()?, None, "the first answer comes at once");
///
/// let leadership = election.campaign(1, Duration::from_secs(10)).wait()?;
/// assert_eq!(observer.wait()?.map(|leader| leader.token), Some(leadership.token()));
/// drop(leadership);
/// assert_eq!(observer.wait()?, None);
/// # Ok::<(), tenure::AcquireError>(())
/// ```
#[derive(Debug)]
pub struct Observer {
    election: Election,
    /// What it has told last.
    told: Option<Standing>,
    watch: Option<Watch>,
}

impl Observer {
    pub(super) fn new(election: &Election) -> Self {
        Self {
            election: election.clone(),
            told: None,
            watch: None,
        }
    }

    /// Resolves when another leads than it told last, or nobody any more; the first time, at once.
    ///
    /// # Errors
    ///
    /// [`AcquireError::CapacityExceeded`] if the manager has no place for the lease of an observer. With a
    /// [`reservation`](crate::Builder::reservation), [`AcquireError::AuthorityLost`] and
    /// [`AcquireError::TokensNotReserved`] as long as nothing is granted: call it again once
    /// [`wait_for_authority`](crate::LockManager::wait_for_authority) says so.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time: what it has not told, the next one tells.
    pub fn changed(&mut self) -> Changed<'_> {
        Changed(self)
    }

    /// Blocks until then.
    ///
    /// # Errors
    ///
    /// See [`changed`](Self::changed).
    pub fn wait(&mut self) -> Result<Option<Leader>, AcquireError> {
        self.wait_timeout(Duration::MAX)
    }

    /// Blocks for so long at most, in real time.
    ///
    /// # Errors
    ///
    /// Also [`AcquireError::TimedOut`].
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<Option<Leader>, AcquireError> {
        // A time too far to be told is no limit.
        let deadline = Instant::now().checked_add(timeout);
        loop {
            if let Some(Standing(leader)) = self.news()? {
                return Ok(leader);
            }
            let left = deadline.map_or(timeout, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            if let Some(watch) = &mut self.watch
                && watch.over.wait_timeout(left).is_none()
            {
                return Err(AcquireError::TimedOut);
            }
        }
    }

    /// What there is to tell. If nothing, there is a watch that was placed before that was found.
    fn news(&mut self) -> Result<Option<Standing>, AcquireError> {
        loop {
            let found = Standing(self.election.leader());
            if self.told.map(Standing::term) != Some(found.term()) {
                self.told = Some(found);
                return Ok(Some(found));
            }
            if let Some(watch) = &self.watch
                && watch.over.now().is_none()
            {
                return Ok(None);
            }
            self.watch = None;
            self.watch = Some(Watch::place(&self.election, found.0)?);
        }
    }
}

/// A future of the next change, made by [`Observer::changed`].
#[derive(Debug)]
#[must_use = "it tells nothing until it is awaited"]
pub struct Changed<'o>(&'o mut Observer);

impl Future for Changed<'_> {
    type Output = Result<Option<Leader>, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            if let Some(news) = self.0.news().transpose() {
                return Poll::Ready(news.map(|Standing(leader)| leader));
            }
            if let Some(watch) = &mut self.0.watch
                && Pin::new(&mut watch.over).poll(context).is_pending()
            {
                return Poll::Pending;
            }
        }
    }
}
