//! The replicated lock manager of `examples/raft_cluster`, in less time, and whether its checkers would
//! see a fault.

#[path = "../examples/raft_cluster/checkers.rs"]
mod checkers;
#[path = "../examples/raft_cluster/client.rs"]
mod client;
#[path = "../examples/raft_cluster/cluster.rs"]
mod cluster;
#[path = "../examples/raft_cluster/disk.rs"]
mod disk;
#[path = "../examples/raft_cluster/journal.rs"]
mod journal;
#[path = "../examples/raft_cluster/log_store.rs"]
mod log_store;
#[path = "../examples/raft_cluster/network.rs"]
mod network;
#[path = "../examples/raft_cluster/node.rs"]
mod node;
#[path = "../examples/raft_cluster/state_machine.rs"]
mod state_machine;
#[path = "../examples/raft_cluster/story.rs"]
mod story;
#[path = "../examples/raft_cluster/types.rs"]
mod types;
#[path = "../examples/raft_cluster/wire.rs"]
mod wire;
#[path = "../examples/raft_cluster/worker.rs"]
mod worker;

use std::sync::Arc;
use std::time::{Duration, Instant};

use openraft::EntryPayload;
use openraft::storage::RaftStateMachine;
use openraft::testing::{StoreBuilder, Suite};
use tenure::replica::{Command, Outcome, Refusal, Replica};
use tenure::{FencingToken, HashSeed, Key, OwnerId, Timestamp, ToKey};

use checkers::{Agreement, Holding, Timeline, check_holdings};
use client::Acquired;
use cluster::Cluster;
use disk::Disk;
use journal::Journal;
use log_store::LogStore;
use state_machine::StateMachine;
use story::Plan;
use types::{Entry, Leadership, Locks, LogId, Proposal, StorageError};
use worker::Account;

const TTL: Duration = Duration::from_millis(300);
const KEY: Key = Key::from_raw(7);

/// I1, I2 and I3, on every replica and from the clients' side, in real time.
#[test]
fn no_promise_is_broken_while_leaders_are_killed_and_cut_off() {
    // On a busy machine a run may not have shown what fencing is for, or what a retry does: then there is another.
    assert!((4..8).any(killed_and_cut_off));
}

/// Whether such a run has shown what fencing is for, and what a retry does.
fn killed_and_cut_off(seed: u64) -> bool {
    let plan = Plan {
        seed,
        calm: Duration::from_secs(1),
        cut: Duration::from_millis(1_300),
    };
    let report = story::run(&plan).unwrap();
    println!("{report}");
    assert_eq!(report.violations, Vec::<String>::new());
    assert_eq!((report.leader_kills, report.partitions), (2, 1));
    assert_eq!(report.without_grant.len(), 3);
    // The first leader and its three successors, at the least.
    assert!(report.counts.elections >= 4, "{report}");
    assert!(report.counts.installed >= 1, "{report}");
    assert!(report.renewed > 0 && report.counts.grants > 100, "{report}");
    report.stale_writes > 0 && report.adopted > 0
}

struct Stores;

impl StoreBuilder<Locks, LogStore, StateMachine> for Stores {
    async fn build(&self) -> Result<((), LogStore, StateMachine), StorageError> {
        let disk = Arc::<Disk>::default();
        let machine = StateMachine::open(1, Arc::clone(&disk), Arc::default()).unwrap();
        Ok(((), LogStore::new(disk), machine))
    }
}

#[test]
fn the_stores_pass_the_tests_that_come_with_raft() {
    Suite::test_all(Stores).unwrap();
}

#[test]
fn an_acquire_that_is_asked_again_is_granted_once() {
    let cluster = Cluster::start().unwrap();
    cluster.leader_after(0).unwrap();
    let ttl = Duration::from_secs(30);
    // Two clients of one name use the same owners: to the cluster, the second is the first, asking again.
    let (mut first, mut again, mut other) =
        (cluster.client(1), cluster.client(1), cluster.client(2));
    let Acquired::Granted(granted) = first.acquire(KEY, ttl) else {
        panic!("nobody holds it");
    };
    let Acquired::Granted(recovered) = again.acquire(KEY, ttl) else {
        panic!("it is its own");
    };
    assert_eq!(recovered.token, granted.token);
    assert_eq!((granted.adopted, recovered.adopted), (false, true));
    assert!(matches!(other.acquire(KEY, ttl), Acquired::Busy));
    assert_eq!(cluster.journal.counts().grants, 1);
    // Both are the same lease, so that either release ends it.
    again.release(recovered);
    assert!(matches!(other.acquire(KEY, ttl), Acquired::Granted(_)));
    assert_eq!(cluster.journal.violations(), Vec::<String>::new());
}

