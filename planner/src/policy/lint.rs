//! Values that are legal, and probably not meant: what the policy alone shows. What a table shows beside
//! it is [`crate::lint`]'s.

use alloc::{format, string::String, vec::Vec};
use serde::{Deserialize, Serialize};

use super::{Knob, MIB, Policy};
use crate::draw::duration;
use crate::time::HOUR_MS;

/// No SSTable is as small: a Lance file without a row is larger.
const SSTABLE_BYTES_MIN: u64 = 256;
/// Fragments of fewer rows are more manifest than data.
const FRAGMENT_ROWS_MIN: u64 = 1_000;

/// A remark on a knob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Lint {
    /// The knob's key, or the key of a table's config.
    pub key: String,
    /// What follows from its value.
    pub why: String,
}

/// Remarks on a policy, as they are found.
pub(crate) struct Remarks<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) found: Vec<Lint>,
}

impl<'a> Remarks<'a> {
    pub(crate) fn on(policy: &'a Policy) -> Self {
        Self { policy, found: Vec::new() }
    }

    /// A knob's value as it is written.
    pub(crate) fn text(&self, key: &str) -> String {
        Knob::named(key).map(|knob| knob.text(self.policy)).unwrap_or_default()
    }

    pub(crate) fn note(&mut self, odd: bool, key: &str, why: impl FnOnce(&Self) -> String) {
        if odd {
            let why = why(self);
            self.found.push(Lint { key: key.into(), why });
        }
    }
}

impl Policy {
    /// Remarks on values that are legal but odd. The defaults have none.
    pub fn lint(&self) -> Vec<Lint> {
        let mut remarks = Remarks::on(self);
        walk(&mut remarks);
        fold(&mut remarks);
        keep(&mut remarks);
        index(&mut remarks);
        compaction(&mut remarks);
        cleanup(&mut remarks);
        cleanup_is_off(&mut remarks);
        agent(&mut remarks);
        remarks.found
    }
}

fn walk(remarks: &mut Remarks<'_>) {
    let policy = remarks.policy;
    remarks.note(policy.tick_ms == 0, "wal_compaction_interval_secs", |_| {
        "the walk is off: nothing folds unless back-pressure or a caller asks".into()
    });
    remarks.note(policy.tick_ms > policy.agent.sweep_ms, "wal_compaction_interval_secs", |r| {
        format!(
            "the walk's period of {} is longer than the sweep of {}, which decides instead",
            r.text("wal_compaction_interval_secs"),
            r.text("agent_sweep_interval_secs")
        )
    });
}

fn fold(remarks: &mut Remarks<'_>) {
    let policy = remarks.policy;
    remarks.note(policy.age_ms_max < policy.tick_ms, "wal_max_data_age_secs", |r| {
        format!(
            "the age bound of {} is shorter than the walk's period of {}, which decides instead",
            r.text("wal_max_data_age_secs"),
            r.text("wal_compaction_interval_secs")
        )
    });
    remarks.note(policy.trigger_count <= 1, "wal_compact_trigger_count", |r| {
        format!(
            "every SSTable makes a fold due: neither {} nor an age of {} ever decides",
            r.text("wal_compact_trigger_bytes"),
            r.text("wal_max_data_age_secs")
        )
    });
    remarks.note(policy.trigger_count > policy.prefix_max, "wal_compact_trigger_count", |_| {
        format!(
            "{} SSTables make a fold due, but a pass takes {} at most: the rest waits for a later trigger",
            policy.trigger_count, policy.prefix_max
        )
    });
    let any = policy.trigger_bytes < SSTABLE_BYTES_MIN && policy.trigger_count > 1;
    remarks.note(any, "wal_compact_trigger_bytes", |r| {
        format!(
            "every SSTable has more bytes than {}, so each makes a fold due: a count of {} never decides",
            r.text("wal_compact_trigger_bytes"),
            policy.trigger_count
        )
    });
    remarks.note(policy.trigger_bytes > policy.pass_bytes, "wal_compact_trigger_bytes", |r| {
        format!(
            "{} make a fold due, but a pass takes {} at most: the rest waits for a later trigger",
            r.text("wal_compact_trigger_bytes"),
            r.text("compact_pass_target_bytes")
        )
    });
}

