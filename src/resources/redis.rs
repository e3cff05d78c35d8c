//! Redis: scripts that compare and set.
//!
//! A value and its fence are two fields of one hash, `value` and `fence`, so that they have one fate: one
//! slot of a cluster, one expiry, one eviction. Where the value has to be a key of its own, keep the fence in
//! a second key with the same hash tag, `{account/7}` and `{account/7}:fence`, pass both as `KEYS`, and put
//! `GET` and `SET` in the place of `HGET` and `HSET`; never let one of the two expire without the other.
//!
//! # What makes it safe
//!
//! Redis runs a script as one step. The scripts compare tokens as *texts*, by length and then digit by
//! digit: numbers in Lua are floating point, and from 2<sup>53</sup> on two different tokens could be equal
//! there.
//!
//! # What Redis does not promise
//!
//! - *Expiry forgets the fence.* Whoever has been paused for longer than the key's TTL is let in again. Set
//!   none on these keys, or one that no pause outlives: days.
//! - *Eviction* does the same: `maxmemory-policy noeviction`, or one of the `volatile-` policies and no TTL.
//! - *Failover forgets writes.* Replication is asynchronous; a replica that takes over may have seen neither
//!   the last writes nor the last tokens. `WAIT` makes that rarer, not impossible. So does `appendfsync always`
//!   for a crash of the machine; with `everysec` it may forget a second of both.

#[cfg(feature = "redis")]
use std::sync::LazyLock;

#[cfg(feature = "redis")]
use redis::{
    ConnectionLike, FromRedisValue, RedisError, Script, ScriptInvocation, ToSingleRedisArg,
};

#[cfg(feature = "redis")]
use super::ResourceError;
#[cfg(feature = "redis")]
use crate::{FencingToken, StaleToken};

/// Reads a value and raises its fence, in one step: `KEYS[1]` the key, `ARGV[1]` the token in decimal.
///
/// Answers with the fence and the value, nil if there is none. The fence is your own token; if it is another,
/// yours is stale, and there is no value.
pub const READ: &str = "\
local token = ARGV[1]
if not string.match(token, '^[1-9]%d*$') then
    return redis.error_reply('ERR a fencing token is a decimal number above 0')
end
local fence = redis.call('HGET', KEYS[1], 'fence')
if fence and (#fence > #token or (#fence == #token and fence > token)) then
    return {fence}
end
redis.call('HSET', KEYS[1], 'fence', token)
return {token, redis.call('HGET', KEYS[1], 'value')}
";

/// Writes a value: `KEYS[1]` the key, `ARGV[1]` the token in decimal, `ARGV[2]` the value.
///
/// Answers with the fence. It is your own token; if it is another, yours is stale, and nothing was written.
pub const WRITE: &str = "\
local token = ARGV[1]
if not string.match(token, '^[1-9]%d*$') then
    return redis.error_reply('ERR a fencing token is a decimal number above 0')
end
local fence = redis.call('HGET', KEYS[1], 'fence')
if fence and (#fence > #token or (#fence == #token and fence > token)) then
    return {fence}
end
redis.call('HSET', KEYS[1], 'fence', token, 'value', ARGV[2])
return {token}
";

/// Reads a value under a token, with [`READ`]: `None` if it was never written.
///
/// From then on lower tokens are refused. Costs one round trip; three the first time that a server sees the
/// script.
///
/// # Errors
///
/// [`Stale`](ResourceError::Stale) if a higher token was seen;
/// [`Failed`](ResourceError::Failed) for everything that Redis says.
///
/// ```no_run
/// # fn transfer(lease: &tenure::Lease<'_>) -> Result<(), Box<dyn std::error::Error>> {
/// use tenure::resources;
///
/// let mut connection = redis::Client::open("redis://127.0.0.1/")?.get_connection()?;
/// let balance: Option<u64> = resources::redis::read(&mut connection, "account/7", lease.token())?;
/// let more = balance.unwrap_or(0) + 25;
/// resources::redis::write(&mut connection, "account/7", lease.token(), more)?;
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "redis")]
pub fn read<V: FromRedisValue>(
    connection: &mut impl ConnectionLike,
    key: &str,
    token: FencingToken,
) -> Result<Option<V>, ResourceError<RedisError>> {
    static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(READ));
    invoke(connection, SCRIPT.key(key).arg(token.get()), token)
}

/// Writes a value under a token, with [`WRITE`].
///
/// Costs one round trip; three the first time that a server sees the script.
///
/// # Errors
///
/// [`Stale`](ResourceError::Stale) if a higher token was seen: nothing was written;
/// [`Failed`](ResourceError::Failed) for everything that Redis says.
///
/// An example stands at [`read`].
#[cfg(feature = "redis")]
pub fn write<V: ToSingleRedisArg>(
    connection: &mut impl ConnectionLike,
    key: &str,
    token: FencingToken,
    value: V,
) -> Result<(), ResourceError<RedisError>> {
    static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(WRITE));
    let mut invocation = SCRIPT.key(key);
    invocation.arg(token.get()).arg(value);
    invoke(connection, &invocation, token).map(|_: Option<()>| ())
}

#[cfg(feature = "redis")]
fn invoke<V: FromRedisValue>(
    connection: &mut impl ConnectionLike,
    invocation: &ScriptInvocation<'_>,
    token: FencingToken,
) -> Result<Option<V>, ResourceError<RedisError>> {
    let answer: Vec<redis::Value> = invocation
        .invoke(connection)
        .map_err(ResourceError::Failed)?;
    let mut answer = answer.into_iter();
    let fence = answer.next().unwrap_or(redis::Value::Nil);
    let fence: u64 = redis::from_redis_value(fence).map_err(failed)?;
    match FencingToken::new(fence) {
        Ok(highest) if highest > token => Err(ResourceError::Stale(StaleToken {
            presented: token,
            highest,
        })),
        _ => answer.next().map_or(Ok(None), |value| {
            redis::from_redis_value(value).map_err(failed)
        }),
    }
}

#[cfg(feature = "redis")]
fn failed(error: redis::ParsingError) -> ResourceError<RedisError> {
    ResourceError::Failed(error.into())
}
