//! What stands in the words of buckets and cells, and what follows from it without a look-up.

use super::super::bucket::{DONE, FROZEN, NORMAL, REBUILD, UNINIT};
use super::super::cell::{CELL_WORDS, DEAD, FROZEN_MARK, HELD, KILLED_TAKEN, MARK, TIMER};
use super::*;

fn the_words_of_a_bucket<L: Layout>() {
    let flags = [UNINIT, NORMAL, REBUILD, FROZEN, DONE];
    let empty = BucketWord::<L>::new(3, 0, NORMAL);
    assert!(empty.is_empty() && empty.is_normal());
    for cell in (0..L::CELL_BITS).map(|bit| 1 << bit) {
        for version in [0, 1, L::VERSION_SOFT, (1 << L::VERSION_BITS) - 1] {
            for flag in flags {
                let word = BucketWord::<L>::new(version, cell, flag);
                assert_eq!(
                    (word.version(), word.cell(), word.flag()),
                    (version, cell, flag)
                );
                assert!(!word.is_empty(), "cell {cell}");
                assert_eq!(word.with_cell(0).is_empty(), flag == NORMAL);
                assert_eq!(word.with_cell(0).with_cell(cell), word);
                assert_eq!(word.with_flag(DONE).with_flag(flag), word);
            }
        }
        assert_eq!(empty.granted(cell), BucketWord::new(4, cell, NORMAL));
        assert_eq!(empty.with_first(cell), BucketWord::new(3, cell, NORMAL));
        assert!(empty.granted(cell) != empty.with_first(cell));
        assert!(empty != empty.with_first(cell) && empty != empty.with_flag(FROZEN));
    }
}

fn the_words_of_a_cell<L: Layout>() {
    let lives = 1 << L::LIFE_BITS;
    let offsets = 1 << L::DEADLINE_BITS;
    let tags = [DEAD, HELD, MARK, FROZEN_MARK, TIMER, KILLED_TAKEN];
    for life in [0, 1, 2, lives / 2, lives - 2, lives - 1] {
        for offset in [0, 1, offsets / 2, offsets - 1] {
            for tag in tags {
                let state = State::<L>::new(life, offset, tag);
                assert_eq!((state.life(), state.tag()), (life, tag));
                assert_eq!(state.deadline(0), offset);
                assert_eq!(state.deadline(5), (5 << L::ERA_SHIFT) + offset);
                assert_eq!(state.with_tag(HELD), State::new(life, offset, HELD));
                // Whatever it was before, the next life is a lease's.
                let deadline = (3 << L::ERA_SHIFT) + 17;
                let next = state.next_life(&Stamp::new::<L>(deadline));
                assert_eq!(next, State::new((life + 1) % lives, 17, HELD));
                assert_eq!(next.deadline(3), deadline);
            }
        }
    }
}

/// As the head of `layout.rs` says.
fn the_limits_of_a_layout<L: Layout>() {
    assert_eq!(
        L::VERSION_SOFT,
        15 << (L::VERSION_BITS - 4),
        "a 16th is headroom"
    );
    assert_eq!(L::MAX_TTL + 1, 1 << L::ERA_SHIFT, "less than an era");
}

#[test]
fn versions_end_a_sixteenth_early_and_ttls_before_an_era() {
    the_limits_of_a_layout::<Narrow>();
    the_limits_of_a_layout::<Wide>();
}

#[test]
fn a_word_says_what_was_put_into_it() {
    the_words_of_a_bucket::<Narrow>();
    the_words_of_a_bucket::<Wide>();
    the_words_of_a_cell::<Narrow>();
    the_words_of_a_cell::<Wide>();
}

/// Rule H.
#[test]
fn a_deadline_of_the_next_era_fits_and_one_after_that_does_not() {
    let era = 4;
    let state = State::<Narrow>::new(1, 0, HELD);
    let end = (era + 2) << Narrow::ERA_SHIFT;
    let last = state.with_deadline(era, end - 1).expect("it fits");
    assert_eq!((last.deadline(era), last.life()), (end - 1, 1));
    assert_eq!(state.with_deadline(era, end), None);
}

