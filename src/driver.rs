//! The thread that turns the wheel.
//!
//! It sleeps until the next registered tick, and for ever when nothing is registered: an idle manager
//! costs no wake-up. Whoever registers an earlier tick than the one it sleeps for wakes it.

use std::io;

use crate::engine::{Engine, wake_before_blocking};
use crate::process::Process;
use crate::sync::Arc;
use crate::sync::facade::thread::{self, JoinHandle};

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
            // It catches the panics of wakers, and a clock that panics is told of by the panic hook.
            let _ = driver.join();
        }
    }
}

fn drive(engine: &Engine) {
    while !engine.is_closed() {
        engine.advance();
        let next = engine.next_due();
        if next == Some(0) {
            // A resize is under way: go on with it.
            continue;
        }
        if !engine.wheel().prepare_sleep(next) {
            continue;
        }
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
        engine.wheel().woke();
    }
}
