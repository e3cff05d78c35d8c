//! Rule 3: a renewal.

use super::cell::{Cell, KILLED_EXPIRED, State};
use super::ending::Ended;
use super::grant::FEW;
use super::layout::Layout;
use super::local::Local;
use super::lookup::Found;
use super::{Handle, Name, Table};
use crate::Key;
use crate::failpoint::failpoint;

/// What a renewal was refused for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unrenewed {
    Ended(Ended),
    /// It lasts as long as its session.
    InSession,
    /// The lease has to move to a later era, and can't.
    NoMemory,
}

/// The deadline that a renewal wants.
pub(crate) trait Wanted {
    /// Whether a lease with that deadline is live now, and lasts long enough.
    fn is_met_by(&self, deadline: u64) -> bool;
    /// The deadline in ticks, if a lease with that other one is live now and ends before.
    fn later_than(&self, deadline: u64) -> Option<u64>;
    /// Now and the deadline, in ticks.
    fn ticks(&self) -> (u64, u64);
}

impl Wanted for (u64, u64) {
    fn is_met_by(&self, deadline: u64) -> bool {
        deadline > self.0 && deadline >= self.1
    }

    fn later_than(&self, deadline: u64) -> Option<u64> {
        (deadline > self.0 && deadline < self.1).then_some(self.1)
    }

    fn ticks(&self) -> (u64, u64) {
        *self
    }
}

impl<L: Layout> Table<L> {
    /// Moves the lease's deadline to that of `wanted`, never back, and answers with the one that
    /// stands. `None` if the lease is over, has moved, or has to move: then a look-up by key tells.
    ///
    /// One CAS on the cell's state; or none, if the deadline that stands is late enough, as it is for
    /// all renewals of one TTL within one tick but the first. (The lease was live when the state was
    /// loaded, and neither the wheel nor a thief ends it before that deadline.)
    #[inline]
    pub(crate) fn renew_fast(
        &self,
        handle: Handle,
        name: &Name,
        wanted: &impl Wanted,
    ) -> Option<(u64, Handle)> {
        let cell = self.cell(handle.cell());
        loop {
            let state = cell.state::<L>();
            if !cell.is_named(state, handle, name) {
                return None;
            }
            let era = cell.era();
            let old = state.deadline(era);
            let seen = |state: State<L>| Handle {
                state: state.0,
                ..handle
            };
            if cell.state::<L>() == state && wanted.is_met_by(old) {
                return Some((old, seen(state)));
            }
            // Rule F, in the era that was found (rule H).
            let (now, deadline) = wanted.ticks();
            let renewed = state.with_deadline(era, deadline.max(old))?;
            if old <= now {
                return None;
            }
            failpoint!("renew/before");
            if cell.change(state, renewed) {
                failpoint!("renew/after");
                return Some((deadline.max(old), seen(renewed)));
            }
        }
    }

    /// The two together.
    #[cfg(all(test, not(tenure_shuttle)))]
    pub(crate) fn renew(
        &self,
        local: &mut Local,
        handle: Handle,
        name: &Name,
        deadline: u64,
    ) -> Result<(u64, Handle), Unrenewed> {
        match self.renew_fast(handle, name, &(local.now, deadline)) {
            Some(renewed) => Ok(renewed),
            None => self.renew_by_key(local, name, deadline),
        }
    }

    /// Renews by key where that is simple: the lease is found among the first of its bucket, live and with
    /// that token. Answers with the deadline that stands; `None` if not, and nothing has happened.
    #[inline(always)]
    pub(crate) fn renew_spotted(
        &self,
        local: &Local,
        name: &Name,
        wanted: &impl Wanted,
    ) -> Option<u64> {
        let spotted = self.spot(&local.array, (name.key, name.hash), FEW)?;
        let (cell, state) = (spotted.cell, spotted.state);
        let (token, era) = (cell.token(), cell.era());
        if !spotted.stands() || token != name.token {
            return None;
        }
        let old = state.deadline(era);
        if wanted.is_met_by(old) {
            return Some(old);
        }
        let deadline = wanted.later_than(old)?;
        let renewed = state.with_deadline(era, deadline)?;
        failpoint!("renew/before");
        let done = cell.change(state, renewed).then_some(deadline);
        failpoint!("renew/after");
        done
    }

