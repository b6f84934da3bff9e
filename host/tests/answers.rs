//! What a plugin says is a proposal: an answer that is not a safe plan for the question is refused.

mod guests;

use guests::{escaped, guest_with};
use host::{Limits, PluginError, PluginPlanner};
use planner::{
    facts::{ShardFacts, SsTableFacts, TableFacts},
    job::JobSpec,
    plan::{Outcome, Plan, Trigger, plan_table},
    policy::Policy,
};

const NOW_MS: u64 = 1_000_000;

/// One shard with four SSTables: a fold is due.
fn facts() -> TableFacts {
    let sstable = |generation| SsTableFacts {
        generation,
        path: format!("gen_{generation}"),
        bytes: Some(1),
        rows: None,
        flushed_at_ms: Some(0),
    };
    TableFacts {
        table: "t".into(),
        version: 7,
        primary_key: vec!["id".into()],
        shards: vec![ShardFacts {
            shard: "s".into(),
            sstables: (1..=4).map(sstable).collect(),
            ..ShardFacts::default()
        }],
        ..TableFacts::default()
    }
}

fn native() -> Plan {
    plan_table(&facts(), &Policy::default(), NOW_MS, Trigger::Tick)
}

/// Asks a plugin that gives this answer to everything.
fn answering(answer: &str) -> Result<Plan, PluginError> {
    let data = escaped(answer.as_bytes());
    // Beyond what the guest has for itself, however long it is.
    let says = guest_with(
        &format!(r#"(data (i32.const 65536) "{data}")"#),
        &format!(
            "(i32.store (i32.const 16) (i32.const 65536))
             (i32.store (i32.const 20) (i32.const {}))
             (i32.const 16)",
            answer.len()
        ),
    );
    let pages = 1 + answer.len().div_ceil(64 << 10);
    let says = says.replace(r#"(memory (export "memory") 1)"#, &format!(r#"(memory (export "memory") {pages})"#));
    let says = wat::parse_str(says).expect("the guest's text");
    let plugin = PluginPlanner::compile("guest", &says, Limits::default()).expect("loads");
    plugin.plan_table(&facts(), &Policy::default(), NOW_MS, Trigger::Tick)
}

fn answering_plan(plan: &Plan) -> Result<Plan, PluginError> {
    answering(&serde_json::json!({ "ok": plan }).to_string())
}

/// Why the answer was called bad.
fn bad(answer: Result<Plan, PluginError>) -> String {
    match answer {
        Err(PluginError::BadOutput { why }) => why,
        other => panic!("expected a bad answer, got {other:?}"),
    }
}

/// The jobs of the due fold.
fn fold_jobs(plan: &mut Plan) -> &mut Vec<JobSpec> {
    let due = plan.verdicts.iter_mut().find_map(|verdict| match &mut verdict.outcome {
        Outcome::Due { jobs, .. } => Some(jobs),
        _ => None,
    });
    due.expect("the fold is due")
}

#[test]
fn a_sound_plan_is_taken() {
    assert_eq!(answering_plan(&native()), Ok(native()));
}

#[test]
fn garbage_is_a_bad_answer() {
    assert!(bad(answering("")).contains("EOF"));
    assert!(bad(answering("\u{0}\u{1}")).contains("expected value"));
    assert!(bad(answering(r#"{"ok":{}}"#)).contains("missing field"));
    assert!(bad(answering(r#"{"maybe":{}}"#)).contains("unknown variant `maybe`"));
}

#[test]
fn bytes_that_are_no_text_are_a_bad_answer() {
    let says = guest_with(
        r#"(data (i32.const 4096) "{\"ok\":\"\ff\fe\"}")"#,
        "(i32.store (i32.const 16) (i32.const 4096)) (i32.store (i32.const 20) (i32.const 11)) (i32.const 16)",
    );
    let says = wat::parse_str(says).expect("the guest's text");
    let plugin = PluginPlanner::compile("guest", &says, Limits::default()).expect("loads");
    bad(plugin.plan_table(&facts(), &Policy::default(), NOW_MS, Trigger::Tick));
}

#[test]
fn a_plan_for_another_moment_table_or_version_is_a_bad_answer() {
    let later = Plan { at_ms: NOW_MS + 1, ..native() };
    assert_eq!(bad(answering_plan(&later)), "the plan is for 1000001 ms, not 1000000 ms");
    bad(answering_plan(&Plan { table: "other".into(), ..native() }));
    bad(answering_plan(&Plan { version: 8, ..native() }));
}

#[test]
fn a_plan_that_folds_what_is_not_there_or_out_of_order_is_a_bad_answer() {
    let edit = |change: fn(&mut Vec<planner::job::SsTableId>)| {
        let mut plan = native();
        match &mut fold_jobs(&mut plan)[0] {
            JobSpec::Fold { sstables, .. } => change(sstables),
            other => panic!("expected a fold, got {other:?}"),
        }
        bad(answering_plan(&plan))
    };
    edit(|sstables| sstables[0].path = "elsewhere".into());
    edit(|sstables| sstables.reverse());
    edit(|sstables| drop(sstables.remove(0)));
    edit(Vec::clear);
}

#[test]
fn a_plan_that_leaves_a_verdict_out_is_a_bad_answer() {
    let mut plan = native();
    plan.verdicts.pop();
    bad(answering_plan(&plan));
}

#[test]
fn a_plan_that_works_on_something_twice_is_a_bad_answer() {
    let mut plan = native();
    let fold = fold_jobs(&mut plan)[0].clone();
    fold_jobs(&mut plan).push(fold);
    assert!(bad(answering_plan(&plan)).contains("`memwal_compaction` twice"));
}

#[test]
fn endless_repetitions_are_told_in_a_few_words() {
    let mut plan = native();
    let fold = fold_jobs(&mut plan)[0].clone();
    fold_jobs(&mut plan).extend(std::iter::repeat_n(fold, 10_000));
    assert!(bad(answering_plan(&plan)).ends_with("; and 992 more"));
    let mut plan = native();
    let JobSpec::Fold { sstables, .. } = &mut fold_jobs(&mut plan)[0] else { panic!("a fold") };
    *sstables = std::iter::repeat_n(sstables[0].clone(), 100_000).collect();
    let why = bad(answering_plan(&plan));
    assert!(why.contains("the oldest SSTables that are not folded are [1, 2, 3, 4]") && why.len() < 1000, "{why}");
}

#[test]
fn a_cleanup_below_the_floor_is_a_bad_answer() {
    let mut plan = native();
    let cleanup = JobSpec::Cleanup { min_age_ms: 1, retain_versions: 0, delete_rate_max: 0, read_version: 7 };
    let reasons = vec![planner::plan::Reason {
        measure: planner::plan::Measure::CleanupAgeMs,
        observed: Some(1),
        threshold: Some(1),
        subject: None,
    }];
    let of_cleanup = plan.verdicts.iter_mut().find(|v| v.decision == planner::plan::Decision::Cleanup);
    of_cleanup.expect("a cleanup verdict").outcome = Outcome::Due { jobs: vec![cleanup], reasons };
    assert_eq!(bad(answering_plan(&plan)), "a cleanup keeps the minimum age of versions");
}

#[test]
fn an_answer_nested_without_end_is_a_bad_answer() {
    bad(answering(&"[".repeat(10_000)));
    bad(answering(&format!(r#"{{"ok":{}"#, r#"{"verdicts":[{"jobs":["#.repeat(5_000))));
}

#[test]
fn a_refusal_keeps_the_plugins_words() {
    let refusal = r#"{"error":{"kind":"facts","message":"no such moon"}}"#;
    assert_eq!(answering(refusal), Err(PluginError::Refused { why: "no such moon".into() }));
}
