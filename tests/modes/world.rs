//! A manager and the specification side by side: each operation is carried out on both. Every answer, and
//! after every operation what every lease, every waiter, every session and the manager say of themselves,
//! has to be what the specification says.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tenure::{
    Acquire, AcquireError, EventKind, Events, FencingToken, HashSeed, Key, Lease, LockManager,
    Loss, Lost, ManualClock, Mode, OwnerId, Session,
};

use super::operation::{Asked, Operation, Setting, ticks};
use super::spec::{Answer, FIRST_OF_SESSIONS, KEYS, KeySpec, SESSIONS, Spec, Told, Upgrader, Wish};
use super::task::Task;

/// The keys of the crowd begin here.
const CROWD: u64 = 1000;
/// Enough for the table to grow once or twice.
const MOST_OF_CROWD: u64 = 600;

fn ms(ticks: u64) -> Duration {
    Duration::from_millis(ticks)
}

fn token(value: u64) -> FencingToken {
    FencingToken::new(value).expect("it was granted")
}

/// A guard on its way to another mode, and the guard again; no answer if it was cancelled.
type Upgrading<'m> =
    Pin<Box<dyn Future<Output = (Lease<'m>, Option<Result<(), AcquireError>>)> + 'm>>;

enum Waiting<'m> {
    Acquire(Wish, Task<Acquire<'m>>),
    Upgrade {
        grant: u64,
        task: Task<Upgrading<'m>>,
        cancelled: Rc<Cell<bool>>,
    },
}

/// Runs `operations` on a new manager and on the specification.
///
/// # Panics
///
/// When the manager does what the specification does not say.
pub(crate) fn run(setting: Setting, operations: impl IntoIterator<Item = Operation>) {
    let clock = ManualClock::new();
    let manager = LockManager::builder()
        .clock(clock.clone())
        .driver(false)
        .introspection(setting.introspection)
        // The same bytes have to do the same each time.
        .hash_seed(HashSeed::new(7))
        .build()
        .expect("these options are in order");
    let mut world = World {
        manager: &manager,
        clock,
        spec: Spec::default(),
        sessions: [const { None }; SESSIONS],
        guards: vec![],
        detached: vec![],
        waiting: vec![],
        watches: vec![],
        crowd: BTreeMap::new(),
        next_waiter: 0,
        newest: BTreeMap::new(),
        tokens: BTreeMap::new(),
        events: setting.followed.then(|| manager.events(1 << 16)),
        followed: BTreeSet::new(),
    };
    for operation in operations {
        world.step(operation);
        world.check();
    }
    world.finish();
}

struct World<'m> {
    manager: &'m LockManager,
    clock: ManualClock,
    spec: Spec,
    sessions: [Option<Session<'m>>; SESSIONS],
    /// With the grants that they are of.
    guards: Vec<(u64, Lease<'m>)>,
    /// Grants whose guards were given up, with their keys.
    detached: Vec<(u64, u64)>,
    waiting: Vec<(u64, Waiting<'m>)>,
    watches: Vec<(u64, Task<Lost>)>,
    /// Tokens and deadlines of the plain leases on other keys.
    crowd: BTreeMap<u64, (u64, u64)>,
    next_waiter: u64,
    /// The greatest token of each key.
    newest: BTreeMap<u64, u64>,
    /// The tokens of the grants.
    tokens: BTreeMap<u64, u64>,
    events: Option<Events>,
    /// What is held, by what events say: keys and tokens.
    followed: BTreeSet<(Key, u64)>,
}

impl<'m> World<'m> {
    fn step(&mut self, operation: Operation) {
        match operation {
            Operation::Acquire { asked, waits } => self.acquire(asked, waits),
            Operation::Poll(at) => self.poll(at),
            Operation::Cancel(at) => self.cancel(at),
            Operation::Release(_)
            | Operation::Drop(_)
            | Operation::Renew(..)
            | Operation::Upgrade { .. }
            | Operation::Downgrade(_)
            | Operation::Watch(_)
            | Operation::Detach(_) => self.step_guard(operation),
            Operation::ReleaseByToken(_) | Operation::RenewByToken(..) | Operation::Validate(_) => {
                self.step_token(operation);
            }
            Operation::Revoke(number) => self.revoke(u64::from(number) % KEYS),
            Operation::OpenSession(..) | Operation::KeepAlive(_) | Operation::CloseSession(_) => {
                self.step_session(operation);
            }
            Operation::Pass(ticks) => {
                for _ in 0..u64::from(ticks) % 16 {
                    self.pass(1);
                }
            }
            Operation::Leap(ticks) if self.spec.keeps() => self.step(Operation::Pass(ticks)),
            Operation::Leap(ticks) => self.pass(u64::from(ticks) % 32),
            Operation::Crowd { from, count, ttl } => self.gather(from, count, ttl),
            Operation::Disperse { from, count } => self.disperse(from, count),
            Operation::Restore => self.restore(),
        }
    }

    fn acquisition(&self, wish: &Wish) -> Option<Acquire<'m>> {
        let acquire = match wish.session {
            Some(slot) => self.sessions[slot].as_ref()?.acquire(wish.key),
            None => self.manager.acquire(wish.key, wish.owner, ms(wish.ttl)),
        };
        let mut acquire = match wish.mode {
            Mode::Shared => acquire.shared(),
            Mode::Permit { of } => acquire.permit(of),
            _ => acquire,
        };
        if wish.reentrant {
            acquire = acquire.reentrant();
        }
        if wish.lock_delay > 0 {
            acquire = acquire.lock_delay(ms(wish.lock_delay));
        }
        if wish.min_hold > 0 {
            acquire = acquire.min_hold(ms(wish.min_hold));
        }
        if let Some(length) = wish.max_hold {
            acquire = acquire.auto_renew(ms(length));
        }
        Some(acquire)
    }

    fn took(&mut self, grant: u64, key: u64, lease: Lease<'m>) {
        self.learned(grant, key, &lease);
        self.guards.push((grant, lease));
    }

    fn learned(&mut self, grant: u64, key: u64, lease: &Lease<'_>) {
        let token = lease.token().get();
        if let Some(&same) = self.tokens.get(&grant) {
            assert_eq!(token, same, "entered again");
        } else {
            // Grants of one moment may be taken in another order.
            self.tokens.insert(grant, token);
            let newest = self.newest.entry(key).or_insert(0);
            *newest = (*newest).max(token);
        }
    }

    fn acquire(&mut self, asked: Asked, waits: bool) {
        let mut wish = asked.wish();
        if let Some(slot) = wish.session {
            // Its own length is no matter.
            wish.ttl = self.spec.sessions[slot].map_or(1, |(ttl, _)| ttl);
        }
        let Some(acquire) = self.acquisition(&wish) else {
            return;
        };
        let told = self.spec.acquire(&wish);
        if !waits {
            match (told, acquire.try_now()) {
                (Answer::Granted(grant), Ok(lease)) => self.took(grant, wish.key, lease),
                (Answer::Held, Err(AcquireError::Held { .. }))
                | (Answer::Delayed, Err(AcquireError::Delayed { .. }))
                | (Answer::SessionOver, Err(AcquireError::SessionOver)) => {}
                (told, real) => panic!("{wish:?}: {real:?} and not {told:?}"),
            }
            return;
        }
        let mut task = Task::new(acquire);
        match (told, task.poll()) {
            (Answer::Granted(grant), Some(Ok(lease))) => self.took(grant, wish.key, lease),
            (Answer::SessionOver, Some(Err(AcquireError::SessionOver))) => {}
            (Answer::Held | Answer::Delayed, None) => {
                let waiter = self.waits(Waiting::Acquire(wish, task));
                self.spec.key(wish.key).queue.push_back((waiter, wish));
            }
            (told, real) => panic!("{wish:?}: {real:?} and not {told:?}"),
        }
    }

    fn waits(&mut self, waiting: Waiting<'m>) -> u64 {
        self.next_waiter += 1;
        self.waiting.push((self.next_waiter, waiting));
        self.next_waiter
    }

    fn poll(&mut self, at: u8) {
        let Some(at) = pick(at, self.waiting.len()) else {
            return;
        };
        let (waiter, waiting) = &mut self.waiting[at];
        let told = self.spec.answers.remove(waiter);
        let wakes = match waiting {
            Waiting::Acquire(_, task) => task.wakes(),
            Waiting::Upgrade { task, .. } => task.wakes(),
        };
        assert_eq!(
            wakes,
            usize::from(told.is_some()),
            "woken once, when it is told"
        );
        match waiting {
            Waiting::Acquire(wish, task) => match (told, task.poll()) {
                (None, None) => return,
                (Some(Told::Granted(grant)), Some(Ok(lease))) => {
                    let key = wish.key;
                    self.took(grant, key, lease);
                }
                (Some(Told::SessionOver), Some(Err(AcquireError::SessionOver))) => {}
                (told, real) => panic!("{wish:?}: {real:?} and not {told:?}"),
            },
            Waiting::Upgrade { grant, task, .. } => {
                let old = *grant;
                match (told, task.poll()) {
                    (None, None) => return,
                    (Some(Told::Granted(new)), Some((lease, Some(Ok(()))))) => {
                        self.upgraded(old, new, lease);
                    }
                    (
                        Some(Told::Lapsed),
                        Some((lease, Some(Err(AcquireError::Lapsed { token })))),
                    ) => {
                        assert_eq!(token, lease.token());
                        self.guards.push((old, lease));
                    }
                    (told, real) => panic!("upgrade of {old}: {real:?} and not {told:?}"),
                }
            }
        }
        self.waiting.remove(at);
    }

    fn cancel(&mut self, at: u8) {
        let Some(at) = pick(at, self.waiting.len()) else {
            return;
        };
        let (waiter, waiting) = self.waiting.remove(at);
        let told = self.spec.answers.remove(&waiter);
        match waiting {
            Waiting::Acquire(wish, task) => {
                drop(task);
                let key = self.spec.key(wish.key);
                key.queue.retain(|&(other, _)| other != waiter);
                if let Some(Told::Granted(grant)) = told {
                    if let Some(held) = key.held.get_mut(&grant)
                        && held.entries == 1
                    {
                        // Nobody has had it: its terms are void.
                        held.min_until = 0;
                        held.lock_delay = 0;
                    }
                    self.spec.leave(grant);
                }
            }
            Waiting::Upgrade {
                grant,
                mut task,
                cancelled,
            } => {
                cancelled.set(true);
                let (lease, answer) = task.poll().expect("it does not wait any more");
                assert_eq!(answer, None);
                if let Some(Told::Granted(new)) = told {
                    self.upgraded(grant, new, lease);
                } else {
                    self.guards.push((grant, lease));
                }
                let own = |it: &Upgrader| it.waiter != waiter;
                for key in self.spec.keys.values_mut() {
                    key.upgrader = key.upgrader.filter(own);
                }
            }
        }
        self.spec.serve();
    }

    fn number(&self, lease: &Lease<'_>) -> u64 {
        let mut numbers = 0..KEYS;
        let found = numbers.find(|&number| self.manager.key(number) == lease.key());
        found.expect("it is one of them")
    }

    fn upgraded(&mut self, old: u64, new: u64, lease: Lease<'m>) {
        let newer = lease.token().get() > self.tokens[&old];
        assert!(newer || old == new, "a new grant");
        let number = self.number(&lease);
        self.learned(new, number, &lease);
        self.guards.push((new, lease));
    }

    fn step_guard(&mut self, operation: Operation) {
        let (Operation::Release(at)
        | Operation::Drop(at)
        | Operation::Renew(at, _)
        | Operation::Upgrade { guard: at, .. }
        | Operation::Downgrade(at)
        | Operation::Watch(at)
        | Operation::Detach(at)) = operation
        else {
            return;
        };
        let Some(at) = pick(at, self.guards.len()) else {
            return;
        };
        let (grant, mut lease) = self.guards.swap_remove(at);
        let found = self.spec.find(grant);
        match operation {
            Operation::Release(_) => {
                assert_eq!(lease.release().is_ok(), found.is_some(), "grant {grant}");
                self.spec.leave(grant);
                self.spec.serve();
                return;
            }
            Operation::Drop(_) => {
                drop(lease);
                self.spec.leave(grant);
                self.spec.serve();
                return;
            }
            Operation::Detach(_) => {
                let number = self.number(&lease);
                assert_eq!(lease.detach().get(), self.tokens[&grant]);
                self.detached.push((grant, number));
                return;
            }
            Operation::Renew(_, ttl) => {
                let real = lease.renew(ms(ticks(ttl)));
                assert_eq!(real.is_ok(), self.spec_renews(grant, ticks(ttl)), "{grant}");
            }
            Operation::Downgrade(_) => {
                assert_eq!(lease.downgrade().is_ok(), found.is_some());
                if let Some((number, _)) = found {
                    let held = self.spec.key(number).held.get_mut(&grant);
                    let held = held.expect("it was found");
                    if held.mode == Mode::Exclusive {
                        held.mode = Mode::Shared;
                    }
                    self.spec.serve();
                }
            }
            Operation::Watch(_) => {
                let mut lost = Task::new(lease.lost());
                let over = lost.poll();
                assert_eq!(over.is_some(), found.is_none(), "grant {grant}");
                if over.is_none() {
                    self.watches.push((grant, lost));
                }
            }
            Operation::Upgrade { ttl, waits, .. } => {
                // A permit is no share of a key.
                let permit = |mode| matches!(mode, Mode::Permit { .. });
                if !found.is_some_and(|(_, held)| permit(held.mode)) && !permit(lease.mode()) {
                    self.upgrade(grant, lease, ticks(ttl), waits);
                    return;
                }
            }
            _ => {}
        }
        self.guards.push((grant, lease));
    }

    fn spec_renews(&mut self, grant: u64, ttl: u64) -> bool {
        let now = self.spec.now;
        match self.spec.find(grant) {
            Some((number, held)) if held.session.is_none() => {
                let held = self.spec.key(number).held.get_mut(&grant);
                let held = held.expect("it was found");
                held.deadline = held.deadline.max((now + ttl).min(held.cap));
                true
            }
            _ => false,
        }
    }

    fn upgrade(&mut self, grant: u64, mut lease: Lease<'m>, ttl: u64, waits: bool) {
        let number = self.spec.find(grant).map(|(number, _)| number);
        let told = self.spec.upgrade(grant, ttl);
        if !waits {
            let real = lease.upgrade(ms(ttl)).wait_timeout(ms(0));
            self.told_of_upgrade(grant, lease, told, real);
            // One that gives up comes no longer before the others.
            self.spec.serve();
            return;
        }
        let cancelled = Rc::new(Cell::new(false));
        let given_up = Rc::clone(&cancelled);
        let mut task: Task<Upgrading<'m>> = Task::new(Box::pin(async move {
            let answer = {
                let mut upgrade = pin!(lease.upgrade(ms(ttl)));
                poll_fn(|context| {
                    if given_up.get() {
                        Poll::Ready(None)
                    } else {
                        upgrade.as_mut().poll(context).map(Some)
                    }
                })
                .await
            };
            (lease, answer)
        }));
        match task.poll() {
            None => {
                assert_eq!(told, Answer::Held, "an upgrade of {grant} waits");
                let waiter = self.waits(Waiting::Upgrade {
                    grant,
                    task,
                    cancelled,
                });
                let number = number.expect("it is live");
                self.spec.key(number).upgrader = Some(Upgrader { waiter, grant, ttl });
            }
            Some((lease, real)) => {
                let real = real.expect("nobody has cancelled it");
                self.told_of_upgrade(grant, lease, told, real);
                self.spec.serve();
            }
        }
    }

    fn told_of_upgrade(
        &mut self,
        grant: u64,
        lease: Lease<'m>,
        told: Answer,
        real: Result<(), AcquireError>,
    ) {
        match (told, real) {
            (Answer::Granted(new), Ok(())) => self.upgraded(grant, new, lease),
            (Answer::Held, Err(AcquireError::TimedOut))
            | (Answer::Lapsed, Err(AcquireError::Lapsed { .. }))
            | (Answer::Deadlock, Err(AcquireError::Deadlock { .. })) => {
                self.guards.push((grant, lease));
            }
            (told, real) => panic!("upgrade of {grant}: {real:?} and not {told:?}"),
        }
    }

    fn step_token(&mut self, operation: Operation) {
        let (Operation::ReleaseByToken(at)
        | Operation::RenewByToken(at, _)
        | Operation::Validate(at)) = operation
        else {
            return;
        };
        let Some(at) = pick(at, self.detached.len()) else {
            return;
        };
        let (grant, number) = self.detached[at];
        let token = token(self.tokens[&grant]);
        let found = self.spec.find(grant);
        match operation {
            Operation::ReleaseByToken(_) => {
                let real = self.manager.release(number, token);
                assert_eq!(real.is_ok(), found.is_some(), "grant {grant}");
                self.spec.leave(grant);
                self.spec.serve();
                self.detached.swap_remove(at);
            }
            Operation::RenewByToken(_, ttl) => {
                let real = self.manager.renew(number, token, ms(ticks(ttl)));
                assert_eq!(real.is_ok(), self.spec_renews(grant, ticks(ttl)), "{grant}");
            }
            _ => {
                let real = self.manager.validate(number, token);
                assert_eq!(real.is_ok(), found.is_some(), "grant {grant}");
                if let (Ok(holder), Some((_, held))) = (real, found) {
                    assert_eq!(
                        (holder.owner, holder.mode),
                        (OwnerId(held.owner), held.mode)
                    );
                }
            }
        }
    }

    fn revoke(&mut self, number: u64) {
        let held: Vec<u64> = self.spec.key(number).held.keys().copied().collect();
        assert_eq!(self.manager.revoke(number).is_ok(), !held.is_empty());
        let end = self.spec.now + 1;
        for grant in held {
            self.spec.end(number, grant, Loss::Revoked, Some(end));
        }
        self.spec.serve();
    }

    fn step_session(&mut self, operation: Operation) {
        let (Operation::OpenSession(slot, _)
        | Operation::KeepAlive(slot)
        | Operation::CloseSession(slot)) = operation
        else {
            return;
        };
        let slot = usize::from(slot) % SESSIONS;
        let now = self.spec.now;
        match operation {
            Operation::OpenSession(_, ttl) if self.sessions[slot].is_none() => {
                let ttl = 2 + ticks(ttl);
                let session = self
                    .manager
                    .session(FIRST_OF_SESSIONS + slot as u64, ms(ttl));
                self.sessions[slot] = Some(session.expect("in range"));
                self.spec.sessions[slot] = Some((ttl, now + ttl));
            }
            Operation::KeepAlive(_) => {
                if let Some(session) = &self.sessions[slot] {
                    let live = self.spec.sessions[slot].is_some();
                    assert_eq!(session.keep_alive().is_ok(), live);
                    if let Some((ttl, deadline)) = &mut self.spec.sessions[slot] {
                        *deadline = (*deadline).max(now + *ttl);
                    }
                }
            }
            Operation::CloseSession(_) => {
                if let Some(session) = self.sessions[slot].take() {
                    let live = self.spec.sessions[slot].is_some();
                    assert_eq!(session.close().is_ok(), live);
                    if live {
                        self.spec.end_session(slot, None);
                        self.spec.serve();
                    }
                }
            }
            _ => {}
        }
    }

    fn pass(&mut self, ticks: u64) {
        self.clock.advance(ms(ticks));
        self.manager.advance();
        self.spec.pass(ticks);
        let now = self.spec.now;
        self.crowd.retain(|_, &mut (_, deadline)| deadline > now);
    }

    fn gather(&mut self, from: u16, count: u16, ttl: u8) {
        let ttl = ticks(ttl) * 4;
        for offset in 0..u64::from(count) % MOST_OF_CROWD {
            let number = CROWD + (u64::from(from) + offset) % MOST_OF_CROWD;
            let real = self.manager.try_acquire(number, 5, ms(ttl));
            assert_eq!(real.is_ok(), !self.crowd.contains_key(&number));
            if let Ok(lease) = real {
                let token = lease.detach().get();
                let newest = self.newest.insert(number, token);
                assert!(newest.is_none_or(|newest| token > newest), "I2");
                self.crowd.insert(number, (token, self.spec.now + ttl));
            }
        }
    }

    fn disperse(&mut self, from: u16, count: u16) {
        for offset in 0..u64::from(count) % MOST_OF_CROWD {
            let number = CROWD + (u64::from(from) + offset) % MOST_OF_CROWD;
            if let Some((held, _)) = self.crowd.remove(&number) {
                let real = self.manager.release(number, token(held));
                assert!(real.is_ok(), "{real:?}");
            }
        }
    }

    /// What a checkpoint says, and that a manager that is made of it says the same.
    fn restore(&mut self) {
        let before = self.manager.checkpoint();
        let mut seen: BTreeMap<(u128, u64), u64> = BTreeMap::new();
        for (&number, key) in &self.spec.keys {
            for held in key.held.values() {
                let key = self.manager.key(number).as_raw();
                *seen.entry((key, held.owner)).or_default() += 1;
            }
        }
        for holder in before.leases().filter(|holder| holder.owner != OwnerId(5)) {
            let count = seen.get_mut(&(holder.key.as_raw(), holder.owner.0));
            *count.expect("somebody holds it") -= 1;
        }
        assert!(seen.values().all(|&left| left == 0), "{seen:?} are missing");
        let now = self.spec.now;
        let kept = |(&number, key): (&u64, &KeySpec)| {
            let left = key.kept_until.checked_sub(now).filter(|&left| left > 0)?;
            Some((self.manager.key(number), ms(left)))
        };
        let kept: BTreeMap<_, _> = self.spec.keys.iter().filter_map(kept).collect();
        assert_eq!(before.delayed().collect::<BTreeMap<_, _>>(), kept);

        let clock = ManualClock::new();
        clock.set(self.manager.now());
        let builder = LockManager::builder().clock(clock).driver(false);
        let restored = builder.restore(&before).expect("the options are the same");
        assert_eq!(restored.len(), self.manager.len());
        let (after, mut before) = (restored.checkpoint(), before);
        assert!(after.floor() >= before.floor(), "I2");
        if let Some(floor) = after.floor() {
            before.raise_floor(floor).expect("far from the end");
        }
        assert_eq!(before, after);
    }

    /// What everybody says of themselves.
    fn check(&mut self) {
        for (grant, lease) in &self.guards {
            let found = self.spec.find(*grant);
            assert_eq!(lease.is_live(), found.is_some(), "grant {grant}");
            let Some((_, held)) = found else { continue };
            assert_eq!(lease.mode(), held.mode, "grant {grant}");
            let left = ms(self.spec.until(&held) - self.spec.now);
            let real = lease.remaining();
            if held.kept && held.session.is_none() {
                // The manager renews it in time.
                assert!(!real.is_zero() && real <= left, "grant {grant}: {real:?}");
            } else {
                assert_eq!(real, left, "grant {grant}");
            }
        }
        self.check_watches();
        self.check_keys();
        for (slot, session) in self.sessions.iter().enumerate() {
            let Some(session) = session else { continue };
            assert_eq!(session.is_live(), self.spec.sessions[slot].is_some());
            let keys = self.spec.keys.values();
            let of = |key: &KeySpec| {
                let held = key.held.values();
                held.filter(|held| held.session == Some(slot)).count()
            };
            assert_eq!(session.len(), keys.map(of).sum::<usize>(), "session {slot}");
        }
        let keys = || self.spec.keys.values();
        let held = keys().map(|key| key.held.len()).sum::<usize>() + self.crowd.len();
        let waiting = keys().map(|key| key.queue.len() + usize::from(key.upgrader.is_some()));
        assert_eq!(self.manager.len(), held, "leases");
        assert_eq!(self.manager.waiting(), waiting.sum::<usize>(), "waiters");
        if self.crowd.len() < 100 {
            assert_eq!(self.manager.iter().count(), held, "leases seen");
        }
        self.follow();
        if self.events.is_some() {
            assert_eq!(self.followed.len(), held, "leases, by the events");
        }
    }

    /// Who wants to know of an end is told when it comes, and how it came.
    fn check_watches(&mut self) {
        let spec = &self.spec;
        self.watches.retain_mut(|(grant, lost)| {
            while let (None, Some(&new)) = (spec.losses.get(grant), spec.became.get(grant)) {
                *grant = new;
            }
            let loss = spec.losses.get(grant);
            assert_eq!(lost.wakes(), usize::from(loss.is_some()), "grant {grant}");
            match (lost.poll(), loss) {
                (None, None) => return true,
                // Both are so at the same moment.
                (
                    Some(Loss::MaxHold | Loss::SessionOver),
                    Some(Loss::MaxHold | Loss::SessionOver),
                ) => {}
                (told, loss) => assert_eq!(told.as_ref(), loss, "grant {grant}"),
            }
            false
        });
    }

    /// Who holds each key, and who waits for it in which order.
    fn check_keys(&self) {
        for number in 0..KEYS {
            let real = self.manager.holders(number);
            let key = self.spec.keys.get(&number);
            let held = key.into_iter().flat_map(|key| &key.held);
            assert_eq!(real.len(), held.clone().count(), "key {number}");
            for (holder, (grant, held)) in real.iter().zip(held) {
                assert_eq!((holder.owner.0, holder.mode), (held.owner, held.mode));
                if let Some(&token) = self.tokens.get(grant) {
                    assert_eq!(holder.token.get(), token, "grant {grant}");
                }
            }
        }
        if self.crowd.len() >= 100 {
            return;
        }
        for snapshot in self.manager.snapshot() {
            let mut numbers = 0..KEYS;
            let Some(number) = numbers.find(|&number| self.manager.key(number) == snapshot.key)
            else {
                continue;
            };
            let Some(key) = self.spec.keys.get(&number) else {
                panic!("nobody has asked for {number}");
            };
            let upgrader = key.upgrader.and_then(|it| key.held.get(&it.grant));
            let waits = upgrader.map(|held| held.owner).into_iter();
            let waits = waits.chain(key.queue.iter().map(|(_, wish)| wish.owner));
            let real = snapshot.waiters.iter().map(|waiter| waiter.owner.0);
            assert!(waits.eq(real), "key {number}: {snapshot:?}");
            let entries = key.held.values().map(|held| held.entries);
            let real = snapshot.holders.iter().map(|holder| holder.entries);
            assert!(entries.eq(real), "key {number}: {snapshot:?}");
        }
    }

    /// Events tell of each lease once, and of its end once.
    fn follow(&mut self) {
        let Some(events) = &mut self.events else {
            return;
        };
        while let Some(event) = events.try_next() {
            let event = event.expect("there is room");
            let lease = (event.key, event.token.get());
            match event.kind {
                EventKind::Granted => {
                    assert!(self.followed.insert(lease), "granted twice: {event:?}");
                }
                EventKind::Renewed | EventKind::GivenUp => {
                    assert!(self.followed.contains(&lease), "{event:?}");
                }
                EventKind::Released | EventKind::Expired | EventKind::Revoked => {
                    assert!(self.followed.remove(&lease), "ended twice: {event:?}");
                }
                EventKind::Reclaimed => {
                    let mut held = self.followed.range((event.key, 0)..);
                    let next = held.next();
                    assert!(next.is_none_or(|(key, _)| *key != event.key), "{event:?}");
                }
                kind => panic!("{kind:?} is new"),
            }
        }
    }

    /// However it was left: nothing stays.
    fn finish(mut self) {
        self.waiting.clear();
        self.sessions = [const { None }; SESSIONS];
        self.guards.clear();
        self.follow();
        for _ in 0..64 {
            self.clock.advance(ms(1));
            self.manager.advance();
        }
        self.follow();
        assert_eq!(self.manager.len(), 0, "leases are left");
        assert_eq!(self.manager.iter().count(), 0, "leases are seen");
        assert_eq!(self.manager.waiting(), 0, "somebody waits");
        assert!(self.followed.is_empty(), "{:?} have no end", self.followed);
        for (number, newest) in self.newest {
            let lease = self.manager.try_acquire(number, 1, ms(1));
            assert!(lease.expect("free").token().get() > newest, "I2");
        }
    }
}

fn pick(choice: u8, of: usize) -> Option<usize> {
    usize::from(choice).checked_rem(of)
}
