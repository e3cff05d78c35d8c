//! What a thread owes once it has won a compare-and-swap, paid even if a panic comes in between.
//!
//! Whoever unlinks a cell alone may report and free it; whoever kills a lease has its record hear of it.
//! Between the one and the other nothing panics, in a build without failpoints (`failpoint.rs`): then such a
//! guard is no code at all, and there in case that this changes.

use std::mem;
use std::ops::{Deref, DerefMut};

/// How something is paid, and what is needed for it.
#[derive(Debug)]
pub(crate) struct Owed<'w, T, F: FnMut(&mut T)> {
    with: &'w mut T,
    pay: F,
}

impl<'w, T, F: FnMut(&mut T)> Owed<'w, T, F> {
    #[inline(always)]
    pub(crate) fn new(with: &'w mut T, pay: F) -> Self {
        Self { with, pay }
    }

    /// Pays now.
    #[inline(always)]
    pub(crate) fn pay(mut self) {
        (self.pay)(self.with);
        self.waive();
    }

    /// Nothing is owed any more. (What `pay` has captured is not dropped: that should be references.)
    #[inline(always)]
    pub(crate) fn waive(self) {
        mem::forget(self);
    }
}

impl<T, F: FnMut(&mut T)> Deref for Owed<'_, T, F> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        self.with
    }
}

impl<T, F: FnMut(&mut T)> DerefMut for Owed<'_, T, F> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        self.with
    }
}

impl<T, F: FnMut(&mut T)> Drop for Owed<'_, T, F> {
    /// On the way out of a panic only.
    fn drop(&mut self) {
        (self.pay)(self.with);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{self, AssertUnwindSafe};

    use super::*;

    #[test]
    fn what_is_owed_is_paid_once_at_the_latest_on_the_way_out_of_a_panic_unless_it_is_waived() {
        let mut paid = 0;
        Owed::new(&mut paid, |paid| *paid += 1).pay();
        assert_eq!(paid, 1);
        Owed::new(&mut paid, |paid| *paid += 1).waive();
        assert_eq!(paid, 1);
        let panicked = panic::catch_unwind(AssertUnwindSafe(|| {
            let _owed = Owed::new(&mut paid, |paid| *paid += 1);
            // Not `panic!`, whose hook would print it.
            panic::resume_unwind(Box::new(()));
        }));
        assert!(panicked.is_err());
        assert_eq!(paid, 2);
    }
}
