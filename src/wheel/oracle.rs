//! The wheel against a sorted list: what the property tests and the fuzz target drive.

use std::collections::BTreeSet;

use super::shard::Link;
use super::word::Word;
use super::{Cells, LAST_NOW, Wheel};
use crate::sync::{AtomicU64, Ordering};

/// The wheel's two words of some cells, and nothing else.
#[derive(Debug)]
pub(super) struct Memory(Vec<[AtomicU64; 2]>);

impl Memory {
    pub(super) fn new(cells: u32) -> Self {
        let cell = || [AtomicU64::new(0), AtomicU64::new(0)];
        Self((0..cells).map(|_| cell()).collect())
    }
}

impl Cells for Memory {
    fn wheel(&self, cell: u32) -> &AtomicU64 {
        &self.0[cell as usize][0]
    }

    fn wheel_next(&self, cell: u32) -> &AtomicU64 {
        &self.0[cell as usize][1]
    }
}

/// One step. Numbers out of range are taken modulo what is there.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// The cell gets a deadline, that many ticks ahead, whether it had one or not.
    Lease { cell: u32, after: u64 },
    /// The cell's deadline goes; the wheel is not told.
    Free { cell: u32 },
    /// Time passes.
    Advance { by: u64 },
    /// Time passes until the wheel wants to be turned, if it does.
    NextDue,
}

/// A wheel, a driver that sleeps when it may, and the sorted list that says what must happen.
#[derive(Debug)]
pub(super) struct Oracle {
    wheel: Wheel,
    memory: Memory,
    deadlines: Vec<Option<u64>>,
    sorted: BTreeSet<(u64, u32)>,
    start: u64,
    now: u64,
    /// Until when the driver sleeps.
    until: u64,
    leases: u64,
    advances: u64,
    looks: u64,
}

impl Oracle {
    pub(super) fn new(shards: usize, cells: u32, start: u64) -> Self {
        let wheel = Wheel::new(shards, start);
        assert!(wheel.prepare_sleep(None), "an empty wheel is never due");
        Self {
            wheel,
            memory: Memory::new(cells),
            deadlines: vec![None; cells as usize],
            sorted: BTreeSet::new(),
            start,
            now: start,
            until: u64::MAX,
            leases: 0,
            advances: 0,
            looks: 0,
        }
    }

    pub(super) fn step(&mut self, step: Step) {
        let cells = self.deadlines.len() as u32;
        match step {
            Step::Lease { cell, after } => {
                self.lease(cell % cells, self.now + after % (self.left() + 1));
            }
            Step::Free { cell } => self.set(cell % cells, None),
            Step::Advance { by } => self.advance(self.now + by % (self.left() + 1)),
            Step::NextDue => {
                if let Some(due) = self.wheel.next_due() {
                    self.advance(due.max(self.now));
                }
            }
        }
        self.check();
    }

    /// How far the wheel can still turn.
    fn left(&self) -> u64 {
        self.start + LAST_NOW - self.now
    }

    fn set(&mut self, cell: u32, deadline: Option<u64>) {
        if let Some(old) = std::mem::replace(&mut self.deadlines[cell as usize], deadline) {
            self.sorted.remove(&(old, cell));
        }
        if let Some(new) = deadline {
            self.sorted.insert((new, cell));
        }
    }

    fn lease(&mut self, cell: u32, deadline: u64) {
        self.leases += 1;
        self.set(cell, Some(deadline));
        if self.covers(cell, deadline) {
            return;
        }
        if self.wheel.register(&self.memory, cell, deadline) {
            self.wheel.woke();
            self.sleep();
        }
        assert!(self.covers(cell, deadline), "registered, and not covered");
    }

    fn covers(&self, cell: u32, deadline: u64) -> bool {
        let word = self.memory.wheel(cell).load(Ordering::SeqCst);
        self.wheel.covers(word, deadline.max(self.now))
    }

    fn sleep(&mut self) {
        let due = self.wheel.next_due();
        self.until = due.unwrap_or(u64::MAX);
        assert!(self.wheel.prepare_sleep(due), "due before it was due");
    }

