//! Streams the winning rows of the prefix into new fragments of the base, uncommitted.

use std::sync::Arc;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_select::filter::filter_record_batch;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, TryStreamExt};
use lance::dataset::transaction::Operation;
use lance::dataset::{InsertBuilder, WriteMode, WriteParams};
use lance_table::format::{Fragment, RowIdMeta};
use lance_table::rowids::{RowIdSequence, rechunk_sequences, write_row_ids};
use roaring::RoaringTreemap;

use super::ahead::ahead;
use super::columns::Columns;
use super::source::{Source, addresses};
use crate::error::{Doing, Error, Result};
use crate::run::Progress;
use crate::run::scan::ScanLimits;
use crate::table::Table;

/// What one pass puts into the base.
pub(super) struct Rows<'a> {
    pub(super) table: &'a Table,
    pub(super) sources: &'a [Source],
    pub(super) key: &'a [String],
    pub(super) limits: ScanLimits,
    pub(super) progress: &'a Arc<Progress>,
}

impl Rows<'_> {
    /// Writes the rows at `picked` (one bitmap a source) as new fragments.
    pub(super) async fn write(&self, picked: &[RoaringTreemap]) -> Result<Vec<Fragment>> {
        if picked.iter().all(RoaringTreemap::is_empty) {
            return Ok(Vec::new());
        }
        let params = WriteParams { mode: WriteMode::Append, ..Default::default() };
        let transaction = InsertBuilder::new(self.table.dataset.clone())
            .with_params(&params)
            .execute_uncommitted_stream(self.stream(picked)?)
            .await
            .doing(|| "writing the folded rows".into())?;
        match transaction.operation {
            Operation::Append { fragments } => Ok(fragments),
            other => Err(Error::Fatal(format!("an append became {other}"))),
        }
    }

    /// As [`Self::write`], for rows that replace base rows and keep their stable row ids.
    /// `ids` holds the row ids in the order of the stream: by source, then by address.
    pub(super) async fn write_with_ids(&self, picked: &[RoaringTreemap], ids: &[u64]) -> Result<Vec<Fragment>> {
        let mut fragments = self.write(picked).await?;
        if fragments.is_empty() {
            return Ok(fragments);
        }
        let sizes: Vec<u64> = fragments.iter().map(|f| f.physical_rows.unwrap_or(0) as u64).collect();
        let sequences = rechunk_sequences([RowIdSequence::from(ids)], sizes, false)?;
        for (fragment, sequence) in fragments.iter_mut().zip(sequences) {
            fragment.row_id_meta = Some(RowIdMeta::Inline(write_row_ids(&sequence).into()));
        }
        Ok(fragments)
    }

    /// The picked rows in the table's own columns, by source, then by address.
    fn stream(&self, picked: &[RoaringTreemap]) -> Result<SendableRecordBatchStream> {
        let columns = Arc::new(Columns::new(self.table.dataset.schema(), self.key));
        let scans: Vec<_> = self
            .sources
            .iter()
            .zip(picked)
            .filter(|(_, picked)| !picked.is_empty())
            .map(|(source, picked)| {
                let picked = (picked.len() < source.rows).then(|| picked.clone());
                let (columns, progress, from) = (columns.clone(), self.progress.clone(), source.schema.clone());
                let fence = self.table.fence.clone();
                let rows = source.scan_rows(self.limits).map(move |batch| {
                    fence.pass()?;
                    let batch = pick(batch?, picked.as_ref())?;
                    progress.rows(batch.num_rows() as u64);
                    columns.of_table(&batch, &from)
                });
                rows.try_filter(|batch| std::future::ready(batch.num_rows() > 0)).boxed()
            })
            .collect();
        let stream = ahead(scans).map_err(|e| DataFusionError::External(Box::new(e)));
        Ok(Box::pin(RecordBatchStreamAdapter::new(columns.plain.clone(), stream)))
    }
}

fn pick(batch: RecordBatch, picked: Option<&RoaringTreemap>) -> Result<RecordBatch> {
    let Some(picked) = picked else { return Ok(batch) };
    let keep: Vec<bool> = addresses(&batch)?.iter().map(|a| picked.contains(*a)).collect();
    if keep.iter().all(|k| *k) {
        return Ok(batch);
    }
    Ok(filter_record_batch(&batch, &BooleanArray::from(keep))?)
}
