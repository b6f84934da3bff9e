//! `/v1/table/*` and `/v1/namespace/*`: which tables there are, what they are like, and their versions.

use std::time::Duration;

use arrow_schema::Schema;
use axum::body::Body;
use axum::http::StatusCode;
use axum::{Json, Router};
use futures::FutureExt;
use lance::arrow::json::JsonSchema;
use lance::dataset::{InsertBuilder, WriteMode, WriteParams, validate_dataset_root_for_drop};
use lance::index::DatasetIndexExt;
use lance_io::object_store::ObjectStore;
use object_store::path::Path;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::call::{At, Call, json as body_of};
use super::indexes::is_system;
use super::ipc::Incoming;
use super::{Answer, Api, Refused, code, got, posted, said};
use crate::table::Table;

/// Tables on a page, where the client names no number, and at most.
const PAGE: usize = 100;
const PAGE_MAX: usize = 10_000;
/// The namespace of all tables; others there are not.
const ROOT: &str = "$";
/// How often a table's folder is removed until nobody writes to it, and how long it is waited between.
const REMOVES: u32 = 20;
const REMOVE_AGAIN: Duration = Duration::from_millis(100);
/// Bytes of a tag's name.
const TAG_MAX: usize = 200;
/// Rows of a fragment that is small, as LanceDB counts them.
const SMALL_FRAGMENT: usize = 100_000;

/// The routes.
pub(super) fn routes() -> Router<Api> {
    let routes = got(Router::new(), "/v1/table", list);
    let routes = got(routes, "/v1/namespace/{id}/table/list", list_in);
    let routes = got(routes, "/v1/namespace/{id}/list", namespaces);
    let routes = posted(routes, "/v1/namespace/{id}/describe", namespace);
    let routes = posted(routes, "/v1/table/{id}/create", create);
    let routes = posted(routes, "/v1/table/{id}/describe", describe);
    let routes = posted(routes, "/v1/table/{id}/drop", remove);
    let routes = posted(routes, "/v1/table/{id}/rename", rename);
    let routes = posted(routes, "/v1/table/{id}/stats", stats);
    let routes = posted(routes, "/v1/table/{id}/version/list", versions);
    let routes = posted(routes, "/v1/table/{id}/restore", restore);
    let routes = posted(routes, "/v1/table/{id}/tags/list", tags);
    let routes = posted(routes, "/v1/table/{id}/tags/version", tag_version);
    let routes = posted(routes, "/v1/table/{id}/tags/create", tag);
    let routes = posted(routes, "/v1/table/{id}/tags/update", retag);
    posted(routes, "/v1/table/{id}/tags/delete", untag)
}

async fn list(call: Call) -> Answer {
    let limit = call.number("limit")?.unwrap_or(PAGE).clamp(1, PAGE_MAX);
    let after = call.param("page_token").unwrap_or_default();
    let tables = call.api.root.tables(call.api.tender.session()).await?;
    let names = tables.into_iter().map(|table| table.name);
    let known = |name: &String| name.as_str() > after && is_clients(name) && call.api.table_ref(name).is_ok();
    let mut names: Vec<String> = names.filter(known).take(limit + 1).collect();
    let more = names.len() > limit;
    names.truncate(limit);
    said(match names.last().filter(|_| more) {
        Some(last) => json!({ "page_token": last, "tables": names }),
        None => json!({ "tables": names }),
    })
}

