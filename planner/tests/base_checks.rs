//! The alarms of jobs on the base go off: each test breaks one invariant on purpose.
#![allow(clippy::unwrap_used)]

use planner::check::{self, Rule, Violation};
use planner::facts::{CleanupFacts, FragmentFacts, IndexFacts, RemapFacts, RunningFacts, TableFacts};
use planner::job::{IndexOp, JobSpec, Predicted};
use planner::plan::{Decision, Hold, Outcome, Plan, Trigger, plan_table};
use planner::policy::{CleanupPolicy, CompactionPolicy, Policy};
use planner::time::DAY_MS;

/// Everything but catch-up is due. Fragment 4 is excluded, 5 and 6 have another set of segments.
fn table() -> TableFacts {
    let fragment = |id| FragmentFacts {
        id,
        rows: 10,
        deleted: Some(0),
        coverage: u32::from(id > 4),
        excluded: id == 4,
        ..FragmentFacts::default()
    };
    TableFacts {
        table: "t".into(),
        version: 20,
        rows: Some(70),
        indexes: vec![IndexFacts {
            name: "idx".into(),
            kind: "btree".into(),
            unindexed_rows: Some(200_000),
            ..IndexFacts::default()
        }],
        fragments: Some((0..7).map(fragment).collect()),
        cleanup: Some(CleanupFacts::default()),
        remap: Some(RemapFacts { rewrites: 8, oldest_at_ms: None, indexes: vec!["idx".into()] }),
        ..TableFacts::default()
    }
}

fn changed(change: impl FnOnce(&mut TableFacts)) -> TableFacts {
    let mut facts = table();
    change(&mut facts);
    facts
}

fn compact(tasks: &[&[u64]], deferred: bool) -> JobSpec {
    let tasks = tasks.iter().map(|task| task.to_vec()).collect();
    let predicted = Predicted { fragments: 1, rows: None, bytes: None };
    JobSpec::Compact { tasks, deferred, read_version: 20, target_rows: 100, predicted }
}

fn index(op: IndexOp) -> JobSpec {
    JobSpec::Index { kind: "btree".into(), indexes: vec!["idx".into()], op }
}

fn cleanup(min_age_ms: u64) -> JobSpec {
    JobSpec::Cleanup { min_age_ms, retain_versions: 0, delete_rate_max: 0, read_version: 20 }
}

fn policy() -> Policy {
    Policy {
        cleanup: CleanupPolicy { min_age_ms: DAY_MS, ..CleanupPolicy::default() },
        compaction: CompactionPolicy { defer_remap: 1, ..CompactionPolicy::default() },
        ..Policy::default()
    }
}

fn planned(decision: Decision, jobs: Vec<JobSpec>) -> Plan {
    let mut plan = plan_table(&table(), &policy(), 0, Trigger::Tick);
    for verdict in plan.verdicts.iter_mut().filter(|v| v.decision == decision) {
        let Outcome::Due { jobs: planned, .. } = &mut verdict.outcome else { panic!("{verdict:?} is not due") };
        planned.clone_from(&jobs);
    }
    plan
}

#[track_caller]
fn alarms(found: Result<(), Vec<Violation>>, expected: &[Rule]) {
    let rules: Vec<Rule> = found.err().unwrap_or_default().into_iter().map(|v| v.rule).collect();
    assert_eq!(rules, expected);
}

#[test]
fn what_the_planner_makes_raises_no_alarm() {
    let plan = plan_table(&table(), &policy(), 0, Trigger::Tick);
    assert_eq!(plan.jobs().count(), 4);
    alarms(check::facts(&table()), &[]);
    alarms(check::plan(&plan, &table(), &policy()), &[]);
    plan.jobs().for_each(|job| alarms(check::job(job, &table()), &[]));
}

