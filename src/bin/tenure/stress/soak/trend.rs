//! Whether a series rises, in spite of noise, and of what rises at the start and then stays.
//!
//! The first tenth is left out: caches fill, threads start, the allocator finds its size. Of the rest the
//! slope is that of Theil and Sen, the median of the slopes between any two points, which a third of the
//! points can't bend, whatever they are. (H. Theil, "A rank-invariant method of linear and polynomial
//! regression analysis", 1950; P. K. Sen, "Estimates of the regression coefficient based on Kendall's
//! tau", 1968.) A series counts as risen only if its last tenth is higher than its second as well.

use serde::Serialize;

/// Series are thinned to so many windows' medians: the slopes are as many as its square.
const WINDOWS: usize = 300;

/// How a series goes.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Trend {
    /// The median of the second tenth.
    pub(super) from: f64,
    /// The median of the last tenth.
    pub(super) to: f64,
    /// What the slope adds up to over the run, without its first tenth.
    pub(super) rise: f64,
}

impl Trend {
    /// `None` if there are fewer than ten points.
    pub(super) fn of(series: &[f64]) -> Option<Self> {
        let tenth = series.len() / 10;
        if tenth == 0 {
            return None;
        }
        let rest = &series[tenth..];
        Some(Self {
            from: median(&rest[..tenth]),
            to: median(&rest[rest.len() - tenth..]),
            rise: slope(&windows(rest, WINDOWS)),
        })
    }

    /// Whether it has risen by more than that.
    pub(super) fn exceeds(&self, tolerance: f64) -> bool {
        self.rise > tolerance && self.to - self.from > tolerance
    }
}

/// The medians of so many windows at most.
pub(super) fn windows(series: &[f64], most: usize) -> Vec<f64> {
    let width = series.len().div_ceil(most).max(1);
    series.chunks(width).map(median).collect()
}

/// The median slope over the whole length.
fn slope(points: &[f64]) -> f64 {
    let mut slopes = vec![];
    for (at, first) in points.iter().enumerate() {
        for (distance, second) in (1_u32..).zip(&points[at + 1..]) {
            slopes.push((second - first) / f64::from(distance));
        }
    }
    if slopes.is_empty() {
        return 0.0;
    }
    median(&slopes) * f64::from(points.len() as u32 - 1)
}

/// Of a series that is not empty.
pub(super) fn median(series: &[f64]) -> f64 {
    let mut sorted = series.to_vec();
    let middle = sorted.len() / 2;
    *sorted.select_nth_unstable_by(middle, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Noise within `0..width`, the same each time.
    fn noise(width: f64) -> impl FnMut() -> f64 {
        let mut state = 1_u32;
        move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            width * f64::from(state >> 8) / f64::from(1 << 24)
        }
    }

    #[test]
    fn a_slow_rise_is_found_under_noise_many_times_as_large_as_its_steps() {
        let mut noise = noise(50.0);
        let series: Vec<f64> = (0..1000).map(|at| 0.1 * f64::from(at) + noise()).collect();
        let trend = Trend::of(&series).unwrap();
        assert!((80.0..100.0).contains(&trend.rise), "{trend:?}");
        assert!(trend.exceeds(60.0), "{trend:?}");
        assert!(!trend.exceeds(110.0), "{trend:?}");
    }

    #[test]
    fn noise_and_outliers_are_no_rise() {
        let mut noise = noise(50.0);
        let series: Vec<f64> = (0..1000)
            .map(|at| {
                noise()
                    + if at % 7 == 0 {
                        f64::from(at) * 100.0
                    } else {
                        0.0
                    }
            })
            .collect();
        let trend = Trend::of(&series).unwrap();
        assert!(!trend.exceeds(10.0), "{trend:?}");
    }

    #[test]
    fn what_rises_at_the_start_and_stays_is_no_rise() {
        let series: Vec<f64> = (0..1000).map(|at| f64::from(at.min(90))).collect();
        let trend = Trend::of(&series).unwrap();
        assert!(!trend.exceeds(0.1), "{trend:?}");
    }

    #[test]
    fn a_series_that_is_too_short_has_no_trend() {
        assert!(Trend::of(&[1.0; 9]).is_none());
        assert!(!Trend::of(&[1.0; 10]).unwrap().exceeds(0.0));
    }
}
