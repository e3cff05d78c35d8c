//! Loads of what operations are going to look at, so that their cache misses overlap.
//!
//! In a table that outgrows the caches an operation waits for memory: for its bucket, and for the first
//! cell if there is one. The compare-and-swap that ends it is a full barrier on x86-64, so the next
//! operation's loads can't start before. Loads alone can: here are those of many operations at once.
//! What they find is not used (rule 1 wants it read again): they only bring the lines.

use std::hint::black_box;

use super::array::Array;
use super::layout::Layout;
use super::local::Local;
use super::{Handle, Table};
use crate::sync::{Arc, AtomicU64};

/// Operations whose loads are made together: more than a core has under way at once, few enough that
/// the lines are still there when their turn comes.
pub(crate) const CHUNK: usize = 32;

/// A table of fewer buckets stays in a core's own cache, and its cells too.
const WORTH_IT: usize = 1 << 15;

impl<L: Layout> Table<L> {
    /// The buckets of these hashes and their first cells, for grants. At most a [`CHUNK`].
    pub(crate) fn fetch_buckets(&self, local: &Local, hashes: &[u64]) {
        if local.array.len() < WORTH_IT {
            return;
        }
        let mut first = [0; CHUNK];
        for (cell, hash) in first.iter_mut().zip(hashes) {
            *cell = local.array.bucket(*hash).load::<L>().cell();
        }
        self.fetch_cells(&first[..hashes.len().min(CHUNK)]);
    }

    /// The cells and the buckets of these leases, and the cells behind them, for releases. At most a
    /// [`CHUNK`].
    pub(crate) fn fetch_leases(&self, local: &Local, handles: impl Iterator<Item = Handle>) {
        if local.array.len() < WORTH_IT {
            return;
        }
        let mut behind = [0; CHUNK];
        let (mut count, mut words) = (0, 0);
        for (next, handle) in behind.iter_mut().zip(handles) {
            words ^= local.array.bucket(handle.hash()).load::<L>().0;
            *next = self.cell(handle.cell()).next();
            count += 1;
        }
        black_box(words);
        self.fetch_cells(&behind[..count]);
    }

    /// The first cells of the buckets of an array that move next: a [`CHUNK`] of groups from this one on.
    pub(crate) fn fetch_groups(&self, array: &Array, group: usize, groups: usize) {
        if array.len() < WORTH_IT {
            return;
        }
        let mut first = [0; CHUNK];
        for (place, cell) in first.iter_mut().enumerate() {
            *cell = array.at((group + place) & (groups - 1)).load::<L>().cell();
        }
        self.fetch_cells(&first);
    }

    /// For a turn of the wheel by that thread.
    pub(crate) fn turned_by(&self, local: &Local) -> Turned<'_, L> {
        let worth_it = local.array.len() >= WORTH_IT;
        Turned {
            table: self,
            array: worth_it.then(|| Arc::clone(&local.array)),
        }
    }

    fn fetch_cells(&self, cells: &[u32]) {
        let mut states = 0;
        for cell in cells {
            if *cell != 0 {
                states ^= self.cell(*cell).state::<L>().0;
            }
        }
        // Else the loads would be for nothing, and might be left out.
        black_box(states);
    }
}

/// The table as the wheel sees it that is being turned.
#[derive(Debug)]
pub(crate) struct Turned<'t, L: Layout> {
    pub(crate) table: &'t Table<L>,
    /// The newest array that the thread knew when the turn began, if it is a large one. Held, so that the
    /// count of its references is left alone meanwhile: that lies beside what every grant reads.
    array: Option<Arc<Array>>,
}

impl<L: Layout> Turned<'_, L> {
    /// These cells, and the buckets of their keys where the wheel's word `is_due`.
    pub(crate) fn fetch(
        &self,
        cells: impl Iterator<Item = u32>,
        is_due: impl Fn(&AtomicU64) -> bool,
    ) {
        let Some(array) = &self.array else {
            return;
        };
        let words = cells.fold(0, |words, cell| {
            let cell = self.table.cell(cell);
            if !is_due(cell.wheel()) {
                return words;
            }
            // Whatever key stands there by now.
            words ^ array.bucket(self.table.hash(cell.key())).load::<L>().0
        });
        black_box(words);
    }
}
