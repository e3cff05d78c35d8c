//! The phases of a run: fill (if there is a mass), churn, drain; and the monitor beside them.

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tenure::LockManager;

use super::args::{Args, TICK};
use super::fill::Mass;
use super::holding::Stage;
use super::key::KeyCheck;
use super::memory::Memory;
use super::report::{Measured, Report};
use super::resource;
use super::tally::{Tally, Violation};
use super::worker::{Character, Worker};

/// How often the monitor sleeps: as long as the manager's driver at its shortest.
const BEAT: Duration = TICK;
/// Beats between two updates of the progress bar.
const BEATS_PER_UPDATE: u32 = 100;
/// How long a resize may take to end when nobody asks for anything.
const RESIZE: Duration = Duration::from_secs(60);
/// How long the last leases may stay after their TTL before they count as leaked.
const SETTLE: Duration = Duration::from_secs(10);
/// The churn lasts at least so long, even if filling took all of `--seconds`.
const MIN_CHURN: Duration = Duration::from_secs(2);

/// The workers' counters for the progress bar.
#[derive(Debug)]
pub(super) struct Progress {
    grants: Vec<AtomicU64>,
}

impl Progress {
    /// For so many workers.
    pub(super) fn new(workers: u32) -> Self {
        Self {
            grants: (0..workers).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Publishes one worker's counts.
    pub(super) fn publish(&self, worker: u32, tally: &Tally) {
        self.grants[worker as usize].store(tally.grants, Relaxed);
    }

    /// How many workers there are.
    pub(super) fn workers(&self) -> u32 {
        self.grants.len() as u32
    }

    fn grants(&self) -> u64 {
        self.grants.iter().map(|grants| grants.load(Relaxed)).sum()
    }
}

/// Runs the whole test.
///
/// # Errors
///
/// What kept the manager or the resource from being built.
pub(super) fn run(args: &Args) -> io::Result<Report> {
    let seed = args.seed.unwrap_or_else(rand::random);
    let manager = LockManager::builder()
        .tick(TICK)
        .build()
        .map_err(io::Error::other)?;
    let checked = resource::make(args.resource, args.unfenced, args.checked_keys())?
        .into_iter()
        .map(KeyCheck::new)
        .collect();
    let stage = Stage::new(manager, checked, args.ttl);
    let mass = args.fills().then(|| {
        // Must outlive any run of that length, however slow the machine is at filling.
        let ttl = Duration::from_secs(3600 + 10 * args.seconds());
        Mass::new(&stage.manager, args.keys(), args.checked_keys(), ttl)
    });
    let mut measured = Measured {
        seed,
        ..Measured::default()
    };
    let mut tally = Tally::new();
    let bar = progress_bar(args);
    let characters: Vec<Character> = (0..args.threads)
        .map(|index| Character {
            index,
            workers: args.threads,
            seed,
            pause: args.pause(),
            batch: args.resource.batch(),
        })
        .collect();

    if let Some(mass) = &mass {
        fill(&stage, mass, &characters, &bar, &mut measured, &mut tally);
    }
    let time = Duration::from_secs(args.seconds());
    let left = if mass.is_some() {
        time.saturating_sub(measured.fill).max(MIN_CHURN)
    } else {
        time
    };
    sampled(&stage, || {
        churn(
            &stage,
            mass.as_ref(),
            &characters,
            left,
            &bar,
            &mut measured,
            &mut tally,
        );
        measured.grants_per_s = rate(tally.grants, measured.fill + measured.churn);
        if let Some(mass) = &mass {
            bar.set_message("releasing everything");
            let progress = Progress::new(args.threads);
            for part in in_parallel(&characters, |character| mass.drain(character, &progress)) {
                tally.merge(part);
            }
        }
    });
    measured.memory_at_end = Memory::read();
    settle(&stage, &mut measured);
    judge_keys(&stage, &mut measured, &mut tally);
    bar.finish_and_clear();
    Ok(Report::new(args, tally, &measured))
}

/// Does that work beside a thread that sleeps as the manager's driver does: leases expire for as long as it takes.
fn sampled(stage: &Stage, work: impl FnOnce()) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                stage.lateness.sample(stage);
            }
        });
        work();
        over.store(true, Relaxed);
    });
}

/// Acquires every key, measures memory at rest, and frees the keys that the churn is for.
fn fill(
    stage: &Stage,
    mass: &Mass,
    characters: &[Character],
    bar: &ProgressBar,
    measured: &mut Measured,
    tally: &mut Tally,
) {
    measured.memory_before = Memory::read();
    let begin = Instant::now();
    let progress = Progress::new(characters.len() as u32);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                let leases = stage.manager.len();
                let rate = rate(progress.grants(), begin.elapsed());
                bar.set_message(format!("filling: {leases} leases out, {rate} grants/s"));
                thread::sleep(BEAT * BEATS_PER_UPDATE);
            }
        });
        for part in in_parallel(characters, |character| mass.fill(character, &progress)) {
            tally.merge(part);
        }
        done.store(true, Relaxed);
    });
    measured.fill = begin.elapsed();
    measured.peak_leases = stage.manager.len() as u64;
    bar.set_message("measuring memory at rest");
    let waited = Instant::now();
    while stage.manager.stats().resizing && waited.elapsed() < RESIZE {
        thread::sleep(BEAT);
    }
    // Whoever finished the resize may still be giving the old table back.
    thread::sleep(BEAT * BEATS_PER_UPDATE);
    let stats = stage.manager.stats();
    measured.manager_bytes = stats.memory_bytes as u64;
    if !stats.resizing {
        measured.memory_at_rest = Memory::read();
    }
    mass.hand_over(&stage.checked, tally);
}

