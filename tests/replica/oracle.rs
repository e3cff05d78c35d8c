//! What a replica must answer, from the documented rules alone: a map, and every lease looked at each time.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure::replica::{Command, Outcome, Refusal};
use tenure::{FencingToken, Key, Mode, OwnerId, Timestamp};

pub(crate) const TICK: u64 = 1_000_000;
pub(crate) const MAX_TTL: Duration = Duration::from_secs(366 * 24 * 3600);

#[derive(Clone, Debug)]
struct Lease {
    owner: OwnerId,
    token: u64,
    mode: Mode,
    entries: u32,
    deadline: u64,
    lock_delay: u64,
    min_until: u64,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    /// In the order of their tokens.
    leases: Vec<Lease>,
    kept_until: Option<u64>,
}

impl Entry {
    fn admits(&self, mode: Mode) -> bool {
        let all = |mode| self.leases.iter().all(|lease| lease.mode == mode);
        match mode {
            Mode::Shared => all(Mode::Shared),
            Mode::Permit { of } => {
                let permit = |lease: &Lease| matches!(lease.mode, Mode::Permit { .. });
                self.leases.iter().all(permit) && self.leases.len() < of as usize
            }
            _ => self.leases.is_empty(),
        }
    }

    fn keep(&mut self, until: u64) {
        self.kept_until = self.kept_until.max(Some(until));
    }

    /// A lease has ended, uncleanly at that tick or cleanly.
    fn after(&mut self, lease: &Lease, unclean: Option<u64>, tick: u64) {
        if let Some(end) = unclean.filter(|_| lease.lock_delay > 0) {
            self.keep(end + lease.lock_delay);
        }
        if lease.min_until > tick {
            self.keep(lease.min_until);
        }
    }

    fn sweep(&mut self, tick: u64) {
        let (over, live) = std::mem::take(&mut self.leases)
            .into_iter()
            .partition(|lease: &Lease| lease.deadline <= tick);
        self.leases = live;
        let over: Vec<Lease> = over;
        for lease in &over {
            self.after(lease, Some(lease.deadline), tick);
        }
        self.kept_until = self.kept_until.filter(|&until| until > tick);
    }

    /// Of those whose token is not that one, the lease that lasts longest.
    fn in_the_way(&self, but: u64, now: u64) -> Option<Refusal> {
        let others = self.leases.iter().filter(|lease| lease.token != but);
        let last = others.max_by_key(|lease| (lease.deadline, lease.token))?;
        Some(Refusal::Held {
            owner: last.owner,
            token: FencingToken::new(last.token).unwrap(),
            remaining: Duration::from_nanos(last.deadline * TICK - now),
        })
    }
}

#[derive(Debug)]
pub(crate) struct Oracle {
    keys: BTreeMap<Key, Entry>,
    now: u64,
    max_leases: usize,
}

fn ticks(length: Duration) -> u64 {
    (length.as_nanos() as u64).div_ceil(TICK)
}

