//! What an operator asks of the server by hand.
//!
//! | route | answer |
//! |---|---|
//! | `POST /v1/compact` `{"table"?, "shard"?}` | 202 with the jobs; 429: a pass is at each (R2.12) |
//! | `POST /v1/drain` | 202: writes are refused, what is in memory is flushed and folded (R2.16) |
//! | `GET /v1/table/{id}/facts`, `…/plan` | what is read of a table, and what follows |
//! | `POST /v1/table/{id}/pause`, `…/resume` | nothing but catch-up runs; everything does again |

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::{Json, Router};
use planner::facts::PAUSED;
use planner::plan::Trigger;
use serde::Deserialize;
use serde_json::json as value;

use super::call::{Call, json};
use super::{Answer, Api, Refused, got, posted, said};
use crate::read::Depth;
use crate::tend::Evaluation;

/// The routes.
pub(super) fn routes() -> Router<Api> {
    let routes = posted(Router::new(), "/v1/compact", compact);
    let routes = posted(routes, "/v1/drain", drain);
    let routes = got(routes, "/v1/table/{id}/facts", facts);
    let routes = got(routes, "/v1/table/{id}/plan", plan);
    let routes = posted(routes, "/v1/table/{id}/pause", pause);
    posted(routes, "/v1/table/{id}/resume", resume)
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Compact {
    table: Option<String>,
    shard: Option<String>,
}

async fn compact(call: Call, body: Body) -> Answer {
    let api = &call.api;
    let asked: Compact = json(body).await?;
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
        _ => Ok((StatusCode::ACCEPTED, Json(value!({ "jobs": jobs }))).into_response()),
    }
}

async fn drain(call: Call) -> Answer {
    let api = call.api;
    api.pod.refuse();
    tokio::spawn(async move { api.drain().await });
    Ok((StatusCode::ACCEPTED, Json(value!({ "draining": true }))).into_response())
}

async fn facts(call: Call) -> Answer {
    Ok(Json(&*evaluation(&call).await?.facts).into_response())
}

async fn plan(call: Call) -> Answer {
    Ok(Json(evaluation(&call).await?.plan).into_response())
}

async fn evaluation(call: &Call) -> Result<Evaluation, Refused> {
    call.table().await?;
    Ok(call.api.tender.evaluate(&call.api.table_ref(&call.id)?, Depth::Fold, Trigger::Tick).await?)
}

async fn pause(call: Call) -> Answer {
    set(&call, Some("true")).await
}

async fn resume(call: Call) -> Answer {
    set(&call, None).await
}

async fn set(call: &Call, value: Option<&str>) -> Answer {
    let table = call.table().await?;
    let is = table.dataset.manifest().config.get(PAUSED).map(String::as_str);
    // A version more says that something changed.
    if is != value {
        let mut dataset = (*table.dataset).clone();
        dataset.update_config([(PAUSED, value)]).await?;
        call.api.wrote(&call.id);
    }
    said(value!({ "table": call.id, "paused": value.is_some() }))
}
