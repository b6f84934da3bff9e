//! All that is known of a table or a shard, read fresh before each decision.
//!
//! What was not measured is `None`, never zero: an unknown size must not look like a small one.

mod base;

use alloc::{collections::BTreeMap, string::String, vec::Vec};
use serde::{Deserialize, Serialize};

pub use self::base::{
    CleanupFacts, CleanupSuccess, FailedFacts, FragmentFacts, MismatchFacts, RemapFacts, RunningFacts,
};
use crate::job::{GarbageId, SsTableId};

/// The key of a table's config that pauses it.
pub const PAUSED: &str = "caretaker.paused";

/// One flushed SSTable that the shard manifest lists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SsTableFacts {
    /// Generation; higher is newer. Unique in a shard.
    pub generation: u64,
    /// Folder name below the shard. With the generation this is the SSTable's identity (R2.10).
    pub path: String,
    /// Bytes on storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Live rows, tombstones included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// When it was flushed, milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flushed_at_ms: Option<u64>,
}

/// What became of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ShardStatus {
    /// Takes writes.
    #[default]
    Active,
    /// Being dropped: left alone (R2.15).
    Sealed,
}

/// Files of a shard that nothing lists any more: what `collect` may delete one day (R2.15).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GarbageFacts {
    /// What kind of file it is.
    pub kind: GarbageKind,
    /// Path below the shard: a folder of an SSTable, a WAL entry, a manifest.
    pub path: String,
    /// The generation (SSTable), entry position (WAL) or version (manifest) the path stands for.
    pub position: u64,
    /// Bytes on storage.
    pub bytes: u64,
    /// Since when nothing needs it as far as storage can tell, milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
}

/// Kinds of garbage a shard leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum GarbageKind {
    /// The folder of an SSTable that no manifest lists.
    SsTable,
    /// A WAL entry at or below the replay position.
    WalEntry,
    /// A shard manifest older than the newest.
    Manifest,
}

/// One MemWAL shard of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ShardFacts {
    /// Shard id (UUID, lower case, hyphenated).
    pub shard: String,
    /// Active or sealed.
    #[serde(default)]
    pub status: ShardStatus,
    /// Version of the shard manifest these facts were read from.
    #[serde(default)]
    pub manifest_version: u64,
    /// The listed SSTables, in any order.
    #[serde(default)]
    pub sstables: Vec<SsTableFacts>,
    /// Highest generation folded into the base, 0 for none yet. Every generation at or below it is folded.
    #[serde(default)]
    pub compacted_generation: u64,
    /// When the base last recorded progress of a fold or a catch-up, milliseconds since the epoch.
    /// Until a while after, a reader may still hold the version before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded_at_ms: Option<u64>,
    /// Generation up to which each index of the table covers this shard. An index that is absent
    /// here is not caught up (R2.10).
    #[serde(default)]
    pub caught_up: BTreeMap<String, u64>,
    /// Lowest `compacted_generation` that any retained base version, tag or branch records for this
    /// shard: SSTables above it are still needed by a reader of that version (R2.15).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retained_generation: Option<u64>,
    /// The retained version, tag or branch behind `retained_generation`, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retained_by: Option<String>,
    /// Unlisted files. `None`: the folder was not walked in this evaluation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub garbage: Option<Vec<GarbageFacts>>,
    /// The table has no MemWAL index any more (its LSM write spec was unset), so no read looks at
    /// this shard and no progress can be recorded for it.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub detached: bool,
    /// A pass in progress (the latch of R2.12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pass: Option<PassFacts>,
}

/// A fold in progress on a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PassFacts {
    /// When it was dispatched, milliseconds since the epoch.
    pub since_ms: u64,
    /// Who holds it, for people (a job id, a process).
    pub holder: String,
}

/// One index of a table. Lance's own system indexes are not listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct IndexFacts {
    /// Name, unique in the table.
    pub name: String,
    /// Type as job names spell it: `btree`, `bitmap`, `fts`, `ivfpq`, …
    pub kind: String,
    /// Rows of the base that no segment of the index covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unindexed_rows: Option<u64>,
    /// When the oldest of those rows was written, milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unindexed_since_ms: Option<u64>,
    /// Segments it consists of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments: Option<u64>,
    /// A compaction withdrew entries of it (zonemap, bloom filter, rtree, fm): due at once.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub withdrawn: bool,
    /// Its reader doesn't translate through the fragment reuse index (fm): while it exists, a
    /// compaction of the table can't defer its remap.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub inline_only: bool,
}

