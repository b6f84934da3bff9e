//! HTTP for the machine's own use: metrics, health, and a hook for whoever has just written.
//!
//! | route | answer |
//! |---|---|
//! | `GET /metrics` | Prometheus text |
//! | `GET /healthz` | 200 while the process answers |
//! | `GET /readyz` | 200 once the catalogue was listed and while the agent ticks, else 503 with the reason |
//! | `GET /openapi.json` | every route, in OpenAPI 3.1 |
//! | `GET /`, `/preview/` | the fleet page, and the preview of policies (module `page`) |
//! | `POST /v1/table/{id}/evaluate` | 202: the table is evaluated soon; 404: there is no such table, or another agent has it |
//!
//! What LanceDB's client asks of tables and jobs is in `api`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use axum::extract::{Path, State as Shared};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::api::{self, Api, code, refuse};
use super::door::{Door, Listeners, guard};
use super::flight;
use super::heard::Heard;
use super::metrics::Metrics;
use super::page;
use crate::env::now_ms;
use crate::error::Result;
use crate::registry::{HEARTBEAT, Registry};

/// All routes.
const OPENAPI: &str = include_str!("openapi.json");
/// Ticks that may be missed before the agent counts as stuck, and a grace for a busy machine.
const TICKS_MISSED_MAX: u64 = 3;
const TICK_GRACE_MS: u64 = 10_000;

/// What requests see of the server.
#[derive(Clone)]
pub(super) struct State {
    pub(super) heard: Heard,
    pub(super) metrics: Arc<Metrics>,
    pub(super) pulse: Arc<Pulse>,
    pub(super) registry: Registry,
    /// The tables; `None`: a worker on its own has none.
    pub(super) api: Option<Api>,
}

impl State {
    /// That of a worker on its own: it has no tables, and is ready while the registry answers it.
    pub(super) fn of_worker(registry: Registry) -> Result<Self> {
        let pulse = Arc::new(Pulse::new(u64::try_from(HEARTBEAT.as_millis()).unwrap_or(u64::MAX)));
        pulse.list();
        Ok(Self { heard: Heard::default(), metrics: Arc::new(Metrics::new(None)?), pulse, registry, api: None })
    }
}

/// Signs of life of the loop.
#[derive(Debug)]
pub(super) struct Pulse {
    listed: AtomicBool,
    stopping: AtomicBool,
    ticked_at_ms: AtomicU64,
    tick_ms: u64,
}

impl Pulse {
    pub(super) fn new(tick_ms: u64) -> Self {
        let (listed, stopping) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { listed, stopping, ticked_at_ms: AtomicU64::new(0), tick_ms }
    }

    pub(super) fn list(&self) {
        self.listed.store(true, Ordering::Relaxed);
    }

    pub(super) fn tick(&self, now_ms: u64) {
        self.ticked_at_ms.store(now_ms, Ordering::Relaxed);
    }

    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Why it is not ready, if so.
    fn unready(&self, now_ms: u64) -> Option<String> {
        let silent = now_ms.saturating_sub(self.ticked_at_ms.load(Ordering::Relaxed));
        if self.stopping.load(Ordering::Relaxed) {
            Some("stopping: running jobs end first".into())
        } else if !self.listed.load(Ordering::Relaxed) {
            Some("the catalogue was not listed yet".into())
        } else if silent > self.tick_ms.saturating_mul(TICKS_MISSED_MAX).saturating_add(TICK_GRACE_MS) {
            Some(format!("it has not ticked for {silent} ms"))
        } else {
            None
        }
    }
}

/// Answers HTTP, and Flight SQL beside it, until `until` is cancelled.
pub(super) async fn answer(door: Door, listeners: Listeners, state: State, until: CancellationToken) {
    let tables = state.api.clone().map(api::routes).unwrap_or_default();
    let routes = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/openapi.json", get(|| async { ([(header::CONTENT_TYPE, "application/json")], OPENAPI) }))
        .route("/v1/table/{id}/evaluate", post(evaluate))
        .with_state(state.clone())
        .merge(api::jobs::routes(state.registry.clone()))
        .merge(tables)
        .fallback(page::or_no_route)
        .method_not_allowed_fallback(api::no_method)
        .layer(Extension(until.clone()))
        .layer(axum::middleware::from_fn(api::unread::read_on))
        .layer(axum::middleware::from_fn_with_state((door.keys.clone(), state.metrics.clone()), guard))
        .layer(axum::middleware::map_response(announced));
    if let Ok(address) = listeners.sql.local_addr() {
        tracing::info!(%address, "answering Flight SQL");
    }
    let sql = door.answer(listeners.sql, flight::routes(door.keys.clone(), state.registry), until.clone());
    tokio::join!(sql, door.answer(listeners.http, routes, until));
}

/// What the client takes this server for.
async fn announced(mut response: Response) -> Response {
    let (name, version) = api::VERSION;
    response.headers_mut().insert(name, version);
    response
}

async fn metrics(Shared(state): Shared<State>) -> Response {
    if let Some(api) = &state.api {
        state.metrics.pod(&api.pod);
        state.metrics.policy(&api.tender.decider);
    }
    match state.metrics.text(now_ms()) {
        Ok(text) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, code::INTERNAL, &error.to_string()),
    }
}

async fn ready(Shared(state): Shared<State>) -> Response {
    let draining = state.api.as_ref().is_some_and(|api| api.pod.is_draining());
    let draining = draining.then(|| "drained: it takes no writes until it is started again".to_string());
    match state.pulse.unready(now_ms()).or(draining) {
        None => "ready\n".into_response(),
        Some(why) => refuse(StatusCode::SERVICE_UNAVAILABLE, code::UNAVAILABLE, &why),
    }
}

async fn evaluate(Shared(state): Shared<State>, Path(table): Path<String>) -> Response {
    if state.heard.of(&table) {
        (StatusCode::ACCEPTED, Json(json!({ "table": table }))).into_response()
    } else if !state.pulse.listed.load(Ordering::Relaxed) {
        refuse(StatusCode::SERVICE_UNAVAILABLE, code::UNAVAILABLE, "the catalogue was not listed yet")
    } else {
        let why = format!("there is no table `{table}` here, or it is another agent's");
        refuse(StatusCode::NOT_FOUND, code::TABLE_NOT_FOUND, &why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_ready_once_listed_and_while_the_agent_ticks() {
        let pulse = Pulse::new(1_000);
        assert!(pulse.unready(5).is_some_and(|why| why.contains("listed")));
        pulse.list();
        pulse.tick(5_000);
        assert_eq!(pulse.unready(18_000), None);
        assert!(pulse.unready(18_001).is_some_and(|why| why.contains("ticked")));
        pulse.stop();
        assert!(pulse.unready(5_000).is_some_and(|why| why.contains("stopping")));
    }
}
