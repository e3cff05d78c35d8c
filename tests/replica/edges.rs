//! The ends of what a replica takes: indices, times, numbers of leases, and checkpoints of others.

use std::time::Duration;

use tenure::replica::{Command, Outcome, Refusal, Replica, ReplicaError, ReplicaOptions};
use tenure::{
    BuildError, Checkpoint, FencingToken, HashSeed, Key, LockManager, Mode, OwnerId, RestoreError,
    Timestamp,
};

use crate::SEED;

const MS: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

fn at(millis: u64) -> Timestamp {
    Timestamp::from_nanos(millis * 1_000_000)
}

fn acquire(key: u64, owner: u64, ttl: Duration) -> Command {
    Command::acquire(Key::from_raw(u128::from(key)), OwnerId(owner), ttl)
}

fn replica() -> Replica {
    Replica::new(SEED).unwrap()
}

fn token(value: u64) -> FencingToken {
    FencingToken::new(value).unwrap()
}

#[test]
fn a_command_is_applied_once() {
    let mut replica = replica();
    replica.apply(&acquire(1, 1, 10 * MS), at(5), 7).unwrap();
    let before = replica.checkpoint();
    for log_index in [1, 6, 7] {
        let refused = replica.apply(&acquire(2, 2, 10 * MS), at(500), log_index);
        let applied = ReplicaError::Applied {
            log_index,
            last_applied: 7,
        };
        assert_eq!(refused, Err(applied));
        assert_eq!(replica.checkpoint(), before, "nothing has happened");
    }
}

#[test]
fn a_replica_tells_what_it_has_applied_and_who_holds_what() {
    let mut replica = replica();
    assert!(replica.is_empty());
    let shared = |owner, ttl| acquire(1, owner, ttl).shared();
    replica.apply(&shared(7, 20 * MS), at(5), 40).unwrap();
    replica.apply(&shared(8, 10 * MS), at(6), 42).unwrap();
    assert_eq!(replica.last_applied(), 42);
    assert_eq!(replica.checkpoint().last_applied(), Some(42));
    assert_eq!((replica.len(), replica.is_empty()), (2, false));

    let key = Key::from_raw(1);
    let last = replica.holder(key).expect("it is held");
    assert_eq!((last.owner, last.token), (OwnerId(7), token(40)));
    assert_eq!((last.deadline, last.remaining), (at(25), 19 * MS));
    let holders = replica.holders(key);
    let held: Vec<_> = holders.iter().map(|it| (it.owner, it.token)).collect();
    assert_eq!(held, [(OwnerId(7), token(40)), (OwnerId(8), token(42))]);
    assert_eq!(replica.holder(Key::from_raw(2)), None);

    let printed = format!("{replica:?}");
    for part in ["Replica", "last_applied: 42", "leases: 2"] {
        assert!(printed.contains(part), "{printed} does not say {part}");
    }
    assert!(!printed.contains(&SEED.get().to_string()), "{printed}");
    replica.apply(&Command::Advance, at(25), 43).unwrap();
    assert!(replica.is_empty());
}

fn granted(outcome: &Outcome) -> FencingToken {
    let Outcome::Granted { token, .. } = *outcome else {
        panic!("{outcome:?}")
    };
    token
}

#[test]
fn only_the_owner_enters_its_lease_again_and_only_in_a_mode_that_it_covers() {
    let mut replica = replica();
    let mut index = 0;
    let mut apply = |command: &Command| {
        index += 1;
        replica.apply(command, at(1), index).unwrap()
    };
    let exclusive = acquire(1, 7, 10 * MS);
    let first = granted(&apply(&exclusive.clone().reentrant()));
    // Others, and who does not ask to enter, are refused.
    let held = |outcome: &Outcome, by: FencingToken| matches!(outcome, Outcome::Refused(Refusal::Held { token, .. }) if *token == by);
    assert!(held(&apply(&acquire(1, 8, 10 * MS).reentrant()), first));
    assert!(held(&apply(&exclusive), first));
    // Its own lease covers all modes; the token is the same.
    for again in [exclusive.clone(), exclusive.shared()] {
        let outcome = apply(&again.reentrant());
        assert!(
            matches!(outcome, Outcome::Entered { token, .. } if token == first),
            "{outcome:?}"
        );
    }
    // A shared one covers none but its own.
    let shared = acquire(2, 7, 10 * MS).shared();
    let second = granted(&apply(&shared));
    assert!(held(&apply(&acquire(2, 7, 10 * MS).reentrant()), second));
    let outcome = apply(&shared.clone().reentrant());
    assert!(
        matches!(outcome, Outcome::Entered { token, .. } if token == second),
        "{outcome:?}"
    );
    let other = granted(&apply(&acquire(2, 8, 10 * MS).shared().reentrant()));
    assert!(
        other > second,
        "who shares with another has a lease of its own"
    );
}

