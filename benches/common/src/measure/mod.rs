//! Measuring several contenders against each other on a machine that has other things to do.
//!
//! Criterion runs one benchmark after the other, so whatever slows the machine for ten seconds is
//! charged to one contender. Here the contenders take turns in slices of a few milliseconds, and a
//! ratio is taken within each round, where both sides met the same machine. A disturbed slice, whose
//! threads had to wait for a processor or did not run at the same time, is repeated a few times for
//! a calm one; waiting doesn't count as the contender's time; and the report says how much
//! disturbance was left.

pub mod processor;
pub mod statistics;

use std::fs;
use std::hint::black_box;
use std::iter;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use serde::Serialize;
use tenure::{Clock, CoarseClock};

/// How long a slice goes on.
#[derive(Clone, Copy, Debug)]
pub enum Budget {
    /// For that many operations, exactly.
    Operations(u64),
    /// For that long, after a tenth of it to warm the caches.
    Time(Duration),
}

/// Where the threads of a slice meet. They don't sleep there, so that all of them have a processor
/// when they go on.
#[derive(Debug)]
struct Gate {
    missing: AtomicU64,
}

impl Gate {
    fn pass(&self) {
        self.missing.fetch_sub(1, Ordering::AcqRel);
        while self.missing.load(Ordering::Acquire) > 0 {
            thread::yield_now();
        }
    }
}

/// Makes sure that the ticker of the coarse clock is awake, as it is in a process that reads it all
/// the time. It falls asleep during the slices of contenders that don't.
fn wake(clock: &CoarseClock) {
    const ATTEMPTS: u32 = 100;
    const READINGS: u32 = 64;
    // Well below what the real clock costs, which is read in its stead while it sleeps.
    const AWAKE: Duration = Duration::from_nanos(8);
    for _ in 0..ATTEMPTS {
        let start = Instant::now();
        for _ in 0..READINGS {
            black_box(clock.now());
        }
        if start.elapsed() <= AWAKE * READINGS {
            break;
        }
        thread::sleep(Duration::from_micros(100));
    }
}

/// One thread's part of a slice.
#[derive(Clone, Copy, Debug)]
pub struct Seat<'slice> {
    /// Numbered from 0.
    pub thread: u64,
    /// Which round this is: rounds use different keys, contenders of one round the same.
    pub round: u64,
    budget: Budget,
    gate: &'slice Gate,
}

/// What one thread did in a slice.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Operations done.
    pub operations: u64,
    /// How many of them said yes.
    pub succeeded: u64,
    /// When they began.
    start: Instant,
    /// The time from then to the end.
    pub elapsed: Duration,
    /// How much of it the thread was ready to run and had no processor.
    waited: Duration,
}

impl Sample {
    fn nanos_per_operation(&self) -> f64 {
        let ran = self.elapsed.saturating_sub(self.waited);
        ran.as_nanos() as f64 / self.operations as f64
    }

    fn success_rate(&self) -> f64 {
        self.succeeded as f64 / self.operations as f64
    }
}

/// How long this thread has been ready to run without a processor since it began, where the
/// system tells it as Linux does; zero elsewhere.
pub fn waited() -> Duration {
    let statistics = fs::read_to_string("/proc/thread-self/schedstat");
    let nanos = statistics
        .ok()
        .and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

impl Seat<'_> {
    /// Repeats `operation`, which says whether it succeeded, until the budget is used up.
    #[inline]
    pub fn measure(self, mut operation: impl FnMut() -> bool) -> Sample {
        self.measure_many(1, move || u64::from(operation()))
    }

    /// The same for calls that do so many operations at once, and say how many of them succeeded.
    #[inline]
    pub fn measure_many(self, at_once: u64, call: impl FnMut() -> u64) -> Sample {
        let (operations, time) = match self.budget {
            Budget::Operations(operations) => (operations, Duration::ZERO),
            Budget::Time(time) => (0, time),
        };
        let clock = CoarseClock::shared();
        let warm_up = Stretch {
            calls: 0,
            time: time / 10,
            chunk: 1,
        };
        let (_, chunk, call) = repeat(call, &clock, at_once, warm_up);
        wake(&clock);
        self.gate.pass();
        let stretch = Stretch {
            calls: operations.div_ceil(at_once),
            time,
            chunk,
        };
        repeat(call, &clock, at_once, stretch).0
    }
}

/// How long calls are repeated.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    /// That often at least, before the first look at the clocks.
    calls: u64,
    /// And for that long.
    time: Duration,
    /// How many calls to make then before the next look.
    chunk: u64,
}

/// Repeats the call, and says how large the chunks were in the end. Owns it meanwhile, so that its state
/// can live in registers: what the loop costs is measured as well.
#[inline(never)]
fn repeat<F: FnMut() -> u64>(
    call: F,
    clock: &CoarseClock,
    at_once: u64,
    stretch: Stretch,
) -> (Sample, u64, F) {
    /// The most calls between two looks at the clocks, which cost as much as one fast operation.
    const CHUNK: u64 = 256;
    /// Slow calls are fewer between two looks: the slice would not end in time.
    const AMPLE: Duration = Duration::from_micros(50);
    let mut call = call;
    let waited_before = waited();
    let mut sample = Sample {
        operations: 0,
        succeeded: 0,
        start: Instant::now(),
        elapsed: Duration::ZERO,
        waited: Duration::ZERO,
    };
    let (mut calls, mut chunk) = (stretch.calls, stretch.chunk);
    loop {
        let mut succeeded = 0;
        for _ in 0..calls {
            succeeded += call();
        }
        sample.succeeded += succeeded;
        sample.operations += calls * at_once;
        black_box(clock.now());
        let before = sample.elapsed;
        sample.elapsed = sample.start.elapsed();
        if sample.elapsed >= stretch.time {
            sample.waited = waited().saturating_sub(waited_before);
            return (sample, chunk, call);
        }
        if calls == chunk && chunk < CHUNK && sample.elapsed.saturating_sub(before) < AMPLE {
            chunk *= 2;
        }
        calls = chunk;
    }
}

