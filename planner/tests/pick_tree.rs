//! Picks of tables with a primary key: reports of the peer, and the edges of its rules.
#![allow(clippy::unwrap_used)]

use std::num::NonZeroU32;

use planner::pick::early::{self, EarlyFull, OffPeak};
use planner::pick::full::{self, Full, Refusal, Request, TopFile};
use planner::pick::lookup::ForceUp;
use planner::pick::options::Options;
use planner::pick::rules::UniversalRule::{self, R0, R1, R2};
use planner::pick::runs::{BadRuns, Now, Pick, Run, Runs, State, Why};
use planner::pick::stall;
use planner::pick::universal::Universal;

const RULES: [UniversalRule; 3] = [R0, R1, R2];

fn runs_of(levels: u32, runs: &[(u32, u64)]) -> Runs {
    Runs::new(runs.iter().map(|&(level, size)| Run { level, size }).collect(), levels).unwrap()
}

/// Of six levels, which is the default.
fn runs(of: &[(u32, u64)]) -> Runs {
    runs_of(6, of)
}

fn universal(rule: UniversalRule, trigger: u32) -> Universal {
    Universal { rule, trigger: NonZeroU32::new(trigger).unwrap(), ..Options::default().universal() }
}

fn radical(rule: UniversalRule, trigger: u32) -> ForceUp {
    ForceUp { universal: universal(rule, trigger), max_interval: None }
}

fn pick(universal: &Universal, runs: &Runs) -> Option<Pick> {
    universal.pick(runs, State::default(), Now::default()).0
}

#[track_caller]
fn picks(runs: &Runs, expected: Option<(usize, u32, Why)>) {
    let expected = expected.map(|(runs, output_level, why)| Pick { runs, output_level, why });
    for rule in RULES {
        assert_eq!(pick(&universal(rule, 5), runs), expected, "{rule:?} of {runs:?}");
    }
}

/// The runs after a pick was carried out without losing a byte.
fn apply(before: &Runs, pick: Pick) -> Runs {
    let (taken, left) = before.all().split_at(pick.runs);
    let size = taken.iter().map(|run| run.size).sum();
    let merged = Run { level: pick.output_level, size };
    Runs::new([&[merged], left].concat(), before.top() + 1).unwrap()
}

#[test]
fn a_pick_of_everything_goes_to_the_last_level_and_never_to_level_0() {
    picks(&runs(&[(0, 1), (0, 1), (0, 1), (0, 1024), (0, 10240)]), Some((5, 5, Why::SizeRatio)));
}

#[test]
fn amplification_ratio_and_run_count_each_pick_what_they_should() {
    picks(&runs(&[(0, 30), (0, 30), (0, 30), (0, 30), (5, 50)]), Some((5, 5, Why::SizeAmplification)));
    picks(&runs(&[(0, 1), (0, 1), (0, 1), (0, 1), (4, 100), (5, 1000)]), Some((4, 3, Why::SizeRatio)));
    let many = [(0, 1), (0, 10), (0, 100), (1, 1000), (2, 10_000), (5, 10_000_000)];
    picks(&runs(&many), Some((4, 1, Why::RunCount)));
    picks(&runs(&[(0, 1), (1, 10), (5, 100)]), None);
}

#[test]
fn level_1_grows_for_ever_under_the_oldest_rule_and_under_no_later_one() {
    let rounds = |rule: UniversalRule| {
        let strategy = radical(rule, 8);
        let (mut now, mut written, mut level_2_joins) = (runs(&[(1, 100), (2, 150), (5, 100_000)]), 0, None);
        for round in 1..=50 {
            let flushed = [Run { level: 0, size: 10 }; 4];
            now = Runs::new([&flushed, now.all()].concat(), 6).unwrap();
            let pick = strategy.pick(&now, State::default(), Now::default()).0.unwrap();
            let taken = &now.all()[..pick.runs];
            if level_2_joins.is_none() && taken.iter().any(|run| run.level == 2) {
                level_2_joins = Some(round);
            }
            written += taken.iter().map(|run| run.size).sum::<u64>();
            now = apply(&now, pick);
        }
        let level_1 = now.all().iter().find(|run| run.level == 1).map(|run| run.size);
        (level_2_joins, written, level_1)
    };
    assert_eq!(rounds(R0), (None, 56_000, Some(2100)));
    assert_eq!(rounds(R2), (Some(2), 9050, None));
    let (joins, written, _) = rounds(R1);
    assert_eq!(joins, Some(2));
    assert!(written < 30_000, "{written}");
}

