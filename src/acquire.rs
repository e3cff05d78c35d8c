//! An acquisition that waits for its turn: one state machine, polled by a task or by a blocked thread.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::engine::{Acquired, Entered, Request};
use crate::error::AcquireError;
use crate::hold::Hold;
use crate::lease::Lease;
use crate::owner::OwnerId;
use crate::park::block_on;
use crate::records::Waiter;
use crate::sync::Arc;
use crate::token::FencingToken;
use crate::wish::{Mode, Wish};

/// An acquisition made by [`LockManager::acquire`](crate::LockManager::acquire): a future of the lease.
///
/// Needs no particular runtime. Its place in the queue is taken at the first poll, or by one of the
/// blocking methods. The TTL counts from the grant.
///
/// # Cancel safety
///
/// May be dropped at any time: the place in the queue is given up, and a lease that was granted meanwhile
/// passes on to the next.
#[must_use = "an acquisition does nothing until it is awaited or waited for"]
pub struct Acquire<'m> {
    hold: Hold<'m>,
    wish: Wish,
    state: State,
}

#[derive(Debug)]
enum State {
    New,
    Waiting(Arc<Waiter>),
    Done,
}

impl<'m> Acquire<'m> {
    pub(crate) fn new(hold: Hold<'m>, wish: Wish) -> Self {
        Self {
            hold,
            wish,
            state: State::New,
        }
    }

    /// Asks for a shared lease: any number of owners may hold the key so at once, each with a token and a
    /// deadline of its own, and nobody holds it exclusively meanwhile.
    ///
    /// Who waits for an exclusive lease is not overtaken by those who come to share later.
    pub fn shared(mut self) -> Self {
        self.wish.mode = Mode::Shared;
        self
    }

    /// Asks for one of `of` permits of the key: a semaphore, whose permits are leases.
    ///
    /// The number is not kept with the key. Those who use it should agree on it; where they don't, each is
    /// granted a permit while fewer than its own number are out.
    pub fn permit(mut self, of: u32) -> Self {
        self.wish.mode = Mode::Permit { of };
        self
    }

    /// If the owner holds the key already, in this mode or exclusively and in the same session or none,
    /// enters that lease once more: the same token, a deadline that is never moved back, and the terms of
    /// all entries. (If that token is too low for [`at_least`](Self::at_least), it is in its own way.) The
    /// key is free when all guards of the lease have been released. Comes before all who wait.
    pub fn reentrant(mut self) -> Self {
        self.wish.reentrant = true;
        self
    }

    /// Asks for a token that is at least this; see
    /// [`try_acquire_at_least`](crate::LockManager::try_acquire_at_least).
    pub fn at_least(mut self, token: FencingToken) -> Self {
        self.wish.request.at_least = token.get();
        self
    }

    /// If the lease ends uncleanly (it expires, is revoked, or its session expires), nobody is granted the
    /// key for so long after that: time for what the holder has under way to come to an end, for resources
    /// that check no token. A clean release has no such effect. (The lock-delay of Chubby and Consul.)
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.wish.terms.lock_delay = delay;
        self
    }

    /// Nobody else is granted the key for so long from the grant, even if the lease is released before:
    /// for jobs that must not run twice on machines whose clocks differ. (The `lockAtLeastFor` of
    /// ShedLock.)
    pub fn min_hold(mut self, length: Duration) -> Self {
        self.wish.terms.min_hold = length;
        self
    }

    /// Has the manager renew the lease whenever a third of the TTL has passed, until it is released or
    /// has been held for `max_hold`. Then the lease ends, and [`Lease::lost`] says
    /// [`MaxHold`](crate::Loss::MaxHold).
    ///
    /// The thread that turns the wheel does it for all leases; no thread is added. If that thread is held up
    /// for longer than the TTL, the lease expires like any other. A lease that is kept lasts for three ticks
    /// at the least. In a session, which has to be kept alive anyhow, only the end at `max_hold` counts.
    pub fn auto_renew(mut self, max_hold: Duration) -> Self {
        self.wish.terms.max_hold = Some(max_hold);
        self
    }

    /// Grants the lease at once, or says why not. Never waits.
    ///
    /// # Errors
    ///
    /// Those of [`LockManager::try_acquire`](crate::LockManager::try_acquire), and
    /// [`Delayed`](AcquireError::Delayed).
    pub fn try_now(mut self) -> Result<Lease<'m>, AcquireError> {
        if self.hold.is_closed() {
            return Err(AcquireError::Closed);
        }
        let acquired = match self.state {
            State::New => self.hold.engine().enter_now(&self.wish),
            // It has a place in the queue, and gives that up.
            State::Waiting(_) | State::Done => return Err(AcquireError::TimedOut),
        };
        self.state = State::Done;
        match acquired {
            Ok(acquired) => Ok(self.lease(&acquired)),
            Err(denied) => Err(denied.into()),
        }
    }

    /// The same without the borrow, for a task of its own. The lease will be an owned one too.
    ///
    /// It doesn't keep the manager running: when the last [`LockManager`](crate::LockManager) handle is
    /// dropped, it says [`Closed`](AcquireError::Closed).
    pub fn into_owned(mut self) -> Acquire<'static> {
        Acquire {
            hold: self.hold.to_owned_hold(),
            wish: self.wish.clone(),
            state: std::mem::replace(&mut self.state, State::Done),
        }
    }

    /// Blocks until the lease is granted.
    ///
    /// # Errors
    ///
    /// See [`LockManager::acquire`](crate::LockManager::acquire).
    pub fn wait(self) -> Result<Lease<'m>, AcquireError> {
        self.block(None)
    }

    /// Blocks for so long at most, in real time. If there is no lease by then, the place in the queue is
    /// given up. Zero asks once, and never waits.
    ///
    /// # Errors
    ///
    /// Also [`AcquireError::TimedOut`].
    pub fn wait_timeout(self, timeout: Duration) -> Result<Lease<'m>, AcquireError> {
        // A time too far to be told is no limit.
        self.block(Instant::now().checked_add(timeout))
    }

    /// The same, until a point in real time.
    ///
    /// # Errors
    ///
    /// Also [`AcquireError::TimedOut`].
    pub fn wait_until(self, deadline: Instant) -> Result<Lease<'m>, AcquireError> {
        self.block(Some(deadline))
    }

    fn block(self, deadline: Option<Instant>) -> Result<Lease<'m>, AcquireError> {
        block_on(self, deadline).unwrap_or(Err(AcquireError::TimedOut))
    }

    fn lease(&self, acquired: &Acquired) -> Lease<'m> {
        let Request { key, owner, .. } = self.wish.request;
        Lease::with_hold(self.hold.clone(), key, OwnerId(owner), acquired)
    }

    fn finish(
        &mut self,
        result: Result<Acquired, AcquireError>,
    ) -> Poll<Result<Lease<'m>, AcquireError>> {
        self.state = State::Done;
        Poll::Ready(result.map(|acquired| self.lease(&acquired)))
    }
}

