//! Work as data. A spec names what it touches by identity (generations, paths, index names),
//! never by position, and carries no time and no id (R3.6): the executor checks it against the
//! table as it is when the job runs.

use alloc::{format, string::String, vec::Vec};
use serde::{Deserialize, Serialize};

use crate::facts::GarbageKind;

/// An SSTable by identity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SsTableId {
    /// Generation.
    pub generation: u64,
    /// Folder name below the shard.
    pub path: String,
}

/// A file to delete, by identity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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
}

impl JobSpec {
    /// The job's type as the Job Registry and the logs show it: `memwal_compaction`,
    /// `memwal_catchup_<type>`, `memwal_retire`, `memwal_collect`.
    pub fn kind(&self) -> String {
        match self {
            Self::Fold { .. } => "memwal_compaction".into(),
            Self::Retire { .. } => "memwal_retire".into(),
            Self::CatchUp { kind, .. } => format!("memwal_catchup_{kind}"),
            Self::Collect { .. } => "memwal_collect".into(),
        }
    }

    /// The shard it works on, if it works on one.
    pub fn shard(&self) -> Option<&str> {
        match self {
            Self::Fold { shard, .. } | Self::Retire { shard, .. } | Self::Collect { shard, .. } => Some(shard),
            Self::CatchUp { .. } => None,
        }
    }
}
