//! Growing, shrinking and rebuilding: rules 9 to 12.
//!
//! A resize makes a new array, all `UNINIT`, whose `parent` is the old one. Buckets move in *groups*:
//! the buckets of both arrays whose indices agree in the bits that both have (one parent and two
//! children when growing, two and one when shrinking, one and one when only the token base rises).
//! Any thread may move any group, several may move the same one, and none waits for another.

use std::iter;

use super::array::Array;
use super::bucket::{DONE, FROZEN, NORMAL, REBUILD, UNINIT};
use super::cell::{self, DEAD};
use super::fetch::CHUNK;
use super::layout::Layout;
use super::local::{Local, Moved};
use super::{BucketWord, Table, WALK_CHECK};
use crate::failpoint::failpoint;
use crate::owed::Owed;
use crate::sync::{Arc, Ordering};

/// Groups that one refill or spill helps to move.
const HELP: usize = 128;
/// Grow when there are fewer than this many buckets for each cell handed out ...
const GROW_BELOW: usize = 3;
/// ... and shrink when there are more than this many.
const SHRINK_ABOVE: usize = 16;

/// Buckets of one array that belong to one group.
///
/// (`step_by` would divide, to know how many there are.)
fn group_members(
    array: &Array,
    group: usize,
    groups: usize,
) -> impl Iterator<Item = usize> + use<> {
    let (len, mut next) = (array.len(), group);
    iter::from_fn(move || {
        let index = next;
        next += groups;
        (index < len).then_some(index)
    })
}

fn groups(child: &Array, parent: &Array) -> usize {
    child.len().min(parent.len())
}

impl<L: Layout> Table<L> {
    /// Called when the bucket of `hash` in the thread's array is not `NORMAL`: does what is needed
    /// for the caller to find it so next time.
    #[cold]
    pub(crate) fn settle(&self, local: &mut Local, hash: u64) {
        let array = Arc::clone(&local.array);
        match array.bucket(hash).load::<L>().flag() {
            UNINIT => {
                if let Some(parent) = array.parent.load() {
                    self.move_bucket(local, &array, &parent, array.index(hash));
                    self.finish_group(
                        local,
                        &array,
                        &parent,
                        array.index(hash) & (groups(&array, &parent) - 1),
                    );
                }
            }
            REBUILD => self.rebuild(local, &array, array.index(hash)),
            FROZEN | DONE => {
                // Rule A: nowhere else is there a look at which array is the newest.
                local.see(self.newest());
                debug_assert!(
                    !Arc::ptr_eq(&local.array, &array),
                    "only a child's move freezes"
                );
            }
            _ => {}
        }
    }

    /// Starts a resize if the number of cells handed out wants one, or helps one under way.
    pub(crate) fn keep_sized(&self, local: &mut Local) {
        let newest = self.newest();
        if newest.parent.is_some() {
            self.help(local, &newest, HELP);
            return;
        }
        let handed = self.handed.load(Ordering::Relaxed);
        let buckets = newest.len();
        let wanted = if handed.saturating_mul(GROW_BELOW) > buckets {
            buckets * 2
        } else if handed.saturating_mul(SHRINK_ABOVE) < buckets && buckets > self.min_buckets {
            buckets / 2
        } else {
            return;
        };
        let started = self.resize(&newest, wanted);
        if wanted > buckets {
            failpoint!("resize/growing");
        } else {
            failpoint!("resize/shrinking");
        }
        self.stuck.store(!started, Ordering::Relaxed);
        // Whoever turns the wheel goes on with it.
        local.resized = started;
    }

    /// Shows the thread the newest array, and says how many buckets that has. Whoever comes by seldom would
    /// keep an older one alive.
    pub(crate) fn catch_up(&self, local: &mut Local) -> usize {
        local.see(self.newest());
        local.array.len()
    }

    /// Says whether anybody still keeps the array that is the newest now.
    #[cfg(all(test, not(any(tenure_loom, tenure_shuttle))))]
    pub(crate) fn watch_newest(&self) -> impl Fn() -> bool + use<L> {
        let newest = Arc::downgrade(&self.newest());
        move || newest.strong_count() > 0
    }

