//! One candidate's dealings with etcd.
//!
//! Two keys make a shard. `leader` is held by whoever created it: it hangs on that candidate's lease, so etcd
//! deletes it when the lease ends, and its create revision is a number that no other holder ever has. `mark`
//! is the highest token that was handed out, and hangs on no lease.
//!
//! A block is one transaction: if `leader` still has our create revision, and `mark` the revision at which we
//! read it, then `mark` becomes the block's last token. So it fails after any change of holder, however long
//! the request was under way, and two of them never start from the same mark. A request of which nobody knows
//! whether it was carried out is sent again in the same form: if it had been, its revision is past, the mark
//! is read anew, and the first block's tokens are skipped.
//!
//! Every step may be cut off where it waits, and be the last one for a long time (the process may be
//! stopped): what it knows is written down before the next wait.

use std::num::NonZeroU64;
use std::time::Duration;

use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, Error, EventType, GetResponse,
    LeaseKeepAliveStream, LeaseKeeper, PutOptions, Txn, TxnOp, TxnOpResponse, TxnResponse,
    WatchFilterType, WatchOptions,
};
use tokio::time::{Instant, sleep, timeout_at};

use super::super::remote::{Fault, PAUSE, Remote, moment, persist, unavailable};
use super::super::{Block, ReservationError};

/// Reading the mark anew this often and losing to somebody else each time: only a writer that is none of
/// ours can do that.
const ROUNDS: u32 = 8;

// gRPC's status codes, of which the client names none.
const INVALID_ARGUMENT: i32 = 3;
const NOT_FOUND: i32 = 5;
const PERMISSION_DENIED: i32 = 7;
const RESOURCE_EXHAUSTED: i32 = 8;
const UNIMPLEMENTED: i32 = 12;

pub(super) struct Session {
    pub(super) endpoints: Vec<String>,
    pub(super) connect: ConnectOptions,
    pub(super) leader: String,
    pub(super) mark: String,
    pub(super) name: String,
    /// In whole seconds.
    pub(super) term: i64,
    pub(super) timeout: Duration,
    pub(super) knows: Knowledge,
}

/// What was learned from etcd.
#[derive(Default)]
pub(super) struct Knowledge {
    /// Which of the servers is asked. The client would spread its requests over all of them at random, those
    /// that never answer included.
    server: usize,
    client: Option<Client>,
    /// Granted, and not known to be revoked.
    lease: Option<i64>,
    /// The open stream of keep-alives: every answer that was asked for has been read from it.
    stream: Option<(LeaseKeeper, LeaseKeepAliveStream)>,
    /// The create revision of our leader key, while nothing tells that it is gone.
    leadership: Option<i64>,
    mark: Option<Mark>,
    /// No mark may be below it any more.
    highest: u64,
}

#[derive(Clone, Copy)]
struct Mark {
    value: u64,
    /// 0 while there is no such key.
    revision: i64,
}

struct Leader {
    name: String,
    create_revision: i64,
    lease: i64,
}

impl Remote for Session {
    fn disconnect(&mut self) {
        self.knows.client = None;
        self.knows.stream = None;
        self.knows.server = (self.knows.server + 1) % self.endpoints.len();
    }

    /// So that a server that answers is reached in time, as long as the silent ones are a minority.
    fn attempt_limit(&self, limit: Duration) -> Duration {
        let majority = self.endpoints.len() / 2 + 1;
        limit / u32::try_from(majority).unwrap_or(u32::MAX)
    }
}

impl Session {
    /// Reads both keys, so that whatever is wrong is known from the start.
    pub(super) async fn check(&mut self) -> Result<(), ReservationError> {
        let limit = self.timeout;
        persist(self, limit, Self::read).await?;
        Ok(())
    }

