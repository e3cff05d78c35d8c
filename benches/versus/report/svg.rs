//! Drawing: colours for light and dark, and few words in the file.

use std::error::Error;

use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{PathElement, Rectangle};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontDesc, FontFamily, FontStyle, RGBColor, TextStyle};
use tenure_benches::measure::Kind;

/// What may go wrong. In memory, nothing does.
pub(super) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Text, and whiskers.
pub(super) const INK: RGBColor = RGBColor(0x1F, 0x23, 0x28);
/// Labels of less weight.
pub(super) const FAINT: RGBColor = RGBColor(0x65, 0x6D, 0x76);
/// Lines behind.
pub(super) const GRID: RGBColor = RGBColor(0xE1, 0xE4, 0xE8);
const PAPER: RGBColor = RGBColor(0xFF, 0xFF, 0xFF);

/// The colours above where the reader prefers a dark page. Those of the kinds go with both.
pub(super) const DARK: &str = "@media (prefers-color-scheme: dark) {\
    [fill=\"#1F2328\"] { fill: #E6EDF3 } [stroke=\"#1F2328\"] { stroke: #E6EDF3 }\
    [fill=\"#656D76\"] { fill: #9DA7B3 }\
    [stroke=\"#E1E4E8\"] { stroke: #30363D } [fill=\"#FFFFFF\"] { fill: #0D1117 } }";

/// The colour of a kind.
pub(super) const fn colour(kind: Kind) -> RGBColor {
    match kind {
        Kind::Tenure => RGBColor(0xE8, 0x59, 0x0C),
        Kind::TenureOtherwise => RGBColor(0xF0, 0x9A, 0x5B),
        Kind::Coarse => RGBColor(0x3B, 0x7D, 0xC4),
        Kind::Instant => RGBColor(0x7F, 0xAE, 0xDB),
        Kind::Product => RGBColor(0x94, 0x7E, 0xB8),
        Kind::Floor => RGBColor(0x37, 0x9A, 0x55),
    }
}

/// The same for a style sheet.
pub(super) fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

/// Font size in pixels.
const SIZE: f64 = 13.0;
/// What the backend divides sizes by.
const EM: f64 = 1.24;

/// About how wide a text of so many characters is.
pub(super) const fn width_of(characters: usize) -> f64 {
    characters as f64 * SIZE * 0.6
}

/// Where a text is anchored.
#[derive(Clone, Copy, Debug)]
pub(super) enum At {
    Left,
    Middle,
    Right,
}

/// A page to draw on, in pixels from the upper left.
pub(super) struct Canvas<'s> {
    area: DrawingArea<SVGBackend<'s>, Shift>,
}

/// Draws a picture of that size, described by `label` to those who can't see it.
pub(super) fn draw(
    (width, height): (f64, f64),
    label: &str,
    paint: impl FnOnce(&Canvas<'_>) -> Result<()>,
) -> Result<String> {
    let mut svg = String::new();
    let backend = SVGBackend::with_string(&mut svg, (width as u32, height as u32));
    let canvas = Canvas {
        area: backend.into_drawing_area(),
    };
    canvas.area.fill(&PAPER)?;
    paint(&canvas)?;
    canvas.area.present()?;
    drop(canvas);
    // What every element repeats, said once.
    let svg = svg
        .replace(" opacity=\"1\"", "")
        .replace(" stroke=\"none\"", "")
        .replace(" font-family=\"sans-serif\"", "")
        .replace(&format!(" font-size=\"{}\"", SIZE * EM / EM), "")
        .replace(">\n", ">")
        .replace("\n</text>", "</text>");
    let label = label.replace('&', "&amp;").replace('"', "&quot;");
    let start = format!(
        "<svg role=\"img\" aria-label=\"{label}\" font-family=\"system-ui, sans-serif\" font-size=\"{SIZE}\" "
    );
    Ok(svg.replacen("<svg ", &start, 1))
}

/// The picture as a file of its own, which knows dark pages too.
pub(super) fn file(svg: &str) -> String {
    svg.replacen('>', &format!("><style>{DARK}</style>"), 1) + "\n"
}

const fn at(x: f64, y: f64) -> (i32, i32) {
    (x as i32, y as i32)
}

impl Canvas<'_> {
    /// A filled rectangle.
    pub(super) fn rectangle(
        &self,
        (left, top): (f64, f64),
        (right, bottom): (f64, f64),
        colour: &impl Color,
    ) -> Result<()> {
        let corners = [at(left, top), at(right, bottom)];
        self.area.draw(&Rectangle::new(corners, colour.filled()))?;
        Ok(())
    }

    pub(super) fn line(&self, from: (f64, f64), to: (f64, f64), colour: &impl Color) -> Result<()> {
        let points = [at(from.0, from.1), at(to.0, to.1)];
        self.area
            .draw(&PathElement::new(points, colour.stroke_width(1)))?;
        Ok(())
    }

    /// A text, vertically in the middle.
    pub(super) fn text(
        &self,
        text: &str,
        (x, y): (f64, f64),
        anchor: At,
        colour: RGBColor,
        bold: bool,
    ) -> Result<()> {
        let style = if bold {
            FontStyle::Bold
        } else {
            FontStyle::Normal
        };
        let horizontal = match anchor {
            At::Left => HPos::Left,
            At::Middle => HPos::Center,
            At::Right => HPos::Right,
        };
        let font = FontDesc::new(FontFamily::SansSerif, SIZE * EM, style);
        let style = TextStyle::from(font)
            .color(&colour)
            .pos(Pos::new(horizontal, VPos::Center));
        self.area.draw_text(text, &style, at(x, y))?;
        Ok(())
    }
}
