//! Grants: the short path, the long one, and the limit on the number of leases.

use std::time::Duration;

use super::{Capacity, Engine};
use crate::error::AcquireError;
use crate::key::Key;
use crate::locals::{self, Entry};
use crate::owner::OwnerId;
use crate::sync::Ordering;
use crate::table::{
    Ask, Beside, Contents, Granted, Handle, LastStamp, Layout, Local, MAX_TOKEN, Refused, Stamp,
};
use crate::timeline::BadTtl;
use crate::token::FencingToken;
use crate::wish::Wish;

/// The most that a grant may be asked for at least. A jump of tokens moves those of all keys, so the
/// rest of the range is for what is granted afterwards: 2^56 grants of the busiest key.
pub(crate) const MAX_AT_LEAST: u64 = FencingToken::MAX.get() - (1 << 56);

/// A lease that was granted, with all that its guard needs to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acquired {
    pub(crate) handle: Handle,
    pub(crate) token: u64,
    /// In ticks.
    pub(crate) deadline: u64,
}

/// What a grant is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) key: Key,
    pub(crate) owner: u64,
    pub(crate) ttl: Duration,
    /// The least token; 0 for any.
    pub(crate) at_least: u64,
}

/// A grant that is not simple, and what has been done for it so far.
#[derive(Debug)]
pub(crate) struct Begun {
    /// What was in the thread's slot.
    last: Option<Box<Entry>>,
    now: u64,
    hash: u64,
    /// That was this engine's part, and the request is a good one.
    checked: bool,
}

impl Begun {
    /// Whether a short path was tried.
    #[inline(always)]
    pub(crate) fn is_checked(&self) -> bool {
        self.checked
    }
}

/// Why there is no lease, in whole words: a caller that has to pass on half of one waits for it.
#[derive(Clone, Debug)]
pub(crate) enum Denied {
    Held {
        owner: u64,
        token: u64,
        /// In nanoseconds.
        remaining: u64,
    },
    /// Nobody holds the key, and nobody is granted it for so many nanoseconds.
    Delayed {
        remaining: u64,
    },
    /// What stood in the way has just ended. Not seen from outside of the engine.
    Again,
    Other(AcquireError),
}

impl From<Denied> for AcquireError {
    #[inline(always)]
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Held {
                owner,
                token,
                remaining,
            } => Self::Held {
                owner: OwnerId(owner),
                token: FencingToken::granted(token),
                remaining: Duration::from_nanos(remaining),
            },
            Denied::Delayed { remaining } => Self::Delayed {
                remaining: Duration::from_nanos(remaining),
            },
            Denied::Again => Self::TimedOut,
            Denied::Other(error) => error,
        }
    }
}

impl Capacity {
    /// Counts one lease in advance, unless as many are out as may be.
    pub(super) fn reserve(&self) -> bool {
        let room = |out: i64| (usize::try_from(out).unwrap_or(0) < self.max).then_some(out + 1);
        self.out
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, room)
            .is_ok()
    }
}

impl<L: Layout> Engine<L> {
    /// Grants a lease of `ttl` from now, if that is simple. If not, [`refuse`](Self::refuse) or
    /// [`grant_more`](Self::grant_more) goes on with what has been begun.
    ///
    /// Two functions and not one, so that a caller has a simple grant in registers.
    #[inline(always)]
    pub(crate) fn grant(&self, request: Request) -> Result<Acquired, Begun> {
        let now = self.time.now();
        self.grant_at(now, self.table.hash(request.key), request)
    }

    /// The same at a reading of the clock, of a key whose hash is known.
    #[inline(always)]
    pub(super) fn grant_at(
        &self,
        now: u64,
        hash: u64,
        request: Request,
    ) -> Result<Acquired, Begun> {
        let in_range = request.at_least <= MAX_AT_LEAST;
        let begun = |last, checked| Begun {
            last,
            now,
            hash,
            checked,
        };
        let mut entry = match locals::take_last(self.short_id.load(Ordering::Relaxed)) {
            Ok(entry) => entry,
            Err(last) => return Err(begun(last, false)),
        };
        let local = &mut entry.local;
        if !local.last.is_of(now, request.ttl) && !self.stamp(local, now, request.ttl) {
            return Err(begun(Some(entry), false));
        }
        let stamp = local.last.stamp;
        let ask = request.ask(hash, stamp.deadline);
        // Not asked of a grant of any token, for which it is known here.
        if !in_range {
            return Err(begun(Some(entry), false));
        }
        let Some(granted) = self.table.grant_fast(local, &ask, &stamp) else {
            return Err(begun(Some(entry), true));
        };
        locals::put_back(entry);
        self.watch(granted.handle.cell(), granted.wheel, ask.deadline);
        Ok(Acquired::new(&granted, ask.deadline))
    }

