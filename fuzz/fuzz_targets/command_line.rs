//! Any arguments of the program: they are read, and then they are within their limits, or the user is told
//! what is wrong. Nothing is run.
//!
//! `cargo +nightly fuzz run command_line -- -max_total_time=60 -dict=fuzz/dictionaries/command_line`

#![no_main]

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use clap::error::ErrorKind;
use libfuzzer_sys::fuzz_target;

#[path = "../../src/bin/tenure/cli.rs"]
mod cli;
#[allow(dead_code, reason = "nothing is run")]
#[path = "../../src/bin/tenure/crash/args.rs"]
mod crash;
#[allow(dead_code, reason = "nothing is run")]
#[path = "../../src/bin/tenure/demo/args.rs"]
mod demo;
#[allow(dead_code, reason = "nothing is run")]
#[path = "../../src/bin/tenure/stress/args.rs"]
mod stress;

// One argument a line, of any bytes.
fuzz_target!(|data: &[u8]| {
    let lines = data.split(|&byte| byte == b'\n').filter(|_| !data.is_empty());
    let arguments = lines.map(|line| OsString::from_vec(line.to_vec()));
    let program = OsString::from("tenure");
    match cli::read([program].into_iter().chain(arguments)) {
        Ok(command) => check(&command),
        Err(error) => {
            let told = error.render().to_string();
            assert!(!told.trim().is_empty(), "nothing is said");
            let asked = matches!(
                error.kind(),
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
            );
            assert_eq!(error.exit_code(), if asked { 0 } else { 2 }, "{told}");
        }
    }
});

/// What the commands rely on.
fn check(command: &cli::Command) {
    match command {
        cli::Command::Demo(args) => assert_eq!(args.contradiction(), None),
        cli::Command::Stress(args) => {
            assert!((1..=1024).contains(&args.threads));
            assert!((1..=100_000_000).contains(&args.keys()));
            assert!((1..=86_400).contains(&args.seconds()));
            assert!(args.ttl >= stress::TICK && args.ttl <= Duration::from_secs(60));
            assert!(args.pause() <= Duration::from_secs(3600));
            assert!(args.waiting_workers() <= 8 * 1024);
            assert!((1..=stress::CHECKED_KEYS).contains(&args.checked_keys()));
            assert!(args.scenario().is_none() || !args.fills() && !args.unfenced);
            assert!(args.mode.is_some() || !args.asynchronous);
            assert!(!args.spike || args.keys() >= 10 * stress::SPIKE_REST);
        }
        cli::Command::Crash(args) => {
            assert!((1..=1_000_000).contains(&args.rounds));
            assert!(args.seconds.is_none_or(|most| (1..=86_400).contains(&most)));
            check_shard(&args.shard);
            assert_eq!(args.shard.reservation.needs_server(), args.shard.server.is_some());
        }
        cli::Command::CrashChild(shard) => check_shard(shard),
    }
}

fn check_shard(shard: &crash::Shard) {
    assert!((1..=1_000_000).contains(&shard.keys));
    assert!((1..=1024).contains(&shard.threads));
    assert!(shard.reservation.term() <= Duration::from_secs(2));
}
