//! The binary form, and checks of what `serde` reads.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `tenureCP` |
//! | 4 | the number of the format, little-endian |
//! | any | the content, by `postcard` |
//! | 8 | SipHash-2-4 of all before, under a fixed key, little-endian |
//!
//! The checksum is for torn and rotten bytes. It is no signature: who can write the bytes can write the
//! checksum. So the content is checked all the same.

use std::hash::Hasher;

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, Serializer};
use siphasher::sip::SipHasher24;

use super::content::FORMAT;
use super::{Checkpoint, Content, RestoreError};

const MAGIC: &[u8; 8] = b"tenureCP";
const FORMAT_BYTES: usize = 4;
const CHECKSUM_BYTES: usize = 8;

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let mut hasher = SipHasher24::new();
    hasher.write(bytes);
    hasher.finish().to_le_bytes()
}

impl Checkpoint {
    /// The checkpoint in a compact binary form with a checksum; needs the feature `serde`.
    ///
    /// Equal checkpoints are equal bytes, in every version that writes this format. A plain lease with
    /// small numbers for key, owner and token takes some 14 bytes.
    ///
    /// ```
    /// use tenure::{Checkpoint, LockManager};
    ///
    /// let checkpoint = LockManager::new().checkpoint();
    /// assert_eq!(Checkpoint::from_bytes(&checkpoint.to_bytes())?, checkpoint);
    /// # Ok::<(), tenure::RestoreError>(())
    /// ```
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "it can't fail")]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(FORMAT.to_le_bytes());
        let mut bytes = postcard::to_extend(&self.content, bytes)
            .expect("a vector has room, and all lengths are known");
        bytes.extend(checksum(&bytes));
        bytes
    }

    /// Reads what [`to_bytes`](Self::to_bytes) has written; needs the feature `serde`.
    ///
    /// Takes memory in the number of the bytes, whatever they say.
    ///
    /// # Errors
    ///
    /// [`RestoreError::NotACheckpoint`], [`RestoreError::Format`], [`RestoreError::Damaged`] and
    /// [`RestoreError::Malformed`] for bytes that were not written by `to_bytes`, or not like this; and all
    /// that is said of a content that no manager can have.
    ///
    /// ```
    /// use tenure::{Checkpoint, LockManager, RestoreError};
    ///
    /// let mut bytes = LockManager::new().checkpoint().to_bytes();
    /// *bytes.last_mut().expect("it is not empty") ^= 1;
    /// assert_eq!(Checkpoint::from_bytes(&bytes), Err(RestoreError::Damaged));
    /// ```
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RestoreError> {
        let rest = bytes
            .strip_prefix(MAGIC)
            .ok_or(RestoreError::NotACheckpoint)?;
        let (format, rest) = rest
            .split_first_chunk::<FORMAT_BYTES>()
            .ok_or(RestoreError::Damaged)?;
        // A later format may have another checksum.
        let found = u32::from_le_bytes(*format);
        if found != FORMAT {
            return Err(RestoreError::Format {
                found,
                known: FORMAT,
            });
        }
        let (content, sum) = rest
            .split_last_chunk::<CHECKSUM_BYTES>()
            .ok_or(RestoreError::Damaged)?;
        if checksum(&bytes[..bytes.len() - CHECKSUM_BYTES]) != *sum {
            return Err(RestoreError::Damaged);
        }
        let malformed = |reason: String| RestoreError::Malformed { reason };
        let (content, rest) = postcard::take_from_bytes::<Content>(content)
            .map_err(|error| malformed(error.to_string()))?;
        if !rest.is_empty() {
            return Err(malformed(format!("{} bytes too many", rest.len())));
        }
        content.check()?;
        Ok(Self { content })
    }
}

impl Serialize for Checkpoint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.content.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Checkpoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let content = Content::deserialize(deserializer)?;
        content.check().map_err(D::Error::custom)?;
        Ok(Self { content })
    }
}
