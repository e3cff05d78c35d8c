//! What a thread keeps of a table: free cells, the array it last saw, its share of the counters.
//!
//! Nothing here is shared except the counters, which only their thread writes. A `Local` starts at a
//! line of its own: free lists of two threads on one line cost a third of a pair.

use std::task::Waker;
use std::time::Duration;

use super::array::Array;
use super::cell::{Contents, Stamp};
use super::timer::Due;
use crate::Key;
use crate::events::Stream;
use crate::metrics::Report;
use crate::records::Waiter;
use crate::sync::{Arc, AtomicU64, Ordering};

/// Free cells that a thread keeps at most.
pub(crate) const KEPT: usize = 64;
/// Cells that travel between a thread and the table at once.
pub(crate) const BATCH: usize = 32;
const _: () = assert!(KEPT < u8::MAX as usize);

/// A small stack of free cells. It has a place for every `u8`, which spares the checks of bounds, and
/// uses the lowest of them.
#[derive(Debug)]
pub(crate) struct FreeCells {
    /// The top; cells are at 1 and above.
    top: u8,
    cells: [u32; 256],
}

impl FreeCells {
    const fn new() -> Self {
        Self {
            top: 0,
            cells: [0; 256],
        }
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<u32> {
        let cell = self.peek()?;
        self.drop_peeked();
        Some(cell)
    }

    /// The cell that [`pop`](Self::pop) would take.
    #[inline(always)]
    pub(crate) fn peek(&self) -> Option<u32> {
        // At 0 is the null cell.
        let cell = self.cells[usize::from(self.top)];
        (cell != 0).then_some(cell)
    }

    /// Takes the cell that was peeked.
    #[inline(always)]
    pub(crate) fn drop_peeked(&mut self) {
        debug_assert_ne!(self.top, 0);
        self.top = self.top.wrapping_sub(1);
    }

    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        usize::from(self.top) >= KEPT
    }

    /// False if the stack is full: spill first.
    #[inline]
    pub(crate) fn push(&mut self, cell: u32) -> bool {
        let room = !self.is_full();
        if room {
            self.push_checked(cell);
        }
        room
    }

    /// To a stack that was seen not to be full.
    #[inline(always)]
    pub(crate) fn push_checked(&mut self, cell: u32) {
        debug_assert!(!self.is_full() && cell != 0);
        let top = self.top.wrapping_add(1);
        self.cells[usize::from(top)] = cell;
        self.top = top;
    }

    pub(crate) fn extend(&mut self, cells: impl Iterator<Item = u32>) {
        for cell in cells {
            let pushed = self.push(cell);
            debug_assert!(pushed, "a refill comes to an empty list");
        }
    }

    /// The oldest cells, at most a batch: the youngest are warm.
    pub(crate) fn take_oldest(&mut self, into: &mut [u32; BATCH]) -> usize {
        let top = usize::from(self.top);
        let count = top.min(BATCH);
        into[..count].copy_from_slice(&self.cells[1..=count]);
        self.cells.copy_within(1 + count..=top, 1);
        self.top = (top - count) as u8;
        count
    }
}

/// One thread's share of what the table counts. Only that thread writes it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    pub(crate) granted: AtomicU64,
    /// Reported ends.
    pub(crate) ended: AtomicU64,
    pub(crate) expired: AtomicU64,
    pub(crate) revoked: AtomicU64,
    /// The longest time from a deadline to the report of its expiry, in ticks.
    pub(crate) lag: AtomicU64,
}

