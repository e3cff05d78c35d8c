//! Workers in threads share out the shards of a pool: two at first, then a third joins, then one dies
//! without a word, and at last one leaves.

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tenure::recipes::ShardPool;
use tenure::{Fenced, LockManager, OwnerId};

type Failure = Box<dyn Error + Send + Sync>;

const SHARDS: usize = 8;
const TTL: Duration = Duration::from_millis(400);
const TURN: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(2);

/// A shard: the writes that it took. It refuses those of former owners.
type Shard = Fenced<u64>;

/// How a worker is told to end.
#[derive(Default)]
struct Orders {
    leave: AtomicBool,
    /// It stops at once, and tells nobody.
    die: AtomicBool,
}

struct World {
    pool: ShardPool,
    shards: Vec<Shard>,
    refused: AtomicU64,
}

/// A worker's loop.
fn work(world: &World, worker: u64, orders: &Orders) -> Result<(), Failure> {
    let mut member = world.pool.join(worker, TTL)?;
    println!("{worker}: joins");
    while !orders.leave.load(Ordering::Relaxed) {
        if orders.die.load(Ordering::Relaxed) {
            println!("{worker}: dies");
            std::mem::forget(member);
            return Ok(());
        }
        member.keep_alive()?;
        let changes = member.rebalance()?;
        if !changes.lost.is_empty() {
            println!("{worker}: gives up {:?}", changes.lost);
            // Here it would finish what it has under way on them.
            member.let_go();
        }
        for (shard, token) in changes.gained {
            println!("{worker}: owns shard {shard}, with token {token}");
        }
        for (shard, token) in member.shards() {
            if world.shards[shard]
                .write(token, |writes| *writes += 1)
                .is_err()
            {
                world.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
        thread::sleep(TURN);
    }
    println!("{worker}: leaves");
    member.leave()?;
    Ok(())
}

/// Waits until these workers share all shards evenly, and says how many changed hands.
fn until_even(
    pool: &ShardPool,
    workers: &[u64],
    before: &mut Vec<Option<OwnerId>>,
) -> Result<(), Failure> {
    let start = Instant::now();
    loop {
        let owner = |shard| pool.owner(shard).map(|holder| holder.owner);
        let owners: Vec<_> = (0..SHARDS).map(owner).collect();
        let counts: Vec<_> = workers
            .iter()
            .map(|worker| {
                owners
                    .iter()
                    .filter(|owner| **owner == Some(OwnerId(*worker)))
            })
            .map(Iterator::count)
            .collect();
        let (least, most) = (counts.iter().min(), counts.iter().max());
        let even = least
            .zip(most)
            .is_some_and(|(least, most)| most - least <= 1);
        if even && counts.iter().sum::<usize>() == SHARDS {
            let moved = owners
                .iter()
                .zip(&*before)
                .filter(|(now, then)| now != then);
            println!(
                "-- {workers:?} own {counts:?}, {} shards moved",
                moved.count()
            );
            *before = owners;
            return Ok(());
        }
        if start.elapsed() > PATIENCE {
            return Err(format!("{workers:?} own {counts:?} after {PATIENCE:?}").into());
        }
        thread::sleep(TURN / 4);
    }
}

fn main() -> Result<(), Failure> {
    let world = World {
        pool: ShardPool::new(&LockManager::new(), "orders", SHARDS),
        shards: (0..SHARDS).map(|_| Shard::default()).collect(),
        refused: AtomicU64::new(0),
    };
    let orders: [Orders; 4] = Default::default();
    let mut owners = vec![None; SHARDS];
    thread::scope(|scope| {
        let (world, orders) = (&world, &orders);
        let hire = |worker: u64| {
            let orders = &orders[usize::try_from(worker).unwrap_or(0)];
            scope.spawn(move || work(world, worker, orders))
        };
        let run = |owners: &mut Vec<_>| -> Result<_, Failure> {
            let mut threads = vec![hire(1), hire(2)];
            until_even(&world.pool, &[1, 2], owners)?;
            threads.push(hire(3));
            until_even(&world.pool, &[1, 2, 3], owners)?;
            orders[1].die.store(true, Ordering::Relaxed);
            until_even(&world.pool, &[2, 3], owners)?;
            orders[2].leave.store(true, Ordering::Relaxed);
            until_even(&world.pool, &[3], owners)?;
            Ok(threads)
        };
        let ran = run(&mut owners);
        // Whatever came of it, so that the threads end.
        for orders in orders {
            orders.leave.store(true, Ordering::Relaxed);
        }
        for thread in ran? {
            thread.join().expect("no panic")?;
        }
        Ok::<_, Failure>(())
    })?;
    let writes: Vec<_> = world.shards.into_iter().map(Shard::into_inner).collect();
    let refused = world.refused.into_inner();
    println!("writes to each shard: {writes:?}, refused: {refused}");
    if writes.contains(&0) || !world.pool.members().is_empty() {
        return Err("a shard was never written, or a member is left".into());
    }
    Ok(())
}
