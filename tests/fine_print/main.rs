//! What is easy to get wrong: options that meet, races, ends.

mod closing;
mod races;
mod storm;
#[path = "../common/task.rs"]
mod task;
mod terms;
