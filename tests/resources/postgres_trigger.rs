//! PostgreSQL: the trigger, for writers that know nothing of the statements.

use tenure::resources::postgres::{
    CREATE_CHECK, CREATE_TRIGGERS, FENCE_FORGOTTEN, NO_TOKEN, STALE_TOKEN, read, stale, write,
};
use tenure::{FencingToken, StaleToken};
use tokio_postgres::Error;
use tokio_postgres::types::ToSql;

use crate::postgres::{KEY, Writer, begin};
use crate::story::{Number, Way, a_crowd_of_writers, a_paused_writer, number};
use crate::token;

/// Presents its token, and has no condition in its statements.
struct Presenting(Writer);

fn refusal(error: &Error) -> StaleToken {
    stale(error).unwrap_or_else(|| panic!("{error:?}"))
}

impl Number for Presenting {
    fn read(&mut self, way: Way, token: FencingToken) -> Result<u64, StaleToken> {
        if way == Way::Unfenced {
            return self.0.read(way, token);
        }
        self.0.run(async |client| {
            let raise = "INSERT INTO fenced_values (key, fence) VALUES ($1, $2)
                ON CONFLICT (key) DO UPDATE SET fence = EXCLUDED.fence RETURNING value";
            let row = client.query_one(raise, &[&KEY, &token.as_i64()]).await;
            row.map(|row| number(row.get::<_, Option<String>>(0)))
                .map_err(|error| refusal(&error))
        })
    }

    fn write(&mut self, way: Way, token: FencingToken, new: u64) -> Result<(), StaleToken> {
        if way == Way::Unfenced {
            return self.0.write(way, token, new);
        }
        self.0.run(async |client| {
            let plain = "INSERT INTO fenced_values (key, value, fence) VALUES ($1, $2, $3)
                ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value, fence = EXCLUDED.fence";
            let text = new.to_string();
            let row: [&(dyn ToSql + Sync); 3] = [&KEY, &text, &token.as_i64()];
            let written = client.execute(plain, &row).await;
            written.map(drop).map_err(|error| refusal(&error))
        })
    }
}

fn triggers() -> String {
    format!("{CREATE_CHECK};{CREATE_TRIGGERS}")
}

fn begin_presenting(way: Way) -> impl Fn() -> Presenting {
    let connect = if way == Way::Fenced {
        begin(&triggers())
    } else {
        begin("")
    };
    move || Presenting(connect())
}

#[test]
fn a_paused_writer_loses_anothers_write_only_without_the_triggers() {
    a_paused_writer(begin_presenting);
}

#[test]
fn a_crowd_of_paused_writers_loses_writes_only_without_the_triggers() {
    a_crowd_of_writers(begin_presenting);
}

#[test]
fn the_triggers_refuse_every_writer_that_presents_no_token() {
    begin(&triggers())().run(async |client| {
        write(client, KEY, token(34), &"1").await.unwrap();
        for (statement, state) in [
            ("UPDATE fenced_values SET value = '2'", NO_TOKEN),
            (
                "UPDATE fenced_values SET value = '2', fence = 33",
                STALE_TOKEN,
            ),
            ("UPDATE fenced_values SET value = '2', fence = 0", NO_TOKEN),
            (
                "UPDATE fenced_values SET value = '2', fence = -35",
                NO_TOKEN,
            ),
            (
                "UPDATE fenced_values SET value = '2', fence = NULL",
                NO_TOKEN,
            ),
            ("DELETE FROM fenced_values", FENCE_FORGOTTEN),
            ("TRUNCATE fenced_values", FENCE_FORGOTTEN),
            ("INSERT INTO fenced_values VALUES ('new', '1', 0)", NO_TOKEN),
            (
                "INSERT INTO fenced_values VALUES ('new', '1', NULL)",
                NO_TOKEN,
            ),
            (
                "INSERT INTO fenced_values VALUES ('account/7', '2', 34)
                 ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value",
                NO_TOKEN,
            ),
            (
                "INSERT INTO fenced_values VALUES ('account/7', '2', 33)
                 ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value, fence = EXCLUDED.fence",
                STALE_TOKEN,
            ),
            (
                "MERGE INTO fenced_values USING (VALUES (33)) AS by (token) ON key = 'account/7'
                 WHEN MATCHED THEN UPDATE SET value = '2', fence = by.token",
                STALE_TOKEN,
            ),
        ] {
            let error = client.execute(statement, &[]).await.unwrap_err();
            let said = error.as_db_error().unwrap();
            assert_eq!(said.code().code(), state, "{statement}: {said}");
            assert!(said.hint().is_some(), "{statement}: {said}");
            assert_eq!(stale(&error).is_some(), state == STALE_TOKEN, "{statement}");
            let kept: Option<String> = read(client, KEY, token(34)).await.unwrap();
            assert_eq!(kept.as_deref(), Some("1"), "{statement}");
        }
        for statement in [
            "UPDATE fenced_values SET value = '2', fence = 34",
            "UPDATE fenced_values SET value = '3', fence = 35",
            "INSERT INTO fenced_values VALUES ('new', '1', 9223372036854775807)",
        ] {
            let changed = client.execute(statement, &[]).await;
            assert_eq!(changed.unwrap(), 1, "{statement}");
        }
        let row = client.query_one("SELECT max(fence), min(fence) FROM fenced_values", &[]);
        let row = row.await.unwrap();
        assert_eq!((row.get(0), row.get(1)), (i64::MAX, 35_i64));
    });
}

#[test]
fn the_refusal_names_both_tokens_in_words_and_for_programs() {
    begin(&triggers())().run(async |client| {
        write(client, KEY, token(34), &"1").await.unwrap();
        let late = client.execute("UPDATE fenced_values SET fence = 33", &[]);
        let error = late.await.unwrap_err();
        let refused = refusal(&error);
        assert_eq!((refused.presented, refused.highest), (token(33), token(34)));
        let said = error.as_db_error().unwrap();
        assert!(said.message().contains("33 is stale: token 34"), "{said}");
    });
}

/// In a table of one's own, with columns and a key of its own: all that the function knows is the fence.
#[test]
fn the_triggers_fit_any_table_with_the_column() {
    begin(&triggers())().run(async |client| {
        let triggers = CREATE_TRIGGERS.replace("fenced_values", "accounts");
        let table = "CREATE TABLE accounts (id int, owner text, fence bigint NOT NULL DEFAULT 0);
             INSERT INTO accounts VALUES (7, 'alice')";
        client.batch_execute(table).await.unwrap();
        client.batch_execute(&triggers).await.unwrap();
        let blind = client
            .execute("UPDATE accounts SET owner = 'bob'", &[])
            .await;
        assert_eq!(
            blind.unwrap_err().as_db_error().unwrap().code().code(),
            NO_TOKEN
        );
        let seeing = "UPDATE accounts SET owner = 'bob', fence = $1 WHERE id = 7";
        assert_eq!(client.execute(seeing, &[&34_i64]).await.unwrap(), 1);
        assert!(stale(&client.execute(seeing, &[&33_i64]).await.unwrap_err()).is_some());
    });
}
