//! What an operator asks of the server by hand.
//!
//! | route | answer |
//! |---|---|
//! | `POST /v1/compact` `{"table"?, "shard"?}` | 202 with the jobs; 429: a pass is at each (R2.12) |
//! | `POST /v1/drain` | 202: writes are refused, what is in memory is flushed and folded (R2.16) |
//! | `GET /v1/table/{id}/facts`, `…/plan` | what is read of a table, and what follows |
//! | `POST /v1/table/{id}/pause`, `…/resume` | nothing but catch-up runs; everything does again |

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use planner::plan::Trigger;
use serde::Deserialize;
use serde_json::json;

use super::{Answer, Api, Refused, both, read};
use crate::read::Depth;
use crate::tend::Evaluation;

/// The key of a table's config that pauses it.
const PAUSED: &str = "caretaker.paused";

/// The routes.
pub(super) fn routes() -> Router<Api> {
    let mut routes = Router::new();
    for (path, route) in [
        ("/v1/compact", post(compact)),
        ("/v1/drain", post(drain)),
        ("/v1/table/{id}/facts", get(facts)),
        ("/v1/table/{id}/plan", get(plan)),
        ("/v1/table/{id}/pause", post(pause)),
        ("/v1/table/{id}/resume", post(resume)),
    ] {
        routes = both(routes, path, route);
    }
    routes
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Compact {
    table: Option<String>,
    shard: Option<String>,
}

async fn compact(State(api): State<Api>, body: Bytes) -> Answer {
    let asked: Compact = read(&body)?;
    let tables = match (&asked.table, &asked.shard) {
        (Some(id), _) => vec![api.table_ref(id)?],
        (None, Some(_)) => return Err(Refused::invalid("name the `table` of the `shard`")),
        (None, None) => api.root.tables(api.tender.session()).await?,
    };
    let one = asked.table.is_some();
    let (mut jobs, mut refused) = (Vec::new(), None);
    for known in tables {
        let table = match (api.table(&known.name).await, one) {
            (Ok(table), _) => table,
            (Err(refused), true) => return Err(refused),
            (Err(_), false) => continue,
        };
        if table.mem_wal().await?.is_none() && !one {
            continue;
        }
        match api.force(&table, asked.shard.as_deref()).await?.dispatched() {
            Ok(queued) => jobs.extend(queued),
            Err(error) => refused = Some(error),
        }
    }
    match refused {
        Some(error) if jobs.is_empty() => Err(error.into()),
        _ => Ok((StatusCode::ACCEPTED, Json(json!({ "jobs": jobs }))).into_response()),
    }
}

async fn drain(State(api): State<Api>) -> Answer {
    api.pod.refuse();
    tokio::spawn(async move { api.drain().await });
    Ok((StatusCode::ACCEPTED, Json(json!({ "draining": true }))).into_response())
}

async fn facts(State(api): State<Api>, Path(id): Path<String>) -> Answer {
    Ok(Json(evaluation(&api, &id).await?.facts).into_response())
}

async fn plan(State(api): State<Api>, Path(id): Path<String>) -> Answer {
    Ok(Json(evaluation(&api, &id).await?.plan).into_response())
}

async fn evaluation(api: &Api, id: &str) -> std::result::Result<Evaluation, Refused> {
    api.table(id).await?;
    Ok(api.tender.evaluate(&api.table_ref(id)?, Depth::Fold, Trigger::Tick).await?)
}

async fn pause(State(api): State<Api>, Path(id): Path<String>) -> Answer {
    set(&api, &id, Some("true")).await
}

async fn resume(State(api): State<Api>, Path(id): Path<String>) -> Answer {
    set(&api, &id, None).await
}

async fn set(api: &Api, id: &str, value: Option<&str>) -> Answer {
    let table = api.table(id).await?;
    let mut dataset = (*table.dataset).clone();
    dataset.update_config([(PAUSED, value)]).await?;
    api.wrote(id);
    Ok(Json(json!({ "table": id, "paused": value.is_some() })).into_response())
}
