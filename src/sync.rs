//! The atomics and locks of the concurrent core: `std` and libraries, or loom's or shuttle's models of
//! them.
//!
//! Only the parts whose interleavings are modelled go through here: all that touches the table and the
//! wheel; and the [`facade`], which shuttle's models of whole managers have and loom's have not. No
//! backend models time.

/// Whether this is a build for models, which make do with few of everything.
pub(crate) const MODELLED: bool = cfg!(any(tenure_loom, tenure_shuttle));

#[cfg(not(any(tenure_loom, tenure_shuttle)))]
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
    /// `Local::pin`.) No model notices if there is none before it: there it is a real fence.
    #[inline]
    pub(crate) fn fence_after_rmw() {
        #[cfg(target_arch = "x86_64")]
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        #[cfg(not(target_arch = "x86_64"))]
        fence(Ordering::SeqCst);
    }
}

#[cfg(any(tenure_loom, tenure_shuttle))]
mod backend {
    pub(crate) use std::sync::Arc;
    use std::sync::PoisonError;

    #[cfg(tenure_loom)]
    use loom as modelled;
    #[cfg(tenure_shuttle)]
    use shuttle as modelled;

    pub(crate) use modelled::sync::MutexGuard;
    pub(crate) use modelled::sync::atomic::{
        AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };

    pub(crate) fn zeroed_words(count: usize) -> Option<Box<[AtomicU64]>> {
        Some((0..count).map(|_| AtomicU64::new(0)).collect())
    }

    /// The model's mutex with `parking_lot`'s interface.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(modelled::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(modelled::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
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

/// What guards, futures, the driver and the manual clock are made of. Loom's models have none of these.
#[cfg(not(tenure_shuttle))]
pub(crate) mod facade {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64};
    pub(crate) use std::thread;
    pub(crate) use std::thread_local;
}

#[cfg(tenure_shuttle)]
pub(crate) mod facade {
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64};
    pub(crate) use shuttle::thread;
    pub(crate) use shuttle::thread_local;
}

pub(crate) use backend::*;
