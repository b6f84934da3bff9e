//! Picks of append-only tables: reports of the peer, and the edges of its rules.
#![allow(clippy::unwrap_used)]

use planner::pick::append::{self, AppendFile, FullRules};
use planner::pick::coordinator::{Coordinator, File, Partition, Vector};
use planner::pick::options::{AppendStrategy, Options};
use planner::pick::pre_commit::{Emitted, PreCommit, Waiting};
use planner::pick::rules::AppendRule::{self, A0, A1};

type Append = AppendFile<u64>;

/// Files of these sizes, the oldest first.
fn files(sizes: &[u64]) -> Vec<Append> {
    let file = |(n, size): (usize, &u64)| file(n as u64, *size);
    sizes.iter().enumerate().map(file).collect()
}

fn file(n: u64, size: u64) -> Append {
    AppendFile { min_seq: 10 * n, max_seq: 10 * n + 9, id: n, size, has_vector: false }
}

fn sizes(files: &[Append]) -> Vec<u64> {
    files.iter().map(|file| file.size).collect()
}

fn auto(of: &[u64], min: u32, target: u64, rule: AppendRule) -> (Vec<u64>, Vec<u64>, Vec<u64>) {
    let pick = append::auto(files(of), min, target, rule);
    (sizes(&pick.picked), sizes(&pick.forgotten), sizes(&pick.queue))
}

const NOTHING: &[u64] = &[];

#[test]
fn the_window_starts_at_five_files_and_slides_by_one() {
    let picked = |of: &[u64], rule| auto(of, 5, 100, rule).0;
    for rule in [A0, A1] {
        assert_eq!(picked(&[10; 5], rule), [10; 5]);
        assert_eq!(picked(&[10; 4], rule), NOTHING);
        assert_eq!(picked(&[210, 10, 10, 10, 10, 10], rule), [10; 5]);
        assert_eq!(picked(&[10, 10, 210, 10, 10, 10, 10], rule), NOTHING);
    }
    let big_first = [120, 10, 10, 10, 10, 10];
    assert_eq!(picked(&big_first, A1), [120, 10, 10, 10, 10]);
    assert_eq!(picked(&big_first, A0), [10; 5]);
    let two_big = [60, 60, 10, 10, 10, 10];
    assert_eq!(picked(&two_big, A1), [60, 60, 10, 10, 10]);
    assert_eq!(picked(&two_big, A0), [60, 10, 10, 10, 10]);
}

#[test]
fn the_window_slides_at_exactly_the_limit_and_the_number_is_looked_at_first() {
    let one = |of: &[u64], rule| auto(of, 3, 100, rule);
    let all = |of: &[u64]| (of.to_vec(), vec![], vec![]);
    assert_eq!(one(&[100, 99, 5], A1), all(&[100, 99, 5]));
    assert_eq!(one(&[100, 100, 5, 5], A1), (vec![100, 5, 5], vec![100], vec![]));
    assert_eq!(one(&[99, 0, 5], A0), all(&[99, 0, 5]));
    assert_eq!(one(&[100, 5, 5], A0), (vec![], vec![100], vec![5, 5]));
    // The file that completes the number is taken however large it is, and one above the limit goes alone.
    assert_eq!(one(&[99, 99, 1_000_000, 7], A1), (vec![99, 99, 1_000_000], vec![], vec![7]));
    assert_eq!(one(&[10, 500, 10, 10], A1), (vec![], vec![10, 500], vec![10, 10]));
    assert_eq!(auto(&[60, 60, 60, 60, 10], 5, 50, A1), (vec![], vec![60, 60, 60], vec![60, 10]));
}

#[test]
fn one_file_is_enough_where_the_number_is_one_and_no_window_holds_where_the_target_is_nothing() {
    assert_eq!(auto(&[7, 8], 1, 0, A1), (vec![7], vec![], vec![8]));
    assert_eq!(auto(&[0, 0, 0], 2, 0, A1), (vec![], vec![0, 0, 0], vec![]));
    assert_eq!(auto(&[0, 0, 0], 2, 0, A0), (vec![], vec![0, 0, 0], vec![]));
    assert_eq!(auto(&[], 1, 100, A1), (vec![], vec![], vec![]));
    assert_eq!(auto(&[0; 5], 5, 1, A1).0, [0; 5], "files of nothing never reach the limit");
}

