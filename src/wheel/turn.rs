//! One shard's part of an advance, for the one thread that advances.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::shard::{
    EMPTY, LEVELS, Link, Lists, STRANDS, Shard, ahead, clamp, level, place, range, slot, slots,
    start,
};
use super::word::Word;
use super::{Cells, Wheel};
use crate::failpoint::failpoint;
use crate::owed::Owed;
use crate::room::shrinks;
use crate::sync::{AtomicU64, MODELLED, Ordering, fence, fence_after_rmw};

/// How many cells a wheel moves from each level to the one below in a tick, if it has the time: some
/// 50 microseconds of work. At that rate 8 million cells move in a range of the last level. (Less in
/// tests, which then see it with few cells.)
pub(super) const PORTION: u64 = match () {
    () if MODELLED => 1,
    () if cfg!(any(test, fuzzing)) => 4,
    () => 512,
};

/// What the thread that advances keeps of a shard from one turn to the next.
#[derive(Debug, Default)]
pub(super) struct Kept {
    heap: Heap,
    /// For each level, the rest of the lists of its next range, which are on their way to the level
    /// below. The first level never has one.
    pub(super) moving: [Lists; LEVELS],
}

/// Wanted looks before the linked tick, taken off the early stack. An entry counts only while the
/// cell's word still says that tick.
#[derive(Debug, Default)]
struct Heap {
    entries: BinaryHeap<Reverse<(u64, u32)>>,
    /// How many entries the last purge left.
    purged_to: usize,
}

impl Heap {
    const PURGE_FROM: usize = 64;
    /// So many are looked at to see whether a purge is worth it, and so many of them must no longer count.
    const SAMPLE: usize = 64;
    const STALE: usize = Self::SAMPLE / 4;

    fn push(&mut self, tick: u64, cell: u32) {
        self.entries.push(Reverse((tick, cell)));
    }

    fn first(&self) -> Option<(u64, u32)> {
        self.entries.peek().map(|&Reverse(entry)| entry)
    }

    /// Drops the entries that no longer count, once they may outnumber the others: a cell whose
    /// deadline keeps being shortened must not cost memory for each time. Millions that do count are not read
    /// for that, which takes some 80 ns each.
    fn purge(&mut self, cells: &impl Cells) {
        self.purged_to = self.purged_to.min(self.entries.len());
        if let Some(room) = shrinks(self.entries.len(), self.entries.capacity()) {
            self.entries.shrink_to(room);
        }
        if self.entries.len() < Self::PURGE_FROM.max(2 * self.purged_to) {
            return;
        }
        let counts = |&Reverse((tick, cell)): &Reverse<(u64, u32)>| {
            Word(cells.wheel(cell).load(Ordering::Acquire)).early() == Some(tick)
        };
        let step = self.entries.len().div_ceil(Self::SAMPLE);
        let sample = self.entries.as_slice().iter().step_by(step);
        if step > 1 && sample.filter(|entry| !counts(entry)).count() < Self::STALE {
            self.purged_to = self.entries.len();
            return;
        }
        let mut entries = std::mem::take(&mut self.entries).into_vec();
        entries.sort_unstable();
        entries.dedup();
        entries.retain(counts);
        self.purged_to = entries.len();
        self.entries = BinaryHeap::from(entries);
    }
}

impl Kept {
    #[cfg(all(test, not(any(tenure_loom, tenure_shuttle))))]
    pub(super) fn early_entries(&self) -> usize {
        self.heap.entries.len()
    }

    #[cfg(all(test, not(any(tenure_loom, tenure_shuttle))))]
    pub(super) fn early_room(&self) -> usize {
        self.heap.entries.capacity()
    }
}

/// What an advance has done so far.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) looks: u64,
    /// The first tick for which this advance itself has queued anything.
    pub(super) earliest: u64,
    /// Whether a registration on the way found the driver asleep for too long.
    pub(super) wake: bool,
}

/// The state of an advance in one shard. Dropping it, at the end or in a panic of `look`, gives
/// back whatever is still in hand.
pub(super) struct Turn<'a, C: Cells, L: FnMut(u32, u64) -> Option<u64>> {
    pub(super) wheel: &'a Wheel,
    pub(super) shard: &'a Shard,
    pub(super) cells: &'a C,
    pub(super) look: &'a mut L,
    pub(super) now: u64,
    pub(super) kept: &'a mut Kept,
    pub(super) tally: &'a mut Tally,
    /// The rest of the lists in hand.
    pub(super) lists: Lists,
    /// False while there are slots that have been passed and not taken.
    pub(super) done: bool,
}

