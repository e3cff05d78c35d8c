//! Timers: cells in no bucket, which the wheel tells of.
//!
//! A timer belongs to a record or a session, whose lock is held while it is set. Set to another deadline,
//! it is registered like a lease that was renewed: the wheel's word is looked at after the state was
//! stored, the state after the wheel's word was (see `Cell::wheel_word`). It is not moved by a resize.

use super::cell::{DEAD, TIMER};
use super::layout::Layout;
use super::local::Local;
use super::{Look, Table};
use crate::Key;
use crate::sync::{Ordering, fence};

/// Whose time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// The record of a key.
    Record { key: Key, hash: u64 },
    /// The session of that number.
    Session(u64),
}

/// Whose timer a cell is: what stands in place of the owner.
const OF_RECORD: u64 = 0;
const OF_SESSION: u64 = 1;

impl<L: Layout> Table<L> {
    /// A new timer, and the wheel's word of it; `None` if there is no cell.
    pub(crate) fn timer(&self, local: &mut Local, due: Due, deadline: u64) -> Option<(u32, u64)> {
        let at = local.free.pop().or_else(|| self.cell_for_grant(local))?;
        let (key, kind) = match due {
            Due::Record { key, .. } => (key, OF_RECORD),
            Due::Session(id) => (Key::from_raw(u128::from(id)), OF_SESSION),
        };
        let cell = self.cell(at);
        cell.prepare_timer::<L>(key, kind, deadline);
        // Those are stores, where a grant has a CAS before it looks at the word.
        fence(Ordering::SeqCst);
        Some((at, cell.wheel_word()))
    }

    /// Sets it anew; the wheel's word afterwards.
    pub(crate) fn set_timer(&self, at: u32, deadline: u64) -> u64 {
        let cell = self.cell(at);
        cell.set_timer::<L>(deadline);
        cell.wheel_word()
    }

    /// Gives it back. The cell keeps its registration, as every cell does.
    pub(crate) fn stop_timer(&self, local: &mut Local, at: u32) {
        let cell = self.cell(at);
        cell.set_state(cell.state::<L>().with_tag(DEAD));
        self.give_cell(local, at);
    }

    /// The wheel's look at a cell that may be a timer; `None` if it is none.
    pub(super) fn look_at_timer(&self, local: &mut Local, at: u32) -> Option<Look> {
        let cell = self.cell(at);
        loop {
            let state = cell.state_in_order::<L>();
            if state.tag() != TIMER {
                return None;
            }
            let (key, kind, deadline) = (cell.key(), cell.owner(), state.deadline(cell.era()));
            if cell.state::<L>() != state {
                continue;
            }
            if deadline > local.now {
                return Some(Look::At(deadline));
            }
            let due = match kind {
                OF_RECORD => Due::Record {
                    key,
                    hash: self.hash(key),
                },
                _ => Due::Session(key.as_raw() as u64),
            };
            local.add_due(due);
            return Some(Look::Nothing);
        }
    }
}
