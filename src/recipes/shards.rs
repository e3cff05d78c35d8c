//! Shard ownership: members share the shards out, and take over those of the dead.
//!
//! # The rules
//!
//! 1. A member is a session. In it, it holds a *slot*, by which others see it, and its shards. So when it
//!    dies, all of that is free at once.
//! 2. Members are ordered by the fencing tokens of their slots; whoever joins asks for a token above all
//!    that it sees, and is the last. Of `n` shards and `m` members, the `i`th (from 0) has a share of
//!    `⌈(n - i) / m⌉`: the shares add up to `n`, and differ by one at most.
//! 3. Who has more than its share gives up the surplus; who has less takes what is free. Nobody needs to
//!    know what another has.
//!
//! A share never rises when somebody joins, so shards then move to the newcomer only; and never falls when
//! somebody leaves, so then only the shards of who left move. Both are the least that will do.
//!
//! Which shards to give up or take is up to the weight of each for that worker (rendezvous hashing: Thaler
//! and Ravishankar, 1996): a worker that comes back tends to get what it had, and two that take shards at
//! the same time seldom try the same one.
//!
//! That a shard has one owner at a time does not rest on any of this, but on its lease alone (I1).

use std::collections::BTreeMap;
use std::time::Duration;

use super::derived;
use crate::{
    AcquireError, FencingToken, Holder, Key, LockManager, Lost, OwnerId, Session, SessionError,
    Timestamp, ToKey,
};

/// Slots that are looked at together: see [`ShardPool::slots`].
const BLOCK: u64 = 32;

/// A number of shards, each of which one member at a time owns.
///
/// Members join and leave as they like. Each calls [`rebalance`](Member::rebalance) and
/// [`keep_alive`](Member::keep_alive) now and then, and the shards spread evenly: the numbers differ by one
/// at most once every member has called `rebalance` three times since the last change of the membership,
/// and no more shards change hands than have to. A member that dies is out when its TTL has passed.
///
/// All who use a pool must give the same number of shards.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tenure::LockManager;
/// use tenure::recipes::ShardPool;
///
/// let locks = LockManager::new();
/// let pool = ShardPool::new(&locks, "orders", 5);
/// let ttl = Duration::from_secs(10);
///
/// let mut first = pool.join(1, ttl)?;
/// assert_eq!(first.rebalance()?.gained.len(), 5);
///
/// let mut second = pool.join(2, ttl)?;
/// assert!(second.rebalance()?.gained.is_empty(), "none is free yet");
/// let lost = first.rebalance()?.lost;
/// assert_eq!(lost.len(), 2);
/// // The worker stops using them; then they are free.
/// first.let_go();
///
/// let gained = second.rebalance()?.gained;
/// let shards: Vec<_> = gained.iter().map(|(shard, _token)| *shard).collect();
/// assert_eq!(shards, lost);
/// second.leave()?;
/// assert_eq!(first.rebalance()?.gained.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ShardPool {
    locks: LockManager,
    name: Key,
    shards: usize,
    lock_delay: Duration,
}

impl ShardPool {
    /// The pool of that name, with shards numbered from 0.
    #[must_use]
    pub fn new(locks: &LockManager, name: impl ToKey, shards: usize) -> Self {
        Self {
            locks: locks.clone(),
            name: locks.key(name),
            shards,
            lock_delay: Duration::ZERO,
        }
    }

