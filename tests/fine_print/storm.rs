//! Threads in all modes at once: exclusion, events, and what is left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tenure::{Event, EventKind, LockManager, Mode};

const KEYS: usize = 4;
const WORKERS: u64 = 6;

fn ms(ticks: u64) -> Duration {
    Duration::from_millis(ticks)
}

fn next(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random
}

#[derive(Default)]
struct Key {
    readers: AtomicI64,
    writers: AtomicI64,
    highest: AtomicU64,
}

impl Key {
    fn enter(&self, mode: Mode) {
        if mode == Mode::Exclusive {
            let others = self.writers.fetch_add(1, Ordering::SeqCst);
            assert_eq!(others, 0, "I1: writers");
            assert_eq!(self.readers.load(Ordering::SeqCst), 0, "I1: readers");
        } else {
            self.readers.fetch_add(1, Ordering::SeqCst);
            assert_eq!(self.writers.load(Ordering::SeqCst), 0, "I1: a writer");
        }
    }

    fn leave(&self, mode: Mode) {
        match mode {
            Mode::Exclusive => self.writers.fetch_sub(1, Ordering::SeqCst),
            _ => self.readers.fetch_sub(1, Ordering::SeqCst),
        };
    }

    fn token(&self, token: u64) {
        let before = self.highest.swap(token, Ordering::SeqCst);
        assert!(before < token, "I2: {token} after {before}");
    }
}

fn worker(manager: &LockManager, keys: &[Key], owner: u64, over: &AtomicBool) {
    let ttl = Duration::from_secs(1000);
    let mut random = 0x9e37_79b9_7f4a_7c15 ^ (owner + 1) << 20;
    let session = manager.session(owner, ttl).expect("opens");
    while !over.load(Ordering::Relaxed) {
        let number = next(&mut random) as usize % KEYS;
        let key = &keys[number];
        let patience = Duration::from_micros(next(&mut random) % 300);
        let kind = next(&mut random) % 10;
        if kind == 9 {
            let other = (number + 1) % KEYS;
            if let Ok(all) = manager
                .acquire_all([number, other], owner, ttl)
                .wait_timeout(patience)
            {
                keys[number].enter(Mode::Exclusive);
                keys[other].enter(Mode::Exclusive);
                keys[number].leave(Mode::Exclusive);
                keys[other].leave(Mode::Exclusive);
                all.release().expect("live");
            }
            continue;
        }
        let in_session = next(&mut random).is_multiple_of(4);
        let ask = || {
            if in_session {
                session.acquire(number)
            } else {
                manager.acquire(number, owner, ttl)
            }
        };
        let acquire = ask();
        let lease = match kind {
            0 => manager.try_acquire(number, owner, ttl),
            1 => acquire.try_now(),
            2 => acquire.shared().try_now(),
            3 => acquire
                .min_hold(Duration::from_micros(1))
                .wait_timeout(patience),
            4 | 5 => acquire.shared().wait_timeout(patience),
            6 => {
                let lease = acquire.reentrant().wait_timeout(patience);
                if lease.is_ok() {
                    let again = ask().reentrant().try_now();
                    drop(again.expect("its own"));
                }
                lease
            }
            _ => acquire.wait_timeout(patience),
        };
        let Ok(mut lease) = lease else { continue };
        if lease.mode() == Mode::Exclusive {
            key.enter(Mode::Exclusive);
            key.token(lease.token().get());
            if next(&mut random).is_multiple_of(8) {
                let _lost = lease.lost();
            }
            if next(&mut random).is_multiple_of(4) {
                lease.renew(ttl + ttl).ok();
            }
            if next(&mut random).is_multiple_of(3) {
                key.leave(Mode::Exclusive);
                key.enter(Mode::Shared);
                lease.downgrade().expect("live");
                key.leave(Mode::Shared);
            } else {
                key.leave(Mode::Exclusive);
            }
        } else {
            key.enter(Mode::Shared);
            key.leave(Mode::Shared);
            if next(&mut random).is_multiple_of(3) {
                let before = lease.token();
                if lease.upgrade(ttl).wait_timeout(patience).is_ok()
                    || lease.mode() == Mode::Exclusive
                {
                    assert!(lease.token() > before);
                    key.enter(Mode::Exclusive);
                    key.token(lease.token().get());
                    key.leave(Mode::Exclusive);
                }
            }
        }
        lease.release().expect("live");
    }
    session.close().expect("live");
}

fn idle(manager: &LockManager) {
    for _ in 0..200 {
        if manager.is_empty() {
            break;
        }
        thread::sleep(ms(5));
    }
    assert_eq!((manager.len(), manager.waiting()), (0, 0), "left");
    assert_eq!(manager.snapshot(), vec![], "left");
}

