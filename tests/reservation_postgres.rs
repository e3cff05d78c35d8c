//! `reservation::Postgres` against a real `PostgreSQL`, which each test starts itself.
#![cfg(feature = "postgres")]

#[path = "common/authority.rs"]
mod authority;
#[path = "common/servers.rs"]
mod servers;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure::reservation::conformance::{self, Failure, Options};
use tenure::reservation::{ConnectError, Postgres, PostgresOptions, Reservation, ReservationError};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, Config, NoTls};

use self::authority::{Backend, SLACK, of_the_backend, tokens, winner};
use self::servers::Control;

const TERM: Duration = Duration::from_secs(2);
const TIMEOUT: Duration = Duration::from_millis(1200);

/// One shard, in a table of its own.
struct Shard {
    server: Arc<servers::Postgres>,
    table: String,
}

impl Shard {
    fn of(server: Arc<servers::Postgres>) -> Self {
        let table = servers::unique("Tokens");
        Self { server, table }
    }

    fn config(&self) -> Config {
        self.server.config().parse().unwrap()
    }

    fn options(&self) -> PostgresOptions {
        self.options_through(self.config())
    }

    fn options_through(&self, config: Config) -> PostgresOptions {
        Postgres::options(config, "the shard")
            .table(&self.table)
            .term(TERM)
            .timeout(TIMEOUT)
    }

    fn port(&self) -> u16 {
        self.config().get_ports()[0]
    }

    fn intruder(&self) -> Intruder {
        Intruder::at(&self.config())
    }

    /// Does that to the row, behind the backend's back.
    fn set(&self, what: &str) {
        let statement = format!("UPDATE \"{}\" SET {what}", self.table);
        self.intruder().run(&statement);
    }

    fn mark(&self) -> i64 {
        let statement = format!("SELECT mark FROM \"{}\"", self.table);
        let Intruder { runtime, client } = self.intruder();
        let row = runtime.block_on(client.query_one(&statement, &[])).unwrap();
        row.get(0)
    }
}

/// One that no test harms.
fn shared() -> Shard {
    Shard::of(servers::Postgres::shared())
}

fn own() -> Shard {
    Shard::of(Arc::new(servers::Postgres::start()))
}

impl Backend for Shard {
    type Client = Postgres;

    fn open(&self, name: &str) -> Result<Postgres, ReservationError> {
        self.options().name(name).connect().map_err(of_the_backend)
    }

    fn term(&self) -> Duration {
        TERM
    }

    fn timeout(&self) -> Duration {
        TIMEOUT
    }

    fn server(&self) -> &dyn Control {
        &*self.server
    }
}

/// Another client, behind the backend's back.
struct Intruder {
    runtime: Runtime,
    client: Client,
}

impl Intruder {
    fn at(config: &Config) -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let client = runtime.block_on(async {
            let (client, connection) = config.connect(NoTls).await.unwrap();
            tokio::spawn(connection);
            client
        });
        Self { runtime, client }
    }

    fn run(&self, statements: &str) {
        self.runtime
            .block_on(self.client.batch_execute(statements))
            .unwrap();
    }
}

#[test]
fn all_that_every_reservation_promises_is_kept() -> Result<(), Failure> {
    let shard = shared();
    let term = Duration::from_millis(1500);
    conformance::run(&Options::elected(term).slack(SLACK).rounds(8), || {
        let options = shard.options().term(term);
        options.connect().map_err(of_the_backend)
    })
}

#[test]
fn blocks_rise_over_restarts_of_server_and_client() {
    authority::blocks_rise_over_restarts(&own());
}

#[test]
fn a_server_that_does_not_answer_is_unavailable_until_it_does() {
    authority::a_server_that_does_not_answer_is_unavailable(&own());
}

#[test]
fn a_contender_waits_for_a_resignation_and_no_longer() {
    authority::a_contender_waits_for_a_resignation(&shared());
}

#[test]
fn a_silent_holder_keeps_the_shard_for_its_term() {
    authority::a_silent_holder_keeps_the_shard_for_its_term(&shared());
}

/// Opens clients of a shard through any port, with a term that is not over before the test.
fn through(shard: &Shard) -> impl Fn(u16) -> Postgres {
    |port| {
        let config = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres");
        shard
            .options_through(config.parse().unwrap())
            .term(Duration::from_secs(20))
            .connect()
            .unwrap()
    }
}

#[test]
fn a_lost_answer_skips_tokens_and_hands_none_out_twice() {
    let shard = shared();
    authority::a_lost_answer_skips_tokens(shard.port(), through(&shard));
}

#[test]
fn who_waits_asks_rarely() {
    let shard = shared();
    authority::who_waits_asks_rarely(shard.port(), through(&shard));
}

#[test]
fn a_connection_that_falls_silent_is_replaced() {
    let shard = shared();
    authority::a_silent_connection_is_replaced(shard.port(), through(&shard));
}

#[test]
fn a_resignation_that_is_not_heard_is_made_up_for() {
    let shard = own();
    let open = || through(&shard)(shard.port());
    authority::a_resignation_is_made_up_for(shard.server(), open);
}

