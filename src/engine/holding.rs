//! The leases that records hold, by token: how they are renewed, and how they end.

use super::grants::{Acquired, MAX_AT_LEAST};
use super::observing::{Change, kind_of};
use super::{Engine, Seen};
use crate::error::AcquireError;
use crate::events::EventKind;
use crate::key::Key;
use crate::lost::Signal;
use crate::records::{Holder, Record, Stripe};
use crate::sync::Arc;
use crate::table::{
    Ask, Contents, Due, Ended, Handle, Layout, Local, Loss, Marked, Name, Note, Unrenewed,
};
use crate::wish::{Mode, Wish};

impl<L: Layout> Engine<L> {
    /// Ends the record's leases that are over, and renews those that the manager keeps.
    pub(super) fn sweep(&self, local: &mut Local, record: &mut Record, key: Key, now: u64) {
        let mut over = vec![];
        for holder in record.holders.values_mut() {
            if holder.is_over(local.now) {
                over.push((holder.token, holder.how_over()));
                continue;
            }
            self.keep(local, key, holder, now);
        }
        for (token, loss) in over {
            self.end_holder(local, record, key, token, loss);
        }
        if record.quarantine.is_some_and(|until| until <= local.now) {
            record.quarantine = None;
        }
    }

    /// Renews a lease that the manager keeps, if it is time.
    fn keep(&self, local: &mut Local, key: Key, holder: &mut Holder, now: u64) {
        let Some(keeper) = &mut holder.keeper else {
            return;
        };
        if keeper.next > local.now {
            return;
        }
        let deadline = self.time.deadline(now, keeper.ttl).unwrap_or(keeper.cap);
        holder.deadline = holder.deadline.max(deadline.min(keeper.cap));
        keeper.next = self.time.part(local.now, keeper.ttl, 3);
        let stops = holder.deadline == keeper.cap;
        self.tell(local, &Change::of_holder(EventKind::Renewed, key, holder));
        if stops {
            holder.keeper = None;
            holder.capped = true;
            self.metrics.keeper_gave_up(key, holder.token);
            self.tell(local, &Change::of_holder(EventKind::GivenUp, key, holder));
        }
    }

    /// Ends a lease of the record's: counts it, tells who wants to know, and keeps the key for a while if
    /// its terms say so.
    pub(super) fn end_holder(
        &self,
        local: &mut Local,
        record: &mut Record,
        key: Key,
        token: u64,
        loss: Loss,
    ) {
        let Some(holder) = record.holders.remove(&token) else {
            return;
        };
        local.counters.add_end();
        let closed = holder.session.as_ref().is_some_and(|it| it.was_closed());
        let clean = loss == Loss::Released || loss == Loss::SessionOver && closed;
        // Of a revoked one, that is no matter.
        let over_since = holder.deadline().min(local.now);
        match loss {
            Loss::Expired | Loss::MaxHold => {
                local.counters.add_expired(local.now - over_since);
            }
            Loss::SessionOver if !clean => {
                local.counters.add_expired(local.now - over_since);
            }
            Loss::Revoked => local.counters.add_revoked(),
            _ => {}
        }
        if !clean && !holder.terms.lock_delay.is_zero() {
            let end = match loss {
                // In the midst of a tick.
                Loss::Revoked => local.now + 1,
                _ => over_since,
            };
            record.keep_until(self.time.after(end, holder.terms.lock_delay));
        }
        if holder.min_until > local.now {
            record.keep_until(holder.min_until);
        }
        for signal in &holder.watches {
            local
                .wakes
                .extend(signal.upgrade().and_then(|signal| signal.set(loss)));
        }
        if let Some(session) = &holder.session {
            session.book.lock().held.remove(&(key, token));
        }
        self.tell(local, &Change::of_holder(kind_of(loss), key, &holder));
        record.last = local.last_end.take();
    }

