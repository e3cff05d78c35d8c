//! Waiting: a queue and its mark in the table, kept in step.

use std::cell::RefCell;
use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::task::Waker;

use super::grants::{Acquired, MAX_AT_LEAST, Request};
use super::{Engine, Local};
use crate::error::AcquireError;
use crate::key::Key;
use crate::sync::{Arc, Ordering, facade, spin_loop};
use crate::table::{Ask, Granted, Layout, Marked, Refused};
use crate::waiters::Waiter;

/// What came of an acquisition that may wait.
#[derive(Debug)]
pub(crate) enum Enqueued {
    Granted(Acquired),
    Waiting(Arc<Waiter>),
}

/// How often a place within the limit is asked for before a waiter is told that there is none.
const PLACE_TRIES: u32 = 1_000;

facade::thread_local! {
    /// Who is to be woken after the one that this thread is waking.
    static WAKING: RefCell<Option<Vec<Waker>>> = const { RefCell::new(None) };
}

/// Wakes them all, also if one of them panics: that is told by the panic hook, and is not the fault of
/// the caller, who has only ended a lease.
///
/// A waker that ends a lease itself has the next one woken after it has returned, and not from within:
/// a queue of any length takes no more stack than one.
pub(super) fn wake_all(wakes: Vec<Waker>) {
    if wakes.is_empty() {
        return;
    }
    let mut wakes = wakes;
    let nested = WAKING.try_with(|waking| match &mut *waking.borrow_mut() {
        Some(later) => {
            later.append(&mut wakes);
            true
        }
        outermost => {
            *outermost = Some(vec![]);
            false
        }
    });
    if nested == Ok(true) {
        return;
    }
    let mut round = wakes;
    while !round.is_empty() {
        for waker in round {
            if let Err(panic) = panic::catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                // Dropping it may panic as well.
                mem::forget(panic);
            }
        }
        // Without thread-locals, at a thread's end, the nested ones have been woken within.
        let later = WAKING.try_with(|waking| waking.borrow_mut().as_mut().map(mem::take));
        round = later.ok().flatten().unwrap_or_default();
    }
    let _ = WAKING.try_with(|waking| waking.borrow_mut().take());
}

impl<L: Layout> Engine<L> {
    /// Grants the lease if the key is free and nobody waits for it; else joins the queue.
    ///
    /// Asks a second time if all places are taken: leases that are over but not swept hold some.
    pub(crate) fn enqueue(&self, request: &Request) -> Result<Enqueued, AcquireError> {
        let deadline = self.time.deadline(self.time.now(), request.ttl);
        if deadline.is_err() || request.at_least > MAX_AT_LEAST {
            return Err(request.refused(deadline.err()));
        }
        let hash = self.table.hash(request.key);
        let join = |local: &mut Local| self.enqueue_in(local, request, hash);
        match self.with(self.time.now(), join) {
            Err(AcquireError::CapacityExceeded { .. }) => {
                self.advance();
                self.with(self.time.now(), join)
            }
            joined => joined,
        }
    }

    fn enqueue_in(
        &self,
        local: &mut Local,
        request: &Request,
        hash: u64,
    ) -> Result<Enqueued, AcquireError> {
        let key = request.key;
        let mut stripe = self.waiters.lock(hash);
        if stripe.is_closed() {
            return Err(AcquireError::Closed);
        }
        let waiter = Waiter::new(*request, hash);
        if stripe.head(key).is_some() {
            self.waiters.push(&mut stripe, &waiter)?;
            return Ok(Enqueued::Waiting(waiter));
        }
        loop {
            // Under the lock, which may have taken its time: the TTL counts from the grant.
            let now = self.time.now();
            local.now = local.now.max(self.time.tick_of(now));
            let deadline = self.time.deadline(now, request.ttl);
            let ask = Ask {
                queued: true,
                ..request.ask(hash, deadline.map_err(|bad| request.refused(Some(bad)))?)
            };
            match self.grant_counted(local, &ask) {
                Ok(granted) => {
                    return Ok(Enqueued::Granted(Acquired::new(&granted, ask.deadline)));
                }
                Err(Refused::Held(_)) => {}
                Err(refused) => return Err(self.refused(refused, self.most_leases(), now).into()),
            }
            self.waiters.push(&mut stripe, &waiter)?;
            match self.table.mark_queue(local, key, hash) {
                Marked::Yes => return Ok(Enqueued::Waiting(waiter)),
                Marked::Ended => {
                    drop(stripe);
                    self.hand_over(local, key, hash);
                    return Ok(Enqueued::Waiting(waiter));
                }
                Marked::Free => _ = self.waiters.remove(&mut stripe, &waiter),
                Marked::Full => {
                    self.waiters.remove(&mut stripe, &waiter);
                    let capacity = self.most_leases();
                    return Err(AcquireError::CapacityExceeded { capacity });
                }
            }
        }
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiters.waiting()
    }