    /// If a member's session expires, nobody is granted its shards for so long after that: time for what it
    /// has under way to come to an end, for resources that check no token. Holds for the members that join
    /// through this handle.
    #[must_use]
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.lock_delay = delay;
        self
    }

    /// The number of shards.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.shards
    }

    /// The key of the lease on that shard, for [`LockManager::validate`].
    #[must_use]
    pub fn key(&self, shard: usize) -> Key {
        self.derived("shard", shard as u64)
    }

    /// Who owns that shard at the moment, with which token and for how long.
    #[must_use]
    pub fn owner(&self, shard: usize) -> Option<Holder> {
        self.locks.holder(self.key(shard))
    }

    /// The workers that are members at the moment, in the order in which they joined. (Of two that joined
    /// at the same time, either may come first.)
    ///
    /// Takes one look-up for each, and 32 at least.
    #[must_use]
    pub fn members(&self) -> Vec<OwnerId> {
        let slots = self.slots();
        slots.iter().map(|(_, _, worker)| *worker).collect()
    }

    /// Makes `worker` a member, whose session lasts for `ttl` from each
    /// [`keep_alive`](Member::keep_alive). It owns no shard before its first
    /// [`rebalance`](Member::rebalance). Never waits.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Held`] if that worker is a member already, or a member by that name has died and its
    /// TTL has not passed; and those of [`LockManager::try_acquire`].
    pub fn join(&self, worker: impl Into<OwnerId>, ttl: Duration) -> Result<Member, AcquireError> {
        let worker = worker.into();
        let session = self.locks.session(worker, ttl)?.into_owned();
        // The session holds them, and gives them back if this fails half-way.
        session
            .try_acquire(self.derived("worker", worker.0))?
            .detach();
        let last = self.slots().last().map(|(token, _, _)| *token);
        let above = last.and_then(FencingToken::next);
        let mut number = 0;
        let slot = loop {
            let slot = session.acquire(self.derived("slot", number));
            let slot = match above {
                Some(above) => slot.at_least(above),
                None => slot,
            };
            match slot.try_now() {
                Ok(slot) => break slot.detach(),
                Err(AcquireError::Held { .. }) => number += 1,
                Err(error) => return Err(error),
            }
            if number % BLOCK == 0 {
                let further = session.acquire(self.derived("further", number / BLOCK));
                further.shared().try_now()?.detach();
            }
        };
        Ok(Member {
            session: session.lock_delay(self.lock_delay),
            pool: self.clone(),
            slot: (slot, number),
            held: BTreeMap::new(),
        })
    }

    /// The slots that are held, in order: by token, then by number.
    ///
    /// They come in blocks. Whoever has a slot beyond the first block shares a lease on each further block
    /// up to its own, which says that this one is to be looked at; so all are seen, whatever holes others
    /// left behind.
    fn slots(&self) -> Vec<(FencingToken, u64, OwnerId)> {
        let mut slots = vec![];
        for block in 0.. {
            for number in block * BLOCK..(block + 1) * BLOCK {
                let holder = self.locks.holder(self.derived("slot", number));
                slots.extend(holder.map(|holder| (holder.token, number, holder.owner)));
            }
            let further = self.derived("further", block + 1);
            if self.locks.holder(further).is_none() {
                break;
            }
        }
        slots.sort_unstable();
        slots
    }

    fn derived(&self, kind: &str, number: u64) -> Key {
        derived(&self.locks, kind, self.name, number)
    }
}

/// What a call of [`Member::rebalance`] has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changes {
    /// The shards that the worker may use from now on, each with its fencing token; in order.
    pub gained: Vec<(usize, FencingToken)>,
    /// The shards that it must stop using now; in order. Those that are its own still are free once it
    /// calls [`Member::let_go`] or `rebalance` again.
    pub lost: Vec<usize>,
}

/// What a member knows of a shard of its own.
#[derive(Clone, Copy, Debug)]
struct Held {
    token: FencingToken,
    /// The worker was told to stop using it.
    surplus: bool,
}

/// A worker's membership of a pool, as a guard: dropping it leaves.
///
/// The guard is a claim, not a proof: a worker that was paused for longer than its TTL is a member no more,
/// and others own its shards. So pass a shard's [`token`](Self::token) along with every write, to a
/// resource that rejects old ones ([`Fenced`](crate::Fenced)).
#[must_use = "dropping a member leaves the pool"]
#[derive(Debug)]
pub struct Member {
    session: Session<'static>,
    pool: ShardPool,
    /// Its place in the order.
    slot: (FencingToken, u64),
    held: BTreeMap<usize, Held>,
}

impl Member {
    /// The worker.
    #[must_use]
    pub fn worker(&self) -> OwnerId {
        self.session.owner()
    }

