//! What must hold, checked without the lock manager's help: from the log, and from the clients' side.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tenure::replica::{Command, Outcome};
use tenure::{FencingToken, Key, Timestamp};

/// The history of the log: every outcome is held against the leases that must be out at its time.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    now: Timestamp,
    out: HashMap<Key, Out>,
    highest: HashMap<Key, FencingToken>,
}

#[derive(Clone, Copy, Debug)]
struct Out {
    token: FencingToken,
    deadline: Timestamp,
}

impl Timeline {
    /// Takes the next entry of the log; says what is wrong with it, if anything is.
    pub(crate) fn follow(
        &mut self,
        index: u64,
        now: Timestamp,
        command: &Command,
        outcome: &Outcome,
    ) -> Result<(), String> {
        self.now = self.now.max(now);
        let now = self.now;
        self.out.retain(|_, out| out.deadline > now);
        match (command, outcome) {
            (&Command::Acquire { key, ttl, .. }, &Outcome::Granted { token, deadline }) => {
                let held = self.out.insert(key, Out { token, deadline });
                let highest = self.highest.insert(key, token);
                ensure(held.is_none(), || {
                    format!("exclusion: {index} grants {key} as {token} at {now}, held by {held:?}")
                })?;
                ensure(highest < Some(token), || {
                    format!("tokens: {index} grants {key} as {token}, after {highest:?}")
                })?;
                ensure(token.get() == index, || {
                    format!("tokens: {index} grants {key} as {token}")
                })?;
                ensure(deadline >= now.saturating_add(ttl), || {
                    format!("early: {index} grants {key} at {now} for {ttl:?}, until {deadline}")
                })
            }
            (&Command::Acquire { key, .. }, outcome) => ensure(self.out.contains_key(&key), || {
                format!("early: {index} refuses {key} at {now}, held by nobody: {outcome:?}")
            }),
            (&Command::Renew { key, token, ttl }, &Outcome::Renewed { deadline }) => {
                let held = self.out.insert(key, Out { token, deadline });
                let held = held.filter(|held| held.token == token);
                let before = held.map(|held| held.deadline).ok_or_else(|| {
                    format!("resurrected: {index} renews {key} for {token}, over at {now}")
                })?;
                ensure(deadline >= before.max(now.saturating_add(ttl)), || {
                    format!("early: {index} renews {key} at {now} for {ttl:?}, until {deadline}")
                })
            }
            (&Command::Release { key, token }, Outcome::Released) => {
                let held = self.out.remove(&key);
                ensure(held.is_some_and(|held| held.token == token), || {
                    format!("resurrected: {index} releases {key} for {token}, over at {now}")
                })
            }
            (&(Command::Renew { key, token, .. } | Command::Release { key, token }), outcome) => {
                let held = self.out.get(&key);
                ensure(held.is_none_or(|held| held.token != token), || {
                    format!(
                        "early: {index} denies {token} its lease on {key} at {now}: {outcome:?}"
                    )
                })
            }
            // No worker sends anything else.
            _ => Err(format!(
                "unknown: {index} is {command:?}, and came to {outcome:?}"
            )),
        }
    }
}

fn ensure(holds: bool, violation: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(violation()) }
}

/// Whether all nodes make the same of the same log.
///
/// A node's chain hashes all entries and outcomes up to an index, so two that are equal at one index
/// are equal at all before, those that a node skipped by installing a snapshot among them.
#[derive(Debug, Default)]
pub(crate) struct Agreement {
    chains: BTreeMap<u64, u64>,
}

impl Agreement {
    /// Whether nobody had applied this index before.
    pub(crate) fn compare(&mut self, node: u64, index: u64, chain: u64) -> Result<bool, String> {
        if let Some(&known) = self.chains.get(&index) {
            return if known == chain {
                Ok(false)
            } else {
                Err(format!(
                    "agreement: node {node} makes something else of the log up to {index}"
                ))
            };
        }
        let next = self
            .chains
            .keys()
            .next_back()
            .map_or(index, |last| last + 1);
        self.chains.insert(index, chain);
        if next == index {
            Ok(true)
        } else {
            Err(format!(
                "agreement: node {node} applies {index}, and nobody has applied {next}"
            ))
        }
    }
}

/// What one client held, by its own clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holding {
    pub(crate) key: Key,
    pub(crate) token: FencingToken,
    /// When it learnt of its grant.
    pub(crate) from: Duration,
    /// When it asked for the release, or had to take its lease for over.
    pub(crate) to: Duration,
}

/// Exclusion and tokens as the clients saw them: nothing of what a node says about time is believed.
pub(crate) fn check_holdings(mut holdings: Vec<Holding>) -> Vec<String> {
    // Who heard of its grant when it was over held nothing.
    holdings.retain(|holding| holding.from < holding.to);
    holdings.sort_by_key(|holding| (holding.key, holding.from));
    let mut violations = Vec::new();
    for pair in holdings.windows(2) {
        let [first, second] = pair else { continue };
        if first.key != second.key {
            continue;
        }
        if second.from < first.to {
            violations.push(format!(
                "exclusion: {} was held as {} until {:?}, and as {} from {:?}",
                first.key, first.token, first.to, second.token, second.from
            ));
        }
        if second.token <= first.token {
            violations.push(format!(
                "tokens: {} was held as {}, and after that as {}",
                first.key, first.token, second.token
            ));
        }
    }
    violations
}