#[test]
fn gentle_leaves_out_picks_until_its_interval_however_often_the_object_is_made_anew() {
    let of = runs(&[(0, 10), (5, 100_000)]);
    let pairs = [("force-lookup", "true"), ("lookup-compact", "gentle"), ("lookup-compact.max-interval", "6")];
    let mut state = State::default();
    let mut picks = Vec::new();
    for _ in 0..13 {
        // Made anew from the options and from the state that was stored.
        let options = Options::from_pairs(pairs).unwrap();
        let strategy = ForceUp { universal: options.universal(), max_interval: Some(options.lookup_max_interval()) };
        let stored = serde_json::to_string(&state).unwrap();
        let (pick, after) = strategy.pick(&of, serde_json::from_str(&stored).unwrap(), Now::default());
        state = after;
        picks.push(pick);
    }
    let forced = Some(Pick { runs: 1, output_level: 4, why: Why::Level0 });
    let nothing = [None; 5].as_slice();
    assert_eq!(picks, [nothing, &[forced], nothing, &[forced], &[None]].concat());
    assert_eq!(state.skips, 1);
}

#[test]
fn a_universal_pick_leaves_the_count_alone_and_forcing_resets_it_even_without_level_0() {
    let gentle = ForceUp { universal: universal(R0, 2), max_interval: Some(2) };
    let one = |of: &[(u32, u64)], skips: u32| {
        let (pick, state) = gentle.pick(&runs(of), State { skips, ..State::default() }, Now::default());
        (pick.map(|pick| pick.why), state.skips)
    };
    assert_eq!(one(&[(0, 1), (0, 1)], 1), (Some(Why::SizeRatio), 1));
    assert_eq!(one(&[(5, 1)], 0), (None, 1));
    assert_eq!(one(&[(5, 1)], 1), (None, 0));
    assert_eq!(one(&[], 1), (None, 0));
    // A count of a longer interval than that of now does not stop it for ever.
    assert_eq!(one(&[(0, 1)], 7), (Some(Why::Level0), 0));
    assert_eq!(one(&[(0, 1)], u32::MAX), (Some(Why::Level0), 0));
}

#[test]
fn a_quiet_table_is_merged_once_the_interval_is_over_though_nobody_keeps_an_object() {
    let day_ms = 86_400_000;
    let options = Options::from_pairs([("compaction.optimization-interval", "1 d")]).unwrap();
    let (mut now, mut fired) = (runs(&[(0, 10), (5, 100_000)]), Vec::new());
    let mut state = State { last_full_ms: Some(0), ..State::default() };
    for ms in (0..=2 * day_ms).step_by(60_000) {
        let (pick, after) = options.universal().pick(&now, state, Now { ms, hour: 0 });
        state = after;
        if let Some(pick) = pick {
            fired.push((ms, pick.why));
            now = apply(&now, pick);
        }
    }
    // At exactly the interval it is not over; what is merged already is left alone.
    assert_eq!(fired, [(day_ms + 60_000, Why::Interval)]);
    assert_eq!(now, runs(&[(5, 100_010)]));
}

#[test]
fn a_new_writers_clock_starts_at_the_newest_file_of_the_last_level() {
    assert_eq!(early::last_full_ms([(5, 40), (5, 70), (4, 99)], 6), Some(70));
    assert_eq!(early::last_full_ms([(4, 99), (6, 99)], 6), None);
    assert_eq!(early::last_full_ms([], 6), None);
    assert_eq!(early::last_full_ms([(0, 1)], 0), None);
}

