//! Backends that break one promise each, which the checks have to notice; and such as keep them all.

mod shard;

use std::mem;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use self::shard::{Fault, SLACK, Shard, TERM};
use super::*;
use crate::reservation::{Block, Memory};

fn outcome(kind: Options, fault: Fault) -> Result<(), Failure> {
    let kind = kind.rounds(6).slack(SLACK);
    let shard = Shard::new(kind.clone(), fault);
    run(&kind, || shard.open())
}

/// It depends on the moment which check is the first to notice.
const ANY: &str = "";

/// How often a machine that stands still for a term may keep the check from noticing, or have another notice.
const TRIES: usize = 3;

/// The check that notices it, on a shard of that kind.
#[track_caller]
fn assert_noticed(kind: &Options, fault: Fault, check: &str, words: &str) {
    let mut outcomes = vec![];
    while outcomes.len() < TRIES {
        let outcome = outcome(kind.clone(), fault);
        if is_noticed(&outcome, check, words) {
            return;
        }
        outcomes.push(outcome);
    }
    panic!("{fault:?}: {outcomes:?}");
}

fn is_noticed(outcome: &Result<(), Failure>, check: &str, words: &str) -> bool {
    let as_expected = |failure: &Failure| {
        (check == ANY || failure.check() == check) && failure.to_string().contains(words)
    };
    outcome.as_ref().is_err_and(as_expected)
}

/// In a thread each, since most of them wait.
fn assert_each_noticed(kind: &Options, faults: &[(Fault, &str, &str)]) {
    thread::scope(|scope| {
        for (fault, check, words) in faults {
            scope.spawn(|| assert_noticed(kind, *fault, check, words));
        }
    });
}

#[test]
fn backends_that_keep_their_promises_pass() {
    for kind in [
        Options::shared(),
        Options::one_at_a_time(),
        Options::elected(TERM),
    ] {
        let outcome = outcome(kind.clone(), Fault::None);
        assert_eq!(outcome, Ok(()), "{kind:?}");
    }
}

#[test]
fn a_failure_reads_the_same_when_a_test_ends_with_it() {
    let failure = outcome(Options::shared(), Fault::OneTooFew).expect_err("nobody noticed");
    let printed = format!("{failure:?}");
    assert_eq!(printed, failure.to_string());
    assert!(printed.contains(failure.check()), "{printed}");
}

/// Of a shard of that kind, which somebody else has for ever.
fn nobody_gets_it(options: &Options) -> Result<(), Failure> {
    blocks_of_many_clients_never_overlap(options, || {
        let holder = "somebody else".to_owned();
        Err::<Memory, _>(ReservationError::Held { holder })
    })
}

#[test]
fn a_shard_that_no_client_ever_gets_is_noticed_if_one_was_to_get_it() {
    let options = Options::one_at_a_time().rounds(1).threads(2);
    let failure = nobody_gets_it(&options).expect_err("nobody noticed");
    assert!(failure.to_string().contains("ever got"), "{failure}");
    assert_eq!(nobody_gets_it(&options.clone().rounds(0)), Ok(()));
    assert_eq!(nobody_gets_it(&options.threads(0)), Ok(()));
}

/// Is held by somebody else at the first campaigns, if there are any; then by nobody.
struct Late {
    campaigns: usize,
}

impl Reservation for Late {
    fn campaign(&mut self, _: Duration) -> Result<(), ReservationError> {
        if self.campaigns > 0 {
            self.campaigns -= 1;
            let holder = "somebody else".to_owned();
            return Err(ReservationError::Held { holder });
        }
        Ok(())
    }

    fn keep_alive(&mut self) -> Result<Option<Duration>, ReservationError> {
        Ok(Some(TERM))
    }

    fn reserve(&mut self, tokens: NonZeroU64) -> Result<Block, ReservationError> {
        static MARK: AtomicU64 = AtomicU64::new(0);
        Block::after(MARK.fetch_add(tokens.get(), Ordering::SeqCst), tokens)
    }
}

#[test]
fn a_client_waits_for_its_turn_for_a_while() {
    let options = Options::elected(TERM).rounds(1).threads(1);
    let outcome =
        |campaigns| blocks_of_many_clients_never_overlap(&options, || Ok(Late { campaigns }));
    assert_eq!(outcome(3), Ok(()));
    let failure = outcome(usize::MAX).expect_err("nobody noticed");
    assert!(failure.to_string().contains("ever got"), "{failure}");
}

#[test]
fn without_real_time_no_elected_client_crashes() {
    let kind = Options::elected(TERM).slack(SLACK).real_time(false);
    let shard = Shard::new(kind.clone(), Fault::NeverEnds);
    let outcome = blocks_rise_through_crashes(&kind, || shard.open());
    assert_eq!(outcome, Ok(()));
}

/// Has lost an authority that no term was said of.
struct Loses;

impl Reservation for Loses {
    fn reserve(&mut self, _: NonZeroU64) -> Result<Block, ReservationError> {
        Err(ReservationError::Lost)
    }
}

#[test]
fn a_loss_without_a_term_is_noticed() {
    let options = Options::shared().rounds(1);
    let failure = run(&options, || Ok(Loses)).expect_err("nobody noticed");
    assert!(failure.to_string().contains("not to be had"), "{failure}");
}

/// Stands still for a term before its first block, as a busy machine may.
struct Stands<R> {
    client: R,
    stood: bool,
}

impl<R: Reservation> Reservation for Stands<R> {
    fn campaign(&mut self, patience: Duration) -> Result<(), ReservationError> {
        self.client.campaign(patience)
    }