/// All nodes dead at once: what was granted is still granted, by what their disks have (I1, I2).
#[test]
fn leases_and_tokens_survive_the_death_of_all_nodes() {
    let mut cluster = Cluster::start().unwrap();
    cluster.leader_after(0).unwrap();
    let ttl = Duration::from_secs(600);
    let mut holder = cluster.client(1);
    let Acquired::Granted(lease) = holder.acquire(KEY, ttl) else {
        panic!("nobody holds it");
    };
    for node in cluster::NODES {
        cluster.kill(node);
    }
    for node in cluster::NODES {
        cluster.restart(node).unwrap();
    }
    // Of the same term, if the node that led it is back before another is elected.
    cluster.leader_after(0).unwrap();
    let mut other = cluster.client(2);
    assert!(matches!(other.acquire(KEY, ttl), Acquired::Busy));
    holder.release(lease);
    let Acquired::Granted(next) = other.acquire(KEY, ttl) else {
        panic!("it was released");
    };
    assert!(next.token > lease.token);
    cluster.compare().unwrap();
    assert_eq!(cluster.journal.violations(), Vec::<String>::new());
}

/// I1, by the clients' clock: the next leader's is ahead, so that it sees the lease end early.
#[test]
fn a_holder_stops_before_the_next_leader_grants_its_key_again() {
    let mut cluster = Cluster::start().unwrap();
    let leader = cluster.leader_after(0).unwrap();
    let ttl = Duration::from_secs(5);
    let Acquired::Granted(lease) = cluster.client(1).acquire(KEY, ttl) else {
        panic!("nobody holds it");
    };
    // Node 1, whose clock is the slowest: it is the first to stand for election.
    cluster.kill(leader.node);
    let next = cluster.leader_after(leader.term).unwrap();
    let mut other = cluster.client(2);
    let mut refused = 0;
    let granted = loop {
        match other.acquire(KEY, ttl) {
            Acquired::Granted(granted) => break granted,
            Acquired::Busy => refused += 1,
            Acquired::Unknown => {}
        }
    };
    assert!(Instant::now() > lease.until, "{lease:?}, {next:?}");
    assert!(granted.token > lease.token);
    // The next leader honours what the last one granted.
    assert!(refused > 0, "{lease:?}, {next:?}");
    assert_eq!(cluster.journal.violations(), Vec::<String>::new());
}

// From here on: would the checkers see it?

fn at(millis: u64) -> Timestamp {
    Timestamp::from_nanos(millis * 1_000_000)
}

fn token(token: u64) -> FencingToken {
    FencingToken::new(token).unwrap()
}

fn acquire(owner: u64) -> Command {
    Command::acquire(KEY, OwnerId(owner), TTL)
}

fn granted(granted: u64, until: u64) -> Outcome {
    Outcome::Granted {
        token: token(granted),
        deadline: at(until),
    }
}

/// What the timeline says of the last of these entries; it must have nothing against the others.
fn verdict(history: &[(u64, u64, Command, Outcome)]) -> String {
    let mut timeline = Timeline::default();
    let (last, before) = history.split_last().unwrap();
    for (index, now, command, outcome) in before {
        timeline.follow(*index, at(*now), command, outcome).unwrap();
    }
    let (index, now, command, outcome) = last;
    match timeline.follow(*index, at(*now), command, outcome) {
        Ok(()) => "fine".to_owned(),
        Err(violation) => violation.split(':').next().unwrap().to_owned(),
    }
}

#[test]
fn the_timeline_sees_two_grants_that_overlap() {
    let second = |now| {
        verdict(&[
            (2, 0, acquire(1), granted(2, 300)),
            (3, now, acquire(2), granted(3, now + 300)),
        ])
    };
    assert_eq!(second(299), "exclusion");
    assert_eq!(second(300), "fine");
    let renew = Command::renew(KEY, token(2), TTL);
    let renewed = Outcome::Renewed { deadline: at(500) };
    let after_a_renewal = |now| {
        verdict(&[
            (2, 0, acquire(1), granted(2, 300)),
            (3, 200, renew.clone(), renewed.clone()),
            (4, now, acquire(2), granted(4, now + 300)),
        ])
    };
    assert_eq!(after_a_renewal(499), "exclusion");
    assert_eq!(after_a_renewal(500), "fine");
    let release = Command::release(KEY, token(2));
    assert_eq!(
        verdict(&[
            (2, 0, acquire(1), granted(2, 300)),
            (3, 10, release, Outcome::Released),
            (4, 20, acquire(2), granted(4, 320)),
        ]),
        "fine"
    );
}

#[test]
fn the_timeline_sees_the_leader_s_clock_go_back_and_keeps_its_own() {
    // The stamp of the second is 200 ms before that of the first, and a replica must not go back with it.
    let release = Command::release(KEY, token(2));
    let second = |until| {
        verdict(&[
            (2, 300, acquire(1), granted(2, 600)),
            (3, 600, release.clone(), Outcome::NotHeld),
            (4, 400, acquire(2), granted(4, until)),
        ])
    };
    assert_eq!(second(900), "fine");
    assert_eq!(second(700), "early");
}

#[test]
fn the_timeline_sees_tokens_that_fall_repeat_or_are_no_index() {
    let second = |index, granted_as| {
        verdict(&[
            (5, 0, acquire(1), granted(5, 300)),
            (index, 300, acquire(2), granted(granted_as, 600)),
        ])
    };
    assert_eq!(second(6, 4), "tokens");
    assert_eq!(second(6, 5), "tokens");
    assert_eq!(second(6, 7), "tokens");
    assert_eq!(second(6, 6), "fine");
}

