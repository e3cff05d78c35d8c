//! The samples, drawn: memory and throughput above, the latencies of each kind below.

use std::io;
use std::ops::Range;

use plotters::backend::SVGBackend;
use plotters::chart::ChartBuilder;
use plotters::coord::Shift;
use plotters::coord::combinators::IntoLogRange;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::Rectangle;
use plotters::series::LineSeries;
use plotters::style::{Color, IntoFont, RGBColor, ShapeStyle, TextStyle};

use super::pulse::{KINDS, Quantiles};
use super::report::{Report, exact};
use super::samples::Sample;
use super::trend;

const PAPER: RGBColor = RGBColor(0xFF, 0xFF, 0xFF);
const INK: RGBColor = RGBColor(0x1F, 0x23, 0x28);
const FAINT: RGBColor = RGBColor(0x65, 0x6D, 0x76);
const GRID: RGBColor = RGBColor(0xE1, 0xE4, 0xE8);
const ORANGE: RGBColor = RGBColor(0xE8, 0x59, 0x0C);
const BLUE: RGBColor = RGBColor(0x3B, 0x7D, 0xC4);
const VIOLET: RGBColor = RGBColor(0x94, 0x7E, 0xB8);
const GREY: RGBColor = RGBColor(0xA8, 0xB0, 0xB8);
/// The colours above where the reader prefers a dark page. The others go with both.
const DARK: &str = "@media (prefers-color-scheme: dark) {\
    [fill=\"#1F2328\"] { fill: #E6EDF3 } [fill=\"#656D76\"] { fill: #9DA7B3 }\
    [stroke=\"#E1E4E8\"] { stroke: #30363D } [fill=\"#FFFFFF\"] { fill: #0D1117 } }";

const SIZE: (u32, u32) = (1200, 980);
/// The right edge of a panel's legend.
const RIGHT: i32 = 388;
/// More points than these are not told apart in a panel's width.
const POINTS: usize = 150;
const TITLE: i32 = 14;
const LABEL: i32 = 11;

type Area<'s> = DrawingArea<SVGBackend<'s>, Shift>;
type Drawn<T> = Result<T, DrawingAreaErrorKind<io::Error>>;
/// A line: its name, its colour, and its points.
type Line = (&'static str, RGBColor, Vec<(f64, f64)>);

/// An SVG of everything.
///
/// # Errors
///
/// None that is known: it is drawn in memory.
pub(super) fn draw(report: &Report) -> io::Result<String> {
    let mut svg = String::new();
    {
        let page = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        paint(&page, &report.samples).map_err(io::Error::other)?;
    }
    let style = format!(" font-family=\"system-ui, sans-serif\"><style>{DARK}</style>");
    let svg = svg
        .replace(" opacity=\"1\"", "")
        .replace(" stroke=\"none\"", "")
        .replace(" font-family=\"sans-serif\"", "")
        .replace(">\n", ">")
        .replace("\n</text>", "</text>");
    Ok(svg.replacen('>', &style, 1) + "\n")
}

fn paint(page: &Area<'_>, samples: &[Sample]) -> Drawn<()> {
    page.fill(&PAPER)?;
    let panels = page.split_evenly((4, 3));
    let end = samples.last().map_or(1.0, |last| last.second);
    let seconds = 0.0..end.max(1.0);
    let mebibytes = |bytes: u64| exact(bytes) / 1024.0 / 1024.0;
    let linear: [(&str, Vec<Line>); 3] = [
        (
            "memory, MiB",
            vec![
                line("resident", ORANGE, samples, trend::median, |sample| {
                    sample.resident_bytes.map(mebibytes)
                }),
                line("allocated", VIOLET, samples, trend::median, |sample| {
                    Some(mebibytes(sample.heap_bytes))
                }),
                line("manager's", BLUE, samples, trend::median, |sample| {
                    Some(mebibytes(sample.manager_bytes))
                }),
            ],
        ),
        (
            "each second",
            vec![
                line("grants", ORANGE, samples, trend::median, |sample| {
                    Some(exact(sample.grants_per_s))
                }),
                line("expiries", BLUE, samples, trend::median, |sample| {
                    Some(exact(sample.expiries_per_s))
                }),
            ],
        ),
        (
            "in the table",
            vec![
                line("buckets", ORANGE, samples, highest, |sample| {
                    Some(exact(sample.buckets))
                }),
                line("leases out", BLUE, samples, highest, |sample| {
                    Some(exact(sample.leases))
                }),
            ],
        ),
    ];
    for (panel, (title, lines)) in panels.iter().zip(linear) {
        let top = bounds(&lines).map_or(1.0, |bounds| 1.1 * bounds.end.max(1.0));
        panel_of(panel, title, seconds.clone(), 0.0..top, &lines)?;
    }
    for (kind, (panel, (_, name))) in panels[3..].iter().zip(KINDS).enumerate() {
        let quantile = |name, colour, of: fn(&[f64]) -> f64, what: fn(&Quantiles) -> u64| {
            line(name, colour, samples, of, move |sample| {
                Some(exact(what(sample.latency[kind].as_ref()?)) / 1e3)
            })
        };
        let lines = [
            quantile("max", GREY, highest, |told| told.max_ns),
            quantile("99.9 %", VIOLET, trend::median, |told| told.p999_ns),
            quantile("99 %", BLUE, trend::median, |told| told.p99_ns),
            quantile("median", ORANGE, trend::median, |told| told.p50_ns),
        ];
        let bounds = bounds(&lines).unwrap_or(1.0..10.0);
        // Whole powers of ten, at least one.
        let low = bounds.start.max(1e-3).log10().floor();
        let high = bounds.end.log10().ceil().max(low + 1.0);
        let range = 10_f64.powf(low)..10_f64.powf(high);
        let title = format!("{name}, µs");
        panel_of(panel, &title, seconds.clone(), range.log_scale(), &lines)?;
    }
    page.present()
}

/// A line through the samples, each window of them made one point.
fn line(
    name: &'static str,
    colour: RGBColor,
    samples: &[Sample],
    of: fn(&[f64]) -> f64,
    what: impl Fn(&Sample) -> Option<f64>,
) -> Line {
    let width = samples.len().div_ceil(POINTS).max(1);
    let windows = samples.chunks(width).filter_map(|window| {
        let values: Vec<f64> = window.iter().filter_map(&what).collect();
        let middle = &window[window.len() / 2];
        (!values.is_empty()).then(|| (middle.second, of(&values)))
    });
    (name, colour, windows.collect())
}

fn highest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// From the least value to the greatest.
fn bounds(lines: &[Line]) -> Option<Range<f64>> {
    let values = lines.iter().flat_map(|line| &line.2).map(|point| point.1);
    values.fold(None, |bounds: Option<Range<f64>>, value| {
        let bounds = bounds.unwrap_or(value..value);
        Some(bounds.start.min(value)..bounds.end.max(value))
    })
}

fn text(size: i32, colour: RGBColor) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&colour)
}

