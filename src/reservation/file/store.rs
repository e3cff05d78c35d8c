//! A mark that is durable before anybody relies on it.
//!
//! # Rules
//!
//! 1. A mark is written to a file of its own, which is synced before it takes the place of the last one. So there is
//!    one whole mark at any moment, whatever is killed.
//! 2. Tokens are handed out when the name has been synced as well, and not before: then no mark below them can
//!    come back.
//! 3. When a step fails from which on the new mark may be in force, nobody knows whether it is. Its tokens are
//!    given up: the next block is above them.
//! 4. What is stored is looked at before each step up. If it is not what this store has left there, somebody else
//!    writes to it, and nothing is handed out.

use std::io;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use super::super::{Block, ReservationError};
use super::disk::Disk;
use super::mark;

/// The mark in a file that nobody else writes to.
#[derive(Debug)]
pub(super) struct Store<D> {
    disk: D,
    path: PathBuf,
    temporary: PathBuf,
    directory: PathBuf,
    /// The mark that is known to be durable.
    durable: u64,
    /// The highest that may be stored.
    highest: u64,
}

impl<D: Disk> Store<D> {
    /// Opens it. If there is no file, it begins with the mark `first`, or says what is wrong with that.
    pub(super) fn open(
        disk: D,
        path: PathBuf,
        first: Result<u64, &str>,
    ) -> Result<Self, ReservationError> {
        let directory = path.parent().unwrap_or(Path::new(".")).to_owned();
        let mut store = Self {
            disk,
            temporary: beside(&path, ".tmp"),
            path,
            directory,
            durable: 0,
            highest: 0,
        };
        match (store.stored()?, first) {
            (Some(stored), _) => {
                store.highest = stored;
                store.durable = stored;
            }
            (None, Ok(first)) => store.advance_to(first)?,
            (None, Err(wrong)) => return Err(store.corrupt(wrong)),
        }
        Ok(store)
    }

    /// Hands out the next block, durably above all before it.
    pub(super) fn reserve(&mut self, tokens: NonZeroU64) -> Result<Block, ReservationError> {
        match self.stored()? {
            None => return Err(self.corrupt("was removed while it was in use")),
            Some(stored) if stored < self.durable || stored > self.highest => {
                return Err(self.corrupt(&format!(
                    "says {stored}, and this process has stored {}: somebody else writes to it",
                    self.highest
                )));
            }
            Some(_) => {}
        }
        let block = Block::after(self.highest, tokens)?;
        self.advance_to(block.last().get())?;
        Ok(block)
    }

    /// Raises the mark to at least that, durably.
    pub(super) fn raise(&mut self, mark: u64) -> Result<(), ReservationError> {
        if mark > self.highest {
            self.advance_to(mark)?;
        }
        Ok(())
    }

    fn advance_to(&mut self, mark: u64) -> Result<(), ReservationError> {
        if let Err(error) = self.write_temporary(mark) {
            // Room for others, at least. It is made anew in any case.
            let _ = self.disk.remove(&self.temporary);
            return Err(failed("write", &self.temporary, &error));
        }
        self.highest = mark;
        self.disk
            .rename(&self.temporary, &self.path)
            .map_err(|error| failed("replace", &self.path, &error))?;
        self.disk
            .sync_directory(&self.directory)
            .map_err(|error| failed("sync", &self.directory, &error))?;
        self.durable = mark;
        Ok(())
    }

    fn write_temporary(&self, mark: u64) -> io::Result<()> {
        let mut file = self.disk.create(&self.temporary)?;
        self.disk.write(&mut file, mark::line(mark).as_bytes())?;
        self.disk.sync(&file)
    }

    /// The mark that is stored; `None` if there is no file.
    fn stored(&self) -> Result<Option<u64>, ReservationError> {
        match self.disk.read(&self.path) {
            Ok(content) => mark::parse(&content)
                .map(Some)
                .map_err(|wrong| self.corrupt(&wrong)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("read", &self.path, &error)),
        }
    }

    fn corrupt(&self, wrong: &str) -> ReservationError {
        let reason = format!(
            "{} {wrong}; bring back the file as it last was, or, to begin above every token that was ever \
             granted, remove it and {} and open it with `File::options().above(…)`",
            self.path.display(),
            beside(&self.path, ".lock").display()
        );
        ReservationError::Corrupt { reason }
    }
}

/// The path with something at its end.
pub(super) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// The system would not do it.
pub(super) fn failed(what: &str, path: &Path, error: &io::Error) -> ReservationError {
    let reason = format!("could not {what} {}: {error}", path.display());
    ReservationError::Storage { reason }
}
