//! The paths of single operations where nothing is in their way: each does what the long way would, or nothing.

use super::super::grant::FEW;
use super::super::renew::Wanted;
use super::*;

fn ask(bench: &Bench, key: u128, at_least: u64) -> Ask {
    let name = bench.name(key, 0);
    Ask {
        key: name.key,
        hash: name.hash,
        owner: 1,
        deadline: bench.local.now + 10,
        at_least,
        admitted: false,
    }
}

/// Rule 1, without a walk.
#[test]
fn an_empty_bucket_is_granted_on_the_short_path_up_to_its_last_version() {
    let mut bench = Bench::new(1);
    let first = bench.grant(1, 10);
    assert_eq!(bench.release(1, first), Ok(()));
    let limit = bench.local.array.version_limit;
    let stamp = Stamp::new::<Narrow>(10);
    for token in 2..=limit {
        let beyond = ask(&bench, 1, token + 1);
        let local = &mut bench.local;
        assert!(bench.table.grant_fast(local, &beyond, &stamp).is_none());
        let ask = ask(&bench, 1, token);
        let granted = bench.table.grant_fast(&mut bench.local, &ask, &stamp);
        let granted = granted.expect("an empty bucket");
        assert_eq!(granted.token, token);
        let again = bench.table.grant_fast(&mut bench.local, &ask, &stamp);
        assert!(again.is_none(), "the bucket is not empty");
        assert_eq!(bench.release(1, granted), Ok(()));
    }
    let ask = ask(&bench, 1, 0);
    let none = bench.table.grant_fast(&mut bench.local, &ask, &stamp);
    assert!(none.is_none(), "no version is left");
}

#[test]
fn a_bucket_with_a_few_leases_is_looked_through_on_the_short_path() {
    for few in 0..FEW as u128 + 3 {
        let mut bench = Bench::new(1);
        for key in 0..few {
            bench.grant(key, 10);
        }
        bench.grant(100, 10);
        let live = |deadline| deadline > 0;
        let stamp = Stamp::new::<Narrow>(10);
        for key in 0..few {
            let ask = ask(&bench, key, 0);
            let beside = bench
                .table
                .grant_beside(&mut bench.local, &ask, &stamp, live);
            let is_seen = few - key < FEW as u128;
            match beside {
                Beside::Held(held) => assert!(is_seen && held.key == ask.key),
                Beside::Neither => assert!(!is_seen, "{key} of {few}"),
                Beside::Granted(_) => panic!("{key} is held"),
            }
            let over = |_| false;
            let beside = bench
                .table
                .grant_beside(&mut bench.local, &ask, &stamp, over);
            assert!(
                matches!(beside, Beside::Neither),
                "a thief takes the long way"
            );
        }
        let ask = ask(&bench, 1_000, 0);
        let last = bench
            .local
            .array
            .bucket(ask.hash)
            .load::<Narrow>()
            .version();
        let beside = bench
            .table
            .grant_beside(&mut bench.local, &ask, &stamp, live);
        match beside {
            Beside::Granted(granted) => {
                assert!(few < FEW as u128 && granted.token == last + 1);
            }
            other => assert!(few >= FEW as u128, "{other:?} beside {few}"),
        }
    }
}

#[test]
fn a_lease_is_released_by_key_on_the_short_path_if_it_is_live_and_the_one_that_is_meant() {
    let mut bench = Bench::new(1);
    let granted = bench.grant(1, 10);
    let name = bench.name(1, granted.token);
    let wrong = bench.name(1, granted.token + 1);
    let other = bench.name(2, granted.token);
    let live = |deadline| deadline == 10;
    let local = &mut bench.local;
    assert!(!bench.table.release_spotted(local, &wrong, live));
    assert!(!bench.table.release_spotted(local, &other, live));
    assert!(!bench.table.release_spotted(local, &name, |_| false));
    assert!(bench.table.release_spotted(local, &name, live));
    assert!(
        !bench.table.release_spotted(local, &name, live),
        "it is over"
    );
    assert_eq!(bench.leases(), 0);
}

/// Rule G: no walk, and no look at the bucket.
#[test]
fn a_lease_alone_in_its_bucket_is_released_by_the_word_of_its_grant() {
    let mut bench = Bench::new(64);
    for key in 0..16 {
        let granted = bench.grant(key, 10);
        let (handle, token) = (granted.handle, granted.token);
        let local = &mut bench.local;
        assert!(!bench.table.release_fast(local, handle, token + 1));
        assert!(bench.table.release_fast(local, handle, token));
        assert!(
            !bench.table.release_fast(local, handle, token),
            "it is over"
        );
        assert_eq!(bench.leases(), 0);
    }
}

