//! Work goes out to workers, and stays theirs for as long as they are heard of.

use futures::FutureExt;
use sqlx::{AnyConnection, Row};
use uuid::Uuid;

use super::job::{COLUMNS, Job};
use super::store::{int, uint};
use super::{DEATHS_MAX, LEASE, NewJob, Queued, Registry, Ring};
use crate::error::{Error, Result};

/// How long a job that needs more memory than a worker has left lets smaller ones pass, milliseconds. Then the
/// worker takes nothing that comes behind it until there is room, or another has it.
const PATIENCE_MS: i64 = 60_000;
/// How long a job waits behind more urgent ones, milliseconds. Then it is as urgent as any.
const TURN_MS: i64 = 600_000;
/// Jobs of one table that one pass takes along.
const TOGETHER_MAX: i64 = 255;
/// Claims that another made first until a worker waits for the next event.
const CLAIMS_LOST_MAX: u32 = 8;
/// Dead workers' jobs put back in one statement.
const REAPED_AT_ONCE: i64 = 256;

/// What a worker can take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// The worker. A name is of one process only.
    pub worker: String,
    /// Memory it has left, bytes.
    pub free_bytes: u64,
    /// It takes folds.
    pub folds: bool,
    /// It takes what is for anybody, and not only what is for it.
    pub any: bool,
    /// It takes jobs of tables whose address begins so.
    pub root: String,
    /// Only parts of this job.
    pub parent: Option<String>,
}

/// Jobs that are this worker's, all on one table and of one type.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The jobs: one, or the folds of one pass.
    pub jobs: Vec<Job>,
    /// Proves it.
    pub lease: String,
}

/// The answer to a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beat {
    /// Go on.
    On,
    /// Stop at the next safe point: somebody asked for it.
    Stop,
    /// The jobs are others' now.
    Lost,
}

impl Registry {
    /// Takes the most urgent job that fits, and with a fold those of the table's other shards, up to
    /// `pass_bytes`.
    ///
    /// # Errors
    /// `Retry` or `Away` when the registry does not answer.
    pub async fn claim(&self, want: &Want, pass_bytes: u64) -> Result<Option<Claim>> {
        let lease = Uuid::new_v4().to_string();
        for _ in 0..CLAIMS_LOST_MAX {
            match self.store.timely(self.claim_one(want, &lease)).await {
                Ok(Some(job)) => {
                    let mut jobs = vec![job];
                    if jobs[0].kind == super::job::FOLD {
                        let more = self.along(want, &lease, &jobs[0], pass_bytes);
                        let more = self.store.once(more).await?;
                        jobs.extend(more);
                    }
                    return Ok(Some(Claim { jobs, lease }));
                }
                Ok(None) => return Ok(None),
                // Another took the lane at the same moment.
                Err(error) if error.as_database_error().is_some_and(|e| e.is_unique_violation()) => {}
                Err(error) => return Err(self.store.trouble(error)),
            }
        }
        Ok(None)
    }

    async fn claim_one(&self, want: &Want, lease: &str) -> sqlx::Result<Option<Job>> {
        let sql = self.store.sql(&format!(
            "UPDATE caretaker_job SET state = 'running', lease = $1, worker = $2, attempt = attempt + 1,
                 started_ms = {{now}}, heartbeat_ms = {{now}}, holds = lane, ask = NULL,
                 stage = NULL, rows_done = 0, rows_total = 0
             WHERE id = (
                 SELECT j.id FROM caretaker_job AS j
                 WHERE j.state = 'pending' AND j.run_at_ms <= {{now}}
                 AND (j.need_bytes <= $3 OR j.run_at_ms < {{now}} - $8)
                 AND (j.only_worker = $2 OR ($4 = 1 AND j.only_worker IS NULL))
                 AND ($5 = 1 OR j.kind <> '{fold}')
                 AND substr(j.uri, 1, length($6)) = $6
                 AND ($7 = '' OR j.parent = $7)
                 AND NOT EXISTS (SELECT 1 FROM caretaker_job AS r WHERE r.holds = j.lane)
                 AND (j.kind LIKE 'memwal_catchup_%'
                      OR NOT EXISTS (SELECT 1 FROM caretaker_mismatch AS m WHERE m.uri = j.uri))
                 ORDER BY j.priority, j.id LIMIT 1 {{skip}})
             AND need_bytes <= $3
             RETURNING {COLUMNS}",
            fold = super::job::FOLD
        ));
        let mut tx = self.store.begin().await?;
        let job: Option<Job> = sqlx::query_as(&sql)
            .bind(lease)
            .bind(&want.worker)
            .bind(int(want.free_bytes))
            .bind(i64::from(want.any))
            .bind(i64::from(want.folds))
            .bind(&want.root)
            .bind(want.parent.as_deref().unwrap_or_default())
            .bind(PATIENCE_MS)
            .fetch_optional(&mut *tx)
            .await?;
        if let Some(job) = &job {
            self.event(&mut tx, &job.id, "claim", None, None).await?;
        }
        tx.commit().await?;
        Ok(job)
    }

