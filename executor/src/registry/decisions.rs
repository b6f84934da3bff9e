//! What was decided and from what, and the plugins that did.

use futures::FutureExt;
use sqlx::any::AnyRow;
use sqlx::{FromRow, Row};

use super::Registry;
use super::job::new_id;
use super::store::{int, uint};
use crate::decide::Plugin;
use crate::error::Result;

/// Decisions of one table that are kept, whatever room there is.
const OF_TABLE_MAX: i64 = 200;
/// Plugins that are kept though no decision names them.
const PLUGINS_MAX: i64 = 16;
/// Records that a registry in memory has room for, bytes.
const IN_MEMORY_MAX: u64 = 16 << 20;
/// Decisions of one page.
pub const DECISIONS_PAGE: usize = 100;

/// A decision as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Decision {
    /// Orders decisions by the time they were made (UUID version 7).
    pub id: String,
    /// Where the table lies.
    pub uri: String,
    /// Table, for people.
    pub table: String,
    /// Its version.
    pub version: u64,
    /// When, milliseconds since the epoch.
    pub at_ms: u64,
    /// Jobs that were due.
    pub jobs: u64,
    /// SHA-256 of the plan, hexadecimal.
    pub plan_sha256: String,
    /// Who decided: `built-in <version>`, or the SHA-256 of a plugin.
    pub planner: String,
    /// Digest of the planner and the policy together.
    pub policy: String,
    /// Why the active planner did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fell_back: Option<String>,
    /// SHA-256 of the candidate that was asked, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidate: Option<String>,
    /// What it said: `same`, `differs` or `failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidate_said: Option<String>,
    /// Facts, policy and plan, compressed; empty in lists.
    #[serde(skip)]
    pub body: Vec<u8>,
}

/// A plugin that was loaded.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct KeptPlugin {
    /// SHA-256 of its file.
    pub sha256: String,
    /// Its own name.
    pub name: String,
    /// Its own version.
    pub version: String,
    /// Bytes of its file.
    pub bytes: u64,
    /// When it was last loaded, milliseconds since the epoch.
    pub loaded_ms: u64,
}

/// Which decisions are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    /// Of this table.
    pub table: Option<String>,
    /// Not before, milliseconds since the epoch.
    pub from_ms: u64,
    /// Not after; 0: whenever.
    pub to_ms: u64,
    /// Only where the candidate said something else, or failed.
    pub differing: bool,
    /// After this id, in ascending order.
    pub after: String,
}

const COLUMNS: &str = "id, uri, table_name, version, at_ms, jobs, plan_sha256, planner, policy, fell_back, candidate, \
                       candidate_said, body";

