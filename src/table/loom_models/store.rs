//! The store of free cells: a stack of batches.

use super::*;

/// A thread that owns the given free cells and no others.
fn owner_of(table: &Arc<Small>, path: Path, cells: &[u32]) -> Hand {
    let mut hand = Hand::empty(table, path, 1);
    hand.local.free.extend(cells.iter().copied());
    hand
}

fn spill(hand: &mut Hand) {
    assert!(hand.table.spill(&mut hand.local));
}

fn refill(hand: &mut Hand) -> u32 {
    hand.table.refill(&mut hand.local).expect("a cell")
}

/// A pop against pops and a push that bring the same batch to the top again: no cell has two owners.
///
/// Fails if the head's tag does not rise.
#[test]
fn a_batch_that_comes_back_fails_a_sleeping_pop() {
    model(6, |path| {
        let table = table(1);
        let fresh: Vec<u32> = table.slab.take_fresh(2).collect();
        for &cell in &fresh {
            spill(&mut owner_of(&table, path, &[cell]));
        }
        let mut a = owner_of(&table, path, &[]);
        let b = owner_of(&table, path, &[]);
        let other = spawn(b, |b| {
            let cell = refill(b);
            assert!(b.local.free.push(cell));
        });
        let top = refill(&mut a);
        let below = refill(&mut a);
        assert!(a.local.free.push(top));
        spill(&mut a);
        assert!(a.local.free.push(below));
        let ((), mut b) = other.join().unwrap();
        settle(&mut [&mut a, &mut b]);
    });
}

/// A batch handed from one thread to another arrives whole.
///
/// Fails if the push or the pop is relaxed, or if a push stores the head.
#[test]
fn batches_arrive_whole() {
    model(6, |path| {
        let table = table(1);
        let fresh: Vec<u32> = table.slab.take_fresh(4).collect();
        let mut a = owner_of(&table, path, &fresh[..2]);
        let b = owner_of(&table, path, &fresh[2..]);
        let other = spawn(b, |b| {
            spill(b);
            let cell = refill(b);
            assert!(b.local.free.push(cell));
        });
        spill(&mut a);
        let cell = refill(&mut a);
        assert!(a.local.free.push(cell));
        let ((), mut b) = other.join().unwrap();
        settle(&mut [&mut a, &mut b]);
    });
}
