//! The `tenure` command line: watch fencing work (`demo`), or try to break it (`stress`,
//! `crash`).

mod crash;
mod demo;
mod stress;

use std::io;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

/// Leases with fencing tokens: watch them work, or try to break them.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Tell the story of the paused holder, live, without fencing and with it (the default).
    ///
    /// Two threads share a bank account under a lease. One pauses for longer than its lease and
    /// then writes what it computed before. The story runs in real time and takes about two
    /// seconds. Exit code 1 if it did not come out as it should.
    Demo,
    Stress(stress::Args),
    Crash(crash::Args),
    /// The process that `crash` kills.
    #[command(name = crash::CHILD, hide = true)]
    CrashChild(crash::Shard),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let contradiction = match &cli.command {
        Some(Command::Stress(args)) => args.contradiction(),
        Some(Command::Crash(args)) => args.contradiction(),
        _ => None,
    };
    if let Some(contradiction) = contradiction {
        Cli::command()
            .error(ErrorKind::ValueValidation, contradiction)
            .exit();
    }
    let told = match cli.command.unwrap_or(Command::Demo) {
        Command::Demo => demo::run(&mut anstream::stdout().lock()),
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
