//! What each command does. Nothing here may hang on what this replica has been through: not on how a manager
//! counts, when it was made or where a lease stands, and not on which of two errors it knows.

use std::time::Duration;

use super::{Command, Outcome, Refusal, Replica};
use crate::engine::{Acquired, Denied, Request, Seen};
use crate::error::AcquireError;
use crate::key::Key;
use crate::owner::OwnerId;
use crate::table::Unrenewed;
use crate::time::Timestamp;
use crate::token::FencingToken;
use crate::wish::{MAX_PERMITS, Mode, Wish};

/// Why a command did not do what it asks for.
pub(super) enum Failed {
    Refused(Refusal),
    NotHeld,
    OutOfMemory,
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Replica {
    pub(super) fn run(&self, command: &Command, log_index: u64) -> Result<Outcome, Failed> {
        match *command {
            Command::Acquire { .. } => self.acquire(command, log_index),
            Command::Renew { key, token, ttl } => self.renew(key, token, ttl),
            Command::Release { key, token } => {
                let name = self.engine().name(key, token.get());
                let released = self.engine().release_by_key(&name, self.now.as_nanos());
                released.map_err(|_| Failed::NotHeld)?;
                Ok(Outcome::Released)
            }
            Command::Revoke { key } => {
                let revoked = self.engine().revoke(key, self.now.as_nanos());
                let lease = |seen: &Seen| {
                    let token = FencingToken::granted(seen.contents.token);
                    (OwnerId(seen.contents.owner), token)
                };
                if revoked.is_empty() {
                    return Err(Failed::NotHeld);
                }
                Ok(Outcome::Revoked {
                    leases: revoked.iter().map(lease).collect(),
                })
            }
            Command::Upgrade { key, token, ttl } => self.upgrade(key, token, ttl, log_index),
            Command::Downgrade { key, token } => self.downgrade(key, token),
            Command::Advance => Ok(Outcome::Advanced),
        }
    }

    fn acquire(&self, command: &Command, log_index: u64) -> Result<Outcome, Failed> {
        let Command::Acquire {
            key,
            owner,
            ttl,
            mode,
            reentrant,
            lock_delay,
            min_hold,
        } = *command
        else {
            return Err(Failed::NotHeld);
        };
        self.check_ttl(ttl)?;
        for length in [lock_delay, min_hold] {
            if length > self.max_ttl {
                let max = self.max_ttl;
                return Err(Refusal::TermTooLong { length, max }.into());
            }
        }
        if let Mode::Permit { of } = mode
            && !(1..=MAX_PERMITS).contains(&of)
        {
            return Err(Refusal::Permits { of }.into());
        }
        let mut wish = Wish::plain(Request {
            key,
            owner: owner.0,
            ttl,
            at_least: 0,
        });
        wish.mode = mode;
        let enters = reentrant && self.engine().enters(&wish, self.now.as_nanos());
        wish.reentrant = enters;
        if !enters {
            // To enter a lease is no grant, and asks for no token.
            wish.request.at_least = log_index;
        }
        wish.terms.lock_delay = lock_delay;
        wish.terms.min_hold = min_hold;
        let acquired = self.engine().enter_now(&wish);
        if enters && matches!(acquired, Err(Denied::Held { .. })) {
            return Err(Failed::OutOfMemory);
        }
        let acquired = acquired.map_err(|denied| self.failed(denied))?;
        let (token, deadline) = self.granted(&acquired);
        Ok(if enters {
            Outcome::Entered { token, deadline }
        } else {
            Outcome::Granted { token, deadline }
        })
    }

    fn renew(&self, key: Key, token: FencingToken, ttl: Duration) -> Result<Outcome, Failed> {
        self.check_ttl(ttl)?;
        let engine = self.engine();
        let now = self.now.as_nanos();
        let deadline = engine.time.deadline(now, ttl);
        let deadline = deadline.map_err(|_| Failed::OutOfMemory)?;
        match engine.renew_by_key(&engine.name(key, token.get()), deadline, now) {
            Ok((deadline, _)) => Ok(Outcome::Renewed {
                deadline: engine.time.start_of(deadline),
            }),
            Err(Unrenewed::NoMemory) => Err(Failed::OutOfMemory),
            Err(Unrenewed::Ended(_) | Unrenewed::InSession) => Err(Failed::NotHeld),
        }
    }

    fn upgrade(
        &self,
        key: Key,
        token: FencingToken,
        ttl: Duration,
        log_index: u64,
    ) -> Result<Outcome, Failed> {
        self.check_ttl(ttl)?;
        let lease = self.seen(key, token)?;
        if lease.mode != Mode::Shared {
            return Err(Refusal::Mode { mode: lease.mode }.into());
        }
        let mut wish = Wish::plain(Request {
            key,
            owner: lease.contents.owner,
            ttl,
            at_least: log_index,
        });
        wish.upgrade = Some(token.get());
        let upgraded = self.engine().upgrade_now(&wish);
        let acquired = upgraded.map_err(|denied| self.failed(denied))?;
        let (token, deadline) = self.granted(&acquired);
        Ok(Outcome::Granted { token, deadline })
    }

    fn downgrade(&self, key: Key, token: FencingToken) -> Result<Outcome, Failed> {
        let lease = self.seen(key, token)?;
        if let Mode::Permit { .. } = lease.mode {
            return Err(Refusal::Mode { mode: lease.mode }.into());
        }
        let name = self.engine().name(key, token.get());
        // It is there, so only room for its record can be wanting.
        let shared = self.engine().downgrade(&name);
        shared.map_err(|_| Failed::OutOfMemory)?;
        Ok(Outcome::Downgraded)
    }

    fn seen(&self, key: Key, token: FencingToken) -> Result<Seen, Failed> {
        let name = self.engine().name(key, token.get());
        let seen = self.engine().validate(&name, self.now.as_nanos());
        seen.map_err(|_| Failed::NotHeld)
    }

    /// The replica's own limits: a manager's hang on when it was made.
    fn check_ttl(&self, ttl: Duration) -> Result<(), Failed> {
        let min = Duration::from_nanos(1);
        if ttl < min {
            return Err(Refusal::TtlTooShort { ttl, min }.into());
        }
        if ttl > self.max_ttl {
            let max = self.max_ttl;
            return Err(Refusal::TtlTooLong { ttl, max }.into());
        }
        match self.now.checked_add(ttl) {
            Some(deadline) if deadline <= self.end => Ok(()),
            _ => Err(Refusal::EndOfTime { end: self.end }.into()),
        }
    }

    fn failed(&self, denied: Denied) -> Failed {
        let refusal = match denied.into() {
            AcquireError::Held {
                owner,
                token,
                remaining,
            } => Refusal::Held {
                owner,
                token,
                remaining,
            },
            AcquireError::Delayed { remaining } => Refusal::Delayed { remaining },
            // Never a number of leases: of these there are fewer.
            AcquireError::CapacityExceeded { capacity } if capacity == u32::MAX as usize => {
                Refusal::TooManyEntries { most: u32::MAX }
            }
            AcquireError::CapacityExceeded { .. } if self.engine().is_full() => {
                Refusal::CapacityExceeded {
                    capacity: self.max_leases as u64,
                }
            }
            // All else was checked before, as that a lease to upgrade is there, or is about waiting.
            _ => return Failed::OutOfMemory,
        };
        refusal.into()
    }

    fn granted(&self, acquired: &Acquired) -> (FencingToken, Timestamp) {
        let deadline = self.engine().time.start_of(acquired.deadline);
        (FencingToken::granted(acquired.token), deadline)
    }
}
