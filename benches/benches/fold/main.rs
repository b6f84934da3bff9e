//! The fold beside what one would write today and beside the floor, in one run.
//!
//! ```text
//! (a) a loop of one `merge_insert` per SSTable, marking each as compacted
//! (b) Caretaker's fold: one pass, one commit
//! (c) the floor: read every SSTable, append the rows that win (known beforehand)
//! (d) the same rows by one `merge_insert`, as Lance joins them by itself
//! (e) as (d), with Lance told not to use an index of the key
//! ```
//!
//! Each run gets its own copy of one table and its own process, so that peak memory is its own.
//! `cargo bench -p caretaker-benches --bench fold [-- quick|memory]`. For a profiler: `-- make plain|btree|large DIR` makes a table,
//! `-- run a|b|c|d|e DIR/bench.lance` works on it (once: it is changed).
#![allow(missing_docs, clippy::unwrap_used)]

mod table;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::{RecordBatchIterator, RecordBatchReader};
use futures::TryStreamExt;
use lance::Dataset;
use lance::dataset::{MergeInsertBuilder, WhenMatched, WhenNotMatched, WriteMode, WriteParams};
use lance_index::mem_wal::CompactedSsTable;

use table::Shape;

/// The same as the binary's: peak memory is part of what is measured.
#[cfg(not(target_env = "msvc"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const VARIANTS: [(&str, &str); 5] = [
    ("a", "(a) merge_insert per SSTable"),
    ("b", "(b) caretaker fold"),
    ("c", "(c) floor: read and append"),
    ("d", "(d) one merge_insert of the winners"),
    ("e", "(e) the same without the index"),
];

/// The table of the comparison.
const PLAIN: Shape = Shape { base: 1_000_000, sstables: 32, rows: 20_000, payload: 64, letters: 16, btree: false };
/// A prefix of 2 GiB.
const LARGE: Shape = Shape { base: 100_000, sstables: 32, rows: 65_536, payload: 1_024, letters: 64, btree: false };

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["run", variant, uri] => child(variant, uri),
        ["make", "plain", dir] => drop(table::make(Path::new(dir), PLAIN)),
        ["make", "btree", dir] => drop(table::make(Path::new(dir), Shape { btree: true, ..PLAIN })),
        ["make", "large", dir] => drop(table::make(Path::new(dir), LARGE)),
        ["memory"] => memory(),
        ["quick"] => {
            compare(Shape { base: 100_000, sstables: 8, rows: 5_000, payload: 64, letters: 16, btree: false }, 1);
        }
        _ => {
            for btree in [false, true] {
                compare(Shape { btree, ..PLAIN }, 5);
            }
        }
    }
}

/// One variant in this process: prints seconds and peak memory.
fn child(variant: &str, uri: &str) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let started = Instant::now();
    runtime.block_on(async {
        match variant {
            "a" => merge_insert_loop(uri).await,
            "b" => fold(uri).await,
            "c" => floor(uri).await,
            "d" => one_merge_insert(uri, true).await,
            "e" => one_merge_insert(uri, false).await,
            other => panic!("no variant {other}"),
        }
    });
    println!("{} {}", started.elapsed().as_secs_f64(), peak_bytes());
}

async fn merge_insert_loop(uri: &str) {
    let mut dataset = Arc::new(Dataset::open(uri).await.unwrap());
    for (generation, path) in table::listed(&dataset).await {
        let sstable = Dataset::open(&table::sstable_uri(uri, &path)).await.unwrap();
        let columns = ["id", "payload", "x"];
        let stream = sstable.scan().project(&columns).unwrap().try_into_stream().await.unwrap();
        let mut merge = MergeInsertBuilder::try_new(dataset.clone(), vec!["id".into()]).unwrap();
        merge.when_matched(WhenMatched::UpdateAll).when_not_matched(WhenNotMatched::InsertAll);
        merge.mark_sstables_as_compacted(vec![CompactedSsTable::new(table::shard(), generation)]);
        let job = merge.try_build().unwrap();
        (dataset, _) = job.execute(stream.into()).await.unwrap();
    }
}

async fn fold(uri: &str) {
    let session = executor::table::session();
    let opened = executor::table::Table::open("bench", uri, &session).await.unwrap();
    let sstables = table::listed(opened.dataset()).await;
    let sstables =
        sstables.into_iter().map(|(generation, path)| planner::job::SsTableId { generation, path }).collect();
    let prefix = executor::run::fold::Prefix { shard: table::shard().to_string(), sstables };
    let memory = planner::policy::Policy::default().pass_memory_bytes;
    executor::run::fold::fold(&opened, &[prefix], memory, &Arc::default()).await.unwrap();
}

