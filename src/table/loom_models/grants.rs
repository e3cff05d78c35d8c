//! Rule 1: grants against each other, and refusals.

use super::*;

/// Grant against grant of one key: one is granted, the other is told by whom (I1).
///
/// Fails if the publishing CAS is a store, or if a cell that was not published stays `HELD`.
#[test]
fn of_two_grants_of_one_key_one_is_refused() {
    model(6, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 1), Hand::new(&table, path, 1));
        let other = spawn(b, |b| b.grant(1, 10));
        let first = a.grant(1, 10);
        let (second, mut b) = other.join().unwrap();
        let (won, lost) = match (first, second) {
            (Ok(won), Err(lost)) | (Err(lost), Ok(won)) => (won, lost),
            both => panic!("{both:?}"),
        };
        let held = Refused::Held(Contents {
            key: Key::from_raw(1),
            owner: 1,
            token: won.token,
            deadline: 10,
        });
        assert_eq!(lost, held);
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(1, 0, 0));
    });
}

/// Grant against grant of two keys in one bucket: both are granted and both are found (I1, I2).
///
/// Fails if a grant links to the chain that it saw at an earlier try, or if the publishing CAS is a
/// store.
#[test]
fn two_keys_of_one_bucket_are_both_granted() {
    model(6, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 1), Hand::new(&table, path, 1));
        let other = spawn(b, |b| b.lease(2, 10));
        let first = a.lease(1, 10);
        let (second, mut b) = other.join().unwrap();
        assert_ne!(first.token, second.token);
        assert_eq!(a.validate(&first), Ok(10));
        assert_eq!(a.validate(&second), Ok(10));
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(2, 0, 0));
    });
}

/// A refusal names one grant that stood: owner, token and deadline are of one life, although the cell
/// is given to another key meanwhile.
///
/// Fails if `Held` is said without another look at the bucket, by `grant` or by `grant_beside`.
#[test]
fn a_refusal_tells_of_one_grant() {
    model(3, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 1), Hand::new(&table, path, 1));
        let held = a.lease(1, 10);
        let other = spawn(b, |b| b.grant(1, 30));
        a.release(&held).expect("held");
        let next = a.lease(2, 20);
        assert_eq!(
            next.handle.cell(),
            held.handle.cell(),
            "the cell is used again"
        );
        let (asked, mut b) = other.join().unwrap();
        if let Err(refused) = asked {
            let before = Refused::Held(Contents {
                key: Key::from_raw(1),
                owner: 1,
                token: held.token,
                deadline: 10,
            });
            assert_eq!(refused, before);
        }
        let leases = 1 + i64::from(asked.is_ok());
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(leases, 0, 0));
    });
}

/// A look-up tells of one grant that stood, or of none, although the cell is given to another key
/// meanwhile.
///
/// Fails if a walk that finds the key does not look at its bucket again.
#[test]
fn a_look_up_tells_of_one_grant() {
    model(3, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 1), Hand::new(&table, path, 1));
        let held = a.lease(1, 10);
        let other = spawn(b, |b| {
            let key = Key::from_raw(1);
            let hash = b.table.hash(key);
            let found = b.table.find(&mut b.local, key, hash).ok()?.contents;
            Some((found.key, found.owner, found.token, found.deadline))
        });
        a.release(&held).expect("held");
        let next = a.lease(2, 20);
        assert_eq!(
            next.handle.cell(),
            held.handle.cell(),
            "the cell is used again"
        );
        let (found, mut b) = other.join().unwrap();
        let stood = (Key::from_raw(1), 1, held.token, 10);
        assert!(found.is_none_or(|found| found == stood), "{found:?}");
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(1, 0, 0));
    });
}

/// Tokens of a key rise from each grant to the next, across threads that hand it over (I2).
///
/// Fails if the publishing CAS keeps the version.
#[test]
fn tokens_of_a_key_rise_from_holder_to_holder() {
    model(4, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 1), Hand::new(&table, path, 1));
        let held = a.lease(1, 10);
        let other = spawn(b, |b| b.grant(1, 10));
        let pushed = a.lease(2, 10);
        a.release(&held).expect("held");
        let (next, mut b) = other.join().unwrap();
        assert!(pushed.token > held.token);
        if let Ok(next) = next {
            assert!(next.token > held.token);
            assert_ne!(next.token, pushed.token);
            assert_eq!(a.release(&next), Ok(()));
        }
        assert_eq!(settle(&mut [&mut a, &mut b]), totals(1, 0, 0));
    });
}
