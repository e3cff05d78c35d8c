//! Rule 8: the mark of a record against the ends of leases, grants and moves. The record's lock is not
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

/// A record comes into being, and goes, beside plain leases of the key (inflate against deflate): a token
/// is issued or a plain lease granted, never both at once (I1), and tokens rise (I2).
///
/// Fails if a token is issued whatever lease the table has, if a grant does not look for a mark, or if a
/// token is issued without a new version of the bucket.
#[test]
fn a_record_and_a_plain_lease_exclude_each_other() {
    model(3, |path| {
        let table = table(1);
        let [mut a, b] = [(); 2].map(|()| Hand::new(&table, path, 1));
        let other = spawn(b, |b| {
            let lease = b.grant(1, 10).ok();
            if let Some(lease) = &lease {
                assert_eq!(b.release(lease), Ok(()));
            }
            lease.map(|lease| lease.token)
        });
        let shared = a.issue(1, true).ok();
        let beside = shared.and_then(|_| a.issue(1, false).ok());
        if shared.is_some() {
            // While the record holds the key, nobody is granted it past the record.
            assert_eq!(a.grant(1, 10).err(), Some(Refused::Marked));
            a.unmark(1);
        }
        let (plain, mut b) = other.join().unwrap();
        assert!(shared.is_some() || plain.is_some());
        assert_eq!(shared.is_some(), beside.is_some(), "it holds the key");
        assert!(beside.is_none_or(|beside| Some(beside) > shared), "I2");
        let last = a.grant(1, 20).expect("the key is free").token;
        assert!(plain.max(beside) < Some(last), "I2");
        assert!(
            plain != shared && plain != beside,
            "two leases of one token"
        );
        let end = settle(&mut [&mut a, &mut b]);
        assert_eq!(end, totals(1, 0, 0));
    });
}

/// The table's lease goes over to the record while its holder renews or releases it: it is in one of the
/// two, with the deadline that the holder was told of last (I5), or it has ended.
///
/// Fails if it is taken out in another state than it was found in.
#[test]
fn a_lease_is_taken_over_as_it_is() {
    for releases in [false, true] {
        model(3, move |path| {
            let table = table(1);
            let [mut a, b] = [(); 2].map(|()| Hand::new(&table, path, 1));
            let held = a.lease(1, 10);
            let token = held.token;
            let other = spawn(b, |b| {
                let marked = b.mark(1);
                (marked, b.take_over(1), b.noted())
            });
            let told = match releases {
                true => a.release(&held).ok().map(|()| 0),
                false => a.renew(&held, 20).ok().map(|renewed| renewed.0),
            };
            let ((marked, taken, _), mut b) = other.join().unwrap();
            match (releases, told, taken) {
                // Which of them came first.
                (true, Some(_), None) | (true, None, Some((_, 10))) => {}
                (false, Some(20), Some((_, 20))) | (false, None, Some((_, 10))) => {}
                other => panic!("{other:?}"),
            }
            assert!(taken.is_none_or(|taken| taken.0 == token));
            if marked != Marked::Free {
                b.unmark(1);
            }
            assert!(b.grant(1, 30).expect("free in the table").token > token);
            assert_eq!(settle(&mut [&mut a, &mut b]), totals(1, 0, 0));
        });
    }
}

/// The same for a lease that stands before its mark, which its release unlinks without a look at the mark:
/// it is released, or taken over, and never both.
///
/// Fails if a release doesn't look at what it has unlinked.
#[test]
fn a_lease_before_its_mark_is_released_or_taken_over() {
    model(3, |path| {
        let table = table(1);
        let [mut a, b] = [(); 2].map(|()| Hand::new(&table, path, 1));
        let first = a.lease(1, 10);
        assert_eq!(a.mark(1), Marked::Yes);
        assert_eq!(a.release(&first), Ok(()));
        let head = a.grant_head(1, 20).expect("the key is kept for it");
        let held = Lease {
            raw: 1,
            handle: head.handle,
            token: head.token,
            deadline: 20,
        };
        let _ = a.noted();
        let other = spawn(b, |b| b.take_over(1));
        let released = a.release(&held);
        let (taken, mut b) = other.join().unwrap();
        match (released, taken) {
            (Ok(()), None) => assert!(a.noted(), "nobody moves the queue on"),
            (Err(Ended::Recorded), Some((token, 20))) => {
                assert_eq!(token, held.token);
            }
            other => panic!("{other:?}"),
        }
        b.unmark(1);
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(0, 0, 0));
    });
}
