//! What LanceDB's own client asks of a server, as far as it is answered here: its jobs.

pub(super) mod jobs;

use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::error::Error;

/// The version of the routes, by which the client decides what it may ask. Below 0.4 it writes in one
/// request, below 0.5 it knows no blobs.
pub(super) const VERSION: (HeaderName, HeaderValue) =
    (HeaderName::from_static("phalanx-version"), HeaderValue::from_static("0.3.0"));

/// Codes of errors, as the Lance namespace specification numbers them.
const INVALID: u32 = 13;
pub(super) const FORBIDDEN: u32 = 15;
pub(super) const UNAUTHENTICATED: u32 = 16;
pub(super) const UNAVAILABLE: u32 = 17;
const INTERNAL: u32 = 18;
const NOT_FOUND: u32 = 10;

/// A refusal with its code.
pub(super) fn refuse(status: StatusCode, code: u32, why: &str) -> Response {
    (status, Json(json!({ "error": why, "code": code }))).into_response()
}

/// An error by what the client should do about it.
pub(super) fn failed(error: &Error) -> Response {
    match error {
        Error::Invalid(why) => refuse(StatusCode::BAD_REQUEST, INVALID, why),
        Error::Retry(why) | Error::Away(why) => refuse(StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE, why),
        other => refuse(StatusCode::INTERNAL_SERVER_ERROR, INTERNAL, &other.to_string()),
    }
}
