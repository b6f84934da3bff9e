//! The kit passes what is fit and says of the rest which rule it breaks.

mod guests;

use std::{env, fs, path::Path, time::Duration};

use guests::{ECHO, describing, escaped, guest, guest_with};
use host::{Limits, kit};

/// A debug host on a busy machine is slow, and what is late is tested with a deadline of its own.
fn limits() -> Limits {
    Limits { deadline: Duration::from_secs(60), ..Limits::default() }
}

fn built(name: &str) -> Vec<u8> {
    let target = env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(target).join("wasm").join(name);
    fs::read(&file).unwrap_or_else(|e| panic!("`{}`: {e}; run `make wasm`", file.display()))
}

fn check(text: &str) -> kit::Report {
    kit::check_within(&wat::parse_str(text).expect("the guest's text"), limits())
}

/// The checks that failed.
fn failed(report: &kit::Report) -> Vec<&str> {
    report.checks.iter().filter(|check| check.failed > 0).map(|check| check.name).collect()
}

#[test]
fn the_built_in_planner_as_a_plugin_is_fit_and_always_of_the_same_mind() {
    let report = kit::check_within(&built("planner.wasm"), limits());
    assert!(report.passed(), "{report}");
    assert_eq!(report.same_as_built_in, report.cases, "{report}");
    assert!(report.cases >= 50, "{report}");
}

#[test]
fn the_template_in_javascript_is_fit() {
    let report = kit::check_within(&built("javascript.wasm"), limits());
    assert!(report.passed(), "{report}");
    assert_eq!(report.plugin.as_ref().map(|plugin| plugin.name.as_str()), Some("javascript-template"));
}

#[test]
fn the_cases_are_always_the_same_and_every_decision_is_due_in_one_of_them() {
    use planner::plan::Outcome;
    let due = |cases: Vec<kit::Case>| {
        let verdicts = cases.iter().flat_map(|case| case.native().verdicts);
        let due = verdicts.filter(|verdict| matches!(verdict.outcome, Outcome::Due { .. }));
        due.map(|verdict| verdict.decision).collect::<Vec<_>>()
    };
    let (one, other) = (due(kit::cases()), due(kit::cases()));
    assert_eq!(one, other);
    let kinds: std::collections::BTreeSet<_> = one.iter().collect();
    assert_eq!(kinds.len(), 8, "{kinds:?}");
    for case in kit::cases() {
        assert_eq!(planner::check::facts(&case.facts), Ok(()), "{}", case.name);
    }
}

#[test]
fn an_echo_is_neither_safe_nor_total() {
    let report = check(&guest(ECHO));
    assert!(!report.passed());
    assert_eq!(failed(&report), ["safe", "total", "quiet"]);
    let text = report.to_string();
    assert!(text.contains("FAILS  safe"), "{text}");
    assert!(text.ends_with("not fit to be a planner\n"), "{text}");
}

#[test]
fn one_that_refuses_everything_in_the_same_words_is_total_but_plans_nothing() {
    let no = r#"{"error":{"message":"no"}}"#;
    // Beyond the longest request, with room for it.
    let says = guest_with(
        &format!(r#"(data (i32.const 25000000) "{}")"#, escaped(no.as_bytes())),
        &format!(
            "(i32.store (i32.const 16) (i32.const 25000000)) (i32.store (i32.const 20) (i32.const {})) (i32.const 16)",
            no.len()
        ),
    );
    let says = says.replace(r#"(memory (export "memory") 1)"#, r#"(memory (export "memory") 400)"#);
    assert_eq!(failed(&check(&says)), ["safe", "quiet"]);
}

#[test]
fn one_that_does_not_load_is_asked_nothing_more() {
    let report = check(&describing(r#"{"ok":{"abi":"caretaker:planner@9.0.0"}}"#, "", ECHO));
    assert_eq!(failed(&report), ["loads"]);
    assert_eq!(report.checks.len(), 1);
    assert!(!report.passed());
    let report = kit::check(b"no plugin");
    assert!(report.checks[0].faults[0].contains("magic header"), "{report}");
}

#[test]
fn a_report_is_data_too() {
    let report = serde_json::to_value(kit::check(b"no plugin")).expect("JSON");
    assert_eq!(report["checks"][0]["name"], "loads");
    assert_eq!(report["checks"][0]["failed"], 1);
}