#[test]
fn a_cell_says_what_it_was_filled_with() {
    let mut bench = Bench::new(1);
    bench.grant(1, 10);
    let cell = bench.table.cell(bench.local.free.pop().expect("a cell"));
    let contents = Contents {
        key: crate::Key::from_raw(0x0123_4567_89ab_cdef_0011_2233_4455_6677),
        token: 71,
        owner: u64::MAX,
        deadline: (9 << Narrow::ERA_SHIFT) + 3,
    };
    let before = cell.state::<Narrow>().life();
    let state = cell.prepare::<Narrow>(&contents, 0xffff);
    assert_eq!(state, cell.state());
    assert_eq!(state.life(), before + 1);
    assert_eq!(cell.contents(state), contents);
    assert_eq!((cell.next(), cell.era()), (0xffff, 9));
    // A mark has the bucket's version in the place of the deadline.
    for version in [5, 200] {
        cell.prepare_mark::<Narrow>(contents.key, version, 7);
        let mark = cell.state::<Narrow>();
        assert!(mark.is_mark() && !mark.is_lease());
        assert_eq!((cell.key(), cell.next()), (contents.key, 7));
        assert_eq!(mark.deadline(cell.era()), version);
    }
}

#[test]
fn a_timer_is_due_at_its_very_tick() {
    let mut bench = Bench::new(1);
    for (id, deadline) in [(1, 600), (2, 601), (3, 1_023)] {
        let due = Due::Session(id);
        let timer = bench.table.timer(&mut bench.local, due, deadline);
        let (at, _) = timer.expect("a cell");
        assert_eq!(bench.table.look(&mut bench.local, at), Look::At(deadline));
        for later in [deadline + 1, deadline + 511, deadline + 5_000] {
            bench.table.set_timer(at, later);
            assert_eq!(bench.table.look(&mut bench.local, at), Look::At(later));
        }
        assert!(bench.local.due.is_empty());
        bench.local.now = deadline + 5_000;
        assert_eq!(bench.table.look(&mut bench.local, at), Look::Nothing);
        assert_eq!(std::mem::take(&mut bench.local.due), [due]);
        bench.local.now = 0;
        bench.table.stop_timer(&mut bench.local, at);
    }
}

#[test]
fn a_grant_says_what_the_wheel_knows_of_its_cell() {
    let mut bench = Bench::new(1);
    let first = bench.grant(1, 10);
    assert_eq!(first.wheel, 0, "the wheel has never heard of it");
    let cell = first.handle.cell();
    bench
        .table
        .cell(cell)
        .wheel()
        .store(77, crate::sync::Ordering::Release);
    assert_eq!(bench.release(1, first), Ok(()));
    let second = bench.grant(1, 10);
    assert_eq!((second.handle.cell(), second.wheel), (cell, 77));
}

#[test]
fn a_table_takes_its_arrays_and_the_cells_that_were_ever_used() {
    let mut bench = Bench::new(512);
    assert_eq!(bench.table.cells(), 0);
    let held: Vec<_> = (0..100).map(|key| bench.grant(key, 10)).collect();
    let cells = bench.table.cells();
    assert!((100..=116).contains(&cells), "{cells} cells for 100 leases");
    // The null cell takes as much as any other.
    let bytes = |buckets: usize| buckets * 8 + (cells + 1) * 8 * CELL_WORDS;
    assert_eq!(bench.table.memory(), bytes(512));
    assert!(bench.table.resize(&bench.table.newest(), 1_024));
    assert_eq!(bench.table.memory(), bytes(512 + 1_024), "both arrays");
    while bench.table.help_resize(&mut bench.local, 64) {}
    let moved = bench.table.cells();
    assert_eq!(bench.table.memory(), bytes(1_024) + (moved - cells) * 64);
    for (key, granted) in held.into_iter().enumerate() {
        assert_eq!(bench.release(key as u128, granted), Ok(()));
    }
    assert_eq!(bench.table.cells(), moved, "cells stay");
}