fn panel_of<Y>(panel: &Area<'_>, title: &str, x: Range<f64>, y: Y, lines: &[Line]) -> Drawn<()>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(panel)
        .margin(10)
        .margin_top(26)
        .x_label_area_size(18)
        .y_label_area_size(52)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(ShapeStyle::from(&GRID).stroke_width(0))
        .bold_line_style(GRID)
        .axis_style(GRID)
        .label_style(text(LABEL, FAINT))
        .x_labels(5)
        .y_labels(5)
        .x_label_formatter(&|second| format!("{second:.0} s"))
        .y_label_formatter(&|value| number(*value))
        .draw()?;
    for (_, colour, points) in lines {
        chart.draw_series(LineSeries::new(points.iter().copied(), colour))?;
    }
    panel.draw_text(title, &text(TITLE, INK), (62, 8))?;
    let mut right = RIGHT;
    for (name, colour, _) in lines {
        right -= name.chars().map(|_| 6).sum::<i32>() + 2;
        panel.draw_text(name, &text(LABEL, FAINT), (right, 10))?;
        let key = [(right - 12, 12), (right - 4, 18)];
        panel.draw(&Rectangle::new(key, colour.filled()))?;
        right -= 22;
    }
    Ok(())
}

/// A number in a few characters.
fn number(value: f64) -> String {
    match value {
        1e6.. => format!("{} M", value / 1e6),
        1e4.. => format!("{} k", value / 1e3),
        _ => format!("{}", (value * 1e6).round() / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_become_one_point_each() {
        let samples: Vec<Sample> = vec![];
        let (_, _, points) = line("none", INK, &samples, highest, |_| Some(1.0));
        assert!(points.is_empty());
        assert!(bounds(&[("none", INK, points)]).is_none());
        let lines = [("two", INK, vec![(0.0, 3.0), (1.0, -1.0)])];
        assert_eq!(bounds(&lines), Some(-1.0..3.0));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(number(0.01), "0.01");
        assert_eq!(number(20_000.0), "20 k");
        assert_eq!(number(10_000_000.0), "10 M");
    }
}
