//! From what was recorded to what the checker takes, and to the least of a history that still fails.

use std::collections::{BTreeMap, BTreeSet};

use tenure::Mode;
use todc_utils::{Action, History, Specification, WGLChecker};

use crate::history::{Acquire, Answer, Ask, By, FOREVER, Op, timeline};
use crate::spec::{
    Event, FencedMutex, Found, Grant, Modes, Need, OwnerAwareMutex, ReentrantFencedMutex,
    ReentrantMutex, Step, Until, Wish, after,
};

/// A specification to check histories against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spec {
    OwnerAwareMutex,
    ReentrantMutex,
    FencedMutex,
    ReentrantFencedMutex,
    Modes,
}

impl Spec {
    /// Whether the history of one key is linearizable.
    pub(crate) fn accepts(self, ops: &[Op]) -> bool {
        match self {
            Self::OwnerAwareMutex => is_linearizable::<OwnerAwareMutex>(ops),
            Self::ReentrantMutex => is_linearizable::<ReentrantMutex>(ops),
            Self::FencedMutex => is_linearizable::<FencedMutex>(ops),
            Self::ReentrantFencedMutex => is_linearizable::<ReentrantFencedMutex>(ops),
            Self::Modes => is_linearizable::<Modes>(ops),
        }
    }

    /// The same without the rule that tokens rise, if there is such a specification.
    fn unfenced(self) -> Option<Self> {
        match self {
            Self::FencedMutex => Some(Self::OwnerAwareMutex),
            Self::ReentrantFencedMutex => Some(Self::ReentrantMutex),
            _ => None,
        }
    }

    /// What is wrong with the history, if it is not linearizable: the least of it that shows it.
    pub(crate) fn fault(self, ops: &[Op]) -> Option<String> {
        if self.accepts(ops) {
            return None;
        }
        let core = self.minimised(ops);
        let tokens = match self.unfenced() {
            Some(unfenced) if unfenced.accepts(&core) => " It is but for its tokens.",
            _ => "",
        };
        Some(format!(
            "key {} is not linearizable as {self:?}.{tokens} What follows, {} of {} operations, has no order \
             that explains its answers:\n\n{}",
            core.first().map_or(0, |op| op.key),
            core.len(),
            ops.len(),
            timeline(&core)
        ))
    }

    /// As little of a history that is not linearizable as still shows it. See [`Unit`] for why that is
    /// sound.
    pub(crate) fn minimised(self, ops: &[Op]) -> Vec<Op> {
        let mut core = self.shortest_prefix(ops);
        loop {
            let before = core.len();
            // What merely looks first: much else can go only when that has gone.
            for unit in units(&core) {
                let less = without(&core, &unit);
                if let Some(less) = less
                    && !self.accepts(&less)
                {
                    core = less;
                }
            }
            if core.len() == before {
                return core;
            }
            core = self.shortest_prefix(&core);
        }
    }

    /// A prefix of a linearizable history is linearizable, if what is under way at its end may have happened
    /// or not. So the prefixes that fail are all from some length on.
    fn shortest_prefix(self, ops: &[Op]) -> Vec<Op> {
        let mut returns: Vec<u64> = ops.iter().map(|op| op.ret).collect();
        returns.sort_unstable();
        returns.dedup();
        let fails = |&end: &u64| !self.accepts(&prefix(ops, end));
        let at = returns.partition_point(|end| !fails(end));
        match returns.get(at) {
            Some(&end) => prefix(ops, end),
            None => ops.to_vec(),
        }
    }
}

pub(crate) fn prefix(ops: &[Op], end: u64) -> Vec<Op> {
    let called = ops.iter().filter(|op| op.call < end);
    called
        .map(|op| Op {
            cut: op.cut || op.ret > end,
            queued: op.queued.filter(|&at| at <= end),
            ..op.clone()
        })
        .collect()
}