    /// What this operation has seen to end, or to be due, is told to the records and sessions.
    pub(super) fn follow_up(&self, local: &mut Local) {
        for Note {
            key,
            hash,
            token,
            loss,
            ..
        } in std::mem::take(&mut local.notes)
        {
            let mut stripe = self.records.lock(hash);
            if let Some(record) = stripe.get(key) {
                record.tell(token, loss, &mut local.wakes);
                self.serve(local, &mut stripe, key, hash);
            }
        }
        for due in std::mem::take(&mut local.due) {
            match due {
                Due::Record { key, hash } => {
                    let mut stripe = self.records.lock(hash);
                    if local.observed {
                        // A plain lease, which the wheel has left to us.
                        let _ = self.table.live(local, key, hash);
                    }
                    self.serve(local, &mut stripe, key, hash);
                }
                Due::Session(id) => self.look_at_session(local, id),
            }
        }
    }

    /// Runs `f` on a lease of the record's that is live, and then whatever follows from it; `None` if it
    /// is not there or over.
    fn with_holder<R>(
        &self,
        local: &mut Local,
        name: &Name,
        f: impl FnOnce(&Self, &mut Local, &mut Record) -> R,
    ) -> Option<R> {
        let mut stripe = self.records.lock(name.hash);
        self.serve(local, &mut stripe, name.key, name.hash);
        let record = stripe.get(name.key)?;
        let result = record
            .holders
            .contains_key(&name.token)
            .then(|| f(self, local, record));
        self.serve(local, &mut stripe, name.key, name.hash);
        result
    }

    /// Releases a lease of the record's: the last of its entries frees it.
    pub(super) fn release_recorded(&self, local: &mut Local, name: &Name) -> Result<(), Ended> {
        let released = self.with_holder(local, name, |engine, local, record| {
            if let Some(holder) = record.holders.get_mut(&name.token)
                && holder.entries > 1
            {
                holder.entries -= 1;
                return;
            }
            engine.end_holder(local, record, name.key, name.token, Loss::Released);
        });
        released.ok_or_else(|| self.table.over(local, name))
    }

    pub(super) fn renew_recorded(
        &self,
        local: &mut Local,
        name: &Name,
        deadline: u64,
    ) -> Result<(u64, Handle), Unrenewed> {
        let renewed = self.with_holder(local, name, |engine, local, record| {
            let holder = record.holders.get_mut(&name.token)?;
            if holder.session.is_some() {
                return None;
            }
            holder.deadline = holder.deadline.max(deadline);
            engine.tell(
                local,
                &Change::of_holder(EventKind::Renewed, name.key, holder),
            );
            Some((holder.deadline, Handle::recorded(holder.mode.code())))
        });
        match renewed {
            Some(Some(renewed)) => Ok(renewed),
            Some(None) => Err(Unrenewed::InSession),
            None => Err(Unrenewed::Ended(self.table.over(local, name))),
        }
    }

    /// The record's lease of that token, or any one if that is 0, if there is one.
    pub(super) fn seen_recorded(&self, local: &mut Local, name: &Name) -> Option<Seen> {
        let mut stripe = self.records.lock(name.hash);
        self.serve(local, &mut stripe, name.key, name.hash);
        let record = stripe.get(name.key)?;
        let holder = match name.token {
            0 => record.last_holder(),
            token => record.holders.get(&token),
        }?;
        Some(Seen::recorded(name.key, holder))
    }

    /// The record's leases that are live.
    pub(super) fn all_recorded(&self, local: &mut Local, key: Key, hash: u64) -> Vec<Seen> {
        let mut stripe = self.records.lock(hash);
        self.serve(local, &mut stripe, key, hash);
        let holders = stripe
            .get(key)
            .into_iter()
            .flat_map(|record| record.holders.values());
        holders.map(|holder| Seen::recorded(key, holder)).collect()
    }

    /// Ends all of the record's leases; those that they were.
    pub(super) fn revoke_recorded(&self, local: &mut Local, key: Key, hash: u64) -> Vec<Seen> {
        let mut stripe = self.records.lock(hash);
        self.serve(local, &mut stripe, key, hash);
        let Some(record) = stripe.get(key) else {
            return vec![];
        };
        let seen: Vec<Seen> = record
            .holders
            .values()
            .map(|holder| Seen::recorded(key, holder))
            .collect();
        for lease in &seen {
            let token = lease.contents.token;
            self.end_holder(local, record, key, token, Loss::Revoked);
        }
        self.serve(local, &mut stripe, key, hash);
        seen
    }

