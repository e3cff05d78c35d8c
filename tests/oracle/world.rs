//! A world that carries out each operation on a manager and on the oracle.

use std::time::Duration;

use tenure::{FencingToken, Key, Lease, LockManager, ManualClock, OwnerId, Stats, Timestamp};

use super::operation::{Keep, Operation, Presented, Setting, Ttl};
use super::{Limits, Oracle};

/// Runs `operations` on a new manager and on the oracle side by side.
///
/// # Panics
///
/// When the manager does what the oracle can't explain.
pub(crate) fn run(setting: Setting, operations: impl IntoIterator<Item = Operation>) {
    let tick = Duration::from_micros(u64::from(setting.tick) + 100);
    let keys = u64::from(setting.keys) + 1;
    let limits = Limits {
        tick,
        min_ttl: if setting.fine {
            Duration::from_nanos(1)
        } else {
            tick
        },
        max_ttl: tick * (1 << 24),
        max_keys: match setting.scarce {
            Some(fewer) => (usize::from(setting.keys) + 1)
                .saturating_sub(fewer.into())
                .max(1),
            None => 1 << 20,
        },
    };
    let clock = ManualClock::new();
    let manager = LockManager::builder()
        .clock(clock.clone())
        .driver(false)
        .tick(tick)
        .min_ttl(limits.min_ttl)
        .max_ttl(limits.max_ttl)
        .max_keys(limits.max_keys)
        .build()
        .expect("these options are in order");
    let oracle = Oracle::new(limits, manager.now());
    let mut world = World {
        manager: &manager,
        clock,
        oracle,
        guards: Vec::new(),
        keys,
        driven: setting.driven,
        latest: ((tick.as_nanos() as u64) << 41).min(1 << 62),
    };
    for operation in operations {
        world.step(operation);
        world.check();
    }
    world.finish();
}

struct World<'m> {
    manager: &'m LockManager,
    clock: ManualClock,
    oracle: Oracle,
    guards: Vec<Lease<'m>>,
    keys: u64,
    driven: bool,
    /// Clock readings stay below this, so that every deadline fits (70 years at 1 ms).
    latest: u64,
}