    pub(super) async fn campaign(&mut self, patience: Duration) -> Result<(), ReservationError> {
        let until = moment(patience);
        let limit = self.timeout;
        // Of an earlier campaign, whose leadership may be lost, or was won without our being told.
        self.forget().await?;
        loop {
            let (leader, revision) = persist(self, limit, Self::look).await?;
            if let Some(leader) = leader {
                if Instant::now() >= until {
                    return Err(ReservationError::Held {
                        holder: leader.name,
                    });
                }
                // Whatever comes of it, the key is looked at again. A connection that died unnoticed tells
                // nothing, so that is done once a term at least.
                let term = Duration::from_secs(self.term.unsigned_abs());
                let turn = until.min(moment(term));
                if let Ok(Err(_)) = timeout_at(turn, self.wait_for_the_end(revision)).await {
                    // It may be watching alone that fails, and at once.
                    sleep(PAUSE).await;
                }
            } else if persist(self, limit, Self::take).await? {
                return Ok(());
            } else {
                self.forget().await?;
            }
        }
    }

    pub(super) async fn keep_alive(&mut self) -> Result<Duration, ReservationError> {
        let limit = self.timeout;
        persist(self, limit, Self::extend).await
    }

    pub(super) async fn reserve(&mut self, tokens: NonZeroU64) -> Result<Block, ReservationError> {
        let limit = self.timeout;
        persist(self, limit, async |session: &mut Self| {
            session.take_block(tokens).await
        })
        .await
    }

    /// Revokes the lease, and etcd deletes the leader key with it.
    pub(super) async fn forget(&mut self) -> Result<(), ReservationError> {
        self.knows.leadership = None;
        self.knows.stream = None;
        let limit = self.timeout;
        persist(self, limit, Self::revoke).await
    }

    async fn revoke(&mut self) -> Result<(), Fault> {
        let Some(lease) = self.knows.lease else {
            return Ok(());
        };
        match self.client().await?.lease_revoke(lease).await {
            Err(error) if code(&error) != Some(NOT_FOUND) => Err(fault(&error)),
            _ => {
                self.knows.lease = None;
                Ok(())
            }
        }
    }

    async fn client(&mut self) -> Result<Client, Fault> {
        if let Some(client) = &self.knows.client {
            return Ok(client.clone());
        }
        let server = [&self.endpoints[self.knows.server]];
        let client = Client::connect(server, Some(self.connect.clone()))
            .await
            .map_err(|error| fault(&error))?;
        Ok(self.knows.client.insert(client).clone())
    }

    async fn look(&mut self) -> Result<(Option<Leader>, i64), Fault> {
        let got = self
            .client()
            .await?
            .get(self.leader.as_str(), None)
            .await
            .map_err(|error| fault(&error))?;
        let revision = got.header().ok_or_else(headless)?.revision();
        Ok((leader_in(&got), revision))
    }

    async fn read(&mut self) -> Result<(Option<Leader>, Mark), Fault> {
        let both = Txn::new().and_then(self.both());
        let answer = self.transact(both).await?;
        self.both_in(&answer)
    }

    async fn transact(&mut self, transaction: Txn) -> Result<TxnResponse, Fault> {
        let mut client = self.client().await?;
        client.txn(transaction).await.map_err(|error| fault(&error))
    }

    fn both(&self) -> [TxnOp; 2] {
        [
            TxnOp::get(self.leader.as_str(), None),
            TxnOp::get(self.mark.as_str(), None),
        ]
    }

    fn both_in(&mut self, answer: &TxnResponse) -> Result<(Option<Leader>, Mark), Fault> {
        let [TxnOpResponse::Get(leader), TxnOpResponse::Get(mark)] = &answer.op_responses()[..]
        else {
            return Err(Fault::Passing(
                "etcd did not answer both questions of a transaction".to_owned(),
            ));
        };
        Ok((leader_in(leader), self.mark_in(mark)?))
    }

