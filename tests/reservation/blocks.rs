//! Blocks of tokens: every grant is within one, and they never run dry unnoticed.

use std::time::Duration;

use tenure::reservation::{Authority, Memory, ReservationError};
use tenure::{AcquireError, BuildError, FencingToken, LockManager};

use crate::ledger::{Ledger, TERM, TTL};

fn unavailable() -> ReservationError {
    ReservationError::Unavailable {
        reason: "it is down".to_owned(),
    }
}

#[test]
fn managers_of_one_reservation_never_grant_the_same_token() {
    // I2, through what would be a restart.
    let tokens = Memory::new();
    let mut last = None;
    for _ in 0..5 {
        let locks = LockManager::builder().reservation(tokens.clone()).build();
        let token = locks.unwrap().try_acquire("a", 1, TTL).unwrap().token();
        assert!(Some(token) > last, "{token} after {last:?}");
        last = Some(token);
    }
}

#[test]
fn every_grant_is_within_what_is_reserved() {
    for (keys, block) in [(1, 8), (1, 1), (50, 3), (3_000, 4)] {
        let ledger = Ledger::new();
        let locks = ledger.manager(None, block);
        let mut refused = 0;
        for round in 0..12_000_u64 {
            let key = format!("key {}", round % keys);
            match locks.try_acquire(&*key, 1, TTL) {
                Ok(lease) => {
                    let token = lease.token().get();
                    assert!(token <= ledger.shard().mark, "{token}");
                    if keys > 100 && round % 2 == 0 {
                        // Growth and shrinking in between.
                        lease.detach();
                    }
                }
                Err(AcquireError::TokensNotReserved { wanted, last }) => {
                    assert!(wanted > last && last <= ledger.shard().mark);
                    refused += 1;
                }
                Err(AcquireError::Held { token, .. }) => {
                    locks.release(&*key, token).unwrap();
                }
                Err(error) => panic!("{error}"),
            }
            locks.tend_reservation(Duration::ZERO);
        }
        // The next block comes when half of the last is used up, so only who has blocks of few runs dry.
        assert!(refused == 0 || block <= 4, "{refused} of blocks of {block}");
        assert!(refused <= 6_002, "{refused}");
        assert!(ledger.shard().blocks.len() >= 3);
    }
}

#[test]
fn the_next_block_is_asked_for_when_half_of_the_last_is_used_up() {
    let ledger = Ledger::new();
    let locks = ledger.manager(None, 100);
    let take = |count: u64| {
        for _ in 0..count {
            drop(locks.try_acquire("a", 1, TTL).unwrap());
        }
        locks.tend_reservation(Duration::ZERO);
    };
    take(40);
    assert_eq!(ledger.shard().mark, 100);
    take(20);
    assert_eq!(ledger.shard().mark, 200);
    take(60);
    assert_eq!(ledger.shard().mark, 200);
    take(60);
    assert_eq!(ledger.shard().mark, 300);
    // No token was skipped, but the very first.
    assert_eq!(locks.try_acquire("a", 1, TTL).unwrap().token().get(), 182);
}

#[test]
fn a_block_that_is_used_up_while_the_backend_is_down_is_an_error_and_passes() {
    let ledger = Ledger::new();
    let locks = ledger.manager(None, 10);
    ledger.shard().fails = Some(unavailable());
    for _ in 0..9 {
        drop(locks.try_acquire("a", 1, TTL).unwrap());
        locks.tend_reservation(Duration::ZERO);
    }
    for _ in 0..3 {
        let refused = locks.try_acquire("a", 1, TTL).unwrap_err();
        let expected = AcquireError::TokensNotReserved {
            wanted: 11,
            last: 10,
        };
        assert_eq!(refused, expected);
        assert!(refused.to_string().contains("try again"), "{refused}");
        // Shared leases take theirs from the same block.
        let shared = locks.acquire("b", 1, TTL).shared().try_now();
        assert!(shared.is_ok() || shared.is_err_and(|error| error == expected));
        assert_eq!(locks.standing().unwrap().error, Some(unavailable()));
    }
    ledger.shard().fails = None;
    ledger.pass(Duration::from_secs(1), &[&locks]);
    assert_eq!(locks.try_acquire("a", 1, TTL).unwrap().token().get(), 11);
    let standing = locks.standing().unwrap();
    assert_eq!((standing.error, standing.blocks), (None, 2));
    assert_eq!(standing.authority, Authority::Unlimited);
}

