//! Where free cells go between threads: a stack of batches.
//!
//! A batch is a chain of free cells through their `next` words; its first cell names the batch below
//! it in its token word. The head is `[tag : 32 | first cell : 32]`, and the tag rises at each pop
//! and push: a popper that slept while the batch below changed fails its CAS (a repeat needs 2^32
//! batches in that sleep). R. K. Treiber, "Systems Programming: Coping with Parallelism", 1986.
//!
//! Free cells are `DEAD`, and whoever gives one back has stored that before. Their registration in
//! the wheel stays: it is the next life's.

use super::Table;
use super::cell::DEAD;
use super::layout::Layout;
use super::local::{BATCH, Local};
use crate::failpoint::failpoint;
use crate::owed::Owed;
use crate::sync::{MODELLED, Ordering};

/// Fresh cells taken from the slab at once.
const FRESH: u32 = if MODELLED { 4 } else { 16 };

impl<L: Layout> Table<L> {
    /// A free cell for this thread alone, from the table's store; `None` if none can be had.
    #[cold]
    pub(crate) fn refill(&self, local: &mut Local) -> Option<u32> {
        let Some(first) = self.pop_batch() else {
            let fresh = self.slab.take_fresh(FRESH);
            self.handed.fetch_add(fresh.len(), Ordering::Relaxed);
            local.free.extend(fresh.rev());
            return local.free.pop();
        };
        let mut table = self;
        let taken = Owed::new(&mut table, |table| table.push_batch(first));
        failpoint!("cells/taken");
        taken.waive();
        let mut count = 1;
        let mut at = self.slab.cell(first).next();
        while at != 0 {
            local.free.push(at);
            at = self.slab.cell(at).next();
            count += 1;
        }
        self.handed.fetch_add(count, Ordering::Relaxed);
        Some(first)
    }

    /// Gives a cell back that no chain links and no one else owns.
    #[inline]
    pub(crate) fn give_cell(&self, local: &mut Local, cell: u32) {
        debug_assert_eq!(self.slab.cell(cell).state::<L>().tag(), DEAD);
        if !local.free.push(cell) {
            self.spill(local);
            local.free.push(cell);
            local.spilled = true;
        }
    }

    /// Before a thread that may have died of a panic gives its cells back: the one that it was to grant next
    /// may be filled in.
    pub(crate) fn unfill_next(&self, local: &Local) {
        if let Some(next) = local.free.peek() {
            self.unfill(next);
        }
    }

    /// Moves a batch of the thread's free cells to the table; false if there was none.
    #[cold]
    pub(crate) fn spill(&self, local: &mut Local) -> bool {
        let mut cells = [0; BATCH];
        let count = local.free.take_oldest(&mut cells);
        let cells = &cells[..count];
        let Some(&first) = cells.first() else {
            return false;
        };
        self.handed.fetch_sub(count, Ordering::Relaxed);
        for (cell, next) in cells.iter().zip(cells[1..].iter().chain(&[0])) {
            self.slab.cell(*cell).set_batch(*next, 0);
        }
        self.push_batch(first);
        true
    }

    /// Puts a batch on the stack.
    fn push_batch(&self, first: u32) {
        let next_in_batch = self.slab.cell(first).next();
        let mut head = self.free.load(Ordering::Acquire);
        loop {
            self.slab
                .cell(first)
                .set_batch(next_in_batch, head & u64::from(u32::MAX));
            let new = Self::next_tag(head) | u64::from(first);
            match self
                .free
                .compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    fn pop_batch(&self) -> Option<u32> {
        let mut head = self.free.load(Ordering::Acquire);
        loop {
            let first = head as u32;
            if first == 0 {
                return None;
            }
            // Garbage if somebody else has popped this batch; then the tag differs.
            let below = self.slab.cell(first).token() & u64::from(u32::MAX);
            let new = Self::next_tag(head) | below;
            match self
                .free
                .compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return Some(first),
                Err(now) => head = now,
            }
        }
    }

    fn next_tag(head: u64) -> u64 {
        ((head >> 32) + 1) << 32
    }
}
