//! Authority over a shard and its tokens from etcd.

mod session;

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use etcd_client::ConnectOptions;

use self::session::{Knowledge, Session};
use super::remote::{block_on, check_name, check_term, default_name, time_limit};
use super::{Block, ConnectError, Reservation, ReservationError};

/// etcd's leases have whole seconds, and its servers raise shorter ones to two with their default timing.
const SHORTEST_TERM: Duration = Duration::from_secs(2);
const SECOND: Duration = Duration::from_secs(1);

/// Authority over one shard by an election in etcd, and its tokens by compare-and-swap under that authority.
///
/// The holder has the key `<prefix>/<shard>/leader` under an etcd lease; `<prefix>/<shard>/mark` is the
/// highest token that was handed out, in decimal digits. Only a transaction that finds both as its sender
/// knows them raises the mark, so blocks rise whatever happens to processes, connections and single servers.
///
/// # Costs
///
/// On an idle loopback server, a block is one round trip and one write to etcd's disk, a keep-alive two round
/// trips, a campaign for a free shard three. All backends of a process share one thread for their
/// connections. While it waits for another holder, a candidate has one watch open, and asks once a term.
///
/// # What it relies on
///
/// - etcd answers by majority: one that is restored from a backup, or started with `--force-new-cluster`,
///   may have forgotten the last blocks. A mark that fell is [`Corrupt`](ReservationError::Corrupt) to who
///   knew it; nobody else can tell. Raise the mark by hand before the shard is used again.
/// - The servers' clocks and the holder's run at nearly the same rate for the length of a term; the manager's
///   safety margin is there for the difference. Their time of day doesn't matter. If clocks run wild, two
///   managers may grant at once, and still no token twice: the later holder's are higher.
/// - A new leader of the etcd cluster, or a server that restarts, gives all leases a full term again, so
///   then it takes longer until a dead holder is replaced.
///
/// When several candidates wait, any of them may be next.
///
/// # From inside a runtime
///
/// The calls block, like those of every [`Reservation`]. They may be made from a thread of an asynchronous
/// runtime, which then can't do anything else meanwhile.
///
/// ```no_run
/// use std::num::NonZeroU64;
/// use std::time::Duration;
/// use tenure::reservation::{Etcd, Reservation};
///
/// let mut shard = Etcd::options(["http://10.0.0.1:2379", "http://10.0.0.2:2379"], "orders")
///     .term(Duration::from_secs(10))
///     .name("node 7")
///     .connect()?;
/// shard.campaign(Duration::from_secs(30))?;
/// let block = shard.reserve(NonZeroU64::new(1_000_000).unwrap())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Etcd {
    /// A client of etcd's is some kilobytes.
    session: Box<Session>,
}

impl Etcd {
    /// The options for one shard, kept by the servers with those addresses, like `http://10.0.0.1:2379`.
    ///
    /// Give every server of the cluster: any of them will do, and another is asked if one is silent. A shard
    /// is a name of 1 to 512 bytes without control characters.
    pub fn options<E: Into<String>>(
        endpoints: impl IntoIterator<Item = E>,
        shard: impl Into<String>,
    ) -> EtcdOptions {
        EtcdOptions {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            shard: shard.into(),
            prefix: "tenure".to_owned(),
            name: default_name(),
            term: Duration::from_secs(10),
            timeout: None,
            connect: None,
        }
    }
}

/// What can be set before [`Etcd`] connects.
///
/// ```
/// use std::time::Duration;
/// use tenure::reservation::{ConnectError, Etcd};
///
/// let options = Etcd::options(["http://127.0.0.1:2379"], "orders").term(Duration::from_millis(2500));
/// assert!(matches!(options.connect(), Err(ConnectError::Term { .. })));
/// ```
#[derive(Clone)]
#[must_use = "options do nothing until they connect"]
pub struct EtcdOptions {
    endpoints: Vec<String>,
    shard: String,
    prefix: String,
    name: String,
    term: Duration,
    timeout: Option<Duration>,
    connect: Option<ConnectOptions>,
}

impl EtcdOptions {
    /// What the keys begin with; `tenure` unless set. All candidates of a shard must use the same.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// For how long authority lasts, and so how long a dead holder keeps its shard: 10 s unless set.
    ///
    /// Whole seconds, from 2 to a day; a server may make it longer, never shorter.
    pub fn term(mut self, term: Duration) -> Self {
        self.term = term;
        self
    }

