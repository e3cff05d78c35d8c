//! A million leases due at once, and what somebody notices who works with other keys meanwhile.
//!
//! All leases are granted so that they end at the same moment: in one tick, or two where the clock ticks in
//! between. One thread acquires and releases other keys and takes the time of each pair, which includes two
//! readings of the clock, some 25 ns each; nothing is subtracted. It does so before, in the run-up, and from
//! the moment at which the leases are due until the last has ended.
//!
//! The crate's driver ends its leases as it does by default, and moves a million timers closer in the
//! run-up: so many due at once are more than it expects, and it hurries in the last 128 ticks. A hand-rolled
//! table is swept by a thread, once, just when all are due: the best that it could do. (Swept every so often,
//! it would be visited whole each time.) The time of an expiry is the processor time of whoever ended it, the
//! run-up included.
//!
//! The work needs two processors. What the system takes away from one of them is in the latencies.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tenure_benches::measure::processor::busy_of;
use tenure_benches::measure::waited;

use super::large::{Large, Metrics, rounds, trials};
use crate::bench::Bench;
use crate::contenders::LeaseTable;
use crate::tasks::TTL;

pub(crate) const NAME: &str = "storm";

pub(crate) fn run(bench: &mut Bench) {
    let name = "storm/1M";
    if !bench.wants(name) {
        return;
    }
    let storm = if bench.options.test {
        Storm {
            leases: bench.options.size(1_000_000),
            calm: Duration::from_millis(20),
            run_up: Duration::from_millis(20),
        }
    } else {
        Storm {
            leases: 1_000_000,
            calm: Duration::from_millis(300),
            // More than two of the ranges in which timers move closer.
            run_up: Duration::from_millis(300),
        }
    };
    let rounds = rounds(bench, 3);
    let options = bench.options.clone();
    let operation = "end a lease, or acquire and release another key meanwhile";
    let trials = trials(&options, &storm);
    bench.trials(NAME, name.into(), operation, rounds, trials);
}

struct Storm {
    leases: u64,
    /// How long the calm is watched.
    calm: Duration,
    /// How long before the storm that ends.
    run_up: Duration,
}

/// The parts of a trial, in their order; an index into the histograms.
const FILLED: usize = 0;
const CALM: usize = 1;
const RUN_UP: usize = 2;
const DURING: usize = 3;
const OVER: usize = 4;

/// Keys of the thread that works meanwhile, above all others.
const OTHERS: u64 = 1_000;

/// What ended the leases.
struct Ended {
    leases: u64,
    /// Of a processor.
    busy: Duration,
    /// Of the clock on the wall, from when they were due or the sweep began.
    took: Duration,
}

impl Large for Storm {
    fn suits<T: LeaseTable>(&self) -> bool {
        T::CAN_EXPIRE && T::MOST_HELD >= self.leases
    }

    fn run<T: LeaseTable>(&self, new: &impl Fn() -> T, _round: u64) -> Metrics {
        let (table, calm) = self.filled(new);
        let part = AtomicUsize::new(FILLED);
        let (histograms, ended) = thread::scope(|scope| {
            let watch = || self.watch(&table, calm, &part);
            let watcher = scope.spawn(watch);
            let histograms = work(&table, self.leases + 1, &part);
            (histograms, watcher.join().expect("no panic"))
        });
        // A table without locks may count one twice that it had to try again.
        if ended.leases < self.leases {
            eprintln!("only {} of {} leases ended", ended.leases, self.leases);
            return vec![];
        }
        let [_, calm, run_up, during] = &histograms;
        let of = |histogram: &Histogram<u64>, share| histogram.value_at_quantile(share) as f64;
        vec![
            (
                "ns_per_expiry",
                ended.busy.as_nanos() as f64 / self.leases as f64,
            ),
            ("took_ms", ended.took.as_secs_f64() * 1e3),
            ("p50_before_ns", of(calm, 0.5)),
            ("p99_before_ns", of(calm, 0.99)),
            ("p99.9_before_ns", of(calm, 0.999)),
            ("max_before_ns", calm.max() as f64),
            ("p99.9_run_up_ns", of(run_up, 0.999)),
            ("max_run_up_ns", run_up.max() as f64),
            ("p50_during_ns", of(during, 0.5)),
            ("p99_during_ns", of(during, 0.99)),
            ("p99.9_during_ns", of(during, 0.999)),
            ("max_during_ns", during.max() as f64),
            (
                "p99.9_during_over_before",
                of(during, 0.999) / of(calm, 0.999),
            ),
        ]
    }
}

