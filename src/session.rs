//! Sessions: one TTL over any number of leases.

use std::collections::HashMap;
use std::fmt;
use std::sync::Weak;
use std::time::Duration;

use foldhash::fast::RandomState;

use crate::acquire::Acquire;
use crate::engine::{Engine, Request};
use crate::error::{AcquireError, SessionError};
use crate::hold::Hold;
use crate::key::{Key, ToKey};
use crate::lease::Lease;
use crate::lost::{Lost, Signal};
use crate::owner::OwnerId;
use crate::records::{Waiter, add_watch, add_weak};
use crate::sync::{Arc, AtomicU64, Mutex, Ordering};
use crate::table::Loss;
use crate::time::Timestamp;
use crate::timeline::BadTtl;
use crate::wish::{Terms, Wish};

/// What the engine knows of a session.
///
/// | word | the session | becomes |
/// |---|---|---|
/// | `deadline << 2` | lives up to that tick | a later deadline, or over |
/// | `deadline << 2 \| OVER` | has expired | nothing else, ever |
/// | `deadline << 2 \| OVER \| CLOSED` | was closed | nothing else, ever |
///
/// Whoever acts on a deadline that has passed first sets `OVER`, by a CAS on the word with that
/// deadline: so a keep-alive that comes later fails, and one that came before makes the CAS fail.
#[derive(Debug)]
pub(crate) struct SessionCore {
    pub(crate) id: u64,
    pub(crate) owner: u64,
    pub(crate) ttl: Duration,
    word: AtomicU64,
    pub(crate) book: Mutex<Book>,
}

/// What a session has to see to when it ends.
#[derive(Debug, Default)]
pub(crate) struct Book {
    /// Nothing is added any more.
    pub(crate) closed: bool,
    /// The timer's cell, while it has one.
    pub(crate) timer: Option<u32>,
    /// Its leases, with the hashes of their keys.
    pub(crate) held: HashMap<(Key, u64), u64, RandomState>,
    /// Its acquisitions that may wait; those that have ended are dropped now and then.
    pub(crate) waiters: Vec<Weak<Waiter>>,
    /// Who wants to know of its end.
    pub(crate) watches: Vec<Weak<Signal>>,
}

impl Book {
    /// False if the session is over.
    pub(crate) fn add_lease(&mut self, key: Key, token: u64, hash: u64) -> bool {
        if !self.closed {
            self.held.insert((key, token), hash);
        }
        !self.closed
    }

    /// Whether there is nothing to see to.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.waiters.is_empty() && self.watches.is_empty()
    }

    /// The manager is gone; those who want to know of it.
    pub(crate) fn close(&mut self) -> Vec<Weak<Signal>> {
        self.closed = true;
        std::mem::take(&mut self.watches)
    }

    /// False if the session is over.
    pub(crate) fn add_waiter(&mut self, waiter: &Arc<Waiter>) -> bool {
        if !self.closed {
            add_weak(&mut self.waiters, Arc::downgrade(waiter), |waiter| {
                waiter.strong_count() > 0
            });
        }
        !self.closed
    }
}

const OVER: u64 = 1;
const CLOSED: u64 = 2;
const FLAGS: u32 = 2;

impl SessionCore {
    pub(crate) fn new(id: u64, owner: u64, ttl: Duration, deadline: u64) -> Self {
        Self {
            id,
            owner,
            ttl,
            word: AtomicU64::new(deadline << FLAGS),
            book: Mutex::new(Book::default()),
        }
    }

    /// The deadline in ticks; 0 if it is over.
    pub(crate) fn until(&self) -> u64 {
        let word = self.word.load(Ordering::Acquire);
        if word & OVER == 0 { word >> FLAGS } else { 0 }
    }

    /// The last deadline that it had, over or not.
    pub(crate) fn deadline(&self) -> u64 {
        self.word.load(Ordering::Acquire) >> FLAGS
    }

