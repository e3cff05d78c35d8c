//! The rest of the user's code that a manager calls (I10): keys and their names, owners, iterators, clocks
//! and reservations. It may come back into the manager, and panic; what was granted stays right, and nothing
//! is stuck or lost.

use super::*;
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use tenure::reservation::{Authority, Block, Reservation, ReservationError};
use tenure::{Clock, HashSeed, Key, OwnerId, Timestamp, ToKey};

/// A name that looks around while it is turned into a key, and while it is asked for its text.
struct Curious<'a> {
    locks: &'a LockManager,
    name: &'static str,
}

impl Curious<'_> {
    fn look_around(&self) {
        let of_mine = self.locks.try_acquire("of mine", 7, HOUR).expect("free");
        let more: Vec<_> = (1_000..1_040_u64)
            .map(|key| self.locks.try_acquire(key, 7, HOUR).expect("free"))
            .collect();
        assert!(self.locks.holder("of mine").is_some() && more.iter().all(Lease::is_live));
        assert!(self.locks.session(7, HOUR).is_ok() && !self.locks.snapshot().is_empty());
        drop(of_mine);
    }
}

impl ToKey for Curious<'_> {
    fn to_key(&self, seed: &HashSeed) -> Key {
        self.look_around();
        self.name.to_key(seed)
    }

    fn name(&self) -> Option<Arc<str>> {
        self.look_around();
        Some(self.name.into())
    }
}

/// Every verb that takes a key.
fn ask_everything(locks: &LockManager, key: &impl ToKey) {
    let lease = locks.try_acquire(key, 1, HOUR).expect("free");
    assert!(locks.try_acquire(key, 2, HOUR).is_err());
    let token = lease.token();
    assert!(locks.renew(key, token, HOUR).is_ok() && locks.validate(key, token).is_ok());
    assert!(locks.holder(key).is_some() && locks.holders(key).len() == 1);
    assert!(locks.lost(key, token).now().is_none());
    assert!(locks.release(key, token).is_ok() && locks.revoke(key).is_err());
    drop(lease);
    let lease = locks.acquire(key, 1, HOUR).shared().wait().expect("free");
    drop(lease);
    drop(
        locks
            .try_acquire_at_least(key, 1, HOUR, token)
            .expect("free"),
    );
    drop(locks.acquire_all([key], 1, HOUR).wait().expect("free"));
    let session = locks.session(1, HOUR).expect("there is room");
    drop(session.try_acquire(key).expect("free"));
    let many = locks.try_acquire_many([key, key], 1, HOUR);
    assert!(many[0].is_ok() && many[1].is_err());
}

/// What the manager keeps for a thread is not lost to a call from within (I9).
#[test]
fn a_name_may_use_the_manager_and_leaves_nothing_behind() {
    for introspection in [false, true] {
        let clock = ManualClock::new();
        let locks = on(&clock).introspection(introspection).build();
        let locks = locks.expect("in order");
        let curious = Curious {
            locks: &locks,
            name: "a",
        };
        ask_everything(&locks, &curious);
        let before = locks.stats().memory_bytes;
        for _ in 0..scaled(2_000) {
            ask_everything(&locks, &curious);
        }
        let after = locks.stats().memory_bytes;
        assert!(
            after <= before + 16 * 1024,
            "I9: {before} bytes, then {after}"
        );
        assert_idle(&locks, ["a", "of mine"]);
    }
}

/// Panics when its turn comes.
struct Bad<'a>(&'a AtomicUsize);

impl Bad<'_> {
    fn tick(&self) {
        let left = self.0.load(Ordering::SeqCst);
        self.0.store(left.wrapping_sub(1), Ordering::SeqCst);
        assert!(left != 0, "on purpose");
    }
}

impl ToKey for Bad<'_> {
    fn to_key(&self, seed: &HashSeed) -> Key {
        self.tick();
        "a".to_key(seed)
    }

    fn name(&self) -> Option<Arc<str>> {
        self.tick();
        Some("a".into())
    }
}

impl From<Bad<'_>> for OwnerId {
    fn from(bad: Bad<'_>) -> Self {
        bad.tick();
        OwnerId(1)
    }
}