impl Counters {
    #[inline]
    pub(crate) fn add_grant(&self) {
        let granted = self.granted.load(Ordering::Relaxed);
        self.granted.store(granted + 1, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn add_end(&self) {
        let ended = self.ended.load(Ordering::Relaxed);
        self.ended.store(ended.wrapping_add(1), Ordering::Relaxed);
    }

    /// What was counted as an end, by this thread or another, was none.
    pub(crate) fn take_back_end(&self) {
        let ended = self.ended.load(Ordering::Relaxed);
        self.ended.store(ended.wrapping_sub(1), Ordering::Relaxed);
    }

    /// Grants less ends: below 0 for a thread that ends what others were granted.
    pub(crate) fn leases(&self) -> i64 {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        load(&self.granted)
            .wrapping_sub(load(&self.ended))
            .cast_signed()
    }

    pub(crate) fn add_expired(&self, lag: u64) {
        self.expired
            .store(self.expired.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.lag
            .store(self.lag.load(Ordering::Relaxed).max(lag), Ordering::Relaxed);
    }

    pub(crate) fn add_revoked(&self) {
        self.revoked
            .store(self.revoked.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// A thread's last conversion of a TTL to a deadline: within a tick of a coarse clock it repeats.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastStamp {
    now: u64,
    ttl_secs: u64,
    ttl_nanos: u32,
    pub(crate) stamp: Stamp,
}

impl Default for LastStamp {
    fn default() -> Self {
        Self {
            now: 0,
            ttl_secs: 0,
            // No TTL has as many.
            ttl_nanos: u32::MAX,
            stamp: Stamp::default(),
        }
    }
}

impl LastStamp {
    pub(crate) fn new(now: u64, ttl: Duration, stamp: Stamp) -> Self {
        Self {
            now,
            ttl_secs: ttl.as_secs(),
            ttl_nanos: ttl.subsec_nanos(),
            stamp,
        }
    }

    #[inline(always)]
    pub(crate) fn is_of(&self, now: u64, ttl: Duration) -> bool {
        self.now == now && self.ttl_secs == ttl.as_secs() && self.ttl_nanos == ttl.subsec_nanos()
    }
}

/// A cell published by a copy, to be registered in the wheel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved {
    pub(crate) cell: u32,
    pub(crate) deadline: u64,
}

/// How a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// Its deadline passed.
    Expired,
    /// It was revoked.
    Revoked,
    /// It was released: by its guard, or by its token.
    Released,
    /// Its session was closed, or its session's deadline passed.
    SessionOver,
    /// Its keeper had renewed it for as long as it was told to, and then its deadline passed.
    MaxHold,
    /// Every handle of the manager was dropped.
    Closed,
    /// It may not be lost at all: the table is so full that there is no room to watch it. Ask the lease
    /// itself.
    Unwatched,
}

/// A lease that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    pub(crate) key: Key,
    pub(crate) hash: u64,
    pub(crate) token: u64,
    pub(crate) owner: u64,
    /// In ticks.
    pub(crate) deadline: u64,
    pub(crate) loss: Loss,
    /// Those who observe the manager know of it.
    pub(crate) told: bool,
}

impl Note {
    #[inline]
    pub(crate) fn new(contents: &Contents, hash: u64, loss: Loss) -> Self {
        let Contents {
            key,
            token,
            owner,
            deadline,
        } = *contents;
        Self {
            key,
            hash,
            token,
            owner,
            deadline,
            loss,
            told: false,
        }
    }
}

/// A thread's part of a table; see the head of this file.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Local {
    pub(crate) free: FreeCells,
    /// The newest array this thread has met; a later one may exist.
    pub(crate) array: Arc<Array>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) last: LastStamp,
    /// The clock's tick, as read at the start of the operation under way.
    pub(crate) now: u64,
    /// Copies that this operation published and the wheel has yet to hear of.
    pub(crate) moved: Vec<Moved>,
    /// Leases that this operation ended, of keys that have a record; of all keys if it is `observed`.
    pub(crate) notes: Vec<Note>,
    /// Timers that this operation has seen to be due.
    pub(crate) due: Vec<Due>,
    /// Somebody wants to know of every change.
    pub(crate) observed: bool,
    /// The last lease that they were told the end of.
    pub(crate) last_end: Option<Contents>,
    /// Whom this operation has granted a lease to, to be woken after it.
    pub(crate) wakes: Vec<Waker>,
    /// What recorders and subscribers are to hear of this operation, after it.
    pub(crate) reports: Vec<Report>,
    /// Streams that this operation has written to: the last reference to one drops a waker.
    pub(crate) streams: Vec<Arc<Stream>>,
    /// Waiters that this operation has looked at, for the same reason.
    pub(crate) waiters: Vec<Arc<Waiter>>,
    /// The leases of `counters` that a limit on their number knows of.
    pub(crate) accounted: i64,
    /// The leases that this operation has counted in advance, under such a limit.
    pub(crate) reserved: i64,
    /// Cells went back to the table: it may want to shrink.
    pub(crate) spilled: bool,
    /// This thread has started a resize.
    pub(crate) resized: bool,
    /// The block of tokens runs out: another one is to be asked for.
    pub(crate) wants_block: bool,
}

impl Local {
    /// Goes on with that array, the newest. If the table has been shut in between, and opened again, leases may
    /// last until another limit: what was converted is forgotten.
    pub(super) fn see(&mut self, newest: Arc<Array>) {
        self.array = newest;
        self.last = LastStamp::default();
    }

    /// Whether the operation under way left something to do after it.
    #[inline]
    pub(crate) fn has_chores(&self) -> bool {
        self.spilled
            | self.resized
            | self.wants_block
            | !self.moved.is_empty()
            | !self.notes.is_empty()
            | !self.due.is_empty()
    }

    /// Whether it has something for others to know.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        !(self.wakes.is_empty()
            & self.reports.is_empty()
            & self.streams.is_empty()
            & self.waiters.is_empty())
    }

    /// Remembers what is due. (The wheel looks twice at everything.)
    pub(crate) fn add_due(&mut self, due: Due) {
        if self.due.last() != Some(&due) {
            self.due.push(due);
        }
    }

    pub(crate) fn new(array: Arc<Array>, counters: Arc<Counters>) -> Self {
        Self {
            free: FreeCells::new(),
            array,
            counters,
            last: LastStamp::default(),
            now: 0,
            moved: Vec::new(),
            notes: Vec::new(),
            due: Vec::new(),
            observed: false,
            last_end: None,
            wakes: Vec::new(),
            reports: Vec::new(),
            streams: Vec::new(),
            waiters: Vec::new(),
            accounted: 0,
            reserved: 0,
            spilled: false,
            resized: false,
            wants_block: false,
        }
    }
}
