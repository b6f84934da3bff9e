//! Who holds the space of a table: every file below its folder, by what needs it (R4.6).
//!
//! One listing says how large each file is, the manifests of the versions that stay say who needs it.
//! What the current version needs is its own. A file that only versions of one kind need beside it
//! comes back when those go; what several kinds need comes back with the last of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use chrono::{DateTime, Utc};
use futures::{StreamExt, TryStreamExt};
use lance::Dataset;
use lance::dataset::cleanup::CleanupPolicy;
use lance_table::io::commit::ManifestNamingScheme;
use lance_table::io::deletion::relative_deletion_file_path;
use lance_table::io::manifest::read_manifest_indexes;
use planner::facts::TableFacts;
use serde::Serialize;

use crate::error::{Doing, Error, Result};
use crate::run::cleanup::Removal;
use crate::table::Table;

/// Manifests read at once.
const MANIFESTS: usize = 8;
/// Owner of what versions of several kinds need.
const SEVERAL: usize = usize::MAX;

/// What keeps a version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case", tag = "by")]
pub enum Pin {
    /// It is the newest.
    Current,
    /// It is younger than the minimum age.
    Young,
    /// It is one of the newest that stay whatever their age.
    Newest,
    /// A branch began at it.
    Branch {
        /// Its name.
        name: String,
    },
    /// A tag names it.
    Tag {
        /// Its name.
        name: String,
    },
    /// Nothing but that the table is not cleaned.
    NoCleanup,
}

/// Files, counted and weighed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amount {
    /// How many.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Versions that the same things keep.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// What keeps them.
    pub pins: Vec<Pin>,
    /// The versions, ascending.
    pub versions: Vec<u64>,
    /// Of the current version all it needs; of others what only these need.
    #[serde(flatten)]
    pub amount: Amount,
}

/// What lies below `_mem_wal`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemWal {
    /// SSTables that are not folded yet.
    pub unfolded: Amount,
    /// Folded ones that are still listed.
    pub folded_listed: Amount,
    /// Unlisted ones that a retained version needs (R2.15).
    pub retained: Amount,
    /// The oldest such version.
    pub retained_by: Option<String>,
    /// Unlisted ones that wait for their grace, or for the next collection.
    pub unlisted: Amount,
    /// WAL entries and manifests of the shards.
    pub log: Amount,
}

/// Every file of a table, by what needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Space {
    /// The versions that stay, those of the current one first, then the largest.
    pub kept: Vec<Kept>,
    /// Files that several kinds of them need, and the current version does not.
    pub several: Amount,
    /// Files that a cleanup would remove now.
    pub removable: Amount,
    /// Files that no version needs and that a cleanup leaves for now: they may belong to a running commit.
    pub unproven: Amount,
    /// What branches wrote themselves.
    pub branches: Amount,
    /// SSTables and the log before them.
    pub mem_wal: MemWal,
    /// Everything else: tags, files that Caretaker does not know.
    pub other: Amount,
}

impl Amount {
    fn add(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
    }
}