/// What stays, and for how long.
fn keep(remarks: &mut Remarks<'_>) {
    let policy = remarks.policy;
    remarks.note(policy.retire_delay_ms == 0, "retire_delay_secs", |_| {
        "a reader that opened the version before a fold and lists the SSTables after it can miss the folded rows".into()
    });
    // A row waits at most this long, in the memtable and in its SSTable (R2.14).
    let quiet_ms = policy.age_ms_max.saturating_mul(2).saturating_add(policy.tick_ms);
    remarks.note(policy.retire_delay_ms >= quiet_ms, "retire_delay_secs", |r| {
        format!(
            "a shard that is written folds every {} at the latest, and each fold begins the delay of {} anew: \
             what is folded leaves the list late, or when writing stops",
            duration(quiet_ms),
            r.text("retire_delay_secs")
        )
    });
    remarks.note(policy.grace_ms < HOUR_MS, "collect_grace_secs", |r| {
        format!(
            "with a grace of {} a slow reader or a stalled writer can find its files gone",
            r.text("collect_grace_secs")
        )
    });
    remarks.note(policy.answers_percent == 0, "answers_check_percent", |_| {
        "0 of 100 jobs are followed by a comparison: one that changes an answer is not found, and what the table \
         was before is retired and cleaned"
            .into()
    });
}

fn index(remarks: &mut Remarks<'_>) {
    let policy = &remarks.policy.index;
    remarks.note(policy.rows_min <= 1 && policy.permille == 0, "index_unindexed_rows_min", |r| {
        format!(
            "a single unindexed row makes an index operation due: every write is followed by one, and an age of {} \
             never decides",
            r.text("index_unindexed_age_secs")
        )
    });
    remarks.note(policy.permille >= 1000, "index_unindexed_permille", |r| {
        format!(
            "{} of 1000 rows must be unindexed: of an index that covers anything, only an age of {} decides",
            policy.permille,
            r.text("index_unindexed_age_secs")
        )
    });
    remarks.note(policy.segments_max <= 1, "index_segments_max", |_| {
        "the second segment makes a merge due: every append is followed by a rewrite of the whole index".into()
    });
}

fn compaction(remarks: &mut Remarks<'_>) {
    let policy = &remarks.policy.compaction;
    remarks.note(policy.small_min <= 1, "compaction_small_fragments_min", |r| {
        format!(
            "a single small fragment makes a compaction due: every small write rewrites a neighbour of up to {}",
            r.text("compaction_target_bytes")
        )
    });
    remarks.note(policy.small_min > policy.fragments_max, "compaction_small_fragments_min", |_| {
        format!(
            "{} small fragments make a compaction due, but a job takes {} at most: the rest waits for a later trigger",
            policy.small_min, policy.fragments_max
        )
    });
    remarks.note(policy.target_bytes < MIB, "compaction_target_bytes", |r| {
        let (each, many) = (r.text("compaction_target_bytes"), (1u64 << 30) / policy.target_bytes.max(1));
        format!("with fragments of {each} a table of 1GiB has {many} of them, and every read opens each")
    });
    remarks.note(policy.target_rows < FRAGMENT_ROWS_MIN, "compaction_target_rows", |_| {
        let many = 1_000_000 / policy.target_rows.max(1);
        format!(
            "with {} rows a fragment a table of a million rows has {many} of them, and every read opens each",
            policy.target_rows
        )
    });
    remarks.note(policy.deleted_permille == 0, "compaction_deleted_permille", |r| {
        let whole = r.text("compaction_target_bytes");
        format!("a single deleted row makes a compaction due, which rewrites its fragment of up to {whole}")
    });
    remarks.note(policy.deleted_permille >= 1000, "compaction_deleted_permille", |_| {
        format!(
            "{} of 1000 rows are never exceeded: deleted rows keep their space until their fragment is merged as a \
             small one",
            policy.deleted_permille
        )
    });
    remarks.note(policy.defer_remap > 0, "compaction_defer_remap", |_| {
        "while moves wait for their remap, `optimize()` of LanceDB or Lance on the same table loses index entries \
         for good: let nothing else compact it"
            .into()
    });
    let at_once = policy.defer_remap > 0 && remarks.policy.remap.rewrites_min <= 1;
    remarks.note(at_once, "remap_rewrites_min", |_| {
        "a single rewrite that waits makes its remap due: to defer it gains nothing".into()
    });
}

