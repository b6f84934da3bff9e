//! Others commit at the worst moment.

use std::sync::Arc;

use arrow_schema::DataType;
use caretaker_tests::{Lsm, Options, column, rows};
use executor::error::Error;
use executor::run::fold::Prefix;
use serde_json::{Value, json};

use crate::id_v;

#[tokio::test]
async fn a_late_pass_with_older_progress_is_refused_as_a_whole() {
    let mut t = id_v(json!([{"id": 9, "v": "base"}])).await;
    for v in ["1", "2", "3", "4", "fresh"] {
        t.sstable(json!([{"id": 9, "v": v}])).await;
    }
    let all = t.prefix().await;
    t.fold().await.unwrap();
    let version = t.dataset().await.version().version;
    for late in [all.sstables[1..3].to_vec(), all.sstables.clone()] {
        let late = Prefix { shard: all.shard.clone(), sstables: late };
        let error = t.fold_prefix(&late).await.unwrap_err();
        assert!(matches!(error, Error::Superseded(_)), "{error}");
    }
    assert_eq!((t.dataset().await.version().version, t.compacted().await), (version, 5));
    t.assert_rows(json!([{"id": 9, "v": "fresh"}])).await;
}

#[tokio::test]
async fn a_prefix_with_a_gap_is_refused() {
    let mut t = id_v(json!([])).await;
    for v in ["1", "2", "3"] {
        t.sstable(json!([{"id": 1, "v": v}])).await;
    }
    let mut gap = t.prefix().await;
    gap.sstables.remove(1);
    let error = t.fold_prefix(&gap).await.unwrap_err();
    assert!(matches!(&error, Error::Invalid(m) if m.contains("generation 2")), "{error}");
    assert_eq!(t.compacted().await, 0);
}

/// Runs `other` at the moment a pass on `t` is about to commit, once.
fn before_commit<F>(t: &Lsm, other: impl Fn() -> F + Send + Sync + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    let uri = t.uri.clone();
    let other = Arc::new(other);
    executor::fault::hook(
        &t.uri,
        "fold.before_commit",
        Some(Arc::new(move || {
            executor::fault::hook(&uri, "fold.before_commit", None);
            let other = other.clone();
            Box::pin(async move { other().await })
        })),
    );
}

/// Lets a pass over `prefix` commit just before the one that is about to.
async fn another_pass_goes_first(t: &Lsm, prefix: Prefix) {
    let table = t.table().await;
    before_commit(t, move || {
        let (table, prefix) = (table.clone(), prefix.clone());
        async move {
            let progress = Arc::new(executor::run::Progress::default());
            executor::run::fold::fold(&table, &[prefix], 64 << 20, &progress).await.unwrap();
        }
    });
}

#[tokio::test]
async fn a_stalled_pass_that_wakes_up_late_changes_nothing() {
    let mut t = id_v(json!([])).await;
    t.sstable(json!([{"id": 1, "v": "old"}])).await;
    let stalled = t.prefix().await;
    t.sstable(json!([{"id": 1, "v": "new"}])).await;
    let both = t.prefix().await;
    another_pass_goes_first(&t, both).await;
    let error = t.fold_prefix(&stalled).await.unwrap_err();
    assert!(matches!(error, Error::Superseded(_)), "{error}");
    t.assert_rows(json!([{"id": 1, "v": "new"}])).await;
}

#[tokio::test]
async fn a_stalled_pass_never_deletes_a_key_that_came_back() {
    let mut t = id_v(json!([{"id": 5, "v": "x"}])).await;
    t.sstable(json!([{"id": 5, "_tombstone": true}])).await;
    let stalled = t.prefix().await;
    t.sstable(json!([{"id": 5, "v": "back"}])).await;
    let both = t.prefix().await;
    another_pass_goes_first(&t, both).await;
    assert!(matches!(t.fold_prefix(&stalled).await, Err(Error::Superseded(_))));
    t.assert_rows(json!([{"id": 5, "v": "back"}])).await;
}

#[tokio::test]
async fn an_outside_writer_that_inserts_the_same_key_first_leads_to_one_row() {
    let mut t = id_v(json!([{"id": 1, "v": "a"}])).await;
    t.sstable(json!([{"id": 100, "v": "fold"}])).await;
    let (uri, schema) = (t.uri.clone(), t.schema.clone());
    before_commit(&t, move || {
        let (uri, schema) = (uri.clone(), schema.clone());
        async move {
            let dataset = Arc::new(lance::Dataset::open(&uri).await.unwrap());
            let mut merge = lance::dataset::MergeInsertBuilder::try_new(dataset, vec!["id".into()]).unwrap();
            merge.when_matched(lance::dataset::WhenMatched::UpdateAll);
            let batch = rows(&schema, &json!([{"id": 100, "v": "ext"}]));
            merge.try_build().unwrap().execute_batches(vec![batch]).await.unwrap();
        }
    });
    let report = t.fold().await.unwrap();
    assert_eq!((report.attempts, report.rows_updated, report.rows_inserted), (2, 1, 0));
    t.assert_rows(json!([{"id": 1, "v": "a"}, {"id": 100, "v": "fold"}])).await;
}

#[tokio::test]
async fn a_compaction_under_a_pass_makes_it_match_again() {
    let base: Vec<Value> = (0..8).map(|id| json!({"id": id, "v": "o"})).collect();
    let fields = vec![column("id", DataType::Int64), column("v", DataType::Utf8)];
    let options = Options { rows_per_fragment: Some(2), ..Options::default() };
    let mut t = Lsm::create(fields, &["id"], Value::Array(base), options).await;
    t.sstable(json!([{"id": 3, "v": "new"}, {"id": 6, "_tombstone": true}])).await;
    let uri = t.uri.clone();
    before_commit(&t, move || {
        let uri = uri.clone();
        async move {
            let mut dataset = lance::Dataset::open(&uri).await.unwrap();
            let options = lance::dataset::optimize::CompactionOptions::default();
            lance::dataset::optimize::compact_files(&mut dataset, options, None).await.unwrap();
        }
    });
    let report = t.fold().await.unwrap();
    assert_eq!((report.attempts, report.rows_updated, report.rows_deleted), (2, 1, 1));
    assert_eq!(t.base().await.len(), 7);
    assert_eq!(t.dataset().await.count_rows(Some("v = 'new'".into())).await.unwrap(), 1);
}
