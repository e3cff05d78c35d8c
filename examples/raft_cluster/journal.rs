//! The examiner's notebook: every node writes into it what it applies, and it is checked at once.
//!
//! It belongs to no node, survives them all, and none of them reads it.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use tenure::replica::Outcome;

use crate::checkers::{Agreement, Timeline};
use crate::types::{Leadership, LogId, NodeId, Proposal, SnapshotMeta};

#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) id: LogId,
    /// None for an entry of Raft's own.
    pub(crate) proposal: Option<Proposal>,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) chain: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Journal {
    pages: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    agreement: Agreement,
    timeline: Timeline,
    leaderships: BTreeSet<Leadership>,
    counts: Counts,
    violations: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Entries of the log, each once.
    pub(crate) entries: u64,
    pub(crate) grants: u64,
    /// Leaders that have committed something, each once.
    pub(crate) elections: usize,
    /// Snapshots that a node took from another.
    pub(crate) installed: u64,
    /// Bytes of the largest of these.
    pub(crate) snapshot_bytes: usize,
}

impl Journal {
    /// A node has applied an entry.
    pub(crate) fn applied(&self, node: NodeId, record: &Record) {
        let pages = &mut *self.pages.lock();
        let index = record.id.index;
        match pages.agreement.compare(node, index, record.chain) {
            // The same as another node's, which was checked.
            Ok(false) => return,
            Ok(true) => {}
            Err(violation) => {
                pages.violations.push(violation);
                return;
            }
        }
        pages.counts.entries += 1;
        let Leadership { term, node_id } = record.id.leader_id;
        // The very first entry, the membership, has no leader: it makes the cluster.
        if term > 0 && pages.leaderships.insert(record.id.leader_id) {
            println!("            node {node_id} leads in term {term}, from entry {index}");
        }
        if let (Some(proposal), Some(outcome)) = (&record.proposal, &record.outcome) {
            let verdict = pages
                .timeline
                .follow(index, proposal.now, &proposal.command, outcome);
            pages.violations.extend(verdict.err());
            if matches!(outcome, Outcome::Granted { .. }) {
                pages.counts.grants += 1;
            }
        }
    }

    /// A node has put another's state in place of its own.
    pub(crate) fn installed(&self, node: NodeId, meta: &SnapshotMeta, bytes: usize) {
        let id = meta.last_log_id.map_or(0, |id| id.index);
        println!("            node {node} installs a snapshot: {bytes} bytes, the log up to {id}");
        let mut pages = self.pages.lock();
        pages.counts.installed += 1;
        pages.counts.snapshot_bytes = pages.counts.snapshot_bytes.max(bytes);
    }

    pub(crate) fn violation(&self, violation: String) {
        self.pages.lock().violations.push(violation);
    }

    pub(crate) fn counts(&self) -> Counts {
        let pages = self.pages.lock();
        Counts {
            elections: pages.leaderships.len(),
            ..pages.counts
        }
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.pages.lock().violations.clone()
    }
}
