//! A `dashmap` whose entries stay when their lease ends: the token counter lives in the entry, so
//! it goes on rising, and the memory of a key is never given back.
//!
//! Tuned: a hash that is fast for integers, and a number of shards that was tried out. The stock one is
//! what comes of an afternoon: `DashMap::new()`, with its `SipHash` and four shards for each processor.

use std::collections::hash_map::RandomState as SipHash;
use std::hash::BuildHasher;
use std::time::Duration;

use dashmap::DashMap;
use foldhash::fast::RandomState;

use super::{Handle, HeldBy, LeaseTable, Record, SHARDS, Time};

/// One entry for each key ever seen.
pub(crate) struct Kept<T: Time, S = RandomState> {
    time: T,
    entries: DashMap<u64, Record<T::Point>, S>,
}

impl<T: Time> Kept<T> {
    /// An empty table.
    pub(crate) fn new() -> Self {
        Self {
            time: T::new(),
            entries: DashMap::with_hasher_and_shard_amount(RandomState::default(), SHARDS),
        }
    }
}

impl<T: Time> Kept<T, SipHash> {
    /// An empty table with everything by default.
    pub(crate) fn stock() -> Self {
        Self {
            time: T::new(),
            entries: DashMap::new(),
        }
    }
}

impl<T: Time, S> Kept<T, S> {
    #[inline(always)]
    fn grant(
        record: &mut Record<T::Point>,
        handle: (u64, u64),
        now: T::Point,
        ttl: Duration,
    ) -> Result<Handle, HeldBy> {
        if let Some(held) = record.refusal::<T>(now) {
            return Err(held);
        }
        let (key, owner) = handle;
        record.token += 1;
        record.owner = owner;
        record.deadline = T::after(now, ttl);
        let token = record.token;
        Ok(Handle { key, token })
    }
}

impl<T: Time, S: BuildHasher + Clone + Send + Sync + 'static> LeaseTable for Kept<T, S> {
    type Lease<'table>
        = Handle
    where
        Self: 'table;
    type Refusal = HeldBy;

    const KEEPS_ENTRIES: bool = true;

    #[inline(always)]
    fn acquire(&self, key: u64, owner: u64, ttl: Duration) -> Result<Handle, HeldBy> {
        let now = self.time.now();
        // The entry is there except the first time, and `get_mut` is the shorter path to it.
        if let Some(mut record) = self.entries.get_mut(&key) {
            return Self::grant(&mut record, (key, owner), now, ttl);
        }
        let mut record = self.entries.entry(key).or_insert_with(|| Record {
            token: 0,
            owner,
            deadline: self.time.past(),
        });
        Self::grant(&mut record, (key, owner), now, ttl)
    }

    #[inline(always)]
    fn token(lease: &Handle) -> u64 {
        lease.token
    }

    #[inline(always)]
    fn renew(&self, lease: &Handle, ttl: Duration) -> bool {
        let now = self.time.now();
        self.entries
            .get_mut(&lease.key)
            .is_some_and(|mut record| record.renew::<T>(lease.token, now, ttl))
    }

    #[inline(always)]
    fn renew_by_key(&self, key: u64, token: u64, ttl: Duration) -> bool {
        LeaseTable::renew(self, &Handle { key, token }, ttl)
    }

    #[inline(always)]
    fn release(&self, lease: Handle) -> bool {
        let past = self.time.past();
        self.entries.get_mut(&lease.key).is_some_and(|mut record| {
            let holds = record.token == lease.token && record.deadline > past;
            if holds {
                record.deadline = past;
            }
            holds
        })
    }

    fn keep(&self, _lease: Handle) {}

    fn sweep(&self) -> u64 {
        let (now, past) = (self.time.now(), self.time.past());
        let mut ended = 0;
        for mut record in self.entries.iter_mut() {
            if record.deadline > past && record.deadline <= now {
                record.deadline = past;
                ended += 1;
            }
        }
        ended
    }
}
