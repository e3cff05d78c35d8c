//! A pure timing wheel: `u64` ticks in, cells to look at out; no clock and no thread.
//!
//! The wheel knows cells by their number and keeps two words in each ([`Cells`]): the registration
//! ([`word`]) and the links of the two lists that a cell can be on. It owes each registered cell
//! one *look* no later than the first advance that reaches the tick it was registered for. A look
//! decides nothing: the callback does whatever is due and says when the wheel should come again.
//! Looks may come early, may be repeated, and may find the cell in another life.
//!
//! # Where a cell is
//!
//! A slot is eight lists of cells, each cell on that of its number: a list can only be followed one cache
//! miss after the other, and eight have theirs together. A shard holds three levels of slots: 256 of 1
//! tick each, 256 of 128 ticks, and 128 of 16,384 ticks. A cell is in the slot of its tick if that is less than 256
//! ahead, otherwise on the lowest level that reaches far enough. When the wheel enters a range of a
//! level, the cells of the *next* range begin to move to the level below, where they have a slot
//! already: some in each tick, and what is left when it is their range's turn. So a range with
//! millions of cells delays none that is due.
//!
//! A cell beyond the horizon, at least 2,080,768 ticks away (35 minutes of 1 ms), is linked before
//! it and looked at on the way: every 1,032,193 ticks at least, and at most every 2,097,151.
//!
//! A cell stays where it is linked until that tick, even if its lease ends before or is renewed:
//! a lease costs the wheel one visit per TTL and not one per operation. If it is wanted *before*
//! its linked tick, its word says so, and the cell goes on the shard's early stack, which the next
//! advance moves into a heap that only it touches.
//!
//! # Ground rules
//!
//! - Registrars take no lock and wait for nobody. Only one thread advances at a time; one that
//!   finds another at it leaves its tick in `wanted`, and the other goes on to that tick.
//! - Whoever links an unlinked cell by CAS on its word pushes it on a slot. From then on the slot's
//!   link is the list's, until an advance has taken the list. Likewise for the mark `queued`, the
//!   early link and the early stack.
//! - Lists are pushed to by CAS and taken whole by a swap, never popped: no ABA problem.
//! - A list in hand is nobody else's; an advance that is stopped half-way, by a panic of the
//!   callback, puts it back. What is still to be moved stays in hand from one advance to the next.
//!
//! # Races, and who looks at what last
//!
//! Each is a Dekker pattern: both sides write, fence, then read what the other wrote.
//!
//! - *A new deadline against a firing.* Grants and renewals publish the deadline, fence, then load
//!   the word. An advance changes the word, fences, then looks at the cell once more
//!   (`Turn::look_again`). Either the deadline's side sees the changed word, or the advance sees
//!   the deadline; whoever sees registers.
//! - *A push against the position.* A registrar pushes the cell on the slot that it found ahead,
//!   fences, then reads the position again (`Shard::link`); an advance stores the position, fences,
//!   then takes the slots it passed. A registrar that finds its slot passed flags it `overdue`,
//!   and every advance takes the flagged slots. Before it does so, the level may have gone round, and
//!   the slot have been taken for another range: so an advance that takes a flagged slot works off what
//!   has come out of it and is still to be moved, too.
//! - *A registration against the driver's sleep.* A registrar queues the cell, fences, then reads
//!   `sleep_until` and asks for a wake-up if it is later; a driver publishes `sleep_until`, fences,
//!   then asks once more what is due ([`Wheel::prepare_sleep`]). An advance by another thread does
//!   at its end what a registrar does.
//!
//! A registrar that is stopped between its CAS and its push delays that one cell, no other.
//!
//! # Costs
//!
//! About 20 KiB a shard; two words a cell, one more heap entry of 16 bytes while a cell is wanted
//! early. Registering: two CASes on the cell, one on the slot, two fences (one of which comes with the
//! CAS on x86-64). A look: one CAS on the cell and one such fence besides the callback, which is called
//! twice. An advance: eight loads of one line for each slot passed, at most 640 slots a shard however far
//! it jumps; all else is per cell due, plus one move for a cell that was registered 256 ticks ahead or
//! more, and two for 32,768; and, of cells that are wanted early, a look at each of those that wait for it
//! whenever their number has doubled, if a quarter of 64 of them no longer count. Of a tick in which a million
//! cells are due, the last is looked at when the others have been: some 150 ms later.
//!
//! A move is one CAS on the cell and one on a slot: some 150 ns for a cell that is in no cache and comes
//! alone. A wheel moves 512 cells from each level in each tick, and is due at every tick while it has some
//! to move.
//! A million cells of one range, which would take 140 ms in one advance, are shared out over 2,000 of
//! them. Only if more than 65,536 cells are registered for 128 ticks, or more than
//! 8,388,608 for 16,384, or if the wheel is turned by jumps, are there any left to be moved at once when
//! their range has come.