#[test]
fn the_timeline_sees_leases_that_end_early_or_come_back() {
    let held = (2, 0, acquire(1), granted(2, 300));
    let renew = Command::renew(KEY, token(2), TTL);
    let release = Command::release(KEY, token(2));
    let renewed = Outcome::Renewed { deadline: at(900) };
    let late = |command, outcome| verdict(&[held.clone(), (3, 300, command, outcome)]);
    let in_time = |command, outcome| verdict(&[held.clone(), (3, 299, command, outcome)]);
    assert_eq!(late(renew.clone(), renewed), "resurrected");
    assert_eq!(late(release.clone(), Outcome::Released), "resurrected");
    assert_eq!(in_time(renew, Outcome::NotHeld), "early");
    assert_eq!(in_time(release, Outcome::NotHeld), "early");
    assert_eq!(verdict(&[(2, 0, acquire(1), granted(2, 299))]), "early");
    let refused = Outcome::Refused(Refusal::Held {
        owner: OwnerId(1),
        token: token(2),
        remaining: TTL,
    });
    assert_eq!(late(acquire(2), refused.clone()), "early");
    assert_eq!(in_time(acquire(2), refused), "fine");
}

#[test]
fn the_timeline_sees_a_replica_that_is_told_the_wrong_index() {
    let faults = |shift: u64| {
        let mut replica = Replica::new(HashSeed::new(1)).unwrap();
        let mut timeline = Timeline::default();
        (2..20)
            .filter(|&index| {
                let (now, command) = (at(index * 300), acquire(index));
                let outcome = replica.apply(&command, now, index + shift).unwrap();
                timeline.follow(index, now, &command, &outcome).is_err()
            })
            .count()
    };
    assert_eq!(faults(0), 0);
    assert_eq!(faults(1), 18);
}

#[test]
fn nodes_that_make_different_things_of_one_log_are_found_out() {
    let mut agreement = Agreement::default();
    assert_eq!(agreement.compare(1, 2, 0xa), Ok(true));
    assert_eq!(agreement.compare(2, 2, 0xa), Ok(false));
    assert_eq!(agreement.compare(2, 3, 0xb), Ok(true));
    assert!(agreement.compare(1, 3, 0xc).is_err());
    // Nobody has applied 4.
    assert!(agreement.compare(1, 5, 0xd).is_err());
}

/// Two state machines and one journal, as in the cluster; the second is given this `now` for one entry.
async fn violations_with_another_now(now: u64) -> Vec<String> {
    let journal = Arc::<Journal>::default();
    for (node, now) in [(1, 100), (2, now)] {
        let mut machine = StateMachine::open(node, Arc::default(), Arc::clone(&journal)).unwrap();
        let entries = [(2, 0), (3, now), (4, 300)].map(|(index, now)| Entry {
            log_id: LogId::new(Leadership::new(1, 1), index),
            payload: EntryPayload::Normal(Proposal {
                command: acquire(index),
                now: at(now),
            }),
        });
        machine.apply(entries).await.unwrap();
    }
    journal.violations()
}

#[tokio::test]
async fn a_node_that_reads_its_own_clock_is_found_out() {
    assert!(violations_with_another_now(100).await.is_empty());
    assert!(!violations_with_another_now(101).await.is_empty());
}

fn holding(granted: u64, from: u64, to: u64) -> Holding {
    Holding {
        key: KEY,
        token: token(granted),
        from: Duration::from_millis(from),
        to: Duration::from_millis(to),
    }
}

#[test]
fn clients_that_hold_one_key_at_once_are_seen() {
    let other_key = Holding {
        key: "another".to_key(&HashSeed::new(1)),
        ..holding(3, 50, 60)
    };
    // In any order, as threads note them.
    assert!(check_holdings(vec![holding(4, 100, 200), other_key, holding(2, 0, 100)]).is_empty());
    assert_eq!(
        check_holdings(vec![holding(4, 99, 200), holding(2, 0, 100)]).len(),
        1
    );
    assert_eq!(
        check_holdings(vec![holding(4, 100, 200), holding(5, 0, 100)]).len(),
        1
    );
    assert_eq!(
        check_holdings(vec![holding(4, 0, 100), holding(4, 100, 200)]).len(),
        1
    );
    // Heard of when it was over: nothing was held.
    assert!(check_holdings(vec![holding(4, 0, 100), holding(2, 60, 50)]).is_empty());
}

#[test]
fn an_account_refuses_the_stale_and_its_audit_sees_a_lost_update() {
    let account = Account::new("an account");
    let (old, new) = (token(33), token(34));
    let seen_by_old = account.read(old).unwrap();
    let seen_by_new = account.read(new).unwrap();
    // The old holder wakes up between the new one's read and its write.
    assert!(!account.write(old, seen_by_old + 1));
    assert!(account.write(new, seen_by_new + 1));
    assert_eq!(account.audit(), Ok(()));
    // Twice from one read: the second deposit overwrites the first.
    assert!(account.write(new, seen_by_new + 1));
    assert!(account.audit().is_err());
}
