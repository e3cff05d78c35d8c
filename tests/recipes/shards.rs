//! Shard ownership, case by case.

use std::collections::BTreeMap;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};

use tenure::recipes::{Member, ShardPool};
use tenure::{AcquireError, FencingToken, Loss, OwnerId, SessionError};

use crate::{Task, manual, ms, pass};

/// Rounds after which a stable membership shares the shards out evenly.
pub(crate) const ROUNDS: usize = 3;

/// Who owns each shard, by the manager.
fn owners(pool: &ShardPool) -> Vec<Option<OwnerId>> {
    let owner = |shard| pool.owner(shard).map(|holder| holder.owner);
    (0..pool.shards()).map(owner).collect()
}

fn settle(members: &mut [Member]) {
    for _ in 0..ROUNDS {
        for member in members.iter_mut() {
            member.rebalance().expect("live");
        }
    }
}

fn join_all(pool: &ShardPool, workers: impl Iterator<Item = u64>) -> Vec<Member> {
    workers
        .map(|worker| pool.join(worker, ms(100)).expect("not a member"))
        .collect()
}

/// All shards are owned, each by a member that knows it, and their numbers differ by one at most.
pub(crate) fn assert_even(pool: &ShardPool, members: &[Member]) {
    let counts: Vec<_> = members
        .iter()
        .map(|member| member.shards().count())
        .collect();
    assert_eq!(counts.iter().sum::<usize>(), pool.shards(), "{counts:?}");
    let least = counts.iter().min().expect("there are members");
    let most = counts.iter().max().expect("there are members");
    assert!(most - least <= 1, "{counts:?}");
    for member in members {
        for (shard, token) in member.shards() {
            let owner = pool.owner(shard).expect("owned");
            assert_eq!((owner.owner, owner.token), (member.worker(), token));
            assert_eq!(member.token(shard), Some(token));
        }
    }
}

#[test]
fn a_newcomer_gets_its_share_and_nothing_else_moves() {
    let (locks, _) = manual();
    for shards in [0, 1, 2, 7, 16, 33] {
        let pool = ShardPool::new(&locks, format!("pool of {shards}"), shards);
        let mut members = vec![];
        for worker in 1..=6 {
            let before = owners(&pool);
            members.push(pool.join(worker, ms(100)).expect("not a member"));
            settle(&mut members);
            assert_even(&pool, &members);
            let moved: Vec<_> = owners(&pool).into_iter().zip(before).collect();
            let moved: Vec<_> = moved.iter().filter(|(now, then)| now != then).collect();
            assert!(moved.iter().all(|(now, _)| *now == Some(OwnerId(worker))));
            assert_eq!(
                moved.len(),
                shards / members.len(),
                "the least that will do"
            );
        }
        let workers: Vec<_> = (1..=6).map(OwnerId).collect();
        assert_eq!(pool.members(), workers);
    }
}

#[test]
fn only_the_shards_of_those_who_leave_move() {
    let (locks, clock) = manual();
    let pool = ShardPool::new(&locks, "pool", 23);
    let mut members = join_all(&pool, 1..=6);
    settle(&mut members);
    for (round, leaver) in [2, 0, 3, 1].into_iter().enumerate() {
        let before = owners(&pool);
        let member = members.remove(leaver);
        let gone = member.worker();
        if round % 2 == 0 {
            member.leave().expect("live");
        } else {
            mem::forget(member);
            pass(&locks, &clock, 50);
            for member in &members {
                member.keep_alive().expect("live");
            }
            settle(&mut members);
            assert_eq!(owners(&pool), before, "the dead are not known to be dead");
            pass(&locks, &clock, 50);
            for member in &members {
                member.keep_alive().expect("live");
            }
        }
        settle(&mut members);
        assert_even(&pool, &members);
        for (now, then) in owners(&pool).into_iter().zip(before) {
            assert!(now == then || then == Some(gone), "{then:?} -> {now:?}");
        }
    }
}

#[test]
fn tokens_rise_with_each_change_of_owner() {
    let (locks, clock) = manual();
    let pool = ShardPool::new(&locks, "pool", 5);
    let mut newest: BTreeMap<usize, FencingToken> = BTreeMap::new();
    for worker in 1..30_u64 {
        let mut member = pool.join(worker, ms(10)).expect("not a member");
        for (shard, token) in member.rebalance().expect("live").gained {
            assert!(newest.insert(shard, token) < Some(token));
        }
        assert_eq!(newest.len(), 5);
        match worker % 3 {
            0 => member.leave().expect("live"),
            1 => drop(member),
            _ => {
                mem::forget(member);
                pass(&locks, &clock, 11);
            }
        }
    }
    assert_eq!(locks.len(), 0);
}

