//! The leases that a record holds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Weak;
use std::time::Duration;

use crate::lost::Signal;
use crate::session::SessionCore;
use crate::sync::Arc;
use crate::table::Loss;
use crate::wish::{Mode, Terms, Wish};

/// From so many holders on, their dues are kept in order; below, they are looked through.
const MANY: usize = 16;

/// The renewals of a lease by the manager.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keeper {
    pub(crate) ttl: Duration,
    /// The tick of the next one.
    pub(crate) next: u64,
}

/// A lease that the record holds.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) token: u64,
    pub(crate) owner: u64,
    pub(crate) mode: Mode,
    /// How often it was entered and not yet left.
    pub(crate) entries: u32,
    /// When it was granted, in nanoseconds of the manager's clock, if that is known.
    pub(crate) granted: Option<u64>,
    /// Its own deadline in ticks: in a session, `u64::MAX` or its cap.
    pub(crate) deadline: u64,
    /// No deadline is later.
    pub(crate) cap: u64,
    pub(crate) session: Option<Arc<SessionCore>>,
    pub(crate) terms: Terms,
    /// The tick until which nobody else is granted the key, even if it is released before.
    pub(crate) min_until: u64,
    pub(crate) keeper: Option<Keeper>,
    pub(crate) watches: Vec<Weak<Signal>>,
}

impl Holder {
    /// An exclusive lease with no terms.
    pub(crate) fn new(token: u64, owner: u64, granted: Option<u64>, deadline: u64) -> Self {
        Self {
            token,
            owner,
            mode: Mode::Exclusive,
            entries: 1,
            granted,
            deadline,
            cap: u64::MAX,
            session: None,
            terms: Terms::default(),
            min_until: 0,
            keeper: None,
            watches: vec![],
        }
    }

    /// The tick at which it is over, as things are.
    pub(crate) fn until(&self) -> u64 {
        let session = self.session.as_ref().map_or(u64::MAX, |it| it.until());
        self.deadline.min(session)
    }

    /// Whether its session is over.
    pub(crate) fn is_ended(&self) -> bool {
        self.session.as_ref().is_some_and(|it| it.until() == 0)
    }

    /// Its deadline, whether it was ended before or not.
    pub(crate) fn deadline(&self) -> u64 {
        let session = self.session.as_ref().map_or(u64::MAX, |it| it.deadline());
        self.deadline.min(session)
    }

    /// Makes it last until then at the least, up to its cap. (In a session, that is no matter.)
    pub(crate) fn extend(&mut self, deadline: u64) {
        self.deadline = self.deadline.max(deadline.min(self.cap));
    }

    /// It is renewed next at that tick, or sooner if less is left of it than its TTL.
    pub(crate) fn keep_next(&mut self, now: u64, tick: u64) {
        let third = (self.deadline.saturating_sub(now) / 3).max(1);
        if let Some(keeper) = &mut self.keeper {
            keeper.next = tick.min(now.saturating_add(third));
        }
    }

    /// How it has ended by that tick, if it has; then it stays so, whatever happens to its session.
    fn over(&self, now: u64) -> Option<Loss> {
        if self.deadline <= now {
            let capped = self.deadline >= self.cap;
            return Some(if capped { Loss::MaxHold } else { Loss::Expired });
        }
        let session = self.session.as_ref()?;
        session.is_over(now).then_some(Loss::SessionOver)
    }

    /// Adds somebody who wants to know of its end.
    pub(crate) fn watch(&mut self, signal: &Arc<Signal>) {
        super::add_watch(&mut self.watches, Arc::downgrade(signal), |watch| watch);
    }

    fn renewal(&self) -> Option<u64> {
        self.keeper.map(|keeper| keeper.next)
    }

    /// Whether an acquisition of that wish enters it instead of waiting for its end.
    fn is_entered_by(&self, wish: &Wish) -> bool {
        let session = match (&self.session, &wish.session) {
            (None, None) => true,
            (Some(mine), Some(other)) => Arc::ptr_eq(mine, other),
            _ => false,
        };
        session
            && self.owner == wish.request.owner
            && self.mode.covers(wish.mode)
            && self.token >= wish.request.at_least
    }
}

/// When something has to be done about a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Due {
    token: u64,
    deadline: u64,
    renewal: Option<u64>,
}

impl Due {
    fn of(holder: &Holder) -> Self {
        Self {
            token: holder.token,
            deadline: holder.deadline,
            renewal: holder.renewal(),
        }
    }
}

