//! A shard in memory, with authority or without, that breaks one promise.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::super::{Clients, Options};
use crate::reservation::{Block, Reservation, ReservationError};
use crate::token::FencingToken;

/// Long enough for a thread of a busy machine to come to use some of it.
pub(super) const TERM: Duration = Duration::from_millis(500);

/// How late a backend may be: a machine that has other things to do must not make a good one fail.
pub(super) const SLACK: Duration = Duration::from_secs(2);

/// The promise that a backend breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    // Blocks.
    OneTooFew,
    OneTooMany,
    FirstTokenTwice,
    BeginsAnewWhenOpened,
    ForgetsWhatACrashedClientTook,
    HandsOutOfAPrivateStock,
    ReadsAndWritesInTwoSteps,
    RunsOutEarly,
    BeginsAnewAtTheEnd,
    GoesPastTheEnd,
    HandsOutWhatIsLeft,
    SpendsAllOnAFailedTry,
    UnavailableAtTheEnd,
    // Who may have it.
    OpensTwice,
    HeldByNobody,
    LosesCampaigns,
    SaysATerm,
    // Authority.
    ServesContenders,
    LetsEverybodyWin,
    LetsContendersResign,
    UnavailableWhenHeld,
    WaitsTooLong,
    IgnoresResigning,
    ServesTheResigned,
    ReservesForTheResigned,
    LiesAboutItsTerm,
    LongerThanItSaid,
    ForEver,
    NoTimeAtAll,
    DoesNotExtend,
    ExtendsByHalf,
    SaysLostTooEarly,
    NeverEnds,
    ServesTheLost,
    ServesTheLostWhenFree,
    KeepsTheLostAlive,
    RefusesTheLostForEver,
    UnavailableAfterALoss,
}

/// A shard in memory, with or without authority over it.
#[derive(Debug)]
pub(super) struct Shard {
    kind: Options,
    fault: Fault,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    mark: u64,
    /// The mark when a client last resigned.
    mark_at_resigning: u64,
    clients: u64,
    open: u64,
    owner: Option<(u64, Instant)>,
}

impl State {
    fn owner(&self) -> Option<u64> {
        let (client, until) = self.owner?;
        (Instant::now() < until).then_some(client)
    }
}

#[derive(Debug)]
pub(super) struct Client {
    shard: Arc<Shard>,
    number: u64,
    /// When it campaigned, until it lost or resigned.
    won: Option<Instant>,
    ever_lost: bool,
    resigned: bool,
    stock: Option<(u64, u64)>,
}

impl Shard {
    pub(super) fn new(kind: Options, fault: Fault) -> Arc<Self> {
        Arc::new(Self {
            kind,
            fault,
            state: Mutex::default(),
        })
    }

    pub(super) fn open(self: &Arc<Self>) -> Result<Client, ReservationError> {
        let mut state = self.state.lock();
        let exclusive = self.kind.clients == Clients::OneAtATime;
        if exclusive && state.open > 0 && self.fault != Fault::OpensTwice {
            let holder = match self.fault {
                Fault::HeldByNobody => String::new(),
                _ => "another client".to_owned(),
            };
            return Err(ReservationError::Held { holder });
        }
        state.open += 1;
        state.clients += 1;
        if self.fault == Fault::BeginsAnewWhenOpened {
            state.mark = 0;
        }
        if self.fault == Fault::ForgetsWhatACrashedClientTook && state.open == 1 {
            state.mark = state.mark_at_resigning;
        }
        Ok(Client {
            shard: Arc::clone(self),
            number: state.clients,
            won: None,
            ever_lost: false,
            resigned: false,
            stock: None,
        })
    }

    fn term(&self) -> Option<Duration> {
        self.kind.term()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shard.state.lock().open -= 1;
    }
}

impl Client {
    fn is(&self, fault: Fault) -> bool {
        self.shard.fault == fault
    }

    /// Whether it has authority, as far as this backend cares.
    fn authorised(&mut self) -> Result<(), ReservationError> {
        if self.shard.term().is_none() || self.is(Fault::ServesContenders) {
            return Ok(());
        }
        let owner = self.shard.state.lock().owner();
        if owner == Some(self.number) && self.won.is_some() {
            if self.is(Fault::SaysLostTooEarly)
                && self.won.is_some_and(|won| won.elapsed() > TERM / 3)
            {
                return Err(ReservationError::Lost);
            }
            return Ok(());
        }
        let lost = self.won.is_some() || self.ever_lost;
        self.ever_lost |= self.won.take().is_some();
        let served = match self.shard.fault {
            Fault::ServesTheLost => lost,
            Fault::ServesTheLostWhenFree => lost && owner.is_none(),
            Fault::ServesTheResigned => self.resigned,
            _ => false,
        };
        match self.shard.fault {
            _ if served => Ok(()),
            Fault::UnavailableAfterALoss => Err(ReservationError::Unavailable {
                reason: "the session is closed".to_owned(),
            }),
            _ => Err(ReservationError::Lost),
        }
    }

