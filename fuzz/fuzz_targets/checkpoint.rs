//! Any bytes, as a checkpoint in each form that can be read: what is read is written as it was, and can be
//! restored, or is refused with a reason; and what is restored has the leases, and goes on.
//!
//! Most inputs are contents of the right shape with any values in them, some of them with bytes changed after
//! that, under a checksum that was made of them.
//!
//! `cargo +nightly fuzz run checkpoint -- -max_total_time=60`

#![no_main]

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::time::Duration;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use siphasher::sip::SipHasher24;
use tenure::replica::{Command, Replica};
use tenure::{
    Checkpoint, FencingToken, Key, LockManager, ManualClock, Mode, OwnerId, RestoreError, Timestamp,
};

#[derive(Arbitrary, Debug)]
enum Input {
    /// As they are, in all forms.
    Raw(Vec<u8>),
    /// The content of the binary form, under its checksum.
    Sealed(Vec<u8>, Plan),
    Made(Content, Vec<(u16, u8)>, Plan),
}

/// How it is restored.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct Plan {
    grace: Option<u64>,
    max_keys: Option<u8>,
    /// A manager whose clock says something else.
    now: Option<u64>,
    /// With the tick of the checkpoint, so that what is restored is the same.
    same_tick: bool,
}

/// The same shape as that of the crate's.
#[derive(Arbitrary, Debug, Serialize)]
struct Content {
    format: u32,
    seed: u128,
    tick: u64,
    now: u64,
    floor: u64,
    log: Option<Log>,
    leases: Vec<Saved>,
    kept: Vec<Kept>,
    #[serde(skip)]
    repair: Repair,
}

/// What is put right, so that there is a chance that the rest is read.
#[derive(Arbitrary, Debug)]
struct Repair {
    /// All but the leases.
    frame: bool,
    order: bool,
    leases: bool,
}

#[derive(Arbitrary, Clone, Copy, Debug, Serialize)]
struct Log {
    last_applied: u64,
    max_leases: u32,
}

#[derive(Arbitrary, Clone, Copy, Debug, Serialize)]
struct Saved {
    key: Name,
    owner: u64,
    token: u64,
    mode: Way,
    entries: u32,
    remaining: u64,
    terms: Option<Terms>,
}

#[derive(Arbitrary, Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct Terms {
    lock_delay: u64,
    min_hold: u64,
    max_hold: Option<u64>,
    renewal: Option<Renewal>,
}

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Serialize)]
struct Renewal {
    ttl: u64,
    due: u64,
}

#[derive(Arbitrary, Clone, Copy, Debug, Serialize)]
struct Kept {
    key: Name,
    remaining: u64,
}

/// One of a few keys, or any.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Name {
    Few(u8),
    Any(u128),
}

impl Name {
    fn raw(self) -> u128 {
        match self {
            Self::Few(number) => u128::from(number % 16),
            Self::Any(raw) => raw,
        }
    }
}

impl Serialize for Name {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u128(self.raw())
    }
}

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Serialize)]
enum Way {
    Exclusive,
    Shared,
    Permit { of: u32 },
}

/// The longest that anything may last.
const LONGEST: u64 = 1 << 62;
const MAX_FLOOR: u64 = (1 << 63) - 1 - (1 << 55);

