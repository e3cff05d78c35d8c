//! The command line from outside: what it prints and which exit code it returns. Real time.
#![cfg(feature = "cli")]

#[path = "common/servers.rs"]
mod servers;

use std::process::{Command, Output};

use serde_json::Value;

fn tenure(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tenure"))
        .args(arguments)
        .output()
        .expect("the binary was built for this test")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the output is UTF-8")
}

/// Runs `stress --json` and checks its exit code.
fn stress(arguments: &[&str], code: i32) -> Value {
    let all = [&["stress", "--json"], arguments].concat();
    let output = tenure(&all);
    let stdout = text(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(code),
        "{stdout}{}",
        text(&output.stderr)
    );
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    serde_json::from_str(stdout).expect("one JSON object")
}

fn number(report: &Value, field: &str) -> f64 {
    report[field]
        .as_f64()
        .unwrap_or_else(|| panic!("no number {field} in {report}"))
}

#[track_caller]
fn assert_zero(report: &Value, fields: &[&str]) {
    for field in fields {
        assert!(
            number(report, field).abs() < f64::EPSILON,
            "{field} in {report}"
        );
    }
}

/// Runs something for longer and longer, until enough has happened: the last report.
fn until_enough(
    seconds: &[&str],
    run: impl Fn(&str) -> Value,
    enough: impl Fn(&Value) -> bool,
) -> Value {
    let (longest, shorter) = seconds.split_last().expect("a length");
    for seconds in shorter {
        let report = run(seconds);
        if enough(&report) {
            return report;
        }
    }
    run(longest)
}

const VIOLATIONS: [&str; 11] = [
    "exclusion_violations",
    "token_regressions",
    "early_expiries",
    "resurrections",
    "fifo_inversions",
    "lost_wakeups",
    "extra_wakes",
    "ghosts",
    "unexpected_errors",
    "unaccounted_leases",
    "leaked_leases",
];

#[test]
fn the_demo_is_the_default_and_tells_both_endings() {
    both_endings(&tenure(&[]));
}

/// The story with a write that is lost, and the one with a write that is rejected.
fn both_endings(told: &Output) -> (&str, &str) {
    let story = text(&told.stdout);
    assert!(told.status.success(), "{story}{}", text(&told.stderr));
    let (unfenced, fenced) = story
        .split_once("2. With fencing")
        .expect("both tellings are there");
    assert!(
        unfenced.contains("balance 110, should be 135"),
        "B's write was not lost: {story}"
    );
    assert!(
        fenced.contains("balance 135, should be 135"),
        "something was lost in spite of the fence: {story}"
    );
    let rejection = fenced
        .lines()
        .find(|line| line.contains("REJECTED"))
        .expect("A's late write was rejected");
    let tokens: Vec<u64> = rejection
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let [.., presented, highest] = tokens[..] else {
        panic!("the rejection names no tokens: {rejection}");
    };
    assert!(presented < highest, "{rejection}");
    (unfenced, fenced)
}

#[test]
fn the_demo_tells_the_same_of_a_database_file() {
    // Without a value it is SQLite too.
    for arguments in [
        &["demo", "--resource", "sqlite"][..],
        &["demo", "--resource"],
    ] {
        let told = tenure(arguments);
        let (unfenced, fenced) = both_endings(&told);
        assert!(unfenced.contains("UPDATE fenced_values SET value = ?2 WHERE key = ?1"));
        assert!(fenced.contains("fenced_values.fence <= excluded.fence"));
    }
}

#[test]
fn the_demo_tells_the_same_of_a_database_server_and_leaves_nothing_there() {
    let server = servers::Postgres::shared();
    let config = server.config();
    let told = tenure(&["demo", "--resource", "postgres", "--postgres", &config]);
    let (unfenced, fenced) = both_endings(&told);
    assert!(unfenced.contains("UPDATE fenced_values SET value = $2 WHERE key = $1"));
    assert!(fenced.contains("fenced_values.fence <= EXCLUDED.fence"));

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let left: i64 = runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(&config, tokio_postgres::NoTls)
            .await
            .unwrap();
        tokio::spawn(connection);
        let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'tenure\\_demo%'";
        client.query_one(schemas, &[]).await.unwrap().get(0)
    });
    assert_eq!(left, 0, "schemas of the demo");
}