impl Oracle {
    pub(crate) fn new(max_leases: usize) -> Self {
        Self {
            keys: BTreeMap::new(),
            now: 0,
            max_leases,
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Owners and tokens of the key's leases.
    pub(crate) fn held(&self, key: Key) -> Vec<(OwnerId, u64)> {
        let entry = self.keys.get(&key);
        let leases = entry.iter().flat_map(|entry| &entry.leases);
        leases.map(|lease| (lease.owner, lease.token)).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.values().map(|entry| entry.leases.len()).sum()
    }

    /// I1, of all keys.
    pub(crate) fn assert_exclusion(&self) {
        for (key, entry) in &self.keys {
            let exclusive = entry.leases.iter().any(|it| it.mode == Mode::Exclusive);
            assert!(!exclusive || entry.leases.len() == 1, "{key}: {entry:?}");
        }
    }

    pub(crate) fn apply(&mut self, command: &Command, now: u64, log_index: u64) -> Outcome {
        self.now = self.now.max(now);
        let tick = self.now / TICK;
        for entry in self.keys.values_mut() {
            entry.sweep(tick);
        }
        let idle = |entry: &Entry| entry.leases.is_empty() && entry.kept_until.is_none();
        self.keys.retain(|_, entry| !idle(entry));
        self.run(command, log_index, tick)
            .unwrap_or_else(Outcome::Refused)
    }

    fn deadline(&self, ttl: Duration) -> Result<u64, Refusal> {
        if ttl.is_zero() {
            let min = Duration::from_nanos(1);
            return Err(Refusal::TtlTooShort { ttl, min });
        }
        if ttl > MAX_TTL {
            return Err(Refusal::TtlTooLong { ttl, max: MAX_TTL });
        }
        Ok((self.now + ttl.as_nanos() as u64).div_ceil(TICK))
    }

    fn run(&mut self, command: &Command, log_index: u64, tick: u64) -> Result<Outcome, Refusal> {
        let now = self.now;
        let at = |deadline: u64| Timestamp::from_nanos(deadline * TICK);
        let token_of = |token: u64| FencingToken::new(token).unwrap();
        match *command {
            Command::Acquire { .. } => self.acquire(command, log_index, tick),
            Command::Renew { key, token, ttl } => {
                let deadline = self.deadline(ttl)?;
                let Some(lease) = self.lease(key, token) else {
                    return Ok(Outcome::NotHeld);
                };
                lease.deadline = lease.deadline.max(deadline);
                let deadline = at(lease.deadline);
                Ok(Outcome::Renewed { deadline })
            }
            Command::Release { key, token } => {
                let Some(lease) = self.lease(key, token) else {
                    return Ok(Outcome::NotHeld);
                };
                lease.entries -= 1;
                if lease.entries == 0 {
                    let lease = lease.clone();
                    let entry = self.keys.get_mut(&key).unwrap();
                    entry.leases.retain(|it| it.token != lease.token);
                    entry.after(&lease, None, tick);
                }
                Ok(Outcome::Released)
            }
            Command::Revoke { key } => {
                let entry = self.keys.entry(key).or_default();
                let leases = std::mem::take(&mut entry.leases);
                if leases.is_empty() {
                    return Ok(Outcome::NotHeld);
                }
                for lease in &leases {
                    entry.after(lease, Some(tick + 1), tick);
                }
                let leases = leases.iter().map(|it| (it.owner, token_of(it.token)));
                Ok(Outcome::Revoked {
                    leases: leases.collect(),
                })
            }
            Command::Upgrade { key, token, ttl } => {
                let deadline = self.deadline(ttl)?;
                let Some(mode) = self.lease(key, token).map(|lease| lease.mode) else {
                    return Ok(Outcome::NotHeld);
                };
                if mode != Mode::Shared {
                    return Err(Refusal::Mode { mode });
                }
                let entry = self.keys.get_mut(&key).unwrap();
                if let Some(held) = entry.in_the_way(token.get(), now) {
                    return Err(held);
                }
                if let Some(until) = entry.kept_until {
                    let remaining = Duration::from_nanos(until * TICK - now);
                    return Err(Refusal::Delayed { remaining });
                }
                let lease = &mut entry.leases[0];
                lease.mode = Mode::Exclusive;
                lease.token = log_index;
                lease.entries = 1;
                lease.deadline = lease.deadline.max(deadline);
                Ok(Outcome::Granted {
                    token: token_of(log_index),
                    deadline: at(lease.deadline),
                })
            }
            Command::Downgrade { key, token } => match self.lease(key, token) {
                None => Ok(Outcome::NotHeld),
                Some(Lease {
                    mode: mode @ Mode::Permit { .. },
                    ..
                }) => Err(Refusal::Mode { mode: *mode }),
                Some(lease) => {
                    lease.mode = Mode::Shared;
                    Ok(Outcome::Downgraded)
                }
            },
            Command::Advance => Ok(Outcome::Advanced),
            _ => panic!("a new command: {command:?}"),
        }
    }

    fn lease(&mut self, key: Key, token: FencingToken) -> Option<&mut Lease> {
        let leases = &mut self.keys.get_mut(&key)?.leases;
        leases.iter_mut().find(|lease| lease.token == token.get())
    }

    fn acquire(&mut self, command: &Command, token: u64, tick: u64) -> Result<Outcome, Refusal> {
        let Command::Acquire {
            key,
            owner,
            ttl,
            mode,
            reentrant,
            lock_delay,
            min_hold,
        } = *command
        else {
            panic!("{command:?}");
        };
        let deadline = self.deadline(ttl)?;
        for length in [lock_delay, min_hold] {
            if length > MAX_TTL {
                return Err(Refusal::TermTooLong {
                    length,
                    max: MAX_TTL,
                });
            }
        }
        if let Mode::Permit {
            of: of @ (0 | 0x4000_0000..),
        } = mode
        {
            return Err(Refusal::Permits { of });
        }
        let min_until = match ticks(min_hold) {
            0 => 0,
            length => tick + 1 + length,
        };
        let lock_delay = ticks(lock_delay);
        let used = |entry: &Entry| entry.leases.len() + usize::from(entry.kept_until.is_some());
        let out: usize = self.keys.values().map(used).sum();
        let (now, max) = (self.now, self.max_leases);
        let entry = self.keys.entry(key).or_default();
        let covers = |lease: &&mut Lease| {
            let covers = lease.mode == Mode::Exclusive || lease.mode == mode;
            reentrant && lease.owner == owner && covers
        };
        if let Some(lease) = entry.leases.iter_mut().find(covers) {
            lease.entries += 1;
            lease.deadline = lease.deadline.max(deadline);
            lease.lock_delay = lease.lock_delay.max(lock_delay);
            lease.min_until = lease.min_until.max(min_until);
            return Ok(Outcome::Entered {
                token: FencingToken::new(lease.token).unwrap(),
                deadline: Timestamp::from_nanos(lease.deadline * TICK),
            });
        }
        if entry.kept_until.is_some() || !entry.admits(mode) {
            if let Some(held) = entry.in_the_way(0, now) {
                return Err(held);
            }
            let remaining = Duration::from_nanos(entry.kept_until.unwrap() * TICK - now);
            return Err(Refusal::Delayed { remaining });
        }
        if out >= max {
            let capacity = max as u64;
            return Err(Refusal::CapacityExceeded { capacity });
        }
        entry.leases.push(Lease {
            owner,
            token,
            mode,
            entries: 1,
            deadline,
            lock_delay,
            min_until,
        });
        Ok(Outcome::Granted {
            token: FencingToken::new(token).unwrap(),
            deadline: Timestamp::from_nanos(deadline * TICK),
        })
    }
}