    /// Whether it is over at that tick; if so, it is over for good.
    pub(crate) fn is_over(&self, now: u64) -> bool {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            if word & OVER != 0 {
                return true;
            }
            if word >> FLAGS > now {
                return false;
            }
            match self.change(word, word | OVER) {
                Ok(_) => return true,
                Err(other) => word = other,
            }
        }
    }

    /// Makes it last until that deadline at the least, and says which it has; `None` if it is over.
    pub(crate) fn keep_alive(&self, now: u64, deadline: u64) -> Option<u64> {
        self.move_deadline(now, |old| old.max(deadline))
    }

    /// Makes it end at that deadline, earlier or later; false if it is over.
    pub(crate) fn set_deadline(&self, now: u64, deadline: u64) -> bool {
        self.move_deadline(now, |_| deadline).is_some()
    }

    /// One CAS, if nobody else moves it; or none, if it stays.
    fn move_deadline(&self, now: u64, to: impl Fn(u64) -> u64) -> Option<u64> {
        while !self.is_over(now) {
            let word = self.word.load(Ordering::Acquire);
            if word & OVER != 0 {
                break;
            }
            let deadline = to(word >> FLAGS);
            if deadline == word >> FLAGS || self.change(word, deadline << FLAGS).is_ok() {
                return Some(deadline);
            }
        }
        None
    }

    /// Ends it before its time; false if it was over before.
    pub(crate) fn close(&self) -> bool {
        self.close_from(0)
    }

    /// Ends it if its deadline is not before that tick; false if it was over before.
    pub(crate) fn close_from(&self, tick: u64) -> bool {
        let mut word = self.word.load(Ordering::Acquire);
        while word & OVER == 0 && word >> FLAGS >= tick {
            match self.change(word, word | OVER | CLOSED) {
                Ok(_) => return true,
                Err(other) => word = other,
            }
        }
        false
    }

    /// Whether it was closed, and has not expired.
    pub(crate) fn was_closed(&self) -> bool {
        self.word.load(Ordering::Acquire) & CLOSED != 0
    }

    fn change(&self, from: u64, to: u64) -> Result<u64, u64> {
        self.word
            .compare_exchange(from, to, Ordering::SeqCst, Ordering::Acquire)
    }
}

/// One TTL over any number of leases: what ZooKeeper calls the owner of ephemeral nodes, etcd a lease and
/// Consul a session. Made by [`LockManager::session`](crate::LockManager::session).
///
/// Leases that are acquired in a session have no deadline of their own: all of them last as long as it
/// does, and one [`keep_alive`](Self::keep_alive) is for them all. When the session is closed, dropped, or
/// past its deadline, all its keys are free, and its acquisitions that still wait are told
/// [`SessionOver`](AcquireError::SessionOver). A session that is over stays over.
///
/// # Cost
///
/// A keep-alive is one compare-and-swap and a reading of the clock, whatever the number of leases. A lease
/// of a session takes some 900 bytes, and its grant and release a lock each: they are not lock-free.
/// While a key is shared in sessions, each operation on it takes time in the number of its holders.
/// Ending a session takes time in the number of its leases, on the thread that ends it or that turns the
/// wheel; but the leases are over at once, for whoever asks.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tenure::LockManager;
///
/// let locks = LockManager::new();
/// let session = locks.session(1, Duration::from_secs(10))?;
/// let a = session.try_acquire("a")?;
/// let b = session.try_acquire("b")?;
/// session.keep_alive()?;
/// session.close()?;
/// assert!(!a.is_live() && !b.is_live());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping a session closes it"]
pub struct Session<'m> {
    hold: Hold<'m>,
    core: Arc<SessionCore>,
    terms: Terms,
    /// False once another guard has taken its place.
    closes: bool,
}

impl<'m> Session<'m> {
    pub(crate) fn new(hold: Hold<'m>, core: Arc<SessionCore>) -> Self {
        Self {
            hold,
            core,
            terms: Terms::default(),
            closes: true,
        }
    }

