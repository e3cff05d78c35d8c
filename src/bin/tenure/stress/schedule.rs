//! How long the manager's driver has waited for a processor, where the system tells it.
//!
//! An expiry is acted on in time if the driver gets to run. On a machine that others use it may not, and a thread
//! that sleeps as the driver does is late at other moments.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

/// What a manager calls its driver if it is told nothing else.
const NAME: &str = "tenure-driver";
/// How long it may take to start.
const STARTED: Duration = Duration::from_secs(1);

/// The driver's waits for a processor.
#[derive(Debug)]
pub(super) struct DriverWaits {
    /// Nothing on systems without it.
    schedstat: Option<PathBuf>,
    seen: AtomicU64,
}

impl DriverWaits {
    /// Of the driver of this process, in which there is one manager.
    pub(super) fn new() -> Self {
        let tasks = Path::new("/proc/self/task");
        let begun = Instant::now();
        let mut schedstat = find(tasks);
        // A thread has its name once it has begun to run.
        while schedstat.is_none() && tasks.exists() && begun.elapsed() < STARTED {
            thread::sleep(Duration::from_millis(1));
            schedstat = find(tasks);
        }
        let waits = Self {
            schedstat,
            seen: AtomicU64::new(0),
        };
        waits.since();
        waits
    }

    /// How long it has waited since this was last asked. A wait counts when it is over.
    pub(super) fn since(&self) -> Duration {
        let page = self.schedstat.as_ref().map(fs::read_to_string);
        let Some(total) = page.and_then(|page| parse(&page.ok()?)) else {
            return Duration::ZERO;
        };
        Duration::from_nanos(total.saturating_sub(self.seen.swap(total, Relaxed)))
    }
}

fn find(tasks: &Path) -> Option<PathBuf> {
    let mut tasks = fs::read_dir(tasks).ok()?.flatten();
    let driver = tasks.find(|task| {
        let name = fs::read_to_string(task.path().join("comm"));
        name.is_ok_and(|name| name.trim_end() == NAME)
    })?;
    Some(driver.path().join("schedstat"))
}

/// The second number: nanoseconds in which the thread could have run, and did not.
fn parse(page: &str) -> Option<u64> {
    page.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_driver_waited_is_told_once() {
        let directory = tempfile::tempdir().unwrap();
        for (task, name) in [("1", "stress\n"), ("2", "tenure-driver\n")] {
            let task = directory.path().join(task);
            fs::create_dir(&task).unwrap();
            fs::write(task.join("comm"), name).unwrap();
            fs::write(task.join("schedstat"), "12 5000 7\n").unwrap();
        }
        let waits = DriverWaits {
            schedstat: find(directory.path()),
            seen: AtomicU64::new(1000),
        };
        assert_eq!(waits.since(), Duration::from_micros(4));
        assert_eq!(waits.since(), Duration::ZERO);
        fs::write(directory.path().join("2/schedstat"), "13 5500 8\n").unwrap();
        assert_eq!(waits.since(), Duration::from_nanos(500));
    }

    #[test]
    fn where_nothing_is_told_it_has_not_waited() {
        let waits = DriverWaits {
            schedstat: find(Path::new("/no such directory")),
            seen: AtomicU64::new(0),
        };
        assert_eq!(waits.since(), Duration::ZERO);
    }
}
