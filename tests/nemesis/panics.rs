//! Threads that die of a panic at each failpoint, one after the other.
//!
//! Meanwhile others acquire, renew, release, wait for and forget leases of common keys, and one waits for the
//! key that those who die are at, which nobody else comes by. Those who die have leases, waiters, sessions and a
//! table that grows and shrinks in hand. After each point, at rest:
//!
//! - no key had two holders, and tokens rose (`witness.rs`);
//! - every wait was served, though nobody came by but the thread that turns the wheel;
//! - every key can be granted again, and is handed on from a holder to one who waits;
//! - no lease is counted as out, and nobody as waiting;
//! - the wheel has nothing to look at in each tick;
//! - no cell is lost: as many leases as cells were ever used can be out at once. With a limit on the number
//!   of leases, as many as that.

use std::collections::BTreeSet;
use std::fs;
use std::num::NonZeroU64;
use std::panic::resume_unwind;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use fail::FailScenario;
use tenure::failpoints::POINTS;
use tenure::reservation::{Block, Reservation, ReservationError};
use tenure::{AcquireError, Lease, LockManager, ManualClock, SystemClock};

use crate::witness::Witness;
use crate::{MS, until};

/// Of the leases of those who die.
const TTL: Duration = Duration::from_millis(25);
/// Keys that all others meet on.
const KEYS: usize = 6;
/// The key that those who die are at.
const DOOMED_KEY: usize = KEYS;
/// Others of theirs.
const OWN: usize = 1_000;
/// So many leases that the table grows.
const MANY: usize = 1_500;
/// The most leases, in a manager with a limit.
const LIMIT: usize = 3_000;
/// What nobody waits for on a machine however busy, unless for ever.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the thread that turns the wheel comes by, while others do all the rest.
const OF_THE_DRIVER: [&str; 17] = [
    "driver/sleeping",
    "driver/turning",
    "handover/granted",
    "handover/popped",
    "handover/settled",
    "handover/waking",
    "kill/finished",
    "kill/killed",
    "kill/unlinked",
    "record/emptied",
    "record/hearing",
    "record/sweeping",
    "session/over",
    "session/winding",
    "wheel/looked",
    "wheel/moved",
    "wheel/turning",
];

/// What a thread dies of.
struct Killed;

/// Has a doomed thread die there, once `fuse` is 1: it burns down by one whenever one comes by.
pub(crate) fn kill_at(point: &'static str, doomed: &'static str, fuse: &Arc<AtomicUsize>) {
    let fuse = Arc::clone(fuse);
    let burn = move || {
        let is_doomed = thread::current().name() == Some(doomed);
        let shorter = |left: usize| left.checked_sub(1);
        // A second panic would end the process.
        if is_doomed
            && !thread::panicking()
            && fuse.fetch_update(Ordering::AcqRel, Ordering::Acquire, shorter) == Ok(1)
        {
            // Without the panic hook, which would print.
            resume_unwind(Box::new(Killed));
        }
    };
    fail::cfg_callback(point, burn).unwrap();
}

/// How often a point is passed before somebody dies there, with so many deaths to come: at last it is the first
/// time, and so at the key that is waited for. What is done to many cells is to be cut off in their midst.
fn fuse_length(point: &str, to_come: usize) -> usize {
    let of_buckets = [
        "resize/copied",
        "resize/done",
        "resize/frozen",
        "resize/published",
    ];
    if of_buckets.contains(&point) {
        fastrand::usize(1..60)
    } else {
        1 + to_come % 4
    }
}

fn name(key: usize) -> u64 {
    key as u64
}

/// What a manager is asked to do besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Options {
    Plain,
    /// A limit on leases, deadlock detection, names, and somebody who follows all that happens.
    All,
}

/// What goes on while threads die.
struct Field {
    locks: LockManager,
    options: Options,
    witness: Witness,
    grants: AtomicUsize,
    over: AtomicBool,
    /// Nobody turns the wheel any more.
    stands: AtomicBool,
}

