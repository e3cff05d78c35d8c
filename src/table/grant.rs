//! Rule 1: a grant.

use super::bucket::NORMAL;
use super::cell::{Cell, Contents, DEAD, KILLED_EXPIRED, Stamp, State};
use super::layout::Layout;
use super::local::{Local, Moved};
use super::{BucketWord, Handle, MAX_TOKEN, Table, WALK_CHECK};
use crate::Key;
use crate::failpoint::failpoint;
use crate::owed::Owed;
use crate::sync::Ordering;

/// Dead cells behind a live one that a bucket may keep over and above one for each live one.
pub(super) const DEAD_ALLOWED: usize = 4;

/// Leases in a bucket that a grant looks through without being ready for all that may be there.
pub(crate) const FEW: usize = 4;

/// What a grant is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) key: Key,
    pub(crate) hash: u64,
    pub(crate) owner: u64,
    /// In ticks.
    pub(crate) deadline: u64,
    /// The least token; 0 for any. In an exact table, the token.
    pub(crate) at_least: u64,
    /// For whoever holds the lock of the key's record, and has found that the lease may be granted: nobody
    /// else is granted a key that has one.
    pub(crate) admitted: bool,
}

impl Ask {
    #[inline]
    pub(crate) fn contents(&self, token: u64) -> Contents {
        Contents {
            key: self.key,
            token,
            owner: self.owner,
            deadline: self.deadline,
        }
    }
}

/// A grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) handle: Handle,
    pub(crate) token: u64,
    /// What the cell's wheel word said after the grant was published.
    pub(crate) wheel: u64,
}

impl Granted {
    /// After the publishing CAS.
    #[inline(always)]
    pub(super) fn new(cell: Cell<'_>, handle: Handle, token: u64) -> Self {
        Self {
            handle,
            token,
            wheel: cell.wheel_word(),
        }
    }
}

/// Why there was no grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Held(Contents),
    /// The table has no lease of the key, but the key has a record, which tells more.
    Marked,
    NoCell,
    NoToken {
        wanted: u64,
    },
}

/// What [`Table::grant_beside`] came to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Beside {
    Held(Contents),
    Granted(Granted),
    /// It is not so simple; nothing has happened.
    Neither,
}

/// What a walk of the chain found.
pub(super) enum Walk<L: Layout> {
    /// No lease of the key. `keep` is the first cell of the chain that is still a lease.
    Free {
        keep: u32,
        crowded: bool,
        marked: bool,
    },
    /// The key's lease, in a bucket that has not changed since.
    Held(Contents),
    /// The same, but its deadline has passed.
    Expired(u32, State<L>),
    /// The bucket has changed.
    Again,
}

impl<L: Layout> Table<L> {
    /// Rule 1 where it is simple: a cell at hand, an empty bucket, no race. `None` otherwise, and
    /// nothing has happened.
    #[inline(always)]
    pub(crate) fn grant_fast(
        &self,
        local: &mut Local,
        ask: &Ask,
        stamp: &Stamp,
    ) -> Option<Granted> {
        debug_assert!(!self.exact, "no short path leads here");
        // Taken before the bucket is loaded; and filled in, so that these stores are not waited for
        // by the CAS.
        let new = local.free.peek()?;
        let cell = self.cell(new);
        cell.fill(ask.key, ask.owner, stamp, 0);
        let array = &*local.array;
        let bucket = array.bucket(ask.hash);
        let word = bucket.load::<L>();
        let version = word.version() + 1;
        let token = array.base + version;
        if !word.is_empty() || version > array.grant_limit() || token < ask.at_least {
            return None;
        }
        let state = cell.start::<L>(token, stamp);
        failpoint!("grant/filled");
        if !bucket.change(word, word.granted(new)) {
            self.unfill(new);
            return None;
        }
        local.free.drop_peeked();
        local.counters.add_grant();
        let with = Self::unwatched(local, new, ask.deadline);
        failpoint!("grant/published");
        with.waive();
        Some(Granted::new(cell, Handle::new(ask.hash, new, state), token))
    }

