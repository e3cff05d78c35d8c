//! Checkpoints: how one is taken while traffic goes on, and how an engine begins with one.
//!
//! # Why no lease is missed
//!
//! A lease that is held throughout may move while it is looked for: with its bucket, into a copy, and from
//! the table into its key's record. [`Table::collect`](crate::table::Table::collect) copes with the first.
//! From a record no lease ever comes back to the table, so the table is looked through first and the
//! records after it: a lease that has left the table before its bucket was read is in its record when
//! that is read, since it moves under the record's lock.
//!
//! It may be seen in both places, and leases of one key that followed on each other too. Then the record
//! tells, which was read later: while it holds a lease, or keeps the key free, the table has no live lease
//! of that key. So each key is as it was at one moment, and no two leases are in the checkpoint that
//! exclude each other (I1).
//!
//! Last comes the floor: the counters only rise, so it is above every token that was granted before, and
//! above those of all leases that were seen. Their remaining times are counted from the reading of the
//! clock at the start, before which none of them was over.

use std::collections::HashSet;
use std::time::Duration;

use super::Engine;
use super::admission::KEPT_TICKS;
use crate::builder::LONGEST_TTL;
use crate::checkpoint::{Content, FORMAT, Kept, Renewal, RestoreError, Saved, Terms};
use crate::error::BuildError;
use crate::key::Key;
use crate::records::{Holder, Keeper, Record};
use crate::reservation::ReservationError;
use crate::table::{Contents, Layout};
use crate::wish::{self, Mode};

pub(super) fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

impl<L: Layout> Engine<L> {
    /// What a checkpoint of this moment has in it; see the head of this file.
    pub(crate) fn save(&self) -> Content {
        let now = self.time.now();
        let mut leases = self.save_table(now);
        let (mut recorded, mut kept, decided) = self.save_records(now);
        leases.retain(|lease| !decided.contains(&lease.key));
        leases.append(&mut recorded);
        leases.sort_unstable_by_key(Saved::place);
        kept.sort_unstable_by_key(|kept| kept.key);
        Content {
            format: FORMAT,
            seed: self.seed,
            tick: nanos(self.time.tick()),
            now,
            floor: self.newest_token(),
            log: None,
            leases,
            kept,
        }
    }

    /// The table's leases that are live when their bucket is read.
    fn save_table(&self, now: u64) -> Vec<Saved> {
        let bits = self.class_bits();
        let (mut leases, mut found) = (vec![], vec![]);
        for class in 0..1_usize << bits {
            let tick = self.with(self.time.now(), |local| {
                self.table.collect(local, class, bits, &mut found);
                local.now
            });
            let live = found.iter().filter(|lease| lease.deadline > tick);
            leases.extend(live.map(|lease| Saved {
                key: lease.key,
                owner: lease.owner,
                token: lease.token,
                mode: Mode::Exclusive,
                entries: 1,
                remaining: self.left(lease.deadline, now),
                terms: None,
            }));
        }
        leases
    }

    /// The leases that records hold, the keys that they keep free, and all keys of which they tell.
    fn save_records(&self, now: u64) -> (Vec<Saved>, Vec<Kept>, HashSet<Key>) {
        let (mut leases, mut kept, mut decided) = (vec![], vec![], HashSet::new());
        for stripe in self.records.stripes() {
            let stripe = stripe.lock();
            let tick = self.time.tick_of(self.time.now());
            for (&key, record) in &stripe.records {
                if record.holders.is_empty() && record.quarantine.is_none() {
                    continue;
                }
                decided.insert(key);
                let (over, until) = self.over_and_kept(record, tick);
                kept.extend(until.map(|until| Kept {
                    key,
                    remaining: self.left(until, now),
                }));
                let holders = record.holders.iter();
                let live = holders.filter(|it| !over.contains_key(&it.token));
                leases.extend(live.filter_map(|holder| self.save_holder(key, holder, tick, now)));
            }
        }
        (leases, kept, decided)
    }

