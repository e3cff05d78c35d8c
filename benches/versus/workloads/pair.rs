//! Acquire and release of keys that nobody holds, few at a time: shared by all threads or divided among them,
//! used evenly or by Zipf's law.

use crate::bench::Bench;
use crate::contenders::{Condition, field};
use crate::floors;
use crate::keys::Spread;
use crate::options::population_name;
use crate::tasks::{Task, Universe};

pub(crate) const NAME: &str = "pair";

pub(crate) fn run(bench: &mut Bench) {
    for population in bench.options.population.clone() {
        let keys = bench.options.size(population);
        let mut rows = vec![];
        for threads in bench.options.threads.clone() {
            for shared in [true, false] {
                for spread in [Spread::Uniform, Spread::Zipf] {
                    let of = if shared { "shared" } else { "private" };
                    let how = match spread {
                        Spread::Uniform => "uniform",
                        Spread::Zipf => "zipf",
                    };
                    let size = population_name(population);
                    let name = format!("{NAME}/{of}/{how}/{size}/{threads}t");
                    let universe = Universe {
                        first: 1,
                        keys,
                        spread,
                        parts: if shared { 1 } else { threads },
                    };
                    // One thread has all keys to itself, and one key has no spread.
                    let same = !shared && threads == 1 || population == 1 && spread == Spread::Zipf;
                    if bench.wants(&name) && !same {
                        rows.push((name, threads, universe));
                    }
                }
            }
        }
        if rows.is_empty() {
            continue;
        }
        // With a key for each thread, if they are divided.
        let most = bench.options.threads.iter().max().copied().unwrap_or(1);
        let condition = Condition {
            seen: 1..keys.max(most) + 1,
            held: 0..0,
        };
        let entrants = field(&bench.options, &condition);
        for (name, threads, universe) in rows {
            let task = Task::Pair(universe);
            let mut lanes: Vec<_> = entrants
                .iter()
                .filter_map(|entrant| entrant.lane(&task))
                .collect();
            lanes.push(floors::hot(universe));
            bench.slices(NAME, name, "acquire and release a key", threads, &lanes);
        }
    }
}