#[test]
fn a_lease_on_top_of_a_few_is_released_by_the_word_of_its_grant() {
    for behind in 0..FEW as u128 + 3 {
        let mut bench = Bench::new(1);
        for key in 0..behind {
            bench.grant(key, 10);
        }
        let top = bench.grant(behind, 10);
        let local = &mut bench.local;
        let alone = bench.table.release_fast(local, top.handle, top.token);
        assert_eq!(alone, behind == 0);
        if !alone {
            let few = bench.table.release_beside(local, top.handle, top.token);
            assert_eq!(few, behind <= FEW as u128, "{behind} behind it");
        }
        for key in 0..behind {
            let held = bench.grant_at_least(key, 10, 0);
            assert!(matches!(held, Err(Refused::Held { .. })), "{key} is lost");
        }
    }
}

#[test]
fn a_handle_tells_of_its_lease_without_a_look_up() {
    let mut bench = Bench::new(1);
    let granted = bench.grant(1, 10);
    let name = bench.name(1, granted.token);
    let told = |bench: &Bench, name: &Name| bench.table.deadline_by_handle(granted.handle, name);
    assert_eq!(told(&bench, &name), Some((10, granted.handle)));
    let mut renewed = granted;
    assert_eq!(bench.renew(1, &mut renewed, 20), Ok(20));
    assert_eq!(told(&bench, &name), Some((20, renewed.handle)));
    assert_eq!(told(&bench, &bench.name(1, granted.token + 1)), None);
    assert_eq!(told(&bench, &bench.name(2, granted.token)), None);
    assert_eq!(bench.release(1, renewed), Ok(()));
    assert_eq!(told(&bench, &name), None);
    let again = bench.grant(1, 10);
    assert_eq!(again.handle.cell(), granted.handle.cell());
    assert_eq!(
        told(&bench, &bench.name(1, again.token)),
        None,
        "a later life"
    );
}

/// Rule 3.
#[test]
fn a_renewal_is_wanted_of_a_live_lease_that_ends_before() {
    let wanted = (5, 10);
    for (deadline, met, later) in [
        (4, false, None),
        (5, false, None),
        (6, false, Some(10)),
        (9, false, Some(10)),
        (10, true, None),
        (11, true, None),
    ] {
        assert_eq!(wanted.is_met_by(deadline), met, "{deadline}");
        assert_eq!(wanted.later_than(deadline), later, "{deadline}");
    }
    let over = (10, 10);
    assert!(!over.is_met_by(10) && over.later_than(10).is_none());
    assert_eq!(wanted.ticks(), wanted);
}

#[test]
fn a_handle_renews_its_lease_where_it_stands() {
    let mut bench = Bench::new(1);
    let granted = bench.grant(1, 100);
    let name = bench.name(1, granted.token);
    let renew = |bench: &Bench, handle, name: &Name, wanted: (u64, u64)| {
        bench.table.renew_fast(handle, name, &wanted)
    };
    let (deadline, handle) = renew(&bench, granted.handle, &name, (0, 200)).expect("live");
    assert_eq!(deadline, 200);
    // Never back, and not a word is written.
    assert_eq!(renew(&bench, handle, &name, (0, 50)), Some((200, handle)));
    let old = granted.handle;
    assert_eq!(renew(&bench, old, &name, (0, 150)), Some((200, handle)));
    assert!(
        renew(&bench, old, &name, (200, 300)).is_none(),
        "it is over"
    );
    let far = 2 << Narrow::ERA_SHIFT;
    assert!(renew(&bench, old, &name, (0, far)).is_none(), "another era");
    let (wrong, other) = (bench.name(1, name.token + 1), bench.name(2, name.token));
    assert!(renew(&bench, old, &wrong, (0, 300)).is_none());
    assert!(renew(&bench, old, &other, (0, 300)).is_none());
    let found = bench.table.validate(&mut bench.local, &name).expect("live");
    assert_eq!(found.contents.deadline, 200);
}

