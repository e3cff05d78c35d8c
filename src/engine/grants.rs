//! Grants: the short path, the long one, and the limit on the number of leases.

use std::time::Duration;

use super::{Capacity, Engine};
use crate::key::Key;
use crate::locals::{self, Entry};
use crate::sync::Ordering;
use crate::table::{Ask, Granted, Handle, Layout, Refused};
use crate::timeline::BadTtl;
use crate::token::FencingToken;

/// The most that a grant may be asked for at least. A jump of tokens moves those of all keys, so the
/// rest of the range is for what is granted afterwards: 2^56 grants of the busiest key.
pub(crate) const MAX_AT_LEAST: u64 = FencingToken::MAX.get() - (1 << 56);

/// A lease that was granted, with all that its guard needs to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acquired {
    pub(crate) handle: Handle,
    pub(crate) token: u64,
    pub(crate) hash: u64,
    /// In ticks.
    pub(crate) deadline: u64,
}

/// Why a grant was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    Ttl(BadTtl),
    Held {
        owner: u64,
        token: u64,
        deadline: u64,
    },
    Full {
        capacity: usize,
    },
    NoToken {
        wanted: u64,
    },
}

impl Denied {
    fn of(refused: Refused, capacity: usize) -> Self {
        match refused {
            Refused::Held {
                owner,
                token,
                deadline,
            } => Self::Held {
                owner,
                token,
                deadline,
            },
            Refused::NoToken { wanted } => Self::NoToken { wanted },
            Refused::NoCell => Self::Full { capacity },
        }
    }
}

impl Capacity {
    /// Counts one lease in advance, unless as many are out as may be.
    fn reserve(&self) -> bool {
        let room = |out: i64| (usize::try_from(out).unwrap_or(0) < self.max).then_some(out + 1);
        self.out
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, room)
            .is_ok()
    }
}

impl<L: Layout> Engine<L> {
    /// Grants a lease of `ttl` from now.
    #[inline(always)]
    pub(crate) fn grant(
        &self,
        key: Key,
        owner: u64,
        ttl: Duration,
        at_least: u64,
    ) -> Result<Acquired, Denied> {
        let now = self.time.now();
        let hash = self.table.hash(key);
        let mut entry = locals::take(self);
        let local = &mut entry.local;
        let granted = match self.time.deadline_again(&mut local.converted, now, ttl) {
            Ok(deadline) if self.capacity.is_none() => {
                let ask = Ask {
                    key,
                    hash,
                    owner,
                    deadline,
                    at_least,
                };
                self.table
                    .grant_fast(local, &ask)
                    .map(|granted| (granted, deadline))
            }
            _ => None,
        };
        let Some((granted, deadline)) = granted else {
            return self.grant_more(entry, key, owner, ttl, at_least, now);
        };
        locals::put(entry);
        self.watch(granted.handle.cell(), granted.wheel, deadline);
        Ok(Acquired {
            handle: granted.handle,
            token: granted.token,
            hash,
            deadline,
        })
    }

    /// What is not a simple grant; with the thread's part still in hand.
    #[inline(never)]
    fn grant_more(
        &self,
        mut entry: Box<Entry>,
        key: Key,
        owner: u64,
        ttl: Duration,
        at_least: u64,
        now: u64,
    ) -> Result<Acquired, Denied> {
        let local = &mut entry.local;
        local.now = self.time.tick_again(&mut local.converted, now);
        let deadline = self.time.deadline_again(&mut local.converted, now, ttl);
        let ask = Ask {
            key,
            hash: self.table.hash(key),
            owner,
            deadline: deadline.unwrap_or(0),
            at_least,
        };
        let simple = deadline.is_ok() && at_least <= MAX_AT_LEAST && self.capacity.is_none();
        let granted = simple.then(|| {
            // Most often it is a simple refusal, which needs no cell.
            let granted = match self.table.refuse_fast(local, &ask) {
                Some(refused) => Err(refused),
                None => self.table.grant(local, &ask),
            };
            if let Ok(granted) = &granted {
                self.watch(granted.handle.cell(), granted.wheel, ask.deadline);
            }
            if local.has_chores() {
                self.chores(local);
            }
            granted
        });
        locals::put(entry);
        let granted = match granted {
            Some(Ok(granted)) => granted,
            Some(Err(refused)) => self.grant_again(refused, &ask, now)?,
            None => {
                deadline.map_err(Denied::Ttl)?;
                if at_least > MAX_AT_LEAST {
                    return Err(Denied::NoToken { wanted: at_least });
                }
                self.grant_within_capacity(&ask, now)?
            }
        };
        Ok(Acquired {
            handle: granted.handle,
            token: granted.token,
            hash: ask.hash,
            deadline: ask.deadline,
        })
    }

    fn grant_reserved(&self, ask: &Ask, now: u64, reserved: i64) -> Result<Granted, Refused> {
        self.with_reserved(now, reserved, |local| {
            let granted = self.table.grant(local, ask)?;
            self.watch(granted.handle.cell(), granted.wheel, ask.deadline);
            Ok(granted)
        })
    }

    /// A second try if all cells are taken: leases that are over but not swept hold some.
    #[cold]
    fn grant_again(&self, refused: Refused, ask: &Ask, now: u64) -> Result<Granted, Denied> {
        let last = if refused == Refused::NoCell {
            self.advance();
            match self.grant_reserved(ask, now, 0) {
                Ok(granted) => return Ok(granted),
                Err(refused) => refused,
            }
        } else {
            refused
        };
        Err(Denied::of(last, L::MAX_LEASES))
    }

    /// Counts the lease before it exists, so that there are never too many.
    #[cold]
    fn grant_within_capacity(&self, ask: &Ask, now: u64) -> Result<Granted, Denied> {
        let Some(capacity) = &self.capacity else {
            return Err(Denied::of(Refused::NoCell, L::MAX_LEASES));
        };
        for swept in [false, true] {
            if capacity.reserve() {
                let granted = self.grant_reserved(ask, now, 1);
                return granted.map_err(|refused| Denied::of(refused, capacity.max));
            }
            // Ends the key's own lease if that is over, which makes room.
            if let Ok(found) = self.live(ask.key, now) {
                return Err(Denied::Held {
                    owner: found.contents.owner,
                    token: found.contents.token,
                    deadline: found.contents.deadline,
                });
            }
            if !swept {
                self.advance();
            }
        }
        Err(Denied::of(Refused::NoCell, capacity.max))
    }
}
