//! What the crate is to reach, and whether it did in this run.

use std::fmt;

use serde::Serialize;
use tenure_benches::measure::Kind;

use crate::rows::{Entry, NS, PER_US, Row};

/// What a number is compared with.
#[derive(Clone, Copy, Debug)]
enum Against {
    /// A floor: how many times its time the crate takes.
    Floor(&'static str),
    /// The best contender of that kind: how many times the crate's time it takes.
    Best(Kind),
    /// That contender.
    Contender(&'static str),
    /// The crate's own number of another row.
    Row(&'static str),
    /// Nothing: the crate's own number counts.
    Itself,
}

#[derive(Clone, Copy, Debug)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// A target.
#[derive(Clone, Copy, Debug)]
struct Target {
    row: &'static str,
    metric: &'static str,
    against: Against,
    bound: Bound,
    /// What would be better still.
    stretch: Option<f64>,
}

/// A target with what was measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Verdict {
    pub(crate) row: &'static str,
    pub(crate) metric: &'static str,
    /// What the value is: `tenure / floor`, say.
    pub(crate) ratio: String,
    pub(crate) value: f64,
    /// `>= 1.5`, say.
    pub(crate) target: String,
    pub(crate) met: bool,
    pub(crate) stretch: Option<f64>,
    pub(crate) stretch_met: bool,
}

impl Verdict {
    /// In a word.
    pub(crate) fn word(&self) -> &'static str {
        match (self.met, self.stretch_met) {
            (true, true) => "met, and the stretch",
            (true, false) => "met",
            (false, _) => "MISSED",
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(f, ">= {bound}"),
            Self::AtMost(bound) => write!(f, "<= {bound}"),
        }
    }
}

impl Bound {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
        }
    }

    fn moved_to(self, bound: f64) -> Self {
        match self {
            Self::AtLeast(_) => Self::AtLeast(bound),
            Self::AtMost(_) => Self::AtMost(bound),
        }
    }
}

impl Target {
    const fn new(row: &'static str, against: Against, bound: Bound) -> Self {
        Self {
            row,
            metric: NS,
            against,
            bound,
            stretch: None,
        }
    }

    const fn of(self, metric: &'static str) -> Self {
        Self { metric, ..self }
    }

    const fn stretch(self, stretch: f64) -> Self {
        Self {
            stretch: Some(stretch),
            ..self
        }
    }

    /// What was measured, if it was.
    fn value(&self, row: &Row, rows: &[Row]) -> Option<(String, f64)> {
        let tenure = row.tenure(self.metric)?;
        let inverse = |entry: &Entry| Some(1.0 / entry.to_tenure?);
        match self.against {
            Against::Itself => Some(("tenure".into(), tenure.median)),
            Against::Floor(name) => {
                let mut all = row.of_metric(self.metric);
                let floor = all.find(|entry| entry.contender == name)?;
                Some((format!("tenure / {name}"), inverse(floor)?))
            }
            Against::Best(kind) => {
                let of_kind = row
                    .of_metric(self.metric)
                    .filter(|entry| entry.kind == kind);
                let best = of_kind
                    .min_by(|a, b| a.to_tenure.partial_cmp(&b.to_tenure).expect("a number"))?;
                Some((format!("{} / tenure", best.contender), best.to_tenure?))
            }
            Against::Contender(name) => {
                let mut all = row.of_metric(self.metric);
                let it = all.find(|entry| entry.contender == name)?;
                Some((format!("{name} / tenure"), it.to_tenure?))
            }
            Against::Row(name) => {
                let other = rows.iter().find(|row| row.name == name)?;
                let ratio = tenure.median / other.tenure(self.metric)?.median;
                Some((format!("tenure / tenure at {name}"), ratio))
            }
        }
    }
}

/// The verdicts on what was measured.
pub(crate) fn verdicts(rows: &[Row]) -> Vec<Verdict> {
    let verdict = |target: &Target| {
        let row = rows.iter().find(|row| row.name == target.row)?;
        let (ratio, value) = target.value(row, rows)?;
        let stretched = |stretch| target.bound.moved_to(stretch).is_met(value);
        Some(Verdict {
            row: target.row,
            metric: target.metric,
            ratio,
            value,
            target: target.bound.to_string(),
            met: target.bound.is_met(value),
            stretch: target.stretch,
            stretch_met: target.stretch.is_some_and(stretched),
        })
    };
    TARGETS.iter().filter_map(verdict).collect()
}

