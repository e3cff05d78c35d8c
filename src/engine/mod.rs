//! The one place that knows table, wheel, clock and threads together.
//!
//! An operation reads the clock, borrows the thread's part of the table, does its work there, and then
//! its *chores*: registering what a resize has moved, and giving a resize its share of time.

mod admission;
mod authority;
mod batches;
#[cfg(all(test, not(any(tenure_loom, tenure_shuttle))))]
mod between;
mod changing;
mod deadlock;
mod exact;
mod grants;
mod holding;
mod leases;
mod observing;
#[cfg(all(test, not(any(tenure_loom, tenure_shuttle))))]
mod parts;
mod restore;
mod serving;
mod sessions;
#[cfg(all(test, tenure_shuttle))]
mod shuttle_models;
#[cfg(all(test, not(any(tenure_loom, tenure_shuttle))))]
mod stress;
mod trim;
mod turning;
mod wake;

use std::collections::HashMap;
use std::sync::{OnceLock, Weak};

use crossbeam_utils::CachePadded;
use foldhash::fast::RandomState;

pub(crate) use self::admission::Entered;
pub(crate) use self::authority::{Authority, DEFAULT_TOKENS, State as AuthorityState};
pub(crate) use self::batches::CHUNK;
use self::deadlock::Detector;
pub(crate) use self::grants::{Acquired, Begun, Denied, MAX_AT_LEAST, Request};
pub(crate) use self::leases::Seen;
use self::observing::Observers;
pub(crate) use self::wake::{unfailing, wake_before_blocking};
use crate::failpoint::failpoint;
use crate::key::{HashSeed, Key};
use crate::locals::{self, Entry, Home};
use crate::metrics::{self, Metrics};
use crate::owed::Owed;
use crate::records::Records;
use crate::session::SessionCore;
use crate::sync::facade::thread::Thread;
use crate::sync::{Arc, AtomicBool, AtomicI64, AtomicU64, AtomicUsize, MODELLED, Mutex, Ordering};
use crate::table::{Counters, Layout, Local, Loss, Name, Origin, Table, Turned, Wide};
use crate::timeline::Timeline;
use crate::wheel::{Advances, Cells, Wheel};

/// Everything behind a manager.
#[derive(Debug)]
pub(crate) struct Engine<L: Layout = Wide> {
    id: u64,
    me: Weak<Engine<L>>,
    pub(crate) seed: HashSeed,
    pub(crate) time: Timeline,
    table: Table<L>,
    wheel: Wheel,
    /// The id, or one that nobody has, if the number of leases is limited or somebody observes: then no
    /// operation takes the short way.
    short_id: AtomicU64,
    /// The exact number of leases out, counted only if it is limited.
    capacity: Option<Capacity>,
    records: Records,
    /// Those that are not wound up, by number.
    sessions: Mutex<HashMap<u64, Arc<SessionCore>, RandomState>>,
    next_session: AtomicU64,
    detector: Detector,
    observers: Observers,
    pub(crate) metrics: Metrics,
    pub(crate) authority: Authority,
    registry: Mutex<Registry>,
    /// Buckets when the maps were last looked at, to be trimmed (`trim.rs`).
    trimmed: AtomicUsize,
    /// Written at each turn of the wheel, and so on a line of its own.
    advances: CachePadded<Advances>,
    closed: AtomicBool,
    driver: OnceLock<Thread>,
}

#[derive(Debug)]
struct Capacity {
    max: usize,
    out: AtomicI64,
}

/// The counters of all threads, those that have ended included.
#[derive(Debug, Default)]
struct Registry {
    threads: Vec<Arc<Counters>>,
    ended: Totals,
}

/// What the threads' counters add up to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) leases: i64,
    pub(crate) granted: u64,
    pub(crate) expired: u64,
    pub(crate) revoked: u64,
    /// In ticks.
    pub(crate) lag: u64,
}

impl Totals {
    fn add(&mut self, counters: &Counters) {
        self.leases += counters.leases();
        self.granted += counters.granted.load(Ordering::Relaxed);
        self.expired += counters.expired.load(Ordering::Relaxed);
        self.revoked += counters.revoked.load(Ordering::Relaxed);
        self.lag = self.lag.max(counters.lag.load(Ordering::Relaxed));
    }
}

