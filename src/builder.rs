//! Options of a manager, their defaults and their limits.

use std::num::NonZeroU64;
use std::time::Duration;
use std::{fmt, io};

use parking_lot::Mutex;

use crate::clock::{Clock, CoarseClock};
use crate::driver::Driver;
use crate::engine::{DEFAULT_TOKENS, Engine, Options};
use crate::error::BuildError;
use crate::key::HashSeed;
use crate::manager::LockManager;
use crate::reservation::{Keeper, KeeperThread, Reservation};
use crate::sync::Arc;
use crate::table::{Layout, Origin, Wide};
use crate::timeline::Timeline;

pub(crate) const MIN_TICK: Duration = Duration::from_micros(100);
pub(crate) const MAX_TICK: Duration = Duration::from_secs(3600);
pub(crate) const DEFAULT_TICK: Duration = Duration::from_millis(1);
const DEFAULT_MAX_TTL: Duration = Duration::from_secs(366 * 24 * 3600);
const MAX_RESOLUTION: Duration = Duration::from_secs(3600);
/// No TTL may be longer: 146 years, so that a deadline fits 64 bits of nanoseconds.
pub(crate) const LONGEST_TTL: Duration = Duration::from_nanos(1 << 62);
/// 8 KiB, so that the buckets of few leases stay in the first-level cache, yet two threads seldom
/// meet on a line.
const MIN_BUCKETS: usize = 1024;

/// Options of a [`LockManager`]; start from [`LockManager::builder`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tenure::{LockManager, ManualClock};
///
/// let clock = ManualClock::new();
/// let locks = LockManager::builder()
///     .clock(clock.clone())
///     .max_ttl(Duration::from_secs(60))
///     .max_keys(10_000)
///     .build()?;
/// let lease = locks.try_acquire("a", 1, Duration::from_secs(10))?;
/// clock.advance(Duration::from_secs(10));
/// assert!(!lease.is_live());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder does nothing until `build`"]
pub struct Builder {
    initial_capacity: usize,
    max_keys: Option<usize>,
    min_ttl: Option<Duration>,
    max_ttl: Option<Duration>,
    tick: Duration,
    clock: Option<Arc<dyn Clock>>,
    driver: Option<bool>,
    thread_name: String,
    hash_seed: Option<HashSeed>,
    max_waiters_per_key: usize,
    max_waiters: usize,
    deadlock_depth: usize,
    introspection: bool,
    /// In a mutex for the sake of `Sync`: nobody shares it.
    reservation: Option<Mutex<Box<dyn Reservation>>>,
    tokens: NonZeroU64,
    margin: Option<Duration>,
    origin: Origin,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            initial_capacity: 0,
            max_keys: None,
            min_ttl: None,
            max_ttl: None,
            tick: DEFAULT_TICK,
            clock: None,
            driver: None,
            thread_name: "tenure-driver".to_owned(),
            hash_seed: None,
            max_waiters_per_key: usize::MAX,
            max_waiters: usize::MAX,
            deadlock_depth: 0,
            introspection: false,
            reservation: None,
            tokens: DEFAULT_TOKENS,
            margin: None,
            origin: Origin::default(),
        }
    }
}

impl Builder {
    /// Leases that the table is sized for at the start, and never shrinks below; it grows on its
    /// own. Default: 0, which makes the smallest table (8 KiB).
    pub fn initial_capacity(mut self, leases: usize) -> Self {
        self.initial_capacity = leases;
        self
    }

