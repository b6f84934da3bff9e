//! Which generations the retained versions of the base still need (R2.15).
//!
//! A version that records generation `g` for a shard needs every SSTable above `g` for a union
//! read. The record only grows, so the oldest retained version that has one decides for all;
//! tagged versions and the roots of branches are retained versions themselves.

use std::collections::HashMap;

use lance::dataset::mem_wal::DatasetMemWalExt;
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

/// Reads as many manifests as a binary search takes: versions from before the MemWAL need nothing.
pub(super) async fn oldest(table: &Table) -> Result<Oldest> {
    let versions = table.dataset.version_refs().await;
    let versions = versions.doing(|| format!("listing the versions of `{}`", table.name))?;
    let versions: Vec<u64> = versions.iter().map(|v| v.version).filter(|v| *v <= table.version()).collect();
    let (mut low, mut high) = (0, versions.len());
    let mut found = None;
    while low < high {
        let middle = low + (high - low) / 2;
        let version = versions[middle];
        let at = table.dataset.checkout_version(version).await;
        let at = at.doing(|| format!("reading version {version} of `{}`", table.name))?;
        match at.mem_wal_index_details().await.doing(|| format!("reading version {version}"))? {
            Some(details) => {
                found = Some((version, details));
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