    /// `None` if it is not to be kept.
    fn save_holder(&self, key: Key, holder: &Holder, tick: u64, now: u64) -> Option<Saved> {
        // Read once, for it may change at any time; and over or not: it was live when the record was looked at.
        let ends = holder.session.as_ref().map(|session| session.deadline());
        let until = holder.deadline.min(ends.unwrap_or(u64::MAX));
        // Of an acquisition of many keys that waits for the others: nobody knows of it, and who waits goes
        // with the process.
        if until <= tick || ends.is_some_and(|ends| ends >= self.time.last_tick()) {
            return None;
        }
        let left = |tick| self.time.nanos_until(tick, now);
        let terms = Terms {
            lock_delay: nanos(holder.terms.lock_delay),
            min_hold: left(holder.min_until),
            max_hold: (holder.cap < u64::MAX).then(|| left(holder.cap)),
            renewal: holder.keeper.map(|keeper| Renewal {
                ttl: nanos(keeper.ttl),
                due: left(keeper.next),
            }),
        };
        Some(Saved {
            key,
            owner: holder.owner,
            token: holder.token,
            mode: holder.mode,
            entries: holder.entries,
            remaining: self.left(until, now),
            terms: (terms != Terms::default()).then_some(terms),
        })
    }

    /// What is left until a tick. Rounding, a grace or a lock-delay can make it more than any TTL; of these 146
    /// years no more is kept than can be read again.
    fn left(&self, tick: u64, now: u64) -> u64 {
        self.time.nanos_until(tick, now).min(nanos(LONGEST_TTL))
    }

    /// No token that was granted before the call is above this one.
    fn newest_token(&self) -> u64 {
        let bits = self.class_bits();
        let newest = |class| {
            self.with(self.time.now(), |local| {
                self.table.newest_token(local, class, bits)
            })
        };
        (0..1_usize << bits).map(newest).max().unwrap_or(0)
    }

    /// Begins with the leases of a checkpoint. Nobody else knows of the engine yet.
    pub(crate) fn restore(&self, content: &Content, grace: Duration) -> Result<(), RestoreError> {
        let leases = content.leases.len() + content.kept.len();
        let limit = self.most_leases();
        if leases > limit {
            return Err(RestoreError::MaxKeys { leases, limit });
        }
        let now = self.time.now();
        if self.time.authority(now) == Some(Duration::ZERO) {
            // Whoever has the shard grants its keys.
            let error = self.authority.error().unwrap_or(ReservationError::Lost);
            return Err(BuildError::Reservation { error }.into());
        }
        let kept_free = |key: Key| {
            let found = content.kept.binary_search_by_key(&key, |kept| kept.key);
            found.ok().map(|at| content.kept[at].remaining)
        };
        for leases in content.by_key() {
            let key = leases[0].key;
            match (leases, kept_free(key)) {
                ([lease], None) if lease.is_plain() => self.put_back(lease, now, grace)?,
                (_, kept) => self.put_record(key, leases, kept, now, grace)?,
            }
        }
        let held = |key| content.leases.binary_search_by_key(&key, |it| it.key);
        for &Kept { key, remaining } in &content.kept {
            if held(key).is_err() {
                self.put_record(key, &[], Some(remaining), now, grace)?;
            }
        }
        Ok(())
    }

    /// The tick at which a lease is over that had so much left.
    fn resumed(&self, key: Key, now: u64, left: u64, grace: Duration) -> Result<u64, RestoreError> {
        let resumed = self.uncapped(key, now, left, grace)?;
        // No lease outlives the authority, if there is one.
        Ok(resumed.min(self.time.limit_tick()))
    }

    /// The same of what is no deadline: the authority may be prolonged.
    fn uncapped(
        &self,
        key: Key,
        now: u64,
        left: u64,
        grace: Duration,
    ) -> Result<u64, RestoreError> {
        let left = left.saturating_add(nanos(grace));
        let resumed = self.time.resumed(now, left);
        resumed.ok_or(RestoreError::TooLong { key, grace })
    }

