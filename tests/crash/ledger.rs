//! The ledger of a crash test notices what it has to.

use std::process::Command;
use std::time::Duration;

use super::lives::{End, Ledger};

fn heard(lines: &[&str]) -> Ledger {
    let mut ledger = Ledger::default();
    for line in lines {
        ledger.hear(line.as_bytes());
    }
    ledger
}

#[test]
fn a_token_that_does_not_rise_for_its_key_is_a_regression() {
    let rising = ["grant 1 5\n", "grant 2 4\n", "grant 1 6\n", "grant 2 7\n"];
    assert!(heard(&rising).is_clean());
    for again in ["grant 1 6\n", "grant 1 1\n", "grant 2 7\n"] {
        let ledger = heard(&[&rising[..], &[again]].concat());
        assert_eq!(ledger.token_regressions, 1, "{again}");
        assert_eq!(ledger.grants, 5);
    }
}

#[test]
fn a_life_that_begins_at_a_token_that_was_granted_is_a_regression() {
    assert!(heard(&["grant 1 5\n", "block 6 10\n"]).is_clean());
    assert_eq!(heard(&["grant 1 5\n", "block 5 10\n"]).token_regressions, 1);
}

#[test]
fn a_line_that_was_cut_off_is_counted_and_not_looked_at() {
    let ledger = heard(&["grant 1 500\n", "grant 1 50"]);
    assert!(ledger.is_clean());
    assert_eq!((ledger.torn_lines, ledger.grants), (1, 1));
}

#[test]
fn what_is_no_line_of_a_child_is_an_unexpected_error() {
    for line in [
        "grant 1\n",
        "grant one 5\n",
        "block 5\n",
        "grant 1 2grant 1 3\n",
    ] {
        assert_eq!(heard(&[line]).unexpected_errors, 1, "{line}");
    }
}

#[test]
fn a_child_that_ends_by_itself_or_grants_nothing_is_an_unexpected_error() {
    let shell = |script: &str, end| {
        let mut ledger = Ledger::default();
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        ledger
            .live(&mut command, end, Duration::from_millis(200))
            .unwrap();
        ledger
    };
    let soon = Duration::from_millis(5);
    let failed = shell("exit 3", End::KillAfterGrant(soon));
    assert_eq!(failed.unexpected_errors, 1, "{failed:?}");
    let gave_up = shell("echo grant 1 1; exit 3", End::Ask(soon));
    assert_eq!(gave_up.unexpected_errors, 1, "{gave_up:?}");
    let silent = shell("exec sleep 60", End::KillAfterGrant(soon));
    assert_eq!(silent.unexpected_errors, 1, "{silent:?}");

    let good = shell("echo grant 1 1; exec sleep 60", End::KillAfterGrant(soon));
    assert!(good.is_clean(), "{good:?}");
    let good = shell("echo grant 1 1; read -r _; exit 0", End::Ask(soon));
    assert!(good.is_clean(), "{good:?}");
}
