//! A manager without a thread of its own: the caller's event loop turns the wheel.
//!
//! The same loop serves a thread-per-core runtime, where [`SystemClock`] tells the time, and a
//! replicated state machine or a simulation, where time is whatever a [`ManualClock`] is set to.

use std::error::Error;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use tenure::{Clock, LockManager, ManualClock, SystemClock, Timestamp};

/// A request to the loop: that key, for that owner, for that long.
type Request = (&'static str, u64, Duration);

fn main() -> Result<(), Box<dyn Error>> {
    println!("an event loop in real time");
    let locks = manager(SystemClock::new())?;
    let (requests, inbox) = mpsc::channel();
    let client = thread::spawn(move || {
        for (key, millis) in [("a", 30), ("b", 10), ("a", 20), ("c", 20)] {
            // The loop is there until this sender is dropped.
            let _ = requests.send((key, 1, Duration::from_millis(millis)));
        }
    });
    run_loop(&locks, &inbox);
    assert!(client.join().is_ok() && locks.is_empty());

    println!("a log that is replayed: each entry carries its time");
    let clock = ManualClock::new();
    let replica = manager(clock.clone())?;
    let log: [(u64, Request); 3] = [
        (1, ("a", 1, Duration::from_secs(60))),
        (30, ("a", 2, Duration::from_secs(60))),
        (61, ("a", 2, Duration::from_secs(60))),
    ];
    for (second, request) in log {
        clock.set(Timestamp::from_nanos(second * 1_000_000_000));
        turn(&replica);
        serve(&replica, request);
    }
    Ok(())
}

fn manager(clock: impl Clock) -> Result<LockManager, tenure::BuildError> {
    LockManager::builder().clock(clock).driver(false).build()
}

/// Serves requests, and wakes up in between only when a deadline is due, until no sender and no
/// lease is left.
fn run_loop(locks: &LockManager, inbox: &Receiver<Request>) {
    let mut open = true;
    while open || !locks.is_empty() {
        let next = locks.next_wakeup();
        let wait = next.map(|at| at.saturating_duration_since(locks.now()));
        match (open, wait) {
            (true, Some(wait)) => match inbox.recv_timeout(wait) {
                Ok(request) => serve(locks, request),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => open = false,
            },
            (true, None) => match inbox.recv() {
                Ok(request) => serve(locks, request),
                Err(_) => open = false,
            },
            (false, wait) => thread::sleep(wait.unwrap_or_default()),
        }
        turn(locks);
    }
}

/// Acts on everything that is due. Costs next to nothing when nothing is.
fn turn(locks: &LockManager) {
    let expired = locks.advance();
    if expired > 0 {
        println!("  {expired} expired, {} left", locks.len());
    }
}

fn serve(locks: &LockManager, (key, owner, ttl): Request) {
    match locks.try_acquire(key, owner, ttl) {
        // The requester holds it from here on: the lease outlives the guard.
        Ok(lease) => println!("  {key}: token {} for owner {owner}", lease.detach()),
        Err(refusal) => println!("  {key}: {refusal}"),
    }
}
