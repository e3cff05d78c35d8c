//! What `tenure` is measured against: the lease table that people write by hand, on several maps and with
//! either clock, and products that can be used as one.
//!
//! Every hand-rolled contender answers the same questions on every call. An acquire asks whether the key is
//! held and whether that lease is past its deadline; it records token, owner and deadline, and a
//! refusal says who holds the key and for how long. A release checks the token. Two differences
//! are left in, both in favour of the hand-rolled tables: their keys are plain `u64`s, where
//! `tenure` keeps 128 bits; and their release does not look at the clock (so it can't say that the
//! lease had expired), which spares them one of the two readings that `tenure` takes per pair.
//!
//! Products answer what they can: each file says what that is, and in whose favour it differs. They are
//! left out of the rows that they have no answer to.

mod field;
mod kept;
mod lockable;
mod moka;
mod papaya;
mod redis;
mod removed;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod scc;
mod sharded;
mod time;

use std::collections::hash_map::RandomState as SipHash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use tenure::{AcquireError, FencingToken, Lease, LockManager, OwnerId};
use tenure_benches::measure::Kind;

pub(crate) use field::{Condition, Held, Visit, field, granted};
pub(crate) use kept::Kept;
pub(crate) use lockable::Lockable;
pub(crate) use moka::Moka;
pub(crate) use papaya::Papaya;
pub(crate) use redis::{Pipelined, Redis};
pub(crate) use removed::Removed;
#[cfg(feature = "rocksdb")]
pub(crate) use rocksdb::RocksDb;
pub(crate) use scc::Scc;
pub(crate) use sharded::Sharded;
pub(crate) use time::{Coarse, Precise, Time};

/// The crate.
pub(crate) const TENURE: &str = "tenure";

/// Shows `visit` each contender, and how an empty one is made.
pub(crate) fn each(visit: &mut impl Visit) {
    visit.table(TENURE, Kind::Tenure, LockManager::new);
    visit.table("dashmap kept, coarse", Kind::Coarse, Kept::<Coarse>::new);
    visit.table(
        "dashmap removed, coarse",
        Kind::Coarse,
        Removed::<Coarse>::new,
    );
    visit.table(
        "sharded mutex, coarse",
        Kind::Coarse,
        Sharded::<Coarse>::new,
    );
    visit.table("papaya, coarse", Kind::Coarse, Papaya::<Coarse>::new);
    visit.table("scc, coarse", Kind::Coarse, Scc::<Coarse>::new);
    visit.table("dashmap kept", Kind::Instant, Kept::<Precise>::new);
    visit.table("dashmap removed", Kind::Instant, Removed::<Precise>::new);
    visit.table(
        "dashmap, stock",
        Kind::Instant,
        Kept::<Precise, SipHash>::stock,
    );
    visit.table("sharded mutex", Kind::Instant, Sharded::<Precise>::new);
    visit.table("papaya", Kind::Instant, Papaya::<Precise>::new);
    visit.table("scc", Kind::Instant, Scc::<Precise>::new);
    visit.table("lockable", Kind::Product, Lockable::new);
    visit.table("moka", Kind::Product, Moka::new);
    #[cfg(feature = "rocksdb")]
    visit.table("rocksdb", Kind::Product, RocksDb::new);
    visit.server("redis", Kind::Product, Redis::connected);
    visit.server("redis, pipelined", Kind::Product, Pipelined::connected);
}

/// The number of shards of the hand-rolled tables.
///
/// `dashmap`'s default is four for each core. On one thread 8 to 32 are alike, 128 cost up to a
/// tenth more and 512 up to a third; with 32, two threads rarely want the same one.
const SHARDS: usize = 32;

