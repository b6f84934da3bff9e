//! What became of a table's jobs, in an SQLite file that outlives the process.
//!
//! A table is known by its address, whatever root it was reached from, so that `serve` on a database
//! and `run` on one of its tables share their marks. Several processes may have the file open.

mod store;

use std::collections::BTreeMap;
use std::path::Path;

use planner::facts::{CleanupFacts, CleanupSuccess, FailedFacts, MismatchFacts, TableFacts};
use sqlx::SqlitePool;
use sqlx::sqlite::SqliteConnection;

use self::store::{int, trouble, uint};
use crate::error::{Error, Result};
use crate::report::{JobEnd, JobReport};

/// Job results that are kept of one table, the newest.
pub const RESULTS_MAX: u64 = 1_000;
/// How long the result of a finished job is kept (SPEC section 7).
const RESULTS_KEPT_MS: u64 = 14 * 24 * 3_600_000;

/// Of every table, by its address.
#[derive(Clone, Debug)]
pub struct History {
    pool: SqlitePool,
    /// Where it is, for messages.
    place: String,
    /// A look at it changes nothing.
    writes: bool,
}

/// A finished job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobResult {
    /// Job type.
    pub job: String,
    /// How it ended: `done`, `superseded`, `busy` or `failed`.
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

/// What a row is about, its name, and its numbers.
pub(crate) type Remembered = (String, Option<String>, [Option<u64>; 4]);

impl Default for History {
    fn default() -> Self {
        Self { pool: store::in_memory(), place: "memory".into(), writes: true }
    }
}

impl History {
    /// Opens the history in the folder `dir`, and makes it where there is none.
    ///
    /// # Errors
    /// `Invalid` names a file that can't be written, is damaged, or was written by a newer Caretaker.
    pub async fn open(dir: &Path) -> Result<Self> {
        let (pool, place) = store::open(dir).await?;
        Ok(Self { pool, place, writes: true })
    }

