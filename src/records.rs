//! The records of keys: who waits for them, who holds them other than by a plain lease, and who wants to
//! know of their ends.
//!
//! A record exists while there is something in it, and its key has a mark in the table for as long
//! (rule 8 in `table/mark.rs`). Its lock (one of a few stripes, by the key's hash) is held while it is
//! changed, with the table's operations on that key inside. No code of the user's runs under it: wakers
//! are handed out, and woken later.
//!
//! Locks are taken in this order: the detector's waits, a stripe's, a session's book, a waiter's slot or a
//! signal; or, after a stripe's, the list of streams and then a stream. A thread holds one of a kind at most,
//! and the map of sessions with none of them but, as the manager closes, a book and a signal.

mod holders;
mod waiter;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Weak;
use std::task::Waker;

use crossbeam_utils::CachePadded;
use foldhash::fast::RandomState;

pub(crate) use self::holders::{Holder, Holders, Keeper};
pub(crate) use self::waiter::Waiter;
use crate::error::AcquireError;
use crate::key::Key;
use crate::lost::Signal;
use crate::sync::{Arc, AtomicUsize, MODELLED, Mutex, MutexGuard, Ordering};
use crate::table::{Contents, Loss};

const STRIPES: usize = if MODELLED { 4 } else { 64 };

/// Adds to a list of watches, of which those are dropped that nobody looks at any more.
pub(crate) fn add_watch<T>(watches: &mut Vec<T>, watch: T, signal: impl Fn(&T) -> &Weak<Signal>) {
    add_weak(watches, watch, |watch| signal(watch).strong_count() > 0);
}

/// Adds to a list, of which those are dropped now and then that are gone: so rarely that each costs a few
/// looks, however many stay.
pub(crate) fn add_weak<T>(list: &mut Vec<T>, new: T, is_there: impl Fn(&T) -> bool) {
    if list.len() == list.capacity() {
        list.retain(is_there);
        // Half of it is free until the next time.
        list.reserve(list.len() + 1);
    }
    list.push(new);
}

/// A timer, and the tick that it is set to; `u64::MAX` until it is first set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timer {
    pub(crate) cell: u32,
    pub(crate) set_to: u64,
}

/// What there is to a key besides a plain lease.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) holders: Holders,
    /// By number, so that whoever leaves is found at once, however many wait.
    waiters: BTreeMap<u64, Arc<Waiter>>,
    /// The holder of a shared lease who waits for the others to leave.
    pub(crate) upgrader: Option<Arc<Waiter>>,
    /// The tick until which nobody is granted the key. Counts as a lease, for the limit on these.
    pub(crate) quarantine: Option<u64>,
    /// Who wants to know of the end of a plain lease, by its token.
    watches: Vec<(u64, Weak<Signal>)>,
    pub(crate) timer: Option<Timer>,
    /// The head of the queue could not be granted the key for want of a place: it is tried again then.
    pub(crate) retry: Option<u64>,
    /// Waiters that would enter a lease of their owner's: by owner, and by number.
    reentrant: BTreeSet<(u64, u64)>,
    /// The lease that ended last.
    pub(crate) last: Option<Contents>,
}

impl Record {
    pub(crate) fn is_empty(&self) -> bool {
        self.holders.is_empty()
            && self.waiters.is_empty()
            && self.upgrader.is_none()
            && self.quarantine.is_none()
            && self.watches.is_empty()
    }

    pub(crate) fn head(&self) -> Option<&Arc<Waiter>> {
        Some(self.waiters.first_key_value()?.1)
    }

    /// Who waits, in order.
    pub(crate) fn waiters(&self) -> impl Iterator<Item = &Arc<Waiter>> {
        self.upgrader.iter().chain(self.waiters.values())
    }

    /// The first who waits, if that is nobody any more: the queue's own reference is the last.
    pub(crate) fn first_abandoned(&self) -> Option<Arc<Waiter>> {
        let mut waiters = self.waiters();
        let first = waiters.next()?;
        (Arc::strong_count(first) == 1).then(|| Arc::clone(first))
    }

    /// Whether somebody comes before a new acquisition.
    pub(crate) fn has_queue(&self) -> bool {
        self.upgrader.is_some() || !self.waiters.is_empty()
    }

    /// The next tick at which something has to be done.
    pub(crate) fn next_due(&self) -> Option<u64> {
        let holders = self.holders.next_due().into_iter();
        holders.chain(self.quarantine).chain(self.retry).min()
    }

    /// Those who wait and would enter a lease of that owner's.
    pub(crate) fn reentrants(&self, owner: u64) -> Vec<Arc<Waiter>> {
        let theirs = self.reentrant.range((owner, 0)..=(owner, u64::MAX));
        let waiters = theirs.filter_map(|(_, number)| self.waiters.get(number));
        waiters.cloned().collect()
    }

