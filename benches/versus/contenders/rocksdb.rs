//! The lock manager of `RocksDB`'s pessimistic transactions, and nothing else of it: an acquire begins a
//! transaction that expires and puts an empty value, which locks the key; a release rolls it back, so that
//! nothing is ever written.
//!
//! It has no tokens, and a refusal only says that the key is locked. Both are in its favour, and so is the
//! put: `get_for_update`, the usual way to lock a key, reads it as well, and takes almost a quarter longer. Against
//! it: the binding allocates a transaction for each lease, where C++ could use one again. A lease can't be
//! renewed. An expired lock is there until somebody wants the key, so there is nothing to sweep. A lease
//! that stays out is a whole transaction; a million of them take gigabytes, so there are none.
//!
//! Not built by default. Linked against Debian's library (`apt-get install librocksdb-dev libclang-dev`):
//!
//! ```text
//! ROCKSDB_LIB_DIR=/usr/lib/x86_64-linux-gnu ROCKSDB_INCLUDE_DIR=/usr/include \
//!     cargo bench -p tenure-benches --features rocksdb --bench versus -- -c rocksdb
//! ```

use std::time::Duration;

use rocksdb::{
    Error, Options, Transaction, TransactionDB, TransactionDBOptions, TransactionOptions,
    WriteOptions,
};
use tempfile::TempDir;

use super::LeaseTable;
use crate::tasks::TTL;

/// A database without entries.
pub(crate) struct RocksDb {
    writes: WriteOptions,
    /// For the TTL that is measured. Options are allocated, and can be used again.
    usual: TransactionOptions,
    // Closed before its directory goes.
    database: TransactionDB,
    _directory: TempDir,
}

impl RocksDb {
    /// A new database in a temporary directory.
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut options = Options::default();
        options.create_if_missing(true);
        let locks = TransactionDBOptions::default();
        let database = TransactionDB::open(&options, &locks, directory.path());
        Self {
            writes: WriteOptions::default(),
            usual: expiring(TTL),
            database: database.expect("a new database"),
            _directory: directory,
        }
    }
}

/// Transactions that don't wait, and whose locks are anybody's after `ttl`.
fn expiring(ttl: Duration) -> TransactionOptions {
    let mut options = TransactionOptions::default();
    options.set_lock_timeout(0);
    options.set_expiration(ttl.as_millis() as i64);
    options
}

impl LeaseTable for RocksDb {
    type Lease<'table> = Transaction<'table, TransactionDB>;
    type Refusal = Error;

    const CAN_RENEW: bool = false;
    const CAN_EXPIRE: bool = false;
    const MOST_HELD: u64 = 0;

    fn acquire(&self, key: u64, _owner: u64, ttl: Duration) -> Result<Self::Lease<'_>, Error> {
        let begin = |options| self.database.transaction_opt(&self.writes, options);
        let transaction = if ttl == TTL {
            begin(&self.usual)
        } else {
            begin(&expiring(ttl))
        };
        transaction.put(key.to_be_bytes(), [])?;
        Ok(transaction)
    }

    /// None.
    fn token(_lease: &Self::Lease<'_>) -> u64 {
        0
    }

    fn renew(&self, _lease: &Self::Lease<'_>, _ttl: Duration) -> bool {
        false
    }

    fn renew_by_key(&self, _key: u64, _token: u64, _ttl: Duration) -> bool {
        false
    }

    /// The roll-back fails if the lock was taken over.
    fn release(&self, lease: Self::Lease<'_>) -> bool {
        lease.rollback().is_ok()
    }

    fn keep(&self, lease: Self::Lease<'_>) {
        std::mem::forget(lease);
    }

    fn sweep(&self) -> u64 {
        0
    }
}
