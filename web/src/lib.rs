//! The planner for the browser: the same door as everywhere, with text for bytes.

use wasm_bindgen::prelude::wasm_bindgen;

/// Answers one JSON request with JSON, as `planner::wire::call` documents.
#[wasm_bindgen]
pub fn call(request: &str) -> String {
    String::from_utf8_lossy(&planner::wire::call(request.as_bytes())).into_owned()
}