    fn put_back(&self, lease: &Saved, now: u64, grace: Duration) -> Result<(), RestoreError> {
        let key = lease.key;
        let contents = Contents {
            key,
            token: lease.token,
            owner: lease.owner,
            deadline: self.resumed(key, now, lease.remaining, grace)?,
        };
        self.with(now, |local| {
            let put = self.table.put(local, &contents, self.table.hash(key));
            let put = put.map_err(|_| RestoreError::NoRoom { key })?;
            self.watch(put.handle.cell(), put.wheel, contents.deadline);
            Ok(())
        })
    }

    /// Makes the record of a key, with its mark and its timer.
    fn put_record(
        &self,
        key: Key,
        leases: &[Saved],
        kept: Option<u64>,
        now: u64,
        grace: Duration,
    ) -> Result<(), RestoreError> {
        let hash = self.table.hash(key);
        let holders = leases
            .iter()
            .map(|lease| self.restored(lease, now, grace))
            .collect::<Result<Vec<_>, _>>()?;
        // As after a restart it is longer rather than shorter.
        let kept = kept.map(|left| self.time.resumed(now, left));
        let kept = kept.map(|until| until.unwrap_or(self.time.last_tick()));
        self.with(now, |local| {
            let mut stripe = self.records.lock(hash);
            let mut record = Record::default();
            self.need_timer(local, &mut record, key, hash)
                .and_then(|()| self.table.put_first_mark(local, key, hash))
                .map_err(|_| RestoreError::NoRoom { key })?;
            for holder in holders {
                local.counters.add_grant();
                record.holders.insert(holder);
            }
            if let Some(until) = kept
                && record.keep_until(until)
            {
                self.count_kept(local, 1);
            }
            stripe.records.insert(key, Box::new(record));
            self.tidy(local, &mut stripe, key, hash);
            Ok(())
        })
    }

    fn restored(&self, lease: &Saved, now: u64, grace: Duration) -> Result<Holder, RestoreError> {
        let resumed = |left, grace| self.resumed(lease.key, now, left, grace);
        let deadline = resumed(lease.remaining, grace)?;
        let mut holder = Holder::new(lease.token, lease.owner, None, deadline);
        holder.mode = lease.mode;
        holder.entries = lease.entries;
        let Some(terms) = &lease.terms else {
            return Ok(holder);
        };
        holder.terms = wish::Terms {
            lock_delay: Duration::from_nanos(terms.lock_delay),
            ..wish::Terms::default()
        };
        if terms.min_hold > 0 {
            let until = self.time.resumed(now, terms.min_hold);
            holder.min_until = until.unwrap_or(self.time.last_tick());
        }
        if let Some(left) = terms.max_hold {
            // Not before the deadline: what is left of it is no less.
            let cap = self.time.resumed(now, left.saturating_add(nanos(grace)));
            holder.cap = cap.unwrap_or(self.time.last_tick()).max(deadline);
        }
        if let Some(renewal) = terms.renewal {
            let tick = self.time.tick_of(now);
            // As one that is granted, it lasts so long that it can be renewed before its end.
            let until = (tick + KEPT_TICKS).min(self.time.limit_tick());
            holder.extend(deadline.max(until));
            let due = self.time.resumed(now, renewal.due);
            let next = due.map_or(deadline, |next| next.max(tick + 1));
            holder.keeper = Some(Keeper {
                ttl: Duration::from_nanos(renewal.ttl),
                next,
            });
            let uncut = self.uncapped(lease.key, now, lease.remaining, grace)?;
            if deadline < uncut || next >= holder.deadline {
                // The authority takes something off; or both are rounded up to the same tick.
                holder.keep_next(tick, next);
            }
        }
        Ok(holder)
    }
}
