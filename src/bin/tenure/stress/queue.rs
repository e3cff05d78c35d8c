//! Whether a key is granted in the order of arrival.
//!
//! Arrivals can't be observed from outside, but they can be put in order: whoever takes a ticket does so
//! under the key's lock, in which its acquisition is polled for the first time, and that enqueues it. So
//! of two tickets the smaller one had its place before the other asked for one. Tokens tell the order of
//! the grants, however late those are noticed. Of two tickets that were both granted, the greater must
//! have the greater token, one that was granted at its first poll included: while somebody waits, nobody
//! else is granted the key. Tickets that were cancelled or refused compare with nothing, and acquisitions
//! without a ticket may stand anywhere in between.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;

/// The tickets of one key.
#[derive(Debug, Default)]
pub(super) struct Queue(Mutex<Line>);

#[derive(Debug, Default)]
struct Line {
    next: u64,
    waiting: BTreeSet<u64>,
    /// Tokens by ticket, of those that somebody who waits may still have overtaken.
    granted: BTreeMap<u64, u64>,
    /// The greatest token of all others: every ticket that is to come is greater than theirs.
    passed: u64,
}

/// A place in the order of arrival.
#[derive(Debug)]
#[must_use = "a ticket that is kept keeps all later ones in memory"]
pub(super) struct Ticket(u64);

impl Queue {
    /// Makes an arrival, by polling an acquisition for the first time, and takes its ticket.
    pub(super) fn arrive<R>(&self, poll: impl FnOnce() -> R) -> (R, Ticket) {
        let mut line = self.0.lock();
        let polled = poll();
        let ticket = line.next;
        line.next += 1;
        line.waiting.insert(ticket);
        (polled, Ticket(ticket))
    }

    /// A ticket was granted; false if that was out of order.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is used once")]
    pub(super) fn granted(&self, ticket: Ticket, token: u64) -> bool {
        let Ticket(ticket) = ticket;
        let mut line = self.0.lock();
        // An inversion among any two shows between neighbours when the later one is noticed.
        let before = line.granted.range(..ticket).next_back();
        let after = line.granted.range(ticket..).next();
        let in_order = token > line.passed
            && before.is_none_or(|(_, &before)| before < token)
            && after.is_none_or(|(_, &after)| token < after);
        line.granted.insert(ticket, token);
        line.settled(ticket);
        in_order
    }

    /// A ticket was given up.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is used once")]
    pub(super) fn gone(&self, ticket: Ticket) {
        self.0.lock().settled(ticket.0);
    }
}

impl Line {
    fn settled(&mut self, ticket: u64) {
        self.waiting.remove(&ticket);
        let first = self.waiting.first().copied().unwrap_or(self.next);
        while let Some(entry) = self.granted.first_entry()
            && *entry.key() < first
        {
            self.passed = self.passed.max(entry.remove());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tickets(queue: &Queue) -> [Ticket; 3] {
        [(); 3].map(|()| queue.arrive(|| ()).1)
    }

    #[test]
    fn grants_in_order_are_in_order_however_late_they_are_noticed() {
        let queue = Queue::default();
        let [a, b, c] = tickets(&queue);
        assert!(queue.granted(c, 9));
        assert!(queue.granted(a, 3));
        assert!(queue.granted(b, 5));
        assert!(queue.0.lock().granted.is_empty(), "nobody waits any more");
    }

    #[test]
    fn whoever_overtakes_is_seen() {
        let queue = Queue::default();
        let [a, b, c] = tickets(&queue);
        assert!(queue.granted(b, 3));
        assert!(!queue.granted(a, 5));
        assert!(
            !queue.granted(c, 4),
            "those before it are forgotten, their tokens are not"
        );
    }

    #[test]
    fn a_ticket_that_was_given_up_compares_with_nothing() {
        let queue = Queue::default();
        let [a, b, c] = tickets(&queue);
        queue.gone(a);
        assert!(queue.granted(b, 1));
        assert!(queue.granted(c, 2));
    }
}