impl Content {
    fn repaired(mut self) -> Self {
        if self.repair.frame {
            self.format = 1;
            self.tick = 100_000 + self.tick % 3_600_000_000_000;
            self.floor = self.floor.min(MAX_FLOOR).max(self.leases.len() as u64);
            self.now >>= 2;
            if let Some(log) = &mut self.log {
                log.last_applied = self.floor;
                log.max_leases = 1 + log.max_leases % (1 << 20);
            }
        }
        if self.repair.leases {
            let floor = self.floor.max(1);
            for (number, lease) in self.leases.iter_mut().enumerate() {
                lease.token = (lease.token % floor + 1).max(number as u64 + 1).min(floor);
                lease.entries = lease.entries.max(1);
                lease.remaining = lease.remaining.clamp(1, LONGEST);
                if let Way::Permit { of } = &mut lease.mode {
                    *of = 1 + *of % ((1 << 30) - 1);
                }
                lease.terms = lease.terms.filter(|terms| *terms != Terms::default());
                if let Some(terms) = &mut lease.terms {
                    if let Some(renewal) = &mut terms.renewal {
                        renewal.ttl = renewal.ttl.clamp(1, LONGEST);
                        terms.max_hold = terms.max_hold.or(Some(lease.remaining));
                    }
                    if self.log.is_some() {
                        (terms.max_hold, terms.renewal) = (None, None);
                        terms.lock_delay = terms.lock_delay.max(1);
                    }
                    terms.max_hold = terms.max_hold.map(|most| most.max(lease.remaining));
                }
            }
            for kept in &mut self.kept {
                kept.remaining = kept.remaining.clamp(1, LONGEST);
            }
        }
        if self.repair.order {
            self.leases.sort_by_key(|it| (it.key.raw(), it.token));
            self.leases.dedup_by_key(|it| (it.key.raw(), it.token));
            // Of each key, those that go with its first.
            let mut first: Option<Saved> = None;
            self.leases.retain(|lease| match first {
                Some(one) if one.key.raw() == lease.key.raw() => {
                    one.mode == lease.mode && one.mode != Way::Exclusive
                }
                _ => {
                    first = Some(*lease);
                    true
                }
            });
            self.kept.sort_by_key(|it| it.key.raw());
            self.kept.dedup_by_key(|it| it.key.raw());
        }
        self
    }
}

fn sealed(content: &[u8]) -> Vec<u8> {
    let mut bytes = b"tenureCP\x01\0\0\0".to_vec();
    bytes.extend(content);
    let mut hasher = SipHasher24::new();
    hasher.write(&bytes);
    bytes.extend(hasher.finish().to_le_bytes());
    bytes
}

fuzz_target!(|input: Input| {
    match input {
        Input::Raw(bytes) => {
            let plan = Plan {
                grace: None,
                max_keys: None,
                now: None,
                same_tick: true,
            };
            let _ = Checkpoint::from_bytes(&bytes).map(|it| restore(&it, plan));
            let _ = postcard::from_bytes::<Checkpoint>(&bytes).map(|it| restore(&it, plan));
            let _ = serde_json::from_slice::<Checkpoint>(&bytes).map(|it| restore(&it, plan));
        }
        Input::Sealed(content, plan) => {
            let _ = Checkpoint::from_bytes(&sealed(&content)).map(|it| restore(&it, plan));
        }
        Input::Made(content, changes, plan) => {
            let content = content.repaired();
            let mut bytes = postcard::to_allocvec(&content).expect("a vector has room");
            let changed = !changes.is_empty();
            for (at, to) in changes {
                if let Some(at) = usize::from(at).checked_rem(bytes.len()) {
                    bytes[at] = to;
                }
            }
            let read = Checkpoint::from_bytes(&sealed(&bytes));
            if changed {
                // Without the checksum anew, a change of the file is seen.
                let whole = sealed(&postcard::to_allocvec(&content).expect("a vector has room"));
                let mut torn = whole.clone();
                let body = 12..12 + bytes.len();
                torn[body].copy_from_slice(&bytes);
                if torn != whole {
                    assert_eq!(Checkpoint::from_bytes(&torn), Err(RestoreError::Damaged));
                }
            } else {
                let repair = &content.repair;
                if repair.frame && repair.leases && repair.order && content.log.is_none() {
                    assert!(permits_are_few(&content) || read.is_ok(), "{read:?}");
                }
            }
            let _ = read.map(|it| restore(&it, plan));
        }
    }
});

/// Whether a key may have more permits out than it has; which of them counts is the crate's matter.
fn permits_are_few(content: &Content) -> bool {
    let mut out: BTreeMap<u128, u32> = BTreeMap::new();
    for lease in &content.leases {
        *out.entry(lease.key.raw()).or_default() += 1;
    }
    let few = |lease: &Saved| matches!(lease.mode, Way::Permit { of } if of < out[&lease.key.raw()]);
    content.leases.iter().any(few)
}

