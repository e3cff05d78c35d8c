//! Cases 2, 3 and 18: how leases end, and what late calls are told.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tenure::{Lease, LockManager, ReleaseError, RenewError, Timestamp, ValidateError};

use super::{Gate, manual, ms};

const KEY: u64 = 7;

/// What may happen to an expired lease before its late holder calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Nothing,
    Advance,
    Validate,
    Holder,
    Iterate,
    Renew,
    Taken,
}

const BEFORE: [Before; 7] = [
    Before::Nothing,
    Before::Advance,
    Before::Validate,
    Before::Holder,
    Before::Iterate,
    Before::Renew,
    Before::Taken,
];

fn happen(manager: &LockManager, stale: &Lease<'_>, before: Before) {
    let token = stale.token();
    match before {
        Before::Nothing => {}
        Before::Advance => {
            manager.advance();
        }
        Before::Validate => {
            let answer = manager.validate(KEY, token);
            assert_eq!(answer, Err(ValidateError::Expired { token }));
        }
        Before::Holder => {
            assert!(
                manager
                    .holder(KEY)
                    .is_none_or(|holder| holder.token > token)
            );
        }
        Before::Iterate => assert!(manager.iter().all(|holder| holder.token > token)),
        Before::Renew => {
            assert_eq!(stale.renew(ms(5)), Err(RenewError::Expired { token }));
        }
        Before::Taken => {
            // Twice in a row: the second finds the first, which is live.
            let _ = manager.try_acquire(KEY, 2, ms(500)).map(Lease::detach);
        }
    }
}

/// Case 2: extending a lock succeeds after its expiry. Every order of up to three events between
/// the deadline and the late renewal, by guard and by token (I4, I5).
#[test]
fn case_2_a_renew_after_the_deadline_is_refused_in_every_order() {
    let mut orders = 0;
    for late in [0, 1, 999_999, 1_000_000, 1_000_000_000] {
        for first in BEFORE {
            for second in BEFORE {
                for third in BEFORE {
                    for by_guard in [true, false] {
                        late_renewal(late, [first, second, third], by_guard);
                        orders += 1;
                    }
                }
            }
        }
    }
    assert_eq!(orders, 5 * 7 * 7 * 7 * 2);
}

fn late_renewal(late: u64, events: [Before; 3], by_guard: bool) {
    let (manager, clock) = manual();
    let lease = manager
        .try_acquire(KEY, 1, ms(10))
        .expect("the key is free");
    let (token, deadline) = (lease.token(), lease.deadline());
    clock.set(Timestamp::from_nanos(deadline.as_nanos() - 1));
    assert!(lease.is_live(), "I3: over one nanosecond early");
    clock.set(Timestamp::from_nanos(deadline.as_nanos() + late));

    for event in events {
        happen(&manager, &lease, event);
    }
    let successor = manager.holder(KEY);
    assert_eq!(successor.is_some(), events.contains(&Before::Taken));

    let answer = if by_guard {
        lease.renew(ms(90))
    } else {
        manager.renew(KEY, token, ms(90))
    };
    assert_eq!(
        answer,
        Err(RenewError::Expired { token }),
        "{late} {events:?}"
    );
    assert!(!lease.is_live());
    assert_eq!(manager.holder(KEY), successor, "{late} {events:?}");
    manager.advance();
    assert_eq!(manager.len(), usize::from(successor.is_some()));
}

