//! Several leases that end together: those of a session, and those of `acquire_all`.
//!
//! The deadline of such a set can't be moved from outside, and nobody revokes it as a whole. So it is
//! over exactly if it was ended or its deadline has passed; and one of its leases is over exactly if the
//! set is, or it was released, or its key was revoked.

use std::time::Duration;

use tenure::{FencingToken, Mode, MultiLease, Session, Timestamp};

use super::World;
use super::actor::Actor;
use crate::stress::key::Before;
use crate::stress::occupancy::Stay;
use crate::stress::tally::{Tally, Violation};

/// A guard of several leases.
pub(super) trait Guard {
    fn deadline(&self) -> Timestamp;
    fn is_live(&self) -> bool;
    /// Makes it last for `ttl` from now; `None` if it is over.
    fn prolong(&self, ttl: Duration) -> Option<Timestamp>;
    /// Ends it; false if it was over before.
    fn end(self) -> bool;
}

impl Guard for Session<'_> {
    fn deadline(&self) -> Timestamp {
        self.deadline()
    }

    fn is_live(&self) -> bool {
        self.is_live()
    }

    /// For the session's own TTL, which is the same here.
    fn prolong(&self, _: Duration) -> Option<Timestamp> {
        self.keep_alive().ok()
    }

    fn end(self) -> bool {
        self.close().is_ok()
    }
}

impl Guard for MultiLease<'_> {
    fn deadline(&self) -> Timestamp {
        self.deadline()
    }

    fn is_live(&self) -> bool {
        self.is_live()
    }

    fn prolong(&self, ttl: Duration) -> Option<Timestamp> {
        self.renew(ttl).ok()
    }

    fn end(self) -> bool {
        self.release().is_ok()
    }
}

/// One of the leases.
#[derive(Debug)]
struct Member {
    key: u32,
    token: FencingToken,
    before: Before,
    stay: Stay,
}

/// A guard with its leases; every answer about them is checked.
#[derive(Debug)]
pub(super) struct Together<'w, G> {
    world: &'w World,
    pub(super) guard: G,
    deadline: Timestamp,
    members: Vec<Member>,
}

impl<'w, G: Guard> Together<'w, G> {
    /// A set whose time began after `asked` on the manager's clock.
    pub(super) fn new(world: &'w World, guard: G, asked: Timestamp, tally: &mut Tally) -> Self {
        let begun = world.stage.manager.now();
        let deadline = guard.deadline();
        let mut set = Self {
            world,
            guard,
            deadline,
            members: vec![],
        };
        if deadline == Timestamp::ZERO {
            // This thread was stopped for so long that the set is over, and has no deadline any more.
            // It had one that was not before this.
            set.deadline = asked.saturating_add(world.stage.ttl);
            set.in_time(begun, false, tally);
        } else {
            set.long_enough(asked, tally);
        }
        set
    }

    /// Adds a lease that has just been granted.
    pub(super) fn add(&mut self, key: u32, token: FencingToken, before: Before, tally: &mut Tally) {
        tally.grants += 1;
        self.world.stage.granted(key, token, before, tally);
        let stay = self
            .world
            .arena(key)
            .occupancy
            .enter(Mode::Exclusive, token);
        self.members.push(Member {
            key,
            token,
            before,
            stay,
        });
    }

    /// Whether the set is live; the answer is checked against its deadline.
    pub(super) fn is_live(&self, tally: &mut Tally) -> bool {
        let begun = self.world.stage.manager.now();
        let live = self.guard.is_live();
        self.in_time(begun, live, tally);
        live
    }

    /// Makes it last for a TTL from now; whether it still could.
    pub(super) fn prolong(&mut self, tally: &mut Tally) -> bool {
        let manager = &self.world.stage.manager;
        let begun = manager.now();
        let prolonged = self.guard.prolong(self.world.stage.ttl);
        self.in_time(begun, prolonged.is_some(), tally);
        if let Some(deadline) = prolonged {
            tally.renewals += 1;
            self.deadline = deadline;
            self.long_enough(begun, tally);
        }
        prolonged.is_some()
    }

