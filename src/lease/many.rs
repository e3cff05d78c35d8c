//! The end of many leases at once.

use std::{mem, ptr};

use super::{Lease, release_error};
use crate::engine::CHUNK;
use crate::error::ReleaseError;
use crate::token::FencingToken;

impl<'m> Lease<'m> {
    /// Gives many leases back: the same as as many calls of [`release`](Self::release), and faster in a
    /// large table.
    ///
    /// The answers are those of single calls, in the order of the leases. Dropping a vector of guards
    /// releases them too, one by one.
    ///
    /// # Cost
    ///
    /// One compare-and-swap for each lease, as with single calls, and lock-free like those; a reading of
    /// the clock for 32. What is gained is waiting for memory, as with
    /// [`try_acquire_many`](crate::LockManager::try_acquire_many): by leases that have been out so long
    /// that the processor's caches have forgotten them. It works for leases of one manager at a time:
    /// those of several, if they are mixed, are released one by one. The vector is one allocation: see
    /// [`release_many_into`](Self::release_many_into).
    ///
    /// # Errors
    ///
    /// For each lease those of [`release`](Self::release).
    ///
    /// # Panics
    ///
    /// None of its own. If the iterator panics, what it has given is released.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::{Lease, LockManager};
    ///
    /// let locks = LockManager::new();
    /// let answers = locks.try_acquire_many(1..=100, 1, Duration::from_secs(10));
    /// let leases: Vec<Lease> = answers.into_iter().collect::<Result<_, _>>()?;
    /// assert!(Lease::release_many(leases).iter().all(Result::is_ok));
    /// assert!(locks.is_empty());
    /// # Ok::<(), tenure::AcquireError>(())
    /// ```
    pub fn release_many(
        leases: impl IntoIterator<Item = Lease<'m>>,
    ) -> Vec<Result<(), ReleaseError>> {
        let leases = leases.into_iter();
        let mut answers = Vec::with_capacity(leases.size_hint().0);
        Self::release_many_into(leases, &mut answers);
        answers
    }

    /// The same, with the answers appended to `answers`: a vector that is used again costs no
    /// allocation.
    ///
    /// # Errors
    ///
    /// For each lease those of [`release`](Self::release), in `answers`.
    ///
    /// # Panics
    ///
    /// None of its own. If the iterator panics, what it has given is released.
    ///
    /// # Examples
    ///
    /// See [`try_acquire_many_into`](crate::LockManager::try_acquire_many_into).
    pub fn release_many_into(
        leases: impl IntoIterator<Item = Lease<'m>>,
        answers: &mut Vec<Result<(), ReleaseError>>,
    ) {
        let mut leases = leases.into_iter();
        // Guards all the while: whatever happens, they are released.
        let mut chunk = [const { None }; CHUNK];
        loop {
            let mut count = 0;
            for (place, lease) in chunk.iter_mut().zip(&mut leases) {
                *place = Some(lease);
                count += 1;
            }
            Self::release_chunk(&mut chunk[..count], answers);
            if count < CHUNK {
                return;
            }
        }
    }

    #[inline(never)]
    fn release_chunk(
        leases: &mut [Option<Lease<'m>>],
        answers: &mut Vec<Result<(), ReleaseError>>,
    ) {
        let Some(first) = leases.iter().flatten().next() else {
            return;
        };
        answers.reserve(leases.len());
        let engine = first.hold.engine();
        if !first.hold.is_closed() {
            let same = |lease: &&Lease<'m>| ptr::eq(lease.hold.engine(), engine);
            let handles = leases.iter().flatten().filter(same).map(Lease::handle);
            engine.fetch_leases(handles);
        }
        let (engine, mut now) = (ptr::from_ref(engine), engine.time.now());
        // In place: to move a guard costs about as much as to end the lease.
        for place in leases {
            let Some(lease) = place else { continue };
            answers.push(if ptr::eq(lease.hold.engine(), engine) {
                lease.release_in_chunk(&mut now)
            } else {
                lease.release_in_chunk(&mut lease.hold.engine().time.now())
            });
            *place = None;
        }
    }

    /// As [`release`](Self::release), at that reading of the clock. Leaves a guard of nothing.
    #[inline(always)]
    fn release_in_chunk(&mut self, now: &mut u64) -> Result<(), ReleaseError> {
        if self.hold.is_closed() {
            return Err(ReleaseError::Closed);
        }
        let (handle, token) = (self.handle(), mem::take(&mut self.token));
        let deadline = *self.deadline.get_mut();
        let engine = self.hold.engine();
        let released = engine.release_in_chunk(now, handle, deadline, self.key, token);
        released.map_err(|ended| release_error(ended, FencingToken::granted(token)))
    }
}