/// What may be left out of a history together, so that what remains is linearizable if the whole is.
///
/// - An operation that only looks: it leaves the key as it was, so the order of the others does without.
/// - A lease with all that names its token, from the grant to the end. Without it the key is as free as it
///   was or freer, the tokens before are as low or lower, and the clock need not have gone as far: nothing
///   that is granted, renewed, ended or found to be over needs more than that. Only a refusal does, in the
///   name of another lease: a permit is refused since all are out. So unless the key is held exclusively by
///   all, refusals have to be gone before; and those who were told of a deadlock, before an upgrade; and those
///   who were told that the key is kept free, or of all who have to do with it. An
///   upgrade ties two leases to each other. A revocation that ends several can't be left out with one of
///   them.
/// - An acquisition that has come to nothing, or whose end is not known, when nobody is left who may have
///   seen a lease of its, or have been refused since it was waiting.
/// - A session, when nothing is left that happens in it.
///
/// A renewal, release or keep-alive alone can't be left out: what comes later may rest on it.
#[derive(Debug)]
pub(crate) struct Unit {
    ops: BTreeSet<u32>,
    /// These must have gone before: refusals; those who were told of a lease; those who were told of a
    /// deadlock; what happens in a session.
    after_refusals: bool,
    after_sightings: bool,
    after_deadlocks: bool,
    after_session: Option<u32>,
}

impl Unit {
    fn new(ops: BTreeSet<u32>) -> Self {
        Self {
            ops,
            after_refusals: false,
            after_sightings: false,
            after_deadlocks: false,
            after_session: None,
        }
    }
}

pub(crate) fn units(ops: &[Op]) -> Vec<Unit> {
    let mut units: Vec<Unit> = vec![];
    for op in ops.iter().rev().filter(|op| op.only_looks()) {
        units.push(Unit::new(BTreeSet::from([op.id])));
    }
    // Tokens, and those that they are tied to by upgrades.
    let mut groups: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    let rest = || ops.iter().filter(|op| !op.only_looks());
    for op in rest() {
        let named = op.tokens();
        let mut all: BTreeSet<u64> = named.iter().copied().collect();
        for token in &named {
            all.extend(groups.get(token).into_iter().flatten());
        }
        for token in all.clone() {
            groups.insert(token, all.clone());
        }
    }
    let granted: BTreeSet<u64> = rest().filter_map(Op::granted).collect();
    let upgrades = |op: &Op| matches!(op.ask, Ask::Upgrade { .. });
    let revokes = |op: &&Op| op.ask == Ask::Revoke && op.answer != Answer::Over;
    let sharing = ops.iter().any(Op::shares);
    let unheard_revoked = rest()
        .filter(revokes)
        .any(|op| op.tokens().iter().any(|it| !granted.contains(it)));
    let groups: BTreeSet<&BTreeSet<u64>> = groups.values().collect();
    for group in groups {
        let names = |op: &&Op| op.tokens().iter().any(|token| group.contains(token));
        if sharing && rest().filter(names).any(|op| revokes(&op)) {
            continue;
        }
        // Those that only look as well: they would be of a lease that never was.
        let of_it = ops.iter().filter(names);
        units.push(Unit {
            after_refusals: sharing,
            after_deadlocks: of_it.clone().any(upgrades),
            ..Unit::new(of_it.map(|op| op.id).collect())
        });
    }
    for op in rest() {
        let comes_to_nothing = match op.ask {
            Ask::Acquire(_) | Ask::Upgrade { .. } => op.granted().is_none(),
            _ => false,
        };
        if comes_to_nothing && !unheard_revoked {
            units.push(Unit {
                after_refusals: true,
                after_sightings: true,
                after_deadlocks: upgrades(op),
                ..Unit::new(BTreeSet::from([op.id]))
            });
        }
    }
    let sessions: BTreeSet<u32> = ops.iter().filter_map(Op::session).collect();
    for session in sessions {
        let of_it = ops.iter().filter(|op| op.session() == Some(session));
        let own = of_it.filter(|op| !matches!(op.ask, Ask::Acquire(_)));
        units.push(Unit {
            after_session: Some(session),
            ..Unit::new(own.map(|op| op.id).collect())
        });
    }
    units
}

/// The history without those; `None` if they can't be left out yet, or have gone already.
pub(crate) fn without(ops: &[Op], unit: &Unit) -> Option<Vec<Op>> {
    let (gone, rest): (Vec<&Op>, Vec<&Op>) = ops.iter().partition(|op| unit.ops.contains(&op.id));
    let only_looks = gone.iter().all(|op| op.only_looks());
    let needs_it = |op: &&Op| match op.answer {
        Answer::Delayed { .. } | Answer::Everyone(_) => !only_looks,
        Answer::Held { .. } => unit.after_refusals,
        Answer::Found { .. } => unit.after_sightings,
        Answer::Deadlock => unit.after_deadlocks,
        _ => false,
    };
    let in_it = |op: &&Op| unit.after_session.is_some() && op.session() == unit.after_session;
    let possible = !gone.is_empty() && !rest.iter().any(|op| needs_it(op) || in_it(op));
    possible.then(|| rest.into_iter().cloned().collect())
}

