//! The crate's wheel.

use tenure::internals::Timers;

use super::Keeper;
use crate::keys::{Keys, Uniform};

/// As many shards as a manager on two processors has.
const SHARDS: usize = 2;

/// Takes the cell that was given back last, as a table does.
pub(super) struct LastCell(Timers);

impl LastCell {
    pub(super) fn new(capacity: u32) -> Self {
        Self(Timers::new(capacity, SHARDS))
    }
}

impl Keeper for LastCell {
    type Id = u32;

    #[inline(always)]
    fn schedule(&mut self, tick: u64) -> u32 {
        self.0
            .schedule(tick)
            .expect("no more than there is room for")
    }

    #[inline(always)]
    fn cancel(&mut self, timer: u32) {
        let cleared = self.0.cancel(timer);
        debug_assert!(cleared, "it was set");
    }

    fn advance(&mut self, tick: u64) -> u64 {
        self.0.advance(tick)
    }
}

/// Takes any cell of many.
pub(super) struct AnyCell {
    timers: Timers,
    cells: Vec<u32>,
    places: Uniform,
}

impl AnyCell {
    /// `cells` to choose from, and as many more as are `held`.
    pub(super) fn new(cells: u32, held: u32) -> Self {
        let mut timers = Timers::new(cells + held, SHARDS);
        Self {
            cells: (0..cells).filter_map(|_| timers.take()).collect(),
            timers,
            places: Uniform::seeded(3, 0, u64::from(cells)),
        }
    }
}

impl Keeper for AnyCell {
    type Id = u32;

    #[inline(always)]
    fn schedule(&mut self, tick: u64) -> u32 {
        let timer = self.cells[self.places.next() as usize];
        self.timers.set(timer, tick);
        timer
    }

    fn hold(&mut self, tick: u64) {
        self.timers.schedule(tick);
    }

    #[inline(always)]
    fn cancel(&mut self, timer: u32) {
        let cleared = self.timers.clear(timer);
        debug_assert!(cleared, "it was set");
    }

    fn advance(&mut self, tick: u64) -> u64 {
        self.timers.advance(tick)
    }
}
