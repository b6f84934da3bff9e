//! `insert`, `merge_insert`, `update` and `delete` of a table, each one commit of Lance.

use std::collections::BTreeSet;

use arrow_schema::Schema;
use axum::Router;
use axum::body::Body;
use datafusion::execution::SendableRecordBatchStream;
use futures::{FutureExt, StreamExt};
use lance::dataset::{
    DeleteBuilder, InsertBuilder, MergeInsertBuilder, UpdateBuilder, WhenMatched, WhenNotMatched,
    WhenNotMatchedBySource, WriteMode, WriteParams,
};
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::call::{Call, json as body_of};
use super::ipc::Incoming;
use super::{Answer, Api, Refused, expression, posted, said, shards};
use crate::table::Table;

/// The routes.
pub(super) fn routes() -> Router<Api> {
    let routes = posted(Router::new(), "/v1/table/{id}/insert", insert);
    let routes = posted(routes, "/v1/table/{id}/merge_insert", merge);
    let routes = posted(routes, "/v1/table/{id}/update", update);
    posted(routes, "/v1/table/{id}/delete", delete)
}

async fn insert(call: Call, body: Body) -> Answer {
    let mode = match call.param("mode").unwrap_or("append") {
        "append" => WriteMode::Append,
        "overwrite" => WriteMode::Overwrite,
        odd => return Err(Refused::invalid(format!("`{odd}` is no mode; use append or overwrite"))),
    };
    let rows = Incoming::open(body).await?;
    let table = call.table().await?;
    let sharded = call.to_shards(&table, None).await?;
    let rows = match mode {
        WriteMode::Overwrite if sharded => {
            return Err(Refused::invalid(format!(
                "table `{}` takes LSM writes, which would outlive what is overwritten; unset its write spec first",
                call.id
            )));
        }
        WriteMode::Overwrite => rows,
        _ => rows.fit(&Schema::from(table.dataset.schema()))?,
    };
    if sharded {
        shards::put(&call, &table, rows).await?;
        return said(json!({ "version": table.version() }));
    }
    let (_turn, table) = call.turn().await?;
    let fault = rows.fault.clone();
    let version = insert_base(&table, mode, rows.stream()).await.map_err(|e| fault.or(e))?;
    call.api.wrote(&call.id);
    said(json!({ "version": version }))
}

/// Adds rows to a table's base, or puts them in the place of all there are. Gives the version.
async fn insert_base(table: &Table, mode: WriteMode, rows: SendableRecordBatchStream) -> lance_core::Result<u64> {
    let params = WriteParams { mode, session: Some(table.session.clone()), ..WriteParams::default() };
    let insert = InsertBuilder::new(table.dataset.clone());
    Ok(insert.with_params(&params).execute_stream(rows).boxed().await?.manifest().version)
}

/// What becomes of rows that are on both sides of a merge, or on one.
pub(super) struct MergeRequest {
    /// Columns by which rows are the same; none: the primary key.
    pub(super) on: Vec<String>,
    pub(super) update_matched: bool,
    /// Of those that are on both sides, only these.
    pub(super) update_matched_if: Option<String>,
    pub(super) insert_new: bool,
    pub(super) delete_unmatched: bool,
    /// Of those that are in the table only, only these.
    pub(super) delete_unmatched_if: Option<String>,
    pub(super) use_index: bool,
    /// Whether it goes to the table's shards; `None`: where it has some.
    pub(super) lsm: Option<bool>,
}

impl MergeRequest {
    fn of(call: &Call) -> Result<Self, Refused> {
        let on: Vec<String> = call.params_of("on").map(str::to_string).collect();
        if on.iter().collect::<BTreeSet<_>>().len() < on.len() {
            return Err(Refused::invalid("`on` names a column twice"));
        }
        let flag = |name: &str| Ok::<_, Refused>(call.flag(name)?.unwrap_or(false));
        let text = |name: &str| match call.param(name) {
            Some(text) => expression::bounded(text).map(|()| Some(text.to_string())).map_err(Refused::invalid),
            None => Ok(None),
        };
        let lsm = call.flag("use_lsm")?;
        Ok(Self {
            on,
            update_matched: flag("when_matched_update_all")?,
            update_matched_if: text("when_matched_update_all_filt")?,
            insert_new: flag("when_not_matched_insert_all")?,
            delete_unmatched: flag("when_not_matched_by_source_delete")?,
            delete_unmatched_if: text("when_not_matched_by_source_delete_filt")?,
            use_index: call.flag("use_index")?.unwrap_or(true),
            lsm: if lsm.is_some() { lsm } else { call.flag("use_rte")? },
        })
    }
}

/// What a merge did.
#[derive(Default)]
pub(super) struct Merged {
    pub(super) version: u64,
    pub(super) inserted: u64,
    pub(super) updated: u64,
    pub(super) deleted: u64,
    pub(super) attempts: u32,
}