impl Field {
    fn new(options: Options, driver: Option<&str>) -> Self {
        let mut builder = LockManager::builder()
            .clock(SystemClock::new())
            .thread_name(driver.unwrap_or("none"))
            .driver(driver.is_some());
        if options == Options::All {
            builder = builder
                .max_keys(LIMIT)
                .deadlock_detection(4)
                .introspection(true);
        }
        Self {
            locks: builder.build().unwrap(),
            options,
            witness: Witness::new(KEYS),
            grants: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            stands: AtomicBool::new(false),
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Acquires, renews, gives back or leaves to expire.
    fn survive(&self, me: u64) {
        let mut random = fastrand::Rng::with_seed(me);
        while !self.is_over() {
            let key = random.usize(..KEYS);
            let before = self.witness.before(key);
            let ttl = random.u32(1..6) * MS;
            let granted = if random.bool() {
                self.locks.try_acquire(name(key), me, ttl)
            } else {
                let granted = self
                    .locks
                    .acquire(name(key), me, ttl)
                    .wait_timeout(PATIENCE);
                assert_ne!(
                    granted.as_ref().err(),
                    Some(&AcquireError::TimedOut),
                    "key {key}"
                );
                granted
            };
            let Ok(lease) = granted else {
                continue;
            };
            self.grants.fetch_add(1, Ordering::Relaxed);
            self.witness.granted(&self.locks, key, before, &lease);
            if random.bool()
                && let Ok(until) = lease.renew(2 * ttl)
            {
                self.witness.renewed(key, &lease, until);
            }
            if random.u8(..4) == 0 {
                lease.detach();
            } else {
                self.witness.give_back(key, lease);
            }
            if random.u8(..8) == 0 {
                thread::sleep(MS / 2);
            }
        }
    }

    /// Waits for the key of those who die.
    fn mourn(&self) {
        while !self.is_over() {
            let granted = self
                .locks
                .acquire(name(DOOMED_KEY), 7, TTL)
                .wait_timeout(PATIENCE);
            drop(granted.expect("whoever waits is served"));
            thread::sleep(MS / 4);
        }
    }

    fn turn(&self) {
        while !self.stands.load(Ordering::Acquire) {
            self.locks.advance();
            thread::sleep(MS);
        }
    }

    /// Does everything once, until that kills it.
    fn do_everything(&self) {
        self.hold();
        self.wait();
        self.end_for_others();
        self.share();
        self.open_session();
        self.crowd();
        self.expire();
    }

    fn held(&self, key: usize, me: u64, ttl: Duration) -> Option<Lease<'_>> {
        self.locks
            .acquire(name(key), me, ttl)
            .wait_timeout(10 * MS)
            .ok()
    }

    /// Plain leases, renewed in each way.
    fn hold(&self) {
        for key in [DOOMED_KEY, OWN] {
            let Some(lease) = self.held(key, 99, TTL) else {
                continue;
            };
            let _ = lease.renew(2 * TTL);
            let _ = self.locks.renew(name(key), lease.token(), 3 * TTL);
            // Others come, and wait.
            thread::sleep(MS);
            let _ = self.locks.renew(name(key), lease.token(), 4 * TTL);
            let _ = lease.renew(5 * TTL);
            let _ = lease.release();
        }
        for key in OWN..OWN + 4 {
            let lease = self.locks.try_acquire(name(key), 99, TTL);
            let _ = lease.map(|lease| lease.renew(2 * TTL));
        }
    }

    /// Waits behind itself: gives up, and is handed what it does not take.
    fn wait(&self) {
        let mut context = Context::from_waker(Waker::noop());
        for key in [DOOMED_KEY, OWN] {
            let lease = self.held(key, 99, TTL);
            let mut waiting = Box::pin(self.locks.acquire(name(key), 100, TTL));
            let _ = waiting.as_mut().poll(&mut context);
            let _ = self.locks.acquire(name(key), 101, TTL).wait_timeout(MS);
            drop(lease);
            drop(waiting);
        }
    }

    /// Ends leases that others could have.
    fn end_for_others(&self) {
        for key in [DOOMED_KEY, OWN + 1] {
            let _ = self.held(key, 99, TTL).map(Lease::detach);
            let _ = self.locks.revoke(name(key));
            let _ = self.held(key, 99, MS).map(Lease::detach);
            thread::sleep(2 * MS);
            let _ = self.locks.holder(name(key));
        }
    }

    /// Leases that stand in records.
    fn share(&self) {
        let shared = |key, ttl| {
            let acquire = self.locks.acquire(name(key), 99, ttl).shared();
            acquire.wait_timeout(10 * MS).ok()
        };
        for key in [DOOMED_KEY, OWN + 2] {
            drop(shared(key, TTL));
            let _ = shared(key, 2 * MS).map(Lease::detach);
            thread::sleep(3 * MS);
            drop(shared(key, TTL));
            let _ = self.held(key, 99, TTL).map(|mut lease| lease.downgrade());
        }
    }

    /// Closes a session with leases in it, and lets one expire.
    fn open_session(&self) {
        for ttl in [TTL, 2 * MS] {
            let Ok(session) = self.locks.session(99, ttl) else {
                continue;
            };
            let of_session = session.acquire(name(DOOMED_KEY)).wait_timeout(10 * MS);
            let _ = of_session.map(Lease::detach);
            for key in [OWN + 3, OWN + 4] {
                let _ = session.try_acquire(name(key)).map(Lease::detach);
            }
            if ttl < TTL {
                thread::sleep(2 * ttl);
            }
        }
    }

    /// Many leases in buckets that have others, so that dead cells pile up; then so many that the table grows,
    /// and none, so that it shrinks.
    fn crowd(&self) {
        let grant = |key| self.locks.try_acquire(name(key), 99, 20 * TTL).ok();
        let mut leases: Vec<_> = (2_000..2_300).map(grant).collect();
        for _ in 0..5 {
            for (lease, key) in leases.iter_mut().zip(2_000..) {
                *lease = None;
                *lease = grant(key);
            }
        }
        leases.extend((3_000..3_000 + MANY).map(grant));
    }

    /// Leases that expire under its hands.
    fn expire(&self) {
        for key in OWN + 10..OWN + 30 {
            let _ = self.locks.try_acquire(name(key), 99, MS).map(Lease::detach);
        }
        let end = Instant::now() + 3 * MS;
        while Instant::now() < end {
            self.locks.advance();
        }
    }

    /// Cells that were ever used, in a table that is not moving.
    fn used(&self) -> usize {
        assert!(until(PATIENCE, || {
            self.locks.advance();
            !self.locks.stats().resizing
        }));
        let fresh = LockManager::builder()
            .driver(false)
            .build()
            .unwrap()
            .stats();
        let words = |stats: &tenure::Stats| stats.memory_bytes - stats.buckets * size_of::<u64>();
        (words(&self.locks.stats()) - words(&fresh)) / 64
    }

    /// At rest: whether everything is as it was at the start.
    fn check(&self, point: &str, driver: bool) {
        let locks = &self.locks;
        let turned = |done: &dyn Fn() -> bool| {
            until(PATIENCE, || {
                locks.advance();
                done()
            })
        };
        assert!(
            turned(&|| locks.is_empty()),
            "{point}: {} leases out",
            locks.len()
        );
        assert_eq!(locks.waiting(), 0, "{point}: waiting");
        let keys = || {
            (0..=DOOMED_KEY)
                .chain(OWN..OWN + 30)
                .chain(2_000..2_300)
                .chain(3_000..3_000 + MANY)
        };
        for key in keys() {
            let granted = locks.try_acquire(name(key), 1, TTL).map(drop);
            assert_eq!(granted, Ok(()), "{point}: key {key}");
        }
        let mut context = Context::from_waker(Waker::noop());
        for key in (0..=DOOMED_KEY).chain(OWN..OWN + 5) {
            let first = locks.try_acquire(name(key), 1, PATIENCE).expect("free");
            let mut waiting = pin!(locks.acquire(name(key), 2, PATIENCE));
            assert!(waiting.as_mut().poll(&mut context).is_pending());
            assert!(
                locks.try_acquire(name(key), 3, PATIENCE).is_err(),
                "{point}: key {key}"
            );
            drop(first);
            assert!(
                waiting.as_mut().poll(&mut context).is_ready(),
                "{point}: key {key}"
            );
        }
        let in_each_tick = || {
            let next = locks.next_wakeup();
            next.is_some_and(|next| next <= locks.now().saturating_add(2 * MS))
        };
        assert!(
            turned(&|| !in_each_tick()),
            "{point}: the wheel is never idle"
        );
        assert!(
            locks.is_empty(),
            "{point}: {} leases out at last",
            locks.len()
        );

        let used = self.used();
        let mut leases = vec![];
        let room = loop {
            match locks.try_acquire(name(100_000 + leases.len()), 1, 1_000 * TTL) {
                Ok(_) if self.options == Options::Plain && self.used() > used => break used,
                Ok(lease) => leases.push(lease),
                Err(full) => {
                    assert_eq!(full, AcquireError::CapacityExceeded { capacity: LIMIT });
                    break LIMIT;
                }
            }
        };
        // A thread that lives has up to 64 free ones at hand.
        assert!(leases.len() <= room, "{point}: more than there is room for");
        let lost = room - leases.len();
        let at_hand = if driver && self.options == Options::Plain {
            64
        } else {
            0
        };
        assert!(lost <= at_hand, "{point}: {lost} of {room} lost for ever");
    }
}

/// Has the others end with the test, should it fail.
struct End<'f>(&'f Field);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Release);
        self.0.stands.store(true, Ordering::Release);
    }
}