#[test]
fn fragments_out_of_order_or_with_too_many_deletions_are_alarms() {
    let twice = changed(|t| t.fragments.as_mut().unwrap()[1].id = 0);
    alarms(check::facts(&twice), &[Rule::Unique]);
    let deleted = changed(|t| t.fragments.as_mut().unwrap()[1].deleted = Some(11));
    alarms(check::facts(&deleted), &[Rule::Deleted]);
}

#[test]
fn a_rewrite_of_what_is_gone_is_an_alarm_and_stale() {
    let found = check::job(&compact(&[&[0, 1, 9]], false), &table());
    assert!(found.as_ref().is_err_and(|v| v[0].rule.is_stale()));
    alarms(found, &[Rule::Missing]);
}

#[test]
fn a_rewrite_of_strangers_excluded_or_repeated_fragments_is_an_alarm() {
    alarms(check::job(&compact(&[&[0, 2]], false), &table()), &[Rule::Neighbours]);
    alarms(check::job(&compact(&[&[1, 0]], false), &table()), &[Rule::Neighbours]);
    let other_segments = changed(|t| t.fragments.as_mut().unwrap()[6].coverage = 2);
    alarms(check::job(&compact(&[&[5, 6]], true), &other_segments), &[Rule::Neighbours]);
    alarms(check::job(&compact(&[&[4]], false), &table()), &[Rule::Needed]);
    alarms(check::job(&compact(&[&[0, 1], &[1, 2]], false), &table()), &[Rule::Twice]);
    alarms(check::job(&compact(&[], false), &table()), &[Rule::Empty]);
    alarms(check::job(&compact(&[&[]], false), &table()), &[Rule::Empty]);
}

/// RMP-09: never a deferred compaction where Lance refuses one, or where an index would answer wrongly.
#[test]
fn a_remap_that_can_not_be_deferred_is_an_alarm() {
    let job = compact(&[&[0, 1]], true);
    alarms(check::job(&job, &table()), &[]);
    alarms(check::job(&job, &changed(|t| t.stable_row_ids = true)), &[Rule::Gate]);
    alarms(check::job(&job, &changed(|t| t.indexes[0].inline_only = true)), &[Rule::Gate]);
    alarms(check::job(&job, &changed(|t| t.indexes[0].kind = "fm".into())), &[Rule::Gate]);
}

/// Of a fragment that a deferred rewrite has made, an inline one loses the index entries.
#[test]
fn a_rewrite_that_would_lose_index_entries_is_an_alarm_and_waits_for_the_remap() {
    let covered = compact(&[&[5, 6]], false);
    alarms(check::job(&covered, &table()), &[Rule::Gate]);
    alarms(check::job(&covered, &changed(|t| t.remap = Some(RemapFacts::default()))), &[]);
    alarms(check::job(&compact(&[&[0, 1]], false), &table()), &[]);
    alarms(check::job(&compact(&[&[5, 6]], true), &table()), &[]);
    let one_waits = changed(|t| {
        t.remap.as_mut().unwrap().rewrites = 1;
        t.fragments.as_mut().unwrap().iter_mut().for_each(|f| (f.coverage, f.excluded) = (1, false));
    });
    let verdicts = |facts: &TableFacts| {
        let plan = plan_table(facts, &Policy::default(), 0, Trigger::Tick);
        [Decision::Compaction, Decision::Remap]
            .map(|d| plan.verdicts.iter().find(|v| v.decision == d).unwrap().outcome.clone())
    };
    let [compaction, remap] = verdicts(&one_waits);
    assert!(matches!(compaction, Outcome::Held { hold: Hold::Remap { rewrites: 1 }, .. }), "{compaction:?}");
    assert!(matches!(remap, Outcome::Due { .. }), "{remap:?}");
    let none = TableFacts { remap: Some(RemapFacts::default()), ..one_waits };
    assert!(matches!(verdicts(&none), [Outcome::Due { .. }, Outcome::NotDue { .. }]));
}