/// What a contender is, for the choice of whom to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The crate.
    Tenure,
    /// The crate by another way: single calls instead of batches, say.
    TenureOtherwise,
    /// Hand-rolled, with the crate's coarse clock.
    Coarse,
    /// Hand-rolled, with `Instant::now`.
    Instant,
    /// A product with its own idea of time, or none.
    Product,
    /// What the hardware takes for it at the least.
    Floor,
}

/// One contender at one task.
pub struct Lane<'table> {
    /// For reports.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// One thread's part of a slice.
    pub run: Box<dyn Fn(Seat<'_>) -> Sample + Sync + 'table>,
}

/// One slice of one contender on `threads` threads.
#[derive(Debug)]
pub struct Slice {
    parts: Vec<Sample>,
}

impl Slice {
    pub fn run(lane: &Lane<'_>, threads: u64, round: u64, budget: Budget) -> Self {
        let gate = Gate {
            missing: AtomicU64::new(threads),
        };
        let part = |thread| {
            (lane.run)(Seat {
                thread,
                round,
                budget,
                gate: &gate,
            })
        };
        let parts = thread::scope(|scope| {
            let part = &part;
            let others: Vec<_> = (1..threads)
                .map(|thread| scope.spawn(move || part(thread)))
                .collect();
            let first = part(0);
            let others = others.into_iter().map(ScopedJoinHandle::join);
            iter::once(Ok(first))
                .chain(others)
                .collect::<Result<_, _>>()
        });
        Self {
            parts: parts.expect("a benchmark thread panicked"),
        }
    }

    /// A calm slice, or the calmest of a few.
    fn calm(lane: &Lane<'_>, threads: u64, round: u64, budget: Budget) -> Self {
        const CALM: f64 = 0.02;
        let mut calmest = Self::run(lane, threads, round, budget);
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        if threads > processors as u64 {
            // They wait for each other, which is the point.
            return calmest;
        }
        for _ in 0..2 * threads {
            if calmest.disturbance() <= CALM {
                break;
            }
            let again = Self::run(lane, threads, round, budget);
            if again.disturbance() < calmest.disturbance() {
                calmest = again;
            }
        }
        calmest
    }

    /// The mean over the threads.
    fn mean(&self, of: impl FnMut(&Sample) -> f64) -> f64 {
        self.parts.iter().map(of).sum::<f64>() / self.parts.len() as f64
    }

    /// Operations of all threads in a microsecond, from the first's start to the last's end.
    fn rate(&self) -> f64 {
        let operations: u64 = self.parts.iter().map(|part| part.operations).sum();
        let start = self.parts.iter().map(|part| part.start).min();
        let end = self
            .parts
            .iter()
            .map(|part| part.start + part.elapsed)
            .max();
        let whole = end.zip(start).map(|(end, start)| end - start);
        operations as f64 / whole.unwrap_or_default().as_secs_f64() / 1e6
    }

    /// The share of the time that a thread waited for a processor, or ran without the others.
    fn disturbance(&self) -> f64 {
        let all = self.mean(|part| part.elapsed.as_secs_f64());
        let waited = self.mean(|part| part.waited.as_secs_f64());
        let start = self.parts.iter().map(|part| part.start).max();
        let end = self
            .parts
            .iter()
            .map(|part| part.start + part.elapsed)
            .min();
        let together = match (start, end) {
            (Some(start), Some(end)) => end.saturating_duration_since(start).as_secs_f64(),
            _ => 0.0,
        };
        (waited / all).max(1.0 - together / all)
    }
}

/// What a contender did in each round.
#[derive(Clone, Debug)]
pub struct Track {
    /// Whose it is.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Nanoseconds for each operation of one thread, by round, without the time that it waited for a
    /// processor.
    pub nanos: Vec<f64>,
    /// Operations of all threads in a microsecond of the clock on the wall, by round.
    pub rates: Vec<f64>,
    /// The share of operations that said yes, by round.
    pub success_rates: Vec<f64>,
    /// The share of the time that the threads waited or were not together, by round.
    pub disturbances: Vec<f64>,
}

/// Lets the contenders take turns for that many rounds, each round starting with the next one, and
/// reports each turn that is over.
pub fn interleave(
    lanes: &[Lane<'_>],
    threads: u64,
    rounds: u64,
    budget: Budget,
    mut over: impl FnMut(),
) -> Vec<Track> {
    let mut tracks: Vec<_> = lanes
        .iter()
        .map(|lane| Track {
            name: lane.name,
            kind: lane.kind,
            nanos: vec![],
            rates: vec![],
            success_rates: vec![],
            disturbances: vec![],
        })
        .collect();
    for round in 0..rounds {
        for turn in 0..lanes.len() {
            let lane = (turn + round as usize) % lanes.len();
            let slice = Slice::calm(&lanes[lane], threads, round, budget);
            let track = &mut tracks[lane];
            track.nanos.push(slice.mean(Sample::nanos_per_operation));
            track.rates.push(slice.rate());
            track.success_rates.push(slice.mean(Sample::success_rate));
            track.disturbances.push(slice.disturbance());
            over();
        }
    }
    tracks
}
