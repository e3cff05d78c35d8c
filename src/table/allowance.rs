//! Rule K: which tokens may be granted, where they come in blocks; and whether any may.
//!
//! A manager with a reservation may grant tokens up to the last of its block. The short path asks its array's
//! [`grant_limit`](Array::grant_limit) only, and knows nothing of blocks; who meets that limit comes here. The
//! limit is first set to the block's *watermark*: whoever passes it has the next block asked for, and from then
//! on the limit is the block's last token. A block that follows on the last one only raises the allowance.
//!
//! A table that is **shut** grants nothing, and it is not the allowance that makes sure of this: a thread may
//! have read its limit long ago. All buckets move to an array that is shut from its birth. So when
//! [`Table::shut`] returns, every bucket that a grant under way may hold is `DONE`, its compare-and-swap fails,
//! and the array that it finds next refuses it: no lease appears any more. Renewals and releases go on.
//!
//! A table is opened by another move, to an array whose base is just below the first token of a new block at the
//! least, so every token granted there is above it; the shut array, which all come from, grants none. A limit
//! that some thread sets by an older allowance is only lower (less the new base, it is nothing), and whoever
//! meets it looks here again.
//!
//! | array | allowance | who is granted what |
//! |---|---|---|
//! | open | from before | tokens of the block, whatever the array |
//! | moving to a shut one | 0 | the same, in buckets that have not moved: the block is still ours |
//! | shut | 0 | nothing |
//! | moving to an open one | 0 | nothing: the limit of the new array is 0 |
//! | open, all moved | the new block's | tokens above its base, so of the new block |

use super::array::Array;
use super::layout::Layout;
use super::local::Local;
use super::{MAX_TOKEN, Table};
use crate::sync::{Arc, AtomicU64, Ordering};

/// Groups of buckets that are moved at once by whoever has other things to do: less than a tick of work.
pub(crate) const GROUPS_A_STEP: usize = 2048;

/// How far a move of all buckets has come.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    moved: usize,
}

#[derive(Debug)]
pub(super) struct Allowance {
    /// The greatest token that may be granted.
    last: AtomicU64,
    /// Who grants a greater one than this has the next block asked for.
    watermark: AtomicU64,
}

impl Allowance {
    /// Every token there is.
    pub(super) fn all() -> Self {
        Self {
            last: AtomicU64::new(MAX_TOKEN),
            watermark: AtomicU64::new(MAX_TOKEN),
        }
    }

    /// The greatest token that may be granted without anybody being told.
    pub(super) fn unwatched(&self) -> u64 {
        let watermark = self.watermark.load(Ordering::Acquire);
        watermark.min(self.last.load(Ordering::Acquire))
    }

    fn set(&self, last: u64, watermark: u64) {
        self.watermark.store(watermark, Ordering::Release);
        self.last.store(last, Ordering::Release);
    }
}

impl<L: Layout> Table<L> {
    /// Makes the thread's array one that may grant the token `wanted`. False if that can't be: it is not
    /// reserved, the table is shut, or there is no memory.
    ///
    /// `next` is what would be granted if no particular token were wanted: only that uses a block up.
    #[cold]
    pub(super) fn allow(&self, local: &mut Local, wanted: u64, next: u64) -> bool {
        let last = self.allowance.last.load(Ordering::Acquire);
        let watermark = &self.allowance.watermark;
        let within = if wanted > last { next } else { wanted };
        if within > watermark.load(Ordering::Acquire) {
            local.wants_block = true;
            watermark.fetch_max(last, Ordering::AcqRel);
        }
        if wanted > last || local.array.is_shut() {
            return false;
        }
        let far = local.array.base + local.array.version_limit < wanted;
        if far && (!self.raise_base(local, wanted) || local.array.is_shut()) {
            return false;
        }
        local.array.allow(self.allowance.unwatched());
        true
    }

    /// All tokens that are granted from now on are above this one.
    pub(crate) fn base(&self) -> u64 {
        self.newest().base
    }

    /// The greatest token that may be granted.
    pub(crate) fn last_allowed(&self) -> u64 {
        self.allowance.last.load(Ordering::Acquire)
    }

    /// Tokens up to `last` may be granted too. They follow on those that might be before.
    pub(crate) fn extend_allowance(&self, last: u64, watermark: u64) {
        self.allowance.set(last, watermark);
    }

    /// As [`shut`](Self::shut), of a table that no thread has seen yet.
    pub(crate) fn shut_at_birth(&self) -> bool {
        self.allowance.set(0, 0);
        let newest = self.newest();
        let shut = Array::first::<L>(newest.len(), newest.base, (0, true));
        shut.is_some_and(|array| self.current.replace(&newest, Arc::new(array)))
    }

    /// Sees to it that nothing is granted from now on, a step at a time: `None` if there are more. False if there
    /// is no memory for it.
    pub(crate) fn shut(&self, local: &mut Local, steps: &mut Steps) -> Option<bool> {
        self.allowance.set(0, 0);
        self.move_some(local, steps, Array::is_shut, true)
    }

    /// Whether nothing can be granted, as of when [`shut`](Self::shut) has returned.
    pub(crate) fn is_shut(&self) -> bool {
        let newest = self.newest();
        newest.is_shut() && !newest.parent.is_some()
    }

    /// Opens a table that is shut, a step at a time as [`shut`](Self::shut) does: tokens from `first` to `last`
    /// may be granted. False if there is no memory for it.
    pub(crate) fn open(
        &self,
        local: &mut Local,
        steps: &mut Steps,
        (first, last): (u64, u64),
        watermark: u64,
    ) -> Option<bool> {
        self.need_base.fetch_max(first - 1, Ordering::Relaxed);
        let opened = self.move_some(local, steps, |newest| !newest.is_shut(), false)?;
        if opened {
            self.allowance.set(last, watermark);
        }
        Some(opened)
    }

    /// Moves some of the buckets to an array that is as it should be; at the end says whether there is one.
    fn move_some(
        &self,
        local: &mut Local,
        steps: &mut Steps,
        is_right: impl Fn(&Array) -> bool,
        shut: bool,
    ) -> Option<bool> {
        let newest = self.newest();
        if newest.parent.is_some() {
            // After a round what is left is in the hands of others, who may have stalled: all of it at once waits
            // for nobody.
            let is_round = steps.moved >= newest.len();
            let groups = if is_round { usize::MAX } else { GROUPS_A_STEP };
            self.help_resize(local, groups);
            steps.moved = steps.moved.saturating_add(groups);
            return None;
        }
        steps.moved = 0;
        if is_right(&newest) {
            return Some(true);
        }
        let succeeds = self.succeed(&newest, newest.len(), shut);
        if succeeds { None } else { Some(false) }
    }

    /// Puts another array in the place of one that nothing moves to. False if that can't be done: no memory,
    /// or no tokens.
    pub(super) fn succeed(&self, newest: &Arc<Array>, buckets: usize, shut: bool) -> bool {
        // One more than the old base: then every token of the new array is above the old one's of
        // the same version, and copies need not raise versions.
        let base = (newest.base + 1).max(self.need_base.load(Ordering::Relaxed));
        if base >= MAX_TOKEN {
            return false;
        }
        let allowed = if shut { 0 } else { self.allowance.unwatched() };
        let parent = Some(Arc::clone(newest));
        Array::new::<L>(buckets, base, parent, (allowed, shut)).is_some_and(|array| {
            // If somebody else was faster, theirs serves as well.
            self.current.replace(newest, Arc::new(array));
            true
        })
    }
}
