//! Work comes in. An equal job that is open already is refused by the store (R2.12, report JOB-09).

use futures::FutureExt;
use sqlx::AnyConnection;

use super::job::new_id;
use super::store::int;
use super::{NewJob, Registry, Ring};
use crate::error::Result;

/// What became of work that was handed in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Queued {
    /// It waits under this id.
    Yes(String),
    /// An equal job is open.
    Open,
    /// The same went well for the same state of the table: it would change nothing.
    Fruitless,
}

impl Registry {
    /// Hands jobs in, all or none. What went well within `same_ms` for the state that a job was planned
    /// for is not taken again; 0: whatever it is, it is taken.
    ///
    /// # Errors
    /// `Retry` or `Away` when the registry does not answer: then it may have taken them all the same.
    pub async fn enqueue(&self, mut jobs: Vec<NewJob>, same_ms: u64) -> Result<Vec<Queued>> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        // In one order, so that no two of us wait for each other.
        jobs.sort_by(|a, b| a.key.cmp(&b.key));
        let queued = self.store.again(|| {
            async {
                let mut tx = self.store.begin().await?;
                let mut queued = Vec::with_capacity(jobs.len());
                for job in &jobs {
                    queued.push(self.insert(&mut tx, job, same_ms).await?);
                }
                self.bell.tell(&mut tx, &Ring::Waiting).await?;
                tx.commit().await?;
                Ok(queued)
            }
            .boxed()
        });
        let queued = queued.await?;
        self.bell.ring(Ring::Waiting);
        Ok(queued)
    }

    async fn insert(&self, tx: &mut AnyConnection, job: &NewJob, same_ms: u64) -> sqlx::Result<Queued> {
        let id = new_id();
        let sql = self.store.sql(
            "INSERT INTO caretaker_job (id, parent, kind, table_name, uri, shard, open_key, lane, only_worker, state, \
                 priority, spec, seen, need_bytes, size_bytes, policy, created_ms, run_at_ms, attempt, rows_done,
                 rows_total)
             SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, 'pending', $10, $11, $12, $13, $14, $17, {now}, {now} + $15, 0, 0, 0
             WHERE NOT EXISTS (
                 SELECT 1 FROM caretaker_job AS o WHERE o.open_key = $7 AND o.ended_ms > {now} - $16
                 AND o.outcome = 'done' AND o.seen = $12 AND o.seen <> '')
             ON CONFLICT DO NOTHING",
        );
        let inserted = sqlx::query(&sql)
            .bind(&id)
            .bind(&job.parent)
            .bind(&job.kind)
            .bind(&job.table.name)
            .bind(&job.table.uri)
            .bind(&job.shard)
            .bind(&job.key)
            .bind(&job.lane)
            .bind(&job.only_worker)
            .bind(job.priority)
            .bind(&job.spec)
            .bind(&job.seen)
            .bind(int(job.need_bytes))
            .bind(int(job.size_bytes))
            .bind(int(job.delay_ms))
            .bind(int(same_ms))
            .bind(&job.policy)
            .execute(&mut *tx)
            .await?;
        if inserted.rows_affected() == 1 {
            self.event(tx, &id, "created", None, None).await?;
            return Ok(Queued::Yes(id));
        }
        let open = "SELECT count(*) FROM caretaker_job WHERE open_key = $1 AND ended_ms IS NULL";
        let open: i64 = sqlx::query_scalar(open).bind(&job.key).fetch_one(tx).await?;
        Ok(if open > 0 { Queued::Open } else { Queued::Fruitless })
    }

    /// Writes down that something happened to a job.
    pub(super) async fn event(
        &self,
        tx: &mut AnyConnection,
        job: &str,
        state: &str,
        worker: Option<&str>,
        message: Option<&str>,
    ) -> sqlx::Result<()> {
        let sql = self.store.sql(
            "INSERT INTO caretaker_event (job, at_ms, state, worker, message, rows_done)
             SELECT id, {now}, $2, coalesce($3, worker), $4, rows_done FROM caretaker_job WHERE id = $1",
        );
        sqlx::query(&sql).bind(job).bind(state).bind(worker).bind(message).execute(tx).await.map(drop)
    }
}
