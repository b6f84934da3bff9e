//! `/v1/jobs/*`: the registry, as `list_jobs()`, `open_job()` and `cancel_job()` of the client read it.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, UInt64Array};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Field, Schema};
use axum::body::Bytes;
use axum::extract::State as Shared;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::query::{Predicate, predicate};
use super::{Refused, code, read, refuse};
use crate::error::{Error, Result};
use crate::registry::{Answer, EVENTS_MAX, Event, Filter, Job, PAGE_MAX, Registry, State};

/// Jobs on a page, where the client names no number.
const PAGE: u64 = 100;
/// Events in an answer, where the client names no number.
const EVENTS: u64 = 1_000;
/// Jobs whose events one request may ask for.
const IDS_MAX: usize = 1_000;
/// What is told of an event.
const COLUMNS: [&str; 8] = [
    "job_id",
    "state",
    "emitted_at_millis",
    "updated_by",
    "emitted_from",
    "emitted_by",
    "claim_entity",
    "rows_processed",
];

/// The routes.
pub(in crate::serve) fn routes(registry: Registry) -> Router {
    Router::new()
        .route("/v1/jobs/list", post(list))
        .route("/v1/jobs/describe", post(describe))
        .route("/v1/jobs/cancel", post(cancel))
        .route("/v1/jobs/pause", post(pause))
        .route("/v1/jobs/resume", post(resume))
        .route("/v1/jobs/query_events", post(events))
        .with_state(registry)
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct List {
    page_token: Option<String>,
    limit: Option<u64>,
    table_name: Option<String>,
    job_type: Option<String>,
    state: Option<String>,
}

#[derive(Deserialize)]
struct One {
    job_id: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Events {
    job_id: Option<String>,
    job_ids: Vec<String>,
    limit: Option<u64>,
    limit_per_job: Option<u64>,
    filter: Option<String>,
}

async fn list(Shared(registry): Shared<Registry>, body: Bytes) -> Response {
    answer(async {
        let asked: List = read(&body)?;
        let limit = asked.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX);
        let states = match &asked.state {
            None => Vec::new(),
            Some(word) => states_of(word).ok_or_else(|| Error::Invalid(format!("`{word}` is no state of a job")))?,
        };
        let before = asked.page_token.filter(|token| !token.is_empty());
        let filter = Filter { states, kind: asked.job_type, table: asked.table_name, parent: None, before, limit };
        let jobs = registry.jobs(&filter).await?;
        // A page that is not full is the last one: the client takes no token for the end.
        let next = jobs.last().filter(|_| jobs.len() as u64 == limit).map(|job| job.id.clone());
        let jobs: Vec<Value> = jobs.iter().map(line).collect();
        Ok(match next {
            Some(token) => Json(json!({ "jobs": jobs, "page_token": token })).into_response(),
            None => Json(json!({ "jobs": jobs })).into_response(),
        })
    })
    .await
}

async fn describe(Shared(registry): Shared<Registry>, body: Bytes) -> Response {
    answer(async {
        let One { job_id } = read(&body)?;
        Ok(match registry.job(&job_id).await? {
            Some(job) => Json(whole(&job)).into_response(),
            None => unknown(&job_id),
        })
    })
    .await
}

async fn cancel(Shared(registry): Shared<Registry>, body: Bytes) -> Response {
    answer(async {
        let One { job_id } = read(&body)?;
        Ok(match registry.cancel(&job_id).await? {
            Answer::Unknown => unknown(&job_id),
            // Also one that had ended: to cancel it changes nothing, and is no mistake.
            _ => Json(json!({})).into_response(),
        })
    })
    .await
}

async fn pause(Shared(registry): Shared<Registry>, body: Bytes) -> Response {
    answer(async {
        let One { job_id } = read(&body)?;
        let (paused, committing) = match registry.pause(&job_id).await? {
            Answer::Unknown => return Ok(unknown(&job_id)),
            // It is, or will be at its worker's next safe point.
            Answer::Done | Answer::Asked => (true, false),
            // That changed nothing.
            Answer::Not(State::Paused) => (false, false),
            // A worker has just taken or left it: the client is told to try again.
            Answer::Not(_) => (false, true),
            Answer::Ended(state) => {
                let why = format!("job `{job_id}` has ended: it is {}", state.word());
                return Err(Refused::new(StatusCode::CONFLICT, code::CONFLICT, why));
            }
        };
        Ok(Json(json!({ "paused": paused, "committing": committing })).into_response())
    })
    .await
}

async fn resume(Shared(registry): Shared<Registry>, body: Bytes) -> Response {
    answer(async {
        let One { job_id } = read(&body)?;
        let (resumed, still_pausing) = match registry.resume(&job_id).await? {
            Answer::Unknown => return Ok(unknown(&job_id)),
            Answer::Done | Answer::Asked => (true, false),
            Answer::Ended(_) | Answer::Not(_) => (false, false),
        };
        Ok(Json(json!({ "resumed": resumed, "still_pausing": still_pausing })).into_response())
    })
    .await
}

async fn events(Shared(registry): Shared<Registry>, body: Bytes) -> Response {
    answer(async {
        let asked: Events = read(&body)?;
        let filter = asked.filter.as_deref().filter(|filter| !filter.trim().is_empty());
        let filter = filter.map(|filter| predicate(&schema(), filter, None)).transpose()?;
        let ids: Vec<String> = asked.job_id.into_iter().chain(asked.job_ids).collect();
        if ids.is_empty() || ids.len() > IDS_MAX {
            return Err(Refused::invalid(format!("name 1 to {IDS_MAX} jobs in `job_id` or `job_ids`")));
        }
        let mut left = asked.limit.unwrap_or(EVENTS).clamp(1, EVENTS_MAX);
        let mut found = Vec::new();
        for id in &ids {
            if left == 0 {
                break;
            }
            let wanted = left.min(asked.limit_per_job.unwrap_or(left));
            let batches = events_of(&registry, id, filter.as_ref(), wanted).await?;
            if batches.is_empty() && registry.job(id).await?.is_none() {
                return Ok(unknown(id));
            }
            left -= batches.iter().map(|batch| batch.num_rows() as u64).sum::<u64>();
            found.extend(batches);
        }
        let kind = [(header::CONTENT_TYPE, "application/vnd.apache.arrow.stream")];
        Ok((kind, stream(&found)?).into_response())
    })
    .await
}

/// The first events of a job that a filter is true of. None at all: the job has no events, or there is none.
async fn events_of(
    registry: &Registry,
    id: &str,
    filter: Option<&Predicate>,
    mut wanted: u64,
) -> std::result::Result<Vec<RecordBatch>, Refused> {
    let (mut found, mut after) = (Vec::new(), 0);
    while wanted > 0 {
        let page = if filter.is_some() { EVENTS_MAX } else { wanted };
        let events = registry.events(id, after, page).await?;
        let Some(last) = events.last() else { break };
        after = last.id;
        let batch = rows(&events)?;
        let batch = filter.map_or_else(|| Ok(batch.clone()), |filter| filter.apply(&batch))?;
        let batch = batch.slice(0, batch.num_rows().min(usize::try_from(wanted).unwrap_or(usize::MAX)));
        wanted -= batch.num_rows() as u64;
        found.push(batch);
        if (events.len() as u64) < page {
            break;
        }
    }
    Ok(found)
}

async fn answer(work: impl Future<Output = std::result::Result<Response, Refused>>) -> Response {
    work.await.unwrap_or_else(Refused::into_response)
}

fn unknown(id: &str) -> Response {
    refuse(StatusCode::NOT_FOUND, code::NOT_FOUND, &format!("there is no job `{id}`"))
}

/// A job on a list. Words of states are lower case there, and upper case where one is described.
fn line(job: &Job) -> Value {
    json!({
        "job_id": job.id, "table": job.table, "job_type": job.kind, "state": word(job.state),
        "created_at_millis": job.created_ms,
    })
}

fn whole(job: &Job) -> Value {
    let state = if job.state == State::Succeeded { "DONE".into() } else { word(job.state).to_uppercase() };
    let mut whole = json!({
        "job_id": job.id, "job_type": job.kind, "job_state": state, "creation_ms": job.created_ms,
        "spec": job.spec, "table": job.table, "attempt": job.attempt,
        "status": { "stage": job.stage, "rows_processed": job.rows_done, "rows_total": job.rows_total },
    });
    if let Some(result) = &job.result {
        whole["result"] = result.clone();
    }
    if let Some(failure) = &job.failure {
        whole["failure"] = json!(failure);
    }
    whole
}

/// Also one that waits for a worker is in progress: the client knows no other word for what has not ended.
fn word(state: State) -> &'static str {
    if matches!(state, State::Pending | State::Running) { "in_progress" } else { state.word() }
}

