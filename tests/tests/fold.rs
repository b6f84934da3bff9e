//! The fold on real tables: what it does to rows, and what it refuses.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, Int32Array, Int64Array, LargeBinaryArray, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Fields, Schema};
use caretaker_tests::{Lsm, Options, column, rows};
use executor::error::Error;
use executor::run::fold::Prefix;
use lance::index::DatasetIndexExt;
use lance_core::datatypes::BlobHandling;
use lance_file::version::LanceFileVersion;
use lance_index::IndexType;
use lance_index::scalar::ScalarIndexParams;
use serde_json::{Value, json};

async fn id_v(base: Value) -> Lsm {
    let fields = vec![column("id", DataType::Int64), column("v", DataType::Utf8)];
    Lsm::create(fields, &["id"], base, Options::default()).await
}

async fn btree(t: &Lsm, columns: &[&str]) {
    let mut dataset = t.dataset().await;
    for column in columns {
        let params = ScalarIndexParams::default();
        dataset.create_index(&[column], IndexType::BTree, None, &params, true).await.unwrap();
    }
}

// --- newest wins -----------------------------------------------------------------------------

#[tokio::test]
async fn the_newest_row_inside_one_sstable_wins_even_when_it_is_null() {
    let mut t = id_v(json!([{"id": 1, "v": "a"}])).await;
    t.sstable(json!([{"id": 1, "v": "b"}, {"id": 1, "v": null}])).await;
    let report = t.fold().await.unwrap();
    assert_eq!((report.rows_updated, report.rows_inserted, report.rows_deleted), (1, 0, 0));
    t.assert_rows(json!([{"id": 1, "v": null}])).await;
}

#[tokio::test]
async fn the_newest_sstable_wins_and_new_keys_are_inserted_once() {
    let mut t = id_v(json!([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])).await;
    t.sstable(json!([{"id": 1, "v": "old"}, {"id": 3, "v": "old"}])).await;
    t.sstable(json!([{"id": 3, "v": "new"}, {"id": 1, "v": "new"}])).await;
    let report = t.fold().await.unwrap();
    assert_eq!((report.rows_updated, report.rows_inserted, report.sstables), (1, 1, 2));
    t.assert_rows(json!([{"id": 1, "v": "new"}, {"id": 2, "v": "b"}, {"id": 3, "v": "new"}])).await;
}

#[tokio::test]
async fn repeated_folds_never_leave_two_rows_of_a_key() {
    let fields = vec![column("id", DataType::Utf8), column("n", DataType::Int32)];
    let mut t = Lsm::create(fields, &["id"], json!([]), Options::default()).await;
    for n in 0..30 {
        t.sstable(json!([{"id": format!("r{n:02}"), "n": n}])).await;
        if n % 10 == 9 {
            t.fold().await.unwrap();
            assert_eq!(t.dataset().await.count_rows(None).await.unwrap(), n + 1);
        }
    }
    let expected: Vec<Value> = (0..30).map(|n| json!({"id": format!("r{n:02}"), "n": n})).collect();
    t.assert_rows(Value::Array(expected)).await;
    let version = t.dataset().await.version().version;
    assert!(matches!(t.fold().await, Err(Error::Invalid(_))), "nothing is left to fold");
    assert_eq!(t.dataset().await.version().version, version, "and nothing was written");
}

#[tokio::test]
async fn a_key_is_upserted_again_and_again_without_ambiguity() {
    let fields = vec![column("id", DataType::Utf8), column("v", DataType::Int32)];
    let base = json!([{"id": "A", "v": 1}, {"id": "B", "v": 2}, {"id": "C", "v": 3}]);
    let mut t = Lsm::create(fields, &["id"], base, Options::default()).await;
    btree(&t, &["id"]).await;
    for (a, b) in [(10, Some(20)), (11, Some(21)), (12, None)] {
        let mut wanted = vec![json!({"id": "A", "v": a})];
        wanted.extend(b.map(|b| json!({"id": "B", "v": b})));
        t.sstable(Value::Array(wanted)).await;
        t.fold().await.unwrap();
    }
    t.assert_rows(json!([{"id": "A", "v": 12}, {"id": "B", "v": 21}, {"id": "C", "v": 3}])).await;
}

