//! From files to runs, and what a merge rewrites: the edges of keys and levels.
#![allow(clippy::unwrap_used)]

use planner::pick::levels::{BadLevels, LevelFile, Levels};
use planner::pick::runs::{BadRuns, Run};
use planner::pick::sections::{Merge, MergeFile, Step, sections};

fn file(id: u64, level: u32, min: i64, max: i64) -> LevelFile<u64, i64> {
    LevelFile { id, level, min, max, min_seq: 0, max_seq: 0, created_ms: 0, size: 1 }
}

#[test]
fn level_0_is_newest_first_by_last_sequence_then_first_then_age_then_name() {
    let of = |max_seq, min_seq, created_ms, id| LevelFile { max_seq, min_seq, created_ms, ..file(id, 0, 0, 9) };
    let files = [of(5, 1, 1, 1), of(9, 4, 0, 2), of(9, 3, 7, 3), of(9, 3, 6, 5), of(9, 3, 6, 4)];
    let levels = Levels::new(&files, 3).unwrap();
    assert_eq!(levels.files, [[4], [3], [2], [1], [0]]);
    assert_eq!((levels.runs.len(), levels.runs.level_0(), levels.highest(), levels.total_size), (5, 5, Some(0), 5));
}

#[test]
fn a_higher_level_is_one_run_in_the_order_of_its_keys() {
    let sized = |id, level, min, max, size| LevelFile { size, ..file(id, level, min, max) };
    let files = [sized(0, 2, 5, 9, u64::MAX), sized(1, 0, 0, 9, 3), sized(2, 2, 1, 4, 2), sized(3, 1, 0, 9, 7)];
    let levels = Levels::new(&files, 3).unwrap();
    assert_eq!(levels.files, [vec![1], vec![3], vec![2, 0]]);
    let run = |level, size| Run { level, size };
    assert_eq!(levels.runs.all(), [run(0, 3), run(1, 7), run(2, u64::MAX)]);
    assert_eq!((levels.highest(), levels.runs.top()), (Some(2), 2));
    assert_eq!(levels.total_size, u128::from(u64::MAX) + 12);
    let empty = Levels::new(&[] as &[LevelFile<u64, i64>], 3).unwrap();
    assert_eq!((empty.highest(), empty.runs.len(), empty.total_size), (None, 0, 0));
}

#[test]
fn files_of_a_higher_level_must_not_have_a_key_in_common() {
    let of = |level, first: (i64, i64), second: (i64, i64)| {
        Levels::new(&[file(0, level, second.0, second.1), file(1, level, first.0, first.1)], 3)
            .map(|levels| levels.files)
    };
    assert_eq!(of(1, (1, 3), (4, 5)), Ok(vec![vec![1, 0]]));
    assert_eq!(of(1, (1, 3), (3, 5)), Err(BadLevels::Overlap { level: 1, file: 0 }));
    assert_eq!(of(2, (1, 9), (3, 5)), Err(BadLevels::Overlap { level: 2, file: 0 }));
    assert_eq!(of(2, (1, 9), (1, 5)), Err(BadLevels::Overlap { level: 2, file: 1 }), "in the order of keys");
    assert_eq!(of(0, (1, 9), (3, 5)), Ok(vec![vec![0], vec![1]]));
    let bad = BadLevels::Overlap { level: 2, file: 1 };
    assert_eq!(bad.to_string(), "file 1 has a key in common with the one before it on level 2");
    let few = Levels::new(&[file(0, 0, 1, 2)], 1).unwrap_err();
    assert_eq!(few, BadLevels::Runs(BadRuns::TooFewLevels));
    assert_eq!(few.to_string(), "a bucket has two levels at least");
}

#[test]
fn sections_end_where_no_key_goes_on_and_touching_is_going_on() {
    assert_eq!(sections::<i64>(&[]), Vec::<Vec<Vec<usize>>>::new());
    assert_eq!(sections(&[(1, 1)]), [[[0]]]);
    assert_eq!(sections(&[(1, 3), (4, 6)]), [[[0]], [[1]]]);
    assert_eq!(sections(&[(1, 3), (3, 6)]), [[[0], [1]]]);
    assert_eq!(sections(&[(5, 6), (1, 9), (7, 8)]), [vec![vec![1], vec![0, 2]]], "inside of another one");
    // The largest key so far counts, not the last one.
    assert_eq!(sections(&[(0, 10), (2, 3), (9, 12), (13, 14)]), vec![vec![vec![0], vec![1, 2]], vec![vec![3]]]);
    assert_eq!(sections(&[("a", "c"), ("b", "d"), ("d", "e")]), [vec![vec![0, 2], vec![1]]]);
}

