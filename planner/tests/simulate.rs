//! The simulation: when things happen, what goes wrong, what can't break it, and how it is drawn.
//!
//! `UPDATE=1` writes the drawings of `timelines/` anew; read the difference.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::{env, fs};

use planner::plan::Measure;
use planner::policy::{GIB, MIB, Policy};
use planner::simulate::{Fault, JobOutcome, JobRecord, PRESETS, Simulation, Timeline, Unfit, WORKLOAD, Workload, run};
use planner::{check, draw};
use proptest::prelude::*;

const SECOND: u64 = 1_000;
const HOUR: u64 = 3_600 * SECOND;
const DAY: u64 = 24 * HOUR;
const FOLD: &str = "memwal_compaction";

/// Ten thousand rows of a kilobyte are an SSTable; a hundred a second come: one in a hundred seconds.
fn workload() -> Workload {
    Workload { flush_rows: 10_000, btree_indexes: 0, ..Workload::default() }
}

fn simulation(workload: Workload, duration_ms: u64) -> Simulation {
    Simulation { workload, duration_ms, ..Simulation::default() }
}

fn ran(workload: Workload, duration_ms: u64) -> Timeline {
    run(&simulation(workload, duration_ms)).unwrap()
}

fn with(faults: Vec<Fault>) -> Timeline {
    run(&Simulation { faults, ..simulation(workload(), HOUR) }).unwrap()
}

fn folds(timeline: &Timeline) -> Vec<&JobRecord> {
    timeline.jobs.iter().filter(|job| job.kind == FOLD).collect()
}

fn why(job: &JobRecord) -> (Measure, Option<u64>, Option<u64>) {
    let why = job.why.as_ref().unwrap();
    (why.measure, why.observed, why.threshold)
}

#[test]
fn the_same_simulation_gives_the_same_timeline_and_the_seed_chooses_what_fails() {
    let failing = Workload { failure_permille: 300, ..workload() };
    let of = |seed| run(&Simulation { seed, ..simulation(failing.clone(), DAY) }).unwrap();
    assert_eq!(of(1), of(1));
    assert!(of(1).totals.failures > 0);
    let failed = |timeline: Timeline| -> Vec<u64> {
        timeline.jobs.iter().filter(|job| job.outcome == JobOutcome::Failed).map(|job| job.id).collect()
    };
    assert_ne!(failed(of(1)), failed(of(2)));
}

#[test]
fn the_fourth_sstable_makes_a_fold_due_at_the_next_tick() {
    let timeline = ran(workload(), HOUR);
    let folds = folds(&timeline);
    // Four hundred seconds make four SSTables, and that is a tick already.
    assert_eq!(folds[0].enqueued_ms, 400 * SECOND);
    assert_eq!(why(folds[0]), (Measure::SsTables, Some(4), Some(4)));
    assert_eq!(timeline.totals.unfolded_max, 4);
    // The walk of every 7 seconds comes 6 seconds later, and not in between.
    let policy = Policy { tick_ms: 7 * SECOND, ..Policy::default() };
    let later = run(&Simulation { policy, ..simulation(workload(), HOUR) }).unwrap();
    assert_eq!(self::folds(&later)[0].enqueued_ms, 406 * SECOND);
}

#[test]
fn bytes_make_a_fold_due_before_the_count_does() {
    let policy = Policy { trigger_count: 100, trigger_bytes: 25 << 20, ..Policy::default() };
    let timeline = run(&Simulation { policy, ..simulation(workload(), HOUR) }).unwrap();
    let first = folds(&timeline)[0].clone();
    // Three times 10000 rows of 1024 bytes are the first that reach it.
    assert_eq!(why(&first), (Measure::SsTableBytes, Some(30_720_000), Some(25 << 20)));
    assert_eq!(first.enqueued_ms, 300 * SECOND);
}

#[test]
fn age_freezes_a_memtable_and_folds_its_sstable_and_staleness_is_twice_the_age() {
    let policy = Policy { age_ms_max: HOUR, ..Policy::default() };
    let slow = Workload { rows_per_sec: 1, ..workload() };
    let timeline = run(&Simulation { policy, ..simulation(slow, DAY) }).unwrap();
    let first = folds(&timeline)[0].clone();
    // The first row comes after a second; an hour later it is flushed, and an hour after that folded: of what
    // time alone makes due the agent knows when, and waits for no walk.
    assert_eq!(why(&first), (Measure::SsTableAgeMs, Some(HOUR), Some(HOUR)));
    assert_eq!(first.enqueued_ms, 2 * HOUR + SECOND);
    let staleness = timeline.totals.staleness;
    assert_eq!(staleness.bound_ms, Some(2 * HOUR + 5 * SECOND));
    assert!(!staleness.above && staleness.over_time.max > 2 * HOUR, "{staleness:?}");
}

