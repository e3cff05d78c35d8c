//! The figures at the end, as a table or as JSON.

use std::io::{self, Write};
use std::time::Duration;

use comfy_table::Table;
use serde::Serialize;

use super::args::{Args, Kind};
use super::lives::Ledger;
use crate::stress::report::{BAD, GOOD, millis, ratio, table};

/// Everything that `--json` prints.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    reservation: Kind,
    rounds: u64,
    seed: u64,
    block: u64,
    keys: u64,
    crowd: u64,
    threads: u64,

    /// Kills after which the next process was started.
    restarts: u64,
    /// Processes that were killed before their first grant.
    kills_before_a_grant: u64,
    grants: u64,
    /// Lines that a kill has cut off, which are not looked at.
    torn_lines: u64,
    tokens_skipped_mean: f64,
    tokens_skipped_max: u64,
    first_grant_ms_median: f64,
    first_grant_ms_max: f64,
    seconds: f64,

    token_regressions: u64,
    unexpected_errors: u64,
    unbegun_lives: u64,
    /// The most of the crowd that were out at once.
    crowd_taken: u64,
    fewest_buckets: u64,
    most_buckets: u64,
    violations: Vec<String>,
    pub(super) passed: bool,
}

impl Report {
    pub(super) fn new(args: &Args, seed: u64, mut ledger: Ledger, took: Duration) -> Self {
        ledger.first_grants.sort_unstable();
        let first_grants = &ledger.first_grants;
        let median = first_grants.get(first_grants.len() / 2);
        let buckets = ledger.buckets.unwrap_or_default();
        let skipped: u64 = ledger.skipped.iter().sum();
        Self {
            reservation: args.shard.reservation,
            rounds: args.rounds,
            seed,
            block: args.shard.block.get(),
            keys: args.shard.keys,
            crowd: args.shard.crowd,
            threads: args.shard.threads,
            restarts: ledger.lives.saturating_sub(1),
            kills_before_a_grant: ledger.barren_lives,
            grants: ledger.grants,
            torn_lines: ledger.torn_lines,
            tokens_skipped_mean: ratio(skipped, ledger.skipped.len() as u64),
            tokens_skipped_max: ledger.skipped.iter().max().copied().unwrap_or(0),
            first_grant_ms_median: millis(median.copied().unwrap_or_default()),
            first_grant_ms_max: millis(first_grants.last().copied().unwrap_or_default()),
            seconds: took.as_secs_f64(),
            token_regressions: ledger.token_regressions,
            unexpected_errors: ledger.unexpected_errors,
            unbegun_lives: ledger.unbegun_lives,
            crowd_taken: ledger.crowd,
            fewest_buckets: buckets.0,
            most_buckets: buckets.1,
            // A run without a grant shows nothing, and one whose crowd was never there, nothing of growth.
            passed: ledger.is_clean()
                && ledger.unbegun_lives == 0
                && ledger.grants > 0
                && (args.shard.crowd == 0 || ledger.crowd > 0),
            violations: ledger.details,
        }
    }

    /// Prints the figures for a person.
    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(
            out,
            "{}: {} threads, {} keys, blocks of {}, seed {}, {:.1} s",
            format!("{:?}", self.reservation).to_lowercase(),
            self.threads,
            self.keys,
            self.block,
            self.seed,
            self.seconds,
        )?;
        writeln!(out, "{}", self.work())?;
        let mut checks = table(&["what must not happen", ""]);
        checks.add_row([
            "a token that did not rise",
            &self.token_regressions.to_string(),
        ]);
        checks.add_row(["an unexpected error", &self.unexpected_errors.to_string()]);
        checks.add_row([
            "a life that did not say its block",
            &self.unbegun_lives.to_string(),
        ]);
        writeln!(out, "{checks}")?;
        for violation in &self.violations {
            writeln!(out, "{violation}")?;
        }
        match self.passed {
            true => writeln!(out, "{GOOD}Nothing was violated.{GOOD:#}"),
            false if self.grants == 0 || self.crowd > 0 && self.crowd_taken == 0 => {
                writeln!(out, "{BAD}Nothing was granted: this shows nothing.{BAD:#}")
            }
            false => writeln!(out, "{BAD}VIOLATED: see above.{BAD:#}"),
        }
    }

    fn work(&self) -> Table {
        let mut table = table(&["what happened", ""]);
        let mut row = |name: &str, value: String| {
            table.add_row([name.to_owned(), value]);
        };
        row("killed, and started again", self.restarts.to_string());
        row(
            "  killed before a grant",
            self.kills_before_a_grant.to_string(),
        );
        row("leases granted", self.grants.to_string());
        row("lines cut off", self.torn_lines.to_string());
        row("leases of a crowd, at most", self.crowd_taken.to_string());
        row(
            "buckets of the table",
            format!("{} to {}", self.fewest_buckets, self.most_buckets),
        );
        row(
            "tokens skipped, mean",
            format!("{:.1}", self.tokens_skipped_mean),
        );
        row("  at most", self.tokens_skipped_max.to_string());
        row(
            "start to first grant, median",
            format!("{:.2} ms", self.first_grant_ms_median),
        );
        row("  at most", format!("{:.2} ms", self.first_grant_ms_max));
        table
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn report(ledger: Ledger) -> Report {
        let line = Line::parse_from(["crash"]);
        Report::new(&line.args, 1, ledger, Duration::from_secs(1))
    }

    #[test]
    fn a_regression_an_error_or_no_grant_at_all_fails_the_run() {
        let granted = || {
            let mut ledger = Ledger::default();
            (ledger.grants, ledger.crowd) = (1, 1);
            ledger
        };
        assert!(report(granted()).passed);
        let mut ledger = granted();
        ledger.token_regressions = 1;
        assert!(!report(ledger).passed);
        let mut ledger = granted();
        ledger.unexpected_errors = 1;
        assert!(!report(ledger).passed);
        let mut ledger = granted();
        ledger.unbegun_lives = 1;
        assert!(!report(ledger).passed);
        let mut ledger = granted();
        ledger.crowd = 0;
        assert!(!report(ledger).passed);
        assert!(!report(Ledger::default()).passed);
    }

    #[test]
    fn figures_are_of_all_lives() {
        let mut ledger = Ledger::default();
        ledger.lives = 4;
        ledger.grants = 9;
        ledger.skipped = vec![10, 20, 60];
        ledger.first_grants = [5, 1, 3].map(Duration::from_millis).to_vec();
        let report = report(ledger);
        assert_eq!(report.restarts, 3);
        assert_eq!(report.tokens_skipped_max, 60);
        assert!((report.tokens_skipped_mean - 30.0).abs() < f64::EPSILON);
        assert!((report.first_grant_ms_median - 3.0).abs() < f64::EPSILON);
        assert!((report.first_grant_ms_max - 5.0).abs() < f64::EPSILON);
    }
}