mod advances;
#[cfg(all(feature = "internals", not(any(tenure_loom, tenure_shuttle))))]
pub(crate) mod internals;
mod shard;
mod turn;
mod word;

#[cfg(all(test, not(any(tenure_loom, tenure_shuttle))))]
mod level_tests;
#[cfg(all(test, tenure_loom))]
mod models;
#[cfg(any(fuzzing, all(test, not(any(tenure_loom, tenure_shuttle)))))]
mod oracle;
#[cfg(all(test, not(any(tenure_loom, tenure_shuttle))))]
mod tests;

use crossbeam_utils::CachePadded;

pub(crate) use self::advances::Advances;
#[cfg(fuzzing)]
pub use self::oracle::fuzz_wheel;
use self::shard::{HORIZON_BITS, Shard, clamp};
use self::turn::{Kept, Tally, Turn};
use self::word::Word;
use crate::sync::{AtomicU64, Mutex, Ordering, fence};

/// The last tick that the wheel can be turned to, from its start: one step before deadlines stop
/// fitting a word.
pub(crate) const LAST_NOW: u64 = word::LAST_TICK - (1 << HORIZON_BITS);

/// Cells go to shards in blocks of this many, `2^3`: neighbours come from one thread's free list.
const BLOCK_BITS: u32 = 3;

/// The two words that the wheel keeps in each cell, both 0 at first.
pub(crate) trait Cells {
    /// The registration word, read by [`Wheel::covers`].
    fn wheel(&self, cell: u32) -> &AtomicU64;
    /// The links.
    fn wheel_next(&self, cell: u32) -> &AtomicU64;
    /// Both.
    #[inline]
    fn words(&self, cell: u32) -> (&AtomicU64, &AtomicU64) {
        (self.wheel(cell), self.wheel_next(cell))
    }
    /// These are about to be looked at or moved, one after the other. Of those whose word `is_due`, whatever a
    /// look takes from memory can be brought at the same time.
    fn fetch(&self, cells: impl Iterator<Item = u32>, is_due: impl Fn(&AtomicU64) -> bool) {
        let _ = (cells, is_due);
    }
}

/// What an advance did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Advanced {
    /// How often a cell was looked at.
    pub(crate) looks: u64,
    /// Whether a sleeping driver must be woken.
    pub(crate) wake: bool,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Wheel {
    /// The tick that it started at. Inside, ticks count from there, and nobody has ticks from before.
    start: u64,
    shards: Box<[CachePadded<Shard>]>,
    /// Until when the driver sleeps: 0 while it is awake, `u64::MAX` if only a wake-up ends it.
    sleep_until: CachePadded<AtomicU64>,
    /// The greatest tick that any thread wanted the wheel turned to.
    wanted: CachePadded<AtomicU64>,
    /// Held by the thread that advances.
    kept: Mutex<Box<[Kept]>>,
}

