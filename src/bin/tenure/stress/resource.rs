//! The resource that a key protects: a number that every write sets to one more than was read.
//!
//! In memory, or in a row of an SQLite database. Workers are threads, and the database has a connection for
//! each that is at it at the same time; they compete for it as processes would.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::{Connection, Error, OptionalExtension, params};
use tempfile::TempDir;
use tenure::resources::{ResourceError, sqlite};
use tenure::{Fenced, FencingToken};

use super::args::Kind;

impl Kind {
    /// Visits between two looks at the clock: those of a database take as long as many in memory.
    pub(super) fn batch(self) -> u32 {
        match self {
            Self::Memory => 16,
            Self::Sqlite => 1,
        }
    }
}

/// A connection waits so long for the others: longer than any run makes it.
const BUSY: Duration = Duration::from_secs(60);

const PLAIN_READ: &str = "SELECT value FROM fenced_values WHERE key = ?1";
const PLAIN_WRITE: &str = "\
INSERT INTO fenced_values (key, value, fence) VALUES (?1, ?2, 0)
ON CONFLICT (key) DO UPDATE SET value = excluded.value";

/// Why a resource did not do as asked.
pub(super) type Refusal = ResourceError<Error>;

/// One number.
#[derive(Debug)]
pub(super) enum Resource {
    Fenced(Fenced<u64>),
    Unfenced(Mutex<u64>),
    Row {
        database: Arc<Database>,
        key: String,
        fenced: bool,
    },
}

/// A database file, and the connections that nobody uses just now.
#[derive(Debug)]
pub(super) struct Database {
    idle: Mutex<Vec<Connection>>,
    directory: TempDir,
}

/// So many new numbers, all 0.
///
/// # Errors
///
/// What kept the database from being made.
pub(super) fn make(kind: Kind, unfenced: bool, numbers: u32) -> io::Result<Vec<Resource>> {
    let fenced = !unfenced;
    Ok(match kind {
        Kind::Memory if fenced => (0..numbers)
            .map(|_| Resource::Fenced(Fenced::new(0)))
            .collect(),
        Kind::Memory => (0..numbers)
            .map(|_| Resource::Unfenced(Mutex::new(0)))
            .collect(),
        Kind::Sqlite => {
            let database = Arc::new(Database::create()?);
            (0..numbers)
                .map(|number| Resource::Row {
                    database: Arc::clone(&database),
                    key: format!("key/{number}"),
                    fenced,
                })
                .collect()
        }
    })
}

impl Resource {
    /// Reads the number under a token.
    ///
    /// With a fence the read raises it, as every use of a token must: else a stale holder could
    /// write after this read, be accepted, and be overwritten by the write that follows from it.
    pub(super) fn read(&self, token: FencingToken) -> Result<u64, Refusal> {
        match self {
            Self::Fenced(value) => Ok(value.write(token, |value| *value)?),
            Self::Row {
                database,
                key,
                fenced: true,
            } => database.with(|connection| {
                let number: Option<i64> = sqlite::read(connection, key, token)?;
                Ok(number.unwrap_or(0).cast_unsigned())
            }),
            Self::Unfenced(_) | Self::Row { .. } => self.value(),
        }
    }

    /// Sets the number to what follows from an earlier read.
    pub(super) fn write(&self, token: FencingToken, new: u64) -> Result<(), Refusal> {
        match self {
            Self::Fenced(value) => Ok(value.write(token, |value| *value = new)?),
            Self::Unfenced(value) => {
                *value.lock() = new;
                Ok(())
            }
            Self::Row {
                database,
                key,
                fenced,
            } => database.with(|connection| {
                let new = new.cast_signed();
                if *fenced {
                    return sqlite::write(connection, key, token, &new);
                }
                connection
                    .prepare_cached(PLAIN_WRITE)
                    .and_then(|mut statement| statement.execute(params![key, new]))
                    .map(drop)
                    .map_err(ResourceError::Failed)
            }),
        }
    }

    /// The number of writes that the resource still knows of; needs no token.
    pub(super) fn value(&self) -> Result<u64, Refusal> {
        match self {
            Self::Fenced(value) => Ok(value.read(|value| *value)),
            Self::Unfenced(value) => Ok(*value.lock()),
            Self::Row { database, key, .. } => database.with(|connection| {
                let number: Option<Option<i64>> = connection
                    .prepare_cached(PLAIN_READ)
                    .and_then(|mut read| read.query_row([key], |row| row.get(0)).optional())
                    .map_err(ResourceError::Failed)?;
                Ok(number.flatten().unwrap_or(0).cast_unsigned())
            }),
        }
    }
}

impl Database {
    fn create() -> io::Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("tenure-stress-")
            .tempdir()?;
        let database = Self {
            idle: Mutex::default(),
            directory,
        };
        let first = database.connect().and_then(|first| {
            first.pragma_update(None, "journal_mode", "WAL")?;
            first.execute_batch(sqlite::CREATE_TABLE)?;
            Ok(first)
        });
        database.idle.lock().push(first.map_err(io::Error::other)?);
        Ok(database)
    }

    fn connect(&self) -> Result<Connection, Error> {
        let connection = Connection::open(self.directory.path().join("resource.sqlite"))?;
        connection.busy_timeout(BUSY)?;
        // A write that outlives the process is enough here: the machine is not going to crash for us.
        connection.pragma_update(None, "synchronous", "OFF")?;
        Ok(connection)
    }

    /// Lends a connection out for one piece of work.
    fn with<T>(&self, work: impl FnOnce(&Connection) -> Result<T, Refusal>) -> Result<T, Refusal> {
        // In a statement of its own: the lock must not last for the work.
        let idle = self.idle.lock().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => self.connect().map_err(ResourceError::Failed)?,
        };
        let done = work(&connection);
        self.idle.lock().push(connection);
        done
    }
}