    fn keep_alive(&mut self) -> Result<Option<Duration>, ReservationError> {
        self.client.keep_alive()
    }

    fn reserve(&mut self, tokens: NonZeroU64) -> Result<Block, ReservationError> {
        if !mem::replace(&mut self.stood, true) {
            thread::sleep(TERM);
        }
        self.client.reserve(tokens)
    }

    fn resign(&mut self) {
        self.client.resign();
    }
}

#[test]
fn a_term_that_ends_while_the_machine_stands_still_is_no_failure() {
    let kind = Options::elected(TERM).slack(SLACK);
    let shard = Shard::new(kind.clone(), Fault::None);
    let outcome = blocks_are_as_asked_for(&kind, || {
        let client = shard.open()?;
        let stood = false;
        Ok(Stands { client, stood })
    });
    assert_eq!(outcome, Ok(()));
}

#[test]
fn wrong_blocks_are_noticed() {
    let faults = [
        (Fault::OneTooFew, "blocks_are_as_asked_for", "asked for"),
        (Fault::OneTooMany, "blocks_are_as_asked_for", "asked for"),
        (Fault::FirstTokenTwice, "blocks_are_as_asked_for", "above"),
        (
            Fault::RunsOutEarly,
            "blocks_are_as_asked_for",
            "not to be had",
        ),
        (
            Fault::BeginsAnewWhenOpened,
            "blocks_rise_through_crashes",
            "above",
        ),
        (
            Fault::ForgetsWhatACrashedClientTook,
            "blocks_rise_through_crashes",
            "above",
        ),
        (
            Fault::HandsOutOfAPrivateStock,
            "blocks_of_many_clients_never_overlap",
            "above",
        ),
        (
            Fault::ReadsAndWritesInTwoSteps,
            "blocks_of_many_clients_never_overlap",
            "",
        ),
    ];
    assert_each_noticed(&Options::shared(), &faults);
}

#[test]
fn a_wrong_end_of_the_tokens_is_noticed() {
    let faults = [
        (Fault::BeginsAnewAtTheEnd, "asked for"),
        (Fault::GoesPastTheEnd, "asked for"),
        (Fault::HandsOutWhatIsLeft, "asked for"),
        (Fault::SpendsAllOnAFailedTry, "not to be had"),
        (Fault::UnavailableAtTheEnd, "more than there are"),
    ]
    .map(|(fault, words)| (fault, "the_last_token_is_the_end", words));
    assert_each_noticed(&Options::shared(), &faults);
}

#[test]
fn a_shard_that_opens_twice_or_is_held_by_nobody_is_noticed() {
    let faults = [Fault::OpensTwice, Fault::HeldByNobody]
        .map(|fault| (fault, "a_second_client_is_refused", ""));
    assert_each_noticed(&Options::one_at_a_time(), &faults);
}

#[test]
fn a_lost_campaign_or_a_term_without_authority_is_noticed() {
    let faults = [
        (Fault::LosesCampaigns, "blocks_are_as_asked_for", "won"),
        (Fault::SaysATerm, "blocks_are_as_asked_for", "no terms"),
    ];
    assert_each_noticed(&Options::shared(), &faults);
}

#[test]
fn a_wrong_term_is_noticed() {
    let faults = [
        (
            Fault::LongerThanItSaid,
            "blocks_are_as_asked_for",
            "at the most",
        ),
        (Fault::ForEver, "blocks_are_as_asked_for", "for ever"),
        (
            Fault::NoTimeAtAll,
            "blocks_are_as_asked_for",
            "more than nothing",
        ),
        (Fault::SaysLostTooEarly, ANY, "before the end"),
        (Fault::DoesNotExtend, "a_kept_authority_stays", ""),
        (
            Fault::NeverEnds,
            "blocks_rise_through_crashes",
            "could not be won",
        ),
    ];
    assert_each_noticed(&Options::elected(TERM), &faults);
}

#[test]
fn a_wrong_authority_is_noticed() {
    let faults = [
        (
            Fault::ServesTheResigned,
            "authority_passes_on_after_resigning",
            "",
        ),
        (
            Fault::ReservesForTheResigned,
            "authority_passes_on_after_resigning",
            "while another had authority",
        ),
        (Fault::LiesAboutItsTerm, ANY, "two clients have authority"),
        (
            Fault::ExtendsByHalf,
            "authority_passes_on_after_its_term",
            "two clients have authority",
        ),
        (Fault::LetsEverybodyWin, ANY, ""),
        (
            Fault::LetsContendersResign,
            "a_contender_is_handed_nothing",
            "",
        ),
        (Fault::ServesContenders, "a_contender_is_handed_nothing", ""),
        (Fault::UnavailableWhenHeld, "patience_is_kept_to", "`Held`"),
        (Fault::WaitsTooLong, "patience_is_kept_to", "took"),
        (
            Fault::IgnoresResigning,
            "authority_passes_on_after_resigning",
            "before its term",
        ),
        (
            Fault::ServesTheLost,
            "after_a_loss_nothing_is_handed_out",
            "",
        ),
        (
            Fault::ServesTheLostWhenFree,
            "after_a_loss_nothing_is_handed_out",
            "",
        ),
        (
            Fault::KeepsTheLostAlive,
            "after_a_loss_nothing_is_handed_out",
            "",
        ),
        (
            Fault::RefusesTheLostForEver,
            "after_a_loss_nothing_is_handed_out",
            "could not be won",
        ),
        (
            Fault::UnavailableAfterALoss,
            "after_a_loss_nothing_is_handed_out",
            "`Lost`",
        ),
    ];
    assert_each_noticed(&Options::elected(TERM), &faults);
}
