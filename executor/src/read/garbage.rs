//! Files of a shard that nothing lists any more, and since when (R2.15).

use std::collections::{BTreeMap, HashMap, HashSet};

use futures::TryStreamExt;
use lance::dataset::mem_wal::util::{manifest_filename, parse_bit_reversed_filename, wal_entry_filename};
use lance_index::mem_wal::ShardManifest;
use object_store::path::Path;
use planner::facts::{GarbageFacts, GarbageKind};

use crate::error::{Doing, Result};
use crate::table::Table;

/// Metadata key by which Lance marks a WAL entry that only fences.
const FENCE_SENTINEL: &str = "fence_sentinel";
/// WAL entries opened to find the newest sentinel; past it no entry is given up at all.
const SENTINEL_SEARCH_MAX: usize = 256;

#[derive(Default)]
struct Folder {
    bytes: u64,
    modified_ms: u64,
}

/// One file of the WAL or a manifest: (position or version) -> what storage says of it.
type Numbered = BTreeMap<u64, (String, Folder)>;

/// The name a position or version is stored under.
type Naming = fn(u64) -> String;

/// Walks the shard's folder once.
pub(super) async fn walk(table: &Table, newest: &ShardManifest) -> Result<Vec<GarbageFacts>> {
    let dir = table.shard_dir(&newest.shard_id);
    let prefix = format!("{dir}/");
    let mut folders: HashMap<String, Folder> = HashMap::new();
    let (mut wal, mut manifests) = (Numbered::new(), Numbered::new());
    let mut files = table.store().list(Some(dir.clone()));
    while let Some(file) = files.try_next().await.doing(|| format!("walking shard `{}`", newest.shard_id))? {
        let Some(below) = file.location.as_ref().strip_prefix(&prefix).map(str::to_string) else { continue };
        let Some((top, rest)) = below.split_once('/') else { continue };
        let modified_ms = u64::try_from(file.last_modified.timestamp_millis()).unwrap_or(0);
        let numbered: Option<(&mut Numbered, Naming)> = match top {
            "wal" => Some((&mut wal, wal_entry_filename)),
            "manifest" => Some((&mut manifests, manifest_filename)),
            _ => None,
        };
        match numbered {
            Some((numbered, name)) => {
                // A file being written bears its position too, with more behind it.
                if let Some(position) = parse_bit_reversed_filename(rest).filter(|p| name(*p) == rest) {
                    numbered.insert(position, (below, Folder { bytes: file.size, modified_ms }));
                }
            }
            None => {
                let folder = folders.entry(top.to_string()).or_default();
                folder.bytes += file.size;
                folder.modified_ms = folder.modified_ms.max(modified_ms);
            }
        }
    }
    let mut history = History { table, newest, manifests: &manifests, read: HashMap::new() };
    let mut garbage = sstables(&mut history, folders).await?;
    garbage.extend(wal_entries(&mut history, &dir, &wal).await?);
    garbage.extend(old_manifests(&manifests, newest.version));
    Ok(garbage)
}

async fn sstables(history: &mut History<'_>, folders: HashMap<String, Folder>) -> Result<Vec<GarbageFacts>> {
    let listed: HashSet<&str> = history.newest.sstables.iter().map(|s| s.path.as_str()).collect();
    let mut unlisted: Vec<(u64, String, Folder)> = folders
        .into_iter()
        .filter(|(name, _)| !listed.contains(name.as_str()))
        .filter_map(|(name, folder)| Some((generation(&name)?, name, folder)))
        .collect();
    unlisted.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    let mut garbage = Vec::new();
    for (generation, path, folder) in unlisted {
        // A flush in progress has files before it has a manifest: its generation is not reached yet.
        let gone = |m: &ShardManifest| m.current_generation > generation && !m.sstables.iter().any(|s| s.path == path);
        let since_ms = history.since(gone).await?.map(|since| since.max(folder.modified_ms));
        garbage.push(GarbageFacts {
            kind: GarbageKind::SsTable,
            path,
            position: generation,
            bytes: folder.bytes,
            since_ms,
        });
    }
    Ok(garbage)
}