#[test]
fn the_largest_sizes_do_not_wrap_a_window() {
    let huge = u64::MAX;
    assert_eq!(auto(&[huge, huge, 1, 1], 3, huge, A1), (vec![huge, 1, 1], vec![huge], vec![]));
    assert_eq!(auto(&[huge, huge - 1, 1], 3, huge, A1), (vec![huge, huge - 1, 1], vec![], vec![]));
    assert_eq!(auto(&[huge, 1, 1], u32::MAX, huge, A0), (vec![], vec![huge], vec![1, 1]));
}

#[test]
fn files_are_taken_in_the_order_of_their_sequences_and_then_of_their_names() {
    let mut shuffled = files(&[1, 2, 3, 4, 5, 6]);
    shuffled.reverse();
    assert_eq!(sizes(&append::auto(shuffled, 5, 100, A1).picked), [1, 2, 3, 4, 5]);
    // Some writers give all files the same numbers.
    let same = |id| AppendFile { min_seq: 0, max_seq: 0, id, size: 1, has_vector: false };
    let pick = append::auto(vec![same(3), same(1), same(2)], 2, 100, A1);
    assert_eq!(pick.picked.iter().map(|file| file.id).collect::<Vec<_>>(), [1, 2]);
    let seq = |min_seq, max_seq, id| AppendFile { min_seq, max_seq, id, size: 1, has_vector: false };
    let pick = append::auto(vec![seq(1, 9, 1), seq(1, 5, 2), seq(0, 99, 3)], 2, 100, A1);
    assert_eq!(pick.picked.iter().map(|file| file.id).collect::<Vec<_>>(), [3, 2]);
    let full = append::full(vec![same(3), same(1), same(2)], &FullRules { cutoff: 2, ..FullRules::default() });
    assert_eq!(full.iter().map(|file| file.id).collect::<Vec<_>>(), [1, 2, 3]);
}

fn full(of: &[u64], rules: FullRules) -> Vec<u64> {
    sizes(&append::full(files(of), &rules))
}

#[test]
fn a_full_compaction_leaves_large_files_at_the_head_alone_and_needs_three_mostly_small_ones() {
    let rules = FullRules { cutoff: 70, ..FullRules::default() };
    assert_eq!(full(&[70, 1, 1, 1], rules), [1, 1, 1], "exactly the cut-off is large");
    assert_eq!(full(&[69, 1, 1], rules), [69, 1, 1]);
    assert_eq!(full(&[1, 500, 1, 1], rules), [1, 500, 1, 1], "in the middle it goes along");
    assert_eq!(full(&[500, 500, 1, 1], rules), NOTHING, "two are left");
    assert_eq!(full(&[1, 500, 1, 500], rules), NOTHING, "no more small than large");
    assert_eq!(full(&[1, 500, 500, 1, 1], rules), [1, 500, 500, 1, 1]);
    assert_eq!(full(&[500, 500, 500], rules), NOTHING);
    assert_eq!(full(&[], rules), NOTHING);
    assert_eq!(full(&[1, 1], rules), NOTHING);
}

#[test]
fn deletion_vectors_lift_the_numbers_and_keep_their_file_at_the_head() {
    let rules = FullRules { cutoff: 70, vectors: true, ..FullRules::default() };
    assert_eq!(full(&[500, 1], rules), [1]);
    assert_eq!(full(&[1, 500], rules), [1, 500]);
    assert_eq!(full(&[500, 500], rules), NOTHING);
    let mut marked = files(&[500, 500, 500]);
    marked[1].has_vector = true;
    assert_eq!(append::full(marked.clone(), &rules).len(), 2);
    // Nobody maintains them, so there are none.
    assert_eq!(append::full(marked, &FullRules { vectors: false, ..rules }).len(), 0);
}

