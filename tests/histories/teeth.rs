//! The checker itself: histories made by hand that each specification must refuse or accept, and what the
//! minimiser makes of bad ones.
//!
//! A point of a run is also a reading of the clock here: an operation from 3 to 5 was called when 3 ms had
//! passed, and had returned when 5 ms had. TTLs are 10 ms if not said otherwise.

use tenure::Mode;

use crate::check::{Spec, prefix, units, without};
use crate::history::{Acquire, Answer, Ask, By, Everyone, FOREVER, Op, Seen, View, timeline};
use crate::{everything, scale};

const MS: u64 = 1_000_000;
const TTL: u64 = 10;

const MUTEXES: [Spec; 4] = [
    Spec::OwnerAwareMutex,
    Spec::ReentrantMutex,
    Spec::FencedMutex,
    Spec::ReentrantFencedMutex,
];
const ALL: [Spec; 5] = [
    Spec::OwnerAwareMutex,
    Spec::ReentrantMutex,
    Spec::FencedMutex,
    Spec::ReentrantFencedMutex,
    Spec::Modes,
];
const FENCED: [Spec; 3] = [Spec::FencedMutex, Spec::ReentrantFencedMutex, Spec::Modes];
const UNFENCED: [Spec; 2] = [Spec::OwnerAwareMutex, Spec::ReentrantMutex];
const REENTRANT: [Spec; 3] = [
    Spec::ReentrantMutex,
    Spec::ReentrantFencedMutex,
    Spec::Modes,
];

/// An operation of a process from one point to another.
fn op(process: usize, from: u64, to: u64, ask: Ask, answer: Answer) -> Op {
    let at = |point: u64| point.saturating_mul(MS);
    Op {
        process,
        key: 7,
        id: u32::try_from(from).expect("it is small"),
        ask,
        answer,
        call: from,
        queued: None,
        dropped: None,
        ret: to,
        lo: at(from),
        hi: at(to),
        cut: false,
    }
}

fn wish(owner: u64) -> Acquire {
    Acquire {
        owner,
        ttl: TTL * MS,
        mode: Mode::Exclusive,
        reentrant: false,
        session: None,
        waits: false,
        one_of_many: false,
        lock_delay: 0,
        min_hold: 0,
    }
}

fn granted(token: u64, until: u64) -> Answer {
    let deadline = until * MS;
    let (least, most) = (deadline, deadline);
    Answer::Granted { token, least, most }
}

fn held(owner: u64, token: u64, remaining: u64) -> Answer {
    let remaining = remaining * MS;
    Answer::Held {
        owner,
        token,
        remaining,
    }
}

/// The process is the owner.
fn grant(owner: usize, from: u64, to: u64, token: u64, until: u64) -> Op {
    let ask = Ask::Acquire(wish(owner as u64));
    op(owner, from, to, ask, granted(token, until))
}

fn refuse(owner: usize, from: u64, to: u64, answer: Answer) -> Op {
    op(owner, from, to, Ask::Acquire(wish(owner as u64)), answer)
}

fn enter(owner: usize, from: u64, to: u64, token: u64, until: u64) -> Op {
    let again = Acquire {
        reentrant: true,
        ..wish(owner as u64)
    };
    op(owner, from, to, Ask::Acquire(again), granted(token, until))
}

fn with_mode(mode: Mode, mut op: Op) -> Op {
    if let Ask::Acquire(wish) = &mut op.ask {
        wish.mode = mode;
    }
    op
}

fn share(owner: usize, from: u64, to: u64, token: u64, until: u64) -> Op {
    with_mode(Mode::Shared, grant(owner, from, to, token, until))
}

/// One that was known to be in the queue at a point.
fn waited(queued: u64, mut op: Op) -> Op {
    if let Ask::Acquire(wish) = &mut op.ask {
        wish.waits = true;
    }
    op.queued = Some(queued);
    op
}

fn lost(from: u64, owner: usize, ask: Ask) -> Op {
    op(owner, from, FOREVER, ask, Answer::Lost)
}

fn renew(process: usize, from: u64, to: u64, token: u64, answer: Answer) -> Op {
    let (ttl, by) = (TTL * MS, By::Guard);
    op(process, from, to, Ask::Renew { token, ttl, by }, answer)
}

fn until(deadline: u64) -> Answer {
    Answer::Renewed(deadline * MS)
}

fn release(process: usize, from: u64, to: u64, token: u64) -> Op {
    let by = By::Guard;
    op(process, from, to, Ask::Release { token, by }, Answer::Done)
}

fn over(process: usize, from: u64, to: u64, token: u64) -> Op {
    op(process, from, to, Ask::Validate { token }, Answer::Over)
}

