//! What the backends behind a network share: one runtime, time limits, and further attempts.
//!
//! A [`Reservation`](super::Reservation) is called by threads that wait, and its backends are asynchronous.
//! All of them run on one runtime with one thread, however many shards a process has. Connections are looked
//! after there between calls too, so that a server that went away is noticed before it is asked again.

use std::fmt;
use std::future::Future;
use std::io;
use std::mem;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::{Instant, sleep, timeout};

use super::ReservationError;
use crate::process::Process;

/// Between two attempts. A server that restarts is back within a second or so.
pub(super) const PAUSE: Duration = Duration::from_millis(50);

/// The longest name of a shard or a candidate, in bytes: an etcd key and a `PostgreSQL` notification hold it.
const LONGEST_NAME: usize = 512;

/// A dead holder keeps its shard for a term, so longer ones are mistakes.
const LONGEST_TERM: Duration = Duration::from_secs(24 * 3600);

/// Why a backend could not be set up.
///
/// ```
/// use std::time::Duration;
/// use tenure::reservation::ConnectError;
///
/// let error = ConnectError::Timeout {
///     timeout: Duration::from_secs(9),
///     term: Duration::from_secs(3),
/// };
/// assert!(error.to_string().contains("shorter"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectError {
    /// The backend can't keep an authority for such a time.
    Term {
        /// What was asked for.
        term: Duration,
        /// The shortest term of this backend; the longest is a day.
        shortest: Duration,
        /// Terms of this backend are whole multiples of that.
        step: Duration,
    },
    /// A call could outlast the authority, or may take no time at all.
    Timeout {
        /// What was asked for.
        timeout: Duration,
        /// The authority's term, below which it has to be.
        term: Duration,
    },
    /// The name of a shard, a candidate, a table or a prefix, or the address of a server, is unusable.
    Name {
        /// What it names.
        what: &'static str,
        /// What was given.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The server could not be asked, or what it stores is no reservation.
    Reservation(ReservationError),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Term {
                term,
                shortest,
                step,
            } => write!(
                f,
                "{term:?} is no term: give a multiple of {step:?}, from {shortest:?} to a day"
            ),
            Self::Timeout { timeout, term } => write!(
                f,
                "a time limit of {timeout:?} doesn't fit a term of {term:?}: give one that is above zero and \
                 shorter than the term, a third of it, say"
            ),
            Self::Name { what, name, reason } => {
                write!(f, "{name:?} does not name a {what}: {reason}")
            }
            Self::Reservation(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Reservation(error) => Some(error),
            _ => None,
        }
    }
}

impl From<ReservationError> for ConnectError {
    fn from(error: ReservationError) -> Self {
        Self::Reservation(error)
    }
}

/// A shard or a candidate: not empty, no control characters, and not longer than a key may be.
pub(super) fn check_name(what: &'static str, name: &str) -> Result<(), ConnectError> {
    let reason = if name.is_empty() {
        "it is empty"
    } else if name.len() > LONGEST_NAME {
        "it is longer than 512 bytes"
    } else if name.chars().any(char::is_control) {
        "it has control characters"
    } else {
        return Ok(());
    };
    Err(ConnectError::Name {
        what,
        name: name.to_owned(),
        reason: reason.to_owned(),
    })
}

pub(super) fn check_term(
    term: Duration,
    shortest: Duration,
    step: Duration,
) -> Result<(), ConnectError> {
    let whole = term.as_nanos().is_multiple_of(step.as_nanos());
    if whole && (shortest..=LONGEST_TERM).contains(&term) {
        Ok(())
    } else {
        Err(ConnectError::Term {
            term,
            shortest,
            step,
        })
    }
}

/// The time limit of a call: as given, or a third of the term, so that a second attempt fits in.
pub(super) fn time_limit(
    given: Option<Duration>,
    term: Duration,
) -> Result<Duration, ConnectError> {
    let timeout = given.unwrap_or(term / 3);
    // Below a millisecond, PostgreSQL would take the limit of a statement for none.
    if timeout < Duration::from_millis(1) || timeout >= term {
        return Err(ConnectError::Timeout { timeout, term });
    }
    Ok(timeout)
}

/// What a candidate is called if the user gave it no name.
pub(super) fn default_name() -> String {
    format!("process {}", std::process::id())
}

pub(super) fn unavailable(reason: impl Into<String>) -> ReservationError {
    ReservationError::Unavailable {
        reason: reason.into(),
    }
}

