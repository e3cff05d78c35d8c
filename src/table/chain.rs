//! Walks along the chain of a bucket, and the cells that one CAS has unlinked from it.

use super::layout::Layout;
use super::local::Local;
use super::{BucketWord, Table, WALK_CHECK};

impl<L: Layout> Table<L> {
    /// Frees the cells from `from` to just before `to`, which this thread's CAS unlinked.
    #[cold]
    pub(super) fn free_skipped(&self, local: &mut Local, from: u32, to: u32) {
        let mut at = from;
        while at != to {
            let cell = self.cell(at);
            let next = cell.next();
            let state = cell.state::<L>();
            if state.is_killed() {
                self.bury(local, at, state);
            }
            self.give_cell(local, at);
            at = next;
        }
    }

    /// The first cell of a chain from `at` on that has to stay; `None` if the bucket has changed meanwhile.
    #[inline]
    pub(super) fn first_kept(
        &self,
        bucket: super::array::Bucket<'_>,
        word: BucketWord<L>,
        mut at: u32,
    ) -> Option<u32> {
        let mut steps = 0;
        while at != 0 {
            let cell = self.cell(at);
            if cell.state::<L>().is_kept() {
                break;
            }
            at = cell.next();
            steps += 1;
            if steps % WALK_CHECK == 0 && bucket.load::<L>() != word {
                return None;
            }
        }
        Some(at)
    }

    /// Whether the chain of `word` links the cell; `None` if the bucket has changed meanwhile.
    pub(super) fn links(
        &self,
        bucket: super::array::Bucket<'_>,
        word: BucketWord<L>,
        cell: u32,
    ) -> Option<bool> {
        let mut at = word.cell();
        let mut steps = 0;
        while at != 0 && at != cell {
            at = self.cell(at).next();
            steps += 1;
            if steps % WALK_CHECK == 0 && bucket.load::<L>() != word {
                return None;
            }
        }
        (bucket.load_in_order::<L>() == word).then_some(at == cell)
    }
}
