//! What is done to every resource: one paused writer, and a crowd of them.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use tenure::resources::ResourceError;
use tenure::{FencingToken, LockManager, OwnerId, StaleToken};

const KEY: &str = "account/7";
const A: OwnerId = OwnerId(1);
const B: OwnerId = OwnerId(2);
const OPENING_BALANCE: u64 = 100;

/// How writers use a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// As the recipe says.
    Fenced,
    /// As one would without a recipe: read, then write. Whatever the token is, it is not looked at.
    Unfenced,
}

/// One writer's connection to a number that is stored somewhere.
pub(crate) trait Number {
    fn read(&mut self, way: Way, token: FencingToken) -> Result<u64, StaleToken>;
    fn write(&mut self, way: Way, token: FencingToken, new: u64) -> Result<(), StaleToken>;
}

/// The refusal in an answer of this crate's functions; everything else fails the test.
pub(crate) fn stale<T, E: Debug>(answer: Result<T, ResourceError<E>>) -> Result<T, StaleToken> {
    answer.map_err(|error| {
        error
            .stale()
            .unwrap_or_else(|| panic!("the resource failed: {error:?}"))
    })
}

/// The number in a text, as most of these resources store it; 0 if nothing is stored.
pub(crate) fn number(text: Option<impl AsRef<[u8]>>) -> u64 {
    text.map_or(0, |text| {
        let text = str::from_utf8(text.as_ref()).expect("digits");
        text.parse().expect("a number")
    })
}

/// A reads, is paused past its lease, and writes what it computed before; B was there meanwhile.
///
/// `begin` makes a new number for each telling and says how writers connect to it.
pub(crate) fn a_paused_writer<N: Number, C: Fn() -> N>(begin: impl Fn(Way) -> C) {
    let (kept, late) = tell(Way::Unfenced, &begin(Way::Unfenced));
    assert_eq!(late, Ok(()), "without a check the late write is accepted");
    assert_eq!(
        kept,
        OPENING_BALANCE + 10,
        "without a check B's 25 should have been lost: this shows nothing"
    );

    let (kept, late) = tell(Way::Fenced, &begin(Way::Fenced));
    let refusal = late.expect_err("A's late write was accepted (I6)");
    assert!(refusal.presented < refusal.highest, "{refusal:?}");
    assert_eq!(kept, OPENING_BALANCE + 25, "B's write was lost (I6)");
}

fn tell<N: Number>(way: Way, connect: &impl Fn() -> N) -> (u64, Result<(), StaleToken>) {
    let ttl = Duration::from_millis(40);
    let manager = LockManager::new();
    let (mut a, mut b) = (connect(), connect());

    // B is connected before: so that it finds its way to the resource within its lease, below.
    let lease = manager
        .try_acquire(KEY, A, Duration::from_secs(10))
        .unwrap();
    a.write(way, lease.token(), OPENING_BALANCE).unwrap();
    b.read(way, lease.token()).unwrap();
    lease.release().unwrap();

    let lease_of_a = manager.try_acquire(KEY, A, ttl).unwrap();
    let seen_by_a = a.read(way, lease_of_a.token()).unwrap();
    let mut pause = Duration::ZERO;
    while lease_of_a.is_live() {
        pause += Duration::from_millis(10);
        thread::sleep(Duration::from_millis(10));
    }

    // Long: whether B itself is in time is not what this is about.
    let lease_of_b = manager
        .try_acquire(KEY, B, Duration::from_secs(10))
        .unwrap();
    assert!(lease_of_b.token() > lease_of_a.token(), "I2");
    let seen_by_b = b.read(way, lease_of_b.token()).unwrap();
    assert_eq!(seen_by_b, OPENING_BALANCE);
    // Once in between, when B has read and not yet written: its read must have raised the fence.
    let early = a.write(way, lease_of_a.token(), seen_by_a + 10);
    assert_eq!(early.is_err(), way == Way::Fenced, "after {pause:?}");
    b.write(way, lease_of_b.token(), seen_by_b + 25).unwrap();
    let late = a.write(way, lease_of_a.token(), seen_by_a + 10);
    // The same holder may come back.
    if way == Way::Fenced {
        b.write(way, lease_of_b.token(), seen_by_b + 25).unwrap();
    }
    (b.read(way, lease_of_b.token()).unwrap(), late)
}

/// Pauses of many lengths, short leases, and one counter: what comes of it.
#[derive(Debug)]
pub(crate) struct Crowd {
    pub(crate) accepted: u64,
    pub(crate) rejected: u64,
    pub(crate) kept: u64,
}

