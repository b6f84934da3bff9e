//! Work as data. A spec names what it touches by identity (generations, paths, index names),
//! never by position, and carries no time and no id (R3.6): the executor checks it against the
//! table as it is when the job runs.

use alloc::{format, string::String, vec::Vec};
use serde::{Deserialize, Serialize};

use crate::facts::GarbageKind;

/// An SSTable by identity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SsTableId {
    /// Generation.
    pub generation: u64,
    /// Folder name below the shard.
    pub path: String,
}

/// A file to delete, by identity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GarbageId {
    /// What kind of file it is.
    pub kind: GarbageKind,
    /// Path below the shard.
    pub path: String,
    /// Generation, entry position or version the path stands for.
    pub position: u64,
}

/// One piece of work.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "job", deny_unknown_fields)]
pub enum JobSpec {
    /// Move a prefix of a shard's SSTables into the base (R2.7 to R2.9).
    Fold {
        /// Shard id.
        shard: String,
        /// The prefix, oldest first.
        sstables: Vec<SsTableId>,
        /// Their bytes, where all are measured.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bytes: Option<u64>,
    },
    /// Take folded SSTables off the shard manifest's list (R2.10).
    Retire {
        /// Shard id.
        shard: String,
        /// What leaves the list, oldest first.
        sstables: Vec<SsTableId>,
    },
    /// Extend every index of one type over folded rows (R2.11).
    CatchUp {
        /// Index type, as in [`crate::facts::IndexFacts::kind`].
        kind: String,
        /// Index names, sorted.
        indexes: Vec<String>,
    },
    /// Delete files nothing needs any more (R2.15).
    Collect {
        /// Shard id.
        shard: String,
        /// What to delete, oldest first within a kind.
        files: Vec<GarbageId>,
        /// Their bytes.
        bytes: u64,
    },
    /// Bring indexes of one type up to date (second of R3.4).
    Index {
        /// Index type, as in [`crate::facts::IndexFacts::kind`].
        kind: String,
        /// Index names, sorted.
        indexes: Vec<String>,
        /// How.
        op: IndexOp,
    },
    /// Rewrite neighbouring fragments (third of R3.4).
    Compact {
        /// Each task's fragment ids, ascending; a task becomes `max(1, rows / target_rows)` fragments.
        tasks: Vec<Vec<u64>>,
        /// Whether index entries are remapped later.
        deferred: bool,
        /// The version the ids were read from.
        read_version: u64,
        /// Lance's `target_rows_per_fragment` for these tasks.
        target_rows: u64,
        /// What should come out.
        predicted: Predicted,
    },
    /// Remove old versions (R4.5).
    Cleanup {
        /// Versions younger than this stay, milliseconds.
        min_age_ms: u64,
        /// The newest versions that stay whatever their age; 0: age alone decides.
        retain_versions: u64,
        /// Most deletions a second; 0: no limit.
        delete_rate_max: u64,
        /// The version it starts from.
        read_version: u64,
    },
    /// Remap entries that deferred compactions left, then trim the list (fifth of R3.4).
    Remap {
        /// Index names, sorted. Empty: only trim.
        indexes: Vec<String>,
    },
}

/// How an index is brought up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum IndexOp {
    /// A segment more, over the rows that none covers.
    Append,
    /// All segments into one, those rows included.
    Merge,
    /// Built anew, since entries were withdrawn.
    Reindex,
}

/// What a compaction should leave in the place of its fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Predicted {
    /// Fragments.
    pub fragments: u64,
    /// Rows: exactly these, or the rewrite lost or doubled some. `None` where deletions are unmeasured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// Bytes, about. `None` where no size is measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

impl JobSpec {
    /// The job's type as the Job Registry and the logs show it: `memwal_compaction`,
    /// `memwal_catchup_<type>`, `memwal_retire`, `memwal_collect`, `reindex_<type>`, `compact`,
    /// `cleanup`, `remap`.
    pub fn kind(&self) -> String {
        match self {
            Self::Fold { .. } => "memwal_compaction".into(),
            Self::Retire { .. } => "memwal_retire".into(),
            Self::CatchUp { kind, .. } => format!("memwal_catchup_{kind}"),
            Self::Collect { .. } => "memwal_collect".into(),
            Self::Index { kind, .. } => format!("reindex_{}", algorithm(kind)),
            Self::Compact { .. } => "compact".into(),
            Self::Cleanup { .. } => "cleanup".into(),
            Self::Remap { .. } => "remap".into(),
        }
    }

    /// The shard it works on, if it works on one.
    pub fn shard(&self) -> Option<&str> {
        match self {
            Self::Fold { shard, .. } | Self::Retire { shard, .. } | Self::Collect { shard, .. } => Some(shard),
            Self::CatchUp { .. }
            | Self::Index { .. }
            | Self::Compact { .. }
            | Self::Cleanup { .. }
            | Self::Remap { .. } => None,
        }
    }
}

/// The public job types spell vector indexes apart (`reindex_ivf_pq`) where those of catch-up do not
/// (`memwal_catchup_ivfpq`).
fn algorithm(kind: &str) -> String {
    match kind.strip_prefix("ivf") {
        Some(rest) if !rest.is_empty() && !rest.starts_with('_') => format!("ivf_{rest}"),
        _ => kind.into(),
    }
}