fn is_linearizable<S: Specification<Operation = Step>>(ops: &[Op]) -> bool {
    if ops.is_empty() {
        return true;
    }
    let unheard = Unheard::of(ops);
    let mut steps: Vec<Step> = ops.iter().flat_map(|op| steps_of(op, &unheard)).collect();
    steps.push(Step {
        event: Event::Complete,
        need: Need::Must,
        call: FOREVER - 1,
        ret: FOREVER - 1,
        lo: 0,
        hi: u64::MAX,
    });
    // Where in the run, whether it is a return, and which step.
    let mut points: Vec<(u64, bool, usize)> = vec![];
    for (at, step) in steps.iter().enumerate() {
        points.push((step.call, false, at));
        points.push((step.ret, true, at));
    }
    points.sort_unstable();
    let actions = points.into_iter().map(|(_, returns, at)| {
        let step = steps[at].clone();
        // Each step is a process of its own: those of one operation overlap.
        let action = if returns {
            Action::Response(step)
        } else {
            Action::Call(step)
        };
        (at, action)
    });
    WGLChecker::<S>::is_linearizable(History::from_actions(actions.collect()))
}

/// Grants that nobody was told of, as far as others have seen them.
///
/// One that nobody has seen either makes no difference: without it the key is as free or freer, and the waiter
/// leaves the queue when that lease ends by time (or when it begins, if others share it), or when it goes
/// away itself. Whoever is refused is told of a lease, and if there is only this one, of this. So the checker
/// need not try it, of which there would be many. Permits are different: one is refused since *all* are out,
/// and told of one of them.
#[derive(Debug)]
struct Unheard {
    permits: bool,
    sharing: bool,
    /// Owners whose lease was seen, and between which points.
    seen: Vec<(u64, u64, u64)>,
    /// Where somebody was told who waits.
    waiters_seen: Vec<(u64, u64)>,
    /// By when somebody was told that the key is kept free, last of all.
    delayed: Option<u64>,
}

impl Unheard {
    fn of(ops: &[Op]) -> Self {
        let granted: BTreeSet<u64> = ops.iter().filter_map(Op::granted).collect();
        let mut seen = vec![];
        let (mut waiters_seen, mut delayed) = (vec![], None);
        for op in ops {
            let one = match op.answer {
                Answer::Held { owner, token, .. } | Answer::Found { owner, token, .. } => {
                    Some((owner, token))
                }
                _ => None,
            };
            let all = op.everyone().map_or(&[][..], |all| &all.holders);
            let all = all.iter().map(|seen| (seen.owner, seen.token));
            let unheard = one.into_iter().chain(all);
            let unheard = unheard.filter(|(_, token)| !granted.contains(token));
            seen.extend(unheard.map(|(owner, _)| (owner, op.call, op.ret)));
            if op.everyone().is_some_and(|all| all.waiters.is_some()) {
                waiters_seen.push((op.call, op.ret));
            }
            if op.is_told_of_delay() {
                delayed = delayed.max(Some(op.ret));
            }
        }
        Self {
            permits: ops.iter().any(Op::is_of_permit),
            sharing: ops.iter().any(Op::shares),
            seen,
            waiters_seen,
            delayed,
        }
    }

    /// Whether somebody was told who waits while the operation may have waited.
    fn sees_waiter(&self, op: &Op) -> bool {
        let mut seen = self.waiters_seen.iter();
        seen.any(|&(call, ret)| op.call < ret && (op.cut || call < op.ret))
    }

    /// Whether a lease that nobody has heard of may be why somebody was told that the key is kept free.
    fn keeps(&self, op: &Op, acquire: &Acquire) -> bool {
        let expires = op.hi.saturating_sub(op.lo) >= acquire.ttl;
        let terms = acquire.lock_delay > 0 || acquire.min_hold > 0;
        terms && expires && self.delayed.is_some_and(|ret| op.call < ret)
    }

    /// Whether the operation may have been granted a lease of which it matters.
    fn matters(&self, op: &Op, acquire: &Acquire) -> bool {
        let end = if op.cut || op.answer == Answer::Lost {
            FOREVER
        } else {
            op.ret
        };
        let mut seen = self.seen.iter();
        self.permits
            || self.keeps(op, acquire)
            || seen.any(|&(owner, call, ret)| owner == acquire.owner && op.call < ret && call < end)
    }
}

