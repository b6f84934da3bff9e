//! `query` and `count_rows` of a table; how a query is done is told in `explain`.

mod explain;
mod project;
mod request;
mod scan;
mod union;

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Int32Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use lance::Dataset;
use serde::Deserialize;
use serde_json::json;

pub(super) use self::project::{Predicate, Projection, predicate};
pub(super) use self::request::Columns;
use self::request::Query;
use self::scan::scanners;
use self::union::{count_union, lacks_text, name_text, query_union};
pub(super) use self::union::{keys_where, rows_where};
use super::call::{Call, json as body_of};
use super::{Answer, Api, Refused, code, expression, ipc, posted, said};
use crate::pod::Fresh;
use crate::table::Table;

/// The version that a read saw; the client asks for no older one afterwards.
const SEEN: HeaderName = HeaderName::from_static("x-lancedb-version");
/// Which of several query vectors a row is near to.
const QUERY_INDEX: &str = "query_index";

/// How long rows that can't be searched yet are waited for, and how often it is looked.
const FOLD: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(100);

/// The routes.
pub(super) fn routes() -> Router<Api> {
    let routes = posted(Router::new(), "/v1/table/{id}/query", query);
    let routes = posted(routes, "/v1/table/{id}/count_rows", count);
    let routes = posted(routes, "/v1/table/{id}/explain_plan", explain::explain);
    posted(routes, "/v1/table/{id}/analyze_plan", explain::analyze)
}

/// Rows as an answer is written of them.
pub(super) type Rows = BoxStream<'static, lance_core::Result<RecordBatch>>;

async fn query(call: Call, body: Body) -> Answer {
    let mut query: Query = body_of(body).await?;
    let table = call.table_at(query.version).await?;
    // A version is the base's: shards have none.
    if query.version.is_none() && call.to_shards(&table, query.use_lsm).await? {
        let fresh = searchable(&call, &table, &mut query).await?;
        let (schema, rows) = query_union(&fresh, &query).await?;
        return Ok(seen(ipc::file(&schema, rows).await?, fresh.table.version()));
    }
    let (schema, rows) = query_base(&table.dataset, &query).await?;
    Ok(seen(ipc::file(&schema, rows).await?, table.version()))
}

/// The table with what is newer, where every part can be searched as the query wants. Rows from before a full text
/// index have none until they are in the base: they are folded then.
async fn searchable(call: &Call, table: &Table, query: &mut Query) -> Result<Fresh, Refused> {
    let began = Instant::now();
    loop {
        let fresh = call.fresh(table).await?;
        name_text(&fresh.table, query).await?;
        let Some(column) = lacks_text(&fresh, query).await? else { return Ok(fresh) };
        if began.elapsed() > FOLD {
            let why = format!("rows of `{column}` that are newer than its index are being folded into it; try again");
            return Err(Refused::new(StatusCode::SERVICE_UNAVAILABLE, code::UNAVAILABLE, why));
        }
        if fresh.has_memtables() {
            call.api.pod.flush(&fresh.table).await?;
        }
        call.api.force(&fresh.table, None).await?;
        tokio::time::sleep(LOOK).await;
    }
}

/// The rows of a table's base that a query is after.
async fn query_base(dataset: &Arc<Dataset>, query: &Query) -> Result<(SchemaRef, Rows), Refused> {
    let scanners = scanners(dataset, query)?;
    let several = scanners.len() > 1;
    let mut parts = Vec::with_capacity(scanners.len());
    for scanner in &scanners {
        parts.push(scanner.try_into_stream().boxed().await?);
    }
    let schema = parts.first().map(lance_io::stream::RecordBatchStream::schema);
    let schema = schema.unwrap_or_else(|| Arc::new(Schema::empty()));
    let unseen = query.unseen();
    let seen: Vec<usize> =
        (0..schema.fields().len()).filter(|at| !unseen.contains(&schema.field(*at).name().as_str())).collect();
    let schema = Arc::new(schema.project(&seen)?);
    let parts = parts.into_iter().map(|part| {
        let seen = seen.clone();
        part.map(move |batch| Ok(batch?.project(&seen)?)).boxed()
    });
    if !several {
        return Ok((schema, stream::iter(parts.collect::<Vec<_>>()).flatten().boxed()));
    }
    let schema = wide(&schema);
    let wide = schema.clone();
    let parts = parts.zip(0i32..).map(move |(part, at): (Rows, i32)| {
        let schema = wide.clone();
        part.map(move |batch| numbered(&schema, &batch?, at))
    });
    Ok((schema, stream::iter(parts.collect::<Vec<_>>()).flatten().boxed()))
}

/// The columns of an answer to several query vectors.
fn wide(schema: &SchemaRef) -> SchemaRef {
    let mut fields = vec![Arc::new(Field::new(QUERY_INDEX, DataType::Int32, false))];
    fields.extend(schema.fields().iter().cloned());
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

fn numbered(schema: &SchemaRef, batch: &RecordBatch, at: i32) -> lance_core::Result<RecordBatch> {
    let number: ArrayRef = Arc::new(Int32Array::from_value(at, batch.num_rows()));
    let columns = std::iter::once(number).chain(batch.columns().iter().cloned()).collect();
    Ok(RecordBatch::try_new(schema.clone(), columns)?)
}

#[derive(Deserialize)]
struct Count {
    #[serde(default, deserialize_with = "expression::maybe")]
    predicate: Option<String>,
    version: Option<u64>,
}

async fn count(call: Call, body: Body) -> Answer {
    let Count { predicate, version } = body_of(body).await?;
    let table = call.table_at(version).await?;
    let predicate = predicate.filter(|which| !which.is_empty());
    if version.is_none() && call.to_shards(&table, None).await? {
        let fresh = call.fresh(&table).await?;
        if !fresh.is_empty() {
            let rows = count_union(&fresh, predicate.as_deref()).boxed().await?;
            return Ok(seen(said(json!(rows))?, fresh.table.version()));
        }
    }
    let rows = table.dataset.count_rows(predicate).boxed().await?;
    Ok(seen(said(json!(rows))?, table.version()))
}

fn seen(mut answer: Response, version: u64) -> Response {
    answer.headers_mut().insert(SEEN, HeaderValue::from(version));
    answer
}
