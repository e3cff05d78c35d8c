//! Loom models of the wheel's races. Time is an explicit tick; the wheel has two levels of four slots
//! here, of one and of two ticks, and moves one cell a tick.
//!
//! Each says which step, taken away, makes it fail; all of these were tried. `TENURE_LOOM=full` runs them
//! with more preemptions (see `sync::exploring`).

use loom::thread;

use super::*;
use crate::sync::Arc;
use crate::sync::exploring::explore;

const FREE: u64 = 0;

/// Two cells as an engine would keep them: the wheel's words and, for the state, a deadline.
struct Engine {
    wheel: Wheel,
    cells: [Cell; 2],
}

struct Cell {
    wheel: AtomicU64,
    wheel_next: AtomicU64,
    deadline: AtomicU64,
}

impl Cells for Engine {
    fn wheel(&self, cell: u32) -> &AtomicU64 {
        &self.cells[cell as usize].wheel
    }

    fn wheel_next(&self, cell: u32) -> &AtomicU64 {
        &self.cells[cell as usize].wheel_next
    }
}

impl Engine {
    fn new() -> Arc<Self> {
        let cell = || Cell {
            wheel: AtomicU64::new(0),
            wheel_next: AtomicU64::new(0),
            deadline: AtomicU64::new(FREE),
        };
        Arc::new(Self {
            wheel: Wheel::new(1, 0),
            cells: [cell(), cell()],
        })
    }

