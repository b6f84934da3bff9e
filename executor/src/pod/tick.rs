//! What a pod does by itself: memtables that are old, or too much for memory, become SSTables; what others
//! have folded is noticed; tables under pressure are evaluated.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lance::dataset::mem_wal::DatasetMemWalExt;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Open, Pod, lock};
use crate::catalog::TableRef;
use crate::env::now_ms;
use crate::error::{Error, Result};
use crate::read::overrides;
use crate::table::Table;
use crate::tend::Tender;

/// Between two looks at every claimed shard.
const TICK: Duration = Duration::from_secs(2);
/// Memtables that one relief pass flushes.
const RELIEFS_MAX: usize = 16;

impl Pod {
    /// Tends the writers until `stop`; `heard` is told of tables that deserve an evaluation (R2.3).
    pub async fn tend(self: Arc<Self>, tender: Arc<Tender>, heard: impl Fn(&str) + Send, stop: CancellationToken) {
        let mut looked = Instant::now();
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.pressure.asked.notified() => {}
                () = tokio::time::sleep(TICK.saturating_sub(looked.elapsed())) => {}
            }
            let hot = std::mem::take(&mut *lock(&self.pressure.hot));
            self.relieve().await;
            let all = looked.elapsed() >= TICK;
            for table in self.tables().into_iter().filter(|table| all || hot.contains(&table.name)) {
                if let Err(error) = self.look_at(&tender, &table).await {
                    tracing::warn!(table = table.name, %error, "the shards of a table could not be looked at");
                }
            }
            if all {
                looked = Instant::now();
            }
            hot.iter().for_each(|table| heard(table));
        }
    }

    /// Flushes the largest memtables while memory is tight.
    async fn relieve(&self) {
        for _ in 0..RELIEFS_MAX {
            let Some((uri, shard)) = self.pressure.largest() else { return };
            let Some(open) = self.held(&uri, shard).await else { return };
            self.pressure.counts().reliefs.fetch_add(1, Ordering::Relaxed);
            let flushed = async { open.writer.force_freeze_active().await?.wait().await }.await;
            if let Err(error) = flushed {
                tracing::warn!(uri, %shard, %error, "memory is tight, and a memtable could not be flushed");
                return;
            }
        }
    }

    async fn look_at(&self, tender: &Tender, known: &TableRef) -> Result<()> {
        let table = tender.open(known).await?;
        let age_ms_max = tender.policy.for_table(&overrides(&table.dataset)).policy.age_ms_max;
        let Some(details) = table.mem_wal().await? else { return Ok(()) };
        let folded: HashMap<Uuid, u64> =
            details.compacted_sstables.iter().map(|entry| (entry.shard_id, entry.generation)).collect();
        for shard in self.claimed(&known.uri) {
            let Some(open) = self.held(&known.uri, shard).await else { continue };
            let folded = folded.get(&shard).copied().unwrap_or(0);
            match self.look_at_shard(&table, shard, &open, folded, age_ms_max).await {
                Ok(()) => {}
                // Until now it would have gone on answering from what it had.
                Err(error @ Error::Fenced(_)) => tracing::info!("{error}"),
                Err(error) => tracing::warn!(table = table.name, %error, "a shard could not be looked at"),
            }
        }
        Ok(())
    }

    async fn look_at_shard(&self, table: &Table, shard: Uuid, open: &Open, folded: u64, age_ms_max: u64) -> Result<()> {
        // It reads the manifest anew, which the next line then gives.
        self.told(table, shard, open.writer.check_fenced().await)?;
        // Before the manifest: what is flushed meanwhile counts twice until the next look, and not never.
        let stats = self.told(table, shard, open.writer.memtable_stats().await)?;
        let manifest = self.told(table, shard, open.writer.manifest().await)?;
        let unfolded = manifest.iter().flat_map(|manifest| &manifest.sstables);
        let unfolded = unfolded.filter(|sstable| sstable.generation > folded).count() as u64;
        // An index that others have made since is maintained from now on.
        self.told(table, shard, table.dataset().refresh_mem_wal_index_configs(&open.writer).await)?;
        self.pressure.counted(&table.uri, shard, unfolded, stats.frozen_count as u64);
        let old = {
            let mut filled = lock(&open.filled);
            *filled = match *filled {
                Some((generation, since)) if generation == stats.generation => Some((generation, since)),
                _ => (stats.row_count > 0).then(|| (stats.generation, now_ms())),
            };
            filled.is_some_and(|(_, since)| now_ms().saturating_sub(since) >= age_ms_max)
        };
        if old && stats.row_count > 0 {
            self.told(table, shard, open.writer.force_freeze_active().await)?;
        }
        Ok(())
    }
}