const WRITERS: u64 = 4;
/// The shortest lease of a crowd. On a slow disk or a slow machine it is longer: a lease that is over before
/// anything could be done under it would let nobody write.
const SHORTEST: Duration = Duration::from_millis(4);
const LONGEST: Duration = Duration::from_millis(100);
/// So many times what one holder's work takes when it is alone.
const LEASE_PER_WORK: u32 = 4;
/// No crowd takes that long, on any machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Writers add one, again and again, and are often paused for longer than their leases.
pub(crate) fn a_crowd_of_writers<N: Number, C: Fn() -> N + Sync>(begin: impl Fn(Way) -> C) {
    // Until enough has happened, however fast the resource is.
    let crowd = run(Way::Unfenced, &begin(Way::Unfenced), |crowd| {
        crowd.accepted >= 50
    });
    assert!(
        crowd.kept < crowd.accepted,
        "without a check writes should have been lost: {crowd:?}"
    );

    let crowd = run(Way::Fenced, &begin(Way::Fenced), |crowd| {
        crowd.accepted >= 100 && crowd.rejected >= 25
    });
    assert_eq!(
        crowd.kept, crowd.accepted,
        "lost or repeated (I6): {crowd:?}"
    );
}

fn run<N: Number>(
    way: Way,
    connect: &(impl Fn() -> N + Sync),
    enough: impl Fn(&Crowd) -> bool,
) -> Crowd {
    let manager = LockManager::new();
    let (accepted, rejected) = (AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    let ttl = {
        let lease = manager.try_acquire(KEY, A, PATIENCE).unwrap();
        let mut number = connect();
        let mut works = [Duration::ZERO; 5];
        for work in &mut works {
            let begin = Instant::now();
            add_one(&mut number, way, lease.token(), || ()).unwrap();
            *work = begin.elapsed();
            accepted.fetch_add(1, Ordering::SeqCst);
        }
        works.sort_unstable();
        (works[2] * LEASE_PER_WORK).clamp(SHORTEST, LONGEST)
    };
    let count = |kept| Crowd {
        accepted: accepted.load(Ordering::SeqCst),
        rejected: rejected.load(Ordering::SeqCst),
        kept,
    };
    thread::scope(|scope| {
        let spawn = |writer| {
            let (manager, stop) = (&manager, &stop);
            let (accepted, rejected) = (&accepted, &rejected);
            scope.spawn(move || {
                let mut number = connect();
                let mut dice = Dice(writer + 1);
                while !stop.load(Ordering::SeqCst) {
                    let Ok(lease) = manager.try_acquire(KEY, OwnerId(writer), ttl) else {
                        thread::sleep(Duration::from_micros(200 + dice.below(400)));
                        continue;
                    };
                    let pause = || {
                        // Every third may outlast the lease, and some by far.
                        if dice.below(3) == 0 {
                            let longest = u64::try_from(3 * ttl.as_micros()).unwrap();
                            thread::sleep(Duration::from_micros(dice.below(longest)));
                        }
                    };
                    match add_one(&mut number, way, lease.token(), pause) {
                        Ok(()) => accepted.fetch_add(1, Ordering::SeqCst),
                        Err(_) => rejected.fetch_add(1, Ordering::SeqCst),
                    };
                }
            })
        };
        let writers: Vec<_> = (0..WRITERS).map(spawn).collect();
        let begin = Instant::now();
        // A writer that has ended has failed, and the scope says so.
        while !enough(&count(0)) && !writers.iter().any(ScopedJoinHandle::is_finished) {
            thread::sleep(Duration::from_millis(5));
            if begin.elapsed() > PATIENCE {
                stop.store(true, Ordering::SeqCst);
                panic!("{way:?}: {:?} after {PATIENCE:?}", count(0));
            }
        }
        stop.store(true, Ordering::SeqCst);
    });
    // The last token of all: whoever comes after has nothing to fear.
    let last = manager.try_acquire(KEY, A, Duration::from_secs(60));
    let last = last.unwrap_or_else(|_| {
        // Left over by a writer that was paused as everything ended.
        thread::sleep(3 * ttl);
        manager
            .try_acquire(KEY, A, Duration::from_secs(60))
            .unwrap()
    });
    count(connect().read(way, last.token()).unwrap())
}

fn add_one(
    number: &mut impl Number,
    way: Way,
    token: FencingToken,
    mut pause: impl FnMut(),
) -> Result<(), StaleToken> {
    pause();
    let seen = number.read(way, token)?;
    pause();
    number.write(way, token, seen + 1)
}

/// Xorshift: the pauses need not be good random numbers, only many different ones.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}
