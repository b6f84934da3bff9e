//! What a decision answers, and the two functions that ask every decision.

use alloc::{string::String, vec::Vec};
use serde::{Deserialize, Serialize};

use crate::facts::{ShardFacts, TableFacts};
use crate::job::JobSpec;
use crate::policy::{Policy, Refused, TablePolicy};
use crate::{decision, gate, staleness};

/// Why the plan is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

/// What one table decision looks at.
pub(crate) struct TableCase<'a> {
    pub(crate) table: &'a TableFacts,
    /// [`TableFacts::live_rows`], counted once.
    pub(crate) rows: Option<u64>,
    pub(crate) policy: &'a Policy,
    pub(crate) now_ms: u64,
}

/// Every verdict for a table: the table's decisions (R3.4), then each shard's in shard order. The
/// table's own overrides of the policy are followed.
///
/// Total: any facts give a plan, also facts that [`crate::check::facts`] would refuse.
pub fn plan_table(facts: &TableFacts, policy: &Policy, now_ms: u64, trigger: Trigger) -> Plan {
    let TablePolicy { policy, complaints } = policy.for_table(&facts.overrides);
    let case = TableCase { table: facts, rows: facts.live_rows(), policy: &policy, now_ms };
    let mut outcomes = decision::TABLE.map(|(decision, decide)| (decision, decide(&case)));
    gate::table(&case, &mut outcomes);
    let of_table = |(decision, outcome)| Verdict { decision, shard: None, outcome };
    let mut verdicts: Vec<Verdict> = outcomes.into_iter().map(of_table).collect();
    let mut shards: Vec<&ShardFacts> = facts.shards.iter().collect();
    shards.sort_by(|a, b| a.shard.cmp(&b.shard));
    let mut staleness_bound_ms = Some(0);
    for shard in shards {
        let planned = shard_verdicts(&Case { table: facts, shard, policy: &policy, now_ms, trigger });
        let bound = planned.first().and_then(|fold| staleness::bound_ms(facts, shard, fold, &policy));
        staleness_bound_ms = staleness_bound_ms.zip(bound).map(|(a, b)| a.max(b));
        verdicts.extend(planned);
    }
    let (table, version) = (facts.table.clone(), facts.version);
    Plan { table, version, at_ms: now_ms, verdicts, staleness_bound_ms, complaints }
}

/// A shard's verdicts: fold, retire, collect. `shard` belongs to `facts`.
pub fn plan_shard(
    facts: &TableFacts,
    shard: &ShardFacts,
    policy: &Policy,
    now_ms: u64,
    trigger: Trigger,
) -> Vec<Verdict> {
    let policy = policy.for_table(&facts.overrides).policy;
    shard_verdicts(&Case { table: facts, shard, policy: &policy, now_ms, trigger })
}

/// The cleanup that somebody asks for by hand: by the table's own policy, whatever the triggers of R4.2
/// to R4.4 say. `None`: no minimum age of versions is set (R4.1). Whether the table wants any is
/// [`crate::check::job`]'s to say.
pub fn cleanup_job(facts: &TableFacts, policy: &Policy) -> Option<JobSpec> {
    let policy = policy.for_table(&facts.overrides).policy;
    (policy.cleanup.min_age_ms > 0).then(|| decision::cleanup::job(facts, &policy.cleanup))
}

fn shard_verdicts(case: &Case<'_>) -> Vec<Verdict> {
    decision::SHARD
        .iter()
        .map(|(decision, decide)| Verdict {
            decision: *decision,
            shard: Some(case.shard.shard.clone()),
            outcome: gate::pass(*decision, case, decide(case)),
        })
        .collect()
}

/// The decisions, in the order their work runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Extend indexes over folded rows (R2.11; first of R3.4).
    WalCatchup,
    /// Bring indexes up to date (second of R3.4).
    Index,
    /// Rewrite small fragments and deleted rows (third).
    Compaction,
    /// Remove old versions (fourth; section 4).
    Cleanup,
    /// Remap what deferred compactions left (fifth).
    Remap,
    /// Fold a prefix of SSTables into the base (section 2).
    Fold,
    /// Take folded SSTables off the list (R2.10).
    Retire,
    /// Delete what nothing needs (R2.15).
    Collect,
}