#[test]
fn a_pass_takes_no_more_than_the_policy_lets_it() {
    let policy = Policy { trigger_count: 64, prefix_max: 10, ..Policy::default() };
    let timeline = run(&Simulation { policy, ..simulation(workload(), 3 * HOUR) }).unwrap();
    let first = folds(&timeline)[0].clone();
    assert_eq!((first.read_bytes, first.written_bytes), (10 * 10_240_000, 10 * 10_240_000));
}

#[test]
fn each_preset_keeps_the_staleness_bound_and_every_invariant() {
    for preset in PRESETS {
        let timeline = ran(Workload::preset(preset.name).unwrap(), 7 * DAY);
        assert!(!timeline.totals.staleness.above, "{}", preset.name);
        assert_eq!(check::facts(&timeline.facts), Ok(()), "{}", preset.name);
        assert_eq!(check::plan(&timeline.plan, &timeline.facts, &Policy::default()), Ok(()), "{}", preset.name);
        for line in draw::timeline(&timeline).lines() {
            assert!(line.chars().count() < draw::WIDTH, "{line}");
        }
    }
}

#[test]
fn a_table_that_nobody_writes_to_any_more_comes_to_rest() {
    // A burst of an hour, then nothing: what is left is folded when it is old enough.
    let policy = Policy { age_ms_max: 6 * HOUR, ..Policy::default() };
    let once = Workload { burst_every_ms: 300 * DAY, quiet_from_ms: HOUR, quiet_to_ms: DAY - SECOND, ..workload() };
    let timeline = run(&Simulation { policy, ..simulation(once, DAY - 2 * SECOND) }).unwrap();
    assert_eq!(timeline.totals.rows, 360_000);
    assert_eq!(timeline.facts.live_rows(), Some(360_000));
    assert_eq!(timeline.samples.staleness_ms.last(), Some(&0));
    assert_eq!(timeline.plan.jobs().count(), 0);
    assert!(timeline.jobs.iter().all(|job| job.outcome == JobOutcome::Done));
}

#[test]
fn more_rows_a_second_never_mean_fewer_passes() {
    let passes = |rows_per_sec| ran(Workload { rows_per_sec, ..workload() }, DAY).totals.passes;
    let all: Vec<u64> = [0, 1, 10, 50, 100, 200, 400].map(passes).into();
    assert!(all.is_sorted() && all[6] > all[1], "{all:?}");
}

#[test]
fn updates_of_hot_keys_collapse_and_replaced_rows_are_marked() {
    let hot = Workload {
        update_permille: 1_000,
        hot_update_permille: 1_000,
        hot_keys_permille: 1,
        table_rows: 1_000_000,
        ..workload()
    };
    let timeline = ran(hot, HOUR);
    let fold = folds(&timeline)[0].clone();
    // 40000 updates of a thousand keys leave a thousand rows, and the table is as large as it was.
    assert!(fold.read_bytes == 40_960_000 && fold.written_bytes <= 1_024_000, "{fold:?}");
    assert_eq!(timeline.facts.live_rows(), Some(1_000_000));
}

#[test]
fn deletes_take_rows_away_and_compaction_what_they_leave() {
    let deletes = Workload { delete_permille: 1_000, table_rows: 1_000_000, ..workload() };
    let timeline = ran(deletes, 2 * HOUR);
    let live = timeline.facts.live_rows().unwrap();
    assert_eq!(live, 1_000_000 - timeline.totals.folded * 10_000);
    assert!(timeline.totals.jobs["compact"].done > 0);
}

#[test]
fn every_kind_of_index_is_caught_up_after_each_fold_and_only_then_sstables_retire() {
    let indexed = Workload { btree_indexes: 2, fts_indexes: 1, ivfpq_indexes: 1, ..workload() };
    let timeline = ran(indexed, 3 * HOUR);
    let jobs = &timeline.totals.jobs;
    for kind in ["btree", "fts", "ivfpq"] {
        assert_eq!(jobs[&format!("memwal_catchup_{kind}")].done, timeline.totals.passes, "{kind}");
    }
    assert!(jobs["memwal_retire"].done >= timeline.totals.passes - 1);
    // Eight segments are left alone, the ninth makes a merge due.
    assert!(jobs["reindex_btree"].done > 0);
    assert!(timeline.facts.indexes.iter().all(|index| index.segments <= Some(9)));
}