#[test]
fn what_is_asked_for_is_granted_within_its_limits_and_refused_beyond() {
    let mut replica = replica();
    let mut index = 0;
    let mut apply = |command: Command| {
        index += 1;
        replica.apply(&command, at(0), index).unwrap()
    };
    let nanosecond = Duration::from_nanos(1);
    let ttl = Duration::ZERO;
    let min = nanosecond;
    let too_short = Outcome::Refused(Refusal::TtlTooShort { ttl, min });
    assert_eq!(apply(acquire(1, 1, ttl)), too_short);
    let shortest = granted(&apply(acquire(1, 1, nanosecond)));
    let key = Key::from_raw(1);
    assert_eq!(apply(Command::renew(key, shortest, ttl)), too_short);
    let outcome = apply(Command::renew(key, shortest, nanosecond));
    assert!(matches!(outcome, Outcome::Renewed { .. }), "{outcome:?}");
    granted(&apply(acquire(2, 1, LONGEST)));
    let (ttl, max) = (LONGEST + nanosecond, LONGEST);
    let too_long = Outcome::Refused(Refusal::TtlTooLong { ttl, max });
    assert_eq!(apply(acquire(3, 1, ttl)), too_long);

    let most = (1 << 30) - 1;
    for of in [0, most + 1, u32::MAX] {
        let refused = Outcome::Refused(Refusal::Permits { of });
        assert_eq!(apply(acquire(4, 1, MS).permit(of)), refused);
    }
    for (key, of) in [(4, 1), (5, most)] {
        granted(&apply(acquire(key, 1, MS).permit(of)));
    }
    // A shared lease alone can be upgraded.
    let permit = granted(&apply(acquire(6, 1, MS).permit(2)));
    let shared = granted(&apply(acquire(7, 1, MS).shared()));
    let upgrade = |key, token| Command::Upgrade {
        key: Key::from_raw(key),
        token,
        ttl: MS,
    };
    for (key, token, mode) in [
        (1, shortest, Mode::Exclusive),
        (6, permit, Mode::Permit { of: 2 }),
    ] {
        let refused = Outcome::Refused(Refusal::Mode { mode });
        assert_eq!(apply(upgrade(key, token)), refused);
    }
    assert!(granted(&apply(upgrade(7, shared))) > shared);
}

#[test]
fn a_key_that_is_kept_free_says_for_how_long() {
    let mut replica = replica();
    let kept = acquire(1, 1, 10 * MS).lock_delay(20 * MS);
    replica.apply(&kept, at(0), 1).unwrap();
    let outcome = replica.apply(&acquire(1, 2, 10 * MS), at(15), 2).unwrap();
    let remaining = 15 * MS;
    assert_eq!(outcome, Outcome::Refused(Refusal::Delayed { remaining }));
    let outcome = replica.apply(&acquire(1, 2, 10 * MS), at(30), 3).unwrap();
    granted(&outcome);
}

