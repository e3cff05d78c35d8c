//! PostgreSQL: a conditional statement, or a trigger that holds every writer to it.
//!
//! The constants speak of a table `fenced_values`; put your own names in. Their parameters are always in
//! the same order: `$1` the key, `$2` the token, `$3` the new value.
//!
//! # What makes it safe
//!
//! A statement that changes a row locks it, until its transaction ends. Who comes second waits, and at the
//! default isolation level (read committed) compares its token with the row as the first one left it. At the
//! higher levels it fails with SQLSTATE 40001 instead and has to begin again. Neither loses anything.
//!
//! So a transaction may also change many rows under one lease: let its first statement be [`READ`] or
//! [`WRITE`] of one row that stands for all of them, and no other holder gets past that row before the commit.
//!
//! # The statement or the trigger
//!
//! The statements protect against paused holders, who all use them. The trigger ([`CREATE_CHECK`],
//! [`CREATE_TRIGGERS`]) also holds those to it who don't: the old release, the script, the administrator. It
//! refuses every `INSERT` and `UPDATE` that does not set the fence, or sets it lower, and every `DELETE` and
//! `TRUNCATE`, which would forget it. With the trigger, any statement will do that says
//! `SET …, fence = <my token>`. Both can be used at once.
//!
//! A plain client needs nothing else than these statements:
//!
//! ```sql
//! -- a holder with token 34
//! UPDATE fenced_values SET fence = 34, value = '125' WHERE key = 'account/7' AND fence <= 34;
//! -- "UPDATE 1": done. "UPDATE 0": ask why.
//! SELECT fence FROM fenced_values WHERE key = 'account/7';
//! -- above 34: our lease is over. No row: there was nothing to update.
//! ```

#[cfg(feature = "postgres")]
use tokio_postgres::types::{FromSqlOwned, ToSql};
#[cfg(feature = "postgres")]
use tokio_postgres::{Error, GenericClient, Row};

#[cfg(feature = "postgres")]
use super::{ResourceError, judge};
#[cfg(feature = "postgres")]
use crate::{FencingToken, StaleToken};

/// A table of values with their fence; a value that is `NULL` has not been written, or is deleted.
///
/// To a table that is there already, add the column: `ALTER TABLE … ADD COLUMN fence bigint NOT NULL DEFAULT 0`.
pub const CREATE_TABLE: &str = "\
CREATE TABLE IF NOT EXISTS fenced_values (
    key   text   PRIMARY KEY,
    value text,
    fence bigint NOT NULL
)";

/// Reads a value and raises its fence, in one step: `$1` the key, `$2` the token.
///
/// No row comes back if the token is stale, and only then: a key that was not there is, after this.
pub const READ: &str = "\
INSERT INTO fenced_values (key, fence) VALUES ($1, $2)
ON CONFLICT (key) DO UPDATE SET fence = EXCLUDED.fence
    WHERE fenced_values.fence <= EXCLUDED.fence
RETURNING value";

/// Inserts or updates a value: `$1` the key, `$2` the token, `$3` the value.
///
/// No row is affected if the token is stale, and only then.
pub const WRITE: &str = "\
INSERT INTO fenced_values (key, fence, value) VALUES ($1, $2, $3)
ON CONFLICT (key) DO UPDATE SET fence = EXCLUDED.fence, value = EXCLUDED.value
    WHERE fenced_values.fence <= EXCLUDED.fence";

/// Updates a value: `$1` the key, `$2` the token, `$3` the value.
///
/// No row is affected if the token is stale, or if there is no such key: [`HIGHEST`] tells which.
pub const UPDATE: &str = "\
UPDATE fenced_values SET fence = $2, value = $3
WHERE key = $1 AND fence <= $2";

/// The highest token that a key has seen: `$1` the key.
///
/// Asked after a statement that affected no row. The fence only rises, so a token that is below it now was
/// stale then, or has become so since; it is over in any case.
pub const HIGHEST: &str = "SELECT fence FROM fenced_values WHERE key = $1";

