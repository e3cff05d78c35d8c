//! The lock-free table of leases.
//!
//! # Ground rules
//!
//! The numbered rules are those of the model-checked protocol (`tests/model/README.md` has the
//! models). In short:
//!
//! 1. **Grant** (`grant.rs`): a cell is filled in private and published by one CAS on the whole
//!    bucket word. The cell is taken *before* the bucket is loaded, else a released cell could come
//!    back as the thread's own and be linked to itself.
//! 2. **Release by handle** (`ending.rs`): first by the word of the grant, see below. Otherwise load
//!    the bucket, *then* the state; unlink a first cell by one CAS on the bucket, kill a deeper one.
//! 3. **Renew** (`renew.rs`): one CAS on the exact state.
//! 4. **Kill**: CAS `HELD -> KILLED_*` on the exact state, of a cell found linked in its bucket.
//! 5. **Finish a kill**: unlink if first, else `KILLED_* -> DEAD` if still linked.
//! 6. Whoever skips or frees a killed cell first CASes it to `DEAD`; that CAS's winner **reports**
//!    the end. Each lease's end is reported exactly once.
//! 7. **By key** (`lookup.rs`): walk, load state, key and token, reload the bucket, only then CAS the
//!    state.
//! 8. **Records** (`mark.rs`): a key that others wait for, or whose leases are not all plain ones, has a
//!    record, and a mark in its bucket: a cell that is no lease and refuses all who don't come by way of
//!    the record. Whoever ends a lease looks for it, unless that end has emptied the bucket.
//! 9. **Freeze** (`growth.rs`): the bucket's word first, then each held state, with the bucket
//!    reloaded between load and CAS.
//! 10. **Copy**: fresh cells, published by one CAS on the `UNINIT` word; losers free theirs. When all
//!     children of a bucket stand, `FROZEN -> DONE`, whose winner alone frees the old chain.
//! 11. **A resize ends** when all parent buckets are `DONE`: the new array forgets its parent, and
//!     only then may the next resize start.
//! 12. **Rebuild** (`growth.rs`): the same copy, in place, when dead cells pile up behind a live one.
//! 13. Every walk reloads its bucket every [`WALK_CHECK`] cells: recycled cells can form a cycle.
//!
//! What differs from the first model, and is modelled anew in `tests/model`:
//!
//! - Arrays are made afresh for each resize. So no operation reads the shared pointer to the newest:
//!   a thread works on the array it last saw until a `FROZEN` or `DONE` flag tells it to look again.
//! - Shrinking: a child bucket with two parents.
//! - The wheel keeps its registration of a cell across the cell's lives, and so must find the cell
//!   linked in its key's bucket before it kills (rule 4).
//! - A resize raises the token base by one instead of every version.
//! - *Release by the word of the grant*: the bucket's word follows from token and cell, so a release
//!   of a cell alone in its bucket looks at the state and CASes the bucket without having loaded it.
//!   Besides being shorter, it asks for the bucket's cache line once.
//!
//! These have letters there, and so have the ends of versions, eras and cells (rules H and J) and the shutting
//! of a table (rule K). `tests/model/rules.sh` sees to it that each rule stands at some step of this module, and
//! that there is none but those.
//!
//! (Rule 8 differs from the first model,
//! which had a bit in the lease's state: a release by the word of the grant would miss that. What stands in
//! no bucket at all, the timers of records and sessions, is in `timer.rs`.)
//!
//! # Orderings
//!
//! - State loads acquire, before key, token, owner and next; all stores release (see `cell.rs`).
//! - CAS on buckets and states is sequentially consistent, which on x86-64 and with `CASAL` on
//!   Aarch64 costs nothing over acquire-release.
//! - *A killer's state CAS, then bucket load* against *a releaser's bucket load, then state load*:
//!   sequentially consistent on both sides. If the releaser's loads come first in the one order,
//!   the killer's CAS finds the releaser's work or its later CAS on the bucket fails; if the killer's
//!   CAS comes first, the releaser sees `KILLED`.
//! - *A grant's bucket CAS, then load of the cell's wheel word* against *the wheel's store of that
//!   word, then load of the state*: a fence between on both sides. If the grant's fence comes first,
//!   the wheel sees the new lease; if the wheel's, the grant sees that it has to register.

mod allowance;
mod array;
mod bucket;
mod cell;
mod chain;
mod ending;
mod fetch;
mod free;
mod grant;
mod growth;
mod layout;
mod local;
mod lookup;
#[cfg(all(test, tenure_loom))]
mod loom_models;
mod mark;
mod renew;
mod restore;
mod slab;
#[cfg(all(test, not(any(tenure_loom, tenure_shuttle))))]
mod tests;
mod timer;

pub(crate) use self::allowance::{GROUPS_A_STEP, Steps};
pub(crate) use self::cell::{Cell, Contents, Stamp};
pub(crate) use self::ending::{Ended, Look};
pub(crate) use self::fetch::{CHUNK, Turned};
pub(crate) use self::grant::{Ask, Beside, FEW, Granted, Refused};
#[cfg(all(test, not(any(tenure_loom, tenure_shuttle))))]
pub(crate) use self::layout::Narrow;
pub(crate) use self::layout::{Layout, Wide};
pub use self::local::Loss;
pub(crate) use self::local::{Counters, LastStamp, Local, Moved, Note};
pub(crate) use self::lookup::{Found, NotFound};
pub(crate) use self::mark::Marked;
pub(crate) use self::renew::{Unrenewed, Wanted};
pub(crate) use self::restore::Origin;
pub(crate) use self::timer::Due;