impl<C: Cells, L: FnMut(u32, u64) -> Option<u64>> Turn<'_, C, L> {
    pub(super) fn run(&mut self) {
        self.done = false;
        let from = self.shard.position.load(Ordering::Relaxed);
        debug_assert!(from <= self.now, "the wheel turns forward only");
        // Release: a word that was linked under this position comes with it.
        self.shard.position.store(self.now, Ordering::Release);
        // Partner: the fence in `Shard::link`.
        fence(Ordering::SeqCst);
        failpoint!("wheel/turning");
        for level in 0..LEVELS {
            self.pass(level, from);
        }
        self.take_overdue();
        self.take_early();
        self.done = true;
    }

    /// Takes what the wheel has to take out of one level on its way from `before` to now.
    fn pass(&mut self, level: usize, before: u64) {
        let (from, to) = (range(level, before), range(level, self.now));
        if from < to {
            // Its range has come.
            let rest = std::mem::take(&mut self.kept.moving[level]);
            self.work_off(rest, u64::MAX);
            // However far the jump, no slot is taken twice.
            let last = to.min(from + slots(level));
            for range in from + 1..last {
                self.take_slot(slot(level, range + ahead(level)));
            }
            self.kept.moving[level] = self.shard.take(slot(level, last + ahead(level)));
        }
        // What was taken last is for the next range, if the wheel has not jumped over that: there is
        // time for it, and a portion for each tick of this range that has come.
        let most = if level == 0 || to - from + 1 >= slots(level) {
            u64::MAX
        } else {
            let portion = (PORTION / self.wheel.shards.len() as u64).max(1);
            let ticks = self.now - before.max(start(level, to).saturating_sub(1));
            portion.saturating_mul(ticks)
        };
        let lists = std::mem::take(&mut self.kept.moving[level]);
        self.kept.moving[level] = self.work_off(lists, most);
    }

    /// Whether something came in, meanwhile, that is due already.
    pub(super) fn has_more(&self) -> bool {
        self.shard.has_overdue() || self.has_early()
    }

    /// Registrations that came too late for their slot.
    fn take_overdue(&mut self) {
        for (index, flags) in self.shard.overdue.iter().enumerate() {
            if flags.load(Ordering::Relaxed) == 0 {
                continue;
            }
            // Acquire: see `Shard::flag`.
            let mut taken = flags.swap(0, Ordering::AcqRel);
            while taken != 0 {
                let flagged = index * 64 + taken.trailing_zeros() as usize;
                self.take_slot(flagged);
                // Whoever slept between its push and the flag: the slot may have been taken meanwhile, by now
                // for another range, to be moved at leisure.
                let level = level(flagged);
                if flagged == slot(level, range(level, self.now) + ahead(level)) {
                    let lists = std::mem::take(&mut self.kept.moving[level]);
                    self.work_off(lists, u64::MAX);
                }
                taken &= taken - 1;
            }
        }
    }

    /// Looks at each cell of these lists that is due, and puts the others where they belong by now; at
    /// `most` so many. Returns the rest of the lists.
    fn work_off(&mut self, lists: Lists, mut most: u64) -> Lists {
        debug_assert_eq!(self.lists, EMPTY, "one slot at a time");
        self.lists = lists;
        while self.lists != EMPTY && most > 0 {
            self.fetch();
            for strand in 0..STRANDS {
                let Some(cell) = self.lists[strand].checked_sub(1) else {
                    continue;
                };
                if most == 0 {
                    break;
                }
                most -= 1;
                let (word, links) = self.cells.words(cell);
                // Read before the cell is linked again, by us or, once its word says so, by anybody.
                let next = Link::Slot.next_in(links);
                let tick = Word(word.load(Ordering::Acquire)).tick();
                if tick > self.now {
                    self.lists[strand] = next;
                    self.put(cell, tick);
                } else {
                    self.fire(cell, word, (strand, next));
                }
            }
        }
        std::mem::take(&mut self.lists)
    }

    /// Tells which cells are next, and which of them are due.
    fn fetch(&self) {
        let next = self.lists.iter().filter_map(|head| head.checked_sub(1));
        let is_due = |word: &AtomicU64| Word(word.load(Ordering::Relaxed)).tick() <= self.now;
        self.cells.fetch(next, is_due);
    }

    /// The same for a whole slot.
    fn take_slot(&mut self, slot: usize) {
        let lists = self.shard.take(slot);
        self.work_off(lists, u64::MAX);
    }

    /// Links a cell that is ours. Nobody else moves the position, so its slot can't be missed.
    fn put(&mut self, cell: u32, tick: u64) {
        let place = place(tick, self.now);
        self.shard.push(place.slot, self.cells, cell);
        if place.visit <= self.now {
            self.shard.flag(place.slot);
        }
        self.tally.earliest = self.tally.earliest.min(place.visit);
    }

    /// The linked tick of a cell has come; `next` comes after it in its list.
    fn fire(&mut self, cell: u32, word: &AtomicU64, (strand, next): (usize, u32)) {
        let wanted = self.look_at(cell);
        failpoint!("wheel/looked");
        self.lists[strand] = next;
        let tick = wanted.map(|tick| clamp(tick, self.now, cell));
        let new = tick.map_or(Word::UNLINKED, Word::linked_at);
        // This takes any early look back: whatever it was wanted for is seen by the looks here.
        word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
            Some(new.in_place_of(Word(word)).0)
        })
        .expect("the update is unconditional");
        // An unlinked cell may be linked by anybody from here on.
        if let Some(tick) = tick {
            self.put(cell, tick);
        }
        self.look_again(cell);
    }

    /// Takes the early stack, then looks at each cell whose early look has come.
    fn take_early(&mut self) {
        if !self.has_early() {
            return;
        }
        // In this order, and both always: see `Shard::hurry`.
        self.shard.early_due.swap(u64::MAX, Ordering::AcqRel);
        let mut head = self.shard.early.swap(0, Ordering::AcqRel);
        while head != 0 {
            let cell = head - 1;
            // Read before the mark goes: from then on the cell may be pushed again.
            head = Link::Early.next(self.cells, cell);
            let word = self.cells.wheel(cell);
            let word = Word(word.fetch_and(Word::NOT_QUEUED, Ordering::AcqRel));
            debug_assert!(word.is_markd(), "a cell on the early stack is marked");
            if let Some(tick) = word.early() {
                self.kept.heap.push(tick, cell);
            }
        }
        self.kept.heap.purge(self.cells);
        while let Some((tick, cell)) = self.kept.heap.first()
            && tick <= self.now
        {
            let word = Word(self.cells.wheel(cell).load(Ordering::Acquire));
            if word.early() == Some(tick) {
                self.fire_early(cell, word);
            } else {
                self.kept.heap.entries.pop();
            }
        }
    }

    fn has_early(&self) -> bool {
        self.shard.early.load(Ordering::Relaxed) != 0
            || self.shard.early_due.load(Ordering::Relaxed) <= self.now
    }

    /// The early look that `word` and the heap's first entry speak of has come.
    fn fire_early(&mut self, cell: u32, word: Word) {
        let wanted = self.look_at(cell);
        self.kept.heap.entries.pop();
        let linked = word.tick();
        let wanted = wanted.filter(|&tick| tick < linked);
        let new = word.with_early(wanted.unwrap_or(linked));
        let taken = self.cells.wheel(cell).compare_exchange(
            word.0,
            new.0,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        if taken.is_err() {
            // Wanted even earlier: that registration is on the early stack, and is due as well.
            return;
        }
        if let Some(tick) = wanted {
            self.kept.heap.push(tick, cell);
        }
        self.look_again(cell);
    }

    fn look_at(&mut self, cell: u32) -> Option<u64> {
        self.tally.looks += 1;
        // A look in the past would keep this advance busy for ever: the next one is soon enough.
        (self.look)(cell, self.now).map(|tick| tick.max(self.now + 1))
    }

    /// Looks once more at a cell whose registration has just become later or been dropped.
    /// That was a read-modify-write.
    fn look_again(&mut self, cell: u32) {
        // Partner: the fence between the publication of a deadline and the load of the word. If
        // ours comes first, the grant or renewal sees our word and registers the cell again if it
        // must; if theirs, we see the new deadline here.
        fence_after_rmw();
        let mut unseen = Owed::new(&mut *self, |turn| {
            _ = turn.wheel.register_at(turn.cells, cell, turn.now + 1);
        });
        failpoint!("wheel/moved");
        let wanted = unseen.look_at(cell);
        unseen.waive();
        if let Some(tick) = wanted {
            let word = self.cells.wheel(cell).load(Ordering::Acquire);
            if Word(word).first_look() > tick {
                self.tally.wake |= self.wheel.register_at(self.cells, cell, tick);
            }
        }
    }
}

impl<C: Cells, L: FnMut(u32, u64) -> Option<u64>> Drop for Turn<'_, C, L> {
    fn drop(&mut self) {
        // Only a panic of `look` leaves lists in hand.
        for mut head in std::mem::take(&mut self.lists) {
            while let Some(cell) = head.checked_sub(1) {
                let (word, links) = self.cells.words(cell);
                head = Link::Slot.next_in(links);
                self.put(cell, Word(word.load(Ordering::Acquire)).tick());
            }
        }
        if !self.done {
            self.shard.flag_all();
        }
        let early = self.kept.heap.first().map(|(tick, _)| tick);
        let moving = self.kept.moving != [EMPTY; LEVELS];
        let moving = moving.then_some(self.now + 1);
        if let Some(tick) = early.into_iter().chain(moving).min() {
            self.shard.early_due.fetch_min(tick, Ordering::AcqRel);
            self.tally.earliest = self.tally.earliest.min(tick);
        }
    }
}
