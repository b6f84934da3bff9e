//! Rewrites neighbouring fragments (third of R3.4) by Lance's own tasks and commit.

mod batch;

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use lance::Dataset;
use lance::dataset::index::DatasetIndexRemapperOptions;
use lance::dataset::optimize::{
    CompactionOptions, CompactionTask, IndexRemapper, IndexRemapperOptions, RemappedIndex, RewriteResult, TaskData,
    commit_compaction,
};
use lance_core::utils::row_addr_remap::RowAddrRemap;
use lance_table::format::Fragment;
use planner::job::{JobSpec, Predicted};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{Doing, Error, Result};
use crate::run::files::{data_bytes, discard, discard_indexes};
use crate::run::{Progress, properties};
use crate::table::Table;

/// Bytes read ahead.
const IO_BUFFER_BYTES: u64 = 64 << 20;
/// Bytes of footers and encodings, which are no surprise.
const SMALL_BYTES: u64 = 1 << 20;

/// What a compaction did, beside what was foretold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CompactReport {
    /// Fragments rewritten.
    pub fragments_removed: u64,
    /// Fragments they became.
    pub fragments_added: u64,
    /// Rows of these.
    pub rows: u64,
    /// Bytes of their data files.
    pub bytes_written: u64,
    /// What the plan said.
    pub predicted: Option<Predicted>,
    /// How that differs from what happened, where it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub surprise: Option<String>,
    /// Version of the base that holds the result.
    pub version: u64,
}

/// How fragments are rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shape {
    /// Lance's `target_rows_per_fragment`.
    pub(crate) target_rows: u64,
    /// Whether index entries are remapped later.
    pub(crate) deferred: bool,
}

/// Why a compaction was not committed.
pub(crate) struct Uncommitted {
    pub(crate) error: Error,
    /// Whether it is certain that it was not.
    pub(crate) certain: bool,
}

impl From<Error> for Uncommitted {
    fn from(error: Error) -> Self {
        Self { error, certain: true }
    }
}

/// The fragments that `spec` rewrites, as they are now, and how it does.
pub(crate) fn planned(table: &Table, spec: &JobSpec) -> Result<(Vec<Vec<Fragment>>, Shape, Predicted)> {
    let JobSpec::Compact { tasks, deferred, target_rows, predicted, .. } = spec else {
        return Err(Error::Fatal("compact was given another job".into()));
    };
    let groups = tasks.iter().map(|ids| group(&table.dataset, ids)).collect::<Result<Vec<_>>>()?;
    Ok((groups, Shape { target_rows: *target_rows, deferred: *deferred }, *predicted))
}

/// Runs the tasks of `spec` on the newest version, where `spec` was just checked against it, and
/// commits them together.
///
/// # Errors
/// `Conflict`: a fragment changed meanwhile. `Fatal`: rows were lost or doubled on the way. In each
/// case nothing was changed, and what was written is deleted.
pub(crate) async fn compact(table: &Table, spec: &JobSpec, progress: &Progress) -> Result<CompactReport> {
    let (groups, shape, predicted) = planned(table, spec)?;
    let done = rewrite(table, &groups, shape, progress).await?;
    crate::fault::at(&table.uri, "compact.rewritten").await;
    let added: Vec<Fragment> = done.iter().flat_map(|r| r.new_fragments.clone()).collect();
    match commit(table, done, shape, predicted).await {
        Ok(report) => Ok(report),
        Err(Uncommitted { error, certain }) => {
            if certain {
                discard(table, added.iter()).await;
            }
            Err(error)
        }
    }
}

