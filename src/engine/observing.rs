//! Observed managers: every change of a lease is told, in the order in which it happened to its key.
//!
//! While somebody observes, no operation takes a short path, and each that changes a lease holds the lock
//! of its key's record from before the change until it has been told. An expiry is not acted on by the
//! wheel itself, but passed on to where that lock is taken. Nobody else pays for any of this: the short
//! paths' look at the engine's number fails, as it does for other reasons.
//!
//! (An operation that is under way on a short path while the first observer comes may go untold.)

use std::sync::Weak;
use std::time::Duration;

use dashmap::DashMap;
use foldhash::fast::RandomState;

use super::{Engine, Seen};
use crate::events::{Event, EventKind, Stream};
use crate::key::Key;
use crate::owner::OwnerId;
use crate::records::{Holder, Record, Stripe, add_weak};
use crate::room::shrinks;
use crate::snapshot::{HolderSnapshot, KeySnapshot, WaiterSnapshot};
use crate::sync::{Arc, AtomicBool, Mutex, Ordering};
use crate::table::{Contents, Layout, Local, Loss, Name, Note};
use crate::token::FencingToken;
use crate::wish::{Mode, Wish};

/// Who looks on, and what is kept for them.
#[derive(Debug)]
pub(super) struct Observers {
    streams: Mutex<Vec<Weak<Stream>>>,
    on: AtomicBool,
    /// What is known of keys that are held or waited for, if anybody wants to know.
    tracked: Option<DashMap<Key, Tracked, RandomState>>,
}

/// What is kept of a key while it is in use.
#[derive(Clone, Debug, Default)]
struct Tracked {
    name: Option<Arc<str>>,
    /// When its plain lease was granted.
    granted: Option<u64>,
}

impl Observers {
    pub(super) fn new(introspection: bool) -> Self {
        Self {
            streams: Mutex::new(vec![]),
            on: AtomicBool::new(introspection),
            tracked: introspection.then(DashMap::default),
        }
    }

    /// Gives back what the map of names keeps beyond its contents.
    pub(super) fn trim(&self) {
        if let Some(tracked) = &self.tracked
            && shrinks(tracked.len(), tracked.capacity()).is_some()
        {
            tracked.shrink_to_fit();
        }
    }

    #[cfg(all(test, not(any(tenure_loom, tenure_shuttle))))]
    pub(super) fn room(&self) -> usize {
        self.tracked.as_ref().map_or(0, DashMap::capacity)
    }

    #[cfg(all(test, not(any(tenure_loom, tenure_shuttle))))]
    pub(super) fn streams(&self) -> usize {
        self.streams.lock().len()
    }

    pub(super) fn close(&self) -> Vec<std::task::Waker> {
        let streams = std::mem::take(&mut *self.streams.lock());
        let streams = streams.iter().filter_map(Weak::upgrade);
        streams.filter_map(|stream| stream.close()).collect()
    }
}

/// What an event is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) kind: EventKind,
    pub(super) contents: Contents,
    pub(super) mode: Mode,
    /// When the lease was granted, if it is known.
    pub(super) granted: Option<u64>,
    /// It is the table's.
    pub(super) plain: bool,
}

impl Change {
    pub(super) fn of_holder(kind: EventKind, key: Key, holder: &Holder) -> Self {
        let Seen { contents, mode, .. } = Seen::recorded(key, holder, holder.deadline());
        Self {
            kind,
            contents,
            mode,
            granted: holder.granted,
            plain: false,
        }
    }

    pub(super) fn of_plain(kind: EventKind, contents: Contents) -> Self {
        Self {
            kind,
            contents,
            mode: Mode::Exclusive,
            granted: None,
            plain: true,
        }
    }
}

impl<L: Layout> Engine<L> {
    #[inline(always)]
    pub(crate) fn is_observed(&self) -> bool {
        self.observers.on.load(Ordering::Relaxed)
    }

    /// A new stream of events, with room for so many.
    pub(crate) fn observe(&self, room: usize) -> Arc<Stream> {
        let stream = Stream::new(room);
        let mut streams = self.observers.streams.lock();
        if self.is_closed() {
            stream.close();
        }
        add_weak(&mut streams, Arc::downgrade(&stream), |stream| {
            stream.strong_count() > 0
        });
        self.observers.on.store(true, Ordering::SeqCst);
        self.short_id.store(u64::MAX, Ordering::SeqCst);
        stream
    }

