//! An authority with a term: what it caps, when grants stop, and how it is had again.

use std::time::Duration;

use tenure::reservation::{Authority, ReservationError};
use tenure::{AcquireError, BuildError, Clock, LockManager, RenewError, SessionError};

use crate::common::Task;
use crate::ledger::{Ledger, MARGIN, TERM, TTL};

/// How long leases may last that are granted at the start of a term.
const LIMIT: Duration = TERM.saturating_sub(MARGIN);

/// From here on the backend fails, and the managers are told so before their term is over.
fn stop(ledger: &Ledger) {
    ledger.shard().fails = Some(ReservationError::Unavailable {
        reason: "it is down".to_owned(),
    });
}

#[test]
fn no_lease_lasts_longer_than_the_authority() {
    let ledger = Ledger::new();
    let locks = ledger.manager(Some(TERM), 1_000);
    let limit = ledger.clock.now().saturating_add(LIMIT);
    let lease = locks.try_acquire("a", 1, TTL).unwrap();
    assert_eq!(lease.deadline(), limit);
    let short = locks.try_acquire("b", 1, Duration::from_secs(1)).unwrap();
    assert_eq!(short.remaining(), Duration::from_secs(1));
    let shared = locks.acquire("c", 1, TTL).shared().try_now().unwrap();
    assert_eq!(shared.deadline(), limit);
    let session = locks.session(1, TTL).unwrap();
    assert_eq!(session.deadline(), limit);
    // It is kept alive meanwhile, and so can they be.
    ledger.pass(Duration::from_secs(8), &[&locks]);
    assert!(ledger.shard().keep_alives >= 3);
    assert_eq!(lease.deadline(), limit);
    let renewed = lease.renew(TTL).unwrap();
    assert!(renewed > limit);
    assert_eq!(shared.renew(TTL), Ok(renewed));
    assert_eq!(session.keep_alive(), Ok(renewed));
    assert!(!short.is_live());
    let Authority::For(remaining) = locks.standing().unwrap().authority else {
        panic!("{:?}", locks.standing());
    };
    assert_eq!(remaining, lease.remaining());
}

#[test]
fn a_lease_that_the_manager_renews_outlives_many_terms() {
    let ledger = Ledger::new();
    let locks = ledger.manager(Some(TERM), 1_000);
    let hour = Duration::from_secs(3600);
    let kept = locks.acquire("a", 1, hour).auto_renew(hour).try_now();
    let kept = kept.unwrap();
    for _ in 0..60 {
        ledger.pass(Duration::from_secs(5), &[&locks]);
        assert!(kept.is_live());
        assert!(kept.remaining() <= TERM);
    }
    assert_eq!(locks.standing().unwrap().terms, 1);
}

#[test]
fn grants_stop_a_margin_before_the_authority_could_have_lapsed() {
    let ledger = Ledger::new();
    let locks = ledger.manager(Some(TERM), 1_000);
    let lease = locks.try_acquire("a", 1, TTL).unwrap();
    let session = locks.session(3, TTL).unwrap();
    let other = locks.try_acquire("other", 1, TTL).unwrap();
    stop(&ledger);
    let tick = Duration::from_millis(1);
    ledger.pass(LIMIT.saturating_sub(tick), &[&locks]);
    assert!(lease.is_live());
    drop(locks.try_acquire("b", 1, TTL).unwrap());
    assert_eq!(lease.renew(TTL), Ok(lease.deadline()), "to the same");
    ledger.pass(tick, &[&locks]);

    // Nothing is granted or renewed, and nothing is live.
    let refused = locks.try_acquire("b", 1, TTL).unwrap_err();
    assert_eq!(refused, AcquireError::AuthorityLost);
    assert!(
        refused.to_string().contains("wait_for_authority"),
        "{refused}"
    );
    let shared = locks.acquire("b", 1, TTL).shared().try_now();
    assert_eq!(shared.unwrap_err(), AcquireError::AuthorityLost);
    let many = locks.try_acquire_many(["x", "y"], 1, TTL);
    assert!(
        many.into_iter()
            .all(|it| it.is_err_and(|it| it == AcquireError::AuthorityLost))
    );
    assert_eq!(
        locks.session(1, TTL).unwrap_err(),
        AcquireError::AuthorityLost
    );
    assert_eq!(lease.renew(TTL), Err(RenewError::AuthorityLost));
    assert_eq!(session.keep_alive(), Err(SessionError::Over));
    assert!(!lease.is_live());
    assert!(other.release().is_err());
    assert_eq!(locks.standing().unwrap().authority, Authority::Without);
    assert!(!locks.wait_for_authority(Duration::ZERO));
    // And nobody else has it yet, for the length of the margin.
    let second = ledger.client(Some(TERM));
    drop(second);
    ledger.shard().fails = None;
    let second = ledger.manager(Some(TERM), 1_000);
    assert_eq!(
        second.try_acquire("a", 2, TTL).unwrap_err(),
        AcquireError::AuthorityLost
    );
}

