//! The figures at the end, as a table or as JSON.

use std::io::{self, Write};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::args::{Args, Kind, Scenario};
use super::lateness::Late;
use super::memory::Memory;
use super::tally::Tally;

/// What was measured beside the workers' own counts.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) seed: u64,
    pub(super) fill: Duration,
    pub(super) churn: Duration,
    pub(super) grants_per_s: u64,
    /// As the manager counts them.
    pub(super) granted: u64,
    pub(super) expiries: u64,
    /// As the manager counts them: a revocation and the holder's own release at the same moment may
    /// both succeed, and end the lease once.
    pub(super) revocations: u64,
    pub(super) lost_writes: u64,
    pub(super) leaked_leases: u64,
    pub(super) max_expiry_lag: Duration,
    /// The most that a sleep of one tick was late while the workers ran, or that the manager's driver waited
    /// for a processor.
    pub(super) timer_lag: Duration,
    /// An expiry that was later than that explains.
    pub(super) late: Option<Late>,
    pub(super) peak_leases: u64,
    pub(super) manager_bytes: u64,
    pub(super) memory_before: Option<Memory>,
    pub(super) memory_at_rest: Option<Memory>,
    pub(super) memory_at_end: Option<Memory>,
}

/// Everything that `--json` prints.
#[expect(
    clippy::struct_excessive_bools,
    reason = "options and verdicts, as whoever reads the JSON looks for them"
)]
#[derive(Debug, Serialize)]
pub(super) struct Report {
    mode: Option<Scenario>,
    #[serde(rename = "async")]
    asynchronous: bool,
    threads: u32,
    keys: u32,
    seconds: u64,
    seed: u64,
    ttl_ms: f64,
    pause_ms: f64,
    resource: Kind,
    unfenced: bool,

    grants: u64,
    refusals: u64,
    renewals: u64,
    releases: u64,
    late_releases: u64,
    expiries: u64,
    revocations: u64,
    pauses: u64,
    crashes: u64,
    cancelled: u64,
    waited_grants: u64,
    accompanied_leases: u64,
    sections: u64,
    lapsed_sections: u64,
    accepted_writes: u64,
    stale_writes_rejected: u64,

    lost_writes: u64,
    exclusion_violations: u64,
    token_regressions: u64,
    early_expiries: u64,
    resurrections: u64,
    fifo_inversions: u64,
    lost_wakeups: u64,
    extra_wakes: u64,
    wakes_per_grant: f64,
    ghosts: u64,
    unexpected_errors: u64,
    unaccounted_leases: u64,
    leaked_leases: u64,
    late_expiries: bool,
    max_expiry_lag_ms: f64,
    timer_lag_ms: f64,
    clock_lag_ms: f64,

    grants_per_s: u64,
    p50_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    fill_s: f64,
    churn_s: f64,

    peak_leases: u64,
    manager_bytes: Option<u64>,
    rss_bytes_per_lease_at_rest: Option<f64>,
    rss_bytes_per_lease_peak: Option<f64>,

    pub(super) violations: Vec<String>,
    pub(super) passed: bool,
}