fn live(process: usize, from: u64, to: u64, (owner, token, until): (u64, u64, u64)) -> Op {
    let answer = Answer::Found {
        owner,
        token,
        deadline: until * MS,
        mode: Mode::Exclusive,
    };
    op(process, from, to, Ask::Validate { token }, answer)
}

fn revoke(process: usize, from: u64, to: u64, owner: u64, token: u64) -> Op {
    let answer = Answer::Found {
        owner,
        token,
        deadline: 0,
        mode: Mode::Exclusive,
    };
    op(process, from, to, Ask::Revoke, answer)
}

#[track_caller]
fn refused(specs: &[Spec], ops: &[Op]) {
    for spec in specs {
        assert!(!spec.accepts(ops), "{spec:?} accepts\n{}", timeline(ops));
    }
}

#[track_caller]
fn accepted(specs: &[Spec], ops: &[Op]) {
    for spec in specs {
        let fault = spec.fault(ops).unwrap_or_default();
        assert!(spec.accepts(ops), "{spec:?} refuses\n{fault}");
    }
}

/// I1.
#[test]
fn a_double_grant_is_refused() {
    let first = grant(1, 1, 2, 5, 11);
    refused(&ALL, &[first.clone(), grant(2, 3, 4, 6, 13)]);
    refused(&ALL, &[first.clone(), grant(2, 9, 10, 6, 19)]);
    // In either order, since both are under way at once.
    refused(&ALL, &[grant(1, 1, 4, 5, 11), grant(2, 2, 3, 6, 12)]);
    accepted(&ALL, &[first.clone(), grant(2, 11, 12, 6, 21)]);
    // It may have been at its end.
    accepted(&ALL, &[first.clone(), grant(2, 9, 12, 6, 21)]);
    let released = |from, to| release(1, from, to, 5);
    accepted(
        &ALL,
        &[first.clone(), released(3, 4), grant(2, 5, 6, 6, 15)],
    );
    accepted(
        &ALL,
        &[first.clone(), released(3, 6), grant(2, 4, 5, 6, 14)],
    );
    refused(
        &ALL,
        &[first.clone(), grant(2, 3, 4, 6, 13), released(5, 6)],
    );
}

/// I2.
#[test]
fn a_falling_token_is_refused_where_there_is_fencing() {
    for token in [4, 5] {
        let ops = [
            grant(1, 1, 2, 5, 11),
            release(1, 3, 4, 5),
            grant(2, 5, 6, token, 15),
        ];
        refused(&FENCED, &ops);
        accepted(&UNFENCED, &ops);
    }
    // Whichever came first, the higher token came second.
    let ops = [
        grant(1, 1, 9, 6, 11),
        release(1, 10, 11, 6),
        grant(2, 2, 8, 5, 12),
        release(2, 12, 13, 5),
    ];
    refused(&ALL, &ops);
    let [first, _, second, _] = ops;
    let early = op(
        2,
        3,
        7,
        Ask::Release {
            token: 5,
            by: By::Token,
        },
        Answer::Done,
    );
    accepted(&ALL, &[first, second, early]);
}

/// I3.
#[test]
fn an_early_end_is_refused() {
    let first = grant(1, 1, 2, 5, 11);
    for from in [3, 8] {
        let to = from + 2;
        refused(&ALL, &[first.clone(), over(2, from, to, 5)]);
        refused(&ALL, &[first.clone(), renew(1, from, to, 5, Answer::Over)]);
        refused(
            &ALL,
            &[first.clone(), op(2, from, to, Ask::Holder, Answer::Over)],
        );
        refused(
            &ALL,
            &[first.clone(), op(2, from, to, Ask::Revoke, Answer::Over)],
        );
    }
    accepted(&ALL, &[first.clone(), over(2, 9, 11, 5)]);
    accepted(
        &ALL,
        &[first.clone(), revoke(2, 3, 4, 1, 5), over(1, 5, 6, 5)],
    );
    // One that was drawn out, and may be so by rounding.
    refused(&ALL, &[grant(1, 1, 2, 5, 15)]);
    accepted(&ALL, &[grant(1, 1, 2, 5, 14)]);
    refused(&ALL, &[first.clone(), renew(1, 3, 4, 5, until(17))]);
    accepted(&ALL, &[first.clone(), renew(1, 3, 4, 5, until(16))]);
    // A TTL that was cut short.
    refused(&ALL, &[grant(1, 1, 2, 5, 10)]);
    refused(&ALL, &[first.clone(), renew(1, 3, 4, 5, until(12))]);
}