    /// Asks for each lease whether it is live.
    ///
    /// One that is not, while the set is live even afterwards, must have been revoked.
    pub(super) fn confirm(&mut self, tally: &mut Tally) {
        let (manager, guard) = (&self.world.stage.manager, &self.guard);
        for member in &mut self.members {
            let Member { key, token, .. } = *member;
            let occupancy = &self.world.arena(key).occupancy;
            let is_live = || manager.validate(key, token).is_ok();
            if !occupancy.confirm(&mut member.stay, is_live) && guard.is_live() {
                let check = &self.world.stage.checked[key as usize];
                if !check.may_be_revoked(member.before.revocations) {
                    tally.violate(Violation::EarlyExpiry, || {
                        format!("key {key}: {token} is over, and what it was granted with is not")
                    });
                }
            }
        }
    }

    /// Ends the set, after a last look at it.
    pub(super) fn end(mut self, actor: &mut Actor<'_>) {
        self.confirm(&mut actor.tally);
        let leases = self.leave(actor);
        let begun = self.world.stage.manager.now();
        let (world, deadline) = (self.world, self.deadline);
        let ended = self.guard.end();
        in_time(world, deadline, begun, ended, &mut actor.tally);
        all_over(world, &leases, &mut actor.tally);
    }

    /// Leaves the guard alone; the manager must end everything by itself.
    pub(super) async fn crash(mut self, actor: &mut Actor<'_>) {
        actor.tally.crashes += 1;
        self.confirm(&mut actor.tally);
        let leases = self.leave(actor);
        // Dropped when it can't end anything any more: forgotten, its memory would never be freed.
        let (world, deadline, guard) = (self.world, self.deadline, self.guard);
        let now = world.stage.manager.now();
        let left = deadline.saturating_duration_since(now);
        actor.host.sleep(left + world.stage.ttl / 4).await;
        if world.stage.manager.now() >= deadline {
            all_over(world, &leases, &mut actor.tally);
        }
        drop(guard);
    }

    /// Ends the intervals of all leases, and counts that these end with the set.
    fn leave(&mut self, actor: &mut Actor<'_>) -> Vec<(u32, FencingToken)> {
        actor.tally.closed += self.members.len() as u64;
        self.members
            .drain(..)
            .map(|member| {
                actor.leave(member.key, member.stay);
                (member.key, member.token)
            })
            .collect()
    }

    fn in_time(&self, begun: Timestamp, live: bool, tally: &mut Tally) {
        in_time(self.world, self.deadline, begun, live, tally);
    }

    /// The deadline must be a whole TTL after `asked`.
    fn long_enough(&self, asked: Timestamp, tally: &mut Tally) {
        let length = self.deadline.saturating_duration_since(asked);
        if length < self.world.stage.ttl {
            tally.violate(Violation::EarlyExpiry, || {
                format!("several leases were given only {length:?}")
            });
        }
    }
}

/// An operation that began at `begun` has found the set live, or not.
fn in_time(world: &World, deadline: Timestamp, begun: Timestamp, live: bool, tally: &mut Tally) {
    let left = deadline.saturating_duration_since(world.stage.manager.now());
    if live && begun >= deadline {
        tally.violate(Violation::Resurrection, || {
            "several leases were live past their deadline".to_owned()
        });
    } else if !live && !left.is_zero() {
        tally.violate(Violation::EarlyExpiry, || {
            format!("several leases were over with {left:?} left")
        });
    }
}

/// The set is over, and so must all its leases be.
fn all_over(world: &World, leases: &[(u32, FencingToken)], tally: &mut Tally) {
    for &(key, token) in leases {
        if let Ok(holder) = world.stage.manager.validate(key, token) {
            tally.violate(Violation::Resurrection, || {
                format!("key {key}: {holder:?} outlived what it was granted with")
            });
        }
    }
}
