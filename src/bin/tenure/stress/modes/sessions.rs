//! Several keys under one TTL.

use rand::Rng;
use tenure::AcquireError;

use super::actor::{Actor, Ask, Waited};
use super::single::NAP;
use super::together::Together;

/// The most keys that a session asks for.
const MOST: usize = 4;

/// Opens a session, waits for some keys in it, and ends it one way or the other.
pub(super) async fn visit(actor: &mut Actor<'_>) {
    let world = actor.world;
    let stage = &world.stage;
    let owner = world.owner();
    let asked = stage.manager.now();
    let session = match stage.manager.session(owner, stage.ttl) {
        Ok(session) => session,
        Err(error) => return actor.tally.unexpected(0, &error),
    };
    let mut held = Together::new(world, session, asked, &mut actor.tally);
    let mut keys = actor.pick_several(MOST);
    // The others meet in circles, which their TTLs undo.
    if actor.rng.random() {
        keys.sort_unstable();
    }
    for key in keys {
        let before = stage.checked[key as usize].before();
        let acquire = held.guard.acquire(key);
        let ask = Ask {
            key: Some(key),
            in_order: true,
            owner: None,
            set: &[],
        };
        match actor.wait(ask, acquire).await {
            // Not its guard but the session is to end it.
            Waited::Granted(lease) => held.add(key, lease.detach(), before, &mut actor.tally),
            Waited::GivenUp | Waited::Refused(AcquireError::Deadlock { .. }) => {}
            Waited::Refused(AcquireError::SessionOver) => {
                if held.is_live(&mut actor.tally) {
                    let error = AcquireError::SessionOver;
                    actor.tally.unexpected(key, &error);
                }
                break;
            }
            Waited::Refused(error) => actor.tally.unexpected(key, &error),
        }
        if actor.rng.random() && !held.prolong(&mut actor.tally) {
            break;
        }
    }
    held.confirm(&mut actor.tally);
    match actor.rng.random_range(0..32) {
        0 => return held.crash(actor).await,
        1 | 2 => actor.pause().await,
        3..=12 => actor.sleep_up_to(NAP).await,
        _ => {}
    }
    held.is_live(&mut actor.tally);
    held.end(actor);
    // Nobody else has that owner, and its session is over.
    world.desk.gone(owner);
}