/// I4.
#[test]
fn a_resurrection_is_refused() {
    let first = grant(1, 1, 2, 5, 11);
    let late = |from, to| renew(1, from, to, 5, until(22));
    refused(&ALL, &[first.clone(), over(2, 11, 12, 5), late(13, 14)]);
    refused(&ALL, &[first.clone(), late(11, 12)]);
    // It read the clock in time, but somebody was told that the lease was over while it stood still.
    refused(&ALL, &[first.clone(), late(10, 13), over(2, 11, 12, 5)]);
    accepted(&ALL, &[first.clone(), late(10, 13)]);
    refused(&ALL, &[first.clone(), live(2, 11, 12, (1, 5, 11))]);
    // Nobody need have taken the key.
    refused(&ALL, &[first, release(1, 12, 13, 5)]);
}

/// I5.
#[test]
fn a_renewed_lease_that_is_granted_anew_is_refused() {
    let first = grant(1, 1, 2, 5, 11);
    let renewed = renew(1, 9, 10, 5, until(19));
    refused(
        &ALL,
        &[first.clone(), renewed.clone(), grant(2, 12, 13, 6, 22)],
    );
    refused(&ALL, &[first.clone(), renewed.clone(), over(2, 18, 18, 5)]);
    accepted(
        &ALL,
        &[first.clone(), renewed.clone(), grant(2, 19, 20, 6, 29)],
    );
    // Under way at the same time, so that it may have come too late; then it would have said so.
    let beside = renew(1, 9, 14, 5, until(19));
    refused(&ALL, &[first, beside, grant(2, 12, 13, 6, 22)]);
}

/// I6.
#[test]
fn a_release_after_a_take_over_is_refused() {
    let ops = [grant(1, 1, 2, 5, 11), grant(2, 12, 13, 6, 22)];
    let then = |op: Op| [ops[0].clone(), ops[1].clone(), op];
    refused(&ALL, &then(release(1, 14, 15, 5)));
    refused(&ALL, &then(renew(1, 14, 15, 5, until(24))));
    let by = By::Guard;
    let told = |answer| op(1, 14, 15, Ask::Release { token: 5, by }, answer);
    accepted(&ALL, &then(told(Answer::Over)));
    refused(&FENCED, &then(told(Answer::NeverGranted)));
    // And the successor keeps its own.
    let [first, second] = ops;
    refused(
        &ALL,
        &[first, second, told(Answer::Over), grant(3, 16, 17, 7, 26)],
    );
}

#[test]
fn a_refusal_names_the_lease_in_the_way() {
    let first = grant(1, 1, 2, 5, 11);
    accepted(&ALL, &[first.clone(), refuse(2, 3, 4, held(1, 5, 8))]);
    refused(&ALL, &[first.clone(), refuse(2, 3, 4, held(3, 5, 8))]);
    refused(&ALL, &[first.clone(), refuse(2, 3, 4, held(1, 4, 8))]);
    // So much isn't left of it, and so little neither.
    refused(&ALL, &[first.clone(), refuse(2, 3, 4, held(1, 5, 9))]);
    refused(&ALL, &[first.clone(), refuse(2, 3, 4, held(1, 5, 6))]);
    refused(
        &ALL,
        &[first, release(1, 3, 4, 5), refuse(2, 5, 6, held(1, 5, 6))],
    );
}

#[test]
fn entering_again_keeps_the_token() {
    let first = enter(1, 1, 2, 5, 11);
    let again = |token| enter(1, 3, 4, token, 13);
    accepted(&REENTRANT, &[first.clone(), again(5)]);
    refused(&ALL, &[first.clone(), again(6)]);
    refused(
        &[Spec::OwnerAwareMutex, Spec::FencedMutex],
        &[first.clone(), again(5)],
    );
    // Another owner's.
    refused(&ALL, &[first.clone(), enter(2, 3, 4, 5, 13)]);
    // Who enters what it holds isn't refused.
    let mut denied = again(5);
    denied.answer = held(1, 5, 8);
    refused(&REENTRANT, &[first.clone(), denied]);
    let twice = [first, again(5), release(1, 5, 6, 5)];
    let [a, b, c] = twice.clone();
    refused(&REENTRANT, &[a, b, c, grant(2, 7, 8, 6, 17)]);
    let [a, b, c] = twice;
    accepted(
        &REENTRANT,
        &[a, b, c, release(1, 7, 8, 5), grant(2, 9, 10, 6, 19)],
    );
}

