//! What the hardware takes at the least: the same keys, hashed the same way, and nothing but the two
//! compare-and-swaps of a pair.

use std::hash::BuildHasher;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use foldhash::fast::RandomState;
use tenure::{Clock, CoarseClock};
use tenure_benches::measure::{Kind, Lane, Sample, Seat};

use crate::keys::{Keys, Skewed, Spread, Uniform};
use crate::tasks::Universe;

/// Hash, index, and two compare-and-swaps on a word of a small array.
pub(crate) const HOT: &str = "CAS pair, hot";
/// The same on any line of an array as large as a table of so many leases, each address known before the
/// line before it has come.
pub(crate) const RANDOM: &str = "CAS pair, any line";
/// The same, each address only known from the line before it.
pub(crate) const CHAINED: &str = "CAS pair, chained lines";
/// One compare-and-swap on a word of its own.
pub(crate) const ONE_CAS: &str = "one CAS";
/// A reading of each clock.
pub(crate) const COARSE_READING: &str = "CoarseClock::now";
pub(crate) const INSTANT_READING: &str = "Instant::now";

/// A cache line with a word in it.
#[repr(align(64))]
#[derive(Debug, Default)]
struct Line(AtomicU64);

/// Buckets of the small array: 4 KiB of lines, in any first-level cache.
const HOT_LINES: usize = 64;

fn lines(count: usize) -> Box<[Line]> {
    (0..count).map(|_| Line::default()).collect()
}

/// Takes the word and gives it back: two compare-and-swaps, or one that fails.
#[inline(always)]
fn pair(word: &AtomicU64) -> bool {
    let seen = word.load(Ordering::Acquire) & !1;
    let swap = |from: u64, to| word.compare_exchange(from, to, Ordering::SeqCst, Ordering::Acquire);
    swap(seen, seen + 1).is_ok() && swap(seen + 1, seen + 2).is_ok()
}

fn lane(name: &'static str, run: impl Fn(Seat<'_>) -> Sample + Sync + 'static) -> Lane<'static> {
    Lane {
        name,
        kind: Kind::Floor,
        run: Box::new(run),
    }
}

/// The floor of a pair in a small table.
pub(crate) fn hot(universe: Universe) -> Lane<'static> {
    let (array, hasher) = (lines(HOT_LINES), RandomState::default());
    lane(HOT, move |seat| {
        let index = |key: u64| hasher.hash_one(key) as usize % HOT_LINES;
        let (first, keys) = universe.of(seat);
        match universe.spread {
            Spread::Uniform => {
                let mut keys = Uniform::new(seat, first, keys);
                let array = &array;
                seat.measure(move || pair(&array[index(keys.next())].0))
            }
            Spread::Zipf => {
                let mut keys = Skewed::new(seat, first, keys);
                let array = &array;
                seat.measure(move || pair(&array[index(keys.next())].0))
            }
        }
    })
}

/// The floors of a pair in a table of that many lines.
pub(crate) fn random(count: u64) -> [Lane<'static>; 2] {
    let count = (count as usize).next_power_of_two();
    let (independent, chained) = (lines(count), lines(count));
    [
        lane(RANDOM, move |seat| {
            let mut keys = Uniform::new(seat, 0, count as u64);
            let array = &independent;
            seat.measure(move || pair(&array[keys.next() as usize].0))
        }),
        lane(CHAINED, move |seat| {
            let mut keys = Uniform::new(seat, 0, count as u64);
            let array = &chained;
            let mut before = 0;
            seat.measure(move || {
                let line = &array[(keys.next() ^ before) as usize & (count - 1)].0;
                // Always 0, which the processor can't know before the line is there.
                before = line.load(Ordering::Relaxed) & 1;
                pair(line)
            })
        }),
    ]
}

/// One compare-and-swap of an uncontended word.
pub(crate) fn one_cas() -> Lane<'static> {
    lane(ONE_CAS, |seat| {
        let word = AtomicU64::new(0);
        let word = black_box(&word);
        let mut seen = 0;
        seat.measure(move || {
            let swapped =
                word.compare_exchange(seen, seen + 1, Ordering::AcqRel, Ordering::Acquire);
            seen += 1;
            swapped.is_ok()
        })
    })
}

/// One reading of each clock.
pub(crate) fn readings() -> [Lane<'static>; 2] {
    let clock = CoarseClock::shared();
    [
        lane(COARSE_READING, move |seat| {
            let clock = clock.clone();
            seat.measure(move || black_box(clock.now()).as_nanos() > 0)
        }),
        lane(INSTANT_READING, |seat| {
            seat.measure(|| {
                black_box(Instant::now());
                true
            })
        }),
    ]
}
