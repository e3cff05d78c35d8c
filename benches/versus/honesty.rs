//! Whether contenders do what they are measured at. Shown by `--test`.

use std::thread;
use std::time::Duration;

use tenure_benches::measure::Kind;

use crate::contenders::{LeaseTable, Visit, each};
use crate::options::Options;
use crate::tasks::TTL;

/// Panics if a contender that is wanted is not honest.
pub(crate) fn check(options: &Options) {
    each(&mut Check(options));
}

struct Check<'o>(&'o Options);

impl Visit for Check<'_> {
    fn table<T: LeaseTable>(&mut self, name: &'static str, kind: Kind, new: impl Fn() -> T) {
        self.server(name, kind, || Some(new()));
    }

    fn server<T: LeaseTable>(
        &mut self,
        name: &'static str,
        _kind: Kind,
        new: impl Fn() -> Option<T>,
    ) {
        if !self.0.wants(name) {
            return;
        }
        let Some(table) = new() else { return };
        excludes(&table, name);
        if T::CAN_RENEW {
            renews(&table, name);
        }
        if T::CAN_EXPIRE {
            expires(&table, name);
        }
        assert_eq!(table.pairs(&[1, 2, 3], 10, TTL), 3, "{name}");
    }
}

fn grant<'t, T: LeaseTable>(
    table: &'t T,
    key: u64,
    ttl: Duration,
    name: &'static str,
) -> T::Lease<'t> {
    let granted = table.acquire(key, 10, ttl);
    granted.unwrap_or_else(|_| panic!("{name} refuses key {key}, which is free"))
}

fn excludes<T: LeaseTable>(table: &T, name: &'static str) {
    let first = grant(table, 1, TTL, name);
    assert!(table.acquire(1, 11, TTL).is_err(), "{name} grants it twice");
    let other = grant(table, 2, TTL, name);
    let token = T::token(&first);
    assert!(table.release(first), "{name} doesn't release");
    let second = grant(table, 1, TTL, name);
    let rises = T::token(&second) > token;
    // Products without tokens say 0.
    assert!(rises || token == 0, "{name} has tokens that don't rise");
    assert!(table.release(second) && table.release(other), "{name}");
}

fn renews<T: LeaseTable>(table: &T, name: &'static str) {
    let lease = grant(table, 1, TTL, name);
    let token = T::token(&lease);
    assert!(table.renew(&lease, 2 * TTL), "{name} doesn't renew");
    assert!(table.renew_by_key(1, token, 3 * TTL), "{name}, by key");
    let wrong = table.renew_by_key(1, token + 1, TTL);
    assert!(!wrong, "{name} doesn't look at the token");
    assert!(table.release(lease), "{name} lost it under renewal");
    let ended = table.renew_by_key(1, token, TTL);
    assert!(!ended, "{name} renews what is released");
}

fn expires<T: LeaseTable>(table: &T, name: &'static str) {
    const SOON: Duration = Duration::from_millis(50);
    let short = grant(table, 1, SOON, name);
    let token = T::token(&short);
    table.keep(short);
    table.keep(grant(table, 2, SOON, name));
    let long = grant(table, 3, TTL, name);
    thread::sleep(2 * SOON);
    let late = table.renew_by_key(1, token, TTL);
    assert!(!late, "{name} renews what is past its deadline");
    // Nobody has swept yet.
    let next = grant(table, 1, TTL, name);
    assert!(table.sweep() <= 1, "{name} ends what is not due");
    assert!(table.release(grant(table, 2, TTL, name)), "{name}");
    let live = table.release(next) && table.release(long);
    assert!(live, "{name} ended leases before their deadline");
}