/// Rewrites each of `groups`, which are fragments of the version that `table` is at.
///
/// # Errors
/// As [`compact`].
pub(crate) async fn rewrite(
    table: &Table,
    groups: &[Vec<Fragment>],
    shape: Shape,
    progress: &Progress,
) -> Result<Vec<RewriteResult>> {
    let options = options(table, batch::rows(table, groups.iter().flatten()).await, shape)?;
    progress.start("compact", groups.iter().flatten().map(live).sum());
    let mut done: Vec<RewriteResult> = Vec::with_capacity(groups.len());
    let run = async {
        for fragments in groups {
            let read_version = table.version();
            let task = CompactionTask {
                task: TaskData { fragments: fragments.clone() },
                read_version,
                options: options.clone(),
            };
            // A task has no safe point of its own: what it has written is no version's, and Lance's cleanup
            // takes it.
            let stop = table.fence.stop();
            let result = tokio::select! {
                result = task.execute(&table.dataset) => result.doing(|| format!("compacting `{}`", table.name))?,
                () = stop.cancelled() => return table.fence.pass(),
            };
            let rows = check_rows(fragments, &result);
            done.push(result);
            progress.rows(rows?);
        }
        Ok(())
    };
    if let Err(error) = run.await {
        discard(table, done.iter().flat_map(|r| &r.new_fragments)).await;
        return Err(error);
    }
    Ok(done)
}

/// Commits rewrites of fragments, all in one version. What they wrote is the caller's to delete where that
/// is certain to have failed.
///
/// # Errors
/// As [`compact`].
pub(crate) async fn commit(
    table: &Table,
    done: Vec<RewriteResult>,
    shape: Shape,
    predicted: Predicted,
) -> Result<CompactReport, Uncommitted> {
    let before = || done.iter().flat_map(|r| &r.original_fragments);
    let added: Vec<Fragment> = done.iter().flat_map(|r| r.new_fragments.clone()).collect();
    let report = CompactReport { surprise: surprise(&predicted, &added), predicted: Some(predicted), ..report(&done) };
    if let Some(surprise) = &report.surprise {
        tracing::warn!(table = table.name, "a compaction came out otherwise than foretold: {surprise}");
    }
    if !is_progress(before(), &added) {
        return Err(Uncommitted::from(Error::Fatal(format!(
            "{} fragments became {} without a deleted row less: nothing was committed, since the same would be due \
             again at once",
            report.fragments_removed, report.fragments_added
        ))));
    }
    let options = options(table, 1, shape)?;
    table.fence.check().await?;
    let mut dataset = (*table.dataset).clone();
    let remapped = Arc::new(Remapped::default());
    let committed = commit_compaction(&mut dataset, done, remapped.clone(), &options).await;
    if let Err(error) = committed.doing(|| format!("committing the compaction of `{}`", table.name)) {
        // A definite answer: the files can't have been committed.
        let certain = matches!(error, Error::Conflict(_));
        if certain {
            discard_indexes(table, remapped.written().into_iter()).await;
        }
        return Err(Uncommitted { error, certain });
    }
    crate::fault::at(&table.uri, "compact.committed").await;
    Ok(CompactReport { version: dataset.manifest().version, ..report })
}

/// The fragments of one task as they are now.
pub(crate) fn group(dataset: &Dataset, ids: &[u64]) -> Result<Vec<Fragment>> {
    let all = &dataset.manifest().fragments;
    ids.iter()
        .map(|id| {
            let at = all.binary_search_by_key(id, |fragment| fragment.id);
            at.map(|at| all[at].clone()).map_err(|_| Error::Conflict(format!("fragment {id} is gone")))
        })
        .collect()
}

fn options(table: &Table, batch_rows: usize, shape: Shape) -> Result<CompactionOptions> {
    let target =
        usize::try_from(shape.target_rows.max(1)).map_err(|e| Error::Invalid(format!("the row target: {e}")))?;
    let options = CompactionOptions {
        target_rows_per_fragment: target,
        defer_index_remap: shape.deferred,
        batch_size: Some(batch_rows),
        io_buffer_size: Some(IO_BUFFER_BYTES),
        ..CompactionOptions::default()
    };
    Ok(options.transaction_properties(properties(table, "compact").into_iter().collect()))
}

