//! A backend in memory that keeps its promises, and can be made to fail.

use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tenure::reservation::{Block, Reservation, ReservationError};
use tenure::{Builder, Clock, LockManager, ManualClock, Timestamp};

pub(crate) const TERM: Duration = Duration::from_secs(10);
pub(crate) const MARGIN: Duration = Duration::from_secs(1);
pub(crate) const TTL: Duration = Duration::from_secs(60);

/// What the backend stores. Several managers share it.
#[derive(Clone)]
pub(crate) struct Ledger {
    pub(crate) clock: ManualClock,
    shard: Arc<Mutex<Shard>>,
}

#[derive(Default)]
pub(crate) struct Shard {
    pub(crate) mark: u64,
    /// Who has it, and until when.
    pub(crate) holder: Option<(u64, Timestamp)>,
    /// Every call fails with it.
    pub(crate) fails: Option<ReservationError>,
    pub(crate) keep_alives: u64,
    pub(crate) blocks: Vec<Block>,
    next_client: u64,
}

/// One manager's connection.
pub(crate) struct Client {
    ledger: Ledger,
    me: u64,
    term: Option<Duration>,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self {
            clock: ManualClock::new(),
            shard: Arc::default(),
        }
    }

    pub(crate) fn shard(&self) -> MutexGuard<'_, Shard> {
        self.shard.lock().unwrap()
    }

    pub(crate) fn client(&self, term: Option<Duration>) -> Client {
        let mut shard = self.shard();
        shard.next_client += 1;
        Client {
            ledger: self.clone(),
            me: shard.next_client,
            term,
        }
    }

    /// A manager without threads, on the ledger's clock.
    pub(crate) fn builder(&self, term: Option<Duration>, block: u64) -> Builder {
        LockManager::builder()
            .clock(self.clock.clone())
            .reservation(self.client(term))
            .block_size(NonZeroU64::new(block).unwrap())
            .authority_margin(MARGIN)
    }

    pub(crate) fn manager(&self, term: Option<Duration>, block: u64) -> LockManager {
        self.builder(term, block).build().expect("a good builder")
    }

    /// Lets time pass in small steps, in which the managers tend to their reservations.
    pub(crate) fn pass(&self, time: Duration, managers: &[&LockManager]) {
        let step = Duration::from_millis(100);
        let mut left = time;
        while !left.is_zero() {
            let now = step.min(left);
            self.clock.advance(now);
            for locks in managers {
                locks.tend_reservation(Duration::ZERO);
                locks.advance();
            }
            left -= now;
        }
    }
}

impl Client {
    fn shard(&self) -> Result<MutexGuard<'_, Shard>, ReservationError> {
        let shard = self.ledger.shard();
        match &shard.fails {
            Some(error) => Err(error.clone()),
            None => Ok(shard),
        }
    }

    fn holds(&self, shard: &Shard) -> Result<(), ReservationError> {
        let now = self.ledger.clock.now();
        match shard.holder {
            _ if self.term.is_none() => Ok(()),
            Some((holder, until)) if holder == self.me && now < until => Ok(()),
            _ => Err(ReservationError::Lost),
        }
    }
}

impl Reservation for Client {
    fn campaign(&mut self, _patience: Duration) -> Result<(), ReservationError> {
        let Some(term) = self.term else { return Ok(()) };
        let now = self.ledger.clock.now();
        let mut shard = self.shard()?;
        match shard.holder {
            Some((holder, until)) if now < until => Err(ReservationError::Held {
                holder: format!("client {holder}"),
            }),
            _ => {
                shard.holder = Some((self.me, now.saturating_add(term)));
                Ok(())
            }
        }
    }

    fn keep_alive(&mut self) -> Result<Option<Duration>, ReservationError> {
        let Some(term) = self.term else {
            return Ok(None);
        };
        let now = self.ledger.clock.now();
        let mut shard = self.shard()?;
        self.holds(&shard)?;
        shard.keep_alives += 1;
        shard.holder = Some((self.me, now.saturating_add(term)));
        Ok(Some(term))
    }

    fn reserve(&mut self, tokens: NonZeroU64) -> Result<Block, ReservationError> {
        let mut shard = self.shard()?;
        self.holds(&shard)?;
        let block = Block::after(shard.mark, tokens)?;
        shard.mark = block.last().get();
        shard.blocks.push(block);
        Ok(block)
    }

    fn resign(&mut self) {
        if let Ok(mut shard) = self.shard()
            && self.holds(&shard).is_ok()
        {
            shard.holder = None;
        }
    }
}
