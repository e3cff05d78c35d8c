//! One thread of the churn: whom it asks for what, and when it pauses or crashes.
//!
//! A worker plays many holders. One that pauses, or has crashed, is put aside with its lease and
//! taken up again when its time has come, so that a single thread can have thousands of stale
//! holders out. In between the worker sleeps for part of the time: a manager whose every core is
//! taken could not expire anything on time, and nobody runs one like that.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tenure::{AcquireError, OwnerId};

use super::fill::Mass;
use super::holding::{Holding, Stage};
use super::run::Progress;
use super::tally::{Tally, Violation};

/// How long a worker works before it sleeps.
const SLICE: Duration = Duration::from_micros(500);
/// The most holders that one worker has put aside.
const MAX_ASIDE: usize = 4096;
/// One slice in so many revokes somebody's lease.
const REVOKE_EVERY: u32 = 32;
/// The most that a critical section spins between its load and its store.
const MAX_SPINS: u32 = 64;

/// What sets one worker apart from another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Character {
    pub(super) index: u32,
    pub(super) workers: u32,
    pub(super) seed: u64,
    pub(super) pause: Duration,
    /// Visits between two looks at the clock for the end of a slice.
    pub(super) batch: u32,
}

/// A holder that is put aside, and what it does when it is taken up again.
#[derive(Debug)]
struct Aside<'s> {
    holding: Holding<'s>,
    then: Then,
}

#[derive(Debug)]
enum Then {
    /// Renew so often again, half a TTL apart; then go on as after a pause.
    Renew { times: u32, seen: u64 },
    /// Write what follows from what it read before the pause, and release.
    Write { seen: u64 },
    /// Nothing: it has crashed. Its lease must be over by now.
    Inquest,
}

/// One worker of the churn.
#[derive(Debug)]
pub(super) struct Worker<'s> {
    stage: &'s Stage,
    mass: Option<&'s Mass>,
    character: Character,
    owner: OwnerId,
    rng: SmallRng,
    /// By the moment when they are due; the number keeps equal moments apart.
    aside: BTreeMap<(Instant, u64), Aside<'s>>,
    put_aside: u64,
    tally: Tally,
}

impl<'s> Worker<'s> {
    pub(super) fn new(stage: &'s Stage, mass: Option<&'s Mass>, character: Character) -> Self {
        let index = u64::from(character.index);
        Self {
            stage,
            mass,
            character,
            owner: OwnerId(index),
            rng: SmallRng::seed_from_u64(character.seed.wrapping_add(index)),
            aside: BTreeMap::new(),
            put_aside: 0,
            tally: Tally::new(),
        }
    }

    /// Works until told to stop, then brings everything it holds to an end.
    pub(super) fn run(mut self, stop: &AtomicBool, progress: &Progress) -> Tally {
        let rest = self.rest();
        while !stop.load(Relaxed) {
            let begun = Instant::now();
            self.take_up_until(begun);
            while begun.elapsed() < SLICE {
                for _ in 0..self.character.batch {
                    self.visit();
                }
            }
            if self.rng.random_ratio(1, REVOKE_EVERY) {
                self.revoke();
            }
            progress.publish(self.character.index, &self.tally);
            thread::sleep(rest);
        }
        self.finish();
        progress.publish(self.character.index, &self.tally);
        self.tally
    }

    /// Sleep between slices, such that all workers together take at most 60 % of the cores.
    fn rest(&self) -> Duration {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let cores = u32::try_from(cores).unwrap_or(u32::MAX);
        let share = (0.6 * f64::from(cores) / f64::from(self.character.workers)).min(0.9);
        SLICE.mul_f64((1.0 - share) / share)
    }

    /// Holders aside at once: so many that about half of the keys stay free for the others.
    fn max_aside(&self) -> usize {
        let share = self.stage.checked.len() / (2 * self.character.workers as usize);
        share.clamp(1, MAX_ASIDE)
    }

    /// Asks for a random key, and lives through one lease if it is granted.
    fn visit(&mut self) {
        if let Some(mass) = self.mass
            && self.rng.random()
        {
            mass.visit(self.character, self.owner, &mut self.rng, &mut self.tally);
            return;
        }
        let Some(mut holding) = self.acquire() else {
            return;
        };
        let fate = self.rng.random_range(0..256);
        if fate < 6 && self.aside.len() < self.max_aside() {
            self.part_with(holding, fate);
            return;
        }
        if fate % 8 == 0 {
            holding.detach();
        }
        holding.critical_section(self.rng.random_range(0..MAX_SPINS), &mut self.tally);
        if let Some(seen) = holding.read(&mut self.tally) {
            if fate % 4 == 0 {
                holding.renew(&mut self.tally);
            }
            holding.write(seen, &mut self.tally);
        }
        holding.release(&mut self.tally);
    }

