//! What a lock manager does with one key, as a sequence of steps: the specifications.
//!
//! There is one machine, and three rules that may be switched on: tokens rise, owners may enter again,
//! leases may be shared. See `main.rs` for how time and unknown outcomes are treated.

use std::collections::BTreeSet;

use tenure::Mode;
use todc_utils::Specification;

use crate::history::Everyone;

/// Something that happens at once, at a point between a call and a return.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) event: Event,
    pub(crate) need: Need,
    pub(crate) call: u64,
    pub(crate) ret: u64,
    /// The clock was not behind the one, and not ahead of the other.
    pub(crate) lo: u64,
    pub(crate) hi: u64,
}

/// Whether a step has to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Must,
    /// By its return, or never.
    May,
    /// At any time, or never.
    MayEver,
}

#[derive(Clone, Debug)]
pub(crate) enum Event {
    Grant(Grant),
    /// A waiter's place in the queue, with its owner, and its end.
    Arrive(u32, u64),
    Leave(u32),
    /// The lease that a waiter may have been granted expires before it goes away.
    Expire(u32),
    /// A waiter is told that its session is over.
    Fail(u32, u32),
    Refuse {
        wish: Wish,
        owner: u64,
        token: u64,
        remaining: u64,
    },
    Renew {
        token: u64,
        end: u64,
        latest: u64,
        until: Until,
    },
    Release {
        token: u64,
    },
    Drop {
        token: u64,
    },
    Over {
        token: u64,
    },
    NeverGranted {
        token: u64,
    },
    Found(Found),
    /// Nobody holds the key, and it is kept free until some time between these.
    Delayed(u64, u64),
    Everyone(Box<Everyone>),
    Free,
    Revoke {
        token: u64,
        owner: u64,
    },
    Downgrade {
        token: u64,
    },
    /// An upgrade is under way, and no more.
    Rise(u32, u64),
    Stay(u32),
    Upgrade {
        from: u64,
        grant: Grant,
    },
    Deadlock {
        token: u64,
    },
    Open {
        session: u32,
        end: u64,
        latest: u64,
        deadline: u64,
    },
    KeepAlive {
        session: u32,
        end: u64,
        latest: u64,
        deadline: u64,
    },
    Close(u32),
    SessionOver(u32),
    /// All that is known to have happened has happened.
    Complete,
}

/// What decides who is admitted.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) owner: u64,
    pub(crate) mode: Mode,
    pub(crate) reentrant: bool,
    pub(crate) session: Option<u32>,
}

#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) id: u32,
    pub(crate) wish: Wish,
    pub(crate) queued: bool,
    /// Of an acquisition of many keys, where that returned; or 0.
    pub(crate) whole: u64,
    /// Its lock-delay, and until when at least the key is not granted to others, between these.
    pub(crate) delay: u64,
    pub(crate) hold: (u64, u64),
    /// When it ends at the earliest, and at the latest, if its TTL counts from where it may first, and last, have
    /// been granted.
    pub(crate) end: u64,
    pub(crate) latest: u64,
    /// If it is known.
    pub(crate) token: Option<u64>,
    /// The deadline is between these.
    pub(crate) least: u64,
    pub(crate) most: u64,
}

/// What a renewal says.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// The deadline is this.
    Exactly(u64),
    /// It is at least this.
    AtLeast(u64),
    Unknown,
}

#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) token: u64,
    pub(crate) owner: u64,
    pub(crate) mode: Mode,
    pub(crate) deadline: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Token {
    Known(u64),
    /// Granted without anybody having heard it: above the one and below the other.
    Between(u64, u64),
}

/// A lease that has not been ended, over or not. Its deadline is between `from` and `till`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held {
    id: u32,
    token: Token,
    owner: u64,
    mode: Mode,
    entries: u32,
    from: u64,
    till: u64,
    session: Option<u32>,
    whole: u64,
    delay: u64,
    hold: (u64, u64),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Session {
    id: u32,
    deadline: u64,
    /// Before its deadline, or seen to be past it.
    closed: bool,
    expired: bool,
}