/// Replicas of one cluster may be of several versions while they are brought up to date, and refuse the same.
#[test]
fn the_end_of_time_is_the_same_in_every_version() {
    for (tick, end) in [
        (Duration::from_micros(100), 429_496_310_169_600_000),
        (MS, 4_294_963_101_696_000_000),
        (7 * MS, 18_320_254_473_703_000_000),
        (Duration::from_secs(3600), 18_320_252_400_000_000_000),
    ] {
        let options = ReplicaOptions::new().tick(tick);
        let replica = Replica::with_options(SEED, options).unwrap();
        assert_eq!(replica.end(), Timestamp::from_nanos(end), "{tick:?}");
        assert_eq!(u128::from(end) % tick.as_nanos(), 0, "a whole tick");
    }
}

#[test]
fn an_index_that_is_no_token_is_refused() {
    let mut replica = replica();
    let last = (1 << 63) - 1 - (1 << 56);
    for log_index in [0, last + 1, u64::MAX] {
        let refused = replica.apply(&Command::Advance, at(5), log_index);
        assert_eq!(refused, Err(ReplicaError::LogIndex { log_index }));
        assert_eq!((replica.now(), replica.last_applied()), (at(0), 0));
    }
    // The last ones are, and far jumps cost no more than a copy of the table.
    for log_index in [1 << 40, 1 << 62, last - 1, last] {
        let outcome = replica.apply(&acquire(log_index, 1, MS), at(5), log_index);
        let granted = Outcome::Granted {
            token: token(log_index),
            deadline: at(6),
        };
        assert_eq!(outcome, Ok(granted));
        let restored = Replica::from_checkpoint(&replica.checkpoint()).unwrap();
        assert_eq!(restored.checkpoint(), replica.checkpoint());
    }
}

#[test]
fn a_command_from_before_is_applied_at_the_latest_time() {
    let mut replica = replica();
    replica.apply(&Command::Advance, at(100), 1).unwrap();
    let outcome = replica.apply(&acquire(1, 1, 10 * MS), at(20), 2).unwrap();
    // Never early (I3): 10 ms from the latest time that any command had.
    let granted = Outcome::Granted {
        token: token(2),
        deadline: at(110),
    };
    assert_eq!((outcome, replica.now()), (granted, at(100)));
}

#[test]
fn time_ends_in_the_same_place_on_every_replica() {
    let mut old = replica();
    let end = old.end();
    let near = end.checked_sub(10 * MS).unwrap();
    old.apply(&Command::Advance, near, 1).unwrap();
    // One that is made there could count further.
    let new = Replica::from_checkpoint(&old.checkpoint()).unwrap();
    let refused = Outcome::Refused(Refusal::EndOfTime { end });
    for mut replica in [old, new] {
        let keep = acquire(1, 1, 10 * MS).lock_delay(LONGEST).min_hold(LONGEST);
        let granted = Outcome::Granted {
            token: token(2),
            deadline: end,
        };
        assert_eq!(replica.apply(&keep, near, 2), Ok(granted));
        let longer = acquire(2, 1, 10 * MS + Duration::from_nanos(1));
        assert_eq!(replica.apply(&longer, near, 3), Ok(refused.clone()));
        let key = Key::from_raw(1);
        let renew = Command::renew(key, token(2), 11 * MS);
        assert_eq!(replica.apply(&renew, near, 4), Ok(refused.clone()));
        // The time stops there. What follows on the lease still lasts for as long as it says.
        replica.apply(&Command::Advance, Timestamp::MAX, 5).unwrap();
        assert_eq!((replica.now(), replica.len()), (end, 0));
        assert_eq!(
            replica.apply(&acquire(3, 1, MS), end, 6),
            Ok(refused.clone())
        );
        let (_, delayed) = replica.checkpoint().delayed().next().unwrap();
        assert_eq!(delayed, LONGEST);
        let after = Replica::from_checkpoint(&replica.checkpoint()).unwrap();
        assert_eq!(after.checkpoint(), replica.checkpoint());
    }
}

#[test]
fn the_unix_clock_will_do() {
    let mut replica = replica();
    let now = Timestamp::from_nanos(1_800_000_000_000_000_000);
    let outcome = replica.apply(&acquire(1, 1, MS), now, 1).unwrap();
    let deadline = now.checked_add(MS).unwrap();
    let token = token(1);
    assert_eq!(outcome, Outcome::Granted { token, deadline });
}

