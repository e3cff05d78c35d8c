//! The verbs of a manager that has a reservation.

use std::time::Duration;

use super::LockManager;
use crate::error::BuildError;
use crate::reservation::{Keeper, ReservationError, Standing};

impl LockManager {
    /// How the manager stands with its [reservation](crate::reservation); `None` if it has none.
    ///
    /// ```
    /// use tenure::LockManager;
    /// use tenure::reservation::{Authority, Memory};
    ///
    /// let locks = LockManager::builder().reservation(Memory::new()).build()?;
    /// let standing = locks.standing().expect("it has a reservation");
    /// assert_eq!(standing.authority, Authority::Unlimited);
    /// assert_eq!(LockManager::new().standing(), None);
    /// # Ok::<(), tenure::BuildError>(())
    /// ```
    #[must_use]
    pub fn standing(&self) -> Option<Standing> {
        self.engine.standing()
    }

    /// Blocks until the manager may grant leases, for `timeout` at the most, in real time. False if it may not:
    /// it has no authority, or has resigned. At once true without a reservation.
    #[must_use]
    pub fn wait_for_authority(&self, timeout: Duration) -> bool {
        self.engine.standing().is_none() || self.engine.wait_until_open(timeout)
    }

    /// Grants and renews nothing from now on, and gives the authority up as soon as no lease is out, so that a
    /// successor need not wait for its end. (Without a driver, [`tend_reservation`](Self::tend_reservation) does.)
    ///
    /// Leases that are out last to their deadlines, and can be released.
    /// [`Authority::Resigned`](crate::reservation::Authority::Resigned) is what
    /// [`standing`](Self::standing) says from now on. Takes time in the number of buckets, and does nothing without a
    /// reservation. For a manager that is dropped, this is done if no lease is out; else the authority is left to
    /// run out, since holders may not know.
    pub fn resign(&self) {
        if self.engine.standing().is_some() {
            self.engine.resign();
        }
    }

    /// Does what the thread of a manager with a driver does: campaigns for up to `patience`, keeps the authority
    /// alive, and has blocks reserved. Says how soon it is to be called again; `None` if not before a token is
    /// asked for.
    ///
    /// Waits for the backend. For embedders that have built the manager with
    /// [`driver(false)`](crate::Builder::driver). Does nothing without a reservation, and nothing within a call of
    /// the backend: then it is to be called again as soon as that is over.
    #[allow(
        clippy::must_use_candidate,
        reason = "who polls may have a schedule of its own"
    )]
    pub fn tend_reservation(&self, patience: Duration) -> Option<Duration> {
        let Some(mut tending) = self.engine.authority.tend() else {
            return Some(Duration::ZERO);
        };
        let next = tending.keeper.as_mut()?.tend(&self.engine, patience);
        drop(tending);
        // If there is a thread as well: what it waits for may have changed.
        self.engine.authority.wake();
        next
    }

    /// Takes the reservation on. Somebody else may have the authority; nothing else may fail.
    pub(crate) fn keep(&self, keeper: Keeper) -> Result<(), BuildError> {
        if !self.engine.close_at_birth() {
            return Err(BuildError::OutOfMemory);
        }
        if let Some(mut tending) = self.engine.authority.tend() {
            *tending.keeper = Some(keeper);
        }
        let exists = &self.engine.authority.exists;
        exists.store(true, crate::sync::Ordering::Release);
        self.tend_reservation(Duration::ZERO);
        match self.engine.authority.error() {
            None | Some(ReservationError::Held { .. }) => Ok(()),
            Some(error) => Err(BuildError::Reservation { error }),
        }
    }
}
