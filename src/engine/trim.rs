//! Gives back what maps and heaps keep beyond their contents, once many leases have ended.
//!
//! A map that was large keeps its memory when it is empty: it grows by itself, and does not shrink. The
//! buckets of the table do (`table/growth.rs`), and everything here takes cells of it, so a table that has
//! become smaller is the sign: whoever turns the wheel looks, and looks no more often than the table shrinks.
//! Each map is locked by itself, for the time that it takes to move what is left in it.

use super::Engine;
use crate::locals;
use crate::room::shrink;
use crate::sync::Ordering;
use crate::table::Layout;

impl<L: Layout> Engine<L> {
    /// Trims everything if the table has become smaller than it was at the last call. No lock is held.
    pub(super) fn trim_if_smaller(&self, buckets: usize) {
        if self.trimmed.swap(buckets, Ordering::Relaxed) > buckets {
            self.trim();
        }
    }

    /// Gives back what the calling thread keeps, and then the same for all maps.
    pub(crate) fn trim_thread(&self) {
        locals::forget(self);
        self.trim();
    }

    #[cold]
    fn trim(&self) {
        for stripe in self.records.stripes() {
            shrink(&mut stripe.lock().records);
        }
        shrink(&mut self.sessions.lock());
        self.detector.trim();
        self.observers.trim();
    }
}

#[cfg(all(test, not(any(tenure_loom, tenure_shuttle))))]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use crate::clock::ManualClock;
    use crate::room::SMALL;
    use crate::{LockManager, Session};

    const TTL: Duration = Duration::from_secs(10);
    const MANY: u64 = 20_000;

    fn manager(clock: &ManualClock) -> LockManager {
        let builder = LockManager::builder().clock(clock.clone());
        let builder = builder.introspection(true).deadlock_detection(2);
        builder.build().unwrap()
    }

    /// Room for records, sessions and names.
    fn room(locks: &LockManager) -> [usize; 3] {
        let engine = locks.engine();
        let records = engine.records.stripes();
        [
            records.map(|stripe| stripe.lock().records.capacity()).sum(),
            engine.sessions.lock().capacity(),
            engine.observers.room(),
        ]
    }

    /// Turns the wheel until the table has its size.
    fn settle(locks: &LockManager) {
        while locks.stats().resizing || locks.stats().buckets > 16_384 {
            locks.advance();
        }
        locks.advance();
    }

    /// Has the table grow and shrink, from a thread that ends.
    fn spike(locks: &LockManager) {
        thread::scope(|scope| {
            let grower = scope.spawn(|| {
                let leases: Vec<_> = (0..MANY)
                    .map(|key| locks.try_acquire(key, key, TTL).unwrap())
                    .collect();
                drop(leases);
            });
            // Joined, its variables are gone as well: the end of a scope does not wait for them.
            grower.join().unwrap();
        });
        settle(locks);
    }

    #[test]
    fn whoever_turns_the_wheel_keeps_no_old_buckets() {
        let clock = ManualClock::new();
        let locks = manager(&clock);
        locks.advance();
        let kept = locks.engine().table.watch_newest();
        assert!(kept());
        spike(&locks);
        assert!(!kept());
    }

    #[test]
    fn a_thread_keeps_old_buckets_until_it_trims_and_is_heard_of_again_afterwards() {
        let clock = ManualClock::new();
        let locks = manager(&clock);
        let kept = locks.engine().table.watch_newest();
        thread::scope(|scope| {
            // Dropped by a failure here, the channels end the other thread too.
            let (say, heard) = mpsc::sync_channel(0);
            let (done, is_done) = mpsc::sync_channel(0);
            let locks = &locks;
            let idle = scope.spawn(move || {
                let lease = locks.try_acquire("idle", 1, TTL).unwrap();
                done.send(()).unwrap();
                heard.recv().unwrap();
                locks.trim();
                done.send(()).unwrap();
                heard.recv().unwrap();
                lease.release()
            });
            is_done.recv().unwrap();
            spike(locks);
            assert!(kept(), "it may still be on its way there");
            assert_eq!(locks.engine().registry.lock().threads.len(), 2);
            say.send(()).unwrap();
            is_done.recv().unwrap();
            assert!(!kept());
            assert_eq!(locks.engine().registry.lock().threads.len(), 1);
            assert_eq!(locks.len(), 1);
            say.send(()).unwrap();
            assert_eq!(idle.join().unwrap(), Ok(()));
        });
        assert_eq!(locks.stats().granted, MANY + 1);
        assert!(locks.is_empty());
    }

    /// I9: memory follows the leases that are out, of whatever kind.
    #[test]
    fn maps_shrink_after_many_leases_have_ended() {
        let clock = ManualClock::new();
        let locks = manager(&clock);
        let before = room(&locks);
        let sessions: Vec<Session<'_>> = (0..MANY)
            .map(|owner| locks.session(owner, TTL).unwrap())
            .collect();
        let shared: Vec<_> = (0..MANY)
            .map(|key| locks.acquire(key, key, TTL).shared().try_now().unwrap())
            .collect();
        let plain: Vec<_> = (MANY..2 * MANY)
            .map(|key| locks.try_acquire(key, key, TTL).unwrap())
            .collect();
        let at_most = room(&locks);
        assert!(
            at_most.iter().all(|&room| room >= MANY as usize),
            "{at_most:?}"
        );
        // So that it is known how large the table was.
        locks.advance();

        // A few stay, and must be found afterwards.
        drop(sessions);
        drop(plain);
        let mut shared = shared;
        shared.truncate(10);
        settle(&locks);
        let after = room(&locks);
        for (after, before) in after.iter().zip(before) {
            let most = before + 64 * 2 * SMALL;
            assert!(*after <= most, "{after:?} of {at_most:?}");
        }
        assert!(after[0] < at_most[0] / 2, "{after:?} of {at_most:?}");
        for lease in &shared {
            let holder = locks.holder(lease.key());
            assert_eq!(holder.unwrap().token, lease.token());
        }
    }
}