impl Registry {
    pub(crate) async fn keep_decisions(&self, decisions: &[Decision]) -> Result<()> {
        let ids: Vec<String> = decisions.iter().map(|_| new_id()).collect();
        let insert = format!(
            "INSERT INTO caretaker_decision ({COLUMNS}, bytes)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) ON CONFLICT DO NOTHING"
        );
        let forget = "DELETE FROM caretaker_decision WHERE uri = $1 AND id <= (SELECT id FROM caretaker_decision
             WHERE uri = $1 ORDER BY id DESC LIMIT 1 OFFSET $2)";
        let mut uris: Vec<&str> = decisions.iter().map(|decision| decision.uri.as_str()).collect();
        uris.sort_unstable();
        uris.dedup();
        let kept = self.store.again(|| {
            async {
                let mut tx = self.store.begin().await?;
                for (id, one) in ids.iter().zip(decisions) {
                    let row = sqlx::query(&insert).bind(id).bind(&one.uri).bind(&one.table).bind(int(one.version));
                    let row = row.bind(int(one.at_ms)).bind(int(one.jobs)).bind(&one.plan_sha256).bind(&one.planner);
                    let row = row.bind(&one.policy).bind(&one.fell_back).bind(&one.candidate);
                    let row = row.bind(&one.candidate_said).bind(&one.body).bind(int(one.body.len() as u64));
                    row.execute(&mut *tx).await?;
                }
                for uri in &uris {
                    sqlx::query(forget).bind(*uri).bind(OF_TABLE_MAX).execute(&mut *tx).await?;
                }
                tx.commit().await
            }
            .boxed()
        });
        kept.await
    }

    /// Forgets the oldest decisions until all are `bytes` at most, and plugins that nothing names.
    pub(crate) async fn trim_decisions(&self, bytes: u64) -> Result<()> {
        let most = int(if self.is_in_memory() { bytes.min(IN_MEMORY_MAX) } else { bytes });
        let held = "SELECT cast(coalesce(sum(bytes), 0) AS bigint), count(*) FROM caretaker_decision";
        let forget = "DELETE FROM caretaker_decision WHERE id <= (SELECT id FROM caretaker_decision
             ORDER BY id LIMIT 1 OFFSET $1)";
        let strangers = "DELETE FROM caretaker_plugin WHERE sha256 NOT IN (
                 SELECT planner FROM caretaker_decision
                 UNION SELECT candidate FROM caretaker_decision WHERE candidate IS NOT NULL)
             AND sha256 NOT IN (SELECT sha256 FROM caretaker_plugin ORDER BY loaded_ms DESC, sha256 LIMIT $1)";
        let trimmed = self.store.again(|| {
            async {
                let mut connection = self.store.pool().acquire().await?;
                loop {
                    let (sum, count): (i64, i64) = sqlx::query_as(held).fetch_one(&mut *connection).await?;
                    if sum <= most || count == 0 {
                        break;
                    }
                    // A share at a time: of what size they are only their sum is known.
                    sqlx::query(forget).bind((count / 8).min(count - 1)).execute(&mut *connection).await?;
                }
                sqlx::query(strangers).bind(PLUGINS_MAX).execute(&mut *connection).await.map(drop)
            }
            .boxed()
        });
        trimmed.await
    }

    /// A decision, with what it was made from.
    ///
    /// # Errors
    /// `Retry` or `Away` when the registry does not answer.
    pub async fn decision(&self, id: &str) -> Result<Option<Decision>> {
        let select = format!("SELECT {COLUMNS} FROM caretaker_decision WHERE id = $1");
        let asked = || {
            let select = &select;
            async move { sqlx::query_as(select).bind(id).fetch_optional(&self.store.pool()).await }.boxed()
        };
        self.store.again(asked).await
    }

    /// A page of decisions, the oldest first, with what they were made from.
    ///
    /// # Errors
    /// As [`Self::decision`].
    pub async fn decisions(&self, wanted: &Decisions) -> Result<Vec<Decision>> {
        let select = format!(
            "SELECT {COLUMNS} FROM caretaker_decision WHERE id > $1 AND ($2 = '' OR table_name = $2)
             AND at_ms >= $3 AND ($4 = 0 OR at_ms <= $4) AND ($5 = 0 OR candidate_said IN ('differs', 'failed'))
             ORDER BY id LIMIT {DECISIONS_PAGE}"
        );
        let asked = || {
            let select = &select;
            async move {
                let query = sqlx::query_as(select).bind(&wanted.after).bind(wanted.table.clone().unwrap_or_default());
                let query = query.bind(int(wanted.from_ms)).bind(int(wanted.to_ms)).bind(i64::from(wanted.differing));
                query.fetch_all(&self.store.pool()).await
            }
            .boxed()
        };
        self.store.again(asked).await
    }

    pub(crate) async fn keep_plugin(&self, plugin: &Plugin) -> Result<()> {
        let insert = self.store.sql(
            "INSERT INTO caretaker_plugin (sha256, name, version, file, bytes, loaded_ms)
             VALUES ($1, $2, $3, $4, $5, {now}) ON CONFLICT (sha256) DO UPDATE SET loaded_ms = {now}",
        );
        let described = plugin.planner.description();
        let kept = self.store.again(|| {
            let row = sqlx::query(&insert).bind(&plugin.sha256).bind(&described.name).bind(&described.version);
            let row = row.bind(&plugin.bytes).bind(int(plugin.bytes.len() as u64));
            async { row.execute(&self.store.pool()).await.map(drop) }.boxed()
        });
        kept.await
    }

    /// The file of a plugin that was loaded once.
    ///
    /// # Errors
    /// As [`Self::decision`].
    pub async fn plugin(&self, sha256: &str) -> Result<Option<Vec<u8>>> {
        let select = "SELECT file FROM caretaker_plugin WHERE sha256 = $1";
        let asked =
            || async { sqlx::query_scalar(select).bind(sha256).fetch_optional(&self.store.pool()).await }.boxed();
        self.store.again(asked).await
    }

    /// The plugins that were loaded, the newest first.
    ///
    /// # Errors
    /// As [`Self::decision`].
    pub async fn plugins(&self) -> Result<Vec<KeptPlugin>> {
        let select =
            "SELECT sha256, name, version, bytes, loaded_ms FROM caretaker_plugin ORDER BY loaded_ms DESC, sha256";
        let asked = || async { sqlx::query_as(select).fetch_all(&self.store.pool()).await }.boxed();
        self.store.again(asked).await
    }
}

impl FromRow<'_, AnyRow> for Decision {
    fn from_row(row: &AnyRow) -> sqlx::Result<Self> {
        let number = |name: &str| row.try_get::<i64, _>(name).map(uint);
        Ok(Self {
            id: row.try_get("id")?,
            uri: row.try_get("uri")?,
            table: row.try_get("table_name")?,
            version: number("version")?,
            at_ms: number("at_ms")?,
            jobs: number("jobs")?,
            plan_sha256: row.try_get("plan_sha256")?,
            planner: row.try_get("planner")?,
            policy: row.try_get("policy")?,
            fell_back: row.try_get("fell_back")?,
            candidate: row.try_get("candidate")?,
            candidate_said: row.try_get("candidate_said")?,
            body: row.try_get("body")?,
        })
    }
}

impl FromRow<'_, AnyRow> for KeptPlugin {
    fn from_row(row: &AnyRow) -> sqlx::Result<Self> {
        let number = |name: &str| row.try_get::<i64, _>(name).map(uint);
        let (sha256, name, version) = (row.try_get("sha256")?, row.try_get("name")?, row.try_get("version")?);
        Ok(Self { sha256, name, version, bytes: number("bytes")?, loaded_ms: number("loaded_ms")? })
    }
}
