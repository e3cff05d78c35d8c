//! Batches against single calls of the crate's own, in a large table.

use std::hint::black_box;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tenure::{AcquireError, Lease, LockManager, OwnerId, ReleaseError};

use tenure_benches::measure::{Kind, Lane, Sample, Seat};

use crate::bench::Bench;
use crate::keys::{Keys, Uniform};
use crate::tasks::TTL;

pub(crate) const NAME: &str = "batch";

/// An operation is a batch of 16 here: acquired and released at once, or after so many others that the
/// caches have forgotten it. In a small table there is nothing to gain, and guards to be moved.
pub(crate) fn run(bench: &mut Bench) {
    for (name, held, out) in [
        ("batch/1k held", 1_000, 1),
        ("batch/1M held", 1_000_000, 1),
        ("batch/1M held, 64k out", 1_000_000, 4_096),
    ] {
        if bench.wants(name) {
            let batches = Batches::new(bench.options.size(held), out);
            let operation = "acquire 16 keys, and release 16";
            bench.slices(NAME, name.into(), operation, 1, &batches.lanes());
        }
    }
}

/// Keys in a batch.
const BATCH: usize = 16;

/// The lanes' names, in their order.
const NAMES: [&str; 3] = ["batch", "single calls", "single pairs"];

type Granted<'m> = Vec<Result<Lease<'m>, AcquireError>>;
type Ended = Vec<Result<(), ReleaseError>>;

/// A table with many leases out, and batches of other keys.
struct Batches {
    locks: LockManager,
    /// Held all the time, from 1 on. The others are as many, above them.
    held: u64,
    /// How many batches are out before the oldest is released.
    out: usize,
}

/// One lane's batches that are out, as a ring.
struct Ring<'m> {
    granted: Vec<Granted<'m>>,
    oldest: usize,
}

impl Batches {
    fn new(held: u64, out: usize) -> Self {
        let locks = LockManager::new();
        for key in 1..=held {
            let lease =
                locks.try_acquire(black_box(key), OwnerId(1), Duration::from_secs(24 * 3600));
            lease.expect("nobody holds the key").detach();
        }
        Self { locks, held, out }
    }

    fn lanes(&self) -> Vec<Lane<'_>> {
        let lane = |name, kind, acquire: Acquire, release: Release| {
            // Outlives the slices: to fill it takes longer than one of them.
            let ring = Mutex::new(Ring {
                granted: (0..self.out).map(|_| Vec::with_capacity(BATCH)).collect(),
                oldest: 0,
            });
            Lane {
                name,
                kind,
                run: Box::new(move |seat| {
                    let mut ring = ring.lock().unwrap_or_else(PoisonError::into_inner);
                    self.run(seat, &mut ring, acquire, release)
                }),
            }
        };
        let mut lanes = vec![
            lane(NAMES[0], Kind::Tenure, acquire_many, release_many),
            lane(
                NAMES[1],
                Kind::TenureOtherwise,
                acquire_singly,
                release_singly,
            ),
        ];
        if self.out == 1 {
            lanes.push(Lane {
                name: NAMES[2],
                kind: Kind::TenureOtherwise,
                run: Box::new(|seat| self.run_pairs(seat)),
            });
        }
        lanes
    }

    fn keys(&self, seat: Seat<'_>) -> Uniform {
        Uniform::new(seat, self.held + 1, self.held)
    }

    /// Acquires a batch and releases the oldest, again and again.
    fn run<'m>(
        &'m self,
        seat: Seat<'_>,
        ring: &mut Ring<'m>,
        acquire: Acquire,
        release: Release,
    ) -> Sample {
        let mut keys = self.keys(seat);
        let mut ended = Vec::with_capacity(BATCH);
        let ttl = black_box(TTL);
        seat.measure(|| {
            let granted = &mut ring.granted[ring.oldest];
            ring.oldest = (ring.oldest + 1) % self.out;
            if self.out > 1 {
                release(granted, &mut ended);
            }
            let batch: [u64; BATCH] = std::array::from_fn(|_| keys.next());
            acquire(&self.locks, &batch, ttl, granted);
            black_box(&granted);
            if self.out == 1 {
                release(granted, &mut ended);
            }
            let all = ended.iter().all(Result::is_ok);
            ended.clear();
            all
        })
    }

    /// The same by single calls that release each lease before they acquire the next.
    fn run_pairs(&self, seat: Seat<'_>) -> Sample {
        let mut keys = self.keys(seat);
        let ttl = black_box(TTL);
        seat.measure(|| {
            (0..BATCH).all(|_| {
                let lease = self.locks.try_acquire(keys.next(), OwnerId(2), ttl);
                black_box(lease).is_ok_and(|lease| lease.release().is_ok())
            })
        })
    }
}

type Acquire = for<'m> fn(&'m LockManager, &[u64; BATCH], Duration, &mut Granted<'m>);
type Release = fn(&mut Granted<'_>, &mut Ended);

fn acquire_many<'m>(
    locks: &'m LockManager,
    keys: &[u64; BATCH],
    ttl: Duration,
    granted: &mut Granted<'m>,
) {
    locks.try_acquire_many_into(keys, OwnerId(2), ttl, granted);
}

fn release_many(granted: &mut Granted<'_>, ended: &mut Ended) {
    Lease::release_many_into(granted.drain(..).flatten(), ended);
}

fn acquire_singly<'m>(
    locks: &'m LockManager,
    keys: &[u64; BATCH],
    ttl: Duration,
    granted: &mut Granted<'m>,
) {
    for key in keys {
        granted.push(locks.try_acquire(key, OwnerId(2), ttl));
    }
}

fn release_singly(granted: &mut Granted<'_>, ended: &mut Ended) {
    for lease in granted.drain(..).flatten() {
        ended.push(lease.release());
    }
}
