//! Which types are names, and which identity each value has.

use super::{HashSeed, Key};

/// Names that can be leased.
///
/// - **Integers** are their value, whatever their type: `7_u8`, `7_i64` and `7_usize` are one key.
///   Negative ones are keys of their own. This costs nothing.
/// - **Byte strings**, `str`, `String`, `[u8]` and `Vec<u8>`, are their bytes: `"a"` and `b"a"[..]`
///   are one key, and never that of an integer. Up to 15 bytes they are exact (some 2 ns); longer
///   ones are hashed under the manager's seed (some 15 to 20 ns, 35 ns at 100 bytes).
/// - **`u128` and `[u8; 16]`** are raw identities, for names that are 128 bits already, such as
///   UUIDs. An array is read as big-endian, as `Uuid::as_u128` does. `i128` is an integer when it
///   fits `i64` or `u64`, and a raw identity otherwise.
///
/// A raw identity may equal the key of an integer, of a short or of a long name. Chosen at random,
/// as UUIDs are, it practically never does; if clients choose it, don't mix raw identities with
/// other kinds of names in one manager. Two names that coincide share one lock: the second to
/// ask waits for the first. They never lead to two holders.
///
/// Note that `*b"sixteen bytes ok"` is a `[u8; 16]`, so a raw identity, and not the string of
/// those bytes; write `b"sixteen bytes ok".as_slice()` for that.
///
/// ```
/// use tenure::{HashSeed, Key, ToKey};
///
/// let seed = HashSeed::random();
/// assert_eq!(7_u8.to_key(&seed), 7_i64.to_key(&seed));
/// assert_eq!("a".to_key(&seed), b"a"[..].to_key(&seed));
/// assert_eq!([0xff; 16].to_key(&seed), Key::from_raw(u128::MAX));
///
/// /// A type of your own is a name once it says which.
/// struct Row { table: u32, row: u32 }
/// impl ToKey for Row {
///     fn to_key(&self, seed: &HashSeed) -> Key {
///         (u64::from(self.table) << 32 | u64::from(self.row)).to_key(seed)
///     }
/// }
/// assert_eq!(Row { table: 1, row: 2 }.to_key(&seed), 0x1_0000_0002_u64.to_key(&seed));
/// ```
pub trait ToKey {
    /// The name's identity in a manager with that seed.
    ///
    /// Must give the same key every time: a lease is found again only by an equal key.
    ///
    /// ```
    /// use tenure::{HashSeed, ToKey};
    ///
    /// assert_eq!(7.to_key(&HashSeed::random()).as_raw(), 7);
    /// ```
    fn to_key(&self, seed: &HashSeed) -> Key;

    /// The name for people, of a manager that keeps names; see
    /// [`introspection`](crate::Builder::introspection). Strings have themselves; others need none, since
    /// a [`Key`] prints as what it came from.
    fn name(&self) -> Option<std::sync::Arc<str>> {
        None
    }
}

impl ToKey for Key {
    #[inline]
    fn to_key(&self, _: &HashSeed) -> Key {
        *self
    }
}

impl<T: ToKey + ?Sized> ToKey for &T {
    #[inline]
    fn to_key(&self, seed: &HashSeed) -> Key {
        (**self).to_key(seed)
    }

    fn name(&self) -> Option<std::sync::Arc<str>> {
        (**self).name()
    }
}

macro_rules! unsigned_to_key {
    ($($int:ty)*) => { $(
        impl ToKey for $int {
            #[inline]
            #[allow(clippy::cast_lossless, reason = "there is no `From<usize>`")]
            fn to_key(&self, _: &HashSeed) -> Key {
                Key(*self as u128)
            }
        }
    )* };
}
unsigned_to_key!(u8 u16 u32 u64 usize u128);

macro_rules! signed_to_key {
    ($($int:ty)*) => { $(
        impl ToKey for $int {
            #[inline]
            #[allow(clippy::cast_lossless, reason = "there is no `From<isize>`")]
            fn to_key(&self, _: &HashSeed) -> Key {
                Key::signed(*self as i64)
            }
        }
    )* };
}
signed_to_key!(i8 i16 i32 i64 isize);

impl ToKey for i128 {
    #[inline]
    fn to_key(&self, _: &HashSeed) -> Key {
        match i64::try_from(*self) {
            Ok(value) => Key::signed(value),
            Err(_) => Key(self.cast_unsigned()),
        }
    }
}

impl ToKey for [u8; 16] {
    #[inline]
    fn to_key(&self, _: &HashSeed) -> Key {
        Key(u128::from_be_bytes(*self))
    }
}

impl ToKey for [u8] {
    #[inline]
    fn to_key(&self, seed: &HashSeed) -> Key {
        Key::bytes(self, seed)
    }
}

