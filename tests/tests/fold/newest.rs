//! The newest row of each key wins, tombstones delete.

use arrow_schema::DataType;
use caretaker_tests::{Lsm, Options, column};
use executor::error::Error;
use serde_json::{Value, json};

use crate::{btree, id_v};

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