impl Report {
    pub(super) fn new(args: &Args, mut tally: Tally, measured: &Measured) -> Self {
        let unaccounted_leases = unaccounted(&tally, measured);
        if let Some(Late { expiry, timers }) = measured.late {
            tally.details.push(format!(
                "LateExpiry: acted on {expiry:?} late, while sleeps and the driver were at most {timers:?} late"
            ));
        }
        if unaccounted_leases > 0 {
            tally.details.push(format!(
                "Unaccounted: {} granted, {} expired and {} revoked by the manager's count; workers saw {} grants \
                 and {} releases, and at most {} grants and {} ends have escaped them",
                measured.granted,
                measured.expiries,
                measured.revocations,
                tally.grants,
                tally.releases,
                tally.unseen,
                tally.closed
            ));
        }
        let writes_as_expected = args.unfenced == (measured.lost_writes > 0);
        // Where nothing was granted, nothing was shown.
        let passed = tally.violations() == 0
            && tally.grants > 0
            && writes_as_expected
            && unaccounted_leases == 0
            && measured.leaked_leases == 0
            && measured.late.is_none();
        let per_lease = |bytes: Option<u64>| {
            let bytes = bytes?.saturating_sub(measured.memory_before?.resident);
            Some(ratio(bytes, measured.peak_leases))
        };
        Self {
            mode: args.scenario(),
            asynchronous: args.asynchronous || args.soak,
            threads: args.threads,
            keys: args.keys(),
            seconds: args.seconds(),
            seed: measured.seed,
            ttl_ms: millis(args.ttl),
            pause_ms: millis(args.pause()),
            resource: args.resource,
            unfenced: args.unfenced,
            grants: tally.grants,
            refusals: tally.refusals,
            renewals: tally.renewals,
            releases: tally.releases,
            late_releases: tally.late_releases,
            expiries: measured.expiries,
            revocations: measured.revocations,
            pauses: tally.pauses,
            crashes: tally.crashes,
            cancelled: tally.cancelled,
            waited_grants: tally.waited,
            accompanied_leases: tally.accompanied,
            sections: tally.sections,
            lapsed_sections: tally.lapsed_sections,
            accepted_writes: tally.accepted_writes,
            stale_writes_rejected: tally.rejected_writes,
            lost_writes: measured.lost_writes,
            exclusion_violations: tally.exclusion_violations,
            token_regressions: tally.token_regressions,
            early_expiries: tally.early_expiries,
            resurrections: tally.resurrections,
            fifo_inversions: tally.fifo_inversions,
            lost_wakeups: tally.lost_wakeups,
            extra_wakes: tally.extra_wakes,
            wakes_per_grant: ratio(tally.woken, tally.waited),
            ghosts: tally.ghosts,
            unexpected_errors: tally.unexpected_errors,
            unaccounted_leases,
            leaked_leases: measured.leaked_leases,
            late_expiries: measured.late.is_some(),
            max_expiry_lag_ms: millis(measured.max_expiry_lag),
            timer_lag_ms: millis(measured.timer_lag),
            clock_lag_ms: millis(tally.clock_lag),
            grants_per_s: measured.grants_per_s,
            p50_ns: tally.latency.value_at_quantile(0.5),
            p99_ns: tally.latency.value_at_quantile(0.99),
            p999_ns: tally.latency.value_at_quantile(0.999),
            fill_s: measured.fill.as_secs_f64(),
            churn_s: measured.churn.as_secs_f64(),
            peak_leases: measured.peak_leases,
            manager_bytes: args.fills().then_some(measured.manager_bytes),
            rss_bytes_per_lease_at_rest: per_lease(
                measured.memory_at_rest.map(|memory| memory.resident),
            ),
            rss_bytes_per_lease_peak: per_lease(measured.memory_at_end.map(|memory| memory.peak)),
            violations: tally.details,
            passed,
        }
    }