#[test]
fn shards_that_are_due_together_are_one_pass_and_one_commit() {
    let timeline = ran(Workload { shards: 4, rows_per_sec: 400, ..workload() }, HOUR);
    let mut folds = folds(&timeline);
    folds.retain(|fold| fold.outcome == JobOutcome::Done);
    assert_eq!(folds.len() as u64, 4 * timeline.totals.passes);
    assert!(folds.chunks(4).all(|pass| pass.iter().all(|fold| fold.ended_ms == pass[0].ended_ms)));
    assert_eq!(
        timeline.facts.version,
        1 + timeline.totals.passes + timeline.totals.jobs.get("compact").map_or(0, |k| k.done)
    );
}

#[test]
fn without_a_log_each_write_is_a_commit() {
    let plain = Workload { lsm: 0, rows_per_write: 10_000, ..workload() };
    let timeline = ran(plain, HOUR);
    assert_eq!((timeline.totals.commits, timeline.totals.flushes), (36, 0));
    assert_eq!(timeline.facts.live_rows(), Some(360_000));
    assert!(timeline.facts.shards.is_empty() && timeline.totals.jobs["compact"].done > 0);
}

#[test]
fn a_dead_workers_jobs_run_again_when_it_was_silent_for_long_enough() {
    // The first fold begins at 400 s and takes a little more than a second.
    let at_ms = 400 * SECOND + 500;
    let timeline = with(vec![Fault::WorkerDies { at_ms, silent_ms: 60 * SECOND }]);
    let first = folds(&timeline)[0].clone();
    assert_eq!((first.attempts, first.started_ms), (2, Some(at_ms + 60 * SECOND)));
    assert_eq!((first.outcome, timeline.totals.jobs[FOLD].lost), (JobOutcome::Done, 1));
    assert_eq!(check::facts(&timeline.facts), Ok(()));
}

#[test]
fn a_commit_that_lost_is_planned_anew_at_the_next_tick() {
    let timeline = with(vec![Fault::CommitConflict { at_ms: 400 * SECOND }]);
    let folds = folds(&timeline);
    assert_eq!(folds[0].outcome, JobOutcome::Conflict);
    assert_eq!(folds[1].outcome, JobOutcome::Done);
    assert!(folds[1].enqueued_ms - folds[0].ended_ms.unwrap() <= SECOND);
    assert_eq!(timeline.totals.failures, 0);
}

#[test]
fn a_burst_brings_as_many_rows_as_it_says() {
    let timeline = with(vec![Fault::Burst { at_ms: 600 * SECOND, for_ms: 60 * SECOND, times: 11 }]);
    assert_eq!(timeline.totals.rows, 360_000 + 60_000);
}

#[test]
fn a_clock_that_goes_back_loses_nothing_and_folding_goes_on() {
    let timeline = with(vec![Fault::ClockBack { at_ms: 1_000 * SECOND, by_ms: 500 * SECOND }]);
    assert_eq!(check::facts(&timeline.facts), Ok(()));
    assert_eq!(timeline.totals.passes, with(vec![]).totals.passes);
    assert_eq!(conserved(&timeline), timeline.totals.rows);
}

#[test]
fn a_full_disk_holds_writes_and_fails_jobs_until_there_is_room() {
    let timeline = with(vec![Fault::DiskFull { at_ms: 400 * SECOND + 200, for_ms: 600 * SECOND }]);
    // The memtable is full after a hundred seconds, and then clients wait.
    assert_eq!(timeline.totals.stalled_ms, 500 * SECOND + 200);
    assert_eq!(timeline.samples.stalled_ms.iter().sum::<u64>(), 500 * SECOND + 200);
    assert!(timeline.totals.failures > 0 && timeline.totals.passes > 0);
    assert_eq!(conserved(&timeline), timeline.totals.rows);
}

#[test]
fn while_the_registry_is_away_nothing_is_decided() {
    let (at_ms, for_ms) = (300 * SECOND, 900 * SECOND);
    let timeline = with(vec![Fault::RegistryAway { at_ms, for_ms }]);
    assert_eq!(folds(&timeline)[0].enqueued_ms, at_ms + for_ms);
    assert!(timeline.totals.unfolded_max >= 11);
}

