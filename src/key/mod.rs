//! What a lease is on: any name, as a 128-bit identity.
//!
//! # Layout
//!
//! The top byte of the identity says what the rest is:
//!
//! | top byte | bits 0 to 119 | stands for |
//! |---|---|---|
//! | `0x00` | 0 to 63: the value; 64 to 119: zero | an integer from 0 to `u64::MAX` |
//! | `0x01` | 0 to 63: two's complement; 64 to 119: zero | an integer below 0 |
//! | `0x40 + n` | the bytes, first byte lowest, rest zero | a byte string of n ≤ 15 bytes |
//! | `0x80` to `0xff` | with the lower 7 bits of the top byte: a hash | a longer byte string |
//!
//! So integers and short byte strings are exact: two of them are equal only if they are the same.
//! Of longer ones a 127-bit keyed hash is kept, `SipHash-1-3` (Aumasson and Bernstein, 2012) under
//! the manager's seed: among a billion long names at once, the chance that any two coincide is
//! below 10⁻²⁰, and who doesn't know the seed can't look for such a pair. If two names did
//! coincide they would share one lock; a key never has two holders.

mod seed;
#[cfg(feature = "serde")]
mod serial;
mod to_key;

pub(crate) use seed::BucketHasher;
pub use seed::HashSeed;
pub use to_key::ToKey;

use std::{fmt, str};

const TAG_SHIFT: u32 = 120;
const TAG_NEGATIVE: u128 = 0x01 << TAG_SHIFT;
const TAG_BYTES: u128 = 0x40 << TAG_SHIFT;
const TAG_HASH: u128 = 0x80 << TAG_SHIFT;
/// The longest byte string that is stored as it is.
const SHORT: usize = 15;

/// The 128-bit identity of what is leased, made by [`ToKey`].
///
/// Integers and byte strings of up to 15 bytes are stored exactly; of longer byte strings, a
/// 127-bit hash under the manager's [`HashSeed`]. It prints as the integer or the text it came
/// from, or in hexadecimal if that can't be told any more. The order of keys is of no meaning.
///
/// ```
/// use tenure::{HashSeed, Key, ToKey};
///
/// let seed = HashSeed::random();
/// assert_eq!(format!("{:?}", "orders/17".to_key(&seed)), r#"Key("orders/17")"#);
/// assert_eq!(format!("{:?}", 17.to_key(&seed)), "Key(17)");
/// assert_ne!("17".to_key(&seed), 17.to_key(&seed));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(u128);

impl Key {
    /// The key with that identity, for callers who have 128-bit names of their own.
    ///
    /// A raw identity that looks like another kind of key *is* that key: `from_raw(7)` is the
    /// integer 7. See [`ToKey`] on mixing them.
    ///
    /// ```
    /// use tenure::{HashSeed, Key, ToKey};
    ///
    /// assert_eq!(Key::from_raw(7), 7_u64.to_key(&HashSeed::new(0)));
    /// ```
    #[inline]
    #[must_use]
    pub const fn from_raw(raw: u128) -> Self {
        Self(raw)
    }

    /// The identity, to be given to [`from_raw`](Self::from_raw) later.
    ///
    /// That of a long byte string depends on the manager's seed.
    ///
    /// ```
    /// assert_eq!(tenure::Key::from_raw(7).as_raw(), 7);
    /// ```
    #[inline]
    #[must_use]
    pub const fn as_raw(self) -> u128 {
        self.0
    }

    #[inline]
    const fn signed(value: i64) -> Self {
        let bits = value.cast_unsigned() as u128;
        Self(if value < 0 { TAG_NEGATIVE | bits } else { bits })
    }

    #[inline]
    fn bytes(bytes: &[u8], seed: &HashSeed) -> Self {
        if bytes.len() <= SHORT {
            Self(TAG_BYTES + ((bytes.len() as u128) << TAG_SHIFT) + load_short(bytes))
        } else {
            Self(TAG_HASH | u128::from(seed.hash(bytes)))
        }
    }

    /// What the key came from, if its form still tells.
    fn decode(self, buffer: &mut [u8; 16]) -> Decoded<'_> {
        let low = self.0 as u64;
        *buffer = self.0.to_le_bytes();
        let (tag, bytes) = (buffer[SHORT], &buffer[..SHORT]);
        if self.0 == u128::from(low) {
            return Decoded::Integer(i128::from(low));
        }
        if self == Self::signed(low.cast_signed()) {
            return Decoded::Integer(i128::from(low.cast_signed()));
        }
        if (0x40..0x50).contains(&tag) {
            let (bytes, rest) = bytes.split_at(usize::from(tag - 0x40));
            if let Ok(text) = str::from_utf8(bytes)
                && rest.iter().all(|&byte| byte == 0)
                && !text.chars().any(char::is_control)
            {
                return Decoded::Text(text);
            }
        }
        Decoded::Opaque(self.0)
    }
}

