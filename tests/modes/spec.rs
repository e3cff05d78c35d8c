//! What a lock manager does, written for clarity.

use std::collections::{BTreeMap, VecDeque};

use tenure::Mode;

pub(crate) const KEYS: u64 = 3;

/// What an acquisition asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) key: u64,
    pub(crate) owner: u64,
    pub(crate) ttl: u64,
    pub(crate) mode: Mode,
    pub(crate) reentrant: bool,
    pub(crate) lock_delay: u64,
    pub(crate) min_hold: u64,
    /// In the session, if there is one.
    pub(crate) in_session: bool,
}

/// A lease, as the specification has it. Its number is that of the grant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) owner: u64,
    pub(crate) mode: Mode,
    pub(crate) entries: u32,
    pub(crate) deadline: u64,
    pub(crate) in_session: bool,
    pub(crate) lock_delay: u64,
    pub(crate) min_until: u64,
}

#[derive(Debug, Default)]
pub(crate) struct KeySpec {
    pub(crate) held: BTreeMap<u64, Held>,
    pub(crate) queue: VecDeque<(u64, Wish)>,
    pub(crate) kept_until: u64,
}

/// The specification.
#[derive(Debug, Default)]
pub(crate) struct Spec {
    pub(crate) now: u64,
    pub(crate) grants: u64,
    pub(crate) keys: BTreeMap<u64, KeySpec>,
    /// TTL and deadline.
    pub(crate) session: Option<(u64, u64)>,
    /// What has become of who waits: the grant, or `None` if its session ended.
    pub(crate) answers: BTreeMap<u64, Option<u64>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Answer {
    Granted(u64),
    Held,
    Delayed,
    SessionOver,
}

impl Spec {
    pub(crate) fn admits(key: &KeySpec, mode: Mode) -> bool {
        let mut others = key.held.values().map(|held| held.mode);
        match mode {
            Mode::Shared => others.all(|other| other == Mode::Shared),
            Mode::Permit { of } => {
                key.held.len() < of as usize
                    && others.all(|other| matches!(other, Mode::Permit { .. }))
            }
            _ => key.held.is_empty(),
        }
    }

    pub(crate) fn grant(&mut self, wish: &Wish) -> u64 {
        self.grants += 1;
        let held = Held {
            owner: wish.owner,
            mode: wish.mode,
            entries: 1,
            deadline: self.now + wish.ttl,
            in_session: wish.in_session,
            lock_delay: wish.lock_delay,
            min_until: match wish.min_hold {
                0 => 0,
                hold => self.now + 1 + hold,
            },
        };
        let key = self.keys.entry(wish.key).or_default();
        key.held.insert(self.grants, held);
        self.grants
    }

    /// Enters a lease that the owner holds, with all that the wish asks for.
    pub(crate) fn enter(&mut self, wish: &Wish) -> Option<u64> {
        let now = self.now;
        let key = self.keys.entry(wish.key).or_default();
        let (&grant, held) = key.held.iter_mut().find(|(_, held)| {
            held.owner == wish.owner
                && held.in_session == wish.in_session
                && (held.mode == Mode::Exclusive || held.mode == wish.mode)
        })?;
        held.entries += 1;
        held.deadline = held.deadline.max(now + wish.ttl);
        held.lock_delay = held.lock_delay.max(wish.lock_delay);
        if wish.min_hold > 0 {
            held.min_until = held.min_until.max(now + 1 + wish.min_hold);
        }
        Some(grant)
    }

    pub(crate) fn acquire(&mut self, wish: &Wish) -> Answer {
        if wish.in_session && self.session.is_none() {
            return Answer::SessionOver;
        }
        let now = self.now;
        if wish.reentrant
            && let Some(grant) = self.enter(wish)
        {
            return Answer::Granted(grant);
        }
        let key = self.keys.entry(wish.key).or_default();
        if !key.queue.is_empty() || !Self::admits(key, wish.mode) {
            return if key.held.is_empty() {
                Answer::Delayed
            } else {
                Answer::Held
            };
        }
        if key.kept_until > now {
            return if key.held.is_empty() {
                Answer::Delayed
            } else {
                Answer::Held
            };
        }
        Answer::Granted(self.grant(wish))
    }

    /// Ends a lease; `unclean` says since when it has been over.
    pub(crate) fn end(&mut self, number: u64, grant: u64, unclean: Option<u64>) {
        let now = self.now;
        let key = self.keys.entry(number).or_default();
        if let Some(held) = key.held.remove(&grant) {
            if let (Some(end), true) = (unclean, held.lock_delay > 0) {
                key.kept_until = key.kept_until.max(end + held.lock_delay);
            }
            if held.min_until > now {
                key.kept_until = key.kept_until.max(held.min_until);
            }
        }
    }

    /// One of its entries is given back.
    pub(crate) fn leave(&mut self, grant: u64) {
        let Some((number, _)) = self.find(grant) else {
            return;
        };
        let key = self.keys.entry(number).or_default();
        let held = key.held.get_mut(&grant).expect("it was found");
        held.entries -= 1;
        if held.entries == 0 {
            self.end(number, grant, None);
        }
    }

    pub(crate) fn serve(&mut self) {
        for number in 0..KEYS {
            loop {
                let now = self.now;
                let key = self.keys.entry(number).or_default();
                let Some(&(waiter, wish)) = key.queue.front() else {
                    break;
                };
                if !Self::admits(key, wish.mode) || key.kept_until > now {
                    break;
                }
                key.queue.pop_front();
                let grant = self.grant(&wish);
                self.answers.insert(waiter, Some(grant));
                // Those of the same owner's that would enter again, do.
                let queue = std::mem::take(&mut self.keys.entry(number).or_default().queue);
                for (waiter, next) in queue {
                    let own = next.reentrant && next.owner == wish.owner;
                    if let Some(grant) = own.then(|| self.enter(&next)).flatten() {
                        self.answers.insert(waiter, Some(grant));
                    } else {
                        let key = self.keys.entry(number).or_default();
                        key.queue.push_back((waiter, next));
                    }
                }
            }
        }
    }

    pub(crate) fn end_session(&mut self, unclean: Option<u64>) {
        self.session = None;
        for number in 0..KEYS {
            let key = self.keys.entry(number).or_default();
            let (gone, stay): (VecDeque<_>, _) =
                key.queue.drain(..).partition(|(_, wish)| wish.in_session);
            key.queue = stay;
            let held: Vec<u64> = key
                .held
                .iter()
                .filter(|(_, held)| held.in_session)
                .map(|(&grant, _)| grant)
                .collect();
            for (waiter, _) in gone {
                self.answers.insert(waiter, None);
            }
            for grant in held {
                self.end(number, grant, unclean);
            }
        }
        self.serve();
    }

    /// One tick.
    pub(crate) fn pass(&mut self) {
        self.now += 1;
        let now = self.now;
        for number in 0..KEYS {
            let key = self.keys.entry(number).or_default();
            let over: Vec<u64> = key
                .held
                .iter()
                .filter(|(_, held)| !held.in_session && held.deadline <= now)
                .map(|(&grant, _)| grant)
                .collect();
            for grant in over {
                self.end(number, grant, Some(now));
            }
        }
        if self.session.is_some_and(|(_, deadline)| deadline <= now) {
            self.end_session(Some(now));
        }
        self.serve();
    }

    pub(crate) fn find(&self, grant: u64) -> Option<(u64, Held)> {
        let mut keys = self.keys.iter();
        keys.find_map(|(&number, key)| Some((number, *key.held.get(&grant)?)))
    }
}
