//! What is recorded of a run: who asked for what, what the answer was, and between which points of the
//! run and of the manager's clock that lay.

use std::fmt;

use tenure::Mode;

/// The point of a run that never comes: what returns then may happen at any time, or never.
pub(crate) const FOREVER: u64 = u64::MAX;

/// What a process asks of the manager. Times are nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Acquire(Acquire),
    Upgrade {
        token: u64,
        ttl: u64,
    },
    Downgrade {
        token: u64,
    },
    Renew {
        token: u64,
        ttl: u64,
        by: By,
    },
    Release {
        token: u64,
        by: By,
    },
    /// A guard goes out of scope, and says nothing.
    Drop {
        token: u64,
    },
    Validate {
        token: u64,
    },
    Holder,
    Everyone(View),
    Revoke,
    Open {
        session: u32,
        ttl: u64,
    },
    KeepAlive {
        session: u32,
        ttl: u64,
    },
    Close {
        session: u32,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acquire {
    pub(crate) owner: u64,
    pub(crate) ttl: u64,
    pub(crate) mode: Mode,
    pub(crate) reentrant: bool,
    pub(crate) session: Option<u32>,
    /// Takes a place in the queue if it has to.
    pub(crate) waits: bool,
    /// One of several keys, whose deadline is that of the last of them.
    pub(crate) one_of_many: bool,
    /// How long the key is kept free after an unclean end, and from the grant on.
    pub(crate) lock_delay: u64,
    pub(crate) min_hold: u64,
}

/// By what all are told who have to do with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    Holders,
    Snapshot,
    Checkpoint,
}

/// A lease that was seen, whose deadline is between these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) token: u64,
    pub(crate) owner: u64,
    pub(crate) mode: Mode,
    pub(crate) from: u64,
    pub(crate) till: u64,
}

/// All who have to do with a key at one moment, as far as the view tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Everyone {
    pub(crate) holders: Vec<Seen>,
    /// Owners, in the order in which they wait.
    pub(crate) waiters: Option<Vec<u64>>,
    /// Until when the key is kept free, between these; both 0 if it is not.
    pub(crate) kept: Option<(u64, u64)>,
    /// Of a checkpoint: no token so far is above this.
    pub(crate) floor: Option<u64>,
}

/// How a lease is named: by its guard, or by its token alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Guard,
    Token,
}

/// What the manager says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The deadline is the one that was read right afterwards, and at least so much (which is less only if
    /// others could have renewed the lease by then).
    Granted {
        token: u64,
        least: u64,
        most: u64,
    },
    Held {
        owner: u64,
        token: u64,
        remaining: u64,
    },
    /// It has left the queue: its time was up, or its future was dropped.
    GaveUp,
    /// Nobody holds the key, and it is kept free for so long.
    Delayed {
        remaining: u64,
    },
    SessionOver,
    Lapsed,
    Deadlock,
    /// Until then.
    Renewed(u64),
    Done,
    Found {
        owner: u64,
        token: u64,
        deadline: u64,
        mode: Mode,
    },
    Everyone(Everyone),
    /// The lease or session is over, or nobody holds the key.
    Over,
    NeverGranted,
    /// Nobody has heard it.
    Lost,
}

/// An operation on one key.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) process: usize,
    pub(crate) key: u64,
    /// Tells it apart from all others.
    pub(crate) id: u32,
    pub(crate) ask: Ask,
    pub(crate) answer: Answer,
    /// Where in the run it was called.
    pub(crate) call: u64,
    /// By when it was known to be in the queue, if it was.
    pub(crate) queued: Option<u64>,
    /// Where its future began to be dropped, if it was, and a reading of the clock before that.
    pub(crate) dropped: Option<(u64, u64)>,
    /// Where it returned.
    pub(crate) ret: u64,
    /// A reading of the clock before the call, and the freshest one after the return.
    pub(crate) lo: u64,
    pub(crate) hi: u64,
    /// The history was cut before it returned: the answer is the one that it would have got.
    pub(crate) cut: bool,
}

