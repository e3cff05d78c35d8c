//! Cases 14 and 15: idle keys leak, and recycled entries are mixed up.

use std::collections::HashSet;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tenure::{Lease, LockManager, ManualClock};

use super::{Gate, manual, ms};

const CASE_14: &str = "memory::case_14_idle_keys_cost_nothing_and_their_tokens_still_rise";
const IN_CHILD: &str = "TENURE_CASE_14";

/// Case 14: idle keys and their queues leak. Ten million distinct keys are leased one after the other,
/// some released and some left to expire; in the end nothing is out, memory is where it was when the
/// first tenth was through, and each key's next token is above its last (I2, I9).
///
/// It runs in a process of its own, so that resident memory is this test's alone.
#[test]
fn case_14_idle_keys_cost_nothing_and_their_tokens_still_rise() {
    if std::env::var_os(IN_CHILD).is_none() {
        let mut child = Command::new(std::env::current_exe().expect("a test is a file"));
        child
            .args(["--exact", CASE_14, "--nocapture", "--test-threads=1"])
            .env(IN_CHILD, "1");
        let output = child.output().expect("a test can be run");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            said.contains("1 passed"),
            "{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        return;
    }
    let keys: u64 = if cfg!(debug_assertions) {
        1_000_000
    } else {
        10_000_000
    };
    let (manager, clock) = manual();
    let mut sample = Vec::new();
    let warm_up = keys / 10;
    lease_each(&manager, &clock, 0..warm_up, &mut sample);
    let (bytes, resident) = (manager.stats().memory_bytes, resident());
    lease_each(&manager, &clock, warm_up..keys, &mut sample);

    clock.advance(ms(100));
    manager.advance();
    assert_eq!((manager.len(), manager.iter().count()), (0, 0));
    let grown = manager.stats().memory_bytes.saturating_sub(bytes);
    assert!(
        grown <= bytes / 4,
        "I9: {bytes} bytes and then {grown} more"
    );
    if let (Some(before), Some(after)) = (resident, self::resident()) {
        // A single word kept for each key would be twice as much.
        let grown = after.saturating_sub(before);
        assert!(
            grown < keys * 4,
            "I9: {before} bytes resident, and then {grown} more"
        );
    }
    assert!(sample.len() > 900);
    for (key, token) in sample {
        let lease = manager
            .try_acquire(key, 1, ms(10))
            .expect("the key is free");
        assert!(
            lease.token().get() > token,
            "I2: {} after {token}",
            lease.token()
        );
    }
}

/// Leases each key once. One in 64 is left to expire, and the clock moves on by a tick every 4,096,
/// so that about as many stay out all the time.
fn lease_each(
    manager: &LockManager,
    clock: &ManualClock,
    keys: std::ops::Range<u64>,
    sample: &mut Vec<(u64, u64)>,
) {
    for key in keys {
        let lease = manager
            .try_acquire(key, 1, ms(10))
            .expect("the key is free");
        if key.is_multiple_of(997) && sample.len() < 10_000 {
            sample.push((key, lease.token().get()));
        }
        if key.is_multiple_of(64) {
            lease.detach();
        } else {
            assert_eq!(lease.release(), Ok(()));
        }
        if key.is_multiple_of(4_096) {
            clock.advance(ms(1));
            manager.advance();
        }
    }
}

/// The resident memory of this process in bytes, where the system tells.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1_024)
}

