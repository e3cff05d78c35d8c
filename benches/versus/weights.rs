//! What `weigh` is asked, and what it answers: one line of JSON each.
//!
//! A contender's memory is measured in a process of its own: in one where others have come and gone, a
//! new table takes what they have given back, and resident memory does not grow. And in one whose allocator
//! counts, which none that is measured by the clock may do: the counter is a word that all threads write,
//! and makes each allocation 13 ns longer when two threads allocate.

use serde::{Deserialize, Serialize};

/// What to weigh.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) contender: String,
    pub(crate) load: Load,
}

/// What is done to the contender.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Load {
    /// So many leases out.
    Held { leases: u64 },
    /// So many leases out, of keys that never come again, each in the place of the oldest.
    Churn {
        leases: u64,
        /// As many keys as an hour would bring, say.
        keys: u64,
        /// No longer than that, even if there are keys left.
        seconds: f64,
    },
}

/// What a table takes, beyond what the process took before it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Bytes {
    /// In memory, if the system says: whole pages.
    pub(crate) resident: Option<u64>,
    /// Asked of Rust's allocator and not given back.
    pub(crate) allocated: u64,
}

/// What was found.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Weight {
    /// With the leases out.
    pub(crate) start: Bytes,
    /// In the end.
    pub(crate) end: Bytes,
    /// The keys that came in between.
    pub(crate) keys: u64,
}
