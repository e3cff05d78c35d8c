//! Events and snapshots.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tenure::{Event, EventKind, Events, LockManager, ManualClock, Missed, Mode};

use crate::{Task, assert_idle, manual, ms, pass};

fn drain(events: &mut Events) -> Vec<Event> {
    std::iter::from_fn(|| events.try_next())
        .map(|event| event.expect("there is room"))
        .collect()
}

fn kinds(events: &mut Events) -> Vec<(EventKind, u64)> {
    let told = |event: Event| (event.kind, event.owner.0);
    drain(events).into_iter().map(told).collect()
}

#[test]
fn every_change_of_a_plain_lease_is_told_in_order() {
    use EventKind::{Expired, Granted, Reclaimed, Released, Renewed, Revoked};
    let (manager, clock) = manual();
    let before = manager.try_acquire("before", 9, ms(1000)).expect("free");
    let mut events = manager.events(100);
    let lease = manager.try_acquire("k", 1, ms(10)).expect("free");
    lease.renew(ms(20)).expect("live");
    assert!(manager.try_acquire("k", 2, ms(10)).is_err());
    lease.release().expect("live");
    assert_eq!(
        kinds(&mut events),
        [(Granted, 1), (Renewed, 1), (Released, 1), (Reclaimed, 1)]
    );
    let lost = manager.try_acquire("k", 2, ms(10)).expect("free");
    pass(&manager, &clock, 10);
    assert_eq!(
        kinds(&mut events),
        [(Granted, 2), (Expired, 2), (Reclaimed, 2)]
    );
    drop(lost);
    // Past its deadline and not swept: the thief tells of the end first.
    let _late = manager.try_acquire("k", 3, ms(10)).expect("free");
    clock.advance(ms(10));
    let thief = manager.try_acquire("k", 4, ms(10)).expect("over");
    manager.revoke("k").expect("held");
    assert!(thief.release().is_err());
    before.release().expect("live");
    assert_eq!(
        kinds(&mut events),
        [
            (Granted, 3),
            (Expired, 3),
            (Granted, 4),
            (Revoked, 4),
            (Reclaimed, 4),
            (Released, 9),
            (Reclaimed, 9)
        ]
    );
    assert_idle(&manager);
}

#[test]
fn changes_of_other_leases_are_told_too() {
    use EventKind::{Expired, GivenUp, Granted, Reclaimed, Released, Renewed};
    let (manager, clock) = manual();
    let mut events = manager.events(100);
    let mut a = manager
        .acquire("k", 1, ms(50))
        .shared()
        .try_now()
        .expect("free");
    let b = manager
        .acquire("k", 2, ms(50))
        .shared()
        .try_now()
        .expect("shared");
    drop(b);
    a.upgrade(ms(50)).wait().expect("alone");
    let mut waiting = Task::pending(manager.acquire("k", 3, ms(50)));
    a.downgrade().expect("live");
    drop(a);
    let plain = waiting.poll().expect("granted").expect("granted");
    plain.release().expect("live");
    assert_eq!(
        kinds(&mut events),
        [
            (Granted, 1),
            (Granted, 2),
            (Released, 2),
            // An upgrade.
            (Released, 1),
            (Granted, 1),
            (Renewed, 1),
            (Released, 1),
            (Granted, 3),
            (Released, 3),
            (Reclaimed, 3)
        ]
    );
    let kept = manager
        .acquire("k", 1, ms(9))
        .auto_renew(ms(10))
        .try_now()
        .expect("free");
    pass(&manager, &clock, 11);
    assert!(!kept.is_live());
    assert_eq!(
        kinds(&mut events),
        [
            (Granted, 1),
            (Renewed, 1),
            (GivenUp, 1),
            (Expired, 1),
            (Reclaimed, 1)
        ]
    );
    // Quarantined, it is not reclaimed before that is over.
    let _delayed = manager
        .acquire("k", 1, ms(5))
        .lock_delay(ms(5))
        .try_now()
        .expect("free");
    pass(&manager, &clock, 6);
    assert_eq!(kinds(&mut events), [(Granted, 1), (Expired, 1)]);
    pass(&manager, &clock, 5);
    assert_eq!(kinds(&mut events), [(Reclaimed, 1)]);
}

