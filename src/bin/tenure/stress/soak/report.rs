//! The verdicts of a soak.
//!
//! *Memory* has grown if the trend of any of three figures says so by more than [`Tolerance`]: what is
//! resident, what is allocated, and what the manager says it uses. The first is what matters, and has the
//! noise of the allocator in it; the second has a leak of anything in it; the third one of cells or
//! buckets. That fails the run. A *latency* drifts if the trend of its median or of its 99th percentile says so by more than a
//! part of what it was; since anything else that runs on the machine does that as well, it is a warning.

use std::io::{self, Write};

use serde::Serialize;

use super::pulse::{Each, KINDS, Quantiles};
use super::samples::{Sample, Samples, by_name};
use super::trend::Trend;
use crate::stress::report::{self, BAD, table};

/// A run of fewer seconds is not judged: threads and the allocator are still settling.
const JUDGED_FROM: usize = 115;
const MEBIBYTE: f64 = 1024.0 * 1024.0;
/// By how much what is resident may seem to grow: so many bytes, and this part of what it was. (An
/// allocator with an arena for each few threads takes long to find its size.)
const RESIDENT: (f64, f64) = (2.0 * MEBIBYTE, 0.05);
/// By how much what is allocated may, and what the manager uses.
const HEAP: (f64, f64) = (0.25 * MEBIBYTE, 0.02);
/// By how much a median may: this part of what it was.
const P50_PART: f64 = 0.25;
/// By how much a 99th percentile may.
const P99_PART: f64 = 0.5;

/// The same for whoever reads the report.
#[derive(Clone, Copy, Debug, Serialize)]
struct Tolerance {
    resident: (f64, f64),
    heap: (f64, f64),
    p50_part: f64,
    p99_part: f64,
}

const TOLERANCE: Tolerance = Tolerance {
    resident: RESIDENT,
    heap: HEAP,
    p50_part: P50_PART,
    p99_part: P99_PART,
};

/// How memory went.
#[derive(Clone, Copy, Debug, Serialize)]
struct MemoryVerdict {
    /// The run was long enough to tell.
    judged: bool,
    flat: bool,
    resident: Option<Trend>,
    heap: Option<Trend>,
    manager: Option<Trend>,
}

/// How the latency of one kind went.
#[derive(Clone, Copy, Debug, Serialize)]
struct LatencyVerdict {
    #[serde(flatten)]
    whole: Quantiles,
    p50_trend: Option<Trend>,
    p99_trend: Option<Trend>,
    drifts: bool,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    run: report::Report,
    soak: bool,
    tolerance: Tolerance,
    memory: MemoryVerdict,
    #[serde(serialize_with = "by_name")]
    latency: Each<LatencyVerdict>,
    warnings: Vec<String>,
    pub(super) samples: Vec<Sample>,
}

impl MemoryVerdict {
    fn of(samples: &[Sample]) -> Self {
        let resident: Option<Vec<f64>> = samples
            .iter()
            .map(|sample| sample.resident_bytes.map(exact))
            .collect();
        let trend = |bytes: fn(&Sample) -> u64| {
            let series: Vec<f64> = samples.iter().map(|sample| exact(bytes(sample))).collect();
            Trend::of(&series)
        };
        let resident = resident.and_then(|resident| Trend::of(&resident));
        let heap = trend(|sample| sample.heap_bytes);
        let manager = trend(|sample| sample.manager_bytes);
        let judged = samples.len() >= JUDGED_FROM;
        let exceeds = |trend: Option<Trend>, (bytes, part): (f64, f64)| {
            trend.is_some_and(|trend| trend.exceeds(bytes + part * trend.from))
        };
        let grown = exceeds(resident, RESIDENT) || exceeds(heap, HEAP) || exceeds(manager, HEAP);
        Self {
            judged,
            flat: judged && !grown,
            resident,
            heap,
            manager,
        }
    }
}

impl LatencyVerdict {
    fn of(kind: usize, samples: &Samples) -> Self {
        let trend = |quantile: fn(&Quantiles) -> u64| {
            let seconds = samples.taken.iter();
            let series: Vec<f64> = seconds
                .filter_map(|sample| Some(exact(quantile(sample.latency[kind].as_ref()?))))
                .collect();
            Trend::of(&series)
        };
        let (p50_trend, p99_trend) = (trend(|told| told.p50_ns), trend(|told| told.p99_ns));
        let drifts = |trend: Option<Trend>, part: f64| {
            trend.is_some_and(|trend| trend.exceeds(part * trend.from))
        };
        let judged = samples.taken.len() >= JUDGED_FROM;
        Self {
            whole: Quantiles::of(&samples.totals[kind]).unwrap_or_default(),
            p50_trend,
            p99_trend,
            drifts: judged && (drifts(p50_trend, P50_PART) || drifts(p99_trend, P99_PART)),
        }
    }
}

