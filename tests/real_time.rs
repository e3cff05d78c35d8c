//! Real-time tests: the clocks, the driver thread, and what they do to leases. These are the tests that
//! sleep, one at a time, so that they have the processor to themselves.

use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tenure::{Clock, CoarseClock, Lease, LockManager, SystemClock};

const THREADS: u64 = 4;
const HOUR: Duration = Duration::from_secs(3_600);
/// Between two looks at something that another thread will change.
const A_MOMENT: Duration = Duration::from_micros(200);

/// Keeps other tests from running.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// I3, I8: the driver ends leases after their TTL and not before, on its own: nobody
/// touches their keys. TTLs from one tick to a third of a second, granted from several threads.
fn expires_on_time(clock: impl Clock) {
    let lag = clock.resolution();
    let manager = LockManager::builder()
        .clock(clock)
        .build()
        .expect("these options are in order");
    let late = Mutex::new(Vec::new());
    let start = Barrier::new(4);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (start, manager, late) = (&start, &manager, &late);
            scope.spawn(move || {
                start.wait();
                let mut out = Vec::new();
                for step in 0..60 {
                    let ttl = Duration::from_millis(1 + (step * 37 + number * 11) % 330);
                    let before = Instant::now();
                    let lease = manager.try_acquire(number << 32 | step, number, ttl);
                    let lease = lease.expect("the key is free");
                    out.push((before, Instant::now(), ttl, lease));
                }
                while !out.is_empty() {
                    out.retain(|(before, after, ttl, lease)| {
                        let live = lease.is_live();
                        let now = Instant::now();
                        if !live {
                            assert!(
                                now - *before >= *ttl,
                                "I3: {ttl:?} ended after {:?}",
                                now - *before
                            );
                            late.lock()
                                .unwrap()
                                .push((now - *after).saturating_sub(*ttl + lag));
                        }
                        live
                    });
                    thread::sleep(A_MOMENT);
                }
            });
        }
    });
    let mut late = late.into_inner().unwrap();
    late.sort_unstable();
    let median = late[late.len() / 2];
    assert!(
        median < Duration::from_millis(25),
        "half of the leases ended {median:?} late"
    );
    // The wheel: nobody else counts the leases off.
    let waiting = Instant::now();
    while !manager.is_empty() {
        assert!(
            waiting.elapsed() < Duration::from_secs(5),
            "I8: the driver sleeps"
        );
        thread::sleep(A_MOMENT);
    }
    let stats = manager.stats();
    assert_eq!((stats.expired, stats.leases), (60 * THREADS, 0));
    assert!(
        stats.max_expiry_lag < Duration::from_secs(2),
        "I8: {:?}",
        stats.max_expiry_lag
    );
}

#[test]
fn leases_end_on_time_by_the_system_clock() {
    let _alone = alone();
    expires_on_time(SystemClock::new());
}

#[test]
fn leases_end_on_time_by_the_shared_coarse_clock() {
    let _alone = alone();
    expires_on_time(CoarseClock::shared());
}

#[test]
fn leases_end_on_time_by_a_coarse_clock_of_five_milliseconds() {
    let _alone = alone();
    expires_on_time(CoarseClock::with_resolution(Duration::from_millis(5)));
}

/// After an idle while, whose clock and driver slept through it, a new lease is live for
/// its whole TTL, and a driver asleep on a late deadline is woken for an earlier one (I3, I8).
#[test]
fn a_lease_after_an_idle_while_is_not_born_expired() {
    let _alone = alone();
    let manager = LockManager::new();
    drop(manager.try_acquire("warm", 1, HOUR));
    for ttl in [20, 50, 5].map(Duration::from_millis) {
        thread::sleep(Duration::from_millis(200));
        let before = Instant::now();
        let lease = manager.try_acquire("k", 1, ttl).expect("the key is free");
        let long = manager
            .try_acquire("long", 1, HOUR)
            .expect("the key is free");
        while lease.is_live() {
            assert!(
                before.elapsed() < Duration::from_secs(5),
                "I8: it never ends"
            );
            thread::sleep(A_MOMENT);
        }
        assert!(
            before.elapsed() >= ttl,
            "I3: {:?} of {ttl:?}",
            before.elapsed()
        );
        while manager.len() > 1 {
            assert!(
                before.elapsed() < Duration::from_secs(5),
                "I8: the driver sleeps on"
            );
            thread::sleep(A_MOMENT);
        }
        assert!(long.is_live());
    }
}

