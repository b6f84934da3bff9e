//! The planner's tasks against Lance's own planning, copied from `dataset/optimize.rs` of 14.0.2.
#![allow(clippy::unwrap_used)]

use planner::facts::{FragmentFacts, TableFacts};
use planner::job::JobSpec;
use planner::plan::{Outcome, Trigger, plan_table};
use planner::policy::{CompactionPolicy, Policy};
use planner::simulate;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// `CandidateBin`, with positions for fragments.
struct Bin {
    fragments: Vec<usize>,
    itself: Vec<bool>,
    row_counts: Vec<usize>,
    indices: u32,
}

/// `DefaultCompactionPlanner::plan`, without what this planner does not read (overlays, lineage).
fn plan_compaction(fragments: &[FragmentFacts], target_rows: usize, threshold: f32) -> Vec<Vec<usize>> {
    let (mut bins, mut current): (Vec<Bin>, Option<Bin>) = (Vec::new(), None);
    for (i, f) in fragments.iter().enumerate() {
        if f.excluded {
            bins.extend(current.take());
            continue;
        }
        let (physical_rows, num_deletions) = (f.rows as usize, f.deleted.unwrap_or(0) as usize);
        let percentage = if physical_rows > 0 { num_deletions as f32 / physical_rows as f32 } else { 0.0 };
        // `CompactionOptions::validate` turns materialization off at 100 %.
        let itself = threshold < 1.0 && percentage > threshold;
        if !itself && physical_rows >= target_rows {
            bins.extend(current.take());
            continue;
        }
        if current.as_ref().is_some_and(|bin| bin.indices != f.coverage) {
            bins.extend(current.take());
        }
        let bin =
            current.get_or_insert(Bin { fragments: vec![], itself: vec![], row_counts: vec![], indices: f.coverage });
        bin.fragments.push(i);
        bin.itself.push(itself);
        bin.row_counts.push(physical_rows - num_deletions);
    }
    bins.extend(current);
    let is_noop = |bin: &Bin| bin.fragments.len() == 1 && !bin.itself[0];
    bins.into_iter().filter(|bin| !is_noop(bin)).flat_map(|bin| split_for_size(bin, target_rows)).collect()
}

fn split_for_size(bin: Bin, min_num_rows: usize) -> Vec<Vec<usize>> {
    let mut remaining_rows = bin.row_counts.iter().sum::<usize>();
    let (mut current_rows, mut current_len, mut split_lengths) = (0, 0, Vec::new());
    for row_count in &bin.row_counts {
        current_rows += *row_count;
        current_len += 1;
        remaining_rows -= *row_count;
        if current_rows >= min_num_rows && remaining_rows > 0 && remaining_rows >= min_num_rows {
            split_lengths.push(current_len);
            current_rows = 0;
            current_len = 0;
        }
    }
    let mut fragments = bin.fragments.into_iter();
    let mut tasks: Vec<Vec<usize>> = split_lengths.iter().map(|len| fragments.by_ref().take(*len).collect()).collect();
    tasks.push(fragments.collect());
    tasks
}

fn fragments() -> impl Strategy<Value = Vec<FragmentFacts>> {
    let fragment = (0u64..80, 0u64..40, 0u32..8, 0u8..20);
    vec(fragment, 0..60).prop_map(|all| {
        let each = all.into_iter().enumerate();
        each.map(|(at, (rows, deleted, coverage, excluded))| FragmentFacts {
            id: 7 * at as u64,
            rows,
            deleted: Some(if deleted < 20 { 0 } else { (deleted - 20).min(rows) }),
            bytes: None,
            coverage: coverage / 7,
            excluded: excluded == 0,
        })
        .collect()
    })
}

fn table(fragments: Vec<FragmentFacts>) -> TableFacts {
    TableFacts { table: "t".into(), version: 3, fragments: Some(fragments), ..TableFacts::default() }
}

fn compaction(facts: &TableFacts, compaction: CompactionPolicy) -> Outcome {
    let policy = Policy { compaction, ..Policy::default() };
    plan_table(facts, &policy, 0, Trigger::Tick).verdicts.swap_remove(2).outcome
}

