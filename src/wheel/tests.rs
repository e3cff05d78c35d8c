use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use proptest::prelude::*;

use super::level_tests::{Deadlines, FAR_RANGE, MIDDLE_SPAN, NEAR_SPAN, RANGE, SPAN, lease};
use super::oracle::{Memory, Oracle, Step, fuzz_wheel};
use super::*;

#[test]
fn an_idle_wheel_is_never_due_and_never_looks() {
    let (wheel, memory) = (Wheel::new(4, 0), Memory::new(1));
    assert_eq!(wheel.next_due(), None);
    let advanced = wheel.advance_to(&memory, 1 << 45, |_, _| panic!("nothing is registered"));
    assert_eq!(
        advanced,
        Some(Advanced {
            looks: 0,
            wake: false
        })
    );
    assert_eq!(wheel.next_due(), None);
}

#[test]
fn every_ttl_about_a_level_or_a_span_fires_on_its_tick() {
    // I3, I8, CASES 19, for a driver that comes only when it must.
    for start in [0, 1, RANGE - 1, FAR_RANGE, SPAN - 1, SPAN + 77, 1 << 40] {
        for step in [
            RANGE,
            FAR_RANGE,
            MIDDLE_SPAN - RANGE,
            SPAN - FAR_RANGE,
            7 * SPAN,
        ] {
            for (times, off) in (0..4).flat_map(|times| [(times, 0), (times, 1), (times, 2)]) {
                let ttl = (times * step + off).saturating_sub(1);
                // By the clock the same, for a wheel that has turned there or was made there.
                let (wheel, memory) = (Wheel::new(1, start / 2), Memory::new(1));
                let _ = wheel.advance_to(&memory, start, |_, _| panic!("nothing is registered"));
                assert!(!lease(&wheel, &memory, 0, start + ttl), "nobody sleeps");
                let mut fired = None;
                while fired.is_none() {
                    let now = wheel.next_due().expect("registered");
                    let advanced = wheel.advance_to(&memory, now, |_, _| {
                        fired = (start + ttl <= now).then_some(now);
                        fired.is_none().then_some(start + ttl)
                    });
                    assert!(advanced.is_some_and(|advanced| advanced.looks <= 2));
                }
                assert_eq!(fired, Some(start + ttl), "a TTL of {ttl} from {start}");
                assert_eq!(wheel.next_due(), None);
            }
        }
    }
}

#[test]
fn a_far_deadline_is_looked_at_a_few_times_on_the_way_and_not_with_all_others() {
    const CELLS: u32 = 4_096;
    let (wheel, memory) = (Wheel::new(1, 0), Memory::new(CELLS));
    let deadline = 10 * SPAN;
    for cell in 0..CELLS {
        assert!(!lease(&wheel, &memory, cell, deadline));
    }
    let mut looks = 0;
    while let Some(now) = wheel.next_due() {
        let advanced = wheel.advance_to(&memory, now, |_, _| (now < deadline).then_some(deadline));
        let advanced = advanced.expect("nobody else advances");
        assert!(
            now >= deadline || advanced.looks <= 64,
            "{} looks",
            advanced.looks
        );
        looks += advanced.looks;
    }
    let each = looks / u64::from(CELLS) / 2;
    assert!((11..=21).contains(&each), "{each} looks for each cell");
}

#[test]
fn a_shorter_deadline_than_the_registered_one_fires_on_time() {
    // I8; the longer registration comes after it, and finds what the cell is then.
    let (wheel, memory) = (Wheel::new(1, 0), Memory::new(1));
    assert!(!lease(&wheel, &memory, 0, 10_000));
    assert!(!lease(&wheel, &memory, 0, 5));
    assert!(!lease(&wheel, &memory, 0, 3));
    assert_eq!(wheel.next_due(), Some(3));
    let mut seen = Vec::new();
    for now in 1..=10_000 {
        let _ = wheel.advance_to(&memory, now, |_, _| {
            seen.push(now);
            None
        });
    }
    assert_eq!(seen, [3, 3, 10_000, 10_000]);
}

