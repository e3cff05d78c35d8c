//! The ways of holding a key, with workers that wait: how such a run goes.
//!
//! ```text
//! actor.rs     one worker, and how it waits and gives up
//! single.rs    one lease at a time: exclusive, shared, permits
//! sessions.rs  several leases under one TTL
//! multi.rs     several keys, all or nothing
//! together.rs  what is checked of several leases that end together
//! mingled.rs   everything on the same keys: upgrades, downgrades, re-entry, terms, lost signals
//! ```

mod actor;
mod mingled;
mod multi;
mod sessions;
mod single;
mod together;

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

use tenure::{Key, LockManager, OwnerId};

use self::actor::Actor;
use super::args::{Args, MIXED_PARTS, Scenario, TICK};
use super::holding::Stage;
use super::key::KeyCheck;
use super::memory::Memory;
use super::occupancy::Occupancy;
use super::queue::Queue;
use super::report::{Measured, Report};
use super::resource;
use super::run::{self, Progress};
use super::soak::{Kind, Pulse, Samples, Tide};
use super::tally::{Tally, Violation};
use super::tasks::{self, Host, Job};
use super::watchdog::{Desk, Watchdog};

/// The longest that a key here is kept from everybody after a lease has ended.
const MAX_DELAY: Duration = Duration::from_millis(5);

/// Beside the TTLs, time for a machine that others use.
const STUCK: Duration = Duration::from_secs(10);
/// The most TTLs for which a worker is in the way of another: four keys, prolonged three times.
const LONGEST: u32 = 16;

/// Everything that the workers share.
#[derive(Debug)]
pub(super) struct World {
    pub(super) stage: Stage,
    arenas: Vec<Arena>,
    by_key: HashMap<Key, u32>,
    pub(super) desk: Desk,
    progress: Progress,
    owners: AtomicU64,
    lull: AtomicBool,
    stopping: AtomicBool,
    pause: Duration,
    /// Where a soak has its latencies from.
    pulse: Option<Arc<Pulse>>,
}

/// What the workers share about one key, beside its [`KeyCheck`].
#[derive(Debug)]
struct Arena {
    key: Key,
    occupancy: Occupancy,
    queue: Queue,
}

/// What a worker does.
#[derive(Clone, Copy, Debug)]
enum Part {
    Exclusive,
    Shared,
    Semaphore,
    Sessions,
    Multi,
    /// Everything on the same keys.
    Mingled,
}

impl Part {
    /// What its waits are told of as.
    fn kind(self) -> Kind {
        match self {
            Self::Exclusive => Kind::Exclusive,
            Self::Shared => Kind::Shared,
            Self::Semaphore => Kind::Semaphore,
            Self::Sessions => Kind::Sessions,
            Self::Multi => Kind::Multi,
            Self::Mingled => Kind::Mingled,
        }
    }
}

impl World {
    fn new(stage: Stage, args: &Args, pulse: Option<Arc<Pulse>>) -> Self {
        let arenas: Vec<Arena> = (0..args.keys())
            .map(|key| Arena {
                key: stage.manager.key(key),
                occupancy: Occupancy::default(),
                queue: Queue::default(),
            })
            .collect();
        Self {
            by_key: (0..)
                .zip(&arenas)
                .map(|(at, arena)| (arena.key, at))
                .collect(),
            arenas,
            stage,
            desk: Desk::default(),
            progress: Progress::new(args.waiting_workers()),
            owners: AtomicU64::new(0),
            lull: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            pause: args.pause(),
            pulse,
        }
    }

    /// The greatest token of a key whose grant has returned.
    pub(super) fn highest(&self, key: Key) -> u64 {
        let at = self.by_key.get(&key);
        at.map_or(0, |&at| self.stage.checked[at as usize].before().highest)
    }

    /// Whether the run is over.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(SeqCst)
    }

    /// Begins a lull, or ends it.
    pub(super) fn set_lull(&self, lull: bool) {
        self.lull.store(lull, SeqCst);
    }

    /// Whether nobody gives up, and nobody asks anew, until all who wait have been served.
    ///
    /// Whoever comes to a key has the manager look after it, and so helps those who were forgotten.
    pub(super) fn is_quiet(&self) -> bool {
        self.lull.load(SeqCst) || self.is_stopping()
    }

    /// No wait lasts so long: even if everybody else comes first on each of several keys, and prolongs
    /// its leases as often as anybody does.
    pub(super) fn stuck(&self) -> Duration {
        STUCK + self.stage.ttl * self.progress.workers() * LONGEST
    }

    /// An owner that nobody else is.
    pub(super) fn owner(&self) -> OwnerId {
        OwnerId(self.owners.fetch_add(1, SeqCst))
    }

    fn arena(&self, key: u32) -> &Arena {
        &self.arenas[key as usize]
    }
}

