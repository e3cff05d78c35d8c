//! Tokens from a counter in memory.

use std::num::NonZeroU64;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Block, Reservation, ReservationError};

/// A counter in memory: **tokens begin anew at 1 with the process.**
///
/// Clones share the counter, so managers of one process that are given clones of one `Memory` never grant
/// the same token, whichever of them owns a key at the time. For anything that outlives the process, such
/// as a file or a database that checks tokens, it is the wrong choice: there, the tokens of the next process
/// would be rejected, or taken for those of this one.
///
/// A reservation takes a mutex for a few nanoseconds. There is no authority to lose.
///
/// ```
/// use std::num::NonZeroU64;
/// use tenure::reservation::{Memory, Reservation};
///
/// let mut one = Memory::new();
/// let mut other = one.clone();
/// let tokens = NonZeroU64::new(1000).unwrap();
/// assert_eq!(one.reserve(tokens)?.last().get(), 1000);
/// assert_eq!(other.reserve(tokens)?.first().get(), 1001);
/// # Ok::<(), tenure::reservation::ReservationError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Memory {
    mark: Arc<Mutex<u64>>,
}

impl Memory {
    /// A counter of its own, of which nothing has been handed out.
    ///
    /// ```
    /// let tokens = tenure::reservation::Memory::new();
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Reservation for Memory {
    fn reserve(&mut self, tokens: NonZeroU64) -> Result<Block, ReservationError> {
        let mut mark = self.mark.lock();
        let block = Block::after(*mark, tokens)?;
        *mark = block.last().get();
        Ok(block)
    }
}

#[cfg(all(test, feature = "conformance"))]
mod tests {
    use super::super::conformance::{self, Failure, Options};
    use super::*;

    #[test]
    fn the_counter_in_memory_keeps_the_promises_of_a_reservation() -> Result<(), Failure> {
        let shard = Memory::new();
        conformance::run(&Options::shared(), || Ok(shard.clone()))
    }

    #[test]
    fn a_counter_of_its_own_begins_at_1() {
        let tokens = NonZeroU64::MIN;
        let of_its_own = || Memory::new().reserve(tokens).map(Block::first);
        assert_eq!(of_its_own(), of_its_own());
    }
}
