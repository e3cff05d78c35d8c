//! PostgreSQL: the statements.

use std::sync::Arc;

use tenure::resources::postgres::{
    CREATE_TABLE, HIGHEST, READ, UPDATE, WRITE, read, update, write,
};
use tenure::{FencingToken, StaleToken};
use tokio::runtime::Runtime;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, IsolationLevel, NoTls};

use crate::servers::{Postgres, unique};
use crate::story::{Number, Way, a_crowd_of_writers, a_paused_writer, number, stale};
use crate::token;

pub(crate) const KEY: &str = "account/7";

/// One connection, in a schema of the test's own.
pub(crate) struct Writer {
    pub(crate) client: Client,
    runtime: Runtime,
    _server: Arc<Postgres>,
}

impl Writer {
    pub(crate) fn connect(server: &Arc<Postgres>, schema: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let client = runtime.block_on(async {
            let connected = tokio_postgres::connect(&server.config(), NoTls).await;
            let (client, connection) = connected.expect("the server of this test");
            tokio::spawn(connection);
            let schema =
                format!("CREATE SCHEMA IF NOT EXISTS {schema}; SET search_path = {schema}");
            client.batch_execute(&schema).await.unwrap();
            client
        });
        Self {
            client,
            runtime,
            _server: Arc::clone(server),
        }
    }

    pub(crate) fn run<T>(&self, work: impl AsyncFnOnce(&Client) -> T) -> T {
        self.runtime.block_on(work(&self.client))
    }
}

/// A table for each telling.
pub(crate) fn begin(preparation: &str) -> impl Fn() -> Writer + use<> {
    let server = Postgres::shared();
    let schema = unique("resources");
    let first = Writer::connect(&server, &schema);
    first.run(async |client| {
        client.batch_execute(CREATE_TABLE).await.unwrap();
        client.batch_execute(preparation).await.unwrap();
    });
    move || Writer::connect(&server, &schema)
}

impl Number for Writer {
    fn read(&mut self, way: Way, token: FencingToken) -> Result<u64, StaleToken> {
        self.run(async |client| match way {
            Way::Fenced => stale(read::<String>(client, KEY, token).await).map(number),
            Way::Unfenced => {
                let plain = "SELECT value FROM fenced_values WHERE key = $1";
                let row = client.query_opt(plain, &[&KEY]).await.unwrap();
                Ok(number(row.and_then(|row| row.get::<_, Option<String>>(0))))
            }
        })
    }

    fn write(&mut self, way: Way, token: FencingToken, new: u64) -> Result<(), StaleToken> {
        self.run(async |client| match way {
            Way::Fenced => stale(write(client, KEY, token, &new.to_string()).await),
            Way::Unfenced => {
                let plain = "INSERT INTO fenced_values (key, value, fence) VALUES ($1, $2, $3)
                     ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value";
                let text = new.to_string();
                let row: [&(dyn ToSql + Sync); 3] = [&KEY, &text, &token.as_i64()];
                client.execute(plain, &row).await.unwrap();
                Ok(())
            }
        })
    }
}

#[test]
fn a_paused_writer_loses_anothers_write_only_without_the_condition() {
    a_paused_writer(|_| begin(""));
}

#[test]
fn a_crowd_of_paused_writers_loses_writes_only_without_the_condition() {
    a_crowd_of_writers(|_| begin(""));
}

#[test]
fn equal_tokens_are_accepted_lower_ones_refused_and_higher_ones_remembered() {
    begin("")().run(async |client| {
        let highest = |refused: Result<(), _>| stale(refused).unwrap_err().highest;
        write(client, KEY, token(33), &"1").await.unwrap();
        write(client, KEY, token(33), &"2").await.unwrap();
        write(client, KEY, token(34), &"3").await.unwrap();
        let late = write(client, KEY, token(33), &"4").await;
        assert_eq!(highest(late), token(34));
        let late = update(client, KEY, token(33), &"4").await.map(drop);
        assert_eq!(highest(late), token(34));
        let late = read::<String>(client, KEY, token(33)).await.map(drop);
        assert_eq!(highest(late), token(34));
        let kept: Option<String> = read(client, KEY, token(34)).await.unwrap();
        assert_eq!(kept.as_deref(), Some("3"));
        write(client, KEY, FencingToken::MAX, &"5").await.unwrap();
        let below = token(FencingToken::MAX.get() - 1);
        assert!(stale(write(client, KEY, below, &"6").await).is_err());
    });
}