    /// Nobody is granted the key before that tick; says whether that is new.
    pub(crate) fn keep_until(&mut self, tick: u64) -> bool {
        let new = self.quarantine.is_none();
        self.quarantine = self.quarantine.max(Some(tick));
        new
    }

    /// Adds somebody who wants to know of the end of the table's lease.
    pub(crate) fn watch(&mut self, token: u64, signal: &Arc<Signal>) {
        let watch = (token, Arc::downgrade(signal));
        add_watch(&mut self.watches, watch, |(_, signal)| signal);
    }

    /// The lease of that token is over: tells those who want to know.
    pub(crate) fn tell(&mut self, token: u64, loss: Loss, wakes: &mut Vec<Waker>) {
        for signal in self.take_watches(token) {
            wakes.extend(signal.upgrade().and_then(|signal| signal.set(loss)));
        }
    }

    /// Takes out one who wants to know no more.
    pub(crate) fn unwatch(&mut self, signal: &Arc<Signal>) {
        let watch = Arc::downgrade(signal);
        self.watches.retain(|(_, other)| !other.ptr_eq(&watch));
    }

    /// Puts back who wants to know of that lease's end.
    pub(crate) fn return_watches(&mut self, token: u64, watches: Vec<Weak<Signal>>) {
        self.watches
            .extend(watches.into_iter().map(|watch| (token, watch)));
    }

    /// Takes out who wants to know of that lease's end.
    pub(crate) fn take_watches(&mut self, token: u64) -> Vec<Weak<Signal>> {
        if self.watches.is_empty() {
            return vec![];
        }
        let (gone, stay) = std::mem::take(&mut self.watches)
            .into_iter()
            .partition(|watch| watch.0 == token);
        self.watches = stay;
        let gone: Vec<(u64, _)> = gone;
        gone.into_iter().map(|watch| watch.1).collect()
    }
}

/// The records of some keys.
#[derive(Debug, Default)]
pub(crate) struct Stripe {
    pub(crate) records: HashMap<Key, Box<Record>, RandomState>,
    next_number: u64,
    closed: bool,
}

impl Stripe {
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(crate) fn get(&mut self, key: Key) -> Option<&mut Record> {
        self.records.get_mut(&key).map(|record| &mut **record)
    }

    /// Whether the key has no lease but the table's.
    pub(crate) fn holds_none(&mut self, key: Key) -> bool {
        self.get(key).is_none_or(|record| record.holders.is_empty())
    }

    pub(crate) fn get_or_insert(&mut self, key: Key) -> &mut Record {
        self.records.entry(key).or_default()
    }
}

/// All records.
#[derive(Debug)]
pub(crate) struct Records {
    stripes: Box<[CachePadded<Mutex<Stripe>>]>,
    waiting: AtomicUsize,
    max_per_key: usize,
    max: usize,
}

impl Records {
    pub(crate) fn new(max_per_key: usize, max: usize) -> Self {
        Self {
            stripes: (0..STRIPES)
                .map(|_| CachePadded::new(Mutex::new(Stripe::default())))
                .collect(),
            waiting: AtomicUsize::new(0),
            max_per_key,
            max,
        }
    }

