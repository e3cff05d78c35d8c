//! Every step of storing a mark fails, or is the last before a kill or a power failure: no token is handed out
//! twice (I2), and the next process gets along.

mod model;

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use self::model::{Done, Fault, Model};
use super::store::Store;
use crate::reservation::{Block, ReservationError};

fn path() -> PathBuf {
    PathBuf::from("directory/tokens")
}

/// A shard on a disk, through all its lives.
#[derive(Clone, Debug)]
struct Shard {
    disk: Model,
    /// The lock file says that there was a mark.
    is_used: bool,
    /// The highest token that was handed out.
    highest: u64,
}

impl Shard {
    fn new() -> Self {
        Self {
            disk: Model::default(),
            is_used: false,
            highest: 0,
        }
    }

    fn on(&self, disk: Model) -> Self {
        Self {
            disk,
            ..self.clone()
        }
    }

    fn open(&mut self) -> Result<Store<Model>, ReservationError> {
        let first = if self.is_used {
            Err("was there")
        } else {
            Ok(0)
        };
        let store = Store::open(self.disk.clone(), path(), first)?;
        self.is_used = true;
        Ok(store)
    }

    fn reserve(&mut self, store: &mut Store<Model>, tokens: u64) -> Result<(), ReservationError> {
        let block = store.reserve(NonZeroU64::new(tokens).unwrap())?;
        assert!(block.first().get() > self.highest, "{block:?} in {self:?}");
        assert_eq!(length(block), tokens);
        self.highest = block.last().get();
        Ok(())
    }

    /// Opens it and takes some blocks, until something fails.
    fn live(&mut self) -> Result<(), ReservationError> {
        let mut store = self.open()?;
        [3, 5, 2]
            .iter()
            .try_for_each(|tokens| self.reserve(&mut store, *tokens))
    }

    /// Whatever the process has left behind, the next one does well.
    fn assert_next_life_is_well(&self, fault: Fault) {
        let mut found = self.disk.after_a_power_failure();
        found.push(self.disk.after_a_kill());
        for disk in found {
            let mut next = self.on(disk);
            let lived = next.live();
            assert_eq!(lived, Ok(()), "after {fault:?}, with {next:?}");
        }
    }
}

fn length(block: Block) -> u64 {
    block.last().get() - block.first().get() + 1
}

/// A new shard, and one with a past.
fn shards() -> [Shard; 2] {
    let mut with_a_past = Shard::new();
    with_a_past.live().unwrap();
    [Shard::new(), with_a_past]
}

/// Every step of a life with every way to fail at it.
fn faults(shard: &Shard, dies: bool) -> Vec<Fault> {
    let mut rehearsal = shard.on(shard.disk.after_a_kill());
    rehearsal.disk.fail(None);
    rehearsal.live().unwrap();
    let steps = rehearsal.disk.steps();
    assert!(steps > 15, "a life has {steps} steps");
    let every =
        |step| [Done::Nothing, Done::Half, Done::All].map(|done| Fault { step, done, dies });
    (0..steps).flat_map(every).collect()
}

#[test]
fn a_crash_at_any_step_repeats_no_token_and_leaves_a_file_that_opens() {
    for shard in shards() {
        for fault in faults(&shard, true) {
            let mut shard = shard.on(shard.disk.after_a_kill());
            shard.disk.fail(Some(fault));
            assert!(shard.live().is_err(), "{fault:?} had no effect");
            shard.assert_next_life_is_well(fault);
        }
    }
}

#[test]
fn a_failure_of_any_step_repeats_no_token_and_the_next_try_works() {
    for shard in shards() {
        for fault in faults(&shard, false) {
            let mut shard = shard.on(shard.disk.after_a_kill());
            shard.disk.fail(Some(fault));
            let mut store = match shard.open() {
                Ok(store) => store,
                Err(error) => {
                    assert!(matches!(error, ReservationError::Storage { .. }), "{error}");
                    shard.open().unwrap()
                }
            };
            let mut failed = 0;
            for tokens in [3, 5, 2, 7] {
                if let Err(error) = shard.reserve(&mut store, tokens) {
                    assert!(matches!(error, ReservationError::Storage { .. }), "{error}");
                    failed += 1;
                    shard.assert_next_life_is_well(fault);
                }
            }
            assert!(failed <= 1, "{failed} tries failed with {fault:?}");
            shard.assert_next_life_is_well(fault);
        }
    }
}

#[test]
fn a_mark_of_which_nobody_knows_whether_it_is_stored_is_given_up() {
    let mut shard = Shard::new();
    let mut store = shard.open().unwrap();
    shard.reserve(&mut store, 10).unwrap();
    // Read, create, write, sync, rename; then the directory is synced.
    shard.disk.fail(Some(Fault {
        step: 5,
        done: Done::Nothing,
        dies: false,
    }));
    let error = shard.reserve(&mut store, 10).unwrap_err();
    assert!(error.to_string().contains("could not sync"), "{error}");
    let block = store.reserve(NonZeroU64::MIN).unwrap();
    assert_eq!(block.first().get(), 21);
}

#[test]
fn a_mark_that_was_never_in_place_is_not_given_up() {
    let mut shard = Shard::new();
    let mut store = shard.open().unwrap();
    shard.disk.fail(Some(Fault {
        step: 2,
        done: Done::Half,
        dies: false,
    }));
    let error = shard.reserve(&mut store, 10).unwrap_err();
    assert!(error.to_string().contains("could not write"), "{error}");
    let block = store.reserve(NonZeroU64::MIN).unwrap();
    assert_eq!(block.first().get(), 1);
}

#[test]
fn what_another_writes_is_noticed_before_anything_is_handed_out() {
    let mut shard = Shard::new();
    let mut store = shard.open().unwrap();
    shard.reserve(&mut store, 10).unwrap();
    for other in [9, 11] {
        shard.disk.put(&path(), super::mark::line(other).as_bytes());
        let error = shard.reserve(&mut store, 1).unwrap_err();
        assert!(
            error.to_string().contains("somebody else writes"),
            "{error}"
        );
    }
    shard.disk.put(&path(), super::mark::line(10).as_bytes());
    shard.reserve(&mut store, 1).unwrap();
}

#[test]
fn a_left_over_temporary_file_is_of_no_importance() {
    let temporary = Path::new("directory/tokens.tmp");
    for content in [String::new(), super::mark::line(0), super::mark::line(77)] {
        let mut shard = Shard::new();
        shard.live().unwrap();
        shard.disk.put(temporary, content.as_bytes());
        shard.live().unwrap();
        assert_eq!(shard.highest, 20);
    }
}
