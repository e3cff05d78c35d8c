//! Two processes want one shard, and the one that has it is stopped past its authority.
//!
//! Both say readings of the system's monotonic clock, which all processes share. A thread may be stopped between any two
//! instructions, so a lease is only claimed for what the readings around its calls imply: it lived from when its
//! grant had returned until its deadline at the earliest, or until its release began.

use std::collections::HashMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use tenure::{AcquireError, LockManager};

use super::{PATIENCE, Shard, as_child};

const KEYS: u64 = 2;
const TTL: Duration = Duration::from_millis(300);
/// How long a lease is held: most stops fall into it, and its holder writes when it wakes.
const HELD: Duration = Duration::from_millis(5);
const FENCES: &str = "TENURE_TEST_CHILD_FENCES";

/// Nanoseconds of the system's monotonic clock.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap()
}

fn say(line: &str) {
    let mut out = io::stdout().lock();
    // The parent is gone, or has heard enough.
    if out.write_all(line.as_bytes()).is_err() {
        std::process::exit(0);
    }
}

/// Grants until it is killed, if it is a child.
pub(crate) fn fights_as_child() -> bool {
    let Some(locks) = as_child() else {
        return false;
    };
    let fences = std::env::var_os(FENCES).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = io::stdin().read_to_end(&mut Vec::new());
            std::process::exit(0);
        });
        for key in 0..KEYS {
            let (locks, fence) = (&locks, Path::new(&fences).join(key.to_string()));
            scope.spawn(move || fight(locks, key, &fence));
        }
    });
    true
}

fn fight(locks: &LockManager, key: u64, fence: &Path) {
    loop {
        let asked = now();
        let lease = match locks.try_acquire(key, 1, TTL) {
            Ok(lease) => lease,
            Err(AcquireError::AuthorityLost) => {
                say(&format!("lost {key}\n"));
                thread::sleep(Duration::from_millis(5));
                continue;
            }
            Err(AcquireError::Held { .. } | AcquireError::TokensNotReserved { .. }) => {
                thread::sleep(Duration::from_micros(200));
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let granted = now();
        let token = lease.token().get();
        // Read before what it is added to: too early, if anything.
        let read = now();
        let deadline = read + u64::try_from(lease.remaining().as_nanos()).unwrap();
        say(&format!(
            "held {key} {token} {asked} {granted} {deadline}\n"
        ));
        thread::sleep(HELD);
        let wrote = write_fenced(fence, token).unwrap();
        say(&format!("wrote {key} {token} {}\n", u8::from(wrote)));
        say(&format!("freed {key} {token} {}\n", now()));
        let _ = lease.release();
    }
}

/// A resource that checks: a log of the tokens of all accepted writes, which refuses a token that is below the last.
fn write_fenced(path: &Path, token: u64) -> io::Result<bool> {
    const LINE: i64 = 21;
    let mut file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    file.lock()?;
    let mut last = String::new();
    if file.metadata()?.len() > 0 {
        file.seek(SeekFrom::End(-LINE))?;
        file.read_to_string(&mut last)?;
    }
    if last.trim_end().parse().is_ok_and(|last: u64| token < last) {
        return Ok(false);
    }
    file.seek(SeekFrom::End(0))?;
    writeln!(file, "{token:020}")?;
    Ok(true)
}

/// A lease, as its holder's readings imply it.
#[derive(Clone, Copy, Debug)]
struct Lease {
    who: usize,
    key: u64,
    token: u64,
    asked: u64,
    granted: u64,
    ends: u64,
}

/// What one of them has said.
#[derive(Debug, Default)]
struct Said {
    leases: Vec<Lease>,
    losses: usize,
    refused_writes: usize,
}

struct Fighter {
    child: Child,
    said: Arc<Mutex<Said>>,
}

impl Fighter {
    fn start(who: usize, shard: &Shard, test: &str, fences: &Path) -> Self {
        let mut child = shard
            .command(test)
            .env(FENCES, fences)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Arc::new(Mutex::new(Said::default()));
        let out = child.stdout.take().unwrap();
        let heard = Arc::clone(&said);
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                heard.lock().unwrap().hear(who, &line);
            }
        });
        Self { child, said }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    fn count<T>(&self, of: impl Fn(&Said) -> T) -> T {
        of(&self.said.lock().unwrap())
    }

    fn leases(&self) -> usize {
        self.count(|said| said.leases.len())
    }
}