    fn mark_in(&mut self, got: &GetResponse) -> Result<Mark, Fault> {
        let mark = match got.kvs().first() {
            None => Mark {
                value: 0,
                revision: 0,
            },
            Some(stored) => Mark {
                value: parse(stored.value())
                    .map_err(|what| self.corrupt(&format!("is {what}, and no token")))?,
                revision: stored.mod_revision(),
            },
        };
        let highest = self.knows.highest;
        if mark.value < highest {
            let fell = match mark.revision {
                0 => format!("is missing, and was {highest}"),
                _ => format!("is {}, and was {highest}", mark.value),
            };
            return Err(self.corrupt(&fell));
        }
        self.knows.highest = mark.value;
        self.knows.mark = Some(mark);
        Ok(mark)
    }

    fn corrupt(&self, what: &str) -> Fault {
        Fault::Final(ReservationError::Corrupt {
            reason: format!(
                "the key {} {what}; set it to a token that is above all that were ever handed out",
                self.mark
            ),
        })
    }

    /// Creates the leader key, unless there is one. Whether it is ours now.
    async fn take(&mut self) -> Result<bool, Fault> {
        let mut client = self.client().await?;
        let lease = if let Some(lease) = self.knows.lease {
            lease
        } else {
            let granted = client.lease_grant(self.term, None).await;
            let lease = granted.map_err(|error| fault(&error))?.id();
            *self.knows.lease.insert(lease)
        };
        let key = self.leader.as_str();
        let under = PutOptions::new().with_lease(lease);
        let create = Txn::new()
            .when([Compare::create_revision(key, CompareOp::Equal, 0)])
            .and_then([TxnOp::put(key, self.name.as_str(), Some(under))])
            .or_else([TxnOp::get(key, None)]);
        let answer = match client.txn(create).await {
            Ok(answer) => answer,
            Err(error) => {
                if code(&error) == Some(NOT_FOUND) {
                    self.knows.lease = None;
                    return Err(Fault::Passing("the lease ended before its use".to_owned()));
                }
                return Err(fault(&error));
            }
        };
        if answer.succeeded() {
            self.knows.leadership = Some(answer.header().ok_or_else(headless)?.revision());
            return Ok(true);
        }
        // Ours already, if an earlier attempt was carried out and its answer lost.
        let ours = match &answer.op_responses()[..] {
            [TxnOpResponse::Get(got)] => leader_in(got).filter(|leader| leader.lease == lease),
            _ => None,
        };
        self.knows.leadership = ours.map(|leader| leader.create_revision);
        Ok(self.knows.leadership.is_some())
    }

    /// Returns when the leader key has been deleted since that revision.
    async fn wait_for_the_end(&mut self, since: i64) -> Result<(), Fault> {
        let deletions = WatchOptions::new()
            .with_start_revision(since + 1)
            .with_filters([WatchFilterType::NoPut]);
        let mut watch = self
            .client()
            .await?
            .watch(self.leader.as_str(), Some(deletions))
            .await
            .map_err(|error| fault(&error))?;
        while let Some(news) = watch.message().await.map_err(|error| fault(&error))? {
            let gone = |event: &etcd_client::Event| event.event_type() == EventType::Delete;
            if news.events().iter().any(gone) {
                return Ok(());
            }
            if news.canceled() {
                break;
            }
        }
        Err(Fault::Passing("etcd ended the watch".to_owned()))
    }

    async fn extend(&mut self) -> Result<Duration, Fault> {
        let (Some(leadership), Some(lease)) = (self.knows.leadership, self.knows.lease) else {
            return Err(Fault::Final(ReservationError::Lost));
        };
        let extended = self.extend_lease(lease).await;
        // A lease that lives is not enough, should somebody have deleted the key; and one that has ended took
        // the key with it.
        let (leader, _) = self.look().await?;
        self.check_leader(leader.as_ref(), leadership)?;
        extended
    }

    fn check_leader(&mut self, leader: Option<&Leader>, leadership: i64) -> Result<(), Fault> {
        if leader.is_some_and(|leader| leader.create_revision == leadership) {
            return Ok(());
        }
        self.knows.leadership = None;
        Err(Fault::Final(ReservationError::Lost))
    }

