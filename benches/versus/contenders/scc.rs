//! An `scc::HashMap`, which locks a bucket at a time. Entries go when their lease is released.
//!
//! Measured once: with entries that stay, a pair cost about the same in a table of a thousand keys, and
//! twelve times as much in one of a million, all of which it then has to reach. In its favour: it never
//! shrinks below a few thousand entries. A map without such a least capacity shrinks and grows again with
//! every few pairs while few leases are out, which is five times as slow.

use std::time::Duration;

use foldhash::fast::RandomState;
use scc::HashMap;
use scc::hash_map::Entry;

use super::{Handle, HeldBy, LeaseTable, Record, Time, Tokens};

/// Entries that it always has room for.
const CAPACITY: usize = 4096;

/// One entry for each lease that is out.
pub(crate) struct Scc<T: Time> {
    time: T,
    entries: HashMap<u64, Record<T::Point>, RandomState>,
    tokens: Tokens,
}

impl<T: Time> Scc<T> {
    /// An empty table.
    pub(crate) fn new() -> Self {
        Self {
            time: T::new(),
            entries: HashMap::with_capacity_and_hasher(CAPACITY, RandomState::default()),
            tokens: Tokens::default(),
        }
    }
}

impl<T: Time> LeaseTable for Scc<T> {
    type Lease<'table>
        = Handle
    where
        Self: 'table;
    type Refusal = HeldBy;

    #[inline(always)]
    fn acquire(&self, key: u64, owner: u64, ttl: Duration) -> Result<Handle, HeldBy> {
        let now = self.time.now();
        let granted = |token| Record {
            token,
            owner,
            deadline: T::after(now, ttl),
        };
        let token = match self.entries.entry_sync(key) {
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
                entry.insert_entry(granted(token));
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
        let renewed = self.entries.update_sync(&lease.key, |_, record| {
            record.renew::<T>(lease.token, now, ttl)
        });
        renewed.unwrap_or(false)
    }

    #[inline(always)]
    fn renew_by_key(&self, key: u64, token: u64, ttl: Duration) -> bool {
        LeaseTable::renew(self, &Handle { key, token }, ttl)
    }

    #[inline(always)]
    fn release(&self, lease: Handle) -> bool {
        self.entries
            .remove_if_sync(&lease.key, |record| record.token == lease.token)
            .is_some()
    }

    fn keep(&self, _lease: Handle) {}

    fn sweep(&self) -> u64 {
        let now = self.time.now();
        let mut ended = 0;
        self.entries.retain_sync(|_, record| {
            let live = record.deadline > now;
            ended += u64::from(!live);
            live
        });
        ended
    }
}
