//! The manager as a deterministic state machine, for replication by a log.
//!
//! A [`Replica`] changes only by [`apply`](Replica::apply): a [`Command`], the time at which it happens, and
//! its index in the log. The same log gives the same outcomes, the same tokens and the same
//! [checkpoints](Replica::checkpoint), byte for byte, on every replica: one that has applied it from the
//! start, one that was restored from a checkpoint on the way, one whose tables have grown and shrunk; on
//! whatever threads, and whatever memory it has had before.
//!
//! It has no consensus of its own, no clock and no thread. What it takes from its surroundings:
//!
//! # With Raft, or another replicated log
//!
//! - **Time.** The leader reads its clock when it *proposes* a command, and the reading goes into the log
//!   with it. Every replica applies the command at that time, and reads no clock. A new leader's clock may
//!   be behind: a replica's time never goes back, and a command from before is applied at the latest
//!   time that was (so leases may last longer by the difference, and never shorter: I3). Time counts from
//!   wherever you like, in nanoseconds, and leases can be had up to [`Replica::end`]: with the default tick
//!   of 1 ms, Unix time will do until the year 2106.
//! - **Expiry.** A lease is over for every command whose time is at its deadline or later. If nothing else
//!   is proposed, let the leader propose [`Command::Advance`] now and then, and memory comes back.
//! - **Tokens.** A grant's fencing token is the log index of its command: replicas agree on it whatever
//!   their history, and it rises with each grant of every key, through snapshots, restarts and changes of
//!   the leader (I2). A resource needs nothing else to reject a former holder.
//! - **Snapshots.** A snapshot is a [`Checkpoint`], which has the last log index in it; installing one is
//!   [`Replica::from_checkpoint`]. It also has the options and the [`HashSeed`], on which all replicas have
//!   to agree.
//! - **Answers.** The [`Outcome`] of a command is what its client is told. If it was lost, and the client
//!   tries again under the same owner, it is [`Refused`](Outcome::Refused) as
//!   [`Held`](Refusal::Held) by itself, with the token that it missed.
//! - **Reads.** [`holder`](Replica::holder) is of the last command that was applied here. Who needs the
//!   latest has it confirmed by the log (a read index), or lets the resource check the token.
//!
//! # Cost
//!
//! A command takes the locks of its key's record, some microseconds in all; see
//! [`LockManager`]. Memory is that of a manager.

mod command;
mod outcome;

use std::fmt;
use std::time::Duration;

pub use self::command::Command;
pub use self::outcome::{Outcome, Refusal, ReplicaError};
use crate::builder::{DEFAULT_TICK, MAX_TICK};
use crate::checkpoint::{Checkpoint, Log, RestoreError, Saved, Terms};
use crate::clock::ManualClock;
use crate::engine::{Acquired, Denied, Engine, MAX_AT_LEAST, Request};
use crate::error::{AcquireError, BuildError};
use crate::key::{HashSeed, Key, ToKey};
use crate::manager::{Holder, LockManager};
use crate::owner::OwnerId;
use crate::table::{Origin, Unrenewed};
use crate::time::Timestamp;
use crate::timeline::LAST_TICK;
use crate::token::FencingToken;
use crate::wish::{MAX_PERMITS, Mode, Wish};

/// The most leases that may be asked for. A lease takes two cells of the table at the most, and there are
/// always six times as many: so whether there is room hangs on the number of leases, and on nothing else.
const MOST_LEASES: usize = 1 << 20;

/// The longest TTL and the longest terms: 366 days, if as many ticks can be counted.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// Ticks that are kept for what lasts longer than a lease: no time that a replica computes is ever cut off
/// at the end of what its manager can count, which hangs on when that was made.
const SPARE_TICKS: u64 = 3 << 35;

