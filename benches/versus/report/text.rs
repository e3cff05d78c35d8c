//! The report on a terminal.

use std::io::{self, Write};

use super::Report;
use super::format::{metric, number, wrap};
use super::view::{Table, table};
use crate::rows::NS;
use crate::targets::Verdict;

/// Characters in a line of a column's head.
const HEAD: usize = 12;

/// Writes all rows, and the verdicts after them: on a terminal the end is what one sees.
pub(super) fn write(report: &Report, out: &mut impl Write) -> io::Result<()> {
    for row in &report.rows {
        writeln!(out, "\n{}: {}", row.name, row.operation)?;
        write_table(&table(row), out)?;
    }
    write_verdicts(&report.targets, out)
}

fn write_table(table: &Table, out: &mut impl Write) -> io::Result<()> {
    let length = |text: &String| text.chars().count();
    let names = table.lines.iter().map(|(who, _)| who.name.chars().count());
    let first = names.max().unwrap_or(0);
    let heads: Vec<Vec<String>> = table.heads.iter().map(|head| wrap(head, HEAD)).collect();
    let width = |column: usize| {
        let cells = table.lines.iter().map(|(_, cells)| length(&cells[column]));
        let widest = cells.chain(heads[column].iter().map(length)).max();
        widest.unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let height = heads.iter().map(Vec::len).max().unwrap_or(0);
    for line in 0..height {
        write!(out, "  {:first$}", "")?;
        for (head, width) in heads.iter().zip(&widths) {
            // At the bottom.
            let at = (line + head.len()).checked_sub(height);
            let text = at.map_or("", |at| head[at].as_str());
            write!(out, "  {text:>width$}")?;
        }
        writeln!(out)?;
    }
    for (who, cells) in &table.lines {
        write!(out, "  {:first$}", who.name)?;
        for (cell, width) in cells.iter().zip(&widths) {
            write!(out, "  {cell:>width$}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn write_verdicts(verdicts: &[Verdict], out: &mut impl Write) -> io::Result<()> {
    let what = |verdict: &Verdict| {
        if verdict.metric == NS {
            verdict.ratio.clone()
        } else {
            format!("{}, {}", verdict.ratio, metric(verdict.metric))
        }
    };
    let width = |length: &dyn Fn(&Verdict) -> usize| verdicts.iter().map(length).max().unwrap_or(0);
    let rows = width(&|verdict| verdict.row.chars().count());
    let whats = width(&|verdict| what(verdict).chars().count());
    writeln!(out)?;
    for verdict in verdicts {
        writeln!(
            out,
            "{:<rows$}  {:<whats$}{:>9}  {:<9}{}",
            verdict.row,
            what(verdict),
            number(verdict.value),
            verdict.target,
            verdict.word(),
        )?;
    }
    Ok(())
}