#[test]
fn more_permits_than_there_are_are_refused() {
    let permit = |owner: usize, from, token, until| {
        let op = grant(owner, from, from + 1, token, until);
        with_mode(Mode::Permit { of: 2 }, op)
    };
    let two = [permit(1, 1, 5, 11), permit(2, 3, 6, 13)];
    let then = |ops: Vec<Op>| [two.to_vec(), ops].concat();
    let modes = &[Spec::Modes];
    accepted(modes, &two);
    refused(&MUTEXES, &two);
    refused(modes, &then(vec![permit(3, 5, 7, 15)]));
    accepted(modes, &then(vec![permit(3, 11, 7, 21)]));
    accepted(modes, &then(vec![release(2, 5, 6, 6), permit(3, 7, 7, 17)]));
    refused(modes, &then(vec![grant(3, 11, 12, 7, 21)]));
    // Who gave up had one, as the refusal shows: it is over by its end at the latest.
    let mut gave_up = waited(6, permit(4, 5, 0, 0));
    (gave_up.answer, gave_up.ret, gave_up.hi) = (Answer::GaveUp, 30, 30 * MS);
    let seen = Op {
        id: 100,
        ..with_mode(Mode::Permit { of: 1 }, refuse(3, 12, 13, held(4, 7, 9)))
    };
    let full = [permit(2, 23, 8, 33), permit(3, 25, 9, 35)];
    let rest = [
        two[0].clone(),
        gave_up,
        seen,
        full[0].clone(),
        full[1].clone(),
    ];
    accepted(modes, &rest);
    let mut denied = permit(3, 5, 7, 15);
    denied.answer = held(2, 6, 8);
    accepted(modes, &then(vec![denied.clone()]));
    refused(
        modes,
        &[
            two[0].clone(),
            Op {
                answer: held(1, 5, 6),
                ..denied
            },
        ],
    );
}

#[test]
fn who_shares_and_who_does_not_are_kept_apart() {
    let modes = &[Spec::Modes];
    let both = [share(1, 1, 2, 5, 11), share(2, 3, 4, 6, 13)];
    let then = |ops: Vec<Op>| [both.to_vec(), ops].concat();
    accepted(modes, &both);
    refused(&MUTEXES, &both);
    refused(modes, &then(vec![grant(3, 5, 6, 7, 15)]));
    refused(modes, &[grant(1, 1, 2, 5, 11), share(2, 3, 4, 6, 13)]);
    // One ends the other's: two that share are two leases.
    refused(modes, &then(vec![release(1, 5, 6, 5), over(2, 7, 8, 6)]));
    let downgrade = op(1, 3, 4, Ask::Downgrade { token: 5 }, Answer::Done);
    let first = grant(1, 1, 2, 5, 11);
    accepted(
        modes,
        &[first.clone(), downgrade.clone(), share(2, 5, 6, 6, 15)],
    );
    refused(modes, &[first, downgrade, grant(2, 5, 6, 6, 15)]);
    let upgrade = |answer| {
        let ask = Ask::Upgrade {
            token: 5,
            ttl: TTL * MS,
        };
        op(1, 5, 6, ask, answer)
    };
    refused(modes, &then(vec![upgrade(granted(7, 15))]));
    let mut alone = vec![both[0].clone(), upgrade(granted(7, 15))];
    accepted(modes, &alone);
    alone.push(over(2, 7, 8, 5));
    accepted(modes, &alone);
    alone.push(share(2, 9, 10, 8, 19));
    refused(modes, &alone);
    refused(modes, &[both[0].clone(), upgrade(granted(5, 15))]);
    refused(modes, &then(vec![upgrade(Answer::Deadlock)]));
    accepted(modes, &then(vec![upgrade(Answer::GaveUp)]));
}

/// I7.
#[test]
fn a_waiter_out_of_turn_is_refused() {
    let mut first = grant(1, 1, 2, 5, 31);
    if let Ask::Acquire(wish) = &mut first.ask {
        wish.ttl = 30 * MS;
    }
    let freed = release(1, 10, 11, 5);
    let a = waited(4, grant(2, 3, 13, 6, 20));
    // It came when the other was in the queue.
    let b = waited(7, grant(3, 6, 12, 6, 20));
    refused(
        &ALL,
        &[
            first.clone(),
            freed.clone(),
            b.clone(),
            Op {
                answer: granted(7, 24),
                ..a.clone()
            },
        ],
    );
    let gave_up = Op {
        answer: Answer::GaveUp,
        ..a.clone()
    };
    // Who gave up was not in the way, once it had.
    accepted(
        &ALL,
        &[first.clone(), freed.clone(), b.clone(), gave_up.clone()],
    );
    let mut later = Op {
        dropped: Some((13, 13 * MS)),
        ret: 14,
        hi: 14 * MS,
        ..gave_up
    };
    if let Ask::Acquire(wish) = &mut later.ask {
        wish.ttl = 30 * MS;
    }
    let taken = Op {
        ret: 12,
        hi: 12 * MS,
        ..b.clone()
    };
    // It can't have been granted the key and passed it on: it had not gone by then.
    refused(&ALL, &[first.clone(), freed.clone(), taken, later]);
    // Nobody barges in.
    let barges = grant(4, 12, 13, 7, 22);
    let a = Op {
        ret: 15,
        answer: granted(8, 24),
        ..a
    };
    refused(
        &ALL,
        &[first.clone(), freed.clone(), a.clone(), barges.clone()],
    );
    let a = Op { queued: None, ..a };
    // Unless nobody knows that it was in the queue.
    let [barges, left] = [barges, release(4, 13, 14, 7)];
    let a = Op {
        ret: 16,
        call: 3,
        ..a
    };
    accepted(&ALL, &[first, freed, a, barges, left]);
}

