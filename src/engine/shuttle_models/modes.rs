//! Leases that records hold.

use super::*;
use crate::{Loss, Mode};

/// Readers and a writer, where the readers' record comes and goes under the writer's plain leases.
#[test]
fn shuttle_sharers_and_writers_never_meet() {
    check(|| {
        let world = World::new();
        let inside = Arc::new(Plain::new(0));
        let readers: Vec<_> = (2..4)
            .map(|owner| {
                let inside = Arc::clone(&inside);
                world.spawn(move |world| {
                    let reader = world.locks.acquire(KEY, owner, LONG).shared();
                    let lease = if toss() {
                        reader.wait()
                    } else {
                        reader.try_now()
                    };
                    if let Ok(lease) = lease {
                        inside.fetch_add(1, PlainOrdering::SeqCst);
                        assert!(lease.is_live(), "I3");
                        assert_eq!(world.visits.inside.load(PlainOrdering::SeqCst), 0, "I1");
                        inside.fetch_sub(1, PlainOrdering::SeqCst);
                        assert_eq!(lease.release(), Ok(()));
                    }
                })
            })
            .collect();
        let writer = {
            let inside = Arc::clone(&inside);
            world.spawn(move |world| {
                for _ in 0..2 {
                    let lease = match toss() {
                        true => world.locks.acquire(KEY, 4, LONG).wait().ok(),
                        false => world.locks.try_acquire(KEY, 4, LONG).ok(),
                    };
                    if let Some(lease) = lease {
                        assert_eq!(inside.load(PlainOrdering::SeqCst), 0, "I1");
                        world.visits.visit(lease);
                    }
                }
            })
        };
        readers.into_iter().for_each(join);
        join(writer);
        world.settle();
    });
}

/// Two who share would both be alone: one is told, gives way, and the other goes on.
#[test]
fn shuttle_of_two_upgraders_one_goes_on() {
    check(|| {
        let world = World::new();
        let share = |owner| {
            let lease = world.locks.acquire(KEY, owner, LONG).shared().try_now();
            lease.expect("shared").into_owned()
        };
        let (a, b) = (share(1), share(2));
        let threads = [a, b].map(|mut lease| {
            world.spawn(move |world| {
                let shared = lease.token();
                match lease.upgrade(LONG).wait() {
                    Ok(()) => {
                        assert!(lease.token() > shared, "I2");
                        assert_eq!(lease.mode(), Mode::Exclusive);
                        world.visits.work(&lease);
                        assert_eq!(lease.release(), Ok(()));
                        true
                    }
                    Err(AcquireError::Deadlock { .. }) => {
                        assert_eq!((lease.mode(), lease.token()), (Mode::Shared, shared));
                        assert_eq!(lease.release(), Ok(()));
                        false
                    }
                    Err(other) => panic!("{other:?}"),
                }
            })
        });
        let passer = world.spawn(|world| world.pass_by(3));
        // The second may have come when the first was alone already.
        let upgraded = threads.map(join).iter().filter(|went| **went).count();
        assert!(upgraded >= 1);
        join(passer);
        world.settle();
    });
}

/// A plain lease that its owner enters again while others renew it and release it by its token.
#[test]
fn shuttle_a_lease_that_is_entered_again_ends_once() {
    check(|| {
        let world = World::new();
        let (held, above) = world.hold(LONG);
        let token = held.token();
        let enterer = world.spawn(move |world| {
            match world.locks.acquire(KEY, 1, LONG).reentrant().try_now() {
                // The first one, or the next if that was over already.
                Ok(lease) => lease.release().is_ok() && lease_was(token, &world.locks),
                Err(AcquireError::Held { .. }) => false,
                Err(other) => panic!("{other:?}"),
            }
        });
        let other = world.spawn(move |world| match (toss(), toss()) {
            (true, true) => world.locks.renew(KEY, token, LONG).is_ok(),
            (true, false) => world.locks.release(KEY, token).is_ok(),
            (false, true) => world.locks.holder(KEY).is_some(),
            (false, false) => world.locks.validate(KEY, token).is_ok(),
        });
        let waiter = world.spawn(|world| world.wait(5));
        drop(held);
        join(enterer);
        join(other);
        assert!(join(waiter) > token);
        drop(above);
        world.settle();
    });
}

fn lease_was(token: FencingToken, locks: &LockManager) -> bool {
    locks.validate(KEY, token).is_ok()
}

/// A session that comes to its deadline while it is kept alive: all its leases go on, or none.
#[test]
fn shuttle_a_session_lives_or_dies_for_all() {
    check(|| {
        let world = World::driven();
        let session = world
            .locks
            .session(1, 10 * TICK)
            .expect("in range")
            .into_owned();
        let (key, other) = (
            session.try_acquire(KEY).expect("free").into_owned(),
            session.try_acquire(OTHER).expect("free").into_owned(),
        );
        let waiter = world.spawn(|world| world.wait(5));
        world.pass(9 * TICK);
        let time = world.spawn(|world| world.pass(TICK));
        let keeper = world.spawn(move |_| (session.keep_alive().is_ok(), session));
        let (kept, session) = join(keeper);
        join(time);
        if kept {
            // Told so, it lasts until the new deadline: nobody has been let in.
            let lives = key.is_live();
            assert_eq!(other.is_live(), lives);
            assert!(lives, "a keep-alive that was granted is kept");
            assert_eq!(session.close(), Ok(()));
        } else {
            assert!(!key.is_live() && !other.is_live());
            assert!(session.keep_alive().is_err(), "never revived");
            drop(session);
        }
        join(waiter);
        drop((key, other));
        world.settle();
    });
}

/// Whoever watches a lease is told of its end, however that comes, and of nothing else.
#[test]
fn shuttle_a_loss_is_told_once_and_always() {
    check(|| {
        let world = World::new();
        let (held, above) = world.hold(LONG);
        let token = held.token();
        let ender = world.spawn(move |world| match toss() {
            true => world.locks.release(KEY, token).is_ok(),
            false => world.locks.revoke(KEY).is_ok(),
        });
        let watcher = world.spawn(move |_| {
            let loss = shuttle::future::block_on(held.lost());
            assert!(matches!(loss, Loss::Released | Loss::Revoked), "{loss:?}");
            assert!(!held.is_live());
        });
        assert!(join(ender));
        join(watcher);
        drop(above);
        world.settle();
    });
}

/// Two who want both keys, in either order, and one who gives up in the middle.
#[test]
fn shuttle_those_who_want_the_same_keys_all_get_them() {
    check(|| {
        let world = World::new();
        let threads = [[KEY, OTHER], [OTHER, KEY]].map(|keys| {
            world.spawn(move |world| {
                let all = world.locks.acquire_all(keys, keys[0], LONG);
                let held = shuttle::future::block_on(all).expect("in the end");
                let token = held.token(world.locks.key(KEY)).expect("one of them");
                let before = world
                    .visits
                    .highest
                    .swap(token.get(), PlainOrdering::SeqCst);
                assert!(before < token.get(), "I2");
                assert!(held.is_live());
                assert_eq!(held.release(), Ok(()));
            })
        });
        let leaver = world.spawn(|world| {
            let mut all = Box::pin(world.locks.acquire_all([KEY, OTHER], 3, LONG));
            let mut context = Context::from_waker(Waker::noop());
            let _ = all.as_mut().poll(&mut context);
        });
        threads.into_iter().for_each(join);
        join(leaver);
        world.settle();
    });
}
