//! A clock that is not to be relied on.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tenure::{Clock, SystemClock, Timestamp};

/// The system's clock, except that it jumps ahead, stands still, or strobes: every other reading is from before.
/// That breaks the first rule of [`Clock`] and the second.
#[derive(Debug)]
pub(crate) struct Warped {
    clock: SystemClock,
    /// By how much it is ahead.
    ahead: AtomicU64,
    /// By how much every other reading falls back; 0 if it does not strobe.
    back: AtomicU64,
    odd: AtomicBool,
    /// Where it stands still.
    stopped: Mutex<Option<Timestamp>>,
}

impl Warped {
    pub(crate) fn new() -> Self {
        Self {
            clock: SystemClock::new(),
            ahead: AtomicU64::new(0),
            back: AtomicU64::new(0),
            odd: AtomicBool::new(false),
            stopped: Mutex::new(None),
        }
    }

    pub(crate) fn jump(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap();
        self.ahead.fetch_add(by, Ordering::Relaxed);
    }

    pub(crate) fn strobe(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap();
        self.back.store(by, Ordering::Relaxed);
    }

    pub(crate) fn stop(&self) {
        let now = self.now();
        *self.stopped.lock().unwrap() = Some(now);
    }

    /// It goes on as a clock should, from where it would be by now.
    pub(crate) fn go_on(&self) {
        self.strobe(Duration::ZERO);
        *self.stopped.lock().unwrap() = None;
    }
}

impl Clock for Warped {
    fn now(&self) -> Timestamp {
        if let Some(stopped) = *self.stopped.lock().unwrap() {
            return stopped;
        }
        let now = self.clock.now().as_nanos() + self.ahead.load(Ordering::Relaxed);
        let back = self.back.load(Ordering::Relaxed);
        let falls = back > 0 && self.odd.fetch_xor(true, Ordering::Relaxed);
        Timestamp::from_nanos(if falls { now.saturating_sub(back) } else { now })
    }

    fn is_real_time(&self) -> bool {
        true
    }
}
