//! Who is admitted to a key that has a record, and who waits.
//!
//! A key's record and its mark in the table are kept in step here, under the record's lock: nobody else
//! grants the key meanwhile (rule 8 in `table/mark.rs`). A plain lease is the table's even so; any other
//! is the record's, with a token from the table.
//!
//! Every change of a record ends with [`Engine::serve`]: it ends what is over, grants to those who wait,
//! in order, and sets the timer for what comes next.

use super::Engine;
use std::time::Duration;

use super::grants::{Acquired, Denied, MAX_AT_LEAST};
use super::observing::Change;
use crate::error::AcquireError;
use crate::events::EventKind;
use crate::failpoint::failpoint;
use crate::key::Key;
use crate::records::{Holder, Keeper, Record, Stripe, Waiter};
use crate::sync::Arc;
use crate::table::{Ask, Granted, Handle, Layout, Local, Marked, Refused};
use crate::wish::{MAX_PERMITS, Mode, Terms, Wish};

/// The least length of a lease that the manager renews: one tick to each third.
pub(super) const KEPT_TICKS: u64 = 3;

/// What came of an acquisition that may wait.
#[derive(Debug)]
pub(crate) enum Entered {
    Granted(Acquired),
    Waiting(Arc<Waiter>),
}

impl<L: Layout> Engine<L> {
    /// Grants what is wished for, if that may be; else joins the queue, if the caller has patience.
    ///
    /// Asks a second time if all places are taken: leases that are over but not swept hold some.
    pub(crate) fn enter(&self, wish: &Wish, patience: bool) -> Result<Entered, Denied> {
        let request = &wish.request;
        let deadline = self.time.deadline(self.time.now(), request.ttl);
        if deadline.is_err() || request.at_least > MAX_AT_LEAST {
            return Err(Denied::Other(request.refused(deadline.err())));
        }
        if let Mode::Permit { of } = wish.mode
            && !(1..=MAX_PERMITS).contains(&of)
        {
            return Err(Denied::Other(AcquireError::Permits { of }));
        }
        let hash = self.table.hash(request.key);
        let enter = |local: &mut Local| self.enter_in(local, wish, hash, patience);
        match self.with(self.time.now(), enter) {
            Err(Denied::Other(AcquireError::CapacityExceeded { .. })) => {
                self.advance();
                match self.with(self.time.now(), enter)? {
                    Entered::Waiting(waiter) => self.stay_unless_deadlocked(waiter),
                    granted @ Entered::Granted(_) => Ok(granted),
                }
            }
            Ok(Entered::Waiting(waiter)) => self.stay_unless_deadlocked(waiter),
            entered => entered,
        }
    }

    fn enter_in(
        &self,
        local: &mut Local,
        wish: &Wish,
        hash: u64,
        patience: bool,
    ) -> Result<Entered, Denied> {
        let mut stripe = self.records.lock(hash);
        self.keep_name(wish);
        let mut unserved = Self::unserved(local, wish.request.key, hash);
        let entered = self.enter_under(&mut unserved, &mut stripe, wish, hash, patience);
        unserved.waive();
        if entered.is_err() {
            self.forget_name(local, &mut stripe, wish.request.key, hash);
        }
        entered
    }

    fn enter_under(
        &self,
        local: &mut Local,
        stripe: &mut Stripe,
        wish: &Wish,
        hash: u64,
        patience: bool,
    ) -> Result<Entered, Denied> {
        let key = wish.request.key;
        loop {
            if stripe.is_closed() {
                return Err(Denied::Other(AcquireError::Closed));
            }
            self.serve(local, stripe, key, hash);
            let now = self.fresh(local);
            if let Some(session) = &wish.session
                && session.is_over(local.now)
            {
                return Err(Denied::Other(AcquireError::SessionOver));
            }
            let answer = self.ask_record(local, stripe, wish, hash, now);
            let denied = match answer {
                Ok(acquired) => {
                    self.tidy(local, stripe, key, hash);
                    return Ok(Entered::Granted(acquired));
                }
                Err(denied) => denied,
            };
            match denied {
                // Its own plain lease: the record is to count its entries.
                Denied::Held { owner, .. }
                    if wish.reentrant
                        && wish.session.is_none()
                        && owner == wish.request.owner
                        && stripe.holds_none(key)
                        && self.take_over(local, stripe, key, hash) =>
                {
                    continue;
                }
                Denied::Again => continue,
                Denied::Other(error) => {
                    self.tidy(local, stripe, key, hash);
                    return Err(Denied::Other(error));
                }
                Denied::Held { .. } | Denied::Delayed { .. } if !patience => return Err(denied),
                Denied::Held { .. } | Denied::Delayed { .. } => {}
            }
            if let Some(waiter) = self.join(local, stripe, wish, hash, now)? {
                return Ok(Entered::Waiting(waiter));
            }
        }
    }

