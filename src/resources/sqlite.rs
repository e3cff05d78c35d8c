//! SQLite: a conditional statement, or triggers that hold every writer to it.
//!
//! The constants speak of a table `fenced_values`; put your own names in. Their parameters are always in
//! the same order: `?1` the key, `?2` the token, `?3` the new value.
//!
//! # What makes it safe
//!
//! A database has one writer at a time, and a statement that writes is one from its first comparison on. So is
//! a transaction that was begun with `BEGIN IMMEDIATE`. One that was begun with a plain `BEGIN` and reads first
//! may be told `SQLITE_BUSY` when it comes to write: nothing is lost then, but it has to begin again.
//!
//! Set a busy timeout, or a statement that finds another one writing fails at once:
//! `PRAGMA busy_timeout = 5000`. With `PRAGMA journal_mode = WAL` readers don't disturb writers.
//!
//! # The statement or the triggers
//!
//! The statements protect against paused holders, who all use them. The triggers ([`CREATE_TRIGGERS`]) also
//! hold those to it who don't. They refuse every statement that does not set the fence, or sets it lower, and
//! every `DELETE`, which would forget it. Then any statement will do that says `SET …, fence = <my token>`.
//! Both can be used at once. (What they can't refuse, after an `UPDATE OR IGNORE`, is said there.)

#[cfg(feature = "sqlite")]
use rusqlite::types::FromSql;
#[cfg(feature = "sqlite")]
use rusqlite::{Connection, Error, OptionalExtension, ToSql, params};

#[cfg(feature = "sqlite")]
use super::{ResourceError, judge};
#[cfg(feature = "sqlite")]
use crate::FencingToken;

/// A table of values of any type with their fence; a value that is `NULL` has not been written, or is deleted.
///
/// To a table that is there already, add the column: `ALTER TABLE … ADD COLUMN fence INTEGER NOT NULL DEFAULT 0`.
pub const CREATE_TABLE: &str = "\
CREATE TABLE IF NOT EXISTS fenced_values (
    key   TEXT    NOT NULL PRIMARY KEY,
    value,
    fence INTEGER NOT NULL
)";

/// Reads a value and raises its fence, in one step: `?1` the key, `?2` the token. Needs SQLite 3.35.
///
/// No row comes back if the token is stale, and only then: a key that was not there is, after this.
pub const READ: &str = "\
INSERT INTO fenced_values (key, fence) VALUES (?1, ?2)
ON CONFLICT (key) DO UPDATE SET fence = excluded.fence
    WHERE fenced_values.fence <= excluded.fence
RETURNING value";

/// Inserts or updates a value: `?1` the key, `?2` the token, `?3` the value. Needs SQLite 3.24.
///
/// No row is changed if the token is stale, and only then.
pub const WRITE: &str = "\
INSERT INTO fenced_values (key, fence, value) VALUES (?1, ?2, ?3)
ON CONFLICT (key) DO UPDATE SET fence = excluded.fence, value = excluded.value
    WHERE fenced_values.fence <= excluded.fence";

/// Updates a value: `?1` the key, `?2` the token, `?3` the value.
///
/// No row is changed if the token is stale, or if there is no such key: [`HIGHEST`] tells which.
pub const UPDATE: &str = "\
UPDATE fenced_values SET fence = ?2, value = ?3
WHERE key = ?1 AND fence <= ?2";

/// The highest token that a key has seen: `?1` the key.
///
/// Asked after a statement that changed no row. The fence only rises, so a token that is below it now was
/// stale then, or has become so since; it is over in any case.
pub const HIGHEST: &str = "SELECT fence FROM fenced_values WHERE key = ?1";