/// One key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The clock is not behind this.
    now: u64,
    /// No token so far is above this.
    last: u64,
    /// In the order of their grants.
    leases: Vec<Held>,
    /// Until when nobody is granted the key, between these.
    kept: (u64, u64),
    /// Who waits, and as which owner.
    queue: Vec<(u32, u64)>,
    upgrader: Option<u32>,
    sessions: Vec<Session>,
    /// Tokens that were ended by an operation, and where that returned.
    ended: BTreeSet<(u64, u64)>,
    complete: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    fenced: bool,
    reentrant: bool,
    sharing: bool,
}

/// A specification with so many of the rules.
pub(crate) struct Lock<const FENCED: bool, const REENTRANT: bool, const SHARING: bool>;

pub(crate) type OwnerAwareMutex = Lock<false, false, false>;
pub(crate) type ReentrantMutex = Lock<false, true, false>;
pub(crate) type FencedMutex = Lock<true, false, false>;
pub(crate) type ReentrantFencedMutex = Lock<true, true, false>;
/// With shared leases, permits, upgrades and downgrades.
pub(crate) type Modes = Lock<true, true, true>;

impl<const FENCED: bool, const REENTRANT: bool, const SHARING: bool> Specification
    for Lock<FENCED, REENTRANT, SHARING>
{
    type State = State;
    type Operation = Step;

    fn init() -> State {
        State::default()
    }

    fn apply(step: &Step, state: &State) -> (bool, State) {
        let rules = Rules {
            fenced: FENCED,
            reentrant: REENTRANT,
            sharing: SHARING,
        };
        let mut next = state.clone();
        if next.take(step, rules).is_some() {
            return (true, next);
        }
        (state.does_without(step), state.clone())
    }
}

/// By how much a key may be kept free, or a lease last, longer than was asked for: two ticks, of a millisecond at
/// the most.
const ROUNDING: u64 = 2_000_000;

/// From the one to the other after some time between these.
pub(crate) fn after((from, till): (u64, u64), length: u64) -> (u64, u64) {
    let most = length.saturating_add(ROUNDING);
    (from.saturating_add(length), till.saturating_add(most))
}

impl Session {
    fn open(id: u32, deadline: u64) -> Self {
        Self {
            id,
            deadline,
            closed: false,
            expired: false,
        }
    }
}

fn that(condition: bool) -> Option<()> {
    condition.then_some(())
}

impl Wish {
    /// Whether it enters such a lease instead of waiting for its end.
    fn enters(&self, held: &Held, rules: Rules) -> bool {
        rules.reentrant
            && self.reentrant
            && self.owner == held.owner
            && self.session == held.session
            && (held.mode == Mode::Exclusive || held.mode == self.mode)
    }
}

impl State {
    /// Whether the step, which can't happen now, need not.
    fn does_without(&self, step: &Step) -> bool {
        match (step.need, &step.event) {
            (Need::Must, _) => false,
            // As long as it is in the queue, its turn may come.
            (Need::May, Event::Grant(grant)) => !self.queue.iter().any(|it| it.0 == grant.id),
            (Need::May, _) => true,
            (Need::MayEver, _) => self.complete,
        }
    }

