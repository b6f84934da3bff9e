//! What the fleet page shows.
//!
//! | route | answer |
//! |---|---|
//! | `GET /v1/fleet?limit&find` | the agent, its tables (the worst first), open and newest jobs, recent decisions |
//! | `GET /v1/fleet/events?limit&find` | server-sent events `fleet`: the same, then what of it has changed |
//! | `GET /v1/table/{id}/space` | every file of a table, by who holds it (R4.6) |

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::{Extension, Json, Router};
use futures::{Stream, StreamExt, stream};
use planner::plan::Trigger;
use serde::Serialize;
use serde_json::json as value;
use tokio::sync::{OwnedSemaphorePermit, broadcast, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::call::Call;
use super::{Answer, Api, Refused, code, got};
use crate::env::now_ms;
use crate::error::Result;
use crate::holders::Holders;
use crate::read::Depth;
use crate::registry::{Filter, Job, LEASE, Member, Ring, Role, State};
use crate::serve::board::{Decided, Row};

/// Tables in one answer, and where nobody names a number.
const TABLES_MAX: usize = 10_000;
const TABLES: usize = 500;
/// Newest jobs in one answer, beside the open ones.
const JOBS: u64 = 100;
/// Streams at once.
pub(in crate::serve) const STREAMS: usize = 64;
/// Between two events of a stream at least, and at most.
const PAUSE: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_secs(1);
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);

/// The routes.
pub(super) fn routes() -> Router<Api> {
    let routes = got(Router::new(), "/v1/fleet", fleet);
    let routes = got(routes, "/v1/fleet/events", events);
    got(routes, "/v1/table/{id}/space", space)
}

/// Which tables somebody wants to see.
#[derive(Clone, Debug)]
struct Wanted {
    limit: usize,
    /// In their names; lower case.
    find: String,
}

/// All that the page shows, or what of it has changed.
#[derive(Debug, Serialize)]
struct Shown {
    at_ms: u64,
    agent: Member,
    root: String,
    /// It takes no writes any more.
    draining: bool,
    /// The registry does not answer: nothing is evaluated, and jobs are not known.
    away: bool,
    coverage: BTreeMap<&'static str, u64>,
    /// Who decides.
    planner: String,
    /// How often every table is evaluated.
    sweep_ms: u64,
    /// Processes of the registry.
    members: Vec<Member>,
    /// Bytes of rows in memory, and the bound.
    memory_bytes: u64,
    /// All tables under the root, and those that `find` is in the name of.
    tables_total: usize,
    tables_found: usize,
    /// By their words.
    words: BTreeMap<&'static str, usize>,
    /// The worst first.
    tables: Vec<Table>,
    /// Names that were shown and are not any more.
    gone: Vec<String>,
    /// `None`: as before.
    jobs: Option<Vec<Brief>>,
    /// The newest first.
    decisions: Vec<Decided>,
}

#[derive(Clone, Debug, Serialize)]
struct Table {
    /// Its state in one word.
    word: &'static str,
    #[serde(flatten)]
    row: Row,
}

/// A job without its work.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Brief {
    id: String,
    kind: String,
    table: String,
    shard: Option<String>,
    state: State,
    created_ms: u64,
    started_ms: Option<u64>,
    ended_ms: Option<u64>,
    heartbeat_ms: Option<u64>,
    attempt: u64,
    worker: Option<String>,
    ask: Option<String>,
    stage: Option<String>,
    rows_done: u64,
    rows_total: u64,
    outcome: Option<String>,
    why: Option<String>,
    /// Its worker was not heard of for longer than a lease.
    lease_expired: bool,
}

