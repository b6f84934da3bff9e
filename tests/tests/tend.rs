//! One table's whole care, on real tables: what is done, in which order, and when nothing is.
#![allow(clippy::unwrap_used)]

#[path = "tend/parts.rs"]
mod parts;
#[path = "tend/policy.rs"]
mod policy;
#[path = "tend/segments.rs"]
mod segments;
#[path = "tend/serve.rs"]
mod serve;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow_schema::{DataType, Field};
use caretaker_tests::{Lsm, Options, column};
use executor::catalog::TableRef;
use executor::read::Depth;
use executor::report::{JobEnd, TableReport};
use executor::run::Progress;
use executor::table::session;
use executor::tend::Tender;
use lance::index::DatasetIndexExt;
use lance_index::IndexType;
use lance_index::scalar::{InvertedIndexParams, ScalarIndexParams};
use planner::plan::{Hold, Outcome, Trigger};
use planner::policy::Policy;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// A policy that folds at once and keeps nothing, for tests that look at every step.
fn eager() -> Policy {
    Policy { trigger_count: 1, retire_delay_ms: 0, grace_ms: 0, ..Policy::default() }
}

fn tender(policy: Policy) -> Tender {
    Tender::new(policy, session(), CancellationToken::new())
}

async fn tend(t: &Lsm, policy: Policy) -> TableReport {
    let table = TableRef { name: "t".into(), uri: t.uri.clone() };
    let progress = Arc::new(Progress::default());
    let report = tender(policy).tend(&table, Trigger::Tick, Depth::Garbage, &progress).await;
    assert!(!report.failed(), "{report:?}");
    report
}

fn jobs(report: &TableReport) -> Vec<&str> {
    report.jobs.iter().map(|j| j.job.as_str()).collect()
}

async fn indexed() -> Lsm {
    let fields = vec![
        column("id", DataType::Int64),
        column("cat", DataType::Utf8),
        column("text", DataType::Utf8),
        column("vec", DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Float32, true)), 4)),
    ];
    let base: Vec<Value> = (0..300).map(|id| row(id, "base", 0.0)).collect();
    let t = Lsm::create(fields, &["id"], Value::Array(base), Options::default()).await;
    let mut dataset = t.dataset().await;
    let scalar = ScalarIndexParams::default();
    dataset.create_index(&["id"], IndexType::BTree, Some("id_idx".into()), &scalar, true).await.unwrap();
    let bitmap = ScalarIndexParams::for_builtin(lance_index::scalar::BuiltinIndexType::Bitmap);
    dataset.create_index(&["cat"], IndexType::Bitmap, Some("cat_idx".into()), &bitmap, true).await.unwrap();
    let fts = InvertedIndexParams::default();
    dataset.create_index(&["text"], IndexType::Inverted, Some("text_idx".into()), &fts, true).await.unwrap();
    let flat = lance::index::vector::VectorIndexParams::ivf_flat(2, lance_linalg::distance::MetricType::L2);
    dataset.create_index(&["vec"], IndexType::Vector, Some("vec_idx".into()), &flat, true).await.unwrap();
    t
}

fn row(id: i64, cat: &str, at: f32) -> Value {
    json!({"id": id, "cat": cat, "text": format!("word{id} {cat}"), "vec": [id as f32, at, 0.0, 0.0]})
}

#[tokio::test]
async fn a_due_shard_is_folded_caught_up_by_index_type_retired_and_collected_until_nothing_is_due() {
    let mut t = indexed().await;
    t.sstable(json!([row(1, "new", 1.0), row(1000, "new", 1.0)])).await;
    t.sstable(json!([{"id": 2, "_tombstone": true}, row(3, "new", 1.0)])).await;
    let report = tend(&t, eager()).await;
    let done = jobs(&report);
    assert_eq!(done[0], "memwal_compaction");
    let mut catchups: Vec<&str> = done.iter().filter(|j| j.contains("catchup")).copied().collect();
    catchups.sort_unstable();
    assert_eq!(
        catchups,
        ["memwal_catchup_bitmap", "memwal_catchup_btree", "memwal_catchup_fts", "memwal_catchup_ivfflat"]
    );
    let retired = done.iter().position(|j| *j == "memwal_retire").unwrap();
    assert!(done[..retired].iter().filter(|j| j.contains("catchup")).count() == 4, "retired last: {done:?}");
    assert!(t.listed().await.is_empty());
    let dataset = t.dataset().await;
    for (filter, rows) in [("id = 1000", 1), ("id = 2", 0), ("cat = 'new'", 3), ("cat = 'base'", 297)] {
        assert_eq!(dataset.count_rows(Some(filter.into())).await.unwrap(), rows, "{filter}");
    }
    for index in ["id_idx", "cat_idx", "text_idx", "vec_idx"] {
        assert_eq!(unindexed(&dataset, index).await, 0, "{index}");
    }
}

