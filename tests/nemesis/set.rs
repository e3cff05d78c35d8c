//! The set test: under a lease, workers read a set, pause, and write it back with an element more.
//!
//! That is Jepsen's test of locks. A worker that is paused for longer than its lease, or whose lease is over
//! because the clock has jumped, writes back a set that lacks what others have added since. Each nemesis is set
//! on two resources. One takes every write: it *must* lose elements whose writes were acknowledged, and the test
//! goes on until it has, and until the nemesis has done what it is there for. (Some do no harm to who writes in
//! time: beside them the workers themselves are paused before they write.) The other is [`Fenced`]: it must lose
//! none, ever, and it must have refused stale writes, or it has proved nothing.
//!
//! Whatever the nemesis, tokens rise and no two hold a key at once by the manager's clock (`witness.rs`): a
//! manager clamps a clock that goes back, so that its own never does. And when the nemesis has gone, every key is
//! granted again, and no lease is out and nobody waits.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use fail::FailScenario;
use fastrand::Rng;
use tenure::{Clock, Fenced, FencingToken, Lease, LockManager, StaleToken, Timestamp};

use crate::clock::Warped;
use crate::witness::Witness;
use crate::{MS, until};

const TTL: Duration = Duration::from_millis(8);
const WORKERS: u64 = 4;
const KEYS: usize = 2;
/// Of one set: it is copied for each element.
const ROUND: Duration = Duration::from_millis(250);
const PATIENCE: Duration = Duration::from_secs(60);

/// What befalls the manager. Where that keeps nobody from writing in time, the workers are paused besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nemesis {
    /// Pauses at the points that begin like that.
    Pauses(&'static [&'static str]),
    /// The thread that turns the wheel stands still.
    Stall,
    /// The clock jumps ahead, strobes, and stops.
    Clock,
    /// Futures are dropped at any of their awaits, and threads give up.
    Cancel,
    All,
}

const GRANT: &[&str] = &["grant/"];
const RENEW: &[&str] = &["renew/"];
const RELEASE: &[&str] = &["release/", "kill/"];
const SWEEP: &[&str] = &["wheel/", "record/sweeping", "record/hearing"];
const GROWTH: &[&str] = &["resize/", "rebuild/", "cells/"];
const QUEUE: &[&str] = &["wait/", "handover/", "cancel/", "record/"];
const ANY: &[&str] = &[""];

impl Nemesis {
    /// Whether it pauses threads at that point; and for how often that is passed it does once.
    fn pauses(self, point: &str) -> Option<u32> {
        let points = match self {
            Self::Pauses(points) => points,
            Self::All => ANY,
            Self::Stall => &["driver/"],
            Self::Clock | Self::Cancel => &[],
        };
        let paused = points.iter().any(|start| point.starts_with(start));
        let rare = match point {
            // In each turn of the wheel and each move of a bucket.
            _ if ["wheel/", "resize/", "rebuild/"]
                .iter()
                .any(|start| point.starts_with(start)) =>
            {
                200
            }
            _ if self == Self::All => 60,
            _ => 12,
        };
        paused.then_some(rare)
    }

    fn cancels(self) -> bool {
        matches!(self, Self::Cancel | Self::All)
    }

    fn warps(self) -> bool {
        matches!(self, Self::Clock | Self::All)
    }

    /// Whether the table has to grow and shrink for it to strike.
    fn crowds(self) -> bool {
        self == Self::Pauses(GROWTH) || self == Self::All
    }

    /// Whether it comes between a grant and what is written under it, and so has to do harm by itself.
    fn comes_before_writes(self) -> bool {
        let alone = [Self::Pauses(GRANT), Self::Pauses(RENEW), Self::All];
        alone.contains(&self)
    }

    /// Whether it pauses threads at some point.
    fn pauses_at_all(self) -> bool {
        let mut points = tenure::failpoints::POINTS.iter();
        points.any(|point| self.pauses(point).is_some())
    }

    /// Pauses of up to two TTLs, which are counted.
    fn set_on(self, pauses: &Arc<AtomicUsize>) {
        for &point in tenure::failpoints::POINTS {
            let Some(rare) = self.pauses(point) else {
                continue;
            };
            // A stalled driver does not make room, nor hand over.
            let longest = if self == Self::Stall { 10 } else { 2 } * TTL;
            let pauses = Arc::clone(pauses);
            let pause = move || {
                if !thread::panicking() && fastrand::u32(..rare) == 0 {
                    pauses.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(longest.mul_f64(fastrand::f64()));
                }
            };
            fail::cfg_callback(point, pause).unwrap();
        }
    }
}

