//! Extends indexes over folded rows (R2.11). Lance records the progress with the same commit: an
//! index that covers every fragment of the version read is credited with its generations.

use std::sync::Arc;

use lance::Dataset;
use lance::index::DatasetIndexExt;
use lance_index::optimize::OptimizeOptions;

use crate::error::{Doing, Result};
use crate::table::Table;

/// Extends each of `indexes` over the rows it lacks. One that fails does not stop the others; the
/// first failure is returned after all were tried.
pub(crate) async fn catch_up(table: &Table, indexes: &[String]) -> Result<Table> {
    let mut dataset = (*table.dataset).clone();
    dataset.checkout_latest().await.doing(|| format!("reopening `{}`", table.name))?;
    let mut failed = None;
    for index in indexes {
        let done = extend(&mut dataset, index).await;
        if let Err(error) = done.doing(|| format!("extending index `{index}` of `{}`", table.name)) {
            failed.get_or_insert(error);
        }
        crate::fault::at(&table.uri, "catchup.after").await;
    }
    match failed {
        Some(error) => Err(error),
        None => Ok(Table { dataset: Arc::new(dataset), ..table.clone() }),
    }
}

/// A new segment beside the old ones is the cheap way. With stable row ids it is a wrong one: an
/// updated row keeps its id, so an old segment goes on answering with its old value. Merging all
/// segments drops such entries.
async fn extend(dataset: &mut Dataset, index: &str) -> lance_core::Result<()> {
    let options = match dataset.manifest().uses_stable_row_ids() {
        true => OptimizeOptions::merge(dataset.load_indices_by_name(index).await?.len()),
        false => OptimizeOptions::append(),
    };
    dataset.optimize_indices(&options.index_names(vec![index.to_string()])).await
}