#[tokio::test]
async fn two_rows_of_a_key_in_the_base_become_one() {
    let mut t = id_v(json!([{"id": 1, "v": "a"}])).await;
    t.append(json!([{"id": 1, "v": "again"}])).await;
    t.sstable(json!([{"id": 1, "v": "new"}])).await;
    t.fold().await.unwrap();
    t.assert_rows(json!([{"id": 1, "v": "new"}])).await;
}

// --- tombstones ------------------------------------------------------------------------------

#[tokio::test]
async fn a_tombstone_reaches_a_row_that_only_the_base_has() {
    let mut t = id_v(json!([{"id": 5, "v": "x"}, {"id": 6, "v": "y"}])).await;
    t.sstable(json!([{"id": 5, "v": "tmp"}])).await;
    t.sstable(json!([{"id": 5, "_tombstone": true}])).await;
    let report = t.fold().await.unwrap();
    assert_eq!((report.rows_updated, report.rows_inserted, report.rows_deleted), (0, 0, 1));
    t.assert_rows(json!([{"id": 6, "v": "y"}])).await;
}

#[tokio::test]
async fn a_key_written_after_its_tombstone_lives() {
    let mut t = id_v(json!([{"id": 1, "v": "a"}])).await;
    t.sstable(json!([{"id": 1, "_tombstone": true}])).await;
    t.sstable(json!([{"id": 1, "v": "back"}])).await;
    t.fold().await.unwrap();
    t.assert_rows(json!([{"id": 1, "v": "back"}])).await;
}

#[tokio::test]
async fn a_pass_of_tombstones_alone_adds_no_fragment() {
    for base in [json!([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 3, "v": "c"}]), json!([])] {
        let mut t = id_v(base).await;
        for id in [1, 2, 3, 99] {
            t.sstable(json!([{"id": id, "_tombstone": true}])).await;
        }
        t.fold().await.unwrap();
        t.assert_rows(json!([])).await;
        assert!(t.dataset().await.get_fragments().is_empty(), "no zero-row fragment");
        t.append(json!([{"id": 5, "v": "e"}])).await;
        assert_eq!(t.base().await, vec![json!({"id": 5, "v": "e"})]);
    }
}

#[tokio::test]
async fn a_later_tombstone_keeps_hiding_a_row_folded_before_it() {
    let mut t = id_v(json!([])).await;
    t.sstable(json!([{"id": 1, "v": "old"}])).await;
    t.sstable(json!([{"id": 2, "v": "z"}])).await;
    t.sstable(json!([{"id": 1, "_tombstone": true}])).await;
    let mut first = t.prefix().await;
    first.sstables.truncate(2);
    t.fold_prefix(&first).await.unwrap();
    assert_eq!(t.base().await.len(), 2);
    assert_eq!(t.union().await, vec![json!({"id": 2, "v": "z"})]);
    t.fold().await.unwrap();
    t.assert_rows(json!([{"id": 2, "v": "z"}])).await;
}