    /// The lock of the key's record.
    pub(crate) fn lock(&self, hash: u64) -> MutexGuard<'_, Stripe> {
        // The low bits choose the bucket.
        self.stripes[(hash >> 58) as usize % STRIPES].lock()
    }

    /// All stripes, to be locked one at a time.
    pub(crate) fn stripes(&self) -> impl Iterator<Item = &Mutex<Stripe>> {
        self.stripes.iter().map(|stripe| &**stripe)
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Adds a waiter at the end, unless too many wait.
    pub(crate) fn push(
        &self,
        stripe: &mut Stripe,
        waiter: &Arc<Waiter>,
    ) -> Result<(), AcquireError> {
        let key = waiter.key();
        let waiting = stripe.get(key).map_or(0, |record| record.waiters.len());
        self.count(waiting)?;
        let number = stripe.next_number;
        stripe.next_number += 1;
        waiter.number.store(number, Ordering::Relaxed);
        let record = stripe.get_or_insert(key);
        if waiter.wish.reentrant {
            record.reentrant.insert((waiter.wish.request.owner, number));
        }
        record.waiters.insert(number, Arc::clone(waiter));
        Ok(())
    }

    /// Puts a waiter before all others: a holder of the key's.
    pub(crate) fn push_upgrader(
        &self,
        record: &mut Record,
        waiter: &Arc<Waiter>,
    ) -> Result<(), AcquireError> {
        self.count(record.waiters.len())?;
        record.upgrader = Some(Arc::clone(waiter));
        Ok(())
    }

    /// Counts one more where so many wait already.
    fn count(&self, of_key: usize) -> Result<(), AcquireError> {
        let full = |limit| Err(AcquireError::QueueFull { limit });
        if of_key >= self.max_per_key {
            return full(self.max_per_key);
        }
        let room = |waiting| (waiting < self.max).then_some(waiting + 1);
        let counted = self
            .waiting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, room);
        counted.map(drop).or_else(|_| full(self.max))
    }

    /// Takes a waiter out, wherever it stands; false if it was not there.
    pub(crate) fn remove(&self, record: &mut Record, waiter: &Arc<Waiter>) -> bool {
        let same = |other: &Arc<Waiter>| Arc::ptr_eq(other, waiter);
        let number = waiter.number.load(Ordering::Relaxed);
        let found = if record.upgrader.as_ref().is_some_and(same) {
            record.upgrader.take().is_some()
        } else if record.waiters.get(&number).is_some_and(same) {
            if waiter.wish.reentrant {
                let entry = (waiter.wish.request.owner, number);
                record.reentrant.remove(&entry);
            }
            record.waiters.remove(&number).is_some()
        } else {
            false
        };
        if found {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        found
    }

    /// Refuses all who wait and whoever comes after them; the wakers are for the caller to wake.
    pub(crate) fn close(&self) -> Vec<Waker> {
        let mut wakers = vec![];
        for stripe in &self.stripes {
            let mut stripe = stripe.lock();
            stripe.closed = true;
            for (_, record) in stripe.records.drain() {
                for waiter in record.waiters() {
                    self.waiting.fetch_sub(1, Ordering::Relaxed);
                    wakers.extend(waiter.settle(Err(AcquireError::Closed)));
                }
                let of_holders = record.holders.iter().flat_map(|holder| &holder.watches);
                for signal in of_holders.chain(record.watches.iter().map(|watch| &watch.1)) {
                    wakers.extend(signal.upgrade().and_then(|signal| signal.set(Loss::Closed)));
                }
            }
        }
        wakers
    }
}

#[cfg(all(test, not(any(tenure_loom, tenure_shuttle))))]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Most of them stay, and one goes and comes at a time: a list that is full each time would be looked
    /// through each time.
    #[test]
    fn a_list_of_what_may_be_gone_is_seldom_looked_through() {
        const STAY: usize = 1_000;
        let looks = Cell::new(0);
        let mut list: Vec<Weak<()>> = vec![];
        let add = |list: &mut Vec<Weak<()>>, new: &Arc<()>| {
            add_weak(list, Arc::downgrade(new), |it| {
                looks.set(looks.get() + 1);
                it.strong_count() > 0
            });
        };
        let stay: Vec<Arc<()>> = (0..STAY).map(|_| Arc::default()).collect();
        for it in &stay {
            add(&mut list, it);
        }
        for _ in 0..10 * STAY {
            add(&mut list, &Arc::default());
            assert!(list.len() <= 4 * STAY, "those that are gone are dropped");
        }
        assert!(looks.get() <= 4 * 11 * STAY, "{} looks", looks.get());
        let there = list.iter().filter(|it| it.strong_count() > 0).count();
        assert_eq!(there, STAY);
    }

    /// I9: a lease that lasts may be watched many times.
    #[test]
    fn who_has_stopped_watching_takes_no_room_for_long() {
        let stay: Vec<_> = (0..20).map(|_| Signal::new()).collect();
        let (mut record, mut holder) = (Record::default(), Holder::new(1, 1, None, 10));
        for it in &stay {
            for _ in 0..100 {
                record.watch(1, &Signal::new());
                holder.watch(&Signal::new());
            }
            record.watch(1, it);
            holder.watch(it);
        }
        let watches = record.take_watches(1);
        for watches in [watches, holder.watches] {
            assert!(watches.len() <= 4 * stay.len());
            let there = watches.iter().filter(|it| it.strong_count() > 0);
            assert_eq!(there.count(), stay.len());
        }
    }

    /// A lease that was to move into the record, and has not: who watches it hears of its end still.
    #[test]
    fn watches_that_are_put_back_are_told() {
        let (stays, goes) = (Signal::new(), Signal::new());
        let mut record = Record::default();
        record.watch(1, &stays);
        record.watch(2, &goes);
        let taken = record.take_watches(1);
        assert_eq!(taken.len(), 1);
        record.return_watches(1, taken);
        record.unwatch(&goes);
        let mut wakes = vec![];
        record.tell(1, Loss::Released, &mut wakes);
        assert_eq!(crate::Lost::new(stays).now(), Some(Loss::Released));
        record.tell(2, Loss::Released, &mut wakes);
        assert_eq!(crate::Lost::new(goes).now(), None);
        assert!(record.is_empty() && wakes.is_empty());
    }
}
