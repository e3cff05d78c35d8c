//! One lease at a time: exclusive, shared, or a permit.

use std::time::{Duration, Instant};

use rand::Rng;
use tenure::{Acquire, Mode};

use super::Part;
use super::actor::Actor;
use crate::stress::holding::Holding;
use crate::stress::occupancy::Stay;

/// The longest that a holder takes over its work, unless it pauses.
pub(super) const NAP: Duration = Duration::from_micros(1500);
/// The most that a critical section spins between its load and its store.
const MAX_SPINS: u32 = 64;

/// The same acquisition in that mode.
pub(super) fn in_mode(acquire: Acquire<'_>, mode: Mode) -> Acquire<'_> {
    match mode {
        Mode::Shared => acquire.shared(),
        Mode::Permit { of } => acquire.permit(of),
        _ => acquire,
    }
}

/// Waits for a key, and lives through one lease if it is granted.
pub(super) async fn visit(actor: &mut Actor<'_>, part: Part) {
    let world = actor.world;
    let key = actor.pick();
    let mode = match part {
        Part::Shared if actor.rng.random_ratio(3, 4) => Mode::Shared,
        Part::Semaphore => Mode::Permit { of: 2 + key % 4 },
        _ => Mode::Exclusive,
    };
    let stage = &world.stage;
    let before = stage.checked[key as usize].before();
    let owner = world.owner();
    let asked = stage.ask();
    let acquire = in_mode(stage.manager.acquire(key, owner, stage.ttl), mode);
    let Some(lease) = actor.acquire(key, owner, acquire).await else {
        return;
    };
    let times = (asked, Instant::now());
    let holding = Holding::new(stage, key, lease, before, times, &mut actor.tally);
    let stay = world.arena(key).occupancy.enter(mode, holding.token());
    live(actor, key, mode, holding, stay).await;
}

/// Lives through one lease: works, and pauses, or crashes.
async fn live(
    actor: &mut Actor<'_>,
    key: u32,
    mode: Mode,
    mut holding: Holding<'_>,
    mut stay: Stay,
) {
    let occupancy = &actor.world.arena(key).occupancy;
    let fate = actor.rng.random_range(0..64);
    if fate % 8 == 1 {
        holding.detach();
    }
    // The wait may have taken longer than the TTL: then only a renewal says how long it lasts.
    if fate % 4 == 2 {
        holding.renew(&mut actor.tally);
    }
    // A resource that others read at the same time would see tokens in any order.
    let seen = if mode == Mode::Exclusive {
        let spins = actor.rng.random_range(0..MAX_SPINS);
        holding.critical_section(spins, &mut actor.tally);
        holding.read(&mut actor.tally)
    } else {
        None
    };
    let mut confirm = |holding: &Holding<'_>, actor: &mut Actor<'_>| {
        occupancy.confirm(&mut stay, || holding.is_live(&mut actor.tally));
    };
    confirm(&holding, actor);
    if fate == 0 {
        actor.leave(key, stay);
        crash(actor, holding).await;
        return;
    }
    if fate < 3 {
        actor.pause().await;
    } else if fate < 24 {
        actor.sleep_up_to(NAP).await;
    }
    confirm(&holding, actor);
    if let Some(seen) = seen {
        holding.write(seen, &mut actor.tally);
    }
    actor.leave(key, stay);
    holding.release(&mut actor.tally);
}

/// Forgets the guard; the manager must end the lease by itself.
async fn crash(actor: &mut Actor<'_>, mut holding: Holding<'_>) {
    actor.tally.crashes += 1;
    if actor.rng.random() {
        holding.forget();
    } else {
        holding.detach();
    }
    let left = holding.until().saturating_duration_since(Instant::now());
    let ttl = actor.world.stage.ttl;
    actor.host.sleep(left + ttl / 4).await;
    holding.is_live(&mut actor.tally);
}
