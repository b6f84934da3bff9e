//! What is remembered of a table between its evaluations: the marks of its last successes and failures,
//! since when an index lacks rows, and which of its jobs are open.

use std::collections::BTreeMap;

use futures::FutureExt;
use planner::facts::{CleanupFacts, CleanupSuccess, FailedFacts, MismatchFacts, PassFacts, RunningFacts, TableFacts};
use planner::job::JobSpec;
use sqlx::AnyConnection;

use super::Registry;
use super::job::{FOLD, indexes, new_id};
use super::store::{int, uint};
use crate::error::{Error, Result};
use crate::report::{JobEnd, JobReport};

/// A finished job, in short.
#[derive(Clone, Debug, PartialEq)]
pub struct JobResult {
    /// Job type.
    pub job: String,
    /// How it ended: `done`, `superseded`, `cancelled` or `failed`.
    pub outcome: String,
    /// When, milliseconds since the epoch.
    pub ended_at_ms: u64,
    /// Its report.
    pub report: serde_json::Value,
}

/// The newest job of a table that went well.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct LastSuccess {
    /// Job type.
    pub job: String,
    /// When it ended, milliseconds since the epoch.
    pub ended_at_ms: u64,
}

type Number = Option<i64>;
type Text = Option<String>;
/// What a row is about, its name, its numbers, its text, which job it is, and which worker has it.
pub(crate) type Remembered = (String, Text, Number, Number, Number, Number, Text, Text, Text);

impl Registry {
    /// Adds to `facts` what is known from before.
    ///
    /// # Errors
    /// `Retry` or `Invalid` when the file can't be read or written.
    pub async fn complete(&self, uri: &str, facts: &mut TableFacts, now_ms: u64) -> Result<()> {
        let remembered = self.remembered(uri).await?;
        self.add(remembered, uri, facts, now_ms).await
    }

    /// Adds what is known from before, read by [`Self::remembered`].
    ///
    /// # Errors
    /// As [`Self::complete`].
    pub(crate) async fn add(
        &self,
        rows: Vec<Remembered>,
        uri: &str,
        facts: &mut TableFacts,
        now_ms: u64,
    ) -> Result<()> {
        let mut since = BTreeMap::new();
        let mut cleanup = CleanupFacts::default();
        for (what, name, a, b, c, d, spec, job, worker) in rows {
            let [a, b, c, d] = [a, b, c, d].map(|n| n.map(uint));
            match (what.as_str(), name, a, b) {
                ("unindexed", Some(name), Some(at), _) => drop(since.insert(name, at)),
                ("failing", Some(kind), Some(times), Some(last_at_ms)) => {
                    facts.failed.push(FailedFacts { kind, times, last_at_ms });
                }
                ("mismatch", Some(kind), Some(at_ms), _) => facts.mismatch = Some(MismatchFacts { kind, at_ms }),
                ("cleanup", _, start, finished) => {
                    let success = |start_version, finished_at_ms, recorded_version| CleanupSuccess {
                        start_version,
                        finished_at_ms,
                        recorded_version,
                    };
                    cleanup.last_success = start.zip(finished).zip(c).map(|((s, f), r)| success(s, f, r));
                    cleanup.last_failure_at_ms = d;
                }
                // Its process died: it is nobody's, and whoever comes next puts it back.
                ("open", ..) if worker.as_ref().is_some_and(|worker| self.processes.is_dead(worker)) => {}
                ("open", Some(kind), Some(since_ms), _) => {
                    let spec = spec.and_then(|text| serde_json::from_str(&text).ok());
                    let of = worker.map_or_else(|| ", which waits".into(), |worker| format!(" of {worker}"));
                    open(facts, kind, since_ms, format!("job {}{of}", job.unwrap_or_default()), spec);
                }
                _ => {}
            }
        }
        facts.cleanup = Some(cleanup);
        self.unindexed(uri, facts, &since, now_ms).await.map_err(|e| self.store.trouble(e))
    }

    /// All that is remembered of a table, in one question: an evaluation asks it of every table.
    ///
    /// # Errors
    /// As [`Self::complete`].
    pub(crate) async fn remembered(&self, uri: &str) -> Result<Vec<Remembered>> {
        const TEXT: &str = "cast(NULL AS text)";
        let sql = format!(
            "SELECT 'unindexed', index_name, since_ms, cast(NULL AS bigint), cast(NULL AS bigint), cast(NULL AS bigint),
                    {TEXT}, {TEXT}, {TEXT} FROM caretaker_unindexed WHERE uri = $1
             UNION ALL SELECT 'failing', job, times, last_at_ms, NULL, NULL, NULL, NULL, NULL
                    FROM caretaker_failing WHERE uri = $1
             UNION ALL SELECT 'mismatch', job, at_ms, NULL, NULL, NULL, NULL, NULL, NULL
                    FROM caretaker_mismatch WHERE uri = $1
             UNION ALL SELECT 'cleanup', NULL, start_version, finished_at_ms, recorded_version, failed_at_ms,
                    NULL, NULL, NULL FROM caretaker_cleanup WHERE uri = $1
             UNION ALL SELECT 'open', kind, coalesce(started_ms, created_ms), NULL, NULL, NULL, spec, id,
                    CASE state WHEN 'running' THEN worker END
                    FROM caretaker_job WHERE uri = $1 AND ended_ms IS NULL AND parent IS NULL"
        );
        let rows =
            self.store.again(|| async { sqlx::query_as(&sql).bind(uri).fetch_all(&self.store.pool()).await }.boxed());
        rows.await
    }

