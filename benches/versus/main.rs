//! `tenure` beside what one would take instead, and beside what the hardware takes at the least.
//!
//! ```text
//! cargo bench --bench versus                            everything; the report is target/versus/report.html
//! cargo bench --bench versus -- --json                  the same, and all numbers as JSON
//! cargo bench --bench versus -- -w pair/shared -t 1     only these rows, of one thread
//! cargo bench --bench versus -- -w storm -c scc         only tenure and scc, at one workload
//! cargo bench --bench versus -- --help                  all options
//! ```
//!
//! `rocksdb` is a contender only if it is built in, against the system's library (here Debian's librocksdb-dev,
//! and libclang-dev for the binding):
//!
//! ```text
//! ROCKSDB_LIB_DIR=/usr/lib/x86_64-linux-gnu ROCKSDB_INCLUDE_DIR=/usr/include \
//!     cargo bench -p tenure-benches --features rocksdb --bench versus
//! ```
//!
//! `redis` is one where there is `redis-server` to start, or a server that `TENURE_TEST_REDIS` names.
//!
//! Contenders run in one process and take turns; a ratio is the median of the ratios within a round: see
//! [`tenure_benches::measure`].

// Counts become ratios here; none of them comes near 2^52.
#![allow(clippy::cast_precision_loss, clippy::cast_sign_loss)]

mod bench;
mod churn;
mod contenders;
mod floors;
mod honesty;
mod keys;
mod options;
mod report;
mod rows;
mod targets;
mod tasks;
mod weights;
mod workloads;

use std::error::Error;

use bench::Bench;
use options::Options;
use report::Report;
use workloads::WORKLOADS;

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::from_args();
    if options.list {
        for (name, about, _) in WORKLOADS {
            println!("{name:<12}{about}");
        }
        return Ok(());
    }
    if options.test {
        honesty::check(&options);
    }
    let mut bench = Bench::new(options);
    bench.run(WORKLOADS.iter().map(|(_, _, run)| *run));
    Report::new(bench.rows).publish(&bench.options)
}
