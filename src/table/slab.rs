//! The slab: cells at addresses that never change, in chunks that double.
//!
//! Chunk `k` holds `FIRST << k` cells, so the chunk of a cell follows from the position of its index's
//! highest bit, and 25 bits of index need 16 chunks. Memory comes zeroed from the allocator, which for
//! a large block means pages that the system has not made yet: a chunk costs what has been used of
//! it. A cell starts at a cache line because the chunk is cut there, not because the allocator was
//! asked to align: asking would make it write the zeros. Only for the first chunk it is asked: that is
//! small, and most programs need no other.

use std::array;
use std::sync::OnceLock;

use super::cell::{CELL_WORDS, Cell};
use super::layout::Layout;
use crate::sync::{AtomicU32, AtomicU64, MODELLED, Ordering, zeroed_words};

const CACHE_LINE: usize = 64;
const MAX_CHUNKS: usize = 32;

/// Cells in the first chunk, a power of two.
const FIRST: usize = if MODELLED { 8 } else { 1 << 10 };

/// One cell of the first chunk.
#[derive(Debug)]
#[repr(align(64))]
struct Line([AtomicU64; CELL_WORDS]);

#[derive(Debug)]
struct Chunk {
    words: Box<[AtomicU64]>,
    /// Words before the first cell.
    skew: usize,
}

/// All cells of a table.
#[derive(Debug)]
pub(crate) struct Slab<L: Layout> {
    first: Box<[Line; FIRST]>,
    /// The chunks from 1; place 0 stays empty.
    chunks: [OnceLock<Chunk>; MAX_CHUNKS],
    /// The next index never used. Index 0 is the null.
    fresh: AtomicU32,
    layout: std::marker::PhantomData<L>,
}

impl Chunk {
    fn new(cells: usize) -> Option<Self> {
        let words = zeroed_words((cells + 1) * CELL_WORDS)?;
        let misaligned = words.as_ptr().addr() % CACHE_LINE;
        let skew = (CACHE_LINE - misaligned) % CACHE_LINE / size_of::<u64>();
        Some(Self { words, skew })
    }

    fn cell(&self, offset: usize) -> Cell<'_> {
        let words = &self.words[self.skew + offset * CELL_WORDS..];
        Cell(words.first_chunk().expect("a chunk ends with a whole cell"))
    }
}

fn first_chunk() -> Option<Box<[Line; FIRST]>> {
    let mut lines = vec![];
    lines.try_reserve_exact(FIRST).ok()?;
    lines.resize_with(FIRST, || Line(array::from_fn(|_| AtomicU64::new(0))));
    lines.into_boxed_slice().try_into().ok()
}

impl<L: Layout> Slab<L> {
    /// `None` if the memory can't be had.
    pub(crate) fn new() -> Option<Self> {
        Some(Self {
            first: first_chunk()?,
            chunks: [const { OnceLock::new() }; MAX_CHUNKS],
            fresh: AtomicU32::new(1),
            layout: std::marker::PhantomData,
        })
    }

    /// The chunk of a cell and the cell's place in it.
    #[inline]
    fn place(index: u32) -> (usize, usize) {
        let shifted = index as usize + FIRST;
        let level = (shifted.ilog2() - FIRST.ilog2()) as usize;
        (level, shifted - (FIRST << level))
    }

    #[inline(always)]
    pub(crate) fn cell(&self, index: u32) -> Cell<'_> {
        match self.first.get(index as usize) {
            Some(line) => Cell(&line.0),
            None => self.cell_beyond(index),
        }
    }

    /// Out of line, and off the way of programs with few leases.
    #[cold]
    #[inline(never)]
    fn cell_beyond(&self, index: u32) -> Cell<'_> {
        let (level, offset) = Self::place(index);
        let chunk = self.chunks[level & (MAX_CHUNKS - 1)]
            .get()
            .expect("a cell's index is handed out after its chunk is in place");
        chunk.cell(offset)
    }

    /// Up to `count` cells never used before, as a range; empty if the table is full or memory
    /// can't be had.
    pub(crate) fn take_fresh(&self, count: u32) -> std::ops::Range<u32> {
        // A plain fetch_add would run past the end when many callers find the table full.
        let mut first = self.fresh.load(Ordering::Relaxed);
        loop {
            let end = first.saturating_add(count).min(L::CELLS);
            if end <= first || !self.ensure(end - 1) {
                return 0..0;
            }
            match self
                .fresh
                .compare_exchange_weak(first, end, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return first..end,
                Err(now) => first = now,
            }
        }
    }

    /// Makes sure of the chunks up to the one of `index` (a batch spans at most two).
    fn ensure(&self, index: u32) -> bool {
        let (last, _) = Self::place(index);
        (last.saturating_sub(1)..=last).all(|level| {
            level == 0 || self.chunks[level].get().is_some() || {
                let chunk = Chunk::new(FIRST << level);
                // Whoever comes second drops its untouched chunk.
                chunk.is_some_and(|chunk| {
                    let _ = self.chunks[level].set(chunk);
                    true
                })
            }
        })
    }

    /// Cells that were ever used.
    pub(crate) fn used(&self) -> u32 {
        self.fresh.load(Ordering::Relaxed)
    }
}
