//! All contenders side by side, in the same condition.

use std::hint::black_box;
use std::ops::Range;

use tenure_benches::measure::{Kind, Lane, Sample, Seat};

use super::{LeaseTable, each};
use crate::options::Options;
use crate::tasks::{HELD_TTL, Task};

/// Who holds the leases that stay out.
const HOLDER: u64 = 1;

/// The condition that the tables are in before anything is measured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Condition {
    /// Keys that were held once and are not any more.
    pub(crate) seen: Range<u64>,
    /// Keys that are held all the time.
    pub(crate) held: Range<u64>,
}

/// The tokens of the leases that are held all the time.
#[derive(Debug, Default)]
pub(crate) struct Held {
    first: u64,
    tokens: Vec<u64>,
}

impl Held {
    #[inline(always)]
    pub(crate) fn token(&self, key: u64) -> u64 {
        self.tokens[(key - self.first) as usize]
    }
}

/// One thread's part of a slice of any task.
type Run = dyn Fn(&Task, Seat<'_>) -> Sample + Sync;

/// One contender in its condition.
pub(crate) struct Entrant {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    can: fn(&Task) -> bool,
    run: Box<Run>,
}

impl Entrant {
    /// The contender at that task, if it can do it.
    pub(crate) fn lane<'entrant>(&'entrant self, task: &Task) -> Option<Lane<'entrant>> {
        let task = *task;
        (self.can)(&task).then(|| Lane {
            name: self.name,
            kind: self.kind,
            run: Box::new(move |seat| (self.run)(&task, seat)),
        })
    }
}

/// Is shown each contender.
pub(crate) trait Visit {
    /// `new` makes an empty one.
    fn table<T: LeaseTable>(
        &mut self,
        name: &'static str,
        kind: Kind,
        new: impl Fn() -> T + 'static,
    );

    /// The same of one that is not in this process, and may not be there at all. Most visitors have no
    /// use for it: its memory is not theirs to weigh, nor its time that of one call.
    fn server<T: LeaseTable>(
        &mut self,
        _name: &'static str,
        _kind: Kind,
        _new: impl Fn() -> Option<T>,
    ) {
    }
}

/// The contenders that are wanted, in that condition.
pub(crate) fn field(options: &Options, condition: &Condition) -> Vec<Entrant> {
    let mut builder = Builder {
        options,
        condition,
        entrants: vec![],
    };
    each(&mut builder);
    builder.entrants
}

struct Builder<'f> {
    options: &'f Options,
    condition: &'f Condition,
    entrants: Vec<Entrant>,
}

impl Visit for Builder<'_> {
    fn table<T: LeaseTable>(
        &mut self,
        name: &'static str,
        kind: Kind,
        new: impl Fn() -> T + 'static,
    ) {
        self.server(name, kind, || Some(new()));
    }

    fn server<T: LeaseTable>(
        &mut self,
        name: &'static str,
        kind: Kind,
        new: impl Fn() -> Option<T>,
    ) {
        let Condition { seen, held } = self.condition;
        if !self.options.wants(name) || held.end - held.start > T::MOST_HELD {
            return;
        }
        let Some(table) = new() else { return };
        if T::KEEPS_ENTRIES {
            for key in seen.clone() {
                let lease = granted(&table, key);
                let released = table.release(lease);
                assert!(released, "nobody else could have released {key}");
            }
        }
        let grant = |key| {
            let lease = granted(&table, key);
            let token = T::token(&lease);
            table.keep(lease);
            token
        };
        let tokens: Vec<u64> = held.clone().map(grant).collect();
        let held = Held {
            first: held.start,
            tokens,
        };
        self.entrants.push(Entrant {
            name,
            kind,
            can: Task::suits::<T>,
            run: Box::new(move |task, seat| task.run(&table, &held, seat)),
        });
    }
}

/// A lease that stays out, of a key that nobody holds.
pub(crate) fn granted<T: LeaseTable>(table: &T, key: u64) -> T::Lease<'_> {
    let granted = table.acquire(black_box(key), HOLDER, HELD_TTL);
    granted.unwrap_or_else(|_| panic!("key {key} was refused, though nobody holds it"))
}
