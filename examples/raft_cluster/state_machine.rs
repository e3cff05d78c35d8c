//! The lock manager as Raft's state machine: committed entries in, outcomes out.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Cursor};
use std::sync::Arc;

use openraft::storage::RaftStateMachine;
use openraft::{
    EntryPayload, ErrorSubject, ErrorVerb, OptionalSend, RaftSnapshotBuilder, Snapshot,
    StorageIOError,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tenure::replica::{Outcome, Replica};
use tenure::{Checkpoint, HashSeed};

use crate::disk::{Disk, StoredSnapshot};
use crate::journal::{Journal, Record};
use crate::types::{Entry, Locks, LogId, Membership, NodeId, SnapshotMeta, StorageError};

/// The seed of all replicas: with different ones, they would give long names different keys.
pub(crate) const SEED: HashSeed = HashSeed::new(0x7465_6e75_7265_2e72_6166_742e_6578_616d);

/// What Raft drives; the state is shared with who looks at the node from outside.
#[derive(Debug)]
pub(crate) struct StateMachine {
    node: NodeId,
    disk: Arc<Disk>,
    journal: Arc<Journal>,
    state: Arc<Mutex<State>>,
}

/// Everything that the log has made.
#[derive(Debug)]
pub(crate) struct State {
    replica: Replica,
    applied: Option<LogId>,
    membership: Membership,
    /// A hash over all entries so far and their outcomes: nodes that agree on it agree on everything.
    chain: u64,
}

/// What a snapshot carries besides Raft's own data.
#[derive(Serialize, Deserialize)]
struct Body {
    checkpoint: Vec<u8>,
    chain: u64,
}

impl State {
    fn empty() -> io::Result<Self> {
        Ok(Self {
            replica: Replica::new(SEED).map_err(io::Error::other)?,
            applied: None,
            membership: Membership::default(),
            chain: 0,
        })
    }

    fn restore(snapshot: &StoredSnapshot) -> io::Result<Self> {
        let body: Body = postcard::from_bytes(&snapshot.bytes).map_err(io::Error::other)?;
        let checkpoint = Checkpoint::from_bytes(&body.checkpoint).map_err(io::Error::other)?;
        Ok(Self {
            replica: Replica::from_checkpoint(&checkpoint).map_err(io::Error::other)?,
            applied: snapshot.meta.last_log_id,
            membership: snapshot.meta.last_membership.clone(),
            chain: body.chain,
        })
    }

    /// The index that was applied last, 0 before the first.
    pub(crate) fn applied_index(&self) -> u64 {
        self.applied.map_or(0, |id| id.index)
    }

    /// The state in bytes: equal on all nodes that have applied the same index.
    pub(crate) fn checkpoint(&self) -> Vec<u8> {
        self.replica.checkpoint().to_bytes()
    }

    fn apply(&mut self, entry: &Entry) -> io::Result<Option<Outcome>> {
        let index = entry.log_id.index;
        let outcome = match &entry.payload {
            EntryPayload::Blank => None,
            EntryPayload::Membership(membership) => {
                self.membership = Membership::new(Some(entry.log_id), membership.clone());
                None
            }
            // The index is the token of a grant: it rises over all leaders, and no replica has to
            // remember anything for it.
            EntryPayload::Normal(proposal) => Some(
                self.replica
                    .apply(&proposal.command, proposal.now, index)
                    .map_err(io::Error::other)?,
            ),
        };
        let mut hasher = DefaultHasher::new();
        self.chain.hash(&mut hasher);
        postcard::to_allocvec(&(entry, &outcome))
            .map_err(io::Error::other)?
            .hash(&mut hasher);
        self.chain = hasher.finish();
        self.applied = Some(entry.log_id);
        Ok(outcome)
    }
}

impl StateMachine {
    /// From the snapshot on the disk, if there is one; Raft applies again what the log has after it.
    pub(crate) fn open(node: NodeId, disk: Arc<Disk>, journal: Arc<Journal>) -> io::Result<Self> {
        let state = match &disk.contents.lock().snapshot {
            Some(snapshot) => State::restore(snapshot)?,
            None => State::empty()?,
        };
        Ok(Self {
            node,
            disk,
            journal,
            state: Arc::new(Mutex::new(state)),
        })
    }

    pub(crate) fn state(&self) -> Arc<Mutex<State>> {
        Arc::clone(&self.state)
    }
}

impl RaftStateMachine<Locks> for StateMachine {
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, Membership), StorageError> {
        let state = self.state.lock();
        Ok((state.applied, state.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Option<Outcome>>, StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut state = self.state.lock();
        let mut outcomes = Vec::new();
        for entry in entries {
            // A replica that can't apply what the others apply must stop: an error here ends the node.
            let outcome = state
                .apply(&entry)
                .map_err(|error| StorageIOError::apply(entry.log_id, &error))?;
            self.journal.applied(
                self.node,
                &Record {
                    id: entry.log_id,
                    proposal: match entry.payload {
                        EntryPayload::Normal(proposal) => Some(proposal),
                        EntryPayload::Blank | EntryPayload::Membership(_) => None,
                    },
                    outcome: outcome.clone(),
                    chain: state.chain,
                },
            );
            outcomes.push(outcome);
        }
        Ok(outcomes)
    }

    /// The checkpoint is taken here, between two entries, so that it belongs to one index; storing it
    /// may then take its time.
    async fn get_snapshot_builder(&mut self) -> Builder {
        let state = self.state.lock();
        let applied = state.applied;
        Builder {
            disk: Arc::clone(&self.disk),
            meta: SnapshotMeta {
                last_log_id: applied,
                last_membership: state.membership.clone(),
                snapshot_id: applied.map_or_else(|| "empty".to_owned(), |id| id.to_string()),
            },
            body: Body {
                checkpoint: state.checkpoint(),
                chain: state.chain,
            },
        }
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Cursor<Vec<u8>>>, StorageError> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Result<(), StorageError> {
        let stored = StoredSnapshot {
            meta: meta.clone(),
            bytes: snapshot.into_inner(),
        };
        // Read in full before anything is replaced: damaged bytes must not cost the old state.
        let state = State::restore(&stored)
            .map_err(|error| StorageIOError::read_snapshot(Some(meta.signature()), &error))?;
        self.journal.installed(self.node, meta, stored.bytes.len());
        self.disk.contents.lock().snapshot = Some(stored);
        *self.state.lock() = state;
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Locks>>, StorageError> {
        Ok(self.disk.contents.lock().snapshot.clone().map(open))
    }
}

/// A snapshot of one index, on its way to the disk.
pub(crate) struct Builder {
    disk: Arc<Disk>,
    meta: SnapshotMeta,
    body: Body,
}

impl RaftSnapshotBuilder<Locks> for Builder {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Locks>, StorageError> {
        let bytes = postcard::to_allocvec(&self.body).map_err(|error| {
            StorageIOError::new(ErrorSubject::StateMachine, ErrorVerb::Read, &error)
        })?;
        let stored = StoredSnapshot {
            meta: self.meta.clone(),
            bytes,
        };
        let mut contents = self.disk.contents.lock();
        let kept = contents.snapshot.as_ref().map(|kept| kept.meta.last_log_id);
        // A later one may have been installed since this was begun. The log before that is gone, so an
        // earlier snapshot in its place would be of no use to the node when it restarts.
        if kept.is_none_or(|kept| kept <= stored.meta.last_log_id) {
            contents.snapshot = Some(stored.clone());
        }
        drop(contents);
        Ok(open(stored))
    }
}

fn open(stored: StoredSnapshot) -> Snapshot<Locks> {
    Snapshot {
        meta: stored.meta,
        snapshot: Box::new(Cursor::new(stored.bytes)),
    }
}