    /// Refuses a grant that has been tried, if its key's own lease is the first of its bucket, as most are.
    #[inline(always)]
    pub(crate) fn refuse(&self, begun: Begun, key: Key) -> Result<Denied, Begun> {
        let (now, hash) = (begun.now, begun.hash);
        let is_live = |deadline| self.time.is_before(now, deadline);
        let held = begun.last.as_ref().and_then(|entry| {
            self.table
                .live_spotted(&entry.local, (key, hash), 1, is_live)
        });
        match (held, begun.last) {
            (Some(held), Some(entry)) if begun.checked => {
                locals::put_back(entry);
                Ok(self.held(&held, now))
            }
            (_, last) => Err(Begun { last, ..begun }),
        }
    }

    /// Converts a TTL for this grant and those like it within the same reading of the clock. False
    /// if it is a bad one.
    #[cold]
    #[inline(never)]
    fn stamp(&self, local: &mut Local, now: u64, ttl: Duration) -> bool {
        let deadline = self.time.deadline(now, ttl);
        if let Ok(deadline) = deadline {
            local.last = LastStamp::new(now, ttl, Stamp::new::<L>(deadline));
        }
        deadline.is_ok()
    }

    /// Grants the lease, or says why not. (Not as cold as that, but the compiler is to favour the
    /// other way.)
    #[cold]
    #[inline(never)]
    pub(crate) fn grant_more(&self, begun: Begun, request: &Request) -> Result<Acquired, Denied> {
        let Begun { now, hash, .. } = begun;
        let last = match begun.last {
            Some(mut entry) if begun.checked => {
                let local = &mut entry.local;
                let stamp = local.last.stamp;
                let ask = request.ask(hash, stamp.deadline);
                let is_live = |deadline| self.time.is_before(now, deadline);
                match self.table.grant_beside(local, &ask, &stamp, is_live) {
                    Beside::Held(held) => {
                        locals::put_back(entry);
                        return Err(self.held(&held, now));
                    }
                    Beside::Granted(granted) => {
                        locals::put_back(entry);
                        self.watch(granted.handle.cell(), granted.wheel, ask.deadline);
                        return Ok(Acquired::new(&granted, ask.deadline));
                    }
                    Beside::Neither => Some(entry),
                }
            }
            last => last,
        };
        self.grant_at_length(Begun { last, ..begun }, request)
    }

    /// The same for a manager that keeps names, by way of the key's record.
    #[cold]
    pub(crate) fn grant_named(&self, begun: Begun, wish: &Wish) -> Result<Acquired, Denied> {
        locals::put(locals::take_after(self, begun.last));
        self.enter_now(wish)
    }

    #[inline(always)]
    pub(super) fn held(&self, lease: &Contents, now: u64) -> Denied {
        Denied::Held {
            owner: lease.owner,
            token: lease.token,
            remaining: self.time.nanos_until(lease.deadline, now),
        }
    }

    #[inline(never)]
    fn grant_at_length(&self, begun: Begun, request: &Request) -> Result<Acquired, Denied> {
        let Begun { now, hash, .. } = begun;
        let entry = locals::take_after(self, begun.last);
        let deadline = match self.time.deadline(now, request.ttl) {
            Ok(deadline) if request.at_least <= MAX_AT_LEAST => deadline,
            refused => {
                locals::put(entry);
                return Err(Denied::Other(request.refused(refused.err())));
            }
        };
        if self.is_observed() {
            locals::put(entry);
            return self.enter_now(&Wish::plain(*request));
        }
        let ask = request.ask(hash, deadline);
        let granted = if self.capacity.is_some() {
            locals::put(entry);
            self.grant_within_capacity(&ask, now)
        } else {
            self.with_entry(entry, now, |local| self.grant_or_mark(local, &ask))
                .or_else(|refused| self.grant_again(refused, &ask, now))
        };
        match granted {
            Ok(Some(granted)) => Ok(Acquired::new(&granted, deadline)),
            // The key has a record, which decides.
            Ok(None) => self.enter_now(&Wish::plain(*request)),
            Err(denied) => Err(denied),
        }
    }

    /// Grants the lease, `None` if the key has a record, by way of which it must be asked for.
    fn grant_or_mark(&self, local: &mut Local, ask: &Ask) -> Result<Option<Granted>, Refused> {
        match self.table.grant(local, ask) {
            Ok(granted) => {
                self.watch(granted.handle.cell(), granted.wheel, ask.deadline);
                Ok(Some(granted))
            }
            Err(Refused::Marked) => Ok(None),
            Err(refused) => Err(refused),
        }
    }

