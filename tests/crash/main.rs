//! Processes that are killed or stopped while they grant, and what tokens the next ones grant (I2). Real time.
//!
//! Each test is its own child: it starts this program again, for itself alone, and finds out by variables that it is the
//! child, and on which backend. What a child does and how its parent listens is what `tenure crash` does.
//!
//! With the features `etcd` and `postgres`, real servers are started, and killed too. Without, these tests are left out.
#![cfg(unix)]
#![allow(
    dead_code,
    reason = "the command line uses what is left of the modules that it shares"
)]

#[path = "../../src/bin/tenure/crash/child.rs"]
mod child;
#[cfg(any(feature = "etcd", feature = "postgres"))]
mod fight;
mod ledger;
#[path = "../../src/bin/tenure/crash/lives.rs"]
mod lives;
#[cfg(any(feature = "etcd", feature = "postgres"))]
mod remote;
#[cfg(any(feature = "etcd", feature = "postgres"))]
#[path = "../common/servers.rs"]
mod servers;

use std::env;
use std::error::Error;
use std::io::Write;
use std::num::NonZeroU64;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use lives::{End, Ledger};
use tenure::LockManager;
use tenure::reservation::{File, Memory};

const VARIABLE: &str = "TENURE_TEST_CHILD";
const PATIENCE: Duration = Duration::from_secs(30);
const KEYS: u64 = 8;
const THREADS: u64 = 4;

/// What a child is told: where its tokens come from.
#[derive(Clone, Debug)]
struct Shard {
    kind: &'static str,
    server: String,
    name: String,
}

impl Shard {
    fn file(path: &std::path::Path) -> Self {
        Self {
            kind: "file",
            server: String::new(),
            name: path.to_str().expect("a temporary path is UTF-8").to_owned(),
        }
    }

    /// This program, for the test of that name, as a child.
    fn command(&self, test: &str) -> Command {
        let mut command = Command::new(env::current_exe().expect("this program has a path"));
        command
            .args([test, "--exact", "--nocapture"])
            .env(VARIABLE, self.kind)
            .env("TENURE_TEST_CHILD_SERVER", &self.server)
            .env("TENURE_TEST_CHILD_SHARD", &self.name);
        command
    }
}

/// The manager of this process, if it is a child. Builds it, without waiting for the authority.
fn as_child() -> Option<LockManager> {
    let kind = env::var(VARIABLE).ok()?;
    // The test harness has not ended its line.
    std::io::stdout().write_all(b"\n").unwrap();
    let started = Instant::now();
    loop {
        match manager(&kind) {
            Ok(locks) => return Some(locks),
            // Its server may have been killed, or be slow.
            Err(error) if kind == "file" || started.elapsed() > PATIENCE => panic!("{error}"),
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn manager(kind: &str) -> Result<LockManager, Box<dyn Error>> {
    let name = env::var("TENURE_TEST_CHILD_SHARD")?;
    let server = env::var("TENURE_TEST_CHILD_SERVER")?;
    let builder = LockManager::builder()
        .block_size(NonZeroU64::new(50).unwrap())
        // Deadlines are said to another process.
        .clock(tenure::SystemClock::new());
    let builder = match kind {
        "file" => builder.reservation(File::open(&name)?),
        "memory" => builder.reservation(Memory::new()),
        #[cfg(feature = "etcd")]
        "etcd" => {
            let etcd = tenure::reservation::Etcd::options([server], name);
            builder.reservation(etcd.term(remote::TERM).connect()?)
        }
        #[cfg(feature = "postgres")]
        "postgres" => {
            let postgres = tenure::reservation::Postgres::options(server.parse()?, name);
            builder.reservation(postgres.term(remote::TERM).connect()?)
        }
        kind => panic!("no {kind} on {server:?}"),
    };
    Ok(builder.build()?)
}

/// Grants until it is killed, if it is a child.
fn grants_as_child() -> bool {
    let Some(locks) = as_child() else {
        return false;
    };
    child::begin(&locks).unwrap();
    child::grant(&locks, KEYS, THREADS, 0).unwrap();
    true
}

/// Moments that differ in each round, and are the same in each run.
fn moment(round: u32, longest: Duration) -> Duration {
    longest * (round * 61 % 100) / 100
}

/// Kills it so many times, sometimes before its first grant, and lets the last one end.
fn kill_again_and_again(shard: &Shard, test: &str, rounds: u32) -> Ledger {
    let mut ledger = Ledger::default();
    let longest = Duration::from_millis(30);
    for round in 0..rounds {
        let end = if round % 8 == 5 {
            End::KillAfterStart(moment(round, longest / 4))
        } else {
            End::KillAfterGrant(moment(round, longest))
        };
        ledger
            .live(&mut shard.command(test), end, PATIENCE)
            .unwrap();
    }
    let end = End::Ask(longest);
    ledger
        .live(&mut shard.command(test), end, PATIENCE)
        .unwrap();
    assert_eq!(ledger.lives, u64::from(rounds) + 1);
    assert!(ledger.grants > u64::from(rounds), "{ledger:?}");
    ledger
}

#[test]
fn a_manager_on_a_file_that_is_killed_at_any_moment_repeats_no_token() {
    if grants_as_child() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let shard = Shard::file(&directory.path().join("tokens"));
    let test = "a_manager_on_a_file_that_is_killed_at_any_moment_repeats_no_token";
    let ledger = kill_again_and_again(&shard, test, 30);
    assert!(ledger.is_clean(), "{ledger:?}");
    assert_eq!(ledger.unbegun_lives, 0, "{ledger:?}");
    // At most what is left of one block, and a whole one that was reserved before that was used up.
    let most = ledger.skipped.iter().max().unwrap();
    assert!(*most <= 2 * 50, "{ledger:?}");
}

#[test]
fn tokens_that_begin_anew_with_the_process_are_noticed() {
    if grants_as_child() {
        return;
    }
    let shard = Shard {
        kind: "memory",
        server: String::new(),
        name: String::new(),
    };
    let test = "tokens_that_begin_anew_with_the_process_are_noticed";
    let ledger = kill_again_and_again(&shard, test, 3);
    assert!(ledger.token_regressions > 0, "{ledger:?}");
    assert_eq!(ledger.unexpected_errors, 0, "{ledger:?}");
}