/// Weighs the files of `table`. `facts` were read with the folders of its shards; `policy` is what a
/// cleanup goes by, and `removal` is what it would remove.
///
/// # Errors
/// Storage that can't be listed, a manifest that can't be read.
pub(crate) async fn space(
    table: &Table,
    facts: &TableFacts,
    policy: Option<&CleanupPolicy>,
    removal: &Removal,
) -> Result<Space> {
    let (owners, mut kept) = owners(table, policy, &removal.versions).await?;
    let (base, sstables) = (table.base(), sstables(facts));
    let prefix = format!("{base}/");
    let mut space = Space::default();
    space.mem_wal.retained_by = facts.shards.iter().find_map(|shard| shard.retained_by.clone());
    let store = table.store();
    let mut files = store.list(Some(base));
    while let Some(file) = files.try_next().await.doing(|| format!("listing the files of `{}`", table.name))? {
        let path = file.location.as_ref().strip_prefix(&prefix).unwrap_or(file.location.as_ref());
        let amount = match path.split('/').collect::<Vec<_>>().as_slice() {
            // Of a version that a branch holds Lance keeps what the branch needs, and no more.
            _ if removal.paths.contains(file.location.as_ref()) => &mut space.removable,
            ["_mem_wal", shard, folder, ..] => match sstables.get(&(*shard, *folder)) {
                Some(SsTable::Listed) => &mut space.mem_wal.folded_listed,
                Some(SsTable::Retained) => &mut space.mem_wal.retained,
                Some(SsTable::Unlisted) => &mut space.mem_wal.unlisted,
                // One that is being flushed stands in no list yet.
                None if folder.contains("_gen_") => &mut space.mem_wal.unfolded,
                None => &mut space.mem_wal.log,
            },
            ["tree", ..] => &mut space.branches,
            parts => match key(parts).map(|key| owners.get(&key).copied()) {
                Some(Some(SEVERAL)) => &mut space.several,
                Some(Some(owner)) => &mut kept[owner].amount,
                Some(None) => &mut space.unproven,
                None => &mut space.other,
            },
        };
        amount.add(file.size);
    }
    let is_current = |kept: &Kept| kept.pins.contains(&Pin::Current);
    kept.sort_by(|a, b| {
        let by = |kept: &Kept| (!is_current(kept), std::cmp::Reverse(kept.amount.bytes));
        by(a).cmp(&by(b)).then_with(|| a.pins.cmp(&b.pins))
    });
    space.kept = kept;
    Ok(space)
}

#[derive(Clone, Copy)]
enum SsTable {
    Listed,
    Retained,
    Unlisted,
}

/// Folded SSTables by shard and folder.
fn sstables(facts: &TableFacts) -> HashMap<(&str, &str), SsTable> {
    let mut known = HashMap::new();
    for shard in &facts.shards {
        for sstable in shard.leftovers() {
            known.insert((shard.shard.as_str(), sstable.path.as_str()), SsTable::Listed);
        }
        for file in shard.garbage.iter().flatten().filter(|file| file.position <= shard.compacted_generation) {
            let is_needed = shard.retained_generation.is_none_or(|retained| file.position > retained);
            let state = if is_needed { SsTable::Retained } else { SsTable::Unlisted };
            known.entry((shard.shard.as_str(), file.path.as_str())).or_insert(state);
        }
    }
    known
}

/// What a version names a file by: an index by its folder, what lies beside a data file by that file.
/// `None` for files that no version names.
fn key(parts: &[&str]) -> Option<String> {
    match parts {
        ["data", file] => Some(format!("data/{file}")),
        ["data", stem, _] => Some(format!("data/{stem}.lance")),
        ["_indices", index, ..] => Some(format!("_indices/{index}")),
        ["_deletions", file] => Some(format!("_deletions/{file}")),
        ["_transactions", file] => Some(format!("_transactions/{file}")),
        ["_versions", file] => Some(format!("_versions/{}", version(file)?)),
        _ => None,
    }
}

/// The version that a manifest's file name stands for.
pub(crate) fn version(file: &str) -> Option<u64> {
    ManifestNamingScheme::detect_scheme(file)?.parse_version(file)
}

/// Which kind of kept version needs a file, and the kinds.
async fn owners(
    table: &Table,
    policy: Option<&CleanupPolicy>,
    gone: &BTreeSet<u64>,
) -> Result<(HashMap<String, usize>, Vec<Kept>)> {
    let names = names(table).await?;
    let versions = table.dataset.version_refs().await;
    let versions = versions.doing(|| format!("listing the versions of `{}`", table.name))?;
    let mut versions: Vec<u64> = versions.iter().map(|v| v.version).filter(|v| !gone.contains(v)).collect();
    // The current one comes first: what it needs is its own, whoever else needs it.
    versions.sort_unstable_by_key(|version| (*version < table.version(), *version));
    let read = futures::stream::iter(versions).map(|version| async move {
        let at = table.dataset.checkout_version(version).await;
        let at = at.doing(|| format!("reading version {version} of `{}`", table.name))?;
        Ok::<_, Error>((version, at.manifest().timestamp(), needed(table, &at).await?))
    });
    let mut read = read.buffered(MANIFESTS);
    let (mut owners, mut kept) = (HashMap::<String, usize>::new(), Vec::<Kept>::new());
    while let Some((version, written, needed)) = read.try_next().await? {
        let pins = pins(version, written, table.version(), policy, names.get(&version));
        let group = kept.iter().position(|kept| kept.pins == pins).unwrap_or_else(|| {
            kept.push(Kept { pins, ..Kept::default() });
            kept.len() - 1
        });
        kept[group].versions.push(version);
        for file in needed {
            let owner = owners.entry(file).or_insert(group);
            let is_current = *owner != SEVERAL && kept[*owner].pins.contains(&Pin::Current);
            if *owner != group && !is_current {
                *owner = SEVERAL;
            }
        }
    }
    Ok((owners, kept))
}

