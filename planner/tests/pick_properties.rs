//! What holds for the picks of all runs and files.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use planner::pick::append::{self, AppendFile, FullRules};
use planner::pick::coordinator::{Coordinator, File, Partition, Vector};
use planner::pick::early::{EarlyFull, OffPeak};
use planner::pick::full::{self, Full};
use planner::pick::levels::{LevelFile, Levels};
use planner::pick::lookup::ForceUp;
use planner::pick::pre_commit::{Emitted, PreCommit, Waiting};
use planner::pick::rules::{AppendRule, UniversalRule};
use planner::pick::runs::{Now, Pick, Run, Runs, State, Why};
use planner::pick::sections::{Merge, MergeFile, Step, sections};
use planner::pick::universal::Universal;
use proptest::prelude::*;

/// Small numbers, so that equals and edges are met often, and now and then the largest ones.
fn size() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 0u64..12, 3 => 0u64..1000, 1 => prop::sample::select(vec![u64::MAX, u64::MAX - 1, 1 << 63])]
}

fn runs() -> impl Strategy<Value = Runs> {
    let higher = prop::collection::btree_map(1u32..7, size(), 0..5);
    (prop::collection::vec(size(), 0..9), higher, 2u32..9).prop_map(|(level_0, higher, num_levels)| {
        let level_0 = level_0.into_iter().map(|size| Run { level: 0, size });
        let runs = level_0.chain(higher.into_iter().map(|(level, size)| Run { level, size }));
        Runs::new(runs.collect(), num_levels).unwrap()
    })
}

fn early() -> impl Strategy<Value = Option<EarlyFull>> {
    let threshold = || prop::option::of(0u64..60);
    let early = (threshold(), threshold(), threshold(), any::<bool>()).prop_map(
        |(interval_ms, total_size, incremental_size, of_nothing)| EarlyFull {
            interval_ms,
            total_size,
            incremental_size,
            of_nothing,
        },
    );
    prop::option::of(early)
}

fn universal() -> impl Strategy<Value = Universal> {
    let rule = prop::sample::select(vec![UniversalRule::R0, UniversalRule::R1, UniversalRule::R2]);
    let hour = || prop::option::of(0u8..24);
    let off_peak = (hour(), hour(), 0u32..200).prop_map(|(start, end, ratio)| OffPeak::new(start, end, ratio));
    (rule, 1u32..8, 0u32..400, 0u32..150, off_peak, early()).prop_map(
        |(rule, trigger, max_size_amp, size_ratio, off_peak, early)| Universal {
            rule,
            trigger: NonZeroU32::new(trigger).unwrap(),
            max_size_amp,
            size_ratio,
            off_peak,
            early,
        },
    )
}

fn strategy() -> impl Strategy<Value = ForceUp> {
    (universal(), prop::option::of(0u32..5)).prop_map(|(universal, max_interval)| ForceUp { universal, max_interval })
}

fn state() -> impl Strategy<Value = State> {
    (prop::option::of(0u64..50), 0u32..6).prop_map(|(last_full_ms, skips)| State { last_full_ms, skips })
}

/// The runs after a pick was carried out.
fn apply(runs: &Runs, pick: Pick) -> Runs {
    let (taken, left) = runs.all().split_at(pick.runs);
    let size = taken.iter().fold(0, |sum: u64, run| sum.saturating_add(run.size));
    Runs::new([&[Run { level: pick.output_level, size }], left].concat(), runs.top() + 1).unwrap()
}

fn files() -> impl Strategy<Value = Vec<AppendFile<u64>>> {
    prop::collection::vec((0u64..6, 0u64..4, size(), any::<bool>()), 0..20).prop_map(|files| {
        let file = |(id, (min_seq, more, size, has_vector)): (usize, (u64, u64, u64, bool))| AppendFile {
            min_seq,
            max_seq: min_seq + more,
            id: id as u64,
            size,
            has_vector,
        };
        files.into_iter().enumerate().map(file).collect()
    })
}

fn partition() -> impl Strategy<Value = Vec<File<u64>>> {
    let vector = (0u64..4, prop::option::of(0u64..100)).prop_map(|(index, deleted)| Vector { index, deleted });
    let vector = prop::option::of(vector);
    prop::collection::vec((size(), vector), 0..20).prop_map(|files| {
        let file =
            |(id, (size, vector)): (usize, (u64, Option<Vector<u64>>))| File { size, id: id as u64, rows: 100, vector };
        files.into_iter().enumerate().map(file).collect()
    })
}

