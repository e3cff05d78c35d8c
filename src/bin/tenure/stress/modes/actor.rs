//! One worker, and how it waits and gives up.

use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::seq::index;
use rand::{Rng, SeedableRng};
use tenure::{Acquire, AcquireError, Lease, OwnerId};

use super::{Part, World, mingled, multi, sessions, single};
use crate::stress::args::TICK;
use crate::stress::key::Before;
use crate::stress::occupancy::{Company, Stay};
use crate::stress::tally::{Tally, Violation};
use crate::stress::tasks::Host;
use crate::stress::waiting::{Wait, Waitable};
use crate::stress::watchdog::Waiter;

/// All workers together rest so long, on average, between two visits to the manager: what leaves the
/// manager's own thread its share of the cores.
const REST: Duration = Duration::from_micros(100);
/// One visit in so many revokes somebody's lease.
const REVOKE_EVERY: u32 = 48;
/// Half of the visits go to so small a part of the keys, so that there are queues however many there are.
const HOT_PART: u32 = 8;
/// Who pauses looks up so often whether the run is over.
const PAUSE_AT_ONCE: Duration = Duration::from_millis(50);
/// A wait that is to be given up at once is given up after so many turns of a loop at most.
const MAX_SPINS: u32 = 20_000;

/// What is known of an acquisition that may have to wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask<'a> {
    /// The key, if it is one.
    pub(super) key: Option<u32>,
    /// Whether it takes its turn like others.
    pub(super) in_order: bool,
    /// The owner, if only this acquisition has it.
    pub(super) owner: Option<OwnerId>,
    /// What was known before of several keys that are asked for at once.
    pub(super) set: &'a [(u32, Before)],
}

impl Ask<'_> {
    /// How many leases it asks for, and so waits for.
    fn leases(&self) -> u64 {
        self.set.len().max(1) as u64
    }

    /// How often it may have had to wait until now: once for each lease, and so again whenever one of
    /// those that it had was revoked.
    fn most_waits(&self, world: &World) -> u32 {
        let revoked = |&(key, before): &(u32, Before)| {
            world.stage.checked[key as usize].revocations_since(before.revocations)
        };
        let rounds = 1 + self.set.iter().map(revoked).sum::<u64>();
        u32::try_from(self.leases() * rounds).unwrap_or(u32::MAX)
    }
}

/// What came of it.
#[derive(Debug)]
pub(super) enum Waited<T> {
    Granted(T),
    Refused(AcquireError),
    GivenUp,
}

/// One worker.
#[derive(Debug)]
pub(super) struct Actor<'w> {
    pub(super) world: &'w World,
    pub(super) rng: SmallRng,
    pub(super) tally: Tally,
    pub(super) host: Host,
    part: Part,
    keys: Range<u32>,
    index: u32,
}

impl<'w> Actor<'w> {
    pub(super) fn new(
        world: &'w World,
        part: Part,
        keys: Range<u32>,
        host: Host,
        index: u32,
        seed: u64,
    ) -> Self {
        Self {
            world,
            rng: SmallRng::seed_from_u64(seed.wrapping_add(index.into())),
            tally: Tally::new(),
            host,
            part,
            keys,
            index,
        }
    }

    /// Works until the run is over.
    pub(super) async fn run(mut self) -> Tally {
        let rest = 2 * REST * self.world.progress.workers();
        while !self.world.is_stopping() {
            match self.part {
                part @ (Part::Exclusive | Part::Shared | Part::Semaphore) => {
                    single::visit(&mut self, part).await;
                }
                Part::Sessions => sessions::visit(&mut self).await,
                Part::Multi => multi::visit(&mut self).await,
                Part::Mingled => mingled::visit(&mut self).await,
            }
            if self.rng.random_ratio(1, REVOKE_EVERY) {
                let key = self.pick();
                self.world.stage.revoke(key, &mut self.tally);
            }
            self.world.progress.publish(self.index, &self.tally);
            self.sleep_up_to(rest).await;
            while self.world.is_quiet() && !self.world.is_stopping() {
                self.host.sleep(TICK).await;
            }
        }
        self.tally
    }

    /// One of its keys.
    pub(super) fn pick(&mut self) -> u32 {
        let Range { start, end } = self.keys;
        let hot = start + ((end - start) / HOT_PART).max(1);
        let end = if self.rng.random() { hot } else { end };
        self.rng.random_range(start..end)
    }

    /// Some of its keys, each once, in any order.
    pub(super) fn pick_several(&mut self, most: usize) -> Vec<u32> {
        let Range { start, end } = self.keys;
        let keys = (end - start) as usize;
        let number = self.rng.random_range(1..=most.min(keys));
        let at = index::sample(&mut self.rng, keys, number);
        at.into_iter().map(|at| start + at as u32).collect()
    }

    pub(super) async fn sleep_up_to(&mut self, time: Duration) {
        let time = self.rng.random_range(Duration::ZERO..=time);
        self.host.sleep(time).await;
    }

    /// Pauses with something in hand, for longer than its TTL as often as not; the end of the run cuts
    /// it short.
    pub(super) async fn pause(&mut self) {
        self.tally.pauses += 1;
        let time = self.rng.random_range(Duration::ZERO..=self.world.pause);
        let due = Instant::now() + time;
        while !self.world.is_stopping() {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.host.sleep(left.min(PAUSE_AT_ONCE)).await;
        }
    }