use Against::{Best, Contender, Floor, Itself};
use Bound::{AtLeast, AtMost};

const HOT: &str = crate::floors::HOT;
const COARSE: Against = Best(Kind::Coarse);
const INSTANT: Against = Best(Kind::Instant);

const fn target(row: &'static str, against: Against, bound: Bound) -> Target {
    Target::new(row, against, bound)
}

/// All of them.
const TARGETS: &[Target] = &[
    target("pair/shared/uniform/1/1t", Floor(HOT), AtMost(1.6)).stretch(1.3),
    target("pair/shared/uniform/1/1t", COARSE, AtLeast(1.5)).stretch(2.0),
    target("pair/shared/uniform/1/1t", INSTANT, AtLeast(3.0)),
    target("pair/shared/uniform/1k/1t", Floor(HOT), AtMost(1.6)).stretch(1.3),
    target("pair/shared/uniform/1k/1t", COARSE, AtLeast(1.5)).stretch(2.0),
    target("pair/shared/uniform/1k/1t", INSTANT, AtLeast(3.0)),
    target(
        "pair/shared/uniform/1k/1t",
        Contender("lockable"),
        AtLeast(5.0),
    ),
    target(
        "pair/shared/uniform/1k/1t",
        Contender("moka"),
        AtLeast(50.0),
    ),
    target(
        "pair/shared/uniform/1k/1t",
        Contender("rocksdb"),
        AtLeast(25.0),
    ),
    target(
        "pair/shared/uniform/1k/1t",
        Contender("redis"),
        AtLeast(1000.0),
    ),
    target("pair/shared/uniform/1M/1t", Floor(HOT), AtMost(1.6)).stretch(1.3),
    target("pair/shared/uniform/1M/1t", COARSE, AtLeast(1.5)).stretch(2.0),
    target("pair/shared/uniform/1M/1t", INSTANT, AtLeast(3.0)),
    target("pair/shared/uniform/10M/1t", Floor(HOT), AtMost(1.6)).stretch(1.3),
    target("pair/shared/uniform/10M/1t", COARSE, AtLeast(1.5)).stretch(2.0),
    target("pair/shared/uniform/10M/1t", INSTANT, AtLeast(3.0)),
    target("pair/shared/uniform/1k/2t", COARSE, AtLeast(1.8)).stretch(2.5),
    target(
        "pair/shared/uniform/1k/2t",
        Contender("dashmap, stock"),
        AtLeast(3.5),
    ),
    target("pair/shared/uniform/1M/2t", COARSE, AtLeast(1.8)).stretch(2.5),
    target(
        "pair/shared/uniform/1M/2t",
        Contender("dashmap, stock"),
        AtLeast(3.5),
    ),
    target(
        "pair/shared/uniform/1k/4t",
        Against::Row("pair/shared/uniform/1k/2t"),
        AtLeast(0.8),
    )
    .of(PER_US),
    target(
        "pair/shared/uniform/1M/4t",
        Against::Row("pair/shared/uniform/1M/2t"),
        AtLeast(0.8),
    )
    .of(PER_US),
    target("held/1M/pair", COARSE, AtLeast(1.3)),
    target("held/1M/refused", COARSE, AtLeast(1.0)),
    target("held/1M/renew by key", COARSE, AtLeast(1.0)),
    target("batch/1M held", Contender("single calls"), AtLeast(1.5)),
    target("renew/guard", Floor("one CAS"), AtMost(1.1)),
    target("renew/guard", COARSE, AtLeast(5.0)),
    target("renew/guard", INSTANT, AtLeast(5.0)),
    target("held/1M/memory", Itself, AtMost(100.0)).of("resident_bytes_per_lease"),
    target("storm/1M", Itself, AtMost(60.0))
        .of("ns_per_expiry")
        .stretch(25.0),
    target("storm/1M", Itself, AtMost(1.5)).of("p99.9_during_over_before"),
    target("timers/1M/schedule + cancel", Itself, AtMost(12.0)),
    target(
        "timers/1M/schedule + cancel",
        Contender("DelayQueue"),
        AtLeast(20.0),
    ),
    target("timers/1M/schedule + fire", Itself, AtMost(60.0)),
    target(
        "timers/1M/schedule + fire",
        Contender("DelayQueue"),
        AtLeast(10.0),
    ),
];
