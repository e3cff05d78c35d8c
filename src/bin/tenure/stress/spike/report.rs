//! What a spike has shown, stage by stage, and whether it is as it should be.

use std::io::{self, Write};

use comfy_table::Table;
use serde::Serialize;

use crate::stress::args::{Args, SPIKE_REST};
use crate::stress::report::{BAD, GOOD, align_right, ratio, table};

/// Free cells that a thread keeps at most, for which the table is sized as well.
const KEPT: u32 = 64;
/// Buckets for each cell in use, at most: half as many again are kept for a while.
const BUCKETS_PER_CELL: u32 = 32;
/// By how much what is allocated may differ from what is expected: so many bytes, and this part of it.
const NOISE: u64 = 2 << 20;
const NOISE_PART: u64 = 50;

/// What memory is like at one stage.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Stage {
    #[serde(rename = "stage")]
    pub(super) name: &'static str,
    /// How long it took to get there, until the table had its size.
    pub(super) seconds: f64,
    pub(super) leases: u64,
    pub(super) resident_bytes: Option<u64>,
    pub(super) heap_bytes: u64,
    pub(super) manager_bytes: u64,
    pub(super) buckets: u64,
    pub(super) cells: u64,
    pub(super) wheel_bytes: u64,
    pub(super) names: u64,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    spike: bool,
    threads: u32,
    keys: u32,
    introspection: bool,
    stages: Vec<Stage>,
    cell_bytes_kept: u64,
    /// Of what is resident in the end beyond the start, what is neither a cell nor a bucket.
    other_bytes: Option<u64>,
    violations: Vec<String>,
    pub(super) passed: bool,
}

/// Compares the stages with what they should be.
fn judge(args: &Args, stages: &[Stage], violations: &mut Vec<String>) {
    let [
        start,
        first,
        after_first,
        trimmed_first,
        second,
        after_second,
        trimmed,
    ] = stages
    else {
        violations.push("a stage is missing".to_owned());
        return;
    };
    let mut check = |holds: bool, stage: &Stage, what: String| {
        if !holds {
            violations.push(format!("{}: {what}", stage.name));
        }
    };
    let low = [after_first, trimmed_first, after_second, trimmed];
    let high = [first, second];
    let out = high.map(|stage| (stage, args.keys()));
    let out = out.into_iter().chain(low.map(|stage| (stage, SPIKE_REST)));
    for (stage, leases) in out {
        let out = stage.leases;
        let right = out == u64::from(leases);
        check(right, stage, format!("{out} leases are out, not {leases}"));
    }
    // The driver, and who reads memory, have cells as well.
    let kept = KEPT * (args.threads + 2);
    let most = u64::from((SPIKE_REST + kept) * BUCKETS_PER_CELL);
    for stage in low {
        let buckets = stage.buckets;
        let what = format!("{buckets} buckets are left, of {most} at most");
        check(buckets <= most, stage, what);
    }
    // What threads have in hand may be in other hands the next time.
    let most = first.cells + u64::from(kept) + first.cells / NOISE_PART;
    let what = format!(
        "{} cells are used, {} the first time",
        second.cells, first.cells
    );
    check(second.cells <= most, second, what);
    // Memory for cells is taken in chunks that double.
    let cells = 64 * trimmed.cells.next_power_of_two();
    let expected = start.heap_bytes + cells + 8 * trimmed.buckets;
    for (stage, expected) in [
        (trimmed_first, expected),
        (trimmed, expected),
        (trimmed, trimmed_first.heap_bytes),
    ] {
        let most = expected + NOISE + expected / NOISE_PART;
        let what = format!(
            "{} bytes are allocated, of {most} at most",
            stage.heap_bytes
        );
        check(stage.heap_bytes <= most, stage, what);
    }
}

