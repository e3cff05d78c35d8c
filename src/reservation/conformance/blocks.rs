//! The checks of blocks: their size, their order, and the end of all tokens.

use std::num::NonZeroU64;
use std::thread;
use std::time::{Duration, Instant};

use super::super::{Reservation, ReservationError};
use super::client::{Client, Witness, pause, tokens};
use super::{Clients, Failure, Options};
use crate::token::FencingToken;

/// Asks one client for blocks of one token, of a few, and of 2^40.
///
/// # Errors
///
/// A block that is larger or smaller, or not above the one before; or none.
///
/// ```
/// use tenure::reservation::Memory;
/// use tenure::reservation::conformance::{Options, blocks_are_as_asked_for};
///
/// let shard = Memory::new();
/// blocks_are_as_asked_for(&Options::shared(), || Ok(shard.clone()))?;
/// # Ok::<(), tenure::reservation::conformance::Failure>(())
/// ```
pub fn blocks_are_as_asked_for<R: Reservation>(
    options: &Options,
    open: impl Fn() -> Result<R, ReservationError> + Sync,
) -> Result<(), Failure> {
    let witness = Witness::new("blocks_are_as_asked_for", options);
    let mut client = witness.open(&open)?;
    client.win()?;
    for count in [1, 1, 2, 3, 10, 1000, 1 << 16, 1, 1 << 32, 1 << 40, 1] {
        client.must_reserve(tokens(count))?;
    }
    client.resign();
    Ok(())
}

/// How often an elected client crashes, which keeps the next waiting for a term.
const ELECTED_CRASHES: usize = 2;

/// Opens a client, takes a few blocks and drops it without resigning, as a crash does; again and again. Elected
/// clients crash twice, if in real time, and resign otherwise.
///
/// # Errors
///
/// A block that is not above every block before; or none.
///
/// ```
/// use tenure::reservation::Memory;
/// use tenure::reservation::conformance::{Options, blocks_rise_through_crashes};
///
/// let shard = Memory::new();
/// blocks_rise_through_crashes(&Options::shared(), || Ok(shard.clone()))?;
/// # Ok::<(), tenure::reservation::conformance::Failure>(())
/// ```
pub fn blocks_rise_through_crashes<R: Reservation>(
    options: &Options,
    open: impl Fn() -> Result<R, ReservationError> + Sync,
) -> Result<(), Failure> {
    let witness = Witness::new("blocks_rise_through_crashes", options);
    let crashes = match options.clients {
        Clients::Shared | Clients::OneAtATime => usize::MAX,
        Clients::Elected { .. } if options.real_time => ELECTED_CRASHES,
        Clients::Elected { .. } => 0,
    };
    for round in 0..options.rounds.max(2) {
        let mut client = witness.open(&open)?;
        client.win()?;
        for count in [1, 7, 1 + round as u64] {
            client.must_reserve(tokens(count))?;
        }
        if round >= crashes {
            client.resign();
        }
    }
    Ok(())
}

/// How long a thread waits for its turn before it lets the round be.
const TURN: Duration = Duration::from_secs(1);

/// Opens clients from many threads at once, as often as [`Options::rounds`] says from each, and takes a few blocks
/// with each. Those that have to take turns do.
///
/// # Errors
///
/// A block that is not above all that had been handed out when it was asked for, or that overlaps with
/// another; two that have authority at once; or no block at all.
///
/// ```
/// use tenure::reservation::Memory;
/// use tenure::reservation::conformance::{Options, blocks_of_many_clients_never_overlap};
///
/// let shard = Memory::new();
/// blocks_of_many_clients_never_overlap(&Options::shared().threads(2), || Ok(shard.clone()))?;
/// # Ok::<(), tenure::reservation::conformance::Failure>(())
/// ```
pub fn blocks_of_many_clients_never_overlap<R: Reservation>(
    options: &Options,
    open: impl Fn() -> Result<R, ReservationError> + Sync,
) -> Result<(), Failure> {
    let witness = Witness::new("blocks_of_many_clients_never_overlap", options);
    thread::scope(|scope| {
        let many = || (0..options.rounds).try_for_each(|_| one_of_many(&witness, &open));
        let threads: Vec<_> = (0..options.threads).map(|_| scope.spawn(many)).collect();
        threads
            .into_iter()
            .try_for_each(|thread| match thread.join() {
                Ok(outcome) => outcome,
                Err(_) => Err(witness.failure("the backend panicked")),
            })
    })?;
    if witness.blocks() == 0 && options.rounds > 0 && options.threads > 0 {
        return Err(witness.failure("no client of any thread ever got to reserve a block"));
    }
    Ok(())
}

