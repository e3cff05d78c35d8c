//! A table that goes on where another one stopped: leases with the tokens that they had, and a counter
//! that starts above all of them.
//!
//! A lease that is put here keeps its token, which is no version of its bucket: it is at most the base of
//! the first array. So a release by the word of the grant (`ending.rs`) never takes it for one of its own,
//! since no version follows from that token, and goes by key.
//!
//! In an *exact* table all tokens are like that: each is the one that was asked for. Versions rise at each
//! grant all the same, and are raised to the token, so that the last version of a bucket is not below any
//! token that was granted in it; but they may be above, since rebuilds, marks and resizes raise them too.

use super::array::Array;
use super::bucket::{DONE, FROZEN, NORMAL};
use super::cell::{Cell, Contents};
use super::grant::{Granted, Refused};
use super::layout::Layout;
use super::local::Local;
use super::{BucketWord, Handle, MAX_TOKEN, Table};
use crate::Key;
use crate::sync::{Arc, SharedArc};

/// Where a table's tokens come from.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Origin {
    /// All tokens that the table counts are above this one.
    pub(crate) floor: u64,
    /// A grant's token is the one that it asks for. Whoever asks sees to it that they rise.
    pub(crate) exact: bool,
}

impl<L: Layout> Table<L> {
    /// A table with no leases yet, and that origin; `None` if the memory can't be had.
    pub(crate) fn with_origin(mut self, origin: Origin) -> Option<Self> {
        self.exact = origin.exact;
        if origin.floor > 0 {
            let first = Array::first::<L>(self.min_buckets, origin.floor, (MAX_TOKEN, false))?;
            self.current = SharedArc::new(Some(Arc::new(first)));
        }
        Some(self)
    }

    /// Puts a lease with its token into the table. The caller knows that the key has none, and no record;
    /// and that the token is not above the floor, or that the table is exact.
    ///
    /// One CAS on the bucket, like a grant.
    pub(crate) fn put(
        &self,
        local: &mut Local,
        contents: &Contents,
        hash: u64,
    ) -> Result<Granted, Refused> {
        let prepare = |cell: Cell<'_>, _, next| cell.prepare::<L>(contents, next);
        let (new, state) = self.place(local, hash, prepare)?;
        local.counters.add_grant();
        let handle = Handle::new(hash, new, state);
        Ok(Granted::new(self.cell(new), handle, contents.token))
    }

    /// Puts the mark of a record into the table. The caller knows that the key has no lease here, and that
    /// nobody else knows of the table yet: so no token has to come with it, as it does from
    /// [`issue`](Self::issue).
    pub(crate) fn put_first_mark(
        &self,
        local: &mut Local,
        key: Key,
        hash: u64,
    ) -> Result<(), Refused> {
        let prepare = |cell: Cell<'_>, version, next| cell.prepare_mark::<L>(key, version, next);
        self.place(local, hash, prepare).map(drop)
    }

    /// Fills in a cell, from the bucket's next version and the rest of its chain, and makes it the first.
    fn place<R>(
        &self,
        local: &mut Local,
        hash: u64,
        prepare: impl Fn(Cell<'_>, u64, u32) -> R,
    ) -> Result<(u32, R), Refused> {
        let free = local.free.pop().or_else(|| self.cell_for_grant(local));
        let new = free.ok_or(Refused::NoCell)?;
        loop {
            let bucket = local.array.bucket(hash);
            let word = bucket.load::<L>();
            if !word.is_normal() {
                self.settle(local, hash);
                continue;
            }
            // As at a grant: no word of a bucket comes back.
            let version = word.version() + 1;
            if version > local.array.version_limit {
                let wanted = local.array.base.saturating_add(version);
                if wanted <= MAX_TOKEN && self.raise_base(local, wanted) {
                    continue;
                }
                self.unprepare(local, new);
                return Err(Refused::NoToken { wanted });
            }
            let prepared = prepare(self.cell(new), version, word.cell());
            if bucket.change(word, BucketWord::<L>::new(version, new, NORMAL)) {
                return Ok((new, prepared));
            }
        }
    }

    /// The last token of the buckets whose hashes end in the `bits` low bits of `class`: no token that was
    /// granted there before the call is above it. 0 if none can have been granted.
    ///
    /// Like [`collect`](Self::collect), whatever size the array takes meanwhile.
    pub(crate) fn newest_token(&self, local: &mut Local, class: usize, bits: u32) -> u64 {
        'again: loop {
            let mut newest = 0;
            let buckets = local.array.len();
            let mut index = class & (buckets - 1);
            while index < buckets {
                let word = local.array.at(index).load::<L>();
                if !word.is_normal() {
                    // A child's counter starts above those of the buckets that moved into it.
                    self.settle(local, index as u64);
                    if matches!(word.flag(), FROZEN | DONE) {
                        continue 'again;
                    }
                    continue;
                }
                newest = newest.max(local.array.base + word.version());
                index += 1 << bits;
            }
            return newest;
        }
    }
}
