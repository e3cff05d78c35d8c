//! What needs no server.

use super::*;

#[test]
fn a_mark_is_what_this_crate_writes_and_nothing_else() {
    assert_eq!(parse(b"0"), Ok(0));
    assert_eq!(parse(b"9223372036854775807"), Ok(i64::MAX as u64));
    let foreign: [&[u8]; 8] = [
        b"",
        b"+1",
        b"-1",
        b"01",
        b"1 ",
        b"9223372036854775808",
        b"one",
        b"\xff\xff",
    ];
    for stored in foreign {
        assert!(parse(stored).is_err(), "{stored:?}");
    }
}

#[test]
fn what_the_server_says_is_told_apart_by_what_helps() {
    const UNAVAILABLE: i32 = 14;
    for code in [UNAVAILABLE, NOT_FOUND] {
        let meant = meaning(code, "said");
        assert!(matches!(&meant, Fault::Passing(_)), "{code}: {meant:?}");
    }
    let reason = || "etcd: said".to_owned();
    for code in [INVALID_ARGUMENT, PERMISSION_DENIED, UNIMPLEMENTED] {
        let meant = meaning(code, "said");
        let unavailable = unavailable(reason());
        assert!(
            matches!(&meant, Fault::Final(error) if *error == unavailable),
            "{code}: {meant:?}"
        );
    }
    let full = ReservationError::Storage { reason: reason() };
    let meant = meaning(RESOURCE_EXHAUSTED, "said");
    assert!(
        matches!(&meant, Fault::Final(error) if *error == full),
        "{meant:?}"
    );
    // Not from a server: no other attempt is better.
    let meant = fault(&Error::InvalidArgs("said".to_owned()));
    assert!(
        matches!(meant, Fault::Final(ReservationError::Unavailable { .. })),
        "{meant:?}"
    );
}

#[test]
fn one_server_after_the_other_is_asked_and_a_majority_of_them_in_time() {
    let mut session = Session {
        endpoints: ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec(),
        connect: ConnectOptions::new(),
        leader: "leader".to_owned(),
        mark: "mark".to_owned(),
        name: "name".to_owned(),
        term: 10,
        timeout: Duration::from_secs(3),
        knows: Knowledge::default(),
    };
    let limit = session.timeout;
    assert_eq!(session.attempt_limit(limit), Duration::from_secs(1));
    let mut next = || {
        session.disconnect();
        session.knows.server
    };
    assert_eq!([next(), next(), next(), next(), next()], [1, 2, 3, 4, 0]);
    session.endpoints.truncate(1);
    assert_eq!(session.attempt_limit(limit), limit);
}
