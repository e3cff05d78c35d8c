//! Managers with a reservation, under a manual clock: blocks of tokens, and an authority with a term.

mod authority;
mod blocks;
#[allow(dead_code, reason = "other tests count wakes")]
#[path = "../common/task.rs"]
mod common;
mod contest;
mod edges;
mod ledger;
mod resigning;
mod threads;
