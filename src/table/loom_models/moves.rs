//! Rules 9 to 11: freeze, copy and publish, in growth and in shrinking.

use super::*;

/// Both helpers of a move and what a third thread, the client, does meanwhile.
fn during_a_move<R>([a, b, c]: [Hand; 3], client: impl FnOnce(&mut Hand) -> R) -> (R, [Hand; 3]) {
    let first = spawn(b, Hand::help);
    let second = spawn(c, Hand::help);
    let mut a = a;
    let result = client(&mut a);
    let ((), b) = first.join().unwrap();
    let ((), c) = second.join().unwrap();
    (result, [a, b, c])
}

fn three(table: &Arc<Small>, path: Path) -> [Hand; 3] {
    [(); 3].map(|()| Hand::new(table, path, 1))
}

/// Freeze, copy and publish by two helpers against a renewal by the old handle: the lease is found
/// once, with the renewed deadline (I5).
///
/// Fails if states are not frozen before they are copied, or if the loser of a publication frees the
/// old chain.
#[test]
fn a_renewal_survives_a_move_by_two_helpers() {
    model(2, |path| {
        let table = table(1);
        let [mut a, b, c] = three(&table, path);
        let held = a.lease(1, 10);
        start_resize(&table, 2);
        let (renewed, [mut a, mut b, mut c]) =
            during_a_move([a, b, c], |a| a.renew(&held, 30).expect("held"));
        assert_eq!(renewed.0, 30);
        assert_eq!(a.validate(&held), Ok(30));
        assert_eq!(a.release(&renewed.1), Ok(()));
        assert_eq!(settle(&mut [&mut a, &mut b, &mut c]), totals(0, 0, 0));
    });
}

/// The same against a release by the old handle.
///
/// Fails if a release takes a frozen state for an ended lease, or if a `DONE` bucket is taken for an
/// empty one.
#[test]
fn a_release_survives_a_move_by_two_helpers() {
    model(2, |path| {
        let table = table(1);
        let [mut a, b, c] = three(&table, path);
        let held = a.lease(1, 10);
        start_resize(&table, 2);
        let (released, [mut a, mut b, mut c]) = during_a_move([a, b, c], |a| a.release(&held));
        assert_eq!(released, Ok(()));
        assert_eq!(a.validate(&held), Err(Ended::Expired));
        assert_eq!(settle(&mut [&mut a, &mut b, &mut c]), totals(0, 0, 0));
    });
}

/// The same against a grant of the held key and of a free one (I1, I2).
///
/// Fails if the bucket's word is not frozen before its chain is copied, or if the loser of a
/// publication frees the old chain.
#[test]
fn a_grant_survives_a_move_by_two_helpers() {
    model(2, |path| {
        let table = table(1);
        let [held, free] = keys_of(&table, 0);
        let [mut a, b, c] = three(&table, path);
        let held = a.lease(held, 10);
        start_resize(&table, 2);
        let (granted, [mut a, mut b, mut c]) = during_a_move([a, b, c], |a| {
            let refused = a.grant(held.raw, 20);
            assert!(matches!(refused, Err(Refused::Held(found)) if found.token == held.token));
            a.lease(free, 20)
        });
        assert!(granted.token > held.token);
        assert_eq!(b.validate(&held), Ok(10));
        assert_eq!(b.validate(&granted), Ok(20));
        assert_eq!(settle(&mut [&mut a, &mut b, &mut c]), totals(2, 0, 0));
    });
}

/// Growth with a lease for each child, moved by the two threads that use them.
///
/// Fails if a parent is `DONE` before all its children stand.
#[test]
fn both_children_of_a_bucket_get_their_leases() {
    model(4, |path| {
        let table = table(1);
        let [left] = keys_of(&table, 0);
        let [right] = keys_of(&table, 1);
        let (mut a, b) = (Hand::new(&table, path, 1), Hand::new(&table, path, 1));
        let left = a.lease(left, 10);
        let right = a.lease(right, 10);
        start_resize(&table, 2);
        let other = spawn(b, move |b| b.renew(&left, 20).expect("held").0);
        assert_eq!(a.renew(&right, 20).expect("held").0, 20);
        let (renewed, mut b) = other.join().unwrap();
        assert_eq!(renewed, 20);
        // Through the new array, which moves what has not moved.
        a.local.array = table.newest();
        b.local.array = table.newest();
        assert_eq!(a.validate(&left), Ok(20));
        assert_eq!(b.validate(&right), Ok(20));
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(2, 0, 0));
    });
}

/// Two threads move one bucket by using its keys in the new array.
///
/// Fails if a parent is `DONE` before all its children stand, or if its chain is freed by all who
/// find it so.
#[test]
fn two_movers_of_one_group_agree() {
    model(4, |path| {
        let table = table(1);
        let [left] = keys_of(&table, 0);
        let [right] = keys_of(&table, 1);
        let (mut a, mut b) = (Hand::new(&table, path, 1), Hand::new(&table, path, 1));
        let left = a.lease(left, 10);
        let right = a.lease(right, 10);
        start_resize(&table, 2);
        a.local.array = table.newest();
        b.local.array = table.newest();
        let other = spawn(b, move |b| b.validate(&left));
        assert_eq!(a.validate(&right), Ok(10));
        let (found, mut b) = other.join().unwrap();
        assert_eq!(found, Ok(10));
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(2, 0, 0));
    });
}

