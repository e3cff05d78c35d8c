//! Many keys at once, all or nothing.
//!
//! The keys are acquired one after the other in the order of their identities, whoever asks, so that two
//! who want the same ones can't each hold what the other waits for (Havender, 1968). They are held in a
//! session of their own, which has no deadline while some are missing, and gets its deadline when the
//! last has been granted: one for all.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::acquire::Acquire;
use crate::engine::Request;
use crate::error::{AcquireError, RenewError, SessionError};
use crate::hold::Hold;
use crate::key::Key;
use crate::lease::bad_ttl;
use crate::lost::Lost;
use crate::owner::OwnerId;
use crate::park::block_on;
use crate::session::Session;
use crate::sync::Arc;
use crate::time::Timestamp;
use crate::token::FencingToken;
use crate::wish::Wish;

/// An acquisition of several keys, made by [`LockManager::acquire_all`](crate::LockManager::acquire_all):
/// a future of the guard of them all.
///
/// # Cancel safety
///
/// May be dropped at any time: what has been granted is given back, and nothing is held.
#[must_use = "an acquisition does nothing until it is awaited or waited for"]
pub struct AcquireAll<'m> {
    hold: Hold<'m>,
    /// In order, each once, with their names if the manager keeps names.
    keys: Vec<(Key, Option<Arc<str>>)>,
    owner: OwnerId,
    ttl: Duration,
    state: State<'m>,
}

enum State<'m> {
    New,
    Under(Box<Underway<'m>>),
    Done,
}

/// Some keys are held, and one is waited for. (Dropped in this order.)
struct Underway<'m> {
    next: Acquire<'m>,
    held: Vec<(Key, FencingToken)>,
    session: Session<'m>,
}

impl<'m> AcquireAll<'m> {
    pub(crate) fn new(
        hold: Hold<'m>,
        keys: Vec<(Key, Option<Arc<str>>)>,
        owner: OwnerId,
        ttl: Duration,
    ) -> Self {
        let mut keys = keys;
        keys.sort_unstable_by_key(|key| key.0);
        keys.dedup_by_key(|key| key.0);
        Self {
            hold,
            keys,
            owner,
            ttl,
            state: State::New,
        }
    }

    /// Blocks until all are granted.
    ///
    /// # Errors
    ///
    /// See [`LockManager::acquire_all`](crate::LockManager::acquire_all).
    pub fn wait(self) -> Result<MultiLease<'m>, AcquireError> {
        block_on(self, None).unwrap_or(Err(AcquireError::TimedOut))
    }

    /// Blocks for so long at most, for all of them together, in real time. If one is missing by then,
    /// nothing is held. Zero asks for each once, and never waits.
    ///
    /// # Errors
    ///
    /// Also [`AcquireError::TimedOut`].
    pub fn wait_timeout(self, timeout: Duration) -> Result<MultiLease<'m>, AcquireError> {
        let deadline = Instant::now().checked_add(timeout);
        block_on(self, deadline).unwrap_or(Err(AcquireError::TimedOut))
    }

    /// The same without the borrow, for a task of its own. Nothing has been asked for yet, or it starts
    /// anew.
    pub fn into_owned(mut self) -> AcquireAll<'static> {
        self.state = State::Done;
        AcquireAll {
            hold: self.hold.to_owned_hold(),
            keys: std::mem::take(&mut self.keys),
            owner: self.owner,
            ttl: self.ttl,
            state: State::New,
        }
    }

    fn begin(&self) -> Result<Underway<'m>, AcquireError> {
        if self.hold.is_closed() {
            return Err(AcquireError::Closed);
        }
        let engine = self.hold.engine();
        // Nobody but this future has it, and its drop ends it.
        let core = engine.open_session(self.owner, self.ttl, true)?;
        let session = Session::new(self.hold.clone(), core);
        Ok(Underway {
            next: self.ask(&session, 0),
            held: Vec::with_capacity(self.keys.len()),
            session,
        })
    }

    fn request(&self, key: Key) -> Request {
        Request {
            key,
            owner: self.owner.0,
            ttl: self.ttl,
            at_least: 0,
        }
    }

    /// The acquisition of the key at that place.
    fn ask(&self, session: &Session<'m>, at: usize) -> Acquire<'m> {
        let (key, name) = match self.keys.get(at) {
            Some((key, name)) => (*key, name.clone()),
            None => (Key::from_raw(0), None),
        };
        let mut wish = Wish::plain(self.request(key));
        wish.name = name;
        wish.session = Some(Arc::clone(session.core()));
        Acquire::new(self.hold.clone(), wish)
    }

    /// All are held: their time starts. `None` if one has been revoked meanwhile.
    fn complete(&self, underway: Underway<'m>) -> Result<Option<MultiLease<'m>>, AcquireError> {
        let engine = self.hold.engine();
        let Underway { session, held, .. } = underway;
        let now = engine.time.now();
        let deadline = engine
            .time
            .deadline(now, self.ttl)
            .map_err(|bad| self.request(Key::from_raw(0)).refused(Some(bad)))?;
        if session.len() < held.len() {
            return Ok(None);
        }
        // After the limit was read: if the authority is lost in between, the session is over.
        if !session
            .core()
            .set_deadline(engine.time.tick_of(now), deadline)
        {
            return Ok(None);
        }
        // The timer is set to the end of the manager's time, or nearly so.
        engine.set_session_timer(session.core());
        Ok(Some(MultiLease { session, held }))
    }

    fn finish(
        &mut self,
        result: Result<MultiLease<'m>, AcquireError>,
    ) -> Poll<Result<MultiLease<'m>, AcquireError>> {
        self.state = State::Done;
        Poll::Ready(result)
    }
}

