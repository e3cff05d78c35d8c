//! What a grant costs with each source of tokens: the same as without, since none of them is asked on its way.

use std::env;

use tenure::LockManager;
use tenure::reservation::{File, Memory, Reservation};
use tenure_benches::measure::Lane;

use crate::{TTL, lane, pair};

/// A manager of those tokens; it is there for the whole process.
fn manager(tokens: impl Reservation) -> &'static LockManager {
    let locks = LockManager::builder().reservation(tokens).build();
    Box::leak(Box::new(locks.expect("the backend answers")))
}

/// Pairs on a thousand keys in turn.
fn pairs(name: &'static str, locks: &'static LockManager) -> Lane<'static> {
    lane(name, move |seat| {
        let mut key = 0_u64;
        seat.measure(|| {
            key = (key + 1) % 1_000;
            pair(locks.try_acquire(key, seat.thread, TTL))
        })
    })
}

/// Servers are those that `TENURE_TEST_ETCD` and `TENURE_TEST_POSTGRES` name, if the features are on.
pub(crate) fn lanes() -> Vec<Lane<'static>> {
    let path = env::temp_dir().join(format!("tenure-bench-{}", std::process::id()));
    let file = File::open(&path).expect("a place for the file");
    #[allow(unused_mut, reason = "without the features there are no others")]
    let mut lanes = vec![
        pairs("none", Box::leak(Box::new(LockManager::new()))),
        pairs("Memory", manager(Memory::new())),
        pairs("File", manager(file)),
    ];
    #[cfg(feature = "etcd")]
    if let Ok(endpoint) = env::var("TENURE_TEST_ETCD") {
        let options = tenure::reservation::Etcd::options([endpoint], "bench");
        lanes.push(pairs("Etcd", manager(options.connect().expect("etcd"))));
    }
    #[cfg(feature = "postgres")]
    if let Ok(config) = env::var("TENURE_TEST_POSTGRES") {
        let config = config.parse().expect("a connection string");
        let options = tenure::reservation::Postgres::options(config, "bench");
        lanes.push(pairs(
            "Postgres",
            manager(options.connect().expect("PostgreSQL")),
        ));
    }
    // The lock on it is what counts, not its name.
    let _ = std::fs::remove_file(&path);
    lanes
}
