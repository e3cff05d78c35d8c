//! The manager as a deterministic state machine, for replication by a log.
//!
//! A [`Replica`] changes only by [`apply`](Replica::apply): a [`Command`], the time at which it happens, and
//! its index in the log. The same log gives the same outcomes, the same tokens and the same
//! [checkpoints](Replica::checkpoint), byte for byte, on every replica: one that has applied it from the
//! start, one that was restored from a checkpoint on the way, one whose tables have grown and shrunk; on
//! whatever threads, and whatever memory it has had before.
//!
//! It has no consensus of its own, no clock and no thread.
//!
//! # With Raft, or another replicated log
//!
//! - **Time.** The leader reads its clock when it *proposes* a command, and the reading goes into the log
//!   with it. Every replica applies the command at that time, and reads no clock. A new leader's clock may
//!   be behind: a replica's time never goes back, and a command from before is applied at the latest
//!   time that was (so leases may last longer by the difference, and never shorter: I3). If it is ahead, leases
//!   that stand end earlier by the difference, as time goes for their holders: let these take off the greatest
//!   difference of two leaders' clocks, and the leader refuse to propose a reading that is far ahead of
//!   [`Replica::now`], for such a one can't be taken back. Time counts from wherever you like, in nanoseconds,
//!   and leases can be had up to [`Replica::end`]: with the default tick of 1 ms, Unix time will do until the
//!   year 2106.
//! - **Expiry.** A lease is over for every command whose time is at its deadline or later. If nothing else
//!   is proposed, let the leader propose [`Command::Advance`] now and then, and memory comes back.
//! - **Tokens.** A grant's fencing token is the log index of its command: replicas agree on it whatever
//!   their history, and it rises with each grant of every key, through snapshots, restarts and changes of
//!   the leader (I2). A resource needs nothing else to reject a former holder.
//! - **Snapshots.** A snapshot is a [`Checkpoint`], which has the last log index in it; installing one is
//!   [`Replica::from_checkpoint`]. It also has the options and the [`HashSeed`], on which all replicas have
//!   to agree.
//! - **Answers.** The [`Outcome`] of a command is what its client is told. If it was lost, and it was an
//!   acquisition of an exclusive lease, the client tries again under the same owner, and is
//!   [`Refused`](Outcome::Refused) as [`Held`](Refusal::Held) by itself, with the token that it missed. Of what
//!   may be had more than once that does not hold: a shared lease or a permit is granted once more, a
//!   reentrant lease entered once more, or left once more; and of an upgrade that was done it says
//!   [`NotHeld`](Outcome::NotHeld), since the lease has a token of its own now. There, look with
//!   [`holders`](Replica::holders) first, or let the log have each request only once (with request numbers).
//! - **Reads.** [`holder`](Replica::holder) is of the last command that was applied here. Who needs the
//!   latest has it confirmed by the log (a read index), or lets the resource check the token.
//!
//! # Cost
//!
//! A command takes the lock of its key's record, and some 0.3 µs in all, whatever the number of leases out; on a
//! key with many holders it takes time in the logarithm of their number, and a revocation in their number.
//! Memory is that of a manager.

mod applying;
mod command;
mod limits;
mod outcome;

use std::fmt;
use std::time::Duration;

use self::applying::Failed;
pub use self::command::Command;
pub use self::limits::ReplicaOptions;
use self::limits::{MOST_LEASES, builder, check, end, max_ttl};
pub use self::outcome::{Outcome, Refusal, ReplicaError};
use crate::checkpoint::{Checkpoint, Log, RestoreError};
use crate::clock::ManualClock;
use crate::engine::{Engine, MAX_AT_LEAST};
use crate::error::BuildError;
use crate::key::{HashSeed, Key, ToKey};
use crate::manager::{Holder, LockManager};
use crate::table::Origin;
use crate::time::Timestamp;

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
        let (max_leases, tick) = (options.max_leases, options.tick);
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

    fn engine(&self) -> &Engine {
        self.locks.engine()
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
