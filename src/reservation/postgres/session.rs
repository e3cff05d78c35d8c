//! One candidate's dealings with its row.
//!
//! Each campaign has a random incarnation, and the row bears that of whoever won last. Only who bears it may
//! extend or resign, and only within the time that the row states may it raise the mark. All of that is one
//! conditional statement each, so that it doesn't matter how long a statement is under way, or when it is
//! carried out at last: late ones find another incarnation, and a mark only rises.
//!
//! A statement of which nobody knows whether it was carried out is sent again. A second campaign finds its
//! own incarnation and wins; a second block is above the first, whose tokens are skipped.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row};

use super::super::remote::{Fault, Remote, moment, persist, unavailable};
use super::super::{Block, ReservationError};
use super::connection::{Dial, Link};
use super::statements::{CHANNEL, Statements, session};
use crate::key::HashSeed;

/// Notifications may not come through (some proxies drop them), so the row is looked at as often as that.
const LOOK: Duration = Duration::from_secs(1);

/// The row ends at a moment of the server's, and is asked for again that much after it.
const AFTERWARDS: Duration = Duration::from_millis(2);

/// Finding the row free this often, and not getting it: somebody else is faster at most a few times.
const ROUNDS: u32 = 16;

pub(super) struct Session {
    pub(super) dial: Box<dyn Dial>,
    pub(super) statements: Statements,
    pub(super) table: String,
    pub(super) shard: String,
    pub(super) name: String,
    pub(super) term: Duration,
    pub(super) timeout: Duration,
    pub(super) knows: Knowledge,
}

/// What was learned from the server.
#[derive(Default)]
pub(super) struct Knowledge {
    link: Option<Link>,
    /// Whether the link is told of those who resign.
    listens: bool,
    /// Of the last campaign; may stand in the row even if nobody told that it was won.
    incarnation: String,
    /// Of the last one that was won or resigned.
    before: String,
    /// Whether nothing but campaigns was ever sent with the incarnation. Otherwise a resignation that is
    /// still under way could end what a later campaign won.
    unused: bool,
    /// Whether that campaign was won, and nothing tells that it is over.
    leads: bool,
    /// No mark may be below it any more.
    highest: i64,
}

struct Seen {
    holder: String,
    incarnation: String,
    left: Duration,
}

impl Remote for Session {
    fn disconnect(&mut self) {
        self.knows.link = None;
        self.knows.listens = false;
    }

    fn attempt_limit(&self, limit: Duration) -> Duration {
        limit
    }
}

impl Session {
    /// Makes sure of the table, and reads the row if there is one.
    pub(super) async fn check(&mut self) -> Result<(), ReservationError> {
        let limit = self.timeout;
        persist(self, limit, async |session: &mut Self| {
            session.create_table().await?;
            session.look().await
        })
        .await?;
        Ok(())
    }

    pub(super) async fn campaign(&mut self, patience: Duration) -> Result<(), ReservationError> {
        let until = moment(patience);
        let limit = self.timeout;
        self.knows.leads = false;
        if !self.knows.unused {
            self.knows.before = std::mem::replace(&mut self.knows.incarnation, incarnation());
            self.knows.unused = true;
        }
        let mut rounds = 0;
        while rounds < ROUNDS {
            rounds += 1;
            if persist(self, limit, Self::take).await? {
                self.knows.leads = true;
                self.knows.unused = false;
                return Ok(());
            }
            let Some(seen) = persist(self, limit, Self::look).await? else {
                persist(self, limit, Self::create_row).await?;
                continue;
            };
            if seen.left.is_zero() {
                continue;
            }
            if Instant::now() >= until {
                return Err(ReservationError::Held {
                    holder: seen.holder,
                });
            }
            if !self.knows.listens {
                // Then the row is tried once more: who resigned just before was not heard.
                persist(self, limit, Self::listen).await?;
                continue;
            }
            if let Some(link) = &self.knows.link {
                let turn = moment(seen.left.min(LOOK) + AFTERWARDS).min(until);
                let _ = timeout_at(turn, link.news.notified()).await;
            }
            rounds = 0;
        }
        Err(unavailable(format!(
            "the row of shard {:?} in {} looks free and can't be taken: find out what keeps it from being \
             changed, a trigger or a policy",
            self.shard, self.table
        )))
    }

