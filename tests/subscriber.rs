//! I10: a subscriber of `tracing` is code of the user's, and may use the manager.
#![cfg(feature = "tracing")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tenure::LockManager;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Looks at the manager when it is told something.
struct Looks(Arc<LockManager>, AtomicBool);

impl Subscriber for Looks {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {
        if !self.1.swap(true, Ordering::SeqCst) {
            assert!(self.0.holder("k").is_some());
        }
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn a_subscriber_may_use_the_manager() {
    let manager = Arc::new(
        LockManager::builder()
            .introspection(true)
            .build()
            .expect("in order"),
    );
    let subscriber = Looks(Arc::clone(&manager), AtomicBool::new(false));
    tracing::subscriber::set_global_default(subscriber).expect("the first");
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        manager
            .try_acquire("k", 1, Duration::from_secs(10))
            .expect("free")
            .detach();
        done.send(()).expect("awaited");
    });
    let done = is_done.recv_timeout(Duration::from_secs(10));
    assert!(done.is_ok(), "a grant that is told stands still");
}
