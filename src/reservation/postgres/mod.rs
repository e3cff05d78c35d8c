//! Authority over a shard and its tokens from `PostgreSQL`.

mod connection;
mod session;
mod statements;

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Config, NoTls, Socket};

use self::connection::{Dial, Dialer};
use self::session::{Knowledge, Session};
use self::statements::Statements;
use super::remote::{block_on, check_name, check_term, default_name, time_limit};
use super::{Block, ConnectError, Reservation, ReservationError};

const SHORTEST_TERM: Duration = Duration::from_millis(100);
const MILLISECOND: Duration = Duration::from_millis(1);

/// The table, unless another is named.
const TABLE: &str = "tenure_reservations";

/// `PostgreSQL` cuts longer names off, so that two of them could be one.
const LONGEST_IDENTIFIER: usize = 63;

/// Authority over one shard, and its tokens, from one row in `PostgreSQL`.
///
/// The row says who has the shard, until when by the server's clock, and the highest token that was handed
/// out. Every change is one conditional `UPDATE` of its own, so no lock is ever held while a client is waited
/// for, and blocks rise whatever happens to processes and connections.
///
/// # Costs
///
/// One round trip and one commit for each call, one connection for each shard, and one thread for all
/// connections of the process. Who waits for another holder listens on the channel `tenure`, and besides
/// looks at the row every second.
///
/// # What it relies on
///
/// - **A commit is kept.** The session sets `synchronous_commit` to `on`, unless it is `remote_apply`. With
///   `fsync` or `full_page_writes` off, a crash of the machine may forget the last blocks. So may a failover to a
///   standby that was not synchronous, and a backup that is restored: *then tokens are handed out twice.* A mark
///   that fell is [`Corrupt`](ReservationError::Corrupt) to who knew it; nobody else can tell. Raise the mark by
///   hand before the shard is used again.
/// - **The server's clock doesn't jump.** If it is set forward, a holder's time is over early, and for the rest of
///   it two managers may grant: still no token twice, and the later holder's are higher, so resources that check
///   reject the earlier one. If it is set back, a dead holder keeps its shard for that much longer; one that is
///   alive puts it right with its next keep-alive. Marks only rise, whatever the clock does.
/// - **One session stays one session.** Proxies that pool by transaction lose the settings and the notifications:
///   connect past them, or let them pool by session.
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
/// use tenure::reservation::{Postgres, Reservation};
///
/// let config = "host=10.0.0.1,10.0.0.2 user=app dbname=app target_session_attrs=read-write";
/// let mut shard = Postgres::options(config.parse()?, "orders")
///     .term(Duration::from_secs(10))
///     .name("node 7")
///     .connect()?;
/// shard.campaign(Duration::from_secs(30))?;
/// let block = shard.reserve(NonZeroU64::new(1_000_000).unwrap())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Postgres {
    session: Session,
}

impl Postgres {
    /// Creates the table, if it is run by hand rather than by [`connect`](PostgresOptions::connect).
    ///
    /// A role that uses it needs `SELECT`, `INSERT` and `UPDATE`. Never delete a row: its mark begins anew.
    ///
    /// ```
    /// assert!(tenure::reservation::Postgres::CREATE_TABLE.contains("mark bigint NOT NULL"));
    /// ```
    pub const CREATE_TABLE: &str = concat!(
        "CREATE TABLE IF NOT EXISTS tenure_reservations (",
        include_str!("columns.sql"),
        ")"
    );

    /// The options for one shard, kept by the server or servers of that configuration.
    ///
    /// A shard is a name of 1 to 512 bytes without control characters.
    pub fn options(config: Config, shard: impl Into<String>) -> PostgresOptions {
        PostgresOptions {
            config,
            shard: shard.into(),
            table: TABLE.to_owned(),
            name: default_name(),
            term: Duration::from_secs(10),
            timeout: None,
        }
    }
}

/// What can be set before [`Postgres`] connects.
///
/// ```
/// use std::time::Duration;
/// use tenure::reservation::{ConnectError, Postgres};
///
/// let options = Postgres::options("host=127.0.0.1 user=app".parse()?, "orders")
///     .term(Duration::from_secs(3))
///     .timeout(Duration::from_secs(9));
/// assert!(matches!(options.connect(), Err(ConnectError::Timeout { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use = "options do nothing until they connect"]
pub struct PostgresOptions {
    config: Config,
    shard: String,
    table: String,
    name: String,
    term: Duration,
    timeout: Option<Duration>,
}

impl PostgresOptions {
    /// The table, or `schema.table`; `tenure_reservations` unless set. All candidates must use the same.
    ///
    /// Upper and lower case are told apart.
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// For how long authority lasts, and so how long a dead holder keeps its shard: 10 s unless set.
    ///
    /// Whole milliseconds, from 100 to a day.
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
    /// It is the server's `statement_timeout` too. Within it, what failed in passing is tried again. A
    /// campaign may take that long for each of its steps, besides the time that it waits.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Connects without TLS, creates the table unless there is one, and reads the shard's row.
    ///
    /// Campaigns for nothing yet. Blocks for as long as a call may take at the most.
    ///
    /// # Errors
    ///
    /// [`Term`](ConnectError::Term), [`Timeout`](ConnectError::Timeout) and [`Name`](ConnectError::Name) if
    /// an option is unusable; [`Reservation`](ConnectError::Reservation) if the server can't be asked, or if
    /// what it stores is no reservation.
    pub fn connect(self) -> Result<Postgres, ConnectError> {
        self.connect_with(NoTls)
    }