#[test]
fn a_handle_that_saw_the_last_state_renews_by_one_change() {
    let mut bench = Bench::new(1);
    let granted = bench.grant(1, 100);
    let (key, token) = (bench.name(1, 0).key, granted.token);
    let table = &bench.table;
    assert!(table.is_as_seen(granted.handle, key, token));
    assert!(!table.is_as_seen(granted.handle, key, token + 1));
    assert!(!table.is_as_seen(granted.handle, bench.name(2, 0).key, token));
    let renew = |handle, wanted: (u64, u64)| table.renew_as_seen(handle, key, token, &wanted);
    assert_eq!(renew(granted.handle, (0, 100)), None, "not later");
    assert_eq!(renew(granted.handle, (100, 200)), None, "over");
    let (deadline, handle) = renew(granted.handle, (0, 200)).expect("as it was seen");
    assert_eq!(deadline, 200);
    assert!(table.is_as_seen(handle, key, token));
    assert!(!table.is_as_seen(granted.handle, key, token));
    assert_eq!(renew(granted.handle, (0, 300)), None, "an older state");
    assert_eq!(
        renew(handle, (0, 300)).map(|(deadline, _)| deadline),
        Some(300)
    );
}

#[test]
fn a_lease_among_the_first_of_its_bucket_is_found_and_renewed_by_key() {
    let mut bench = Bench::new(1);
    let held: Vec<_> = (0..6).map(|key| bench.grant(key, 100)).collect();
    for (key, granted) in (0..).zip(&held) {
        let name = bench.name(key, granted.token);
        let is_seen = held.len() - key as usize <= FEW;
        let live = |bench: &Bench, is_live: fn(u64) -> bool| {
            let of = (name.key, name.hash);
            bench.table.live_spotted(&bench.local, of, FEW, is_live)
        };
        let found = live(&bench, |deadline| deadline == 100);
        assert_eq!(
            found.map(|found| found.token),
            is_seen.then_some(name.token)
        );
        assert!(live(&bench, |_| false).is_none());
        let renew = |name: &Name, wanted: (u64, u64)| {
            bench.table.renew_spotted(&bench.local, name, &wanted)
        };
        let wrong = bench.name(key, granted.token + 1);
        assert_eq!(renew(&wrong, (0, 200)), None);
        assert_eq!(renew(&name, (100, 200)), None, "over");
        assert_eq!(renew(&name, (0, 50)), is_seen.then_some(100));
        assert_eq!(renew(&name, (0, 200)), is_seen.then_some(200));
        assert_eq!(
            renew(&name, (0, 2 << Narrow::ERA_SHIFT)),
            None,
            "another era"
        );
        let stands = if is_seen { 200 } else { 100 };
        let found = bench.table.validate(&mut bench.local, &name).expect("live");
        assert_eq!(found.contents.deadline, stands);
    }
}

#[test]
fn a_renewal_never_shortens() {
    let mut bench = Bench::new(4);
    let mut held = bench.grant(1, 100);
    assert_eq!(bench.renew(1, &mut held, 1), Ok(100));
}

#[test]
fn a_renewal_by_key_tells_where_the_lease_is_and_as_it_is() {
    let mut bench = Bench::new(1);
    let granted = bench.grant(1, 100);
    let name = bench.name(1, granted.token);
    let later = (2 << Narrow::ERA_SHIFT) + 10;
    for (now, wanted) in [(0, 200), (150, 600), (590, later)] {
        bench.local.now = now;
        let renewed = bench.table.renew_by_key(&mut bench.local, &name, wanted);
        let (deadline, handle) = renewed.expect("live");
        assert_eq!(deadline, wanted);
        assert!(bench.table.is_as_seen(handle, name.key, name.token));
    }
}

/// A whole era from now on at most: then copies in a later era take it.
#[test]
fn a_deadline_out_of_all_bounds_is_refused() {
    let mut bench = Bench::new(1);
    let granted = bench.grant(1, 100);
    let name = bench.name(1, granted.token);
    let mut renew = |deadline| bench.table.renew_by_key(&mut bench.local, &name, deadline);
    let far = 3 << Narrow::ERA_SHIFT;
    assert_eq!(renew(far).err(), Some(Unrenewed::NoMemory));
    assert_eq!(renew(200).map(|(deadline, _)| deadline), Ok(200));
}

/// A lease that was come upon counts only while its bucket stands.
#[test]
fn a_bucket_that_has_changed_stands_no_more() {
    let mut bench = Bench::new(1);
    let granted = bench.grant(1, 100);
    let name = bench.name(1, granted.token);
    let (table, array) = (&bench.table, bench.table.newest());
    let spotted = table.spot(&array, (name.key, name.hash), FEW);
    let spotted = spotted.expect("alone in its bucket");
    assert!(spotted.stands());
    let released = table.release(&mut bench.local, granted.handle, &name);
    assert!(released.is_ok() && !spotted.stands());
}