/// The triggers; several statements, for `sqlite3_exec` or `Connection::execute_batch`.
///
/// A table notes which rows the running statement presents a token to: there is no other way to tell a writer
/// that sets the fence to what it is from one that does not know of it. It is empty between statements, but
/// for rows that an `UPDATE OR IGNORE` presented a token to and left as they were: don't use that, for one
/// statement after it that sets no fence is let in, as long as the row's fence is that token.
///
/// A statement that changes a row's key takes its fence with it: don't.
///
/// `INSERT OR REPLACE` and `REPLACE` would put a new row in the place of one that fires no trigger as it goes:
/// so a lower token is refused where it is inserted.
pub const CREATE_TRIGGERS: &str = "\
CREATE TABLE IF NOT EXISTS fenced_values_presented (
    key   TEXT    NOT NULL PRIMARY KEY,
    fence INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TRIGGER fenced_values_insert BEFORE INSERT ON fenced_values BEGIN
    SELECT RAISE(ABORT, 'tenure: no fencing token') WHERE NEW.fence IS NULL OR NEW.fence <= 0;
    SELECT RAISE(ABORT, 'tenure: stale fencing token') FROM fenced_values
        WHERE key = NEW.key AND fence > NEW.fence;
END;
CREATE TRIGGER fenced_values_presents BEFORE UPDATE OF fence ON fenced_values BEGIN
    SELECT RAISE(ABORT, 'tenure: no fencing token') WHERE NEW.fence IS NULL OR NEW.fence <= 0;
    SELECT RAISE(ABORT, 'tenure: stale fencing token') WHERE NEW.fence < OLD.fence;
    DELETE FROM fenced_values_presented WHERE key = OLD.key;
    INSERT INTO fenced_values_presented VALUES (OLD.key, NEW.fence);
END;
CREATE TRIGGER fenced_values_update AFTER UPDATE ON fenced_values BEGIN
    SELECT RAISE(ABORT, 'tenure: no fencing token')
        WHERE NOT EXISTS (
            SELECT 1 FROM fenced_values_presented WHERE key = OLD.key AND fence = NEW.fence);
    DELETE FROM fenced_values_presented WHERE key = OLD.key;
END;
CREATE TRIGGER fenced_values_delete BEFORE DELETE ON fenced_values BEGIN
    SELECT RAISE(ABORT, 'tenure: a DELETE would forget the fence; set the value to NULL');
END";

/// What the triggers say of a token that is below the row's, with the code `SQLITE_CONSTRAINT_TRIGGER`.
pub const STALE_TOKEN: &str = "tenure: stale fencing token";
/// What the triggers say of a statement that sets no fence, or none that is a token; with the same code.
pub const NO_TOKEN: &str = "tenure: no fencing token";

/// Reads a value under a token, with [`READ`]: `None` if it was never written.
///
/// From then on lower tokens are refused. Costs a write; the statement is prepared once for each connection.
///
/// # Errors
///
/// [`Stale`](ResourceError::Stale) if a higher token was seen;
/// [`Failed`](ResourceError::Failed) for everything that SQLite says.
///
/// ```
/// use tenure::FencingToken;
/// use tenure::resources::sqlite;
///
/// let database = rusqlite::Connection::open_in_memory()?;
/// database.execute_batch(sqlite::CREATE_TABLE)?;
/// let (a, b) = (FencingToken::new(33)?, FencingToken::new(34)?);
///
/// sqlite::write(&database, "account/7", a, &100)?;
/// // A is paused past its lease; B is granted the next one.
/// let balance: Option<i64> = sqlite::read(&database, "account/7", b)?;
/// sqlite::write(&database, "account/7", b, &(balance.unwrap_or(0) + 25))?;
/// // A wakes up.
/// let refused = sqlite::write(&database, "account/7", a, &110).unwrap_err();
/// assert_eq!(refused.stale().unwrap().highest, b);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "sqlite")]
pub fn read<V: FromSql>(
    connection: &Connection,
    key: &str,
    token: FencingToken,
) -> Result<Option<V>, ResourceError<Error>> {
    let raise = || -> Result<Option<Option<V>>, Error> {
        let mut statement = connection.prepare_cached(READ)?;
        let mut rows = statement.query(params![key, token.as_i64()])?;
        let value = rows.next()?.map(|row| row.get(0)).transpose()?;
        // The fence is raised when the statement has ended, and ends as it says that there is no other row.
        while rows.next()?.is_some() {}
        Ok(value)
    };
    // A loop, here and below, because of a row that is deleted between the two statements.
    loop {
        let value = raise().map_err(|error| refused(connection, key, token, error))?;
        if let Some(value) = value {
            return Ok(value);
        }
        above(connection, key, token)?;
    }
}