fn spawn<'s>(
    scope: &'s thread::Scope<'s, '_>,
    name: &str,
    body: impl FnOnce() + Send + 's,
) -> thread::ScopedJoinHandle<'s, ()> {
    let named = thread::Builder::new().name(name.to_owned());
    named.spawn_scoped(scope, body).unwrap()
}

/// Has so many threads die at a point; how many grants the others had meanwhile.
///
/// If it is the driver who dies, it is always the same: it goes on.
fn die_at(point: &'static str, deaths: usize, options: Options, driver: bool) -> usize {
    const DOOMED: &str = "doomed";
    let field = Field::new(options, driver.then_some(DOOMED));
    let followed = (options == Options::All).then(|| field.locks.events(100));
    let fuse = Arc::new(AtomicUsize::new(0));
    kill_at(point, DOOMED, &fuse);
    thread::scope(|scope| {
        let field = &field;
        let mut others = vec![spawn(scope, "mourner", || field.mourn())];
        others.extend((1..3).map(|me| spawn(scope, "survivor", move || field.survive(me))));
        let turner = (!driver).then(|| spawn(scope, "turner", || field.turn()));
        let _end = End(field);
        for to_come in (0..deaths).rev() {
            fuse.store(fuse_length(point, to_come), Ordering::Release);
            let busy = if driver { "busy" } else { DOOMED };
            let reached = until(PATIENCE, || {
                let died = spawn(scope, busy, || field.do_everything()).join();
                match died {
                    Err(cause) if !cause.is::<Killed>() => resume_unwind(cause),
                    _ => fuse.load(Ordering::Acquire) == 0,
                }
            });
            assert!(reached, "{point} was not reached");
            let seen = field.grants.load(Ordering::Relaxed);
            let others_go_on = || field.grants.load(Ordering::Relaxed) > seen + 20;
            assert!(
                until(PATIENCE, others_go_on),
                "{point}: the others are stuck"
            );
        }
        // The leases of the dead expire.
        thread::sleep(2 * TTL);
        field.over.store(true, Ordering::Release);
        for other in others {
            if let Err(cause) = other.join() {
                eprintln!("after a panic at {point}:");
                resume_unwind(cause);
            }
        }
        field.stands.store(true, Ordering::Release);
        // The scope would not wait until it has given back what it had at hand.
        if let Some(turner) = turner {
            turner.join().unwrap();
        }
    });
    fail::remove(point);
    drop(followed);
    field.check(point, driver);
    field.grants.into_inner()
}

