//! Histories of real runs, checked for linearizability: does every answer that was given have an explanation
//! by operations that happen one after the other, each between its call and its return?
//!
//! Threads and tasks do at random what holders do, on clocks that run and on one that another thread moves,
//! and note the call and the return of each operation, with readings of the manager's clock around it. (Some
//! are held up between their own reading and what they do with it.) Each key is an object of its own, and so
//! is its history, since linearizability is local. It is checked against a
//! specification in the manner of the Jepsen suite for Hazelcast's locks: an owner-aware mutex, a reentrant
//! one, a fenced one, a reentrant fenced one; and one with shared leases, permits, upgrades and downgrades.
//! All of them have leases that expire, renewals, releases by guard and by token, look-ups, revocations,
//! sessions, lock-delays, minimum holds, and a queue (`spec.rs`). Snapshots and checkpoints of the whole manager are
//! taken meanwhile: what one says of a key is an operation on that key too.
//!
//! `TENURE_HISTORIES=50 cargo test --release --test histories -- --nocapture` checks fifty times as many. A
//! workload goes on until enough of what it is about has happened, however long that takes, and prints what
//! there was of it.
//!
//! # The checker
//!
//! `todc-utils`: the algorithm of Wing and Gong with the cache of Lowe (states that were tried with the same
//! operations done are not tried again), in two short files that one can read, without dependencies. The
//! other candidate, `stateright`'s `LinearizabilityTester`, is kept by more people, but has no such cache: a bad
//! history of 17 operations by four processes took it 1.8 s, and `todc-utils` 0.1 ms; one of 41 took that 0.4 ms,
//! and the other was given up on. It also wants one answer from the specification for each operation under
//! way, where here an unknown outcome has two; and it brings a model checker with a web server along.
//!
//! The checker takes deterministic specifications, so each choice is an operation of its own that may be left
//! out: that of a waiter that gave up and may have been granted the key first, for instance (`Need` in
//! `spec.rs`).
//!
//! # Time
//!
//! Expiry is no operation: nobody calls it, and it has no answer. Instead the state has a lower bound of the
//! clock. Each operation knows a reading from before its call, and one from after its return; it happens at
//! some time between these, and not before the time of those that have happened already. It takes the
//! earliest that allows its answer: an answer that says that a lease is in force needs a time before the
//! deadline, one that says that it is over, or grants the key to another, a time not before it. Taking the
//! earliest loses nothing, since a later time allows less to those who come after. If that time is after
//! what the clock said at the return, the answer has no explanation in this place.
//!
//! Deadlines are those that the manager has told, and are compared with the time, to the nanosecond. A
//! deadline that was told must lie at least a TTL after the reading before the call, and at most one and two ticks
//! after that at the return, unless it was later already.
//!
//! So the encoding can't hide
//!
//! - a double grant (I1): of two leases in conflict, one is granted while the other stands in the state, and
//!   only its deadline, a release, a revocation or the end of its session takes it from there. Each of these
//!   is an operation that was seen, or a time that the clock has to have reached by the return of the grant;
//! - a falling token (I2): the state has the last one, and a grant needs a greater one;
//! - an early end (I3): whoever is told that a lease is over needs a time not before its deadline, and it
//!   fails if the clock had not come to that when he was told;
//! - a resurrection (I4): the time never goes back, so once somebody was told that a lease is over, or its
//!   deadline has gone by at the call of anything that came before, whoever is told that it is in force has
//!   no time for that;
//! - a renewal that isn't kept (I5): it moves the deadline in the state, and all of the above goes by that;
//! - an operation on another's lease (I6): leases are named by their tokens, in the state too;
//! - a key that is granted while it is kept free, or kept free for longer than by two ticks of rounding: the
//!   state has until when, at least and at the most;
//! - a lease, a waiter or a key kept free that a list of holders, a snapshot or a checkpoint lacks, or has too much:
//!   what it tells has to be all that the state has;
//! - a waiter out of turn (I7), as far as it shows: the first poll of a task puts it in the queue, so its place
//!   is known to lie between the call and the end of that poll; that of a blocked thread lies anywhere until
//!   it returns. Nobody is granted the key past the head of the queue.
//!
//! # Unknown outcomes
//!
//! - An acquisition that gave up, by its time or since its future was dropped, is in the queue until then at
//!   the most, and may have been granted the key in the meantime, and passed it on. Its token is unknown, but
//!   between those before and after it, and becomes known if somebody sees it.
//! - Now and then a process goes away before it has heard the answer. Such an operation happens at any time
//!   after its call, or never: at the end of the history all of them may be left out.
//! - A guard that goes out of scope releases the lease, or finds it over, and says nothing.
//!
//! # What is not checked
//!
//! That an expired lease passes on in time (I8): a lease may be over in the state for as long as it likes. That
//! a waiter's TTL counts from the grant and not from its call: the reading from which it counts is not known.
//! What lies between keys: that `acquire_all` holds all of its keys at one time, that a session ends for all
//! of its leases at once. That a revocation names the first of several leases, and a look-up the last. One
//! thing that isn't linearizable is allowed, as documented: of two operations that end one lease at the same
//! time, a release and a revocation or another release, both may say that they did.
//!
//! # When it fails
//!
//! It prints the least of the history that still has no explanation (`Unit` in `check.rs` says why what is left
//! out can't have been one), as a timeline with a lane for each process. `teeth.rs` has bad and good
//! histories made by hand, and tests the minimiser.

