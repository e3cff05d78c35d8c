//! Waking: after all locks, whatever a waker does.

use std::cell::RefCell;
use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::task::Waker;

use crate::sync::facade;

facade::thread_local! {
    /// Who is to be woken after the one that this thread is waking.
    static WAKING: RefCell<Option<Vec<Waker>>> = const { RefCell::new(None) };
}

/// Wakes them all, also if one of them panics: that is told by the panic hook, and is not the fault of
/// the caller, who has only ended a lease.
///
/// A waker that ends a lease itself has the next one woken after it has returned, and not from within:
/// a queue of any length takes no more stack than one.
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
            *outermost = Some(vec![]);
            false
        }
    });
    if nested == Ok(true) {
        return;
    }
    let mut round = wakes;
    while !round.is_empty() {
        for waker in round {
            if let Err(panic) = panic::catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                // Dropping it may panic as well.
                mem::forget(panic);
            }
        }
        // Without thread-locals, at a thread's end, the nested ones have been woken within.
        let later = WAKING.try_with(|waking| waking.borrow_mut().as_mut().map(mem::take));
        round = later.ok().flatten().unwrap_or_default();
    }
    let _ = WAKING.try_with(|waking| waking.borrow_mut().take());
}