macro_rules! bytes_to_key {
    ($($string:ty)*) => { $(
        impl ToKey for $string {
            #[inline]
            fn to_key(&self, seed: &HashSeed) -> Key {
                let bytes: &[u8] = self.as_ref();
                Key::bytes(bytes, seed)
            }
        }
    )* };
}
bytes_to_key!(Vec<u8>);

macro_rules! text_to_key {
    ($($text:ty)*) => { $(
        impl ToKey for $text {
            #[inline]
            fn to_key(&self, seed: &HashSeed) -> Key {
                Key::bytes(self.as_bytes(), seed)
            }

            fn name(&self) -> Option<std::sync::Arc<str>> {
                Some(self[..].into())
            }
        }
    )* };
}
text_to_key!(str String);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{SHORT, TAG_SHIFT};
    use proptest::prelude::*;

    const SEED: HashSeed = HashSeed::new(0x0123_4567_89ab_cdef_0011_2233_4455_6677);

    fn key(name: impl ToKey) -> Key {
        name.to_key(&SEED)
    }

    #[test]
    fn an_integer_is_one_key_whatever_its_type() {
        let seven = [
            key(7_u8),
            key(7_u16),
            key(7_u32),
            key(7_u64),
            key(7_usize),
            key(7_u128),
            key(7_i8),
            key(7_i16),
            key(7_i32),
            key(7_i64),
            key(7_isize),
            key(7_i128),
            (&&7_u8).to_key(&SEED),
        ];
        assert!(seven.iter().all(|&seven| seven == Key::from_raw(7)));
        let minus = [
            key(-7_i8),
            key(-7_i16),
            key(-7_i32),
            key(-7_i64),
            key(-7_isize),
            key(-7_i128),
        ];
        assert!(minus.iter().all(|&other| other == minus[0]));
        assert_eq!(key(0_i64), key(0_u64));
        assert_eq!(key(u64::MAX), key(i128::from(u64::MAX)));
        assert_eq!(key(i64::MIN), key(i128::from(i64::MIN)));
        assert_eq!(key(i128::MAX), key(i128::MAX.cast_unsigned()));
    }

    #[test]
    fn kinds_of_names_never_meet() {
        // The top byte tells them apart, at the extremes of every kind.
        for value in [0, 1, u64::MAX / 2, u64::MAX] {
            assert_eq!(key(value).0 >> 64, 0);
        }
        for value in [-1, i64::MIN, i64::from(i32::MIN)] {
            assert_eq!(key(value).0 >> TAG_SHIFT, 0x01);
        }
        for length in 0..=SHORT {
            for fill in [0x00, 0x7f, 0xff] {
                let name = key(vec![fill; length]);
                assert_eq!(name.0 >> TAG_SHIFT, 0x40 + length as u128);
            }
        }
        for length in SHORT + 1..100 {
            assert_eq!(key(vec![0_u8; length]).0 >> 127, 1);
        }
    }

    #[test]
    fn a_trailing_zero_makes_another_name() {
        let mut names: Vec<_> = (0..=40).map(|length| key(vec![0_u8; length])).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 41);
    }

    #[test]
    fn all_kinds_of_strings_of_the_same_bytes_are_one_key() {
        for text in [
            "",
            "a",
            "fifteen bytes !",
            "sixteen bytes !!",
            "and a good deal more than that",
        ] {
            let name = key(text);
            assert_eq!(name, key(text.to_owned()));
            assert_eq!(name, key(text.as_bytes()));
            assert_eq!(name, key(text.as_bytes().to_vec()));
        }
        assert_ne!(key("sixteen bytes !!"), key(*b"sixteen bytes !!"));
    }

    #[test]
    fn sixteen_bytes_are_the_number_that_a_uuid_is() {
        let bytes = [
            0x55, 0x0e, 0x84, 0, 0xe2, 0x9b, 0x41, 0xd4, 0xa7, 0x16, 0x44, 0x66, 0x55, 0x44, 0, 0,
        ];
        assert_eq!(
            key(bytes),
            key(0x550e_8400_e29b_41d4_a716_4466_5544_0000_u128)
        );
    }

    #[test]
    fn long_names_follow_the_seed_and_the_published_algorithm() {
        // Fixed for ever: replicas of different versions must agree on it.
        let name = "a name of more than fifteen bytes";
        // Computed from the published algorithm, apart from the library used here.
        assert_eq!(
            key(name).as_raw(),
            0xd829_f16c_1ca7_72d2_2a15_bb7f_3eae_359c
        );
        assert_ne!(key(name), name.to_key(&HashSeed::new(SEED.get() ^ 1)));
        assert_ne!(key(name), name.to_key(&HashSeed::new(SEED.get() ^ 1 << 64)));
        // Everything else is the same under every seed.
        assert_eq!(key("short"), "short".to_key(&HashSeed::new(0)));
    }

    proptest! {
        #[test]
        fn different_integers_are_different_keys(a in any::<i64>(), b in any::<u64>()) {
            prop_assert_eq!(key(a) == key(b), i128::from(a) == i128::from(b));
        }
    }
}