mod check;
mod history;
mod process;
mod run;
mod spec;
mod teeth;

use check::Spec;
use process::{Choice, Menu};
use run::{As, Kind, PERMITS, Time, Workload};
use tenure::Mode;

const EXCLUSIVE: &[Mode] = &[Mode::Exclusive];
const SHARED: &[Mode] = &[Mode::Shared, Mode::Shared, Mode::Exclusive];

const THREADS: &[As] = &[As::Threads];
const BOTH: &[As] = &[As::Threads, As::Tasks];

/// How many times as many histories as by default.
fn scale() -> u64 {
    let scale = std::env::var("TENURE_HISTORIES").ok();
    scale.map_or(1, |it| it.parse().expect("TENURE_HISTORIES is a number"))
}

const MENU: Menu = Menu {
    choices: &[],
    modes: EXCLUSIVE,
    reentrant: false,
    processes_per_owner: 1,
    in_sessions: false,
    delays: false,
    steps: 20,
    keys: 2,
};

/// Takes turns with nothing but guards, as in the suites of lock services.
const MUTEX: Workload = Workload {
    name: "mutex",
    spec: Spec::OwnerAwareMutex,
    menu: Menu {
        choices: &[
            (20, Choice::Try),
            (20, Choice::Wait),
            (20, Choice::Release),
            (8, Choice::Drop),
            (8, Choice::Look),
            (12, Choice::Rest),
        ],
        ..MENU
    },
    time: Time::System,
    processes: As::Threads,
    resizes: false,
    wants: &[
        (Kind::Granted, 200),
        (Kind::Refused, 50),
        (Kind::Waited, 20),
        (Kind::GaveUp, 20),
        (Kind::Expired, 20),
        (Kind::Overlaps, 100),
    ],
};

const FENCED: Workload = Workload {
    name: "exclusive leases",
    spec: Spec::FencedMutex,
    menu: Menu {
        choices: &[
            (30, Choice::Try),
            (12, Choice::Renew),
            (10, Choice::Release),
            (4, Choice::Drop),
            (20, Choice::ByToken),
            (6, Choice::Look),
            (3, Choice::Revoke),
            (2, Choice::Lost),
            (16, Choice::Rest),
        ],
        ..MENU
    },
    resizes: true,
    wants: &[
        (Kind::Granted, 200),
        (Kind::Refused, 50),
        (Kind::Expired, 20),
        (Kind::Renewed, 50),
        (Kind::FoundOver, 50),
        (Kind::Revoked, 10),
        (Kind::Lost, 10),
        (Kind::Overlaps, 100),
    ],
    ..MUTEX
};

