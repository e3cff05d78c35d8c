//! Tests of the levels and of the moves between them, and what the other tests of the wheel share.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::oracle::Memory;
use super::shard::{EMPTY, HORIZON_BITS, LEVELS, STRANDS, horizon, place, range, slot, slots};
use super::turn::PORTION;
use super::*;

/// The ticks of a range of the second level and of the third, what the first two levels span, and all
/// three.
pub(super) const RANGE: u64 = 128;
pub(super) const FAR_RANGE: u64 = RANGE * RANGE;
pub(super) const NEAR_SPAN: u64 = 2 * RANGE;
pub(super) const MIDDLE_SPAN: u64 = 2 * FAR_RANGE;
pub(super) const SPAN: u64 = 1 << HORIZON_BITS;

/// Some ticks at which leases end, as the engine would keep them.
pub(super) struct Deadlines(pub(super) Vec<AtomicU64>);

impl Deadlines {
    pub(super) const FREE: u64 = 0;

    pub(super) fn new(cells: u32) -> Self {
        Self((0..cells).map(|_| AtomicU64::new(Self::FREE)).collect())
    }

    pub(super) fn of(&self, cell: u32) -> &AtomicU64 {
        &self.0[cell as usize]
    }

    /// The look of an engine: ends what is due.
    pub(super) fn look(&self, cell: u32, now: u64) -> Option<u64> {
        let state = self.of(cell);
        let due = |deadline| (deadline <= now).then_some(Self::FREE);
        let ended = state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, due);
        // What was not due stays, and comes back as the error.
        ended.err()
    }
}

/// Registers as the engine does, and says whether the driver must be woken.
pub(super) fn lease(wheel: &Wheel, memory: &Memory, cell: u32, deadline: u64) -> bool {
    let word = memory.wheel(cell).load(Ordering::SeqCst);
    !wheel.covers(word, deadline) && wheel.register(memory, cell, deadline)
}

#[test]
fn a_place_is_visited_after_the_position_and_not_after_the_tick() {
    let mid_range = (0..3 * MIDDLE_SPAN).step_by(9_973);
    for position in mid_range.chain([RANGE - 1, FAR_RANGE, SPAN - 1, SPAN, SPAN + 1]) {
        let horizon = horizon(position);
        assert!((SPAN - FAR_RANGE..SPAN).contains(&(horizon - position)));
        let near = position + 1..position + 3 * NEAR_SPAN;
        let middle = (position + 1..position + 3 * MIDDLE_SPAN).step_by(61);
        let far = (position + 1..=horizon).step_by(4_999);
        for tick in near.chain(middle).chain(far).chain([horizon]) {
            let place = place(tick, position);
            assert!(place.visit > position && place.visit <= tick);
            let mut passing = (0..LEVELS).map(|level| slot(level, range(level, position)));
            assert!(passing.all(|slot| slot != place.slot), "turned through");
        }
        assert_eq!(place(position, position).visit, position);
    }
}

/// All would be looked at together for ever, and delay what is due in that tick.
#[test]
fn cells_beyond_the_horizon_are_spread_over_the_far_half_of_it() {
    const CELLS: u32 = 4_096;
    for position in [0, FAR_RANGE - 1, FAR_RANGE, SPAN + 77] {
        let horizon = horizon(position);
        assert_eq!(clamp(horizon, position, 7), horizon);
        let half = |cell| horizon - clamp(horizon + 1, position, cell);
        let (mut near, mut far) = (0, 0);
        for back in (0..CELLS).map(half) {
            assert!(back < SPAN / 2, "{back} ticks before the horizon");
            near += u32::from(back >= SPAN / 4);
            far += u32::from(back < SPAN / 4);
        }
        assert!(near.abs_diff(far) < CELLS / 16, "{near} and {far}");
    }
}

#[test]
fn the_next_range_of_a_level_has_its_slots_on_the_level_below() {
    for level in 1..LEVELS {
        let width = RANGE.pow(level as u32);
        for position in [0, 5 * width + 1, 9 * width - 1] {
            let next = range(level, position) + 1;
            for tick in [next * width, (next + 1) * width - 1] {
                let far = range(level - 1, tick) - range(level - 1, position);
                assert!(far < slots(level - 1), "{tick} as seen from {position}");
            }
        }
    }
}

