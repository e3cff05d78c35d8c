//! Managers whose tokens come from a server, and both are killed.

use std::thread;
use std::time::Duration;

use super::lives::{End, Ledger};
use super::servers::{self, Control as _};
use super::{PATIENCE, Shard, fight, grants_as_child, moment};

/// As short as etcd takes it.
pub(crate) const TERM: Duration = Duration::from_secs(2);

/// Kills the child in each round, and the server in every other, while the child grants.
fn kill_both(shard: &Shard, test: &str, rounds: u32, kill_server: impl Fn() + Sync) -> Ledger {
    let mut ledger = Ledger::default();
    for round in 0..rounds {
        thread::scope(|scope| {
            let server = (round % 2 == 1).then(|| {
                scope.spawn(|| {
                    thread::sleep(moment(round + 7, Duration::from_secs(1)));
                    kill_server();
                })
            });
            // Up to and beyond the time when the server is back.
            let longest = Duration::from_millis(if server.is_some() { 3000 } else { 300 });
            let end = End::KillAfterGrant(moment(round, longest));
            ledger
                .live(&mut shard.command(test), end, PATIENCE)
                .unwrap();
        });
    }
    let end = End::Ask(Duration::from_millis(200));
    ledger
        .live(&mut shard.command(test), end, PATIENCE)
        .unwrap();
    assert!(ledger.is_clean(), "{ledger:?}");
    assert_eq!(ledger.unbegun_lives, 0, "{ledger:?}");
    assert!(ledger.grants > u64::from(rounds), "{ledger:?}");
    ledger
}

#[cfg(feature = "postgres")]
fn postgres(server: &servers::Postgres) -> Shard {
    Shard {
        kind: "postgres",
        server: server.config(),
        name: servers::unique("crash"),
    }
}

#[cfg(feature = "etcd")]
fn etcd(server: &servers::Etcd) -> Shard {
    Shard {
        kind: "etcd",
        server: server.endpoint(),
        name: servers::unique("crash"),
    }
}

#[cfg(feature = "postgres")]
#[test]
fn a_manager_on_postgres_repeats_no_token_when_it_and_its_server_are_killed() {
    if grants_as_child() {
        return;
    }
    let server = servers::Postgres::start();
    let test = "remote::a_manager_on_postgres_repeats_no_token_when_it_and_its_server_are_killed";
    kill_both(&postgres(&server), test, 8, || {
        server.kill();
        server.restart();
    });
}

#[cfg(feature = "etcd")]
#[test]
fn a_manager_on_etcd_repeats_no_token_when_it_and_its_server_are_killed() {
    if grants_as_child() {
        return;
    }
    let server = servers::Etcd::start();
    let test = "remote::a_manager_on_etcd_repeats_no_token_when_it_and_its_server_are_killed";
    kill_both(&etcd(&server), test, 8, || {
        server.kill();
        server.restart();
    });
}

#[cfg(feature = "postgres")]
#[test]
fn of_two_managers_on_postgres_one_that_was_stopped_past_its_authority_grants_nothing() {
    if fight::fights_as_child() {
        return;
    }
    let server = servers::Postgres::start();
    let test = "remote::of_two_managers_on_postgres_one_that_was_stopped_past_its_authority_grants_nothing";
    fight::stop_in_turns(&postgres(&server), test, 4);
}

#[cfg(feature = "etcd")]
#[test]
fn of_two_managers_on_etcd_one_that_was_stopped_past_its_authority_grants_nothing() {
    if fight::fights_as_child() {
        return;
    }
    let server = servers::Etcd::start();
    let test =
        "remote::of_two_managers_on_etcd_one_that_was_stopped_past_its_authority_grants_nothing";
    fight::stop_in_turns(&etcd(&server), test, 4);
}
