//! What a sequence of operations on leases of all modes is made of. Numbers are choices, taken modulo what
//! there is to choose from, so that any bytes make a meaningful sequence.

use tenure::Mode;

use super::spec::{FIRST_OF_SESSIONS, KEYS, SESSIONS, Wish};

/// In which mode a key is asked for.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
pub(crate) enum Way {
    Exclusive,
    Shared,
    Permit(u8),
}

/// What an acquisition asks for. Terms are seldom: see [`seldom`].
#[derive(Clone, Copy, Debug)]
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
pub(crate) struct Asked {
    pub(crate) key: u8,
    pub(crate) owner: u8,
    pub(crate) ttl: u8,
    pub(crate) way: Way,
    pub(crate) reentrant: u8,
    pub(crate) lock_delay: u8,
    pub(crate) min_hold: u8,
    pub(crate) max_hold: u8,
    /// In which session, if that is open.
    pub(crate) session: u8,
}

/// One step.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
pub(crate) enum Operation {
    /// With patience it waits.
    Acquire {
        asked: Asked,
        waits: bool,
    },
    /// Looks at one that waits.
    Poll(u8),
    /// Gives up one that waits, whether it has been granted meanwhile or not.
    Cancel(u8),
    /// Of a guard, as those below.
    Release(u8),
    Drop(u8),
    Renew(u8, u8),
    Upgrade {
        guard: u8,
        ttl: u8,
        waits: bool,
    },
    Downgrade(u8),
    /// Its end is to be told.
    Watch(u8),
    /// From now on it is known by its token only.
    Detach(u8),
    /// Of a lease that is known by its token.
    ReleaseByToken(u8),
    RenewByToken(u8, u8),
    Validate(u8),
    Revoke(u8),
    OpenSession(u8, u8),
    KeepAlive(u8),
    CloseSession(u8),
    /// Ticks pass one by one, and the wheel turns at each.
    Pass(u8),
    /// Ticks pass all at once, and the wheel turns after them.
    Leap(u8),
    /// Plain leases on many other keys, so that the table grows.
    Crowd {
        from: u16,
        count: u16,
        ttl: u8,
    },
    /// Their ends, so that it shrinks.
    Disperse {
        from: u16,
        count: u16,
    },
    /// A checkpoint, and a manager that is made of it.
    Restore,
}

/// What kind of world a sequence runs in.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
pub(crate) struct Setting {
    /// Somebody follows events.
    pub(crate) followed: bool,
    /// The manager keeps names and times.
    pub(crate) introspection: bool,
}

/// From one tick to twelve.
pub(crate) fn ticks(choice: u8) -> u64 {
    1 + u64::from(choice) % 12
}

/// One choice in eight is a length, of up to fifteen ticks; all others are 0, for none.
fn seldom(choice: u8) -> u64 {
    if choice % 8 == 1 {
        u64::from(choice) / 8 % 16
    } else {
        0
    }
}

impl Asked {
    pub(crate) fn wish(self) -> Wish {
        let session = match usize::from(self.session) % 8 {
            slot if slot < SESSIONS => Some(slot),
            _ => None,
        };
        Wish {
            key: u64::from(self.key) % KEYS,
            owner: match session {
                Some(slot) => FIRST_OF_SESSIONS + slot as u64,
                None => u64::from(self.owner) % 3,
            },
            ttl: ticks(self.ttl),
            mode: match self.way {
                Way::Exclusive => Mode::Exclusive,
                Way::Shared => Mode::Shared,
                Way::Permit(of) => Mode::Permit {
                    of: 1 + u32::from(of) % 3,
                },
            },
            reentrant: self.reentrant % 3 == 1,
            lock_delay: seldom(self.lock_delay),
            min_hold: seldom(self.min_hold),
            // Of one length for a key, so that no entry's limit is before that of an earlier one.
            max_hold: (self.max_hold % 8 == 1).then_some(7 + u64::from(self.key) % KEYS),
            session,
        }
    }
}
