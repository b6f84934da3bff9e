//! The rules between the table's decisions: every combination of five verdicts, open jobs, and
//! whether the compaction can defer its remap.
#![allow(clippy::unwrap_used)]

use planner::facts::FailedFacts;
use planner::facts::{CleanupFacts, FragmentFacts, IndexFacts, RemapFacts, RunningFacts, ShardFacts, TableFacts};
use planner::job::JobSpec;
use planner::plan::{Decision, Hold, Outcome, Plan, Trigger, plan_table};
use planner::policy::{CleanupPolicy, CompactionPolicy, Policy};

const JOBS: [&str; 6] = ["memwal_catchup_btree", "reindex_fts", "compact", "compact, deferred", "cleanup", "remap"];

fn policy() -> Policy {
    Policy {
        cleanup: CleanupPolicy { min_age_ms: 1, ..CleanupPolicy::default() },
        compaction: CompactionPolicy { defer_remap: 1, ..CompactionPolicy::default() },
        ..Policy::default()
    }
}

/// A table for which exactly these of the five are due. `lagging` is behind, `stale` is not indexed.
fn table(due: [bool; 5], can_defer: bool) -> TableFacts {
    let index = |name: &str, kind: &str, withdrawn| IndexFacts {
        name: name.into(),
        kind: kind.into(),
        unindexed_rows: Some(0),
        withdrawn,
        ..IndexFacts::default()
    };
    // One that waits is in the way of a compaction that remaps in its own commit.
    let rewrites = match (due[4], can_defer) {
        (true, _) => 8,
        (false, true) => 7,
        (false, false) => 0,
    };
    let fragment = |id| FragmentFacts { id, rows: 1, deleted: Some(0), coverage: 1, ..FragmentFacts::default() };
    TableFacts {
        table: "t".into(),
        version: if due[3] { 20 } else { 19 },
        primary_key: vec!["id".into()],
        indexes: vec![index("lagging", "btree", false), index("stale", "fts", due[1])],
        shards: vec![ShardFacts {
            shard: "3f".into(),
            compacted_generation: 1,
            caught_up: [("lagging".into(), u64::from(!due[0])), ("stale".into(), 1)].into(),
            ..ShardFacts::default()
        }],
        fragments: Some((0..if due[2] { 4 } else { 3 }).map(fragment).collect()),
        stable_row_ids: !can_defer,
        cleanup: Some(CleanupFacts::default()),
        remap: Some(RemapFacts { rewrites, ..RemapFacts::default() }),
        ..TableFacts::default()
    }
}

fn open(job: &str) -> RunningFacts {
    let (kind, deferred) = job.split_once(',').map_or((job, false), |(kind, _)| (kind, true));
    RunningFacts { kind: kind.into(), since_ms: 3, holder: "job-7".into(), deferred, indexes: vec![] }
}

#[derive(Debug, PartialEq)]
enum Short {
    Due,
    NotDue,
    Running,
    Compaction,
    Paused,
    Remap,
}

fn short(plan: &Plan) -> Vec<Short> {
    let verdict = |outcome: &Outcome| match outcome {
        Outcome::Due { .. } => Short::Due,
        Outcome::NotDue { .. } => Short::NotDue,
        Outcome::Held { hold: Hold::Running { .. }, .. } => Short::Running,
        Outcome::Held { hold: Hold::Compaction { .. }, .. } => Short::Compaction,
        Outcome::Held { hold: Hold::Paused, .. } => Short::Paused,
        Outcome::Held { hold: Hold::Remap { rewrites: 8 }, .. } => Short::Remap,
        other => panic!("{other:?}"),
    };
    plan.verdicts[..5].iter().map(|v| verdict(&v.outcome)).collect()
}

/// The rules in words, once more: R3.4 and section 7.
fn expected(due: [bool; 5], open: &[bool; 6], can_defer: bool, paused: bool) -> Vec<Short> {
    let compaction_open = open[2] || open[3];
    let inline_runs = open[2];
    let loses_entries = !can_defer && due[4];
    let inline_due = due[2] && !can_defer && !loses_entries && !compaction_open && !paused;
    let own = [false, open[1], compaction_open, open[4], open[5]];
    (0..5)
        .map(|nth| match nth {
            _ if !due[nth] => Short::NotDue,
            0 => Short::Due,
            _ if paused => Short::Paused,
            _ if own[nth] => Short::Running,
            1 if inline_runs || inline_due => Short::Compaction,
            2 if loses_entries => Short::Remap,
            _ => Short::Due,
        })
        .collect()
}

