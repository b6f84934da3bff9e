//! The SSTables of one pass, opened as the Lance datasets they are.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_schema::{DataType, Schema as ArrowSchema, SchemaRef};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use lance::Dataset;
use lance::dataset::mem_wal::{TOMBSTONE, arrow_schema_with_field_ids};
use lance_core::ROW_ADDR;
use lance_core::datatypes::{BlobHandling, format_field_path_minimal};
use planner::job::SsTableId;
use uuid::Uuid;

use super::columns::field_id;
use crate::error::{Doing, Error, Result};
use crate::run::scan::ScanLimits;
use crate::table::Table;

/// One SSTable of the prefix.
pub(super) struct Source {
    pub(super) id: SsTableId,
    pub(super) dataset: Arc<Dataset>,
    /// The SSTable's columns with the table's field ids, `_tombstone` left out.
    pub(super) schema: SchemaRef,
    pub(super) rows: u64,
    /// Bytes on storage, blob side files included.
    bytes: u64,
    has_tombstones: bool,
}

impl Source {
    pub(super) async fn open(table: Table, shard: Uuid, id: SsTableId) -> Result<Self> {
        let dataset = table.open_sstable(&shard, &id.path).await?;
        let rows = dataset.count_rows(None).await.doing(|| format!("counting SSTable `{}`", id.path))?;
        let has_tombstones = dataset.schema().field(TOMBSTONE).is_some();
        let schema = without_tombstone(&arrow_schema_with_field_ids(dataset.schema()));
        check_drift(&table, &schema, &id.path)?;
        let bytes = stored_bytes(&table, &shard, &id, &dataset).await?;
        Ok(Self { id, bytes, dataset: Arc::new(dataset), schema, rows: rows as u64, has_tombstones })
    }

    /// Bytes of a row on storage, rounded up; what a scan's batch size follows from.
    fn row_bytes(&self) -> u64 {
        self.bytes.div_ceil(self.rows.max(1))
    }

    /// The key columns as this SSTable names them, in key order: a rename keeps the field id.
    pub(super) fn key_columns(&self, key: &[(String, i32)]) -> Result<Vec<String>> {
        key.iter()
            .map(|(name, id)| {
                let by_id = self.schema.fields().iter().find(|f| field_id(f) == Some(*id));
                by_id.map(|f| f.name().clone()).ok_or_else(|| {
                    Error::Invalid(format!("SSTable `{}` has no primary key column `{name}`", self.id.path))
                })
            })
            .collect()
    }

    /// Batches of (key columns as the base names them, `_tombstone` if any, row address).
    pub(super) fn scan_keys(
        &self,
        key: &[(String, i32)],
        limits: ScanLimits,
    ) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let mut columns = self.key_columns(key)?;
        if self.has_tombstones {
            columns.push(TOMBSTONE.into());
        }
        let paths: Vec<String> = columns.iter().map(|c| format_field_path_minimal(&[c])).collect();
        let names: Vec<String> = key.iter().map(|(name, _)| name.clone()).collect();
        let (dataset, path) = (self.dataset.clone(), self.id.path.clone());
        let open = async move {
            let mut scanner = dataset.scan();
            scanner.project(&paths)?.with_row_address();
            limits.apply(&mut scanner, 64);
            let stream = scanner.try_into_stream().await?;
            Ok::<_, Error>(stream.map(move |batch| rename(&batch?, &names)))
        };
        Ok(futures::stream::once(open)
            .try_flatten()
            .map(move |b| b.doing(|| format!("scanning the keys of SSTable `{path}`")))
            .boxed())
    }

    /// Batches of every column and the row address.
    pub(super) fn scan_rows(&self, limits: ScanLimits) -> BoxStream<'static, Result<RecordBatch>> {
        let (dataset, path, row_bytes) = (self.dataset.clone(), self.id.path.clone(), self.row_bytes());
        let open = async move {
            let mut scanner = dataset.scan();
            scanner.with_row_address().blob_handling(BlobHandling::AllBinary);
            limits.apply(&mut scanner, row_bytes);
            let stream = scanner.try_into_stream().await?;
            Ok::<_, Error>(stream.map_err(Error::from))
        };
        futures::stream::once(open).try_flatten().map(move |b| b.doing(|| format!("scanning SSTable `{path}`"))).boxed()
    }
}

