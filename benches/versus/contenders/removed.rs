//! A `dashmap` whose entries go when their lease is released: memory follows the leases that are
//! out, and one counter for all keys keeps the tokens rising.

use std::time::Duration;

use dashmap::{DashMap, Entry};
use foldhash::fast::RandomState;

use super::{Handle, HeldBy, LeaseTable, Record, SHARDS, Time, Tokens};

/// One entry for each lease that is out.
pub(crate) struct Removed<T: Time> {
    time: T,
    entries: DashMap<u64, Record<T::Point>, RandomState>,
    tokens: Tokens,
}

impl<T: Time> Removed<T> {
    /// An empty table.
    pub(crate) fn new() -> Self {
        Self {
            time: T::new(),
            entries: DashMap::with_hasher_and_shard_amount(RandomState::default(), SHARDS),
            tokens: Tokens::default(),
        }
    }
}

impl<T: Time> LeaseTable for Removed<T> {
    type Lease<'table>
        = Handle
    where
        T: 'table;
    type Refusal = HeldBy;

    #[inline(always)]
    fn acquire(&self, key: u64, owner: u64, ttl: Duration) -> Result<Handle, HeldBy> {
        let now = self.time.now();
        let granted = |token| Record {
            token,
            owner,
            deadline: T::after(now, ttl),
        };
        let token = match self.entries.entry(key) {
            Entry::Occupied(mut entry) => {
                if let Some(held) = entry.get().refusal::<T>(now) {
                    return Err(held);
                }
                let token = self.tokens.next();
                entry.insert(granted(token));
                token
            }
            Entry::Vacant(entry) => {
                let token = self.tokens.next();
                entry.insert(granted(token));
                token
            }
        };
        Ok(Handle { key, token })
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
        self.entries
            .remove_if(&lease.key, |_, record| record.token == lease.token)
            .is_some()
    }

    fn keep(&self, _lease: Handle) {}

    fn sweep(&self) -> u64 {
        let now = self.time.now();
        let mut ended = 0;
        self.entries.retain(|_, record| {
            let live = record.deadline > now;
            ended += u64::from(!live);
            live
        });
        ended
    }
}
