//! Shard ownership under random joins, departures and deaths, against what the workers use.

use std::collections::BTreeMap;
use std::mem;

use proptest::prelude::*;
use tenure::recipes::{Changes, Member, ShardPool};
use tenure::{AcquireError, FencingToken, LockManager, ManualClock};

use crate::shards::{ROUNDS, assert_even};
use crate::{manual, ms, pass};

const TTL: u64 = 20;

#[derive(Clone, Copy, Debug)]
enum Step {
    Join(u64),
    Leave(usize),
    /// The worker stops at once, and its session is over later.
    Die(usize),
    /// It goes on without keeping its session alive.
    Hang(usize),
    Rebalance(usize),
    LetGo(usize),
    /// All but those that hang keep their sessions alive.
    Pass(u64),
    /// An operator's.
    Revoke(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1..9_u64).prop_map(Step::Join),
        1 => any::<usize>().prop_map(Step::Leave),
        1 => any::<usize>().prop_map(Step::Die),
        1 => any::<usize>().prop_map(Step::Hang),
        12 => any::<usize>().prop_map(Step::Rebalance),
        3 => any::<usize>().prop_map(Step::LetGo),
        4 => (1..TTL).prop_map(Step::Pass),
        1 => any::<usize>().prop_map(Step::Revoke),
    ]
}

/// A member, and what its worker believes that it may use.
struct Worker {
    member: Member,
    hangs: bool,
    uses: BTreeMap<usize, FencingToken>,
}

struct World {
    locks: LockManager,
    clock: ManualClock,
    pool: ShardPool,
    workers: Vec<Worker>,
    /// The greatest token seen of each shard.
    newest: BTreeMap<usize, FencingToken>,
}

impl World {
    fn new(shards: usize) -> Self {
        let (locks, clock) = manual();
        let pool = ShardPool::new(&locks, "pool", shards);
        Self {
            locks,
            clock,
            pool,
            workers: vec![],
            newest: BTreeMap::new(),
        }
    }

    fn pick(&self, index: usize) -> Option<usize> {
        index.checked_rem(self.workers.len())
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Join(worker) => match self.pool.join(worker, ms(TTL)) {
                Ok(member) => self.workers.push(Worker {
                    member,
                    hangs: false,
                    uses: BTreeMap::new(),
                }),
                Err(error) => assert!(matches!(error, AcquireError::Held { .. }), "{error}"),
            },
            Step::Leave(index) => {
                if let Some(index) = self.pick(index) {
                    let member = self.workers.swap_remove(index).member;
                    let live = member.is_live();
                    assert_eq!(member.leave().is_ok(), live);
                }
            }
            Step::Die(index) => {
                if let Some(index) = self.pick(index) {
                    mem::forget(self.workers.swap_remove(index).member);
                }
            }
            Step::Hang(index) => {
                if let Some(index) = self.pick(index) {
                    self.workers[index].hangs = true;
                }
            }
            Step::Rebalance(index) => {
                if let Some(index) = self.pick(index) {
                    self.rebalance(index);
                }
            }
            Step::LetGo(index) => {
                if let Some(index) = self.pick(index) {
                    self.workers[index].member.let_go();
                }
            }
            Step::Pass(ticks) => {
                pass(&self.locks, &self.clock, ticks);
                for worker in self.workers.iter().filter(|worker| !worker.hangs) {
                    worker.member.keep_alive().expect("kept alive in time");
                }
            }
            Step::Revoke(index) => {
                if let Some(shard) = index.checked_rem(self.pool.shards()) {
                    let _ = self.locks.revoke(self.pool.key(shard));
                }
            }
        }
        self.check();
    }

    fn rebalance(&mut self, index: usize) {
        let worker = &mut self.workers[index];
        let changes: Changes = match worker.member.rebalance() {
            Ok(changes) => changes,
            Err(error) => {
                assert_eq!(error, AcquireError::SessionOver);
                assert!(worker.hangs && !worker.member.is_live());
                self.workers.swap_remove(index);
                return;
            }
        };
        for shard in changes.lost {
            assert!(
                worker.uses.remove(&shard).is_some(),
                "it was told to use it"
            );
        }
        for (shard, token) in changes.gained {
            assert!(worker.uses.insert(shard, token).is_none(), "gained twice");
            assert!(
                self.newest.insert(shard, token) < Some(token),
                "tokens rise"
            );
        }
        let uses = worker.uses.iter().map(|(shard, token)| (*shard, *token));
        assert!(worker.member.shards().eq(uses));
    }

    /// I1: of those that believe to own a shard, one at most is right. So a resource that checks tokens
    /// takes the writes of that one only.
    fn check(&self) {
        let mut owned = BTreeMap::new();
        for worker in &self.workers {
            for (shard, token) in &worker.uses {
                if self.locks.validate(self.pool.key(*shard), *token).is_ok() {
                    assert!(worker.member.is_live());
                    let other = owned.insert(*shard, worker.member.worker());
                    assert_eq!(other, None, "two owners of {shard}");
                }
            }
        }
    }

    /// The membership is stable from now on: all shards are owned, evenly, after a few rounds.
    fn settle(mut self) {
        self.workers.retain(|worker| !worker.hangs);
        pass(&self.locks, &self.clock, 1);
        for _ in 0..TTL {
            for worker in &self.workers {
                worker.member.keep_alive().expect("live");
            }
            pass(&self.locks, &self.clock, 1);
        }
        for _ in 0..ROUNDS {
            for index in 0..self.workers.len() {
                self.rebalance(index);
                self.check();
            }
        }
        let members: Vec<_> = self
            .workers
            .into_iter()
            .map(|worker| worker.member)
            .collect();
        if !members.is_empty() {
            assert_eq!(self.pool.members().len(), members.len());
            assert_even(&self.pool, &members);
        }
        drop(members);
        assert_eq!(self.locks.len(), 0, "leases are left");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 150 } else { 1_500 }))]
    #[test]
    fn random_memberships_keep_one_owner_and_come_to_rest_evenly(
        shards in 0..20_usize,
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut world = World::new(shards);
        for step in steps {
            world.apply(step);
        }
        world.settle();
    }
}
