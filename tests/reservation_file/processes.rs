//! More than one process. Each test is its own child: it starts this program again, for itself alone, and finds out
//! by a variable which of the two it is.

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, setrlimit};
use tenure::LockManager;
use tenure::reservation::{File, Reservation, ReservationError};

use super::{assert_storage, beside, first, unused, used};

const VARIABLE: &str = "TENURE_TEST_CHILD";

/// The path that this process was given, if it is a child.
fn as_child() -> Option<PathBuf> {
    env::var_os(VARIABLE).map(PathBuf::from)
}

/// A process that is killed when the test ends, whichever way.
struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    /// Starts `command`, which ends in this program, for that test.
    fn start(mut command: Command, test: &str, path: &std::path::Path) -> Self {
        let mut child = command
            .args([&format!("processes::{test}"), "--exact", "--nocapture"])
            .env(VARIABLE, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts again");
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    /// Reads until it has said that.
    fn wait_for(&mut self, words: &str) {
        let mut said = String::new();
        while !said.lines().last().is_some_and(|line| line.contains(words)) {
            let read = self.out.read_line(&mut said).unwrap();
            assert!(read > 0, "it never said {words:?}, but {said}");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn this_program() -> Command {
    Command::new(env::current_exe().unwrap())
}

#[test]
fn a_second_process_is_kept_out_and_told_by_whom_until_the_first_is_killed() {
    if let Some(path) = as_child() {
        let mut file = File::open(path).unwrap();
        println!("\nhas handed out {}", first(&mut file, 10));
        // For ever, unless the parent is gone.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        return;
    }
    let (_directory, path) = used();
    let test = "a_second_process_is_kept_out_and_told_by_whom_until_the_first_is_killed";
    let mut other = Running::start(this_program(), test, &path);
    other.wait_for("has handed out 11");
    let number = other.child.id();
    let error = File::open(&path).unwrap_err();
    assert!(matches!(error, ReservationError::Held { .. }), "{error:?}");
    assert!(
        error.to_string().contains(&format!("process {number},")),
        "{error}"
    );
    drop(other);
    assert_eq!(first(&mut File::open(&path).unwrap(), 10), 21);
}

#[test]
fn a_second_time_in_the_same_process_is_refused_and_says_so() {
    let (_directory, path) = used();
    let file = File::open(&path).unwrap();
    let error = File::open(&path).unwrap_err();
    let expected = format!("this process ({})", std::process::id());
    assert!(error.to_string().contains(&expected), "{error}");
    drop(file);
    File::open(&path).unwrap();
}

#[test]
fn a_full_disk_is_an_error_before_a_token_is_at_risk_and_the_next_try_works_when_there_is_room() {
    if let Some(path) = as_child() {
        return fill_and_make_room(&path);
    }
    let (_directory, path) = used();
    let test = "a_full_disk_is_an_error_before_a_token_is_at_risk_and_the_next_try_works_when_there_is_room";
    // Whoever exceeds the size of files that he may write is killed by a signal, unless it is ignored, which
    // passes on to the program. Then it is an error, like a full disk, in the middle of a write; for root, too.
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]);
    shell.arg(env::current_exe().unwrap());
    let mut other = Running::start(shell, test, &path);
    other.wait_for("made room");
    drop(other);
    assert_eq!(first(&mut File::open(&path).unwrap(), 10), 31);
}

fn fill_and_make_room(path: &std::path::Path) {
    let ten = NonZeroU64::new(10).unwrap();
    let limit = |bytes| {
        let limit = Rlimit {
            current: bytes,
            maximum: None,
        };
        setrlimit(Resource::Fsize, limit).unwrap();
    };
    let mut file = File::open(path).unwrap();
    assert_eq!(first(&mut file, 10), 11);
    let before = std::fs::read(path).unwrap();
    for room in [0, 1, 20] {
        limit(Some(room));
        let failed = file.reserve(ten);
        let opened = File::open(beside(path, ".other"));
        limit(None);
        let text = assert_storage(failed, &beside(path, ".tmp"));
        assert!(text.contains("could not write"), "{text}");
        assert_storage(opened, &beside(path, ".other"));
        assert_eq!(std::fs::read(path).unwrap(), before);
        // It does not keep the room that others need.
        assert!(!beside(path, ".tmp").exists());
    }
    assert_eq!(first(&mut file, 10), 21);
    println!("\nmade room");
}

#[test]
fn a_file_that_is_closed_can_be_opened_at_once_while_other_threads_start_processes() {
    let (_directory, path) = used();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                // Has a copy of every open file until it runs its own program.
                let status = Command::new("true").status().unwrap();
                assert!(status.success());
            }
        });
        let until = Instant::now() + Duration::from_secs(1);
        let mut outcome = Ok(());
        while Instant::now() < until && outcome.is_ok() {
            outcome = File::open(&path).map(drop);
        }
        over.store(true, Ordering::Relaxed);
        assert_eq!(outcome, Ok(()));
    });
}

#[test]
fn managers_on_one_file_grant_rising_tokens_one_after_the_other() {
    let (_directory, path) = unused();
    let mut last = 0;
    for _ in 0..10 {
        let locks = LockManager::builder()
            .reservation(File::open(&path).unwrap())
            .block_size(NonZeroU64::new(100).unwrap())
            .build()
            .unwrap();
        for _ in 0..500 {
            // The next block is on its way, now and then.
            let lease = loop {
                if let Ok(lease) = locks.try_acquire("key", 1, Duration::from_secs(5)) {
                    break lease;
                }
                thread::sleep(Duration::from_micros(50));
            };
            assert!(lease.token().get() > last);
            last = lease.token().get();
            lease.release().unwrap();
        }
    }
    assert!(last >= 5000);
}
