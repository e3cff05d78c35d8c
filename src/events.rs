//! What happens to leases, as a bounded stream.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use crate::key::Key;
use crate::owner::OwnerId;
use crate::park::block_on;
use crate::sync::{Arc, Mutex};
use crate::time::Timestamp;
use crate::token::FencingToken;
use crate::wish::Mode;

/// What happened to a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventKind {
    /// It was granted; of a lease that is entered again, only the first time.
    Granted,
    /// Its deadline was moved, by its holder or by the manager; or it was entered again, or downgraded. (An
    /// upgrade releases one lease and grants another.)
    Renewed,
    /// Its holder gave it back, or closed its session.
    Released,
    /// Its deadline passed, or its session's.
    Expired,
    /// It was revoked.
    Revoked,
    /// The manager has stopped renewing it, since it has been held for as long as it may.
    GivenUp,
    /// Nobody holds the key any more or waits for it: nothing of it is kept.
    Reclaimed,
}

impl EventKind {
    /// In one word, for logs and labels.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Renewed => "renewed",
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::GivenUp => "given_up",
            Self::Reclaimed => "reclaimed",
        }
    }
}

/// Something that happened; see [`LockManager::events`](crate::LockManager::events).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// What it was.
    pub kind: EventKind,
    /// When, on the manager's clock.
    pub at: Timestamp,
    /// The key.
    pub key: Key,
    /// Its name, if names are kept and it has one.
    pub name: Option<Arc<str>>,
    /// Whose lease.
    pub owner: OwnerId,
    /// The token of the lease; of `Reclaimed`, of the last one.
    pub token: FencingToken,
    /// The mode of the lease.
    pub mode: Mode,
    /// The lease's deadline, as things were. Of a key of an `acquire_all` that waits for others still, the end of
    /// the manager's time.
    pub deadline: Timestamp,
}

/// So many events were dropped, since the subscriber was slow: it should look at the manager afresh, for
/// instance at a [`snapshot`](crate::LockManager::snapshot).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed {
    /// How many.
    pub count: u64,
}

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} events were missed: take a snapshot, and read faster or ask for more room",
            self.count
        )
    }
}

impl std::error::Error for Missed {}

/// The part of a stream that the manager writes to.
#[derive(Debug)]
pub(crate) struct Stream(Mutex<Ring>);

#[derive(Debug)]
struct Ring {
    events: VecDeque<Event>,
    room: usize,
    missed: u64,
    waker: Option<Waker>,
    closed: bool,
}

impl Ring {
    fn next(&mut self) -> Poll<Option<Result<Event, Missed>>> {
        if self.missed > 0 {
            let count = std::mem::take(&mut self.missed);
            return Poll::Ready(Some(Err(Missed { count })));
        }
        match self.events.pop_front() {
            Some(event) => Poll::Ready(Some(Ok(event))),
            None if self.closed => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

impl Stream {
    pub(crate) fn new(room: usize) -> Arc<Self> {
        let room = room.max(1);
        Arc::new(Self(Mutex::new(Ring {
            events: VecDeque::with_capacity(room.min(1024)),
            room,
            missed: 0,
            waker: None,
            closed: false,
        })))
    }

    /// Adds an event, in place of the oldest if there is no room; the waker is for the caller to wake.
    pub(crate) fn push(&self, event: Event) -> Option<Waker> {
        let mut ring = self.0.lock();
        if ring.events.len() == ring.room {
            ring.events.pop_front();
            ring.missed += 1;
        }
        ring.events.push_back(event);
        ring.waker.take()
    }

    /// Nothing will be added any more.
    pub(crate) fn close(&self) -> Option<Waker> {
        let mut ring = self.0.lock();
        ring.closed = true;
        ring.waker.take()
    }

    fn next(&self, waker: Option<&Waker>) -> Poll<Option<Result<Event, Missed>>> {
        if let next @ Poll::Ready(_) = self.0.lock().next() {
            return next;
        }
        // Cloning and dropping a waker is code of the user's.
        let waker = waker.cloned();
        let before = std::mem::replace(&mut self.0.lock().waker, waker);
        drop(before);
        // What has come meanwhile has found no waker, or the one before.
        self.0.lock().next()
    }
}

/// A subscription to what happens to leases; see [`LockManager::events`](crate::LockManager::events).
///
/// Dropping it ends it.
#[derive(Debug)]
pub struct Events(Arc<Stream>);

impl Events {
    pub(crate) fn new(stream: Arc<Stream>) -> Self {
        Self(stream)
    }

    /// The next event, [`Missed`] before it if some were dropped, or `None` once the manager is gone.
    ///
    /// Cancel safe: nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Result<Event, Missed>> {
        poll_fn(|context| self.0.next(Some(context.waker()))).await
    }

    /// The same, blocking, for so long at most, in real time; `None` also if nothing has come by then.
    #[must_use]
    pub fn wait_timeout(&mut self, timeout: Duration) -> Option<Result<Event, Missed>> {
        block_on(self.next(), Instant::now().checked_add(timeout)).flatten()
    }

    /// What is there already.
    #[must_use]
    pub fn try_next(&mut self) -> Option<Result<Event, Missed>> {
        match self.0.next(None) {
            Poll::Ready(next) => next,
            Poll::Pending => None,
        }
    }
}
