//! Rule 8: the mark of a queue against the ends of leases, grants and moves. The queue's lock is not
//! modelled: one thread at a time has to do with the mark.

use super::*;

/// Whoever comes second sees the first: a lease never ends without the queue's moving on, however it
/// ends, and no wake-up is lost (I7).
///
/// Once with the lease first in its bucket, once with another on top.
fn somebody_notices(end: impl Fn(&mut Hand, &Lease) + Copy + Sync + Send + 'static) {
    for neighbours in [0, 1] {
        notices_beside(neighbours, end);
    }
}

fn notices_beside(neighbours: i64, end: impl Fn(&mut Hand, &Lease) + Copy + Sync + Send + 'static) {
    model(4, move |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 10), Hand::new(&table, path, 9));
        let mut before = Hand::empty(&table, path, 1);
        let held = before.lease(1, 10);
        for _ in 0..neighbours {
            before.lease(2, 50);
        }
        let other = spawn(b, |b| (b.mark(1), b.noted()));
        end(&mut a, &held);
        let ((marked, by_marker), mut b) = other.join().unwrap();
        let by_ender = a.noted();
        match marked {
            Marked::Yes => assert!(by_ender, "nobody moves the queue on"),
            Marked::Ended => {}
            Marked::Free => assert!(!by_ender && !by_marker, "there is no queue"),
            Marked::Full => panic!("there are cells"),
        }
        if marked != Marked::Free {
            assert_eq!(b.grant(1, 30).err(), Some(Refused::Marked));
            b.grant_head(1, 30).expect("the key is free");
            b.unmark(1);
        }
        let leases = neighbours + i64::from(marked != Marked::Free);
        assert_eq!(settle(&mut [&mut a, &mut b, &mut before]).leases, leases);
    });
}

/// Fails if a kill does not look for a mark, or if the marker replaces another word than that under
/// which it has found the lease.
#[test]
fn a_release_and_a_mark_see_each_other() {
    somebody_notices(|a, held| {
        a.local.now = 1;
        assert_eq!(a.release(held), Ok(()));
    });
}

/// Fails also if the marker does not look at the lease again after its CAS.
#[test]
fn an_expiry_and_a_mark_see_each_other() {
    somebody_notices(|a, held| assert_eq!(a.look(held), Look::Nothing));
}

#[test]
fn a_revocation_and_a_mark_see_each_other() {
    somebody_notices(|a, _| {
        a.local.now = 1;
        assert!(a.revoke(1).is_ok());
    });
}

/// Nobody barges in between a lease and the head of its queue (I7).
///
/// Fails if a grant does not look for a mark, or if a kill does not.
#[test]
fn nobody_barges_past_a_mark() {
    model(3, |path| {
        let table = table(1);
        let [mut a, b, mut c] = [(); 3].map(|()| Hand::new(&table, path, 1));
        let held = a.lease(1, 10);
        assert_eq!(c.mark(1), Marked::Yes);
        let other = spawn(b, |b| (b.grant(1, 10).err(), b.grant(2, 10).is_ok()));
        assert_eq!(a.release(&held), Ok(()));
        assert!(a.noted());
        let head = a.grant_head(1, 20).expect("the key is kept for it");
        let ((barger, neighbour), mut b) = other.join().unwrap();
        match barger {
            Some(Refused::Marked) => {}
            Some(Refused::Held(lease)) => assert!([held.token, head.token].contains(&lease.token)),
            other => panic!("{other:?}"),
        }
        assert!(neighbour);
        c.unmark(1);
        assert_eq!(settle(&mut [&mut a, &mut b, &mut c]), totals(2, 0, 0));
    });
}

/// A mark moves with its bucket, once, while the lease before it is released.
///
/// Fails if marks are not frozen, if one is skipped like a dead cell, or if the loser of a publication
/// keeps its copy.
#[test]
fn a_mark_survives_a_move() {
    model(2, |path| {
        let table = table(1);
        let [mut a, mut b, c] = [(); 3].map(|()| Hand::new(&table, path, 1));
        let held = a.lease(1, 10);
        assert_eq!(b.mark(1), Marked::Yes);
        start_resize(&table, 2);
        let helper = spawn(c, Hand::help);
        assert_eq!(a.release(&held), Ok(()));
        assert!(a.noted(), "nobody moves the queue on");
        let ((), mut c) = helper.join().unwrap();
        assert_eq!(c.grant(1, 10).err(), Some(Refused::Marked));
        c.grant_head(1, 20).expect("the key is kept for it");
        b.unmark(1);
        assert_eq!(c.grant(1, 10).is_err(), true);
        assert_eq!(settle(&mut [&mut a, &mut b, &mut c]), totals(1, 0, 0));
    });
}

/// Taking a mark away against a move: it is gone from both arrays, and no cell is lost.
///
/// Fails if a frozen mark is taken for the last word.
#[test]
fn a_mark_is_taken_away_during_a_move() {
    model(3, |path| {
        let table = table(1);
        let [mut a, b] = [(); 2].map(|()| Hand::new(&table, path, 1));
        let held = a.lease(1, 10);
        assert_eq!(a.mark(1), Marked::Yes);
        start_resize(&table, 2);
        let helper = spawn(b, Hand::help);
        a.unmark(1);
        let ((), mut b) = helper.join().unwrap();
        assert_eq!(a.release(&held), Ok(()));
        assert!(!a.noted(), "nobody waits");
        assert!(b.grant(1, 10).is_ok());
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(1, 0, 0));
    });
}