/// Wherever it happens, what had been granted by then is given back as the stack unwinds.
#[test]
fn a_name_an_owner_or_an_iterator_that_panics_leaves_nothing_behind() {
    for introspection in [false, true] {
        let clock = ManualClock::new();
        let locks = on(&clock).introspection(introspection).build();
        let locks = locks.expect("in order");
        let mut panics = 0;
        for turn in 0..60 {
            let left = AtomicUsize::new(turn);
            let asked = catch_unwind(AssertUnwindSafe(|| ask_everything(&locks, &Bad(&left))));
            panics += usize::from(asked.is_err());
            assert_idle(&locks, ["a"]);
        }
        assert!(panics >= 14, "{panics}");
        for turn in 0..100 {
            let left = AtomicUsize::new(turn);
            let bad = Bad(&left);
            let keys = || {
                (0..).map_while(|key: u64| {
                    bad.tick();
                    (key < 90).then_some(key)
                })
            };
            let all = catch_unwind(AssertUnwindSafe(|| {
                locks.acquire_all(keys(), 1, HOUR).wait()
            }));
            assert_eq!(all.is_err(), turn < 91);
            drop(all);
            left.store(turn, Ordering::SeqCst);
            let many = catch_unwind(AssertUnwindSafe(|| locks.try_acquire_many(keys(), 1, HOUR)));
            assert_eq!(many.is_err(), turn < 91);
            drop(many);
            let held: Vec<_> = (0..80_u64)
                .map(|key| locks.try_acquire(key, 1, HOUR).expect("free"))
                .collect();
            left.store(turn, Ordering::SeqCst);
            let ended = catch_unwind(AssertUnwindSafe(|| {
                Lease::release_many(held.into_iter().inspect(|_| bad.tick()))
            }));
            assert_eq!(ended.is_err(), turn < 80);
            left.store(0, Ordering::SeqCst);
            let owned = catch_unwind(AssertUnwindSafe(|| {
                locks.try_acquire("a", Bad(&left), HOUR).map(Lease::detach)
            }));
            assert!(owned.is_err());
            assert_idle(&locks, ["a"]);
        }
    }
}

/// Breaks the rule that a clock must not panic, now and then.
#[derive(Debug, Default)]
struct Faulty {
    time: ManualClock,
    panics: AtomicBool,
    asked: AtomicUsize,
    every: AtomicUsize,
}

#[derive(Clone, Debug, Default)]
struct FaultyClock(Arc<Faulty>);

impl Clock for FaultyClock {
    fn now(&self) -> Timestamp {
        let asked = self.0.asked.fetch_add(1, Ordering::SeqCst);
        let panics = self.0.panics.load(Ordering::SeqCst) && !thread::panicking();
        assert!(
            !panics || !asked.is_multiple_of(self.0.every.load(Ordering::SeqCst)),
            "on purpose"
        );
        self.0.time.now()
    }

    fn is_real_time(&self) -> bool {
        false
    }
}

/// A panic of the clock comes out of the operation that has read it, and leaves no lock behind: others go on,
/// and once the clock is well again whoever waits is served. (What was being granted may be lost to its
/// caller and to the counts, and last to its deadline.)
#[test]
fn a_clock_that_panics_leaves_no_lock_behind() {
    in_time(|| {
        let clock = FaultyClock::default();
        let builder = LockManager::builder().clock(clock.clone()).driver(false);
        let locks = builder.introspection(true).build().expect("in order");
        let mut panics = 0;
        for every in 2..40 {
            clock.0.every.store(every, Ordering::SeqCst);
            for _ in 0..3 {
                clock.0.panics.store(true, Ordering::SeqCst);
                let used = catch_unwind(AssertUnwindSafe(|| {
                    let held = locks.try_acquire("a", 1, SECOND).expect("free");
                    let mut next = waiting(locks.acquire("a", 2, SECOND), Waker::noop());
                    let mut shared = waiting(locks.acquire("a", 3, SECOND).shared(), Waker::noop());
                    drop(held);
                    let _ = (poll(&mut next), poll(&mut shared));
                    let session = locks.session(4, SECOND).expect("there is room");
                    drop(session.try_acquire("b"));
                }));
                panics += usize::from(used.is_err());
                clock.0.panics.store(false, Ordering::SeqCst);
                // Somebody else comes, waits, and is served when what was left has expired.
                let wakes = Arc::new(Wakes::default());
                let waker = Waker::from(Arc::clone(&wakes));
                let mut after = locks.acquire("a", 5, SECOND);
                let mut answer = poll_with(&mut after, &waker);
                for _ in 0..4 {
                    clock.0.time.advance(SECOND);
                    locks.advance();
                    if answer.is_pending() {
                        answer = poll_with(&mut after, &waker);
                    }
                }
                assert!(matches!(answer, Poll::Ready(Ok(_))), "{answer:?}");
                drop(answer);
                clock.0.time.advance(SECOND);
                for key in ["a", "b"] {
                    drop(
                        locks
                            .try_acquire(key, 6, SECOND)
                            .expect("all that was is over"),
                    );
                }
            }
        }
        assert!(panics > 50, "{panics}");
    });
}

/// A handle of the manager's that its backend has: a circle, until it is taken away.
type Handle = Arc<Mutex<Option<LockManager>>>;

fn give(handle: &Handle, locks: &LockManager) {
    *handle.lock().expect("no panic under it") = Some(locks.clone());
}

fn get(handle: &Handle) -> Option<LockManager> {
    handle.lock().expect("no panic under it").clone()
}

fn take_away(handle: &Handle) {
    let last = handle.lock().expect("no panic under it").take();
    // Without the lock: that waits for the backend.
    drop(last);
}

/// A backend that uses the manager it serves, in every call, and panics or drops a handle if told to.
#[derive(Clone)]
struct Backend {
    locks: Handle,
    state: Arc<BackendState>,
}