/// The tasks, as positions, and what should come out.
fn tasks(facts: &TableFacts, outcome: &Outcome) -> (Vec<Vec<usize>>, u64) {
    let Outcome::Due { jobs, .. } = outcome else { return (vec![], 0) };
    let JobSpec::Compact { tasks, predicted, .. } = &jobs[0] else { panic!("{jobs:?}") };
    let all = facts.fragments.as_ref().unwrap();
    let position = |id: &u64| all.iter().position(|f| f.id == *id).unwrap();
    (tasks.iter().map(|task| task.iter().map(position).collect()).collect(), predicted.fragments)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn tasks_are_those_of_lance_less_the_vetoed_ones(
        fragments in fragments(), target_rows in 1u64..120, deleted_permille in 0u64..1001, small_min in 1u64..9,
    ) {
        let facts = table(fragments);
        let all = facts.fragments.as_ref().unwrap();
        let policy = CompactionPolicy { target_rows, deleted_permille, small_min, ..CompactionPolicy::default() };
        let threshold = deleted_permille as f32 / 1000.0;
        let over = |at: &usize| {
            let f = &all[*at];
            threshold < 1.0 && f.rows > 0 && f.deleted.unwrap() as f32 / f.rows as f32 > threshold
        };
        let small = |at: &usize| all[*at].rows * 10 < target_rows * 7;
        let outputs = |task: &Vec<usize>| {
            let rows: u64 = task.iter().map(|at| all[*at].rows - all[*at].deleted.unwrap()).sum();
            if rows == 0 { 0 } else { (rows / target_rows).max(1) }
        };
        let of_lance = plan_compaction(all, target_rows as usize, threshold);
        let fewer = |task: &&Vec<usize>| outputs(task) < task.len() as u64 && task.iter().any(small);
        let removed = of_lance.iter().filter(|t| outputs(t) < t.len() as u64).flatten().filter(|at| small(at)).count();
        let merges = removed as u64 >= small_min;
        let expected: Vec<Vec<usize>> =
            of_lance.iter().filter(|t| t.iter().any(over) || merges && fewer(t)).cloned().collect();
        let (planned, predicted) = tasks(&facts, &compaction(&facts, policy));
        prop_assert_eq!(predicted, expected.iter().map(outputs).sum::<u64>());
        prop_assert_eq!(planned, expected);
    }

    #[test]
    fn whatever_the_sizes_a_table_converges(
        fragments in fragments(), sizes in vec(option::of(1u64..5000), 60), target_bytes in 1u64..50_000,
        fragments_max in 2u64..40, small_min in 1u64..9,
    ) {
        let mut facts = table(fragments);
        for (fragment, bytes) in facts.fragments.iter_mut().flatten().zip(sizes) {
            fragment.bytes = bytes;
        }
        let policy = CompactionPolicy { target_bytes, fragments_max, small_min, ..CompactionPolicy::default() };
        let rows = |facts: &TableFacts| facts.live_rows().unwrap();
        let before = rows(&facts);
        // A job may take as few as two fragments, and each leaves fewer fragments or fewer deleted rows: a
        // first one can leave more than it found only by cutting what is far too large.
        for _ in 0..1000 {
            let Outcome::Due { jobs, .. } = compaction(&facts, policy.clone()) else { break };
            let many = facts.fragments.as_ref().unwrap().len() as u64;
            let JobSpec::Compact { tasks, predicted, .. } = &jobs[0] else { panic!() };
            let taken = tasks.iter().flatten().count() as u64;
            simulate::apply(&mut facts, &jobs[0], 0);
            prop_assert_eq!(facts.fragments.as_ref().unwrap().len() as u64, many - taken + predicted.fragments);
            prop_assert_eq!(rows(&facts), before);
        }
        let end = compaction(&facts, policy);
        prop_assert!(matches!(end, Outcome::NotDue { .. }), "{end:?}");
    }
}

fn of(rows: impl IntoIterator<Item = (u64, u64)>) -> TableFacts {
    let each = rows.into_iter().enumerate();
    let fragment = |(at, (rows, deleted)): (usize, _)| FragmentFacts {
        id: at as u64,
        rows,
        deleted: Some(deleted),
        ..FragmentFacts::default()
    };
    table(each.map(fragment).collect())
}

#[test]
fn pln_12_exactly_the_share_of_deleted_rows_is_not_more() {
    let facts = of([(1000, 99), (1000, 100), (1000, 101), (0, 0)]);
    let policy = CompactionPolicy { target_rows: 100, ..CompactionPolicy::default() };
    let (planned, _) = tasks(&facts, &compaction(&facts, policy));
    // Fragment 3 is a small neighbour of the one that is rewritten anyway.
    assert_eq!(planned, [[2, 3]]);
    assert_eq!(planned, plan_compaction(facts.fragments.as_ref().unwrap(), 100, 0.1));
    let alone = of([(1000, 100), (0, 0)]);
    assert!(matches!(
        compaction(&alone, CompactionPolicy { target_rows: 100, ..CompactionPolicy::default() }),
        Outcome::NotDue { .. }
    ));
}

#[test]
fn cmp_14_remainders_converge_to_five_fragments_or_fewer() {
    let mut facts = of([(200, 0); 10]);
    let policy = CompactionPolicy { target_rows: 500, ..CompactionPolicy::default() };
    let mut passes = 0;
    while let Outcome::Due { jobs, .. } = compaction(&facts, policy.clone()) {
        simulate::apply(&mut facts, &jobs[0], 0);
        passes += 1;
    }
    assert!(passes <= 5, "{passes}");
    assert_eq!(facts.live_rows(), Some(2000));
    assert!(facts.fragments.unwrap().len() <= 5);
}

#[test]
fn pmn_06_outputs_a_little_below_the_target_are_not_small_for_ever() {
    // Every rewrite comes out as fragments of 97 rows where 100 were asked for.
    let mut facts = of([(60, 0); 10]);
    let policy = CompactionPolicy { target_rows: 100, ..CompactionPolicy::default() };
    let mut rounds = 0;
    while let Outcome::Due { .. } = compaction(&facts, policy.clone()) {
        let rows = facts.live_rows().unwrap();
        let full = (0..rows / 97).map(|_| (97, 0));
        facts = of(full.chain((rows % 97 > 0).then_some((rows % 97, 0))));
        rounds += 1;
        assert!(rounds <= 3);
    }
    // Now and then a rest stays; what is all nearly full is vetoed by name.
    let vetoed = of([(97, 0); 6]);
    let Outcome::NotDue { reasons, .. } = compaction(&vetoed, policy) else { panic!("a rewrite that gains nothing") };
    assert!(reasons.iter().any(|r| format!("{:?}", r.measure) == "VetoedFragments" && r.observed == Some(6)));
}