impl Wheel {
    /// A wheel that stands at tick `start`, in `shards` shards or a few more.
    pub(crate) fn new(shards: usize, start: u64) -> Self {
        let shards = shards.max(1).next_power_of_two();
        Self {
            start,
            shards: (0..shards)
                .map(|_| CachePadded::new(Shard::new(shards.ilog2())))
                .collect(),
            sleep_until: CachePadded::new(AtomicU64::new(0)),
            wanted: CachePadded::new(AtomicU64::new(0)),
            kept: Mutex::new((0..shards).map(|_| Kept::default()).collect()),
        }
    }

    /// Whether a cell with this registration word will be looked at no later than `tick`.
    ///
    /// The word must be loaded after a sequentially consistent fence that comes after the deadline
    /// was published; then true is a promise. The tick is not before the wheel's start, and below
    /// `u64::MAX`.
    pub(crate) fn covers(&self, word: u64, tick: u64) -> bool {
        debug_assert!(tick >= self.start, "tick {tick} is before the wheel's time");
        debug_assert!(tick < u64::MAX, "an unlinked cell covers no tick");
        Word(word).first_look() <= tick.wrapping_sub(self.start)
    }

    /// Whether that is so because the cell is linked there or before: the cheap half of
    /// [`covers`](Self::covers), and true of most cells.
    #[inline(always)]
    pub(crate) fn is_linked_by(&self, word: u64, tick: u64) -> bool {
        Word(word).is_linked_by(tick.wrapping_sub(self.start))
    }

    /// Makes sure that the cell is looked at no later than `tick`, and returns whether the driver
    /// must be woken for that. A tick that has passed means the next advance.
    ///
    /// The deadline must have been published before, for the look to see it.
    #[cold]
    #[must_use]
    pub(crate) fn register(&self, cells: &impl Cells, cell: u32, tick: u64) -> bool {
        self.register_at(cells, cell, tick.saturating_sub(self.start))
    }

