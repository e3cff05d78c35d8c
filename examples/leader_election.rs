//! Three candidates in three threads, of which one leads at a time.
//!
//! The first leader is paused for longer than its lease, as by a long garbage collection, and writes on
//! when it wakes up: the fencing token of its term is too old by then, and the resource refuses it.

use std::error::Error;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use tenure::recipes::{Election, Leadership};
use tenure::{Fenced, LockManager, StaleToken};

type Failure = Box<dyn Error + Send + Sync>;

const TTL: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(2);

/// What only a leader may write, with the term of each entry.
type Journal = Fenced<Vec<String>>;

fn write(journal: &Journal, leadership: &Leadership, entry: &str) -> Result<(), StaleToken> {
    let line = format!("{entry} by {}", leadership.owner());
    journal.write(leadership.token(), |lines| lines.push(line))
}

/// Leads, and is paused at the worst moment.
fn paused(election: &Election, journal: &Journal, leads: &Barrier) -> Result<(), Failure> {
    let leadership = election.campaign(1, TTL).try_now()?;
    println!("1: leads, with token {}", leadership.token());
    leads.wait();
    write(journal, &leadership, "written")?;
    leadership.keep_alive()?;
    println!("1: is paused until its successor has written");
    let start = Instant::now();
    while journal.highest() <= Some(leadership.token()) && start.elapsed() < PATIENCE {
        thread::sleep(TTL / 10);
    }
    match write(journal, &leadership, "written late") {
        Err(stale) => println!("1: wakes up, and its write is refused: {stale}"),
        Ok(()) => return Err("a write of the last term was taken".into()),
    }
    match leadership.keep_alive() {
        Err(error) => println!("1: learns that its term is over: {error}"),
        Ok(_) => return Err("the last term was revived".into()),
    }
    Ok(())
}

/// Waits for its turn, and leads in good order.
fn orderly(owner: u64, election: &Election, journal: &Journal) -> Result<(), Failure> {
    let leadership = election.campaign(owner, TTL).wait_timeout(PATIENCE)?;
    println!("{owner}: leads, with token {}", leadership.token());
    for _ in 0..3 {
        write(journal, &leadership, "written")?;
        leadership.keep_alive()?;
        thread::sleep(TTL / 2);
    }
    println!("{owner}: resigns");
    leadership.resign()?;
    Ok(())
}

/// Follows who leads, up to the end of the last term.
fn follow(election: &Election) -> Result<Vec<u64>, Failure> {
    let (mut observer, mut leaders) = (election.observe(), vec![]);
    loop {
        match observer.wait_timeout(PATIENCE)? {
            Some(leader) => {
                println!(
                    "observer: {} leads, with token {}",
                    leader.owner, leader.token
                );
                leaders.push(leader.owner.0);
            }
            None if leaders.last() == Some(&3) => return Ok(leaders),
            None => println!("observer: nobody leads"),
        }
    }
}

fn main() -> Result<(), Failure> {
    let start = Instant::now();
    let election = Election::new(&LockManager::new(), "journal");
    let (journal, leads) = (Journal::default(), Barrier::new(2));
    let leaders = thread::scope(|scope| {
        let following = scope.spawn(|| follow(&election));
        let first = scope.spawn(|| paused(&election, &journal, &leads));
        // The others come when it leads, one after the other.
        leads.wait();
        let second = scope.spawn(|| orderly(2, &election, &journal));
        thread::sleep(TTL / 4);
        let third = scope.spawn(|| orderly(3, &election, &journal));
        for candidate in [first, second, third] {
            candidate.join().expect("no panic")?;
        }
        following.join().expect("no panic")
    })?;
    let lines = journal.into_inner();
    println!("after {:?}, the journal: {lines:?}", start.elapsed());
    let owners: Vec<_> = lines.iter().map(|line| line.as_bytes().last()).collect();
    if !leaders.is_sorted() || !owners.is_sorted() || lines.len() != 7 {
        return Err(format!("led by {leaders:?}, and the journal is not in order").into());
    }
    Ok(())
}
