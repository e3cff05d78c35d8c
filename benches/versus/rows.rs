//! What was measured, and the statistics of it.

use serde::Serialize;
use tenure_benches::measure::statistics::{calmest, quantile};
use tenure_benches::measure::{Kind, Track};

/// Nanoseconds of one thread for an operation.
pub(crate) const NS: &str = "ns";
/// Operations of all threads in a microsecond, by the wall clock.
pub(crate) const PER_US: &str = "per_us";
/// The share of operations that said yes.
pub(crate) const SUCCEEDED: &str = "succeeded_percent";
/// The share of the time that threads waited for a processor or were not together.
pub(crate) const DISTURBED: &str = "disturbed_percent";

/// One measurement of several contenders.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// For example `pair/shared/uniform/1k/2t`.
    pub(crate) name: String,
    /// Its first part.
    pub(crate) workload: &'static str,
    /// What one operation is.
    pub(crate) operation: &'static str,
    pub(crate) entries: Vec<Entry>,
}

/// One number of one contender.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Entry {
    pub(crate) contender: &'static str,
    pub(crate) kind: Kind,
    /// What the number is, with its unit: [`NS`], for example.
    pub(crate) metric: &'static str,
    /// Over the rounds that count.
    pub(crate) median: f64,
    pub(crate) lower_quartile: f64,
    pub(crate) upper_quartile: f64,
    /// How many rounds count.
    pub(crate) rounds: usize,
    /// The median of the ratios within a round to the crate's own number.
    pub(crate) to_tenure: Option<f64>,
    /// The same to the first floor of the row.
    pub(crate) to_floor: Option<f64>,
}

/// The values of one number of one contender, by round.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) contender: &'static str,
    pub(crate) kind: Kind,
    pub(crate) metric: &'static str,
    pub(crate) values: Vec<f64>,
}

impl Series {
    fn median(&self) -> f64 {
        quantile(&self.values, 0.5)
    }

    /// The median of the ratios to `other`, each of them within a round.
    fn ratio(&self, other: &Self) -> f64 {
        let rounds = self.values.iter().zip(&other.values);
        let ratios: Vec<f64> = rounds.map(|(mine, its)| mine / its).collect();
        quantile(&ratios, 0.5)
    }
}

/// The series of operations that took turns: of their calmest third of rounds.
pub(crate) fn series_of(tracks: &[Track]) -> Vec<Series> {
    let calm = calmest(tracks);
    let of = |track: &Track, metric, values: &[f64]| Series {
        contender: track.name,
        kind: track.kind,
        metric,
        values: calm.iter().map(|round| values[*round]).collect(),
    };
    tracks
        .iter()
        .flat_map(|track| {
            let percent =
                |shares: &[f64]| -> Vec<f64> { shares.iter().map(|share| 100.0 * share).collect() };
            [
                of(track, NS, &track.nanos),
                of(track, PER_US, &track.rates),
                of(track, SUCCEEDED, &percent(&track.success_rates)),
                of(track, DISTURBED, &percent(&track.disturbances)),
            ]
        })
        .collect()
}

impl Row {
    pub(crate) fn new(
        workload: &'static str,
        name: String,
        operation: &'static str,
        series: &[Series],
    ) -> Self {
        let of_kind = |kind: Kind, metric: &str| {
            let mut all = series.iter();
            all.find(|series| series.kind == kind && series.metric == metric)
        };
        let entries = series.iter().map(|one| {
            let tenure = of_kind(Kind::Tenure, one.metric);
            let floor = of_kind(Kind::Floor, one.metric);
            Entry {
                contender: one.contender,
                kind: one.kind,
                metric: one.metric,
                median: one.median(),
                lower_quartile: quantile(&one.values, 0.25),
                upper_quartile: quantile(&one.values, 0.75),
                rounds: one.values.len(),
                to_tenure: tenure.map(|tenure| one.ratio(tenure)),
                to_floor: floor.map(|floor| one.ratio(floor)),
            }
        });
        Self {
            workload,
            name,
            operation,
            entries: entries.collect(),
        }
    }

    /// The crate's own entry of that metric.
    pub(crate) fn tenure(&self, metric: &str) -> Option<&Entry> {
        self.of_metric(metric)
            .find(|entry| entry.kind == Kind::Tenure)
    }

    pub(crate) fn of_metric(&self, metric: &str) -> impl Iterator<Item = &Entry> {
        let entries = self.entries.iter();
        entries.filter(move |entry| entry.metric == metric)
    }
}