#[test]
fn forcing_rewrites_every_file_whatever_it_is() {
    let rules = FullRules { cutoff: 70, force_rewrite_all: true, ..FullRules::default() };
    assert_eq!(full(&[500, 1], rules), [500, 1]);
    assert_eq!(full(&[500], rules), [500]);
    assert_eq!(full(&[], rules), NOTHING);
}

#[test]
fn a_full_compaction_takes_a_queue_of_three_or_any_with_vectors_or_by_force() {
    let due = |files, vectors, force_rewrite_all| {
        append::is_full_due(files, &FullRules { cutoff: 70, vectors, force_rewrite_all })
    };
    assert_eq!([0, 1, 2, 3].map(|files| due(files, false, false)), [false, false, false, true]);
    assert_eq!([0, 1, 2, 3].map(|files| due(files, true, false)), [false, true, true, true]);
    assert_eq!([0, 1].map(|files| due(files, false, true)), [true, true]);
    assert!(append::goes_back(69, 70) && !append::goes_back(70, 70) && !append::goes_back(0, 0));
}

/// What compaction does to a table until it has nothing to do: the rounds with work, and bytes written.
/// A rewrite writes files of 97 where the target is 100.
fn rounds(mut table: Vec<u64>, forgets: bool) -> (usize, u64) {
    let rules = FullRules { cutoff: 70, ..FullRules::default() };
    let (mut queue, mut written, mut working) = (files(&table), 0, 0);
    for _ in 0..20 {
        let rewrite = |of: &[Append]| {
            let total: u64 = of.iter().map(|file| file.size).sum();
            let mut out = vec![97; (total / 97) as usize];
            out.extend(Some(total % 97).filter(|rest| *rest > 0));
            out
        };
        let pick = append::auto(queue.clone(), 5, 100, A1);
        let taken = if pick.picked.is_empty() && append::is_full_due(pick.queue.len(), &rules) {
            queue = Vec::new();
            append::full(pick.queue, &rules)
        } else {
            queue = pick.queue;
            pick.picked
        };
        if taken.is_empty() && (forgets || queue.is_empty()) {
            return (working, written);
        }
        working += usize::from(!taken.is_empty());
        let out = rewrite(&taken);
        written += out.iter().sum::<u64>();
        let at = taken.first().map_or(0, |first| first.id);
        if let Some(last) = out.last().filter(|last| append::goes_back(**last, 70)) {
            queue.push(file(at, *last));
        }
        if forgets {
            // Nobody remembers a queue: the whole table is looked at again.
            let gone: Vec<u64> = taken.iter().map(|file| file.id).collect();
            let kept: Vec<u64> = (0..).zip(&table).filter(|(n, _)| !gone.contains(n)).map(|(_, size)| *size).collect();
            table = [kept, out].concat();
            queue = files(&table);
        }
    }
    panic!("work without end");
}

#[test]
fn an_output_slightly_below_the_target_is_not_small_for_ever() {
    for forgets in [false, true] {
        let (working, written) = rounds(vec![60; 10], forgets);
        assert!((1..=3).contains(&working), "{working} rounds");
        assert!(written <= 2 * 600, "{written} bytes");
    }
    let above = FullRules { cutoff: 70, ..FullRules::default() };
    assert_eq!(full(&[97; 20], above), NOTHING, "what is above the small-file ratio is not rewritten");
}

