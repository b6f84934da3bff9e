//! When a cleanup is due (section 4), as one grid, and what a table's config changes.
#![allow(clippy::unwrap_used)]

use planner::check;
use planner::facts::{CleanupFacts, CleanupSuccess, TableFacts};
use planner::job::JobSpec;
use planner::plan::{Outcome, Trigger, cleanup_job, plan_table};
use planner::policy::{CleanupPolicy, Policy};
use planner::time::{DAY_MS, HOUR_MS, SECOND_MS};

const NOW_MS: u64 = 100 * DAY_MS;

/// Seconds since the last success ended and since the last failure; `-` for none. Behind `=` the
/// verdict, its deciding measure, and in how many seconds time alone makes it due.
const GRID: &str = "
version  started  recorded   ended  failed  =
     19        -         -       -       -  = not_due InitialVersion
     20        -         -       -       -  = due InitialVersion
     20        -         -       -      59  = not_due FailureAgeMs in 1
     20        -         -       -      60  = due InitialVersion
     19        -         -       -      59  = not_due FailureAgeMs
    100      100       100       0       -  = not_due VersionsSince in 86400
    119      100       100      10       -  = not_due VersionsSince in 86390
    120      100       100      10       -  = due VersionsSince
    120      100       110      10       -  = due VersionsSince
    120      100       100      10      59  = due VersionsSince
    120      100       100     100      59  = not_due FailureAgeMs in 1
    120      100       100     100      60  = due VersionsSince
    100      100       100   86399       -  = not_due VersionsSince in 1
    100      100       100   86400       -  = due CleanupAgeMs
    100      100       100   86399      30  = not_due FailureAgeMs in 30
    100      100       100   86300      30  = not_due FailureAgeMs in 100
    100      100       110      10       -  = due RecordedVersion
    109      100       110      10       -  = due RecordedVersion
    110      100       110      10       -  = not_due VersionsSince in 86390
     99      100       110      10       -  = due RecordedVersion
     99      100       110      70       5  = not_due FailureAgeMs in 55
     99      100        99     -60       -  = not_due VersionsSince in 86460
";

fn policy() -> Policy {
    Policy { cleanup: CleanupPolicy { min_age_ms: HOUR_MS, ..CleanupPolicy::default() }, ..Policy::default() }
}

fn table(version: u64, history: CleanupFacts) -> TableFacts {
    TableFacts { table: "t".into(), version, cleanup: Some(history), ..TableFacts::default() }
}

fn cleanup(facts: &TableFacts, policy: &Policy, now_ms: u64) -> Outcome {
    plan_table(facts, policy, now_ms, Trigger::Tick).verdicts.swap_remove(3).outcome
}