/// Numbers from 0 on, a bit each.
#[derive(Clone, Debug, Default)]
struct Set(Vec<u64>);

impl Set {
    fn add(&mut self, element: usize) {
        let word = element / 64;
        self.0.resize(self.0.len().max(word + 1), 0);
        self.0[word] |= 1 << (element % 64);
    }

    fn has(&self, element: usize) -> bool {
        self.0
            .get(element / 64)
            .is_some_and(|word| word >> (element % 64) & 1 == 1)
    }
}

/// Where a set is stored.
#[derive(Debug)]
enum Resource {
    Unfenced(Mutex<Set>),
    Fenced(Fenced<Set>),
}

impl Resource {
    fn new(fenced: bool) -> Self {
        if fenced {
            Self::Fenced(Fenced::new(Set::default()))
        } else {
            Self::Unfenced(Mutex::default())
        }
    }

    /// A read that a write will follow from: it presents the token too.
    fn read(&self, token: FencingToken) -> Result<Set, StaleToken> {
        match self {
            Self::Unfenced(set) => Ok(set.lock().unwrap().clone()),
            Self::Fenced(set) => set.write(token, |set| set.clone()),
        }
    }

    fn write(&self, token: FencingToken, new: Set) -> Result<(), StaleToken> {
        match self {
            Self::Unfenced(set) => *set.lock().unwrap() = new,
            Self::Fenced(set) => set.write(token, |set| *set = new)?,
        }
        Ok(())
    }

    fn into_set(self) -> Set {
        match self {
            Self::Unfenced(set) => set.into_inner().unwrap(),
            Self::Fenced(set) => set.into_inner(),
        }
    }
}

/// A key's set in a round.
#[derive(Debug)]
struct Shelf {
    resource: Resource,
    next: AtomicUsize,
    acknowledged: Mutex<BTreeSet<usize>>,
}

impl Shelf {
    fn new(fenced: bool) -> Self {
        Self {
            resource: Resource::new(fenced),
            next: AtomicUsize::new(0),
            acknowledged: Mutex::default(),
        }
    }

    /// How many were acknowledged, and how many of these are not there.
    fn count(self) -> (usize, usize) {
        let set = self.resource.into_set();
        let acknowledged = self.acknowledged.into_inner().unwrap();
        let lost = acknowledged
            .iter()
            .filter(|element| !set.has(**element))
            .count();
        (acknowledged.len(), lost)
    }
}

/// Not ready the first time.
struct Yield(bool);

impl Future for Yield {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

/// A lease that is given back with the future that holds it.
struct Held<'a> {
    witness: &'a Witness,
    key: usize,
    lease: Option<Lease<'a>>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            self.witness.give_back(self.key, lease);
        }
    }
}

/// What comes of one resource under one nemesis.
struct Arm {
    nemesis: Nemesis,
    locks: LockManager,
    witness: Witness,
    grants: AtomicUsize,
    refused: AtomicUsize,
    cancelled: AtomicUsize,
    /// What the nemesis has done: threads paused, clocks bent, and the numbers of buckets that there were.
    pauses: Arc<AtomicUsize>,
    warps: AtomicUsize,
    sizes: Mutex<BTreeSet<usize>>,
    /// The latest time that the manager's clock has been seen to say.
    latest: AtomicU64,
}

impl Arm {
    /// Adds an element, and may be dropped at any await.
    async fn add(&self, shelves: &[Shelf], me: u64, random: &mut Rng) {
        let key = random.usize(..KEYS);
        let before = self.witness.before(key);
        let patience = random.u32(..=2 * 8) * MS;
        let granted = match random.u8(..3) {
            0 => self.locks.try_acquire(key as u64, me, TTL),
            1 => self
                .locks
                .acquire(key as u64, me, TTL)
                .wait_timeout(patience),
            _ => self.locks.acquire(key as u64, me, TTL).await,
        };
        let Ok(lease) = granted else {
            return;
        };
        self.witness.granted(&self.locks, key, before, &lease);
        self.grants.fetch_add(1, Ordering::Relaxed);
        let mut held = Held {
            witness: &self.witness,
            key,
            lease: Some(lease),
        };
        if let Some(lease) = &held.lease {
            self.write(&shelves[key], key, lease, random).await;
        }
        if random.u8(..4) == 0 {
            held.lease.take().map(Lease::detach);
        }
    }

