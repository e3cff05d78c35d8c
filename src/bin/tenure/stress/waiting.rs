//! One wait: a future with a waker that counts, and that can be told from outside to give up.
//!
//! The manager is handed a [`Bell`] in place of the task's own waker. It counts what the manager wakes,
//! and only that: runtimes may poll whenever they like, and whoever cancels wakes the task directly.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tenure::{Acquire, AcquireAll, AcquireError, FencingToken, Lease, MultiLease, Upgrade};

/// What the waits of a run have cost.
#[derive(Debug, Default)]
pub(super) struct Wakes {
    /// Waits that ended with a grant and had their wakes counted.
    pub(super) waited: AtomicU64,
    /// What those were woken.
    pub(super) woken: AtomicU64,
    /// Those that were woken more often than they had to wait.
    pub(super) woken_too_often: AtomicU64,
}

/// No order was given.
const GO_ON: u8 = 0;

/// What a wait can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Order {
    /// Give up, whatever has happened meanwhile.
    Cancel = 1,
    /// Look once more, and then give up: it should have ended long ago.
    Rescue = 2,
}

/// The waker of one wait.
#[derive(Debug)]
pub(super) struct Bell {
    task: Mutex<Waker>,
    wakes: AtomicU32,
    order: AtomicU8,
    /// How often the future was pending anew: at first, and after a wake.
    waits: AtomicU32,
    /// How often it may have been woken, once it has ended with a grant; 0 if it doesn't count.
    most: AtomicU32,
    totals: Arc<Wakes>,
}

impl Bell {
    fn new(totals: &Arc<Wakes>) -> Arc<Self> {
        Arc::new(Self {
            task: Mutex::new(Waker::noop().clone()),
            wakes: AtomicU32::new(0),
            order: AtomicU8::new(GO_ON),
            waits: AtomicU32::new(0),
            most: AtomicU32::new(0),
            totals: Arc::clone(totals),
        })
    }

    /// What the manager has woken so far.
    pub(super) fn wakes(&self) -> u32 {
        self.wakes.load(SeqCst)
    }

    /// Gives an order, and sees that it is read.
    pub(super) fn order(&self, order: Order) {
        self.order.store(order as u8, SeqCst);
        self.wake_task();
    }

    /// The wait has ended with a grant, before which it had to wait so often at most: once for a key.
    pub(super) fn granted(&self, most: u32) {
        self.most.store(most, SeqCst);
    }

    /// Passes the wakes on to another task.
    fn listen(&self, context: &Context<'_>) {
        let before = std::mem::replace(&mut *self.task.lock(), context.waker().clone());
        drop(before);
    }

    fn wake_task(&self) {
        // Not under the lock: a waker may do anything.
        let task = self.task.lock().clone();
        task.wake();
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wakes.fetch_add(1, SeqCst);
        self.wake_task();
    }
}

impl Drop for Bell {
    /// The last who could ring it is gone: only now is the count complete.
    fn drop(&mut self) {
        let most = *self.most.get_mut();
        if most > 0 {
            let wakes = *self.wakes.get_mut();
            let waits = *self.waits.get_mut();
            // A wake that comes late, after the task has looked for another reason, is one for its wait.
            let waits = waits.max(wakes).min(most);
            self.totals.waited.fetch_add(waits.into(), SeqCst);
            self.totals.woken.fetch_add(wakes.into(), SeqCst);
            if wakes > most {
                self.totals.woken_too_often.fetch_add(1, SeqCst);
            }
        }
    }
}

/// A future and its bell.
#[derive(Debug)]
pub(super) struct Wait<F> {
    future: F,
    bell: Arc<Bell>,
    waker: Waker,
    /// The wakes before the last poll that was not ready.
    seen: Option<u32>,
}

impl<F: Future + Unpin> Wait<F> {
    pub(super) fn new(future: F, totals: &Arc<Wakes>) -> Self {
        let bell = Bell::new(totals);
        let waker = Waker::from(Arc::clone(&bell));
        Self {
            future,
            bell,
            waker,
            seen: None,
        }
    }

    pub(super) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// The future without the bell, which counts no more.
    pub(super) fn into_future(self) -> F {
        self.future
    }

    /// Polls it, and has the context's task woken when the bell rings.
    pub(super) fn poll(&mut self, context: &Context<'_>) -> Poll<F::Output> {
        self.bell.listen(context);
        let wakes = self.bell.wakes();
        let polled = Pin::new(&mut self.future).poll(&mut Context::from_waker(&self.waker));
        if polled.is_pending() && self.seen.replace(wakes) != Some(wakes) {
            self.bell.waits.fetch_add(1, SeqCst);
        }
        polled
    }

    /// Waits for the future, or until it is told otherwise: `None` then, with the future given up.
    pub(super) async fn end(mut self) -> Option<F::Output> {
        poll_fn(|context| {
            // In its place before the order is read: whoever gives one later wakes this task.
            self.bell.listen(context);
            let order = self.bell.order.load(SeqCst);
            if order == Order::Cancel as u8 {
                return Poll::Ready(None);
            }
            match self.poll(context) {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                Poll::Pending if order == GO_ON => Poll::Pending,
                Poll::Pending => Poll::Ready(None),
            }
        })
        .await
    }
}

/// What the stress test waits for, as a task or as a blocked thread.
pub(super) trait Waitable:
    Future<Output = Result<Self::Lease, AcquireError>> + Unpin
{
    /// What is granted.
    type Lease;

    /// Blocks for so long at most.
    fn wait_at_most(self, time: Duration) -> Self::Output;

    /// The token of the one lease that was granted, if its key grants in order of arrival.
    fn token(lease: &Self::Lease) -> Option<FencingToken>;
}

impl<'m> Waitable for Acquire<'m> {
    type Lease = Lease<'m>;

    fn wait_at_most(self, time: Duration) -> Self::Output {
        self.wait_timeout(time)
    }

    fn token(lease: &Self::Lease) -> Option<FencingToken> {
        Some(lease.token())
    }
}

impl<'m> Waitable for AcquireAll<'m> {
    type Lease = MultiLease<'m>;

    fn wait_at_most(self, time: Duration) -> Self::Output {
        self.wait_timeout(time)
    }

    fn token(_: &Self::Lease) -> Option<FencingToken> {
        None
    }
}

impl Waitable for Upgrade<'_, '_> {
    type Lease = ();

    fn wait_at_most(self, time: Duration) -> Self::Output {
        self.wait_timeout(time)
    }

    /// It comes before all who wait.
    fn token((): &Self::Lease) -> Option<FencingToken> {
        None
    }
}
