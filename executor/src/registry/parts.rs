//! Parts of a job: pieces of its work that any worker may do, while the job itself waits for them.
//!
//! A part's result is its output: files of no version yet. Whoever commits them or deletes them takes the
//! output out of the registry first, under the lease of the job: so they are one attempt's, and no later one
//! commits what is gone or deletes what is committed.

use futures::FutureExt;
use serde_json::Value;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, FromRow, Row};

use super::job::COLUMNS;
use super::store::uint;
use super::{Job, Registry, Ring, State};
use crate::error::{Error, Result};

/// A part, without its output, which may be large.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) id: String,
    /// The work, as JSON.
    pub(crate) spec: Value,
    pub(crate) state: State,
    /// When it ended.
    pub(crate) ended_ms: Option<u64>,
    /// Whether its output can be had.
    pub(crate) output: bool,
    /// Why it failed.
    pub(crate) message: Option<String>,
}

const PART: &str = "id, spec, state, ended_ms, message, \
                    CASE WHEN state = 'succeeded' AND outcome = 'done' AND result IS NOT NULL THEN 1 ELSE 0 END AS had";

impl FromRow<'_, AnyRow> for Part {
    fn from_row(row: &AnyRow) -> sqlx::Result<Self> {
        let state: String = row.try_get("state")?;
        Ok(Self {
            id: row.try_get("id")?,
            spec: serde_json::from_str(&row.try_get::<String, _>("spec")?).unwrap_or_default(),
            state: State::of(&state).ok_or_else(|| sqlx::Error::Decode(format!("no such state: {state}").into()))?,
            ended_ms: row.try_get::<Option<i64>, _>("ended_ms")?.map(uint),
            // PostgreSQL counts the numbers of a `CASE` in fewer bits than those of a column.
            output: row.try_get::<i64, _>("had").or_else(|_| row.try_get::<i32, _>("had").map(i64::from))? == 1,
            message: row.try_get("message")?,
        })
    }
}

impl Registry {
    /// The job of a lease, while it is its holder's; one, where a lease is of several.
    ///
    /// # Errors
    /// `Superseded` where it is another worker's by now, `Retry` or `Away` when the registry does not answer.
    pub(crate) async fn held(&self, lease: &str) -> Result<Job> {
        let sql = format!("SELECT {COLUMNS} FROM caretaker_job WHERE lease = $1 AND state = 'running' LIMIT 1");
        let held: Option<Job> = self
            .store
            .again(|| async { sqlx::query_as(&sql).bind(lease).fetch_optional(&self.store.pool()).await }.boxed())
            .await?;
        held.ok_or_else(lost)
    }

    /// The parts of a job, the oldest first.
    ///
    /// # Errors
    /// `Retry` or `Away` when the registry does not answer.
    pub(crate) async fn parts(&self, parent: &str) -> Result<Vec<Part>> {
        let sql = format!("SELECT {PART} FROM caretaker_job WHERE parent = $1 ORDER BY id");
        let parts = self
            .store
            .again(|| async { sqlx::query_as(&sql).bind(parent).fetch_all(&self.store.pool()).await }.boxed());
        parts.await
    }

    /// Ends the open parts of a job, and takes the outputs of the others out of the registry, while the job
    /// is the caller's. No part of it ends well after that, and nobody else has what they wrote.
    ///
    /// # Errors
    /// As [`Self::held`]; then nothing was taken.
    pub(crate) async fn take_outputs(&self, parent: &Job) -> Result<Vec<(String, Value)>> {
        let lease = parent.lease.as_deref().unwrap_or_default();
        // A statement that writes: on PostgreSQL it keeps the row from being given to another meanwhile.
        let mine = self
            .store
            .sql("UPDATE caretaker_job SET heartbeat_ms = {now} WHERE id = $1 AND lease = $2 AND state = 'running'");
        let select = "SELECT id, result FROM caretaker_job
                      WHERE parent = $1 AND outcome = 'done' AND result IS NOT NULL ORDER BY id";
        let forget = "UPDATE caretaker_job SET result = NULL WHERE id = $1";
        let taken = self.store.again(|| {
            async {
                let mut tx = self.store.begin().await?;
                let held = sqlx::query(&mine).bind(&parent.id).bind(lease).execute(&mut *tx).await?;
                if held.rows_affected() == 0 {
                    return Ok(None);
                }
                self.stop_parts(&mut tx, &parent.id).await?;
                self.bell.tell(&mut tx, &Ring::Asked).await?;
                let rows = sqlx::query(select).bind(&parent.id).fetch_all(&mut *tx).await?;
                let mut taken = Vec::with_capacity(rows.len());
                for row in &rows {
                    let id: String = row.try_get("id")?;
                    sqlx::query(forget).bind(&id).execute(&mut *tx).await?;
                    taken.extend(output(&row.try_get::<String, _>("result")?).map(|output| (id, output)));
                }
                tx.commit().await?;
                Ok(Some(taken))
            }
            .boxed()
        });
        let taken: Vec<(String, Value)> = taken.await?.ok_or_else(lost)?;
        self.bell.ring(Ring::Asked);
        Ok(taken)
    }

    /// Nobody needs the parts of a job that has ended, nor what they left.
    pub(super) async fn end_parts(&self, tx: &mut AnyConnection, id: &str) -> sqlx::Result<()> {
        self.stop_parts(tx, id).await?;
        let forget = "UPDATE caretaker_job SET result = NULL WHERE parent = $1 AND outcome = 'done'";
        sqlx::query(forget).bind(id).execute(tx).await.map(drop)
    }

    async fn stop_parts(&self, tx: &mut AnyConnection, id: &str) -> sqlx::Result<()> {
        let waiting = self.store.sql(
            "UPDATE caretaker_job SET state = 'cancelled', outcome = 'cancelled', ended_ms = {now}
             WHERE parent = $1 AND state IN ('pending', 'paused')",
        );
        sqlx::query(&waiting).bind(id).execute(&mut *tx).await?;
        let running = "UPDATE caretaker_job SET ask = 'cancel' WHERE parent = $1 AND state = 'running'";
        sqlx::query(running).bind(id).execute(tx).await.map(drop)
    }
}

/// The output in a part's report.
fn output(report: &str) -> Option<Value> {
    let mut report: Value = serde_json::from_str(report).ok()?;
    report.get_mut("output").map(Value::take)
}

fn lost() -> Error {
    Error::Superseded("the job was given to another worker".into())
}
