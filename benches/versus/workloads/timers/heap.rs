//! A binary heap whose entries stay when they are cancelled.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Keeper;

/// A timer, and in which of its lives.
type Id = (u32, u32);

pub(super) struct Heap {
    entries: BinaryHeap<Reverse<(u64, Id)>>,
    /// The current life of each timer: entries of others are stale.
    lives: Vec<u32>,
    free: Vec<u32>,
    /// Entries that are stale.
    stale: usize,
}

impl Heap {
    pub(super) fn new(capacity: u32) -> Self {
        Self {
            entries: BinaryHeap::with_capacity(capacity as usize),
            lives: vec![0; capacity as usize],
            free: (0..capacity).rev().collect(),
            stale: 0,
        }
    }

    #[inline(always)]
    fn end(&mut self, timer: u32) {
        let life = &mut self.lives[timer as usize];
        *life = life.wrapping_add(1);
        self.free.push(timer);
    }

    #[cold]
    fn purge(&mut self) {
        let lives = &self.lives;
        self.entries
            .retain(|Reverse((_, (timer, life)))| lives[*timer as usize] == *life);
        self.stale = 0;
    }
}

impl Keeper for Heap {
    type Id = Id;

    #[inline(always)]
    fn schedule(&mut self, tick: u64) -> Id {
        let timer = self.free.pop().expect("no more than there is room for");
        let id = (timer, self.lives[timer as usize]);
        self.entries.push(Reverse((tick, id)));
        id
    }

    #[inline(always)]
    fn cancel(&mut self, (timer, _): Id) {
        self.end(timer);
        self.stale += 1;
        if self.stale > self.entries.len() / 2 {
            self.purge();
        }
    }

    fn advance(&mut self, tick: u64) -> u64 {
        let mut fired = 0;
        while let Some(Reverse((due, (timer, life)))) = self.entries.peek().copied()
            && due <= tick
        {
            self.entries.pop();
            if self.lives[timer as usize] == life {
                self.end(timer);
                fired += 1;
            } else {
                self.stale -= 1;
            }
        }
        fired
    }
}