#[test]
fn a_renewed_lease_is_visited_once_for_each_ttl_and_not_for_each_renewal() {
    let (wheel, memory) = (Wheel::new(1, 0), Memory::new(1));
    let mut looks = 0;
    for now in 0..10_000 {
        assert!(!lease(&wheel, &memory, 0, now + 1_000));
        let advanced = wheel.advance_to(&memory, now, |_, _| Some(now + 1_000));
        looks += advanced.expect("nobody else advances").looks;
    }
    assert_eq!(looks, 2 * 9);
}

#[test]
fn a_deadline_that_keeps_being_shortened_takes_no_memory_for_each_time() {
    // I9.
    let (wheel, memory) = (Wheel::new(1, 0), Memory::new(1));
    let mut now = 0;
    for _ in 0..20 {
        for ttl in (100..10_000).rev() {
            assert!(!lease(&wheel, &memory, 0, now + ttl));
            let _ = wheel.advance_to(&memory, now, |_, _| Some(now + 10_000));
        }
        now += 100;
        let _ = wheel.advance_to(&memory, now, |_, _| Some(now + 10_000));
    }
    let entries = wheel.kept.lock()[0].early_entries();
    assert!(entries <= 64, "{entries} entries for one cell");
}

#[test]
fn many_early_looks_leave_no_room_behind_once_they_are_over() {
    // I9.
    const CELLS: u32 = 10_000;
    let (wheel, memory) = (Wheel::new(1, 0), Memory::new(CELLS));
    let room = || wheel.kept.lock()[0].early_room();
    for cell in 0..CELLS {
        let _ = lease(&wheel, &memory, cell, 1_000_000);
        let _ = lease(&wheel, &memory, cell, 100);
    }
    let _ = wheel.advance_to(&memory, 1, |_, _| Some(100));
    assert_eq!(wheel.kept.lock()[0].early_entries(), CELLS as usize);
    assert!(room() >= CELLS as usize, "all are in the heap");
    let _ = wheel.advance_to(&memory, 100, |_, _| None);
    // Now and then somebody hurries, which is when the heap is looked at.
    let _ = lease(&wheel, &memory, 0, 200);
    let _ = wheel.advance_to(&memory, 101, |_, _| Some(200));
    assert!(room() <= 64, "room for {} is left", room());
}

#[test]
fn a_clock_that_goes_backwards_fires_nothing_and_loses_nothing() {
    let (wheel, memory) = (Wheel::new(1, 1_000), Memory::new(2));
    assert!(!lease(&wheel, &memory, 0, 1_005));
    for now in [0, 999, 1_000, 5] {
        let advanced = wheel.advance_to(&memory, now, |_, _| panic!("not due"));
        assert!(advanced.is_some());
    }
    let advanced = wheel.advance_to(&memory, 1_005, |_, _| None);
    assert_eq!(advanced.map(|advanced| advanced.looks), Some(2));
}

#[test]
fn a_tick_that_has_passed_means_the_next_advance() {
    let (wheel, memory) = (Wheel::new(1, 3), Memory::new(2));
    let _ = wheel.advance_to(&memory, 1_000, |_, _| panic!("nothing is registered"));
    assert!(!lease(&wheel, &memory, 0, 10));
    assert!(!lease(&wheel, &memory, 1, 2_000));
    assert!(
        !lease(&wheel, &memory, 1, 7),
        "earlier than a delta can say"
    );
    assert_eq!(wheel.next_due(), Some(1_000));
    let mut seen = Vec::new();
    let _ = wheel.advance_to(&memory, 1_000, |cell, _| {
        seen.push(cell);
        None
    });
    seen.dedup();
    assert_eq!(seen, [0, 1]);
    let range = (2_000 - 3) / RANGE - 1;
    assert_eq!(wheel.next_due(), Some(3 + range * RANGE));
}

#[test]
fn a_look_that_asks_for_the_past_is_repeated_at_the_next_advance_only() {
    let (wheel, memory) = (Wheel::new(1, 0), Memory::new(1));
    assert!(!lease(&wheel, &memory, 0, 5));
    for now in 5..9 {
        let advanced = wheel.advance_to(&memory, now, |_, _| Some(1));
        assert_eq!(advanced.map(|advanced| advanced.looks), Some(2));
        assert_eq!(wheel.next_due(), Some(now + 1));
    }
}

