//! Elections.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tenure::recipes::{Election, Leadership, Observer};
use tenure::{AcquireError, Loss, OwnerId, ReleaseError, RenewError};

use crate::{Task, manual, ms, options, pass};

/// Long enough in real time for whatever must not happen to be missed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Who is told to lead, if there is something to be told.
#[expect(
    clippy::option_option,
    reason = "told that nobody leads is not told nothing"
)]
fn told(observer: &mut Observer) -> Option<Option<OwnerId>> {
    match observer.wait_timeout(Duration::ZERO) {
        Ok(leader) => Some(leader.map(|leader| leader.owner)),
        Err(AcquireError::TimedOut) => None,
        Err(error) => panic!("{error}"),
    }
}

fn leads(election: &Election) -> Option<u64> {
    election.leader().map(|leader| leader.owner.0)
}

#[test]
fn candidates_lead_in_the_order_in_which_they_came() {
    let (locks, _) = manual();
    let election = Election::new(&locks, "e");
    let first = election.campaign(1, ms(10)).try_now().expect("free");
    let mut queue: Vec<_> = (2..6)
        .map(|owner| Task::pending(election.campaign(owner, ms(10))))
        .collect();
    assert!(matches!(
        election.campaign(9, ms(10)).try_now().map(drop),
        Err(AcquireError::Held { owner, token, .. }) if (owner, token) == (OwnerId(1), first.token())
    ));
    let mut leadership: Leadership = first;
    for (owner, task) in (2..).zip(&mut queue) {
        let term = leadership.token();
        leadership.resign().expect("live");
        assert_eq!(leads(&election), Some(owner));
        leadership = task.poll().expect("its turn").expect("granted");
        assert_eq!(leadership.owner(), OwnerId(owner));
        assert!(leadership.token() > term && leadership.is_leader());
    }
    drop(leadership);
    assert_eq!((leads(&election), locks.len()), (None, 0));
}

#[test]
fn a_leader_that_is_not_kept_alive_is_succeeded_and_cannot_come_back() {
    let (locks, clock) = manual();
    let election = Election::new(&locks, "e");
    let first = election.campaign(1, ms(10)).try_now().expect("free");
    let mut second = Task::pending(election.campaign(2, ms(10)));
    let mut lost = Task::pending(first.lost());
    for _ in 0..5 {
        pass(&locks, &clock, 9);
        assert_eq!(first.keep_alive().expect("live"), first.deadline());
    }
    pass(&locks, &clock, 10);
    let second = second.poll().expect("its turn").expect("granted");
    assert_eq!(lost.poll(), Some(Loss::Expired));
    let token = first.token();
    assert!(!first.is_leader() && first.remaining() == Duration::ZERO);
    assert!(second.token() > token);
    assert_eq!(first.keep_alive(), Err(RenewError::Expired { token }));
    assert_eq!(first.resign(), Err(ReleaseError::Expired { token }));
    assert!(second.is_leader() && second.remaining() == ms(10));
    second.renew(ms(50)).expect("live");
    assert_eq!(second.remaining(), ms(50));
}

#[test]
fn nobody_leads_during_the_lock_delay_of_an_unclean_end() {
    let (locks, clock) = manual();
    let election = Election::new(&locks, "e");
    let stand = || election.campaign(1, ms(10)).lock_delay(ms(5));
    let first = stand().try_now().expect("free");
    first.resign().expect("live");
    let second = stand().try_now().expect("no delay after a resignation");
    let mut third = Task::pending(election.campaign(3, ms(10)));
    pass(&locks, &clock, 11);
    assert!(!second.is_leader() && third.poll().is_none());
    assert_eq!(leads(&election), None);
    pass(&locks, &clock, 5);
    assert!(third.poll().is_some_and(|won| won.is_ok()));
}

#[test]
fn a_term_that_the_manager_keeps_alive_lasts_for_its_length() {
    let (locks, clock) = manual();
    let election = Election::new(&locks, "e");
    let campaign = election.campaign(1, ms(9)).auto_renew(ms(100));
    let leadership = campaign.try_now().expect("free");
    let lost = leadership.lost();
    pass(&locks, &clock, 99);
    assert!(leadership.is_leader() && lost.now().is_none());
    pass(&locks, &clock, 2);
    assert!(!leadership.is_leader());
    assert_eq!(lost.now(), Some(Loss::MaxHold));
}

#[test]
fn a_campaign_that_is_dropped_passes_its_turn_on() {
    let (locks, _) = manual();
    let election = Election::new(&locks, "e");
    let mut observer = election.observe();
    let first = election.campaign(1, ms(10)).try_now().expect("free");
    let second = Task::pending(election.campaign(2, ms(10)));
    let third = Task::pending(election.campaign(3, ms(10)));
    assert_eq!(told(&mut observer), Some(Some(OwnerId(1))));
    drop(first);
    // It leads, and doesn't know.
    assert_eq!(told(&mut observer), Some(Some(OwnerId(2))));
    drop(second);
    assert_eq!(told(&mut observer), Some(Some(OwnerId(3))));
    drop(third);
    assert_eq!(told(&mut observer), Some(None));
    drop(observer);
    assert_eq!((locks.len(), locks.waiting()), (0, 0));
}

