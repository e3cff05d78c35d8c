//! scc
use std::time::Duration;

use foldhash::fast::RandomState;
use scc::HashMap;
use scc::hash_map::Entry;

use super::{Handle, HeldBy, LeaseTable, Record, Time, Tokens};

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
            entries: HashMap::with_hasher(RandomState::default()),
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

/// One entry for each key.
pub(crate) struct SccKept<T: Time> {
    time: T,
    entries: HashMap<u64, Record<T::Point>, RandomState>,
}

impl<T: Time> SccKept<T> {
    /// An empty table.
    pub(crate) fn new() -> Self {
        Self {
            time: T::new(),
            entries: HashMap::with_hasher(RandomState::default()),
        }
    }
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

impl<T: Time> LeaseTable for SccKept<T> {
    type Lease<'table>
        = Handle
    where
        Self: 'table;
    type Refusal = HeldBy;
    const KEEPS_ENTRIES: bool = true;

    #[inline(always)]
    fn acquire(&self, key: u64, owner: u64, ttl: Duration) -> Result<Handle, HeldBy> {
        let now = self.time.now();
        if let Some(r) = self.entries.update_sync(&key, |_, record| {
            Self::grant(record, (key, owner), now, ttl)
        }) {
            return r;
        }
        let mut record = self.entries.entry_sync(key).or_insert_with(|| Record {
            token: 0,
            owner,
            deadline: self.time.past(),
        });
        Self::grant(record.get_mut(), (key, owner), now, ttl)
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
        let past = self.time.past();
        self.entries
            .update_sync(&lease.key, |_, record| {
                let holds = record.token == lease.token && record.deadline > past;
                if holds {
                    record.deadline = past;
                }
                holds
            })
            .unwrap_or(false)
    }

    fn keep(&self, _lease: Handle) {}

    fn sweep(&self) -> u64 {
        let now = self.time.now();
        let past = self.time.past();
        let mut ended = 0;
        self.entries.retain_sync(|_, record| {
            if record.deadline > past && record.deadline <= now {
                record.deadline = past;
                ended += 1;
            }
            true
        });
        ended
    }
}