#[test]
fn a_slow_subscriber_is_told_how_much_it_missed() {
    let (manager, _) = manual();
    let mut slow = manager.events(5);
    let mut other = manager.events(1000);
    for key in 0..10_u64 {
        manager
            .try_acquire(key, 1, ms(10))
            .expect("free")
            .release()
            .expect("live");
    }
    assert_eq!(slow.try_next(), Some(Err(Missed { count: 25 })));
    let rest = drain(&mut slow);
    assert_eq!(rest.len(), 5);
    assert_eq!(rest[4].key, manager.key(9));
    assert_eq!(drain(&mut other).len(), 30);
    drop((slow, other));
    // The next change finds that nobody looks on any more.
    manager
        .try_acquire(1_u64, 1, ms(10))
        .expect("free")
        .release()
        .expect("live");
    assert_idle(&manager);
}

#[test]
fn a_stream_can_be_awaited_and_ends_with_its_manager() {
    let (manager, _) = manual();
    let mut events = manager.events(10);
    {
        let mut next = Task::pending(events.next());
        let lease = manager.try_acquire("k", 1, ms(10)).expect("free");
        assert_eq!(next.wakes(), 1);
        assert!(matches!(next.poll(), Some(Some(Ok(event))) if event.token == lease.token()));
        lease.detach();
    }
    drop(manager);
    assert_eq!(events.wait_timeout(ms(10_000)), None);
}

#[test]
fn an_event_can_be_waited_for_in_a_thread() {
    let (manager, _) = manual();
    let mut events = manager.events(10);
    assert_eq!(events.wait_timeout(Duration::ZERO), None, "nothing yet");
    let lease = manager.try_acquire("k", 1, ms(10)).expect("free");
    let told = events.wait_timeout(Duration::from_secs(30));
    let event = told
        .expect("something has happened")
        .expect("there is room");
    assert_eq!(
        (event.kind, event.token),
        (EventKind::Granted, lease.token())
    );
}

#[test]
fn every_kind_of_event_has_a_name_of_its_own_in_one_word() {
    use EventKind::{Expired, GivenUp, Granted, Reclaimed, Released, Renewed, Revoked};
    let kinds = [
        Granted, Renewed, Released, Expired, Revoked, GivenUp, Reclaimed,
    ];
    // Of labels and logs: whoever has a chart of them goes by these.
    let names = [
        "granted",
        "renewed",
        "released",
        "expired",
        "revoked",
        "given_up",
        "reclaimed",
    ];
    assert_eq!(kinds.map(EventKind::name), names);
}

