//! Sessions.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tenure::{
    AcquireError, Clock, LockManager, Loss, ManualClock, ReleaseError, RenewError, SessionError,
    Timestamp,
};

use crate::{Task, assert_idle, manual, ms, pass};

#[test]
fn the_leases_of_a_session_live_and_die_with_it() {
    let (manager, clock) = manual();
    let session = manager.session(1, ms(10)).expect("in range");
    let a = session.try_acquire("a").expect("free");
    let b = session.try_acquire("b").expect("free");
    assert_eq!((session.len(), manager.len()), (2, 2));
    for _ in 0..5 {
        pass(&manager, &clock, 9);
        session.keep_alive().expect("alive");
    }
    assert!(a.is_live() && b.is_live());
    assert_eq!(a.deadline(), session.deadline());
    assert_eq!(
        a.renew(ms(5)),
        Err(RenewError::InSession { token: a.token() })
    );
    b.release().expect("live");
    assert_eq!(session.len(), 1);
    pass(&manager, &clock, 10);
    assert!(!a.is_live() && !session.is_live());
    assert_eq!(
        session.keep_alive(),
        Err(SessionError::Over),
        "never revived"
    );
    assert_eq!(
        session.try_acquire("c").map(drop),
        Err(AcquireError::SessionOver)
    );
    let token = a.token();
    assert_eq!(a.release(), Err(ReleaseError::Expired { token }));
    assert_eq!(session.close(), Err(SessionError::Over));
    assert!(manager.try_acquire("a", 2, ms(10)).expect("free").token() > token);
    assert_idle(&manager);
}

/// The wheel may be late; nobody is told that a session is over and sees it come back.
#[test]
fn a_session_past_its_deadline_is_over_before_the_wheel_knows() {
    let (manager, clock) = manual();
    let session = manager.session(1, ms(10)).expect("in range");
    let a = session.try_acquire("a").expect("free");
    clock.advance(ms(10));
    assert!(!a.is_live());
    assert_eq!(session.keep_alive(), Err(SessionError::Over));
    let next = manager.try_acquire("a", 2, ms(10)).expect("free");
    assert!(next.token() > a.token());
    manager.advance();
    assert!(next.is_live(), "the session's end doesn't touch it");
    drop((a, next));
    assert_idle(&manager);
}

#[test]
fn closing_a_session_frees_its_keys_and_skips_its_waiters() {
    let (manager, _) = manual();
    let other = manager.try_acquire("held", 9, ms(50)).expect("free");
    let session = manager.session(1, ms(50)).expect("in range");
    let a = session.try_acquire("a").expect("free");
    let mut queued = Task::pending(session.acquire("held"));
    let mut behind = Task::pending(manager.acquire("held", 2, ms(50)));
    let mut next = Task::pending(manager.acquire("a", 3, ms(50)));
    let mut lost = Task::pending(a.lost());
    let mut over = Task::pending(session.lost());
    session.close().expect("live");
    assert_eq!(
        queued.poll().expect("told").map(drop),
        Err(AcquireError::SessionOver)
    );
    assert_eq!(lost.poll(), Some(Loss::SessionOver));
    assert_eq!(over.poll(), Some(Loss::SessionOver));
    assert!(next.poll().expect("granted").is_ok());
    assert!(behind.poll().is_none());
    other.release().expect("live");
    assert!(
        behind.poll().expect("granted").is_ok(),
        "the session's place is skipped"
    );
    drop((next, behind, a));
    assert_idle(&manager);
}

#[test]
fn an_expired_session_is_quarantined_if_it_says_so_and_a_closed_one_is_not() {
    let (manager, clock) = manual();
    let session = || {
        manager
            .session(1, ms(10))
            .expect("in range")
            .lock_delay(ms(5))
    };
    let first = session();
    let _a = first.try_acquire("a").expect("free");
    first.close().expect("live");
    let second = session();
    let _b = second.try_acquire("a").expect("no delay after a clean end");
    pass(&manager, &clock, 10);
    let delayed = manager.try_acquire("a", 2, ms(10)).map(drop);
    assert!(
        matches!(delayed, Err(AcquireError::Delayed { .. })),
        "{delayed:?}"
    );
    pass(&manager, &clock, 6);
    assert!(manager.try_acquire("a", 2, ms(10)).is_ok());
}

