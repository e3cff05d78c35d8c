//! Files: locked while they are compared and replaced.
//!
//! A file's first line is the highest token that it has seen, in decimal; the rest is the value. A file of a
//! token alone, without a line break, has seen that token and holds no value yet.
//!
//! ```text
//! 34
//! {"balance": 125}
//! ```
//!
//! # What makes it safe
//!
//! Each call locks the file `<name>#0` beside it, compares, writes the new content to `<name>#1`, flushes it
//! to disk, renames it over the file, and unlocks. Readers without a token never see half a file, and need no
//! lock. The operating system gives a lock back when its holder dies, at any moment. While a holder is
//! stopped within the call, the others wait for it.
//!
//! All of it holds on one machine's file systems. Of network file systems, use those whose locks hold between
//! machines, and whose renames are atomic; NFS before version 4 is not among them. The lock file stays: if it
//! is removed while somebody waits for it, two may be inside.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::ResourceError;
use crate::{FencingToken, StaleToken};

/// Reads a file's value under a token: `None` if there is no such file, or it was never written.
///
/// From then on lower tokens are refused. Blocks while another call is at this file, and costs what
/// [`write()`] does if the token is new to the file; else a lock and a read.
///
/// # Errors
///
/// [`Stale`](ResourceError::Stale) if a higher token was seen; [`Failed`](ResourceError::Failed) for
/// everything that the operating system says, and for a file that does not begin with a token: it is left as
/// it was.
///
/// ```
/// use tenure::FencingToken;
/// use tenure::resources::file;
///
/// # let directory = tempfile::tempdir()?;
/// let path = directory.path().join("account-7");
/// let (a, b) = (FencingToken::new(33)?, FencingToken::new(34)?);
/// file::write(&path, a, b"100")?;
/// // A is paused past its lease; B is granted the next one.
/// assert_eq!(file::read(&path, b)?.as_deref(), Some(&b"100"[..]));
/// file::write(&path, b, b"125")?;
/// // A wakes up.
/// let refused = file::write(&path, a, b"110").unwrap_err();
/// assert_eq!(refused.stale().unwrap().highest, b);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read(
    path: impl AsRef<Path>,
    token: FencingToken,
) -> Result<Option<Vec<u8>>, ResourceError<io::Error>> {
    let locked = Locked::lock(path.as_ref()).map_err(ResourceError::Failed)?;
    let content = locked.content().map_err(ResourceError::Failed)?;
    let raised = with_fence_raised(content.as_deref(), token)
        .map_err(|error| error.map_failure(|error| about(locked.path, &error)))?;
    if let Some(raised) = &raised {
        locked.replace(raised).map_err(ResourceError::Failed)?;
    }
    let content = raised.or(content).unwrap_or_default();
    let (_, value) = split(&content).map_err(ResourceError::Failed)?;
    Ok(value.map(<[u8]>::to_vec))
}

/// Writes a file's value under a token.
///
/// Blocks while another call is at this file. Costs a lock, a read of the file, a new file that is flushed to
/// disk, a rename, and a flush of the directory: milliseconds on most disks.
///
/// # Errors
///
/// [`Stale`](ResourceError::Stale) if a higher token was seen: nothing was written;
/// [`Failed`](ResourceError::Failed) for everything that the operating system says, and for a file that does
/// not begin with a token: it is left as it was.
///
/// An example stands at [`read`].
pub fn write(
    path: impl AsRef<Path>,
    token: FencingToken,
    value: &[u8],
) -> Result<(), ResourceError<io::Error>> {
    let locked = Locked::lock(path.as_ref()).map_err(ResourceError::Failed)?;
    let content = locked.content().map_err(ResourceError::Failed)?;
    admit(content.as_deref(), token)
        .map_err(|error| error.map_failure(|error| about(locked.path, &error)))?;
    locked
        .replace(&join(token, Some(value)))
        .map_err(ResourceError::Failed)
}

/// What a file or an object holds: its fence, and its value if it was ever written.
type Parts<'c> = (FencingToken, Option<&'c [u8]>);

/// Splits a file's or an object's content into its fence and its value, for readers without a token.
///
/// # Errors
///
/// [`InvalidData`](io::ErrorKind::InvalidData) if the content does not begin with a token.
///
/// ```
/// let (fence, value) = tenure::resources::file::split(b"34\n125")?;
/// assert_eq!((fence.get(), value), (34, Some(&b"125"[..])));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn split(content: &[u8]) -> io::Result<(FencingToken, Option<&[u8]>)> {
    let line = content.iter().position(|&byte| byte == b'\n');
    let (head, value) = match line {
        Some(end) => (&content[..end], Some(&content[end + 1..])),
        None => (content, None),
    };
    let token = str::from_utf8(head)
        .ok()
        .and_then(|head| head.parse().ok())
        .ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "the first line is no fencing token, so this was written by something that knows of none; \
                 move it away, or put a first line `1` before it",
            )
        })?;
    Ok((token, value))
}

