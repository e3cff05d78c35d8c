//! `tenure demo`: the paused holder, told twice by two real threads.
//!
//! A and B each add money to one account. A reads the balance, pauses for longer than its lease
//! lasts, and then writes what it computed before the pause. Meanwhile B has been granted the key
//! and has written. Nothing here is scripted but the pause: each line is printed by the thread that
//! did it, and the ending is judged by what the account holds and by what the calls returned.
//! Where the account is kept, [`account`] knows.

mod account;
mod args;

use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};
use tenure::resources::ResourceError;
use tenure::{AcquireError, FencingToken, LockManager, OwnerId, StaleToken};

use self::account::{Access, Account, Failure};
pub(crate) use self::args::Args;

const KEY: &str = "account/7";
const A: OwnerId = OwnerId(1);
const B: OwnerId = OwnerId(2);
const OPENING_BALANCE: u64 = 100;
const A_ADDS: u64 = 10;
const B_ADDS: u64 = 25;
/// Long enough to be read along, and for a busy machine to schedule both threads well within it.
const TTL: Duration = Duration::from_millis(300);
/// What a garbage collection, a swapped page or a stopped virtual machine does to a process.
const PAUSE: Duration = Duration::from_millis(700);
const RETRY: Duration = Duration::from_millis(10);
/// No part of the story takes nearly that long; a thread that waits longer gives up and says so.
const PATIENCE: Duration = Duration::from_secs(10);

const PLAIN: Style = Style::new();
const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default().bold();
const COLOUR_OF_A: Style = AnsiColor::Cyan.on_default();
const COLOUR_OF_B: Style = AnsiColor::Magenta.on_default();

/// One line of the timeline, stamped by the thread that tells it.
struct Line {
    at: Instant,
    who: OwnerId,
    style: Style,
    text: String,
}

/// One thread's voice.
#[derive(Clone)]
struct Voice {
    who: OwnerId,
    lines: Sender<Line>,
}

impl Voice {
    fn say(&self, style: Style, text: impl Into<String>) {
        // The reader can only be gone because printing failed, which ends the story anyway.
        let _ = self.lines.send(Line {
            at: Instant::now(),
            who: self.who,
            style,
            text: text.into(),
        });
    }
}

/// What A saw when it came back from its pause.
struct Awakening {
    token: FencingToken,
    thought_it_was_live: bool,
    late_write: Result<(), StaleToken>,
}

/// Tells the story twice; `Ok(true)` if both endings are as they should be.
///
/// # Errors
///
/// Whatever writing to `out` returned, or what kept the account from being opened.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> io::Result<bool> {
    let manager = LockManager::new();
    writeln!(
        out,
        "Two threads, A and B, add money to one account of {OPENING_BALANCE}. \
         Each takes a lease of {} ms on \"{KEY}\" first.",
        TTL.as_millis()
    )?;
    // One after the other: the first is gone before the second is opened.
    let lost = tell(&manager, &open(args, false)?, out)?;
    let saved = tell(&manager, &open(args, true)?, out)?;
    let good = lost && saved;
    writeln!(out)?;
    if good {
        writeln!(
            out,
            "{GOOD}The lease alone could not stop A, since A did not know that it had lost it.\n\
             The fencing token did: the resource compares two numbers, and the later grant wins.{GOOD:#}"
        )?;
    } else {
        writeln!(
            out,
            "{BAD}The story did not come out as it should: see above.{BAD:#}"
        )?;
    }
    Ok(good)
}

fn open(args: &Args, fenced: bool) -> io::Result<Account> {
    Account::open(args.resource, &args.database(), fenced).map_err(io::Error::other)
}