    fn advance(&mut self, now: u64) {
        self.now = now;
        self.advances += 1;
        self.wheel.woke();
        let mut fired = BTreeSet::new();
        let deadlines = &mut self.deadlines;
        let advanced = self.wheel.advance_to(&self.memory, now, |cell, _| {
            let deadline = &mut deadlines[cell as usize];
            if let Some(due) = deadline.take_if(|deadline| *deadline <= now) {
                assert!(fired.insert((due, cell)), "a cell fired twice");
            }
            *deadline
        });
        let advanced = advanced.expect("nobody else advances");
        assert!(!advanced.wake, "the driver is awake");
        self.looks += advanced.looks;
        // I8: what is due fires in the first advance that reaches it.
        let later = self.sorted.split_off(&(now + 1, 0));
        assert_eq!(fired, std::mem::replace(&mut self.sorted, later));
        self.sleep();
        assert!(self.until > now, "an advance left something due behind");
    }

    /// Whatever must hold between any two steps.
    fn check(&self) {
        if let Some(&(first, _)) = self.sorted.first() {
            let first = first.max(self.now);
            assert!(
                self.until <= first,
                "the driver oversleeps the first deadline"
            );
        }
        for &(deadline, cell) in &self.sorted {
            assert!(self.covers(cell, deadline), "cell {cell} was forgotten");
        }
        self.check_lists();
        // A lease costs a link and an early look, each with two looks, and the same again when
        // they find that it has changed; what lies beyond the horizon is looked at on the way.
        let on_the_way = (self.advances).min((self.now - self.start) / 1_032_193);
        let most = 8 * self.leases + 2 * on_the_way * self.deadlines.len() as u64;
        assert!(self.looks <= most, "{} looks, not {most}", self.looks);
    }

    /// Each cell is on exactly the lists that its word says.
    fn check_lists(&self) {
        let mut linked = BTreeSet::new();
        let mut queued = BTreeSet::new();
        for (shard, kept) in self.wheel.shards.iter().zip(self.wheel.kept.lock().iter()) {
            for head in shard.slots.iter().flat_map(|heads| &heads.0) {
                self.walk(Link::Slot, head.load(Ordering::Relaxed), &mut linked);
            }
            for &head in kept.moving.iter().flatten() {
                self.walk(Link::Slot, head, &mut linked);
            }
            self.walk(
                Link::Early,
                shard.early.load(Ordering::Relaxed),
                &mut queued,
            );
        }
        for cell in 0..self.deadlines.len() as u32 {
            let word = Word(self.memory.wheel(cell).load(Ordering::Relaxed));
            assert_eq!(word.is_linked(), linked.contains(&cell), "cell {cell}");
            assert_eq!(word.is_markd(), queued.contains(&cell), "cell {cell}");
        }
    }

    fn walk(&self, link: Link, mut head: u32, seen: &mut BTreeSet<u32>) {
        while head != 0 {
            assert!(seen.insert(head - 1), "cell {} is listed twice", head - 1);
            head = link.next(&self.memory, head - 1);
        }
    }
}

/// Drives a wheel by `data` and checks it against a sorted list; panics if they differ.
#[cfg_attr(
    not(fuzzing),
    expect(unreachable_pub, reason = "public for the fuzz target")
)]
pub fn fuzz_wheel(data: &[u8]) {
    let mut data = data.iter().copied();
    let mut byte = || data.next();
    let Some(setup) = byte() else { return };
    let cells = 1 + u32::from(setup >> 4) * 8;
    let mut oracle = Oracle::new(1 << (setup & 3), cells, u64::from(setup) << 39);
    if setup & 8 != 0 {
        // A wheel that has turned for long.
        let by = LAST_NOW / 2 + u64::from(setup);
        oracle.step(Step::Advance { by });
    }
    while let (Some(kind), Some(cell)) = (byte(), byte()) {
        // Two bits for the step, six for the size of the number and where it lies about a power of
        // two: that is where levels, horizons and widths end.
        let shift = u32::from(kind >> 2 & 0x3F) * 43 / 64;
        let near = byte().map_or(0, u64::from);
        let ticks = (1 << shift) + near.saturating_sub(128);
        let cell = u32::from(cell);
        oracle.step(match kind & 3 {
            0 => Step::Lease { cell, after: ticks },
            1 if cell & 1 == 0 => Step::NextDue,
            1 => Step::Free { cell: cell >> 1 },
            2 => Step::Lease { cell, after: near },
            _ => Step::Advance { by: ticks },
        });
    }
}