/// A helper that stalls in a chain which has moved: the cell's next life is not frozen by it.
///
/// Fails if a state is frozen without a look at the bucket between load and CAS.
#[test]
fn a_stale_helper_does_not_freeze_the_next_life() {
    model(2, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 1), Hand::new(&table, path, 1));
        let held = a.lease(1, 10);
        start_resize(&table, 2);
        let other = spawn(b, Hand::help);
        a.help();
        let next = a.lease(2, 20);
        let ((), mut b) = other.join().unwrap();
        assert_eq!(a.validate(&held), Ok(10));
        assert_eq!(a.validate(&next), Ok(20));
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(2, 0, 0));
    });
}

/// Shrinking, against a grant of the held key and of another one (I1, I2): tokens rise past those of
/// both parents.
///
/// Fails if the child's version comes from one parent only, or if only one parent is frozen.
#[test]
fn a_grant_survives_a_shrinking_move() {
    for order in [[0, 1], [1, 0]] {
        model(3, move |path| {
            let table = table(2);
            let [[busy, free], [quiet, _]] = order.map(|index| keys_of(&table, index));
            let (mut a, b) = (Hand::new(&table, path, 1), Hand::new(&table, path, 1));
            let quiet = a.lease(quiet, 10);
            for _ in 0..3 {
                let lease = a.lease(busy, 10);
                a.release(&lease).expect("held");
            }
            let busy = a.lease(busy, 10);
            start_resize(&table, 1);
            let other = spawn(b, Hand::help);
            let refused = a.grant(busy.raw, 20);
            assert!(matches!(refused, Err(Refused::Held(found)) if found.token == busy.token));
            let granted = a.lease(free, 20);
            let ((), mut b) = other.join().unwrap();
            assert!(granted.token > busy.token);
            assert_eq!(b.validate(&busy), Ok(10));
            assert_eq!(b.validate(&quiet), Ok(10));
            assert_eq!(b.validate(&granted), Ok(20));
            assert_eq!(b.release(&busy), Ok(()));
            assert!(b.lease(busy.raw, 20).token > granted.token);
            assert_eq!(settle(&mut [&mut a, &mut b]), totals(3, 0, 0));
        });
    }
}

/// Shrinking against a release in one parent and one in the other.
///
/// Fails if states are not frozen before they are copied, or if only one parent is frozen.
#[test]
fn releases_survive_a_shrinking_move() {
    model(3, |path| {
        let table = table(2);
        let [left] = keys_of(&table, 0);
        let [right] = keys_of(&table, 1);
        let (mut a, b) = (Hand::new(&table, path, 1), Hand::new(&table, path, 1));
        let left = a.lease(left, 10);
        let right = a.lease(right, 10);
        start_resize(&table, 1);
        let other = spawn(b, Hand::help);
        assert_eq!(a.release(&left), Ok(()));
        assert_eq!(a.release(&right), Ok(()));
        let ((), mut b) = other.join().unwrap();
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(0, 0, 0));
    });
}

/// Two movers, one of which turns the wheel: a lease that is over when it is moved is reported once,
/// wherever it is found, and every copy is announced to the wheel.
///
/// Fails if killed cells are copied, if an old chain is freed without burying its killed cells, or if
/// states are not frozen.
#[test]
fn an_expiry_survives_a_move() {
    model(2, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 10), Hand::new(&table, path, 9));
        let held = a.lease(1, 10);
        let stays = a.lease(2, 20);
        start_resize(&table, 2);
        let other = spawn(b, Hand::help);
        a.look(&held);
        a.help();
        let ((), mut b) = other.join().unwrap();
        // What the wheel was told of meanwhile.
        let moved: Vec<u32> = [&mut a, &mut b]
            .into_iter()
            .flat_map(|hand| std::mem::take(&mut hand.local.moved))
            .map(|moved| moved.cell)
            .collect();
        for cell in moved {
            table.look(&mut a.local, cell);
        }
        assert_eq!(a.validate(&stays), Ok(20));
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(1, 1, 0));
    });
}

/// Two groups moved by two threads, one each, to an array of the same size: the parent is forgotten
/// once both have moved, and not before.
///
/// Fails if a group's move clears the parent before the last one has moved.
#[test]
fn the_parent_is_kept_until_every_group_has_moved() {
    model(3, |path| {
        let table = table(2);
        let [left] = keys_of(&table, 0);
        let [right] = keys_of(&table, 1);
        let (mut a, mut b) = (Hand::new(&table, path, 1), Hand::new(&table, path, 1));
        let left = a.lease(left, 10);
        let right = a.lease(right, 10);
        start_resize(&table, 2);
        a.local.array = table.newest();
        b.local.array = table.newest();
        let other = spawn(b, move |b| b.validate(&left));
        assert_eq!(a.validate(&right), Ok(10));
        let (found, mut b) = other.join().unwrap();
        assert_eq!(found, Ok(10));
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(2, 0, 0));
    });
}

/// Release of a first cell against growth, with another lease behind it, which stays.
///
/// Fails if a release by the word of the grant unlinks what is behind its cell.
#[test]
fn the_lease_behind_a_release_survives_a_move() {
    model(3, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 1), Hand::new(&table, path, 1));
        let behind = a.lease(1, 10);
        let held = a.lease(2, 10);
        start_resize(&table, 2);
        let other = spawn(b, move |b| {
            b.help();
            b.validate(&behind)
        });
        assert_eq!(a.release(&held), Ok(()));
        let (found, mut b) = other.join().unwrap();
        assert_eq!(found, Ok(10));
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(1, 0, 0));
    });
}