#[test]
fn a_range_joins_the_row_that_ends_first_and_of_those_the_one_whose_last_range_began_first() {
    assert_eq!(sections(&[(0, 9), (1, 4), (2, 6), (5, 7), (7, 8)]), [vec![vec![0], vec![1, 3], vec![2, 4]]]);
    assert_eq!(sections(&[(0, 9), (1, 4), (2, 4), (5, 6)]), [vec![vec![0], vec![1, 3], vec![2]]]);
    assert_eq!(sections(&[(3, 5), (3, 5), (0, 9)]), [[[2], [0], [1]]], "equals stay in their order");
    assert_eq!(sections(&[(0, 9), (1, 4), (4, 6)]), [[[0], [1], [2]]], "touching needs a row of its own");
}

fn merge(output_level: u32) -> Merge {
    Merge { output_level, top: 5, cutoff: 10, force_rewrite_all: false }
}

fn of(level: u32, min: i64, max: i64, size: u64) -> MergeFile<i64> {
    MergeFile { level, min, max, size, deletes: Some(0), has_expired: false }
}

fn rewrite<const N: usize>(files: [usize; N]) -> Step {
    Step::Rewrite(files.to_vec())
}

#[test]
fn large_files_without_a_neighbour_only_change_their_level_and_small_ones_merge() {
    let steps = merge(5).steps(&[of(0, 20, 29, 10), of(1, 1, 9, 9), of(0, 10, 19, 9), of(5, 30, 39, 10)]);
    assert_eq!(steps, [rewrite([1, 2]), Step::Upgrade(0)], "exactly the cut-off is large; the last is where it goes");
    let apart = merge(5).steps(&[of(0, 1, 2, 9), of(0, 3, 4, 10), of(0, 5, 6, 9)]);
    assert_eq!(apart, [Step::Upgrade(0), Step::Upgrade(1), Step::Upgrade(2)], "a lone small one is not rewritten");
    let overlap = merge(5).steps(&[of(0, 1, 5, 99), of(1, 5, 6, 99), of(0, 7, 8, 1), of(0, 9, 9, 99)]);
    assert_eq!(overlap, [rewrite([0, 1, 2]), Step::Upgrade(3)], "what overlaps is merged, however large");
    assert_eq!(merge(5).steps(&[of(0, 1, 5, 99), of(1, 5, 6, 99)]), [rewrite([0, 1])], "and where nothing else is");
    assert_eq!(merge(5).steps(&[of(5, 1, 2, 1)]), []);
    assert_eq!(merge(5).steps::<i64>(&[]), []);
    let nothing = Merge { cutoff: 0, ..merge(5) };
    assert_eq!(nothing.steps(&[of(0, 1, 2, 0), of(0, 3, 4, 0)]), [Step::Upgrade(0), Step::Upgrade(1)]);
}

#[test]
fn deletes_and_expired_rows_do_not_get_to_the_last_level_unseen() {
    let with = |deletes| MergeFile { deletes, ..of(0, 1, 2, 99) };
    assert_eq!(merge(5).steps(&[with(Some(1))]), [rewrite([0])]);
    assert_eq!(merge(5).steps(&[with(None)]), [rewrite([0])]);
    assert_eq!(merge(5).steps(&[with(Some(0))]), [Step::Upgrade(0)]);
    assert_eq!(merge(4).steps(&[with(Some(1))]), [Step::Upgrade(0)], "below it something older may be");
    assert_eq!(merge(4).steps(&[with(None)]), [Step::Upgrade(0)]);
    let small = MergeFile { deletes: None, ..of(5, 1, 2, 1) };
    assert_eq!(merge(5).steps(&[small]), [rewrite([0])], "a lone small one, too");
    let expired = MergeFile { has_expired: true, ..of(4, 1, 2, 99) };
    assert_eq!(merge(4).steps(&[expired]), [rewrite([0])]);
}

#[test]
fn forcing_rewrites_what_would_only_move_or_stay() {
    let forced = Merge { force_rewrite_all: true, ..merge(4) };
    assert_eq!(forced.steps(&[of(0, 1, 2, 99), of(4, 3, 4, 99)]), [rewrite([0]), rewrite([1])]);
    assert_eq!(Merge::each(2), [rewrite([0]), rewrite([1])]);
    assert_eq!(Merge::each(0), []);
}
