//! Timers alone, with a million pending: the crate's wheel without its table beside what one would take.
//!
//! Time is virtual: a tick of a millisecond passes with every 1,000 operations, and whatever is due by then
//! fires. So every contender pays for what it has put off; and a round is long enough for all of that.
//!
//! The crate's wheel doesn't hear of a cancellation. A timer that is set again soon takes a cell that is
//! registered still, and the wheel has nothing to do but visit that cell once per TTL. `schedule + cancel` is
//! this case: the same cell again and again, which is what a pair of grant and release does.
//! `schedule + cancel, new cells` is the opposite: any cell of a million, with a TTL about as long as it takes
//! until the cell's turn comes again. Nearly every timer is registered, and nearly every registration is
//! visited in vain. To the others both are the same, but for the deadlines.
//!
//! The heap forgets a cancelled timer when it comes to the top, or when it makes up more than half of the
//! heap. `DelayQueue` removes it at once. Its clock is tokio's, paused; it is polled to fire, and not at all
//! where nothing does.

mod heap;
mod queue;
mod wheel;

use std::hint::black_box;
use std::time::Instant;

use tenure_benches::measure::{Kind, waited};

use self::heap::Heap;
use self::queue::Queue;
use self::wheel::{AnyCell, LastCell};
use super::large::rounds;
use crate::bench::{Bench, Trial};
use crate::contenders::TENURE;
use crate::keys::{Keys, Uniform};
use crate::rows::NS;

pub(crate) const NAME: &str = "timers";

pub(crate) fn run(bench: &mut Bench) {
    let pending = bench.options.size(1_000_000) as u32;
    // Pending for as long as anything is measured.
    let far = Ttl {
        least: 3_600_000,
        spread: 20 * 3_600_000,
    };
    let cancel = "set a timer and cancel it";
    let cases = [
        Case {
            name: "timers/1M/schedule + cancel",
            operation: cancel,
            others: Some(far),
            any_cell: false,
            ttl: Ttl::exactly(10_000),
            fires: false,
        },
        Case {
            name: "timers/1M/schedule + cancel, new cells",
            operation: cancel,
            others: Some(far),
            any_cell: true,
            ttl: Ttl {
                least: 500,
                spread: 1_000,
            },
            fires: false,
        },
        Case {
            name: "timers/1M/schedule + fire",
            operation: "set a timer, and have one fire",
            others: None,
            any_cell: false,
            // So that a million are pending.
            ttl: Ttl {
                least: 500,
                spread: 1_000,
            },
            fires: true,
        },
    ];
    for case in cases {
        if bench.wants(case.name) {
            let trials = case.trials(bench, pending);
            let rounds = rounds(bench, 5);
            bench.trials(NAME, case.name.into(), case.operation, rounds, trials);
        }
    }
}

/// How far ahead timers are set, in ticks.
#[derive(Clone, Copy, Debug)]
struct Ttl {
    least: u64,
    spread: u64,
}

impl Ttl {
    const fn exactly(ticks: u64) -> Self {
        Self {
            least: ticks,
            spread: 1,
        }
    }
}

/// One row.
struct Case {
    name: &'static str,
    operation: &'static str,
    /// The timers that are pending all the time; else those that are measured make up the number.
    others: Option<Ttl>,
    /// Whether the crate's timers take any cell, and not the last one that was given back.
    any_cell: bool,
    ttl: Ttl,
    /// Whether they fire; else they are cancelled.
    fires: bool,
}

/// What keeps timers. Ticks count from when it was made.
trait Keeper {
    /// What a timer is cancelled by.
    type Id;

    /// Sets a timer.
    fn schedule(&mut self, tick: u64) -> Self::Id;

    /// Sets one that is neither cancelled nor fires.
    fn hold(&mut self, tick: u64) {
        self.schedule(tick);
    }

    /// Clears one that has not fired.
    fn cancel(&mut self, id: Self::Id);

