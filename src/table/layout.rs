//! How wide each field of the two words is, and why that is wide enough (rule H).
//!
//! | field | bits | what wraps, when, and what happens then |
//! |---|---|---|
//! | version | 36 | One more for each grant of a bucket: at 30 ns a grant the busiest bucket fills in 34 minutes. It never wraps: a grant that would pass [`Layout::VERSION_SOFT`] first has the array copied to one with a higher token base, where the version starts again near zero. The top 16th is headroom for the copies and rebuilds of that passage, which raise a version by one each. |
//! | cell | 25 | 33,554,432 cells. Half of them may be out on lease ([`Layout::MAX_LEASES`]); the rest is for the copies of a resize, dead cells not yet skipped, and per-thread free lists. |
//! | life | 24 | One more at each reuse of a cell; wraps after 16,777,216. A stale compare-and-swap on a state errs only if the whole word repeats: a multiple of 2^24 reuses of this one cell (half a second of nothing else at the least) while a thread sleeps between a load and a CAS, *and* the same deadline to the tick, which moves on meanwhile (under a clock that stands still, or a tick of minutes, only the count of reuses protects). A stale handle is told by key and token besides, and those of one key never repeat; or, in a release by the word of the grant, by that word. |
//! | deadline | 36 | Ticks since the start of the cell's era. Eras are 2^35 ticks (397 days of 1 ms). A grant takes the era of its own deadline, so it fits whatever the TTL, and renewals up to a whole era later fit too. One beyond that first has the bucket rebuilt, whose copies take later eras; a TTL is at most one era, so the next try fits. |
//!
//! Tokens are `base + version` and end at `i64::MAX`: at one passage every 34 minutes, after 8,000
//! years.
//!
//! The tests run the same code with narrow fields, to reach every wrap within seconds.

/// The widths of the fields of the bucket word and the cell's state word.
pub(crate) trait Layout: Copy + Send + Sync + std::fmt::Debug + 'static {
    /// Bits of a bucket's version.
    const VERSION_BITS: u32;
    /// Bits of a cell index.
    const CELL_BITS: u32;
    /// Bits of a cell's life.
    const LIFE_BITS: u32;
    /// Bits of a deadline's offset into its era.
    const DEADLINE_BITS: u32;

    /// The last version that a grant may make.
    const VERSION_SOFT: u64 = (1 << Self::VERSION_BITS) / 16 * 15;
    /// The number of cells, the null index 0 included.
    const CELLS: u32 = 1 << Self::CELL_BITS;
    /// The most leases that may be out at once.
    const MAX_LEASES: usize = Self::CELLS as usize / 2;
    /// Ticks in an era, as a power of two.
    const ERA_SHIFT: u32 = Self::DEADLINE_BITS - 1;
    /// The longest TTL in ticks.
    const MAX_TTL: u64 = (1 << Self::ERA_SHIFT) - 1;
}

/// What ships.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wide;

impl Layout for Wide {
    const VERSION_BITS: u32 = 36;
    const CELL_BITS: u32 = 25;
    const LIFE_BITS: u32 = 24;
    const DEADLINE_BITS: u32 = 36;
}

/// Wraps soon: versions after 240 grants, eras after 512 ticks.
#[cfg(all(test, not(any(tenure_loom, tenure_shuttle))))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Narrow;

#[cfg(all(test, not(any(tenure_loom, tenure_shuttle))))]
impl Layout for Narrow {
    const VERSION_BITS: u32 = 8;
    const CELL_BITS: u32 = 16;
    const LIFE_BITS: u32 = 12;
    const DEADLINE_BITS: u32 = 10;
}
