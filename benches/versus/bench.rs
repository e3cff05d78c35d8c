//! Runs what is asked for, and collects the rows.

use std::cell::RefCell;
use std::collections::BTreeSet;

use indicatif::{ProgressBar, ProgressStyle};
use tenure_benches::measure::{Budget, Kind, Lane, interleave};

use crate::options::Options;
use crate::rows::{Row, Series, series_of};

/// A contender at a task that is done once in a round: it says what it measured.
pub(crate) struct Trial<'t> {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) run: Box<dyn FnMut(u64) -> Vec<(&'static str, f64)> + 't>,
}

/// A run.
pub(crate) struct Bench {
    pub(crate) options: Options,
    pub(crate) rows: Vec<Row>,
    /// The wanted rows that workloads asked for while they were counted, and not measured.
    counted: Option<RefCell<BTreeSet<String>>>,
    progress: ProgressBar,
}

/// What a row is on the progress bar.
const STEPS: u64 = 1000;

impl Bench {
    pub(crate) fn new(options: Options) -> Self {
        let style = ProgressStyle::with_template("{elapsed} {bar:30} {percent}% {eta} left  {msg}");
        let progress = ProgressBar::no_length().with_style(style.expect("a good template"));
        Self {
            options,
            rows: vec![],
            counted: None,
            progress,
        }
    }

    /// Runs the workloads. Before that, lets them ask for their rows, to know how many there are.
    pub(crate) fn run(&mut self, workloads: impl Iterator<Item = fn(&mut Self)> + Clone) {
        self.counted = Some(RefCell::default());
        for workload in workloads.clone() {
            workload(self);
        }
        let counted = self.counted.take().unwrap_or_default();
        self.progress
            .set_length(counted.borrow().len() as u64 * STEPS);
        for workload in workloads {
            workload(self);
        }
        self.progress.finish_and_clear();
    }

    /// Whether that row is wanted.
    pub(crate) fn wants(&self, name: &str) -> bool {
        let wanted = self.options.wants_row(name);
        match &self.counted {
            Some(counted) => {
                if wanted {
                    counted.borrow_mut().insert(name.into());
                }
                false
            }
            None => wanted,
        }
    }

    /// Measures operations of so many threads by turns of some milliseconds.
    pub(crate) fn slices(
        &mut self,
        workload: &'static str,
        name: String,
        operation: &'static str,
        threads: u64,
        lanes: &[Lane<'_>],
    ) {
        let rounds = self.options.rounds();
        let budget = if self.options.test {
            Budget::Operations(100)
        } else {
            Budget::Time(self.options.slice(lanes.len()))
        };
        let mut turn = self.turns(&name, rounds * lanes.len() as u64);
        let tracks = interleave(lanes, threads, rounds, budget, &mut turn);
        drop(turn);
        let series = series_of(&tracks);
        self.rows.push(Row::new(workload, name, operation, &series));
    }

    /// Lets the contenders do something large by turns, so many rounds.
    pub(crate) fn trials(
        &mut self,
        workload: &'static str,
        name: String,
        operation: &'static str,
        rounds: u64,
        mut trials: Vec<Trial<'_>>,
    ) {
        let mut over = self.turns(&name, rounds * trials.len() as u64);
        let mut series: Vec<Series> = vec![];
        for round in 0..rounds {
            for turn in 0..trials.len() {
                let index = (turn + round as usize) % trials.len();
                let trial = &mut trials[index];
                for (metric, value) in (trial.run)(round) {
                    let same =
                        |one: &&mut Series| one.contender == trial.name && one.metric == metric;
                    match series.iter_mut().find(same) {
                        Some(series) => series.values.push(value),
                        None => series.push(Series {
                            contender: trial.name,
                            kind: trial.kind,
                            metric,
                            values: vec![value],
                        }),
                    }
                }
                over();
            }
        }
        drop(over);
        self.push(workload, name, operation, &series);
    }

    /// Adds a row of what was measured on the way to others.
    pub(crate) fn push(
        &mut self,
        workload: &'static str,
        name: String,
        operation: &'static str,
        series: &[Series],
    ) {
        self.rows.push(Row::new(workload, name, operation, series));
    }

    /// Shows which row it is, and moves on by so many turns until it is over.
    fn turns(&self, name: &str, turns: u64) -> impl FnMut() + use<> {
        let progress = self.progress.clone();
        let start = self.rows.len() as u64 * STEPS;
        progress.set_message(name.to_owned());
        progress.set_position(start);
        let mut done = 0;
        move || {
            done += 1;
            progress.set_position(start + done * STEPS / turns);
        }
    }
}
