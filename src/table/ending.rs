//! How a lease ends: rules 2, 4, 5 and 6.
//!
//! Exactly one thread reports each end: the releaser whose CAS unlinked the cell from the head of its
//! bucket, or the killer whose CAS did, or whoever turned `KILLED_*` into `DEAD` in any other place.

use super::bucket::{DONE, NORMAL, UNINIT};
use super::cell::{
    Cell, Contents, DEAD, HELD, KILLED_EXPIRED, KILLED_RELEASED, KILLED_REVOKED, KILLED_TAKEN,
    State, TIMER,
};
use super::grant::FEW;
use super::layout::Layout;
use super::local::Local;
use super::lookup::{Found, NotFound};
use super::timer::Due;
use super::{BucketWord, Handle, Loss, Name, Note, Table};
use crate::Key;
use crate::failpoint::failpoint;
use crate::owed::Owed;

/// Why a release did not end the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It was over.
    Expired,
    /// No such token was ever granted for the key.
    NeverGranted,
    /// It is not in the table, and the key has a record, which tells more.
    Recorded,
}

/// What the wheel is told about a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Nothing to watch.
    Nothing,
    /// Look again at that tick.
    At(u64),
}

impl<L: Layout> Table<L> {
    /// Rule G, for rule 2 where it is simple: the bucket is as the grant left it, with nothing behind the cell.
    /// False otherwise, and nothing has happened. The caller has seen that the deadline is not over.
    ///
    /// The bucket is not read before it is changed: the word that the grant has published follows from
    /// token and cell, and no other word is replaced. That word is in this place in no other array: a
    /// newer one's tokens start above those of the buckets that it was copied from, which in an older
    /// one are not `NORMAL`. And no word comes back in its own array. So it stands for what a look at
    /// key, token and life would tell. The state is read first: a lease that somebody is ending already
    /// is left to the long way. If it is killed after that, the CAS on the bucket decides, as ever.
    #[inline(always)]
    pub(crate) fn release_fast(&self, local: &mut Local, handle: Handle, token: u64) -> bool {
        let cell = self.cell(handle.cell());
        cell.next() == 0 && Self::release_to(local, handle, token, cell, 0)
    }

    /// The same with a few leases and nothing else behind the cell: the word of the grant vouches for
    /// the whole chain.
    pub(crate) fn release_beside(&self, local: &mut Local, handle: Handle, token: u64) -> bool {
        let cell = self.cell(handle.cell());
        let next = cell.next();
        let mut at = next;
        for _ in 0..FEW {
            if at == 0 {
                break;
            }
            let behind = self.cell(at);
            if !behind.state::<L>().is_lease() {
                return false;
            }
            at = behind.next();
        }
        at == 0 && Self::release_to(local, handle, token, cell, next)
    }

    /// The same by key, and of a lease whose deadline `is_live`.
    #[inline(always)]
    pub(crate) fn release_spotted(
        &self,
        local: &mut Local,
        name: &Name,
        is_live: impl Fn(u64) -> bool,
    ) -> bool {
        let Some(spotted) = self.spot(&local.array, (name.key, name.hash), FEW) else {
            return false;
        };
        let (at, cell, state) = (spotted.at, spotted.cell, spotted.state);
        let (token, link) = (cell.token(), cell.link());
        let simple = link.next() == 0 && token == name.token && spotted.stands();
        simple
            && is_live(state.deadline(link.era()))
            && Self::release_to(local, Handle::new(name.hash, at, state), token, cell, 0)
    }

