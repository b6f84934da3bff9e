//! Finished jobs leave the list after a while, and the archive after a longer one.

use super::Registry;
use super::job::{COLUMNS, Job};
use super::store::int;
use crate::error::{Error, Result};
use futures::FutureExt;

/// How long a finished job stays listed (SPEC section 7).
pub(super) const KEPT_MS: u64 = 14 * 24 * 3_600_000;
/// How long it stays in the archive, and how long a silent member is remembered.
const ARCHIVED_MS: u64 = 90 * 24 * 3_600_000;
/// Jobs that leave in one transaction.
const AT_ONCE: i64 = 500;

impl Registry {
    /// Moves finished jobs that are older than [`KEPT_MS`] into the archive, some of them, and says how
    /// many. Any number of processes may do this at once.
    ///
    /// # Errors
    /// `Retry` or `Away` when the registry does not answer.
    pub async fn archive(&self) -> Result<u64> {
        let select = self.store.sql(&format!(
            "SELECT {COLUMNS} FROM caretaker_job WHERE ended_ms < {{now}} - $1 ORDER BY ended_ms LIMIT $2 {{skip}}"
        ));
        let forget = self.store.sql("DELETE FROM caretaker_archive WHERE ended_ms < {now} - $1");
        let strangers = self.store.sql("DELETE FROM caretaker_member WHERE seen_ms < {now} - $1");
        let moved = self.store.again(|| {
            async {
                let mut tx = self.store.begin().await?;
                let old: Vec<Job> =
                    sqlx::query_as(&select).bind(int(KEPT_MS)).bind(AT_ONCE).fetch_all(&mut *tx).await?;
                for job in &old {
                    let text = serde_json::to_string(job).map_err(|e| sqlx::Error::Encode(e.into()))?;
                    let keep =
                        "INSERT INTO caretaker_archive (id, ended_ms, job) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
                    let ended = int(job.ended_ms.unwrap_or(0));
                    sqlx::query(keep).bind(&job.id).bind(ended).bind(text).execute(&mut *tx).await?;
                    sqlx::query("DELETE FROM caretaker_event WHERE job = $1").bind(&job.id).execute(&mut *tx).await?;
                    sqlx::query("DELETE FROM caretaker_job WHERE id = $1").bind(&job.id).execute(&mut *tx).await?;
                }
                sqlx::query(&forget).bind(int(ARCHIVED_MS)).execute(&mut *tx).await?;
                sqlx::query(&strangers).bind(int(ARCHIVED_MS)).execute(&mut *tx).await?;
                tx.commit().await?;
                Ok(old.len() as u64)
            }
            .boxed()
        });
        moved.await
    }

    /// A job of the archive, as it was listed.
    ///
    /// # Errors
    /// `Retry` or `Away` when the registry does not answer, `Fatal` where what is there is no JSON.
    pub async fn archived(&self, id: &str) -> Result<Option<serde_json::Value>> {
        let text: Option<String> = self
            .store
            .again(|| {
                async {
                    let query = sqlx::query_scalar("SELECT job FROM caretaker_archive WHERE id = $1");
                    query.bind(id).fetch_optional(&self.store.pool()).await
                }
                .boxed()
            })
            .await?;
        let read = |text: String| {
            serde_json::from_str(&text).map_err(|e| Error::Fatal(format!("job `{id}` of the archive: {e}")))
        };
        text.map(read).transpose()
    }
}
