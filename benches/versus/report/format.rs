//! How numbers and names are written.

use crate::rows::PER_US;

/// What stands where there is no number.
pub(super) const NONE: &str = "–";

/// A number with three significant digits, and separators between thousands.
pub(super) fn number(value: f64) -> String {
    if !value.is_finite() {
        return NONE.into();
    }
    if value == 0.0 {
        return "0".into();
    }
    let magnitude = value.abs().log10().floor() as i32;
    let step = 10_f64.powi(magnitude - 2);
    let rounded = (value / step).round() * step;
    // Rounding may have carried to the next power of ten.
    let magnitude = (rounded.abs() * (1.0 + f64::EPSILON)).log10().floor() as i32;
    let decimals = usize::try_from(2 - magnitude).unwrap_or(0);
    if decimals > 0 {
        format!("{rounded:.decimals$}")
    } else {
        thousands(rounded)
    }
}

/// A whole number with separators.
fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = if value < 0.0 { "-" } else { "" }.to_owned();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A round number on an axis, as short as it can be.
pub(super) fn tick(value: f64) -> String {
    let (value, unit) = match value {
        1e9.. => (value / 1e9, "G"),
        1e6.. => (value / 1e6, "M"),
        1e3.. => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = number(value);
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    format!("{text}{unit}")
}

/// How many times.
pub(super) fn times(ratio: f64) -> String {
    if ratio.is_finite() {
        format!("{}×", number(ratio))
    } else {
        NONE.into()
    }
}

/// What a metric is called.
pub(super) fn metric(name: &str) -> String {
    if name == PER_US {
        return "per µs".into();
    }
    match name.strip_suffix("_percent") {
        Some(share) => format!("{}, %", share.replace('_', " ")),
        None => name.replace('_', " "),
    }
}

/// A name in lines of about so many characters, broken at spaces.
pub(super) fn wrap(name: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![];
    for word in name.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A name for a file or an anchor.
pub(super) fn slug(name: &str) -> String {
    let mut slug = String::new();
    for letter in name.chars() {
        if letter.is_ascii_alphanumeric() || letter == '.' {
            slug.push(letter);
        } else if !slug.ends_with('-') {
            slug.push('-');
        }
    }
    slug.trim_matches('-').to_owned()
}