    /// Makes the table's live lease of the key one of the record's, with the same token, owner and
    /// deadline, if there is one. Nobody can be granted the key in between. False if that can't be done.
    pub(super) fn take_over(
        &self,
        local: &mut Local,
        stripe: &mut Stripe,
        key: Key,
        hash: u64,
    ) -> bool {
        if stripe.get(key).is_none() {
            match self.table.put_mark(local, key, hash, true) {
                Marked::Yes | Marked::Ended => _ = stripe.get_or_insert(key),
                Marked::Free => return true,
                Marked::Full => return false,
            }
        }
        let record = stripe.get_or_insert(key);
        while let Ok(found) = self.table.live(local, key, hash) {
            let Contents {
                token,
                owner,
                deadline,
                ..
            } = found.contents;
            let mut holder = Holder::new(token, owner, self.time.now(), deadline);
            // Whoever asks in between finds the mark, and waits for the lock.
            if self.table.take_out(local, hash, &found) {
                holder.watches = record.take_watches(token);
                local.counters.take_back_end();
                record.holders.insert(token, holder);
                break;
            }
        }
        self.tidy(local, stripe, key, hash);
        true
    }

    /// Makes an exclusive lease a shared one, with the same token: others who share come in, and nobody
    /// else has been in between.
    pub(crate) fn downgrade(&self, name: &Name) -> Result<Handle, Ended> {
        self.with(self.time.now(), |local| {
            let mut stripe = self.records.lock(name.hash);
            let (key, hash) = (name.key, name.hash);
            self.serve(local, &mut stripe, key, hash);
            let recorded = |stripe: &mut Stripe| {
                let record = stripe.get(key);
                record.is_some_and(|record| record.holders.contains_key(&name.token))
            };
            if !recorded(&mut stripe) && self.table.validate(local, name).is_ok() {
                self.take_over(local, &mut stripe, key, hash);
            }
            let holder = stripe
                .get(key)
                .and_then(|record| record.holders.get_mut(&name.token));
            let Some(holder) = holder else {
                return Err(self.table.over(local, name));
            };
            if holder.mode == Mode::Exclusive {
                holder.mode = Mode::Shared;
                self.tell(local, &Change::of_holder(EventKind::Renewed, key, holder));
            }
            let handle = Handle::recorded(holder.mode.code());
            self.serve(local, &mut stripe, key, hash);
            Ok(handle)
        })
    }

    /// Makes a shared lease an exclusive one, with a new token, if nobody else shares it. `None` if others
    /// do.
    pub(super) fn try_upgrade(
        &self,
        local: &mut Local,
        record: &mut Record,
        wish: &Wish,
        hash: u64,
        now: u64,
    ) -> Option<Result<Acquired, AcquireError>> {
        let request = &wish.request;
        let token = wish.upgrade?;
        let lapsed = AcquireError::Lapsed {
            token: crate::FencingToken::granted(token),
        };
        let Some(old) = record.holders.get(&token) else {
            return Some(Err(lapsed));
        };
        let until = old.deadline;
        if record.holders.len() > 1 {
            return None;
        }
        let deadline = match self.time.deadline(now, request.ttl) {
            Ok(deadline) => deadline.max(until),
            Err(bad) => return Some(Err(request.refused(Some(bad)))),
        };
        let ask = Ask {
            admitted: true,
            ..request.ask(hash, deadline)
        };
        let issued = match self.table.issue(local, &ask, false) {
            Ok(issued) => issued,
            Err(refused) => {
                let denied = self.refused(refused, self.most_leases(), now);
                return Some(Err(denied.into()));
            }
        };
        let mut holder = record.holders.remove(&token)?;
        if let Some(session) = &holder.session {
            let mut book = session.book.lock();
            book.held.remove(&(request.key, token));
            book.add_lease(request.key, issued, hash);
        }
        holder.token = issued;
        holder.mode = Mode::Exclusive;
        holder.deadline = deadline;
        // Other guards have the old token, and so nothing to give back any more.
        holder.entries = 1;
        // The old one is over, and this one a grant of its own.
        local.counters.add_end();
        local.counters.add_grant();
        let acquired = Acquired::recorded(&holder);
        self.tell(
            local,
            &Change::of_holder(EventKind::Granted, request.key, &holder),
        );
        record.holders.insert(issued, holder);
        Some(Ok(acquired))
    }