    /// Back to the short paths, once the last observer has gone.
    fn unobserve(&self, streams: &mut Vec<Weak<Stream>>) {
        streams.retain(|stream| stream.strong_count() > 0);
        if streams.is_empty() && self.observers.tracked.is_none() {
            self.observers.on.store(false, Ordering::SeqCst);
            let long = self.capacity.is_some() || self.table.exact;
            let short_id = if long { u64::MAX } else { self.id };
            self.short_id.store(short_id, Ordering::SeqCst);
        }
    }

    /// Tells who looks on. The caller holds the lock of the key's record.
    pub(super) fn tell(&self, local: &mut Local, change: &Change) {
        if !local.observed {
            return;
        }
        let Change {
            kind,
            contents,
            mode,
            granted,
            plain,
        } = *change;
        let now = self.time.now();
        let mut name = None;
        if let Some(tracked) = &self.observers.tracked {
            match kind {
                EventKind::Granted if plain => {
                    tracked.entry(contents.key).or_default().granted = Some(now);
                }
                EventKind::Released | EventKind::Expired | EventKind::Revoked => {
                    let of_key = tracked.get(&contents.key).and_then(|key| key.granted);
                    if let Some(granted) = granted.or(of_key) {
                        self.metrics.held(local, now.saturating_sub(granted));
                    }
                }
                _ => {}
            }
            name = match kind {
                EventKind::Reclaimed => tracked
                    .remove(&contents.key)
                    .and_then(|(_, tracked)| tracked.name),
                _ => tracked.get(&contents.key).and_then(|key| key.name.clone()),
            };
        }
        if matches!(
            kind,
            EventKind::Released | EventKind::Expired | EventKind::Revoked
        ) {
            local.last_end = Some(contents);
        }
        let event = Event {
            kind,
            at: crate::Timestamp::from_nanos(now),
            key: contents.key,
            name,
            owner: OwnerId(contents.owner),
            token: FencingToken::granted(contents.token),
            mode,
            deadline: self.time.start_of(contents.deadline),
        };
        self.metrics.event(local, &event);
        let mut streams = self.observers.streams.lock();
        let mut gone = false;
        for stream in &*streams {
            match stream.upgrade() {
                Some(stream) => {
                    local.wakes.extend(stream.push(event.clone()));
                    if local.streams.iter().all(|it| !Arc::ptr_eq(it, &stream)) {
                        local.streams.push(stream);
                    }
                }
                None => gone = true,
            }
        }
        if gone {
            self.unobserve(&mut streams);
        }
    }

    /// Tells of the end of a plain lease, unless it was told before.
    pub(super) fn tell_end(&self, local: &mut Local, note: &Note) {
        if note.told {
            return;
        }
        let contents = Contents {
            key: note.key,
            token: note.token,
            owner: note.owner,
            deadline: note.deadline,
        };
        self.tell(local, &Change::of_plain(kind_of(note.loss), contents));
    }

    /// Tells of the plain leases that this operation has ended so far.
    pub(super) fn tell_ends(&self, local: &mut Local) {
        if !local.observed {
            return;
        }
        let mut notes = std::mem::take(&mut local.notes);
        // Those that are told come first. There are many of them when many leases are due at once, and this
        // is called for each.
        let told = notes.iter().rposition(|note| note.told);
        for note in &mut notes[told.map_or(0, |last| last + 1)..] {
            self.tell_end(local, note);
            note.told = true;
        }
        local.notes = notes;
    }

    /// Runs what may change a plain lease of the key: under the lock of its record, and told before that
    /// is given up, if somebody looks on.
    pub(super) fn guarded<R>(
        &self,
        local: &mut Local,
        (key, hash): (Key, u64),
        f: impl FnOnce(&mut Local) -> R,
    ) -> R {
        if !local.observed {
            return f(local);
        }
        let mut stripe = self.records.lock(hash);
        let result = f(local);
        self.tell_ends(local);
        self.serve(local, &mut stripe, key, hash);
        result
    }

    /// Tells that nothing is left of a key that has no record, if that is so. The last lease that ended is
    /// known if any has, since somebody looks on.
    pub(super) fn tell_if_idle(
        &self,
        local: &mut Local,
        last: Option<Contents>,
        key: Key,
        hash: u64,
    ) {
        if let Some(last) = last
            && self.table.find(local, key, hash).is_err()
        {
            let change = Change::of_plain(EventKind::Reclaimed, last);
            self.tell(local, &change);
        }
    }

    pub(super) fn tell_renewal(&self, local: &mut Local, name: &Name, deadline: u64) {
        if !local.observed {
            return;
        }
        if let Ok(found) = self.table.find(local, name.key, name.hash)
            && found.contents.token == name.token
        {
            let contents = Contents {
                deadline,
                ..found.contents
            };
            self.tell(local, &Change::of_plain(EventKind::Renewed, contents));
        }
    }