impl Drop for Fighter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Said {
    fn hear(&mut self, who: usize, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let numbers: Vec<u64> = words[1..]
            .iter()
            .filter_map(|word| word.parse().ok())
            .collect();
        match (words[0], &numbers[..]) {
            ("held", &[key, token, asked, granted, ends]) => self.leases.push(Lease {
                who,
                key,
                token,
                asked,
                granted,
                ends,
            }),
            ("freed", &[key, token, at]) => {
                let same = |lease: &&mut Lease| (lease.key, lease.token) == (key, token);
                let lease = self.leases.iter_mut().rev().find(same).unwrap();
                lease.ends = lease.ends.min(at);
            }
            ("wrote", &[_, _, 0]) => self.refused_writes += 1,
            ("lost", _) => self.losses += 1,
            // The test harness, and writes that were accepted.
            _ => {}
        }
    }
}

#[track_caller]
fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let started = Instant::now();
    while !happened() {
        assert!(
            started.elapsed() < PATIENCE,
            "{what}: not within {PATIENCE:?}"
        );
        thread::sleep(Duration::from_millis(1));
    }
}

/// Stops whoever has the shard until the other has it, and lets it go on, so many times.
pub(crate) fn stop_in_turns(shard: &Shard, test: &str, turns: usize) {
    let directory = tempfile::tempdir().unwrap();
    let fences = directory.path();
    let mut fighters = [0, 1].map(|who| Fighter::start(who, shard, test, fences));
    for turn in 0..turns {
        let before = [0, 1].map(|who: usize| fighters[who].leases());
        wait_until("nobody is granted anything", || {
            fighters[0].leases() > before[0] + 5 || fighters[1].leases() > before[1] + 5
        });
        let owner = usize::from(fighters[1].leases() > before[1] + 5);
        let (stopped, other) = (&fighters[owner], &fighters[1 - owner]);
        stopped.signal(Signal::STOP);
        let others = other.leases();
        wait_until("the other one does not get the shard", || {
            other.leases() > others + 20
        });
        let losses = stopped.count(|said| said.losses);
        stopped.signal(Signal::CONT);
        wait_until("the one that was stopped does not say that it lost", || {
            stopped.count(|said| said.losses) > losses
        });
        assert!(
            fighters
                .iter_mut()
                .all(|it| it.child.try_wait().unwrap().is_none()),
            "one of them ended in turn {turn}"
        );
    }
    let said = fighters
        .each_ref()
        .map(|fighter| fighter.count(|said| said.leases.clone()));
    let refused: usize = fighters
        .iter()
        .map(|fighter| fighter.count(|said| said.refused_writes))
        .sum();
    drop(fighters);
    assert!(said.iter().all(|leases| !leases.is_empty()));
    let leases = said.concat();
    assert_tokens_are_disjoint(&leases);
    for key in 0..KEYS {
        let of_key: Vec<Lease> = leases.iter().copied().filter(|it| it.key == key).collect();
        assert_no_two_live_at_once(of_key.clone());
        assert_tokens_rise(&of_key);
        assert_never_backwards(&fences.join(key.to_string()));
    }
    // Those that were stopped while they held a lease.
    assert!(
        refused > 0,
        "nobody ever wrote too late: the fence was not put to the test"
    );
}

fn assert_tokens_are_disjoint(leases: &[Lease]) {
    let mut seen = HashMap::new();
    for lease in leases {
        let earlier = seen.insert((lease.key, lease.token), lease);
        assert!(earlier.is_none(), "{lease:?} has the token of {earlier:?}");
    }
}

fn assert_no_two_live_at_once(mut leases: Vec<Lease>) {
    leases.retain(|lease| lease.granted < lease.ends);
    leases.sort_unstable_by_key(|lease| lease.granted);
    let mut latest: Option<Lease> = None;
    for lease in leases {
        if let Some(earlier) = latest {
            assert!(
                earlier.ends <= lease.granted,
                "{earlier:?} and {lease:?} were live at once"
            );
        }
        latest = Some(lease);
    }
}

/// A grant that was asked for when another one had returned has a higher token.
fn assert_tokens_rise(leases: &[Lease]) {
    let mut by_return = leases.to_vec();
    by_return.sort_unstable_by_key(|lease| lease.granted);
    let mut by_request = leases.to_vec();
    by_request.sort_unstable_by_key(|lease| lease.asked);
    let mut returned = by_return.iter().peekable();
    let mut highest = 0;
    for lease in by_request {
        while let Some(earlier) = returned.next_if(|it| it.granted < lease.asked) {
            highest = highest.max(earlier.token);
        }
        assert!(
            lease.token > highest,
            "{lease:?} was granted after token {highest} had been"
        );
    }
}

fn assert_never_backwards(log: &Path) {
    let tokens: Vec<u64> = fs::read_to_string(log)
        .unwrap()
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    assert!(tokens.len() > 10);
    assert!(tokens.is_sorted(), "{} goes backwards", log.display());
}
