//! The account: in memory, in an SQLite file, or in PostgreSQL; with and without a fence in front of it.

use std::error::Error;
use std::io;
use std::process;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::{Connection, params};
use tempfile::TempDir;
use tenure::resources::{ResourceError, postgres, sqlite};
use tenure::{Fenced, FencingToken};
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls};

use super::args::Resource;
use super::{KEY, OPENING_BALANCE};

/// What goes wrong in a thread of the story; it ends the story with exit code 1.
pub(super) type Failure = Box<dyn Error + Send + Sync>;
/// What an account answers: a stale token is part of the story, everything else ends it.
pub(super) type Answer<T> = Result<T, ResourceError<io::Error>>;

/// One account for one telling.
pub(super) struct Account {
    fenced: bool,
    place: Place,
}

enum Place {
    Unfenced(Arc<Mutex<u64>>),
    Fenced(Arc<Fenced<u64>>),
    Sqlite(TempDir),
    Postgres(Box<Schema>),
}

/// One holder's way to the account: a connection of its own, as if it were on a machine of its own.
pub(super) trait Access: Send {
    /// Reads the balance.
    ///
    /// With a fence it counts as a use of the token: otherwise an older holder could still write between this
    /// read and the write that is computed from it.
    fn read(&mut self, token: FencingToken) -> Answer<u64>;

    /// Sets the balance to what was computed from an earlier read.
    fn write(&mut self, token: FencingToken, new: u64) -> Answer<()>;
}

impl Account {
    /// Opens an account with its first balance. `postgres` is a connection string, where one is needed.
    pub(super) fn open(resource: Resource, postgres: &str, fenced: bool) -> Result<Self, Failure> {
        let place = match (resource, fenced) {
            (Resource::Memory, false) => Place::Unfenced(Arc::new(Mutex::new(OPENING_BALANCE))),
            (Resource::Memory, true) => Place::Fenced(Arc::new(Fenced::new(OPENING_BALANCE))),
            (Resource::Sqlite, _) => Place::Sqlite(new_database()?),
            (Resource::Postgres, _) => Place::Postgres(Box::new(Schema::create(postgres)?)),
        };
        Ok(Self { fenced, place })
    }

    pub(super) fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// The statement that writes, where there is one.
    pub(super) fn statement(&self) -> Option<&'static str> {
        match (&self.place, self.fenced) {
            (Place::Sqlite(_), true) => Some(sqlite::WRITE),
            (Place::Postgres(_), true) => Some(postgres::WRITE),
            (Place::Sqlite(_), false) => Some(PLAIN_WRITE_SQLITE),
            (Place::Postgres(_), false) => Some(PLAIN_WRITE_POSTGRES),
            (Place::Unfenced(_) | Place::Fenced(_), _) => None,
        }
    }

    /// A way to it for one holder.
    pub(super) fn access(&self) -> Result<Box<dyn Access>, Failure> {
        Ok(match &self.place {
            Place::Unfenced(balance) => Box::new(Arc::clone(balance)),
            Place::Fenced(balance) => Box::new(Arc::clone(balance)),
            Place::Sqlite(directory) => Box::new(Row {
                fenced: self.fenced,
                database: connect(directory)?,
            }),
            Place::Postgres(schema) => Box::new(RemoteRow {
                fenced: self.fenced,
                session: Session::begin(&schema.server, &schema.name)?,
            }),
        })
    }

    /// What it holds in the end.
    pub(super) fn balance(&self) -> Result<u64, Failure> {
        match &self.place {
            Place::Unfenced(balance) => Ok(*balance.lock()),
            Place::Fenced(balance) => Ok(Fenced::read(balance, |balance| *balance)),
            Place::Sqlite(directory) => plain_read(&connect(directory)?),
            Place::Postgres(schema) => schema.session.plain_read(),
        }
    }
}

// ---- in memory ------------------------------------------------------------------------------------

impl Access for Arc<Mutex<u64>> {
    fn read(&mut self, _: FencingToken) -> Answer<u64> {
        Ok(*self.lock())
    }

    fn write(&mut self, _: FencingToken, new: u64) -> Answer<()> {
        *self.lock() = new;
        Ok(())
    }
}

impl Access for Arc<Fenced<u64>> {
    fn read(&mut self, token: FencingToken) -> Answer<u64> {
        Ok(Fenced::write(self, token, |balance| *balance)?)
    }

    fn write(&mut self, token: FencingToken, new: u64) -> Answer<()> {
        Ok(Fenced::write(self, token, |balance| *balance = new)?)
    }
}

// ---- SQLite -----------------------------------------------------------------------------------------

const PLAIN_READ_SQLITE: &str = "SELECT value FROM fenced_values WHERE key = ?1";
const PLAIN_WRITE_SQLITE: &str = "UPDATE fenced_values SET value = ?2 WHERE key = ?1";
const OPEN_SQLITE: &str = "INSERT INTO fenced_values (key, value, fence) VALUES (?1, ?2, 0)";

/// A row, reached by a connection of its own.
struct Row {
    fenced: bool,
    database: Connection,
}

fn new_database() -> Result<TempDir, Failure> {
    let directory = tempfile::Builder::new().prefix("tenure-demo-").tempdir()?;
    let database = connect(&directory)?;
    database.pragma_update(None, "journal_mode", "WAL")?;
    database.execute_batch(sqlite::CREATE_TABLE)?;
    database.execute(OPEN_SQLITE, params![KEY, OPENING_BALANCE.cast_signed()])?;
    Ok(directory)
}

fn connect(directory: &TempDir) -> Result<Connection, Failure> {
    let database = Connection::open(directory.path().join("account.sqlite"))?;
    database.busy_timeout(Duration::from_secs(5))?;
    Ok(database)
}

