//! Every statement that is sent to `PostgreSQL`. Each changes one row, by itself: no lock is held while a
//! client is waited for.
//!
//! All times are the server's, and read by `clock_timestamp()`: `now()` stands still in a transaction, and a
//! statement that waited for the row's lock checks its conditions again when it has it.

/// The channel on which a holder that resigns notifies those who wait. The payload is the shard.
pub(super) const CHANNEL: &str = "tenure";

/// The statements for one table.
pub(super) struct Statements {
    /// No parameters.
    pub(super) create_table: String,
    /// `$1` shard.
    pub(super) create_row: String,
    /// `$1` shard. Brings mark, holder, incarnation, and the seconds that are left.
    pub(super) look: String,
    /// `$1` shard, `$2` our incarnation, `$3` the one before, `$4` name, `$5` seconds, `$6` least mark.
    pub(super) campaign: String,
    /// `$1` shard, `$2` our incarnation, `$3` seconds.
    pub(super) keep_alive: String,
    /// `$1` shard, `$2` our incarnation, `$3` tokens, `$4` least mark. Brings the new mark.
    pub(super) reserve: String,
    /// `$1` shard, `$2` our incarnation, `$3` the channel.
    pub(super) resign: String,
}

impl Statements {
    /// `table` is quoted already.
    pub(super) fn of(table: &str) -> Self {
        Self {
            create_table: format!(
                "CREATE TABLE IF NOT EXISTS {table} ({})",
                include_str!("columns.sql")
            ),
            create_row: format!(
                "INSERT INTO {table} (shard) VALUES ($1) ON CONFLICT (shard) DO NOTHING"
            ),
            look: format!(
                "SELECT mark, holder, incarnation, \
                 CASE WHEN expires <= clock_timestamp() THEN 0 \
                 WHEN isfinite(expires) THEN extract(epoch FROM expires - clock_timestamp()) \
                 ELSE 'infinity' END::float8 \
                 FROM {table} WHERE shard = $1"
            ),
            campaign: format!(
                "UPDATE {table} SET holder = $4, incarnation = $2, \
                 expires = clock_timestamp() + make_interval(secs => $5) \
                 WHERE shard = $1 AND mark >= $6 \
                 AND (expires <= clock_timestamp() \
                 OR incarnation IN ($2, $3) AND incarnation <> '')"
            ),
            keep_alive: format!(
                "UPDATE {table} SET expires = clock_timestamp() + make_interval(secs => $3) \
                 WHERE shard = $1 AND incarnation = $2 AND expires > clock_timestamp()"
            ),
            reserve: format!(
                "UPDATE {table} SET mark = mark + $3 \
                 WHERE shard = $1 AND incarnation = $2 AND expires > clock_timestamp() \
                 AND mark >= $4 AND mark <= 9223372036854775807 - $3 RETURNING mark"
            ),
            resign: format!(
                "WITH resigned AS (UPDATE {table} SET expires = '-infinity' \
                 WHERE shard = $1 AND incarnation = $2 RETURNING shard) \
                 SELECT pg_notify($3, shard) FROM resigned"
            ),
        }
    }
}

/// Sent on every new connection. A setting is only ever made safer: `remote_apply` waits for more than `on`.
pub(super) fn session(milliseconds: u128) -> String {
    format!(
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED; \
         SET statement_timeout = {milliseconds}; \
         SELECT set_config('synchronous_commit', 'on', false) \
         WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')"
    )
}