#[test]
fn a_session_holds_many_leases_and_ends_them_all() {
    let (manager, clock) = manual();
    let session = manager.session(1, ms(10)).expect("in range");
    for key in 0..5_000_u64 {
        session.try_acquire(key).expect("free").detach();
    }
    pass(&manager, &clock, 5);
    session.keep_alive().expect("alive");
    pass(&manager, &clock, 5);
    assert_eq!(manager.len(), 5_000);
    pass(&manager, &clock, 5);
    assert_eq!(manager.stats().expired, 5_000);
    drop(session);
    assert_idle(&manager);
    for key in 0..5_000_u64 {
        manager
            .try_acquire(key, 2, ms(1))
            .expect("free")
            .release()
            .expect("live");
    }
}

/// Keep-alive against death: a keep-alive that said `Ok` is kept, and afterwards there is none.
#[test]
fn a_keep_alive_and_the_death_of_a_session_agree() {
    let (manager, clock) = manual();
    for round in 0..200_u64 {
        let session = manager.session(1, ms(10)).expect("in range");
        let lease = session.try_acquire(round).expect("free");
        clock.advance(ms(9));
        let kept = thread::scope(|scope| {
            let keeper = scope.spawn(|| session.keep_alive());
            clock.advance(ms(1));
            manager.advance();
            keeper.join().expect("no panic")
        });
        match kept {
            Ok(deadline) => {
                assert!(lease.is_live(), "round {round}");
                assert_eq!(session.deadline(), deadline);
            }
            Err(_) => assert!(!lease.is_live() && manager.holder(round).is_none()),
        }
    }
}

/// Does something at one of its readings.
#[derive(Clone, Default)]
struct Interrupted {
    clock: ManualClock,
    at: Arc<Mutex<Option<Interruption>>>,
}

/// How many readings are still to come before it, and what happens then.
type Interruption = (u32, Box<dyn FnOnce() + Send>);

impl Clock for Interrupted {
    fn now(&self) -> Timestamp {
        let mut at = self.at.lock().expect("no panic");
        match at.as_mut() {
            Some((left @ 1.., _)) => *left -= 1,
            Some(_) => {
                let due = at.take();
                drop(at);
                if let Some((_, happen)) = due {
                    happen();
                }
            }
            None => {}
        }
        self.clock.now()
    }

    fn is_real_time(&self) -> bool {
        false
    }
}

impl std::fmt::Debug for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interrupted").finish_non_exhaustive()
    }
}

/// A lock-delay is for unclean ends. While a session is being closed, somebody who looks at one of its
/// keys must not turn that key's clean end into an unclean one.
#[test]
fn a_look_at_a_key_while_its_session_is_closed_causes_no_lock_delay() {
    const KEYS: u64 = 8;
    for reading in 0..2 * KEYS as u32 {
        let clock = Interrupted::default();
        let manager = LockManager::builder()
            .clock(clock.clone())
            .driver(false)
            .build()
            .expect("these options are in order");
        let session = manager.session(1, ms(50)).expect("in range");
        let session = session.lock_delay(ms(10));
        for key in 0..KEYS {
            session.try_acquire(key).expect("free").detach();
        }
        let (looked, look) = mpsc::channel();
        let interruption = {
            let manager = manager.clone();
            move || {
                for key in 0..KEYS {
                    let (manager, looked) = (manager.clone(), looked.clone());
                    thread::spawn(move || {
                        let _ = manager.holder(key);
                        let _ = looked.send(key);
                    });
                }
                // Those whose records are locked can't get through before this returns.
                let _ = look.recv_timeout(Duration::from_secs(1));
            }
        };
        *clock.at.lock().expect("no panic") = Some((reading, Box::new(interruption)));
        session.close().expect("alive");
        *clock.at.lock().expect("no panic") = None;
        for key in 0..KEYS {
            let lease = manager.try_acquire(key, 2, ms(10)).map(drop);
            assert_eq!(lease, Ok(()), "key {key}, interrupted at reading {reading}");
        }
    }
}

