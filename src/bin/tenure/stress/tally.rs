//! What one worker counted, and the violations that it saw.

use std::time::Duration;

use hdrhistogram::Histogram;

/// What a manager can do wrong, as far as a worker can see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Violation {
    /// Two live leases of one key (I1).
    Exclusion,
    /// A token not above every earlier one of its key (I2).
    TokenRegression,
    /// A lease over before its time, unrevoked (I3, I5).
    EarlyExpiry,
    /// A lease renewed, released or called live past its deadline (I4).
    Resurrection,
    /// A waiter granted a key before another that had come earlier.
    FifoInversion,
    /// A waiter that nobody woke though its turn had come.
    LostWakeup,
    /// A wait that was woken more than once.
    ExtraWake,
    /// A lease or a waiter of somebody who has given it up.
    Ghost,
    /// An error that nothing in the run accounts for.
    UnexpectedError,
}

/// How many violations are described in words; all of them are counted.
const DESCRIBED: usize = 5;

/// The counts of one worker, or of all of them together.
#[derive(Debug)]
pub(super) struct Tally {
    /// Leases granted.
    pub(super) grants: u64,
    /// Acquisitions refused because the key was held.
    pub(super) refusals: u64,
    /// Renewals that were granted.
    pub(super) renewals: u64,
    /// Leases that the worker ended itself, in time.
    pub(super) releases: u64,
    /// Releases that came too late.
    pub(super) late_releases: u64,
    /// Pauses with a lease in hand.
    pub(super) pauses: u64,
    /// Leases abandoned without a word.
    pub(super) crashes: u64,
    /// Critical sections that were finished under a live lease.
    pub(super) sections: u64,
    /// Critical sections during which the lease ran out, which prove nothing.
    pub(super) lapsed_sections: u64,
    /// Writes that the resource took.
    pub(super) accepted_writes: u64,
    /// Writes and reads that the resource refused for their token.
    pub(super) rejected_writes: u64,
    /// Two live leases of one key.
    pub(super) exclusion_violations: u64,
    /// Tokens that did not rise.
    pub(super) token_regressions: u64,
    /// Leases over before their time.
    pub(super) early_expiries: u64,
    /// Leases alive after their time.
    pub(super) resurrections: u64,
    /// Grants out of the order of arrival.
    pub(super) fifo_inversions: u64,
    /// Waiters that nobody woke.
    pub(super) lost_wakeups: u64,
    /// Waits that were woken too often.
    pub(super) extra_wakes: u64,
    /// Leases and waiters that nobody has any more.
    pub(super) ghosts: u64,
    /// Errors that nothing accounts for.
    pub(super) unexpected_errors: u64,
    /// Waits that ended with a grant and had their wakes counted.
    pub(super) waited: u64,
    /// What those were woken.
    pub(super) woken: u64,
    /// Acquisitions given up before they were granted, as far as the worker knows.
    pub(super) cancelled: u64,
    /// Leases that were proven to be in force beside others, as their modes allow.
    pub(super) accompanied: u64,
    /// So many leases may have been granted at the moment when a worker gave up, and have ended
    /// without its seeing them: at most.
    pub(super) unseen: u64,
    /// So many leases may have ended with their session, which no other figure counts: at most.
    pub(super) closed: u64,
    /// The most that the manager's clock was behind at a grant or a renewal.
    pub(super) clock_lag: Duration,
    /// The first few violations in words.
    pub(super) details: Vec<String>,
    /// Nanoseconds of `try_acquire`.
    pub(super) latency: Histogram<u64>,
}

impl Tally {
    /// An empty one.
    pub(super) fn new() -> Self {
        Self {
            grants: 0,
            refusals: 0,
            renewals: 0,
            releases: 0,
            late_releases: 0,
            pauses: 0,
            crashes: 0,
            sections: 0,
            lapsed_sections: 0,
            accepted_writes: 0,
            rejected_writes: 0,
            exclusion_violations: 0,
            token_regressions: 0,
            early_expiries: 0,
            resurrections: 0,
            fifo_inversions: 0,
            lost_wakeups: 0,
            extra_wakes: 0,
            ghosts: 0,
            unexpected_errors: 0,
            waited: 0,
            woken: 0,
            cancelled: 0,
            accompanied: 0,
            unseen: 0,
            closed: 0,
            clock_lag: Duration::ZERO,
            details: Vec::new(),
            // One nanosecond to a minute with three digits: about 200 KiB.
            latency: Histogram::new_with_bounds(1, 60_000_000_000, 3)
                .expect("the bounds are constants that the histogram accepts"),
        }
    }

    /// Counts a violation, and describes it if it is among the first.
    #[cold]
    pub(super) fn violate(&mut self, violation: Violation, detail: impl FnOnce() -> String) {
        match violation {
            Violation::Exclusion => self.exclusion_violations += 1,
            Violation::TokenRegression => self.token_regressions += 1,
            Violation::EarlyExpiry => self.early_expiries += 1,
            Violation::Resurrection => self.resurrections += 1,
            Violation::FifoInversion => self.fifo_inversions += 1,
            Violation::LostWakeup => self.lost_wakeups += 1,
            Violation::ExtraWake => self.extra_wakes += 1,
            Violation::Ghost => self.ghosts += 1,
            Violation::UnexpectedError => self.unexpected_errors += 1,
        }
        if self.details.len() < DESCRIBED {
            self.details.push(format!("{violation:?}: {}", detail()));
        }
    }

    /// Counts an error that nothing accounts for.
    pub(super) fn unexpected(&mut self, key: u32, error: &dyn std::fmt::Display) {
        self.violate(Violation::UnexpectedError, || format!("key {key}: {error}"));
    }

    /// All violations that a worker can see.
    pub(super) fn violations(&self) -> u64 {
        self.exclusion_violations
            + self.token_regressions
            + self.early_expiries
            + self.resurrections
            + self.fifo_inversions
            + self.lost_wakeups
            + self.extra_wakes
            + self.ghosts
            + self.unexpected_errors
    }

    /// Adds another worker's counts to these.
    pub(super) fn merge(&mut self, other: Self) {
        self.grants += other.grants;
        self.refusals += other.refusals;
        self.renewals += other.renewals;
        self.releases += other.releases;
        self.late_releases += other.late_releases;
        self.pauses += other.pauses;
        self.crashes += other.crashes;
        self.sections += other.sections;
        self.lapsed_sections += other.lapsed_sections;
        self.accepted_writes += other.accepted_writes;
        self.rejected_writes += other.rejected_writes;
        self.exclusion_violations += other.exclusion_violations;
        self.token_regressions += other.token_regressions;
        self.early_expiries += other.early_expiries;
        self.resurrections += other.resurrections;
        self.fifo_inversions += other.fifo_inversions;
        self.lost_wakeups += other.lost_wakeups;
        self.extra_wakes += other.extra_wakes;
        self.ghosts += other.ghosts;
        self.unexpected_errors += other.unexpected_errors;
        self.waited += other.waited;
        self.woken += other.woken;
        self.cancelled += other.cancelled;
        self.accompanied += other.accompanied;
        self.unseen += other.unseen;
        self.closed += other.closed;
        self.clock_lag = self.clock_lag.max(other.clock_lag);
        let room = DESCRIBED.saturating_sub(self.details.len());
        self.details.extend(other.details.into_iter().take(room));
        self.latency
            .add(other.latency)
            .expect("all tallies have histograms of the same bounds");
    }
}
