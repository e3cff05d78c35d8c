//! What all threads know about one key, outside the manager: the words that the checks compare.
//!
//! A thread can be stopped anywhere, for longer than its lease. So no check may rest on "I was
//! granted the key, therefore nobody else is inside"; what each one rests on is said beside it.
//! All words are `SeqCst`: the checks compare different words, and this is not the code to be timed.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU64, fence};
use std::time::Duration;

use tenure::FencingToken;

use super::resource::{Refusal, Resource};

/// How often the key had been revoked at some moment: `begun << 32 | under way`.
///
/// An early end is excused if a revocation began, or was under way, since before the lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct Revocations(u64);

impl Revocations {
    const ONE: u64 = 1 << 32 | 1;

    fn begun(self) -> u64 {
        self.0 >> 32
    }

    fn none_under_way(self) -> bool {
        low_half(self.0) == 0
    }
}

/// What a grant must be compared with, read before it was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    /// The greatest token whose grant had returned.
    pub(super) highest: u64,
    /// The lease in force as far as its holder had published it.
    promise: u64,
    /// Revocations so far.
    pub(super) revocations: Revocations,
}

/// One thread's passage through the critical section of a key.
#[derive(Debug)]
pub(super) struct Passage {
    token: FencingToken,
    /// What is wrong with the plain counter, if anything is.
    pub(super) miscount: Option<(u64, u64)>,
}

/// Everything that the workers share about one key. Padded, so that keys don't share cache lines.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct KeyCheck {
    resource: Resource,
    /// The greatest token whose grant has returned to its caller.
    highest: AtomicU64,
    /// `revocations begun (16 bits) << 48 | microseconds since the run began`: until then the
    /// last holder that published was promised the key. 0 for none.
    promise: AtomicU64,
    /// See [`Revocations`].
    revocations: AtomicU64,
    /// The greatest token that entered the critical section.
    entered: AtomicU64,
    /// `entries << 32 | threads inside`.
    inside: AtomicU64,
    /// Finished sections, counted atomically.
    atomic: AtomicU64,
    /// Finished sections, counted by a load and a store, which only exclusion keeps right.
    plain: AtomicU64,
    /// Sections during which the holder's lease ended; each may have spoilt `plain`.
    lapses: AtomicU64,
    /// The value of `lapses` when `plain` was last set right.
    repaired: AtomicU64,
}

impl KeyCheck {
    /// A key that nobody has used.
    pub(super) fn new(resource: Resource) -> Self {
        Self {
            resource,
            highest: AtomicU64::new(0),
            promise: AtomicU64::new(0),
            revocations: AtomicU64::new(0),
            entered: AtomicU64::new(0),
            inside: AtomicU64::new(0),
            atomic: AtomicU64::new(0),
            plain: AtomicU64::new(0),
            lapses: AtomicU64::new(0),
            repaired: AtomicU64::new(0),
        }
    }

    // ---- the resource -------------------------------------------------------------------------

    /// Reads the resource under a token.
    pub(super) fn read(&self, token: FencingToken) -> Result<u64, Refusal> {
        self.resource.read(token)
    }

    /// Sets the resource to what follows from an earlier read.
    pub(super) fn write(&self, token: FencingToken, new: u64) -> Result<(), Refusal> {
        self.resource.write(token, new)
    }

    /// The number of writes that the resource still knows of.
    pub(super) fn value(&self) -> Result<u64, Refusal> {
        self.resource.value()
    }

    // ---- tokens, promises, revocations --------------------------------------------------------

    /// To be called before asking for the key.
    pub(super) fn before(&self) -> Before {
        Before {
            highest: self.highest.load(SeqCst),
            promise: self.promise.load(SeqCst),
            revocations: Revocations(self.revocations.load(SeqCst)),
        }
    }

    /// Records a token whose grant has returned.
    pub(super) fn granted(&self, token: FencingToken) {
        self.highest.fetch_max(token.get(), SeqCst);
    }

    /// Publishes that the key is promised to the caller until `until` (after the run began).
    ///
    /// A holder that is late with this publishes a time that has passed, which accuses nobody.
    pub(super) fn promise(&self, until: Duration, granted_at: Revocations) -> u64 {
        let micros = u64::try_from(until.as_micros()).unwrap_or(u64::MAX) & ((1 << 48) - 1);
        let promise = if granted_at.none_under_way() {
            granted_at.begun() << 48 | micros
        } else {
            0
        };
        self.promise.store(promise, SeqCst);
        promise
    }

    /// Takes a promise back; to be called before releasing.
    pub(super) fn withdraw(&self, promise: u64) {
        // Failing means that a later holder has published: its promise stays.
        let _ = self.promise.compare_exchange(promise, 0, SeqCst, SeqCst);
    }

