//! Runs of real managers, their histories by key, and what is in these.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use tenure::{Clock, CoarseClock, LockManager, ManualClock, Mode, SystemClock};

use crate::check::Spec;
use crate::history::{Answer, Ask, Op};
use crate::process::{Menu, Pace, Process, Shared};

const MILLI: u64 = 1_000_000;

/// By which clock, and who turns the wheel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Time {
    /// The default clock and its thread, with the manager's.
    Coarse,
    /// Exact readings and short ticks, with the manager's thread.
    System,
    /// A clock that another thread moves on while operations are under way, and the wheel after it.
    Manual,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum As {
    Threads,
    Tasks,
}

pub(crate) const PROCESSES: usize = 4;
/// Rounds of one manager, each on keys of its own.
const ROUNDS: u64 = 10;

/// One workload in one setting.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) spec: Spec,
    pub(crate) menu: Menu,
    pub(crate) time: Time,
    pub(crate) processes: As,
    /// Leases of other keys come and go meanwhile, so that the table grows and shrinks.
    pub(crate) resizes: bool,
    /// There must be so many of these for each history that was asked for, in the hundred.
    pub(crate) wants: &'static [(Kind, u64)],
}

/// What makes a history worth checking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Granted,
    Refused,
    Waited,
    GaveUp,
    Expired,
    Renewed,
    /// Whoever asked about a lease, or would have it renewed or released, was told that it is over.
    FoundOver,
    Revoked,
    EnteredAgain,
    Upgraded,
    Downgraded,
    Deadlocks,
    KeptAlive,
    SessionsOver,
    Lost,
    /// Somebody was told that the key is kept free.
    KeptFree,
    /// Somebody was told of all who hold a key, and there was somebody.
    AllSeen,
    /// Operations of different processes on the same key at the same time.
    Overlaps,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) histories: u64,
    pub(crate) operations: u64,
    pub(crate) longest: usize,
    pub(crate) of: BTreeMap<Kind, u64>,
}

impl Counts {
    fn add(&mut self, kind: Kind, count: u64) {
        *self.of.entry(kind).or_default() += count;
    }

    fn add_history(&mut self, ops: &[Op]) {
        self.histories += 1;
        self.operations += ops.len() as u64;
        self.longest = self.longest.max(ops.len());
        let mut tokens: Vec<u64> = vec![];
        for (at, op) in ops.iter().enumerate() {
            let kind = match (&op.ask, &op.answer) {
                (Ask::Upgrade { .. }, Answer::Granted { .. }) => Kind::Upgraded,
                (_, Answer::Granted { token, .. }) if tokens.contains(token) => Kind::EnteredAgain,
                (_, Answer::Granted { token, .. }) => {
                    tokens.push(*token);
                    Kind::Granted
                }
                (_, Answer::Held { .. }) => Kind::Refused,
                (_, Answer::Delayed { .. }) => Kind::KeptFree,
                (_, Answer::Everyone(_)) if op.is_told_of_delay() => Kind::KeptFree,
                (_, Answer::Everyone(all)) if !all.holders.is_empty() => Kind::AllSeen,
                (_, Answer::Deadlock) => Kind::Deadlocks,
                (_, Answer::Lost) => Kind::Lost,
                (Ask::KeepAlive { .. }, Answer::Renewed(_)) => Kind::KeptAlive,
                (Ask::Renew { .. }, Answer::Renewed(_)) => Kind::Renewed,
                (Ask::KeepAlive { .. } | Ask::Close { .. }, Answer::Over)
                | (_, Answer::SessionOver) => Kind::SessionsOver,
                (Ask::Revoke, Answer::Found { .. }) => Kind::Revoked,
                (Ask::Downgrade { .. }, Answer::Done) => Kind::Downgraded,
                (Ask::Revoke | Ask::Holder, Answer::Over) => continue,
                (_, Answer::Over | Answer::Lapsed) => Kind::FoundOver,
                _ => continue,
            };
            self.add(kind, 1);
            let later = ops[at + 1..].iter().filter(|it| it.process != op.process);
            let met = later.take_while(|it| it.call < op.ret).count();
            self.add(Kind::Overlaps, met as u64);
        }
    }

