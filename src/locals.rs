//! Finds a thread's part of an engine: a small per-thread list, the last one used in front.
//!
//! A thread's part goes back to its engine when the thread ends, and is forgotten, once its engine is
//! gone, the next time that the thread meets a new engine.

use std::cell::RefCell;
use std::fmt::Debug;
use std::sync::Weak;

use crate::table::Local;

/// What takes a thread's part back.
pub(crate) trait Home: Debug + Send + Sync {
    /// Identifies the engine for as long as the process lives.
    fn id(&self) -> u64;
    /// A part for a thread that has none.
    fn open(&self) -> Box<Local>;
    /// Takes back what a thread leaves.
    fn close(&self, local: Box<Local>);
    /// For a thread's list.
    fn weak(&self) -> Weak<dyn Home>;
}

#[derive(Debug)]
struct Entry {
    id: u64,
    home: Weak<dyn Home>,
    /// Empty only while it is being dropped.
    local: Option<Box<Local>>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let (Some(home), Some(local)) = (self.home.upgrade(), self.local.take()) {
            home.close(local);
        }
    }
}

thread_local! {
    static ENTRIES: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
}

/// Runs `f` with this thread's part of `home`.
///
/// `f` must call no code of the user's. (If it did, and that called the manager, the inner call
/// would get a part of its own: slow, but right.)
#[inline]
pub(crate) fn with<H: Home, R>(home: &H, f: impl FnOnce(&mut Local) -> R) -> R {
    let mut f = Some(f);
    let done = ENTRIES.try_with(|entries| {
        let mut entries = entries.try_borrow_mut().ok()?;
        if entries.first().is_none_or(|entry| entry.id != home.id()) {
            bring_to_front(&mut entries, home);
        }
        let local = entries.first_mut()?.local.as_mut()?;
        f.take().map(|f| f(local))
    });
    match (done, f) {
        (Ok(Some(result)), _) => result,
        (_, Some(f)) => with_own(home, f),
        (_, None) => unreachable!("`f` is gone only if it has run"),
    }
}

/// For a thread that is ending, whose list is gone.
#[cold]
fn with_own<H: Home, R>(home: &H, f: impl FnOnce(&mut Local) -> R) -> R {
    let mut local = home.open();
    let result = f(&mut local);
    home.close(local);
    result
}

#[cold]
fn bring_to_front<H: Home>(entries: &mut Vec<Entry>, home: &H) {
    if let Some(at) = entries.iter().position(|entry| entry.id == home.id()) {
        entries.swap(0, at);
        return;
    }
    entries.retain(|entry| entry.home.strong_count() > 0);
    let entry = Entry {
        id: home.id(),
        home: home.weak(),
        local: Some(home.open()),
    };
    entries.insert(0, entry);
}
