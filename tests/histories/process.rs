//! One process of a run: what it may do, and the record of what it did.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use tenure::{
    AcquireError, Clock, FencingToken, HashSeed, Holder, Key, Lease, LockManager, Mode,
    ReleaseError, RenewError, Session, ToKey, ValidateError,
};

use crate::history::{Acquire, Answer, Ask, By, Everyone, FOREVER, Op, Seen, View};

/// What processes choose from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Try,
    Wait,
    /// All keys of the round.
    Many,
    /// A grant that nobody hears of.
    Lost,
    Renew,
    Release,
    Drop,
    Upgrade,
    Downgrade,
    KeepAlive,
    Close,
    /// By the token of whoever has published one last, or of one that was held before.
    ByToken,
    Look,
    /// At all who have to do with a key.
    LookAtAll,
    Revoke,
    Rest,
}

/// What a run is made of.
#[derive(Clone, Debug)]
pub(crate) struct Menu {
    /// With weights.
    pub(crate) choices: &'static [(u32, Choice)],
    pub(crate) modes: &'static [Mode],
    /// Acquisitions enter what their owner holds.
    pub(crate) reentrant: bool,
    /// So many processes are one owner.
    pub(crate) processes_per_owner: usize,
    pub(crate) in_sessions: bool,
    /// Leases have lock-delays and minimum holds.
    pub(crate) delays: bool,
    pub(crate) steps: usize,
    pub(crate) keys: u64,
}

/// How long things take, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) ttl: (u64, u64),
    /// How long a process waits in real time.
    pub(crate) patience: (u64, u64),
    pub(crate) rest: (u64, u64),
    /// For how long a key is kept free.
    pub(crate) delay: (u64, u64),
}

/// What all processes of a run share.
pub(crate) struct Shared<'r> {
    pub(crate) manager: &'r LockManager,
    pub(crate) clock: &'r dyn Clock,
    /// Where the run is.
    pub(crate) point: &'r AtomicU64,
    /// The token that was published last, by key of the round.
    pub(crate) board: &'r [AtomicU64],
    pub(crate) pace: Pace,
    pub(crate) menu: &'r Menu,
}

impl Shared<'_> {
    fn point(&self) -> u64 {
        self.point.fetch_add(1, Ordering::SeqCst)
    }

    fn behind(&self) -> u64 {
        self.manager.now().as_nanos()
    }

    fn ahead(&self) -> u64 {
        // The thread that turns the wheel reads a coarse clock more precisely than others do.
        self.manager.now().max(self.clock.precise_now()).as_nanos()
    }
}

struct Guard<'m> {
    key: u64,
    lease: Lease<'m>,
}

/// A call that has not returned.
struct Call {
    ask: Ask,
    point: u64,
    lo: u64,
}

pub(crate) struct Process<'m> {
    number: usize,
    owner: u64,
    shared: &'m Shared<'m>,
    rng: Rng,
    guards: Vec<Guard<'m>>,
    /// Of leases that it has held.
    old: Vec<(u64, u64)>,
    session: Option<(u32, Session<'m>)>,
    /// The lock-delay of what is acquired in it.
    session_delay: u64,
    sessions: u32,
    round: u64,
    ops: Vec<Op>,
}

/// A key that it takes time to tell. Operations by token read the clock before that, and act after it: so what
/// they have read is old by then, as if the thread had been interrupted.
struct Slow(u64);

impl ToKey for Slow {
    fn to_key(&self, seed: &HashSeed) -> Key {
        match fastrand::u8(..) {
            0..24 => thread::sleep(Duration::from_micros(fastrand::u64(10..200))),
            24..60 => thread::yield_now(),
            _ => {}
        }
        self.0.to_key(seed)
    }
}