    fn has(&self, wants: &[(Kind, u64)], histories: u64) -> bool {
        let of = |kind| self.of.get(kind).copied().unwrap_or(0);
        let mut wants = wants.iter();
        wants.all(|(kind, each)| of(kind) >= (histories * each).div_ceil(100))
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            histories,
            operations,
            longest,
            of,
        } = self;
        write!(
            f,
            "{histories} histories, {operations} operations, {longest} in the longest"
        )?;
        for (kind, count) in of {
            write!(f, ", {count} {kind:?}")?;
        }
        Ok(())
    }
}

impl Workload {
    fn pace(&self) -> Pace {
        // The real time of a test on the manual clock is short: that is moved on all the time.
        let (unit, rest) = match self.time {
            Time::Coarse => (MILLI, MILLI),
            Time::System => (MILLI / 5, MILLI / 5),
            Time::Manual => (MILLI, MILLI / 20),
        };
        let patience = match self.processes {
            As::Threads => (0, 2 * rest),
            As::Tasks => (0, 2 * MILLI),
        };
        Pace {
            ttl: (unit / 4, 4 * unit),
            patience,
            rest: (rest / 4, 2 * rest),
            delay: (1, 3 * unit),
        }
    }

    /// Runs and checks so many histories, and more until there was enough of all that it wants.
    pub(crate) fn check(&self, histories: u64, seed: u64) -> Counts {
        let began = Instant::now();
        let mut counts = Counts::default();
        let (mut checking, mut runs) = (Duration::ZERO, 0);
        while counts.histories < histories || !counts.has(self.wants, histories) {
            assert!(
                began.elapsed() < Duration::from_secs(120 + 5 * histories),
                "{}, {:?}, {:?} clock: there is not enough of {:?} in {counts}",
                self.name,
                self.processes,
                self.time,
                self.wants
            );
            let by_key = self.run(seed.wrapping_add(runs), &mut counts);
            runs += 1;
            let since = Instant::now();
            for ops in by_key.values() {
                counts.add_history(ops);
                if let Some(fault) = self.spec.fault(ops) {
                    panic!(
                        "{}, {:?}, {:?} clock: {fault}",
                        self.name, self.processes, self.time
                    );
                }
            }
            checking += since.elapsed();
        }
        println!(
            "{}, {:?}, {:?} clock, {:?}, in {:.1?} ({checking:.1?} of checking): {counts}",
            self.name,
            self.processes,
            self.time,
            self.spec,
            began.elapsed()
        );
        counts
    }

    /// Those of one run, by key.
    pub(crate) fn histories(&self, seed: u64) -> BTreeMap<u64, Vec<Op>> {
        self.run(seed, &mut Counts::default())
    }

    /// One manager, and some rounds on it.
    fn run(&self, seed: u64, counts: &mut Counts) -> BTreeMap<u64, Vec<Op>> {
        let manual = ManualClock::new();
        let builder = LockManager::builder();
        let (clock, builder): (Box<dyn Clock>, _) = match self.time {
            Time::Coarse => {
                let clock = CoarseClock::shared();
                (Box::new(clock.clone()), builder.clock(clock))
            }
            Time::System => {
                let tick = Duration::from_micros(100);
                let clock = SystemClock::new();
                (Box::new(clock.clone()), builder.clock(clock).tick(tick))
            }
            Time::Manual => {
                let clock = manual.clone();
                (Box::new(clock.clone()), builder.clock(clock).driver(false))
            }
        };
        let manager = builder.build().expect("these options are in order");
        let point = AtomicU64::new(1);
        let board: Vec<AtomicU64> = (0..self.menu.keys).map(|_| AtomicU64::new(0)).collect();
        let world = World {
            workload: self.clone(),
            manager: manager.clone(),
            clock,
            point,
            board,
            seed,
        };
        let over = AtomicBool::new(false);
        let ops = thread::scope(|scope| {
            if self.time == Time::Manual {
                scope.spawn(|| turn(&manager, &manual, seed, &over));
            }
            if self.resizes {
                scope.spawn(|| resize(&manager, &over));
            }
            let ops = match self.processes {
                As::Threads => on_threads(&world),
                As::Tasks => as_tasks(world),
            };
            over.store(true, Ordering::Release);
            ops
        });
        let stats = manager.stats();
        counts.add(Kind::Expired, stats.expired);
        counts.add(Kind::Waited, stats.waited);
        counts.add(Kind::GaveUp, stats.gave_up);
        let mut by_key: BTreeMap<u64, Vec<Op>> = BTreeMap::new();
        for op in ops {
            by_key.entry(op.key).or_default().push(op);
        }
        for ops in by_key.values_mut() {
            ops.sort_by_key(|op| op.call);
        }
        by_key
    }
}

