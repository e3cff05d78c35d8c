//! What is read is checked: rotten, torn and made-up bytes are errors, and nothing else.

use std::hash::Hasher;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use siphasher::sip::SipHasher24;
use tenure::{Checkpoint, FencingToken, LockManager, ManualClock, RestoreError};

use crate::{manual, ms, stored};

/// With something of everything.
fn checkpoint() -> Checkpoint {
    let (locks, _) = manual();
    locks.try_acquire(1, 1, ms(10)).unwrap().detach();
    let name = "a name of more than fifteen bytes";
    locks.try_acquire(name, 1, ms(10)).unwrap().detach();
    for owner in 0..3 {
        let shared = locks.acquire(2, owner, ms(10)).shared();
        shared.lock_delay(ms(4)).try_now().unwrap().detach();
        let permit = locks.acquire(3, owner, ms(10)).permit(3);
        permit.min_hold(ms(4)).try_now().unwrap().detach();
    }
    let kept = locks.acquire(4, 1, ms(10)).auto_renew(ms(40));
    kept.try_now().unwrap().detach();
    let delayed = locks.acquire(5, 1, ms(10)).min_hold(ms(40)).try_now();
    delayed.unwrap().release().unwrap();
    locks.checkpoint()
}

fn sealed(mut content: Vec<u8>) -> Vec<u8> {
    let mut hasher = SipHasher24::new();
    hasher.write(&content);
    content.extend(hasher.finish().to_le_bytes());
    content
}

/// Must not panic, whatever it says.
fn try_to_restore(bytes: &[u8]) -> Result<(), RestoreError> {
    let checkpoint = Checkpoint::from_bytes(bytes)?;
    assert_eq!(
        Checkpoint::from_bytes(&checkpoint.to_bytes()),
        Ok(checkpoint.clone())
    );
    let _ = checkpoint.leases().count() + checkpoint.delayed().count();
    let builder = LockManager::builder().clock(ManualClock::new());
    let locks = builder.restore(&checkpoint)?;
    let _ = locks.try_acquire(1, 1, ms(1)).is_ok();
    assert!(locks.len() >= checkpoint.len());
    Ok(())
}

#[test]
fn a_change_of_any_bit_is_seen() {
    let bytes = stored(&checkpoint()).to_bytes();
    assert_eq!(try_to_restore(&bytes), Ok(()));
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            let error = Checkpoint::from_bytes(&changed).unwrap_err();
            let expected = match at {
                0..8 => matches!(error, RestoreError::NotACheckpoint),
                8..12 => matches!(error, RestoreError::Format { known: 1, .. }),
                _ => matches!(error, RestoreError::Damaged),
            };
            assert!(expected, "bit {bit} of byte {at}: {error}");
        }
    }
}

