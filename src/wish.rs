//! What an acquisition asks for: the whole of it, with the options that a plain one doesn't have.

use std::time::Duration;

use crate::engine::Request;
use crate::session::SessionCore;
use crate::sync::Arc;

/// Who else may hold a key at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Mode {
    /// Nobody.
    #[default]
    Exclusive,
    /// Others who share it.
    Shared,
    /// Others who hold permits, up to so many in all.
    Permit {
        /// The number of permits of the key, as this acquisition sees it.
        of: u32,
    },
}

/// The greatest number of permits.
pub(crate) const MAX_PERMITS: u32 = (1 << 30) - 1;

impl Mode {
    /// In 32 bits, for a guard.
    pub(crate) fn code(self) -> u64 {
        match self {
            Self::Exclusive => 0,
            Self::Shared => 1,
            Self::Permit { of } => 2 | u64::from(of) << 2,
        }
    }

    pub(crate) fn from_code(code: u64) -> Self {
        match code & 3 {
            0 => Self::Exclusive,
            1 => Self::Shared,
            _ => Self::Permit {
                of: (code >> 2) as u32,
            },
        }
    }

    /// Whether who holds the key in this mode has all that the other one gives.
    pub(crate) fn covers(self, other: Self) -> bool {
        self == Self::Exclusive || self == other
    }
}

/// What else a lease is subject to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    /// After an unclean end, nobody is granted the key for so long.
    pub(crate) lock_delay: Duration,
    /// Nobody else is granted the key for so long, if the lease is released before.
    pub(crate) min_hold: Duration,
    /// The manager renews the lease, for so long at most.
    pub(crate) max_hold: Option<Duration>,
}

/// An acquisition's wish.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) request: Request,
    pub(crate) mode: Mode,
    pub(crate) reentrant: bool,
    pub(crate) terms: Terms,
    pub(crate) session: Option<Arc<SessionCore>>,
    /// The token of the shared lease that is to become this exclusive one.
    pub(crate) upgrade: Option<u64>,
    /// The key's name, if the manager keeps names.
    pub(crate) name: Option<Arc<str>>,
}

impl Wish {
    pub(crate) fn plain(request: Request) -> Self {
        Self {
            request,
            mode: Mode::Exclusive,
            reentrant: false,
            terms: Terms::default(),
            session: None,
            upgrade: None,
            name: None,
        }
    }

    /// Whether the table can hold such a lease: all others are held by the key's record.
    pub(crate) fn is_plain(&self) -> bool {
        self.mode == Mode::Exclusive && self.terms == Terms::default() && self.session.is_none()
    }
}