fn nanos(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

fn token(value: u64) -> FencingToken {
    FencingToken::new(value).expect("it was granted")
}

fn found(holder: &Holder) -> Answer {
    Answer::Found {
        owner: holder.owner.0,
        token: holder.token.get(),
        deadline: holder.deadline.as_nanos(),
        mode: holder.mode,
    }
}

fn denied(error: &AcquireError) -> Answer {
    match error {
        AcquireError::Held {
            owner,
            token,
            remaining,
        } => Answer::Held {
            owner: owner.0,
            token: token.get(),
            remaining: remaining.as_nanos() as u64,
        },
        AcquireError::Delayed { remaining } => Answer::Delayed {
            remaining: remaining.as_nanos() as u64,
        },
        AcquireError::SessionOver => Answer::SessionOver,
        AcquireError::Lapsed { .. } => Answer::Lapsed,
        AcquireError::Deadlock { .. } => Answer::Deadlock,
        AcquireError::TimedOut => Answer::GaveUp,
        error => panic!("nothing here brings about {error:?}"),
    }
}

fn renewed(result: Result<tenure::Timestamp, RenewError>) -> Answer {
    match result {
        Ok(deadline) => Answer::Renewed(deadline.as_nanos()),
        Err(RenewError::Expired { .. }) => Answer::Over,
        Err(RenewError::NeverGranted { .. }) => Answer::NeverGranted,
        Err(error) => panic!("nothing here brings about {error:?}"),
    }
}

fn released(result: Result<(), ReleaseError>) -> Answer {
    match result {
        Ok(()) => Answer::Done,
        Err(ReleaseError::Expired { .. }) => Answer::Over,
        Err(ReleaseError::NeverGranted { .. }) => Answer::NeverGranted,
        Err(error) => panic!("nothing here brings about {error:?}"),
    }
}

impl<'m> Process<'m> {
    pub(crate) fn new(number: usize, seed: u64, shared: &'m Shared<'m>) -> Self {
        Self {
            number,
            owner: 1 + (number / shared.menu.processes_per_owner) as u64,
            shared,
            rng: Rng::with_seed(seed),
            guards: vec![],
            old: vec![],
            session: None,
            session_delay: 0,
            sessions: 0,
            round: 0,
            ops: vec![],
        }
    }

    pub(crate) fn into_ops(self) -> Vec<Op> {
        self.ops
    }

    fn call(&self, ask: Ask) -> Call {
        Call {
            ask,
            point: self.shared.point(),
            lo: self.shared.behind(),
        }
    }

    /// The operation has returned, just now.
    fn returned(&mut self, key: u64, call: Call, answer: Answer) -> &mut Op {
        let (hi, ret) = (self.shared.ahead(), self.shared.point());
        self.record(key, call, answer, (hi, ret))
    }

    fn record(&mut self, key: u64, call: Call, answer: Answer, (hi, ret): (u64, u64)) -> &mut Op {
        let lost = answer == Answer::Lost;
        let id = u32::try_from(self.ops.len()).expect("a run is short") << 6 | self.number as u32;
        self.ops.push(Op {
            process: self.number,
            key,
            id,
            ask: call.ask,
            answer,
            call: call.point,
            queued: None,
            dropped: None,
            ret: if lost { FOREVER } else { ret },
            lo: call.lo,
            hi,
            cut: false,
        });
        self.ops.last_mut().expect("one was added")
    }

    fn between(&mut self, (least, most): (u64, u64)) -> u64 {
        self.rng.u64(least..=most)
    }

    fn key(&mut self) -> u64 {
        let keys = self.shared.menu.keys;
        self.round * keys + self.rng.u64(0..keys)
    }

    fn keys(&self) -> std::ops::Range<u64> {
        let keys = self.shared.menu.keys;
        self.round * keys..(self.round + 1) * keys
    }

    fn board(&self, key: u64) -> &'m AtomicU64 {
        &self.shared.board[(key % self.shared.menu.keys) as usize]
    }

    /// One round, on a thread that it may block.
    pub(crate) fn round_on_thread(&mut self, round: u64) {
        self.begin(round);
        for _ in 0..self.shared.menu.steps {
            match self.choose() {
                Choice::Wait => self.wait_blocking(),
                Choice::Rest => {
                    let rest = self.between(self.shared.pace.rest);
                    thread::sleep(nanos(rest));
                }
                choice => self.step(choice),
            }
            if self.rng.u8(..) < 40 {
                thread::yield_now();
            }
        }
        self.finish();
    }

    /// One round, as a task.
    pub(crate) async fn round_as_task(&mut self, round: u64) {
        self.begin(round);
        for _ in 0..self.shared.menu.steps {
            match self.choose() {
                Choice::Wait => self.wait_as_task().await,
                Choice::Rest => {
                    let rest = self.between(self.shared.pace.rest);
                    tokio::time::sleep(nanos(rest)).await;
                }
                choice => self.step(choice),
            }
            if self.rng.u8(..) < 80 {
                tokio::task::yield_now().await;
            }
        }
        self.finish();
    }

    fn begin(&mut self, round: u64) {
        self.round = round;
        self.old.clear();
        self.open();
    }

    /// Gives back what it holds.
    fn finish(&mut self) {
        while !self.guards.is_empty() {
            let choice = if self.rng.bool() {
                Choice::Release
            } else {
                Choice::Drop
            };
            self.step(choice);
        }
        self.close();
    }

    fn choose(&mut self) -> Choice {
        let choices = self.shared.menu.choices;
        let mut at = self.rng.u32(0..choices.iter().map(|it| it.0).sum());
        for &(weight, choice) in choices {
            if at < weight {
                return choice;
            }
            at -= weight;
        }
        unreachable!("it is below the sum")
    }

    fn step(&mut self, choice: Choice) {
        match choice {
            Choice::Try => self.try_acquire(),
            Choice::Many => self.acquire_all(),
            Choice::Lost => self.lose(),
            Choice::Renew => self.renew(),
            Choice::Release => self.release(),
            Choice::Drop => self.drop_guard(),
            Choice::Upgrade => self.upgrade(),
            Choice::Downgrade => self.downgrade(),
            Choice::KeepAlive => self.keep_alive(),
            Choice::Close => {
                self.close();
                self.open();
            }
            Choice::ByToken => self.by_token(),
            Choice::Look => self.look(),
            Choice::LookAtAll => self.look_at_all(),
            Choice::Revoke => self.revoke(),
            Choice::Wait | Choice::Rest => unreachable!("these are the executor's"),
        }
    }

    /// What it asks for next, and the same as a future.
    fn wish(&mut self, key: u64, waits: bool) -> (Acquire, tenure::Acquire<'m>) {
        let shared = self.shared;
        let ttl = self.between(shared.pace.ttl);
        let mode = *self.rng.choice(shared.menu.modes).expect("there is one");
        let in_session = self.rng.u8(..) < 200;
        let session = self.session.as_ref().filter(|_| in_session);
        let mut acquire = match session {
            Some((_, session)) => session.acquire(key),
            None => shared.manager.acquire(key, self.owner, nanos(ttl)),
        };
        let session = session.map(|it| it.0);
        acquire = match mode {
            Mode::Shared => acquire.shared(),
            Mode::Permit { of } => acquire.permit(of),
            _ => acquire,
        };
        let wish = Acquire {
            owner: self.owner,
            ttl,
            mode,
            reentrant: shared.menu.reentrant && self.rng.u8(..) < 200,
            session,
            waits,
            one_of_many: false,
            lock_delay: if session.is_some() {
                self.session_delay
            } else {
                self.delay()
            },
            min_hold: self.delay(),
        };
        if wish.reentrant {
            acquire = acquire.reentrant();
        }
        if wish.lock_delay > 0 && wish.session.is_none() {
            acquire = acquire.lock_delay(nanos(wish.lock_delay));
        }
        if wish.min_hold > 0 {
            acquire = acquire.min_hold(nanos(wish.min_hold));
        }
        (wish, acquire)
    }

    /// For how long a key is kept free, if it is.
    fn delay(&mut self) -> u64 {
        if self.shared.menu.delays && self.rng.u8(..) < 120 {
            self.between(self.shared.pace.delay)
        } else {
            0
        }
    }

    fn granted(
        &mut self,
        key: u64,
        call: Call,
        result: Result<Lease<'m>, AcquireError>,
    ) -> &mut Op {
        // Before the end: it may be prolonged by whoever knows its token, and then tells that.
        let told = result.as_ref().map(|lease| lease.deadline().as_nanos());
        let end = (self.shared.ahead(), self.shared.point());
        let (Ok(lease), Ok(deadline)) = (&result, told) else {
            let answer = denied(&result.expect_err("it is one"));
            return self.record(key, call, answer, end);
        };
        let Ask::Acquire(wish) = &call.ask else {
            unreachable!("acquisitions are granted")
        };
        let token = lease.token().get();
        let (mut from, mut till) = (deadline, deadline);
        if wish.session.is_some() {
            (from, till) = (0, u64::MAX);
        } else if wish.reentrant || self.shared.menu.processes_per_owner > 1 {
            // Others may know the lease already, and have prolonged it since.
            from = call.lo.saturating_add(wish.ttl);
        }
        self.board(key).store(token, Ordering::Release);
        self.guards
            .extend(result.ok().map(|lease| Guard { key, lease }));
        let answer = Answer::Granted {
            token,
            least: from,
            most: till,
        };
        self.record(key, call, answer, end)
    }

    fn try_acquire(&mut self) {
        let key = self.key();
        let (wish, acquire) = self.wish(key, false);
        let (owner, ttl) = (wish.owner, nanos(wish.ttl));
        let delays = wish.lock_delay > 0 || wish.min_hold > 0;
        let special = wish.reentrant || wish.session.is_some() || delays;
        let plain = wish.mode == Mode::Exclusive && !special;
        let call = self.call(Ask::Acquire(wish));
        let result = if plain {
            self.shared.manager.try_acquire(key, owner, ttl)
        } else {
            acquire.try_now()
        };
        self.granted(key, call, result);
    }

    fn wait_blocking(&mut self) {
        let key = self.key();
        let (wish, acquire) = self.wish(key, true);
        let patience = nanos(self.between(self.shared.pace.patience));
        let call = self.call(Ask::Acquire(wish));
        let result = acquire.wait_timeout(patience);
        self.granted(key, call, result);
    }

    async fn wait_as_task(&mut self) {
        let key = self.key();
        let (wish, acquire) = self.wish(key, true);
        let mut polls = self.rng.u32(0..6);
        let patience = nanos(self.between(self.shared.pace.patience));
        let by_time = self.rng.bool();
        let call = self.call(Ask::Acquire(wish));
        let mut future = Box::pin(acquire);
        let first = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
        if let Poll::Ready(result) = first {
            self.granted(key, call, result);
            return;
        }
        // After the poll, which has put it there.
        let queued = self.shared.point();
        // It ends at a time, or after so many wake-ups of the task.
        let result = if by_time {
            tokio::time::timeout(patience, future.as_mut()).await.ok()
        } else {
            poll_fn(|context| match Pin::new(&mut future).poll(context) {
                Poll::Ready(result) => Poll::Ready(Some(result)),
                Poll::Pending if polls == 0 => Poll::Ready(None),
                Poll::Pending => {
                    polls -= 1;
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
            })
            .await
        };
        let op = if let Some(result) = result {
            self.granted(key, call, result)
        } else {
            let dropped = (self.shared.point(), self.shared.behind());
            drop(future);
            let op = self.returned(key, call, Answer::GaveUp);
            op.dropped = Some(dropped);
            op
        };
        op.queued = Some(queued);
    }

    /// All keys of the round at once; with a lease on all of them, rests or renews, and gives them back.
    fn acquire_all(&mut self) {
        let (shared, keys) = (self.shared, self.keys());
        let ttl = self.between(shared.pace.ttl);
        let patience = nanos(self.between(shared.pace.patience));
        let call = self.call(Ask::Holder);
        let all = shared
            .manager
            .acquire_all(keys.clone(), self.owner, nanos(ttl));
        let result = all.wait_timeout(patience);
        let end = (shared.ahead(), shared.point());
        let again = |ask: Ask| Call { ask, ..call };
        let ask = || {
            Ask::Acquire(Acquire {
                owner: self.owner,
                ttl,
                mode: Mode::Exclusive,
                reentrant: false,
                session: None,
                waits: true,
                one_of_many: true,
                lock_delay: 0,
                min_hold: 0,
            })
        };
        let asks: Vec<Call> = keys.clone().map(|_| again(ask())).collect();
        let Ok(all) = result else {
            let error = result.expect_err("it is one");
            for (key, call) in keys.zip(asks) {
                self.record(key, call, denied(&error), end);
            }
            return;
        };
        let deadline = all.deadline().as_nanos();
        let mut tokens = vec![];
        for (key, call) in keys.clone().zip(asks) {
            let token = all.token(shared.manager.key(key)).expect("it has them all");
            tokens.push(token.get());
            let (token, least, most) = (token.get(), deadline, deadline);
            self.record(key, call, Answer::Granted { token, least, most }, end);
        }
        if self.rng.bool() {
            let rest = self.between(shared.pace.rest);
            thread::sleep(nanos(rest));
        } else {
            let call = self.call(Ask::Holder);
            let answer = renewed(all.renew(nanos(ttl)));
            let end = (shared.ahead(), shared.point());
            for (key, &token) in keys.clone().zip(&tokens) {
                let by = By::Guard;
                let ask = Ask::Renew { token, ttl, by };
                self.record(key, Call { ask, ..call }, answer.clone(), end);
            }
        }
        let call = self.call(Ask::Holder);
        let answer = match all.release() {
            Ok(()) => Answer::Done,
            Err(_) => Answer::Over,
        };
        let end = (shared.ahead(), shared.point());
        for (key, &token) in keys.zip(&tokens) {
            let by = By::Guard;
            let ask = Ask::Release { token, by };
            self.record(key, Call { ask, ..call }, answer.clone(), end);
        }
    }

    /// Asks, and goes away before the answer is there.
    fn lose(&mut self) {
        let (shared, key) = (self.shared, self.key());
        let ttl = self.between(shared.pace.ttl);
        let known = shared.board[(key % shared.menu.keys) as usize].load(Ordering::Acquire);
        let by = By::Token;
        // A lease that it knows nothing of must not be there for it to enter again.
        let first = u8::from(shared.menu.reentrant);
        let choice = if known == 0 {
            first
        } else {
            self.rng.u8(first..3)
        };
        if choice > 0 && known == 0 {
            return;
        }
        let call = match choice {
            0 => {
                let call = self.call(Ask::Acquire(Acquire {
                    owner: self.owner,
                    ttl,
                    mode: Mode::Exclusive,
                    reentrant: false,
                    session: None,
                    waits: false,
                    one_of_many: false,
                    lock_delay: 0,
                    min_hold: 0,
                }));
                let result = shared.manager.try_acquire(key, self.owner, nanos(ttl));
                let _ = result.map(Lease::detach);
                call
            }
            1 => {
                let ask = Ask::Renew {
                    token: known,
                    ttl,
                    by,
                };
                let call = self.call(ask);
                let _ = shared.manager.renew(Slow(key), token(known), nanos(ttl));
                call
            }
            _ => {
                let call = self.call(Ask::Release { token: known, by });
                let _ = shared.manager.release(Slow(key), token(known));
                call
            }
        };
        self.returned(key, call, Answer::Lost);
    }

    fn pick(&mut self) -> Option<usize> {
        (!self.guards.is_empty()).then(|| self.rng.usize(0..self.guards.len()))
    }

    fn part(&mut self) -> Option<Guard<'m>> {
        let at = self.pick()?;
        let guard = self.guards.swap_remove(at);
        self.old.push((guard.key, guard.lease.token().get()));
        Some(guard)
    }

    fn renew(&mut self) {
        let ttl = self.between(self.shared.pace.ttl);
        let Some(at) = self.pick() else { return };
        let (key, token) = (self.guards[at].key, self.guards[at].lease.token().get());
        let by = By::Guard;
        let call = self.call(Ask::Renew { token, ttl, by });
        match self.guards[at].lease.renew(nanos(ttl)) {
            // It lasts as long as its session.
            Err(RenewError::InSession { .. }) => {}
            result => _ = self.returned(key, call, renewed(result)),
        }
    }

    fn release(&mut self) {
        let Some(Guard { key, lease }) = self.part() else {
            return;
        };
        let token = lease.token().get();
        let by = By::Guard;
        let call = self.call(Ask::Release { token, by });
        let answer = released(lease.release());
        self.returned(key, call, answer);
    }

    fn drop_guard(&mut self) {
        let Some(Guard { key, lease }) = self.part() else {
            return;
        };
        let token = lease.token().get();
        let call = self.call(Ask::Drop { token });
        drop(lease);
        self.returned(key, call, Answer::Done);
    }

    fn upgrade(&mut self) {
        let (ttl, patience) = (
            self.between(self.shared.pace.ttl),
            self.between(self.shared.pace.patience),
        );
        let Some(at) = self.pick() else { return };
        let (key, token) = (self.guards[at].key, self.guards[at].lease.token().get());
        if self.guards[at].lease.mode() != Mode::Shared {
            return;
        }
        let call = self.call(Ask::Upgrade { token, ttl });
        let lease = &mut self.guards[at].lease;
        let result = lease.upgrade(nanos(ttl)).wait_timeout(nanos(patience));
        let end = (self.shared.ahead(), self.shared.point());
        let (new, deadline) = (lease.token().get(), lease.deadline().as_nanos());
        let answer = match result {
            Err(error) if new == token => denied(&error),
            // Or it has given up at the very moment when it was granted.
            _ => Answer::Granted {
                token: new,
                least: deadline,
                most: deadline,
            },
        };
        self.record(key, call, answer, end);
    }

    fn downgrade(&mut self) {
        let Some(at) = self.pick() else { return };
        let (key, token) = (self.guards[at].key, self.guards[at].lease.token().get());
        if matches!(self.guards[at].lease.mode(), Mode::Permit { .. }) {
            return;
        }
        let call = self.call(Ask::Downgrade { token });
        let answer = match self.guards[at].lease.downgrade() {
            Ok(()) => Answer::Done,
            Err(error) => renewed(Err(error)),
        };
        self.returned(key, call, answer);
    }

    /// The session has to do with all keys of the round.
    fn record_for_all(&mut self, call: &Call, answer: &Answer) {
        let end = (self.shared.ahead(), self.shared.point());
        for key in self.keys() {
            let call = Call {
                ask: call.ask.clone(),
                ..*call
            };
            self.record(key, call, answer.clone(), end);
        }
    }

    fn open(&mut self) {
        if !self.shared.menu.in_sessions {
            return;
        }
        self.sessions += 1;
        let session = self.sessions << 6 | self.number as u32;
        let ttl = self.between(self.shared.pace.ttl);
        let call = self.call(Ask::Open { session, ttl });
        let opened = self.shared.manager.session(self.owner, nanos(ttl));
        let opened = opened.expect("the TTL is in range");
        let answer = Answer::Renewed(opened.deadline().as_nanos());
        self.record_for_all(&call, &answer);
        self.session_delay = self.delay();
        let opened = opened.lock_delay(nanos(self.session_delay));
        self.session = Some((session, opened));
    }

    fn keep_alive(&mut self) {
        let Some((number, session)) = &self.session else {
            return;
        };
        let (session, ttl) = (*number, session.ttl().as_nanos() as u64);
        let call = self.call(Ask::KeepAlive { session, ttl });
        let kept = self.session.as_ref().map(|it| it.1.keep_alive());
        let answer = match kept {
            Some(Ok(deadline)) => Answer::Renewed(deadline.as_nanos()),
            _ => Answer::Over,
        };
        self.record_for_all(&call, &answer);
        if answer == Answer::Over {
            // It is over already, so that this says nothing.
            self.session = None;
            self.open();
        }
    }

    fn close(&mut self) {
        let Some((number, session)) = self.session.take() else {
            return;
        };
        let call = self.call(Ask::Close { session: number });
        let answer = match session.close() {
            Ok(()) => Answer::Done,
            Err(_) => Answer::Over,
        };
        self.record_for_all(&call, &answer);
    }

    fn by_token(&mut self) {
        let shared = self.shared;
        let (mut key, mut value) = (self.key(), 0);
        if let (true, Some(&old)) = (self.rng.bool(), self.rng.choice(&self.old)) {
            (key, value) = old;
        } else {
            value = value.max(self.board(key).load(Ordering::Acquire));
        }
        if value == 0 {
            return;
        }
        let ttl = self.between(shared.pace.ttl);
        let by = By::Token;
        let (call, answer) = match self.rng.u8(0..10) {
            0..4 => {
                let call = self.call(Ask::Renew {
                    token: value,
                    ttl,
                    by,
                });
                match shared.manager.renew(Slow(key), token(value), nanos(ttl)) {
                    Err(RenewError::InSession { .. }) => return,
                    result => (call, renewed(result)),
                }
            }
            4..6 => {
                let call = self.call(Ask::Release { token: value, by });
                (
                    call,
                    released(shared.manager.release(Slow(key), token(value))),
                )
            }
            _ => {
                let call = self.call(Ask::Validate { token: value });
                let answer = match shared.manager.validate(Slow(key), token(value)) {
                    Ok(holder) => found(&holder),
                    Err(ValidateError::NeverGranted { .. }) => Answer::NeverGranted,
                    Err(_) => Answer::Over,
                };
                (call, answer)
            }
        };
        self.returned(key, call, answer);
    }

    fn look(&mut self) {
        let key = self.key();
        let call = self.call(Ask::Holder);
        let holder = self.shared.manager.holder(Slow(key));
        let answer = holder.as_ref().map_or(Answer::Over, found);
        self.returned(key, call, answer);
    }

    fn look_at_all(&mut self) {
        let manager = self.shared.manager;
        let view = match self.rng.u8(0..3) {
            0 => View::Holders,
            1 => View::Snapshot,
            _ => View::Checkpoint,
        };
        let call = self.call(Ask::Everyone(view));
        let lo = call.lo;
        let keys: Vec<u64> = self.keys().collect();
        let one = keys[self.rng.usize(0..keys.len())];
        let (mut snapshot, mut checkpoint, mut holders) = (vec![], None, vec![]);
        match view {
            View::Holders => holders = manager.holders(Slow(one)),
            View::Snapshot => snapshot = manager.snapshot(),
            View::Checkpoint => checkpoint = Some(manager.checkpoint()),
        }
        let end = (self.shared.ahead(), self.shared.point());
        let seen = |holder: Holder| Seen {
            token: holder.token.get(),
            owner: holder.owner.0,
            mode: holder.mode,
            from: holder.deadline.as_nanos(),
            till: holder.deadline.as_nanos(),
        };
        // What is left counts from a reading that is not known.
        let within = |left: Duration| {
            let left = left.as_nanos() as u64;
            (lo + left, end.0.saturating_add(left))
        };
        for number in keys {
            let key = manager.key(number);
            let everyone = if view == View::Holders {
                if number != one {
                    continue;
                }
                Everyone {
                    holders: std::mem::take(&mut holders).into_iter().map(seen).collect(),
                    waiters: None,
                    kept: None,
                    floor: None,
                }
            } else if let Some(checkpoint) = &checkpoint {
                let leases = checkpoint.leases().filter(|it| it.key == key);
                let mut kept = checkpoint.delayed().filter(|it| it.0 == key);
                let kept = kept.next().map_or(0, |(_, left)| {
                    checkpoint.now().as_nanos() + left.as_nanos() as u64
                });
                Everyone {
                    holders: leases.map(seen).collect(),
                    waiters: None,
                    kept: Some((kept, kept)),
                    floor: Some(checkpoint.floor().map_or(0, FencingToken::get)),
                }
            } else {
                let found = snapshot.iter().find(|it| it.key == key);
                let holders = found.map_or(&[][..], |it| &it.holders);
                let holders = holders.iter().map(|it| {
                    let (from, till) = within(it.remaining);
                    Seen {
                        token: it.token.get(),
                        owner: it.owner.0,
                        mode: it.mode,
                        from,
                        till,
                    }
                });
                let waiters = found.map_or(&[][..], |it| &it.waiters);
                let waiters = waiters.iter().filter(|it| !it.upgrades);
                Everyone {
                    holders: holders.collect(),
                    waiters: Some(waiters.map(|it| it.owner.0).collect()),
                    kept: Some(found.and_then(|it| it.delayed).map_or((0, 0), within)),
                    floor: None,
                }
            };
            let ask = Ask::Everyone(view);
            self.record(
                number,
                Call { ask, ..call },
                Answer::Everyone(everyone),
                end,
            );
        }
    }

    fn revoke(&mut self) {
        let key = self.key();
        let call = self.call(Ask::Revoke);
        let revoked = self.shared.manager.revoke(Slow(key));
        let answer = revoked.as_ref().map_or(Answer::Over, found);
        self.returned(key, call, answer);
    }
}