    /// Keeps the name of a key that is asked for.
    pub(super) fn keep_name(&self, wish: &Wish) {
        if let (Some(tracked), Some(name)) = (&self.observers.tracked, &wish.name) {
            tracked.entry(wish.request.key).or_default().name = Some(Arc::clone(name));
        }
    }

    /// Forgets it again, if the key was not granted and is not in use.
    pub(super) fn forget_name(&self, local: &mut Local, stripe: &mut Stripe, key: Key, hash: u64) {
        if let Some(tracked) = &self.observers.tracked
            && stripe.get(key).is_none()
            && self.table.find(local, key, hash).is_err()
        {
            tracked.remove(&key);
        }
    }

    /// How many keys something is known of.
    pub(crate) fn names(&self) -> usize {
        self.observers.tracked.as_ref().map_or(0, DashMap::len)
    }

    pub(crate) fn keeps_names(&self) -> bool {
        self.observers.tracked.is_some()
    }

    /// All keys that have a record, a stripe at a time.
    pub(crate) fn recorded_keys(&self) -> Vec<KeySnapshot> {
        let mut keys = vec![];
        for stripe in self.records.stripes() {
            let now = self.time.now();
            let stripe = stripe.lock();
            self.with(now, |local| {
                for (&key, record) in &stripe.records {
                    let mut snapshot = self.snapshot_of(key, record, now);
                    // Ends nothing, and so wakes nobody: the stripe is locked.
                    let found = self.table.find(local, key, self.table.hash(key));
                    if let Ok(found) = found
                        && found.contents.deadline > local.now
                    {
                        let plain = self.plain_snapshot(&Seen::plain(found.contents), now);
                        snapshot.holders.extend(plain.holders);
                    }
                    keys.push(snapshot);
                }
            });
        }
        keys
    }

    fn snapshot_of(&self, key: Key, record: &Record, now: u64) -> KeySnapshot {
        let tick = self.time.tick_of(now);
        let age = |since: u64| Duration::from_nanos(now.saturating_sub(since));
        let (over, kept) = self.over_and_kept(record, tick);
        let holders = record.holders.iter();
        let holders = holders.filter(|holder| !over.contains_key(&holder.token));
        let holders = holders.map(|holder| HolderSnapshot {
            owner: OwnerId(holder.owner),
            token: FencingToken::granted(holder.token),
            mode: holder.mode,
            entries: holder.entries,
            age: holder.granted.map(age),
            remaining: Duration::from_nanos(self.remaining(holder, now)),
            in_session: holder.session.is_some(),
        });
        let waiters = record.waiters().map(|waiter| WaiterSnapshot {
            owner: OwnerId(waiter.wish.request.owner),
            mode: waiter.wish.mode,
            age: age(waiter.since),
            upgrades: waiter.wish.upgrade.is_some(),
        });
        KeySnapshot {
            key,
            name: self.tracked(key).name,
            holders: holders.collect(),
            waiters: waiters.collect(),
            delayed: kept.map(|until| self.time.until(until, now)),
        }
    }

    /// When the plain lease of the key was granted, if that is known.
    pub(super) fn granted_at(&self, key: Key) -> Option<u64> {
        self.tracked(key).granted
    }

    fn tracked(&self, key: Key) -> Tracked {
        let tracked = self.observers.tracked.as_ref();
        let key = tracked.and_then(|tracked| tracked.get(&key));
        key.map(|key| key.clone()).unwrap_or_default()
    }

    /// A key with nothing but a plain lease, or with that as a holder among others.
    pub(crate) fn plain_snapshot(&self, seen: &Seen, now: u64) -> KeySnapshot {
        let Contents {
            key,
            token,
            owner,
            deadline,
        } = seen.contents;
        let Tracked { name, granted } = self.tracked(key);
        let age = granted.map(|granted| Duration::from_nanos(now.saturating_sub(granted)));
        KeySnapshot {
            key,
            name,
            holders: vec![HolderSnapshot {
                owner: OwnerId(owner),
                token: FencingToken::granted(token),
                mode: seen.mode,
                entries: 1,
                age,
                remaining: self.time.until(deadline, now),
                in_session: false,
            }],
            waiters: vec![],
            delayed: None,
        }
    }
}

/// What the end of a lease is called.
pub(super) fn kind_of(loss: Loss) -> EventKind {
    match loss {
        Loss::Revoked => EventKind::Revoked,
        Loss::Expired | Loss::MaxHold | Loss::SessionOver => EventKind::Expired,
        Loss::Released | Loss::Closed | Loss::Unwatched => EventKind::Released,
    }
}
