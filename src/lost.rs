//! Knowing that a lease is lost: a signal that is set once, and a future of it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::park::block_on;
use crate::sync::{Arc, Mutex};
use crate::table::Loss;

/// Set once, when a lease or a session ends.
#[derive(Debug)]
pub(crate) struct Signal(Mutex<Slot>);

#[derive(Debug)]
enum Slot {
    Unset(Option<Waker>),
    Set(Loss),
}

impl Signal {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Slot::Unset(None))))
    }

    /// Sets it, unless it was set before; the waker is for the caller to wake.
    pub(crate) fn set(&self, loss: Loss) -> Option<Waker> {
        let mut slot = self.0.lock();
        match &mut *slot {
            Slot::Unset(waker) => {
                let waker = waker.take();
                *slot = Slot::Set(loss);
                waker
            }
            Slot::Set(_) => None,
        }
    }

    fn get(&self) -> Option<Loss> {
        match &*self.0.lock() {
            Slot::Set(loss) => Some(*loss),
            Slot::Unset(_) => None,
        }
    }

    fn poll(&self, context: &Context<'_>) -> Poll<Loss> {
        // Cloning and dropping a waker is code of the user's.
        let waker = context.waker().clone();
        let mut slot = self.0.lock();
        match &mut *slot {
            Slot::Set(loss) => Poll::Ready(*loss),
            Slot::Unset(before) => {
                let before = before.replace(waker);
                drop(slot);
                drop(before);
                Poll::Pending
            }
        }
    }
}

/// Resolves when a lease or a session is over, and says how it ended: made by
/// [`Lease::lost`](crate::Lease::lost) and [`Session::lost`](crate::Session::lost).
///
/// Within a tick of the deadline, if the wheel is turned by then; at once when the lease is revoked or
/// released. A future that needs no particular runtime, and holds on to nothing: it may outlive the
/// lease and the manager.
///
/// # Cancel safety
///
/// May be polled, dropped and asked for again at any time.
#[derive(Debug)]
#[must_use = "it tells nothing until it is awaited, waited for or asked"]
pub struct Lost(Arc<Signal>);

impl Lost {
    pub(crate) fn new(signal: Arc<Signal>) -> Self {
        Self(signal)
    }

    /// How it ended, if it has.
    #[must_use]
    pub fn now(&self) -> Option<Loss> {
        self.0.get()
    }

    /// Blocks until it is over.
    #[must_use]
    pub fn wait(self) -> Loss {
        let loss = block_on(self, None);
        // Without a deadline there is always an answer.
        loss.unwrap_or(Loss::Closed)
    }

    /// Blocks for so long at most, in real time; `None` if it is not over by then.
    #[must_use]
    pub fn wait_timeout(&mut self, timeout: Duration) -> Option<Loss> {
        // A time too far to be told is no limit.
        block_on(self, Instant::now().checked_add(timeout))
    }
}

impl Future for Lost {
    type Output = Loss;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Loss> {
        self.0.poll(context)
    }
}
