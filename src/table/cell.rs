//! The cell: one cache line for one grant, and its state word `[life | deadline | tag]`.
//!
//! | tag | meaning | becomes |
//! |---|---|---|
//! | `DEAD` (0) | free, private before a grant, or linked and waiting to be skipped | `HELD` (private only) |
//! | `HELD` | a lease, up to its deadline; or a cell prepared in private | `KILLED_*`, `FROZEN`, `DEAD` |
//! | `FROZEN` | a lease that lives on as a copy, or is about to | `DEAD` |
//! | `MARK` | no lease: the key of this cell has a record (rule 8) | `FROZEN_MARK`, `DEAD` |
//! | `FROZEN_MARK` | the same, and lives on as a copy, or is about to | `DEAD` |
//! | `KILLED_EXPIRED`, `KILLED_RELEASED`, `KILLED_REVOKED` | over, for that reason, and not yet reported | `DEAD`, whose winner reports |
//! | `KILLED_TAKEN` | over in the table, and going on in the key's record (`Table::take_out`) | `DEAD` |
//! | `TIMER` | in no bucket: the wheel tells of its deadline (`timer.rs`) | `TIMER` of another deadline, `DEAD` |
//!
//! The deadline is an offset in ticks from the start of the cell's era.
//!
//! Key, token, owner, era and next are written only while the cell is private and may be read by
//! anybody at any time. A reader that acts on them has loaded the state first, and afterwards either
//! changes that exact state or finds the bucket's word unchanged: a torn reading never counts. So
//! they are stored with release and loaded with acquire: a reader that sees one field of a later
//! life also sees, at its check, that the world has moved on (the seqlock pair).

use std::marker::PhantomData;

use super::layout::Layout;
use super::{Handle, Name};
use crate::key::Key;
use crate::sync::{AtomicU64, Ordering, fence_after_rmw};

pub(crate) const DEAD: u64 = 0;
pub(crate) const HELD: u64 = 1;
pub(crate) const FROZEN: u64 = 2;
pub(crate) const MARK: u64 = 3;
pub(crate) const KILLED_EXPIRED: u64 = 4;
pub(crate) const KILLED_RELEASED: u64 = 5;
pub(crate) const KILLED_REVOKED: u64 = 6;
pub(crate) const FROZEN_MARK: u64 = 7;
pub(crate) const TIMER: u64 = 8;
pub(crate) const KILLED_TAKEN: u64 = 9;

const TAG_BITS: u32 = 4;
const DEADLINE_SHIFT: u32 = TAG_BITS;

/// One value of a cell's state word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State<L: Layout>(pub(crate) u64, PhantomData<L>);

impl<L: Layout> PartialEq for State<L> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<L: Layout> State<L> {
    #[inline]
    pub(crate) fn new(life: u64, offset: u64, tag: u64) -> Self {
        debug_assert!(offset < 1 << L::DEADLINE_BITS, "a deadline left its era");
        let word = (life & ((1 << L::LIFE_BITS) - 1)) << (L::DEADLINE_BITS + DEADLINE_SHIFT)
            | offset << DEADLINE_SHIFT
            | tag;
        Self(word, PhantomData)
    }

    #[inline]
    pub(crate) fn from_raw(raw: u64) -> Self {
        Self(raw, PhantomData)
    }

    /// Held, in the life after this one.
    #[inline]
    pub(crate) fn next_life(self, stamp: &Stamp) -> Self {
        let life_shift = L::DEADLINE_BITS + DEADLINE_SHIFT;
        // A life after the last is the first: the sum wraps, and only the life's bits take part.
        let life = (self.0 >> life_shift).wrapping_add(1) << (u64::BITS - L::LIFE_BITS)
            >> (u64::BITS - L::LIFE_BITS - life_shift);
        Self(life | stamp.state, PhantomData)
    }

    #[inline]
    pub(crate) fn life(self) -> u64 {
        self.0 >> (L::DEADLINE_BITS + DEADLINE_SHIFT)
    }

    #[inline]
    pub(crate) fn tag(self) -> u64 {
        self.0 & ((1 << TAG_BITS) - 1)
    }

    #[inline]
    pub(crate) fn is_held(self) -> bool {
        self.tag() == HELD
    }

    /// Whether a lease stands here or lives on as a copy.
    #[inline]
    pub(crate) fn is_lease(self) -> bool {
        let tag = self.tag();
        tag == HELD || tag == FROZEN
    }

    #[inline]
    pub(crate) fn is_killed(self) -> bool {
        matches!(self.tag(), KILLED_EXPIRED..=KILLED_REVOKED | KILLED_TAKEN)
    }

    /// Whether the cell's key has a record.
    #[inline]
    pub(crate) fn is_mark(self) -> bool {
        matches!(self.tag(), MARK | FROZEN_MARK)
    }