/// Leases whose deadline passes while their renewals are under way and others look at them.
const LATE: Workload = Workload {
    name: "late renewals",
    menu: Menu {
        choices: &[(12, Choice::Try), (50, Choice::ByToken), (30, Choice::Look)],
        keys: 1,
        steps: 12,
        ..MENU
    },
    resizes: false,
    wants: &[
        (Kind::Granted, 100),
        (Kind::Renewed, 50),
        (Kind::FoundOver, 100),
        (Kind::Overlaps, 500),
    ],
    ..FENCED
};

const WAITERS: Workload = Workload {
    name: "waiters",
    menu: Menu {
        choices: &[
            (10, Choice::Try),
            (30, Choice::Wait),
            (10, Choice::Renew),
            (12, Choice::Release),
            (4, Choice::Drop),
            (12, Choice::ByToken),
            (4, Choice::Look),
            (3, Choice::Revoke),
            (1, Choice::Lost),
            (4, Choice::LookAtAll),
            (8, Choice::Rest),
        ],
        ..MENU
    },
    resizes: false,
    wants: &[
        (Kind::Granted, 200),
        (Kind::Refused, 20),
        (Kind::Waited, 50),
        (Kind::GaveUp, 50),
        (Kind::Expired, 20),
        (Kind::Renewed, 30),
        (Kind::FoundOver, 30),
        (Kind::Revoked, 10),
        (Kind::Lost, 5),
        (Kind::Overlaps, 100),
    ],
    ..FENCED
};

const REENTRANT: Workload = Workload {
    name: "reentrant mutex",
    spec: Spec::ReentrantMutex,
    menu: Menu {
        choices: &[
            (24, Choice::Try),
            (16, Choice::Wait),
            (20, Choice::Release),
            (8, Choice::Drop),
            (8, Choice::Look),
            (12, Choice::Rest),
        ],
        reentrant: true,
        ..MENU
    },
    wants: &[
        (Kind::Granted, 100),
        (Kind::EnteredAgain, 50),
        (Kind::Refused, 50),
        (Kind::Waited, 10),
        (Kind::GaveUp, 20),
        (Kind::Expired, 20),
        (Kind::Overlaps, 100),
    ],
    ..MUTEX
};

const REENTRANT_FENCED: Workload = Workload {
    name: "reentrant leases",
    spec: Spec::ReentrantFencedMutex,
    menu: Menu {
        choices: WAITERS.menu.choices,
        reentrant: true,
        ..MENU
    },
    wants: &[
        (Kind::Granted, 100),
        (Kind::EnteredAgain, 50),
        (Kind::Refused, 20),
        (Kind::Waited, 20),
        (Kind::Expired, 20),
        (Kind::Renewed, 30),
        (Kind::FoundOver, 20),
        (Kind::Revoked, 10),
        (Kind::Overlaps, 100),
    ],
    ..WAITERS
};

/// Two processes are one owner, and so hold the same leases.
const OWNERS: Workload = Workload {
    name: "owners with two processes",
    menu: Menu {
        choices: &[
            (36, Choice::Try),
            (10, Choice::Renew),
            (16, Choice::Release),
            (6, Choice::Drop),
            (16, Choice::ByToken),
            (6, Choice::Look),
            (2, Choice::Revoke),
            (8, Choice::Rest),
        ],
        reentrant: true,
        processes_per_owner: 2,
        ..MENU
    },
    wants: &[
        (Kind::Granted, 100),
        (Kind::EnteredAgain, 50),
        (Kind::Refused, 20),
        (Kind::Expired, 20),
        (Kind::FoundOver, 20),
        (Kind::Overlaps, 100),
    ],
    ..REENTRANT_FENCED
};

