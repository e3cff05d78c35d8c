//! How much room a collection keeps beyond its contents: those of `std` grow by themselves, and never shrink.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// Collections with less room than this are left as they are.
pub(crate) const SMALL: usize = 64;
/// Others shrink if they are filled to less than this part.
const FILLED: usize = 4;

/// Whether something with so many entries and so much room is to shrink, and to which room: so that it has
/// to double before it grows, and to lose half before it shrinks again.
pub(crate) fn shrinks(len: usize, room: usize) -> Option<usize> {
    (room > SMALL && len < room / FILLED).then_some(2 * len)
}

/// Shrinks a map that is nearly empty.
pub(crate) fn shrink<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    if let Some(room) = shrinks(map.len(), map.capacity()) {
        map.shrink_to(room);
    }
}
