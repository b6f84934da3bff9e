//! The alarms go off: each test breaks one invariant on purpose. That none goes off on what the
//! planner makes itself is a property (`properties.rs`).
#![allow(clippy::unwrap_used)]

use planner::check::{self, Rule, Violation};
use planner::facts::{GarbageFacts, GarbageKind, IndexFacts, MismatchFacts, PassFacts, ShardFacts, ShardStatus};
use planner::facts::{SsTableFacts, TableFacts};
use planner::job::{GarbageId, JobSpec, SsTableId};
use planner::plan::{Decision, Outcome, Plan, Trigger, plan_table};
use planner::policy::Policy;
use planner::time::DAY_MS;

const NOW_MS: u64 = 10 * DAY_MS;

/// Four generations, two of them folded; one index; one file of each kind to collect.
fn table() -> TableFacts {
    let file =
        |kind, path: &str, position| GarbageFacts { kind, path: path.into(), position, bytes: 1, since_ms: Some(0) };
    let garbage = vec![
        file(GarbageKind::SsTable, "g9", 1),
        file(GarbageKind::WalEntry, "wal/1", 1),
        file(GarbageKind::WalEntry, "wal/2", 2),
        file(GarbageKind::Manifest, "manifest/1", 1),
    ];
    let shard = ShardFacts {
        shard: "3f".into(),
        manifest_version: 2,
        sstables: (1..=4).map(sstable).collect(),
        compacted_generation: 2,
        caught_up: [("idx".into(), 1)].into(),
        retained_generation: Some(u64::MAX),
        garbage: Some(garbage),
        ..ShardFacts::default()
    };
    TableFacts {
        table: "t".into(),
        version: 7,
        primary_key: vec!["id".into()],
        indexes: vec![IndexFacts { name: "idx".into(), kind: "btree".into(), ..IndexFacts::default() }],
        shards: vec![shard],
        ..TableFacts::default()
    }
}

fn sstable(generation: u64) -> SsTableFacts {
    SsTableFacts { generation, path: format!("g{generation}"), bytes: Some(10), rows: None, flushed_at_ms: Some(0) }
}

fn changed(change: impl FnOnce(&mut TableFacts)) -> TableFacts {
    let mut facts = table();
    change(&mut facts);
    facts
}

fn ids(generations: &[u64]) -> Vec<SsTableId> {
    generations.iter().map(|g| sstable(*g).id()).collect()
}

fn fold(generations: &[u64]) -> JobSpec {
    JobSpec::Fold { shard: "3f".into(), sstables: ids(generations), bytes: None }
}

fn retire(generations: &[u64]) -> JobSpec {
    JobSpec::Retire { shard: "3f".into(), sstables: ids(generations) }
}

fn catch_up(indexes: &[&str]) -> JobSpec {
    JobSpec::CatchUp { kind: "btree".into(), indexes: indexes.iter().map(ToString::to_string).collect() }
}

fn collect(kind: GarbageKind, path: &str, position: u64) -> JobSpec {
    JobSpec::Collect { shard: "3f".into(), files: vec![GarbageId { kind, path: path.into(), position }], bytes: 1 }
}

/// The plan for [`table`], everything forced, with one verdict's jobs exchanged.
fn planned(decision: Decision, jobs: Vec<JobSpec>) -> Plan {
    let mut plan = plan_table(&table(), &policy(), NOW_MS, Trigger::Forced);
    for verdict in plan.verdicts.iter_mut().filter(|v| v.decision == decision) {
        let Outcome::Due { jobs: planned, .. } = &mut verdict.outcome else { panic!("{verdict:?} is not due") };
        planned.clone_from(&jobs);
    }
    plan
}

fn policy() -> Policy {
    Policy { prefix_max: 2, pass_bytes: 20, collect_files_max: 3, ..Policy::default() }
}

/// Exactly these rules are broken.
#[track_caller]
fn alarms(found: Result<(), Vec<Violation>>, expected: &[Rule]) {
    let rules: Vec<Rule> = found.err().unwrap_or_default().into_iter().map(|v| v.rule).collect();
    assert_eq!(rules, expected);
}

