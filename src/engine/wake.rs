//! Waking: after all locks, whatever a waker does.

use std::cell::RefCell;
use std::mem::{self, ManuallyDrop};
use std::panic::{self, AssertUnwindSafe};
use std::task::Waker;

use crate::sync::facade;

facade::thread_local! {
    /// Who is to be woken after the one that this thread is waking.
    ///
    /// Without a destructor, so that it is there for what the thread does in the last of its own: whoever is
    /// outermost leaves nothing in it.
    static WAKING: RefCell<Option<ManuallyDrop<Vec<Waker>>>> = const { RefCell::new(None) };
}

/// Wakes them all, also if one of them panics: that is told by the panic hook, and is not the fault of
/// the caller, who has only ended a lease.
///
/// A waker that ends a lease itself has the next one woken after it has returned, or as it blocks, and not
/// from within: a queue of any length takes no more stack than one.
pub(crate) fn wake_all(wakes: Vec<Waker>) {
    if wakes.is_empty() {
        return;
    }
    let mut wakes = wakes;
    let nested = WAKING.try_with(|waking| match &mut *waking.borrow_mut() {
        Some(later) => {
            later.append(&mut wakes);
            true
        }
        outermost => {
            *outermost = Some(ManuallyDrop::default());
            false
        }
    });
    if nested == Ok(true) {
        return;
    }
    let mut round = wakes;
    while !round.is_empty() {
        for waker in round {
            unfailing(|| waker.wake());
        }
        round = later();
    }
    let _ = WAKING.try_with(|waking| waking.borrow_mut().take());
}

/// Who is to be woken after the one that this thread is waking, if it is waking one.
fn later() -> Vec<Waker> {
    let later = WAKING.try_with(|waking| waking.borrow_mut().as_mut().map(mem::take));
    later
        .ok()
        .flatten()
        .map(ManuallyDrop::into_inner)
        .unwrap_or_default()
}

/// Wakes those who would be woken after the waker that this thread is in: before it blocks, maybe until one
/// of them has done something.
pub(crate) fn wake_before_blocking() {
    loop {
        let wakes = later();
        if wakes.is_empty() {
            return;
        }
        for waker in wakes {
            unfailing(|| waker.wake());
        }
    }
}

/// Drops what may drop a waker, which is code of the user's as well.
pub(crate) fn discard<T>(its: Vec<T>) {
    for it in its {
        unfailing(|| drop(it));
    }
}

/// Runs code of the user's whose panics are not the fault of the caller.
pub(crate) fn unfailing(f: impl FnOnce()) {
    if let Err(panic) = panic::catch_unwind(AssertUnwindSafe(f)) {
        // What it carries may panic as it is dropped, and so may what that carries.
        let dropped = panic::catch_unwind(AssertUnwindSafe(|| drop(panic)));
        mem::forget(dropped.err());
    }
}
