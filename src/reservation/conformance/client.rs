//! A client in the hands of a check: all that it is told is held against what the others were told.
//!
//! A thread may be stopped between any two instructions, so nothing is concluded from the moment at which an
//! answer is looked at, except what holds whenever it was given:
//!
//! - A block has to be above every block whose reservation had returned before its own began.
//! - Two authorities overlap if both have been told of a term that is not over *now*, and neither has begun to
//!   resign. Who has only won a campaign has been promised nothing yet.
//! - A block was handed out without authority if somebody else had it before the call began, has it after
//!   it returned, and has not begun to resign in between.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::super::{Block, Reservation, ReservationError};
use super::{Failure, Options};

/// What all clients of a check were told.
#[derive(Debug)]
pub(super) struct Witness<'a> {
    pub(super) options: &'a Options,
    check: &'static str,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    clients: u64,
    /// The last token of each block, by the first.
    blocks: BTreeMap<u64, u64>,
    owner: Option<Owner>,
    /// How many owners have begun to resign, or were dropped.
    resigned: u64,
}

/// Who was the last to be told that it has authority.
#[derive(Clone, Copy, Debug)]
struct Owner {
    client: u64,
    until: Instant,
}

impl Told {
    /// Who has authority now, if it is not that client.
    fn rival(&self, client: u64) -> Option<Owner> {
        let live = |owner: &Owner| owner.client != client && Instant::now() < owner.until;
        self.owner.filter(live)
    }
}

impl<'a> Witness<'a> {
    pub(super) fn new(check: &'static str, options: &'a Options) -> Self {
        Self {
            options,
            check,
            told: Mutex::default(),
        }
    }

    /// A failure of the check that this is the witness of.
    pub(super) fn failure(&self, what: impl Into<String>) -> Failure {
        Failure {
            check: self.check,
            what: what.into(),
        }
    }

    /// The term, for checks that make no sense without one.
    pub(super) fn term(&self) -> Result<Duration, Failure> {
        self.options.term().ok_or_else(|| {
            self.failure("this check is for backends with authority: say `Options::elected`")
        })
    }

    pub(super) fn blocks(&self) -> usize {
        self.told.lock().blocks.len()
    }

    /// Opens a client; that it can't be opened is a failure.
    pub(super) fn open<R: Reservation>(
        &self,
        open: impl Fn() -> Result<R, ReservationError>,
    ) -> Result<Client<'_, 'a, R>, Failure> {
        self.try_open(open)
            .map_err(|error| self.failure(format!("a client could not be opened: {error}")))
    }

    /// Opens a client, which may be refused.
    pub(super) fn try_open<R: Reservation>(
        &self,
        open: impl Fn() -> Result<R, ReservationError>,
    ) -> Result<Client<'_, 'a, R>, ReservationError> {
        let reservation = open()?;
        let mut told = self.told.lock();
        told.clients += 1;
        Ok(Client {
            witness: self,
            number: told.clients,
            until: None,
            reservation,
        })
    }

    /// Looks at a block that was handed out by a call before which `highest` had been handed out.
    fn hand_out(&self, block: Block, tokens: NonZeroU64, highest: u64) -> Result<(), Failure> {
        let (first, last) = (block.first().get(), block.last().get());
        if last.checked_sub(first) != Some(tokens.get() - 1) {
            return Err(self.failure(format!(
                "{tokens} tokens were asked for, and {first}..={last} handed out"
            )));
        }
        if first <= highest {
            return Err(self.failure(format!(
                "{first}..={last} was handed out after {highest} had been: a block has to be above \
                 every block before it, whoever has it"
            )));
        }
        let mut told = self.told.lock();
        let below = told.blocks.range(..=last).next_back();
        if let Some((other_first, other_last)) =
            below.filter(|(_, other_last)| **other_last >= first)
        {
            return Err(self.failure(format!(
                "{first}..={last} was handed out, and {other_first}..={other_last} as well: they overlap"
            )));
        }
        told.blocks.insert(first, last);
        Ok(())
    }
}

/// A client, and what it has been told.
#[derive(Debug)]
pub(super) struct Client<'w, 'a, R> {
    witness: &'w Witness<'a>,
    number: u64,
    /// When the authority ends that it was told of.
    until: Option<Instant>,
    reservation: R,
}

/// What a client answered; the outer error is a promise that it broke.
pub(super) type Answer<T> = Result<Result<T, ReservationError>, Failure>;

