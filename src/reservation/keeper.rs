//! Keeps a manager's authority alive and its blocks coming: the only caller of a backend.
//!
//! | state | until | what happens |
//! |---|---|---|
//! | without | a campaign is won | grants say `AuthorityLost`; campaigns, one after the other |
//! | won, and leases of an earlier term may be live | these are over | the authority is kept alive; still no grants |
//! | with | it is lost, or its term is over | grants; kept alive every third of the term; a block is reserved when half of the last one is used up |
//! | resigning | no lease is out | no grants |
//! | resigned | for ever | no grants |
//!
//! The term counts from before the backend was asked, and the manager's limit lies a margin before its end, for
//! clocks of different speed, and the clock's resolution. Leases end at the limit at the latest. So a successor
//! that is granted the authority after the term meets no live lease, even if this process stands still meanwhile.

use std::fmt;
use std::num::NonZeroU64;
use std::panic::{self, AssertUnwindSafe};
use std::thread;
use std::time::{Duration, Instant};

use super::{Block, Reservation, ReservationError};
use crate::engine::{Engine, wake_before_blocking};
use crate::failpoint::failpoint;
use crate::process::Process;
use crate::sync::Arc;

/// For how long a campaign waits: closing a manager waits as long for it.
const PATIENCE: Duration = Duration::from_millis(250);
/// How soon a campaign that did not wait is tried again.
const RETRY_HELD: Duration = Duration::from_millis(50);
/// How soon a call that failed is tried again.
const RETRY: Duration = Duration::from_millis(200);
/// How often a manager that resigns looks whether its leases are gone.
const RESIGNING: Duration = Duration::from_millis(10);

/// What it takes to keep a reservation.
pub(crate) struct Keeper {
    backend: Box<dyn Reservation>,
    tokens: NonZeroU64,
    margin: Option<Duration>,
    state: State,
    /// The latest limit that leases were granted under.
    limit: u64,
    /// The block can be asked for again at this reading.
    next_block: u64,
}

/// All points in time are readings of the manager's clock, in nanoseconds.
#[derive(Debug)]
enum State {
    Without,
    With {
        /// `None` for ever.
        term: Option<Term>,
        /// It grants.
        open: bool,
    },
    Resigned,
}

#[derive(Clone, Copy, Debug)]
struct Term {
    ends: u64,
    limit: u64,
    renew: u64,
    length: u64,
}

impl Keeper {
    pub(crate) fn new(
        backend: Box<dyn Reservation>,
        tokens: NonZeroU64,
        margin: Option<Duration>,
    ) -> Self {
        Self {
            backend,
            tokens,
            margin,
            state: State::Without,
            limit: 0,
            next_block: 0,
        }
    }

    /// Does what is due, waiting for the authority for `patience` at the most. Says how soon it is to be called
    /// again; `None` if not before something is wanted.
    pub(crate) fn tend(&mut self, engine: &Engine, patience: Duration) -> Option<Duration> {
        if engine.authority.is_resigning() {
            return self.resign(engine);
        }
        let tended = match self.state {
            State::Resigned => return None,
            State::Without => self.campaign(engine, patience),
            State::With { term, open } => self.keep(engine, term, open),
        };
        let next = match tended {
            Ok(next) => next,
            Err(error) => {
                let retry = match error {
                    ReservationError::Held { .. } => RETRY_HELD,
                    _ => RETRY,
                };
                if error == ReservationError::Lost {
                    self.lose(engine);
                }
                engine.authority.note(Some(error));
                Some(retry)
            }
        };
        // Said while the backend was at work, which may have parked the thread, and so taken the wake-up.
        if engine.authority.is_resigning() {
            return Some(Duration::ZERO);
        }
        next
    }

