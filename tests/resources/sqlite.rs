//! SQLite: the statements and the triggers, with a database file.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, params};
use tempfile::TempDir;
use tenure::resources::sqlite::{
    CREATE_TABLE, CREATE_TRIGGERS, HIGHEST, READ, UPDATE, WRITE, is_stale, read, update, write,
};
use tenure::{FencingToken, StaleToken};

use crate::story::{Number, Way, a_crowd_of_writers, a_paused_writer, number, stale};
use crate::token;

const KEY: &str = "account/7";

struct Writer {
    database: Connection,
    /// So that the file stays until its last writer has gone.
    _directory: Arc<TempDir>,
}

fn open(directory: &Path) -> Connection {
    let database = Connection::open(directory.join("database")).unwrap();
    database.busy_timeout(Duration::from_secs(30)).unwrap();
    database.pragma_update(None, "journal_mode", "WAL").unwrap();
    database
        .pragma_update(None, "synchronous", "NORMAL")
        .unwrap();
    database
}

/// A new database for each telling; with the triggers or without.
fn begin(triggers: bool) -> impl Fn() -> Writer {
    let directory = Arc::new(tempfile::tempdir().unwrap());
    let database = open(directory.path());
    database.execute_batch(CREATE_TABLE).unwrap();
    if triggers {
        database.execute_batch(CREATE_TRIGGERS).unwrap();
    }
    move || Writer {
        database: open(directory.path()),
        _directory: Arc::clone(&directory),
    }
}

impl Number for Writer {
    fn read(&mut self, way: Way, token: FencingToken) -> Result<u64, StaleToken> {
        match way {
            Way::Fenced => stale(read::<String>(&self.database, KEY, token)).map(number),
            Way::Unfenced => {
                let plain = "SELECT max(value) FROM fenced_values WHERE key = ?1";
                let value = self.database.query_row(plain, [KEY], |row| row.get(0));
                let value: Option<String> = value.unwrap();
                Ok(number(value))
            }
        }
    }

    fn write(&mut self, way: Way, token: FencingToken, new: u64) -> Result<(), StaleToken> {
        match way {
            Way::Fenced => stale(write(&self.database, KEY, token, &new.to_string())),
            Way::Unfenced => {
                let plain = "INSERT INTO fenced_values (key, value, fence) VALUES (?1, ?2, ?3)
                     ON CONFLICT (key) DO UPDATE SET value = excluded.value";
                let row = params![KEY, new.to_string(), token.as_i64()];
                self.database.execute(plain, row).unwrap();
                Ok(())
            }
        }
    }
}

#[test]
fn a_paused_writer_loses_anothers_write_only_without_the_condition() {
    a_paused_writer(|_| begin(false));
}

#[test]
fn a_crowd_of_paused_writers_loses_writes_only_without_the_condition() {
    a_crowd_of_writers(|_| begin(false));
}

/// Writers that know nothing of the condition, and present their token to the triggers.
struct Presenting(Writer);

impl Presenting {
    fn refusal(&self, error: &rusqlite::Error, presented: FencingToken) -> StaleToken {
        assert!(is_stale(error), "{error}");
        // The types of this crate are made by its own functions.
        stale(write(&self.0.database, KEY, presented, &0)).unwrap_err()
    }
}

impl Number for Presenting {
    fn read(&mut self, way: Way, token: FencingToken) -> Result<u64, StaleToken> {
        if way == Way::Unfenced {
            return self.0.read(way, token);
        }
        let raise = "INSERT INTO fenced_values (key, fence) VALUES (?1, ?2)
            ON CONFLICT (key) DO UPDATE SET fence = excluded.fence RETURNING value";
        let value = self
            .0
            .database
            .query_row(raise, params![KEY, token.as_i64()], |row| row.get(0));
        value
            .map(|value: Option<String>| number(value))
            .map_err(|error| self.refusal(&error, token))
    }

    fn write(&mut self, way: Way, token: FencingToken, new: u64) -> Result<(), StaleToken> {
        if way == Way::Unfenced {
            return self.0.write(way, token, new);
        }
        let plain = "INSERT INTO fenced_values (key, value, fence) VALUES (?1, ?2, ?3)
             ON CONFLICT (key) DO UPDATE SET value = excluded.value, fence = excluded.fence";
        let written = self
            .0
            .database
            .execute(plain, params![KEY, new.to_string(), token.as_i64()]);
        written
            .map(drop)
            .map_err(|error| self.refusal(&error, token))
    }
}

#[test]
fn a_paused_writer_loses_anothers_write_only_without_the_triggers() {
    a_paused_writer(|way| {
        let connect = begin(way == Way::Fenced);
        move || Presenting(connect())
    });
}

#[test]
fn a_crowd_of_paused_writers_loses_writes_only_without_the_triggers() {
    a_crowd_of_writers(|way| {
        let connect = begin(way == Way::Fenced);
        move || Presenting(connect())
    });
}

