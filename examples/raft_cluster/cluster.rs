//! Three nodes and what is done to them.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use openraft::{Config, ServerState, SnapshotPolicy};

use crate::client::{Client, MaxSkew};
use crate::disk::Disk;
use crate::journal::Journal;
use crate::network::{AddressBook, Network, Switch};
use crate::node::{Node, NodeClock};
use crate::types::NodeId;

pub(crate) const NODES: [NodeId; 3] = [1, 2, 3];
/// By how much the clock of each node is ahead of that of the node before.
const SKEW: Duration = Duration::from_millis(30);
/// Far above what any step takes, even on a machine that has better things to do.
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) struct Cluster {
    origin: Instant,
    config: Arc<Config>,
    addresses: AddressBook,
    switch: Switch,
    pub(crate) journal: Arc<Journal>,
    disks: BTreeMap<NodeId, Arc<Disk>>,
    /// Those that are alive.
    nodes: BTreeMap<NodeId, Node>,
}

/// Who leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leader {
    pub(crate) node: NodeId,
    pub(crate) term: u64,
}

impl Cluster {
    /// Three empty nodes, started and made one cluster.
    pub(crate) fn start() -> Result<Self, Box<dyn Error>> {
        let config = Config {
            cluster_name: "locks".to_owned(),
            heartbeat_interval: 50,
            election_timeout_min: 200,
            election_timeout_max: 400,
            // So small that a node which misses some seconds has to be sent a snapshot.
            snapshot_policy: SnapshotPolicy::LogsSinceLast(1_000),
            max_in_snapshot_log_to_keep: 500,
            replication_lag_threshold: 2_000,
            // In several pieces, small as it is.
            snapshot_max_chunk_size: 64,
            install_snapshot_timeout: 2_000,
            ..Config::default()
        };
        let mut cluster = Self {
            origin: Instant::now(),
            config: Arc::new(config.validate()?),
            addresses: AddressBook::default(),
            switch: Switch::new(),
            journal: Arc::default(),
            disks: NODES.map(|node| (node, Arc::default())).into(),
            nodes: BTreeMap::new(),
        };
        for node in NODES {
            cluster.restart(node)?;
        }
        cluster.nodes[&1].initialize(&NODES)?;
        Ok(cluster)
    }

    /// A client of its own name, at home in this cluster.
    pub(crate) fn client(&self, id: u32) -> Client {
        // The clocks of nodes 1 and 3 are the farthest apart.
        let max_skew = MaxSkew(SKEW * 2);
        Client::new(id, self.addresses.clone(), NODES.len() as u64, max_skew)
    }

    /// Starts a node that is not running, from what its disk has.
    pub(crate) fn restart(&mut self, node: NodeId) -> Result<(), Box<dyn Error>> {
        let network = Network {
            node,
            addresses: self.addresses.clone(),
            switch: self.switch.clone(),
        };
        let clock = NodeClock {
            origin: self.origin,
            ahead: SKEW * (node as u32 - 1),
        };
        let started = Node::start(
            network,
            clock,
            Arc::clone(&self.config),
            Arc::clone(&self.disks[&node]),
            Arc::clone(&self.journal),
        )?;
        self.nodes.insert(node, started);
        Ok(())
    }

    /// Kills a node: everything of it is gone but its disk.
    pub(crate) fn kill(&mut self, node: NodeId) {
        if let Some(node) = self.nodes.remove(&node) {
            node.kill();
        }
    }

    /// Cuts a node off from the others, both ways.
    pub(crate) fn isolate(&self, node: NodeId) {
        self.switch.isolate(Some(node));
    }

    pub(crate) fn heal(&self) {
        self.switch.isolate(None);
    }

    /// The leader of the highest term, as far as any living node knows of one.
    fn leader(&self) -> Option<Leader> {
        self.nodes
            .values()
            .map(Node::metrics)
            .filter(|metrics| metrics.state == ServerState::Leader)
            .map(|metrics| Leader {
                node: metrics.id,
                term: metrics.current_term,
            })
            .max_by_key(|leader| leader.term)
    }

    /// Waits for a leader of a term after `term`.
    pub(crate) fn leader_after(&self, term: u64) -> Result<Leader, String> {
        wait_for("a leader", || {
            self.leader().filter(|leader| leader.term > term)
        })
    }

    /// Waits until the others have thrown away entries that this node doesn't have, so that it will
    /// have to be sent a snapshot.
    pub(crate) fn await_purge_past(&self, node: NodeId) -> Result<(), String> {
        let last = self.disks[&node].last_index();
        wait_for("the others to purge their logs", || {
            self.nodes
                .iter()
                .filter(|&(&other, _)| other != node)
                .all(|(_, other)| other.metrics().purged.is_some_and(|id| id.index > last))
                .then_some(())
        })
    }

    /// Waits until a node has applied all that is applied by any at this moment.
    pub(crate) fn await_caught_up(&self, node: NodeId) -> Result<(), String> {
        let highest = self.nodes.values().map(Node::applied_index).max();
        wait_for("a node to catch up", || {
            (Some(self.nodes[&node].applied_index()) >= highest).then_some(())
        })
    }

    /// Waits until all nodes have applied the same, with nobody at work, and compares what it has
    /// made of them.
    pub(crate) fn compare(&self) -> Result<(), String> {
        let checkpoints = wait_for("all nodes to apply the same", || {
            let all: Vec<_> = self.nodes.values().map(Node::checkpoint).collect();
            all.iter()
                .all(|(index, _)| *index == all[0].0)
                .then_some(all)
        })?;
        if checkpoints.iter().any(|other| *other != checkpoints[0]) {
            self.journal.violation(format!(
                "agreement: the nodes' checkpoints at {} differ",
                checkpoints[0].0
            ));
        }
        Ok(())
    }
}

/// Looks every few milliseconds, until there is something to see.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T, String> {
    let started = Instant::now();
    loop {
        if let Some(seen) = look() {
            return Ok(seen);
        }
        if started.elapsed() > LIMIT {
            return Err(format!("waited {LIMIT:?} for {what}, in vain"));
        }
        thread::sleep(Duration::from_millis(2));
    }
}
