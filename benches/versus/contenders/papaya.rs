//! A `papaya::HashMap`, which readers and writers use without locks, with atomics as its values. Entries
//! stay when their lease ends, and count their tokens.
//!
//! In its favour: no operation allocates, once a key is known. The map is told to finish growing before an
//! insertion returns: by default it moves a few entries with each insertion, and a table that is only
//! looked up in afterwards, like one that keeps its entries, would remain two tables to search for good.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::thread;
use std::time::Duration;

use foldhash::fast::RandomState;
use papaya::{HashMap, ResizeMode};

use super::{Handle, HeldBy, LeaseTable, Time};

/// One entry for each key ever seen.
pub(crate) struct Papaya<T: Time> {
    time: T,
    entries: HashMap<u64, Slot, RandomState>,
}

/// A key's lease, if it has one.
///
/// | bits of `word` | |
/// |---|---|
/// | 0, 1 | [`FREE`]: nobody holds the key. [`HELD`]: a lease does, of `owner` and until `deadline`. [`CHANGING`]: whoever made it so is writing these two, and everybody else waits |
/// | 2 to 23 | the lease's renewals, around and around |
/// | 24 to 63 | the last token |
///
/// So the word is another after each change, and a compare-and-swap that succeeds proves that owner and
/// deadline were still those that belong to the word.
#[derive(Debug, Default)]
struct Slot {
    word: AtomicU64,
    owner: AtomicU64,
    deadline: AtomicU64,
}

const FREE: u64 = 0;
const HELD: u64 = 1;
const CHANGING: u64 = 2;
const STATE: u64 = 3;
const RENEWAL: u64 = 1 << 2;
const TOKEN_SHIFT: u32 = 24;
const TOKEN: u64 = u64::MAX << TOKEN_SHIFT;

impl Slot {
    /// Changes the word that was seen, unless it is another by now.
    #[inline(always)]
    fn swap(&self, seen: u64, word: u64) -> bool {
        let swapped = self
            .word
            .compare_exchange(seen, word, Ordering::AcqRel, Ordering::Relaxed);
        swapped.is_ok()
    }

    /// Whether what was read since is what belongs to that word.
    #[inline(always)]
    fn is_still(&self, seen: u64) -> bool {
        // Pairs with the fence of those who write: if we read what they write, we see their word too.
        fence(Ordering::Acquire);
        self.word.load(Ordering::Relaxed) == seen
    }

    /// The token of the new lease.
    #[inline(always)]
    fn grant(&self, owner: u64, now: u64, ttl: Duration) -> Result<u64, HeldBy> {
        loop {
            let seen = self.word.load(Ordering::Acquire);
            match seen & STATE {
                FREE => {}
                HELD => {
                    let deadline = self.deadline.load(Ordering::Relaxed);
                    if deadline > now {
                        let held = HeldBy {
                            owner: self.owner.load(Ordering::Relaxed),
                            token: seen >> TOKEN_SHIFT,
                            remaining: Duration::from_nanos(deadline - now),
                        };
                        if self.is_still(seen) {
                            return Err(held);
                        }
                        continue;
                    }
                }
                _ => {
                    thread::yield_now();
                    continue;
                }
            }
            let token = (seen >> TOKEN_SHIFT) + 1;
            let word = token << TOKEN_SHIFT;
            if self.swap(seen, word | CHANGING) {
                fence(Ordering::Release);
                self.owner.store(owner, Ordering::Relaxed);
                let deadline = now + ttl.as_nanos() as u64;
                self.deadline.store(deadline, Ordering::Relaxed);
                self.word.store(word | HELD, Ordering::Release);
                return Ok(token);
            }
        }
    }

    /// Whether the lease was still live.
    #[inline(always)]
    fn renew(&self, token: u64, now: u64, ttl: Duration) -> bool {
        let later = now + ttl.as_nanos() as u64;
        loop {
            let seen = self.word.load(Ordering::Acquire);
            if seen >> TOKEN_SHIFT != token || seen & STATE == FREE {
                return false;
            }
            if seen & STATE == CHANGING {
                thread::yield_now();
                continue;
            }
            let deadline = self.deadline.load(Ordering::Relaxed);
            if deadline <= now || deadline >= later {
                if self.is_still(seen) {
                    return deadline > now;
                }
                continue;
            }
            let renewals = (seen + RENEWAL) & !TOKEN & !STATE;
            let word = seen & TOKEN | renewals;
            if self.swap(seen, word | CHANGING) {
                fence(Ordering::Release);
                self.deadline.store(later, Ordering::Relaxed);
                self.word.store(word | HELD, Ordering::Release);
                return true;
            }
        }
    }

    /// Whether that lease held the key until now.
    #[inline(always)]
    fn release(&self, token: u64) -> bool {
        loop {
            let seen = self.word.load(Ordering::Relaxed);
            if seen >> TOKEN_SHIFT != token || seen & STATE == FREE {
                return false;
            }
            if seen & STATE == CHANGING {
                thread::yield_now();
            } else if self.swap(seen, seen & TOKEN | FREE) {
                return true;
            }
        }
    }

    /// Whether a lease was due, and has been ended.
    fn expire(&self, now: u64) -> bool {
        let seen = self.word.load(Ordering::Acquire);
        let due = seen & STATE == HELD && self.deadline.load(Ordering::Relaxed) <= now;
        due && self.swap(seen, seen & TOKEN | FREE)
    }
}

impl<T: Time> Papaya<T> {
    /// An empty table.
    pub(crate) fn new() -> Self {
        Self {
            time: T::new(),
            entries: HashMap::builder()
                .hasher(RandomState::default())
                .resize_mode(ResizeMode::Blocking)
                .build(),
        }
    }
}

impl<T: Time> LeaseTable for Papaya<T> {
    type Lease<'table>
        = Handle
    where
        Self: 'table;
    type Refusal = HeldBy;

    const KEEPS_ENTRIES: bool = true;

    #[inline(always)]
    fn acquire(&self, key: u64, owner: u64, ttl: Duration) -> Result<Handle, HeldBy> {
        let now = self.time.nanos();
        let guard = self.entries.guard();
        // The entry is there except the first time, and `get` is the shorter path to it.
        let slot = match self.entries.get(&key, &guard) {
            Some(slot) => slot,
            None => self.entries.get_or_insert_with(key, Slot::default, &guard),
        };
        let token = slot.grant(owner, now, ttl)?;
        Ok(Handle { key, token })
    }

    #[inline(always)]
    fn token(lease: &Handle) -> u64 {
        lease.token
    }

    #[inline(always)]
    fn renew(&self, lease: &Handle, ttl: Duration) -> bool {
        let now = self.time.nanos();
        let guard = self.entries.guard();
        let slot = self.entries.get(&lease.key, &guard);
        slot.is_some_and(|slot| slot.renew(lease.token, now, ttl))
    }

    #[inline(always)]
    fn renew_by_key(&self, key: u64, token: u64, ttl: Duration) -> bool {
        LeaseTable::renew(self, &Handle { key, token }, ttl)
    }

    #[inline(always)]
    fn release(&self, lease: Handle) -> bool {
        let guard = self.entries.guard();
        let slot = self.entries.get(&lease.key, &guard);
        slot.is_some_and(|slot| slot.release(lease.token))
    }

    fn keep(&self, _lease: Handle) {}

    fn sweep(&self) -> u64 {
        let now = self.time.nanos();
        let guard = self.entries.guard();
        let slots = self.entries.values(&guard);
        slots.map(|slot| u64::from(slot.expire(now))).sum()
    }
}
