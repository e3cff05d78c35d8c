//! Everything on the same keys: all modes of a lease, with terms, upgrades and downgrades, entered again,
//! renewed by the manager, and watched for their ends.

use std::time::{Duration, Instant};

use rand::Rng;
use tenure::{Acquire, AcquireError, Lease, Loss, Lost, Mode, OwnerId, RenewError, Timestamp};

use super::actor::{Actor, Ask, Waited};
use super::single::{NAP, in_mode};
use super::{MAX_DELAY, World};
use crate::stress::key::Before;
use crate::stress::occupancy::Stay;
use crate::stress::tally::{Tally, Violation};
use crate::stress::waiting::Wait;
use crate::stress::watchdog::Waiter;

/// The permits of a key here.
const PERMITS: u32 = 3;
/// The most things that are done with one lease.
const MOST_TURNS: u32 = 4;
/// The manager renews a lease for so many TTLs at most.
const MAX_HOLD: u32 = 3;

/// A lease whose mode and token may change.
#[derive(Debug)]
struct Changing<'w> {
    world: &'w World,
    key: u32,
    owner: OwnerId,
    lease: Lease<'w>,
    promised: Promised,
    stay: Stay,
}

/// Waits for a key in any mode, and does this and that with the lease if it is granted.
pub(super) async fn visit(actor: &mut Actor<'_>) {
    let Some(mut held) = Changing::acquire(actor).await else {
        return;
    };
    for _ in 0..actor.rng.random_range(0..MOST_TURNS) {
        held.confirm(&mut actor.tally);
        match actor.rng.random_range(0..6) {
            0 => held.enter_again(actor).await,
            1 | 2 => held = held.change_mode(actor).await,
            3 => {
                if held.watch(actor).await {
                    break;
                }
            }
            4 => held.renew(&mut actor.tally),
            _ => actor.sleep_up_to(NAP).await,
        }
    }
    held.confirm(&mut actor.tally);
    match actor.rng.random_range(0..32) {
        0 => held.crash(actor).await,
        1 => {
            actor.pause().await;
            held.release(actor).await;
        }
        _ => held.release(actor).await,
    }
}

/// The terms that a lease is subject to, at random; and whether they have it end sooner than it is renewed for.
fn on_terms<'m>(actor: &mut Actor<'_>, acquire: Acquire<'m>) -> (Acquire<'m>, bool) {
    let delay = actor.rng.random_range(Duration::ZERO..MAX_DELAY);
    match actor.rng.random_range(0..12) {
        0 => (acquire.lock_delay(delay), false),
        1 => (acquire.min_hold(delay), false),
        2 => (acquire.auto_renew(MAX_HOLD * actor.world.stage.ttl), true),
        _ => (acquire, false),
    }
}

/// What the manager has said of a lease.
#[derive(Clone, Copy, Debug)]
struct Promised {
    key: u32,
    /// What was known before its token was asked for.
    before: Before,
    /// The latest deadline that was named.
    until: Timestamp,
    /// It ends at some time, however often it is renewed.
    capped: bool,
}

impl Promised {
    /// What was asked for at `asked` for a TTL.
    fn new(
        key: u32,
        until: Timestamp,
        (before, asked): (Before, Timestamp),
        capped: bool,
        world: &World,
        tally: &mut Tally,
    ) -> Self {
        let promised = Self {
            key,
            before,
            until,
            capped,
        };
        promised.long_enough(asked, world, tally);
        promised
    }

    /// It was granted, or renewed, for a TTL after `asked`.
    fn long_enough(&self, asked: Timestamp, world: &World, tally: &mut Tally) {
        let length = self.until.saturating_duration_since(asked);
        if length < world.stage.ttl && !self.capped {
            tally.violate(Violation::EarlyExpiry, || {
                format!("key {}: was given only {length:?}", self.key)
            });
        }
    }

    /// The manager has just said that the lease is over, which nobody here has ended: it must have been time,
    /// or the key was revoked.
    fn kept(&self, world: &World, what: &str, tally: &mut Tally) {
        let Self {
            key, before, until, ..
        } = *self;
        let left = until.saturating_duration_since(world.stage.manager.now());
        let check = &world.stage.checked[key as usize];
        if !left.is_zero() && !check.may_be_revoked(before.revocations) {
            tally.violate(Violation::EarlyExpiry, || {
                format!("key {key}: {what} with {left:?} left")
            });
        }
    }
}

