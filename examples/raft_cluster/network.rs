//! From node to node: one TCP connection for each direction, and a switch that cuts them.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use openraft::error::{InstallSnapshotError, RPCError, RaftError, RemoteError, Unreachable};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::types::{Locks, NodeId};
use crate::wire::{self, Reply, Request};

/// Where each node listens now: stands for a name service.
#[derive(Clone, Debug, Default)]
pub(crate) struct AddressBook {
    addresses: Arc<Mutex<BTreeMap<NodeId, SocketAddr>>>,
}

impl AddressBook {
    pub(crate) fn set(&self, node: NodeId, address: SocketAddr) {
        self.addresses.lock().insert(node, address);
    }

    pub(crate) fn get(&self, node: NodeId) -> io::Result<SocketAddr> {
        let address = self.addresses.lock().get(&node).copied();
        address.ok_or_else(|| io::Error::other(format!("node {node} has never been started")))
    }
}

/// The fault of the network: one node at a time can be cut off from the other nodes, both ways.
///
/// Clients still reach it. That is the worse case: a leader that is cut off goes on taking commands that
/// it can't commit.
#[derive(Clone, Debug)]
pub(crate) struct Switch {
    isolated: watch::Sender<Option<NodeId>>,
}

impl Switch {
    pub(crate) fn new() -> Self {
        Self {
            isolated: watch::Sender::new(None),
        }
    }

    pub(crate) fn isolate(&self, node: Option<NodeId>) {
        self.isolated.send_replace(node);
    }

    pub(crate) fn is_cut(&self, a: NodeId, b: NodeId) -> bool {
        self.isolated
            .borrow()
            .is_some_and(|node| node == a || node == b)
    }

    async fn cut(&self, a: NodeId, b: NodeId) {
        let mut isolated = self.isolated.subscribe();
        // An error would mean that the switch is gone, and it is borrowed here.
        let _ = isolated
            .wait_for(|isolated| isolated.is_some_and(|node| node == a || node == b))
            .await;
    }
}

/// Makes the links of one node.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub(crate) node: NodeId,
    pub(crate) addresses: AddressBook,
    pub(crate) switch: Switch,
}

impl RaftNetworkFactory<Locks> for Network {
    type Network = Link;

    async fn new_client(&mut self, target: NodeId, (): &()) -> Link {
        Link {
            network: self.clone(),
            target,
            stream: None,
        }
    }
}

/// From this node to that one: a question at a time, each answered before the next.
pub(crate) struct Link {
    network: Network,
    target: NodeId,
    stream: Option<TcpStream>,
}

type CallError<E> = RPCError<NodeId, (), RaftError<NodeId, E>>;

impl Link {
    async fn exchange(&mut self, request: &Request) -> io::Result<Reply> {
        // Taken out, and put back only after the answer: Raft drops a call that takes too long, and the
        // next question must not find the answer to this one.
        let mut stream = if let Some(stream) = self.stream.take() {
            stream
        } else {
            let stream = TcpStream::connect(self.network.addresses.get(self.target)?).await?;
            stream.set_nodelay(true)?;
            stream
        };
        wire::send(&mut stream, request).await?;
        let reply = wire::receive(&mut stream).await?;
        self.stream = Some(stream);
        Ok(reply)
    }

    /// As [`exchange`](Self::exchange), and the socket is closed in the midst of it if the link is cut.
    async fn call<E: std::error::Error>(
        &mut self,
        request: Request,
    ) -> Result<Reply, CallError<E>> {
        let (network, target) = (self.network.clone(), self.target);
        let reply = tokio::select! {
            biased;
            () = network.switch.cut(network.node, target) => {
                self.stream = None;
                Err(io::Error::other("the link is cut"))
            }
            reply = self.exchange(&request) => reply,
        };
        // `Unreachable`, so that Raft waits a little before it tries again.
        match reply {
            Ok(Reply::Failed(why)) => Err(Unreachable::new(&io::Error::other(why)).into()),
            Ok(reply) => Ok(reply),
            Err(error) => Err(Unreachable::new(&error).into()),
        }
    }
}

fn misplaced<E: std::error::Error>(reply: &Reply) -> CallError<E> {
    Unreachable::new(&io::Error::other(format!(
        "answered something else: {reply:?}"
    )))
    .into()
}

impl RaftNetwork<Locks> for Link {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Locks>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<NodeId>, CallError<openraft::error::Infallible>> {
        let from = self.network.node;
        match self.call(Request::Append { from, rpc }).await? {
            Reply::Append(response) => Ok(response),
            other => Err(misplaced(&other)),
        }
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<NodeId>,
        _: RPCOption,
    ) -> Result<VoteResponse<NodeId>, CallError<openraft::error::Infallible>> {
        let from = self.network.node;
        match self.call(Request::Vote { from, rpc }).await? {
            Reply::Vote(response) => Ok(response),
            other => Err(misplaced(&other)),
        }
    }

    async fn install_snapshot(
        &mut self,
        rpc: InstallSnapshotRequest<Locks>,
        _: RPCOption,
    ) -> Result<InstallSnapshotResponse<NodeId>, CallError<InstallSnapshotError>> {
        let from = self.network.node;
        match self.call(Request::Snapshot { from, rpc }).await? {
            Reply::Snapshot(Ok(response)) => Ok(response),
            Reply::Snapshot(Err(error)) => {
                let error = RaftError::APIError(error);
                Err(RPCError::RemoteError(RemoteError::new(self.target, error)))
            }
            other => Err(misplaced(&other)),
        }
    }

    /// Short, so that a node that comes back hears of its leader before it stands for election itself.
    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(Duration::from_millis(50)))
    }
}
