//! Rule 13: a walk may be led round in circles by cells that are used again; and a chain may be long all the same.

use std::thread;

use super::super::bucket::{NORMAL, REBUILD};
use super::super::cell::DEAD;
use super::*;
use crate::sync::{AtomicBool, Ordering};

const KEY: u128 = 1;
const FIRST: u128 = 2;

/// What a walk comes to in a chain of a lease of `FIRST` and two dead cells, each behind the other, once the
/// bucket has moved on. It is given the name of `KEY`, and the bucket's word from before.
fn led_in_circles<R: Send>(
    flag: u64,
    walk: impl FnOnce(&Small, &mut Local, Name, BucketWord<Narrow>) -> R + Send,
) -> R {
    let mut bench = Bench::new(1);
    let name = bench.name(KEY, 1);
    let first = bench.grant(FIRST, 10);
    let mut dead = || bench.local.free.pop().expect("a cell");
    let (one, other) = (dead(), dead());
    for (at, next) in [(first.handle.cell(), one), (one, other), (other, one)] {
        let cell = bench.table.cell(at);
        assert_eq!(
            cell.state::<Narrow>().tag() == DEAD,
            at != first.handle.cell()
        );
        let key = bench.name(FIRST, 0).key;
        cell.fill(key, 1, &Stamp::new::<Narrow>(10), next);
    }
    let array = bench.table.newest();
    let bucket = array.bucket(name.hash);
    let word = bucket.load::<Narrow>();
    let circle = word.with_flag(flag);
    assert!(word == circle || bucket.change(word, circle));
    let started = AtomicBool::new(false);
    thread::scope(|scope| {
        let Bench { table, local } = &mut bench;
        let walker = scope.spawn(|| {
            started.store(true, Ordering::SeqCst);
            walk(table, local, name, circle)
        });
        while !started.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        // A walk that looks at its bucket no more is far behind that look by now; no other minds.
        thread::sleep(std::time::Duration::from_millis(5));
        let changed = || {
            let word = bucket.load::<Narrow>();
            bucket.change(word, BucketWord::new(word.version() + 1, 0, NORMAL))
        };
        while !changed() {}
        walker.join().expect("no panic")
    })
}

fn ask(name: Name) -> Ask {
    Ask {
        key: name.key,
        hash: name.hash,
        owner: 1,
        deadline: 10,
        at_least: 0,
        admitted: false,
    }
}

#[test]
fn a_walk_in_circles_is_given_up_when_its_bucket_has_changed() {
    let kept = led_in_circles(NORMAL, |table, local, name, circle| {
        let dead = table.cell(circle.cell()).next();
        table.first_kept(local.array.bucket(name.hash), circle, dead)
    });
    assert_eq!(kept, None);
    let links = led_in_circles(NORMAL, |table, local, name, circle| {
        table.links(local.array.bucket(name.hash), circle, u32::MAX)
    });
    assert_eq!(links, None);
}

#[test]
fn a_look_up_that_is_led_in_circles_begins_anew() {
    let found = led_in_circles(NORMAL, |table, local, name, _| {
        table.find(local, name.key, name.hash).err()
    });
    assert!(found.is_some_and(|none| !none.marked));
    let leases = led_in_circles(NORMAL, |table, local, _, _| {
        let mut leases = vec![];
        table.collect(local, 0, 0, &mut leases);
        leases
    });
    assert_eq!(leases, []);
    led_in_circles(NORMAL, |table, local, name, _| {
        table.take_mark(local, name.key, name.hash);
    });
}

#[test]
fn a_grant_and_a_mark_that_are_led_in_circles_come_to_an_end() {
    let granted = led_in_circles(NORMAL, |table, local, name, _| {
        table.grant(local, &ask(name))
    });
    assert!(granted.is_ok_and(|granted| granted.token > 1));
    led_in_circles(NORMAL, |table, local, name, _| {
        let first = crate::Key::from_raw(FIRST);
        // The lease is found before the circle is; what is crowded is not.
        let _: Marked = table.put_mark(local, first, name.hash);
    });
}

/// Rule 12.
#[test]
fn copies_of_a_bucket_that_another_has_rebuilt_are_thrown_away() {
    led_in_circles(REBUILD, |table, local, name, _| {
        let cells = |local: &mut Local| {
            let free: Vec<_> = std::iter::from_fn(|| local.free.pop()).collect();
            assert!(free.iter().rev().all(|&cell| local.free.push(cell)));
            free.len()
        };
        let before = cells(local);
        table.settle(local, name.hash);
        assert!(local.moved.is_empty(), "the wheel has nothing to hear of");
        assert_eq!(cells(local), before);
    });
}

/// More leases than any bucket has for long: as if all cells were in it, and the table not yet grown.
fn grant_deep(bench: &mut Bench, keys: std::ops::Range<u128>) -> Vec<(u128, Granted)> {
    keys.map(|key| {
        bench.table.handed.store(0, Ordering::Relaxed);
        (key, bench.grant(key, 400))
    })
    .collect()
}

#[test]
fn a_long_chain_is_walked_to_its_end() {
    let mut bench = Bench::new(1);
    let mut held = grant_deep(&mut bench, 0..100);
    assert_eq!(bench.table.size(), (1, false));
    let (_, deepest) = held[0];
    let name = bench.name(0, deepest.token);
    assert!(bench.table.validate(&mut bench.local, &name).is_ok());
    let refused = bench.grant_at_least(0, 10, 0).err();
    assert!(matches!(refused, Some(Refused::Held { .. })));
    let mut leases = vec![];
    bench.table.collect(&mut bench.local, 0, 0, &mut leases);
    assert_eq!(leases.len(), 100);
    let marked = bench.table.put_mark(&mut bench.local, name.key, name.hash);
    assert_eq!(marked, Marked::Yes);
    held.extend(grant_deep(&mut bench, 100..150));
    bench.local.now = 1;
    assert_eq!(bench.release(0, held.remove(0).1), Ok(()));
    assert_eq!(bench.local.notes.len(), 1, "the mark is found");
    bench.table.take_mark(&mut bench.local, name.key, name.hash);
    let gone = bench
        .table
        .find(&mut bench.local, name.key, name.hash)
        .err();
    assert!(gone.is_some_and(|gone| !gone.marked));
    // From the last to the first but one: all that is behind is dead.
    let (_, first) = held.pop().expect("many");
    let (key, last) = (149, first);
    for (key, granted) in held {
        assert_eq!(bench.release(key, granted), Ok(()));
    }
    assert_eq!(bench.release(key, last), Ok(()));
    assert_eq!(bench.leases(), 0);
    let word = bench.local.array.bucket(0).load::<Narrow>();
    assert!(word.is_empty());
}

/// Rule 12, however many live ones are before them.
#[test]
fn dead_cells_at_the_end_of_a_long_chain_are_counted() {
    let mut bench = Bench::new(1);
    let over = grant_deep(&mut bench, 0..60);
    grant_deep(&mut bench, 100..140);
    for (key, granted) in over {
        assert_eq!(bench.release(key, granted), Ok(()));
    }
    let name = bench.name(100, 0);
    let before = bench.local.array.bucket(name.hash).load::<Narrow>();
    let marked = bench.table.put_mark(&mut bench.local, name.key, name.hash);
    assert_eq!(marked, Marked::Yes);
    let after = bench.local.array.bucket(name.hash).load::<Narrow>();
    assert_eq!(
        after.version(),
        before.version() + 2,
        "a mark, and a rebuild"
    );
}