#[test]
fn a_caller_without_a_queue_gets_no_pick_of_what_it_has_just_written() {
    let picks = |of: &[u64], min| {
        let picks = append::auto_of_table(files(of), min, 100, 70, A1);
        picks.iter().map(|pick| sizes(pick)).collect::<Vec<_>>()
    };
    let none = Vec::<Vec<u64>>::new();
    // The plain window takes both, and would take what comes out of them again.
    assert_eq!(auto(&[97, 97, 97], 3, 100, A1).0, [97; 3]);
    assert_eq!(auto(&[97, 97, 5], 3, 100, A1).0, [97, 97, 5]);
    assert_eq!(picks(&[97, 97, 97], 3), none);
    assert_eq!(picks(&[97, 97, 5], 3), none);
    assert_eq!(picks(&[5], 1), none, "one file is no pick");
    assert_eq!(picks(&[5, 5], 1), [[5, 5]]);
    assert_eq!(picks(&[69, 70, 69], 2), none, "exactly the cut-off ends a window");
    assert_eq!(picks(&[1, 2, 3, 4, 5, 97, 6, 7], 2), [[1, 2], [3, 4], [6, 7]]);
    assert_eq!(picks(&[10, 10, 10, 97, 10, 10], 5), none, "a window does not reach over it");
    assert_eq!(picks(&[], 5), none);
    let mut shuffled = files(&[1, 2, 97, 3, 4]);
    shuffled.reverse();
    let taken = append::auto_of_table(shuffled, 2, 100, 70, A1);
    assert_eq!(taken.iter().map(|pick| sizes(pick)).collect::<Vec<_>>(), [[1, 2], [3, 4]]);
}

#[test]
fn a_task_of_a_lone_small_file_is_no_progress() {
    use planner::pick::coordinator::makes_progress;
    assert!(!makes_progress(&[seen(0, 1)]) && makes_progress(&[seen(0, 1), seen(1, 1)]));
    assert!(makes_progress(&[with_vector(0, 1, 0, None)]) && !makes_progress::<u64>(&[]));
}

fn coordinator() -> Coordinator {
    Coordinator { min_file_num: 3, target: 100, cutoff: 70, open_file_cost: 0, delete_ratio: None }
}

fn seen(id: u64, size: u64) -> File<u64> {
    File { size, id, rows: 100, vector: None }
}

fn with_vector(id: u64, size: u64, index: u64, deleted: Option<u64>) -> File<u64> {
    File { vector: Some(Vector { index, deleted }), ..seen(id, size) }
}

fn held(rules: &Coordinator, files: impl IntoIterator<Item = File<u64>>) -> Partition<u64> {
    rules.notify(Partition::default(), files)
}

fn ids(tasks: &[Vec<File<u64>>]) -> Vec<Vec<u64>> {
    tasks.iter().map(|task| task.iter().map(|file| file.id).collect()).collect()
}

#[test]
fn a_partition_is_packed_smallest_first_until_twice_the_target() {
    let rules = coordinator();
    let (tasks, left) = rules.plan(held(&rules, (0..5).map(|id| seen(id, 50))));
    assert_eq!(ids(&tasks), [[0, 1, 2, 3]], "exactly twice the target closes it");
    assert_eq!(left.unwrap().held.len(), 1);
    let (tasks, left) = rules.plan(held(&rules, [seen(0, 60), seen(1, 60), seen(2, 60), seen(3, 19), seen(4, 60)]));
    assert_eq!((ids(&tasks), left), (vec![vec![3, 0, 1, 2, 4]], None), "199 is not twice 100");
    let costly = Coordinator { open_file_cost: 50, ..rules };
    let (tasks, _) = costly.plan(held(&costly, (0..4).map(|id| seen(id, 50))));
    assert_eq!(ids(&tasks), [[0, 1], [2, 3]]);
    let single = Coordinator { min_file_num: 1, open_file_cost: 500, ..rules };
    assert_eq!(ids(&single.plan(held(&single, (0..3).map(|id| seen(id, 1)))).0), [vec![0, 1], vec![2]]);
    let huge = Coordinator { target: u64::MAX, cutoff: u64::MAX, open_file_cost: u64::MAX, ..rules };
    let (tasks, left) = huge.plan(held(&huge, (0..3).map(|id| seen(id, u64::MAX - 1))));
    assert_eq!((ids(&tasks), left.unwrap().held.len()), (vec![vec![0, 1]], 1));
}

#[test]
fn what_is_large_enough_or_seen_before_is_not_held_again() {
    let rules = coordinator();
    let partition = held(&rules, [seen(0, 69), seen(1, 70), seen(0, 69), with_vector(2, 500, 0, None)]);
    assert_eq!(partition.held.iter().map(|file| file.id).collect::<Vec<_>>(), [0]);
    let nothing = Coordinator { target: 0, cutoff: 0, ..rules };
    assert!(held(&nothing, [seen(0, 0), seen(1, 1)]).held.is_empty());
}

