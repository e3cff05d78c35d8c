//! Rules H and K: where tokens come from, and where they end.

use super::*;

pub(super) fn shut(bench: &mut Bench) {
    let mut steps = Steps::default();
    let shut = std::iter::repeat_with(|| bench.table.shut(&mut bench.local, &mut steps));
    assert_eq!(shut.flatten().next(), Some(true));
}

pub(super) fn open(bench: &mut Bench, tokens: (u64, u64), watermark: u64) {
    let mut steps = Steps::default();
    let open = || {
        bench
            .table
            .open(&mut bench.local, &mut steps, tokens, watermark)
    };
    assert_eq!(std::iter::repeat_with(open).flatten().next(), Some(true));
}

#[test]
fn a_table_is_shut_from_the_end_of_its_shutting_until_it_is_opened() {
    let mut bench = Bench::new(4);
    assert!(!bench.table.is_shut());
    let held = bench.grant(1, 10);
    shut(&mut bench);
    assert!(bench.table.is_shut());
    let refused = bench.grant_at_least(2, 10, 0).err();
    assert!(matches!(refused, Some(Refused::NoToken { .. })));
    open(&mut bench, (1_000, 2_000), 2_000);
    assert!(!bench.table.is_shut());
    assert_eq!(bench.release(1, held), Ok(()));
}

#[test]
fn a_table_that_is_being_shut_is_not_shut_yet() {
    let mut bench = Bench::new(4);
    bench.grant(1, 10);
    let newest = bench.table.newest();
    assert!(bench.table.succeed(&newest, newest.len(), true));
    assert!(!bench.table.is_shut(), "its leases are still moving");
    while bench.table.help_resize(&mut bench.local, 1) {}
    assert!(bench.table.is_shut());
}

/// Whatever is allowed meanwhile: a thread may know an array from before, and a block be added to too late.
#[test]
fn a_thread_that_knows_an_open_array_only_is_led_to_the_shut_one() {
    for beyond in [1, 1_000] {
        let mut bench = Bench::new(1);
        let mut late = bench.table.local(Arc::new(Counters::default()));
        let wanted = late.array.base + late.array.version_limit + beyond;
        shut(&mut bench);
        bench.table.extend_allowance(5_000, 5_000);
        assert!(!bench.table.allow(&mut late, wanted, 1), "{wanted}");
    }
}

#[test]
fn every_token_of_a_block_is_granted_and_none_beyond() {
    let mut bench = Bench::new(1);
    shut(&mut bench);
    open(&mut bench, (1_000, 1_200), 1_200);
    for token in 1_000..=1_200 {
        let granted = bench.grant(1, 10);
        assert_eq!(granted.token, token);
        assert_eq!(bench.release(1, granted), Ok(()));
    }
    let refused = bench.grant_at_least(1, 10, 0).err();
    assert_eq!(refused, Some(Refused::NoToken { wanted: 1_201 }));
}

/// A token that nobody has, and that is not above the block, uses the block up.
#[test]
fn whoever_passes_the_watermark_has_the_next_block_asked_for() {
    for (wanted, asked) in [(1_090, false), (1_091, true), (1_100, true)] {
        let mut bench = Bench::new(1);
        shut(&mut bench);
        open(&mut bench, (1_000, 1_100), 1_090);
        let granted = bench.grant_at_least(1, 10, wanted).expect("of the block");
        assert_eq!(granted.token, wanted);
        assert_eq!(bench.local.wants_block, asked, "{wanted}");
    }
    // One from beyond it does not: the next in turn is far from its end.
    let mut bench = Bench::new(1);
    shut(&mut bench);
    open(&mut bench, (1_000, 1_100), 1_090);
    assert!(bench.grant_at_least(1, 10, 1_101).is_err());
    assert!(!bench.local.wants_block);
}

/// Rule G: then a token of the new array is above every one of the same version before.
#[test]
fn every_array_has_the_next_base_after_the_one_before() {
    let mut bench = Bench::new(2);
    shut(&mut bench);
    open(&mut bench, (1_000, 9_000), 1_100);
    assert_eq!(bench.table.base(), 999);
    // The last one that this array can grant wants no other.
    let last = 999 + bench.local.array.version_limit;
    let granted = bench.grant_at_least(1, 10, last).expect("of the block");
    assert_eq!((granted.token, bench.table.base()), (last, 999));
    for (base, buckets) in (1_000..).zip([4, 2, 2, 1]) {
        assert!(bench.table.resize(&bench.table.newest(), buckets));
        assert_eq!(bench.table.base(), base);
        while bench.table.help_resize(&mut bench.local, 64) {}
    }
    let next = bench.grant(1 << 40, 10);
    assert!(next.token > last, "of the same bucket by now");
}

