//! What survives a kill: the disk of one node, simulated.
//!
//! Raft is safe only if a node never forgets what it has told others: for whom it voted in which
//! term, and which entries it has acknowledged. A node that loses these and comes back under the same
//! name may vote twice in one term, and an entry that a majority once had may be undone: the same
//! token could be granted again. So this object is kept by the cluster and outlives the node, and all
//! else that a node has dies with it. A real one has files here, and flushes them before it answers;
//! every write to this one counts as flushed when it returns.

use std::collections::BTreeMap;

use openraft::Vote;
use parking_lot::Mutex;

use crate::types::{Entry, LogId, NodeId, SnapshotMeta};

#[derive(Debug, Default)]
pub(crate) struct Disk {
    pub(crate) contents: Mutex<Contents>,
}

#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// For whom this node voted last.
    pub(crate) vote: Option<Vote<NodeId>>,
    /// How far the log was known to be committed. Only a hint: it says from where a restarted node may
    /// apply without asking.
    pub(crate) committed: Option<LogId>,
    /// The last entry that was thrown away, since a snapshot has it.
    pub(crate) purged: Option<LogId>,
    /// All entries after that, by index.
    pub(crate) log: BTreeMap<u64, Entry>,
    pub(crate) snapshot: Option<StoredSnapshot>,
}

/// The state machine at one index, in bytes.
#[derive(Clone, Debug)]
pub(crate) struct StoredSnapshot {
    pub(crate) meta: SnapshotMeta,
    pub(crate) bytes: Vec<u8>,
}

impl Disk {
    /// The index of the last entry that this node has or has had; 0 before the first.
    pub(crate) fn last_index(&self) -> u64 {
        let contents = self.contents.lock();
        let purged = contents.purged.map_or(0, |id| id.index);
        contents.log.keys().next_back().map_or(purged, |&last| last)
    }
}
