//! `lockable::LockPool`: a mutex for each key that is locked, and a guard that unlocks it.
//!
//! It answers only whether the key is locked: there is no token, no owner and no deadline, so nothing can
//! be renewed and nothing expires, and no clock is read. All of this is in its favour. A lease that stays
//! out is a guard that is forgotten; what the guard itself takes, its holder would have to keep.

use std::mem;
use std::time::Duration;

use lockable::LockPool;

use super::LeaseTable;

/// One mutex for each key that is locked.
pub(crate) struct Lockable(LockPool<u64>);

impl Lockable {
    /// An empty pool.
    pub(crate) fn new() -> Self {
        Self(LockPool::new())
    }
}

/// Somebody has locked the key: the pool doesn't know who.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Locked;

impl LeaseTable for Lockable {
    type Lease<'table> = <LockPool<u64> as lockable::Lockable<u64, ()>>::Guard<'table>;
    type Refusal = Locked;

    const CAN_RENEW: bool = false;
    const CAN_EXPIRE: bool = false;

    #[inline(always)]
    fn acquire(&self, key: u64, _owner: u64, _ttl: Duration) -> Result<Self::Lease<'_>, Locked> {
        self.0.try_lock(key).ok_or(Locked)
    }

    /// None.
    #[inline(always)]
    fn token(_lease: &Self::Lease<'_>) -> u64 {
        0
    }

    fn renew(&self, _lease: &Self::Lease<'_>, _ttl: Duration) -> bool {
        false
    }

    fn renew_by_key(&self, _key: u64, _token: u64, _ttl: Duration) -> bool {
        false
    }

    #[inline(always)]
    fn release(&self, lease: Self::Lease<'_>) -> bool {
        drop(lease);
        true
    }

    fn keep(&self, lease: Self::Lease<'_>) {
        mem::forget(lease);
    }

    fn sweep(&self) -> u64 {
        0
    }
}