/// I8: a range in which very many cells are due is moved in portions, before its time.
#[test]
fn a_crowded_range_moves_in_portions_and_delays_nothing() {
    const CELLS: u32 = 1_000 * PORTION as u32;
    for start in [0, 100 * FAR_RANGE] {
        let (wheel, memory) = (Wheel::new(2, 0), Memory::new(CELLS));
        let _ = wheel.advance_to(&memory, start, |_, _| panic!("nothing is registered"));
        // Spread over the fifth range of the last level.
        let deadline = |cell: u32| start + 4 * FAR_RANGE + u64::from(cell) % FAR_RANGE;
        for cell in 0..CELLS {
            assert!(!lease(&wheel, &memory, cell, deadline(cell)));
        }
        let moving = || wheel.kept.lock().iter().any(|kept| kept.moving[2] != EMPTY);
        assert_eq!(wheel.next_due(), Some(start + 3 * FAR_RANGE));
        let portions = u64::from(CELLS) / PORTION;
        let mut fired = vec![0_u8; CELLS as usize];
        let (mut turns, mut in_time) = (0, false);
        while let Some(now) = wheel.next_due() {
            let advanced = wheel.advance_to(&memory, now, |cell, _| {
                assert_eq!(now, deadline(cell));
                fired[cell as usize] += 1;
                None
            });
            let _ = advanced.expect("nobody else advances");
            turns += 1;
            if turns + 2 < portions {
                assert_eq!(
                    now,
                    start + 3 * FAR_RANGE + turns - 1,
                    "one portion in each tick"
                );
                assert!(moving());
            }
            assert!(turns <= portions + 1 || !moving(), "and not less");
            if now == start + 4 * FAR_RANGE - RANGE {
                assert!(!moving(), "all are where they have to be in time");
                in_time = true;
            }
        }
        assert!(in_time && fired.iter().all(|&fired| fired == 2));
    }
}

#[test]
fn a_jump_into_a_range_that_is_being_moved_fires_what_is_due_in_it() {
    const CELLS: u32 = 3 * PORTION as u32;
    for jump in [1, RANGE, FAR_RANGE, 2 * FAR_RANGE, SPAN, 3 * SPAN] {
        let (wheel, memory) = (Wheel::new(1, 0), Memory::new(CELLS));
        let deadlines = Deadlines::new(CELLS);
        for cell in 0..CELLS {
            let deadline = 4 * FAR_RANGE + u64::from(cell);
            deadlines.of(cell).store(deadline, Ordering::SeqCst);
            assert!(!lease(&wheel, &memory, cell, deadline));
        }
        let turn = |now| {
            let advanced = wheel.advance_to(&memory, now, |cell, now| deadlines.look(cell, now));
            let _ = advanced.expect("nobody else advances");
            let out = deadlines.0.iter().map(|state| state.load(Ordering::SeqCst));
            let out: Vec<_> = out.filter(|&state| state != Deadlines::FREE).collect();
            assert!(out.iter().all(|&deadline| deadline > now));
            out.len()
        };
        assert_eq!(turn(3 * FAR_RANGE), CELLS as usize);
        assert_ne!(wheel.kept.lock()[0].moving, [EMPTY; LEVELS]);
        let mut now = 3 * FAR_RANGE + jump;
        while turn(now) > 0 {
            let due = wheel.next_due().expect("cells are out");
            assert!(due > now);
            now = due;
        }
    }
}

/// I10.
#[test]
fn a_look_that_panics_while_cells_move_loses_none() {
    const CELLS: u32 = 3 * PORTION as u32;
    let (wheel, memory) = (Wheel::new(1, 0), Memory::new(CELLS + 1));
    for cell in 0..CELLS {
        assert!(!lease(&wheel, &memory, cell, 4 * FAR_RANGE));
    }
    assert!(!lease(&wheel, &memory, CELLS, 3 * FAR_RANGE + 1));
    let (mut panics, mut seen) = (0, 0);
    while let Some(now) = wheel.next_due() {
        let pass = AssertUnwindSafe(|| {
            wheel.advance_to(&memory, now, |cell, _| {
                assert!(cell < CELLS || panics > 0, "the first look");
                seen += u32::from(cell < CELLS);
                None
            })
        });
        panics += i32::from(catch_unwind(pass).is_err());
        assert!(panics <= 1, "a panic is not repeated");
    }
    assert_eq!((panics, seen), (1, 2 * CELLS));
}

