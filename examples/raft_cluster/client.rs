//! The client: finds the leader, and asks again when it gets no answer.
//!
//! **No answer is not a no.** The command may be lost, may lie in the log of a leader that has been cut
//! off, or may be carried out long since while its answer was lost with the leader. So a client may
//! repeat only what does no harm twice, and all that it sends here is of that kind:
//!
//! - *Renew* and *release* name a token. A second one finds the renewed lease, or none.
//! - *Acquire* names an owner that is used for this one acquisition and never again. If the first
//!   attempt was granted, the second is refused with "held by" that very owner and the token: that is the
//!   answer which was lost, and not a second grant. (An attempt that is still under way when the client has
//!   long released the lease can at worst be granted to an owner whom nobody is any more. It
//!   keeps the key for one time to live, and no write can come of it.)
//!
//! **The time to live counts from the first attempt**, the earliest moment at which it can have
//! been granted, and the client takes off by how much the clocks of two leaders may differ: the deadline was
//! reckoned by one leader's clock, and may be judged by another's.

use std::io;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use tenure::replica::{Command, Outcome, Refusal};
use tenure::{FencingToken, Key, OwnerId};

use crate::network::AddressBook;
use crate::types::NodeId;
use crate::wire::{self, Reply, Request};

/// How long one node may take to answer before the client asks another.
const PATIENCE: Duration = Duration::from_millis(250);
/// One answer in so many is lost on its way. On loopback none would be, unless a node dies.
const LOST: u32 = 97;
/// Between two questions, while there is no leader.
const PAUSE: Duration = Duration::from_millis(10);

/// How far the clocks of two nodes may lie apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MaxSkew(pub(crate) Duration);

#[derive(Debug)]
pub(crate) struct Client {
    id: u32,
    acquisitions: u32,
    addresses: AddressBook,
    nodes: u64,
    max_skew: MaxSkew,
    /// The node that is believed to lead.
    leader: NodeId,
    connection: Option<TcpStream>,
    answers: u32,
}

/// A lease, as its holder knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    pub(crate) key: Key,
    pub(crate) token: FencingToken,
    /// The holder must take its lease for over from here on.
    pub(crate) until: Instant,
    /// The term of the leader that answered.
    pub(crate) term: u64,
    /// Whether the first answer was lost, and the token learnt from a refusal.
    pub(crate) adopted: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Acquired {
    Granted(Lease),
    Busy,
    /// Nobody answered in time. The key may be held, by an owner whom nobody is any more, for one time to
    /// live.
    Unknown,
}

impl Client {
    /// No two clients may have one `id`: it is part of every owner.
    pub(crate) fn new(id: u32, addresses: AddressBook, nodes: u64, max_skew: MaxSkew) -> Self {
        Self {
            id,
            acquisitions: 0,
            addresses,
            nodes,
            max_skew,
            leader: 1,
            connection: None,
            answers: 0,
        }
    }

    pub(crate) fn acquire(&mut self, key: Key, ttl: Duration) -> Acquired {
        self.acquisitions += 1;
        let owner = OwnerId(u64::from(self.id) << 32 | u64::from(self.acquisitions));
        let asked = Instant::now();
        // A grant that comes later would be over when it comes.
        let until = asked + ttl.saturating_sub(self.max_skew.0);
        let command = Command::acquire(key, owner, ttl);
        let (token, term, adopted) = match self.tell(&command, until) {
            Some((Outcome::Granted { token, .. }, term)) => (token, term, false),
            // By ourselves: an earlier attempt was granted, and its answer is lost.
            Some((
                Outcome::Refused(Refusal::Held {
                    owner: of, token, ..
                }),
                term,
            )) if of == owner => (token, term, true),
            Some(_) => return Acquired::Busy,
            None => return Acquired::Unknown,
        };
        Acquired::Granted(Lease {
            key,
            token,
            until,
            term,
            adopted,
        })
    }

    /// Whether the lease is longer now. If not, it ends when it would have ended, or has ended.
    pub(crate) fn renew(&mut self, lease: &mut Lease, ttl: Duration) -> bool {
        let asked = Instant::now();
        let command = Command::renew(lease.key, lease.token, ttl);
        let renewed = matches!(
            self.tell(&command, lease.until),
            Some((Outcome::Renewed { .. }, _))
        );
        // An answer that comes after the old end comes too late: the holder has stopped.
        let renewed = renewed && Instant::now() < lease.until;
        if renewed {
            let until = asked + ttl.saturating_sub(self.max_skew.0);
            lease.until = lease.until.max(until);
        }
        renewed
    }

    /// Gives the lease back; if nobody hears of it, its time to live will end it.
    pub(crate) fn release(&mut self, lease: Lease) {
        let command = Command::release(lease.key, lease.token);
        self.tell(&command, Instant::now() + PATIENCE);
    }

    /// The outcome of the command and the leader's term, or `None` if there was no answer: it may or may
    /// not have been carried out, or may be yet. It may be carried out more than once.
    fn tell(&mut self, command: &Command, give_up: Instant) -> Option<(Outcome, u64)> {
        while Instant::now() < give_up {
            match self.ask(command) {
                Ok(Reply::Applied { outcome, term }) => return Some((outcome, term)),
                Ok(Reply::NotLeader { leader: Some(node) }) if node != self.leader => {
                    self.turn_to(node);
                }
                _ => {
                    self.turn_to(self.leader % self.nodes + 1);
                    thread::sleep(PAUSE);
                }
            }
        }
        None
    }

    fn turn_to(&mut self, node: NodeId) {
        self.leader = node;
        self.connection = None;
    }

    fn ask(&mut self, command: &Command) -> io::Result<Reply> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => connect(&self.addresses, self.leader)?,
        };
        let reply = wire::ask(&mut connection, &Request::Client(command.clone()))?;
        self.answers += 1;
        if self.answers.is_multiple_of(LOST) {
            return Err(io::Error::other(
                "the connection breaks before the answer is here",
            ));
        }
        // Not after an error: the answer to this question might come yet, as if to the next.
        self.connection = Some(connection);
        Ok(reply)
    }
}

fn connect(addresses: &AddressBook, node: NodeId) -> io::Result<TcpStream> {
    let connection = TcpStream::connect_timeout(&addresses.get(node)?, PATIENCE)?;
    connection.set_nodelay(true)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
    Ok(connection)
}