/// Rebuilds raise a bucket's version too.
#[test]
fn a_bucket_whose_versions_are_used_up_by_rebuilds_goes_on_in_another_array() {
    let mut bench = Bench::new(1);
    let held = bench.grant(1, 400);
    let name = bench.name(1, held.token);
    let last = (1 << Narrow::VERSION_BITS) - 1;
    for version in 2..=last {
        assert!(bench.table.shed_dead(&mut bench.local, name.hash));
        let bucket = bench.local.array.bucket(name.hash);
        assert_eq!(bucket.load::<Narrow>().version(), version);
        assert_eq!(bench.table.base(), 0);
    }
    assert!(bench.table.shed_dead(&mut bench.local, name.hash));
    assert_eq!(bench.table.base(), last, "it goes on where this one ends");
    let found = bench.table.validate(&mut bench.local, &name).expect("live");
    assert_eq!(found.contents.deadline, 400);
    assert!(bench.grant(2, 10).token > last);
    assert_eq!(bench.release(1, held), Ok(()));
}

/// A mark takes a version, and so does a lease with the token of another table.
#[test]
fn a_mark_takes_the_last_version_of_a_bucket_without_another_array() {
    let mut bench = Bench::new(1);
    let limit = bench.local.array.version_limit;
    bench.grant_at_least(1, 10, limit - 1).expect("free");
    let name = bench.name(1, 0);
    let local = &mut bench.local;
    assert_eq!(
        bench.table.put_mark(local, name.key, name.hash),
        Marked::Yes
    );
    let word = bench.local.array.bucket(name.hash).load::<Narrow>();
    assert_eq!((word.version(), bench.table.base()), (limit, 0));
}

#[test]
fn a_mark_finds_room_behind_the_last_version_of_a_bucket() {
    let mut bench = Bench::new(1);
    let limit = bench.local.array.version_limit;
    let held = bench.grant_at_least(1, 10, limit).expect("free");
    assert_eq!(held.token, limit);
    let name = bench.name(1, 0);
    let local = &mut bench.local;
    assert_eq!(
        bench.table.put_mark(local, name.key, name.hash),
        Marked::Yes
    );
    assert!(bench.table.base() > 0);
    assert_eq!(bench.release(1, held), Ok(()));
    assert_eq!(bench.grant_at_least(1, 10, 0).err(), Some(Refused::Marked));
}

#[test]
fn no_mark_is_put_where_no_token_is_left() {
    let mut bench = Bench::new(1);
    let held = bench.grant_at_least(1, 10, MAX_TOKEN).expect("free");
    let name = bench.name(1, 0);
    let local = &mut bench.local;
    assert_eq!(
        bench.table.put_mark(local, name.key, name.hash),
        Marked::Full
    );
    assert_eq!(bench.release(1, held), Ok(()));
}

#[test]
fn a_lease_is_restored_where_versions_end_and_takes_one() {
    for left in [2, 1, 0] {
        let hasher = BucketHasher::new(&HashSeed::new(1));
        let origin = Origin {
            floor: 10_000,
            exact: false,
        };
        let table = Table::new(1, hasher).and_then(|table: Small| table.with_origin(origin));
        let table = table.expect("memory");
        let local = table.local(Arc::new(Counters::default()));
        let mut bench = Bench { table, local };
        let last = 10_000 + bench.local.array.version_limit - left;
        assert_eq!(bench.grant_at_least(1, 10, last).expect("free").token, last);
        let name = bench.name(2, 5);
        let contents = Contents {
            key: name.key,
            token: 5,
            owner: 1,
            deadline: 400,
        };
        let put = bench.table.put(&mut bench.local, &contents, name.hash);
        assert_eq!(put.expect("room").token, 5);
        assert_eq!(bench.table.base() > 10_000, left == 0, "{left} are left");
        let newest = bench.table.newest_token(&mut bench.local, 0, 0);
        assert!(newest > last && (newest == last + 1 || left == 0));
        let found = bench.table.validate(&mut bench.local, &name).expect("live");
        assert_eq!(found.contents, contents);
        assert!(bench.grant(3, 10).token > newest);
        assert_eq!(bench.leases(), 3);
    }
}

/// The token of a lease that its record holds.
fn issue(bench: &mut Bench, at_least: u64) -> Result<u64, Refused> {
    let name = bench.name(1, 0);
    let ask = Ask {
        key: name.key,
        hash: name.hash,
        owner: 1,
        deadline: 10,
        at_least,
        admitted: true,
    };
    bench.table.issue(&mut bench.local, &ask, false)
}

#[test]
fn tokens_that_are_issued_rise_across_version_wraps() {
    let mut bench = Bench::new(1);
    let mut last = 0;
    for _ in 0..1_000 {
        let token = issue(&mut bench, 0).expect("tokens are left");
        assert!(token == last + 1 || (token > last && token > 240));
        last = token;
    }
}

#[test]
fn a_token_out_of_reach_uses_a_block_up_only_if_the_next_in_turn_does() {
    for (granted, asked) in [(3, false), (50, false), (51, true)] {
        let mut bench = Bench::new(1);
        shut(&mut bench);
        open(&mut bench, (1_000, 1_100), 1_050);
        for token in (1_000..).take(granted) {
            assert_eq!(issue(&mut bench, 0), Ok(token));
        }
        assert!(!bench.local.wants_block);
        let refused = issue(&mut bench, 2_000);
        assert_eq!(refused, Err(Refused::NoToken { wanted: 2_000 }));
        assert_eq!(bench.local.wants_block, asked, "after {granted}");
    }
}
