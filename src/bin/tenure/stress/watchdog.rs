//! Who waits, and the thread that watches them: it cancels in storms, and finds those that were forgotten.
//!
//! Now and then it has everybody hold still until all who wait have been served: a *lull*, in which
//! nothing but the hand-over of a key can help those behind it. The end of a run is one as well.
//!
//! It must not help the manager along: asking about a single key makes the manager look after that key.
//! So it looks with [`iter`](tenure::LockManager::iter), which only reads.
//!
//! A wait is *forgotten*, and counts as a lost wake-up, if its bell has not rung and for [`FORGOTTEN`]
//!
//! - it was pending, no sample saw a lease of its key, and none was granted: nobody holds the key, so
//!   whoever is first in the queue should have it; or
//! - it was pending though a sample had seen a lease of the owner whom only this wait has, and it wants no
//!   other: it was granted its lease, and never told.
//!
//! Only this thread's clock judges the manager's threads, so whenever it was late itself, all of that
//! starts anew. A wait that nothing ends for [`World::stuck`], whoever holds what, is forgotten as well:
//! holders keep their keys for a few TTLs at most, and the queue is in order, so this is how a deadlock
//! shows. So is one that is left when the run has been over for as long. One whose bell has rung is given that
//! time from then on: of several keys, it may have been told of the first alone.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tenure::{Key, OwnerId};

use super::modes::World;
use super::tally::{Tally, Violation};
use super::waiting::{Bell, Order, Wakes};

/// Beside 20 ticks, time for a machine that others use: leases here last for less.
const FORGOTTEN: Duration = Duration::from_millis(20 + 2_000);
/// Ticks between two samples.
const SAMPLE_EVERY: u32 = 10;
/// Samples so far apart say nothing about the time in between.
const STALLED: Duration = Duration::from_millis(200);
/// One tick in so many is a storm: half of those that may be cancelled are, at once.
const STORM_EVERY: u32 = 64;
/// Between two lulls.
const LULL_AFTER: Duration = Duration::from_millis(300);
/// Owners that have given everything up are looked for until so many have come after them.
const REMEMBERED: usize = 1 << 16;

/// A wait, as the watchdog sees it.
#[derive(Debug)]
pub(super) struct Waiter {
    /// The key that it waits for, if that is known to be one.
    pub(super) key: Option<Key>,
    /// The owner, if only this wait has it.
    pub(super) owner: Option<OwnerId>,
    pub(super) cancel_at: Option<Instant>,
    /// Storms may cancel it.
    pub(super) cancellable: bool,
    pub(super) bell: Arc<Bell>,
}

#[derive(Debug)]
struct Entry {
    waiter: Waiter,
    since: Instant,
    /// Since when nobody holds its key, with the greatest token that was granted by then.
    idle: Option<(Instant, u64)>,
    /// When its owner was first seen to hold a lease.
    granted: Option<Instant>,
    /// How often its bell had rung, and when that was first seen.
    rung: (u32, Instant),
    accused: bool,
}

/// All who wait.
#[derive(Debug, Default)]
pub(super) struct Desk {
    entries: Mutex<Entries>,
    gone: Mutex<Vec<OwnerId>>,
    pub(super) wakes: Arc<Wakes>,
}

#[derive(Debug, Default)]
struct Entries {
    next: u64,
    by_number: HashMap<u64, Entry>,
}

/// A place at the desk, given up when dropped.
#[derive(Debug)]
pub(super) struct Seat<'d> {
    desk: &'d Desk,
    number: u64,
}

impl Desk {
    pub(super) fn sit(&self, waiter: Waiter) -> Seat<'_> {
        let entry = Entry {
            waiter,
            since: Instant::now(),
            idle: None,
            granted: None,
            rung: (0, Instant::now()),
            accused: false,
        };
        let mut entries = self.entries.lock();
        let number = entries.next;
        entries.next += 1;
        entries.by_number.insert(number, entry);
        Seat { desk: self, number }
    }

    /// Says that an owner holds nothing any more, and never will.
    pub(super) fn gone(&self, owner: OwnerId) {
        self.gone.lock().push(owner);
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.desk.entries.lock().by_number.remove(&self.number);
    }
}

/// The thread that watches.
#[derive(Debug)]
pub(super) struct Watchdog<'w> {
    world: &'w World,
    rng: SmallRng,
    gone: HashSet<OwnerId>,
    sampled: Instant,
    /// When the last lull ended.
    lulled: Instant,
    /// When the run was told to stop.
    stopped: Option<Instant>,
    tally: Tally,
}

impl<'w> Watchdog<'w> {
    pub(super) fn new(world: &'w World, seed: u64) -> Self {
        Self {
            world,
            rng: SmallRng::seed_from_u64(!seed),
            // So that a soak does not see it grow.
            gone: HashSet::with_capacity(REMEMBERED + REMEMBERED / 2),
            sampled: Instant::now(),
            lulled: Instant::now(),
            stopped: None,
            tally: Tally::new(),
        }
    }