impl Op {
    /// The tokens that it names, in the question or the answer.
    pub(crate) fn tokens(&self) -> Vec<u64> {
        let asked = match self.ask {
            Ask::Upgrade { token, .. }
            | Ask::Downgrade { token }
            | Ask::Renew { token, .. }
            | Ask::Release { token, .. }
            | Ask::Drop { token }
            | Ask::Validate { token } => Some(token),
            _ => None,
        };
        let answered = match self.answer {
            Answer::Granted { token, .. }
            | Answer::Held { token, .. }
            | Answer::Found { token, .. } => Some(token),
            _ => None,
        };
        let seen = self.everyone().map_or(&[][..], |all| &all.holders);
        let seen = seen.iter().map(|seen| seen.token);
        asked.into_iter().chain(answered).chain(seen).collect()
    }

    /// What it was told of all who have to do with the key.
    pub(crate) fn everyone(&self) -> Option<&Everyone> {
        match &self.answer {
            Answer::Everyone(everyone) => Some(everyone),
            _ => None,
        }
    }

    /// Whether it was told that the key is kept free.
    pub(crate) fn is_told_of_delay(&self) -> bool {
        let kept = self.everyone().and_then(|all| all.kept);
        matches!(self.answer, Answer::Delayed { .. }) || kept.is_some_and(|(_, till)| till > 0)
    }

    /// The token that it was granted.
    pub(crate) fn granted(&self) -> Option<u64> {
        match self.answer {
            Answer::Granted { token, .. } => Some(token),
            _ => None,
        }
    }

    /// Whether it makes the key one that several may hold.
    pub(crate) fn shares(&self) -> bool {
        match &self.ask {
            Ask::Acquire(acquire) => acquire.mode != Mode::Exclusive,
            Ask::Upgrade { .. } | Ask::Downgrade { .. } => true,
            _ => false,
        }
    }

    pub(crate) fn is_of_permit(&self) -> bool {
        match &self.ask {
            Ask::Acquire(acquire) => matches!(acquire.mode, Mode::Permit { .. }),
            _ => false,
        }
    }

    pub(crate) fn session(&self) -> Option<u32> {
        match &self.ask {
            Ask::Acquire(acquire) => acquire.session,
            Ask::Open { session, .. } | Ask::KeepAlive { session, .. } | Ask::Close { session } => {
                Some(*session)
            }
            _ => None,
        }
    }

    /// Whether it leaves the key as it was, whatever that was.
    pub(crate) fn only_looks(&self) -> bool {
        match self.answer {
            Answer::Held { .. }
            | Answer::Delayed { .. }
            | Answer::Everyone(_)
            | Answer::Deadlock
            | Answer::NeverGranted => true,
            Answer::Over => !matches!(self.ask, Ask::Close { .. }),
            Answer::Found { .. } => self.ask != Ask::Revoke,
            _ => false,
        }
    }
}

fn millis(nanos: u64) -> String {
    let micros = nanos / 1_000;
    format!("{}.{:03}ms", micros / 1_000, micros % 1_000)
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acquire(acquire) => acquire.fmt(f),
            Self::Upgrade { token, ttl } => write!(f, "upgrade #{token} {}", millis(*ttl)),
            Self::Downgrade { token } => write!(f, "downgrade #{token}"),
            Self::Renew { token, ttl, by } => write!(f, "renew{by} #{token} {}", millis(*ttl)),
            Self::Release { token, by } => write!(f, "release{by} #{token}"),
            Self::Drop { token } => write!(f, "drop #{token}"),
            Self::Validate { token } => write!(f, "validate #{token}"),
            Self::Holder => f.write_str("holder"),
            Self::Everyone(View::Holders) => f.write_str("holders"),
            Self::Everyone(View::Snapshot) => f.write_str("snapshot"),
            Self::Everyone(View::Checkpoint) => f.write_str("checkpoint"),
            Self::Revoke => f.write_str("revoke"),
            Self::Open { session, ttl } => write!(f, "open s{session} {}", millis(*ttl)),
            Self::KeepAlive { session, ttl } => write!(f, "keep s{session} {}", millis(*ttl)),
            Self::Close { session } => write!(f, "close s{session}"),
        }
    }
}