impl<'w> Changing<'w> {
    async fn acquire(actor: &mut Actor<'w>) -> Option<Self> {
        let world = actor.world;
        let stage = &world.stage;
        let key = actor.pick();
        let mode = match actor.rng.random_range(0..8) {
            0..=2 => Mode::Exclusive,
            3..=5 => Mode::Shared,
            _ => Mode::Permit { of: PERMITS },
        };
        let before = stage.checked[key as usize].before();
        let owner = world.owner();
        let acquire = in_mode(stage.manager.acquire(key, owner, stage.ttl), mode);
        let (acquire, capped) = on_terms(actor, acquire);
        let asked = (before, stage.manager.now());
        let lease = actor.acquire(key, owner, acquire).await?;
        stage.granted(key, lease.token(), before, &mut actor.tally);
        let stay = world.arena(key).occupancy.enter(mode, lease.token());
        let until = lease.deadline();
        let promised = Promised::new(key, until, asked, capped, world, &mut actor.tally);
        Some(Self {
            world,
            key,
            owner,
            lease,
            promised,
            stay,
        })
    }

    /// The interval of the lease reaches up to now, if it is live; it must not be over before its time.
    fn confirm(&mut self, tally: &mut Tally) {
        let begun = self.world.stage.manager.now();
        let occupancy = &self.world.arena(self.key).occupancy;
        let lease = &self.lease;
        if !occupancy.confirm(&mut self.stay, || lease.is_live()) {
            self.promised.kept(self.world, "not live", tally);
            return;
        }
        let deadline = lease.deadline();
        self.promised.until = self.promised.until.max(deadline);
        // Still live: what it has named is no deadline of before.
        if begun >= deadline && lease.is_live() {
            tally.violate(Violation::Resurrection, || {
                format!("key {}: live at {begun}, past {deadline}", self.key)
            });
        }
    }

    /// Renews it for a TTL: it lasts for that at least, if its terms let it.
    fn renew(&mut self, tally: &mut Tally) {
        let begun = self.world.stage.manager.now();
        match self.lease.renew(self.world.stage.ttl) {
            Ok(deadline) => {
                tally.renewals += 1;
                let before = self.promised.until;
                if begun >= deadline || deadline < before {
                    tally.violate(Violation::EarlyExpiry, || {
                        let key = self.key;
                        format!("key {key}: renewed at {begun} from {before} to {deadline}")
                    });
                }
                self.promised.until = deadline;
                self.promised.long_enough(begun, self.world, tally);
            }
            Err(RenewError::Expired { .. }) => {
                self.promised.kept(self.world, "renewal refused", tally);
            }
            Err(error) => tally.unexpected(self.key, &error),
        }
    }

    /// Enters the lease once more, and leaves it.
    async fn enter_again(&self, actor: &mut Actor<'w>) {
        let stage = &self.world.stage;
        let key = self.key;
        let before = stage.checked[key as usize].before();
        let acquire = stage.manager.acquire(key, self.owner, stage.ttl);
        let entered = in_mode(acquire, self.lease.mode()).reentrant().try_now();
        match entered {
            Ok(inner) if inner.token() == self.lease.token() => {
                actor.sleep_up_to(NAP).await;
                // The outer one still has it: no lease has ended.
                drop(inner);
            }
            // The other is over, so this is a grant like any other.
            Ok(fresh) => {
                actor.tally.grants += 1;
                stage.granted(key, fresh.token(), before, &mut actor.tally);
                let occupancy = &self.world.arena(key).occupancy;
                let mut stay = occupancy.enter(fresh.mode(), fresh.token());
                occupancy.confirm(&mut stay, || fresh.is_live());
                actor.leave(key, stay);
                end(actor, fresh);
            }
            Err(AcquireError::Held { .. } | AcquireError::Delayed { .. }) => {
                actor.tally.refusals += 1;
                // Live now, it was so when it was asked for.
                if self.lease.is_live() {
                    actor.tally.violate(Violation::UnexpectedError, || {
                        format!("key {key}: its holder can't enter again")
                    });
                }
            }
            Err(error) => actor.tally.unexpected(key, &error),
        }
    }

    /// Makes an exclusive lease a shared one, or the other way round, or has it stay as it is.
    async fn change_mode(self, actor: &mut Actor<'w>) -> Self {
        let Self {
            world,
            key,
            owner,
            mut lease,
            mut promised,
            stay,
        } = self;
        // It ends with the last moment that it is known to have been in force as it was.
        actor.leave(key, stay);
        match lease.mode() {
            Mode::Exclusive => {
                if let Err(error) = lease.downgrade()
                    && lease.is_live()
                {
                    actor.tally.unexpected(key, &error);
                }
            }
            Mode::Shared => {
                let before = world.stage.checked[key as usize].before();
                let asked = (before, world.stage.manager.now());
                let token = lease.token();
                upgrade(actor, key, &mut lease).await;
                if lease.token() != token {
                    let (until, capped) = (lease.deadline(), promised.capped);
                    promised = Promised::new(key, until, asked, capped, world, &mut actor.tally);
                }
            }
            _ => {}
        }
        let stay = world
            .arena(key)
            .occupancy
            .enter(lease.mode(), lease.token());
        Self {
            world,
            key,
            owner,
            lease,
            promised,
            stay,
        }
    }

