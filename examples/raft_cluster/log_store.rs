//! Raft's log and vote, on the node's disk.

use std::fmt::Debug;
use std::ops::RangeBounds;
use std::sync::Arc;

use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{LogState, OptionalSend, RaftLogReader, Vote};

use crate::disk::Disk;
use crate::types::{Entry, Locks, LogId, NodeId, StorageError};

#[derive(Clone, Debug)]
pub(crate) struct LogStore {
    disk: Arc<Disk>,
}

impl LogStore {
    pub(crate) fn new(disk: Arc<Disk>) -> Self {
        Self { disk }
    }
}

impl RaftLogReader<Locks> for LogStore {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> Result<Vec<Entry>, StorageError>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let contents = self.disk.contents.lock();
        Ok(contents.log.range(range).map(|(_, e)| e.clone()).collect())
    }
}

impl RaftLogStorage<Locks> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Locks>, StorageError> {
        let contents = self.disk.contents.lock();
        let last = contents.log.values().next_back().map(|entry| entry.log_id);
        Ok(LogState {
            last_purged_log_id: contents.purged,
            last_log_id: last.or(contents.purged),
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote<NodeId>) -> Result<(), StorageError> {
        self.disk.contents.lock().vote = Some(*vote);
        Ok(())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote<NodeId>>, StorageError> {
        Ok(self.disk.contents.lock().vote)
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), StorageError> {
        self.disk.contents.lock().committed = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, StorageError> {
        Ok(self.disk.contents.lock().committed)
    }

    async fn append<I>(
        &mut self,
        entries: I,
        flushed: LogFlushed<Locks>,
    ) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries = entries.into_iter().map(|entry| (entry.log_id.index, entry));
        self.disk.contents.lock().log.extend(entries);
        flushed.log_io_completed(Ok(()));
        Ok(())
    }

    /// Takes back entries that were never committed: another leader has won.
    async fn truncate(&mut self, from: LogId) -> Result<(), StorageError> {
        self.disk.contents.lock().log.split_off(&from.index);
        Ok(())
    }

    /// Throws away entries that a snapshot has.
    async fn purge(&mut self, upto: LogId) -> Result<(), StorageError> {
        let mut contents = self.disk.contents.lock();
        contents.purged = Some(upto);
        contents.log = contents.log.split_off(&(upto.index + 1));
        Ok(())
    }
}