/// A rewrite has as many live rows as what it replaces (report CMP-17).
pub(crate) fn check_rows(before: &[Fragment], result: &RewriteResult) -> Result<u64> {
    let after: u64 = result.new_fragments.iter().map(live).sum();
    // Where a manifest does not count deleted rows, there is nothing to compare with.
    let counted = before.iter().all(|f| f.num_rows().is_some());
    let wanted: u64 = before.iter().map(live).sum();
    if counted && wanted != after {
        return Err(Error::Fatal(format!(
            "the rewrite of {} fragments has {after} rows instead of {wanted}; nothing was committed",
            before.len()
        )));
    }
    Ok(after)
}

pub(crate) fn live(fragment: &Fragment) -> u64 {
    fragment.num_rows().or(fragment.physical_rows).unwrap_or_default() as u64
}

/// Where the outputs are not those the plan counted on: another number of fragments, or bytes beyond
/// twice or below half, which no change of encoding explains.
fn surprise(predicted: &Predicted, added: &[Fragment]) -> Option<String> {
    let (fragments, bytes) = (added.len() as u64, added.iter().map(data_bytes).sum::<u64>());
    let mut told = Vec::new();
    if fragments != predicted.fragments {
        told.push(format!("{fragments} fragments instead of {}", predicted.fragments));
    }
    let foretold = predicted.bytes.filter(|p| bytes / 2 > p + SMALL_BYTES || p / 2 > bytes + SMALL_BYTES);
    told.extend(foretold.map(|foretold| format!("{bytes} bytes instead of {foretold}")));
    (!told.is_empty()).then(|| told.join(", "))
}

/// Whether a rewrite brings the table closer to its fixed point (SPEC section 7).
fn is_progress<'a>(mut before: impl Iterator<Item = &'a Fragment> + Clone, added: &[Fragment]) -> bool {
    added.len() < before.clone().count() || before.any(|f| f.deletion_file.is_some())
}

/// Lance's own remapping of indexes, and what it wrote.
#[derive(Default)]
struct Remapped {
    written: Arc<Mutex<Vec<Uuid>>>,
}

impl Remapped {
    fn written(&self) -> Vec<Uuid> {
        self.written.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }
}

#[async_trait]
impl IndexRemapperOptions for Remapped {
    async fn create_remapper(&self, dataset: &Dataset) -> lance_core::Result<Option<Box<dyn IndexRemapper>>> {
        let remapper = DatasetIndexRemapperOptions::default().create_remapper(dataset).await?;
        let written = self.written.clone();
        Ok(remapper.map(|remapper| Box::new(Remapping { remapper, written }) as _))
    }
}

struct Remapping {
    remapper: Box<dyn IndexRemapper>,
    written: Arc<Mutex<Vec<Uuid>>>,
}

#[async_trait]
impl IndexRemapper for Remapping {
    async fn remap_indices(
        &self,
        index_map: RowAddrRemap,
        affected_fragment_ids: &[u64],
    ) -> lance_core::Result<Vec<RemappedIndex>> {
        let remapped = self.remapper.remap_indices(index_map, affected_fragment_ids).await?;
        // One that was kept as it is has its old id, and is no file of ours.
        let new = remapped.iter().filter(|index| index.new_id != index.old_id).map(|index| index.new_id);
        self.written.lock().unwrap_or_else(|e| e.into_inner()).extend(new);
        Ok(remapped)
    }
}

fn report(done: &[RewriteResult]) -> CompactReport {
    let added = || done.iter().flat_map(|r| &r.new_fragments);
    CompactReport {
        fragments_removed: done.iter().map(|r| r.original_fragments.len() as u64).sum(),
        fragments_added: added().count() as u64,
        rows: added().map(live).sum(),
        bytes_written: added().map(data_bytes).sum(),
        ..CompactReport::default()
    }
}
