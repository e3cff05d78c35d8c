//! Who waits for which key, in the order of arrival.
//!
//! A queue exists while somebody waits, and its key has a mark in the table for as long (rule 8 in
//! `table/queue.rs`). The queue's lock (one of a few stripes, by the key's hash) is held while a waiter is
//! added, while the head is granted a lease, and while a waiter leaves, with the table's operations on
//! that key inside. No code of the user's runs under it: wakers are handed out, and woken later.
//!
//! A waiter's own lock is inside of the queue's. It is all that a poll takes.

use std::collections::{BTreeMap, HashMap};
use std::task::{Context, Poll, Waker};

use crossbeam_utils::CachePadded;
use foldhash::fast::RandomState;

use crate::engine::{Acquired, Request};
use crate::error::AcquireError;
use crate::key::Key;
use crate::sync::{Arc, AtomicU64, AtomicUsize, MODELLED, Mutex, MutexGuard, Ordering};

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
    pub(crate) request: Request,
    pub(crate) hash: u64,
    /// Its number in the queue; written under the queue's lock.
    number: AtomicU64,
    slot: Mutex<Slot>,
}

impl Waiter {
    pub(crate) fn new(request: Request, hash: u64) -> Arc<Self> {
        Arc::new(Self {
            request,
            hash,
            number: AtomicU64::new(0),
            slot: Mutex::new(Slot::Waiting(None)),
        })
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
        match &*slot {
            Slot::Settled(result) => {
                let result = *result;
                *slot = Slot::Empty;
                Some(result)
            }
            Slot::Waiting(_) | Slot::Empty => None,
        }
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

/// The queues of some keys.
#[derive(Debug, Default)]
pub(crate) struct Stripe {
    /// By number, so that whoever leaves is found at once, however many wait.
    queues: HashMap<Key, BTreeMap<u64, Arc<Waiter>>, RandomState>,
    next_number: u64,
    closed: bool,
}

impl Stripe {
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(crate) fn head(&self, key: Key) -> Option<&Arc<Waiter>> {
        let (_, head) = self.queues.get(&key)?.first_key_value()?;
        Some(head)
    }

    pub(crate) fn len(&self, key: Key) -> usize {
        self.queues.get(&key).map_or(0, BTreeMap::len)
    }
}

/// All queues.
#[derive(Debug)]
pub(crate) struct Waiters {
    stripes: Box<[CachePadded<Mutex<Stripe>>]>,
    waiting: AtomicUsize,
    max_per_key: usize,
    max: usize,
}

impl Waiters {
    pub(crate) fn new(max_per_key: usize, max: usize) -> Self {
        Self {
            stripes: (0..STRIPES).map(|_| CachePadded::default()).collect(),
            waiting: AtomicUsize::new(0),
            max_per_key,
            max,
        }
    }

    /// The lock of the key's queue.
    pub(crate) fn lock(&self, hash: u64) -> MutexGuard<'_, Stripe> {
        // The low bits choose the bucket.
        self.stripes[(hash >> 58) as usize % STRIPES].lock()
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
        let full = |limit| Err(AcquireError::QueueFull { limit });
        let key = waiter.request.key;
        if stripe.len(key) >= self.max_per_key {
            return full(self.max_per_key);
        }
        let room = |waiting| (waiting < self.max).then_some(waiting + 1);
        let counted = self
            .waiting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, room)
            .is_ok();
        if !counted {
            return full(self.max);
        }
        let number = stripe.next_number;
        stripe.next_number += 1;
        waiter.number.store(number, Ordering::Relaxed);
        let queue = stripe.queues.entry(key).or_default();
        queue.insert(number, Arc::clone(waiter));
        Ok(())
    }

    /// Takes the head off; says whether it was the last.
    pub(crate) fn pop(&self, stripe: &mut Stripe, key: Key) -> bool {
        if let Some(queue) = stripe.queues.get_mut(&key) {
            if queue.pop_first().is_some() {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
            }
            if queue.is_empty() {
                stripe.queues.remove(&key);
            }
        }
        stripe.len(key) == 0
    }

    /// Takes a waiter out, wherever it stands; false if it was not there.
    pub(crate) fn remove(&self, stripe: &mut Stripe, waiter: &Arc<Waiter>) -> bool {
        let key = waiter.request.key;
        let Some(queue) = stripe.queues.get_mut(&key) else {
            return false;
        };
        let number = waiter.number.load(Ordering::Relaxed);
        if !queue
            .get(&number)
            .is_some_and(|other| Arc::ptr_eq(other, waiter))
        {
            return false;
        }
        queue.remove(&number);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        if queue.is_empty() {
            stripe.queues.remove(&key);
        }
        true
    }

    /// Refuses all who wait and whoever comes after them; the wakers are for the caller to wake.
    pub(crate) fn close(&self) -> Vec<Waker> {
        let mut wakers = vec![];
        for stripe in &self.stripes {
            let mut stripe = stripe.lock();
            stripe.closed = true;
            for waiter in stripe
                .queues
                .drain()
                .flat_map(|(_, queue)| queue.into_values())
            {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                wakers.extend(waiter.settle(Err(AcquireError::Closed)));
            }
        }
        wakers
    }
}
