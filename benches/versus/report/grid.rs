//! A chart of several numbers of all contenders: a column for each number, a line for each contender.

use plotters::style::Color;
use tenure_benches::measure::Kind;

use super::format::{metric, number, times, wrap};
use super::scale::Scale;
use super::svg::{At, FAINT, GRID, INK, Result, colour, draw, width_of};
use super::view::{Section, Who, contenders, find, metrics};
use crate::rows::{Entry, NS};

const LINE: f64 = 21.0;
const HEAD_LINE: f64 = 16.0;
const CELL: f64 = 86.0;
const GAP: f64 = 6.0;
/// Characters in a line of a column's head.
const HEAD: usize = 11;

/// A number of each contender, in their order.
type Cells<'r> = Vec<Option<&'r Entry>>;

/// A column. The bars of one column share a scale.
struct Column<'r> {
    head: Vec<String>,
    cells: Cells<'r>,
    scale: Scale,
}

/// Whether there is more than one number to show side by side.
pub(super) fn has_columns(section: &Section<'_>) -> bool {
    if section.is_alone() {
        metrics(section.rows[0]).len() > 1
    } else {
        section.rows.len() > 1
    }
}

/// The rows of a section side by side, as times of the crate's own; or the metrics of its only row, as
/// they are.
pub(super) fn grid(section: &Section<'_>) -> Result<String> {
    let alone = section.is_alone();
    let names = if alone {
        metrics(section.rows[0])
    } else {
        vec![NS]
    };
    let whos = contenders(&section.rows, &names);
    let columns: Vec<(String, Cells<'_>)> = if alone {
        let row = section.rows[0];
        let cells = |name: &str| whos.iter().map(|who| find(row, who.name, name)).collect();
        let column = |name: &&'static str| (metric(name), cells(name));
        names.iter().map(column).collect()
    } else {
        let rows = section.rows.iter();
        rows.map(|row| {
            let cells = whos.iter().map(|who| find(row, who.name, NS));
            (section.short_name(row), cells.collect())
        })
        .collect()
    };
    let columns = scaled(columns, !alone);
    let text = |entry: &Entry| match entry.to_tenure {
        Some(ratio) if !alone && entry.kind != Kind::Tenure => times(ratio),
        _ => number(entry.median),
    };
    let label = format!("{}, all contenders", section.name);
    paint(&label, &whos, &columns, &text)
}

/// The columns with their scales: the same for all of them, or one for each.
fn scaled(columns: Vec<(String, Cells<'_>)>, common: bool) -> Vec<Column<'_>> {
    let values = |cells: &[Option<&Entry>]| {
        let medians = cells.iter().flatten().map(|entry| entry.median);
        medians
            .filter(|median| median.is_finite())
            .collect::<Vec<_>>()
    };
    let all = columns.iter().flat_map(|(_, cells)| values(cells));
    let all = Scale::of(all, 0.0, CELL - GAP);
    let scale = |cells: &[Option<&Entry>]| {
        if common {
            all
        } else {
            Scale::of(values(cells).into_iter(), 0.0, CELL - GAP)
        }
    };
    columns
        .into_iter()
        .map(|(head, cells)| Column {
            head: wrap(&head, HEAD),
            scale: scale(&cells),
            cells,
        })
        .collect()
}

fn paint(
    label: &str,
    whos: &[Who],
    columns: &[Column<'_>],
    text: &dyn Fn(&Entry) -> String,
) -> Result<String> {
    let names = whos.iter().map(|who| who.name.chars().count());
    let left = width_of(names.max().unwrap_or(0)) + 14.0;
    let heads = columns.iter().map(|column| column.head.len());
    let top = 6.0 + HEAD_LINE * heads.max().unwrap_or(0) as f64 + 4.0;
    let bottom = top + LINE * whos.len() as f64;
    let size = (left + CELL * columns.len() as f64 + 4.0, bottom + 6.0);
    draw(size, label, |canvas| {
        for (at, who) in whos.iter().enumerate() {
            let y = top + LINE * (at as f64 + 0.5);
            let ours = who.kind == Kind::Tenure;
            canvas.text(who.name, (left - GAP - 2.0, y), At::Right, INK, ours)?;
        }
        for (at, column) in columns.iter().enumerate() {
            let x = left + CELL * at as f64;
            for (line, text) in column.head.iter().rev().enumerate() {
                let y = top - 6.0 - HEAD_LINE * (line as f64 + 0.5);
                canvas.text(text, (x + 3.0, y), At::Left, FAINT, false)?;
            }
            canvas.line((x, top), (x, bottom), &GRID)?;
            for (line, (entry, who)) in column.cells.iter().zip(whos).enumerate() {
                let Some(entry) = entry else { continue };
                let y = top + LINE * line as f64;
                let end = x + column.scale.at(entry.median).max(1.0);
                // The text on it has to be read on light and on dark pages.
                let colour = colour(who.kind).mix(0.55);
                canvas.rectangle((x, y + 2.0), (end, y + LINE - 2.0), &colour)?;
                let ours = who.kind == Kind::Tenure;
                let middle = (x + 3.0, y + LINE / 2.0);
                canvas.text(&text(entry), middle, At::Left, INK, ours)?;
            }
        }
        Ok(())
    })
}
