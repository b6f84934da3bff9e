//! Takes folded SSTables off the shard manifest's list (R2.10).

use lance::dataset::mem_wal::WalTailer;
use lance_index::mem_wal::{ShardManifest, ShardStatus};
use planner::job::SsTableId;
use uuid::Uuid;

use crate::error::{Doing, Error, Result};
use crate::table::{Table, shard_id};

/// Manifest commits lost to a writer that claimed the shard meanwhile.
const CLAIM_RETRIES: u32 = 5;

/// Writes down that the whole log of a shard is read: all of its rows are in the base, and nobody writes. A flush
/// can cover less than the entries of its generation, which a replay tells by what is in them.
///
/// # Errors
/// `Conflict` where a writer has claimed the shard meanwhile.
pub(crate) async fn log_read(table: &Table, shard: Uuid) -> Result<()> {
    let store = table.shard_store(shard);
    let latest = store.refresh_latest().await.doing(|| format!("reading shard `{shard}`"))?;
    let Some(latest) = latest else { return Ok(()) };
    let next = WalTailer::new(table.store(), table.base(), shard).next_position().await;
    let last = next.doing(|| format!("looking for the end of the log of shard `{shard}`"))?.saturating_sub(1);
    if last <= latest.replay_after_wal_entry_position {
        return Ok(());
    }
    let read = store.commit_update(latest.writer_epoch, |current| ShardManifest {
        version: current.next_version(),
        replay_after_wal_entry_position: last,
        ..current.clone()
    });
    read.await.map(drop).doing(|| format!("writing the manifest of shard `{shard}`"))
}

/// Drops exactly `sstables` by identity; what else the manifest lists, in whatever order, stays.
/// Returns how many left the list: a second run drops nothing and writes nothing.
///
/// # Errors
/// `Retry` when a writer kept claiming the shard. Nothing was changed then.
pub(crate) async fn retire(table: &Table, shard: &str, sstables: &[SsTableId]) -> Result<u64> {
    let shard = shard_id(shard)?;
    let store = table.shard_store(shard);
    let is_listed = |m: &ShardManifest, id: &SsTableId| {
        m.sstables.iter().any(|s| s.generation == id.generation && s.path == id.path)
    };
    let mut fenced = None;
    for _ in 0..CLAIM_RETRIES {
        let latest = store.refresh_latest().await.doing(|| format!("reading shard `{shard}`"))?;
        let latest = latest.ok_or_else(|| Error::Invalid(format!("shard `{shard}` has no manifest")))?;
        if latest.status == ShardStatus::Sealed {
            return Err(Error::Invalid(format!("shard `{shard}` is sealed: it is being dropped and is left alone")));
        }
        let listed = sstables.iter().filter(|id| is_listed(&latest, id)).count() as u64;
        if listed == 0 {
            return Ok(0);
        }
        crate::fault::at(&table.uri, "retire.before").await;
        table.fence.check().await?;
        // The epoch is only compared, never claimed: a live writer goes on undisturbed.
        let dropped = store.commit_update(latest.writer_epoch, |current| ShardManifest {
            version: current.next_version(),
            sstables: current
                .sstables
                .iter()
                .filter(|s| !sstables.iter().any(|id| id.generation == s.generation && id.path == s.path))
                .cloned()
                .collect(),
            ..current.clone()
        });
        match dropped.await {
            Ok(_) => {
                crate::fault::at(&table.uri, "retire.after").await;
                return Ok(listed);
            }
            Err(error) => {
                let now = store.refresh_latest().await.doing(|| format!("reading shard `{shard}`"))?;
                // Nobody came in between: storage itself said no.
                if now.is_some_and(|now| now.version == latest.version && now.writer_epoch == latest.writer_epoch) {
                    return Err(error).doing(|| format!("writing the manifest of shard `{shard}`"));
                }
                fenced = Some(error);
            }
        }
    }
    let why = fenced.map(|e| e.to_string()).unwrap_or_default();
    Err(Error::Retry(format!("shard `{shard}` changed hands {CLAIM_RETRIES} times while it was updated: {why}")))
}
