//! One node: Raft, the state machine and a listener, on a runtime of its own.

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use openraft::error::{ClientWriteError, RaftError};
use openraft::{Config, Raft, RaftMetrics};
use parking_lot::Mutex;
use tenure::Timestamp;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use crate::disk::Disk;
use crate::journal::Journal;
use crate::log_store::LogStore;
use crate::network::{Network, Switch};
use crate::state_machine::{State, StateMachine};
use crate::types::{Locks, NodeId, Proposal};
use crate::wire::{self, Reply, Request};

/// A node's clock: all run at one speed, and they differ by a constant, as clocks that are kept in step
/// over a network do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeClock {
    pub(crate) origin: Instant,
    pub(crate) ahead: Duration,
}

impl NodeClock {
    fn now(self) -> Timestamp {
        Timestamp::ZERO
            .saturating_add(self.origin.elapsed())
            .saturating_add(self.ahead)
    }
}

pub(crate) struct Node {
    /// All tasks and sockets of the node. To drop it is to kill the node: each task is dropped where it
    /// stands, each socket is closed, and nobody is told.
    runtime: Runtime,
    raft: Raft<Locks>,
    state: Arc<Mutex<State>>,
}

impl Node {
    /// From what its disk has, which is nothing at the first start.
    pub(crate) fn start(
        network: Network,
        clock: NodeClock,
        config: Arc<Config>,
        disk: Arc<Disk>,
        journal: Arc<Journal>,
    ) -> Result<Self, Box<dyn Error>> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name(format!("node-{}", network.node))
            .enable_all()
            .build()?;
        let id = network.node;
        let log = LogStore::new(Arc::clone(&disk));
        let machine = StateMachine::open(id, disk, journal)?;
        let state = machine.state();
        let raft = runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            network.addresses.set(id, listener.local_addr()?);
            let switch = network.switch.clone();
            let raft = Raft::new(id, config, network, log, machine).await?;
            let server = Server {
                id,
                raft: raft.clone(),
                clock,
                switch,
            };
            tokio::spawn(server.listen(listener));
            Ok::<_, Box<dyn Error>>(raft)
        })?;
        Ok(Self {
            runtime,
            raft,
            state,
        })
    }

    /// Makes these nodes the cluster: once in its life, on one of them.
    pub(crate) fn initialize(&self, members: &[NodeId]) -> Result<(), Box<dyn Error>> {
        let members: BTreeSet<NodeId> = members.iter().copied().collect();
        Ok(self.runtime.block_on(self.raft.initialize(members))?)
    }

    /// The process dies: see [`runtime`](Self::runtime). Waits only for tasks to reach a point where they
    /// would wait themselves, so that none writes to the disk after this.
    pub(crate) fn kill(self) {
        drop(self.runtime);
    }

    pub(crate) fn metrics(&self) -> RaftMetrics<NodeId, ()> {
        self.raft.metrics().borrow().clone()
    }

    pub(crate) fn applied_index(&self) -> u64 {
        self.state.lock().applied_index()
    }

    /// The index and the state at it, in bytes.
    pub(crate) fn checkpoint(&self) -> (u64, Vec<u8>) {
        let state = self.state.lock();
        (state.applied_index(), state.checkpoint())
    }
}

/// The side of a node that answers.
#[derive(Clone)]
struct Server {
    id: NodeId,
    raft: Raft<Locks>,
    clock: NodeClock,
    switch: Switch,
}

impl Server {
    async fn listen(self, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(self.clone().converse(stream));
        }
    }

    /// Answers one connection until its other end closes it.
    async fn converse(self, mut stream: TcpStream) {
        if stream.set_nodelay(true).is_err() {
            return;
        }
        while let Ok(request) = wire::receive::<Request>(&mut stream).await {
            if request
                .peer()
                .is_some_and(|peer| self.switch.is_cut(self.id, peer))
            {
                return;
            }
            let reply = self.answer(request).await;
            if wire::send(&mut stream, &reply).await.is_err() {
                return;
            }
        }
    }

    async fn answer(&self, request: Request) -> Reply {
        match request {
            Request::Append { rpc, .. } => match self.raft.append_entries(rpc).await {
                Ok(response) => Reply::Append(response),
                Err(error) => Reply::Failed(error.to_string()),
            },
            Request::Vote { rpc, .. } => match self.raft.vote(rpc).await {
                Ok(response) => Reply::Vote(response),
                Err(error) => Reply::Failed(error.to_string()),
            },
            Request::Snapshot { rpc, .. } => match self.raft.install_snapshot(rpc).await {
                Ok(response) => Reply::Snapshot(Ok(response)),
                Err(RaftError::APIError(error)) => Reply::Snapshot(Err(error)),
                Err(error) => Reply::Failed(error.to_string()),
            },
            Request::Client(command) => {
                let now = self.clock.now();
                match self.raft.client_write(Proposal { command, now }).await {
                    Ok(written) => match written.data {
                        Some(outcome) => Reply::Applied {
                            outcome,
                            term: written.log_id.leader_id.term,
                        },
                        None => Reply::Failed("a command without an outcome".to_owned()),
                    },
                    Err(RaftError::APIError(ClientWriteError::ForwardToLeader(to))) => {
                        Reply::NotLeader {
                            leader: to.leader_id,
                        }
                    }
                    Err(error) => Reply::Failed(error.to_string()),
                }
            }
        }
    }
}