#[test]
fn well_formed_facts_jobs_plans_and_results_raise_no_alarm() {
    alarms(check::facts(&table()), &[]);
    for job in [fold(&[3]), fold(&[3, 4]), retire(&[1]), catch_up(&["idx"]), collect(GarbageKind::SsTable, "g9", 1)] {
        alarms(check::job(&job, &table()), &[]);
    }
    let plan = plan_table(&table(), &policy(), NOW_MS, Trigger::Forced);
    assert_eq!(plan.jobs().count(), 4);
    alarms(check::plan(&plan, &table(), &policy()), &[]);
    alarms(check::after(&table(), &table()), &[]);
}

#[test]
fn a_name_that_occurs_twice_is_an_alarm() {
    let shard = changed(|t| t.shards.push(t.shards[0].clone()));
    let index = changed(|t| t.indexes.push(t.indexes[0].clone()));
    let column = changed(|t| t.primary_key.push("id".into()));
    let generation = changed(|t| t.shards[0].sstables[1].generation = 1);
    let path = changed(|t| t.shards[0].sstables[1].path = "g1".into());
    let garbage = changed(|t| t.shards[0].garbage.as_mut().unwrap()[1].path = "g9".into());
    let zero = changed(|t| t.shards[0].sstables[0].generation = 0);
    for facts in [shard, index, column, generation, path, garbage, zero] {
        alarms(check::facts(&facts), &[Rule::Unique]);
    }
}

#[test]
fn an_index_that_covers_what_is_not_folded_is_an_alarm() {
    let facts = changed(|t| t.shards[0].caught_up = [("idx".into(), 3)].into());
    alarms(check::facts(&facts), &[Rule::CoversUnfolded]);
    // The table's indexes are the truth: an entry of another name says nothing.
    let facts = changed(|t| t.shards[0].caught_up = [("gone".into(), 3)].into());
    alarms(check::facts(&facts), &[]);
}

#[test]
fn a_file_both_listed_and_garbage_is_an_alarm() {
    let facts = changed(|t| t.shards[0].garbage.as_mut().unwrap()[0].path = "g3".into());
    alarms(check::facts(&facts), &[Rule::ListedGarbage]);
}

#[test]
fn a_job_that_names_what_is_not_there_is_an_alarm_and_stale() {
    let other_folder = JobSpec::Fold {
        shard: "3f".into(),
        sstables: vec![SsTableId { generation: 3, path: "x".into() }],
        bytes: None,
    };
    let other_shard = JobSpec::Retire { shard: "40".into(), sstables: ids(&[1]) };
    let other_kind = JobSpec::CatchUp { kind: "fts".into(), indexes: vec!["idx".into()] };
    let gone = collect(GarbageKind::SsTable, "g8", 1);
    let moved = collect(GarbageKind::SsTable, "g9", 2);
    for job in [other_folder, other_shard, other_kind, catch_up(&["none"]), retire(&[9]), gone, moved] {
        let found = check::job(&job, &table());
        assert!(found.as_ref().is_err_and(|v| v[0].rule.is_stale()));
        let mut rules: Vec<Rule> = found.err().unwrap().iter().map(|v| v.rule).collect();
        // A generation that is not there is neither folded nor covered.
        rules.retain(|rule| !matches!(rule, Rule::NotFolded | Rule::NotCovered));
        assert_eq!(rules, [Rule::Missing]);
    }
}

#[test]
fn a_job_on_nothing_is_an_alarm() {
    let files = JobSpec::Collect { shard: "3f".into(), files: vec![], bytes: 0 };
    for job in [fold(&[]), retire(&[]), catch_up(&[]), files] {
        alarms(check::job(&job, &table()), &[Rule::Empty]);
    }
}

#[test]
fn a_fold_of_what_is_folded_is_an_alarm_and_stale() {
    alarms(check::job(&fold(&[2]), &table()), &[Rule::Folded]);
    // One that is partly folded is superseded as a whole: the commit would fail (R2.12).
    alarms(check::job(&fold(&[2, 3]), &table()), &[Rule::Folded]);
    assert!(Rule::Folded.is_stale());
}

#[test]
fn a_fold_that_is_not_the_oldest_in_order_is_an_alarm() {
    for generations in [&[4][..], &[4, 3], &[3, 3]] {
        alarms(check::job(&fold(generations), &table()), &[Rule::Prefix]);
    }
    assert!(!Rule::Prefix.is_stale());
}