/// What has to happen, or may, for the operation to be answered so.
fn steps_of(op: &Op, others: &Unheard) -> Vec<Step> {
    let unheard = op.cut || op.answer == Answer::Lost;
    let step = |event| Step {
        event,
        need: if unheard { Need::MayEver } else { Need::Must },
        call: op.call,
        ret: if unheard { FOREVER } else { op.ret },
        lo: op.lo,
        hi: if op.answer == Answer::Lost {
            u64::MAX
        } else {
            op.hi
        },
    };
    let seen = |owner, token, deadline, mode| {
        Event::Found(Found {
            token,
            owner,
            mode,
            deadline,
        })
    };
    let one = |event| vec![step(event)];
    match (&op.ask, &op.answer) {
        (Ask::Acquire(acquire), answer) => acquisition(op, acquire, answer, &step, others),
        (&Ask::Upgrade { token, ttl }, answer) => upgrade(op, (token, ttl), answer, &step),
        (&Ask::Downgrade { token }, Answer::Done) => one(Event::Downgrade { token }),
        (&Ask::Renew { token, ttl, by }, answer) if *answer != Answer::Over => {
            if *answer == Answer::NeverGranted {
                return one(Event::NeverGranted { token });
            }
            let until = match (answer, by) {
                (&Answer::Renewed(deadline), By::Token) => Until::Exactly(deadline),
                // A guard may know of an earlier deadline than stands.
                (&Answer::Renewed(deadline), By::Guard) => Until::AtLeast(deadline),
                _ => Until::Unknown,
            };
            let (end, latest) = after_ttl(op, ttl);
            one(Event::Renew {
                token,
                end,
                latest,
                until,
            })
        }
        (&Ask::Release { token, .. }, Answer::Done | Answer::Lost) => one(Event::Release { token }),
        (&Ask::Drop { token }, _) => one(Event::Drop { token }),
        (
            Ask::Validate { .. } | Ask::Holder,
            &Answer::Found {
                owner,
                token,
                deadline,
                mode,
            },
        ) => one(seen(owner, token, deadline, mode)),
        (Ask::Everyone(_), Answer::Everyone(all)) => one(Event::Everyone(Box::new(all.clone()))),
        (Ask::Holder | Ask::Revoke, Answer::Over) => one(Event::Free),
        (Ask::Revoke, &Answer::Found { owner, token, .. }) => one(Event::Revoke { token, owner }),
        (Ask::Open { .. } | Ask::KeepAlive { .. } | Ask::Close { .. }, answer) => {
            one(of_session(op, answer))
        }
        (ask, Answer::NeverGranted) => one(Event::NeverGranted {
            token: token_of(ask),
        }),
        (ask, Answer::Over) => one(Event::Over {
            token: token_of(ask),
        }),
        (ask, answer) => panic!("{ask} is never answered by {answer}"),
    }
}

fn token_of(ask: &Ask) -> u64 {
    match *ask {
        Ask::Upgrade { token, .. }
        | Ask::Downgrade { token }
        | Ask::Renew { token, .. }
        | Ask::Release { token, .. }
        | Ask::Drop { token }
        | Ask::Validate { token } => token,
        _ => panic!("{ask} names no token"),
    }
}