    /// Prints everything for a person.
    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        self.print_figures(out)?;
        self.verdict(out)
    }

    /// Prints the figures.
    pub(super) fn print_figures(&self, out: &mut impl Write) -> io::Result<()> {
        if let Some(mode) = self.mode {
            let how = if self.asynchronous { ", async" } else { "" };
            write!(out, "{}{how}: ", format!("{mode:?}").to_lowercase())?;
        }
        writeln!(
            out,
            "{} threads, {} keys, {} s, TTL {} ms, pauses up to {} ms, seed {}{}{}",
            self.threads,
            self.keys,
            self.seconds,
            self.ttl_ms,
            self.pause_ms,
            self.seed,
            match self.resource {
                Kind::Memory => "",
                Kind::Sqlite => ", SQLite",
            },
            if self.unfenced { ", UNFENCED" } else { "" },
        )?;
        writeln!(out, "{}", self.work())?;
        writeln!(out, "{}", self.checks())?;
        for violation in &self.violations {
            writeln!(out, "{violation}")?;
        }
        Ok(())
    }

    fn work(&self) -> Table {
        let mut table = table(&["what happened", ""]);
        let mut row = |name: &str, value: String| {
            table.add_row([name.to_owned(), value]);
        };
        row("leases granted", self.grants.to_string());
        row("  for each second", self.grants_per_s.to_string());
        row("refused, key held", self.refusals.to_string());
        row("renewed", self.renewals.to_string());
        row("released", self.releases.to_string());
        row("expired", self.expiries.to_string());
        row("revoked", self.revocations.to_string());
        row("holders paused", self.pauses.to_string());
        row("holders crashed", self.crashes.to_string());
        if self.mode.is_some() {
            row("waits given up", self.cancelled.to_string());
            row(
                "waits counted to their grant",
                self.waited_grants.to_string(),
            );
            row("  wakes for each", format!("{:.3}", self.wakes_per_grant));
            row("leases in company", self.accompanied_leases.to_string());
        }
        row("writes accepted", self.accepted_writes.to_string());
        row(
            "stale writes rejected",
            self.stale_writes_rejected.to_string(),
        );
        row("try_acquire, median", format!("{} ns", self.p50_ns));
        row("  99 %", format!("{} ns", self.p99_ns));
        row("  99.9 %", format!("{} ns", self.p999_ns));
        row("most leases out at once", self.peak_leases.to_string());
        if let Some(bytes) = self.rss_bytes_per_lease_at_rest {
            row("  resident memory for each", format!("{bytes:.1} B"));
        }
        if let Some(bytes) = self.rss_bytes_per_lease_peak {
            row("  at the highest, resizing", format!("{bytes:.1} B"));
        }
        table
    }

    fn checks(&self) -> Table {
        let mut table = table(&["what must not happen", ""]);
        let mut row = |name: &str, value: u64| {
            table.add_row([name.to_owned(), value.to_string()]);
        };
        row("two live leases of one key", self.exclusion_violations);
        row("a token that did not rise", self.token_regressions);
        row("a lease over before its time", self.early_expiries);
        row("a lease alive after its time", self.resurrections);
        row("an accepted write lost", self.lost_writes);
        row("a lease that ended not once", self.unaccounted_leases);
        row("a lease left over at the end", self.leaked_leases);
        if self.mode.is_some() {
            row("a grant out of turn", self.fifo_inversions);
            row("a waiter that was forgotten", self.lost_wakeups);
            row("a waiter woken too often", self.extra_wakes);
            row("a lease or waiter of nobody's", self.ghosts);
        }
        row("an unexpected error", self.unexpected_errors);
        table.add_row([
            "expiry acted on late, at most".to_owned(),
            format!("{:.2} ms", self.max_expiry_lag_ms),
        ]);
        table
    }

    /// Prints the last line.
    pub(super) fn verdict(&self, out: &mut impl Write) -> io::Result<()> {
        let (style, text) = match (self.passed, self.unfenced) {
            (true, false) => (GOOD, "Nothing was violated.".to_owned()),
            (true, true) => (
                GOOD,
                format!(
                    "As expected without fencing: {} of {} accepted writes were lost.",
                    self.lost_writes, self.accepted_writes
                ),
            ),
            (false, true) if self.lost_writes == 0 => (
                BAD,
                "No write was lost without fencing: the control shows nothing.".to_owned(),
            ),
            (false, _) if self.grants == 0 => {
                (BAD, "No lease was granted: this shows nothing.".to_owned())
            }
            (false, _) => (BAD, "VIOLATED: see above.".to_owned()),
        };
        writeln!(out, "{style}{text}{style:#}")
    }
}

