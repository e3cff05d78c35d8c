//! What a lock manager does, written for clarity.

use std::collections::{BTreeMap, VecDeque};

use tenure::{Loss, Mode};

pub(crate) const KEYS: u64 = 3;
/// As many may be open at once.
pub(crate) const SESSIONS: usize = 2;
/// The owner of the first of them.
pub(crate) const FIRST_OF_SESSIONS: u64 = 8;

/// What an acquisition asks for. Lengths are in ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) key: u64,
    pub(crate) owner: u64,
    pub(crate) ttl: u64,
    pub(crate) mode: Mode,
    pub(crate) reentrant: bool,
    pub(crate) lock_delay: u64,
    pub(crate) min_hold: u64,
    /// The manager renews it for so long.
    pub(crate) max_hold: Option<u64>,
    pub(crate) session: Option<usize>,
}

/// A lease, as the specification has it. Its number is that of the grant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) owner: u64,
    pub(crate) mode: Mode,
    pub(crate) entries: u32,
    /// Its own, whatever becomes of its session.
    pub(crate) deadline: u64,
    /// No deadline is later.
    pub(crate) cap: u64,
    /// The manager renews it up to the cap, so that this is its deadline.
    pub(crate) kept: bool,
    pub(crate) session: Option<usize>,
    pub(crate) lock_delay: u64,
    pub(crate) min_until: u64,
}

/// The holder of a shared lease that waits for the others to leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Upgrader {
    pub(crate) waiter: u64,
    pub(crate) grant: u64,
    pub(crate) ttl: u64,
}

#[derive(Debug, Default)]
pub(crate) struct KeySpec {
    pub(crate) held: BTreeMap<u64, Held>,
    pub(crate) upgrader: Option<Upgrader>,
    pub(crate) queue: VecDeque<(u64, Wish)>,
    pub(crate) kept_until: u64,
}

/// The specification.
#[derive(Debug, Default)]
pub(crate) struct Spec {
    pub(crate) now: u64,
    pub(crate) grants: u64,
    pub(crate) keys: BTreeMap<u64, KeySpec>,
    /// TTL and deadline of those that are open.
    pub(crate) sessions: [Option<(u64, u64)>; SESSIONS],
    /// What has become of who waits and was not told yet.
    pub(crate) answers: BTreeMap<u64, Told>,
    /// How each lease has ended that has. An upgrade ends one only if others had entered it.
    pub(crate) losses: BTreeMap<u64, Loss>,
    /// Leases that have become others by an upgrade.
    pub(crate) became: BTreeMap<u64, u64>,
}

/// What one that waits is told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Told {
    Granted(u64),
    SessionOver,
    /// The lease that was to be upgraded is over.
    Lapsed,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Answer {
    Granted(u64),
    Held,
    Delayed,
    SessionOver,
    Lapsed,
    Deadlock,
}

impl KeySpec {
    fn admits(&self, mode: Mode) -> bool {
        let mut others = self.held.values().map(|held| held.mode);
        match mode {
            Mode::Shared => others.all(|other| other == Mode::Shared),
            Mode::Permit { of } => {
                self.held.len() < of as usize
                    && others.all(|other| matches!(other, Mode::Permit { .. }))
            }
            _ => self.held.is_empty(),
        }
    }

    fn busy(&self) -> Answer {
        if self.held.is_empty() {
            Answer::Delayed
        } else {
            Answer::Held
        }
    }
}

impl Held {
    fn extend(&mut self, deadline: u64) {
        self.deadline = self.deadline.max(deadline.min(self.cap));
    }
}

impl Spec {
    pub(crate) fn key(&mut self, number: u64) -> &mut KeySpec {
        self.keys.entry(number).or_default()
    }

    /// Until when a wish's max hold lets a lease last.
    fn cap(&self, wish: &Wish) -> Option<u64> {
        Some(self.now + 1 + wish.max_hold?)
    }

    fn min_until(&self, wish: &Wish) -> u64 {
        match wish.min_hold {
            0 => 0,
            hold => self.now + 1 + hold,
        }
    }

