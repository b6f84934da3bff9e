//! Rows of an SSTable as rows of the table: columns matched by field id, added ones as null.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, StringArray, StructArray, new_null_array};
use arrow_schema::{DataType, Field, Schema as ArrowSchema, SchemaRef};
use lance::dataset::mem_wal::{arrow_schema_with_field_ids, reconcile_batches};
use lance_core::datatypes::{LANCE_FIELD_ID_KEY, Schema};

use crate::error::{Error, Result};

/// The columns of the table, as the fold writes them.
pub(super) struct Columns {
    /// The table's Arrow schema: what comes out.
    pub(super) plain: SchemaRef,
    /// All but the blobs, with field ids, for Lance's own reconciling.
    target: SchemaRef,
    /// Blobs by name: a scan gives their bytes, a write takes bytes in another form.
    blobs: Vec<Blob>,
    key: Vec<String>,
}

struct Blob {
    at: usize,
    id: i32,
    field: Arc<Field>,
}

impl Columns {
    pub(super) fn new(schema: &Schema, key: &[String]) -> Self {
        let with_ids = arrow_schema_with_field_ids(schema);
        let mut plain: Vec<Field> = ArrowSchema::from(schema).fields().iter().map(|f| f.as_ref().clone()).collect();
        let mut blobs = Vec::new();
        for (at, field) in schema.fields.iter().enumerate().filter(|(_, f)| f.is_blob()) {
            if field.is_blob_v2() {
                let written = lance::blob_field(&field.name, field.nullable);
                let metadata = plain[at].metadata().iter().chain(written.metadata());
                let metadata = metadata.map(|(k, v)| (k.clone(), v.clone())).collect();
                plain[at] = written.with_metadata(metadata);
            }
            blobs.push(Blob { at, id: field.id, field: Arc::new(plain[at].clone()) });
        }
        let is_blob = |at: &usize| blobs.iter().any(|b| b.at == *at);
        let target: Vec<_> =
            with_ids.fields().iter().enumerate().filter(|(at, _)| !is_blob(at)).map(|f| f.1.clone()).collect();
        Self {
            plain: Arc::new(ArrowSchema::new_with_metadata(plain, with_ids.metadata().clone())),
            target: Arc::new(ArrowSchema::new(target)),
            blobs,
            key: key.to_vec(),
        }
    }

    /// `batch` as scanned from an SSTable whose columns, without `_tombstone`, are `from`.
    pub(super) fn of_table(&self, batch: &RecordBatch, from: &SchemaRef) -> Result<RecordBatch> {
        let blob_of = |f: &Field| self.blobs.iter().find(|b| field_id(f) == Some(b.id));
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        for field in from.fields().iter().filter(|f| blob_of(f).is_none()) {
            fields.push(field.clone());
            columns.push(named(batch, field.name())?.clone());
        }
        let source = ArrowSchema::new(fields);
        let typed = ArrowSchema::new(
            source
                .fields()
                .iter()
                .zip(&columns)
                .map(|(f, c)| f.as_ref().clone().with_data_type(c.data_type().clone()))
                .collect::<Vec<_>>(),
        );
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let scanned = RecordBatch::try_new_with_options(Arc::new(typed), columns, &options)?;
        let mut rows = reconcile_batches(&source, &self.target, &self.key, vec![scanned])?;
        let rows = rows.pop().ok_or_else(|| Error::Fatal("reconciling lost a batch".into()))?;
        let mut columns = rows.columns().to_vec();
        for blob in &self.blobs {
            let found = from.fields().iter().find(|f| field_id(f) == Some(blob.id));
            columns.insert(
                blob.at,
                match found {
                    Some(field) => blob.written(named(batch, field.name())?)?,
                    None => new_null_array(blob.field.data_type(), batch.num_rows()),
                },
            );
        }
        Ok(RecordBatch::try_new_with_options(self.plain.clone(), columns, &options)?)
    }
}

impl Blob {
    /// The bytes of a scanned blob column in the form the writer takes.
    fn written(&self, bytes: &ArrayRef) -> Result<ArrayRef> {
        match self.field.data_type() {
            DataType::Struct(children) => {
                let data = bytes.as_binary_opt::<i64>().ok_or_else(|| {
                    Error::Invalid(format!(
                        "blob column `{}` was read as {}, not as bytes",
                        self.field.name(),
                        bytes.data_type()
                    ))
                })?;
                let uri = StringArray::new_null(data.len());
                let columns: Vec<ArrayRef> = vec![bytes.clone(), Arc::new(uri)];
                Ok(Arc::new(StructArray::try_new(children.clone(), columns, data.nulls().cloned())?))
            }
            _ => Ok(bytes.clone()),
        }
    }
}

fn named<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef> {
    batch.column_by_name(name).ok_or_else(|| Error::Fatal(format!("a scan gave no column `{name}`")))
}

/// The Lance field id an Arrow field carries.
pub(super) fn field_id(field: &Field) -> Option<i32> {
    field.metadata().get(LANCE_FIELD_ID_KEY)?.parse().ok().filter(|id| *id >= 0)
}