/// One telling; `Ok(true)` if it ended as this kind of account should make it end.
fn tell(manager: &LockManager, account: &Account, out: &mut impl Write) -> io::Result<bool> {
    let title = if account.is_fenced() {
        "2. With fencing"
    } else {
        "1. Without fencing"
    };
    writeln!(out, "\n{BOLD}{title}{BOLD:#}")?;
    for line in account.statement().into_iter().flat_map(str::lines) {
        writeln!(out, "             {DIM}{line}{DIM:#}")?;
    }
    let (access_of_a, access_of_b) = match (account.access(), account.access()) {
        (Ok(a), Ok(b)) => (a, b),
        (Err(failure), _) | (_, Err(failure)) => return Err(io::Error::other(failure)),
    };
    let (lines, timeline) = mpsc::channel();
    let (a_holds, b_may_start) = mpsc::channel();
    let (b_is_done, a_may_wake) = mpsc::channel();
    let a = Voice { who: A, lines };
    let b = Voice {
        who: B,
        ..a.clone()
    };
    thread::scope(|scope| {
        let first = scope.spawn(move || life_of_a(manager, access_of_a, &a, &a_holds, &a_may_wake));
        let second =
            scope.spawn(move || life_of_b(manager, access_of_b, &b, &b_may_start, &b_is_done));
        print_timeline(&timeline, out)?;
        let (Ok(first), Ok(second)) = (first.join(), second.join()) else {
            writeln!(out, "{BAD}a thread of the story panicked{BAD:#}")?;
            return Ok(false);
        };
        match (first, second) {
            (Ok(awakening), Ok(token_of_b)) => {
                let balance = account.balance().map_err(io::Error::other)?;
                judge(account.is_fenced(), balance, &awakening, token_of_b, out)
            }
            (Err(failure), _) | (_, Err(failure)) => {
                writeln!(out, "{BAD}the story stopped: {failure}{BAD:#}")?;
                Ok(false)
            }
        }
    })
}

/// A: read, pause past the lease, write what was computed before the pause.
fn life_of_a(
    manager: &LockManager,
    mut account: Box<dyn Access>,
    voice: &Voice,
    a_holds: &Sender<()>,
    may_wake: &Receiver<()>,
) -> Result<Awakening, Failure> {
    let lease = manager
        .try_acquire(KEY, A, TTL)
        .map_err(|refusal| format!("A was refused the free key: {refusal}"))?;
    let token = lease.token();
    voice.say(PLAIN, format!("is granted the lease with token {token}"));
    let seen = account.read(token)?;
    let new = seen + A_ADDS;
    voice.say(
        PLAIN,
        format!("reads {seen}, wants to add {A_ADDS}: will write {new}"),
    );
    voice.say(DIM, format!("pauses for {} ms ...", PAUSE.as_millis()));
    a_holds.send(())?;
    thread::sleep(PAUSE);
    // On a machine so busy that B is not done yet, the pause simply lasts longer.
    may_wake
        .recv_timeout(PATIENCE)
        .map_err(|_| "B never finished")?;
    let thought_it_was_live = lease.is_live();
    voice.say(DIM, "wakes up, and does what it was about to do");
    let late_write = match account.write(token, new) {
        Ok(()) => Ok(()),
        Err(ResourceError::Stale(stale)) => Err(stale),
        Err(failure) => return Err(failure.into()),
    };
    match late_write {
        Ok(()) => voice.say(BAD, format!("writes {new} with token {token}: accepted")),
        Err(StaleToken {
            presented, highest, ..
        }) => {
            voice.say(
                GOOD,
                format!("writes {new}: REJECTED, token {presented} is older than {highest}"),
            );
            drop(lease);
            start_over(manager, &mut *account, voice)?;
        }
    }
    Ok(Awakening {
        token,
        thought_it_was_live,
        late_write,
    })
}

/// What A can do now that it was told: acquire again, read again, write again.
fn start_over(
    manager: &LockManager,
    account: &mut dyn Access,
    voice: &Voice,
) -> Result<(), Failure> {
    let lease = manager
        .try_acquire(KEY, A, TTL)
        .map_err(|refusal| format!("A was refused the free key: {refusal}"))?;
    let token = lease.token();
    let seen = account.read(token)?;
    let new = seen + A_ADDS;
    account.write(token, new)?;
    voice.say(
        GOOD,
        format!("starts over with token {token}: reads {seen}, writes {new}: accepted"),
    );
    Ok(())
}

