//! All contenders side by side, in the same condition.

use std::fs;
use std::hint::black_box;
use std::ops::Range;
use std::time::{Duration, Instant};

use tenure::LockManager;

use super::{Coarse, Kept, LeaseTable, Precise, Removed};
use crate::measure::{Kind, Lane, Sample, Seat, waited};

/// The TTL of leases that stay held while others are measured.
const HELD_TTL: Duration = Duration::from_secs(24 * 3600);

/// Who holds them.
const HOLDER: u64 = 1;

/// The condition that the tables are in before anything is measured.
#[derive(Clone, Debug)]
pub(crate) struct Condition {
    /// Keys that were held once and are not any more.
    pub(crate) seen: Range<u64>,
    /// Keys that are held all the time.
    pub(crate) held: Range<u64>,
}

/// Something that every contender is asked to do.
pub(crate) trait Task: Clone + Send + Sync {
    /// One thread's part of a slice.
    fn run<T: LeaseTable>(&self, table: &T, seat: Seat<'_>) -> Sample;
}

/// What it took to bring one contender into the condition.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// The contender.
    pub(crate) name: &'static str,
    /// Growth of resident memory, if the system says.
    pub(crate) bytes: Option<u64>,
    /// The time of one grant of the held keys in nanoseconds, all growth included, waiting for a
    /// processor not.
    pub(crate) grant_nanos: Option<f64>,
}

/// The contenders.
pub(crate) struct Field {
    tenure: LockManager,
    kept_coarse: Kept<Coarse>,
    removed_coarse: Removed<Coarse>,
    kept_instant: Kept<Precise>,
    removed_instant: Removed<Precise>,
    /// What it took to get here.
    pub(crate) setups: Vec<Setup>,
}

const TENURE: &str = "tenure";
const KEPT_COARSE: &str = "kept, coarse";
const REMOVED_COARSE: &str = "removed, coarse";
const KEPT_INSTANT: &str = "kept, Instant";
const REMOVED_INSTANT: &str = "removed, Instant";

/// The contenders' names, in the order of their lanes.
pub(crate) const NAMES: [&str; 5] = [
    TENURE,
    KEPT_COARSE,
    REMOVED_COARSE,
    KEPT_INSTANT,
    REMOVED_INSTANT,
];

impl Field {
    /// Builds the contenders and brings them into `condition`.
    pub(crate) fn new(condition: &Condition) -> Self {
        let mut setups = vec![];
        // A released key leaves nothing behind in two of the three designs, so only the kept
        // entries have to be made.
        let (seen, none) = (&condition.seen, &(0..0));
        let held = &condition.held;
        let tenure = set_up(&mut setups, TENURE, LockManager::new, none, held);
        let kept_coarse = set_up(&mut setups, KEPT_COARSE, Kept::new, seen, held);
        let removed_coarse = set_up(&mut setups, REMOVED_COARSE, Removed::new, none, held);
        let kept_instant = set_up(&mut setups, KEPT_INSTANT, Kept::new, seen, held);
        let removed_instant = set_up(&mut setups, REMOVED_INSTANT, Removed::new, none, held);
        Self {
            tenure,
            kept_coarse,
            removed_coarse,
            kept_instant,
            removed_instant,
            setups,
        }
    }

    /// One lane for each contender.
    pub(crate) fn lanes<'table>(&'table self, task: &(impl Task + 'table)) -> Vec<Lane<'table>> {
        vec![
            lane(TENURE, Kind::Tenure, &self.tenure, task),
            lane(KEPT_COARSE, Kind::Coarse, &self.kept_coarse, task),
            lane(REMOVED_COARSE, Kind::Coarse, &self.removed_coarse, task),
            lane(KEPT_INSTANT, Kind::Instant, &self.kept_instant, task),
            lane(REMOVED_INSTANT, Kind::Instant, &self.removed_instant, task),
        ]
    }
}

fn lane<'table, T: LeaseTable>(
    name: &'static str,
    kind: Kind,
    table: &'table T,
    task: &(impl Task + 'table),
) -> Lane<'table> {
    let task = task.clone();
    Lane {
        name,
        kind,
        run: Box::new(move |seat| task.run(table, seat)),
    }
}

fn set_up<T: LeaseTable>(
    setups: &mut Vec<Setup>,
    name: &'static str,
    new: impl FnOnce() -> T,
    seen: &Range<u64>,
    held: &Range<u64>,
) -> T {
    let before = resident_bytes();
    let table = new();
    for key in seen.clone() {
        let lease = granted(&table, key);
        assert!(
            table.release(lease),
            "nobody else could have released {key}"
        );
    }
    let (start, waited_before) = (Instant::now(), waited());
    for key in held.clone() {
        let lease = granted(&table, key);
        table.keep(lease);
    }
    let waited = waited().saturating_sub(waited_before);
    let ran = start.elapsed().saturating_sub(waited);
    let grants = held.clone().count();
    setups.push(Setup {
        name,
        bytes: resident_bytes()
            .zip(before)
            .map(|(after, before)| after.saturating_sub(before)),
        grant_nanos: (grants > 0).then(|| ran.as_nanos() as f64 / grants as f64),
    });
    table
}

fn granted<T: LeaseTable>(table: &T, key: u64) -> T::Lease<'_> {
    let granted = table.acquire(black_box(key), HOLDER, HELD_TTL);
    granted.unwrap_or_else(|_| panic!("key {key} was refused, though nobody holds it"))
}

/// The resident memory of this process, where the system tells it as Linux does.
fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}
