//! A `moka` cache whose entries expire at the deadline of their lease, and go when it is released.
//!
//! Every change is a computation on the key's entry, because only those exclude each other: a release
//! that looked at the token and then removed the entry by itself could remove the next lease. In its
//! favour: a hash that is fast for integers, and no capacity, so nothing is counted for evictions.

use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use moka::Expiry;
use moka::ops::compute::{CompResult, Op};
use moka::sync::Cache;

use super::{Handle, HeldBy, LeaseTable, Precise, Record, Tokens};

/// One entry for each lease that is out.
pub(crate) struct Moka {
    entries: Cache<u64, Record<Instant>, RandomState>,
    tokens: Tokens,
}

/// Entries expire at the deadline that stands in them.
struct AtDeadline;

impl Expiry<u64, Record<Instant>> for AtDeadline {
    fn expire_after_create(
        &self,
        _key: &u64,
        record: &Record<Instant>,
        created_at: Instant,
    ) -> Option<Duration> {
        Some(record.deadline.saturating_duration_since(created_at))
    }

    fn expire_after_update(
        &self,
        _key: &u64,
        record: &Record<Instant>,
        updated_at: Instant,
        _until_expiry: Option<Duration>,
    ) -> Option<Duration> {
        Some(record.deadline.saturating_duration_since(updated_at))
    }
}

impl Moka {
    /// An empty cache.
    pub(crate) fn new() -> Self {
        Self {
            entries: Cache::builder()
                .expire_after(AtDeadline)
                .build_with_hasher(RandomState::default()),
            tokens: Tokens::default(),
        }
    }
}

impl LeaseTable for Moka {
    type Lease<'table> = Handle;
    type Refusal = HeldBy;

    /// Ten million would take a minute, and several gigabytes.
    const MOST_HELD: u64 = 1_000_000;

    fn acquire(&self, key: u64, owner: u64, ttl: Duration) -> Result<Handle, HeldBy> {
        let now = Instant::now();
        let mut outcome = Err(None);
        self.entries.entry(key).and_compute_with(|entry| {
            if let Some(entry) = entry
                && let Some(held) = entry.value().refusal::<Precise>(now)
            {
                outcome = Err(Some(held));
                return Op::Nop;
            }
            let token = self.tokens.next();
            outcome = Ok(Handle { key, token });
            Op::Put(Record {
                token,
                owner,
                deadline: now + ttl,
            })
        });
        outcome.map_err(|held| held.expect("the computation has run"))
    }

    fn token(lease: &Handle) -> u64 {
        lease.token
    }

    fn renew(&self, lease: &Handle, ttl: Duration) -> bool {
        let now = Instant::now();
        let mut live = false;
        self.entries.entry(lease.key).and_compute_with(|entry| {
            let Some(entry) = entry else { return Op::Nop };
            let mut record = *entry.value();
            let before = record.deadline;
            live = record.renew::<Precise>(lease.token, now, ttl);
            if record.deadline == before {
                Op::Nop
            } else {
                Op::Put(record)
            }
        });
        live
    }

    fn renew_by_key(&self, key: u64, token: u64, ttl: Duration) -> bool {
        LeaseTable::renew(self, &Handle { key, token }, ttl)
    }

    fn release(&self, lease: Handle) -> bool {
        let entry = self.entries.entry(lease.key);
        let result = entry.and_compute_with(|entry| match entry {
            Some(entry) if entry.value().token == lease.token => Op::Remove,
            _ => Op::Nop,
        });
        matches!(result, CompResult::Removed(_))
    }

    fn keep(&self, _lease: Handle) {}

    /// What the cache does now and then on its own, in portions.
    fn sweep(&self) -> u64 {
        let first = self.entries.entry_count();
        let mut before = first;
        loop {
            self.entries.run_pending_tasks();
            let after = self.entries.entry_count();
            if after >= before {
                return first.saturating_sub(after);
            }
            before = after;
        }
    }
}