/// Options on which all replicas have to agree.
///
/// ```
/// use std::time::Duration;
/// use tenure::HashSeed;
/// use tenure::replica::{Replica, ReplicaOptions};
///
/// let options = ReplicaOptions::new().max_leases(1000).tick(Duration::from_millis(10));
/// let replica = Replica::with_options(HashSeed::new(7), options)?;
/// assert_eq!(replica.last_applied(), 0);
/// # Ok::<(), tenure::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "options do nothing until a replica is made with them"]
pub struct ReplicaOptions {
    max_leases: usize,
    tick: Duration,
}

impl Default for ReplicaOptions {
    fn default() -> Self {
        Self {
            max_leases: MOST_LEASES,
            tick: DEFAULT_TICK,
        }
    }
}

impl ReplicaOptions {
    /// The defaults.
    ///
    /// ```
    /// use tenure::replica::ReplicaOptions;
    ///
    /// assert_eq!(ReplicaOptions::new(), ReplicaOptions::default());
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// The most leases that may be out at once, up to 1,048,576, which is the default. A key that is kept
    /// free after its lease counts as one.
    ///
    /// ```
    /// let options = tenure::replica::ReplicaOptions::new().max_leases(1000);
    /// ```
    pub fn max_leases(mut self, leases: usize) -> Self {
        self.max_leases = leases;
        self
    }

    /// The length of a tick, from 100 microseconds to an hour: what deadlines are rounded up to. Default:
    /// 1 ms. Time ends after some 2^42 ticks: see [`Replica::end`].
    ///
    /// ```
    /// let tick = std::time::Duration::from_millis(10);
    /// let options = tenure::replica::ReplicaOptions::new().tick(tick);
    /// ```
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }
}

/// A lock manager as a deterministic state machine; see the [module](self).
///
/// ```
/// use std::time::Duration;
/// use tenure::replica::{Command, Outcome, Refusal, Replica};
/// use tenure::{HashSeed, OwnerId, Timestamp};
///
/// // The same on every replica: the seed, and the log of commands with their times.
/// let seed = HashSeed::new(7);
/// let mut replica = Replica::new(seed)?;
/// let key = replica.key("orders/42");
/// let acquire = |owner| Command::acquire(key, OwnerId(owner), Duration::from_secs(10));
/// let at = |secs: u64| Timestamp::from_nanos(secs * 1_000_000_000);
///
/// let Outcome::Granted { token, .. } = replica.apply(&acquire(1), at(100), 17)? else {
///     panic!("nobody holds it");
/// };
/// assert_eq!(token.get(), 17);
/// let refused = replica.apply(&acquire(2), at(101), 18)?;
/// assert!(matches!(refused, Outcome::Refused(Refusal::Held { owner: OwnerId(1), .. })));
///
/// // Another replica joins in, by a snapshot, and goes on with the log.
/// let mut other = Replica::from_checkpoint(&replica.checkpoint())?;
/// assert_eq!(other.last_applied(), 18);
/// let release = Command::release(key, token);
/// assert_eq!(other.apply(&release, at(102), 19)?, replica.apply(&release, at(102), 19)?);
/// assert_eq!(other.checkpoint(), replica.checkpoint());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Replica {
    locks: LockManager,
    clock: ManualClock,
    now: Timestamp,
    end: Timestamp,
    max_ttl: Duration,
    last_applied: u64,
    max_leases: usize,
}

impl Replica {
    /// A replica at the start of the log, with the default options.
    ///
    /// # Errors
    ///
    /// [`BuildError::OutOfMemory`].
    ///
    /// ```
    /// use tenure::HashSeed;
    /// use tenure::replica::Replica;
    ///
    /// let replica = Replica::new(HashSeed::new(7))?;
    /// assert!(replica.is_empty());
    /// # Ok::<(), tenure::BuildError>(())
    /// ```
    pub fn new(seed: HashSeed) -> Result<Self, BuildError> {
        Self::with_options(seed, ReplicaOptions::default())
    }

