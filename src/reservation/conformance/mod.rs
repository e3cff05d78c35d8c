//! The tests that every [`Reservation`] has to pass, for the author of one to run (feature `conformance`).
//!
//! [`run`] opens clients of one shard, as often as it likes, and holds what they hand out against what the
//! trait promises. Each check is also a function of its own. All of them return a [`Failure`] that says
//! what was promised and what happened; none panics.
//!
//! ```
//! use tenure::reservation::conformance::{self, Failure, Options};
//! use tenure::reservation::Memory;
//!
//! // A `#[test]`, among those of the backend.
//! fn my_backend_keeps_the_promises() -> Result<(), Failure> {
//!     let shard = Memory::new();
//!     conformance::run(&Options::shared(), || Ok(shard.clone()))
//! }
//! # my_backend_keeps_the_promises()?;
//! # Ok::<(), Failure>(())
//! ```
//!
//! | check | what must hold | for |
//! |---|---|---|
//! | [`blocks_are_as_asked_for`] | a block has as many tokens as were asked for, 1 or 2^40, and is above the one before | all |
//! | [`blocks_rise_through_crashes`] | so it is when clients are dropped without resigning, and opened anew | all |
//! | [`blocks_of_many_clients_never_overlap`] | and when many threads open clients at once | all |
//! | [`without_authority_it_is_for_ever`] | a backend without authority always wins, and for ever | without authority |
//! | [`a_second_client_is_refused`] | a shard that is open can't be opened again, until it is closed | one at a time |
//! | [`a_contender_is_handed_nothing`] | who has no authority gets no blocks, and disturbs nobody | elected |
//! | [`patience_is_kept_to`] | a campaign for what somebody holds ends in time, with `Held` | elected |
//! | [`authority_passes_on_after_resigning`] | before its term is over, and who resigned is handed nothing | elected |
//! | [`a_kept_authority_stays`] | nobody wins it while it is kept alive | elected |
//! | [`authority_passes_on_after_its_term`] | and not a moment before | elected, real time |
//! | [`after_a_loss_nothing_is_handed_out`] | until the next campaign, even if nobody has the shard then | elected, real time |
//! | [`the_last_token_is_the_end`] | `Exhausted`, and nothing handed out; what is left can still be had | all; last, since it uses the shard up |
//!
//! What happens to a backend when its disk is full, its server is killed or its network is cut off can't be
//! brought about from here: that is for the backend's own tests.
//!
//! All checks hold in real time on a busy machine: nothing is concluded from something that took long,
//! except where a limit says so ([`Options::slack`]).

mod authority;
mod blocks;
mod client;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use super::{Reservation, ReservationError};

pub use self::authority::{
    a_contender_is_handed_nothing, a_kept_authority_stays, a_second_client_is_refused,
    after_a_loss_nothing_is_handed_out, authority_passes_on_after_its_term,
    authority_passes_on_after_resigning, patience_is_kept_to, without_authority_it_is_for_ever,
};
pub use self::blocks::{
    blocks_are_as_asked_for, blocks_of_many_clients_never_overlap, blocks_rise_through_crashes,
    the_last_token_is_the_end,
};

/// Puts a backend through every check that is meant for its kind, and stops at the first that fails.
///
/// Each call of `open` makes a new client of the *same* shard, which must not be used by anybody else
/// meanwhile. It must have at least 2^62 tokens left, and has none left afterwards.
///
/// With [`elected`](Options::elected), it takes about ten times the term, and less than a second
/// otherwise, besides what the backend itself needs for about a thousand reservations.
///
/// # Errors
///
/// The first check that failed.
///
/// ```
/// use tenure::reservation::conformance::{self, Options};
/// use tenure::reservation::Memory;
///
/// let shard = Memory::new();
/// conformance::run(&Options::shared(), || Ok(shard.clone()))?;
/// // Each `Memory` has a counter of its own, so these are no clients of one shard.
/// let failure = conformance::run(&Options::shared(), || Ok(Memory::new())).unwrap_err();
/// assert_eq!(failure.check(), "blocks_rise_through_crashes");
/// # Ok::<(), conformance::Failure>(())
/// ```
pub fn run<R: Reservation>(
    options: &Options,
    open: impl Fn() -> Result<R, ReservationError> + Sync,
) -> Result<(), Failure> {
    let open = &open;
    blocks_are_as_asked_for(options, open)?;
    blocks_rise_through_crashes(options, open)?;
    blocks_of_many_clients_never_overlap(options, open)?;
    match options.clients {
        Clients::Shared => without_authority_it_is_for_ever(options, open)?,
        Clients::OneAtATime => {
            without_authority_it_is_for_ever(options, open)?;
            a_second_client_is_refused(options, open)?;
        }
        Clients::Elected { .. } => {
            a_contender_is_handed_nothing(options, open)?;
            patience_is_kept_to(options, open)?;
            authority_passes_on_after_resigning(options, open)?;
            a_kept_authority_stays(options, open)?;
            if options.real_time {
                authority_passes_on_after_its_term(options, open)?;
                after_a_loss_nothing_is_handed_out(options, open)?;
            }
        }
    }
    the_last_token_is_the_end(options, open)
}

