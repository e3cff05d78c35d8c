//! Who holds a lease.

use std::fmt;

/// Who asks for a lease: a number that the caller chooses (a session, a connection, a node).
///
/// The manager only stores it and gives it back in [`AcquireError::Held`](crate::AcquireError),
/// so that a retried request whose answer was lost can be recognised. Any value is allowed.
///
/// ```
/// use tenure::OwnerId;
///
/// assert_eq!(OwnerId::from(7).to_string(), "7");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(transparent)
)]
pub struct OwnerId(pub u64);

impl From<u64> for OwnerId {
    fn from(id: u64) -> Self {
        Self(id)
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