    /// The folds of the table's other shards that wait too: one pass and one commit does for all.
    async fn along(&self, want: &Want, lease: &str, first: &Job, pass_bytes: u64) -> sqlx::Result<Vec<Job>> {
        let mut tx = self.store.begin().await?;
        let sql = self.store.sql(
            "SELECT id, size_bytes FROM caretaker_job
             WHERE state = 'pending' AND kind = $1 AND uri = $2 AND run_at_ms <= {now}
             AND (only_worker = $3 OR ($4 = 1 AND only_worker IS NULL))
             ORDER BY id LIMIT $5 {skip}",
        );
        let rows = sqlx::query(&sql)
            .bind(&first.kind)
            .bind(&first.uri)
            .bind(&want.worker)
            .bind(i64::from(want.any))
            .bind(TOGETHER_MAX)
            .fetch_all(&mut *tx)
            .await?;
        let mut left = pass_bytes.saturating_sub(first.size_bytes);
        let mut jobs = Vec::new();
        let sql = self.store.sql(&format!(
            "UPDATE caretaker_job SET state = 'running', lease = $1, worker = $2, attempt = attempt + 1,
                 started_ms = {{now}}, heartbeat_ms = {{now}}, ask = NULL,
                 stage = NULL, rows_done = 0, rows_total = 0
             WHERE id = $3 AND state = 'pending' RETURNING {COLUMNS}"
        ));
        for row in rows {
            let (id, size): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
            let Some(rest) = left.checked_sub(uint(size)) else { continue };
            let job: Option<Job> =
                sqlx::query_as(&sql).bind(lease).bind(&want.worker).bind(id).fetch_optional(&mut *tx).await?;
            let Some(job) = job else { continue };
            left = rest;
            self.event(&mut tx, &job.id, "claim", None, None).await?;
            jobs.push(job);
        }
        tx.commit().await?;
        Ok(jobs)
    }

    /// Begins jobs here and now, whatever else runs on the table: for work that a person asked this
    /// process for. Those of which an equal one is open are left out, each with who has it.
    ///
    /// # Errors
    /// `Retry` or `Away` when the registry does not answer.
    pub async fn begin(&self, jobs: Vec<NewJob>, worker: &str) -> Result<(Claim, Vec<(NewJob, Error)>)> {
        self.processes.enter(worker)?;
        // An equal one whose worker died is nobody's.
        self.reap().await?;
        let lease = Uuid::new_v4().to_string();
        let (mut begun, mut refused) = (Vec::new(), Vec::new());
        for job in jobs {
            let here = NewJob { only_worker: Some(worker.to_string()), lane: None, ..job.clone() };
            match self.enqueue(vec![here], 0).await?.first() {
                Some(Queued::Yes(id)) => begun.extend(self.start(id, worker, &lease).await?),
                _ => refused.push((job.clone(), self.busy(&job.key).await?)),
            }
        }
        Ok((Claim { jobs: begun, lease }, refused))
    }

