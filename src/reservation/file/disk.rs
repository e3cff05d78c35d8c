//! The steps of storing a mark, one system call each, so that tests can stop between any two.

use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;

use super::mark::LONGEST;

/// What a store does with files. Each method is atomic for a process that is killed, except for `write`.
pub(super) trait Disk: fmt::Debug + Send + 'static {
    /// A file that is written to.
    type File;

    /// What is in a file; of a long one, enough to see that it is no mark.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Makes a new, empty file; what was there is gone.
    fn create(&self, path: &Path) -> io::Result<Self::File>;

    fn write(&self, file: &mut Self::File, content: &[u8]) -> io::Result<()>;

    /// Makes the content durable.
    fn sync(&self, file: &Self::File) -> io::Result<()>;

    /// Puts one file in another's place.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    fn sync_directory(&self, directory: &Path) -> io::Result<()>;

    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// The real one.
#[derive(Debug)]
pub(super) struct System;

impl Disk for System {
    type File = fs::File;

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        regular(path)?;
        let mut content = Vec::with_capacity(LONGEST);
        fs::File::open(path)?
            .take(LONGEST as u64)
            .read_to_end(&mut content)?;
        Ok(content)
    }

    fn create(&self, path: &Path) -> io::Result<fs::File> {
        // A left-over file is not written to: it could be a link to somewhere else, and once syncing it
        // has failed, some systems forget that it has to be synced.
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(path)
    }

    fn write(&self, file: &mut fs::File, content: &[u8]) -> io::Result<()> {
        file.write_all(content)
    }

    fn sync(&self, file: &fs::File) -> io::Result<()> {
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    #[cfg(unix)]
    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        fs::File::open(directory)?.sync_all()
    }

    /// Directories can't be synced everywhere; NTFS keeps a journal of its names.
    #[cfg(not(unix))]
    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}

/// Refuses directories, and what would block when it is opened, such as a pipe.
pub(super) fn regular(path: &Path) -> io::Result<()> {
    let kind = fs::metadata(path)?;
    if kind.is_dir() {
        return Err(io::Error::other("it is a directory; name a file in it"));
    }
    if !kind.is_file() {
        return Err(io::Error::other("it is no regular file; name another"));
    }
    Ok(())
}