#[test]
fn early_full_thresholds_are_strict_and_asked_in_their_order() {
    let fires = |early: EarlyFull, of: &[(u32, u64)], last: Option<u64>, now: u64| {
        early.pick(&runs(of), last, now).map(|pick| (pick.runs, pick.output_level, pick.why))
    };
    let interval = EarlyFull { interval_ms: Some(10), ..EarlyFull::default() };
    let two = [(0, 3), (5, 7)];
    assert_eq!(fires(interval, &two, None, 0), Some((2, 5, Why::Interval)));
    assert_eq!(fires(interval, &two, Some(5), 15), None);
    assert_eq!(fires(interval, &two, Some(5), 16), Some((2, 5, Why::Interval)));
    assert_eq!(fires(interval, &two, Some(50), 16), None, "the clock went back");
    assert_eq!(fires(interval, &two, Some(0), u64::MAX), Some((2, 5, Why::Interval)));
    let total = |bytes| EarlyFull { total_size: Some(bytes), ..EarlyFull::default() };
    assert_eq!(fires(total(10), &two, None, 0), None);
    assert_eq!(fires(total(11), &two, None, 0), Some((2, 5, Why::TotalSize)));
    let incremental = |bytes| EarlyFull { incremental_size: Some(bytes), ..EarlyFull::default() };
    assert_eq!(fires(incremental(3), &two, None, 0), None);
    assert_eq!(fires(incremental(2), &two, None, 0), Some((2, 5, Why::IncrementalSize)));
    assert_eq!(fires(incremental(9), &[(0, 3), (1, 7)], None, 0), Some((2, 5, Why::IncrementalSize)));
    let all = EarlyFull { interval_ms: Some(0), total_size: Some(99), incremental_size: Some(0), of_nothing: false };
    assert_eq!(fires(all, &two, Some(0), 1), Some((2, 5, Why::Interval)));
    assert_eq!(fires(all, &two, Some(0), 0), Some((2, 5, Why::TotalSize)));
    assert_eq!(fires(all, &[(0, 99), (5, 0)], Some(0), 0), Some((2, 5, Why::IncrementalSize)));
    assert!([interval, total(1), incremental(1)].iter().all(EarlyFull::is_enabled));
    assert!(!EarlyFull::default().is_enabled());
}

#[test]
fn one_run_or_none_is_never_merged_early_but_java_starts_its_clock_over_nothing() {
    let early = EarlyFull { interval_ms: Some(0), total_size: Some(99), incremental_size: Some(0), of_nothing: false };
    for of_nothing in [false, true] {
        assert_eq!(EarlyFull { of_nothing, ..early }.pick(&runs(&[(0, 5)]), None, 9), None);
    }
    let ask = |of_nothing| {
        let universal = Universal { early: Some(EarlyFull { of_nothing, ..early }), ..universal(R0, 5) };
        universal.pick(&runs(&[]), State::default(), Now { ms: 7, hour: 0 })
    };
    assert_eq!(ask(false), (None, State::default()));
    let (pick, state) = ask(true);
    assert_eq!((pick.map(|pick| pick.runs), state.last_full_ms), (Some(0), Some(7)));
    assert!(!full::is_worthwhile(&[], 5), "and the manager leaves it at that");
}

#[test]
fn only_a_merge_of_everything_restarts_the_clock_and_only_where_there_is_one() {
    let early = Some(EarlyFull { total_size: Some(0), ..EarlyFull::default() });
    let now = Now { ms: 9, hour: 0 };
    let after = |early: Option<EarlyFull>, of: &[(u32, u64)]| {
        let strategy = Universal { early, ..universal(R0, 2) };
        let state = State { last_full_ms: Some(1), skips: 3 };
        let (pick, after) = strategy.pick(&runs(of), state, now);
        assert_eq!(after.skips, 3);
        (pick.map(|pick| pick.runs), after.last_full_ms)
    };
    assert_eq!(after(early, &[(0, 9), (5, 1)]), (Some(2), Some(9)));
    assert_eq!(after(early, &[(0, 9), (0, 9), (5, 1000)]), (Some(2), Some(1)));
    assert_eq!(after(early, &[(0, 1), (5, 1000)]), (None, Some(1)));
    assert_eq!(after(None, &[(0, 9), (5, 1)]), (Some(2), Some(1)));
    let forced = ForceUp { universal: Universal { early, ..universal(R0, 5) }, max_interval: None };
    let ask = |of: &[(u32, u64)]| forced.pick(&runs(of), State::default(), now).1.last_full_ms;
    assert_eq!(ask(&[(0, 1)]), Some(9));
    assert_eq!(ask(&[(0, 1), (5, 1000)]), None);
}

