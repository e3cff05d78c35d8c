//! The verbs of those who look on.

use std::collections::{BTreeMap, VecDeque};

use super::{Holder, LockManager};
use crate::engine::Seen;
use crate::events::Events;
use crate::key::{Key, ToKey};
use crate::lost::Lost;
#[cfg(feature = "histograms")]
use crate::metrics::Histograms;
use crate::snapshot::KeySnapshot;
use crate::token::FencingToken;

impl LockManager {
    /// The live lease of `key`, if there is one; of several, the one that lasts longest.
    #[must_use]
    pub fn holder(&self, key: impl ToKey) -> Option<Holder> {
        let engine = &*self.engine;
        let (now, any) = (engine.time.now(), engine.name(key.to_key(&engine.seed), 0));
        let seen = match engine.live_short(any.key, any.hash, now) {
            Some(found) => Seen::plain(found),
            None => engine.live(any.key, now).ok()?,
        };
        Some(self.holder_of(&seen, now))
    }

    /// The live leases of `key`, in the order of their tokens.
    #[must_use]
    pub fn holders(&self, key: impl ToKey) -> Vec<Holder> {
        let now = self.engine.time.now();
        let seen = self.engine.all_live(key.to_key(&self.engine.seed), now);
        seen.iter().map(|seen| self.holder_of(seen, now)).collect()
    }

    /// Resolves when that lease is over: [`Lease::lost`](crate::Lease::lost) by token, for leases whose
    /// guard is elsewhere, or nowhere. One that was over already counts as
    /// [`Revoked`](crate::Loss::Revoked), whatever it was.
    pub fn lost(&self, key: impl ToKey, token: FencingToken) -> Lost {
        let engine = &*self.engine;
        let name = engine.name(key.to_key(&engine.seed), token.get());
        Lost::new(engine.signal(&name, u64::MAX))
    }

    /// The live leases, in no order.
    ///
    /// A lease that is live from the first call of `next` to the last is seen exactly once; one that
    /// comes or goes meanwhile may be seen; and one may be missed that becomes shared or reentrant
    /// meanwhile. Holds no lock while the caller has a lease in hand, and takes time in the number of
    /// buckets.
    pub fn iter(&self) -> impl Iterator<Item = Holder> + '_ {
        let bits = self.engine.class_bits();
        let mut recorded = self.engine.recorded();
        let mut class = 0;
        let mut ready = VecDeque::new();
        std::iter::from_fn(move || {
            while ready.is_empty() {
                let found = match recorded.next() {
                    Some(found) => found,
                    None if class >> bits == 0 => {
                        class += 1;
                        self.engine.collect(class - 1, bits)
                    }
                    None => break,
                };
                let now = self.engine.time.now();
                ready.extend(found.iter().filter_map(|seen| self.live(seen, now)));
            }
            ready.pop_front()
        })
    }

    /// Everybody who holds a key or waits for it, sorted by key: like PostgreSQL's `pg_locks`.
    ///
    /// Each key is of one moment, and different keys of different ones. Takes a lock at a time, and time in
    /// the number of buckets, records and leases. Names, and ages of plain leases, are there only under
    /// [`introspection`](crate::Builder::introspection).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::LockManager;
    ///
    /// let locks = LockManager::builder().introspection(true).build()?;
    /// let ttl = Duration::from_secs(10);
    /// let _held = locks.try_acquire("a key with a long name", 1, ttl)?;
    /// let keys = locks.snapshot();
    /// assert_eq!(keys[0].name.as_deref(), Some("a key with a long name"));
    /// assert_eq!(keys[0].holders.len(), 1);
    /// print!("{}", keys[0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn snapshot(&self) -> Vec<KeySnapshot> {
        // The records before the table, for those who wait and are granted a plain lease; and after it, for leases
        // that move to a record.
        let recorded = || {
            let keys = self.engine.recorded_keys().into_iter();
            keys.filter(|key| !key.is_empty()).map(|key| (key.key, key))
        };
        let mut keys: BTreeMap<Key, KeySnapshot> = recorded().collect();
        let bits = self.engine.class_bits();
        for class in 0..1 << bits {
            let now = self.engine.time.now();
            for seen in self.engine.collect(class, bits) {
                if self.live(&seen, now).is_none() {
                    continue;
                }
                let found = self.engine.plain_snapshot(&seen, now);
                keys.entry(found.key).or_insert(found);
            }
        }
        keys.extend(recorded());
        keys.into_values().collect()
    }

    /// Follows what happens to leases: a stream with room for so many events. A subscriber that is too slow
    /// loses the oldest, and is told how many; it slows nobody down.
    ///
    /// The events of a key come in the order in which they happened. (Operations under way in other threads
    /// while this one subscribes may not be seen.) While somebody subscribes, no operation of the manager
    /// takes the short path: a grant and its release take locks, and some 650 ns. The wheel must be turned for
    /// expiries to be told in time.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::{EventKind, LockManager};
    ///
    /// let locks = LockManager::new();
    /// let mut events = locks.events(100);
    /// drop(locks.try_acquire("a", 1, Duration::from_secs(10))?);
    /// let kinds: Vec<_> = std::iter::from_fn(|| events.try_next())
    ///     .map(|event| event.map(|event| event.kind))
    ///     .collect();
    /// let expected = [EventKind::Granted, EventKind::Released, EventKind::Reclaimed];
    /// assert_eq!(kinds, expected.map(Ok));
    /// # Ok::<(), tenure::AcquireError>(())
    /// ```
    #[must_use]
    pub fn events(&self, room: usize) -> Events {
        Events::new(self.engine.observe(room))
    }

    /// How long leases were held and acquisitions waited so far.
    #[cfg(feature = "histograms")]
    #[must_use]
    pub fn histograms(&self) -> Histograms {
        self.engine.metrics.histograms()
    }
}