#[test]
fn few_files_wait_five_plans_and_are_taken_at_the_sixth_a_lone_one_is_forgotten_after_ten() {
    let rules = coordinator();
    let ages = |files: u64| {
        let (mut partition, mut tasks) = (Some(held(&rules, (0..files).map(|id| seen(id, 1)))), Vec::new());
        let mut plans = 0;
        while let Some(now) = partition {
            assert_eq!(now.age, plans);
            plans += 1;
            (tasks, partition) = rules.plan(now);
            assert!(tasks.is_empty() || partition.is_none());
        }
        (plans, tasks.first().map_or(0, Vec::len))
    };
    assert_eq!(ages(2), (6, 2));
    assert_eq!(ages(1), (11, 0));
    assert_eq!(ages(0), (1, 0));
    let old = Partition { age: 7, ..Partition::default() };
    let young = rules.notify(old, [seen(0, 500)]);
    assert_eq!((young.age, young.held.len()), (0, 0), "any news makes it young");
    let packed = Partition { age: 3, ..held(&rules, (0..5).map(|id| seen(id, 50))) };
    assert_eq!(rules.plan(packed).1.unwrap().age, 3, "a plan with a task does not age it");
}

#[test]
fn deleted_rows_make_a_large_file_a_candidate_above_exactly_the_ratio() {
    let rules = Coordinator { delete_ratio: Some(0.2), ..coordinator() };
    let is = |deleted| rules.is_candidate(&with_vector(0, 500, 0, deleted));
    assert!(!is(Some(20)) && is(Some(21)) && is(None));
    assert!(!rules.is_candidate(&seen(0, 500)) && rules.is_candidate(&with_vector(0, 1, 0, Some(0))));
    assert!(!Coordinator { delete_ratio: None, ..rules }.is_candidate(&with_vector(0, 500, 0, None)));
}

#[test]
fn files_whose_vectors_share_an_index_file_stay_together_however_few_they_are() {
    let rules = Coordinator { delete_ratio: Some(0.2), ..coordinator() };
    let (tasks, left) = rules.plan(held(
        &rules,
        [
            with_vector(0, 60, 7, None),
            with_vector(1, 60, 7, None),
            with_vector(2, 60, 7, None),
            with_vector(3, 5, 8, None),
            with_vector(4, 100, 8, None),
            with_vector(5, 90, 9, None),
            seen(6, 1),
        ],
    ));
    // Groups of 90, 105 and 180: the first is no task alone, the second is none with it, the third is left.
    assert_eq!(ids(&tasks), [vec![5, 3, 4, 0, 1, 2]]);
    assert_eq!(left.unwrap().held.into_iter().map(|file| file.id).collect::<Vec<_>>(), [6]);
    let two = [with_vector(0, 90, 7, None), with_vector(1, 120, 8, None), with_vector(2, 130, 9, None)];
    assert_eq!(ids(&rules.plan(held(&rules, two)).0), [vec![0, 1], vec![2]]);
    // One file of enough bytes is not enough, so the next group joins it.
    let large = [with_vector(0, 300, 7, None), with_vector(1, 301, 8, None)];
    assert_eq!(ids(&rules.plan(held(&rules, large)).0), [vec![0, 1]]);
    let single = Coordinator { min_file_num: 1, ..rules };
    let (tasks, left) = single.plan(held(&single, [with_vector(0, 1, 7, None), seen(1, 1)]));
    assert_eq!((ids(&tasks), left.map(|left| left.held.len())), (vec![vec![0]], Some(1)), "a lone one without waits");
    let (tasks, left) = rules.plan(held(&rules, [with_vector(0, 1, 7, None), seen(1, 1), seen(2, 1), seen(3, 1)]));
    assert_eq!((ids(&tasks), left), (vec![vec![0], vec![1, 2, 3]], None));
}

