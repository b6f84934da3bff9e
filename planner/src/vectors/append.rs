//! Cases of append-only tables.

use alloc::{
    collections::BTreeMap,
    format,
    string::{String, ToString},
    vec::Vec,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Question, Why, impossible};
use crate::pick::append::{self, AppendFile, FullRules};
use crate::pick::coordinator::{Coordinator, File, Partition, Task, Vector};
use crate::pick::options::Options;
use crate::pick::pre_commit::{Emitted, PreCommit, Waiting};
use crate::pick::rules::SMALL_FILE_RATIO;

/// Most files of one case.
const FILES_MAX: usize = 100_000;

/// A file; its size is that of its sequence numbers where the case does not say it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileInput {
    min_seq: u64,
    max_seq: u64,
    size: Option<u64>,
    #[serde(default)]
    name: String,
    #[serde(default)]
    dv: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Files {
    files: Vec<FileInput>,
}

fn files(question: &Question<'_>, vectors: &[String]) -> Result<Vec<AppendFile<String>>, Why> {
    let input: Files = question.input()?;
    let read = |file: FileInput| {
        let rows = file.max_seq.checked_sub(file.min_seq).ok_or_else(|| impossible("a file ends before it begins"))?;
        Ok(AppendFile {
            min_seq: file.min_seq,
            max_seq: file.max_seq,
            size: file.size.unwrap_or(rows.saturating_add(1)),
            has_vector: file.dv || vectors.contains(&file.name),
            id: file.name,
        })
    };
    input.files.into_iter().map(read).collect()
}

fn numbers(files: &[AppendFile<String>]) -> Vec<(u64, u64)> {
    files.iter().map(|file| (file.min_seq, file.max_seq)).collect()
}

fn names(files: &[AppendFile<String>]) -> Vec<&str> {
    files.iter().map(|file| file.id.as_str()).collect()
}

