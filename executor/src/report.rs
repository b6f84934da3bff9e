//! What was done, for people and for `--json`.

use planner::facts::TableFacts;
use planner::plan::{Decision, Hold, Outcome, Plan};
use serde::Serialize;

use crate::answers::Answers;
use crate::error::Error;
use crate::run::cleanup::CleanupReport;
use crate::run::compact::CompactReport;
use crate::run::fold::FoldReport;

/// One job that ran, or was refused.
#[derive(Clone, Debug, Serialize)]
pub struct JobReport {
    /// Job type, as in the Job Registry: `memwal_compaction`, …
    pub job: String,
    /// What it worked on: shards or indexes.
    pub on: Vec<String>,
    /// Wall time, milliseconds.
    pub millis: u64,
    /// What came of it.
    #[serde(flatten)]
    pub end: JobEnd,
    /// The table's answers around it, where they were compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answers: Option<Answers>,
}

impl JobReport {
    /// A job whose answers were not compared.
    pub fn new(job: impl Into<String>, on: Vec<String>, millis: u64, end: JobEnd) -> Self {
        Self { job: job.into(), on, millis, end, answers: None }
    }
}

/// How a job ended.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "end")]
pub enum JobEnd {
    /// Rows moved into the base.
    Folded(FoldReport),
    /// Indexes extended.
    CaughtUp,
    /// SSTables taken off the list.
    Retired {
        /// How many.
        sstables: u64,
    },
    /// Files deleted.
    Collected {
        /// How many.
        files: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// Indexes brought up to date.
    Indexed,
    /// Fragments rewritten.
    Compacted(CompactReport),
    /// Old versions removed.
    Cleaned(CleanupReport),
    /// Index entries remapped, and the list of rewrites trimmed.
    Remapped,
    /// A part of a job, done: its job has to commit it yet.
    Part {
        /// What it wrote.
        output: serde_json::Value,
    },
    /// An earlier attempt had done it, and its worker died before it said so.
    Recovered {
        /// The version it committed.
        version: u64,
    },
    /// Somebody else did it first; nothing is wrong with the table.
    Superseded {
        /// Who and what.
        why: String,
    },
    /// A pass runs on the shard already.
    Busy {
        /// Who holds it.
        why: String,
    },
    /// It did not work out. Nothing was changed by it, but for kind `mismatch`: its work is committed,
    /// and changed what the table answers.
    Failed {
        /// The error's kind.
        kind: &'static str,
        /// What, why, and what to do.
        why: String,
    },
}

impl std::fmt::Display for JobEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Folded(r) => write!(
                f,
                "folded {} SSTables: {} rows new, {} changed, {} deleted, {} bytes written, version {}",
                r.sstables, r.rows_inserted, r.rows_updated, r.rows_deleted, r.bytes_written, r.version
            ),
            Self::CaughtUp => f.write_str("caught up"),
            Self::Retired { sstables } => write!(f, "retired {sstables} SSTables"),
            Self::Collected { files, bytes } => write!(f, "collected {files} files, {bytes} bytes"),
            Self::Indexed => f.write_str("indexed"),
            Self::Compacted(r) => write!(
                f,
                "compacted {} fragments into {}: {} rows, {} bytes written, version {}",
                r.fragments_removed, r.fragments_added, r.rows, r.bytes_written, r.version
            ),
            Self::Cleaned(r) => write!(f, "removed {} versions: {} files, {} bytes", r.versions, r.files, r.bytes),
            Self::Remapped => f.write_str("remapped"),
            Self::Part { .. } => f.write_str("done, to be committed with the other parts"),
            Self::Recovered { version } => write!(f, "an earlier attempt had done it, version {version}"),
            Self::Superseded { why } | Self::Busy { why } => f.write_str(why),
            Self::Failed { kind, why } => write!(f, "failed ({kind}): {why}"),
        }
    }
}

impl JobEnd {
    /// Whether it changed what the table answers.
    pub fn is_mismatch(&self) -> bool {
        matches!(self, Self::Failed { kind: "mismatch", .. })
    }

    /// What a part left to be committed.
    pub(crate) fn output(&self) -> Option<&serde_json::Value> {
        match self {
            Self::Part { output } => Some(output),
            _ => None,
        }
    }

    /// How it ended in one word, for the registry and for metrics.
    pub fn outcome(&self) -> &'static str {
        match self {
            Self::Superseded { .. } => "superseded",
            Self::Busy { .. } => "busy",
            Self::Failed { .. } => "failed",
            _ => "done",
        }
    }
}

impl From<Error> for JobEnd {
    fn from(error: Error) -> Self {
        match error {
            Error::Superseded(why) => Self::Superseded { why },
            Error::Conflict(why) => Self::Superseded { why: format!("superseded, another commit came first: {why}") },
            Error::Busy(why) => Self::Busy { why },
            other => Self::Failed { kind: other.kind(), why: other.to_string() },
        }
    }
}

/// A table's numbers at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    /// Version of the base.
    pub version: u64,
    /// Rows of the base.
    pub rows: Option<u64>,
    /// Fragments of the base.
    pub fragments: Option<u64>,
    /// Shards.
    pub shards: u64,
    /// SSTables not folded yet.
    pub unfolded: u64,
    /// SSTables folded but still listed.
    pub folded_listed: u64,
    /// Bytes of listed SSTables, as far as measured.
    pub sstable_bytes: u64,
}

impl From<&TableFacts> for Snapshot {
    fn from(facts: &TableFacts) -> Self {
        let listed = || facts.shards.iter().flat_map(|shard| shard.sstables.iter().map(move |s| (shard, s)));
        let unfolded = listed().filter(|(shard, s)| s.generation > shard.compacted_generation).count() as u64;
        Self {
            version: facts.version,
            rows: facts.rows,
            fragments: facts.fragments.as_ref().map(|fragments| fragments.len() as u64),
            shards: facts.shards.len() as u64,
            unfolded,
            folded_listed: listed().count() as u64 - unfolded,
            sstable_bytes: listed().filter_map(|(_, s)| s.bytes).sum(),
        }
    }
}

/// A shard whose fold is held.
#[derive(Clone, Debug, Serialize)]
pub struct Held {
    /// Shard id.
    pub shard: String,
    /// What holds it.
    #[serde(flatten)]
    pub hold: Hold,
}

/// The shards of a plan whose fold is held, each with what holds it.
pub fn fold_holds(plan: &Plan) -> Vec<Held> {
    let folds = plan.verdicts.iter().filter(|verdict| verdict.decision == Decision::Fold);
    let held = folds.filter_map(|verdict| match &verdict.outcome {
        Outcome::Held { hold, .. } => Some(Held { shard: verdict.shard.clone()?, hold: hold.clone() }),
        _ => None,
    });
    held.collect()
}

/// Everything one table went through.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TableReport {
    /// Table name.
    pub table: String,
    /// Before the first job.
    pub before: Option<Snapshot>,
    /// After the last one.
    pub after: Option<Snapshot>,
    /// The jobs, in the order they ran.
    pub jobs: Vec<JobReport>,
    /// Shards whose fold is held after the last job, and by what.
    pub held: Vec<Held>,
    /// Keys of the table's config that can't be followed, and why.
    pub complaints: Vec<String>,
    /// Why the table could not be evaluated, if so.
    pub error: Option<String>,
    /// Wall time, milliseconds.
    pub millis: u64,
}

impl TableReport {
    /// Whether something of this table needs a person.
    pub fn failed(&self) -> bool {
        self.error.is_some() || self.jobs.iter().any(|j| matches!(j.end, JobEnd::Failed { .. }))
    }
}
