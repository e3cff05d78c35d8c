//! `tenure` against hand-rolled lease tables.
//!
//! ```text
//! cargo bench --bench acquire                       criterion's figures, then the table of ratios
//! cargo bench --bench acquire -- summary            only the table of ratios
//! cargo bench --bench acquire -- summary pair_2t    only those of its rows
//! cargo bench --bench acquire -- summary =pair/1    only the row of that very name
//! cargo bench --bench acquire -- renew              criterion's figures of one group
//! cargo bench --bench acquire -- --test             everything once, small, unmeasured
//! ```
//!
//! The targets are on ratios, so these come from an interleaved measurement: see [`measure`].

// Counts become ratios here; none of them comes near 2^52.
#![allow(clippy::cast_precision_loss, clippy::cast_sign_loss)]

mod batches;
mod contenders;
mod measure;

use std::cell::OnceCell;
use std::env;
use std::hint::black_box;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use batches::Batches;
use contenders::{Condition, Field, LeaseTable, Setup, Task};
use criterion::{Criterion, SamplingMode, Throughput};
use measure::report::{self, Row, Target};
use measure::{Budget, Kind, Lane, Sample, Seat, Slice, interleave};

/// The TTL of the leases that are acquired and released.
const TTL: Duration = Duration::from_secs(10);

/// Slices short enough to slip between interruptions, and enough of them for a steady median.
const SLICE: Duration = Duration::from_millis(3);
const ROUNDS: u64 = 201;

/// A pseudo-random sequence of keys (Marsaglia's xorshift), spread without a division.
struct Keys {
    state: u64,
    first: u64,
    universe: u64,
}

impl Keys {
    /// The sequence of one seat, the same for every contender.
    fn new(seat: Seat<'_>, first: u64, universe: u64) -> Self {
        let seed = (seat.round << 8 | seat.thread) + 1;
        Self {
            state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15),
            first,
            universe,
        }
    }

    #[inline(always)]
    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.first + (((self.state >> 32) * self.universe) >> 32)
    }
}

#[inline(always)]
fn acquire_and_release<T: LeaseTable>(table: &T, key: u64, owner: u64, ttl: Duration) -> bool {
    match table.acquire(key, owner, ttl) {
        Ok(lease) => {
            black_box(T::token(&lease));
            table.release(lease)
        }
        Err(refusal) => {
            black_box(refusal);
            false
        }
    }
}

/// Acquire and release a random key of the universe.
#[derive(Clone)]
struct Pair {
    first: u64,
    universe: u64,
}

impl Task for Pair {
    fn run<T: LeaseTable>(&self, table: &T, seat: Seat<'_>) -> Sample {
        let (ttl, owner) = black_box((TTL, seat.thread + 10));
        let mut keys = Keys::new(seat, self.first, self.universe);
        seat.measure(move || acquire_and_release(table, keys.next(), owner, ttl))
    }
}

/// Acquire and release a key that was never seen before.
struct FirstTime {
    last: AtomicU64,
}

impl Clone for FirstTime {
    /// Each contender counts its own keys.
    fn clone(&self) -> Self {
        Self {
            last: AtomicU64::new(0),
        }
    }
}

impl Task for FirstTime {
    fn run<T: LeaseTable>(&self, table: &T, seat: Seat<'_>) -> Sample {
        let (ttl, owner) = black_box((TTL, seat.thread + 10));
        let mut key = self.last.load(Ordering::Relaxed);
        let sample = seat.measure(|| {
            key += 1;
            acquire_and_release(table, key, owner, ttl)
        });
        self.last.store(key, Ordering::Relaxed);
        sample
    }
}

/// Ask for a random key of those that another owner holds.
#[derive(Clone)]
struct FailedTry {
    held: u64,
}

impl Task for FailedTry {
    fn run<T: LeaseTable>(&self, table: &T, seat: Seat<'_>) -> Sample {
        let (ttl, owner) = black_box((TTL, seat.thread + 10));
        let mut keys = Keys::new(seat, 1, self.held);
        seat.measure(move || match table.acquire(keys.next(), owner, ttl) {
            Ok(lease) => {
                table.keep(lease);
                panic!("a held key was granted")
            }
            Err(refusal) => {
                black_box(refusal);
                false
            }
        })
    }
}

/// Renew one lease over and over: through the guard, or by key and token.
#[derive(Clone)]
struct Renew;

