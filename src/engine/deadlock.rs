//! Who waits for whom: cycles are found when an acquisition joins a queue.
//!
//! An owner waits for all who hold the key in a way that keeps it out, and for those ahead of it in the
//! queue. Permits are left out: any of their holders may make room, so a circle through one of them need
//! not be a deadlock. The search is for a circle in the graph of owners (Holt, 1972), breadth first, up to a
//! bound; it starts where an edge is added, so whoever closes a circle finds it, and the shortest one.
//!
//! Who waits behind others in a queue waits for all that those wait for, so a queue is looked at once, from
//! where its last waiter that the search comes to stands.
//!
//! An edge is entered and the search made under one lock, after the acquisition has its place in the
//! queue: of two who close a circle together, the later sees the edges of both. The records of the keys are
//! locked one at a time, inside of that lock.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Weak;

use foldhash::fast::RandomState;

use super::grants::Denied;
use super::{Engine, Entered, wake};
use crate::error::{AcquireError, Cycle};
use crate::key::Key;
use crate::metrics;
use crate::owner::OwnerId;
use crate::records::Waiter;
use crate::room::shrink;
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
            self.clear();
        }
        let waiters = self.by_owner.entry(waiter.wish.request.owner).or_default();
        waiters.retain(|waiter| waiter.strong_count() > 0);
        waiters.push(Arc::downgrade(waiter));
    }

    /// Drops those that have ended.
    fn clear(&mut self) {
        self.by_owner.retain(|_, waiters| {
            waiters.retain(|waiter| waiter.strong_count() > 0);
            !waiters.is_empty()
        });
        self.cleared = self.by_owner.len();
    }

    fn of(&self, owner: u64) -> Vec<Arc<Waiter>> {
        let waiters = self.by_owner.get(&owner);
        let waiters = waiters.into_iter().flatten().filter_map(Weak::upgrade);
        waiters.collect()
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

    /// Gives back what waits that have ended keep.
    pub(super) fn trim(&self) {
        let mut waits = self.waits.lock();
        waits.clear();
        shrink(&mut waits.by_owner);
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

/// A wait that the search has come to, and from which one.
#[derive(Debug)]
struct Step {
    waiter: Arc<Waiter>,
    from: Option<usize>,
    depth: usize,
}

/// A search under way.
#[derive(Debug, Default)]
struct Search {
    steps: Vec<Step>,
    owners: HashSet<u64, RandomState>,
    /// The queues that were looked at, as a whole (or only for who shares), and from which place on.
    queues: HashMap<Key, (bool, u64), RandomState>,
}

impl Search {
    /// Whether all that a waiter waits for has been come to already, since it waits ahead of another.
    fn has_seen(&self, waiter: &Waiter) -> bool {
        let exclusive = waiter.wish.mode == Mode::Exclusive;
        let seen = self.queues.get(&waiter.key());
        seen.is_some_and(|&(whole, place)| place >= waiter.number() && (whole || !exclusive))
    }

    /// Notes that all that a waiter waits for has been come to.
    fn note(&mut self, waiter: &Waiter) {
        let exclusive = waiter.wish.mode == Mode::Exclusive;
        self.queues
            .insert(waiter.key(), (exclusive, waiter.number()));
    }

    /// The waits that have led to a step, from the first.
    fn path(&self, to: usize) -> Vec<(OwnerId, Key)> {
        let mut path = vec![];
        let mut at = Some(to);
        while let Some(step) = at.map(|at| &self.steps[at]) {
            let owner = OwnerId(step.waiter.wish.request.owner);
            path.push((owner, step.waiter.key()));
            at = step.from;
        }
        path.reverse();
        path
    }
}

impl<L: Layout> Engine<L> {
    /// The circle that this acquisition, which has just joined a queue, has closed.
    pub(super) fn find_cycle(&self, waiter: &Arc<Waiter>) -> Option<Box<Cycle>> {
        if self.detector.max_depth == 0 {
            return None;
        }
        // What they keep hold of is dropped without the lock: the last reference to a waiter drops a waker.
        let (mut search, mut again) = (Search::default(), Search::default());
        let found = {
            let mut waits = self.detector.waits.lock();
            waits.add(waiter);
            let first = self.search(&waits, &mut search, waiter);
            // Keys are looked at one after the other. What is seen in both searches stood between them, all
            // of it at once.
            first.filter(|first| self.search(&waits, &mut again, waiter).as_ref() == Some(first))
        };
        wake::discard(search.steps);
        wake::discard(again.steps);
        Some(Box::new(Cycle { waits: found? }))
    }

    fn search(
        &self,
        waits: &Waits,
        search: &mut Search,
        waiter: &Arc<Waiter>,
    ) -> Option<Vec<(OwnerId, Key)>> {
        let start = waiter.wish.request.owner;
        search.steps.push(Step {
            waiter: Arc::clone(waiter),
            from: None,
            depth: 1,
        });
        let mut at = 0;
        while let Some(Step { waiter, depth, .. }) = search.steps.get(at) {
            let (waiter, depth) = (Arc::clone(waiter), *depth);
            let seen = search.has_seen(&waiter);
            if !seen && let Some(blockers) = self.blockers(&waiter) {
                search.note(&waiter);
                for blocker in blockers {
                    if blocker == start {
                        return Some(search.path(at));
                    }
                    if depth < self.detector.max_depth && search.owners.insert(blocker) {
                        let next = waits.of(blocker).into_iter().map(|waiter| Step {
                            waiter,
                            from: Some(at),
                            depth: depth + 1,
                        });
                        search.steps.extend(next);
                    }
                }
            }
            at += 1;
        }
        None
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
            None => {
                self.detector.keep(&cycle);
                metrics::tell(vec![self.metrics.deadlock(&cycle)]);
                Err(Denied::Other(AcquireError::Deadlock { cycle }))
            }
        }
    }

    /// The owners that a waiter waits for; `None` if it has left its queue, whether it has been granted
    /// the key or given up.
    fn blockers(&self, waiter: &Arc<Waiter>) -> Option<Vec<u64>> {
        let mode = waiter.wish.mode;
        if matches!(mode, Mode::Permit { .. }) {
            return None;
        }
        let (key, hash) = (waiter.key(), waiter.hash);
        self.with(self.time.now(), |local| {
            let mut stripe = self.records.lock(hash);
            let record = stripe.get(key)?;
            let mine = |other: &Arc<Waiter>| Arc::ptr_eq(other, waiter);
            let place = record.waiters().position(mine)?;
            let upgraded = waiter.wish.upgrade;
            let holders = record.holders.iter().filter(|holder| {
                Some(holder.token) != upgraded
                    && holder.until() > local.now
                    && (mode == Mode::Exclusive || holder.mode == Mode::Exclusive)
                    && !matches!(holder.mode, Mode::Permit { .. })
            });
            let ahead = record.waiters().take(place);
            let mut blockers: Vec<u64> = holders.map(|holder| holder.owner).collect();
            blockers.extend(ahead.map(|other| other.wish.request.owner));
            // Ends nothing, and so wakes nobody: the caller holds a lock.
            if let Ok(found) = self.table.find(local, key, hash)
                && found.contents.deadline > local.now
            {
                blockers.push(found.contents.owner);
            }
            Some(blockers)
        })
    }

    /// The last circles that were found.
    pub(crate) fn deadlocks(&self) -> Vec<Cycle> {
        self.detector.last()
    }
}

#[cfg(all(test, not(any(tenure_loom, tenure_shuttle))))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::engine::Request;
    use crate::wish::Wish;

    fn waiter(owner: u64) -> Arc<Waiter> {
        let request = Request {
            key: Key::from_raw(1),
            owner,
            ttl: Duration::from_secs(1),
            at_least: 0,
        };
        Waiter::new(Wish::plain(request), 1, 0)
    }

    /// I9: those that have ended are dropped now and then, and only those.
    #[test]
    fn waits_that_have_ended_take_no_room_for_long() {
        const MANY: u64 = 10_000;
        let detector = Detector::new(8);
        let stay: Vec<_> = (0..20).map(waiter).collect();
        let mut waits = detector.waits.lock();
        for it in &stay {
            waits.add(it);
        }
        for owner in 0..MANY {
            waits.add(&waiter(owner));
            assert!(waits.by_owner.len() <= 2 * stay.len() + KEPT);
            // Of one owner as well.
            waits.add(&waiter(0));
            assert!(waits.by_owner[&0].len() <= 2);
        }
        for it in &stay {
            let of_owner = waits.of(it.wish.request.owner);
            assert!(of_owner.len() == 1 && Arc::ptr_eq(&of_owner[0], it));
        }
        let many: Vec<_> = (0..MANY).map(waiter).collect();
        for it in &many {
            waits.add(it);
        }
        drop((waits, many));
        detector.trim();
        let waits = detector.waits.lock();
        assert_eq!(waits.by_owner.len(), stay.len());
        assert!(waits.by_owner.capacity() < MANY as usize / 2);
    }
}
