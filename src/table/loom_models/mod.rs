//! Loom models of the rules: small enough to be run through every interleaving that a few preemptions
//! allow, with the reorderings of weak memory.
//!
//! Run with `RUSTFLAGS="--cfg tenure_loom -C overflow-checks" cargo test --release --lib loom_models`.
//! Each model runs three times: with the fast paths of a guard tried first, as the engine does, with those
//! by key, and with the full rules alone; and says how many executions that were. `TENURE_LOOM=full` lets it go on
//! with more and more preemptions, for `TENURE_LOOM_SECONDS` (see `sync::exploring`). Each one's doc names broken
//! steps with which it was seen to fail, or says that none was.
//! (A spawned thread's writes are not tried before the first thread's earlier loads: the reader
//! belongs into the spawned one.)
//!
//! Loom takes sequentially consistent accesses for acquire-release ones, so under it the fences of
//! `load_in_order` and `state_in_order` stand in for them.

mod endings;
mod grants;
mod moves;
mod queues;
mod rebuilds;
mod recycling;
mod shutting;
mod store;

use loom::thread::{self, JoinHandle};

use super::cell::{DEAD, HELD, MARK};
use super::*;
use crate::key::{HashSeed, Key};
use crate::sync::Ordering;
use crate::sync::exploring::explore;

type Small = Table<Wide>;

/// Which fast paths the threads of a model try first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Path {
    /// Those of a guard.
    Fast,
    /// Those that renew, release and validate by key.
    ByKey,
    /// None.
    Slow,
}

/// Runs the body through its interleavings on all paths.
fn model(preemptions: usize, body: impl Fn(Path) + Copy + Sync + Send + 'static) {
    for path in [Path::Fast, Path::ByKey, Path::Slow] {
        explore(preemptions, &format!("{path:?}"), move || body(path));
    }
}

fn table(buckets: usize) -> Arc<Small> {
    let hasher = BucketHasher::new(&HashSeed::new(7));
    Arc::new(Table::new(buckets, hasher).expect("memory"))
}

/// `count` keys that share a bucket of two, bucket `index`.
fn keys_of<const N: usize>(table: &Small, index: u64) -> [u128; N] {
    let mut keys = (1..).filter(|&raw| table.hash(Key::from_raw(raw)) & 1 == index);
    std::array::from_fn(|_| keys.next().expect("half of all keys are in either"))
}

/// A grant, as its holder knows it.
#[derive(Clone, Copy, Debug)]
struct Lease {
    raw: u128,
    handle: Handle,
    token: u64,
    /// The last deadline that the holder was told.
    deadline: u64,
}

/// One thread of a model, with its clock.
struct Hand {
    table: Arc<Small>,
    /// Boxed: loom's threads have small stacks.
    local: Box<Local>,
    path: Path,
}

impl Hand {
    /// With four free cells, so that refills don't multiply the interleavings.
    fn new(table: &Arc<Small>, path: Path, now: u64) -> Self {
        let mut hand = Self::empty(table, path, now);
        let cell = table.refill(&mut hand.local).expect("a cell");
        table.give_cell(&mut hand.local, cell);
        hand
    }

    fn empty(table: &Arc<Small>, path: Path, now: u64) -> Self {
        let mut local = Box::new(table.local(Arc::new(Counters::default())));
        local.now = now;
        Self {
            table: Arc::clone(table),
            local,
            path,
        }
    }

    /// Hands all free cells but one to another thread.
    fn keep_one_cell(&mut self, other: &mut Hand) {
        let kept = self.local.free.pop().expect("a cell");
        while let Some(cell) = self.local.free.pop() {
            assert!(other.local.free.push(cell));
        }
        assert!(self.local.free.push(kept));
    }

    fn name(&self, lease: &Lease) -> Name {
        let key = Key::from_raw(lease.raw);
        Name {
            key,
            hash: self.table.hash(key),
            token: lease.token,
        }
    }