    /// The most leases that may be out at once, on as many keys. Default: none but what the table
    /// can index, 16,777,216. A key that is kept free after its lease, by a lock-delay or a minimum hold,
    /// counts as a lease for as long.
    ///
    /// A grant beyond it says [`CapacityExceeded`](crate::AcquireError::CapacityExceeded); no lease
    /// is ever evicted. Who meets the limit turns the wheel, in case that makes room. With a limit, all grants
    /// and ends share one counter, and none takes the short path.
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.max_keys = Some(keys);
        self
    }

    /// The most acquisitions that may wait for one key. Default: no limit.
    ///
    /// One more says [`QueueFull`](crate::AcquireError::QueueFull).
    pub fn max_waiters_per_key(mut self, waiters: usize) -> Self {
        self.max_waiters_per_key = waiters;
        self
    }

    /// The most acquisitions that may wait in all. Default: no limit.
    ///
    /// One more says [`QueueFull`](crate::AcquireError::QueueFull).
    pub fn max_waiters(mut self, waiters: usize) -> Self {
        self.max_waiters = waiters;
        self
    }

    /// Looks for deadlocks whenever an acquisition has to wait, along chains of up to `max_depth` owners
    /// that wait for each other. Default: 0, which is never.
    ///
    /// An owner is taken to be somebody who waits for one thing at a time. Whoever closes a circle is told
    /// [`Deadlock`](crate::AcquireError::Deadlock) and has left the queue; the others wait on. Without it, a
    /// deadlock lasts until a lease in it expires. Costs those who wait a lock that they share, and a look
    /// at each key on the way.
    pub fn deadlock_detection(mut self, max_depth: usize) -> Self {
        self.deadlock_depth = max_depth;
        self
    }

    /// Keeps, of keys that are held or waited for, their names (those of [`ToKey::name`](crate::ToKey)) and
    /// since when they are held, for snapshots, events and histograms. Default: no.
    ///
    /// Then no operation takes the short path: a grant and its release take locks, and some 600 ns. While a
    /// lease is out it takes some 120 bytes more, with a name of 29.
    pub fn introspection(mut self, introspection: bool) -> Self {
        self.introspection = introspection;
        self
    }

    /// Where tokens come from. Default: memory, so that they begin anew with the process.
    ///
    /// A thread of the manager's calls it, or with `driver(false)` you do, by
    /// [`LockManager::tend_reservation`]. The first block is asked for before [`build`](Self::build) returns; if
    /// the authority belongs to somebody else, the manager is built without, and campaigns. Costs a grant
    /// nothing.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::LockManager;
    /// use tenure::reservation::Memory;
    ///
    /// let tokens = Memory::new();
    /// let ttl = Duration::from_secs(10);
    /// let build = || LockManager::builder().reservation(tokens.clone()).build();
    /// let (first, second) = (build()?, build()?);
    /// let a = first.try_acquire("a", 1, ttl)?;
    /// assert!(second.try_acquire("a", 2, ttl)?.token() > a.token());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reservation(mut self, reservation: impl Reservation) -> Self {
        self.reservation = Some(Mutex::new(Box::new(reservation)));
        self
    }

    /// Tokens that are reserved at once. Default: 2^30, which the busiest key uses up in 18 seconds.
    ///
    /// The next block is asked for when half of one is used up; what is left of it at the end of the process is
    /// skipped. (Tokens are counted by bucket: a block is used up when the busiest bucket has.)
    pub fn block_size(mut self, tokens: NonZeroU64) -> Self {
        self.tokens = tokens;
        self
    }

    /// How long before the end of its authority a manager stops to grant. Default: a tenth of the term.
    ///
    /// It has to cover what clocks of different machines differ by in a term, and by how much the manager's
    /// clock may lag beyond its resolution, and must be less than half of the term.
    pub fn authority_margin(mut self, margin: Duration) -> Self {
        self.margin = Some(margin);
        self
    }

    /// The shortest TTL that is accepted. Default: anything above zero.
    pub fn min_ttl(mut self, ttl: Duration) -> Self {
        self.min_ttl = Some(ttl);
        self
    }

    /// The longest TTL that is accepted. Default: 366 days, or a little less than 2^35 ticks if that
    /// is shorter.
    pub fn max_ttl(mut self, ttl: Duration) -> Self {
        self.max_ttl = Some(ttl);
        self
    }

    /// The length of a tick, from 100 microseconds to an hour: what deadlines are rounded up to, and
    /// how late an expiry may be acted on. Default: 1 ms.
    ///
    /// No lease may end later than 2^42 ticks after the manager was made, less a millionth: that is
    /// 139 years at the default, and 13.9 at the shortest tick.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// The clock. Default: [`CoarseClock::shared`].
    ///
    /// A [`SystemClock`](crate::SystemClock) reads the time anew for each operation, which costs more
    /// than the rest of it.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Whether a thread of the manager's turns the wheel. Default: yes if the clock runs in real
    /// time. Without one, call [`LockManager::advance`].
    pub fn driver(mut self, driver: bool) -> Self {
        self.driver = Some(driver);
        self
    }

    /// The name of the driver thread. Default: `tenure-driver`.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.thread_name = name.into();
        self
    }

    /// The seed of the hashes of keys. Default: a random one, so that nobody can choose keys that
    /// collide. Replicas that must agree on every answer need the same one.
    pub fn hash_seed(mut self, seed: HashSeed) -> Self {
        self.hash_seed = Some(seed);
        self
    }

    /// Makes the manager.
    ///
    /// # Errors
    ///
    /// A [`BuildError`] for each option out of its range; if a thread can't be started; if memory for the first
    /// table can't be had; and if the first block of tokens can't be reserved.
    pub fn build(self) -> Result<LockManager, BuildError> {
        self.build_with(|_| Ok(()))
    }

    /// The same, with something done to the engine before anybody else sees it.
    pub(crate) fn build_with<E: From<BuildError>>(
        mut self,
        prepare: impl FnOnce(&Engine) -> Result<(), E>,
    ) -> Result<LockManager, E> {
        let driver = self.driver;
        let name = self.thread_name.clone();
        let keeper = self.reservation.take();
        let keeper = keeper.map(|it| Keeper::new(it.into_inner(), self.tokens, self.margin));
        let (engine, real_time) = self.engine()?;
        let driver = match driver {
            Some(true) if !real_time => return Err(BuildError::DriverNeedsRealTime.into()),
            Some(true) => true,
            Some(false) => false,
            None => real_time,
        };
        let spawn_error = |error: io::Error| BuildError::Spawn {
            reason: error.to_string(),
        };
        let locks = LockManager::assemble(Arc::clone(&engine));
        let is_kept = keeper.is_some();
        if let Some(keeper) = keeper {
            locks.keep(keeper)?;
        }
        prepare(&engine)?;
        if is_kept && driver {
            let thread = KeeperThread::spawn(&engine).map_err(spawn_error)?;
            locks.driven_by(None, Some(thread));
        }
        if driver {
            let driver = Driver::spawn(&engine, name).map_err(spawn_error)?;
            locks.driven_by(Some(driver), None);
        }
        Ok(locks)
    }

    /// The seed that was given, if any was.
    pub(crate) fn given_seed(&self) -> Option<HashSeed> {
        self.hash_seed
    }

    /// Where the manager's tokens come from. Default: they are counted from 1.
    pub(crate) fn origin(mut self, origin: Origin) -> Self {
        self.origin = origin;
        self
    }

    fn engine(self) -> Result<(Arc<Engine>, bool), BuildError> {
        let tick = self.tick;
        if !(MIN_TICK..=MAX_TICK).contains(&tick) {
            return Err(BuildError::Tick { tick });
        }
        let tick = tick.as_nanos() as u64;
        let clock = self
            .clock
            .unwrap_or_else(|| Arc::new(CoarseClock::shared()));
        let resolution = clock.resolution();
        if resolution > MAX_RESOLUTION {
            return Err(BuildError::Resolution { resolution });
        }
        // A deadline is the TTL, the resolution and the rest of a tick away, and has to fit an era.
        let era = Duration::from_nanos(tick.saturating_mul(Wide::MAX_TTL)).min(LONGEST_TTL);
        let spare = resolution + 2 * Duration::from_nanos(tick);
        let limit = era.saturating_sub(spare);
        let min = self.min_ttl.unwrap_or(Duration::from_nanos(1));
        let max = self.max_ttl.unwrap_or(limit.min(DEFAULT_MAX_TTL));
        if max > limit {
            return Err(BuildError::MaxTtl { max, limit });
        }
        if min.is_zero() || min > max {
            return Err(BuildError::TtlRange { min, max });
        }
        let limit = Wide::MAX_LEASES;
        for keys in [self.max_keys.unwrap_or(1), self.initial_capacity.max(1)] {
            if keys == 0 || keys > limit {
                return Err(BuildError::MaxKeys {
                    max_keys: keys,
                    limit,
                });
            }
        }
        let real_time = clock.is_real_time();
        let engine = Engine::new(Options {
            seed: self.hash_seed.unwrap_or_else(HashSeed::random),
            time: Timeline::new(clock, tick, min, max),
            buckets: (self.initial_capacity * 3).max(MIN_BUCKETS),
            max_leases: self.max_keys,
            max_waiters_per_key: self.max_waiters_per_key,
            max_waiters: self.max_waiters,
            deadlock_depth: self.deadlock_depth,
            introspection: self.introspection,
            origin: self.origin,
        });
        Ok((engine.ok_or(BuildError::OutOfMemory)?, real_time))
    }

    /// The default options can fail only for want of a thread or of the first few hundred KiB.
    pub(crate) fn build_or_without_driver(self) -> LockManager {
        let name = self.thread_name.clone();
        let (engine, _) = self.engine().unwrap_or_else(|_| {
            std::alloc::handle_alloc_error(std::alloc::Layout::new::<[u64; MIN_BUCKETS]>())
        });
        let driver = Driver::spawn(&engine, name).ok();
        let locks = LockManager::assemble(engine);
        locks.driven_by(driver, None);
        locks
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("initial_capacity", &self.initial_capacity)
            .field("max_keys", &self.max_keys)
            .field("min_ttl", &self.min_ttl)
            .field("max_ttl", &self.max_ttl)
            .field("tick", &self.tick)
            .field("clock", &self.clock)
            .field("driver", &self.driver)
            .field("thread_name", &self.thread_name)
            .field("max_waiters_per_key", &self.max_waiters_per_key)
            .field("max_waiters", &self.max_waiters)
            .field("deadlock_depth", &self.deadlock_depth)
            .field("introspection", &self.introspection)
            .finish_non_exhaustive()
    }
}