fn die_at_each(points: &[&'static str], options: Options, driver: bool) {
    let scenario = FailScenario::setup();
    let deaths = 2 * crate::times();
    let (began, mut grants) = (Instant::now(), 0);
    for point in points {
        grants += die_at(point, deaths, options, driver);
    }
    scenario.teardown();
    println!(
        "{options:?}{}: {deaths} deaths at each of {} points, {grants} grants meanwhile, in {:.1?}",
        if driver { ", the driver" } else { "" },
        points.len(),
        began.elapsed(),
    );
}

/// Points that whoever uses a manager comes by.
fn of_callers() -> Vec<&'static str> {
    let elsewhere =
        |point: &&str| point.starts_with("driver/") || point.starts_with("reservation/");
    POINTS
        .iter()
        .copied()
        .filter(|point| !elsewhere(point))
        .collect()
}

#[test]
fn a_thread_that_dies_at_any_point_costs_nothing_but_its_own_leases() {
    die_at_each(&of_callers(), Options::Plain, false);
}

#[test]
fn the_same_of_a_manager_with_all_options() {
    die_at_each(&of_callers(), Options::All, false);
}

#[test]
fn a_driver_that_panics_goes_on() {
    die_at_each(&OF_THE_DRIVER, Options::Plain, true);
}

