//! Where and how a run took place.

use std::num::NonZeroUsize;
use std::process::Command;
use std::{env, fs, thread};

use jiff::{Timestamp, Unit};
use serde::Serialize;

/// The machine of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) processor: Option<String>,
    /// How many threads of it this process may use.
    pub(crate) cores: usize,
    pub(crate) memory_gib: Option<f64>,
    pub(crate) kernel: Option<String>,
    /// The compiler that is there now, which is most likely the one that built the benchmark.
    pub(crate) rustc: Option<String>,
}

/// What else tells one run from another.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Run {
    /// When it ended, in UTC.
    pub(crate) date: String,
    pub(crate) command: String,
    /// The commit of the sources that are there now; `-dirty` if they are changed.
    pub(crate) commit: Option<String>,
    pub(crate) machine: Machine,
}

impl Run {
    /// What the system says.
    pub(crate) fn this() -> Self {
        let now = Timestamp::now();
        Self {
            date: now.round(Unit::Second).unwrap_or(now).to_string(),
            command: command(env::args().skip(1)),
            commit: output(
                "git",
                &[
                    "describe",
                    "--always",
                    "--dirty",
                    "--exclude=*",
                    "--abbrev=12",
                ],
            ),
            machine: Machine::this(),
        }
    }

    /// Its labels and values.
    pub(crate) fn facts(&self) -> Vec<(&'static str, String)> {
        let machine = &self.machine;
        let known = |fact: &Option<String>| fact.clone().unwrap_or_else(|| "not known".into());
        let memory = machine.memory_gib.map(|gib| format!("{gib:.1} GiB"));
        vec![
            ("Processor", known(&machine.processor)),
            ("Hardware threads", machine.cores.to_string()),
            ("Memory", known(&memory)),
            ("Kernel", known(&machine.kernel)),
            ("Compiler", known(&machine.rustc)),
            ("Commit", known(&self.commit)),
            ("Date", self.date.clone()),
        ]
    }
}

impl Machine {
    fn this() -> Self {
        let file = |path| fs::read_to_string(path).ok();
        let kernel = file("/proc/sys/kernel/osrelease");
        let gib = |text: String| {
            let kib = field(&text, "MemTotal")?
                .strip_suffix(" kB")?
                .trim()
                .parse();
            kib.ok().map(|kib: f64| kib / f64::from(1 << 20))
        };
        Self {
            processor: file("/proc/cpuinfo").and_then(|text| field(&text, "model name")),
            cores: thread::available_parallelism().map_or(1, NonZeroUsize::get),
            memory_gib: file("/proc/meminfo").and_then(gib),
            kernel: kernel.map(|release| release.trim().to_owned()),
            rustc: output("rustc", &["--version"]),
        }
    }
}

/// The first value of that name in a file of `name : value` lines.
fn field(text: &str, name: &str) -> Option<String> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(key, _)| key.trim() == name)?;
    Some(value.trim().to_owned())
}

/// What a command prints, if it is there and succeeds.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_owned())
}

/// The command that one would type.
fn command(arguments: impl Iterator<Item = String>) -> String {
    let quoted = |argument: String| {
        if argument.contains(' ') {
            format!("'{argument}'")
        } else {
            argument
        }
    };
    // Cargo adds that one.
    let arguments: Vec<_> = arguments
        .filter(|one| one != "--bench")
        .map(quoted)
        .collect();
    let command = ["cargo bench --bench versus".to_owned()];
    let separator = (!arguments.is_empty()).then(|| "--".to_owned());
    let words: Vec<_> = command
        .into_iter()
        .chain(separator)
        .chain(arguments)
        .collect();
    words.join(" ")
}