#[test]
fn a_million_cells_due_in_one_tick_fire_in_it() {
    const CELLS: u32 = if cfg!(debug_assertions) {
        100_000
    } else {
        1_000_000
    };
    let (wheel, memory) = (Wheel::new(4, 0), Memory::new(CELLS));
    for cell in 0..CELLS {
        assert!(!lease(&wheel, &memory, cell, 300));
    }
    let mut fired = vec![0_u8; CELLS as usize];
    for now in 0..=300 {
        let _ = wheel.advance_to(&memory, now, |cell, _| {
            fired[cell as usize] += 1;
            assert_eq!(now, 300);
            None
        });
    }
    assert!(fired.iter().all(|&fired| fired == 2));
    assert_eq!(wheel.next_due(), None);
}

#[test]
fn a_look_may_register_and_advance() {
    // I10.
    let (wheel, memory) = (Wheel::new(1, 0), Memory::new(10));
    assert!(!lease(&wheel, &memory, 0, 1));
    let mut seen = Vec::new();
    let _ = wheel.advance_to(&memory, 1, |cell, _| {
        if seen.last() != Some(&cell) {
            seen.push(cell);
            if cell < 9 {
                // In the past, so that it is due in the pass that is under way.
                assert!(!lease(&wheel, &memory, cell + 1, 1));
            }
        }
        assert_eq!(wheel.advance_to(&memory, 1, |_, _| panic!("nested")), None);
        None
    });
    assert_eq!(
        seen,
        [0, 1, 2],
        "due while the pass was under way, or that for the first of those: fired in it"
    );
    while wheel.next_due().is_some() {
        let _ = wheel.advance_to(&memory, 1, |cell, _| {
            assert!(cell > 2);
            None
        });
    }
}

#[test]
fn a_nested_advance_to_a_later_tick_is_made_up_for_by_the_outer_one() {
    let (wheel, memory) = (Wheel::new(1, 0), Memory::new(2));
    assert!(!lease(&wheel, &memory, 0, 1));
    assert!(!lease(&wheel, &memory, 1, 9));
    let mut seen = Vec::new();
    let advanced = wheel.advance_to(&memory, 1, |cell, now| {
        seen.push((cell, now));
        assert_eq!(wheel.advance_to(&memory, 9, |_, _| panic!("nested")), None);
        None
    });
    assert_eq!(advanced.map(|advanced| advanced.looks), Some(4));
    assert_eq!(seen, [(0, 1), (0, 1), (1, 9), (1, 9)]);
}

#[test]
fn a_look_that_panics_loses_no_cell() {
    // I10: each cell's first look panics, whether it was linked or wanted early.
    let (wheel, memory) = (Wheel::new(1, 0), Memory::new(40));
    for cell in 0..40 {
        assert!(!lease(&wheel, &memory, cell, 200));
        if cell % 2 == 0 {
            assert!(!lease(&wheel, &memory, cell, 100));
        }
    }
    let (mut seen, mut panics) = (vec![0; 40], 0);
    while let Some(now) = wheel.next_due() {
        let pass = AssertUnwindSafe(|| {
            wheel.advance_to(&memory, now, |cell, _| {
                let seen: &mut i32 = &mut seen[cell as usize];
                *seen += 1;
                assert!(*seen > 1, "the first look");
                None
            })
        });
        panics += i32::from(catch_unwind(pass).is_err());
        assert!(panics <= 40, "a panic is not repeated");
    }
    assert_eq!(panics, 40);
    assert!(seen.iter().all(|&seen| seen >= 3));
}

#[test]
fn a_driver_is_woken_for_what_is_due_before_it_wakes_and_for_nothing_else() {
    let (wheel, memory) = (Wheel::new(1, 0), Memory::new(8));
    assert!(wheel.prepare_sleep(None));
    assert!(lease(&wheel, &memory, 0, 100), "it would sleep for ever");
    wheel.woke();
    assert!(!lease(&wheel, &memory, 1, 90), "it is awake");
    assert!(!wheel.prepare_sleep(Some(100)), "something is due at 90");
    assert!(wheel.prepare_sleep(wheel.next_due()));
    assert!(!lease(&wheel, &memory, 2, 90));
    assert!(!lease(&wheel, &memory, 0, 95), "after it wakes");
    assert!(lease(&wheel, &memory, 3, 89));
    assert!(lease(&wheel, &memory, 1, 89), "wanted early");
    assert!(lease(&wheel, &memory, 4, 0), "overdue");
    // Somebody else advances and leaves something that is due before the driver wakes.
    wheel.woke();
    let _ = wheel.advance_to(&memory, 90, |_, _| None);
    assert!(wheel.prepare_sleep(wheel.next_due()));
    assert!(lease(&wheel, &memory, 5, 93));
    let advanced = wheel.advance_to(&memory, 93, |_, _| Some(94));
    assert_eq!(advanced.map(|advanced| advanced.wake), Some(true));
}

