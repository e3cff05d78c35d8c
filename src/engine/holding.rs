//! The leases that records hold, by token: how they are renewed, and how they end.

use std::collections::BTreeMap;

use super::admission::KEPT_TICKS;
use super::observing::{Change, kind_of};
use super::{Engine, Seen, wake};
use crate::events::EventKind;
use crate::failpoint::failpoint;
use crate::key::Key;
use crate::lost::Signal;
use crate::owed::Owed;
use crate::records::{Holder, Record, Stripe};
use crate::sync::Arc;
use crate::table::{Contents, Due, Ended, Handle, Layout, Local, Loss, Marked, Name, Unrenewed};
use crate::timeline::BadTtl;
use crate::wish::Terms;

/// So many are woken in the midst of an operation on many keys, rather than at its end.
const WAKES_AT_ONCE: usize = 64;

impl<L: Layout> Engine<L> {
    /// Ends the record's leases that are over, and renews those that the manager keeps.
    pub(super) fn sweep(&self, local: &mut Local, record: &mut Record, key: Key, now: u64) {
        for (token, loss) in record.holders.over(local.now) {
            failpoint!("record/sweeping");
            self.end_holder(local, record, key, token, loss);
        }
        for token in record.holders.to_renew(local.now) {
            let (tick, part) = (local.now, |ttl| self.time.part(local.now, ttl, 3));
            let kept = record.holders.change(token, |holder| {
                let ttl = holder.keeper.as_ref()?.ttl;
                let deadline = match self.time.deadline(now, ttl) {
                    Ok(deadline) => deadline.max(tick + KEPT_TICKS),
                    // It may be had again, in time. (Not by way of the limit below: that may have risen since.)
                    Err(BadTtl::NoAuthority) => holder.deadline,
                    Err(_) => u64::MAX,
                };
                let before = holder.deadline;
                holder.extend(deadline.min(self.time.limit_tick()));
                holder.keep_next(tick, part(ttl));
                let stops = holder.deadline >= holder.cap;
                if stops {
                    holder.keeper = None;
                }
                let renewed = Change::of_holder(EventKind::Renewed, key, holder);
                Some((renewed, holder.deadline > before, stops))
            });
            let Some(Some((renewed, later, stops))) = kept else {
                continue;
            };
            if later {
                self.tell(local, &renewed);
            }
            if stops {
                self.metrics.keeper_gave_up(local, key, token);
                let kind = EventKind::GivenUp;
                self.tell(local, &Change { kind, ..renewed });
            }
        }
        if record.quarantine.is_some_and(|until| until <= local.now) {
            record.quarantine = None;
            self.count_kept(local, -1);
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
        let Some(holder) = record.holders.remove(token) else {
            return;
        };
        local.counters.add_end();
        let clean = is_clean(&holder, loss);
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
        if let Some(until) = self.kept_until(&holder, loss, local.now) {
            self.keep_until(local, record, until);
        }
        for signal in &holder.watches {
            local
                .wakes
                .extend(signal.upgrade().and_then(|signal| signal.set(loss)));
        }
        if let Some(session) = &holder.session {
            session.book.lock().held.remove(&(key, token));
        }
        let kind = if clean {
            EventKind::Released
        } else {
            kind_of(loss)
        };
        self.tell(local, &Change::of_holder(kind, key, &holder));
        record.last = local.last_end.take();
    }

    /// Until when nobody is granted the key after a lease that has ended like that.
    pub(super) fn kept_until(&self, holder: &Holder, loss: Loss, now: u64) -> Option<u64> {
        let delay = holder.terms.lock_delay;
        let delayed = !is_clean(holder, loss) && !delay.is_zero();
        let end = match loss {
            // In the midst of a tick.
            Loss::Revoked => now + 1,
            _ => holder.deadline().min(now),
        };
        let delayed = delayed.then(|| self.time.after(end, delay));
        delayed.max(Some(holder.min_until).filter(|&until| until > now))
    }

    /// The record's leases that are over at that tick, swept or not, and until when it keeps the key free.
    pub(super) fn over_and_kept(
        &self,
        record: &Record,
        tick: u64,
    ) -> (BTreeMap<u64, Loss>, Option<u64>) {
        let over: BTreeMap<u64, Loss> = record.holders.over(tick).into_iter().collect();
        let left_by = |(&token, &loss)| {
            let holder = record.holders.get(token)?;
            self.kept_until(holder, loss, tick)
        };
        // Those that are not swept yet keep it free as those do that are.
        let kept = over.iter().filter_map(left_by).chain(record.quarantine);
        let kept = kept.filter(|&until| until > tick).max();
        (over, kept)
    }

    fn keep_until(&self, local: &mut Local, record: &mut Record, tick: u64) {
        if record.keep_until(tick) {
            self.count_kept(local, 1);
        }
    }

    /// What this operation has seen to end, or to be due, is told to the records and sessions.
    pub(super) fn follow_up(&self, local: &mut Local) {
        let mut notes = std::mem::take(&mut local.notes).into_iter();
        // The one under way included.
        let mut left = (&mut *local, &mut notes);
        let mut rest = Owed::new(&mut left, |(local, notes)| local.notes.extend(notes));
        while let (local, notes) = &mut *rest
            && let Some(note) = notes.as_mut_slice().first_mut()
        {
            let (key, hash) = (note.key, note.hash);
            let mut stripe = self.records.lock(hash);
            self.tell_end(local, note);
            note.told = true;
            if let Some(record) = stripe.get(key) {
                record.tell(note.token, note.loss, &mut local.wakes);
            }
            failpoint!("record/hearing");
            self.serve(local, &mut stripe, key, hash);
            drop(stripe);
            self.between_keys(local);
            notes.next();
        }
        rest.waive();
        let mut dues = std::mem::take(&mut local.due).into_iter();
        let mut left = (local, &mut dues);
        let mut rest = Owed::new(&mut left, |(local, dues)| local.due.extend(dues));
        while let (local, dues) = &mut *rest
            && let Some(due) = dues.as_slice().first()
        {
            match *due {
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
            self.between_keys(local);
            dues.next();
        }
        rest.waive();
    }

    /// Of many keys, the last must not wait for its look, nor the waiters of the first for the last.
    pub(super) fn between_keys(&self, local: &mut Local) {
        self.watch_moved(local);
        if local.wakes.len() >= WAKES_AT_ONCE {
            wake::wake_all(std::mem::take(&mut local.wakes));
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
        record.holders.get(name.token)?;
        let result = f(self, local, record);
        self.serve(local, &mut stripe, name.key, name.hash);
        Some(result)
    }

    /// Releases a lease of the record's: the last of its entries frees it.
    pub(super) fn release_recorded(&self, local: &mut Local, name: &Name) -> Result<(), Ended> {
        let released = self.with_holder(local, name, |engine, local, record| {
            let left = record.holders.change(name.token, |holder| {
                holder.entries -= 1;
                holder.entries
            });
            if left == Some(0) {
                engine.end_holder(local, record, name.key, name.token, Loss::Released);
            }
        });
        released.ok_or_else(|| self.table.over(local, name))
    }

    /// Has a lease of the record's end without what its terms bring about, if nobody else has entered it.
    pub(super) fn void_terms(&self, name: &Name) {
        self.with(self.time.now(), |local| {
            self.with_holder(local, name, |_, _, record| {
                record.holders.change(name.token, |holder| {
                    if holder.entries == 1 {
                        holder.terms = Terms::default();
                        holder.min_until = 0;
                    }
                });
            });
        });
    }

    pub(super) fn renew_recorded(
        &self,
        local: &mut Local,
        name: &Name,
        deadline: u64,
    ) -> Result<(u64, Handle), Unrenewed> {
        let renewed = self.with_holder(local, name, |engine, local, record| {
            let renewed = record.holders.change(name.token, |holder| {
                if holder.session.is_some() {
                    return None;
                }
                holder.extend(deadline);
                let renewed = Change::of_holder(EventKind::Renewed, name.key, holder);
                Some((renewed, holder.deadline, holder.mode))
            });
            let (renewed, deadline, mode) = renewed??;
            engine.tell(local, &renewed);
            Some((deadline, Handle::recorded(mode.code())))
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
            0 => record.holders.last(),
            token => record.holders.get(token),
        }?;
        Some(self.told(name.key, holder))
    }

    /// The record's leases that are live.
    pub(super) fn all_recorded(&self, local: &mut Local, key: Key, hash: u64) -> Vec<Seen> {
        let mut stripe = self.records.lock(hash);
        self.serve(local, &mut stripe, key, hash);
        let holders = stripe
            .get(key)
            .into_iter()
            .flat_map(|record| record.holders.iter());
        holders.map(|holder| self.told(key, holder)).collect()
    }

    /// Ends all of the record's leases; those that they were.
    pub(super) fn revoke_recorded(&self, local: &mut Local, key: Key, hash: u64) -> Vec<Seen> {
        let mut stripe = self.records.lock(hash);
        self.serve(local, &mut stripe, key, hash);
        let Some(record) = stripe.get(key) else {
            return vec![];
        };
        let holders = record.holders.iter();
        let seen: Vec<Seen> = holders.map(|it| self.told(key, it)).collect();
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
        let mut unserved = Self::unserved(local, key, hash);
        let local = &mut *unserved;
        if stripe.get(key).is_none() {
            let marked = self.table.put_mark(local, key, hash);
            match marked {
                Marked::Yes | Marked::Ended => _ = stripe.get_or_insert(key),
                Marked::Free | Marked::Full => {
                    unserved.waive();
                    return marked == Marked::Free;
                }
            }
        }
        let record = stripe.get_or_insert(key);
        let taken = self.take_in(local, record, key, hash);
        self.tidy(local, stripe, key, hash);
        unserved.waive();
        taken
    }

    /// The same for a key that has a record.
    pub(super) fn take_in(
        &self,
        local: &mut Local,
        record: &mut Record,
        key: Key,
        hash: u64,
    ) -> bool {
        while let Ok(found) = self.table.live(local, key, hash) {
            // The wheel must know of it after that, too.
            if self.need_timer(local, record, key, hash).is_err() {
                return false;
            }
            let Contents {
                token,
                owner,
                deadline,
                ..
            } = found.contents;
            let mut holder = Holder::new(token, owner, self.granted_at(key), deadline);
            holder.watches = record.take_watches(token);
            // First: the lease must not be gone from the table and not stand here, whatever happens. Whoever
            // asks in between finds the mark, and waits for the lock.
            record.holders.insert(holder);
            let take_back = |record: &mut Record| {
                if let Some(holder) = record.holders.remove(token) {
                    record.return_watches(token, holder.watches);
                }
            };
            let untaken = Owed::new(&mut *record, take_back);
            failpoint!("record/inflating");
            untaken.waive();
            if self.table.take_out(local, hash, &found) {
                local.counters.take_back_end();
                failpoint!("record/inflated");
                break;
            }
            // It has been renewed, or is over.
            take_back(record);
        }
        true
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
            let watch = |record: &mut Record| {
                let watched = |holder: &mut Holder| holder.watch(&signal);
                record.holders.change(name.token, watched).is_some()
            };
            if stripe.get(key).is_some_and(watch) {
                return;
            }
            let marked = match stripe.get(key) {
                Some(_) => Marked::Yes,
                None => self.table.put_mark(local, key, hash),
            };
            if marked == Marked::Full {
                signal.set(Loss::Unwatched);
                return;
            }
            if marked != Marked::Free {
                stripe.get_or_insert(key).watch(name.token, &signal);
            }
            // After the mark: whoever ends it later sees that.
            if marked == Marked::Free || self.table.validate(local, name).is_err() {
                let expired = deadline <= local.now;
                signal.set(if expired {
                    Loss::Expired
                } else {
                    Loss::Revoked
                });
                if let Some(record) = stripe.get(key) {
                    record.unwatch(&signal);
                }
            }
            self.serve(local, &mut stripe, key, hash);
        });
        signal
    }
}

/// Whether its holder has ended it.
fn is_clean(holder: &Holder, loss: Loss) -> bool {
    let closed = holder.session.as_ref().is_some_and(|it| it.was_closed());
    loss == Loss::Released || loss == Loss::SessionOver && closed
}
