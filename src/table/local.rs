//! What a thread keeps of a table: free cells, the array it last saw, its share of the counters.
//!
//! Nothing here is shared except the counters, which only their thread writes. A `Local` starts at a
//! line of its own: free lists of two threads on one line cost a third of a pair.

use super::array::Array;
use crate::sync::{Arc, AtomicI64, AtomicU64, Ordering};
use crate::timeline::Converted;

/// Free cells that a thread keeps at most.
pub(crate) const KEPT: usize = 64;
/// Cells that travel between a thread and the table at once.
pub(crate) const BATCH: usize = 32;

/// A small stack of free cells.
#[derive(Debug)]
pub(crate) struct FreeCells {
    len: usize,
    cells: [u32; KEPT],
}

impl FreeCells {
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<u32> {
        self.len = self.len.checked_sub(1)?;
        Some(self.cells[self.len & (KEPT - 1)])
    }

    /// The cell that [`pop`](Self::pop) would take.
    #[inline]
    pub(crate) fn peek(&self) -> Option<u32> {
        let top = self.len.checked_sub(1)?;
        Some(self.cells[top & (KEPT - 1)])
    }

    /// Takes the cell that was peeked.
    #[inline]
    pub(crate) fn drop_peeked(&mut self) {
        self.len -= 1;
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.len >= KEPT
    }

    /// False if the stack is full: spill first.
    #[inline]
    pub(crate) fn push(&mut self, cell: u32) -> bool {
        let room = self.len < KEPT;
        if room {
            self.cells[self.len] = cell;
            self.len += 1;
        }
        room
    }

    pub(crate) fn extend(&mut self, cells: impl Iterator<Item = u32>) {
        for cell in cells {
            let pushed = self.push(cell);
            debug_assert!(pushed, "a refill comes to an empty list");
        }
    }

    /// The oldest cells, at most a batch: the youngest are warm.
    pub(crate) fn take_oldest(&mut self, into: &mut [u32; BATCH]) -> usize {
        let count = self.len.min(BATCH);
        into[..count].copy_from_slice(&self.cells[..count]);
        self.cells.copy_within(count..self.len, 0);
        self.len -= count;
        count
    }
}

/// One thread's share of what the table counts. Only that thread writes it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    /// Grants less reported ends.
    pub(crate) leases: AtomicI64,
    pub(crate) expired: AtomicU64,
    pub(crate) revoked: AtomicU64,
    /// The longest time from a deadline to the report of its expiry, in ticks.
    pub(crate) lag: AtomicU64,
}

impl Counters {
    #[inline]
    pub(crate) fn add_lease(&self, by: i64) {
        let leases = self.leases.load(Ordering::Relaxed);
        self.leases.store(leases + by, Ordering::Relaxed);
    }

    pub(crate) fn add_expired(&self, lag: u64) {
        self.expired
            .store(self.expired.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.lag
            .store(self.lag.load(Ordering::Relaxed).max(lag), Ordering::Relaxed);
    }

    pub(crate) fn add_revoked(&self) {
        self.revoked
            .store(self.revoked.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// A cell published by a copy, to be registered in the wheel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved {
    pub(crate) cell: u32,
    pub(crate) deadline: u64,
}

/// A thread's part of a table; see the head of this file.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Local {
    pub(crate) free: FreeCells,
    /// The newest array this thread has met; a later one may exist.
    pub(crate) array: Arc<Array>,
    pub(crate) counters: Arc<Counters>,
    /// The thread's last conversions of time.
    pub(crate) converted: Converted,
    /// The clock's tick, as read at the start of the operation under way.
    pub(crate) now: u64,
    /// Copies that this operation published and the wheel has yet to hear of.
    pub(crate) moved: Vec<Moved>,
    /// The leases of `counters` that a limit on their number knows of.
    pub(crate) accounted: i64,
    /// Cells went back to the table: it may want to shrink.
    pub(crate) spilled: bool,
    /// This thread has started a resize.
    pub(crate) resized: bool,
}

impl Local {
    /// Whether the operation under way left something to do after it.
    #[inline]
    pub(crate) fn has_chores(&self) -> bool {
        self.spilled | self.resized | !self.moved.is_empty()
    }

    pub(crate) fn new(array: Arc<Array>, counters: Arc<Counters>) -> Self {
        Self {
            free: FreeCells {
                len: 0,
                cells: [0; KEPT],
            },
            array,
            counters,
            converted: Converted::default(),
            now: 0,
            moved: Vec::new(),
            accounted: 0,
            spilled: false,
            resized: false,
        }
    }
}