/// One table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TableFacts {
    /// Name below the root.
    pub table: String,
    /// Version of the base these facts were read from.
    pub version: u64,
    /// Rows of the base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// Columns of the primary key, in key order. Empty: the table has none.
    #[serde(default)]
    pub primary_key: Vec<String>,
    /// Indexes, in any order.
    #[serde(default)]
    pub indexes: Vec<IndexFacts>,
    /// Shards, in any order. Empty: the table takes no LSM writes.
    #[serde(default)]
    pub shards: Vec<ShardFacts>,
    /// Nothing but catch-up runs (SPEC section 7). `caretaker.paused = true` in the table's config
    /// says the same.
    #[serde(default)]
    pub paused: bool,
    /// Fragments of the base, by ascending id: neighbours here may be rewritten together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fragments: Option<Vec<FragmentFacts>>,
    /// The table has stable row ids, so a compaction can't defer its remap.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub stable_row_ids: bool,
    /// Versions that are retained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<u64>,
    /// The history of its cleanups. `None`: not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cleanup: Option<CleanupFacts>,
    /// What deferred compactions left behind. `None`: not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remap: Option<RemapFacts>,
    /// Its open jobs, in any order. A pass of a shard is in [`ShardFacts::pass`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub running: Vec<RunningFacts>,
    /// Kinds of jobs that keep failing, in any order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<FailedFacts>,
    /// A job after which the table answered differently, until somebody has looked at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mismatch: Option<MismatchFacts>,
    /// Shallow clones, by name, that read files of this table.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clones: Vec<String>,
    /// The keys `caretaker.*`, `lance.compaction.*` and `lance.auto_cleanup.*` of the table's config,
    /// as they stand there; [`crate::policy::Policy::for_table`] reads them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub overrides: BTreeMap<String, String>,
}

/// A sum that is known when every part is.
pub(crate) fn total(parts: impl IntoIterator<Item = Option<u64>>) -> Option<u64> {
    parts.into_iter().try_fold(0u64, |sum, part| Some(sum.saturating_add(part?)))
}

impl SsTableFacts {
    /// What a job names it by.
    pub fn id(&self) -> SsTableId {
        SsTableId { generation: self.generation, path: self.path.clone() }
    }
}

impl GarbageFacts {
    /// What a job names it by.
    pub fn id(&self) -> GarbageId {
        GarbageId { kind: self.kind, path: self.path.clone(), position: self.position }
    }
}

impl ShardFacts {
    /// Listed SSTables that are not folded yet, oldest first.
    pub fn unfolded(&self) -> Vec<&SsTableFacts> {
        self.listed(|s| s.generation > self.compacted_generation)
    }

    /// SSTables that are folded but still listed, oldest first: a pass's leftovers (R2.13).
    pub fn leftovers(&self) -> Vec<&SsTableFacts> {
        self.listed(|s| s.generation <= self.compacted_generation)
    }

    /// Generation up to which an index covers the shard, 0 where nothing is recorded.
    pub fn covered_by(&self, index: &str) -> u64 {
        self.caught_up.get(index).copied().unwrap_or(0)
    }

    fn listed(&self, keep: impl Fn(&SsTableFacts) -> bool) -> Vec<&SsTableFacts> {
        let mut listed: Vec<_> = self.sstables.iter().filter(|s| keep(s)).collect();
        listed.sort_unstable();
        listed
    }
}

impl IndexFacts {
    /// Whether entries of it can wait for their remap.
    pub fn can_defer(&self) -> bool {
        !self.inline_only && self.kind != "fm"
    }
}

impl TableFacts {
    /// Whether the table is paused, by either way to say so.
    pub fn is_paused(&self) -> bool {
        // What is neither yes nor no was meant to keep something from happening.
        self.paused || self.overrides.get(PAUSED).is_some_and(|value| !value.eq_ignore_ascii_case("false"))
    }

    /// Whether the table wants no cleanup (R4.1), by either way to say so.
    pub fn opted_out_of_cleanup(&self) -> bool {
        let key = self.overrides.get("caretaker.cleanup.enabled");
        self.cleanup.as_ref().is_some_and(|c| c.opted_out) || key.is_some_and(|v| !v.eq_ignore_ascii_case("true"))
    }

    /// Rows of the base: counted, or else those of its fragments, where all is measured.
    pub fn live_rows(&self) -> Option<u64> {
        let of_fragments = || total(self.fragments.as_ref()?.iter().map(|f| Some(f.rows.saturating_sub(f.deleted?))));
        self.rows.or_else(of_fragments)
    }

    /// The index that covers least of a shard, and how far it does: of equals the first by name.
    /// `None`: the table has no index. The table's `indexes` are the truth: an entry of `caught_up`
    /// for any other name is ignored, and an index without an entry covers nothing (R2.10).
    pub fn furthest_behind(&self, shard: &ShardFacts) -> Option<(&str, u64)> {
        self.indexes
            .iter()
            .map(|index| (index.name.as_str(), shard.covered_by(&index.name)))
            .min_by_key(|(name, covers)| (*covers, *name))
    }
}