#[test]
fn a_surplus_is_owned_until_the_worker_has_stopped() {
    let (locks, _) = manual();
    let pool = ShardPool::new(&locks, "pool", 4);
    let mut first = pool.join(1, ms(100)).expect("not a member");
    assert_eq!(first.rebalance().expect("live").gained.len(), 4);
    let mut second = pool.join(2, ms(100)).expect("not a member");
    let lost = first.rebalance().expect("live").lost;
    assert_eq!(lost.len(), 2);
    assert!(lost.iter().all(|shard| first.token(*shard).is_none()));
    for shard in &lost {
        assert_eq!(
            pool.owner(*shard).map(|holder| holder.owner),
            Some(OwnerId(1))
        );
    }
    assert_eq!(second.rebalance(), Ok(tenure::recipes::Changes::default()));
    first.let_go();
    let gained = second.rebalance().expect("live").gained;
    let gained: Vec<_> = gained.iter().map(|(shard, _)| *shard).collect();
    assert_eq!(gained, lost, "in order");
    // The second way to say so is to call again.
    drop(second);
    first.rebalance().expect("live");
    let mut third = pool.join(3, ms(100)).expect("not a member");
    first.rebalance().expect("live");
    first.rebalance().expect("live");
    assert_eq!(third.rebalance().expect("live").gained.len(), 2);
}

#[test]
fn a_worker_is_a_member_once() {
    let (locks, clock) = manual();
    let pool = ShardPool::new(&locks, "pool", 3);
    let member = pool.join(1, ms(10)).expect("not a member");
    let again = pool.join(1, ms(10)).map(drop);
    assert!(matches!(
        again,
        Err(AcquireError::Held {
            owner: OwnerId(1),
            ..
        })
    ));
    assert_eq!(pool.members(), [OwnerId(1)]);
    mem::forget(member);
    assert!(pool.join(1, ms(10)).is_err(), "its session is not over");
    pass(&locks, &clock, 10);
    let member = pool.join(1, ms(10)).expect("its session is over");
    let other = ShardPool::new(&locks, "other", 3);
    assert!(other.join(1, ms(10)).is_ok(), "of another pool");
    drop(member);
    assert_eq!(locks.len(), 0);
}

#[test]
fn a_member_whose_session_is_over_is_told_so() {
    let (locks, clock) = manual();
    let pool = ShardPool::new(&locks, "pool", 3);
    let mut member = pool.join(1, ms(10)).expect("not a member");
    member.rebalance().expect("live");
    let mut lost = Task::pending(member.lost());
    pass(&locks, &clock, 9);
    member.keep_alive().expect("live");
    pass(&locks, &clock, 10);
    assert!(!member.is_live());
    assert_eq!(lost.poll(), Some(Loss::SessionOver));
    assert_eq!(member.keep_alive(), Err(SessionError::Over));
    assert_eq!(member.rebalance(), Err(AcquireError::SessionOver));
    assert_eq!(member.shards().count(), 3, "what it has to stop using");
    let mut next = pool.join(2, ms(10)).expect("not a member");
    assert_eq!(next.rebalance().expect("live").gained.len(), 3);
    assert_eq!(member.leave(), Err(SessionError::Over));
    assert_eq!(next.shards().count(), 3);
    assert!(next.rebalance().expect("live").lost.is_empty());
}

#[test]
fn a_shard_that_was_revoked_is_lost_and_free() {
    let (locks, _) = manual();
    let pool = ShardPool::new(&locks, "pool", 3);
    let mut member = pool.join(1, ms(10)).expect("not a member");
    member.rebalance().expect("live");
    let before = member.token(1).expect("owned");
    locks.revoke(pool.key(1)).expect("held");
    let changes = member.rebalance().expect("live");
    assert_eq!(changes.lost, [1]);
    assert!(matches!(changes.gained[..], [(1, token)] if token > before));
}