/// A driver with nothing due for an hour, or nothing at all, uses no processor time.
#[test]
fn an_idle_driver_sleeps() {
    let _alone = alone();
    let name = "idle-driver";
    let built = LockManager::builder()
        .clock(SystemClock::new())
        .thread_name(name)
        .build();
    let manager = Arc::new(built.expect("these options are in order"));
    let leases: Vec<_> = (0..1_000_u64)
        .map(|key| manager.try_acquire(key, 1, HOUR))
        .collect();
    assert!(leases.iter().all(Result::is_ok));
    thread::sleep(Duration::from_millis(100));
    if !cfg!(target_os = "linux") {
        // No other system says how much processor time a thread has used.
        return;
    }
    let before = cpu_time_of_threads(name).expect("the driver bears its name");
    thread::sleep(Duration::from_millis(300));
    drop(leases);
    thread::sleep(Duration::from_millis(300));
    let used = cpu_time_of_threads(name).expect("it still runs") - before;
    assert!(used <= 10, "{used} clock ticks of processor time in 60");
}

/// A thread that works with many managers keeps none of them alive, and a manager's driver ends with
/// its last handle, as the number of threads shows.
#[test]
fn many_managers_come_and_go() {
    let _alone = alone();
    let name = "many-managers";
    for round in 1..100_u64 {
        let built = LockManager::builder().thread_name(name).build();
        let manager = built.expect("these options are in order");
        let other = manager.clone();
        thread::scope(|scope| {
            scope.spawn(|| drop(other.try_acquire(round, 1, HOUR)));
        });
        let lease = manager.try_acquire(round, 1, HOUR).map(Lease::into_owned);
        let token = manager.try_acquire(round + 1, 1, HOUR).map(Lease::detach);
        assert_eq!(manager.len(), 2);
        drop(manager);
        assert!(lease.as_ref().is_ok_and(Lease::is_live) && token.is_ok());
        drop(other);
        assert!(lease.is_ok_and(|lease| !lease.is_live()));
    }
    // A thread that has been joined may be listed for a moment longer.
    let left = || cpu_time_of_threads(name).is_some();
    let gone = (0..200).any(|_| !left() || (thread::sleep(A_MOMENT), false).1);
    assert!(gone, "a driver is left over");
}

/// Case 20 of the reported faults: a wall-clock jump expires locks or makes them immortal. The clocks
/// that the crate offers never go back and keep pace with `Instant`, which no change of the wall clock
/// moves. A coarse clock may lag by its resolution, and by what the scheduler adds to it.
#[test]
fn case_20_the_clocks_keep_pace_with_the_monotonic_clock() {
    let _alone = alone();
    let clocks: [Box<dyn Clock>; 3] = [
        Box::new(SystemClock::new()),
        Box::new(CoarseClock::shared()),
        Box::new(CoarseClock::with_resolution(Duration::from_millis(5))),
    ];
    for clock in clocks {
        assert!(clock.is_real_time());
        let (started, first) = (Instant::now(), clock.precise_now());
        let mut last = clock.now();
        let (mut lags, mut steps) = (Vec::new(), 0);
        while started.elapsed() < Duration::from_millis(300) {
            let before = started.elapsed();
            let now = clock.now();
            let after = started.elapsed();
            assert!(now >= last, "{clock:?} went back");
            steps += u32::from(now > last);
            last = now;
            let passed = now.saturating_duration_since(first);
            assert!(
                passed <= after,
                "{clock:?} runs ahead: {passed:?} in {after:?}"
            );
            lags.push(before.saturating_sub(passed));
            thread::sleep(A_MOMENT);
        }
        lags.sort_unstable();
        // Half of the time, since the thread of a coarse clock may have to wait for a processor.
        let median = lags[lags.len() / 2];
        let allowed = clock.resolution() + Duration::from_millis(25);
        assert!(median < allowed, "{clock:?} lags by {median:?}");
        assert!(steps >= 5, "{clock:?} moved on only {steps} times");
        let (precise, now) = (clock.precise_now(), clock.now());
        assert!(precise >= last && now >= last, "{clock:?} went back");
    }
}

/// The processor time of this process's threads of that name, in clock ticks (10 ms); `None` if there
/// is no such thread, or the system does not tell.
fn cpu_time_of_threads(name: &str) -> Option<u64> {
    let mut total = None;
    for task in std::fs::read_dir("/proc/self/task").ok()?.flatten() {
        // A thread may end while it is looked at.
        let Ok(stat) = std::fs::read_to_string(task.path().join("stat")) else {
            continue;
        };
        if let Some((_, rest)) = stat.split_once(&format!("({name})")) {
            let fields: Vec<&str> = rest.split_whitespace().collect();
            let time = |index: usize| fields[index].parse::<u64>().unwrap_or(0);
            // Fields 14 and 15 of the line, user and system time; the third is the first in `rest`.
            total = Some(total.unwrap_or(0) + time(11) + time(12));
        }
    }
    total
}