#[test]
fn what_nobody_has_heard_may_have_happened_or_not() {
    let unheard = |from, owner: u64| lost(from, owner as usize, Ask::Acquire(wish(owner)));
    // It did: it is in the way, and its token is as good as another.
    let known = [unheard(1, 1), refuse(2, 3, 4, held(1, 5, 8))];
    let then = |op: Op| [known[0].clone(), known[1].clone(), op];
    accepted(&ALL, &known);
    refused(&ALL, &then(grant(3, 5, 6, 7, 15)));
    accepted(&ALL, &then(grant(3, 11, 12, 7, 21)));
    refused(&FENCED, &then(grant(3, 11, 12, 4, 21)));
    // It did not, or not yet.
    accepted(&ALL, &[unheard(1, 1), grant(2, 3, 4, 5, 13)]);
    let later = refuse(3, 25, 26, held(1, 6, 9));
    accepted(&ALL, &[unheard(1, 1), grant(2, 3, 4, 5, 13), later.clone()]);
    refused(&ALL, &[grant(2, 3, 4, 5, 13), later]);
    let first = grant(1, 1, 2, 5, 11);
    let by = By::Token;
    let released = lost(3, 2, Ask::Release { token: 5, by });
    let second = grant(2, 5, 6, 6, 15);
    accepted(&ALL, &[first.clone(), released.clone(), second.clone()]);
    accepted(
        &ALL,
        &[first.clone(), released.clone(), live(3, 5, 6, (1, 5, 11))],
    );
    // But not both, one after the other.
    refused(
        &ALL,
        &[first.clone(), released, second, live(3, 7, 8, (1, 5, 11))],
    );
    let ttl = 20 * MS;
    let renewed = lost(3, 2, Ask::Renew { token: 5, ttl, by });
    let denied = refuse(2, 15, 16, held(1, 5, 9));
    refused(&ALL, &[first.clone(), denied.clone()]);
    accepted(&ALL, &[first.clone(), renewed.clone(), denied]);
    accepted(&ALL, &[first, renewed, grant(2, 11, 12, 6, 21)]);
}

#[test]
fn who_gave_up_may_have_held_the_key_until_then_and_no_longer() {
    let first = grant(1, 1, 2, 5, 11);
    let mut gave_up = waited(4, grant(2, 3, 9, 0, 0));
    gave_up.answer = Answer::GaveUp;
    let freed = release(1, 5, 6, 5);
    let seen = |from, to| refuse(3, from, to, held(2, 6, 9));
    let ops = |op: Op| [first.clone(), gave_up.clone(), freed.clone(), op];
    accepted(&ALL, &ops(seen(7, 8)));
    accepted(&ALL, &ops(grant(3, 10, 11, 6, 20)));
    refused(&ALL, &ops(seen(10, 11)));
    refused(&ALL, &[first.clone(), gave_up.clone(), seen(7, 8)]);
    // Granted and given back: the next token is above the one that was seen.
    let [a, b, c, d] = ops(seen(7, 8));
    refused(&FENCED, &[a, b, c, d, grant(3, 10, 11, 6, 20)]);
}

#[test]
fn a_lease_lasts_as_long_as_its_session() {
    let ttl = TTL * MS;
    let session = 3;
    let open = op(1, 1, 2, Ask::Open { session, ttl }, until(11));
    let mut first = grant(1, 3, 4, 5, 0);
    first.answer = Answer::Granted {
        token: 5,
        least: 0,
        most: u64::MAX,
    };
    if let Ask::Acquire(wish) = &mut first.ask {
        wish.session = Some(session);
    }
    let kept = op(1, 9, 10, Ask::KeepAlive { session, ttl }, until(19));
    let ops = |ops: Vec<Op>| [vec![open.clone(), first.clone()], ops].concat();
    accepted(&ALL, &ops(vec![grant(2, 11, 12, 6, 21)]));
    refused(&ALL, &ops(vec![kept.clone(), grant(2, 11, 12, 6, 21)]));
    accepted(&ALL, &ops(vec![kept.clone(), grant(2, 19, 20, 6, 29)]));
    let close = |answer| op(1, 5, 6, Ask::Close { session }, answer);
    accepted(&ALL, &ops(vec![close(Answer::Done), grant(2, 7, 8, 6, 17)]));
    refused(
        &ALL,
        &ops(vec![close(Answer::Done), live(2, 7, 8, (1, 5, 11))]),
    );
    refused(&ALL, &ops(vec![close(Answer::Over)]));
    // Told that it is over, and then kept alive.
    let late = op(1, 13, 14, Ask::KeepAlive { session, ttl }, until(23));
    refused(&ALL, &ops(vec![over(2, 11, 12, 5), late]));
}

