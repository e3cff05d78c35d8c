//! The mass of long leases under the churn, for large `--keys`.
//!
//! Each key costs eight bytes here, all of them touched before memory is first measured, so that
//! what the resident set gains afterwards is the manager's.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::SmallRng;
use tenure::{AcquireError, FencingToken, LockManager, OwnerId};

use super::key::KeyCheck;
use super::run::Progress;
use super::tally::{Tally, Violation};
use super::worker::Character;

/// One acquisition in so many is timed while filling: two clock readings are not small there.
const TIMED_EVERY: u32 = 16;
/// Grants between two reports to the progress bar.
const REPORT_EVERY: u64 = 4096;

/// Every key with its latest token; the keys from `first` on stay held throughout.
///
/// Each key has one *custodian* among the workers, who alone holds it for long. The others only
/// try it: they must be refused while it is held, and hand it back at once if it was not.
#[derive(Debug)]
pub(super) struct Mass {
    manager: LockManager,
    /// `token << 1 | held by its custodian`. Tokens only rise, and so do these words, but for the
    /// last bit.
    words: Vec<AtomicU64>,
    first: u32,
    ttl: Duration,
}

impl Mass {
    /// The words of `keys` keys, of which those from `first` on will stay held; `ttl` must outlive
    /// the run.
    pub(super) fn new(manager: &LockManager, keys: u32, first: u32, ttl: Duration) -> Self {
        let mut words = Vec::with_capacity(keys as usize);
        // One by one: a zeroed allocation would not be resident until it is written.
        words.extend((0..keys).map(|_| AtomicU64::new(0)));
        for word in &words {
            word.store(1, SeqCst);
            word.store(0, SeqCst);
        }
        Self {
            manager: manager.clone(),
            words,
            first,
            ttl,
        }
    }

    /// Acquires every key of one custodian.
    pub(super) fn fill(&self, character: Character, progress: &Progress) -> Tally {
        let mut tally = Tally::new();
        let owner = OwnerId(u64::from(character.index));
        for key in self.keys_of(character, 0) {
            let timed = (key / character.workers).is_multiple_of(TIMED_EVERY);
            let answer = if timed {
                self.timed_acquire(key, owner, &mut tally)
            } else {
                self.acquire(key, owner)
            };
            match answer {
                Ok(token) => self.granted(key, token, true, 0, &mut tally),
                Err(error) => tally.violate(Violation::UnexpectedError, || {
                    format!("filling key {key}: {error}")
                }),
            }
            if tally.grants.is_multiple_of(REPORT_EVERY) {
                progress.publish(character.index, &tally);
            }
        }
        progress.publish(character.index, &tally);
        tally
    }

    /// Releases the keys that have checks of their own, so that the churn finds them free.
    pub(super) fn hand_over(&self, checked: &[KeyCheck], tally: &mut Tally) {
        for (key, check) in (0..).zip(checked) {
            if let Some(token) = self.release(key, tally) {
                check.granted(token);
            }
        }
    }

    /// Releases every key of one custodian that is still held.
    pub(super) fn drain(&self, character: Character, progress: &Progress) -> Tally {
        let mut tally = Tally::new();
        for key in self.keys_of(character, self.first) {
            self.release(key, &mut tally);
        }
        progress.publish(character.index, &tally);
        tally
    }

    /// One random operation on a random key of the mass.
    pub(super) fn visit(
        &self,
        character: Character,
        owner: OwnerId,
        rng: &mut SmallRng,
        tally: &mut Tally,
    ) {
        let key = rng.random_range(self.first..self.words.len() as u32);
        let word = self.words[key as usize].load(SeqCst);
        let held = word & 1 == 1;
        if key % character.workers != character.index {
            self.probe(key, word, owner, tally);
        } else if held && rng.random() {
            self.renew(key, word, tally);
        } else {
            if held {
                self.release(key, tally);
            }
            match self.timed_acquire(key, owner, tally) {
                Ok(token) => self.granted(key, token, true, word, tally),
                Err(error) => refused(key, error, word, tally),
            }
        }
    }

