//! Values that are legal, and probably not meant.

use alloc::{format, string::String, vec::Vec};
use serde::{Deserialize, Serialize};

use super::{Knob, Policy};
use crate::time::HOUR_MS;

/// A remark on a knob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lint {
    /// The knob's key.
    pub key: String,
    /// What follows from its value.
    pub why: String,
}

impl Policy {
    /// Remarks on values that are legal but odd. The defaults have none.
    pub fn lint(&self) -> Vec<Lint> {
        let text = |key| Knob::named(key).map(|knob| knob.text(self)).unwrap_or_default();
        let mut lints = Vec::new();
        let mut note = |odd: bool, key: &str, why: String| {
            if odd {
                lints.push(Lint { key: key.into(), why });
            }
        };
        note(
            self.tick_ms == 0,
            "wal_compaction_interval_secs",
            "the walk is off: nothing folds unless back-pressure or a caller asks".into(),
        );
        note(
            self.compaction.defer_remap > 0,
            "compaction_defer_remap",
            "while moves wait for their remap, `optimize()` of LanceDB or Lance on the same table loses index entries \
             for good: let nothing else compact it"
                .into(),
        );
        note(
            self.age_ms_max < self.tick_ms,
            "wal_max_data_age_secs",
            format!(
                "the age bound of {} is shorter than the walk's period of {}, which decides instead",
                text("wal_max_data_age_secs"),
                text("wal_compaction_interval_secs")
            ),
        );
        note(
            self.trigger_count > self.prefix_max,
            "wal_compact_trigger_count",
            format!(
                "{} SSTables make a fold due, but a pass takes {} at most: the rest waits for a later trigger",
                self.trigger_count, self.prefix_max
            ),
        );
        note(
            self.trigger_bytes > self.pass_bytes,
            "wal_compact_trigger_bytes",
            format!(
                "{} make a fold due, but a pass takes {} at most: the rest waits for a later trigger",
                text("wal_compact_trigger_bytes"),
                text("compact_pass_target_bytes")
            ),
        );
        note(
            self.grace_ms < HOUR_MS,
            "collect_grace_secs",
            format!(
                "with a grace of {} a slow reader or a stalled writer can find its files gone",
                text("collect_grace_secs")
            ),
        );
        note(
            self.cleanup.min_age_ms > 0 && self.cleanup.min_age_ms < HOUR_MS,
            "cleanup_min_version_age_secs",
            format!(
                "with a minimum age of {} a slow reader or writer can find the version it began from gone",
                text("cleanup_min_version_age_secs")
            ),
        );
        note(
            self.agent.sweep_ms < self.agent.tick_ms,
            "agent_sweep_interval_secs",
            format!(
                "the sweep of {} is shorter than the agent's period of {}, which decides instead",
                text("agent_sweep_interval_secs"),
                text("agent_tick_secs")
            ),
        );
        lints
    }
}
