use serde::{Deserialize, Serialize};

use super::{GIB, MIB};
use crate::time::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS};

/// Index operations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct IndexPolicy {
    /// Fewest unindexed rows that make one due.
    pub rows_min: u64,
    /// Thousandths of the table's rows, where that is more.
    pub permille: u64,
    /// Age of the oldest unindexed row that makes one due.
    pub age_ms_max: u64,
    /// Segments that stay unmerged.
    pub segments_max: u64,
}

/// Compaction of the base.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct CompactionPolicy {
    /// Small fragments that must go.
    pub small_min: u64,
    /// Bytes a fragment should have.
    pub target_bytes: u64,
    /// Rows a fragment should have at most.
    pub target_rows: u64,
    /// Thousandths of a fragment's rows; more deleted ones are materialized.
    pub deleted_permille: u64,
    /// Most fragments one job rewrites.
    pub fragments_max: u64,
    /// Most bytes one job rewrites; the first task is taken whatever its size.
    pub job_bytes: u64,
    /// 1: index entries are remapped later, where Lance allows it. 0: in the commit of the rewrite.
    pub defer_remap: u64,
}

/// Cleanup of old versions (section 4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct CleanupPolicy {
    /// Versions at least this old may go; 0: cleanup is off (R4.1).
    pub min_age_ms: u64,
    /// Versions since the start of the last success (R4.2).
    pub version_interval: u64,
    /// Time since the end of the last success (R4.2).
    pub interval_ms: u64,
    /// Version before which a table is never cleaned (R4.3).
    pub initial_version: u64,
    /// How long a failed attempt waits (R4.4).
    pub retry_delay_ms: u64,
    /// Newest versions that stay whatever their age.
    pub retain_versions: u64,
    /// Most deletions a second; 0: no limit.
    pub delete_rate_max: u64,
}

/// Catch-up of deferred remaps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RemapPolicy {
    /// Recorded rewrites that make it due.
    pub rewrites_min: u64,
    /// Age of the oldest that makes it due.
    pub age_ms_max: u64,
}

/// How tables take turns (R3.1, R3.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct AgentPolicy {
    /// Period of admission.
    pub tick_ms: u64,
    /// Every owned table is evaluated this often.
    pub sweep_ms: u64,
    /// Tables evaluated per tick, and at once.
    pub budget: u64,
    /// First wait after a failure.
    pub backoff_ms: u64,
    /// An evaluation that takes longer has failed.
    pub timeout_ms: u64,
}

impl AgentPolicy {
    /// How long after the last of `times` failures in a row the next try waits: doubling, up to the
    /// sweep's interval.
    pub fn backoff_after(&self, times: u64) -> u64 {
        let doublings = u32::try_from(times.saturating_sub(1)).unwrap_or(u32::MAX);
        let factor = 1u64.checked_shl(doublings).unwrap_or(u64::MAX);
        if times == 0 { 0 } else { self.backoff_ms.saturating_mul(factor).min(self.sweep_ms) }
    }
}

impl Default for IndexPolicy {
    fn default() -> Self {
        Self { rows_min: 100_000, permille: 100, age_ms_max: DAY_MS, segments_max: 8 }
    }
}

impl Default for CompactionPolicy {
    fn default() -> Self {
        Self {
            small_min: 4,
            target_bytes: 512 * MIB,
            target_rows: 1 << 20,
            deleted_permille: 100,
            fragments_max: 100_000,
            job_bytes: 64 * GIB,
            defer_remap: 0,
        }
    }
}

impl Default for CleanupPolicy {
    fn default() -> Self {
        Self {
            min_age_ms: 0,
            version_interval: 20,
            interval_ms: DAY_MS,
            initial_version: 20,
            retry_delay_ms: MINUTE_MS,
            retain_versions: 0,
            delete_rate_max: 0,
        }
    }
}

impl Default for RemapPolicy {
    fn default() -> Self {
        Self { rewrites_min: 8, age_ms_max: HOUR_MS }
    }
}

impl Default for AgentPolicy {
    fn default() -> Self {
        Self { tick_ms: SECOND_MS, sweep_ms: 10 * MINUTE_MS, budget: 64, backoff_ms: MINUTE_MS, timeout_ms: MINUTE_MS }
    }
}
