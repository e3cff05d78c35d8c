//! What can happen between the steps of an operation, and at the end of all room.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Denied, Engine, Entered, Options, Request};
use crate::error::AcquireError;
use crate::key::HashSeed;
use crate::table::{Ended, Narrow, Origin, Unrenewed, Wide};
use crate::timeline::Timeline;
use crate::wish::{Mode, Wish};
use crate::{Key, ManualClock};

const MS: Duration = Duration::from_millis(1);

fn engine(clock: &ManualClock) -> Arc<Engine<Wide>> {
    let time = Timeline::new(
        Arc::new(clock.clone()),
        1_000_000,
        Duration::from_nanos(1),
        Duration::from_secs(1000),
    );
    Engine::new(Options {
        seed: HashSeed::new(3),
        time,
        buckets: 64,
        max_leases: None,
        max_waiters_per_key: usize::MAX,
        max_waiters: usize::MAX,
        deadlock_depth: 0,
        introspection: false,
        origin: Origin::default(),
    })
    .expect("memory")
}

/// While somebody observes, the wheel's look leaves an expiry to whoever takes the record's lock, and
/// watches the lease no longer. A renewal that has read the clock before and takes that lock first wins
/// (I5), and then nobody looks at the lease again: it is never ended, and its waiter never served.
#[test]
fn a_lease_that_is_renewed_after_the_wheels_look_is_watched_still() {
    for observed in [false, true] {
        let clock = ManualClock::new();
        let engine = engine(&clock);
        let _stream = observed.then(|| engine.observe(10));
        let request = Request {
            key: Key::from_raw(1),
            owner: 1,
            ttl: 10 * MS,
            at_least: 0,
        };
        let granted = engine.enter_now(&Wish::plain(request)).expect("free");
        let name = engine.name(request.key, granted.token);
        let before = engine.time.now();
        clock.advance(10 * MS);
        engine.with(engine.time.now(), |local| {
            engine.turn(local);
            // The dues are not followed up yet. The other thread has read the clock before the tick.
            std::thread::scope(|scope| {
                let renewal = scope.spawn(|| engine.renew_by_key(&name, 20, before));
                let renewed = renewal.join().expect("no panic");
                assert_eq!(
                    renewed.is_ok(),
                    observed,
                    "the wheel has ended it otherwise"
                );
            });
        });
        let next = Wish::plain(Request {
            owner: 2,
            ..request
        });
        let Ok(Entered::Waiting(waiter)) = engine.enter(&next, observed) else {
            assert!(!observed, "it was renewed");
            continue;
        };
        for _ in 0..50 {
            clock.advance(MS);
            engine.advance();
        }
        assert!(waiter.take().is_some(), "40 ticks past the deadline");
        assert_eq!(engine.totals().leases, 0, "40 ticks past its deadline");
    }
}

fn narrow(clock: &ManualClock, max_leases: Option<usize>) -> Arc<Engine<Narrow>> {
    let time = Timeline::new(
        Arc::new(clock.clone()),
        1_000_000,
        Duration::from_nanos(1),
        Duration::from_millis(500),
    );
    Engine::new(Options {
        seed: HashSeed::new(3),
        time,
        buckets: 64,
        max_leases,
        max_waiters_per_key: usize::MAX,
        max_waiters: usize::MAX,
        deadlock_depth: 0,
        introspection: false,
        origin: Origin::default(),
    })
    .expect("memory")
}

/// I9: each quarantined key takes two cells and a record, so it counts within the limit on leases; else
/// memory would follow the keys that were seen.
#[test]
fn quarantined_keys_are_within_the_limit() {
    let clock = ManualClock::new();
    let engine = narrow(&clock, Some(10));
    let mut memory = [0; 2];
    for key in 0..20_000_u128 {
        let mut wish = Wish::plain(Request {
            key: Key::from_raw(key),
            owner: 1,
            ttl: MS,
            at_least: 0,
        });
        wish.terms.lock_delay = Duration::from_secs(3600);
        let _ = engine.enter_now(&wish);
        clock.advance(MS);
        engine.advance();
        assert_eq!(engine.totals().leases, 0);
        memory[usize::from(key > 100)] = engine.memory();
    }
    let plain = Request {
        key: Key::from_raw(1 << 64),
        owner: 1,
        ttl: MS,
        at_least: 0,
    };
    let full = engine.enter_now(&Wish::plain(plain)).map(drop);
    assert!(full.is_err(), "ten keys are kept free");
    assert!(memory[1] < 4 * memory[0], "{memory:?} bytes");
    clock.advance(Duration::from_secs(3700));
    engine.advance();
    for key in 0..10 {
        let key = Key::from_raw(key);
        let granted = engine.enter_now(&Wish::plain(Request { key, ..plain }));
        assert!(granted.is_ok(), "{key}: {granted:?}");
    }
}