fn one_of_many<R: Reservation>(
    witness: &Witness<'_>,
    open: &impl Fn() -> Result<R, ReservationError>,
) -> Result<(), Failure> {
    let Some(mut client) = in_turn(witness, open)? else {
        return Ok(());
    };
    for count in [1, 5, 2] {
        match client.reserve(tokens(count))? {
            Ok(_) => thread::yield_now(),
            // Slept through its term: `Client` has seen to it that it was over.
            Err(ReservationError::Lost) => break,
            Err(error) => return Err(witness.failure(format!("no tokens: {error}"))),
        }
    }
    client.resign();
    Ok(())
}

/// A client that has the shard, if it could be had in time.
fn in_turn<'w, 'a, R: Reservation>(
    witness: &'w Witness<'a>,
    open: &impl Fn() -> Result<R, ReservationError>,
) -> Result<Option<Client<'w, 'a, R>>, Failure> {
    let started = Instant::now();
    let mut client = loop {
        match witness.try_open(open) {
            Ok(client) => break client,
            Err(ReservationError::Held { .. })
                if witness.options.clients == Clients::OneAtATime =>
            {
                if started.elapsed() > TURN {
                    return Ok(None);
                }
                pause();
            }
            Err(error) => {
                return Err(witness.failure(format!("a client could not be opened: {error}")));
            }
        }
    };
    while client
        .campaign(TURN.saturating_sub(started.elapsed()))?
        .is_err()
    {
        if started.elapsed() > TURN {
            return Ok(None);
        }
        pause();
    }
    Ok(Some(client))
}

/// With fewer tokens than this left, they are taken one by one.
const FEW: u64 = 16;

/// Takes tokens until none is left, and then asks for more. **It uses the shard up.**
///
/// # Errors
///
/// `Exhausted` is said while enough tokens are left, or not said when they are not, or is followed by a block,
/// also after reopening; or a block that is no such block.
///
/// ```
/// use tenure::reservation::Memory;
/// use tenure::reservation::conformance::{Options, the_last_token_is_the_end};
///
/// let shard = Memory::new();
/// the_last_token_is_the_end(&Options::shared(), || Ok(shard.clone()))?;
/// # Ok::<(), tenure::reservation::conformance::Failure>(())
/// ```
pub fn the_last_token_is_the_end<R: Reservation>(
    options: &Options,
    open: impl Fn() -> Result<R, ReservationError> + Sync,
) -> Result<(), Failure> {
    const MOST: u64 = FencingToken::MAX.get();
    let witness = Witness::new("the_last_token_is_the_end", options);
    let mut client = witness.open(&open)?;
    client.win()?;
    let mut last = client.must_reserve(tokens(1))?.last().get();
    for too_many in [u64::MAX, MOST, MOST - last + 1] {
        exhausted(&witness, &mut client, tokens(too_many), last)?;
        // What is left can still be had.
        last = client.must_reserve(tokens(1))?.last().get();
    }
    while MOST - last > FEW {
        let half = (MOST - last) / 2;
        last = client.must_reserve(tokens(half))?.last().get();
    }
    exhausted(&witness, &mut client, tokens(MOST - last + 1), last)?;
    while last < MOST {
        match client.reserve_kept(tokens(1))? {
            Ok(block) => last = block.last().get(),
            // A backend may have lost some tokens on the way, such as to a try that failed.
            Err(ReservationError::Exhausted { .. }) => break,
            Err(error) => return Err(witness.failure(format!("no token: {error}"))),
        }
    }
    for _ in 0..3 {
        exhausted(&witness, &mut client, tokens(1), last)?;
    }
    exhausted(&witness, &mut client, tokens(u64::MAX), last)?;
    client.resign();
    drop(client);
    let mut client = witness.open(&open)?;
    client.win()?;
    exhausted(&witness, &mut client, tokens(1), last)?;
    client.resign();
    Ok(())
}

fn exhausted<R: Reservation>(
    witness: &Witness<'_>,
    client: &mut Client<'_, '_, R>,
    count: NonZeroU64,
    last: u64,
) -> Result<(), Failure> {
    match client.reserve_kept(count)? {
        Err(ReservationError::Exhausted { mark }) if mark >= last => Ok(()),
        Err(error) => Err(witness.failure(format!(
            "{count} tokens above {last} are more than there are: that is `Exhausted`, with the highest \
             token that was handed out, and not {error:?}"
        ))),
        Ok(block) => Err(witness.failure(format!(
            "{count} tokens above {last} are more than there are, and yet {}..={} was handed out",
            block.first(),
            block.last()
        ))),
    }
}
