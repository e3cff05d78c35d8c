//! Files: the lock, the comparison and the rename.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tenure::resources::file::{read, split, write};
use tenure::{FencingToken, StaleToken};

use crate::story::{Number, Way, a_crowd_of_writers, a_paused_writer, number, stale};
use crate::token;

struct Writer(Arc<TempDir>);

impl Writer {
    fn path(&self) -> PathBuf {
        self.0.path().join("account-7")
    }
}

fn begin(_: Way) -> impl Fn() -> Writer {
    let directory = Arc::new(tempfile::tempdir().unwrap());
    move || Writer(Arc::clone(&directory))
}

impl Number for Writer {
    fn read(&mut self, way: Way, token: FencingToken) -> Result<u64, StaleToken> {
        match way {
            Way::Fenced => stale(read(self.path(), token)).map(number),
            Way::Unfenced => Ok(number(fs::read(self.path()).ok())),
        }
    }

    fn write(&mut self, way: Way, token: FencingToken, new: u64) -> Result<(), StaleToken> {
        match way {
            Way::Fenced => stale(write(self.path(), token, new.to_string().as_bytes())),
            Way::Unfenced => {
                // Whole, as a careful writer without tokens would: it is not torn files that get lost here.
                let new_file = tempfile::NamedTempFile::new_in(self.0.path()).unwrap();
                fs::write(new_file.path(), new.to_string()).unwrap();
                new_file.persist(self.path()).unwrap();
                Ok(())
            }
        }
    }
}

#[test]
fn a_paused_writer_loses_anothers_write_only_without_the_check() {
    a_paused_writer(begin);
}

#[test]
fn a_crowd_of_paused_writers_loses_writes_only_without_the_check() {
    a_crowd_of_writers(begin);
}

#[test]
fn equal_tokens_are_accepted_lower_ones_refused_and_higher_ones_remembered() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("value");
    write(&path, token(33), b"1").unwrap();
    write(&path, token(33), b"2").unwrap();
    write(&path, token(34), b"3").unwrap();
    let refused = stale(write(&path, token(33), b"4")).unwrap_err();
    assert_eq!((refused.presented, refused.highest), (token(33), token(34)));
    assert!(stale(read(&path, token(33))).is_err());
    assert_eq!(read(&path, token(34)).unwrap().unwrap(), b"3");
    write(&path, FencingToken::MAX, b"5").unwrap();
    assert!(write(&path, token(FencingToken::MAX.get() - 1), b"6").is_err());
    assert_eq!(fs::read(&path).unwrap(), b"9223372036854775807\n5");
}

#[test]
fn a_read_of_nothing_raises_the_fence() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("value");
    assert_eq!(read(&path, token(34)).unwrap(), None);
    assert!(stale(write(&path, token(33), b"late")).is_err());
    // And so does one that finds a value.
    write(&path, token(34), b"").unwrap();
    assert_eq!(read(&path, token(35)).unwrap().unwrap(), b"");
    assert!(stale(write(&path, token(34), b"late")).is_err());
}

#[test]
fn a_file_that_holds_no_token_is_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("foreign");
    fs::write(&path, "balance = 100\n").unwrap();
    for error in [
        write(&path, token(34), b"1").unwrap_err(),
        read(&path, token(34)).unwrap_err(),
    ] {
        assert_eq!(error.stale(), None);
        let text = error.to_string();
        assert!(
            text.contains("foreign") && text.contains("no fencing token"),
            "{text}"
        );
    }
    assert_eq!(fs::read(&path).unwrap(), b"balance = 100\n");
}

#[test]
fn what_a_crash_left_behind_is_in_nobodys_way() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("value");
    write(&path, token(34), b"kept").unwrap();
    // Half of a new file, never renamed, and the lock's file.
    fs::write(directory.path().join("value#1"), "35\nhal").unwrap();
    assert_eq!(read(&path, token(34)).unwrap().unwrap(), b"kept");
    write(&path, token(34), b"x").unwrap();
    assert_eq!(
        split(&fs::read(&path).unwrap()).unwrap(),
        (token(34), Some(&b"x"[..]))
    );
}

#[test]
fn a_directory_that_is_not_there_is_an_error_that_names_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let error = write(directory.path().join("no/value"), token(34), b"1").unwrap_err();
    assert!(error.to_string().contains("no/value"), "{error}");
}

#[test]
fn what_cannot_be_read_is_not_taken_for_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("value");
    fs::create_dir(&path).unwrap();
    for error in [
        read(&path, token(34)).unwrap_err(),
        write(&path, token(34), b"1").unwrap_err(),
    ] {
        assert!(error.to_string().contains("value: "), "{error}");
    }
    assert!(
        !directory.path().join("value#1").exists(),
        "nothing was put in its place"
    );
}

/// The program is one of util-linux, which is on every Linux; what is tested is the lock of the system.
#[test]
#[cfg(target_os = "linux")]
fn another_process_that_holds_the_lock_keeps_writers_waiting_until_it_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("value");
    write(&path, token(34), b"1").unwrap();
    let mut other = Command::new("flock")
        .arg("--no-fork")
        .arg(directory.path().join("value#0"))
        .args(["sh", "-c", "echo locked; exec sleep 60"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("flock, of the package util-linux");
    let mut locked = [0; 7];
    std::io::Read::read_exact(other.stdout.as_mut().unwrap(), &mut locked).unwrap();
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let begin = Instant::now();
            write(&path, token(34), b"2").map(|()| begin.elapsed())
        });
        let held = Duration::from_millis(150);
        thread::sleep(held);
        other.kill().unwrap();
        other.wait().unwrap();
        let waited = writer.join().unwrap().unwrap();
        assert!(
            waited >= held,
            "written after {waited:?}, while another held the lock"
        );
    });
}
