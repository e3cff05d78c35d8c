//! The options of `tenure stress` and their limits.

use std::path::PathBuf;
use std::time::Duration;

/// The tick of the manager under test, and so the least TTL that it accepts.
pub(super) const TICK: Duration = Duration::from_millis(1);
/// A run ends when its last lease has: nobody wants to wait longer than that.
const MAX_TTL: Duration = Duration::from_secs(60);
const MAX_PAUSE: Duration = Duration::from_secs(3600);
/// Up to here every key has its own checks; beyond, the further keys are held throughout.
pub(super) const CHECKED_KEYS: u32 = 1 << 16;
/// What is run if nothing else is said.
const KEYS: u32 = 64;
const SECONDS: u64 = 10;
/// The same for a soak.
const SOAK_SECONDS: u64 = 1200;
/// The same for a spike.
const SPIKE_KEYS: u32 = 10_000_000;
/// What stays out after a spike.
pub(super) const SPIKE_REST: u32 = 1000;
/// The most leases that a table can have out at once.
const MAX_LEASES: u32 = 1 << 24;

/// Hammer a manager from many threads while checking every answer that it gives.
///
/// Workers acquire random keys, read and write a resource under the lease, and renew, release,
/// pause past the TTL, or crash (forget the guard). Now and then one revokes another's lease.
/// Checked, at every step and at the end: at most one live lease for a key; tokens that only rise;
/// no lease over before its time; none alive after it; no accepted write lost; every lease
/// accounted for; expiry acted on in time; and nothing left at the end.
///
/// With more than 65,536 keys, every key is first acquired under a long lease, so that --keys
/// leases are out at once; then 65,536 of them are put through all of the above, while the others
/// are released, acquired again, renewed and contended at random. Memory per lease is reported.
///
/// With --mode, workers wait for their keys, in one of the ways in which a key can be held, and many
/// of them give up on the way: at a random moment, or half of them at once. Checked besides: who may
/// hold a key beside whom; that keys are granted in the order of arrival; that nobody is forgotten,
/// or woken twice; and that whoever gave up holds nothing.
///
/// With --soak, all modes run at once for a long time, on threads and on both runtimes, beside waves of
/// plain leases on keys that never come back; memory and latencies are looked at each second. With
/// --spike, --keys leases are out at once and back to 1,000, twice, and memory is told at each stage.
///
/// Exit code 0 if nothing was violated, 1 if anything was, 2 for bad arguments.
#[expect(
    clippy::struct_excessive_bools,
    reason = "options that are given or not"
)]
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Worker threads; with --mode, eight waiting workers for each
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) threads: u32,

    /// Put a way of holding keys to the test, with workers that wait [default: none, they only try]
    #[arg(long, value_enum, conflicts_with = "unfenced")]
    pub(super) mode: Option<Scenario>,

    /// Run the workers as tasks, half on tokio and half on smol at once
    #[arg(long = "async", requires = "mode")]
    pub(super) asynchronous: bool,

    /// All modes at once for a long time: does memory stay, and do latencies?
    ///
    /// Memory that grows counts as a violation, once the run is long enough to tell (two minutes). Latencies
    /// that drift are a warning: other programs on the machine do that, too.
    #[arg(long, conflicts_with_all = ["mode", "unfenced"])]
    pub(super) soak: bool,

    /// Draw the samples of a soak into this file, as SVG
    #[arg(long, requires = "soak", value_name = "FILE")]
    pub(super) plot: Option<PathBuf>,

    /// --keys leases out at once and back to 1,000, twice: which memory comes back?
    #[arg(
        long,
        conflicts_with_all = ["soak", "mode", "unfenced", "seconds", "seed", "ttl", "pause", "resource"]
    )]
    pub(super) spike: bool,

    /// Have the manager of a spike keep names and ages of leases, as for operators
    #[arg(long, requires = "spike")]
    pub(super) introspection: bool,

    /// Distinct keys [default: 64; 10,000,000 with --spike]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub(super) keys: Option<u32>,

    /// How long to run; filling a large table counts, draining it at the end does not [default: 10; 1200
    /// with --soak]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(super) seconds: Option<u64>,

    /// Seed of the workers' choices [default: random, and reported]
    ///
    /// Choices repeat with the seed; the interleaving of the threads does not.
    #[arg(long)]
    pub(super) seed: Option<u64>,

    /// Lease length, such as 20ms, 1.5s (a bare number is milliseconds)
    #[arg(long, default_value = "20ms", value_parser = parse_ttl)]
    pub(super) ttl: Duration,

    /// Longest pause of a holder [default: three times the TTL]
    #[arg(long, value_parser = parse_pause)]
    pub(super) pause: Option<Duration>,

    /// Where the resource is that the keys protect; without a value, in SQLite
    #[arg(
        long,
        value_enum,
        default_value = "memory",
        num_args = 0..=1,
        default_missing_value = "sqlite"
    )]
    pub(super) resource: Kind,

    /// Negative control: the resource ignores tokens, so writes must get lost
    ///
    /// Exit code 0 if writes were lost (and nothing else is wrong), 1 if none was.
    #[arg(long)]
    pub(super) unfenced: bool,

    /// Print one JSON object instead of a table, and no progress bar
    ///
    /// Latencies are those of `try_acquire`, refusals included, with two clock readings in each
    /// figure. While filling, one call in sixteen is timed; after that, every call is.
    #[arg(long)]
    pub(super) json: bool,
}