    /// The keys of the leases that it acquires from now on are quarantined for so long if the session
    /// ends other than by [`close`](Self::close); see [`Acquire::lock_delay`]. Consul's default is 15 s.
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.terms.lock_delay = delay;
        self
    }

    /// Whom its leases are granted to.
    #[must_use]
    pub fn owner(&self) -> OwnerId {
        OwnerId(self.core.owner)
    }

    /// Its TTL.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.core.ttl
    }

    /// When it ends if it is not kept alive, or was to end, on the manager's clock.
    #[must_use]
    pub fn deadline(&self) -> Timestamp {
        self.hold.engine().time.start_of(self.core.deadline())
    }

    /// Whether it is in force.
    #[must_use]
    pub fn is_live(&self) -> bool {
        let time = &self.hold.engine().time;
        !self.hold.is_closed() && !self.core.is_over(time.tick_of(time.now()))
    }

    /// How many leases it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.core.book.lock().held.len()
    }

    /// Whether it holds no lease.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes it, and all its leases, last for its TTL from now, and returns its deadline. Never shortens
    /// it. One compare-and-swap at most, whatever the number of leases; lock-free.
    ///
    /// # Errors
    ///
    /// [`SessionError::Over`] if it is over: open another one. [`SessionError::AuthorityLost`] if the manager
    /// may not prolong it. [`SessionError::Closed`] if every handle of the manager is gone.
    pub fn keep_alive(&self) -> Result<Timestamp, SessionError> {
        if self.hold.is_closed() {
            return Err(SessionError::Closed);
        }
        let time = &self.hold.engine().time;
        let now = time.now();
        // A TTL that was good at the start is too long only at the end of the manager's time.
        let deadline = time.deadline(now, self.core.ttl).map_err(|bad| match bad {
            BadTtl::NoAuthority if !self.core.is_over(time.tick_of(now)) => {
                SessionError::AuthorityLost
            }
            _ => SessionError::Over,
        })?;
        match self.core.keep_alive(time.tick_of(now), deadline) {
            Some(deadline) => Ok(time.start_of(deadline)),
            None => Err(SessionError::Over),
        }
    }

    /// Grants a lease on `key` that lasts as long as the session, if nobody holds one. Never waits.
    ///
    /// # Errors
    ///
    /// As [`LockManager::try_acquire`](crate::LockManager::try_acquire), and
    /// [`SessionOver`](AcquireError::SessionOver).
    pub fn try_acquire(&self, key: impl ToKey) -> Result<Lease<'m>, AcquireError> {
        self.acquire(key).try_now()
    }

    /// The same as an acquisition that can wait, and takes options; see
    /// [`LockManager::acquire`](crate::LockManager::acquire).
    ///
    /// If the session ends first, it is told [`SessionOver`](AcquireError::SessionOver).
    pub fn acquire(&self, key: impl ToKey) -> Acquire<'m> {
        let request = Request {
            key: key.to_key(&self.hold.engine().seed),
            owner: self.core.owner,
            ttl: self.core.ttl,
            at_least: 0,
        };
        let mut wish = Wish::plain(request);
        wish.session = Some(Arc::clone(&self.core));
        wish.terms = self.terms;
        if self.hold.engine().keeps_names() {
            wish.name = key.name();
        }
        Acquire::new(self.hold.clone(), wish)
    }

    /// Resolves when the session is over, and says how. Whoever awaits it has a signal of its own.
    pub fn lost(&self) -> Lost {
        let signal = Signal::new();
        let mut book = self.core.book.lock();
        if book.closed {
            let closed = self.hold.is_closed();
            signal.set(if closed {
                Loss::Closed
            } else {
                Loss::SessionOver
            });
        } else {
            add_watch(&mut book.watches, Arc::downgrade(&signal), |watch| watch);
        }
        Lost::new(signal)
    }

    /// Ends it: its keys are free, and its acquisitions that wait are told so. Dropping it does the same
    /// and says nothing.
    ///
    /// # Errors
    ///
    /// [`SessionError::Over`] if it was over before; [`SessionError::Closed`] if every handle of the manager
    /// is gone.
    pub fn close(self) -> Result<(), SessionError> {
        if self.hold.is_closed() {
            return Err(SessionError::Closed);
        }
        if self.hold.engine().close_session(&self.core) {
            Ok(())
        } else {
            Err(SessionError::Over)
        }
    }

    /// The same session without the borrow: it can be stored, returned, sent to another thread.
    ///
    /// It doesn't keep the manager running: when the last [`LockManager`](crate::LockManager) handle is
    /// dropped, it is over.
    pub fn into_owned(self) -> Session<'static> {
        let mut this = self;
        this.closes = false;
        Session {
            hold: this.hold.to_owned_hold(),
            core: Arc::clone(&this.core),
            terms: this.terms,
            closes: true,
        }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if self.closes && !self.hold.is_closed() {
            self.hold.engine().close_session(&self.core);
        }
    }
}

