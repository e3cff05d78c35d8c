//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

/// Measures `tenure` beside what one would take instead, and beside what the hardware takes at the
/// least: all of them in one process, in turns.
#[derive(Clone, Debug, Parser)]
#[command(name = "versus", version)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub(crate) struct Options {
    /// Only workloads, or rows of them, whose name contains one of these ("pair", "pair/shared/zipf",
    /// "storm"); --list shows them.
    #[arg(short, long = "workload", value_name = "NAME")]
    pub(crate) workloads: Vec<String>,

    /// Only contenders whose name contains one of these; tenure and the floors are always there.
    #[arg(short, long = "contender", value_name = "NAME")]
    pub(crate) contenders: Vec<String>,

    /// Only rows of so many threads.
    #[arg(short, long, value_delimiter = ',', default_value = "1,2,4", value_parser = clap::value_parser!(u64).range(1..=64))]
    pub(crate) threads: Vec<u64>,

    /// Only universes of so many keys, among 1, 1k, 1M and 10M.
    #[arg(short, long, value_delimiter = ',', default_value = "1,1k,1M,10M", value_parser = population)]
    pub(crate) population: Vec<u64>,

    /// How often the contenders take turns; the calmest third of the rounds counts.
    #[arg(long, default_value_t = 31, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) rounds: u64,

    /// Seconds for each row, divided among the contenders and rounds.
    #[arg(short, long, default_value_t = 2.0, value_parser = seconds)]
    pub(crate) seconds: f64,

    /// Print the results as JSON.
    #[arg(long)]
    pub(crate) json: bool,

    /// Where to write the report, a web page; otherwise to target/versus/report.html.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// Also write the tables as Markdown: into that file, in the place of what is between the lines
    /// "<!-- versus: begin -->" and "<!-- versus: end -->". Cargo runs benchmarks in their package, so
    /// relative paths begin at benches/.
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,

    /// Where to write the plots of the Markdown file; otherwise to plots/ beside it.
    #[arg(long, value_name = "DIR", requires = "markdown")]
    pub(crate) plots: Option<PathBuf>,

    /// Name the workloads and contenders, and measure nothing.
    #[arg(long)]
    pub(crate) list: bool,

    /// Run everything once, small: shows that it works, measures nothing.
    #[arg(long)]
    pub(crate) test: bool,

    /// Cargo passes it.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    /// What the command line says.
    pub(crate) fn from_args() -> Self {
        let mut options = Self::parse();
        // Run by `cargo test`.
        options.test |= !options.bench && std::env::var_os("CARGO").is_some();
        options
    }

    /// Whether that contender is wanted.
    pub(crate) fn wants(&self, contender: &str) -> bool {
        contender == crate::contenders::TENURE || matches(&self.contenders, contender)
    }

    /// Whether that row is wanted.
    pub(crate) fn wants_row(&self, name: &str) -> bool {
        matches(&self.workloads, name)
    }

    /// That many keys, or fewer when nothing is measured.
    pub(crate) fn size(&self, keys: u64) -> u64 {
        if self.test { keys.min(2_000) } else { keys }
    }

    pub(crate) fn rounds(&self) -> u64 {
        if self.test { 2 } else { self.rounds }
    }

    /// How long one turn of one of so many contenders is.
    pub(crate) fn slice(&self, lanes: usize) -> Duration {
        let turns = self.rounds as f64 * lanes as f64;
        Duration::from_secs_f64(self.seconds / turns).max(Duration::from_millis(1))
    }
}

fn matches(wanted: &[String], name: &str) -> bool {
    wanted.is_empty() || wanted.iter().any(|one| name.contains(one.as_str()))
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.001..=3600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("must be between 0.001 and 3600".into())
    }
}

fn population(text: &str) -> Result<u64, String> {
    match text {
        "1" => Ok(1),
        "1k" => Ok(1_000),
        "1M" => Ok(1_000_000),
        "10M" => Ok(10_000_000),
        _ => Err("must be 1, 1k, 1M or 10M".into()),
    }
}

/// The same as they are named in rows.
pub(crate) fn population_name(keys: u64) -> &'static str {
    match keys {
        1 => "1",
        1_000 => "1k",
        1_000_000 => "1M",
        _ => "10M",
    }
}