    /// Asks the record of the key, or an empty one.
    fn ask_record(
        &self,
        local: &mut Local,
        stripe: &mut Stripe,
        wish: &Wish,
        hash: u64,
        now: u64,
    ) -> Result<Acquired, Denied> {
        let key = wish.request.key;
        let Some(record) = stripe.get(key) else {
            if wish.is_plain() {
                // The table's: there will be no record.
                let mut none = Record::default();
                return self.admit(local, &mut none, wish, hash, now, false);
            }
            // In place before the mark is put, as in `join`.
            let record = stripe.get_or_insert(key);
            let acquired = self.admit(local, record, wish, hash, now, false);
            if acquired.is_err() {
                self.tidy(local, stripe, key, hash);
            }
            return acquired;
        };
        if wish.reentrant
            && let Some(token) = record.holders.entered_by(wish)
        {
            return self.enter_again(local, record, wish, token, now);
        }
        if record.has_queue() {
            return Err(self.busy(local, record, key, hash, now));
        }
        self.admit(local, record, wish, hash, now, true)
    }

    /// Enters a lease that the owner holds already, once more.
    pub(super) fn enter_again(
        &self,
        local: &mut Local,
        record: &mut Record,
        wish: &Wish,
        token: u64,
        now: u64,
    ) -> Result<Acquired, Denied> {
        let request = &wish.request;
        let deadline = self.time.deadline(now, request.ttl);
        let deadline = deadline.map_err(|bad| Denied::Other(request.refused(Some(bad))))?;
        // The terms of all entries hold for the lease.
        let terms = wish.terms;
        let min_until = self.min_until(local, wish);
        let cap = self.cap(local, wish);
        let keeper = self.keeper(local, wish);
        let (tick, least) = (local.now, self.least_kept(local));
        // One that is never left, as a guard that is forgotten, is counted for ever.
        let entries = record.holders.get(token).map(|holder| holder.entries);
        if entries == Some(u32::MAX) {
            let capacity = u32::MAX as usize;
            return Err(Denied::Other(AcquireError::CapacityExceeded { capacity }));
        }
        let entered = record.holders.change(token, |holder| {
            holder.entries += 1;
            holder.terms.lock_delay = holder.terms.lock_delay.max(terms.lock_delay);
            holder.min_until = holder.min_until.max(min_until);
            if terms.max_hold.is_some() {
                holder.cap = cap.max(holder.deadline);
                holder.keeper = keeper;
                let kept = holder.session.is_none();
                holder.extend(if kept { least } else { holder.cap });
            }
            // Backwards it never goes.
            holder.extend(deadline);
            if let Some(keeper) = keeper {
                holder.keep_next(tick, keeper.next);
            }
            let renewed = Change::of_holder(EventKind::Renewed, request.key, holder);
            (Acquired::recorded(holder), renewed)
        });
        let (acquired, renewed) = entered.ok_or(Denied::Again)?;
        self.tell(local, &renewed);
        Ok(acquired)
    }

    /// Joins the queue; `None` if the key is free after all.
    fn join(
        &self,
        local: &mut Local,
        stripe: &mut Stripe,
        wish: &Wish,
        hash: u64,
        now: u64,
    ) -> Result<Option<Arc<Waiter>>, Denied> {
        let key = wish.request.key;
        let waiter = Waiter::new(wish.clone(), hash, now);
        if let Some(session) = &wish.session
            && !session.book.lock().add_waiter(&waiter)
        {
            return Err(Denied::Other(AcquireError::SessionOver));
        }
        // The mark first, and a record with it: one without is none that a release hears of. (Whoever comes
        // upon a record with nothing in it drops it, and the mark.)
        let mut marked = Marked::Yes;
        if stripe.get(key).is_none() {
            marked = self.table.put_mark(local, key, hash);
            match marked {
                Marked::Yes | Marked::Ended => _ = stripe.get_or_insert(key),
                Marked::Full if self.table.live(local, key, hash).is_ok() => {
                    let capacity = self.most_leases();
                    return Err(Denied::Other(AcquireError::CapacityExceeded { capacity }));
                }
                Marked::Full | Marked::Free => return Ok(None),
            }
        }
        failpoint!("wait/marked");
        if let Err(full) = self.records.push(stripe, &waiter) {
            self.tidy(local, stripe, key, hash);
            return Err(Denied::Other(full));
        }
        failpoint!("wait/queued");
        if marked == Marked::Ended {
            self.serve(local, stripe, key, hash);
        }
        Ok(Some(waiter))
    }