fn plain_read(database: &Connection) -> Result<u64, Failure> {
    let balance: i64 = database.query_row(PLAIN_READ_SQLITE, [KEY], |row| row.get(0))?;
    Ok(balance.cast_unsigned())
}

impl Access for Row {
    fn read(&mut self, token: FencingToken) -> Answer<u64> {
        if !self.fenced {
            return plain_read(&self.database).map_err(failed);
        }
        let balance: Option<i64> =
            sqlite::read(&self.database, KEY, token).map_err(|error| told(error, Failure::from))?;
        let balance = balance.ok_or("the account is gone").map_err(failed)?;
        Ok(balance.cast_unsigned())
    }

    fn write(&mut self, token: FencingToken, new: u64) -> Answer<()> {
        let new = new.cast_signed();
        if self.fenced {
            return sqlite::write(&self.database, KEY, token, &new)
                .map_err(|error| told(error, Failure::from));
        }
        self.database
            .execute(PLAIN_WRITE_SQLITE, params![KEY, new])
            .map(drop)
            .map_err(failed)
    }
}

// ---- PostgreSQL -------------------------------------------------------------------------------------

const PLAIN_READ_POSTGRES: &str = "SELECT value FROM fenced_values WHERE key = $1";
const PLAIN_WRITE_POSTGRES: &str = "UPDATE fenced_values SET value = $2 WHERE key = $1";
const OPEN_POSTGRES: &str = "INSERT INTO fenced_values (key, value, fence) VALUES ($1, $2, 0)";

/// A schema for one telling, so that nothing of the user's is touched.
struct Schema {
    server: String,
    name: String,
    session: Session,
}

impl Schema {
    fn create(server: &str) -> Result<Self, Failure> {
        let name = format!("tenure_demo_{}", process::id());
        let session = Session::begin(server, &name)?;
        session.run(async |client| -> Result<(), tokio_postgres::Error> {
            // One of a demo that was killed, when its process had the same number.
            let new = format!("DROP SCHEMA IF EXISTS {name} CASCADE; CREATE SCHEMA {name}");
            client.batch_execute(&new).await?;
            client.batch_execute(postgres::CREATE_TABLE).await?;
            let balance = OPENING_BALANCE.to_string();
            client.execute(OPEN_POSTGRES, &[&KEY, &balance]).await?;
            Ok(())
        })?;
        Ok(Self {
            server: server.to_owned(),
            name,
            session,
        })
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        let end = format!("DROP SCHEMA {} CASCADE", self.name);
        // The server may be gone; there is nobody to tell any more.
        let _ = self
            .session
            .run(async |client| client.batch_execute(&end).await);
    }
}

/// A session with the server, in that schema.
struct Session {
    client: Client,
    runtime: Runtime,
}

impl Session {
    fn begin(server: &str, schema: &str) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let client = runtime
            .block_on(async {
                let (client, connection) = tokio_postgres::connect(server, NoTls).await?;
                tokio::spawn(connection);
                let schema = format!("SET search_path = {schema}");
                client.batch_execute(&schema).await?;
                Ok::<_, tokio_postgres::Error>(client)
            })
            .map_err(|error| said_by_postgres(&error))?;
        Ok(Self { client, runtime })
    }

    fn run<T>(
        &self,
        work: impl AsyncFnOnce(&Client) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, Failure> {
        let done = self.runtime.block_on(work(&self.client));
        done.map_err(|error| said_by_postgres(&error))
    }

    fn plain_read(&self) -> Result<u64, Failure> {
        let row = self.run(async |client| client.query_one(PLAIN_READ_POSTGRES, &[&KEY]).await)?;
        Ok(row.try_get::<_, String>(0)?.parse()?)
    }
}

/// That crate's errors name only what failed; why is in their source.
fn said_by_postgres(error: &tokio_postgres::Error) -> Failure {
    let why = error.source().map(ToString::to_string).unwrap_or_default();
    format!("PostgreSQL: {error}: {why}").into()
}

/// A row in PostgreSQL, reached by a session of its own.
struct RemoteRow {
    fenced: bool,
    session: Session,
}

impl Access for RemoteRow {
    fn read(&mut self, token: FencingToken) -> Answer<u64> {
        let Session { client, runtime } = &self.session;
        if !self.fenced {
            return self.session.plain_read().map_err(failed);
        }
        let balance: Option<String> = runtime
            .block_on(postgres::read(client, KEY, token))
            .map_err(|error| told(error, |error| said_by_postgres(&error)))?;
        let balance = balance.ok_or("the account is gone").map_err(failed)?;
        balance.parse().map_err(failed)
    }

    fn write(&mut self, token: FencingToken, new: u64) -> Answer<()> {
        let new = new.to_string();
        let Session { client, runtime } = &self.session;
        if self.fenced {
            return runtime
                .block_on(postgres::write(client, KEY, token, &new))
                .map_err(|error| told(error, |error| said_by_postgres(&error)));
        }
        self.session
            .run(async |client| client.execute(PLAIN_WRITE_POSTGRES, &[&KEY, &new]).await)
            .map(drop)
            .map_err(failed)
    }
}

fn failed(error: impl Into<Failure>) -> ResourceError<io::Error> {
    ResourceError::Failed(io::Error::other(error))
}

/// The same answer, with another error in it.
fn told<E: Error>(
    error: ResourceError<E>,
    say: impl FnOnce(E) -> Failure,
) -> ResourceError<io::Error> {
    match error {
        ResourceError::Stale(stale) => ResourceError::Stale(stale),
        ResourceError::Failed(error) => failed(say(error)),
        other => failed(other.to_string()),
    }
}