    /// Upgrades at once, or joins the queue before all others.
    pub(crate) fn enter_upgrade(&self, wish: &Wish) -> Result<super::Entered, AcquireError> {
        let request = &wish.request;
        let (key, hash) = (request.key, self.table.hash(request.key));
        if let Err(bad) = self.time.deadline(self.time.now(), request.ttl) {
            return Err(request.refused(Some(bad)));
        }
        debug_assert!(request.at_least <= MAX_AT_LEAST, "an upgrade asks for none");
        let entered = self.with(self.time.now(), |local| {
            let mut stripe = self.records.lock(hash);
            if stripe.is_closed() {
                return Err(AcquireError::Closed);
            }
            self.serve(local, &mut stripe, key, hash);
            let lapsed = AcquireError::Lapsed {
                token: crate::FencingToken::granted(wish.upgrade.unwrap_or(1)),
            };
            let now = self.time.now();
            let record = stripe.get(key).ok_or(lapsed)?;
            if let Some(other) = &record.upgrader {
                // Each would wait for the other to leave.
                let owners = [request.owner, other.wish.request.owner];
                let waits = owners.map(|owner| (crate::OwnerId(owner), key)).to_vec();
                let cycle = Box::new(crate::Cycle { waits });
                self.detector.keep(&cycle);
                self.metrics.deadlock(&cycle);
                return Err(AcquireError::Deadlock { cycle });
            }
            if let Some(settled) = self.try_upgrade(local, record, wish, hash, now) {
                self.serve(local, &mut stripe, key, hash);
                return settled.map(super::Entered::Granted);
            }
            let waiter = crate::records::Waiter::new(wish.clone(), hash, now);
            self.records.push_upgrader(record, &waiter)?;
            Ok(super::Entered::Waiting(waiter))
        })?;
        match entered {
            super::Entered::Waiting(waiter) => self
                .stay_unless_deadlocked(waiter)
                .map_err(AcquireError::from),
            granted @ super::Entered::Granted(_) => Ok(granted),
        }
    }

    /// A signal that is set when that lease ends, or at once if it is over.
    pub(crate) fn signal(&self, name: &Name, deadline: u64) -> Arc<Signal> {
        let signal = Signal::new();
        self.with(self.time.now(), |local| {
            let (key, hash) = (name.key, name.hash);
            let mut stripe = self.records.lock(hash);
            if stripe.is_closed() {
                signal.set(Loss::Closed);
                return;
            }
            self.serve(local, &mut stripe, key, hash);
            if let Some(record) = stripe.get(key)
                && let Some(holder) = record.holders.get_mut(&name.token)
            {
                holder.watch(&signal);
                return;
            }
            let marked = stripe.get(key).is_some()
                || !matches!(self.table.put_mark(local, key, hash, true), Marked::Free);
            if marked {
                stripe.get_or_insert(key).watch(name.token, &signal);
            }
            // After the mark: whoever ends it later sees that.
            if !marked || self.table.validate(local, name).is_err() {
                let expired = deadline <= local.now;
                let loss = if expired {
                    Loss::Expired
                } else {
                    Loss::Revoked
                };
                signal.set(loss);
                if let Some(record) = stripe.get(key) {
                    record.take_watches(name.token);
                }
            }
            self.serve(local, &mut stripe, key, hash);
        });
        signal
    }
}

impl Holder {
    /// How it ended, if by itself.
    fn how_over(&self) -> Loss {
        if self.session.is_some() {
            Loss::SessionOver
        } else if self.capped {
            Loss::MaxHold
        } else {
            Loss::Expired
        }
    }
}