/// Whether LanceDB's client takes a name for one. At a list with another it fails as a whole, so a table of such a
/// name is not on it, and asked for by whoever knows it.
fn is_clients(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

async fn list_in(call: Call) -> Answer {
    only_root(&call)?;
    list(call).await
}

async fn namespaces(call: Call) -> Answer {
    only_root(&call)?;
    said(json!({ "namespaces": [] }))
}

async fn namespace(call: Call) -> Answer {
    only_root(&call)?;
    said(json!({ "properties": {} }))
}

fn only_root(call: &Call) -> Result<(), Refused> {
    if call.id == ROOT {
        return Ok(());
    }
    let why = format!("there is no namespace `{}`: all tables are in `{ROOT}`", call.id);
    Err(Refused::new(StatusCode::NOT_FOUND, code::NAMESPACE_NOT_FOUND, why))
}

async fn create(call: Call, body: Body) -> Answer {
    let mode = call.param("mode").unwrap_or("create").to_ascii_lowercase();
    let place = call.api.table_ref(&call.id)?;
    let rows = Incoming::open(body).await?;
    let session = call.api.tender.session();
    let found = Table::find(&place.name, &place.uri, session).await?;
    let (mode, found) = match (mode.as_str(), found) {
        ("create", None) | ("exist_ok" | "existok", None) => (WriteMode::Create, None),
        ("overwrite", Some(table)) if table.mem_wal().await?.is_some() => {
            return Err(Refused::invalid(format!(
                "`{}` takes LSM writes, and its shards would not be overwritten; drop it first, or unset its write spec",
                call.id
            )));
        }
        ("overwrite", _) => (WriteMode::Overwrite, None),
        ("exist_ok" | "existok", Some(table)) => (WriteMode::Create, Some(table)),
        ("create", Some(_)) => return Err(exists(&call.id)),
        (odd, _) => return Err(Refused::invalid(format!("`{odd}` is no mode; use create, overwrite or exist_ok"))),
    };
    if let Some(table) = found {
        let has = Schema::from(table.dataset.schema());
        if has.fields() != rows.schema.fields() {
            return Err(Refused::invalid(format!("table `{}` is there with another schema", call.id)));
        }
        return said(json!({ "version": table.version(), "location": table.uri }));
    }
    let params =
        WriteParams { mode, session: Some(session.clone()), enable_v2_manifest_paths: true, ..WriteParams::default() };
    let fault = rows.fault.clone();
    let write = InsertBuilder::new(place.uri.as_str()).with_params(&params).execute_stream(rows.stream()).boxed().await;
    let dataset = write.map_err(|error| match error {
        lance_core::Error::DatasetAlreadyExists { .. } => exists(&call.id),
        error => fault.or(error),
    })?;
    call.api.wrote(&call.id);
    said(json!({ "version": dataset.manifest().version, "location": place.uri }))
}

/// The client looks for these words.
fn exists(id: &str) -> Refused {
    Refused::new(StatusCode::BAD_REQUEST, code::TABLE_EXISTS, format!("table `{id}` already exists"))
}

async fn describe(call: Call, body: Body) -> Answer {
    let At { version } = body_of(body).await?;
    let table = call.table_at(version).await?;
    let schema = JsonSchema::try_from(&Schema::from(table.dataset.schema()))?;
    let schema =
        serde_json::to_value(schema).map_err(|e| Refused::invalid(format!("the schema can't be told: {e}")))?;
    said(json!({ "table": table.name, "version": table.version(), "schema": schema, "location": table.uri }))
}

/// Removes a table's folder, and nothing that is no table's.
async fn remove(call: Call) -> Answer {
    let table = call.table().await?;
    if table.uri == call.api.root.uri() {
        let why = format!("`{}` is the only table here; remove its folder yourself", call.id);
        return Err(Refused::new(StatusCode::NOT_ACCEPTABLE, code::UNSUPPORTED, why));
    }
    let linked = tokio::fs::symlink_metadata(&table.uri).await.is_ok_and(|found| found.is_symlink());
    if linked && !table.uri.contains("://") {
        return Err(Refused::invalid(format!("`{}` is a link to a table elsewhere; remove it yourself", call.id)));
    }
    let (store, folder) = (table.store(), table.base());
    validate_dataset_root_for_drop(&store, &folder).await?;
    // A writer would go on writing to the folder's place.
    let closed = call.api.pod.close(&table).await?;
    call.api.pod.release(&table.uri).await;
    emptied(&store, &folder).await?;
    drop(closed);
    call.api.wrote(&call.id);
    said(json!({}))
}

/// Jobs that were at the table may write to its folder until they see that it is gone.
async fn emptied(store: &ObjectStore, folder: &Path) -> Result<(), Refused> {
    for _ in 1..REMOVES {
        match store.remove_dir_all(folder.clone()).await {
            Ok(()) | Err(lance_core::Error::NotFound { .. }) => return Ok(()),
            Err(error) => tracing::debug!(%error, %folder, "a table's folder is written to while it is removed"),
        }
        tokio::time::sleep(REMOVE_AGAIN).await;
    }
    Ok(store.remove_dir_all(folder.clone()).await?)
}

async fn rename(call: Call) -> Answer {
    call.table().await?;
    let why = "a table can't be renamed: writers that have it open would go on under the old name; make another";
    Err(Refused::new(StatusCode::NOT_ACCEPTABLE, code::UNSUPPORTED, why))
}

async fn stats(call: Call) -> Answer {
    let table = call.table().await?;
    let (dataset, manifest) = (&table.dataset, table.dataset.manifest());
    let indexes = dataset.load_indices().await?;
    let indexed: u64 = indexes.iter().filter_map(|index| index.total_size_bytes()).sum();
    let names: std::collections::BTreeSet<&str> =
        indexes.iter().map(|index| index.name.as_str()).filter(|name| !is_system(name)).collect();
    let mut lengths: Vec<usize> = manifest.fragments.iter().map(|f| f.physical_rows.unwrap_or(0)).collect();
    lengths.sort_unstable();
    let at = |percent: usize| lengths.get(lengths.len() * percent / 100).copied().unwrap_or(0);
    let sum: usize = lengths.iter().sum();
    said(json!({
        "total_bytes": manifest.summary().total_files_size + indexed,
        "num_rows": dataset.count_rows(None).await?,
        "num_deleted_rows": dataset.count_deleted_rows().await?,
        "num_indices": names.len(),
        "fragment_stats": {
            "num_fragments": lengths.len(),
            "num_small_fragments": lengths.iter().filter(|rows| **rows < SMALL_FRAGMENT).count(),
            "lengths": {
                "min": lengths.first().copied().unwrap_or(0), "max": lengths.last().copied().unwrap_or(0),
                "mean": sum.checked_div(lengths.len()).unwrap_or(0),
                "p25": at(25), "p50": at(50), "p75": at(75), "p99": at(99),
            },
        },
    }))
}

async fn versions(call: Call) -> Answer {
    let versions = call.table().await?.dataset.versions().await?;
    let line = |version: &lance::dataset::Version| {
        json!({
            "version": version.version, "timestamp": version.timestamp.to_rfc3339(),
            "timestamp_millis": version.timestamp.timestamp_millis(), "metadata": version.metadata,
        })
    };
    said(json!({ "versions": versions.iter().map(line).collect::<Vec<Value>>() }))
}

async fn restore(call: Call, body: Body) -> Answer {
    let At { version } = body_of(body).await?;
    let version = version.ok_or_else(|| Refused::invalid("name the `version` to go back to"))?;
    // What is folded is in later versions only, and in no shard any more (R2.14).
    if call.table().await?.mem_wal().await?.is_some() {
        return Err(Refused::invalid(format!(
            "`{}` takes LSM writes, and rows that were folded since version {version} would be lost; read that version \
             instead, or unset the write spec first",
            call.id
        )));
    }
    let mut dataset = (*call.table_at(Some(version)).await.map_err(not_here)?.dataset).clone();
    dataset.restore().await?;
    call.api.wrote(&call.id);
    said(json!({ "version": dataset.manifest().version }))
}

#[derive(Deserialize)]
struct Tag {
    #[serde(deserialize_with = "tag_name")]
    tag: String,
    version: Option<u64>,
}

/// A tag is a file of its name.
fn tag_name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let name = String::deserialize(from)?;
    match name.len() > TAG_MAX {
        true => Err(D::Error::custom(format!("a tag has at most {TAG_MAX} bytes"))),
        false => Ok(name),
    }
}