async fn merge(call: Call, body: Body) -> Answer {
    let request = MergeRequest::of(&call)?;
    let rows = Incoming::open(body).await?;
    let table = call.table().await?;
    let sharded = call.to_shards(&table, request.lsm).await?;
    let mut rows = rows.fit(&Schema::from(table.dataset.schema()))?;
    if sharded {
        shards::upserts(&table, &request, &rows.schema)?;
        let count = shards::put(&call, &table, rows).await?;
        return said(json!({
            "version": 0, "num_inserted_rows": 0, "num_updated_rows": 0, "num_deleted_rows": 0, "num_attempts": 0,
            "num_rows": count,
        }));
    }
    let (_turn, table) = call.turn().await?;
    let (fault, came) = (rows.fault.clone(), Arc::new(AtomicU64::new(0)));
    let counter = came.clone();
    rows.batches = rows
        .batches
        .inspect(move |batch| {
            let more = batch.as_ref().map_or(0, |batch| batch.num_rows() as u64);
            counter.fetch_add(more, Ordering::Relaxed);
        })
        .boxed();
    let merged = merge_base(&table, &request, rows.stream()).await.map_err(|e| fault.or(e))?;
    call.api.wrote(&call.id);
    said(json!({
        "version": merged.version, "num_inserted_rows": merged.inserted, "num_updated_rows": merged.updated,
        "num_deleted_rows": merged.deleted, "num_attempts": merged.attempts, "num_rows": came.load(Ordering::Relaxed),
    }))
}

/// Merges rows into a table's base.
async fn merge_base(
    table: &Table,
    request: &MergeRequest,
    rows: SendableRecordBatchStream,
) -> lance_core::Result<Merged> {
    let mut building = MergeInsertBuilder::try_new(table.dataset.clone(), request.on.clone())?;
    building.when_matched(match (request.update_matched, &request.update_matched_if) {
        (false, _) => WhenMatched::DoNothing,
        (true, None) => WhenMatched::UpdateAll,
        (true, Some(which)) => WhenMatched::update_if(&table.dataset, which)?,
    });
    building.when_not_matched(match request.insert_new {
        true => WhenNotMatched::InsertAll,
        false => WhenNotMatched::DoNothing,
    });
    building.when_not_matched_by_source(match (request.delete_unmatched, &request.delete_unmatched_if) {
        (false, _) => WhenNotMatchedBySource::Keep,
        (true, None) => WhenNotMatchedBySource::Delete,
        (true, Some(which)) => WhenNotMatchedBySource::delete_if(&table.dataset, which)?,
    });
    building.use_index(request.use_index);
    let (dataset, stats) = building.try_build()?.execute(rows).boxed().await?;
    Ok(Merged {
        version: dataset.manifest().version,
        inserted: stats.num_inserted_rows,
        updated: stats.num_updated_rows,
        deleted: stats.num_deleted_rows,
        attempts: stats.num_attempts,
    })
}

/// New values of columns, for the rows that a predicate is true of.
#[derive(Deserialize)]
pub(super) struct UpdateRequest {
    /// Columns, each with the expression of its value.
    #[serde(deserialize_with = "expression::pairs")]
    pub(super) updates: Vec<(String, String)>,
    #[serde(default, deserialize_with = "expression::maybe")]
    pub(super) predicate: Option<String>,
}

async fn update(call: Call, body: Body) -> Answer {
    let request: UpdateRequest = body_of(body).await?;
    if request.updates.is_empty() {
        return Err(Refused::invalid("name at least one column in `updates`"));
    }
    let table = call.table().await?;
    if let Some((odd, _)) = request.updates.iter().find(|(name, _)| table.dataset.schema().field(name).is_none()) {
        return Err(Refused::invalid(format!("the table has no column `{odd}`")));
    }
    if call.to_shards(&table, None).await? {
        let rows = shards::update(&call, &table, &request).await?;
        return said(json!({ "rows_updated": rows, "version": table.version() }));
    }
    let (_turn, table) = call.turn().await?;
    let (rows, version) = update_base(&table, &request).await?;
    call.api.wrote(&call.id);
    said(json!({ "rows_updated": rows, "version": version }))
}

/// Updates rows of a table's base. Gives how many, and the version.
async fn update_base(table: &Table, request: &UpdateRequest) -> lance_core::Result<(u64, u64)> {
    let mut building = UpdateBuilder::new(table.dataset.clone());
    if let Some(which) = &request.predicate {
        building = building.update_where(which)?;
    }
    for (column, value) in &request.updates {
        building = building.set(column, value)?;
    }
    let done = building.build()?.execute().boxed().await?;
    Ok((done.rows_updated, done.new_dataset.manifest().version))
}

/// The rows that go: those that a predicate is true of.
#[derive(Deserialize)]
pub(super) struct DeleteRequest {
    #[serde(deserialize_with = "expression::one")]
    pub(super) predicate: String,
}

async fn delete(call: Call, body: Body) -> Answer {
    let request: DeleteRequest = body_of(body).await?;
    let table = call.table().await?;
    if call.to_shards(&table, None).await? {
        let rows = shards::delete(&call, &table, &request.predicate).await?;
        return said(json!({ "num_deleted_rows": rows, "version": table.version() }));
    }
    let (_turn, table) = call.turn().await?;
    let (rows, version) = delete_base(&table, &request).await?;
    call.api.wrote(&call.id);
    said(json!({ "num_deleted_rows": rows, "version": version }))
}

/// Deletes rows of a table's base. Gives how many, and the version.
async fn delete_base(table: &Table, request: &DeleteRequest) -> lance_core::Result<(u64, u64)> {
    let done = DeleteBuilder::new(table.dataset.clone(), request.predicate.as_str()).execute().boxed().await?;
    Ok((done.num_deleted_rows, done.new_dataset.manifest().version))
}