    /// Takes the step, if the specification has it.
    fn take(&mut self, step: &Step, rules: Rules) -> Option<()> {
        self.at(step, 0)?;
        match &step.event {
            Event::Grant(grant) => self.grant(step, grant, rules),
            Event::Arrive(id, owner) => {
                self.queue.push((*id, *owner));
                Some(())
            }
            Event::Leave(id) => {
                self.leave(*id);
                Some(())
            }
            Event::Expire(id) => {
                let at = self.leases.iter().position(|held| held.id == *id)?;
                self.end(step, at)
            }
            Event::Fail(id, session) => {
                self.end_session(step, *session)?;
                self.queue.retain(|other| other.0 != *id);
                Some(())
            }
            Event::Refuse {
                wish,
                owner,
                token,
                remaining,
            } => self.refuse(step, wish, (*owner, *token, *remaining), rules),
            Event::Renew {
                token,
                end,
                latest,
                until,
            } => self.renew(step, *token, (*end, *latest), *until),
            Event::Release { token } => self.release(step, *token),
            Event::Drop { token } => self.drop_guard(step, *token),
            Event::Over { token } => self.be_over(step, *token),
            Event::NeverGranted { token } => that(*token > self.last),
            Event::Found(found) => self.find(step, found),
            Event::Free => self.be_free(step),
            Event::Delayed(from, till) => {
                self.be_free(step)?;
                self.be_kept((*from, *till))
            }
            Event::Everyone(everyone) => self.see(step, everyone),
            Event::Revoke { token, owner } => self.revoke(step, *token, *owner),
            Event::Downgrade { token } => {
                let at = self.live(step, *token)?;
                let held = &mut self.leases[at];
                if held.mode == Mode::Exclusive {
                    held.mode = Mode::Shared;
                }
                that(rules.sharing)
            }
            Event::Rise(id, token) => {
                self.live(step, *token)?;
                that(self.upgrader.is_none())?;
                self.upgrader = Some(*id);
                Some(())
            }
            Event::Stay(id) => {
                self.upgrader = self.upgrader.filter(|other| other != id);
                Some(())
            }
            Event::Upgrade { from, grant } => self.upgrade(step, *from, grant, rules),
            Event::Deadlock { token } => {
                self.live(step, *token)?;
                that(self.upgrader.is_some())
            }
            Event::Open {
                session,
                end,
                latest,
                deadline,
            } => {
                self.sessions.push(Session::open(*session, *deadline));
                that(deadline >= end && deadline <= latest)
            }
            Event::KeepAlive {
                session,
                end,
                latest,
                deadline,
            } => {
                let session = self.live_session(step, *session)?;
                // It is never moved back.
                let latest = session.deadline.max(*latest);
                session.deadline = session.deadline.max(*deadline);
                that(*deadline >= *end && *deadline <= latest)
            }
            Event::Close(session) => {
                self.live_session(step, *session)?.closed = true;
                Some(())
            }
            Event::SessionOver(session) => self.end_session(step, *session),
            Event::Complete => {
                self.complete = true;
                Some(())
            }
        }
    }

    /// Moves the clock on as little as may be: not behind the step's call, nor that point.
    fn at(&mut self, step: &Step, not_before: u64) -> Option<()> {
        self.now = self.now.max(step.lo).max(not_before);
        that(self.now <= step.hi)
    }

    fn session(&self, id: u32) -> Option<&Session> {
        self.sessions.iter().find(|session| session.id == id)
    }

    fn live_session(&mut self, step: &Step, id: u32) -> Option<&mut Session> {
        self.at(step, 0)?;
        let now = self.now;
        let mut sessions = self.sessions.iter_mut();
        let session = sessions.find(|session| session.id == id)?;
        (!session.closed && now < session.deadline).then_some(session)
    }

    fn end_session(&mut self, step: &Step, id: u32) -> Option<()> {
        let session = self.session(id)?;
        if !session.closed {
            self.at(step, session.deadline)?;
            let mut sessions = self.sessions.iter_mut();
            let session = sessions.find(|session| session.id == id)?;
            (session.closed, session.expired) = (true, true);
        }
        Some(())
    }

    /// The first point at which the lease may be over, and the first at which it must be.
    fn ends(&self, held: &Held) -> (u64, u64) {
        match held.session.and_then(|id| self.session(id)) {
            Some(session) if session.closed => (0, 0),
            Some(session) => (
                held.from.min(session.deadline),
                held.till.min(session.deadline),
            ),
            None => (held.from, held.till),
        }
    }

    fn known(&self, token: u64) -> Option<usize> {
        let mut leases = self.leases.iter();
        leases.position(|held| held.token == Token::Known(token))
    }

    /// Where the lease of that token stands, if it is in force. A grant that nobody has heard of may turn
    /// out to be it.
    fn live(&mut self, step: &Step, token: u64) -> Option<usize> {
        self.at(step, 0)?;
        let at = match self.known(token) {
            Some(at) => at,
            None => self.leases.iter().position(|held| match held.token {
                Token::Known(_) => false,
                Token::Between(low, high) => low < token && token < high,
            })?,
        };
        self.live_at(at)?;
        self.leases[at].token = Token::Known(token);
        self.last = self.last.max(token);
        Some(at)
    }

    fn live_at(&mut self, at: usize) -> Option<()> {
        let now = self.now;
        let (_, must) = self.ends(&self.leases[at]);
        that(now < must)?;
        let held = &mut self.leases[at];
        if held.session.is_none() {
            held.from = held.from.max(now + 1);
        }
        Some(())
    }

