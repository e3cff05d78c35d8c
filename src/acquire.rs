//! An acquisition that waits for its turn: one state machine, polled by a task or by a blocked thread.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use crate::engine::{Acquired, Engine, Enqueued, Request};
use crate::error::AcquireError;
use crate::lease::{Hold, Lease};
use crate::owner::OwnerId;
use crate::sync::facade::AtomicBool;
use crate::sync::facade::thread::{self, Thread};
use crate::sync::{Arc, Ordering};
use crate::waiters::Waiter;

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
    request: Request,
    state: State,
}

#[derive(Debug)]
enum State {
    New,
    Waiting(Arc<Waiter>),
    Done,
}

impl<'m> Acquire<'m> {
    pub(crate) fn new(engine: &'m Engine, request: Request) -> Self {
        Self {
            hold: Hold::Borrowed(engine),
            request,
            state: State::New,
        }
    }

    /// The same without the borrow, for a task of its own. The lease will be an owned one too.
    ///
    /// It doesn't keep the manager running: when the last [`LockManager`](crate::LockManager) handle is
    /// dropped, it says [`Closed`](AcquireError::Closed).
    pub fn into_owned(mut self) -> Acquire<'static> {
        let engine = match &self.hold {
            Hold::Borrowed(engine) => engine.share(),
            Hold::Owned(engine) => Arc::clone(engine),
        };
        Acquire {
            hold: Hold::Owned(engine),
            request: self.request,
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
        let parker = Arc::new(Parker {
            thread: thread::current(),
            woken: AtomicBool::new(false),
        });
        let waker = Waker::from(Arc::clone(&parker));
        let mut context = Context::from_waker(&waker);
        let mut acquire = pin!(self);
        loop {
            if let Poll::Ready(result) = acquire.as_mut().poll(&mut context) {
                return result;
            }
            if !parker.park(deadline) {
                // The grant may have come at the last moment: then it is taken.
                let last = acquire.as_mut().poll(&mut context);
                return match last {
                    Poll::Ready(result) => result,
                    Poll::Pending => Err(AcquireError::TimedOut),
                };
            }
        }
    }

    fn finish(
        &mut self,
        result: Result<Acquired, AcquireError>,
    ) -> Poll<Result<Lease<'m>, AcquireError>> {
        self.state = State::Done;
        let Request { key, owner, .. } = self.request;
        let lease = |acquired| Lease::with_hold(self.hold.clone(), key, OwnerId(owner), &acquired);
        Poll::Ready(result.map(lease))
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
            match self.hold.engine().enqueue(&self.request) {
                Ok(Enqueued::Waiting(waiter)) => self.state = State::Waiting(waiter),
                Ok(Enqueued::Granted(acquired)) => return self.finish(Ok(acquired)),
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
            .field("key", &self.request.key)
            .field("owner", &self.request.owner)
            .field("ttl", &self.request.ttl)
            .field("waiting", &matches!(self.state, State::Waiting(_)))
            .finish_non_exhaustive()
    }
}

/// Wakes a blocked thread.
struct Parker {
    thread: Thread,
    woken: AtomicBool,
}

impl Parker {
    /// Blocks until woken; false once the deadline has passed.
    fn park(&self, deadline: Option<Instant>) -> bool {
        // Other uses of the thread's one permit may wake it too.
        while !self.woken.swap(false, Ordering::Acquire) {
            match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                None => thread::park(),
                Some(Duration::ZERO) => return false,
                Some(left) => thread::park_timeout(left),
            }
        }
        true
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
