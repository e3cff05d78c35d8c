//! Trying again, for those who must not queue: exponential backoff with full jitter.

use std::future::{Future, ready};
use std::thread;
use std::time::Duration;

use backon::{BackoffBuilder, BlockingRetryable, ExponentialBuilder, Retryable};

use crate::error::AcquireError;
use crate::key::ToKey;
use crate::lease::Lease;
use crate::manager::LockManager;
use crate::owner::OwnerId;
use crate::time::Timestamp;

/// How to try again for a key that is held: exponential backoff with full jitter. With the feature
/// `retry`.
///
/// [`LockManager::acquire`] waits in a queue, is woken when its turn comes, and is fair. This is for
/// callers who must not queue: whose place would hold up others, or who take a lease only if it comes
/// by the way. They ask, sleep, and ask again, and may be overtaken by anybody, those who queue included.
///
/// The sleep before retry `n`, counted from 0, is drawn evenly from zero to the lesser of `cap` and
/// `base` · 2ⁿ. To draw from the whole range, and not only from its upper part, spreads callers who were
/// refused at the same moment best (Marc Brooker, *Exponential Backoff and Jitter*, 2015).
///
/// # What is retried
///
/// [`AcquireError::Held`] and [`AcquireError::Delayed`], and nothing else: also if the key is held by
/// `owner` itself, and also if nobody held the key but others wait for it, since it is then granted to the
/// first of them. Every other error is returned at once. Whoever gives up returns the last of those two.
///
/// # The holder's remaining time
///
/// That `Held` tells how long the lease lasts plays no part. To sleep no longer than that would have all
/// who were refused wake at the same deadline, which is what jitter is to prevent, and ever more often as
/// it comes near; to sleep at least that long would miss every holder who releases before the deadline,
/// as most do. Who wants the lease as soon as it is free should queue.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tenure::{AcquireError, LockManager, Retry};
///
/// let locks = LockManager::new();
/// let retry = Retry::new()
///     .base(Duration::from_millis(1))
///     .cap(Duration::from_millis(5))
///     .max_times(3);
/// let lease = retry.acquire(&locks, "a", 1, Duration::from_secs(10))?;
/// // Held until the last of four attempts.
/// let refused = retry.acquire(&locks, "a", 2, Duration::from_secs(10));
/// assert!(matches!(refused, Err(AcquireError::Held { owner, .. }) if owner == lease.owner()));
/// # Ok::<(), AcquireError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    base: Duration,
    cap: Duration,
    max_times: usize,
    max_elapsed: Option<Duration>,
}

