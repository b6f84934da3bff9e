//! A real Lance table with a real MemWAL shard, written by Lance's own shard writer.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use executor::run::Progress;
use executor::run::fold::{FoldReport, Prefix, fold};
use executor::table::{Table, session};
use futures::TryStreamExt;
use lance::Dataset;
use lance::dataset::mem_wal::write::{ShardWriter, ShardWriterConfig};
use lance::dataset::mem_wal::{DatasetMemWalExt, LsmScanner, ShardManifestStore, ShardSnapshot};
use lance::dataset::{WriteMode, WriteParams};
use lance_index::mem_wal::ShardManifest;
use planner::job::SsTableId;
use serde_json::Value;
use tempfile::TempDir;
use uuid::Uuid;

/// Shard id of an unsharded table, as the open LanceDB client derives it.
pub fn unsharded() -> Uuid {
    let namespace = Uuid::parse_str("4c534d57-5249-5445-5f53-484152443031").unwrap();
    Uuid::new_v5(&namespace, b"unsharded")
}

/// A column; the key is what `key` of [`Lsm::create`] names.
pub fn column(name: &str, data_type: DataType) -> Field {
    Field::new(name, data_type, true)
}

/// A table with one shard.
pub struct Lsm {
    /// Where it lies; deleted with this.
    pub dir: TempDir,
    /// Path of the table.
    pub uri: String,
    /// Its shard.
    pub shard: Uuid,
    /// Columns of the base.
    pub schema: SchemaRef,
    /// Key columns in key order.
    pub key: Vec<String>,
    writer: Option<ShardWriter>,
}

/// How a table is made.
#[derive(Clone, Copy, Default)]
pub struct Options {
    /// Stable row ids.
    pub stable_row_ids: bool,
    /// File format of the base; `None` is Lance's default.
    pub storage: Option<lance_file::version::LanceFileVersion>,
    /// Rows of a fragment of the first write.
    pub rows_per_fragment: Option<usize>,
}

