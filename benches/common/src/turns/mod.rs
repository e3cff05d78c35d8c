//! Taking turns on one lock: how long it takes from a release until the next holder runs.
//!
//! The holder keeps the lock until another wants it, writes down the time, and releases; the next one looks
//! at the clock first thing when it holds the lock. (Otherwise whoever happens to run alone would take a
//! million turns meanwhile, and wait for nobody.) A hand-off is a turn after somebody else's. A lock that is
//! not fair may give the next turn to the same one: that is counted, but has no latency.

pub mod tasks;
pub mod threads;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::measure::statistics::quantile;

/// What those who take turns know of each other; written by who holds the lock, if not said otherwise.
#[derive(Debug)]
pub struct Meeting {
    start: Instant,
    length: u64,
    last: AtomicU64,
    released: AtomicU64,
    /// How many hold the lock or want it; written by all.
    present: AtomicU64,
}

/// What one of them did.
#[derive(Debug, Default)]
pub struct Tally {
    turns: u64,
    /// Of the hand-offs, in nanoseconds.
    latencies: Vec<f64>,
}

impl Meeting {
    pub fn new(length: Duration) -> Self {
        Self {
            start: Instant::now(),
            length: length.as_nanos() as u64,
            last: AtomicU64::new(u64::MAX),
            released: AtomicU64::new(0),
            present: AtomicU64::new(0),
        }
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Comes before the lock is asked for.
    #[inline]
    pub fn want(&self) {
        self.present.fetch_add(1, Ordering::Relaxed);
    }

    /// The first thing with the lock held.
    #[inline]
    pub fn begin(&self, me: u64, tally: &mut Tally) {
        let now = self.now();
        let released = self.released.load(Ordering::Relaxed);
        let last = self.last.swap(me, Ordering::Relaxed);
        if last != me && last != u64::MAX {
            tally.latencies.push(now.saturating_sub(released) as f64);
        }
        tally.turns += 1;
    }

    #[inline]
    pub fn is_over(&self) -> bool {
        self.now() >= self.length
    }

    /// Whether the holder may release.
    #[inline]
    pub fn may_end(&self) -> bool {
        self.present.load(Ordering::Relaxed) > 1 || self.is_over()
    }

    /// The last thing with the lock held.
    #[inline]
    pub fn end(&self) {
        self.present.fetch_sub(1, Ordering::Relaxed);
        self.released.store(self.now(), Ordering::Relaxed);
    }
}

/// One slice of one contender.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// The median latency of a hand-off, in nanoseconds.
    pub median: f64,
    /// The latency that one of a hundred hand-offs exceeds.
    pub late: f64,
    /// Hand-offs in a second.
    pub handoffs: f64,
    /// Turns in a second.
    pub turns: f64,
}

impl Outcome {
    pub fn new(tallies: impl Iterator<Item = Tally>, meeting: &Meeting) -> Self {
        let seconds = meeting.now() as f64 / 1e9;
        let (mut turns, mut latencies) = (0, vec![]);
        for tally in tallies {
            turns += tally.turns;
            latencies.extend(tally.latencies);
        }
        Self {
            median: quantile(&latencies, 0.5),
            late: quantile(&latencies, 0.99),
            handoffs: latencies.len() as f64 / seconds,
            turns: turns as f64 / seconds,
        }
    }
}

/// One contender: runs a slice of that length.
pub struct Lane<'l> {
    pub name: &'static str,
    pub run: Box<dyn Fn(Duration) -> Outcome + 'l>,
}

/// What a contender did, by round.
#[derive(Debug)]
pub struct Track {
    pub name: &'static str,
    pub outcomes: Vec<Outcome>,
}

impl Track {
    /// The median over the rounds.
    fn median(&self, of: impl Fn(&Outcome) -> f64) -> f64 {
        let values: Vec<f64> = self.outcomes.iter().map(of).collect();
        quantile(&values, 0.5)
    }
}

/// Lets the contenders take turns for that many rounds, each round starting with the next one.
pub fn interleave(lanes: &[Lane<'_>], rounds: usize, slice: Duration) -> Vec<Track> {
    let track = |lane: &Lane<'_>| Track {
        name: lane.name,
        outcomes: vec![],
    };
    let mut tracks: Vec<Track> = lanes.iter().map(track).collect();
    for round in 0..rounds {
        for turn in 0..lanes.len() {
            let lane = (turn + round) % lanes.len();
            tracks[lane].outcomes.push((lanes[lane].run)(slice));
        }
    }
    tracks
}

/// Prints what the contenders did, with the ratios to the first of them, taken within each round.
pub fn print(name: &str, tracks: &[Track]) {
    println!();
    println!(
        "{name:<34}{:>10}{:>10}{:>14}{:>14}{:>12}{:>12}",
        "p50, us", "p99, us", "hand-offs/s", "turns/s", "p50 ratio", "rate ratio"
    );
    for track in tracks {
        let ratio = |of: fn(&Outcome) -> f64| {
            let rounds = track.outcomes.iter().zip(&tracks[0].outcomes);
            let ratios: Vec<f64> = rounds.map(|(its, first)| of(its) / of(first)).collect();
            quantile(&ratios, 0.5)
        };
        println!(
            "  {:<32}{:>10.2}{:>10.2}{:>14.0}{:>14.0}{:>12.2}{:>12.2}",
            track.name,
            track.median(|outcome| outcome.median) / 1e3,
            track.median(|outcome| outcome.late) / 1e3,
            track.median(|outcome| outcome.handoffs),
            track.median(|outcome| outcome.turns),
            ratio(|outcome| outcome.median),
            ratio(|outcome| outcome.handoffs),
        );
    }
}
