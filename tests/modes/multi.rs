//! Many keys at once.

use std::thread;
use std::time::Duration;

use tenure::{AcquireError, LockManager, OwnerId};

use crate::{Task, assert_idle, manual, ms, pass};

#[test]
fn all_or_nothing_with_one_deadline() {
    let (manager, clock) = manual();
    let blocker = manager.try_acquire("b", 9, ms(50)).expect("free");
    let mut all = Task::pending(manager.acquire_all(["c", "b", "a", "b"], 1, ms(20)));
    pass(&manager, &clock, 40);
    assert!(all.poll().is_none());
    let refused = manager
        .try_acquire("a", 2, ms(5))
        .expect_err("held meanwhile");
    assert!(
        matches!(refused, AcquireError::Held { remaining, .. } if remaining == ms(20)),
        "its time starts with the last grant: {refused:?}"
    );
    let seen = manager.snapshot();
    let seen = seen.iter().find(|seen| seen.key == manager.key("a"));
    let holder = &seen.expect("it is held").holders[0];
    assert_eq!(holder.remaining, ms(20));
    let holder = manager.holder("a").expect("it is held");
    assert_eq!(holder.remaining, ms(20));
    assert_eq!(holder.deadline, manager.now().saturating_add(ms(20)));
    let mut told = manager.holders("a");
    told.extend(manager.validate("a", holder.token));
    told.extend(manager.iter().filter(|told| told.key == holder.key));
    assert_eq!(told, [holder; 3]);
    blocker.release().expect("live");
    let held = all.poll().expect("granted").expect("granted");
    assert_eq!(held.tokens().len(), 3, "each once");
    assert_eq!(held.token(manager.key("b")), Some(held.tokens()[1].1));
    assert_eq!(
        held.deadline(),
        manager.now().saturating_add(ms(20)),
        "counts from the last grant"
    );
    pass(&manager, &clock, 19);
    held.renew(ms(10)).expect("live");
    pass(&manager, &clock, 9);
    assert!(held.is_live());
    pass(&manager, &clock, 1);
    assert!(!held.is_live());
    for key in ["a", "b", "c"] {
        assert!(manager.try_acquire(key, 2, ms(5)).is_ok(), "{key} is free");
    }
    drop(held);
    assert_idle(&manager);
}

#[test]
fn leases_on_many_keys_tell_whose_they_are_and_can_be_printed() {
    let (manager, _) = manual();
    let asked = manager.acquire_all(["a", "b"], 7, ms(20));
    let printed = format!("{asked:?}");
    for part in ["AcquireAll", "OwnerId(7)", "20ms"] {
        assert!(printed.contains(part), "{printed} does not say {part}");
    }
    let held = asked.wait().expect("both are free");
    assert_eq!(held.owner(), OwnerId(7));
    let printed = format!("{held:?}");
    let tokens = held.tokens().iter().map(|(_, token)| format!("{token:?}"));
    for part in ["MultiLease".to_owned(), format!("{:?}", held.deadline())]
        .into_iter()
        .chain(tokens)
    {
        assert!(printed.contains(&part), "{printed} does not say {part}");
    }
}

#[test]
fn dropped_or_timed_out_it_leaves_nothing() {
    let (manager, _) = manual();
    let blocker = manager.try_acquire("c", 9, ms(50)).expect("free");
    let all = Task::pending(manager.acquire_all(["a", "b", "c"], 1, ms(20)));
    assert_eq!(manager.len(), 3);
    drop(all);
    let late = manager
        .acquire_all(["a", "b", "c"], 1, ms(20))
        .wait_timeout(Duration::ZERO);
    assert_eq!(late.map(drop), Err(AcquireError::TimedOut));
    assert_eq!((manager.len(), manager.waiting()), (1, 0));
    blocker.release().expect("live");
    let none = manager
        .acquire_all([0_u64; 0], 1, ms(20))
        .wait()
        .expect("nothing to wait for");
    assert!(none.tokens().is_empty());
    drop(none);
    assert_idle(&manager);
}

/// Case 13: AB against BA, with cancellation: all or nothing, and always progress.
#[test]
fn case_13_those_who_want_the_same_keys_in_any_order_all_get_them() {
    let manager = LockManager::new();
    let keys = [0_u64, 1, 2, 3];
    thread::scope(|scope| {
        for owner in 0..4 {
            let manager = &manager;
            scope.spawn(move || {
                let mut order = keys;
                let (mut got, mut gave_up) = (0, 0);
                for round in 0..300 {
                    order.rotate_left(1 + owner as usize % 3);
                    let all = manager.acquire_all(&order[..2 + round % 3], owner, ms(60_000));
                    let patience = if round % 4 == 0 {
                        Duration::ZERO
                    } else {
                        ms(30_000)
                    };
                    match all.wait_timeout(patience) {
                        Ok(held) => {
                            got += 1;
                            held.release().expect("live");
                        }
                        Err(AcquireError::TimedOut) => gave_up += 1,
                        Err(error) => panic!("{error}"),
                    }
                }
                assert!(got >= 225, "{got} granted, {gave_up} given up");
            });
        }
    });
    assert_idle(&manager);
}
