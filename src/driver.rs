//! The thread that turns the wheel.
//!
//! It sleeps until the next registered tick, and for ever when nothing is registered: an idle manager
//! costs no wake-up. Whoever registers an earlier tick than the one it sleeps for wakes it.

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::time::Duration;

use crate::engine::{Engine, wake_before_blocking};
use crate::failpoint::failpoint;
use crate::owed::Owed;
use crate::process::Process;
use crate::sync::facade::thread::{self, JoinHandle};
use crate::sync::{Arc, MODELLED};

/// How long it waits after a panic, for what has led to it to pass.
const PAUSE: Duration = Duration::from_millis(50);

/// A running driver; ends and is joined when dropped.
#[derive(Debug)]
pub(crate) struct Driver {
    engine: Arc<Engine>,
    process: Process,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    pub(crate) fn spawn(engine: &Arc<Engine>, name: String) -> io::Result<Self> {
        if name.contains('\0') {
            let reason = "its name contains a null character";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let driven = Arc::clone(engine);
        let thread = thread::Builder::new()
            .name(name)
            .spawn(move || drive(&driven))?;
        engine.set_driver(thread.thread().clone());
        Ok(Self {
            engine: Arc::clone(engine),
            process: Process::this(),
            thread: Some(thread),
        })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if !self.process.is_this() {
            // There is no such thread to be waited for, nor to be detached.
            std::mem::forget(self.thread.take());
            return;
        }
        self.engine.close_down();
        if let Some(driver) = self.thread.take()
            // A waker that it has called may own the last handle.
            && driver.thread().id() != thread::current().id()
        {
            wake_before_blocking();
            // It catches all panics.
            let _ = driver.join();
        }
    }
}

fn drive(engine: &Engine) {
    while !engine.is_closed() {
        if MODELLED {
            turn(engine);
            continue;
        }
        // Only a clock that panics gets as far as here, for all we know: but then waiters should not wait for
        // ever. The panic hook tells of it.
        let turned = panic::catch_unwind(AssertUnwindSafe(|| turn(engine)));
        if turned.is_err() && !engine.is_closed() {
            thread::park_timeout(PAUSE);
        }
    }
}

/// Does what is due, and sleeps until there is more.
fn turn(engine: &Engine) {
    failpoint!("driver/turning");
    engine.advance();
    let next = engine.next_due();
    if next == Some(0) {
        // A resize is under way: go on with it.
        return;
    }
    if !engine.wheel().prepare_sleep(next) {
        return;
    }
    let mut wheel = engine.wheel();
    let awake = Owed::new(&mut wheel, |wheel| wheel.woke());
    failpoint!("driver/sleeping");
    // A wake-up from now on leaves a permit, and `park` returns at once.
    if !engine.is_closed() {
        match next {
            None => thread::park(),
            Some(tick) => {
                let left = engine.time.until(tick, engine.time.precise_now());
                if left.is_zero() {
                    // Due already: another thread is at it, or there was too much for one turn.
                    thread::yield_now();
                } else {
                    thread::park_timeout(left);
                }
            }
        }
    }
    awake.pay();
}