    /// Waits for the end of the lease for a while; whether it has come.
    async fn watch(&self, actor: &mut Actor<'w>) -> bool {
        let patience = actor.rng.random_range(Duration::ZERO..=2 * NAP);
        let Some(loss) = lost(actor, self.lease.lost(), self.key, Some(patience)).await else {
            return false;
        };
        self.by_itself(actor, loss);
        if self.lease.is_live() {
            actor.tally.violate(Violation::Resurrection, || {
                format!("key {}: live after it was lost", self.key)
            });
        }
        true
    }

    /// A lease that its holder has not released ends by itself, in its time, or is revoked.
    fn by_itself(&self, actor: &mut Actor<'w>, loss: Loss) {
        self.promised.kept(self.world, "lost", &mut actor.tally);
        if !matches!(loss, Loss::Expired | Loss::MaxHold | Loss::Revoked) {
            actor.tally.violate(Violation::UnexpectedError, || {
                format!("key {}: lost as {loss:?}", self.key)
            });
        }
    }

    /// Forgets the guard, and waits to be told that the lease is over.
    async fn crash(self, actor: &mut Actor<'w>) {
        actor.tally.crashes += 1;
        let signal = self.lease.lost();
        if let Some(loss) = lost(actor, signal, self.key, None).await {
            self.by_itself(actor, loss);
        }
        let Self {
            key, lease, stay, ..
        } = self;
        actor.leave(key, stay);
        std::mem::forget(lease);
    }

    async fn release(mut self, actor: &mut Actor<'w>) {
        self.confirm(&mut actor.tally);
        let signal = actor.rng.random::<bool>().then(|| self.lease.lost());
        actor.leave(self.key, self.stay);
        let released = end(actor, self.lease);
        if !released {
            self.promised
                .kept(self.world, "release refused", &mut actor.tally);
        }
        if let Some(signal) = signal
            && signal.now().is_none()
        {
            if released {
                actor.tally.violate(Violation::LostWakeup, || {
                    format!("key {}: released, and nobody was told", self.key)
                });
            }
            // Otherwise somebody else has ended it first, who tells of it, and was stopped on the way there.
            lost(actor, signal, self.key, None).await;
        }
    }
}

/// Releases a lease that nobody has entered twice; false if that comes too late.
fn end(actor: &mut Actor<'_>, lease: Lease<'_>) -> bool {
    let released = lease.release().is_ok();
    if released {
        actor.tally.releases += 1;
    } else {
        actor.tally.late_releases += 1;
    }
    released
}

/// Makes a shared lease exclusive, or gives up on it: then it may be either.
async fn upgrade<'w>(actor: &mut Actor<'w>, key: u32, lease: &mut Lease<'w>) {
    let stage = &actor.world.stage;
    let before = stage.checked[key as usize].before();
    let shared = lease.token();
    let ask = Ask {
        key: Some(key),
        // It comes before all others.
        in_order: false,
        // Who holds a lease of the key already.
        owner: None,
        set: &[],
    };
    let waited = actor.wait(ask, lease.upgrade(stage.ttl)).await;
    match waited {
        Waited::Granted(()) | Waited::GivenUp => {}
        Waited::Refused(AcquireError::Deadlock { .. }) => actor.tally.refusals += 1,
        Waited::Refused(AcquireError::Lapsed { .. }) if !lease.is_live() => {}
        Waited::Refused(error) => actor.tally.unexpected(key, &error),
    }
    if lease.token() != shared {
        // A lease of its own, which the other has ended for.
        actor.tally.grants += 1;
        actor.tally.releases += 1;
        stage.granted(key, lease.token(), before, &mut actor.tally);
    }
    if (lease.token() != shared) != (lease.mode() == Mode::Exclusive) {
        actor.tally.violate(Violation::UnexpectedError, || {
            format!("key {key}: half upgraded: {lease:?}")
        });
    }
}

/// Waits to be told of the end of a lease, for so long at most.
async fn lost(
    actor: &mut Actor<'_>,
    signal: Lost,
    key: u32,
    patience: Option<Duration>,
) -> Option<Loss> {
    let world = actor.world;
    let wait = Wait::new(signal, &world.desk.wakes);
    // Long after the lease's end, nobody holding the key, who still waits for the news is forgotten.
    let seat = world.desk.sit(Waiter {
        key: Some(world.arena(key).key),
        owner: None,
        cancel_at: patience.map(|patience| Instant::now() + patience),
        cancellable: false,
        bell: std::sync::Arc::clone(wait.bell()),
    });
    let loss = wait.end().await;
    drop(seat);
    loss
}