    async fn start(&self, id: &str, worker: &str, lease: &str) -> Result<Option<Job>> {
        let sql = self.store.sql(&format!(
            "UPDATE caretaker_job SET state = 'running', lease = $1, worker = $2, attempt = 1, started_ms = {{now}},
                 heartbeat_ms = {{now}} WHERE id = $3 AND state = 'pending' RETURNING {COLUMNS}"
        ));
        let begun = self.store.again(|| {
            async { sqlx::query_as(&sql).bind(lease).bind(worker).bind(id).fetch_optional(&self.store.pool()).await }
                .boxed()
        });
        begun.await
    }

    /// Who has the open job of this key.
    async fn busy(&self, key: &str) -> Result<Error> {
        let sql = "SELECT coalesce(worker, 'no worker yet'), state, created_ms FROM caretaker_job \
                   WHERE open_key = $1 AND ended_ms IS NULL";
        let open = self
            .store
            .again(|| async { sqlx::query_as(sql).bind(key).fetch_optional(&self.store.pool()).await }.boxed());
        let (holder, state, since): (String, String, i64) = open.await?.unwrap_or_default();
        Ok(Error::Busy(format!(
            "the same job is {state} already ({holder}, since {}); it is not queued: try again when it has ended",
            crate::env::show(uint(since))
        )))
    }

    /// Whether the jobs of a lease are its holder's still.
    ///
    /// # Errors
    /// `Retry` or `Away` when the registry does not answer.
    pub async fn holds(&self, lease: &str) -> Result<bool> {
        let sql = "SELECT count(*) FROM caretaker_job WHERE lease = $1 AND state = 'running'";
        let pool = self.store.pool();
        let held: i64 = self.store.once(sqlx::query_scalar(sql).bind(lease).fetch_one(&pool)).await?;
        Ok(held > 0)
    }

    /// Says that a worker is at it still, and how far it is.
    ///
    /// # Errors
    /// `Retry` or `Away` when the registry does not answer.
    pub async fn beat(&self, lease: &str, stage: &str, done: u64, total: u64) -> Result<Beat> {
        let sql = self.store.sql(
            "UPDATE caretaker_job SET heartbeat_ms = {now}, stage = $2, rows_done = $3, rows_total = $4
             WHERE lease = $1 AND state = 'running' RETURNING coalesce(ask, '')",
        );
        let pool = self.store.pool();
        let beat = sqlx::query_scalar(&sql).bind(lease).bind(stage).bind(int(done)).bind(int(total));
        let asked: Vec<String> = self.store.once(beat.fetch_all(&pool)).await?;
        Ok(match asked.iter().any(|ask| !ask.is_empty()) {
            _ if asked.is_empty() => Beat::Lost,
            true => Beat::Stop,
            false => Beat::On,
        })
    }

    /// Puts jobs back whose workers have died. Those that keep killing their workers have failed.
    /// Anybody may do this, and any number at once.
    ///
    /// # Errors
    /// `Retry` or `Away` when the registry does not answer.
    pub async fn reap(&self) -> Result<u64> {
        let dead: Vec<String> =
            self.processes.names().into_iter().filter(|name| self.processes.is_dead(name)).collect();
        let reaped = self.store.again(|| {
            async {
                let late: i64 = sqlx::query_scalar(&self.store.sql(
                    "SELECT count(*) FROM caretaker_job WHERE state = 'running' AND heartbeat_ms < {now} - $1
                 OR state = 'pending' AND only_worker IS NOT NULL AND created_ms < {now} - $1",
                ))
                .bind(int(LEASE.as_millis() as u64))
                .fetch_one(&self.store.pool())
                .await?;
                if late == 0 && dead.is_empty() {
                    return Ok(Vec::new());
                }
                let mut tx = self.store.begin().await?;
                for name in &dead {
                    self.bury(&mut tx, name).await?;
                }
                let reaped = self.put_back(&mut tx).await?;
                tx.commit().await?;
                Ok(reaped)
            }
            .boxed()
        });
        let reaped: Vec<Job> = reaped.await?;
        dead.iter().for_each(|name| self.processes.forget(name));
        for job in &reaped {
            tracing::warn!(
                job = job.id,
                kind = job.kind,
                table = job.table,
                "its worker is gone; it is {}",
                job.state.word()
            );
            self.bell.ring(if job.state.is_end() { Ring::Ended(job.uri.clone()) } else { Ring::Waiting });
        }
        Ok(reaped.len() as u64)
    }