impl Brief {
    fn new(job: Job, now: u64) -> Self {
        let lease = u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX);
        let silent = job.heartbeat_ms.or(job.started_ms).map_or(0, |at| now.saturating_sub(at));
        Self {
            lease_expired: job.state == State::Running && silent > lease,
            id: job.id,
            kind: job.kind,
            table: job.table,
            shard: job.shard,
            state: job.state,
            created_ms: job.created_ms,
            started_ms: job.started_ms,
            ended_ms: job.ended_ms,
            heartbeat_ms: job.heartbeat_ms,
            attempt: job.attempt,
            worker: job.worker,
            ask: job.ask,
            stage: job.stage,
            rows_done: job.rows_done,
            rows_total: job.rows_total,
            outcome: job.outcome,
            why: job.failure.map(|failure| failure.message),
        }
    }
}

async fn fleet(call: Call) -> Answer {
    let mut look = Look::new(&call)?;
    Ok(Json(look.shown().await).into_response())
}

async fn events(call: Call, Extension(until): Extension<CancellationToken>) -> Answer {
    let look = Look::new(&call)?;
    let place = call.api.streams.try_acquire_owned().map_err(|_| {
        let why = format!("{STREAMS} pages follow this server already");
        Refused::new(StatusCode::TOO_MANY_REQUESTS, code::THROTTLED, why)
    })?;
    let ended = async move { until.cancelled().await };
    let events = follow(look, place).take_until(Box::pin(ended));
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

async fn space(call: Call) -> Answer {
    call.table().await?;
    let tender = &call.api.tender;
    let table = call.api.table_ref(&call.id)?;
    tender.look_beside(&table).await?;
    let seen = tender.evaluate(&table, Depth::Garbage, Trigger::Tick).await?;
    let holders = Holders::look(&seen, &tender.policy).await?;
    let rows = holders.rows();
    Ok(Json(value!({ "holders": holders, "rows": rows })).into_response())
}

/// What changes, as it does.
fn follow(look: Look, place: OwnedSemaphorePermit) -> impl Stream<Item = std::result::Result<Event, Infallible>> {
    stream::unfold((look, place), |(mut look, place)| async move {
        let shown = look.next().await;
        let event = Event::default().event("fleet").json_data(&shown);
        // Numbers and text have JSON: there is nothing that could fail.
        Some((Ok(event.unwrap_or_default()), (look, place)))
    })
}

/// Somebody who looks, and what they have seen.
struct Look {
    api: Api,
    wanted: Wanted,
    board: watch::Receiver<u64>,
    bell: broadcast::Receiver<Ring>,
    /// Tables that were shown, with their words.
    tables: HashMap<String, (u64, &'static str)>,
    decided: u64,
    jobs: Option<Vec<Brief>>,
    /// Something runs: its progress is worth a look.
    runs: bool,
    last: Option<Instant>,
}

impl Look {
    fn new(call: &Call) -> std::result::Result<Self, Refused> {
        let limit = match call.param("limit") {
            None => TABLES,
            Some(limit) => limit.parse().ok().filter(|limit| (1..=TABLES_MAX).contains(limit)).ok_or_else(|| {
                Refused::invalid(format!("`limit` is a number from 1 to {TABLES_MAX}, not `{limit}`"))
            })?,
        };
        let find = call.param("find").unwrap_or_default().to_lowercase();
        let api = call.api.clone();
        let (board, bell) = (api.board.watch(), api.tender.registry.listen());
        let wanted = Wanted { limit, find };
        let (tables, jobs) = (HashMap::new(), None);
        Ok(Self { api, wanted, board, bell, tables, decided: 0, jobs, runs: false, last: None })
    }

    /// Waits until there is something new, or until it is time for a sign of life.
    async fn next(&mut self) -> Shown {
        if let Some(last) = self.last {
            let quiet = last + if self.runs { LOOK } else { SIGN_OF_LIFE };
            tokio::select! {
                changed = self.board.changed() => if changed.is_err() { std::future::pending::<()>().await },
                // Also where rings were missed: something rang.
                _ = self.bell.recv() => {}
                () = tokio::time::sleep_until(quiet) => {}
            }
            // What comes together is shown together.
            tokio::time::sleep_until(last + PAUSE).await;
        }
        self.last = Some(Instant::now());
        self.shown().await
    }

    async fn shown(&mut self) -> Shown {
        self.bell = self.bell.resubscribe();
        self.board.mark_unchanged();
        let now = now_ms();
        let (jobs, members) = match self.ask(now).await {
            Ok((jobs, members)) => (Some(jobs), members),
            Err(error) => {
                tracing::debug!(%error, "the registry does not answer");
                (None, Vec::new())
            }
        };
        let running = jobs.iter().flatten().filter(|job| job.state == State::Running);
        let mut busy: HashMap<&str, &'static str> = HashMap::new();
        for job in running {
            let word = busy.entry(&job.table).or_insert("running");
            if job.lease_expired {
                *word = "lease expired";
            }
        }
        self.runs = !busy.is_empty();
        let mut shown = self.known(&busy, now);
        shown.away |= jobs.is_none();
        shown.members = members;
        if jobs != self.jobs || self.jobs.is_none() {
            shown.jobs.clone_from(&jobs);
            self.jobs = jobs;
        }
        shown
    }

    /// Open jobs, then the newest that have ended.
    async fn ask(&self, now: u64) -> Result<(Vec<Brief>, Vec<Member>)> {
        let registry = &self.api.tender.registry;
        let open = vec![State::Running, State::Pending, State::Paused];
        let ended = vec![State::Succeeded, State::Failed, State::Cancelled];
        let page = |states| Filter { states, limit: JOBS, ..Filter::default() };
        let (open, ended) = (page(open), page(ended));
        let (open, ended) = tokio::try_join!(registry.jobs(&open), registry.jobs(&ended))?;
        let mut members = registry.members(Role::Agent).await?;
        members.extend(registry.members(Role::Worker).await?);
        Ok((open.into_iter().chain(ended).map(|job| Brief::new(job, now)).collect(), members))
    }

    /// What is on the board and was not shown yet.
    fn known(&mut self, busy: &HashMap<&str, &'static str>, now: u64) -> Shown {
        let api = &self.api;
        let known = api.board.look();
        let find = &self.wanted.find;
        let mut words = BTreeMap::new();
        let mut found: Vec<(&Row, &'static str)> = Vec::new();
        for row in known.tables.values() {
            let busy = busy.get(row.table.as_str()).filter(|_| row.owner.is_none());
            let word = busy.copied().unwrap_or_else(|| row.word());
            *words.entry(word).or_insert(0) += 1;
            if find.is_empty() || row.table.to_lowercase().contains(find.as_str()) {
                found.push((row, word));
            }
        }
        found.sort_by(|(a, _), (b, _)| a.rank().cmp(&b.rank()).then_with(|| a.table.cmp(&b.table)));
        let tables_found = found.len();
        found.truncate(self.wanted.limit);
        let mut before = std::mem::take(&mut self.tables);
        let mut tables = Vec::new();
        for (row, word) in found {
            if before.remove(&row.table) != Some((row.change, word)) {
                tables.push(Table { word, row: row.clone() });
            }
            self.tables.insert(row.table.clone(), (row.change, word));
        }
        let mut decisions: Vec<Decided> =
            known.decisions.iter().filter(|decided| decided.id > self.decided).cloned().collect();
        decisions.sort_by_key(|decided| Reverse(decided.id));
        self.decided = decisions.first().map_or(self.decided, |newest| newest.id);
        Shown {
            at_ms: now,
            agent: (*api.member).clone(),
            root: api.root.uri().to_string(),
            draining: api.pod.is_draining(),
            away: known.away,
            coverage: known.coverage.metrics().into_iter().collect(),
            planner: api.tender.decider.active().name(),
            sweep_ms: api.tender.policy.agent.sweep_ms,
            members: Vec::new(),
            memory_bytes: api.pod.pressure.memory_bytes(),
            tables_total: known.tables.len(),
            tables_found,
            words,
            tables,
            gone: before.into_keys().collect(),
            jobs: None,
            decisions,
        }
    }
}