    /// Connects as [`connect`](Self::connect) does, with TLS from a crate like `postgres-native-tls` or
    /// `tokio-postgres-rustls`.
    ///
    /// Whether TLS is demanded, the configuration's `sslmode` says.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect).
    ///
    /// ```no_run
    /// use tenure::reservation::Postgres;
    /// use tokio_postgres::NoTls; // or a connector of one of those crates
    ///
    /// let config = "host=10.0.0.1 user=app sslmode=require".parse()?;
    /// let shard = Postgres::options(config, "orders").connect_with(NoTls)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn connect_with<T>(self, tls: T) -> Result<Postgres, ConnectError>
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send + 'static,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        check_name("shard", &self.shard)?;
        check_name("candidate", &self.name)?;
        let table = quoted(&self.table)?;
        check_term(self.term, SHORTEST_TERM, MILLISECOND)?;
        let timeout = time_limit(self.timeout, self.term)?;
        let mut config = self.config;
        if config.get_application_name().is_none() {
            config.application_name("tenure");
        }
        let dial: Box<dyn Dial> = Box::new(Dialer { config, tls });
        let mut session = Session {
            dial,
            statements: Statements::of(&table),
            table,
            shard: self.shard,
            name: self.name,
            term: self.term,
            timeout,
            knows: Knowledge::default(),
        };
        block_on(|| session.check())?;
        Ok(Postgres { session })
    }
}

/// The table's name, and its schema's, as identifiers that mean nothing else.
fn quoted(table: &str) -> Result<String, ConnectError> {
    let mut parts = Vec::new();
    for part in table.split('.') {
        check_name("table", part)?;
        if part.len() > LONGEST_IDENTIFIER {
            return Err(ConnectError::Name {
                what: "table",
                name: table.to_owned(),
                reason: "it is longer than 63 bytes".to_owned(),
            });
        }
        parts.push(format!("\"{}\"", part.replace('"', "\"\"")));
    }
    if parts.len() > 2 {
        return Err(ConnectError::Name {
            what: "table",
            name: table.to_owned(),
            reason: "give `table` or `schema.table`".to_owned(),
        });
    }
    Ok(parts.join("."))
}

impl Reservation for Postgres {
    fn campaign(&mut self, patience: Duration) -> Result<(), ReservationError> {
        block_on(|| self.session.campaign(patience))
    }

    fn keep_alive(&mut self) -> Result<Option<Duration>, ReservationError> {
        block_on(|| self.session.keep_alive()).map(Some)
    }

    fn reserve(&mut self, tokens: NonZeroU64) -> Result<Block, ReservationError> {
        block_on(|| self.session.reserve(tokens))
    }

    /// If the server is not told in time, the authority ends with its term.
    fn resign(&mut self) {
        let _ = block_on(|| self.session.resign());
    }
}

/// Without the configuration, which may hold a password.
impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres")
            .field("table", &self.session.table)
            .field("shard", &self.session.shard)
            .field("name", &self.session.name)
            .finish_non_exhaustive()
    }
}

/// Without the configuration, which may hold a password.
impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("table", &self.table)
            .field("shard", &self.shard)
            .field("name", &self.name)
            .field("term", &self.term)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{Dialer, Knowledge, NoTls, Postgres, Session, Statements, TABLE, quoted};

    #[test]
    fn a_table_is_an_identifier_and_nothing_else() {
        assert_eq!(quoted("app.Tokens").unwrap(), r#""app"."Tokens""#);
        assert_eq!(quoted(r#"a"; DROP"#).unwrap(), r#""a""; DROP""#);
        let longest = "x".repeat(63);
        assert_eq!(quoted(&longest).unwrap(), format!("\"{longest}\""));
        for name in ["", "a.", ".a", "a.b.c", "a\0", &"x".repeat(64)] {
            assert!(quoted(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn what_is_printed_names_the_shard_and_no_password() {
        let config: tokio_postgres::Config = "user=me password=hunter2".parse().unwrap();
        let options = Postgres::options(config.clone(), "orders/7");
        let options = options.table("app.tokens").name("node 3");
        let postgres = Postgres {
            session: Session {
                dial: Box::new(Dialer { config, tls: NoTls }),
                statements: Statements::of(TABLE),
                table: options.table.clone(),
                shard: options.shard.clone(),
                name: options.name.clone(),
                term: options.term,
                timeout: options.term,
                knows: Knowledge::default(),
            },
        };
        for printed in [format!("{options:?}"), format!("{postgres:?}")] {
            for part in ["Postgres", "app.tokens", "orders/7", "node 3"] {
                assert!(printed.contains(part), "{printed} does not say {part}");
            }
            assert!(!printed.contains("hunter2"), "{printed}");
        }
    }

    #[test]
    fn the_statement_to_run_by_hand_is_the_one_that_is_run() {
        let run = Statements::of(TABLE).create_table;
        assert_eq!(run, Postgres::CREATE_TABLE);
    }
}