    #[inline(always)]
    fn release_to(
        local: &mut Local,
        handle: Handle,
        token: u64,
        cell: Cell<'_>,
        next: u32,
    ) -> bool {
        let array = &*local.array;
        let version = token.wrapping_sub(array.base);
        let state = cell.state::<L>();
        let plain =
            version <= array.version_limit && state == handle.state() && !local.free.is_full();
        if !plain {
            return false;
        }
        let empty = BucketWord::<L>::new(version, 0, NORMAL);
        let granted = empty.with_first(handle.cell());
        let bucket = array.bucket(handle.hash());
        failpoint!("release/before");
        if !bucket.change(granted, empty.with_first(next)) {
            return false;
        }
        let unlinked = Owed::new(local, |local| {
            // As in `retire`.
            cell.set_state(state.with_tag(DEAD));
            local.counters.add_end();
            local.free.push_checked(handle.cell());
        });
        failpoint!("release/unlinked");
        unlinked.pay();
        true
    }

    /// Rule 2: release through a handle; two CASes for a pair with the grant, if uncontended.
    #[inline(never)]
    pub(crate) fn release(
        &self,
        local: &mut Local,
        handle: Handle,
        name: &Name,
    ) -> Result<(), Ended> {
        let cell = self.cell(handle.cell());
        loop {
            let bucket = local.array.bucket(name.hash);
            let word = bucket.load_in_order::<L>();
            let state = cell.state_in_order::<L>();
            // Rule D: whatever is not this very lease, held and live, goes by key.
            if !word.is_normal()
                || !cell.is_named(state, handle, name)
                || state.deadline(cell.era()) <= local.now
            {
                return self.release_by_key(local, name);
            }
            if word.cell() != handle.cell() {
                // Rule E: killed as released.
                if self.kill(local, name.hash, handle.cell(), state, KILLED_RELEASED) {
                    return Ok(());
                }
                continue;
            }
            let next = cell.next();
            let Some(keep) = self.first_kept(bucket, word, next) else {
                continue;
            };
            let (owner, era) = (cell.owner(), cell.era());
            failpoint!("release/before");
            if bucket.change(word, word.with_cell(keep)) {
                let note = || {
                    let contents = Contents {
                        key: name.key,
                        token: name.token,
                        owner,
                        deadline: state.deadline(era),
                    };
                    Note::new(&contents, name.hash, Loss::Released)
                };
                let report = |local: &mut Local| {
                    let taken = self.retire(local, handle.cell(), state);
                    if next != keep {
                        self.free_skipped(local, next, keep);
                    }
                    taken
                };
                let unlinked = Owed::new(&mut *local, |local| {
                    if !report(local) {
                        local.notes.push(note());
                    }
                });
                failpoint!("release/unlinked");
                unlinked.waive();
                if report(local) {
                    // The record has it since before: it is released there.
                    return Err(Ended::Recorded);
                }
                if keep != 0 || local.observed {
                    // Only there can a mark stand: who came later has seen no lease.
                    let mut unheard = Owed::new(local, |local| local.notes.push(note()));
                    self.note_end(&mut unheard, note());
                    unheard.waive();
                }
                return Ok(());
            }
        }
    }

    /// Reports and frees a cell that this thread's release has unlinked. Somebody may have killed it
    /// meanwhile: the CAS on the bucket has decided. But if the lease was taken for its record, that was no
    /// end: true. (It is reported all the same, and whoever took it takes that back.)
    #[inline]
    fn retire(&self, local: &mut Local, at: u32, state: State<L>) -> bool {
        let before = self.cell(at).replace_state(state.with_tag(DEAD));
        local.counters.add_end();
        self.give_cell(local, at);
        before.tag() == KILLED_TAKEN
    }

    /// Ends the lease that `name` names, wherever it lives now.
    #[cold]
    pub(crate) fn release_by_key(&self, local: &mut Local, name: &Name) -> Result<(), Ended> {
        loop {
            let found = match self.find(local, name.key, name.hash) {
                Ok(found) => found,
                Err(gone) => return Err(gone.ended(name.token)),
            };
            if found.contents.token != name.token {
                return Err(found.gone().ended(name.token));
            }
            let expired = found.contents.deadline <= local.now;
            let reason = if expired {
                KILLED_EXPIRED
            } else {
                KILLED_RELEASED
            };
            if self.kill(local, name.hash, found.cell, found.state, reason) {
                return if expired { Err(Ended::Expired) } else { Ok(()) };
            }
        }
    }