/// Under threads, with expiry and waiting: what is told of a key is a history that can have been.
#[test]
fn what_is_told_of_a_key_makes_sense_in_order() {
    let manager = LockManager::new();
    let mut events = manager.events(1 << 22);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4_u64)
            .map(|owner| {
                let manager = &manager;
                scope.spawn(move || {
                    for round in 0..4_000_u64 {
                        let key = (round * 7 + owner) % 5;
                        let lease = match round % 4 {
                            0 => manager.acquire(key, owner, ms(2)).wait_timeout(ms(5)).ok(),
                            1 => manager.acquire(key, owner, ms(2)).shared().try_now().ok(),
                            _ => manager.try_acquire(key, owner, ms(2)).ok(),
                        };
                        let Some(lease) = lease else { continue };
                        let _ = lease.renew(ms(2));
                        match round % 16 {
                            0 => _ = lease.detach(),
                            1 => _ = manager.revoke(key),
                            2 => _ = manager.release(key, lease.token()),
                            _ => {}
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
        done.store(true, Ordering::SeqCst);
    });
    thread::sleep(ms(20));
    manager.advance();
    let mut live: HashMap<_, Vec<(u64, Mode)>> = HashMap::new();
    let mut highest: HashMap<_, u64> = HashMap::new();
    let told = drain(&mut events);
    assert!(told.len() > 10_000, "{} events", told.len());
    for event in told {
        let (token, held) = (event.token.get(), live.entry(event.key).or_default());
        match event.kind {
            EventKind::Granted => {
                let beside = held.iter().all(|&(_, mode)| mode == Mode::Shared);
                let shared = event.mode == Mode::Shared && beside;
                assert!(held.is_empty() || shared, "{event:?} beside {held:?}");
                let before = highest.insert(event.key, token).unwrap_or(0);
                assert!(token > before, "{event:?} after {before}");
                held.push((token, event.mode));
            }
            EventKind::Renewed => {
                assert!(held.contains(&(token, event.mode)), "{event:?}");
            }
            EventKind::Reclaimed => assert!(held.is_empty(), "{event:?}: {held:?}"),
            _ => {
                let at = held.iter().position(|&(other, _)| other == token);
                held.remove(at.unwrap_or_else(|| panic!("{event:?}: {held:?}")));
            }
        }
    }
    assert!(live.values().all(Vec::is_empty), "{live:?}");
    assert_idle(&manager);
}

#[test]
fn a_snapshot_lists_holders_and_waiters_in_order_with_ages_and_names() {
    let clock = ManualClock::new();
    let manager = LockManager::builder()
        .clock(clock.clone())
        .driver(false)
        .introspection(true)
        .build()
        .expect("these options are in order");
    let long = "a name that is longer than a key can hold";
    let plain = manager.try_acquire(long, 1, ms(50)).expect("free");
    let reader = manager
        .acquire("shared", 2, ms(50))
        .shared()
        .try_now()
        .expect("free");
    let session = manager.session(3, ms(100)).expect("in range");
    let owned = session.try_acquire("in a session").expect("free");
    clock.advance(ms(5));
    let writer = Task::pending(manager.acquire("shared", 4, ms(50)));
    let behind = Task::pending(manager.acquire("shared", 5, ms(50)).shared());
    clock.advance(ms(5));
    let keys = manager.snapshot();
    assert_eq!(keys.len(), 3);
    let find = |name: &str| {
        let found = keys.iter().find(|key| key.name.as_deref() == Some(name));
        found.unwrap_or_else(|| panic!("{name} is missing"))
    };
    let held = &find(long).holders[0];
    assert_eq!((held.owner.0, held.token), (1, plain.token()));
    assert_eq!((held.age, held.remaining), (Some(ms(10)), ms(40)));
    let shared = find("shared");
    assert_eq!(shared.holders[0].mode, Mode::Shared);
    let waits: Vec<_> = shared
        .waiters
        .iter()
        .map(|waiter| (waiter.owner.0, waiter.mode, waiter.age))
        .collect();
    assert_eq!(
        waits,
        [(4, Mode::Exclusive, ms(5)), (5, Mode::Shared, ms(5))]
    );
    assert!(find("in a session").holders[0].in_session);
    assert!(
        shared
            .to_string()
            .contains("shared wanted exclusively by 4, since 5ms"),
        "{shared}"
    );
    drop((plain, reader, owned, session, writer, behind));
    assert!(manager.snapshot().is_empty());
    // Names are kept only while a key is in use.
    assert!(manager.try_acquire("bad", 1, ms(0)).is_err());
    let _again = manager
        .try_acquire(manager.key(long), 1, ms(10))
        .expect("free");
    assert_eq!(manager.snapshot()[0].name, None);
}

#[cfg(feature = "histograms")]
#[test]
fn hold_and_wait_times_are_measured() {
    let clock = ManualClock::new();
    let manager = LockManager::builder()
        .clock(clock.clone())
        .driver(false)
        .introspection(true)
        .build()
        .expect("these options are in order");
    let lease = manager.try_acquire("k", 1, ms(50)).expect("free");
    let mut waiting = Task::pending(manager.acquire("k", 1, ms(50)));
    clock.advance(ms(20));
    lease.release().expect("live");
    assert!(waiting.poll().is_some());
    drop(waiting);
    let times = manager.histograms();
    assert_eq!((times.held.len(), times.waited.len()), (2, 1));
    let near = |nanos: u64| nanos.abs_diff(20_000_000) < 500_000;
    assert!(near(times.held.max()) && near(times.waited.max()));
}

#[test]
fn the_counts_add_up_whatever_the_leases_were() {
    let (manager, clock) = manual();
    let first = manager.try_acquire("k", 1, ms(10)).expect("free");
    let again = manager
        .acquire("k", 1, ms(10))
        .reentrant()
        .try_now()
        .expect("its own");
    drop((first, again));
    let mut shared = manager
        .acquire("k", 1, ms(10))
        .shared()
        .try_now()
        .expect("free");
    shared.upgrade(ms(10)).wait().expect("alone");
    manager.revoke("k").expect("held");
    let _expires = manager.try_acquire("k", 1, ms(10)).expect("free");
    pass(&manager, &clock, 10);
    let _out = manager.try_acquire("k", 1, ms(10)).expect("free");
    let stats = manager.stats();
    // Entered again, it is one lease; upgraded, a second.
    assert_eq!((stats.granted, stats.leases), (5, 1));
    assert_eq!((stats.expired, stats.revoked), (1, 1));
}

/// Each turn of the wheel, with somebody looking on, takes time in the number of leases that are due, and not
/// in its square. Of many tries the best counts, and only this thread's own time, so that a busy machine is no
/// matter.
#[cfg(unix)]
#[test]
fn the_ends_of_many_leases_at_once_are_told_one_by_one() {
    use rustix::time::{ClockId, clock_gettime};
    let own_time = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::try_from(time).expect("it is not negative")
    };
    let turn = |leases: u64| {
        let (manager, clock) = manual();
        let mut events = manager.events(4 * leases as usize);
        for key in 0..leases {
            let lease = manager.try_acquire(key, 1, ms(10)).expect("free");
            lease.detach();
        }
        clock.advance(ms(10));
        let began = own_time();
        manager.advance();
        let took = own_time().saturating_sub(began);
        let all = std::iter::from_fn(|| events.try_next());
        let over =
            all.filter(|event| matches!(event, Ok(event) if event.kind == EventKind::Expired));
        assert_eq!(over.count() as u64, leases, "each is told once");
        took
    };
    let mut best = [Duration::MAX; 2];
    // Eight times as many: 64 times as long in the one case, and 8 times or little more in the other.
    let linear = (0..20).any(|_| {
        best = [best[0].min(turn(3_000)), best[1].min(turn(24_000))];
        best[1] < 24 * best[0]
    });
    assert!(linear, "{best:?}");
}

/// Many streams, of which all but a few are gone: those few are told as before.
#[test]
fn a_stream_that_ends_takes_no_other_with_it() {
    for introspection in [false, true] {
        let manager = LockManager::builder()
            .clock(ManualClock::new())
            .driver(false)
            .introspection(introspection)
            .build()
            .expect("these options are in order");
        let mut streams: Vec<Events> = (0..20).map(|_| manager.events(100)).collect();
        for left in (1..=20).rev() {
            streams.truncate(left);
            drop(manager.try_acquire("k", 1, ms(10)).expect("free"));
            for events in &mut streams {
                assert_eq!(kinds(events).len(), 3, "granted, released and reclaimed");
            }
        }
        streams.clear();
        drop(manager.try_acquire("k", 1, ms(10)).expect("free"));
        assert_eq!(manager.stats().granted, 21);
        // Names are kept whether there is a stream or not.
        let _named = manager.try_acquire("k", 1, ms(10)).expect("free");
        assert_eq!(manager.stats().names, usize::from(introspection));
    }
}

#[test]
fn a_limit_is_one_still_after_somebody_has_looked_on() {
    let manager = LockManager::builder()
        .clock(ManualClock::new())
        .driver(false)
        .max_keys(1)
        .build()
        .expect("these options are in order");
    drop(manager.events(10));
    let _one = manager.try_acquire(1_u64, 1, ms(10)).expect("free");
    for key in 2..10_u64 {
        let full = manager.try_acquire(key, 1, ms(10)).map(drop);
        assert_eq!(
            full,
            Err(tenure::AcquireError::CapacityExceeded { capacity: 1 })
        );
    }
}

/// Of keys that have one, and of no key that was refused.
#[test]
fn names_are_kept_of_keys_that_are_in_use_only() {
    let manager = LockManager::builder()
        .clock(ManualClock::new())
        .driver(false)
        .introspection(true)
        .max_keys(3)
        .build()
        .expect("these options are in order");
    let names = || manager.stats().names;
    assert_eq!(names(), 0);
    let nameless = manager.acquire(manager.key("nameless"), 1, ms(10)).shared();
    let _nameless = nameless.try_now().expect("free");
    assert_eq!(names(), 0);
    let _a = manager.try_acquire("a", 1, ms(10)).expect("free");
    let b = manager.try_acquire("b", 1, ms(10)).expect("free");
    assert_eq!(names(), 2);
    assert!(manager.try_acquire("refused", 1, ms(10)).is_err());
    assert!(
        manager
            .acquire("refused too", 1, ms(10))
            .shared()
            .try_now()
            .is_err()
    );
    assert_eq!(names(), 2);
    drop(b);
    assert_eq!(names(), 1);
}

/// A plain lease whose record is made later: its age is known if that was asked for, and not invented.
#[test]
fn the_age_of_a_lease_that_was_a_plain_one_is_known_under_introspection_only() {
    for introspection in [false, true] {
        let clock = ManualClock::new();
        let manager = LockManager::builder()
            .clock(clock.clone())
            .driver(false)
            .introspection(introspection)
            .build()
            .expect("these options are in order");
        clock.advance(ms(100));
        let _plain = manager.try_acquire("k", 1, ms(50)).expect("free");
        clock.advance(ms(5));
        let again = manager.acquire("k", 1, ms(50)).reentrant();
        let _again = again.try_now().expect("its own");
        let keys = manager.snapshot();
        assert_eq!((keys.len(), keys[0].holders.len()), (1, 1));
        let holder = &keys[0].holders[0];
        assert_eq!(holder.entries, 2);
        assert_eq!(holder.age, introspection.then_some(ms(5)));
    }
}
