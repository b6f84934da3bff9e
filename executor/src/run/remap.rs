//! Remaps index entries that deferred compactions left, then trims the list of rewrites (fifth of R3.4).

use lance::Dataset;
use lance::dataset::index::frag_reuse::cleanup_frag_reuse_index;
use lance::dataset::optimize::remapping::remap_column_index;
use lance::index::DatasetIndexExt;

use crate::error::{Doing, Error, Result};
use crate::read::listed_rewrites;
use crate::table::Table;

/// One index after the other, each in commits of its own; then what no index needs any more is taken
/// off the list, whatever became of the indexes before.
///
/// # Errors
/// `Fatal` when every index was remapped and rewrites stay on the list all the same: it would grow
/// for ever, and each read of the table with it.
pub(crate) async fn remap(table: &Table, indexes: &[String]) -> Result<()> {
    let mut dataset = (*table.dataset).clone();
    dataset.checkout_latest().await.doing(|| format!("reopening `{}`", table.name))?;
    let listed = listed_rewrites(table).await?;
    let mut failed = None;
    for name in indexes {
        table.fence.check().await?;
        let done = one(&mut dataset, name).await;
        if let Err(error) = done.doing(|| format!("remapping index `{name}` of `{}`", table.name)) {
            failed.get_or_insert(error);
        }
        crate::fault::at(&table.uri, "remap.after").await;
    }
    // What still needed an older rewrite kept Lance from trimming younger ones as well: each pass may
    // free the next, until one frees nothing.
    let mut left = listed.len() + 1;
    let left = loop {
        table.fence.check().await?;
        let trimmed = cleanup_frag_reuse_index(&mut dataset).await;
        trimmed.doing(|| format!("trimming the fragment reuse index of `{}`", table.name))?;
        let still = listed_rewrites(&table.refreshed().await?).await?;
        if still.len() >= left || still.is_empty() {
            break still;
        }
        left = still.len();
        dataset.checkout_latest().await.doing(|| format!("reopening `{}`", table.name))?;
    };
    if let Some(error) = failed {
        return Err(error);
    }
    let stuck: Vec<u64> = listed.into_iter().filter(|version| left.contains(version)).collect();
    match stuck.first() {
        None => Ok(()),
        Some(oldest) => Err(Error::Fatal(format!(
            "every index of `{}` was remapped, and {} rewrites stay in its fragment reuse index, the oldest of version \
             {oldest}; rebuild the indexes that are older than that (`create_index` with `replace=True`)",
            table.name,
            stuck.len()
        ))),
    }
}

async fn one(dataset: &mut Dataset, name: &str) -> lance_core::Result<()> {
    let segments = dataset.load_indices_by_name(name).await?;
    let field = segments.first().and_then(|segment| segment.fields.first().copied());
    let Some(column) = field.and_then(|id| dataset.schema().field_path(id).ok()) else {
        // Dropped since: nothing needs its entries.
        return Ok(());
    };
    remap_column_index(dataset, &[&column], Some(name.to_string())).await
}