    /// The clock, read under the record's lock, which may have taken its time: a TTL counts from the grant.
    pub(super) fn fresh(&self, local: &mut Local) -> u64 {
        let now = self.time.now();
        // The turn of the wheel may be ahead of it.
        local.now = local.now.max(self.time.tick_of(now));
        now
    }

    /// Grants what is wished for, if the record's holders and quarantine allow it. The caller knows that
    /// nobody comes before, and has swept the record.
    pub(super) fn admit(
        &self,
        local: &mut Local,
        record: &mut Record,
        wish: &Wish,
        hash: u64,
        now: u64,
        marked: bool,
    ) -> Result<Acquired, Denied> {
        let request = &wish.request;
        if record.quarantine.is_some() || !record.holders.admit(wish.mode) {
            return Err(self.busy(local, record, request.key, hash, now));
        }
        let deadline = self.time.deadline(now, request.ttl);
        let deadline = deadline.map_err(|bad| Denied::Other(request.refused(Some(bad))))?;
        let ask = Ask {
            admitted: true,
            ..request.ask(hash, deadline)
        };
        let refused = |refused| self.refused(refused, self.most_leases(), now);
        self.find_place(local, &ask).map_err(refused)?;
        if wish.is_plain() {
            let granted = self.grant_and_watch(local, &ask).map_err(refused)?;
            self.tell_ends(local);
            let contents = ask.contents(granted.token);
            self.tell(local, &Change::of_plain(EventKind::Granted, contents));
            return Ok(Acquired::new(&granted, deadline));
        }
        if wish.session.is_none() || wish.terms != Terms::default() {
            // What comes later must not fail for want of it.
            self.need_timer(local, record, request.key, hash)
                .map_err(refused)?;
        }
        let token = match self.table.issue(local, &ask, !marked) {
            Ok(token) => token,
            Err(cause) => {
                self.drop_timer(local, record);
                return Err(refused(cause));
            }
        };
        failpoint!("record/issued");
        let holder = self.new_holder(local, wish, token, now, deadline);
        let acquired = Acquired::recorded(&holder);
        if let Some(session) = &wish.session
            && !session.book.lock().add_lease(request.key, token, hash)
        {
            // The mark goes with the record, as the caller tidies up.
            return Err(Denied::Other(AcquireError::SessionOver));
        }
        local.counters.add_grant();
        self.tell_ends(local);
        self.tell(
            local,
            &Change::of_holder(EventKind::Granted, request.key, &holder),
        );
        record.holders.insert(holder);
        Ok(acquired)
    }

    fn new_holder(
        &self,
        local: &Local,
        wish: &Wish,
        token: u64,
        now: u64,
        deadline: u64,
    ) -> Holder {
        let mut holder = Holder::new(token, wish.request.owner, Some(now), deadline);
        holder.mode = wish.mode;
        holder.terms = wish.terms;
        holder.min_until = self.min_until(local, wish);
        holder.cap = self.cap(local, wish);
        holder.keeper = self.keeper(local, wish);
        holder.session.clone_from(&wish.session);
        if wish.session.is_some() {
            holder.deadline = holder.cap;
        } else if let Some(keeper) = holder.keeper {
            holder.deadline = deadline.max(self.least_kept(local)).min(holder.cap);
            holder.keep_next(local.now, keeper.next);
        }
        holder
    }

    /// The earliest deadline of a lease that the manager renews: there is a tick between a renewal and the end.
    fn least_kept(&self, local: &Local) -> u64 {
        (local.now + KEPT_TICKS).min(self.time.limit_tick())
    }

