//! From numbers to pixels.

/// An axis, linear from 0 or logarithmic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
    /// In pixels.
    left: f64,
    right: f64,
}

/// From which ratio between numbers on the axis is logarithmic.
const FAR_APART: f64 = 30.0;

impl Scale {
    /// An axis for these numbers.
    pub(super) fn of(values: impl Iterator<Item = f64>, left: f64, right: f64) -> Self {
        let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        let high = values.iter().copied().fold(0.0, f64::max);
        let high = if high > 0.0 { high } else { 1.0 };
        let positive = values.iter().copied().filter(|value| *value > 0.0);
        let low = positive.fold(high, f64::min);
        let logarithmic = high / low > FAR_APART;
        Self {
            // Such that the shortest bar can be seen.
            low: if logarithmic { low / 1.6 } else { 0.0 },
            high,
            logarithmic,
            left,
            right,
        }
    }

    pub(super) fn is_logarithmic(self) -> bool {
        self.logarithmic
    }

    /// The pixel of a number.
    pub(super) fn at(self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            value / self.high
        };
        self.left + share.clamp(0.0, 1.0) * (self.right - self.left)
    }

    /// Round numbers along the axis.
    pub(super) fn ticks(self) -> Vec<f64> {
        let decade = |number: f64| 10_f64.powi(number.log10().floor() as i32);
        if self.logarithmic {
            let (first, last) = (self.low.log10().floor() as i32, self.high.log10() as i32);
            let factors: &[f64] = match last - first {
                0..3 => &[1.0, 2.0, 5.0],
                _ => &[1.0],
            };
            let all = (first..=last).flat_map(|power| {
                factors
                    .iter()
                    .map(move |factor| factor * 10_f64.powi(power))
            });
            return all
                .filter(|tick| (self.low..=self.high).contains(tick))
                .collect();
        }
        let rough = self.high / 5.0;
        let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * decade(rough));
        let step = steps.into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        let count = (self.high / step * (1.0 + f64::EPSILON)).floor() as u32;
        (0..=count).map(|tick| f64::from(tick) * step).collect()
    }
}
