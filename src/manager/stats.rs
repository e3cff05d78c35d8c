//! What a manager tells of itself.

use std::time::Duration;

use super::LockManager;

/// What a manager is doing; see [`LockManager::stats`].
///
/// # Memory
///
/// - *Buckets*, 8 bytes, 3 to 16 for each cell in use, follow the leases that are out. They are made anew
///   for each size of the table; the old ones go when the last thread has looked elsewhere. A thread keeps
///   those that it saw last until it uses the manager again, [trims](LockManager::trim) or ends.
/// - *Cells*, 64 bytes, follow the *most* leases that were ever out at once: one for each plain lease and
///   each session, one or two for each key that has a record. They are used again for ever, and none is
///   given back before the manager is gone: of ten million leases at once, 610 MiB stay.
/// - *Records* of keys that are waited for, or held in other ways than by a plain lease, go with what they
///   are for; so do sessions and names. The maps that they were in shrink when the buckets do.
///
/// That cells stay is what lets everybody read them without a word to anybody: no epoch, no hazard pointer,
/// no count. To be given back, each would need all threads to say when they are at work, and `unsafe` code
/// (`src/table/slab.rs` has the argument, and what it would cost). Who must not use so much sets
/// [`max_keys`](crate::Builder::max_keys). Who must have it back takes a
/// [`checkpoint`](LockManager::checkpoint) when nobody is at work, drops the manager, and
/// [restores](crate::Builder::restore) it: tokens go on rising, and holders go on by token.
///
/// What the system takes the program to use is the allocator's affair as well. glibc keeps freed blocks of
/// up to 32 MiB: 62 MiB after the ten million, and next to nothing with
/// `GLIBC_TUNABLES=glibc.malloc.mmap_threshold=131072`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Leases out, those included whose deadline has passed and which nobody has come upon yet.
    pub leases: usize,
    /// Leases that were granted, since the start.
    pub granted: u64,
    /// Leases that ended by expiry, since the start.
    ///
    /// Those that were granted and are not out any more, have not expired and were not revoked, were
    /// released.
    pub expired: u64,
    /// Leases that were revoked, since the start.
    pub revoked: u64,
    /// Acquisitions that had to wait and were answered, since the start.
    pub waited: u64,
    /// Acquisitions that left their queue with nothing, since the start: dropped, or timed out.
    pub gave_up: u64,
    /// Deadlocks that were found, since the start.
    pub deadlocks: u64,
    /// The longest time from a deadline to the moment when the expiry was acted on, to the tick.
    pub max_expiry_lag: Duration,
    /// Buckets in the table.
    pub buckets: usize,
    /// Whether leases are moving to a table of another size.
    pub resizing: bool,
    /// Bytes of all buckets, and of all cells that were ever used.
    pub memory_bytes: usize,
    /// Cells that were ever used, of 64 bytes each.
    pub cells: usize,
    /// Bytes of the wheel, which has as many shards as the machine has processors, up to 16.
    pub wheel_bytes: usize,
    /// Keys of which a name or an age is kept, under [`introspection`](crate::Builder::introspection).
    pub names: usize,
}

impl LockManager {
    /// What the manager is doing. Takes time in the number of threads.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let totals = self.engine.totals();
        let (buckets, resizing) = self.engine.table_size();
        let (waited, gave_up, deadlocks) = self.engine.metrics.totals();
        let lag = u32::try_from(totals.lag).unwrap_or(u32::MAX);
        Stats {
            leases: usize::try_from(totals.leases).unwrap_or(0),
            granted: totals.granted,
            expired: totals.expired,
            revoked: totals.revoked,
            waited,
            gave_up,
            deadlocks,
            max_expiry_lag: self.tick().saturating_mul(lag),
            buckets,
            resizing,
            memory_bytes: self.engine.memory(),
            cells: self.engine.cells(),
            wheel_bytes: self.engine.wheel().memory(),
            names: self.engine.names(),
        }
    }

    /// Gives back memory that this thread keeps without need: up to 64 free cells, and the buckets that it saw
    /// last, which may be those of a table that was larger. (After ten million leases, two idle threads kept
    /// 320 MiB of them.) For threads that have used the manager and won't for a while, such as those of a pool
    /// that go to sleep: `on_thread_park` of tokio's runtimes.
    ///
    /// Maps of the manager's that are nearly empty shrink as well; they do so by themselves when the table has
    /// shrunk and the wheel is turned. Takes a few locks, some microseconds, and the next operation of this
    /// thread as long. [`Stats`] says what stays, and why.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::LockManager;
    ///
    /// let locks = LockManager::new();
    /// let lease = locks.try_acquire("a", 1, Duration::from_secs(10))?;
    /// locks.trim(); // leases are not affected
    /// lease.release()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn trim(&self) {
        self.engine.trim_thread();
    }
}
