//! Managers with a reservation: blocks that don't follow on each other, and an authority that is given up.
//!
//! One thread tends to the reservation, and no other takes its locks, which are none of the model's.

use std::num::NonZeroU64;
use std::sync::Mutex as PlainMutex;
use std::sync::atomic::AtomicBool as PlainBool;

use super::*;
use crate::reservation::{Block, Keeper, Reservation, ReservationError};

/// What the backend knows, in plain words: shuttle does not change threads at these.
#[derive(Default)]
struct Ledger {
    blocks: PlainMutex<Vec<Block>>,
    resigned: PlainBool,
}

impl Ledger {
    fn reserved(&self, token: u64) -> bool {
        let blocks = self.blocks.lock().expect("not poisoned");
        let within = |block: &Block| (block.first().get()..=block.last().get()).contains(&token);
        blocks.iter().any(within)
    }

    fn resigned(&self) -> bool {
        self.resigned.load(PlainOrdering::SeqCst)
    }
}

/// Somebody else is handed a hundred tokens after each of its blocks.
struct Backend(Arc<Ledger>);

impl Reservation for Backend {
    fn reserve(&mut self, tokens: NonZeroU64) -> Result<Block, ReservationError> {
        let mut blocks = self.0.blocks.lock().expect("not poisoned");
        let mark = blocks.last().map_or(0, |block| block.last().get() + 100);
        let block = Block::after(mark, tokens)?;
        blocks.push(block);
        Ok(block)
    }

    fn resign(&mut self) {
        self.0.resigned.store(true, PlainOrdering::SeqCst);
    }
}

fn with_blocks_of(tokens: u64) -> (Arc<World>, Arc<Ledger>) {
    let world = World::with(1, None, false);
    let ledger = Arc::new(Ledger::default());
    let tokens = NonZeroU64::new(tokens).expect("some");
    let keeper = Keeper::new(Box::new(Backend(Arc::clone(&ledger))), tokens, None);
    world.locks.keep(keeper).expect("a block");
    (world, ledger)
}

/// A lease of either kind, if it is to be had.
fn ask(world: &World, owner: u64) -> Option<Lease<'_>> {
    let shared = toss();
    let granted = if shared {
        world.locks.acquire(KEY, owner, LONG).shared().try_now()
    } else {
        world.locks.try_acquire(KEY, owner, LONG)
    };
    match granted {
        Ok(lease) => Some(lease),
        Err(
            AcquireError::Held { .. }
            | AcquireError::AuthorityLost
            | AcquireError::TokensNotReserved { .. },
        ) => None,
        Err(other) => panic!("{other:?}"),
    }
}

/// As long as anybody has a lease, whatever becomes of it, the authority is not given up.
#[test]
fn shuttle_an_authority_is_given_up_when_no_lease_is_out() {
    check(|| {
        let (world, ledger) = with_blocks_of(1_000);
        let holders = [1, 2].map(|owner| {
            let ledger = Arc::clone(&ledger);
            world.spawn(move |world| {
                for _ in 0..2 {
                    let Some(mut lease) = ask(world, owner) else {
                        continue;
                    };
                    assert!(!ledger.resigned(), "granted after it was given up");
                    if toss() {
                        assert_eq!(lease.downgrade(), Ok(()));
                    }
                    assert!(!ledger.resigned(), "given up under a live lease");
                    assert_eq!(lease.release(), Ok(()));
                }
            })
        });
        let keeper = world.spawn(|world| {
            world.locks.resign();
            while world.locks.tend_reservation(Duration::ZERO).is_some() {
                thread::yield_now();
            }
        });
        holders.into_iter().for_each(join);
        join(keeper);
        assert!(ledger.resigned(), "it is never given up");
        world.assert_no_ghost();
    });
}

/// Every token is of a block, and above those before it, while the table is shut and opened again and again.
#[test]
fn shuttle_tokens_are_of_blocks_that_do_not_follow() {
    check(|| {
        let (world, ledger) = with_blocks_of(3);
        let holders = [1, 2].map(|owner| {
            let ledger = Arc::clone(&ledger);
            world.spawn(move |world| {
                let mut highest = 0;
                for _ in 0..3 {
                    if let Some(lease) = ask(world, owner) {
                        let token = lease.token().get();
                        assert!(ledger.reserved(token), "{token} is somebody else's");
                        assert!(token > highest, "I2: {token} after {highest}");
                        highest = token;
                        assert_eq!(lease.release(), Ok(()), "I3");
                    }
                }
            })
        });
        let keeper = world.spawn(|world| {
            for _ in 0..3 {
                world.locks.tend_reservation(Duration::ZERO);
            }
        });
        holders.into_iter().for_each(join);
        join(keeper);
        world.assert_no_ghost();
    });
}

/// An acquisition of many that comes to its end as the authority is given up: handed out, it lasts.
#[test]
fn shuttle_what_was_acquired_at_the_last_moment_lasts() {
    check(|| {
        let (world, ledger) = with_blocks_of(1_000);
        let all = world.spawn(move |world| {
            let mut all = Box::pin(world.locks.acquire_all([KEY, OTHER], 1, LONG));
            let mut context = Context::from_waker(Waker::noop());
            if let Poll::Ready(Ok(held)) = all.as_mut().poll(&mut context) {
                for _ in 0..3 {
                    assert!(held.is_live(), "nobody has ended it");
                    assert!(!ledger.resigned(), "it is out");
                    shuttle::thread::yield_now();
                }
            }
        });
        world.locks.resign();
        world.locks.tend_reservation(Duration::ZERO);
        join(all);
    });
}