/// What was compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// An index whose entries a compaction withdrew.
    Withdrawn,
    /// Rows that no segment of an index covers.
    UnindexedRows,
    /// Age of the oldest of them, milliseconds.
    UnindexedAgeMs,
    /// Segments of an index.
    Segments,
    /// Small fragments that worthwhile rewrites remove.
    SmallFragments,
    /// Share of deleted rows of the worst fragment, thousandths, rounded up.
    DeletedPermille,
    /// Rows a fragment should have, by the measured bytes per row, against Lance's own target.
    TargetRows,
    /// Fragments that are no rewrite's gain: what came out would be a candidate again at once.
    VetoedFragments,
    /// Fragments that may not be rewritten.
    ExcludedFragments,
    /// A table's version before its first cleanup (R4.3).
    InitialVersion,
    /// Versions since the start of the last successful cleanup (R4.2).
    VersionsSince,
    /// Time since the end of the last successful cleanup, milliseconds (R4.2).
    CleanupAgeMs,
    /// The version that the last successful cleanup recorded, against one more than the current one (R4.2).
    RecordedVersion,
    /// Time since the last failed cleanup, milliseconds (R4.4).
    FailureAgeMs,
    /// Rewrites that were recorded and not remapped.
    Rewrites,
    /// Age of the oldest of them, milliseconds.
    RewriteAgeMs,
}

/// One comparison behind a verdict: what was seen, against what (R3.5).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// A job changed the table's answers, and nobody has looked at it yet.
    Mismatch {
        /// The job's type.
        kind: String,
        /// When it was found, milliseconds since the epoch.
        at_ms: u64,
    },
    /// A shallow clone reads files of the table, which cleanup knows nothing of.
    Clone {
        /// The clone.
        table: String,
    },
    /// The table has SSTables but no primary key to fold by.
    NoPrimaryKey,
    /// The same work is open already.
    Running {
        /// The open job's type.
        kind: String,
        /// Who holds it.
        holder: String,
        /// Since when, milliseconds since the epoch.
        since_ms: u64,
    },
    /// A compaction that can't defer its remap is due in this evaluation, or runs (second of R3.4).
    Compaction {
        /// Who holds the one that runs; `None`: it is due in this evaluation.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        holder: Option<String>,
        /// Since when it runs, milliseconds since the epoch.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since_ms: Option<u64>,
    },
    /// Moves of earlier compactions wait for their remap, and this one would lose their index entries.
    Remap {
        /// Recorded rewrites.
        rewrites: u64,
    },
    /// Catch-up extends the index in this evaluation.
    CatchUp {
        /// The index.
        index: String,
    },
    /// Jobs of this kind keep failing, and the next try waits.
    Failing {
        /// The job's type.
        kind: String,
        /// How many failed in a row.
        times: u64,
        /// When the next may try, milliseconds since the epoch.
        until_ms: u64,
    },
}

/// A decision's answer. The first reason of a due verdict is the one that made it due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
        /// The knob that does it, by its settings-file key, or the key of the table's config.
        knob: String,
    },
}

/// One decision's answer for one table or shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// Keys of the table's config that could not be followed, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub complaints: Vec<Refused>,
}

impl Plan {
    /// The due jobs, in verdict order.
    pub fn jobs(&self) -> impl Iterator<Item = &JobSpec> {
        self.verdicts.iter().flat_map(|v| match &v.outcome {
            Outcome::Due { jobs, .. } => jobs.as_slice(),
            _ => &[],
        })
    }

    /// Whether no shard has an SSTable that is not folded.
    pub fn has_folded_everything(&self) -> bool {
        let none = |reason: &Reason| reason.measure == Measure::SsTables && reason.observed == Some(0);
        self.verdicts
            .iter()
            .filter(|verdict| verdict.decision == Decision::Fold)
            .all(|verdict| matches!(&verdict.outcome, Outcome::NotDue { reasons, .. } if reasons.iter().any(none)))
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
