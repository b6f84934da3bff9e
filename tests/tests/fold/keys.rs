//! Keys of every kind, and more of them than memory holds.

use std::sync::Arc;

use arrow_array::{Int32Array, RecordBatch, StringArray};
use arrow_schema::DataType;
use caretaker_tests::{Lsm, Options, column};
use serde_json::{Value, json};

#[tokio::test]
async fn every_key_type_in_any_column_order_is_matched_by_value() {
    let binary = |s: &str| s.bytes().map(|b| format!("{b:02x}")).collect::<String>();
    for (key_type, a, b) in [
        (DataType::Int32, json!(-1), json!(7)),
        (DataType::Int64, json!(i64::MIN), json!(7)),
        (DataType::Utf8, json!("a"), json!("b")),
        (DataType::LargeUtf8, json!("a"), json!("b")),
        (DataType::Binary, json!(binary("a")), json!(binary("b"))),
    ] {
        for key_first in [true, false] {
            let mut fields = vec![column("k", key_type.clone()), column("v", DataType::Utf8)];
            if !key_first {
                fields.reverse();
            }
            let mut t = Lsm::create(fields, &["k"], json!([{"k": a, "v": "old"}]), Options::default()).await;
            t.sstable(json!([{"k": a, "v": "new"}, {"k": b, "v": "ins"}])).await;
            let report = t.fold().await.unwrap();
            assert_eq!((report.rows_updated, report.rows_inserted), (1, 1), "{key_type}");
            t.assert_rows(json!([{"k": a, "v": "new"}, {"k": b, "v": "ins"}])).await;
        }
    }
}

#[tokio::test]
async fn a_composite_key_keeps_its_order_whatever_the_columns() {
    let fields = vec![column("b", DataType::Int64), column("v", DataType::Utf8), column("a", DataType::Utf8)];
    // ("x", 1) and ("x1", …) must not run together.
    let base = json!([{"a": "x", "b": 11, "v": "o"}, {"a": "x1", "b": 1, "v": "o"}]);
    let mut t = Lsm::create(fields, &["a", "b"], base, Options::default()).await;
    t.sstable(json!([{"a": "x1", "b": 1, "v": "n"}, {"a": "x", "b": 1, "v": "i"}])).await;
    t.sstable(json!([{"a": "x", "b": 11, "_tombstone": true}])).await;
    t.fold().await.unwrap();
    t.assert_rows(json!([{"a": "x1", "b": 1, "v": "n"}, {"a": "x", "b": 1, "v": "i"}])).await;
}

#[tokio::test]
async fn keys_that_only_look_alike_stay_apart() {
    let names = ["\u{e9}", "e\u{301}", "a ", "a", "\u{130}", "i", "", "a\u{0}"];
    let fields = vec![column("k", DataType::Utf8), column("v", DataType::Int32)];
    let mut t = Lsm::create(fields, &["k"], json!([]), Options::default()).await;
    let with =
        |add: usize| -> Value { names.iter().enumerate().map(|(n, k)| json!({"k": k, "v": n + 1 + add})).collect() };
    t.sstable(with(0)).await;
    t.fold().await.unwrap();
    t.sstable(with(10)).await;
    t.fold().await.unwrap();
    t.assert_rows(with(10)).await;
}

#[tokio::test]
async fn odd_column_names_are_columns_like_any_other() {
    let mut t = Lsm::create(
        vec![column("ID", DataType::Int64), column("id", DataType::Utf8), column("select", DataType::Utf8)],
        &["ID"],
        json!([{"ID": 2, "id": "a", "select": "s"}, {"ID": 1, "id": "b", "select": "s"}]),
        Options::default(),
    )
    .await;
    t.sstable(json!([{"ID": 2, "id": "x", "select": "n"}, {"ID": 4, "id": "z", "select": "n"}])).await;
    t.fold().await.unwrap();
    t.assert_rows(json!([
        {"ID": 1, "id": "b", "select": "s"}, {"ID": 2, "id": "x", "select": "n"}, {"ID": 4, "id": "z", "select": "n"}
    ]))
    .await;

    let key = "訂單-編號";
    let fields =
        vec![column(key, DataType::Utf8), column("naïve:col", DataType::Int32), column("🚀 x", DataType::Utf8)];
    let base = json!([{key: "A一", "naïve:col": 1, "🚀 x": "r"}]);
    let mut t = Lsm::create(fields, &[key], base, Options::default()).await;
    t.sstable(json!([{key: "A一", "naïve:col": 2, "🚀 x": "r2"}, {key: "Б", "naïve:col": 3, "🚀 x": ""}])).await;
    t.fold().await.unwrap();
    t.assert_rows(json!([{key: "A一", "naïve:col": 2, "🚀 x": "r2"}, {key: "Б", "naïve:col": 3, "🚀 x": ""}])).await;
}

#[tokio::test]
async fn keys_that_do_not_fit_are_taken_in_slices_with_the_same_result() {
    let fields = vec![column("id", DataType::Utf8), column("n", DataType::Int32)];
    for stable_row_ids in [false, true] {
        let options = Options { stable_row_ids, ..Options::default() };
        let mut t = Lsm::create(fields.clone(), &["id"], json!([]), options).await;
        let schema = t.schema.clone();
        for generation in 0..3 {
            let ids: Vec<String> = (0..20_000).map(|n| format!("key-{:07}", n * (generation + 1))).collect();
            let numbers = Int32Array::from(vec![generation; ids.len()]);
            let columns: Vec<arrow_array::ArrayRef> = vec![Arc::new(StringArray::from(ids)), Arc::new(numbers)];
            t.sstable_of(RecordBatch::try_new(schema.clone(), columns).unwrap()).await;
        }
        let union = t.union().await;
        // A quarter of this is for keys: about 40,000 keys of 30 bytes do not fit at once.
        let progress = Arc::new(executor::run::Progress::default());
        let prefix = t.prefix().await;
        executor::run::fold::fold(&t.table().await, &[prefix], 4 << 20, &progress).await.unwrap();
        assert!(t.base().await == union, "slices change nothing");
    }
}