/// Why one attempt came to nothing.
#[derive(Debug)]
pub(super) enum Fault {
    /// Trouble on the way; another attempt, over another connection, may do better.
    Passing(String),
    /// The answer.
    Final(ReservationError),
}

impl From<ReservationError> for Fault {
    fn from(error: ReservationError) -> Self {
        Self::Final(error)
    }
}

/// One candidate's connection and what it knows.
pub(super) trait Remote {
    /// Has the next attempt connect anew.
    fn disconnect(&mut self);

    /// How long one attempt may take, of a call with that limit.
    fn attempt_limit(&self, limit: Duration) -> Duration;
}

/// Attempts until one succeeds or fails for good, within the limit.
///
/// So an attempt may be cut off at any await, or repeat one that was carried out and not answered: it must
/// be none the worse for it.
pub(super) async fn persist<R: Remote, T>(
    remote: &mut R,
    limit: Duration,
    mut attempt: impl AsyncFnMut(&mut R) -> Result<T, Fault>,
) -> Result<T, ReservationError> {
    let until = Instant::now() + limit;
    let mut before = String::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let each = remote.attempt_limit(limit).min(left);
        let reason = match timeout(each, attempt(remote)).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(Fault::Final(error))) => {
                if matches!(error, ReservationError::Unavailable { .. }) {
                    remote.disconnect();
                }
                return Err(error);
            }
            Ok(Err(Fault::Passing(reason))) => reason,
            Err(_) => format!("no answer within {each:?}{before}"),
        };
        // A connection that brings no answers may be dead without anybody having been told.
        remote.disconnect();
        if until.saturating_duration_since(Instant::now()) <= PAUSE {
            return Err(unavailable(reason));
        }
        before = format!(", and before that: {reason}");
        sleep(PAUSE).await;
    }
}

/// The moment from which on a wait of that length is over.
pub(super) fn moment(after: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(365 * 24 * 3600);
    Instant::now() + after.min(FAR)
}

/// Runs what it makes to its end, from whatever thread.
///
/// Costs a thread if the caller's is inside a runtime, where blocking on a future is not allowed: the caller
/// waits for that one instead. That holds up one thread of the caller's runtime, and never this one's.
pub(super) fn block_on<T, F>(make: impl FnOnce() -> F + Send) -> Result<T, ReservationError>
where
    T: Send,
    F: Future<Output = Result<T, ReservationError>>,
{
    let runtime = runtime().map_err(|error| unavailable(format!("no thread for it: {error}")))?;
    let runtime = &runtime.1;
    if Handle::try_current().is_err() {
        return runtime.block_on(make());
    }
    thread::scope(|scope| {
        let call = thread::Builder::new()
            .name("tenure-call".to_owned())
            .spawn_scoped(scope, || runtime.block_on(make()))
            .map_err(|error| unavailable(format!("no thread for it: {error}")))?;
        call.join()
            .unwrap_or_else(|_| Err(unavailable("the call panicked: report it")))
    })
}

/// The runtime of this process. Never dropped, since a runtime must not be dropped inside another.
///
/// A child that was forked has a copy without its thread, which nothing would ever wake: it gets one of its own.
fn runtime() -> io::Result<Arc<(Process, Runtime)>> {
    /// Replaced after a fork. (No lock, that a thread could hold as the process forks.)
    static RUNTIME: ArcSwapOption<(Process, Runtime)> = ArcSwapOption::const_empty();
    let this = Process::this();
    loop {
        let before = RUNTIME.load_full();
        if let Some(runtime) = &before
            && runtime.0 == this
        {
            return Ok(Arc::clone(runtime));
        }
        let built = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("tenure-remote")
            .enable_all()
            .build()?;
        let built = Arc::new((this, built));
        let found = RUNTIME.compare_and_swap(&before, Some(Arc::clone(&built)));
        if same(found.as_ref(), before.as_ref()) {
            // The parent's, if there is one, is not to be ended here.
            mem::forget(before);
        } else if let Ok((_, second)) = Arc::try_unwrap(built).map_err(mem::forget) {
            second.shutdown_background();
        }
    }
}

