//! Tokens of one process.

use std::num::NonZeroU64;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Block, Reservation, ReservationError};

/// A reservation in memory: **its tokens begin anew with the process.**
///
/// Clones hand out blocks of the same tokens, so managers of one process that share it never grant the same
/// one: a resource that has seen one's tokens rejects older ones of another's. Nothing survives the process,
/// and nothing keeps two managers from granting the same key at the same time.
///
/// ```
/// use std::num::NonZeroU64;
/// use tenure::reservation::{Memory, Reservation};
///
/// let mut first = Memory::new();
/// let mut second = first.clone();
/// let ten = NonZeroU64::new(10).unwrap();
/// assert_eq!(first.reserve(ten)?.last().get(), 10);
/// assert_eq!(second.reserve(ten)?.first().get(), 11);
/// # Ok::<(), tenure::reservation::ReservationError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Memory {
    mark: Arc<Mutex<u64>>,
}

impl Memory {
    /// Tokens from 1 on.
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
