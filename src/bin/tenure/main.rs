//! The `tenure` command line: watch fencing work (`demo`), or try to break it (`stress`,
//! `crash`).

mod cli;
mod crash;
mod demo;
mod stress;

use std::alloc::System;
use std::io;
use std::process::ExitCode;

use cap::Cap;

use self::cli::Command;

/// Counts what is allocated, which a soak looks at: the resident set has the allocator's habits in it.
#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

fn main() -> ExitCode {
    let command = cli::read(std::env::args_os()).unwrap_or_else(|error| error.exit());
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