fn same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Flaky {
        attempts: u32,
        connections: u32,
    }

    impl Remote for Flaky {
        fn disconnect(&mut self) {
            self.connections += 1;
        }

        fn attempt_limit(&self, limit: Duration) -> Duration {
            limit
        }
    }

    #[test]
    fn a_call_from_inside_a_runtime_is_answered_and_neither_panics() {
        let answer = || block_on(|| async { Ok(Handle::current().runtime_flavor()) });
        let outside = answer().unwrap();
        for mut kind in [Builder::new_current_thread(), Builder::new_multi_thread()] {
            let inside = kind.build().unwrap().block_on(async { answer() });
            assert_eq!(inside.as_ref(), Ok(&outside));
        }
    }

    #[test]
    fn an_attempt_that_failed_in_passing_is_made_again_over_a_new_connection() {
        let mut remote = Flaky::default();
        let limit = Duration::from_secs(5);
        let made = block_on(|| {
            persist(&mut remote, limit, async |remote: &mut Flaky| {
                remote.attempts += 1;
                match remote.attempts {
                    3 => Ok(remote.attempts),
                    _ => Err(Fault::Passing("not yet".to_owned())),
                }
            })
        });
        assert_eq!((made, remote.connections), (Ok(3), 2));
    }

    #[test]
    fn a_final_answer_ends_the_attempts() {
        let mut remote = Flaky::default();
        let limit = Duration::from_secs(5);
        let made = block_on(|| {
            persist(&mut remote, limit, async |remote: &mut Flaky| {
                remote.attempts += 1;
                Err::<(), _>(Fault::Final(ReservationError::Lost))
            })
        });
        assert_eq!((made, remote.attempts), (Err(ReservationError::Lost), 1));
    }

    #[test]
    fn silence_is_unavailable_when_the_time_is_over() {
        let mut remote = Flaky::default();
        let limit = Duration::from_millis(20);
        let made = block_on(|| {
            persist(&mut remote, limit, async |_: &mut Flaky| {
                std::future::pending::<Result<(), Fault>>().await
            })
        });
        assert!(matches!(made, Err(ReservationError::Unavailable { .. })));
        assert_eq!(remote.connections, 1);
    }

    #[test]
    fn a_wait_may_last_for_a_year_and_a_longer_one_is_no_panic() {
        let (begun, year) = (Instant::now(), Duration::from_secs(365 * 86_400));
        for wait in [Duration::ZERO, year / 2, year] {
            assert!(moment(wait) >= begun + wait, "{wait:?}");
        }
        assert!(moment(Duration::MAX) >= begun + year);
    }

    #[test]
    fn terms_limits_and_names_that_cannot_work_are_refused() {
        let (second, day) = (Duration::from_secs(1), Duration::from_secs(86_400));
        assert!(check_term(2 * second, 2 * second, second).is_ok());
        for term in [second, second * 5 / 2, day + second] {
            assert!(check_term(term, 2 * second, second).is_err(), "{term:?}");
        }
        assert_eq!(time_limit(None, 3 * second), Ok(second));
        for limit in [Duration::ZERO, second] {
            assert!(time_limit(Some(limit), second).is_err(), "{limit:?}");
        }
        let shortest = Duration::from_millis(1);
        assert_eq!(time_limit(Some(shortest), second), Ok(shortest));
        let shorter = Duration::from_micros(999);
        assert!(time_limit(Some(shorter), second).is_err());
        assert!(check_term(day, second, second).is_ok());
        assert!(check_name("shard", "orders/7").is_ok());
        assert!(check_name("shard", &"x".repeat(512)).is_ok());
        for name in ["", "a\0b", &"x".repeat(513)] {
            assert!(check_name("shard", name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn an_error_of_a_connection_says_what_was_asked_and_what_to_give() {
        let (term, second) = (Duration::from_secs(9), Duration::from_secs(1));
        let term_error = check_term(2 * LONGEST_TERM, 2 * second, second).unwrap_err();
        let limit_error = time_limit(Some(term), term).unwrap_err();
        let name_error = check_name("shard", "a\nb").unwrap_err();
        let unavailable = unavailable("no server answers");
        let error = ConnectError::from(unavailable.clone());
        for (error, parts) in [
            (&term_error, ["172800s", "multiple of 1s", "from 2s"]),
            (&limit_error, ["limit of 9s", "term of 9s", "shorter"]),
            (&name_error, [r#""a\nb""#, "shard", "control characters"]),
            (&error, ["no server answers"; 3]),
        ] {
            let text = error.to_string();
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
        let source =
            |error: &ConnectError| std::error::Error::source(error).map(ToString::to_string);
        assert_eq!(source(&error), Some(unavailable.to_string()));
        assert_eq!(source(&term_error), None);
    }

    #[test]
    fn a_candidate_without_a_name_is_called_by_its_process() {
        assert!(default_name().contains(&std::process::id().to_string()));
    }
}