#[test]
fn a_plan_without_a_memory_packs_what_it_sees() {
    let rules = coordinator();
    assert_eq!(ids(&rules.once([seen(2, 500), seen(1, 1), seen(0, 1), seen(3, 1)])), [[0, 1, 3]]);
    assert!(rules.once([seen(0, 1), seen(1, 1)]).is_empty());
}

#[test]
fn files_on_their_way_to_a_commit_wait_for_the_target_or_for_the_checkpoint() {
    let rules = PreCommit { target: 100, cutoff: 70 };
    let arrive = |of: &[u64]| rules.arrive(Waiting::default(), of.iter().map(|size| (*size, *size)));
    let (emitted, waiting) = arrive(&[70, 40, 69, 80, 5]);
    assert_eq!(emitted, [Emitted::Compact(vec![40, 69]), Emitted::Commit(vec![70, 80])]);
    assert_eq!(waiting.barrier(), Some(Emitted::Commit(vec![5])));
    let (emitted, waiting) = arrive(&[50, 49]);
    assert_eq!(emitted, []);
    assert_eq!(waiting.clone().barrier(), Some(Emitted::Compact(vec![50, 49])));
    let (emitted, rest) = rules.arrive(waiting, [(1, 1)]);
    assert_eq!(emitted, [Emitted::Compact(vec![50, 49, 1])], "exactly the target");
    assert_eq!(rest.barrier(), None);
    let none = PreCommit { target: 0, cutoff: 0 };
    assert_eq!(none.arrive(Waiting::default(), [(0, 0)]).0, [Emitted::Commit(vec![0])]);
    let small = PreCommit { target: 1, cutoff: 70 };
    assert_eq!(small.arrive(Waiting::default(), [(9, 9)]).0, [Emitted::Commit(vec![9])], "one is no compaction");
    let huge = PreCommit { target: u64::MAX, cutoff: u64::MAX };
    let (emitted, waiting) = huge.arrive(Waiting::default(), [(1, u64::MAX - 1), (2, u64::MAX - 1)]);
    assert_eq!((emitted, waiting), (vec![Emitted::Compact(vec![1, 2])], Waiting::default()));
}

#[test]
fn options_choose_buckets_a_coordinator_or_nothing() {
    let of = |pairs: &[(&str, &str)], large_objects| {
        Options::from_pairs(pairs.iter().copied()).unwrap().append_strategy(large_objects)
    };
    let target = 268_435_456;
    let full = |cutoff, vectors, force_rewrite_all| FullRules { cutoff, vectors, force_rewrite_all };
    let bucketed = |rule, full| AppendStrategy::Bucketed { min_file_num: 5, target, rule, full };
    assert_eq!(of(&[("bucket", "4")], false), bucketed(A1, full(187_904_815, false, false)));
    let old = [("bucket", "1"), ("profile", "java-1.3"), ("deletion-vectors.enabled", "true")];
    assert_eq!(of(&old, false), bucketed(A0, full(target, true, false)));
    let forced = [("bucket", "1"), ("profile", "java-2.0"), ("compaction.force-rewrite-all-files", "true")];
    assert_eq!(of(&forced, false), bucketed(A1, full(187_904_819, false, true)));
    let unaware =
        Coordinator { min_file_num: 5, target, cutoff: 187_904_815, open_file_cost: 4_194_304, delete_ratio: None };
    assert_eq!(of(&[], false), AppendStrategy::Unaware(unaware));
    let marked = of(&[("deletion-vectors.enabled", "true")], false);
    assert_eq!(marked, AppendStrategy::Unaware(Coordinator { delete_ratio: Some(0.2), ..unaware }));
    for pairs in [("write-only", "true"), ("data-evolution.enabled", "true")] {
        assert_eq!(of(&[pairs], false), AppendStrategy::Off);
        assert_eq!(of(&[pairs, ("bucket", "4")], false), AppendStrategy::Off);
    }
    assert_eq!(of(&[], true), AppendStrategy::Off);
    let pre_commit = Options::default().pre_commit();
    assert_eq!(pre_commit, PreCommit { target, cutoff: 187_904_815 });
}