/// What kind of backend it is, and how thoroughly to look.
///
/// ```
/// use std::time::Duration;
/// use tenure::reservation::conformance::Options;
///
/// let options = Options::elected(Duration::from_secs(2)).threads(8).slack(Duration::from_secs(10));
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    clients: Clients,
    threads: usize,
    rounds: usize,
    real_time: bool,
    slack: Duration,
}

/// How many clients a shard can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clients {
    Shared,
    OneAtATime,
    Elected { term: Duration },
}

impl Options {
    const fn new(clients: Clients) -> Self {
        Self {
            clients,
            threads: 4,
            rounds: 20,
            real_time: true,
            slack: Duration::from_secs(5),
        }
    }

    /// A backend without authority, of which any number of clients are handed blocks at the same time: a
    /// counter.
    ///
    /// ```
    /// let options = tenure::reservation::conformance::Options::shared();
    /// ```
    #[must_use]
    pub const fn shared() -> Self {
        Self::new(Clients::Shared)
    }

    /// A backend that can be opened once at a time, and says `Held` to everybody else: a locked file.
    ///
    /// ```
    /// let options = tenure::reservation::conformance::Options::one_at_a_time();
    /// ```
    #[must_use]
    pub const fn one_at_a_time() -> Self {
        Self::new(Clients::OneAtATime)
    }

    /// A backend with authority for a term, which is the longest that [`Reservation::keep_alive`] ever says.
    /// The shorter it is, the quicker are the checks; one of less than a second may be over before a busy
    /// machine comes to use it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::reservation::conformance::Options;
    ///
    /// let options = Options::elected(Duration::from_secs(1));
    /// ```
    #[must_use]
    pub const fn elected(term: Duration) -> Self {
        Self::new(Clients::Elected { term })
    }

    /// How many threads open clients at once; 4 by default.
    ///
    /// ```
    /// let options = tenure::reservation::conformance::Options::shared().threads(16);
    /// ```
    #[must_use]
    pub const fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// How often clients are opened, by each thread and in turn; 20 by default. An elected client that
    /// crashes keeps the next one waiting for a term, so that those are fewer.
    ///
    /// ```
    /// let options = tenure::reservation::conformance::Options::shared().rounds(100);
    /// ```
    #[must_use]
    pub const fn rounds(mut self, rounds: usize) -> Self {
        self.rounds = rounds;
        self
    }

    /// Whether to run the checks that wait for terms to end; by default, they are run.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::reservation::conformance::Options;
    ///
    /// let quick = Options::elected(Duration::from_secs(60)).real_time(false);
    /// ```
    #[must_use]
    pub const fn real_time(mut self, real_time: bool) -> Self {
        self.real_time = real_time;
        self
    }

    /// How late the backend may be: in giving a campaign up when patience is over, and in passing authority on
    /// when a term is over. 5 s by default.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::reservation::conformance::Options;
    ///
    /// let strict = Options::shared().slack(Duration::from_millis(500));
    /// ```
    #[must_use]
    pub const fn slack(mut self, slack: Duration) -> Self {
        self.slack = slack;
        self
    }

    /// How long an authority lasts, if there is such a thing.
    const fn term(&self) -> Option<Duration> {
        match self.clients {
            Clients::Elected { term } => Some(term),
            Clients::Shared | Clients::OneAtATime => None,
        }
    }
}

/// A promise that the backend didn't keep.
///
/// It is formatted for people with `{:?}` as well, so that a test which returns it is readable.
///
/// ```
/// use tenure::reservation::Memory;
/// use tenure::reservation::conformance::{Options, blocks_rise_through_crashes};
///
/// let failure = blocks_rise_through_crashes(&Options::shared(), || Ok(Memory::new())).unwrap_err();
/// assert!(failure.to_string().starts_with("blocks_rise_through_crashes: "));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Failure {
    check: &'static str,
    what: String,
}

impl Failure {
    /// The check that failed, by the name of its function.
    ///
    /// ```
    /// use tenure::reservation::Memory;
    /// use tenure::reservation::conformance::{Options, blocks_rise_through_crashes};
    ///
    /// let failure = blocks_rise_through_crashes(&Options::shared(), || Ok(Memory::new())).unwrap_err();
    /// assert_eq!(failure.check(), "blocks_rise_through_crashes");
    /// ```
    #[must_use]
    pub const fn check(&self) -> &'static str {
        self.check
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.check, self.what)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Failure {}