fn coordinator() -> impl Strategy<Value = Coordinator> {
    let ratio = prop::option::of(prop::sample::select(vec![0.0, 0.2, 1.0]));
    (1u32..6, 0u64..40, 0u64..30, 0u64..5, ratio).prop_map(
        |(min_file_num, target, cutoff, open_file_cost, delete_ratio)| Coordinator {
            min_file_num,
            target,
            cutoff,
            open_file_cost,
            delete_ratio,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: std::env::var("CASES").map_or(256, |n| n.parse().unwrap()), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_pick_is_a_prefix_to_a_level_that_fits_below_what_is_left(
        runs in runs(), strategy in strategy(), state in state(), ms in 0u64..99, hour in 0u8..24,
    ) {
        let (pick, after) = strategy.pick(&runs, state, Now { ms, hour });
        let Some(pick) = pick else {
            prop_assert_eq!(after.last_full_ms, state.last_full_ms);
            return Ok(());
        };
        prop_assert!(pick.runs <= runs.len());
        prop_assert!((1..=runs.top()).contains(&pick.output_level));
        // What is left is on deeper levels, so no two runs share one and none is lost.
        let (taken, left) = runs.all().split_at(pick.runs);
        prop_assert!(left.iter().all(|run| run.level > pick.output_level), "{pick:?}");
        prop_assert!(taken.iter().all(|run| run.level <= pick.output_level || runs.len() == pick.runs), "{pick:?}");
        prop_assert_eq!(pick.runs == runs.len(), pick.output_level == runs.top() || left.is_empty());
        let full = pick.runs == runs.len() && strategy.universal.early.is_some();
        prop_assert_eq!(after.last_full_ms, if full { Some(ms) } else { state.last_full_ms });
        if !runs.is_empty() {
            prop_assert!(apply(&runs, pick).len() <= runs.len());
        }
    }

    #[test]
    fn merging_without_new_data_comes_to_rest(runs in runs(), strategy in strategy(), hour in 0u8..24) {
        // Time stands still; what an interval asks for is asked once.
        let (mut now, mut state, mut quiet, mut picks) = (runs, State::default(), 0, 0);
        while quiet <= 5 {
            let (pick, after) = strategy.pick(&now, state, Now { ms: 7, hour });
            state = after;
            match pick.filter(|pick| pick.runs > 0) {
                Some(pick) => {
                    let levels: Vec<u32> = now.all()[..pick.runs].iter().map(|run| run.level).collect();
                    prop_assert!(full::is_worthwhile(&levels, pick.output_level), "{pick:?} of {now:?} changes nothing");
                    let next = apply(&now, pick);
                    prop_assert!(next != now);
                    (now, quiet, picks) = (next, 0, picks + 1);
                    prop_assert!(picks < 30, "work without end");
                }
                None => quiet += 1,
            }
        }
        prop_assert!(now.len() <= strategy.universal.trigger.get() as usize);
        if strategy.max_interval.is_none() {
            prop_assert_eq!(now.level_0(), 0, "radical keeps level 0 empty");
        }
    }

    #[test]
    fn more_runs_than_the_trigger_are_always_merged(runs in runs(), universal in universal(), hour in 0u8..24) {
        let (pick, _) = universal.pick(&runs, State::default(), Now { ms: 0, hour });
        let trigger = universal.trigger.get() as usize;
        if runs.len() > trigger {
            let pick = pick.unwrap();
            prop_assert!(pick.why != Why::RunCount || apply(&runs, pick).len() <= trigger, "{pick:?}");
        } else if runs.len() < trigger && universal.early.is_none() {
            prop_assert_eq!(pick, None);
        }
    }

    /// The rules once more, in another way: by whole numbers, which agree as long as they are small.
    #[test]
    fn small_sizes_are_judged_as_whole_numbers_would(
        sizes in prop::collection::vec(0u64..2000, 1..9), ratio in 0u32..200, amp in 0u32..400,
    ) {
        let levels = 0..sizes.len() as u32;
        let runs: Vec<Run> = levels.zip(&sizes).map(|(level, size)| Run { level, size: *size }).collect();
        let runs = Runs::new(runs, 10).unwrap();
        let universal = Universal {
            rule: UniversalRule::R0, trigger: NonZeroU32::MIN, max_size_amp: amp, size_ratio: ratio, off_peak: None, early: None,
        };
        let (last, newer) = sizes.split_last().unwrap();
        let amplified = 100 * newer.iter().sum::<u64>() > u64::from(amp) * last;
        prop_assert_eq!(universal.size_amplification(&runs).is_some(), amplified);
        let fits = |n: usize| sizes[..n].iter().sum::<u64>() * (100 + u64::from(ratio)) >= sizes[n] * 100;
        let taken = 1 + (1..sizes.len()).take_while(|n| fits(*n)).count();
        let pick = universal.size_ratio(&runs, 0);
        prop_assert_eq!(pick.is_some(), taken > 1);
        if let Some(pick) = pick {
            prop_assert_eq!(pick.why, Why::SizeRatio);
            let output = if taken == sizes.len() { 9 } else { taken as u32 - 1 };
            prop_assert_eq!((pick.runs, pick.output_level), (taken, output));
        }
    }

    #[test]
    fn a_full_compaction_leaves_one_run_of_the_last_level(runs in runs(), force in any::<bool>()) {
        let merged = runs.len() == 1 && runs.all()[0].level == runs.top();
        let full = full::pick(&runs, &[full::TopFile::default()], force);
        let expected = match (runs.is_empty(), merged, force) {
            (true, ..) | (_, true, false) => None,
            (_, true, true) => Some(Full::Each(vec![0])),
            _ => Some(Full::All),
        };
        prop_assert_eq!(full, expected);
    }

    #[test]
    fn a_window_is_contiguous_and_no_file_is_in_two_picks_or_lost(
        files in files(), min in 1u32..7, target in 0u64..40, old in any::<bool>(),
    ) {
        let rule = if old { AppendRule::A0 } else { AppendRule::A1 };
        let mut order = files.clone();
        order.sort();
        let (mut queue, mut picks, mut gone) = (files, 0, Vec::new());
        loop {
            let before = queue.len();
            let pick = append::auto(queue, min, target, rule);
            prop_assert_eq!(before, pick.picked.len() + pick.forgotten.len() + pick.queue.len());
            let at = |file: &AppendFile<u64>| order.iter().position(|other| other == file).unwrap();
            let taken = [pick.forgotten.as_slice(), &pick.picked, &pick.queue].concat();
            prop_assert!(taken.windows(2).all(|pair| at(&pair[1]) == at(&pair[0]) + 1), "in order and without a gap");
            gone.extend(pick.forgotten);
            gone.extend(pick.picked.clone());
            queue = pick.queue;
            if pick.picked.is_empty() {
                break;
            }
            prop_assert_eq!(pick.picked.len(), min as usize);
            picks += 1;
            prop_assert!(picks <= order.len());
        }
        // All of it is known, each file once; what stays would not be picked alone.
        gone.extend(queue.clone());
        prop_assert_eq!(&gone, &order);
        prop_assert!(queue.len() < min as usize);
    }

    #[test]
    fn a_table_that_is_seen_anew_each_time_comes_to_rest(
        sizes in prop::collection::vec(0u64..260, 0..20), min in 0u32..7, old in any::<bool>(),
    ) {
        let (target, cutoff) = (100, 70);
        let rule = if old { AppendRule::A0 } else { AppendRule::A1 };
        let (mut table, mut rounds) = (sizes, 0);
        loop {
            let small = table.iter().filter(|size| **size < cutoff).count();
            let file = |(id, size): (usize, &u64)| AppendFile { min_seq: id as u64, max_seq: id as u64, id, size: *size, has_vector: false };
            let picks = append::auto_of_table(table.iter().enumerate().map(file).collect(), min, target, cutoff, rule);
            let Some(last) = picks.last() else { break };
            prop_assert!(picks.concat().windows(2).all(|pair| pair[0].id < pair[1].id), "no file in two picks");
            prop_assert!(last.windows(2).all(|pair| pair[0].id + 1 == pair[1].id), "contiguous");
            // One of them runs: what comes out is slightly below the target, and a rest.
            let total: u64 = last.iter().map(|file| file.size).sum();
            let rest = Some(total % 97).filter(|rest| *rest > 0);
            let out = vec![97; (total / 97) as usize].into_iter().chain(rest);
            table.splice(last[0].id..last[0].id + last.len(), out);
            rounds += 1;
            prop_assert!(table.iter().filter(|size| **size < cutoff).count() < small);
        }
        prop_assert!(rounds <= 20);
    }

    #[test]
    fn the_order_in_which_files_are_told_never_matters(
        (files, shuffled) in files().prop_flat_map(|files| (Just(files.clone()), Just(files).prop_shuffle())),
        min in 1u32..7, target in 0u64..40, vectors in any::<bool>(), force_rewrite_all in any::<bool>(),
    ) {
        let auto = |files: &[AppendFile<u64>]| append::auto(files.to_vec(), min, target, AppendRule::A1);
        prop_assert_eq!(auto(&files), auto(&shuffled));
        let rules = FullRules { cutoff: target, vectors, force_rewrite_all };
        prop_assert_eq!(append::full(files, &rules), append::full(shuffled, &rules));
    }

    #[test]
    fn a_full_rewrite_is_the_end_of_the_queue_and_worth_it(files in files(), cutoff in 0u64..30, vectors in any::<bool>()) {
        let mut order = files.clone();
        order.sort();
        let rules = FullRules { cutoff, vectors, force_rewrite_all: false };
        let taken = append::full(files, &rules);
        prop_assert!(order.ends_with(&taken));
        let is_large = |file: &AppendFile<u64>| file.size >= cutoff;
        if let Some(first) = taken.first() {
            prop_assert!(!is_large(first) || (vectors && first.has_vector));
            let small = taken.iter().filter(|file| !is_large(file)).count();
            prop_assert!(vectors || (taken.len() >= 3 && 2 * small > taken.len()));
        }
        // The same again has as little to do where outputs are large.
        let large = |file: &AppendFile<u64>| AppendFile { size: cutoff, has_vector: false, ..file.clone() };
        prop_assert!(append::full(taken.iter().map(large).collect(), &rules).is_empty());
    }

    #[test]
    fn a_coordinators_tasks_share_no_file_and_hold_what_is_worth_it(
        (files, shuffled) in partition().prop_flat_map(|files| (Just(files.clone()), Just(files).prop_shuffle())),
        rules in coordinator(),
    ) {
        let partition = rules.notify(Partition::default(), files.clone());
        prop_assert_eq!(&partition, &rules.notify(Partition::default(), shuffled));
        let mut seen = BTreeSet::new();
        let held = partition.held.clone();
        let mut left = Some(partition);
        for _ in 0..=11 {
            let Some(partition) = left else { break };
            let tasks;
            (tasks, left) = rules.plan(partition);
            for file in tasks.iter().flatten() {
                prop_assert!(held.contains(file) && seen.insert(file.clone()), "{file:?}");
                prop_assert!(rules.is_candidate(file));
            }
            prop_assert!(tasks.iter().all(|task| !task.is_empty()));
        }
        prop_assert_eq!(left, None, "every partition ends");
        // Only a lone file is forgotten without having been rewritten.
        prop_assert!(held.len() - seen.len() <= 1);
        let once = rules.once(files);
        let all: Vec<&File<u64>> = once.iter().flatten().collect();
        prop_assert_eq!(all.len(), all.iter().collect::<BTreeSet<_>>().len());
    }

    #[test]
    fn all_files_leave_before_their_checkpoint_ends(sizes in prop::collection::vec(size(), 0..12), target in 0u64..40, cutoff in 0u64..40) {
        let rules = PreCommit { target, cutoff };
        let (mut emitted, waiting) = rules.arrive(Waiting::default(), sizes.iter().copied().enumerate());
        emitted.extend(waiting.barrier());
        let mut out = Vec::new();
        for group in emitted {
            match group {
                Emitted::Commit(files) => out.extend(files),
                Emitted::Compact(files) => {
                    prop_assert!(files.len() > 1 && files.iter().all(|file| sizes[*file] < cutoff));
                    out.extend(files);
                }
            }
        }
        out.sort_unstable();
        prop_assert_eq!(out, (0..sizes.len()).collect::<Vec<_>>());
    }

    #[test]
    fn sections_cut_at_gaps_and_use_as_few_rows_as_there_are_overlaps(
        ranges in prop::collection::vec((0i64..30, 0i64..8).prop_map(|(min, more)| (min, min + more)), 0..20),
    ) {
        let sections = sections(&ranges);
        let mut all: Vec<usize> = sections.concat().concat();
        let mut last_end = None;
        for section in &sections {
            let keys = section.concat();
            let begin = keys.iter().map(|at| ranges[*at].0).min().unwrap();
            prop_assert!(last_end.is_none_or(|end| begin > end));
            last_end = keys.iter().map(|at| ranges[*at].1).max();
            let at_key = |key| keys.iter().filter(|at| (ranges[**at].0..=ranges[**at].1).contains(&key)).count();
            let deepest = (begin..=last_end.unwrap()).map(at_key).max().unwrap();
            prop_assert_eq!(section.len(), deepest);
            prop_assert!((begin..=last_end.unwrap()).all(|key| at_key(key) > 0), "no gap inside");
            for row in section {
                prop_assert!(row.windows(2).all(|pair| ranges[pair[1]].0 > ranges[pair[0]].1));
            }
        }
        all.sort_unstable();
        prop_assert_eq!(all, (0..ranges.len()).collect::<Vec<_>>());
    }

    #[test]
    fn a_merge_rewrites_each_file_once_at_most_and_what_overlaps_together(
        files in prop::collection::vec((0u32..6, 0i64..30, 0i64..8, 0u64..20, prop::option::of(0u64..2)), 0..12),
        output_level in 1u32..=5, cutoff in 0u64..20, force_rewrite_all in any::<bool>(),
    ) {
        let read = |(level, min, more, size, deletes)| MergeFile { level, min, max: min + more, size, deletes, has_expired: false };
        let files: Vec<MergeFile<i64>> = files.into_iter().map(read).collect();
        let steps = Merge { output_level, top: 5, cutoff, force_rewrite_all }.steps(&files);
        let mut group = vec![None; files.len()];
        for (n, step) in steps.iter().enumerate() {
            let of = match step {
                Step::Rewrite(of) => of.clone(),
                Step::Upgrade(at) => vec![*at],
            };
            for at in of {
                prop_assert_eq!(group[at].replace(n), None, "file {} twice", at);
            }
        }
        for (at, file) in files.iter().enumerate() {
            // Nothing stays on another level, and none with deletes comes to the last one as it was.
            prop_assert!(group[at].is_some() || file.level == output_level);
            let moved_as_it_was = group[at].is_none_or(|n| matches!(steps[n], Step::Upgrade(_)));
            prop_assert!(!moved_as_it_was || output_level < 5 || file.deletes == Some(0));
            prop_assert!(!force_rewrite_all || !moved_as_it_was);
            for (other, with) in files.iter().enumerate().filter(|(other, _)| *other != at) {
                let overlap = file.min <= with.max && with.min <= file.max;
                prop_assert!(!overlap || group[at].is_some() && group[at] == group[other]);
            }
        }
    }

    #[test]
    fn files_become_the_same_runs_in_whatever_order_they_are_told(
        (files, shuffled) in prop::collection::vec((0u32..4, 0i64..40, 0u64..4, 0u64..4), 0..10).prop_flat_map(|files| {
            let read = |(id, (level, min, max_seq, created_ms))| LevelFile {
                id, level, min, max: min, min_seq: 0, max_seq, created_ms, size: 1,
            };
            let files: Vec<LevelFile<usize, i64>> = files.into_iter().enumerate().map(read).collect();
            (Just(files.clone()), Just(files).prop_shuffle())
        }),
    ) {
        let named = |files: &[LevelFile<usize, i64>]| {
            Levels::new(files, 4).map(|levels| {
                let ids = |run: &Vec<usize>| run.iter().map(|at| files[*at].id).collect::<Vec<_>>();
                (levels.runs.clone(), levels.files.iter().map(ids).collect::<Vec<_>>())
            })
        };
        let (one, other) = (named(&files), named(&shuffled));
        prop_assert_eq!(one.is_ok(), other.is_ok());
        if let (Ok(one), Ok(other)) = (one, other) {
            prop_assert_eq!(&one, &other);
            prop_assert_eq!(one.1.concat().len(), files.len());
        }
    }
}
