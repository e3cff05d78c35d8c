//! The records of keys: who waits for them, who holds them other than by a plain lease, and who wants to
//! know of their ends.
//!
//! A record exists while there is something in it, and its key has a mark in the table for as long
//! (rule 8 in `table/mark.rs`). Its lock (one of a few stripes, by the key's hash) is held while it is
//! changed, with the table's operations on that key inside. No code of the user's runs under it: wakers
//! are handed out, and woken later.
//!
//! Locks are taken in this order: a stripe's, a session's book, a waiter's slot or a signal. A thread holds
//! one of a kind at most.

use std::collections::{BTreeMap, HashMap};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use foldhash::fast::RandomState;

use crate::engine::{Acquired, Request};
use crate::error::AcquireError;
use crate::key::Key;
use crate::lost::Signal;
use crate::session::SessionCore;
use crate::sync::{Arc, AtomicU64, AtomicUsize, MODELLED, Mutex, MutexGuard, Ordering};
use crate::table::{Contents, Loss};
use crate::wish::{Mode, Terms, Wish};

const STRIPES: usize = if MODELLED { 4 } else { 64 };

/// What a waiter will find.
#[derive(Debug)]
enum Slot {
    Waiting(Option<Waker>),
    Settled(Result<Acquired, AcquireError>),
    /// The result has been taken.
    Empty,
}

/// One acquisition that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) wish: Wish,
    pub(crate) hash: u64,
    /// When it came, in nanoseconds of the manager's clock.
    pub(crate) since: u64,
    /// Its number in the queue; written under the record's lock.
    number: AtomicU64,
    slot: Mutex<Slot>,
}

impl Waiter {
    pub(crate) fn new(wish: Wish, hash: u64, since: u64) -> Arc<Self> {
        Arc::new(Self {
            wish,
            hash,
            since,
            number: AtomicU64::new(0),
            slot: Mutex::new(Slot::Waiting(None)),
        })
    }

    pub(crate) fn key(&self) -> Key {
        self.wish.request.key
    }

    /// The result, once; until then, the context's task is woken when there is one.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Result<Acquired, AcquireError>> {
        // Cloning and dropping a waker is code of the user's.
        let waker = context.waker().clone();
        let mut slot = self.slot.lock();
        if let Slot::Waiting(before) = &mut *slot {
            let before = before.replace(waker);
            drop(slot);
            drop(before);
            return Poll::Pending;
        }
        match std::mem::replace(&mut *slot, Slot::Empty) {
            Slot::Settled(result) => Poll::Ready(result),
            Slot::Waiting(_) | Slot::Empty => Poll::Pending,
        }
    }

    /// The result, if there is one that nobody has taken.
    pub(crate) fn take(&self) -> Option<Result<Acquired, AcquireError>> {
        let mut slot = self.slot.lock();
        if matches!(*slot, Slot::Waiting(_)) {
            return None;
        }
        match std::mem::replace(&mut *slot, Slot::Empty) {
            Slot::Settled(result) => Some(result),
            Slot::Waiting(_) | Slot::Empty => None,
        }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        matches!(*self.slot.lock(), Slot::Waiting(_))
    }

    /// Sets the result; the waker is for the caller to wake.
    pub(crate) fn settle(&self, result: Result<Acquired, AcquireError>) -> Option<Waker> {
        let before = std::mem::replace(&mut *self.slot.lock(), Slot::Settled(result));
        match before {
            Slot::Waiting(waker) => waker,
            Slot::Settled(_) | Slot::Empty => None,
        }
    }
}

/// The renewals of a lease by the manager.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keeper {
    pub(crate) ttl: Duration,
    /// The tick of the next one.
    pub(crate) next: u64,
    /// No deadline is later than this tick.
    pub(crate) cap: u64,
}

/// A lease that the record holds.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) token: u64,
    pub(crate) owner: u64,
    pub(crate) mode: Mode,
    /// How often it was entered and not yet left.
    pub(crate) entries: u32,
    /// When it was granted, in nanoseconds of the manager's clock.
    pub(crate) granted: u64,
    /// In ticks; of no meaning under a session.
    pub(crate) deadline: u64,
    pub(crate) session: Option<Arc<SessionCore>>,
    pub(crate) terms: Terms,
    /// The tick until which nobody else is granted the key, even if it is released before.
    pub(crate) min_until: u64,
    pub(crate) keeper: Option<Keeper>,
    /// The keeper has stopped, since it came to its cap.
    pub(crate) capped: bool,
    pub(crate) watches: Vec<std::sync::Weak<Signal>>,
}

