//! An array of buckets: one generation of the table.

use super::bucket::BucketWord;
use super::layout::Layout;
use crate::sync::{Arc, AtomicU64, AtomicUsize, Ordering, SharedArc, zeroed_words};

/// The buckets of one generation, in a power-of-two number.
///
/// Rule A: arrays are never reused. One is made for each resize, starts all `UNINIT` (zero), and dies with
/// the last thread that caches it. So a thread may work on any array it once saw: a bucket that has
/// moved on says so by its flag.
#[derive(Debug)]
pub(crate) struct Array {
    words: Box<[AtomicU64]>,
    mask: usize,
    /// Tokens of this array are `base + version`.
    pub(crate) base: u64,
    /// The last version that a change may make here: within [`Layout::VERSION_SOFT`] and the range
    /// of tokens.
    pub(crate) version_limit: u64,
    /// The last version that a grant may make here as things are: its token is within what is allowed
    /// (`allowance.rs`). Whoever meets it looks there, and raises it if it may.
    grant_limit: AtomicU64,
    /// Nothing is ever granted here.
    shut: bool,
    /// The array whose leases move here, until they all have.
    pub(crate) parent: SharedArc<Array>,
    /// Parent buckets that are not `DONE` yet.
    pub(crate) left: AtomicUsize,
    /// Where the next helper starts.
    pub(crate) cursor: AtomicUsize,
}

impl Array {
    /// `None` if the memory can't be had. The words are untouched zero pages until used. `allowed` is the
    /// greatest token that may be granted without a look at the allowance, and whether none may ever be.
    pub(crate) fn new<L: Layout>(
        buckets: usize,
        base: u64,
        parent: Option<Arc<Array>>,
        (allowed, shut): (u64, bool),
    ) -> Option<Self> {
        debug_assert!(buckets.is_power_of_two());
        let left = parent.as_ref().map_or(0, |parent| parent.len());
        let version_limit = L::VERSION_SOFT.min(super::MAX_TOKEN.saturating_sub(base));
        Some(Self {
            words: zeroed_words(buckets)?,
            mask: buckets - 1,
            base,
            version_limit,
            grant_limit: AtomicU64::new(version_limit.min(allowed.saturating_sub(base))),
            shut,
            parent: SharedArc::new(parent),
            left: AtomicUsize::new(left),
            cursor: AtomicUsize::new(0),
        })
    }

    /// The first generation: every bucket `NORMAL` and empty.
    pub(crate) fn first<L: Layout>(
        buckets: usize,
        base: u64,
        allowed: (u64, bool),
    ) -> Option<Self> {
        let array = Self::new::<L>(buckets, base, None, allowed)?;
        for word in &array.words {
            word.store(
                BucketWord::<L>::new(0, 0, super::bucket::NORMAL).0,
                Ordering::Release,
            );
        }
        Some(array)
    }

    /// The last version that a grant may make without looking at what is allowed.
    #[inline(always)]
    pub(crate) fn grant_limit(&self) -> u64 {
        self.grant_limit.load(Ordering::Relaxed)
    }

    /// Whether nothing is ever granted here.
    pub(crate) fn is_shut(&self) -> bool {
        self.shut
    }

    /// Lets grants make tokens up to that one. It is not shut.
    pub(crate) fn allow(&self, token: u64) {
        debug_assert!(!self.shut);
        let limit = self.version_limit.min(token.saturating_sub(self.base));
        self.grant_limit.store(limit, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.words.len()
    }

    #[inline]
    pub(crate) fn index(&self, hash: u64) -> usize {
        hash as usize & self.mask
    }

    #[inline]
    pub(crate) fn bucket(&self, hash: u64) -> Bucket<'_> {
        self.at(hash as usize)
    }

    #[inline]
    pub(crate) fn at(&self, index: usize) -> Bucket<'_> {
        // The mask is `len - 1`, which spares the bounds check on the hot path.
        Bucket(&self.words[index & (self.words.len() - 1)])
    }
}

/// One bucket's atomic word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket<'a>(&'a AtomicU64);

impl Bucket<'_> {
    #[inline]
    pub(crate) fn load<L: Layout>(self) -> BucketWord<L> {
        BucketWord::from_raw(self.0.load(Ordering::Acquire))
    }

    /// Loads in the one order of all sequentially consistent accesses; see `ending.rs`.
    #[inline]
    pub(crate) fn load_in_order<L: Layout>(self) -> BucketWord<L> {
        #[cfg(tenure_loom)]
        crate::sync::fence(Ordering::SeqCst);
        BucketWord::from_raw(self.0.load(Ordering::SeqCst))
    }

    /// One CAS on the whole word.
    #[inline]
    pub(crate) fn change<L: Layout>(self, from: BucketWord<L>, to: BucketWord<L>) -> bool {
        self.0
            .compare_exchange(from.0, to.0, Ordering::SeqCst, Ordering::Acquire)
            .is_ok()
    }
}
