//! What leases are most often used for, ready made: leader election and the ownership of shards.
//!
//! Both are built on the public interface of [`LockManager`] alone, so each is also an example of how to
//! build a third. Their values own what they need, a handle of the manager included: they can be stored,
//! sent to other threads and held across `.await`, and the manager runs on while one of them is there.
//!
//! | recipe | is | source |
//! |---|---|---|
//! | [`Election`] | one key, whose holder leads; who waits for it is next | the elections of Chubby (Burrows, 2006), of the `ZooKeeper` recipes and of etcd's `concurrency` package |
//! | [`ShardPool`] | a key for each shard; members share them out, and take over those of the dead | the group membership of `ZooKeeper`'s recipes, and the sticky assignment of Kafka's consumer groups (KIP-54) |
//!
//! A leader, like an owner of a shard, may be paused for longer than its lease and not know it. So both
//! have a fencing token, which goes along with every write, to a resource that rejects old ones
//! ([`Fenced`](crate::Fenced)).

mod election;
mod observer;
mod shards;

pub use self::election::{Campaign, Election, Leader, Leadership};
pub use self::observer::{Changed, Observer};
pub use self::shards::{Changes, Member, ShardPool};

use crate::{Key, LockManager};

/// A key that belongs to a recipe's name: no other name, of whatever kind, is that key.
fn derived(locks: &LockManager, kind: &str, name: Key, number: u64) -> Key {
    let mut bytes = Vec::with_capacity(64);
    bytes.extend_from_slice(b"tenure::recipes/");
    bytes.extend_from_slice(kind.as_bytes());
    bytes.push(0);
    bytes.extend_from_slice(&name.as_raw().to_be_bytes());
    bytes.extend_from_slice(&number.to_be_bytes());
    locks.key(bytes)
}
