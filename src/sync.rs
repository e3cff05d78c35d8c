//! The atomics and locks of the concurrent core: `std` and libraries, or loom's models of them.
//!
//! Only the parts whose interleavings are modelled go through here. Neither backend models time.

#[cfg(not(tenure_loom))]
mod backend {
    pub(crate) use std::sync::Arc;
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };

    pub(crate) use parking_lot::{Mutex, MutexGuard};
    use zerocopy::FromZeros;

    /// `count` words of zero that take no memory until they are written.
    pub(crate) fn zeroed_words(count: usize) -> Option<Box<[AtomicU64]>> {
        <[AtomicU64]>::new_box_zeroed_with_elems(count).ok()
    }

    /// An `Arc` that can be replaced while others read it.
    #[derive(Debug)]
    pub(crate) struct SharedArc<T>(arc_swap::ArcSwapOption<T>);

    impl<T> SharedArc<T> {
        pub(crate) fn new(value: Option<Arc<T>>) -> Self {
            Self(arc_swap::ArcSwapOption::new(value))
        }

        pub(crate) fn load(&self) -> Option<Arc<T>> {
            self.0.load_full()
        }

        pub(crate) fn is_some(&self) -> bool {
            self.0.load().is_some()
        }

        pub(crate) fn clear(&self) {
            self.0.store(None);
        }

        /// Replaces `current` by `new`; false if something else is in place.
        pub(crate) fn replace(&self, current: &Arc<T>, new: Arc<T>) -> bool {
            let seen = self.0.compare_and_swap(current, Some(new));
            seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, current))
        }
    }

    /// Orders a read-modify-write before it against a load after it, as
    /// `fence(SeqCst)` would.
    ///
    /// On x86-64 a locked instruction is a full barrier, and only the compiler has to be told: the
    /// real fence would cost as much as the CAS before it. (`crossbeam-epoch` does the same in
    /// `Local::pin`.)
    #[inline]
    pub(crate) fn fence_after_rmw() {
        #[cfg(target_arch = "x86_64")]
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        #[cfg(not(target_arch = "x86_64"))]
        fence(Ordering::SeqCst);
    }
}

#[cfg(tenure_loom)]
mod backend {
    pub(crate) use loom::sync::atomic::{
        AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
    pub(crate) use std::sync::Arc;

    pub(crate) fn zeroed_words(count: usize) -> Option<Box<[AtomicU64]>> {
        Some((0..count).map(|_| AtomicU64::new(0)).collect())
    }

    pub(crate) use loom::sync::MutexGuard;

    /// Loom's mutex with `parking_lot`'s interface.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            self.0.lock().expect("no model panics under a lock")
        }

        pub(crate) fn try_lock(&self) -> Option<loom::sync::MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }

    /// The same interface as over `arc_swap`, whose own interleavings are not modelled: each
    /// operation is one atomic step.
    #[derive(Debug)]
    pub(crate) struct SharedArc<T>(Mutex<Option<Arc<T>>>);

    impl<T> SharedArc<T> {
        pub(crate) fn new(value: Option<Arc<T>>) -> Self {
            Self(Mutex::new(value))
        }

        pub(crate) fn load(&self) -> Option<Arc<T>> {
            self.0.lock().clone()
        }

        pub(crate) fn is_some(&self) -> bool {
            self.0.lock().is_some()
        }

        pub(crate) fn clear(&self) {
            *self.0.lock() = None;
        }

        pub(crate) fn replace(&self, current: &Arc<T>, new: Arc<T>) -> bool {
            let mut slot = self.0.lock();
            let same = slot.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, current));
            if same {
                *slot = Some(new);
            }
            same
        }
    }

    #[inline]
    pub(crate) fn fence_after_rmw() {
        fence(Ordering::SeqCst);
    }
}

pub(crate) use backend::*;