#[test]
fn every_combination_of_verdicts_open_jobs_and_deferral() {
    let bit = |bits: u32, nth: u32| bits >> nth & 1 == 1;
    for bits in 0..1u32 << 13 {
        let due: [bool; 5] = std::array::from_fn(|nth| bit(bits, nth as u32));
        let jobs: [bool; 6] = std::array::from_fn(|nth| bit(bits, 5 + nth as u32));
        let (can_defer, paused) = (bit(bits, 11), bit(bits, 12));
        let mut facts = TableFacts { paused, ..table(due, can_defer) };
        facts.running = JOBS.iter().zip(jobs).filter(|(_, is)| *is).map(|(job, _)| open(job)).collect();
        let plan = plan_table(&facts, &policy(), 9, Trigger::Tick);
        let what = format!("due {due:?}, open {:?}, can defer {can_defer}, paused {paused}", facts.running);
        assert_eq!(short(&plan), expected(due, &jobs, can_defer, paused), "{what}");
        planner::check::plan(&plan, &facts, &policy()).unwrap_or_else(|found| panic!("{what}: {found:?}"));
    }
}

#[test]
fn pln_07_what_is_launched_in_which_order() {
    let launched = |due, can_defer| -> Vec<Decision> {
        let plan = plan_table(&table(due, can_defer), &policy(), 9, Trigger::Tick);
        let due = plan.verdicts.into_iter().filter(|v| matches!(v.outcome, Outcome::Due { .. }));
        due.map(|v| v.decision).collect()
    };
    use Decision::{Cleanup, Compaction, Index, Remap, WalCatchup};
    assert_eq!(launched([true, true, true, true, false], false), [WalCatchup, Compaction, Cleanup]);
    assert_eq!(launched([true; 5], false), [WalCatchup, Index, Cleanup, Remap]);
    assert_eq!(launched([true; 5], true), [WalCatchup, Index, Compaction, Cleanup, Remap]);
    assert_eq!(launched([false, true, false, false, false], false), [Index]);
}

#[test]
fn rmp_07_beside_index_work_even_an_uncovered_rewrite_is_deferred() {
    let deferred = |facts: &TableFacts| {
        let plan = plan_table(facts, &policy(), 9, Trigger::Tick);
        let compact = plan.jobs().find_map(|job| match job {
            JobSpec::Compact { deferred, .. } => Some(*deferred),
            _ => None,
        });
        compact.unwrap()
    };
    let uncovered = |index_due| {
        let mut facts = table([false, index_due, true, false, false], true);
        facts.fragments.iter_mut().flatten().for_each(|fragment| fragment.coverage = 0);
        facts
    };
    assert!(!deferred(&uncovered(false)), "RMP-06: deferral would bring nothing");
    assert!(deferred(&uncovered(true)));
    let building = TableFacts { running: vec![open("reindex_btree")], ..uncovered(false) };
    assert!(deferred(&building));
    let stable = TableFacts { stable_row_ids: true, ..uncovered(true) };
    assert!(!deferred(&stable));
}

#[test]
fn shards_do_not_change_what_is_decided_of_the_base() {
    let facts = table([false, true, true, true, true], true);
    let alone = TableFacts { shards: vec![], ..facts.clone() };
    let mut busy = facts;
    let pass = planner::facts::PassFacts { since_ms: 1, holder: "job-1".into() };
    busy.shards[0].pass = Some(pass);
    let verdicts = |facts| plan_table(facts, &policy(), 9, Trigger::Tick).verdicts.into_iter().take(5);
    assert!(verdicts(&busy).eq(verdicts(&alone)));
}

/// CMP-12, CMP-19: a compaction that always fails is tried 4 times in 10 minutes, then once a sweep.
#[test]
fn cmp_19_failures_are_spaced_out_and_cleanup_may_go_on() {
    let mut facts = table([false, false, true, true, false], true);
    let (mut tries, mut cleanups) = (Vec::new(), 0);
    for secs in (0..3600).step_by(5) {
        let now_ms = secs * 1000;
        let plan = plan_table(&facts, &policy(), now_ms, Trigger::Tick);
        for job in plan.jobs() {
            if job.kind() == "cleanup" {
                cleanups += 1;
                continue;
            }
            tries.push(secs);
            let times = tries.len() as u64;
            facts.failed = vec![FailedFacts { kind: job.kind(), times, last_at_ms: now_ms }];
        }
    }
    assert_eq!(tries, [0, 60, 180, 420, 900, 1500, 2100, 2700, 3300]);
    assert_eq!(cleanups, 720, "nothing held it: here it never runs");
}

#[test]
fn a_clone_that_reads_the_table_s_files_holds_cleanup_and_nothing_else() {
    let facts = TableFacts { clones: vec!["copy".into()], ..table([true; 5], true) };
    let held = |plan: &Plan| plan.verdicts.iter().filter(|v| matches!(v.outcome, Outcome::Held { .. })).count();
    let plan = plan_table(&facts, &policy(), 4, Trigger::Tick);
    let hold = |decision| plan.verdicts.iter().find(|v| v.decision == decision).map(|v| v.outcome.clone());
    assert!(matches!(
        hold(Decision::Cleanup),
        Some(Outcome::Held { hold: Hold::Clone { table }, .. }) if table == "copy"
    ));
    let without = plan_table(&table([true; 5], true), &policy(), 4, Trigger::Tick);
    assert_eq!(held(&plan), held(&without) + 1);
}