/// By how many leases the manager's counts and the workers' differ; what may have escaped the workers is not held
/// against the manager.
fn unaccounted(tally: &Tally, measured: &Measured) -> u64 {
    let outside = |count: u64, least: u64, most: u64| {
        least.saturating_sub(count).max(count.saturating_sub(most))
    };
    let granted = outside(measured.granted, tally.grants, tally.grants + tally.unseen);
    let by_itself = measured.expiries + measured.revocations;
    let ended = outside(
        measured.granted.saturating_sub(by_itself),
        tally.releases,
        tally.releases + tally.closed + tally.unseen,
    );
    granted.max(ended)
}

pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();

pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::UTF8_BORDERS_ONLY)
        .set_header(header);
    align_right(&mut table, 1..2);
    table
}

/// Sets the numbers of some columns below each other.
pub(crate) fn align_right(table: &mut Table, columns: std::ops::Range<usize>) {
    for column in columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[expect(
    clippy::cast_precision_loss,
    reason = "what is counted here stays far below the 53 bits that are exact"
)]
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::super::tally::Violation;
    use super::*;

    fn passed(unfenced: bool, tally: Tally, measured: &Measured) -> bool {
        let args = Args {
            mode: None,
            asynchronous: false,
            threads: 1,
            soak: false,
            plot: None,
            spike: false,
            introspection: false,
            keys: Some(1),
            seconds: Some(1),
            seed: None,
            ttl: Duration::from_millis(1),
            pause: None,
            resource: Kind::Memory,
            unfenced,
            json: true,
        };
        Report::new(&args, tally, measured).passed
    }

    fn one_lease() -> Tally {
        let mut tally = Tally::new();
        (tally.grants, tally.releases) = (1, 1);
        tally
    }

    fn of_one_lease() -> Measured {
        Measured {
            granted: 1,
            ..Measured::default()
        }
    }

    #[test]
    fn lost_writes_fail_a_fenced_run_and_are_what_an_unfenced_one_is_for() {
        let mut measured = of_one_lease();
        assert!(passed(false, one_lease(), &measured));
        assert!(!passed(true, one_lease(), &measured));
        measured.lost_writes = 1;
        assert!(!passed(false, one_lease(), &measured));
        assert!(passed(true, one_lease(), &measured));
    }

    #[test]
    fn every_violation_fails_the_run() {
        for violation in [
            Violation::Exclusion,
            Violation::TokenRegression,
            Violation::EarlyExpiry,
            Violation::Resurrection,
            Violation::FifoInversion,
            Violation::LostWakeup,
            Violation::ExtraWake,
            Violation::Ghost,
            Violation::UnexpectedError,
        ] {
            let mut tally = one_lease();
            tally.violate(violation, String::new);
            assert!(!passed(false, tally, &of_one_lease()), "{violation:?}");
        }
    }

    #[test]
    fn a_lease_that_leaked_or_ended_unseen_fails_the_run() {
        let leaked = Measured {
            leaked_leases: 1,
            ..of_one_lease()
        };
        assert!(!passed(false, one_lease(), &leaked));
        let mut tally = one_lease();
        tally.releases = 0;
        assert!(!passed(false, tally, &of_one_lease()));
    }

    #[test]
    fn a_grant_that_nobody_was_told_of_fails_the_run() {
        let (mut tally, mut measured) = (one_lease(), of_one_lease());
        measured.granted += 1;
        measured.expiries += 1;
        assert!(!passed(false, tally, &measured));
        tally = one_lease();
        tally.unseen = 1;
        assert!(passed(false, tally, &measured));
    }

    #[test]
    fn a_run_without_a_grant_shows_nothing() {
        assert!(!passed(false, Tally::new(), &Measured::default()));
    }

    #[test]
    fn late_expiry_fails_the_run() {
        let mut measured = of_one_lease();
        measured.late = Some(Late {
            expiry: Duration::from_millis(6),
            timers: Duration::ZERO,
        });
        assert!(!passed(false, one_lease(), &measured));
    }
}
