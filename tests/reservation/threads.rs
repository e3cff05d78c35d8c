//! Real threads and real time.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use tenure::reservation::{Authority, Block, Memory, Reservation, ReservationError};
use tenure::{AcquireError, LockManager, SystemClock};

const TERM: Duration = Duration::from_millis(400);
const TTL: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(20);

/// An authority by the machine's clock, whose answers can be held up.
#[derive(Clone, Default)]
struct Shared {
    mark: Arc<AtomicU64>,
    holder: Arc<Mutex<Option<(u64, Instant)>>>,
}

struct Client {
    shared: Shared,
    me: u64,
    stalls: Arc<AtomicBool>,
    panics: Arc<AtomicBool>,
}

impl Client {
    fn new(shared: &Shared, me: u64) -> Self {
        Self {
            shared: shared.clone(),
            me,
            stalls: Arc::default(),
            panics: Arc::default(),
        }
    }

    fn hold(&self, takes: bool) -> Result<(), ReservationError> {
        while self.stalls.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(!self.panics.load(Ordering::SeqCst), "as it was told to");
        let mut holder = self.shared.holder.lock().unwrap();
        let now = Instant::now();
        match *holder {
            Some((other, until)) if now < until && (other != self.me) => {
                if !takes {
                    return Err(ReservationError::Lost);
                }
                let holder = other.to_string();
                return Err(ReservationError::Held { holder });
            }
            Some((_, until)) if now >= until && !takes => return Err(ReservationError::Lost),
            None if !takes => return Err(ReservationError::Lost),
            _ => *holder = Some((self.me, now + TERM)),
        }
        Ok(())
    }
}

impl Reservation for Client {
    fn campaign(&mut self, _patience: Duration) -> Result<(), ReservationError> {
        self.hold(true)
    }

    fn keep_alive(&mut self) -> Result<Option<Duration>, ReservationError> {
        self.hold(false)?;
        Ok(Some(TERM))
    }

    fn reserve(&mut self, tokens: NonZeroU64) -> Result<Block, ReservationError> {
        self.hold(false)?;
        let mark = self.shared.mark.fetch_add(tokens.get(), Ordering::SeqCst);
        Block::after(mark, tokens)
    }

    fn resign(&mut self) {
        *self.shared.holder.lock().unwrap() = None;
    }
}

fn manager(client: Client) -> LockManager {
    let builder = LockManager::builder().clock(SystemClock::new());
    builder.reservation(client).build().unwrap()
}

#[test]
fn a_manager_whose_backend_stalls_is_succeeded_and_comes_back() {
    let shared = Shared::default();
    let client = Client::new(&shared, 1);
    let stalls = Arc::clone(&client.stalls);
    let first = manager(client);
    let second = manager(Client::new(&shared, 2));
    // Kept alive for longer than a term.
    let begin = Instant::now();
    while begin.elapsed() < 2 * TERM {
        assert_eq!(
            second.try_acquire("a", 2, TTL).unwrap_err(),
            AcquireError::AuthorityLost
        );
        thread::sleep(Duration::from_millis(20));
    }
    let lease = first
        .try_acquire("a", 1, TTL)
        .expect("it has the authority");
    stalls.store(true, Ordering::SeqCst);
    assert!(second.wait_for_authority(PATIENCE));
    let successor = second.try_acquire("a", 2, TTL).unwrap();
    assert!(!lease.is_live(), "before anybody else is granted the key");
    assert!(successor.token() > lease.token());
    assert_eq!(
        first.try_acquire("b", 1, TTL).unwrap_err(),
        AcquireError::AuthorityLost
    );
    stalls.store(false, Ordering::SeqCst);
    drop(successor);
    second.resign();
    assert!(first.wait_for_authority(PATIENCE));
    assert!(first.try_acquire("a", 1, TTL).is_ok());
}

#[test]
fn a_backend_that_panics_stops_nothing_for_good() {
    let shared = Shared::default();
    let client = Client::new(&shared, 1);
    let panics = Arc::clone(&client.panics);
    let locks = manager(client);
    panics.store(true, Ordering::SeqCst);
    let begin = Instant::now();
    while locks.try_acquire("a", 1, TTL).is_ok() {
        assert!(begin.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(5));
    }
    // Telling of a panic may take the thread longer than the term.
    let told = || {
        locks
            .standing()
            .unwrap()
            .error
            .map(|error| error.to_string())
    };
    while !told().is_some_and(|error| error.contains("panicked")) {
        assert!(begin.elapsed() < PATIENCE, "{:?}", told());
        thread::sleep(Duration::from_millis(5));
    }
    panics.store(false, Ordering::SeqCst);
    let begin = Instant::now();
    // On a machine with more to do, the first term that it wins may be over before it is used.
    while let Err(refused) = locks.try_acquire("a", 1, TTL) {
        assert!(begin.elapsed() < PATIENCE, "{refused}");
        assert!(locks.wait_for_authority(PATIENCE));
    }
}

