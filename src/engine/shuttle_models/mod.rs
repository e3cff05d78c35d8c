//! Shuttle models of whole managers: table, wheel, queues, clock, threads' parts and futures together,
//! under a scheduler that decides at each access to anything shared who goes on.
//!
//! Run with `RUSTFLAGS='--cfg tenure_shuttle' CARGO_TARGET_DIR=target/shuttle cargo test --release --lib
//! -- shuttle_`.
//!
//! Unlike loom, shuttle tries some interleavings of many, at random, and knows one order of memory. So
//! these models are for what loom can't hold: scenarios of a manager. The rules of the table by
//! themselves, and the orderings, are loom's (`table/loom_models`, `wheel/models.rs`).
//!
//! Each model runs `TENURE_SHUTTLE_ITERATIONS` times (8,000 by default) at random, and as often with few
//! preemptions in random places (PCT: Burckhardt et al., "A Randomized Scheduler with Probabilistic
//! Guarantees of Finding Bugs", 2010). A failure prints a schedule; `shuttle::replay` of the model's body
//! with that string goes through it again. A wake-up that is lost shows as a deadlock.
//!
//! | model | what it guards | broken steps with which it was seen to fail |
//! |---|---|---|
//! | `an_arrival_and_a_release_see_each_other` | nobody waits while the key is free | a kill does not look for the mark, or looks before its CAS; the marker does not look at the lease again, or moves nobody on when it finds it over, or replaces another word than that under which it found the lease (of 120,000 runs); the blocked thread is unparked before it is told |
//! | `a_passer_by_does_not_barge_in` | the order of arrival, against `try_acquire` | a grant does not heed a mark; an arrival does not heed the queue; a release does not look for the mark; the queue is popped at its other end |
//! | `a_waiter_that_leaves_passes_the_lease_on` | cancellation against the hand-over | a leaver keeps what it was granted, or looks for that before it gives up its place; it takes the mark away while others wait; a poll looks at the result and leaves its waker in two steps; a hand-over drops the waker |
//! | `a_queue_that_comes_and_goes_loses_nobody` | the mark is there as long as the queue, and no longer | a leaver takes the mark away after it has let go of the queue's lock; a hand-over does while others wait |
//! | `a_lease_that_passes_on_keeps_its_place` | the limit on leases, with a queue | the lease that has ended makes no room for the head of the queue |
//! | `a_renewal_and_an_expiry_agree` | I4 and I5, with a waiter | the wheel ends the lease in whatever state it is by then; a renewal changes another state than it saw, or one that is over; a kill does not look for the mark |
//! | `an_expired_lease_passes_on_whoever_finds_it` | the driver's sleep, and the wheel's knowledge of leases handed over or moved | the grant to the head of the queue, or a copy, is not registered; a registrar does not wake the driver; the driver does not ask again before it sleeps (of 60,000 runs) |
//! | `a_revoked_lease_passes_on` | each lease ends once, and each end moves the queue on | a kill or a release does not look for the mark; the marker does not look at the lease again |
//! | `nobody_waits_on_for_a_closed_manager` | the end of the manager | closing leaves the queues open to who arrives, or wakes nobody |
//! | `sharers_and_writers_never_meet` | records that come and go, against plain leases (inflate against deflate) | a token is issued beside the table's lease; a grant does not heed a mark; the mark stays after its record |
//! | `of_two_upgraders_one_goes_on` | upgrade against upgrade | an upgrade does not heed the others; the second is not told |
//! | `a_lease_that_is_entered_again_ends_once` | the table's lease on its way to the record, against renewals and releases | an entry that is left is not counted; the table's lease is taken over in whatever state it is by then |
//! | `a_session_lives_or_dies_for_all` | death against keep-alive, with leases and waiters | a session is called over without a change of its word; a keep-alive does not ask whether it is over; its end moves no queue on |
//! | `a_loss_is_told_once_and_always` | signals against ends | a watcher does not look at the lease again after the mark; an ender does not tell |
//! | `those_who_want_the_same_keys_all_get_them` | `acquire_all`, with one who gives up | the keys are asked for in the order given; dropping the future does not close its session |
//! | `a_queue_moves_with_its_bucket` | waiters and tokens, through resizes | marks are not frozen, or not copied; a copy's version starts anew |
//! | `an_authority_is_given_up_when_no_lease_is_out` | resigning, against grants and leases on their way into a record | the counts of leases are believed, or records are looked at before the table; the table is not shut, or not moved; a grant goes by the last version of its array |
//! | `tokens_are_of_blocks_that_do_not_follow` | shutting and opening, with records (I2) | the same of the table, and of the versions that grants and issued tokens go by; the base is not raised to the block |
//! | `a_mark_is_taken_away_while_it_moves` | the same, as the queue goes away | the mark stays; a frozen mark is taken for the last word |
//! | `a_lease_whose_session_closes_is_told_of_as_it_was` | `holder`, `holders`, `validate`, `iter`, `checkpoint`, `snapshot` and a refusal, against a session's end | the deadline is read of a session that is over by then |
//! | `what_an_acquisition_of_many_has_is_told_of_as_it_will_be` | the same, against the last key of an `acquire_all` | a checkpoint reads the session's deadline twice; the deadline that it has until then is told |
//! | `a_key_that_is_kept_is_told_of_throughout` | `checkpoint` and `snapshot`, against a session's end | a checkpoint asks a session once more whether it is over; a snapshot looks at the quarantine alone |
//! | `a_lease_that_moves_to_its_record_is_told_of_throughout` | `snapshot` and the others, against a downgrade | a snapshot looks at the records first |
//! | `who_is_handed_the_key_is_told_of_throughout` | `snapshot`, against a hand-over | it looks at the records only after the table |
//! | `what_was_acquired_at_the_last_moment_lasts` | the last key of an `acquire_all`, against resigning | the session is closed whatever its deadline is by then (of 40,000 runs) |
//! | `all_at_once` | growth, expiry, renewal, waiters, one who leaves, one who shares, and a session, together | a copy is not registered |
//! | `the_next_wakeup_is_not_late_beside_another_turn` | what a turn has in hand | it asks the wheel only |
//! | `all_at_once_is_driven` | the same by a driver alone, with permits | a copy is not registered |