/// Case 2, with threads: one renews, one takes the key and one sweeps while the clock reaches the
/// deadline. A renewal that returned `Ok` keeps the key until its new deadline; one that was told
/// `Expired` leaves it to the thief; both or neither never happens (I1, I4, I5).
#[test]
fn case_2_of_a_renewal_and_a_theft_at_the_deadline_exactly_one_succeeds() {
    const ROUNDS: u64 = if cfg!(debug_assertions) {
        4_000
    } else {
        40_000
    };
    let (manager, clock) = manual();
    let gate = Gate::new(4);
    let (renewed, stolen) = (AtomicU64::new(0), AtomicU64::new(0));
    let spin = |turns: u64| (0..turns).for_each(|_| std::hint::spin_loop());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                let lease = manager
                    .try_acquire(round, 1, ms(1))
                    .expect("the key is free");
                gate.pass();
                spin(round * 31 % 97);
                let answer = lease.renew(ms(10));
                gate.pass();
                match answer {
                    Ok(_) => {
                        assert!(lease.is_live());
                        renewed.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(error) => {
                        assert_eq!(
                            error,
                            RenewError::Expired {
                                token: lease.token()
                            }
                        );
                        assert!(!lease.is_live());
                    }
                }
                let survivor = manager.holder(round).expect("one of the two holds the key");
                assert_eq!(survivor.owner.0, if answer.is_ok() { 1 } else { 2 });
                gate.pass();
                drop(lease);
            }
        });
        scope.spawn(|| {
            for round in 0..ROUNDS {
                gate.pass();
                spin(round * 17 % 89);
                // The clock moves during the race: in the end the key is expired or renewed.
                let mut thief = None;
                while thief.is_none() && clock_reached(&manager, round) {
                    thief = manager.try_acquire(round, 2, ms(10)).ok();
                    if manager.holder(round).is_some_and(|h| h.remaining > ms(1)) {
                        break;
                    }
                }
                gate.pass();
                stolen.fetch_add(u64::from(thief.is_some()), Ordering::Relaxed);
                gate.pass();
            }
        });
        scope.spawn(|| {
            for round in 0..ROUNDS {
                gate.pass();
                spin(round * 13 % 83);
                clock.advance(ms(1));
                gate.pass();
                gate.pass();
            }
        });
        for _ in 0..ROUNDS {
            gate.pass();
            manager.advance();
            gate.pass();
            gate.pass();
        }
    });
    let (renewed, stolen) = (renewed.into_inner(), stolen.into_inner());
    assert_eq!(renewed + stolen, ROUNDS, "I1: both or neither got the key");
    assert_eq!(manager.len(), 0);
}

/// Waits until the clock stands at the end of the lease of `round`.
fn clock_reached(manager: &LockManager, round: u64) -> bool {
    while manager.now().as_nanos() < (round + 1) * 1_000_000 {
        std::thread::yield_now();
    }
    true
}

/// Case 3: unlocking after expiry went unreported. By guard and by token, with and without a
/// successor, who is not disturbed, not even by the drop of a stale guard (I4, I6).
#[test]
fn case_3_a_stale_release_says_so_and_leaves_the_successor_alone() {
    for swept in [false, true] {
        for successor in [None, Some(1), Some(2)] {
            let (manager, clock) = manual();
            let by_guard = manager
                .try_acquire(KEY, 1, ms(10))
                .expect("the key is free");
            let token = by_guard.token();
            clock.advance(ms(10));
            if swept {
                assert_eq!(manager.advance(), 1);
            }
            let next = successor.map(|owner| {
                manager
                    .try_acquire(KEY, owner, ms(10))
                    .expect("the first lease is over")
            });
            let holder = manager.holder(KEY);
            assert_eq!(holder.map(|h| h.token), next.as_ref().map(Lease::token));

            assert_eq!(
                manager.release(KEY, token),
                Err(ReleaseError::Expired { token })
            );
            assert_eq!(manager.holder(KEY), holder);
            assert_eq!(by_guard.release(), Err(ReleaseError::Expired { token }));
            assert_eq!(manager.holder(KEY), holder);
            manager.advance();
            assert_eq!(
                (manager.len(), manager.stats().expired),
                (successor.iter().count(), 1)
            );
            if let Some(next) = next {
                assert!(next.is_live());
                assert_eq!(next.release(), Ok(()));
            }
        }
    }
}

/// Case 3: the same for guards that are dropped, after an expiry and after a revocation.
#[test]
fn case_3_dropping_a_stale_guard_leaves_the_successor_alone() {
    let (manager, clock) = manual();
    let expired = manager
        .try_acquire(KEY, 1, ms(10))
        .expect("the key is free");
    clock.advance(ms(10));
    let revoked = manager
        .try_acquire(KEY, 2, ms(10))
        .expect("the first lease is over");
    assert_eq!(
        manager.revoke(KEY).map(|holder| holder.token),
        Ok(revoked.token())
    );
    let next = manager
        .try_acquire(KEY, 3, ms(10))
        .expect("the second lease is over");
    drop(expired);
    assert!(next.is_live());
    drop(revoked);
    assert!(next.is_live());
    assert_eq!(manager.len(), 1);
    assert_eq!(next.release(), Ok(()));
    assert_eq!(manager.len(), 0);
}

