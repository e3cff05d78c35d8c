//! What a recorder of `metrics` is told.
#![cfg(feature = "metrics")]

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use tenure::{LockManager, ManualClock};

/// Seconds, in the order in which they were recorded.
#[derive(Default)]
struct Times(Mutex<Vec<f64>>);

impl HistogramFn for Times {
    fn record(&self, seconds: f64) {
        self.0.lock().expect("no panic").push(seconds);
    }
}

/// By their names, with their labels.
#[derive(Default)]
struct Writes {
    counts: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    times: Mutex<BTreeMap<String, Arc<Times>>>,
}

impl Recorder for Writes {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let labels = key.labels().map(|label| format!(" {}", label.value()));
        let name = key.name().to_owned() + &labels.collect::<String>();
        let mut counts = self.counts.lock().expect("no panic");
        Counter::from_arc(Arc::clone(counts.entry(name).or_default()))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let mut times = self.times.lock().expect("no panic");
        let times = times.entry(key.name().to_owned()).or_default();
        Histogram::from_arc(Arc::clone(times))
    }
}

#[test]
fn a_recorder_is_told_of_changes_times_and_what_was_given_up() {
    let (ms, writes) = (Duration::from_millis(1), Writes::default());
    metrics::with_local_recorder(&writes, || {
        let clock = ManualClock::new();
        let built = LockManager::builder()
            .clock(clock.clone())
            .driver(false)
            .introspection(true)
            .build();
        let manager = built.expect("in order");
        let context = &mut Context::from_waker(Waker::noop());
        let first = manager.try_acquire("k", 1, 50 * ms).expect("free");
        {
            let mut waits = pin!(manager.acquire("k", 2, 50 * ms));
            assert!(waits.as_mut().poll(context).is_pending());
        }
        let mut waits = pin!(manager.acquire("k", 3, 50 * ms));
        assert!(waits.as_mut().poll(context).is_pending());
        clock.advance(20 * ms);
        first.release().expect("live");
        assert!(waits.as_mut().poll(context).is_ready());
        // The manager keeps it for ten milliseconds, and no longer.
        let kept = manager.acquire("kept", 1, 9 * ms).auto_renew(10 * ms);
        let _kept = kept.try_now().expect("free");
        for _ in 0..11 {
            clock.advance(ms);
            manager.advance();
        }
    });
    let counts = writes.counts.into_inner().expect("no panic");
    let counts: Vec<_> = counts
        .iter()
        .map(|(name, count)| (name.as_str(), count.load(Ordering::Relaxed)))
        .collect();
    assert_eq!(
        counts,
        [
            ("tenure_events expired", 1),
            ("tenure_events given_up", 1),
            ("tenure_events granted", 3),
            ("tenure_events reclaimed", 2),
            ("tenure_events released", 2),
            ("tenure_events renewed", 1),
            ("tenure_keepers_given_up", 1),
            ("tenure_waits_given_up", 1),
        ]
    );
    let times = writes.times.into_inner().expect("no panic");
    let times = |name| times[name].0.lock().expect("no panic").clone();
    let near = |seconds: f64, told: f64| (seconds - told).abs() < 0.001;
    let waited = times("tenure_wait_seconds");
    assert!(waited.len() == 1 && near(waited[0], 0.02), "{waited:?}");
    let held = times("tenure_hold_seconds");
    assert!(held.len() == 3 && near(held[0], 0.02), "{held:?}");
}