    fn grant(&mut self, wish: &Wish) -> u64 {
        self.grants += 1;
        let cap = self.cap(wish);
        let held = Held {
            owner: wish.owner,
            mode: wish.mode,
            entries: 1,
            deadline: cap.unwrap_or(match wish.session {
                Some(_) => u64::MAX,
                None => self.now + wish.ttl,
            }),
            cap: cap.unwrap_or(u64::MAX),
            kept: cap.is_some(),
            session: wish.session,
            lock_delay: wish.lock_delay,
            min_until: self.min_until(wish),
        };
        let grant = self.grants;
        self.key(wish.key).held.insert(grant, held);
        grant
    }

    /// Enters a lease that the owner holds, with all that the wish asks for.
    fn enter(&mut self, wish: &Wish) -> Option<u64> {
        let (deadline, cap) = (self.now + wish.ttl, self.cap(wish));
        let min_until = self.min_until(wish);
        let mut held = self.key(wish.key).held.iter_mut();
        let (&grant, held) = held.find(|(_, held)| {
            held.owner == wish.owner
                && held.session == wish.session
                && (held.mode == Mode::Exclusive || held.mode == wish.mode)
        })?;
        held.entries += 1;
        held.lock_delay = held.lock_delay.max(wish.lock_delay);
        held.min_until = held.min_until.max(min_until);
        if let Some(cap) = cap {
            // Earlier than it was promised it does not end.
            let promised = held.deadline;
            held.cap = if held.kept { held.cap } else { 0 }.max(cap).max(promised);
            held.kept = true;
            held.deadline = held.cap;
        }
        held.extend(deadline);
        Some(grant)
    }

    pub(crate) fn acquire(&mut self, wish: &Wish) -> Answer {
        if wish
            .session
            .is_some_and(|slot| self.sessions[slot].is_none())
        {
            return Answer::SessionOver;
        }
        if wish.reentrant
            && let Some(grant) = self.enter(wish)
        {
            return Answer::Granted(grant);
        }
        let now = self.now;
        let key = self.key(wish.key);
        let first = key.queue.is_empty() && key.upgrader.is_none();
        if !first || !key.admits(wish.mode) || key.kept_until > now {
            return key.busy();
        }
        Answer::Granted(self.grant(wish))
    }

    /// The number of the key that it is of, if it is live.
    pub(crate) fn upgrade(&mut self, grant: u64, ttl: u64) -> Answer {
        let Some((number, held)) = self.find(grant) else {
            return Answer::Lapsed;
        };
        if held.mode == Mode::Exclusive {
            return Answer::Granted(grant);
        }
        if self.key(number).upgrader.is_some() {
            return Answer::Deadlock;
        }
        let answer = self.try_upgrade(number, grant, ttl);
        answer.map_or(Answer::Held, Answer::Granted)
    }

    fn try_upgrade(&mut self, number: u64, grant: u64, ttl: u64) -> Option<u64> {
        let now = self.now;
        let key = self.key(number);
        if key.held.len() > 1 || key.kept_until > now {
            return None;
        }
        let mut held = key.held.remove(&grant)?;
        if held.entries > 1 {
            self.losses.insert(grant, Loss::Released);
        }
        held.entries = 1;
        held.mode = Mode::Exclusive;
        held.extend(now + ttl);
        self.grants += 1;
        let new = self.grants;
        self.became.insert(grant, new);
        self.key(number).held.insert(new, held);
        self.let_enter(number, held.owner);
        Some(new)
    }

    /// Ends a lease that is over since then.
    pub(crate) fn end(&mut self, number: u64, grant: u64, loss: Loss, unclean: Option<u64>) {
        let now = self.now;
        let key = self.key(number);
        if let Some(held) = key.held.remove(&grant) {
            if let (Some(end), true) = (unclean, held.lock_delay > 0) {
                key.kept_until = key.kept_until.max(end + held.lock_delay);
            }
            if held.min_until > now {
                key.kept_until = key.kept_until.max(held.min_until);
            }
            self.losses.insert(grant, loss);
        }
    }

    /// One of its entries is given back.
    pub(crate) fn leave(&mut self, grant: u64) {
        let Some((number, _)) = self.find(grant) else {
            return;
        };
        let held = self.key(number).held.get_mut(&grant);
        let held = held.expect("it was found");
        held.entries -= 1;
        if held.entries == 0 {
            self.end(number, grant, Loss::Released, None);
        }
    }