/// B: wait for the key, read, write, release. Returns the token it was granted.
fn life_of_b(
    manager: &LockManager,
    mut account: Box<dyn Access>,
    voice: &Voice,
    may_start: &Receiver<()>,
    b_is_done: &Sender<()>,
) -> Result<FencingToken, Failure> {
    may_start
        .recv_timeout(PATIENCE)
        .map_err(|_| "A never got its lease")?;
    let asked = Instant::now();
    let mut told = false;
    let lease = loop {
        match manager.try_acquire(KEY, B, TTL) {
            Ok(lease) => break lease,
            Err(AcquireError::Held {
                token, remaining, ..
            }) if asked.elapsed() < PATIENCE => {
                if !told {
                    let left = remaining.as_millis();
                    voice.say(
                        PLAIN,
                        format!("asks: held with token {token}, {left} ms left; keeps asking"),
                    );
                    told = true;
                }
                thread::sleep(RETRY);
            }
            Err(refusal) => return Err(format!("B was not granted the key: {refusal}").into()),
        }
    };
    let token = lease.token();
    voice.say(
        PLAIN,
        format!("A's lease has run out: B is granted the next one, with token {token}"),
    );
    let seen = account.read(token)?;
    let new = seen + B_ADDS;
    account.write(token, new)?;
    voice.say(
        PLAIN,
        format!("reads {seen}, adds {B_ADDS}: writes {new} with token {token}: accepted"),
    );
    match lease.release() {
        Ok(()) => voice.say(DIM, "releases the lease"),
        // This machine is so busy that B was too slow as well. Its write was in time, or it was told.
        Err(over) => voice.say(DIM, format!("can't release the lease: {over}")),
    }
    b_is_done.send(())?;
    Ok(token)
}

/// Prints each line as it is told, until both threads have fallen silent.
fn print_timeline(timeline: &Receiver<Line>, out: &mut impl Write) -> io::Result<()> {
    let begin = Instant::now();
    loop {
        let line = match timeline.recv_timeout(2 * PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => return Ok(()),
        };
        let (name, indent, colour) = if line.who == A {
            ("A", "", COLOUR_OF_A)
        } else {
            ("B", "    ", COLOUR_OF_B)
        };
        let at = line.at.saturating_duration_since(begin).as_millis();
        let Line { style, text, .. } = line;
        writeln!(
            out,
            "{DIM}{at:>5} ms{DIM:#}  {indent}{colour}{name}{colour:#} {style}{text}{style:#}"
        )?;
        out.flush()?;
    }
}

/// Compares what happened with what each kind of account must lead to, and says it.
fn judge(
    fenced: bool,
    balance: u64,
    awakening: &Awakening,
    token_of_b: FencingToken,
    out: &mut impl Write,
) -> io::Result<bool> {
    let sum = OPENING_BALANCE + A_ADDS + B_ADDS;
    let Awakening {
        token: token_of_a,
        thought_it_was_live,
        late_write,
    } = awakening;
    let lease_was_over = !thought_it_was_live && token_of_b > *token_of_a;
    let (good, moral) = if fenced {
        (
            lease_was_over
                && balance == sum
                && matches!(late_write, Err(stale)
                    if stale.presented == *token_of_a && stale.highest == token_of_b),
            format!(
                "A's late write had token {token_of_a}, the account had seen {token_of_b}: \
                 rejected, and nothing was lost."
            ),
        )
    } else {
        (
            lease_was_over && late_write.is_ok() && balance == OPENING_BALANCE + A_ADDS,
            format!("B's {B_ADDS} are gone: A overwrote them with a balance it read before."),
        )
    };
    let style = if balance == sum { GOOD } else { BAD };
    writeln!(
        out,
        "          {style}balance {balance}, should be {sum}.{style:#} {moral}"
    )?;
    if !good {
        let over = if lease_was_over { "over" } else { "live" };
        writeln!(
            out,
            "{BAD}unexpected: A's lease was {over} when A woke up (tokens: A {token_of_a}, \
             B {token_of_b}), its late write returned {late_write:?}{BAD:#}"
        )?;
    }
    Ok(good)
}
