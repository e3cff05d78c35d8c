//! Finds a thread's part of an engine: one slot for the engine used last, a list for the others.
//!
//! An operation takes the part out of the slot and puts it back at its end, so no borrow has to be
//! tracked. A thread's part goes back to its engine when the thread ends, and is forgotten, once its
//! engine is gone, the next time that the thread meets a new engine.
//!
//! The slot has no destructor, which spares each access a look at whether it has run: the list's
//! destructor empties the slot as well. What a thread does after that (in destructors of its own
//! thread-locals) gets a part for one operation only.

use std::cell::{Cell, RefCell};
use std::fmt::Debug;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Weak;
use std::thread;

use crate::sync::facade;
use crate::table::Local;

/// What lends a thread its part and takes it back.
pub(crate) trait Home: Debug + Send + Sync {
    /// Identifies the engine for as long as the process lives.
    fn id(&self) -> u64;
    /// A part for a thread that has none.
    fn open(&self) -> Local;
    /// Does what the last operation has left to do, as far as that goes.
    fn wind_up(&self, local: &mut Local);
    /// Takes back what a thread leaves.
    fn close(&self, local: &mut Local);
    /// For a thread's list.
    fn weak(&self) -> Weak<dyn Home>;
}

/// A thread's part of one engine.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) local: Local,
    id: u64,
    /// The thread is ending: not to be kept.
    transient: bool,
    home: Weak<dyn Home>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let Some(home) = self.home.upgrade() else {
            return;
        };
        if thread::panicking() {
            // An operation has been cut off. What it has left is done even so; but a second panic on the way out
            // would end the process.
            let _ = catch_unwind(AssertUnwindSafe(|| home.wind_up(&mut self.local)));
        } else {
            home.wind_up(&mut self.local);
        }
        home.close(&mut self.local);
    }
}

/// The parts of the engines used before. Boxed, since an entry is over a kilobyte and moves to and
/// from the slot.
#[derive(Debug)]
#[expect(clippy::vec_box, reason = "the box is what moves")]
struct Others(RefCell<Vec<Box<Entry>>>);

impl Drop for Others {
    fn drop(&mut self) {
        drop(with_last(Cell::take).map(ManuallyDrop::into_inner));
    }
}

facade::thread_local! {
    static LAST: Slot = const { Cell::new(None) };
    static OTHERS: Others = const { Others(RefCell::new(Vec::new())) };
}

type Slot = Cell<Option<ManuallyDrop<Box<Entry>>>>;

/// Uses this thread's slot.
#[inline(always)]
fn with_last<R>(f: impl FnOnce(&Slot) -> R) -> R {
    // Shuttle takes a thread's variables away in the order of their first use, also those without a
    // destructor: the list must be the first.
    #[cfg(tenure_shuttle)]
    let _ = OTHERS.try_with(|_| ());
    // By `with`, which is inlined in every crate; `take` and `set` are not.
    LAST.with(f)
}

/// Takes what is in this thread's slot, for an operation that calls no code of the user's. (If it
/// did, and that called the manager, the inner call would get a part of its own, which [`put`] sees to, and
/// [`put_back`] does not.)
///
/// `Ok` if that is the part of the engine of that number.
#[inline(always)]
pub(crate) fn take_last(id: u64) -> Result<Box<Entry>, Option<Box<Entry>>> {
    match with_last(Cell::take).map(ManuallyDrop::into_inner) {
        Some(entry) if entry.id == id => Ok(entry),
        other => Err(other),
    }
}

/// Puts back what was in the slot.
#[inline(always)]
pub(crate) fn put_back(entry: Box<Entry>) {
    with_last(|last| last.set(Some(ManuallyDrop::new(entry))));
}

/// This thread's part of `home`.
pub(crate) fn take<H: Home>(home: &H) -> Box<Entry> {
    take_last(home.id()).unwrap_or_else(|other| find(home, other))
}

/// The same, after what was in the slot has been taken.
pub(crate) fn take_after<H: Home>(home: &H, last: Option<Box<Entry>>) -> Box<Entry> {
    match last {
        Some(entry) if entry.id == home.id() => entry,
        other => find(home, other),
    }
}

/// Puts it back, after an operation that may have called code of the user's: if that has used a manager,
/// there is another part in the slot.
pub(crate) fn put(entry: Box<Entry>) {
    if entry.transient {
        drop(entry);
        return;
    }
    let other = with_last(|last| last.replace(Some(ManuallyDrop::new(entry))));
    if let Some(other) = other.map(ManuallyDrop::into_inner) {
        put_aside(other);
    }
}

/// Keeps a part for later that is not in the slot any more, or gives it back if there is one of that engine.
#[cold]
fn put_aside(other: Box<Entry>) {
    let mine = with_last(Cell::take).map(ManuallyDrop::into_inner);
    let same = mine.as_ref().is_some_and(|mine| mine.id == other.id);
    let mut left = Some(other);
    if !same {
        let _ = OTHERS.try_with(|others| {
            let mut others = others.0.borrow_mut();
            let id = left.as_ref().map(|left| left.id);
            if others.iter().all(|entry| Some(entry.id) != id) {
                others.extend(left.take());
            }
        });
    }
    if let Some(mine) = mine {
        put_back(mine);
    }
    // Outside of the borrow, and with the slot in order: what it gives back may run any code.
    drop(left);
}

/// Gives back this thread's part of an engine that is closing down, and the memory with it.
pub(crate) fn forget<H: Home>(home: &H) {
    let last = with_last(Cell::take).map(ManuallyDrop::into_inner);
    let others = OTHERS.try_with(|others| {
        let mut others = others.0.borrow_mut();
        others.extend(last);
        let at = others.iter().position(|entry| entry.id == home.id());
        at.map(|at| others.swap_remove(at))
    });
    // Outside of the borrow: what it drops may run any code.
    drop(others);
}

/// The part for `home`, after that of another engine was in the slot.
#[cold]
#[inline(never)]
fn find<H: Home>(home: &H, last: Option<Box<Entry>>) -> Box<Entry> {
    let found = OTHERS.try_with(|others| {
        let mut others = others.0.borrow_mut();
        others.extend(last);
        let at = others.iter().position(|entry| entry.id == home.id());
        if at.is_none() {
            others.retain(|entry| entry.home.strong_count() > 0);
        }
        at.map(|at| others.swap_remove(at))
    });
    let transient = found.is_err();
    found.ok().flatten().unwrap_or_else(|| {
        Box::new(Entry {
            local: home.open(),
            id: home.id(),
            transient,
            home: home.weak(),
        })
    })
}