#[test]
fn retiring_what_is_not_folded_or_not_covered_is_an_alarm() {
    alarms(check::job(&retire(&[2]), &table()), &[Rule::NotCovered]);
    alarms(check::job(&retire(&[3]), &table()), &[Rule::NotFolded, Rule::NotCovered]);
    let no_index = changed(|t| t.indexes.clear());
    alarms(check::job(&retire(&[1, 2]), &no_index), &[]);
}

#[test]
fn collecting_what_is_needed_is_an_alarm() {
    let newest_wal = collect(GarbageKind::WalEntry, "wal/2", 2);
    alarms(check::job(&newest_wal, &table()), &[Rule::Needed]);

    let manifest = collect(GarbageKind::Manifest, "manifest/1", 1);
    let newest = changed(|t| t.shards[0].manifest_version = 1);
    alarms(check::job(&manifest, &table()), &[]);
    alarms(check::job(&manifest, &newest), &[Rule::Needed]);

    let folder = collect(GarbageKind::SsTable, "g9", 1);
    let listed = changed(|t| t.shards[0].sstables[3].path = "g9".into());
    let flushing = changed(|t| t.shards[0].compacted_generation = 0);
    let retained = changed(|t| t.shards[0].retained_generation = Some(0));
    let unknown = changed(|t| t.shards[0].retained_generation = None);
    for facts in [listed, flushing, retained, unknown] {
        alarms(check::job(&folder, &facts), &[Rule::Needed]);
    }
}

#[test]
fn a_job_on_a_sealed_or_detached_shard_or_a_stopped_table_is_an_alarm() {
    let sealed = changed(|t| t.shards[0].status = ShardStatus::Sealed);
    let paused = changed(|t| t.paused = true);
    let mismatch = changed(|t| t.mismatch = Some(MismatchFacts { kind: "compact".into(), at_ms: 0 }));
    let detached = changed(|t| t.shards[0].detached = true);
    for job in [fold(&[3]), retire(&[1]), collect(GarbageKind::SsTable, "g9", 1)] {
        alarms(check::job(&job, &sealed), &[Rule::Gate]);
        alarms(check::job(&job, &paused), &[Rule::Gate]);
        alarms(check::job(&job, &mismatch), &[Rule::Gate]);
        alarms(check::job(&job, &detached), &[Rule::Gate]);
    }
    for stopped in [paused, mismatch] {
        alarms(check::job(&catch_up(&["idx"]), &stopped), &[]);
    }
    let no_key = changed(|t| t.primary_key.clear());
    alarms(check::job(&fold(&[3]), &no_key), &[Rule::Gate]);
    alarms(check::job(&retire(&[1]), &no_key), &[]);
}

#[test]
fn a_second_pass_on_a_shard_is_an_alarm_of_the_plan_but_not_of_the_job_that_holds_the_latch() {
    let running = changed(|t| t.shards[0].pass = Some(PassFacts { since_ms: 0, holder: "job-7".into() }));
    let plan = planned(Decision::Fold, vec![fold(&[3])]);
    alarms(check::plan(&plan, &running, &policy()), &[Rule::Gate, Rule::Gate]);
    alarms(check::job(&fold(&[3]), &running), &[]);
}

#[test]
fn a_plan_that_lacks_repeats_or_mixes_up_verdicts_is_an_alarm() {
    let plan = plan_table(&table(), &policy(), NOW_MS, Trigger::Forced);
    let other = |change: fn(&mut Plan)| {
        let mut plan = plan.clone();
        change(&mut plan);
        plan
    };
    let lacks = other(|p| drop(p.verdicts.pop()));
    let order = other(|p| p.verdicts.swap(1, 2));
    let stale = other(|p| p.version = 6);
    for plan in [lacks, order, stale] {
        alarms(check::plan(&plan, &table(), &policy()), &[Rule::Verdicts]);
    }
    let mixed = planned(Decision::Retire, vec![fold(&[3])]);
    alarms(check::plan(&mixed, &table(), &policy()), &[Rule::Verdicts, Rule::Twice]);
    let late = other(|p| {
        p.verdicts[1].outcome = Outcome::NotDue { reasons: vec![], due_at_ms: Some(p.at_ms) };
    });
    alarms(check::plan(&late, &table(), &policy()), &[Rule::Verdicts]);
    let nothing = planned(Decision::Fold, vec![]);
    alarms(check::plan(&nothing, &table(), &policy()), &[Rule::Empty]);
}

