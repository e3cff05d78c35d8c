//! What of the rows is shown, and in which order; the same in every form of the report.

use tenure_benches::measure::Kind;

use super::format::{NONE, metric, number, times};
use crate::rows::{DISTURBED, Entry, NS, PER_US, Row, SUCCEEDED};

/// A contender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Who {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
}

/// A table of contenders.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) heads: Vec<String>,
    pub(super) lines: Vec<(Who, Vec<String>)>,
}

/// Rows that fit into one table, and into one chart.
#[derive(Debug)]
pub(super) struct Section<'r> {
    /// What their names begin with.
    pub(super) name: String,
    pub(super) rows: Vec<&'r Row>,
}

/// How a kind is described.
pub(super) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Tenure => "tenure",
        Kind::TenureOtherwise => "tenure, used in another way",
        Kind::Coarse => "written by hand, with the coarse clock",
        Kind::Instant => "written by hand, with Instant::now",
        Kind::Product => "a product",
        Kind::Floor => "a floor: what the hardware takes at the least",
    }
}

/// What tells of the circumstances of a measurement, where time is what was measured.
const CIRCUMSTANCES: [&str; 3] = [PER_US, SUCCEEDED, DISTURBED];

/// What was measured in a row, in its order.
pub(super) fn metrics(row: &Row) -> Vec<&'static str> {
    let timed = row.of_metric(NS).next().is_some();
    let mut metrics = vec![];
    for entry in &row.entries {
        let aside = timed && CIRCUMSTANCES.contains(&entry.metric);
        if !aside && !metrics.contains(&entry.metric) {
            metrics.push(entry.metric);
        }
    }
    metrics
}

/// Whether nothing but time was measured.
pub(super) fn is_plain(row: &Row) -> bool {
    metrics(row) == [NS]
}

/// Whether there are too many metrics to describe each with quartiles and ratios.
pub(super) fn is_wide(row: &Row) -> bool {
    metrics(row).len() > 3
}

/// What is worth telling of the circumstances.
fn telling(row: &Row) -> Vec<&'static str> {
    let of = |name: &'static str, tells: &dyn Fn(&Entry) -> bool| {
        row.of_metric(name).any(tells).then_some(name)
    };
    if row.of_metric(NS).next().is_none() {
        return vec![];
    }
    // On one thread, the rate is nothing but the inverse.
    let differs = |rate: &Entry| {
        let nanos = find(row, rate.contender, NS);
        nanos.is_some_and(|nanos| (rate.median * nanos.median / 1000.0 - 1.0).abs() > 0.25)
    };
    [
        of(PER_US, &differs),
        of(SUCCEEDED, &|share| share.median < 99.5),
        of(DISTURBED, &|share| share.median > 5.0),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A contender's number.
pub(super) fn find<'r>(row: &'r Row, contender: &str, metric: &str) -> Option<&'r Entry> {
    row.of_metric(metric)
        .find(|entry| entry.contender == contender)
}

/// The contenders of some rows: floors first, then the others as they compare with the crate.
pub(super) fn contenders(rows: &[&Row], metrics: &[&str]) -> Vec<Who> {
    let mut ranked: Vec<(Who, f64, f64)> = vec![];
    let entries = rows.iter().flat_map(|row| &row.entries);
    for entry in entries.filter(|entry| metrics.contains(&entry.metric)) {
        let who = Who {
            name: entry.contender,
            kind: entry.kind,
        };
        // Without the crate, as they are.
        let ratio = entry.to_tenure.unwrap_or(entry.median).ln();
        let ratio = if ratio.is_finite() { ratio } else { 0.0 };
        match ranked.iter_mut().find(|(known, ..)| *known == who) {
            Some((_, sum, count)) => {
                *sum += ratio;
                *count += 1.0;
            }
            None => ranked.push((who, ratio, 1.0)),
        }
    }
    ranked.sort_by(|(a, sum, count), (b, other_sum, other_count)| {
        let floors_first = (a.kind != Kind::Floor).cmp(&(b.kind != Kind::Floor));
        floors_first.then((sum / count).total_cmp(&(other_sum / other_count)))
    });
    ranked.into_iter().map(|(who, ..)| who).collect()
}

/// A number with its ratio to the crate's.
pub(super) fn with_ratio(entry: &Entry) -> String {
    match entry.to_tenure {
        Some(ratio) if entry.kind != Kind::Tenure && ratio.is_finite() => {
            format!("{} ({})", number(entry.median), times(ratio))
        }
        _ => number(entry.median),
    }
}