impl fmt::Debug for Session<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("owner", &self.core.owner)
            .field("ttl", &self.core.ttl)
            .field("deadline", &self.deadline())
            .finish_non_exhaustive()
    }
}

impl<'m> Session<'m> {
    /// How to reach the engine.
    pub(crate) fn hold(&self) -> &Hold<'m> {
        &self.hold
    }

    pub(crate) fn core(&self) -> &Arc<SessionCore> {
        &self.core
    }
}

impl Engine {
    /// See [`LockManager::session`](crate::LockManager::session).
    pub(crate) fn session(
        &self,
        owner: OwnerId,
        ttl: Duration,
    ) -> Result<Session<'_>, AcquireError> {
        let core = self.open_session(owner, ttl, false)?;
        Ok(Session::new(Hold::Borrowed(self), core))
    }
}

/// A session's death against its being kept alive: the word, without the engine.
#[cfg(all(test, tenure_loom))]
mod loom_models {
    use super::*;
    use crate::sync::exploring::explore;
    use loom::thread;

    /// A keep-alive that was granted is kept: who looks at the old deadline, or at the new one before its
    /// time, finds the session alive. After one that was refused, it is over for everybody.
    #[test]
    fn loom_a_keep_alive_that_is_granted_is_kept() {
        explore(32, "", || {
            let core = Arc::new(SessionCore::new(1, 1, Duration::from_millis(10), 10));
            let keeper = {
                let core = Arc::clone(&core);
                // Its clock stands at 9.
                thread::spawn(move || core.keep_alive(9, 19))
            };
            // Ours says that the deadline has come.
            let over = core.is_over(10);
            let kept = keeper.join().expect("no panic");
            assert_eq!(kept.is_some(), !over, "one of them has decided");
            assert_eq!(core.is_over(18), over);
            assert_eq!(core.until(), if over { 0 } else { 19 });
            // Never revived.
            assert_eq!(core.keep_alive(9, 30).is_some(), !over);
        });
    }

    /// Closing against a keep-alive and against somebody who finds the deadline passed: over, once.
    #[test]
    fn loom_a_session_ends_once() {
        explore(32, "", || {
            let core = Arc::new(SessionCore::new(1, 1, Duration::from_millis(10), 10));
            let closer = {
                let core = Arc::clone(&core);
                thread::spawn(move || core.close())
            };
            let other = {
                let core = Arc::clone(&core);
                thread::spawn(move || core.keep_alive(9, 19))
            };
            let again = core.close();
            let closed = closer.join().expect("no panic");
            let _ = other.join().expect("no panic");
            assert!(closed != again, "both or neither ended it");
            assert!(core.is_over(0), "over before any deadline");
        });
    }
}
