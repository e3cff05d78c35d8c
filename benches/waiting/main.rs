//! What waiting costs, and the leases that are more than plain ones; and that reservations cost nothing.
//!
//! ```text
//! cargo bench --bench waiting                  everything
//! cargo bench --bench waiting -- threads       only the tables whose name contains that
//! cargo bench --bench waiting -- --test        everything once, small, unmeasured
//! ```
//!
//! The contenders take turns, and ratios are taken within a round, as in `versus`: see
//! [`tenure_benches::measure`] and [`turns`].

// Counts become ratios here; none of them comes near 2^52.
#![allow(clippy::cast_precision_loss, clippy::cast_sign_loss)]

mod reservations;

use std::env;
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure::{AcquireError, Lease, LockManager, ManualClock, Session};
use tenure_benches::measure::statistics::{calmest, quantile};
use tenure_benches::measure::{Budget, Kind, Lane, Sample, Seat, Track, interleave};
use tenure_benches::turns;

const TTL: Duration = Duration::from_secs(10);
const HOUR: Duration = Duration::from_secs(3600);
const TICK: Duration = Duration::from_millis(1);

const SLICE: Duration = Duration::from_millis(3);
const ROUNDS: u64 = 201;
/// Hand-offs are slow, and their latencies need a sample.
const TURNS_SLICE: Duration = Duration::from_millis(25);
const TURNS_ROUNDS: usize = 61;

/// What the command line asks for.
struct Plan {
    test: bool,
    only: String,
}

impl Plan {
    fn from_args() -> Self {
        let args: Vec<String> = env::args().skip(1).collect();
        let flag = |name: &str| args.iter().any(|arg| arg == name);
        let word = args.iter().find(|arg| !arg.starts_with('-'));
        Self {
            test: flag("--test") || !flag("--bench"),
            only: word.cloned().unwrap_or_default(),
        }
    }

    fn leases(&self) -> usize {
        if self.test { 1_000 } else { 100_000 }
    }

    /// Takes turns.
    fn turns<'l>(&self, name: &str, lanes: impl FnOnce() -> Vec<turns::Lane<'l>>) {
        if !name.contains(&self.only) {
            return;
        }
        let (rounds, slice) = if self.test {
            (1, TICK)
        } else {
            (TURNS_ROUNDS, TURNS_SLICE)
        };
        turns::print(name, &turns::interleave(&lanes(), rounds, slice));
    }

    /// Measures operations of one thread.
    fn operations<'l>(&self, name: &str, lanes: impl FnOnce() -> Vec<Lane<'l>>) {
        if !name.contains(&self.only) {
            return;
        }
        let (rounds, budget) = if self.test {
            (1, Budget::Operations(100))
        } else {
            (ROUNDS, Budget::Time(SLICE))
        };
        print(name, &interleave(&lanes(), 1, rounds, budget, || ()));
    }
}

/// Prints medians over the calmest third of the rounds, with the ratios to the first contender.
fn print(task: &str, tracks: &[Track]) {
    println!();
    println!("{:<34}{:>10}{:>12}{:>10}", task, "ns", "(quarter)", "ratio");
    let calm = calmest(tracks);
    for track in tracks {
        let of = |value: &dyn Fn(usize) -> f64, share| {
            let values: Vec<f64> = calm.iter().map(|round| value(*round)).collect();
            quantile(&values, share)
        };
        let nanos = |round: usize| track.nanos[round];
        let ratio = |round: usize| track.nanos[round] / tracks[0].nanos[round];
        println!(
            "  {:<32}{:>10.1}{:>12}{:>10.2}",
            track.name,
            of(&nanos, 0.5),
            format!("({:.1})", of(&nanos, 0.25)),
            of(&ratio, 0.5),
        );
    }
}

fn lane<'l>(name: &'static str, run: impl Fn(Seat<'_>) -> Sample + Sync + 'l) -> Lane<'l> {
    Lane {
        name,
        kind: Kind::Tenure,
        run: Box::new(run),
    }
}

/// Releases what was granted; says whether it was.
#[inline]
fn pair(lease: Result<Lease<'_>, AcquireError>) -> bool {
    lease.is_ok_and(|lease| black_box(lease).release().is_ok())
}

