use alloc::{string::String, vec::Vec};
use serde::{Deserialize, Serialize};

/// One fragment of the base. A table may have a million: no field allocates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FragmentFacts {
    /// Fragment id. A table lists its fragments by ascending id.
    pub id: u64,
    /// Physical rows, deleted ones included.
    pub rows: u64,
    /// Deleted rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted: Option<u64>,
    /// Bytes of its data files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Number of the set of index segments that cover it; 0 for none. Fragments with different
    /// numbers are never rewritten together, as Lance demands.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub coverage: u32,
    /// Never rewritten: unreadable, pinned, or below an index that this build can't read.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub excluded: bool,
}

/// What is known of a table's cleanups (section 4), from the job history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CleanupFacts {
    /// The table wants none, whatever the deployment says (R4.1). The config key
    /// `caretaker.cleanup.enabled = false` says the same.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub opted_out: bool,
    /// The last cleanup that succeeded. A failed, cancelled or timed-out one never moves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success: Option<CleanupSuccess>,
    /// When the last failed attempt ended, milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure_at_ms: Option<u64>,
}

/// A cleanup that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CleanupSuccess {
    /// The table's version when it started: distance is measured from here (R4.2).
    pub start_version: u64,
    /// When it ended, milliseconds since the epoch.
    pub finished_at_ms: u64,
    /// The table's version when it ended. A lower one now means that the table was put back (R4.2).
    pub recorded_version: u64,
}

/// Rewrites whose index entries were not remapped yet: what the fragment reuse index holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RemapFacts {
    /// Recorded rewrites.
    pub rewrites: u64,
    /// When the oldest of them was recorded, milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_at_ms: Option<u64>,
    /// Indexes that still need them, in any order. None left: the list only waits to be trimmed.
    #[serde(default)]
    pub indexes: Vec<String>,
}

/// An open job of the table, as the Job Registry has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RunningFacts {
    /// [`crate::job::JobSpec::kind`].
    pub kind: String,
    /// Since when it is open, milliseconds since the epoch.
    pub since_ms: u64,
    /// Who holds it, for people (a job id, a worker).
    pub holder: String,
    /// A compaction that leaves remapping for later; `false` also where nobody knows.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub deferred: bool,
    /// Indexes that an index job works on. Empty: all of its type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<String>,
}

/// Jobs of one kind that failed, none of which has succeeded since.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FailedFacts {
    /// [`crate::job::JobSpec::kind`].
    pub kind: String,
    /// How many in a row.
    pub times: u64,
    /// When the last one ended, milliseconds since the epoch.
    pub last_at_ms: u64,
}

/// Answers were compared before and after a job, and were not the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MismatchFacts {
    /// [`crate::job::JobSpec::kind`].
    pub kind: String,
    /// When it was found, milliseconds since the epoch.
    pub at_ms: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}
