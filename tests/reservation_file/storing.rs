//! What can't be stored is not handed out, and can be when the cause is gone.

use std::fs;
use std::path::Path;

use tenure::reservation::{File, Reservation, ReservationError};

use super::{assert_corrupt, assert_storage, beside, first, unused, used};

#[test]
fn a_block_that_could_not_be_written_is_not_handed_out_and_can_be_had_later() {
    let (_directory, path) = used();
    let mut file = File::open(&path).unwrap();
    let before = fs::read(&path).unwrap();
    // Nothing can be written there, not even by root.
    let temporary = beside(&path, ".tmp");
    fs::create_dir(&temporary).unwrap();
    for _ in 0..3 {
        let failed = file.reserve(10.try_into().unwrap());
        let text = assert_storage(failed, &temporary);
        assert!(text.contains("could not write"), "{text}");
        assert_eq!(fs::read(&path).unwrap(), before);
    }
    fs::remove_dir(&temporary).unwrap();
    assert_eq!(first(&mut file, 10), 11);
}

#[test]
fn a_directory_that_was_removed_is_an_error() {
    let (directory, path) = used();
    let mut file = File::open(&path).unwrap();
    directory.close().unwrap();
    let error = file.reserve(10.try_into().unwrap()).unwrap_err();
    assert!(matches!(error, ReservationError::Corrupt { .. }), "{error}");
}

#[test]
fn a_file_that_is_removed_or_replaced_while_in_use_is_an_error() {
    let (_directory, path) = used();
    let mut file = File::open(&path).unwrap();
    let ten = 10.try_into().unwrap();
    let good = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert_corrupt(file.reserve(ten), &path);
    assert!(!path.exists());
    // An old copy.
    fs::write(&path, &good).unwrap();
    assert_eq!(first(&mut file, 10), 11);
    fs::write(&path, &good).unwrap();
    let text = assert_corrupt(file.reserve(ten), &path);
    assert!(text.contains("somebody else writes to it"), "{text}");
}

#[test]
fn a_lock_that_is_removed_while_in_use_is_an_error() {
    let (_directory, path) = used();
    let mut file = File::open(&path).unwrap();
    let ten = 10.try_into().unwrap();
    let lock = beside(&path, ".lock");
    let aside = beside(&path, ".aside");
    fs::rename(&lock, &aside).unwrap();
    assert_corrupt(file.reserve(ten), &lock);
    let mut other = File::open(&path).expect("nothing keeps anybody out any more");
    assert_corrupt(file.reserve(ten), &lock);
    assert_eq!(first(&mut other, 10), 11);
}

#[test]
fn a_lock_that_cannot_be_looked_at_is_not_said_to_be_removed() {
    let (directory, _) = unused();
    let shards = directory.path().join("shards");
    fs::create_dir(&shards).unwrap();
    let mut file = File::open(shards.join("tokens")).unwrap();
    let aside = directory.path().join("aside");
    fs::rename(&shards, &aside).unwrap();
    fs::write(&shards, "no directory").unwrap();
    let lock = shards.join("tokens.lock");
    let text = assert_storage(file.reserve(10.try_into().unwrap()), &lock);
    assert!(text.contains("could not look at"), "{text}");
    fs::remove_file(&shards).unwrap();
    fs::rename(&aside, &shards).unwrap();
    assert_eq!(first(&mut file, 10), 1);
}

#[cfg(target_os = "linux")]
#[test]
fn a_directory_where_nothing_can_be_created_is_an_error_when_it_is_opened() {
    // Not even root may.
    assert_storage(File::open("/proc/tokens"), Path::new("/proc/tokens"));
    let (_directory, path) = unused();
    std::os::unix::fs::symlink("/proc/version", &path).unwrap();
    assert_storage(File::open(&path), Path::new("/proc/version.lock"));
}
