//! Who looks at the wheel from outside, and must know whether somebody has some of it in hand.

use crate::sync::{AtomicU64, Ordering, fence};

/// How many advances have begun, and how many have ended.
///
/// | | advance | look from outside |
/// |---|---|---|
/// | first | counts itself as begun | reads how many have ended |
/// | then | a fence (in [`Wheel::advance_to`](super::Wheel::advance_to)), takes slots, puts back | looks through the slots, a fence |
/// | last | counts itself as ended (release; read by acquire) | reads how many have begun: more, and it has seen nothing |
#[derive(Debug, Default)]
pub(crate) struct Advances {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Advances {
    pub(crate) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        // Release: who sees it sees what was put back.
        self.ended.fetch_add(1, Ordering::Release);
    }

    /// What that look has seen; `None` if somebody may have had something in hand meanwhile, which is nowhere else.
    pub(crate) fn unless_under_way<R>(&self, look: impl FnOnce() -> R) -> Option<R> {
        let ended = self.ended.load(Ordering::Acquire);
        let seen = look();
        // Partner: the fence in `Wheel::advance_to`. If ours comes first, that advance had taken nothing out of
        // its slot when we looked; if theirs, we see that it has begun.
        fence(Ordering::SeqCst);
        (self.begun.load(Ordering::Relaxed) == ended).then_some(seen)
    }
}
