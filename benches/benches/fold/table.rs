//! The table all variants work on: made once, copied for each run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{BooleanArray, Float64Array, Int64Array, RecordBatch, RecordBatchIterator, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use lance::Dataset;
use lance::dataset::mem_wal::write::ShardWriterConfig;
use lance::dataset::mem_wal::{DatasetMemWalExt, ShardManifestStore};
use lance::index::DatasetIndexExt;
use lance_index::IndexType;
use lance_index::scalar::ScalarIndexParams;
use uuid::Uuid;

/// Sizes of the table.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) base: usize,
    pub(crate) sstables: usize,
    pub(crate) rows: usize,
    /// Bytes of the payload column.
    pub(crate) payload: usize,
    /// Letters it is made of: text of 64 can hardly be compressed, so its bytes are bytes on storage.
    pub(crate) letters: usize,
    pub(crate) btree: bool,
}

pub(crate) struct Made {
    pub(crate) uri: PathBuf,
    pub(crate) sstable_bytes: u64,
    pub(crate) rows_after: usize,
}

pub(crate) fn shard() -> Uuid {
    Uuid::from_u128(1)
}

fn schema() -> SchemaRef {
    let key = Field::new("id", DataType::Int64, false)
        .with_metadata([("lance-schema:unenforced-primary-key".to_string(), "true".to_string())].into());
    Arc::new(Schema::new(vec![
        key,
        Field::new("payload", DataType::Utf8, true),
        Field::new("x", DataType::Float64, true),
    ]))
}

/// A small generator, so that the table is the same each time.
struct Lcg(u64);

impl Lcg {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 16
    }

    /// Text of the first `letters` of 64.
    fn text(&mut self, bytes: usize, letters: usize) -> String {
        const LETTERS: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
        let mut bits = 0;
        let letter = |at| {
            bits = if at % 8 == 0 { self.next() } else { bits >> 6 };
            char::from(LETTERS[(bits & 63) as usize % letters])
        };
        (0..bytes).map(letter).collect()
    }
}

fn batch(ids: Vec<i64>, shape: Shape, random: &mut Lcg) -> RecordBatch {
    let text: Vec<String> = ids.iter().map(|_| random.text(shape.payload, shape.letters)).collect();
    let x: Vec<f64> = ids.iter().map(|_| random.next() as f64).collect();
    let columns: Vec<arrow_array::ArrayRef> =
        vec![Arc::new(Int64Array::from(ids)), Arc::new(StringArray::from(text)), Arc::new(Float64Array::from(x))];
    RecordBatch::try_new(schema(), columns).unwrap()
}

pub(crate) fn make(dir: &Path, shape: Shape) -> Made {
    tokio::runtime::Runtime::new().unwrap().block_on(make_async(dir, shape))
}

async fn make_async(dir: &Path, shape: Shape) -> Made {
    let uri = dir.join("bench.lance");
    let path = uri.to_str().unwrap().to_string();
    let mut random = Lcg(7);
    let base = batch((0..shape.base as i64).collect(), shape, &mut random);
    let reader = RecordBatchIterator::new([Ok(base)], schema());
    let mut dataset = Dataset::write(reader, path.as_str(), None).await.unwrap();
    if shape.btree {
        let params = ScalarIndexParams::default();
        dataset.create_index(&["id"], IndexType::BTree, None, &params, true).await.unwrap();
    }
    dataset.initialize_mem_wal().unsharded().execute().await.unwrap();
    let dataset = Dataset::open(&path).await.unwrap();
    let writer = dataset.mem_wal_writer(shard(), ShardWriterConfig::new(shard())).await.unwrap();
    // Half the keys exist in the base; one in eight comes again in a later SSTable.
    let universe = (shape.base + shape.sstables * shape.rows) as u64;
    let mut newest = std::collections::BTreeMap::new();
    for generation in 0..shape.sstables {
        let mut ids = std::collections::BTreeSet::new();
        while ids.len() < shape.rows {
            let id = match random.next() % 2 {
                0 => random.next() % shape.base as u64,
                _ => shape.base as u64 + random.next() % (universe - shape.base as u64),
            };
            ids.insert(id as i64);
        }
        let ids: Vec<i64> = ids.into_iter().collect();
        newest.extend(ids.iter().map(|id| (*id, generation)));
        writer.put(vec![batch(ids, shape, &mut random)]).await.unwrap();
        writer.force_freeze_active().await.unwrap().wait().await.unwrap();
        writer.wait_for_flush_drain().await.unwrap();
    }
    writer.close().await.unwrap();
    let inserted = newest.keys().filter(|id| **id >= shape.base as i64).count();
    write_winners(&dataset, &path, &newest).await;
    let sstables = listed(&dataset).await;
    let sstable_bytes = sstables.iter().map(|(_, p)| bytes_below(Path::new(&sstable_uri(&path, p)))).sum();
    Made { uri, sstable_bytes, rows_after: shape.base + inserted }
}

