//! When an array is exchanged for another, and what is left of it.

use super::super::bucket::REBUILD;
use super::allowance::{open, shut};
use super::*;
use crate::sync::Ordering;

/// A table of so many buckets, which may be fewer, and cells that threads have.
fn sized(buckets: usize, handed: usize) -> Bench {
    let mut bench = Bench::new(1);
    assert!(bench.table.resize(&bench.table.newest(), buckets));
    while bench.table.help_resize(&mut bench.local, buckets) {}
    bench.table.handed.store(handed, Ordering::Relaxed);
    bench
}

#[test]
fn an_array_has_three_to_sixteen_buckets_for_each_cell() {
    for (handed, buckets) in [(0, 32), (3, 32), (4, 64), (21, 64), (22, 128), (64, 128)] {
        let mut bench = sized(64, handed);
        let wants = bench.table.wants_resize();
        // Only one that grows must be started by whoever needs it.
        assert_eq!(wants, buckets < 64, "{handed} cells");
        bench.table.keep_sized(&mut bench.local);
        let started = buckets != 64;
        assert_eq!(bench.table.size(), (buckets, started), "{handed} cells");
        assert_eq!(bench.local.resized, started);
        assert_eq!(bench.table.wants_resize(), started);
        // The same call helps.
        bench.table.keep_sized(&mut bench.local);
        assert_eq!(bench.table.size(), (buckets, false));
    }
}

#[test]
fn an_array_does_not_shrink_below_its_first_size() {
    let mut bench = Bench::new(50);
    assert_eq!(bench.table.size(), (64, false));
    assert!(!bench.table.wants_resize());
    bench.table.keep_sized(&mut bench.local);
    assert_eq!(bench.table.size(), (64, false));
}

/// The driver would try for ever.
#[test]
fn a_resize_that_can_not_be_had_is_not_wanted() {
    let mut bench = sized(64, 1);
    assert!(bench.table.wants_resize());
    shut(&mut bench);
    assert!(bench.table.wants_resize());
    bench.table.keep_sized(&mut bench.local);
    assert!(!bench.table.wants_resize() && !bench.local.resized);
    assert_eq!(bench.table.size(), (64, false));
    // The next who comes by tries again.
    let tokens = (1_000, MAX_TOKEN);
    open(&mut bench, tokens, MAX_TOKEN);
    bench.table.keep_sized(&mut bench.local);
    assert_eq!(bench.table.size(), (32, true));
    assert!(bench.table.wants_resize());
}

#[test]
fn help_moves_as_many_groups_as_it_is_asked_for() {
    for (from, to) in [(8, 16), (16, 8), (8, 8)] {
        let mut bench = Bench::new(from);
        // Not so many that the table would grow.
        for key in 0..16 {
            bench.grant(key, 10);
        }
        let old = bench.table.newest();
        assert!(bench.table.resize(&old, to));
        let (groups, new) = (from.min(to), bench.table.newest());
        for helped in 1..=groups {
            assert!(bench.table.help_resize(&mut bench.local, 1));
            let stand = |index: &usize| new.at(*index).load::<Narrow>().is_normal();
            assert_eq!((0..to).filter(stand).count(), helped * to / groups);
            assert_eq!(bench.table.size(), (to, helped < groups));
        }
        assert!(!bench.table.help_resize(&mut bench.local, 1));
        for key in 0..16 {
            let held = bench.grant_at_least(key, 10, 0).err();
            assert!(matches!(held, Some(Refused::Held { .. })), "{key} is lost");
        }
    }
}

#[test]
fn an_array_that_has_been_moved_out_of_is_dropped() {
    let mut bench = Bench::new(4);
    bench.grant(1, 10);
    let is_kept = bench.table.watch_newest();
    assert!(bench.table.resize(&bench.table.newest(), 8));
    assert!(is_kept());
    while bench.table.help_resize(&mut bench.local, 64) {}
    assert!(is_kept(), "this thread knows no other");
    assert_eq!(bench.table.catch_up(&mut bench.local), 8);
    assert!(!is_kept());
}

/// Rule 11: nobody else need come by.
#[test]
fn a_resize_is_over_when_each_bucket_has_been_used() {
    for (from, to) in [(8, 16), (16, 8), (8, 8)] {
        let mut bench = Bench::new(from);
        bench.grant(1, 10);
        assert!(bench.table.resize(&bench.table.newest(), to));
        bench.local.array = bench.table.newest();
        for bucket in 0..to as u64 {
            assert!(bench.table.size().1);
            bench.table.settle(&mut bench.local, bucket);
        }
        assert_eq!(bench.table.size(), (to, false), "from {from}");
    }
}

/// Rule G: above every token that was granted there.
#[test]
fn a_bucket_that_has_moved_goes_on_above_its_last_token() {
    for buckets in [1, 2, 4] {
        let mut bench = Bench::new(2);
        let tokens: Vec<_> = (0..10).map(|key| bench.grant(key, 10).token).collect();
        assert!(bench.table.resize(&bench.table.newest(), buckets));
        while bench.table.help_resize(&mut bench.local, 64) {}
        for (key, token) in (0..).zip(tokens) {
            let (class, bits) = (bench.name(key, 0).hash as usize, buckets.ilog2());
            let class = class & (buckets - 1);
            let newest = bench.table.newest_token(&mut bench.local, class, bits);
            assert!(newest > token, "{newest} after {token}");
        }
    }
}

/// Rule 12: whoever comes upon it does it, since the one who has begun may be slow.
#[test]
fn a_rebuild_that_another_has_begun_is_done_by_whoever_needs_the_bucket() {
    let mut bench = Bench::new(1);
    let held = bench.grant(1, 10);
    let name = bench.name(1, held.token);
    let word = bench.local.array.bucket(name.hash).load::<Narrow>();
    let begun = word.with_flag(REBUILD);
    assert!(bench.local.array.bucket(name.hash).change(word, begun));
    assert!(bench.table.validate(&mut bench.local, &name).is_ok());
    let rebuilt = bench.local.array.bucket(name.hash).load::<Narrow>();
    assert!(rebuilt.is_normal() && rebuilt.version() == word.version() + 1);
    assert_eq!(bench.release(1, held), Ok(()));
}
