//! Keys that never come again.

use std::hint::black_box;

use crate::contenders::LeaseTable;
use crate::tasks::TTL;

/// Who holds them.
const HOLDER: u64 = 1;

/// A table with a number of leases out, in the order of their grants.
pub(crate) struct Churn<'table, T: LeaseTable> {
    table: &'table T,
    /// A ring.
    leases: Vec<Option<T::Lease<'table>>>,
    oldest: usize,
    next_key: u64,
}

impl<'table, T: LeaseTable> Churn<'table, T> {
    /// With room for so many leases, and none of them out: memory for what their holders keep is there.
    pub(crate) fn new(table: &'table T, leases: u64) -> Self {
        Self {
            table,
            leases: (0..leases).map(|_| None).collect(),
            oldest: 0,
            next_key: 1,
        }
    }

    /// Gets all of them out.
    pub(crate) fn fill(&mut self) {
        for _ in 0..self.leases.len() {
            self.next();
        }
    }

    /// A new key is granted, and the oldest lease released.
    #[inline(always)]
    pub(crate) fn next(&mut self) {
        let granted = self.table.acquire(black_box(self.next_key), HOLDER, TTL);
        let Ok(lease) = granted else {
            panic!("key {} was refused, though it is new", self.next_key)
        };
        black_box(T::token(&lease));
        if let Some(oldest) = self.leases[self.oldest].replace(lease) {
            // False if it has expired, which is no fault of a slow contender's.
            black_box(self.table.release(oldest));
        }
        self.next_key += 1;
        self.oldest += 1;
        if self.oldest == self.leases.len() {
            self.oldest = 0;
        }
    }
}
