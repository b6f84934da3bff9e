//! The pages, as they were built from `web/`: the fleet at `/`, the preview of policies at `/preview/`.
//!
//! They are the same for everybody and hold nothing of any table, so nobody is asked for a key: a page
//! asks its reader for one, and sends it with what it requests.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use rust_embed::{Embed, EmbeddedFile};

use super::api::{self, code, refuse};

#[derive(Embed)]
#[folder = "../web/dist"]
struct Dist;

/// What the pages may do, which the browser sees to: nothing but ask the server they came from.
const RULES: &str = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data:; \
                     connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// Where the preview is.
const PREVIEW: &str = "/preview/";
/// Files below have a digest in their names: they never change.
const ASSETS: &str = "assets/";
const COMPRESSION: i32 = 19;

/// Whether a path is one of the pages', and so nobody's secret.
pub(super) fn is_page(path: &str) -> bool {
    path == "/"
        || path == PREVIEW.trim_end_matches('/')
        || name(path).is_some_and(|name| !name.starts_with('.') && Dist::get(name).is_some())
}

/// The file of a path.
fn name(path: &str) -> Option<&str> {
    match path.strip_prefix(PREVIEW) {
        Some("") => Some("index.html"),
        Some(name) => Some(name),
        None if path == "/" => Some("fleet.html"),
        None => path.strip_prefix('/'),
    }
}

/// A file of the pages, or that there is no such route.
pub(super) async fn or_no_route(request: Request) -> Response {
    let path = request.uri().path();
    if !matches!(*request.method(), Method::GET | Method::HEAD) || !is_page(path) {
        return api::no_route(request).await;
    }
    if path == PREVIEW.trim_end_matches('/') {
        return Redirect::permanent(PREVIEW).into_response();
    }
    match name(path).and_then(|name| Some((name, Dist::get(name)?))) {
        Some((name, file)) => answer(name, file, request.headers()),
        None => {
            let why = "this caretaker was built without its pages: run `make wasm`, then build it again";
            refuse(StatusCode::NOT_FOUND, code::NOT_FOUND, why)
        }
    }
}

fn answer(name: &str, file: EmbeddedFile, asked: &HeaderMap) -> Response {
    let digest: String = file.metadata.sha256_hash().iter().map(|byte| format!("{byte:02x}")).collect();
    let tag = format!("\"{digest}\"");
    let kept = if name.starts_with(ASSETS) { "public, max-age=31536000, immutable" } else { "no-cache" };
    let headers = [
        (header::CACHE_CONTROL, HeaderValue::from_static(kept)),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(RULES)),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::CONTENT_TYPE, HeaderValue::from_static(kind(name))),
        (header::VARY, HeaderValue::from_static("accept-encoding")),
    ];
    let has = |header: HeaderName, word: &str| {
        let values = asked.get(header).and_then(|value| value.to_str().ok()).unwrap_or_default();
        values.split(',').any(|value| value.split(';').next().unwrap_or_default().trim() == word)
    };
    let mut response = if has(header::IF_NONE_MATCH, &tag) {
        (StatusCode::NOT_MODIFIED, headers).into_response()
    } else if has(header::ACCEPT_ENCODING, "zstd") {
        let encoded = [(header::CONTENT_ENCODING, HeaderValue::from_static("zstd"))];
        (headers, encoded, small(name, &file.data)).into_response()
    } else {
        (headers, file.data).into_response()
    };
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

/// A file, compressed; the work is done once.
fn small(name: &str, file: &[u8]) -> Vec<u8> {
    static DONE: LazyLock<Mutex<HashMap<String, Vec<u8>>>> = LazyLock::new(Mutex::default);
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    let compressed = || zstd::encode_all(file, COMPRESSION).unwrap_or_default();
    done.entry(name.to_string()).or_insert_with(compressed).clone()
}

fn kind(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript",
        Some("css") => "text/css",
        Some("svg") => "image/svg+xml",
        Some("json") => "application/json",
        Some("wasm") => "application/wasm",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fleet_is_at_the_top_the_preview_below_and_nothing_leads_out() {
        let names = ["/", "/preview/", "/preview/assets/a.js", "/assets/a.js"].map(name);
        assert_eq!(names, [Some("fleet.html"), Some("index.html"), Some("assets/a.js"), Some("assets/a.js")]);
        for path in
            ["/../Cargo.toml", "/preview/../../Cargo.toml", "/v1/fleet", "/metrics", "//etc/passwd", "/.gitkeep"]
        {
            assert!(!is_page(path), "{path}");
        }
    }
}
