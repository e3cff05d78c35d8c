//! One lease in a worker's hands; every answer about it is checked here.
//!
//! The worker can tell for certain, whatever the scheduler does:
//!
//! - *long enough*: the deadline that the manager names is at least a TTL after what the manager's
//!   clock said before the call.
//! - *not before, on the manager's clock*: if the clock has not reached the deadline even after an
//!   answer that says "over", that answer was early, unless the key was revoked.
//! - *not before, in real time*: the lease was asked for (or renewed) after `asked`, so it lasts at
//!   least until `asked + ttl`, less what the manager's clock was behind at that moment if it was
//!   behind by more than it promises: an overloaded machine can do that to a coarse clock.
//! - *not after*: an operation that begins when the manager's clock has reached the deadline, and
//!   still succeeds, brought a dead lease back.

use std::time::{Duration, Instant};

use tenure::{
    FencingToken, Lease, LockManager, Mode, OwnerId, ReleaseError, RenewError, RevokeError,
    Timestamp, ValidateError,
};

use super::key::{Before, KeyCheck};
use super::lateness::Lateness;
use super::resource::Refusal;
use super::schedule::DriverWaits;
use super::tally::{Tally, Violation};

/// What all workers work on.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) manager: LockManager,
    /// The keys `0..checked.len()`.
    pub(super) checked: Vec<KeyCheck>,
    /// When the run began: the origin of published promises.
    pub(super) begin: Instant,
    pub(super) ttl: Duration,
    pub(super) driver: DriverWaits,
    pub(super) lateness: Lateness,
    /// A moment at which the manager's clock was behind by next to nothing.
    in_step: (Timestamp, Instant),
}

/// Both clocks, read before a call: the manager's first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    clock: Timestamp,
    pub(super) real: Instant,
}

impl Stage {
    /// A stage for `manager`; looks at both clocks until it has seen them in step.
    pub(super) fn new(manager: LockManager, checked: Vec<KeyCheck>, ttl: Duration) -> Self {
        let begin = Instant::now();
        let mut in_step = (manager.now(), Instant::now());
        while begin.elapsed() < IN_STEP {
            let (clock, real) = (manager.now(), Instant::now());
            let gained = clock.saturating_duration_since(in_step.0);
            if gained > real.duration_since(in_step.1) {
                in_step = (clock, real);
            }
        }
        Self {
            manager,
            checked,
            begin,
            ttl,
            driver: DriverWaits::new(),
            lateness: Lateness::new(),
            in_step,
        }
    }

    /// Reads both clocks, before a call.
    pub(super) fn ask(&self) -> Asked {
        Asked {
            clock: self.manager.now(),
            real: Instant::now(),
        }
    }

    /// Records the token of a grant that has returned; it must be above all that had returned before
    /// it was asked for.
    pub(super) fn granted(&self, key: u32, token: FencingToken, before: Before, tally: &mut Tally) {
        if token.get() <= before.highest {
            tally.violate(Violation::TokenRegression, || {
                format!("key {key}: granted {token} after {}", before.highest)
            });
        }
        self.checked[key as usize].granted(token);
    }

    /// Ends the leases of a key, as an operator does.
    pub(super) fn revoke(&self, key: u32, tally: &mut Tally) {
        let check = &self.checked[key as usize];
        let highest = check.before().highest;
        check.begin_revocation();
        let answer = self.manager.revoke(key);
        check.end_revocation();
        match answer {
            Ok(holder) => {
                // Of several, the first is named, and others may have come after it.
                if holder.mode == Mode::Exclusive && holder.token.get() < highest {
                    tally.violate(Violation::TokenRegression, || {
                        format!("key {key}: revoked {} after {highest}", holder.token)
                    });
                }
            }
            Err(RevokeError::NotHeld) => {}
            Err(error) => tally.violate(Violation::UnexpectedError, || {
                format!("revoking key {key}: {error}")
            }),
        }
    }

    /// How far behind the manager's clock was, at most.
    fn clock_lag(&self, asked: Asked) -> Duration {
        let real = asked.real.duration_since(self.in_step.1);
        real.saturating_sub(asked.clock.saturating_duration_since(self.in_step.0))
    }

    /// Until when a lease granted or renewed after `asked` lasts in real time, at least.
    fn until(&self, asked: Asked, tally: &mut Tally) -> Instant {
        let lag = self.clock_lag(asked);
        tally.clock_lag = tally.clock_lag.max(lag);
        let excused = if lag > EXCUSED_LAG {
            lag
        } else {
            Duration::ZERO
        };
        asked.real + self.ttl.saturating_sub(excused)
    }
}