    /// Moves up to `count` groups of a resize under way; false if there is none.
    pub(crate) fn help_resize(&self, local: &mut Local, count: usize) -> bool {
        let newest = self.newest();
        let resizing = newest.parent.is_some();
        if resizing {
            self.help(local, &newest, count);
        }
        resizing
    }

    /// Whether the number of cells handed out wants another array, or one is being moved into.
    pub(crate) fn wants_resize(&self) -> bool {
        let newest = self.newest();
        let handed = self.handed.load(Ordering::Relaxed);
        // One that can't be had is not wanted: the driver would try for ever.
        newest.parent.is_some()
            || (!self.stuck.load(Ordering::Relaxed)
                && handed.saturating_mul(SHRINK_ABOVE) < newest.len()
                && newest.len() > self.min_buckets)
    }

    /// Puts a new array in place, unless a resize is under way (rule 11). False if that can't be done: no
    /// memory, no tokens, or the table is shut.
    pub(super) fn resize(&self, newest: &Arc<Array>, buckets: usize) -> bool {
        if newest.parent.is_some() {
            return true;
        }
        // A table that is shut has no new leases to make room for.
        !newest.is_shut() && self.succeed(newest, buckets, false)
    }

    /// Rule H: makes the thread's array one that can grant the token `wanted`. False if that can't be done:
    /// no memory, or no tokens.
    #[cold]
    pub(crate) fn raise_base(&self, local: &mut Local, wanted: u64) -> bool {
        self.need_base.fetch_max(wanted - 1, Ordering::Relaxed);
        loop {
            let newest = self.newest();
            let enough = newest.base + newest.version_limit >= wanted;
            if !enough {
                self.help(local, &newest, newest.len());
                if !self.resize(&newest, newest.len()) {
                    return false;
                }
                // Whoever turns the wheel goes on with it.
                local.resized = true;
            }
            local.see(newest);
            if enough {
                return true;
            }
        }
    }

    fn help(&self, local: &mut Local, child: &Arc<Array>, count: usize) {
        let Some(parent) = child.parent.load() else {
            return;
        };
        let groups = groups(child, &parent);
        let count = count.min(groups);
        // The cursor goes round until the resize is over, so that a helper that stalls with its
        // share holds up nobody.
        let start = child.cursor.fetch_add(count, Ordering::Relaxed);
        for (place, group) in (start..start + count).enumerate() {
            if place % CHUNK == 0 {
                self.fetch_groups(&parent, group, groups);
            }
            let group = group & (groups - 1);
            for index in group_members(child, group, groups) {
                self.move_bucket(local, child, &parent, index);
            }
            self.finish_group(local, child, &parent, group);
        }
        if count == groups {
            // Every parent bucket was seen `DONE`, even if somebody's count of it is on its way.
            child.parent.clear();
        }
    }

    /// Rule 10: makes a child bucket stand.
    fn move_bucket(
        &self,
        local: &mut Local,
        child: &Arc<Array>,
        parent: &Arc<Array>,
        index: usize,
    ) {
        let bucket = child.at(index);
        // Loaded before the source is read: only this exact word is replaced.
        let unset = bucket.load::<L>();
        if unset.flag() != UNINIT {
            return;
        }
        let groups = groups(child, parent);
        let mut copying = Self::copying(local);
        let mut copies = self.thrown_away(&mut copying);
        let mut version = 0;
        // Rule B: a child of a table that shrinks has two parents.
        for source in group_members(parent, index & (groups - 1), groups) {
            let frozen = self.freeze(parent, source);
            failpoint!("resize/frozen");
            if frozen.flag() == DONE {
                // Then this bucket stands, the chain is free, and the publication below will fail.
                break;
            }
            // Rule G: above every token that was granted there.
            version = version.max((parent.base + frozen.version() + 1).saturating_sub(child.base));
            self.copy_chain(&mut copies, parent.at(source), frozen, |hash| {
                child.index(hash) == index
            });
        }
        failpoint!("resize/copied");
        Self::publish(copies, bucket, unset, version);
        failpoint!("resize/published");
    }

