//! `--spike`: many leases out at once and back to a few, twice; which memory comes back, and which stays.
//!
//! What is expected:
//!
//! - *Buckets* follow the leases that are out, in both directions.
//! - *Cells* stay: they keep their addresses, because any thread may look at any cell that was ever in use
//!   (`Stats::cells` says why). So the second spike, of as many leases, must use no more than the first.
//! - *A thread* keeps the array of buckets that it saw last, until it uses the manager again, trims, or ends.
//!   So the threads here stay, and memory is read while they are idle, and again when they have trimmed.
//!
//! Checked: that every grant succeeds, with a token above the key's last one, and every release; that so
//! many leases are out as should be; that the buckets go; and that what is allocated is the same after both
//! spikes, and no more than at the start but for the cells. What is *resident* is told and not judged: it is
//! the allocator's affair what it does with memory that was freed.

mod report;

use std::io::{self, Write};
use std::sync::Barrier;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use tenure::{FencingToken, LockManager, OwnerId};

use self::report::{Report, Stage};
use super::args::{Args, SPIKE_REST, TICK};
use super::memory::Memory;
use super::run::progress_bar;

/// Nothing may expire, however slow the machine.
const TTL: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long the table may take to find its size when nobody asks for anything.
const SETTLE: Duration = Duration::from_secs(60);
/// It has found it if it has not changed for so long.
const STILL: Duration = Duration::from_millis(200);
/// How many violations are described in words.
const DESCRIBED: usize = 5;

/// What the threads do one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Acquire all keys.
    Up,
    /// Release all but a few.
    Down,
    /// Give back what the thread keeps.
    Trim,
}

const PHASES: [(Phase, &str); 6] = [
    (Phase::Up, "first spike"),
    (Phase::Down, "after it"),
    (Phase::Trim, "threads have trimmed"),
    (Phase::Up, "second spike"),
    (Phase::Down, "after it"),
    (Phase::Trim, "threads have trimmed"),
];

/// What the threads share.
#[derive(Debug)]
struct Spike {
    manager: LockManager,
    /// The last token of each key. All of them are written before memory is first read.
    tokens: Vec<AtomicU64>,
    threads: u32,
    /// All threads, and the one that reads memory.
    turn: Barrier,
}

/// Runs the test and prints its report; `Ok(true)` if nothing was violated.
///
/// # Errors
///
/// Whatever writing to `out` returned, or what kept the manager from being built.
pub(super) fn run(args: &Args, out: &mut impl Write) -> io::Result<bool> {
    let manager = LockManager::builder()
        .tick(TICK)
        .introspection(args.introspection)
        .build()
        .map_err(io::Error::other)?;
    let bar = progress_bar(args);
    let spike = Spike::new(manager, args);
    let mut violations = vec![];
    let mut stages = vec![spike.stage("start", Instant::now())];
    thread::scope(|scope| {
        let threads: Vec<_> = (0..args.threads)
            .map(|index| {
                let spike = &spike;
                scope.spawn(move || spike.work(index))
            })
            .collect();
        for (phase, name) in PHASES {
            let begun = Instant::now();
            spike.turn.wait();
            spike.watch(name, phase, &bar);
            spike.turn.wait();
            spike.settle();
            stages.push(spike.stage(name, begun));
        }
        for thread in threads {
            violations.extend(
                thread
                    .join()
                    .unwrap_or_else(|_| vec!["a thread panicked".to_owned()]),
            );
        }
    });
    bar.finish_and_clear();
    let report = Report::new(args, stages, violations);
    if args.json {
        serde_json::to_writer(&mut *out, &report)?;
        writeln!(out)?;
    } else {
        report.print(out)?;
    }
    Ok(report.passed)
}

impl Spike {
    fn new(manager: LockManager, args: &Args) -> Self {
        let tokens: Vec<_> = (0..args.keys()).map(|_| AtomicU64::new(0)).collect();
        for token in &tokens {
            // Zeroed memory is not resident until it is written, and with what it has it may not be.
            token.store(1, SeqCst);
            token.store(0, SeqCst);
        }
        Self {
            manager,
            tokens,
            threads: args.threads,
            turn: Barrier::new(args.threads as usize + 1),
        }
    }

