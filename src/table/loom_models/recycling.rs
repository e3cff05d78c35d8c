//! Cells that live again: sleepers with old handles, stale walks, and the wheel's registrations, which
//! outlast a life.

use super::*;

/// A deadline one era later than those of the other grants.
const NEXT_ERA: u64 = (1 << Wide::ERA_SHIFT) + 20;

/// Recycling against a sleeper with an old handle: the cell is released and granted again to the same
/// key while another thread renews by the old handle and token (I6).
///
/// Fails if neither life nor token are compared, or if the renewal stores the state.
#[test]
fn a_renewal_by_an_old_handle_does_not_touch_the_next_life() {
    model(3, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 1), Hand::new(&table, path, 1));
        let held = a.lease(1, 10);
        let other = spawn(b, move |b| b.renew(&held, 30).map(|(deadline, _)| deadline));
        a.release(&held).expect("held");
        let again = a.lease(1, 20);
        assert_eq!(
            again.handle.cell(),
            held.handle.cell(),
            "the cell is used again"
        );
        let (renewed, mut b) = other.join().unwrap();
        assert!(matches!(
            renewed,
            Ok(30) | Err(Unrenewed::Ended(Ended::Expired))
        ));
        assert_eq!(
            a.validate(&again),
            Ok(20),
            "the renewal reached the next lease"
        );
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(1, 0, 0));
    });
}

/// The same with a release by the old handle.
///
/// Fails if neither life nor token are compared, if a release compares only the first cell and not the
/// version, or if a finisher does not look at the state again after loading the bucket.
#[test]
fn a_release_by_an_old_handle_does_not_touch_the_next_life() {
    model(3, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 1), Hand::new(&table, path, 1));
        let held = a.lease(1, 10);
        let other = spawn(b, move |b| b.release(&held));
        let _ = a.release(&held);
        let again = a.lease(1, 20);
        let (_, mut b) = other.join().unwrap();
        assert_eq!(
            a.validate(&again),
            Ok(20),
            "the release reached the next lease"
        );
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(1, 0, 0));
    });
}

/// A renewal that need not change anything answers with a deadline that stood: not with the offset of
/// one life in the era of the next.
///
/// Fails if the state is not loaded again after the era, or if the words of a cell are stored or
/// loaded relaxed.
#[test]
fn a_renewal_does_not_mix_two_lives() {
    model(2, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 1), Hand::new(&table, path, 1));
        let held = a.lease(1, 10);
        let other = spawn(b, move |b| {
            let stands = b.table.deadline_by_handle(held.handle, &b.name(&held));
            let renewed = b.renew(&held, 30).map(|(deadline, _)| deadline);
            (stands, renewed)
        });
        a.release(&held).expect("held");
        let again = a.lease(1, NEXT_ERA);
        assert_eq!(
            again.handle.cell(),
            held.handle.cell(),
            "the cell is used again"
        );
        let ((stands, renewed), mut b) = other.join().unwrap();
        let deadline = stands.map(|(deadline, _)| deadline);
        assert!(matches!(deadline, Some(10) | None), "{stands:?}");
        let over = Err(Unrenewed::Ended(Ended::Expired));
        assert!(renewed == Ok(30) || renewed == over, "{renewed:?}");
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(1, 0, 0));
    });
}

/// The same for a look by key: token, owner and deadline are those of one lease.
///
/// Fails if the short look does not load its bucket again.
#[test]
fn a_look_by_key_does_not_mix_two_lives() {
    model(2, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 1), Hand::new(&table, path, 1));
        let held = a.lease(1, 10);
        let other = spawn(b, move |b| {
            let name = b.name(&held);
            let place = (name.key, name.hash);
            b.table.live_spotted(&b.local, place, grant::FEW, |_| true)
        });
        a.release(&held).expect("held");
        let again = a.lease(1, NEXT_ERA);
        let (found, mut b) = other.join().unwrap();
        let found = found.map(|found| (found.token, found.deadline));
        let either = [(held.token, 10), (again.token, NEXT_ERA)];
        assert!(
            found.is_none_or(|found| either.contains(&found)),
            "{found:?}"
        );
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(1, 0, 0));
    });
}

