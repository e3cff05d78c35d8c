//! The resource side: rejecting the writes of holders whose time is over.
//!
//! A lease can't stop its holder. The holder may be paused (a garbage collection, a swapped page, a
//! suspended machine) for longer than its lease and then go on as if nothing had happened. So the
//! resource itself remembers the highest fencing token that it has seen, and refuses lower ones
//! (M. Kleppmann, "How to do distributed locking", 2016).
//!
//! Remembering and writing must be *one* step. If a token is checked first and the write follows
//! separately, a pause fits in between, and that is the pause that fencing is there for:
//!
//! ```text
//!   A, token 33                   B, token 34                 resource
//!   check(33): Ok                                             highest 33
//!   ... paused past its lease
//!                                 granted 34
//!                                 check(34): Ok               highest 34
//!                                 write "B"                   "B"
//!   ... wakes up
//!   write "A"                                                 "A"   B's write is lost
//! ```
//!
//! [`Fenced`] makes check and write one step. [`Fence`] is the check alone; see there for when that
//! is enough.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::FencingToken;

/// A token was presented after a higher one: its holder's lease is over, and nothing was written.
///
/// ```
/// use tenure::{Fence, FencingToken};
///
/// let (old, new) = (FencingToken::new(33)?, FencingToken::new(34)?);
/// let fence = Fence::new();
/// fence.check(new).expect("nothing higher was seen");
/// let stale = fence.check(old).unwrap_err();
/// assert_eq!((stale.presented, stale.highest), (old, new));
/// # Ok::<(), tenure::TokenError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StaleToken {
    /// The token that was presented.
    pub presented: FencingToken,
    /// The highest token that the resource has seen.
    pub highest: FencingToken,
}

impl fmt::Display for StaleToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "fencing token {} is stale: token {} was seen before it, so the lease is over; drop \
             this write, acquire the lease again and start from what the resource holds now",
            self.presented, self.highest
        )
    }
}

impl std::error::Error for StaleToken {}

/// Remembers the highest fencing token presented and rejects lower ones.
///
/// A token equal to the highest is accepted: one holder may write many times.
///
/// # When it is enough
///
/// A check followed by a separate write is a race (shown at [`Fenced`]). Use a bare `Fence` only
/// where the check and the write can't be torn apart:
///
/// - one thread applies all writes in order (an actor, the apply loop of a replicated log);
/// - the check runs inside the transaction, or under the lock, that does the write;
/// - as an early refusal, in front of a resource that checks the token again as it writes.
///
/// In every other case use [`Fenced`], or make the write itself conditional, as in
/// `UPDATE … SET value = $1, token = $2 WHERE id = $3 AND token <= $2`.
///
/// The fence lives in memory. If the resource outlives the process, store its highest token with
/// the data and pass it to [`with_highest`](Self::with_highest) at the start, or a holder from
/// before the restart is let in.
///
/// ```
/// use tenure::{Fence, FencingToken};
///
/// let fence = Fence::new();
/// assert!(fence.check(FencingToken::new(33)?).is_ok());
/// assert!(fence.check(FencingToken::new(34)?).is_ok());
/// assert!(fence.check(FencingToken::new(34)?).is_ok());
/// assert!(fence.check(FencingToken::new(33)?).is_err());
/// # Ok::<(), tenure::TokenError>(())
/// ```
#[derive(Debug, Default)]
pub struct Fence {
    /// The highest token seen; 0, which is no token, before the first.
    highest: AtomicU64,
}

impl Fence {
    /// A fence that has seen no token yet and accepts any.
    ///
    /// ```
    /// static FENCE: tenure::Fence = tenure::Fence::new();
    /// assert_eq!(FENCE.highest(), None);
    /// ```
    #[must_use]
    pub const fn new() -> Self {
        Self::with_highest(None)
    }

    /// A fence that goes on from a highest token that was stored earlier.
    ///
    /// ```
    /// use tenure::{Fence, FencingToken};
    ///
    /// let fence = Fence::with_highest(Some(FencingToken::new(34)?));
    /// assert!(fence.check(FencingToken::new(33)?).is_err());
    /// # Ok::<(), tenure::TokenError>(())
    /// ```
    #[must_use]
    pub const fn with_highest(highest: Option<FencingToken>) -> Self {
        let highest = match highest {
            Some(token) => token.get(),
            None => 0,
        };
        Self {
            highest: AtomicU64::new(highest),
        }
    }

    /// Accepts `token`, and from then on refuses every lower one.
    ///
    /// Lock-free: one load for a token that is the highest already, one atomic maximum for a new
    /// one. Says nothing about a write that follows; see [`Fence`] for when that is safe.
    ///
    /// # Errors
    ///
    /// [`StaleToken`] if a higher token was accepted before. The caller's lease is over.
    ///
    /// ```
    /// use tenure::{Fence, FencingToken};
    ///
    /// let fence = Fence::new();
    /// fence.check(FencingToken::MIN).expect("the first token is accepted");
    /// ```
    #[inline]
    pub fn check(&self, token: FencingToken) -> Result<(), StaleToken> {
        // The word only rises, so a verdict from any value of it that is above or equal to the
        // token stands. AcqRel and Acquire pair with each other: whoever is refused sees all that
        // the newer holder did before it presented its token.
        let mut highest = self.highest.load(Ordering::Acquire);
        if highest < token.get() {
            highest = self.highest.fetch_max(token.get(), Ordering::AcqRel);
        }
        match FencingToken::new(highest) {
            Ok(highest) if highest > token => Err(StaleToken {
                presented: token,
                highest,
            }),
            _ => Ok(()),
        }
    }

