//! What a path may be, and what is missing.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use tenure::FencingToken;
use tenure::reservation::File;

use super::{assert_corrupt, assert_storage, beside, first, unused, used};

#[test]
fn a_file_that_was_there_and_is_missing_is_no_new_one() {
    let (_directory, path) = used();
    fs::remove_file(&path).unwrap();
    let text = assert_corrupt(File::open(&path), &path);
    assert!(text.contains("tokens.lock"), "{text}");
    let above = File::options().above(FencingToken::new(10).unwrap());
    assert_corrupt(above.open(&path), &path);
    assert!(!path.exists());
    // Both are gone, as the error says: it begins where it is told to.
    fs::remove_file(beside(&path, ".lock")).unwrap();
    assert_eq!(first(&mut above.open(&path).unwrap(), 1), 11);
}

#[test]
fn a_crash_before_the_first_mark_was_stored_is_no_loss() {
    let (_directory, path) = unused();
    fs::write(beside(&path, ".lock"), "").unwrap();
    fs::write(beside(&path, ".tmp"), "tenure-res").unwrap();
    assert_eq!(first(&mut File::open(&path).unwrap(), 1), 1);
}

#[test]
fn a_file_is_created_only_if_that_is_wanted() {
    let (_directory, path) = unused();
    let found = File::options().create(false);
    assert_corrupt(found.open(&path), &path);
    assert!(!path.exists());
    drop(File::open(&path).unwrap());
    assert_eq!(first(&mut found.open(&path).unwrap(), 1), 1);
}

#[test]
fn tokens_are_above_what_is_said_and_above_what_is_stored() {
    let (_directory, path) = used();
    let above = |token| File::options().above(FencingToken::new(token).unwrap());
    assert_eq!(first(&mut above(5).open(&path).unwrap(), 10), 11);
    assert_eq!(first(&mut above(1000).open(&path).unwrap(), 10), 1001);
    // It was raised durably.
    drop(above(5000).open(&path).unwrap());
    assert_eq!(first(&mut File::open(&path).unwrap(), 10), 5001);
}

#[test]
fn a_left_over_temporary_file_is_replaced_and_a_link_there_is_not_followed() {
    let (_directory, path) = used();
    let elsewhere = path.with_file_name("elsewhere");
    fs::write(&elsewhere, "dear").unwrap();
    symlink(&elsewhere, beside(&path, ".tmp")).unwrap();
    assert_eq!(first(&mut File::open(&path).unwrap(), 10), 11);
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "dear");
    fs::write(beside(&path, ".tmp"), fs::read(&path).unwrap()).unwrap();
    assert_eq!(first(&mut File::open(&path).unwrap(), 10), 21);
    assert!(!beside(&path, ".tmp").exists());
}

#[test]
fn what_is_no_regular_file_is_refused_and_named() {
    let (directory, path) = unused();
    for place in [path.clone(), beside(&path, ".lock")] {
        fs::create_dir(&place).unwrap();
        let text = assert_storage(File::open(&path), &place);
        assert!(text.contains("is a directory"), "{text}");
        fs::remove_dir(&place).unwrap();
        // Opening a pipe would wait for somebody at its other end.
        let made = Command::new("mkfifo").arg(&place).status().unwrap();
        assert!(made.success());
        let text = assert_storage(File::open(&path), &place);
        assert!(text.contains("no regular file"), "{text}");
        fs::remove_file(&place).unwrap();
    }
    assert_storage(File::open("/"), Path::new("/"));
    let missing = directory.path().join("missing/tokens");
    assert_storage(File::open(&missing), &missing);
    File::open(&path).unwrap();
}

#[test]
fn a_link_to_the_file_is_the_file() {
    let (directory, path) = used();
    let other = directory.path().join("other");
    fs::create_dir(&other).unwrap();
    let link = other.join("link");
    symlink(&path, &link).unwrap();
    let mut linked = File::open(&link).unwrap();
    // It has the lock of the file, and replaces the file, not the link.
    File::open(&path).expect_err("the lock is another one");
    assert_eq!(first(&mut linked, 10), 11);
    drop(linked);
    assert_eq!(first(&mut File::open(&path).unwrap(), 10), 21);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());

    fs::remove_file(&link).unwrap();
    symlink(other.join("nothing"), &link).unwrap();
    let text = assert_storage(File::open(&link), &link);
    assert!(text.contains("link to nothing"), "{text}");
}

#[test]
fn a_link_that_leads_back_to_itself_is_told_from_one_to_nothing() {
    let (_directory, path) = unused();
    symlink(&path, &path).unwrap();
    let text = assert_storage(File::open(&path), &path);
    assert!(!text.contains("link to nothing"), "{text}");
}

#[test]
fn a_path_without_a_directory_is_in_the_current_one() {
    // `..` and the like have no name that a file could have.
    for path in ["", "..", "/.."] {
        assert_storage(File::open(path), Path::new(path));
    }
    let name = format!("no-such-shard-{}", std::process::id());
    assert_corrupt(
        File::options().create(false).open(&name),
        &std::env::current_dir().unwrap().join(&name),
    );
    fs::remove_file(format!("{name}.lock")).unwrap();
}
