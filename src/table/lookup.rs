//! Rule 7: by key; and the walk over all leases.

use super::array::{Array, Bucket};
use super::bucket::{DONE, FROZEN};
use super::cell::{Cell, Contents, State};
use super::ending::Ended;
use super::layout::Layout;
use super::local::Local;
use super::{BucketWord, Handle, Table, WALK_CHECK};
use crate::Key;

/// A lease found in its bucket, which has not changed between the walk and the end of it.
///
/// Its deadline may have passed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found<L: Layout> {
    hash: u64,
    pub(crate) cell: u32,
    pub(crate) state: State<L>,
    pub(crate) contents: Contents,
    /// Of its deadline.
    pub(super) era: u64,
    /// The bucket's word at the end of the walk.
    pub(super) word: BucketWord<L>,
    /// The last token of the bucket.
    newest: u64,
}

/// No lease of the key; the last token of its bucket, and whether the key has a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotFound {
    newest: u64,
    pub(crate) marked: bool,
}

impl<L: Layout> Found<L> {
    pub(crate) fn handle(&self) -> Handle {
        Handle::new(self.hash, self.cell, self.state)
    }

    pub(crate) fn gone(&self) -> NotFound {
        NotFound {
            newest: self.newest,
            marked: false,
        }
    }
}

impl NotFound {
    /// What became of a grant with that token.
    ///
    /// Idle keys have no memory of their own, so a token that another key of the bucket was given
    /// reads as expired. It names no live lease of this key in either case.
    pub(crate) fn ended(self, token: u64) -> Ended {
        if self.marked {
            Ended::Recorded
        } else {
            self.over(token)
        }
    }

    /// The same, of a grant that the key's record doesn't know either.
    pub(crate) fn over(self, token: u64) -> Ended {
        if token > self.newest {
            Ended::NeverGranted
        } else {
            Ended::Expired
        }
    }
}

/// A lease that was come upon in its bucket. What its cell says holds if the bucket
/// [stands](Self::stands) as it was.
#[derive(Clone, Copy)]
pub(crate) struct Spotted<'t, 'a, L: Layout> {
    bucket: Bucket<'a>,
    word: BucketWord<L>,
    pub(super) at: u32,
    pub(super) cell: Cell<'t>,
    pub(super) state: State<L>,
}

impl<L: Layout> Spotted<'_, '_, L> {
    /// Whether the bucket has not changed up to now.
    #[inline(always)]
    pub(super) fn stands(&self) -> bool {
        self.bucket.load_in_order::<L>() == self.word
    }
}

impl<L: Layout> Table<L> {
    /// The lease that stands under the key, if it is one of the first so many of its bucket, and nothing but
    /// leases is before it. `None` tells nothing: then [`find`](Self::find) does.
    #[inline(always)]
    pub(super) fn spot<'t, 'a>(
        &'t self,
        array: &'a Array,
        (key, hash): (Key, u64),
        few: usize,
    ) -> Option<Spotted<'t, 'a, L>> {
        let bucket = array.bucket(hash);
        let word = bucket.load::<L>();
        if !word.is_normal() {
            return None;
        }
        let mut at = word.cell();
        for _ in 0..few {
            // The null cell is no lease.
            let cell = self.cell(at);
            let state = cell.state::<L>();
            if !state.is_held() {
                return None;
            }
            if cell.key() == key {
                return Some(Spotted {
                    bucket,
                    word,
                    at,
                    cell,
                    state,
                });
            }
            at = cell.next();
        }
        None
    }

    /// The lease that stands under the key, where that is as simple, and its deadline `is_live`.
    #[inline(always)]
    pub(crate) fn live_spotted(
        &self,
        local: &Local,
        (key, hash): (Key, u64),
        few: usize,
        is_live: impl Fn(u64) -> bool,
    ) -> Option<Contents> {
        let spotted = self.spot(&local.array, (key, hash), few)?;
        let found = spotted.cell.contents(spotted.state);
        (spotted.stands() && is_live(found.deadline)).then_some(found)
    }

    /// The lease that stands under the key, over or not.
    ///
    /// Lock-free; a retry means that the bucket changed.
    pub(crate) fn find(
        &self,
        local: &mut Local,
        key: Key,
        hash: u64,
    ) -> Result<Found<L>, NotFound> {
        'again: loop {
            let bucket = local.array.bucket(hash);
            let word = bucket.load::<L>();
            if !word.is_normal() {
                self.settle(local, hash);
                continue;
            }
            let newest = local.array.base + word.version();
            let mut at = word.cell();
            let (mut steps, mut marked) = (0, false);
            while at != 0 {
                let cell = self.cell(at);
                let state = cell.state::<L>();
                marked |= state.is_mark() && cell.key() == key;
                if state.is_lease() && cell.key() == key {
                    let (contents, era) = (cell.contents(state), cell.era());
                    // Rule 7: a private copy says the same of itself.
                    if bucket.load_in_order::<L>() != word {
                        continue 'again;
                    }
                    return Ok(Found {
                        hash,
                        cell: at,
                        state,
                        contents,
                        era,
                        word,
                        newest,
                    });
                }
                at = cell.next();
                steps += 1;
                if steps % WALK_CHECK == 0 && bucket.load::<L>() != word {
                    continue 'again;
                }
            }
            if bucket.load_in_order::<L>() == word {
                return Err(NotFound { newest, marked });
            }
        }
    }

    /// Collects the leases whose hash ends in the `bits` low bits of `class`, over or not.
    ///
    /// A lease that is out from the start of the call to its end is found exactly once, whatever
    /// size the array takes meanwhile.
    pub(crate) fn collect(
        &self,
        local: &mut Local,
        class: usize,
        bits: u32,
        into: &mut Vec<Contents>,
    ) {
        let class_mask = (1 << bits) - 1;
        'again: loop {
            into.clear();
            let buckets = local.array.len();
            let mut index = class & (buckets - 1);
            while index < buckets {
                // In an array larger than 2^bits the class is several buckets.
                if !self.collect_bucket(local, index, into) {
                    continue 'again;
                }
                index += 1 << bits;
            }
            // In a smaller one, a bucket is several classes.
            into.retain(|lease| self.hash(lease.key) as usize & class_mask == class);
            return;
        }
    }

    /// Appends a snapshot of one bucket; false if the thread's array is no longer the newest.
    fn collect_bucket(&self, local: &mut Local, index: usize, into: &mut Vec<Contents>) -> bool {
        let start = into.len();
        'again: loop {
            into.truncate(start);
            let bucket = local.array.at(index);
            let word = bucket.load::<L>();
            if !word.is_normal() {
                self.settle(local, index as u64);
                if matches!(word.flag(), FROZEN | DONE) {
                    return false;
                }
                continue;
            }
            let mut at = word.cell();
            let mut steps = 0;
            while at != 0 {
                let cell = self.cell(at);
                let state = cell.state::<L>();
                if state.is_lease() {
                    into.push(cell.contents(state));
                }
                at = cell.next();
                steps += 1;
                if steps % WALK_CHECK == 0 && bucket.load::<L>() != word {
                    continue 'again;
                }
            }
            if bucket.load_in_order::<L>() == word {
                return true;
            }
        }
    }
}