#[test]
fn an_authority_that_could_not_be_renewed_at_once_is_tried_again_in_time() {
    let ledger = Ledger::new();
    let locks = ledger.manager(Some(TERM), 1_000);
    let lease = locks.try_acquire("a", 1, TTL).unwrap();
    // It is due after a third of the term.
    let due = TERM / 3;
    ledger.clock.advance(due);
    stop(&ledger);
    let again = locks.tend_reservation(Duration::ZERO);
    assert_eq!(again, Some(TERM / 20), "not at once, and not too late");
    assert!(lease.is_live());

    ledger.shard().fails = None;
    let keep_alives = ledger.shard().keep_alives;
    ledger.clock.advance(TERM / 20);
    locks.tend_reservation(Duration::ZERO);
    assert_eq!(ledger.shard().keep_alives, keep_alives + 1);
    assert_eq!(locks.standing().unwrap().error, None);
    // As long as if it had never failed.
    lease.renew(TTL).unwrap();
    ledger.clock.advance(TERM.saturating_sub(2 * MARGIN));
    assert!(lease.is_live());
}

#[test]
fn a_shard_that_another_has_is_asked_for_sooner_again_than_a_backend_that_fails() {
    let ledger = Ledger::new();
    let _first = ledger.manager(Some(TERM), 1_000);
    let second = ledger.manager(Some(TERM), 1_000);
    let held = second.tend_reservation(Duration::ZERO);
    stop(&ledger);
    let failed = second.tend_reservation(Duration::ZERO);
    assert_eq!(held, Some(Duration::from_millis(50)));
    assert_eq!(failed, Some(Duration::from_millis(200)));
}

#[test]
fn before_the_limit_a_lease_can_be_released_though_the_backend_is_down() {
    let ledger = Ledger::new();
    let locks = ledger.manager(Some(TERM), 1_000);
    let lease = locks.try_acquire("a", 1, TTL).unwrap();
    stop(&ledger);
    ledger.pass(Duration::from_secs(8), &[&locks]);
    lease.release().unwrap();
    assert!(locks.try_acquire("a", 1, TTL).is_ok());
}

#[test]
fn the_next_owner_grants_higher_tokens_and_the_last_one_campaigns_again() {
    let ledger = Ledger::new();
    let first = ledger.manager(Some(TERM), 1_000);
    let second = ledger.manager(Some(TERM), 1_000);
    let before = first.try_acquire("a", 1, TTL).unwrap();
    assert_eq!(
        second.standing().unwrap().error,
        Some(ReservationError::Held {
            holder: "client 1".to_owned()
        })
    );
    // The first one stands still.
    ledger.pass(TERM, &[&second]);
    let between = second.try_acquire("a", 2, TTL).unwrap();
    assert!(between.token() > before.token());
    assert!(!before.is_live());
    assert_eq!(
        first.try_acquire("a", 1, TTL).unwrap_err(),
        AcquireError::AuthorityLost
    );
    // And goes on.
    ledger.pass(TERM, &[&first, &second]);
    assert_eq!(first.standing().unwrap().authority, Authority::Without);
    assert_eq!(before.renew(TTL), Err(RenewError::AuthorityLost));
    ledger.pass(TERM, &[&first]);
    let after = first.try_acquire("a", 1, TTL).unwrap();
    assert!(after.token() > between.token());
    assert_eq!(first.standing().unwrap().terms, 2);
    assert!(before.release().is_err());
}

