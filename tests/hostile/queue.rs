//! A million acquisitions wait for one key (I7, I9): all of them are answered, in order, one a release, and
//! what a hand-over costs does not grow with the queue.

use super::*;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tenure::Clock;

const MILLION: u64 = 1_000_000;

/// The resident memory of this process in bytes, where the system tells.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1_024)
}

/// One at a time: each takes most of a gigabyte, and measures what it takes.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A slab of acquisitions that wait for "a" in the order of their owners, from 1, all with the same waker.
fn queue(locks: &LockManager, count: u64, wakes: &Arc<Wakes>) -> Vec<Option<Acquire<'static>>> {
    let waker = Waker::from(Arc::clone(wakes));
    let mut slab = Vec::with_capacity(count as usize);
    for owner in 1..=count {
        let acquire = locks.acquire("a", owner, HOUR).into_owned();
        slab.push(Some(waiting(acquire, &waker)));
    }
    slab
}

/// Takes the answer of one whose turn it is.
fn take(slab: &mut [Option<Acquire<'static>>], at: usize) -> Lease<'static> {
    let mut acquire = slab[at].take().expect("it waits");
    match poll(&mut acquire) {
        Poll::Ready(Ok(lease)) => lease,
        other => panic!("waiter {at}: {other:?}"),
    }
}

#[test]
fn a_million_are_served_in_order_by_releases() {
    let _alone = alone();
    let count = scaled(MILLION);
    let (locks, _clock) = manual();
    let wakes = Arc::new(Wakes::default());
    let mut held = locks.try_acquire("a", 0, HOUR).expect("free").into_owned();
    let before = resident();
    let mut slab = queue(&locks, count, &wakes);
    assert_eq!(locks.waiting(), slab.len());
    if let (Some(before), Some(after)) = (before, resident()) {
        let each = after.saturating_sub(before) / count;
        // Other tests of this process allocate as well, and what they have freed is used again: alone, it is most.
        println!("{count} waiters: {each} bytes more of resident memory each");
        assert!(count < MILLION || each < 1024, "{each} bytes a waiter");
    }
    for at in 0..slab.len() {
        let token = held.token();
        held.release().expect("it is live");
        assert_eq!(wakes.count(), at + 1, "I7: one release, one wake");
        held = take(&mut slab, at);
        assert_eq!(held.owner().0, at as u64 + 1, "I7: in order");
        assert!(held.token() > token, "I2");
    }
    held.release().expect("it is live");
    let stats = locks.stats();
    assert_eq!((stats.waited, stats.gave_up), (count, 0));
    assert_idle(&locks, ["a"]);
}

/// Half of them leave, in no order, from anywhere in the queue and while it is served; the others are served
/// in the order in which they came.
#[test]
fn a_million_of_which_some_leave_lose_nobody() {
    let _alone = alone();
    let count = scaled(MILLION);
    let (locks, _clock) = manual();
    let wakes = Arc::new(Wakes::default());
    let held = locks.try_acquire("a", 0, HOUR).expect("free");
    let mut slab = queue(&locks, count, &wakes);
    let (mut random, mut left) = (0x9e37_79b9_7f4a_7c15, 0);
    let mut leave = |slab: &mut [Option<Acquire<'static>>]| {
        let at = next(&mut random) % count;
        left += u64::from(slab[at as usize].take().is_some());
        left
    };
    for _ in 0..count / 4 {
        leave(&mut slab);
    }
    let gone = leave(&mut slab);
    assert_eq!(locks.waiting() as u64, count - gone);
    held.release().expect("it is live");
    let (mut served, mut at) = (0, 0);
    while at < slab.len() {
        if slab[at].is_none() {
            at += 1;
            continue;
        }
        // The head has been granted the key: sometimes it leaves without having looked, and passes it on.
        if served % 7 == 3 {
            slab[at] = None;
        } else {
            let lease = take(&mut slab, at);
            assert_eq!(lease.owner().0, at as u64 + 1, "I7: in order");
            drop(lease);
        }
        served += 1;
        if served % 2 == 0 {
            leave(&mut slab);
        }
    }
    let stats = locks.stats();
    assert_eq!(stats.waited + stats.gave_up, count, "each once");
    // Some of those who left had been granted the key, and passed it on.
    assert!(stats.gave_up <= leave(&mut slab));
    assert_idle(&locks, ["a"]);
}

#[test]
fn a_million_are_told_that_the_manager_is_gone() {
    let _alone = alone();
    let count = scaled(MILLION);
    let (locks, _clock) = manual();
    let wakes = Arc::new(Wakes::default());
    let held = locks.try_acquire("a", 0, HOUR).expect("free").into_owned();
    let slab = queue(&locks, count, &wakes);
    drop(locks);
    assert_eq!(wakes.count(), slab.len(), "each is woken once");
    for mut acquire in slab.into_iter().flatten() {
        let answer = poll(&mut acquire);
        assert!(matches!(answer, Poll::Ready(Err(AcquireError::Closed))));
    }
    assert!(held.release().is_err());
}

/// All of them share: one release lets all of them in, and each wakes once.
#[test]
fn a_million_who_share_come_in_at_once() {
    let _alone = alone();
    let count = scaled(MILLION / 4);
    let (locks, _clock) = manual();
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    let held = locks.try_acquire("a", 0, HOUR).expect("free");
    let mut slab: Vec<_> = (1..=count)
        .map(|owner| waiting(locks.acquire("a", owner, HOUR).shared(), &waker))
        .collect();
    let last = waiting(locks.acquire("a", count + 1, HOUR), &waker);
    held.release().expect("it is live");
    assert_eq!(wakes.count(), slab.len());
    let leases: Vec<_> = slab
        .iter_mut()
        .map(|acquire| match poll(acquire) {
            Poll::Ready(Ok(lease)) => lease,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(locks.len(), slab.len());
    assert!(leases.is_sorted_by_key(Lease::token), "I7: in order");
    drop(leases);
    assert_eq!(wakes.count(), slab.len() + 1);
    drop(last);
    assert_idle(&locks, ["a"]);
}

/// Counts what the manager asks of it.
#[derive(Debug, Default)]
struct Asked(AtomicUsize);

impl Clock for Asked {
    fn now(&self) -> tenure::Timestamp {
        self.0.fetch_add(1, Ordering::Relaxed);
        tenure::Timestamp::ZERO
    }

    fn is_real_time(&self) -> bool {
        false
    }
}

/// A clock of the user's that others can look at.
#[derive(Clone, Debug, Default)]
struct Watched(Arc<Asked>);

impl Clock for Watched {
    fn now(&self) -> tenure::Timestamp {
        self.0.now()
    }

    fn is_real_time(&self) -> bool {
        false
    }
}

/// The hand-overs that `.ci/hand-over` counts the instructions of: its name is known there.
#[inline(never)]
fn hand_over(
    held: Lease<'static>,
    slab: &mut [Option<Acquire<'static>>],
    count: usize,
) -> Lease<'static> {
    let mut held = held;
    for at in 0..count {
        held.release().expect("it is live");
        held = take(slab, at);
    }
    held
}

/// A queue of so many in front of which hand-overs are made; `reentrant` has one of them who would enter a
/// lease of its own. Says how often the clock was read and wakers woken.
fn hand_overs(length: u64, count: usize, reentrant: bool) -> (usize, usize) {
    let clock = Watched::default();
    let builder = LockManager::builder().clock(clock.clone()).driver(false);
    let locks = builder.build().expect("in order");
    let wakes = Arc::new(Wakes::default());
    let held = locks.try_acquire("a", 0, HOUR).expect("free").into_owned();
    let mut slab = queue(&locks, length, &wakes);
    let last = locks.acquire("a", length + 1, HOUR).into_owned();
    let last = if reentrant { last.reentrant() } else { last };
    let waker = Waker::from(Arc::clone(&wakes));
    slab.push(Some(waiting(last, &waker)));
    let (asked, woken) = (clock.0.0.load(Ordering::Relaxed), wakes.count());
    drop(hand_over(held, &mut slab, count));
    let asked = clock.0.0.load(Ordering::Relaxed) - asked;
    (asked, wakes.count() - woken)
}

/// What can be counted from outside is the same for a queue of a thousand and of a million. (Its
/// instructions, `.ci/hand-over` counts, by way of the next test.)
#[test]
fn a_hand_over_asks_no_more_of_others_in_a_long_queue() {
    let _alone = alone();
    for reentrant in [false, true] {
        let short = hand_overs(1_000, 500, reentrant);
        let long = hand_overs(scaled(MILLION).max(2_000), 500, reentrant);
        assert_eq!(short, long, "readings of the clock, and wakes");
        assert_eq!(short.1, 501, "one wake each");
    }
}

/// The re-entries that `.ci/hand-over` counts the instructions of: its name is known there.
#[inline(never)]
fn enter_again(locks: &LockManager, owners: Range<u64>) {
    for owner in owners {
        let entered = locks.acquire("a", owner, HOUR).shared().reentrant();
        drop(entered.try_now().expect("its own lease is live"));
    }
}

/// So many hold a key together, and some of them enter their leases again.
fn entries(sharers: u64, count: u64) {
    let clock = ManualClock::new();
    let builder = LockManager::builder().clock(clock.clone()).driver(false);
    let locks = builder.build().expect("in order");
    let share = |owner| {
        // Each has a deadline of its own.
        clock.advance(Duration::from_millis(1));
        locks.acquire("a", owner, HOUR).shared().try_now()
    };
    let held: Vec<_> = (0..sharers).map(share).collect();
    assert!(held.iter().all(Result::is_ok));
    let middle = sharers / 2;
    assert!(middle + count <= sharers, "each has a lease to enter");
    enter_again(&locks, middle..middle + count);
    assert_eq!(locks.len() as u64, sharers, "no new lease");
}

/// Runs what `.ci/hand-over` counts: `TENURE_HOSTILE_QUEUE` is the length of the queue, with `r` behind it if
/// one of them is reentrant, or how many share a key, with `s` behind it. Without it, a short one.
#[test]
fn the_hand_overs_that_are_counted() {
    let queue = std::env::var("TENURE_HOSTILE_QUEUE").unwrap_or_else(|_| "1000".to_owned());
    let length = queue.trim_end_matches(['r', 's']);
    let length = length.parse().expect("a number");
    if queue.ends_with('s') {
        return entries(length, 500);
    }
    let (_, woken) = hand_overs(length, 500, queue.ends_with('r'));
    assert_eq!(woken, 501);
}
