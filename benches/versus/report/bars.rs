//! A chart of one number of all contenders.

use plotters::style::Color;
use tenure_benches::measure::Kind;

use super::format::{metric, tick};
use super::scale::Scale;
use super::svg::{At, FAINT, GRID, INK, Result, colour, draw, width_of};
use super::view::{contenders, find, with_ratio};
use crate::rows::{Entry, Row};

const LINE: f64 = 22.0;
const TOP: f64 = 6.0;
const BAR: f64 = 14.0;
/// The part of the width between the names and the numbers.
const PLOT: f64 = 270.0;
/// For the axis.
const BOTTOM: f64 = 44.0;
/// Between a bar and its number.
const GAP: f64 = 8.0;

/// Horizontal bars with quartiles as whiskers, and a line at the first floor.
pub(super) fn bars(row: &Row, name: &str) -> Result<String> {
    let whos = contenders(&[row], &[name]);
    let entries: Vec<&Entry> = whos
        .iter()
        .filter_map(|who| find(row, who.name, name))
        .collect();
    let names = entries.iter().map(|one| one.contender.chars().count());
    let left = width_of(names.max().unwrap_or(0)) + 14.0;
    let ends = entries.iter().map(|one| with_ratio(one).chars().count());
    let right = left + PLOT;
    let width = right + width_of(ends.max().unwrap_or(0)) + 2.0 * GAP;
    let ends = |entry: &&Entry| [entry.median, entry.lower_quartile, entry.upper_quartile];
    let scale = Scale::of(entries.iter().flat_map(ends), left, right);
    let bottom = TOP + LINE * entries.len() as f64;
    let label = format!("{}, {}", row.name, metric(name));
    draw((width, bottom + BOTTOM), &label, |canvas| {
        let mut free = f64::NEG_INFINITY;
        for value in scale.ticks() {
            let (x, text) = (scale.at(value), tick(value));
            let half = width_of(text.chars().count()) / 2.0;
            canvas.line((x, TOP), (x, bottom + 4.0), &GRID)?;
            if x - half >= free {
                canvas.text(&text, (x, bottom + 14.0), At::Middle, FAINT, false)?;
                free = x + half + GAP;
            }
        }
        let how = if scale.is_logarithmic() {
            ", logarithmic scale"
        } else {
            ""
        };
        let middle = f64::midpoint(left, right);
        let caption = format!("{}{how}", metric(name));
        canvas.text(&caption, (middle, bottom + 33.0), At::Middle, FAINT, false)?;
        for (at, entry) in entries.iter().enumerate() {
            let y = TOP + LINE * (at as f64 + 0.5);
            let end = scale.at(entry.median);
            let half = BAR / 2.0;
            canvas.rectangle((left, y - half), (end, y + half), &colour(entry.kind))?;
            let whisker = [entry.lower_quartile, entry.upper_quartile].map(|one| scale.at(one));
            if entry.rounds > 1 {
                canvas.line((whisker[0], y), (whisker[1], y), &INK)?;
                for x in whisker {
                    canvas.line((x, y - 3.0), (x, y + 3.0), &INK)?;
                }
            }
            let ours = entry.kind == Kind::Tenure;
            canvas.text(entry.contender, (left - GAP, y), At::Right, INK, ours)?;
            let x = whisker[1].max(end) + GAP;
            canvas.text(&with_ratio(entry), (x, y), At::Left, INK, ours)?;
        }
        if let Some(floor) = entries.iter().find(|entry| entry.kind == Kind::Floor) {
            let x = scale.at(floor.median);
            canvas.line((x, TOP), (x, bottom), &colour(Kind::Floor).mix(0.8))?;
        }
        Ok(())
    })
}
