//! Connections, and tables for tests.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int32Type};
use arrow_array::{FixedSizeListArray, Int32Array, RecordBatch, RecordBatchIterator, RecordBatchReader, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use futures::TryStreamExt;
use lancedb::query::{ExecutableQuery, Query, QueryBase};
use lancedb::remote::{ClientConfig, RetryConfig};
use lancedb::table::RTEWriteSpec;
use lancedb::table::merge::MergeResult;
use lancedb::{Connection, Error, Table};

pub(crate) type Done = Result<(), Box<dyn std::error::Error>>;

/// A server that does all its work; one where nobody works jobs off; and one of the same tables where somebody does.
pub(crate) const SERVED: &str = "CARETAKER_URL";
pub(crate) const STILL: &str = "CARETAKER_STILL_URL";
pub(crate) const OTHER: &str = "CARETAKER_OTHER_URL";

/// A database of the server whose address is in that variable.
pub(crate) async fn connect(which: &str) -> Result<Connection, Box<dyn std::error::Error>> {
    // One try: what the server says is what a test sees.
    let once =
        RetryConfig { retries: Some(0), connect_retries: Some(0), read_retries: Some(0), ..RetryConfig::default() };
    let config = ClientConfig { retry_config: once, ..ClientConfig::default() };
    let url = std::env::var(which)?;
    let building =
        lancedb::connect("db://dev").api_key("none").region("us-east-1").host_override(&url).client_config(config);
    Ok(building.execute().await?)
}

fn schema() -> SchemaRef {
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int32, false),
        Field::new("n", DataType::Int32, true),
        Field::new("text", DataType::Utf8, true),
        Field::new("vector", DataType::FixedSizeList(item, 2), true),
    ]))
}

/// Rows by their key and number; the other values follow from these.
pub(crate) fn rows(pairs: &[(i32, i32)]) -> RecordBatch {
    let ids = pairs.iter().map(|(id, _)| *id);
    let texts = pairs.iter().map(|(id, n)| Some(format!("word{id} of {n}")));
    let vectors = ids.clone().map(|id| Some([Some(id as f32), Some(0.0)]));
    let columns: Vec<arrow_array::ArrayRef> = vec![
        Arc::new(Int32Array::from_iter_values(ids)),
        Arc::new(Int32Array::from_iter_values(pairs.iter().map(|(_, n)| *n))),
        Arc::new(texts.collect::<StringArray>()),
        Arc::new(FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(vectors, 2)),
    ];
    RecordBatch::try_new(schema(), columns).expect("rows of the schema")
}

/// A table of these rows with a key, which takes RTE writes where a spec is given.
pub(crate) async fn create(
    db: &Connection,
    name: &str,
    pairs: &[(i32, i32)],
    spec: Option<RTEWriteSpec>,
) -> lancedb::Result<Table> {
    let table = db.create_table(name, rows(pairs)).execute().await?;
    table.set_unenforced_primary_key(["id"]).await?;
    if let Some(spec) = spec {
        table.enable_rte(spec).await?;
    }
    Ok(table)
}

/// Writes rows by their key; `rte`: what the client says of where.
pub(crate) async fn upsert(table: &Table, pairs: &[(i32, i32)], rte: Option<bool>) -> lancedb::Result<MergeResult> {
    let mut merge = table.merge_insert(&["id"]);
    merge.when_matched_update_all(None).when_not_matched_insert_all();
    if let Some(rte) = rte {
        merge.use_rte(rte);
    }
    merge.execute(reader(rows(pairs))).await
}

pub(crate) fn reader(batch: RecordBatch) -> Box<dyn RecordBatchReader + Send> {
    let schema = batch.schema();
    Box::new(RecordBatchIterator::new([Ok(batch)], schema))
}

/// Every key with its number, by key. A key that comes twice does so here.
pub(crate) async fn held(table: &Table, rte: Option<bool>) -> lancedb::Result<Vec<(i32, i32)>> {
    let query: Query = table.query();
    let mut pairs = pairs_of(match rte {
        Some(rte) => query.use_rte(rte),
        None => query,
    })
    .await?;
    pairs.sort_unstable();
    Ok(pairs)
}

/// Keys and numbers in the order of the answer.
pub(crate) async fn pairs_of(query: impl ExecutableQuery) -> lancedb::Result<Vec<(i32, i32)>> {
    let batches: Vec<RecordBatch> = query.execute().await?.try_collect().await?;
    let column = |batch: &RecordBatch, name: &str| batch[name].as_primitive::<Int32Type>().values().to_vec();
    Ok(batches.iter().flat_map(|batch| column(batch, "id").into_iter().zip(column(batch, "n"))).collect())
}

/// Every shard's SSTables: generation, and rows where they were asked for.
pub(crate) async fn sstables(table: &Table, rows: bool) -> Result<Vec<(u64, Option<u64>)>, Box<dyn std::error::Error>> {
    let stats = table.get_rte_stats(rows).await?.ok_or("it takes no RTE writes")?;
    let listed = stats.table_shards.iter().flat_map(|shard| &shard.sstables);
    Ok(listed.map(|sstable| (sstable.generation, sstable.rows)).collect())
}

/// The status that a call was refused with, and the words.
pub(crate) fn refused<T: std::fmt::Debug>(answer: lancedb::Result<T>) -> (u16, String) {
    match answer {
        Err(Error::Http { status_code, source, .. } | Error::Retry { status_code, source, .. }) => {
            (status_code.map_or(0, |status| status.as_u16()), source.to_string())
        }
        other => (0, format!("{other:?}")),
    }
}

/// Fails unless a call was refused with this status and these words.
#[track_caller]
pub(crate) fn assert_refused<T: std::fmt::Debug>(answer: lancedb::Result<T>, status: u16, words: &str) {
    let (was, why) = refused(answer);
    assert!(was == status && why.contains(words), "{was} {why}");
    assert!(!why.contains(".rs:"), "lines of the source are nobody's business: {why}");
}