impl Report {
    pub(super) fn new(mut run: report::Report, samples: Samples) -> Self {
        let memory = MemoryVerdict::of(&samples.taken);
        if memory.judged && !memory.flat {
            run.violations
                .push("MemoryGrowth: memory has grown beyond the tolerance".to_owned());
            run.passed = false;
        }
        let latency = std::array::from_fn(|kind| LatencyVerdict::of(kind, &samples));
        let drifting = KINDS.iter().zip(&latency);
        let warnings = drifting
            .filter(|(_, verdict)| verdict.drifts)
            .map(|((_, name), _)| format!("{name} has become slower: see the trends"))
            .collect();
        Self {
            run,
            soak: true,
            tolerance: TOLERANCE,
            memory,
            latency,
            warnings,
            samples: samples.taken,
        }
    }

    pub(super) fn passed(&self) -> bool {
        self.run.passed
    }

    /// Prints everything for a person.
    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        self.run.print_figures(out)?;
        writeln!(out, "{}", self.latencies())?;
        writeln!(out, "{}", self.trends())?;
        for warning in &self.warnings {
            writeln!(out, "warning: {warning}")?;
        }
        let memory = &self.memory;
        if !memory.judged {
            writeln!(
                out,
                "Too short to tell whether memory stays: {} samples, {JUDGED_FROM} are needed.",
                self.samples.len()
            )?;
        } else if memory.flat {
            writeln!(out, "Memory is flat.")?;
        } else {
            writeln!(out, "{BAD}MEMORY HAS GROWN.{BAD:#}")?;
        }
        self.run.verdict(out)
    }

    fn latencies(&self) -> comfy_table::Table {
        let mut table = table(&["latency", "count", "p50 µs", "p99 µs", "p99.9 µs", "max µs"]);
        for ((_, name), verdict) in KINDS.iter().zip(&self.latency) {
            let told = &verdict.whole;
            let mut row = vec![(*name).to_owned(), told.count.to_string()];
            let times = [told.p50_ns, told.p99_ns, told.p999_ns, told.max_ns];
            row.extend(times.map(|nanos| format!("{:.2}", exact(nanos) / 1e3)));
            table.add_row(row);
        }
        report::align_right(&mut table, 2..6);
        table
    }

    fn trends(&self) -> comfy_table::Table {
        let mut table = table(&["from the second tenth to the last", "from", "to", "rise"]);
        let mut row = |name: String, trend: Option<Trend>, scale: f64, unit: &str| {
            let Some(trend) = trend else { return };
            let mut cells = vec![name];
            let values = [trend.from, trend.to, trend.rise];
            cells.extend(values.map(|value| format!("{:.3} {unit}", value / scale)));
            table.add_row(cells);
        };
        row(
            "resident memory".to_owned(),
            self.memory.resident,
            MEBIBYTE,
            "MiB",
        );
        row("allocated".to_owned(), self.memory.heap, MEBIBYTE, "MiB");
        row(
            "the manager's own".to_owned(),
            self.memory.manager,
            MEBIBYTE,
            "MiB",
        );
        for ((_, name), verdict) in KINDS.iter().zip(&self.latency) {
            row(format!("{name}, p50"), verdict.p50_trend, 1e3, "µs");
            row(format!("{name}, p99"), verdict.p99_trend, 1e3, "µs");
        }
        report::align_right(&mut table, 2..4);
        table
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "bytes, nanoseconds and counts here stay far below the 53 bits that are exact"
)]
pub(super) fn exact(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run in which memory goes like this, in KiB above 32 MiB: what is resident, and all else.
    fn run(
        seconds: u32,
        resident: impl Fn(u32) -> u32,
        other: impl Fn(u32) -> [u32; 2],
    ) -> MemoryVerdict {
        let bytes = |kib: u32| (32 << 20) + 1024 * u64::from(kib);
        let mut samples = Samples::new(u64::from(seconds)).taken;
        for second in 0..seconds {
            samples.push(Sample {
                second: f64::from(second),
                resident_bytes: Some(bytes(resident(second))),
                heap_bytes: bytes(other(second)[0]),
                manager_bytes: bytes(other(second)[1]),
                leases: 0,
                buckets: 0,
                waiting: 0,
                grants_per_s: 0,
                expiries_per_s: 0,
                latency: [None; _],
            });
        }
        MemoryVerdict::of(&samples)
    }

    #[test]
    fn memory_that_stays_is_flat_whatever_its_noise() {
        let noise = |second| second * 7919 % 1500;
        assert!(run(1200, noise, |_| [0; 2]).flat);
        // A size that it finds early on.
        assert!(run(1200, |second| 40 * second.min(100), |_| [0; 2]).flat);
    }

    #[test]
    fn memory_that_grows_is_not_flat_whoever_says_so() {
        assert!(!run(1200, |second| 4 * second, |_| [0; 2]).flat);
        // 1 KiB a second: an eighth of a byte for each grant.
        assert!(!run(1200, |_| 0, |second| [second, 0]).flat);
        assert!(!run(1200, |_| 0, |second| [0, second]).flat);
    }

    #[test]
    fn a_short_run_is_not_judged() {
        let verdict = run(JUDGED_FROM as u32 - 1, |second| 1000 * second, |_| [0; 2]);
        assert!(!verdict.judged && !verdict.flat);
        assert!(run(JUDGED_FROM as u32, |_| 0, |_| [0; 2]).judged);
    }
}
