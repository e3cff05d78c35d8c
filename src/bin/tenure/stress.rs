//! `tenure stress`: hammer one manager from many threads, and check everything it says.
//!
//! ```text
//! args.rs     options and their limits
//! run.rs      the phases: fill, churn, drain; the monitor with its progress bar
//! worker.rs   one thread of the churn: whom it asks for what, and when it pauses or crashes
//! holding.rs  one lease in a worker's hands: every answer about it is checked here
//! key.rs      what all threads know about one key: the words that the checks compare
//! fill.rs     the mass of long leases under the churn, for large `--keys`
//! tally.rs    what one worker counted and which violations it saw
//! report.rs   the figures at the end, as a table or as JSON
//! memory.rs   resident memory, where the system tells it
//! ```
//!
//! Every check holds under real time, where any thread may be stopped between any two
//! instructions: a worker only claims what the readings that it took before and after a call imply.
//! The arguments stand beside the checks, in `key.rs` and `holding.rs`.

mod args;
mod fill;
mod holding;
mod key;
mod memory;
mod report;
mod run;
mod tally;
mod worker;

use std::io::{self, Write};

pub(crate) use args::Args;

/// Runs the stress test and prints its report; `Ok(true)` if nothing was violated.
///
/// # Errors
///
/// Whatever writing to `out` returned, or what kept the manager from being built.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> io::Result<bool> {
    let report = run::run(args)?;
    if args.json {
        serde_json::to_writer(&mut *out, &report)?;
        writeln!(out)?;
    } else {
        report.print(out)?;
    }
    Ok(report.passed)
}
