//! The reservation in a file, on a real file system: what it refuses, who is kept out, and what a full disk does.
//! Real time. (Its crash points are in the crate, on a disk that can be stopped anywhere; kills are in
//! `tests/crash`.)
#![cfg(unix)]

mod opening;
mod processes;
mod storing;

use std::fs;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tenure::reservation::conformance::{self, Failure, Options};
use tenure::reservation::{File, Reservation, ReservationError};

/// A directory with a file that has handed out 1 to 10; it is closed.
fn used() -> (TempDir, PathBuf) {
    let (directory, path) = unused();
    assert_eq!(first(&mut File::open(&path).unwrap(), 10), 1);
    (directory, path)
}

fn unused() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().canonicalize().unwrap().join("tokens");
    (directory, path)
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// The first token of the next block.
#[track_caller]
fn first(file: &mut File, tokens: u64) -> u64 {
    let block = file.reserve(NonZeroU64::new(tokens).unwrap()).unwrap();
    assert_eq!(block.last().get() - block.first().get() + 1, tokens);
    block.first().get()
}

#[track_caller]
fn assert_corrupt<T: std::fmt::Debug>(outcome: Result<T, ReservationError>, path: &Path) -> String {
    let error = outcome.expect_err("it was accepted");
    let text = error.to_string();
    assert!(
        matches!(error, ReservationError::Corrupt { .. }),
        "{error:?}"
    );
    assert!(text.contains(path.to_str().unwrap()), "{text}");
    text
}

#[track_caller]
fn assert_storage<T: std::fmt::Debug>(outcome: Result<T, ReservationError>, path: &Path) -> String {
    let error = outcome.expect_err("it worked");
    let text = error.to_string();
    assert!(
        matches!(error, ReservationError::Storage { .. }),
        "{error:?}"
    );
    assert!(text.contains(path.to_str().unwrap()), "{text}");
    text
}

#[test]
fn a_file_keeps_the_promises_of_a_reservation() -> Result<(), Failure> {
    let (_directory, path) = unused();
    conformance::run(&Options::one_at_a_time(), || File::open(&path))
}

#[test]
fn a_truncated_file_is_an_error_at_every_length_and_stays_as_it_is() {
    let (_directory, path) = used();
    let good = fs::read(&path).unwrap();
    for length in 0..good.len() {
        fs::write(&path, &good[..length]).unwrap();
        let text = assert_corrupt(File::open(&path), &path);
        assert!(text.contains("bring back the file"), "{text}");
        assert_eq!(fs::read(&path).unwrap(), &good[..length]);
    }
    fs::write(&path, &good).unwrap();
    assert_eq!(first(&mut File::open(&path).unwrap(), 1), 11);
}

#[test]
fn a_file_with_a_byte_altered_is_an_error_for_every_byte_and_stays_as_it_is() {
    let (_directory, path) = used();
    let good = fs::read(&path).unwrap();
    for index in 0..good.len() {
        for mask in [0x01, 0x10, 0x80, 0xff] {
            let mut altered = good.clone();
            altered[index] ^= mask;
            fs::write(&path, &altered).unwrap();
            assert_corrupt(File::open(&path), &path);
            assert_eq!(fs::read(&path).unwrap(), altered);
        }
    }
    fs::write(&path, &good).unwrap();
    assert_eq!(first(&mut File::open(&path).unwrap(), 1), 11);
}

#[test]
fn foreign_content_is_an_error_however_long() {
    let (_directory, path) = used();
    for content in ["0", "42\n", "\0", "{\"mark\":7}", &"x".repeat(1 << 20)] {
        fs::write(&path, content).unwrap();
        assert_corrupt(File::open(&path), &path);
        assert_eq!(fs::read_to_string(&path).unwrap(), content);
    }
}