/// Recycling against a stale walk: a thread looks for a key at the end of a chain whose first cell is
/// released and granted to another key meanwhile; it must find what stands there throughout.
///
/// Fails if a walk that ends without a find does not look at its bucket again.
#[test]
fn a_stale_walk_still_finds_what_stands() {
    model(4, |path| {
        let table = table(2);
        let [stays, goes] = keys_of(&table, 0);
        let [elsewhere] = keys_of(&table, 1);
        let (mut a, b) = (Hand::new(&table, path, 1), Hand::new(&table, path, 1));
        let stays = a.lease(stays, 10);
        let goes = a.lease(goes, 10);
        let other = spawn(b, move |b| {
            (b.validate(&stays), b.grant(stays.raw, 20).is_err())
        });
        a.release(&goes).expect("held");
        let next = a.lease(elsewhere, 10);
        assert_eq!(
            next.handle.cell(),
            goes.handle.cell(),
            "the cell is used again"
        );
        let ((found, refused), mut b) = other.join().unwrap();
        assert_eq!(found, Ok(10));
        assert!(refused);
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(2, 0, 0));
    });
}

/// Release by a sleeper against theft of its lease and two more grants, the last of which puts its old
/// cell first in the bucket again.
///
/// Fails if a release compares only the first cell and not the version.
#[test]
fn a_release_knows_its_bucket_by_the_version() {
    model(4, |path| {
        let table = table(1);
        let (mut a, mut b) = (Hand::new(&table, path, 9), Hand::new(&table, path, 10));
        b.keep_one_cell(&mut a);
        let held = a.lease(1, 10);
        let other = spawn(b, move |b| {
            let stolen = b.grant(1, 20).ok()?;
            let next = b.lease(2, 20);
            Some((stolen, next))
        });
        let _ = a.release(&held);
        let (granted, mut b) = other.join().unwrap();
        let mut leases = 0;
        if let Some((stolen, next)) = granted {
            assert_eq!(a.validate(&stolen), Ok(20));
            assert_eq!(a.validate(&next), Ok(20));
            leases = 2;
        }
        assert_eq!(settle(&mut [&mut a, &mut b]).leases, leases);
    });
}

/// The wheel's look at a cell that is private: filled in for a grant, by a clock that is behind. The
/// grant stands, and its expiry is reported by a later look.
///
/// Fails if the wheel kills a cell without finding it in its bucket.
#[test]
fn the_wheel_leaves_a_private_cell_alone() {
    model(6, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 9), Hand::new(&table, path, 10));
        let registered = a.lease(1, 10);
        a.release(&registered).expect("held");
        let other = spawn(b, move |b| b.look(&registered));
        let again = a.lease(1, 10);
        assert_eq!(
            again.handle.cell(),
            registered.handle.cell(),
            "the cell is used again"
        );
        let (_, mut b) = other.join().unwrap();
        assert_eq!(b.look(&again), Look::Nothing);
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(0, 1, 0));
    });
}

/// The wheel's look at a registration of an earlier life: it sees a deadline that stood, so that it
/// neither ends the lease that lives in the cell now nor comes back too late for it.
///
/// Fails if the state is not loaded again after the era, or if the state or the words of a cell are
/// stored or loaded relaxed.
#[test]
fn the_wheel_does_not_mix_two_lives() {
    model(3, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 25), Hand::new(&table, path, 25));
        let registered = a.lease(1, 30);
        let other = spawn(b, move |b| b.look(&registered));
        a.release(&registered).expect("held");
        let next = a.lease(2, NEXT_ERA);
        assert_eq!(
            next.handle.cell(),
            registered.handle.cell(),
            "the cell is used again"
        );
        let (looked, mut b) = other.join().unwrap();
        let stood = [Look::Nothing, Look::At(30), Look::At(NEXT_ERA)];
        assert!(stood.contains(&looked), "{looked:?}");
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(1, 0, 0));
    });
}

/// A renewal by key whose cell goes on into the next era meanwhile (I6).
///
/// Fails, with overflow checks, if the era is read apart from the look-up.
#[test]
fn a_renewal_by_key_does_not_take_the_era_of_the_next_life() {
    model(3, |_| {
        let path = Path::Slow;
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 1), Hand::new(&table, path, 1));
        let held = a.lease(1, 10);
        let other = spawn(b, move |b| b.renew(&held, 30).map(|(deadline, _)| deadline));
        a.release(&held).expect("held");
        a.lease(2, NEXT_ERA);
        let (renewed, mut b) = other.join().unwrap();
        let over = Err(Unrenewed::Ended(Ended::Expired));
        assert!(renewed == Ok(30) || renewed == over, "{renewed:?}");
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(1, 0, 0));
    });
}
