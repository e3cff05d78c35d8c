//! What the nodes agree on: the types of the replicated log.

use std::io::Cursor;

use serde::{Deserialize, Serialize};
use tenure::Timestamp;
use tenure::replica::{Command, Outcome};

/// The name of a node, 1 to 3.
pub(crate) type NodeId = u64;

/// One entry of the log.
///
/// The time is *in* the entry. If each node read its own clock as it applies, a lease could be over
/// on one and not on another. The leader stamps the command as it proposes it; a new leader whose
/// clock is behind changes nothing, since a replica takes the highest time it has seen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Proposal {
    pub(crate) command: Command,
    pub(crate) now: Timestamp,
}

openraft::declare_raft_types!(
    /// Commands in, outcomes out; an entry of Raft's own (a new leader, a membership) has none.
    ///
    /// Nodes have no address here, since a restarted one has another port: see
    /// [`AddressBook`](crate::network::AddressBook).
    pub(crate) Locks:
        D = Proposal,
        R = Option<Outcome>,
        NodeId = NodeId,
        Node = (),
        SnapshotData = Cursor<Vec<u8>>,
);

/// Who led when an entry was proposed. Two of them in one term are possible, so the node belongs to it.
pub(crate) type Leadership = openraft::CommittedLeaderId<NodeId>;
pub(crate) type LogId = openraft::LogId<NodeId>;
pub(crate) type Entry = openraft::Entry<Locks>;
pub(crate) type StorageError = openraft::StorageError<NodeId>;
pub(crate) type Membership = openraft::StoredMembership<NodeId, ()>;
pub(crate) type SnapshotMeta = openraft::SnapshotMeta<NodeId, ()>;
