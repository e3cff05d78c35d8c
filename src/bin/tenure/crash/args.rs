//! The options of `tenure crash` and their limits.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

/// The name of the hidden command of the child.
pub(crate) const CHILD: &str = "crash-child";

/// Kill a granting process again and again, and check every token that it ever granted.
///
/// A child process opens the reservation, builds a manager on it, and grants on several keys and threads as fast as
/// it can, saying each key and token while it holds the lease. It is killed with SIGKILL at a random moment, mostly
/// up to 30 ms after its first grant, sometimes before it, and started again. What it had said is read to the end.
/// Meanwhile its table grows and shrinks.
/// Checked: that the tokens of each key strictly rise over all lives, that each life begins above every token of those
/// before, that each life grants, and that none ends by itself. The last life is asked to end.
///
/// Exit code 0 if nothing was violated, 1 if anything was, 2 for bad arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How often to kill it and start it again
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(super) rounds: u64,

    /// Stop after so many seconds, even if there were fewer rounds
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(super) seconds: Option<u64>,

    /// Seed of the moments [default: random, and reported]
    #[arg(long)]
    pub(super) seed: Option<u64>,

    #[command(flatten)]
    pub(super) shard: Shard,

    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(super) json: bool,
}

/// What the child is told as well.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Shard {
    /// Where tokens come from
    #[arg(long, value_enum, default_value_t = Kind::File)]
    pub(super) reservation: Kind,

    /// The server: `http://127.0.0.1:2379` for etcd, `host=127.0.0.1 user=postgres` for PostgreSQL
    #[arg(long)]
    pub(super) server: Option<String>,

    /// The file, or the name of the shard on the server [default: a new one]
    #[arg(long = "shard", value_name = "SHARD")]
    pub(super) name: Option<PathBuf>,

    /// Tokens of a block; few, so that there are many blocks in a life
    #[arg(long, default_value = "50")]
    pub(super) block: NonZeroU64,

    /// Distinct keys
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(super) keys: u64,

    /// Leases on other keys that one thread takes now and then, and gives back: the table grows for them, and
    /// shrinks again. Whatever they raise the tokens by counts as skipped
    #[arg(long, default_value_t = 3000, value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    pub(super) crowd: u64,

    /// Threads that grant
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(super) threads: u64,
}

/// Where tokens come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// A file, by default in a temporary directory
    File,
    /// etcd, with --server; needs the feature `etcd`
    Etcd,
    /// PostgreSQL, with --server
    Postgres,
}

impl Kind {
    /// For how long a dead child keeps the shard, as short as the backend takes it.
    pub(super) const fn term(self) -> Duration {
        match self {
            Self::File => Duration::ZERO,
            Self::Etcd => Duration::from_secs(2),
            Self::Postgres => Duration::from_millis(500),
        }
    }

    pub(super) const fn needs_server(self) -> bool {
        matches!(self, Self::Etcd | Self::Postgres)
    }
}

impl Args {
    /// What is wrong with options that are each in order.
    pub(crate) fn contradiction(&self) -> Option<String> {
        let kind = self.shard.reservation;
        if kind == Kind::Etcd && !cfg!(feature = "etcd") {
            return Some(
                "--reservation etcd: this program was built without it; build it with \
                 `--features cli,etcd` (which needs protoc)"
                    .to_owned(),
            );
        }
        if kind.needs_server() != self.shard.server.is_some() {
            return Some(match kind {
                Kind::File => "--server: a file has none".to_owned(),
                Kind::Etcd => {
                    "--server: say where etcd is, such as http://127.0.0.1:2379".to_owned()
                }
                Kind::Postgres => {
                    "--server: say where PostgreSQL is, such as 'host=127.0.0.1 user=postgres'"
                        .to_owned()
                }
            });
        }
        None
    }
}