/// The trigger's function, for all tables with a column `fence`; needs PostgreSQL 11.
///
/// It is called twice for an `UPDATE` that sets the column: there is no other way to tell a writer that sets it
/// to what it is from one that does not know of it. The first call turns the sign, which the second undoes.
pub const CREATE_CHECK: &str = "\
CREATE OR REPLACE FUNCTION tenure_check_fence() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP IN ('DELETE', 'TRUNCATE') THEN
        RAISE EXCEPTION 'a % on \"%\" would forget the fence', TG_OP, TG_TABLE_NAME
            USING ERRCODE = 'TN003',
                  HINT = 'Set the other columns to NULL, and fence to your token.';
    END IF;
    IF TG_NARGS > 0 THEN
        NEW.fence := -NEW.fence;
        RETURN NEW;
    END IF;
    IF TG_OP = 'UPDATE' THEN
        NEW.fence := CASE WHEN NEW.fence < 0 THEN -NEW.fence END;
    END IF;
    IF NEW.fence IS NULL OR NEW.fence <= 0 THEN
        RAISE EXCEPTION 'no fencing token was presented to \"%\"', TG_TABLE_NAME
            USING ERRCODE = 'TN002',
                  HINT = 'Acquire the lease, and set the column fence to its token in every statement.';
    END IF;
    IF TG_OP = 'UPDATE' AND NEW.fence < OLD.fence THEN
        RAISE EXCEPTION 'fencing token % is stale: token % was seen before it', NEW.fence, OLD.fence
            USING ERRCODE = 'TN001',
                  DETAIL = format('presented %s, highest %s', NEW.fence, OLD.fence),
                  HINT = 'The lease is over. Roll back, acquire it again and start from what is stored now.';
    END IF;
    RETURN NEW;
END
$$";

/// Puts the triggers on a table; [`CREATE_CHECK`] comes first. Three statements.
///
/// Triggers of the same moment fire in the order of their names. Don't rename them so that it changes.
///
/// A statement that changes a row's key takes its fence with it: don't.
pub const CREATE_TRIGGERS: &str = "\
CREATE TRIGGER tenure_fence_1_presented BEFORE UPDATE OF fence ON fenced_values
    FOR EACH ROW EXECUTE FUNCTION tenure_check_fence('presented');
CREATE TRIGGER tenure_fence_2_checked BEFORE INSERT OR UPDATE OR DELETE ON fenced_values
    FOR EACH ROW EXECUTE FUNCTION tenure_check_fence();
CREATE TRIGGER tenure_fence_kept BEFORE TRUNCATE ON fenced_values
    FOR EACH STATEMENT EXECUTE FUNCTION tenure_check_fence()";

/// SQLSTATE of the trigger: the token is below the row's.
pub const STALE_TOKEN: &str = "TN001";
/// SQLSTATE of the trigger: the statement sets no fence, or none that is a token.
pub const NO_TOKEN: &str = "TN002";
/// SQLSTATE of the trigger: the statement would delete the fence with the row.
pub const FENCE_FORGOTTEN: &str = "TN003";

/// Reads a value under a token, with [`READ`]: `None` if it was never written.
///
/// From then on lower tokens are refused. Costs a write of the row, and two round trips of which one prepares
/// the statement. Cancelled, it may or may not have raised the fence, which harms nobody with a live lease.
///
/// # Errors
///
/// [`Stale`](ResourceError::Stale) if a higher token was seen;
/// [`Failed`](ResourceError::Failed) for everything that the database says.
///
/// ```no_run
/// # async fn transfer(client: &tokio_postgres::Client, lease: &tenure::Lease<'_>)
/// # -> Result<(), Box<dyn std::error::Error>> {
/// use tenure::resources::postgres;
///
/// let balance: Option<String> = postgres::read(client, "account/7", lease.token()).await?;
/// let balance: u64 = balance.as_deref().unwrap_or("0").parse()?;
/// let more = (balance + 25).to_string();
/// postgres::write(client, "account/7", lease.token(), &more).await?;
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "postgres")]
pub async fn read<V: FromSqlOwned>(
    client: &impl GenericClient,
    key: &str,
    token: FencingToken,
) -> Result<Option<V>, ResourceError<Error>> {
    // A loop, here and below, because of a row that is deleted between the two statements.
    loop {
        let row = client.query_opt(READ, &[&key, &token.as_i64()]).await;
        if let Some(row) = row.map_err(refused)? {
            return row.try_get(0).map_err(ResourceError::Failed);
        }
        above(client, key, token).await?;
    }
}