async fn unindexed(dataset: &lance::Dataset, index: &str) -> u64 {
    let stats: Value = serde_json::from_str(&dataset.index_statistics(index).await.unwrap()).unwrap();
    stats["num_unindexed_rows"].as_u64().unwrap()
}

/// Every file below a folder, with size and time of change.
fn files(dir: &Path) -> BTreeMap<String, (u64, std::time::SystemTime)> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let (path, meta) = (entry.path(), entry.metadata().unwrap());
        if meta.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.display().to_string(), (meta.len(), meta.modified().unwrap()));
        }
    }
    found
}

#[tokio::test]
async fn an_sstable_stays_listed_for_the_delay_and_a_run_sits_it_out() {
    let fields = vec![column("id", DataType::Int64), column("v", DataType::Utf8)];
    let mut t = Lsm::create(fields, &["id"], json!([]), Options::default()).await;
    t.sstable(json!([{"id": 1, "v": "a"}])).await;
    let delayed = |retire_delay_ms| Policy { retire_delay_ms, ..eager() };
    // Longer than any run waits.
    assert_eq!(jobs(&tend(&t, delayed(3_600_000)).await), ["memwal_compaction"]);
    assert_eq!(t.listed().await.len(), 1);
    assert_eq!(jobs(&tend(&t, delayed(1_500)).await), ["memwal_retire"]);
    assert_eq!(t.listed().await.len(), 0);
}

#[tokio::test]
async fn a_converged_table_is_not_written_to() {
    let mut t = indexed().await;
    t.sstable(json!([row(1, "new", 1.0)])).await;
    tend(&t, eager()).await;
    let before = files(t.dir.path());
    let report = tend(&t, eager()).await;
    assert_eq!(jobs(&report), Vec::<&str>::new());
    assert_eq!(files(t.dir.path()), before);
}

#[tokio::test]
async fn an_sstable_stays_listed_until_a_broken_index_is_mended_and_the_others_go_on() {
    let mut t = indexed().await;
    let dataset = t.dataset().await;
    let vec = dataset.load_indices_by_name("vec_idx").await.unwrap()[0].uuid;
    let broken = Path::new(&t.uri).join("_indices").join(vec.to_string());
    let aside = t.dir.path().join("aside");
    t.sstable(json!([row(1, "new", 1.0)])).await;
    std::fs::rename(&broken, &aside).unwrap();
    let table = TableRef { name: "t".into(), uri: t.uri.clone() };
    let progress = Arc::new(Progress::default());
    let report = tender(eager()).tend(&table, Trigger::Tick, Depth::Garbage, &progress).await;
    let failed: Vec<&str> =
        report.jobs.iter().filter(|j| matches!(j.end, JobEnd::Failed { .. })).map(|j| j.job.as_str()).collect();
    assert_eq!(failed, ["memwal_catchup_ivfflat"]);
    assert_eq!((t.compacted().await, t.listed().await.len()), (1, 1), "folded, but still listed");
    assert_eq!(unindexed(&t.dataset().await, "id_idx").await, 0);
    std::fs::rename(&aside, &broken).unwrap();
    tend(&t, eager()).await;
    assert!(t.listed().await.is_empty());
}

#[tokio::test]
async fn files_are_collected_when_no_version_needs_them_and_only_after_the_grace() {
    let fields = vec![column("id", DataType::Int64), column("v", DataType::Utf8)];
    let mut t = Lsm::create(fields, &["id"], json!([]), Options::default()).await;
    t.sstable(json!([{"id": 1, "v": "a"}])).await;
    t.close_writer().await;
    let shard = Path::new(&t.uri).join("_mem_wal").join(t.shard.to_string());
    let sstables = || {
        let names = std::fs::read_dir(&shard).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        names.filter(|n| n.contains("_gen_")).count()
    };
    tend(&t, eager()).await;
    assert_eq!((t.listed().await.len(), sstables()), (0, 1), "an older version still needs the SSTable");
    let dataset = t.dataset().await;
    dataset.cleanup_old_versions(chrono::Duration::zero(), Some(true), None).await.unwrap();
    let patient = Policy { grace_ms: 3_600_000, ..eager() };
    tend(&t, patient).await;
    assert_eq!(sstables(), 1, "young files are kept");
    let report = tend(&t, eager()).await;
    assert!(report.jobs.iter().any(|j| matches!(j.end, JobEnd::Collected { files, .. } if files > 0)), "{report:?}");
    assert_eq!(sstables(), 0);
    assert_eq!(t.base().await.len(), 1);
    // A writer that comes back finds its shard in order.
    t.sstable(json!([{"id": 2, "v": "b"}])).await;
    tend(&t, eager()).await;
    t.assert_rows(json!([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])).await;
}