    /// Opens the history in `dir` to look at it only; where there is none, an empty one.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub async fn look(dir: &Path) -> Result<Self> {
        match store::look(dir).await? {
            Some((pool, place)) => Ok(Self { pool, place, writes: false }),
            None => Ok(Self { writes: false, ..Self::default() }),
        }
    }

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
        for (what, name, [a, b, c, d]) in rows {
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
                _ => {}
            }
        }
        facts.cleanup = Some(cleanup);
        self.unindexed(uri, facts, &since, now_ms).await.map_err(|e| trouble(&self.place, e))
    }

    /// All that is remembered of a table, in one question: an evaluation asks it of every table.
    ///
    /// # Errors
    /// As [`Self::complete`].
    pub(crate) async fn remembered(&self, uri: &str) -> Result<Vec<Remembered>> {
        type Row = (String, Option<String>, Option<i64>, Option<i64>, Option<i64>, Option<i64>);
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT 'unindexed', index_name, since_ms, NULL, NULL, NULL FROM unindexed WHERE uri = ?1
             UNION ALL SELECT 'failing', job, times, last_at_ms, NULL, NULL FROM failing WHERE uri = ?1
             UNION ALL SELECT 'mismatch', job, at_ms, NULL, NULL, NULL FROM mismatch WHERE uri = ?1
             UNION ALL SELECT 'cleanup', NULL, start_version, finished_at_ms, recorded_version, failed_at_ms
                       FROM cleanup WHERE uri = ?1",
        )
        .bind(uri)
        .fetch_all(&self.pool)
        .await
        .map_err(|e| trouble(&self.place, e))?;
        Ok(rows.into_iter().map(|(what, name, a, b, c, d)| (what, name, [a, b, c, d].map(|n| n.map(uint)))).collect())
    }

    /// Remembers a job's end. A race that was lost is neither a failure nor a success, and only a
    /// success moves the marks of the last one.
    ///
    /// # Errors
    /// `Retry` or `Invalid` when the file can't be written; the job itself has ended all the same.
    pub async fn record(&self, uri: &str, job: &JobReport, now_ms: u64) -> Result<()> {
        let report = serde_json::to_string(job).map_err(|e| Error::Fatal(format!("can't write JSON: {e}")))?;
        self.recorded(uri, job, &report, now_ms).await.map_err(|e| trouble(&self.place, e))
    }

    /// The job that changed a table's answers, when that was found, and what it was; `None` where
    /// none has, or somebody has looked since.
    ///
    /// # Errors
    /// As [`Self::complete`].
    pub async fn mismatch(&self, uri: &str) -> Result<Option<(String, u64, String)>> {
        let row: Option<(String, i64, String)> = sqlx::query_as("SELECT job, at_ms, why FROM mismatch WHERE uri = ?")
            .bind(uri)
            .fetch_optional(&self.pool)
            .await
            .map_err(|e| trouble(&self.place, e))?;
        Ok(row.map(|(job, at, why)| (job, uint(at), why)))
    }

    /// Somebody has looked at the table: its jobs go on.
    ///
    /// # Errors
    /// As [`Self::record`].
    pub async fn accept(&self, uri: &str) -> Result<()> {
        let gone = sqlx::query("DELETE FROM mismatch WHERE uri = ?").bind(uri).execute(&self.pool).await;
        gone.map(drop).map_err(|e| trouble(&self.place, e))
    }

    /// The newest results of a table, the newest first.
    ///
    /// # Errors
    /// As [`Self::complete`].
    pub async fn results(&self, uri: &str, most: u64) -> Result<Vec<JobResult>> {
        let rows: Vec<(String, String, i64, String)> = sqlx::query_as(
            "SELECT job, outcome, ended_at_ms, report FROM result WHERE uri = ? ORDER BY id DESC LIMIT ?",
        )
        .bind(uri)
        .bind(int(most))
        .fetch_all(&self.pool)
        .await
        .map_err(|e| trouble(&self.place, e))?;
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
            "SELECT job, ended_at_ms FROM result WHERE uri = ? AND outcome = 'done' ORDER BY id DESC LIMIT 1",
        )
        .bind(uri)
        .fetch_optional(&self.pool)
        .await
        .map_err(|e| trouble(&self.place, e))?;
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
            let mut tx = self.pool.begin_with("BEGIN IMMEDIATE").await?;
            for name in over {
                let gone = sqlx::query("DELETE FROM unindexed WHERE uri = ? AND index_name = ?");
                gone.bind(uri).bind(name).execute(&mut *tx).await?;
            }
            for name in new {
                let seen = sqlx::query("INSERT OR IGNORE INTO unindexed (uri, index_name, since_ms) VALUES (?, ?, ?)");
                seen.bind(uri).bind(name).bind(int(now_ms)).execute(&mut *tx).await?;
            }
            tx.commit().await?;
        }
        for index in facts.indexes.iter_mut().filter(|index| index.unindexed_rows != Some(0)) {
            index.unindexed_since_ms = Some(known.get(&index.name).copied().unwrap_or(now_ms));
        }
        Ok(())
    }

    async fn recorded(&self, uri: &str, job: &JobReport, report: &str, now_ms: u64) -> sqlx::Result<()> {
        let mut tx = self.pool.begin_with("BEGIN IMMEDIATE").await?;
        sqlx::query("INSERT INTO result (uri, job, outcome, ended_at_ms, millis, report) VALUES (?, ?, ?, ?, ?, ?)")
            .bind(uri)
            .bind(&job.job)
            .bind(job.end.outcome())
            .bind(int(now_ms))
            .bind(int(job.millis))
            .bind(report)
            .execute(&mut *tx)
            .await?;
        match &job.end {
            JobEnd::Superseded { .. } | JobEnd::Busy { .. } => {}
            JobEnd::Failed { why, .. } => {
                count_failure(&mut tx, uri, &job.job, now_ms).await?;
                if job.end.is_mismatch() {
                    // The first one counts: what came after may be its consequence.
                    sqlx::query("INSERT OR IGNORE INTO mismatch (uri, job, at_ms, why) VALUES (?, ?, ?, ?)")
                        .bind(uri)
                        .bind(&job.job)
                        .bind(int(now_ms))
                        .bind(why)
                        .execute(&mut *tx)
                        .await?;
                }
            }
            done => {
                let over = sqlx::query("DELETE FROM failing WHERE uri = ? AND job = ?");
                over.bind(uri).bind(&job.job).execute(&mut *tx).await?;
                if let JobEnd::Cleaned(report) = done {
                    move_marks(&mut tx, uri, report.start_version, report.end_version, now_ms).await?;
                }
            }
        }
        forget_old(&mut tx, uri, now_ms).await?;
        tx.commit().await
    }
}

async fn count_failure(tx: &mut SqliteConnection, uri: &str, job: &str, now_ms: u64) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO failing (uri, job, times, last_at_ms) VALUES (?1, ?2, 1, ?3)
         ON CONFLICT (uri, job) DO UPDATE SET times = times + 1, last_at_ms = ?3",
    )
    .bind(uri)
    .bind(job)
    .bind(int(now_ms))
    .execute(&mut *tx)
    .await?;
    if job == "cleanup" {
        sqlx::query(
            "INSERT INTO cleanup (uri, failed_at_ms) VALUES (?1, ?2)
             ON CONFLICT (uri) DO UPDATE SET failed_at_ms = ?2",
        )
        .bind(uri)
        .bind(int(now_ms))
        .execute(&mut *tx)
        .await?;
    }
    Ok(())
}

async fn move_marks(tx: &mut SqliteConnection, uri: &str, start: u64, end: u64, now_ms: u64) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO cleanup (uri, start_version, finished_at_ms, recorded_version) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (uri) DO UPDATE SET start_version = ?2, finished_at_ms = ?3, recorded_version = ?4",
    )
    .bind(uri)
    .bind(int(start))
    .bind(int(now_ms))
    .bind(int(end))
    .execute(&mut *tx)
    .await?;
    Ok(())
}

async fn forget_old(tx: &mut SqliteConnection, uri: &str, now_ms: u64) -> sqlx::Result<()> {
    let old = sqlx::query("DELETE FROM result WHERE ended_at_ms < ?");
    old.bind(int(now_ms.saturating_sub(RESULTS_KEPT_MS))).execute(&mut *tx).await?;
    sqlx::query(
        "DELETE FROM result WHERE uri = ?1
         AND id <= (SELECT id FROM result WHERE uri = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
    )
    .bind(uri)
    .bind(int(RESULTS_MAX))
    .execute(&mut *tx)
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests;
