//! Deletes what nothing needs any more (R2.15).

use planner::facts::GarbageKind;
use planner::job::{GarbageId, JobSpec};

use crate::error::{Doing, Error, Result};
use crate::read::{self, Sizes};
use crate::table::{Table, shard_id};

/// Files and bytes that are gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Collected {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

/// Deletes the files of `spec`, after checking it against the shard as it is now: a file that is
/// listed again, or needed by a version, makes the whole job stop before the first deletion.
pub(crate) async fn collect(table: &Table, spec: &JobSpec, sizes: &Sizes) -> Result<Collected> {
    let JobSpec::Collect { shard, files, .. } = spec else {
        return Err(Error::Fatal("collect was given another job".into()));
    };
    let table = table.refreshed().await?;
    let facts = read::shard_with_garbage(&table, shard, sizes).await?;
    planner::check::job(spec, &facts).map_err(|violations| {
        let why: Vec<String> = violations.iter().map(ToString::to_string).collect();
        Error::Conflict(format!("the files to collect changed meanwhile: {}", why.join("; ")))
    })?;
    let known = facts.shards.iter().filter(|s| s.shard == *shard).flat_map(|s| s.garbage.iter().flatten());
    let bytes_of: std::collections::HashMap<&str, u64> = known.map(|g| (g.path.as_str(), g.bytes)).collect();
    let id = shard_id(shard)?;
    let (store, dir) = (table.store(), table.shard_dir(&id));
    let mut done = Collected::default();
    table.fence.check().await?;
    for file in files.iter().filter(|f| f.kind != GarbageKind::Manifest) {
        table.fence.pass()?;
        let path = file.path.split('/').fold(dir.clone(), |dir, part| dir.join(part));
        let deleted = match file.kind {
            GarbageKind::SsTable => store.remove_dir_all(path).await,
            _ => store.delete(&path).await,
        };
        match deleted {
            // Another collector was faster.
            Err(lance_core::Error::NotFound { .. }) => continue,
            deleted => deleted.doing(|| format!("deleting `{}` of shard `{shard}`", file.path))?,
        }
        done.files += 1;
        done.bytes += bytes_of.get(file.path.as_str()).copied().unwrap_or(0);
        crate::fault::at(&table.uri, "collect.file").await;
    }
    let manifests: Vec<&GarbageId> = files.iter().filter(|f| f.kind == GarbageKind::Manifest).collect();
    if let Some(newest) = manifests.iter().map(|f| f.position).max() {
        // Lance's own pruning: oldest first, without gaps, never younger than a day.
        let pruned = table.shard_store(id).prune_versions_before(newest + 1).await;
        done.files += pruned.doing(|| format!("pruning manifests of shard `{shard}`"))? as u64;
        let bytes = manifests.iter().filter_map(|f| bytes_of.get(f.path.as_str()));
        done.bytes += bytes.sum::<u64>();
    }
    Ok(done)
}
