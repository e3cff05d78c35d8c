//! The options of `tenure demo`.

/// The variable that names the database if `--postgres` doesn't.
const POSTGRES_VARIABLE: &str = "TENURE_POSTGRES";

/// Tell the story of the paused holder, live, without fencing and with it (the default).
///
/// Two threads share a bank account under a lease. One pauses for longer than its lease and
/// then writes what it computed before. The story runs in real time and takes about two
/// seconds. Exit code 1 if it did not come out as it should.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the account is kept; without a value, in SQLite
    #[arg(
        long,
        value_enum,
        default_value = "memory",
        num_args = 0..=1,
        default_missing_value = "sqlite"
    )]
    pub(super) resource: Resource,

    /// The database for --resource postgres, such as "host=127.0.0.1 user=postgres dbname=postgres"
    /// [default: the variable `TENURE_POSTGRES`]
    #[arg(long, value_name = "CONNECTION STRING")]
    postgres: Option<String>,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            resource: Resource::Memory,
            postgres: None,
        }
    }
}

impl Args {
    /// What is wrong with options that are each in order.
    pub(crate) fn contradiction(&self) -> Option<String> {
        let variable = || std::env::var(POSTGRES_VARIABLE).ok();
        match self.resource {
            Resource::Postgres if self.postgres.is_none() && variable().is_none() => Some(format!(
                "--resource postgres: name a database with --postgres \"host=127.0.0.1 user=postgres \
                 dbname=postgres\" or postgresql://user:password@host/database, or in the variable \
                 {POSTGRES_VARIABLE}"
            )),
            Resource::Memory | Resource::Sqlite if self.postgres.is_some() => {
                Some("--postgres: only with --resource postgres".to_owned())
            }
            _ => None,
        }
    }

    /// The database that is named.
    pub(super) fn database(&self) -> String {
        let variable = || std::env::var(POSTGRES_VARIABLE).ok();
        self.postgres.clone().or_else(variable).unwrap_or_default()
    }
}

/// Where the account is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Resource {
    /// A value of this process, with `tenure::Fenced`
    Memory,
    /// A database file in a temporary directory
    Sqlite,
    /// A schema of its own in the database that --postgres names, dropped at the end
    Postgres,
}