    /// The shards that the worker may use, each with its fencing token; in order. Those of them that were
    /// lost since the last [`rebalance`](Self::rebalance) are among them, so let the resource check the
    /// token.
    pub fn shards(&self) -> impl Iterator<Item = (usize, FencingToken)> + '_ {
        let used = self.held.iter().filter(|(_, held)| !held.surplus);
        used.map(|(shard, held)| (*shard, held.token))
    }

    /// The fencing token of that shard, if the worker may use it.
    #[must_use]
    pub fn token(&self, shard: usize) -> Option<FencingToken> {
        let held = self.held.get(&shard)?;
        (!held.surplus).then_some(held.token)
    }

    /// Whether the membership is in force.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.session.is_live()
    }

    /// Resolves when the membership is over, and says how: to be awaited, or blocked on.
    pub fn lost(&self) -> Lost {
        self.session.lost()
    }

    /// Makes the membership, and the ownership of all its shards, last for the TTL from now. Call it at
    /// least three times in a TTL. One compare-and-swap, whatever the number of shards.
    ///
    /// # Errors
    ///
    /// [`SessionError::Over`] if the membership is over: stop using all shards, and join again.
    pub fn keep_alive(&self) -> Result<Timestamp, SessionError> {
        self.session.keep_alive()
    }

    /// Comes closer to a fair share: takes shards that are free if it has too few, and tells the worker to
    /// stop using some if it has too many. Never waits, and doesn't keep the membership alive.
    ///
    /// What the last call told the worker to stop using is [let go](Self::let_go) first: so by calling this
    /// the worker says that it has stopped.
    ///
    /// Takes a look-up for each member and each shard of its own, and one for each shard of the pool while
    /// it has too few.
    ///
    /// # Errors
    ///
    /// [`AcquireError::SessionOver`] if the membership is over: stop using all [`shards`](Self::shards), drop
    /// the member, and join again. Those of [`LockManager::try_acquire`] if no shard was gained or lost.
    pub fn rebalance(&mut self) -> Result<Changes, AcquireError> {
        self.let_go();
        if !self.session.is_live() {
            return Err(AcquireError::SessionOver);
        }
        let mut changes = Changes::default();
        let (pool, locks) = (&self.pool, &self.pool.locks);
        // Somebody may have revoked one.
        self.held.retain(|shard, held| {
            let owned = locks.validate(pool.key(*shard), held.token).is_ok();
            if !owned {
                changes.lost.push(*shard);
            }
            owned
        });
        let share = self.share()?;
        if self.held.len() > share {
            changes.lost.extend(self.give_up(self.held.len() - share));
            changes.lost.sort_unstable();
        } else if self.held.len() < share {
            let failed = self.take(share, &mut changes.gained).err();
            changes.gained.sort_unstable();
            if let Some(error) = failed
                && changes == Changes::default()
            {
                return Err(error);
            }
        }
        Ok(changes)
    }

    /// Frees the shards that the last [`rebalance`](Self::rebalance) told the worker to stop using, so that
    /// others need not wait for its next call. By calling this, the worker says that it has stopped.
    pub fn let_go(&mut self) {
        let pool = &self.pool;
        self.held.retain(|shard, held| {
            if held.surplus {
                // If it is not its own any more, so much the better.
                let _ = pool.locks.release(pool.key(*shard), held.token);
            }
            !held.surplus
        });
    }

    /// Leaves the pool: all its shards are free at once. The worker must have stopped using them.
    ///
    /// # Errors
    ///
    /// [`SessionError::Over`] if the membership was over before.
    pub fn leave(self) -> Result<(), SessionError> {
        self.session.close()
    }

    /// How many shards it should have.
    fn share(&self) -> Result<usize, AcquireError> {
        let slots = self.pool.slots();
        let place = slots
            .iter()
            .position(|(token, number, _)| (*token, *number) == self.slot);
        // Its slot is gone only with its session, or if somebody has revoked it.
        let place = place.ok_or(AcquireError::SessionOver)?;
        Ok(self.pool.shards.saturating_sub(place).div_ceil(slots.len()))
    }

    /// Marks so many shards as surplus: those of the least weight.
    fn give_up(&mut self, count: usize) -> Vec<usize> {
        let mut shards: Vec<usize> = self.held.keys().copied().collect();
        shards.sort_by_key(|shard| self.weight(*shard));
        shards.truncate(count);
        for shard in &shards {
            if let Some(held) = self.held.get_mut(shard) {
                held.surplus = true;
            }
        }
        shards
    }

    /// Acquires free shards until it has its share or none is left: those of the greatest weight first.
    fn take(
        &mut self,
        share: usize,
        gained: &mut Vec<(usize, FencingToken)>,
    ) -> Result<(), AcquireError> {
        let mut free: Vec<usize> = (0..self.pool.shards)
            .filter(|shard| self.pool.owner(*shard).is_none())
            .collect();
        free.sort_by_key(|shard| std::cmp::Reverse(self.weight(*shard)));
        for shard in free {
            if self.held.len() >= share {
                break;
            }
            match self.session.try_acquire(self.pool.key(shard)) {
                Ok(lease) => {
                    // The session holds it.
                    let token = lease.detach();
                    let surplus = false;
                    self.held.insert(shard, Held { token, surplus });
                    gained.push((shard, token));
                }
                // Another was faster, or its last owner died a moment ago.
                Err(AcquireError::Held { .. } | AcquireError::Delayed { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// How much the worker is drawn to the shard, the same every time.
    fn weight(&self, shard: usize) -> u64 {
        let worker = mix(self.worker().0.wrapping_add(GAMMA));
        mix(worker ^ shard as u64)
    }
}

/// 2^64 divided by the golden ratio, by which the state of `SplitMix64` goes on.
const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// The finalizer of `SplitMix64` (Steele, Lea and Flood, 2014).
fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ word >> 31
}

#[cfg(all(test, not(any(tenure_loom, tenure_shuttle))))]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn words_are_mixed_as_by_splitmix64() {
        // What the generator of the paper's authors says first with the seed 0.
        let said = [
            0xE220_A839_7B1D_CDAF,
            0x6E78_9E6A_A1B9_65F4,
            0x06C4_5D18_8009_454F,
            0xF88B_B8A8_724C_81EC,
        ];
        for (step, said) in (1..).zip(said) {
            assert_eq!(mix(GAMMA.wrapping_mul(step)), said, "step {step}");
        }
    }

    #[test]
    fn every_worker_weighs_every_shard_differently_and_the_same_every_time() {
        let locks = LockManager::new();
        let pool = ShardPool::new(&locks, "pool", 100);
        let mut seen = HashSet::new();
        for worker in 0..100_u64 {
            let weigh = || {
                let member = pool.join(worker, Duration::from_secs(60));
                let member = member.expect("it has left");
                let weights = (0..100).map(|shard| member.weight(shard));
                weights.collect::<Vec<_>>()
            };
            let weights = weigh();
            assert_eq!(weigh(), weights);
            seen.extend(weights);
        }
        assert_eq!(seen.len(), 100 * 100);
    }
}