    /// The highest token accepted so far, to be stored with the data.
    ///
    /// ```
    /// use tenure::{Fence, FencingToken};
    ///
    /// let fence = Fence::new();
    /// let _ = fence.check(FencingToken::MIN);
    /// assert_eq!(fence.highest(), Some(FencingToken::MIN));
    /// ```
    #[must_use]
    pub fn highest(&self) -> Option<FencingToken> {
        FencingToken::new(self.highest.load(Ordering::Acquire)).ok()
    }
}

/// A value that checks the writer's fencing token and takes the write under one lock.
///
/// The lock is what makes it safe. With a check followed by a separate write, this can happen:
///
/// ```text
///   A, token 33                   B, token 34                 value
///   check(33): Ok
///   ... paused past its lease
///                                 check(34): Ok
///                                 write "B"                   "B"
///   ... wakes up
///   write "A"                                                 "A"   B's write is lost
/// ```
///
/// With `Fenced`, A's check and write come either both before B's or both after it, and after it
/// they are refused.
///
/// The closures run under that lock: it belongs to this value alone, and no lock of the manager is
/// held meanwhile. So closures of one value exclude each other, should be short, and must not use
/// the same `Fenced` again: it would wait for itself for ever.
///
/// A panic in a closure goes on to the caller, and the lock is free again. The value is not
/// poisoned: it stays as the closure left it, and the token stays accepted. If a half-done write
/// would be wrong, build the new value first and put it in place as the closure's last step.
///
/// ```
/// use tenure::{Fenced, FencingToken};
///
/// let (a, b) = (FencingToken::new(33)?, FencingToken::new(34)?);
/// let account = Fenced::new(100);
/// assert_eq!(account.write(b, |balance| *balance -= 30), Ok(()));
/// // A was paused past its lease and wakes up:
/// assert!(account.write(a, |balance| *balance = 0).is_err());
/// assert_eq!(account.read(|balance| *balance), 70);
/// # Ok::<(), tenure::TokenError>(())
/// ```
#[derive(Debug, Default)]
pub struct Fenced<T> {
    guarded: Mutex<Guarded<T>>,
}

#[derive(Debug, Default)]
struct Guarded<T> {
    highest: Option<FencingToken>,
    value: T,
}

