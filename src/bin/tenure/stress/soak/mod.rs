//! `--soak`: all modes for a long time, watched for what grows or becomes slower.
//!
//! ```text
//! tide.rs       plain leases by the thousand, on keys that are new or were away
//! pulse.rs      where latencies are recorded, by kind of operation
//! samples.rs    what is seen each second
//! trend.rs      whether a series rises
//! report.rs     the verdicts, as tables or as JSON
//! plot.rs       the samples, drawn
//! ```
//!
//! The workers are those of `--mode mixed`, on threads and on both runtimes. The tide is there for what
//! they don't do: the table grows and shrinks under it all the time, most of its keys are never seen
//! again, and each of its waves is a thread that comes and goes.

mod plot;
mod pulse;
mod report;
mod samples;
mod tide;
mod trend;

use std::io::{self, Write};

pub(super) use self::pulse::{Kind, Pulse};
use self::report::Report;
pub(super) use self::samples::Samples;
pub(super) use self::tide::Tide;
use super::args::{Args, Scenario};
use super::modes;

/// Runs a soak and prints its report; `Ok(true)` if nothing was violated and memory has not grown.
///
/// # Errors
///
/// Whatever writing to `out` or the plot returned, or what kept the manager or a runtime from being
/// built.
pub(super) fn run(args: &Args, out: &mut impl Write) -> io::Result<bool> {
    if let Some(path) = &args.plot {
        // Better now than in twenty minutes.
        std::fs::File::create(path).map_err(|error| in_plot(path, &error))?;
    }
    let mut samples = Samples::new(args.seconds());
    let run = modes::run(args, Scenario::Mixed, Some(&mut samples))?;
    let report = Report::new(run, samples);
    if let Some(path) = &args.plot {
        std::fs::write(path, plot::draw(&report)?).map_err(|error| in_plot(path, &error))?;
    }
    if args.json {
        serde_json::to_writer(&mut *out, &report)?;
        writeln!(out)?;
    } else {
        report.print(out)?;
    }
    Ok(report.passed())
}

fn in_plot(path: &std::path::Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("--plot {}: {error}", path.display()))
}
