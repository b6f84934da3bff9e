//! The picks of Apache Paimon against its own tests, and against cases at the edges of its rules.
#![allow(clippy::unwrap_used)]

use planner::vectors::{self, Why};
use planner::wire;
use serde_json::{Value, json};

const UPSTREAM: &str = include_str!("data/paimon/upstream.json");
const CONSTRUCTED: &str = include_str!("data/paimon/constructed.json");

#[test]
fn every_case_of_the_peers_own_tests_agrees() {
    let report = vectors::run(UPSTREAM).unwrap();
    assert!(report.is_clean(), "{report}");
    assert!((report.cases, report.checks) == (179, 511), "{report}");
}

#[test]
fn every_case_at_the_edges_agrees() {
    let report = vectors::run(CONSTRUCTED).unwrap();
    assert!(report.is_clean(), "{report}");
    assert!((report.cases, report.checks) == (49, 167), "{report}");
}

fn judge(cases: &Value) -> Value {
    let request = json!({ "op": "vectors", "cases": cases });
    serde_json::from_slice(&wire::call(request.to_string().as_bytes())).unwrap()
}

/// A case that agrees.
fn case() -> Value {
    json!({
        "id": "a", "strategy": "write_stall", "profiles": ["cpp-main", "java-2.0"],
        "config": { "stop_trigger": 8 }, "input": { "sorted_runs": 9 }, "expected": { "flush_waits": true },
    })
}

fn with(pointer: &str, value: Value) -> Value {
    let mut case = case();
    *case.pointer_mut(pointer).unwrap() = value;
    case
}

#[test]
fn the_door_says_of_each_case_and_profile_what_agrees_and_what_came_instead() {
    let cases = json!([case(), with("/expected", json!({ "flush_waits": false }))]);
    let got = json!({ "flush_waits": true, "checkpoint_waits": false });
    let wrong = |profile: &str| json!({ "id": "a", "profile": profile, "agrees": false, "expected": { "flush_waits": false }, "got": got });
    let right = |profile: &str| json!({ "id": "a", "profile": profile, "agrees": true });
    let results = [right("cpp-main"), right("java-2.0"), wrong("cpp-main"), wrong("java-2.0")];
    let expected = json!({ "cases": 2, "checks": 4, "agree": 2, "results": results });
    assert_eq!(judge(&cases)["ok"], expected);
}

#[test]
fn what_disagrees_is_told_as_text_with_both_answers() {
    let wrong = with("/expected", json!({ "flush_waits": false }));
    let report = vectors::run(&json!({ "cases": [case(), wrong] }).to_string()).unwrap();
    assert!(!report.is_clean());
    assert_eq!(
        report.to_string(),
        "a (cpp-main): expected {\"flush_waits\":false}, got {\"checkpoint_waits\":false,\"flush_waits\":true}\n\
         a (java-2.0): expected {\"flush_waits\":false}, got {\"checkpoint_waits\":false,\"flush_waits\":true}\n\
         2 of 4 checks of 2 cases agree"
    );
}

#[test]
fn what_can_not_be_asked_is_refused_by_name() {
    let none: [&str; 0] = [];
    let said = |case: Value| {
        let answer = judge(&json!([case]));
        assert_eq!(answer["error"]["kind"], "vectors", "{answer}");
        answer["error"]["message"].as_str().unwrap().to_owned()
    };
    for (case, says) in [
        (with("/strategy", json!("universal.prick")), "case `a`: unknown strategy `universal.prick`"),
        (with("/profiles/1", json!("java-9")), "case `a`: unknown profile `java-9`"),
        (with("/profiles", json!(none)), "it names no profile"),
        (with("/config", json!({ "stop_trigger": 8, "nope": 1 })), "`config`: unknown field `nope`"),
        (with("/config", json!({ "stop_trigger": -1 })), "`config`: invalid value"),
        (with("/input", json!({})), "`input`: missing field `sorted_runs`"),
        (with("/expected", json!({ "nope": 1 })), "`expected`: unknown field `nope`"),
    ] {
        let message = said(case);
        assert!(message.contains(says), "{message}");
    }
    let refused = vectors::run("[1]").unwrap_err();
    assert!(matches!(refused.why, Why::Malformed(_)) && refused.to_string().starts_with("not a list of cases"));
    assert!(vectors::run("{\"cases\":[],\"more\":1}").unwrap_err().to_string().contains("more"));
}

/// Cases that no table has, each with what is said of it.
#[test]
fn what_no_table_has_is_refused_and_never_traps() {
    let file = json!({ "level": 1, "min": 3, "max": 1 });
    let over = json!({ "size": 1, "count": u64::MAX });
    for (strategy, config, input, says) in [
        ("universal.pick", json!({ "trigger": 0 }), json!({ "runs": [] }), "nonzero"),
        ("universal.pick", json!({ "num_levels": 1 }), json!({ "runs": [] }), "two levels"),
        ("universal.pick", json!({ "num_levels": 3 }), json!({ "runs": [], "hour": 24 }), "24 hours"),
        ("universal.create_unit", json!({ "max_level": 3 }), json!({ "runs": [], "run_count": 1 }), "no more runs"),
        (
            "universal.pick",
            json!({ "num_levels": 3 }),
            json!({ "runs": [{ "level": 2, "size": 1 }, { "level": 1, "size": 1 }] }),
            "run 1 stands after",
        ),
        ("levels", json!({ "num_levels": 3 }), json!({ "files": [file] }), "ends before it begins"),
        (
            "levels",
            json!({ "num_levels": 3 }),
            json!({ "files": [{ "level": 1, "min": 1, "max": 3 }, { "level": 1, "min": 3, "max": 4 }] }),
            "key in common",
        ),
        (
            "merge_tree.compact",
            json!({ "num_levels": 3, "compaction_file_size": 1, "pick": { "first_runs": 1, "output_level": 1 } }),
            json!({ "files": [] }),
            "no more runs",
        ),
        ("off_peak.ratio", json!({ "start": 24, "end": 1, "ratio": 1 }), json!({}), "24 hours"),
        ("off_peak.ratio", json!({ "start": 2, "end": 1, "ratio": 1 }), json!({ "hour": 24 }), "24 hours"),
        ("options", json!({ "options": { "num-levels": 1 } }), json!({}), "`num-levels`"),
        ("append.coordinator", json!({ "min_file_num": 1 }), json!({ "steps": [{ "add": [over] }] }), "100000 files"),
        (
            "append.coordinator",
            json!({ "min_file_num": 1, "dv_enabled": true }),
            json!({ "steps": [] }),
            "deletion vectors",
        ),
        (
            "append.coordinator",
            json!({ "min_file_num": 1 }),
            json!({ "steps": [{ "plan": false }] }),
            "`plan` is `true`",
        ),
        ("append.full", json!({ "compaction_file_size": 1 }), json!({ "files": [] }), "rewriter"),
        (
            "append.auto_pick",
            json!({ "min_file_num": 1, "target_file_size": 1 }),
            json!({ "files": [{ "min_seq": 2, "max_seq": 1 }] }),
            "ends before it begins",
        ),
    ] {
        let case = json!({
            "id": "x", "strategy": strategy, "profiles": ["cpp-main"], "config": config, "input": input, "expected": {},
        });
        let answer = judge(&json!([case]));
        let message = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{strategy}: {answer}"));
        assert!(message.contains(says), "{strategy}: {message}");
    }
}