impl Retry {
    /// A base of 10 ms, a cap of 1 s and 10 retries at most, which is some 2 s of sleep on average.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            base: Duration::from_millis(10),
            cap: Duration::from_secs(1),
            max_times: 10,
            max_elapsed: None,
        }
    }

    /// The longest sleep before the first retry. It doubles with each further one.
    ///
    /// With a base of zero, retries follow each other without a sleep.
    #[must_use]
    pub const fn base(mut self, base: Duration) -> Self {
        self.base = base;
        self
    }

    /// The longest sleep before any retry, the first included.
    #[must_use]
    pub const fn cap(mut self, cap: Duration) -> Self {
        self.cap = cap;
        self
    }

    /// How many retries follow the first attempt at most. Zero asks once; [`usize::MAX`] is no limit.
    #[must_use]
    pub const fn max_times(mut self, retries: usize) -> Self {
        self.max_times = retries;
        self
    }

    /// How long to go on, counted from the first attempt on the manager's clock. No limit unless set.
    ///
    /// A sleep that would reach beyond is shortened to what is left, and the attempt after it is the last.
    /// Zero asks once.
    #[must_use]
    pub const fn max_elapsed(mut self, elapsed: Duration) -> Self {
        self.max_elapsed = Some(elapsed);
        self
    }

    /// Acquires the lease by [`try_acquire`](LockManager::try_acquire), now or at one of the retries. The
    /// TTL counts from the grant.
    ///
    /// Blocks the thread in [`thread::sleep`] between attempts. An attempt costs what `try_acquire` costs,
    /// and a random number; nothing is allocated.
    ///
    /// # Errors
    ///
    /// Those of [`try_acquire`](LockManager::try_acquire); `Held` only once the retries are used up.
    pub fn acquire(
        self,
        locks: &LockManager,
        key: impl ToKey,
        owner: impl Into<OwnerId>,
        ttl: Duration,
    ) -> Result<Lease<'_>, AcquireError> {
        self.acquire_with(locks, key, owner, ttl, thread::sleep)
    }

    /// The same with another way to sleep: for a clock that is not the system's, or to look on.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::{LockManager, ManualClock, Retry};
    ///
    /// let clock = ManualClock::new();
    /// let locks = LockManager::builder().clock(clock.clone()).driver(false).build()?;
    /// let second = Duration::from_secs(1);
    /// let token = locks.try_acquire("a", 1, second)?.detach();
    /// // In simulated time, until the first lease is over.
    /// let retry = Retry::new().max_times(usize::MAX);
    /// let lease = retry.acquire_with(&locks, "a", 2, second, move |delay| clock.advance(delay))?;
    /// assert!(lease.token() > token);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn acquire_with(
        self,
        locks: &LockManager,
        key: impl ToKey,
        owner: impl Into<OwnerId>,
        ttl: Duration,
        sleep: impl Fn(Duration) + 'static,
    ) -> Result<Lease<'_>, AcquireError> {
        let (key, owner) = (locks.key(key), owner.into());
        let attempt = || locks.try_acquire(key, owner, ttl);
        let retrying = BlockingRetryable::retry(attempt, self.delays(locks));
        retrying.sleep(sleep).when(is_held).call()
    }

    /// The same for a task: `sleep` is the runtime's, such as `tokio::time::sleep`. Needs no particular
    /// one.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time: between attempts it holds nothing, neither a lease nor a place in a
    /// queue.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::{AcquireError, LockManager, Retry};
    ///
    /// # mod tokio { pub mod time { pub async fn sleep(_: std::time::Duration) {} } }
    /// async fn work(locks: &LockManager) -> Result<(), AcquireError> {
    ///     let ttl = Duration::from_secs(10);
    ///     let lease = Retry::new()
    ///         .acquire_async(locks, "a", 1, ttl, tokio::time::sleep)
    ///         .await?;
    ///     // ... write under `lease.token()` ...
    ///     drop(lease);
    ///     Ok(())
    /// }
    /// # let locks = LockManager::new();
    /// # let work = std::pin::pin!(work(&locks));
    /// # let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// # assert!(work.poll(&mut context).is_ready());
    /// ```
    pub async fn acquire_async<S: Future<Output = ()>>(
        self,
        locks: &LockManager,
        key: impl ToKey,
        owner: impl Into<OwnerId>,
        ttl: Duration,
        sleep: impl Fn(Duration) -> S + 'static,
    ) -> Result<Lease<'_>, AcquireError> {
        let (key, owner) = (locks.key(key), owner.into());
        let attempt = || ready(locks.try_acquire(key, owner, ttl));
        let retrying = Retryable::retry(attempt, self.delays(locks));
        retrying.sleep(sleep).when(is_held).await
    }

    /// The sleeps of one acquisition that begins now.
    fn delays<'m>(&self, locks: &'m LockManager) -> Delays<'m> {
        let ranges = ExponentialBuilder::new()
            .with_min_delay(self.base.min(self.cap))
            .with_max_delay(self.cap)
            .with_max_times(self.max_times);
        Delays {
            ranges: ranges.build(),
            locks,
            start: locks.now(),
            max_elapsed: self.max_elapsed,
        }
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self::new()
    }
}

fn is_held(error: &AcquireError) -> bool {
    matches!(
        error,
        AcquireError::Held { .. } | AcquireError::Delayed { .. }
    )
}

/// The sleeps between attempts.
///
/// The jitter of `backon` is added to the delay, which leaves nobody below the range; so it only says how
/// far the range goes.
#[derive(Debug)]
struct Delays<'m> {
    ranges: <ExponentialBuilder as BackoffBuilder>::Backoff,
    locks: &'m LockManager,
    start: Timestamp,
    max_elapsed: Option<Duration>,
}

impl Iterator for Delays<'_> {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let left = self.max_elapsed.map(|most| {
            let elapsed = self.locks.now().saturating_duration_since(self.start);
            most.saturating_sub(elapsed)
        });
        if left == Some(Duration::ZERO) {
            return None;
        }
        let drawn = within(self.ranges.next()?);
        Some(left.map_or(drawn, |left| drawn.min(left)))
    }
}

/// Evenly from zero to `most`, both included.
fn within(most: Duration) -> Duration {
    let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(fastrand::u64(..=nanos))
}