impl World<'_> {
    fn step(&mut self, operation: Operation) {
        match operation {
            Operation::Acquire {
                key,
                owner,
                ttl,
                keep,
            } => {
                self.acquire(
                    self.number(key),
                    OwnerId(owner.into()),
                    self.ttl(ttl),
                    None,
                    keep,
                );
            }
            Operation::AcquireAtLeast {
                key,
                owner,
                ttl,
                above,
            } => {
                let number = self.number(key);
                let last = self
                    .oracle
                    .history(self.manager.key(number))
                    .last()
                    .copied();
                // At most 2^40 each, so that no sequence reaches the end of the tokens.
                let at_least = token(last.unwrap_or(0) + (1 << (above % 41)));
                self.acquire(
                    number,
                    OwnerId(owner.into()),
                    self.ttl(ttl),
                    Some(at_least),
                    Keep::Guard,
                );
            }
            Operation::Renew { key, token, ttl } => {
                let (number, ttl) = (self.number(key), self.ttl(ttl));
                let (key, token) = (self.manager.key(number), self.presented(number, token));
                let answer = self.manager.renew(number, token, ttl);
                self.oracle.renewed(key, token, ttl, &answer);
            }
            Operation::Release { key, token } => {
                let number = self.number(key);
                self.release(number, self.presented(number, token));
            }
            Operation::Validate { key, token } => {
                let number = self.number(key);
                let token = self.presented(number, token);
                let answer = self.manager.validate(number, token);
                self.oracle
                    .validated(self.manager.key(number), token, &answer);
            }
            Operation::Revoke { key } => {
                let number = self.number(key);
                let answer = self.manager.revoke(number);
                self.oracle.revoked(self.manager.key(number), &answer);
            }
            Operation::Holder { key } => {
                let number = self.number(key);
                self.oracle
                    .looked_up(self.manager.key(number), self.manager.holder(number));
            }
            Operation::RenewGuard { .. }
            | Operation::ReleaseGuard { .. }
            | Operation::DropGuard { .. }
            | Operation::DetachGuard { .. }
            | Operation::ForgetGuard { .. } => self.step_guard(operation),
            Operation::Iterate => self.oracle.iterated(self.manager.iter()),
            Operation::Advance => self.advance(),
            Operation::Drive => self.drive(),
            Operation::Crowd { from, count, ttl } => {
                let ttl = self.ttl(ttl);
                for offset in 0..u64::from(count) % self.keys.min(4096) {
                    let number = (u64::from(from) + offset) % self.keys;
                    self.acquire(number, OwnerId(offset), ttl, None, Keep::Detached);
                }
            }
            Operation::Disperse { from, count } => {
                for offset in 0..u64::from(count) % self.keys.min(4096) {
                    let number = (u64::from(from) + offset) % self.keys;
                    if let Some(held) = self.oracle.live(self.manager.key(number)) {
                        self.release(number, token(held.token));
                    }
                }
            }
            Operation::Pass { .. }
            | Operation::Edge { .. }
            | Operation::Leap { .. }
            | Operation::Back { .. } => self.step_time(operation),
        }
    }

    fn step_guard(&mut self, operation: Operation) {
        let (Operation::RenewGuard { guard, .. }
        | Operation::ReleaseGuard { guard }
        | Operation::DropGuard { guard }
        | Operation::DetachGuard { guard }
        | Operation::ForgetGuard { guard }) = operation
        else {
            return;
        };
        if self.guards.is_empty() {
            return;
        }
        let index = usize::from(guard) % self.guards.len();
        if let Operation::RenewGuard { ttl, .. } = operation {
            let (guard, ttl) = (&self.guards[index], self.ttl(ttl));
            let answer = guard.renew(ttl);
            self.oracle
                .renewed(guard.key(), guard.token(), ttl, &answer);
            self.check_guard(index);
            return;
        }
        let guard = self.guards.swap_remove(index);
        let (key, token) = (guard.key(), guard.token());
        match operation {
            Operation::ReleaseGuard { .. } => self.oracle.released(key, token, &guard.release()),
            Operation::DropGuard { .. } => {
                drop(guard);
                self.oracle.dropped(key, token);
            }
            Operation::DetachGuard { .. } => assert_eq!(guard.detach(), token),
            _ => std::mem::forget(guard),
        }
        // A guard that is gone has ended its own lease, or none at all (I6).
        self.oracle.looked_up(key, self.manager.holder(key));
    }

    fn step_time(&mut self, operation: Operation) {
        let now = self.oracle.now();
        let to = match operation {
            Operation::Pass { ticks, nanos } => {
                now + self.oracle.limits().tick.as_nanos() as u64 * u64::from(ticks)
                    + u64::from(nanos)
            }
            Operation::Edge { key, before } => {
                match self.oracle.live(self.manager.key(self.number(key))) {
                    Some(held) => held.deadline - u64::from(before),
                    None => now,
                }
            }
            Operation::Leap { exponent, nanos } => now + (1 << (exponent % 59)) + u64::from(nanos),
            Operation::Back { nanos } => now.saturating_sub(nanos),
            _ => now,
        };
        if to < self.latest {
            self.pass_to(to);
        }
    }

    /// Sets the clock. A reading below an earlier one must be taken for that earlier one.
    fn pass_to(&mut self, to: u64) {
        self.clock.set(Timestamp::from_nanos(to));
        self.oracle.set_now(to);
        assert_eq!(
            self.manager.now().as_nanos(),
            self.oracle.now(),
            "the clock never goes back"
        );
        if self.driven {
            self.advance();
        }
    }

    fn acquire(
        &mut self,
        number: u64,
        owner: OwnerId,
        ttl: Duration,
        at_least: Option<FencingToken>,
        keep: Keep,
    ) {
        let key = self.manager.key(number);
        let answer = match at_least {
            Some(least) => self.manager.try_acquire_at_least(number, owner, ttl, least),
            None => self.manager.try_acquire(number, owner, ttl),
        };
        let seen = answer
            .as_ref()
            .map(|lease| (lease.token(), lease.deadline()))
            .map_err(Clone::clone);
        self.oracle.acquired(key, owner, ttl, at_least, &seen);
        let Ok(lease) = answer else { return };
        let token = lease.token();
        assert_eq!((lease.key(), lease.owner()), (key, owner));
        match keep {
            Keep::Guard => self.guards.push(lease),
            Keep::Owned => self.guards.push(lease.into_owned()),
            Keep::Detached => assert_eq!(lease.detach(), token),
            Keep::Forgotten => std::mem::forget(lease),
            Keep::Dropped => {
                drop(lease);
                self.oracle.dropped(key, token);
            }
        }
    }

    fn release(&mut self, number: u64, token: FencingToken) {
        let answer = self.manager.release(number, token);
        self.oracle
            .released(self.manager.key(number), token, &answer);
    }

    fn advance(&mut self) {
        let before = self.manager.stats();
        let swept = self.manager.advance();
        self.oracle.advanced(swept, before, self.manager.stats());
    }

    fn drive(&mut self) {
        if let Some(wakeup) = self.manager.next_wakeup() {
            if (self.oracle.now()..self.latest).contains(&wakeup.as_nanos()) {
                self.pass_to(wakeup.as_nanos());
            }
            self.advance();
        }
    }

    /// Compares whatever can be seen with the oracle, after every step.
    fn check(&self) {
        let (len, stats): (usize, Stats) = (self.manager.len(), self.manager.stats());
        self.oracle.counted(len, stats);
        assert_eq!(self.manager.is_empty(), len == 0);
        let wakeup = self.manager.next_wakeup();
        assert!(
            len == 0 || wakeup.is_some(),
            "leases are out, and nothing will wake the driver"
        );
        if let Some(earliest) = self.oracle.earliest_deadline() {
            let latest = earliest + self.oracle.limits().tick.as_nanos() as u64;
            assert!(
                wakeup.is_some_and(|at| at.as_nanos() <= latest),
                "I8: woken too late"
            );
        }
        if self.keys <= 16 {
            self.oracle.iterated(self.manager.iter());
        }
        if let Some(last) = self.guards.len().checked_sub(1) {
            self.check_guard(last);
        }
    }

    fn check_guard(&self, index: usize) {
        let guard = &self.guards[index];
        let held = self.oracle.named(guard.key(), guard.token());
        assert_eq!(guard.is_live(), held.is_some(), "I3, I4: {guard:?}");
        let left = held.map_or(0, |held| held.deadline - self.oracle.now());
        assert_eq!(guard.remaining(), Duration::from_nanos(left), "{guard:?}");
        if let Some(held) = held {
            assert_eq!(guard.deadline().as_nanos(), held.deadline);
        }
    }

    /// Every guard is looked at and given up, every lease ends, and nothing is left.
    fn finish(mut self) {
        self.oracle.iterated(self.manager.iter());
        for index in 0..self.guards.len() {
            self.check_guard(index);
        }
        while !self.guards.is_empty() {
            self.step_guard(Operation::DropGuard { guard: 0 });
        }
        // Each round ends at least the lease with the earliest deadline, so this comes to an end.
        for _ in 0..=self.oracle.live_count() {
            if let Some(earliest) = self.oracle.earliest_deadline() {
                let end = earliest + self.oracle.limits().max_ttl.as_nanos() as u64;
                self.pass_to(end);
            }
        }
        self.advance();
        self.check();
        assert_eq!(self.manager.len(), 0, "I9: leases are left over");
        assert_eq!(self.manager.iter().count(), 0);
    }

    fn number(&self, key: u16) -> u64 {
        u64::from(key) % self.keys
    }

    fn ttl(&self, ttl: Ttl) -> Duration {
        let limits = self.oracle.limits();
        match ttl {
            Ttl::Zero => Duration::ZERO,
            Ttl::Ticks(ticks, nanos) => {
                limits.tick * u32::from(ticks) + Duration::from_nanos(nanos.into())
            }
            Ttl::Power(exponent, off) => {
                let ticks =
                    (1_u32 << (exponent % 24)).saturating_add_signed(i32::from(off.signum()));
                limits.tick * ticks
            }
            Ttl::Least => limits.min_ttl,
            Ttl::Greatest => limits.max_ttl,
            Ttl::TooLong => limits.max_ttl + Duration::from_nanos(1),
            Ttl::Endless => Duration::MAX,
        }
    }

    fn presented(&self, number: u64, presented: Presented) -> FencingToken {
        let last = |key: Key| self.oracle.history(key).last().copied().unwrap_or(1);
        let key = self.manager.key(number);
        token(match presented {
            Presented::Last => last(key),
            Presented::Earlier(back) => {
                let history = self.oracle.history(key);
                let index = history.len().saturating_sub(usize::from(back) + 1);
                history.get(index).copied().unwrap_or(1)
            }
            Presented::Other(other) => last(self.manager.key(self.number(other))),
            Presented::Unborn(by) => self.oracle.highest() + 1 + u64::from(by),
            Presented::Any(value) => u64::from(value).max(1),
            Presented::Greatest => FencingToken::MAX.get(),
        })
    }
}

fn token(value: u64) -> FencingToken {
    FencingToken::new(value).expect("the tests stay inside the range of tokens")
}