use self::allowance::Allowance;
use self::array::Array;
use self::bucket::BucketWord;
use self::cell::State;
use self::slab::Slab;
use crate::key::BucketHasher;
use crate::sync::{Arc, AtomicBool, AtomicU64, AtomicUsize, SharedArc};

/// The greatest token: what a signed 64-bit database column holds.
pub(crate) const MAX_TOKEN: u64 = i64::MAX as u64;

/// Cells that a walk passes before it looks at its bucket again (rule 13).
const WALK_CHECK: usize = 32;

/// Where a lease was last seen, and in which state. A hint, never trusted: whoever uses it makes sure
/// that what stands there is the lease that it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    /// `[low bits of the key's hash : 32 | cell : 32]`; whole words keep results that carry it in
    /// registers.
    pub(crate) place: u64,
    /// The cell's state word.
    pub(crate) state: u64,
}

impl Handle {
    #[inline]
    pub(crate) fn new<L: Layout>(hash: u64, cell: u32, state: State<L>) -> Self {
        Self {
            place: hash << 32 | u64::from(cell),
            state: state.0,
        }
    }

    /// Of a lease that the record holds: with a code for its guard, and a state that no cell is in.
    pub(crate) fn recorded(code: u64) -> Self {
        Self {
            place: code << 32,
            state: u64::MAX,
        }
    }

    /// The code, if it is one of those.
    pub(crate) fn recorded_code(self) -> Option<u64> {
        (self.cell() == 0).then_some(self.place >> 32)
    }

    #[inline]
    pub(crate) fn cell(self) -> u32 {
        self.place as u32
    }

    #[inline]
    pub(crate) fn hash(self) -> u64 {
        self.place >> 32
    }

    #[inline]
    pub(crate) fn state<L: Layout>(self) -> State<L> {
        State::from_raw(self.state)
    }
}

/// Names one grant, with the key's bucket hash at hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name {
    pub(crate) key: crate::Key,
    pub(crate) hash: u64,
    pub(crate) token: u64,
}

/// The table; see the head of this file.
#[derive(Debug)]
pub(crate) struct Table<L: Layout> {
    slab: Slab<L>,
    /// The newest array. Never empty.
    current: SharedArc<Array>,
    hasher: BucketHasher,
    /// The store of free cells (`free.rs`).
    free: AtomicU64,
    /// Cells handed to threads, whether out on lease or in their free lists: what the array is
    /// sized by.
    handed: AtomicUsize,
    /// The next array's token base is at least this.
    need_base: AtomicU64,
    allowance: Allowance,
    /// The last resize that was wanted could not be started, for want of memory.
    stuck: AtomicBool,
    /// Arrays don't shrink below this many buckets.
    min_buckets: usize,
    /// A grant's token is the one that it asks for (`restore.rs`).
    pub(crate) exact: bool,
}

impl<L: Layout> Table<L> {
    /// `None` if the memory can't be had.
    pub(crate) fn new(buckets: usize, hasher: BucketHasher) -> Option<Self> {
        let min_buckets = buckets.next_power_of_two();
        let first = Arc::new(Array::first::<L>(min_buckets, 0, (MAX_TOKEN, false))?);
        Some(Self {
            slab: Slab::new()?,
            current: SharedArc::new(Some(first)),
            hasher,
            free: AtomicU64::new(0),
            handed: AtomicUsize::new(0),
            need_base: AtomicU64::new(0),
            allowance: Allowance::all(),
            stuck: AtomicBool::new(false),
            min_buckets,
            exact: false,
        })
    }

    /// A thread's part of this table.
    pub(crate) fn local(&self, counters: Arc<Counters>) -> Local {
        Local::new(self.newest(), counters)
    }

    #[inline]
    pub(crate) fn hash(&self, key: crate::Key) -> u64 {
        self.hasher.hash(key)
    }

    #[inline]
    pub(crate) fn cell(&self, index: u32) -> Cell<'_> {
        self.slab.cell(index)
    }

    fn newest(&self) -> Arc<Array> {
        self.current.load().expect("there is always a newest array")
    }

    /// Buckets in the newest array, and whether leases are still moving into it.
    pub(crate) fn size(&self) -> (usize, bool) {
        let newest = self.newest();
        (newest.len(), newest.parent.is_some())
    }

    /// Cells that were ever used.
    pub(crate) fn cells(&self) -> usize {
        // The null cell is none.
        self.slab.used() as usize - 1
    }

    /// Bytes of the arrays and of all cells that were ever used.
    pub(crate) fn memory(&self) -> usize {
        let newest = self.newest();
        let parent = newest.parent.load().map_or(0, |parent| parent.len());
        (newest.len() + parent + self.slab.used() as usize * cell::CELL_WORDS) * size_of::<u64>()
    }
}
