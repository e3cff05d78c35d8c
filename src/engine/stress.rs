//! Threads against an engine whose words wrap within seconds: versions every 240 grants of a bucket,
//! eras every 512 ticks, and an array that grows, shrinks and is copied all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::engine::{Acquired, Engine, Entered, Options, Request};
use crate::error::AcquireError;
use crate::key::HashSeed;
use crate::table::{Name, Narrow, Origin};
use crate::timeline::Timeline;
use crate::{Key, ManualClock};

const TICK: u64 = 1_000_000;
const KEYS: usize = 64;
const WORKERS: usize = 3;
const ROUNDS: usize = if cfg!(debug_assertions) {
    30_000
} else {
    400_000
};

fn engine(clock: &ManualClock) -> Arc<Engine<Narrow>> {
    let time = Timeline::new(
        Arc::new(clock.clone()),
        TICK,
        Duration::from_nanos(1),
        Duration::from_secs(10),
    );
    Engine::new(Options {
        seed: HashSeed::new(3),
        time,
        buckets: 2,
        max_leases: None,
        max_waiters_per_key: usize::MAX,
        max_waiters: usize::MAX,
        deadlock_depth: 0,
        introspection: false,
        origin: Origin::default(),
    })
    .expect("memory")
}

fn next(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random
}

struct World {
    engine: Arc<Engine<Narrow>>,
    clock: ManualClock,
    /// The highest token seen of each key.
    highest: Vec<AtomicU64>,
    /// Who is inside each key, by token: only for leases that can't expire.
    inside: Vec<AtomicU64>,
    granted: AtomicUsize,
    /// Rounds that each worker has done; `usize::MAX` at its end.
    rounds: [AtomicUsize; WORKERS],
}

impl World {
    fn grant(&self, key: usize, ticks: u64) -> Result<Acquired, AcquireError> {
        let ttl = Duration::from_nanos(ticks * TICK);
        let request = Request {
            key: Key::from_raw(key as u128),
            owner: 1,
            ttl,
            at_least: 0,
        };
        self.engine
            .grant(request)
            .or_else(|begun| self.engine.grant_more(begun, &request))
            .map_err(AcquireError::from)
    }

    /// Waits in the queue, or leaves it after a while.
    fn wait(&self, key: usize, ticks: u64, leaves: bool) -> Option<Acquired> {
        let request = Request {
            key: Key::from_raw(key as u128),
            owner: 1,
            ttl: Duration::from_nanos(ticks * TICK),
            at_least: 0,
        };
        let waiter = match self
            .engine
            .enter(&crate::wish::Wish::plain(request), true)
            .expect("there is room")
        {
            Entered::Granted(acquired) => return Some(acquired),
            Entered::Waiting(waiter) => waiter,
        };
        for looks in 0.. {
            if let Some(granted) = waiter.take() {
                return Some(granted.expect("there is room"));
            }
            if leaves && looks == 20 {
                self.engine.leave(&waiter);
                break;
            }
            std::thread::yield_now();
        }
        None
    }

    fn name(&self, key: usize, acquired: &Acquired) -> Name {
        self.engine.name(Key::from_raw(key as u128), acquired.token)
    }

    /// One lease that nobody lets expire: granted, renewed, released.
    fn hold(&self, key: usize, random: &mut u64) {
        let before = self.highest[key].load(Ordering::SeqCst);
        let granted = match next(random) % 4 {
            0 => self.wait(key, 400, next(random).is_multiple_of(3)),
            _ => self.grant(key, 400).ok(),
        };
        let Some(granted) = granted else {
            return;
        };
        self.granted.fetch_add(1, Ordering::Relaxed);
        assert!(
            granted.token > before,
            "I2: {} after {before}",
            granted.token
        );
        self.highest[key].fetch_max(granted.token, Ordering::SeqCst);
        let other = self.inside[key].swap(granted.token, Ordering::SeqCst);
        assert_eq!(other, 0, "I1: key {key} had a holder");
        let name = self.name(key, &granted);
        let (mut handle, mut until) = (granted.handle, granted.deadline);
        for _ in 0..next(random) % 3 {
            let now = self.engine.time.now();
            let deadline = self.engine.time.tick_of(now) + 400;
            let wanted = (self.engine.time.tick_of(now), deadline);
            let (key, token) = (name.key, name.token);
            let renewed = self
                .engine
                .renew_as_seen(handle, key, token, &wanted)
                .or_else(|| self.engine.renew_fast(handle, &name, &wanted))
                .map_or_else(|| self.engine.renew_by_key(&name, deadline, now), Ok);
            (until, handle) = renewed.expect("I3: ended early");
        }
        let inside = self.inside[key].swap(0, Ordering::SeqCst);
        assert_eq!(inside, granted.token, "I1: somebody else came in");
        let released = match next(random) % 2 {
            0 => self.engine.release(handle, until, name.key, name.token),
            _ => self.engine.release_by_key(&name, self.engine.time.now()),
        };
        assert_eq!(released, Ok(()), "I3: ended early");
    }

