//! Upgrades and downgrades.

use super::Engine;
use super::grants::{Acquired, MAX_AT_LEAST};
use super::observing::Change;
use crate::error::AcquireError;
use crate::events::EventKind;
use crate::records::Record;
use crate::table::{Handle, Layout, Local, Loss, Name, Unrenewed};
use crate::wish::{Mode, Wish};

impl<L: Layout> Engine<L> {
    /// Makes an exclusive lease a shared one, with the same token: others who share come in, and nobody
    /// else has been in between.
    pub(crate) fn downgrade(&self, name: &Name) -> Result<Handle, Unrenewed> {
        self.with(self.time.now(), |local| {
            let mut stripe = self.records.lock(name.hash);
            let (key, hash) = (name.key, name.hash);
            self.serve(local, &mut stripe, key, hash);
            let recorded = stripe.get(key).is_some_and(|record| {
                let held = record.holders.get(name.token);
                held.is_some()
            });
            if !recorded && self.table.validate(local, name).is_ok() {
                self.take_over(local, &mut stripe, key, hash);
            }
            let shared = stripe.get(key).and_then(|record| {
                record.holders.change(name.token, |holder| {
                    let before = holder.mode;
                    if before == Mode::Exclusive {
                        holder.mode = Mode::Shared;
                    }
                    let renewed = Change::of_holder(EventKind::Renewed, key, holder);
                    (holder.mode, renewed, holder.mode != before)
                })
            });
            if let Some((_, renewed, true)) = &shared {
                self.tell(local, renewed);
            }
            self.serve(local, &mut stripe, key, hash);
            match shared {
                Some((mode, ..)) => Ok(Handle::recorded(mode.code())),
                // There was no room for its record.
                None if self.table.validate(local, name).is_ok() => Err(Unrenewed::NoMemory),
                None => Err(Unrenewed::Ended(self.table.over(local, name))),
            }
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
        let Some(old) = record.holders.get(token) else {
            return Some(Err(lapsed));
        };
        let until = old.deadline;
        if record.holders.len() > 1 || record.quarantine.is_some() {
            return None;
        }
        let deadline = match self.time.deadline(now, request.ttl) {
            Ok(deadline) => deadline.max(until),
            Err(bad) => return Some(Err(request.refused(Some(bad)))),
        };
        let ask = request.ask(hash, deadline);
        let issued = match self.table.issue(local, &ask, false) {
            Ok(issued) => issued,
            Err(refused) => {
                let denied = self.refused(refused, self.most_leases(), now);
                return Some(Err(denied.into()));
            }
        };
        let mut holder = record.holders.remove(token)?;
        if let Some(session) = &holder.session {
            let mut book = session.book.lock();
            book.held.remove(&(request.key, token));
            book.add_lease(request.key, issued, hash);
        }
        let released = Change::of_holder(EventKind::Released, request.key, &holder);
        if holder.entries > 1 {
            // Other guards have the old token, and so nothing to give back any more.
            holder.entries = 1;
            for signal in std::mem::take(&mut holder.watches) {
                let signal = signal.upgrade();
                local
                    .wakes
                    .extend(signal.and_then(|signal| signal.set(Loss::Released)));
            }
        }
        holder.token = issued;
        holder.mode = Mode::Exclusive;
        holder.extend(deadline);
        // The old one is over, and this one a grant of its own.
        local.counters.add_end();
        local.counters.add_grant();
        self.tell(local, &released);
        local.last_end = None;
        let granted = Change::of_holder(EventKind::Granted, request.key, &holder);
        self.tell(local, &granted);
        let acquired = Acquired::recorded(&holder);
        record.holders.insert(holder);
        self.let_enter(local, record, request.owner, request.key, hash, now);
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
            let token = wish.upgrade.unwrap_or(1);
            let lapsed = AcquireError::Lapsed {
                token: crate::FencingToken::granted(token),
            };
            let now = self.time.now();
            let record = stripe.get(key);
            // Who has nothing to release is in nobody's way, whoever else upgrades.
            let record = record.filter(|record| record.holders.get(token).is_some());
            let record = record.ok_or(lapsed)?;
            if let Some(other) = &record.upgrader {
                // Each would wait for the other to leave.
                let owners = [request.owner, other.wish.request.owner];
                let waits = owners.map(|owner| (crate::OwnerId(owner), key)).to_vec();
                let cycle = Box::new(crate::Cycle { waits });
                self.detector.keep(&cycle);
                local.reports.push(self.metrics.deadlock(&cycle));
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
}
