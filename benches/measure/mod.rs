//! Measuring several contenders against each other on a machine that has other things to do.
//!
//! Criterion runs one benchmark after the other, so whatever slows the machine for ten seconds is
//! charged to one contender. Here the contenders take turns in slices of a few milliseconds, and a
//! ratio is taken within each round, where both sides met the same machine. A slice whose threads
//! had to wait for a processor is repeated a few times for an undisturbed one, the waiting doesn't
//! count as the contender's time, and the report says how much of it was left.

pub(crate) mod report;

use std::fs;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// How long a slice goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Budget {
    /// For that many operations, exactly.
    Operations(u64),
    /// For that long, after a tenth of it to warm the caches.
    Time(Duration),
}

/// One thread's part of a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    /// Numbered from 0.
    pub(crate) thread: u64,
    /// Which round this is: rounds use different keys, contenders of one round the same.
    pub(crate) round: u64,
    /// How long to go on.
    pub(crate) budget: Budget,
}

/// What one thread did in a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Operations done.
    pub(crate) operations: u64,
    /// How many of them said yes.
    pub(crate) succeeded: u64,
    /// The time from start to end.
    pub(crate) elapsed: Duration,
    /// How much of it the thread was ready to run and had no processor.
    pub(crate) waited: Duration,
}

impl Sample {
    fn nanos_per_operation(&self) -> f64 {
        let ran = self.elapsed.saturating_sub(self.waited);
        ran.as_nanos() as f64 / self.operations as f64
    }

    fn success_rate(&self) -> f64 {
        self.succeeded as f64 / self.operations as f64
    }

    fn waiting_share(&self) -> f64 {
        self.waited.as_secs_f64() / self.elapsed.as_secs_f64()
    }
}

/// How long this thread has been ready to run without a processor since it began, where the
/// system tells it as Linux does; zero elsewhere.
pub(crate) fn waited() -> Duration {
    let statistics = fs::read_to_string("/proc/thread-self/schedstat");
    let nanos = statistics
        .ok()
        .and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

impl Seat {
    /// Repeats `operation`, which says whether it succeeded, until the budget is used up.
    #[inline]
    pub(crate) fn measure(self, mut operation: impl FnMut() -> bool) -> Sample {
        /// Operations between two looks at the time, which cost as much as one operation.
        const CHUNK: u64 = 256;
        let (operations, time) = match self.budget {
            Budget::Operations(operations) => (operations, Duration::ZERO),
            Budget::Time(time) => (0, time),
        };
        let mut repeat = |operations: u64, time: Duration| {
            let mut sample = Sample {
                operations: 0,
                succeeded: 0,
                elapsed: Duration::ZERO,
                waited: Duration::ZERO,
            };
            let waited_before = waited();
            let start = Instant::now();
            let mut chunk = operations;
            loop {
                for _ in 0..chunk {
                    sample.succeeded += u64::from(operation());
                }
                sample.operations += chunk;
                sample.elapsed = start.elapsed();
                if sample.elapsed >= time {
                    sample.waited = waited().saturating_sub(waited_before);
                    return sample;
                }
                chunk = CHUNK;
            }
        };
        repeat(0, time / 10);
        repeat(operations, time)
    }
}

/// What a contender is, for the choice of whom to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The crate.
    Tenure,
    /// Hand-rolled, with the crate's coarse clock.
    Coarse,
    /// Hand-rolled, with `Instant::now`.
    Instant,
    /// One compare-and-swap.
    Cas,
}

/// One contender at one task.
pub(crate) struct Lane<'table> {
    /// For reports.
    pub(crate) name: &'static str,
    /// What it is.
    pub(crate) kind: Kind,
    /// One thread's part of a slice.
    pub(crate) run: Box<dyn Fn(Seat) -> Sample + Sync + 'table>,
}

/// One slice of one contender on `threads` threads: the mean over the threads.
pub(crate) fn slice(lane: &Lane<'_>, threads: u64, round: u64, budget: Budget) -> Sample {
    let barrier = Barrier::new(threads as usize);
    let part = |thread| {
        barrier.wait();
        (lane.run)(Seat {
            thread,
            round,
            budget,
        })
    };
    if threads == 1 {
        return part(0);
    }
    thread::scope(|scope| {
        let part = &part;
        let parts: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || part(thread)))
            .collect();
        mean(
            parts
                .into_iter()
                .map(|part| part.join().expect("a benchmark thread panicked")),
        )
    })
}

fn mean(samples: impl ExactSizeIterator<Item = Sample>) -> Sample {
    let threads = samples.len() as u32;
    let sum = samples
        .reduce(|a, b| Sample {
            operations: a.operations + b.operations,
            succeeded: a.succeeded + b.succeeded,
            elapsed: a.elapsed + b.elapsed,
            waited: a.waited + b.waited,
        })
        .expect("at least one thread");
    Sample {
        operations: sum.operations / u64::from(threads),
        succeeded: sum.succeeded / u64::from(threads),
        elapsed: sum.elapsed / threads,
        waited: sum.waited / threads,
    }
}

/// What a contender did in each round.
#[derive(Clone, Debug)]
pub(crate) struct Track {
    /// Whose it is.
    pub(crate) name: &'static str,
    /// What it is.
    pub(crate) kind: Kind,
    /// Nanoseconds for each operation of one thread, by round.
    pub(crate) nanos: Vec<f64>,
    /// The share of operations that said yes, by round.
    pub(crate) success_rates: Vec<f64>,
    /// The share of the time that the threads waited for a processor, by round.
    pub(crate) waiting_shares: Vec<f64>,
}

/// A slice that is as good as undisturbed, or the best of a few.
fn calm_slice(lane: &Lane<'_>, threads: u64, round: u64, budget: Budget) -> Sample {
    const ATTEMPTS: usize = 3;
    const CALM: f64 = 0.02;
    let mut best = slice(lane, threads, round, budget);
    for _ in 1..ATTEMPTS {
        if best.waiting_share() <= CALM {
            break;
        }
        let again = slice(lane, threads, round, budget);
        if again.waiting_share() < best.waiting_share() {
            best = again;
        }
    }
    best
}

/// Lets the contenders take turns for that many rounds, each round starting with the next one.
pub(crate) fn interleave(
    lanes: &[Lane<'_>],
    threads: u64,
    rounds: u64,
    budget: Budget,
) -> Vec<Track> {
    let mut tracks: Vec<_> = lanes
        .iter()
        .map(|lane| Track {
            name: lane.name,
            kind: lane.kind,
            nanos: vec![],
            success_rates: vec![],
            waiting_shares: vec![],
        })
        .collect();
    for round in 0..rounds {
        for turn in 0..lanes.len() {
            let lane = (turn + round as usize) % lanes.len();
            let sample = calm_slice(&lanes[lane], threads, round, budget);
            let track = &mut tracks[lane];
            track.nanos.push(sample.nanos_per_operation());
            track.success_rates.push(sample.success_rate());
            track.waiting_shares.push(sample.waiting_share());
        }
    }
    tracks
}
