//! Queues in a table that changes its size.

use super::*;

/// More than make a table of one bucket grow four times.
const OTHERS: u64 = 12;

/// A key that others wait for is handed over while its bucket moves, several times: nobody is forgotten,
/// nobody is passed over, and tokens rise from array to array.
#[test]
fn shuttle_a_queue_moves_with_its_bucket() {
    check(|| {
        let world = World::with(1, None, false);
        let (held, above) = world.hold(LONG);
        let [first] = world.queue(LONG);
        let first = world.spawn(|world| world.go_on(first));
        let second = world.spawn(|world| world.wait(3));
        let crowd = world.spawn(|world| {
            let keys = 100..100 + OTHERS;
            let leases = keys.map(|key| world.locks.try_acquire(key, 4, LONG));
            let leases: Vec<_> = leases.map(|lease| lease.expect("nobody else's")).collect();
            for lease in leases {
                assert_eq!(lease.release(), Ok(()));
            }
        });
        let helper = world.spawn(|world| world.locks.advance());
        let held = world.visits.visit(held);
        let (first, second) = (join(first), join(second));
        assert!(held < first && first < second, "first come, first served");
        join(crowd);
        join(helper);
        drop(above);
        world.settle();
        // Whether or not it has shrunk again since: each resize raises the base.
        assert!(world.engine.floor() > 0, "it has not moved");
    });
}

/// Waiters that leave take the mark away wherever it is by now.
#[test]
fn shuttle_a_mark_is_taken_away_while_it_moves() {
    check(|| {
        let world = World::with(1, None, false);
        let (held, above) = world.hold(LONG);
        let [first, second] = world.queue(LONG);
        let leavers = [first, second].map(|acquire| thread::spawn(move || drop(acquire)));
        let crowd = world.spawn(|world| {
            let leases = [100, 101, 102, 103].map(|key| world.locks.try_acquire(key, 4, LONG));
            leases.map(|lease| lease.expect("nobody else's").detach())
        });
        let helper = world.spawn(|world| world.locks.advance());
        let visit = || world.visits.visit(held);
        if toss() {
            visit();
            leavers.into_iter().for_each(join);
        } else {
            leavers.into_iter().for_each(join);
            world.assert_unmarked();
            visit();
        }
        join(helper);
        for (key, token) in (100_u64..).zip(join(crowd)) {
            assert_eq!(world.locks.release(key, token), Ok(()));
        }
        drop(above);
        world.settle();
    });
}
