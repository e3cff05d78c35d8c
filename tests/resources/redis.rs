//! Redis: the scripts.

use std::sync::Arc;

use redis::{Client, Connection, TypedCommands, Value};
use tenure::resources::redis::{READ, WRITE, read, write};
use tenure::{FencingToken, StaleToken};

use crate::servers::{Redis, unique};
use crate::story::{Number, Way, a_crowd_of_writers, a_paused_writer, stale};
use crate::token;

struct Writer {
    connection: Connection,
    key: String,
    _server: Arc<Redis>,
}

/// A key for each telling.
fn begin() -> impl Fn() -> Writer {
    let server = Redis::shared();
    let key = unique("account");
    move || Writer {
        connection: Client::open(server.url())
            .unwrap()
            .get_connection()
            .expect("the server of this test"),
        key: key.clone(),
        _server: Arc::clone(&server),
    }
}

impl Number for Writer {
    fn read(&mut self, way: Way, token: FencingToken) -> Result<u64, StaleToken> {
        match way {
            Way::Fenced => {
                stale(read(&mut self.connection, &self.key, token)).map(Option::unwrap_or_default)
            }
            Way::Unfenced => {
                let value = self.connection.hget(&self.key, "value").unwrap();
                Ok(value.map_or(0, |value| value.parse().unwrap()))
            }
        }
    }

    fn write(&mut self, way: Way, token: FencingToken, new: u64) -> Result<(), StaleToken> {
        match way {
            Way::Fenced => stale(write(&mut self.connection, &self.key, token, new)),
            Way::Unfenced => {
                self.connection.hset(&self.key, "value", new).unwrap();
                Ok(())
            }
        }
    }
}

#[test]
fn a_paused_writer_loses_anothers_write_only_without_the_script() {
    a_paused_writer(|_| begin());
}

#[test]
fn a_crowd_of_paused_writers_loses_writes_only_without_the_script() {
    a_crowd_of_writers(|_| begin());
}

/// Where a double has no odd numbers any more, where a digit is added, and at the very end.
#[test]
fn tokens_are_compared_to_the_last_digit() {
    for (lower, higher) in [
        (1, 2),
        (9, 10),
        (99, 100),
        (1 << 53, (1 << 53) + 1),
        ((1 << 53) + 1, (1 << 53) + 2),
        (999_999_999_999_999_999, 1_000_000_000_000_000_000),
        (FencingToken::MAX.get() - 1, FencingToken::MAX.get()),
    ] {
        let (lower, higher) = (token(lower), token(higher));
        let Writer {
            mut connection,
            key,
            _server,
        } = begin()();
        write(&mut connection, &key, lower, "first").unwrap();
        write(&mut connection, &key, lower, "second").unwrap();
        write(&mut connection, &key, higher, "third").unwrap();
        for refused in [
            stale(write(&mut connection, &key, lower, "late")),
            stale(read::<String>(&mut connection, &key, lower)).map(drop),
        ] {
            let refused = refused.unwrap_err();
            assert_eq!((refused.presented, refused.highest), (lower, higher));
        }
        let kept: Option<String> = read(&mut connection, &key, higher).unwrap();
        assert_eq!(kept.as_deref(), Some("third"));
    }
}

#[test]
fn a_read_of_nothing_raises_the_fence() {
    let Writer {
        mut connection,
        key,
        _server,
    } = begin()();
    let nothing: Option<String> = read(&mut connection, &key, token(34)).unwrap();
    assert_eq!(nothing, None);
    assert!(stale(write(&mut connection, &key, token(33), "late")).is_err());
    write(&mut connection, &key, token(34), "").unwrap();
    let empty: Option<String> = read(&mut connection, &key, token(34)).unwrap();
    assert_eq!(empty.as_deref(), Some(""));
}

/// As whoever pastes them calls them.
#[test]
fn the_scripts_say_by_their_answers_what_their_documentation_says() {
    let Writer {
        mut connection,
        key,
        _server,
    } = begin()();
    let mut run = |script: &str, arguments: &[&str]| -> redis::RedisResult<Value> {
        let mut command = redis::cmd("EVAL");
        command.arg(script).arg(1).arg(&key).arg(arguments);
        command.query(&mut connection)
    };
    let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
    assert_eq!(
        run(READ, &["34"]).unwrap(),
        Value::Array(vec![text("34"), Value::Nil])
    );
    assert_eq!(
        run(WRITE, &["34", "x"]).unwrap(),
        Value::Array(vec![text("34")])
    );
    assert_eq!(
        run(WRITE, &["33", "y"]).unwrap(),
        Value::Array(vec![text("34")])
    );
    assert_eq!(run(READ, &["33"]).unwrap(), Value::Array(vec![text("34")]));
    assert_eq!(
        run(READ, &["35"]).unwrap(),
        Value::Array(vec![text("35"), text("x")])
    );
    // What is no token must not become a fence, nor a text that only looks like a higher one.
    for nonsense in ["", "0", "035", "-36", "36.0", "4e2", "x"] {
        let error = run(WRITE, &[nonsense, "z"]).unwrap_err();
        assert!(error.to_string().contains("fencing token"), "{error}");
    }
}

#[test]
fn a_server_that_has_forgotten_its_scripts_is_given_them_again() {
    let Writer {
        mut connection,
        key,
        _server,
    } = begin()();
    write(&mut connection, &key, token(34), "x").unwrap();
    redis::cmd("SCRIPT")
        .arg("FLUSH")
        .exec(&mut connection)
        .unwrap();
    let kept: Option<String> = read(&mut connection, &key, token(34)).unwrap();
    assert_eq!(kept.as_deref(), Some("x"));
}

#[test]
fn other_errors_are_told_apart_from_stale_tokens() {
    let Writer {
        mut connection,
        key,
        _server,
    } = begin()();
    connection.set(&key, "a value without a fence").unwrap();
    let error = write(&mut connection, &key, token(34), "x").unwrap_err();
    assert_eq!(error.stale(), None);
    assert!(error.to_string().contains("WRONGTYPE"), "{error}");
}