#[test]
fn an_observer_is_told_of_every_kind_of_change() {
    let (locks, clock) = manual();
    let election = Election::new(&locks, "e");
    let (mut observer, mut other) = (election.observe(), election.observe());
    assert_eq!(told(&mut observer), Some(None), "at once");
    assert_eq!(told(&mut observer), None, "and only once");
    assert_eq!(told(&mut other), Some(None));
    for round in 1..20 {
        let mut waiting = Task::pending(other.changed());
        let leadership = election.campaign(round, ms(10)).try_now().expect("free");
        assert_eq!(waiting.wakes(), 1, "by the campaign");
        let leader = waiting.poll().expect("told").expect("no error");
        assert_eq!(leader.map(|leader| leader.token), Some(leadership.token()));
        drop(waiting);
        assert_eq!(told(&mut observer), Some(Some(OwnerId(round))));
        let mut waiting = Task::pending(other.changed());
        match round % 3 {
            0 => leadership.resign().expect("live"),
            1 => pass(&locks, &clock, 11),
            _ => {
                assert_eq!(election.depose().map(|leader| leader.owner.0), Some(round));
                assert!(!leadership.is_leader());
            }
        }
        assert_eq!(waiting.wakes(), 1, "by the end in round {round}");
        assert_eq!(waiting.poll().expect("told"), Ok(None));
        drop(waiting);
        assert_eq!(told(&mut observer), Some(None));
    }
}

#[test]
fn keeping_a_leader_alive_wakes_an_observer_once_in_a_ttl_at_most() {
    let (locks, clock) = manual();
    let election = Election::new(&locks, "e");
    let leadership = election.campaign(1, ms(100)).try_now().expect("free");
    let mut observer = election.observe();
    assert!(told(&mut observer).is_some());
    let mut waiting = Task::pending(observer.changed());
    for _ in 0..100 {
        pass(&locks, &clock, 10);
        leadership.keep_alive().expect("live");
        assert!(waiting.poll().is_none(), "no change");
        assert_eq!(locks.len(), 2, "one watch");
    }
    assert!(waiting.wakes() <= 12, "woken {} times", waiting.wakes());
}

#[test]
fn what_happens_past_the_election_is_seen_within_a_second() {
    let (locks, clock) = manual();
    let election = Election::new(&locks, "e");
    let _leadership = election.campaign(1, ms(60_000)).try_now().expect("free");
    let mut observer = election.observe();
    assert!(told(&mut observer).is_some());
    let mut waiting = Task::pending(observer.changed());
    locks.revoke("e").expect("held");
    pass(&locks, &clock, 1_001);
    assert_eq!(waiting.wakes(), 1);
    assert_eq!(waiting.poll().expect("told"), Ok(None));
    drop(waiting);
    let mut waiting = Task::pending(observer.changed());
    let _lease = locks.try_acquire("e", 7, ms(60_000)).expect("free");
    pass(&locks, &clock, 1_001);
    let leader = waiting.poll().expect("told").expect("no error");
    assert_eq!(leader.map(|leader| leader.owner), Some(OwnerId(7)));
}

/// What an observer has not told, the next call tells, however often it is given up in between.
#[test]
fn an_observer_may_be_given_up_at_any_time() {
    let (locks, _) = manual();
    let election = Election::new(&locks, "e");
    let mut observer = election.observe();
    assert!(told(&mut observer).is_some());
    let leadership = election.campaign(1, ms(10)).try_now().expect("free");
    drop(observer.changed());
    assert_eq!(told(&mut observer), Some(Some(OwnerId(1))));
    drop(Task::pending(observer.changed()));
    drop(leadership);
    drop(observer.changed());
    assert_eq!(told(&mut observer), Some(None));
}

#[test]
fn observers_get_along_with_any_range_of_ttls() {
    let clock = tenure::ManualClock::new();
    for (min, max) in [(1, 20), (5_000, 60_000)] {
        let locks = options(&clock).min_ttl(ms(min)).max_ttl(ms(max));
        let locks = locks.build().expect("in order");
        let election = Election::new(&locks, "e");
        let mut observer = election.observe();
        assert_eq!(told(&mut observer), Some(None));
        assert_eq!(told(&mut observer), None);
        let leadership = election.campaign(1, ms(min)).try_now().expect("free");
        assert_eq!(told(&mut observer), Some(Some(OwnerId(1))));
        clock.advance(ms(min - 1));
        assert_eq!(told(&mut observer), None, "less than the least TTL is left");
        drop(leadership);
        assert_eq!(told(&mut observer), Some(None));
    }
}