/// A session takes a cell: when there are none, it is refused. (As shipped, after 16,777,216.)
#[test]
fn one_session_too_many_is_refused() {
    let clock = ManualClock::new();
    let engine = narrow(&clock, Some(10));
    let sessions: Vec<_> = (0..70_000)
        .map(|_| engine.open_session(crate::OwnerId(1), 100 * MS, false))
        .collect();
    assert!(sessions.iter().any(Result::is_err));
}

/// A lease that is watched takes a mark: where there are no cells for that, it is told so.
#[test]
fn all_leases_of_a_full_table_can_be_watched() {
    let clock = ManualClock::new();
    let engine = narrow(&clock, None);
    let mut signals = vec![];
    for key in 0.. {
        let request = Request {
            key: Key::from_raw(key),
            owner: 1,
            ttl: 500 * MS,
            at_least: 0,
        };
        let Ok(granted) = engine.enter_now(&Wish::plain(request)) else {
            break;
        };
        signals.push((engine.name(request.key, granted.token), granted.deadline));
    }
    let mut unwatched = 0;
    for (name, deadline) in &signals {
        let signal = crate::Lost::new(engine.signal(name, *deadline));
        unwatched += usize::from(signal.now() == Some(crate::Loss::Unwatched));
    }
    assert!(
        unwatched > signals.len() / 2,
        "{unwatched} of {}",
        signals.len()
    );
}

/// Takes all that there is room for, plain; so many leases.
fn fill(engine: &Arc<Engine<Narrow>>) -> u64 {
    let mut leases = 0;
    while engine.enter_now(&Wish::plain(plain(leases, 500))).is_ok() {
        leases += 1;
    }
    leases
}

fn plain(key: u64, ttl: u32) -> Request {
    Request {
        key: Key::from_raw(u128::from(key)),
        owner: 1,
        ttl: ttl * MS,
        at_least: 0,
    }
}

/// Where there is no room for a mark, nobody can wait, nor enter a plain lease again: both are told so.
#[test]
fn a_full_table_refuses_whatever_takes_a_mark() {
    let clock = ManualClock::new();
    let engine = narrow(&clock, None);
    assert!(fill(&engine) > 0);
    let mut wish = Wish::plain(Request {
        owner: 2,
        ..plain(0, 500)
    });
    let waits = engine.enter(&wish, true);
    let full = |denied| matches!(denied, Denied::Other(AcquireError::CapacityExceeded { .. }));
    assert!(waits.is_err_and(full));
    wish.reentrant = true;
    wish.request.owner = 1;
    let again = engine.enter(&wish, false);
    assert!(again.is_err_and(|denied| matches!(denied, Denied::Held { owner: 1, .. })));
}

/// A lease that the wheel could not end is none that may be granted.
#[test]
fn what_a_full_table_grants_it_ends_in_time() {
    let clock = ManualClock::new();
    let engine = narrow(&clock, None);
    let session = engine.open_session(crate::OwnerId(1), 500 * MS, false);
    let session = session.expect("there is room");
    let leases = fill(&engine);
    // The session has a timer: its lease takes a mark, and one place is enough.
    engine.revoke(Key::from_raw(50), engine.time.now());
    let mut wish = Wish::plain(plain(leases + 50, 100));
    wish.session = Some(Arc::clone(&session));
    assert!(engine.enter_now(&wish).is_ok());
    let mut granted = 0;
    for key in 0..20 {
        // One more place each time.
        engine.revoke(Key::from_raw(u128::from(key)), engine.time.now());
        let mut wish = Wish::plain(plain(leases + key, 100));
        wish.mode = Mode::Shared;
        granted += i64::from(engine.enter_now(&wish).is_ok());
        wish.request.key = Key::from_raw(u128::from(leases + 100 + key));
        wish.session = Some(Arc::clone(&session));
        wish.terms.lock_delay = 100 * MS;
        granted += i64::from(engine.enter_now(&wish).is_ok());
    }
    assert!(granted > 0);
    for _ in 0..700 {
        clock.advance(MS);
        engine.advance();
    }
    assert_eq!(engine.totals().leases, 0);
    let records = engine.records.stripes();
    let left: usize = records.map(|stripe| stripe.lock().records.len()).sum();
    assert_eq!(left, 0, "records that nobody will look at");
}

