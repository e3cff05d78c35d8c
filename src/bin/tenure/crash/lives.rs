//! The lives of one shard: a process is started and killed, again and again, and every token that any of them ever
//! said is looked at.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Violations that are told in full.
const DETAILS: usize = 20;

/// When to kill a process.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// So long after it was started.
    KillAfterStart(Duration),
    /// So long after its first grant.
    KillAfterGrant(Duration),
    /// Not at all: so long after its first grant, it is asked to end.
    Ask(Duration),
}

/// All that was said, in all lives.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The last token of each key.
    last: HashMap<u64, u64>,
    /// The highest of all.
    highest: u64,
    /// A block was said in this life.
    begun: bool,
    pub(crate) lives: u64,
    pub(crate) grants: u64,
    /// Lives that ended before a grant.
    pub(crate) barren_lives: u64,
    /// Lines that a kill cut off.
    pub(crate) torn_lines: u64,
    pub(crate) token_regressions: u64,
    pub(crate) unexpected_errors: u64,
    /// The most leases of a crowd that were out at once, and the fewest and the most buckets of the table then.
    pub(crate) crowd: u64,
    pub(crate) buckets: Option<(u64, u64)>,
    /// Lives that granted and did not say their block, without which nobody knows where they began.
    pub(crate) unbegun_lives: u64,
    /// Tokens that were reserved and never granted, from one life that said its block to the next.
    pub(crate) skipped: Vec<u64>,
    /// From the start of a process to its first grant.
    pub(crate) first_grants: Vec<Duration>,
    pub(crate) details: Vec<String>,
}

impl Ledger {
    /// Whether all was as it has to be.
    pub(crate) fn is_clean(&self) -> bool {
        self.token_regressions == 0 && self.unexpected_errors == 0
    }

    /// Starts a process and ends it. All that it said is in the ledger when this returns.
    ///
    /// `patience` is how long it may take to its first grant.
    pub(crate) fn live(
        &mut self,
        command: &mut Command,
        end: End,
        patience: Duration,
    ) -> io::Result<()> {
        self.lives += 1;
        self.begun = false;
        let grants = self.grants;
        let started = Instant::now();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let out = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let (granted, first_grant) = mpsc::channel();
        let ended = thread::scope(|scope| {
            let reader = scope.spawn(|| self.listen(out, granted));
            let ended = finish(&mut child, end, patience, &first_grant);
            if ended.is_err() {
                let _ = child.kill();
                let _ = child.wait();
            }
            match reader.join() {
                Ok(Ok(first)) => ended.map(|ended| (ended, first)),
                Ok(Err(error)) => Err(error),
                Err(_) => Err(io::Error::other("the reader panicked")),
            }
        });
        let (ended, first) = ended?;
        if let Ended::Badly(how) = ended {
            self.unexpected_errors += 1;
            self.detail(|life| format!("life {life}: {how}"));
        }
        if let Some(first) = first {
            self.first_grants.push(first.duration_since(started));
        }
        if self.grants == grants {
            self.barren_lives += 1;
        } else if !self.begun {
            self.unbegun_lives += 1;
        }
        Ok(())
    }

    /// Reads to the end, which comes after all that the process has written. When it granted for the first time.
    fn listen(
        &mut self,
        out: ChildStdout,
        granted: mpsc::Sender<()>,
    ) -> io::Result<Option<Instant>> {
        let mut out = BufReader::new(out);
        let mut line = Vec::new();
        let mut first = None;
        while out.read_until(b'\n', &mut line)? > 0 {
            let before = self.grants;
            self.hear(&line);
            if self.grants > before && first.is_none() {
                first = Some(Instant::now());
                let _ = granted.send(());
            }
            line.clear();
        }
        // Whoever still waits for a grant waits in vain.
        drop(granted);
        Ok(first)
    }

    /// Takes down a line, with its end unless it was cut off.
    pub(crate) fn hear(&mut self, line: &[u8]) {
        let Some(line) = line.strip_suffix(b"\n") else {
            self.torn_lines += 1;
            return;
        };
        let line = String::from_utf8_lossy(line);
        let words: Vec<&str> = line.split(' ').collect();
        let numbers = |words: &[&str]| -> Option<[u64; 2]> {
            let [one, other] = words else { return None };
            Some([one.parse().ok()?, other.parse().ok()?])
        };
        match (words[0], numbers(&words[1..])) {
            ("grant", Some([key, token])) => self.granted(key, token),
            ("block", Some([first, _])) => self.begins(first),
            ("crowd", Some([leases, buckets])) => {
                self.crowd = self.crowd.max(leases);
                let (fewest, most) = self.buckets.unwrap_or((buckets, buckets));
                self.buckets = Some((fewest.min(buckets), most.max(buckets)));
            }
            // Whatever a test harness says around it.
            _ if !line.contains("grant") && !line.contains("block") => {}
            _ => {
                self.unexpected_errors += 1;
                self.detail(|life| format!("life {life} said {line:?}"));
            }
        }
    }

    fn granted(&mut self, key: u64, token: u64) {
        self.grants += 1;
        let last = self.last.insert(key, token).unwrap_or(0);
        if token <= last {
            self.token_regressions += 1;
            self.detail(|life| {
                format!("life {life} granted token {token} of key {key}, which had {last} already")
            });
        }
        self.highest = self.highest.max(token);
    }

    /// No token of the block was granted before, of any key.
    fn begins(&mut self, first: u64) {
        if self.begun {
            return;
        }
        self.begun = true;
        match first.checked_sub(self.highest + 1) {
            // What is skipped by the first life, none has reserved.
            Some(skipped) if self.lives > 1 => self.skipped.push(skipped),
            Some(_) => {}
            None => {
                let highest = self.highest;
                self.token_regressions += 1;
                self.detail(|life| {
                    format!("life {life} begins at {first}, and {highest} was granted already")
                });
            }
        }
    }

    fn detail(&mut self, what: impl FnOnce(u64) -> String) {
        if self.details.len() < DETAILS {
            self.details.push(what(self.lives));
        }
    }
}

enum Ended {
    AsMeant,
    Badly(String),
}

fn finish(
    child: &mut Child,
    end: End,
    patience: Duration,
    granted: &mpsc::Receiver<()>,
) -> io::Result<Ended> {
    // Open until it is asked to end: a process whose parent is gone ends too.
    let input = child.stdin.take();
    let waited = match end {
        End::KillAfterStart(after) => {
            thread::sleep(after);
            Ok(())
        }
        End::KillAfterGrant(after) | End::Ask(after) => {
            let waited = granted.recv_timeout(patience);
            thread::sleep(after);
            waited
        }
    };
    let asked = matches!(end, End::Ask(_)) && waited.is_ok();
    if asked {
        drop(input);
    } else {
        child.kill()?;
    }
    let status = child.wait()?;
    Ok(match waited {
        Err(mpsc::RecvTimeoutError::Timeout) => {
            Ended::Badly(format!("granted nothing within {patience:?}"))
        }
        Ok(()) if status.success() == asked && status.code().is_some() == asked => Ended::AsMeant,
        _ => Ended::Badly(format!("ended by itself: {status}")),
    })
}
