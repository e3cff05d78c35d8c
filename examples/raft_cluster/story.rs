//! What happens to the cluster while its clients work, and what is made of it.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::checkers::check_holdings;
use crate::cluster::{Cluster, Leader, wait_for};
use crate::journal::Counts;
use crate::worker::{Account, Habit, Office, Tally, work};

/// Accounts that workers share, and workers that share them.
const SHARED: usize = 3;
const SHARING: usize = 8;
/// Workers with an account each.
const ALONE: usize = 4;
/// Longer than an election takes: so leases of one leader are still held under the next, which has to
/// honour them by its own clock.
const TTL: Duration = Duration::from_secs(1);

/// How the run goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// For the workers' choices: when they sleep, what they take.
    pub(crate) seed: u64,
    /// Between two faults.
    pub(crate) calm: Duration,
    /// How long a leader stays cut off at the least.
    pub(crate) cut: Duration,
}

/// What became of it.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) counts: Counts,
    pub(crate) violations: Vec<String>,
    pub(crate) leader_kills: u32,
    pub(crate) partitions: u32,
    pub(crate) stale_writes: u64,
    pub(crate) adopted: u64,
    pub(crate) unknown: u64,
    pub(crate) renewed: u64,
    /// From each loss of the leader to the first grant of the next one that came to a client.
    pub(crate) without_grant: Vec<Duration>,
    /// In the calm before the first fault.
    pub(crate) grants_per_second: u128,
    pub(crate) took: Duration,
}

/// Runs the plan, and says on the way what happens.
pub(crate) fn run(plan: &Plan) -> Result<Report, Box<dyn Error>> {
    let cluster = Cluster::start()?;
    let office = Arc::new(Office::open());
    let mut director = Director {
        plan: *plan,
        cluster,
        office: Arc::clone(&office),
        without_grant: Vec::new(),
        leader_kills: 0,
        partitions: 0,
    };
    let leader = director.cluster.leader_after(0)?;
    director.say(&format!("node {} leads, term {}", leader.node, leader.term));
    let mut rng = Rng::with_seed(plan.seed);
    let workers: Vec<_> = (0..SHARING + ALONE)
        .map(|number| {
            let office = Arc::clone(&office);
            let client = director.cluster.client(number as u32 + 1);
            let habit = if number < SHARING {
                Habit::Sharing(SHARED)
            } else {
                Habit::Alone(SHARED + number - SHARING)
            };
            let rng = rng.fork();
            thread::spawn(move || work(&office, client, habit, rng))
        })
        .collect();
    let told = director.tell(leader);
    // Also if the story broke off: its threads must not outlive it.
    office.closing.store(true, Ordering::Relaxed);
    let panicked = workers
        .into_iter()
        .filter_map(|worker| worker.join().err())
        .count();
    let grants_per_second = told?;
    if panicked > 0 {
        return Err(format!("{panicked} workers panicked").into());
    }
    director.cluster.compare()?;
    Ok(director.report(grants_per_second))
}

/// Who makes things happen.
struct Director {
    plan: Plan,
    cluster: Cluster,
    office: Arc<Office>,
    without_grant: Vec<Duration>,
    leader_kills: u32,
    partitions: u32,
}

impl Director {
    /// All that happens, in its order; the grants per second while nothing did.
    fn tell(&mut self, mut leader: Leader) -> Result<u128, Box<dyn Error>> {
        let before = self.cluster.journal.counts().grants;
        let started = Instant::now();
        thread::sleep(self.plan.calm);
        let grants = self.cluster.journal.counts().grants - before;
        let grants_per_second = u128::from(grants) * 1_000 / started.elapsed().as_millis().max(1);

        // A short absence: the node's own log is enough to go on from.
        let (victim, next) = self.kill(self.current(leader)?)?;
        self.cluster.restart(victim)?;
        self.say(&format!("node {victim} restarted from its disk"));
        self.await_return(victim)?;
        leader = next;
        thread::sleep(self.plan.calm);

        leader = self.cut_off(self.current(leader)?)?;
        thread::sleep(self.plan.calm);

        // A long one: the others have forgotten what the node would need.
        let (victim, _) = self.kill(self.current(leader)?)?;
        self.cluster.await_purge_past(victim)?;
        self.cluster.restart(victim)?;
        self.say(&format!(
            "node {victim} restarted; the others have purged the log that it lacks"
        ));
        self.await_return(victim)?;
        thread::sleep(self.plan.calm);
        Ok(grants_per_second)
    }

    /// Who leads now: it may be another than at the last look, if the machine stood still for a while.
    fn current(&self, known: Leader) -> Result<Leader, String> {
        self.cluster.leader_after(known.term.saturating_sub(1))
    }