    /// The same where the bucket holds a few leases and nothing else: refuses if one of them is the
    /// key's and its deadline `is_live`, and grants beside them if none is the key's.
    #[inline(always)]
    pub(crate) fn grant_beside(
        &self,
        local: &mut Local,
        ask: &Ask,
        stamp: &Stamp,
        is_live: impl Fn(u64) -> bool,
    ) -> Beside {
        let Some(new) = local.free.peek() else {
            return Beside::Neither;
        };
        let array = &*local.array;
        let bucket = array.bucket(ask.hash);
        let word = bucket.load::<L>();
        let mut at = word.cell();
        for _ in 0..FEW {
            if at == 0 || !word.is_normal() {
                break;
            }
            let cell = self.cell(at);
            let state = cell.state::<L>();
            if !state.is_held() {
                return Beside::Neither;
            }
            if cell.key() == ask.key {
                let held = cell.contents(state);
                let stands = bucket.load_in_order::<L>() == word && is_live(held.deadline);
                return if stands {
                    Beside::Held(held)
                } else {
                    Beside::Neither
                };
            }
            at = cell.next();
        }
        let version = word.version() + 1;
        let token = array.base + version;
        let simple =
            at == 0 && word.is_normal() && version <= array.grant_limit() && token >= ask.at_least;
        if !simple {
            return Beside::Neither;
        }
        let cell = self.cell(new);
        cell.fill(ask.key, ask.owner, stamp, word.cell());
        let state = cell.start::<L>(token, stamp);
        failpoint!("grant/filled");
        if !bucket.change(word, BucketWord::<L>::new(version, new, NORMAL)) {
            self.unfill(new);
            return Beside::Neither;
        }
        local.free.drop_peeked();
        local.counters.add_grant();
        let with = Self::unwatched(local, new, ask.deadline);
        failpoint!("grant/published");
        with.waive();
        let handle = Handle::new(ask.hash, new, state);
        Beside::Granted(Granted::new(cell, handle, token))
    }

    /// Grants the lease if nobody holds the key at `local.now`: the whole of rule 1.
    ///
    /// Lock-free: a retry means that another operation on this bucket succeeded.
    #[inline(never)]
    pub(crate) fn grant(&self, local: &mut Local, ask: &Ask) -> Result<Granted, Refused> {
        // Rule 1: the cell before the bucket. Without one the answer may still be `Held`.
        let new = match local.free.pop() {
            Some(new) => new,
            None => self.cell_for_grant(local).unwrap_or(0),
        };
        let mut with = Owed::new(&mut *local, |local| self.unprepare(local, new));
        let (granted, first, keep, crowded) = loop {
            let local = &mut *with;
            let bucket = local.array.bucket(ask.hash);
            let word = bucket.load::<L>();
            if !word.is_normal() {
                self.settle(local, ask.hash);
                continue;
            }
            let first = word.cell();
            let (keep, crowded) = match self.walk_for_grant(local, word, ask) {
                Walk::Free { marked: true, .. } if !ask.admitted => {
                    with.pay();
                    return Err(Refused::Marked);
                }
                Walk::Free { keep, crowded, .. } => (keep, crowded),
                Walk::Again => continue,
                Walk::Expired(at, state) => {
                    self.kill(local, ask.hash, at, state, KILLED_EXPIRED);
                    continue;
                }
                Walk::Held(held) => {
                    with.pay();
                    return Err(Refused::Held(held));
                }
            };
            let version = (word.version() + 1).max(ask.at_least.saturating_sub(local.array.base));
            if new == 0 || version > local.array.grant_limit() {
                let wanted = local.array.base.saturating_add(version);
                let next = local.array.base + word.version() + 1;
                if new != 0 && wanted <= MAX_TOKEN && self.allow(local, wanted, next) {
                    continue;
                }
                with.pay();
                return Err(if new == 0 {
                    Refused::NoCell
                } else {
                    Refused::NoToken { wanted }
                });
            }
            let token = self.token(local, version, ask);
            let cell = self.cell(new);
            let state = cell.prepare::<L>(&ask.contents(token), keep);
            failpoint!("grant/filled");
            if bucket.change(word, BucketWord::<L>::new(version, new, NORMAL)) {
                local.counters.add_grant();
                let handle = Handle::new(ask.hash, new, state);
                let granted = Granted::new(cell, handle, token);
                with.waive();
                break (granted, first, keep, crowded);
            }
        };
        let mut with = Self::unwatched(local, new, ask.deadline);
        failpoint!("grant/published");
        // Rule 6, then rule 12.
        if first != keep {
            self.free_skipped(&mut with, first, keep);
        }
        if crowded {
            self.shed_dead(&mut with, ask.hash);
        }
        with.waive();
        Ok(granted)
    }

