//! Jobs as the registry keeps them.

use std::sync::Mutex;

use lance::Dataset;
use planner::job::JobSpec;
use planner::policy::Policy;
use serde::Serialize;
use sqlx::any::AnyRow;
use sqlx::{FromRow, Row};
use uuid::Uuid;

use super::store::uint;
use crate::catalog::TableRef;
use crate::decide::bytes;
use crate::env::now_ms;
use crate::error::{Error, Result};
use crate::report::JobReport;
use crate::run::build::Build;

/// Type of the job that folds.
pub(crate) const FOLD: &str = "memwal_compaction";

/// Memory a job that streams needs beside what a policy gives it, bytes.
const SMALL_NEED: u64 = 64 << 20;
/// Memory that rewriting fragments needs: batches on their way, and what is read ahead.
const REWRITE_NEED: u64 = 512 << 20;
/// Memory that training or merging an index needs, as far as one can say before.
const INDEX_NEED: u64 = 1 << 30;

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It waits for a worker.
    Pending,
    /// A worker has it.
    Running,
    /// It waits until somebody lets it go on.
    Paused,
    /// It ended, and nothing is wrong; also when somebody else had done its work.
    Succeeded,
    /// It did not work out.
    Failed,
    /// Somebody stopped it.
    Cancelled,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 6] =
        [Self::Pending, Self::Running, Self::Paused, Self::Succeeded, Self::Failed, Self::Cancelled];

    /// In one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// By its word.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }

    /// Whether nothing more comes of it.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

/// A job of the registry.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Job {
    /// Orders jobs by the time they came (UUID version 7).
    pub id: String,
    /// The job it is a part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Type: `memwal_compaction`, …
    pub kind: String,
    /// Table, for people.
    pub table: String,
    /// Where the table lies.
    pub uri: String,
    /// Shard, where it works on one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
    /// Where it is.
    pub state: State,
    /// Less goes first.
    pub priority: i64,
    /// The work, as JSON.
    pub spec: serde_json::Value,
    /// Memory it needs, bytes.
    pub need_bytes: u64,
    /// Bytes it works on, where somebody has measured them.
    pub size_bytes: u64,
    /// When it came, milliseconds since the epoch, as all times here.
    pub created_ms: u64,
    /// Not before.
    pub run_at_ms: u64,
    /// When the newest attempt began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_ms: Option<u64>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// Attempts begun.
    pub attempt: u64,
    /// Who has it or had it last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// When its worker was last heard of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_ms: Option<u64>,
    /// What it was asked for and has not done yet: `cancel` or `pause`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ask: Option<String>,
    /// What it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// Rows done of this stage.
    pub rows_done: u64,
    /// Rows of this stage; 0: nobody knows.
    pub rows_total: u64,
    /// How it ended, in one word: `done`, `superseded`, `busy`, `failed`, `cancelled` by somebody, or `lost` with the
    /// process that alone could have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Its report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<serde_json::Value>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Digest of the planner and the policy that it was planned by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Proves that a worker has it still.
    #[serde(skip)]
    pub(super) lease: Option<String>,
    /// The lane that it runs in.
    #[serde(skip)]
    pub(super) lane: Option<String>,
}

/// Why a job failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Where: the stage it was in.
    pub phase: Option<String>,
    /// What, why, and what to do.
    pub message: String,
    /// Whether the same may work when tried again.
    pub retryable: bool,
}

/// Work to hand to the registry.
#[derive(Clone, Debug, PartialEq)]
pub struct NewJob {
    /// Type.
    pub kind: String,
    /// The table.
    pub table: TableRef,
    /// Shard, where it works on one.
    pub shard: Option<String>,
    /// What it does to what. Of equal ones only one is open.
    pub key: String,
    /// Of the jobs in one lane one runs at a time.
    pub lane: Option<String>,
    /// Less goes first.
    pub priority: i64,
    /// The work, as JSON.
    pub spec: String,
    /// The state of the table that it was planned for. Equal work for an equal state that went well
    /// once is not taken again.
    pub seen: String,
    /// Memory it needs, bytes.
    pub need_bytes: u64,
    /// Bytes it works on.
    pub size_bytes: u64,
    /// The job it is a part of.
    pub parent: Option<String>,
    /// Who may have it: anybody, or this worker.
    pub only_worker: Option<String>,
    /// How long it waits before it may begin, milliseconds.
    pub delay_ms: u64,
    /// Digest of the planner and the policy that it was planned by; `None`: somebody asked for it.
    pub policy: Option<String>,
}