    /// Says what time it is, and has fire what is due; how many those are.
    fn advance(&mut self, tick: u64) -> u64;

    /// Does that where it can use all of these.
    fn within<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        work(self)
    }
}

impl Case {
    fn trials(&self, bench: &Bench, pending: u32) -> Vec<Trial<'static>> {
        // Those that fire are as many on average.
        let capacity = 2 * pending;
        let mut trials = vec![if self.any_cell {
            let keeper = AnyCell::new(pending, pending);
            self.trial(TENURE, Kind::Tenure, keeper, pending)
        } else {
            let keeper = LastCell::new(capacity);
            self.trial(TENURE, Kind::Tenure, keeper, pending)
        }];
        if bench.options.wants(QUEUE) {
            let queue = Queue::new(capacity, self.fires);
            trials.push(self.trial(QUEUE, Kind::Product, queue, pending));
        }
        if bench.options.wants(HEAP) {
            let heap = Heap::new(capacity);
            trials.push(self.trial(HEAP, Kind::Product, heap, pending));
        }
        trials
    }

    fn trial<K: Keeper + 'static>(
        &self,
        name: &'static str,
        kind: Kind,
        keeper: K,
        pending: u32,
    ) -> Trial<'static> {
        let mut work = Work {
            keeper,
            fires: self.fires,
            ticks: Uniform::seeded(1, self.ttl.least, self.ttl.spread),
            per_tick: (u64::from(pending) / 1_000).max(1),
            tick: 0,
            in_tick: 0,
            pending: 0,
        };
        // About a TTL, and until the heap is purged again.
        let operations = u64::from(pending);
        if let Some(others) = self.others {
            let mut ticks = Uniform::seeded(2, others.least, others.spread);
            let keeper = &mut work.keeper;
            keeper.within(|keeper| (0..pending).for_each(|_| keeper.hold(ticks.next())));
        }
        // Until as many are pending, and what was put off begins to be due.
        work.run(2 * operations);
        if self.fires {
            let (least, most) = (operations / 2, 2 * operations);
            let pending = work.pending;
            assert!(
                (least..most).contains(&pending),
                "{name}: {pending} are pending"
            );
        }
        Trial {
            name,
            kind,
            run: Box::new(move |_| {
                let waited_before = waited();
                let start = Instant::now();
                work.run(operations);
                let elapsed = start.elapsed();
                let ran = elapsed.saturating_sub(waited().saturating_sub(waited_before));
                vec![(NS, ran.as_nanos() as f64 / operations as f64)]
            }),
        }
    }
}

/// A keeper at work.
struct Work<K> {
    keeper: K,
    fires: bool,
    /// How far ahead timers are set.
    ticks: Uniform,
    /// Operations in a tick.
    per_tick: u64,
    tick: u64,
    /// Operations in the current one.
    in_tick: u64,
    /// Set, and neither cancelled nor fired.
    pending: u64,
}

impl<K: Keeper> Work<K> {
    #[inline(never)]
    fn run(&mut self, operations: u64) {
        let Self {
            keeper,
            fires,
            ticks,
            per_tick,
            tick,
            in_tick,
            pending,
        } = self;
        keeper.within(|keeper| {
            let (mut now, mut passed) = (*tick, *in_tick);
            let mut fired = 0;
            for _ in 0..operations {
                let id = keeper.schedule(black_box(now + ticks.next()));
                if !*fires {
                    keeper.cancel(black_box(id));
                }
                passed += 1;
                if passed == *per_tick {
                    (now, passed) = (now + 1, 0);
                    fired += keeper.advance(now);
                }
            }
            (*tick, *in_tick) = (now, passed);
            let set = if *fires { operations } else { 0 };
            *pending = (*pending + set)
                .checked_sub(fired)
                .expect("no timer fires twice");
        });
    }
}

const QUEUE: &str = "DelayQueue";
const HEAP: &str = "BinaryHeap, lazy";
