//! The workers: each takes a lease, reads, thinks, writes under its token, and sometimes falls asleep.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use parking_lot::Mutex;
use tenure::{Fenced, FencingToken, Key, ToKey};

use crate::checkers::Holding;
use crate::client::{Acquired, Client, Lease};
use crate::state_machine::SEED;

/// What the leases protect: a number under each name, which must count every write.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) key: Key,
    balance: Fenced<u64>,
    /// The writes that were accepted, counted by the writers.
    deposits: AtomicU64,
}

impl Account {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            key: name.to_key(&SEED),
            balance: Fenced::new(0),
            deposits: AtomicU64::new(0),
        }
    }

    /// Reads under a token. A read that will be followed by a write has to present it too: else the last
    /// holder, asleep since its read, could still write between this read and this holder's write.
    pub(crate) fn read(&self, token: FencingToken) -> Option<u64> {
        self.balance.write(token, |balance| *balance).ok()
    }

    /// Whether the new balance was accepted.
    pub(crate) fn write(&self, token: FencingToken, balance: u64) -> bool {
        let accepted = self.balance.write(token, |old| *old = balance).is_ok();
        if accepted {
            self.deposits.fetch_add(1, Ordering::Relaxed);
        }
        accepted
    }

    /// What is wrong with the balance, if anything is.
    pub(crate) fn audit(&self) -> Result<(), String> {
        let deposits = self.deposits.load(Ordering::Relaxed);
        match self.balance.read(|&balance| balance) {
            balance if balance == deposits => Ok(()),
            balance => Err(format!(
                "lost update: {} deposits were accepted on {}, and its balance is {balance}",
                deposits, self.key
            )),
        }
    }
}

/// What all workers have in common.
#[derive(Debug)]
pub(crate) struct Office {
    pub(crate) opened: Instant,
    pub(crate) ttl: Duration,
    pub(crate) accounts: Vec<Account>,
    pub(crate) tally: Tally,
    pub(crate) closing: AtomicBool,
}

#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) holdings: Mutex<Vec<Holding>>,
    /// When each grant came to its client, and the term of the leader that made it.
    pub(crate) grants: Mutex<Vec<(Instant, u64)>>,
    pub(crate) adopted: AtomicU64,
    pub(crate) unknown: AtomicU64,
    pub(crate) renewed: AtomicU64,
    pub(crate) stale_writes: AtomicU64,
}

impl Office {
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// The moment at which a leader after `term` was first heard to grant something.
    pub(crate) fn first_grant_after(&self, term: u64) -> Option<Instant> {
        let grants = self.tally.grants.lock();
        grants
            .iter()
            .find(|grant| grant.1 > term)
            .map(|grant| grant.0)
    }

    fn note_grant(&self, lease: &Lease) {
        let tally = &self.tally;
        tally.grants.lock().push((Instant::now(), lease.term));
        tally
            .adopted
            .fetch_add(u64::from(lease.adopted), Ordering::Relaxed);
    }

    fn note_holding(&self, lease: &Lease, from: Instant, to: Instant) {
        self.tally.holdings.lock().push(Holding {
            key: lease.key,
            token: lease.token,
            from: from.duration_since(self.opened),
            to: to.duration_since(self.opened),
        });
    }
}

/// How a worker spends its time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Habit {
    /// Shares the first so many accounts with others, renews, and falls asleep at times.
    Sharing(usize),
    /// Has the account of that number for itself, and takes and gives it back without a rest.
    Alone(usize),
}

/// Works until the office closes.
pub(crate) fn work(office: &Arc<Office>, mut client: Client, habit: Habit, mut rng: Rng) {
    while !office.is_closing() {
        let account = match habit {
            Habit::Sharing(first) => &office.accounts[rng.usize(..first)],
            Habit::Alone(number) => &office.accounts[number],
        };
        match client.acquire(account.key, office.ttl) {
            Acquired::Granted(lease) => serve(office, &mut client, account, lease, habit, &mut rng),
            Acquired::Busy => thread::sleep(Duration::from_millis(rng.u64(2..20))),
            Acquired::Unknown => {
                office.tally.unknown.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

fn serve(
    office: &Office,
    client: &mut Client,
    account: &Account,
    mut lease: Lease,
    habit: Habit,
    rng: &mut Rng,
) {
    let from = Instant::now();
    office.note_grant(&lease);
    let Some(balance) = account.read(lease.token) else {
        // The answer took so long that the next holder has been here already.
        return;
    };
    if let Habit::Sharing(_) = habit {
        for _ in 0..rng.u32(0..4) {
            thread::sleep(Duration::from_millis(rng.u64(2..15)));
            if !client.renew(&mut lease, office.ttl) {
                break;
            }
            office.tally.renewed.fetch_add(1, Ordering::Relaxed);
        }
        if rng.u32(..8) == 0 {
            // A garbage collection, a suspended machine: it does not know that it slept, and goes on.
            thread::sleep(office.ttl + Duration::from_millis(rng.u64(50..250)));
        }
    }
    // No look at the clock before this. It would make a stale write rarer, and never impossible.
    if !account.write(lease.token, balance + 1) {
        office.tally.stale_writes.fetch_add(1, Ordering::Relaxed);
    }
    office.note_holding(&lease, from, Instant::now().min(lease.until));
    client.release(lease);
}
