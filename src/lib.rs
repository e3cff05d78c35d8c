#![doc = include_str!("../README.md")]

mod acquire;
mod builder;
mod checkpoint;
mod clock;
mod driver;
mod engine;
mod error;
mod events;
mod failpoint;
mod fence;
mod hold;
mod key;
mod lease;
mod locals;
mod lost;
mod manager;
mod metrics;
mod multi;
mod owed;
mod owner;
mod park;
mod process;
pub mod recipes;
mod records;
pub mod replica;
pub mod reservation;
pub mod resources;
#[cfg(feature = "retry")]
mod retry;
mod room;
mod session;
mod snapshot;
mod sync;
mod table;
mod time;
mod timeline;
mod token;
mod wheel;
mod wish;

pub use self::acquire::{Acquire, Upgrade};
pub use self::builder::Builder;
pub use self::checkpoint::{Checkpoint, RestoreError};
pub use self::clock::{Clock, CoarseClock, ManualClock, SystemClock};
pub use self::error::{
    AcquireError, BuildError, Cycle, ReleaseError, RenewError, RevokeError, SessionError,
    ValidateError,
};
pub use self::events::{Event, EventKind, Events, Missed};
pub use self::fence::{Fence, Fenced, StaleToken};
pub use self::key::{HashSeed, Key, ToKey};
pub use self::lease::Lease;
pub use self::lost::Lost;
pub use self::manager::{Holder, LockManager, Stats};
#[cfg(feature = "histograms")]
pub use self::metrics::Histograms;
pub use self::multi::{AcquireAll, MultiLease};
pub use self::owner::OwnerId;
#[cfg(feature = "retry")]
pub use self::retry::Retry;
pub use self::session::Session;
pub use self::snapshot::{HolderSnapshot, KeySnapshot, WaiterSnapshot};
pub use self::table::Loss;
pub use self::time::Timestamp;
pub use self::token::{FencingToken, TokenError};
pub use self::wish::Mode;

/// What the fuzz targets drive and the public interface does not show.
#[cfg(fuzzing)]
pub mod fuzzing {
    pub use crate::wheel::fuzz_wheel as wheel;
}

/// What the tests with failpoints name and the public interface does not show.
#[cfg(all(feature = "failpoints", not(any(tenure_loom, tenure_shuttle))))]
#[doc(hidden)]
pub mod failpoints {
    pub use crate::failpoint::POINTS;
}

/// What the benchmarks measure on its own and the public interface does not show.
#[cfg(all(feature = "internals", not(any(tenure_loom, tenure_shuttle))))]
#[doc(hidden)]
pub mod internals {
    pub use crate::wheel::internals::Timers;
}

#[cfg(doc)]
#[doc = include_str!("../EVIDENCE.md")]
pub mod evidence {}