#[test]
fn equal_tokens_are_accepted_lower_ones_refused_and_higher_ones_remembered() {
    for triggers in [false, true] {
        let database = begin(triggers)().database;
        let highest = |refused: Result<(), _>| stale(refused).unwrap_err().highest;
        write(&database, KEY, token(33), &1).unwrap();
        write(&database, KEY, token(33), &2).unwrap();
        write(&database, KEY, token(34), &3).unwrap();
        assert_eq!(highest(write(&database, KEY, token(33), &4)), token(34));
        assert_eq!(
            highest(update(&database, KEY, token(33), &4).map(drop)),
            token(34)
        );
        let late = read::<i64>(&database, KEY, token(33)).map(drop);
        assert_eq!(highest(late), token(34));
        assert_eq!(read(&database, KEY, token(34)).unwrap(), Some(3));
        // Beyond what a double can tell apart.
        let great = token((1 << 53) + 1);
        write(&database, KEY, great, &5).unwrap();
        assert!(write(&database, KEY, token(1 << 53), &6).is_err());
        write(&database, KEY, FencingToken::MAX, &7).unwrap();
        let below = token(FencingToken::MAX.get() - 1);
        assert!(write(&database, KEY, below, &8).is_err());
        assert_eq!(read(&database, KEY, FencingToken::MAX).unwrap(), Some(7));
    }
}

#[test]
fn a_read_of_nothing_raises_the_fence_and_an_update_of_nothing_does_nothing() {
    let database = begin(false)().database;
    assert!(!update(&database, KEY, token(33), &1).unwrap());
    assert_eq!(read::<i64>(&database, KEY, token(34)).unwrap(), None);
    assert!(write(&database, KEY, token(33), &1).is_err());
    assert!(update(&database, KEY, token(34), &1).unwrap());
}

#[test]
fn the_statements_say_by_their_rows_what_their_documentation_says() {
    let database = begin(false)().database;
    let run = |statement, token| {
        database
            .execute(statement, params![KEY, token, "x"])
            .unwrap()
    };
    assert_eq!(run(UPDATE, 34), 0);
    assert_eq!(run(WRITE, 34), 1);
    assert_eq!(run(UPDATE, 34), 1);
    assert_eq!((run(UPDATE, 33), run(WRITE, 33)), (0, 0));
    let mut statement = database.prepare(READ).unwrap();
    assert!(!statement.exists(params![KEY, 33]).unwrap());
    assert!(statement.exists(params![KEY, 34]).unwrap());
    let highest = database.query_row(HIGHEST, [KEY], |row| row.get::<_, i64>(0));
    assert_eq!(highest, Ok(34));
}

#[test]
fn the_triggers_refuse_every_writer_that_presents_no_token() {
    let database = begin(true)().database;
    write(&database, KEY, token(34), &1).unwrap();
    for (statement, message) in [
        ("UPDATE fenced_values SET value = 2", "no fencing token"),
        ("UPDATE fenced_values SET value = 2, fence = 33", "stale"),
        (
            "UPDATE fenced_values SET value = 2, fence = 0",
            "no fencing",
        ),
        ("UPDATE fenced_values SET fence = NULL", "no fencing token"),
        ("DELETE FROM fenced_values", "would forget"),
        (
            "INSERT INTO fenced_values VALUES ('new', 1, 0)",
            "no fencing token",
        ),
        (
            "INSERT OR REPLACE INTO fenced_values VALUES ('account/7', 2, 33)",
            "stale",
        ),
        (
            "INSERT INTO fenced_values VALUES ('account/7', 2, 34)
             ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            "no fencing token",
        ),
    ] {
        let error = database.execute(statement, []).unwrap_err();
        assert!(error.to_string().contains(message), "{statement}: {error}");
        assert_eq!(is_stale(&error), message == "stale", "{statement}: {error}");
        assert_eq!(read(&database, KEY, token(34)).unwrap(), Some(1));
    }
    // A row that is passed over keeps the note of what was presented to it: nobody is held up by that, nor let in with
    // another token.
    write(&database, "taken", token(1), &1).unwrap();
    let passed_over = "UPDATE OR IGNORE fenced_values SET key = 'taken', fence = 35
        WHERE key = 'account/7'";
    assert_eq!(database.execute(passed_over, []), Ok(0));
    let without = "UPDATE fenced_values SET value = 2 WHERE key = 'account/7'";
    let error = database.execute(without, []).unwrap_err();
    assert!(error.to_string().contains("no fencing token"), "{error}");
    write(&database, KEY, token(34), &1).unwrap();
    database
        .execute_batch(
            "DROP TRIGGER fenced_values_delete; DELETE FROM fenced_values WHERE key = 'taken'",
        )
        .unwrap();
    // Whoever presents one may do as before; and what was noted meanwhile is gone.
    for statement in [
        "UPDATE fenced_values SET value = 2, fence = 34",
        "UPDATE fenced_values SET value = 3, fence = 35",
        "INSERT OR REPLACE INTO fenced_values VALUES ('account/7', 4, 35)",
    ] {
        assert_eq!(database.execute(statement, []), Ok(1), "{statement}");
    }
    let noted = "SELECT count(*) FROM fenced_values_presented";
    let noted = database.query_row(noted, [], |row| row.get::<_, i64>(0));
    assert_eq!(noted, Ok(0));
}

#[test]
fn other_errors_are_told_apart_from_stale_tokens() {
    let database = Connection::open_in_memory().unwrap();
    let error = write(&database, KEY, token(34), &1).unwrap_err();
    assert_eq!(error.stale(), None);
    assert!(error.to_string().contains("no such table"), "{error}");
}
