//! What replicas have to agree on, and what no replica exceeds.

use std::time::Duration;

use crate::builder::{Builder, DEFAULT_TICK, MAX_TICK};
use crate::checkpoint::{Checkpoint, Log, RestoreError, Saved};
use crate::clock::ManualClock;
use crate::engine::MAX_AT_LEAST;
use crate::manager::LockManager;
use crate::time::Timestamp;
use crate::timeline::LAST_TICK;

/// The most leases that may be asked for. A lease takes two cells of the table at the most, and there are
/// always six times as many: so whether there is room hangs on the number of leases, and on nothing else.
pub(super) const MOST_LEASES: usize = 1 << 20;

/// The longest TTL and the longest terms: 366 days, if as many ticks can be counted.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// Ticks that are kept for what lasts longer than a lease: no time that a replica computes is ever cut off
/// at the end of what its manager can count, which hangs on when that was made.
const SPARE_TICKS: u64 = 3 << 35;

/// Options on which all replicas have to agree.
///
/// ```
/// use std::time::Duration;
/// use tenure::HashSeed;
/// use tenure::replica::{Replica, ReplicaOptions};
///
/// let options = ReplicaOptions::new().max_leases(1000).tick(Duration::from_millis(10));
/// let replica = Replica::with_options(HashSeed::new(7), options)?;
/// assert_eq!(replica.last_applied(), 0);
/// # Ok::<(), tenure::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "options do nothing until a replica is made with them"]
pub struct ReplicaOptions {
    pub(super) max_leases: usize,
    pub(super) tick: Duration,
}

impl Default for ReplicaOptions {
    fn default() -> Self {
        Self {
            max_leases: MOST_LEASES,
            tick: DEFAULT_TICK,
        }
    }
}

impl ReplicaOptions {
    /// The defaults.
    ///
    /// ```
    /// use tenure::replica::ReplicaOptions;
    ///
    /// assert_eq!(ReplicaOptions::new(), ReplicaOptions::default());
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// The most leases that may be out at once, up to 1,048,576, which is the default. A key that is kept
    /// free after its lease counts as one.
    ///
    /// ```
    /// let options = tenure::replica::ReplicaOptions::new().max_leases(1000);
    /// ```
    pub fn max_leases(mut self, leases: usize) -> Self {
        self.max_leases = leases;
        self
    }

    /// The length of a tick, from 100 microseconds to an hour: what deadlines are rounded up to. Default:
    /// 1 ms. Time ends after some 2^42 ticks: see [`Replica::end`](super::Replica::end).
    ///
    /// ```
    /// let tick = std::time::Duration::from_millis(10);
    /// let options = tenure::replica::ReplicaOptions::new().tick(tick);
    /// ```
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }
}

pub(super) fn builder(clock: &ManualClock, tick: Duration, max_leases: usize) -> Builder {
    LockManager::builder()
        .clock(clock.clone())
        .driver(false)
        .tick(tick)
        .max_keys(max_leases)
}

/// The last deadline.
pub(super) fn end(tick: Duration) -> Timestamp {
    let tick = tick.min(MAX_TICK).as_nanos() as u64;
    let most = u64::MAX - 4 * LONGEST.as_nanos() as u64;
    let last = (LAST_TICK - SPARE_TICKS).saturating_mul(tick).min(most);
    Timestamp::from_nanos(last - last % tick)
}

/// What the TTLs and terms are at most: no more than a manager of that tick takes.
pub(super) fn max_ttl(tick: Duration) -> Duration {
    let tick = tick.min(MAX_TICK).as_nanos() as u64;
    LONGEST.min(Duration::from_nanos(tick.saturating_mul((1 << 35) - 8)))
}

/// What holds of a replica's checkpoint besides what holds of all.
pub(super) fn check(checkpoint: &Checkpoint, log: Log) -> Result<(), RestoreError> {
    let content = checkpoint.content();
    let bad = |reason| Err(RestoreError::Replica { reason });
    if !(1..=MOST_LEASES).contains(&(log.max_leases as usize)) {
        return bad("its number of leases is out of range");
    }
    if log.last_applied > MAX_AT_LEAST {
        return bad("its log index is no token");
    }
    let (end, most) = (
        end(checkpoint.tick()).as_nanos(),
        max_ttl(checkpoint.tick()).as_nanos() as u64,
    );
    if content.now > end {
        return bad("its time is after the end");
    }
    let too_long = |lease: &Saved| {
        let terms = lease.terms.unwrap_or_default();
        lease.remaining > end - content.now || terms.lock_delay > most || terms.min_hold > 2 * most
    };
    if content.leases.iter().any(too_long) {
        return bad("a lease lasts longer than any can");
    }
    if content.kept.iter().any(|kept| kept.remaining > 2 * most) {
        return bad("a key is kept free for longer than any can be");
    }
    Ok(())
}
