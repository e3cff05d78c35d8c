//! Shutting and opening a table (`allowance.rs`).

use super::*;

/// What a thread finds of the key's lease.
fn found(hand: &mut Hand, raw: u128) -> Option<u64> {
    let key = Key::from_raw(raw);
    let hash = hand.table.hash(key);
    let found = hand.table.live(&mut hand.local, key, hash);
    found.ok().map(|found| found.contents.token)
}

fn shut(hand: &mut Hand) {
    let mut steps = Steps::default();
    let shut = std::iter::repeat_with(|| hand.table.shut(&mut hand.local, &mut steps));
    assert_eq!(shut.flatten().next(), Some(true));
}

fn open(hand: &mut Hand, first: u64, last: u64) {
    let (mut steps, tokens) = (Steps::default(), (first, last));
    let open = || hand.table.open(&mut hand.local, &mut steps, tokens, last);
    assert_eq!(std::iter::repeat_with(open).flatten().next(), Some(true));
}

/// A grant against a shut: once the table is shut, no lease appears that was not there.
///
/// Fails if shutting only lowers the allowance and the limit of the array.
#[test]
fn no_lease_appears_in_a_table_that_is_shut() {
    model(3, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 1), Hand::new(&table, path, 1));
        let other = spawn(b, |b| b.grant(1, 10));
        shut(&mut a);
        let seen = found(&mut a, 1);
        let (granted, _b) = other.join().unwrap();
        match granted {
            Ok(lease) => assert_eq!(seen, Some(lease.token)),
            Err(refused) => {
                assert!(matches!(refused, Refused::NoToken { .. }), "{refused:?}");
                assert_eq!(seen, None);
            }
        }
    });
}

/// The same for a token of a lease that a record holds: none is issued that was not when the table was shut.
///
/// Fails if `issue` asks the array for its last version instead of its limit.
#[test]
fn no_token_is_issued_in_a_table_that_is_shut() {
    model(3, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 1), Hand::new(&table, path, 1));
        let other = spawn(b, |b| b.issue(1, true));
        shut(&mut a);
        let key = Key::from_raw(1);
        let hash = a.table.hash(key);
        let marked = a
            .table
            .live(&mut a.local, key, hash)
            .is_err_and(|gone| gone.marked);
        let (issued, _b) = other.join().unwrap();
        assert_eq!(issued.is_ok(), marked, "{issued:?}");
    });
}

/// A grant against shutting and opening: its token is of the new block, or it was seen when the table was shut.
/// None is of what lies between the blocks (I2).
///
/// Fails if the base of the array that opens the table is not raised to the block.
#[test]
fn a_token_is_of_the_block_before_or_of_the_one_after() {
    model(2, |path| {
        let table = table(1);
        let (mut a, b) = (Hand::new(&table, path, 1), Hand::new(&table, path, 1));
        shut(&mut a);
        open(&mut a, 1, 2);
        let other = spawn(b, |b: &mut Hand| {
            let first = b.grant(1, 10);
            let second = b.grant(3, 10);
            [first, second].map(|granted| granted.map(|lease| lease.token).unwrap_or(0))
        });
        shut(&mut a);
        let seen = [found(&mut a, 1), found(&mut a, 3)];
        open(&mut a, 100, 200);
        let (granted, _b) = other.join().unwrap();
        for (seen, token) in seen.into_iter().zip(granted) {
            match seen {
                Some(seen) => assert_eq!(token, seen),
                None => assert!(token == 0 || (100..=200).contains(&token), "{token}"),
            }
        }
    });
}