#[test]
fn who_waits_for_a_key_is_granted_it_when_there_are_tokens_again() {
    let ledger = Ledger::new();
    let locks = ledger.manager(None, 4);
    ledger.shard().fails = Some(unavailable());
    for _ in 0..2 {
        drop(locks.try_acquire("a", 1, TTL).unwrap());
    }
    let held = locks.try_acquire("a", 1, TTL).unwrap();
    let mut waiting = crate::common::Task::pending(locks.acquire("a", 2, TTL));
    held.release().unwrap();
    assert!(waiting.poll().is_none(), "there is no token");
    let again = locks.next_wakeup().expect("it is tried again");
    assert!(again > locks.now(), "in the next tick, and not on and on");
    ledger.shard().fails = None;
    ledger.pass(Duration::from_secs(1), &[&locks]);
    let granted = waiting.poll().expect("its turn").unwrap();
    assert!(granted.token().get() > 4);
}

#[test]
fn a_token_that_is_asked_for_beyond_the_block_burns_no_blocks() {
    let ledger = Ledger::new();
    let locks = ledger.manager(None, 100);
    let at_least = |token| {
        let token = FencingToken::new(token).unwrap();
        let granted = locks.try_acquire_at_least("a", 1, TTL, token);
        let granted = granted.map(|lease| lease.token().get());
        locks.tend_reservation(Duration::ZERO);
        granted
    };
    for _ in 0..5 {
        let refused = at_least(1_000_000);
        let expected = AcquireError::TokensNotReserved {
            wanted: 1_000_000,
            last: 100,
        };
        assert_eq!(refused, Err(expected));
    }
    assert_eq!(ledger.shard().blocks.len(), 1);
    assert_eq!(at_least(30), Ok(30));
    assert_eq!(ledger.shard().blocks.len(), 1);
    assert_eq!(at_least(100), Ok(100));
    assert_eq!(ledger.shard().blocks.len(), 2);
    assert_eq!(at_least(1), Ok(101));
}

#[test]
fn a_backend_that_skips_tokens_is_followed() {
    let ledger = Ledger::new();
    let locks = ledger.manager(None, 10);
    let held = locks.try_acquire("held", 1, TTL).unwrap();
    ledger.shard().mark = 5_000;
    for _ in 0..40 {
        match locks.try_acquire("a", 1, TTL) {
            Ok(lease) => {
                let token = lease.token().get();
                assert!(!(11..=5_000).contains(&token), "{token} is somebody else's");
            }
            Err(error) => assert!(matches!(error, AcquireError::TokensNotReserved { .. })),
        }
        locks.tend_reservation(Duration::ZERO);
    }
    assert!(locks.try_acquire("a", 1, TTL).unwrap().token().get() > 5_000);
    assert!(held.is_live());
    held.release().unwrap();
}