#[test]
fn what_was_granted_under_an_authority_that_is_taken_away_ends_before_there_are_new_grants() {
    let ledger = Ledger::new();
    let locks = ledger.manager(Some(TERM), 1_000);
    let lease = locks.try_acquire("a", 1, TTL).unwrap();
    let until = lease.deadline();
    // By somebody who may do that.
    ledger.shard().holder = None;
    ledger.pass(Duration::from_secs(4), &[&locks]);
    assert_eq!(
        locks.try_acquire("b", 1, TTL).unwrap_err(),
        AcquireError::AuthorityLost
    );
    assert!(lease.is_live());
    assert_eq!(lease.renew(TTL), Err(RenewError::AuthorityLost));
    assert!(ledger.shard().holder.is_some(), "it has it again");
    ledger.pass(Duration::from_secs(4), &[&locks]);
    assert_eq!(
        locks.try_acquire("b", 1, TTL).unwrap_err(),
        AcquireError::AuthorityLost
    );
    ledger.pass(Duration::from_millis(1_200), &[&locks]);
    assert!(locks.now() >= until && !lease.is_live());
    assert!(locks.try_acquire("b", 1, TTL).unwrap().token().get() > 1_000);

    // Not so long if none is out.
    ledger.shard().holder = None;
    ledger.pass(Duration::from_secs(4), &[&locks]);
    assert!(locks.try_acquire("b", 1, TTL).unwrap().token().get() > 2_000);
}

#[test]
fn who_waits_is_told_that_the_authority_is_lost() {
    let ledger = Ledger::new();
    let locks = ledger.manager(Some(TERM), 1_000);
    let _held = locks.try_acquire("a", 1, TTL).unwrap();
    let mut waiting = Task::pending(locks.acquire("a", 2, TTL));
    let mut shared = Task::pending(locks.acquire("a", 3, TTL).shared());
    stop(&ledger);
    ledger.pass(Duration::from_secs(8), &[&locks]);
    assert!(waiting.poll().is_none());
    ledger.pass(Duration::from_secs(2), &[&locks]);
    assert_eq!(
        waiting.poll().unwrap().unwrap_err(),
        AcquireError::AuthorityLost
    );
    assert_eq!(
        shared.poll().unwrap().unwrap_err(),
        AcquireError::AuthorityLost
    );
}

#[test]
fn several_keys_are_not_granted_across_the_loss_of_an_authority() {
    let ledger = Ledger::new();
    let first = ledger.manager(Some(TERM), 1_000);
    let second = ledger.manager(Some(TERM), 1_000);
    let short = Duration::from_secs(1);
    let b = first.try_acquire("b", 9, TTL).unwrap();
    let mut both = Task::pending(first.acquire_all(["a", "b"], 1, short));
    // Somebody else is granted "a" while the first one stands still.
    ledger.pass(TERM, &[&second]);
    let between = second.try_acquire("a", 2, short).unwrap();
    ledger.pass(short, &[&second]);
    second.resign();
    ledger.pass(TERM, &[&second, &first]);
    drop(b);
    let granted = loop {
        match both.poll() {
            Some(granted) => break granted,
            None => ledger.pass(short, &[&first]),
        }
    };
    match granted {
        // It began anew.
        Ok(both) => assert!(both.token(first.key("a")).unwrap() > between.token()),
        Err(error) => assert_eq!(error, AcquireError::AuthorityLost),
    }
}

#[test]
fn a_term_that_leaves_no_time_to_grant_is_refused() {
    let ledger = Ledger::new();
    let build = |margin| {
        LockManager::builder()
            .clock(ledger.clock.clone())
            .reservation(ledger.client(Some(TERM)))
            .authority_margin(margin)
            .build()
    };
    let refused = build(TERM / 2).unwrap_err();
    let BuildError::Reservation { error } = &refused else {
        panic!("{refused}");
    };
    assert!(matches!(error, ReservationError::TermTooShort { term, .. } if *term == TERM));
    assert!(
        refused.to_string().contains("authority_margin"),
        "{refused}"
    );
    assert_eq!(ledger.shard().holder, None, "nobody waits for it");
    assert!(build((TERM / 2).saturating_sub(Duration::from_millis(1))).is_ok());
}

#[test]
fn what_many_keys_wait_for_is_told_of_without_an_authority_as_with_it() {
    let ledger = Ledger::new();
    let locks = ledger.manager(Some(TERM), 1_000);
    let _held = locks.try_acquire("b", 2, TTL).unwrap();
    let _all = Task::pending(locks.acquire_all(["a", "b"], 1, TTL));
    let told = || locks.holder("a").map(|holder| holder.remaining);
    // No lease outlasts the authority, as things are.
    assert_eq!(told(), Some(LIMIT));
    // The term is over, and nobody has come by.
    ledger.clock.advance(TERM);
    assert_eq!(told(), Some(TTL));
}
