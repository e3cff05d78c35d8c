//! What is easy to get wrong: options that meet, races, ends.

mod closing;
mod driver;
mod races;
mod room;
mod storm;
#[path = "../common/task.rs"]
mod task;
mod terms;