#[tokio::test]
async fn tombstones_delete_whatever_is_indexed() {
    for indexed in [vec!["tenant", "id"], vec![], vec!["id"]] {
        let fields =
            vec![column("tenant", DataType::Utf8), column("id", DataType::Int64), column("v", DataType::Int32)];
        let base = json!([
            {"tenant": "a", "id": 1, "v": 1}, {"tenant": "a", "id": 2, "v": 2}, {"tenant": "b", "id": 1, "v": 3}
        ]);
        let mut t = Lsm::create(fields, &["tenant", "id"], base, Options::default()).await;
        btree(&t, &indexed).await;
        t.sstable(json!([{"tenant": "a", "id": 1, "_tombstone": true}])).await;
        let report = t.fold().await.unwrap();
        assert_eq!(report.rows_deleted, 1);
        t.assert_rows(json!([{"tenant": "a", "id": 2, "v": 2}, {"tenant": "b", "id": 1, "v": 3}])).await;
        let dataset = t.dataset().await;
        assert_eq!(dataset.count_rows(Some("tenant = 'a' AND id = 1".into())).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn a_commit_that_only_moves_the_marker_keeps_every_row_and_fragment() {
    let base: Vec<Value> = (0..1000).map(|id| json!({"id": id, "v": "b"})).collect();
    let fields = vec![column("id", DataType::Int64), column("v", DataType::Utf8)];
    let options = Options { rows_per_fragment: Some(250), ..Options::default() };
    let mut t = Lsm::create(fields, &["id"], Value::Array(base), options).await;
    let ids = |d: &lance::Dataset| d.get_fragments().iter().map(|f| f.id()).collect::<Vec<_>>();
    let before = ids(&t.dataset().await);
    assert_eq!(before.len(), 4);
    t.sstable(json!([{"id": 5000, "_tombstone": true}, {"id": 6000, "_tombstone": true}])).await;
    t.fold().await.unwrap();
    let after = t.dataset().await;
    assert_eq!((ids(&after), after.count_rows(None).await.unwrap()), (before, 1000));
    assert_eq!(t.compacted().await, 1);
}

#[tokio::test]
async fn a_key_comes_back_after_its_fragment_is_gone() {
    for indexed in [vec!["id"], vec![]] {
        let base: Vec<Value> = (0..10).map(|id| json!({"id": id, "v": "o"})).collect();
        let fields = vec![column("id", DataType::Int64), column("v", DataType::Utf8)];
        let options = Options { rows_per_fragment: Some(5), ..Options::default() };
        let mut t = Lsm::create(fields, &["id"], Value::Array(base), options).await;
        btree(&t, &indexed).await;
        t.sstable((0..5).map(|id| json!({"id": id, "_tombstone": true})).collect()).await;
        t.fold().await.unwrap();
        t.sstable(json!([{"id": 2, "v": "back"}])).await;
        t.fold().await.unwrap();
        let dataset = t.dataset().await;
        assert_eq!(dataset.count_rows(None).await.unwrap(), 6);
        assert_eq!(dataset.count_rows(Some("id = 2 AND v = 'back'".into())).await.unwrap(), 1);
    }
}

// --- keys ------------------------------------------------------------------------------------

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

// --- columns ---------------------------------------------------------------------------------

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
}

// --- stable row ids --------------------------------------------------------------------------

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

// --- memory ----------------------------------------------------------------------------------

#[tokio::test]
async fn keys_that_do_not_fit_are_taken_in_slices_with_the_same_result() {
    let fields = vec![column("id", DataType::Utf8), column("n", DataType::Int32)];
    for stable_row_ids in [false, true] {
        let options = Options { stable_row_ids, ..Options::default() };
        let mut t = Lsm::create(fields.clone(), &["id"], json!([]), options).await;
        let schema = t.schema.clone();
        for generation in 0..3 {
            let ids: Vec<String> = (0..20_000).map(|n| format!("key-{:07}", n * (generation + 1) as i32)).collect();
            let numbers = Int32Array::from(vec![generation as i32; ids.len()]);
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

// --- races -----------------------------------------------------------------------------------

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

#[tokio::test]
async fn a_stalled_pass_that_wakes_up_late_changes_nothing() {
    let mut t = id_v(json!([])).await;
    t.sstable(json!([{"id": 1, "v": "old"}])).await;
    let stalled = t.prefix().await;
    t.sstable(json!([{"id": 1, "v": "new"}])).await;
    let both = t.prefix().await;
    let table = t.table().await;
    before_commit(&t, move || {
        let (table, both) = (table.clone(), both.clone());
        async move {
            let progress = Arc::new(executor::run::Progress::default());
            executor::run::fold::fold(&table, &[both], 64 << 20, &progress).await.unwrap();
        }
    });
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
    let table = t.table().await;
    before_commit(&t, move || {
        let (table, both) = (table.clone(), both.clone());
        async move {
            let progress = Arc::new(executor::run::Progress::default());
            executor::run::fold::fold(&table, &[both], 64 << 20, &progress).await.unwrap();
        }
    });
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

// --- what must not be folded -----------------------------------------------------------------

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
    let unknown = Schema::new(vec![column("id", DataType::Int64), column("v", DataType::Utf8), column("q", DataType::Utf8)]);
    for (schema, row, named) in [(typed, json!({"id": 1, "v": 1}), "`v`"), (unknown, json!({"id": 1, "v": "a", "q": "b"}), "`q`")] {
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
