//! One shard: the slots, the early stack, and what is known about both.

use std::array;

use super::word::Word;
use super::{BLOCK_BITS, Cells};
use crate::failpoint::failpoint;
use crate::owed::Owed;
use crate::sync::{AtomicU32, AtomicU64, MODELLED, Ordering, fence, fence_after_rmw};

/// A range of one level is `2^LEVEL_BITS` ranges of the level below. Models make do with few.
const LEVEL_BITS: u32 = if MODELLED { 1 } else { 7 };
pub(super) const LEVELS: usize = if MODELLED { 2 } else { 3 };
/// The ticks of the range of the last level.
const LAST_SHIFT: u32 = LEVEL_BITS * (LEVELS as u32 - 1);
/// The last level has `2^LAST_BITS` slots.
const LAST_BITS: u32 = if MODELLED { 2 } else { 7 };
/// Each level before has twice as many as the ranges of it that make one of the next level: so the
/// cells of the *next* range of that level have a slot here already.
const SLOTS: usize = 2 << LEVEL_BITS;
const ALL_SLOTS: usize = (LEVELS - 1) * SLOTS + (1 << LAST_BITS);
const FLAG_WORDS: usize = ALL_SLOTS.div_ceil(64);

/// A slot keeps its cells in so many lists, each cell in that of its number: a list can only be followed at
/// the pace of one cache miss after the other, several at once have their misses together.
pub(super) const STRANDS: usize = if MODELLED { 1 } else { 8 };

/// The lists of a slot: of each 0, or the number of its first cell + 1.
pub(super) type Lists = [u32; STRANDS];

/// The heads of those lists, on one cache line.
#[derive(Debug)]
#[repr(align(32))]
pub(super) struct Heads(pub(super) [AtomicU32; STRANDS]);

/// Lists without a cell.
pub(super) const EMPTY: Lists = [0; STRANDS];

/// The horizon is less than `2^HORIZON_BITS` ticks away, and no nearer than a range of the last
/// level less.
pub(super) const HORIZON_BITS: u32 = LAST_SHIFT + LAST_BITS;

/// The level of a slot.
pub(super) fn level(slot: usize) -> usize {
    (slot / SLOTS).min(LEVELS - 1)
}

/// Where a cell goes, and the tick at which the advance takes it out of there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) slot: usize,
    pub(super) visit: u64,
}

/// How many slots a level has.
pub(super) fn slots(level: usize) -> u64 {
    if level + 1 == LEVELS {
        1 << LAST_BITS
    } else {
        SLOTS as u64
    }
}

/// The range of a level that a tick is in.
pub(super) fn range(level: usize, tick: u64) -> u64 {
    tick >> (LEVEL_BITS * level as u32)
}

/// The first tick of a range.
pub(super) fn start(level: usize, range: u64) -> u64 {
    range << (LEVEL_BITS * level as u32)
}

/// The slot of a range.
pub(super) fn slot(level: usize, range: u64) -> usize {
    level * SLOTS + (range % slots(level)) as usize
}

/// How many ranges before its own the cells of a slot are taken out: those that have to go to a
/// lower level need time.
pub(super) fn ahead(level: usize) -> u64 {
    u64::from(level > 0)
}

/// The tick at which the cells of a range are taken out of their slot.
fn visit(level: usize, range: u64) -> u64 {
    start(level, range - ahead(level))
}

/// The last tick that has a slot as seen from `position`: beyond it, a range would share its slot
/// with the one that is being turned through.
pub(super) fn horizon(position: u64) -> u64 {
    let last = (position >> LAST_SHIFT) + (1 << LAST_BITS) - 1;
    last << LAST_SHIFT | ((1 << LAST_SHIFT) - 1)
}

/// `tick`, or a tick before it that has a slot.
///
/// Cells beyond the horizon are spread over the far half of it by their number: looked at all
/// together, they would come back all together for ever, and delay what is due in that tick.
pub(super) fn clamp(tick: u64, position: u64, cell: u32) -> u64 {
    let horizon = horizon(position);
    if tick <= horizon {
        return tick;
    }
    // Fibonacci hashing: neighbours land far apart.
    let spread = cell.wrapping_mul(0x9E37_79B9) >> (u32::BITS - (HORIZON_BITS - 1));
    horizon - u64::from(spread)
}

