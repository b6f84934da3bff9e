//! A few fragments and SSTables of a table, to see whether a job that has no business with them left
//! them as they were.

use lance_table::format::Fragment;
use planner::job::SsTableId;
use uuid::Uuid;

use super::digest::{self, Digest};
use crate::error::{Doing, Error, Result};
use crate::read::shard_ids;
use crate::run::files::data_bytes;
use crate::table::Table;

/// Most fragments of a sample, spread over the table.
const FRAGMENTS_MAX: usize = 16;
/// Most bytes of them. The first is taken whatever its size.
const BYTES_MAX: u64 = 256 << 20;
/// Most SSTables of a sample.
const SSTABLES_MAX: usize = 8;

/// What was read before the job.
pub(super) struct Sample {
    fragments: Vec<(Fragment, Digest)>,
    sstables: Vec<(Uuid, SsTableId, usize)>,
}

impl Sample {
    pub(super) async fn of(table: &Table) -> Result<Self> {
        let all = &table.dataset.manifest().fragments;
        let (mut fragments, mut bytes) = (Vec::new(), 0);
        for fragment in all.iter().step_by(all.len().div_ceil(FRAGMENTS_MAX).max(1)) {
            bytes += data_bytes(fragment);
            if bytes > BYTES_MAX && !fragments.is_empty() {
                break;
            }
            fragments.push((fragment.clone(), digest::of(&table.dataset, vec![fragment.clone()]).await?));
        }
        let mut sstables = Vec::new();
        for (shard, sstable) in unfolded(table).await?.into_iter().take(SSTABLES_MAX) {
            let rows = rows_of(table, &shard, &sstable).await?;
            sstables.push((shard, sstable, rows));
        }
        Ok(Self { fragments, sstables })
    }

    /// Reads it again. Fragments that others rewrote or deleted from meanwhile are passed over.
    pub(super) async fn compare(self, table: &Table) -> Result<u64> {
        let now = table.again().await?;
        let (mut rows, all) = (0, &now.dataset.manifest().fragments);
        for (fragment, before) in self.fragments.into_iter().filter(|(f, _)| all.contains(f)) {
            let id = fragment.id;
            let after = match digest::of(&now.dataset, vec![fragment.clone()]).await {
                Err(error) if is_lost(&now, &fragment).await? => {
                    return Err(Error::Mismatch(format!("fragment {id} can't be read any more: {error}")));
                }
                read => read?,
            };
            if after != before {
                return Err(Error::Mismatch(format!("fragment {id} has {} rows of which some are others", after.rows)));
            }
            rows += after.rows;
        }
        let listed = unfolded(&now).await?;
        for (shard, sstable, before) in self.sstables {
            let what = || format!("SSTable `{}` of shard `{shard}`", sstable.path);
            let listed = listed.iter().any(|(in_shard, id)| *in_shard == shard && *id == sstable);
            if !listed && !is_folded(&now, &shard, sstable.generation).await? {
                return Err(Error::Mismatch(format!("{} is not listed any more, and was not folded", what())));
            }
            if listed && lost(rows_of(&now, &shard, &sstable).await, what)? != before {
                return Err(Error::Mismatch(format!("{} has another number of rows", what())));
            }
        }
        Ok(rows)
    }
}

/// What was readable before and is not there now, the job has taken away; storage that fails has not.
fn lost<T>(read: Result<T>, what: impl Fn() -> String) -> Result<T> {
    read.map_err(|error| match error {
        Error::Invalid(why) => Error::Mismatch(format!("{} can't be read any more: {why}", what())),
        other => other,
    })
}

async fn is_lost(table: &Table, fragment: &Fragment) -> Result<bool> {
    for file in fragment.files.iter().filter(|file| file.base_id.is_none()) {
        let path = table.base().join("data").join(file.path.as_str());
        if !table.store().exists(&path).await.doing(|| format!("looking for `{path}`"))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Listed SSTables that the base does not hold yet.
async fn unfolded(table: &Table) -> Result<Vec<(Uuid, SsTableId)>> {
    let mut found = Vec::new();
    for shard in shard_ids(table).await? {
        let Some(manifest) = table.shard_manifest(shard).await? else { continue };
        for sstable in manifest.sstables {
            if !is_folded(table, &shard, sstable.generation).await? {
                found.push((shard, SsTableId { generation: sstable.generation, path: sstable.path }));
            }
        }
    }
    Ok(found)
}

async fn is_folded(table: &Table, shard: &Uuid, generation: u64) -> Result<bool> {
    let details = table.mem_wal().await?;
    let compacted = details.iter().flat_map(|d| &d.compacted_sstables).find(|c| c.shard_id == *shard);
    Ok(compacted.is_some_and(|c| generation <= c.generation))
}

async fn rows_of(table: &Table, shard: &Uuid, sstable: &SsTableId) -> Result<usize> {
    let dataset = table.open_sstable(shard, &sstable.path).await?;
    dataset.count_rows(None).await.doing(|| format!("counting SSTable `{}`", sstable.path))
}