/// What the processes of a run share, and own together if they are tasks.
struct World {
    workload: Workload,
    manager: LockManager,
    clock: Box<dyn Clock>,
    point: AtomicU64,
    board: Vec<AtomicU64>,
    seed: u64,
}

impl World {
    fn shared(&self) -> Shared<'_> {
        Shared {
            manager: &self.manager,
            clock: &*self.clock,
            point: &self.point,
            board: &self.board,
            pace: self.workload.pace(),
            menu: &self.workload.menu,
        }
    }

    fn seed_of(&self, process: usize) -> u64 {
        self.seed << 8 | process as u64
    }

    fn clear_board(&self) {
        for place in &self.board {
            place.store(0, Ordering::Release);
        }
    }
}

fn on_threads(world: &World) -> Vec<Op> {
    let together = Barrier::new(PROCESSES);
    let shared = world.shared();
    thread::scope(|scope| {
        let processes: Vec<_> = (0..PROCESSES)
            .map(|number| {
                let (together, shared) = (&together, &shared);
                scope.spawn(move || {
                    let mut process = Process::new(number, world.seed_of(number), shared);
                    for round in 0..ROUNDS {
                        if together.wait().is_leader() {
                            world.clear_board();
                        }
                        together.wait();
                        process.round_on_thread(round);
                    }
                    process.into_ops()
                })
            })
            .collect();
        let all = processes.into_iter().map(|it| it.join().expect("no panic"));
        all.flatten().collect()
    })
}

fn as_tasks(world: World) -> Vec<Op> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("a runtime");
    let world = Arc::new(world);
    let together = Arc::new(tokio::sync::Barrier::new(PROCESSES));
    runtime.block_on(async {
        let mut tasks = vec![];
        for number in 0..PROCESSES {
            let (world, together) = (Arc::clone(&world), Arc::clone(&together));
            tasks.push(tokio::spawn(async move {
                let shared = world.shared();
                let mut process = Process::new(number, world.seed_of(number), &shared);
                for round in 0..ROUNDS {
                    if together.wait().await.is_leader() {
                        world.clear_board();
                    }
                    together.wait().await;
                    process.round_as_task(round).await;
                }
                process.into_ops()
            }));
        }
        let mut all = vec![];
        for task in tasks {
            all.extend(task.await.expect("no panic"));
        }
        all
    })
}

/// Moves the clock on, by no tick, a part of one, or several, and the wheel after it, if not always.
fn turn(manager: &LockManager, clock: &ManualClock, seed: u64, over: &AtomicBool) {
    let mut rng = fastrand::Rng::with_seed(!seed);
    while !over.load(Ordering::Acquire) {
        clock.advance(Duration::from_nanos(rng.u64(0..2 * MILLI)));
        if rng.u8(0..4) == 0 {
            manager.advance();
        }
        thread::sleep(Duration::from_micros(rng.u64(1..60)));
    }
}

/// Has the table grow and shrink.
fn resize(manager: &LockManager, over: &AtomicBool) {
    while !over.load(Ordering::Acquire) {
        let ttl = Duration::from_secs(3_600);
        let leases: Vec<_> = (0..3_000_u64)
            .map(|key| manager.try_acquire((1 << 40) + key, 99, ttl))
            .collect();
        drop(leases);
        manager.advance();
        thread::sleep(Duration::from_millis(1));
    }
}

/// Of permits so many in the workloads that have them.
pub(crate) const PERMITS: Mode = Mode::Permit { of: 2 };
