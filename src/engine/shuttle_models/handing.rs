//! A lease that is given up, against those who come, wait and leave.

use shuttle::sync::Barrier;

use super::*;

/// Nobody is left waiting while the key is free: who arrives while the lease is released either gets it
/// or is seen by the releaser (I7).
///
/// The two alone, with little besides: what has to come in between is a step or two long.
#[test]
fn shuttle_an_arrival_and_a_release_see_each_other() {
    check(|| {
        let world = World::new();
        let (held, above) = world.hold(LONG);
        let start = Arc::new(Barrier::new(2));
        let line = Arc::clone(&start);
        let waiter = world.spawn(move |world| {
            // A thread's first operation is a long one.
            drop(world.locks.try_acquire(OTHER, 2, LONG));
            line.wait();
            world.wait(2)
        });
        start.wait();
        let first = held.token();
        assert_eq!(held.release(), Ok(()));
        assert!(first < join(waiter));
        drop(above);
        world.settle();
    });
}

/// Somebody who only tries in passing, and never comes in between two who wait.
#[test]
fn shuttle_a_passer_by_does_not_barge_in() {
    check(|| {
        let world = World::new();
        let (held, above) = world.hold(LONG);
        let [first] = world.queue(LONG);
        let first = world.spawn(|world| world.go_on(first));
        let passer = world.spawn(|world| {
            let lease = world.locks.try_acquire(KEY, 3, LONG).ok()?;
            Some(world.visits.visit(lease))
        });
        let second = world.spawn(|world| world.wait(4));
        world.visits.visit(held);
        let (first, passer, second) = (join(first), join(passer), join(second));
        assert!(first < second, "first come, first served");
        assert!(
            passer.is_none_or(|passer| first < passer),
            "the head of the queue was passed over"
        );
        drop(above);
        world.settle();
    });
}

/// A waiter that leaves while it is granted the lease gives it to the next, who came before any who
/// arrives meanwhile.
#[test]
fn shuttle_a_waiter_that_leaves_passes_the_lease_on() {
    check(|| {
        let world = World::new();
        let (held, above) = world.hold(LONG);
        let [leaver, next] = world.queue(LONG);
        let leaver = thread::spawn(|| drop(leaver));
        let next = world.spawn(|world| world.go_on(next));
        let late = world.spawn(|world| world.wait(4));
        world.visits.visit(held);
        join(leaver);
        assert!(join(next) < join(late), "first come, first served");
        drop(above);
        world.settle();
    });
}

/// A queue that comes into being and goes away, again and again, while the lease changes hands: its mark
/// is there as long as it is, and no longer.
#[test]
fn shuttle_a_queue_that_comes_and_goes_loses_nobody() {
    check(|| {
        let world = World::new();
        let (held, above) = world.hold(LONG);
        let leaver = world.spawn(|world| {
            let mut acquire = Box::pin(world.locks.acquire(KEY, 2, LONG));
            if let Some(lease) = poll(&mut acquire) {
                world.visits.visit(lease.expect("it is granted or waits"));
            }
        });
        let waiter = world.spawn(|world| world.wait(3));
        let passer = world.spawn(|world| (0..2).for_each(|_| world.pass_by(4)));
        world.visits.visit(held);
        join(leaver);
        join(waiter);
        join(passer);
        drop(above);
        world.settle();
    });
}

/// Within a limit of one lease, one that passes on is never short of a place, and there is never a second.
#[test]
fn shuttle_a_lease_that_passes_on_keeps_its_place() {
    check(|| {
        let world = World::with(64, Some(1), false);
        let held = world
            .locks
            .try_acquire(KEY, 1, LONG)
            .expect("there is room");
        let held = held.into_owned();
        let [first] = world.queue(LONG);
        let first = world.spawn(|world| world.go_on(first));
        let other = world.spawn(|world| {
            // One lease in all: another key's is as good as this one's.
            match world.locks.try_acquire(OTHER, 2, LONG) {
                Ok(lease) => world.visits.work_beside(lease),
                Err(AcquireError::CapacityExceeded { capacity: 1 }) => {}
                Err(other) => panic!("{other:?}"),
            }
        });
        world.visits.visit(held);
        join(first);
        join(other);
        world.settle();
    });
}
