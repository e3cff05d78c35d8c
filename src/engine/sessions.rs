//! Sessions: how they open, and how they end.

use std::time::Duration;

use super::Engine;
use crate::error::AcquireError;
use crate::failpoint::failpoint;
use crate::owed::Owed;
use crate::owner::OwnerId;
use crate::session::SessionCore;
use crate::sync::{Arc, Ordering};
use crate::table::{Due, Layout, Local, Loss};

impl<L: Layout> Engine<L> {
    /// A session that lasts for `ttl` from now, or as long as the manager can count if it is `endless`.
    pub(crate) fn open_session(
        &self,
        owner: OwnerId,
        ttl: Duration,
        endless: bool,
    ) -> Result<Arc<SessionCore>, AcquireError> {
        let now = self.time.now();
        let request = super::Request {
            key: crate::Key::from_raw(0),
            owner: owner.0,
            ttl,
            at_least: 0,
        };
        let deadline = self
            .time
            .deadline(now, ttl)
            .map_err(|bad| request.refused(Some(bad)))?;
        let deadline = if endless {
            self.time.last_tick()
        } else {
            deadline
        };
        let id = self.next_session.fetch_add(1, Ordering::Relaxed);
        let core = Arc::new(SessionCore::new(id, owner.0, ttl, deadline));
        {
            let mut sessions = self.sessions.lock();
            if self.is_closed() {
                return Err(AcquireError::Closed);
            }
            sessions.insert(id, Arc::clone(&core));
        }
        let mut sessions = &self.sessions;
        let untimed = Owed::new(&mut sessions, |sessions| _ = sessions.lock().remove(&id));
        failpoint!("session/opened");
        let timed = self.with(now, |local| {
            let mut book = core.book.lock();
            let timer = self.table.timer(local, Due::Session(id), deadline);
            if let Some((cell, word)) = timer {
                book.timer = Some(cell);
                self.watch(cell, word, deadline);
            }
            timer.is_some()
        });
        untimed.waive();
        if timed {
            return Ok(core);
        }
        self.close_session(&core);
        let capacity = self.most_leases();
        Err(AcquireError::CapacityExceeded { capacity })
    }

    /// Ends a session; false if it was over before.
    pub(crate) fn close_session(&self, core: &Arc<SessionCore>) -> bool {
        let now = self.time.now();
        self.with(now, |local| {
            let closed = !core.is_over(local.now) && core.close();
            self.wind_up(local, core);
            closed
        })
    }

    /// Ends a session that has no deadline yet. (One that is given it at this moment stays.)
    pub(super) fn close_endless(&self, core: &Arc<SessionCore>) {
        if core.close_from(self.time.last_tick()) {
            self.with(self.time.now(), |local| self.wind_up(local, core));
        }
    }

    /// The session's timer has rung.
    pub(super) fn look_at_session(&self, local: &mut Local, id: u64) {
        let Some(core) = self.sessions.lock().get(&id).map(Arc::clone) else {
            return;
        };
        if core.is_over(local.now) {
            self.wind_up(local, &core);
            return;
        }
        self.set_session_timer(&core);
    }

    /// Sets the session's timer to its deadline, if it has one still.
    pub(crate) fn set_session_timer(&self, core: &SessionCore) {
        let book = core.book.lock();
        if let Some(timer) = book.timer {
            // Over or not: who ends it now may leave the rest to whoever looks then.
            let deadline = core.deadline();
            let word = self.table.set_timer(timer, deadline);
            self.watch(timer, word, deadline);
        }
    }