impl fmt::Display for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.waits { "acquire" } else { "try" })?;
        match self.mode {
            Mode::Shared => f.write_str(" shared")?,
            Mode::Permit { of } => write!(f, " 1 of {of}")?,
            _ => {}
        }
        if self.reentrant {
            f.write_str(" again")?;
        }
        if self.one_of_many {
            f.write_str(" (and others)")?;
        }
        write!(f, " o{}", self.owner)?;
        match self.session {
            Some(session) => write!(f, " in s{session}")?,
            None => write!(f, " {}", millis(self.ttl))?,
        }
        if self.lock_delay > 0 {
            write!(f, " delay {}", millis(self.lock_delay))?;
        }
        if self.min_hold > 0 {
            write!(f, " hold {}", millis(self.min_hold))?;
        }
        Ok(())
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Token {
            " by token"
        } else {
            ""
        })
    }
}

impl fmt::Display for Everyone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.holders.is_empty() {
            f.write_str("nobody")?;
        }
        for seen in &self.holders {
            write!(
                f,
                "o{} #{} to {} ",
                seen.owner,
                seen.token,
                millis(seen.till)
            )?;
        }
        if let Some((_, till @ 1..)) = self.kept {
            write!(f, " kept to {}", millis(till))?;
        }
        for owner in self.waiters.iter().flatten() {
            write!(f, " <o{owner}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted { token, most, .. } if *most == u64::MAX => write!(f, "granted #{token}"),
            Self::Granted { token, most, .. } => {
                write!(f, "granted #{token} to {}", millis(*most))
            }
            Self::Held {
                owner,
                token,
                remaining,
            } => write!(f, "held by o{owner} #{token}, {} left", millis(*remaining)),
            Self::GaveUp => f.write_str("gave up"),
            Self::Delayed { remaining } => write!(f, "kept free, {} left", millis(*remaining)),
            Self::Everyone(everyone) => everyone.fmt(f),
            Self::SessionOver => f.write_str("session over"),
            Self::Lapsed => f.write_str("lapsed"),
            Self::Deadlock => f.write_str("deadlock"),
            Self::Renewed(deadline) => write!(f, "ok, to {}", millis(*deadline)),
            Self::Done => f.write_str("ok"),
            Self::Found {
                owner,
                token,
                deadline,
                ..
            } => write!(f, "o{owner} #{token} to {}", millis(*deadline)),
            Self::Over => f.write_str("over"),
            Self::NeverGranted => f.write_str("never granted"),
            Self::Lost => f.write_str("(not heard)"),
        }
    }
}

/// One lane for each process, one line for each call and return, in order. A bar says that an operation is
/// under way.
pub(crate) fn timeline(ops: &[Op]) -> String {
    const WIDTH: usize = 34;
    let mut lanes: Vec<usize> = ops.iter().map(|op| op.process).collect();
    lanes.sort_unstable();
    lanes.dedup();
    // Where, whose, whether it is a return, and the clock's reading there.
    let mut points = vec![];
    for (at, op) in ops.iter().enumerate() {
        points.push((op.call, at, false, op.lo));
        let heard = !op.cut && op.answer != Answer::Lost;
        if heard {
            points.push((op.ret, at, true, op.hi));
        }
    }
    points.sort_unstable();
    let row = |first: &str, cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|it| format!("{it:<WIDTH$}")).collect();
        format!("{first:>14}  {}", cells.join(" "))
            .trim_end()
            .to_owned()
            + "\n"
    };
    let names: Vec<String> = lanes.iter().map(|lane| format!("process {lane}")).collect();
    let mut text = row("clock", &names);
    // How many operations each lane has under way.
    let mut under_way = vec![0_usize; lanes.len()];
    for (_, at, returns, clock) in points {
        let op = &ops[at];
        let lane = lanes.iter().position(|&lane| lane == op.process);
        let lane = lane.expect("each process has a lane");
        let mut cells: Vec<String> = under_way
            .iter()
            .map(|&count| if count > 0 { "│" } else { "" }.to_owned())
            .collect();
        if returns {
            under_way[lane] -= 1;
            cells[lane] = format!("└ {}", op.answer);
        } else {
            under_way[lane] += 1;
            let heard = !op.cut && op.answer != Answer::Lost;
            let unheard = if heard { "" } else { " …" };
            cells[lane] = format!("┌ {}{unheard}", op.ask);
        }
        text += &row(&millis(clock), &cells);
    }
    text
}
