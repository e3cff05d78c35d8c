//! Managers with a reservation, under a manual clock: blocks of tokens, and an authority with a term.

mod authority;
mod blocks;
#[path = "../common/task.rs"]
mod common;
mod contest;
mod ledger;
mod resigning;
mod threads;
