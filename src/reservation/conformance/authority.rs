//! The checks of authority: who has it, for how long, and what others are told.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::super::{Reservation, ReservationError};
use super::client::{Client, Witness, pause, tokens};
use super::{Failure, Options};

/// Campaigns for a backend without authority: it has always won at once, and for ever.
///
/// # Errors
///
/// A campaign that is lost, or a term.
///
/// ```
/// use tenure::reservation::Memory;
/// use tenure::reservation::conformance::{Options, without_authority_it_is_for_ever};
///
/// let shard = Memory::new();
/// without_authority_it_is_for_ever(&Options::shared(), || Ok(shard.clone()))?;
/// # Ok::<(), tenure::reservation::conformance::Failure>(())
/// ```
pub fn without_authority_it_is_for_ever<R: Reservation>(
    options: &Options,
    open: impl Fn() -> Result<R, ReservationError> + Sync,
) -> Result<(), Failure> {
    let witness = Witness::new("without_authority_it_is_for_ever", options);
    let mut client = witness.open(&open)?;
    for _ in 0..2 {
        if let Err(error) = client.campaign(Duration::ZERO)? {
            return Err(witness.failure(format!("a campaign was lost: {error}")));
        }
        client.must_reserve(tokens(1))?;
    }
    Ok(())
}

/// Opens a shard that is open.
///
/// # Errors
///
/// It can be opened, or the error is not `Held`, or names nobody; the first client is disturbed; or it can't be
/// opened when the first is closed.
///
/// ```
/// use tenure::reservation::Memory;
/// use tenure::reservation::conformance::{Options, a_second_client_is_refused};
///
/// // Any number of clients may have a counter in memory: it is of another kind.
/// let shard = Memory::new();
/// a_second_client_is_refused(&Options::one_at_a_time(), || Ok(shard.clone())).unwrap_err();
/// ```
pub fn a_second_client_is_refused<R: Reservation>(
    options: &Options,
    open: impl Fn() -> Result<R, ReservationError> + Sync,
) -> Result<(), Failure> {
    let witness = Witness::new("a_second_client_is_refused", options);
    for _ in 0..options.rounds.max(1) {
        let mut first = witness.open(&open)?;
        first.must_reserve(tokens(3))?;
        match witness.try_open(&open) {
            Ok(_) => return Err(witness.failure("a shard that is open was opened again")),
            Err(error) => held(&witness, &error)?,
        }
        first.must_reserve(tokens(3))?;
    }
    Ok(())
}

/// Lets a client without authority try everything while another has it.
///
/// # Errors
///
/// It is handed a block, wins, or the other is disturbed.
///
/// ```
/// use tenure::reservation::Memory;
/// use tenure::reservation::conformance::{Options, a_contender_is_handed_nothing};
///
/// // A counter in memory has no authority: it is of another kind.
/// let shard = Memory::new();
/// a_contender_is_handed_nothing(&Options::shared(), || Ok(shard.clone())).unwrap_err();
/// ```
pub fn a_contender_is_handed_nothing<R: Reservation>(
    options: &Options,
    open: impl Fn() -> Result<R, ReservationError> + Sync,
) -> Result<(), Failure> {
    let witness = Witness::new("a_contender_is_handed_nothing", options);
    while_held(&witness, &open, || {
        let mut contender = witness.open(&open)?;
        let before = contender.reserve(tokens(2))?.is_ok();
        let won = contender.campaign(Duration::from_millis(20))?.is_ok();
        let after = contender.reserve(tokens(2))?.is_ok();
        let kept = contender.keep_alive()?.is_ok();
        // Giving up what one has not got must not take it from who has.
        contender.resign();
        let refusals = [
            (before, "before it campaigned, blocks were handed out"),
            (won, "a campaign was won"),
            (after, "after a lost campaign, blocks were handed out"),
            (kept, "keep_alive kept what was not there"),
        ];
        Ok(refusals
            .iter()
            .find(|(happened, _)| *happened)
            .map(|(_, what)| witness.failure(format!("{what}, while another had authority"))))
    })
}

/// Campaigns for a shard that somebody has, with no patience, with little, and with some.
///
/// # Errors
///
/// A campaign takes longer than patience and [`Options::slack`], is won, or is lost with another error than `Held`.
///
/// ```
/// use tenure::reservation::Memory;
/// use tenure::reservation::conformance::{Options, patience_is_kept_to};
///
/// // A counter in memory has no authority: it is of another kind.
/// let shard = Memory::new();
/// patience_is_kept_to(&Options::shared(), || Ok(shard.clone())).unwrap_err();
/// ```
pub fn patience_is_kept_to<R: Reservation>(
    options: &Options,
    open: impl Fn() -> Result<R, ReservationError> + Sync,
) -> Result<(), Failure> {
    let witness = Witness::new("patience_is_kept_to", options);
    while_held(&witness, &open, || {
        let mut contender = witness.open(&open)?;
        for patience in [0, 20, 200].map(Duration::from_millis) {
            let started = Instant::now();
            let answer = contender.campaign(patience)?;
            let took = started.elapsed();
            if took > patience + options.slack {
                return Err(witness.failure(format!(
                    "a campaign with a patience of {patience:?} took {took:?}"
                )));
            }
            match answer {
                Ok(()) => {
                    return Ok(Some(
                        witness.failure("a campaign was won, while another had authority"),
                    ));
                }
                Err(error) => held(&witness, &error)?,
            }
        }
        Ok(None)
    })
}

