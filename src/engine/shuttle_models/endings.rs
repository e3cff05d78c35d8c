//! Leases that end in other ways than by a release, and managers that do.

use super::*;
use crate::error::{ReleaseError, RenewError};

const SHORT: Duration = Duration::from_millis(4);

/// The clock reaches a deadline while the holder renews: either it keeps the lease until the new deadline,
/// or it is told that the lease is over, and the waiter has it without anything more being done (I4, I5).
#[test]
fn shuttle_a_renewal_and_an_expiry_agree() {
    check(|| {
        let world = World::new();
        let (held, above) = world.hold(SHORT);
        let [waiter] = world.queue(LONG);
        let waiter = world.spawn(|world| {
            let lease = shuttle::future::block_on(waiter).expect("the lease passes on");
            world.visits.work(&lease);
            (world.clock_reads(), lease.token())
        });
        let sweeper = world.spawn(|world| {
            world.clock.advance(SHORT);
            world.locks.advance();
        });
        let renewed = if toss() {
            held.renew(2 * SHORT)
        } else {
            world.locks.renew(KEY, held.token(), 2 * SHORT)
        };
        let token = held.token();
        let _ = held.detach();
        join(sweeper);
        match renewed {
            Ok(deadline) => {
                assert_eq!(deadline, at(2 * SHORT));
                let holder = world.locks.holder(KEY).expect("it was renewed");
                assert_eq!((holder.token, holder.deadline), (token, deadline), "I5");
                world.clock.set(deadline);
                assert!(
                    world.locks.next_wakeup() <= Some(deadline),
                    "it would be swept late"
                );
                assert_eq!(world.locks.advance(), 1);
                let (granted, next) = join(waiter);
                assert!(granted >= deadline && next > token, "I5");
            }
            Err(RenewError::Expired { .. }) => assert!(join(waiter).1 > token),
            Err(other) => panic!("{other:?}"),
        }
        assert_eq!(world.locks.stats().expired, 1);
        drop(above);
        world.settle();
    });
}

/// A lease that is over passes on, whoever comes upon it: the driver, an acquisition, a look. So does
/// that of a waiter who dies in turn: the driver is woken for it, if it sleeps.
#[test]
fn shuttle_an_expired_lease_passes_on_whoever_finds_it() {
    check(|| {
        let world = World::driven();
        let (held, above) = world.hold(SHORT);
        let held = held.detach();
        let [first] = world.queue(SHORT);
        let first = world.spawn(|_| {
            let lease = shuttle::future::block_on(first);
            lease.expect("the lease passes on").detach()
        });
        let second = world.spawn(|world| world.wait(3));
        let looker = world.spawn(move |world| {
            if toss() {
                world.pass_by(4);
            } else {
                let _ = world.locks.holder(KEY);
            }
        });
        world.pass(SHORT);
        world.pass(SHORT);
        let first = join(first);
        // It may have been granted then only.
        world.pass(SHORT);
        let second = join(second);
        assert!(held < first && first < second, "first come, first served");
        join(looker);
        drop(above);
        // The driver reports its ends in its own time.
        let Some(World { locks, engine, .. }) = Arc::into_inner(world) else {
            panic!("no thread has it");
        };
        drop(locks);
        let totals = engine.totals();
        assert_eq!((totals.leases, totals.expired), (0, 2));
        assert_eq!(engine.waiting(), 0, "a waiter is left");
    });
}

/// A revocation against the release, with two who wait: whichever lease it ends passes on, and is ended
/// once.
#[test]
fn shuttle_a_revoked_lease_passes_on() {
    check(|| {
        let world = World::new();
        let (held, above) = world.hold(LONG);
        let [waiter] = world.queue(LONG);
        let revoking = world.spawn(|world| world.locks.revoke(KEY).map(|holder| holder.token));
        // Not by visits: a holder is not told of the revocation.
        let end = |lease: Lease<'_>| {
            let token = lease.token();
            let released = lease.release();
            let over = Err(ReleaseError::Expired { token });
            assert!(released == Ok(()) || released == over, "{released:?}");
            (token, released.is_ok())
        };
        let first = thread::spawn(move || {
            end(shuttle::future::block_on(waiter).expect("the lease passes on"))
        });
        let second = world.spawn(move |world| {
            end(world
                .locks
                .acquire(KEY, 3, LONG)
                .wait()
                .expect("the lease passes on"))
        });
        let held = end(held);
        let ends = [held, join(first), join(second)];
        assert!(
            ends.is_sorted_by(|a, b| a.0 < b.0),
            "first come, first served: {ends:?}"
        );
        let revoked = join(revoking).ok();
        for (token, released) in ends {
            assert!(
                released || revoked == Some(token),
                "a lease that nobody ended is over"
            );
        }
        assert!(revoked.is_none_or(|token| ends.iter().any(|end| end.0 == token)));
        assert_eq!(world.locks.stats().expired, 0);
        assert!(world.locks.stats().revoked <= u64::from(revoked.is_some()));
        drop(above);
        world.settle();
    });
}

/// The last handle goes while some wait, one arrives and the lease is released: each is told something,
/// and nothing but a lease that was given up or that the manager is closed.
#[test]
fn shuttle_nobody_waits_on_for_a_closed_manager() {
    check(|| {
        let world = World::new();
        let (held, above) = world.hold(LONG);
        let [first, second] = world.queue(LONG);
        let late = Box::pin(world.locks.acquire(KEY, 4, LONG).into_owned());
        let Some(World { locks, engine, .. }) = Arc::into_inner(world) else {
            panic!("no thread has it");
        };
        let waiters = [first, second, late].map(|acquire| {
            thread::spawn(move || match shuttle::future::block_on(acquire) {
                // Passes it on, if the manager is still there.
                Ok(lease) => Some(lease.token()),
                Err(AcquireError::Closed) => None,
                Err(other) => panic!("{other:?}"),
            })
        });
        let releasing = thread::spawn(move || match held.release() {
            Ok(()) => true,
            Err(ReleaseError::Closed) => false,
            Err(other) => panic!("{other:?}"),
        });
        drop(locks);
        let tokens = waiters.map(join);
        let released = join(releasing);
        assert!(
            released || tokens == [None; 3],
            "the lease was not given up"
        );
        let granted: Vec<_> = tokens.into_iter().map_while(|token| token).collect();
        let all = tokens.into_iter().flatten().count();
        assert_eq!(granted.len(), all, "first come, first served: {tokens:?}");
        assert!(granted.is_sorted_by(|a, b| a < b), "I2: {tokens:?}");
        assert_eq!(engine.waiting(), 0, "a waiter is left");
        drop(above);
    });
}
