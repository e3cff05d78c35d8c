//! What only replicas ask of an engine.

use super::Engine;
use super::grants::{Acquired, Denied};
use crate::error::AcquireError;
use crate::records::Record;
use crate::sync::Ordering;
use crate::table::Layout;
use crate::wish::Wish;

impl<L: Layout> Engine<L> {
    /// Whether as many leases are out as may be. An engine that refuses for want of room and is not full
    /// has no memory.
    pub(crate) fn is_full(&self) -> bool {
        let full = |out: i64, max: usize| usize::try_from(out).unwrap_or(0) >= max;
        let capacity = self.capacity.as_ref();
        capacity.is_some_and(|it| full(it.out.load(Ordering::Acquire), it.max))
    }

    /// Whether an acquisition of that wish, if it were a reentrant one, would enter a live lease of its owner's.
    pub(crate) fn enters(&self, wish: &Wish, now: u64) -> bool {
        let request = &wish.request;
        let (key, hash) = (request.key, self.table.hash(request.key));
        self.with(now, |local| {
            let live = self.guarded(local, (key, hash), |local| {
                self.table.live(local, key, hash)
            });
            match live {
                // Exclusive, and so it covers all modes.
                Ok(found) => found.contents.owner == request.owner,
                Err(gone) if gone.marked => {
                    let mut stripe = self.records.lock(hash);
                    self.serve(local, &mut stripe, key, hash);
                    let entered = |record: &mut Record| record.holders.entered_by(wish);
                    stripe.get(key).and_then(entered).is_some()
                }
                Err(_) => false,
            }
        })
    }

    /// Makes a shared lease an exclusive one, or says at once who is in the way: nobody waits.
    pub(crate) fn upgrade_now(&self, wish: &Wish) -> Result<Acquired, Denied> {
        let request = &wish.request;
        let (key, hash) = (request.key, self.table.hash(request.key));
        let token = wish.upgrade.unwrap_or(1);
        let lapsed = || {
            let token = crate::FencingToken::granted(token);
            Denied::Other(AcquireError::Lapsed { token })
        };
        self.with(self.time.now(), |local| {
            let mut stripe = self.records.lock(hash);
            self.serve(local, &mut stripe, key, hash);
            let now = self.fresh(local);
            let record = stripe.get(key).ok_or_else(lapsed)?;
            if let Some(upgraded) = self.try_upgrade(local, record, wish, hash, now) {
                self.serve(local, &mut stripe, key, hash);
                return upgraded.map_err(Denied::Other);
            }
            if let Some(other) = record.holders.last_but(token) {
                return Err(Denied::Held {
                    owner: other.owner,
                    token: other.token,
                    remaining: self.remaining(other, now),
                });
            }
            let until = record.quarantine.unwrap_or(local.now);
            Err(Denied::Delayed {
                remaining: self.time.nanos_until(until, now),
            })
        })
    }
}