    fn acquire(&mut self) -> Option<Holding<'s>> {
        let stage = self.stage;
        let key = self.rng.random_range(0..stage.checked.len() as u32);
        let before = stage.checked[key as usize].before();
        let asked = stage.ask();
        let answer = stage.manager.try_acquire(key, self.owner, stage.ttl);
        let answered = Instant::now();
        let nanos = (answered - asked.real).as_nanos() as u64;
        self.tally.latency.saturating_record(nanos.max(1));
        match answer {
            Ok(guard) => {
                self.tally.grants += 1;
                let times = (asked, answered);
                let tally = &mut self.tally;
                Some(Holding::new(stage, key, guard, before, times, tally))
            }
            Err(AcquireError::Held { token, .. }) => {
                self.tally.refusals += 1;
                if token.get() < before.highest {
                    self.tally.violate(Violation::TokenRegression, || {
                        let highest = before.highest;
                        format!("key {key}: held with token {token} after {highest} was granted")
                    });
                }
                None
            }
            Err(error) => {
                self.tally.violate(Violation::UnexpectedError, || {
                    format!("acquiring key {key}: {error}")
                });
                None
            }
        }
    }

    /// Pauses a holder in the middle of its work, or lets it crash there.
    fn part_with(&mut self, mut holding: Holding<'s>, fate: u32) {
        let Some(seen) = holding.read(&mut self.tally) else {
            holding.release(&mut self.tally);
            return;
        };
        let ttl = self.stage.ttl;
        if fate < 2 {
            self.tally.crashes += 1;
            if fate == 0 {
                holding.forget();
            } else {
                holding.detach();
            }
            let due = holding.until() + self.rng.random_range(ttl / 4..=ttl / 2);
            self.put_aside(due, holding, Then::Inquest);
            return;
        }
        self.tally.pauses += 1;
        if fate < 4 {
            holding.detach();
        }
        let now = Instant::now();
        if fate.is_multiple_of(2) {
            let times = self.rng.random_range(1..=4);
            self.put_aside(now + ttl / 2, holding, Then::Renew { times, seen });
        } else {
            let due = now + self.pause();
            self.put_aside(due, holding, Then::Write { seen });
        }
    }

    fn pause(&mut self) -> Duration {
        self.rng.random_range(Duration::ZERO..=self.character.pause)
    }

    fn put_aside(&mut self, due: Instant, holding: Holding<'s>, then: Then) {
        self.put_aside += 1;
        self.aside
            .insert((due, self.put_aside), Aside { holding, then });
    }

    /// Takes up every holder that is due by `now`.
    fn take_up_until(&mut self, now: Instant) {
        while let Some(entry) = self.aside.first_entry()
            && entry.key().0 <= now
        {
            let aside = entry.remove();
            self.take_up(aside);
        }
    }

    fn take_up(&mut self, Aside { mut holding, then }: Aside<'s>) {
        let tally = &mut self.tally;
        match then {
            Then::Renew { times, seen } => {
                holding.renew(tally);
                let now = Instant::now();
                if times > 1 {
                    let then = Then::Renew {
                        times: times - 1,
                        seen,
                    };
                    self.put_aside(now + self.stage.ttl / 2, holding, then);
                } else {
                    let due = now + self.pause();
                    self.put_aside(due, holding, Then::Write { seen });
                }
            }
            Then::Write { seen } => {
                let spins = self.rng.random_range(0..MAX_SPINS);
                holding.critical_section(spins, tally);
                holding.write(seen, tally);
                holding.release(tally);
            }
            Then::Inquest => {
                // Asks only: whoever crashed can't release, and the manager must not need it to.
                holding.is_live(tally);
            }
        }
    }

    /// Ends somebody's lease, as an operator does.
    fn revoke(&mut self) {
        let key = self.rng.random_range(0..self.stage.checked.len() as u32);
        self.stage.revoke(key, &mut self.tally);
    }

    /// Cuts all pauses short; waits only for the leases of the crashed.
    fn finish(&mut self) {
        while let Some(((due, _), aside)) = self.aside.pop_first() {
            if matches!(aside.then, Then::Inquest) {
                thread::sleep(due.saturating_duration_since(Instant::now()));
                self.take_up(aside);
            } else if let Then::Renew { seen, .. } | Then::Write { seen } = aside.then {
                let then = Then::Write { seen };
                self.take_up(Aside { then, ..aside });
            }
        }
    }
}