#[test]
fn the_cells_of_a_shard_are_on_all_lists_of_a_slot() {
    for shards in [1, 2, 4, 8, 16] {
        let wheel = Wheel::new(shards, 0);
        for shard in &wheel.shards {
            let is_its = |cell: &u32| std::ptr::eq(wheel.shard(*cell), &raw const **shard);
            let mut counts = [0; STRANDS];
            for cell in (0..4_096).filter(is_its) {
                counts[shard.strand(cell)] += 1;
            }
            let even = [4_096 / shards / STRANDS; STRANDS];
            assert_eq!(counts, even, "{shards} shards");
        }
    }
}

/// I8: a turn that is cut off has stored its position, and has taken no slot of the later levels yet, nor the
/// rest of this one's. Those would have been passed, and not been taken until the wheel comes round.
#[test]
fn a_look_that_panics_leaves_no_slot_behind() {
    let ticks = [5, 6, 9, RANGE - 1, 3 * RANGE, FAR_RANGE - 1, 3 * FAR_RANGE];
    // The last slots of the last level.
    let ticks = ticks.into_iter().chain([125 * FAR_RANGE, 126 * FAR_RANGE]);
    let (wheel, memory) = (Wheel::new(1, 0), Memory::new(10));
    let cells = ticks.clone().count();
    for (cell, tick) in (0..).zip(ticks) {
        assert!(!lease(&wheel, &memory, cell, tick));
    }
    let now = 127 * FAR_RANGE;
    let (mut panics, mut seen) = (0, [0; 10]);
    for _ in 0..2 {
        let mut look = |cell: u32, _| {
            assert!(panics > 0, "the first look");
            seen[cell as usize] += 1;
            None
        };
        let pass = AssertUnwindSafe(|| wheel.advance_to(&memory, now, &mut look));
        panics += i32::from(catch_unwind(pass).is_err());
    }
    assert_eq!((panics, &seen[..cells]), (1, &[2; 9][..]));
    assert_eq!(wheel.next_due(), None);
}

/// I10: what that look was for is made up for in the next tick.
#[test]
fn a_second_look_that_panics_is_repeated_in_the_next_tick() {
    let (wheel, memory) = (Wheel::new(1, 0), Memory::new(1));
    assert!(!lease(&wheel, &memory, 0, 5));
    let mut looks = 0;
    let pass = AssertUnwindSafe(|| {
        wheel.advance_to(&memory, 5, |_, _| {
            looks += 1;
            assert!(looks < 2, "the second look");
            None
        })
    });
    assert!(catch_unwind(pass).is_err());
    let again = wheel.advance_to(&memory, 5, |_, _| panic!("not yet"));
    assert_eq!(again.map(|advanced| advanced.looks), Some(0));
    assert_eq!(wheel.next_due(), Some(6));
    let next = wheel.advance_to(&memory, 6, |_, _| None);
    assert_eq!(next.map(|advanced| advanced.looks), Some(2));
    assert_eq!(wheel.next_due(), None);
}

#[test]
fn a_wheel_takes_as_much_for_each_shard() {
    let one = Wheel::new(1, 0).memory();
    assert!((20 << 10..22 << 10).contains(&one), "{one} bytes a shard");
    for shards in [2, 4, 16] {
        assert_eq!(Wheel::new(shards, 0).memory(), shards * one);
    }
}

#[test]
fn a_registration_in_the_past_lets_no_driver_sleep() {
    let (wheel, memory) = (Wheel::new(1, 0), Memory::new(1));
    let _ = wheel.advance_to(&memory, 1_000, |_, _| panic!("nothing is registered"));
    assert!(!lease(&wheel, &memory, 0, 10));
    assert_eq!(wheel.next_due(), Some(1_000));
    assert!(!wheel.prepare_sleep(Some(1_001)));
}