    /// Ends whatever live lease the key has.
    pub(crate) fn revoke(
        &self,
        local: &mut Local,
        key: Key,
        hash: u64,
    ) -> Result<Found<L>, NotFound> {
        loop {
            let found = self.find(local, key, hash)?;
            let expired = found.contents.deadline <= local.now;
            let reason = if expired {
                KILLED_EXPIRED
            } else {
                KILLED_REVOKED
            };
            if self.kill(local, hash, found.cell, found.state, reason) {
                return if expired {
                    Err(found.gone())
                } else {
                    Ok(found)
                };
            }
        }
    }

    /// The live lease of the key. One that is found to be over is ended at once: who was told so must
    /// not see it renewed by a thread that read the clock before (I4).
    pub(crate) fn live(
        &self,
        local: &mut Local,
        key: Key,
        hash: u64,
    ) -> Result<Found<L>, NotFound> {
        loop {
            let found = self.find(local, key, hash)?;
            if found.contents.deadline > local.now {
                return Ok(found);
            }
            if self.kill(local, hash, found.cell, found.state, KILLED_EXPIRED) {
                return Err(found.gone());
            }
        }
    }

    /// Rule C: the wheel's look at a cell, in whatever life and place that may be.
    ///
    /// Ends the lease if its time is over. The cell may be private, free or of a later life than the
    /// one that was registered, so it is killed only once it has been found in its key's bucket.
    pub(crate) fn look(&self, local: &mut Local, at: u32) -> Look {
        let cell = self.cell(at);
        loop {
            let state = cell.state_in_order::<L>();
            if state.tag() == TIMER {
                return self.look_at_timer(local, at).unwrap_or(Look::Nothing);
            }
            if !state.is_lease() {
                return Look::Nothing;
            }
            let contents = cell.contents(state);
            if cell.state::<L>() != state {
                continue;
            }
            if !state.is_held() {
                // Frozen: once its bucket stands in the newest array, whoever has put the copy there has it watched.
                let hash = self.hash(contents.key);
                if local.array.bucket(hash).load::<L>().is_normal() {
                    return Look::Nothing;
                }
                self.settle(local, hash);
                continue;
            }
            if contents.deadline > local.now {
                return Look::At(contents.deadline);
            }
            let hash = self.hash(contents.key);
            let bucket = local.array.bucket(hash);
            let word = bucket.load_in_order::<L>();
            if !word.is_normal() {
                self.settle(local, hash);
            } else if self.links(bucket, word, at) == Some(true) {
                if local.observed {
                    // Its end is for whoever holds the lock of its record.
                    local.add_due(Due::Record {
                        key: contents.key,
                        hash,
                    });
                    // It may be renewed before that.
                    return Look::At(local.now + 1);
                }
                self.kill_seen(local, hash, (at, cell), state, &contents, KILLED_EXPIRED);
            } else if bucket.load::<L>() == word && cell.state::<L>() == state {
                // Filled in, but not published yet; or unlinked, and about to be `DEAD`.
                return Look::At(local.now + 1);
            }
        }
    }

    /// Rule 4. The caller has found the cell linked in the key's bucket of `local.array`, in that
    /// state. True if this call ended the lease.
    pub(crate) fn kill(
        &self,
        local: &mut Local,
        hash: u64,
        at: u32,
        state: State<L>,
        reason: u64,
    ) -> bool {
        // Read before the CAS: afterwards the cell may be anybody's.
        let cell = self.cell(at);
        let contents = cell.contents(state);
        self.kill_seen(local, hash, (at, cell), state, &contents, reason)
    }