/// An advance of two passes, each of which leaves something to wake for, in its first look and in its second.
#[test]
fn more_than_one_reason_to_wake_the_driver_is_one() {
    let (wheel, memory) = (Wheel::new(1, 0), Memory::new(2));
    assert!(wheel.prepare_sleep(None));
    assert!(lease(&wheel, &memory, 0, 1) && lease(&wheel, &memory, 1, 9));
    let mut later = [60, 50, 40, 30].into_iter();
    let advanced = wheel.advance_to(&memory, 1, |_, _| {
        assert_eq!(wheel.advance_to(&memory, 9, |_, _| panic!("nested")), None);
        later.next()
    });
    assert!(advanced.is_some_and(|advanced| advanced.wake) && later.next().is_none());
    assert_eq!(wheel.next_due(), Some(30));
}

#[test]
fn the_last_tick_is_reached_and_nothing_wraps() {
    for start in [0, 1 << 47] {
        let (wheel, memory) = (Wheel::new(1, start), Memory::new(3));
        let last = start + LAST_NOW;
        let _ = wheel.advance_to(&memory, last - SPAN, |_, _| panic!("nothing is registered"));
        assert!(!lease(&wheel, &memory, 0, last));
        assert!(!lease(&wheel, &memory, 1, u64::MAX - 1));
        let mut seen = Vec::new();
        let mut turn = |now| {
            let advanced = wheel.advance_to(&memory, now, |cell, _| {
                seen.push(cell);
                (cell == 1).then_some(u64::MAX - 1)
            });
            advanced.expect("nobody else advances").looks
        };
        assert!(turn(last) >= 2);
        // The wheel stands still from here on: late, never early.
        assert_eq!(turn(u64::MAX), 0);
        assert!(seen.contains(&0));
    }
}

#[test]
fn a_word_says_when_the_next_look_is_and_keeps_its_mark() {
    let most = SPAN - 1;
    let linked = Word::linked_at(most + 3_617);
    let early = linked.with_early(3_617).with_queued();
    assert_eq!(Word::UNLINKED.first_look(), u64::MAX);
    assert_eq!(Word::UNLINKED.with_queued().first_look(), u64::MAX);
    assert!(!Word::UNLINKED.with_queued().is_linked());
    let ticks = (0..42).map(|bit| (1 << bit) - 1);
    assert!(ticks.map(Word::linked_at).all(Word::is_linked));
    assert_eq!(Word::linked_at(word::LAST_TICK).tick(), word::LAST_TICK);
    assert_eq!((linked.first_look(), linked.early()), (most + 3_617, None));
    assert_eq!((early.tick(), early.early()), (most + 3_617, Some(3_617)));
    assert_eq!(early.with_early(most + 3_617), linked.with_queued());
    assert_eq!(Word(early.0 & Word::NOT_QUEUED).early(), Some(3_617));
    for new in [Word::UNLINKED, linked, Word::linked_at(word::LAST_TICK)] {
        assert_eq!(new.in_place_of(early), new.with_queued());
        assert_eq!(new.with_queued().in_place_of(linked), new);
    }
    let wheel = Wheel::new(1, 70);
    assert!(wheel.covers(early.0, 3_687) && !wheel.covers(early.0, 3_686));
    assert!(wheel.covers(Word::linked_at(0).0, 70));
    assert!(!wheel.covers(Word::UNLINKED.0, u64::MAX - 1));
    let linked = 70 + most + 3_617;
    assert!(wheel.is_linked_by(early.0, linked) && !wheel.is_linked_by(early.0, linked - 1));
}