    /// One keep-alive. The lease lives for as long as it says, from when the server got it.
    async fn extend_lease(&mut self, lease: i64) -> Result<Duration, Fault> {
        // Taken out while an answer is due: if it never gets read, nobody must take it for the answer to a
        // later keep-alive.
        let (mut keeper, mut stream) = if let Some(open) = self.knows.stream.take() {
            open
        } else {
            let mut client = self.client().await?;
            let opened = client.lease_keep_alive(lease).await;
            opened.map_err(|error| fault(&error))?
        };
        keeper.keep_alive().await.map_err(|error| fault(&error))?;
        let answer = stream.message().await.map_err(|error| fault(&error))?;
        match answer {
            Some(answer) if answer.ttl() > 0 => {
                self.knows.stream = Some((keeper, stream));
                Ok(Duration::from_secs(answer.ttl().unsigned_abs()))
            }
            _ => Err(Fault::Passing("etcd ended the keep-alives".to_owned())),
        }
    }

    async fn take_block(&mut self, tokens: NonZeroU64) -> Result<Block, Fault> {
        let Some(leadership) = self.knows.leadership else {
            return Err(Fault::Final(ReservationError::Lost));
        };
        for _ in 0..ROUNDS {
            let mark = if let Some(mark) = self.knows.mark {
                mark
            } else {
                let (leader, mark) = self.read().await?;
                self.check_leader(leader.as_ref(), leadership)?;
                mark
            };
            let block = Block::after(mark.value, tokens)?;
            let last = block.last().get();
            let raise = Txn::new()
                .when([
                    Compare::create_revision(self.leader.as_str(), CompareOp::Equal, leadership),
                    Compare::mod_revision(self.mark.as_str(), CompareOp::Equal, mark.revision),
                ])
                .and_then([TxnOp::put(self.mark.as_str(), last.to_string(), None)])
                .or_else(self.both());
            let answer = self.transact(raise).await?;
            if answer.succeeded() {
                self.knows.highest = last;
                self.knows.mark = answer.header().map(|header| Mark {
                    value: last,
                    revision: header.revision(),
                });
                return Ok(block);
            }
            let (leader, _) = self.both_in(&answer)?;
            self.check_leader(leader.as_ref(), leadership)?;
        }
        Err(Fault::Final(unavailable(format!(
            "the key {} changes all the time: find out who writes it",
            self.mark
        ))))
    }
}

fn leader_in(got: &GetResponse) -> Option<Leader> {
    got.kvs().first().map(|stored| Leader {
        name: String::from_utf8_lossy(stored.value()).into_owned(),
        create_revision: stored.create_revision(),
        lease: stored.lease(),
    })
}

/// Decimal digits as this crate writes them, and nothing else; or what it is.
fn parse(stored: &[u8]) -> Result<u64, String> {
    let text = String::from_utf8_lossy(stored);
    match text.parse::<u64>() {
        Ok(value) if i64::try_from(value).is_ok() && value.to_string() == text => Ok(value),
        _ => Err(format!("{:?}", text.chars().take(40).collect::<String>())),
    }
}

fn headless() -> Fault {
    Fault::Passing("etcd's answer has no header".to_owned())
}

fn code(error: &Error) -> Option<i32> {
    match error {
        Error::GRpcStatus(status) => Some(i32::from(status.code())),
        _ => None,
    }
}

fn fault(error: &Error) -> Fault {
    match error {
        Error::GRpcStatus(status) => meaning(i32::from(status.code()), status.message()),
        Error::InvalidArgs(_) | Error::InvalidUri(_) => {
            Fault::Final(unavailable(format!("etcd: {error}")))
        }
        other => Fault::Passing(format!("etcd: {other}")),
    }
}

/// What an error of the server means.
fn meaning(code: i32, message: &str) -> Fault {
    let reason = format!("etcd: {message}");
    match code {
        RESOURCE_EXHAUSTED => Fault::Final(ReservationError::Storage { reason }),
        INVALID_ARGUMENT | PERMISSION_DENIED | UNIMPLEMENTED => Fault::Final(unavailable(reason)),
        _ => Fault::Passing(reason),
    }
}

#[cfg(test)]
mod tests;