#[test]
fn a_demo_that_has_no_database_says_what_to_pass() {
    let binary = env!("CARGO_BIN_EXE_tenure");
    let mut command = Command::new(binary);
    command.args(["demo", "--resource", "postgres"]);
    let output = command.env_remove("TENURE_POSTGRES").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("--postgres") && stderr.contains("TENURE_POSTGRES"),
        "{stderr}"
    );

    // Named by the variable, and not there: a port that nobody listens at.
    let nobody = "host=127.0.0.1 port=1 user=postgres";
    let output = command.env("TENURE_POSTGRES", nobody).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("PostgreSQL") && stderr.contains("refused"),
        "{stderr}"
    );

    let output = tenure(&["demo", "--postgres", nobody]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

#[test]
fn a_pipe_gets_no_colour() {
    let told = tenure(&["demo"]);
    assert!(told.status.success());
    assert!(!told.stdout.contains(&0x1b), "{}", text(&told.stdout));
}

#[test]
fn a_short_stress_run_violates_nothing_and_reports_every_figure() {
    let report = stress(&["--seconds", "1", "--seed", "1"], 0);
    assert_zero(&report, &VIOLATIONS);
    assert_zero(&report, &["lost_writes"]);
    for field in [
        "grants",
        "renewals",
        "expiries",
        "stale_writes_rejected",
        "sections",
        "pauses",
        "crashes",
        "grants_per_s",
        "p50_ns",
        "p99_ns",
        "p999_ns",
    ] {
        assert!(number(&report, field) > 0.0, "{field} in {report}");
    }
    assert!(number(&report, "max_expiry_lag_ms") >= 0.0);
    assert_eq!(report["seed"], 1);
    assert_eq!(report["passed"], true);
}

/// Runs a mode for a second, or for longer on a machine where too little happens in one, and checks what is
/// checked in all of them.
fn short_run(mode: &str, options: &[&str]) -> Value {
    const FIELDS: [&str; 6] = [
        "grants",
        "cancelled",
        "waited_grants",
        "pauses",
        "crashes",
        "revocations",
    ];
    let arguments = ["--mode", mode, "--threads", "2", "--keys", "12"];
    let run = |seconds: &str| {
        let options = [options, &["--seconds", seconds]].concat();
        stress(&[&arguments, &options[..]].concat(), 0)
    };
    let enough = |report: &Value| FIELDS.iter().all(|field| number(report, field) > 0.0);
    let report = until_enough(&["1", "4", "16"], run, enough);
    assert_zero(&report, &VIOLATIONS);
    assert_zero(&report, &["lost_writes"]);
    assert_eq!(report["mode"], mode);
    assert_eq!(report["passed"], true);
    for field in FIELDS {
        assert!(number(&report, field) > 0.0, "{field} in {report}");
    }
    let wakes = number(&report, "wakes_per_grant");
    assert!(wakes > 0.0 && wakes <= 1.0, "{report}");
    report
}

#[test]
fn workers_that_wait_for_exclusive_leases_see_nothing_wrong() {
    let report = short_run("exclusive", &[]);
    assert_eq!(report["async"], false);
    assert!(number(&report, "sections") > 0.0, "{report}");
    assert_zero(&report, &["accompanied_leases"]);
}

#[test]
fn leases_of_the_modes_that_allow_it_are_seen_beside_each_other() {
    for mode in ["shared", "semaphore"] {
        let report = short_run(mode, &[]);
        assert!(number(&report, "accompanied_leases") > 0.0, "{report}");
    }
}

#[test]
fn sets_of_leases_see_nothing_wrong() {
    for mode in ["sessions", "multi"] {
        let report = short_run(mode, &[]);
        assert_zero(&report, &["accompanied_leases"]);
    }
}

#[test]
fn all_modes_at_once_see_nothing_wrong() {
    let report = short_run("mixed", &[]);
    assert!(number(&report, "accompanied_leases") > 0.0, "{report}");
    assert!(number(&report, "accepted_writes") > 0.0, "{report}");
}

#[test]
fn tasks_of_two_runtimes_share_one_manager() {
    for mode in ["exclusive", "mixed"] {
        let report = short_run(mode, &["--async"]);
        assert_eq!(report["async"], true);
    }
}

#[test]
fn without_a_mode_nobody_waits() {
    let report = stress(&["--seconds", "1"], 0);
    assert!(report["mode"].is_null(), "{report}");
    assert_zero(&report, &["waited_grants", "cancelled", "wakes_per_grant"]);
}

#[test]
fn without_fencing_writes_are_lost_and_nothing_else_is_wrong() {
    let report = stress(
        &[
            "--threads",
            "4",
            "--keys",
            "8",
            "--seconds",
            "1",
            "--unfenced",
        ],
        0,
    );
    assert!(number(&report, "lost_writes") > 0.0, "{report}");
    assert_zero(&report, &VIOLATIONS);
    assert_zero(&report, &["stale_writes_rejected"]);
}

#[test]
fn a_stress_run_on_a_database_file_loses_writes_only_without_fencing() {
    let run = [
        "--threads",
        "4",
        "--keys",
        "8",
        "--seconds",
        "2",
        "--resource",
    ];
    let report = stress(&run, 0);
    assert_eq!(report["resource"], "sqlite");
    assert_zero(&report, &VIOLATIONS);
    assert_zero(&report, &["lost_writes"]);
    for field in ["accepted_writes", "stale_writes_rejected", "expiries"] {
        assert!(number(&report, field) > 0.0, "{field} in {report}");
    }

    let report = stress(&[&run[..], &["sqlite", "--unfenced"]].concat(), 0);
    assert!(number(&report, "lost_writes") > 0.0, "{report}");
    assert_zero(&report, &VIOLATIONS);
    assert_zero(&report, &["stale_writes_rejected"]);
}

#[test]
fn many_keys_are_all_held_at_once() {
    let report = stress(&["--threads", "2", "--keys", "200000", "--seconds", "2"], 0);
    assert_zero(&report, &VIOLATIONS);
    assert!(number(&report, "peak_leases") >= 200_000.0, "{report}");
    assert!(number(&report, "expiries") > 0.0, "{report}");
    if cfg!(target_os = "linux") {
        assert!(
            number(&report, "rss_bytes_per_lease_at_rest") > 0.0,
            "{report}"
        );
        assert!(
            number(&report, "rss_bytes_per_lease_peak")
                >= number(&report, "rss_bytes_per_lease_at_rest"),
            "{report}"
        );
    }
}

#[test]
fn a_short_soak_samples_each_second_and_draws_what_it_saw() {
    let directory = tempfile::tempdir().unwrap();
    let plot = directory.path().join("soak.svg");
    let kinds = [
        "try_acquire",
        "renew",
        "release",
        "exclusive",
        "shared",
        "semaphore",
        "sessions",
        "multi",
        "mingled",
    ];
    let run = |seconds: &str| {
        let arguments = ["--soak", "--threads", "3", "--seconds", seconds];
        stress(
            &[&arguments, &["--plot", plot.to_str().unwrap()][..]].concat(),
            0,
        )
    };
    let of = |report: &Value, kind: &str| number(&report["latency"][kind], "count");
    let samples = |report: &Value| report["samples"].as_array().map_or(0, Vec::len);
    let report = until_enough(&["5", "20", "80"], run, |report| {
        samples(report) > 1 && kinds.iter().all(|kind| of(report, kind) > 0.0)
    });
    assert_zero(&report, &VIOLATIONS);
    assert_zero(&report, &["lost_writes"]);
    assert_eq!(report["mode"], "mixed");
    assert_eq!(report["memory"]["judged"], false, "{report}");
    let samples = report["samples"].as_array().unwrap();
    assert!((2..=80).contains(&samples.len()), "{report}");
    for kind in kinds {
        let told = &report["latency"][kind];
        let figures = ["p50_ns", "p99_ns", "p999_ns", "max_ns"].map(|name| number(told, name));
        assert!(number(told, "count") > 0.0, "{kind}: {told}");
        assert!(figures[0] > 0.0 && figures.is_sorted(), "{kind}: {told}");
        let counted: f64 = samples
            .iter()
            .filter_map(|sample| sample["latency"][kind]["count"].as_f64())
            .sum();
        assert!((counted - number(told, "count")).abs() < 0.5, "{kind}");
    }
    for sample in samples {
        for field in ["heap_bytes", "manager_bytes", "buckets", "grants_per_s"] {
            assert!(number(sample, field) > 0.0, "{field} in {sample}");
        }
        assert!(number(sample, "heap_bytes") >= number(sample, "manager_bytes"));
        if cfg!(target_os = "linux") {
            assert!(number(sample, "resident_bytes") > number(sample, "heap_bytes"));
        }
    }
    let drawn = std::fs::read_to_string(plot).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.trim_end().ends_with("</svg>"));
    for kind in kinds {
        assert!(drawn.contains(&format!("{kind}, µs")), "{kind}");
    }
    assert!(drawn.contains("<polyline"), "lines");
}