    /// One thread's part of all phases; what went wrong, in words.
    fn work(&self, index: u32) -> Vec<String> {
        let mut wrong = Wrong::default();
        for (phase, _) in PHASES {
            self.turn.wait();
            let keys = (0..self.tokens.len() as u32).filter(|key| key % self.threads == index);
            match phase {
                Phase::Up => keys.for_each(|key| self.acquire(key, &mut wrong)),
                Phase::Down => keys
                    .filter(|&key| key >= SPIKE_REST)
                    .for_each(|key| self.release(key, &mut wrong)),
                Phase::Trim => self.manager.trim(),
            }
            self.turn.wait();
        }
        wrong.0
    }

    fn acquire(&self, key: u32, wrong: &mut Wrong) {
        let word = &self.tokens[key as usize];
        let before = word.load(SeqCst);
        // Of the last spike, and still held.
        if before != 0 && key < SPIKE_REST {
            return;
        }
        match self.manager.try_acquire(key, OwnerId(1), TTL) {
            Ok(lease) => {
                let token = lease.detach().get();
                if token <= before {
                    wrong.say(|| format!("key {key}: granted {token} after {before}"));
                }
                word.store(token, SeqCst);
            }
            Err(error) => wrong.say(|| format!("key {key}: {error}")),
        }
    }

    fn release(&self, key: u32, wrong: &mut Wrong) {
        let token = self.tokens[key as usize].load(SeqCst);
        let released = FencingToken::new(token)
            .map_err(|error| error.to_string())
            .and_then(|token| {
                let released = self.manager.release(key, token);
                released.map_err(|error| error.to_string())
            });
        if let Err(error) = released {
            wrong.say(|| format!("key {key}, token {token}: {error}"));
        }
    }

    /// Keeps the progress bar going while the threads are at it.
    fn watch(&self, name: &str, phase: Phase, bar: &ProgressBar) {
        let keys = self.tokens.len();
        let aim = match phase {
            Phase::Up => keys,
            Phase::Down => SPIKE_REST as usize,
            Phase::Trim => return,
        };
        bar.set_length(keys as u64);
        let (mut last, mut moved) = (usize::MAX, Instant::now());
        loop {
            let leases = self.manager.len();
            bar.set_position(leases as u64);
            bar.set_message(format!("{name}: {leases} leases out"));
            if leases != last {
                (last, moved) = (leases, Instant::now());
            }
            // A grant that is refused is a violation, and no reason to wait for ever.
            if leases == aim || moved.elapsed() > STILL * 10 {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the table has its size.
    fn settle(&self) {
        let begun = Instant::now();
        let (mut last, mut changed) = (0, begun);
        while begun.elapsed() < SETTLE {
            let stats = self.manager.stats();
            if stats.resizing || stats.buckets != last {
                (last, changed) = (stats.buckets, Instant::now());
            } else if changed.elapsed() > STILL {
                return;
            }
            thread::sleep(TICK);
        }
    }

    fn stage(&self, name: &'static str, begun: Instant) -> Stage {
        let stats = self.manager.stats();
        Stage {
            name,
            seconds: begun.elapsed().as_secs_f64(),
            leases: stats.leases as u64,
            resident_bytes: Memory::read().map(|memory| memory.resident),
            heap_bytes: Memory::allocated(),
            manager_bytes: stats.memory_bytes as u64,
            buckets: stats.buckets as u64,
            cells: stats.cells as u64,
            wheel_bytes: stats.wheel_bytes as u64,
            names: stats.names as u64,
        }
    }
}

/// What went wrong: the first few in words, and that there were more.
#[derive(Debug, Default)]
struct Wrong(Vec<String>);

impl Wrong {
    #[cold]
    fn say(&mut self, what: impl FnOnce() -> String) {
        match self.0.len() {
            0..DESCRIBED => self.0.push(what()),
            DESCRIBED => self.0.push("and more of the kind".to_owned()),
            _ => {}
        }
    }
}
