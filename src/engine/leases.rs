//! Leases by handle and by token, wherever they stand: in the table, or in a record.

use super::Engine;
use super::restore::nanos;
use crate::key::Key;
use crate::locals::{self, Entry};
use crate::records::Holder;
use crate::sync::Ordering;
use crate::table::{
    Contents, Ended, FEW, Found, Handle, Layout, Local, Name, NotFound, Unrenewed, Wanted,
};
use crate::wish::Mode;

/// A release that is not simple: what was in the thread's slot, and whether that is this engine's and
/// the deadline has been seen not to be over.
type ReleaseBegun = (Option<Box<Entry>>, bool);

/// A lease as it was seen, in the table or in a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) contents: Contents,
    pub(crate) handle: Handle,
    pub(crate) mode: Mode,
}

impl Seen {
    fn in_table<L: Layout>(found: &Found<L>) -> Self {
        Self {
            handle: found.handle(),
            ..Self::plain(found.contents)
        }
    }

    /// Of which it is not known where it stands.
    pub(crate) fn plain(contents: Contents) -> Self {
        Self {
            contents,
            handle: Handle::recorded(Mode::Exclusive.code()),
            mode: Mode::Exclusive,
        }
    }

    /// With that deadline.
    pub(super) fn recorded(key: Key, holder: &Holder, deadline: u64) -> Self {
        Self {
            contents: Contents {
                key,
                token: holder.token,
                owner: holder.owner,
                deadline,
            },
            handle: Handle::recorded(holder.mode.code()),
            mode: holder.mode,
        }
    }
}

impl<L: Layout> Engine<L> {
    /// The deadline that others are told of: of one whose session has been closed since it was found live, the
    /// one it had. The time of those that an `acquire_all` under way has already starts with the last key, as
    /// if that came now.
    pub(super) fn told_deadline(&self, holder: &Holder) -> u64 {
        let deadline = holder.deadline();
        match &holder.session {
            Some(session) if deadline >= self.time.last_tick() => {
                let (now, ttl) = (self.time.now(), session.ttl);
                let from_now = self.time.deadline(now, ttl).ok();
                // There may be no authority: then none is granted, and the session closed sooner or later.
                let from_now = from_now.or_else(|| self.time.resumed(now, nanos(ttl)));
                from_now.unwrap_or(deadline)
            }
            _ => deadline,
        }
    }

    /// The lease, with the deadline that others are told of.
    pub(super) fn told(&self, key: Key, holder: &Holder) -> Seen {
        Seen::recorded(key, holder, self.told_deadline(holder))
    }

    /// Whether the lease is in the very state that the handle saw it in.
    #[inline(always)]
    pub(crate) fn is_as_seen(&self, handle: Handle, key: Key, token: u64) -> bool {
        self.table.is_as_seen(handle, key, token)
    }

    /// Renews a lease that is in that state, to a later deadline.
    #[inline(always)]
    pub(crate) fn renew_as_seen(
        &self,
        handle: Handle,
        key: Key,
        token: u64,
        wanted: &impl Wanted,
    ) -> Option<(u64, Handle)> {
        self.table.renew_as_seen(handle, key, token, wanted)
    }

    /// Renews through a handle, if the lease stands where it points: needs nothing of the thread's.
    /// Otherwise [`renew_by_key`](Self::renew_by_key) tells.
    #[inline]
    pub(crate) fn renew_fast(
        &self,
        handle: Handle,
        name: &Name,
        wanted: &impl Wanted,
    ) -> Option<(u64, Handle)> {
        self.table.renew_fast(handle, name, wanted)
    }

    /// Renews by token, if that is simple: the deadline that stands then. Otherwise
    /// [`renew_by_key`](Self::renew_by_key) tells.
    #[inline(always)]
    pub(crate) fn renew_short(&self, name: &Name, wanted: &impl Wanted) -> Option<u64> {
        self.with_short(|local| self.table.renew_spotted(local, name, wanted))
    }

    /// Releases by token, if that is simple. Otherwise [`release_by_key`](Self::release_by_key) tells.
    #[inline(always)]
    pub(crate) fn release_short(&self, name: &Name, now: u64) -> bool {
        let is_live = |deadline| self.time.is_before(now, deadline);
        self.with_short(|local| {
            let released = self.table.release_spotted(local, name, is_live);
            released.then_some(())
        })
        .is_some()
    }