/// Case 15: a pooled entry is reused while another thread holds it. Threads flap one key, with other
/// keys in between so that entries move from key to key: no two ever hold it together, and each
/// finds itself as the holder (I1, I6).
#[test]
fn case_15_a_flapping_key_never_has_two_holders() {
    const THREADS: u64 = 4;
    let turns: u64 = if cfg!(debug_assertions) {
        15_000
    } else {
        300_000
    };
    let (manager, _clock) = manual();
    let (inside, gate) = (AtomicU64::new(0), Gate::new(THREADS as usize));
    let granted = AtomicU64::new(0);
    let tokens = Mutex::new(HashSet::new());
    std::thread::scope(|scope| {
        for owner in 1..=THREADS {
            let (manager, inside, gate, granted, tokens) =
                (&manager, &inside, &gate, &granted, &tokens);
            scope.spawn(move || {
                let mut mine = Vec::new();
                gate.pass();
                for turn in 0..turns {
                    let other = manager.try_acquire(1_000 + turn % 3, owner, ms(1_000)).ok();
                    if let Ok(lease) = manager.try_acquire("flapping", owner, ms(1_000)) {
                        assert_eq!(inside.swap(owner, Ordering::AcqRel), 0, "I1");
                        assert_eq!(manager.holder("flapping").map(|h| h.owner.0), Some(owner));
                        assert!(lease.is_live());
                        assert!(lease.renew(ms(1_000)).is_ok(), "I3");
                        mine.push(lease.token());
                        assert_eq!(inside.swap(0, Ordering::AcqRel), owner, "I1");
                        if turn % 2 == 0 {
                            assert_eq!(lease.release(), Ok(()));
                        }
                    }
                    drop(other);
                }
                granted.fetch_add(mine.len() as u64, Ordering::Relaxed);
                assert!(mine.is_sorted_by(|a, b| a < b), "I2");
                tokens.lock().unwrap().extend(mine);
            });
        }
    });
    let granted = granted.into_inner();
    assert!(granted > 0);
    assert_eq!(
        tokens.into_inner().unwrap().len() as u64,
        granted,
        "I2: a token was granted twice"
    );
    assert_eq!((manager.len(), manager.stats().expired), (0, 0));
}

/// Case 15, with leases that are forgotten and expire while others take, renew and sweep: a token is
/// above every token that was known before its grant began (I2), whoever is told that its lease has
/// been renewed is not overtaken before the new deadline (I5), and each grant ends exactly once.
#[test]
fn case_15_a_flapping_key_with_expiry_keeps_its_tokens_rising() {
    const THREADS: u64 = 3;
    let turns: u64 = if cfg!(debug_assertions) {
        15_000
    } else {
        300_000
    };
    let (manager, clock) = manual();
    let (known, running) = (AtomicU64::new(0), AtomicBool::new(true));
    let (granted, released) = (AtomicU64::new(0), AtomicU64::new(0));
    let flap = |owner: u64, turn: u64| {
        let before = known.load(Ordering::Acquire);
        let Ok(lease) = manager.try_acquire("flapping", owner, ms(1)) else {
            // Time passes with the turns, so that forgotten leases expire at any speed.
            clock.advance(Duration::from_micros(300));
            return;
        };
        granted.fetch_add(1, Ordering::Relaxed);
        let token = lease.token();
        assert!(token.get() > before, "I2: {token} after {before}");
        known.fetch_max(token.get(), Ordering::AcqRel);
        if let Ok(deadline) = lease.renew(ms(2)) {
            let next = manager.holder("flapping").filter(|h| h.token != token);
            let now = manager.now();
            assert!(next.is_none() || now >= deadline, "I5: {next:?} at {now:?}");
        }
        if turn.is_multiple_of(2) {
            lease.detach();
        } else if lease.release().is_ok() {
            released.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let flap = &flap;
        let workers: Vec<_> = (1..=THREADS)
            .map(|owner| scope.spawn(move || (0..turns).for_each(|turn| flap(owner, turn))))
            .collect();
        scope.spawn(|| {
            while running.load(Ordering::Acquire) {
                manager.advance();
                if manager
                    .try_acquire("beside", 9, ms(1))
                    .map(Lease::detach)
                    .is_ok()
                {
                    granted.fetch_add(1, Ordering::Relaxed);
                }
                std::thread::yield_now();
            }
        });
        let results: Vec<_> = workers
            .into_iter()
            .map(std::thread::ScopedJoinHandle::join)
            .collect();
        running.store(false, Ordering::Release);
        assert!(results.iter().all(Result::is_ok));
    });
    clock.advance(ms(100));
    manager.advance();
    let (granted, released) = (
        granted.load(Ordering::Relaxed),
        released.load(Ordering::Relaxed),
    );
    assert!(
        released > 0 && released < granted,
        "{released} of {granted}: nothing is shown"
    );
    assert_eq!(manager.len(), 0);
    assert_eq!(manager.stats().expired, granted - released);
}
