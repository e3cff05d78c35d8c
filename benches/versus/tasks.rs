//! What the lease tables are asked to do, over and over.

use std::hint::black_box;
use std::time::Duration;

use tenure_benches::measure::{Sample, Seat};

use crate::contenders::{Held, LeaseTable};
use crate::keys::{Keys, Skewed, Spread, Uniform};

/// The TTL of the leases that are acquired and released.
pub(crate) const TTL: Duration = Duration::from_secs(10);

/// The TTL of leases that stay out while others are measured.
pub(crate) const HELD_TTL: Duration = Duration::from_secs(24 * 3600);

/// The keys that the threads of a slice use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Universe {
    /// The least key.
    pub(crate) first: u64,
    /// How many there are.
    pub(crate) keys: u64,
    pub(crate) spread: Spread,
    /// Into how many parts they are divided, one for each thread; 1 if all threads share them.
    pub(crate) parts: u64,
}

impl Universe {
    /// The first key, and the number of keys, that a thread uses.
    pub(crate) fn of(&self, seat: Seat<'_>) -> (u64, u64) {
        let keys = (self.keys / self.parts).max(1);
        let part = if self.parts == 1 { 0 } else { seat.thread };
        (self.first + part * keys, keys)
    }
}

/// What is repeated.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Task {
    /// Acquire and release a key.
    Pair(Universe),
    /// Ask for a key that another owner holds.
    Refused(Universe),
    /// Renew one lease through whatever its holder keeps, to a later deadline each time.
    RenewLater,
    /// Renew one lease that way with one TTL.
    Renew,
    /// Renew leases that stay out, by key and token.
    RenewByKey(Universe),
}

impl Task {
    /// Whether that contender can do it.
    pub(crate) fn suits<T: LeaseTable>(&self) -> bool {
        match self {
            Self::Pair(_) | Self::Refused(_) => true,
            Self::RenewLater | Self::Renew | Self::RenewByKey(_) => T::CAN_RENEW,
        }
    }

    /// One thread's part of a slice, with those leases out.
    pub(crate) fn run<T: LeaseTable>(&self, table: &T, held: &Held, seat: Seat<'_>) -> Sample {
        let uniform = |universe: Universe| {
            let (first, keys) = universe.of(seat);
            Uniform::new(seat, first, keys)
        };
        match *self {
            Self::Pair(universe) => match universe.spread {
                Spread::Uniform => pairs(table, seat, uniform(universe)),
                Spread::Zipf => {
                    let (first, keys) = universe.of(seat);
                    pairs(table, seat, Skewed::new(seat, first, keys))
                }
            },
            Self::Refused(universe) => refusals(table, seat, uniform(universe)),
            // More than a tick, so that every renewal has a later deadline to write.
            Self::RenewLater => renewals(table, seat, Duration::from_millis(2)),
            Self::Renew => renewals(table, seat, Duration::ZERO),
            Self::RenewByKey(universe) => renewals_by_key(table, held, seat, uniform(universe)),
        }
    }
}

/// A thread's number as an owner; 1 holds what stays out.
fn owner(seat: Seat<'_>) -> u64 {
    black_box(seat.thread + 10)
}

fn pairs<T: LeaseTable>(table: &T, seat: Seat<'_>, mut keys: impl Keys) -> Sample {
    let (ttl, owner) = (black_box(TTL), owner(seat));
    if T::PAIRS_AT_ONCE > 1 {
        let mut batch = vec![0; T::PAIRS_AT_ONCE];
        return seat.measure_many(batch.len() as u64, move || {
            batch.fill_with(|| keys.next());
            table.pairs(&batch, owner, ttl)
        });
    }
    seat.measure(move || match table.acquire(keys.next(), owner, ttl) {
        Ok(lease) => {
            black_box(T::token(&lease));
            table.release(lease)
        }
        Err(refusal) => {
            black_box(refusal);
            false
        }
    })
}

fn refusals<T: LeaseTable>(table: &T, seat: Seat<'_>, mut keys: impl Keys) -> Sample {
    let (ttl, owner) = (black_box(TTL), owner(seat));
    seat.measure(move || match table.acquire(keys.next(), owner, ttl) {
        Ok(lease) => {
            table.keep(lease);
            panic!("a held key was granted")
        }
        Err(refusal) => {
            black_box(refusal);
            true
        }
    })
}

fn renewals<T: LeaseTable>(table: &T, seat: Seat<'_>, later: Duration) -> Sample {
    let Ok(lease) = table.acquire(1, owner(seat), TTL) else {
        panic!("the key to renew is held by another")
    };
    let mut ttl = black_box(TTL);
    let held = &lease;
    let sample = seat.measure(move || {
        ttl += later;
        table.renew(held, ttl)
    });
    assert!(table.release(lease), "the lease was lost under renewal");
    sample
}

fn renewals_by_key<T: LeaseTable>(
    table: &T,
    held: &Held,
    seat: Seat<'_>,
    mut keys: impl Keys,
) -> Sample {
    // Later than what the leases were granted for, and than in the round before.
    let mut ttl = black_box(HELD_TTL + Duration::from_secs(3600) * (seat.round as u32 + 1));
    seat.measure(move || {
        ttl += Duration::from_millis(2);
        let key = keys.next();
        table.renew_by_key(key, held.token(key), ttl)
    })
}
