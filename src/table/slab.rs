//! The slab: cells at addresses that never change, in chunks that double.
//!
//! Chunk `k` holds `FIRST << k` cells, so the chunk of a cell follows from the position of its index's
//! highest bit, and 25 bits of index need 16 chunks. Memory comes zeroed from the allocator, which for
//! a large block means pages that the system has not made yet: a chunk costs what has been used of
//! it. A cell starts at a cache line because the chunk is cut there, not because the allocator was
//! asked to align: asking would make it write the zeros. Only for the first chunk it is asked: that is
//! small, and most programs need no other.
//!
//! # Why no cell is given back
//!
//! Free cells stay: after ten million leases at once, 610 MiB of them. Chunks could be dropped, or their
//! pages given back to the system while their addresses stay, if nobody came upon a free cell. But a thread
//! that was on its way to one does:
//!
//! - *Walks*, and the copies of a resize, follow `next` out of a chain that has moved on. *Handles* go to the
//!   cell of a lease that is over. *Pops* of the store read which batch is below one that somebody else
//!   has popped. All of these find out afterwards, by a word or a tag that has changed. Where a chunk is gone
//!   they would read freed memory; in a page that is gone they read zeros, a dead cell at the end of its
//!   chain, which is as good as what they read now.
//! - *Whoever registers* a lease in the wheel and was slow writes to its cell, by CAS, in whatever life that is
//!   by then; and a free cell stays on its list of the wheel until its tick, at most 35 minutes. A page that is
//!   taken away in between takes the rest of that list with it: leases that would not expire in time.
//! - *A CAS on a state* that was loaded long ago fails because the cell has had other lives. A page of zeros
//!   has had none: the same life, and within a tick the same deadline, come round after one grant instead
//!   of 2^24, and a late renewal changes somebody else's lease.
//!
//! So whoever takes a page away has to know that no thread is in the middle of an operation. The cheapest way
//! known is an asymmetric barrier: each operation says that it begins and that it ends, in a word of its
//! thread's, by plain stores; and the other side makes a barrier run on all processors (`membarrier(2)`,
//! measured at 0.5 to 6 µs), then waits for everybody who is in one. Tried, the plain stores alone make a pair
//! 185 instructions instead of 177 and a refusal 168 instead of 160; and a renewal through its guard, which
//! takes nothing of its thread's today, would have to as well.
//!
//! Then it has to find chunks, or pages, without a cell that is leased, in a thread's hands, in the store's
//! stack or in the wheel: free cells are in the order of their last use, all over the slab, and one lease holds
//! on to a page, which has 64. And both ways of taking memory away are `unsafe`, of which this crate has none.
//! That is too much for what comes back only after a spike, and is needed again at the next.

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
