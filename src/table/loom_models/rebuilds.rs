//! Rule 12: a bucket rebuilt in place.

use super::*;

/// Rebuild in place against a revocation: exactly one end, and nothing is brought back (I4).
///
/// Fails if a killed cell is copied as a live one, if states are not frozen before they are copied,
/// or if the old chain is freed without burying its killed cells.
#[test]
fn a_revocation_survives_a_rebuild() {
    model(5, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 1), Hand::new(&table, path, 1));
        let gone = a.lease(1, 10);
        let stays = a.lease(2, 10);
        let other = spawn(b, |b| b.shed(1));
        assert!(a.revoke(1).is_ok());
        let ((), mut b) = other.join().unwrap();
        assert_eq!(a.validate(&gone), Err(Ended::Expired));
        assert_eq!(b.validate(&stays), Ok(10));
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(1, 0, 1));
    });
}

/// Rebuild against a grant, which helps with it: two rebuilders of one bucket lose neither the old lease
/// nor the new one (I1, I2).
///
/// Fails if a rebuild publishes over whatever word it finds, or if the loser frees the old chain.
#[test]
fn a_grant_survives_a_rebuild() {
    model(5, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 1), Hand::new(&table, path, 1));
        let held = a.lease(1, 10);
        let other = spawn(b, |b| b.shed(1));
        let granted = a.lease(2, 20);
        let ((), mut b) = other.join().unwrap();
        assert!(granted.token > held.token);
        assert_eq!(b.validate(&held), Ok(10));
        assert_eq!(b.validate(&granted), Ok(20));
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(2, 0, 0));
    });
}

/// Rebuild against growth: the growth takes over, and the lease is moved once.
///
/// Fails if a growth leaves a bucket under rebuild as it is.
#[test]
fn a_growth_takes_over_a_rebuild() {
    model(4, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 1), Hand::new(&table, path, 1));
        let held = a.lease(1, 10);
        start_resize(&table, 2);
        let other = spawn(b, |b| b.shed(1));
        a.help();
        let renewed = a.renew(&held, 30).expect("held").0;
        let ((), mut b) = other.join().unwrap();
        assert_eq!(renewed, 30);
        assert_eq!(a.validate(&held), Ok(30));
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(1, 0, 0));
    });
}

/// Release by the word of the grant against a rebuild, of a lease alone in its bucket: the rebuild's
/// word is another one. No broken step was seen to fail it: a cell of another life first in the bucket
/// again takes more steps than it has (`recycling.rs`).
#[test]
fn a_release_survives_a_rebuild() {
    model(5, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 1), Hand::new(&table, path, 1));
        let held = a.lease(2, 10);
        let other = spawn(b, |b| {
            b.shed(2);
            b.grant(2, 20).is_ok()
        });
        assert_eq!(a.release(&held), Ok(()));
        let (again, mut b) = other.join().unwrap();
        let leases = i64::from(again);
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(leases, 0, 0));
    });
}

/// The same with another lease behind it, which stays.
///
/// Fails if a release by the word of the grant unlinks what is behind its cell.
#[test]
fn the_lease_behind_a_release_survives_a_rebuild() {
    model(4, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 1), Hand::new(&table, path, 1));
        let behind = a.lease(1, 10);
        let held = a.lease(2, 10);
        let other = spawn(b, |b| b.shed(1));
        assert_eq!(a.release(&held), Ok(()));
        let ((), mut b) = other.join().unwrap();
        assert_eq!(b.validate(&behind), Ok(10));
        assert_eq!(b.validate(&held), Err(Ended::Expired));
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(1, 0, 0));
    });
}