    fn campaign(
        &mut self,
        engine: &Engine,
        patience: Duration,
    ) -> Result<Option<Duration>, ReservationError> {
        self.backend.campaign(patience)?;
        let asked = self.ask_term(engine);
        if asked.is_err() {
            // It is ours, for nobody knows how long, and nothing was granted under it.
            self.backend.resign();
        }
        let term = asked?;
        engine.authority.note(None);
        self.state = State::With { term, open: false };
        self.keep(engine, term, false)
    }

    /// Keeps the authority alive.
    fn ask_term(&mut self, engine: &Engine) -> Result<Option<Term>, ReservationError> {
        let asked = engine.time.precise_now();
        failpoint!("reservation/renewing");
        let Some(length) = self.backend.keep_alive()? else {
            return Ok(None);
        };
        // More than the clock can count is no longer than that.
        let length = length.min(Duration::from_nanos(u64::MAX));
        let margin = self.margin.unwrap_or(length / 10);
        let margin = margin.saturating_add(engine.time.resolution());
        // A third of the term may pass before it is renewed.
        if margin.saturating_mul(2) >= length {
            let term = length;
            return Err(ReservationError::TermTooShort { term, margin });
        }
        let nanos = |length: Duration| u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        let ends = asked.saturating_add(nanos(length));
        Ok(Some(Term {
            ends,
            limit: ends - nanos(margin),
            renew: asked.saturating_add(nanos(length) / 3),
            length: nanos(length),
        }))
    }

    fn keep(
        &mut self,
        engine: &Engine,
        term: Option<Term>,
        open: bool,
    ) -> Result<Option<Duration>, ReservationError> {
        let mut term = term;
        let now = engine.time.precise_now();
        if let Some(known) = &mut term {
            if now >= known.ends {
                return Err(ReservationError::Lost);
            }
            if now >= known.renew {
                match self.ask_term(engine) {
                    Ok(Some(renewed)) => {
                        engine.authority.note(None);
                        *known = renewed;
                        if open {
                            self.limit = self.limit.max(renewed.limit);
                            engine.extend_limit(renewed.limit);
                        }
                    }
                    Ok(None) => {
                        engine.authority.note(None);
                        term = None;
                        if open {
                            self.limit = u64::MAX;
                            engine.extend_limit(u64::MAX);
                        }
                    }
                    Err(ReservationError::Lost) => return Err(ReservationError::Lost),
                    Err(error) => {
                        // It lasts as it did, and there is time for more than one other try.
                        known.renew = now.saturating_add(known.length / 20);
                        engine.authority.note(Some(error));
                    }
                }
            }
        }
        self.state = State::With { term, open };
        if open {
            self.keep_supplied(engine, term, now)?;
        } else if engine.is_idle() || now >= self.limit {
            self.open(engine, term)?;
        }
        let renew = term.map(|term| term.renew);
        let waits = [
            renew,
            // Leases of an earlier term are out still.
            (!self.is_open()).then_some(now.saturating_add(RESIGNING.as_nanos() as u64)),
            (self.is_open() && engine.authority.wants_block()).then_some(self.next_block),
        ];
        let next = waits.into_iter().flatten().min();
        let now = engine.time.precise_now();
        Ok(next.map(|next| Duration::from_nanos(next.saturating_sub(now))))
    }

    /// Reserves another block, if one is wanted.
    fn keep_supplied(
        &mut self,
        engine: &Engine,
        term: Option<Term>,
        now: u64,
    ) -> Result<(), ReservationError> {
        if !engine.authority.wants_block() || now < self.next_block {
            return Ok(());
        }
        match self.backend.reserve(self.tokens) {
            Ok(block) if engine.follows(block) => {
                failpoint!("reservation/reserved");
                engine.authority.note(None);
                engine.add_block(block);
            }
            Ok(block) => {
                // Somebody has been handed tokens in between, without authority: their business.
                engine.authority.note(None);
                self.enter(engine, block, term)?;
            }
            Err(ReservationError::Lost) => return Err(ReservationError::Lost),
            Err(error) => {
                self.next_block = now.saturating_add(RETRY.as_nanos() as u64);
                engine.authority.note(Some(error));
            }
        }
        Ok(())
    }

