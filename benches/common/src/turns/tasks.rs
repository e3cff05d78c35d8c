//! Turns of tasks, in a runtime of many threads or of one.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tenure::{Lease, LockManager};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::yield_now;

use super::{Lane, Meeting, Outcome, Tally};

const TTL: Duration = Duration::from_secs(60);

/// A lock that is awaited.
trait Lock: Send + Sync + 'static {
    type Guard<'l>: Send;

    fn lock(&self, me: u64) -> impl Future<Output = Self::Guard<'_>> + Send;
}

impl Lock for LockManager {
    type Guard<'l> = Lease<'l>;

    async fn lock(&self, me: u64) -> Lease<'_> {
        self.acquire(1, me, TTL).await.expect("its turn")
    }
}

impl Lock for Semaphore {
    type Guard<'l> = SemaphorePermit<'l>;

    async fn lock(&self, _: u64) -> SemaphorePermit<'_> {
        self.acquire().await.expect("never closed")
    }
}

/// One task's turns.
async fn turns<L: Lock>(lock: Arc<L>, meeting: Arc<Meeting>, me: u64) -> Tally {
    let mut tally = Tally::default();
    while !meeting.is_over() {
        meeting.want();
        let guard = lock.lock(me).await;
        meeting.begin(me, &mut tally);
        while !meeting.may_end() {
            yield_now().await;
        }
        meeting.end();
        drop(guard);
    }
    tally
}

/// Takes turns in as many tasks.
fn among<L: Lock>(runtime: &Runtime, lock: &Arc<L>, tasks: u64, length: Duration) -> Outcome {
    let meeting = Arc::new(Meeting::new(length));
    let tallies = runtime.block_on(async {
        let tasks: Vec<_> = (0..tasks)
            .map(|me| {
                let (lock, meeting) = (Arc::clone(lock), Arc::clone(&meeting));
                runtime.spawn(turns(lock, meeting, me))
            })
            .collect();
        let mut tallies = vec![];
        for task in tasks {
            tallies.push(task.await.expect("no panic"));
        }
        tallies
    });
    Outcome::new(tallies.into_iter(), &meeting)
}

fn lane<'l, L: Lock>(name: &'static str, lock: L, runtime: &'l Runtime, tasks: u64) -> Lane<'l> {
    let lock = Arc::new(lock);
    Lane {
        name,
        run: Box::new(move |length| among(runtime, &lock, tasks, length)),
    }
}

/// A runtime of that many threads; of the calling one if there are none.
pub fn runtime(threads: usize) -> Runtime {
    let built = match threads {
        0 => Builder::new_current_thread().build(),
        threads => Builder::new_multi_thread().worker_threads(threads).build(),
    };
    built.expect("a runtime without drivers")
}

/// The contenders.
pub fn lanes(runtime: &Runtime, tasks: u64) -> Vec<Lane<'_>> {
    vec![
        lane(
            "tenure, acquire().await",
            LockManager::new(),
            runtime,
            tasks,
        ),
        lane("tokio Semaphore", Semaphore::new(1), runtime, tasks),
    ]
}
