//! A disk that forgets what was not synced, and fails or stops at any step.
//!
//! After a power failure, a file's content is what was synced last, or what was written since, or half of it. Of the
//! changes to a directory since it was synced, any may have become durable and any not, each as a whole. A sync that
//! has failed is not made up for by another one of the same file.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::super::disk::Disk;

/// What goes wrong.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    /// The step, counted from 0.
    pub(super) step: usize,
    pub(super) done: Done,
    /// It is the last step of the process.
    pub(super) dies: bool,
}

/// How much of the step is done all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    Nothing,
    Half,
    All,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    world: Arc<Mutex<World>>,
}

type Names = BTreeMap<PathBuf, usize>;

#[derive(Clone, Debug, Default)]
struct World {
    files: Vec<Content>,
    names: Names,
    durable_names: Names,
    /// Changes to names since they were synced.
    pending: Vec<Change>,
    steps: usize,
    fault: Option<Fault>,
    dead: bool,
}

#[derive(Clone, Debug, Default)]
struct Content {
    now: Vec<u8>,
    synced: Vec<u8>,
    sync_failed: bool,
}

#[derive(Clone, Debug)]
enum Change {
    Put(PathBuf, usize),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf, usize),
}

impl Change {
    fn apply(&self, names: &mut Names) {
        match self {
            Self::Put(path, file) => {
                names.insert(path.clone(), *file);
            }
            Self::Remove(path) => {
                names.remove(path);
            }
            Self::Rename(from, to, file) => {
                names.remove(from);
                names.insert(to.clone(), *file);
            }
        }
    }
}

impl World {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.names);
        self.pending.push(change);
    }

    fn file(&self, path: &Path) -> io::Result<usize> {
        let file = self.names.get(path).copied();
        file.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Model {
    pub(super) fn fail(&self, fault: Option<Fault>) {
        let mut world = self.world.lock();
        world.steps = 0;
        world.fault = fault;
    }

    /// Steps that were taken since then.
    pub(super) fn steps(&self) -> usize {
        self.world.lock().steps
    }

    pub(super) fn put(&self, path: &Path, content: &[u8]) {
        let mut file = self.create(path).unwrap();
        self.write(&mut file, content).unwrap();
    }

    /// Takes a step, as far as it gets: `effect` is told whether only half of it is to be done.
    fn step<T>(&self, effect: impl FnOnce(&mut World, Done) -> io::Result<T>) -> io::Result<T> {
        let mut world = self.world.lock();
        if world.dead {
            return Err(io::Error::other("the process is dead"));
        }
        let fault = world.fault.filter(|fault| fault.step == world.steps);
        world.steps += 1;
        let Some(fault) = fault else {
            return effect(&mut world, Done::All);
        };
        let _ = effect(&mut world, fault.done);
        world.dead = fault.dies;
        Err(io::Error::other("injected"))
    }

    /// What the next process finds when this one has been killed.
    pub(super) fn after_a_kill(&self) -> Self {
        let mut world = self.world.lock().clone();
        world.dead = false;
        world.fault = None;
        Self {
            world: Arc::new(Mutex::new(world)),
        }
    }

    /// All that the next process may find after a power failure.
    pub(super) fn after_a_power_failure(&self) -> Vec<Self> {
        let before = self.world.lock().clone();
        let mut found = Vec::new();
        for chosen in 0..1_usize << before.pending.len() {
            let mut names = before.durable_names.clone();
            for (index, change) in before.pending.iter().enumerate() {
                if chosen >> index & 1 == 1 {
                    change.apply(&mut names);
                }
            }
            for written in [Done::Nothing, Done::Half, Done::All] {
                let content = |file: &Content| {
                    let content = match written {
                        Done::Nothing => file.synced.clone(),
                        Done::Half if file.now != file.synced => {
                            file.now[..file.now.len() / 2].to_vec()
                        }
                        Done::Half | Done::All => file.now.clone(),
                    };
                    Content {
                        now: content.clone(),
                        synced: content,
                        sync_failed: false,
                    }
                };
                let world = World {
                    files: before.files.iter().map(content).collect(),
                    names: names.clone(),
                    durable_names: names.clone(),
                    ..World::default()
                };
                found.push(Self {
                    world: Arc::new(Mutex::new(world)),
                });
            }
        }
        found
    }
}

impl Disk for Model {
    type File = usize;

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.step(|world, _| Ok(world.files[world.file(path)?].now.clone()))
    }

    fn create(&self, path: &Path) -> io::Result<usize> {
        self.step(|world, done| {
            if done != Done::Nothing && world.names.contains_key(path) {
                world.change(Change::Remove(path.to_owned()));
            }
            let file = world.files.len();
            if done == Done::All {
                world.files.push(Content::default());
                world.change(Change::Put(path.to_owned(), file));
            }
            Ok(file)
        })
    }

    fn write(&self, file: &mut usize, content: &[u8]) -> io::Result<()> {
        self.step(|world, done| {
            let length = match done {
                Done::Nothing => 0,
                Done::Half => content.len() / 2,
                Done::All => content.len(),
            };
            world.files[*file].now.extend_from_slice(&content[..length]);
            Ok(())
        })
    }

    fn sync(&self, file: &usize) -> io::Result<()> {
        self.step(|world, done| {
            let file = &mut world.files[*file];
            file.sync_failed |= done != Done::All;
            if !file.sync_failed {
                file.synced = file.now.clone();
            }
            Ok(())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step(|world, done| {
            let file = world.file(from)?;
            if done != Done::Nothing {
                world.change(Change::Rename(from.to_owned(), to.to_owned(), file));
            }
            Ok(())
        })
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        self.step(|world, done| {
            if done == Done::All {
                world.durable_names = world.names.clone();
                world.pending.clear();
            }
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step(|world, done| {
            world.file(path)?;
            if done != Done::Nothing {
                world.change(Change::Remove(path.to_owned()));
            }
            Ok(())
        })
    }
}
