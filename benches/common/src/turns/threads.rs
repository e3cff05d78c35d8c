//! Turns of threads.

use std::future::Future;
use std::hint;
use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, ScopedJoinHandle, Thread};
use std::time::{Duration, Instant};

use tenure::LockManager;
use tokio::sync::Semaphore;

use super::{Lane, Meeting, Outcome, Tally};

/// Long enough for any slice.
const TTL: Duration = Duration::from_secs(60);

/// How many take turns, and how long each keeps the lock once another wants it: long enough for the other
/// to have given up spinning, or not at all.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub threads: u64,
    pub hold: Duration,
}

/// Takes turns. `turn` runs its argument while it holds the lock.
fn among(case: Case, length: Duration, turn: impl Fn(u64, &mut dyn FnMut()) + Sync) -> Outcome {
    let meeting = Meeting::new(length);
    let part = |me| {
        let mut tally = Tally::default();
        while !meeting.is_over() {
            meeting.want();
            turn(me, &mut || {
                meeting.begin(me, &mut tally);
                while !meeting.may_end() {
                    thread::yield_now();
                }
                if !case.hold.is_zero() {
                    let start = Instant::now();
                    while start.elapsed() < case.hold {
                        hint::spin_loop();
                    }
                }
                meeting.end();
            });
        }
        tally
    };
    let tallies: Vec<Tally> = thread::scope(|scope| {
        let part = &part;
        let threads: Vec<_> = (0..case.threads)
            .map(|me| scope.spawn(move || part(me)))
            .collect();
        let joined = threads.into_iter().map(ScopedJoinHandle::join);
        joined.map(|tally| tally.expect("no panic")).collect()
    });
    Outcome::new(tallies.into_iter(), &meeting)
}

/// Wakes a parked thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks until the future is ready.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// The contenders.
///
/// A waiter of `parking_lot`'s gives its processor away a few times before it joins the queue, and is
/// overtaken until then, `unlock_fair` or not: on a machine with other things to do, that is most of the
/// time.
pub fn lanes(case: Case) -> Vec<Lane<'static>> {
    let locks = LockManager::new();
    let fair = parking_lot::Mutex::new(());
    let semaphore = Semaphore::new(1);
    let unfair = std::sync::Mutex::new(());
    vec![
        Lane {
            name: "tenure, acquire().wait()",
            run: Box::new(move |length| {
                among(case, length, |me, during| {
                    let lease = locks.acquire(1, me, TTL).wait().expect("its turn");
                    during();
                    lease.release().expect("live");
                })
            }),
        },
        Lane {
            name: "parking_lot Mutex, unlock_fair",
            run: Box::new(move |length| {
                among(case, length, |_, during| {
                    let guard = fair.lock();
                    during();
                    parking_lot::MutexGuard::unlock_fair(guard);
                })
            }),
        },
        Lane {
            name: "tokio Semaphore, blocked on",
            run: Box::new(move |length| {
                among(case, length, |_, during| {
                    let permit = block_on(semaphore.acquire());
                    during();
                    drop(permit.expect("never closed"));
                })
            }),
        },
        Lane {
            name: "std Mutex (not fair)",
            run: Box::new(move |length| {
                among(case, length, |_, during| {
                    let guard = unfair.lock().unwrap_or_else(PoisonError::into_inner);
                    during();
                    drop(guard);
                })
            }),
        },
    ]
}