impl<'m> Future for Acquire<'m> {
    type Output = Result<Lease<'m>, AcquireError>;

    /// # Panics
    ///
    /// None; polled again after its end, it stays pending.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::New = self.state {
            if self.hold.is_closed() {
                return self.finish(Err(AcquireError::Closed));
            }
            match self.hold.engine().enter(&self.wish, true) {
                Ok(Entered::Waiting(waiter)) => self.state = State::Waiting(waiter),
                Ok(Entered::Granted(acquired)) => return self.finish(Ok(acquired)),
                Err(denied) => return self.finish(Err(denied.into())),
            }
        }
        let State::Waiting(waiter) = &self.state else {
            return Poll::Pending;
        };
        match waiter.poll(context) {
            Poll::Ready(result) => self.finish(result),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        if let State::Waiting(waiter) = &self.state
            && !self.hold.is_closed()
        {
            self.hold.engine().leave(waiter);
        }
    }
}

impl fmt::Debug for Acquire<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire")
            .field("key", &self.wish.request.key)
            .field("owner", &self.wish.request.owner)
            .field("ttl", &self.wish.request.ttl)
            .field("waiting", &matches!(self.state, State::Waiting(_)))
            .finish_non_exhaustive()
    }
}

/// A shared lease on its way to an exclusive one: made by [`Lease::upgrade`].
///
/// # Cancel safety
///
/// May be dropped at any time. Then the lease stays shared, or has become exclusive at that very moment:
/// [`Lease::mode`] tells.
#[must_use = "an upgrade does nothing until it is awaited or waited for"]
#[derive(Debug)]
pub struct Upgrade<'a, 'm> {
    lease: &'a mut Lease<'m>,
    ttl: Duration,
    state: State,
}

impl<'a, 'm> Upgrade<'a, 'm> {
    pub(crate) fn new(lease: &'a mut Lease<'m>, ttl: Duration) -> Self {
        Self {
            lease,
            ttl,
            state: State::New,
        }
    }

    /// Blocks until nobody else shares the key.
    ///
    /// # Errors
    ///
    /// See [`Lease::upgrade`].
    pub fn wait(self) -> Result<(), AcquireError> {
        block_on(self, None).unwrap_or(Err(AcquireError::TimedOut))
    }

    /// Blocks for so long at most, in real time. Zero asks once, and never waits.
    ///
    /// # Errors
    ///
    /// Also [`AcquireError::TimedOut`].
    pub fn wait_timeout(self, timeout: Duration) -> Result<(), AcquireError> {
        let deadline = Instant::now().checked_add(timeout);
        block_on(self, deadline).unwrap_or(Err(AcquireError::TimedOut))
    }

    fn begin(&self) -> Result<Entered, AcquireError> {
        let lease = &*self.lease;
        if lease.hold().is_closed() {
            return Err(AcquireError::Closed);
        }
        let mut wish = Wish::plain(Request {
            key: lease.key(),
            owner: lease.owner().0,
            ttl: self.ttl,
            at_least: 0,
        });
        wish.upgrade = Some(lease.token().get());
        lease.hold().engine().enter_upgrade(&wish)
    }

    fn finish(&mut self, result: Result<Acquired, AcquireError>) -> Poll<Result<(), AcquireError>> {
        self.state = State::Done;
        Poll::Ready(result.map(|acquired| self.lease.become_upgraded(&acquired)))
    }
}

impl Future for Upgrade<'_, '_> {
    type Output = Result<(), AcquireError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::New = self.state {
            if self.lease.mode() == Mode::Exclusive && self.lease.is_live() {
                self.state = State::Done;
                return Poll::Ready(Ok(()));
            }
            match self.begin() {
                Ok(Entered::Waiting(waiter)) => self.state = State::Waiting(waiter),
                Ok(Entered::Granted(acquired)) => return self.finish(Ok(acquired)),
                Err(error) => return self.finish(Err(error)),
            }
        }
        let State::Waiting(waiter) = &self.state else {
            return Poll::Pending;
        };
        match waiter.poll(context) {
            Poll::Ready(result) => self.finish(result),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for Upgrade<'_, '_> {
    fn drop(&mut self) {
        let State::Waiting(waiter) = &self.state else {
            return;
        };
        if self.lease.hold().is_closed() {
            return;
        }
        self.lease.hold().engine().stay_away(waiter);
        if let Some(Ok(acquired)) = waiter.take() {
            self.lease.become_upgraded(&acquired);
        }
    }
}