    /// The owner's number is the key's, which tells a torn answer.
    fn grant(&mut self, raw: u128, deadline: u64) -> Result<Lease, Refused> {
        let key = Key::from_raw(raw);
        let ask = Ask {
            key,
            hash: self.table.hash(key),
            owner: raw as u64,
            deadline,
            at_least: 0,
            admitted: false,
        };
        let Self { table, local, path } = self;
        let lease = |granted: Granted| Lease {
            raw,
            handle: granted.handle,
            token: granted.token,
            deadline,
        };
        if *path == Path::Fast {
            let stamp = Stamp::new::<Wide>(deadline);
            let now = local.now;
            let is_live = |deadline| deadline > now;
            if let Some(granted) = table.grant_fast(local, &ask, &stamp) {
                return Ok(lease(granted));
            }
            if let Some(held) = table.live_spotted(local, (ask.key, ask.hash), 1, is_live) {
                return Err(Refused::Held(held));
            }
            match table.grant_beside(local, &ask, &stamp, is_live) {
                Beside::Held(held) => return Err(Refused::Held(held)),
                Beside::Granted(granted) => return Ok(lease(granted)),
                Beside::Neither => {}
            }
        }
        table.grant(local, &ask).map(lease)
    }

    /// A grant of a key that is free.
    fn lease(&mut self, raw: u128, deadline: u64) -> Lease {
        self.grant(raw, deadline).expect("the key is free")
    }

    fn renew(&mut self, lease: &Lease, deadline: u64) -> Result<(u64, Lease), Unrenewed> {
        let name = self.name(lease);
        let Self { table, local, path } = self;
        let (deadline, handle) = match path {
            Path::Fast => {
                let wanted = (local.now, deadline);
                match table.renew_as_seen(lease.handle, name.key, name.token, &wanted) {
                    Some(renewed) => renewed,
                    None => table.renew(local, lease.handle, &name, deadline)?,
                }
            }
            Path::ByKey => match table.renew_spotted(local, &name, &(local.now, deadline)) {
                // The guard's part of a renewal is not told of it.
                Some(deadline) => (deadline, lease.handle),
                None => table.renew_by_key(local, &name, deadline)?,
            },
            Path::Slow => table.renew_by_key(local, &name, deadline)?,
        };
        let renewed = Lease {
            handle,
            deadline,
            ..*lease
        };
        Ok((deadline, renewed))
    }

    fn release(&mut self, lease: &Lease) -> Result<(), Ended> {
        let name = self.name(lease);
        let Self { table, local, path } = self;
        let fast = *path == Path::Fast && lease.deadline > local.now;
        let (handle, token) = (lease.handle, lease.token);
        if fast
            && (table.release_fast(local, handle, token)
                || table.release_beside(local, handle, token))
        {
            return Ok(());
        }
        let now = local.now;
        if *path == Path::ByKey {
            if table.release_spotted(local, &name, |deadline| deadline > now) {
                return Ok(());
            }
            return table.release_by_key(local, &name);
        }
        table.release(local, lease.handle, &name)
    }

    /// The deadline of the lease.
    fn validate(&mut self, lease: &Lease) -> Result<u64, Ended> {
        let name = self.name(lease);
        let Self { table, local, path } = self;
        if *path == Path::ByKey {
            let now = local.now;
            let is_live = |deadline| deadline > now;
            let spotted = table.live_spotted(local, (name.key, name.hash), grant::FEW, is_live);
            if let Some(found) = spotted.filter(|found| found.token == name.token) {
                assert_eq!(found.owner, lease.raw as u64, "a torn answer");
                return Ok(found.deadline);
            }
        }
        let found = table.validate(local, &name)?;
        Ok(found.contents.deadline)
    }

    fn revoke(&mut self, raw: u128) -> Result<(), NotFound> {
        let key = Key::from_raw(raw);
        let hash = self.table.hash(key);
        self.table.revoke(&mut self.local, key, hash).map(drop)
    }

    /// The wheel's look at the cell of a lease.
    fn look(&mut self, lease: &Lease) -> Look {
        self.table.look(&mut self.local, lease.handle.cell())
    }

    fn help(&mut self) {
        let groups = self.table.newest().len();
        self.table.help_resize(&mut self.local, groups);
    }

    /// Puts the mark of a queue.
    fn mark(&mut self, raw: u128) -> Marked {
        let key = Key::from_raw(raw);
        let hash = self.table.hash(key);
        self.table.put_mark(&mut self.local, key, hash)
    }

    /// Takes it away.
    fn unmark(&mut self, raw: u128) {
        let key = Key::from_raw(raw);
        let hash = self.table.hash(key);
        self.table.take_mark(&mut self.local, key, hash);
    }

    /// Whether an operation of this thread has seen that a queue has to move on.
    fn noted(&mut self) -> bool {
        !std::mem::take(&mut self.local.notes).is_empty()
    }

