//! Sequences of keys.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand_distr::{Distribution, Zipf};
use tenure_benches::measure::Seat;

/// How often the keys of a universe are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    /// All alike.
    Uniform,
    /// By Zipf's law with exponent 0.99, which is what YCSB takes for a skewed load.
    Zipf,
}

/// A source of keys in the hot loop.
pub(crate) trait Keys {
    fn next(&mut self) -> u64;
}

/// A pseudo-random sequence of keys (Marsaglia's xorshift), spread without a division.
pub(crate) struct Uniform {
    state: u64,
    first: u64,
    universe: u64,
}

impl Uniform {
    /// The sequence of one seat, the same for every contender.
    pub(crate) fn new(seat: Seat<'_>, first: u64, universe: u64) -> Self {
        Self::seeded((seat.round << 8 | seat.thread) + 1, first, universe)
    }

    /// The sequence of that seed, which is not 0.
    pub(crate) fn seeded(seed: u64, first: u64, universe: u64) -> Self {
        Self {
            state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15),
            first,
            universe,
        }
    }
}

impl Keys for Uniform {
    #[inline(always)]
    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.first + (((self.state >> 32) * self.universe) >> 32)
    }
}

/// A tape of ranks that was drawn before: drawing one takes longer than what is measured. It is read in
/// order, so the processor fetches it ahead.
pub(crate) struct Skewed<'t> {
    tape: &'t [u32],
    at: usize,
    first: u64,
}

/// Ranks on a tape, a power of two.
const TAPE: usize = 1 << 18;

/// The tape of that universe. Each is drawn once, and stays.
fn tape(universe: u64) -> &'static [u32] {
    static TAPES: Mutex<BTreeMap<u64, &[u32]>> = Mutex::new(BTreeMap::new());
    let draw = || {
        let zipf = Zipf::new(universe as f64, 0.99).expect("a universe of at least one key");
        let mut rng = SmallRng::seed_from_u64(universe);
        let ranks: Vec<u32> = (0..TAPE)
            .map(|_| zipf.sample(&mut rng) as u32 - 1)
            .collect();
        &*ranks.leak()
    };
    TAPES.lock().entry(universe).or_insert_with(draw)
}

impl Skewed<'_> {
    pub(crate) fn new(seat: Seat<'_>, first: u64, universe: u64) -> Self {
        Self {
            tape: tape(universe),
            // Somewhere else in each round and thread.
            at: (seat.round * 2 + seat.thread) as usize * 7919,
            first,
        }
    }
}

impl Keys for Skewed<'_> {
    #[inline(always)]
    fn next(&mut self) -> u64 {
        self.at += 1;
        self.first + u64::from(self.tape[self.at & (TAPE - 1)])
    }
}
