//! `gond crash` from outside: its counts, and what it tells when it is ended early.

use super::ok;
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Command, Stdio};

/// A few lives of each kind, for people and for programs; the same seeds give the same numbers.
#[test]
fn the_laboratory_counts_its_states() {
    let words = ["crash", "--seeds", "2", "--from", "3", "--json"];
    let found: serde_json::Value = serde_json::from_str(&ok(&words)).expect("JSON");
    let kinds = found["kinds"].as_array().expect("kinds");
    assert!(kinds.len() == 9 && kinds.iter().all(|kind| kind["runs"] == 2 && kind["states"] != 0));
    assert_eq!(found["failed"].as_array().map(Vec::len), Some(0));
    let again: serde_json::Value = serde_json::from_str(&ok(&words)).expect("JSON");
    assert_eq!(again["kinds"], found["kinds"]);
    let text = ok(&["crash", "--seeds", "1", "--only", "short", "--only", "full"]);
    assert!(text.contains("all as they must be"), "{text}");
    let lines: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(&lines[..3], ["kind", "short", "full"]);
}

#[test]
fn ctrl_c_ends_the_laboratory_and_what_was_found_is_told() {
    let child = Command::new(env!("CARGO_BIN_EXE_gond"))
        .args(["crash", "--only", "cuts", "--seeds", "1000000", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("gond starts");
    let status = format!("/proc/{}/status", child.id());
    // A signal that comes before gond waits for it ends it without a word.
    let waits_for_it = || {
        let text = std::fs::read_to_string(&status).expect("gond runs");
        let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = u64::from_str_radix(caught.expect("Linux tells it").trim(), 16).expect("a mask");
        caught & 1 << (Signal::INT.as_raw() - 1) != 0
    };
    while !waits_for_it() {
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&child), Signal::INT).expect("it is ours");
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(130), "{text}");
    let told: serde_json::Value = serde_json::from_str(&text).expect("one object");
    assert_eq!(told["ended_early"], true);
    assert_eq!(told["asked"], 1_000_000);
    assert_eq!(told["failed"].as_array().map(Vec::len), Some(0));
}
