//! Blocking a thread on a future: the same state machine that tasks poll.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use crate::engine::wake_before_blocking;
use crate::failpoint::failpoint;
use crate::sync::facade::AtomicBool;
use crate::sync::facade::thread::{self, Thread};
use crate::sync::{Arc, Ordering};

/// Blocks until the future is ready; `None` once the deadline has passed.
pub(crate) fn block_on<F: Future>(future: F, deadline: Option<Instant>) -> Option<F::Output> {
    let parker = Arc::new(Parker {
        thread: thread::current(),
        woken: AtomicBool::new(false),
    });
    let waker = Waker::from(Arc::clone(&parker));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        failpoint!("wait/parking");
        if !parker.park(deadline) {
            // It may have become ready at the last moment: then that is taken.
            return match future.as_mut().poll(&mut context) {
                Poll::Ready(output) => Some(output),
                Poll::Pending => None,
            };
        }
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
                Some(std::time::Duration::ZERO) => return false,
                left => {
                    wake_before_blocking();
                    match left {
                        None => thread::park(),
                        Some(left) => thread::park_timeout(left),
                    }
                }
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
