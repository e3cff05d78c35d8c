//! A process forks with managers in it. What is promised: the parent's go on; the child may drop its copies
//! without harm, and make managers of its own. What is true and no promise: the child's copy of a manager
//! without threads works, and grants the same tokens as the parent's, so nobody may use both.
//!
//! Each test forks in a process of its own, which runs nothing else: this program again, with that test alone.

use super::*;
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

use ::fork::Fork;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tenure::reservation::{self, Authority};
use tenure::{Clock, CoarseClock, FencingToken, SystemClock};

const ALONE: &str = "TENURE_HOSTILE_FORKS";

/// Runs `body` in a process of its own: that of the test of that name.
fn alone(name: &str, body: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        return body();
    }
    let this = std::env::current_exe().expect("a program has a path");
    let mut command = Command::new(this);
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    let output = command.env(ALONE, "1").output().expect("it can be started");
    let (said, cried) = (output.stdout, output.stderr);
    let (said, cried) = (
        String::from_utf8_lossy(&said),
        String::from_utf8_lossy(&cried),
    );
    assert!(output.status.success(), "{said}{cried}");
    assert!(said.contains("1 passed"), "no such test as {name}: {said}");
}

/// Forks, and has the child run `body`, which says whether all was well.
fn child(body: impl FnOnce() -> bool) -> Pid {
    match ::fork::fork().expect("a process can fork") {
        Fork::Parent(pid) => Pid::from_raw(pid).expect("not zero"),
        // Not back into the test's harness, whose threads are not here, with a panic either.
        Fork::Child => {
            let well = catch_unwind(AssertUnwindSafe(body)).unwrap_or(false);
            std::process::exit(i32::from(!well))
        }
    }
}

/// Waits for the child to end, and says how.
fn ended(pid: Pid) -> Option<i32> {
    let start = Instant::now();
    loop {
        let ended = waitpid(Some(pid), WaitOptions::NOHANG).expect("it is our child");
        if let Some((_, status)) = ended {
            return status.exit_status();
        }
        if start.elapsed() > PATIENCE {
            let _ = kill_process(pid, Signal::KILL);
            let _ = waitpid(Some(pid), WaitOptions::empty());
            panic!("the child is stuck");
        }
        thread::sleep(MS);
    }
}

/// Has the shared clock's thread be at work, so that nobody else reads the time.
fn awaken(clock: &CoarseClock) {
    let start = Instant::now();
    while start.elapsed() < 50 * MS {
        let _ = clock.now();
    }
}

#[test]
fn the_parent_goes_on_and_the_child_may_drop_its_copy() {
    alone(
        "fork::the_parent_goes_on_and_the_child_may_drop_its_copy",
        || {
            for _ in 0..20 {
                let builder = LockManager::builder().reservation(reservation::Memory::new());
                let locks = builder.build().expect("in order");
                let held = locks.try_acquire("a", 1, HOUR).expect("free").into_owned();
                locks.try_acquire("b", 1, 20 * MS).expect("free").detach();
                let wakes = Arc::new(Wakes::default());
                let waker = Waker::from(Arc::clone(&wakes));
                let next = waiting(locks.acquire("a", 2, HOUR).into_owned(), &waker);
                let after = waiting(locks.acquire("b", 2, HOUR).into_owned(), &waker);
                awaken(&CoarseClock::shared());
                let other = locks.clone();
                let pid = child(|| {
                    // Guards of the copy, too: nobody is in an operation.
                    drop((locks.clone(), next, after, held));
                    drop(other);
                    let closed = wakes.count();
                    drop(locks);
                    // No driver was waited for, and nobody was told that the manager is gone.
                    wakes.count() == closed
                });
                assert_eq!(ended(pid), Some(0));
            }
            let locks = LockManager::new();
            let held = locks.try_acquire("a", 1, HOUR).expect("free");
            locks.try_acquire("b", 1, 50 * MS).expect("free").detach();
            let pid = child(|| true);
            // The driver and the clock are at work here.
            let lease = locks.acquire("b", 2, HOUR).wait_timeout(PATIENCE);
            assert!(lease.is_ok() && held.is_live());
            assert_eq!(ended(pid), Some(0));
        },
    );
}