/// For the floor: the addresses of the rows that win, beside the table.
async fn write_winners(dataset: &Dataset, uri: &str, newest: &std::collections::BTreeMap<i64, usize>) {
    let mut file = Vec::new();
    for (at, (_, path)) in listed(dataset).await.into_iter().enumerate() {
        let sstable = Dataset::open(&sstable_uri(uri, &path)).await.unwrap();
        let scanned = sstable.scan().project(&["id"]).unwrap().with_row_address().try_into_batch().await.unwrap();
        let ids = scanned.column(0).as_primitive::<arrow_array::types::Int64Type>();
        let addresses = scanned.column_by_name("_rowaddr").unwrap().as_primitive::<UInt64Type>();
        let winners: roaring::RoaringTreemap = ids
            .values()
            .iter()
            .zip(addresses.values())
            .filter(|(id, _)| newest[*id] == at)
            .map(|(_, address)| *address)
            .collect();
        winners.serialize_into(&mut file).unwrap();
    }
    std::fs::write(format!("{uri}/winners"), file).unwrap();
}

pub(crate) fn winners(uri: &str) -> Vec<roaring::RoaringTreemap> {
    let bytes = std::fs::read(format!("{uri}/winners")).unwrap();
    let mut rest = bytes.as_slice();
    let mut winners = Vec::new();
    while !rest.is_empty() {
        winners.push(roaring::RoaringTreemap::deserialize_from(&mut rest).unwrap());
    }
    winners
}

pub(crate) fn pick(batch: &RecordBatch, winners: &roaring::RoaringTreemap, schema: &SchemaRef) -> RecordBatch {
    let addresses = batch.column_by_name("_rowaddr").unwrap().as_primitive::<UInt64Type>();
    let keep: BooleanArray = addresses.values().iter().map(|a| Some(winners.contains(*a))).collect();
    let columns = schema.fields().iter().map(|f| {
        let column = batch.column_by_name(f.name()).unwrap();
        arrow_select::filter::filter(column, &keep).unwrap()
    });
    RecordBatch::try_new(schema.clone(), columns.collect()).unwrap()
}

/// Generation and path of each SSTable, oldest first.
pub(crate) async fn listed(dataset: &Dataset) -> Vec<(u64, String)> {
    let store = dataset.object_store(None).await.unwrap();
    let manifests = ShardManifestStore::new(store, &dataset.branch_location().path, shard(), 2);
    let manifest = manifests.latest().await.unwrap().unwrap();
    let mut listed: Vec<_> = manifest.sstables.into_iter().map(|s| (s.generation, s.path)).collect();
    listed.sort();
    listed
}

pub(crate) fn sstable_uri(uri: &str, path: &str) -> String {
    format!("{uri}/_mem_wal/{}/{path}", shard())
}

fn bytes_below(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    entries.map(|e| if e.path().is_dir() { bytes_below(&e.path()) } else { e.metadata().unwrap().len() }).sum()
}

pub(crate) fn copy(from: &Path, dir: &Path) -> PathBuf {
    let to = dir.join("copy.lance");
    copy_dir(from, &to);
    to
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// A benchmark of a wrong result is worth nothing.
pub(crate) fn verify(uri: &Path, rows: usize) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let counted = runtime.block_on(async {
        let dataset = Dataset::open(uri.to_str().unwrap()).await.unwrap();
        dataset.count_rows(None).await.unwrap()
    });
    assert_eq!(counted, rows, "rows after the fold");
}