/// An automatic pick.
pub(super) fn auto(question: &Question<'_>) -> Result<Value, Why> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Config {
        min_file_num: u32,
        target_file_size: u64,
    }
    let config: Config = question.config()?;
    let rule = question.profile.rules().append;
    let pick = append::auto(files(question, &[])?, config.min_file_num, config.target_file_size, rule);
    let picked = (!pick.picked.is_empty()).then(|| numbers(&pick.picked));
    Ok(json!({ "picked": picked, "queue_after": numbers(&pick.queue), "forgotten": numbers(&pick.forgotten) }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FullConfig {
    compaction_file_size: u64,
    #[serde(default)]
    force_rewrite_all_files: bool,
    #[serde(default)]
    dv_enabled: bool,
    dv_files: Option<Vec<String>>,
    rewriter: Option<Rewriter>,
}

/// What becomes of the files that are rewritten.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Rewriter {
    /// They come out as they were.
    Identity,
}

impl FullConfig {
    fn rules(&self) -> FullRules {
        FullRules {
            cutoff: self.compaction_file_size,
            vectors: self.dv_enabled || self.dv_files.is_some(),
            force_rewrite_all: self.force_rewrite_all_files,
        }
    }
}

/// What a full compaction that runs rewrites.
pub(super) fn full_task(question: &Question<'_>) -> Result<Value, Why> {
    let config: FullConfig = question.config()?;
    let files = files(question, config.dv_files.as_deref().unwrap_or_default())?;
    Ok(json!({ "before": numbers(&append::full(files, &config.rules())) }))
}

/// A full compaction from the request to the queue after it.
pub(super) fn full(question: &Question<'_>) -> Result<Value, Why> {
    let config: FullConfig = question.config()?;
    let Some(Rewriter::Identity) = config.rewriter else { return Err(Why::Field("`config`: no `rewriter`".into())) };
    let (rules, mut queue) = (config.rules(), files(question, config.dv_files.as_deref().unwrap_or_default())?);
    queue.sort_unstable();
    if !append::is_full_due(queue.len(), &rules) {
        let queue = names(&queue);
        return Ok(json!({ "submitted": false, "compacting": null, "before": null, "queue_after": queue }));
    }
    let before = append::full(queue.clone(), &rules);
    let back: Vec<&str> = match before.last() {
        Some(last) if append::goes_back(last.size, rules.cutoff) => Vec::from([last.id.as_str()]),
        _ => Vec::new(),
    };
    Ok(json!({
        "submitted": true, "compacting": names(&queue), "before": names(&before), "queue_after": back,
    }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CoordinatorConfig {
    min_file_num: u32,
    target_file_size: Option<u64>,
    open_file_cost: Option<u64>,
    delete_ratio: Option<f64>,
    #[serde(default)]
    dv_enabled: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CoordinatorInput {
    steps: Vec<CoordinatorStep>,
}

/// Either files that are seen, or a plan.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum CoordinatorStep {
    Add(Vec<Seen>),
    Plan(bool),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Seen {
    size: u64,
    #[serde(default = "one")]
    count: usize,
    #[serde(default = "hundred")]
    rows: u64,
    dv_cardinality: Option<u64>,
    index_file: Option<String>,
}

fn one() -> usize {
    1
}

fn hundred() -> u64 {
    100
}

/// Files of a partition as they are seen, and its plans.
pub(super) fn coordinator(question: &Question<'_>) -> Result<Value, Why> {
    let config: CoordinatorConfig = question.config()?;
    let input: CoordinatorInput = question.input()?;
    let rules = question.profile.rules();
    if config.dv_enabled && !rules.java {
        return Err(impossible("this profile's coordinator takes no table with deletion vectors"));
    }
    let defaults = Options::default();
    let target = config.target_file_size.unwrap_or(defaults.target_file_size(false));
    let ratio = config.delete_ratio.unwrap_or(defaults.delete_ratio_threshold);
    let coordinator = Coordinator {
        min_file_num: config.min_file_num,
        target,
        cutoff: rules.compaction_file_size(target, SMALL_FILE_RATIO),
        open_file_cost: config.open_file_cost.unwrap_or(defaults.open_file_cost),
        delete_ratio: config.dv_enabled.then_some(ratio),
    };
    let (mut partition, mut seen, mut answers) = (None, 0, Vec::new());
    for step in input.steps {
        let tasks = match step {
            CoordinatorStep::Add(files) => {
                let files = add(files, &mut seen)?;
                partition = Some(coordinator.notify(partition.unwrap_or_default(), files));
                None
            }
            CoordinatorStep::Plan(false) => return Err(Why::Field("`input`: `plan` is `true`".into())),
            CoordinatorStep::Plan(true) => {
                let (tasks, after) = plan(&coordinator, partition.take().unwrap_or_default(), rules.java);
                partition = after;
                Some(tasks)
            }
        };
        let task_files: Option<Vec<usize>> = tasks.as_ref().map(|tasks| tasks.iter().map(Vec::len).collect());
        answers.push(json!({
            "tasks": tasks.map(|tasks| tasks.len()), "task_files": task_files, "alive": partition.is_some(),
            "held": partition.as_ref().map_or(0, |partition| partition.held.len()),
            "age": partition.as_ref().map(|partition| partition.age),
        }));
    }
    Ok(json!({ "steps": answers }))
}

/// C++ scans the table for each plan, so that whatever is left is found again.
fn plan(
    coordinator: &Coordinator,
    mut partition: Partition<String>,
    java: bool,
) -> (Vec<Task<String>>, Option<Partition<String>>) {
    if java {
        return coordinator.plan(partition);
    }
    let tasks = coordinator.once(partition.held.clone());
    for file in tasks.iter().flatten() {
        partition.held.remove(file);
    }
    (tasks, Some(partition))
}

/// The files of a step, each with a name of its own.
fn add(files: Vec<Seen>, seen: &mut usize) -> Result<Vec<File<String>>, Why> {
    let mut added = Vec::new();
    for file in files {
        if file.count > FILES_MAX - *seen {
            return Err(impossible(format!("a case has {FILES_MAX} files at most")));
        }
        for n in *seen..*seen + file.count {
            let id = n.to_string();
            let vector = file.dv_cardinality.map(|deleted| {
                let index = file.index_file.clone().unwrap_or_else(|| id.clone());
                Vector { index, deleted: Some(deleted) }
            });
            added.push(File { size: file.size, id, rows: file.rows, vector });
        }
        *seen += file.count;
    }
    Ok(added)
}

/// Either files that arrive, or a checkpoint.
#[derive(Deserialize)]
#[serde(untagged)]
enum PreCommitStep {
    Barrier(Barrier),
    Arrive(Arrive),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Barrier {
    barrier: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arrive {
    checkpoint: u64,
    partition: String,
    sizes: Vec<u64>,
}

/// Files on their way to a commit.
pub(super) fn pre_commit(question: &Question<'_>) -> Result<Value, Why> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Config {
        target_file_size: u64,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Input {
        steps: Vec<PreCommitStep>,
    }
    let (config, input): (Config, Input) = (question.config()?, question.input()?);
    let target = config.target_file_size;
    let cutoff = question.profile.rules().compaction_file_size(target, SMALL_FILE_RATIO);
    let rules = PreCommit { target, cutoff };
    let (mut waiting, mut outputs) = (BTreeMap::<String, Waiting<u64>>::new(), Vec::new());
    let mut emit = |checkpoint: u64, partition: &str, emitted: Emitted<u64>| {
        let (kind, sizes) = match emitted {
            Emitted::Commit(sizes) => ("commit", sizes),
            Emitted::Compact(sizes) => ("compact", sizes),
        };
        outputs.push(json!({ "checkpoint": checkpoint, "partition": partition, "kind": kind, "sizes": sizes }));
    };
    for step in input.steps {
        match step {
            PreCommitStep::Arrive(Arrive { checkpoint, partition, sizes }) => {
                let held = waiting.remove(&partition).unwrap_or_default();
                let (emitted, held) = rules.arrive(held, sizes.into_iter().map(|size| (size, size)));
                emitted.into_iter().for_each(|emitted| emit(checkpoint, &partition, emitted));
                waiting.insert(partition, held);
            }
            PreCommitStep::Barrier(Barrier { barrier }) => {
                for (partition, held) in core::mem::take(&mut waiting) {
                    held.barrier().into_iter().for_each(|emitted| emit(barrier, &partition, emitted));
                }
            }
        }
    }
    Ok(json!({ "outputs": outputs }))
}