#[test]
fn after_a_spike_buckets_go_and_a_second_one_takes_no_more() {
    let report = stress(&["--spike", "--keys", "20000", "--introspection"], 0);
    let stages = report["stages"].as_array().unwrap();
    let leases: Vec<f64> = stages.iter().map(|stage| number(stage, "leases")).collect();
    assert_eq!(leases, [0.0, 2e4, 1e3, 1e3, 2e4, 1e3, 1e3], "{report}");
    for stage in stages {
        let (buckets, leases) = (number(stage, "buckets"), number(stage, "leases"));
        assert!(buckets >= 2.0 * leases, "{stage}");
        assert!(buckets <= 32.0 * (leases + 400.0), "{stage}");
        assert!((number(stage, "names") - leases).abs() < 0.5, "{stage}");
    }
    for stage in &stages[1..] {
        assert!(number(stage, "cells") >= 20_000.0, "{stage}");
    }
    assert_eq!(report["passed"], true);

    let output = tenure(&["stress", "--spike", "--keys", "20000"]);
    let stdout = text(&output.stdout);
    assert!(output.status.success(), "{stdout}");
    assert!(stdout.contains("second spike"), "{stdout}");
    let verdict = "Nothing was violated.";
    assert!(stdout.trim_end().ends_with(verdict), "{stdout}");
}