    /// Begins to grant. No lease of an earlier term is live.
    fn open(&mut self, engine: &Engine, term: Option<Term>) -> Result<(), ReservationError> {
        let mut block = self.backend.reserve(self.tokens)?;
        // What the manager was restored from may have granted tokens of another source.
        if let Some(short) = engine.floor().checked_sub(block.last().get()) {
            block = self.backend.reserve(self.tokens.saturating_add(short))?;
        }
        self.enter(engine, block, term)
    }

    fn enter(
        &mut self,
        engine: &Engine,
        block: Block,
        term: Option<Term>,
    ) -> Result<(), ReservationError> {
        self.state = State::With { term, open: false };
        let limit = term.map_or(u64::MAX, |term| term.limit);
        if !engine.close_to_grants() || !engine.open_to_grants(block, limit) {
            if engine.authority.is_resigning() {
                return Ok(());
            }
            let reason = "no memory for another table, or no tokens left for one".to_owned();
            return Err(ReservationError::Unavailable { reason });
        }
        self.limit = self.limit.max(limit);
        self.state = State::With { term, open: true };
        Ok(())
    }

    fn is_open(&self) -> bool {
        matches!(self.state, State::With { open: true, .. })
    }

    fn lose(&mut self, engine: &Engine) {
        if self.is_open() {
            engine.close_to_grants();
        }
        self.state = State::Without;
    }

    /// The authority is given up as soon as no lease is out, and not before.
    fn resign(&mut self, engine: &Engine) -> Option<Duration> {
        let State::With { term, .. } = self.state else {
            self.state = State::Resigned;
            return None;
        };
        // Again: there may have been no memory for it.
        engine.close_to_grants();
        self.state = State::With { term, open: false };
        let over = term.is_some_and(|term| engine.time.precise_now() >= term.ends);
        if over || engine.is_idle() {
            if !over {
                self.backend.resign();
            }
            self.state = State::Resigned;
            return None;
        }
        Some(RESIGNING)
    }