/// Grants and releases of each kind, all of them by one thread on keys that nobody else wants.
fn kinds<'l>(
    locks: &'l LockManager,
    session: &'l Session<'l>,
    lock: &'l parking_lot::RwLock<u64>,
) -> Vec<Lane<'l>> {
    vec![
        lane("RwLock, read and unlock", |seat| {
            seat.measure(|| black_box(*lock.read()) == 0)
        }),
        lane("try_acquire", |seat| {
            seat.measure(|| pair(locks.try_acquire(1, seat.thread, TTL)))
        }),
        lane("shared", |seat| {
            seat.measure(|| pair(locks.acquire(2, seat.thread, TTL).shared().try_now()))
        }),
        lane("shared, beside another", |seat| {
            let other = locks.acquire(3, 9, TTL).shared().try_now();
            let sample =
                seat.measure(|| pair(locks.acquire(3, seat.thread, TTL).shared().try_now()));
            drop(other);
            sample
        }),
        lane("permit", |seat| {
            seat.measure(|| pair(locks.acquire(4, seat.thread, TTL).permit(8).try_now()))
        }),
        lane("reentrant, second entry", |seat| {
            let first = locks.acquire(5, seat.thread, TTL).reentrant().try_now();
            let sample =
                seat.measure(|| pair(locks.acquire(5, seat.thread, TTL).reentrant().try_now()));
            drop(first);
            sample
        }),
        lane("in a session", |seat| {
            seat.measure(|| pair(session.try_acquire(6)))
        }),
        lane("acquire_all of 4", |seat| {
            seat.measure(|| {
                let all = locks.acquire_all([10, 11, 12, 13], seat.thread, TTL);
                all.wait().is_ok_and(|all| all.release().is_ok())
            })
        }),
    ]
}

/// A manager whose clock moves on by a tick with each operation, so that each has a deadline to write.
fn ticking() -> (LockManager, ManualClock) {
    let clock = ManualClock::new();
    let options = LockManager::builder().clock(clock.clone()).driver(false);
    (options.build().expect("in order"), clock)
}

fn keep_alive(name: &'static str, leases: usize) -> Lane<'static> {
    let (locks, clock) = ticking();
    let session = locks.session(1, HOUR).expect("in range").into_owned();
    for key in 0..leases {
        session.try_acquire(key).expect("free").detach();
    }
    lane(name, move |seat| {
        // Goes with it.
        let _ = &locks;
        seat.measure(|| {
            clock.advance(TICK);
            session.keep_alive().is_ok()
        })
    })
}

fn renewals(name: &'static str, leases: usize) -> Lane<'static> {
    let (locks, clock) = ticking();
    let held: Vec<Lease<'static>> = (0..leases)
        .map(|key| locks.try_acquire(key, 1, HOUR).expect("free").into_owned())
        .collect();
    let next = AtomicUsize::new(0);
    lane(name, move |seat| {
        let _ = &locks;
        let mut at = next.load(Ordering::Relaxed);
        let sample = seat.measure(|| {
            clock.advance(TICK);
            at = if at + 1 < held.len() { at + 1 } else { 0 };
            held[at].renew(HOUR).is_ok()
        });
        next.store(at, Ordering::Relaxed);
        sample
    })
}

fn main() {
    let plan = Plan::from_args();
    println!("medians over interleaved rounds; ratios to the first of each table, within a round");
    for hold in [Duration::ZERO, Duration::from_micros(20)] {
        for threads in [2, 4] {
            let name = format!("{threads} threads, held for {hold:?}");
            let case = turns::threads::Case { threads, hold };
            plan.turns(&name, || turns::threads::lanes(case));
        }
    }
    let many = turns::tasks::runtime(2);
    for tasks in [2, 4] {
        let name = format!("{tasks} tasks on 2 threads");
        plan.turns(&name, || turns::tasks::lanes(&many, tasks));
    }
    let one = turns::tasks::runtime(0);
    for tasks in [2, 16] {
        let name = format!("{tasks} tasks on 1 thread");
        plan.turns(&name, || turns::tasks::lanes(&one, tasks));
    }
    plan.operations("kinds of leases, pair", || {
        // The driver, the session and the leases are there for the whole process.
        let locks: &LockManager = Box::leak(Box::new(LockManager::new()));
        let session = locks.session(1, HOUR).expect("in range");
        kinds(
            locks,
            Box::leak(Box::new(session)),
            Box::leak(Box::new(parking_lot::RwLock::new(0))),
        )
    });
    plan.operations("reservations, pair", reservations::lanes);
    plan.operations("keeping leases", || {
        vec![
            keep_alive("keep_alive, 1 lease", 1),
            keep_alive("keep_alive, many leases", plan.leases()),
            renewals("renew, one of many leases", plan.leases()),
        ]
    });
}
