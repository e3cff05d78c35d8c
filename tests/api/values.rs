//! Keys, tokens, holders, guards and fences as values.

use std::collections::HashSet;
use std::error::Error;
use std::fmt::{Debug, Display};

use tenure::{
    AcquireError, BuildError, Builder, Clock, CoarseClock, Fence, Fenced, FencingToken, HashSeed,
    Holder, Key, Lease, LockManager, ManualClock, OwnerId, ReleaseError, RenewError, RevokeError,
    StaleToken, Stats, SystemClock, Timestamp, ToKey, TokenError, ValidateError,
};

use super::{SECOND, manual, on, token};

fn by_reference(manager: &LockManager, key: &impl ToKey) -> Key {
    manager.key(key)
}

fn keys_of_all_kinds(manager: &LockManager) -> Vec<Key> {
    let text = String::from("a string that is longer than fifteen bytes");
    let mut keys = vec![
        manager.key(1_u8),
        manager.key(2_u16),
        manager.key(3_u32),
        manager.key(4_u64),
        manager.key(5_usize),
        manager.key(6_u128),
        manager.key(-1_i8),
        manager.key(-2_i16),
        manager.key(-3_i32),
        manager.key(-4_i64),
        manager.key(-5_isize),
        manager.key(-6_i128),
        manager.key("short"),
        manager.key(""),
        manager.key("fifteen bytes !"),
        manager.key("fifteen bytes !!"),
        manager.key(text.clone()),
        manager.key(&text[1..]),
        manager.key([9_u8; 16]),
        manager.key(&[8_u8, 7, 6][..]),
        manager.key(vec![7_u8; 100]),
        manager.key(Key::from_raw(1 << 127)),
    ];
    // The same name is the same key, however it is held.
    assert_eq!(manager.key(&text), manager.key(text.as_str()));
    assert_eq!(by_reference(manager, &4_u64), manager.key(4_u64));
    assert_eq!(
        manager.key(vec![1_u8, 2, 3]),
        manager.key(&[1_u8, 2, 3][..])
    );
    keys.extend((0..100).map(|length| manager.key("x".repeat(length + 1))));
    keys
}

#[test]
fn every_kind_of_key_can_be_leased_and_no_two_share_a_lock() {
    let (manager, _clock) = manual();
    let keys = keys_of_all_kinds(&manager);
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
    for (owner, &key) in (0..).zip(&keys) {
        let lease = manager
            .try_acquire(key, owner, SECOND)
            .expect("the key is free");
        assert_eq!((lease.key(), lease.owner()), (key, OwnerId(owner)));
        lease.detach();
    }
    let by_text = manager.holder("a string that is longer than fifteen bytes");
    assert_eq!(by_text.map(|holder| holder.owner), Some(OwnerId(16)));
    assert_eq!(
        manager.holder(-6_i128).map(|holder| holder.owner),
        Some(OwnerId(11))
    );
    let walked: HashSet<_> = manager
        .iter()
        .map(|holder| (holder.key, holder.owner.0))
        .collect();
    assert_eq!(walked, keys.into_iter().zip(0..).collect());
}

/// Replicas with one seed agree on every key; with other seeds nobody can tell where a long name
/// goes.
#[test]
fn long_names_depend_on_the_seed_and_short_ones_do_not() {
    let seeded = |seed| {
        let clock = ManualClock::new();
        on(&clock)
            .hash_seed(HashSeed::new(seed))
            .build()
            .expect("these options are in order")
    };
    let (one, same, other) = (seeded(1), seeded(1), seeded(2));
    assert_eq!(keys_of_all_kinds(&one), keys_of_all_kinds(&same));
    let long = "a string that is longer than fifteen bytes";
    assert_ne!(one.key(long), other.key(long));
    assert_eq!(one.key("short"), other.key("short"));
    assert_eq!(one.key(77_u128), other.key(77_u128));
    assert_ne!(HashSeed::random().get(), HashSeed::random().get());
}

#[test]
fn a_holder_tells_all_about_the_lease_and_the_guard_agrees() {
    let (manager, clock) = manual();
    clock.advance(SECOND);
    let lease = manager
        .try_acquire("a", 77, SECOND * 4)
        .expect("the key is free");
    clock.advance(SECOND);
    let holder: Holder = manager.holder("a").expect("the key is held");
    assert_eq!(
        (holder.key, holder.owner, holder.token),
        (lease.key(), OwnerId(77), lease.token())
    );
    assert_eq!(holder.deadline, Timestamp::from_nanos(5_000_000_000));
    assert_eq!(
        (holder.deadline, holder.remaining),
        (lease.deadline(), lease.remaining())
    );
    assert_eq!(manager.validate("a", lease.token()), Ok(holder));
    assert_eq!(manager.iter().collect::<Vec<_>>(), [holder]);
    // Renewed by token, behind the guard's back: the guard sees it.
    assert!(manager.renew("a", lease.token(), SECOND * 9).is_ok());
    assert_eq!(
        (lease.remaining(), lease.deadline().as_nanos()),
        (SECOND * 9, 11_000_000_000)
    );
}