/// Writes a value under a token, with [`WRITE`].
///
/// Costs two round trips, of which one prepares the statement. Cancelled, it may or may not have written.
///
/// # Errors
///
/// [`Stale`](ResourceError::Stale) if a higher token was seen: nothing was written;
/// [`Failed`](ResourceError::Failed) for everything that the database says.
///
/// An example stands at [`read`].
#[cfg(feature = "postgres")]
pub async fn write<V: ToSql + Sync>(
    client: &impl GenericClient,
    key: &str,
    token: FencingToken,
    value: &V,
) -> Result<(), ResourceError<Error>> {
    loop {
        let parameters: [&(dyn ToSql + Sync); 3] = [&key, &token.as_i64(), value];
        if client.execute(WRITE, &parameters).await.map_err(refused)? > 0 {
            return Ok(());
        }
        above(client, key, token).await?;
    }
}

/// Updates a value that is there, with [`UPDATE`]; `false` if the key is not.
///
/// Costs what [`write()`] does.
///
/// # Errors
///
/// [`Stale`](ResourceError::Stale) if a higher token was seen: nothing was written;
/// [`Failed`](ResourceError::Failed) for everything that the database says.
///
/// ```no_run
/// # async fn close(client: &tokio_postgres::Client, lease: &tenure::Lease<'_>)
/// # -> Result<(), Box<dyn std::error::Error>> {
/// let emptied = None::<String>;
/// tenure::resources::postgres::update(client, "account/7", lease.token(), &emptied).await?;
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "postgres")]
pub async fn update<V: ToSql + Sync>(
    client: &impl GenericClient,
    key: &str,
    token: FencingToken,
    value: &V,
) -> Result<bool, ResourceError<Error>> {
    loop {
        let parameters: [&(dyn ToSql + Sync); 3] = [&key, &token.as_i64(), value];
        if client.execute(UPDATE, &parameters).await.map_err(refused)? > 0 {
            return Ok(true);
        }
        if !above(client, key, token).await? {
            return Ok(false);
        }
    }
}

/// The trigger's refusal in an error of any statement, if it is one.
///
/// ```no_run
/// # async fn close(client: &tokio_postgres::Client, lease: &tenure::Lease<'_>)
/// # -> Result<(), tokio_postgres::Error> {
/// let closing = "UPDATE accounts SET open = false, fence = $1 WHERE owner = 'alice'";
/// match client.execute(closing, &[&lease.token().as_i64()]).await {
///     Err(error) if tenure::resources::postgres::stale(&error).is_some() => {
///         // The lease is over: start from the beginning.
///         Ok(())
///     }
///     other => other.map(drop),
/// }
/// # }
/// ```
#[cfg(feature = "postgres")]
#[must_use]
pub fn stale(error: &Error) -> Option<StaleToken> {
    let error = error.as_db_error()?;
    if error.code().code() != STALE_TOKEN {
        return None;
    }
    let tokens = error.detail()?.strip_prefix("presented ")?;
    let (presented, highest) = tokens.split_once(", highest ")?;
    Some(StaleToken {
        presented: presented.parse().ok()?,
        highest: highest.parse().ok()?,
    })
}

#[cfg(feature = "postgres")]
fn refused(error: Error) -> ResourceError<Error> {
    stale(&error).map_or(ResourceError::Failed(error), ResourceError::Stale)
}

/// Why a statement affected no row: an error if it was for the token, or whether there is such a row.
#[cfg(feature = "postgres")]
async fn above(
    client: &impl GenericClient,
    key: &str,
    token: FencingToken,
) -> Result<bool, ResourceError<Error>> {
    let row = client.query_opt(HIGHEST, &[&key]).await;
    let fence = row
        .and_then(|row| row.as_ref().map(|row: &Row| row.try_get(0)).transpose())
        .map_err(ResourceError::Failed)?;
    judge(fence, token)
}