#[test]
fn a_session_says_what_it_is_and_how_much_it_holds() {
    let (manager, _) = manual();
    let session = manager.session(7, ms(10)).expect("in range");
    assert_eq!((session.owner().0, session.ttl()), (7, ms(10)));
    assert!(session.is_empty());
    let printed = format!("{session:?}");
    for part in ["Session", "owner: 7", "ttl: 10ms", "deadline"] {
        assert!(printed.contains(part), "{printed} does not say {part}");
    }
    let lease = session.try_acquire("k").expect("free");
    assert!(!session.is_empty());
    drop(lease);
    assert!(session.is_empty());
}

/// What is told of its leases is what they were, and not that they would have had no time.
#[test]
fn the_end_of_a_closed_sessions_lease_tells_its_deadline() {
    let (manager, _) = manual();
    let mut events = manager.events(10);
    let session = manager.session(1, ms(10)).expect("in range");
    let deadline = session.deadline();
    let lease = session.try_acquire("k").expect("free");
    session.close().expect("live");
    assert!(!lease.is_live());
    let told: Vec<_> = std::iter::from_fn(|| events.try_next())
        .map(|event| event.expect("room").deadline)
        .collect();
    assert_eq!(told, [deadline; 3], "granted, released and reclaimed");
}

/// Each TTL that a caller may think of, whatever the deadline was before.
#[test]
fn several_keys_are_renewed_for_as_long_as_was_asked() {
    let (manager, clock) = manual();
    for factor in 1..=64 {
        let all = manager.acquire_all(["a", "b"], 1, ms(10)).wait();
        let all = all.expect("free");
        let before = clock.now();
        let renewed = all.renew(ms(10) * factor).expect("live");
        assert_eq!(renewed, all.deadline());
        assert_eq!(Some(renewed), before.checked_add(ms(10) * factor));
    }
}

/// More than are looked through one by one, and the wheel is late.
#[test]
fn many_sessions_that_share_a_key_are_over_in_time() {
    let (manager, clock) = manual();
    let sessions: Vec<_> = (0..40)
        .map(|owner| manager.session(owner, ms(10)).expect("in range"))
        .collect();
    let leases: Vec<_> = sessions
        .iter()
        .map(|session| session.acquire("k").shared().try_now().expect("shared"))
        .collect();
    clock.advance(ms(10));
    let next = manager.try_acquire("k", 100, ms(10)).expect("all are over");
    assert!(next.is_live());
    drop((leases, sessions, next));
    assert_idle(&manager);
}

#[test]
fn of_several_sessions_that_share_a_key_the_longest_is_told() {
    let (manager, _) = manual();
    let [long, short] = [ms(100), ms(10)].map(|ttl| manager.session(1, ttl).expect("in range"));
    let share = |session: &tenure::Session<'_>| {
        let lease = session.acquire("k").shared().try_now().expect("shared");
        lease.detach()
    };
    let (token, _) = (share(&long), share(&short));
    let holder = manager.holder("k").expect("held");
    assert_eq!((holder.token, holder.remaining), (token, ms(100)));
}

/// Whoever finds it over first answers its waiters: each counts as one that has waited.
#[test]
fn those_who_wait_in_a_session_that_is_closed_are_counted() {
    let (manager, _) = manual();
    let _held = manager.try_acquire("k", 9, ms(50)).expect("free");
    let session = manager.session(1, ms(10)).expect("in range").into_owned();
    let mut waits = Task::pending(session.acquire("k"));
    assert_eq!(manager.stats().waited, 0);
    session.close().expect("live");
    assert_eq!(
        waits.poll().expect("told").unwrap_err(),
        AcquireError::SessionOver
    );
    assert_eq!(manager.stats().waited, 1);
}
