//! What a subscriber of `tracing` is told. I10: it is code of the user's, and may use the manager.
#![cfg(feature = "tracing")]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use tenure::{LockManager, ManualClock};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

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

/// The fields of an event as text.
#[derive(Clone, Debug, Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

/// Writes down what it is told.
#[derive(Clone, Default)]
struct Writes(Arc<Mutex<Vec<(Level, Fields)>>>);

impl Subscriber for Writes {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        assert_eq!(event.metadata().target(), "tenure");
        let told = (*event.metadata().level(), fields);
        self.0.lock().expect("no panic").push(told);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn a_subscriber_is_told_of_every_change_and_warned_of_what_is_rare() {
    let (ms, writes) = (Duration::from_millis(1), Writes::default());
    let token = tracing::subscriber::with_default(writes.clone(), || {
        let clock = ManualClock::new();
        let built = LockManager::builder()
            .clock(clock.clone())
            .driver(false)
            .introspection(true)
            .build();
        let manager = built.expect("in order");
        let kept = manager.acquire("k", 7, 9 * ms).auto_renew(10 * ms);
        let kept = kept.try_now().expect("free");
        for _ in 0..11 {
            clock.advance(ms);
            manager.advance();
        }
        assert!(!kept.is_live());
        kept.token().to_string()
    });
    let told = writes.0.lock().expect("no panic");
    let (warnings, changes): (Vec<_>, Vec<_>) =
        told.iter().partition(|(level, _)| *level == Level::WARN);
    let field = |fields: &Fields, name| fields.0.get(name).cloned().unwrap_or_default();
    let kinds: Vec<_> = changes.iter().map(|it| field(&it.1, "kind")).collect();
    assert_eq!(
        kinds,
        ["granted", "renewed", "given_up", "expired", "reclaimed"]
    );
    for (level, fields) in changes {
        assert_eq!(*level, Level::DEBUG);
        assert_eq!(
            (field(fields, "owner"), field(fields, "token")),
            ("7".to_owned(), token.clone())
        );
        assert_eq!(field(fields, "name"), "k");
    }
    let [(_, fields)] = warnings[..] else {
        panic!("{warnings:?}");
    };
    assert_eq!(field(fields, "token"), token);
    assert!(
        field(fields, "message").contains("not renewed any more"),
        "{fields:?}"
    );
}