    /// The same with other options.
    ///
    /// # Errors
    ///
    /// [`BuildError::MaxKeys`] and [`BuildError::Tick`] for options out of their range, and
    /// [`BuildError::OutOfMemory`].
    ///
    /// ```
    /// use tenure::HashSeed;
    /// use tenure::replica::{Replica, ReplicaOptions};
    ///
    /// let options = ReplicaOptions::new().max_leases(10);
    /// let replica = Replica::with_options(HashSeed::new(7), options)?;
    /// # Ok::<(), tenure::BuildError>(())
    /// ```
    pub fn with_options(seed: HashSeed, options: ReplicaOptions) -> Result<Self, BuildError> {
        let ReplicaOptions { max_leases, tick } = options;
        if !(1..=MOST_LEASES).contains(&max_leases) {
            return Err(BuildError::MaxKeys {
                max_keys: max_leases,
                limit: MOST_LEASES,
            });
        }
        let clock = ManualClock::new();
        let locks = builder(&clock, tick, max_leases)
            .hash_seed(seed)
            .origin(Origin {
                floor: 0,
                exact: true,
            })
            .build()?;
        Ok(Self::assemble(locks, clock, Timestamp::ZERO, 0, max_leases))
    }

    /// The replica that a checkpoint was taken of, at the same index of the log.
    ///
    /// # Errors
    ///
    /// [`RestoreError::NotOfAReplica`] for a manager's, [`RestoreError::Replica`] for what no replica can
    /// have written, and [`RestoreError::NoRoom`] or [`RestoreError::Build`] for want of memory.
    ///
    /// ```
    /// use tenure::HashSeed;
    /// use tenure::replica::Replica;
    ///
    /// let replica = Replica::new(HashSeed::new(7))?;
    /// let other = Replica::from_checkpoint(&replica.checkpoint())?;
    /// assert_eq!(other.checkpoint(), replica.checkpoint());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_checkpoint(checkpoint: &Checkpoint) -> Result<Self, RestoreError> {
        let content = checkpoint.content();
        let log = content.log.ok_or(RestoreError::NotOfAReplica)?;
        let (now, max_leases) = (checkpoint.now(), log.max_leases as usize);
        check(checkpoint, log)?;
        let clock = ManualClock::new();
        clock.set(now);
        let origin = Origin {
            floor: log.last_applied,
            exact: true,
        };
        let locks = builder(&clock, checkpoint.tick(), max_leases).restore_from(
            checkpoint,
            Duration::ZERO,
            origin,
        )?;
        Ok(Self::assemble(
            locks,
            clock,
            now,
            log.last_applied,
            max_leases,
        ))
    }

    fn assemble(
        locks: LockManager,
        clock: ManualClock,
        now: Timestamp,
        last_applied: u64,
        max_leases: usize,
    ) -> Self {
        let tick = locks.tick();
        Self {
            locks,
            clock,
            now,
            end: end(tick),
            max_ttl: max_ttl(tick),
            last_applied,
            max_leases,
        }
    }

    /// The state with all that is in it, for [`from_checkpoint`](Self::from_checkpoint): the same, byte for
    /// byte, on every replica that has applied the same log up to the same index.
    ///
    /// Takes time in the number of leases and buckets.
    ///
    /// ```
    /// use tenure::HashSeed;
    /// use tenure::replica::Replica;
    ///
    /// let checkpoint = Replica::new(HashSeed::new(7))?.checkpoint();
    /// assert_eq!(checkpoint.last_applied(), Some(0));
    /// # Ok::<(), tenure::BuildError>(())
    /// ```
    #[must_use]
    pub fn checkpoint(&self) -> Checkpoint {
        let mut content = self.engine().save();
        // The table's own floor hangs on how often it was resized.
        content.floor = self.last_applied;
        content.log = Some(Log {
            last_applied: self.last_applied,
            max_leases: self.max_leases as u32,
        });
        Checkpoint::new(content)
    }

    /// The index of the last command that was applied; 0 if none was.
    ///
    /// ```
    /// use tenure::{HashSeed, Timestamp};
    /// use tenure::replica::{Command, Replica};
    ///
    /// let mut replica = Replica::new(HashSeed::new(7))?;
    /// replica.apply(&Command::Advance, Timestamp::ZERO, 3)?;
    /// assert_eq!(replica.last_applied(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn last_applied(&self) -> u64 {
        self.last_applied
    }

    /// The latest time of any command that was applied.
    ///
    /// ```
    /// use tenure::{HashSeed, Timestamp};
    /// use tenure::replica::{Command, Replica};
    ///
    /// let mut replica = Replica::new(HashSeed::new(7))?;
    /// replica.apply(&Command::Advance, Timestamp::from_nanos(100), 1)?;
    /// replica.apply(&Command::Advance, Timestamp::from_nanos(90), 2)?;
    /// assert_eq!(replica.now(), Timestamp::from_nanos(100));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The last time that a lease can have as its deadline: 2^42 ticks from zero, less a fortieth, or as many
    /// as fit 64 bits of nanoseconds. That is 136 years of 1 ms.
    ///
    /// The replica's time stops there, and all that is asked for is refused as
    /// [`EndOfTime`](Refusal::EndOfTime).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::{HashSeed, Timestamp};
    /// use tenure::replica::Replica;
    ///
    /// let replica = Replica::new(HashSeed::new(7))?;
    /// let years = Duration::from_secs(136 * 365 * 24 * 3600);
    /// assert!(replica.end() > Timestamp::ZERO.saturating_add(years));
    /// # Ok::<(), tenure::BuildError>(())
    /// ```
    #[must_use]
    pub fn end(&self) -> Timestamp {
        self.end
    }

    /// A name as a key, for a [`Command`].
    ///
    /// ```
    /// use tenure::{HashSeed, ToKey};
    /// use tenure::replica::Replica;
    ///
    /// let seed = HashSeed::new(7);
    /// let name = "a name of more than fifteen bytes";
    /// assert_eq!(Replica::new(seed)?.key(name), name.to_key(&seed));
    /// # Ok::<(), tenure::BuildError>(())
    /// ```
    #[must_use]
    pub fn key(&self, key: impl ToKey) -> Key {
        self.locks.key(key)
    }

    /// The live lease of `key` after the last command, if there is one; of several, the one that lasts
    /// longest.
    ///
    /// ```
    /// use tenure::HashSeed;
    /// use tenure::replica::Replica;
    ///
    /// assert_eq!(Replica::new(HashSeed::new(7))?.holder("a"), None);
    /// # Ok::<(), tenure::BuildError>(())
    /// ```
    #[must_use]
    pub fn holder(&self, key: impl ToKey) -> Option<Holder> {
        self.locks.holder(key)
    }

    /// The live leases of `key` after the last command, in the order of their tokens.
    ///
    /// ```
    /// use tenure::HashSeed;
    /// use tenure::replica::Replica;
    ///
    /// assert!(Replica::new(HashSeed::new(7))?.holders("a").is_empty());
    /// # Ok::<(), tenure::BuildError>(())
    /// ```
    #[must_use]
    pub fn holders(&self, key: impl ToKey) -> Vec<Holder> {
        self.locks.holders(key)
    }

    /// The number of leases out after the last command.
    ///
    /// ```
    /// use tenure::HashSeed;
    /// use tenure::replica::Replica;
    ///
    /// assert_eq!(Replica::new(HashSeed::new(7))?.len(), 0);
    /// # Ok::<(), tenure::BuildError>(())
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.locks.len()
    }

    /// Whether no lease is out.
    ///
    /// ```
    /// use tenure::HashSeed;
    /// use tenure::replica::Replica;
    ///
    /// assert!(Replica::new(HashSeed::new(7))?.is_empty());
    /// # Ok::<(), tenure::BuildError>(())
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }

    /// Applies the command with that index in the log, at the time `now` or the latest before, if that is
    /// later. Leases whose deadline has come by then are over before it.
    ///
    /// Whatever the command asks for, good or bad, has an outcome, the same on every replica.
    ///
    /// # Errors
    ///
    /// [`ReplicaError::Applied`] if the index is not above that of the last command, and
    /// [`ReplicaError::LogIndex`] if it can't be a token: nothing has happened. Indices may be left out, as
    /// those of entries of the log that are no commands.
    ///
    /// [`ReplicaError::OutOfMemory`] is this replica's alone: at most the time has moved on. Apply the command
    /// again once there is memory, and no other before it.
    ///
    /// ```
    /// use tenure::{HashSeed, Timestamp};
    /// use tenure::replica::{Command, Outcome, Replica, ReplicaError};
    ///
    /// let mut replica = Replica::new(HashSeed::new(7))?;
    /// let advance = |replica: &mut Replica, index| {
    ///     replica.apply(&Command::Advance, Timestamp::from_nanos(1), index)
    /// };
    /// assert_eq!(advance(&mut replica, 1), Ok(Outcome::Advanced));
    /// let again = ReplicaError::Applied { log_index: 1, last_applied: 1 };
    /// assert_eq!(advance(&mut replica, 1), Err(again));
    /// # Ok::<(), tenure::BuildError>(())
    /// ```
    pub fn apply(
        &mut self,
        command: &Command,
        now: Timestamp,
        log_index: u64,
    ) -> Result<Outcome, ReplicaError> {
        if !(1..=MAX_AT_LEAST).contains(&log_index) {
            return Err(ReplicaError::LogIndex { log_index });
        }
        if log_index <= self.last_applied {
            return Err(ReplicaError::Applied {
                log_index,
                last_applied: self.last_applied,
            });
        }
        self.now = self.now.max(now).min(self.end);
        self.clock.set(self.now);
        // Else what is over would count until somebody comes upon it, which hangs on the wheel's past.
        self.engine().advance();
        let outcome = match self.run(command, log_index) {
            Ok(outcome) => outcome,
            Err(Failed::Refused(refusal)) => Outcome::Refused(refusal),
            Err(Failed::NotHeld) => Outcome::NotHeld,
            Err(Failed::OutOfMemory) => return Err(ReplicaError::OutOfMemory),
        };
        self.last_applied = log_index;
        Ok(outcome)
    }

    fn run(&self, command: &Command, log_index: u64) -> Result<Outcome, Failed> {
        match *command {
            Command::Acquire { .. } => self.acquire(command, log_index),
            Command::Renew { key, token, ttl } => self.renew(key, token, ttl),
            Command::Release { key, token } => {
                let name = self.engine().name(key, token.get());
                let released = self.engine().release_by_key(&name, self.now.as_nanos());
                released.map_err(|_| Failed::NotHeld)?;
                Ok(Outcome::Released)
            }
            Command::Revoke { key } => {
                let revoked = self.engine().revoke(key, self.now.as_nanos());
                let lease = |seen: &crate::engine::Seen| {
                    let token = FencingToken::granted(seen.contents.token);
                    (OwnerId(seen.contents.owner), token)
                };
                match revoked.is_empty() {
                    true => Err(Failed::NotHeld),
                    false => Ok(Outcome::Revoked {
                        leases: revoked.iter().map(lease).collect(),
                    }),
                }
            }
            Command::Upgrade { key, token, ttl } => self.upgrade(key, token, ttl, log_index),
            Command::Downgrade { key, token } => self.downgrade(key, token),
            Command::Advance => Ok(Outcome::Advanced),
        }
    }

    fn acquire(&self, command: &Command, log_index: u64) -> Result<Outcome, Failed> {
        let Command::Acquire {
            key,
            owner,
            ttl,
            mode,
            reentrant,
            lock_delay,
            min_hold,
        } = *command
        else {
            return Err(Failed::NotHeld);
        };
        self.check_ttl(ttl)?;
        for length in [lock_delay, min_hold] {
            if length > self.max_ttl {
                let max = self.max_ttl;
                return Err(Refusal::TermTooLong { length, max }.into());
            }
        }
        if let Mode::Permit { of } = mode
            && !(1..=MAX_PERMITS).contains(&of)
        {
            return Err(Refusal::Permits { of }.into());
        }
        let now = self.now.as_nanos();
        // To enter a lease is no grant, and asks for no token.
        let enters = reentrant
            && self
                .engine()
                .all_live(key, now)
                .iter()
                .any(|lease| lease.contents.owner == owner.0 && lease.mode.covers(mode));
        let mut wish = Wish::plain(Request {
            key,
            owner: owner.0,
            ttl,
            at_least: if enters { 0 } else { log_index },
        });
        wish.mode = mode;
        wish.reentrant = enters;
        wish.terms.lock_delay = lock_delay;
        wish.terms.min_hold = min_hold;
        let acquired = self.engine().enter_now(&wish);
        if enters && matches!(acquired, Err(Denied::Held { .. })) {
            return Err(Failed::OutOfMemory);
        }
        let acquired = acquired.map_err(|denied| self.failed(denied))?;
        let (token, deadline) = self.granted(&acquired);
        Ok(match enters {
            true => Outcome::Entered { token, deadline },
            false => Outcome::Granted { token, deadline },
        })
    }

    fn renew(&self, key: Key, token: FencingToken, ttl: Duration) -> Result<Outcome, Failed> {
        self.check_ttl(ttl)?;
        let engine = self.engine();
        let now = self.now.as_nanos();
        let deadline = engine.time.deadline(now, ttl);
        let deadline = deadline.map_err(|_| Failed::OutOfMemory)?;
        match engine.renew_by_key(&engine.name(key, token.get()), deadline, now) {
            Ok((deadline, _)) => Ok(Outcome::Renewed {
                deadline: engine.time.start_of(deadline),
            }),
            Err(Unrenewed::NoMemory) => Err(Failed::OutOfMemory),
            Err(Unrenewed::Ended(_) | Unrenewed::InSession) => Err(Failed::NotHeld),
        }
    }

    fn upgrade(
        &self,
        key: Key,
        token: FencingToken,
        ttl: Duration,
        log_index: u64,
    ) -> Result<Outcome, Failed> {
        self.check_ttl(ttl)?;
        let lease = self.seen(key, token)?;
        if lease.mode != Mode::Shared {
            return Err(Refusal::Mode { mode: lease.mode }.into());
        }
        let mut wish = Wish::plain(Request {
            key,
            owner: lease.contents.owner,
            ttl,
            at_least: log_index,
        });
        wish.upgrade = Some(token.get());
        let upgraded = self.engine().upgrade_now(&wish);
        let acquired = upgraded.map_err(|denied| self.failed(denied))?;
        let (token, deadline) = self.granted(&acquired);
        Ok(Outcome::Granted { token, deadline })
    }

    fn downgrade(&self, key: Key, token: FencingToken) -> Result<Outcome, Failed> {
        let lease = self.seen(key, token)?;
        if let Mode::Permit { .. } = lease.mode {
            return Err(Refusal::Mode { mode: lease.mode }.into());
        }
        let name = self.engine().name(key, token.get());
        // It is there, so only room for its record can be wanting.
        let shared = self.engine().downgrade(&name);
        shared.map_err(|_| Failed::OutOfMemory)?;
        Ok(Outcome::Downgraded)
    }

    fn seen(&self, key: Key, token: FencingToken) -> Result<crate::engine::Seen, Failed> {
        let name = self.engine().name(key, token.get());
        let seen = self.engine().validate(&name, self.now.as_nanos());
        seen.map_err(|_| Failed::NotHeld)
    }

    /// The replica's own limits: a manager's hang on when it was made.
    fn check_ttl(&self, ttl: Duration) -> Result<(), Failed> {
        let min = Duration::from_nanos(1);
        if ttl < min {
            return Err(Refusal::TtlTooShort { ttl, min }.into());
        }
        if ttl > self.max_ttl {
            let max = self.max_ttl;
            return Err(Refusal::TtlTooLong { ttl, max }.into());
        }
        match self.now.checked_add(ttl) {
            Some(deadline) if deadline <= self.end => Ok(()),
            _ => Err(Refusal::EndOfTime { end: self.end }.into()),
        }
    }

    fn failed(&self, denied: Denied) -> Failed {
        let refusal = match denied.into() {
            AcquireError::Held {
                owner,
                token,
                remaining,
            } => Refusal::Held {
                owner,
                token,
                remaining,
            },
            AcquireError::Delayed { remaining } => Refusal::Delayed { remaining },
            AcquireError::CapacityExceeded { .. } if self.engine().is_full() => {
                Refusal::CapacityExceeded {
                    capacity: self.max_leases as u64,
                }
            }
            AcquireError::Lapsed { .. } => return Failed::NotHeld,
            // All else was checked before, or is about waiting.
            _ => return Failed::OutOfMemory,
        };
        refusal.into()
    }

    fn granted(&self, acquired: &Acquired) -> (FencingToken, Timestamp) {
        let deadline = self.engine().time.start_of(acquired.deadline);
        (FencingToken::granted(acquired.token), deadline)
    }

    fn engine(&self) -> &Engine {
        self.locks.engine()
    }
}

