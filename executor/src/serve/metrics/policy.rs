//! Who decides, as Prometheus reads it.

use prometheus::{IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry};

use super::kept;
use crate::decide::{Count, Counts, Decider};

/// Metrics of [`Decider`].
pub(super) struct OfPolicy {
    active: IntGaugeVec,
    decisions: IntCounterVec,
    failures: IntCounterVec,
    shadow: IntCounterVec,
    not_loaded: IntCounter,
    lost: IntCounter,
}

const DECISIONS: [(Count, &str); 4] = [
    (Count::PlannedBuiltIn, "built_in"),
    (Count::PlannedByPlugin, "plugin"),
    (Count::FellBackToLastGood, "fallback_last_good"),
    (Count::FellBackToBuiltIn, "fallback_built_in"),
];
const FAILURES: [(Count, &str); 6] = [
    (Count::Deadline, "deadline"),
    (Count::Memory, "memory"),
    (Count::Trap, "trap"),
    (Count::Refused, "refused"),
    (Count::BadOutput, "bad_output"),
    (Count::Host, "host"),
];
const SHADOW: [(Count, &str); 4] = [
    (Count::ShadowSame, "same"),
    (Count::ShadowDiffers, "differs"),
    (Count::ShadowFailed, "failed"),
    (Count::ShadowSkipped, "skipped"),
];

impl OfPolicy {
    pub(super) fn new(r: &Registry) -> prometheus::Result<Self> {
        let counters =
            |name: &str, help: &str, label: &str| kept(r, IntCounterVec::new(Opts::new(name, help), &[label])?);
        let counter = |name: &str, help: &str| kept(r, IntCounter::new(name, help)?);
        let active = Opts::new("caretaker_policy_active", "1 for the planner that decides, and for the candidate.");
        Ok(Self {
            active: kept(r, IntGaugeVec::new(active, &["role", "planner"])?)?,
            decisions: counters("caretaker_policy_decisions_total", "Decisions, by who made them.", "by")?,
            failures: counters(
                "caretaker_policy_plugin_failures_total",
                "Evaluations for which the active plugin gave no plan that may be carried out.",
                "kind",
            )?,
            shadow: counters("caretaker_policy_shadow_total", "What the candidate said beside it.", "said")?,
            not_loaded: counter("caretaker_policy_load_failures_total", "Plugin files that could not be loaded.")?,
            lost: counter("caretaker_policy_records_lost_total", "Decisions that were not recorded.")?,
        })
    }

    pub(super) fn fill(&self, decider: &Decider) {
        self.active.reset();
        self.active.with_label_values(&["active", &decider.active().name()]).set(1);
        if let Some(shadow) = decider.shadow() {
            self.active.with_label_values(&["shadow", &shadow.plugin.name()]).set(1);
        }
        let counts = decider.counts();
        told(&self.decisions, &DECISIONS, counts);
        told(&self.failures, &FAILURES, counts);
        told(&self.shadow, &SHADOW, counts);
        let up = |counter: &IntCounter, now: u64| counter.inc_by(now.saturating_sub(counter.get()));
        up(&self.not_loaded, counts.get(Count::NotLoaded));
        up(&self.lost, decider.lost_records());
    }
}

fn told(counters: &IntCounterVec, all: &[(Count, &str)], counts: &Counts) {
    for (count, name) in all {
        let counter = counters.with_label_values(&[*name]);
        counter.inc_by(counts.get(*count).saturating_sub(counter.get()));
    }
}