impl Lsm {
    /// A table holding `base`, with an empty MemWAL.
    pub async fn create(fields: Vec<Field>, key: &[&str], base: Value, options: Options) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let uri = dir.path().join("t.lance").to_str().unwrap().to_string();
        let fields: Vec<Field> = fields
            .into_iter()
            .map(|f| match key.iter().position(|k| k == f.name()) {
                Some(at) => {
                    let mut metadata = f.metadata().clone();
                    metadata.insert("lance-schema:unenforced-primary-key".into(), "true".into());
                    metadata.insert("lance-schema:unenforced-primary-key:position".into(), (at + 1).to_string());
                    f.with_nullable(false).with_metadata(metadata)
                }
                None => f,
            })
            .collect();
        let schema = Arc::new(Schema::new(fields));
        let params = WriteParams {
            enable_stable_row_ids: options.stable_row_ids,
            data_storage_version: options.storage,
            max_rows_per_file: options.rows_per_fragment.unwrap_or(1 << 20),
            ..Default::default()
        };
        let batch = rows(&schema, &base);
        let reader = arrow_array::RecordBatchIterator::new([Ok(batch)], schema.clone());
        let mut dataset = Dataset::write(reader, &uri, Some(params)).await.unwrap();
        dataset.initialize_mem_wal().unsharded().execute().await.unwrap();
        Self { dir, uri, shard: unsharded(), schema, key: key.iter().map(ToString::to_string).collect(), writer: None }
    }

    /// The base at its newest version.
    pub async fn dataset(&self) -> Dataset {
        Dataset::open(&self.uri).await.unwrap()
    }

    /// The table as Caretaker opens it.
    pub async fn table(&self) -> Table {
        Table::open("t", &self.uri, &session()).await.unwrap()
    }

    /// Writes `rows` and flushes them into one SSTable. `"_tombstone": true` deletes a key; rows
    /// take effect in the order they stand in.
    pub async fn sstable(&mut self, wanted: Value) {
        if self.writer.is_none() {
            let config = ShardWriterConfig::new(self.shard);
            self.writer = Some(self.dataset().await.mem_wal_writer(self.shard, config).await.unwrap());
        }
        let writer = self.writer.as_ref().unwrap();
        for row in wanted.as_array().unwrap() {
            let mut row = row.clone();
            if row.as_object_mut().unwrap().remove("_tombstone").is_some() {
                let fields: Vec<Field> =
                    self.key.iter().map(|k| self.schema.field_with_name(k).unwrap().clone()).collect();
                let keys = rows(&Arc::new(Schema::new(fields)), &Value::Array(vec![row]));
                writer.delete(vec![keys]).await.unwrap();
            } else {
                writer.put(vec![rows(&self.schema, &Value::Array(vec![row]))]).await.unwrap();
            }
        }
        self.flush().await;
    }

    /// Writes a whole batch and flushes it into one SSTable.
    pub async fn sstable_of(&mut self, batch: RecordBatch) {
        if self.writer.is_none() {
            let config = ShardWriterConfig::new(self.shard);
            self.writer = Some(self.dataset().await.mem_wal_writer(self.shard, config).await.unwrap());
        }
        self.writer.as_ref().unwrap().put(vec![batch]).await.unwrap();
        self.flush().await;
    }

    async fn flush(&self) {
        let writer = self.writer.as_ref().unwrap();
        writer.force_freeze_active().await.unwrap().wait().await.unwrap();
        writer.wait_for_flush_drain().await.unwrap();
    }

    /// Closes the writer, so that the next SSTable is written under the table's newest schema.
    pub async fn close_writer(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.close().await.unwrap();
        }
    }

    /// The shard manifest on storage.
    pub async fn manifest(&self) -> ShardManifest {
        self.manifest_store().await.latest().await.unwrap().unwrap()
    }

    /// A fresh handle on the shard's manifests.
    pub async fn manifest_store(&self) -> ShardManifestStore {
        let dataset = self.dataset().await;
        let store = dataset.object_store(None).await.unwrap();
        ShardManifestStore::new(store, &dataset.branch_location().path, self.shard, 2)
    }

    /// Every listed SSTable, oldest first.
    pub async fn listed(&self) -> Vec<SsTableId> {
        let mut listed: Vec<SsTableId> = self
            .manifest()
            .await
            .sstables
            .iter()
            .map(|s| SsTableId { generation: s.generation, path: s.path.clone() })
            .collect();
        listed.sort();
        listed
    }

    /// Generation folded so far, 0 for none.
    pub async fn compacted(&self) -> u64 {
        let details = self.dataset().await.mem_wal_index_details().await.unwrap().unwrap();
        details.compacted_sstables.iter().find(|c| c.shard_id == self.shard).map_or(0, |c| c.generation)
    }

    /// Every SSTable that is not folded, as one prefix.
    pub async fn prefix(&self) -> Prefix {
        let done = self.compacted().await;
        let sstables = self.listed().await.into_iter().filter(|s| s.generation > done).collect();
        Prefix { shard: self.shard.to_string(), sstables }
    }

    /// One pass over everything that is not folded.
    pub async fn fold(&self) -> executor::error::Result<FoldReport> {
        self.fold_prefix(&self.prefix().await).await
    }

    /// One pass over `prefix`.
    pub async fn fold_prefix(&self, prefix: &Prefix) -> executor::error::Result<FoldReport> {
        let progress = Arc::new(Progress::default());
        let memory = 256 << 20;
        fold(&self.table().await, std::slice::from_ref(prefix), memory, &progress).await.map(|(_, report)| report)
    }

    /// Rows of the base alone, sorted.
    pub async fn base(&self) -> Vec<Value> {
        let batches = self.dataset().await.scan().try_into_stream().await.unwrap();
        sorted(batches.try_collect().await.unwrap())
    }

    /// Rows a union read gives: base and every SSTable above the folded generation, sorted.
    pub async fn union(&self) -> Vec<Value> {
        let dataset = Arc::new(self.dataset().await);
        let done = self.compacted().await;
        let manifest = self.manifest().await;
        let mut snapshot = ShardSnapshot::new(self.shard);
        snapshot.current_generation = manifest.current_generation;
        for sstable in manifest.sstables.into_iter().filter(|s| s.generation > done) {
            snapshot = snapshot.with_sstable(sstable.generation, sstable.path);
        }
        let scanner = LsmScanner::new(dataset, vec![snapshot], self.key.clone());
        let batches = scanner.try_into_stream().await.unwrap();
        sorted(batches.try_collect().await.unwrap())
    }

    /// What both reads must give: asserts it.
    pub async fn assert_rows(&self, expected: Value) {
        let expected = sorted(vec![rows(&self.schema_now().await, &expected)]);
        assert_eq!(self.union().await, expected, "union read");
        assert_eq!(self.base().await, expected, "base read");
    }

    /// Columns of the base as of now.
    pub async fn schema_now(&self) -> SchemaRef {
        Arc::new(self.dataset().await.schema().into())
    }

    /// Appends rows to the base, past the MemWAL.
    pub async fn append(&self, wanted: Value) {
        let schema = self.schema_now().await;
        let reader = arrow_array::RecordBatchIterator::new([Ok(rows(&schema, &wanted))], schema.clone());
        let params = WriteParams { mode: WriteMode::Append, ..Default::default() };
        Dataset::write(reader, &self.uri, Some(params)).await.unwrap();
    }
}

/// JSON rows as a batch of `schema`.
pub fn rows(schema: &SchemaRef, wanted: &Value) -> RecordBatch {
    // The key's nulls and absences are the writer's to refuse, not the reader's.
    let mut decoder = arrow_json::ReaderBuilder::new(schema.clone()).build_decoder().unwrap();
    decoder.serialize(wanted.as_array().unwrap()).unwrap();
    decoder.flush().unwrap().unwrap_or_else(|| RecordBatch::new_empty(schema.clone()))
}

/// Batches as sorted JSON rows: nulls written out, columns by name.
pub fn sorted(batches: Vec<RecordBatch>) -> Vec<Value> {
    let mut out = Vec::new();
    let builder = arrow_json::WriterBuilder::new().with_explicit_nulls(true);
    let mut writer = builder.build::<_, arrow_json::writer::JsonArray>(&mut out);
    for batch in &batches {
        writer.write(batch).unwrap();
    }
    writer.finish().unwrap();
    drop(writer);
    let mut rows: Vec<Value> = if out.is_empty() { vec![] } else { serde_json::from_slice(&out).unwrap() };
    rows.sort_by_key(ToString::to_string);
    rows
}