impl<L: Layout> Cells for Table<L> {
    fn wheel(&self, cell: u32) -> &AtomicU64 {
        self.cell(cell).wheel()
    }

    fn wheel_next(&self, cell: u32) -> &AtomicU64 {
        self.cell(cell).wheel_next()
    }
}

impl<L: Layout> Cells for Turned<'_, L> {
    fn wheel(&self, cell: u32) -> &AtomicU64 {
        self.table.wheel(cell)
    }

    fn wheel_next(&self, cell: u32) -> &AtomicU64 {
        self.table.wheel_next(cell)
    }

    #[inline]
    fn words(&self, cell: u32) -> (&AtomicU64, &AtomicU64) {
        let cell = self.table.cell(cell);
        (cell.wheel(), cell.wheel_next())
    }

    fn fetch(&self, cells: impl Iterator<Item = u32>, is_due: impl Fn(&AtomicU64) -> bool) {
        self.fetch(cells, is_due);
    }
}

impl<L: Layout> Home for Engine<L> {
    fn id(&self) -> u64 {
        self.id
    }

    fn open(&self) -> Local {
        let counters = Arc::new(Counters::default());
        self.registry.lock().threads.push(Arc::clone(&counters));
        self.table.local(counters)
    }

    fn wind_up(&self, local: &mut Local) {
        self.chores(local);
    }

    fn close(&self, local: &mut Local) {
        self.table.unfill_next(local);
        while self.table.spill(local) {}
        wake::wake_all(std::mem::take(&mut local.wakes));
        metrics::tell(std::mem::take(&mut local.reports));
        wake::discard(std::mem::take(&mut local.streams));
        wake::discard(std::mem::take(&mut local.waiters));
        // Somebody who dies of a panic may have been about to.
        if self.table.wants_resize() || std::thread::panicking() {
            self.wake_driver();
        }
        self.account(local);
        let mut registry = self.registry.lock();
        registry.ended.add(&local.counters);
        registry
            .threads
            .retain(|counters| !Arc::ptr_eq(counters, &local.counters));
    }

    fn weak(&self) -> Weak<dyn Home> {
        self.me.clone()
    }
}

impl<L: Layout> Engine<L> {
    /// `None` if memory for the table can't be had.
    pub(crate) fn new(options: Options) -> Option<Arc<Self>> {
        static NEXT_ID: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let hasher = crate::key::BucketHasher::new(&options.seed);
        let origin = options.origin;
        let table = Table::new(options.buckets, hasher)?.with_origin(origin)?;
        // A schedule of a model is one on every machine.
        let shards = match std::thread::available_parallelism() {
            Ok(processors) if !MODELLED => processors.get(),
            _ => 1,
        };
        let start = options.time.start();
        let id = NEXT_ID.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let long = options.max_leases.is_some() || options.introspection || origin.exact;
        let short_id = if long { u64::MAX } else { id };
        Some(Arc::new_cyclic(|me| Self {
            id,
            short_id: AtomicU64::new(short_id),
            me: me.clone(),
            seed: options.seed,
            time: options.time,
            table,
            wheel: Wheel::new(shards.next_power_of_two().min(16), start),
            capacity: options.max_leases.map(|max| Capacity {
                max,
                out: AtomicI64::new(0),
            }),
            records: Records::new(options.max_waiters_per_key, options.max_waiters),
            sessions: Mutex::new(HashMap::default()),
            next_session: AtomicU64::new(0),
            detector: Detector::new(options.deadlock_depth),
            observers: Observers::new(options.introspection),
            metrics: Metrics::default(),
            authority: Authority::default(),
            registry: Mutex::new(Registry::default()),
            trimmed: AtomicUsize::new(0),
            advances: CachePadded::default(),
            closed: AtomicBool::new(false),
            driver: OnceLock::new(),
        }))
    }

    /// Another reference to an engine that somebody holds one to.
    pub(crate) fn share(&self) -> Arc<Self> {
        self.me.upgrade().expect("an engine lives in its Arc")
    }

    /// A key's name in the table.
    #[inline]
    pub(crate) fn name(&self, key: Key, token: u64) -> Name {
        Name {
            key,
            hash: self.table.hash(key),
            token,
        }
    }

    /// Runs `f` at the reading `now`, then the chores.
    #[inline]
    fn with<R>(&self, now: u64, f: impl FnOnce(&mut Local) -> R) -> R {
        self.with_entry(locals::take(self), now, f)
    }

