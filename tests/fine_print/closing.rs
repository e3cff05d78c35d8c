//! The manager goes while threads wait in every way: all of them come back.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tenure::LockManager;

#[test]
fn all_who_wait_come_back_when_the_manager_goes() {
    let ttl = Duration::from_secs(1000);
    for round in 0..300_u64 {
        let mut builder =
            LockManager::builder().deadlock_detection(if round % 2 == 0 { 8 } else { 0 });
        if round % 3 == 0 {
            builder = builder.max_keys(20);
        }
        let manager = builder.build().expect("in order");
        let mut events = (round % 5 == 0).then(|| manager.events(10));
        manager.try_acquire("x", 99, ttl).expect("free").detach();
        let mut shared = manager
            .acquire("s", 1, ttl)
            .shared()
            .try_now()
            .expect("free")
            .into_owned();
        manager
            .acquire("s", 2, ttl)
            .shared()
            .try_now()
            .expect("free")
            .detach();
        let session = manager.session(5, ttl).expect("opens").into_owned();
        let in_session = session.acquire("x").into_owned();
        let all = manager
            .acquire_all(["a", "b", "x", "y"], 6, ttl)
            .into_owned();
        let plain = manager.acquire("x", 7, ttl).into_owned();
        let exclusive = manager.acquire("s", 8, ttl).into_owned();
        let lost = session.lost();
        let lease_lost = shared.lost();
        let (done, dones) = mpsc::channel();
        let spawn = |name: &'static str, f: Box<dyn FnOnce() + Send>| {
            let done = done.clone();
            thread::spawn(move || {
                f();
                let _ = done.send(name);
            });
        };
        spawn(
            "upgrade",
            Box::new(move || drop(shared.upgrade(ttl).wait())),
        );
        spawn("session", Box::new(move || drop(in_session.wait())));
        spawn("all", Box::new(move || drop(all.wait())));
        spawn("plain", Box::new(move || drop(plain.wait())));
        spawn(
            "exclusive",
            Box::new(move || drop(exclusive.wait_timeout(Duration::from_micros(round)))),
        );
        spawn("lost", Box::new(move || _ = lost.wait()));
        spawn("lease lost", Box::new(move || _ = lease_lost.wait()));
        spawn(
            "events",
            Box::new(move || {
                while let Some(events) = &mut events
                    && events.wait_timeout(Duration::from_secs(20)).is_some()
                {}
            }),
        );
        thread::sleep(Duration::from_micros(round % 400));
        if round % 7 == 0 {
            drop(session);
            drop(manager);
        } else {
            drop(manager);
            drop(session);
        }
        let mut left = vec![
            "upgrade",
            "session",
            "all",
            "plain",
            "exclusive",
            "lost",
            "lease lost",
            "events",
        ];
        while !left.is_empty() {
            match dones.recv_timeout(Duration::from_secs(8)) {
                Ok(name) => left.retain(|other| *other != name),
                Err(error) => panic!("round {round}: {left:?} never came back: {error}"),
            }
        }
    }
}

/// A guard that is left over: what it had is over, and nobody will tell it later.
#[test]
fn who_asks_after_the_end_of_a_lease_when_the_manager_is_gone_is_told_at_once() {
    let ttl = Duration::from_secs(1000);
    let manager = LockManager::builder().build().expect("in order");
    let plain = manager.try_acquire("p", 1, ttl).expect("free").into_owned();
    let shared = manager.acquire("s", 1, ttl).shared().try_now();
    let shared = shared.expect("free").into_owned();
    drop(manager);
    for lease in [plain, shared] {
        assert_eq!(lease.lost().now(), Some(tenure::Loss::Closed));
    }
}
