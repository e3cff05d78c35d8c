//! Who waits for whom: cycles are found when an acquisition joins a queue.
//!
//! An owner waits for all who hold the key in a way that keeps it out, and for those ahead of it in the
//! queue. Permits are left out: any of their holders may make room, so a circle through one of them need
//! not be a deadlock. The search is Coffman's and Holt's condition on the graph of owners, depth first, up
//! to a bound; it starts where an edge is added, so whoever closes a circle finds it.
//!
//! An edge is entered and the search made under one lock, after the acquisition has its place in the
//! queue: of two who close a circle together, the later sees the edges of both. The records of the keys are
//! locked one at a time, inside of that lock.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Weak;

use foldhash::fast::RandomState;

use super::grants::Denied;
use super::{Engine, Entered};
use crate::error::{AcquireError, Cycle};
use crate::key::Key;
use crate::owner::OwnerId;
use crate::records::Waiter;
use crate::sync::{Arc, Mutex};
use crate::table::Layout;
use crate::wish::Mode;

/// Cycles that are kept for inspection.
const KEPT: usize = 16;

/// What a detector knows.
#[derive(Debug)]
pub(super) struct Detector {
    /// The longest chain of owners that is looked at; 0 if nothing is.
    pub(super) max_depth: usize,
    waits: Mutex<Waits>,
    found: Mutex<VecDeque<Cycle>>,
}

#[derive(Debug, Default)]
struct Waits {
    /// By owner. Those that have ended are dropped now and then.
    by_owner: HashMap<u64, Vec<Weak<Waiter>>, RandomState>,
    /// Owners after the last clearing.
    cleared: usize,
}

impl Waits {
    fn add(&mut self, waiter: &Arc<Waiter>) {
        if self.by_owner.len() >= 2 * self.cleared + KEPT {
            self.by_owner.retain(|_, waiters| {
                waiters.retain(|waiter| waiter.strong_count() > 0);
                !waiters.is_empty()
            });
            self.cleared = self.by_owner.len();
        }
        let waiters = self.by_owner.entry(waiter.wish.request.owner).or_default();
        waiters.retain(|waiter| waiter.strong_count() > 0);
        waiters.push(Arc::downgrade(waiter));
    }

    fn of(&self, owner: u64) -> Vec<Arc<Waiter>> {
        let waiters = self.by_owner.get(&owner);
        let waiters = waiters.into_iter().flatten().filter_map(Weak::upgrade);
        waiters.filter(|waiter| waiter.is_waiting()).collect()
    }
}

impl Detector {
    pub(super) fn new(max_depth: usize) -> Self {
        Self {
            max_depth,
            waits: Mutex::new(Waits::default()),
            found: Mutex::new(VecDeque::new()),
        }
    }

    /// Keeps a cycle for inspection.
    pub(super) fn keep(&self, cycle: &Cycle) {
        let mut found = self.found.lock();
        if found.len() == KEPT {
            found.pop_front();
        }
        found.push_back(cycle.clone());
    }

    /// The last cycles, the oldest first.
    pub(super) fn last(&self) -> Vec<Cycle> {
        self.found.lock().iter().cloned().collect()
    }
}

/// A search under way.
struct Search<'a, L: Layout> {
    engine: &'a Engine<L>,
    waits: &'a Waits,
    /// Who must not be met again.
    start: u64,
    seen: HashSet<u64, RandomState>,
    path: Vec<(OwnerId, Key)>,
}

impl<L: Layout> Search<'_, L> {
    /// Whether the path, continued with that wait, comes back to its start.
    fn closes(&mut self, waiter: &Arc<Waiter>) -> bool {
        let owner = OwnerId(waiter.wish.request.owner);
        self.path.push((owner, waiter.key()));
        for blocker in self.engine.blockers(waiter) {
            if blocker == self.start {
                return true;
            }
            if self.path.len() < self.engine.detector.max_depth && self.seen.insert(blocker) {
                for next in self.waits.of(blocker) {
                    if self.closes(&next) {
                        return true;
                    }
                }
            }
        }
        self.path.pop();
        false
    }
}

impl<L: Layout> Engine<L> {
    /// The circle that this acquisition, which has just joined a queue, has closed.
    pub(super) fn find_cycle(&self, waiter: &Arc<Waiter>) -> Option<Box<Cycle>> {
        if self.detector.max_depth == 0 {
            return None;
        }
        let mut waits = self.detector.waits.lock();
        waits.add(waiter);
        let mut search = Search {
            engine: self,
            waits: &waits,
            start: waiter.wish.request.owner,
            seen: HashSet::default(),
            path: vec![],
        };
        let waits = search.closes(waiter).then_some(search.path)?;
        let cycle = Box::new(Cycle { waits });
        self.detector.keep(&cycle);
        self.metrics.deadlock(&cycle);
        Some(cycle)
    }

    /// Has a waiter leave the queue again if its waiting would never end.
    pub(super) fn stay_unless_deadlocked(&self, waiter: Arc<Waiter>) -> Result<Entered, Denied> {
        let Some(cycle) = self.find_cycle(&waiter) else {
            return Ok(Entered::Waiting(waiter));
        };
        self.stay_away(&waiter);
        match waiter.take() {
            // Somebody has given way meanwhile.
            Some(Ok(acquired)) => Ok(Entered::Granted(acquired)),
            Some(Err(error)) => Err(Denied::Other(error)),
            None => Err(Denied::Other(AcquireError::Deadlock { cycle })),
        }
    }

    /// The owners that a waiter waits for.
    fn blockers(&self, waiter: &Arc<Waiter>) -> Vec<u64> {
        let mode = waiter.wish.mode;
        if matches!(mode, Mode::Permit { .. }) {
            return vec![];
        }
        let (key, hash) = (waiter.key(), waiter.hash);
        let mut blockers = vec![];
        self.with(self.time.now(), |local| {
            let mut stripe = self.records.lock(hash);
            if let Some(record) = stripe.get(key) {
                let upgraded = waiter.wish.upgrade;
                let holders = record.holders.values().filter(|holder| {
                    Some(holder.token) != upgraded
                        && holder.until() > local.now
                        && (mode == Mode::Exclusive || holder.mode == Mode::Exclusive)
                        && !matches!(holder.mode, Mode::Permit { .. })
                });
                blockers.extend(holders.map(|holder| holder.owner));
                let ahead = record
                    .waiters()
                    .take_while(|other| !Arc::ptr_eq(other, waiter));
                blockers.extend(ahead.map(|other| other.wish.request.owner));
            }
            // Ends nothing, and so wakes nobody: the caller holds a lock.
            if let Ok(found) = self.table.find(local, key, hash)
                && found.contents.deadline > local.now
            {
                blockers.push(found.contents.owner);
            }
        });
        blockers
    }

    /// The last circles that were found.
    pub(crate) fn deadlocks(&self) -> Vec<Cycle> {
        self.detector.last()
    }
}
