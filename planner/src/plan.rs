//! What a decision answers, and the two functions that ask every decision.

use alloc::{string::String, vec::Vec};
use serde::{Deserialize, Serialize};

use crate::facts::{ShardFacts, TableFacts};
use crate::job::JobSpec;
use crate::policy::Policy;
use crate::{decision, gate, staleness};

/// Why the plan is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// The periodic walk (R2.1): off when its period is 0.
    #[default]
    Tick,
    /// A write-backpressure relief pass re-checks the same triggers (R2.3).
    Relief,
    /// An operator or a client wants everything folded, whatever the triggers say (R2.4).
    Forced,
}

/// What one shard decision looks at.
pub(crate) struct Case<'a> {
    pub(crate) table: &'a TableFacts,
    pub(crate) shard: &'a ShardFacts,
    pub(crate) policy: &'a Policy,
    pub(crate) now_ms: u64,
    pub(crate) trigger: Trigger,
}

/// Every verdict for a table: the table's decisions, then each shard's in shard order.
///
/// Total: any facts give a plan, also facts that [`crate::check::facts`] would refuse.
pub fn plan_table(facts: &TableFacts, policy: &Policy, now_ms: u64, trigger: Trigger) -> Plan {
    let mut verdicts = Vec::with_capacity(1 + facts.shards.len() * decision::SHARD.len());
    verdicts.push(Verdict {
        decision: Decision::WalCatchup,
        shard: None,
        outcome: decision::wal_catchup::decide(facts),
    });
    let mut shards: Vec<&ShardFacts> = facts.shards.iter().collect();
    shards.sort_by(|a, b| a.shard.cmp(&b.shard));
    let mut staleness_bound_ms = Some(0);
    for shard in shards {
        let planned = plan_shard(facts, shard, policy, now_ms, trigger);
        let bound = planned.first().and_then(|fold| staleness::bound_ms(facts, shard, fold, policy));
        staleness_bound_ms = staleness_bound_ms.zip(bound).map(|(a, b)| a.max(b));
        verdicts.extend(planned);
    }
    Plan { table: facts.table.clone(), version: facts.version, at_ms: now_ms, verdicts, staleness_bound_ms }
}

/// A shard's verdicts: fold, retire, collect. `shard` belongs to `facts`.
pub fn plan_shard(
    facts: &TableFacts,
    shard: &ShardFacts,
    policy: &Policy,
    now_ms: u64,
    trigger: Trigger,
) -> Vec<Verdict> {
    let case = Case { table: facts, shard, policy, now_ms, trigger };
    decision::SHARD
        .iter()
        .map(|(decision, decide)| Verdict {
            decision: *decision,
            shard: Some(shard.shard.clone()),
            outcome: gate::pass(*decision, &case, decide(&case)),
        })
        .collect()
}

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
    /// Time since the base recorded the fold or the last catch-up, milliseconds.
    FoldAgeMs,
    /// Generation an index (or every index) covers against the compacted one.
    CaughtUpGeneration,
    /// Age of the youngest garbage that is due, or of the oldest that is not, milliseconds.
    GarbageAgeMs,
    /// Generation a retained base version still needs.
    RetainedGeneration,
    /// Files that wait for deletion.
    Files,
    /// Indexes that do not cover every folded generation.
    IndexesBehind,
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
    /// The table has no MemWAL index that could record progress; its SSTables are left as they are.
    Detached,
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
#[serde(deny_unknown_fields)]
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

impl Reason {
    /// A comparison of a measured value.
    pub(crate) fn new(measure: Measure, observed: impl Into<Option<u64>>, threshold: u64) -> Self {
        Self { measure, observed: observed.into(), threshold: Some(threshold), subject: None }
    }

    /// The same, with whose value it is.
    pub(crate) fn of(self, subject: impl Into<String>) -> Self {
        Self { subject: Some(subject.into()), ..self }
    }

    /// Whether the observed value reaches the threshold. Unmeasured reaches nothing (R2.2).
    pub fn crosses(&self) -> bool {
        matches!((self.observed, self.threshold), (Some(o), Some(t)) if o >= t)
    }
}