impl Task for Renew {
    fn run<T: LeaseTable>(&self, table: &T, seat: Seat<'_>) -> Sample {
        /// More than a tick, so that every renewal has a later deadline to write.
        const LATER: Duration = Duration::from_millis(2);
        let Ok(lease) = table.acquire(1, 10, TTL) else {
            panic!("the key to renew is held by another")
        };
        let mut ttl = black_box(TTL);
        let held = &lease;
        let sample = seat.measure(move || {
            ttl += LATER;
            table.renew(held, ttl)
        });
        assert!(table.release(lease), "the lease was lost under renewal");
        sample
    }
}

/// The yardstick for a renewal: one compare-and-swap of an uncontended word.
fn cas(seat: Seat<'_>) -> Sample {
    let word = AtomicU64::new(0);
    let word = black_box(&word);
    let mut seen = 0;
    seat.measure(move || {
        let swapped = word.compare_exchange(seen, seen + 1, Ordering::AcqRel, Ordering::Acquire);
        seen += 1;
        swapped.is_ok()
    })
}

/// The yardstick's name.
const ONE_CAS: &str = "one CAS";

/// What the command line asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Criterion only: a filter or another mode of it was asked for.
    Criterion,
    /// The table of ratios only.
    Summary,
    /// Both.
    All,
    /// Run everything once.
    Test,
}

/// Runs the cases that are asked for.
struct Session {
    mode: Mode,
    /// Rows of the summary must contain it, or be it after a `=`.
    only: String,
    criterion: Criterion,
    rows: Vec<Row>,
    /// What it took to set up the tables of each case.
    setups: Vec<(String, Vec<Setup>)>,
}

impl Session {
    fn from_args() -> Self {
        let args: Vec<String> = env::args().skip(1).collect();
        let flag = |name: &str| args.iter().any(|arg| arg == name);
        let mut words = args.iter().filter(|arg| !arg.starts_with('-'));
        let mode = if words.clone().any(|word| word == "summary") {
            Mode::Summary
        } else if flag("--list") || flag("--profile-time") {
            Mode::Criterion
        } else if flag("--test") || !flag("--bench") {
            Mode::Test
        } else if words.clone().next().is_some() {
            Mode::Criterion
        } else {
            Mode::All
        };
        let only = words.find(|word| *word != "summary").cloned();
        let mut criterion = Criterion::default()
            .sample_size(15)
            .warm_up_time(Duration::from_millis(200))
            .measurement_time(Duration::from_millis(600))
            .nresamples(5_000);
        if mode != Mode::Summary {
            criterion = criterion.configure_from_args();
        }
        Self {
            mode,
            only: only.unwrap_or_default(),
            criterion,
            rows: vec![],
            setups: vec![],
        }
    }

    /// That many keys, or fewer when nothing is measured.
    fn size(&self, keys: u64) -> u64 {
        if self.mode == Mode::Test {
            keys.min(2_000)
        } else {
            keys
        }
    }

    /// Measures one task on tables in that condition.
    fn case(
        &mut self,
        name: &str,
        threads: u64,
        target: Target,
        condition: &Condition,
        task: &impl Task,
    ) {
        let with_cas = matches!(target, Target::CasMultiple(_));
        let field = OnceCell::new();
        let lanes = || {
            let field: &Field = field.get_or_init(|| Field::new(condition));
            let mut lanes = field.lanes(task);
            if with_cas {
                lanes.push(Lane {
                    name: ONE_CAS,
                    kind: Kind::Cas,
                    run: Box::new(cas),
                });
            }
            lanes
        };
        let names = contenders::NAMES.iter().chain(with_cas.then_some(&ONE_CAS));
        self.measure(name, threads, target, names, lanes);
        let setups = field.get().map(|field| field.setups.clone());
        self.setups
            .extend(setups.map(|setups| (name.to_owned(), setups)));
    }

    /// Measures batches against single calls, with that many batches out at once.
    fn batches(&mut self, name: &str, target: Target, held: u64, out: usize) {
        let batches = OnceCell::new();
        let lanes = || batches.get_or_init(|| Batches::new(held, out)).lanes();
        let names = &batches::NAMES[..if out == 1 { 3 } else { 2 }];
        self.measure(name, 1, target, names.iter(), lanes);
    }