#[test]
fn a_plot_that_cannot_be_written_is_told_before_the_run() {
    let begun = std::time::Instant::now();
    let output = tenure(&["stress", "--soak", "--plot", "/no such directory/soak.svg"]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("--plot"), "{stderr}");
    // A soak takes twenty minutes.
    assert!(begun.elapsed() < std::time::Duration::from_secs(600));
}

#[test]
fn the_table_is_for_people_and_ends_with_a_verdict() {
    let output = tenure(&["stress", "--seconds", "1", "--threads", "2"]);
    let stdout = text(&output.stdout);
    assert!(output.status.success(), "{stdout}");
    assert!(stdout.contains("leases granted"), "{stdout}");
    assert!(
        stdout.trim_end().ends_with("Nothing was violated."),
        "{stdout}"
    );
}

#[test]
fn bad_arguments_exit_with_2_and_say_which_one() {
    let cases: [(&[&str], &str); 23] = [
        (&["--threads", "0"], "--threads"),
        (&["--keys", "0"], "--keys"),
        (&["--seconds", "0"], "--seconds"),
        (&["--ttl", "10us"], "--ttl"),
        (&["--ttl", "soon"], "--ttl"),
        (&["--pause", "an hour"], "--pause"),
        (&["--seed", "x"], "--seed"),
        (&["--mode", "friendly"], "--mode"),
        (&["--async"], "--mode"),
        (&["--mode", "shared", "--unfenced"], "--unfenced"),
        (&["--resource", "postgres"], "--resource"),
        (&["--mode", "shared", "--resource", "sqlite"], "--resource"),
        (&["--mode", "shared", "--keys", "100000"], "--keys"),
        (&["--mode", "mixed", "--keys", "5"], "--keys"),
        (&["--soak", "--keys", "5"], "--keys"),
        (&["--soak", "--mode", "shared"], "--mode"),
        (&["--soak", "--resource", "sqlite"], "--resource"),
        (&["--soak", "--seconds", "0"], "--seconds"),
        (&["--plot", "soak.svg"], "--soak"),
        (&["--spike", "--soak"], "--soak"),
        (&["--spike", "--keys", "5000"], "--keys"),
        (&["--spike", "--keys", "20000000"], "--keys"),
        (&["--introspection"], "--spike"),
    ];
    for (arguments, named) in cases {
        let output = tenure(&[&["stress"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        let stderr = text(&output.stderr);
        assert!(stderr.contains(named), "{arguments:?}: {stderr}");
    }
    assert_eq!(tenure(&["banana"]).status.code(), Some(2));
}

#[test]
fn a_bad_mode_is_told_which_ones_there_are() {
    let output = tenure(&["stress", "--mode", "friendly"]);
    let stderr = text(&output.stderr);
    for mode in [
        "exclusive",
        "shared",
        "semaphore",
        "sessions",
        "multi",
        "mixed",
    ] {
        assert!(stderr.contains(mode), "{mode}: {stderr}");
    }
}
