//! Mutexes over hash tables, one for each shard: no map that others wrote, only what it would be made of.
//! Entries go when their lease is released.
//!
//! In its favour: a key is hashed once, for the shard and for the place in it; a shard's own counter gives
//! the tokens, under the lock that is held anyway; and a mutex is cheaper than the reader-writer lock of
//! `dashmap`, which nothing here needs.

use std::hash::BuildHasher;
use std::time::Duration;

use crossbeam_utils::CachePadded;
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use parking_lot::{Mutex, MutexGuard};

use super::{Handle, HeldBy, LeaseTable, Record, Time};

/// A mutex is smaller than a shard of `dashmap`, so there can be more of them.
const SHARDS: usize = 64;

/// One entry for each lease that is out.
pub(crate) struct Sharded<T: Time> {
    time: T,
    hasher: RandomState,
    shards: Box<[Padded<T::Point>; SHARDS]>,
}

type Padded<P> = CachePadded<Mutex<Shard<P>>>;

/// The leases of some keys.
struct Shard<P> {
    entries: HashTable<(u64, Record<P>)>,
    last_token: u64,
}

impl<P> Default for Shard<P> {
    fn default() -> Self {
        Self {
            entries: HashTable::new(),
            last_token: 0,
        }
    }
}

impl<T: Time> Sharded<T> {
    /// An empty table.
    pub(crate) fn new() -> Self {
        Self {
            time: T::new(),
            hasher: RandomState::default(),
            shards: Box::new(std::array::from_fn(|_| CachePadded::default())),
        }
    }

    /// The hash of the key, and its shard, locked.
    #[inline(always)]
    fn lock(&self, key: u64) -> (u64, MutexGuard<'_, Shard<T::Point>>) {
        let hash = self.hasher.hash_one(key);
        // `HashTable` takes the lowest bits for the place and the highest for the tag.
        let shard = (hash >> 32) as usize % SHARDS;
        (hash, self.shards[shard].lock())
    }
}

impl<T: Time> LeaseTable for Sharded<T> {
    type Lease<'table>
        = Handle
    where
        Self: 'table;
    type Refusal = HeldBy;

    #[inline(always)]
    fn acquire(&self, key: u64, owner: u64, ttl: Duration) -> Result<Handle, HeldBy> {
        let now = self.time.now();
        let (hash, mut shard) = self.lock(key);
        let shard = &mut *shard;
        let hash_of = |(key, _): &(u64, _)| self.hasher.hash_one(key);
        let entry = shard.entries.entry(hash, |entry| entry.0 == key, hash_of);
        if let Entry::Occupied(entry) = &entry
            && let Some(held) = entry.get().1.refusal::<T>(now)
        {
            return Err(held);
        }
        shard.last_token += 1;
        let token = shard.last_token;
        let deadline = T::after(now, ttl);
        let record = Record {
            token,
            owner,
            deadline,
        };
        entry.insert((key, record));
        Ok(Handle { key, token })
    }

    #[inline(always)]
    fn token(lease: &Handle) -> u64 {
        lease.token
    }

    #[inline(always)]
    fn renew(&self, lease: &Handle, ttl: Duration) -> bool {
        let now = self.time.now();
        let (hash, mut shard) = self.lock(lease.key);
        let entry = shard.entries.find_mut(hash, |entry| entry.0 == lease.key);
        entry.is_some_and(|(_, record)| record.renew::<T>(lease.token, now, ttl))
    }

    #[inline(always)]
    fn renew_by_key(&self, key: u64, token: u64, ttl: Duration) -> bool {
        LeaseTable::renew(self, &Handle { key, token }, ttl)
    }

    #[inline(always)]
    fn release(&self, lease: Handle) -> bool {
        let (hash, mut shard) = self.lock(lease.key);
        let entry = shard.entries.find_entry(hash, |entry| entry.0 == lease.key);
        match entry {
            Ok(entry) if entry.get().1.token == lease.token => {
                entry.remove();
                true
            }
            _ => false,
        }
    }

    fn keep(&self, _lease: Handle) {}

    fn sweep(&self) -> u64 {
        let now = self.time.now();
        let mut ended = 0;
        for shard in self.shards.iter() {
            shard.lock().entries.retain(|(_, record)| {
                let live = record.deadline > now;
                ended += u64::from(!live);
                live
            });
        }
        ended
    }
}
