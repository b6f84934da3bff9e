//! What LanceDB's own client asks of a server: thin handlers over Lance, the pod and the registry.
//!
//! Each group of routes has its file; this one has what they share: which table is meant, how bodies are
//! read, and what a refusal looks like.

mod call;
mod columns;
mod expression;
mod fit;
pub(super) mod fleet;
mod indexes;
mod ipc;
pub(super) mod jobs;
mod lsm;
mod operate;
mod policy;
mod query;
mod shards;
mod spec;
mod tables;
pub(super) mod unread;
mod write;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use arrow_schema::ArrowError;
use axum::extract::Request;
use axum::handler::Handler;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use datafusion::common::DataFusionError;
use futures::FutureExt;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::Semaphore;

use super::board::Board;
use super::heard::Heard;
use crate::catalog::{Root, TableRef};
use crate::error::{Error, Result, plain};
use crate::pod::Pod;
use crate::registry::Member;
use crate::table::Table;
use crate::tend::Tender;

/// The version of the routes, by which the client decides what it may ask. Below 0.4 it writes in one
/// request, below 0.5 it knows no blobs.
pub(super) const VERSION: (HeaderName, HeaderValue) =
    (HeaderName::from_static("phalanx-version"), HeaderValue::from_static("0.3.0"));

/// Codes of errors, as the Lance namespace specification numbers them.
pub(super) mod code {
    pub(in crate::serve) const UNSUPPORTED: u32 = 0;
    pub(in crate::serve) const NAMESPACE_NOT_FOUND: u32 = 1;
    pub(in crate::serve) const TABLE_NOT_FOUND: u32 = 4;
    pub(in crate::serve) const TABLE_EXISTS: u32 = 5;
    pub(in crate::serve) const INDEX_NOT_FOUND: u32 = 6;
    pub(in crate::serve) const INDEX_EXISTS: u32 = 7;
    pub(in crate::serve) const TAG_NOT_FOUND: u32 = 8;
    pub(in crate::serve) const TAG_EXISTS: u32 = 9;
    /// Also that of a job: the client looks at the status.
    pub(in crate::serve) const NOT_FOUND: u32 = 10;
    pub(in crate::serve) const VERSION_NOT_FOUND: u32 = 11;
    pub(in crate::serve) const INVALID: u32 = 13;
    pub(in crate::serve) const CONFLICT: u32 = 14;
    pub(in crate::serve) const FORBIDDEN: u32 = 15;
    pub(in crate::serve) const UNAUTHENTICATED: u32 = 16;
    pub(in crate::serve) const UNAVAILABLE: u32 = 17;
    pub(in crate::serve) const INTERNAL: u32 = 18;
    /// A lost claim (421), a pod that drains (503).
    pub(in crate::serve) const TABLE_STATE: u32 = 19;
    pub(in crate::serve) const THROTTLED: u32 = 21;
}

/// Bytes of the reason for a refusal.
const WHY_MAX: usize = 2_000;

/// A request that was not done, and why.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) status: StatusCode,
    pub(super) code: u32,
    pub(super) why: String,
}

/// What a handler gives.
pub(super) type Answer = std::result::Result<Response, Refused>;

impl Refused {
    pub(super) fn new(status: StatusCode, code: u32, why: impl Into<String>) -> Self {
        Self { status, code, why: why.into() }
    }

    /// The request is not as it must be.
    pub(super) fn invalid(why: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code::INVALID, why)
    }

    /// There is no such table.
    pub(super) fn no_table(id: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, code::TABLE_NOT_FOUND, format!("there is no table `{id}`"))
    }
}

impl IntoResponse for Refused {
    fn into_response(mut self) -> Response {
        // Lance writes whole schemas into its messages.
        self.why.truncate(self.why.floor_char_boundary(WHY_MAX));
        (self.status, Json(json!({ "error": self.why, "code": self.code }))).into_response()
    }
}

/// By what the client should do about it.
impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        let (status, code) = match &error {
            Error::Invalid(_) => (StatusCode::BAD_REQUEST, code::INVALID),
            Error::Conflict(_) => (StatusCode::CONFLICT, code::CONFLICT),
            Error::Busy(_) => (StatusCode::TOO_MANY_REQUESTS, code::THROTTLED),
            Error::Fenced(_) => (StatusCode::MISDIRECTED_REQUEST, code::TABLE_STATE),
            Error::Draining(_) => (StatusCode::SERVICE_UNAVAILABLE, code::TABLE_STATE),
            Error::Retry(_) | Error::Away(_) => (StatusCode::SERVICE_UNAVAILABLE, code::UNAVAILABLE),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, code::INTERNAL),
        };
        Self::new(status, code, error.to_string())
    }
}

/// Finer than by kind alone: what reads and writes of a client run into is mostly what the client asked.
impl From<lance_core::Error> for Refused {
    fn from(error: lance_core::Error) -> Self {
        use lance_core::Error as Lance;
        let sort = match &error {
            Lance::DatasetAlreadyExists { .. } => Some((StatusCode::BAD_REQUEST, code::TABLE_EXISTS)),
            Lance::IndexNotFound { .. } => Some((StatusCode::NOT_FOUND, code::INDEX_NOT_FOUND)),
            Lance::RefNotFound { .. } => Some((StatusCode::NOT_FOUND, code::TAG_NOT_FOUND)),
            // Not 409, which the client takes for a race and tries again.
            Lance::RefConflict { .. } => Some((StatusCode::BAD_REQUEST, code::TAG_EXISTS)),
            Lance::VersionNotFound { .. } => Some((StatusCode::NOT_FOUND, code::VERSION_NOT_FOUND)),
            Lance::Backpressure { .. } => Some((StatusCode::TOO_MANY_REQUESTS, code::THROTTLED)),
            Lance::Arrow { .. }
            | Lance::Execution { .. }
            | Lance::FieldNotFound { .. }
            | Lance::Index { .. }
            | Lance::InvalidRef { .. }
            | Lance::Unprocessable { .. } => Some((StatusCode::BAD_REQUEST, code::INVALID)),
            Lance::External { source } if uncomputable(source.as_ref()) => {
                Some((StatusCode::BAD_REQUEST, code::INVALID))
            }
            _ => None,
        };
        let refused = Self::from(Error::from(error));
        match sort {
            Some((status, code)) => Self { status, code, ..refused },
            None => refused,
        }
    }
}