/// Runs the test of one way of holding keys; a soak has its samples taken meanwhile.
///
/// # Errors
///
/// What kept the manager or a runtime from being built.
pub(super) fn run(
    args: &Args,
    scenario: Scenario,
    samples: Option<&mut Samples>,
) -> io::Result<Report> {
    let seed = args.seed.unwrap_or_else(rand::random);
    let manager = LockManager::builder()
        .tick(TICK)
        .build()
        .map_err(io::Error::other)?;
    let checked = resource::make(args.resource, args.unfenced, args.keys())?
        .into_iter()
        .map(KeyCheck::new)
        .collect();
    let stage = Stage::new(manager, checked, args.ttl);
    let pulse = samples.as_ref().map(|samples| samples.pulse());
    let world = Arc::new(World::new(stage, args, pulse));
    let jobs = cast(args, scenario, &world, seed);
    let mut measured = Measured {
        seed,
        ..Measured::default()
    };
    let mut tally = perform(&world, jobs, args, samples, &mut measured)?;
    world.desk.wakes.report(&mut tally);
    measured.grants_per_s = run::rate(tally.grants, measured.churn);
    measured.memory_at_end = Memory::read();
    run::settle(&world.stage, &mut measured);
    run::judge_keys(&world.stage, &mut measured, &mut tally);
    haunt(&world, &measured, &mut tally);
    Ok(Report::new(args, tally, &measured))
}

/// Gives every worker its part, its keys and its host.
fn cast(args: &Args, scenario: Scenario, world: &Arc<World>, seed: u64) -> Vec<(Host, Job<Tally>)> {
    (0..args.waiting_workers())
        .map(|index| {
            // Of those who have the same part, some are on each host.
            let (number, host) = if args.soak {
                let hosts = [Host::Thread, Host::Tokio, Host::Smol];
                (index, hosts[(index / MIXED_PARTS % 3) as usize])
            } else {
                let host = match (args.asynchronous, index % 2) {
                    (false, _) => Host::Thread,
                    (true, 0) => Host::Tokio,
                    (true, _) => Host::Smol,
                };
                (index / 2, host)
            };
            let (part, keys) = part_of(scenario, args.keys(), number);
            let world = Arc::clone(world);
            let job: Job<Tally> = Box::pin(async move {
                let actor = Actor::new(&world, part, keys, host, index, seed);
                actor.run().await
            });
            (host, job)
        })
        .collect()
}

/// What the worker of that number does, and on which keys.
fn part_of(scenario: Scenario, keys: u32, number: u32) -> (Part, Range<u32>) {
    let part = match scenario {
        Scenario::Exclusive => Part::Exclusive,
        Scenario::Shared => Part::Shared,
        Scenario::Semaphore => Part::Semaphore,
        Scenario::Sessions => Part::Sessions,
        Scenario::Multi => Part::Multi,
        Scenario::Mixed => {
            let parts = [
                Part::Exclusive,
                Part::Shared,
                Part::Semaphore,
                Part::Sessions,
                Part::Multi,
                Part::Mingled,
            ];
            let number = number % MIXED_PARTS;
            let bound = |number| keys * number / MIXED_PARTS;
            return (parts[number as usize], bound(number)..bound(number + 1));
        }
    };
    (part, 0..keys)
}

/// Runs the workers with the watchdog, and this thread watching them, up to the last one's end.
fn perform(
    world: &Arc<World>,
    jobs: Vec<(Host, Job<Tally>)>,
    args: &Args,
    mut samples: Option<&mut Samples>,
    measured: &mut Measured,
) -> io::Result<Tally> {
    let seed = measured.seed;
    let bar = run::progress_bar(args);
    let done = AtomicBool::new(false);
    let mut tally = Tally::new();
    let begin = Instant::now();
    let endings = thread::scope(|scope| {
        let workers = scope.spawn(|| tasks::run_all(jobs, args.threads));
        let watchdog = scope.spawn(|| Watchdog::new(world, seed).run(&done));
        let waves = world
            .pulse
            .as_ref()
            .map(|pulse| scope.spawn(|| Tide::new(world, pulse, seed).run()));
        let (stage, time) = (&world.stage, Duration::from_secs(args.seconds()));
        let sample = || {
            if let Some(samples) = &mut samples {
                samples.take_if_due(&stage.manager);
            }
        };
        run::watch(stage, &world.progress, begin, time, &bar, measured, sample);
        world.stopping.store(true, SeqCst);
        measured.churn = begin.elapsed();
        bar.set_message("serving those who still wait");
        let endings = workers.join();
        if let Some(waves) = waves {
            tally.merge(waves.join().unwrap_or_else(|_| run::panicked()));
        }
        done.store(true, Relaxed);
        let watched = watchdog.join();
        tally.merge(watched.unwrap_or_else(|_| run::panicked()));
        endings
    });
    bar.finish_and_clear();
    for ending in endings.unwrap_or_else(|_| Ok(vec![Err(Box::new(()))]))? {
        tally.merge(ending.unwrap_or_else(|_| run::panicked()));
    }
    Ok(tally)
}

/// Looks for what nobody has any more, now that everybody has gone and every TTL has passed.
fn haunt(world: &World, measured: &Measured, tally: &mut Tally) {
    let manager = &world.stage.manager;
    let waiting = manager.waiting() as u64;
    for what in [("leases", measured.leaked_leases), ("waiters", waiting)] {
        for _ in 0..what.1 {
            tally.violate(Violation::Ghost, || {
                format!("{} {} are left", what.1, what.0)
            });
        }
    }
    thread::sleep(2 * MAX_DELAY);
    for key in 0..world.arenas.len() as u32 {
        let lease = manager.try_acquire(key, world.owner(), world.stage.ttl);
        if let Err(error) = lease.map(drop) {
            tally.violate(Violation::Ghost, || {
                format!("key {key} is not free in the end: {error}")
            });
        }
    }
}