#[test]
fn back_pressure_holds_writes_where_folds_are_slower_than_clients() {
    let slow = Workload { worker_bytes_per_sec: 64 << 10, stop_sstables: 6, ..workload() };
    let timeline = ran(slow, 6 * HOUR);
    assert_eq!(timeline.totals.unfolded_max, 6);
    assert!(timeline.totals.stalled_ms > HOUR);
    assert_eq!(conserved(&timeline), timeline.totals.rows);
}

#[test]
fn with_the_walk_off_only_relief_folds() {
    let policy = Policy { tick_ms: 0, ..Policy::default() };
    let off = run(&Simulation { policy: policy.clone(), ..simulation(workload(), HOUR) }).unwrap();
    assert_eq!((off.totals.passes, off.totals.staleness.bound_ms), (0, None));
    let tight = Workload { stop_sstables: 8, ..workload() };
    let relieved = run(&Simulation { policy, ..simulation(tight, HOUR) }).unwrap();
    assert!(relieved.totals.passes > 0 && relieved.totals.unfolded_max == 8);
}

#[test]
fn cleanup_removes_versions_and_what_only_they_needed() {
    let mut policy = Policy::default();
    let kept = run(&Simulation { policy: policy.clone(), ..simulation(workload(), 3 * DAY) }).unwrap();
    policy.cleanup.min_age_ms = HOUR;
    let cleaned = run(&Simulation { policy, ..simulation(workload(), 3 * DAY) }).unwrap();
    assert!(cleaned.totals.versions < kept.totals.versions / 4);
    let last = |timeline: &Timeline| *timeline.samples.disk_bytes.last().unwrap();
    assert!(last(&cleaned) < last(&kept));
    assert!(cleaned.totals.space_amplification_permille < kept.totals.space_amplification_permille);
}

#[test]
fn it_goes_on_from_the_facts_that_another_one_ended_with() {
    let whole = ran(workload(), 2 * HOUR);
    let half = ran(workload(), HOUR);
    let start_ms = Some(half.start_ms + HOUR);
    let facts = Some(half.facts.clone());
    let rest = run(&Simulation { facts, start_ms, ..simulation(workload(), HOUR) }).unwrap();
    // What was in a memtable is not in the facts.
    let passes = half.totals.passes + rest.totals.passes;
    assert!(passes.abs_diff(whole.totals.passes) <= 1, "{passes} {}", whole.totals.passes);
    assert!(rest.facts.live_rows() > half.facts.live_rows());
    assert_eq!(check::after(&half.facts, &rest.facts), Ok(()));
}

/// Rows of inserts, wherever they are.
fn conserved(timeline: &Timeline) -> u64 {
    let shards = timeline.facts.shards.iter();
    let waiting = shards.flat_map(|shard| shard.unfolded().into_iter().map(|s| s.rows.unwrap()).collect::<Vec<_>>());
    timeline.facts.live_rows().unwrap() + waiting.sum::<u64>() + timeline.totals.memtable_rows
}

#[test]
fn what_is_out_of_range_is_refused_and_too_much_ends_with_an_error() {
    let refused = |simulation: &Simulation| run(simulation).unwrap_err();
    let of = |workload| refused(&simulation(workload, HOUR));
    assert!(matches!(of(Workload { row_bytes: 0, ..workload() }), Unfit::Workload(r) if r.key == "row_bytes"));
    let both = Workload { update_permille: 600, delete_permille: 600, ..workload() };
    assert!(matches!(of(both), Unfit::Workload(r) if r.key == "delete_permille"));
    for duration_ms in [0, 59_999, 401 * DAY, u64::MAX] {
        assert!(matches!(refused(&simulation(workload(), duration_ms)), Unfit::Bounds(r) if r.key == "duration_ms"));
    }
    let many = Simulation { samples: 5_001, ..simulation(workload(), HOUR) };
    assert!(matches!(refused(&many), Unfit::Bounds(r) if r.key == "samples"));
    let late = Simulation { faults: vec![Fault::CommitConflict { at_ms: HOUR + 1 }], ..simulation(workload(), HOUR) };
    assert!(matches!(refused(&late), Unfit::Bounds(r) if r.key == "at_ms"));
    for lsm in [0, 1] {
        let tiny = Workload { lsm, rows_per_sec: 10_000_000, rows_per_write: 1, flush_rows: 1, ..workload() };
        let error = refused(&simulation(Workload { burst_every_ms: 2 * HOUR, ..tiny }, 400 * DAY));
        assert!(matches!(error, Unfit::TooMany { .. }), "{error}");
        assert!(error.to_string().contains("raise the flush size"), "{error}");
    }
}