/// A table of leases on `u64` keys.
pub(crate) trait LeaseTable: Send + Sync + 'static {
    /// Whether a key that was held once leaves an entry behind.
    const KEEPS_ENTRIES: bool = false;

    /// Whether a lease can be renewed.
    const CAN_RENEW: bool = true;

    /// Whether leases end at their deadline, and `sweep` finds those that are due.
    const CAN_EXPIRE: bool = true;

    /// How many leases it can have out, or have out soon enough to wait for.
    const MOST_HELD: u64 = u64::MAX;

    /// How many keys `pairs` is to be given at once. If it is more than one, pairs of single calls are not
    /// measured.
    const PAIRS_AT_ONCE: usize = 1;

    /// What a holder keeps in its hands.
    type Lease<'table>
    where
        Self: 'table;
    /// What a refused caller is told.
    type Refusal;

    /// Grants `key` to `owner` unless a live lease holds it.
    fn acquire(
        &self,
        key: u64,
        owner: u64,
        ttl: Duration,
    ) -> Result<Self::Lease<'_>, Self::Refusal>;

    /// Acquires and releases those keys, and says for how many both worked.
    fn pairs(&self, keys: &[u64], owner: u64, ttl: Duration) -> u64 {
        let pair = |key: &u64| {
            let granted = self.acquire(*key, owner, ttl);
            u64::from(granted.is_ok_and(|lease| self.release(lease)))
        };
        keys.iter().map(pair).sum()
    }

    /// The fencing token of `lease`.
    fn token(lease: &Self::Lease<'_>) -> u64;

    /// Moves the deadline to `ttl` from now, unless it is later already; says whether it could.
    fn renew(&self, lease: &Self::Lease<'_>, ttl: Duration) -> bool;

    /// The same by key and token.
    fn renew_by_key(&self, key: u64, token: u64, ttl: Duration) -> bool;

    /// Gives the key back; says whether `lease` was what held it.
    fn release(&self, lease: Self::Lease<'_>) -> bool;

    /// Leaves the key held after `lease` is gone.
    fn keep(&self, lease: Self::Lease<'_>);

    /// Ends the leases whose deadline has passed, and says how many those were.
    fn sweep(&self) -> u64;

    /// How many leases have ended because their time was over, if the table sees to that itself: then
    /// nobody has to sweep it.
    fn expired_by_itself(&self) -> Option<u64> {
        None
    }
}

impl LeaseTable for LockManager {
    type Lease<'table> = Lease<'table>;
    type Refusal = AcquireError;

    #[inline(always)]
    fn acquire(&self, key: u64, owner: u64, ttl: Duration) -> Result<Lease<'_>, AcquireError> {
        self.try_acquire(key, OwnerId(owner), ttl)
    }

    #[inline(always)]
    fn token(lease: &Lease<'_>) -> u64 {
        lease.token().get()
    }

    #[inline(always)]
    fn renew(&self, lease: &Lease<'_>, ttl: Duration) -> bool {
        lease.renew(ttl).is_ok()
    }

    #[inline(always)]
    fn release(&self, lease: Lease<'_>) -> bool {
        lease.release().is_ok()
    }

    #[inline(always)]
    fn renew_by_key(&self, key: u64, token: u64, ttl: Duration) -> bool {
        let token = FencingToken::new(token);
        token.is_ok_and(|token| self.renew(key, token, ttl).is_ok())
    }

    fn keep(&self, lease: Lease<'_>) {
        let _token: FencingToken = lease.detach();
    }

    /// The driver does the same in the background.
    fn sweep(&self) -> u64 {
        self.advance() as u64
    }

    fn expired_by_itself(&self) -> Option<u64> {
        Some(self.stats().expired)
    }
}

/// What the holder of a lease of a hand-rolled table keeps: it renews and releases by key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handle {
    key: u64,
    token: u64,
}

/// What a hand-rolled table tells a caller that it refuses.
#[expect(dead_code, reason = "the benchmark only needs it to be computed")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldBy {
    owner: u64,
    token: u64,
    remaining: Duration,
}

/// One counter of tokens for all keys, alone on its cache lines.
#[derive(Debug, Default)]
struct Tokens(CachePadded<AtomicU64>);

impl Tokens {
    /// The next token. Called with the key locked, so that tokens rise for each key.
    #[inline(always)]
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// One entry of a hand-rolled table.
#[derive(Clone, Copy, Debug)]
struct Record<P> {
    token: u64,
    owner: u64,
    deadline: P,
}

impl<P: Copy + Ord> Record<P> {
    /// The refusal that this entry means at `now`, if it is a live lease.
    #[inline(always)]
    fn refusal<T: Time<Point = P>>(&self, now: P) -> Option<HeldBy> {
        (self.deadline > now).then(|| HeldBy {
            owner: self.owner,
            token: self.token,
            remaining: T::between(now, self.deadline),
        })
    }

    /// Moves the deadline if the lease that `token` names is live at `now`.
    #[inline(always)]
    fn renew<T: Time<Point = P>>(&mut self, token: u64, now: P, ttl: Duration) -> bool {
        let live = self.token == token && self.deadline > now;
        if live {
            self.deadline = self.deadline.max(T::after(now, ttl));
        }
        live
    }
}