#[test]
fn a_restored_manager_grants_from_its_block_and_within_its_authority() {
    for term in [None, Some(TERM)] {
        let ledger = Ledger::new();
        let first = ledger.manager(term, 100);
        let lease = first.try_acquire("a", 1, TTL).unwrap();
        let token = lease.detach();
        let shared = first.acquire("b", 1, TTL).shared().try_now().unwrap();
        let shared = shared.detach();
        let checkpoint = first.checkpoint();
        // A standby restores nothing: whoever has the shard grants its keys.
        let refused = ledger.builder(term, 100).restore(&checkpoint);
        if term.is_some() {
            let error = refused.unwrap_err().to_string();
            assert!(error.contains("client 1"), "{error}");
        } else {
            drop(refused.unwrap());
        }
        std::mem::forget(first);
        ledger.clock.advance(TERM);
        let second = ledger.builder(term, 100).restore(&checkpoint).unwrap();
        let reserved = *ledger.shard().blocks.last().unwrap();
        let held = second.holder("a").expect("restored");
        assert_eq!(held.token, token);
        assert_eq!(second.holder("b").map(|it| it.token), Some(shared));
        if let Some((_, until)) = ledger.shard().holder.filter(|_| term.is_some()) {
            assert!(held.deadline <= until);
        }
        second.release("a", token).unwrap();
        let next = second.try_acquire("a", 2, TTL).unwrap().token();
        assert!(
            (reserved.first()..=reserved.last()).contains(&next),
            "{next}"
        );
        second.release("b", shared).unwrap();
        let next = second.acquire("b", 2, TTL).shared().try_now().unwrap();
        assert!(next.token() > shared && next.token() <= reserved.last());
    }
}

#[test]
fn a_manager_whose_first_block_cannot_be_had_is_not_built() {
    let ledger = Ledger::new();
    let corrupt = ReservationError::Corrupt {
        reason: "it is torn".to_owned(),
    };
    for error in [unavailable(), corrupt] {
        for term in [None, Some(TERM)] {
            ledger.shard().fails = Some(error.clone());
            let refused = ledger.builder(term, 10).build().unwrap_err();
            let text = refused.to_string();
            assert!(text.contains("no tokens to grant"), "{text}");
            let error = error.clone();
            assert_eq!(refused, BuildError::Reservation { error });
        }
    }
    ledger.shard().fails = None;
    ledger.shard().mark = FencingToken::MAX.get() - 5;
    let refused = ledger.builder(None, 10).build().unwrap_err();
    assert!(matches!(
        refused,
        BuildError::Reservation {
            error: ReservationError::Exhausted { .. }
        }
    ));
    assert!(ledger.builder(None, 5).build().is_ok());
}

/// A token that no block to come will reach is refused when the turn comes, and holds nobody up.
#[test]
fn who_waits_for_a_token_beyond_the_block_is_told_so_when_its_turn_comes() {
    let ledger = Ledger::new();
    let locks = ledger.manager(None, 100);
    let held = locks.try_acquire("a", 1, TTL).unwrap();
    let far = FencingToken::new(1_000_000).unwrap();
    let mut waiting = crate::common::Task::pending(locks.acquire("a", 2, TTL).at_least(far));
    let mut next = crate::common::Task::pending(locks.acquire("a", 3, TTL));
    held.release().unwrap();
    let refused = waiting.poll().expect("its turn").map(drop);
    assert_eq!(
        refused,
        Err(AcquireError::TokensNotReserved {
            wanted: 1_000_000,
            last: 100
        })
    );
    assert!(next.poll().expect("its turn").is_ok());
}

/// A place that was found for who is refused is that of who comes next.
#[test]
fn who_is_refused_at_the_head_of_the_queue_leaves_its_place_to_the_next() {
    let ledger = Ledger::new();
    let locks = ledger.builder(None, 100).max_keys(1).build().unwrap();
    let first = locks.acquire("a", 1, TTL).min_hold(TTL).try_now();
    first.unwrap().release().unwrap();
    let Err(AcquireError::Delayed { remaining }) = locks.try_acquire("a", 1, TTL) else {
        panic!("it is kept free");
    };
    let far = FencingToken::new(1_000_000).unwrap();
    let mut refused = crate::common::Task::pending(locks.acquire("a", 2, TTL).at_least(far));
    let mut next = crate::common::Task::pending(locks.acquire("a", 3, TTL));
    ledger.pass(remaining, &[&locks]);
    assert!(refused.poll().expect("its turn").is_err());
    assert!(next.poll().expect("its turn").is_ok());
}
