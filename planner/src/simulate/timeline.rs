//! What a simulation answers.

use alloc::{collections::BTreeMap, string::String, vec::Vec};
use serde::{Deserialize, Serialize};

use super::faults::Fault;
use crate::facts::TableFacts;
use crate::plan::{Decision, Plan, Reason};
use crate::policy::Lint;

/// One table over time. All times are milliseconds since the start, but those in `facts` and `plan`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Timeline {
    /// When it starts, milliseconds since the epoch.
    pub start_ms: u64,
    /// How long it lasts.
    pub duration_ms: u64,
    /// The seed that it was made with.
    pub seed: u64,
    /// The series, in columns of equal length.
    pub samples: Samples,
    /// Jobs by the time they were enqueued: the first ones and the last ones.
    pub jobs: Vec<JobRecord>,
    /// How many jobs between them are not listed, by kind.
    pub jobs_left_out: BTreeMap<String, u64>,
    /// The faults that it was made with, by time.
    pub faults: Vec<Fault>,
    /// Sums and distributions over the whole time.
    pub totals: Totals,
    /// Remarks on the policy, by itself and held against the table at the end.
    pub lint: Vec<Lint>,
    /// The table at the end.
    pub facts: TableFacts,
    /// What is to be done at the end.
    pub plan: Plan,
}

/// The series. Entry `i` stands for the time from `at_ms[i] - every_ms` to `at_ms[i]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Samples {
    /// Length of one entry.
    pub every_ms: u64,
    /// End of each entry.
    pub at_ms: Vec<u64>,
    /// SSTables not folded, all shards together; the most in the entry.
    pub unfolded: Vec<u64>,
    /// Their bytes; the most in the entry.
    pub unfolded_bytes: Vec<u64>,
    /// The same by shard; of many shards the first 32.
    pub shards: Vec<ShardSamples>,
    /// How old the oldest row is that a reader of the base alone does not see; the most in the entry.
    pub staleness_ms: Vec<u64>,
    /// Rows that the index furthest behind does not cover; the most in the entry.
    pub unindexed_rows: Vec<u64>,
    /// Rows of the base, without deleted ones; at the end of the entry, as those below.
    pub base_rows: Vec<u64>,
    /// Fragments; the most in the entry.
    pub fragments: Vec<u64>,
    /// Small fragments; the most in the entry.
    pub small_fragments: Vec<u64>,
    /// Deleted rows that fragments still hold; the most in the entry.
    pub deleted_rows: Vec<u64>,
    /// Versions that are retained.
    pub versions: Vec<u64>,
    /// Bytes on storage: base, indexes, SSTables, logs, and what nothing needs any more.
    pub disk_bytes: Vec<u64>,
    /// Those of them that only old versions need, or nothing.
    pub garbage_bytes: Vec<u64>,
    /// Jobs that run; the most in the entry.
    pub running: Vec<u64>,
    /// Jobs that wait; the most in the entry.
    pub queued: Vec<u64>,
    /// How long writes were held; the sum over the entry.
    pub stalled_ms: Vec<u64>,
}

/// One shard's series.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ShardSamples {
    /// Shard id.
    pub shard: String,
    /// SSTables not folded; the most in the entry.
    pub unfolded: Vec<u64>,
    /// Their bytes; the most in the entry.
    pub unfolded_bytes: Vec<u64>,
}

/// What became of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum JobOutcome {
    /// It waits or runs at the end.
    Open,
    /// It did its work.
    Done,
    /// It failed.
    Failed,
    /// Something else was committed first: superseded, and planned anew.
    Conflict,
}

/// One job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct JobRecord {
    /// Number of the job, from 1.
    pub id: u64,
    /// [`crate::job::JobSpec::kind`].
    pub kind: String,
    /// The decision behind it.
    pub decision: Decision,
    /// The shard, where it works on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
    /// When it was enqueued.
    pub enqueued_ms: u64,
    /// When its last attempt began. `None`: it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ms: Option<u64>,
    /// When it ended. `None`: it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// What became of it.
    pub outcome: JobOutcome,
    /// Attempts; more than one where a worker died.
    pub attempts: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Why: the comparison that made it due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<Reason>,
}

/// Jobs of one kind together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct KindTotals {
    /// Jobs that did their work.
    pub done: u64,
    /// Jobs that failed.
    pub failed: u64,
    /// Jobs that were superseded.
    pub conflicts: u64,
    /// Attempts that died with their worker.
    pub lost: u64,
    /// Jobs that wait or run at the end.
    pub open: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Time in which they ran, together.
    pub busy_ms: u64,
}

/// A distribution, milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// Half is at most this.
    pub p50: u64,
    /// 99 of a hundred are at most this.
    pub p99: u64,
    /// The most.
    pub max: u64,
}

/// How stale a reader of the base alone is (R2.14).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Staleness {
    /// Over all moments, milliseconds.
    pub over_time: Spread,
    /// What R2.14 promises: twice the age bound and one tick. `None`: nothing, since the walk is off.
    pub bound_ms: Option<u64>,
    /// What comes on top of it: the longest fold, from being enqueued to its end.
    pub longest_fold_ms: u64,
    /// Whether it was ever above both together. Only waiting for a slot, faults and failures do that.
    pub above: bool,
}

/// Sums and distributions over the whole time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Totals {
    /// Rows written by clients: inserts, updates and deletes.
    pub rows: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Rows of them that are in a memtable, or in a write that is not full, at the end.
    pub memtable_rows: u64,
    /// Memtables that became SSTables.
    pub flushes: u64,
    /// Commits of clients, where there is no log.
    pub commits: u64,
    /// Passes: commits of folds. Shards that are folded together are one.
    pub passes: u64,
    /// SSTables folded.
    pub folded: u64,
    /// By kind of job.
    pub jobs: BTreeMap<String, KindTotals>,
    /// Bytes written: by kind of job, and as `wal`, `flush` and `commit` by clients.
    pub written_bytes: BTreeMap<String, u64>,
    /// Bytes written for a thousand bytes that clients wrote.
    pub write_amplification_permille: u64,
    /// Bytes on storage for a thousand bytes of live rows in base and SSTables, at the end.
    pub space_amplification_permille: u64,
    /// How stale a reader of the base alone is.
    pub staleness: Staleness,
    /// How long jobs waited until they began.
    pub queue_wait: Spread,
    /// Jobs that failed.
    pub failures: u64,
    /// How long writes were held.
    pub stalled_ms: u64,
    /// The most SSTables of a shard that were not folded.
    pub unfolded_max: u64,
    /// Versions that are retained at the end.
    pub versions: u64,
    /// Evaluations: how often a plan was made.
    pub evaluations: u64,
    /// Steps of the simulation.
    pub steps: u64,
}
