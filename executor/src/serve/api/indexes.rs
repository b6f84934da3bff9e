//! Indexes of a table: made, listed, told of, dropped and warmed up.

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use futures::FutureExt;
use lance::index::DatasetIndexExt;
use lance_index::{IndexCriteria, IndexDescription};
use serde_json::{Value, json};

use super::call::{At, Call, json as body_of};
use super::{Answer, Api, Refused, code, posted, said};
use crate::registry::{NewJob, Queued};
use crate::run::build::Build;
use crate::table::Table;

/// The routes.
pub(super) fn routes() -> Router<Api> {
    let routes = posted(Router::new(), "/v1/table/{id}/create_index", create);
    let routes = posted(routes, "/v1/table/{id}/index/list", list);
    let routes = posted(routes, "/v1/table/{id}/index/{index}/stats", stats);
    let routes = posted(routes, "/v1/table/{id}/index/{index}/drop", remove);
    posted(routes, "/v1/table/{id}/index/{index}/prewarm", prewarm)
}

/// Whether an index is Lance's own, and nobody's who asks.
pub(super) fn is_system(name: &str) -> bool {
    name.starts_with("__lance_")
}

/// An index is built by a job, which the client waits for, or not.
async fn create(call: Call, body: Body) -> Answer {
    let build = Build { create: body_of(body).await? };
    let table = call.table().await?;
    if build.create.name().is_some_and(is_system) {
        return Err(Refused::invalid("names of indexes that begin with `__lance_` are Lance's own"));
    }
    let planned = build.create.plan(&table.dataset)?;
    let name = build.create.full_name(&planned.column);
    if !build.create.replace() && !table.dataset.load_indices_by_name(&name).await?.is_empty() {
        let why = format!("index `{name}` already exists; drop it, or make it with `replace`");
        // Not 409, which the client takes for a race and tries again.
        return Err(Refused::new(StatusCode::BAD_REQUEST, code::INDEX_EXISTS, why));
    }
    let job = NewJob::build(&call.api.table_ref(&call.id)?, &build, &name, &table.dataset)?;
    match call.api.tender.registry.enqueue(vec![job], 0).await?.pop() {
        Some(Queued::Yes(job)) => said(json!({ "job_id": job })),
        _ => {
            let why = format!("index `{name}` is being built already; wait for that, or cancel its job");
            Err(Refused::new(StatusCode::BAD_REQUEST, code::INDEX_EXISTS, why))
        }
    }
}

async fn list(call: Call, body: Body) -> Answer {
    let At { version } = body_of(body).await?;
    let table = call.table_at(version).await?;
    let rows = table.dataset.count_rows(None).await? as u64;
    let found = table.dataset.describe_indices(None).await?;
    let lines = found.iter().filter(|index| !is_system(index.name())).map(|index| line(&table, index.as_ref(), rows));
    said(json!({ "indexes": lines.collect::<Vec<Value>>() }))
}

fn line(table: &Table, index: &dyn IndexDescription, rows: u64) -> Value {
    let path = |id: &u32| table.dataset.schema().field_path(i32::try_from(*id).unwrap_or(-1)).ok();
    let columns: Vec<String> = index.field_ids().iter().filter_map(path).collect();
    let segments = index.segments();
    json!({
        "index_name": index.name(), "columns": columns, "status": "done", "index_type": kind(index),
        "index_uuid": segments.first().map(|segment| segment.uuid.to_string()),
        "created_at": segments.iter().filter_map(|segment| segment.created_at).min().map(|time| time.to_rfc3339()),
        "num_indexed_rows": index.rows_indexed(),
        "num_unindexed_rows": rows.saturating_sub(index.rows_indexed()),
        "size_bytes": index.total_size_bytes(), "num_segments": segments.len(),
        "index_version": segments.first().map(|segment| segment.index_version),
        "index_details": index.details().ok(), "type_url": index.type_url(),
    })
}

/// The kind as the client calls it.
fn kind(index: &dyn IndexDescription) -> String {
    match index.index_type().to_ascii_uppercase().as_str() {
        "INVERTED" => "FTS".into(),
        "LABELLIST" => "LABEL_LIST".into(),
        "UNKNOWN" => "Unknown".into(),
        known => known.into(),
    }
}

async fn stats(call: Call) -> Answer {
    let table = call.table().await?;
    let found = described(&call, &table).await?;
    let rows = table.dataset.count_rows(None).await? as u64;
    let details: Value = found.details().ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let distance = details["metric_type"].as_str().map(str::to_ascii_lowercase);
    let mut told = json!({
        "num_indexed_rows": found.rows_indexed(), "num_unindexed_rows": rows.saturating_sub(found.rows_indexed()),
        "index_type": kind(found.as_ref()), "num_indices": found.segments().len(),
    });
    if let Some(distance) = distance {
        told["distance_type"] = json!(distance);
    }
    said(told)
}

async fn remove(call: Call) -> Answer {
    let table = call.table().await?;
    described(&call, &table).await?;
    let mut dataset = (*table.dataset).clone();
    dataset.drop_index(&call.index).await?;
    call.api.wrote(&call.id);
    said(json!({}))
}

async fn prewarm(call: Call) -> Answer {
    let table = call.table().await?;
    described(&call, &table).await?;
    table.dataset.prewarm_index(&call.index).boxed().await?;
    said(json!({}))
}

/// The index that a path names.
async fn described(call: &Call, table: &Table) -> Result<std::sync::Arc<dyn IndexDescription>, Refused> {
    let named = IndexCriteria::default().with_name(&call.index);
    let found = if is_system(&call.index) { None } else { table.dataset.describe_indices(Some(named)).await?.pop() };
    found.ok_or_else(|| {
        let why = format!("table `{}` has no index `{}`", call.id, call.index);
        Refused::new(StatusCode::NOT_FOUND, code::INDEX_NOT_FOUND, why)
    })
}
