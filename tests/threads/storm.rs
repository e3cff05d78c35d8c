//! Every operation at once, from all threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure::{Lease, LockManager, ManualClock};

use super::{HOUR, manual, on_all_threads, scaled};

const TICK: Duration = Duration::from_millis(1);

/// What a storm of operations is checked against.
struct Storm {
    manager: LockManager,
    clock: ManualClock,
    /// For each key the greatest token that was known to be granted.
    known: [AtomicU64; 8],
    granted: AtomicU64,
    released: AtomicU64,
}

impl Storm {
    /// Some leases, one after the other or a crowd at once, each used in a random way.
    ///
    /// The even keys may be revoked by anybody; the odd ones end by their holder or by time alone.
    fn turn(&self, number: u64, draw: &mut impl FnMut(u64) -> u64) {
        let key = draw(8);
        let known = &self.known[key as usize];
        let before = known.load(Ordering::Acquire);
        match draw(16) {
            0 => self.clock.advance(Duration::from_micros(draw(3_000))),
            1 => drop(self.manager.advance()),
            2 if key.is_multiple_of(2) => {
                if let Ok(holder) = self.manager.revoke(key) {
                    assert!(
                        holder.token.get() >= before,
                        "I1, I4: {holder:?}, {before} was known"
                    );
                }
            }
            3 => {
                if let Some(holder) = self.manager.holder(key) {
                    assert!(
                        holder.token.get() >= before,
                        "I1, I4: {holder:?}, {before} was known"
                    );
                }
            }
            4 if draw(32) == 0 => {
                let now = self.manager.now();
                let known: Vec<_> = self
                    .known
                    .iter()
                    .map(|known| known.load(Ordering::Acquire))
                    .collect();
                for holder in self.manager.iter().filter(|holder| holder.owner.0 < 1_000) {
                    assert!(holder.deadline > now, "I4: {holder:?} at {now:?}");
                    let key = (0..8_u64).find(|&key| self.manager.key(key) == holder.key);
                    let before = known[key.expect("there are no other keys") as usize];
                    assert!(
                        holder.token.get() >= before,
                        "I1: {holder:?}, {before} was known"
                    );
                }
            }
            5 if draw(64) == 0 => self.crowd(number),
            _ => {
                let Ok(lease) = self.manager.try_acquire(key, number, TICK * 3) else {
                    return;
                };
                self.granted.fetch_add(1, Ordering::Relaxed);
                let token = lease.token();
                assert!(token.get() > before, "I2: {token}, {before} was known");
                known.fetch_max(token.get(), Ordering::AcqRel);
                self.hold(&lease, key, draw);
                let before = known.load(Ordering::Acquire);
                let ended = match draw(3) {
                    0 => lease.release(),
                    1 => self.manager.release(key, lease.detach()),
                    _ => {
                        lease.detach();
                        return;
                    }
                };
                if ended.is_ok() {
                    assert!(
                        before <= token.get(),
                        "I1: {token} was released, {before} was known"
                    );
                    self.released.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// Renews and validates a lease in various ways, until it is over or enough.
    fn hold(&self, lease: &Lease<'_>, key: u64, draw: &mut impl FnMut(u64) -> u64) {
        let (token, mut deadline) = (lease.token(), lease.deadline());
        for _ in 0..draw(4) {
            let before = self.known[key as usize].load(Ordering::Acquire);
            let live = match draw(4) {
                0 => lease
                    .renew(TICK * 4)
                    .map(|renewed| deadline = renewed)
                    .is_ok(),
                1 => {
                    let renewed = self.manager.renew(key, token, TICK * 4);
                    renewed.map(|renewed| deadline = renewed).is_ok()
                }
                2 => self.manager.validate(key, token).is_ok(),
                _ => lease.is_live(),
            };
            if live {
                assert!(
                    before <= token.get(),
                    "I1, I4: {token} is live, {before} was known"
                );
            } else {
                let early = self.manager.now() < deadline;
                assert!(
                    key.is_multiple_of(2) || !early,
                    "I3: {lease:?} ended before {deadline:?}"
                );
                return;
            }
        }
    }

    /// Enough leases at once for the table to grow, and then to shrink.
    fn crowd(&self, number: u64) {
        let keys = 1_000 * (number + 1)..1_000 * (number + 1) + 900;
        let leases: Vec<_> = keys
            .map(|key| {
                self.manager
                    .try_acquire(key, 1_000 + number, HOUR)
                    .expect("it is free")
            })
            .collect();
        self.granted
            .fetch_add(leases.len() as u64, Ordering::Relaxed);
        assert!(leases.iter().all(Lease::is_live), "I3");
        self.released
            .fetch_add(leases.len() as u64, Ordering::Relaxed);
    }
}

/// I1 to I5 and I9 in a storm of every operation, with expiry, revocation, growth and shrinking, and
/// with clocks and wheels turned by all threads: in the end each grant has ended exactly once.
#[test]
fn in_a_storm_of_all_operations_every_grant_ends_once() {
    let (manager, clock) = manual();
    let storm = Storm {
        manager,
        clock,
        known: Default::default(),
        granted: AtomicU64::new(0),
        released: AtomicU64::new(0),
    };
    on_all_threads(|number| {
        let mut state = number + 1;
        let mut draw = |below| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(number * 2 + 1);
            (state >> 33) % below
        };
        for _ in 0..scaled(400_000) {
            storm.turn(number, &mut draw);
        }
    });
    storm.clock.advance(TICK * 10);
    storm.manager.advance();
    let stats = storm.manager.stats();
    assert!(
        stats.expired > 0 && stats.revoked > 0,
        "nothing is shown: {stats:?}"
    );
    let granted = storm.granted.into_inner();
    assert_eq!(
        (storm.manager.len(), storm.manager.iter().count()),
        (0, 0),
        "I9"
    );
    assert_eq!(
        storm.released.into_inner() + stats.revoked + stats.expired,
        granted
    );
}