    async fn write(&self, place: &Shelf, key: usize, lease: &Lease<'_>, random: &mut Rng) {
        Yield(false).await;
        let Ok(mut set) = place.resource.read(lease.token()) else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return;
        };
        if random.bool()
            && let Ok(until) = lease.renew(TTL)
        {
            self.witness.renewed(key, lease, until);
        }
        Yield(false).await;
        // A collection of garbage, a page from a slow disk.
        if !self.nemesis.comes_before_writes() && random.u8(..4) == 0 {
            thread::sleep((2 * TTL).mul_f64(random.f64()));
        }
        let element = place.next.fetch_add(1, Ordering::Relaxed);
        set.add(element);
        match place.resource.write(lease.token(), set) {
            Ok(()) => _ = place.acknowledged.lock().unwrap().insert(element),
            Err(_) => _ = self.refused.fetch_add(1, Ordering::Relaxed),
        }
        Yield(false).await;
    }

    /// Works until the end, and drops what it does not wait for.
    fn work(&self, shelves: &[Shelf], me: u64, end: Instant) {
        let mut random = Rng::new();
        while Instant::now() < end {
            let mut polls = if self.nemesis.cancels() {
                random.u32(1..8)
            } else {
                u32::MAX
            };
            let mut adding = pin!(self.add(shelves, me, &mut random));
            let mut context = Context::from_waker(Waker::noop());
            while adding.as_mut().poll(&mut context).is_pending() {
                polls -= 1;
                if polls == 0 {
                    self.cancelled.fetch_add(1, Ordering::Relaxed);
                    break;
                }
                thread::sleep(MS / 8);
            }
            self.look_at_clock();
        }
    }

    /// It never goes back, whatever the clock below does.
    fn look_at_clock(&self) {
        let before = self.latest.load(Ordering::Acquire);
        let now = self.locks.now().as_nanos();
        assert!(
            now >= before,
            "the manager's clock falls from {before} to {now}"
        );
        self.latest.fetch_max(now, Ordering::AcqRel);
    }

    fn warp(&self, clock: &Warped, end: Instant) {
        let mut random = Rng::new();
        while Instant::now() < end {
            match random.u8(..3) {
                0 => clock.jump((3 * TTL).mul_f64(random.f64())),
                1 => clock.strobe((3 * TTL).mul_f64(random.f64())),
                _ => clock.stop(),
            }
            self.warps.fetch_add(1, Ordering::Relaxed);
            thread::sleep((2 * TTL).mul_f64(random.f64()));
            clock.go_on();
            thread::sleep(TTL.mul_f64(random.f64()));
        }
    }

    /// Has the table grow and shrink.
    fn crowd(&self, end: Instant) {
        while Instant::now() < end {
            let grant = |key: u64| self.locks.try_acquire(1_000 + key, 9, 20 * TTL);
            let crowd: Vec<_> = (0..1_500).map(grant).collect();
            let mut sizes = self.sizes.lock().unwrap();
            sizes.insert(self.locks.stats().buckets);
            drop(crowd);
            sizes.insert(self.locks.stats().buckets);
            thread::sleep(MS);
        }
    }

    /// A round with sets of its own: how many elements were acknowledged, and how many lost.
    fn round(&self, clock: &Warped, fenced: bool) -> (usize, usize) {
        let shelves: Vec<_> = (0..KEYS).map(|_| Shelf::new(fenced)).collect();
        let end = Instant::now() + ROUND;
        thread::scope(|scope| {
            for me in 0..WORKERS {
                let shelves = &shelves;
                scope.spawn(move || self.work(shelves, me, end));
            }
            if self.nemesis.warps() {
                scope.spawn(|| self.warp(clock, end));
            }
            if self.nemesis.crowds() {
                scope.spawn(|| self.crowd(end));
            }
        });
        let counts = shelves.into_iter().map(Shelf::count);
        counts.fold((0, 0), |(all, lost), (more, more_lost)| {
            (all + more, lost + more_lost)
        })
    }

    /// Whether the nemesis has done all that it is there for.
    fn has_struck(&self) -> bool {
        let count = |of: &AtomicUsize| of.load(Ordering::Relaxed);
        let nemesis = self.nemesis;
        (!nemesis.pauses_at_all() || count(&self.pauses) > 0)
            && (!nemesis.warps() || count(&self.warps) > 0)
            && (!nemesis.cancels() || count(&self.cancelled) > 0)
            && (!nemesis.crowds() || self.sizes.lock().unwrap().len() > 1)
    }

    /// Now that the nemesis has gone.
    fn recover(&self) {
        let patience = Duration::from_secs(20);
        for key in 0..KEYS {
            let granted = self
                .locks
                .acquire(key as u64, 9, TTL)
                .wait_timeout(patience);
            drop(granted.expect("there is nothing in its way"));
        }
        assert!(
            until(patience, || self.locks.is_empty()),
            "{:?}",
            self.locks
        );
        assert_eq!(self.locks.waiting(), 0);
    }
}