fn acquisition(
    op: &Op,
    acquire: &Acquire,
    answer: &Answer,
    step: &impl Fn(Event) -> Step,
    others: &Unheard,
) -> Vec<Step> {
    let matters = others.matters(op, acquire);

    let wish = Wish {
        owner: acquire.owner,
        mode: acquire.mode,
        reentrant: acquire.reentrant,
        session: acquire.session,
    };
    let (token, least, most) = match *answer {
        Answer::Granted { token, least, most } => (Some(token), least, most),
        _ => (None, 0, u64::MAX),
    };
    let grant = Event::Grant(Grant {
        id: op.id,
        wish: wish.clone(),
        queued: acquire.waits,
        whole: if acquire.one_of_many { op.ret } else { 0 },
        delay: acquire.lock_delay,
        hold: match acquire.min_hold {
            0 => (0, 0),
            length => after((op.lo, op.hi), length),
        },
        end: after_ttl(op, acquire.ttl).0,
        latest: after_ttl(op, acquire.ttl).1,
        token,
        least,
        most,
    });
    if !acquire.waits {
        return match (answer, acquire.session) {
            (
                &Answer::Held {
                    owner,
                    token,
                    remaining,
                },
                _,
            ) => vec![step(Event::Refuse {
                wish,
                owner,
                token,
                remaining,
            })],
            (&Answer::Delayed { remaining }, _) => {
                let (from, till) = (op.lo + remaining, op.hi.saturating_add(remaining));
                vec![step(Event::Delayed(from, till))]
            }
            (Answer::SessionOver, Some(session)) => vec![step(Event::SessionOver(session))],
            (Answer::Lost, _) if !matters => vec![],
            _ => vec![step(grant)],
        };
    }
    let mut arrive = step(Event::Arrive(op.id, acquire.owner));
    if let Some(queued) = op.queued {
        (arrive.need, arrive.ret) = (Need::Must, queued);
    }
    match answer {
        Answer::GaveUp => {
            let (mut may, mut leave) = (step(grant), step(Event::Leave(op.id)));
            if !op.cut {
                may.need = Need::May;
            }
            // A lease of its own may have come and gone by time before it went away.
            let expired = op.hi.saturating_sub(op.lo) >= acquire.ttl;
            let early = expired || acquire.mode == Mode::Shared;
            if let Some((at, clock)) = op.dropped {
                arrive.ret = arrive.ret.min(at);
                if matters || !early {
                    (leave.call, leave.lo) = (at, clock);
                }
            }
            if !matters {
                // Nobody knows when it was in the queue, and it need not have been at any one point: who is
                // refused is so by a lease, if none is shared.
                let seen = others.sharing || others.sees_waiter(op);
                let nowhere = op.queued.is_none() && !seen;
                return if nowhere { vec![] } else { vec![arrive, leave] };
            }
            let mut steps = vec![arrive, may, leave];
            let permit = matches!(acquire.mode, Mode::Permit { .. });
            if expired && (permit || others.keeps(op, acquire)) {
                let expire = step(Event::Expire(op.id));
                let need = if op.cut { Need::MayEver } else { Need::May };
                steps.push(Step { need, ..expire });
            }
            steps
        }
        Answer::SessionOver => {
            let session = acquire.session.expect("it was told of its session's end");
            vec![arrive, step(Event::Fail(op.id, session))]
        }
        _ => vec![arrive, step(grant)],
    }
}

/// When a TTL is over that begins during the operation: at the earliest, and at the latest.
fn after_ttl(op: &Op, ttl: u64) -> (u64, u64) {
    let hi = if op.answer == Answer::Lost {
        u64::MAX
    } else {
        op.hi
    };
    after((op.lo, hi), ttl)
}

fn of_session(op: &Op, answer: &Answer) -> Event {
    match (&op.ask, answer) {
        (&Ask::Open { session, ttl }, &Answer::Renewed(deadline)) => {
            let (end, latest) = after_ttl(op, ttl);
            Event::Open {
                session,
                end,
                latest,
                deadline,
            }
        }
        (&Ask::KeepAlive { session, ttl }, &Answer::Renewed(deadline)) => {
            let (end, latest) = after_ttl(op, ttl);
            Event::KeepAlive {
                session,
                end,
                latest,
                deadline,
            }
        }
        (&Ask::Close { session }, Answer::Done) => Event::Close(session),
        (&Ask::KeepAlive { session, .. } | &Ask::Close { session }, Answer::Over) => {
            Event::SessionOver(session)
        }
        (ask, answer) => panic!("{ask} is never answered by {answer}"),
    }
}

fn upgrade(
    op: &Op,
    (token, ttl): (u64, u64),
    answer: &Answer,
    step: &impl Fn(Event) -> Step,
) -> Vec<Step> {
    let mut rise = step(Event::Rise(op.id, token));
    let then = match *answer {
        Answer::Granted {
            token: new,
            least,
            most,
        } => Event::Upgrade {
            from: token,
            grant: Grant {
                id: op.id,
                // Of the lease that it has been.
                wish: Wish {
                    owner: 0,
                    mode: Mode::Exclusive,
                    reentrant: false,
                    session: None,
                },
                queued: false,
                whole: 0,
                delay: 0,
                hold: (0, 0),
                end: op.lo.saturating_add(ttl),
                // The deadline that it has had may be later.
                latest: u64::MAX,
                token: Some(new),
                least,
                most,
            },
        },
        Answer::Deadlock => return vec![step(Event::Deadlock { token })],
        Answer::Lapsed => {
            if !op.cut {
                rise.need = Need::May;
            }
            let stay = step(Event::Stay(op.id));
            return vec![rise, step(Event::Over { token }), stay];
        }
        _ => Event::Stay(op.id),
    };
    vec![rise, step(then)]
}