    /// The lease of that key, live at the reading `now`, if that is simple to tell. Otherwise
    /// [`live`](Self::live) does.
    #[inline(always)]
    pub(crate) fn live_short(&self, key: Key, hash: u64, now: u64) -> Option<Contents> {
        let is_live = |deadline| self.time.is_before(now, deadline);
        self.with_short(|local| self.table.live_spotted(local, (key, hash), FEW, is_live))
    }

    /// Uses this thread's part, if it is in the slot and the manager has short paths. `f` leaves no chores.
    #[inline(always)]
    fn with_short<R>(&self, f: impl FnOnce(&mut Local) -> Option<R>) -> Option<R> {
        match locals::take_last(self.short_id.load(Ordering::Relaxed)) {
            Ok(mut entry) => {
                let result = f(&mut entry.local);
                locals::put_back(entry);
                result
            }
            Err(last) => {
                if let Some(other) = last {
                    locals::put_back(other);
                }
                None
            }
        }
    }

    pub(crate) fn renew_by_key(
        &self,
        name: &Name,
        deadline: u64,
        now: u64,
    ) -> Result<(u64, Handle), Unrenewed> {
        self.with(now, |local| {
            let renewed = self.guarded(local, (name.key, name.hash), |local| {
                let renewed = self.table.renew_by_key(local, name, deadline);
                if let Ok((deadline, _)) = renewed {
                    self.tell_renewal(local, name, deadline);
                }
                renewed
            });
            match renewed {
                Err(Unrenewed::Ended(Ended::Recorded)) => {
                    self.renew_recorded(local, name, deadline)
                }
                renewed => renewed,
            }
        })
    }

    /// Releases through a handle. The lease lasts until `deadline` at the least, unless it was ended.
    #[inline(always)]
    pub(crate) fn release(
        &self,
        handle: Handle,
        deadline: u64,
        key: Key,
        token: u64,
    ) -> Result<(), Ended> {
        let now = self.time.now();
        match self.release_at(now, handle, deadline, token) {
            Ok(()) => Ok(()),
            Err(begun) => self.release_more(begun, handle, key, token, now),
        }
    }

    /// The same at a reading of the clock, if that is simple. If not, [`release_more`](Self::release_more)
    /// goes on with what was in the thread's slot.
    #[inline(always)]
    pub(super) fn release_at(
        &self,
        now: u64,
        handle: Handle,
        deadline: u64,
        token: u64,
    ) -> Result<(), ReleaseBegun> {
        match locals::take_last(self.short_id.load(Ordering::Relaxed)) {
            Ok(mut entry) => {
                let live = self.time.is_before(now, deadline);
                if live && self.table.release_fast(&mut entry.local, handle, token) {
                    locals::put_back(entry);
                    return Ok(());
                }
                Err((Some(entry), live))
            }
            Err(last) => Err((last, false)),
        }
    }

    /// What is not a simple release.
    #[cold]
    #[inline(never)]
    pub(super) fn release_more(
        &self,
        (last, live): ReleaseBegun,
        handle: Handle,
        key: Key,
        token: u64,
        now: u64,
    ) -> Result<(), Ended> {
        let mut entry = locals::take_after(self, last);
        if live && self.table.release_beside(&mut entry.local, handle, token) {
            locals::put_back(entry);
            return Ok(());
        }
        let name = self.name(key, token);
        self.with_entry(entry, now, |local| {
            let released = self.guarded(local, (key, name.hash), |local| {
                self.table.release(local, handle, &name)
            });
            self.or_recorded(local, &name, released)
        })
    }

    pub(crate) fn release_by_key(&self, name: &Name, now: u64) -> Result<(), Ended> {
        self.with(now, |local| {
            let released = self.guarded(local, (name.key, name.hash), |local| {
                self.table.release_by_key(local, name)
            });
            self.or_recorded(local, name, released)
        })
    }

