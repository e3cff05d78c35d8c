//! The manager of a child: on a file, on etcd, or on PostgreSQL.

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use tenure::LockManager;
use tenure::reservation::{File, Postgres};

use super::args::{Kind, Shard};

/// A server that doesn't answer by then won't.
const PATIENCE: Duration = Duration::from_secs(10);

/// Builds it, without waiting for the authority.
pub(super) fn manager(shard: &Shard) -> Result<LockManager, Box<dyn Error>> {
    let started = Instant::now();
    loop {
        match build(shard) {
            // With so short a term, a server on a busy machine is slow to answer.
            Err(_) if shard.reservation.needs_server() && started.elapsed() < PATIENCE => {
                thread::sleep(Duration::from_millis(20));
            }
            built => return built,
        }
    }
}

fn build(shard: &Shard) -> Result<LockManager, Box<dyn Error>> {
    let name = shard.name.as_deref().ok_or("--shard: say which")?;
    let server = shard.server.as_deref().unwrap_or_default();
    let builder = LockManager::builder().block_size(shard.block);
    let on_server = || name.to_str().ok_or("--shard: the name is not UTF-8");
    let term = shard.reservation.term();
    let builder = match shard.reservation {
        Kind::File => builder.reservation(File::open(name)?),
        Kind::Postgres => builder.reservation(
            Postgres::options(server.parse()?, on_server()?)
                .term(term)
                .connect()?,
        ),
        #[cfg(feature = "etcd")]
        Kind::Etcd => builder.reservation(
            tenure::reservation::Etcd::options([server], on_server()?)
                .term(term)
                .connect()?,
        ),
        #[cfg(not(feature = "etcd"))]
        Kind::Etcd => return Err("this program was built without the feature `etcd`".into()),
    };
    Ok(builder.build()?)
}
