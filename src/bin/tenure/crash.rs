//! `tenure crash`: kill a granting process again and again, and check every token that it ever granted.
//!
//! ```text
//! args.rs       options and their limits
//! lives.rs      the parent: starts, kills, listens, and checks every line
//! child.rs      the process that is killed
//! backend.rs    its manager
//! report.rs     the figures at the end, as a table or as JSON
//! ```

mod args;
mod backend;
mod child;
mod lives;
mod report;

use std::env;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use self::args::Kind;
pub(crate) use self::args::{Args, CHILD, Shard};
use self::lives::{End, Ledger};
use self::report::Report;

/// The longest that a process lives after its first grant.
const LONGEST_LIFE: Duration = Duration::from_millis(30);
/// One in so many is killed before it.
const EARLY: u32 = 8;
/// How long it may take to the first grant, besides a term.
const PATIENCE: Duration = Duration::from_secs(20);

/// Kills and restarts, and prints a report; `Ok(true)` if nothing was violated.
///
/// # Errors
///
/// Whatever writing to `out` returned, or what kept a child from being started.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> io::Result<bool> {
    let seed = args.seed.unwrap_or_else(rand::random);
    let directory = Directory::new(seed, args)?;
    let report = lives(args, seed, &directory.shard())?;
    if args.json {
        serde_json::to_writer(&mut *out, &report)?;
        writeln!(out)?;
    } else {
        report.print(out)?;
    }
    Ok(report.passed)
}

fn lives(args: &Args, seed: u64, shard: &Path) -> io::Result<Report> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut ledger = Ledger::default();
    let program = env::current_exe()?;
    let patience = PATIENCE + 2 * args.shard.reservation.term();
    let started = Instant::now();
    let limit = args.seconds.map(Duration::from_secs);
    for _ in 0..args.rounds {
        let after = random.random_range(Duration::ZERO..LONGEST_LIFE);
        let end = if random.random_ratio(1, EARLY) {
            End::KillAfterStart(after / 4)
        } else {
            End::KillAfterGrant(after)
        };
        ledger.live(&mut child_command(&program, args, shard), end, patience)?;
        if !ledger.is_clean() || limit.is_some_and(|limit| started.elapsed() >= limit) {
            break;
        }
    }
    let end = End::Ask(LONGEST_LIFE);
    ledger.live(&mut child_command(&program, args, shard), end, patience)?;
    Ok(Report::new(args, seed, ledger, started.elapsed()))
}

fn child_command(program: &Path, args: &Args, shard: &Path) -> Command {
    let kind = args.shard.reservation.to_possible_value();
    let mut command = Command::new(program);
    command.arg(CHILD).arg("--shard").arg(shard);
    if let Some(kind) = kind {
        command.args(["--reservation", kind.get_name()]);
    }
    if let Some(server) = &args.shard.server {
        command.args(["--server", server]);
    }
    for (name, value) in [
        ("--block", args.shard.block.get()),
        ("--keys", args.shard.keys),
        ("--crowd", args.shard.crowd),
        ("--threads", args.shard.threads),
    ] {
        command.arg(name).arg(value.to_string());
    }
    command
}

/// The child: grants until it is killed, or its input ends.
///
/// # Errors
///
/// The reservation could not be opened, or what [`child::grant`] returns.
pub(crate) fn run_child(shard: &Shard) -> io::Result<bool> {
    let locks = backend::manager(shard).map_err(|error| io::Error::other(error.to_string()))?;
    child::begin(&locks)?;
    child::grant(&locks, shard.keys, shard.threads, shard.crowd)?;
    Ok(true)
}

/// Where the file of this run is, if it was not named; removed at the end.
#[derive(Debug)]
struct Directory {
    shard: PathBuf,
    own: Option<PathBuf>,
}

impl Directory {
    fn new(seed: u64, args: &Args) -> io::Result<Self> {
        let name = format!("tenure-crash-{}-{seed}", std::process::id());
        Ok(match (&args.shard.name, args.shard.reservation) {
            (Some(shard), _) => Self {
                shard: shard.clone(),
                own: None,
            },
            (None, Kind::File) => {
                let own = env::temp_dir().join(name);
                std::fs::create_dir(&own)?;
                Self {
                    shard: own.join("tokens"),
                    own: Some(own),
                }
            }
            (None, _) => Self {
                shard: name.into(),
                own: None,
            },
        })
    }

    fn shard(&self) -> PathBuf {
        self.shard.clone()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Some(own) = &self.own {
            let _ = std::fs::remove_dir_all(own);
        }
    }
}
