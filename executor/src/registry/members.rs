//! Which processes are there.

use serde::Serialize;

use super::store::{int, uint};
use super::{LEASE, Registry, Ring};
use crate::error::Result;
use futures::FutureExt;

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// It evaluates tables.
    Agent,
    /// It runs jobs.
    Worker,
}

/// A process that is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Member {
    /// Its name: new at each start.
    pub name: String,
    /// What it does.
    pub role: Role,
    /// Where its tables lie; empty: anywhere.
    pub root: String,
    /// Its machine.
    pub host: String,
    /// Its process id there.
    pub pid: u32,
    /// Which Caretaker it is.
    pub version: String,
}

impl Member {
    /// The worker of this name, of this process.
    pub fn of(name: &str) -> Self {
        Self { name: name.into(), ..Self::here(Role::Worker, "") }
    }

    /// This process.
    pub fn here(role: Role, root: &str) -> Self {
        let host = sysinfo::System::host_name().unwrap_or_else(|| "localhost".into());
        let pid = std::process::id();
        let word = if role == Role::Agent { "agent" } else { "worker" };
        let unique = &uuid::Uuid::new_v4().simple().to_string()[..8];
        Self {
            name: format!("{word}-{host}-{pid}-{unique}"),
            role,
            root: root.to_string(),
            host,
            pid,
            version: env!("CARGO_PKG_VERSION").into(),
        }
    }
}

impl Registry {
    /// Joins, and holds this machine's proof of life.
    ///
    /// # Errors
    /// `Retry` or `Away` when the registry does not answer.
    pub async fn join(&self, member: &Member) -> Result<()> {
        self.processes.enter(&member.name)?;
        self.is_there(member, true).await
    }

    /// Says that it is there still.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub async fn stay(&self, member: &Member) -> Result<()> {
        self.is_there(member, false).await
    }

    async fn is_there(&self, member: &Member, new: bool) -> Result<()> {
        let sql = self.store.sql(
            "INSERT INTO caretaker_member (name, role, root, host, pid, version, started_ms, seen_ms)
             VALUES ($1, $2, $3, $4, $5, $6, {now}, {now}) ON CONFLICT (name) DO UPDATE SET seen_ms = {now}",
        );
        let role = if member.role == Role::Agent { "agent" } else { "worker" };
        let there = || {
            async {
                let mut tx = self.store.begin().await?;
                sqlx::query(&sql)
                    .bind(&member.name)
                    .bind(role)
                    .bind(&member.root)
                    .bind(&member.host)
                    .bind(i64::from(member.pid))
                    .bind(&member.version)
                    .execute(&mut *tx)
                    .await?;
                if new {
                    self.bell.tell(&mut tx, &Ring::Members).await?;
                }
                tx.commit().await
            }
            .boxed()
        };
        match new {
            true => self.store.again(there).await?,
            // The next heartbeat is soon: no use in insisting.
            false => self.store.once(there()).await?,
        }
        if new {
            self.bell.ring(Ring::Members);
        }
        Ok(())
    }

    /// Leaves: others take over at once.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub async fn leave(&self, member: &Member) -> Result<()> {
        let gone = async {
            let mut tx = self.store.begin().await?;
            sqlx::query("DELETE FROM caretaker_member WHERE name = $1").bind(&member.name).execute(&mut *tx).await?;
            self.bell.tell(&mut tx, &Ring::Members).await?;
            tx.commit().await
        };
        self.store.once(gone).await?;
        self.bell.ring(Ring::Members);
        Ok(())
    }

    /// The members of a role that live, sorted. Those that have been silent for a day are forgotten.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub async fn members(&self, role: Role) -> Result<Vec<Member>> {
        let word = if role == Role::Agent { "agent" } else { "worker" };
        let sql = self.store.sql(
            "SELECT name, root, host, pid, version FROM caretaker_member
             WHERE role = $1 AND seen_ms >= {now} - $2 ORDER BY name",
        );
        let pool = self.store.pool();
        let there = sqlx::query_as(&sql).bind(word).bind(int(LEASE.as_millis() as u64));
        let rows: Vec<(String, String, String, i64, String)> = self.store.once(there.fetch_all(&pool)).await?;
        let member = |(name, root, host, pid, version): (String, String, String, i64, String)| Member {
            name,
            role,
            root,
            host,
            pid: u32::try_from(uint(pid)).unwrap_or(0),
            version,
        };
        let all = rows.into_iter().map(member);
        Ok(all.filter(|member| !self.processes.is_dead(&member.name)).collect())
    }
}