/// Writes a value under a token, with [`WRITE`].
///
/// Costs one write; the statement is prepared once for each connection.
///
/// # Errors
///
/// [`Stale`](ResourceError::Stale) if a higher token was seen: nothing was written;
/// [`Failed`](ResourceError::Failed) for everything that SQLite says.
///
/// An example stands at [`read`].
#[cfg(feature = "sqlite")]
pub fn write<V: ToSql + ?Sized>(
    connection: &Connection,
    key: &str,
    token: FencingToken,
    value: &V,
) -> Result<(), ResourceError<Error>> {
    loop {
        if execute(connection, WRITE, key, token, value)? {
            return Ok(());
        }
        above(connection, key, token)?;
    }
}

/// Updates a value that is there, with [`UPDATE`]; `false` if the key is not.
///
/// Costs what [`write()`] does.
///
/// # Errors
///
/// [`Stale`](ResourceError::Stale) if a higher token was seen: nothing was written;
/// [`Failed`](ResourceError::Failed) for everything that SQLite says.
///
/// ```
/// use tenure::FencingToken;
/// use tenure::resources::sqlite;
///
/// let database = rusqlite::Connection::open_in_memory()?;
/// database.execute_batch(sqlite::CREATE_TABLE)?;
/// assert!(!sqlite::update(&database, "account/7", FencingToken::MIN, &100)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "sqlite")]
pub fn update<V: ToSql + ?Sized>(
    connection: &Connection,
    key: &str,
    token: FencingToken,
    value: &V,
) -> Result<bool, ResourceError<Error>> {
    loop {
        if execute(connection, UPDATE, key, token, value)? {
            return Ok(true);
        }
        if !above(connection, key, token)? {
            return Ok(false);
        }
    }
}

/// Whether an error of any statement is the triggers' refusal of a stale token.
///
/// SQLite's triggers can't say which token they have seen: ask with [`HIGHEST`].
///
/// ```
/// use tenure::resources::sqlite;
///
/// let database = rusqlite::Connection::open_in_memory()?;
/// database.execute_batch(sqlite::CREATE_TABLE)?;
/// database.execute_batch(sqlite::CREATE_TRIGGERS)?;
/// database.execute("INSERT INTO fenced_values VALUES ('account/7', 125, 34)", [])?;
/// let late = database.execute("UPDATE fenced_values SET value = 110, fence = 33", []);
/// assert!(sqlite::is_stale(&late.unwrap_err()));
/// # Ok::<(), rusqlite::Error>(())
/// ```
#[cfg(feature = "sqlite")]
#[must_use]
pub fn is_stale(error: &Error) -> bool {
    matches!(error, Error::SqliteFailure(code, Some(message))
        if code.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_TRIGGER
            && message.contains(STALE_TOKEN))
}

#[cfg(feature = "sqlite")]
fn execute<V: ToSql + ?Sized>(
    connection: &Connection,
    statement: &str,
    key: &str,
    token: FencingToken,
    value: &V,
) -> Result<bool, ResourceError<Error>> {
    connection
        .prepare_cached(statement)
        .and_then(|mut statement| statement.execute(params![key, token.as_i64(), value]))
        .map(|changed| changed > 0)
        .map_err(|error| refused(connection, key, token, error))
}

#[cfg(feature = "sqlite")]
fn refused(
    connection: &Connection,
    key: &str,
    token: FencingToken,
    error: Error,
) -> ResourceError<Error> {
    if is_stale(&error)
        && let Err(stale) = above(connection, key, token)
    {
        return stale;
    }
    ResourceError::Failed(error)
}

/// Why a statement changed no row: an error if it was for the token, or whether there is such a row.
#[cfg(feature = "sqlite")]
fn above(
    connection: &Connection,
    key: &str,
    token: FencingToken,
) -> Result<bool, ResourceError<Error>> {
    let fence: Option<i64> = connection
        .prepare_cached(HIGHEST)
        .and_then(|mut statement| statement.query_row([key], |row| row.get(0)).optional())
        .map_err(ResourceError::Failed)?;
    judge(fence, token)
}
