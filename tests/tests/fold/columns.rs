//! Columns of every kind survive, and schemas drift by field id.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, Int64Array, LargeBinaryArray, RecordBatch};
use arrow_schema::{DataType, Field, Fields, Schema};
use caretaker_tests::{Lsm, Options, column};
use executor::error::Error;
use lance_core::datatypes::BlobHandling;
use lance_file::version::LanceFileVersion;
use serde_json::{Value, json};

use crate::id_v;

#[tokio::test]
async fn nested_columns_survive_the_fold() {
    let point = Fields::from(vec![column("x", DataType::Int32), column("tag", DataType::Utf8)]);
    let fields = vec![
        column("id", DataType::Int64),
        column("s", DataType::Struct(point.clone())),
        column("l", DataType::List(Arc::new(Field::new("item", DataType::Struct(point), true)))),
        column("vec", DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Float32, true)), 2)),
    ];
    let base = json!([{"id": 1, "s": {"x": 1, "tag": "o"}, "l": [], "vec": [0.0, 0.0]}]);
    let mut t = Lsm::create(fields, &["id"], base, Options::default()).await;
    let new = json!([
        {"id": 1, "s": {"x": null, "tag": "n"}, "l": [{"x": 5, "tag": null}, null], "vec": [1.5, -2.0]},
        {"id": 2, "s": null, "l": null, "vec": [9.0, 9.0]},
    ]);
    t.sstable(new.clone()).await;
    t.fold().await.unwrap();
    t.assert_rows(new).await;
}

/// Bytes of column `b` by id, read as a user would.
async fn blobs(t: &Lsm) -> std::collections::BTreeMap<i64, Option<Vec<u8>>> {
    let dataset = t.dataset().await;
    let mut scanner = dataset.scan();
    let batch = scanner.blob_handling(BlobHandling::AllBinary).try_into_batch().await.unwrap();
    let ids = batch.column_by_name("id").unwrap().as_primitive::<Int64Type>().clone();
    let bytes = batch.column_by_name("b").unwrap().as_binary::<i64>().clone();
    (0..batch.num_rows()).map(|n| (ids.value(n), bytes.is_valid(n).then(|| bytes.value(n).to_vec()))).collect()
}

#[tokio::test]
async fn blobs_of_both_kinds_and_any_size_survive_the_fold() {
    let small = |n: u8| Some(vec![n; 10]);
    let large = Some(vec![9u8; 5 << 20]);
    for (field, storage) in [
        (
            Field::new("b", DataType::LargeBinary, true)
                .with_metadata([("lance-encoding:blob".to_string(), "true".to_string())].into()),
            LanceFileVersion::V2_1,
        ),
        (lance::blob_field("b", true), LanceFileVersion::V2_2),
    ] {
        let options = Options { storage: Some(storage), ..Options::default() };
        let fields = vec![column("id", DataType::Int64), field];
        let mut t = Lsm::create(fields, &["id"], json!([]), options).await;
        let v2 = storage == LanceFileVersion::V2_2;
        let batch = |t: &Lsm, rows: Vec<(i64, Option<Vec<u8>>)>| {
            let ids: arrow_array::ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.0)));
            let bytes: arrow_array::ArrayRef = if v2 {
                let mut blobs = lance::BlobArrayBuilder::new(rows.len());
                for (_, bytes) in &rows {
                    match bytes {
                        Some(bytes) => blobs.push_bytes(bytes).unwrap(),
                        None => blobs.push_null().unwrap(),
                    }
                }
                blobs.finish().unwrap()
            } else {
                Arc::new(LargeBinaryArray::from_iter(rows.into_iter().map(|r| r.1)))
            };
            RecordBatch::try_new(t.schema.clone(), vec![ids, bytes]).unwrap()
        };
        let first = batch(&t, vec![(1, small(1)), (2, small(2)), (3, None)]);
        t.sstable_of(first).await;
        let second = batch(&t, vec![(2, large.clone()), (4, Some(vec![]))]);
        t.sstable_of(second).await;
        t.fold().await.unwrap();
        let expected = [(1, small(1)), (2, large.clone()), (3, None), (4, Some(vec![]))];
        assert!(blobs(&t).await == expected.into(), "{storage:?}");
        let third = batch(&t, vec![(1, small(7))]);
        t.sstable_of(third).await;
        t.fold().await.unwrap();
        assert_eq!(blobs(&t).await[&1], small(7));
    }
}