impl NewJob {
    /// A planned job of a table.
    ///
    /// # Errors
    /// `Fatal` where it can't be written as JSON.
    pub fn planned(table: &TableRef, spec: &JobSpec, policy: &Policy) -> Result<Self> {
        let kind = spec.kind();
        let on = spec.shard().map(str::to_string).unwrap_or_else(|| indexes(spec).join(","));
        let base = || Some(format!("base {}", table.uri));
        // Jobs that commit to the base run one after the other: two would only fail each other's commits.
        let (priority, lane, need) = match spec {
            JobSpec::CatchUp { .. } => (0, base(), INDEX_NEED),
            JobSpec::Fold { .. } => (1, base(), policy.pass_memory_bytes / 2),
            JobSpec::Retire { .. } => (2, Some(format!("shard {} {on}", table.uri)), SMALL_NEED),
            JobSpec::Index { .. } => (3, base(), INDEX_NEED),
            JobSpec::Compact { .. } => (4, base(), REWRITE_NEED),
            JobSpec::Cleanup { .. } => (5, Some(format!("cleanup {}", table.uri)), SMALL_NEED),
            JobSpec::Remap { .. } => (6, base(), INDEX_NEED),
            JobSpec::Collect { .. } => (7, Some(format!("shard {} {on}", table.uri)), SMALL_NEED),
        };
        let spec_text = serde_json::to_string(spec).map_err(|e| Error::Fatal(format!("can't write JSON: {e}")))?;
        Ok(Self {
            key: format!("{kind} {} {on}", table.uri),
            shard: spec.shard().map(str::to_string),
            size_bytes: match spec {
                JobSpec::Fold { bytes: None, .. } => policy.pass_bytes,
                measured => bytes(measured),
            },
            kind,
            table: table.clone(),
            lane,
            priority,
            spec: spec_text,
            seen: String::new(),
            need_bytes: need,
            parent: None,
            only_worker: None,
            delay_ms: 0,
            policy: None,
        })
    }

    /// A job that builds an index that somebody asks for.
    ///
    /// # Errors
    /// `Invalid` where the table can't have such an index.
    pub(crate) fn build(table: &TableRef, build: &Build, name: &str, dataset: &Dataset) -> Result<Self> {
        let kind = build.kind(dataset)?;
        Ok(Self {
            // Another kind of index of that name is the same place.
            key: format!("create {} {name}", table.uri),
            kind,
            table: table.clone(),
            shard: None,
            lane: Some(format!("base {}", table.uri)),
            priority: 3,
            spec: serde_json::to_string(build).map_err(|e| Error::Fatal(format!("can't write JSON: {e}")))?,
            seen: String::new(),
            need_bytes: INDEX_NEED,
            size_bytes: 0,
            parent: None,
            only_worker: None,
            delay_ms: 0,
            policy: None,
        })
    }

    /// A part of a job.
    pub(crate) fn part(parent: &Job, table: TableRef, kind: &str, spec: String) -> Self {
        Self {
            kind: kind.into(),
            table,
            shard: None,
            key: format!("part {} {}", parent.id, Uuid::new_v5(&Uuid::NAMESPACE_OID, spec.as_bytes()).simple()),
            // It changes nothing that others see: its job does that, which has the lane.
            lane: None,
            priority: parent.priority,
            spec,
            seen: String::new(),
            need_bytes: parent.need_bytes,
            size_bytes: 0,
            parent: Some(parent.id.clone()),
            only_worker: None,
            delay_ms: 0,
            policy: None,
        }
    }

    /// Planned by this policy.
    #[must_use]
    pub fn by(self, policy: &str) -> Self {
        Self { policy: Some(policy.into()), ..self }
    }

    /// Planned for this state of the table.
    #[must_use]
    pub fn seen(self, state: &str) -> Self {
        // A digest: the state of a table with many shards is long.
        let seen = Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{state} {}", self.spec).as_bytes());
        Self { seen: seen.simple().to_string(), ..self }
    }
}

