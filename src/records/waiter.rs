//! One acquisition that waits.

use std::task::{Context, Poll, Waker};

use crate::engine::Acquired;
use crate::error::AcquireError;
use crate::key::Key;
use crate::sync::{Arc, AtomicU64, Mutex, Ordering};
use crate::wish::Wish;

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
    pub(super) number: AtomicU64,
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

    /// Its number in the queue.
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// The result, once; until then, the context's task is woken when there is one.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Result<Acquired, AcquireError>> {
        if matches!(*self.slot.lock(), Slot::Waiting(_)) {
            // Cloning and dropping a waker is code of the user's.
            let waker = context.waker().clone();
            let mut slot = self.slot.lock();
            let unused = match &mut *slot {
                Slot::Waiting(before) => {
                    let before = before.replace(waker);
                    drop(slot);
                    drop(before);
                    return Poll::Pending;
                }
                Slot::Settled(_) | Slot::Empty => waker,
            };
            drop(slot);
            // Before the result is taken, which would be lost if this panicked.
            drop(unused);
        }
        match self.take() {
            Some(result) => Poll::Ready(result),
            None => Poll::Pending,
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

    /// Sets the result; the waker is for the caller to wake.
    pub(crate) fn settle(&self, result: Result<Acquired, AcquireError>) -> Option<Waker> {
        let before = std::mem::replace(&mut *self.slot.lock(), Slot::Settled(result));
        match before {
            Slot::Waiting(waker) => waker,
            Slot::Settled(_) | Slot::Empty => None,
        }
    }
}