impl<T> Fenced<T> {
    /// Wraps a value that no token has written yet.
    ///
    /// ```
    /// assert_eq!(tenure::Fenced::new("free").highest(), None);
    /// ```
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self::with_highest(value, None)
    }

    /// Wraps a value that was stored together with the highest token that wrote it.
    ///
    /// ```
    /// use tenure::{Fenced, FencingToken};
    ///
    /// let row = Fenced::with_highest("B", Some(FencingToken::new(34)?));
    /// assert!(row.write(FencingToken::new(33)?, |value| *value = "A").is_err());
    /// # Ok::<(), tenure::TokenError>(())
    /// ```
    #[must_use]
    pub const fn with_highest(value: T, highest: Option<FencingToken>) -> Self {
        Self {
            guarded: parking_lot::const_mutex(Guarded { highest, value }),
        }
    }

    /// Runs `f` on the value if no higher token was ever presented; check and write are one step.
    ///
    /// Costs one uncontended lock (two atomic operations) and the closure; waits while another
    /// thread is in a closure of this value. What a panic leaves behind is said at [`Fenced`].
    ///
    /// # Errors
    ///
    /// [`StaleToken`] if a higher token was presented before: `f` did not run.
    ///
    /// ```
    /// use tenure::{Fenced, FencingToken};
    ///
    /// let log = Fenced::new(Vec::new());
    /// let length = log.write(FencingToken::MIN, |log| {
    ///     log.push("opened");
    ///     log.len()
    /// });
    /// assert_eq!(length, Ok(1));
    /// ```
    pub fn write<R>(
        &self,
        token: FencingToken,
        f: impl FnOnce(&mut T) -> R,
    ) -> Result<R, StaleToken> {
        let mut guarded = self.guarded.lock();
        match guarded.highest {
            Some(highest) if highest > token => Err(StaleToken {
                presented: token,
                highest,
            }),
            _ => {
                // Before the closure: if it panics, a lower token must not come after it.
                guarded.highest = Some(token);
                Ok(f(&mut guarded.value))
            }
        }
    }

    /// Runs `f` on the value; reading needs no token.
    ///
    /// What it sees may be overwritten as soon as it returns: to act on it, do so inside
    /// [`write`](Self::write). Costs the same lock.
    ///
    /// ```
    /// assert_eq!(tenure::Fenced::new(5).read(|value| value + 1), 6);
    /// ```
    pub fn read<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        f(&self.guarded.lock().value)
    }

    /// The highest token presented so far, to be stored with the value.
    ///
    /// Read apart from the value it may belong to a later write; store both from one
    /// [`write`](Self::write), whose token is the highest while it runs.
    ///
    /// ```
    /// use tenure::{Fenced, FencingToken};
    ///
    /// let value = Fenced::new(0);
    /// let _ = value.write(FencingToken::MIN, |value| *value = 1);
    /// assert_eq!(value.highest(), Some(FencingToken::MIN));
    /// ```
    #[must_use]
    pub fn highest(&self) -> Option<FencingToken> {
        self.guarded.lock().highest
    }

    /// Gives the value back and forgets the token.
    ///
    /// ```
    /// assert_eq!(tenure::Fenced::new("free").into_inner(), "free");
    /// ```
    #[must_use]
    pub fn into_inner(self) -> T {
        self.guarded.into_inner().value
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    fn token(value: u64) -> FencingToken {
        FencingToken::new(value).unwrap()
    }

    #[test]
    fn a_lower_token_is_refused_and_both_numbers_are_named() {
        let fence = Fence::new();
        assert_eq!(fence.highest(), None);
        assert_eq!(fence.check(token(34)), Ok(()));
        assert_eq!(fence.check(token(34)), Ok(()));
        let stale = fence.check(token(33)).unwrap_err();
        assert_eq!((stale.presented, stale.highest), (token(33), token(34)));
        let text = stale.to_string();
        assert!(
            text.contains("33") && text.contains("34") && text.contains("acquire"),
            "{text}"
        );
        // The refused token changed nothing.
        assert_eq!(fence.highest(), Some(token(34)));
        assert_eq!(fence.check(FencingToken::MAX), Ok(()));
        assert_eq!(
            fence.check(token(i64::MAX as u64 - 1)).unwrap_err().highest,
            FencingToken::MAX
        );
    }

    #[test]
    fn a_restored_fence_still_refuses_what_it_refused_before() {
        let fence = Fence::with_highest(Some(token(34)));
        assert!(fence.check(token(33)).is_err());
        assert_eq!(fence.check(token(34)), Ok(()));
        let fenced = Fenced::with_highest(0, Some(token(34)));
        assert!(fenced.write(token(33), |value| *value = 1).is_err());
        assert_eq!(fenced.into_inner(), 0);
    }

    #[test]
    fn accepted_tokens_never_fall_whatever_the_threads_do() {
        // After its own check returned, a thread must find every lower token refused.
        let fence = Fence::new();
        let start = Barrier::new(4);
        thread::scope(|scope| {
            for lane in 0..4_u64 {
                let (fence, start) = (&fence, &start);
                scope.spawn(move || {
                    start.wait();
                    for step in 0..20_000 {
                        let mine = token(2 + step * 4 + lane);
                        match fence.check(mine) {
                            Ok(()) => assert!(fence.check(token(mine.get() - 1)).is_err()),
                            Err(stale) => assert!(stale.highest > mine),
                        }
                        assert!(fence.highest() >= Some(mine));
                    }
                });
            }
        });
        assert_eq!(fence.highest(), Some(token(2 + 19_999 * 4 + 3)));
    }

    #[test]
    fn a_late_write_is_refused_and_its_closure_does_not_run() {
        let fenced = Fenced::new(String::from("free"));
        fenced
            .write(token(34), |value| *value = "B".into())
            .unwrap();
        let refused = fenced.write(token(33), |_| panic!("a refused write ran"));
        assert_eq!(refused.unwrap_err().highest, token(34));
        assert_eq!(fenced.read(String::clone), "B");
        assert_eq!(fenced.highest(), Some(token(34)));
        assert_eq!(fenced.write(token(34), |value| value.len()), Ok(1));
    }

    #[test]
    fn tokens_of_accepted_writes_never_fall() {
        let fenced = Fenced::new(Vec::new());
        let start = Barrier::new(4);
        thread::scope(|scope| {
            for lane in 0..4_u64 {
                let (fenced, start) = (&fenced, &start);
                scope.spawn(move || {
                    start.wait();
                    for step in 0..5_000 {
                        let mine = token(1 + step * 4 + lane);
                        let _ = fenced.write(mine, |log| log.push(mine));
                    }
                });
            }
        });
        let log = fenced.into_inner();
        assert!(log.is_sorted());
        assert_eq!(log.last(), Some(&token(20_000)));
    }

    #[test]
    fn a_panic_in_a_write_keeps_the_value_and_the_token_and_frees_the_lock() {
        let fenced = Fenced::new(1);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            fenced.write(token(5), |value| {
                *value = 2;
                panic!("halfway");
            })
        }));
        assert!(outcome.is_err());
        assert_eq!(fenced.read(|value| *value), 2);
        assert!(fenced.write(token(4), |value| *value = 3).is_err());
        assert_eq!(fenced.write(token(5), |value| *value), Ok(2));
    }
}
