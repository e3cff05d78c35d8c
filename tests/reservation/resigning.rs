//! Giving a shard up.

use std::time::Duration;

use tenure::reservation::Authority;
use tenure::{AcquireError, SessionError};

use crate::ledger::{Ledger, TERM, TTL};

#[test]
fn a_manager_without_leases_gives_its_authority_up_at_once() {
    let ledger = Ledger::new();
    let first = ledger.manager(Some(TERM), 1_000);
    let token = first.try_acquire("a", 1, TTL).unwrap().token();
    first.resign();
    assert_eq!(
        first.try_acquire("a", 1, TTL).unwrap_err(),
        AcquireError::AuthorityLost
    );
    assert_eq!(first.tend_reservation(Duration::ZERO), None);
    assert_eq!(first.standing().unwrap().authority, Authority::Resigned);
    let second = ledger.manager(Some(TERM), 1_000);
    assert!(second.try_acquire("a", 1, TTL).unwrap().token() > token);
    // For good.
    drop(second);
    ledger.pass(TERM, &[&first]);
    assert_eq!(
        first.try_acquire("a", 1, TTL).unwrap_err(),
        AcquireError::AuthorityLost
    );
    assert!(!first.wait_for_authority(Duration::from_secs(3600)));
}

#[test]
fn a_manager_with_leases_out_keeps_its_authority_until_they_are_gone() {
    let ledger = Ledger::new();
    let first = ledger.manager(Some(TERM), 1_000);
    let second = ledger.manager(Some(TERM), 1_000);
    let lease = first.try_acquire("a", 1, TTL).unwrap();
    let shared = first.acquire("b", 1, TTL).shared().try_now().unwrap();
    first.resign();
    let pass = |time| ledger.pass(Duration::from_millis(time), &[&first, &second]);
    pass(2_000);
    assert!(lease.is_live() && shared.is_live());
    assert!(second.try_acquire("a", 2, TTL).is_err());
    lease.release().unwrap();
    pass(1_000);
    assert!(second.try_acquire("a", 2, TTL).is_err());
    shared.release().unwrap();
    pass(200);
    assert!(second.try_acquire("a", 2, TTL).is_ok());
}

#[test]
fn a_lease_that_nobody_releases_ends_before_the_successor_begins() {
    let ledger = Ledger::new();
    let first = ledger.manager(Some(TERM), 1_000);
    let second = ledger.manager(Some(TERM), 1_000);
    let short = Duration::from_secs(3);
    let lease = first.try_acquire("a", 1, short).unwrap();
    first.resign();
    ledger.pass(Duration::from_millis(2_900), &[&first, &second]);
    assert!(lease.is_live());
    assert!(second.try_acquire("a", 2, TTL).is_err());
    ledger.pass(Duration::from_millis(300), &[&first, &second]);
    assert!(!lease.is_live());
    assert!(second.try_acquire("a", 2, TTL).is_ok());
}

#[test]
fn a_manager_that_is_dropped_leaves_the_authority_to_run_out_if_a_holder_may_believe_in_its_lease()
{
    for held in [false, true] {
        let ledger = Ledger::new();
        let first = ledger.manager(Some(TERM), 1_000);
        let lease = first.try_acquire("a", 1, TTL).unwrap();
        if held {
            lease.detach();
        } else {
            lease.release().unwrap();
        }
        drop(first);
        let second = ledger.manager(Some(TERM), 1_000);
        assert_eq!(second.try_acquire("a", 2, TTL).is_err(), held);
        ledger.pass(TERM, &[&second]);
        assert!(second.try_acquire("a", 2, TTL).is_ok());
    }
}

/// It goes on until its end, which nothing puts off.
#[test]
fn a_session_of_a_manager_that_resigns_is_kept_alive_no_more() {
    let ledger = Ledger::new();
    let locks = ledger.manager(Some(TERM), 1_000);
    let session = locks.session(1, TTL).unwrap();
    let lease = session.try_acquire("a").unwrap();
    let deadline = session.keep_alive().unwrap();
    locks.resign();
    assert_eq!(session.keep_alive(), Err(SessionError::AuthorityLost));
    assert!(session.is_live() && lease.is_live());
    assert_eq!(session.deadline(), deadline);
    session.close().unwrap();
}