    /// Rule 10: `FROZEN -> DONE` for the parents of a group whose children all stand; and rule 11, once that
    /// was the last of them.
    fn finish_group(
        &self,
        local: &mut Local,
        child: &Arc<Array>,
        parent: &Arc<Array>,
        group: usize,
    ) {
        let groups = groups(child, parent);
        let stands = |index| child.at(index).load::<L>().flag() != UNINIT;
        if !group_members(child, group, groups).all(stands) {
            return;
        }
        for index in group_members(parent, group, groups) {
            let bucket = parent.at(index);
            let frozen = bucket.load::<L>();
            if frozen.flag() == FROZEN && bucket.change(frozen, frozen.with_flag(DONE)) {
                let done = Owed::new(&mut *local, |local| {
                    self.free_chain(local, frozen.cell());
                    if child.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                        child.parent.clear();
                    }
                });
                failpoint!("resize/done");
                done.pay();
            }
        }
    }

    /// Rule 9: no grant, renewal or end succeeds in this bucket after it returns.
    fn freeze(&self, array: &Array, index: usize) -> BucketWord<L> {
        let bucket = array.at(index);
        let frozen = loop {
            let word = bucket.load::<L>();
            if !matches!(word.flag(), NORMAL | REBUILD) {
                break word;
            }
            let frozen = word.with_flag(FROZEN);
            if bucket.change(word, frozen) {
                break frozen;
            }
        };
        if frozen.flag() == FROZEN {
            self.freeze_states(bucket, frozen);
        }
        frozen
    }

    /// `HELD -> FROZEN` and `MARK -> FROZEN_MARK` along the chain of `word`, as long as the bucket says
    /// that word.
    fn freeze_states(&self, bucket: super::array::Bucket<'_>, word: BucketWord<L>) {
        let mut at = word.cell();
        while at != 0 {
            let cell = self.cell(at);
            let state = cell.state::<L>();
            // Between the load and the CAS, so that no cell of another chain is frozen.
            if bucket.load_in_order::<L>() != word {
                return;
            }
            let frozen = match state.tag() {
                cell::HELD => cell::FROZEN,
                cell::MARK => cell::FROZEN_MARK,
                _ => state.tag(),
            };
            if frozen == state.tag() || cell.change(state, state.with_tag(frozen)) {
                at = cell.next();
            }
        }
    }

    /// Copies the frozen leases of a chain that `belongs` wants, in private.
    fn copy_chain(
        &self,
        (local, copies): &mut Copying<'_>,
        bucket: super::array::Bucket<'_>,
        word: BucketWord<L>,
        belongs: impl Fn(u64) -> bool,
    ) {
        let mut at = word.cell();
        let mut steps = 0;
        while at != 0 {
            let source = self.cell(at);
            let state = source.state::<L>();
            // Killed cells are not copied (rule 10): who frees the chain buries them (rule 6).
            if state.tag() == cell::FROZEN {
                let contents = source.contents(state);
                if belongs(self.hash(contents.key)) {
                    let copy = self.cell_for_copy(local);
                    self.cell(copy).prepare::<L>(&contents, copies.first);
                    copies.first = copy;
                    local.moved.push(Moved {
                        cell: copy,
                        deadline: contents.deadline,
                    });
                }
            } else if state.tag() == cell::FROZEN_MARK {
                let key = source.key();
                if belongs(self.hash(key)) {
                    let copy = self.cell_for_copy(local);
                    self.cell(copy)
                        .prepare_mark::<L>(key, word.version(), copies.first);
                    copies.first = copy;
                    copies.marks.push(copy);
                }
            }
            at = source.next();
            steps += 1;
            if steps % WALK_CHECK == 0 && bucket.load::<L>() != word {
                // Somebody else has published: what is copied so far will be thrown away.
                return;
            }
        }
    }

    /// One CAS from `from` to the copies, or throws them away.
    fn publish<'l>(
        copies: Owed<'_, Copying<'l>, impl FnMut(&mut Copying<'l>)>,
        bucket: super::array::Bucket<'_>,
        from: BucketWord<L>,
        version: u64,
    ) -> bool {
        let first = copies.1.first;
        let won = bucket.change(from, BucketWord::new(version, first, NORMAL));
        if won {
            copies.waive();
        } else {
            copies.pay();
        }
        won
    }

    fn copying(local: &mut Local) -> Copying<'_> {
        let copies = Copies {
            first: 0,
            moved_before: local.moved.len(),
            marks: vec![],
        };
        (local, copies)
    }

    /// Copies are thrown away if they are not published, and if a panic comes before that.
    fn thrown_away<'w, 'l>(
        &self,
        copying: &'w mut Copying<'l>,
    ) -> Owed<'w, Copying<'l>, impl FnMut(&mut Copying<'l>)> {
        Owed::new(copying, |(local, copies): &mut Copying<'l>| {
            while local.moved.len() > copies.moved_before {
                copies.marks.extend(local.moved.pop().map(|copy| copy.cell));
            }
            for copy in copies.marks.drain(..) {
                let cell = self.cell(copy);
                cell.set_state(cell.state::<L>().with_tag(DEAD));
                self.give_cell(local, copy);
            }
        })
    }

    /// A copy's cell (rule J). Grants leave half of the cells to copies, which are in flight for a few buckets
    /// at a time, so only the allocator can fail to provide one; that ends the process, as it does
    /// for every collection of `std`.
    fn cell_for_copy(&self, local: &mut Local) -> u32 {
        local
            .free
            .pop()
            .or_else(|| self.refill(local))
            .unwrap_or_else(|| {
                std::alloc::handle_alloc_error(std::alloc::Layout::new::<[u64; cell::CELL_WORDS]>())
            })
    }

    /// Frees a chain that this thread alone may free.
    ///
    /// The lives stay as they are: a handle that meets `DEAD` here asks by key, and never takes it
    /// for the end of its lease, which may stand elsewhere as a copy.
    fn free_chain(&self, local: &mut Local, first: u32) {
        let mut at = first;
        while at != 0 {
            let cell = self.cell(at);
            let next = cell.next();
            let state = cell.state::<L>();
            if state.is_killed() {
                self.bury(local, at, state);
            } else {
                cell.set_state(state.with_tag(DEAD));
            }
            self.give_cell(local, at);
            at = next;
        }
    }

    /// Rule 12: copies the leases of the thread's bucket in place, which sheds its dead cells and
    /// moves every lease to the era of its deadline. False if that can't be done.
    #[cold]
    pub(crate) fn shed_dead(&self, local: &mut Local, hash: u64) -> bool {
        let array = Arc::clone(&local.array);
        let bucket = array.bucket(hash);
        let word = bucket.load::<L>();
        if word.version() + 1 >= 1 << L::VERSION_BITS {
            // Rule H. No version is left for it: the move to a new array does the same.
            return self.raise_base(local, array.base + word.version() + 1);
        }
        if word.is_normal() && bucket.change(word, word.with_flag(REBUILD)) {
            failpoint!("rebuild/begun");
            self.rebuild(local, &array, array.index(hash));
        }
        true
    }

    fn rebuild(&self, local: &mut Local, array: &Arc<Array>, index: usize) {
        let bucket = array.at(index);
        let word = bucket.load::<L>();
        if word.flag() != REBUILD {
            return;
        }
        self.freeze_states(bucket, word);
        let mut copying = Self::copying(local);
        let mut copies = self.thrown_away(&mut copying);
        self.copy_chain(&mut copies, bucket, word, |_| true);
        failpoint!("rebuild/copied");
        if Self::publish(copies, bucket, word, word.version() + 1) {
            let old = Owed::new(local, |local| self.free_chain(local, word.cell()));
            failpoint!("rebuild/published");
            old.pay();
        }
    }
}

/// A thread that makes copies.
type Copying<'l> = (&'l mut Local, Copies);

/// Cells filled in private for one bucket.
#[derive(Debug)]
struct Copies {
    first: u32,
    /// Those of leases stand in the thread's list of cells that the wheel is to hear of, from this place on.
    moved_before: usize,
    /// Marks of records, which the wheel has nothing to do with.
    marks: Vec<u32>,
}
