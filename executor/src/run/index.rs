//! Brings indexes up to date (second of R3.4).

use std::collections::BTreeSet;
use std::sync::Arc;

use lance::Dataset;
use lance::index::DatasetIndexExt;
use lance::index::optimize::{IndexSegmentResult, OptimizeIndicesPlan, commit_optimize_indices, plan_optimize_indices};
use lance_index::optimize::OptimizeOptions;
use lance_table::format::Fragment;
use planner::job::IndexOp;
use uuid::Uuid;

use crate::error::{Doing, Error, Result};
use crate::run::compact::Uncommitted;
use crate::run::files::discard_indexes;
use crate::run::properties;
use crate::table::Table;

/// Works on each of `indexes` in a commit of its own. One that fails does not stop the others; the
/// first failure is returned after all were tried.
pub(crate) async fn index(table: &Table, indexes: &[String], op: IndexOp, place: &'static str) -> Result<()> {
    let mut dataset = (*table.dataset).clone();
    dataset.checkout_latest().await.doing(|| format!("reopening `{}`", table.name))?;
    let mut failed = None;
    for name in indexes {
        table.fence.check().await?;
        let done = one(&mut dataset, name, op).await;
        if let Err(error) = done.doing(|| format!("bringing index `{name}` of `{}` up to date", table.name)) {
            failed.get_or_insert(error);
        }
        crate::fault::at(&table.uri, place).await;
    }
    failed.map_or(Ok(()), Err)
}

async fn one(dataset: &mut Dataset, name: &str, op: IndexOp) -> lance_core::Result<()> {
    let options = options(dataset, name, op).await?;
    dataset.optimize_indices(&options).await
}

/// A new segment beside the old ones is the cheap way. With stable row ids it is a wrong one: an
/// updated row keeps its id, so an old segment goes on answering with its old value. Merging all
/// segments drops such entries. A withdrawn index covers nothing, so that what is missing is all of it.
async fn options(dataset: &Dataset, name: &str, op: IndexOp) -> lance_core::Result<OptimizeOptions> {
    let merge = op == IndexOp::Merge || dataset.manifest().uses_stable_row_ids();
    let options = match merge {
        true => OptimizeOptions::merge(dataset.load_indices_by_name(name).await?.len()),
        false => OptimizeOptions::append(),
    };
    Ok(options.index_names(vec![name.to_string()]))
}

/// The fragments that an index does not cover.
pub(crate) async fn missing(table: &Table, name: &str) -> Result<Vec<Fragment>> {
    let segments = table.dataset.load_indices_by_name(name).await.doing(|| format!("reading index `{name}`"))?;
    let covered = |fragment: &&Fragment| {
        let id = u32::try_from(fragment.id).unwrap_or(u32::MAX);
        segments.iter().any(|segment| segment.fragment_bitmap.as_ref().is_some_and(|bitmap| bitmap.contains(id)))
    };
    Ok(table.dataset.manifest().fragments.iter().filter(|fragment| !covered(fragment)).cloned().collect())
}

/// Lance's own plan for bringing an index up to date in several tasks of at most `rows` rows.
///
/// `None`: it goes in one piece. Lance can't merge segments of every type (it can those of vector, btree,
/// bitmap, ngram and full-text indexes; with stable row ids not those of full-text ones), nor vector segments
/// of different models, and where an old segment waits for a remap it would only append to what is to be merged.
pub(crate) async fn plan(table: &Table, name: &str, op: IndexOp, rows: u64) -> Result<Option<OptimizeIndicesPlan>> {
    let planning = || format!("planning the parts of index `{name}` of `{}`", table.name);
    let mut options = options(&table.dataset, name, op).await.doing(planning)?;
    let merged = options.num_indices_to_merge != Some(0);
    options.max_rows_per_task = Some(rows.max(1));
    let plan = match plan_optimize_indices(&table.dataset, &options).await.doing(planning) {
        Ok(plan) => plan,
        Err(error @ Error::Retry(_)) => return Err(error),
        // What stands in the way of parts may not stand in the way of one piece; else that says so.
        Err(error) => {
            tracing::debug!(%error, "the index goes in one piece");
            return Ok(None);
        }
    };
    let of_merges = plan
        .merges
        .iter()
        .flat_map(|merge| merge.old_segments.iter().map(|segment| segment.uuid).chain(merge.replaces.iter().copied()));
    let of_tasks = plan.tasks.iter().flat_map(|task| task.old_segments.iter().map(|segment| segment.uuid));
    let gone: BTreeSet<Uuid> = of_merges.chain(of_tasks).collect();
    let segments = table.dataset.load_indices_by_name(name).await.doing(planning)?;
    let whole = !merged || segments.iter().all(|segment| gone.contains(&segment.uuid));
    if plan.tasks.len() > 1 && whole {
        return Ok(Some(plan));
    }
    let models = untrained(table, &plan).await?;
    discard_indexes(table, models.into_iter()).await;
    Ok(None)
}