const MODES: Workload = Workload {
    name: "shared and exclusive leases",
    spec: Spec::Modes,
    menu: Menu {
        choices: &[
            (18, Choice::Try),
            (20, Choice::Wait),
            (8, Choice::Renew),
            (10, Choice::Release),
            (4, Choice::Drop),
            (10, Choice::Upgrade),
            (8, Choice::Downgrade),
            (8, Choice::ByToken),
            (4, Choice::Look),
            (2, Choice::Revoke),
            (4, Choice::LookAtAll),
            (10, Choice::Rest),
        ],
        modes: SHARED,
        ..MENU
    },
    wants: &[
        (Kind::Granted, 200),
        (Kind::Refused, 10),
        (Kind::Waited, 20),
        (Kind::GaveUp, 20),
        (Kind::Expired, 20),
        (Kind::Upgraded, 10),
        (Kind::Downgraded, 20),
        (Kind::Deadlocks, 1),
        (Kind::Revoked, 5),
        (Kind::Overlaps, 100),
    ],
    ..WAITERS
};

const SEMAPHORE: Workload = Workload {
    name: "permits",
    // Nothing is lost here: of several leases whose deadline is not known, the specification would have to
    // choose the one that ends.
    menu: Menu {
        choices: &[
            (10, Choice::Try),
            (30, Choice::Wait),
            (10, Choice::Renew),
            (12, Choice::Release),
            (4, Choice::Drop),
            (12, Choice::ByToken),
            (4, Choice::Look),
            (3, Choice::Revoke),
            (4, Choice::LookAtAll),
            (8, Choice::Rest),
        ],
        modes: &[PERMITS, PERMITS, PERMITS, PERMITS, PERMITS, Mode::Exclusive],
        ..MENU
    },
    wants: &[
        (Kind::Granted, 200),
        (Kind::Refused, 10),
        (Kind::Waited, 20),
        (Kind::GaveUp, 20),
        (Kind::Expired, 20),
        (Kind::Revoked, 5),
        (Kind::Overlaps, 100),
    ],
    ..MODES
};

const SESSIONS: Workload = Workload {
    name: "sessions",
    menu: Menu {
        choices: &[
            (20, Choice::Try),
            (20, Choice::Wait),
            (8, Choice::Release),
            (4, Choice::Drop),
            (16, Choice::KeepAlive),
            (3, Choice::Close),
            (8, Choice::ByToken),
            (4, Choice::Look),
            (2, Choice::Revoke),
            (4, Choice::LookAtAll),
            (10, Choice::Rest),
        ],
        modes: SHARED,
        in_sessions: true,
        ..MENU
    },
    wants: &[
        (Kind::Granted, 100),
        (Kind::Refused, 10),
        (Kind::Waited, 20),
        (Kind::KeptAlive, 50),
        (Kind::SessionsOver, 20),
        (Kind::FoundOver, 10),
        (Kind::Overlaps, 100),
    ],
    ..MODES
};

/// `acquire_all`, among others that want single keys.
const MANY: Workload = Workload {
    name: "many keys at once",
    spec: Spec::FencedMutex,
    menu: Menu {
        choices: &[
            (24, Choice::Many),
            (10, Choice::Try),
            (10, Choice::Wait),
            (16, Choice::Release),
            (6, Choice::Drop),
            (6, Choice::Look),
            (4, Choice::LookAtAll),
            (8, Choice::Rest),
        ],
        keys: 3,
        ..MENU
    },
    wants: &[
        (Kind::Granted, 200),
        (Kind::Refused, 10),
        (Kind::Waited, 20),
        (Kind::GaveUp, 20),
        (Kind::Overlaps, 100),
    ],
    ..WAITERS
};

/// Lock-delays and minimum holds.
const KEPT: Workload = Workload {
    name: "keys that are kept free",
    menu: Menu {
        choices: &[
            (20, Choice::Try),
            (20, Choice::Wait),
            (6, Choice::Renew),
            (12, Choice::Release),
            (4, Choice::Drop),
            (10, Choice::ByToken),
            (4, Choice::Look),
            (10, Choice::LookAtAll),
            (4, Choice::Revoke),
            (12, Choice::Rest),
        ],
        reentrant: true,
        delays: true,
        ..MENU
    },
    wants: &[
        (Kind::Granted, 100),
        (Kind::EnteredAgain, 20),
        (Kind::KeptFree, 50),
        (Kind::AllSeen, 50),
        (Kind::Waited, 20),
        (Kind::Expired, 20),
        (Kind::Revoked, 10),
        (Kind::Overlaps, 100),
    ],
    ..REENTRANT_FENCED
};