impl<R: Reservation> Client<'_, '_, R> {
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Campaigns, and asks for how long it has won, as a manager does.
    pub(super) fn campaign(&mut self, patience: Duration) -> Answer<()> {
        self.until = None;
        match self.reservation.campaign(patience) {
            Ok(()) => self.keep_alive(),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Campaigns until it has won; that it doesn't within a term and the slack is a failure.
    pub(super) fn win(&mut self) -> Result<(), Failure> {
        let options = self.witness.options;
        let limit = options.term().unwrap_or_default() + options.slack;
        let started = Instant::now();
        loop {
            let patience = limit.saturating_sub(started.elapsed());
            let error = match self.campaign(patience)? {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if started.elapsed() >= limit {
                return Err(self.witness.failure(format!(
                    "nobody had authority any more, and yet it could not be won in {limit:?}: {error}"
                )));
            }
            pause();
        }
    }

    pub(super) fn keep_alive(&mut self) -> Answer<()> {
        let began = Instant::now();
        let answer = match self.reservation.keep_alive() {
            Ok(term) => term,
            Err(error) => return self.refused(error),
        };
        match (answer, self.witness.options.term()) {
            (None, None) => Ok(Ok(())),
            (Some(term), Some(longest)) if term <= longest && !term.is_zero() => {
                self.told_of(began + term)
            }
            (Some(term), Some(longest)) => Err(self.witness.failure(format!(
                "keep_alive said {term:?}; a term is more than nothing, and {longest:?} at the most"
            ))),
            (None, Some(_)) => Err(self.witness.failure(
                "keep_alive said that the authority is for ever, of a backend that has terms",
            )),
            (Some(term), None) => Err(self.witness.failure(format!(
                "keep_alive said {term:?}, of a backend that has no terms: say `Options::elected`"
            ))),
        }
    }

    fn told_of(&mut self, until: Instant) -> Answer<()> {
        let mut told = self.witness.told.lock();
        self.until = Some(until);
        // This thread may have slept through its whole term: then another's is no contradiction.
        if Instant::now() < until {
            if let Some(rival) = told.rival(self.number) {
                return Err(self.witness.failure(format!(
                    "two clients have authority: one was told so while another's still has {:?} to go",
                    rival.until.saturating_duration_since(Instant::now())
                )));
            }
            told.owner = Some(Owner {
                client: self.number,
                until,
            });
        }
        Ok(Ok(()))
    }

    /// Reserves, whatever comes of it.
    pub(super) fn reserve(&mut self, tokens: NonZeroU64) -> Answer<Block> {
        let (highest, rival, resigned) = {
            let told = self.witness.told.lock();
            let highest = told.blocks.last_key_value().map_or(0, |(_, last)| *last);
            (highest, told.rival(self.number), told.resigned)
        };
        let block = match self.reservation.reserve(tokens) {
            Ok(block) => block,
            Err(error) => return self.refused(error),
        };
        self.witness.hand_out(block, tokens, highest)?;
        let told = self.witness.told.lock();
        let still = told
            .rival(self.number)
            .filter(|_| told.resigned == resigned);
        if let (Some(before), Some(after)) = (rival, still)
            && before.client == after.client
        {
            return Err(self.witness.failure(format!(
                "{}..={} was handed out to a client while another had authority",
                block.first(),
                block.last()
            )));
        }
        Ok(Ok(block))
    }

    /// Reserves, keeping its authority alive and winning it again if it has run out meanwhile; that no
    /// block comes of it is a failure.
    pub(super) fn must_reserve(&mut self, tokens: NonZeroU64) -> Result<Block, Failure> {
        self.reserve_kept(tokens)?.map_err(|error| {
            self.witness
                .failure(format!("{tokens} tokens were not to be had: {error}"))
        })
    }

    /// Reserves, keeping its authority alive and winning it again if it has run out meanwhile.
    pub(super) fn reserve_kept(&mut self, tokens: NonZeroU64) -> Answer<Block> {
        loop {
            if let Some(term) = self.witness.options.term()
                && self
                    .until
                    .is_none_or(|until| Instant::now() + term / 2 > until)
                && self.keep_alive()?.is_err()
            {
                self.win()?;
            }
            match self.reserve(tokens)? {
                // `refused` has seen to it that the term was over: this machine is slow.
                Err(ReservationError::Lost) if self.witness.options.term().is_some() => {
                    self.win()?;
                }
                answer => return Ok(answer),
            }
        }
    }

    /// That the authority is lost must not be said before its end.
    fn refused<T>(&mut self, error: ReservationError) -> Answer<T> {
        if error == ReservationError::Lost
            && let Some(until) = self.until.take()
        {
            let left = until.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                return Err(self.witness.failure(format!(
                    "the authority was lost {left:?} before the end of the term that keep_alive had said"
                )));
            }
        }
        Ok(Err(error))
    }

    pub(super) fn resign(&mut self) {
        self.step_down();
        self.reservation.resign();
    }
}

impl<R> Client<'_, '_, R> {
    /// From here on, others may have authority.
    fn step_down(&mut self) {
        self.until = None;
        let mut told = self.witness.told.lock();
        if told.owner.is_some_and(|owner| owner.client == self.number) {
            told.owner = None;
            told.resigned += 1;
        }
    }
}

impl<R> Drop for Client<'_, '_, R> {
    /// A backend may give its authority up when it is dropped, which happens right after this.
    fn drop(&mut self) {
        self.step_down();
    }
}

/// So many tokens.
pub(super) const fn tokens(count: u64) -> NonZeroU64 {
    match NonZeroU64::new(count) {
        Some(count) => count,
        None => NonZeroU64::MIN,
    }
}

/// Lets a backend breathe that refuses at once.
pub(super) fn pause() {
    std::thread::sleep(Duration::from_millis(1));
}