    /// The lease is over by now. One whose deadline is not known may be.
    fn end(&mut self, step: &Step, at: usize) -> Option<()> {
        let (may, _) = self.ends(&self.leases[at]);
        self.at(step, may)?;
        self.end_by_time(at);
        Some(())
    }

    /// By its own deadline, or with its session.
    fn end_by_time(&mut self, at: usize) {
        let held = self.leases.remove(at);
        let unclean = match held.session.and_then(|id| self.session(id)) {
            Some(session) if session.expired => Some((session.deadline, session.deadline)),
            Some(session) if session.closed => None,
            _ => Some(self.ends(&held)),
        };
        self.keep(&held, unclean);
    }

    /// Keeps the key free after a lease, whose unclean end, if it was one, was between these.
    fn keep(&mut self, held: &Held, unclean: Option<(u64, u64)>) {
        let delayed = match unclean {
            Some(end) if held.delay > 0 => after(end, held.delay),
            _ => (0, 0),
        };
        for (from, till) in [held.hold, delayed] {
            self.kept = (self.kept.0.max(from), self.kept.1.max(till));
        }
    }

    /// Somebody is told that the key is kept free until some time between these.
    fn be_kept(&mut self, (from, till): (u64, u64)) -> Option<()> {
        self.kept = (self.kept.0.max(from), self.kept.1.min(till));
        that(self.kept.0 <= self.kept.1 && self.now < self.kept.1)
    }

    /// Whether so many live leases admit another of that mode.
    fn admits(&self, mode: Mode) -> bool {
        let live = || {
            let leases = self.leases.iter();
            leases.filter(|held| self.now < self.ends(held).1)
        };
        match mode {
            Mode::Shared => live().all(|held| held.mode == Mode::Shared),
            Mode::Permit { of } => {
                live().count() < of as usize
                    && live().all(|held| matches!(held.mode, Mode::Permit { .. }))
            }
            _ => live().next().is_none(),
        }
    }

    /// Has those leases end by time that are in the way of such a grant.
    fn make_room(&mut self, step: &Step, mode: Mode, but: Option<usize>) -> Option<()> {
        let mut room = 0;
        let mut gone = vec![];
        let mut ends: Vec<(u64, usize)> = vec![];
        for (at, held) in self.leases.iter().enumerate() {
            let (may, must) = self.ends(held);
            if Some(at) == but {
                continue;
            }
            match (mode, held.mode) {
                // Only when they must be over: which one is so before is a choice, and so a step of its own.
                (Mode::Permit { .. }, Mode::Permit { .. }) => ends.push((must, at)),
                (Mode::Shared, Mode::Shared) => {}
                _ => {
                    room = room.max(may);
                    gone.push(at);
                }
            }
        }
        if let Mode::Permit { of } = mode {
            let out = self.leases.len() - gone.len();
            let spare = (out + 1).saturating_sub(of as usize);
            ends.sort_unstable();
            for &(end, at) in ends.iter().take(spare) {
                room = room.max(end);
                gone.push(at);
            }
            that(ends.len() >= spare)?;
        }
        self.at(step, room)?;
        gone.sort_unstable();
        for at in gone.into_iter().rev() {
            self.end_by_time(at);
        }
        // And the time after that.
        self.at(step, self.kept.0)
    }

    fn grant(&mut self, step: &Step, grant: &Grant, rules: Rules) -> Option<()> {
        let wish = &grant.wish;
        if let Some(id) = wish.session {
            self.live_session(step, id)?;
        }
        if let Some(at) = grant.token.and_then(|token| self.known(token)) {
            self.live_at(at)?;
            let held = &mut self.leases[at];
            that(wish.enters(held, rules))?;
            held.entries += 1;
            if held.session.is_none() {
                held.from = held.from.max(grant.least).max(grant.end);
                held.till = grant.most;
                that(held.from <= held.till)?;
            }
            // The terms of all entries hold.
            held.delay = held.delay.max(grant.delay);
            held.hold.0 = held.hold.0.max(grant.hold.0);
            held.hold.1 = held.hold.1.max(grant.hold.1);
            self.queue.retain(|other| other.0 != grant.id);
            return Some(());
        }
        that(rules.sharing || wish.mode == Mode::Exclusive)?;
        that(self.upgrader.is_none())?;
        if grant.queued {
            // In the order of their arrival.
            that(self.queue.first().is_some_and(|it| it.0 == grant.id))?;
            self.queue.remove(0);
        } else {
            that(self.queue.is_empty())?;
        }
        self.make_room(step, wish.mode, None)?;
        self.add(grant, rules)
    }