/// The indexes that a job works on.
pub(crate) fn indexes(spec: &JobSpec) -> Vec<String> {
    match spec {
        JobSpec::CatchUp { indexes, .. } | JobSpec::Index { indexes, .. } | JobSpec::Remap { indexes } => {
            indexes.clone()
        }
        _ => Vec::new(),
    }
}

/// A new id. Ids sort by the time they were made; those of one process exactly.
pub(super) fn new_id() -> String {
    /// What the twelve bits behind the time hold.
    const COUNT_MAX: u16 = 0x0fff;
    static LAST: Mutex<(u64, u16)> = Mutex::new((0, 0));
    let (at, count) = {
        let mut last = LAST.lock().unwrap_or_else(|e| e.into_inner());
        let now = now_ms();
        // A clock that went back, or more than a count holds, borrows from the time to come.
        *last = match *last {
            (at, _) if now > at => (now, 0),
            (at, COUNT_MAX) => (at + 1, 0),
            (at, count) => (at, count + 1),
        };
        *last
    };
    let mut rest = [0; 10];
    rest.copy_from_slice(&Uuid::new_v4().as_bytes()[..10]);
    // The version takes the four high bits of the first byte.
    rest[0] = (count >> 8) as u8 & 0x0f;
    rest[1] = count as u8;
    uuid::Builder::from_unix_timestamp_millis(at, &rest).into_uuid().to_string()
}

/// How one attempt at a job ended.
#[derive(Clone, Debug)]
pub enum Ended {
    /// With a report, well or not.
    Report(Box<JobReport>),
    /// It stopped because somebody asked for it: `cancel` or `pause`.
    Asked,
    /// It did not begin, or its process stops: others may have it, as if nobody had tried.
    Released,
}

/// The columns of [`Job`]. What a part left is for its job alone, and too large for lists.
pub(super) const COLUMNS: &str = "id, parent, kind, table_name, uri, shard, state, priority, spec, need_bytes, size_bytes, created_ms, run_at_ms, \
     started_ms, ended_ms, attempt, worker, heartbeat_ms, ask, stage, rows_done, rows_total, outcome, \
     CASE WHEN parent IS NULL OR outcome <> 'done' THEN result END AS result, phase, \
     message, retryable, policy, lease, lane";

impl FromRow<'_, AnyRow> for Job {
    fn from_row(row: &AnyRow) -> sqlx::Result<Self> {
        let number = |name: &str| row.try_get::<i64, _>(name).map(uint);
        let maybe = |name: &str| Ok::<_, sqlx::Error>(row.try_get::<Option<i64>, _>(name)?.map(uint));
        let text = |name: &str| row.try_get::<Option<String>, _>(name);
        let json = |text: &str| serde_json::from_str(text).unwrap_or_default();
        let state: String = row.try_get("state")?;
        let state = State::of(&state).ok_or_else(|| sqlx::Error::Decode(format!("no such state: {state}").into()))?;
        let failure = match text("message")? {
            Some(message) if state == State::Failed => Some(Failure {
                phase: text("phase")?,
                message,
                retryable: row.try_get::<Option<i64>, _>("retryable")? == Some(1),
            }),
            _ => None,
        };
        Ok(Self {
            id: row.try_get("id")?,
            parent: text("parent")?,
            kind: row.try_get("kind")?,
            table: row.try_get("table_name")?,
            uri: row.try_get("uri")?,
            shard: text("shard")?,
            state,
            priority: row.try_get("priority")?,
            spec: json(&row.try_get::<String, _>("spec")?),
            need_bytes: number("need_bytes")?,
            size_bytes: number("size_bytes")?,
            created_ms: number("created_ms")?,
            run_at_ms: number("run_at_ms")?,
            started_ms: maybe("started_ms")?,
            ended_ms: maybe("ended_ms")?,
            attempt: number("attempt")?,
            worker: text("worker")?,
            heartbeat_ms: maybe("heartbeat_ms")?,
            ask: text("ask")?,
            stage: text("stage")?,
            rows_done: number("rows_done")?,
            rows_total: number("rows_total")?,
            outcome: text("outcome")?,
            result: text("result")?.map(|text| json(&text)),
            failure,
            policy: text("policy")?,
            lease: text("lease")?,
            lane: text("lane")?,
        })
    }
}