/// Models that a plan has trained and no version has.
async fn untrained(table: &Table, plan: &OptimizeIndicesPlan) -> Result<BTreeSet<Uuid>> {
    let segments = table.dataset.load_indices().await.doing(|| format!("reading the indexes of `{}`", table.name))?;
    let known: BTreeSet<Uuid> = segments.iter().map(|segment| segment.uuid).collect();
    Ok(plan.tasks.iter().map(|task| task.reference.uuid).filter(|model| !known.contains(model)).collect())
}

/// Merges the segments that the tasks of `plan` built, commits them in one version, and deletes what
/// no version needs.
///
/// # Errors
/// `Conflict`: a fragment or the index changed meanwhile. What was written is deleted where it is certain
/// that it was not committed.
pub(crate) async fn publish(table: &Table, plan: &OptimizeIndicesPlan, built: Vec<IndexSegmentResult>) -> Result<()> {
    let mut written: BTreeSet<Uuid> = built.iter().map(|result| result.segment.uuid).collect();
    // An attempt at another plan may have had a model that this one takes from the table.
    written.extend(untrained(table, plan).await.unwrap_or_default());
    let published = merge_and_commit(table, plan, &built, &mut written).await;
    let (left, done) = match published {
        Ok(kept) => (written.difference(&kept).copied().collect(), Ok(())),
        Err(Uncommitted { error, certain: true }) => (written, Err(error)),
        Err(Uncommitted { error, certain: false }) => (BTreeSet::new(), Err(error)),
    };
    discard_indexes(table, left.into_iter()).await;
    done
}

async fn merge_and_commit(
    table: &Table,
    plan: &OptimizeIndicesPlan,
    built: &[IndexSegmentResult],
    written: &mut BTreeSet<Uuid>,
) -> Result<BTreeSet<Uuid>, Uncommitted> {
    let doing = || format!("merging the parts of an index of `{}`", table.name);
    let (stop, mut merged) = (table.fence.stop(), Vec::new());
    for merge in &plan.merges {
        let one = tokio::select! {
            one = merge.execute(&table.dataset, built) => one.doing(doing)?,
            () = stop.cancelled() => None,
        };
        table.fence.pass()?;
        written.extend(one.as_ref().map(|result| result.segment.uuid));
        merged.extend(one);
    }
    let kept: BTreeSet<Uuid> = merged.iter().map(|result| result.segment.uuid).collect();
    if kept.is_empty() {
        return Err(Uncommitted::from(Error::Fatal("the parts of the index built nothing".into())));
    }
    crate::fault::at(&table.uri, "index.merged").await;
    table.fence.check().await?;
    let mut options = OptimizeOptions::default();
    options.transaction_properties = Some(Arc::new(properties(table, "index").into_iter().collect()));
    let mut dataset = (*table.dataset).clone();
    match commit_optimize_indices(&mut dataset, merged, &options).await.doing(doing) {
        Ok(()) => Ok(kept),
        Err(error) => Err(Uncommitted { certain: matches!(error, Error::Conflict(_)), error }),
    }
}