/// Of somebody who has died in the queue nothing is left to wait for, and no lease that lasts an hour.
#[test]
fn the_place_of_a_thread_that_died_in_a_queue_is_passed_over() {
    const DOOMED: &str = "doomed";
    const HOUR: Duration = Duration::from_secs(3_600);
    let scenario = FailScenario::setup();
    for point in ["wait/queued", "cancel/leaving"] {
        let builder = LockManager::builder().clock(ManualClock::new());
        let locks = builder.build().unwrap();
        let fuse = Arc::new(AtomicUsize::new(1));
        kill_at(point, DOOMED, &fuse);
        let held = locks.try_acquire(1, 1, HOUR).unwrap();
        thread::scope(|scope| {
            let waits = || drop(locks.acquire(1, 2, HOUR).wait_timeout(MS));
            let died = spawn(scope, DOOMED, waits).join();
            assert!(died.is_err_and(|cause| cause.is::<Killed>()), "{point}");
        });
        let mut context = Context::from_waker(Waker::noop());
        let mut next = pin!(locks.acquire(1, 3, HOUR));
        assert!(next.as_mut().poll(&mut context).is_pending());
        drop(held);
        assert!(next.as_mut().poll(&mut context).is_ready(), "{point}");
        assert_eq!(locks.waiting(), 0);
        fail::remove(point);
    }
    scenario.teardown();
}