    /// One lease that is left to expire, or revoked.
    fn abandon(&self, key: usize, random: &mut u64) {
        let before = self.highest[key].load(Ordering::SeqCst);
        match self.grant(key, 1 + next(random) % 20) {
            Ok(granted) => {
                self.granted.fetch_add(1, Ordering::Relaxed);
                assert!(
                    granted.token > before,
                    "I2: {} after {before}",
                    granted.token
                );
                self.highest[key].fetch_max(granted.token, Ordering::SeqCst);
            }
            Err(AcquireError::Held { .. }) if next(random).is_multiple_of(4) => {
                let now = self.engine.time.now();
                let _ = self.engine.revoke(Key::from_raw(key as u128), now);
            }
            Err(AcquireError::Held { .. }) => {}
            Err(other) => panic!("{other:?}"),
        }
    }

    /// Many leases at once, so that the array grows, and shrinks after.
    fn crowd(&self, base: usize, random: &mut u64) {
        let count = next(random) as usize % 600;
        let held: Vec<_> = (0..count)
            .filter_map(|i| {
                let key = 1_000 + base * 1_000 + i;
                Some((key, self.grant(key, 400).ok()?))
            })
            .collect();
        assert_eq!(held.len(), count, "a key of this thread alone was held");
        for (key, granted) in held {
            let key = Key::from_raw(key as u128);
            let released =
                self.engine
                    .release(granted.handle, granted.deadline, key, granted.token);
            assert_eq!(released, Ok(()), "I3");
        }
    }
}

#[test]
fn nothing_is_lost_while_every_word_wraps_and_the_array_changes_size() {
    let clock = ManualClock::new();
    let world = World {
        engine: engine(&clock),
        clock,
        highest: (0..KEYS).map(|_| AtomicU64::new(0)).collect(),
        inside: (0..KEYS).map(|_| AtomicU64::new(0)).collect(),
        granted: AtomicUsize::new(0),
        rounds: [const { AtomicUsize::new(0) }; WORKERS],
    };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let world = &world;
                scope.spawn(move || {
                    let mut random = 0x9e37_79b9_7f4a_7c15 ^ (worker as u64 + 1);
                    for round in 0..ROUNDS {
                        let key = next(&mut random) as usize % (KEYS / 2);
                        match next(&mut random) % 8 {
                            0..=4 => world.hold(key, &mut random),
                            _ => world.abandon(KEYS / 2 + key, &mut random),
                        }
                        if round % 512 == 0 {
                            world.crowd(worker, &mut random);
                        }
                        world.rounds[worker].store(round + 1, Ordering::Relaxed);
                    }
                    world.rounds[worker].store(usize::MAX, Ordering::Relaxed);
                })
            })
            .collect();
        // The clock goes on by at most 100 ticks while any worker is in one round, so that no lease
        // of 400 ticks expires between two of its holder's steps.
        let (world, done) = (&world, &done);
        let driver = scope.spawn(move || {
            let rounds = || {
                world
                    .rounds
                    .each_ref()
                    .map(|rounds| rounds.load(Ordering::Relaxed))
            };
            let (mut mark, mut ticks, mut seen) = (rounds(), 0, 0);
            while !done.load(Ordering::Relaxed) {
                let now = rounds();
                if now
                    .iter()
                    .zip(&mark)
                    .all(|(now, mark)| now != mark || *now == usize::MAX)
                {
                    (mark, ticks) = (now, 0);
                }
                let granted = world.granted.load(Ordering::Relaxed);
                if granted > seen + 200 && ticks < 100 {
                    (seen, ticks) = (granted, ticks + 1);
                    world.clock.advance(Duration::from_nanos(TICK));
                }
                world.engine.advance();
                std::thread::yield_now();
            }
        });
        for worker in workers {
            worker.join().expect("a worker failed");
        }
        done.store(true, Ordering::Relaxed);
        driver.join().expect("the driver failed");
    });
    world.clock.advance(Duration::from_nanos(500 * TICK));
    world.engine.advance();
    while world.engine.next_due() == Some(0) {
        world.engine.advance();
    }
    assert_eq!(
        world.engine.totals().leases,
        0,
        "a lease was lost or ended twice"
    );
    assert_eq!(world.engine.waiting(), 0);
    assert!(world.engine.totals().expired > 0 && world.engine.totals().revoked > 0);
    assert!(
        world.engine.memory() < 4 << 20,
        "I9: {} bytes",
        world.engine.memory()
    );
}