    fn kill(&mut self, leader: Leader) -> Result<(u64, Leader), Box<dyn Error>> {
        let killed = Instant::now();
        self.cluster.kill(leader.node);
        self.leader_kills += 1;
        self.say(&format!("node {} killed, the leader", leader.node));
        let next = self.await_successor(leader, killed)?;
        Ok((leader.node, next))
    }

    fn cut_off(&mut self, leader: Leader) -> Result<Leader, Box<dyn Error>> {
        let cut = Instant::now();
        self.cluster.isolate(leader.node);
        self.partitions += 1;
        self.say(&format!(
            "node {} cut off from the other nodes, the leader; its clients still reach it",
            leader.node
        ));
        let next = self.await_successor(leader, cut)?;
        thread::sleep(self.plan.cut.saturating_sub(cut.elapsed()));
        self.cluster.heal();
        self.say(&format!("node {} connected again", leader.node));
        self.await_return(leader.node)?;
        Ok(next)
    }

    fn await_successor(&mut self, lost: Leader, when: Instant) -> Result<Leader, String> {
        let next = self.cluster.leader_after(lost.term)?;
        self.say(&format!(
            "node {} elected after {} ms, term {}",
            next.node,
            when.elapsed().as_millis(),
            next.term
        ));
        let granted = wait_for("a grant of the new leader", || {
            self.office.first_grant_after(lost.term)
        })?;
        let without = granted.saturating_duration_since(when);
        self.say(&format!("first grant after {} ms", without.as_millis()));
        self.without_grant.push(without);
        Ok(next)
    }

    fn await_return(&self, node: u64) -> Result<(), String> {
        let started = Instant::now();
        self.cluster.await_caught_up(node)?;
        let took = started.elapsed().as_millis();
        self.say(&format!("node {node} has caught up, {took} ms later"));
        Ok(())
    }

    fn say(&self, what: &str) {
        let at = self.office.opened.elapsed().as_secs_f64();
        let counts = self.cluster.journal.counts();
        println!("{at:8.3} s  {what:<76} {:>7} grants", counts.grants);
    }

    fn report(self, grants_per_second: u128) -> Report {
        let office = &self.office;
        let Tally {
            holdings,
            adopted,
            unknown,
            renewed,
            stale_writes,
            ..
        } = &office.tally;
        let journal = &self.cluster.journal;
        let mut violations = journal.violations();
        violations.extend(check_holdings(std::mem::take(&mut holdings.lock())));
        violations.extend(office.accounts.iter().filter_map(|one| one.audit().err()));
        Report {
            counts: journal.counts(),
            violations,
            leader_kills: self.leader_kills,
            partitions: self.partitions,
            stale_writes: stale_writes.load(Ordering::Relaxed),
            adopted: adopted.load(Ordering::Relaxed),
            unknown: unknown.load(Ordering::Relaxed),
            renewed: renewed.load(Ordering::Relaxed),
            without_grant: self.without_grant,
            grants_per_second,
            took: office.opened.elapsed(),
        }
    }
}

impl Office {
    fn open() -> Self {
        let shared = (0..SHARED).map(|number| format!("shared accounts/{number}"));
        let alone = (0..ALONE).map(|number| format!("alone/{number}"));
        Self {
            opened: Instant::now(),
            ttl: TTL,
            accounts: shared
                .chain(alone)
                .map(|name| Account::new(&name))
                .collect(),
            tally: Tally::default(),
            closing: false.into(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for violation in self.violations.iter().take(20) {
            writeln!(f, "VIOLATION {violation}")?;
        }
        let without: Vec<_> = self
            .without_grant
            .iter()
            .map(|without| format!("{} ms", without.as_millis()))
            .collect();
        let counts = &self.counts;
        writeln!(f, "violations           {}", self.violations.len())?;
        writeln!(f, "leader kills         {}", self.leader_kills)?;
        writeln!(f, "partitions           {}", self.partitions)?;
        writeln!(f, "elections            {}", counts.elections)?;
        writeln!(f, "log entries          {}", counts.entries)?;
        writeln!(
            f,
            "grants               {} ({} a second before the first fault)",
            counts.grants, self.grants_per_second
        )?;
        writeln!(f, "renewals             {}", self.renewed)?;
        writeln!(f, "no answer            {}", self.unknown)?;
        writeln!(f, "answers recovered    {}", self.adopted)?;
        writeln!(f, "stale writes refused {}", self.stale_writes)?;
        writeln!(
            f,
            "snapshots installed  {} (up to {} bytes)",
            counts.installed, counts.snapshot_bytes
        )?;
        writeln!(f, "without a grant      {}", without.join(", "))?;
        write!(f, "took                 {:.1} s", self.took.as_secs_f64())
    }
}
