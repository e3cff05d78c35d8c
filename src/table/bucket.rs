//! The bucket word: `[version | first cell | flag]`.
//!
//! | flag | meaning | becomes |
//! |---|---|---|
//! | `UNINIT` (0, with version and cell 0) | its leases are still in the parent array | `NORMAL` |
//! | `NORMAL` | the chain from the first cell holds this bucket's leases | `NORMAL`, `REBUILD`, `FROZEN` |
//! | `REBUILD` | being copied in place, to shed dead cells (rule 12) | `NORMAL`, `FROZEN` |
//! | `FROZEN` | being copied to the child array (rules 9, 10) | `DONE` |
//! | `DONE` | the children stand; the chain is freed or about to be | nothing: the array dies |
//!
//! A word never repeats within its array: the version rises at each grant, rebuild and copy, and
//! between two grants the first cell only moves down one chain.

use std::marker::PhantomData;

use super::layout::Layout;

pub(crate) const UNINIT: u64 = 0;
pub(crate) const NORMAL: u64 = 1;
pub(crate) const REBUILD: u64 = 2;
pub(crate) const FROZEN: u64 = 3;
pub(crate) const DONE: u64 = 4;

const FLAG_BITS: u32 = 3;

/// One value of a bucket's word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BucketWord<L: Layout>(pub(crate) u64, PhantomData<L>);

impl<L: Layout> PartialEq for BucketWord<L> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<L: Layout> BucketWord<L> {
    #[inline]
    pub(crate) fn new(version: u64, cell: u32, flag: u64) -> Self {
        debug_assert!(version < 1 << L::VERSION_BITS, "a version wrapped");
        debug_assert!(cell < L::CELLS);
        let word = version << (L::CELL_BITS + FLAG_BITS) | u64::from(cell) << FLAG_BITS | flag;
        Self(word, PhantomData)
    }

    #[inline]
    pub(crate) fn from_raw(raw: u64) -> Self {
        Self(raw, PhantomData)
    }

    #[inline]
    pub(crate) fn version(self) -> u64 {
        self.0 >> (L::CELL_BITS + FLAG_BITS)
    }

    #[inline]
    pub(crate) fn cell(self) -> u32 {
        (self.0 >> FLAG_BITS) as u32 & (L::CELLS - 1)
    }

    #[inline]
    pub(crate) fn flag(self) -> u64 {
        self.0 & ((1 << FLAG_BITS) - 1)
    }

    #[inline]
    pub(crate) fn is_normal(self) -> bool {
        self.flag() == NORMAL
    }

    /// Normal, and no cell: `[any version | 0 | NORMAL]`.
    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0 & ((1 << (L::CELL_BITS + FLAG_BITS)) - 1) == NORMAL
    }

    #[inline]
    pub(crate) fn with_flag(self, flag: u64) -> Self {
        Self::new(self.version(), self.cell(), flag)
    }

    /// The next version, with one cell in what was an empty bucket.
    #[inline]
    pub(crate) fn granted(self, cell: u32) -> Self {
        debug_assert!(self.is_empty());
        let next = (1 << (L::CELL_BITS + FLAG_BITS)) | u64::from(cell) << FLAG_BITS;
        Self::from_raw(self.0 + next)
    }

    /// The same version, with one cell in an empty bucket.
    #[inline]
    pub(crate) fn with_first(self, cell: u32) -> Self {
        debug_assert!(self.is_empty());
        Self::from_raw(self.0 | u64::from(cell) << FLAG_BITS)
    }

    #[inline]
    pub(crate) fn with_cell(self, cell: u32) -> Self {
        Self::new(self.version(), cell, self.flag())
    }
}
