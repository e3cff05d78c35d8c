//! Who was inside of a key with whom, in any mode: intervals that are proven, and compared.
//!
//! A thread can be stopped for longer than its lease at any point, so that it holds a guard proves
//! nothing about now. What is proven is an interval: it begins at a stamp taken *after* the grant had
//! returned, and ends at a stamp taken *before* a question whether the lease is live was asked, which
//! was answered with yes. A lease that is over stays over, so it was in force from the one to the other.
//!
//! Stamps come from one counter for each key. If two intervals overlap in them, each of the two grants
//! had returned before the other's question was asked. So from the later grant to the earlier question
//! both leases were in force, whatever the scheduler did; and if their modes don't go together, the
//! manager has broken its word. An interval that is too short for its lease accuses nobody.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use parking_lot::Mutex;
use tenure::{FencingToken, Mode};

/// The intervals of one key.
#[derive(Debug, Default)]
pub(super) struct Occupancy {
    stamps: AtomicU64,
    log: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    /// Where those begin that have not ended.
    open: Vec<u64>,
    /// Those that have ended, and may still be overlapped by one that has not.
    past: Vec<Interval>,
}

/// From `begin` to `end`, the lease of that token was in force.
#[derive(Clone, Copy, Debug)]
struct Interval {
    begin: u64,
    end: u64,
    mode: Mode,
    token: FencingToken,
}

/// A lease whose interval has begun.
#[derive(Debug)]
#[must_use = "what has begun must leave, or the log grows"]
pub(super) struct Stay(Interval);

/// What a finished interval says about the others.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Company {
    /// Nobody was there at the same time, as far as it is proven.
    Alone,
    /// Others were, and were allowed to be.
    Allowed,
    /// Others were, and must not have been.
    Forbidden(String),
}

impl Occupancy {
    fn stamp(&self) -> u64 {
        self.stamps.fetch_add(1, SeqCst) + 1
    }

    /// To be called once a grant has returned.
    pub(super) fn enter(&self, mode: Mode, token: FencingToken) -> Stay {
        let mut log = self.log.lock();
        // Under the lock: whoever prunes must not miss one that has its stamp already.
        let begin = self.stamp();
        log.open.push(begin);
        Stay(Interval {
            begin,
            end: 0,
            mode,
            token,
        })
    }

    /// Asks whether the lease is live; if so, its interval reaches up to the question.
    pub(super) fn confirm(&self, stay: &mut Stay, is_live: impl FnOnce() -> bool) -> bool {
        let stamp = self.stamp();
        let live = is_live();
        if live {
            stay.0.end = stamp;
        }
        live
    }

    /// Ends an interval, and compares it with those that ended before. (Of two that overlap, the one
    /// that leaves later sees it.)
    #[expect(clippy::needless_pass_by_value, reason = "nobody leaves twice")]
    pub(super) fn leave(&self, stay: Stay) -> Company {
        let Stay(interval) = stay;
        let mut log = self.log.lock();
        if let Some(at) = log.open.iter().position(|&begin| begin == interval.begin) {
            log.open.swap_remove(at);
        }
        let mut company = Company::Alone;
        if interval.end > interval.begin {
            company = interval.company(&log.past);
            log.past.push(interval);
        }
        // Whoever enters from now on begins later than all of these.
        let horizon = log.open.iter().min().copied().unwrap_or(u64::MAX);
        log.past.retain(|past| past.end > horizon);
        company
    }
}

impl Interval {
    fn overlaps(&self, other: &Self) -> bool {
        self.begin < other.end && other.begin < self.end
    }

    fn company(&self, past: &[Self]) -> Company {
        let others: Vec<&Self> = past.iter().filter(|other| self.overlaps(other)).collect();
        if others.is_empty() {
            return Company::Alone;
        }
        let foreign = |other: &&&Self| match (self.mode, other.mode) {
            (Mode::Shared, Mode::Shared) => false,
            (Mode::Permit { of }, Mode::Permit { of: same }) => of != same,
            _ => true,
        };
        if let Some(other) = others.iter().find(foreign) {
            return Company::Forbidden(format!(
                "{:?} with token {} beside {:?} with token {}",
                self.mode, self.token, other.mode, other.token
            ));
        }
        if let Mode::Permit { of } = self.mode {
            // The number of those inside is highest where one of them begins.
            let begins = others.iter().map(|other| other.begin.max(self.begin));
            let inside = |at: u64| {
                others
                    .iter()
                    .filter(|o| o.begin <= at && at < o.end)
                    .count()
            };
            let most = begins.chain([self.begin]).map(inside).max().unwrap_or(0) + 1;
            if most > of as usize {
                return Company::Forbidden(format!("{most} permits of {of} at once"));
            }
        }
        Company::Allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lease that is live when asked, with a token.
    fn enter(key: &Occupancy, mode: Mode, token: u64) -> Stay {
        key.enter(mode, FencingToken::new(token).expect("above zero"))
    }

    fn leave(key: &Occupancy, mut stay: Stay) -> Company {
        key.confirm(&mut stay, || true);
        key.leave(stay)
    }

    #[test]
    fn one_after_the_other_is_no_company() {
        let key = Occupancy::default();
        for token in 1..4 {
            let stay = enter(&key, Mode::Exclusive, token);
            assert_eq!(leave(&key, stay), Company::Alone);
        }
        assert!(key.log.lock().past.is_empty(), "nobody can overlap them");
    }

    #[test]
    fn two_that_were_live_at_once_are_seen_if_their_modes_forbid_it() {
        for (first, second, allowed) in [
            (Mode::Exclusive, Mode::Exclusive, false),
            (Mode::Shared, Mode::Exclusive, false),
            (Mode::Shared, Mode::Permit { of: 2 }, false),
            (Mode::Shared, Mode::Shared, true),
            (Mode::Permit { of: 2 }, Mode::Permit { of: 2 }, true),
        ] {
            let key = Occupancy::default();
            let a = enter(&key, first, 1);
            let b = enter(&key, second, 2);
            assert_eq!(leave(&key, a), Company::Alone);
            let company = leave(&key, b);
            assert_eq!(company == Company::Allowed, allowed, "{company:?}");
        }
    }

    #[test]
    fn a_lease_that_lapsed_unseen_accuses_nobody() {
        let key = Occupancy::default();
        let mut lapsed = enter(&key, Mode::Exclusive, 1);
        let next = enter(&key, Mode::Exclusive, 2);
        assert!(!key.confirm(&mut lapsed, || false));
        assert_eq!(key.leave(lapsed), Company::Alone);
        assert_eq!(leave(&key, next), Company::Alone);
    }

    #[test]
    fn one_permit_too_many_is_seen() {
        let key = Occupancy::default();
        let permit = Mode::Permit { of: 2 };
        let stays: Vec<Stay> = (1..4).map(|token| enter(&key, permit, token)).collect();
        let company: Vec<Company> = stays.into_iter().map(|stay| leave(&key, stay)).collect();
        assert_eq!(company[..2], [Company::Alone, Company::Allowed]);
        assert!(matches!(company[2], Company::Forbidden(_)), "{company:?}");
    }
}
