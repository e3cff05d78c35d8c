//! Bringing a record up to date: whose turn it is, and what comes next.

use super::Engine;
use super::grants::{Acquired, Denied};
use crate::error::AcquireError;
use crate::failpoint::failpoint;
use crate::key::Key;
use crate::owed::Owed;
use crate::records::{Record, Stripe, Timer, Waiter};
use crate::sync::Arc;
use crate::table::{Due, Layout, Local, Refused};
use crate::wish::Mode;

impl<L: Layout> Engine<L> {
    /// Brings the record of a key up to date, and hands the key to those who wait for it.
    pub(super) fn serve(&self, local: &mut Local, stripe: &mut Stripe, key: Key, hash: u64) {
        let mut unserved = Self::unserved(local, key, hash);
        self.serve_in(&mut unserved, stripe, key, hash);
        unserved.waive();
    }

    /// A record is about to be changed, and must not be left in the midst of that: should a panic come, it is
    /// brought up to date on the way out.
    #[inline(always)]
    pub(super) fn unserved(
        local: &mut Local,
        key: Key,
        hash: u64,
    ) -> Owed<'_, Local, impl FnMut(&mut Local)> {
        Owed::new(local, move |local: &mut Local| {
            local.add_due(Due::Record { key, hash });
        })
    }

    fn serve_in(&self, local: &mut Local, stripe: &mut Stripe, key: Key, hash: u64) {
        self.tell_ends(local);
        let Some(record) = stripe.get(key) else {
            let last = local.last_end.take();
            self.tell_if_idle(local, last, key, hash);
            return;
        };
        record.retry = None;
        loop {
            let now = self.fresh(local);
            self.sweep(local, record, key, now);
            self.drop_abandoned(local, record);
            if let Some(upgrader) = &record.upgrader {
                let waiter = Arc::clone(upgrader);
                let Some(settled) = self.try_upgrade(local, record, &waiter.wish, hash, now) else {
                    break;
                };
                self.settle(local, record, &waiter, settled, now);
                continue;
            }
            let Some(head) = record.head().map(Arc::clone) else {
                break;
            };
            let over = head.wish.session.as_ref();
            let settled = if over.is_some_and(|session| session.is_over(local.now)) {
                Err(AcquireError::SessionOver)
            } else {
                match self.admit(local, record, &head.wish, hash, now, true) {
                    Ok(acquired) => Ok(acquired),
                    // Whoever ends that lease, or the timer, comes here again.
                    Err(Denied::Held { .. } | Denied::Delayed { .. }) => break,
                    Err(Denied::Again) => continue,
                    // There may be room as soon as somebody has counted an end: it keeps its turn.
                    Err(Denied::Other(AcquireError::CapacityExceeded { .. })) => {
                        record.retry = Some(local.now + 1);
                        break;
                    }
                    // The next block is on its way.
                    Err(Denied::Other(AcquireError::TokensNotReserved { last, .. }))
                        if (1..=last).contains(&head.wish.request.at_least.max(1)) =>
                    {
                        record.retry = Some(local.now + 1);
                        break;
                    }
                    Err(Denied::Other(error)) => Err(error),
                }
            };
            let owner = settled.is_ok().then_some(head.wish.request.owner);
            let last = settled.is_ok() && head.wish.mode == Mode::Exclusive;
            failpoint!("handover/granted");
            self.settle(local, record, &head, settled, now);
            if let Some(owner) = owner {
                self.let_enter(local, record, owner, key, hash, now);
            }
            if last {
                break;
            }
        }
        self.tell_ends(local);
        record.last = local.last_end.take().or(record.last);
        self.tidy(local, stripe, key, hash);
    }

    /// Takes a waiter out of the queue with its answer.
    fn settle(
        &self,
        local: &mut Local,
        record: &mut Record,
        waiter: &Arc<Waiter>,
        answer: Result<Acquired, AcquireError>,
        now: u64,
    ) {
        // The answer first: who is neither in the queue nor answered waits for ever.
        local.wakes.extend(waiter.settle(answer));
        failpoint!("handover/settled");
        self.records.remove(record, waiter);
        failpoint!("handover/popped");
        self.metrics.waited(local, now.saturating_sub(waiter.since));
    }

    /// Takes out those at the head of the queue for whom nobody waits any more. Who gives up leaves the queue; but
    /// a thread may have died of a panic before it could.
    fn drop_abandoned(&self, local: &mut Local, record: &mut Record) {
        while let Some(abandoned) = record.first_abandoned() {
            self.records.remove(record, &abandoned);
            self.metrics.gave_up(local);
        }
    }

    /// An owner has been granted the key: those of its acquisitions that wait and would enter again, do.
    pub(super) fn let_enter(
        &self,
        local: &mut Local,
        record: &mut Record,
        owner: u64,
        key: Key,
        hash: u64,
        now: u64,
    ) {
        for waiter in record.reentrants(owner) {
            if record.holders.is_empty() && !self.take_in(local, record, key, hash) {
                return;
            }
            if let Some(token) = record.holders.entered_by(&waiter.wish)
                && let Ok(acquired) = self.enter_again(local, record, &waiter.wish, token, now)
            {
                self.settle(local, record, &waiter, Ok(acquired), now);
            }
        }
    }

    /// Makes sure that the record has a timer.
    pub(super) fn need_timer(
        &self,
        local: &mut Local,
        record: &mut Record,
        key: Key,
        hash: u64,
    ) -> Result<(), Refused> {
        if record.timer.is_none() {
            // Not registered until it is set.
            let timer = self
                .table
                .timer(local, Due::Record { key, hash }, self.time.last_tick());
            let (cell, _) = timer.ok_or(Refused::NoCell)?;
            record.timer = Some(Timer {
                cell,
                set_to: u64::MAX,
            });
        }
        Ok(())
    }

    /// Gives the timer of a record back that is not to be.
    pub(super) fn drop_timer(&self, local: &mut Local, record: &mut Record) {
        if record.is_empty()
            && let Some(timer) = record.timer.take()
        {
            self.table.stop_timer(local, timer.cell);
        }
    }

    /// Drops the record of a key, and its mark, if there is nothing in it; else sets its timer.
    pub(super) fn tidy(&self, local: &mut Local, stripe: &mut Stripe, key: Key, hash: u64) {
        let Some(record) = stripe.get(key) else {
            return;
        };
        if record.is_empty() {
            self.drop_timer(local, record);
            let last = record.last.filter(|_| local.observed);
            self.table.take_mark(local, key, hash);
            // After it: a mark without a record would stand for ever.
            failpoint!("record/emptied");
            stripe.records.remove(&key);
            self.tell_if_idle(local, last, key, hash);
            return;
        }
        let Some(due) = record.next_due() else {
            return;
        };
        // A record with nothing but waiters may have none, and do without if there is no cell: whoever
        // comes by tries again, too.
        if self.need_timer(local, record, key, hash).is_err() {
            return;
        }
        if let Some(timer) = &mut record.timer
            // Otherwise it rings early enough, and is set anew then.
            && !(local.now + 1..=due).contains(&timer.set_to)
        {
            timer.set_to = due;
            let word = self.table.set_timer(timer.cell, due);
            self.watch(timer.cell, word, due);
        }
    }
}