    /// Ends an interval, and counts what it proves.
    pub(super) fn leave(&mut self, key: u32, stay: Stay) {
        match self.world.arena(key).occupancy.leave(stay) {
            Company::Alone => {}
            Company::Allowed => self.tally.accompanied += 1,
            Company::Forbidden(what) => {
                self.tally
                    .violate(Violation::Exclusion, || format!("key {key}: {what}"));
            }
        }
    }

    /// Asks for one lease for an owner of its own: at once, or waiting for its turn.
    pub(super) async fn acquire(
        &mut self,
        key: u32,
        owner: OwnerId,
        acquire: Acquire<'w>,
    ) -> Option<Lease<'w>> {
        let waited = if self.rng.random_ratio(1, 8) {
            self.try_now(acquire)
        } else {
            let ask = Ask {
                key: Some(key),
                in_order: true,
                owner: Some(owner),
                set: &[],
            };
            self.wait(ask, acquire).await
        };
        match waited {
            Waited::Granted(lease) => {
                self.tally.grants += 1;
                return Some(lease);
            }
            Waited::Refused(AcquireError::Held { .. } | AcquireError::Delayed { .. }) => {
                self.tally.refusals += 1;
            }
            Waited::Refused(error) => self.tally.unexpected(key, &error),
            Waited::GivenUp => {}
        }
        None
    }

    fn try_now(&mut self, acquire: Acquire<'w>) -> Waited<Lease<'w>> {
        let asked = Instant::now();
        let answer = acquire.try_now();
        let nanos = asked.elapsed().as_nanos() as u64;
        self.tally.latency.saturating_record(nanos.max(1));
        match answer {
            Ok(lease) => Waited::Granted(lease),
            Err(error) => Waited::Refused(error),
        }
    }

    /// Waits for what is asked, or gives up on the way.
    pub(super) async fn wait<F: Waitable>(&mut self, ask: Ask<'_>, future: F) -> Waited<F::Lease> {
        let world = self.world;
        let asked = Instant::now();
        let mut wait = Wait::new(future, &world.desk.wakes);
        let ticketed = ask.in_order && self.rng.random();
        let queue = ask.key.filter(|_| ticketed);
        let queue = queue.map(|key| &world.arena(key).queue);
        let arrival = poll_fn(|context| {
            Poll::Ready(match queue {
                Some(queue) => {
                    let (polled, ticket) = queue.arrive(|| wait.poll(context));
                    (polled, Some((queue, ticket)))
                }
                None => (wait.poll(context), None),
            })
        });
        let (polled, place) = arrival.await;
        let result = match polled {
            Poll::Ready(result) => Some(result),
            Poll::Pending => self.wait_on(ask, wait).await,
        };
        if let Some(Ok(lease)) = result {
            if let Some(pulse) = &world.pulse {
                pulse.record(self.part.kind(), asked.elapsed());
            }
            if let Some((queue, ticket)) = place
                && let Some(token) = F::token(&lease)
                && !queue.granted(ticket, token.get())
            {
                self.tally.violate(Violation::FifoInversion, || {
                    format!("key {:?}: {token} was granted out of turn", ask.key)
                });
            }
            // Those of a set that were revoked or given back before it was complete.
            self.tally.unseen += u64::from(ask.most_waits(world)) - ask.leases();
            return Waited::Granted(lease);
        }
        if let Some((queue, ticket)) = place {
            queue.gone(ticket);
        }
        self.tally.unseen += u64::from(ask.most_waits(world));
        match result {
            Some(Err(error)) if error != AcquireError::TimedOut => Waited::Refused(error),
            _ => {
                self.tally.cancelled += 1;
                if let Some(owner) = ask.owner {
                    world.desk.gone(owner);
                }
                Waited::GivenUp
            }
        }
    }

    /// The rest of a wait that has its place in the queue.
    async fn wait_on<F: Waitable>(&mut self, ask: Ask<'_>, wait: Wait<F>) -> Option<F::Output> {
        let world = self.world;
        let patience = self.patience();
        if patience == Some(Duration::ZERO) {
            for _ in 0..self.rng.random_range(0..MAX_SPINS) {
                std::hint::spin_loop();
            }
            return None;
        }
        let blocks = self.host == Host::Thread && self.rng.random();
        let bell = Arc::clone(wait.bell());
        let seat = world.desk.sit(Waiter {
            key: ask.key.map(|key| world.arena(key).key),
            owner: ask.owner,
            cancel_at: patience.map(|patience| Instant::now() + patience),
            cancellable: !blocks && self.rng.random(),
            bell: Arc::clone(&bell),
        });
        let result = if blocks {
            // From here on another waker is woken, the library's own.
            let result = wait
                .into_future()
                .wait_at_most(patience.unwrap_or(2 * world.stuck()));
            if patience.is_none() && matches!(result, Err(AcquireError::TimedOut)) {
                self.tally.violate(Violation::LostWakeup, || {
                    format!("blocked without an end: key {:?}", ask.key)
                });
            }
            Some(result)
        } else {
            let result = wait.end().await;
            if let Some(Ok(_)) = result {
                bell.granted(ask.most_waits(world));
            }
            result
        };
        drop(seat);
        result
    }

    /// How long it waits before it gives up; `None` for as long as it takes, as all do in a lull.
    fn patience(&mut self) -> Option<Duration> {
        if self.world.is_quiet() {
            return None;
        }
        match self.rng.random_range(0..16) {
            0 => Some(Duration::ZERO),
            1 | 2 => Some(
                self.rng
                    .random_range(Duration::from_nanos(1)..Duration::from_micros(200)),
            ),
            3..=6 => Some(
                self.rng
                    .random_range(Duration::from_nanos(1)..self.world.stage.ttl),
            ),
            _ => None,
        }
    }
}