#[test]
fn amplification_is_strict_and_counts_from_exactly_the_trigger_on() {
    let amplified = |trigger: u32, of: &[(u32, u64)]| universal(R0, trigger).size_amplification(&runs(of)).is_some();
    assert!(!amplified(3, &[(0, 100), (1, 100), (2, 100)]), "at exactly 200 percent");
    assert!(amplified(3, &[(0, 100), (1, 101), (2, 100)]));
    assert!(amplified(2, &[(0, 1000), (1, 1)]));
    assert!(!amplified(3, &[(0, 1000), (1, 1)]));
    assert!(amplified(2, &[(0, 1), (5, 0)]), "anything is more than nothing");
    assert!(!amplified(2, &[(0, 0), (5, 0)]));
    assert!(!amplified(1, &[(0, 7)]));
    assert!(!amplified(1, &[]));
}

#[test]
fn the_ratio_includes_what_is_exactly_as_large_and_stops_at_one_byte_more() {
    let taken = |rule, of: &[(u32, u64)]| universal(rule, 2).size_ratio(&runs(of), 0).map(|p| (p.runs, p.output_level));
    for rule in RULES {
        assert_eq!(taken(rule, &[(0, 100), (2, 101), (5, 100_000)]), Some((2, 4)));
        assert_eq!(taken(rule, &[(0, 100), (2, 102), (5, 100_000)]), None);
        assert_eq!(taken(rule, &[(0, 0), (2, 0), (5, 1)]), Some((2, 4)), "equal, though nothing");
        assert_eq!(taken(rule, &[(0, 5), (1, 0), (5, 1000)]), Some((2, 4)));
        assert_eq!(taken(rule, &[(0, 5)]), None);
        assert_eq!(taken(rule, &[]), None);
    }
    assert!(universal(R0, 1).size_ratio(&runs(&[(0, 5)]), 0).is_none(), "one run is no merge");
    // The size of what was taken decides, not that of the last run.
    assert_eq!(taken(R0, &[(0, 50), (2, 50), (3, 100), (5, 10_000)]), Some((3, 4)));
}

#[test]
fn runs_of_levels_0_and_1_join_a_triggered_pick_under_the_newest_rule_only() {
    let of = runs(&[(0, 1), (0, 1), (0, 100), (3, 1_000_000)]);
    let shown = |pick: Option<Pick>| pick.map(|pick| (pick.runs, pick.output_level));
    assert_eq!(shown(pick(&universal(R0, 3), &of)), Some((4, 5)));
    assert_eq!(shown(pick(&universal(R1, 3), &of)), Some((4, 5)));
    assert_eq!(shown(pick(&universal(R2, 3), &of)), Some((3, 2)));
    // A pick that was not triggered is not made by that, nor does level 2 join.
    assert_eq!(shown(pick(&universal(R2, 3), &runs(&[(0, 1), (0, 100), (3, 1_000_000)]))), None);
    let level_2 = runs(&[(0, 1), (0, 1), (1, 50), (2, 100), (5, 1_000_000)]);
    assert_eq!(shown(pick(&universal(R2, 3), &level_2)), Some((3, 1)));
}

#[test]
fn a_forced_pick_starts_with_level_1_under_r1_only() {
    let of = runs(&[(0, 10), (1, 100), (2, 101), (5, 100_000)]);
    let forced =
        |rule| radical(rule, 9).pick(&of, State::default(), Now::default()).0.map(|p| (p.runs, p.output_level));
    // R0 must not leave its output on level 0, so level 1 is swallowed, but not judged with the rest.
    assert_eq!(forced(R0), Some((2, 1)));
    assert_eq!(forced(R1), Some((3, 4)));
    assert_eq!(forced(R2), Some((3, 4)));
    let no_level_1 = runs(&[(0, 10), (2, 100), (5, 100_000)]);
    for rule in RULES {
        let pick = radical(rule, 9).pick(&no_level_1, State::default(), Now::default()).0;
        assert_eq!(pick, Some(Pick { runs: 1, output_level: 1, why: Why::Level0 }));
        let nothing = radical(rule, 9).pick(&runs(&[(1, 5), (5, 1000)]), State::default(), Now::default()).0;
        assert_eq!(nothing, None);
    }
}

