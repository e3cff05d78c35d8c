#![doc = include_str!("../README.md")]

mod acquire;
mod builder;
mod clock;
mod driver;
mod engine;
mod error;
mod fence;
mod key;
mod lease;
mod locals;
mod manager;
mod owner;
#[cfg(feature = "retry")]
mod retry;
mod sync;
mod table;
mod time;
mod timeline;
mod token;
mod waiters;
mod wheel;

pub use self::acquire::Acquire;
pub use self::builder::Builder;
pub use self::clock::{Clock, CoarseClock, ManualClock, SystemClock};
pub use self::error::{
    AcquireError, BuildError, ReleaseError, RenewError, RevokeError, ValidateError,
};
pub use self::fence::{Fence, Fenced, StaleToken};
pub use self::key::{HashSeed, Key, ToKey};
pub use self::lease::Lease;
pub use self::manager::{Holder, LockManager, Stats};
pub use self::owner::OwnerId;
#[cfg(feature = "retry")]
pub use self::retry::Retry;
pub use self::time::Timestamp;
pub use self::token::{FencingToken, TokenError};

/// What the fuzz targets drive and the public interface does not show.
#[cfg(fuzzing)]
pub mod fuzzing {
    pub use crate::wheel::fuzz_wheel as wheel;
}