    /// The manager is gone: nobody is granted anything any more. Its holders may not know.
    pub(crate) fn finish(mut self, engine: &Engine) {
        // Of what is under way nothing is granted either.
        if let State::With { .. } = self.state
            && engine.close_to_grants()
            && engine.is_idle()
        {
            self.backend.resign();
        }
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// The thread that keeps a reservation; ends, and lets go of the backend, when it is dropped.
#[derive(Debug)]
pub(crate) struct KeeperThread {
    engine: Arc<Engine>,
    process: Process,
    thread: Option<thread::JoinHandle<()>>,
}

impl KeeperThread {
    pub(crate) fn spawn(engine: &Arc<Engine>) -> std::io::Result<Self> {
        let kept = Arc::clone(engine);
        let thread = thread::Builder::new()
            .name("tenure-reservation".to_owned())
            .spawn(move || keep(&kept))?;
        engine.authority.set_thread(thread.thread().clone());
        Ok(Self {
            engine: Arc::clone(engine),
            process: Process::this(),
            thread: Some(thread),
        })
    }
}

impl Drop for KeeperThread {
    fn drop(&mut self) {
        if !self.process.is_this() {
            std::mem::forget(self.thread.take());
            return;
        }
        self.engine.close_down();
        if let Some(thread) = self.thread.take()
            // The backend may own the last handle.
            && thread.thread().id() != thread::current().id()
        {
            wake_before_blocking();
            let _ = thread.join();
        }
    }
}

fn keep(engine: &Engine) {
    while !engine.is_closed() {
        let began = Instant::now();
        let tended = panic::catch_unwind(AssertUnwindSafe(|| {
            let mut tending = engine.authority.tend()?;
            let keeper = tending.keeper.as_mut()?;
            keeper.tend(engine, PATIENCE)
        }));
        if engine.is_closed() {
            // The wake-up may be the backend's by now: it, too, may park.
            break;
        }
        match tended {
            Ok(None) => thread::park(),
            Ok(Some(next)) => thread::park_timeout(next),
            Err(_) => {
                let reason = "its backend has panicked".to_owned();
                let error = ReservationError::Unavailable { reason };
                engine.authority.note(Some(error));
                thread::park_timeout(RETRY.saturating_sub(began.elapsed()));
            }
        }
    }
    end(engine);
}

/// Lets go of the backend.
pub(crate) fn end(engine: &Engine) {
    let keeper = engine.authority.tend().and_then(|mut it| it.keeper.take());
    if let Some(keeper) = keeper {
        let _ = panic::catch_unwind(AssertUnwindSafe(|| keeper.finish(engine)));
    }
}

#[cfg(all(test, not(any(tenure_loom, tenure_shuttle))))]
mod tests {
    use super::*;
    use crate::{LockManager, ManualClock};

    const SECOND: Duration = Duration::from_secs(1);

    /// Hands out tokens for a term, unless somebody else is at it.
    struct Backend {
        mark: u64,
        held: Arc<crate::sync::AtomicBool>,
    }

    impl Backend {
        fn is_held(&self) -> bool {
            self.held.load(crate::sync::Ordering::Acquire)
        }
    }

    impl Reservation for Backend {
        fn campaign(&mut self, _: Duration) -> Result<(), ReservationError> {
            if self.is_held() {
                let holder = "somebody else".to_owned();
                return Err(ReservationError::Held { holder });
            }
            Ok(())
        }

        fn keep_alive(&mut self) -> Result<Option<Duration>, ReservationError> {
            if self.is_held() {
                return Err(ReservationError::Lost);
            }
            Ok(Some(10 * SECOND))
        }

        fn reserve(&mut self, tokens: NonZeroU64) -> Result<Block, ReservationError> {
            // Who has it in between is handed some as well.
            let block = Block::after(self.mark + 1_000, tokens)?;
            self.mark = block.last().get();
            Ok(block)
        }
    }

    /// A thread reads the clock while its lease is live, and goes on when the authority has been lost and won
    /// again, and nobody has come upon the lease since: others may have been granted the key (I5).
    #[test]
    fn a_lease_of_an_earlier_term_is_not_renewed_by_who_stood_still() {
        let clock = ManualClock::new();
        let held = Arc::new(crate::sync::AtomicBool::new(false));
        let backend = Backend {
            mark: 0,
            held: Arc::clone(&held),
        };
        let builder = LockManager::builder().clock(clock.clone());
        let locks = builder.reservation(backend).build().expect("a block");
        let engine = locks.engine();
        clock.advance(SECOND);
        let token = locks.try_acquire("a", 1, 7 * SECOND).expect("free");
        let name = engine.name(locks.key("a"), token.detach().get());
        clock.advance(6 * SECOND);

        let now = engine.time.now();
        clock.advance(4 * SECOND);
        held.store(true, crate::sync::Ordering::Release);
        for _ in 0..2 {
            locks.tend_reservation(Duration::ZERO);
        }
        held.store(false, crate::sync::Ordering::Release);
        locks.tend_reservation(Duration::ZERO);
        assert!(locks.wait_for_authority(Duration::ZERO), "won again");
        let deadline = engine.time.deadline(now, 8 * SECOND).expect("in order");
        assert!(engine.renew_by_key(&name, deadline, now).is_err());
    }

    #[test]
    fn a_keeper_prints_its_state_and_not_its_backend() {
        let keeper = Keeper::new(Box::new(super::super::Memory::new()), NonZeroU64::MIN, None);
        let printed = format!("{keeper:?}");
        assert_eq!(printed, "Keeper { state: Without, .. }");
    }
}
