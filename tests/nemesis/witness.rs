//! Sees to it that no two hold a key at once, and that tokens rise.

use std::sync::Mutex;

use tenure::{Lease, LockManager, Timestamp};

#[derive(Debug, Default)]
struct Seen {
    /// The greatest token that was granted.
    token: u64,
    /// Until when the lease of that token lasts at the least; `None` once its holder gives it back.
    until: Option<Timestamp>,
}

/// What is known of some keys.
#[derive(Debug)]
pub(crate) struct Witness(Vec<Mutex<Seen>>);

impl Witness {
    pub(crate) fn new(keys: usize) -> Self {
        Self((0..keys).map(|_| Mutex::default()).collect())
    }

    /// To be asked before an acquisition begins.
    pub(crate) fn before(&self, key: usize) -> u64 {
        self.0[key].lock().unwrap().token
    }

    /// A grant: its token is greater than all that were seen before it began, and whatever lease was seen
    /// is over. (Its holder says when it gives it back, before it does.)
    pub(crate) fn granted(&self, locks: &LockManager, key: usize, before: u64, lease: &Lease<'_>) {
        let mut seen = self.0[key].lock().unwrap();
        let (token, now) = (lease.token().get(), locks.now());
        assert!(token > before, "key {key}: token {token} after {before}");
        if token > seen.token {
            let live = seen.until.filter(|until| *until > now);
            assert_eq!(live, None, "key {key}: granted to two, at {now:?}");
            seen.token = token;
            seen.until = Some(lease.deadline());
        }
    }

    /// A renewal.
    pub(crate) fn renewed(&self, key: usize, lease: &Lease<'_>, until: Timestamp) {
        let mut seen = self.0[key].lock().unwrap();
        if seen.token == lease.token().get() {
            assert!(seen.until.is_some(), "it was given back");
            seen.until = seen.until.max(Some(until));
        }
    }

    /// Gives a lease back.
    pub(crate) fn give_back(&self, key: usize, lease: Lease<'_>) {
        let mut seen = self.0[key].lock().unwrap();
        if seen.token == lease.token().get() {
            seen.until = None;
        }
        drop(seen);
        drop(lease);
    }
}
