//! What the base must hold of each key of a prefix, found in the plainest way: to check a fold by.

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, BooleanArray, RecordBatch};
use arrow_select::filter::filter_record_batch;
use futures::TryStreamExt;
use lance::dataset::mem_wal::TOMBSTONE;
use lance_core::datatypes::{Field, Schema};

use super::columns::Columns;
use super::source::Source;
use super::{Prefix, key_columns};
use crate::answers::{LIMITS, RowHasher};
use crate::error::Result;
use crate::table::{Table, shard_id};

/// Keys that are compared of one fold. Of more, every so many-th by its hash: memory stays bounded.
const KEYS_MAX: u64 = 1_000_000;

/// The newest row of each key of a prefix, as hashes.
pub(crate) struct Newest {
    /// `None`: the key is deleted.
    rows: HashMap<u128, Option<u128>>,
    one_in: u64,
}

impl Newest {
    /// Reads a prefix oldest first, each row taking the place of what its key had before.
    ///
    /// # Errors
    /// Whatever keeps an SSTable from being read.
    pub(crate) async fn of(table: &Table, prefixes: &[Prefix]) -> Result<Self> {
        let key: Vec<(String, i32)> = key_columns(table)?.into_iter().map(|(name, id, _)| (name, id)).collect();
        let names: Vec<String> = key.iter().map(|(name, _)| name.clone()).collect();
        let schema = table.dataset.schema();
        let columns = Columns::new(schema, &names);
        let mut sources = Vec::new();
        for prefix in prefixes {
            let shard = shard_id(&prefix.shard)?;
            for sstable in &prefix.sstables {
                sources.push(Source::open(table.clone(), shard, sstable.clone()).await?);
            }
        }
        let one_in = sources.iter().map(|source| source.rows).sum::<u64>().div_ceil(KEYS_MAX).max(1);
        let mut newest = Self { rows: HashMap::new(), one_in };
        let (mut keys, mut rows) = (RowHasher::default(), RowHasher::default());
        for source in &sources {
            let named = source.key_columns(&key)?;
            let mut batches = source.scan_rows(LIMITS);
            while let Some(batch) = batches.try_next().await? {
                let key = named.iter().filter_map(|name| batch.column_by_name(name).cloned()).collect::<Vec<_>>();
                let live = live(&batch);
                let kept = columns.of_table(&filter_record_batch(&batch, &live)?, &source.schema)?;
                let mut values = rows.hashes(&bytes_of_blobs(&kept, schema))?.into_iter();
                for (key, live) in keys.hashes(&key)?.into_iter().zip(live.values()) {
                    let row = if live { values.next() } else { None };
                    if newest.samples(key) {
                        newest.rows.insert(key, row);
                    }
                }
            }
        }
        Ok(newest)
    }

    /// Whether rows of this key are compared.
    pub(crate) fn samples(&self, key: u128) -> bool {
        key.is_multiple_of(u128::from(self.one_in))
    }

    /// Whether the prefix has a row or a tombstone of this key.
    pub(crate) fn holds(&self, key: u128) -> bool {
        self.rows.contains_key(&key)
    }

    /// The rows that the base must have.
    pub(crate) fn live(&self) -> impl Iterator<Item = u128> {
        self.rows.values().copied().flatten()
    }
}

fn live(batch: &RecordBatch) -> BooleanArray {
    match batch.column_by_name(TOMBSTONE).and_then(|column| column.as_boolean_opt()) {
        Some(dead) => dead.iter().map(|dead| Some(dead != Some(true))).collect(),
        None => BooleanArray::from(vec![true; batch.num_rows()]),
    }
}

/// The columns as a scan of the base gives them: a blob by its bytes, not in the form a write takes.
fn bytes_of_blobs(rows: &RecordBatch, schema: &Schema) -> Vec<ArrayRef> {
    let column = |(field, column): (&Field, &ArrayRef)| match column.as_struct_opt() {
        Some(blob) if field.is_blob() => blob.column(0).clone(),
        _ => column.clone(),
    };
    schema.fields.iter().zip(rows.columns()).map(column).collect()
}