#[test]
fn every_knob_is_documented_set_by_its_key_and_within_its_bounds() {
    let defaults = Workload::default();
    assert_eq!(defaults.check(), Ok(()));
    for knob in WORKLOAD {
        assert!(knob.help.ends_with('.'), "{}", knob.key);
        assert!(knob.min > 0 || knob.zero.is_some(), "{}: what does 0 mean?", knob.key);
        let mut workload = defaults.clone();
        workload.set(knob.key, &knob.text(&defaults)).unwrap();
        assert_eq!(workload, defaults);
        workload.set(knob.key, &knob.max.to_string()).unwrap();
        assert_eq!(knob.value(&workload), knob.max, "{}", knob.key);
        assert!(workload.set(knob.key, &(knob.max + 1).to_string()).is_err(), "{}", knob.key);
    }
    assert!(Workload::from_pairs([("rows_per_second", "1")]).unwrap_err().why.contains("`rows_per_sec`"));
    assert!(Workload::preset("no such").unwrap_err().why.contains("insert-only"));
    for preset in PRESETS {
        assert_eq!(Workload::preset(preset.name).unwrap().check(), Ok(()));
    }
    let toml = Workload { flush_bytes: 64 * MIB, ..defaults }.to_toml();
    assert!(toml.contains("\nflush_bytes = \"64MiB\"\n") && toml.contains("\n# rows_per_sec = 100\n"));
}

#[test]
fn jobs_are_bounded_and_those_left_out_are_counted() {
    let timeline = ran(Workload { rows_per_sec: 1_000, ..workload() }, 2 * DAY);
    let totals = &timeline.totals.jobs;
    let all: u64 = totals.values().map(|kind| kind.done + kind.failed + kind.conflicts + kind.open).sum();
    let left_out: u64 = timeline.jobs_left_out.values().sum();
    assert_eq!((timeline.jobs.len(), all - left_out), (2_000, 2_000));
    assert!(timeline.jobs.is_sorted_by_key(|job| (job.enqueued_ms, job.id)));
}

#[test]
fn series_are_of_one_length_and_keep_their_peaks_however_few_they_are() {
    let (few, many) = (60, 5_000);
    let of = |samples| run(&Simulation { samples, ..simulation(workload(), DAY) }).unwrap().samples;
    let (coarse, fine) = (of(few), of(many));
    assert!(coarse.at_ms.len() as u64 <= few && fine.at_ms.len() as u64 <= many);
    assert_eq!((coarse.at_ms.last(), fine.at_ms.last()), (Some(&DAY), Some(&DAY)));
    let most = |values: &[u64]| values.iter().max().copied();
    assert_eq!(most(&coarse.unfolded), most(&fine.unfolded));
    assert_eq!(most(&coarse.staleness_ms), most(&fine.staleness_ms));
    for samples in [&coarse, &fine] {
        let columns =
            [&samples.unfolded, &samples.staleness_ms, &samples.disk_bytes, &samples.queued, &samples.versions];
        assert!(columns.iter().all(|column| column.len() == samples.at_ms.len()));
        assert_eq!(samples.shards[0].unfolded, samples.unfolded);
    }
}

#[test]
fn timelines_read_as_they_were_drawn() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/timelines");
    for name in ["zipfian-updates", "bursty"] {
        let file = folder.join(format!("{name}.txt"));
        let now = draw::timeline(&ran(Workload::preset(name).unwrap(), 2 * DAY));
        if env::var_os("UPDATE").is_some() {
            fs::write(&file, &now).unwrap();
        }
        assert_eq!(fs::read_to_string(&file).unwrap_or_default(), now, "{}", file.display());
    }
}

#[test]
fn a_picture_is_one_document_and_no_name_ends_its_text() {
    let mut timeline = ran(workload(), HOUR);
    timeline.facts.table = "</text><script>alert(1)</script>&\"'\u{7}".into();
    timeline.jobs[0].kind = "<b>\"".into();
    let svg = draw::svg(&timeline);
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert!(!svg.contains("<script") && !svg.contains("<b>") && svg.contains("&lt;script&gt;"));
    assert!(svg.contains("prefers-color-scheme:dark"));
    assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
}

