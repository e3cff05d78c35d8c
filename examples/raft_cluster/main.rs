//! The lock manager on three nodes, replicated by Raft (`openraft`), with everything that may go wrong.
//!
//! One manager is lost with its process. Here three nodes apply the same log of commands to a
//! [`tenure::replica::Replica`] each, so that any two of them go on without the third, and the
//! token of a grant is the index of its entry in the log: it rises over all leaders, whoever is killed.
//!
//! The nodes live in one process and talk over real TCP sockets, on a runtime each. Clients acquire,
//! read and write a resource that checks tokens, renew, and at times sleep past their lease. Meanwhile
//! the leader is killed twice and cut off once, and checkers that share nothing with the lock manager
//! look on: exclusion and rising tokens, in the log and from the clients' side; equal outcomes on all
//! nodes; no lost update. Any violation makes the exit code 1.
//!
//! | to learn | read |
//! |---|---|
//! | what is in the log, and why the time is | `types.rs` |
//! | what a node must not forget when it dies | `disk.rs` |
//! | how a replica becomes Raft's state machine, its snapshot a checkpoint | `state_machine.rs` |
//! | what a client may repeat, and how long it may trust its lease | `client.rs` |
//! | why even a read presents its token | `worker.rs` |
//! | what is checked | `checkers.rs` |
//! | what happens when | `story.rs` |
//!
//! # Which `openraft`
//!
//! 0.9, the newest release. 0.10 builds, but it is an alpha, the 37th at the time of writing: its traits
//! for storage and network are others than those of 0.9, and not settled, so that one would have to pin
//! the exact alpha.
//!
//! # What is simplified
//!
//! The disk is an object that survives the node (`disk.rs`). The clocks differ by a known constant and
//! run at one speed; real ones drift, and that belongs into the margin that a client takes off.
//!
//! ```console
//! $ cargo run --release --example raft_cluster
//! $ cargo run --release --example raft_cluster -- 42     # the same choices of the workers as last time
//! ```

mod checkers;
mod client;
mod cluster;
mod disk;
mod journal;
mod log_store;
mod network;
mod node;
mod state_machine;
mod story;
mod types;
mod wire;
mod worker;

use std::env;
use std::process::ExitCode;
use std::time::Duration;

use story::Plan;

fn main() -> ExitCode {
    let seed = match env::args().nth(1).map(|argument| argument.parse()) {
        None => fastrand::u64(..),
        Some(Ok(seed)) => seed,
        Some(Err(error)) => {
            eprintln!("the seed: {error}; give a number, or nothing for a random one");
            return ExitCode::FAILURE;
        }
    };
    println!("seed {seed}");
    let plan = Plan {
        seed,
        calm: Duration::from_secs(3),
        cut: Duration::from_secs(2),
    };
    match story::run(&plan) {
        Ok(report) => {
            println!("\n{report}");
            if report.violations.is_empty() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            eprintln!("the run broke off: {error}");
            ExitCode::FAILURE
        }
    }
}