/// Case 18: a timer that is due but was not drained yet is reset or removed. Every call on a lease
/// between its deadline and the sweep; each expiry is reported exactly once (I4, I8).
#[test]
fn case_18_calls_between_due_and_sweep_are_refused_and_counted_once() {
    const KEYS: u64 = 900;
    let (manager, clock) = manual();
    let leases = Mutex::new(Vec::new());
    for key in 0..KEYS {
        leases.lock().unwrap().push(
            manager
                .try_acquire(key, 1, ms(64))
                .expect("the key is free"),
        );
    }
    clock.advance(ms(64));
    let mut again = Vec::new();
    for (key, lease) in (0..KEYS).zip(leases.into_inner().unwrap()) {
        let token = lease.token();
        match key % 9 {
            0 => assert_eq!(lease.renew(ms(1)), Err(RenewError::Expired { token })),
            1 => assert_eq!(
                manager.renew(key, token, ms(9)),
                Err(RenewError::Expired { token })
            ),
            2 => assert_eq!(lease.release(), Err(ReleaseError::Expired { token })),
            3 => assert_eq!(
                manager.release(key, token),
                Err(ReleaseError::Expired { token })
            ),
            4 => assert!(manager.revoke(key).is_err()),
            5 => drop(lease),
            6 => again.push(
                manager
                    .try_acquire(key, 2, ms(1))
                    .expect("the lease is over"),
            ),
            7 => again.push(
                manager
                    .try_acquire(key, 2, ms(900))
                    .expect("the lease is over"),
            ),
            _ => std::mem::forget(lease),
        }
    }
    manager.advance();
    assert_eq!(
        (manager.len(), manager.stats().expired),
        (again.len(), KEYS)
    );
    clock.advance(ms(1));
    manager.advance();
    assert_eq!(
        manager.len(),
        again.len() / 2,
        "I8: the short ones are over"
    );
    clock.advance(ms(898));
    manager.advance();
    assert_eq!(manager.len(), again.len() / 2, "I3: the long ones are not");
    clock.advance(ms(1));
    manager.advance();
    assert_eq!(
        (manager.len(), manager.stats().expired),
        (0, KEYS + again.len() as u64)
    );
    assert_eq!(manager.stats().revoked, 0);
}

/// Case 18, the other way round: the wheel fires where it was told to at the grant, but the lease
/// was renewed, released, or replaced by a shorter or a longer one in the meantime.
#[test]
fn case_18_a_wheel_that_fires_for_an_earlier_life_harms_no_later_one() {
    let (manager, clock) = manual();
    let renewed = manager.try_acquire(1, 1, ms(10)).expect("the key is free");
    let released = manager.try_acquire(2, 1, ms(10)).expect("the key is free");
    let replaced = manager
        .try_acquire(3, 1, ms(1_000))
        .expect("the key is free");
    clock.advance(ms(9));
    assert!(renewed.renew(ms(91)).is_ok());
    assert_eq!(released.release(), Ok(()));
    assert_eq!(replaced.release(), Ok(()));
    let longer = manager.try_acquire(2, 2, ms(200)).expect("the key is free");
    let shorter = manager.try_acquire(3, 2, ms(5)).expect("the key is free");

    let mut sizes = Vec::new();
    for _ in 9..1_010 {
        manager.advance();
        sizes.push(manager.len());
        assert_eq!(manager.iter().count(), manager.len());
        clock.advance(ms(1));
    }
    let (at_14, at_100, at_209) = (14 - 9, 100 - 9, 209 - 9);
    assert!(sizes[..at_14].iter().all(|&len| len == 3));
    assert!(
        sizes[at_14..at_100].iter().all(|&len| len == 2),
        "the short one is over"
    );
    assert!(
        sizes[at_100..at_209].iter().all(|&len| len == 1),
        "so is the renewed one"
    );
    assert!(
        sizes[at_209..].iter().all(|&len| len == 0),
        "and the long one"
    );
    assert!(!shorter.is_live() && !renewed.is_live() && !longer.is_live());
    assert_eq!(manager.stats().expired, 3);
}