    fn next(&mut self, mark: u64, tokens: NonZeroU64) -> Result<Block, ReservationError> {
        let count = tokens.get();
        let left = FencingToken::MAX.get() - mark;
        let (mark, count) = match self.shard.fault {
            Fault::OneTooFew => (mark, count.max(2) - 1),
            Fault::OneTooMany => (mark, count.saturating_add(1)),
            Fault::FirstTokenTwice => (mark.saturating_sub(1), count),
            Fault::RunsOutEarly if count > 1 << 31 => (FencingToken::MAX.get(), count),
            Fault::BeginsAnewAtTheEnd if left < count => (0, count.min(1000)),
            Fault::HandsOutWhatIsLeft if left > 0 => (mark, count.min(left)),
            Fault::GoesPastTheEnd if left < count => (mark - 1, 1),
            _ => (mark, count),
        };
        Block::after(mark, NonZeroU64::new(count).unwrap())
    }

    fn take(&mut self, tokens: NonZeroU64) -> Result<Block, ReservationError> {
        let shard = Arc::clone(&self.shard);
        let mut state = shard.state.lock();
        let mark = state.mark;
        if self.is(Fault::ReadsAndWritesInTwoSteps) {
            drop(state);
            thread::sleep(Duration::from_micros(50));
            state = shard.state.lock();
        }
        match self.next(mark, tokens) {
            Ok(block) => {
                state.mark = block.last().get();
                Ok(block)
            }
            Err(_) if self.is(Fault::UnavailableAtTheEnd) => Err(ReservationError::Unavailable {
                reason: "numeric field overflow".to_owned(),
            }),
            Err(error) => {
                if self.is(Fault::SpendsAllOnAFailedTry) {
                    state.mark = FencingToken::MAX.get();
                }
                Err(error)
            }
        }
    }
}

impl Reservation for Client {
    fn campaign(&mut self, patience: Duration) -> Result<(), ReservationError> {
        if self.is(Fault::LosesCampaigns) {
            return Err(ReservationError::Lost);
        }
        let Some(term) = self.shard.term() else {
            return Ok(());
        };
        if self.is(Fault::RefusesTheLostForEver) && self.ever_lost {
            return Err(ReservationError::Lost);
        }
        let patience = match self.shard.fault {
            Fault::WaitsTooLong => patience + SLACK + TERM,
            _ => patience,
        };
        let started = Instant::now();
        loop {
            let mut state = self.shard.state.lock();
            if state.owner().is_none() || self.is(Fault::LetsEverybodyWin) {
                let lasts = match self.shard.fault {
                    Fault::LiesAboutItsTerm => term / 4,
                    Fault::NeverEnds => 100 * term,
                    _ => term,
                };
                state.owner = Some((self.number, Instant::now() + lasts));
                self.won = Some(Instant::now());
                return Ok(());
            }
            drop(state);
            if started.elapsed() >= patience {
                return Err(match self.shard.fault {
                    Fault::UnavailableWhenHeld => ReservationError::Unavailable {
                        reason: "timed out".to_owned(),
                    },
                    _ => ReservationError::Held {
                        holder: "another client".to_owned(),
                    },
                });
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn keep_alive(&mut self) -> Result<Option<Duration>, ReservationError> {
        let Some(term) = self.shard.term() else {
            return Ok(self.is(Fault::SaysATerm).then_some(TERM));
        };
        if self.is(Fault::KeepsTheLostAlive) && self.ever_lost {
            return Ok(Some(term));
        }
        self.authorised()?;
        let mut state = self.shard.state.lock();
        match self.shard.fault {
            Fault::LiesAboutItsTerm | Fault::DoesNotExtend | Fault::ServesContenders => {}
            Fault::NeverEnds => state.owner = Some((self.number, Instant::now() + 100 * term)),
            Fault::ExtendsByHalf => state.owner = Some((self.number, Instant::now() + term / 2)),
            _ => state.owner = Some((self.number, Instant::now() + term)),
        }
        Ok(match self.shard.fault {
            Fault::LongerThanItSaid => Some(2 * term),
            Fault::ForEver => None,
            Fault::NoTimeAtAll => Some(Duration::ZERO),
            _ => Some(term),
        })
    }

    fn reserve(&mut self, tokens: NonZeroU64) -> Result<Block, ReservationError> {
        if !(self.is(Fault::ReservesForTheResigned) && self.resigned) {
            self.authorised()?;
        }
        if !self.is(Fault::HandsOutOfAPrivateStock) || tokens.get() > 100 {
            self.stock = None;
            return self.take(tokens);
        }
        let (mark, end) = match self.stock {
            Some((mark, end)) if end - mark >= tokens.get() => (mark, end),
            _ => {
                let block = self.take(NonZeroU64::new(1000).unwrap())?;
                (block.first().get() - 1, block.last().get())
            }
        };
        self.stock = Some((mark + tokens.get(), end));
        Block::after(mark, tokens)
    }

    fn resign(&mut self) {
        let mut state = self.shard.state.lock();
        state.mark_at_resigning = state.mark;
        let mine = state.owner.is_some_and(|(owner, _)| owner == self.number);
        if self.shard.fault == Fault::LetsContendersResign || mine {
            if self.shard.fault != Fault::IgnoresResigning {
                state.owner = None;
            }
            self.won = None;
            self.resigned = true;
        }
    }
}