#[tokio::test]
async fn a_column_added_between_generations_reads_as_null_in_older_rows() {
    let mut t = id_v(json!([{"id": 0, "v": "z"}])).await;
    t.sstable(json!([{"id": 1, "v": "a"}])).await;
    t.close_writer().await;
    let mut dataset = t.dataset().await;
    let added = Schema::new(vec![column("w", DataType::Int32)]);
    let transform = lance::dataset::NewColumnTransform::AllNulls(Arc::new(added));
    dataset.add_columns(transform, None, None).await.unwrap();
    t.schema = t.schema_now().await;
    t.sstable(json!([{"id": 2, "v": "b", "w": 7}])).await;
    t.fold().await.unwrap();
    t.assert_rows(json!([{"id": 0, "v": "z", "w": null}, {"id": 1, "v": "a", "w": null}, {"id": 2, "v": "b", "w": 7}]))
        .await;
}

#[tokio::test]
async fn a_renamed_column_is_followed_by_its_field_id() {
    let mut t = id_v(json!([{"id": 0, "v": "z"}])).await;
    t.sstable(json!([{"id": 1, "v": "a"}])).await;
    t.close_writer().await;
    let mut dataset = t.dataset().await;
    let rename = lance::dataset::ColumnAlteration::new("v".into()).rename("label".into());
    dataset.alter_columns(&[rename]).await.unwrap();
    t.fold().await.unwrap();
    assert_eq!(t.base().await, vec![json!({"id": 0, "label": "z"}), json!({"id": 1, "label": "a"})]);
}

#[tokio::test]
async fn a_column_the_table_lost_stops_the_fold_and_drops_nothing() {
    let mut t = id_v(json!([{"id": 0, "v": "z"}])).await;
    t.sstable(json!([{"id": 1, "v": "a"}])).await;
    t.close_writer().await;
    t.dataset().await.drop_columns(&["v"]).await.unwrap();
    let error = t.fold().await.unwrap_err();
    assert!(matches!(&error, Error::Invalid(m) if m.contains("`v`")), "{error}");
    assert_eq!((t.listed().await.len(), t.compacted().await), (1, 0));
    // With the owner's word the values are left behind and the rows are folded.
    t.dataset().await.update_config([("caretaker.fold.dropped_columns", "leave")]).await.unwrap();
    t.fold().await.unwrap();
    assert_eq!(t.base().await, vec![json!({"id": 0}), json!({"id": 1})]);
}

#[tokio::test]
async fn an_updated_row_keeps_its_stable_row_id() {
    let fields = vec![column("id", DataType::Int64), column("v", DataType::Utf8)];
    let base: Vec<Value> = (0..6).map(|id| json!({"id": id, "v": "o"})).collect();
    let options = Options { stable_row_ids: true, rows_per_fragment: Some(3), ..Options::default() };
    let mut t = Lsm::create(fields, &["id"], Value::Array(base), options).await;
    let before = row_ids(&t).await;
    t.sstable(json!([{"id": 7, "v": "ins"}, {"id": 4, "v": "new"}])).await;
    t.sstable(json!([{"id": 1, "v": "new"}, {"id": 3, "_tombstone": true}])).await;
    t.fold().await.unwrap();
    let after = row_ids(&t).await;
    for (id, row_id) in &before {
        assert_eq!(after.get(id), (*id != 3).then_some(row_id), "id {id}");
    }
    assert!(!before.values().any(|r| *r == after[&7]), "a new row has a new id");
    t.assert_rows(json!([
        {"id": 0, "v": "o"}, {"id": 1, "v": "new"}, {"id": 2, "v": "o"}, {"id": 4, "v": "new"}, {"id": 5, "v": "o"},
        {"id": 7, "v": "ins"}
    ]))
    .await;
}

async fn row_ids(t: &Lsm) -> std::collections::BTreeMap<i64, u64> {
    let batch = t.dataset().await.scan().with_row_id().try_into_batch().await.unwrap();
    let ids = batch.column_by_name("id").unwrap().as_any().downcast_ref::<Int64Array>().unwrap().clone();
    let row_ids = batch.column_by_name("_rowid").unwrap();
    let row_ids = row_ids.as_any().downcast_ref::<arrow_array::UInt64Array>().unwrap();
    ids.values().iter().copied().zip(row_ids.values().iter().copied()).collect()
}
