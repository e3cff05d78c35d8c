//! What an operation leaves to be done at its end, and who turns the wheel.

use super::Engine;
use crate::owed::Owed;
use crate::sync::{Ordering, fence};
use crate::table::{GROUPS_A_STEP, Layout, Local, Look, Moved, Steps};

/// Looks of a turn between two readings of the clock, of some hundred nanoseconds each.
const LOOKS_A_READING: u64 = 256;

impl<L: Layout> Engine<L> {
    /// Has the wheel look at the copies that this operation has published. Until then it does not, so an
    /// operation without a bound does this on the way.
    pub(super) fn watch_moved(&self, local: &mut Local) {
        if local.moved.is_empty() {
            return;
        }
        // Stores lie between the publication of the copies and the looks at their words.
        fence(Ordering::SeqCst);
        while let Some(&Moved { cell, deadline }) = local.moved.last() {
            self.watch(cell, self.table.cell(cell).wheel_word(), deadline);
            local.moved.pop();
        }
    }

    /// Does what takes several steps, with the chores after each: some move many leases.
    pub(super) fn in_steps(&self, step: impl Fn(&mut Local, &mut Steps) -> Option<bool>) -> bool {
        let mut steps = Steps::default();
        loop {
            let done = self.with(self.time.now(), |local| step(local, &mut steps));
            if let Some(done) = done {
                return done;
            }
        }
    }

    #[cold]
    pub(super) fn chores(&self, local: &mut Local) {
        while local.has_chores() {
            self.watch_moved(local);
            if std::mem::take(&mut local.spilled) {
                self.table.keep_sized(local);
            }
            if std::mem::take(&mut local.resized) {
                self.wake_driver();
            }
            if std::mem::take(&mut local.wants_block) {
                self.authority.want_block();
            }
            self.follow_up(local);
        }
    }

    /// Ends every lease whose deadline has passed and moves a share of a resize under way. Says how
    /// many it ended. Returns at once if another thread is at it.
    pub(crate) fn advance(&self) -> u64 {
        let now = self.time.precise_now();
        let (ended, buckets) = self.with(now, |local| {
            self.advances.begin();
            let mut under_way = &self.advances;
            let _under_way = Owed::new(&mut under_way, |advances| advances.end());
            let before = local.counters.expired.load(Ordering::Relaxed);
            self.turn(local);
            if self.table.wants_resize() {
                self.table.keep_sized(local);
                self.table.help_resize(local, GROUPS_A_STEP);
            }
            // What has moved meanwhile may be due itself.
            while local.has_chores() {
                self.chores(local);
                self.turn(local);
            }
            let ended = local.counters.expired.load(Ordering::Relaxed) - before;
            (ended, self.table.catch_up(local))
        });
        self.trim_if_smaller(buckets);
        ended
    }

    /// Turns the wheel to the thread's now.
    pub(super) fn turn(&self, local: &mut Local) {
        let now = local.now;
        let turned = self.table.turned_by(local);
        let mut looks = LOOKS_A_READING;
        let advanced = self.wheel.advance_to(&turned, now, |cell, tick| {
            // Later than ours if another thread has wanted that meanwhile.
            local.now = local.now.max(tick);
            looks -= 1;
            if looks == 0 {
                looks = LOOKS_A_READING;
                self.read_clock(local);
            }
            match self.table.look(local, cell) {
                Look::Nothing => None,
                Look::At(tick) => Some(tick),
            }
        });
        if advanced.is_some_and(|advanced| advanced.wake) {
            self.wake_driver();
        }
    }

    /// The end of a long turn is late by what came before it, and has to say so.
    #[cold]
    #[inline(never)]
    fn read_clock(&self, local: &mut Local) {
        let now = self.time.precise_now();
        local.now = local.now.max(self.time.tick_of(now));
    }

    /// The tick at which [`advance`](Self::advance) next has something to do.
    pub(crate) fn next_due(&self) -> Option<u64> {
        if self.table.wants_resize() {
            return Some(0);
        }
        self.wheel.next_due()
    }

    /// The same for whoever is not told when that becomes sooner: now, if somebody is turning the wheel, for
    /// what that one has in hand is nowhere else.
    pub(crate) fn next_wakeup(&self) -> Option<u64> {
        let due = self.advances.unless_under_way(|| self.next_due());
        due.unwrap_or_else(|| Some(self.time.tick_of(self.time.now())))
    }
}
