//! The fold on real tables: what it does to rows, and what it refuses.
#![allow(clippy::unwrap_used)]

mod columns;
mod keys;
mod newest;
mod races;
mod refusals;

use arrow_schema::DataType;
use caretaker_tests::{Lsm, Options, column};
use lance::index::DatasetIndexExt;
use lance_index::IndexType;
use lance_index::scalar::ScalarIndexParams;
use serde_json::Value;

pub(crate) async fn id_v(base: Value) -> Lsm {
    let fields = vec![column("id", DataType::Int64), column("v", DataType::Utf8)];
    Lsm::create(fields, &["id"], base, Options::default()).await
}

pub(crate) async fn btree(t: &Lsm, columns: &[&str]) {
    let mut dataset = t.dataset().await;
    for column in columns {
        let params = ScalarIndexParams::default();
        dataset.create_index(&[column], IndexType::BTree, None, &params, true).await.unwrap();
    }
}