    fn add(&mut self, grant: &Grant, rules: Rules) -> Option<()> {
        let wish = &grant.wish;
        let (mut from, mut till) = (u64::MAX, u64::MAX);
        if wish.session.is_none() {
            (from, till) = (grant.least.max(grant.end), grant.most);
            let is_exact = grant.least == grant.most;
            that(from <= till && (!is_exact || till <= grant.latest))?;
        }
        let token = match grant.token {
            Some(token) => {
                that(!rules.fenced || token > self.last)?;
                for held in &mut self.leases {
                    if let Token::Between(_, high) = &mut held.token
                        && rules.fenced
                    {
                        *high = token.min(*high);
                    }
                }
                self.last = token.max(self.last);
                Token::Known(token)
            }
            None if rules.fenced => {
                self.last += 1;
                Token::Between(self.last - 1, u64::MAX)
            }
            None => Token::Between(0, u64::MAX),
        };
        self.kept = (0, 0);
        self.leases.push(Held {
            id: grant.id,
            token,
            owner: wish.owner,
            mode: wish.mode,
            entries: 1,
            from,
            till,
            session: wish.session,
            whole: grant.whole,
            delay: grant.delay,
            hold: grant.hold,
        });
        Some(())
    }

    /// A waiter goes away. If it was granted the key before anybody has heard, that passes on.
    fn leave(&mut self, id: u32) {
        self.queue.retain(|other| other.0 != id);
        self.leases.retain(|held| held.id != id);
    }

    fn refuse(
        &mut self,
        step: &Step,
        wish: &Wish,
        (owner, token, remaining): (u64, u64, u64),
        rules: Rules,
    ) -> Option<()> {
        let at = self.live(step, token)?;
        that(self.leases[at].owner == owner)?;
        self.lasts(at, step.lo + remaining, step.hi.saturating_add(remaining))?;
        let mut leases = self.leases.iter();
        let enters = leases.any(|held| wish.enters(held, rules) && self.now < self.ends(held).1);
        let comes_after = !self.queue.is_empty() || self.upgrader.is_some();
        that(!enters && (comes_after || !self.admits(wish.mode)))
    }

    /// The deadline of the lease is between these.
    fn lasts(&mut self, at: usize, from: u64, till: u64) -> Option<()> {
        if self.leases[at].whole > 0 {
            return Some(());
        }
        self.lasts_exactly(at, from, till)
    }

    fn lasts_exactly(&mut self, at: usize, from: u64, till: u64) -> Option<()> {
        let (may, must) = self.ends(&self.leases[at]);
        that(from <= must && may <= till)?;
        let held = &mut self.leases[at];
        if held.session.is_none() {
            held.from = held.from.max(from);
            held.till = held.till.min(till);
        }
        Some(())
    }

    fn renew(
        &mut self,
        step: &Step,
        token: u64,
        (end, latest): (u64, u64),
        until: Until,
    ) -> Option<()> {
        let at = self.live(step, token)?;
        let held = &mut self.leases[at];
        // It is never moved back.
        let latest = held.till.max(latest);
        match until {
            Until::Exactly(deadline) => {
                that(deadline >= end && deadline >= held.from && deadline <= latest)?;
                (held.from, held.till) = (deadline, deadline);
            }
            Until::AtLeast(deadline) => {
                that(deadline >= end && deadline <= latest)?;
                held.from = held.from.max(deadline);
                held.till = held.till.max(deadline);
            }
            Until::Unknown => {
                held.from = held.from.max(end);
                held.till = u64::MAX;
            }
        }
        Some(())
    }

    fn release(&mut self, step: &Step, token: u64) -> Option<()> {
        let Some(at) = self.live(step, token) else {
            // Of two that end it at the same time, both may say that they did.
            let mut ended = self.ended.range((token, 0)..=(token, u64::MAX));
            return that(ended.any(|&(_, ret)| step.call < ret));
        };
        self.leave_lease(step, at, token);
        Some(())
    }