/// As `LockManager::release` and `revoke` say of themselves.
#[test]
fn of_two_that_end_a_lease_at_the_same_time_both_may_say_so() {
    let first = grant(1, 1, 2, 5, 11);
    let revoked = revoke(2, 3, 6, 1, 5);
    accepted(&ALL, &[first.clone(), revoked.clone(), release(1, 4, 7, 5)]);
    refused(&ALL, &[first.clone(), revoked.clone(), release(1, 7, 8, 5)]);
    // One of two revocations only.
    refused(&ALL, &[first, revoked, revoke(3, 4, 7, 1, 5)]);
}

/// A long history in which all is well: leases, renewals, refusals and look-ups of four owners in turn.
fn long() -> Vec<Op> {
    let mut ops = vec![];
    for turn in 0..20_u64 {
        let (at, token) = (1 + turn * 20, 10 + turn);
        let (owner, other) = ((1 + turn % 4) as usize, (1 + (turn + 1) % 4) as usize);
        ops.push(grant(owner, at, at + 2, token, at + 10));
        let left = held(owner as u64, token, 7);
        ops.push(refuse(other, at + 3, at + 5, left));
        ops.push(renew(owner, at + 6, at + 7, token, until(at + 16)));
        let now = (owner as u64, token, at + 16);
        ops.push(live(other, at + 8, at + 9, now));
        if turn % 2 == 0 {
            ops.push(release(owner, at + 10, at + 11, token));
        } else {
            ops.push(over(other, at + 16, at + 17, token));
        }
    }
    ops
}

#[test]
fn a_long_bad_history_is_reduced_to_its_core() {
    let ids = |ops: &[Op]| ops.iter().map(|op| op.id).collect::<Vec<_>>();
    let spec = Spec::FencedMutex;
    accepted(&[spec], &long());
    // The second lease was renewed at 27, to 37.
    let mut double = long();
    double.push(grant(4, 30, 32, 500, 40));
    assert_eq!(ids(&spec.minimised(&double)), [21, 27, 30]);
    // Within the first 10 ms of it, without the renewal.
    let mut double = long();
    double.push(grant(4, 25, 26, 500, 36));
    assert_eq!(ids(&spec.minimised(&double)), [21, 25]);
    let mut falls = long();
    for op in &mut falls {
        if op.id == 221
            && let Answer::Granted { token, .. } = &mut op.answer
        {
            *token = 2;
        }
    }
    let core = spec.minimised(&falls);
    assert_eq!(ids(&core), [201, 207, 211, 221]);
    let fault = spec.fault(&falls).expect("it is bad");
    assert!(fault.contains("It is but for its tokens"), "{fault}");
    let mut early = long();
    early.push(over(4, 30, 32, 11));
    assert_eq!(ids(&spec.minimised(&early)), [21, 27, 30]);
}

#[test]
fn the_timeline_shows_the_fault() {
    let ops = [
        grant(1, 1, 4, 5, 11),
        renew(1, 5, 6, 5, until(15)),
        grant(2, 3, 7, 6, 17),
    ];
    let expected = [
        "         clock  process 1                          process 2",
        "       1.000ms  ┌ try o1 10.000ms",
        "       3.000ms  │                                  ┌ try o2 10.000ms",
        "       4.000ms  └ granted #5 to 11.000ms           │",
        "       5.000ms  ┌ renew #5 10.000ms                │",
        "       6.000ms  └ ok, to 15.000ms                  │",
        "       7.000ms                                     └ granted #6 to 17.000ms",
        "",
    ];
    assert_eq!(timeline(&ops), expected.join("\n"));
}

/// What the minimiser may leave out of a real history, and where it may cut it, leaves one that is as good:
/// so what is left of a bad one is bad in its own right.
#[test]
fn nothing_that_may_be_left_out_makes_a_good_history_bad() {
    let mut rng = fastrand::Rng::with_seed(5);
    let (mut histories, mut reduced) = (0, 0);
    for workload in everything() {
        for ops in workload
            .histories(rng.u64(..))
            .into_values()
            .take(scale() as usize)
        {
            histories += 1;
            let mut rest = ops.clone();
            loop {
                if rng.u8(..) < 20 {
                    let end = rest[rng.usize(0..rest.len())].ret;
                    rest = prefix(&rest, end);
                }
                let mut units = units(&rest);
                rng.shuffle(&mut units);
                let Some(less) = units.iter().find_map(|unit| without(&rest, unit)) else {
                    break;
                };
                reduced += 1;
                let fault = workload.spec.fault(&less);
                assert!(fault.is_none(), "{}: {fault:?}", workload.name);
                rest = less;
                if rest.is_empty() {
                    break;
                }
            }
        }
    }
    println!("{reduced} reductions of {histories} histories");
    assert!(reduced > 5 * histories, "{reduced} of {histories}");
}