#[test]
fn small_blocks_are_reserved_while_threads_grant_as_fast_as_they_can() {
    let memory = Memory::new();
    let builder = LockManager::builder().block_size(NonZeroU64::new(2_000).unwrap());
    let locks = builder.reservation(memory).build().unwrap();
    let grants = AtomicU64::new(0);
    let begin = Instant::now();
    thread::scope(|scope| {
        for thread in 0..3_u64 {
            let (locks, grants) = (&locks, &grants);
            scope.spawn(move || {
                let mut highest = None;
                while begin.elapsed() < Duration::from_millis(500) {
                    let granted = if thread == 2 {
                        locks.acquire(thread, 1, TTL).shared().try_now()
                    } else {
                        locks.try_acquire(thread, 1, TTL)
                    };
                    match granted {
                        Ok(lease) => {
                            assert!(Some(lease.token()) > highest, "I2");
                            highest = Some(lease.token());
                            grants.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(AcquireError::TokensNotReserved { .. }) => thread::yield_now(),
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    let standing = locks.standing().unwrap();
    assert_eq!(
        (standing.authority, standing.terms),
        (Authority::Unlimited, 1)
    );
    assert!(
        grants.into_inner() > 10_000 && standing.blocks > 5,
        "{standing:?}"
    );
}

#[test]
fn closing_a_manager_lets_go_of_its_backend() {
    struct Notices(Arc<AtomicBool>);

    impl Reservation for Notices {
        fn reserve(&mut self, tokens: NonZeroU64) -> Result<Block, ReservationError> {
            Block::after(0, tokens)
        }
    }

    impl Drop for Notices {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    for driver in [true, false] {
        let dropped = Arc::new(AtomicBool::new(false));
        let builder = LockManager::builder().driver(driver);
        let locks = builder.reservation(Notices(Arc::clone(&dropped))).build();
        let locks = locks.unwrap();
        let lease = locks.try_acquire("a", 1, TTL).unwrap().into_owned();
        drop(locks);
        assert!(dropped.load(Ordering::SeqCst));
        drop(lease);
    }
}

#[test]
fn one_grant_past_the_half_of_a_block_is_enough_to_have_the_next_reserved() {
    let builder = LockManager::builder().block_size(NonZeroU64::new(1_000).unwrap());
    let locks = builder.reservation(Memory::new()).build().unwrap();
    let mut lease = locks.try_acquire("a", 1, TTL).unwrap();
    while lease.token().get() <= 500 {
        assert_eq!(locks.standing().unwrap().blocks, 1, "{lease:?}");
        lease.release().unwrap();
        lease = locks.try_acquire("a", 1, TTL).unwrap();
    }
    let begin = Instant::now();
    while locks.standing().unwrap().blocks < 2 {
        assert!(begin.elapsed() < PATIENCE, "{lease:?}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Parks its thread in the middle of a call, as much of what blocks does, until it may go on.
#[derive(Clone, Default)]
struct Parks {
    mark: Arc<AtomicU64>,
    has_terms: bool,
    calls: Arc<AtomicU64>,
    may_go: Arc<AtomicBool>,
    resigned: Arc<AtomicBool>,
    /// Who is parked, and how often it was woken.
    parked: Arc<Mutex<Option<thread::Thread>>>,
    wakes: Arc<AtomicU64>,
}

impl Parks {
    /// The second call parks.
    fn park(&self) {
        if self.calls.fetch_add(1, Ordering::SeqCst) != 1 {
            return;
        }
        *self.parked.lock().unwrap() = Some(thread::current());
        while !self.may_go.load(Ordering::SeqCst) {
            thread::park();
            self.wakes.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn is_parked(&self) -> bool {
        self.parked.lock().unwrap().is_some()
    }

    fn go_on(&self) {
        self.may_go.store(true, Ordering::SeqCst);
        self.parked.lock().unwrap().as_ref().unwrap().unpark();
    }
}

impl Reservation for Parks {
    fn keep_alive(&mut self) -> Result<Option<Duration>, ReservationError> {
        if !self.has_terms {
            return Ok(None);
        }
        self.park();
        // The second call comes soon, and the third does not.
        let first = self.calls.load(Ordering::SeqCst) == 1;
        Ok(Some(if first { 4 * TERM } else { 500 * TERM }))
    }

    fn reserve(&mut self, tokens: NonZeroU64) -> Result<Block, ReservationError> {
        if !self.has_terms {
            self.park();
        }
        let mark = self.mark.fetch_add(tokens.get(), Ordering::SeqCst);
        Block::after(mark, tokens)
    }

    fn resign(&mut self) {
        self.resigned.store(true, Ordering::SeqCst);
    }
}

fn wait_until(what: impl Fn() -> bool) {
    let begin = Instant::now();
    while !what() {
        assert!(begin.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_backend_that_parks_its_thread_takes_no_wake_up_away() {
    // The manager goes while the second block is reserved.
    let backend = Parks::default();
    let builder = LockManager::builder().block_size(NonZeroU64::new(10).unwrap());
    let locks = builder.reservation(backend.clone()).build().unwrap();
    for _ in 0..9 {
        drop(locks.try_acquire("a", 1, TTL).unwrap());
    }
    wait_until(|| backend.is_parked());
    // Until it has had the wake-up that asked for the block, which comes late at times.
    thread::sleep(Duration::from_millis(20));
    let wakes = backend.wakes.load(Ordering::SeqCst);
    let (gone, is_gone) = mpsc::channel();
    thread::spawn(move || {
        drop(locks);
        let _ = gone.send(());
    });
    wait_until(|| backend.wakes.load(Ordering::SeqCst) > wakes);
    backend.go_on();
    is_gone.recv_timeout(PATIENCE).expect("it is gone");

    // It resigns while its authority is kept alive, long before that is due again.
    let backend = Parks {
        has_terms: true,
        ..Parks::default()
    };
    let builder = LockManager::builder().clock(SystemClock::new());
    let locks = builder.reservation(backend.clone()).build().unwrap();
    wait_until(|| backend.is_parked());
    let wakes = backend.wakes.load(Ordering::SeqCst);
    locks.resign();
    wait_until(|| backend.wakes.load(Ordering::SeqCst) > wakes);
    backend.go_on();
    wait_until(|| backend.resigned.load(Ordering::SeqCst));
}