/// The generation in a folder's name, `<hash>_gen_<generation>`.
fn generation(folder: &str) -> Option<u64> {
    folder.rsplit_once("_gen_")?.1.parse().ok()
}

/// Entries that are never replayed, but for the newest of all and the newest fence sentinel, which
/// keep a stalled writer from taking a vacated slot.
async fn wal_entries(history: &mut History<'_>, dir: &Path, wal: &Numbered) -> Result<Vec<GarbageFacts>> {
    let replayed = history.newest.replay_after_wal_entry_position;
    let Some(tip) = wal.keys().next_back().copied() else { return Ok(Vec::new()) };
    let dead: Vec<u64> = wal.range(..=replayed).map(|(p, _)| *p).filter(|p| *p != tip).collect();
    if dead.is_empty() {
        return Ok(Vec::new());
    }
    let Some(sentinel) = newest_sentinel(history.table, dir, wal).await? else { return Ok(Vec::new()) };
    let mut garbage = Vec::new();
    for position in dead.into_iter().filter(|p| *p != sentinel) {
        let (path, file) = &wal[&position];
        let since = history.since(|m| m.replay_after_wal_entry_position >= position).await?;
        garbage.push(GarbageFacts {
            kind: GarbageKind::WalEntry,
            path: path.clone(),
            position,
            bytes: file.bytes,
            since_ms: since.map(|s| s.max(file.modified_ms)),
        });
    }
    Ok(garbage)
}

/// Position of the newest sentinel; 0 where the WAL has none; `None` when the search was cut short.
async fn newest_sentinel(table: &Table, dir: &Path, wal: &Numbered) -> Result<Option<u64>> {
    let store = table.store();
    for (searched, (position, (path, _))) in wal.iter().rev().enumerate() {
        if searched == SENTINEL_SEARCH_MAX {
            return Ok(None);
        }
        let file = path.split('/').fold(dir.clone(), |dir, part| dir.join(part));
        let bytes = store.read_one_all(&file).await.doing(|| format!("reading WAL entry `{path}`"))?;
        let reader = arrow_ipc::reader::StreamReader::try_new(std::io::Cursor::new(bytes), None)?;
        if reader.schema().metadata().contains_key(FENCE_SENTINEL) {
            return Ok(Some(*position));
        }
    }
    Ok(Some(0))
}

fn old_manifests(manifests: &Numbered, newest: u64) -> Vec<GarbageFacts> {
    let written = |version: u64| manifests.get(&version).map(|(_, f)| f.modified_ms);
    manifests
        .range(..newest)
        .map(|(version, (path, file))| GarbageFacts {
            kind: GarbageKind::Manifest,
            path: path.clone(),
            position: *version,
            bytes: file.bytes,
            since_ms: written(version + 1),
        })
        .collect()
}

/// The shard's manifest versions, read as they are asked for.
struct History<'a> {
    table: &'a Table,
    newest: &'a ShardManifest,
    manifests: &'a Numbered,
    read: HashMap<u64, ShardManifest>,
}

impl History<'_> {
    /// When the first retained manifest for which `is` holds was written. `is` must stay true once
    /// it is true. Where older manifests are gone, the answer is later than the truth: safe.
    async fn since(&mut self, is: impl Fn(&ShardManifest) -> bool) -> Result<Option<u64>> {
        let versions: Vec<u64> = self.manifests.range(..=self.newest.version).map(|(v, _)| *v).collect();
        let (mut low, mut high) = (0, versions.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if is(self.manifest(versions[middle]).await?) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ok(versions.get(low).and_then(|v| self.manifests.get(v)).map(|(_, f)| f.modified_ms))
    }

    async fn manifest(&mut self, version: u64) -> Result<&ShardManifest> {
        if !self.read.contains_key(&version) {
            let store = self.table.shard_store(self.newest.shard_id);
            let manifest = store.read_version(version).await;
            let manifest = manifest.doing(|| format!("reading manifest {version} of `{}`", self.newest.shard_id))?;
            self.read.insert(version, manifest);
        }
        Ok(&self.read[&version])
    }
}