    /// What other candidates are told while this one holds the shard; `process` and its number unless set.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How long a call may take: a third of the term unless set, and always below the term.
    ///
    /// Within it, what failed in passing is tried again. A campaign may take that long for each of its steps,
    /// besides the time that it waits.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Users and passwords, TLS, keep-alives and the like, as the `etcd-client` crate has them.
    ///
    /// They replace the default, which only limits the time for connecting. For TLS, turn on that crate's
    /// feature `tls` in your own manifest.
    pub fn connect_options(mut self, options: ConnectOptions) -> Self {
        self.connect = Some(options);
        self
    }

    /// Connects, and reads the shard's keys. Campaigns for nothing yet, and changes nothing.
    ///
    /// Blocks for as long as a call may take at the most.
    ///
    /// # Errors
    ///
    /// [`Term`](ConnectError::Term), [`Timeout`](ConnectError::Timeout) and [`Name`](ConnectError::Name) if
    /// an option is unusable; [`Reservation`](ConnectError::Reservation) if no server answers, or if what it
    /// stores is no reservation.
    pub fn connect(self) -> Result<Etcd, ConnectError> {
        check_name("shard", &self.shard)?;
        check_name("prefix", &self.prefix)?;
        check_name("candidate", &self.name)?;
        check_term(self.term, SHORTEST_TERM, SECOND)?;
        let timeout = time_limit(self.timeout, self.term)?;
        if self.endpoints.is_empty() {
            return Err(ConnectError::Name {
                what: "server",
                name: String::new(),
                reason: "give at least one address".to_owned(),
            });
        }
        let mut session = Session {
            endpoints: self.endpoints,
            connect: self
                .connect
                .unwrap_or_else(|| ConnectOptions::new().with_connect_timeout(timeout)),
            leader: format!("{}/{}/leader", self.prefix, self.shard),
            mark: format!("{}/{}/mark", self.prefix, self.shard),
            name: self.name,
            term: self.term.as_secs().cast_signed(),
            timeout,
            knows: Knowledge::default(),
        };
        block_on(|| session.check())?;
        Ok(Etcd {
            session: Box::new(session),
        })
    }
}

impl Reservation for Etcd {
    fn campaign(&mut self, patience: Duration) -> Result<(), ReservationError> {
        block_on(|| self.session.campaign(patience))
    }

    fn keep_alive(&mut self) -> Result<Option<Duration>, ReservationError> {
        block_on(|| self.session.keep_alive()).map(Some)
    }

    fn reserve(&mut self, tokens: NonZeroU64) -> Result<Block, ReservationError> {
        block_on(|| self.session.reserve(tokens))
    }

    /// If no server is told in time, the authority ends with its term.
    fn resign(&mut self) {
        let _ = block_on(|| self.session.forget());
    }
}

/// Without the connection's options, which may hold a password.
impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd")
            .field("endpoints", &self.session.endpoints)
            .field("leader", &self.session.leader)
            .field("name", &self.session.name)
            .finish_non_exhaustive()
    }
}

/// Without the connection's options, which may hold a password.
impl fmt::Debug for EtcdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdOptions")
            .field("endpoints", &self.endpoints)
            .field("prefix", &self.prefix)
            .field("shard", &self.shard)
            .field("name", &self.name)
            .field("term", &self.term)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_names_the_shard_and_no_password() {
        let connect = ConnectOptions::new().with_user("me", "hunter2");
        let options = Etcd::options(["127.0.0.1:2379"], "orders/7");
        let options = options.name("node 3").connect_options(connect.clone());
        let etcd = Etcd {
            session: Box::new(Session {
                endpoints: options.endpoints.clone(),
                connect,
                leader: "tenure/orders/7/leader".to_owned(),
                mark: "tenure/orders/7/mark".to_owned(),
                name: options.name.clone(),
                term: 10,
                timeout: options.term,
                knows: Knowledge::default(),
            }),
        };
        for printed in [format!("{options:?}"), format!("{etcd:?}")] {
            for part in ["Etcd", "127.0.0.1:2379", "orders/7", "node 3"] {
                assert!(printed.contains(part), "{printed} does not say {part}");
            }
            assert!(!printed.contains("hunter2"), "{printed}");
        }
    }
}