    /// Watches until `done`; what it saw.
    ///
    /// Beside the monitor, it is a second thread that sleeps as the manager's driver does, and up to
    /// the end: on a machine that others use, one of them may be lucky.
    pub(super) fn run(mut self, done: &AtomicBool) -> Tally {
        let stage = &self.world.stage;
        for tick in 0_u32.. {
            if done.load(Relaxed) {
                break;
            }
            stage.lateness.sample(stage);
            if self.world.is_stopping() {
                self.stopped.get_or_insert_with(Instant::now);
            }
            self.lull();
            if !self.world.is_quiet() {
                self.cancel();
            }
            if tick % SAMPLE_EVERY == 0 {
                self.sample();
            }
        }
        self.tally
    }

    /// Begins a lull if it is time, and ends it when nobody waits any more.
    fn lull(&mut self) {
        if !self.world.is_quiet() {
            self.world.set_lull(self.lulled.elapsed() > LULL_AFTER);
        } else if self.world.desk.entries.lock().by_number.is_empty() {
            self.world.set_lull(false);
            self.lulled = Instant::now();
        }
    }

    /// Cancels those whose time has come.
    fn cancel(&mut self) {
        let storm = self.rng.random_ratio(1, STORM_EVERY);
        let now = Instant::now();
        let mut bells = vec![];
        for entry in self.world.desk.entries.lock().by_number.values() {
            let waiter = &entry.waiter;
            let due = waiter.cancel_at.is_some_and(|due| due <= now);
            if due || (storm && waiter.cancellable && self.rng.random()) {
                bells.push(Arc::clone(&waiter.bell));
            }
        }
        // After the lock: the tasks that this wakes want to leave.
        for bell in bells {
            bell.order(Order::Cancel);
        }
    }

    /// Takes a look at everything that is held, and judges those who wait by it.
    fn sample(&mut self) {
        // Before the look, so that whoever is seen then and is among these has come back.
        if self.gone.len() > REMEMBERED {
            self.gone.clear();
        }
        self.gone.extend(self.world.desk.gone.lock().drain(..));
        let mut held = HashMap::new();
        let mut owners = HashSet::new();
        let begun = Instant::now();
        for holder in self.world.stage.manager.iter() {
            held.insert(holder.key, holder.token);
            owners.insert(holder.owner);
            if self.gone.remove(&holder.owner) {
                self.tally.violate(Violation::Ghost, || {
                    format!("a lease of an owner that has given it up: {holder:?}")
                });
            }
        }
        let stalled = begun.duration_since(self.sampled) > STALLED;
        self.sampled = begun;
        let stuck = self.world.stuck();
        let draining = self
            .stopped
            .is_some_and(|stopped| stopped.elapsed() > stuck);
        let mut rescued = vec![];
        for entry in self.world.desk.entries.lock().by_number.values_mut() {
            if entry.since > begun {
                continue;
            }
            if stalled {
                (entry.idle, entry.granted) = (None, None);
                entry.since = begun;
                entry.rung.1 = begun;
            }
            let wakes = entry.waiter.bell.wakes();
            if wakes != entry.rung.0 {
                entry.rung = (wakes, begun);
            }
            let Waiter { key, owner, .. } = entry.waiter;
            if key.is_some() && owner.is_some_and(|owner| owners.contains(&owner)) {
                entry.granted.get_or_insert(begun);
            }
            if let Some(key) = key {
                let highest = self.world.highest(key);
                let idle = entry.idle.filter(|idle| idle.1 == highest);
                let free = !held.contains_key(&key);
                entry.idle = free.then(|| idle.unwrap_or((begun, highest)));
            }
            let long = |since: Instant| begun.duration_since(since) > FORGOTTEN;
            let why = if entry.idle.is_some_and(|idle| long(idle.0)) {
                "nobody holds its key"
            } else if entry.granted.is_some_and(long) {
                "it was granted its lease"
            } else if begun.duration_since(entry.since) > stuck || draining {
                "whoever was before it must have gone"
            } else {
                continue;
            };
            let told = wakes > 0 && begun.duration_since(entry.rung.1) <= stuck;
            if !told && !std::mem::replace(&mut entry.accused, true) {
                let Waiter { key, owner, .. } = &entry.waiter;
                self.tally.violate(Violation::LostWakeup, || {
                    format!("still waiting though {why}: key {key:?}, owner {owner:?}")
                });
                rescued.push(Arc::clone(&entry.waiter.bell));
            }
        }
        for bell in rescued {
            bell.order(Order::Rescue);
        }
    }
}

impl Wakes {
    /// Writes what was counted into a tally.
    pub(super) fn report(&self, tally: &mut Tally) {
        tally.waited += self.waited.load(SeqCst);
        tally.woken += self.woken.load(SeqCst);
        for _ in 0..self.woken_too_often.load(SeqCst) {
            tally.violate(Violation::ExtraWake, || {
                "a wait was woken more often than it had to wait".to_owned()
            });
        }
    }
}