#[test]
fn a_detached_or_forgotten_lease_stays_until_its_deadline() {
    let (manager, clock) = manual();
    let detached = manager
        .try_acquire("a", 1, SECOND)
        .expect("the key is free")
        .detach();
    std::mem::forget(
        manager
            .try_acquire("b", 1, SECOND)
            .expect("the key is free"),
    );
    assert!(manager.validate("a", detached).is_ok());
    assert_eq!(manager.len(), 2);
    clock.advance(SECOND);
    assert_eq!((manager.advance(), manager.len()), (2, 0));
}

#[test]
fn tokens_are_checked_ordered_and_fit_a_signed_column() {
    assert_eq!(FencingToken::new(0), Err(TokenError::Zero));
    let value = FencingToken::MAX.get() + 1;
    assert_eq!(
        FencingToken::new(value),
        Err(TokenError::TooLarge { value })
    );
    assert_eq!(FencingToken::MAX.as_i64(), i64::MAX);
    assert!(FencingToken::MIN < token(2) && token(9) < token(10));
    assert_eq!(token(12).to_string(), "12");
    assert!(TokenError::Zero.to_string().len() > 3);
}

#[test]
fn a_fence_says_both_numbers_when_it_rejects() {
    let (fence, fenced) = (Fence::new(), Fenced::new(String::new()));
    assert_eq!((fence.highest(), fenced.highest()), (None, None));
    let (old, new) = (token(3), token(4));
    assert_eq!(
        (fence.check(old), fence.check(new), fence.check(new)),
        (Ok(()), Ok(()), Ok(()))
    );
    let stale: StaleToken = fence.check(old).expect_err("a newer one was seen");
    assert_eq!((stale.presented, stale.highest), (old, new));
    assert!(
        stale.to_string().contains('3') && stale.to_string().contains('4'),
        "{stale}"
    );

    assert_eq!(fenced.write(new, |text| text.push('n')), Ok(()));
    assert_eq!(fenced.write(old, |text| text.push('o')), Err(stale));
    assert_eq!((fenced.read(String::len), fenced.highest()), (1, Some(new)));
    assert_eq!(fenced.into_inner(), "n");
}

#[test]
fn types_can_be_shared_between_threads_and_printed() {
    fn shared<T: Send + Sync + Debug + 'static>() {}
    fn error<T: Error + Display + Clone + PartialEq + Send + Sync + 'static>() {}
    fn handle<T: Clone + Send + Sync>() {}
    fn guard<'m, T: Send + Sync + Debug + 'm>(_: &T, _: &'m LockManager) {}
    shared::<(LockManager, Lease<'static>, Builder, Holder, Stats)>();
    shared::<(Key, OwnerId, FencingToken, Timestamp, HashSeed, TokenError)>();
    shared::<(SystemClock, CoarseClock, ManualClock, Box<dyn Clock>)>();
    shared::<(Fence, Fenced<Vec<u8>>, StaleToken)>();
    error::<AcquireError>();
    error::<RenewError>();
    error::<ReleaseError>();
    error::<ValidateError>();
    error::<RevokeError>();
    error::<BuildError>();
    error::<StaleToken>();
    error::<TokenError>();
    handle::<LockManager>();

    let (manager, _clock) = manual();
    let lease = manager
        .try_acquire("a", 31, SECOND)
        .expect("the key is free");
    guard(&lease, &manager);
    let printed = format!("{manager:?} {lease:?} {:?}", manager.holder("a"));
    for part in [
        "LockManager",
        "Lease",
        "Holder",
        "31",
        &lease.token().to_string(),
    ] {
        assert!(printed.contains(part), "{printed} does not say {part}");
    }
    let builder = format!("{:?}", LockManager::builder().max_keys(1_234));
    assert!(builder.contains("1234"), "{builder}");
    // What a seed is must not end up in a log: whoever knows it can make keys collide.
    let secret = HashSeed::new(0x1234_5678_9abc_def0);
    let built = LockManager::builder()
        .driver(false)
        .hash_seed(secret)
        .build();
    let printed = format!(
        "{:?} {:?}",
        secret,
        built.expect("these options are in order")
    );
    for form in ["1311768467463790320", "123456789abcdef0"] {
        assert!(!printed.contains(form), "the seed is printed: {printed}");
    }
}

/// A key of the user's own.
struct Account {
    bank: u32,
    number: u64,
}

impl ToKey for Account {
    fn to_key(&self, _seed: &HashSeed) -> Key {
        Key::from_raw(u128::from(self.bank) << 64 | u128::from(self.number))
    }
}

#[test]
fn a_key_can_be_a_type_of_the_users_own() {
    let (manager, _clock) = manual();
    let account = Account { bank: 3, number: 4 };
    let lease = manager
        .try_acquire(&account, 1, SECOND)
        .expect("the key is free");
    assert_eq!(lease.key(), Key::from_raw(3 << 64 | 4));
    assert!(manager.holder(Account { bank: 3, number: 4 }).is_some());
    assert!(manager.holder(Account { bank: 4, number: 3 }).is_none());
}
