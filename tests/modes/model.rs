//! All modes against a specification that is written for clarity: random operations, one at a time, on a
//! few keys and owners, with the clock in the test's hand. Every answer, and after every operation what
//! every lease and every waiter says of itself, has to be what the specification says.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tenure::{Acquire, AcquireError, Lease, LockManager, ManualClock, Mode, Session};

use crate::spec::{Answer, KEYS, KeySpec, Spec, Wish};
use crate::{Task, manual, ms};

#[derive(Clone, Copy, Debug)]
enum Op {
    /// With patience it waits.
    Acquire(Wish, bool),
    Poll(usize),
    Cancel(usize),
    Release(usize),
    Renew(usize, u64),
    Upgrade(usize),
    Downgrade(usize),
    Revoke(u64),
    OpenSession(u64),
    KeepAlive,
    CloseSession,
    Pass(u64),
}

fn modes() -> impl Strategy<Value = Mode> {
    prop_oneof![
        3 => Just(Mode::Exclusive),
        3 => Just(Mode::Shared),
        2 => (1..4_u32).prop_map(|of| Mode::Permit { of }),
    ]
}

fn wishes() -> impl Strategy<Value = Wish> {
    let who = (0..KEYS, 0..3_u64, 1..12_u64, modes());
    let terms = (0..3_u8, 0..6_u8, 0..6_u8, 0..4_u8);
    (who, terms).prop_map(
        |((key, owner, ttl, mode), (re, delay, min, session))| Wish {
            key,
            owner,
            ttl,
            mode,
            reentrant: re == 0,
            lock_delay: if delay == 0 { 4 } else { 0 },
            min_hold: if min == 0 { 5 } else { 0 },
            in_session: session == 0,
        },
    )
}

fn operations() -> impl Strategy<Value = Op> {
    let at = 0..8_usize;
    prop_oneof![
        6 => (wishes(), any::<bool>()).prop_map(|(wish, waits)| Op::Acquire(wish, waits)),
        3 => at.clone().prop_map(Op::Poll),
        1 => at.clone().prop_map(Op::Cancel),
        4 => at.clone().prop_map(Op::Release),
        2 => (at.clone(), 1..12_u64).prop_map(|(at, ttl)| Op::Renew(at, ttl)),
        1 => at.clone().prop_map(Op::Upgrade),
        1 => at.prop_map(Op::Downgrade),
        1 => (0..KEYS).prop_map(Op::Revoke),
        1 => (3..15_u64).prop_map(Op::OpenSession),
        1 => Just(Op::KeepAlive),
        1 => Just(Op::CloseSession),
        4 => (1..5_u64).prop_map(Op::Pass),
    ]
}