/// The clock, to be had by the test as well.
#[derive(Clone, Debug)]
struct Shared(Arc<Warped>);

impl Clock for Shared {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn is_real_time(&self) -> bool {
        true
    }
}

fn set_on(nemesis: Nemesis, fenced: bool) {
    let scenario = FailScenario::setup();
    let clock = Arc::new(Warped::new());
    let locks = LockManager::builder()
        .clock(Shared(Arc::clone(&clock)))
        .build();
    let arm = Arm {
        nemesis,
        locks: locks.unwrap(),
        witness: Witness::new(KEYS),
        grants: AtomicUsize::new(0),
        refused: AtomicUsize::new(0),
        cancelled: AtomicUsize::new(0),
        pauses: Arc::default(),
        warps: AtomicUsize::new(0),
        sizes: Mutex::default(),
        latest: AtomicU64::new(0),
    };
    nemesis.set_on(&arm.pauses);
    let (began, mut acknowledged, mut lost) = (Instant::now(), 0, 0);
    let enough = Duration::from_secs(crate::seconds());
    loop {
        let counts = arm.round(&clock, fenced);
        acknowledged += counts.0;
        lost += counts.1;
        let refused = arm.refused.load(Ordering::Relaxed);
        if fenced {
            assert_eq!(lost, 0, "{nemesis:?}: a fenced resource has lost writes");
        }
        let shown = if fenced { refused > 0 } else { lost > 0 };
        if shown && arm.has_struck() && began.elapsed() >= enough {
            break;
        }
        assert!(
            began.elapsed() < enough + PATIENCE,
            "{nemesis:?} does no harm, or nothing: fenced {fenced}, {} pauses, {} warps, {} sizes",
            arm.pauses.load(Ordering::Relaxed),
            arm.warps.load(Ordering::Relaxed),
            arm.sizes.lock().unwrap().len(),
        );
    }
    scenario.teardown();
    arm.recover();
    let count = |of: &AtomicUsize| of.load(Ordering::Relaxed);
    println!(
        "{nemesis:?}, {}: {} grants, {} expiries, {acknowledged} writes acknowledged, {} stale ones refused, \
         {lost} lost; {} pauses, {} clocks bent, {} sizes of the table, {} operations cancelled, in {:.1?}",
        if fenced { "fenced" } else { "unfenced" },
        count(&arm.grants),
        arm.locks.stats().expired,
        count(&arm.refused),
        count(&arm.pauses),
        count(&arm.warps),
        arm.sizes.lock().unwrap().len(),
        count(&arm.cancelled),
        began.elapsed(),
    );
}

fn on_both(nemesis: Nemesis) {
    set_on(nemesis, false);
    set_on(nemesis, true);
}

#[test]
fn paused_as_a_lease_is_granted() {
    on_both(Nemesis::Pauses(GRANT));
}

#[test]
fn paused_inside_of_a_renewal() {
    on_both(Nemesis::Pauses(RENEW));
}

#[test]
fn paused_as_a_lease_ends() {
    on_both(Nemesis::Pauses(RELEASE));
}

#[test]
fn paused_inside_of_the_sweep() {
    on_both(Nemesis::Pauses(SWEEP));
}

#[test]
fn paused_as_the_table_grows_and_shrinks() {
    on_both(Nemesis::Pauses(GROWTH));
}

#[test]
fn paused_as_a_lease_is_handed_over() {
    on_both(Nemesis::Pauses(QUEUE));
}

#[test]
fn a_driver_that_stalls() {
    on_both(Nemesis::Stall);
}

#[test]
fn a_clock_that_jumps_strobes_and_stops() {
    on_both(Nemesis::Clock);
}

#[test]
fn futures_dropped_at_any_await_and_threads_that_give_up() {
    on_both(Nemesis::Cancel);
}

#[test]
fn all_of_them_together() {
    on_both(Nemesis::All);
}