    /// Those of the owner's that wait and would enter what it holds, do.
    fn let_enter(&mut self, number: u64, owner: u64) {
        for (waiter, wish) in std::mem::take(&mut self.key(number).queue) {
            let own = wish.reentrant && wish.owner == owner;
            if let Some(grant) = own.then(|| self.enter(&wish)).flatten() {
                self.answers.insert(waiter, Told::Granted(grant));
            } else {
                self.key(number).queue.push_back((waiter, wish));
            }
        }
    }

    pub(crate) fn serve(&mut self) {
        for number in 0..KEYS {
            while self.serve_one(number) {}
        }
    }

    /// Whether whoever is first was told something.
    fn serve_one(&mut self, number: u64) -> bool {
        let now = self.now;
        let key = self.key(number);
        if let Some(Upgrader { waiter, grant, ttl }) = key.upgrader {
            let told = if key.held.contains_key(&grant) {
                self.try_upgrade(number, grant, ttl).map(Told::Granted)
            } else {
                Some(Told::Lapsed)
            };
            let Some(told) = told else {
                return false;
            };
            self.answers.insert(waiter, told);
            self.key(number).upgrader = None;
            return true;
        }
        let Some(&(waiter, wish)) = key.queue.front() else {
            return false;
        };
        if !key.admits(wish.mode) || key.kept_until > now {
            return false;
        }
        key.queue.pop_front();
        let grant = self.grant(&wish);
        self.answers.insert(waiter, Told::Granted(grant));
        self.let_enter(number, wish.owner);
        true
    }

    /// Ends a session, which was closed or is over since then. Who waits is still to be served: other
    /// sessions may be over as well.
    pub(crate) fn end_session(&mut self, slot: usize, unclean: Option<u64>) {
        self.sessions[slot] = None;
        for number in 0..KEYS {
            let key = self.key(number);
            let (gone, stay): (VecDeque<_>, _) =
                (key.queue.drain(..)).partition(|(_, wish)| wish.session == Some(slot));
            key.queue = stay;
            let in_it =
                |(&grant, held): (&u64, &Held)| (held.session == Some(slot)).then_some(grant);
            let held: Vec<u64> = key.held.iter().filter_map(in_it).collect();
            for (waiter, _) in gone {
                self.answers.insert(waiter, Told::SessionOver);
            }
            for grant in held {
                self.end(number, grant, Loss::SessionOver, unclean);
            }
        }
    }

    /// Time passes, and then the wheel turns.
    pub(crate) fn pass(&mut self, ticks: u64) {
        self.now += ticks;
        let now = self.now;
        for number in 0..KEYS {
            let over = |(&grant, held): (&u64, &Held)| {
                let loss = if held.deadline >= held.cap {
                    Loss::MaxHold
                } else {
                    Loss::Expired
                };
                (held.deadline <= now).then_some((grant, loss, held.deadline))
            };
            let over: Vec<_> = self.key(number).held.iter().filter_map(over).collect();
            for (grant, loss, deadline) in over {
                let session = self.find(grant).and_then(|(_, held)| held.session);
                let ends = session.and_then(|slot| self.sessions[slot]);
                // Its session may have been over before.
                match ends {
                    Some((_, ends)) if ends < deadline => {}
                    _ => self.end(number, grant, loss, Some(deadline)),
                }
            }
        }
        for slot in 0..SESSIONS {
            if let Some((_, deadline)) = self.sessions[slot]
                && deadline <= now
            {
                self.end_session(slot, Some(deadline));
            }
        }
        self.serve();
    }

    pub(crate) fn find(&self, grant: u64) -> Option<(u64, Held)> {
        let mut keys = self.keys.iter();
        keys.find_map(|(&number, key)| Some((number, *key.held.get(&grant)?)))
    }

    /// The deadline of a lease: its own, or its session's if that is earlier.
    pub(crate) fn until(&self, held: &Held) -> u64 {
        let session = held.session.and_then(|slot| self.sessions[slot]);
        session.map_or(held.deadline, |(_, ends)| held.deadline.min(ends))
    }

    /// Whether the manager renews a lease, so that its wheel must not be late.
    pub(crate) fn keeps(&self) -> bool {
        let mut held = self.keys.values().flat_map(|key| key.held.values());
        held.any(|held| held.kept && held.session.is_none())
    }
}