#[test]
fn a_full_replica_refuses_and_evicts_nothing() {
    let options = ReplicaOptions::new().max_leases(2);
    let mut replica = Replica::with_options(SEED, options).unwrap();
    replica.apply(&acquire(1, 1, 10 * MS), at(0), 1).unwrap();
    let shared = acquire(2, 1, 20 * MS).shared();
    replica.apply(&shared, at(0), 2).unwrap();
    let full = Outcome::Refused(Refusal::CapacityExceeded { capacity: 2 });
    let mut restored = Replica::from_checkpoint(&replica.checkpoint()).unwrap();
    for replica in [&mut replica, &mut restored] {
        for (index, command) in [
            acquire(3, 1, MS),
            acquire(3, 1, MS).shared(),
            acquire(2, 2, MS).shared(),
        ]
        .iter()
        .enumerate()
        {
            let outcome = replica.apply(command, at(1), 3 + index as u64);
            assert_eq!(outcome, Ok(full.clone()));
        }
        // At the deadline there is a place, whether the wheel has turned or not.
        let outcome = replica.apply(&acquire(3, 1, MS), at(10), 10).unwrap();
        assert!(matches!(outcome, Outcome::Granted { .. }), "{outcome:?}");
    }
    assert_eq!(replica.checkpoint(), restored.checkpoint());
}

#[test]
fn options_out_of_range_are_refused() {
    for max_leases in [0, (1 << 20) + 1] {
        let options = ReplicaOptions::new().max_leases(max_leases);
        let refused = Replica::with_options(SEED, options).unwrap_err();
        let limit = 1 << 20;
        let max_keys = max_leases;
        assert_eq!(refused, BuildError::MaxKeys { max_keys, limit });
    }
    for tick in [Duration::ZERO, Duration::from_secs(3601)] {
        let options = ReplicaOptions::new().tick(tick);
        let refused = Replica::with_options(SEED, options).unwrap_err();
        assert_eq!(refused, BuildError::Tick { tick });
    }
}

#[test]
fn any_tick_takes_the_longest_times() {
    for tick in [Duration::from_micros(100), MS, Duration::from_secs(3600)] {
        let options = ReplicaOptions::new().tick(tick);
        let mut replica = Replica::with_options(SEED, options).unwrap();
        let ask = |ttl: Duration| acquire(1, 1, ttl).lock_delay(ttl).min_hold(ttl);
        let outcome = replica.apply(&ask(LONGEST), at(1), 1).unwrap();
        let ttl = match outcome {
            Outcome::Granted { .. } => LONGEST,
            Outcome::Refused(Refusal::TtlTooLong { max, .. }) => max,
            other => panic!("{other:?}"),
        };
        assert!(ttl >= Duration::from_secs(39 * 24 * 3600), "{ttl:?}");
        replica.apply(&ask(ttl), at(1), 2).unwrap();
        let checkpoint = replica.checkpoint();
        assert!(checkpoint.leases().all(|lease| lease.remaining >= ttl));
        let restored = Replica::from_checkpoint(&checkpoint).unwrap();
        assert_eq!(restored.checkpoint(), checkpoint);
        assert_eq!((restored.end(), restored.len()), (replica.end(), 1));
    }
}

#[test]
fn long_names_are_the_same_keys_on_every_replica() {
    let name = "a name of more than fifteen bytes";
    let (one, other) = (replica(), replica());
    assert_eq!(one.key(name), other.key(name));
    let restored = Replica::from_checkpoint(&one.checkpoint()).unwrap();
    assert_eq!(one.key(name), restored.key(name));
    assert_ne!(
        one.key(name),
        Replica::new(HashSeed::new(1)).unwrap().key(name)
    );
}

#[test]
fn a_managers_checkpoint_is_no_replicas() {
    let locks = LockManager::new();
    let refused = Replica::from_checkpoint(&locks.checkpoint()).unwrap_err();
    assert_eq!(refused, RestoreError::NotOfAReplica);
    assert!(refused.to_string().contains("Builder::restore"));
}