    pub(super) async fn keep_alive(&mut self) -> Result<Duration, ReservationError> {
        let limit = self.timeout;
        persist(self, limit, Self::extend).await?;
        Ok(self.term)
    }

    pub(super) async fn reserve(&mut self, tokens: NonZeroU64) -> Result<Block, ReservationError> {
        let limit = self.timeout;
        persist(self, limit, async |session: &mut Self| {
            session.take_block(tokens).await
        })
        .await
    }

    pub(super) async fn resign(&mut self) -> Result<(), ReservationError> {
        self.knows.leads = false;
        self.knows.unused = false;
        if self.knows.incarnation.is_empty() {
            return Ok(());
        }
        let limit = self.timeout;
        persist(self, limit, async |session: &mut Self| {
            let client = session.client().await?;
            let ours = [
                text(&session.shard),
                text(&session.knows.incarnation),
                text(&CHANNEL),
            ];
            let sent = client.query_typed(&session.statements.resign, &ours).await;
            sent.map_err(|error| session.fault(&error))?;
            Ok(())
        })
        .await
    }

    async fn client(&mut self) -> Result<Arc<Client>, Fault> {
        if let Some(link) = &self.knows.link
            && !link.client.is_closed()
        {
            return Ok(Arc::clone(&link.client));
        }
        self.disconnect();
        let link = self.dial().await?;
        Ok(Arc::clone(&self.knows.link.insert(link).client))
    }

    async fn dial(&self) -> Result<Link, Fault> {
        let dialed = self.dial.dial(&self.shard, self.timeout).await;
        let link = dialed.map_err(|error| self.fault(&error))?;
        let settings = session(self.timeout.as_millis());
        let set = link.client.batch_execute(&settings).await;
        set.map_err(|error| self.fault(&error))?;
        Ok(link)
    }

    async fn create_table(&mut self) -> Result<(), Fault> {
        // Creating is not tried if there is one: it needs a privilege that is needed for nothing else.
        let client = self.client().await?;
        let there = client
            .query_typed_one("SELECT to_regclass($1) IS NOT NULL", &[text(&self.table)])
            .await
            .and_then(|row| row.try_get(0));
        if there.map_err(|error| self.fault(&error))? {
            return Ok(());
        }
        let client = self.client().await?;
        let created = client.batch_execute(&self.statements.create_table).await;
        created.map_err(|error| match error.code() {
            // Somebody else creates it at this moment, which `IF NOT EXISTS` doesn't cover: its row type, or
            // a line in the catalog, is there already.
            Some(
                &SqlState::UNIQUE_VIOLATION
                | &SqlState::DUPLICATE_OBJECT
                | &SqlState::DUPLICATE_TABLE,
            ) => Fault::Passing(format!("the table is being created: {error}")),
            _ => self.fault(&error),
        })
    }

    async fn create_row(&mut self) -> Result<(), Fault> {
        if self.knows.highest > 0 {
            return Err(self.corrupt(&format!(
                "is missing, and its mark was {}",
                self.knows.highest
            )));
        }
        let client = self.client().await?;
        let created = client
            .execute_typed(&self.statements.create_row, &[text(&self.shard)])
            .await;
        created.map_err(|error| self.fault(&error))?;
        Ok(())
    }

    async fn listen(&mut self) -> Result<(), Fault> {
        let client = self.client().await?;
        let listening = client.batch_execute(&format!("LISTEN {CHANNEL}")).await;
        listening.map_err(|error| self.fault(&error))?;
        self.knows.listens = true;
        Ok(())
    }

