//! What an index answers, beside what a full scan answers.

mod scalar;
mod text;
mod vector;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, ArrayRef};
use futures::TryStreamExt;
use lance::Dataset;
use lance::dataset::ProjectionRequest;
use lance::dataset::scanner::Scanner;
use lance::index::DatasetIndexExt;
use lance_core::ROW_ADDR;
use lance_table::system_index::is_system_index;
use roaring::RoaringTreemap;

use super::Answers;
use super::digest::LIMITS;
use crate::error::{Doing, Error, Result};
use crate::read::kind;
use crate::table::Table;

/// Rows whose values are asked for, spread over the table.
const ROWS: u64 = 16;

/// One index to ask.
struct Asked<'a> {
    dataset: &'a Arc<Dataset>,
    /// Name of the index.
    name: &'a str,
    /// Its column's path, quoted where SQL needs it.
    column: String,
    /// Lance's own description of it, as JSON.
    details: serde_json::Value,
    /// Values of the column.
    values: ArrayRef,
}

/// Compares a sample of the answers of the indexes that are named, or of all.
///
/// # Errors
/// `Mismatch` only: what can't be compared is told in `answers`.
pub(crate) async fn compare(table: &Table, names: Option<&[String]>, answers: &mut Answers) -> Result<()> {
    let described = match table.dataset.describe_indices(None).await {
        Ok(described) => described,
        Err(error) => {
            answers.skipped.push(format!("indexes: {}", Error::from(error)));
            return Ok(());
        }
    };
    let own = described.iter().filter(|index| !index.metadata().iter().any(is_system_index));
    for index in own.filter(|index| names.is_none_or(|names| names.iter().any(|name| name == index.name()))) {
        match one(table, index.as_ref()).await {
            Ok(true) => answers.indexes.push(index.name().to_string()),
            Ok(false) => answers.skipped.push(format!("index `{}`: no answers to compare", index.name())),
            Err(Error::Mismatch(why)) => return Err(Error::Mismatch(format!("index `{}` {why}", index.name()))),
            Err(error) => answers.skipped.push(format!("index `{}`: {error}", index.name())),
        }
    }
    Ok(())
}

/// Whether there was something to compare.
async fn one(table: &Table, index: &dyn lance_index::IndexDescription) -> Result<bool> {
    let dataset = &table.dataset;
    let field = index.field_ids().first().and_then(|id| i32::try_from(*id).ok());
    let Some(column) = field.and_then(|id| dataset.schema().field_path(id).ok()) else { return Ok(false) };
    let details = index.details().ok().and_then(|details| serde_json::from_str(&details).ok());
    let values = values(dataset, &column).await?;
    if values.null_count() == values.len() {
        return Ok(false);
    }
    let details = details.unwrap_or_default();
    let asked = Asked { dataset, name: index.name(), column, details, values };
    match kind(index.index_type()).as_str() {
        "btree" | "bitmap" | "zonemap" | "bloomfilter" => scalar::equal(&asked).await,
        "labellist" => scalar::labels(&asked).await,
        "ngram" => scalar::substrings(&asked).await,
        "fts" => text::words(&asked).await,
        kind if kind.starts_with("ivf") || kind.starts_with("hnsw") => vector::nearest(&asked).await,
        _ => Ok(false),
    }
}

/// Values of a column, from rows spread over the table.
async fn values(dataset: &Dataset, column: &str) -> Result<ArrayRef> {
    let rows = dataset.count_rows(None).await.doing(|| "counting rows".into())? as u64;
    let step = rows.div_ceil(ROWS).max(1);
    // From the middle of each step: the last rows are those that were folded or written last.
    let rows: Vec<u64> = (0..rows).step_by(step as usize).map(|at| (at + step - 1).min(rows - 1)).collect();
    let taken = dataset.take(&rows, ProjectionRequest::from_sql([("value", column)])).await;
    let taken = taken.doing(|| format!("reading values of `{column}`"))?;
    Ok(taken.column(0).clone())
}

/// The rows that a scan finds, by address.
///
/// # Errors
/// `Mismatch` when it finds a row twice.
async fn found(mut scanner: Scanner) -> Result<RoaringTreemap> {
    scanner.empty_project()?.with_row_address();
    LIMITS.apply(&mut scanner, 64);
    rows(scanner).await
}

async fn rows(scanner: Scanner) -> Result<RoaringTreemap> {
    let (mut found, mut count) = (RoaringTreemap::new(), 0);
    let mut batches = scanner.try_into_stream().await?;
    while let Some(batch) = batches.try_next().await? {
        let addresses = batch.column_by_name(ROW_ADDR);
        let addresses = addresses.ok_or_else(|| Error::Fatal(format!("a scan gave no {ROW_ADDR}")))?;
        count += addresses.len() as u64;
        found.extend(addresses.as_primitive::<UInt64Type>().values().iter().copied());
    }
    match count == found.len() {
        true => Ok(found),
        false => Err(Error::Mismatch(format!("answers with a row twice: {count} answers, {} rows", found.len()))),
    }
}

/// Whether both found the same rows.
fn same(index: &RoaringTreemap, scan: &RoaringTreemap, question: &str) -> Result<()> {
    if index == scan {
        return Ok(());
    }
    let (missing, wrong) = ((scan - index).len(), (index - scan).len());
    Err(Error::Mismatch(format!(
        "misses {missing} rows and has {wrong} that are none, of {} that a full scan finds for {question}",
        scan.len()
    )))
}
