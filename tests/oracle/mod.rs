//! A sequential oracle for the lease manager, written straight from the invariants: exclusion (I1),
//! rising tokens (I2), never early (I3), never resurrected (I4), a renewal is kept (I5), by token
//! (I6), on time (I8), bounded (I9).
//!
//! It is a plain map and a number for the time. It is told what the manager answered, panics when
//! no lawful manager could have answered so, and otherwise remembers what follows from the answer.
//! The invariants leave the manager two freedoms, and so does the oracle:
//!
//! - tokens may have gaps, so a grant may carry any token above those of its key;
//! - a lease past its deadline is over at once for every caller, but counts as out until the wheel,
//!   or a caller that came upon it, has swept it.
//!
//! One rule of time stands for all: a grant at `now` for `ttl` ends at the first multiple of the
//! tick that is not before `now + ttl`, and the lease is live while the clock reads less.

pub(crate) mod operation;
pub(crate) mod world;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use tenure::{
    AcquireError, FencingToken, Holder, Key, OwnerId, ReleaseError, RenewError, RevokeError, Stats,
    Timestamp, ValidateError,
};

/// What the manager under test was built with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) tick: Duration,
    pub(crate) min_ttl: Duration,
    pub(crate) max_ttl: Duration,
    pub(crate) max_keys: usize,
}

/// A live lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) owner: OwnerId,
    pub(crate) token: u64,
    pub(crate) deadline: u64,
}

/// How a TTL misses the manager's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TtlFault {
    Short,
    Long,
}

/// Why a token names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    Expired(FencingToken),
    NeverGranted(FencingToken),
}

/// See the module's documentation. Times are nanoseconds of the manager's clock.
#[derive(Debug)]
pub(crate) struct Oracle {
    limits: Limits,
    now: u64,
    live: BTreeMap<Key, Record>,
    by_deadline: BTreeSet<(u64, Key)>,
    /// Keys whose last lease ended by time and may still count as out.
    unswept: HashSet<Key>,
    /// Every token ever granted for a key, rising.
    history: HashMap<Key, Vec<u64>>,
    /// The greatest token ever granted by the manager.
    highest: u64,
    grants: u64,
    released: u64,
    revoked: u64,
    /// Leases whose deadline has passed while they were out.
    due: u64,
}

