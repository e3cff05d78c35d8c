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
    /// `Local::pin`.) In models it is a real fence, and so looks
    /// whether there is one before it.
    #[inline]
    pub(crate) fn fence_after_rmw() {
        #[cfg(target_arch = "x86_64")]
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        #[cfg(not(target_arch = "x86_64"))]
        fence(Ordering::SeqCst);
    }
}

#[cfg(any(tenure_loom, tenure_shuttle))]
mod modelled_backend {
    pub(crate) use std::sync::Arc;
    use std::sync::PoisonError;

    #[cfg(tenure_loom)]
    use loom as modelled;
    #[cfg(tenure_shuttle)]
    use shuttle as modelled;

    pub(crate) use modelled::sync::MutexGuard;
    pub(crate) use modelled::sync::atomic::Ordering;

    pub(crate) use super::noted::{
        AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, fence, fence_after_rmw,
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
}

/// The model's atomics, which note whether there is a read-modify-write that [`fence_after_rmw`] can rely
/// on.
///
/// If what that fence is to order before a load were a plain store, x86-64 would let the load pass it, and
/// no model would tell, since theirs is a real fence. So each thread remembers whether its last write was a
/// read-modify-write (on x86-64 one that fails is a barrier too) or a fence. Relaxed stores don't count:
/// they publish nothing.
#[cfg(any(tenure_loom, tenure_shuttle))]
mod noted {
    use std::cell::Cell;
    use std::ops::Deref;

    #[cfg(tenure_loom)]
    use loom as modelled;
    #[cfg(tenure_shuttle)]
    use shuttle as modelled;

    use modelled::sync::atomic::{self, Ordering};

    modelled::thread_local! {
        static BARRIER: Cell<bool> = Cell::new(false);
    }

    fn note(barrier: bool) {
        // It is gone when a thread ends, which has no fence to come.
        let _ = BARRIER.try_with(|last| last.set(barrier));
    }

    pub(crate) fn fence(ordering: Ordering) {
        atomic::fence(ordering);
        if ordering == Ordering::SeqCst {
            note(true);
        }
    }

    #[track_caller]
    pub(crate) fn fence_after_rmw() {
        let barrier = BARRIER.try_with(Cell::get).unwrap_or(true);
        assert!(barrier, "a plain store was the last write");
        atomic::fence(Ordering::SeqCst);
    }

    macro_rules! noted {
        ($name:ident, $value:ty: $($change:ident)*) => {
            #[derive(Debug, Default)]
            pub(crate) struct $name(atomic::$name);

            impl Deref for $name {
                type Target = atomic::$name;

                fn deref(&self) -> &Self::Target {
                    &self.0
                }
            }

            #[allow(dead_code, reason = "the same for all, as `std` has it")]
            impl $name {
                pub(crate) fn new(value: $value) -> Self {
                    Self(atomic::$name::new(value))
                }

                #[track_caller]
                pub(crate) fn store(&self, value: $value, ordering: Ordering) {
                    self.0.store(value, ordering);
                    if ordering != Ordering::Relaxed {
                        note(false);
                    }
                }

                #[track_caller]
                pub(crate) fn compare_exchange(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    let result = self.0.compare_exchange(current, new, success, failure);
                    note(true);
                    result
                }

                #[track_caller]
                pub(crate) fn compare_exchange_weak(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    let result = self.0.compare_exchange_weak(current, new, success, failure);
                    note(true);
                    result
                }

                #[track_caller]
                pub(crate) fn fetch_update(
                    &self,
                    success: Ordering,
                    failure: Ordering,
                    update: impl FnMut($value) -> Option<$value>,
                ) -> Result<$value, $value> {
                    let result = self.0.fetch_update(success, failure, update);
                    if result.is_ok() {
                        note(true);
                    }
                    result
                }

                $(#[track_caller]
                pub(crate) fn $change(&self, value: $value, ordering: Ordering) -> $value {
                    let before = self.0.$change(value, ordering);
                    note(true);
                    before
                })*
            }
        };
    }