/// Whether a value that was asked for can't be computed, below what libraries wrap it in.
fn uncomputable(source: &(dyn std::error::Error + 'static)) -> bool {
    let of_values = |error: &ArrowError| !matches!(error, ArrowError::IoError(..) | ArrowError::ExternalError(_));
    match source.downcast_ref::<DataFusionError>().map(DataFusionError::find_root) {
        Some(DataFusionError::ArrowError(error, _)) => of_values(error),
        Some(root) => matches!(root, DataFusionError::Execution(_) | DataFusionError::Plan(_)),
        None => source.downcast_ref::<ArrowError>().is_some_and(of_values),
    }
}

/// Rows, values and types are what a client sends.
impl From<ArrowError> for Refused {
    fn from(error: ArrowError) -> Self {
        Self::invalid(error.to_string())
    }
}

/// The routes of tables.
pub(super) fn routes(api: Api) -> Router {
    Router::new()
        .merge(tables::routes())
        .merge(columns::routes())
        .merge(write::routes())
        .merge(query::routes())
        .merge(indexes::routes())
        .merge(lsm::routes())
        .merge(spec::routes())
        .merge(operate::routes())
        .merge(policy::routes())
        .merge(fleet::routes())
        .layer(axum::middleware::from_fn(whole))
        .with_state(api)
}

/// A route by POST of both spellings: clients write a slash at the end of some and not of others.
fn posted<T: 'static>(routes: Router<Api>, path: &str, handler: impl Handler<T, Api>) -> Router<Api> {
    routes.route(path, post(handler.clone())).route(&format!("{path}/"), post(handler))
}

/// The same by GET.
fn got<T: 'static>(routes: Router<Api>, path: &str, handler: impl Handler<T, Api>) -> Router<Api> {
    routes.route(path, get(handler.clone())).route(&format!("{path}/"), get(handler))
}

/// A library that gives up in the midst of a request ends that request, with an answer.
async fn whole(request: Request, next: Next) -> Response {
    AssertUnwindSafe(next.run(request)).catch_unwind().await.unwrap_or_else(|_| {
        let why = "the server could not do this; its log says where it stopped";
        refuse(StatusCode::INTERNAL_SERVER_ERROR, code::INTERNAL, why)
    })
}

/// There is no such route.
pub(super) async fn no_route(request: Request) -> Response {
    let path = request.uri().path();
    let why = format!("there is no route `{path}`");
    // Of a table the client would take 404 for one that is not there.
    if path.starts_with("/v1/table/") {
        return refuse(StatusCode::NOT_ACCEPTABLE, code::UNSUPPORTED, &why);
    }
    refuse(StatusCode::NOT_FOUND, code::NOT_FOUND, &why)
}

/// There is one, by another method.
pub(super) async fn no_method(request: Request) -> Response {
    let why = format!("`{}` is not for `{}`", request.uri().path(), request.method());
    refuse(StatusCode::METHOD_NOT_ALLOWED, code::UNSUPPORTED, &why)
}

/// An answer of JSON.
fn said(value: serde_json::Value) -> Answer {
    Ok(Json(value).into_response())
}

/// What handlers of tables share.
#[derive(Clone)]
pub(super) struct Api {
    pub(super) root: Root,
    pub(super) tender: Arc<Tender>,
    pub(super) heard: Heard,
    pub(super) pod: Arc<Pod>,
    /// How every table is.
    pub(super) board: Board,
    /// This agent.
    pub(super) member: Arc<Member>,
    /// Places of those who follow it.
    pub(super) streams: Arc<Semaphore>,
    /// This process runs passes, its own or anybody's.
    pub(super) works: bool,
}

impl Api {
    /// The table that a path names, whether it is there or not.
    ///
    /// # Errors
    /// A name that would lead out of the root, or that no table can have.
    pub(super) fn table_ref(&self, id: &str) -> std::result::Result<TableRef, Refused> {
        self.root.table(id).map_err(Refused::from)
    }

    /// Opens the newest version of a table.
    ///
    /// # Errors
    /// 404 where there is none.
    pub(super) async fn table(&self, id: &str) -> std::result::Result<Table, Refused> {
        let table = self.table_ref(id)?;
        Table::find(&table.name, &table.uri, self.tender.session()).await?.ok_or_else(|| Refused::no_table(id))
    }

    /// Something was committed to a table: it is evaluated soon.
    pub(super) fn wrote(&self, id: &str) {
        self.heard.of(id);
    }
}

/// Reads a body of JSON; an empty one is an empty object.
///
/// # Errors
/// What in it is not as the route expects it.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    let body = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body).map_err(|e| {
        let why = plain(&e.to_string());
        Error::Invalid(format!("the body is not as this route expects it: {why}"))
    })
}

/// A refusal with its code.
pub(super) fn refuse(status: StatusCode, code: u32, why: &str) -> Response {
    Refused::new(status, code, why).into_response()
}