/// A checkpoint that was read, from wherever.
fn restore(checkpoint: &Checkpoint, plan: Plan) {
    let bytes = checkpoint.to_bytes();
    assert_eq!(Checkpoint::from_bytes(&bytes).as_ref(), Ok(checkpoint));
    let text = serde_json::to_string(checkpoint).expect("it can be written");
    let read: Checkpoint = serde_json::from_str(&text).expect("it can be read");
    assert_eq!(&read, checkpoint);
    assert_eq!(read.to_bytes(), bytes, "equal checkpoints are equal bytes");
    assert!(format!("{checkpoint:?}").len() < 500);

    as_manager(checkpoint, plan);
    match Replica::from_checkpoint(checkpoint) {
        Ok(replica) => as_replica(checkpoint, replica),
        Err(RestoreError::NotOfAReplica) => assert_eq!(checkpoint.last_applied(), None),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Any manager can count so far.
const MUCH: Duration = Duration::from_nanos(1 << 60);

/// That of the manager that is made.
fn tick_of(checkpoint: &Checkpoint, plan: Plan) -> Duration {
    let default = Duration::from_millis(1);
    if plan.same_tick { checkpoint.tick() } else { default }
}

/// Whether the manager is to renew that lease.
fn is_renewed(checkpoint: &Checkpoint, token: FencingToken) -> bool {
    let content = serde_json::to_value(checkpoint).expect("it can be written");
    let leases = content["leases"].as_array().expect("a list");
    let mut leases = leases.iter().filter(|lease| lease["token"] == token.get());
    leases.any(|lease| !lease["terms"]["renewal"].is_null())
}

fn as_manager(checkpoint: &Checkpoint, plan: Plan) {
    let clock = ManualClock::new();
    // At most there, so that there is some time left.
    let now = plan.now.map_or(checkpoint.now().as_nanos(), |now| now >> 1);
    clock.set(Timestamp::from_nanos(now.min(u64::MAX >> 1)));
    let mut builder = LockManager::builder().clock(clock.clone()).driver(false);
    if plan.same_tick {
        builder = builder.tick(checkpoint.tick()).min_ttl(checkpoint.tick());
    }
    if let Some(most) = plan.max_keys {
        builder = builder.max_keys(usize::from(most) + 1);
    }
    let grace = Duration::from_nanos(plan.grace.unwrap_or(0));
    let restored = builder.restore_with_grace(checkpoint, grace);
    let most = plan.max_keys.map(|most| usize::from(most) + 1);
    let wanted = checkpoint.len() + checkpoint.delayed().count();
    let locks = match restored {
        Ok(locks) => locks,
        Err(RestoreError::MaxKeys { leases, limit }) => {
            assert!(leases == wanted && Some(limit) == most && wanted > limit);
            return;
        }
        Err(RestoreError::TooLong { .. }) => {
            // Some 2^42 ticks and 2^64 ns can be counted, from when the manager was made.
            let much = tick_of(checkpoint, plan).saturating_mul(1 << 30).min(MUCH);
            let mut left = checkpoint.leases().map(|saved| saved.remaining);
            assert!(left.any(|left| left.saturating_add(grace) > much), "not too long");
            return;
        }
        Err(RestoreError::Build(error)) => {
            assert!(!error.to_string().is_empty());
            return;
        }
        Err(error) => panic!("{error:?} of a good checkpoint"),
    };
    assert!(most.is_none_or(|most| wanted <= most));
    assert_eq!(locks.len(), checkpoint.len());
    let tick = locks.tick();
    for saved in checkpoint.leases() {
        let holder = locks.validate(saved.key, saved.token).expect("it is live");
        assert_eq!((holder.owner, holder.mode), (saved.owner, saved.mode));
        let least = saved.remaining.saturating_add(grace);
        // I3: rounded up to a tick, and no more; or so long that the manager can renew it before.
        assert!(holder.remaining >= least, "{holder:?}, not {least:?}");
        if holder.remaining >= least + tick {
            assert!(is_renewed(checkpoint, saved.token), "{holder:?}, not {least:?}");
            assert!(holder.remaining <= 3 * tick, "{holder:?}, not {least:?}");
        }
    }
    if plan.same_tick && grace.is_zero() {
        let mut saved: Vec<_> = checkpoint.leases().map(|it| (it.key, it.token)).collect();
        let mut again: Vec<_> = locks.iter().map(|it| (it.key, it.token)).collect();
        saved.sort_unstable();
        again.sort_unstable();
        assert_eq!(saved, again);
    }
    // I2, of a key of the checkpoint as of any other.
    let floor = checkpoint.floor().map_or(0, FencingToken::get);
    let keys = checkpoint.leases().map(|it| it.key).take(8);
    for key in keys.chain([Key::from_raw(u128::MAX)]) {
        if let Ok(lease) = locks.try_acquire(key, 1, tick.max(Duration::from_millis(1))) {
            assert!(lease.token().get() > floor, "I2");
        }
    }
    use_it(&locks, checkpoint);
    // What is left ends in time, unless the manager renews it.
    for _ in 0..64 {
        let Some(next) = locks.next_wakeup() else {
            break;
        };
        clock.set(next.max(locks.now()));
        locks.advance();
    }
    let _ = locks.checkpoint().to_bytes();
}

/// Some of all that can be done with leases by their tokens.
fn use_it(locks: &LockManager, checkpoint: &Checkpoint) {
    for (number, saved) in checkpoint.leases().enumerate().take(24) {
        let (key, token) = (saved.key, saved.token);
        match number % 5 {
            0 => {
                let renewed = locks.renew(key, token, locks.tick().max(Duration::from_millis(1)));
                assert!(renewed.is_ok(), "{renewed:?}");
            }
            1 => {
                let before = locks.holders(key).len();
                assert_eq!(locks.release(key, token), Ok(()));
                // Entered more than once, it goes on.
                assert!(locks.holders(key).len() + 1 >= before);
            }
            2 if saved.mode == Mode::Exclusive => {
                assert_eq!(locks.revoke(key).map(|it| it.token), Ok(token));
            }
            3 => {
                let enters = locks.acquire(key, saved.owner, saved.remaining).reentrant();
                let _ = enters.try_now().map(|lease| drop(lease));
            }
            _ => assert!(locks.holder(key).is_some()),
        }
    }
}

fn as_replica(checkpoint: &Checkpoint, mut replica: Replica) {
    assert_eq!(replica.len(), checkpoint.len());
    assert_eq!(Some(replica.last_applied()), checkpoint.last_applied());
    // Times that no replica has written are rounded up to ticks, and stay so.
    let rounded = replica.checkpoint();
    if let Ok(again) = Replica::from_checkpoint(&rounded) {
        assert_eq!(again.checkpoint(), rounded, "as it was");
    }
    let mut other = Replica::from_checkpoint(checkpoint).expect("as before");
    let Some(first) = checkpoint.leases().next() else {
        return;
    };
    let ttl = Duration::from_secs(1);
    let commands = [
        Command::renew(first.key, first.token, ttl),
        Command::acquire(first.key, OwnerId(7), ttl).shared(),
        Command::release(first.key, first.token),
        Command::acquire(first.key, OwnerId(7), ttl),
        Command::Advance,
    ];
    for (command, after) in commands.iter().zip(1..) {
        let (index, now) = (replica.last_applied().saturating_add(1), replica.now());
        let now = Timestamp::from_nanos(now.as_nanos().saturating_add(after << 20));
        assert_eq!(
            replica.apply(command, now, index),
            other.apply(command, now, index)
        );
    }
    assert_eq!(replica.checkpoint().to_bytes(), other.checkpoint().to_bytes());
}
