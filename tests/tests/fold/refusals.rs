//! What must not be folded is refused by name, and nothing is lost.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Schema};
use caretaker_tests::{Lsm, column, rows};
use executor::error::Error;
use lance::index::DatasetIndexExt;
use serde_json::json;

use crate::{btree, id_v};

/// Lists a Lance dataset of `batch` as the next SSTable, as a writer gone wrong would.
async fn forge(t: &Lsm, batch: RecordBatch) {
    let store = t.manifest_store().await;
    let latest = store.refresh_latest().await.unwrap().unwrap();
    let path = format!("deadbeef_gen_{}", latest.current_generation);
    let uri = format!("{}/_mem_wal/{}/{path}", t.uri, t.shard);
    let reader = arrow_array::RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
    lance::Dataset::write(reader, &uri, None).await.unwrap();
    let epoch = latest.writer_epoch;
    store
        .commit_update(epoch, |m| {
            let mut next = m.clone();
            next.version = m.next_version();
            next.current_generation = m.current_generation + 1;
            next.sstables.push(lance_index::mem_wal::SsTable::unmeasured(m.current_generation, path.clone()));
            next
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_null_key_stops_the_pass_by_name_and_keeps_every_sstable_listed() {
    let mut t = id_v(json!([])).await;
    t.sstable(json!([{"id": 1, "v": "y"}])).await;
    t.close_writer().await;
    let schema = Arc::new(Schema::new(vec![column("id", DataType::Int64), column("v", DataType::Utf8)]));
    forge(&t, rows(&schema, &json!([{"id": null, "v": "x"}, {"id": 2, "v": "z"}]))).await;
    let version = t.dataset().await.version().version;
    let error = t.fold().await.unwrap_err();
    assert!(matches!(&error, Error::Invalid(m) if m.contains("`id`") && m.contains("null")), "{error}");
    assert_eq!((t.listed().await.len(), t.dataset().await.version().version), (2, version));
}

#[tokio::test]
async fn a_column_of_another_type_or_one_the_table_never_had_stops_the_pass_by_name() {
    let typed = Schema::new(vec![column("id", DataType::Int64), column("v", DataType::Int32)]);
    let unknown =
        Schema::new(vec![column("id", DataType::Int64), column("v", DataType::Utf8), column("q", DataType::Utf8)]);
    for (schema, row, named) in
        [(typed, json!({"id": 1, "v": 1}), "`v`"), (unknown, json!({"id": 1, "v": "a", "q": "b"}), "`q`")]
    {
        let mut t = id_v(json!([])).await;
        t.sstable(json!([{"id": 9, "v": "y"}])).await;
        t.close_writer().await;
        forge(&t, rows(&Arc::new(schema), &json!([row]))).await;
        let error = t.fold().await.unwrap_err();
        assert!(matches!(&error, Error::Invalid(m) if m.contains(named)), "{error}");
        assert_eq!((t.listed().await.len(), t.compacted().await), (2, 0));
    }
}

#[tokio::test]
async fn a_sealed_shard_is_left_alone() {
    let mut t = id_v(json!([])).await;
    t.sstable(json!([{"id": 1, "v": "a"}])).await;
    t.close_writer().await;
    let store = t.manifest_store().await;
    let latest = store.refresh_latest().await.unwrap().unwrap();
    store
        .commit_update(latest.writer_epoch, |m| {
            let mut next = m.clone();
            next.version = m.next_version();
            next.status = lance_index::mem_wal::ShardStatus::Sealed;
            next
        })
        .await
        .unwrap();
    let error = t.fold().await.unwrap_err();
    assert!(matches!(&error, Error::Invalid(m) if m.contains("sealed")), "{error}");
    assert_eq!((t.listed().await.len(), t.compacted().await), (1, 0));
}

#[tokio::test]
async fn progress_is_not_recorded_for_a_table_without_a_mem_wal_index() {
    let mut t = id_v(json!([{"id": 1, "v": "a"}])).await;
    btree(&t, &["id"]).await;
    t.sstable(json!([{"id": 2, "v": "b"}])).await;
    let prefix = t.prefix().await;
    t.close_writer().await;
    t.dataset().await.drop_index(lance_index::mem_wal::MEM_WAL_INDEX_NAME).await.unwrap();
    let indexes = |d: lance::Dataset| async move {
        d.load_indices().await.unwrap().iter().map(|i| i.name.clone()).collect::<Vec<_>>()
    };
    let before = indexes(t.dataset().await).await;
    let error = t.fold_prefix(&prefix).await.unwrap_err();
    assert!(matches!(&error, Error::Invalid(m) if m.contains("MemWAL")), "{error}");
    assert_eq!(indexes(t.dataset().await).await, before);
    assert_eq!(t.base().await, vec![json!({"id": 1, "v": "a"})]);
}