    /// The table's answer, or the record's if that has to be asked.
    fn or_recorded(
        &self,
        local: &mut Local,
        name: &Name,
        released: Result<(), Ended>,
    ) -> Result<(), Ended> {
        match released {
            Err(Ended::Recorded) => self.release_recorded(local, name),
            released => released,
        }
    }

    pub(crate) fn validate(&self, name: &Name, now: u64) -> Result<Seen, Ended> {
        self.with(now, |local| {
            let found = self.guarded(local, (name.key, name.hash), |local| {
                self.table.validate(local, name)
            });
            match found {
                Ok(found) => Ok(Seen::in_table(&found)),
                Err(Ended::Recorded) => {
                    let seen = self.seen_recorded(local, name);
                    seen.ok_or_else(|| self.table.over(local, name))
                }
                Err(ended) => Err(ended),
            }
        })
    }

    pub(crate) fn deadline_by_handle(&self, handle: Handle, name: &Name) -> Option<(u64, Handle)> {
        self.table.deadline_by_handle(handle, name)
    }

    /// Ends the leases of the key; those that they were.
    pub(crate) fn revoke(&self, key: Key, now: u64) -> Vec<Seen> {
        let hash = self.table.hash(key);
        self.with(now, |local| {
            let revoked = self.guarded(local, (key, hash), |local| {
                self.table.revoke(local, key, hash)
            });
            match revoked {
                Ok(found) => vec![Seen::in_table(&found)],
                Err(gone) if gone.marked => self.revoke_recorded(local, key, hash),
                Err(_) => vec![],
            }
        })
    }

    /// The live lease of the key, the longest one if it has several; ends those that are over.
    pub(crate) fn live(&self, key: Key, now: u64) -> Result<Seen, NotFound> {
        let hash = self.table.hash(key);
        self.with(now, |local| {
            let live = self.guarded(local, (key, hash), |local| {
                self.table.live(local, key, hash)
            });
            match live {
                Ok(found) => Ok(Seen::in_table(&found)),
                Err(gone) if gone.marked => {
                    let any = Name {
                        key,
                        hash,
                        token: 0,
                    };
                    self.seen_recorded(local, &any).ok_or(gone)
                }
                Err(gone) => Err(gone),
            }
        })
    }

    /// All live leases of the key; ends those that are over.
    pub(crate) fn all_live(&self, key: Key, now: u64) -> Vec<Seen> {
        let hash = self.table.hash(key);
        self.with(now, |local| {
            let live = self.guarded(local, (key, hash), |local| {
                self.table.live(local, key, hash)
            });
            match live {
                Ok(found) => vec![Seen::in_table(&found)],
                Err(gone) if gone.marked => self.all_recorded(local, key, hash),
                Err(_) => vec![],
            }
        })
    }

    /// The lease of that name, over or not, if it stands somewhere.
    pub(crate) fn find(&self, name: &Name, now: u64) -> Option<Seen> {
        self.with(now, |local| {
            match self.table.find(local, name.key, name.hash) {
                Ok(found) => (found.contents.token == name.token).then(|| Seen::in_table(&found)),
                Err(gone) if gone.marked => self.seen_recorded(local, name),
                Err(_) => None,
            }
        })
    }

    /// The table's leases of one class of keys, over or not; see [`Table::collect`].
    pub(crate) fn collect(&self, class: usize, bits: u32) -> Vec<Seen> {
        let mut found = vec![];
        self.with(self.time.now(), |local| {
            self.table.collect(local, class, bits, &mut found);
        });
        found.into_iter().map(Seen::plain).collect()
    }

    /// The leases that records hold, expired or not, a stripe at a time.
    pub(crate) fn recorded(&self) -> impl Iterator<Item = Vec<Seen>> + '_ {
        self.records.stripes().map(|stripe| {
            let stripe = stripe.lock();
            let mut seen = vec![];
            for (&key, record) in &stripe.records {
                let holders = record.holders.iter().filter(|it| !it.is_ended());
                seen.extend(holders.map(|holder| self.told(key, holder)));
            }
            seen
        })
    }

    /// Classes for [`collect`](Self::collect), as a power of two: a bucket each, as things are.
    pub(crate) fn class_bits(&self) -> u32 {
        self.table.size().0.ilog2()
    }
}