async fn stored_bytes(table: &Table, shard: &Uuid, id: &SsTableId, dataset: &Dataset) -> Result<u64> {
    let files = dataset.manifest().fragments.iter().flat_map(|f| &f.files);
    let listed = files.filter_map(|f| f.file_size_bytes.get()).map(u64::from).sum();
    if !dataset.schema().fields_pre_order().any(|f| f.is_blob()) {
        return Ok(listed);
    }
    // Large blobs lie beside the data files, and the manifest does not count them.
    let data = table.shard_dir(shard).join(id.path.as_str()).join("data");
    let found = table.store().list(Some(data)).try_fold(0, |sum, file| std::future::ready(Ok(sum + file.size)));
    found.await.doing(|| format!("measuring SSTable `{}`", id.path))
}

/// The first columns of `batch` under the names the base gives the key.
fn rename(batch: &RecordBatch, names: &[String]) -> Result<RecordBatch> {
    let mut fields: Vec<_> = batch.schema().fields().iter().cloned().collect();
    for (field, name) in fields.iter_mut().zip(names) {
        if field.name() != name {
            *field = Arc::new(field.as_ref().clone().with_name(name));
        }
    }
    Ok(RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), batch.columns().to_vec())?)
}

/// The row addresses of a scanned batch.
pub(crate) fn addresses(batch: &RecordBatch) -> Result<&[u64]> {
    let column = batch.column_by_name(ROW_ADDR).ok_or_else(|| Error::Fatal(format!("a scan gave no {ROW_ADDR}")))?;
    Ok(column.as_primitive::<UInt64Type>().values())
}

fn without_tombstone(schema: &ArrowSchema) -> SchemaRef {
    let fields: Vec<_> = schema.fields().iter().filter(|f| f.name() != TOMBSTONE).cloned().collect();
    Arc::new(ArrowSchema::new_with_metadata(fields, schema.metadata().clone()))
}

/// Config key by which a table's owner agrees that values of columns dropped since are left behind.
const DROPPED_COLUMNS: &str = "caretaker.fold.dropped_columns";

/// Refuses an SSTable whose columns the table can't hold as they are. Columns the table gained
/// since are fine: they read as null. A column it lost, or one of another type, would drop values
/// without a word.
fn check_drift(table: &Table, sstable: &ArrowSchema, path: &str) -> Result<()> {
    let schema = table.dataset.schema();
    let manifest = table.dataset.manifest();
    let agreed = manifest.config.get(DROPPED_COLUMNS).is_some_and(|v| v == "leave");
    for field in sstable.fields() {
        let known = match field_id(field) {
            Some(id) => schema.fields.iter().find(|top| top.id == id),
            None => schema.field(field.name()),
        };
        let Some(known) = known else {
            let dropped = field_id(field).is_some_and(|id| id <= manifest.max_field_id());
            if dropped && agreed {
                continue;
            }
            return Err(Error::Invalid(format!(
                "SSTable `{path}` holds column `{}`, which the table does not have; nothing was folded: if it was dropped \
                 on purpose, set `{DROPPED_COLUMNS}` to `leave` in the table's config",
                field.name()
            )));
        };
        let expected = known.data_type();
        if !same_type(&expected, field.data_type()) && !known.is_blob() {
            return Err(Error::Invalid(format!(
                "SSTable `{path}` holds column `{}` as {}, the table as {expected}; nothing was folded: \
                 a column's type can't change while SSTables hold it",
                field.name(),
                plain(field.data_type())
            )));
        }
    }
    Ok(())
}

/// The type without the metadata its child fields carry.
fn plain(data_type: &DataType) -> DataType {
    let strip = |f: &Arc<arrow_schema::Field>| {
        Arc::new(arrow_schema::Field::new(f.name(), plain(f.data_type()), f.is_nullable()))
    };
    match data_type {
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(strip).collect()),
        DataType::List(f) => DataType::List(strip(f)),
        DataType::LargeList(f) => DataType::LargeList(strip(f)),
        DataType::FixedSizeList(f, n) => DataType::FixedSizeList(strip(f), *n),
        DataType::Map(f, sorted) => DataType::Map(strip(f), *sorted),
        other => other.clone(),
    }
}

/// Equal but for names and additions inside structs, which reconciling by field id takes care of.
fn same_type(table: &DataType, sstable: &DataType) -> bool {
    match (table, sstable) {
        (DataType::Struct(_), DataType::Struct(_)) | (DataType::Map(_, _), DataType::Map(_, _)) => true,
        (DataType::List(a), DataType::List(b)) | (DataType::LargeList(a), DataType::LargeList(b)) => {
            same_type(a.data_type(), b.data_type())
        }
        (DataType::FixedSizeList(a, n), DataType::FixedSizeList(b, m)) => {
            n == m && same_type(a.data_type(), b.data_type())
        }
        (a, b) => a == b,
    }
}