/// A daemon that forks after it has used managers, and then makes its own.
#[test]
fn a_manager_that_is_made_in_the_child_is_as_good_as_any() {
    alone(
        "fork::a_manager_that_is_made_in_the_child_is_as_good_as_any",
        || {
            let locks = LockManager::new();
            let _held = locks.try_acquire("a", 1, HOUR).expect("free");
            awaken(&CoarseClock::shared());
            let pid = child(|| {
                let locks = LockManager::new();
                let first = locks.try_acquire("a", 1, 50 * MS);
                let token = first.expect("another manager").detach();
                let lost = locks.lost("a", token).wait_timeout(PATIENCE);
                let next = locks.acquire("a", 2, HOUR).wait_timeout(PATIENCE);
                drop(next.expect("the first has expired"));
                drop(locks);
                // No driver reads the clock meanwhile.
                let locks = LockManager::builder().driver(false).build();
                let locks = locks.expect("in order");
                let lease = locks.try_acquire("a", 1, 10 * MS).expect("free");
                eventually("the clock", || !lease.is_live());
                lost.is_some()
            });
            assert_eq!(ended(pid), Some(0));
        },
    );
}

/// No promise, and the reason why there is none: both grant the same tokens for the same key, and say that
/// they are the only ones.
#[test]
fn a_copy_without_threads_works_and_grants_the_parents_tokens() {
    alone(
        "fork::a_copy_without_threads_works_and_grants_the_parents_tokens",
        || {
            let builder = LockManager::builder()
                .clock(SystemClock::new())
                .driver(false);
            let locks = builder.build().expect("in order");
            let before = locks.try_acquire("a", 1, HOUR).expect("free");
            let token = before.token();
            drop(before);
            let granted = |owner: u64| -> FencingToken {
                let lease = locks.try_acquire("a", owner, HOUR).expect("free");
                let mut next = waiting(locks.acquire("a", owner, HOUR), Waker::noop());
                let token = lease.token();
                drop(lease);
                assert!(matches!(poll(&mut next), Poll::Ready(Ok(_))));
                token
            };
            let expected = token.get() + 1;
            let pid = child(|| granted(2).get() == expected);
            assert_eq!(
                granted(3).get(),
                expected,
                "the same token, for another owner"
            );
            assert_eq!(ended(pid), Some(0));
        },
    );
}

/// What the child drops, with a driver or without, gives nothing up, neither authority nor lock; what the parent
/// drops does, though the child has a copy of the open file.
#[test]
fn a_files_lock_is_the_parents() {
    alone("fork::a_files_lock_is_the_parents", || {
        for driver in [true, false] {
            let directory = tempfile::tempdir().expect("a directory");
            let open = |name| reservation::File::open(directory.path().join(name));
            let builder = LockManager::builder().reservation(open("shard").expect("it is ours"));
            let locks = builder.driver(driver).build().expect("in order");
            assert!(locks.try_acquire("a", 1, HOUR).is_ok());
            let other = open("other").expect("it is ours");
            let (mut dropped, mut says_dropped) = std::io::pipe().expect("a pipe");
            let mut mine = Some((locks, other));
            let theirs = &mut mine;
            let pid = child(move || {
                drop(theirs.take());
                let said = says_dropped.write_all(&[0]).is_ok();
                thread::sleep(PATIENCE);
                said
            });
            dropped.read_exact(&mut [0]).expect("it says so");
            let (locks, other) = mine.expect("the child has taken its copy");
            let authority = locks.standing().map(|it| it.authority);
            assert_eq!(authority, Some(Authority::Unlimited));
            assert!(open("shard").is_err() && open("other").is_err());
            drop((locks, other));
            assert!(open("shard").is_ok() && open("other").is_ok());
            kill_process(pid, Signal::KILL).expect("it sleeps");
            assert_eq!(ended(pid), None);
        }
    });
}

#[cfg(feature = "etcd")]
#[test]
fn a_backend_behind_a_network_is_made_in_the_child_too() {
    alone(
        "fork::a_backend_behind_a_network_is_made_in_the_child_too",
        || {
            let is_unavailable = || {
                // Nobody listens there.
                let options = reservation::Etcd::options(["http://127.0.0.1:9"], "shard");
                let connected = options.timeout(100 * MS).connect();
                matches!(
                    connected,
                    Err(reservation::ConnectError::Reservation(
                        reservation::ReservationError::Unavailable { .. }
                    ))
                )
            };
            assert!(is_unavailable());
            assert_eq!(ended(child(is_unavailable)), Some(0));
            assert!(is_unavailable());
        },
    );
}
