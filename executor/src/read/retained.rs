//! Which generations the retained versions of the base still need (R2.15).
//!
//! A version that records generation `g` for a shard needs every SSTable above `g` for a union
//! read. The record only grows, so the oldest retained version that has one decides for all;
//! tagged versions and the roots of branches are retained versions themselves.

use std::collections::HashMap;

use lance::dataset::mem_wal::DatasetMemWalExt;
use lance_index::mem_wal::MemWalIndexDetails;
use uuid::Uuid;

use crate::error::{Doing, Result};
use crate::table::Table;

/// What the oldest retained version records.
pub(super) struct Oldest {
    version: Option<u64>,
    generations: HashMap<Uuid, u64>,
}

impl Oldest {
    /// Generations above this are still needed.
    pub(super) fn generation(&self, shard: &Uuid) -> u64 {
        match self.version {
            Some(_) => self.generations.get(shard).copied().unwrap_or(0),
            None => u64::MAX,
        }
    }

    pub(super) fn name(&self) -> Option<String> {
        self.version.map(|v| format!("version {v}"))
    }
}

/// Reads as many manifests as a binary search takes: versions from before the MemWAL need nothing. An
/// LSM write spec that was unset and set again makes a gap, so the oldest version and the tagged ones,
/// which alone outlive such a gap, are looked at by themselves.
pub(super) async fn oldest(table: &Table) -> Result<Oldest> {
    let what = || format!("listing the versions of `{}`", table.name);
    let versions = table.dataset.version_refs().await.doing(what)?;
    let versions: Vec<u64> = versions.iter().map(|v| v.version).filter(|v| *v <= table.version()).collect();
    let branch = &table.dataset.manifest().branch;
    let tags = table.dataset.tags().list().await.doing(|| format!("listing the tags of `{}`", table.name))?;
    let tagged = tags.values().filter(|tag| tag.branch == *branch).map(|tag| tag.version);
    let mut alone: Vec<u64> =
        tagged.filter(|version| versions.contains(version)).chain(versions.first().copied()).collect();
    alone.sort_unstable();
    alone.dedup();
    let mut found: Option<(u64, MemWalIndexDetails)> = None;
    for version in alone {
        if let Some(details) = mem_wal(table, version).await? {
            found = Some((version, details));
            break;
        }
    }
    let older = |version: u64| found.as_ref().is_none_or(|(oldest, _)| version < *oldest);
    let (mut low, mut high) = (0, versions.iter().take_while(|version| older(**version)).count());
    while low < high {
        let middle = low + (high - low) / 2;
        match mem_wal(table, versions[middle]).await? {
            Some(details) => {
                found = Some((versions[middle], details));
                high = middle;
            }
            None => low = middle + 1,
        }
    }
    Ok(match found {
        None => Oldest { version: None, generations: HashMap::new() },
        Some((version, details)) => Oldest {
            version: Some(version),
            generations: details.compacted_sstables.iter().map(|c| (c.shard_id, c.generation)).collect(),
        },
    })
}

async fn mem_wal(table: &Table, version: u64) -> Result<Option<MemWalIndexDetails>> {
    let at = table.dataset.checkout_version(version).await;
    let at = at.doing(|| format!("reading version {version} of `{}`", table.name))?;
    at.mem_wal_index_details().await.doing(|| format!("reading version {version}"))
}