    fn leave_lease(&mut self, step: &Step, at: usize, token: u64) {
        self.leases[at].entries -= 1;
        if self.leases[at].entries == 0 {
            let held = self.leases.remove(at);
            self.keep(&held, None);
            self.ended.insert((token, step.ret));
        }
    }

    fn drop_guard(&mut self, step: &Step, token: u64) -> Option<()> {
        self.at(step, 0)?;
        if let Some(at) = self.known(token)
            && self.now < self.ends(&self.leases[at]).1
        {
            self.leave_lease(step, at, token);
        }
        Some(())
    }

    fn be_over(&mut self, step: &Step, token: u64) -> Option<()> {
        match self.known(token) {
            Some(at) => self.end(step, at),
            None => that(token <= self.last),
        }
    }

    fn find(&mut self, step: &Step, found: &Found) -> Option<()> {
        let at = self.live(step, found.token)?;
        let held = &self.leases[at];
        that(held.owner == found.owner && held.mode == found.mode)?;
        self.lasts(at, found.deadline, found.deadline)
    }

    /// Those who are told of are all that there are.
    fn see(&mut self, step: &Step, everyone: &Everyone) -> Option<()> {
        let whole = everyone.floor.is_some();
        let is_seen = |token: Token| match token {
            Token::Known(token) => everyone.holders.iter().any(|seen| seen.token == token),
            Token::Between(low, high) => {
                let mut holders = everyone.holders.iter();
                holders.any(|seen| low < seen.token && seen.token < high)
            }
        };
        for at in (0..self.leases.len()).rev() {
            let held = &self.leases[at];
            // A checkpoint has no part of an acquisition of many keys that waits for the others.
            let is_part = whole && held.whole > step.call;
            if !is_seen(held.token) && !is_part {
                self.end(step, at)?;
            }
        }
        if let Some(kept) = everyone.kept {
            if kept == (0, 0) {
                self.at(step, self.kept.0)?;
            } else {
                self.be_kept(kept)?;
            }
        }
        for seen in &everyone.holders {
            let at = self.live(step, seen.token)?;
            let held = &self.leases[at];
            that(held.owner == seen.owner && held.mode == seen.mode)?;
            if whole {
                self.lasts_exactly(at, seen.from, seen.till)?;
            } else {
                self.lasts(at, seen.from, seen.till)?;
            }
        }
        if let Some(waiters) = &everyone.waiters {
            that(self.queue.iter().map(|it| it.1).eq(waiters.iter().copied()))?;
        }
        that(everyone.floor.is_none_or(|floor| self.last <= floor))
    }

    fn be_free(&mut self, step: &Step) -> Option<()> {
        while !self.leases.is_empty() {
            self.end(step, 0)?;
        }
        Some(())
    }

    fn revoke(&mut self, step: &Step, token: u64, owner: u64) -> Option<()> {
        let at = self.live(step, token)?;
        that(self.leases[at].owner == owner)?;
        while let Some(held) = self.leases.first().cloned() {
            let (_, must) = self.ends(&held);
            if self.now >= must {
                self.end_by_time(0);
                continue;
            }
            self.leases.remove(0);
            self.keep(&held, Some((step.lo, step.hi)));
            if let Token::Known(token) = held.token {
                self.ended.insert((token, step.ret));
            }
        }
        Some(())
    }

    fn upgrade(&mut self, step: &Step, from: u64, grant: &Grant, rules: Rules) -> Option<()> {
        let at = self.live(step, from)?;
        let held = &self.leases[at];
        that(rules.sharing && held.mode == Mode::Shared && self.upgrader == Some(grant.id))?;
        let (owner, session, before) = (held.owner, held.session, held.from);
        self.upgrader = None;
        self.make_room(step, Mode::Exclusive, Some(at))?;
        // It must still be in force.
        let at = self.live(step, from)?;
        self.leases.remove(at);
        let mut grant = grant.clone();
        (grant.wish.owner, grant.wish.session) = (owner, session);
        that(session.is_some() || grant.most >= before)?;
        self.add(&grant, rules)
    }
}
