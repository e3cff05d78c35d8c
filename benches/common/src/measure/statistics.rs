//! Quantiles, and which rounds were calm.

use super::Track;

/// The third of the rounds that was calmest, the same for all contenders: in which their threads were
/// least disturbed, and all together fastest. (The second tells of what no statistics of the system
/// do: a neighbour of the virtual machine at work on the same core.)
#[must_use]
pub fn calmest(tracks: &[Track]) -> Vec<usize> {
    let count = tracks.iter().map(|track| track.nanos.len()).min();
    let mut scores = vec![0.0; count.unwrap_or(0)];
    for track in tracks {
        let median = quantile(&track.nanos, 0.5);
        for (round, score) in scores.iter_mut().enumerate() {
            *score += track.disturbances[round] + track.nanos[round] / median;
        }
    }
    let mut rounds: Vec<_> = (0..scores.len()).collect();
    rounds.sort_by(|a, b| scores[*a].total_cmp(&scores[*b]));
    rounds.truncate(scores.len().div_ceil(3));
    rounds
}

/// The value below which that share of `values` lies.
#[must_use]
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    sorted
        .get((last as f64 * share).round() as usize)
        .copied()
        .unwrap_or(f64::NAN)
}