/// Nobody comes by, and no time passes, after who held the key has died on the way out of it.
#[test]
fn a_key_is_handed_on_though_its_release_is_cut_off() {
    const DOOMED: &str = "doomed";
    const HOUR: Duration = Duration::from_secs(3_600);
    let scenario = FailScenario::setup();
    let builder = LockManager::builder().clock(ManualClock::new());
    let locks = builder.build().unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let held = locks.try_acquire(1, 1, HOUR).unwrap();
    let mut doomed = pin!(locks.acquire(1, 2, HOUR));
    let mut next = pin!(locks.acquire(1, 3, HOUR));
    assert!(doomed.as_mut().poll(&mut context).is_pending());
    assert!(next.as_mut().poll(&mut context).is_pending());
    drop(held);
    let Poll::Ready(Ok(doomed)) = doomed.as_mut().poll(&mut context) else {
        panic!("it is first in the queue");
    };
    kill_at("release/unlinked", DOOMED, &Arc::new(AtomicUsize::new(1)));
    thread::scope(|scope| {
        let died = spawn(scope, DOOMED, move || drop(doomed)).join();
        assert!(died.is_err_and(|cause| cause.is::<Killed>()));
    });
    assert!(next.as_mut().poll(&mut context).is_ready());
    assert_eq!(locks.waiting(), 0);
    scenario.teardown();
}

/// An authority with a short term, and few tokens at once.
#[derive(Default)]
struct Backend {
    last: u64,
}

impl Reservation for Backend {
    fn campaign(&mut self, _: Duration) -> Result<(), ReservationError> {
        Ok(())
    }

    fn keep_alive(&mut self) -> Result<Option<Duration>, ReservationError> {
        Ok(Some(60 * MS))
    }

    fn reserve(&mut self, tokens: NonZeroU64) -> Result<Block, ReservationError> {
        let block = Block::after(self.last, tokens)?;
        self.last = block.last().get();
        Ok(block)
    }
}

#[test]
fn a_keeper_of_a_reservation_that_panics_goes_on() {
    let scenario = FailScenario::setup();
    for point in ["reservation/renewing", "reservation/reserved"] {
        let builder = LockManager::builder().clock(SystemClock::new());
        let builder = builder.block_size(NonZeroU64::new(50).unwrap());
        let locks = builder.reservation(Backend::default()).build().unwrap();
        let fuse = Arc::new(AtomicUsize::new(0));
        kill_at(point, "tenure-reservation", &fuse);
        let mut last = 0;
        let mut grants = |times| {
            let mut granted = 0;
            until(PATIENCE, || {
                // It may be without authority for a while, or without tokens.
                if let Ok(lease) = locks.try_acquire(1, 1, MS) {
                    let token = lease.token().get();
                    assert!(token > last, "{point}: {token} after {last}");
                    (last, granted) = (token, granted + 1);
                }
                granted == times
            })
        };
        for _ in 0..crate::times() {
            fuse.store(1, Ordering::Release);
            let died = || grants(10) && fuse.load(Ordering::Acquire) == 0;
            assert!(until(PATIENCE, died), "{point} was not reached");
            assert!(grants(100), "{point}: no grants any more");
        }
        fail::remove(point);
    }
    scenario.teardown();
}

/// The sources, and their lines.
fn sources(of: &Path, into: &mut Vec<String>) {
    for entry in fs::read_dir(of).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.extend(fs::read_to_string(path).unwrap().lines().map(str::to_owned));
        }
    }
}

#[test]
fn the_list_of_points_is_what_the_sources_have_and_the_table_explains() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut lines = vec![];
    sources(&src, &mut lines);
    let named = |line: &String| {
        Some(
            line.split_once("failpoint!(\"")?
                .1
                .split_once('"')?
                .0
                .to_owned(),
        )
    };
    let passed: BTreeSet<String> = lines.iter().filter_map(named).collect();
    let listed: BTreeSet<String> = POINTS.iter().map(|&point| point.to_owned()).collect();
    assert_eq!(listed, passed);
    assert_eq!(listed.len(), POINTS.len(), "one twice");
    let table = fs::read_to_string(src.join("failpoint.rs")).unwrap();
    let rows = table
        .lines()
        .filter_map(|line| line.strip_prefix("//! | `"));
    let points = rows.flat_map(|row| row.split(" |").next().unwrap().split('`'));
    let explained: BTreeSet<String> = points
        .filter(|name| name.contains('/'))
        .map(str::to_owned)
        .collect();
    assert_eq!(listed, explained);
}