    /// A second try if all cells are taken: leases that are over but not swept hold some.
    fn grant_again(
        &self,
        refused: Refused,
        ask: &Ask,
        now: u64,
    ) -> Result<Option<Granted>, Denied> {
        let mut refused = refused;
        if refused == Refused::NoCell {
            self.advance();
            match self.with(now, |local| self.grant_or_mark(local, ask)) {
                Ok(granted) => return Ok(granted),
                Err(again) => refused = again,
            }
        }
        Err(self.refused(refused, L::MAX_LEASES, now))
    }

    pub(super) fn refused(&self, refused: Refused, capacity: usize, now: u64) -> Denied {
        Denied::Other(match refused {
            Refused::Held(lease) => return self.held(&lease, now),
            Refused::NoToken { wanted } => match self.table.last_allowed() {
                MAX_TOKEN => AcquireError::TokensExhausted { wanted },
                // It is shut.
                0 => AcquireError::AuthorityLost,
                last => AcquireError::TokensNotReserved { wanted, last },
            },
            // Who comes by way of the record is never told of the mark.
            Refused::Marked | Refused::NoCell => AcquireError::CapacityExceeded { capacity },
        })
    }

    /// Counts the lease before it exists, so that there are never too many.
    #[cold]
    fn grant_within_capacity(&self, ask: &Ask, now: u64) -> Result<Option<Granted>, Denied> {
        let Some(capacity) = &self.capacity else {
            return Err(self.refused(Refused::NoCell, L::MAX_LEASES, now));
        };
        let mut swept = false;
        loop {
            if capacity.reserve() {
                let granted = self.with(now, |local| {
                    local.reserved += 1;
                    self.grant_or_mark(local, ask)
                });
                return granted.map_err(|refused| self.refused(refused, capacity.max, now));
            }
            // Ends the key's own lease if that is over, which makes room.
            match self.live(ask.key, now) {
                Ok(found) => return Err(self.held(&found.contents, now)),
                // There may be room for who comes by way of the record.
                Err(gone) if gone.marked => return Ok(None),
                Err(_) => {}
            }
            if swept {
                return Err(self.refused(Refused::NoCell, capacity.max, now));
            }
            self.advance();
            swept = true;
        }
    }

    pub(super) fn most_leases(&self) -> usize {
        let limited = self.capacity.as_ref().map(|capacity| capacity.max);
        limited.unwrap_or(L::MAX_LEASES)
    }

    /// Finds a place within the limit on the number of leases, if there is one.
    ///
    /// A lease that this operation has ended, and not yet given back to the limit, makes room first: so a
    /// lease that passes on is never short of a place.
    pub(super) fn find_place(&self, local: &mut Local, ask: &Ask) -> Result<(), Refused> {
        let Some(capacity) = &self.capacity else {
            return Ok(());
        };
        if Self::has_place(local) {
            return Ok(());
        }
        if capacity.reserve() {
            local.reserved += 1;
            return Ok(());
        }
        match self.table.live(local, ask.key, ask.hash) {
            Ok(found) => Err(Refused::Held(found.contents)),
            Err(_) => Err(Refused::NoCell),
        }
    }

    /// Counts keys that are kept free, which take the place of a lease each: of one that this operation has
    /// ended, if it has.
    pub(super) fn count_kept(&self, local: &mut Local, by: i64) {
        if self.capacity.is_some() {
            local.accounted -= by;
        }
    }

    /// Whether this operation has ended or counted in advance more leases than it has granted.
    fn has_place(local: &Local) -> bool {
        let leases = local.counters.leases();
        leases - local.accounted - local.reserved < 0
    }
}

impl Request {
    #[inline(always)]
    pub(super) fn ask(&self, hash: u64, deadline: u64) -> Ask {
        Ask {
            key: self.key,
            hash,
            owner: self.owner,
            deadline,
            at_least: self.at_least,
            admitted: false,
        }
    }

    /// Why it is refused whatever the state of the key.
    pub(crate) fn refused(&self, bad: Option<BadTtl>) -> AcquireError {
        let ttl = self.ttl;
        match bad {
            Some(BadTtl::TooShort { min }) => AcquireError::TtlTooShort { ttl, min },
            Some(BadTtl::TooLong { max }) => AcquireError::TtlTooLong { ttl, max },
            Some(BadTtl::NoAuthority) => AcquireError::AuthorityLost,
            None => AcquireError::TokensExhausted {
                wanted: self.at_least,
            },
        }
    }
}

impl Acquired {
    #[inline(always)]
    pub(super) fn new(granted: &Granted, deadline: u64) -> Self {
        Self {
            handle: granted.handle,
            token: granted.token,
            deadline,
        }
    }
}