fn states_of(word: &str) -> Option<Vec<State>> {
    Some(match word.to_ascii_lowercase().as_str() {
        "in_progress" => vec![State::Pending, State::Running],
        "done" => vec![State::Succeeded],
        "canceled" => vec![State::Cancelled],
        word => vec![State::of(word)?],
    })
}

/// The columns of events.
fn schema() -> Schema {
    let number = |name: &str| match name {
        "emitted_at_millis" => DataType::Int64,
        "rows_processed" => DataType::UInt64,
        _ => DataType::Utf8,
    };
    Schema::new(COLUMNS.map(|name| Field::new(name, number(name), true)).to_vec())
}

fn rows(events: &[Event]) -> Result<RecordBatch> {
    let texts = |of: &dyn Fn(&Event) -> Option<String>| -> ArrayRef {
        Arc::new(events.iter().map(of).collect::<StringArray>())
    };
    let columns: [ArrayRef; COLUMNS.len()] = [
        texts(&|event| Some(event.job_id.clone())),
        texts(&|event| Some(event.state.clone())),
        Arc::new(events.iter().map(|e| i64::try_from(e.at_ms).ok()).collect::<Int64Array>()),
        texts(&|event| event.worker.clone()),
        texts(&|_| Some("caretaker".into())),
        texts(&|event| event.worker.clone()),
        texts(&|event| event.message.clone()),
        Arc::new(events.iter().map(|e| Some(e.rows_processed)).collect::<UInt64Array>()),
    ];
    Ok(RecordBatch::try_new(Arc::new(schema()), columns.to_vec())?)
}

/// Events as an Arrow stream: also where there are none it has its columns.
fn stream(batches: &[RecordBatch]) -> Result<Vec<u8>> {
    let mut writer = StreamWriter::try_new(Vec::new(), &schema())?;
    for batch in batches.iter().filter(|batch| batch.num_rows() > 0) {
        writer.write(batch)?;
    }
    Ok(writer.into_inner()?)
}
