//! Tokens from a file.
//!
//! ```text
//! mark.rs    the line in the file, and how whatever else is told from one
//! disk.rs    the steps of storing it, one system call each
//! store.rs   in which order they are taken, and what a failure of each means
//! lock.rs    what keeps everybody else from the file
//! ```

mod disk;
mod lock;
mod mark;
mod store;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use self::disk::System;
use self::lock::Lock;
use self::store::{Store, beside, failed};
use super::{Block, Reservation, ReservationError};
use crate::token::FencingToken;

/// A file that remembers the highest token that was handed out: tokens that outlive the process, on one node.
///
/// One process at a time has it, and opening it a second time is an error, in the same process too. When that
/// process ends, however it does, the next one can open it at once, and is handed blocks above all before. There
/// is no term, so nothing is lost while the process runs.
///
/// # What is stored
///
/// - `path`: one line of text with the mark and a checksum. For every block, the new one is written to
///   `path.tmp` and synced, takes the place of the old one, and the directory is synced; only then is the
///   block handed out. A `path.tmp` that was left over by a crash is of no importance.
/// - `path.lock`: locked while the file is open; it names the process. **Never remove it**, except together with
///   `path`, to begin anew.
///
/// A file that is empty, torn, altered or something else is [`Corrupt`](ReservationError::Corrupt), and so is one
/// that is missing although it was there before, which the lock file tells. It is never taken for a new one. What no
/// file can tell is that it is an old copy: after restoring a backup, open it with [`FileOptions::above`].
///
/// When the disk is full or can't be written to, the error is [`Storage`](ReservationError::Storage), and nothing has
/// been handed out; the next try works when the cause is gone. If the system can't say whether the mark has become
/// durable, its tokens are given up.
///
/// # Where it can be
///
/// On a local file system that keeps what was synced. Links to the file are followed, and the three files are where it
/// really is. The locks of network file systems are not always what they should be; there, use a backend that
/// was made for several nodes. On systems other than Unix, directories are not synced: after a power failure (not a
/// crash of the process), it is up to the file system that a mark is still in its place.
///
/// # Cost
///
/// A block takes two syncs: up to some milliseconds, in the manager's own thread. Grants don't wait for it.
///
/// ```
/// use std::num::NonZeroU64;
/// use tenure::reservation::{File, Reservation, ReservationError};
///
/// # let directory = tempfile::tempdir()?;
/// let path = directory.path().join("shard-7");
/// let thousand = NonZeroU64::new(1000).unwrap();
/// let mut tokens = File::open(&path)?;
/// assert_eq!(tokens.reserve(thousand)?.first().get(), 1);
/// assert!(matches!(File::open(&path), Err(ReservationError::Held { .. })));
///
/// drop(tokens); // or the process is killed
/// assert_eq!(File::open(&path)?.reserve(thousand)?.first().get(), 1001);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct File {
    store: Store<System>,
    lock: Lock,
}

impl File {
    /// Opens the file, or creates it if there never was one.
    ///
    /// It takes some system calls; a sync, and three more when it is created.
    ///
    /// # Errors
    ///
    /// [`Held`](ReservationError::Held) if it is open, [`Corrupt`](ReservationError::Corrupt) if it says no mark, or is
    /// missing although it was there, and [`Storage`](ReservationError::Storage) if the system won't let it be
    /// read, locked or created.
    ///
    /// ```
    /// use tenure::reservation::File;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("shard-7");
    /// let tokens = File::open(path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ReservationError> {
        Self::options().open(path)
    }

    /// Options for opening a file.
    ///
    /// ```
    /// let options = tenure::reservation::File::options().create(false);
    /// ```
    #[must_use]
    pub const fn options() -> FileOptions {
        FileOptions {
            create: true,
            above: 0,
        }
    }
}

impl Reservation for File {
    fn reserve(&mut self, tokens: NonZeroU64) -> Result<Block, ReservationError> {
        self.lock.check()?;
        self.store.reserve(tokens)
    }
}

/// How to open a [`File`].
///
/// ```
/// use tenure::FencingToken;
/// use tenure::reservation::File;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("shard-7");
/// let tokens = File::options().above(FencingToken::new(5_000_000)?).open(path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct FileOptions {
    create: bool,
    above: u64,
}

impl FileOptions {
    /// Whether to create the file if there never was one; by default, it is created.
    ///
    /// ```
    /// use tenure::reservation::{File, ReservationError};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("shard-7");
    /// let opened = File::options().create(false).open(path);
    /// assert!(matches!(opened, Err(ReservationError::Corrupt { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Hands out tokens above that one only, whatever the file says: for the first file of a shard that had
    /// its tokens from elsewhere, or after a backup was restored.
    ///
    /// ```
    /// use std::num::NonZeroU64;
    /// use tenure::FencingToken;
    /// use tenure::reservation::{File, Reservation};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("shard-7");
    /// let mut tokens = File::options().above(FencingToken::new(5_000_000)?).open(path)?;
    /// assert_eq!(tokens.reserve(NonZeroU64::MIN)?.first().get(), 5_000_001);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn above(mut self, token: FencingToken) -> Self {
        self.above = token.get();
        self
    }

    /// Opens the file.
    ///
    /// # Errors
    ///
    /// Those of [`File::open`]; and a file that is not to be created, and not there, is
    /// [`Corrupt`](ReservationError::Corrupt).
    ///
    /// ```
    /// use tenure::reservation::File;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("shard-7");
    /// File::options().create(true).open(&path)?;
    /// File::options().create(false).open(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File, ReservationError> {
        let path = path.as_ref();
        let path = resolve(path).map_err(|error| failed("open", path, &error))?;
        let mut lock = Lock::acquire(beside(&path, ".lock"))?;
        let first = match (self.create, lock.is_used()) {
            (true, false) => Ok(self.above),
            (true, true) => Err("is not there, but it was, as its lock file says"),
            (false, _) => Err("is not there, and is not to be created"),
        };
        let mut store = Store::open(System, path, first)?;
        store.raise(self.above)?;
        lock.sign()?;
        Ok(File { store, lock })
    }
}

/// Where the file really is, so that everybody has the same lock, and a link to it is not what is replaced.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
        Ok(found) => {
            // Before a lock is put beside what is no file.
            disk::regular(&found)?;
            return Ok(found);
        }
    }
    if fs::symlink_metadata(path).is_ok() {
        return Err(io::Error::other("it is a link to nothing"));
    }
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::other("it has no file name"))?;
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    Ok(fs::canonicalize(directory)?.join(name))
}