    /// Frees what a session has held, and refuses those who wait in it. The session is over.
    fn wind_up(&self, local: &mut Local, core: &Arc<SessionCore>) {
        let (mut held, mut waiters, mut watches) = {
            let mut book = core.book.lock();
            // A session that is closed as it opens has its timer afterwards.
            if book.closed && book.is_empty() && book.timer.is_none() {
                return;
            }
            book.closed = true;
            if let Some(timer) = book.timer.take() {
                self.table.stop_timer(local, timer);
            }
            (
                std::mem::take(&mut book.held)
                    .into_iter()
                    .collect::<Vec<_>>(),
                std::mem::take(&mut book.waiters),
                std::mem::take(&mut book.watches),
            )
        };
        let mut left = (&mut *local, &mut held, &mut waiters, &mut watches);
        let mut left = Owed::new(&mut left, |(local, held, waiters, watches)| {
            let mut book = core.book.lock();
            book.held.extend(held.drain(..));
            book.waiters.append(waiters);
            book.watches.append(watches);
            local.due.push(Due::Session(core.id));
        });
        let (local, held, waiters, watches) = &mut *left;
        failpoint!("session/over");
        while let Some(waiter) = waiters.last() {
            if let Some(waiter) = waiter.upgrade() {
                // Its acquisition may be dropped meanwhile, and this be the last that is left of it.
                local.waiters.push(Arc::clone(&waiter));
                let mut stripe = self.records.lock(waiter.hash);
                if let Some(record) = stripe.get(waiter.key())
                    && self.records.remove(record, &waiter)
                {
                    let over = Err(AcquireError::SessionOver);
                    local.wakes.extend(waiter.settle(over));
                    let waited = self.time.now().saturating_sub(waiter.since);
                    self.metrics.waited(local, waited);
                    self.serve(local, &mut stripe, waiter.key(), waiter.hash);
                }
            }
            waiters.pop();
        }
        while let Some(&((key, token), hash)) = held.last() {
            let mut stripe = self.records.lock(hash);
            if let Some(record) = stripe.get(key) {
                self.end_holder(local, record, key, token, Loss::SessionOver);
                failpoint!("session/winding");
                self.serve(local, &mut stripe, key, hash);
            }
            drop(stripe);
            self.between_keys(local);
            held.pop();
        }
        for signal in watches.drain(..) {
            let signal = signal.upgrade();
            local
                .wakes
                .extend(signal.and_then(|signal| signal.set(Loss::SessionOver)));
        }
        left.waive();
        self.sessions.lock().remove(&core.id);
    }
}

#[cfg(all(test, not(any(tenure_loom, tenure_shuttle))))]
mod tests {
    use std::time::Duration;

    use crate::engine::Request;
    use crate::key::Key;
    use crate::lost::Signal;
    use crate::records::Waiter;
    use crate::session::Book;
    use crate::sync::Arc;
    use crate::wish::Wish;

    fn waiter() -> Arc<Waiter> {
        let request = Request {
            key: Key::from_raw(1),
            owner: 1,
            ttl: Duration::from_secs(1),
            at_least: 0,
        };
        Waiter::new(Wish::plain(request), 1, 0)
    }

    /// Leases, acquisitions that wait, and who wants to know: each of them alone is something.
    #[test]
    fn whoever_winds_a_session_up_sees_to_all_that_there_is() {
        assert!(Book::default().is_empty());
        let mut with_lease = Book::default();
        assert!(with_lease.add_lease(Key::from_raw(1), 1, 1));
        assert!(!with_lease.is_empty());
        let (waiter, signal) = (waiter(), Signal::new());
        let mut with_waiter = Book::default();
        assert!(with_waiter.add_waiter(&waiter));
        assert!(!with_waiter.is_empty());
        let mut with_watch = Book::default();
        with_watch.watches.push(Arc::downgrade(&signal));
        assert!(!with_watch.is_empty());
    }

    /// I9: a session that lasts has many of them.
    #[test]
    fn acquisitions_that_have_ended_take_no_room_for_long() {
        let mut book = Book::default();
        let stay: Vec<_> = (0..20).map(|_| waiter()).collect();
        for it in &stay {
            assert!(book.add_waiter(it));
            for _ in 0..100 {
                assert!(book.add_waiter(&waiter()));
            }
        }
        assert!(book.waiters.len() <= 4 * stay.len());
        let there = book.waiters.iter().filter(|it| it.strong_count() > 0);
        assert_eq!(there.count(), stay.len());
    }
}