#[test]
fn an_observer_can_wait_in_a_thread_for_as_long_as_it_takes() {
    let (locks, _) = manual();
    let election = Election::new(&locks, "e");
    let mut observer = election.observe();
    assert_eq!(observer.wait(), Ok(None), "the first answer comes at once");
    thread::scope(|scope| {
        let told = scope.spawn(move || observer.wait());
        let leadership = election.campaign(7, ms(10)).try_now().expect("free");
        let leader = told.join().expect("no panic").expect("told");
        let leader = leader.expect("somebody leads");
        assert_eq!(
            (leader.owner, leader.token),
            (OwnerId(7), leadership.token())
        );
    });
}

#[test]
fn who_stands_and_who_leads_can_be_printed() {
    let (locks, _) = manual();
    let election = Election::new(&locks, "e");
    let campaign = election.campaign(7, ms(10));
    let printed = format!("{campaign:?}");
    assert!(printed.contains("Campaign"), "{printed}");
    let leadership = campaign.try_now().expect("free");
    let printed = format!("{leadership:?}");
    for part in ["Leadership", "7", &leadership.token().to_string()] {
        assert!(printed.contains(part), "{printed} does not say {part}");
    }
}

#[test]
fn elections_of_other_names_are_others() {
    let (locks, _) = manual();
    let (a, b) = (Election::new(&locks, "a"), Election::new(&locks, "b"));
    let mut observer = b.observe();
    assert_eq!(told(&mut observer), Some(None));
    let leadership = a.campaign(1, ms(10)).try_now().expect("free");
    assert_eq!(told(&mut observer), None);
    assert_eq!(
        locks.holder("a").map(|holder| holder.token),
        Some(leadership.token())
    );
    assert_eq!(leads(&Election::new(&locks, "a")), Some(1));
    assert!(b.campaign(1, ms(10)).try_now().is_ok());
}

/// The clock stands still, so no watch ever ends by itself: an announcement that is missed is waited for
/// in vain.
#[test]
fn observers_miss_no_last_change_in_a_storm_of_campaigns() {
    const THREADS: u64 = 3;
    const TERMS: u64 = 400;
    let (locks, _) = manual();
    let election = Election::new(&locks, "e");
    let leading = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut observer = election.observe();
                let mut newest = None;
                loop {
                    let leader = observer.wait_timeout(PATIENCE).expect("told in time");
                    let Some(leader) = leader else { continue };
                    assert!(newest < Some(leader.token), "tokens rise");
                    newest = Some(leader.token);
                    if leader.owner == OwnerId(99) {
                        break;
                    }
                }
            });
        }
        let candidates: Vec<_> = (1..=THREADS)
            .map(|owner| {
                let (election, leading) = (&election, &leading);
                scope.spawn(move || {
                    for term in 0..TERMS {
                        if term % 7 == owner {
                            let given_up = election.campaign(owner, ms(10));
                            drop(given_up.wait_timeout(Duration::from_micros(term)));
                            continue;
                        }
                        let campaign = election.campaign(owner, ms(10));
                        let leadership = campaign.wait_timeout(PATIENCE).expect("its turn");
                        assert_eq!(leading.swap(owner, Ordering::SeqCst), 0, "I1");
                        leading.store(0, Ordering::SeqCst);
                        drop(leadership);
                    }
                })
            })
            .collect();
        for candidate in candidates {
            candidate.join().expect("no panic");
        }
        let last = election.campaign(99, ms(10)).try_now();
        std::mem::forget(last.expect("all have resigned"));
    });
    assert_eq!(leads(&election), Some(99));
}

/// The same with one change at a time, in the moment when an observer begins to watch.
#[test]
fn observers_miss_no_change_while_they_begin_to_watch() {
    const ROUNDS: u64 = if cfg!(debug_assertions) {
        4_000
    } else {
        60_000
    };
    let (locks, _) = manual();
    let election = Election::new(&locks, "e");
    let round_of_candidate = AtomicU64::new(0);
    let round_of_observer = AtomicU64::new(0);
    let meet = |mine: &AtomicU64, other: &AtomicU64, round| {
        let start = Instant::now();
        mine.store(round, Ordering::SeqCst);
        while other.load(Ordering::SeqCst) < round {
            assert!(start.elapsed() < 2 * PATIENCE, "the other has failed");
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                meet(&round_of_candidate, &round_of_observer, 2 * round);
                // Up to a few hundred nanoseconds later.
                for _ in 0..round % 32 {
                    std::hint::spin_loop();
                }
                let won = election.campaign(round, ms(10)).try_now();
                std::mem::forget(won.expect("nobody leads"));
                meet(&round_of_candidate, &round_of_observer, 2 * round + 1);
                assert!(election.depose().is_some());
            }
        });
        for round in 1..=ROUNDS {
            // A new one has no watch yet.
            let mut observer = election.observe();
            assert_eq!(told(&mut observer), Some(None));
            meet(&round_of_observer, &round_of_candidate, 2 * round);
            let leader = observer.wait_timeout(PATIENCE).expect("told in time");
            assert_eq!(leader.map(|leader| leader.owner), Some(OwnerId(round)));
            meet(&round_of_observer, &round_of_candidate, 2 * round + 1);
            assert_eq!(observer.wait_timeout(PATIENCE), Ok(None));
        }
    });
}