fn check(events: &[Event]) {
    let mut keys: BTreeMap<tenure::Key, Vec<&Event>> = BTreeMap::new();
    for event in events {
        keys.entry(event.key).or_default().push(event);
    }
    for (key, events) in keys {
        let mut open: BTreeMap<u64, (u64, Mode)> = BTreeMap::new();
        let mut highest = 0;
        let mut idle = true;
        let mut seen: BTreeSet<u64> = BTreeSet::new();
        for (at, event) in events.iter().enumerate() {
            let token = event.token.get();
            let around = || {
                let from = at.saturating_sub(6);
                events[from..(at + 2).min(events.len())]
                    .iter()
                    .map(|event| {
                        format!(
                            "{:?} {} {} {:?}",
                            event.kind, event.token, event.owner, event.mode
                        )
                    })
                    .collect::<Vec<_>>()
                    .join("\n")
            };
            match event.kind {
                EventKind::Granted => {
                    assert!(token > highest, "{key}: I2\n{}", around());
                    highest = token;
                    seen.insert(token);
                    if event.mode == Mode::Exclusive {
                        // An upgrade takes the place of the shared lease.
                        open.retain(|_, held| held.0 != event.owner.0 || held.1 == Mode::Exclusive);
                        assert!(open.is_empty(), "{key}: I1\n{}", around());
                    }
                    assert!(
                        open.values().all(|held| held.1 != Mode::Exclusive),
                        "{key}: I1\n{}",
                        around()
                    );
                    open.insert(token, (event.owner.0, event.mode));
                    idle = false;
                }
                EventKind::Renewed => {
                    assert!(open.contains_key(&token), "{key}: renewed\n{}", around());
                    open.insert(token, (event.owner.0, event.mode));
                }
                EventKind::Released | EventKind::Expired | EventKind::Revoked => {
                    assert!(
                        open.remove(&token).is_some(),
                        "{key}: ended twice\n{}",
                        around()
                    );
                }
                EventKind::Reclaimed => {
                    assert!(open.is_empty() && !idle, "{key}: reclaimed\n{}", around());
                    idle = true;
                }
                _ => {}
            }
        }
        assert!(open.is_empty() && idle, "{key}: at the end {open:?} {idle}");
    }
}

fn storm(
    manager: &LockManager,
    seconds: u64,
    observed: bool,
    work: impl Fn(u64, &AtomicBool) + Sync,
) {
    let over = AtomicBool::new(false);
    let told = Mutex::new(vec![]);
    thread::scope(|scope| {
        let mut events = observed.then(|| manager.events(1 << 22));
        let workers: Vec<_> = (0..WORKERS)
            .map(|owner| {
                let (work, over) = (&work, &over);
                scope.spawn(move || work(owner, over))
            })
            .collect();
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(seconds) {
            thread::sleep(ms(10));
            if !observed {
                // Comes and goes.
                drop(manager.events(4));
                let _ = manager.snapshot();
            }
        }
        over.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().expect("no panic");
        }
        thread::sleep(ms(100));
        idle(manager);
        if let Some(events) = &mut events {
            let all = std::iter::from_fn(|| events.try_next());
            told.lock()
                .unwrap()
                .extend(all.map(|event| event.expect("room")));
        }
    });
    check(&told.into_inner().unwrap());
}

#[test]
fn all_modes_exclude() {
    for (observed, limited, detecting) in [
        (false, false, false),
        (true, false, true),
        (false, true, false),
        (true, true, false),
    ] {
        eprintln!("{observed} {limited} {detecting}");
        let mut builder = LockManager::builder().deadlock_detection(if detecting { 8 } else { 0 });
        if limited {
            builder = builder.max_keys(5);
        }
        let manager = builder.build().expect("in order");
        let keys: Vec<Key> = (0..KEYS).map(|_| Key::default()).collect();
        storm(&manager, 2, observed, |owner, over| {
            worker(&manager, &keys, owner, over);
        });
    }
}

fn chaos(manager: &LockManager, owner: u64, over: &AtomicBool) {
    let mut random = 0x1234_5678_9abc_def1 ^ (owner + 1) << 24;
    while !over.load(Ordering::Relaxed) {
        let number = next(&mut random) as usize % KEYS;
        let ttl = Duration::from_micros(200 + next(&mut random) % 6000);
        let patience = Duration::from_micros(next(&mut random) % 3000);
        let session = manager
            .session(owner, ttl)
            .expect("opens")
            .lock_delay(ms(next(&mut random) % 2));
        let acquire = match next(&mut random) % 3 {
            0 => session.acquire(number),
            1 => manager
                .acquire(number, owner, ttl)
                .auto_renew(ms(next(&mut random) % 9)),
            _ => manager.acquire(number, owner, ttl),
        };
        let acquire = match next(&mut random) % 6 {
            0 => acquire.shared(),
            1 => acquire.permit(3),
            2 => acquire.reentrant(),
            3 => acquire.lock_delay(ms(next(&mut random) % 3)),
            4 => acquire.min_hold(ms(next(&mut random) % 3)),
            _ => acquire,
        };
        if next(&mut random).is_multiple_of(16) {
            let _ = manager.revoke(number);
        }
        if next(&mut random).is_multiple_of(16) {
            let others = [number, (number + 1) % KEYS, (number + 2) % KEYS];
            drop(
                manager
                    .acquire_all(others, owner, ttl)
                    .wait_timeout(patience),
            );
        }
        let Ok(mut lease) = acquire.wait_timeout(patience) else {
            continue;
        };
        let lost = next(&mut random).is_multiple_of(4).then(|| lease.lost());
        match next(&mut random) % 8 {
            0 => drop(lease.upgrade(ttl).wait_timeout(patience)),
            1 => drop(lease.downgrade()),
            2 => drop(lease.renew(ttl)),
            3 => thread::sleep(ttl),
            4 => {
                let _ = manager.release(number, lease.token());
            }
            5 => drop(session.keep_alive()),
            6 => _ = lease.detach(),
            _ => drop(lease),
        }
        if let Some(mut lost) = lost {
            drop(session);
            let told = lost.wait_timeout(Duration::from_secs(20));
            assert!(told.is_some(), "never told");
        }
    }
}

#[test]
fn all_modes_leave_nothing() {
    for (observed, limited) in [(false, false), (true, false), (true, true)] {
        eprintln!("{observed} {limited}");
        let mut builder = LockManager::builder()
            .deadlock_detection(8)
            .introspection(observed);
        if limited {
            builder = builder.max_keys(6);
        }
        let manager = builder.build().expect("in order");
        storm(&manager, 2, observed, |owner, over| {
            chaos(&manager, owner, over);
        });
    }
}
