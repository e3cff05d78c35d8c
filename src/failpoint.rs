//! Points at which a test can pause a thread, or have it panic.
//!
//! Without the feature `failpoints`, and in models, [`failpoint!`] is nothing at all. With it, each is a point of
//! [`fail`], to be configured by its name; `tests/nemesis` does. The names are no part of what versions
//! promise.
//!
//! # What a panic costs
//!
//! Nothing in the core panics. What may is a clock that breaks its contract: it is read inside of
//! operations, under the lock of a record too. (Wakers, backends and observers may as well; they are called
//! where that is no matter.) So that even then nothing is lost, whoever wins a compare-and-swap owes what follows
//! from it in a guard (`owed.rs`); and a thread's part of the manager, which an operation holds while it lasts,
//! does on the way out what the operation has left, and goes back (`locals.rs`). The thread may go on to use the
//! manager, if somebody catches the panic.
//!
//! Whatever the point: no key is granted to two, tokens rise, all others go on. *Nothing* means: no cell, no
//! count and no waiter is lost either; nobody has to come by for that. What the operation has not got to is not
//! done: a lease that was to be released stands until its deadline.
//!
//! | point | there | costs |
//! |---|---|---|
//! | `grant/filled` | a cell is filled in, and not published | nothing |
//! | `grant/published` | the lease stands, and has no guard | the key, until the lease's deadline |
//! | `renew/before` | the lease is as it was | nothing |
//! | `renew/after` | the lease is renewed, and nobody knows | nothing, if the guard is dropped; else the key, until the new deadline |
//! | `release/before` | the lease stands, and has no guard any more | the key, until the lease's deadline |
//! | `release/unlinked` | the cell is in no bucket, and its end not counted | nothing |
//! | `kill/killed` | the lease is over, and its cell linked | nothing |
//! | `kill/unlinked` | the cell is in no bucket, and its end not counted | nothing |
//! | `kill/finished` | its record has not heard of it | nothing |
//! | `cells/taken` | a batch of free cells has been taken from the table | nothing |
//! | `resize/growing`, `resize/shrinking` | another array is in place, and the driver not told | nothing |
//! | `resize/frozen` | a bucket is frozen | nothing: whoever wants it next moves it |
//! | `resize/copied` | its leases are copied, and not published | nothing |
//! | `resize/published` | the copies stand, the wheel has not heard of them | nothing |
//! | `resize/done` | the old bucket is over, and its cells not freed | nothing |
//! | `rebuild/begun` | a bucket is to be copied in place | nothing: whoever wants it next does that |
//! | `rebuild/copied` | its leases are copied, and not published | nothing |
//! | `rebuild/published` | the copies stand, the old cells are not freed | nothing |
//! | `wheel/registering` | a cell's word says that it is linked, and it is not | nothing |
//! | `wheel/turning` | the wheel's position is stored, and no slot taken | the next turn looks through all cells of the shard |
//! | `wheel/looked` | a cell has been looked at, and stands where it did | the same, and another look |
//! | `wheel/moved` | it has been moved, and not been looked at again | the same |
//! | `driver/turning` | the driver is about to turn the wheel | 50 ms, until it goes on |
//! | `driver/sleeping` | it has said that it sleeps | the same |
//! | `wait/marked` | a key has a mark and an empty record | nothing |
//! | `wait/queued` | a waiter is in the queue, and nobody waits for it | nothing: it is passed over when its turn comes |
//! | `wait/parking` | a thread is about to block | nothing: its future leaves the queue |
//! | `handover/granted` | the lease stands, and who waits for it has not been told | the key, until the lease's deadline; then it is that waiter's turn again |
//! | `handover/settled` | the waiter is told, and in the queue still | nothing |
//! | `handover/popped` | it is in the queue no more, and not counted | `Stats::waited` is one less |
//! | `handover/waking` | all is done, and nobody woken | nothing |
//! | `cancel/leaving` | a future is dropped that waits | nothing: its place is passed over; a lease that it has been granted stands until its deadline |
//! | `cancel/left` | it has left the queue, and who is next not been looked at | nothing |
//! | `cancel/returning` | it is about to give back a lease | the key, until the lease's deadline |
//! | `record/issued` | a lease that is no plain one has its token, and stands nowhere | a token |
//! | `record/inflating` | a lease stands in the table and in its record | nothing: in the table it stays |
//! | `record/inflated` | it stands in its record | nothing |
//! | `record/emptied` | a record without anything has lost its mark | nothing |
//! | `record/hearing` | who watches a lease knows of its end, and its record does not | nothing |
//! | `record/sweeping` | a lease of a record's is over, and has not been ended | nothing |
//! | `session/opened` | a session has no timer | nothing: it is no more |
//! | `session/over` | a session is over, and holds what it held | nothing |
//! | `session/winding` | some of its leases have been ended | nothing |
//! | `reservation/renewing` | the authority is about to be asked for another term | 200 ms, until it is tried again |
//! | `reservation/reserved` | a block is the manager's, and not in use | its tokens, and 200 ms |
//!
//! "The key, until the deadline" is what a holder that dies costs anyhow. If the manager renews the lease by
//! itself, or a session does, it is until that ends.
//!
//! What is not told: a panic on the way out of another one ends the process, and one between an atomic
//! operation and the plain stores that belong to it (the top of a free list, the counts) would break the table;
//! so there is no point in between, and nothing there that could panic.

/// All points.
#[cfg(all(feature = "failpoints", not(any(tenure_loom, tenure_shuttle))))]
pub const POINTS: &[&str] = &[
    "cancel/leaving",
    "cancel/left",
    "cancel/returning",
    "cells/taken",
    "driver/sleeping",
    "driver/turning",
    "grant/filled",
    "grant/published",
    "handover/granted",
    "handover/popped",
    "handover/settled",
    "handover/waking",
    "kill/finished",
    "kill/killed",
    "kill/unlinked",
    "rebuild/begun",
    "rebuild/copied",
    "rebuild/published",
    "record/emptied",
    "record/hearing",
    "record/inflated",
    "record/inflating",
    "record/issued",
    "record/sweeping",
    "release/before",
    "release/unlinked",
    "renew/after",
    "renew/before",
    "reservation/renewing",
    "reservation/reserved",
    "resize/copied",
    "resize/done",
    "resize/frozen",
    "resize/growing",
    "resize/published",
    "resize/shrinking",
    "session/opened",
    "session/over",
    "session/winding",
    "wait/marked",
    "wait/parking",
    "wait/queued",
    "wheel/looked",
    "wheel/moved",
    "wheel/registering",
    "wheel/turning",
];

/// A point of that name.
macro_rules! failpoint {
    ($name:literal) => {
        #[cfg(all(feature = "failpoints", not(any(tenure_loom, tenure_shuttle))))]
        $crate::failpoint::reached($name);
    };
}

pub(crate) use failpoint;

#[cfg(all(feature = "failpoints", not(any(tenure_loom, tenure_shuttle))))]
pub(crate) fn reached(name: &'static str) {
    fail::fail_point!(name);
}