    /// Whether the cell has to stay linked.
    #[inline]
    pub(crate) fn is_kept(self) -> bool {
        self.is_lease() || self.is_mark()
    }

    /// The deadline in ticks, for a cell of that era.
    #[inline]
    pub(crate) fn deadline(self, era: u64) -> u64 {
        (era << L::ERA_SHIFT) + (self.0 >> DEADLINE_SHIFT & ((1 << L::DEADLINE_BITS) - 1))
    }

    /// The same with another deadline, if that fits the era.
    #[inline]
    pub(crate) fn with_deadline(self, era: u64, deadline: u64) -> Option<Self> {
        let offset = deadline - (era << L::ERA_SHIFT);
        (offset < 1 << L::DEADLINE_BITS).then(|| Self::new(self.life(), offset, self.tag()))
    }

    #[inline]
    pub(crate) fn with_tag(self, tag: u64) -> Self {
        Self(self.0 & !((1 << TAG_BITS) - 1) | tag, PhantomData)
    }
}

/// The words of a cell, in its cache line.
pub(crate) const STATE: usize = 0;
const KEY_LOW: usize = 1;
const KEY_HIGH: usize = 2;
const TOKEN: usize = 3;
const OWNER: usize = 4;
/// A [`Link`].
const LINK: usize = 5;
const WHEEL: usize = 6;
const WHEEL_NEXT: usize = 7;

/// Words in a cell.
pub(crate) const CELL_WORDS: usize = 8;

/// A view of one cell.
#[derive(Clone, Copy)]
pub(crate) struct Cell<'a>(pub(crate) &'a [AtomicU64; CELL_WORDS]);

/// The era of a cell's deadline, and the cell behind it: `[era : 32 | next : 32]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link(u64);

impl Link {
    #[inline]
    pub(crate) fn next(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    pub(crate) fn era(self) -> u64 {
        self.0 >> 32
    }
}

/// A deadline as a new cell has it. Grants of one TTL within one tick share it.
///
/// The era is the deadline's own, so that any deadline fits, and one a whole era later still fits at
/// a renewal. (A renewal never shortens.)
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stamp {
    /// In ticks.
    pub(crate) deadline: u64,
    /// A [`Link`] with no cell behind.
    link: u64,
    /// A [`State`] of life 0.
    state: u64,
}

impl Stamp {
    #[inline]
    pub(crate) fn new<L: Layout>(deadline: u64) -> Self {
        let era = deadline >> L::ERA_SHIFT;
        let offset = deadline - (era << L::ERA_SHIFT);
        Self {
            deadline,
            link: era << 32,
            state: State::<L>::new(0, offset, HELD).0,
        }
    }
}

/// What a grant writes into its private cell, and a copy takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) key: Key,
    pub(crate) token: u64,
    pub(crate) owner: u64,
    pub(crate) deadline: u64,
}

impl<'a> Cell<'a> {
    #[inline]
    pub(crate) fn state<L: Layout>(self) -> State<L> {
        State(self.0[STATE].load(Ordering::Acquire), PhantomData)
    }

    /// The state in the one order of all sequentially consistent accesses; see `ending.rs`.
    #[inline]
    pub(crate) fn state_in_order<L: Layout>(self) -> State<L> {
        #[cfg(tenure_loom)]
        crate::sync::fence(Ordering::SeqCst);
        State(self.0[STATE].load(Ordering::SeqCst), PhantomData)
    }

    #[inline]
    pub(crate) fn set_state<L: Layout>(self, state: State<L>) {
        #[cfg(not(tenure_loom))]
        self.0[STATE].store(state.0, Ordering::Release);
        // Loom would let the storing thread read, afterwards, what another thread's CAS wrote before
        // the store; the language does not, since nothing comes between a CAS and what it read.
        #[cfg(tenure_loom)]
        self.0[STATE].swap(state.0, Ordering::AcqRel);
    }

    /// Stores a state, and says which it replaces.
    #[inline]
    pub(crate) fn replace_state<L: Layout>(self, state: State<L>) -> State<L> {
        State(self.0[STATE].swap(state.0, Ordering::AcqRel), PhantomData)
    }

    /// One CAS on the exact state.
    #[inline]
    pub(crate) fn change<L: Layout>(self, from: State<L>, to: State<L>) -> bool {
        self.0[STATE]
            .compare_exchange(from.0, to.0, Ordering::SeqCst, Ordering::Acquire)
            .is_ok()
    }

    #[inline]
    pub(crate) fn key(self) -> Key {
        let low = self.0[KEY_LOW].load(Ordering::Acquire);
        let high = self.0[KEY_HIGH].load(Ordering::Acquire);
        Key::from_raw(u128::from(high) << 64 | u128::from(low))
    }