impl Tag {
    fn version(&self) -> Result<u64, Refused> {
        self.version.ok_or_else(|| Refused::invalid("name the `version` that the tag is of"))
    }
}

async fn tags(call: Call) -> Answer {
    Ok(axum::response::IntoResponse::into_response(Json(call.table().await?.dataset.tags().list().await?)))
}

async fn tag_version(call: Call, body: Body) -> Answer {
    let asked: Tag = body_of(body).await?;
    let found = call.table().await?.dataset.tags().get(&asked.tag).await.map_err(not_here)?;
    said(json!({ "version": found.version, "branch": found.branch }))
}

/// Of a tag or a version that there is not. 404 the client would take for a table that is not there.
fn not_here(refused: impl Into<Refused>) -> Refused {
    let refused = refused.into();
    let status = if refused.status == StatusCode::NOT_FOUND { StatusCode::BAD_REQUEST } else { refused.status };
    Refused { status, ..refused }
}

/// The table at the version that a tag is of.
async fn tagged(call: &Call, asked: &Tag) -> Result<Table, Refused> {
    call.table().await?;
    call.table_at(Some(asked.version()?)).await.map_err(not_here)
}

async fn tag(call: Call, body: Body) -> Answer {
    let asked: Tag = body_of(body).await?;
    let table = tagged(&call, &asked).await?;
    table.dataset.tags().create(&asked.tag, table.version()).await.map_err(not_here)?;
    said(json!({}))
}

async fn retag(call: Call, body: Body) -> Answer {
    let asked: Tag = body_of(body).await?;
    let table = tagged(&call, &asked).await?;
    table.dataset.tags().update(&asked.tag, table.version()).await.map_err(not_here)?;
    said(json!({}))
}

async fn untag(call: Call, body: Body) -> Answer {
    let asked: Tag = body_of(body).await?;
    call.table().await?.dataset.tags().delete(&asked.tag).await.map_err(not_here)?;
    said(json!({}))
}
