//! Waves of plain leases: thousands at once, and then none, for as long as the soak lasts.
//!
//! Half of the keys of a wave are new, and never come back after the next one; the others were in the last
//! wave, and have been idle while the table shrank and grew again: their tokens must have risen all the
//! same. Nobody else asks for these keys, so every grant must succeed. Each wave is a thread of its own,
//! as in a program that starts one for each request.

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tenure::{FencingToken, Lease, ReleaseError, RenewError, Timestamp};

use super::pulse::{Kind, Pulse};
use crate::stress::modes::World;
use crate::stress::run;
use crate::stress::tally::{Tally, Violation};

/// Leases of a wave: the table grows to sixteen times its least size.
const WAVE: usize = 4096;
/// Leases that are granted or ended in one go, before a rest.
const AT_ONCE: usize = 64;
const REST: Duration = Duration::from_millis(1);
/// What the leases that nobody ends are given.
const TTL: std::ops::Range<Duration> = Duration::from_millis(300)..Duration::from_secs(1);
/// Between two waves, in which the table shrinks.
const EBB: Duration = Duration::from_millis(500);
/// The workers' keys are below.
const FIRST_KEY: u64 = 1 << 32;

/// The waves.
#[derive(Debug)]
pub(in crate::stress) struct Tide<'w> {
    world: &'w World,
    pulse: &'w Pulse,
    rng: SmallRng,
    next_key: u64,
    /// The keys that come back, with their last tokens.
    known: VecDeque<(u64, FencingToken)>,
    tally: Tally,
}

/// One lease of a wave.
#[derive(Debug)]
struct Held<'w> {
    key: u64,
    lease: Lease<'w>,
}

impl<'w> Tide<'w> {
    pub(in crate::stress) fn new(world: &'w World, pulse: &'w Pulse, seed: u64) -> Self {
        Self {
            world,
            pulse,
            rng: SmallRng::seed_from_u64(seed.rotate_left(32)),
            next_key: FIRST_KEY,
            known: VecDeque::with_capacity(WAVE),
            tally: Tally::new(),
        }
    }

    /// Makes waves until the run is over.
    pub(in crate::stress) fn run(mut self) -> Tally {
        let mut tally = Tally::new();
        while !self.world.is_stopping() {
            let ended = thread::scope(|scope| scope.spawn(|| self.wave()).join());
            if ended.is_err() {
                tally.merge(run::panicked());
                break;
            }
            thread::sleep(EBB);
        }
        tally.merge(self.tally);
        tally
    }

    fn wave(&mut self) {
        let mut held = Vec::with_capacity(WAVE);
        let mut last = Timestamp::default();
        // What is known is from the wave before: all of it is over.
        let mut returning = self.known.len().min(WAVE / 2);
        self.known.truncate(returning);
        while held.len() < WAVE {
            if held.len() % AT_ONCE == 0 {
                thread::sleep(REST);
            }
            let known = if returning > 0 {
                returning -= 1;
                self.known.pop_front()
            } else {
                None
            };
            let Some(granted) = self.grant(known) else {
                return;
            };
            last = last.max(granted.lease.deadline());
            held.push(granted);
        }
        for (number, Held { key, lease }) in held.into_iter().enumerate() {
            if number % AT_ONCE == 0 {
                thread::sleep(REST);
            }
            // New keys first: they are to come back once.
            self.known.push_front((key, lease.token()));
            match number % 4 {
                0 => self.release(key, lease.deadline(), || lease.release()),
                1 => {
                    let deadline = lease.deadline();
                    let token = lease.detach();
                    let manager = &self.world.stage.manager;
                    self.release(key, deadline, || manager.release(key, token));
                }
                2 => last = last.max(self.renew(key, lease)),
                _ => drop(lease.detach()),
            }
        }
        // Nobody may have these when the next wave comes.
        while self.world.stage.manager.now() < last {
            thread::sleep(REST);
        }
    }

    /// Acquires a key: one that was there before, or else a new one. `None` if that is refused.
    fn grant(&mut self, known: Option<(u64, FencingToken)>) -> Option<Held<'w>> {
        let (key, before) = known.map_or((self.next_key, None), |(key, token)| (key, Some(token)));
        self.next_key += u64::from(known.is_none());
        let ttl = self.rng.random_range(TTL);
        let owner = self.world.owner();
        let asked = Instant::now();
        let answer = self.world.stage.manager.try_acquire(key, owner, ttl);
        self.pulse.record(Kind::TryAcquire, asked.elapsed());
        match answer {
            Ok(lease) => {
                self.tally.grants += 1;
                if before.is_some_and(|before| lease.token() <= before) {
                    self.tally.violate(Violation::TokenRegression, || {
                        format!("key {key}: granted {} after {before:?}", lease.token())
                    });
                }
                Some(Held { key, lease })
            }
            Err(error) => {
                self.tally.violate(Violation::UnexpectedError, || {
                    format!("acquiring key {key}, which nobody has: {error}")
                });
                None
            }
        }
    }

    fn release(
        &mut self,
        key: u64,
        deadline: Timestamp,
        release: impl FnOnce() -> Result<(), ReleaseError>,
    ) {
        let begun = self.world.stage.manager.now();
        let asked = Instant::now();
        let answer = release();
        self.pulse.record(Kind::Release, asked.elapsed());
        match answer {
            Ok(()) => {
                self.tally.releases += 1;
                self.not_after(key, begun, deadline);
            }
            Err(ReleaseError::Expired { .. }) => {
                self.tally.late_releases += 1;
                self.not_before(key, deadline);
            }
            Err(error) => self.unexpected(key, &error),
        }
    }

    /// Renews a lease and leaves it to expire; the deadline that it has then.
    fn renew(&mut self, key: u64, lease: Lease<'w>) -> Timestamp {
        let ttl = self.rng.random_range(TTL);
        let deadline = lease.deadline();
        let begun = self.world.stage.manager.now();
        let asked = Instant::now();
        let answer = lease.renew(ttl);
        self.pulse.record(Kind::Renew, asked.elapsed());
        lease.detach();
        match answer {
            Ok(renewed) => {
                self.tally.renewals += 1;
                self.not_after(key, begun, deadline);
                return renewed;
            }
            Err(RenewError::Expired { .. }) => self.not_before(key, deadline),
            Err(error) => self.unexpected(key, &error),
        }
        deadline
    }

    /// An operation that began at `begun` has succeeded.
    fn not_after(&mut self, key: u64, begun: Timestamp, deadline: Timestamp) {
        if begun >= deadline {
            self.tally.violate(Violation::Resurrection, || {
                format!("key {key}: alive past its deadline")
            });
        }
    }

    /// An operation has just found that the lease is over.
    fn not_before(&mut self, key: u64, deadline: Timestamp) {
        if self.world.stage.manager.now() < deadline {
            self.tally.violate(Violation::EarlyExpiry, || {
                format!("key {key}: over before its deadline")
            });
        }
    }

    fn unexpected(&mut self, key: u64, error: &dyn std::fmt::Display) {
        self.tally.violate(Violation::UnexpectedError, || {
            format!("key {key} of the tide: {error}")
        });
    }
}
