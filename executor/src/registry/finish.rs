//! What came of a job is written down once, by the worker that has its lease.

use futures::FutureExt;
use sqlx::AnyConnection;

use super::job::{Ended, Job};
use super::store::{int, uint};
use super::{RETRY_MS, Registry, Ring, State, TRIES_MAX};
use crate::error::{Error, Result};
use crate::report::{JobEnd, JobReport};

impl Registry {
    /// Ends an attempt. May be called again when its answer got lost.
    ///
    /// # Errors
    /// `Superseded` where the job is another worker's by now. `Retry` or `Away` when the registry does not answer.
    pub async fn finish(&self, job: &Job, ended: &Ended) -> Result<()> {
        let lease = job.lease.as_deref().unwrap_or_default();
        let finished = self.store.again(|| {
            async {
                let mut tx = self.store.begin().await?;
                let now = uint(self.store.now(&mut tx).await?);
                let done = match ended {
                    Ended::Report(report) => self.reported(&mut tx, job, lease, report, now).await?,
                    Ended::Asked => self.stopped(&mut tx, job, lease).await?,
                    Ended::Released => self.released(&mut tx, job, lease).await?,
                };
                // The answer to an earlier call may have been lost.
                let done = done || self.ended_by(&mut tx, &job.id, lease).await?;
                self.bell.tell(&mut tx, &Ring::Ended(job.uri.clone())).await?;
                tx.commit().await?;
                Ok(done)
            }
            .boxed()
        });
        if !finished.await? {
            return Err(Error::Superseded(format!("job `{}` was given to another worker", job.id)));
        }
        self.bell.ring(Ring::Ended(job.uri.clone()));
        Ok(())
    }

    async fn reported(
        &self,
        tx: &mut AnyConnection,
        job: &Job,
        lease: &str,
        report: &JobReport,
        now: u64,
    ) -> sqlx::Result<bool> {
        let (retryable, message) = match &report.end {
            JobEnd::Failed { kind, why } => (*kind == "retry", Some(why.as_str())),
            _ => (false, None),
        };
        if retryable && job.attempt < TRIES_MAX {
            let wait = RETRY_MS << job.attempt.saturating_sub(1);
            let sql = "UPDATE caretaker_job SET state = 'pending', holds = NULL, heartbeat_ms = NULL, run_at_ms = $3,
                           ask = NULL
                       WHERE id = $1 AND lease = $2 AND state = 'running' AND ask IS NULL AND only_worker IS NULL";
            let again = sqlx::query(sql).bind(&job.id).bind(lease).bind(int(now + wait)).execute(&mut *tx).await?;
            if again.rows_affected() > 0 {
                self.event(tx, &job.id, "retry", None, message).await?;
                return Ok(true);
            }
        }
        let state = if message.is_some() { State::Failed } else { State::Succeeded };
        // A part that was asked to stop has lost: whoever asked counts on it to clear away what it wrote.
        let unasked = if matches!(report.end, JobEnd::Part { .. }) { "AND ask IS NULL" } else { "" };
        let text = serde_json::to_string(report).unwrap_or_default();
        let sql = format!(
            "UPDATE caretaker_job SET state = $3, ended_ms = $4, outcome = $5, result = $6, message = $7,
                 phase = stage, retryable = $8, holds = NULL, ask = NULL
             WHERE id = $1 AND lease = $2 AND state = 'running' {unasked}"
        );
        let ended = sqlx::query(&sql)
            .bind(&job.id)
            .bind(lease)
            .bind(state.word())
            .bind(int(now))
            .bind(report.end.outcome())
            .bind(&text)
            .bind(message)
            .bind(i64::from(retryable))
            .execute(&mut *tx)
            .await?;
        if ended.rows_affected() == 0 {
            return Ok(false);
        }
        self.event(tx, &job.id, "claim_complete", None, None).await?;
        self.event(tx, &job.id, state.word(), None, Some(&report.end.to_string())).await?;
        // What a part failed of is its job's to say.
        if job.parent.is_none() {
            super::marks::mark(tx, &job.uri, report, now).await?;
        }
        self.end_parts(tx, &job.id).await?;
        Ok(true)
    }

    /// Somebody asked for it.
    async fn stopped(&self, tx: &mut AnyConnection, job: &Job, lease: &str) -> sqlx::Result<bool> {
        let sql = self.store.sql(
            "UPDATE caretaker_job SET holds = NULL, heartbeat_ms = NULL,
                 state = CASE ask WHEN 'cancel' THEN 'cancelled' WHEN 'pause' THEN 'paused' ELSE 'pending' END,
                 ended_ms = CASE ask WHEN 'cancel' THEN {now} END, outcome = CASE ask WHEN 'cancel' THEN 'cancelled' END,
                 attempt = CASE WHEN ask IS NULL THEN attempt - 1 ELSE attempt END, ask = NULL
             WHERE id = $1 AND lease = $2 AND state = 'running' RETURNING state",
        );
        let state: Option<String> = sqlx::query_scalar(&sql).bind(&job.id).bind(lease).fetch_optional(&mut *tx).await?;
        let Some(state) = state else { return Ok(false) };
        self.event(tx, &job.id, if state == "pending" { "released" } else { &state }, None, None).await?;
        if state == "cancelled" {
            self.end_parts(tx, &job.id).await?;
        }
        Ok(true)
    }

    async fn released(&self, tx: &mut AnyConnection, job: &Job, lease: &str) -> sqlx::Result<bool> {
        let sql = self.store.sql(
            "UPDATE caretaker_job SET holds = NULL, heartbeat_ms = NULL, attempt = attempt - 1,
                 state = CASE WHEN ask = 'cancel' OR only_worker IS NOT NULL THEN 'cancelled'
                              WHEN ask = 'pause' THEN 'paused' ELSE 'pending' END,
                 ended_ms = CASE WHEN ask = 'cancel' OR only_worker IS NOT NULL THEN {now} END,
                 outcome = CASE WHEN ask = 'cancel' THEN 'cancelled' WHEN only_worker IS NOT NULL THEN 'lost' END,
                 ask = NULL
             WHERE id = $1 AND lease = $2 AND state = 'running'",
        );
        let released = sqlx::query(&sql).bind(&job.id).bind(lease).execute(&mut *tx).await?;
        if released.rows_affected() > 0 {
            self.event(tx, &job.id, "released", None, None).await?;
        }
        Ok(released.rows_affected() > 0)
    }

    async fn ended_by(&self, tx: &mut AnyConnection, id: &str, lease: &str) -> sqlx::Result<bool> {
        let sql = "SELECT count(*) FROM caretaker_job WHERE id = $1 AND lease = $2 AND state <> 'running'";
        let found: i64 = sqlx::query_scalar(sql).bind(id).bind(lease).fetch_one(tx).await?;
        Ok(found > 0)
    }
}
