//! The `tenure` command line: watch fencing work (`demo`), or try to break it (`stress`,
//! `crash`).

mod crash;
mod demo;
mod stress;

use std::alloc::System;
use std::io;
use std::process::ExitCode;

use cap::Cap;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

/// Counts what is allocated, which a soak looks at: the resident set has the allocator's habits in it.
#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

/// Leases with fencing tokens: watch them work, or try to break them.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Args),
    Stress(stress::Args),
    Crash(crash::Args),
    /// The process that `crash` kills.
    #[command(name = crash::CHILD, hide = true)]
    CrashChild(crash::Shard),
}

fn main() -> ExitCode {
    let command = Cli::parse()
        .command
        .unwrap_or_else(|| Command::Demo(demo::Args::default()));
    let contradiction = match &command {
        Command::Demo(args) => args.contradiction(),
        Command::Stress(args) => args.contradiction(),
        Command::Crash(args) => args.contradiction(),
        Command::CrashChild(_) => None,
    };
    if let Some(contradiction) = contradiction {
        Cli::command()
            .error(ErrorKind::ValueValidation, contradiction)
            .exit();
    }
    let told = match command {
        Command::Demo(args) => demo::run(&args, &mut anstream::stdout().lock()),
        Command::Stress(args) => stress::run(&args, &mut anstream::stdout().lock()),
        Command::Crash(args) => crash::run(&args, &mut anstream::stdout().lock()),
        Command::CrashChild(shard) => crash::run_child(&shard),
    };
    match told {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        // `tenure | head` is no fault of ours, but nobody saw the verdict either.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        Err(error) => {
            anstream::eprintln!("tenure: {error}");
            ExitCode::FAILURE
        }
    }
}
