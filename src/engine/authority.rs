//! What the engine has of a reservation: how it opens and closes for grants, and who is told.
//!
//! Two things keep a manager from granting what it may not: the *limit* of its time (`timeline.rs`), beyond
//! which no lease lasts and from which on nothing is granted, and the *allowance* of its table
//! (`table/allowance.rs`), the last token of its block. Both are looked at where the short path leaves them to
//! the long one, so a grant pays for neither.
//!
//! A grant that has passed the first and is slow to get on may be published after the limit: its lease is over
//! by then, since it ends at the limit too. Once the table is shut, which is soon after, not even that happens.

use std::num::NonZeroU64;
use std::sync::OnceLock;
use std::thread::{self, Thread, ThreadId};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::Engine;
use crate::reservation::{Block, Keeper, ReservationError, Standing};
use crate::sync::{Arc, AtomicBool, Ordering};
use crate::table::Layout;

/// The reservation of an engine, if it has one.
#[derive(Debug, Default)]
pub(crate) struct Authority {
    /// There is a reservation: never taken back, so that who only asks needs no lock.
    pub(crate) exists: AtomicBool,
    /// Calls the backend; whoever tends to it holds the lock.
    keeper: Mutex<Option<Keeper>>,
    /// The thread that does.
    tended_by: Mutex<Option<ThreadId>>,
    /// The thread that does, if it is the manager's.
    thread: OnceLock<Thread>,
    /// The block runs out.
    wants_block: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) is_open: bool,
    pub(crate) resigns: bool,
    pub(crate) block: Option<Block>,
    pub(crate) blocks: u64,
    pub(crate) terms: u64,
    pub(crate) error: Option<ReservationError>,
}

/// Has the keeper to itself.
pub(crate) struct Tending<'a> {
    pub(crate) keeper: MutexGuard<'a, Option<Keeper>>,
    tended_by: &'a Mutex<Option<ThreadId>>,
}

impl Drop for Tending<'_> {
    fn drop(&mut self) {
        *self.tended_by.lock() = None;
    }
}

impl Authority {
    /// The keeper, as soon as nobody else has it; `None` within a call of the backend that this thread has made.
    pub(crate) fn tend(&self) -> Option<Tending<'_>> {
        let me = thread::current().id();
        if *self.tended_by.lock() == Some(me) {
            return None;
        }
        let keeper = self.keeper.lock();
        *self.tended_by.lock() = Some(me);
        Some(Tending {
            keeper,
            tended_by: &self.tended_by,
        })
    }

    pub(crate) fn set_thread(&self, thread: Thread) {
        // There is one, which says so once.
        let _ = self.thread.set(thread);
    }

    /// Has the thread look at what there is to do.
    pub(crate) fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    #[cold]
    pub(super) fn want_block(&self) {
        if !self.wants_block.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    pub(crate) fn wants_block(&self) -> bool {
        self.wants_block.load(Ordering::Acquire)
    }

    pub(crate) fn is_resigning(&self) -> bool {
        self.state.lock().resigns
    }

    /// Notes how the last call of the backend has ended.
    pub(crate) fn note(&self, error: Option<ReservationError>) {
        #[cfg(feature = "tracing")]
        if let Some(error) = &error {
            tracing::warn!(target: "tenure", %error, "reservation");
        }
        self.state.lock().error = error;
    }

    pub(crate) fn error(&self) -> Option<ReservationError> {
        self.state.lock().error.clone()
    }
}

impl<L: Layout> Engine<L> {
    /// Of an engine that no thread has seen yet: nothing is granted until it opens. False if there is no memory.
    pub(crate) fn close_at_birth(&self) -> bool {
        self.time.set_limit(0);
        self.table.shut_at_birth()
    }

    /// Nothing is granted from now on, until the engine opens again. False if there was no memory to make
    /// entirely sure of it.
    pub(crate) fn close_to_grants(&self) -> bool {
        {
            let mut state = self.authority.state.lock();
            state.is_open = false;
            self.time.set_limit(0);
        }
        let shut = self.in_steps(|local, steps| self.table.shut(local, steps));
        // Acquisitions of many keys that wait for the rest of them begin anew: what they have is of before. (One
        // whose session is made after this is granted its first key after the next opening.)
        let sessions: Vec<_> = self.sessions.lock().values().map(Arc::clone).collect();
        for session in sessions {
            self.close_endless(&session);
        }
        shut
    }