fn cleanup(remarks: &mut Remarks<'_>) {
    let policy = &remarks.policy.cleanup;
    if policy.min_age_ms == 0 {
        return;
    }
    remarks.note(policy.min_age_ms < HOUR_MS, "cleanup_min_version_age_secs", |r| {
        format!(
            "with a minimum age of {} a slow reader or writer can find the version it began from gone",
            r.text("cleanup_min_version_age_secs")
        )
    });
    remarks.note(policy.version_interval <= 1, "cleanup_version_interval", |r| {
        format!(
            "every version makes a cleanup due, though it stays for {}: an interval of {} never decides",
            r.text("cleanup_min_version_age_secs"),
            r.text("cleanup_interval_secs")
        )
    });
    remarks.note(policy.initial_version <= policy.retain_versions, "cleanup_initial_version", |_| {
        format!(
            "a table's first cleanup is at version {}, but its newest {} versions stay: until there are more it finds \
             nothing",
            policy.initial_version, policy.retain_versions
        )
    });
    remarks.note(policy.retry_delay_ms > policy.interval_ms, "cleanup_retry_delay_secs", |r| {
        format!(
            "after a failure a cleanup waits {}, longer than the {} after a success",
            r.text("cleanup_retry_delay_secs"),
            r.text("cleanup_interval_secs")
        )
    });
}

/// Knobs of cleanup that somebody set, and that nothing reads.
fn cleanup_is_off(remarks: &mut Remarks<'_>) {
    let (is_off, default) = (remarks.policy.cleanup.min_age_ms == 0, Policy::default());
    let knobs = super::KNOBS.iter().filter(|knob| knob.key.starts_with("cleanup_"));
    for knob in knobs {
        let (set, policy) = ((knob.get)(remarks.policy) != (knob.get)(&default), remarks.policy);
        remarks.note(is_off && set, knob.key, |_| {
            format!(
                "{} counts for nothing: cleanup is off while `cleanup_min_version_age_secs` is 0",
                knob.text(policy)
            )
        });
    }
}

fn agent(remarks: &mut Remarks<'_>) {
    let policy = &remarks.policy.agent;
    let sweep = remarks.text("agent_sweep_interval_secs");
    remarks.note(policy.sweep_ms < policy.tick_ms, "agent_sweep_interval_secs", |r| {
        let tick = r.text("agent_tick_secs");
        format!("the sweep of {sweep} is shorter than the agent's period of {tick}, which decides instead")
    });
    remarks.note(policy.budget <= 1, "agent_budget", |_| {
        "notified tables get half of the budget, and half of 1 is 0: they wait while any table waits for its sweep"
            .into()
    });
    remarks.note(policy.backoff_ms > policy.sweep_ms, "agent_backoff_secs", |r| {
        let backoff = r.text("agent_backoff_secs");
        format!(
            "the first wait of {backoff} is longer than the sweep of {sweep}, which decides instead: it never doubles"
        )
    });
    remarks.note(policy.timeout_ms > policy.sweep_ms, "agent_evaluation_timeout_secs", |r| {
        format!(
            "an evaluation that hangs keeps its table from {} sweeps of {sweep} before its {} are over",
            policy.timeout_ms / policy.sweep_ms.max(1),
            r.text("agent_evaluation_timeout_secs")
        )
    });
}
