//! Runs what is asked for, and collects the rows.

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
}

impl Bench {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            options,
            rows: vec![],
        }
    }

    /// Whether that row is wanted.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.options.wants_row(name)
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
        let progress = self.progress(&name, rounds * lanes.len() as u64);
        let tracks = interleave(lanes, threads, rounds, budget, || progress.inc(1));
        progress.finish_and_clear();
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
        let progress = self.progress(&name, rounds * trials.len() as u64);
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
                progress.inc(1);
            }
        }
        progress.finish_and_clear();
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

    fn progress(&self, name: &str, turns: u64) -> ProgressBar {
        let style = ProgressStyle::with_template("{msg:40} {bar:30} {pos}/{len} {eta}");
        let bar = ProgressBar::new(turns).with_message(format!("{} {name}", self.rows.len() + 1));
        bar.with_style(style.expect("a good template"))
    }
}
