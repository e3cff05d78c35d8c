//! The commands, and what is wrong with their options.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use crate::{crash, demo, stress};

/// Leases with fencing tokens: watch them work, or try to break them.
#[derive(Debug, Parser)]
#[command(name = "tenure", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(demo::Args),
    Stress(stress::Args),
    Crash(crash::Args),
    /// The process that `crash` kills.
    #[command(name = crash::CHILD, hide = true)]
    CrashChild(crash::Shard),
}

/// Reads arguments, of which the first is the name of the program. Without any, it is the demo.
///
/// # Errors
///
/// What to tell the user: what is wrong, or the help or version that was asked for.
pub(crate) fn read<A>(arguments: impl IntoIterator<Item = A>) -> Result<Command, clap::Error>
where
    A: Into<OsString> + Clone,
{
    let command = Cli::try_parse_from(arguments)?.command;
    let command = command.unwrap_or_else(|| Command::Demo(demo::Args::default()));
    let contradiction = match &command {
        Command::Demo(args) => args.contradiction(),
        Command::Stress(args) => args.contradiction(),
        Command::Crash(args) => args.contradiction(),
        Command::CrashChild(_) => None,
    };
    match contradiction {
        None => Ok(command),
        Some(wrong) => Err(Cli::command().error(ErrorKind::ValueValidation, wrong)),
    }
}