#[test]
fn a_manager_can_go_on_where_a_replica_was() {
    let mut replica = replica();
    replica.apply(&acquire(1, 7, 10 * MS), at(5), 40).unwrap();
    let locks = LockManager::builder()
        .restore(&replica.checkpoint())
        .unwrap();
    assert_eq!(
        locks.holder(1).map(|it| (it.owner, it.token)),
        Some((OwnerId(7), token(40)))
    );
    let lease = locks.try_acquire(2, 1, MS).unwrap();
    assert!(lease.token() > token(40));
    let raised = replica.checkpoint().raise_floor(token(50));
    assert!(matches!(raised, Err(RestoreError::Replica { .. })));
}

#[test]
fn what_no_replica_can_have_written_is_refused() {
    let mut replica = replica();
    let shared = acquire(1, 7, 10 * MS)
        .shared()
        .lock_delay(MS)
        .min_hold(20 * MS);
    replica.apply(&shared, at(5), 40).unwrap();
    let good = serde_json::to_value(replica.checkpoint()).unwrap();
    let read = |value: serde_json::Value| {
        let checkpoint: Result<Checkpoint, _> = serde_json::from_value(value);
        let checkpoint = checkpoint.map_err(|error| error.to_string())?;
        let replica = Replica::from_checkpoint(&checkpoint);
        replica.map_err(|error| error.to_string())
    };
    assert_eq!(
        read(good.clone()).unwrap().checkpoint(),
        replica.checkpoint()
    );
    let bad: [(&str, serde_json::Value); 9] = [
        ("/floor", 41.into()),
        ("/floor", 39.into()),
        ("/log/last_applied", 41.into()),
        ("/log/max_leases", 0.into()),
        ("/log/max_leases", u32::MAX.into()),
        ("/now", u64::MAX.into()),
        ("/leases/0/remaining", (1_u64 << 62).into()),
        ("/leases/0/terms/lock_delay", u64::MAX.into()),
        ("/leases/0/terms/max_hold", u64::MAX.into()),
    ];
    for (place, value) in bad {
        let mut checkpoint = good.clone();
        *checkpoint.pointer_mut(place).unwrap() = value.clone();
        assert!(read(checkpoint).is_err(), "{place}: {value}");
    }
}

#[test]
fn what_lasts_as_long_as_anything_can_is_read_again_and_nothing_longer() {
    let mut replica = replica();
    replica.apply(&acquire(1, 7, 10 * MS), at(5), 38).unwrap();
    let terms = acquire(2, 7, 10 * MS).lock_delay(MS).min_hold(MS);
    replica.apply(&terms, at(5), 39).unwrap();
    let kept = acquire(3, 7, 10 * MS).min_hold(20 * MS);
    replica.apply(&kept, at(5), 40).unwrap();
    let release = Command::release(Key::from_raw(3), token(40));
    replica.apply(&release, at(5), 41).unwrap();
    let good = serde_json::to_value(replica.checkpoint()).unwrap();
    let left = (replica.end().as_nanos() - at(5).as_nanos(), "lasts longer");
    let longest = LONGEST.as_nanos() as u64;
    for (place, (most, says)) in [
        ("/leases/0/remaining", left),
        ("/leases/1/terms/lock_delay", (longest, "lasts longer")),
        ("/leases/1/terms/min_hold", (2 * longest, "lasts longer")),
        ("/kept/0/remaining", (2 * longest, "kept free for longer")),
    ] {
        let read = |value: u64| {
            let mut checkpoint = good.clone();
            *checkpoint.pointer_mut(place).expect(place) = value.into();
            let checkpoint: Checkpoint = serde_json::from_value(checkpoint).unwrap();
            Replica::from_checkpoint(&checkpoint)
        };
        assert!(read(most).is_ok(), "{place}: {most}");
        for longer in [most + 1, most + MS.as_nanos() as u64] {
            let error = read(longer).unwrap_err().to_string();
            assert!(error.contains(says), "{place}: {longer}: {error}");
        }
    }
}