/// Leases that are over and not swept yet are in nobody's way.
#[test]
fn a_table_that_is_full_of_what_is_over_grants() {
    let clock = ManualClock::new();
    let engine = narrow(&clock, None);
    let leases = fill(&engine);
    clock.advance(500 * MS);
    let request = plain(leases, 500);
    let granted = match engine.grant(request) {
        Ok(_) => true,
        Err(begun) => engine.grant_more(begun, &request).is_ok(),
    };
    assert!(granted);
    assert_eq!(engine.totals().leases, 1);
}

/// A thread may die before it has left the queue: whoever comes after it is served all the same.
#[test]
fn a_waiter_that_nobody_has_any_more_is_passed_over() {
    let clock = ManualClock::new();
    let engine = engine(&clock);
    let held = engine.enter_now(&Wish::plain(plain(1, 500))).expect("free");
    let wait = |owner| {
        let wish = Wish::plain(Request {
            owner,
            ..plain(1, 500)
        });
        match engine.enter(&wish, true) {
            Ok(Entered::Waiting(waiter)) => waiter,
            other => panic!("{other:?}"),
        }
    };
    drop(wait(2));
    let next = wait(3);
    drop(wait(4));
    let name = engine.name(Key::from_raw(1), held.token);
    let released = engine.release_by_key(&name, engine.time.now());
    assert_eq!(released, Ok(()));
    assert!(matches!(next.take(), Some(Ok(_))));
    drop(next);
    assert!(
        !engine
            .revoke(Key::from_raw(1), engine.time.now())
            .is_empty()
    );
    assert_eq!((engine.waiting(), engine.totals().leases), (0, 0));
}

/// A lease that is entered again and again and never left must not be free once its entries are counted round.
#[test]
fn entries_of_a_lease_are_counted_to_the_end_and_no_further() {
    let clock = ManualClock::new();
    let engine = engine(&clock);
    let mut wish = Wish::plain(plain(1, 500));
    wish.reentrant = true;
    wish.mode = Mode::Shared;
    engine.enter_now(&wish).expect("free");
    for stripe in engine.records.stripes() {
        for record in stripe.lock().records.values_mut() {
            let token = record.holders.last().expect("it holds the lease").token;
            record.holders.change(token, |it| it.entries = u32::MAX - 1);
        }
    }
    assert!(engine.enter_now(&wish).is_ok());
    for _ in 0..2 {
        let full = engine.enter_now(&wish);
        assert!(matches!(
            full,
            Err(Denied::Other(AcquireError::CapacityExceeded {
                capacity: 4_294_967_295
            }))
        ));
    }
}

/// A grant is counted after it is published: the counts alone, which may say that there is none, prove nothing.
#[test]
fn a_lease_that_is_not_counted_yet_keeps_the_authority() {
    let clock = ManualClock::new();
    let engine = engine(&clock);
    engine.enter_now(&Wish::plain(plain(1, 500))).expect("free");
    assert!(!engine.is_idle(), "it may grant");
    assert!(engine.close_to_grants());
    engine.with(engine.time.now(), |local| local.counters.add_end());
    assert_eq!(engine.totals().leases, 0);
    assert!(!engine.is_idle(), "the lease is out");
    engine.with(engine.time.now(), |local| local.counters.add_grant());
    assert!(!engine.is_idle());
    clock.advance(500 * MS);
    assert!(engine.is_idle());
}

