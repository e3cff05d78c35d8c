//! What travels over the sockets: frames of a length (four bytes, big-endian) and a message.

use std::io::{self, Read, Write};

use openraft::error::InstallSnapshotError;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tenure::replica::{Command, Outcome};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::types::{Locks, NodeId};

/// What a node is asked, by another node or by a client.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    Append {
        from: NodeId,
        rpc: AppendEntriesRequest<Locks>,
    },
    Vote {
        from: NodeId,
        rpc: VoteRequest<NodeId>,
    },
    Snapshot {
        from: NodeId,
        rpc: InstallSnapshotRequest<Locks>,
    },
    Client(Command),
}

impl Request {
    /// The node that asks, if it is one.
    pub(crate) fn peer(&self) -> Option<NodeId> {
        match *self {
            Self::Append { from, .. } | Self::Vote { from, .. } | Self::Snapshot { from, .. } => {
                Some(from)
            }
            Self::Client(_) => None,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Append(AppendEntriesResponse<NodeId>),
    Vote(VoteResponse<NodeId>),
    Snapshot(Result<InstallSnapshotResponse<NodeId>, InstallSnapshotError>),
    /// The command is in the log for good, and this is what came of it.
    Applied {
        outcome: Outcome,
        term: u64,
    },
    /// Ask that node, if one is named.
    NotLeader {
        leader: Option<NodeId>,
    },
    /// The node can't answer. The command may have been carried out nevertheless.
    Failed(String),
}

/// Far above what is sent here; a larger length is not one of ours.
const LONGEST: usize = 16 << 20;

fn frame(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut frame = postcard::to_extend(message, vec![0; 4]).map_err(io::Error::other)?;
    let length = u32::try_from(frame.len() - 4).map_err(io::Error::other)?;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    Ok(frame)
}

fn room(length: [u8; 4]) -> io::Result<Vec<u8>> {
    let length = u32::from_be_bytes(length) as usize;
    if length > LONGEST {
        return Err(io::Error::other("a frame longer than any of this protocol"));
    }
    Ok(vec![0; length])
}

pub(crate) async fn send(
    stream: &mut tokio::net::TcpStream,
    message: &impl Serialize,
) -> io::Result<()> {
    stream.write_all(&frame(message)?).await
}

pub(crate) async fn receive<M: DeserializeOwned>(
    stream: &mut tokio::net::TcpStream,
) -> io::Result<M> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).await?;
    let mut body = room(length)?;
    stream.read_exact(&mut body).await?;
    postcard::from_bytes(&body).map_err(io::Error::other)
}

/// One question and its answer, for clients, which have a thread each.
pub(crate) fn ask(stream: &mut std::net::TcpStream, request: &Request) -> io::Result<Reply> {
    stream.write_all(&frame(request)?)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut body = room(length)?;
    stream.read_exact(&mut body)?;
    postcard::from_bytes(&body).map_err(io::Error::other)
}