    fn most_leases(&self) -> usize {
        let limited = self.capacity.as_ref().map(|capacity| capacity.max);
        limited.unwrap_or(L::MAX_LEASES)
    }

    /// Grants within the limit on the number of leases, if there is one.
    ///
    /// A lease that this operation has ended, and not yet given back to the limit, makes room first: so a
    /// lease that passes on is never short of a place.
    fn grant_counted(&self, local: &mut Local, ask: &Ask) -> Result<Granted, Refused> {
        let Some(capacity) = &self.capacity else {
            return self.grant_and_watch(local, ask);
        };
        // Others hold a place for a moment while they find that they can't have the lease.
        let mut tries = 0;
        while !Self::has_place(local) {
            if capacity.reserve() {
                local.reserved += 1;
            } else if let Ok(found) = self.table.live(local, ask.key, ask.hash) {
                return Err(Refused::Held(found.contents));
            } else if tries == PLACE_TRIES {
                return Err(Refused::NoCell);
            } else {
                tries += 1;
                spin_loop();
            }
        }
        self.grant_and_watch(local, ask)
    }

    /// Whether this operation has ended or counted in advance more leases than it has granted.
    fn has_place(local: &Local) -> bool {
        let leases = local.counters.leases.load(Ordering::Relaxed);
        leases - local.accounted - local.reserved < 0
    }

    /// Moves a queue on, if nobody holds the key: grants the lease to its head.
    pub(super) fn hand_over(&self, local: &mut Local, key: Key, hash: u64) {
        let mut stripe = self.waiters.lock(hash);
        loop {
            let Some(head) = stripe.head(key).map(Arc::clone) else {
                self.table.unmark_queue(local, key, hash);
                return;
            };
            let now = self.time.now();
            // The turn of the wheel may be ahead of it.
            local.now = local.now.max(self.time.tick_of(now));
            let request = &head.request;
            let settled = match self.time.deadline(now, request.ttl) {
                Err(bad) => Err(request.refused(Some(bad))),
                Ok(deadline) => {
                    let ask = Ask {
                        queued: true,
                        ..request.ask(hash, deadline)
                    };
                    match self.grant_counted(local, &ask) {
                        Ok(granted) => Ok(Acquired::new(&granted, deadline)),
                        // Whoever ends that lease moves the queue on.
                        Err(Refused::Held(_)) => return,
                        Err(refused) => Err(self.refused(refused, self.most_leases(), now).into()),
                    }
                }
            };
            let granted = settled.is_ok();
            let last = self.waiters.pop(&mut stripe, key);
            local.wakes.extend(head.settle(settled));
            if last {
                self.table.unmark_queue(local, key, hash);
            }
            if last || granted {
                return;
            }
        }
    }

    /// Leaves the queue. A lease that has been granted meanwhile is given back, to the next in the queue.
    pub(crate) fn leave(&self, waiter: &Arc<Waiter>) {
        let key = waiter.request.key;
        self.with(self.time.now(), |local| {
            let mut stripe = self.waiters.lock(waiter.hash);
            if self.waiters.remove(&mut stripe, waiter) && stripe.head(key).is_none() {
                self.table.unmark_queue(local, key, waiter.hash);
            }
        });
        if let Some(Ok(acquired)) = waiter.take() {
            // Over or not, it is over now.
            let _ = self.release(acquired.handle, acquired.deadline, key, acquired.token);
        }
    }
}