/// The lowest level that reaches as far as `tick`.
pub(super) fn place(tick: u64, position: u64) -> Place {
    debug_assert!(
        tick <= horizon(position),
        "{tick} has no slot at {position}"
    );
    let reaches = |&level: &usize| {
        let ranges = range(level, tick).saturating_sub(range(level, position));
        ranges < slots(level)
    };
    let level = (0..LEVELS).find(reaches).unwrap_or(LEVELS - 1);
    let range = range(level, tick);
    Place {
        slot: slot(level, range),
        visit: visit(level, range),
    }
}

/// The halves of a cell's link word: the next cell of its slot, and of the early stack.
#[derive(Clone, Copy)]
pub(super) enum Link {
    Slot,
    Early,
}

impl Link {
    fn shift(self) -> u32 {
        match self {
            Self::Slot => 0,
            Self::Early => u32::BITS,
        }
    }

    /// The head that `cell` points at with this link; whoever took the list may ask.
    pub(super) fn next(self, cells: &impl Cells, cell: u32) -> u32 {
        self.next_in(cells.wheel_next(cell))
    }

    /// The same, of the cell whose links these are.
    pub(super) fn next_in(self, links: &AtomicU64) -> u32 {
        // Relaxed: the swap that took the list acquired what its pushes released.
        (links.load(Ordering::Relaxed) >> self.shift()) as u32
    }

    /// Pushes `cell`, whose link of this kind belongs to the caller.
    ///
    /// Lists are only pushed to and taken whole, so a head that was seen twice is as good as one
    /// that never changed: there is no ABA problem.
    pub(super) fn push(self, head: &AtomicU32, cells: &impl Cells, cell: u32) {
        debug_assert!(cell < u32::MAX, "cell numbers end before u32::MAX");
        let next = cells.wheel_next(cell);
        let mask = !(u64::from(u32::MAX) << self.shift());
        let mut first = head.load(Ordering::Relaxed);
        loop {
            let link = u64::from(first) << self.shift();
            // By CAS, since the other half may be somebody else's.
            next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
                Some(word & mask | link)
            })
            .expect("the update is unconditional");
            // Release: whoever takes the list sees the link and the registration word.
            match head.compare_exchange_weak(first, cell + 1, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }
}

/// See the head of `wheel/mod.rs`.
#[derive(Debug)]
pub(super) struct Shard {
    /// The tick that the wheel has been turned to; stored by the advance alone, only ever forward.
    pub(super) position: AtomicU64,
    /// The least tick for which the early stack or the advance's heap may hold an entry, or at which
    /// the advance wants to go on moving cells.
    pub(super) early_due: AtomicU64,
    /// Head of the stack of cells that are wanted before their linked tick.
    pub(super) early: AtomicU32,
    /// One bit for each slot that must be taken at the next advance, whatever its tick is.
    pub(super) overdue: [AtomicU64; FLAG_WORDS],
    /// Heads of the slots' lists, level by level.
    pub(super) slots: [Heads; ALL_SLOTS],
    /// The bits of a cell's number that don't tell its list.
    strand_shift: u32,
}

impl Shard {
    /// A shard that gets one of `2^shift` blocks of cells.
    pub(super) fn new(shift: u32) -> Self {
        Self {
            position: AtomicU64::new(0),
            early_due: AtomicU64::new(u64::MAX),
            early: AtomicU32::new(0),
            overdue: array::from_fn(|_| AtomicU64::new(0)),
            slots: array::from_fn(|_| Heads(array::from_fn(|_| AtomicU32::new(0)))),
            // Two blocks that are neighbours here share a list: the processor fetches them ahead by itself.
            strand_shift: BLOCK_BITS + shift + 1,
        }
    }