fn verdict(row: &str) -> String {
    let words: Vec<&str> = row.split_whitespace().collect();
    let number = |at: usize| words[at].parse::<i64>().ok();
    let ago = |at| number(at).map(|secs| NOW_MS.saturating_add_signed(-secs * SECOND_MS as i64));
    let success = number(1).map(|started| CleanupSuccess {
        start_version: started as u64,
        recorded_version: number(2).unwrap() as u64,
        finished_at_ms: ago(3).unwrap(),
    });
    let history = CleanupFacts { last_success: success, last_failure_at_ms: ago(4), ..CleanupFacts::default() };
    match cleanup(&table(number(0).unwrap() as u64, history), &policy(), NOW_MS) {
        Outcome::Due { reasons, .. } => format!("due {:?}", reasons[0].measure),
        Outcome::NotDue { reasons, due_at_ms } => {
            let in_secs = due_at_ms.map(|at| format!(" in {}", (at - NOW_MS) / SECOND_MS));
            format!("not_due {:?}{}", reasons[0].measure, in_secs.unwrap_or_default())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn r4_2_to_r4_4_as_a_grid() {
    let drawn = |line: &str| match line.split_once('=') {
        Some((row, _)) if line.trim_start().starts_with(|c: char| c.is_ascii_digit()) => {
            format!("{row}= {}\n", verdict(row))
        }
        _ => format!("{line}\n"),
    };
    let now: String = GRID.lines().map(drawn).collect();
    assert_eq!(now, GRID);
}

#[test]
fn r4_1_cleanup_is_off_without_a_minimum_age_and_where_a_table_opts_out() {
    let due = table(20, CleanupFacts::default());
    let off = |facts: &TableFacts, policy: &Policy| match cleanup(facts, policy, NOW_MS) {
        Outcome::Disabled { knob } => knob,
        other => panic!("{other:?}"),
    };
    assert_eq!(off(&due, &Policy::default()), "cleanup_min_version_age_secs");
    let opted_out = table(20, CleanupFacts { opted_out: true, ..CleanupFacts::default() });
    assert_eq!(off(&opted_out, &policy()), "caretaker.cleanup.enabled");
    let mut by_key = due.clone();
    by_key.overrides.insert("caretaker.cleanup.enabled".into(), "false".into());
    assert_eq!(off(&by_key, &policy()), "caretaker.cleanup.enabled");
    // A history that was not read is not an empty one.
    let unread = TableFacts { cleanup: None, ..due };
    assert!(matches!(cleanup(&unread, &policy(), NOW_MS), Outcome::NotDue { due_at_ms: None, .. }));
}

#[test]
fn a_cleanup_by_hand_follows_the_policy_whatever_the_triggers_say() {
    let mut young = table(1, CleanupFacts::default());
    assert!(matches!(cleanup(&young, &policy(), NOW_MS), Outcome::NotDue { .. }));
    let job = cleanup_job(&young, &policy()).unwrap();
    assert!(matches!(job, JobSpec::Cleanup { min_age_ms: HOUR_MS, read_version: 1, .. }));
    assert_eq!(check::job(&job, &young), Ok(()));
    assert_eq!(cleanup_job(&young, &Policy::default()), None, "R4.1");
    young.overrides.insert("lance.auto_cleanup.older_than".into(), "2h".into());
    assert!(
        matches!(cleanup_job(&young, &policy()), Some(JobSpec::Cleanup { min_age_ms, .. }) if min_age_ms == 2 * HOUR_MS)
    );
    for (key, value) in [("caretaker.paused", "true"), ("caretaker.cleanup.enabled", "false")] {
        let unwilling = TableFacts { overrides: [(key.into(), value.into())].into(), ..young.clone() };
        assert!(check::job(&job, &unwilling).is_err(), "{key}");
    }
}

#[test]
fn pln_03_a_failed_run_does_not_move_the_marks() {
    let last = CleanupSuccess { start_version: 100, finished_at_ms: NOW_MS - HOUR_MS, recorded_version: 100 };
    let history = CleanupFacts { last_success: Some(last), last_failure_at_ms: Some(NOW_MS), opted_out: false };
    let policy = Policy { cleanup: CleanupPolicy { version_interval: 50, ..policy().cleanup }, ..Policy::default() };
    let due = |secs| {
        matches!(
            cleanup(&table(160, history.clone()), &policy, NOW_MS + secs * SECOND_MS),
            Outcome::Due { reasons, .. } if reasons[0].observed == Some(60)
        )
    };
    assert_eq!([due(30), due(61)], [false, true]);
}

#[test]
fn pln_08_a_cleanup_that_removes_nothing_does_not_call_for_the_next() {
    let policy = Policy { cleanup: CleanupPolicy { min_age_ms: DAY_MS, ..policy().cleanup }, ..Policy::default() };
    let mut facts = table(400, CleanupFacts::default());
    let mut runs = 0;
    for minute in (0..180).step_by(10) {
        let now_ms = NOW_MS + minute * 60 * SECOND_MS;
        if let Outcome::Due { jobs, .. } = cleanup(&facts, &policy, now_ms) {
            planner::simulate::apply(&mut facts, &jobs[0], now_ms);
            runs += 1;
        }
    }
    assert_eq!(runs, 1);
}

#[test]
fn pln_02_a_compaction_that_keeps_failing_does_not_stop_cleanup() {
    let facts = serde_json::json!({
        "table": "t", "version": 500, "cleanup": {},
        "fragments": (0..9).map(|id| serde_json::json!({ "id": id, "rows": 1, "deleted": 0 })).collect::<Vec<_>>(),
        "failed": [{ "kind": "compact", "times": 3, "last_at_ms": NOW_MS }],
    });
    let facts: TableFacts = serde_json::from_value(facts).unwrap();
    let plan = |secs| plan_table(&facts, &policy(), NOW_MS + secs * SECOND_MS, Trigger::Tick);
    let kinds = |secs| plan(secs).jobs().map(JobSpec::kind).collect::<Vec<_>>();
    assert_eq!(kinds(239), ["cleanup"], "the compaction waits 60, 120, 240 seconds");
    assert_eq!(kinds(240), ["compact", "cleanup"]);
}

#[test]
fn a_table_may_keep_more_than_the_deployment_and_never_less() {
    let of = |policy: &Policy, pairs: &[(&str, &str)]| {
        let config = pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let table = policy.for_table(&config);
        (table.policy.into_owned(), table.complaints.into_iter().map(|c| c.key).collect::<Vec<_>>())
    };
    let age = |pairs: &[(&str, &str)]| of(&policy(), pairs).0.cleanup.min_age_ms;
    assert_eq!(age(&[("lance.auto_cleanup.older_than", "14days")]), 14 * DAY_MS);
    assert_eq!(age(&[("lance.auto_cleanup.older_than", "1h 30m")]), 90 * 60 * SECOND_MS);
    assert_eq!(age(&[("lance.auto_cleanup.older_than", "1s")]), HOUR_MS);
    assert_eq!(age(&[("caretaker.cleanup_min_version_age_secs", "0")]), HOUR_MS);
    assert_eq!(of(&Policy::default(), &[("lance.auto_cleanup.older_than", "14d")]).0, Policy::default());

    let (changed, complaints) = of(
        &policy(),
        &[
            ("caretaker.compaction_small_fragments_min", "8"),
            ("lance.compaction.target_rows_per_fragment", "5000"),
            ("lance.compaction.max_bytes_per_file", "1000000"),
            ("lance.compaction.materialize_deletions_threshold", "0.25"),
            ("lance.compaction.defer_index_remap", "False"),
            ("lance.compaction.batch_size", "not looked at here"),
            ("lance.auto_cleanup.interval", "50"),
            ("lance.auto_cleanup.retain_versions", "3"),
            ("somebody.elses", "key"),
        ],
    );
    let compaction = &changed.compaction;
    assert_eq!((compaction.small_min, compaction.target_rows, compaction.target_bytes), (8, 5000, 500_000));
    assert_eq!((compaction.deleted_permille, compaction.defer_remap), (250, 0));
    assert_eq!((changed.cleanup.version_interval, changed.cleanup.retain_versions), (50, 3));
    assert_eq!(complaints, [] as [&str; 0]);
    let never = of(&policy(), &[("lance.compaction.materialize_deletions", "false")]).0;
    assert_eq!(never.compaction.deleted_permille, 1000);
}

/// CLN-14: bad values are refused by their key, and the rest of the config holds.
#[test]
fn cln_14_impossible_values_and_unknown_keys_are_complained_of_and_never_fatal() {
    let bad = [
        ("caretaker.agent_budget", "5"),
        ("caretaker.cleanup.enabled", "perhaps"),
        ("caretaker.cleanup_min_version_age_secs", "-1s"),
        ("caretaker.colour", "blue"),
        ("caretaker.paused", "yes"),
        ("caretaker.wal_compact_concurrency", "5"),
        ("lance.auto_cleanup.interval", "0"),
        ("lance.auto_cleanup.older_than", "9999999999999999d"),
        ("lance.compaction.materialize_deletions_threshold", "NaN"),
        ("lance.compaction.target_rows_per_fragment", "0"),
    ];
    let mut facts = table(20, CleanupFacts::default());
    facts.overrides = bad.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    facts.overrides.insert("caretaker.cleanup_retain_versions".into(), "7".into());
    let plan = plan_table(&facts, &policy(), NOW_MS, Trigger::Tick);
    assert_eq!(plan.complaints.iter().map(|c| c.key.as_str()).collect::<Vec<_>>(), bad.map(|(key, _)| key));
    assert!(plan.complaints.iter().all(|c| c.why.len() > 10));
    // Neither yes nor no: what these two keep from happening does not happen.
    assert_eq!(plan.jobs().next(), None);
    for unclear in ["caretaker.cleanup.enabled", "caretaker.paused"] {
        facts.overrides.remove(unclear);
    }
    let plan = plan_table(&facts, &policy(), NOW_MS, Trigger::Tick);
    assert!(matches!(plan.jobs().next(), Some(JobSpec::Cleanup { retain_versions: 7, .. })));
    for age in ["-1s", "9999999999999d", "abc", ""] {
        Policy::default().set("cleanup_min_version_age_secs", age).unwrap_err();
    }
}

#[test]
fn a_complaint_is_drawn_whole() {
    let mut facts = table(20, CleanupFacts::default());
    facts.overrides.insert("caretaker.compaction_smal_fragments_min".into(), "3".into());
    facts.overrides.insert("caretaker.pause".into(), "true".into());
    let plan = plan_table(&facts, &policy(), NOW_MS, Trigger::Tick);
    assert!(plan.complaints.iter().any(|complaint| complaint.why.contains("did you mean `paused`?")));
    let drawn = planner::draw::plan(&plan);
    let said = drawn.split_whitespace().collect::<Vec<_>>().join(" ");
    for complaint in &plan.complaints {
        assert!(said.contains(&format!("not followed: {complaint}")), "{complaint}\n{drawn}");
    }
}