#[test]
fn too_many_runs_are_as_many_as_exceed_the_trigger() {
    let of = |count: usize| {
        let mut size = 1;
        let next = |level: u32| {
            size *= 10;
            Run { level, size }
        };
        Runs::new((1..=count as u32).map(next).collect(), 12).unwrap()
    };
    for rule in RULES {
        let strategy = Universal { max_size_amp: u32::MAX, ..universal(rule, 3) };
        assert_eq!(pick(&strategy, &of(3)), None, "at exactly the trigger");
        assert_eq!(pick(&strategy, &of(4)), Some(Pick { runs: 2, output_level: 2, why: Why::RunCount }));
        assert_eq!(pick(&strategy, &of(6)), Some(Pick { runs: 4, output_level: 4, why: Why::RunCount }));
        assert_eq!(strategy.run_count(&of(2), 0), None);
        let one = Universal { trigger: NonZeroU32::MIN, ..strategy };
        assert_eq!(pick(&one, &of(2)), Some(Pick { runs: 2, output_level: 11, why: Why::RunCount }));
        assert_eq!(pick(&one, &of(1)), None);
        assert_eq!(pick(&Universal { trigger: NonZeroU32::MAX, ..strategy }, &of(9)), None);
    }
}

#[test]
fn the_largest_sizes_neither_wrap_nor_lose_to_each_other() {
    let huge = u64::MAX;
    for rule in RULES {
        let strategy = Universal { max_size_amp: u32::MAX, ..universal(rule, 2) };
        assert_eq!(strategy.size_amplification(&runs(&[(0, huge), (0, huge), (5, huge)])), None);
        let all = universal(rule, 2).size_amplification(&runs(&[(0, huge), (0, huge), (4, 1), (5, huge)]));
        assert_eq!(all.map(|pick| pick.runs), Some(4), "twice the oldest and a byte");
        assert_eq!(universal(rule, 2).size_amplification(&runs(&[(0, huge), (0, huge), (5, huge)])), None);
        let ratio = universal(rule, 2).size_ratio(&runs(&[(0, huge), (4, huge), (5, huge)]), 0);
        assert_eq!(ratio.map(|pick| pick.runs), Some(3));
        // With sums of 64 bits the second sum would be 0.
        assert_eq!(universal(rule, 2).size_ratio(&runs(&[(0, 1), (4, huge), (5, 5)]), 0), None);
    }
    let total = EarlyFull { total_size: Some(huge), ..EarlyFull::default() };
    assert_eq!(total.pick(&runs(&[(0, huge), (5, 1)]), None, 0), None);
    let incremental = EarlyFull { incremental_size: Some(huge), ..EarlyFull::default() };
    assert!(incremental.pick(&runs(&[(0, huge), (0, 1), (5, 0)]), None, 0).is_some());
    assert!(incremental.pick(&runs(&[(0, huge), (5, 1)]), None, 0).is_none());
}

#[test]
fn the_ratio_is_that_of_doubles_where_whole_numbers_would_differ() {
    let (newer, older) = (89_213_906_774_499, 90_106_045_842_244);
    assert!(u128::from(newer) * 101 < u128::from(older) * 100, "whole numbers would stop");
    let taken = universal(R0, 2).size_ratio(&runs(&[(0, newer), (2, older), (5, 1 << 60)]), 0);
    assert_eq!(taken.map(|pick| pick.runs), Some(2));
}