    /// A grant or a renewal: publishes the deadline, then registers if the word does not cover it.
    /// Returns whether the driver must be woken.
    fn lease(&self, cell: u32, deadline: u64) -> bool {
        let state = &self.cells[cell as usize].deadline;
        state.swap(deadline, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        let word = self.wheel(cell).load(Ordering::Acquire);
        !self.wheel.covers(word, deadline) && self.wheel.register(self, cell, deadline)
    }

    /// Whether a driver must be woken.
    fn advance(&self, now: u64) -> bool {
        let advanced = self.wheel.advance_to(self, now, |cell, now| {
            let state = &self.cells[cell as usize].deadline;
            let deadline = state.load(Ordering::Acquire);
            let due = deadline <= now;
            if due && deadline != FREE {
                // Fails if it has just been renewed: then the look after the fence sees that.
                let _ = state.compare_exchange(deadline, FREE, Ordering::AcqRel, Ordering::Relaxed);
            }
            (!due).then_some(deadline)
        });
        advanced.is_some_and(|advanced| advanced.wake)
    }

    /// Nothing runs any more: whatever is out must fire on its tick.
    fn settle(&self, mut now: u64) {
        loop {
            let deadlines = self
                .cells
                .iter()
                .map(|cell| cell.deadline.load(Ordering::SeqCst));
            let Some(first) = deadlines.filter(|&deadline| deadline != FREE).min() else {
                return;
            };
            let due = self
                .wheel
                .next_due()
                .expect("a lease without a registration");
            assert!(due <= first.max(now), "next due at {due}, after {first}");
            now = now.max(due);
            self.advance(now);
            let late = self
                .cells
                .iter()
                .map(|cell| cell.deadline.load(Ordering::SeqCst));
            let late = late.filter(|&deadline| deadline != FREE && deadline <= now);
            assert_eq!(late.count(), 0, "a lease outlived the advance to {now}");
        }
    }
}

fn check(model: impl Fn() + Copy + Sync + Send + 'static) {
    explore(3, "", model);
}

/// A registrar may sleep between its look at the position and its flag: by then the slot has been taken for
/// another range, and its cell is among those that move at leisure.
///
/// Fails if an advance that takes a flagged slot leaves alone what has come out of it and is still to be moved.
#[test]
fn a_cell_that_moves_at_leisure_is_flagged_too_late() {
    explore(4, "", || {
        let engine = Engine::new();
        let granter = engine.clone();
        let granter = thread::spawn(move || granter.lease(0, 4));
        engine.advance(2);
        engine.advance(6);
        engine.lease(1, 12);
        engine.advance(10);
        granter.join().unwrap();
        engine.settle(10);
    });
}

/// A cell that is granted again while its old registration fires is registered afterwards.
///
/// Fails without the fence or the look in `Turn::look_again`, and without the fence in
/// [`Engine::lease`].
#[test]
fn a_grant_while_the_cell_fires_is_registered() {
    check(|| {
        let engine = Engine::new();
        engine.lease(0, 1);
        let granter = engine.clone();
        let granter = thread::spawn(move || granter.lease(0, 2));
        engine.advance(1);
        granter.join().unwrap();
        engine.settle(1);
    });
}

/// The same, when the advance moves the registration on instead of dropping it.
///
/// Fails without the fence or the look in `Turn::look_again`.
#[test]
fn a_shortened_deadline_while_the_cell_fires_is_registered() {
    check(|| {
        let engine = Engine::new();
        engine.lease(0, 1);
        engine.lease(0, 3);
        let holder = engine.clone();
        let holder = thread::spawn(move || holder.lease(0, 2));
        engine.advance(1);
        holder.join().unwrap();
        engine.settle(1);
    });
}

/// A cell pushed on a slot of the first level that the wheel is passing is not left there.
///
/// Fails without the fence in `Shard::link`, without that in `Turn::run`, and without the flag.
#[test]
fn a_push_on_a_slot_that_is_being_passed_is_not_left_behind() {
    check(|| {
        let engine = Engine::new();
        let granter = engine.clone();
        let granter = thread::spawn(move || granter.lease(0, 1));
        engine.advance(1);
        granter.join().unwrap();
        engine.settle(1);
    });
}

/// The same for a range of the second level, and for two cells in it, of which one is moved in the
/// next tick only.
///
/// Fails as the model before does, and if the wheel is not due while cells move.
#[test]
fn a_push_on_a_range_that_is_being_entered_is_not_left_behind() {
    check(|| {
        let engine = Engine::new();
        engine.lease(1, 4);
        engine.advance(1);
        let granter = engine.clone();
        let granter = thread::spawn(move || granter.lease(0, 5));
        engine.advance(2);
        granter.join().unwrap();
        engine.settle(2);
    });
}

/// A registrar that sleeps while the wheel turns by all ranges of a level pushes its cell on a slot that
/// is another range's by then. It is looked at although the cells of that range are still moving.
///
/// Fails if an advance that takes a flagged slot leaves alone what has come out of it and is still to be moved.
#[test]
fn a_push_on_a_slot_of_a_later_revolution_is_not_left_behind() {
    check(|| {
        let engine = Engine::new();
        let granter = engine.clone();
        let granter = thread::spawn(move || granter.lease(0, 4));
        engine.advance(6);
        engine.lease(1, 12);
        engine.advance(10);
        granter.join().unwrap();
        engine.settle(10);
    });
}

/// A cell that is wanted early while its linked tick fires is looked at in time, whichever of both
/// comes first.
///
/// Fails without the look in `Turn::look_again`.
#[test]
fn an_early_registration_against_the_linked_tick() {
    check(|| {
        let engine = Engine::new();
        engine.lease(0, 2);
        engine.lease(0, 3);
        let holder = engine.clone();
        let holder = thread::spawn(move || holder.lease(0, 1));
        engine.advance(2);
        holder.join().unwrap();
        engine.settle(2);
    });
}

/// A cell whose deadline is shortened again while its early look is under way is looked at in time.
///
/// Fails without the look in `Turn::look_again` after an early look.
#[test]
fn an_early_registration_against_an_early_look() {
    check(|| {
        let engine = Engine::new();
        engine.lease(0, 3);
        engine.lease(0, 1);
        engine.cells[0].deadline.store(3, Ordering::Release);
        let holder = engine.clone();
        let holder = thread::spawn(move || holder.lease(0, 2));
        engine.advance(1);
        holder.join().unwrap();
        engine.settle(1);
    });
}

/// A cell that is on the early stack when its linked tick fires is not pushed on it once more.
///
/// Fails, by going in circles, if `Word::in_place_of` drops the mark.
#[test]
fn a_cell_is_on_the_early_stack_once() {
    check(|| {
        let engine = Engine::new();
        engine.lease(0, 2);
        engine.lease(0, 1);
        engine.cells[0].deadline.store(5, Ordering::Release);
        let holder = engine.clone();
        let holder = thread::spawn(move || holder.lease(0, 3));
        engine.advance(2);
        holder.join().unwrap();
        engine.settle(2);
    });
}

/// Two threads shorten one deadline while an advance takes the early stack: the shorter one counts.
///
/// Fails if `Shard::hurry` publishes the tick of its own mark instead of reading the word again
/// after its push, and if an advance takes the early stack before `early_due`.
#[test]
fn two_early_registrations_against_the_advance_that_takes_them() {
    check(|| {
        let engine = Engine::new();
        engine.lease(0, 3);
        // Something for the advance to take the early stack for.
        engine.lease(1, 3);
        engine.lease(1, 2);
        let threads = [2, 1].map(|deadline| {
            let engine = engine.clone();
            thread::spawn(move || {
                let state = &engine.cells[0].deadline;
                let shorter = |old| (deadline < old).then_some(deadline);
                let _ = state.fetch_update(Ordering::AcqRel, Ordering::Acquire, shorter);
                fence(Ordering::SeqCst);
                let word = engine.wheel(0).load(Ordering::Acquire);
                if !engine.wheel.covers(word, deadline) {
                    let _ = engine.wheel.register(&*engine, 0, deadline);
                }
            })
        });
        engine.advance(0);
        for thread in threads {
            thread.join().unwrap();
        }
        engine.settle(0);
    });
}

/// A driver that falls asleep is woken for a registration that comes before its hour, or sees it.
///
/// Fails without the fence in `Wheel::prepare_sleep`, without its second look, and without the
/// fences of `Shard::link` (for the first deadline) and `Shard::hurry` (for the second).
#[test]
fn a_driver_does_not_sleep_through_a_registration() {
    for early in [false, true] {
        check(move || {
            let engine = Engine::new();
            if early {
                engine.lease(0, 3);
            }
            let granter = engine.clone();
            let granter = thread::spawn(move || granter.lease(0, 1));
            let until = engine.wheel.next_due();
            let asleep = engine.wheel.prepare_sleep(until);
            let woken = granter.join().unwrap();
            let oversleeps = asleep && until.is_none_or(|until| until > 1);
            assert!(!oversleeps || woken, "asleep until {until:?}");
        });
    }
}

/// The same for one that finds its slot passed by the driver's own advance.
///
/// Fails without the fence after the flag in `Shard::link`.
#[test]
fn a_driver_does_not_sleep_through_a_registration_that_came_too_late() {
    check(|| {
        let engine = Engine::new();
        let granter = engine.clone();
        let granter = thread::spawn(move || granter.lease(0, 1));
        engine.advance(1);
        let until = engine.wheel.next_due();
        let asleep = engine.wheel.prepare_sleep(until);
        let woken = granter.join().unwrap();
        let fired = engine.cells[0].deadline.load(Ordering::SeqCst) == FREE;
        let oversleeps = asleep && until.is_none_or(|until| until > 1);
        assert!(fired || !oversleeps || woken, "asleep until {until:?}");
    });
}

/// An advance by another thread wakes a driver that fell asleep while the cell was in its hands: to
/// be moved to the first level, looked at and linked again, or wanted early again.
///
/// Fails without the fence at the end of `Wheel::turn_to` (the first), and if it does not tell what
/// it put back (all).
#[test]
fn a_driver_does_not_sleep_through_what_another_advance_puts_back() {
    for (registered, deadline, now) in [(&[4][..], 4, 2), (&[1], 2, 1), (&[3, 1], 2, 1)] {
        check(move || {
            let engine = Engine::new();
            for &deadline in registered {
                engine.lease(0, deadline);
            }
            engine.cells[0].deadline.store(deadline, Ordering::Release);
            let driver = engine.clone();
            let driver = thread::spawn(move || driver.wheel.prepare_sleep(None));
            let woken = engine.advance(now);
            let asleep = driver.join().unwrap();
            assert!(!asleep || woken, "asleep, and due at {deadline}");
        });
    }
}

/// Who looks from outside for what is due next, while another thread has the only cell in hand, is not told that nothing
/// is, nor of a later tick.
///
/// Fails without the fence in [`Advances::unless_under_way`], without both that an advance begins with (the first in
/// `advance_to`, and that in `Turn::run`: either is enough), if the advance does not count itself, and if it
/// counts itself as ended before it has put the cell back.
#[test]
fn who_looks_from_outside_misses_nothing_that_an_advance_has_in_hand() {
    for (registered, deadline, now) in [(4, 4, 2), (1, 3, 1)] {
        check(move || {
            let engine = Engine::new();
            let advances = Arc::new(Advances::default());
            engine.lease(0, registered);
            engine.cells[0].deadline.store(deadline, Ordering::Release);
            let driver = {
                let (engine, advances) = (engine.clone(), advances.clone());
                thread::spawn(move || {
                    advances.begin();
                    engine.advance(now);
                    advances.end();
                })
            };
            if let Some(due) = advances.unless_under_way(|| engine.wheel.next_due()) {
                assert!(due.is_some_and(|due| due <= deadline), "next due: {due:?}");
            }
            driver.join().unwrap();
        });
    }
}

/// Of two threads that advance at once, one does the work of both if the other goes away.
///
/// Fails without the first fence in `Wheel::advance_to`, and if `wanted` is not read again. (Loom's
/// mutex orders more than a mutex has to, which hides the second fence.)
#[test]
fn an_advance_that_finds_another_at_it_is_made_up_for() {
    check(|| {
        let engine = Engine::new();
        engine.lease(0, 1);
        let other = engine.clone();
        let other = thread::spawn(move || other.advance(1));
        engine.advance(0);
        other.join().unwrap();
        let deadline = engine.cells[0].deadline.load(Ordering::SeqCst);
        assert_eq!(deadline, FREE, "nobody went to tick 1");
    });
}