    fn with_entry<R>(&self, mut entry: Box<Entry>, now: u64, f: impl FnOnce(&mut Local) -> R) -> R {
        let local = &mut entry.local;
        local.now = self.time.tick_of(now);
        local.observed = self.is_observed();
        local.last_end = None;
        let result = f(local);
        if local.has_chores() {
            self.chores(local);
        }
        self.account(local);
        if local.has_news() {
            Self::hand_on(entry);
        } else {
            locals::put(entry);
        }
        result
    }

    /// Puts the thread's part back, and lets others know what the operation has done for them.
    #[cold]
    #[inline(never)]
    fn hand_on(mut entry: Box<Entry>) {
        let local = &mut entry.local;
        let mut wakes = std::mem::take(&mut local.wakes);
        let wakes = Owed::new(&mut wakes, |wakes| wake::wake_all(std::mem::take(wakes)));
        let reports = std::mem::take(&mut local.reports);
        let streams = std::mem::take(&mut local.streams);
        let waiters = std::mem::take(&mut local.waiters);
        locals::put(entry);
        failpoint!("handover/waking");
        // Code of the user's: it may use the manager.
        wakes.pay();
        if !reports.is_empty() {
            metrics::tell(reports);
        }
        wake::discard(streams);
        wake::discard(waiters);
    }

    /// Brings the limited number of leases up to date with the thread's counter.
    fn account(&self, local: &mut Local) {
        if let Some(capacity) = &self.capacity {
            let leases = local.counters.leases();
            let change = leases - std::mem::replace(&mut local.accounted, leases);
            let reserved = std::mem::take(&mut local.reserved);
            capacity.out.fetch_add(change - reserved, Ordering::AcqRel);
        }
    }

    /// Makes sure that the wheel looks at a published cell by its deadline; `word` is its wheel word,
    /// loaded since.
    #[inline(always)]
    fn watch(&self, cell: u32, word: u64, deadline: u64) {
        if !self.wheel.is_linked_by(word, deadline) {
            self.register(cell, word, deadline);
        }
    }

    #[cold]
    fn register(&self, cell: u32, word: u64, deadline: u64) {
        if self.wheel.covers(word, deadline) {
            return;
        }
        let mut engine = self;
        let asleep = Owed::new(&mut engine, |engine| engine.wake_driver());
        if self.wheel.register(&self.table, cell, deadline) {
            asleep.pay();
        } else {
            asleep.waive();
        }
    }

    pub(crate) fn totals(&self) -> Totals {
        let registry = self.registry.lock();
        let mut totals = registry.ended;
        for counters in &registry.threads {
            totals.add(counters);
        }
        totals
    }

    pub(crate) fn table_size(&self) -> (usize, bool) {
        self.table.size()
    }

    pub(crate) fn memory(&self) -> usize {
        self.table.memory() + size_of::<Self>()
    }

    /// Cells that were ever used.
    pub(crate) fn cells(&self) -> usize {
        self.table.cells()
    }

    pub(crate) fn wheel(&self) -> &Wheel {
        &self.wheel
    }

    pub(crate) fn close_down(&self) {
        self.closed.store(true, Ordering::Release);
        self.wake_driver();
        self.authority.wake();
        let mut wakes = self.records.close();
        wakes.extend(self.observers.close());
        for (_, session) in self.sessions.lock().drain() {
            session.close();
            let watches = session.book.lock().close();
            for signal in watches.iter().filter_map(Weak::upgrade) {
                wakes.extend(signal.set(Loss::Closed));
            }
        }
        locals::forget(self);
        wake::wake_all(wakes);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn set_driver(&self, driver: Thread) {
        // There is one driver, which says so once.
        let _ = self.driver.set(driver);
    }

    fn wake_driver(&self) {
        if let Some(driver) = self.driver.get() {
            driver.unpark();
        }
    }
}

/// What an engine is made of.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) seed: HashSeed,
    pub(crate) time: Timeline,
    pub(crate) buckets: usize,
    pub(crate) max_leases: Option<usize>,
    pub(crate) max_waiters_per_key: usize,
    pub(crate) max_waiters: usize,
    /// 0 for no detection.
    pub(crate) deadlock_depth: usize,
    pub(crate) introspection: bool,
    pub(crate) origin: Origin,
}
