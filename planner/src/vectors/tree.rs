//! Cases of tables with a primary key.

use alloc::{
    collections::BTreeSet,
    string::{String, ToString},
    vec::Vec,
};
use core::num::NonZeroU32;
use serde::Deserialize;
use serde_json::{Value, json};

use super::options::OffPeakConfig;
use super::{Question, Why, impossible};
use crate::pick::early::{self, EarlyFull};
use crate::pick::full::{self, Full, TopFile};
use crate::pick::levels::{LevelFile, Levels};
use crate::pick::lookup::ForceUp;
use crate::pick::runs::{self, Now, Pick, Run, Runs, State};
use crate::pick::sections::{self, Merge, MergeFile, Step};
use crate::pick::stall;
use crate::pick::universal::Universal;

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PickConfig {
    trigger: NonZeroU32,
    max_size_amp: u32,
    size_ratio: u32,
    /// The last level, or else `num_levels`.
    max_level: Option<u32>,
    num_levels: Option<u32>,
    max_interval: Option<u32>,
    early: Option<EarlyConfig>,
    off_peak: Option<OffPeakConfig>,
}

impl Default for PickConfig {
    fn default() -> Self {
        let Universal { trigger, max_size_amp, size_ratio, .. } = crate::pick::options::Options::default().universal();
        let (max_level, num_levels, max_interval, early, off_peak) = (None, None, None, None, None);
        Self { trigger, max_size_amp, size_ratio, max_level, num_levels, max_interval, early, off_peak }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct EarlyConfig {
    interval_ms: Option<u64>,
    total_size: Option<u64>,
    incremental_size: Option<u64>,
    initial_last_full_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PickStep {
    runs: Vec<Run>,
    #[serde(default)]
    now_ms: u64,
    #[serde(default)]
    hour: u8,
    /// Of a `universal.create_unit`.
    #[serde(default)]
    run_count: usize,
}

/// One pick, or some that share their state.
pub(super) fn pick(question: &Question<'_>, strategy: &str) -> Result<Value, Why> {
    let config: PickConfig = question.config()?;
    let rules = question.profile.rules();
    let early = config.early.unwrap_or_default();
    let mut state = State { last_full_ms: early.initial_last_full_ms, skips: 0 };
    let early = EarlyFull {
        interval_ms: early.interval_ms,
        total_size: early.total_size,
        incremental_size: early.incremental_size,
        of_nothing: rules.java,
    };
    let universal = Universal {
        rule: rules.universal,
        trigger: config.trigger,
        max_size_amp: config.max_size_amp,
        size_ratio: config.size_ratio,
        off_peak: config.off_peak.map(OffPeakConfig::read).transpose()?.flatten(),
        early: early.is_enabled().then_some(early),
    };
    let num_levels = config.max_level.map(|level| level.saturating_add(1)).or(config.num_levels).unwrap_or(0);
    let force = ForceUp { universal, max_interval: config.max_interval };
    let mut one = |step: PickStep| {
        if step.hour > 23 || step.run_count > step.runs.len() {
            return Err(impossible("a day has 24 hours, and a pick no more runs than there are"));
        }
        let runs = Runs::new(step.runs, num_levels).map_err(impossible)?;
        let now = Now { ms: step.now_ms, hour: step.hour };
        let (pick, after) = match strategy {
            "universal.size_amp" => (universal.size_amplification(&runs), state),
            "universal.size_ratio" => (universal.size_ratio(&runs, now.hour), state),
            "universal.create_unit" => (Some(universal.unit(&runs, step.run_count, runs::Why::SizeRatio)), state),
            "force_up_l0.pick" => force.pick(&runs, state, now),
            "early_full.try" => {
                let pick = universal.early.and_then(|early| early.pick(&runs, state.last_full_ms, now.ms));
                (pick, universal.remember(&runs, pick, state, now))
            }
            _ => universal.pick(&runs, state, now),
        };
        state = after;
        Ok(answer(&runs, pick, state))
    };
    if question.input.contains_key("steps") {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Steps {
            steps: Vec<PickStep>,
        }
        let steps: Steps = question.input()?;
        let answers = steps.steps.into_iter().map(one).collect::<Result<Vec<Value>, Why>>()?;
        return Ok(json!({ "steps": answers }));
    }
    one(question.input()?)
}

fn answer(runs: &Runs, pick: Option<Pick>, state: State) -> Value {
    let sizes = |pick: Pick| runs.all().iter().take(pick.runs).map(|run| run.size).collect::<Vec<u64>>();
    json!({
        "picked": pick.is_some(), "picked_sizes": pick.map(sizes), "file_count": pick.map(|pick| pick.runs),
        "output_level": pick.map(|pick| pick.output_level), "why": pick.map(|pick| pick.why),
        "last_full_ms": state.last_full_ms, "skips": state.skips,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FullConfig {
    num_levels: u32,
    #[serde(default)]
    force_rewrite_all_files: bool,
    #[serde(default)]
    dv_files: Vec<String>,
    #[serde(default)]
    expired_files: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FullInput {
    runs: Vec<FullRun>,
    #[serde(default)]
    same_cluster_key: bool,
}

/// A run, with its files or as one file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FullRun {
    level: u32,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    name: String,
    files: Option<Vec<NamedFile>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedFile {
    #[serde(default)]
    name: String,
    size: u64,
}

impl FullRun {
    fn files(self) -> (u32, Vec<NamedFile>) {
        let one = NamedFile { name: self.name, size: self.size };
        (self.level, self.files.unwrap_or_else(|| Vec::from([one])))
    }
}

/// The runs, and the files of each.
fn full_input(input: FullInput, num_levels: u32) -> Result<(Runs, Vec<Vec<NamedFile>>), Why> {
    let (levels, files): (Vec<u32>, Vec<Vec<NamedFile>>) = input.runs.into_iter().map(FullRun::files).unzip();
    let size = |files: &Vec<NamedFile>| files.iter().fold(0u64, |sum, file| sum.saturating_add(file.size));
    let runs = levels.into_iter().zip(&files).map(|(level, files)| Run { level, size: size(files) });
    Ok((Runs::new(runs.collect(), num_levels).map_err(impossible)?, files))
}

fn full_answer(runs: &Runs, files: &[Vec<NamedFile>], full: Option<Full>) -> Value {
    let all = || files.iter().flatten().map(|file| file.size);
    let sizes = full.as_ref().map(|full| match full {
        Full::All => all().collect::<Vec<u64>>(),
        Full::Each(chosen) => all().enumerate().filter(|(n, _)| chosen.contains(n)).map(|(_, size)| size).collect(),
    });
    json!({
        "picked": full.is_some(), "picked_sizes": sizes, "file_count": sizes.as_ref().map(Vec::len),
        "output_level": full.is_some().then(|| runs.top()),
        "file_rewrite": full.map(|full| matches!(full, Full::Each(_))),
    })
}

/// A full compaction.
pub(super) fn full(question: &Question<'_>) -> Result<Value, Why> {
    let config: FullConfig = question.config()?;
    let (runs, files) = full_input(question.input()?, config.num_levels)?;
    let java = question.profile.rules().java;
    let look = |file: &NamedFile| TopFile {
        has_vector: config.dv_files.contains(&file.name),
        has_expired: java && config.expired_files.contains(&file.name),
    };
    let top: Vec<TopFile> = files.iter().flatten().map(look).collect();
    Ok(full_answer(&runs, &files, full::pick(&runs, &top, config.force_rewrite_all_files)))
}

/// A full compaction of a clustered table.
pub(super) fn clustered(question: &Question<'_>) -> Result<Value, Why> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Config {
        num_levels: u32,
    }
    let (config, input): (Config, FullInput) = (question.config()?, question.input()?);
    let same = input.same_cluster_key;
    let (runs, files) = full_input(input, config.num_levels)?;
    Ok(full_answer(&runs, &files, full::pick_clustered(&runs, same)))
}

/// A file of a bucket; what a case does not say follows from its place in the list.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileInput {
    level: u32,
    #[serde(default)]
    min: i64,
    #[serde(default)]
    max: i64,
    min_seq: Option<u64>,
    max_seq: Option<u64>,
    #[serde(default)]
    created: u64,
    name: Option<String>,
    size: Option<u64>,
    delete_rows: Option<u64>,
}

impl FileInput {
    fn size(&self) -> Result<u64, Why> {
        let keys = i128::from(self.max) - i128::from(self.min) + 1;
        let keys = u64::try_from(keys).map_err(|_| impossible("a file ends before it begins"))?;
        Ok(self.size.unwrap_or(keys))
    }

    fn read(&self, at: usize) -> Result<LevelFile<String, i64>, Why> {
        let max_seq = self.max_seq.unwrap_or(at as u64);
        Ok(LevelFile {
            id: self.name.clone().unwrap_or_else(|| at.to_string()),
            level: self.level,
            min: self.min,
            max: self.max,
            min_seq: self.min_seq.unwrap_or(max_seq),
            max_seq,
            created_ms: self.created,
            size: self.size()?,
        })
    }
}

fn arrange(files: &[FileInput], num_levels: u32) -> Result<(Vec<LevelFile<String, i64>>, Levels), Why> {
    let files = files.iter().enumerate().map(|(at, file)| file.read(at)).collect::<Result<Vec<_>, Why>>()?;
    let levels = Levels::new(&files, num_levels).map_err(impossible)?;
    Ok((files, levels))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CompactConfig {
    num_levels: u32,
    compaction_file_size: u64,
    pick: PickedRuns,
    #[serde(default)]
    force_keep_delete: bool,
    #[serde(default)]
    force_rewrite_all_files: bool,
    #[serde(default)]
    dv_enabled: bool,
}

/// Which runs a merge takes: the first ones to a level, or a word for it.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case", untagged)]
enum PickedRuns {
    Word(Word),
    First(FirstRuns),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    AllToMax,
    None,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FirstRuns {
    first_runs: usize,
    output_level: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Files {
    files: Vec<FileInput>,
}

/// A merge, and the bucket after it: what is rewritten together becomes one file.
pub(super) fn compact(question: &Question<'_>) -> Result<Value, Why> {
    let config: CompactConfig = question.config()?;
    let input: Files = question.input()?;
    let (files, levels) = arrange(&input.files, config.num_levels)?;
    let top = levels.runs.top();
    let (first, output_level) = match config.pick {
        PickedRuns::Word(Word::AllToMax) => (levels.runs.len(), top),
        PickedRuns::Word(Word::None) => (0, top),
        PickedRuns::First(first) => (first.first_runs, first.output_level),
    };
    if first > levels.runs.len() || output_level > top {
        return Err(impossible("a pick has no more runs and levels than there are"));
    }
    let picked: Vec<usize> = levels.files.iter().take(first).flatten().copied().collect();
    let picked_levels: Vec<u32> = picked.iter().map(|at| files[*at].level).collect();
    let submitted = full::is_worthwhile(&picked_levels, output_level);
    let to_merge = |at: &usize| MergeFile {
        level: files[*at].level,
        min: files[*at].min,
        max: files[*at].max,
        size: files[*at].size,
        deletes: input.files[*at].delete_rows,
        has_expired: false,
    };
    let merged: Vec<MergeFile<i64>> = if submitted { picked.iter().map(to_merge).collect() } else { Vec::new() };
    let (cutoff, force_rewrite_all) = (config.compaction_file_size, config.force_rewrite_all_files);
    let steps = Merge { output_level, top, cutoff, force_rewrite_all }.steps(&merged);
    let shown = |file: &MergeFile<i64>| json!([file.level, file.min, file.max]);
    let (mut rewritten, mut upgraded, mut after) = (Vec::new(), Vec::new(), Vec::new());
    let mut moved = BTreeSet::new();
    for step in steps {
        let of = match step {
            Step::Rewrite(of) => {
                rewritten.push(of.iter().map(|at| shown(&merged[*at])).collect::<Vec<Value>>());
                of
            }
            Step::Upgrade(at) => {
                upgraded.push(shown(&merged[at]));
                Vec::from([at])
            }
        };
        let (min, max) = (of.iter().map(|at| merged[*at].min).min(), of.iter().map(|at| merged[*at].max).max());
        after.push(json!([output_level, min, max]));
        moved.extend(of.into_iter().map(|at| picked[at]));
    }
    let stay = files.iter().enumerate().filter(|(at, _)| !moved.contains(at));
    after.extend(stay.map(|(_, file)| json!([file.level, file.min, file.max])));
    let keep = config.force_keep_delete && question.profile.rules().java;
    let drops = || full::drops_deletes(output_level, levels.highest(), config.dv_enabled, keep);
    Ok(json!({
        "submitted": submitted, "rewritten": rewritten, "upgraded": upgraded, "after": after,
        "drop_delete": submitted.then(drops),
    }))
}

/// Whether a commit has to wait for a merge.
pub(super) fn not_completed(question: &Question<'_>) -> Result<Value, Why> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Config {
        num_levels: u32,
        need_lookup: bool,
        #[serde(default)]
        running: bool,
    }
    let (config, input): (Config, Files) = (question.config()?, question.input()?);
    let (_, levels) = arrange(&input.files, config.num_levels)?;
    let level_0 = levels.runs.level_0();
    Ok(json!({ "not_completed": full::is_not_completed(config.running, config.need_lookup, level_0) }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LevelsConfig {
    num_levels: u32,
}

/// Files as runs, after an update where there is one.
pub(super) fn levels(question: &Question<'_>) -> Result<Value, Why> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Input {
        files: Vec<FileInput>,
        update: Option<Update>,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Update {
        before: Vec<FileInput>,
        after: Vec<FileInput>,
    }
    let (config, mut input): (LevelsConfig, Input) = (question.config()?, question.input()?);
    let (_, restored) = arrange(&input.files, config.num_levels)?;
    if let Some(update) = input.update {
        input.files.retain(|file| !update.before.iter().any(|before| before.name == file.name));
        input.files.extend(update.after);
    }
    let (files, levels) = arrange(&input.files, restored.runs.top().saturating_add(1))?;
    let name = |at: &usize| files[*at].id.clone();
    let runs = levels.runs.all().iter().zip(&levels.files);
    let order: Vec<Value> = runs.map(|(run, of)| json!([run.level, of.iter().map(name).collect::<Vec<_>>()])).collect();
    Ok(json!({
        "highest_non_empty": levels.highest().map_or(-1, i64::from), "max_level": levels.runs.top(),
        "sorted_runs": levels.runs.len(), "run_order": order,
        "total_size": u64::try_from(levels.total_size).unwrap_or(u64::MAX),
    }))
}

/// The sections of key ranges.
pub(super) fn intervals(question: &Question<'_>) -> Result<Value, Why> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Config {}
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Input {
        intervals: Vec<(i64, i64)>,
    }
    let (Config {}, input): (Config, Input) = (question.config()?, question.input()?);
    let ranges = input.intervals;
    let row = |row: &Vec<usize>| row.iter().map(|at| ranges[*at]).collect::<Vec<_>>();
    let sections = sections::sections(&ranges);
    let sections: Vec<Vec<_>> = sections.iter().map(|section| section.iter().map(row).collect()).collect();
    Ok(json!({ "sections": sections }))
}

/// When a new writer's clock starts.
pub(super) fn seed(question: &Question<'_>) -> Result<Value, Why> {
    let (config, input): (LevelsConfig, Files) = (question.config()?, question.input()?);
    let created = input.files.iter().map(|file| (file.level, file.created));
    let seeds = question.profile.rules().seeds_clock;
    let last_full_ms = seeds.then(|| early::last_full_ms(created, config.num_levels)).flatten();
    Ok(json!({ "last_full_ms": last_full_ms }))
}

/// Who waits at how many runs.
pub(super) fn stall(question: &Question<'_>) -> Result<Value, Why> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Config {
        stop_trigger: u32,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Input {
        sorted_runs: u64,
    }
    let (config, input): (Config, Input) = (question.config()?, question.input()?);
    let (runs, stop) = (input.sorted_runs, config.stop_trigger);
    Ok(json!({ "flush_waits": stall::flush_waits(runs, stop), "checkpoint_waits": stall::commit_waits(runs, stop) }))
}
