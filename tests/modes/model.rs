//! All modes against a specification that is written for clarity: random operations, one at a time, on a
//! few keys and owners, with the clock in the test's hand.

use proptest::prelude::*;

use crate::operation::{Asked, Operation, Setting, Way};
use crate::world::run;

fn ways() -> impl Strategy<Value = Way> {
    prop_oneof![
        3 => Just(Way::Exclusive),
        3 => Just(Way::Shared),
        2 => any::<u8>().prop_map(Way::Permit),
    ]
}

fn asked() -> impl Strategy<Value = Asked> {
    let who = (any::<u8>(), any::<u8>(), any::<u8>(), ways());
    let terms = (any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>());
    (who, terms, any::<u8>()).prop_map(|(who, terms, session)| {
        let (key, owner, ttl, way) = who;
        let (reentrant, lock_delay, min_hold, max_hold) = terms;
        Asked {
            key,
            owner,
            ttl,
            way,
            reentrant,
            lock_delay,
            min_hold,
            max_hold,
            session,
        }
    })
}

fn operations() -> impl Strategy<Value = Operation> {
    let at = any::<u8>;
    let leases = prop_oneof![
        10 => (asked(), any::<bool>()).prop_map(|(asked, waits)| Operation::Acquire { asked, waits }),
        4 => at().prop_map(Operation::Poll),
        2 => at().prop_map(Operation::Cancel),
        4 => at().prop_map(Operation::Release),
        2 => at().prop_map(Operation::Drop),
        3 => (at(), at()).prop_map(|(at, ttl)| Operation::Renew(at, ttl)),
        3 => (at(), at(), any::<bool>())
            .prop_map(|(guard, ttl, waits)| Operation::Upgrade { guard, ttl, waits }),
        2 => at().prop_map(Operation::Downgrade),
        2 => at().prop_map(Operation::Watch),
        2 => at().prop_map(Operation::Detach),
        1 => at().prop_map(Operation::ReleaseByToken),
        1 => (at(), at()).prop_map(|(at, ttl)| Operation::RenewByToken(at, ttl)),
        1 => at().prop_map(Operation::Validate),
        1 => at().prop_map(Operation::Revoke),
    ];
    let rest = prop_oneof![
        2 => (at(), at()).prop_map(|(slot, ttl)| Operation::OpenSession(slot, ttl)),
        2 => at().prop_map(Operation::KeepAlive),
        1 => at().prop_map(Operation::CloseSession),
        6 => at().prop_map(Operation::Pass),
        2 => at().prop_map(Operation::Leap),
        1 => Just(Operation::Restore),
    ];
    prop_oneof![3 => leases, 1 => rest]
}

/// The same, while the table grows and shrinks.
fn crowded() -> impl Strategy<Value = Operation> {
    let choice = any::<u16>;
    prop_oneof![
        20 => operations(),
        1 => (choice(), choice(), any::<u8>())
            .prop_map(|(from, count, ttl)| Operation::Crowd { from, count, ttl }),
        1 => (choice(), choice()).prop_map(|(from, count)| Operation::Disperse { from, count }),
    ]
}

fn settings() -> impl Strategy<Value = Setting> {
    (any::<bool>(), any::<bool>()).prop_map(|(followed, introspection)| Setting {
        followed,
        introspection,
    })
}

fn cases(debug: u32, release: u32) -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        cases: if cfg!(debug_assertions) {
            debug
        } else {
            release
        },
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(100, 6_000))]

    #[test]
    fn all_modes_do_what_the_specification_says(
        setting in settings(),
        operations in prop::collection::vec(operations(), 1..80),
    ) {
        run(setting, operations);
    }
}

proptest! {
    #![proptest_config(cases(8, 400))]

    #[test]
    fn all_modes_do_so_while_the_table_grows_and_shrinks(
        setting in settings(),
        operations in prop::collection::vec(crowded(), 1..80),
    ) {
        run(setting, operations);
    }
}