#[test]
fn a_row_that_looks_free_and_cannot_be_taken_is_told() {
    let shard = shared();
    winner(&shard, "first").resign();
    let table = &shard.table;
    shard.intruder().run(&format!(
        "CREATE FUNCTION \"{table}_f\"() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$; \
         CREATE TRIGGER t BEFORE UPDATE ON \"{table}\" FOR EACH ROW EXECUTE FUNCTION \"{table}_f\"()"
    ));
    let mut client = shard.open("second").unwrap();
    match client.campaign(Duration::from_secs(60)) {
        Err(ReservationError::Unavailable { reason }) => {
            assert!(reason.contains("trigger"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn it_works_from_inside_a_runtime() {
    authority::it_works_from_inside_a_runtime(&shared());
}

#[test]
fn hammered_by_four_candidates_blocks_are_disjoint_and_rise() {
    authority::hammered(&own(), Duration::from_secs(8));
}

#[test]
fn who_has_lost_its_row_is_told() {
    let shard = shared();
    let robberies = [
        // Somebody took it over, or the time is over and nobody did.
        "incarnation = 'robber', expires = clock_timestamp() + interval '1 minute'",
        "expires = clock_timestamp()",
    ];
    for call in 0..2 {
        for robbery in robberies {
            let mut holder = winner(&shard, "holder");
            holder.reserve(tokens(1)).unwrap();
            let mark = shard.mark();
            shard.set(robbery);
            let told = match call {
                0 => holder.keep_alive().map(drop),
                _ => holder.reserve(tokens(1)).map(drop),
            };
            assert_eq!(told, Err(ReservationError::Lost), "{robbery}");
            assert_eq!(shard.mark(), mark);
            // It resigns nothing that is another's.
            holder.resign();
            let patience = Duration::ZERO;
            let next = shard.open("next").unwrap().campaign(patience);
            assert_eq!(next.is_err(), robbery.contains("robber"), "{next:?}");
            shard.set("expires = clock_timestamp()");
        }
    }
}

#[test]
fn a_mark_that_makes_no_sense_is_corrupt_and_left_as_it_is() {
    let shard = shared();
    let mut holder = winner(&shard, "holder");
    let last = holder.reserve(tokens(100)).unwrap().last();
    // It fell: whoever knew it says so.
    shard.set("mark = 99");
    let answer = holder.reserve(tokens(1));
    assert!(is_corrupt(&answer), "{answer:?}");
    holder.resign();
    let answer = holder.campaign(Duration::ZERO);
    assert!(is_corrupt(&answer), "{answer:?}");
    assert_eq!(shard.mark(), 99);

    let table = &shard.table;
    let unchecked = format!("ALTER TABLE \"{table}\" DROP CONSTRAINT \"{table}_mark_check\"");
    shard.intruder().run(&unchecked);
    shard.set("mark = -5");
    let opened = shard.open("another");
    assert!(is_corrupt(&opened), "{opened:?}");
    assert_eq!(shard.mark(), -5);

    // Put right by hand, above all that were handed out, it goes on.
    shard.set("mark = 200");
    holder.campaign(Duration::ZERO).unwrap();
    assert!(holder.reserve(tokens(1)).unwrap().first() > last);
    // A row that is gone is not begun anew by who knew it.
    shard.intruder().run(&format!("DELETE FROM \"{table}\""));
    assert_eq!(holder.reserve(tokens(1)), Err(ReservationError::Lost));
    let answer = holder.campaign(Duration::ZERO);
    assert!(is_corrupt(&answer), "{answer:?}");
    let Intruder { runtime, client } = shard.intruder();
    let statement = format!("SELECT 1 FROM \"{table}\"");
    let rows = runtime.block_on(client.query(&statement, &[])).unwrap();
    assert!(rows.is_empty());
}

fn is_corrupt<T>(answer: &Result<T, ReservationError>) -> bool {
    matches!(answer, Err(ReservationError::Corrupt { .. }))
}

#[test]
fn a_table_of_somebody_elses_is_corrupt() {
    let _server = servers::Postgres::shared();
    for columns in [
        "shard text PRIMARY KEY, value text",
        "shard text PRIMARY KEY, mark text, holder text, incarnation text, expires timestamptz",
        "shard text, mark bigint, holder text, incarnation text, expires timestamptz",
    ] {
        let shard = shared();
        shard
            .intruder()
            .run(&format!("CREATE TABLE \"{}\" ({columns})", shard.table));
        let mut opened = shard.open("holder");
        // The last lacks only what is needed for making a row.
        if let Ok(client) = &mut opened {
            let campaign = client.campaign(Duration::ZERO);
            assert!(is_corrupt(&campaign), "{columns}: {campaign:?}");
        } else {
            assert!(is_corrupt(&opened), "{columns}: {opened:?}");
        }
    }
}

#[test]
fn the_statement_to_run_by_hand_makes_a_table_that_will_do() {
    let shard = shared();
    let by_hand =
        Postgres::CREATE_TABLE.replace("tenure_reservations", &format!("\"{}\"", shard.table));
    shard.intruder().run(&by_hand);
    let mut holder = winner(&shard, "holder");
    assert_eq!(holder.reserve(tokens(2)).unwrap().first().get(), 1);
    holder.resign();
}

#[test]
fn many_at_once_may_make_the_table() {
    let shard = shared();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| shard.open("one of many").unwrap());
        }
    });
}

/// A trigger puts a setting of the session into the holder's name, where others see it.
#[test]
fn commits_are_durable_even_where_the_default_is_otherwise() {
    let _server = servers::Postgres::shared();
    for (default, kept) in [
        ("off", "on"),
        ("local", "on"),
        ("remote_apply", "remote_apply"),
    ] {
        let shard = shared();
        let mut config = shard.config();
        config.options(format!("-c synchronous_commit={default}"));
        let mut holder = shard.options_through(config).connect().unwrap();
        let table = &shard.table;
        shard.intruder().run(&format!(
            "CREATE FUNCTION \"{table}_f\"() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             NEW.holder := current_setting('synchronous_commit'); RETURN NEW; END $$; \
             CREATE TRIGGER t BEFORE UPDATE ON \"{table}\" FOR EACH ROW EXECUTE FUNCTION \"{table}_f\"()"
        ));
        holder.campaign(Duration::ZERO).unwrap();
        let held = shard.open("another").unwrap().campaign(Duration::ZERO);
        let holder = kept.to_owned();
        assert_eq!(held, Err(ReservationError::Held { holder }));
    }
}

#[test]
fn a_server_that_is_read_only_says_where_to_go() {
    let shard = shared();
    winner(&shard, "first").resign();
    let mut config = shard.config();
    config.options("-c default_transaction_read_only=on");
    let mut standby = shard.options_through(config).connect().unwrap();
    match standby.campaign(Duration::ZERO) {
        Err(ReservationError::Unavailable { reason }) => {
            assert!(reason.contains("primary"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_role_that_may_not_use_the_table_is_told_what_it_needs() {
    let shard = shared();
    winner(&shard, "first").resign();
    let role = servers::unique("role").to_lowercase();
    let table = &shard.table;
    let intruder = shard.intruder();
    intruder.run(&format!(
        "CREATE ROLE {role} LOGIN; GRANT SELECT ON \"{table}\" TO {role}"
    ));
    let mut config = shard.config();
    config.user(&role);
    let mut client = shard.options_through(config).connect().unwrap();
    match client.campaign(Duration::ZERO) {
        Err(ReservationError::Storage { reason }) => assert!(reason.contains("grant"), "{reason}"),
        other => panic!("{other:?}"),
    }
    // It needs no more than that, and may not create tables.
    intruder.run(&format!("GRANT INSERT, UPDATE ON \"{table}\" TO {role}"));
    client.campaign(Duration::ZERO).unwrap();
    client.reserve(tokens(1)).unwrap();
    client.resign();
}

#[test]
fn a_row_that_is_locked_does_not_keep_a_call_for_longer_than_its_limit() {
    let shard = shared();
    let mut holder = shard.open("holder").unwrap();
    holder.campaign(Duration::ZERO).unwrap();
    let Intruder { runtime, client } = shard.intruder();
    let lock = format!("BEGIN; SELECT 1 FROM \"{}\" FOR UPDATE", shard.table);
    runtime.block_on(client.batch_execute(&lock)).unwrap();
    let began = Instant::now();
    let answer = holder.reserve(tokens(1));
    assert!(
        matches!(answer, Err(ReservationError::Unavailable { .. })),
        "{answer:?}"
    );
    assert!(began.elapsed() < TIMEOUT + SLACK / 2);
    runtime.block_on(client.batch_execute("ROLLBACK")).unwrap();
    // Within its term still, if this machine is not too slow for that.
    match holder.reserve(tokens(1)) {
        Ok(_) | Err(ReservationError::Lost) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn options_that_cannot_work_are_refused_before_anything_is_asked() {
    let nowhere = || -> Config { "host=127.0.0.1 port=9 user=app".parse().unwrap() };
    let options = || Postgres::options(nowhere(), "shard");
    for microseconds in [0, 99_000, 1_000_500, 90_000_000_000] {
        let refused = options()
            .term(Duration::from_micros(microseconds))
            .connect();
        assert!(
            matches!(refused, Err(ConnectError::Term { .. })),
            "{microseconds}"
        );
    }
    let refused = options().timeout(Duration::from_secs(10)).connect();
    assert!(matches!(refused, Err(ConnectError::Timeout { .. })));
    for refused in [
        options().name("").connect(),
        options().table("a.b.c").connect(),
        Postgres::options(nowhere(), "").connect(),
    ] {
        assert!(
            matches!(refused, Err(ConnectError::Name { .. })),
            "{refused:?}"
        );
    }
    let nobody = options().timeout(Duration::from_millis(200)).connect();
    let nobody = nobody.map_err(of_the_backend);
    assert!(matches!(nobody, Err(ReservationError::Unavailable { .. })));
}

#[test]
fn it_prints_no_password() {
    let mut config = shared().config();
    config.password("opensesame");
    let options = Postgres::options(config, "shard");
    assert!(!format!("{options:?}").contains("opensesame"));
}