fn ticks() -> impl Strategy<Value = u64> {
    let about = |unit: u64| (0..4_u64, 0..3_u64).prop_map(move |(k, off)| k * unit + off);
    prop_oneof![
        8 => 0..300_u64,
        4 => about(RANGE).prop_map(|ticks| ticks.saturating_sub(1)),
        4 => about(FAR_RANGE).prop_map(|ticks| ticks.saturating_sub(1)),
        2 => about(SPAN).prop_map(|ticks| ticks.saturating_sub(1)),
        2 => about(SPAN - FAR_RANGE).prop_map(|ticks| ticks.saturating_sub(1)),
        2 => 0..3 * MIDDLE_SPAN,
        2 => 0..3 * SPAN,
        1 => (0..42_u32, 0..3_u64).prop_map(|(bits, off)| ((1 << bits) + off).saturating_sub(1)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..24_u32, ticks()).prop_map(|(cell, after)| Step::Lease { cell, after }),
        1 => (0..24_u32).prop_map(|cell| Step::Free { cell }),
        3 => ticks().prop_map(|by| Step::Advance { by }),
        4 => Just(Step::NextDue),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// I3, I8, I9, CASES 19.
    #[test]
    fn the_wheel_fires_what_a_sorted_list_would(
        shards in 1..5_usize,
        start in prop_oneof![Just(0), ticks()],
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut oracle = Oracle::new(shards, 24, start);
        for step in steps {
            oracle.step(step);
        }
    }

    #[test]
    fn any_bytes_drive_the_fuzz_target(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        fuzz_wheel(&bytes);
    }
}

/// Registrars change deadlines at random while the wheel turns as fast as it can; then all stop,
/// and every cell that is still out must fire on its tick. Without a real clock: time is a counter.
#[test]
fn no_cell_is_missed_while_threads_register_and_the_wheel_turns() {
    const CELLS: u32 = 64;
    const REGISTRARS: u64 = 3;
    const ROUNDS: u64 = if cfg!(debug_assertions) { 150 } else { 1_000 };
    const STEPS: u64 = 500;

    let (wheel, memory) = (Wheel::new(2, 0), Memory::new(CELLS));
    let deadlines = Deadlines::new(CELLS);
    let clock = AtomicU64::new(1);
    let working = AtomicU64::new(0);

    let register = |seed: u64| {
        let mut random = (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut roll = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random >> 8
        };
        for _ in 0..STEPS {
            let cell = (roll() % u64::from(CELLS)) as u32;
            // In every other round all are short, so that most registrations are links, and come
            // too late for their slots; in the others most are early ones.
            let ttl = match (seed / REGISTRARS % 2, roll() % 8) {
                (0, _) | (_, 0..5) => roll() % 4,
                (_, 5 | 6) => roll() % (2 * NEAR_SPAN),
                _ => roll() % (2 * MIDDLE_SPAN),
            };
            let deadline = clock.load(Ordering::SeqCst) + ttl;
            deadlines.of(cell).swap(deadline, Ordering::SeqCst);
            let _ = lease(&wheel, &memory, cell, deadline);
        }
        working.fetch_sub(1, Ordering::SeqCst);
    };
    let turn = |now| {
        let look = |cell, now| deadlines.look(cell, now);
        let _ = (wheel.advance_to(&memory, now, look)).expect("nobody else advances");
    };

    for round in 0..ROUNDS {
        working.store(REGISTRARS, Ordering::SeqCst);
        thread::scope(|scope| {
            for number in 0..REGISTRARS {
                let register = &register;
                scope.spawn(move || register(round * REGISTRARS + number));
            }
            // By single ticks, and now and then by as much as a range or all levels.
            let step = [1, 1, 1, 2, RANGE - 1, FAR_RANGE, SPAN + 1][(round % 7) as usize];
            while working.load(Ordering::SeqCst) > 0 {
                turn(clock.fetch_add(step, Ordering::SeqCst) + step);
            }
        });
        // Quiet: from here on the wheel owes exactness (I8).
        let mut now = clock.load(Ordering::SeqCst);
        turn(now);
        loop {
            let out = deadlines.0.iter().map(|state| state.load(Ordering::SeqCst));
            let Some(first) = out.filter(|&state| state != Deadlines::FREE).min() else {
                break;
            };
            assert!(first > now, "a cell due at {first} is still out at {now}");
            let due = wheel.next_due().expect("something is registered");
            assert!(due <= first, "next due at {due}, after {first}");
            assert!(due > now, "due at {due}, and was not looked at");
            now = due;
            turn(now);
        }
        clock.store(now, Ordering::SeqCst);
    }
}