    /// The same, wherever the lease lives now.
    #[cold]
    pub(crate) fn renew_by_key(
        &self,
        local: &mut Local,
        name: &Name,
        deadline: u64,
    ) -> Result<(u64, Handle), Unrenewed> {
        let mut moved = false;
        loop {
            let found = match self.find(local, name.key, name.hash) {
                Ok(found) if found.contents.token == name.token => found,
                Ok(other) => return Err(Unrenewed::Ended(other.gone().ended(name.token))),
                Err(gone) => return Err(Unrenewed::Ended(gone.ended(name.token))),
            };
            let old = found.contents.deadline;
            if old <= local.now {
                // `Expired` is only said of a lease that is dead: no later renewal may succeed.
                if self.kill(local, name.hash, found.cell, found.state, KILLED_EXPIRED) {
                    return Err(Unrenewed::Ended(Ended::Expired));
                }
                continue;
            }
            let cell = self.cell(found.cell);
            // The era that was found: the cell may be in a later life, with a later era, by now.
            match found.state.with_deadline(found.era, deadline.max(old)) {
                Some(renewed) if found.state.is_held() => {
                    failpoint!("renew/before");
                    if cell.change(found.state, renewed) {
                        failpoint!("renew/after");
                        let handle = Handle {
                            state: renewed.0,
                            ..found.handle()
                        };
                        return Ok((deadline.max(old), handle));
                    }
                }
                Some(_) => {}
                // Rule H. The lease has outlived its era: copies take a later one.
                // Once is enough, or the deadline is out of all bounds.
                None if !moved && self.shed_dead(local, name.hash) => moved = true,
                None => return Err(Unrenewed::NoMemory),
            }
        }
    }

    /// Whether the lease is in the very state that the handle saw it in.
    ///
    /// Then it is that lease and not a later one in the same state, since token and key agree too.
    #[inline(always)]
    pub(crate) fn is_as_seen(&self, handle: Handle, key: Key, token: u64) -> bool {
        self.as_seen(handle, key, token).is_some()
    }

    /// The lease's cell, in that case.
    #[inline(always)]
    fn as_seen(&self, handle: Handle, key: Key, token: u64) -> Option<Cell<'_>> {
        let cell = self.cell(handle.cell());
        let same =
            cell.state::<L>() == handle.state() && cell.token() == token && cell.key() == key;
        same.then_some(cell)
    }

    /// Renews a lease that is live and in the very state that the handle saw it in, to a later
    /// deadline. `None` if it is not so simple, and nothing has happened.
    #[inline(always)]
    pub(crate) fn renew_as_seen(
        &self,
        handle: Handle,
        key: Key,
        token: u64,
        wanted: &impl Wanted,
    ) -> Option<(u64, Handle)> {
        let cell = self.as_seen(handle, key, token)?;
        let (era, state) = (cell.era(), handle.state::<L>());
        let deadline = wanted.later_than(state.deadline(era))?;
        let renewed = state.with_deadline(era, deadline)?;
        failpoint!("renew/before");
        let done = cell.change(state, renewed).then_some((
            deadline,
            Handle {
                state: renewed.0,
                ..handle
            },
        ));
        failpoint!("renew/after");
        done
    }

    /// Whether the handle's lease stands where the handle points: `None` if that can't be told
    /// without a look-up by key.
    #[inline]
    pub(crate) fn deadline_by_handle(&self, handle: Handle, name: &Name) -> Option<(u64, Handle)> {
        let cell = self.cell(handle.cell());
        let state = cell.state::<L>();
        let named = cell.is_named(state, handle, name);
        let deadline = state.deadline(cell.era());
        let seen = Handle {
            state: state.0,
            ..handle
        };
        (named && cell.state::<L>() == state).then_some((deadline, seen))
    }

    /// The lease that `name` names, live at `local.now`.
    pub(crate) fn validate(&self, local: &mut Local, name: &Name) -> Result<Found<L>, Ended> {
        match self.live(local, name.key, name.hash) {
            Ok(found) if found.contents.token != name.token => Err(found.gone().ended(name.token)),
            Ok(found) => Ok(found),
            Err(gone) => Err(gone.ended(name.token)),
        }
    }
}