/// Branches and tags by the version they hold.
async fn names(table: &Table) -> Result<BTreeMap<u64, Vec<Pin>>> {
    let reading = || format!("reading the tags and branches of `{}`", table.name);
    let dataset = &table.dataset;
    let branches = dataset.branches().list().await.doing(reading)?;
    let here = dataset.branch_identifier().await.doing(reading)?;
    let mut names = BTreeMap::<u64, Vec<Pin>>::new();
    for (name, version) in here.collect_referenced_versions(&branches) {
        names.entry(version).or_default().push(Pin::Branch { name });
    }
    for (name, tag) in dataset.tags().list().await.doing(reading)? {
        if tag.branch == dataset.manifest().branch {
            names.entry(tag.version).or_default().push(Pin::Tag { name });
        }
    }
    names.values_mut().for_each(|pins| pins.sort_unstable());
    Ok(names)
}

fn pins(
    version: u64,
    written: DateTime<Utc>,
    current: u64,
    policy: Option<&CleanupPolicy>,
    names: Option<&Vec<Pin>>,
) -> Vec<Pin> {
    if version >= current {
        return vec![Pin::Current];
    }
    let young = policy.and_then(|p| p.before_timestamp).is_some_and(|before| written >= before);
    let newest = policy.and_then(|p| p.before_version).is_some_and(|before| version >= before);
    let mut pins: Vec<Pin> = [(young, Pin::Young), (newest, Pin::Newest)]
        .into_iter()
        .filter_map(|(holds, pin)| holds.then_some(pin))
        .chain(names.into_iter().flatten().cloned())
        .collect();
    if pins.is_empty() {
        pins.push(Pin::NoCleanup);
    }
    pins
}

/// The files that a version needs, by [`key`]; those of another table's folder are not this one's.
async fn needed(table: &Table, at: &Dataset) -> Result<Vec<String>> {
    let (manifest, version) = (at.manifest(), at.manifest().version);
    let indexes = read_manifest_indexes(&table.store(), at.manifest_location(), manifest).await;
    let indexes = indexes.doing(|| format!("reading the indexes of version {version} of `{}`", table.name))?;
    let mut needed = vec![format!("_versions/{version}")];
    needed.extend(manifest.transaction_file.iter().map(|file| format!("_transactions/{file}")));
    needed.extend(indexes.iter().filter(|i| i.base_id.is_none()).map(|index| format!("_indices/{}", index.uuid)));
    for fragment in manifest.fragments.iter() {
        let data = fragment.referenced_lance_files().filter(|file| file.base_id.is_none());
        needed.extend(data.map(|file| format!("data/{}", file.path)));
        let deletions = fragment.deletion_file.iter().filter(|file| file.base_id.is_none());
        needed.extend(deletions.map(|file| relative_deletion_file_path(fragment.id, file)));
    }
    Ok(needed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_what_versions_name_it_by() {
        let keys = [
            ("data/a.lance", Some("data/a.lance")),
            ("data/a/01.blob", Some("data/a.lance")),
            ("_indices/u/page/0.lance", Some("_indices/u")),
            ("_versions/18446744073709551610.manifest", Some("_versions/5")),
            ("_versions/5.manifest", Some("_versions/5")),
            ("_versions/.tmp", None),
            ("_refs/tags/a.json", None),
        ];
        for (path, expected) in keys {
            assert_eq!(key(&path.split('/').collect::<Vec<_>>()).as_deref(), expected, "{path}");
        }
    }
}