    /// Remembers a job's end. A race that was lost is neither a failure nor a success, and only a
    /// success moves the marks of the last one.
    ///
    /// # Errors
    /// `Retry` or `Invalid` when the file can't be written; the job itself has ended all the same.
    pub async fn record(&self, uri: &str, job: &JobReport, now_ms: u64) -> Result<()> {
        let text = serde_json::to_string(job).map_err(|e| Error::Fatal(format!("can't write JSON: {e}")))?;
        let recorded = async {
            let mut tx = self.store.begin().await?;
            let state = if matches!(job.end, JobEnd::Failed { .. }) { "failed" } else { "succeeded" };
            let started = int(now_ms.saturating_sub(job.millis));
            sqlx::query(
                "INSERT INTO caretaker_job (id, kind, table_name, uri, open_key, state, priority, spec, seen, need_bytes,
                     size_bytes, created_ms, run_at_ms, started_ms, ended_ms, attempt, rows_done, rows_total, outcome,
                     result)
                 VALUES ($1, $2, $3, $3, $2, $4, 0, '{}', '', 0, 0, $5, $5, $5, $6, 1, 0, 0, $7, $8)",
            )
            .bind(new_id())
            .bind(&job.job)
            .bind(uri)
            .bind(state)
            .bind(started)
            .bind(int(now_ms))
            .bind(job.end.outcome())
            .bind(&text)
            .execute(&mut *tx)
            .await?;
            mark(&mut tx, uri, job, now_ms).await?;
            tx.commit().await
        };
        recorded.await.map_err(|e| self.store.trouble(e))
    }

    /// The job that changed a table's answers, when that was found, and what it was; `None` where
    /// none has, or somebody has looked since.
    ///
    /// # Errors
    /// As [`Self::complete`].
    pub async fn mismatch(&self, uri: &str) -> Result<Option<(String, u64, String)>> {
        let row: Option<(String, i64, String)> =
            sqlx::query_as("SELECT job, at_ms, why FROM caretaker_mismatch WHERE uri = $1")
                .bind(uri)
                .fetch_optional(&self.store.pool())
                .await
                .map_err(|e| self.store.trouble(e))?;
        Ok(row.map(|(job, at, why)| (job, uint(at), why)))
    }

    /// Somebody has looked at the table: its jobs go on.
    ///
    /// # Errors
    /// As [`Self::record`].
    pub async fn accept(&self, uri: &str) -> Result<()> {
        let gone =
            sqlx::query("DELETE FROM caretaker_mismatch WHERE uri = $1").bind(uri).execute(&self.store.pool()).await;
        gone.map(drop).map_err(|e| self.store.trouble(e))
    }

    /// The newest results of a table, the newest first; those of parts are their jobs'.
    ///
    /// # Errors
    /// As [`Self::complete`].
    pub async fn results(&self, uri: &str, most: u64) -> Result<Vec<JobResult>> {
        let rows: Vec<(String, String, i64, String)> = sqlx::query_as(
            "SELECT kind, outcome, ended_ms, coalesce(result, '') FROM caretaker_job
             WHERE uri = $1 AND ended_ms IS NOT NULL AND parent IS NULL ORDER BY ended_ms DESC, id DESC LIMIT $2",
        )
        .bind(uri)
        .bind(int(most))
        .fetch_all(&self.store.pool())
        .await
        .map_err(|e| self.store.trouble(e))?;
        let result = |(job, outcome, at, report): (String, String, i64, String)| JobResult {
            job,
            outcome,
            ended_at_ms: uint(at),
            report: serde_json::from_str(&report).unwrap_or_default(),
        };
        Ok(rows.into_iter().map(result).collect())
    }

    /// The newest job of a table that went well, as long as results are kept.
    ///
    /// # Errors
    /// As [`Self::complete`].
    pub async fn last_success(&self, uri: &str) -> Result<Option<LastSuccess>> {
        let row: Option<(String, i64)> = sqlx::query_as(
            "SELECT kind, ended_ms FROM caretaker_job WHERE uri = $1 AND outcome = 'done' AND ended_ms IS NOT NULL AND parent IS NULL
             ORDER BY ended_ms DESC LIMIT 1",
        )
        .bind(uri)
        .fetch_optional(&self.store.pool())
        .await
        .map_err(|e| self.store.trouble(e))?;
        Ok(row.map(|(job, at)| LastSuccess { job, ended_at_ms: uint(at) }))
    }

    /// Since when each index has lacked rows, as far as evaluations have seen: `known` from before.
    async fn unindexed(
        &self,
        uri: &str,
        facts: &mut TableFacts,
        known: &BTreeMap<String, u64>,
        now_ms: u64,
    ) -> sqlx::Result<()> {
        let lacks = |name: &str| facts.indexes.iter().any(|i| i.name == name && i.unindexed_rows != Some(0));
        let over: Vec<&String> = known.keys().filter(|name| !lacks(name)).collect();
        let lacking = || facts.indexes.iter().filter(|index| index.unindexed_rows != Some(0));
        let new: Vec<&str> = lacking().map(|i| i.name.as_str()).filter(|name| !known.contains_key(*name)).collect();
        // Most evaluations change nothing: those don't ask for the one lock there is.
        if self.writes && !(over.is_empty() && new.is_empty()) {
            let mut tx = self.store.begin().await?;
            for name in over {
                let gone = sqlx::query("DELETE FROM caretaker_unindexed WHERE uri = $1 AND index_name = $2");
                gone.bind(uri).bind(name).execute(&mut *tx).await?;
            }
            for name in new {
                let seen = sqlx::query(
                    "INSERT INTO caretaker_unindexed (uri, index_name, since_ms) VALUES ($1, $2, $3)
                     ON CONFLICT DO NOTHING",
                );
                seen.bind(uri).bind(name).bind(int(now_ms)).execute(&mut *tx).await?;
            }
            tx.commit().await?;
        }
        for index in facts.indexes.iter_mut().filter(|index| index.unindexed_rows != Some(0)) {
            index.unindexed_since_ms = Some(known.get(&index.name).copied().unwrap_or(now_ms));
        }
        Ok(())
    }
}

