//! The end of a pod (R2.16).

use std::time::{Duration, Instant};

use super::api::Api;
use crate::error::Result;
use crate::table::Table;

/// How long the passes of what was flushed are waited for. What is left then is folded by whoever comes next.
const FOLD: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(200);

impl Api {
    /// Refuses writes, flushes, lets go of the shards, and folds what is left. Shards are free for another
    /// process as soon as they are flushed.
    pub(super) async fn drain(&self) {
        let tables = self.pod.tables();
        self.pod.drain().await;
        if tables.is_empty() {
            return;
        }
        tracing::info!(tables = tables.len(), "drained; what was flushed is being folded");
        let began = Instant::now();
        let mut left = tables;
        while !left.is_empty() && began.elapsed() < FOLD {
            let mut still = Vec::new();
            for table in left {
                match self.folded(&table.name).await {
                    Ok(true) => {}
                    Ok(false) => still.push(table),
                    Err(error) => tracing::warn!(table = table.name, %error, "left as it is, to be folded later"),
                }
            }
            left = still;
            if !self.works {
                tracing::info!(tables = left.len(), "other workers fold what was flushed");
                return;
            }
            if !left.is_empty() {
                tokio::time::sleep(LOOK).await;
            }
        }
        for table in &left {
            tracing::warn!(table = table.name, "it was not folded in time, and will be later");
        }
    }

    /// Whether all that is listed is folded; asks for what is not.
    async fn folded(&self, name: &str) -> Result<bool> {
        let known = self.root.table(name)?;
        let Some(table) = Table::find(&known.name, &known.uri, self.tender.session()).await? else { return Ok(true) };
        let forced = self.force(&table, None).await?;
        Ok(forced.queued.is_empty() && forced.refused.is_empty())
    }
}