/// Resigns, while somebody waits for it and while nobody does.
///
/// # Errors
///
/// A successor wins only when the term would have been over anyway (at each of three tries), or who has
/// resigned is handed blocks.
///
/// ```
/// use tenure::reservation::Memory;
/// use tenure::reservation::conformance::{Options, authority_passes_on_after_resigning};
///
/// // A counter in memory has no authority: it is of another kind.
/// let shard = Memory::new();
/// authority_passes_on_after_resigning(&Options::shared(), || Ok(shard.clone())).unwrap_err();
/// ```
pub fn authority_passes_on_after_resigning<R: Reservation>(
    options: &Options,
    open: impl Fn() -> Result<R, ReservationError> + Sync,
) -> Result<(), Failure> {
    let witness = Witness::new("authority_passes_on_after_resigning", options);
    let term = witness.term()?;
    for waiting in [false, true] {
        let mut late = 0;
        while !passes_on(&witness, &open, waiting)? {
            late += 1;
            if late == 3 {
                return Err(witness.failure(format!(
                    "who has authority resigned, and nobody could win it before its term of {term:?} \
                     was over"
                )));
            }
        }
    }
    Ok(())
}

/// Whether a successor wins before the term of who resigns would have been over.
fn passes_on<R: Reservation>(
    witness: &Witness<'_>,
    open: &(impl Fn() -> Result<R, ReservationError> + Sync),
    waiting: bool,
) -> Result<bool, Failure> {
    let mut first = witness.open(open)?;
    let mut second = witness.open(open)?;
    first.win()?;
    first.must_reserve(tokens(3))?;
    let until = first.until();
    if !waiting {
        first.resign();
    }
    thread::scope(|scope| {
        let successor = scope.spawn(|| second.win());
        if waiting {
            thread::sleep(witness.term()? / 8);
            first.resign();
        }
        join(witness, successor)
    })?;
    let in_time = until.is_some_and(|until| Instant::now() < until);
    // `Client` sees to it that it is told nothing, and handed nothing, while the second has authority.
    let _ = first.keep_alive()?;
    let _ = first.reserve(tokens(2))?;
    second.must_reserve(tokens(3))?;
    second.resign();
    Ok(in_time)
}

/// Keeps an authority alive for three terms, while another campaigns for it.
///
/// # Errors
///
/// The other wins, or the authority is lost.
///
/// ```
/// use tenure::reservation::Memory;
/// use tenure::reservation::conformance::{Options, a_kept_authority_stays};
///
/// // A counter in memory has no authority: it is of another kind.
/// let shard = Memory::new();
/// a_kept_authority_stays(&Options::shared(), || Ok(shard.clone())).unwrap_err();
/// ```
pub fn a_kept_authority_stays<R: Reservation>(
    options: &Options,
    open: impl Fn() -> Result<R, ReservationError> + Sync,
) -> Result<(), Failure> {
    let witness = Witness::new("a_kept_authority_stays", options);
    let term = witness.term()?;
    while_held(&witness, &open, || {
        let mut contender = witness.open(&open)?;
        let started = Instant::now();
        while started.elapsed() < 3 * term {
            if contender.campaign(term / 8)?.is_ok() {
                contender.resign();
                let after = started.elapsed();
                return Ok(Some(witness.failure(format!(
                    "an authority that was kept alive was won by another after {after:?}, with a \
                     term of {term:?}"
                ))));
            }
            pause();
        }
        Ok(None)
    })
}

/// Lets an authority run out, just won and kept alive, while another campaigns for it.
///
/// # Errors
///
/// The other has it before its end, or not when it is over by [`Options::slack`].
///
/// ```
/// use tenure::reservation::Memory;
/// use tenure::reservation::conformance::{Options, authority_passes_on_after_its_term};
///
/// // A counter in memory has no authority: it is of another kind.
/// let shard = Memory::new();
/// authority_passes_on_after_its_term(&Options::shared(), || Ok(shard.clone())).unwrap_err();
/// ```
pub fn authority_passes_on_after_its_term<R: Reservation>(
    options: &Options,
    open: impl Fn() -> Result<R, ReservationError> + Sync,
) -> Result<(), Failure> {
    let witness = Witness::new("authority_passes_on_after_its_term", options);
    let term = witness.term()?;
    for kept in [false, true] {
        let mut first = witness.open(&open)?;
        let mut second = witness.open(&open)?;
        first.win()?;
        first.must_reserve(tokens(3))?;
        if kept {
            thread::sleep(term / 2);
            // Refused only if it was over, of which there is nothing to say.
            let _ = first.keep_alive()?;
        }
        // `Client` sees to it that this is not before the end of the first one's term.
        second.win()?;
        second.must_reserve(tokens(3))?;
        second.resign();
    }
    Ok(())
}