#[test]
fn off_peak_hours_add_to_the_ratio_until_before_their_end_and_over_midnight() {
    let hours = |start: i16, end: i16| {
        let hour = |hour: i16| u8::try_from(hour).ok();
        let off_peak = OffPeak::new(hour(start), hour(end), 10);
        (0..24).filter(|hour| off_peak.is_some_and(|off_peak| off_peak.ratio(*hour) == 10)).collect::<Vec<u8>>()
    };
    assert_eq!(hours(2, 5), [2, 3, 4]);
    assert_eq!(hours(22, 2), [0, 1, 22, 23]);
    assert_eq!(hours(23, 0), [23]);
    assert_eq!(hours(0, 23), (0..23).collect::<Vec<u8>>());
    for (start, end) in [(5, 5), (-1, 5), (5, -1), (-1, -1), (0, 0)] {
        assert!(hours(start, end).is_empty(), "{start} to {end}");
    }
    let strategy = Universal { off_peak: OffPeak::new(Some(22), Some(6), 10), ..universal(R0, 2) };
    let of = runs(&[(0, 100), (2, 111), (5, 1_000_000)]);
    assert_eq!(strategy.size_ratio(&of, 23).map(|pick| pick.runs), Some(2));
    assert_eq!(strategy.size_ratio(&of, 6), None);
    let above = runs(&[(0, 100), (2, 112), (5, 1_000_000)]);
    assert_eq!(strategy.size_ratio(&above, 23), None);
    // It holds for the runs that a count and a forced pick take further, too.
    let many = runs(&[(0, 1), (0, 99), (2, 111), (5, 1_000_000)]);
    assert_eq!(
        Universal { trigger: NonZeroU32::new(3).unwrap(), ..strategy }.run_count(&many, 23).map(|p| p.runs),
        Some(3)
    );
    let forced = ForceUp { universal: Universal { trigger: NonZeroU32::MAX, ..strategy }, max_interval: None };
    let at = |hour| forced.pick(&of, State::default(), Now { ms: 0, hour }).0.map(|pick| pick.runs);
    assert_eq!((at(23), at(12)), (Some(2), Some(1)));
    let picked = |hour| strategy.pick(&of, State::default(), Now { ms: 0, hour }).0.map(|pick| pick.why);
    assert_eq!((picked(23), picked(12)), (Some(Why::SizeRatio), Some(Why::RunCount)));
}

#[test]
fn what_is_merged_is_left_alone() {
    for rule in RULES {
        for of in [&[][..], &[(5, 7)], &[(5, 0)], &[(5, u64::MAX)]] {
            assert_eq!(pick(&universal(rule, 1), &runs(of)), None);
            assert_eq!(radical(rule, 5).pick(&runs(of), State::default(), Now::default()).0, None);
        }
    }
    assert!(!full::is_worthwhile(&[5], 5));
    assert!(full::is_worthwhile(&[4], 5));
    assert!(full::is_worthwhile(&[5, 5], 5));
    assert!(!full::is_worthwhile(&[], 0));
}

#[test]
fn runs_that_no_bucket_has_are_refused() {
    let new = |runs: &[(u32, u64)], levels| {
        Runs::new(runs.iter().map(|&(level, size)| Run { level, size }).collect(), levels)
    };
    assert_eq!(new(&[], 1), Err(BadRuns::TooFewLevels));
    assert_eq!(new(&[(0, 1)], 0), Err(BadRuns::TooFewLevels));
    assert_eq!(new(&[(0, 1), (1, 1), (1, 1)], 3), Err(BadRuns::Order { at: 2 }));
    assert_eq!(new(&[(1, 1), (0, 1)], 3), Err(BadRuns::Order { at: 1 }));
    assert_eq!(BadRuns::TooFewLevels.to_string(), "a bucket has two levels at least");
    assert_eq!(BadRuns::Order { at: 2 }.to_string(), "run 2 stands after one of its own or a higher level");
    // What is there decides over what was set.
    assert_eq!(new(&[(7, 1)], 3).unwrap().top(), 7);
    assert_eq!(new(&[(1, 1)], 1).unwrap().top(), 1);
    assert_eq!(new(&[], 2).unwrap().top(), 1);
    assert_eq!(new(&[(u32::MAX, 1)], u32::MAX).unwrap().top(), u32::MAX);
    let two = new(&[(0, 1), (0, 1), (3, 1)], 6).unwrap();
    assert_eq!((two.len(), two.level_0(), two.is_empty()), (3, 2, false));
    assert!(new(&[], 2).unwrap().is_empty());
}