enum Decoded<'b> {
    Integer(i128),
    Text(&'b str),
    Opaque(u128),
}

/// `Key(17)`, `Key("orders/17")`, or `Key(0x…)` with 32 digits.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.decode(&mut [0; 16]) {
            Decoded::Integer(value) => write!(f, "Key({value})"),
            Decoded::Text(text) => write!(f, "Key({text:?})"),
            Decoded::Opaque(raw) => write!(f, "Key({raw:#034x})"),
        }
    }
}

/// `17`, `orders/17`, or `0x…` with 32 digits.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.decode(&mut [0; 16]) {
            Decoded::Integer(value) => f.pad(&value.to_string()),
            Decoded::Text(text) => f.pad(text),
            Decoded::Opaque(raw) => f.pad(&format!("{raw:#034x}")),
        }
    }
}

/// At most 15 bytes as a little-endian number.
///
/// By overlapping loads of fixed width: a copy of variable length would be a call to `memcpy`.
/// Where two loads overlap they carry the same bytes to the same place.
#[inline]
fn load_short(bytes: &[u8]) -> u128 {
    let length = bytes.len();
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk::<8>()) {
        let rest = u64::from_le_bytes(*last) >> (8 * (SHORT - length)) >> 8;
        u128::from(u64::from_le_bytes(*first)) | u128::from(rest) << 64
    } else if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk::<4>()) {
        let last = u64::from(u32::from_le_bytes(*last)) << (8 * (length - 4));
        u128::from(u64::from(u32::from_le_bytes(*first)) | last)
    } else if let [first, .., last] = *bytes {
        let middle = u64::from(bytes[length / 2]) << (8 * (length / 2));
        u128::from(u64::from(first) | middle | u64::from(last) << (8 * (length - 1)))
    } else {
        u128::from(bytes.first().copied().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SEED: HashSeed = HashSeed::new(0x0123_4567_89ab_cdef_0011_2233_4455_6677);

    fn key(name: impl ToKey) -> Key {
        name.to_key(&SEED)
    }

    #[test]
    fn a_key_prints_as_what_it_came_from() {
        let shown = |key: Key| (format!("{key:?}"), key.to_string());
        let both = |debug: &str, display: &str| (debug.to_owned(), display.to_owned());
        assert_eq!(shown(key(0)), both("Key(0)", "0"));
        assert_eq!(
            shown(key(u64::MAX)),
            both("Key(18446744073709551615)", "18446744073709551615")
        );
        assert_eq!(shown(key(-1)), both("Key(-1)", "-1"));
        assert_eq!(shown(key("")), both("Key(\"\")", ""));
        assert_eq!(shown(key("a \"b\"")), both(r#"Key("a \"b\"")"#, "a \"b\""));
        assert_eq!(shown(key("café")), both("Key(\"café\")", "café"));
        assert_eq!(
            shown(key("orders/17 abcde")),
            both("Key(\"orders/17 abcde\")", "orders/17 abcde")
        );
        let newline = "0x4200000000000000000000000000610a";
        assert_eq!(shown(key("\na")), both(&format!("Key({newline})"), newline));
        assert_eq!(format!("[{:>5}]", key("ab")), "[   ab]");
    }

    #[test]
    fn an_identity_of_no_known_form_prints_in_hexadecimal() {
        for raw in [
            1 << 64,                           // an integer that is too wide
            TAG_NEGATIVE | 1,                  // "negative", but it isn't
            TAG_NEGATIVE | 1 << 100 | 1 << 63, // as above with a stray bit
            TAG_BYTES | 0x61,                  // an empty string with a byte in it
            (0x42 << TAG_SHIFT) | 0x80_80,     // not UTF-8
            0x50 << TAG_SHIFT,                 // no string is that long
            u128::MAX,
        ] {
            let hex = format!("{raw:#034x}");
            assert_eq!(Key::from_raw(raw).to_string(), hex);
            assert_eq!(hex.len(), 34);
        }
        let long = key("a name of more than fifteen bytes").to_string();
        assert!(long.starts_with("0x") && long.len() == 34, "{long}");
    }

    proptest! {
        #[test]
        fn short_names_are_exact(bytes in prop::collection::vec(any::<u8>(), 0..=SHORT)) {
            // Against the plain definition: copy, then tag.
            let mut raw = [0_u8; 16];
            raw[..bytes.len()].copy_from_slice(&bytes);
            raw[SHORT] = 0x40 + bytes.len() as u8;
            prop_assert_eq!(key(bytes).as_raw(), u128::from_le_bytes(raw));
        }

        #[test]
        fn printing_text_and_integers_loses_nothing(text in "[ -~]{0,15}", value in any::<i64>()) {
            prop_assert_eq!(key(text.as_str()).to_string(), text);
            prop_assert_eq!(key(value).to_string(), value.to_string());
        }
    }
}