#[test]
fn leases_and_keys_that_are_kept_free_count_together_when_a_replica_is_read() {
    let mut replica = replica();
    replica.apply(&acquire(1, 7, 10 * MS), at(5), 1).unwrap();
    for key in [2, 3] {
        let kept = acquire(key, 7, 10 * MS).min_hold(20 * MS);
        replica.apply(&kept, at(5), 2 * key).unwrap();
        let release = Command::release(Key::from_raw(key.into()), token(2 * key));
        replica.apply(&release, at(5), 2 * key + 1).unwrap();
    }
    let good = serde_json::to_value(replica.checkpoint()).unwrap();
    for (max_leases, is_good) in [(2, false), (3, true)] {
        let mut checkpoint = good.clone();
        checkpoint["log"]["max_leases"] = max_leases.into();
        let read = serde_json::from_value::<Checkpoint>(checkpoint);
        assert_eq!(read.is_ok(), is_good, "{max_leases}: {read:?}");
    }
}

#[test]
fn commands_and_outcomes_survive_text_and_bytes() {
    let key = Key::from_raw(u128::MAX);
    let ttl = Duration::from_nanos(1_500_000_001);
    let commands = [
        Command::acquire(key, OwnerId(1), ttl),
        acquire(1, 2, ttl)
            .permit(3)
            .reentrant()
            .lock_delay(ttl)
            .min_hold(MS),
        Command::renew(key, token(4), ttl),
        Command::release(key, token(5)),
        Command::Revoke { key },
        Command::Upgrade {
            key,
            token: token(6),
            ttl,
        },
        Command::Downgrade {
            key,
            token: token(7),
        },
        Command::Advance,
    ];
    for command in commands {
        let text = serde_json::to_string(&command).unwrap();
        assert_eq!(serde_json::from_str::<Command>(&text).unwrap(), command);
    }
    let outcomes = [
        Outcome::Granted {
            token: token(4),
            deadline: at(9),
        },
        Outcome::Revoked {
            leases: vec![(OwnerId(1), token(2))],
        },
        Outcome::Refused(Refusal::Mode {
            mode: Mode::Permit { of: 3 },
        }),
        Outcome::NotHeld,
    ];
    for outcome in outcomes {
        let text = serde_json::to_string(&outcome).unwrap();
        assert_eq!(serde_json::from_str::<Outcome>(&text).unwrap(), outcome);
    }
}

#[test]
fn every_refusal_says_what_to_do_next() {
    let (ttl, max) = (MS, MS);
    for (refusal, advice) in [
        (Refusal::Delayed { remaining: MS }, "try again"),
        (Refusal::CapacityExceeded { capacity: 3 }, "release"),
        (Refusal::TtlTooLong { ttl, max }, "ask for at most"),
        (Refusal::TermTooLong { length: ttl, max }, "ask for at most"),
        (Refusal::Permits { of: 0 }, "choose"),
        (Refusal::Mode { mode: Mode::Shared }, "downgrade"),
        (Refusal::TooManyEntries { most: 3 }, "release"),
        (Refusal::EndOfTime { end: at(1) }, "make new replicas"),
    ] {
        assert!(refusal.to_string().contains(advice), "{refusal}");
    }
    let applied = ReplicaError::Applied {
        log_index: 3,
        last_applied: 4,
    };
    for (error, advice) in [
        (applied, "go on"),
        (ReplicaError::LogIndex { log_index: 0 }, "begin at 1"),
        (ReplicaError::OutOfMemory, "apply it again"),
    ] {
        assert!(error.to_string().contains(advice), "{error}");
    }
}