/// Whose the leases of many holders are, and when something has to be done about them.
#[derive(Debug, Default)]
struct Dues {
    /// Owners and tokens.
    owners: BTreeSet<(u64, u64)>,
    /// Deadlines and tokens.
    deadlines: BTreeSet<(u64, u64)>,
    /// Renewals by the manager, and tokens.
    renewals: BTreeSet<(u64, u64)>,
}

impl Dues {
    fn add(&mut self, due: &Due) {
        self.deadlines.insert((due.deadline, due.token));
        self.renewals
            .extend(due.renewal.map(|next| (next, due.token)));
    }

    fn remove(&mut self, due: &Due) {
        self.deadlines.remove(&(due.deadline, due.token));
        if let Some(next) = due.renewal {
            self.renewals.remove(&(next, due.token));
        }
    }
}

/// All holders of a record. Each operation takes time in the logarithm of their number, if not said
/// otherwise.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    /// Boxed: a node of the map has room for eleven, and most records have one.
    by_token: BTreeMap<u64, Box<Holder>>,
    dues: Option<Box<Dues>>,
    exclusive: usize,
    shared: usize,
    in_sessions: usize,
}

impl Holders {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_token.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_token.len()
    }

    pub(crate) fn get(&self, token: u64) -> Option<&Holder> {
        self.by_token.get(&token).map(|holder| &**holder)
    }

    /// In the order of their tokens.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Holder> {
        self.by_token.values().map(|holder| &**holder)
    }

    pub(crate) fn insert(&mut self, holder: Holder) {
        self.count(&holder, 1);
        if let Some(dues) = &mut self.dues {
            dues.owners.insert((holder.owner, holder.token));
            dues.add(&Due::of(&holder));
        }
        self.by_token.insert(holder.token, Box::new(holder));
        if self.dues.is_none() && self.len() >= MANY {
            let mut dues = Dues::default();
            for holder in self.iter() {
                dues.owners.insert((holder.owner, holder.token));
                dues.add(&Due::of(holder));
            }
            self.dues = Some(Box::new(dues));
        }
    }

    pub(crate) fn remove(&mut self, token: u64) -> Option<Holder> {
        let holder = self.by_token.remove(&token)?;
        self.count(&holder, -1);
        if let Some(dues) = &mut self.dues {
            dues.owners.remove(&(holder.owner, holder.token));
            dues.remove(&Due::of(&holder));
        }
        if self.len() < MANY / 2 {
            self.dues = None;
        }
        Some(*holder)
    }

    /// Changes a holder, but not its token or its owner.
    pub(crate) fn change<R>(&mut self, token: u64, f: impl FnOnce(&mut Holder) -> R) -> Option<R> {
        let holder = self.by_token.get_mut(&token)?;
        let (mode, due) = (holder.mode, Due::of(holder));
        let result = f(holder);
        let (new_mode, new_due) = (holder.mode, Due::of(holder));
        if let Some(dues) = &mut self.dues
            && new_due != due
        {
            dues.remove(&due);
            dues.add(&new_due);
        }
        self.count_mode(mode, -1);
        self.count_mode(new_mode, 1);
        Some(result)
    }

    fn count(&mut self, holder: &Holder, by: isize) {
        self.count_mode(holder.mode, by);
        if holder.session.is_some() {
            self.in_sessions = self.in_sessions.wrapping_add_signed(by);
        }
    }

    fn count_mode(&mut self, mode: Mode, by: isize) {
        match mode {
            Mode::Exclusive => self.exclusive = self.exclusive.wrapping_add_signed(by),
            Mode::Shared => self.shared = self.shared.wrapping_add_signed(by),
            Mode::Permit { .. } => {}
        }
    }

    /// Whether they admit another in that mode.
    pub(crate) fn admit(&self, mode: Mode) -> bool {
        match mode {
            Mode::Exclusive => self.is_empty(),
            Mode::Shared => self.shared == self.len(),
            Mode::Permit { of } => self.len() < of as usize && self.exclusive + self.shared == 0,
        }
    }

    /// The one that an acquisition of that wish enters. Takes time in the number of those of its owner.
    pub(crate) fn entered_by(&self, wish: &Wish) -> Option<u64> {
        let owner = wish.request.owner;
        let entered = if let Some(dues) = &self.dues {
            let own = dues.owners.range((owner, 0)..=(owner, u64::MAX));
            let mut own = own.filter_map(|&(_, token)| self.get(token));
            own.find(|holder| holder.is_entered_by(wish))
        } else {
            self.iter().find(|holder| holder.is_entered_by(wish))
        };
        Some(entered?.token)
    }

    /// The one that lasts longest, or nearly so.
    pub(crate) fn last(&self) -> Option<&Holder> {
        match &self.dues {
            Some(dues) => self.get(dues.deadlines.last()?.1),
            None => self.iter().max_by_key(|holder| holder.until()),
        }
    }

    /// The same of all but that one.
    pub(crate) fn last_but(&self, token: u64) -> Option<&Holder> {
        if let Some(dues) = &self.dues {
            let mut others = dues.deadlines.iter().rev();
            self.get(others.find(|due| due.1 != token)?.1)
        } else {
            let others = self.iter().filter(|holder| holder.token != token);
            others.max_by_key(|holder| holder.until())
        }
    }

    /// Those that are over at that tick. Takes time in the number of these, and of those in sessions.
    pub(crate) fn over(&self, now: u64) -> Vec<(u64, Loss)> {
        let look = |holder: &Holder| Some((holder.token, holder.over(now)?));
        let Some(dues) = &self.dues else {
            return self.iter().filter_map(look).collect();
        };
        if self.in_sessions > 0 {
            return self.iter().filter_map(look).collect();
        }
        let over = dues.deadlines.range(..=(now, u64::MAX));
        over.filter_map(|&(_, token)| look(self.get(token)?))
            .collect()
    }

    /// Those that the manager has to renew by that tick.
    pub(crate) fn to_renew(&self, now: u64) -> Vec<u64> {
        if let Some(dues) = &self.dues {
            let renewals = dues.renewals.range(..=(now, u64::MAX));
            return renewals.map(|&(_, token)| token).collect();
        }
        let due = |holder: &&Holder| holder.renewal().is_some_and(|next| next <= now);
        self.iter().filter(due).map(|holder| holder.token).collect()
    }

    /// The next tick at which something has to be done. (Sessions have timers of their own.)
    pub(crate) fn next_due(&self) -> Option<u64> {
        let next = if let Some(dues) = &self.dues {
            let renewal = dues.renewals.first();
            let firsts = dues.deadlines.first().into_iter().chain(renewal);
            firsts.map(|&(tick, _)| tick).min()
        } else {
            let due = |holder: &Holder| holder.deadline.min(holder.renewal().unwrap_or(u64::MAX));
            self.iter().map(due).min()
        };
        next.filter(|&tick| tick < u64::MAX)
    }
}