    async fn take(&mut self) -> Result<bool, Fault> {
        let client = self.client().await?;
        let taken = client
            .execute_typed(
                &self.statements.campaign,
                &[
                    text(&self.shard),
                    text(&self.knows.incarnation),
                    text(&self.knows.before),
                    text(&self.name),
                    (&self.term.as_secs_f64(), Type::FLOAT8),
                    (&self.knows.highest, Type::INT8),
                ],
            )
            .await;
        Ok(taken.map_err(|error| self.fault(&error))? == 1)
    }

    /// Reads the row, and checks its mark.
    async fn look(&mut self) -> Result<Option<Seen>, Fault> {
        let client = self.client().await?;
        let found = client
            .query_typed_opt(&self.statements.look, &[text(&self.shard)])
            .await;
        let Some(row) = found.map_err(|error| self.fault(&error))? else {
            return Ok(None);
        };
        let mark: i64 = self.column(&row, 0)?;
        self.check_mark(mark)?;
        let left: f64 = self.column(&row, 3)?;
        Ok(Some(Seen {
            holder: self.column(&row, 1)?,
            incarnation: self.column(&row, 2)?,
            left: Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX),
        }))
    }

    fn column<'a, T>(&self, row: &'a Row, index: usize) -> Result<T, Fault>
    where
        T: tokio_postgres::types::FromSql<'a>,
    {
        row.try_get(index)
            .map_err(|error| self.corrupt(&format!("can't be read: {error}")))
    }

    fn check_mark(&mut self, mark: i64) -> Result<(), Fault> {
        let highest = self.knows.highest;
        if mark < highest {
            return Err(self.corrupt(&format!("has the mark {mark}, and had {highest}")));
        }
        self.knows.highest = mark;
        Ok(())
    }

    async fn extend(&mut self) -> Result<(), Fault> {
        if !self.knows.leads {
            return Err(Fault::Final(ReservationError::Lost));
        }
        let client = self.client().await?;
        let extended = client
            .execute_typed(
                &self.statements.keep_alive,
                &[
                    text(&self.shard),
                    text(&self.knows.incarnation),
                    (&self.term.as_secs_f64(), Type::FLOAT8),
                ],
            )
            .await;
        match extended.map_err(|error| self.fault(&error))? {
            1 => Ok(()),
            _ => Err(self.lost()),
        }
    }

    fn lost(&mut self) -> Fault {
        self.knows.leads = false;
        Fault::Final(ReservationError::Lost)
    }

    async fn take_block(&mut self, tokens: NonZeroU64) -> Result<Block, Fault> {
        if !self.knows.leads {
            return Err(self.lost());
        }
        // More than the column holds is never sent: the row is only looked at for the mark.
        if let Ok(wanted) = i64::try_from(tokens.get()) {
            let client = self.client().await?;
            let raised = client
                .query_typed_opt(
                    &self.statements.reserve,
                    &[
                        text(&self.shard),
                        text(&self.knows.incarnation),
                        (&wanted, Type::INT8),
                        (&self.knows.highest, Type::INT8),
                    ],
                )
                .await;
            if let Some(row) = raised.map_err(|error| self.fault(&error))? {
                let mark: i64 = self.column(&row, 0)?;
                self.check_mark(mark)?;
                let before = u64::try_from(mark.saturating_sub(wanted)).map_err(|_| {
                    self.corrupt(&format!("has the mark {mark}, after {wanted} tokens"))
                })?;
                return Ok(Block::after(before, tokens)?);
            }
        }
        // Nothing was changed: which of the conditions failed?
        let seen = self.look().await?;
        let ours = seen
            .is_some_and(|seen| seen.incarnation == self.knows.incarnation && !seen.left.is_zero());
        if !ours {
            return Err(self.lost());
        }
        Block::after(self.knows.highest.unsigned_abs(), tokens)?;
        Err(Fault::Passing(
            "the row changed between two looks".to_owned(),
        ))
    }

    fn corrupt(&self, what: &str) -> Fault {
        Fault::Final(ReservationError::Corrupt {
            reason: format!(
                "the row of shard {:?} in {} {what}; set its mark to a token that is above all that were \
                 ever handed out",
                self.shard, self.table
            ),
        })
    }

    /// What a failed statement means.
    fn fault(&self, error: &Error) -> Fault {
        let Some(told) = error.as_db_error() else {
            let cause = std::error::Error::source(error);
            let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
            return Fault::Passing(format!("PostgreSQL: {error}{cause}"));
        };
        meaning(&self.table, told.code(), told.message())
    }
}