    /// Measures the lanes of those names, which are made when something is really measured: ten
    /// million entries take their time.
    fn measure<'lanes>(
        &mut self,
        name: &str,
        threads: u64,
        target: Target,
        names: impl Iterator<Item = &'static &'static str>,
        make: impl Fn() -> Vec<Lane<'lanes>>,
    ) {
        let wanted = match self.only.strip_prefix('=') {
            Some(only) => name == only,
            None => name.contains(&self.only),
        };
        if self.mode == Mode::Summary && !wanted {
            return;
        }
        let lanes = OnceCell::new();
        let lanes = || lanes.get_or_init(&make);
        if self.mode != Mode::Summary {
            let mut group = self.criterion.benchmark_group(name);
            group
                .throughput(Throughput::Elements(threads))
                .sampling_mode(SamplingMode::Flat);
            for (index, contender) in names.enumerate() {
                group.bench_function(*contender, |bencher| {
                    let lane = &lanes()[index];
                    bencher.iter_custom(|operations| {
                        Slice::run(lane, threads, 0, Budget::Operations(operations)).elapsed()
                    });
                });
            }
            group.finish();
        }
        if self.mode != Mode::Criterion {
            let (rounds, budget) = match self.mode {
                Mode::Test => (2, Budget::Operations(100)),
                _ => (ROUNDS, Budget::Time(SLICE)),
            };
            self.rows.push(Row {
                task: name.to_owned(),
                target,
                tracks: interleave(lanes(), threads, rounds, budget),
            });
        }
    }

    /// Prints the tables.
    fn finish(self) {
        if self.mode != Mode::Summary {
            self.criterion.final_summary();
        }
        if self.mode == Mode::Test {
            println!("{} rows of the table of ratios: Success", self.rows.len());
        } else if self.mode != Mode::Criterion {
            report::print(&self.rows);
            report::print_setups(&self.setups);
        }
    }
}

fn main() {
    const NONE: Range<u64> = 0..0;
    const ONE_THREAD: Target = Target::Faster {
        coarse: 1.3,
        instant: 2.2,
    };
    const TWO_THREADS: Target = Target::Faster {
        coarse: 1.5,
        instant: 2.5,
    };
    let mut session = Session::from_args();
    let [thousand, million] = [1_000, 1_000_000].map(|keys| session.size(keys));
    let ten_million = session.size(10_000_000);
    let idle = |keys| Condition {
        seen: 1..keys + 1,
        held: NONE,
    };
    let universe = |universe| Pair { first: 1, universe };
    for (name, keys) in [
        ("1", 1),
        ("1k", thousand),
        ("1M", million),
        ("10M", ten_million),
    ] {
        let name = format!("pair/{name}");
        session.case(&name, 1, ONE_THREAD, &idle(keys), &universe(keys));
    }
    for (name, keys) in [("1", 1), ("1k", thousand), ("1M", million)] {
        let name = format!("pair_2t_shared/{name}");
        session.case(&name, 2, TWO_THREADS, &idle(keys), &universe(keys));
    }
    let over_held = Condition {
        seen: million + 1..2 * million + 1,
        held: 1..million + 1,
    };
    let others = Pair {
        first: million + 1,
        universe: million,
    };
    let not_slower = Target::Faster {
        coarse: 1.0,
        instant: 1.0,
    };
    session.case("pair_over_1m_held", 1, not_slower, &over_held, &others);
    session.case("renew", 1, Target::CasMultiple(1.3), &idle(1), &Renew);
    let held = Condition {
        seen: NONE,
        held: 1..thousand + 1,
    };
    let failed = FailedTry { held: thousand };
    session.case("failed_try", 1, Target::None, &held, &failed);
    let never_seen = Condition {
        seen: NONE,
        held: NONE,
    };
    let first_time = FirstTime {
        last: AtomicU64::new(0),
    };
    session.case("first_time", 1, Target::None, &never_seen, &first_time);
    // An operation is a batch of 16 here: acquired and released at once, or after so many others that
    // the caches have forgotten it. In a small table there is nothing to gain, and guards to be moved.
    for (name, target, held, out) in [
        ("batch/1k_held", 0.5, thousand, 1),
        ("batch/1M_held", 1.5, million, 1),
        ("batch_64k_out/1M_held", 1.5, million, 4096),
    ] {
        session.batches(name, Target::Batch(target), held, out);
    }
    session.finish();
}