#[cfg(all(test, not(tenure_loom), not(tenure_shuttle)))]
mod tests {
    use super::*;
    use crate::engine::Request;

    fn wish(owner: u64, mode: Mode) -> Wish {
        let mut wish = Wish::plain(Request {
            key: crate::key::Key::from_raw(1),
            owner,
            ttl: Duration::from_secs(1),
            at_least: 0,
        });
        wish.mode = mode;
        wish
    }

    /// Few are looked through, and many have an index.
    #[test]
    fn many_holders_are_found_as_few_are() {
        let mut random = fastrand::Rng::with_seed(5);
        let (mut holders, mut indexed) = (Holders::default(), [false; 2]);
        for token in 1..2_000_u64 {
            let mut holder = Holder::new(token, random.u64(0..9), None, random.u64(1..50));
            holder.mode = Mode::Permit { of: 1 << 20 };
            if random.bool() {
                holder.mode = Mode::Shared;
            }
            holders.insert(holder);
            // Around the number from which on there is an index.
            let most = if token < 1_000 { 20 } else { 200 };
            while holders.len() > random.usize(4..most) {
                let at = random.usize(0..holders.len());
                let gone = holders.iter().nth(at).expect("it is there").token;
                holders.change(gone, |holder| holder.extend(60));
                holders.remove(gone);
            }
            indexed[usize::from(holders.dues.is_some())] = true;

            let wish = wish(random.u64(0..9), Mode::Shared);
            let first = holders.iter().find(|holder| holder.is_entered_by(&wish));
            assert_eq!(holders.entered_by(&wish), first.map(|holder| holder.token));
            let but = random.u64(token.saturating_sub(30)..=token);
            let others = holders.iter().filter(|holder| holder.token != but);
            let last = others.max_by_key(|holder| (holder.deadline, holder.token));
            let told = holders.last_but(but).map(|holder| holder.token);
            assert_eq!(told, last.map(|holder| holder.token));
        }
        assert_eq!(indexed, [true, true]);
    }
}
