//! `tokio_util::time::DelayQueue`, under a paused clock.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::task::unconstrained;
use tokio::time::{self, Instant};
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::Key;

use super::Keeper;

pub(super) struct Queue {
    timers: DelayQueue<()>,
    start: Instant,
    fires: bool,
    runtime: Runtime,
}

impl Queue {
    pub(super) fn new(capacity: u32, fires: bool) -> Self {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime of this thread");
        let (timers, start) = {
            let _entered = runtime.enter();
            (DelayQueue::with_capacity(capacity as usize), Instant::now())
        };
        Self {
            timers,
            start,
            fires,
            runtime,
        }
    }
}

impl Keeper for Queue {
    type Id = Key;

    #[inline(always)]
    fn schedule(&mut self, tick: u64) -> Key {
        self.timers
            .insert_at((), self.start + Duration::from_millis(tick))
    }

    #[inline(always)]
    fn cancel(&mut self, key: Key) {
        self.timers.remove(&key);
    }

    fn advance(&mut self, _tick: u64) -> u64 {
        if !self.fires {
            return 0;
        }
        let timers = &mut self.timers;
        let mut fired = 0;
        let take_due = poll_fn(|context| {
            while let Poll::Ready(Some(_)) = timers.poll_expired(context) {
                fired += 1;
            }
            Poll::Ready(())
        });
        self.runtime.block_on(async {
            time::advance(Duration::from_millis(1)).await;
            unconstrained(take_due).await;
        });
        fired
    }

    fn within<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        let handle = self.runtime.handle().clone();
        let _entered = handle.enter();
        work(self)
    }
}