/// How long both clocks are watched at the start.
const IN_STEP: Duration = Duration::from_millis(10);
/// From here on what the clock is behind is taken off the real time that a lease must last. Below
/// the clock's resolution, so that its error of measurement accuses nobody.
const EXCUSED_LAG: Duration = Duration::from_micros(500);

/// A lease as its holder sees it, kept by guard or by token alone.
#[derive(Debug)]
pub(super) struct Holding<'s> {
    stage: &'s Stage,
    key: u32,
    owner: OwnerId,
    mode: Mode,
    token: FencingToken,
    /// `None` once detached: then everything goes by token.
    guard: Option<Lease<'s>>,
    /// What was known before the lease was asked for.
    before: Before,
    /// The lease lasts at least until then.
    until: Instant,
    /// The manager's word for the same.
    deadline: Timestamp,
    /// What [`KeyCheck::promise`] published.
    promise: u64,
}

impl<'s> Holding<'s> {
    /// Takes over a grant that was asked for at `asked` and answered at `answered`, and checks it
    /// against what was known before.
    pub(super) fn new(
        stage: &'s Stage,
        key: u32,
        guard: Lease<'s>,
        before: Before,
        (asked, answered): (Asked, Instant),
        tally: &mut Tally,
    ) -> Self {
        let mut holding = Self {
            stage,
            key,
            owner: guard.owner(),
            mode: guard.mode(),
            token: guard.token(),
            before,
            until: stage.until(asked, tally),
            deadline: guard.deadline(),
            promise: 0,
            guard: Some(guard),
        };
        let check = holding.check();
        let token = holding.token;
        stage.granted(key, token, before, tally);
        if check.broke_promise(before, answered - stage.begin) {
            tally.violate(Violation::EarlyExpiry, || {
                format!("key {key}: granted with token {token} while another lease had time left")
            });
        }
        holding.long_enough(asked, holding.deadline, tally);
        holding.publish();
        holding
    }

    /// Its token.
    pub(super) fn token(&self) -> FencingToken {
        self.token
    }

