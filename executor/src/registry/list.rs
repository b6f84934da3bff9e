//! What is in the registry, for people, for clients and for agents.

use futures::FutureExt;
use serde::Serialize;
use sqlx::Row;

use super::job::COLUMNS;
use super::store::{Engine, int, uint};
use super::{Job, Registry, State};
use crate::error::Result;

/// Jobs on one page at most.
pub const PAGE_MAX: u64 = 1_000;
/// Events in one answer at most.
pub const EVENTS_MAX: u64 = 10_000;
/// Ends that an agent takes in at once.
const ENDS_MAX: i64 = 10_000;

/// How long after its own time an end may become visible: with one writer, and with many.
const LATE_MS: (u64, u64) = (1_000, 10_000);

/// Which jobs to list. Empty fields say nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// In one of these states.
    pub states: Vec<State>,
    /// Of this type.
    pub kind: Option<String>,
    /// Of the table of this name.
    pub table: Option<String>,
    /// Parts of this job.
    pub parent: Option<String>,
    /// Older than the job of this id: the last of the page before.
    pub before: Option<String>,
    /// How many; 0: [`PAGE_MAX`].
    pub limit: u64,
}

/// Something that happened to a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Orders them.
    pub id: u64,
    /// The job.
    pub job_id: String,
    /// When, milliseconds since the epoch.
    pub at_ms: u64,
    /// What: a state, or `created`, `claim`, `claim_complete`, `retry`, `lost`, `released`, `resumed`,
    /// `cancel_requested`, `pause_requested`.
    pub state: String,
    /// By which worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// More about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Rows that were done by then.
    pub rows_processed: u64,
}

impl Registry {
    /// A page of jobs, the newest first.
    ///
    /// # Errors
    /// `Retry` or `Away` when the registry does not answer.
    pub async fn jobs(&self, filter: &Filter) -> Result<Vec<Job>> {
        let (mut wheres, mut values) = (Vec::new(), Vec::new());
        let mut and = |column: &str, value: &Option<String>, values: &mut Vec<String>| {
            if let Some(value) = value {
                values.push(value.clone());
                wheres.push(format!("{column} ${}", values.len()));
            }
        };
        and("kind =", &filter.kind, &mut values);
        and("table_name =", &filter.table, &mut values);
        and("parent =", &filter.parent, &mut values);
        and("id <", &filter.before, &mut values);
        if !filter.states.is_empty() {
            let words: Vec<String> = filter.states.iter().map(|state| format!("'{}'", state.word())).collect();
            wheres.push(format!("state IN ({})", words.join(", ")));
        }
        let wheres = if wheres.is_empty() { "1 = 1".into() } else { wheres.join(" AND ") };
        let limit = if filter.limit == 0 { PAGE_MAX } else { filter.limit.min(PAGE_MAX) };
        let sql = format!("SELECT {COLUMNS} FROM caretaker_job WHERE {wheres} ORDER BY id DESC LIMIT {limit}");
        let jobs = self.store.again(|| {
            async {
                let query = values.iter().fold(sqlx::query_as(&sql), |query, value| query.bind(value));
                query.fetch_all(&self.store.pool()).await
            }
            .boxed()
        });
        jobs.await
    }

    /// One job.
    ///
    /// # Errors
    /// As [`Self::jobs`].
    pub async fn job(&self, id: &str) -> Result<Option<Job>> {
        let sql = format!("SELECT {COLUMNS} FROM caretaker_job WHERE id = $1");
        self.store
            .again(|| async { sqlx::query_as(&sql).bind(id).fetch_optional(&self.store.pool()).await }.boxed())
            .await
    }

    /// What happened to a job, the oldest first, behind the event `after`.
    ///
    /// # Errors
    /// As [`Self::jobs`].
    pub async fn events(&self, job: &str, after: u64, limit: u64) -> Result<Vec<Event>> {
        let sql = "SELECT id, job, at_ms, state, worker, message, rows_done FROM caretaker_event
                   WHERE job = $1 AND id > $2 ORDER BY id LIMIT $3";
        let limit = limit.clamp(1, EVENTS_MAX);
        let rows = self.store.again(|| {
            async {
                let query = sqlx::query(sql).bind(job).bind(int(after)).bind(int(limit));
                query.fetch_all(&self.store.pool()).await?.iter().map(event).collect::<sqlx::Result<Vec<_>>>()
            }
            .boxed()
        });
        rows.await
    }

    /// Jobs that are no parts of others and have ended since `since_ms`, in any order, and from when on to
    /// ask the next time: commits come in any order, so it is a little before now.
    ///
    /// # Errors
    /// As [`Self::jobs`].
    pub async fn ended_since(&self, since_ms: u64) -> Result<(Vec<Job>, u64)> {
        let sql = format!(
            "SELECT {COLUMNS} FROM caretaker_job WHERE ended_ms >= $1 AND parent IS NULL ORDER BY ended_ms DESC LIMIT $2"
        );
        let ended = self.store.again(|| {
            async {
                let mut connection = self.store.pool().acquire().await?;
                let now = uint(self.store.now(&mut connection).await?);
                let query = sqlx::query_as(&sql).bind(int(since_ms)).bind(ENDS_MAX);
                let late = if self.store.engine == Engine::Sqlite { LATE_MS.0 } else { LATE_MS.1 };
                Ok((query.fetch_all(&mut *connection).await?, now.saturating_sub(late).max(1)))
            }
            .boxed()
        });
        ended.await
    }

    /// How many jobs wait, and how many run.
    ///
    /// # Errors
    /// As [`Self::jobs`].
    pub async fn open_jobs(&self) -> Result<(u64, u64)> {
        let sql = "SELECT state, count(*) FROM caretaker_job WHERE state IN ('pending', 'running') GROUP BY state";
        let rows: Vec<(String, i64)> =
            self.store.again(|| async { sqlx::query_as(sql).fetch_all(&self.store.pool()).await }.boxed()).await?;
        let of = |state: State| rows.iter().filter(|(word, _)| word == state.word()).map(|(_, n)| uint(*n)).sum();
        Ok((of(State::Pending), of(State::Running)))
    }
}

fn event(row: &sqlx::any::AnyRow) -> sqlx::Result<Event> {
    Ok(Event {
        id: uint(row.try_get(0)?),
        job_id: row.try_get(1)?,
        at_ms: uint(row.try_get(2)?),
        state: row.try_get(3)?,
        worker: row.try_get::<Option<String>, _>(4)?.filter(|worker| !worker.is_empty()),
        message: row.try_get(5)?,
        rows_processed: uint(row.try_get(6)?),
    })
}