/// Loses an authority to another, and asks for blocks: while the other has it, and when nobody has.
///
/// # Errors
///
/// It is handed some, or told anything but `Lost`; or it can't win the shard back.
///
/// ```
/// use tenure::reservation::Memory;
/// use tenure::reservation::conformance::{Options, after_a_loss_nothing_is_handed_out};
///
/// // A counter in memory has no authority: it is of another kind.
/// let shard = Memory::new();
/// after_a_loss_nothing_is_handed_out(&Options::shared(), || Ok(shard.clone())).unwrap_err();
/// ```
pub fn after_a_loss_nothing_is_handed_out<R: Reservation>(
    options: &Options,
    open: impl Fn() -> Result<R, ReservationError> + Sync,
) -> Result<(), Failure> {
    let witness = Witness::new("after_a_loss_nothing_is_handed_out", options);
    witness.term()?;
    let mut first = witness.open(&open)?;
    let mut second = witness.open(&open)?;
    first.win()?;
    first.must_reserve(tokens(3))?;
    second.win()?;
    second.must_reserve(tokens(3))?;
    for whose in ["another's", "nobody's"] {
        for answer in [
            first.reserve(tokens(2))?.map(|_| ()),
            first.keep_alive()?,
            first.reserve(tokens(2))?.map(|_| ()),
        ] {
            if answer != Err(ReservationError::Lost) {
                return Err(witness.failure(format!(
                    "the authority was lost, and the shard was {whose}: `Lost` should be said until the \
                     next campaign, and not {answer:?}"
                )));
            }
        }
        second.resign();
    }
    first.win()?;
    first.must_reserve(tokens(3))?;
    first.resign();
    Ok(())
}

/// How often the holder of a check may sleep through its own term.
const TRIES: usize = 5;

/// Runs `body` while a client has authority and keeps it alive. What `body` returns is a failure only if the
/// client had it all the time; if not, all is done again.
fn while_held<R: Reservation>(
    witness: &Witness<'_>,
    open: &(impl Fn() -> Result<R, ReservationError> + Sync),
    body: impl Fn() -> Result<Option<Failure>, Failure>,
) -> Result<(), Failure> {
    let term = witness.term()?;
    for _ in 0..TRIES {
        let mut holder = witness.open(open)?;
        holder.win()?;
        let over = AtomicBool::new(false);
        let (outcome, kept) = thread::scope(|scope| {
            let keeper = scope.spawn(|| keep(&mut holder, term, &over));
            let outcome = body();
            over.store(true, Ordering::Release);
            (outcome, join(witness, keeper))
        });
        let (outcome, kept) = (outcome?, kept?);
        if kept {
            if let Some(failure) = outcome {
                return Err(failure);
            }
            holder.must_reserve(tokens(2))?;
            holder.resign();
            return Ok(());
        }
        holder.resign();
    }
    Err(witness.failure(format!(
        "nothing can be said: at each of {TRIES} tries, keep_alive came too late for a term of \
         {term:?}; try a longer one"
    )))
}

/// Keeps the authority alive until it is over; whether it was never lost meanwhile.
fn keep<R: Reservation>(
    holder: &mut Client<'_, '_, R>,
    term: Duration,
    over: &AtomicBool,
) -> Result<bool, Failure> {
    let mut until = holder.until();
    loop {
        let last = over.load(Ordering::Acquire);
        let answer = holder.keep_alive()?;
        // Between the end of one term and the beginning of the next, another may have had it.
        if answer.is_err() || until.is_none_or(|until| Instant::now() >= until) {
            return Ok(false);
        }
        if last {
            return Ok(true);
        }
        until = holder.until();
        thread::sleep(term / 8);
    }
}

/// The error of a shard that somebody has.
fn held(witness: &Witness<'_>, error: &ReservationError) -> Result<(), Failure> {
    match error {
        ReservationError::Held { holder } if !holder.is_empty() => Ok(()),
        error => Err(witness.failure(format!(
            "somebody has the shard: that is `Held`, and says who it is, and not {error:?}"
        ))),
    }
}

fn join<T>(
    witness: &Witness<'_>,
    thread: thread::ScopedJoinHandle<'_, Result<T, Failure>>,
) -> Result<T, Failure> {
    thread
        .join()
        .unwrap_or_else(|_| Err(witness.failure("the backend panicked")))
}
