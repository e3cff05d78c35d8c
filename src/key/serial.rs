//! 128 bits for `serde`: in hexadecimal for people, since few of their formats have numbers as wide; as an
//! integer for machines, which those of variable length store in as few bytes as it needs.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

use super::{HashSeed, Key};

fn write<S: Serializer>(value: u128, serializer: S) -> Result<S::Ok, S::Error> {
    if serializer.is_human_readable() {
        serializer.collect_str(&format_args!("{value:#034x}"))
    } else {
        serializer.serialize_u128(value)
    }
}

struct Hexadecimal;

impl Visitor<'_> for Hexadecimal {
    type Value = u128;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("128 bits as a text of `0x` and up to 32 hexadecimal digits")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u128, E> {
        let digits = text.strip_prefix("0x").filter(|it| !it.starts_with('+'));
        let value = digits.and_then(|digits| u128::from_str_radix(digits, 16).ok());
        value.ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
    }
}

fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u128, D::Error> {
    if deserializer.is_human_readable() {
        deserializer.deserialize_str(Hexadecimal)
    } else {
        u128::deserialize(deserializer)
    }
}

/// Its identity: a text of 32 hexadecimal digits in formats for people, an integer in others.
impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write(self.0, serializer)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read(deserializer).map(Self)
    }
}

/// Its value, in the form of a [`Key`]: a secret, wherever it is stored.
impl Serialize for HashSeed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write(self.get(), serializer)
    }
}

impl<'de> Deserialize<'de> for HashSeed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read(deserializer).map(Self::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_seeds_survive_text_and_bytes() {
        for raw in [0, 7, u128::from(u64::MAX), 1 << 100, u128::MAX] {
            let (key, seed) = (Key(raw), HashSeed::new(raw));
            let text = serde_json::to_string(&(key, seed)).unwrap();
            assert_eq!(
                serde_json::from_str::<(Key, HashSeed)>(&text).unwrap(),
                (key, seed)
            );
            let bytes = postcard::to_allocvec(&(key, seed)).unwrap();
            assert_eq!(
                postcard::from_bytes::<(Key, HashSeed)>(&bytes).unwrap(),
                (key, seed)
            );
        }
        let seven = serde_json::to_string(&Key(7)).unwrap();
        assert_eq!(seven, "\"0x00000000000000000000000000000007\"");
        assert_eq!(postcard::to_allocvec(&Key(7)).unwrap(), [7]);
    }

    #[test]
    fn what_is_no_identity_is_refused() {
        for bad in ["7", "\"7\"", "\"0x\"", "\"0x+7\"", "\"0xg\"", "null"] {
            assert!(serde_json::from_str::<Key>(bad).is_err(), "{bad}");
        }
        let wide = format!("\"0x1{:032}\"", 0);
        assert!(serde_json::from_str::<Key>(&wide).is_err());
    }
}