async fn floor(uri: &str) {
    let dataset = Arc::new(Dataset::open(uri).await.unwrap());
    let params = WriteParams { mode: WriteMode::Append, ..Default::default() };
    Dataset::write(winning_rows(uri, &dataset).await, dataset, Some(params)).await.unwrap();
}

/// One merge of the rows that win, by Lance's own choice of join (through the key's index, if it
/// has one) or by hash join.
async fn one_merge_insert(uri: &str, use_index: bool) {
    let dataset = Arc::new(Dataset::open(uri).await.unwrap());
    let rows = winning_rows(uri, &dataset).await;
    let mut merge = MergeInsertBuilder::try_new(dataset, vec!["id".into()]).unwrap();
    merge.when_matched(WhenMatched::UpdateAll).when_not_matched(WhenNotMatched::InsertAll).use_index(use_index);
    merge.try_build().unwrap().execute_reader(rows).await.unwrap();
}

/// The rows that win, in memory: which they are was found when the table was made.
async fn winning_rows(uri: &str, dataset: &Dataset) -> Box<dyn RecordBatchReader + Send> {
    let schema: arrow_schema::SchemaRef = Arc::new(dataset.schema().into());
    let mut batches = Vec::new();
    for ((_, path), winners) in table::listed(dataset).await.into_iter().zip(table::winners(uri)) {
        let sstable = Dataset::open(&table::sstable_uri(uri, &path)).await.unwrap();
        let scanned = sstable.scan().with_row_address().try_into_stream().await.unwrap();
        for batch in scanned.try_collect::<Vec<_>>().await.unwrap() {
            batches.push(Ok(table::pick(&batch, &winners, &schema)));
        }
    }
    Box::new(RecordBatchIterator::new(batches, schema))
}

fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or("0 kB");
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024
}

fn in_own_process(variant: &str, uri: &Path) -> (f64, u64) {
    let me = std::env::current_exe().unwrap();
    let out = Command::new(me).args(["run", variant, uri.to_str().unwrap()]).output().unwrap();
    assert!(out.status.success(), "{variant}: {}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).unwrap();
    let (seconds, peak) = text.trim().split_once(' ').unwrap();
    (seconds.parse().unwrap(), peak.parse().unwrap())
}

fn compare(shape: Shape, runs: usize) {
    let dir = tempfile::tempdir().unwrap();
    let made = table::make(dir.path(), shape);
    println!(
        "\nbase {} rows, {} SSTables of {} rows ({:.1} MB), {}, {runs} turn(s), median",
        shape.base,
        shape.sstables,
        shape.rows,
        made.sstable_bytes as f64 / 1e6,
        if shape.btree { "BTree on the key" } else { "no key index" },
    );
    println!("{:<38}{:>9}{:>13}{:>9}{:>10}", "", "seconds", "rows/s", "MB/s", "peak MB");
    // Variants take turns, so that a machine that gets slower meanwhile gets slower for all of them.
    let mut seconds = vec![Vec::new(); VARIANTS.len()];
    let mut peaks = vec![0; VARIANTS.len()];
    for _ in 0..runs {
        for (at, (variant, _)) in VARIANTS.into_iter().enumerate() {
            let copy = table::copy(&made.uri, dir.path());
            let (took, peak) = in_own_process(variant, &copy);
            if variant != "c" {
                table::verify(&copy, made.rows_after);
            }
            std::fs::remove_dir_all(copy).unwrap();
            seconds[at].push(took);
            peaks[at] = peaks[at].max(peak);
        }
    }
    let rows = (shape.sstables * shape.rows) as f64;
    for (at, (_, name)) in VARIANTS.into_iter().enumerate() {
        let took = median(seconds[at].iter().copied());
        let megabytes = made.sstable_bytes as f64 / 1e6 / took;
        println!("{name:<38}{took:>9.3}{:>13.0}{megabytes:>9.1}{:>10.0}", rows / took, peaks[at] as f64 / 1e6);
    }
    let ratio = |a: usize, b: usize| median(seconds[a].iter().zip(&seconds[b]).map(|(a, b)| a / b));
    println!(
        "medians of the turns' ratios: a/b {:.1}x   b/c {:.2}x   d/e {:.1}x",
        ratio(0, 1),
        ratio(1, 2),
        ratio(3, 4)
    );
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A prefix of 2 GiB under the default memory bound.
fn memory() {
    let dir = tempfile::tempdir().unwrap();
    let made = table::make(dir.path(), LARGE);
    let (seconds, peak) = in_own_process("b", &made.uri);
    table::verify(&made.uri, made.rows_after);
    let bound = planner::policy::Policy::default().pass_memory_bytes;
    println!(
        "prefix {:.0} MB in {seconds:.1} s: peak {:.0} MB of resident memory, policy bound {:.0} MB",
        made.sstable_bytes as f64 / 1e6,
        peak as f64 / 1e6,
        bound as f64 / 1e6
    );
}