impl Report {
    pub(super) fn new(args: &Args, stages: Vec<Stage>, mut violations: Vec<String>) -> Self {
        judge(args, &stages, &mut violations);
        let (start, last) = (&stages[0], &stages[stages.len() - 1]);
        let gained = last.resident_bytes.zip(start.resident_bytes);
        let gained = gained.map(|(last, start)| last.saturating_sub(start));
        let kept = 64 * last.cells;
        Self {
            spike: true,
            threads: args.threads,
            keys: args.keys(),
            introspection: args.introspection,
            cell_bytes_kept: kept,
            other_bytes: gained.map(|gained| gained.saturating_sub(kept + 8 * last.buckets)),
            passed: violations.is_empty(),
            stages,
            violations,
        }
    }

    /// Prints everything for a person.
    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let names = if self.introspection {
            ", introspection"
        } else {
            ""
        };
        writeln!(
            out,
            "spike: {} threads, {} keys, {SPIKE_REST} of them held throughout{names}",
            self.threads, self.keys
        )?;
        writeln!(out, "{}", self.table())?;
        writeln!(
            out,
            "Buckets go, and cells stay: {} MiB of them, for the next spike. They keep their addresses, \
             since any thread may look at any of them at any time.",
            mebibytes(self.cell_bytes_kept)
        )?;
        if let Some(other) = self.other_bytes {
            writeln!(
                out,
                "What else is resident beyond the start: {} MiB, which the allocator has not given back.",
                mebibytes(other)
            )?;
        }
        for violation in &self.violations {
            writeln!(out, "{violation}")?;
        }
        let (style, text) = if self.passed {
            (GOOD, "Nothing was violated.")
        } else {
            (BAD, "VIOLATED: see above.")
        };
        writeln!(out, "{style}{text}{style:#}")
    }

    fn table(&self) -> Table {
        let mut table = table(&[
            "stage",
            "s",
            "leases",
            "resident MiB",
            "heap MiB",
            "manager MiB",
            "buckets",
            "cells",
            "wheel MiB",
            "names",
        ]);
        for stage in &self.stages {
            let resident = stage.resident_bytes.map_or("?".to_owned(), mebibytes);
            table.add_row([
                stage.name.to_owned(),
                format!("{:.1}", stage.seconds),
                stage.leases.to_string(),
                resident,
                mebibytes(stage.heap_bytes),
                mebibytes(stage.manager_bytes),
                stage.buckets.to_string(),
                stage.cells.to_string(),
                mebibytes(stage.wheel_bytes),
                stage.names.to_string(),
            ]);
        }
        align_right(&mut table, 1..10);
        table
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.2}", ratio(bytes, 1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn stage(leases: u32, buckets: u64) -> Stage {
        Stage {
            name: "",
            seconds: 0.0,
            leases: leases.into(),
            resident_bytes: Some(10 << 20),
            heap_bytes: 10 << 20,
            manager_bytes: 0,
            buckets,
            cells: 20_100,
            wheel_bytes: 0,
            names: 0,
        }
    }

    /// A run in which all is as it should be, but for what `change` does to a stage.
    fn violations(at: usize, change: impl FnOnce(&mut Stage)) -> usize {
        let args = Cli::parse_from(["", "--spike", "--keys", "20000"]).args;
        let (up, down) = (stage(20_000, 65_536), stage(SPIKE_REST, 16_384));
        let mut stages = [&down, &up, &down, &down, &up, &down, &down].map(Clone::clone);
        change(&mut stages[at]);
        let mut violations = vec![];
        judge(&args, &stages, &mut violations);
        violations.len()
    }

    #[test]
    fn whatever_is_not_as_it_should_be_is_told() {
        assert_eq!(violations(0, |_| ()), 0);
        assert_eq!(violations(1, |up| up.leases -= 1), 1);
        assert_eq!(violations(5, |down| down.leases += 1), 1);
        assert_eq!(violations(2, |down| down.buckets = 65_536), 1);
        assert_eq!(violations(4, |up| up.cells = 40_000), 1);
        assert_eq!(violations(3, |trimmed| trimmed.heap_bytes += 8 << 20), 1);
        assert_eq!(violations(6, |trimmed| trimmed.heap_bytes += 8 << 20), 2);
        assert_eq!(violations(5, |idle| idle.heap_bytes += 8 << 20), 0);
    }
}