    /// Nobody waits for ever because more urgent jobs keep coming.
    ///
    /// # Errors
    /// `Retry` or `Away` when the registry does not answer.
    pub async fn promote(&self) -> Result<u64> {
        let sql = self.store.sql(
            "UPDATE caretaker_job SET priority = 0 WHERE state = 'pending' AND priority > 0 AND run_at_ms < {now} - $1",
        );
        let promoted = sqlx::query(&sql).bind(TURN_MS).execute(&self.store.pool()).await;
        promoted.map(|done| done.rows_affected()).map_err(|e| self.store.trouble(e))
    }

    /// A process of this machine that is certainly gone.
    async fn bury(&self, tx: &mut AnyConnection, name: &str) -> sqlx::Result<()> {
        let late = "UPDATE caretaker_job SET heartbeat_ms = 0 WHERE state = 'running' AND worker = $1";
        sqlx::query(late).bind(name).execute(&mut *tx).await?;
        sqlx::query("DELETE FROM caretaker_member WHERE name = $1").bind(name).execute(&mut *tx).await?;
        Ok(())
    }

    async fn put_back(&self, tx: &mut AnyConnection) -> sqlx::Result<Vec<Job>> {
        let sql = self.store.sql(&format!(
            "UPDATE caretaker_job SET lease = NULL, holds = NULL, heartbeat_ms = NULL, run_at_ms = {{now}},
                 state = CASE WHEN ask = 'cancel' OR only_worker IS NOT NULL THEN 'cancelled'
                              WHEN ask = 'pause' THEN 'paused'
                              WHEN attempt >= $2 THEN 'failed' ELSE 'pending' END,
                 outcome = CASE WHEN ask = 'cancel' THEN 'cancelled' WHEN only_worker IS NOT NULL THEN 'lost'
                                WHEN ask = 'pause' THEN NULL WHEN attempt >= $2 THEN 'failed' END,
                 message = CASE WHEN attempt >= $2 THEN 'its worker died, again and again' END,
                 retryable = 0, phase = stage,
                 ended_ms = CASE WHEN ask = 'cancel' OR only_worker IS NOT NULL
                                      OR (coalesce(ask, '') <> 'pause' AND attempt >= $2) THEN {{now}} END,
                 ask = NULL
             WHERE id IN (SELECT id FROM caretaker_job WHERE state = 'running' AND heartbeat_ms < {{now}} - $1
                          ORDER BY id LIMIT $3 {{skip}})
             RETURNING {COLUMNS}"
        ));
        let reaped: Vec<Job> = sqlx::query_as(&sql)
            .bind(int(LEASE.as_millis() as u64))
            .bind(DEATHS_MAX)
            .bind(REAPED_AT_ONCE)
            .fetch_all(&mut *tx)
            .await?;
        for job in &reaped {
            let word = if job.state.is_end() { job.state.word() } else { "lost" };
            self.event(tx, &job.id, word, None, Some("its worker is gone")).await?;
            if job.state.is_end() {
                self.end_parts(tx, &job.id).await?;
            }
            if job.state == super::State::Failed && job.parent.is_none() {
                let now = self.store.now(tx).await?;
                super::marks::count_failure(tx, &job.uri, &job.kind, uint(now)).await?;
            }
            let ring = if job.state.is_end() { Ring::Ended(job.uri.clone()) } else { Ring::Waiting };
            self.bell.tell(tx, &ring).await?;
        }
        // What only a worker that is gone could have taken.
        let orphans = self.store.sql(
            "UPDATE caretaker_job SET state = 'cancelled', outcome = 'lost', ended_ms = {now}
             WHERE state = 'pending' AND only_worker IS NOT NULL AND created_ms < {now} - $1
             AND NOT EXISTS (SELECT 1 FROM caretaker_member AS m WHERE m.name = only_worker AND m.seen_ms >= {now} - $1)",
        );
        sqlx::query(&orphans).bind(int(LEASE.as_millis() as u64)).execute(&mut *tx).await?;
        Ok(reaped)
    }
}