    /// Tries a key in another worker's custody.
    fn probe(&self, key: u32, word: u64, owner: OwnerId, tally: &mut Tally) {
        match self.timed_acquire(key, owner, tally) {
            Ok(token) => {
                // The custodian clears the bit before it releases, and tokens never return: the
                // same word before and after means that the key was held in between.
                if word & 1 == 1 && self.words[key as usize].load(SeqCst) == word {
                    tally.violate(Violation::Exclusion, || {
                        format!("key {key}: granted {token} while {} was held", word >> 1)
                    });
                }
                self.granted(key, token, false, word, tally);
                self.end(key, token, tally);
            }
            Err(error) => refused(key, error, word, tally),
        }
    }

    fn renew(&self, key: u32, word: u64, tally: &mut Tally) {
        let Ok(token) = FencingToken::new(word >> 1) else {
            return;
        };
        match self.manager.renew(key, token, self.ttl) {
            Ok(_) => tally.renewals += 1,
            Err(error) => tally.violate(Violation::EarlyExpiry, || {
                format!("key {key}: renewing {token}, which is held: {error}")
            }),
        }
    }

    /// Releases a key that its custodian holds; its token, if it was held.
    fn release(&self, key: u32, tally: &mut Tally) -> Option<FencingToken> {
        let word = self.words[key as usize].fetch_and(!1, SeqCst);
        let token = FencingToken::new(word >> 1).ok()?;
        if word & 1 == 1 {
            self.end(key, token, tally);
            return Some(token);
        }
        None
    }

    /// Ends a lease that must still be live.
    fn end(&self, key: u32, token: FencingToken, tally: &mut Tally) {
        match self.manager.release(key, token) {
            Ok(()) => tally.releases += 1,
            Err(error) => tally.violate(Violation::EarlyExpiry, || {
                format!("key {key}: releasing {token}, which is held: {error}")
            }),
        }
    }

    fn acquire(&self, key: u32, owner: OwnerId) -> Result<FencingToken, AcquireError> {
        let lease = self.manager.try_acquire(key, owner, self.ttl)?;
        Ok(lease.detach())
    }

    fn timed_acquire(
        &self,
        key: u32,
        owner: OwnerId,
        tally: &mut Tally,
    ) -> Result<FencingToken, AcquireError> {
        let asked = Instant::now();
        let answer = self.acquire(key, owner);
        let nanos = asked.elapsed().as_nanos() as u64;
        tally.latency.saturating_record(nanos.max(1));
        answer
    }

    /// Records a grant, and checks that its token is above the one in `before`, read earlier.
    fn granted(&self, key: u32, token: FencingToken, held: bool, before: u64, tally: &mut Tally) {
        tally.grants += 1;
        if token.get() <= before >> 1 {
            tally.violate(Violation::TokenRegression, || {
                format!("key {key}: granted {token} after {}", before >> 1)
            });
        }
        let word = token.get() << 1 | u64::from(held);
        self.words[key as usize].fetch_max(word, SeqCst);
    }

    /// The keys from `first` on in one worker's custody.
    fn keys_of(&self, character: Character, first: u32) -> impl Iterator<Item = u32> {
        let Character { index, workers, .. } = character;
        (first..self.words.len() as u32).filter(move |key| key % workers == index)
    }
}

/// A refusal must name a holder whose grant is not older than the word read before.
fn refused(key: u32, error: AcquireError, before: u64, tally: &mut Tally) {
    match error {
        AcquireError::Held { token, .. } => {
            tally.refusals += 1;
            if token.get() < before >> 1 {
                tally.violate(Violation::TokenRegression, || {
                    format!("key {key}: held with {token} after {}", before >> 1)
                });
            }
        }
        error => tally.violate(Violation::UnexpectedError, || {
            format!("acquiring key {key}: {error}")
        }),
    }
}