/// An open job of the table, as a fact.
fn open(facts: &mut TableFacts, kind: String, since_ms: u64, holder: String, spec: Option<JobSpec>) {
    if kind == FOLD || kind == "memwal_retire" {
        let shard = spec.as_ref().and_then(JobSpec::shard);
        for facts in facts.shards.iter_mut().filter(|facts| shard == Some(facts.shard.as_str())) {
            facts.pass.get_or_insert_with(|| PassFacts { since_ms, holder: holder.clone() });
        }
    }
    let deferred = matches!(spec, Some(JobSpec::Compact { deferred: true, .. }));
    let indexes = spec.as_ref().map(indexes).unwrap_or_default();
    facts.running.push(RunningFacts { kind, since_ms, holder, deferred, indexes });
}

/// Moves the marks of a table after a job. A race that was lost is neither a failure nor a success, and
/// only a success moves the marks of the last one.
pub(super) async fn mark(tx: &mut AnyConnection, uri: &str, job: &JobReport, now_ms: u64) -> sqlx::Result<()> {
    match &job.end {
        JobEnd::Superseded { .. } | JobEnd::Busy { .. } => {}
        JobEnd::Failed { why, .. } => {
            count_failure(tx, uri, &job.job, now_ms).await?;
            if job.end.is_mismatch() {
                // The first one counts: what came after may be its consequence.
                sqlx::query(
                    "INSERT INTO caretaker_mismatch (uri, job, at_ms, why) VALUES ($1, $2, $3, $4)
                     ON CONFLICT DO NOTHING",
                )
                .bind(uri)
                .bind(&job.job)
                .bind(int(now_ms))
                .bind(why)
                .execute(&mut *tx)
                .await?;
            }
        }
        done => {
            let over = sqlx::query("DELETE FROM caretaker_failing WHERE uri = $1 AND job = $2");
            over.bind(uri).bind(&job.job).execute(&mut *tx).await?;
            if let JobEnd::Cleaned(report) = done {
                move_marks(tx, uri, report.start_version, report.end_version, now_ms).await?;
            }
        }
    }
    Ok(())
}

pub(super) async fn count_failure(tx: &mut AnyConnection, uri: &str, job: &str, now_ms: u64) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO caretaker_failing AS f (uri, job, times, last_at_ms) VALUES ($1, $2, 1, $3)
         ON CONFLICT (uri, job) DO UPDATE SET times = f.times + 1, last_at_ms = $3",
    )
    .bind(uri)
    .bind(job)
    .bind(int(now_ms))
    .execute(&mut *tx)
    .await?;
    if job == "cleanup" {
        sqlx::query(
            "INSERT INTO caretaker_cleanup (uri, failed_at_ms) VALUES ($1, $2)
             ON CONFLICT (uri) DO UPDATE SET failed_at_ms = $2",
        )
        .bind(uri)
        .bind(int(now_ms))
        .execute(&mut *tx)
        .await?;
    }
    Ok(())
}

async fn move_marks(tx: &mut AnyConnection, uri: &str, start: u64, end: u64, now_ms: u64) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO caretaker_cleanup (uri, start_version, finished_at_ms, recorded_version) VALUES ($1, $2, $3, $4)
         ON CONFLICT (uri) DO UPDATE SET start_version = $2, finished_at_ms = $3, recorded_version = $4",
    )
    .bind(uri)
    .bind(int(start))
    .bind(int(now_ms))
    .bind(int(end))
    .execute(&mut *tx)
    .await?;
    Ok(())
}