impl Oracle {
    pub(crate) fn new(limits: Limits, now: Timestamp) -> Self {
        Self {
            limits,
            now: now.as_nanos(),
            live: BTreeMap::new(),
            by_deadline: BTreeSet::new(),
            unswept: HashSet::new(),
            history: HashMap::new(),
            highest: 0,
            grants: 0,
            released: 0,
            revoked: 0,
            due: 0,
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    pub(crate) fn live(&self, key: Key) -> Option<Record> {
        self.live.get(&key).copied()
    }

    pub(crate) fn live_count(&self) -> usize {
        self.live.len()
    }

    pub(crate) fn highest(&self) -> u64 {
        self.highest
    }

    pub(crate) fn earliest_deadline(&self) -> Option<u64> {
        self.by_deadline.first().map(|&(deadline, _)| deadline)
    }

    /// Every token ever granted for `key`, in the order of the grants.
    pub(crate) fn history(&self, key: Key) -> &[u64] {
        self.history.get(&key).map_or(&[], Vec::as_slice)
    }

    /// The clock was set to `to`. It never goes back.
    pub(crate) fn set_now(&mut self, to: u64) {
        self.now = self.now.max(to);
        while let Some(&(deadline, key)) = self.by_deadline.first() {
            if self.now < deadline {
                break;
            }
            self.by_deadline.pop_first();
            self.live.remove(&key);
            self.unswept.insert(key);
            self.due += 1;
        }
    }

    /// The deadline of a lease granted or renewed now: rounded up to whole ticks, never down (I3).
    pub(crate) fn deadline(&self, ttl: Duration) -> u64 {
        let tick = self.limits.tick.as_nanos();
        let exact = u128::from(self.now) + ttl.as_nanos();
        u64::try_from(exact.div_ceil(tick) * tick).expect("the test stays inside the clock's range")
    }

    #[track_caller]
    pub(crate) fn acquired(
        &mut self,
        key: Key,
        owner: OwnerId,
        ttl: Duration,
        at_least: Option<FencingToken>,
        answer: &Result<(FencingToken, Timestamp), AcquireError>,
    ) {
        let held = self.live(key);
        let fault = self.ttl_fault(ttl);
        match *answer {
            Ok((token, deadline)) => {
                assert_eq!(held, None, "I1: a second lease of {key:?} was granted");
                assert_eq!(fault, None, "I11: granted for a TTL of {ttl:?}");
                assert!(
                    self.live.len() < self.limits.max_keys,
                    "I9: granted beyond {} keys",
                    self.limits.max_keys
                );
                let last = self.history(key).last().copied().unwrap_or(0);
                assert!(
                    token.get() > last,
                    "I2: {token} for {key:?} was granted after {last}"
                );
                if let Some(at_least) = at_least {
                    assert!(token >= at_least, "{token} is below {at_least}");
                }
                assert_eq!(
                    deadline.as_nanos(),
                    self.deadline(ttl),
                    "I3: wrong deadline"
                );
                self.grant(key, owner, token.get(), deadline.as_nanos());
            }
            Err(AcquireError::Held {
                owner,
                token,
                remaining,
            }) => {
                let held = held.unwrap_or_else(|| panic!("{key:?} is free, yet Held by {owner}"));
                assert_eq!(
                    (owner, token.get()),
                    (held.owner, held.token),
                    "Held names another"
                );
                assert_eq!(
                    nanos(remaining),
                    held.deadline - self.now,
                    "Held: remaining"
                );
            }
            Err(AcquireError::TtlTooShort { ttl: said, min }) => {
                assert_eq!(fault, Some(TtlFault::Short));
                assert_eq!((said, min), (ttl, self.limits.min_ttl));
            }
            Err(AcquireError::TtlTooLong { ttl: said, max }) => {
                assert_eq!(fault, Some(TtlFault::Long));
                assert_eq!((said, max), (ttl, self.limits.max_ttl));
            }
            Err(AcquireError::CapacityExceeded { capacity }) => {
                assert_eq!(capacity, self.limits.max_keys);
                assert_eq!(held, None, "a held key answers Held, whatever the load");
                assert!(
                    self.live.len() + self.unswept.len() >= capacity,
                    "I9: refused with {} of {capacity} leases out",
                    self.live.len()
                );
            }
            ref other => panic!("no reason for {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn renewed(
        &mut self,
        key: Key,
        token: FencingToken,
        ttl: Duration,
        answer: &Result<Timestamp, RenewError>,
    ) {
        let fault = self.ttl_fault(ttl);
        match *answer {
            Ok(deadline) => {
                assert_eq!(fault, None, "I11: renewed for a TTL of {ttl:?}");
                let held = self
                    .named(key, token)
                    .expect("I4, I6: a lease that is over was renewed");
                let expected = held.deadline.max(self.deadline(ttl));
                assert_eq!(deadline.as_nanos(), expected, "I3, I5: wrong deadline");
                self.by_deadline.remove(&(held.deadline, key));
                self.by_deadline.insert((expected, key));
                self.live.insert(
                    key,
                    Record {
                        deadline: expected,
                        ..held
                    },
                );
            }
            Err(RenewError::Expired { token: said }) => {
                self.check_over(key, token, Over::Expired(said));
            }
            Err(RenewError::NeverGranted { token: said }) => {
                self.check_over(key, token, Over::NeverGranted(said));
            }
            Err(RenewError::TtlTooShort { ttl: said, min }) => {
                assert_eq!(fault, Some(TtlFault::Short));
                assert_eq!((said, min), (ttl, self.limits.min_ttl));
            }
            Err(RenewError::TtlTooLong { ttl: said, max }) => {
                assert_eq!(fault, Some(TtlFault::Long));
                assert_eq!((said, max), (ttl, self.limits.max_ttl));
            }
            ref other => panic!("no reason for {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn released(
        &mut self,
        key: Key,
        token: FencingToken,
        answer: &Result<(), ReleaseError>,
    ) {
        match *answer {
            Ok(()) => {
                assert!(
                    self.named(key, token).is_some(),
                    "I6: released what {token} does not name"
                );
                self.end(key);
                self.released += 1;
            }
            Err(ReleaseError::Expired { token: said }) => {
                self.check_over(key, token, Over::Expired(said));
            }
            Err(ReleaseError::NeverGranted { token: said }) => {
                self.check_over(key, token, Over::NeverGranted(said));
            }
            ref other => panic!("no reason for {other:?}"),
        }
    }

    /// A guard was dropped: like a release, but nobody hears the answer.
    pub(crate) fn dropped(&mut self, key: Key, token: FencingToken) {
        if self.named(key, token).is_some() {
            self.end(key);
            self.released += 1;
        }
    }

    #[track_caller]
    pub(crate) fn validated(
        &self,
        key: Key,
        token: FencingToken,
        answer: &Result<Holder, ValidateError>,
    ) {
        match *answer {
            Ok(holder) => {
                assert!(
                    self.named(key, token).is_some(),
                    "I4: {token} is over, yet valid"
                );
                self.check_holder(key, holder);
            }
            Err(ValidateError::Expired { token: said }) => {
                self.check_over(key, token, Over::Expired(said));
            }
            Err(ValidateError::NeverGranted { token: said }) => {
                self.check_over(key, token, Over::NeverGranted(said));
            }
            ref other => panic!("no reason for {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn revoked(&mut self, key: Key, answer: &Result<Holder, RevokeError>) {
        match *answer {
            Ok(holder) => {
                self.check_holder(key, holder);
                self.end(key);
                self.revoked += 1;
            }
            Err(RevokeError::NotHeld) => {
                assert_eq!(self.live(key), None, "I3: a held key could not be revoked");
            }
            ref other => panic!("no reason for {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn looked_up(&self, key: Key, answer: Option<Holder>) {
        match answer {
            Some(holder) => self.check_holder(key, holder),
            None => assert_eq!(self.live(key), None, "I3: a live lease has no holder"),
        }
    }

    /// A whole walk over the live leases, with nothing going on beside it.
    #[track_caller]
    pub(crate) fn iterated(&self, walk: impl Iterator<Item = Holder>) {
        let mut seen = HashSet::new();
        for holder in walk {
            assert!(seen.insert(holder.key), "{:?} was seen twice", holder.key);
            self.check_holder(holder.key, holder);
        }
        assert_eq!(seen.len(), self.live.len(), "the walk missed a live lease");
    }

    /// `advance` was called and said that `swept` leases had expired: after it, whatever is past
    /// its deadline is gone (I8).
    #[track_caller]
    pub(crate) fn advanced(&mut self, swept: usize, before: Stats, after: Stats) {
        assert_eq!(
            after.expired - before.expired,
            swept as u64,
            "advance and the statistics disagree"
        );
        assert_eq!(
            after.leases,
            self.live.len(),
            "I8: leases out after a sweep"
        );
        assert_eq!(
            after.expired, self.due,
            "each expiry is counted exactly once"
        );
        self.unswept.clear();
    }

    /// Each grant is out, or ended in exactly one way.
    #[track_caller]
    pub(crate) fn counted(&self, len: usize, stats: Stats) {
        assert_eq!(stats.leases, len);
        assert_eq!(
            stats.revoked, self.revoked,
            "revocations are counted exactly once"
        );
        let ended = self.released + self.revoked + stats.expired;
        assert_eq!(
            len as u64,
            self.grants - ended,
            "a lease was lost or counted twice"
        );
        assert!(len >= self.live.len(), "I3: live leases are missing");
        assert!(
            len <= self.limits.max_keys,
            "I9: more leases out than allowed"
        );
        let swept = self.due - self.unswept.len() as u64;
        assert!(
            (swept..=self.due).contains(&stats.expired),
            "{} expiries were counted, {} are due and {swept} of these must have been seen",
            stats.expired,
            self.due
        );
    }

    /// The live lease that `token` names.
    pub(crate) fn named(&self, key: Key, token: FencingToken) -> Option<Record> {
        self.live(key).filter(|held| held.token == token.get())
    }

    #[track_caller]
    fn check_holder(&self, key: Key, holder: Holder) {
        let held = self
            .live(key)
            .unwrap_or_else(|| panic!("I4: {key:?} is free, yet {holder:?}"));
        assert_eq!(holder.key, key);
        assert_eq!(
            (holder.owner, holder.token.get(), holder.deadline.as_nanos()),
            (held.owner, held.token, held.deadline)
        );
        assert_eq!(nanos(holder.remaining), held.deadline - self.now);
    }

    /// A token really granted and over is `Expired`; one that this manager never reached is
    /// `NeverGranted`. In between either may be said, since idle keys are not remembered (I9).
    #[track_caller]
    fn check_over(&self, key: Key, token: FencingToken, said: Over) {
        assert_eq!(
            self.named(key, token),
            None,
            "I3: a live lease was refused: {said:?}"
        );
        let (Over::Expired(named) | Over::NeverGranted(named)) = said;
        assert_eq!(named, token, "the error names another token");
        if self.history(key).binary_search(&token.get()).is_ok() {
            assert_eq!(said, Over::Expired(token), "it was granted once");
        } else if token.get() > self.highest {
            assert_eq!(
                said,
                Over::NeverGranted(token),
                "the highest is {}",
                self.highest
            );
        }
    }

    fn ttl_fault(&self, ttl: Duration) -> Option<TtlFault> {
        if ttl.is_zero() || ttl < self.limits.min_ttl {
            Some(TtlFault::Short)
        } else if ttl > self.limits.max_ttl {
            Some(TtlFault::Long)
        } else {
            None
        }
    }

    fn grant(&mut self, key: Key, owner: OwnerId, token: u64, deadline: u64) {
        // Whatever lease was there is gone now, or this one could not have been granted.
        self.unswept.remove(&key);
        self.live.insert(
            key,
            Record {
                owner,
                token,
                deadline,
            },
        );
        self.by_deadline.insert((deadline, key));
        self.history.entry(key).or_default().push(token);
        self.highest = self.highest.max(token);
        self.grants += 1;
    }

    fn end(&mut self, key: Key) {
        if let Some(held) = self.live.remove(&key) {
            self.by_deadline.remove(&(held.deadline, key));
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("no remaining time is that long")
}