    noted!(AtomicBool, bool: swap fetch_and fetch_or);
    noted!(AtomicU32, u32: swap fetch_add fetch_sub fetch_and fetch_or fetch_max fetch_min);
    noted!(AtomicU64, u64: swap fetch_add fetch_sub fetch_and fetch_or fetch_max fetch_min);
    noted!(AtomicI64, i64: swap fetch_add fetch_sub fetch_and fetch_or fetch_max fetch_min);
    noted!(AtomicUsize, usize: swap fetch_add fetch_sub fetch_and fetch_or fetch_max fetch_min);
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

#[cfg(not(any(tenure_loom, tenure_shuttle)))]
pub(crate) use backend::*;
#[cfg(any(tenure_loom, tenure_shuttle))]
pub(crate) use modelled_backend::*;

/// How loom's models are run.
#[cfg(all(test, tenure_loom))]
pub(crate) mod exploring {
    use std::io::{self, Write};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use loom::model::Builder;

    use super::{AtomicU32, fence, fence_after_rmw};

    /// Runs a model through all executions with at most so many preemptions, and says how many they were.
    ///
    /// With `TENURE_LOOM=full` it goes on with one preemption more, and one more, until that makes no
    /// difference, when it makes sure that those were all executions, or until `TENURE_LOOM_SECONDS` (60 by default) have
    /// passed. (M. Musuvathi and S. Qadeer, "Iterative Context Bounding for Systematic Testing of
    /// Multithreaded Programs", 2007.) `LOOM_MAX_PREEMPTIONS` sets one bound for all models instead.
    pub(crate) fn explore(
        preemptions: usize,
        part: &str,
        body: impl Fn() + Copy + Sync + Send + 'static,
    ) {
        let begun = Instant::now();
        let set = Builder::new().preemption_bound;
        let full = set.is_none() && std::env::var("TENURE_LOOM").is_ok_and(|wish| wish == "full");
        let limit = std::env::var("TENURE_LOOM_SECONDS")
            .map_or(60, |seconds| seconds.parse().expect("a number"));
        let limit = Duration::from_secs(limit);
        let mut bound = set.unwrap_or(preemptions);
        let mut executions = run(Some(bound), None, body).expect("no limit");
        let mut extent = format!("with at most {bound} preemptions");
        while full {
            bound += 1;
            let left = limit.saturating_sub(begun.elapsed());
            let Some(more) = run(Some(bound), Some(left), body) else {
                break;
            };
            if more == executions {
                executions = run(None, None, body).expect("no limit");
                extent = "which are all".to_owned();
                break;
            }
            executions = more;
            extent = format!("with at most {bound} preemptions");
        }
        let thread = thread::current();
        let name = thread.name().unwrap_or("a model");
        let seconds = begun.elapsed().as_secs_f64();
        let line = format!("{name} {part}: {executions} executions, {extent}; {seconds:.1} s\n");
        // Not by a macro, whose lines are the test harness's.
        let _ = io::stderr().write_all(line.as_bytes());
    }

    /// The number of executions; `None` if they took longer than that.
    fn run(
        bound: Option<usize>,
        limit: Option<Duration>,
        body: impl Fn() + Copy + Sync + Send + 'static,
    ) -> Option<u64> {
        let mut builder = Builder::new();
        builder.preemption_bound = bound;
        builder.max_branches = 100_000;
        // How often it looks at the limit.
        builder.checkpoint_interval = 1_000;
        builder.max_duration = limit;
        let count = Arc::new(AtomicU64::new(0));
        let begun = Instant::now();
        let counted = Arc::clone(&count);
        builder.check(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            body();
        });
        let over = limit.is_some_and(|limit| begun.elapsed() >= limit);
        (!over).then(|| count.load(Ordering::Relaxed))
    }

    /// What the models' fence is to tell from a read-modify-write.
    #[test]
    #[should_panic(expected = "a plain store was the last write")]
    fn loom_a_fence_after_a_plain_store_is_noticed() {
        explore(1, "", || {
            let word = AtomicU32::new(0);
            word.swap(1, Ordering::AcqRel);
            fence_after_rmw();
            word.store(2, Ordering::Relaxed);
            fence_after_rmw();
            word.store(3, Ordering::Release);
            fence(Ordering::SeqCst);
            fence_after_rmw();
            word.store(4, Ordering::Release);
            fence_after_rmw();
        });
    }
}
