//! How much room a collection keeps beyond its contents: those of `std` grow by themselves, and never shrink.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// Collections with no more room than this are left as they are.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_filled_to_less_than_a_quarter_keeps_room_for_twice_its_contents() {
        assert_eq!(shrinks(24, 100), Some(48));
        assert_eq!(shrinks(0, 100), Some(0));
        assert_eq!(shrinks(25, 100), None, "a quarter is filled");
        assert_eq!(shrinks(100, 100), None);
        assert_eq!(shrinks(1, SMALL), None, "it is small");
        assert_eq!(shrinks(1, SMALL + 1), Some(2));
    }

    #[test]
    fn a_map_that_has_emptied_gives_its_room_back_and_keeps_what_is_in_it() {
        let mut map: HashMap<u64, u64> = (0..10_000).map(|key| (key, key + 1)).collect();
        map.retain(|&key, _| key < 100);
        assert!(map.capacity() >= 10_000);
        shrink(&mut map);
        assert!((200..1_000).contains(&map.capacity()), "{}", map.capacity());
        assert_eq!(map.len(), 100);
        assert!((0..100).all(|key| map[&key] == key + 1));
    }
}