/// The real manager beside it.
struct World<'m> {
    manager: &'m LockManager,
    clock: ManualClock,
    spec: Spec,
    session: Option<Session<'m>>,
    /// Guards with the grants that they are of.
    leases: Vec<(u64, Lease<'m>)>,
    tasks: Vec<(u64, Wish, Task<Acquire<'m>>)>,
    next_waiter: u64,
    /// The greatest token of each key.
    tokens: BTreeMap<u64, u64>,
    /// The tokens of the grants.
    granted: BTreeMap<u64, u64>,
}

impl<'m> World<'m> {
    fn acquisition(&self, wish: &Wish) -> Option<Acquire<'m>> {
        let acquire = match (&self.session, wish.in_session) {
            (Some(session), true) => session.acquire(wish.key),
            (None, true) => return None,
            _ => self.manager.acquire(wish.key, wish.owner, ms(wish.ttl)),
        };
        let acquire = match wish.mode {
            Mode::Shared => acquire.shared(),
            Mode::Permit { of } => acquire.permit(of),
            _ => acquire,
        };
        let acquire = if wish.reentrant {
            acquire.reentrant()
        } else {
            acquire
        };
        let acquire = match wish.lock_delay {
            0 => acquire,
            delay => acquire.lock_delay(ms(delay)),
        };
        Some(match wish.min_hold {
            0 => acquire,
            hold => acquire.min_hold(ms(hold)),
        })
    }

    fn took(&mut self, grant: u64, key: u64, lease: Lease<'m>) {
        let token = lease.token().get();
        if let Some(&same) = self.granted.get(&grant) {
            assert_eq!(token, same, "entered again");
        } else {
            // Grants of one moment may be taken in another order.
            self.granted.insert(grant, token);
            let newest = self.tokens.entry(key).or_insert(0);
            *newest = (*newest).max(token);
        }
        self.leases.push((grant, lease));
    }

    fn acquire(&mut self, wish: Wish, waits: bool) {
        let mut wish = wish;
        if wish.in_session {
            wish.owner = 9;
        }
        let Some(acquire) = self.acquisition(&wish) else {
            return;
        };
        if !waits {
            let told = self.spec.acquire(&wish);
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
        let real = task.poll();
        match (self.spec.acquire(&wish), real) {
            (Answer::Granted(grant), Some(Ok(lease))) => self.took(grant, wish.key, lease),
            (Answer::SessionOver, Some(Err(AcquireError::SessionOver))) => {}
            (Answer::Held | Answer::Delayed, None) => {
                let waiter = self.next_waiter;
                self.next_waiter += 1;
                let key = self.spec.keys.entry(wish.key).or_default();
                key.queue.push_back((waiter, wish));
                self.tasks.push((waiter, wish, task));
            }
            (told, real) => panic!("{wish:?}: {real:?} and not {told:?}"),
        }
    }

    fn poll(&mut self, at: usize) {
        let (waiter, wish, task) = &mut self.tasks[at];
        let (waiter, key) = (*waiter, wish.key);
        match (self.spec.answers.remove(&waiter), task.poll()) {
            (None, None) => assert_eq!(task.wakes(), 0, "woken for nothing"),
            (Some(Some(grant)), Some(Ok(lease))) => {
                assert_eq!(task.wakes(), 1);
                self.took(grant, key, lease);
                self.tasks.remove(at);
            }
            (Some(None), Some(Err(AcquireError::SessionOver))) => {
                self.tasks.remove(at);
            }
            (told, real) => panic!("waiter {waiter}: {real:?} and not {told:?}"),
        }
    }

    fn cancel(&mut self, at: usize) {
        let (waiter, wish, task) = self.tasks.remove(at);
        drop(task);
        let key = self.spec.keys.entry(wish.key).or_default();
        key.queue.retain(|&(other, _)| other != waiter);
        if let Some(Some(grant)) = self.spec.answers.remove(&waiter) {
            if let Some(held) = key_of(&mut self.spec, wish.key).held.get_mut(&grant)
                && held.entries == 1
            {
                // Nobody has had it: its terms are void.
                held.min_until = 0;
                held.lock_delay = 0;
            }
            self.spec.leave(grant);
        }
        self.spec.serve();
    }

    fn release(&mut self, at: usize) {
        let (grant, lease) = self.leases.remove(at);
        let live = self.spec.find(grant).is_some();
        assert_eq!(lease.release().is_ok(), live, "grant {grant}");
        self.spec.leave(grant);
        self.spec.serve();
    }

    fn renew(&mut self, at: usize, ttl: u64) {
        let (grant, lease) = &self.leases[at];
        let (now, found) = (self.spec.now, self.spec.find(*grant));
        let can = found.is_some_and(|(_, held)| !held.in_session);
        assert_eq!(lease.renew(ms(ttl)).is_ok(), can, "grant {grant}");
        if let (true, Some((number, _))) = (can, found) {
            let key = self.spec.keys.entry(number).or_default();
            let held = key.held.get_mut(grant).expect("it was found");
            held.deadline = held.deadline.max(now + ttl);
        }
    }

    /// Only of those that nobody else has a guard of, and without waiting.
    fn upgrade(&mut self, at: usize) {
        let grant = self.leases[at].0;
        let Some((number, held)) = self.spec.find(grant) else {
            return;
        };
        let guards = self.leases.iter().filter(|(other, _)| *other == grant);
        if held.mode != Mode::Shared || guards.count() > 1 || held.entries > 1 {
            return;
        }
        let ttl = 5;
        let key = &self.spec.keys[&number];
        let alone = key.held.len() == 1 && key.kept_until <= self.spec.now;
        let real = self.leases[at].1.upgrade(ms(ttl)).wait_timeout(ms(0));
        assert_eq!(real.is_ok(), alone, "{real:?}");
        if alone {
            self.spec.grants += 1;
            let (new, now) = (self.spec.grants, self.spec.now);
            let key = self.spec.keys.entry(number).or_default();
            let mut held = key.held.remove(&grant).expect("it was found");
            held.mode = Mode::Exclusive;
            held.deadline = held.deadline.max(now + ttl);
            key.held.insert(new, held);
            self.leases[at].0 = new;
            let token = self.leases[at].1.token().get();
            assert!(token > self.granted[&grant], "a new grant");
            self.granted.insert(new, token);
        }
    }

    fn downgrade(&mut self, at: usize) {
        let (grant, lease) = &mut self.leases[at];
        let found = self.spec.find(*grant);
        assert_eq!(lease.downgrade().is_ok(), found.is_some());
        if let Some((number, _)) = found {
            let key = self.spec.keys.entry(number).or_default();
            let held = key.held.get_mut(grant).expect("it was found");
            if held.mode == Mode::Exclusive {
                held.mode = Mode::Shared;
            }
            self.spec.serve();
        }
    }

    fn revoke(&mut self, number: u64) {
        let key = self.spec.keys.entry(number).or_default();
        let held: Vec<u64> = key.held.keys().copied().collect();
        assert_eq!(self.manager.revoke(number).is_ok(), !held.is_empty());
        let end = self.spec.now + 1;
        for grant in held {
            self.spec.end(number, grant, Some(end));
        }
        self.spec.serve();
    }

    fn apply(&mut self, op: Op) {
        let (leases, tasks) = (self.leases.len(), self.tasks.len());
        match op {
            Op::Acquire(wish, waits) => self.acquire(wish, waits),
            Op::Poll(at) if at < tasks => self.poll(at),
            Op::Cancel(at) if at < tasks => self.cancel(at),
            Op::Release(at) if at < leases => self.release(at),
            Op::Renew(at, ttl) if at < leases => self.renew(at, ttl),
            Op::Upgrade(at) if at < leases => self.upgrade(at),
            Op::Downgrade(at) if at < leases => self.downgrade(at),
            Op::Revoke(key) => self.revoke(key),
            Op::OpenSession(ttl) if self.session.is_none() => {
                let session = self.manager.session(9, ms(ttl));
                self.session = Some(session.expect("in range"));
                self.spec.session = Some((ttl, self.spec.now + ttl));
            }
            Op::KeepAlive => {
                if let Some(session) = &self.session {
                    let live = self.spec.session.is_some();
                    assert_eq!(session.keep_alive().is_ok(), live);
                    if let Some((ttl, deadline)) = &mut self.spec.session {
                        *deadline = (*deadline).max(self.spec.now + *ttl);
                    }
                }
            }
            Op::CloseSession => {
                if let Some(session) = self.session.take() {
                    let live = self.spec.session.is_some();
                    assert_eq!(session.close().is_ok(), live);
                    if live {
                        self.spec.end_session(None);
                    }
                }
            }
            Op::Pass(ticks) => {
                for _ in 0..ticks {
                    self.clock.advance(ms(1));
                    self.manager.advance();
                    self.spec.pass();
                }
            }
            _ => {}
        }
        self.check();
    }

    /// What everybody says of themselves.
    fn check(&self) {
        for (grant, lease) in &self.leases {
            let found = self.spec.find(*grant);
            assert_eq!(lease.is_live(), found.is_some(), "grant {grant}");
            let Some((_, held)) = found else { continue };
            assert_eq!(lease.mode() == Mode::Shared, held.mode == Mode::Shared);
            let deadline = match (held.in_session, self.spec.session) {
                (true, Some((_, deadline))) => deadline,
                _ => held.deadline,
            };
            assert_eq!(
                lease.remaining(),
                ms(deadline - self.spec.now),
                "grant {grant}"
            );
        }
        let held: usize = self.spec.keys.values().map(|key| key.held.len()).sum();
        let waiting: usize = self.spec.keys.values().map(|key| key.queue.len()).sum();
        assert_eq!(self.manager.len(), held, "leases");
        assert_eq!(self.manager.iter().count(), held, "leases seen");
        assert_eq!(self.manager.waiting(), waiting, "waiters");
    }
}

fn key_of(spec: &mut Spec, number: u64) -> &mut KeySpec {
    spec.keys.entry(number).or_default()
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        cases: if cfg!(debug_assertions) { 300 } else { 6_000 },
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn all_modes_do_what_the_specification_says(
        operations in prop::collection::vec(operations(), 1..80)
    ) {
        let (manager, clock) = manual();
        let mut world = World {
            manager: &manager,
            clock,
            spec: Spec::default(),
            session: None,
            leases: vec![],
            tasks: vec![],
            next_waiter: 0,
            tokens: BTreeMap::new(),
            granted: BTreeMap::new(),
        };
        for op in operations {
            world.apply(op);
        }
        // However it was left: nothing stays.
        world.tasks.clear();
        world.session = None;
        world.leases.clear();
        for _ in 0..20 {
            world.clock.advance(ms(1));
            manager.advance();
        }
        crate::assert_idle(&manager);
        for key in 0..KEYS {
            let token = manager.try_acquire(key, 1, ms(1)).expect("free").token().get();
            prop_assert!(world.tokens.get(&key).is_none_or(|&newest| token > newest));
        }
    }
}