/// A row as a table.
pub(super) fn table(row: &Row) -> Table {
    type Cell = Box<dyn Fn(&Entry) -> String>;
    let mut columns: Vec<(String, &'static str, Cell)> = vec![];
    let mains = metrics(row);
    let wide = is_wide(row);
    for name in &mains {
        if wide {
            columns.push((metric(name), name, Box::new(with_ratio)));
            continue;
        }
        columns.push((metric(name), name, Box::new(|entry| number(entry.median))));
        if row.of_metric(name).any(|entry| entry.rounds > 1) {
            columns.push(("quartiles".into(), name, Box::new(quartiles)));
        }
        let ratio = |ratio: Option<f64>| ratio.map_or(NONE.into(), times);
        if row.of_metric(name).any(|entry| entry.to_tenure.is_some()) {
            let cell = Box::new(move |entry: &Entry| ratio(entry.to_tenure));
            columns.push(("to tenure".into(), name, cell));
        }
        if row.of_metric(name).any(|entry| entry.to_floor.is_some()) {
            let cell = Box::new(move |entry: &Entry| ratio(entry.to_floor));
            columns.push(("to floor".into(), name, cell));
        }
    }
    for name in telling(row) {
        let cell: Cell = match name {
            PER_US => Box::new(|entry| number(entry.median)),
            _ => Box::new(|entry| format!("{:.0}", entry.median)),
        };
        columns.push((metric(name), name, cell));
    }
    let line = |who: Who| {
        let cells = columns.iter().map(|(_, name, cell)| {
            let entry = find(row, who.name, name);
            entry.map_or(NONE.into(), cell)
        });
        (who, cells.collect())
    };
    // In the order of what was measured first.
    let first = &mains[..mains.len().min(1)];
    let mut whos = contenders(&[row], first);
    for who in contenders(&[row], &mains) {
        if !whos.contains(&who) {
            whos.push(who);
        }
    }
    Table {
        lines: whos.into_iter().map(line).collect(),
        heads: columns.into_iter().map(|(head, ..)| head).collect(),
    }
}

fn quartiles(entry: &Entry) -> String {
    let (lower, upper) = (entry.lower_quartile, entry.upper_quartile);
    format!("{} to {}", number(lower), number(upper))
}

/// The rows by what fits into one table. Those with more metrics than time stand alone.
pub(super) fn sections(rows: &[Row]) -> Vec<Section<'_>> {
    let mut sections: Vec<Section<'_>> = vec![];
    for row in rows {
        if !is_plain(row) {
            sections.push(Section {
                name: row.name.clone(),
                rows: vec![row],
            });
            continue;
        }
        let parts: Vec<_> = row.name.split('/').collect();
        // `pair/shared/uniform/1k/2t` is one of `pair/shared/uniform`.
        let name = parts[..parts.len().saturating_sub(2).max(1)].join("/");
        let name = if parts.len() > 3 {
            name
        } else {
            parts[0].into()
        };
        match sections.iter_mut().find(|section| section.name == name) {
            Some(section) => section.rows.push(row),
            None => sections.push(Section {
                name,
                rows: vec![row],
            }),
        }
    }
    for section in &mut sections {
        section.lengthen_name();
    }
    sections
}

impl Section<'_> {
    /// Takes into the name what is the same in all rows: `held/1M`.
    fn lengthen_name(&mut self) {
        while let [first, _, ..] = self.rows[..] {
            let rest = first.name[self.name.len()..].trim_start_matches('/');
            let Some((part, _)) = rest.split_once('/') else {
                break;
            };
            let longer = format!("{}/{part}", self.name);
            let start = format!("{longer}/");
            if !self.rows.iter().all(|row| row.name.starts_with(&start)) {
                break;
            }
            self.name = longer;
        }
    }

    /// A row's name within the section.
    pub(super) fn short_name(&self, row: &Row) -> String {
        let rest = row.name.strip_prefix(&self.name).unwrap_or(&row.name);
        let rest = rest.trim_start_matches('/');
        let name = if rest.is_empty() { &row.name } else { rest };
        name.replace('/', ", ")
    }

    /// Whether it is one row with metrics of its own.
    pub(super) fn is_alone(&self) -> bool {
        matches!(self.rows[..], [row] if !is_plain(row))
    }

    /// Its rows side by side, each with a number and the ratio; or its metrics, if it is one row with
    /// many.
    pub(super) fn table(&self) -> Table {
        if self.is_alone() {
            return table(self.rows[0]);
        }
        let line = |who: Who| {
            let cell = |row: &&Row| find(row, who.name, NS).map_or(NONE.into(), with_ratio);
            (who, self.rows.iter().map(cell).collect())
        };
        let whos = contenders(&self.rows, &[NS]);
        Table {
            heads: self.rows.iter().map(|row| self.short_name(row)).collect(),
            lines: whos.into_iter().map(line).collect(),
        }
    }
}