#[test]
fn a_full_compaction_merges_all_but_a_last_level_that_has_no_reason() {
    let (plain, vector) = (TopFile::default(), TopFile { has_vector: true, ..TopFile::default() });
    let expired = TopFile { has_expired: true, ..TopFile::default() };
    assert_eq!(full::pick(&runs(&[]), &[], true), None);
    let top = runs(&[(5, 9)]);
    assert_eq!(full::pick(&top, &[plain, plain], false), None);
    assert_eq!(full::pick(&top, &[plain, vector, expired], false), Some(Full::Each(vec![1, 2])));
    assert_eq!(full::pick(&top, &[plain, plain], true), Some(Full::Each(vec![0, 1])));
    assert_eq!(full::pick(&runs(&[(4, 9)]), &[plain], false), Some(Full::All));
    assert_eq!(full::pick(&runs(&[(0, 1), (5, 9)]), &[plain], false), Some(Full::All));
    assert_eq!(full::pick(&runs(&[(0, 1), (0, 9)]), &[], false), Some(Full::All));
    assert_eq!(full::pick_clustered(&runs(&[]), false), None);
    assert_eq!(full::pick_clustered(&top, true), None);
    assert_eq!(full::pick_clustered(&top, false), Some(Full::All));
    assert_eq!(full::pick_clustered(&runs(&[(1, 1)]), true), Some(Full::All));
    assert_eq!(full::pick_clustered(&runs(&[(0, 1), (5, 1)]), true), Some(Full::All));
}

#[test]
fn deletes_are_dropped_where_nothing_older_is_below_them() {
    let drops = full::drops_deletes;
    assert!(drops(5, Some(5), false, false) && drops(3, Some(3), false, false) && drops(1, None, false, false));
    assert!(!drops(3, Some(4), false, false));
    assert!(drops(3, Some(4), true, false), "deletion vectors have taken the older rows away");
    assert!(!drops(0, Some(0), true, false) && !drops(0, None, false, false), "not on level 0");
    assert!(!drops(5, Some(5), true, true), "chain tables keep them");
}

#[test]
fn a_commit_waits_for_what_runs_and_for_level_0_where_writes_look_keys_up() {
    let waits = full::is_not_completed;
    assert!(waits(true, false, 0) && waits(false, true, 1));
    assert!(!waits(false, false, 1) && !waits(false, true, 0));
}

#[test]
fn a_full_compaction_is_refused_where_an_automatic_one_does_nothing() {
    use Request::{Automatic, Full as Wanted};
    assert_eq!((full::admit(Automatic, false, false), full::admit(Wanted, false, false)), (Ok(true), Ok(true)));
    assert_eq!((full::admit(Automatic, true, false), full::admit(Automatic, false, true)), (Ok(false), Ok(false)));
    assert_eq!(full::admit(Wanted, true, true), Err(Refusal::WriteOnly));
    assert_eq!(full::admit(Wanted, false, true), Err(Refusal::Running));
    assert!(Refusal::WriteOnly.to_string().contains("write-only"));
    assert!(Refusal::Running.to_string().contains("runs"));
}

#[test]
fn writes_wait_above_the_stop_trigger_and_not_at_it() {
    let options = Options::default();
    let stop = options.stop_trigger();
    assert_eq!(stop, 8);
    let considered = |count: usize| pick(&options.universal(), &runs(&vec![(0, 10); count])).is_some();
    let counts = 5..=9;
    assert_eq!(counts.clone().map(considered).collect::<Vec<_>>(), [true; 5]);
    let waits: Vec<bool> = counts.map(|count| stall::flush_waits(count as u64, stop)).collect();
    assert_eq!(waits, [false, false, false, false, true]);
    assert!(!considered(4));
    // A commit's own flush adds a run.
    assert!(!stall::commit_waits(9, stop) && stall::commit_waits(10, stop));
    assert!(!stall::commit_waits(u64::from(u32::MAX) + 1, u32::MAX) && stall::commit_waits(u64::MAX, u32::MAX));
    // Set below the compaction trigger it is lifted to it: else writes would wait for a merge that nobody starts.
    let low = Options::from_pairs([("num-sorted-run.stop-trigger", "2")]).unwrap();
    assert_eq!(low.stop_trigger(), 5);
}