#[test]
fn work_that_is_done_is_an_alarm_and_stale() {
    let indexed = changed(|t| t.indexes[0].unindexed_rows = Some(0));
    let merged = changed(|t| {
        t.indexes[0].unindexed_rows = Some(0);
        t.indexes[0].segments = Some(1);
    });
    let remapped = changed(|t| t.remap = Some(RemapFacts::default()));
    let remap = JobSpec::Remap { indexes: vec!["idx".into()] };
    for (job, facts) in [
        (index(IndexOp::Append), indexed),
        (index(IndexOp::Merge), merged),
        (index(IndexOp::Reindex), table()),
        (remap, remapped),
    ] {
        alarms(check::job(&job, &facts), &[Rule::Done]);
        assert!(Rule::Done.is_stale());
    }
    let gone = JobSpec::Remap { indexes: vec!["gone".into()] };
    alarms(check::job(&gone, &table()), &[Rule::Missing]);
}

#[test]
fn anything_but_catch_up_on_a_paused_table_is_an_alarm() {
    let paused = changed(|t| drop(t.overrides.insert("caretaker.paused".into(), "true".into())));
    for job in [compact(&[&[0, 1]], false), index(IndexOp::Append), cleanup(DAY_MS)] {
        alarms(check::job(&job, &paused), &[Rule::Gate]);
    }
    let opted_out = changed(|t| t.cleanup.as_mut().unwrap().opted_out = true);
    alarms(check::job(&cleanup(DAY_MS), &opted_out), &[Rule::Gate]);
}

#[test]
fn a_plan_that_rewrites_in_vain_or_without_end_is_an_alarm() {
    // One fragment becomes one fragment, for ever.
    let plan = planned(Decision::Compaction, vec![compact(&[&[0]], true)]);
    alarms(check::plan(&plan, &table(), &policy()), &[Rule::NoProgress]);
    let deleted = changed(|t| t.fragments.as_mut().unwrap()[0].deleted = Some(1));
    alarms(check::plan(&plan, &deleted, &policy()), &[]);
    let plan = planned(Decision::Compaction, vec![compact(&[&[0, 1], &[2, 3]], true)]);
    let compaction = CompactionPolicy { fragments_max: 3, ..CompactionPolicy::default() };
    alarms(check::plan(&plan, &table(), &Policy { compaction, ..policy() }), &[Rule::Limit]);
}

#[test]
fn a_plan_that_cleans_more_than_it_may_is_an_alarm() {
    let young = planned(Decision::Cleanup, vec![cleanup(DAY_MS - 1)]);
    alarms(check::plan(&young, &table(), &policy()), &[Rule::Grace]);
    let plan = planned(Decision::Cleanup, vec![cleanup(DAY_MS)]);
    alarms(check::plan(&plan, &table(), &Policy::default()), &[Rule::Grace]);
}

#[test]
fn a_plan_that_does_what_runs_or_what_must_wait_is_an_alarm() {
    let plan = plan_table(&table(), &policy(), 0, Trigger::Tick);
    let open = |kind: &str| {
        let (kind, holder) = (kind.into(), "job-7".into());
        changed(|t| t.running = vec![RunningFacts { kind, holder, since_ms: 0, deferred: false, indexes: vec![] }])
    };
    alarms(check::plan(&plan, &open("cleanup"), &policy()), &[Rule::Gate]);
    // The open compaction remaps in its own commit: the planned one waits, and so does the index.
    alarms(check::plan(&plan, &open("compact"), &policy()), &[Rule::Gate, Rule::Gate]);
    let inline = planned(Decision::Compaction, vec![compact(&[&[0, 1]], false)]);
    alarms(check::plan(&inline, &table(), &policy()), &[Rule::Gate]);
    let twice = planned(Decision::Index, vec![index(IndexOp::Append), index(IndexOp::Merge)]);
    alarms(check::plan(&twice, &table(), &policy()), &[Rule::Twice]);
}