fn with_terms(delay: u64, hold: u64, mut op: Op) -> Op {
    if let Ask::Acquire(wish) = &mut op.ask {
        (wish.lock_delay, wish.min_hold) = (delay * MS, hold * MS);
    }
    op
}

fn delayed(remaining: u64) -> Answer {
    let remaining = remaining * MS;
    Answer::Delayed { remaining }
}

/// What a checkpoint says, from one point to another: leases by owner, token and deadline.
fn checkpoint(from: u64, to: u64, leases: &[(u64, u64, u64)], kept: u64, floor: u64) -> Op {
    let seen = |&(owner, token, until): &(u64, u64, u64)| Seen {
        token,
        owner,
        mode: Mode::Exclusive,
        from: until * MS,
        till: until * MS,
    };
    let all = Everyone {
        holders: leases.iter().map(seen).collect(),
        waiters: None,
        kept: Some((kept * MS, kept * MS)),
        floor: Some(floor),
    };
    let ask = Ask::Everyone(View::Checkpoint);
    op(9, from, to, ask, Answer::Everyone(all))
}

fn snapshot(from: u64, to: u64, waiters: &[u64]) -> Op {
    let mut op = checkpoint(from, to, &[(1, 5, 11)], 0, 0);
    op.ask = Ask::Everyone(View::Snapshot);
    if let Answer::Everyone(all) = &mut op.answer {
        (all.waiters, all.floor) = (Some(waiters.to_vec()), None);
    }
    op
}

#[test]
fn a_key_that_is_kept_free_is_not_granted() {
    // Expired at 11, and kept free to 16.
    let first = with_terms(5, 0, grant(1, 1, 2, 5, 11));
    refused(&ALL, &[first.clone(), grant(2, 14, 15, 6, 25)]);
    accepted(&ALL, &[first.clone(), grant(2, 15, 16, 6, 25)]);
    accepted(&ALL, &[first.clone(), refuse(2, 13, 14, delayed(3))]);
    // So much isn't left, nor so little, and not before the end of the lease.
    refused(&ALL, &[first.clone(), refuse(2, 13, 14, delayed(6))]);
    refused(&ALL, &[first.clone(), refuse(2, 13, 14, delayed(1))]);
    refused(&ALL, &[first.clone(), refuse(2, 9, 10, delayed(6))]);
    // Whoever has been told so, is told it for all.
    let told = refuse(2, 13, 14, delayed(4));
    accepted(&ALL, &[first.clone(), told.clone()]);
    refused(&ALL, &[first.clone(), told, grant(3, 15, 16, 6, 25)]);
    // A clean end has no such effect.
    let released = [first.clone(), release(1, 3, 4, 5)];
    let then = |op: Op| [released[0].clone(), released[1].clone(), op];
    accepted(&ALL, &then(grant(2, 5, 6, 6, 15)));
    refused(&ALL, &then(refuse(2, 5, 6, delayed(5))));
    // A revocation does.
    let revoked = [first, revoke(2, 3, 4, 1, 5)];
    let then = |op: Op| [revoked[0].clone(), revoked[1].clone(), op];
    refused(&ALL, &then(grant(2, 6, 7, 6, 16)));
    accepted(&ALL, &then(grant(2, 7, 8, 6, 17)));
    accepted(&ALL, &then(refuse(2, 6, 7, delayed(3))));
}

#[test]
fn a_minimum_hold_outlasts_the_release() {
    let ops = [with_terms(0, 6, grant(1, 1, 2, 5, 11)), release(1, 3, 4, 5)];
    let then = |op: Op| [ops[0].clone(), ops[1].clone(), op];
    refused(&ALL, &then(grant(2, 5, 6, 6, 15)));
    accepted(&ALL, &then(grant(2, 6, 7, 6, 17)));
    accepted(&ALL, &then(refuse(2, 5, 6, delayed(3))));
    refused(&ALL, &then(refuse(2, 5, 6, delayed(6))));
    // It is no lock-delay: the grant's time counts.
    let [first, _] = ops;
    accepted(&ALL, &[first.clone(), grant(2, 11, 12, 6, 21)]);
    refused(&ALL, &[first, refuse(2, 11, 12, delayed(1))]);
}