#[tokio::test]
async fn retiring_drops_by_identity_whatever_the_order_of_the_list() {
    let fields = vec![column("id", DataType::Int64), column("v", DataType::Utf8)];
    let mut t = Lsm::create(fields, &["id"], json!([]), Options::default()).await;
    for (id, v) in [(1, "a"), (2, "b"), (3, "c")] {
        t.sstable(json!([{"id": id, "v": v}])).await;
    }
    // While the pass is about to retire, the list is rewritten in another order.
    let mut policy = eager();
    policy.prefix_max = 2;
    policy.trigger_count = 3;
    let store = Arc::new(t.manifest_store().await);
    let uri = t.uri.clone();
    executor::fault::hook(
        &t.uri,
        "retire.before",
        Some(Arc::new(move || {
            executor::fault::hook(&uri, "retire.before", None);
            let store = store.clone();
            Box::pin(async move {
                let latest = store.refresh_latest().await.unwrap().unwrap();
                store
                    .commit_update(latest.writer_epoch, |m| {
                        let mut next = m.clone();
                        next.version = m.next_version();
                        next.sstables.reverse();
                        next
                    })
                    .await
                    .unwrap();
            })
        })),
    );
    tend(&t, policy).await;
    let left: Vec<u64> = t.listed().await.iter().map(|s| s.generation).collect();
    assert_eq!(left, [3]);
    assert_eq!(t.union().await.len(), 3);
    assert_eq!(t.base().await.len(), 2);
}

#[tokio::test]
async fn a_second_pass_on_a_shard_is_refused_and_named() {
    let fields = vec![column("id", DataType::Int64), column("v", DataType::Utf8)];
    let mut t = Lsm::create(fields, &["id"], json!([]), Options::default()).await;
    t.sstable(json!([{"id": 1, "v": "a"}])).await;
    let tender = tender(eager());
    let table = TableRef { name: "t".into(), uri: t.uri.clone() };
    let opened = t.table().await;
    let held = tender.latches.take(&opened, &t.shard.to_string(), 7).unwrap();
    let again = tender.latches.take(&opened, &t.shard.to_string(), 8).unwrap_err();
    assert!(matches!(&again, executor::error::Error::Busy(m) if m.contains(&std::process::id().to_string())));
    // Another process's latches see the lock file.
    let other = executor::latch::Latches::default();
    let seen = other.holder(&opened, &t.shard.to_string()).unwrap();
    assert_eq!(seen.since_ms, 7);
    assert!(other.take(&opened, &t.shard.to_string(), 9).is_err());
    let progress = Arc::new(Progress::default());
    tender.tend(&table, Trigger::Forced, Depth::Fold, &progress).await;
    assert_eq!(t.compacted().await, 0, "nothing folded while the latch is held");
    drop(held);
    assert!(other.take(&opened, &t.shard.to_string(), 10).is_ok());
}

#[tokio::test]
async fn a_table_whose_write_spec_was_unset_is_left_as_it_is_with_a_reason() {
    let fields = vec![column("id", DataType::Int64), column("v", DataType::Utf8)];
    let mut t = Lsm::create(fields, &["id"], json!([]), Options::default()).await;
    t.sstable(json!([{"id": 1, "v": "a"}])).await;
    t.close_writer().await;
    t.dataset().await.drop_index(lance_index::mem_wal::MEM_WAL_INDEX_NAME).await.unwrap();
    let before = files(t.dir.path());
    assert_eq!(jobs(&tend(&t, eager()).await), Vec::<&str>::new());
    let table = TableRef { name: "t".into(), uri: t.uri.clone() };
    let plan = tender(eager()).evaluate(&table, Depth::Garbage, Trigger::Tick).await.unwrap().plan;
    let held = plan.verdicts.iter().any(|v| matches!(&v.outcome, Outcome::Held { hold: Hold::Detached, .. }));
    assert!(held, "{plan:?}");
    assert_eq!(files(t.dir.path()), before);
}