    /// Until when nobody else is granted the key.
    fn min_until(&self, local: &Local, wish: &Wish) -> u64 {
        match wish.terms.min_hold {
            Duration::ZERO => 0,
            length => self.time.after(local.now + 1, length),
        }
    }

    /// The last deadline that a lease of the wish may have.
    fn cap(&self, local: &Local, wish: &Wish) -> u64 {
        let max_hold = wish.terms.max_hold;
        max_hold.map_or(u64::MAX, |length| self.time.after(local.now + 1, length))
    }

    /// The renewals that the wish asks for. A session has its own.
    fn keeper(&self, local: &Local, wish: &Wish) -> Option<Keeper> {
        let kept = wish.terms.max_hold.is_some() && wish.session.is_none();
        let ttl = wish.request.ttl;
        kept.then(|| Keeper {
            ttl,
            next: self.time.part(local.now, ttl, 3),
        })
    }

    /// How many nanoseconds the lease lasts, as others are told.
    pub(super) fn remaining(&self, holder: &Holder, now: u64) -> u64 {
        self.time.nanos_until(self.told_deadline(holder), now)
    }

    /// Why the record doesn't admit another.
    fn busy(&self, local: &mut Local, record: &Record, key: Key, hash: u64, now: u64) -> Denied {
        if let Some(holder) = record.holders.last() {
            if holder.until() <= local.now {
                // Its session has been closed since the record was swept.
                return Denied::Again;
            }
            return Denied::Held {
                owner: holder.owner,
                token: holder.token,
                remaining: self.remaining(holder, now),
            };
        }
        // Or the head of the queue waits for a place.
        let kept = record.quarantine.max(record.retry);
        match (self.table.live(local, key, hash), kept) {
            (Ok(found), _) => self.held(&found.contents, now),
            (Err(_), Some(until)) => Denied::Delayed {
                remaining: self.time.nanos_until(until, now),
            },
            // Its lease has just ended: the head of the queue comes first.
            (Err(_), None) => Denied::Again,
        }
    }

    /// Grants a plain lease to whom the record admits.
    fn grant_and_watch(&self, local: &mut Local, ask: &Ask) -> Result<Granted, Refused> {
        let granted = self.table.grant(local, ask)?;
        self.watch(granted.handle.cell(), granted.wheel, ask.deadline);
        Ok(granted)
    }

    /// Grants what is wished for at once, or says why not.
    pub(crate) fn enter_now(&self, wish: &Wish) -> Result<Acquired, Denied> {
        match self.enter(wish, false)? {
            Entered::Granted(acquired) => Ok(acquired),
            // Not without patience.
            Entered::Waiting(waiter) => {
                self.leave(&waiter);
                Err(Denied::Other(AcquireError::TimedOut))
            }
        }
    }

    /// Leaves the queue. A lease that has been granted meanwhile is given back, to the next in the queue.
    pub(crate) fn leave(&self, waiter: &Arc<Waiter>) {
        let key = waiter.key();
        failpoint!("cancel/leaving");
        self.stay_away(waiter);
        if let Some(Ok(acquired)) = waiter.take() {
            failpoint!("cancel/returning");
            // Nobody has had it: its terms are void.
            self.void_terms(&self.name(key, acquired.token));
            // Over or not, it is over now.
            let _ = self.release(acquired.handle, acquired.deadline, key, acquired.token);
        }
    }

    /// Leaves the queue; the waiter may have been granted the lease meanwhile.
    pub(crate) fn stay_away(&self, waiter: &Arc<Waiter>) {
        let key = waiter.key();
        self.with(self.time.now(), |local| {
            let mut stripe = self.records.lock(waiter.hash);
            if let Some(record) = stripe.get(key)
                && self.records.remove(record, waiter)
            {
                let mut unserved = Self::unserved(local, key, waiter.hash);
                failpoint!("cancel/left");
                self.metrics.gave_up(&mut unserved);
                // Who is next may be less demanding.
                self.serve(&mut unserved, &mut stripe, key, waiter.hash);
                unserved.waive();
            }
        });
    }

    pub(crate) fn waiting(&self) -> usize {
        self.records.waiting()
    }
}

impl Acquired {
    /// A lease of the record's.
    pub(super) fn recorded(holder: &Holder) -> Self {
        Self {
            handle: Handle::recorded(holder.mode.code()),
            token: holder.token,
            deadline: holder.deadline(),
        }
    }
}