/// A way of holding keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Scenario {
    /// One holder for a key
    Exclusive,
    /// Readers, and writers now and then
    Shared,
    /// Two to five permits for a key
    Semaphore,
    /// Several keys under one TTL
    Sessions,
    /// Several keys at once, all or nothing
    Multi,
    /// All of these at once on keys of their own, and some keys on which everything meets
    Mixed,
}

/// Where the numbers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// In this process, with `tenure::Fenced`
    Memory,
    /// In a database file in a temporary directory
    Sqlite,
}

/// Waiting workers for each of `--threads`.
const WORKERS_PER_THREAD: u32 = 8;
/// Each part of a mixed run has a key at least.
pub(super) const MIXED_PARTS: u32 = 6;

impl Args {
    /// How many workers wait at once in a mode.
    pub(super) fn waiting_workers(&self) -> u32 {
        self.threads * WORKERS_PER_THREAD
    }

    /// What is wrong with options that are each in order.
    pub(crate) fn contradiction(&self) -> Option<String> {
        if self.spike && !(10 * SPIKE_REST..=MAX_LEASES).contains(&self.keys()) {
            return Some(format!(
                "--keys: {} to {MAX_LEASES} with --spike, which are out at once",
                10 * SPIKE_REST
            ));
        }
        match self.scenario() {
            Some(_) if self.resource != Kind::Memory => Some(
                "--resource: only memory with --mode or --soak, whose workers must not wait for anything but keys"
                    .to_owned(),
            ),
            Some(_) if self.fills() => Some(format!(
                "--keys: at most {CHECKED_KEYS} with --mode or --soak, since each has checks of its own"
            )),
            Some(Scenario::Mixed) if self.keys() < MIXED_PARTS => Some(format!(
                "--keys: at least {MIXED_PARTS} with --mode mixed or --soak, one for each of the parts"
            )),
            _ => None,
        }
    }

    /// How keys are held, if workers wait for them.
    pub(super) fn scenario(&self) -> Option<Scenario> {
        self.mode.or(self.soak.then_some(Scenario::Mixed))
    }

    /// How many keys there are.
    pub(super) fn keys(&self) -> u32 {
        let default = if self.spike { SPIKE_KEYS } else { KEYS };
        self.keys.unwrap_or(default)
    }

    /// How many seconds to run.
    pub(super) fn seconds(&self) -> u64 {
        let default = if self.soak { SOAK_SECONDS } else { SECONDS };
        self.seconds.unwrap_or(default)
    }

    /// The longest pause of a holder.
    pub(super) fn pause(&self) -> Duration {
        self.pause.unwrap_or(3 * self.ttl)
    }

    /// How many keys have every check of their own.
    pub(super) fn checked_keys(&self) -> u32 {
        self.keys().min(CHECKED_KEYS)
    }

    /// Whether a mass of long leases lies under the churn.
    pub(super) fn fills(&self) -> bool {
        self.keys() > CHECKED_KEYS
    }
}

fn parse_ttl(text: &str) -> Result<Duration, String> {
    let ttl = parse_duration(text)?;
    if ttl < TICK {
        return Err(format!(
            "a lease lasts at least one tick of the manager's wheel, {TICK:?}"
        ));
    }
    if ttl > MAX_TTL {
        return Err(format!("at most {MAX_TTL:?}, since the run waits for it"));
    }
    Ok(ttl)
}

fn parse_pause(text: &str) -> Result<Duration, String> {
    let pause = parse_duration(text)?;
    if pause > MAX_PAUSE {
        return Err(format!("at most {MAX_PAUSE:?}"));
    }
    Ok(pause)
}

/// Reads `20ms`, `1.5s`, `300us`, `2m`; a bare number is milliseconds.
fn parse_duration(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, f64); 5] = [
        ("ns", 1e-9),
        ("us", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
        ("m", 60.0),
    ];
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" => "ms",
        unit => unit,
    };
    UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .and_then(|(_, seconds)| Some(digits.trim().parse::<f64>().ok()? * seconds))
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "not a duration; write it like 20ms, 1.5s or 2m".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_unit() {
        assert_eq!(parse_duration("20ms"), Ok(Duration::from_millis(20)));
        assert_eq!(parse_duration("20"), Ok(Duration::from_millis(20)));
        assert_eq!(parse_duration("1.5 s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("300us"), Ok(Duration::from_micros(300)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in ["", "ms", "-1ms", "1h", "1e400s", "nan", "inf", "1ms2"] {
            assert!(parse_duration(text).is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn a_ttl_below_the_tick_or_above_the_limit_is_refused() {
        for text in ["0", "999us", "61s"] {
            assert!(parse_ttl(text).is_err(), "{text:?} was accepted");
        }
        assert_eq!(parse_ttl("1ms"), Ok(TICK));
    }
}