#[test]
fn the_sessions_end_tells_whether_its_keys_are_kept_free() {
    let session = 3;
    let ttl = TTL * MS;
    let open = op(1, 1, 2, Ask::Open { session, ttl }, until(11));
    let mut first = with_terms(5, 0, grant(1, 3, 4, 5, 0));
    if let (Ask::Acquire(wish), Answer::Granted { least, most, .. }) =
        (&mut first.ask, &mut first.answer)
    {
        wish.session = Some(session);
        (*least, *most) = (0, u64::MAX);
    }
    let ops = |end: Op, then: Op| [open.clone(), first.clone(), end, then];
    let closed = op(1, 5, 6, Ask::Close { session }, Answer::Done);
    accepted(&ALL, &ops(closed.clone(), grant(2, 7, 8, 6, 17)));
    refused(&ALL, &ops(closed, refuse(2, 7, 8, delayed(3))));
    let over = op(1, 12, 13, Ask::KeepAlive { session, ttl }, Answer::Over);
    refused(&ALL, &ops(over.clone(), grant(2, 14, 15, 6, 25)));
    accepted(&ALL, &ops(over.clone(), grant(2, 15, 16, 6, 25)));
    accepted(&ALL, &ops(over, refuse(2, 14, 15, delayed(2))));
}

#[test]
fn a_checkpoint_has_all_that_there_is() {
    let first = grant(1, 1, 2, 5, 11);
    let then = |op: Op| [first.clone(), op];
    accepted(&ALL, &then(checkpoint(3, 4, &[(1, 5, 11)], 0, 5)));
    // It lacks the lease, has another's, another deadline, or one too many; or a token is above its floor.
    refused(&ALL, &then(checkpoint(3, 4, &[], 0, 5)));
    refused(&ALL, &then(checkpoint(3, 4, &[(2, 5, 11)], 0, 5)));
    refused(&ALL, &then(checkpoint(3, 4, &[(1, 5, 12)], 0, 5)));
    refused(
        &ALL,
        &then(checkpoint(3, 4, &[(1, 5, 11), (2, 6, 11)], 0, 6)),
    );
    refused(&FENCED, &then(checkpoint(3, 4, &[(1, 5, 11)], 0, 4)));
    // It says that the key is kept free, and it is not; and the other way round.
    refused(&ALL, &then(checkpoint(12, 13, &[], 15, 5)));
    accepted(&ALL, &then(checkpoint(12, 13, &[], 0, 5)));
    let kept = with_terms(5, 0, first.clone());
    let then = |op: Op| [kept.clone(), op];
    accepted(&ALL, &then(checkpoint(12, 13, &[], 16, 5)));
    refused(&ALL, &then(checkpoint(12, 13, &[], 0, 5)));
    refused(&ALL, &then(checkpoint(12, 13, &[], 30, 5)));
    // Beside a release it may have come before or after.
    let ops = |op: Op| [first.clone(), release(1, 3, 6, 5), op];
    accepted(&ALL, &ops(checkpoint(4, 5, &[], 0, 5)));
    accepted(&ALL, &ops(checkpoint(4, 5, &[(1, 5, 11)], 0, 5)));
    // A part of many keys is not in it; the whole is, with its deadline.
    let mut part = grant(1, 1, 5, 5, 12);
    if let Ask::Acquire(wish) = &mut part.ask {
        wish.one_of_many = true;
    }
    let held = refuse(2, 2, 3, held(1, 5, 99));
    let ops = |op: Op| [part.clone(), held.clone(), op];
    accepted(&ALL, &ops(checkpoint(4, 5, &[], 0, 5)));
    accepted(&ALL, &ops(checkpoint(4, 5, &[(1, 5, 12)], 0, 5)));
    refused(&ALL, &ops(checkpoint(4, 5, &[(1, 5, 99)], 0, 5)));
    refused(&ALL, &ops(checkpoint(6, 7, &[], 0, 5)));
}

#[test]
fn a_snapshot_has_those_who_wait_in_their_order() {
    let gives_up = |owner: usize, from: u64, queued| {
        let ask = Ask::Acquire(wish(owner as u64));
        let mut op = waited(queued, op(owner, from, 10, ask, Answer::GaveUp));
        op.dropped = Some((9, 9 * MS));
        op
    };
    let ops = |view: Op| {
        let waiters = [gives_up(2, 3, 4), gives_up(3, 5, 6)];
        let [two, three] = waiters;
        [grant(1, 1, 2, 5, 11), two, three, view]
    };
    accepted(&ALL, &ops(snapshot(7, 8, &[2, 3])));
    refused(&ALL, &ops(snapshot(7, 8, &[3, 2])));
    refused(&ALL, &ops(snapshot(7, 8, &[2])));
    refused(&ALL, &ops(snapshot(7, 8, &[2, 3, 4])));
}