/// Any workload that its knobs allow.
fn any_workload() -> impl Strategy<Value = Workload> {
    let rows = (0u64..200, 1u64..4_096, 0u64..1_001, 0u64..1_001, 0u64..1_001, 0u64..5_000_000);
    let log = (0u64..2, 1u64..5, 2_000u64..9_000, 2_000u64..200_000, 1u64..80);
    let times = (0u64..DAY, 1u64..HOUR, 0u64..9, 0u64..24, 0u64..24);
    let work = (1u64..5, 1u64..200, 0u64..5_000, 0u64..400, 0u64..3, 0u64..2);
    (rows, log, times, work).prop_map(|(rows, log, times, work)| {
        let (rows_per_sec, row_bytes, update, delete, hot_update_permille, table_rows) = rows;
        let (lsm, shards, rows_per_write, flush_rows, stop_sstables) = log;
        let (burst_every_ms, burst_for_ms, burst_times, from, to) = times;
        let (worker_slots, speed, commit_ms, failure_permille, btree_indexes, fts_indexes) = work;
        Workload {
            rows_per_sec,
            row_bytes,
            update_permille: update,
            delete_permille: delete * (1_000 - update) / 1_000,
            hot_update_permille,
            table_rows,
            lsm,
            shards,
            rows_per_write,
            flush_rows,
            stop_sstables,
            burst_every_ms: burst_every_ms / SECOND * SECOND,
            burst_for_ms: burst_for_ms.max(SECOND),
            burst_times,
            quiet_from_ms: from * HOUR,
            quiet_to_ms: to * HOUR,
            worker_slots,
            worker_bytes_per_sec: speed * MIB,
            commit_ms,
            failure_permille,
            btree_indexes,
            fts_indexes,
            ..Workload::default()
        }
    })
}

fn any_fault() -> impl Strategy<Value = Fault> {
    (0u64..6, 0u64..6 * HOUR, 0u64..2 * HOUR, 0u64..9).prop_map(|(kind, at_ms, for_ms, times)| match kind {
        0 => Fault::WorkerDies { at_ms, silent_ms: for_ms },
        1 => Fault::CommitConflict { at_ms },
        2 => Fault::Burst { at_ms, for_ms, times },
        3 => Fault::ClockBack { at_ms, by_ms: for_ms },
        4 => Fault::DiskFull { at_ms, for_ms },
        _ => Fault::RegistryAway { at_ms, for_ms },
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_workload_ends_and_leaves_a_table_that_can_be(
        workload in any_workload(),
        faults in proptest::collection::vec(any_fault(), 0..5),
        seed in any::<u64>(),
        min_age in 0u64..3,
    ) {
        let mut policy = Policy::default();
        policy.cleanup.min_age_ms = min_age * HOUR;
        policy.trigger_bytes = GIB;
        let simulation = Simulation { workload, policy, faults, seed, ..simulation(self::workload(), 6 * HOUR) };
        let timeline = match run(&simulation) {
            Ok(timeline) => timeline,
            Err(unfit) => {
                prop_assert!(matches!(unfit, Unfit::TooMany { .. }), "{unfit}");
                return Ok(());
            }
        };
        prop_assert_eq!(check::facts(&timeline.facts), Ok(()));
        prop_assert_eq!(check::plan(&timeline.plan, &timeline.facts, &simulation.policy), Ok(()));
        let inserts = simulation.workload.update_permille == 0 && simulation.workload.delete_permille == 0;
        if inserts {
            prop_assert_eq!(conserved(&timeline), timeline.totals.rows + simulation.workload.table_rows);
        }
        prop_assert!(timeline.totals.staleness.over_time.p50 <= timeline.totals.staleness.over_time.max);
        prop_assert!(timeline.samples.at_ms.len() as u64 <= simulation.samples);
        let _ = (draw::timeline(&timeline), draw::svg(&timeline));
    }

    #[test]
    fn inserts_are_conserved(workload in any_workload(), seed in any::<u64>()) {
        let workload = Workload { update_permille: 0, delete_permille: 0, ..workload };
        let rows = workload.table_rows;
        if let Ok(timeline) = run(&Simulation { seed, ..simulation(workload, 6 * HOUR) }) {
            prop_assert_eq!(conserved(&timeline), timeline.totals.rows + rows);
        }
    }
}
