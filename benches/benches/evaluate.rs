//! Full evaluations of many small tables, beside the floor: opening each of them with Lance.
//!
//! `cargo bench -p caretaker-benches --bench evaluate [-- TABLES]`. Both are measured in turns in one
//! run, one table after the other, each round with a session of its own; medians of the rounds. Each
//! round goes over the tables twice: what never changes is read the first time only.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{Int64Array, RecordBatch, RecordBatchIterator, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use executor::catalog::{Root, TableRef};
use executor::read::Depth;
use executor::table::{Table, session};
use executor::tend::Tender;
use lance::Dataset;
use lance::dataset::mem_wal::DatasetMemWalExt;
use lance::dataset::mem_wal::write::ShardWriterConfig;
use lance::dataset::{WriteMode, WriteParams};
use lance::index::DatasetIndexExt;
use lance::session::Session;
use lance_index::IndexType;
use lance_index::scalar::ScalarIndexParams;
use lance_io::object_store::{ObjectStore, ObjectStoreParams};
use planner::plan::Trigger;
use planner::policy::Policy;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const TABLES: usize = 1_000;
const ROUNDS: usize = 5;
const ROWS: i64 = 100;

/// What a table has beside its rows.
const KINDS: [(&str, bool, bool); 3] =
    [("plain, 4 fragments", false, false), ("2 indexes", true, false), ("LSM, 3 SSTables, 2 indexes", true, true)];

fn main() {
    let wanted = std::env::args().skip(1).find_map(|text| text.parse().ok());
    let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
    runtime.block_on(bench(wanted.unwrap_or(TABLES)));
}

async fn bench(tables: usize) {
    println!("{tables} tables of a kind, one after the other, medians of {ROUNDS} rounds");
    println!("{:34}  {:>8} {:>10} {:>6}  {:>9} {:>9}", "", "open/s", "evaluate/s", "ratio", "requests", "requests");
    for (name, indexes, lsm) in KINDS {
        let dir = tempfile::tempdir().expect("a folder for tables");
        make(dir.path(), tables, indexes, lsm).await;
        let root = Root::parse(dir.path().to_str().expect("a plain path")).expect("a root");
        let refs = root.tables(&session()).await.expect("tables are listed");
        assert_eq!(refs.len(), tables);
        let mut passes = [Pass::default(), Pass::default()];
        for _ in 0..ROUNDS {
            let opened = session();
            let tender = Tender::new(Policy::default(), session(), CancellationToken::new());
            for pass in &mut passes {
                pass.open.push(measured(&root, &opened, open(&refs, &opened)).await);
                pass.evaluate.push(measured(&root, tender.session(), evaluate(&refs, &tender)).await);
            }
        }
        for (pass, which) in passes.into_iter().zip(["first", "again"]) {
            pass.print(&format!("{name}, {which}"), tables as f64);
        }
    }
}

/// Time and requests of each round.
#[derive(Default)]
struct Pass {
    open: Vec<(Duration, u64)>,
    evaluate: Vec<(Duration, u64)>,
}

impl Pass {
    fn print(self, name: &str, each: f64) {
        let ((open, to_open), (evaluate, to_evaluate)) = (median(self.open), median(self.evaluate));
        println!(
            "{name:34}  {:>8.0} {:>10.0} {:>6.2}  {:>9.1} {:>9.1}",
            each / open.as_secs_f64(),
            each / evaluate.as_secs_f64(),
            evaluate.as_secs_f64() / open.as_secs_f64(),
            to_open as f64 / each,
            to_evaluate as f64 / each,
        );
    }
}

async fn open(tables: &[TableRef], session: &Arc<Session>) {
    for table in tables {
        Table::open(&table.name, &table.uri, session).await.expect("it opens");
    }
}

async fn evaluate(tables: &[TableRef], tender: &Tender) {
    for table in tables {
        tender.evaluate(table, Depth::Fold, Trigger::Tick).await.expect("it is evaluated");
    }
}

/// Time and requests of one round over all tables.
async fn measured(root: &Root, session: &Arc<Session>, round: impl Future<Output = ()>) -> (Duration, u64) {
    let params = ObjectStoreParams::default();
    let (store, _) = ObjectStore::from_uri_and_params(session.store_registry(), root.uri(), &params)
        .await
        .expect("the storage opens");
    let (before, began) = (store.io_stats_snapshot().read_iops, Instant::now());
    round.await;
    (began.elapsed(), store.io_stats_snapshot().read_iops - before)
}

fn median(mut rounds: Vec<(Duration, u64)>) -> (Duration, u64) {
    rounds.sort_unstable();
    rounds[rounds.len() / 2]
}

/// One table as it is made, the others its copies.
async fn make(dir: &Path, tables: usize, indexes: bool, lsm: bool) {
    let first = dir.join("t0000.lance");
    table(first.to_str().expect("a plain path"), indexes, lsm).await;
    for n in 1..tables {
        copy(&first, &dir.join(format!("t{n:04}.lance")));
    }
}

async fn table(uri: &str, indexes: bool, lsm: bool) {
    for part in 0..4 {
        let params = WriteParams {
            mode: if part == 0 { WriteMode::Create } else { WriteMode::Append },
            ..WriteParams::default()
        };
        let rows = RecordBatchIterator::new([Ok(rows(part))], schema());
        Dataset::write(rows, uri, Some(params)).await.expect("it is written");
    }
    let mut dataset = Dataset::open(uri).await.expect("it opens");
    if indexes {
        let params = ScalarIndexParams::default();
        for column in ["id", "text"] {
            dataset.create_index(&[column], IndexType::BTree, None, &params, true).await.expect("it is indexed");
        }
    }
    if !lsm {
        return;
    }
    dataset.initialize_mem_wal().unsharded().execute().await.expect("it takes LSM writes");
    let shard = Uuid::from_u128(1);
    let dataset = Dataset::open(uri).await.expect("it opens");
    let writer = dataset.mem_wal_writer(shard, ShardWriterConfig::new(shard)).await.expect("a writer");
    for part in 4..7 {
        writer.put(vec![rows(part)]).await.expect("it is written");
        writer.force_freeze_active().await.expect("it freezes").wait().await.expect("it is flushed");
        writer.wait_for_flush_drain().await.expect("all is flushed");
    }
    writer.close().await.expect("the writer closes");
}

fn schema() -> SchemaRef {
    let key = Field::new("id", DataType::Int64, false)
        .with_metadata([("lance-schema:unenforced-primary-key".to_string(), "true".to_string())].into());
    Arc::new(Schema::new(vec![key, Field::new("text", DataType::Utf8, true)]))
}

fn rows(part: i64) -> RecordBatch {
    let ids = part * ROWS..(part + 1) * ROWS;
    let texts: StringArray = ids.clone().map(|id| Some(format!("text {id}"))).collect();
    let columns: Vec<arrow_array::ArrayRef> = vec![Arc::new(Int64Array::from_iter_values(ids)), Arc::new(texts)];
    RecordBatch::try_new(schema(), columns).expect("columns of one length")
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a new folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        match entry.file_type().expect("a file or a folder").is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).expect("it is copied")),
        }
    }
}
