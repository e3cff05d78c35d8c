//! The lock that keeps everybody else from a file.
//!
//! It is a file of its own, since the other one is replaced with every mark, and it stays for ever: if it were
//! removed, one process could hold the lock on the removed file, and the next on a new one. It also says whether
//! there ever was a mark: it is empty until the first one is durable.

use std::fs::{self, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process;

use super::super::ReservationError;
use super::disk::regular;
use super::store::failed;
use crate::process::Process;

/// The lock on a file, until it is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    file: fs::File,
    path: PathBuf,
    is_used: bool,
    process: Process,
}

impl Lock {
    /// Locks it, or says who has.
    pub(super) fn acquire(path: PathBuf) -> Result<Self, ReservationError> {
        let storage = |error: &io::Error| failed("lock", &path, error);
        let file = open(&path).map_err(|error| storage(&error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = holder(&file, &path);
                return Err(ReservationError::Held { holder });
            }
            Err(TryLockError::Error(error)) => return Err(storage(&error)),
        }
        let is_used = file.metadata().map_err(|error| storage(&error))?.len() > 0;
        Ok(Self {
            file,
            path,
            is_used,
            process: Process::this(),
        })
    }

    /// Whether there ever was a mark.
    pub(super) fn is_used(&self) -> bool {
        self.is_used
    }

    /// Says who has it, and that there is a mark. It is as long as it was, so that it is never empty again.
    pub(super) fn sign(&mut self) -> Result<(), ReservationError> {
        let mut write = || {
            self.file.seek(SeekFrom::Start(0))?;
            self.file
                .write_all(format!("process {:010}\n", process::id()).as_bytes())?;
            self.file.sync_all()
        };
        write().map_err(|error| failed("write", &self.path, &error))?;
        self.is_used = true;
        Ok(())
    }

    /// Makes sure that whoever opens the file finds this lock.
    pub(super) fn check(&self) -> Result<(), ReservationError> {
        match is_at(&self.file, &self.path) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.lost("was replaced")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(self.lost("was removed")),
            Err(error) => Err(failed("look at", &self.path, &error)),
        }
    }

    fn lost(&self, how: &str) -> ReservationError {
        let reason = format!(
            "{} {how} while it was locked, so that another process may have the shard as well; stop all of \
             them, and see to it that nobody removes that file",
            self.path.display()
        );
        ReservationError::Corrupt { reason }
    }
}

impl Drop for Lock {
    /// Closing the file is not enough: a process that another thread is just starting has a copy of it, until it
    /// runs its own program. In a child that was forked it is the parent's, which has it still.
    fn drop(&mut self) {
        if self.process.is_this() {
            let _ = self.file.unlock();
        }
    }
}

fn open(path: &Path) -> io::Result<fs::File> {
    match regular(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
}

/// Who has locked it, as far as it says: some systems don't let a locked file be read.
fn holder(mut file: &fs::File, path: &Path) -> String {
    let mut text = String::new();
    let process = match file.read_to_string(&mut text) {
        Ok(_) => text
            .strip_prefix("process ")
            .and_then(|number| number.trim_end().parse::<u32>().ok()),
        Err(_) => None,
    };
    let path = path.display();
    match process {
        Some(number) if number == process::id() => {
            format!("this process ({number}), which has locked {path}")
        }
        Some(number) => format!("process {number}, which has locked {path}"),
        None => format!("another process, which has locked {path}"),
    }
}

#[cfg(unix)]
fn is_at(file: &fs::File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;

    let (ours, theirs) = (file.metadata()?, fs::metadata(path)?);
    Ok((ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino()))
}

/// A file that is open can't be removed.
#[cfg(not(unix))]
fn is_at(_: &fs::File, path: &Path) -> io::Result<bool> {
    fs::metadata(path).map(|_| true)
}