/// The same with what sessions leave behind.
const KEPT_BY_SESSIONS: Workload = Workload {
    name: "keys that are kept free after sessions",
    spec: Spec::FencedMutex,
    menu: Menu {
        choices: &[
            (20, Choice::Try),
            (20, Choice::Wait),
            (10, Choice::Release),
            (4, Choice::Drop),
            (8, Choice::KeepAlive),
            (4, Choice::Close),
            (8, Choice::ByToken),
            (4, Choice::Look),
            (10, Choice::LookAtAll),
            (3, Choice::Revoke),
            (12, Choice::Rest),
        ],
        in_sessions: true,
        delays: true,
        ..MENU
    },
    wants: &[
        (Kind::Granted, 100),
        (Kind::KeptFree, 50),
        (Kind::AllSeen, 30),
        (Kind::Waited, 10),
        (Kind::SessionsOver, 20),
        (Kind::Overlaps, 100),
    ],
    ..SESSIONS
};

/// Each workload by each clock, on threads, and as tasks if it can be.
fn everything() -> Vec<Workload> {
    let all = [
        (MUTEX, BOTH),
        (FENCED, BOTH),
        (LATE, THREADS),
        (WAITERS, BOTH),
        (REENTRANT, BOTH),
        (REENTRANT_FENCED, BOTH),
        (OWNERS, BOTH),
        (MODES, BOTH),
        (SEMAPHORE, BOTH),
        (SESSIONS, BOTH),
        (MANY, THREADS),
        (KEPT, BOTH),
        (KEPT_BY_SESSIONS, BOTH),
    ];
    let all = all.into_iter();
    all.flat_map(|(workload, processes)| everywhere(&workload, processes))
        .collect()
}

fn everywhere(workload: &Workload, processes: &[As]) -> Vec<Workload> {
    let mut all = vec![];
    for &processes in processes {
        for time in [Time::System, Time::Coarse, Time::Manual] {
            all.push(Workload {
                time,
                processes,
                ..workload.clone()
            });
        }
    }
    all
}

fn check(workload: &Workload, processes: &[As]) {
    for (seed, workload) in everywhere(workload, processes).into_iter().enumerate() {
        workload.check(20 * scale(), seed as u64);
    }
}

/// I1, I3.
#[test]
fn owner_aware_mutex() {
    check(&MUTEX, BOTH);
}

/// I1 to I6.
#[test]
fn fenced_mutex() {
    check(&FENCED, BOTH);
}

/// I4, I5.
#[test]
fn late_renewals() {
    check(&LATE, THREADS);
}

/// I1 to I7.
#[test]
fn waiters() {
    check(&WAITERS, BOTH);
}

/// I1, I3.
#[test]
fn reentrant_mutex() {
    check(&REENTRANT, BOTH);
}

/// I1 to I7.
#[test]
fn reentrant_fenced_mutex() {
    check(&REENTRANT_FENCED, BOTH);
}

/// I1 to I6.
#[test]
fn owners_with_two_processes() {
    check(&OWNERS, BOTH);
}

/// I1 to I7.
#[test]
fn shared_and_exclusive_leases() {
    check(&MODES, BOTH);
}

/// I1 to I7.
#[test]
fn permits() {
    check(&SEMAPHORE, BOTH);
}

/// I1 to I7.
#[test]
fn sessions() {
    check(&SESSIONS, BOTH);
}

/// I1 to I3, I7.
#[test]
fn many_keys_at_once() {
    check(&MANY, THREADS);
}

/// I1 to I7.
#[test]
fn keys_that_are_kept_free() {
    check(&KEPT, BOTH);
}

/// I1 to I7.
#[test]
fn keys_that_are_kept_free_after_sessions() {
    check(&KEPT_BY_SESSIONS, BOTH);
}