/// The main part: all workers at work, and this thread watching them.
fn churn(
    stage: &Stage,
    mass: Option<&Mass>,
    characters: &[Character],
    time: Duration,
    bar: &ProgressBar,
    measured: &mut Measured,
    tally: &mut Tally,
) {
    let stop = AtomicBool::new(false);
    let progress = Progress::new(characters.len() as u32);
    let begin = Instant::now();
    let parts = thread::scope(|scope| {
        let workers: Vec<_> = characters
            .iter()
            .map(|&character| {
                let (stop, progress) = (&stop, &progress);
                scope.spawn(move || Worker::new(stage, mass, character).run(stop, progress))
            })
            .collect();
        watch(stage, &progress, begin, time, bar, measured, || ());
        stop.store(true, Relaxed);
        measured.churn = begin.elapsed();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|_| panicked()))
            .collect::<Vec<_>>()
    });
    for part in parts {
        tally.merge(part);
    }
}

/// Keeps the progress bar going, and measures how late the system wakes a thread that sleeps as
/// the manager's driver does, or keeps the driver itself waiting: no expiry can be more punctual than that. Calls `each_beat` in between.
pub(super) fn watch(
    stage: &Stage,
    progress: &Progress,
    begin: Instant,
    time: Duration,
    bar: &ProgressBar,
    measured: &mut Measured,
    mut each_beat: impl FnMut(),
) {
    let seconds = time.as_secs_f64();
    let mut last = (begin, 0);
    for beat in 0_u32.. {
        let asleep = Instant::now();
        if asleep.duration_since(begin) >= time {
            break;
        }
        stage.lateness.sample(stage);
        each_beat();
        if beat % BEATS_PER_UPDATE == 0 {
            let leases = stage.manager.len() as u64;
            measured.peak_leases = measured.peak_leases.max(leases);
            let (now, grants) = (Instant::now(), progress.grants());
            let rate = rate(grants - last.1, now - last.0);
            last = (now, grants);
            let elapsed = begin.elapsed();
            bar.set_position(elapsed.as_millis() as u64);
            let expired = stage.manager.stats().expired;
            bar.set_message(format!(
                "{:.0}/{seconds:.0} s, {rate} grants/s, {leases} leases out, {expired} expired",
                elapsed.as_secs_f64()
            ));
        }
    }
}

/// Waits until nothing is out any more; what does not go has leaked.
pub(super) fn settle(stage: &Stage, measured: &mut Measured) {
    let waited = Instant::now();
    while !stage.manager.is_empty() && waited.elapsed() < stage.ttl + SETTLE {
        stage.lateness.sample(stage);
    }
    stage.lateness.sample(stage);
    measured.leaked_leases = stage.manager.len().max(stage.manager.iter().count()) as u64;
    let stats = stage.manager.stats();
    measured.granted = stats.granted;
    measured.expiries = stats.expired;
    measured.revocations = stats.revoked;
    measured.max_expiry_lag = stats.max_expiry_lag;
    (measured.timer_lag, measured.late) = stage.lateness.end(stats.max_expiry_lag);
}

/// Compares each key's resource and counters with what the workers did to them.
pub(super) fn judge_keys(stage: &Stage, measured: &mut Measured, tally: &mut Tally) {
    let mut kept = 0;
    for (key, check) in (0..).zip(&stage.checked) {
        match check.value() {
            Ok(value) => kept += value,
            Err(error) => tally.unexpected(key, &error),
        }
        if let Some((plain, atomic)) = check.final_miscount() {
            tally.violate(Violation::Exclusion, || {
                format!("key {key}: counted {plain} of {atomic} sections in the end")
            });
        }
    }
    measured.lost_writes = tally.accepted_writes.abs_diff(kept);
}

/// Runs `work` once for each character, each in its own thread.
fn in_parallel(characters: &[Character], work: impl Fn(Character) -> Tally + Sync) -> Vec<Tally> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = characters
            .iter()
            .map(|&character| scope.spawn(move || work(character)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| panicked()))
            .collect()
    })
}

/// A worker only panics if the manager does, and that is a violation (I11).
pub(super) fn panicked() -> Tally {
    let mut tally = Tally::new();
    tally.violate(Violation::UnexpectedError, || {
        "a worker panicked; its counts are missing".to_owned()
    });
    tally
}

/// Events a second.
pub(super) fn rate(events: u64, time: Duration) -> u64 {
    let nanos = time.as_nanos().max(1);
    u64::try_from(u128::from(events) * 1_000_000_000 / nanos).unwrap_or(u64::MAX)
}

/// On standard error, and only if that is a terminal and a person is to read the result.
pub(super) fn progress_bar(args: &Args) -> ProgressBar {
    let target = if args.json {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr()
    };
    let bar = ProgressBar::with_draw_target(Some(args.seconds() * 1000), target);
    if let Ok(style) = ProgressStyle::with_template("{bar:30.cyan} {wide_msg}") {
        bar.set_style(style);
    }
    bar
}
