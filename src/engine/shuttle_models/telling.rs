//! What is told of leases while they come and go.

use super::*;

/// Asks in one of the ways there are; how long the key's leases last, according to the answer.
fn ask(world: &World, key: u64) -> Vec<Duration> {
    let locks = &world.locks;
    let told: Vec<crate::Holder> = match shuttle::rand::thread_rng().gen_range(0..7) {
        0 => locks.holder(key).into_iter().collect(),
        1 => locks.holders(key),
        2 => {
            let token = locks.holder(key).map(|holder| holder.token);
            let found = token.and_then(|token| locks.validate(key, token).ok());
            found.into_iter().collect()
        }
        3 => locks.iter().collect(),
        4 => locks.checkpoint().leases().collect(),
        5 => {
            let keys = locks.snapshot();
            let holders = keys.iter().flat_map(|key| &key.holders);
            return holders.map(|holder| holder.remaining).collect();
        }
        _ => match locks.try_acquire(key, 9, LONG) {
            Err(AcquireError::Held { remaining, .. }) => return vec![remaining],
            Err(AcquireError::Delayed { .. }) => return vec![],
            Err(other) => panic!("{other:?}"),
            Ok(lease) => {
                lease.release().expect("nobody else knows of it");
                return vec![];
            }
        },
    };
    told.iter().map(|holder| holder.remaining).collect()
}

/// A lease that ends with its session is told of as it was, or not at all.
#[test]
fn shuttle_a_lease_whose_session_closes_is_told_of_as_it_was() {
    check(|| {
        let world = World::new();
        let session = world.locks.session(1, LONG).expect("in range").into_owned();
        let lease = session.try_acquire(KEY).expect("free").into_owned();
        let lookers = [(); 2].map(|()| {
            world.spawn(|world| {
                for remaining in ask(world, KEY) {
                    assert_eq!(remaining, LONG);
                }
            })
        });
        assert_eq!(session.close(), Ok(()));
        assert!(!lease.is_live());
        lookers.into_iter().for_each(join);
        drop(lease);
        world.settle();
    });
}

/// The time of what an `acquire_all` has already begins with the last key: none is told of that never ends.
#[test]
fn shuttle_what_an_acquisition_of_many_has_is_told_of_as_it_will_be() {
    check(|| {
        let world = World::new();
        let held = world.locks.try_acquire(OTHER, 2, LONG).expect("free");
        let held = held.into_owned();
        let all = world.spawn(|world| {
            let all = world.locks.acquire_all([KEY, OTHER], 1, LONG);
            let held = shuttle::future::block_on(all).expect("in the end");
            assert!(held.is_live());
            assert_eq!(held.release(), Ok(()));
        });
        let looker = world.spawn(|world| {
            for remaining in ask(world, KEY) {
                assert_eq!(remaining, LONG);
            }
        });
        assert_eq!(held.release(), Ok(()));
        join(looker);
        join(all);
        world.settle();
    });
}

/// A key that is kept free after its session's end is told of as held, or as kept free, and never as free.
#[test]
fn shuttle_a_key_that_is_kept_is_told_of_throughout() {
    check(|| {
        let world = World::new();
        let session = world.locks.session(1, LONG).expect("in range").into_owned();
        let lease = session.acquire(KEY).min_hold(LONG).try_now();
        let lease = lease.expect("free").into_owned();
        let looker = world.spawn(|world| {
            let locks = &world.locks;
            if toss() {
                let found = locks.checkpoint();
                assert_eq!(found.leases().count() + found.delayed().count(), 1);
            } else {
                let found = locks.snapshot();
                assert_eq!(found.len(), 1);
                assert_eq!(found[0].holders.is_empty(), found[0].delayed.is_some());
            }
        });
        assert_eq!(session.close(), Ok(()));
        join(looker);
        drop(lease);
        world.clock.advance(2 * LONG);
        world.locks.advance();
        world.settle();
    });
}

/// A plain lease that moves to a record is told of before, after and meanwhile.
#[test]
fn shuttle_a_lease_that_moves_to_its_record_is_told_of_throughout() {
    check(|| {
        let world = World::new();
        let mut lease = world
            .locks
            .try_acquire(KEY, 1, LONG)
            .expect("free")
            .into_owned();
        let looker = world.spawn(|world| {
            // A walk may miss what moves.
            let told = match toss() {
                true => world.locks.snapshot().len(),
                false => ask_at_once(world),
            };
            assert_eq!(told, 1);
        });
        assert_eq!(lease.downgrade(), Ok(()));
        join(looker);
        drop(lease);
        world.settle();
    });
}

fn ask_at_once(world: &World) -> usize {
    let locks = &world.locks;
    match shuttle::rand::thread_rng().gen_range(0..4) {
        0 => usize::from(locks.holder(KEY).is_some()),
        1 => locks.holders(KEY).len(),
        2 => locks.checkpoint().leases().count(),
        _ => match locks.try_acquire(KEY, 9, LONG) {
            Err(AcquireError::Held { .. }) => 1,
            other => panic!("{other:?}"),
        },
    }
}

/// Who waits, or has been handed the key meanwhile, is on the snapshot.
#[test]
fn shuttle_who_is_handed_the_key_is_told_of_throughout() {
    check(|| {
        let world = World::new();
        let held = world
            .locks
            .try_acquire(KEY, 1, LONG)
            .expect("free")
            .into_owned();
        let [mut waits] = world.queue(LONG);
        let owner = crate::OwnerId(10);
        let looker = world.spawn(move |world| {
            let found = world.locks.snapshot();
            let holds = found
                .iter()
                .flat_map(|key| &key.holders)
                .any(|it| it.owner == owner);
            let waits = found
                .iter()
                .flat_map(|key| &key.waiters)
                .any(|it| it.owner == owner);
            assert!(holds || waits, "{found:?}");
        });
        assert_eq!(held.release(), Ok(()));
        join(looker);
        let next = poll(&mut waits).expect("it is its turn").expect("granted");
        assert_eq!(next.owner(), owner);
        drop(next);
        world.settle();
    });
}

/// Whoever turns the wheel by hand is told in time of the lease that is out, although others turn it as well.
#[test]
fn shuttle_the_next_wakeup_is_not_late_beside_another_turn() {
    check(|| {
        let world = World::new();
        let lease = world.locks.try_acquire(KEY, 1, 100 * TICK).expect("free");
        let lease = lease.into_owned();
        world.clock.advance(50 * TICK);
        // It stays where it is in the wheel, and is looked at on the way.
        let until = lease.renew(100 * TICK).expect("it is live");
        world.clock.advance(51 * TICK);
        let turn = world.spawn(|world| _ = world.locks.advance());
        let told = world.locks.next_wakeup();
        assert!(told.is_some_and(|told| told <= until), "{told:?}");
        join(turn);
        assert_eq!(lease.release(), Ok(()));
        world.settle();
    });
}
