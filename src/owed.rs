//! What a thread owes once it has won a compare-and-swap, paid even if a panic comes in between.
//!
//! Whoever unlinks a cell alone may report and free it; whoever kills a lease has the record hear of it.
//! Between the one and the other nothing can panic, in a build without failpoints: then a guard is no
//! code at all, and there in case that this changes.

use std::mem;
use std::ops::{Deref, DerefMut};

/// Something that is needed to pay, and how that is done.
#[derive(Debug)]
pub(crate) struct Owed<T, F: FnMut(&mut T)> {
    with: T,
    pay: F,
}

impl<T, F: FnMut(&mut T)> Owed<T, F> {
    #[inline(always)]
    pub(crate) fn new(with: T, pay: F) -> Self {
        Self { with, pay }
    }

    /// Pays now.
    #[inline(always)]
    pub(crate) fn pay(mut self) {
        (self.pay)(&mut self.with);
        self.waive();
    }

    /// Nothing is owed any more. (What it was needed with is not dropped: that should be references.)
    #[inline(always)]
    pub(crate) fn waive(self) {
        mem::forget(self);
    }
}

impl<T, F: FnMut(&mut T)> Deref for Owed<T, F> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.with
    }
}

impl<T, F: FnMut(&mut T)> DerefMut for Owed<T, F> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.with
    }
}

impl<T, F: FnMut(&mut T)> Drop for Owed<T, F> {
    /// On the way out of a panic only.
    fn drop(&mut self) {
        (self.pay)(&mut self.with);
    }
}