#[test]
fn nobody_owns_the_shards_of_the_dead_during_the_lock_delay() {
    let (locks, clock) = manual();
    let pool = ShardPool::new(&locks, "pool", 3).lock_delay(ms(5));
    let mut first = pool.join(1, ms(10)).expect("not a member");
    first.rebalance().expect("live");
    mem::forget(first);
    let mut second = pool.join(2, ms(100)).expect("not a member");
    pass(&locks, &clock, 11);
    assert!(second.rebalance().expect("live").gained.is_empty());
    pass(&locks, &clock, 5);
    assert_eq!(second.rebalance().expect("live").gained.len(), 3);
    second.leave().expect("live");
    let mut third = pool.join(3, ms(10)).expect("not a member");
    assert_eq!(
        third.rebalance().expect("live").gained.len(),
        3,
        "a clean end has none"
    );
}

#[test]
fn all_members_are_seen_whatever_holes_others_left() {
    let (locks, _) = manual();
    let pool = ShardPool::new(&locks, "pool", 200);
    let mut members = join_all(&pool, 0..100);
    assert_eq!(pool.members().len(), 100);
    // Two blocks and a half are empty now, before those that are left.
    members.drain(..80);
    let workers: Vec<_> = (80..100).map(OwnerId).collect();
    assert_eq!(pool.members(), workers);
    members.extend(join_all(&pool, 200..203));
    settle(&mut members);
    assert_even(&pool, &members);
    let workers: Vec<_> = (80..100).chain(200..203).map(OwnerId).collect();
    assert_eq!(pool.members(), workers, "who joins is the last");
    members.clear();
    assert_eq!((pool.members(), locks.len()), (vec![], 0));
}

/// The last of them is alone in its block, with the first slot of it.
#[test]
fn the_first_member_beyond_a_block_of_slots_is_seen() {
    let (locks, _) = manual();
    let pool = ShardPool::new(&locks, "pool", 40);
    let mut members = join_all(&pool, 0..33);
    assert_eq!(pool.members().len(), 33);
    members.drain(..32);
    assert_eq!(pool.members(), [OwnerId(32)]);
    settle(&mut members);
    assert_even(&pool, &members);
}

#[test]
fn a_manager_with_too_few_places_says_so_and_a_member_keeps_what_it_has() {
    let clock = tenure::ManualClock::new();
    let locks = crate::options(&clock)
        .max_keys(8)
        .build()
        .expect("in order");
    let pool = ShardPool::new(&locks, "pool", 20);
    let mut member = pool.join(1, ms(10)).expect("not a member");
    let gained = member.rebalance().expect("some").gained.len();
    assert!((1..=8).contains(&gained), "{gained}");
    let full = member.rebalance();
    assert!(
        matches!(full, Err(AcquireError::CapacityExceeded { .. })),
        "{full:?}"
    );
    assert_eq!(member.shards().count(), gained);
}

/// I1 among threads: a worker that was told to use a shard is the only one that does.
#[test]
fn workers_in_threads_never_use_a_shard_at_the_same_time() {
    const SHARDS: usize = 13;
    const TURNS: u64 = 300;
    let (locks, _) = manual();
    let pool = ShardPool::new(&locks, "pool", SHARDS);
    let users: Vec<_> = (0..SHARDS).map(|_| AtomicU64::new(0)).collect();
    let worker_loop = |worker: u64| {
        let stop = |shard: usize| {
            assert_eq!(users[shard].swap(0, Ordering::SeqCst), worker, "I1");
        };
        let mut member = pool.join(worker, ms(100)).expect("not a member");
        for turn in 0..TURNS {
            let changes = member.rebalance().expect("live");
            changes.lost.iter().for_each(|shard| stop(*shard));
            for (shard, _) in changes.gained {
                assert_eq!(users[shard].swap(worker, Ordering::SeqCst), 0, "I1");
            }
            if turn % 3 == 0 {
                member.let_go();
            }
            if turn % 40 == worker * 9 {
                member.shards().for_each(|(shard, _)| stop(shard));
                member.leave().expect("live");
                member = pool.join(worker, ms(100)).expect("has left");
            }
        }
        member
    };
    let mut members: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (1..=4)
            .map(|worker| scope.spawn(move || worker_loop(worker)))
            .collect();
        let joined = threads.into_iter().map(ScopedJoinHandle::join);
        joined.map(|member| member.expect("no panic")).collect()
    });
    settle(&mut members);
    assert_even(&pool, &members);
}