#[test]
fn a_missing_or_added_end_is_seen() {
    let bytes = checkpoint().to_bytes();
    for length in 0..bytes.len() {
        let error = Checkpoint::from_bytes(&bytes[..length]).unwrap_err();
        let expected = match length {
            0..8 => RestoreError::NotACheckpoint,
            _ => RestoreError::Damaged,
        };
        assert_eq!(error, expected, "{length} bytes");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert_eq!(Checkpoint::from_bytes(&longer), Err(RestoreError::Damaged));
    // And bytes that were added before the checksum was made.
    let mut content = bytes[..bytes.len() - 8].to_vec();
    content.push(0);
    let error = Checkpoint::from_bytes(&sealed(content)).unwrap_err();
    assert!(matches!(error, RestoreError::Malformed { .. }), "{error}");
}

#[test]
fn counts_that_promise_too_much_take_no_memory() {
    let empty = LockManager::new().checkpoint().to_bytes();
    let content = &empty[..empty.len() - 8];
    // The last two bytes are the numbers of leases and of keys that are kept free.
    assert_eq!(content[content.len() - 2..], [0, 0]);
    for at in [1, 2] {
        let mut content = content[..content.len() - at].to_vec();
        content.extend([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]);
        let error = Checkpoint::from_bytes(&sealed(content)).unwrap_err();
        assert!(matches!(error, RestoreError::Malformed { .. }), "{error}");
    }
}

#[test]
fn bytes_of_a_later_format_are_told_as_such() {
    let mut bytes = checkpoint().to_bytes();
    bytes[8] = 2;
    let format = RestoreError::Format { found: 2, known: 1 };
    assert_eq!(Checkpoint::from_bytes(&bytes), Err(format.clone()));
    let mut text = serde_json::to_value(checkpoint()).unwrap();
    text["format"] = json!(2);
    let error = serde_json::from_value::<Checkpoint>(text).unwrap_err();
    assert_eq!(error.to_string(), format.to_string());
}

#[test]
fn the_binary_form_is_fixed() {
    let builder = LockManager::builder().hash_seed(tenure::HashSeed::new(5));
    let locks = builder.clock(ManualClock::new()).build().unwrap();
    locks.try_acquire(7, 9, ms(1)).unwrap().detach();
    let bytes = locks.checkpoint().to_bytes();
    let mut content = b"tenureCP\x01\0\0\0".to_vec();
    // Format, seed, the tick of a million in three bytes, now, floor, no log; one lease: key, owner, token,
    // exclusive, entered once, a million nanoseconds, no terms; no key that is kept free.
    content.extend([1, 5, 0xc0, 0x84, 0x3d, 0, 1, 0]);
    content.extend([1, 7, 9, 1, 0, 1, 0xc0, 0x84, 0x3d, 0, 0]);
    assert_eq!(bytes, sealed(content));
}

#[test]
fn contents_that_no_manager_can_have_are_refused() {
    let (locks, _) = manual();
    for owner in 0..2 {
        let shared = locks.acquire(2, owner, ms(10)).shared();
        shared.lock_delay(ms(4)).try_now().unwrap().detach();
    }
    locks
        .acquire(3, 1, ms(10))
        .auto_renew(ms(40))
        .try_now()
        .unwrap()
        .detach();
    locks
        .acquire(4, 1, ms(10))
        .permit(2)
        .try_now()
        .unwrap()
        .detach();
    for key in [5, 6] {
        let delayed = locks.acquire(key, 1, ms(10)).min_hold(ms(40)).try_now();
        delayed.unwrap().release().unwrap();
    }
    let good = serde_json::to_value(locks.checkpoint()).unwrap();
    let floor = good["floor"].as_u64().unwrap();
    let key = |raw: u8| json!(format!("0x{raw:032x}"));
    let bad: [(&str, Value, &str); 27] = [
        ("/tick", json!(0), "tick"),
        ("/tick", json!(u64::MAX), "tick"),
        ("/floor", json!(0), "token"),
        ("/floor", json!(u64::MAX), "floor"),
        ("/floor", json!((1_u64 << 63) - (1 << 54)), "floor"),
        ("/seed", json!(5), "hexadecimal"),
        ("/leases/0/key", key(9), "out of order"),
        ("/leases/1/token", json!(1), "out of order"),
        ("/leases/0/token", json!(0), "token"),
        ("/leases/1/token", json!(floor + 1), "token"),
        ("/leases/1/mode", json!("exclusive"), "exclude"),
        ("/leases/1/mode", json!({"permit": {"of": 2}}), "exclude"),
        ("/leases/3/mode", json!({"permit": {"of": 0}}), "exclude"),
        (
            "/leases/3/mode",
            json!({"permit": {"of": 1_u64 << 30}}),
            "exclude",
        ),
        ("/leases/3/mode", json!("nonsense"), "nonsense"),
        ("/leases/0/entries", json!(0), "entered by nobody"),
        ("/leases/0/entries", json!(-1), "-1"),
        ("/leases/0/remaining", json!(0), "no time left"),
        ("/leases/0/remaining", json!((1_u64 << 62) + 1), "more time"),
        ("/leases/0/terms/lock_delay", json!(0), "say nothing"),
        ("/leases/2/terms/max_hold", json!(1), "longer than it may"),
        ("/leases/2/terms/max_hold", Value::Null, "without end"),
        ("/leases/2/terms/renewal/ttl", json!(0), "no time left"),
        ("/kept/0/remaining", json!(0), "no time left"),
        ("/kept/0/key", key(6), "out of order"),
        ("/kept/1/key", key(5), "out of order"),
        ("/leases/3/key", key(2), "out of order"),
    ];
    assert!(serde_json::from_value::<Checkpoint>(good.clone()).is_ok());
    for (place, value, says) in bad {
        let mut checkpoint = good.clone();
        *checkpoint.pointer_mut(place).expect(place) = value.clone();
        let error = serde_json::from_value::<Checkpoint>(checkpoint).unwrap_err();
        assert!(
            error.to_string().contains(says),
            "{place}: {value}: {error}"
        );
    }
    // Three on two permits.
    let mut checkpoint = good;
    checkpoint["floor"] = json!(100);
    let leases = checkpoint["leases"].as_array_mut().unwrap();
    let last = leases[3].clone();
    for token in [99, 100] {
        let mut more = last.clone();
        more["token"] = json!(token);
        leases.push(more);
    }
    let error = serde_json::from_value::<Checkpoint>(checkpoint).unwrap_err();
    assert!(error.to_string().contains("exclude"), "{error}");
}

#[test]
fn a_lease_may_last_to_the_end_of_what_it_may_be_renewed_to() {
    let (locks, _) = manual();
    let kept = locks.acquire(3, 1, ms(10)).auto_renew(ms(40)).try_now();
    kept.unwrap().detach();
    let mut checkpoint = serde_json::to_value(locks.checkpoint()).unwrap();
    let lease = &mut checkpoint["leases"][0];
    lease["terms"]["max_hold"] = lease["remaining"].clone();
    let checkpoint: Checkpoint = serde_json::from_value(checkpoint).unwrap();
    let restored = LockManager::builder()
        .clock(ManualClock::new())
        .restore(&checkpoint);
    let remaining = checkpoint.leases().next().unwrap().remaining;
    assert_eq!(
        restored.unwrap().holder(3).map(|it| it.remaining),
        Some(remaining)
    );
}

/// The manager that it is made into takes it over the limit, by its first token.
#[test]
fn from_the_highest_floor_on_there_are_tokens_and_no_more_checkpoints() {
    let highest = (1_u64 << 63) - 1 - (1 << 55);
    let mut checkpoint = serde_json::to_value(LockManager::new().checkpoint()).unwrap();
    checkpoint["floor"] = json!(highest);
    let checkpoint: Checkpoint = serde_json::from_value(checkpoint).unwrap();
    let builder = || LockManager::builder().clock(ManualClock::new());
    let locks = builder().restore(&checkpoint).unwrap();
    let lease = locks.try_acquire(1, 1, ms(10)).unwrap();
    assert!(lease.token().get() > highest, "I2");

    let beyond = locks.checkpoint();
    let floor = beyond.floor().unwrap();
    assert!(floor >= lease.token());
    let refused = Err(RestoreError::Floor { floor: floor.get() });
    assert_eq!(builder().restore(&beyond).map(drop), refused);
    assert_eq!(
        Checkpoint::from_bytes(&beyond.to_bytes()).map(drop),
        refused
    );

    // What is raised by hand stays below that for long.
    let mut raised = LockManager::new().checkpoint();
    let most = FencingToken::new((1 << 63) - 1 - (1 << 56)).unwrap();
    raised.raise_floor(most).unwrap();
    let floor = most.next().unwrap();
    let refused = Err(RestoreError::Floor { floor: floor.get() });
    assert_eq!(raised.raise_floor(floor), refused);
    let locks = builder().restore(&raised).unwrap();
    let token = locks.try_acquire(1, 1, ms(10)).unwrap().token();
    assert!(token > most, "I2");
    assert_eq!(try_to_restore(&locks.checkpoint().to_bytes()), Ok(()));
}

/// By a term without end, or by rounding and a grace, more is left than any TTL is long.
#[test]
fn what_lasts_for_centuries_can_be_read_again() {
    let clock = ManualClock::new();
    let hour = Duration::from_secs(3600);
    let builder = || LockManager::builder().clock(clock.clone()).tick(hour);
    let locks = builder().build().unwrap();
    let held = locks.acquire(1, 1, hour).min_hold(Duration::MAX);
    held.try_now().unwrap().release().unwrap();
    locks.try_acquire(2, 1, 2 * hour).unwrap().detach();
    assert_eq!(try_to_restore(&locks.checkpoint().to_bytes()), Ok(()));

    let century = 100 * 365 * 24 * hour;
    let restored = builder().restore_with_grace(&locks.checkpoint(), century);
    let again = builder().restore_with_grace(&restored.unwrap().checkpoint(), century);
    let bytes = again.unwrap().checkpoint().to_bytes();
    assert!(Checkpoint::from_bytes(&bytes).is_ok());
}

#[test]
fn every_error_says_what_to_do_next() {
    let key = tenure::Key::from_raw(7);
    for (error, advice) in [
        (RestoreError::NotACheckpoint, "check which file"),
        (
            RestoreError::Format { found: 2, known: 1 },
            "restore it with",
        ),
        (RestoreError::Damaged, "restore an earlier one"),
        (RestoreError::Floor { floor: 3 }, "check what wrote it"),
        (RestoreError::HashSeed, "leave `hash_seed` out"),
        (
            RestoreError::MaxKeys {
                leases: 4,
                limit: 3,
            },
            "raise `max_keys`",
        ),
        (RestoreError::TooLong { key, grace: ms(1) }, "give less"),
        (RestoreError::NotOfAReplica, "Builder::restore"),
        (RestoreError::NoRoom { key }, "restore again"),
    ] {
        assert!(error.to_string().contains(advice), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(if cfg!(debug_assertions) { 500 } else { 20_000 })
    })]

    /// Rot that the checksum was made of: whatever is read can be restored, or says why not.
    #[test]
    fn made_up_contents_are_restored_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let bytes = checkpoint().to_bytes();
        let mut content = bytes[..bytes.len() - 8].to_vec();
        for (at, to) in changes {
            let at = 12 + at.index(content.len() - 12);
            content[at] = to;
        }
        let _ = try_to_restore(&sealed(content));
    }

    #[test]
    fn any_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut content = b"tenureCP\x01\0\0\0".to_vec();
        content.extend(bytes);
        let _ = try_to_restore(&sealed(content));
    }
}
