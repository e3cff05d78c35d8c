//! Resources that check tokens, against the real thing: real servers, real files, real time.
//!
//! Each is put through the same story and the same crowd, once as it would be without a check, when writes must
//! get lost, and once with it, when none may (I6).

#[path = "../common/servers.rs"]
#[cfg(any(feature = "postgres", feature = "redis"))]
mod servers;

mod file;
mod object;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
mod postgres_trigger;
#[cfg(feature = "redis")]
mod redis;
mod sqlite;
mod story;

use tenure::FencingToken;

fn token(value: u64) -> FencingToken {
    FencingToken::new(value).unwrap()
}