#[test]
fn a_read_of_nothing_raises_the_fence_and_an_update_of_nothing_does_nothing() {
    begin("")().run(async |client| {
        assert!(!update(client, KEY, token(33), &"1").await.unwrap());
        let nothing = read::<String>(client, KEY, token(34)).await.unwrap();
        assert_eq!(nothing, None);
        assert!(stale(write(client, KEY, token(33), &"1").await).is_err());
        assert!(update(client, KEY, token(34), &"1").await.unwrap());
    });
}

#[test]
fn the_statements_say_by_their_rows_what_their_documentation_says() {
    begin("")().run(async |client| {
        let run = async |statement, token: i64| {
            let changed = client.execute(statement, &[&KEY, &token, &"x"]).await;
            changed.unwrap()
        };
        assert_eq!(run(UPDATE, 34).await, 0);
        assert_eq!(run(WRITE, 34).await, 1);
        assert_eq!(run(UPDATE, 34).await, 1);
        assert_eq!((run(UPDATE, 33).await, run(WRITE, 33).await), (0, 0));
        let rows = client.query(READ, &[&KEY, &33_i64]).await.unwrap();
        assert!(rows.is_empty());
        let rows = client.query(READ, &[&KEY, &34_i64]).await.unwrap();
        assert_eq!(rows[0].get::<_, &str>(0), "x");
        let row = client.query_one(HIGHEST, &[&KEY]).await.unwrap();
        assert_eq!(row.get::<_, i64>(0), 34);
    });
}

/// A transaction that has raised the fence of one row keeps others out of all that it touches until it ends;
/// at the higher levels the other one has to begin again.
#[test]
fn a_transaction_holds_the_row_that_it_presented_its_token_to() {
    for level in [
        IsolationLevel::ReadCommitted,
        IsolationLevel::RepeatableRead,
        IsolationLevel::Serializable,
    ] {
        let connect = begin("");
        let (mut a, b) = (connect(), connect());
        let runtime = a.runtime.handle().clone();
        runtime.block_on(async {
            write(&b.client, KEY, token(32), &"100").await.unwrap();
            let transaction = a.client.build_transaction().isolation_level(level);
            let transaction = transaction.start().await.unwrap();
            let seen: Option<String> = read(&transaction, KEY, token(33)).await.unwrap();
            assert_eq!(seen.as_deref(), Some("100"));

            // B's lease is later; it waits for the row all the same, and then sees what A wrote.
            let mut of_b = Box::pin(read::<String>(&b.client, KEY, token(34)));
            let wait = std::time::Duration::from_millis(100);
            let early = tokio::time::timeout(wait, &mut of_b).await;
            assert!(early.is_err(), "{level:?}: {early:?}");
            write(&transaction, KEY, token(33), &"110").await.unwrap();
            transaction.commit().await.unwrap();
            assert_eq!(of_b.await.unwrap().as_deref(), Some("110"));

            // The other way round: the late one is refused, or told that it can't be put in order.
            let transaction = a.client.build_transaction().isolation_level(level);
            let transaction = transaction.start().await.unwrap();
            transaction
                .query("SELECT 1 FROM fenced_values", &[])
                .await
                .unwrap();
            write(&b.client, KEY, token(35), &"125").await.unwrap();
            let error = write(&transaction, KEY, token(33), &"110")
                .await
                .unwrap_err();
            if matches!(level, IsolationLevel::ReadCommitted) {
                assert_eq!(error.stale().unwrap().highest, token(35));
            } else {
                let text = format!("{error:?}");
                assert!(text.contains("40001"), "{level:?}: {text}");
            }
        });
    }
}

#[test]
fn other_errors_are_told_apart_from_stale_tokens() {
    begin("DROP TABLE fenced_values")().run(async |client| {
        let error = write(client, KEY, token(34), &"1").await.unwrap_err();
        assert_eq!(error.stale(), None);
        let text = format!("{error:?}");
        // The SQLSTATE of a table that is not there.
        assert!(text.contains("42P01"), "{text}");
    });
}