/// Why a command did not do what it asks for.
enum Failed {
    Refused(Refusal),
    NotHeld,
    OutOfMemory,
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl fmt::Debug for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replica")
            .field("last_applied", &self.last_applied)
            .field("now", &self.now)
            .field("leases", &self.len())
            .finish_non_exhaustive()
    }
}

fn builder(clock: &ManualClock, tick: Duration, max_leases: usize) -> crate::builder::Builder {
    LockManager::builder()
        .clock(clock.clone())
        .driver(false)
        .tick(tick)
        .max_keys(max_leases)
}

/// The last deadline.
fn end(tick: Duration) -> Timestamp {
    let tick = tick.min(MAX_TICK).as_nanos() as u64;
    let most = u64::MAX - 4 * LONGEST.as_nanos() as u64;
    let last = (LAST_TICK - SPARE_TICKS).saturating_mul(tick).min(most);
    Timestamp::from_nanos(last - last % tick)
}

/// What the TTLs and terms are at most: no more than a manager of that tick takes.
fn max_ttl(tick: Duration) -> Duration {
    let tick = tick.min(MAX_TICK).as_nanos() as u64;
    LONGEST.min(Duration::from_nanos(tick.saturating_mul((1 << 35) - 8)))
}

/// What holds of a replica's checkpoint besides what holds of all.
fn check(checkpoint: &Checkpoint, log: Log) -> Result<(), RestoreError> {
    let content = checkpoint.content();
    let bad = |reason| Err(RestoreError::Replica { reason });
    if !(1..=MOST_LEASES).contains(&(log.max_leases as usize)) {
        return bad("its number of leases is out of range");
    }
    if log.last_applied > MAX_AT_LEAST {
        return bad("its log index is no token");
    }
    let (end, most) = (
        end(checkpoint.tick()).as_nanos(),
        max_ttl(checkpoint.tick()).as_nanos() as u64,
    );
    if content.now > end {
        return bad("its time is after the end");
    }
    let too_long = |lease: &Saved| {
        let terms = lease.terms.unwrap_or(Terms::default());
        lease.remaining > end - content.now || terms.lock_delay > most || terms.min_hold > 2 * most
    };
    if content.leases.iter().any(too_long) {
        return bad("a lease lasts longer than any can");
    }
    if content.kept.iter().any(|kept| kept.remaining > 2 * most) {
        return bad("a key is kept free for longer than any can be");
    }
    Ok(())
}