impl<'m> Future for AcquireAll<'m> {
    type Output = Result<MultiLease<'m>, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        'anew: loop {
            let mut underway = match std::mem::replace(&mut self.state, State::Done) {
                State::Done => return Poll::Pending,
                State::Under(underway) => underway,
                State::New => match self.begin() {
                    Ok(underway) => Box::new(underway),
                    Err(error) => return self.finish(Err(error)),
                },
            };
            while underway.held.len() < self.keys.len() {
                match Pin::new(&mut underway.next).poll(context) {
                    Poll::Pending => {
                        self.state = State::Under(underway);
                        return Poll::Pending;
                    }
                    // Nobody else ends its session: the authority was lost, and what it had with it.
                    Poll::Ready(Err(AcquireError::SessionOver)) => {
                        self.state = State::New;
                        continue 'anew;
                    }
                    Poll::Ready(Err(error)) => return self.finish(Err(error)),
                    Poll::Ready(Ok(lease)) => {
                        // Its session holds it.
                        let key = lease.key();
                        underway.held.push((key, lease.detach()));
                        underway.next = self.ask(&underway.session, underway.held.len());
                    }
                }
            }
            match self.complete(*underway) {
                Ok(Some(all)) => return self.finish(Ok(all)),
                Err(error) => return self.finish(Err(error)),
                // What was left is given back, and all are asked for anew.
                Ok(None) => self.state = State::New,
            }
        }
    }
}

impl fmt::Debug for AcquireAll<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireAll")
            .field("keys", &self.keys)
            .field("owner", &self.owner)
            .field("ttl", &self.ttl)
            .finish_non_exhaustive()
    }
}

/// Leases on several keys with one deadline, as one guard: dropping it releases them all.
#[must_use = "dropping it releases the leases"]
pub struct MultiLease<'m> {
    session: Session<'m>,
    held: Vec<(Key, FencingToken)>,
}

impl MultiLease<'_> {
    /// The keys with their fencing tokens, in the order in which they were acquired.
    #[must_use]
    pub fn tokens(&self) -> &[(Key, FencingToken)] {
        &self.held
    }

    /// The fencing token of a key, as [`LockManager::key`](crate::LockManager::key) gives it; `None` if it
    /// is not among them. Takes time in the logarithm of their number.
    #[must_use]
    pub fn token(&self, key: Key) -> Option<FencingToken> {
        let at = self.held.binary_search_by_key(&key, |held| held.0).ok()?;
        Some(self.held[at].1)
    }

    /// Whom the leases were granted to.
    #[must_use]
    pub fn owner(&self) -> OwnerId {
        self.session.owner()
    }

    /// When all of them end if they are not renewed.
    #[must_use]
    pub fn deadline(&self) -> Timestamp {
        self.session.deadline()
    }

    /// Whether they are in force. (One that was revoked is not; the others are.)
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.session.is_live()
    }

    /// Makes all of them last for `ttl` from now, and returns the deadline. Never shortens it. One
    /// compare-and-swap, whatever their number.
    ///
    /// # Errors
    ///
    /// As [`Lease::renew`](crate::Lease::renew), with the token of the first key.
    pub fn renew(&self, ttl: Duration) -> Result<Timestamp, RenewError> {
        let hold = self.session.hold();
        if hold.is_closed() {
            return Err(RenewError::Closed);
        }
        let time = &hold.engine().time;
        let now = time.now();
        let deadline = time.deadline(now, ttl).map_err(|bad| bad_ttl(ttl, bad))?;
        match self.session.core().keep_alive(time.tick_of(now), deadline) {
            Some(deadline) => Ok(time.start_of(deadline)),
            None => Err(RenewError::Expired {
                token: self.held.first().map_or(FencingToken::MIN, |held| held.1),
            }),
        }
    }

    /// Resolves when they are over. (Not if only some of them are revoked.)
    pub fn lost(&self) -> Lost {
        self.session.lost()
    }

    /// Gives all of them back.
    ///
    /// # Errors
    ///
    /// As [`Session::close`].
    pub fn release(self) -> Result<(), SessionError> {
        self.session.close()
    }
}

impl fmt::Debug for MultiLease<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiLease")
            .field("held", &self.held)
            .field("deadline", &self.deadline())
            .finish_non_exhaustive()
    }
}
