//! Any content of a reservation's file, its lock file and what a crash has left beside it, and any sequence of
//! opening, reserving and meddling: what is a mark is gone on from, and whatever else is `Corrupt` and stays as
//! it is. Blocks never overlap, and each is above all before it.
//!
//! `cargo +nightly fuzz run reservation_file -- -max_total_time=60`

#![no_main]

use std::fs;
use std::hash::Hasher;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use siphasher::sip::SipHasher24;
use tempfile::TempDir;
use tenure::FencingToken;
use tenure::reservation::{File, Reservation, ReservationError};

#[derive(Arbitrary, Debug)]
enum Content {
    Raw(Vec<u8>),
    /// With a checksum that was made of it.
    Checked(String),
    Mark(u64),
    /// Cut off.
    Torn(u64, u8),
    /// A byte was changed.
    Rotten(u64, u8, u8),
    /// Something follows.
    Longer(u64, Vec<u8>),
}

#[derive(Arbitrary, Debug)]
enum Step {
    Open {
        create: bool,
        above: Option<u64>,
    },
    Reserve(u64),
    /// Of a size that leaves some for others.
    ReserveFew(u16),
    /// The process ends, cleanly or not: there is no difference.
    Close,
    /// While it is open or not.
    Write(Content),
    Remove,
    RemoveLock,
    /// A crash has left it there.
    WriteTemporary(Content),
    EmptyLock,
}

/// What the head comment of `mark.rs` says of the format.
fn checked(text: &str) -> Vec<u8> {
    let mut hasher = SipHasher24::new_with_keys(0x7465_6e75_7265, 0x6d61_726b);
    hasher.write(text.as_bytes());
    format!("{text} {:016x}\n", hasher.finish()).into_bytes()
}

fn line(mark: u64) -> Vec<u8> {
    checked(&format!("tenure-reservation 1 {mark}"))
}

/// The one mark whose line that is.
fn mark_of(content: &[u8]) -> Option<u64> {
    let digits = content.strip_prefix(b"tenure-reservation 1 ")?;
    let digits = digits.split(|&byte| byte == b' ').next()?;
    let mark = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (mark <= FencingToken::MAX.get() && line(mark) == content).then_some(mark)
}

impl Content {
    fn bytes(self) -> Vec<u8> {
        match self {
            Self::Raw(bytes) => bytes,
            Self::Checked(text) => checked(&text),
            Self::Mark(mark) => line(mark),
            Self::Torn(mark, at) => {
                let mut line = line(mark);
                line.truncate(usize::from(at) % line.len());
                line
            }
            Self::Rotten(mark, at, to) => {
                let mut line = line(mark);
                let at = usize::from(at) % line.len();
                line[at] = to;
                line
            }
            Self::Longer(mark, more) => {
                let mut line = line(mark);
                line.extend(more);
                line
            }
        }
    }
}

struct World {
    /// Removed at the end.
    _directory: TempDir,
    path: PathBuf,
    lock: PathBuf,
    temporary: PathBuf,
    /// Open, and its mark.
    file: Option<(File, u64)>,
    /// Somebody removed the lock under it, so that nothing is known.
    unlocked: bool,
}

impl World {
    fn new() -> Self {
        // In memory if there is such a place: nothing here is to outlive a power failure.
        let memory = Path::new("/dev/shm");
        let directory = if memory.is_dir() {
            TempDir::new_in(memory)
        } else {
            TempDir::new()
        };
        let directory = directory.expect("there is room");
        let path = directory.path().join("shard");
        let beside = |ending| directory.path().join(format!("shard{ending}"));
        Self {
            lock: beside(".lock"),
            temporary: beside(".tmp"),
            path,
            _directory: directory,
            file: None,
            unlocked: false,
        }
    }

    fn stored(&self) -> Option<Vec<u8>> {
        fs::read(&self.path).ok()
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Open { create, above } => self.open(create, above),
            Step::Reserve(tokens) => self.reserve(tokens),
            Step::ReserveFew(tokens) => self.reserve(u64::from(tokens)),
            Step::Close => {
                self.file = None;
                self.unlocked = false;
            }
            Step::Write(content) => fs::write(&self.path, content.bytes()).expect("there is room"),
            Step::Remove => drop(fs::remove_file(&self.path)),
            Step::RemoveLock => {
                let removed = fs::remove_file(&self.lock).is_ok();
                self.unlocked |= removed && self.file.is_some();
            }
            Step::WriteTemporary(content) => {
                fs::write(&self.temporary, content.bytes()).expect("there is room");
            }
            Step::EmptyLock => {
                if self.lock.exists() {
                    fs::write(&self.lock, b"").expect("it is there");
                }
            }
        }
    }

    fn open(&mut self, create: bool, above: Option<u64>) {
        let token = above.and_then(|above| FencingToken::new(above).ok());
        let mut options = File::options().create(create);
        if let Some(token) = token {
            options = options.above(token);
        }
        let above = token.map_or(0, FencingToken::get);
        let before = self.stored();
        let was_used = fs::metadata(&self.lock).is_ok_and(|lock| lock.len() > 0);
        let opened = options.open(&self.path);
        if self.file.is_some() {
            if !self.unlocked {
                assert!(matches!(opened, Err(ReservationError::Held { .. })), "{opened:?}");
                assert_eq!(self.stored(), before);
            }
            return;
        }
        let mark = match &before {
            Some(content) => mark_of(content),
            None => (create && !was_used).then_some(0),
        };
        match (opened, mark) {
            (Ok(file), Some(mark)) => {
                let mark = mark.max(above);
                assert_eq!(self.stored(), Some(line(mark)), "durable before it is relied on");
                self.file = Some((file, mark));
            }
            (Err(error @ ReservationError::Corrupt { .. }), None) => {
                // Twice an excerpt, and two paths.
                assert!(error.to_string().len() < 2000, "{error}");
                assert_eq!(self.stored(), before, "left as it is");
            }
            (opened, mark) => panic!("{opened:?} of {before:?}, which says {mark:?}"),
        }
    }

    fn reserve(&mut self, tokens: u64) {
        let before = self.stored();
        let (Some((file, mark)), Some(tokens)) = (&mut self.file, NonZeroU64::new(tokens)) else {
            return;
        };
        let reserved = file.reserve(tokens);
        let last = mark.checked_add(tokens.get());
        let last = last.filter(|&last| last <= FencingToken::MAX.get());
        let ours = before.as_deref() == Some(&line(*mark));
        match (reserved, last) {
            _ if self.unlocked => {}
            (Ok(block), Some(last)) if ours => {
                assert_eq!((block.first().get(), block.last().get()), (*mark + 1, last));
                *mark = last;
                assert_eq!(self.stored(), Some(line(last)), "durable before it is handed out");
            }
            (Err(ReservationError::Exhausted { mark: said }), None) if ours => {
                assert_eq!(said, *mark);
                assert_eq!(self.stored(), before);
            }
            // Somebody else writes to it.
            (Err(ReservationError::Corrupt { .. }), _) if !ours => {
                assert_eq!(self.stored(), before, "left as it is");
            }
            (reserved, last) => panic!("{reserved:?} after {mark}, up to {last:?}: {before:?}"),
        }
    }
}

fuzz_target!(|steps: Vec<Step>| {
    let mut world = World::new();
    for step in steps {
        world.step(step);
    }
});