    /// All tokens that are granted from now on are above this one.
    pub(crate) fn floor(&self) -> u64 {
        self.table.base()
    }

    /// Grants tokens of that block from now on, and leases that last until `limit` at the latest, on the
    /// manager's clock. The engine is closed. False if it stays so, for want of memory or because it resigns.
    pub(crate) fn open_to_grants(&self, block: Block, limit: u64) -> bool {
        self.authority.wants_block.store(false, Ordering::Release);
        let bounds = (block.first().get(), block.last().get());
        let opened = self.in_steps(|local, steps| {
            let watermark = watermark(block);
            self.table.open(local, steps, bounds, watermark)
        });
        if opened {
            let mut state = self.authority.state.lock();
            state.terms += 1;
            state.add(block);
            drop(state);
            if self.extend_limit(limit) {
                return true;
            }
            // It resigns, and may have shut the table before it was opened.
            self.close_to_grants();
        }
        false
    }

    /// Blocks until leases may be granted, for so long at most. False if they may not.
    pub(crate) fn wait_until_open(&self, timeout: Duration) -> bool {
        let until = Instant::now().checked_add(timeout);
        super::wake_before_blocking();
        let mut state = self.authority.state.lock();
        loop {
            // Open, and not past the limit without anybody having come by.
            let now = self.time.now();
            let open = state.is_open && self.time.authority(now) != Some(Duration::ZERO);
            if open || state.resigns {
                return open;
            }
            match until {
                Some(until) => {
                    if self
                        .authority
                        .changed
                        .wait_until(&mut state, until)
                        .timed_out()
                    {
                        return false;
                    }
                }
                None => self.authority.changed.wait(&mut state),
            }
        }
    }

    /// Leases may last until then. False if the manager resigns.
    pub(crate) fn extend_limit(&self, limit: u64) -> bool {
        let mut state = self.authority.state.lock();
        if state.resigns {
            return false;
        }
        self.time.set_limit(limit);
        state.is_open = true;
        drop(state);
        self.authority.changed.notify_all();
        true
    }

    /// Grants tokens of that block, too.
    pub(crate) fn add_block(&self, block: Block) {
        // First: whoever passes the new watermark wants another one.
        self.authority.wants_block.store(false, Ordering::Release);
        let last = block.last().get();
        self.table.extend_allowance(last, watermark(block));
        self.authority.state.lock().add(block);
    }

    /// Whether that block follows on what may be granted.
    pub(crate) fn follows(&self, block: Block) -> bool {
        block.first().get() == self.table.last_allowed() + 1
    }

    /// Grants nothing any more; the authority is given up as soon as no lease is out.
    pub(crate) fn resign(&self) {
        self.authority.state.lock().resigns = true;
        self.close_to_grants();
        self.authority.changed.notify_all();
        self.authority.wake();
    }

    /// Whether no lease is out that anybody could believe in, and none will be until the engine opens.
    pub(crate) fn is_idle(&self) -> bool {
        if !self.table.is_shut() {
            return false;
        }
        self.advance();
        // The counts may lag behind: a grant is counted after it is published, and a lease that moves to its
        // record has ended for a moment. So when they say that there is none, each place is looked at: the
        // table is shut, so no lease appears there, and what is under way in a record holds its lock.
        self.totals().leases <= 0 && self.save().leases.is_empty()
    }

    /// How things are, for people.
    pub(crate) fn standing(&self) -> Option<Standing> {
        self.authority.exists.load(Ordering::Acquire).then(|| {
            let state = self.authority.state.lock();
            let remaining = self.time.authority(self.time.now());
            Standing::new(&state, remaining)
        })
    }
}

impl State {
    fn add(&mut self, block: Block) {
        self.block = Some(block);
        self.blocks += 1;
    }
}

/// Half of a block is left when the next one is asked for.
fn watermark(block: Block) -> u64 {
    let (first, last) = (block.first().get(), block.last().get());
    first + (last - first) / 2
}

/// Tokens of a block, unless told otherwise: 18 seconds of the busiest key there can be.
pub(crate) const DEFAULT_TOKENS: NonZeroU64 = NonZeroU64::new(1 << 30).unwrap();
