//! Rule 8: the mark of a queue.
//!
//! While others wait for a key, a cell of tag `QUEUE` stands in its bucket: a grant that finds it and no
//! lease is refused, so nobody barges in between a lease and the head of the queue. The queue itself is
//! the engine's. A key has at most one mark, which is put and taken by whoever holds the queue's lock,
//! and which moves with the leases of its bucket (`FROZEN_QUEUE`).
//!
//! Nothing of this is on the short paths: the mark is pushed by a CAS on the bucket, so a release by the
//! word of the grant fails from then on; and a bucket with a mark is neither empty nor has leases only.
//!
//! Whoever ends a lease looks for a mark afterwards, and if there is one, sees to it that the queue moves
//! on. *An ender's CAS (state or bucket), then load of the bucket* against *the marker's CAS on the
//! bucket, then load of the lease's state*: sequentially consistent on both sides. If the ender's CAS
//! comes first, the marker sees that the lease is over (a kill), or its own CAS fails (a release that
//! unlinks); if the marker's comes first, the ender sees the mark.

use super::bucket::NORMAL;
use super::cell::{DEAD, KILLED_EXPIRED, QUEUE, State};
use super::grant::DEAD_ALLOWED;
use super::layout::Layout;
use super::local::Local;
use super::{BucketWord, Table, WALK_CHECK};
use crate::Key;

/// What became of a wish to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marked {
    /// The mark stands, and so did the lease after it.
    Yes,
    /// The mark stands, but the lease may be over: the queue may have to move on.
    Ended,
    /// Nobody holds the key.
    Free,
    /// There is no cell, or no version, to be had for the mark.
    Full,
}

/// A mark that was found, in that state, in a bucket of that word.
#[derive(Clone, Copy, Debug)]
struct Mark<L: Layout> {
    at: u32,
    state: State<L>,
    word: BucketWord<L>,
}

impl<L: Layout> Table<L> {
    /// Puts the mark, if a live lease of the key stands. The caller holds the queue's lock, and the key
    /// has no mark.
    pub(crate) fn mark_queue(&self, local: &mut Local, key: Key, hash: u64) -> Marked {
        let new = match local.free.pop() {
            Some(new) => new,
            None => match self.cell_for_grant(local) {
                Some(new) => new,
                None => return Marked::Full,
            },
        };
        loop {
            let found = match self.find(local, key, hash) {
                Ok(found) if found.contents.deadline <= local.now => {
                    self.kill(local, hash, found.cell, found.state, KILLED_EXPIRED);
                    continue;
                }
                Ok(found) => found,
                Err(_) => {
                    self.unprepare(local, new);
                    return Marked::Free;
                }
            };
            // The very word that the lease was found under: a release that has come in between has
            // unlinked it, and makes the CAS fail.
            let word = found.word;
            let version = word.version() + 1;
            if version > local.array.version_limit {
                let wanted = local.array.base.saturating_add(version);
                if wanted <= super::MAX_TOKEN && self.raise_base(local, wanted) {
                    continue;
                }
                self.unprepare(local, new);
                return Marked::Full;
            }
            self.cell(new).prepare_queue::<L>(key, version, word.cell());
            let bucket = local.array.bucket(hash);
            if bucket.change(word, BucketWord::<L>::new(version, new, NORMAL)) {
                // It may have been killed, though.
                let state = self.cell(found.cell).state_in_order::<L>();
                let stands = state.is_lease() && state.life() == found.state.life();
                if self.is_crowded(bucket, new) {
                    // Marks that were given up pile up under others, and no grant comes by.
                    self.shed_dead(local, hash);
                }
                return if stands { Marked::Yes } else { Marked::Ended };
            }
        }
    }

    /// Whether a chain from `first` on has too many dead cells (rule 12).
    fn is_crowded(&self, bucket: super::array::Bucket<'_>, first: u32) -> bool {
        let word = bucket.load::<L>();
        let (mut kept, mut dead, mut steps) = (0, 0, 0);
        let mut at = first;
        while at != 0 {
            if self.cell(at).state::<L>().is_kept() {
                kept += 1;
            } else {
                dead += 1;
            }
            at = self.cell(at).next();
            steps += 1;
            if steps % WALK_CHECK == 0 && bucket.load::<L>() != word {
                break;
            }
        }
        dead > kept + DEAD_ALLOWED
    }

    /// Takes the mark away. The caller holds the queue's lock.
    pub(crate) fn unmark_queue(&self, local: &mut Local, key: Key, hash: u64) {
        while let Some(Mark { at, state, word }) = self.find_queue(local, key, hash) {
            let cell = self.cell(at);
            // The state that was found: the cell may be another key's mark by now.
            if state.tag() != QUEUE || !cell.change(state, state.with_tag(DEAD)) {
                // Frozen: look for its copy.
                continue;
            }
            let bucket = local.array.bucket(hash);
            if word.cell() == at {
                // Otherwise the next grant skips it.
                let next = cell.next();
                if let Some(keep) = self.first_kept(bucket, word, next)
                    && bucket.change(word, word.with_cell(keep))
                {
                    self.give_cell(local, at);
                    if next != keep {
                        self.free_skipped(local, next, keep);
                    }
                }
            }
            return;
        }
    }

    /// Called after a lease of the key has ended: if others wait, the queue has to move on.
    pub(super) fn note_queue(&self, local: &mut Local, key: Key, hash: u64) {
        if self.find_queue(local, key, hash).is_some() {
            local.queues.push((key, hash));
        }
    }

    /// Whether the key has a mark.
    #[cfg(all(test, tenure_shuttle))]
    pub(crate) fn has_mark(&self, local: &mut Local, key: Key, hash: u64) -> bool {
        self.find_queue(local, key, hash).is_some()
    }

    /// The key's mark, in a bucket that had not changed at the end of the walk.
    fn find_queue(&self, local: &mut Local, key: Key, hash: u64) -> Option<Mark<L>> {
        'again: loop {
            let bucket = local.array.bucket(hash);
            let word = bucket.load_in_order::<L>();
            if !word.is_normal() {
                self.settle(local, hash);
                continue;
            }
            let mut at = word.cell();
            let mut steps = 0;
            while at != 0 {
                let cell = self.cell(at);
                let state = cell.state::<L>();
                if state.is_queue() && cell.key() == key {
                    if bucket.load_in_order::<L>() != word {
                        continue 'again;
                    }
                    return Some(Mark { at, state, word });
                }
                at = cell.next();
                steps += 1;
                if steps % WALK_CHECK == 0 && bucket.load::<L>() != word {
                    continue 'again;
                }
            }
            if bucket.load_in_order::<L>() == word {
                return None;
            }
        }
    }
}