/// What a second look asks for comes before the driver wakes, and the first look's tick does not.
#[test]
fn a_driver_is_woken_for_what_only_a_second_look_asks_for() {
    let (wheel, memory) = (Wheel::new(1, 0), Memory::new(2));
    assert!(wheel.prepare_sleep(Some(55)));
    assert!(!lease(&wheel, &memory, 0, 1_000) && !lease(&wheel, &memory, 1, 1_000));
    assert!(lease(&wheel, &memory, 0, 1));
    let mut later = [60, 50].into_iter();
    let advanced = wheel.advance_to(&memory, 1, |cell, _| {
        if cell == 1 {
            return later.next();
        }
        // Found to be due after all else, as cell 0 was.
        let _ = lease(&wheel, &memory, 1, 1);
        None
    });
    assert!(later.next().is_none());
    assert!(advanced.is_some_and(|advanced| advanced.wake));
    assert_eq!(wheel.next_due(), Some(50));
}

#[test]
fn a_cell_that_hurries_again_brings_no_other_along() {
    let (wheel, memory) = (Wheel::new(1, 0), Memory::new(2));
    for cell in [1, 0] {
        assert!(!lease(&wheel, &memory, cell, 1_000));
        assert!(!lease(&wheel, &memory, cell, 100));
    }
    let mut looks = vec![];
    let mut turn = |now| {
        let _ = wheel.advance_to(&memory, now, |cell, now| {
            looks.push((cell, now));
            None
        });
    };
    turn(1);
    assert!(!lease(&wheel, &memory, 0, 50));
    turn(2);
    turn(50);
    turn(100);
    assert_eq!(looks, [(0, 50), (0, 50), (1, 100), (1, 100)]);
}

/// I9: among many cells that are wanted early, too.
#[test]
fn one_of_many_deadlines_that_keeps_being_shortened_takes_no_memory_for_each_time() {
    const CELLS: u32 = 100;
    let (wheel, memory) = (Wheel::new(1, 0), Memory::new(CELLS));
    for cell in 0..CELLS {
        assert!(!lease(&wheel, &memory, cell, 1_000_000));
        assert!(!lease(&wheel, &memory, cell, 100_000));
    }
    for deadline in (90_000..100_000).rev() {
        assert!(!lease(&wheel, &memory, 0, deadline));
        let _ = wheel.advance_to(&memory, 1, |_, _| panic!("nothing is due"));
    }
    let entries = wheel.kept.lock()[0].early_entries();
    assert!(entries <= 2 * CELLS as usize, "{entries} entries");
}

/// Cells whose words are counted as they are asked for.
struct Counted(Memory, std::cell::Cell<usize>);

impl Cells for Counted {
    fn wheel(&self, cell: u32) -> &AtomicU64 {
        self.1.set(self.1.get() + 1);
        self.0.wheel(cell)
    }

    fn wheel_next(&self, cell: u32) -> &AtomicU64 {
        self.0.wheel_next(cell)
    }
}

/// Early looks that are wanted are not all looked through to find that out.
#[test]
fn many_cells_that_are_wanted_early_are_not_looked_through() {
    const CELLS: u32 = 50_000;
    let wheel = Wheel::new(1, 0);
    let memory = Counted(Memory::new(CELLS), std::cell::Cell::new(0));
    let early = |cell: u32| {
        _ = lease(&wheel, &memory.0, cell, 1_000_000);
        _ = lease(&wheel, &memory.0, cell, 500_000);
    };
    let turn = |now: u64| {
        memory.1.set(0);
        let advanced = wheel.advance_to(&memory, now, |_, _| Some(500_000));
        assert_eq!(advanced.expect("nobody else advances").looks, 0);
        memory.1.get()
    };
    (0..CELLS / 2).for_each(early);
    turn(1);
    (CELLS / 2..CELLS).for_each(early);
    let asked = turn(2);
    // Once for each as it comes off the stack.
    assert!(asked <= CELLS as usize / 2 + 100, "{asked}");

    // Unless a good part of them is wanted no more.
    for cell in 0..CELLS / 2 {
        _ = lease(&wheel, &memory.0, cell, 400_000);
    }
    let held = || wheel.kept.lock()[0].early_entries();
    turn(3);
    for cell in 0..CELLS {
        _ = lease(&wheel, &memory.0, cell, 300_000);
    }
    turn(4);
    assert!(held() <= CELLS as usize, "{} for {CELLS}", held());
}
