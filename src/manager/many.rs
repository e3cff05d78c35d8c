//! Leases on many independent keys at once.

use std::time::Duration;

use super::LockManager;
use crate::engine::{CHUNK, Request};
use crate::error::AcquireError;
use crate::key::{Key, ToKey};
use crate::lease::Lease;
use crate::owner::OwnerId;

impl LockManager {
    /// Asks for a lease on each of many independent keys: the same as as many calls of
    /// [`try_acquire`](Self::try_acquire), and faster in a large table.
    ///
    /// The answers are those of single calls, in the order of the keys. A key that comes twice is granted
    /// once: the second time it is told [`Held`](AcquireError::Held), by `owner`. This is no transaction:
    /// each key is granted or refused by itself, other threads may come between, and what was granted
    /// stays granted if others were refused.
    ///
    /// To end many leases at once there is [`Lease::release_many`].
    ///
    /// # Cost
    ///
    /// One compare-and-swap for each grant, as with single calls, and lock-free like those; a reading of
    /// the clock and a conversion of the TTL for 32 keys. What is gained is waiting for memory: the loads
    /// of 32 keys are under way together, where single calls wait for each in turn. So it pays in a table
    /// that the processor's caches don't hold: with a million leases out, batches of 16 are acquired and
    /// released in 0.5 to 0.6 of the time of single calls. In a table of a thousand they take 1.5 times
    /// that of single calls, since 16 guards travel through memory. The vector is one allocation: see
    /// [`try_acquire_many_into`](Self::try_acquire_many_into).
    ///
    /// # Errors
    ///
    /// For each key those of [`try_acquire`](Self::try_acquire).
    ///
    /// # Panics
    ///
    /// None of its own. If the iterator panics, the leases granted so far are released.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::{AcquireError, Lease, LockManager};
    ///
    /// let locks = LockManager::new();
    /// let taken = locks.try_acquire("b", 1, Duration::from_secs(10))?;
    /// let answers = locks.try_acquire_many(["a", "b", "c"], 2, Duration::from_secs(10));
    /// assert!(answers[0].is_ok() && answers[2].is_ok());
    /// assert!(matches!(answers[1], Err(AcquireError::Held { owner, .. }) if owner == taken.owner()));
    ///
    /// let ended = Lease::release_many(answers.into_iter().flatten());
    /// assert_eq!(ended, [Ok(()), Ok(())]);
    /// # Ok::<(), AcquireError>(())
    /// ```
    #[must_use = "dropping the leases releases them"]
    pub fn try_acquire_many<K: ToKey>(
        &self,
        keys: impl IntoIterator<Item = K>,
        owner: impl Into<OwnerId>,
        ttl: Duration,
    ) -> Vec<Result<Lease<'_>, AcquireError>> {
        let keys = keys.into_iter();
        let mut answers = Vec::with_capacity(keys.size_hint().0);
        self.try_acquire_many_into(keys, owner, ttl, &mut answers);
        answers
    }

    /// The same, with the answers appended to `answers`: a vector that is used again costs no
    /// allocation.
    ///
    /// # Errors
    ///
    /// For each key those of [`try_acquire`](Self::try_acquire), in `answers`.
    ///
    /// # Panics
    ///
    /// None of its own. If the iterator panics, the answers so far are in `answers`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::{Lease, LockManager};
    ///
    /// let locks = LockManager::new();
    /// let (mut answers, mut ended) = (vec![], vec![]);
    /// for batch in [[1, 2, 3], [4, 5, 6]] {
    ///     locks.try_acquire_many_into(batch, 1, Duration::from_secs(10), &mut answers);
    ///     assert!(answers.iter().all(Result::is_ok));
    ///     Lease::release_many_into(answers.drain(..).flatten(), &mut ended);
    /// }
    /// assert_eq!(ended, [Ok(()); 6]);
    /// ```
    pub fn try_acquire_many_into<'m, K: ToKey>(
        &'m self,
        keys: impl IntoIterator<Item = K>,
        owner: impl Into<OwnerId>,
        ttl: Duration,
        answers: &mut Vec<Result<Lease<'m>, AcquireError>>,
    ) {
        let owner = owner.into();
        let mut keys = keys.into_iter();
        if self.engine.keeps_names() {
            answers.extend(keys.map(|key| self.try_acquire(key, owner, ttl)));
            return;
        }
        let mut chunk = [Key::from_raw(0); CHUNK];
        loop {
            // First the user's code for all of them, which may use the manager.
            let mut count = 0;
            for (place, key) in chunk.iter_mut().zip(&mut keys) {
                *place = key.to_key(&self.engine.seed);
                count += 1;
            }
            self.acquire_chunk(&chunk[..count], owner, ttl, answers);
            if count < CHUNK {
                return;
            }
        }
    }

    #[inline(never)]
    fn acquire_chunk<'m>(
        &'m self,
        keys: &[Key],
        owner: OwnerId,
        ttl: Duration,
        answers: &mut Vec<Result<Lease<'m>, AcquireError>>,
    ) {
        if keys.is_empty() {
            return;
        }
        answers.reserve(keys.len());
        let request = |key| Request {
            key,
            owner: owner.0,
            ttl,
            at_least: 0,
        };
        self.engine.grant_chunk(keys, request, |key, granted| {
            answers.push(match granted {
                Ok(acquired) => Ok(Lease::new(&self.engine, key, owner, &acquired)),
                Err(denied) => Err(denied.into()),
            });
        });
    }
}
