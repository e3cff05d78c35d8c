//! `tenure stress`: hammer one manager from many threads, and check everything it says.
//!
//! ```text
//! args.rs       options and their limits
//! run.rs        the phases: fill, churn, drain; the monitor with its progress bar
//! worker.rs     one thread of the churn: whom it asks for what, and when it pauses or crashes
//! holding.rs    one lease in a worker's hands: every answer about it is checked here
//! key.rs        what all threads know about one key: the words that the checks compare
//! resource.rs   what the keys protect: numbers in memory, or rows of an SQLite database
//! fill.rs       the mass of long leases under the churn, for large `--keys`
//! tally.rs      what one worker counted and which violations it saw
//! report.rs     the figures at the end, as a table or as JSON
//! lateness.rs   whether expiries were acted on in time, second by second
//! schedule.rs   what the manager's driver waited for a processor
//! memory.rs     resident memory, where the system tells it
//! spike.rs      `--spike`: many leases out at once and back, and which memory comes back
//! ```
//!
//! And with `--mode`, where workers wait:
//!
//! ```text
//! modes/        the ways of holding a key: what a worker does in each, and how such a run goes
//! tasks.rs      where workers run: threads, or tasks of two runtimes
//! waiting.rs    one wait, with a waker that counts
//! watchdog.rs   who waits; cancels in storms, and finds those that were forgotten
//! queue.rs      tickets, by which the order of arrival is known
//! occupancy.rs  who was inside with whom
//! soak/         `--soak`: all modes for a long time; what is sampled, and what is made of it
//! ```
//!
//! Every check holds under real time, where any thread may be stopped between any two
//! instructions: a worker only claims what the readings that it took before and after a call imply.
//! The arguments stand beside the checks, in `key.rs`, `holding.rs`, `occupancy.rs`, `queue.rs` and
//! `watchdog.rs`.

mod args;
mod fill;
mod holding;
mod key;
mod lateness;
mod memory;
mod modes;
mod occupancy;
mod queue;
pub(crate) mod report;
mod resource;
mod run;
mod schedule;
mod soak;
mod spike;
mod tally;
mod tasks;
mod waiting;
mod watchdog;
mod worker;

use std::io::{self, Write};

pub(crate) use args::Args;

/// Runs the stress test and prints its report; `Ok(true)` if nothing was violated.
///
/// # Errors
///
/// Whatever writing to `out` returned, or what kept the manager or the resource from being built.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> io::Result<bool> {
    if args.soak {
        return soak::run(args, out);
    }
    if args.spike {
        return spike::run(args, out);
    }
    let report = match args.mode {
        None => run::run(args)?,
        Some(scenario) => modes::run(args, scenario, None)?,
    };
    if args.json {
        serde_json::to_writer(&mut *out, &report)?;
        writeln!(out)?;
    } else {
        report.print(out)?;
    }
    Ok(report.passed)
}