    /// The same of a lease whose contents have been read, under that hash and in that cell.
    fn kill_seen(
        &self,
        local: &mut Local,
        hash: u64,
        (at, cell): (u32, Cell<'_>),
        state: State<L>,
        contents: &Contents,
        reason: u64,
    ) -> bool {
        debug_assert_eq!(state.tag() & !(HELD | super::cell::FROZEN), 0);
        let killed = state.with_tag(reason);
        let won = state.is_held() && cell.change(state, killed);
        if !won {
            return false;
        }
        let note = || Note::new(contents, hash, Self::loss(killed));
        let unfinished = Owed::new(&mut *local, |local| {
            self.finish(local, hash, (at, cell), killed);
            local.notes.push(note());
        });
        failpoint!("kill/killed");
        unfinished.waive();
        if self.finish(local, hash, (at, cell), killed) || local.observed {
            let mut unheard = Owed::new(local, |local| local.notes.push(note()));
            failpoint!("kill/finished");
            self.note_end(&mut unheard, note());
            unheard.waive();
        }
        true
    }

    fn loss(killed: State<L>) -> Loss {
        match killed.tag() {
            KILLED_EXPIRED => Loss::Expired,
            KILLED_REVOKED => Loss::Revoked,
            _ => Loss::Released,
        }
    }

    /// Takes a lease out of the table for its record, which goes on with it: nobody is told of an end.
    /// False if the lease is not as it was found.
    pub(crate) fn take_out(&self, local: &mut Local, hash: u64, found: &Found<L>) -> bool {
        let notes = local.notes.len();
        let mut unsaid = Owed::new(&mut *local, |local| {
            local.notes.truncate(notes);
            local.counters.take_back_end();
        });
        let taken = self.kill(&mut unsaid, hash, found.cell, found.state, KILLED_TAKEN);
        unsaid.waive();
        local.notes.truncate(notes);
        taken
    }

    /// Rule 5: takes a killed cell out of sight, and reports, unless somebody else has. False if its key has
    /// no mark: the bucket is empty by this call.
    fn finish(
        &self,
        local: &mut Local,
        hash: u64,
        (at, cell): (u32, Cell<'_>),
        killed: State<L>,
    ) -> bool {
        loop {
            let bucket = local.array.bucket(hash);
            let word = bucket.load_in_order::<L>();
            if cell.state::<L>() != killed || matches!(word.flag(), DONE | UNINIT) {
                return true;
            }
            if word.flag() == NORMAL && word.cell() == at {
                let next = cell.next();
                let Some(keep) = self.first_kept(bucket, word, next) else {
                    continue;
                };
                if bucket.change(word, word.with_cell(keep)) {
                    // This thread alone has unlinked it.
                    let report = |local: &mut Local| {
                        Self::count(local, killed, killed.deadline(cell.era()));
                        cell.set_state(killed.with_tag(DEAD));
                        self.give_cell(local, at);
                        if next != keep {
                            self.free_skipped(local, next, keep);
                        }
                    };
                    let unlinked = Owed::new(&mut *local, |local| {
                        let contents = cell.contents(killed);
                        report(local);
                        local
                            .notes
                            .push(Note::new(&contents, hash, Self::loss(killed)));
                    });
                    failpoint!("kill/unlinked");
                    unlinked.waive();
                    report(local);
                    // A mark would be kept; and who puts one later has seen no lease.
                    return keep != 0;
                }
                continue;
            }
            match self.links(bucket, word, at) {
                Some(true) => {
                    self.bury(local, at, killed);
                    return true;
                }
                Some(false) => return true,
                None => {}
            }
        }
    }

    /// `KILLED_* -> DEAD`; the winner reports (rule 6).
    pub(super) fn bury(&self, local: &mut Local, at: u32, killed: State<L>) {
        // The deadline is read before the CAS: afterwards the cell may be anybody's.
        let deadline = killed.deadline(self.cell(at).era());
        if self.cell(at).change(killed, killed.with_tag(DEAD)) {
            Self::count(local, killed, deadline);
        }
    }

    fn count(local: &mut Local, killed: State<L>, deadline: u64) {
        local.counters.add_end();
        match killed.tag() {
            KILLED_EXPIRED => local
                .counters
                .add_expired(local.now.saturating_sub(deadline)),
            KILLED_REVOKED => local.counters.add_revoked(),
            _ => {}
        }
    }
}
