//! What a run has to say: as text, as JSON.

use std::io::{self, Write};

use serde::Serialize;

use crate::rows::{NS, Row};
use crate::targets::Verdict;

/// A whole run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) rows: Vec<Row>,
    pub(crate) targets: Vec<Verdict>,
}

impl Report {
    /// Writes the tables for people.
    pub(crate) fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        for row in &self.rows {
            writeln!(out, "\n{} ({})", row.name, row.operation)?;
            for entry in &row.entries {
                let ratio =
                    |ratio: Option<f64>| ratio.map_or("-".into(), |ratio| format!("{ratio:.2}"));
                if entry.metric != "disturbed_percent" || entry.median > 0.05 {
                    writeln!(
                        out,
                        "  {:<28}{:>24}{:>12.2}  ({:.2} to {:.2})  x tenure {:>8}  x floor {:>8}",
                        entry.contender,
                        entry.metric,
                        entry.median,
                        entry.lower_quartile,
                        entry.upper_quartile,
                        ratio(entry.to_tenure),
                        ratio(entry.to_floor),
                    )?;
                }
            }
        }
        writeln!(out)?;
        for verdict in &self.targets {
            let word = match (verdict.met, verdict.stretch_met) {
                (true, true) => "met, and the stretch",
                (true, false) => "met",
                (false, _) => "MISSED",
            };
            let unit = if verdict.metric == NS {
                ""
            } else {
                verdict.metric
            };
            writeln!(
                out,
                "{:<30}{:<44}{:>9.2}  {:<9}{word} {unit}",
                verdict.row, verdict.ratio, verdict.value, verdict.target
            )?;
        }
        Ok(())
    }
}