    /// The wheel may not know of the published cell yet: it has to be told even if a panic comes first.
    #[inline(always)]
    fn unwatched(
        local: &mut Local,
        cell: u32,
        deadline: u64,
    ) -> Owed<'_, Local, impl FnMut(&mut Local)> {
        Owed::new(local, move |local: &mut Local| {
            local.moved.push(Moved { cell, deadline });
        })
    }

    /// The token of a grant that raises its bucket to that version.
    #[inline]
    pub(super) fn token(&self, local: &Local, version: u64, ask: &Ask) -> u64 {
        if self.exact {
            ask.at_least
        } else {
            local.array.base + version
        }
    }

    #[cold]
    pub(super) fn cell_for_grant(&self, local: &mut Local) -> Option<u32> {
        self.keep_sized(local);
        local.free.pop().or_else(|| {
            // Rule J. The other half is for copies: a table that is full can still change its size.
            let room = self.handed.load(Ordering::Relaxed) < L::MAX_LEASES;
            room.then(|| self.refill(local)).flatten()
        })
    }

    /// Gives back a cell that was taken for a grant, and maybe filled in.
    pub(super) fn unprepare(&self, local: &mut Local, new: u32) {
        if new != 0 {
            self.unfill(new);
            self.give_cell(local, new);
        }
    }

    /// Rule C: a free cell is never `HELD`, since the wheel may look at it.
    #[cold]
    pub(super) fn unfill(&self, new: u32) {
        let cell = self.cell(new);
        cell.set_state(cell.state::<L>().with_tag(DEAD));
    }

    pub(super) fn walk_for_grant(&self, local: &Local, word: BucketWord<L>, ask: &Ask) -> Walk<L> {
        let bucket = local.array.bucket(ask.hash);
        let (mut keep, mut marked) = (0, false);
        let (mut live, mut dead, mut steps) = (0, 0, 0);
        let mut at = word.cell();
        while at != 0 {
            let cell = self.cell(at);
            let state = cell.state::<L>();
            if state.is_lease() {
                if keep == 0 {
                    keep = at;
                }
                live += 1;
                if cell.key() == ask.key {
                    let contents = cell.contents(state);
                    // Rule 1, and rule 4: a thief reloads the bucket before it kills.
                    if bucket.load_in_order::<L>() != word {
                        return Walk::Again;
                    }
                    if contents.deadline > local.now {
                        return Walk::Held(contents);
                    }
                    return Walk::Expired(at, state);
                }
            } else if state.is_mark() {
                if keep == 0 {
                    keep = at;
                }
                live += 1;
                marked |= cell.key() == ask.key;
            } else if keep != 0 {
                dead += 1;
            }
            at = cell.next();
            steps += 1;
            if steps % WALK_CHECK == 0 && bucket.load::<L>() != word {
                return Walk::Again;
            }
        }
        Walk::Free {
            keep,
            crowded: dead > live + DEAD_ALLOWED,
            marked,
        }
    }
}