impl Holder {
    /// An exclusive lease with no terms.
    pub(crate) fn new(token: u64, owner: u64, granted: u64, deadline: u64) -> Self {
        Self {
            token,
            owner,
            mode: Mode::Exclusive,
            entries: 1,
            granted,
            deadline,
            session: None,
            terms: Terms::default(),
            min_until: 0,
            keeper: None,
            capped: false,
            watches: vec![],
        }
    }

    /// The tick at which it is over, as things are.
    pub(crate) fn until(&self) -> u64 {
        match &self.session {
            Some(session) => session.until(),
            None => self.deadline,
        }
    }

    /// Its deadline, whether it was ended before or not.
    pub(crate) fn deadline(&self) -> u64 {
        match &self.session {
            Some(session) => session.deadline(),
            None => self.deadline,
        }
    }

    /// Whether it is over at that tick; then it stays so, whatever happens to its session.
    pub(crate) fn is_over(&self, now: u64) -> bool {
        match &self.session {
            Some(session) => session.is_over(now),
            None => self.deadline <= now,
        }
    }

    /// The tick at which something has to be done about it. (A session has a timer of its own.)
    fn next_due(&self) -> Option<u64> {
        if self.session.is_some() {
            return None;
        }
        let renewal = self.keeper.map_or(u64::MAX, |keeper| keeper.next);
        Some(self.deadline.min(renewal))
    }

    /// Adds somebody who wants to know of its end.
    pub(crate) fn watch(&mut self, signal: &Arc<Signal>) {
        add_watch(&mut self.watches, Arc::downgrade(signal), |watch| watch);
    }
}

/// Adds to a list of watches, of which those are dropped that nobody looks at any more.
fn add_watch<T>(watches: &mut Vec<T>, watch: T, signal: impl Fn(&T) -> &std::sync::Weak<Signal>) {
    if watches.len() == watches.capacity() {
        watches.retain(|watch| signal(watch).strong_count() > 0);
    }
    watches.push(watch);
}

/// A timer, and the tick that it is set to; `u64::MAX` once it has rung.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timer {
    pub(crate) cell: u32,
    pub(crate) set_to: u64,
}

/// What there is to a key besides a plain lease.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// By token.
    pub(crate) holders: BTreeMap<u64, Holder>,
    /// By number, so that whoever leaves is found at once, however many wait.
    waiters: BTreeMap<u64, Arc<Waiter>>,
    /// The holder of a shared lease who waits for the others to leave.
    pub(crate) upgrader: Option<Arc<Waiter>>,
    /// The tick until which nobody is granted the key.
    pub(crate) quarantine: Option<u64>,
    /// Who wants to know of the end of a plain lease, by its token.
    watches: Vec<(u64, std::sync::Weak<Signal>)>,
    pub(crate) timer: Option<Timer>,
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

    /// Whether somebody comes before a new acquisition.
    pub(crate) fn has_queue(&self) -> bool {
        self.upgrader.is_some() || !self.waiters.is_empty()
    }

    /// Whether its holders admit another in that mode.
    pub(crate) fn admits(&self, mode: Mode) -> bool {
        let others = |same: fn(Mode) -> bool| self.holders.values().all(|other| same(other.mode));
        match mode {
            Mode::Exclusive => self.holders.is_empty(),
            Mode::Shared => others(|other| other == Mode::Shared),
            Mode::Permit { of } => {
                self.holders.len() < of as usize
                    && others(|other| matches!(other, Mode::Permit { .. }))
            }
        }
    }

    /// The lease of that owner's that covers the mode, if there is one, and its token is high enough.
    pub(crate) fn entered_by(&mut self, request: &Request, mode: Mode) -> Option<&mut Holder> {
        self.holders.values_mut().find(|holder| {
            holder.owner == request.owner
                && holder.mode.covers(mode)
                && holder.token >= request.at_least
        })
    }

    /// The holder that lasts longest.
    pub(crate) fn last_holder(&self) -> Option<&Holder> {
        self.holders.values().max_by_key(|holder| holder.until())
    }

    /// The next tick at which something has to be done.
    pub(crate) fn next_due(&self) -> Option<u64> {
        let holders = self.holders.values().filter_map(Holder::next_due).min();
        holders.into_iter().chain(self.quarantine).min()
    }

    /// Nobody is granted the key before that tick.
    pub(crate) fn keep_until(&mut self, tick: u64) {
        self.quarantine = self.quarantine.max(Some(tick));
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

    /// Takes out who wants to know of that lease's end.
    pub(crate) fn take_watches(&mut self, token: u64) -> Vec<std::sync::Weak<Signal>> {
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
                let of_holders = record.holders.values().flat_map(|holder| &holder.watches);
                for signal in of_holders.chain(record.watches.iter().map(|watch| &watch.1)) {
                    wakers.extend(signal.upgrade().and_then(|signal| signal.set(Loss::Closed)));
                }
            }
        }
        wakers
    }
}