/// The content that [`split`] takes apart.
pub(super) fn join(token: FencingToken, value: Option<&[u8]>) -> Vec<u8> {
    let mut content = token.to_string().into_bytes();
    if let Some(value) = value {
        content.push(b'\n');
        content.extend_from_slice(value);
    }
    content
}

/// The fence of what is there, if anything is, and its value; an error if it is above the token.
pub(super) fn admit(
    content: Option<&[u8]>,
    token: FencingToken,
) -> Result<Option<Parts<'_>>, ResourceError<io::Error>> {
    let Some(content) = content else {
        return Ok(None);
    };
    let (highest, value) = split(content).map_err(ResourceError::Failed)?;
    if highest > token {
        return Err(ResourceError::Stale(StaleToken {
            presented: token,
            highest,
        }));
    }
    Ok(Some((highest, value)))
}

/// The same content with the token as its fence; `None` if it has it already.
pub(super) fn with_fence_raised(
    content: Option<&[u8]>,
    token: FencingToken,
) -> Result<Option<Vec<u8>>, ResourceError<io::Error>> {
    Ok(match admit(content, token)? {
        Some((highest, _)) if highest == token => None,
        Some((_, value)) => Some(join(token, value)),
        None => Some(join(token, None)),
    })
}

/// A file whose lock is ours until this is dropped.
struct Locked<'p> {
    path: &'p Path,
    _lock: File,
}

impl<'p> Locked<'p> {
    fn lock(path: &'p Path) -> io::Result<Self> {
        let name = beside(path, "#0");
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&name)
            .and_then(|file| file.lock().map(|()| file))
            .map_err(|error| about(&name, &error))?;
        Ok(Self { path, _lock: lock })
    }

    fn content(&self) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.path) {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(about(self.path, &error)),
        }
    }

    fn replace(&self, content: &[u8]) -> io::Result<()> {
        // Ours alone, under the lock; what a crash left of it is overwritten.
        let new = beside(self.path, "#1");
        let written = File::create(&new).and_then(|mut file| {
            file.write_all(content)?;
            // Before the rename: else a crash of the machine could leave the name with nothing behind it.
            file.sync_all()
        });
        written.map_err(|error| about(&new, &error))?;
        fs::rename(&new, self.path)
            .and_then(|()| sync_directory(self.path))
            .map_err(|error| about(self.path, &error))
    }
}

/// Makes a rename last.
fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // Elsewhere a directory can't be opened, and need not be.
    if cfg!(unix) {
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

/// The name of a helper beside a file. `object_store`'s listings pass over names that end like this.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

fn about(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_split_as_it_was_joined() {
        let token = FencingToken::MAX;
        for value in [None, Some(&b""[..]), Some(b"a\n\nb"), Some(&[0, 255, 10])] {
            let content = join(token, value);
            assert_eq!(split(&content).unwrap(), (token, value), "{content:?}");
        }
    }

    #[test]
    fn a_fence_is_raised_and_not_written_again() {
        let raised = |content: &[u8], to| {
            let token = FencingToken::new(to).unwrap();
            with_fence_raised(Some(content), token).unwrap()
        };
        assert_eq!(raised(b"34\nx", 34), None);
        assert_eq!(raised(b"34\nx", 35).as_deref(), Some(&b"35\nx"[..]));
        assert_eq!(raised(b"34", 34), None);
    }

    // Builds for models have no directories to try it with.
    #[cfg(not(any(tenure_loom, tenure_shuttle)))]
    #[test]
    fn the_directory_that_is_synced_is_the_files_own() {
        sync_directory(Path::new("a-name-in-the-current-directory")).unwrap();
        let directory = tempfile::tempdir().unwrap();
        sync_directory(&directory.path().join("value")).unwrap();
        if cfg!(unix) {
            let error = sync_directory(&directory.path().join("missing/value")).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
        }
    }

    #[test]
    fn content_without_a_token_is_an_error_and_no_token() {
        for content in [
            &b""[..],
            b"\n",
            b"0\n",
            b"-1\n",
            b"{}",
            b"9223372036854775808\n",
            b"\xff\n",
        ] {
            let error = split(content).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{content:?}");
        }
    }
}
