//! What a decision answers, and the two functions that ask every decision.

use alloc::{string::String, vec::Vec};
use serde::{Deserialize, Serialize};

use crate::job::JobSpec;

/// The decisions, in the order their work runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Extend indexes over folded rows (R2.11; first of R3.4).
    WalCatchup,
    /// Fold a prefix of SSTables into the base (section 2).
    Fold,
    /// Take folded SSTables off the list (R2.10).
    Retire,
    /// Delete what nothing needs (R2.15).
    Collect,
}

/// What was compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// SSTables not folded yet.
    SsTables,
    /// Bytes of SSTables not folded yet.
    SsTableBytes,
    /// Age of the oldest SSTable not folded yet, milliseconds.
    SsTableAgeMs,
    /// SSTables forced by hand, whatever the triggers say (R2.4).
    Forced,
    /// SSTables folded but still listed.
    FoldedListed,
    /// Generation an index (or every index) covers against the compacted one.
    CaughtUpGeneration,
    /// Age of the youngest garbage that is due, or of the oldest that is not, milliseconds.
    GarbageAgeMs,
    /// Generation a retained base version still needs.
    RetainedGeneration,
    /// Files that wait for deletion.
    Files,
}

/// One comparison behind a verdict: what was seen, against what (R3.5).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    /// What was compared.
    pub measure: Measure,
    /// The observed value; `None` says "unmeasured", which crosses nothing (R2.2).
    pub observed: Option<u64>,
    /// The threshold it was compared with.
    pub threshold: Option<u64>,
    /// Whose value it is (an index, a version, a holder), where that helps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
}

/// What keeps due work from running.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "by", deny_unknown_fields)]
pub enum Hold {
    /// A pass runs on the shard already (R2.12).
    Pass {
        /// Who holds it.
        holder: String,
        /// Since when, milliseconds since the epoch.
        since_ms: u64,
    },
    /// An index has not caught up (R2.10).
    Index {
        /// The index furthest behind.
        index: String,
    },
    /// A retained version, tag or branch of the base needs the files (R2.15).
    Retained {
        /// What is retained.
        version: String,
    },
    /// The shard is being dropped (R2.15).
    Sealed,
    /// The table is paused.
    Paused,
    /// The table has SSTables but no primary key to fold by.
    NoPrimaryKey,
}

/// A decision's answer. The first reason of a due verdict is the one that made it due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome", deny_unknown_fields)]
pub enum Outcome {
    /// These jobs should run now.
    Due {
        /// The work.
        jobs: Vec<JobSpec>,
        /// Why, the deciding comparison first.
        reasons: Vec<Reason>,
    },
    /// Nothing to do.
    NotDue {
        /// Every comparison made.
        reasons: Vec<Reason>,
        /// When time alone would make it due, milliseconds since the epoch.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        due_at_ms: Option<u64>,
    },
    /// Due, but something else goes first.
    Held {
        /// What.
        hold: Hold,
        /// Why it would be due, and what is compared with the hold.
        reasons: Vec<Reason>,
    },
    /// Switched off.
    Disabled {
        /// The knob that does it, by its settings-file key.
        knob: String,
    },
}

/// One decision's answer for one table or shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Which decision.
    pub decision: Decision,
    /// The shard, for a shard decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
    /// The answer.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Every verdict of one evaluation. A proposal: executing re-validates (R3.6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Table name.
    pub table: String,
    /// Base version of the facts.
    pub version: u64,
    /// The time the plan was made for, milliseconds since the epoch.
    pub at_ms: u64,
    /// The verdicts: table decisions, then each shard's in shard order.
    pub verdicts: Vec<Verdict>,
    /// Bound on the staleness of a base-only reader, milliseconds (R2.14). `None`: unbounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staleness_bound_ms: Option<u64>,
}

impl Plan {
    /// The due jobs, in verdict order.
    pub fn jobs(&self) -> impl Iterator<Item = &JobSpec> {
        self.verdicts.iter().flat_map(|v| match &v.outcome {
            Outcome::Due { jobs, .. } => jobs.as_slice(),
            _ => &[],
        })
    }
}