#[derive(Default)]
struct BackendState {
    mark: Mutex<u64>,
    calls: AtomicUsize,
    panics: AtomicBool,
    dropped: AtomicUsize,
}

impl Backend {
    fn called(&self) {
        self.state.calls.fetch_add(1, Ordering::SeqCst);
        if let Some(locks) = get(&self.locks) {
            assert!(locks.standing().is_some());
            let _ = locks.try_acquire("the backend's", 9, MS);
            let _ = locks.wait_for_authority(Duration::ZERO);
            let _ = (locks.snapshot(), locks.stats(), locks.advance());
            let _ = waiting_or_not(&locks);
        }
        assert!(!self.state.panics.load(Ordering::SeqCst), "on purpose");
    }
}

fn waiting_or_not(locks: &LockManager) -> bool {
    let mut acquire = locks.acquire("a", 9, HOUR);
    poll(&mut acquire).is_pending()
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.state.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

impl Reservation for Backend {
    fn campaign(&mut self, _: Duration) -> Result<(), ReservationError> {
        self.called();
        Ok(())
    }

    fn keep_alive(&mut self) -> Result<Option<Duration>, ReservationError> {
        self.called();
        Ok(Some(SECOND))
    }

    fn reserve(&mut self, tokens: NonZeroU64) -> Result<Block, ReservationError> {
        self.called();
        let mut mark = self.state.mark.lock().expect("no panic under it");
        let block = Block::after(*mark, tokens)?;
        *mark = block.last().get();
        Ok(block)
    }

    fn resign(&mut self) {
        self.called();
    }
}

/// Real time: the keeper's thread calls the backend, which calls the manager; then it panics for a while.
#[test]
fn a_backend_may_use_its_manager_and_may_panic() {
    in_time(|| {
        let backend = Backend {
            locks: Arc::default(),
            state: Arc::default(),
        };
        let state = Arc::clone(&backend.state);
        let handle = Arc::clone(&backend.locks);
        let builder = LockManager::builder().reservation(backend);
        let tokens = NonZeroU64::new(64).expect("not zero");
        let locks = builder.block_size(tokens).build().expect("in order");
        give(&handle, &locks);
        let grant_some = || {
            let start = Instant::now();
            let mut granted = 0;
            // Past the end of many blocks.
            while granted < 500 {
                match locks.try_acquire("a", 1, 100 * MS) {
                    Ok(lease) => {
                        granted += 1;
                        drop(lease);
                    }
                    Err(_) => thread::sleep(MS),
                }
                assert!(start.elapsed() < PATIENCE, "{:?}", locks.standing());
            }
        };
        grant_some();
        state.panics.store(true, Ordering::SeqCst);
        let calls = state.calls.load(Ordering::SeqCst);
        let more = || state.calls.load(Ordering::SeqCst) > calls + 2;
        eventually("it to panic", || {
            // It is asked for blocks.
            drop(locks.try_acquire("a", 1, 100 * MS));
            more()
        });
        eventually("that to be told", || {
            locks.standing().is_some_and(|it| it.error.is_some())
        });
        state.panics.store(false, Ordering::SeqCst);
        grant_some();
        locks.resign();
        eventually("it to resign", || {
            locks.standing().map(|it| it.authority) == Some(Authority::Resigned)
        });
        // It owns a handle, and so its own end.
        drop(locks);
        assert_eq!(state.dropped.load(Ordering::SeqCst), 0);
        take_away(&handle);
        eventually("its end", || state.dropped.load(Ordering::SeqCst) == 1);
    });
}

/// Who tends a reservation by hand may come to do so again from within: that changes nothing, and hangs
/// nowhere.
#[test]
fn a_backend_that_tends_itself_is_not_stuck() {
    #[derive(Clone)]
    struct Tends(Handle, Arc<AtomicUsize>);
    impl Reservation for Tends {
        fn reserve(&mut self, tokens: NonZeroU64) -> Result<Block, ReservationError> {
            let calls = self.1.fetch_add(1, Ordering::SeqCst) as u64;
            if let Some(locks) = get(&self.0) {
                assert_eq!(locks.tend_reservation(Duration::ZERO), Some(Duration::ZERO));
                locks.resign();
            }
            Block::after(calls * 1_000, tokens)
        }
    }
    in_time(|| {
        let backend = Tends(Arc::default(), Arc::default());
        let (handle, calls) = (Arc::clone(&backend.0), Arc::clone(&backend.1));
        let builder = LockManager::builder().driver(false).reservation(backend);
        let tokens = NonZeroU64::new(4).expect("not zero");
        let locks = builder.block_size(tokens).build().expect("in order");
        give(&handle, &locks);
        for _ in 0..20 {
            drop(locks.try_acquire("a", 1, HOUR));
            locks.tend_reservation(Duration::ZERO);
        }
        assert!(calls.load(Ordering::SeqCst) > 1, "it was asked for more");
        let standing = locks.standing().expect("it has one");
        assert_eq!(standing.authority, Authority::Resigned);
        take_away(&handle);
    });
}