    /// Whether a grant that was answered at `now` (after the run began) broke a promise.
    ///
    /// The promise stood before the grant was asked for, so its lease is an earlier one. It still
    /// stands, so that lease's release has not begun. No revocation has begun since before it was
    /// granted. So it must have ended by time, and `now`, later than the grant, is before that.
    pub(super) fn broke_promise(&self, before: Before, now: Duration) -> bool {
        let promise = before.promise;
        let until = Duration::from_micros(promise & ((1 << 48) - 1));
        promise != 0
            && now < until
            && self.promise.load(SeqCst) == promise
            && Revocations(self.revocations.load(SeqCst)).begun() & 0xffff == promise >> 48
    }

    /// Announces a revocation.
    pub(super) fn begin_revocation(&self) {
        self.revocations.fetch_add(Revocations::ONE, SeqCst);
    }

    /// Says that an announced revocation has returned.
    pub(super) fn end_revocation(&self) {
        self.revocations.fetch_sub(1, SeqCst);
    }

    /// Whether a lease asked for at `since` may have been revoked by now.
    pub(super) fn may_be_revoked(&self, since: Revocations) -> bool {
        !since.none_under_way()
            || Revocations(self.revocations.load(SeqCst)).begun() != since.begun()
    }

    /// How many revocations may have ended a lease asked for at `since`.
    pub(super) fn revocations_since(&self, since: Revocations) -> u64 {
        let begun = Revocations(self.revocations.load(SeqCst)).begun();
        begun - since.begun() + low_half(since.0)
    }

    // ---- the critical section -----------------------------------------------------------------

    /// Enters the critical section and looks whether the two counters agree.
    ///
    /// They must, if nobody else is inside: every earlier section is finished then, and what a
    /// lapsed one spoilt was put right by the first holder that found itself alone afterwards.
    /// "Nobody" is certain when nobody was inside at the entry and nobody entered until after the
    /// counters were read.
    pub(super) fn enter(&self, token: FencingToken) -> Passage {
        self.entered.fetch_max(token.get(), SeqCst);
        let inside = self.inside.fetch_add(1 << 32 | 1, SeqCst);
        let mut passage = Passage {
            token,
            miscount: None,
        };
        if low_half(inside) == 0 {
            let lapses = self.lapses.load(SeqCst);
            let repaired = self.repaired.load(SeqCst);
            let plain = self.plain.load(SeqCst);
            let atomic = self.atomic.load(SeqCst);
            let alone = self.inside.load(SeqCst) == inside.wrapping_add(1 << 32 | 1);
            if alone && plain != atomic {
                if lapses == repaired {
                    passage.miscount = Some((plain, atomic));
                }
                // If our own lease ends before these stores, our exit counts a lapse, and the
                // next holder that is alone puts it right again.
                self.plain.store(atomic, SeqCst);
            }
            if alone {
                self.repaired.store(lapses, SeqCst);
            }
        }
        passage
    }

    /// The work inside: one increment by load and store, with `spins` of room for a race.
    pub(super) fn work(&self, spins: u32) {
        let plain = self.plain.load(Relaxed);
        for _ in 0..spins {
            std::hint::spin_loop();
        }
        self.plain.store(plain + 1, Relaxed);
    }

    /// Leaves the critical section. `is_live` is asked whether the lease is still live; the answer
    /// is passed on, with the token that was seen inside if it proves a second live lease.
    ///
    /// A greater token inside was granted later. If our lease is live even after we saw it, then
    /// that one was granted while ours was live.
    pub(super) fn exit(
        &self,
        passage: &Passage,
        is_live: impl FnOnce() -> bool,
    ) -> (bool, Option<u64>) {
        let entered = self.entered.load(SeqCst);
        fence(SeqCst);
        let live = is_live();
        self.atomic.fetch_add(1, SeqCst);
        if !live {
            self.lapses.fetch_add(1, SeqCst);
        }
        self.inside.fetch_sub(1, SeqCst);
        let intruder = (live && entered != passage.token.get()).then_some(entered);
        (live, intruder)
    }

    /// At the end of the run: the counters, if they must agree and don't.
    pub(super) fn final_miscount(&self) -> Option<(u64, u64)> {
        let (plain, atomic) = (self.plain.load(SeqCst), self.atomic.load(SeqCst));
        let spoilt = self.lapses.load(SeqCst) != self.repaired.load(SeqCst);
        (!spoilt && plain != atomic).then_some((plain, atomic))
    }
}

/// The second of the two counts that a word holds.
fn low_half(word: u64) -> u64 {
    word & 0xffff_ffff
}