/// A command that can't be done is refused by all replicas alike: an error would stop them all, for good.
#[test]
fn entries_that_cannot_be_counted_are_refused() {
    let mut replica = replica();
    let enter = acquire(1, 7, 10 * MS).reentrant();
    replica.apply(&enter, at(5), 1).unwrap();
    replica.apply(&enter, at(5), 2).unwrap();
    let mut checkpoint = serde_json::to_value(replica.checkpoint()).unwrap();
    *checkpoint.pointer_mut("/leases/0/entries").unwrap() = (u32::MAX - 1).into();
    let checkpoint: Checkpoint = serde_json::from_value(checkpoint).unwrap();
    let mut replicas = [0, 1].map(|_| Replica::from_checkpoint(&checkpoint).unwrap());
    for replica in &mut replicas {
        let entered = replica.apply(&enter, at(6), 3).unwrap();
        assert!(matches!(entered, Outcome::Entered { .. }), "{entered:?}");
        let refused = replica.apply(&enter, at(6), 4);
        let most = u32::MAX;
        assert_eq!(
            refused,
            Ok(Outcome::Refused(Refusal::TooManyEntries { most }))
        );
        // It goes on.
        assert_eq!(replica.last_applied(), 4);
        let release = Command::release(Key::from_raw(1), token(1));
        assert_eq!(replica.apply(&release, at(6), 5), Ok(Outcome::Released));
        let entered = replica.apply(&enter, at(6), 6).unwrap();
        assert!(matches!(entered, Outcome::Entered { .. }), "{entered:?}");
    }
    assert_eq!(replicas[0].checkpoint(), replicas[1].checkpoint());
}

/// What the docs of the module say of answers that were lost.
#[test]
fn who_tries_again_is_told_so_only_of_an_exclusive_lease() {
    let key = Key::from_raw(1);
    let twice = |first: &[Command], command: &Command| {
        let mut replica = replica();
        let mut index = 0;
        let mut apply = |command: &Command| {
            index += 1;
            replica.apply(command, at(5), index).unwrap()
        };
        for command in first {
            apply(command);
        }
        apply(command);
        let again = apply(command);
        (again, replica.holders(key))
    };
    let exclusive = || acquire(1, 7, 10 * MS);
    let (again, holders) = twice(&[], &exclusive());
    let missed = matches!(again, Outcome::Refused(Refusal::Held { owner: OwnerId(7), token: it, .. })
        if it == token(1));
    assert!(missed && holders.len() == 1, "{again:?}");

    for more in [exclusive().shared(), exclusive().permit(2)] {
        let (again, holders) = twice(&[], &more);
        assert_eq!(granted(&again), token(2));
        assert_eq!(holders.len(), 2);
    }
    let enter = exclusive().reentrant();
    let (again, holders) = twice(&[], &enter);
    let entered = matches!(again, Outcome::Entered { token: it, .. } if it == token(1));
    assert!(entered && holders.len() == 1, "{again:?}");

    let release = Command::release(key, token(1));
    let (again, holders) = twice(&[enter.clone(), enter], &release);
    assert_eq!((again, holders.len()), (Outcome::Released, 0));

    let ttl = 10 * MS;
    let upgrade = Command::Upgrade {
        key,
        token: token(1),
        ttl,
    };
    let (again, holders) = twice(&[exclusive().shared()], &upgrade);
    assert_eq!((again, holders[0].token), (Outcome::NotHeld, token(2)));
}

/// Nobody waits in a replica: who would upgrade is told who else shares the key, the longest if there are
/// several.
#[test]
fn an_upgrade_beside_others_says_who_they_are() {
    let mut replica = replica();
    for (owner, ttl) in [(1, 50), (2, 30), (3, 40), (4, 20)] {
        let shared = acquire(1, owner, ttl * MS).shared();
        let outcome = replica.apply(&shared, at(0), owner).unwrap();
        assert!(matches!(outcome, Outcome::Granted { .. }), "{outcome:?}");
    }
    let upgrade = Command::Upgrade {
        key: Key::from_raw(1),
        token: token(1),
        ttl: 50 * MS,
    };
    let held = Outcome::Refused(Refusal::Held {
        owner: OwnerId(3),
        token: token(3),
        remaining: 30 * MS,
    });
    assert_eq!(replica.apply(&upgrade, at(10), 5), Ok(held));
    let outcome = replica.apply(&upgrade, at(40), 6).unwrap();
    assert!(
        matches!(outcome, Outcome::Granted { token, .. } if token.get() == 6),
        "{outcome:?}"
    );
}
