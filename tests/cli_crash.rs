//! `tenure crash` from outside: what it prints and which exit code it returns. Real time.
#![cfg(feature = "cli")]

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

fn crash(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tenure"))
        .arg("crash")
        .args(arguments)
        .output()
        .expect("the binary was built for this test")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the output is UTF-8")
}

#[track_caller]
fn report(output: &Output, code: i32) -> Value {
    let stdout = text(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(code),
        "{stdout}{}",
        text(&output.stderr)
    );
    serde_json::from_str(stdout).expect("one JSON object")
}

#[test]
fn a_killed_and_restarted_manager_repeats_no_token() {
    let output = crash(&["--rounds", "20", "--seed", "7", "--crowd", "0", "--json"]);
    let report = report(&output, 0);
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    assert_eq!(report["restarts"], 20, "{report}");
    assert_eq!(report["token_regressions"], 0, "{report}");
    assert_eq!(report["seed"], 7, "{report}");
    assert!(report["grants"].as_u64() > Some(100), "{report}");
    // Each life may leave two blocks unused, also one that was killed before it could say which.
    let silent = report["kills_before_a_grant"].as_u64().unwrap();
    let skipped = report["tokens_skipped_max"].as_u64().unwrap();
    assert!(skipped <= 2 * 50 * (1 + silent), "{report}");
    assert_eq!(report["passed"], true, "{report}");
}

#[test]
fn a_killed_manager_whose_table_grows_and_shrinks_repeats_no_token() {
    let report = report(&crash(&["--rounds", "20", "--json"]), 0);
    assert_eq!(report["token_regressions"], 0, "{report}");
    let number = |name: &str| report[name].as_u64().unwrap();
    assert!(number("crowd_taken") > 2_000, "{report}");
    assert!(
        number("most_buckets") > 2 * number("fewest_buckets"),
        "{report}"
    );
    assert_eq!(report["passed"], true, "{report}");
}

#[test]
fn the_figures_are_told_to_people_too() {
    let output = crash(&["--rounds", "2", "--block", "1000"]);
    let told = text(&output.stdout);
    assert!(output.status.success(), "{told}");
    for words in [
        "blocks of 1000",
        "killed, and started again",
        "Nothing was violated.",
    ] {
        assert!(told.contains(words), "{told}");
    }
}

#[test]
fn a_child_that_cannot_grant_fails_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    fs::write(&path, "not a mark").unwrap();
    let output = crash(&["--rounds", "2", "--json", "--shard", path.to_str().unwrap()]);
    let report = report(&output, 1);
    assert!(
        text(&output.stderr).contains("is no reservation"),
        "{report}"
    );
    assert_eq!(report["passed"], false, "{report}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "not a mark");
}

#[test]
fn a_reservation_that_is_not_there_is_a_bad_argument_that_says_what_to_do() {
    let refused = |arguments: &[&str], words: &str| {
        let output = crash(arguments);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(words), "{told}");
    };
    refused(&["--reservation", "postgres"], "say where PostgreSQL is");
    refused(&["--server", "x"], "a file has none");
    if cfg!(feature = "etcd") {
        refused(&["--reservation", "etcd"], "say where etcd is");
    } else {
        refused(
            &["--reservation", "etcd", "--server", "x"],
            "--features cli,etcd",
        );
    }
}
