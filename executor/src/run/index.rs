//! Brings indexes up to date (second of R3.4).

use lance::Dataset;
use lance::index::DatasetIndexExt;
use lance_index::optimize::OptimizeOptions;
use planner::job::IndexOp;

use crate::error::{Doing, Result};
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

/// A new segment beside the old ones is the cheap way. With stable row ids it is a wrong one: an
/// updated row keeps its id, so an old segment goes on answering with its old value. Merging all
/// segments drops such entries. A withdrawn index covers nothing, so that what is missing is all of it.
async fn one(dataset: &mut Dataset, name: &str, op: IndexOp) -> lance_core::Result<()> {
    let merge = op == IndexOp::Merge || dataset.manifest().uses_stable_row_ids();
    let options = match merge {
        true => OptimizeOptions::merge(dataset.load_indices_by_name(name).await?.len()),
        false => OptimizeOptions::append(),
    };
    dataset.optimize_indices(&options.index_names(vec![name.to_string()])).await
}