    /// The same, for a tick that counts from the wheel's start.
    fn register_at(&self, cells: &impl Cells, cell: u32, tick: u64) -> bool {
        // Partner: the fence in `Turn::look_again`, for callers that loaded the word without one.
        fence(Ordering::SeqCst);
        let shard = self.shard(cell);
        let word = cells.wheel(cell);
        // Acquire, here and on failure: with a linked word comes the position that it was linked
        // under, so that its tick is no further from ours than a delta can say.
        let mut seen = Word(word.load(Ordering::Acquire));
        loop {
            let position = shard.position.load(Ordering::Acquire);
            let tick = tick.max(position);
            if seen.first_look() <= tick {
                return false;
            }
            let new = if seen.is_linked() {
                seen.with_early(tick).with_queued()
            } else {
                Word::linked_at(clamp(tick, position, cell)).in_place_of(seen)
            };
            // Release: an advance that meets the word sees what led to it.
            match word.compare_exchange_weak(seen.0, new.0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) if seen.is_linked() => {
                    return self.asleep_at(shard.hurry(cells, cell, tick, !seen.is_markd()));
                }
                Ok(_) => return self.asleep_at(shard.link(cells, cell, new.tick())),
                Err(now) => seen = Word(now),
            }
        }
    }

    /// Whether the driver would sleep through `visit`; a sequentially consistent fence must lie
    /// between the queueing for `visit` and this. Partner: the fence in `prepare_sleep`. If ours
    /// comes first, the driver finds what we queued; if theirs, we see how long it sleeps.
    fn asleep_at(&self, visit: u64) -> bool {
        visit < self.sleep_until.load(Ordering::Relaxed)
    }

    /// Turns the wheel to `now`, and calls `look` for each cell whose tick has come; `None` if
    /// another thread is turning it, which then goes on to `now` before it returns.
    ///
    /// `look` is given the cell and the tick that the wheel is being turned to, which is later than
    /// `now` if another thread wanted that. It does what is due by that tick and returns the tick of
    /// the cell's next look, or `None` if there is nothing to wait for. It is called at least twice
    /// for each cell, must stand that, may register cells, and may even advance (which does
    /// nothing). A returned tick that is not after `now` means the next advance. A `now` behind the wheel's is taken as the wheel's.
    pub(crate) fn advance_to(
        &self,
        cells: &impl Cells,
        now: u64,
        mut look: impl FnMut(u32, u64) -> Option<u64>,
    ) -> Option<Advanced> {
        let start = self.start;
        let mut look = |cell, now| {
            let next = look(cell, start + now);
            next.map(|tick: u64| tick.saturating_sub(start))
        };
        // A wheel at its end stands still instead of wrapping.
        let now = now.saturating_sub(start).min(LAST_NOW);
        self.wanted.fetch_max(now, Ordering::AcqRel);
        let mut advanced = None::<Advanced>;
        loop {
            // Partner: the fence below. If ours comes first, the thread that holds the lock sees
            // our tick after it let go; if theirs, we get the lock.
            fence(Ordering::SeqCst);
            let Some(mut kept) = self.kept.try_lock() else {
                return advanced;
            };
            let now = self.wanted.load(Ordering::Acquire);
            let pass = self.turn_to(&mut kept, cells, now, &mut look);
            drop(kept);
            let before = advanced.map_or((0, false), |before| (before.looks, before.wake));
            advanced = Some(Advanced {
                looks: before.0 + pass.looks,
                wake: before.1 | pass.wake,
            });
            fence(Ordering::SeqCst);
            if self.wanted.load(Ordering::Relaxed) == now {
                return advanced;
            }
        }
    }

    fn turn_to(
        &self,
        kept: &mut [Kept],
        cells: &impl Cells,
        now: u64,
        look: &mut impl FnMut(u32, u64) -> Option<u64>,
    ) -> Advanced {
        let mut tally = Tally {
            looks: 0,
            earliest: u64::MAX,
            wake: false,
        };
        for (shard, kept) in self.shards.iter().zip(kept) {
            let mut turn = Turn {
                wheel: self,
                shard,
                cells,
                look,
                now,
                kept,
                tally: &mut tally,
                lists: shard::EMPTY,
                done: true,
            };
            turn.run();
            // Looks take time, in which something may have become due.
            if turn.has_more() {
                turn.run();
            }
        }
        // As a registrar does, for everything that this advance has queued again.
        fence(Ordering::SeqCst);
        Advanced {
            looks: tally.looks,
            wake: tally.wake | self.asleep_at(tally.earliest),
        }
    }

    /// Bytes of the shards.
    pub(crate) fn memory(&self) -> usize {
        size_of_val(&*self.shards)
    }

    /// The first tick at which an advance has something to do, `None` if nothing is registered.
    ///
    /// Never later than the tick of any cell whose registration is complete; earlier when cells
    /// have to be moved, which takes a few advances on a cell's way. It is not after the wheel's
    /// position if something is overdue. Costs up to 5,120 loads of 320 lines a shard.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.first_due().map(|due| self.start + due)
    }

    fn first_due(&self) -> Option<u64> {
        let due = self.shards.iter().map(|shard| shard.next_due()).min();
        due.filter(|&due| due < u64::MAX)
    }

    /// The driver is about to sleep until tick `until` (`None`: until it is woken). False if it
    /// must not, because something is due before; else whoever registers anything before `until`
    /// is told to wake it, and it must call [`woke`](Self::woke) when it goes on.
    pub(crate) fn prepare_sleep(&self, until: Option<u64>) -> bool {
        let until = until.map_or(u64::MAX, |until| until.saturating_sub(self.start));
        self.sleep_until.store(until, Ordering::Relaxed);
        // Partner: the fence before each `asleep_at`.
        fence(Ordering::SeqCst);
        if self.first_due().is_some_and(|due| due < until) {
            self.woke();
            return false;
        }
        true
    }

    /// The driver is awake: nobody needs to wake it, it will ask what is due before it sleeps.
    pub(crate) fn woke(&self) {
        self.sleep_until.store(0, Ordering::Relaxed);
    }

    fn shard(&self, cell: u32) -> &Shard {
        &self.shards[(cell >> BLOCK_BITS) as usize & (self.shards.len() - 1)]
    }
}
