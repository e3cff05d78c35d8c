//! Several keys at once, all or nothing.

use rand::Rng;
use tenure::AcquireError;

use super::actor::{Actor, Ask, Waited};
use super::single::NAP;
use super::together::Together;
use crate::stress::tally::Violation;

/// The most keys that are asked for at once.
const MOST: usize = 4;

/// Waits for some keys at once, and lives through the leases if they are granted.
pub(super) async fn visit(actor: &mut Actor<'_>) {
    let world = actor.world;
    let stage = &world.stage;
    let owner = world.owner();
    let keys = actor.pick_several(MOST);
    let befores: Vec<_> = keys
        .iter()
        .map(|&key| (key, stage.checked[key as usize].before()))
        .collect();
    let asked = stage.manager.now();
    let ask = Ask {
        key: None,
        in_order: false,
        owner: Some(owner),
        set: &befores,
    };
    let all = stage.manager.acquire_all(keys, owner, stage.ttl);
    let guard = match actor.wait(ask, all).await {
        Waited::Granted(guard) => guard,
        Waited::GivenUp => {
            // Asks for some only, since asking makes the manager look after the key.
            if actor.rng.random_ratio(1, 4) {
                nothing_held(actor, &befores, owner);
            }
            return;
        }
        Waited::Refused(error) => return actor.tally.unexpected(0, &error),
    };
    let tokens = guard.tokens().to_vec();
    let mut held = Together::new(world, guard, asked, &mut actor.tally);
    for (key, before) in befores {
        let name = world.arena(key).key;
        match tokens.binary_search_by_key(&name, |held| held.0) {
            Ok(at) => held.add(key, tokens[at].1, before, &mut actor.tally),
            // Everything was granted, but for this.
            Err(_) => actor.tally.unexpected(key, &AcquireError::TimedOut),
        }
    }
    held.confirm(&mut actor.tally);
    let fate = actor.rng.random_range(0..32);
    match fate {
        0 => return held.crash(actor).await,
        1 | 2 => actor.pause().await,
        3..=12 => actor.sleep_up_to(NAP).await,
        _ => {}
    }
    if fate % 4 == 0 {
        held.prolong(&mut actor.tally);
    }
    held.is_live(&mut actor.tally);
    held.end(actor);
    world.desk.gone(owner);
}

/// Nothing of the set may be held by the owner that gave it up.
fn nothing_held<T>(actor: &mut Actor<'_>, keys: &[(u32, T)], owner: tenure::OwnerId) {
    for &(key, _) in keys {
        let holder = actor.world.stage.manager.holder(key);
        if holder.is_some_and(|holder| holder.owner == owner) {
            actor.tally.violate(Violation::Ghost, || {
                format!("key {key}: held by {owner}, who has given up the set")
            });
        }
    }
}