    #[inline]
    pub(crate) fn token(self) -> u64 {
        self.0[TOKEN].load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn owner(self) -> u64 {
        self.0[OWNER].load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn link(self) -> Link {
        Link(self.0[LINK].load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn next(self) -> u32 {
        self.link().next()
    }

    #[inline]
    pub(crate) fn era(self) -> u64 {
        self.link().era()
    }

    /// Fills a private cell with a lease and starts its next life, whose state it returns.
    pub(crate) fn prepare<L: Layout>(self, contents: &Contents, next: u32) -> State<L> {
        let stamp = Stamp::new::<L>(contents.deadline);
        self.fill(contents.key, contents.owner, &stamp, next);
        self.start(contents.token, &stamp)
    }

    /// Fills a private cell as the mark of a record. The bucket's version stands where a lease has its
    /// deadline: as that one, it keeps states of one life apart.
    pub(crate) fn prepare_mark<L: Layout>(self, key: Key, version: u64, next: u32) {
        let offset = version & ((1 << L::DEADLINE_BITS) - 1);
        let stamp = Stamp {
            deadline: 0,
            link: 0,
            state: State::<L>::new(0, offset, MARK).0,
        };
        self.fill(key, 0, &stamp, next);
        let _: State<L> = self.start(0, &stamp);
    }

    /// Makes a private cell a timer.
    pub(crate) fn prepare_timer<L: Layout>(self, key: Key, kind: u64, deadline: u64) {
        let mut stamp = Stamp::new::<L>(deadline);
        stamp.state = stamp.state & !((1 << TAG_BITS) - 1) | TIMER;
        self.fill(key, kind, &stamp, 0);
        let _: State<L> = self.start(0, &stamp);
    }

    /// Sets a timer to another deadline. Only its owner does, so nothing comes in between.
    pub(crate) fn set_timer<L: Layout>(self, deadline: u64) {
        let stamp = Stamp::new::<L>(deadline);
        // A look between the two stores may see the new era with the old deadline, and so a time that
        // is too late: but whoever sets a timer looks at the wheel's word afterwards.
        self.0[LINK].store(stamp.link, Ordering::Release);
        let state = self.state::<L>();
        let life = state.life();
        let offset = stamp.state >> DEADLINE_SHIFT & ((1 << L::DEADLINE_BITS) - 1);
        let set = self.change(state, State::new(life, offset, TIMER));
        debug_assert!(set, "a timer has one owner");
    }

    /// The first half of [`prepare`](Self::prepare): what does not depend on the bucket.
    #[inline(always)]
    pub(crate) fn fill(self, key: Key, owner: u64, stamp: &Stamp, next: u32) {
        let raw = key.as_raw();
        self.0[KEY_LOW].store(raw as u64, Ordering::Release);
        self.0[KEY_HIGH].store((raw >> 64) as u64, Ordering::Release);
        self.0[OWNER].store(owner, Ordering::Release);
        self.0[LINK].store(stamp.link | u64::from(next), Ordering::Release);
    }

    /// The second half: from here on the wheel may take the cell for a lease.
    #[inline(always)]
    pub(crate) fn start<L: Layout>(self, token: u64, stamp: &Stamp) -> State<L> {
        self.0[TOKEN].store(token, Ordering::Release);
        let state = self.state::<L>().next_life(stamp);
        self.set_state(state);
        state
    }

    /// Whether the cell, in that state, is the grant that the handle and the name mean.
    #[inline]
    pub(crate) fn is_named<L: Layout>(self, state: State<L>, handle: Handle, name: &Name) -> bool {
        state.life() == handle.state::<L>().life()
            && state.is_held()
            && self.token() == name.token
            && self.key() == name.key
    }

    /// What the cell says; only meaningful once the caller's check has passed.
    #[inline]
    pub(crate) fn contents<L: Layout>(self, state: State<L>) -> Contents {
        Contents {
            key: self.key(),
            token: self.token(),
            owner: self.owner(),
            deadline: state.deadline(self.era()),
        }
    }

    #[inline]
    pub(crate) fn wheel(self) -> &'a AtomicU64 {
        &self.0[WHEEL]
    }

    /// The wheel's word, as it is after the lease in this cell was published: if it does not cover
    /// the deadline, the cell has to be registered.
    ///
    /// Partner: the wheel's store of this word and fence, before it looks at the state (`wheel`). If
    /// our fence comes first, the wheel sees the lease; if theirs, we see the word that they stored.
    #[inline]
    pub(crate) fn wheel_word(self) -> u64 {
        fence_after_rmw();
        self.0[WHEEL].load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn wheel_next(self) -> &'a AtomicU64 {
        &self.0[WHEEL_NEXT]
    }

    /// The head cell of a batch of free cells names the batch below it (see `free.rs`).
    pub(crate) fn set_batch(self, next_in_batch: u32, next_batch: u64) {
        self.0[LINK].store(u64::from(next_in_batch), Ordering::Release);
        self.0[TOKEN].store(next_batch, Ordering::Release);
    }
}