impl Storm {
    /// A table with all leases out, and when the calm begins. Filled slowly, it would lose some before the
    /// last is granted: then the filling is given more time.
    fn filled<T: LeaseTable>(&self, new: &impl Fn() -> T) -> (T, Instant) {
        let parts = self.calm + self.run_up;
        let mut filling = self.calm + self.run_up;
        loop {
            let table = new();
            let calm = Instant::now() + filling;
            let due = calm + parts;
            let in_time = (1..=self.leases).all(|key| {
                let left = due.saturating_duration_since(Instant::now());
                let Ok(lease) = table.acquire(black_box(key), 1, left) else {
                    panic!("key {key} was refused, though nobody holds it")
                };
                table.keep(lease);
                left > parts
            });
            if in_time {
                return (table, calm);
            }
            filling *= 2;
        }
    }

    /// Says which part it is, and ends the leases or watches it being done.
    fn watch<T: LeaseTable>(&self, table: &T, calm: Instant, part: &AtomicUsize) -> Ended {
        let run_up = calm + self.calm;
        let due = run_up + self.run_up;
        let reach = |instant: Instant, next| {
            thread::sleep(instant.saturating_duration_since(Instant::now()));
            part.store(next, Ordering::Relaxed);
        };
        reach(calm, CALM);
        reach(run_up, RUN_UP);
        let ended = if table.expired_by_itself().is_some() {
            self.watch_driver(table, || reach(due, DURING))
        } else {
            // A coarse clock may be behind.
            self.sweep(table, || reach(due + Duration::from_millis(5), DURING))
        };
        part.store(OVER, Ordering::Relaxed);
        ended
    }

    /// A storm that is not over by then won't be.
    fn patience(&self) -> Duration {
        20 * (self.calm + self.run_up)
    }

    fn watch_driver<T: LeaseTable>(&self, table: &T, begin: impl FnOnce()) -> Ended {
        let expired = || table.expired_by_itself().unwrap_or(0);
        let before = busy_of(DRIVER);
        begin();
        let start = Instant::now();
        while expired() < self.leases && start.elapsed() < self.patience() {
            thread::sleep(Duration::from_micros(200));
        }
        let took = start.elapsed();
        // The system adds up what a thread has done when it stops.
        thread::sleep(Duration::from_millis(2));
        Ended {
            leases: expired(),
            took,
            busy: busy_of(DRIVER).saturating_sub(before),
        }
    }

    fn sweep<T: LeaseTable>(&self, table: &T, begin: impl FnOnce()) -> Ended {
        begin();
        let start = Instant::now();
        let mut ended = Ended {
            leases: 0,
            busy: Duration::ZERO,
            took: Duration::ZERO,
        };
        while ended.leases < self.leases && start.elapsed() < self.patience() {
            let (start, waited_before) = (Instant::now(), waited());
            ended.leases += table.sweep();
            ended.busy += start
                .elapsed()
                .saturating_sub(waited().saturating_sub(waited_before));
        }
        ended.took = start.elapsed();
        ended
    }
}

/// The threads that end the leases of the crate.
const DRIVER: &str = "tenure-driver";

/// Acquires and releases keys from `first` on until it is over, and takes the time of each pair.
fn work<T: LeaseTable>(table: &T, first: u64, part: &AtomicUsize) -> [Histogram<u64>; 4] {
    let new = || Histogram::new_with_bounds(1, 10_000_000_000, 3).expect("good bounds");
    let mut histograms: [Histogram<u64>; 4] = std::array::from_fn(|_| new());
    let mut key = 0;
    while let Some(histogram) = histograms.get_mut(part.load(Ordering::Relaxed)) {
        // No random number: all keys are in the caches anyway, and next to none is next in the table.
        key = (key + 1) % OTHERS;
        let start = Instant::now();
        let Ok(lease) = table.acquire(first + key, 10, TTL) else {
            panic!("nobody else wants the key")
        };
        black_box(T::token(&lease));
        black_box(table.release(lease));
        histogram.saturating_record(start.elapsed().as_nanos() as u64);
    }
    histograms
}
