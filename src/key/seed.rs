//! The secret of one manager, and the hash that places keys in its table.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;
use siphasher::sip128::{Hash128, SipHasher13};

use super::Key;

/// The 128-bit secret of one manager: it keys the hash of long names and of the table.
///
/// A random seed per manager (the default) keeps clients from choosing names that collide or crowd
/// one bucket. Replicas that must agree on the [`Key`] of a long name share one seed instead; then
/// treat it as a secret. `Debug` doesn't print it.
///
/// ```
/// use tenure::{HashSeed, ToKey};
///
/// let name = "a name of more than fifteen bytes";
/// let (a, b) = (HashSeed::new(1), HashSeed::new(2));
/// assert_eq!(name.to_key(&a), name.to_key(&a));
/// assert_ne!(name.to_key(&a), name.to_key(&b));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashSeed(u128);

impl HashSeed {
    /// That seed, for managers that must agree.
    ///
    /// ```
    /// assert_eq!(tenure::HashSeed::new(5).get(), 5);
    /// ```
    #[must_use]
    pub const fn new(seed: u128) -> Self {
        Self(seed)
    }

    /// A seed from the operating system's randomness, by way of [`RandomState`].
    ///
    /// ```
    /// use tenure::HashSeed;
    ///
    /// assert_ne!(HashSeed::random(), HashSeed::random());
    /// ```
    #[must_use]
    pub fn random() -> Self {
        // `RandomState` keeps 128 secret bits; a keyed hash of two constants brings 128 bits out.
        let state = RandomState::new();
        Self(u128::from(state.hash_one(0_u8)) | u128::from(state.hash_one(1_u8)) << 64)
    }

    /// The seed's value, to be stored or sent to a replica.
    ///
    /// ```
    /// assert_eq!(tenure::HashSeed::new(5).get(), 5);
    /// ```
    #[must_use]
    pub const fn get(self) -> u128 {
        self.0
    }

    /// `SipHash-1-3` with this seed as its key.
    pub(super) fn hash(self, bytes: &[u8]) -> Hash128 {
        SipHasher13::new_with_keys(self.0 as u64, (self.0 >> 64) as u64).hash(bytes)
    }
}

/// Without the value: it would be a secret in a log.
impl fmt::Debug for HashSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashSeed(..)")
    }
}

/// Where in the table a key belongs: spreads identities over all 64 bits.
///
/// Not collision-proof and not meant to be: it only chooses the bucket, and keys are compared in
/// full there.
#[derive(Clone, Debug)]
pub(crate) struct BucketHasher {
    shared: SharedSeed,
    own: u64,
}

impl BucketHasher {
    pub(crate) fn new(seed: &HashSeed) -> Self {
        // Not the seed itself: a weak hash must not give away the secret of a strong one, and a
        // seed of zeros would multiply by zero. No key is made from so short a message.
        let own = seed.hash(b"tenure: buckets");
        Self {
            shared: SharedSeed::from_u64(own.h2),
            own: own.h1,
        }
    }

    /// All bits of the result are good for an index, the lowest too.
    #[inline]
    pub(crate) fn hash(&self, key: Key) -> u64 {
        let mut hasher = FoldHasher::with_seed(self.own, &self.shared);
        hasher.write_u128(key.0);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ToKey;

    const SEED: HashSeed = HashSeed::new(0x0123_4567_89ab_cdef_0011_2233_4455_6677);

    fn key(name: impl ToKey) -> Key {
        name.to_key(&SEED)
    }

    #[test]
    fn seeds_are_random_and_stay_out_of_logs() {
        let seeds: Vec<_> = (0..64).map(|_| HashSeed::random().get()).collect();
        for bit in 0..128 {
            let ones = seeds.iter().filter(|&seed| seed >> bit & 1 == 1).count();
            // Each is 32 ± 4; all 64 alike has a chance of 2^-63.
            assert!((1..64).contains(&ones), "bit {bit} is constant");
        }
        assert_eq!(format!("{SEED:?}"), "HashSeed(..)");
    }

    /// Chi-square of `keys` over 1024 buckets, in standard deviations from its mean.
    fn unevenness(keys: impl Iterator<Item = Key>, shift: u32, hasher: &BucketHasher) -> f64 {
        let mut counts = [0_u32; 1024];
        for key in keys {
            counts[(hasher.hash(key) >> shift) as usize & 1023] += 1;
        }
        let mean = f64::from(counts.iter().sum::<u32>()) / 1024.0;
        let chi: f64 = counts
            .iter()
            .map(|&n| (f64::from(n) - mean).powi(2) / mean)
            .sum();
        (chi - 1023.0) / (2.0_f64 * 1023.0).sqrt()
    }

    #[test]
    fn every_bit_of_the_bucket_hash_is_usable_for_likely_keys() {
        for seed in [0, u128::MAX, SEED.get()] {
            let hasher = BucketHasher::new(&HashSeed::new(seed));
            for shift in [0, 11, 32, 54] {
                for stride in (0..64).step_by(3) {
                    let spread = unevenness(
                        (0..16_384_u64).map(|i| Key(u128::from(i.rotate_left(stride)))),
                        shift,
                        &hasher,
                    );
                    assert!(
                        spread < 8.0,
                        "seed {seed:#x}, bits from {shift}, integers << {stride}: {spread}"
                    );
                }
                for stride in (64..112).step_by(3) {
                    let spread =
                        unevenness((0..16_384_u128).map(|i| Key(i << stride)), shift, &hasher);
                    assert!(
                        spread < 8.0,
                        "seed {seed:#x}, bits from {shift}, identities << {stride}: {spread}"
                    );
                }
                for prefix in ["", "orders/"] {
                    let spread = unevenness(
                        (0..16_384).map(|i| key(format!("{prefix}{i}"))),
                        shift,
                        &hasher,
                    );
                    assert!(
                        spread < 8.0,
                        "seed {seed:#x}, bits from {shift}, {prefix}: {spread}"
                    );
                }
            }
        }
    }
}
