//! Rule 8: the mark of a record.
//!
//! A key that others wait for, or whose leases are not all plain ones, has a *record* beside the table
//! (`records.rs`). While it has one, a cell of tag `MARK` stands in its bucket: a grant that finds it and
//! no lease is refused, so nobody barges in between a lease and the head of the queue, or beside leases
//! that the record holds. A key has at most one mark, which is put and taken by whoever holds the lock of
//! its record, and which moves with the leases of its bucket (`FROZEN_MARK`).
//!
//! | mark | lease in the table | who may be granted the key |
//! |---|---|---|
//! | no | no | anybody, by one CAS on the bucket |
//! | no | yes | nobody, until that is over |
//! | yes | yes | nobody; whoever ends that lease looks for the mark, and goes to the record |
//! | yes | no | who holds the record's lock, and whom the record admits |
//!
//! Nothing of this is on the short paths: the mark is pushed by a CAS on the bucket, so a release by the
//! word of the grant fails from then on; and a bucket with a mark is neither empty nor has leases only.
//!
//! Whoever ends a lease looks for a mark afterwards, unless that end itself has emptied the bucket, and if
//! there is one, sees to it that the record hears of it. *An ender's CAS (state or bucket), then load of the bucket* against *the marker's CAS on the
//! bucket, then load of the lease's state*: sequentially consistent on both sides. If the ender's CAS
//! comes first, the marker sees that the lease is over (a kill), or its own CAS fails (a release that
//! unlinks); if the marker's comes first, the ender sees the mark.
//!
//! A lease of the record has no cell, but a token of the same counter: [`Table::issue`] raises the bucket's
//! version without a grant.

use super::bucket::NORMAL;
use super::cell::{DEAD, KILLED_EXPIRED, MARK, State};
use super::grant::{Ask, DEAD_ALLOWED, Refused, Walk};
use super::layout::Layout;
use super::local::Local;
use super::{BucketWord, MAX_TOKEN, Note, Table, WALK_CHECK};
use crate::Key;

/// What became of a wish for a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marked {
    /// The mark stands, and so did the lease after it.
    Yes,
    /// The mark stands, but the lease may be over: the record may have to act.
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
    /// Puts the mark, if a live lease of the key stands. The caller holds the record's lock, and the
    /// key has no mark.
    pub(crate) fn put_mark(&self, local: &mut Local, key: Key, hash: u64) -> Marked {
        let Some(new) = local.free.pop().or_else(|| self.cell_for_grant(local)) else {
            return Marked::Full;
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
                if wanted <= MAX_TOKEN && self.raise_base(local, wanted) {
                    continue;
                }
                self.unprepare(local, new);
                return Marked::Full;
            }
            self.cell(new).prepare_mark::<L>(key, version, word.cell());
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

    /// Takes the mark away. The caller holds the record's lock.
    pub(crate) fn take_mark(&self, local: &mut Local, key: Key, hash: u64) {
        while let Some(Mark { at, state, word }) = self.find_mark(local, key, hash) {
            let cell = self.cell(at);
            // The state that was found: the cell may be another key's mark by now.
            if state.tag() != MARK || !cell.change(state, state.with_tag(DEAD)) {
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

    /// Whether the key has a mark.
    #[cfg(all(test, tenure_shuttle))]
    pub(crate) fn has_mark(&self, local: &mut Local, key: Key, hash: u64) -> bool {
        self.find_mark(local, key, hash).is_some()
    }

    /// Called after a lease of the key has ended: if the key has a record, that has to hear of it.
    pub(super) fn note_end(&self, local: &mut Local, note: Note) {
        if local.observed || self.find_mark(local, note.key, note.hash).is_some() {
            local.notes.push(note);
        }
    }

    /// A token for a lease that the record holds, greater than every one before; with `mark`, together
    /// with the mark. The caller holds the record's lock, and knows whether the mark stands.
    ///
    /// One CAS on the bucket, like a grant. Refused if the table has a live lease of the key.
    pub(crate) fn issue(&self, local: &mut Local, ask: &Ask, mark: bool) -> Result<u64, Refused> {
        let new = if mark {
            let free = local.free.pop().or_else(|| self.cell_for_grant(local));
            free.ok_or(Refused::NoCell)?
        } else {
            0
        };
        loop {
            let bucket = local.array.bucket(ask.hash);
            let word = bucket.load::<L>();
            if !word.is_normal() {
                self.settle(local, ask.hash);
                continue;
            }
            let first = word.cell();
            let (keep, crowded) = match self.walk_for_grant(local, word, ask) {
                Walk::Free { keep, crowded, .. } => (keep, crowded),
                Walk::Again => continue,
                Walk::Expired(at, state) => {
                    self.kill(local, ask.hash, at, state, KILLED_EXPIRED);
                    continue;
                }
                Walk::Held(held) => {
                    self.unprepare(local, new);
                    return Err(Refused::Held(held));
                }
            };
            let version = (word.version() + 1).max(ask.at_least.saturating_sub(local.array.base));
            if version > local.array.grant_limit() {
                let wanted = local.array.base.saturating_add(version);
                if wanted <= MAX_TOKEN
                    && self.allow(local, wanted, local.array.base + word.version() + 1)
                {
                    continue;
                }
                self.unprepare(local, new);
                return Err(Refused::NoToken { wanted });
            }
            let top = if new == 0 {
                keep
            } else {
                self.cell(new).prepare_mark::<L>(ask.key, version, keep);
                new
            };
            let token = self.token(local, version, ask);
            if bucket.change(word, BucketWord::<L>::new(version, top, NORMAL)) {
                if first != keep {
                    self.free_skipped(local, first, keep);
                }
                if crowded {
                    self.shed_dead(local, ask.hash);
                }
                return Ok(token);
            }
        }
    }

    /// What became of a grant that neither the table nor a record holds.
    pub(crate) fn over(&self, local: &mut Local, name: &super::Name) -> super::Ended {
        match self.find(local, name.key, name.hash) {
            Ok(found) => found.gone().over(name.token),
            Err(gone) => gone.over(name.token),
        }
    }

    /// The key's mark, in a bucket that had not changed at the end of the walk.
    fn find_mark(&self, local: &mut Local, key: Key, hash: u64) -> Option<Mark<L>> {
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
                if state.is_mark() && cell.key() == key {
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
