//! The registration word of a cell, `[linked tick + 1 : 42 | queued : 1 | early delta : 21]`.
//!
//! Ticks count from the wheel's start.
//!
//! | tick + 1 | queued | delta | meaning |
//! |---|---|---|---|
//! | 0 | 0 | 0 | not registered |
//! | 0 | 1 | 0 | not registered; still on its shard's early stack, where the advance will find nothing to do |
//! | t + 1 | 0 | 0 | linked: looked at when the wheel reaches `t` |
//! | t + 1 | 1 | 0 | the same; on the early stack from an earlier registration |
//! | t + 1 | 1 | d | linked at `t`, wanted at `t - d` already, and on the early stack to say so |
//! | t + 1 | 0 | d | the same, and the advancing thread's heap knows |
//!
//! Delta without tick never happens. `queued` is set by the registrar that pushes the cell on the
//! early stack and cleared by the advance that takes it off; whatever else changes the word keeps it.
//!
//! Who may change what: a registrar may link an unlinked cell and make a linked one's delta larger;
//! everything else is up to the thread that advances. So the tick of a linked cell is stable for
//! everybody but that thread.

use super::shard::HORIZON_BITS;

/// A cell is linked within the horizon, so a delta of as many bits says any tick before that.
const EARLY_BITS: u32 = 21;
const _: () = assert!(HORIZON_BITS <= EARLY_BITS);
const EARLY: u64 = (1 << EARLY_BITS) - 1;
const QUEUED: u64 = 1 << EARLY_BITS;
const TICK_SHIFT: u32 = EARLY_BITS + 1;

/// The last tick that fits: 139 years of milliseconds.
pub(super) const LAST_TICK: u64 = (1 << (u64::BITS - TICK_SHIFT)) - 2;

/// One value of a cell's registration word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(pub(super) u64);

impl Word {
    pub(super) const UNLINKED: Self = Self(0);

    pub(super) fn linked_at(tick: u64) -> Self {
        debug_assert!(tick <= LAST_TICK, "tick {tick} does not fit the word");
        Self((tick + 1) << TICK_SHIFT)
    }

    pub(super) fn is_linked(self) -> bool {
        self.0 >> TICK_SHIFT != 0
    }

    /// Whether the cell is linked at that tick or before it.
    #[inline(always)]
    pub(super) fn is_linked_by(self, tick: u64) -> bool {
        // An unlinked word wraps to the maximum.
        (self.0 >> TICK_SHIFT).wrapping_sub(1) <= tick
    }

    pub(super) fn is_markd(self) -> bool {
        self.0 & QUEUED != 0
    }

    /// The tick at which a linked cell is looked at whatever happens.
    pub(super) fn tick(self) -> u64 {
        debug_assert!(self.is_linked(), "an unlinked cell has no tick");
        (self.0 >> TICK_SHIFT) - 1
    }

    /// The tick of the next look, `u64::MAX` if there will be none.
    #[inline]
    pub(super) fn first_look(self) -> u64 {
        // An unlinked word has no delta either: it wraps to the maximum, without a branch.
        ((self.0 >> TICK_SHIFT) - (self.0 & EARLY)).wrapping_sub(1)
    }

    /// The tick of the look before the linked one, if there is one.
    pub(super) fn early(self) -> Option<u64> {
        (self.0 & EARLY != 0).then(|| self.first_look())
    }

    /// The same registration, looked at no later than `tick`.
    pub(super) fn with_early(self, tick: u64) -> Self {
        let delta = self.tick().saturating_sub(tick);
        debug_assert!(delta <= EARLY, "{delta} ticks early do not fit the word");
        Self(self.0 & !EARLY | delta)
    }

    pub(super) fn with_queued(self) -> Self {
        Self(self.0 | QUEUED)
    }

    /// This registration in the place of `old`: whether the cell is on the early stack stays true.
    pub(super) fn in_place_of(self, old: Self) -> Self {
        Self(self.0 & !QUEUED | old.0 & QUEUED)
    }

    /// The mask that takes the mark of the early stack away.
    pub(super) const NOT_QUEUED: u64 = !QUEUED;
}
