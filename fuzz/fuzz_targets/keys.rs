//! Any names as keys: equal names are equal keys, whatever type they come as; different ones that are exact
//! are different keys; and a key is written, read and printed as it should be.
//!
//! `cargo +nightly fuzz run keys -- -max_total_time=60`

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use tenure::{HashSeed, Key, ToKey};

#[derive(Arbitrary, Clone, Debug)]
enum Name {
    Signed(i64),
    Unsigned(u64),
    Text(String),
    Bytes(Vec<u8>),
}

/// What a name is, as far as keys go.
#[derive(Debug, PartialEq)]
enum Identity {
    Number(i128),
    Short(Vec<u8>),
    Long(Vec<u8>),
}

impl Name {
    fn identity(&self) -> Identity {
        let bytes = match self {
            Self::Signed(number) => return Identity::Number(i128::from(*number)),
            Self::Unsigned(number) => return Identity::Number(i128::from(*number)),
            Self::Text(text) => text.clone().into_bytes(),
            Self::Bytes(bytes) => bytes.clone(),
        };
        if bytes.len() <= 15 {
            Identity::Short(bytes)
        } else {
            Identity::Long(bytes)
        }
    }

    /// By all ways there are to it, which agree.
    fn key(&self, seed: &HashSeed) -> Key {
        match self {
            Self::Signed(number) => {
                let key = number.to_key(seed);
                assert_eq!(key, i128::from(*number).to_key(seed));
                if let Ok(narrow) = i8::try_from(*number) {
                    assert_eq!(key, narrow.to_key(seed));
                }
                key
            }
            Self::Unsigned(number) => {
                let key = number.to_key(seed);
                assert_eq!(key, i128::from(*number).to_key(seed));
                if let Ok(narrow) = u16::try_from(*number) {
                    assert_eq!(key, narrow.to_key(seed));
                }
                key
            }
            Self::Text(text) => {
                let key = text.to_key(seed);
                assert_eq!(key, text.as_str().to_key(seed));
                assert_eq!(key, text.as_bytes().to_key(seed));
                key
            }
            Self::Bytes(bytes) => {
                let key = bytes.to_key(seed);
                assert_eq!(key, bytes.as_slice().to_key(seed));
                assert_eq!(key, (&bytes).to_key(seed));
                key
            }
        }
    }
}

fn written_as_read(key: Key) {
    assert_eq!(Key::from_raw(key.as_raw()), key);
    let bytes = postcard::to_allocvec(&key).expect("a vector has room");
    assert_eq!(postcard::from_bytes(&bytes), Ok(key));
    let text = serde_json::to_string(&key).expect("it can be written");
    assert_eq!(serde_json::from_str::<Key>(&text).expect(&text), key);
    assert!(!format!("{key:?}").is_empty());
    let _ = format!("{key:>40}");
}

fuzz_target!(|input: (u128, Name, Name, u128, Vec<u8>)| {
    let (seed, one, other, raw, bytes) = input;
    let seed = HashSeed::new(seed);
    let keys = [&one, &other].map(|name| name.key(&seed));
    let names = [&one, &other].map(Name::identity);
    let [first, second] = &names;
    match (first, second) {
        // Of long names 127 bits of a hash are kept: they may coincide, and are not seen to.
        _ if first == second => assert_eq!(keys[0], keys[1]),
        _ => assert_ne!(keys[0], keys[1], "{one:?} and {other:?}"),
    }
    for (name, key) in names.iter().zip(keys) {
        written_as_read(key);
        match name {
            Identity::Number(number) => assert_eq!(key.to_string(), number.to_string()),
            Identity::Short(bytes) => {
                if let Ok(text) = std::str::from_utf8(bytes)
                    && !text.chars().any(char::is_control)
                {
                    assert_eq!(key.to_string(), text);
                }
            }
            Identity::Long(bytes) => {
                assert!(key.as_raw() >> 127 == 1, "it says that it is a hash");
                let reseeded = HashSeed::new(!seed.get());
                assert_ne!(bytes.to_key(&reseeded), key, "it depends on the seed");
            }
        }
    }
    written_as_read(Key::from_raw(raw));
    // Whatever is read is written, and read again.
    if let Ok(key) = serde_json::from_slice::<Key>(&bytes) {
        written_as_read(key);
    }
    if let Ok(seed) = serde_json::from_slice::<HashSeed>(&bytes) {
        let text = serde_json::to_string(&seed).expect("it can be written");
        assert_eq!(serde_json::from_str::<HashSeed>(&text).expect(&text), seed);
    }
    if let Ok((key, rest)) = postcard::take_from_bytes::<Key>(&bytes) {
        written_as_read(key);
        assert!(rest.len() < bytes.len());
    }
});
