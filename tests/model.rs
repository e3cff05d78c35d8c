//! Random sequences of operations on the manager and on a sequential oracle, side by side, with a
//! manual clock: whatever the manager answers must follow from the invariants (I1 to I6, I8, I9).

mod oracle;

use oracle::operation::{Keep, Operation, Presented, Setting, Ttl};
use oracle::world::run;
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::test_runner::Config;

/// Fewer cases without optimisation, so that a plain `cargo test` stays quick.
fn cases(optimised: u32) -> Config {
    let cases = if cfg!(debug_assertions) {
        optimised / 6
    } else {
        optimised
    };
    Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::with_cases(cases)
    }
}

fn ttl() -> impl Strategy<Value = Ttl> {
    prop_oneof![
        1 => Just(Ttl::Zero),
        12 => (any::<u8>(), any::<u16>()).prop_map(|(ticks, nanos)| Ttl::Ticks(ticks, nanos)),
        6 => (0_u8..4, any::<u16>()).prop_map(|(ticks, nanos)| Ttl::Ticks(ticks, nanos)),
        6 => (any::<u8>(), -1_i8..=1).prop_map(|(power, off)| Ttl::Power(power, off)),
        2 => Just(Ttl::Least),
        1 => Just(Ttl::Greatest),
        1 => Just(Ttl::TooLong),
        1 => Just(Ttl::Endless),
    ]
}

fn presented() -> impl Strategy<Value = Presented> {
    prop_oneof![
        12 => Just(Presented::Last),
        3 => (0_u8..4).prop_map(Presented::Earlier),
        2 => any::<u16>().prop_map(Presented::Other),
        1 => any::<u8>().prop_map(Presented::Unborn),
        1 => any::<u32>().prop_map(Presented::Any),
        1 => Just(Presented::Greatest),
    ]
}

fn keep() -> impl Strategy<Value = Keep> {
    prop_oneof![
        4 => Just(Keep::Guard),
        1 => Just(Keep::Owned),
        2 => Just(Keep::Detached),
        1 => Just(Keep::Forgotten),
        1 => Just(Keep::Dropped),
    ]
}

/// What happens to single leases.
fn single() -> impl Strategy<Value = Operation> {
    let key = any::<u16>;
    let guard = any::<u16>;
    prop_oneof![
        10 => (key(), any::<u8>(), ttl(), keep())
            .prop_map(|(key, owner, ttl, keep)| Operation::Acquire { key, owner, ttl, keep }),
        2 => (key(), any::<u8>(), ttl(), any::<u8>()).prop_map(
            |(key, owner, ttl, above)| Operation::AcquireAtLeast { key, owner, ttl, above }
        ),
        4 => (key(), presented(), ttl())
            .prop_map(|(key, token, ttl)| Operation::Renew { key, token, ttl }),
        4 => (key(), presented()).prop_map(|(key, token)| Operation::Release { key, token }),
        2 => (key(), presented()).prop_map(|(key, token)| Operation::Validate { key, token }),
        2 => key().prop_map(|key| Operation::Revoke { key }),
        1 => key().prop_map(|key| Operation::Holder { key }),
        4 => (guard(), ttl()).prop_map(|(guard, ttl)| Operation::RenewGuard { guard, ttl }),
        3 => guard().prop_map(|guard| Operation::ReleaseGuard { guard }),
        2 => guard().prop_map(|guard| Operation::DropGuard { guard }),
        1 => guard().prop_map(|guard| Operation::DetachGuard { guard }),
        1 => guard().prop_map(|guard| Operation::ForgetGuard { guard }),
        1 => Just(Operation::Iterate),
    ]
}

/// What happens to the time.
fn time() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => (any::<u8>(), any::<u32>())
            .prop_map(|(ticks, nanos)| Operation::Pass { ticks, nanos }),
        4 => (any::<u16>(), any::<bool>())
            .prop_map(|(key, before)| Operation::Edge { key, before }),
        1 => (any::<u8>(), any::<u16>())
            .prop_map(|(exponent, nanos)| Operation::Leap { exponent, nanos }),
        1 => any::<u64>().prop_map(|nanos| Operation::Back { nanos }),
        2 => Just(Operation::Advance),
        2 => Just(Operation::Drive),
    ]
}

/// What happens to many leases at once. The counts decide how far the table grows and shrinks.
fn many() -> impl Strategy<Value = Operation> {
    prop_oneof![
        3 => (any::<u16>(), any::<u16>(), ttl())
            .prop_map(|(from, count, ttl)| Operation::Crowd { from, count, ttl }),
        2 => (any::<u16>(), any::<u16>())
            .prop_map(|(from, count)| Operation::Disperse { from, count }),
    ]
}

/// How many keys fewer may be held than there are, in one of ten worlds.
fn seldom_scarce() -> impl Strategy<Value = Option<u8>> {
    weighted(0.1, 0_u8..8)
}

fn setting(keys: u16, scarce: impl Strategy<Value = Option<u8>>) -> impl Strategy<Value = Setting> {
    (
        any::<bool>(),
        any::<bool>(),
        scarce,
        prop_oneof![Just(900), 0_u16..2000],
    )
        .prop_map(move |(driven, fine, scarce, tick)| Setting {
            keys: keys - 1,
            scarce,
            driven,
            fine,
            tick,
        })
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn a_few_keys_behave_like_the_oracle(
        setting in (1_u16..6).prop_flat_map(|keys| setting(keys, Just(None))),
        operations in vec(prop_oneof![3 => single(), 1 => time()], 1..120),
    ) {
        run(setting, operations);
    }

    #[test]
    fn a_full_table_refuses_and_evicts_nobody(
        setting in (2_u16..24).prop_flat_map(|keys| setting(keys, (0_u8..8).prop_map(Some))),
        operations in vec(prop_oneof![5 => single(), 1 => time()], 1..120),
    ) {
        run(setting, operations);
    }
}

proptest! {
    #![proptest_config(cases(160))]

    #[test]
    fn a_growing_and_shrinking_table_behaves_like_the_oracle(
        setting in (512_u16..20_000).prop_flat_map(|keys| setting(keys, seldom_scarce())),
        operations in vec(prop_oneof![24 => single(), 4 => time(), 2 => many()], 1..150),
    ) {
        run(setting, operations);
    }
}

proptest! {
    #![proptest_config(cases(80))]

    #[test]
    fn a_long_life_behaves_like_the_oracle(
        setting in (8_u16..2_000).prop_flat_map(|keys| setting(keys, seldom_scarce())),
        operations in vec(prop_oneof![120 => single(), 20 => time(), 1 => many()], 2_000..6_000),
    ) {
        run(setting, operations);
    }
}