/// What an error of the server means.
fn meaning(table: &str, code: &SqlState, message: &str) -> Fault {
    let reason = format!("PostgreSQL: {message} ({})", code.code());
    if *code == SqlState::READ_ONLY_SQL_TRANSACTION {
        // After a failover, another of the configured hosts may be the one that can be written to.
        return Fault::Passing(format!(
            "{reason}; this server is a standby, or set to be read only: connect to its primary"
        ));
    }
    if *code == SqlState::UNDEFINED_TABLE || *code == SqlState::INSUFFICIENT_PRIVILEGE {
        return Fault::Final(ReservationError::Storage {
            reason: format!(
                "{reason}; have the table created by its owner, and grant SELECT, INSERT and UPDATE"
            ),
        });
    }
    match code.code().get(..2).unwrap_or_default() {
        // Columns that don't exist or have other types, and numbers out of their range.
        "42" | "22" | "23" => Fault::Final(ReservationError::Corrupt {
            reason: format!(
                "the table {table} is not as this crate makes it: {reason}; put it right, or name another"
            ),
        }),
        "53" if *code != SqlState::TOO_MANY_CONNECTIONS => {
            Fault::Final(ReservationError::Storage { reason })
        }
        // Who we are, and which database: no second attempt will be better.
        "28" | "3D" => Fault::Final(unavailable(reason)),
        _ => Fault::Passing(reason),
    }
}

/// 128 random bits, by which a candidate knows its own traces.
fn incarnation() -> String {
    format!("{:032x}", HashSeed::random().get())
}

fn text<T: ToSql + Sync>(value: &T) -> (&(dyn ToSql + Sync), Type) {
    (value, Type::TEXT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_says_is_told_apart_by_what_helps() {
        let meant = |code| match meaning("tokens", &code, "said") {
            Fault::Passing(reason) => ("another attempt", reason),
            Fault::Final(ReservationError::Storage { reason }) => ("room or rights", reason),
            Fault::Final(ReservationError::Corrupt { reason }) => ("another table", reason),
            Fault::Final(ReservationError::Unavailable { reason }) => ("other options", reason),
            Fault::Final(error) => panic!("{error}"),
        };
        for (code, helps) in [
            (SqlState::READ_ONLY_SQL_TRANSACTION, "another attempt"),
            (SqlState::ADMIN_SHUTDOWN, "another attempt"),
            (SqlState::from_code(""), "another attempt"),
            (SqlState::TOO_MANY_CONNECTIONS, "another attempt"),
            (SqlState::DISK_FULL, "room or rights"),
            (SqlState::OUT_OF_MEMORY, "room or rights"),
            (SqlState::UNDEFINED_TABLE, "room or rights"),
            (SqlState::INSUFFICIENT_PRIVILEGE, "room or rights"),
            (SqlState::UNDEFINED_COLUMN, "another table"),
            (SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "another table"),
            (SqlState::CHECK_VIOLATION, "another table"),
            (SqlState::INVALID_PASSWORD, "other options"),
            (SqlState::INVALID_CATALOG_NAME, "other options"),
        ] {
            let said = format!("said ({})", code.code());
            let (meant, reason) = meant(code);
            assert_eq!(meant, helps, "{said}");
            assert!(reason.contains(&said), "{reason}");
        }
    }
}