#[test]
fn a_plan_beyond_its_limits_is_an_alarm() {
    let plan = planned(Decision::Fold, vec![fold(&[3, 4])]);
    for policy in [Policy { prefix_max: 1, ..policy() }, Policy { pass_bytes: 19, ..policy() }] {
        alarms(check::plan(&plan, &table(), &policy), &[Rule::Limit]);
    }
    let unmeasured = changed(|t| t.shards[0].sstables[2].bytes = None);
    alarms(check::plan(&plan, &unmeasured, &policy()), &[Rule::Limit]);
    // A single one is taken whatever its size: there must be progress.
    let one = planned(Decision::Fold, vec![fold(&[3])]);
    alarms(check::plan(&one, &unmeasured, &Policy { pass_bytes: 1, ..policy() }), &[]);

    let collects = plan_table(&table(), &policy(), NOW_MS, Trigger::Forced);
    alarms(check::plan(&collects, &table(), &Policy { collect_files_max: 2, ..policy() }), &[Rule::Limit]);
}

#[test]
fn a_plan_that_does_not_wait_for_grace_or_delay_is_an_alarm() {
    let young = changed(|t| t.shards[0].garbage.as_mut().unwrap()[0].since_ms = Some(NOW_MS - DAY_MS + 1));
    let unknown = changed(|t| t.shards[0].garbage.as_mut().unwrap()[0].since_ms = None);
    let plan = planned(Decision::Collect, vec![collect(GarbageKind::SsTable, "g9", 1)]);
    for facts in [young, unknown] {
        alarms(check::plan(&plan, &facts, &policy()), &[Rule::Grace]);
    }
    let folded = |ago_ms| changed(|t| t.shards[0].recorded_at_ms = Some(NOW_MS - ago_ms));
    alarms(check::plan(&plan, &folded(4_999), &policy()), &[Rule::Grace]);
    alarms(check::plan(&plan, &folded(5_000), &policy()), &[]);
}

#[test]
fn catching_up_what_is_not_behind_is_an_alarm() {
    let plan = planned(Decision::WalCatchup, vec![catch_up(&["idx"])]);
    let converged = changed(|t| t.shards[0].caught_up = [("idx".into(), 2)].into());
    alarms(check::plan(&plan, &converged, &policy()), &[Rule::NotBehind]);
}

#[test]
fn planning_anything_twice_is_an_alarm() {
    let plan = planned(Decision::Fold, vec![fold(&[3]), fold(&[3])]);
    alarms(check::plan(&plan, &table(), &policy()), &[Rule::Twice]);
    alarms(check::job(&catch_up(&["idx", "idx"]), &table()), &[Rule::Twice]);
}

#[test]
fn progress_that_goes_down_is_an_alarm() {
    let generation = changed(|t| t.shards[0].compacted_generation = 1);
    let base = changed(|t| t.version = 6);
    let manifest = changed(|t| t.shards[0].manifest_version = 1);
    for after in [generation, base, manifest] {
        alarms(check::after(&table(), &after), &[Rule::WentDown]);
    }
}

#[test]
fn an_sstable_that_vanishes_before_it_is_folded_is_an_alarm() {
    let lost = changed(|t| {
        t.shards[0].caught_up = [("idx".into(), 2)].into();
        t.shards[0].sstables.retain(|s| s.generation != 3);
    });
    alarms(check::after(&table(), &lost), &[Rule::Vanished, Rule::NotCovered]);
    // By identity: the same generation in another folder is another SSTable.
    let replaced = changed(|t| {
        t.indexes.clear();
        t.shards[0].sstables[2].path = "x".into();
    });
    alarms(check::after(&table(), &replaced), &[Rule::Vanished]);
    let shard = changed(|t| t.shards.clear());
    alarms(check::after(&table(), &shard), &[Rule::Vanished]);
    let sealed = changed(|t| t.shards[0].status = ShardStatus::Sealed);
    alarms(check::after(&sealed, &shard), &[]);
}

#[test]
fn an_sstable_that_leaves_the_list_before_an_index_covers_it_is_an_alarm() {
    let early = changed(|t| t.shards[0].sstables.retain(|s| s.generation != 2));
    alarms(check::after(&table(), &early), &[Rule::NotCovered]);
    let right = changed(|t| t.shards[0].sstables.retain(|s| s.generation != 1));
    alarms(check::after(&table(), &right), &[]);
}
