//! Processor time, where the system tells it as Linux does; zero elsewhere.

use std::fs;
use std::time::Duration;

/// How long this process has run, all threads that there are added up. One that runs now may be behind by
/// a few milliseconds.
pub fn all_busy() -> Duration {
    busy(|_| true)
}

/// The same of the threads with that name.
pub fn busy_of(name: &str) -> Duration {
    busy(|named| named == name)
}

fn busy(counts: impl Fn(&str) -> bool) -> Duration {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten();
    let nanos = |thread: fs::DirEntry| -> Option<u64> {
        let file = |name| fs::read_to_string(thread.path().join(name)).ok();
        let counted = counts(file("comm")?.trim());
        let statistics = counted.then(|| file("schedstat")).flatten()?;
        statistics.split_whitespace().next()?.parse().ok()
    };
    Duration::from_nanos(threads.flatten().filter_map(nanos).sum())
}