    /// A token for a lease of the record's, with the mark or under it.
    fn issue(&mut self, raw: u128, mark: bool) -> Result<u64, Refused> {
        let key = Key::from_raw(raw);
        let ask = Ask {
            key,
            hash: self.table.hash(key),
            owner: raw as u64,
            deadline: 100,
            at_least: 0,
            admitted: true,
        };
        self.table.issue(&mut self.local, &ask, mark)
    }

    /// Takes the key's live lease out of the table for its record; its token and deadline.
    fn take_over(&mut self, raw: u128) -> Option<(u64, u64)> {
        let key = Key::from_raw(raw);
        let hash = self.table.hash(key);
        loop {
            let found = self.table.live(&mut self.local, key, hash).ok()?;
            let Contents {
                token, deadline, ..
            } = found.contents;
            if self.table.take_out(&mut self.local, hash, &found) {
                return Some((token, deadline));
            }
        }
    }

    /// A grant for the head of a queue.
    fn grant_head(&mut self, raw: u128, deadline: u64) -> Result<Granted, Refused> {
        let key = Key::from_raw(raw);
        let ask = Ask {
            key,
            hash: self.table.hash(key),
            owner: raw as u64,
            deadline,
            at_least: 0,
            admitted: true,
        };
        self.table.grant(&mut self.local, &ask)
    }

    /// Rebuilds the bucket of a key in place.
    fn shed(&mut self, raw: u128) {
        let hash = self.table.hash(Key::from_raw(raw));
        assert!(self.table.shed_dead(&mut self.local, hash));
    }
}

/// Starts the move of a table to an array of `buckets`, without moving anything.
fn start_resize(table: &Small, buckets: usize) {
    assert!(table.resize(&table.newest(), buckets));
}

/// Runs `body` in a thread of its own, which hands its part back.
fn spawn<R: 'static>(
    mut hand: Hand,
    body: impl FnOnce(&mut Hand) -> R + 'static,
) -> JoinHandle<(R, Hand)> {
    thread::spawn(move || (body(&mut hand), hand))
}

/// What the counters of all threads must say.
#[derive(Debug, PartialEq, Eq)]
struct Totals {
    leases: i64,
    expired: u64,
    revoked: u64,
}

/// Checks what must hold once every thread is done: each end was reported once, every cell is either
/// linked once or free once, and none is left in a passing state.
fn settle(hands: &mut [&mut Hand]) -> Totals {
    let table = Arc::clone(&hands[0].table);
    hands[0].help();
    let (_, moving) = table.size();
    assert!(!moving, "the move is not over");
    let mut seen = std::collections::HashSet::new();
    let mut totals = Totals {
        leases: 0,
        expired: 0,
        revoked: 0,
    };
    for hand in &mut *hands {
        let counters = &hand.local.counters;
        totals.leases += counters.leases();
        totals.expired += counters.expired.load(Ordering::Relaxed);
        totals.revoked += counters.revoked.load(Ordering::Relaxed);
    }
    let newest = table.newest();
    let mut held = 0;
    for index in 0..newest.len() {
        let word = newest.at(index).load::<Wide>();
        assert!(word.is_normal(), "{word:?}");
        let mut at = word.cell();
        while at != 0 {
            assert!(seen.insert(at), "cell {at} is linked twice");
            let tag = table.cell(at).state::<Wide>().tag();
            let settled = matches!(tag, DEAD | HELD | MARK);
            assert!(settled, "cell {at} is left with {tag}");
            held += i64::from(tag == HELD);
            at = table.cell(at).next();
        }
    }
    assert_eq!(totals.leases, held, "an end was not reported exactly once");
    loop {
        // The store is emptied into the first hand, batch by batch.
        let free: Vec<u32> = hands
            .iter_mut()
            .flat_map(|hand| std::iter::from_fn(|| hand.local.free.pop()))
            .collect();
        for cell in free {
            assert!(seen.insert(cell), "cell {cell} is free twice, or linked");
            assert_eq!(table.cell(cell).state::<Wide>().tag(), DEAD);
        }
        let used = table.slab.used();
        let cell = table.refill(&mut hands[0].local).expect("a cell");
        if cell >= used {
            let all = (1..used).all(|cell| seen.contains(&cell));
            assert!(all, "a cell is lost: {seen:?} of {used}");
            return totals;
        }
        assert!(seen.insert(cell), "cell {cell} is free twice, or linked");
    }
}

/// Leases out, and how many expired and were revoked.
const fn totals(leases: i64, expired: u64, revoked: u64) -> Totals {
    Totals {
        leases,
        expired,
        revoked,
    }
}