mod blocks;
mod endings;
mod handing;
mod modes;
mod resizes;
mod telling;
mod together;

use std::future::Future;
use std::io::Write;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64 as Plain, Ordering as PlainOrdering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::thread::{self, JoinHandle};
use shuttle::{Config, Runner};

use super::{Engine, Options};
use crate::driver::Driver;
use crate::error::AcquireError;
use crate::key::{HashSeed, Key};
use crate::sync::Arc;
use crate::table::Origin;
use crate::timeline::Timeline;
use crate::{Acquire, Clock, FencingToken, Lease, LockManager, ManualClock, Timestamp};

const TICK: Duration = Duration::from_millis(1);
/// Longer than any model goes on.
const LONG: Duration = Duration::from_secs(1);
/// What the models are about.
const KEY: u64 = 1;
/// A key that is not.
const OTHER: u64 = 2;

/// Preemptions of a run by PCT, and one.
const PCT_DEPTH: usize = 4;

/// Runs a model under both schedulers, and says how often.
fn check(model: impl Fn() + Copy + Send + Sync + 'static) {
    let iterations = std::env::var("TENURE_SHUTTLE_ITERATIONS")
        .map_or(8_000, |number| number.parse().expect("a number"));
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    // It warns that it knows one order of memory.
    config.silence_warnings = true;
    let begun = Instant::now();
    let random = Runner::new(RandomScheduler::new(iterations), config.clone()).run(model);
    let between = Instant::now();
    let pct = Runner::new(PctScheduler::new(PCT_DEPTH, iterations), config).run(model);
    let thread = std::thread::current();
    let line = format!(
        "{}: {random} schedules at random ({:.1} s), {pct} by PCT ({:.1} s)\n",
        thread.name().unwrap_or("a model"),
        (between - begun).as_secs_f64(),
        between.elapsed().as_secs_f64()
    );
    // Not by a macro, whose lines are the test harness's.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// A manager, and what a model has to know besides.
struct World {
    locks: LockManager,
    engine: Arc<Engine>,
    clock: ManualClock,
    visits: Arc<Visits>,
}

/// Who is at work under the key's lease. Plain atomics: shuttle does not change threads at these, so
/// they see what they see at once with what comes before.
#[derive(Default)]
struct Visits {
    inside: Plain,
    highest: Plain,
}

impl Visits {
    /// What a holder does, from when it knows of its lease until it gives it up: nobody else is in
    /// (I1), and nobody with a higher token was (I2).
    fn work(&self, lease: &Lease<'_>) {
        let token = lease.token().get();
        let other = self.inside.swap(token, PlainOrdering::SeqCst);
        assert_eq!(other, 0, "I1: token {other} is at work, and so is {token}");
        let before = self.highest.swap(token, PlainOrdering::SeqCst);
        assert!(before < token, "I2: token {token} after {before}");
        assert!(lease.is_live(), "I3: the lease of token {token} is over");
        let inside = self.inside.swap(0, PlainOrdering::SeqCst);
        assert_eq!(inside, token, "I1: token {inside} has come in");
    }

    /// The same under another key's lease, whose tokens are its own.
    fn work_beside(&self, lease: Lease<'_>) {
        let other = self.inside.swap(u64::MAX, PlainOrdering::SeqCst);
        assert_eq!(other, 0, "token {other} is at work, and another key's");
        assert!(lease.is_live(), "I3: the other key's lease is over");
        self.inside.store(0, PlainOrdering::SeqCst);
        assert_eq!(
            lease.release(),
            Ok(()),
            "I3: the other key's lease ended early"
        );
    }

    /// All of a holder's time: gives the token back, to tell who came first.
    fn visit(&self, lease: Lease<'_>) -> FencingToken {
        self.work(&lease);
        let token = lease.token();
        assert_eq!(lease.release(), Ok(()), "I3: the lease ended early");
        token
    }
}

impl World {
    /// With a table that stays as it is, or with one that each thread's first grant makes grow.
    fn new() -> Arc<Self> {
        Self::with(either(64, 1), None, false)
    }

    /// The same with a driver. Its sleeps end when it is woken, and at no time: see
    /// [`pass`](Self::pass).
    fn driven() -> Arc<Self> {
        Self::with(either(64, 1), None, true)
    }

    fn with(buckets: usize, max_leases: Option<usize>, drives: bool) -> Arc<Self> {
        let clock = ManualClock::new();
        let time = Timeline::new(
            Arc::new(clock.clone()),
            TICK.as_nanos() as u64,
            Duration::from_nanos(1),
            LONG,
        );
        let options = Options {
            seed: HashSeed::new(3),
            time,
            buckets,
            max_leases,
            max_waiters_per_key: usize::MAX,
            max_waiters: usize::MAX,
            deadlock_depth: 0,
            introspection: false,
            origin: Origin::default(),
        };
        let engine = Engine::new(options).expect("memory");
        let driver = drives.then(|| Driver::spawn(&engine, "driver".to_owned()).expect("a thread"));
        let locks = LockManager::assemble(Arc::clone(&engine));
        locks.driven_by(driver, None);
        Arc::new(Self {
            locks,
            engine,
            clock,
            visits: Arc::default(),
        })
    }

    /// A lease of the key, which is free; and, at random, a lease of another key on top of it, so that it
    /// is not released by its bucket but killed first.
    fn hold(&self, ttl: Duration) -> (Lease<'static>, Option<Lease<'static>>) {
        let lease = |key, ttl| {
            let lease = self.locks.try_acquire(key, 1, ttl);
            lease.expect("the key is free").into_owned()
        };
        let held = lease(KEY, ttl);
        let above = toss().then(|| lease(self.neighbour(), LONG));
        (held, above)
    }

    /// A key in the same bucket.
    fn neighbour(&self) -> u64 {
        let mask = self.engine.table_size().0 as u64 - 1;
        let bucket = |key: u64| self.engine.table.hash(Key::from_raw(key.into())) & mask;
        let mut others = OTHER + 1..;
        others
            .find(|&key| bucket(key) == bucket(KEY))
            .expect("one of many")
    }

    /// Acquisitions of the key that wait, in this order.
    fn queue<const N: usize>(&self, ttl: Duration) -> [Pin<Box<Acquire<'static>>>; N] {
        std::array::from_fn(|place| {
            let acquire = self.locks.acquire(KEY, 10 + place as u64, ttl);
            let mut acquire = Box::pin(acquire.into_owned());
            assert!(poll(&mut acquire).is_none(), "the key is held");
            acquire
        })
    }

    fn spawn<R: Send + 'static>(
        self: &Arc<Self>,
        body: impl FnOnce(&Self) -> R + Send + 'static,
    ) -> JoinHandle<R> {
        let world = Arc::clone(self);
        thread::spawn(move || body(&world))
    }

    /// Waits in the queue as a blocked thread, and works under the lease.
    fn wait(&self, owner: u64) -> FencingToken {
        let lease = self.locks.acquire(KEY, owner, LONG).wait();
        self.visits
            .visit(lease.expect("every waiter is granted the lease"))
    }

    /// Waits on as a task, and works under the lease.
    fn go_on(&self, acquire: Pin<Box<Acquire<'static>>>) -> FencingToken {
        let lease = shuttle::future::block_on(acquire);
        self.visits
            .visit(lease.expect("every waiter is granted the lease"))
    }

    /// Works under the lease if it is to be had.
    fn pass_by(&self, owner: u64) {
        match self.locks.try_acquire(KEY, owner, LONG) {
            Ok(lease) => _ = self.visits.visit(lease),
            Err(AcquireError::Held { .. }) => {}
            Err(other) => panic!("{other:?}"),
        }
    }

    fn clock_reads(&self) -> Timestamp {
        self.clock.now()
    }

    /// Lets time pass for a driver that sleeps.
    fn pass(&self, by: Duration) {
        self.clock.advance(by);
        self.engine.wake_driver();
    }

    /// What has to hold when every thread is done and every lease given up: nothing is left of any of
    /// them, and the key is to be had.
    fn settle(&self) {
        self.assert_no_ghost();
        let lease = self.locks.try_acquire(KEY, 99, LONG);
        self.visits.visit(lease.expect("nobody holds the key"));
        assert_eq!(self.locks.len(), 0);
    }

    fn assert_no_ghost(&self) {
        // A driver may have ended a lease, whose key others have had since, and be about to count it.
        for _ in 0..1_000 {
            if self.locks.len() == 0 {
                break;
            }
            thread::yield_now();
        }
        assert_eq!(self.locks.waiting(), 0, "a waiter is left");
        assert_eq!(self.locks.len(), 0, "a lease is left");
        self.assert_unmarked();
    }

    /// The key has no record, and its mark is gone.
    fn assert_unmarked(&self) {
        let key = Key::from_raw(KEY.into());
        let hash = self.engine.table.hash(key);
        assert!(self.engine.records.lock(hash).get(key).is_none());
        let has_mark = |local: &mut _| self.engine.table.has_mark(local, key, hash);
        let marked = self.engine.with(self.engine.time.now(), has_mark);
        assert!(!marked, "a mark without a record is left");
    }
}

fn at(after: Duration) -> Timestamp {
    Timestamp::ZERO.saturating_add(after)
}

fn toss() -> bool {
    thread_rng().gen_range(0..2) == 0
}

fn either<T>(one: T, other: T) -> T {
    if toss() { one } else { other }
}

/// Polls once, and wants no wake-up.
fn poll<'m>(acquire: &mut Pin<Box<Acquire<'m>>>) -> Option<Result<Lease<'m>, AcquireError>> {
    let mut context = Context::from_waker(Waker::noop());
    match acquire.as_mut().poll(&mut context) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

fn join<R>(thread: JoinHandle<R>) -> R {
    thread.join().expect("a panic ends the whole run")
}
