//! The table of ratios, with the target beside each.

use super::{Kind, Track};
use crate::contenders::Setup;

/// What a task should reach.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// Nothing was promised.
    None,
    /// So many times as fast as the best hand-rolled table with each clock.
    Faster {
        /// Against the same coarse clock.
        coarse: f64,
        /// Against `Instant::now`.
        instant: f64,
    },
    /// At most so many compare-and-swaps.
    CasMultiple(f64),
    /// So many times as fast as single calls.
    Batch(f64),
}

/// What was measured for one task.
#[derive(Debug)]
pub(crate) struct Row {
    /// For example `pair/1k`.
    pub(crate) task: String,
    /// What it should reach.
    pub(crate) target: Target,
    /// What each contender did.
    pub(crate) tracks: Vec<Track>,
}

/// Prints the times of all contenders, then the ratios against their targets.
pub(crate) fn print(rows: &[Row]) {
    println!();
    println!(
        "ns per operation and thread, interleaved: median (lower quartile) of the calmest third"
    );
    println!("of the rounds; disturbed: the share of their time that a thread had no processor or");
    println!("ran alone. Rows on two threads mean little if that is more than a few %.");
    let mut names: Vec<&str> = vec![];
    for track in rows.iter().flat_map(|row| &row.tracks) {
        if !names.contains(&track.name) {
            names.push(track.name);
        }
    }
    print!("{:<22}", "");
    for name in &names {
        print!("{name:>18}");
    }
    println!("{:>10}", "disturbed");
    for row in rows {
        let calm = calmest(row);
        print!("{:<22}", row.task);
        for name in &names {
            let cell = row.tracks.iter().find(|track| track.name == *name);
            let text = cell.map_or("-".into(), |track| {
                let nanos: Vec<_> = calm.iter().map(|round| track.nanos[*round]).collect();
                let [quarter, half] = [0.25, 0.5].map(|share| quantile(&nanos, share));
                format!("{half:.1} ({quarter:.1})")
            });
            print!("{text:>18}");
        }
        let disturbed = row.tracks.iter().flat_map(|track| {
            let disturbances = calm.iter().map(|round| track.disturbances[*round]);
            disturbances.collect::<Vec<_>>()
        });
        let disturbed: Vec<_> = disturbed.collect();
        println!("{:>9.0}%", 100.0 * quantile(&disturbed, 0.5));
        print_refusals(row);
    }
    println!();
    println!("ratios to tenure: median of the ratios within a round, over the calmest third");
    for row in rows {
        let coarse = best(row, Kind::Coarse);
        let instant = best(row, Kind::Instant);
        match row.target {
            Target::Batch(least) => {
                let single = best(row, Kind::Single);
                let mark = at_least(single, least);
                ratio(&row.task, "single calls / batch", single, Some(mark));
            }
            Target::None => {
                ratio(&row.task, "best coarse / tenure", coarse, None);
                ratio(&row.task, "best Instant / tenure", instant, None);
            }
            Target::Faster {
                coarse: against_coarse,
                instant: against_instant,
            } => {
                let mark = at_least(coarse, against_coarse);
                ratio(&row.task, "best coarse / tenure", coarse, Some(mark));
                let mark = at_least(instant, against_instant);
                ratio(&row.task, "best Instant / tenure", instant, Some(mark));
            }
            Target::CasMultiple(most) => {
                // In CASes for each operation: the other way up.
                let cas = best(row, Kind::Cas).map(|(name, ratio)| (name, 1.0 / ratio));
                let met = cas.is_some_and(|(_, ratio)| ratio <= most);
                let mark = (format!("<= {most:.2}"), met);
                ratio(&row.task, "tenure / one CAS", cas, Some(mark));
                ratio(&row.task, "best coarse / tenure", coarse, None);
                ratio(&row.task, "best Instant / tenure", instant, None);
            }
        }
    }
}

/// Prints what the setups took, where it was enough to be told from noise.
pub(crate) fn print_setups(setups: &[(String, Vec<Setup>)]) {
    const MIB: u64 = 1 << 20;
    println!();
    println!("set-up: growth of resident memory, and the time of a grant where keys are held");
    println!("(memory that earlier rows gave back is not seen again: run a row alone to be exact)");
    for (task, setups) in setups {
        if setups.iter().all(|setup| setup.bytes < Some(8 * MIB)) {
            continue;
        }
        for setup in setups {
            let memory = setup.bytes.map_or("unknown".into(), |bytes| {
                format!("{:.1} MiB", bytes as f64 / MIB as f64)
            });
            let grant = setup
                .grant_nanos
                .map_or(String::new(), |nanos| format!("{nanos:.0} ns a grant"));
            println!("{task:<22}{:<18}{memory:>12}  {grant}", setup.name);
        }
    }
}

/// Says so where contenders were refused at different rates: a refusal is less work than a pair.
fn print_refusals(row: &Row) {
    let shares: Vec<_> = row
        .tracks
        .iter()
        .map(|track| (track.name, 100.0 * quantile(&track.success_rates, 0.5)))
        .collect();
    if shares.iter().all(|(_, share)| *share > 99.9) || shares.iter().all(|(_, share)| *share < 0.1)
    {
        return;
    }
    print!("{:<22}", "  granted, %");
    for (_, share) in shares {
        print!("{share:>18.1}");
    }
    println!();
}

fn at_least(measured: Option<(&str, f64)>, target: f64) -> (String, bool) {
    let met = measured.is_some_and(|(_, ratio)| ratio >= target);
    (format!(">= {target:.2}"), met)
}

fn ratio(task: &str, what: &str, measured: Option<(&str, f64)>, mark: Option<(String, bool)>) {
    let Some((name, ratio)) = measured else {
        return;
    };
    let (target, verdict) = match mark {
        Some((target, true)) => (target, "met"),
        Some((target, false)) => (target, "MISSED"),
        None => ("-".into(), ""),
    };
    println!("{task:<22}{what:<24}{ratio:>7.2}  target {target:<8}{verdict:<8}({name})");
}

/// The contender of that kind that comes closest to `tenure`, and how many times its time it takes.
fn best(row: &Row, kind: Kind) -> Option<(&'static str, f64)> {
    let ours = row.tracks.iter().find(|track| track.kind == Kind::Tenure)?;
    let calm = calmest(row);
    row.tracks
        .iter()
        .filter(|track| track.kind == kind)
        .map(|track| {
            let by_round: Vec<_> = calm
                .iter()
                .map(|round| track.nanos[*round] / ours.nanos[*round])
                .collect();
            (track.name, quantile(&by_round, 0.5))
        })
        .min_by(|(_, a), (_, b)| a.total_cmp(b))
}

/// The third of the rounds that was calmest, the same for all contenders: in which their threads were
/// least disturbed, and all together fastest. (The second tells of what no statistics of the system
/// do: a neighbour of the virtual machine at work on the same core.)
pub(crate) fn calmest(row: &Row) -> Vec<usize> {
    let count = row.tracks.iter().map(|track| track.nanos.len()).min();
    let mut scores = vec![0.0; count.unwrap_or(0)];
    for track in &row.tracks {
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
pub(crate) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    sorted
        .get((last as f64 * share).round() as usize)
        .copied()
        .unwrap_or(f64::NAN)
}
