//! The wheel on its own, for benchmarks: timers that do to it what leases do.
//!
//! A timer is a cell of a cache line, as a lease is: the wheel's two words, and one that says its deadline.
//! Setting one is what a grant does to the wheel, clearing one what a release does, and a look ends what is
//! due as the table's does. What is left out is the table: keys, buckets and tokens.

use super::{Cells, Wheel};
use crate::sync::{AtomicU64, Ordering, fence_after_rmw};

/// No deadline. Others are stored as the tick + 1.
const NONE: u64 = 0;

/// What a timer is made of, on a line of its own as a lease's cell.
#[repr(align(64))]
#[derive(Debug, Default)]
struct Cell {
    deadline: AtomicU64,
    wheel: AtomicU64,
    wheel_next: AtomicU64,
}

#[derive(Debug)]
struct Memory(Box<[Cell]>);

impl Cells for Memory {
    #[inline]
    fn wheel(&self, cell: u32) -> &AtomicU64 {
        &self.0[cell as usize].wheel
    }

    #[inline]
    fn wheel_next(&self, cell: u32) -> &AtomicU64 {
        &self.0[cell as usize].wheel_next
    }

    #[inline]
    fn words(&self, cell: u32) -> (&AtomicU64, &AtomicU64) {
        let cell = &self.0[cell as usize];
        (&cell.wheel, &cell.wheel_next)
    }
}

/// Timers by number. Ticks count from 0, and are whatever the caller takes them for.
#[derive(Debug)]
pub struct Timers {
    wheel: Wheel,
    memory: Memory,
    /// The last one given back is the first one taken, as with the cells of leases.
    free: Vec<u32>,
}

impl Timers {
    /// `capacity` timers, and a wheel of so many shards.
    #[must_use]
    pub fn new(capacity: u32, shards: usize) -> Self {
        Self {
            wheel: Wheel::new(shards, 0),
            memory: Memory((0..capacity).map(|_| Cell::default()).collect()),
            free: (0..capacity).rev().collect(),
        }
    }

    /// Sets a free timer; `None` if there is none.
    #[inline]
    pub fn schedule(&mut self, tick: u64) -> Option<u32> {
        let timer = self.take()?;
        self.set(timer, tick);
        Some(timer)
    }

    /// Clears a timer and gives it back; says whether it was still to fire. (One that has fired is given
    /// back already.)
    #[inline]
    pub fn cancel(&mut self, timer: u32) -> bool {
        let cleared = self.clear(timer);
        if cleared {
            self.free.push(timer);
        }
        cleared
    }

    /// Takes a timer without setting it.
    #[inline]
    pub fn take(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// Sets a timer that is the caller's and not set: what a grant does.
    #[inline]
    pub fn set(&mut self, timer: u32, tick: u64) {
        let deadline = &self.memory.0[timer as usize].deadline;
        // In place of the compare-and-swap that publishes a lease.
        deadline.swap(tick + 1, Ordering::AcqRel);
        // Partner: the fence in `Turn::look_again`.
        fence_after_rmw();
        let word = self.memory.wheel(timer).load(Ordering::Acquire);
        if !self.wheel.is_linked_by(word, tick) {
            self.register(timer, word, tick);
        }
    }

    #[cold]
    fn register(&self, timer: u32, word: u64, tick: u64) {
        // Nobody sleeps, so nobody is to be woken.
        let _: bool =
            !self.wheel.covers(word, tick) && self.wheel.register(&self.memory, timer, tick);
    }

    /// Clears a timer that stays the caller's: what a release does. The wheel is not told. Says whether
    /// it was still to fire.
    #[inline]
    pub fn clear(&mut self, timer: u32) -> bool {
        let deadline = &self.memory.0[timer as usize].deadline;
        let set = deadline.load(Ordering::Acquire);
        set != NONE
            && deadline
                .compare_exchange(set, NONE, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }

    /// Turns the wheel to `now`, and gives back each timer that is due; how many those are.
    pub fn advance(&mut self, now: u64) -> u64 {
        let Self {
            wheel,
            memory,
            free,
        } = self;
        let mut count = 0;
        let advanced = wheel.advance_to(memory, now, |timer, now| {
            let deadline = &memory.0[timer as usize].deadline;
            loop {
                let set = deadline.load(Ordering::Acquire);
                let tick = set.checked_sub(1)?;
                if tick > now {
                    return Some(tick);
                }
                let fires =
                    deadline.compare_exchange(set, NONE, Ordering::AcqRel, Ordering::Relaxed);
                if fires.is_ok() {
                    free.push(timer);
                    count += 1;
                }
            }
        });
        debug_assert!(advanced.is_some(), "nobody else advances");
        count
    }
}