    /// The words that all workers share about this key.
    pub(super) fn check(&self) -> &'s KeyCheck {
        &self.stage.checked[self.key as usize]
    }

    /// Until when the lease lasts at least.
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// Gives up the guard and goes by token from here.
    pub(super) fn detach(&mut self) {
        if let Some(guard) = self.guard.take() {
            guard.detach();
        }
    }

    /// What a crash does to a guard: nothing runs, the lease stays.
    pub(super) fn forget(&mut self) {
        if let Some(guard) = self.guard.take() {
            std::mem::forget(guard);
        }
    }

    /// Whether the lease is live; the answer is checked.
    pub(super) fn is_live(&self, tally: &mut Tally) -> bool {
        let begun = self.stage.manager.now();
        let live = match &self.guard {
            Some(guard) => guard.is_live(),
            None => match self.stage.manager.validate(self.key, self.token) {
                Ok(holder) => {
                    if holder.token != self.token || holder.owner != self.owner {
                        tally.violate(Violation::UnexpectedError, || {
                            format!("key {}: validate named {holder:?}", self.key)
                        });
                    }
                    true
                }
                Err(ValidateError::Expired { .. }) => false,
                Err(error) => {
                    self.unexpected(&error, tally);
                    false
                }
            },
        };
        if live {
            self.not_after(begun, "live", tally);
        } else {
            self.not_before("not live", tally);
        }
        live
    }

    /// Renews for the run's TTL; whether that was granted.
    pub(super) fn renew(&mut self, tally: &mut Tally) -> bool {
        let ttl = self.stage.ttl;
        let asked = self.stage.ask();
        let renewed = match &self.guard {
            Some(guard) => guard.renew(ttl),
            None => self.stage.manager.renew(self.key, self.token, ttl),
        };
        match renewed {
            Ok(deadline) => {
                self.not_after(asked.clock, "renewed", tally);
                self.long_enough(asked, deadline, tally);
                if deadline < self.deadline {
                    tally.violate(Violation::EarlyExpiry, || {
                        format!("key {}: a renewal shortened the lease", self.key)
                    });
                }
                self.deadline = deadline;
                self.until = self.until.max(self.stage.until(asked, tally));
                self.publish();
                tally.renewals += 1;
                true
            }
            Err(RenewError::Expired { .. }) => {
                self.not_before("renewal refused", tally);
                false
            }
            Err(error) => {
                self.unexpected(&error, tally);
                false
            }
        }
    }

    /// Releases the lease, through the guard or by token.
    pub(super) fn release(mut self, tally: &mut Tally) {
        self.check().withdraw(self.promise);
        let begun = self.stage.manager.now();
        let released = match self.guard.take() {
            Some(guard) => guard.release(),
            None => self.stage.manager.release(self.key, self.token),
        };
        match released {
            Ok(()) => {
                self.not_after(begun, "released", tally);
                tally.releases += 1;
            }
            Err(ReleaseError::Expired { .. }) => {
                self.not_before("release refused", tally);
                tally.late_releases += 1;
            }
            Err(error) => self.unexpected(&error, tally),
        }
    }

    /// One passage through the critical section, if there is time enough for it to prove anything.
    pub(super) fn critical_section(&self, spins: u32, tally: &mut Tally) {
        if Instant::now() + self.stage.ttl / 4 >= self.until || !self.is_live(tally) {
            return;
        }
        let check = self.check();
        let passage = check.enter(self.token);
        check.work(spins);
        let (live, intruder) = check.exit(&passage, || self.is_live(tally));
        if live {
            tally.sections += 1;
        } else {
            tally.lapsed_sections += 1;
        }
        if let Some(intruder) = intruder {
            tally.violate(Violation::Exclusion, || {
                let (key, token) = (self.key, self.token);
                format!("key {key}: {intruder} was inside while the lease of {token} was live")
            });
        }
        if let Some((plain, atomic)) = passage.miscount {
            tally.violate(Violation::Exclusion, || {
                format!("key {}: counted {plain} of {atomic} sections", self.key)
            });
        }
    }

    /// Reads the resource; `None` if it has seen a later token.
    pub(super) fn read(&self, tally: &mut Tally) -> Option<u64> {
        match self.check().read(self.token) {
            Ok(seen) => Some(seen),
            Err(refusal) => {
                self.refused(&refusal, tally);
                None
            }
        }
    }

    /// Writes what follows from an earlier read.
    pub(super) fn write(&self, seen: u64, tally: &mut Tally) {
        match self.check().write(self.token, seen + 1) {
            Ok(()) => tally.accepted_writes += 1,
            Err(refusal) => self.refused(&refusal, tally),
        }
    }

    fn refused(&self, refusal: &Refusal, tally: &mut Tally) {
        match refusal.stale() {
            Some(_) => self.rejected(tally),
            None => self.unexpected(refusal, tally),
        }
    }

    /// The resource has seen a later token, so a later lease was granted: ours can't be live.
    fn rejected(&self, tally: &mut Tally) {
        tally.rejected_writes += 1;
        if self.is_live(tally) {
            tally.violate(Violation::Exclusion, || {
                let (key, token) = (self.key, self.token);
                format!("key {key}: the write of {token} was rejected while its lease was live")
            });
        }
    }

    /// Whoever shares the key is promised nothing that others could break.
    fn publish(&mut self) {
        if self.mode != Mode::Exclusive {
            return;
        }
        let until = self.until - self.stage.begin;
        self.promise = self.check().promise(until, self.before.revocations);
    }

    /// An operation that began at `begun` succeeded: the deadline must have been ahead.
    fn not_after(&self, begun: Timestamp, what: &str, tally: &mut Tally) {
        if begun >= self.deadline {
            tally.violate(Violation::Resurrection, || {
                let late = begun.saturating_duration_since(self.deadline);
                format!(
                    "key {}: {what} {late:?} past the deadline of {}",
                    self.key, self.token
                )
            });
        }
    }

    /// The manager named a deadline: it must be a whole TTL away.
    fn long_enough(&self, asked: Asked, deadline: Timestamp, tally: &mut Tally) {
        let length = deadline.saturating_duration_since(asked.clock);
        if length < self.stage.ttl {
            tally.violate(Violation::EarlyExpiry, || {
                format!("key {}: {} was given only {length:?}", self.key, self.token)
            });
        }
    }

    /// The manager has just said that the lease is over: its time must have passed.
    fn not_before(&self, what: &str, tally: &mut Tally) {
        let real = self.until.saturating_duration_since(Instant::now());
        let now = self.stage.manager.now();
        let left = self.deadline.saturating_duration_since(now).max(real);
        if !left.is_zero() && !self.check().may_be_revoked(self.before.revocations) {
            tally.violate(Violation::EarlyExpiry, || {
                format!(
                    "key {}: {what} with {left:?} left for {}",
                    self.key, self.token
                )
            });
        }
    }

    fn unexpected(&self, error: &dyn std::fmt::Display, tally: &mut Tally) {
        tally.violate(Violation::UnexpectedError, || {
            format!("key {}, token {}: {error}", self.key, self.token)
        });
    }
}