    /// Links a cell that the caller has just registered at `tick`, and returns the tick at which
    /// an advance has to come for it.
    pub(super) fn link(&self, cells: &impl Cells, cell: u32, tick: u64) -> u64 {
        let place = place(tick, self.position.load(Ordering::Acquire));
        // The cell's word says that it is linked: if it were not, nobody would link it ever again.
        let mut shard = self;
        let unlinked = Owed::new(&mut shard, |shard| {
            shard.push(place.slot, cells, cell);
            shard.flag(place.slot);
        });
        failpoint!("wheel/registering");
        unlinked.waive();
        self.push(place.slot, cells, cell);
        // Partner: the fence between the position and the slots in `Turn::run`. If ours comes
        // first, that advance finds the cell in its slot; if theirs, we read its position, see
        // that the slot may have been taken before the cell was in it, and flag it.
        fence_after_rmw();
        let position = self.position.load(Ordering::Relaxed);
        if place.visit <= position {
            self.flag(place.slot);
            // The fence before the registrar's look at the driver's sleep came too early for this.
            fence(Ordering::SeqCst);
            return 0;
        }
        place.visit
    }

    /// Has the next advance take `slot`, and what has been taken out of it and is still to be moved.
    pub(super) fn flag(&self, slot: usize) {
        // Release: who takes the flag finds what was pushed before it.
        self.overdue[slot / 64].fetch_or(1 << (slot % 64), Ordering::Release);
    }

    /// Tells the advance of a linked cell whose word now says an early look; `push` if the cell
    /// was not on the early stack and the caller has marked it so. Returns the tick of the look.
    pub(super) fn hurry(&self, cells: &impl Cells, cell: u32, tick: u64, push: bool) -> u64 {
        let mut tick = tick;
        if push {
            Link::Early.push(&self.early, cells, cell);
            // Somebody may have wanted the cell even earlier between our mark and our push, have
            // relied on the push, and have seen an advance take `early_due` away before it.
            // That advance took the stack after `early_due`, so our push has read from it, and
            // with it whatever came before.
            fence(Ordering::Acquire);
            let word = Word(cells.wheel(cell).load(Ordering::Acquire));
            tick = tick.min(word.first_look());
        }
        self.early_due.fetch_min(tick, Ordering::AcqRel);
        // Partner: the fence in `Wheel::prepare_sleep`.
        fence(Ordering::SeqCst);
        tick
    }

    /// Has the next advance take everything: somebody has died who had stored the position, and had not taken
    /// all slots up to that.
    #[cold]
    pub(super) fn flag_all(&self) {
        (0..ALL_SLOTS).for_each(|slot| self.flag(slot));
    }

    /// Pushes a cell, whose link is the caller's, on its list of a slot.
    pub(super) fn push(&self, slot: usize, cells: &impl Cells, cell: u32) {
        let head = &self.slots[slot].0[self.strand(cell)];
        Link::Slot.push(head, cells, cell);
    }

    /// Which list of its slot a cell is on.
    pub(super) fn strand(&self, cell: u32) -> usize {
        (cell >> self.strand_shift) as usize % STRANDS
    }

    /// Takes the lists of a slot.
    pub(super) fn take(&self, slot: usize) -> Lists {
        self.slots[slot].0.each_ref().map(|head| {
            if head.load(Ordering::Relaxed) == 0 {
                return 0;
            }
            // Acquire: the links and words of all pushes, which form one release sequence.
            head.swap(0, Ordering::Acquire)
        })
    }

    fn is_occupied(&self, slot: usize) -> bool {
        let mut heads = self.slots[slot].0.iter();
        heads.any(|head| head.load(Ordering::Relaxed) != 0)
    }

    /// Whether an advance that stands still would find work.
    pub(super) fn has_overdue(&self) -> bool {
        self.overdue
            .iter()
            .any(|flags| flags.load(Ordering::Relaxed) != 0)
    }

    /// The first tick at which an advance has something to do here, `u64::MAX` if there is none.
    pub(super) fn next_due(&self) -> u64 {
        let position = self.position.load(Ordering::Acquire);
        if self.has_overdue() {
            return position;
        }
        let mut due = self.early_due.load(Ordering::Relaxed);
        for level in 0..LEVELS {
            let first = range(level, position) + 1 + ahead(level);
            let occupied = |&range: &u64| self.is_occupied(slot(level, range));
            let found = (first..first + slots(level))
                .take_while(|&range| visit(level, range) < due)
                .find(occupied);
            due = found.map_or(due, |range| visit(level, range));
        }
        due
    }
}