/// A session may be closed after a look has found it alive: then its new lease is none, and leaves nothing behind.
#[test]
fn a_lease_whose_session_closes_under_way_is_none() {
    let clock = ManualClock::new();
    let engine = engine(&clock);
    let session = engine.open_session(crate::OwnerId(1), 500 * MS, false);
    let session = session.expect("there is room");
    let mut wish = Wish::plain(plain(1, 500));
    wish.session = Some(Arc::clone(&session));
    let held = engine.enter_now(&wish).expect("free");
    let name = engine.name(Key::from_raw(1), held.token);
    engine
        .release_by_key(&name, engine.time.now())
        .expect("held");
    // What closes it is half done.
    session.book.lock().closed = true;
    let before = engine.cells();
    for key in 1..2_000 {
        wish.request = plain(key, 500);
        wish.mode = [Mode::Exclusive, Mode::Shared][key as usize % 2];
        let refused = engine.enter_now(&wish);
        assert!(
            matches!(refused, Err(Denied::Other(AcquireError::SessionOver))),
            "{refused:?}"
        );
    }
    let more = engine.cells() - before;
    assert!(more < 500, "{more} cells for what was refused");
    assert_eq!(engine.totals().leases, 0);
    let next = engine.enter_now(&Wish::plain(plain(1, 500)));
    assert!(next.expect("it is free").token > held.token);
}

/// The leases of a session are over with it, for whoever walks them too, before they are taken down.
#[test]
fn a_walk_passes_over_leases_whose_session_is_over() {
    let clock = ManualClock::new();
    let engine = engine(&clock);
    let session = engine.open_session(crate::OwnerId(1), 500 * MS, false);
    let session = session.expect("there is room");
    let mut wish = Wish::plain(plain(1, 500));
    wish.session = Some(Arc::clone(&session));
    engine.enter_now(&wish).expect("free");
    let walked = || engine.recorded().map(|seen| seen.len()).sum::<usize>();
    assert_eq!(walked(), 1);
    assert!(session.close());
    assert_eq!(walked(), 0);
    assert!(engine.save().leases.is_empty());
}

/// The timer of a session may be set as somebody whose clock is ahead finds it over: then it rings all the same.
#[test]
fn a_timer_that_is_set_as_its_session_ends_rings() {
    let clock = ManualClock::new();
    clock.advance(100 * MS);
    let engine = engine(&clock);
    // As that of an acquisition of many, whose time begins now.
    let session = engine.open_session(crate::OwnerId(1), 50 * MS, true);
    let session = session.expect("there is room");
    let mut wish = Wish::plain(plain(1, 50));
    wish.session = Some(Arc::clone(&session));
    engine.enter_now(&wish).expect("free");
    let now = engine.time.now();
    let deadline = engine.time.deadline(now, 50 * MS).expect("in range");
    assert!(session.set_deadline(engine.time.tick_of(now), deadline));
    assert!(session.is_over(deadline));
    engine.set_session_timer(&session);
    clock.advance(51 * MS);
    engine.advance();
    assert_eq!(engine.totals().leases, 0);
    assert!(engine.sessions.lock().is_empty());
}

/// A session may be closed as it opens, before it has its timer; that is given back when it is dropped.
#[test]
fn a_timer_of_a_session_that_was_closed_as_it_opened_is_given_back() {
    let clock = ManualClock::new();
    let engine = engine(&clock);
    let session = engine.open_session(crate::OwnerId(1), 50 * MS, false);
    let session = session.expect("there is room");
    let timer = session.book.lock().timer.take();
    engine.close_session(&session);
    assert!(engine.sessions.lock().is_empty());
    let added = session.book.lock().add_lease(Key::from_raw(1), 1, 0);
    assert!(!added, "it is over");
    session.book.lock().timer = timer;
    engine.close_session(&session);
    assert_eq!(session.book.lock().timer, None);
}

/// Where there is no room for a record, a lease stays as it is, and is not called over.
#[test]
fn a_full_table_refuses_to_downgrade() {
    let clock = ManualClock::new();
    let engine = narrow(&clock, None);
    let held = engine.enter_now(&Wish::plain(plain(0, 500))).expect("free");
    // The first ones took the place of marks and timers.
    for key in 1.. {
        if engine.enter_now(&Wish::plain(plain(key, 500))).is_err() {
            break;
        }
    }
    let name = engine.name(Key::from_raw(0), held.token);
    assert_eq!(engine.downgrade(&name), Err(Unrenewed::NoMemory));
    assert!(engine.validate(&name, engine.time.now()).is_ok());
    clock.advance(500 * MS);
    let over = engine.downgrade(&name);
    assert_eq!(over, Err(Unrenewed::Ended(Ended::Expired)));
}
